//! The shares of streams and connections, by a table of their own.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::rows::cost;
use super::*;
use crate::counters::MetricSum;
use crate::report::{DroppedRequests, MetricStats, NamedMetric};
use crate::wish::Clusters;

const LIMITS: LoadLimits = LoadLimits { load_rows: 200, load_rows_per_stream: 60, load_rows_total: 1_000 };

/// A table under random reports, and what a reader knows about it.
struct Play {
    table: Table,
    now: Time,
    /// Finished requests in reports, and those that have left in a report.
    read: u64,
    taken: u64,
    room: usize,
    names: u64,
}

impl Play {
    fn report(&mut self, id: u64, choice: u64) {
        // Shared names, names of the stream, or names of nobody else.
        let count = 1 + choice % 25;
        let name = |number: u64| match choice >> 8 & 3 {
            0 => format!("shared-{number}"),
            1 => format!("{id}-{number}"),
            _ => format!("new-{}-{number}", self.names),
        };
        let names: Vec<String> = (0..count).map(name).collect();
        self.names += 1;
        let sum = MetricSum { finished: 1, total: 1.0 };
        let clusters = names.iter().map(|name| {
            let named = if choice & 0x400 > 0 { vec![NamedMetric { name, sum }] } else { Vec::new() };
            let endpoint = EndpointStats { address: name.as_bytes(), in_progress: 1, ..Default::default() };
            let locality = LocalityStats {
                counters: Counters { success: choice >> 16 & 3, ..Counters::default() },
                gauges: Gauges { in_progress: choice >> 20 & 3, active_connections: 1 },
                metrics: Some(Box::new(MetricStats { named, ..MetricStats::default() })),
                endpoints: if choice & 0x800 > 0 { vec![endpoint] } else { Vec::new() },
                ..LocalityStats::default()
            };
            let categories = vec![DroppedRequests { category: name, count: 1 }];
            let categories = if choice & 0x1000 > 0 { categories } else { Vec::new() };
            ClusterStats { name, localities: vec![locality], dropped: 1, categories, ..Default::default() }
        });
        let report = LoadReport { clusters: clusters.collect(), ..LoadReport::default() };
        let keeping = Keeping { pending: true, endpoints: true };
        self.read += self.table.count(StreamId(id), &report, keeping, |_| true);
    }

    fn act(&mut self, what: u8, id: u64, choice: u64) {
        self.now = self.now + Duration::from_secs(1);
        let before = self.table.rows.entries();
        match what {
            0..60 => self.report(id, choice),
            60..70 => self.table.join(StreamId(id), choice % 3),
            70..78 => self.table.close(StreamId(id)),
            78..84 => {
                let departure = self.table.leave(StreamId(id));
                self.table.arrive(StreamId(id + 8), Group::Others, departure);
            }
            84..88 => {
                self.room = [usize::MAX, 100, 150][choice as usize % 3];
                self.table.set_room(self.room, usize::MAX);
            }
            _ => {
                let clusters = if choice & 1 > 0 { Clusters::All } else { Clusters::listed(["shared-1"]) };
                let wish = Wish::new(clusters, Duration::from_secs(9), true);
                let taken = self.table.take(&wish, Duration::from_secs(9), self.now);
                self.taken += taken.unwanted;
                self.taken += taken.messages.iter().map(|message| message.finished).sum::<u64>();
            }
        }
        // Clusters whose gauges a server shows stay in less room, until the server is told of their end.
        assert!(self.table.rows.entries() <= self.room.max(before));
        self.check();
    }

    fn check(&self) {
        let (table, rows) = (&self.table, &self.table.rows);
        assert_eq!(self.read, self.taken + rows.pending + table.left_out.counters.finished());
        let mut owned = BTreeMap::<Owner, usize>::new();
        let mut own = |owner: Owner, cost: usize| *owned.entry(owner).or_default() += cost;
        for (key, cluster) in &rows.clusters {
            own(cluster.owner, cluster_cost(key));
            cluster.categories.iter().for_each(|(name, count)| own(count.owner, cost(name.len())));
        }
        for (key, row) in &rows.rows {
            let address = key.address.map(|address| rows.names.address(address));
            own(row.owner, row_cost(&rows.names.place(key.place), address));
            let named = row.metrics.iter().flat_map(|metrics| &metrics.named);
            named.for_each(|(name, metric)| own(metric.owner, cost(name.len())));
        }
        assert_eq!(owned.values().sum::<usize>(), rows.entries());
        assert!(rows.entries() <= LIMITS.load_rows);
        let living: BTreeMap<Owner, StreamId> =
            table.streams.iter().map(|(id, stream)| (stream.owner, *id)).collect();
        assert_eq!(living.len(), table.streams.len());
        for (owner, entries) in owned {
            assert_eq!(
                (table.shares.held(owner), table.shares.is_gone(owner)),
                (entries, !living.contains_key(&owner))
            );
            assert!(table.shares.is_gone(owner) || entries <= LIMITS.load_rows_per_stream);
        }
        self.check_gauges();
    }

