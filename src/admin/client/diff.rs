//! `GET /clients/{id}/diff`: the way from the content of a client to the due content, or to the content of
//! another client.

use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::compare::{self, Contents, FORMATS, Format};
use super::one::{find, held_text};
use crate::admin::item::seconds_since;
use crate::admin::list::ITEMS_PER_TURN;
use crate::admin::params::{Params, bad_request, conflict, not_found};
use crate::admin::state::Admin;
use crate::admin::types;
use crate::driver::api::clients::{HeldVersion, NameStatus, NameStatuses};
use crate::driver::api::status::{SessionStatus, SessionTypeStatus, Why, names_type};
use crate::xds::TypeUrl;

/// The bound of each list of names. The counts have all.
const NAMES_MAX: usize = 1_000;

#[derive(Debug, Serialize)]
struct Difference<'a> {
    client: u64,
    to: &'a str,
    /// The direction, in words.
    reads: String,
    /// Whether some type differs.
    differs: bool,
    types: Vec<TypeDifference>,
}

#[derive(Debug, Default, Serialize)]
struct TypeDifference {
    r#type: String,
    state: &'static str,
    why: Option<&'static str>,
    seconds: f64,
    added: Vec<String>,
    changed: Vec<Changed>,
    removed: Vec<String>,
    /// Names with a removal on hold.
    withheld: Vec<String>,
    added_count: usize,
    changed_count: usize,
    removed_count: usize,
    withheld_count: usize,
}

