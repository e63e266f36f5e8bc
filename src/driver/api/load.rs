//! The load that clients report, as plain data (LRS-25).

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sluice_load_reports::Accounts;
use sluice_load_reports::counters::{Gauges, Oddities, PerGroup, Tally};
use sluice_load_reports::table::{LeftOut, RowView};
use sluice_xds::{Locality, Status};

/// The load that clients report.
pub trait LoadsView {
    /// The load of all classes, without rows.
    fn loads(&self) -> Vec<ClassLoadStatus>;

    /// The first rows of the load with the number. None for a load that is over.
    fn load_rows(&self, number: u64, query: &RowQuery<'_>) -> Vec<LoadRow>;
}

/// A choice of rows, because a class may have very many.
#[derive(Clone, Copy, Debug)]
pub struct RowQuery<'a> {
    /// Only this cluster.
    pub cluster: Option<&'a str>,
    pub order: RowOrder<'a>,
    /// The most rows.
    pub count: usize,
}

#[derive(Clone, Copy, Debug)]
pub enum RowOrder<'a> {
    /// By name; only those behind the name, if there is one.
    Name { after: Option<RowName<'a>> },
    /// The greatest share of errors first; without requests last.
    Errors,
}

/// Cluster, service, region, zone, sub-zone and priority.
pub type RowName<'a> = ([&'a str; 5], u32);

/// The place of a row in the order by errors: the share of its errors, and its requests.
pub type ErrorRank = (Reverse<u64>, Reverse<u64>);

pub fn error_rank(tallies: &PerGroup<Tally>) -> ErrorRank {
    let PerGroup { admitted, others, unjudged } = tallies;
    let sum = |count: fn(&Tally) -> u64| {
        [admitted, others, unjudged].into_iter().map(count).fold(0, u64::saturating_add)
    };
    let (requests, errors) = (sum(Tally::requests), sum(|tally| tally.error));
    // In millionths, and above all rows without a request.
    let share = (u128::from(errors) * 1_000_000).checked_div(u128::from(requests));
    (Reverse(share.map_or(0, |share| share as u64 + 1)), Reverse(requests))
}

impl RowQuery<'_> {
    /// The first rows in the order, without a copy of the others.
    pub fn first<'a>(&self, rows: impl Iterator<Item = RowView<'a>>) -> Vec<RowView<'a>> {
        let rows = rows.filter(|row| self.cluster.is_none_or(|cluster| cluster == row.cluster));
        let name = |row: &RowView<'a>| {
            let place = &row.place;
            ([row.cluster, row.service, place.region, place.zone, place.sub_zone], row.priority)
        };
        match self.order {
            RowOrder::Name { after } => {
                let rows = rows.map(|row| (name(&row), row));
                least(rows.filter(|(name, _)| after.is_none_or(|after| *name > after)), self.count)
            }
            RowOrder::Errors => {
                least(rows.map(|row| ((error_rank(&row.tallies), name(&row)), row)), self.count)
            }
        }
    }
}

/// The values with the least keys, in order.
fn least<K: Ord, V>(values: impl Iterator<Item = (K, V)>, count: usize) -> Vec<V> {
    let mut kept: Vec<(K, V)> = Vec::new();
    // Keys beyond the greatest of the first `count` are passed over at once.
    let mut bound = None;
    let cut = |kept: &mut Vec<(K, V)>| {
        kept.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        kept.truncate(count);
    };
    for value in values {
        if bound.is_some_and(|bound: usize| kept[bound].0 <= value.0) {
            continue;
        }
        kept.push(value);
        if kept.len() >= 2 * count.max(1) {
            cut(&mut kept);
            bound = kept.len().checked_sub(1);
        }
    }
    cut(&mut kept);
    kept.into_iter().map(|(_, value)| value).collect()
}

/// The load of a node class at one server of a list. Wide because the fields are those of an item of the
/// admin API.
#[derive(Clone, Debug)]
pub struct ClassLoadStatus {
    /// Unique in this process.
    pub number: u64,
    /// The key of the server list in the configuration.
    pub list: Arc<str>,
    /// `server_uri` of the configuration.
    pub server: Arc<str>,
    /// The digest of the node class.
    pub class: Arc<str>,
    /// The sums go to the server; otherwise they are for operators alone.
    pub is_reported: bool,
    pub link: LoadLinkStatus,
    /// `None` before the first word of the server.
    pub wish: Option<LoadWishStatus>,
    /// Open streams of clients.
    pub reporters: usize,
    /// The streams of each group with a share of the tallies.
    pub observed: PerGroup<u64>,
    /// The begin of the tallies.
    pub since: SystemTime,
    /// Finished requests by their fate, since the class began to report.
    pub accounts: Accounts,
    pub left_out: LeftOut,
    pub oddities: Oddities,
    pub row_count: usize,
}

/// The stream to the server.
#[derive(Clone, Debug)]
pub struct LoadLinkStatus {
    /// `idle`, `waiting`, `opening`, `open`, `ending`, `ended`, or `local` without a server.
    pub state: &'static str,
    /// The begin of the state.
    pub since: SystemTime,
    /// The server takes no reports (LRS-21).
    pub lacks_service: bool,
    /// Why the latest stream or attempt to connect ended.
    pub error: Option<Status>,
}

/// The wish of a server.
#[derive(Clone, Debug)]
pub struct LoadWishStatus {
    /// `None`: all.
    pub clusters: Option<Vec<Arc<str>>>,
    pub interval: Duration,
    pub has_endpoints: bool,
}

/// A locality of a cluster, with the requests of both groups.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadRow {
    pub cluster: Box<str>,
    pub service: Box<str>,
    pub locality: Locality,
    pub priority: u32,
    pub tallies: PerGroup<Tally>,
    /// The begin of the tallies. A row that was idle may have made room, and begin anew.
    pub since: SystemTime,
    pub gauges: Gauges,
}
