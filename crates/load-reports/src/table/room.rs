//! Room in a full table (LRS-18): idle entries go first, and then entries of the largest connections.
//!
//! The last eighth of the room is for connections with small shares. When half of it is in use, the largest
//! shares are cut, until three quarters are in use. So a stream with endless names takes its own entries
//! only, and each cut has made room for as many new names as it costs.

use std::cmp::Reverse;

use super::Table;
use super::gauges::StreamGauges;
use super::row::IDLE;
use super::rows::{Interval, LeftOut, Rows, cluster_cost, cost, row_cost};
use super::shares::{Owner, Shares, Stay};
use crate::counters::Oddities;
use sluice_engine::Time;

/// The entries of a table, on their way out.
struct Clearance<'a> {
    rows: &'a mut Rows,
    shares: &'a mut Shares,
    left_out: &'a mut LeftOut,
    oddities: &'a mut Oddities,
    /// The number of the interval.
    interval: u32,
    /// Tallies are evidence about a push.
    is_observed: bool,
    leaving: Leaving,
}

/// Entries that go.
struct Leaving {
    rows: Vec<bool>,
    clusters: Vec<bool>,
    /// The rows of each cluster that stay.
    staying: Vec<u32>,
    /// The entries that go.
    entries: usize,
}

impl Table {
    /// The entries that the class may have now.
    fn room(&self) -> usize {
        self.limits.load_rows.min(self.room_max)
    }

    /// The new entries that a stream may add.
    pub(super) fn allowance(&mut self, owner: Owner) -> usize {
        let (room, entries) = (self.room(), self.rows.entries());
        let in_stream = self.limits.load_rows_per_stream.saturating_sub(self.shares.held(owner));
        let free = (room - room / 8).saturating_sub(entries);
        let allowed = if free >= in_stream { free } else { free.max(self.fair_share(owner, room)) };
        allowed.min(in_stream).min(room.saturating_sub(entries)).min(self.free)
    }

    /// The new entries of a stream in the last eighth of the room.
    fn fair_share(&mut self, owner: Owner, room: usize) -> usize {
        let level = self.level.or_else(|| Some(self.shares.level(room * 3 / 4)).filter(|at| *at < room));
        self.level = level;
        level.map_or(0, |level| level.saturating_sub(self.shares.of_connection(owner)))
    }

    /// All classes together have a bound: this one may have so many entries, and gets as many new ones as are
    /// free.
    pub fn set_room(&mut self, room_max: usize, free: usize) {
        self.free = free;
        if self.room_max != room_max {
            (self.room_max, self.level, self.pressed) = (room_max, None, None);
            self.relieve();
        }
    }

    /// Makes room if little is left. Only once in an interval, if that does not help.
    pub(super) fn relieve(&mut self) {
        let room = self.room();
        let is_full = |entries: usize| entries > room - room / 16;
        if is_full(self.rows.entries()) && self.pressed != Some(self.interval.number) {
            self.make_room(true);
            self.pressed = is_full(self.rows.entries()).then_some(self.interval.number);
        }
    }

    /// Begins the next interval: idle entries make room after a shortage.
    pub fn next_interval(&mut self, now: Time) {
        self.interval = Interval { number: self.interval.number.saturating_add(1), since: now };
        self.level = None;
        // The entries behind a shortage are idle two intervals later.
        if self.shortage.is_some_and(|interval| interval.saturating_add(IDLE) >= self.interval.number) {
            self.make_room(false);
        }
    }

    /// Drops idle entries, and cuts the largest shares under pressure.
    fn make_room(&mut self, is_pressed: bool) {
        self.level = None;
        let room = self.room();
        let Table { rows, shares, left_out, oddities, interval, .. } = self;
        let mut clearance = Clearance::new(rows, shares, left_out, oddities, interval.number);
        clearance.is_observed = self.is_observing;
        clearance.leave_idle();
        if is_pressed && clearance.entries() > room - room / 8 {
            let level = clearance.shares.level(room * 3 / 4);
            clearance.cut_rows(level);
            clearance.cut_names(level);
            clearance.cut_clusters(level);
        }
        let leaving = clearance.leaving;
        self.rebuild(&leaving);
    }

    /// Numbers the entries that stay anew.
    fn rebuild(&mut self, leaving: &Leaving) {
        let before = std::mem::take(&mut self.rows);
        let mut numbers = vec![None; before.rows.len()];
        let mut clusters = vec![None; before.clusters.len()];
        for (place, (key, cluster)) in before.clusters.iter().enumerate() {
            if !leaving.clusters[place] {
                clusters[place] = Some(self.rows.insert_cluster(key.clone(), cluster.clone()));
            }
        }
        for (place, (key, row)) in before.rows.iter().enumerate() {
            let cluster = clusters[key.cluster as usize].filter(|_| !leaving.rows[place]);
            let Some(cluster) = cluster else { continue };
            let address = key.address.map(|address| before.names.address(address));
            let place_name = before.names.place(key.place);
            let number = self.rows.insert_row(cluster, &place_name, key.priority, address, row.clone());
            numbers[place] = Some(number as u32);
        }
        self.rows.carry_over(&before);
        for stream in self.streams.values_mut() {
            let renumbered = stream.gauges.iter().filter_map(|mut gauge| {
                gauge.row = numbers.get(gauge.row as usize).copied().flatten()?;
                Some(gauge)
            });
            self.scratch.clear();
            self.scratch.extend(renumbered);
            stream.gauges = StreamGauges::pack(&self.scratch);
        }
    }
}

