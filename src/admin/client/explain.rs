//! `GET /clients/{id}/explain`: the reasons for content, from the client to a name (ADM-9).

use std::time::SystemTime;

use axum::extract::{Path, State as Shared};
use axum::http::Uri;
use axum::response::Response;
use serde_json::Value;
use sluice_admin_api::names::{
    ClassDecision, ExplainedClass, ExplainedClient, ExplainedList, ExplainedName, ExplainedSource,
    ExplainedState, Explanation, NameFacts, NearestRule, StateFacts,
};
use sluice_admin_api::parameters::NameParameters;

use super::one::{find, held_text};
use crate::admin::item::{rfc_3339, seconds_since, variant_name};
use crate::admin::list::in_alphabetical_order;
use crate::admin::params::{Declined, bad_request, not_found, read};
use crate::admin::reloading::ConfigHistory;
use crate::admin::state::Admin;
use crate::admin::types;
use crate::driver::api::clients::{self as client_api, ClassChoice, NameExplanation, NearMiss, RuleText};
use crate::driver::api::proof::SplitStatus;
use crate::driver::api::status::{SessionStatus, SessionTypeStatus, SourceStatus, Why};
use sluice_engine::class::RuleId;
use sluice_xds::{ResourceName, TypeUrl};

/// `GET /clients/{id}/explain?type=&name=`.
pub(in crate::admin) async fn explain(
    Shared(admin): Shared<Admin>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, Declined> {
    Ok(in_alphabetical_order(&explanation(&admin, &id, &uri).await?))
}

/// The answer of `/clients/{id}/explain`.
pub(in crate::admin) async fn explanation(
    admin: &Admin,
    id: &str,
    uri: &Uri,
) -> Result<Explanation, Declined> {
    let NameParameters { r#type, name } = read(uri)?;
    let type_name = r#type.ok_or_else(|| bad_request("type is missing: the type to explain".to_owned()))?;
    let type_url = types::resolve(admin, &type_name).await.map_err(bad_request)?;
    admin.relay.refresh().await;
    let session = find(admin, id).map_err(not_found)?;
    let name = name.map(|name| canonical(&type_url, &name));
    let status = admin.relay.explain(session.id, &type_url, name.as_ref());
    let status = status.ok_or_else(|| not_found(format!("client {id:?} has gone")))?;
    Ok(answer(admin, &status, &type_url))
}

/// The name in the spelling of the cache.
pub(in crate::admin) fn canonical(type_url: &TypeUrl, name: &str) -> ResourceName {
    let name = ResourceName::new(name);
    name.canonical(type_url.message()).ok().flatten().unwrap_or(name)
}

fn answer(admin: &Admin, status: &client_api::Explanation, type_url: &TypeUrl) -> Explanation {
    let now = admin.relay.now();
    let source = status.source.as_deref();
    Explanation {
        client: client(&status.session),
        class: class(
            &status.class,
            source.map(|source| &*source.class.fields),
            &admin.process.reloading.status(),
        ),
        list: list(status),
        source: source.map(|source| self::source(source, now)),
        name: status.name.as_ref().map(|name| self::name(name, type_url)),
        state: state(status, type_url, |since| seconds_since(since, now)),
    }
}

fn client(session: &SessionStatus) -> ExplainedClient {
    let (variant, service) = (variant_name(session.kind.variant), session.kind.to_string());
    let node = shown(&session.node_id);
    ExplainedClient {
        id: session.id,
        node: session.node_id.to_string(),
        cluster: session.node_cluster.to_string(),
        listener: session.listener.to_string(),
        identity: session.identity.to_string(),
        variant: variant.to_owned(),
        text: format!("{} {node} on listener {}, {variant} {service}", session.id, session.listener),
        service,
    }
}

fn source(source: &SourceStatus, now: SystemTime) -> ExplainedSource {
    let (seconds, state) = (seconds_since(source.since, now), source.state.name());
    ExplainedSource {
        id: source.id,
        server: source.server.to_string(),
        state: state.to_owned(),
        since: rfc_3339(source.since),
        state_seconds: seconds,
        stale_seconds: source.stale_since.map(|since| seconds_since(since, now)),
        last_error: source.error_text(),
        text: format!("source {} of {}, {state} for {}", source.id, source.server, duration_text(seconds)),
    }
}

/// A text of a client or of the file in a line, without control characters.
fn shown(text: &str) -> String {
    if text.is_empty() { "(no node id)".to_owned() } else { text.escape_debug().to_string() }
}

/// The class with the rule, for people and tools. `rules`: the file that has the rules.
pub(in crate::admin) fn class(
    choice: &ClassChoice,
    fields: Option<&[(String, String)]>,
    rules: &ConfigHistory,
) -> ExplainedClass {
    let (class, generation) = (choice.digest.as_deref().map(str::to_owned), choice.generation);
    let Some(rule) = &choice.rule else {
        let text = "one class: the server gives all clients the same answers".to_owned();
        return ExplainedClass { class, rule: None, generation, text, decision: None };
    };
    let written = WrittenRule::find(rule.id, generation, rules);
    let nearest = |near: &NearMiss| NearestRule {
        rule: near.id.to_string(),
        field: near.field.clone(),
        wanted: near.condition.clone(),
        found: near.value.clone(),
        place: WrittenRule::find(near.id, generation, rules).map(|written| written.place),
    };
    let decision = ClassDecision {
        r#match: rule.matches.clone(),
        split_by: rule.splits.clone(),
        rule_text: written_text(rule.id, generation, written.as_ref()),
        written: written.as_ref().map(|written| written.text.clone()),
        place: written.map(|written| written.place),
        fields: fields.map(<[_]>::to_vec),
        nearest: rule.nearest.as_ref().map(nearest),
        not_reached: rule.not_reached.iter().map(ToString::to_string).collect(),
    };
    let split = choice.split.as_ref().map(split_text).unwrap_or_default();
    let text = rule_text(choice.digest.as_deref(), rule) + &split;
    ExplainedClass { class, rule: Some(rule.id.to_string()), generation, text, decision: Some(decision) }
}

/// A rule as the file has it.
struct WrittenRule<'a> {
    /// File, line and column.
    place: String,
    text: &'a Value,
}

impl WrittenRule<'_> {
    /// `None` for a rule that is in no file, and for one of a generation that is not kept.
    fn find(id: RuleId, generation: u64, rules: &ConfigHistory) -> Option<WrittenRule<'_>> {
        let generation = rules.find(generation)?;
        let text = generation.document.get("node_classes")?.get(id.entry)?;
        let place = generation.class_places.get(id.entry)?;
        let file = rules.file.as_ref().map(|file| format!("{}:", file.display())).unwrap_or_default();
        Some(WrittenRule { place: format!("{file}{place}"), text })
    }
}

