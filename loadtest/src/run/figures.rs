//! The results of a run.

use serde::Serialize;

use super::driver::Finished;
use super::histogram::{Percentiles, Point};
use super::series::Sample;
use super::spec::{Scenario, Source, Spec};
use crate::client::Tally;
use crate::load::{Received, Sums};
use crate::run::tracker::Tracker;
use crate::xds::{Kind, Variant};

/// If the clients' thread, or the control plane's, runs or waits for a CPU for more than this share of the
/// time with pending updates, the figures measure the tool.
const BUSY_LIMIT: f64 = 0.95;

/// A longer connect has probably lost its SYN to a full accept queue.
const SYN_RETRY_NS: u64 = 1_000_000_000;

/// The number of points in the spread between clients.
const SPREAD_POINTS: usize = 200;

/// Resident memory of the server, in bytes; `None` without a pid.
#[derive(Clone, Copy, Default, Serialize)]
pub struct Memory {
    /// With one client served.
    pub one_client: Option<u64>,
    /// With all clients served.
    pub all_clients: Option<u64>,
    pub after_changes: Option<u64>,
    /// After all clients but one have left.
    pub after_leaving: Option<u64>,
}

impl Memory {
    /// The cost of a further client, from the difference to one client: the first client has paid for the
    /// shared parts.
    fn per_client(&self, total: Option<u64>, further: usize) -> Option<f64> {
        let (total, one) = (total? as f64, self.one_client? as f64);
        (further > 0).then(|| (total - one) / further as f64)
    }
}

/// Measurements besides the clients'.
#[derive(Default)]
pub struct Measured {
    pub memory: Memory,
    /// The number of clients on the first connection.
    pub first_clients: usize,
    pub connected: usize,
    pub connect_ns: u64,
    pub connect_cpu_ns: Option<u64>,
    pub acting_ns: u64,
    pub server_cpu_ns: Option<u64>,
    pub own_cpu_ns: u64,
    pub control_plane_cpu_ns: u64,
    pub bytes: u64,
    /// From the middle of a storm or the end of an outage to the last client.
    pub recovery_ns: Option<u64>,
    /// The number of updates and moves that timed out.
    pub missed: usize,
    pub moves_missed: usize,
    /// The number of clients that never got the content of the rule.
    pub unruled: usize,
    /// The process of the server has ended.
    pub server_ended: bool,
    pub load: Option<LoadFigures>,
}

/// The load reports of the clients, and what the control plane made of them.
#[derive(Clone, Copy, Serialize)]
pub struct LoadFigures {
    pub reports: u64,
    pub sums: Sums,
    pub in_progress: u64,
    pub received: Received,
    /// From the last report until the control plane had the sums; `None` if it never had.
    pub agreed_after_ms: Option<f64>,
    /// Answers to the clients, and those that came sooner after the answer before than reports were wanted.
    pub answers: u64,
    pub early_answers: u64,
    /// The intervals that clients were asked for.
    pub shortest_interval_ms: Option<f64>,
    pub longest_interval_ms: Option<f64>,
}

impl LoadFigures {
    pub fn new(
        tally: &Tally,
        sums: Sums,
        in_progress: u64,
        received: Received,
        agreed_after_ms: Option<f64>,
    ) -> LoadFigures {
        let ms = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e6);
        LoadFigures {
            reports: tally.reports(),
            sums,
            in_progress,
            received,
            agreed_after_ms,
            answers: tally.answers,
            early_answers: tally.early,
            shortest_interval_ms: ms(tally.shortest),
            longest_interval_ms: ms(tally.longest),
        }
    }

    /// An error in words, if there is one.
    fn error(&self, patience: f64) -> Option<String> {
        if self.reports == 0 {
            return Some(
                "no client sent a load report: --duration is too short, or the server has no wish".to_owned(),
            );
        }
        let (received, sums) = (&self.received, &self.sums);
        self.agreed_after_ms.is_none().then(|| {
            format!(
                "{patience} s after the last load report the control plane had {:?} and {} in progress, and not {sums:?} and {}",
                received.sums, received.in_progress, self.in_progress
            )
        })
    }
}

#[derive(Clone, Serialize)]
pub struct PhaseFigures {
    pub name: String,
    pub at_s: f64,
    pub update_ms: Option<Percentiles>,
}

/// The spread between clients: the values of some clients, from the best to the worst.
#[derive(Clone, Default, Serialize)]
pub struct Spreads {
    pub mean_ms: Vec<f64>,
    pub max_ms: Vec<f64>,
}

