//! `GET /clients/{id}/explain`: the reasons for content, from the client to a name (ADM-9).

use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::one::{find, held_text};
use crate::admin::item::{rfc_3339, seconds_since};
use crate::admin::params::{Params, bad_request, not_found};
use crate::admin::reloading::ConfigHistory;
use crate::admin::state::Admin;
use crate::admin::types;
use crate::driver::api::clients::{ClassChoice, Explanation, NameExplanation, NearMiss, RuleText};
use crate::driver::api::status::{SessionTypeStatus, Why};
use crate::engine::class::RuleId;
use crate::xds::{ResourceName, TypeUrl};

/// `GET /clients/{id}/explain?type=&name=`.
pub(in crate::admin) async fn explain(
    Shared(admin): Shared<Admin>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, Response> {
    let read = || {
        let mut params = Params::parse(&uri, &["type", "name"])?;
        let type_name = params.take("type").ok_or("type is missing: the type to explain")?;
        Ok::<_, String>((type_name, params.take("name")))
    };
    let (type_name, name) = read().map_err(bad_request)?;
    let type_url = types::resolve(&admin, &type_name).await.map_err(bad_request)?;
    admin.relay.refresh().await;
    let session = find(&admin, &id).map_err(not_found)?;
    let name = name.map(|name| canonical(&type_url, &name));
    let found = admin.relay.explain(session.id, &type_url, name.as_ref());
    let found = found.ok_or_else(|| not_found(format!("client {id:?} has gone")))?;
    Ok(Json(answer(&admin, &found, &type_url)).into_response())
}

/// The name in the spelling of the cache.
pub(in crate::admin) fn canonical(type_url: &TypeUrl, name: &str) -> ResourceName {
    let name = ResourceName::new(name);
    name.canonical(type_url.message()).ok().flatten().unwrap_or(name)
}

fn answer(admin: &Admin, found: &Explanation, type_url: &TypeUrl) -> Value {
    let now = admin.relay.now();
    let session = &found.session;
    let (variant, service) =
        (crate::admin::item::variant_name(session.kind.variant), session.kind.to_string());
    let node = shown(&session.node_id);
    let rules = admin.reloading.status();
    json!({
        "client": {
            "id": session.id, "node": &*session.node_id, "cluster": &*session.node_cluster,
            "listener": &*session.listener, "identity": session.identity.to_string(), "variant": variant,
            "service": service,
            "text": format!("{} {node} on listener {}, {variant} {service}", session.id, session.listener),
        },
        "class": class(&found.class, found.source.as_ref().map(|source| &*source.class.fields), &rules),
        "list": list(found),
        "source": found.source.as_ref().map(|source| {
            let seconds = seconds_since(source.since, now);
            json!({
                "id": source.id, "server": &*source.server, "state": source.state.name(),
                "since": rfc_3339(source.since), "state_seconds": seconds,
                "stale_seconds": source.stale_since.map(|since| seconds_since(since, now)),
                "last_error": source.error_text(),
                "text": format!("source {} of {}, {} for {}", source.id, source.server, source.state.name(),
                    duration_text(seconds)),
            })
        }),
        "name": found.name.as_ref().map(|of| name(of, type_url)),
        "state": state(found, type_url, |since| seconds_since(since, now)),
    })
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
) -> Value {
    let Some(rule) = &choice.rule else {
        return json!({
            "class": choice.digest.as_deref(), "rule": null, "generation": choice.generation,
            "text": "one class: the server gives all clients the same answers",
        });
    };
    let near = rule.nearest.as_ref();
    let written = Written::find(rule.id, choice.generation, rules);
    let find = |near: &NearMiss| Written::find(near.id, choice.generation, rules);
    json!({
        "class": choice.digest.as_deref(),
        "rule": rule.id.to_string(),
        "generation": choice.generation,
        "match": rule.matches,
        "split_by": rule.splits,
        "place": written.as_ref().map(|of| &of.place),
        "written": written.as_ref().map(|of| of.text),
        "rule_text": written_text(rule.id, choice.generation, written.as_ref()),
        "fields": fields,
        "nearest": near.map(|near| json!({
            "rule": near.id.to_string(), "field": near.field, "wanted": near.wanted, "found": near.found,
            "place": find(near).map(|of| of.place),
        })),
        "not_reached": rule.not_reached.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "text": rule_text(choice.digest.as_deref(), rule),
    })
}

/// A rule as the file has it.
struct Written<'a> {
    /// File, line and column.
    place: String,
    text: &'a Value,
}

impl Written<'_> {
    /// `None` for a rule that is in no file, and for one of a generation that is not kept.
    fn find(id: RuleId, generation: u64, rules: &ConfigHistory) -> Option<Written<'_>> {
        let of = rules.find(generation)?;
        let text = of.document.get("node_classes")?.get(id.entry)?;
        let place = of.class_places.get(id.entry)?;
        let file = rules.file.as_ref().map(|file| format!("{}:", file.display())).unwrap_or_default();
        Some(Written { place: format!("{file}{place}"), text })
    }
}

