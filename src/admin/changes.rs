//! `/changes` and `/changes/{id}`: the published changes, and their way to the clients (ADM-10).

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::item::rfc_3339;
use super::page::cursor;
use super::params::{bad_request, not_found};
use super::query::changes;
use super::state::Admin;
use super::types;
use crate::driver::api::change_name::ChangeName;
use crate::driver::api::changes::{ChangeRejection, ChangeStatus, ChangedNames};
use crate::xds::ResourceName;

#[derive(Debug, Serialize)]
struct Change<'a> {
    id: String,
    source: u64,
    server: &'a str,
    list: &'a str,
    class: &'a str,
    r#type: &'a str,
    /// Absent for Secrets: a version is a hash of the content.
    #[serde(flatten)]
    versions: Option<Versions<'a>>,
    received_at: String,
    age_seconds: f64,
    #[serde(flatten)]
    names: Names<'a>,
    bytes: usize,
    wanted: u32,
    acked: u32,
    rejected: u32,
    waiting: u32,
    superseded: u32,
    p50_seconds: Option<f64>,
    p99_seconds: Option<f64>,
    last_seconds: Option<f64>,
    rejections: Vec<Rejection<'a>>,
}

/// The names that changed, bounded, and their numbers.
#[derive(Debug, Serialize)]
pub(super) struct Names<'a> {
    added: Vec<&'a str>,
    changed: Vec<&'a str>,
    removed: Vec<&'a str>,
    added_count: usize,
    changed_count: usize,
    removed_count: usize,
}

impl<'a> Names<'a> {
    /// Each list has the names to show, and the number of all names.
    pub(super) fn of(added: Listed<'a>, changed: Listed<'a>, removed: Listed<'a>) -> Names<'a> {
        let names = |(names, _): Listed<'a>| names.iter().map(ResourceName::as_str).collect();
        Names {
            added: names(added),
            changed: names(changed),
            removed: names(removed),
            added_count: added.1,
            changed_count: changed.1,
            removed_count: removed.1,
        }
    }
}

type Listed<'a> = (&'a [ResourceName], usize);

#[derive(Debug, Serialize)]
struct Versions<'a> {
    version: String,
    upstream_version: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Rejection<'a> {
    text: &'a str,
    count: u32,
    clients: Vec<Client<'a>>,
}

#[derive(Debug, Serialize)]
struct Client<'a> {
    id: u64,
    node: &'a str,
}

#[derive(Debug, Serialize)]
struct Page<'a> {
    changes: Vec<Change<'a>>,
    count: usize,
    /// The value of `after` for the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

fn change(status: &ChangeStatus) -> Change<'_> {
    fn names(list: &ChangedNames) -> (&[ResourceName], usize) {
        (&list.names, list.count)
    }
    let seconds = |duration: Option<Duration>| duration.map(|duration| duration.as_secs_f64());
    let counts = &status.counts;
    Change {
        id: status.place.name.to_string(),
        source: status.place.name.source,
        server: &status.server,
        list: &status.list,
        class: &status.class,
        r#type: status.type_url.message(),
        versions: (!status.type_url.is_secret()).then(|| Versions {
            version: status.version.to_string(),
            upstream_version: status.upstream_version.as_deref(),
        }),
        received_at: rfc_3339(status.received_at),
        age_seconds: status.age.as_secs_f64(),
        names: Names::of(names(&status.added), names(&status.changed), names(&status.removed)),
        bytes: status.bytes,
        wanted: counts.wanted,
        acked: counts.acked,
        rejected: counts.rejected,
        waiting: counts.waiting,
        superseded: counts.superseded,
        p50_seconds: seconds(status.p50),
        p99_seconds: seconds(status.p99),
        last_seconds: seconds(status.last),
        rejections: status.rejections.iter().map(rejection).collect(),
    }
}

fn rejection(of: &ChangeRejection) -> Rejection<'_> {
    let clients = of.clients.iter().map(|(id, node)| Client { id: *id, node });
    Rejection { text: &of.text, count: of.count, clients: clients.collect() }
}

/// The cursor of the page behind a change.
pub(super) fn cursor_behind(last: &ChangeStatus) -> String {
    cursor(&(last.place.at, last.place.name.source, last.place.name.number))
}

pub(super) async fn list(Shared(admin): Shared<Admin>, uri: Uri) -> Result<Response, Response> {
    let mut filter = changes(&uri).map_err(bad_request)?;
    types::check(&admin, filter.type_name.as_deref()).await.map_err(bad_request)?;
    let limit = filter.limit;
    // One more, to know whether another page follows.
    filter.limit = limit.saturating_add(1);
    let mut found = admin.relay.changes(filter).await;
    let has_more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| has_more).map(cursor_behind);
    let page = Page { changes: found.iter().map(change).collect(), count: found.len(), next };
    Ok(Json(page).into_response())
}

pub(super) async fn one(Shared(admin): Shared<Admin>, Path(id): Path<String>) -> Response {
    let name = id.parse::<ChangeName>().ok();
    let found = match name {
        Some(name) => admin.relay.change(name).await,
        None => None,
    };
    if let Some(found) = found {
        return Json(change(&found)).into_response();
    }
    let fault = if name.is_some() {
        "the change is unknown or forgotten"
    } else {
        "not a name of a change (like c-3-118)"
    };
    let latest = admin.relay.latest_change();
    let latest = latest.map(|latest| format!("; the latest change is {}", latest.place.name));
    not_found(format!("{id:?}: {fault}{}", latest.unwrap_or_default()))
}