/// The results of one run. The names are the keys of the JSON.
#[derive(Clone, Serialize)]
pub struct Figures {
    pub name: String,
    pub scenario: Scenario,
    pub clients: usize,
    pub connected: usize,
    pub clients_per_connection: usize,
    pub resources: usize,
    pub resource_bytes: usize,
    pub mode: Variant,
    pub services: &'static str,
    pub subscriptions: Vec<String>,
    pub node_bytes: usize,
    pub node_every_request: bool,
    pub change_type: Kind,
    pub changes: usize,
    /// Scheduled changes per second; 0 in rounds.
    pub rate: f64,
    /// Until all but the first client were served.
    pub connect_ms: f64,
    /// From the scheduled connect of a client to its complete answer.
    pub first_answer_ms: Option<Percentiles>,
    /// The same for clients that reconnect.
    pub reconnect_ms: Option<Percentiles>,
    /// The number of answers slow enough that the SYN was probably lost.
    pub slow_connects: u64,
    /// From the middle of a storm until all clients were served again, or from the end of an outage until all
    /// had an update.
    pub recovery_ms: Option<f64>,
    /// CPU time in the connect phase and the following settling.
    pub server_cpu_us_per_connect: Option<f64>,
    pub rss_bytes_per_client: Option<f64>,
    pub rss_bytes_per_client_after_changes: Option<f64>,
    pub rss_bytes_per_departed_client: Option<f64>,
    pub rss: Memory,
    /// User and system time of the server from the first change to the end, per client and update.
    pub server_cpu_us_per_update: Option<f64>,
    /// The same for the clients' thread, but only while updates were pending.
    pub client_cpu_us_per_update: Option<f64>,
    /// The same for the whole tool, its control plane and the pauses included.
    pub tool_cpu_us_per_update: Option<f64>,
    /// Bytes received by a client.
    pub bytes_per_update: Option<f64>,
    pub updates: u64,
    pub updates_per_s: Option<f64>,
    pub responses: u64,
    /// From the scheduled time of a change to its arrival, over all clients and changes.
    pub update_ms: Option<Percentiles>,
    /// The same for misbehaving clients; the run does not wait for these.
    pub odd_update_ms: Option<Percentiles>,
    /// The number of misbehaving clients that the server disconnected.
    pub odd_disconnected: usize,
    /// The number of clients that reconnected after an announced close.
    pub drained: usize,
    /// From a change to its arrival at the last client, over the changes.
    pub last_client_ms: Option<Percentiles>,
    pub last_client_ms_p50: Option<f64>,
    pub last_client_ms_max: Option<f64>,
    /// From the scheduled subscription to names to their arrival.
    pub subscribe_ms: Option<Percentiles>,
    /// From the moment of the rule to its content at each client that it selects.
    pub rule_ms: Option<Percentiles>,
    /// The moment of the rule, in nanoseconds of CLOCK_MONOTONIC.
    pub rule_at_ns: Option<u64>,
    /// Resources that clients got although the control plane made them for others.
    pub misplaced: usize,
    /// Resources that answers took away. The tool's own control plane withdraws none.
    pub removals: u64,
    /// Streams of clients that the server ended, with or without an error.
    pub streams_ended: usize,
    pub load: Option<LoadFigures>,
    /// p99 of the last phase divided by p99 of the first phase with updates: the effect of the event in
    /// between on the other clients.
    pub p99_ratio: Option<f64>,
    pub phases: Vec<PhaseFigures>,
    /// The longest delay of a change by the tool.
    pub change_late_ms: f64,
    /// The share of the time with pending updates in which the clients' thread ran or waited for a CPU.
    pub client_thread_busy: f64,
    /// The part of that share in which the thread waited: other threads had the CPUs, perhaps the server's.
    pub client_thread_waiting: f64,
    /// CPU time of the own control plane's thread, divided by the time with pending updates.
    pub control_plane_busy: f64,
    pub tool_was_bottleneck: bool,
    pub errors: usize,
    pub error_messages: Vec<String>,
    pub distribution: Vec<Point>,
    pub spread: Spreads,
    pub series: Vec<Sample>,
}

impl Figures {
    pub fn add_error(&mut self, message: String) {
        self.error_messages.push(message);
        self.errors = self.error_messages.len();
    }
}

