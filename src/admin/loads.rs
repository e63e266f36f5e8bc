//! The load that clients report: rows, and classes on their way to servers (LRS-25).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use axum::extract::State as Shared;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use sluice_admin_api::lists::Listed;
use sluice_admin_api::loads::{ClassLoad, FinishedRequests, LoadRow, RequestFates};
use sluice_admin_api::parameters::LoadParameters;

use super::item::rfc_3339;
use super::list;
use super::page::{Page, cursor};
use super::params::{Declined, bad_request, read, word};
use super::state::Admin;
use crate::driver::api::load::{ClassLoadStatus, LoadRow as Row};

/// `/load`: matching rows in an order.
#[derive(Debug)]
pub(super) struct LoadQuery {
    pub cluster: Option<String>,
    pub server: Option<String>,
    /// A class, or the beginning of its digest.
    pub class: Option<String>,
    pub order: RowOrder,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RowOrder {
    /// By class and cluster.
    #[default]
    Name,
    /// The greatest share of errors first; without requests last.
    Errors,
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
        let sorts = [("name", RowOrder::Name), ("errors", RowOrder::Errors)];
        let order = word("sort", sort, &sorts)?.unwrap_or_default();
        let page = Page::read(after, limit, headers)?;
        if order == RowOrder::Errors && (page.is_unlimited() || page.after::<RowPlace>()?.is_some()) {
            // Shares change between two pages.
            let text = "sort=errors has one page: give `limit`, and no `after`";
            return Err(bad_request(text.to_owned()));
        }
        Ok((LoadQuery { cluster, server, class, order }, page))
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
        if query.order == RowOrder::Errors {
            let first = worst(&admin, &query, limit.saturating_add(1)).await;
            return writer.write_all(first.into_iter(), place, render).await;
        }
        // One class at a time is in memory.
        let rows = stream::iter(classes(&admin, &query)).flat_map(|load| {
            let mut rows: Vec<LoadRow> = rows_of(&admin, &query, &load).collect();
            rows.retain(|row| after.as_ref().is_none_or(|after| RowPlace::of(row) > *after));
            rows.sort_by_cached_key(RowPlace::of);
            stream::iter(rows)
        });
        writer.write_stream(rows, place, render).await
    }))
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

fn rows_of(admin: &Admin, query: &LoadQuery, load: &ClassLoadStatus) -> impl Iterator<Item = LoadRow> {
    let rows = admin.relay.load_rows(load.number, query.cluster.as_deref());
    rows.into_iter().map(move |row| row_of(row, load))
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
        since: rfc_3339(load.since),
        admitted: finished(row.tallies.admitted),
        others: finished(row.tallies.others),
        unjudged: finished(row.tallies.unjudged),
        in_progress: row.gauges.in_progress,
        active_connections: row.gauges.active_connections,
    }
}

/// A row with its place in the order by errors: the least row is the worst one.
struct Ranked {
    rank: (Reverse<u64>, Reverse<u64>, RowPlace),
    row: LoadRow,
}

impl Ranked {
    fn new(row: LoadRow) -> Ranked {
        let requests = row.requests();
        // In millionths, and above all rows without a request.
        let share = requests.error_share.map_or(0, |share| (share * 1e6) as u64 + 1);
        Ranked { rank: (Reverse(share), Reverse(requests.count()), RowPlace::of(&row)), row }
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Ranked) -> bool {
        self.rank == other.rank
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Ranked) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Ranked) -> std::cmp::Ordering {
        self.rank.cmp(&other.rank)
    }
}

/// The `count` rows with the greatest shares of errors.
pub(super) async fn worst(admin: &Admin, query: &LoadQuery, count: usize) -> Vec<LoadRow> {
    // The best of them is on top.
    let mut first = BinaryHeap::new();
    for load in classes(admin, query) {
        for row in rows_of(admin, query, &load) {
            first.push(Ranked::new(row));
            if first.len() > count {
                first.pop();
            }
        }
        tokio::task::yield_now().await;
    }
    first.into_sorted_vec().into_iter().map(|ranked| ranked.row).collect()
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
        taken_over: accounts.taken_over,
        delivered: accounts.delivered,
        pending: accounts.pending,
        unconfirmed: accounts.unconfirmed,
        in_doubt: accounts.in_doubt,
        left_out: accounts.left_out,
        unwanted: accounts.unwanted,
        local: accounts.local,
        passed_on: accounts.passed_on,
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
