//! The load that clients report: rows, and classes on their way to servers (LRS-25).

use std::cmp::Ordering;

use axum::extract::State as Shared;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use futures_util::{Stream, StreamExt, stream};
use serde::{Deserialize, Serialize};
use sluice_admin_api::lists::Listed;
use sluice_admin_api::loads::{ClassLoad, FinishedRequests, LoadRow, RequestFates};
use sluice_admin_api::parameters::LoadParameters;

use super::item::rfc_3339;
use super::list;
use super::page::{self, Page, cursor};
use super::params::{Declined, bad_request, read, word};
use super::state::Admin;
use crate::driver::api::load::{ClassLoadStatus, ErrorRank, LoadRow as Row, RowOrder, RowQuery, error_rank};

/// `/load`: matching rows in an order.
#[derive(Debug)]
pub(super) struct LoadQuery {
    pub cluster: Option<String>,
    pub server: Option<String>,
    /// A class, or the beginning of its digest.
    pub class: Option<String>,
    /// The greatest share of errors first; otherwise by class and name.
    pub is_by_errors: bool,
}

/// The place of a row in the order by name: list, server, class, number of the load, cluster, service,
/// locality, priority.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct RowPlace([String; 3], u64, [String; 5], u32);

impl RowPlace {
    fn of(row: &LoadRow) -> RowPlace {
        let load = [&row.list, &row.server, &row.class].map(Clone::clone);
        let names = [&row.cluster, &row.service, &row.region, &row.zone, &row.sub_zone].map(Clone::clone);
        RowPlace(load, row.number, names, row.priority)
    }
}

impl LoadQuery {
    pub fn parse(uri: &Uri, headers: &HeaderMap) -> Result<(LoadQuery, Page), Declined> {
        let LoadParameters { cluster, server, class, sort, after, limit } = read(uri)?;
        let is_by_errors = word("sort", sort, &[("name", false), ("errors", true)])?.unwrap_or_default();
        let page = Page::read(after, limit, headers)?;
        if is_by_errors && (page.is_unlimited() || page.after::<RowPlace>()?.is_some()) {
            // Shares change between two pages.
            let text = "sort=errors has one page: give `limit`, and no `after`";
            return Err(bad_request(text.to_owned()));
        }
        Ok((LoadQuery { cluster, server, class, is_by_errors }, page))
    }

    fn takes(&self, load: &ClassLoadStatus) -> bool {
        self.server.as_deref().is_none_or(|server| server == &*load.server)
            && self.class.as_deref().is_none_or(|class| load.class.starts_with(class))
    }
}

/// `GET /load?cluster=&server=&class=&sort=&after=&limit=`.
pub(super) async fn rows(
    Shared(admin): Shared<Admin>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Declined> {
    let (query, page) = LoadQuery::parse(&uri, &headers)?;
    let after: Option<RowPlace> = page.after()?;
    let limit = page.limit;
    Ok(list::respond(LoadRow::KEY, &page, move |writer| async move {
        let render = |row: &LoadRow, out: &mut _| list::append(out, Some(row));
        let place = |row: &LoadRow| cursor(&RowPlace::of(row));
        if query.is_by_errors {
            let first = worst(&admin, &query, limit.saturating_add(1)).await;
            return writer.write_all(first.into_iter(), place, render).await;
        }
        let loads = classes(&admin, &query).into_iter().filter_map(|load| {
            let place = class_place(&load);
            let Some(RowPlace(names, number, row, priority)) = &after else { return Some((load, None)) };
            match place.cmp(&(names.each_ref().map(String::as_str), *number)) {
                Ordering::Less => None,
                Ordering::Equal => Some((load, Some((row.clone(), *priority)))),
                Ordering::Greater => Some((load, None)),
            }
        });
        let count = limit.saturating_add(1).min(page::LIMIT_MAX);
        let rows = stream::iter(loads).flat_map(|(load, after)| by_name(&admin, &query, load, after, count));
        writer.write_stream(rows, place, render).await
    }))
}

/// The name of a row: cluster, service, locality and priority.
type Name = ([String; 5], u32);

/// The rows of a class behind a name, a few at a time: reports wait while some are chosen.
fn by_name<'a>(
    admin: &'a Admin,
    query: &'a LoadQuery,
    load: ClassLoadStatus,
    after: Option<Name>,
    count: usize,
) -> impl Stream<Item = LoadRow> + 'a {
    let some = move |after: Option<Name>, load: &ClassLoadStatus| {
        let after = after.as_ref().map(|(names, priority)| (names.each_ref().map(String::as_str), *priority));
        let order = RowOrder::Name { after };
        let query = RowQuery { cluster: query.cluster.as_deref(), order, count };
        let rows = admin.relay.load_rows(load.number, &query);
        rows.into_iter().map(|row| row_of(row, load)).collect::<Vec<_>>()
    };
    let rows = stream::unfold(Some(after), move |after| {
        let rows = after.map(|after| some(after, &load));
        let next = rows.as_ref().filter(|rows| rows.len() == count).and_then(|rows| rows.last()).map(|row| {
            let RowPlace(_, _, names, priority) = RowPlace::of(row);
            Some((names, priority))
        });
        std::future::ready(rows.map(|rows| (stream::iter(rows), next)))
    });
    rows.flatten()
}