pub fn figures(spec: &Spec, finished: &Finished, series: Vec<Sample>, measured: &Measured) -> Figures {
    let tracker = &finished.tracker;
    let updates = tracker.updates.count();
    let per_update = |ns: u64| ratio(ns, updates).map(|ns| ns / 1000.0);
    let last_client_ms = LastClients::of(tracker.last_clients()).percentiles();
    let further = measured.connected.saturating_sub(measured.first_clients);
    let (memory, work) = (measured.memory, finished.work);
    let plane_busy = ratio(measured.control_plane_cpu_ns, work.wall_ns).unwrap_or(0.0);
    let (phases, errors) = (phases(finished), errors(spec, finished, measured));
    Figures {
        name: spec.name.clone(),
        scenario: spec.scenario,
        clients: spec.clients,
        connected: measured.connected,
        clients_per_connection: spec.profile.clients_per_connection,
        resources: spec.resources,
        resource_bytes: spec.resource_bytes,
        mode: spec.profile.variant,
        services: if spec.profile.per_type { "per type" } else { "ADS" },
        subscriptions: spec.profile.describe(),
        node_bytes: spec.profile.node.bytes,
        node_every_request: spec.profile.node.every_request,
        change_type: spec.pace.kind,
        changes: tracker.changes(),
        rate: if spec.scenario == Scenario::Rounds { 0.0 } else { spec.pace.rate },
        connect_ms: measured.connect_ns as f64 / 1e6,
        first_answer_ms: tracker.first_answers.percentiles(),
        reconnect_ms: tracker.reconnects.percentiles(),
        slow_connects: slow_connects(tracker),
        recovery_ms: measured.recovery_ns.map(|ns| ns as f64 / 1e6),
        server_cpu_us_per_connect: cpu_per_connect(spec, measured),
        rss_bytes_per_client: memory.per_client(memory.all_clients, further),
        rss_bytes_per_client_after_changes: memory.per_client(memory.after_changes, further),
        rss_bytes_per_departed_client: memory.per_client(memory.after_leaving, further),
        rss: memory,
        server_cpu_us_per_update: measured.server_cpu_ns.and_then(per_update),
        client_cpu_us_per_update: per_update(work.thread.cpu_ns),
        tool_cpu_us_per_update: per_update(measured.own_cpu_ns),
        bytes_per_update: ratio(measured.bytes, updates),
        updates,
        updates_per_s: ratio(updates, measured.acting_ns).map(|per_ns| per_ns * 1e9),
        responses: tracker.responses,
        update_ms: tracker.updates.percentiles(),
        odd_update_ms: tracker.odd_updates.percentiles(),
        odd_disconnected: finished.fleet.odd_lost(),
        drained: finished.fleet.drained(),
        last_client_ms,
        last_client_ms_p50: last_client_ms.map(|last| last.p50),
        last_client_ms_max: last_client_ms.map(|last| last.max),
        subscribe_ms: tracker.moves.percentiles(),
        rule_ms: tracker.audiences.rule.percentiles(),
        rule_at_ns: tracker.audiences.rule_at(),
        misplaced: tracker.audiences.misplaced,
        removals: tracker.removals,
        streams_ended: finished.fleet.lost() + finished.fleet.odd_lost() + finished.fleet.drained(),
        load: measured.load,
        p99_ratio: p99_ratio(&phases),
        phases,
        change_late_ms: finished.late_ns as f64 / 1e6,
        client_thread_busy: work.busy(),
        client_thread_waiting: ratio(work.thread.waited_ns, work.wall_ns).unwrap_or(0.0),
        control_plane_busy: plane_busy,
        tool_was_bottleneck: work.busy().max(plane_busy) > BUSY_LIMIT,
        errors: errors.len(),
        error_messages: errors,
        distribution: tracker.updates.distribution(),
        spread: spread(finished),
        series,
    }
}

/// The CPU of the server for each client that came after the first ones.
fn cpu_per_connect(spec: &Spec, measured: &Measured) -> Option<f64> {
    let clients = spec.clients.saturating_sub(measured.first_clients) as u64;
    ratio(measured.connect_cpu_ns?, clients).map(|ns| ns / 1000.0)
}

fn slow_connects(tracker: &Tracker) -> u64 {
    tracker.first_answers.longer_than(SYN_RETRY_NS) + tracker.reconnects.longer_than(SYN_RETRY_NS)
}