fn written_text(id: RuleId, generation: u64, written: Option<&Written<'_>>) -> String {
    match written {
        Some(Written { place, text }) => {
            format!("{id} of generation {generation}, at {}: {text}", shown(place))
        }
        None if id.is_default => {
            format!("{id} of generation {generation}: built in, for nodes that no rule of the file matches")
        }
        None => format!("{id} of generation {generation}, whose text is not kept"),
    }
}

fn rule_text(digest: Option<&str>, rule: &RuleText) -> String {
    let splits = if rule.splits.is_empty() { "client features alone" } else { &rule.splits };
    let digest = digest.unwrap_or("no class yet,");
    let mut text = format!("{digest} by {} (match {}; split by {splits})", rule.id, shown(&rule.matches));
    if let Some(near) = &rule.nearest {
        let found = near.found.as_deref().map_or("differs".to_owned(), |found| format!("is {found:?}"));
        text += &format!("; {} fails: {} {found}, not {}", near.id, near.field, shown(&near.wanted));
    }
    let later: Vec<_> = rule.not_reached.iter().map(ToString::to_string).collect();
    if !later.is_empty() {
        text += &format!("; {} not reached", later.join(", "));
    }
    text
}

fn list(found: &Explanation) -> Value {
    let preferred = found.servers.first();
    let is_preferred = found.server.is_some() && found.server.as_ref() == preferred;
    let of = match (&found.server, is_preferred) {
        (Some(server), true) => format!("{server} (preferred)"),
        (Some(server), false) => format!("{server} (in place of {})", preferred.map_or("none", |of| &**of)),
        (None, _) => "no server yet".to_owned(),
    };
    json!({
        "key": &*found.list,
        "servers": found.servers.iter().map(|server| &**server).collect::<Vec<_>>(),
        "server": found.server.as_deref(),
        "preferred": is_preferred,
        "text": format!("{} -> {of}", found.list),
    })
}

fn name(of: &NameExplanation, type_url: &TypeUrl) -> Value {
    let refused = of.at_client.as_ref().and_then(|at| at.refused.as_ref()).map(ToString::to_string);
    let is_asked = of.at_client.is_some();
    let via = match of.collection {
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
            let since = of.received_at.map(|at| format!(" since {}", rfc_3339(at))).unwrap_or_default();
            let cause = of.cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
            format!("{}{cause}{since}, {via}", of.state)
        }
    };
    if type_url.is_secret() {
        return json!({ "name": of.name.as_str(), "subscribed": is_asked, "collection": of.collection, "text": text });
    }
    json!({
        "name": of.name.as_str(), "subscribed": is_asked, "collection": of.collection,
        "state": is_asked.then_some(of.state), "entry": of.entry, "cause": of.cause, "refused": refused,
        "error": of.error.as_ref().map(ToString::to_string),
        "received_at": of.received_at.map(rfc_3339), "text": text,
    })
}

/// The state of the client: of the name, or of the whole type.
fn state(found: &Explanation, type_url: &TypeUrl, age: impl Fn(std::time::SystemTime) -> f64) -> Value {
    let Some(of) = found.session.types.first() else {
        return json!({ "text": format!("the client does not ask for {}", type_url.short()) });
    };
    let at_client = found.name.as_ref().map(|name| name.at_client.as_ref());
    let Some(at_client) = at_client.map_or(Some(None), |at| at.map(Some)) else {
        let text = match of.why {
            Some(Why::Rate) => {
                "no request for the name was taken yet: requests of the client wait in the relay"
            }
            _ => "the client does not ask for the name",
        };
        return json!({ "text": text });
    };
    let why = at_client.map_or(of.why, |at| at.why);
    let (has, should) = match at_client {
        Some(at) => (at.has.map(held_text), at.should.map(|version| version.to_string())),
        None => (of.has.map(|version| version.to_string()), of.should.map(|version| version.to_string())),
    };
    let is_secret = type_url.is_secret();
    let (has, should) = (has.filter(|_| !is_secret), should.filter(|_| !is_secret));
    let word = why.map_or("SYNCED", |why| why.state().name());
    let seconds = age(of.since);
    let end = why.map_or("SYNCED".to_owned(), |why| format!("{word}/{}", why.name()));
    let text = format!("{} -> {end}", happened(of, why, should.as_deref().or(has.as_deref()), seconds));
    let why = why.map(Why::name);
    json!({
        "state": word, "why": why, "since": rfc_3339(of.since), "state_seconds": seconds, "has": has, "should": should,
        "nonce": of.nonce.as_deref(), "text": text,
    })
}

fn happened(of: &SessionTypeStatus, why: Option<Why>, version: Option<&str>, seconds: f64) -> String {
    let (ago, nonce) = (duration_text(seconds), of.nonce.as_deref().unwrap_or("none"));
    let what = of.held.as_ref().and_then(|held| held.what.as_deref()).unwrap_or_default();
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
