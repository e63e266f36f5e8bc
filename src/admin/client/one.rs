//! `GET /clients/{id}`: a client with names.

use std::time::SystemTime;

use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;

use super::item;
use crate::admin::page::{Page, cursor};
use crate::admin::params::{Params, bad_request, not_found};
use crate::admin::query::ClientsQuery;
use crate::admin::state::Admin;
use crate::admin::types;
use crate::driver::api::clients::{HeldVersion, NameStatus};
use crate::driver::api::status::{NackStatus, SessionStatus, Why};
use crate::xds::ResourceName;

/// One name of a client.
#[derive(Debug, Serialize)]
struct Name<'a> {
    name: &'a str,
    /// Absent for Secrets, as the version is.
    #[serde(flatten)]
    content: Option<Content<'a>>,
    state: &'static str,
    why: Option<&'static str>,
    /// The reason of a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

#[derive(Debug, Serialize)]
struct Content<'a> {
    has: Option<String>,
    should: Option<String>,
    /// The text of the client's NACK, if the text names the resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    nack: Option<&'a str>,
}

/// The held version as text.
pub(super) fn held_text(held: HeldVersion) -> String {
    held.known().map_or_else(|| "unknown".to_owned(), |version| version.to_string())
}

fn name<'a>(of: &'a NameStatus, nack: Option<&'a NackStatus>, is_secret: bool) -> Name<'a> {
    let nack = nack.filter(|nack| nack.names.contains(&of.name)).map(|nack| &*nack.detail);
    Name {
        name: of.name.as_str(),
        content: (!is_secret).then(|| Content {
            has: of.has.map(held_text),
            should: of.should.map(|version| version.to_string()),
            nack,
        }),
        state: of.state().name(),
        why: of.why.map(Why::name),
        refused: of.refused.as_ref().map(ToString::to_string),
    }
}

/// The stream with this id.
pub(super) fn find(admin: &Admin, id: &str) -> Result<SessionStatus, String> {
    let session = id.parse().ok().and_then(|id| admin.relay.session(id));
    session.ok_or_else(|| format!("no client {id:?}; GET /clients has the ids of open streams"))
}

/// Where the names of a page begin: a type and a name.
type Start = (String, String);

/// `GET /clients/{id}?type=&names=&after=&limit=`.
pub(in crate::admin) async fn one(
    Shared(admin): Shared<Admin>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Response> {
    let read = || {
        let mut params = Params::parse(&uri, &["type", "names", "after", "limit"])?;
        let (type_name, has_names) = (params.take("type"), params.flag("names")?);
        if let Some(key) = ["after", "limit"].into_iter().find(|key| !has_names && params.has(key)) {
            return Err(format!("{key} goes with names=1"));
        }
        let page = Page::read(&mut params, &headers)?;
        let after: Option<Start> = page.after()?;
        if page.is_unlimited() {
            return Err("limit is \"all\"; allowed: a whole number, for the names of one client".to_owned());
        }
        Ok((type_name, has_names, page, after))
    };
    let (type_name, has_names, page, after) = read().map_err(bad_request)?;
    types::check(&admin, type_name.as_deref()).await.map_err(bad_request)?;
    admin.relay.refresh().await;
    let session = find(&admin, &id).map_err(not_found)?;
    let query = ClientsQuery { type_name, ..ClientsQuery::default() };
    let now = admin.relay.now();
    let mut answer = describe(&session, &query, now).map_err(not_found)?;
    if has_names {
        let next = add_names(&admin, &session, &query, now, &page, after, &mut answer);
        if let Value::Object(answer) = &mut answer {
            answer.insert("next".to_owned(), next.map_or(Value::Null, Value::String));
        }
    }
    Ok(Json(answer).into_response())
}

fn describe(session: &SessionStatus, query: &ClientsQuery, now: SystemTime) -> Result<Value, String> {
    let type_name = query.type_name.as_deref().unwrap_or_default();
    let client = item::client(session, query, now);
    let client = client.ok_or_else(|| format!("client {} does not ask for {type_name}", session.id))?;
    serde_json::to_value(client).map_err(|error| error.to_string())
}

/// Adds one page of names to the types. Returns the cursor of the next page.
fn add_names(
    admin: &Admin,
    session: &SessionStatus,
    query: &ClientsQuery,
    now: SystemTime,
    page: &Page,
    after: Option<Start>,
    answer: &mut Value,
) -> Option<String> {
    let mut left = page.limit;
    let mut last: Option<Start> = None;
    let mut next = None;
    let types = query.matching(session, now).unwrap_or_default();
    for (index, of) in types.into_iter().enumerate() {
        let url = of.type_url.as_str();
        let start = after.as_ref().filter(|(of_type, _)| of_type == url);
        let is_done =
            after.as_ref().is_some_and(|(of_type, _)| of.type_url < crate::xds::TypeUrl::new(of_type));
        let mut rows = Vec::new();
        if !is_done && next.is_none() {
            let after = start.map(|(_, name)| ResourceName::new(name));
            let names = admin.relay.names(session.id, &of.type_url, after);
            for status in names.into_iter().flatten() {
                if left == 0 {
                    next = last.as_ref().map(cursor);
                    break;
                }
                left -= 1;
                last = Some((url.to_owned(), status.name.as_str().to_owned()));
                let row = name(&status, of.nack.as_ref(), of.type_url.is_secret());
                rows.push(serde_json::to_value(row).unwrap_or_default());
            }
        }
        // The number of subscribed names is in the item already.
        if let Some(Value::Object(of)) = answer.get_mut("types").and_then(|types| types.get_mut(index)) {
            let count = of.insert("names".to_owned(), Value::Array(rows));
            of.insert("names_count".to_owned(), count.unwrap_or_default());
        }
    }
    next
}
