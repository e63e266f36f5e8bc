//! The cost of a large fleet: 10,000 reporters with 100 clusters of 3 localities each, every 10 s. Measured
//! by hand: `cargo test --profile dist -p sluice-load-reports --test loads -- --ignored --nocapture cost`.

// The time of the host is what is measured.
#![allow(clippy::print_stdout, clippy::disallowed_methods)]

use std::fs;
use std::time::Duration;

use bytes::Bytes;
use sluice_engine::Time;
use sluice_load_reports::codec::{ReportWriter, write_answer};
use sluice_load_reports::counters::{Counters, Gauges, Group};
use sluice_load_reports::report::{ClusterStats, LocalityStats, Place};
use sluice_load_reports::{
    Asking, ClassLoad, Client, Clusters, Departure, Destination, LoadLimits, Output, Reporter, StreamId,
    Wish, read_report,
};
use sluice_setting::Backoff;

use super::world::Everything;

const REPORTERS: u64 = 10_000;
const INTERVAL: u64 = 10;
/// The targets: 0.2 of a core, and 64 MiB.
const BUSY_MAX: f64 = 0.2;
const MEMORY_MAX: usize = 64 << 20;

/// The CPU time of this thread: others may use the machine, too.
fn busy() -> Duration {
    let statistics = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(statistics.split(' ').next().unwrap().parse().unwrap())
}

fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}

/// The report of one client. Each locality has requests in progress.
fn report(number: u64) -> Bytes {
    let names: Vec<String> =
        (0..100).map(|cluster| format!("outbound|8080||service-{cluster}.shop.svc")).collect();
    let zones = ["eu-west-1a", "eu-west-1b", "eu-west-1c"];
    let mut writer = ReportWriter::default();
    for name in &names {
        let stats = |zone| {
            let counters =
                Counters { success: 900 + number % 200, error: 1, issued: 901, ..Counters::default() };
            let gauges = Gauges { in_progress: 3 + number % 5, active_connections: 2 };
            let place = Place { region: "eu-west-1", zone, sub_zone: "" };
            LocalityStats { place, counters, gauges, ..LocalityStats::default() }
        };
        let interval = Duration::from_secs(INTERVAL);
        let localities = zones.map(stats).to_vec();
        writer.push(&ClusterStats { name, localities, interval, ..ClusterStats::default() });
    }
    writer.finish().remove(0).bytes
}

#[test]
#[ignore = "measures time, which is only meaningful with optimization"]
fn the_cost_of_a_large_fleet() {
    let reports: Vec<Bytes> = (0..50).map(report).collect();
    let at = |seconds: u64| Time::from_micros(seconds * 1_000_000);
    let before = resident();
    let destination = Destination::Server { node: Bytes::new(), backoff: Backoff::default() };
    let mut load = ClassLoad::new(destination, LoadLimits::default(), at(0));
    let mut reporters = Vec::new();
    for id in 0..REPORTERS {
        load.arrive(StreamId(id), Group::Others, Departure::default(), at(0));
        reporters.push(Reporter::new(id, at(0)));
    }
    let wish = Wish::new(Clusters::All, Duration::from_secs(INTERVAL), false);
    load.answered(&write_answer(&wish), at(0));
    let (rounds, begin) = (5, busy());
    for round in 1..=rounds {
        let now = at(round * INTERVAL);
        for (id, reporter) in (0..).zip(&mut reporters) {
            let bytes = &reports[(id + round) as usize % reports.len()];
            let read = read_report(bytes).unwrap();
            assert!(reporter.arrived(bytes.len(), 4 << 20, now));
            reporter.reported(&read, now);
            load.report(StreamId(id), &read, |_| true);
            let asking = Asking { wish: load.wish(), number: 1, client: &Everything as &dyn Client };
            drop(reporter.poll_answer(asking, now));
        }
        load.handle_timeout(now);
        while let Some(output) = load.poll_output() {
            if matches!(output, Output::Send(_)) {
                load.written(now);
            }
        }
    }
    let busy = (busy() - begin).as_secs_f64() / (rounds * INTERVAL) as f64;
    let memory = resident().saturating_sub(before);
    println!(
        "{REPORTERS} reports of {} bytes each {INTERVAL} s: {:.1} % of a core, {:.1} MiB",
        reports[0].len(),
        busy * 100.0,
        memory as f64 / f64::from(1 << 20)
    );
    assert!(busy <= BUSY_MAX && memory <= MEMORY_MAX);
}