#[derive(Debug, Serialize)]
struct Changed {
    name: String,
    /// Absent for Secrets, as a version is a hash of the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    has: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    should: Option<String>,
    /// `patch`, `text`, or the reason for neither.
    #[serde(flatten)]
    content: Option<compare::Difference>,
    #[serde(skip)]
    versions: [HeldVersion; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Desired,
    Client(u64),
}

struct DiffQuery {
    to: To,
    to_text: String,
    type_name: Option<String>,
    name: Option<String>,
    format: Format,
    any_class: bool,
}

impl DiffQuery {
    fn parse(uri: &Uri) -> Result<DiffQuery, String> {
        let mut params = Params::parse(uri, &["to", "type", "name", "format", "any_class"])?;
        let format = params.word("format", &FORMATS)?.unwrap_or(Format::Names);
        let to_text = params.take("to").unwrap_or_else(|| "desired".to_owned());
        let client = to_text.strip_prefix("client:").and_then(|id| id.parse().ok());
        let to = match (to_text.as_str(), client) {
            ("desired", _) => To::Desired,
            (_, Some(id)) => To::Client(id),
            _ => return Err(format!("to is {to_text:?}; allowed: desired, or client:ID")),
        };
        let (type_name, name) = (params.take("type"), params.take("name"));
        Ok(DiffQuery { to, to_text, type_name, name, format, any_class: params.flag("any_class")? })
    }
}

/// `GET /clients/{id}/diff?to=&type=&name=&format=&any_class=`.
pub(in crate::admin) async fn diff(
    Shared(admin): Shared<Admin>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, Response> {
    let query = DiffQuery::parse(&uri).map_err(bad_request)?;
    types::check(&admin, query.type_name.as_deref()).await.map_err(bad_request)?;
    admin.relay.refresh().await;
    let session = find(&admin, &id).map_err(not_found)?;
    let other = match query.to {
        To::Desired => None,
        To::Client(other) => Some(find(&admin, &other.to_string()).map_err(not_found)?),
    };
    if let Some((of, theirs)) = other.as_ref().and_then(|other| other_class(&session, other, &query)) {
        let text = format!(
            "clients {} and {} are of different classes for {}: {} and {}; any_class=1 compares them all the same",
            session.id,
            other.as_ref().map_or(0, |other| other.id),
            of.type_url.short(),
            of.class.as_deref().unwrap_or("none"),
            theirs.class.as_deref().unwrap_or("none")
        );
        return Err(conflict(text));
    }
    let reads = match query.to {
        To::Desired => "apply to what it has; gives what it should have".to_owned(),
        To::Client(other) => {
            format!("apply to what client {} has; gives what client {other} has", session.id)
        }
    };
    let mut types = Vec::new();
    for type_url in types_of(&session, other.as_ref(), &query) {
        types.push(of_type(&admin, &session, other.as_ref(), &type_url, &query).await);
    }
    let mut contents = Contents::new(&admin, query.format);
    for (type_url, found) in &mut types {
        for changed in &mut found.changed {
            changed.content = contents.difference(type_url, &changed.name, changed.versions).await;
        }
    }
    let now = admin.relay.now();
    let types: Vec<_> = types
        .into_iter()
        .map(|(type_url, difference)| {
            let status = session.types.iter().find(|of| of.type_url == type_url);
            TypeDifference {
                state: status.map_or("NOT_SENT", |of| of.state.name()),
                why: status.and_then(|of| of.why).map(Why::name),
                seconds: status.map_or(0.0, |of| seconds_since(of.since, now)),
                ..difference
            }
        })
        .collect();
    let differs = types.iter().any(|of| of.added_count + of.changed_count + of.removed_count > 0);
    let answer = Difference { client: session.id, to: &query.to_text, reads, differs, types };
    Ok(Json(answer).into_response())
}

/// The first type with different classes at two clients, as at each client.
fn other_class<'a>(
    session: &'a SessionStatus,
    other: &'a SessionStatus,
    query: &DiffQuery,
) -> Option<(&'a SessionTypeStatus, &'a SessionTypeStatus)> {
    let mut pairs = session.types.iter().filter(|of| query.wants(&of.type_url)).filter_map(|of| {
        let theirs = other.types.iter().find(|theirs| theirs.type_url == of.type_url)?;
        Some((of, theirs))
    });
    pairs.find(|(of, theirs)| !query.any_class && of.class != theirs.class)
}

/// The types of either client, in order.
fn types_of(session: &SessionStatus, other: Option<&SessionStatus>, query: &DiffQuery) -> Vec<TypeUrl> {
    let all = session.types.iter().chain(other.into_iter().flat_map(|other| &other.types));
    let mut types: Vec<_> =
        all.map(|of| of.type_url.clone()).filter(|type_url| query.wants(type_url)).collect();
    types.sort();
    types.dedup();
    types
}

impl DiffQuery {
    fn wants(&self, type_url: &TypeUrl) -> bool {
        self.type_name.as_deref().is_none_or(|text| names_type(text, type_url))
    }
}

/// The difference of a type. Gives other tasks turns.
async fn of_type(
    admin: &Admin,
    session: &SessionStatus,
    other: Option<&SessionStatus>,
    type_url: &TypeUrl,
    query: &DiffQuery,
) -> (TypeUrl, TypeDifference) {
    let names = |id| admin.relay.names(id, type_url, None).unwrap_or_else(|| Box::new(std::iter::empty()));
    let found = TypeDifference { r#type: type_url.message().to_owned(), ..TypeDifference::default() };
    let mut lists = Lists { is_secret: type_url.is_secret(), found };
    let steps =
        Steps { from: names(session.id).peekable(), to: other.map(|other| names(other.id).peekable()) };
    for (number, step) in steps.enumerate() {
        if query.name.as_deref().is_none_or(|name| name == step.name) {
            lists.add(step);
        }
        if number % ITEMS_PER_TURN == ITEMS_PER_TURN - 1 {
            tokio::task::yield_now().await;
        }
    }
    (type_url.clone(), lists.found)
}

/// One name, before and after.
struct Step {
    name: String,
    has: Option<HeldVersion>,
    should: Option<HeldVersion>,
    /// The removal waits, or the existence of the resource is not known.
    is_kept: bool,
}

/// The names of a client with the due versions, or the names of two clients side by side.
struct Steps {
    from: std::iter::Peekable<NameStatuses>,
    to: Option<std::iter::Peekable<NameStatuses>>,
}

impl Iterator for Steps {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let Some(to) = &mut self.to else {
            let of = self.from.next()?;
            let is_kept = of.should.is_none() && matches!(of.why, Some(Why::Withheld | Why::Name));
            let should = of.should.map(HeldVersion::Known);
            return Some(Step { name: of.name.to_string(), has: of.has, should, is_kept });
        };
        let first =
            self.from.peek().map(|of| &of.name).into_iter().chain(to.peek().map(|of| &of.name)).min()?;
        let first = first.clone();
        let has = self.from.next_if(|of| of.name == first).and_then(|of: NameStatus| of.has);
        let should = to.next_if(|of| of.name == first).and_then(|of: NameStatus| of.has);
        Some(Step { name: first.to_string(), has, should, is_kept: false })
    }
}

struct Lists {
    is_secret: bool,
    found: TypeDifference,
}

impl Lists {
    fn add(&mut self, step: Step) {
        let Step { name, has, should, is_kept } = step;
        let of = &mut self.found;
        let (list, count) = match (has, should) {
            (None, Some(_)) => (&mut of.added, &mut of.added_count),
            (Some(_), None) if is_kept => (&mut of.withheld, &mut of.withheld_count),
            (Some(_), None) => (&mut of.removed, &mut of.removed_count),
            (Some(has), Some(should)) if has != should => {
                of.changed_count += 1;
                if of.changed.len() < NAMES_MAX {
                    let text = |held| (!self.is_secret).then(|| held_text(held));
                    let (content, versions) = (None, [has, should]);
                    of.changed.push(Changed {
                        name,
                        has: text(has),
                        should: text(should),
                        content,
                        versions,
                    });
                }
                return;
            }
            (Some(_), Some(_)) | (None, None) => return,
        };
        *count += 1;
        if list.len() < NAMES_MAX {
            list.push(name);
        }
    }
}