fn written_text(id: RuleId, generation: u64, written: Option<&WrittenRule<'_>>) -> String {
    match written {
        Some(WrittenRule { place, text }) => {
            format!("{id} of generation {generation}, at {}: {text}", shown(place))
        }
        None if id.is_default => {
            format!("{id} of generation {generation}: built in, for nodes that no rule of the file matches")
        }
        None => format!("{id} of generation {generation}, whose text is not kept"),
    }
}

/// `; split off by locality.zone since …: the proof found other content of Cluster for client "blue-1"`.
fn split_text(split: &SplitStatus) -> String {
    let why = match &split.found_by {
        Some((client, type_name)) => {
            let kind = type_name.rsplit('.').next().unwrap_or_default();
            format!("the proof found other content of {kind} for client {client:?}")
        }
        None => "an operator's word".to_owned(),
    };
    format!("; split off by {} since {}: {why}", split.fields.join(","), rfc_3339(split.since))
}

fn rule_text(digest: Option<&str>, rule: &RuleText) -> String {
    let splits = if rule.splits.is_empty() { "client features alone" } else { &rule.splits };
    let digest = digest.unwrap_or("no class yet,");
    let mut text = format!("{digest} by {} (match {}; split by {splits})", rule.id, shown(&rule.matches));
    if let Some(near) = &rule.nearest {
        let value = near.value.as_deref().map_or("differs".to_owned(), |value| format!("is {value:?}"));
        text += &format!("; {} fails: {} {value}, not {}", near.id, near.field, shown(&near.condition));
    }
    let later: Vec<_> = rule.not_reached.iter().map(ToString::to_string).collect();
    if !later.is_empty() {
        text += &format!("; {} not reached", later.join(", "));
    }
    text
}

fn list(status: &client_api::Explanation) -> ExplainedList {
    let preferred = status.servers.first();
    let is_preferred = status.server.is_some() && status.server.as_ref() == preferred;
    let server = match (&status.server, is_preferred) {
        (Some(server), true) => format!("{server} (preferred)"),
        (Some(server), false) => {
            format!("{server} (in place of {})", preferred.map_or("none", |server| &**server))
        }
        (None, _) => "no server yet".to_owned(),
    };
    ExplainedList {
        key: status.list.to_string(),
        servers: status.servers.iter().map(ToString::to_string).collect(),
        server: status.server.as_ref().map(ToString::to_string),
        preferred: is_preferred,
        text: format!("{} -> {server}", status.list),
    }
}