/// The classes that match, in the order of their rows.
fn classes(admin: &Admin, query: &LoadQuery) -> Vec<ClassLoadStatus> {
    let mut loads = admin.relay.loads();
    loads.retain(|load| query.takes(load));
    loads.sort_by(|a, b| class_place(a).cmp(&class_place(b)));
    loads
}

fn class_place(load: &ClassLoadStatus) -> ([&str; 3], u64) {
    ([&load.list, &load.server, &load.class], load.number)
}

fn row_of(row: Row, load: &ClassLoadStatus) -> LoadRow {
    let finished =
        |tally: sluice_load_reports::counters::Tally| FinishedRequests::new(tally.success, tally.error);
    LoadRow {
        number: load.number,
        cluster: row.cluster.into(),
        service: row.service.into(),
        region: row.locality.region,
        zone: row.locality.zone,
        sub_zone: row.locality.sub_zone,
        priority: row.priority,
        class: load.class.to_string(),
        server: load.server.to_string(),
        list: load.list.to_string(),
        since: rfc_3339(row.since),
        admitted: finished(row.tallies.admitted),
        others: finished(row.tallies.others),
        unjudged: finished(row.tallies.unjudged),
        in_progress: row.gauges.in_progress,
        active_connections: row.gauges.active_connections,
    }
}

/// The `count` rows with the greatest shares of errors.
pub(super) async fn worst(admin: &Admin, query: &LoadQuery, count: usize) -> Vec<LoadRow> {
    let mut first = Vec::new();
    for load in classes(admin, query) {
        let chosen = RowQuery { cluster: query.cluster.as_deref(), order: RowOrder::Errors, count };
        for row in admin.relay.load_rows(load.number, &chosen) {
            let (rank, row) = (error_rank(&row.tallies), row_of(row, &load));
            first.push((rank, RowPlace::of(&row), row));
        }
        if first.len() >= 2 * count {
            cut(&mut first, count);
        }
        tokio::task::yield_now().await;
    }
    cut(&mut first, count);
    first.into_iter().map(|(_, _, row)| row).collect()
}

fn cut(rows: &mut Vec<(ErrorRank, RowPlace, LoadRow)>, count: usize) {
    rows.sort_unstable_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
    rows.truncate(count);
}

/// `GET /load/classes?after=&limit=`.
pub(super) async fn by_class(
    Shared(admin): Shared<Admin>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Declined> {
    let page = Page::parse(&uri, &headers)?;
    let after: Option<([String; 3], u64)> = page.after()?;
    Ok(list::respond(ClassLoad::KEY, &page, move |writer| async move {
        let place =
            |load: &ClassLoad| ([load.list.clone(), load.server.clone(), load.class.clone()], load.number);
        let all = gather(&admin).into_iter();
        let all = all.filter(|load| after.as_ref().is_none_or(|after| place(load) > *after));
        let render = |load: &ClassLoad, out: &mut _| list::append(out, Some(load));
        writer.write_all(all, |load| cursor(&place(load)), render).await
    }))
}

/// The load of all classes, by list, server and class.
pub(super) fn gather(admin: &Admin) -> Vec<ClassLoad> {
    let mut loads = admin.relay.loads();
    loads.sort_by(|a, b| class_place(a).cmp(&class_place(b)));
    loads.iter().map(class_load).collect()
}

fn class_load(load: &ClassLoadStatus) -> ClassLoad {
    let accounts = &load.accounts;
    let requests = RequestFates {
        read: accounts.read,
        delivered: accounts.delivered,
        pending: accounts.pending,
        unconfirmed: accounts.unconfirmed,
        in_doubt: accounts.in_doubt,
        left_out: accounts.left_out,
        unwanted: accounts.unwanted,
        local: accounts.local,
    };
    let clusters = load.wish.as_ref().map(|wish| match &wish.clusters {
        None => "all".to_owned(),
        Some(names) => names.len().to_string(),
    });
    ClassLoad {
        number: load.number,
        class: load.class.to_string(),
        server: load.server.to_string(),
        list: load.list.to_string(),
        state: load.link.state.to_owned(),
        state_since: rfc_3339(load.link.since),
        no_service: load.link.lacks_service,
        error: load.link.error.as_ref().map(ToString::to_string),
        reporters: load.reporters,
        clusters,
        interval_seconds: load.wish.as_ref().map(|wish| wish.interval.as_secs_f64()),
        endpoints: load.wish.as_ref().is_some_and(|wish| wish.has_endpoints),
        rows: load.row_count,
        requests,
        left_out_names: load.left_out.names,
        left_out_requests: load.left_out.counters.finished(),
        saturated: load.oddities.saturated,
        not_finite: load.oddities.not_finite,
    }
}