    fn check_gauges(&self) {
        let mut sums = BTreeMap::<u32, (u64, u64)>::new();
        for gauge in self.table.streams.values().flat_map(|stream| stream.gauges.iter()) {
            let sum = sums.entry(gauge.row).or_default();
            sum.0 += u64::from(gauge.in_progress);
            sum.1 += u64::from(gauge.active_connections);
        }
        for (number, row) in (0..).zip(self.table.rows.rows.values()) {
            let sum = sums.remove(&number).unwrap_or_default();
            assert_eq!((row.gauges.in_progress, row.gauges.active_connections), sum);
        }
        assert!(sums.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Each entry has one owner, whatever is cut, and no request is lost without an account.
    #[test]
    fn lrs_18_the_shares_are_those_of_the_entries(
        acts in prop::collection::vec((0u8..100, 0u64..8, any::<u64>()), 1..150),
    ) {
        let now = Time::default();
        let table = Table::new(LIMITS, now);
        let mut play = Play { table, now, read: 0, taken: 0, room: usize::MAX, names: 0 };
        for (what, id, choice) in acts {
            play.act(what, id, choice);
        }
    }
}

#[test]
fn a_level_cuts_the_largest_shares_alone() {
    assert_eq!(level(vec![5, 1, 100, 50], 60), 27);
    assert_eq!(level(vec![5, 1], 6), usize::MAX);
    assert_eq!(level(vec![3, 3, 3], 2), 0);
    assert_eq!(level(Vec::new(), 0), usize::MAX);
}

/// One request to each of these clusters.
fn one_each(names: &[String]) -> LoadReport<'_> {
    let row = || LocalityStats {
        counters: Counters { success: 1, ..Counters::default() },
        ..LocalityStats::default()
    };
    let stats = |name| ClusterStats { name, localities: vec![row()], ..ClusterStats::default() };
    LoadReport { clusters: names.iter().map(|name| stats(name)).collect(), ..LoadReport::default() }
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}-{number}")).collect()
}

/// Tallies are evidence about a push until its end. Then idle names make room, whatever was counted.
#[test]
fn lrs_24_the_names_of_a_push_go_after_its_end() {
    let keeping = Keeping { pending: false, endpoints: false };
    let limits = LoadLimits { load_rows_per_stream: 200, ..LIMITS };
    for is_over in [false, true] {
        let mut table = Table::new(limits, Time::default());
        let (early, late) = (names("early", 60), names("late", 90));
        table.observe();
        // The first report of a stream covers time before the observation.
        for _ in 0..2 {
            table.count(StreamId(1), &one_each(&early), keeping, |_| true);
        }
        assert!(table.views().all(|row| row.tallies.others.success == 1));
        if is_over {
            table.end_observation();
        }
        table.count(StreamId(2), &one_each(&late), keeping, |_| true);
        assert!(table.left_out().names > 0, "a shortage");
        for _ in 0..3 {
            table.next_interval(Time::default());
        }
        let left = table.views().filter(|row| row.cluster.starts_with("early")).count();
        assert_eq!(left, if is_over { 0 } else { 60 });
    }
}

/// LRS-25: a row tells since when it counts, which may be later than the begin of the table.
#[test]
fn lrs_25_a_row_has_a_time_of_its_own() {
    let keeping = Keeping { pending: true, endpoints: false };
    let at = |seconds| Time::default() + Duration::from_secs(seconds);
    let mut table = Table::new(LIMITS, at(1));
    let all = names("c", 3);
    table.count(StreamId(1), &one_each(&all[..1]), keeping, |_| true);
    table.take(&Wish::all(), Duration::from_secs(9), at(10));
    table.count(StreamId(1), &one_each(&all[..2]), keeping, |_| true);
    table.take(&Wish::all(), Duration::from_secs(10), at(20));
    // A row that a client brings along begins with it, and not with the table.
    let mut from = Table::new(LIMITS, at(2));
    let mut report = one_each(&all[2..]);
    report.clusters[0].localities[0].gauges.in_progress = 1;
    from.count(StreamId(2), &report, keeping, |_| true);
    let departure = from.leave(StreamId(2));
    table.arrive(StreamId(2), Group::Others, departure);
    let since: Vec<_> = table.views().map(|row| (row.cluster, row.since)).collect();
    assert_eq!(since, [("c-0", at(1)), ("c-1", at(10)), ("c-2", at(20))]);
}