fn name(status: &NameExplanation, type_url: &TypeUrl) -> ExplainedName {
    let refused = status.at_client.as_ref().and_then(|at| at.refused.as_ref()).map(ToString::to_string);
    let is_asked = status.at_client.is_some();
    let via = match status.collection {
        Some("wildcard") => "in the wildcard",
        Some("globs") => "in a glob",
        _ => "asked for by name",
    };
    let text = match (&refused, is_asked) {
        (Some(reason), _) => format!("refused: {}", shown(reason)),
        (None, false) => "not subscribed: the client does not ask for it".to_owned(),
        // The state of a Secret is not shown.
        (None, true) if type_url.is_secret() => via.to_owned(),
        (None, true) => {
            let since = status.received_at.map(|at| format!(" since {}", rfc_3339(at))).unwrap_or_default();
            let cause = status.cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
            format!("{}{cause}{since}, {via}", status.state)
        }
    };
    let facts = (!type_url.is_secret()).then(|| NameFacts {
        state: is_asked.then(|| status.state.to_owned()),
        entry: status.entry.map(str::to_owned),
        cause: status.cause.map(str::to_owned),
        refused,
        error: status.error.as_ref().map(ToString::to_string),
        received_at: status.received_at.map(rfc_3339),
    });
    let collection = status.collection.map(str::to_owned);
    ExplainedName { name: status.name.as_str().to_owned(), subscribed: is_asked, collection, text, facts }
}

/// The state of the client: of the name, or of the whole type.
fn state(
    status: &client_api::Explanation,
    type_url: &TypeUrl,
    age: impl Fn(SystemTime) -> f64,
) -> ExplainedState {
    let without_facts = |text: String| ExplainedState { text, facts: None };
    let Some(of_type) = status.session.types.first() else {
        return without_facts(format!("the client does not ask for {}", type_url.short()));
    };
    let at_client = status.name.as_ref().map(|name| name.at_client.as_ref());
    let Some(at_client) = at_client.map_or(Some(None), |at| at.map(Some)) else {
        let text = match of_type.why {
            Some(Why::Rate) => {
                "no request for the name was taken yet: requests of the client wait in the relay"
            }
            _ => "the client does not ask for the name",
        };
        return without_facts(text.to_owned());
    };
    let why = at_client.map_or(of_type.why, |at| at.why);
    let (has, should) = match at_client {
        Some(at) => (at.has.map(held_text), at.should.map(|version| version.to_string())),
        None => (
            of_type.has.map(|version| version.to_string()),
            of_type.should.map(|version| version.to_string()),
        ),
    };
    let is_secret = type_url.is_secret();
    let (has, should) = (has.filter(|_| !is_secret), should.filter(|_| !is_secret));
    let word = why.map_or("SYNCED", |why| why.state().name());
    let seconds = age(of_type.since);
    let end = why.map_or("SYNCED".to_owned(), |why| format!("{word}/{}", why.name()));
    let happened = happened(of_type, why, should.as_deref().or(has.as_deref()), seconds);
    let facts = StateFacts {
        state: word.to_owned(),
        why: why.map(|why| why.name().to_owned()),
        since: rfc_3339(of_type.since),
        state_seconds: seconds,
        has,
        should,
        nonce: of_type.nonce.as_deref().map(str::to_owned),
    };
    ExplainedState { text: format!("{happened} -> {end}"), facts: Some(facts) }
}

fn happened(status: &SessionTypeStatus, why: Option<Why>, version: Option<&str>, seconds: f64) -> String {
    let (ago, nonce) = (duration_text(seconds), status.nonce.as_deref().unwrap_or("none"));
    let what = status.held.as_ref().and_then(|held| held.what.as_deref()).unwrap_or_default();
    match why {
        None => match version {
            Some(version) => format!("has {}, the newest", version.get(..8).unwrap_or(version)),
            None => "has all that exists".to_owned(),
        },
        Some(Why::Rejected) => format!("rejected it {ago} ago, and keeps its former content"),
        Some(Why::Rate) => format!("has requests that wait in the relay for {ago}, for {what}"),
        Some(Why::Unacked) => format!("was sent it {ago} ago, nonce {nonce}, has not answered"),
        Some(Why::Order) => format!("is not sent it for {ago}, before it ACKs {what}"),
        Some(Why::Withheld) => "is not told that it is gone, because routes may refer to it".to_owned(),
        Some(Why::Unread) => {
            format!("is not sent it for {ago}: it does not read, or the update is about to go")
        }
        Some(Why::Name) => "is not sent it, before the server has said whether a name exists".to_owned(),
        Some(Why::Deletion) => {
            format!("keeps resources that the server deleted {ago} ago, until an operator confirms")
        }
        Some(Why::Join) => {
            format!("waits for {what} for {ago}: there is no content from before it here")
        }
        Some(Why::Unknown) => "was sent nothing: nothing is known of it".to_owned(),
    }
}

/// A duration for people, in the two largest units.
fn duration_text(seconds: f64) -> String {
    let whole = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default().as_secs();
    match whole {
        0..10 => format!("{seconds:.1}s"),
        10..60 => format!("{whole}s"),
        60..3_600 => format!("{}m{}s", whole / 60, whole % 60),
        3_600..86_400 => format!("{}h{}m", whole / 3_600, whole / 60 % 60),
        _ => format!("{}d{}h", whole / 86_400, whole / 3_600 % 24),
    }
}
