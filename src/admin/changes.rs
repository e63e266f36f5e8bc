//! `/changes` and `/changes/{id}`: the published changes, and their way to the clients (ADM-10).

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use sluice_admin_api::Text;
use sluice_admin_api::changes::{
    Change, ChangeCounts, ChangeList, ChangeRejection, ChangeVersions, ChangedNames,
};
use sluice_admin_api::clients::ClientRef;

use super::item::{names, rfc_3339};
use super::page::cursor;
use super::params::{Declined, bad_request, not_found};
use super::query::changes;
use super::state::Admin;
use super::types;
use crate::driver::api::change_name::ChangeName;
use crate::driver::api::changes::{self as driver_api, ChangeStatus, ChangedNames as ChangedList};
use sluice_xds::ResourceName;

/// The first of some names, and the number of all.
pub(super) struct BoundedNames<'a> {
    pub names: &'a [ResourceName],
    pub count: usize,
}

impl<'a> BoundedNames<'a> {
    fn new(list: &'a ChangedList) -> BoundedNames<'a> {
        BoundedNames { names: &list.names, count: list.count }
    }
}

/// The names that changed.
pub(super) fn changed_names<'a>(
    added: BoundedNames<'a>,
    changed: BoundedNames<'a>,
    removed: BoundedNames<'a>,
) -> ChangedNames<'a> {
    ChangedNames {
        added: names(added.names),
        changed: names(changed.names),
        removed: names(removed.names),
        added_count: added.count,
        changed_count: changed.count,
        removed_count: removed.count,
    }
}

pub(super) fn change(status: &ChangeStatus) -> Change<'_> {
    let seconds = |duration: Option<Duration>| duration.map(|duration| duration.as_secs_f64());
    let counts = &status.counts;
    Change {
        id: status.place.name.to_string(),
        source: status.place.name.source,
        server: Text::Borrowed(&status.server),
        list: Text::Borrowed(&status.list),
        class: Text::Borrowed(&status.class),
        r#type: Text::Borrowed(status.type_url.message()),
        versions: (!status.type_url.is_secret()).then(|| ChangeVersions {
            version: status.version.to_string(),
            upstream_version: status.upstream_version.as_deref().map(Text::Borrowed),
        }),
        received_at: rfc_3339(status.received_at),
        age_seconds: status.age.as_secs_f64(),
        names: changed_names(
            BoundedNames::new(&status.added),
            BoundedNames::new(&status.changed),
            BoundedNames::new(&status.removed),
        ),
        bytes: status.bytes,
        counts: ChangeCounts {
            wanted: counts.total,
            acked: counts.acked,
            rejected: counts.rejected,
            waiting: counts.waiting,
            superseded: counts.superseded,
        },
        p50_seconds: seconds(status.p50),
        p99_seconds: seconds(status.p99),
        last_seconds: seconds(status.last),
        rejections: status.rejections.iter().map(rejection).collect(),
    }
}

fn rejection(status: &driver_api::ChangeRejection) -> ChangeRejection<'_> {
    let clients = status.clients.iter().map(|(id, node)| ClientRef { id: *id, node: Text::Borrowed(node) });
    ChangeRejection { text: Text::Borrowed(&status.text), count: status.count, clients: clients.collect() }
}

/// The cursor of the page behind a change.
pub(super) fn cursor_behind(last: &ChangeStatus) -> String {
    cursor(&(last.place.at, last.place.name.source, last.place.name.number))
}

pub(super) async fn list(Shared(admin): Shared<Admin>, uri: Uri) -> Result<Response, Declined> {
    let mut filter = changes(&uri)?;
    types::check(&admin, filter.type_name.as_deref()).await.map_err(bad_request)?;
    let limit = filter.limit;
    // One more, to know whether another page follows.
    filter.limit = limit.saturating_add(1);
    let mut changes = admin.relay.changes(filter).await;
    let has_more = changes.len() > limit;
    changes.truncate(limit);
    let next = changes.last().filter(|_| has_more).map(cursor_behind);
    let count = changes.len();
    let list = ChangeList { changes: changes.iter().map(change).collect(), count, next };
    Ok(Json(list).into_response())
}

pub(super) async fn one(Shared(admin): Shared<Admin>, Path(id): Path<String>) -> Response {
    let name = id.parse::<ChangeName>().ok();
    let status = match name {
        Some(name) => admin.relay.change(name).await,
        None => None,
    };
    if let Some(status) = status {
        return Json(change(&status)).into_response();
    }
    let fault = if name.is_some() {
        "the change is unknown or forgotten"
    } else {
        "not a name of a change (like c-3-118)"
    };
    let latest = admin.relay.latest_change();
    let latest = latest.map(|latest| format!("; the latest change is {}", latest.place.name));
    not_found(format!("{id:?}: {fault}{}", latest.unwrap_or_default())).into_response()
}