fn errors(spec: &Spec, finished: &Finished, measured: &Measured) -> Vec<String> {
    let failures = finished.fleet.failures().iter();
    let mut errors: Vec<String> = failures.map(|(reason, count)| format!("{count} x {reason}")).collect();
    if measured.connected < spec.clients {
        errors.push(format!("{} of {} clients were connected at the end", measured.connected, spec.clients));
    }
    if measured.server_ended {
        errors.push("the process of the server ended during the run".to_owned());
    }
    let patience = spec.patience.as_secs_f64();
    if measured.missed > 0 {
        errors.push(format!("{} updates had not come {patience} s after the last change", measured.missed));
    }
    if measured.unruled > 0 {
        let late = measured.unruled;
        errors.push(format!(
            "{late} clients had not the content of the rule {patience} s after the last change"
        ));
    }
    let misplaced = finished.tracker.audiences.misplaced;
    if misplaced > 0 {
        errors.push(format!("clients got {misplaced} resources that the control plane made for others"));
    }
    if measured.moves_missed > 0 {
        let missed = measured.moves_missed;
        errors
            .push(format!("{missed} subscriptions to other names had not been answered after {patience} s"));
    }
    let expects = matches!(spec.scenario, Scenario::Outage);
    if expects && measured.recovery_ns.is_none() {
        errors.push(format!("no client had an update within {patience} s of the end of the outage"));
    }
    errors.extend(measured.load.and_then(|load| load.error(patience)));
    let silent = finished.tracker.updates.count() == 0 && finished.tracker.changes() > 0;
    if silent && !matches!(spec.source, Source::Foreign) && errors.is_empty() {
        errors.push("no client subscribed to a changed resource".to_owned());
    }
    errors
}

fn phases(finished: &Finished) -> Vec<PhaseFigures> {
    let phase = |phase: &super::tracker::Phase| PhaseFigures {
        name: phase.name.clone(),
        at_s: (phase.since - finished.began) as f64 / 1e9,
        update_ms: phase.updates.percentiles(),
    };
    finished.tracker.phases.iter().map(phase).collect()
}

fn p99_ratio(phases: &[PhaseFigures]) -> Option<f64> {
    let p99: Vec<f64> = phases.iter().filter_map(|phase| Some(phase.update_ms?.p99)).collect();
    let (first, last) = (*p99.first()?, *p99.last()?);
    (p99.len() > 1 && first > 0.0).then(|| last / first)
}

fn spread(finished: &Finished) -> Spreads {
    let clients = finished.tracker.spreads();
    let means = clients.iter().map(|client| client.sum_ns as f64 / client.count as f64 / 1e6);
    let maxima = clients.iter().map(|client| client.max_ns as f64 / 1e6);
    Spreads { mean_ms: ranked(means.collect()), max_ms: ranked(maxima.collect()) }
}

/// The values in order, evenly thinned out; includes the first and the last.
fn ranked(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    if values.len() <= SPREAD_POINTS {
        return values;
    }
    let last = values.len() - 1;
    (0..SPREAD_POINTS).map(|point| values[point * last / (SPREAD_POINTS - 1)]).collect()
}

/// There are few changes: their percentiles are exact ranks of all values.
struct LastClients(Vec<u64>);

impl LastClients {
    fn of(values: impl Iterator<Item = u64>) -> LastClients {
        LastClients(values.collect())
    }

    fn percentiles(&mut self) -> Option<Percentiles> {
        self.0.sort_unstable();
        let ms = |ns: u64| ns as f64 / 1e6;
        let at = |per_mille: usize| {
            let rank = (self.0.len() * per_mille).div_ceil(1000);
            self.0.get(rank.saturating_sub(1)).map(|ns| ms(*ns))
        };
        Some(Percentiles {
            count: self.0.len() as u64,
            mean: ms(self.0.iter().sum::<u64>()) / self.0.len() as f64,
            p50: at(500)?,
            p90: at(900)?,
            p99: at(990)?,
            p999: at(999)?,
            max: at(1000)?,
        })
    }
}

/// `None` instead of a division by zero.
fn ratio(value: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| value as f64 / count as f64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn last_clients_are_ranked_exactly() {
        let found = LastClients::of((1..=1000).rev().map(|ms| ms * 1_000_000)).percentiles().unwrap();
        assert_eq!((found.p50, found.p99, found.max), (500.0, 990.0, 1000.0));
        assert_eq!(LastClients::of(std::iter::empty()).percentiles(), None);
    }

    #[test]
    fn a_further_client_costs_what_the_first_has_not_paid() {
        let memory = Memory { one_client: Some(1_000), all_clients: Some(10_000), ..Memory::default() };
        assert_eq!(memory.per_client(memory.all_clients, 9), Some(1_000.0));
        assert_eq!(memory.per_client(memory.all_clients, 0), None);
        assert_eq!(memory.per_client(memory.after_changes, 9), None);
    }

    #[test]
    fn a_spread_keeps_both_ends() {
        let ranked = ranked((0..10_000).rev().map(f64::from).collect());
        assert_eq!((ranked.len(), ranked[0], ranked[199]), (200, 0.0, 9999.0));
        assert!(ranked.is_sorted());
    }
}
