//! `GET /clients/{id}/diff`: the way from the content of a client to the due content, or to the content of
//! another client.

use std::time::SystemTime;

use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use sluice_admin_api::names::{ChangedName, ClientDifference, TypeDifference};
use sluice_admin_api::parameters::DiffParameters;

use super::compare::{ComparedContents, DiffForm, FORMATS};
use super::one::{find, held_text};
use crate::admin::item::seconds_since;
use crate::admin::list::ITEMS_PER_TURN;
use crate::admin::params::{Declined, bad_request, conflict, flag, not_found, read, word};
use crate::admin::state::Admin;
use crate::admin::types;
use crate::driver::api::clients::{HeldVersion, NameStatus, NameStatuses};
use crate::driver::api::status::{SessionStatus, SessionTypeStatus, Why, names_type};
use sluice_xds::TypeUrl;

/// The bound of each list of names. The counts have all.
const NAMES_MAX: usize = 1_000;

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
    format: DiffForm,
    any_class: bool,
}

impl DiffQuery {
    fn parse(uri: &Uri) -> Result<DiffQuery, Declined> {
        let params: DiffParameters = read(uri)?;
        let format = word("format", params.format, &FORMATS)?.unwrap_or(DiffForm::Names);
        let to_text = params.to.unwrap_or_else(|| "desired".to_owned());
        let client = to_text.strip_prefix("client:").and_then(|id| id.parse().ok());
        let to = match (to_text.as_str(), client) {
            ("desired", _) => To::Desired,
            (_, Some(id)) => To::Client(id),
            _ => return Err(bad_request(format!("to is {to_text:?}; allowed: desired, or client:ID"))),
        };
        let any_class = flag("any_class", params.any_class)?;
        Ok(DiffQuery { to, to_text, type_name: params.r#type, name: params.name, format, any_class })
    }
}

/// `GET /clients/{id}/diff?to=&type=&name=&format=&any_class=`.
pub(in crate::admin) async fn diff(
    Shared(admin): Shared<Admin>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, Declined> {
    Ok(Json(difference(&admin, &id, &uri).await?).into_response())
}

/// The answer of `/clients/{id}/diff`.
pub(in crate::admin) async fn difference(
    admin: &Admin,
    id: &str,
    uri: &Uri,
) -> Result<ClientDifference, Declined> {
    let query = DiffQuery::parse(uri)?;
    types::check(admin, query.type_name.as_deref()).await.map_err(bad_request)?;
    admin.relay.refresh().await;
    let session = find(admin, id).map_err(not_found)?;
    let other = match query.to {
        To::Desired => None,
        To::Client(other) => Some(find(admin, &other.to_string()).map_err(not_found)?),
    };
    if let Some(other) = &other
        && let Some((ours, theirs)) = other_class(&session, other, &query)
    {
        let text = format!(
            "clients {} and {} are of different classes for {}: {} and {}; any_class=1 compares them all the same",
            session.id,
            other.id,
            ours.type_url.short(),
            ours.class.as_deref().unwrap_or("none"),
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
    let (mut types, mut contents) = (Vec::new(), ComparedContents::new(admin, query.format));
    for type_url in types_of(&session, other.as_ref(), &query) {
        let lists = compare_type(admin, &session, other.as_ref(), &type_url, &query).await;
        types.push(lists.into_difference(&session, &type_url, admin.relay.now(), &mut contents).await);
    }
    let differs = types.iter().any(|of_type: &TypeDifference| {
        of_type.added_count + of_type.changed_count + of_type.removed_count > 0
    });
    Ok(ClientDifference { client: session.id, to: query.to_text, reads, differs, types })
}

/// The first type with different classes at two clients, as at each client.
fn other_class<'a>(
    session: &'a SessionStatus,
    other: &'a SessionStatus,
    query: &DiffQuery,
) -> Option<(&'a SessionTypeStatus, &'a SessionTypeStatus)> {
    let mut pairs = session.types.iter().filter(|ours| query.wants(&ours.type_url)).filter_map(|ours| {
        let theirs = other.types.iter().find(|theirs| theirs.type_url == ours.type_url)?;
        Some((ours, theirs))
    });
    pairs.find(|(ours, theirs)| !query.any_class && ours.class != theirs.class)
}

/// The types of either client, in order.
fn types_of(session: &SessionStatus, other: Option<&SessionStatus>, query: &DiffQuery) -> Vec<TypeUrl> {
    let all = session.types.iter().chain(other.into_iter().flat_map(|other| &other.types));
    let mut types: Vec<_> =
        all.map(|status| status.type_url.clone()).filter(|type_url| query.wants(type_url)).collect();
    types.sort();
    types.dedup();
    types
}

impl DiffQuery {
    fn wants(&self, type_url: &TypeUrl) -> bool {
        self.type_name.as_deref().is_none_or(|text| names_type(text, type_url))
    }
}

/// The names of a type that differ. Gives other tasks turns.
async fn compare_type(
    admin: &Admin,
    session: &SessionStatus,
    other: Option<&SessionStatus>,
    type_url: &TypeUrl,
    query: &DiffQuery,
) -> NameLists {
    let names = |id| admin.relay.names(id, type_url, None).unwrap_or_else(|| Box::new(std::iter::empty()));
    let mut lists = NameLists { is_secret: type_url.is_secret(), ..NameLists::default() };
    let pairs =
        NamePairs { from: names(session.id).peekable(), to: other.map(|other| names(other.id).peekable()) };
    for (number, pair) in pairs.enumerate() {
        if query.name.as_deref().is_none_or(|name| name == pair.name) {
            lists.add(pair);
        }
        if number % ITEMS_PER_TURN == ITEMS_PER_TURN - 1 {
            tokio::task::yield_now().await;
        }
    }
    lists
}

/// One name, before and after.
struct NamePair {
    name: String,
    has: Option<HeldVersion>,
    should: Option<HeldVersion>,
    /// The removal waits, or the existence of the resource is not known.
    is_kept: bool,
}

/// The names of a client with the due versions, or the names of two clients side by side.
struct NamePairs {
    from: std::iter::Peekable<NameStatuses>,
    to: Option<std::iter::Peekable<NameStatuses>>,
}

impl Iterator for NamePairs {
    type Item = NamePair;

    fn next(&mut self) -> Option<NamePair> {
        let Some(to) = &mut self.to else {
            let status = self.from.next()?;
            let is_kept = status.should.is_none() && matches!(status.why, Some(Why::Withheld | Why::Name));
            let should = status.should.map(HeldVersion::Known);
            return Some(NamePair { name: status.name.to_string(), has: status.has, should, is_kept });
        };
        let ours = self.from.peek().map(|status| &status.name);
        let theirs = to.peek().map(|status| &status.name);
        let first = ours.into_iter().chain(theirs).min()?.clone();
        let has = self.from.next_if(|status| status.name == first).and_then(|status: NameStatus| status.has);
        let should = to.next_if(|status| status.name == first).and_then(|status: NameStatus| status.has);
        Some(NamePair { name: first.to_string(), has, should, is_kept: false })
    }
}

/// The names of a type that differ.
#[derive(Default)]
struct NameLists {
    is_secret: bool,
    difference: TypeDifference,
    /// The two versions of each name in `changed`.
    versions: Vec<[HeldVersion; 2]>,
}

impl NameLists {
    fn add(&mut self, pair: NamePair) {
        let NamePair { name, has, should, is_kept } = pair;
        let lists = &mut self.difference;
        let (list, count) = match (has, should) {
            (None, Some(_)) => (&mut lists.added, &mut lists.added_count),
            (Some(_), None) if is_kept => (&mut lists.withheld, &mut lists.withheld_count),
            (Some(_), None) => (&mut lists.removed, &mut lists.removed_count),
            (Some(has), Some(should)) if has != should => {
                lists.changed_count += 1;
                if lists.changed.len() < NAMES_MAX {
                    let text = |held| (!self.is_secret).then(|| held_text(held));
                    lists.changed.push(ChangedName {
                        name,
                        has: text(has),
                        should: text(should),
                        content: None,
                    });
                    self.versions.push([has, should]);
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

    /// The lists with the state of the client, and with contents if they were asked for.
    async fn into_difference(
        self,
        session: &SessionStatus,
        type_url: &TypeUrl,
        now: SystemTime,
        contents: &mut ComparedContents<'_>,
    ) -> TypeDifference {
        let mut difference = self.difference;
        for (changed, versions) in difference.changed.iter_mut().zip(self.versions) {
            changed.content = contents.difference(type_url, &changed.name, versions).await;
        }
        let status = session.types.iter().find(|status| status.type_url == *type_url);
        TypeDifference {
            r#type: type_url.message().to_owned(),
            state: status.map_or("NOT_SENT", |status| status.state.name()).to_owned(),
            why: status.and_then(|status| status.why).map(|why| why.name().to_owned()),
            seconds: status.map_or(0.0, |status| seconds_since(status.since, now)),
            ..difference
        }
    }
}