impl<'a> Clearance<'a> {
    fn new(
        rows: &'a mut Rows,
        shares: &'a mut Shares,
        left_out: &'a mut LeftOut,
        oddities: &'a mut Oddities,
        interval: u32,
    ) -> Clearance<'a> {
        let mut staying = vec![0; rows.clusters.len()];
        rows.rows.keys().for_each(|key| staying[key.cluster as usize] += 1);
        let (leaving_rows, clusters) = (vec![false; rows.rows.len()], vec![false; rows.clusters.len()]);
        let leaving = Leaving { rows: leaving_rows, clusters, staying, entries: 0 };
        Clearance { rows, shares, left_out, oddities, interval, is_observed: false, leaving }
    }

    fn entries(&self) -> usize {
        self.rows.entries().saturating_sub(self.leaving.entries)
    }

    fn is_over(&self, owner: Owner, level: usize) -> bool {
        self.shares.of_connection(owner) > level
    }

    fn leave_idle(&mut self) {
        for place in 0..self.rows.rows.len() {
            let row = &self.rows.rows[place];
            let is_idle = row.is_idle(self.interval) || (row.is_empty() && self.shares.is_gone(row.owner));
            // LRS-24: else endless names of one client would drop the evidence of others.
            if is_idle && !(self.is_observed && row.has_tallies()) {
                self.leave_row(place);
            }
        }
        for place in 0..self.rows.clusters.len() {
            let cluster = &self.rows.clusters[place];
            let is_left = cluster.is_empty() && !cluster.shows_gauges && self.shares.is_gone(cluster.owner);
            if self.leaving.staying[place] == 0 && (cluster.is_idle(self.interval) || is_left) {
                self.leave_cluster(place);
            }
        }
    }

    /// Rows of endpoints go first, then those that were reported the longest time ago, then the newest.
    fn cut_rows(&mut self, level: usize) {
        let rows = self.rows.rows.iter().enumerate();
        let staying =
            rows.filter(|(place, (_, row))| !self.leaving.rows[*place] && self.is_over(row.owner, level));
        let mut largest: Vec<_> = staying
            .map(|(place, (key, row))| (key.address.is_none(), row.touched, Reverse(place), key.cluster))
            .collect();
        largest.sort_unstable();
        for (_, _, Reverse(place), cluster) in largest {
            if self.is_over(self.rows.rows[place].owner, level) {
                self.leave_row(place);
                self.cut_cluster(cluster as usize, level);
            }
        }
    }

    /// Drop categories and metrics whose owner has too much.
    fn cut_names(&mut self, level: usize) {
        let (shares, mut entries, mut names) = (&mut *self.shares, 0, 0);
        let mut stays = |name: &str, owner: Owner| {
            let is_over = shares.of_connection(owner) > level;
            if is_over {
                let cost = cost(name.len());
                shares.give(owner, cost, Stay::Passing);
                (entries, names) = (entries + cost, names + 1);
            }
            !is_over
        };
        for cluster in self.rows.clusters.values_mut() {
            cluster.categories.retain(|name, count| stays(name, count.owner));
        }
        for metrics in self.rows.rows.values_mut().filter_map(|row| row.metrics.as_mut()) {
            metrics.named.retain(|name, sum| stays(name, sum.owner));
        }
        self.rows.forget_names(entries);
        self.left_out.names += names;
    }

    fn cut_clusters(&mut self, level: usize) {
        for place in (0..self.rows.clusters.len()).rev() {
            self.cut_cluster(place, level);
        }
    }

    /// A server that was told of gauges has to be told of their end, so such a cluster stays for now.
    fn cut_cluster(&mut self, place: usize, level: usize) {
        let cluster = &self.rows.clusters[place];
        let is_cuttable = self.leaving.staying[place] == 0 && !self.leaving.clusters[place];
        if is_cuttable && !cluster.shows_gauges && self.is_over(cluster.owner, level) {
            self.leave_cluster(place);
        }
    }

    fn leave_row(&mut self, place: usize) {
        let Some((key, row)) = self.rows.rows.get_index_mut(place) else { return };
        let (key, owner) = (*key, row.owner);
        let (counters, metrics) = (std::mem::take(&mut row.counters), row.metrics.take());
        // Endpoints are counted in the row of their locality, too.
        if key.address.is_none() {
            self.rows.pending = self.rows.pending.saturating_sub(counters.finished());
            self.left_out.counters.add(&counters, self.oddities);
        }
        self.left_out.names += u64::from(!counters.is_empty());
        for (name, metric) in metrics.iter().flat_map(|metrics| &metrics.named) {
            self.shares.give(metric.owner, cost(name.len()), Stay::Passing);
            self.rows.forget_names(cost(name.len()));
        }
        let address = key.address.map(|address| self.rows.names.address(address));
        let cost = row_cost(&self.rows.names.place(key.place), address);
        self.shares.give(owner, cost, Stay::Lasting);
        self.leaving.rows[place] = true;
        self.leaving.staying[key.cluster as usize] -= 1;
        self.leaving.entries += cost;
    }

    fn leave_cluster(&mut self, place: usize) {
        let Some((key, cluster)) = self.rows.clusters.get_index_mut(place) else { return };
        self.oddities.add(&mut self.left_out.dropped, std::mem::take(&mut cluster.dropped));
        let (cost_of_cluster, owner) = (cluster_cost(key), cluster.owner);
        for (name, count) in std::mem::take(&mut cluster.categories) {
            self.shares.give(count.owner, cost(name.len()), Stay::Passing);
            self.rows.forget_names(cost(name.len()));
        }
        self.shares.give(owner, cost_of_cluster, Stay::Lasting);
        self.leaving.clusters[place] = true;
        self.leaving.entries += cost_of_cluster;
    }
}
