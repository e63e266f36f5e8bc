//! A class at one server: bounds, odd numbers, endpoints and metrics, groups, and servers without the service.

use std::time::Duration;

use bytes::Bytes;
use sluice_engine::Time;
use sluice_load_reports::codec::write_answer;
use sluice_load_reports::counters::{Counters, Gauges, Group, MetricSum, PerGroup, Tally};
use sluice_load_reports::report::{
    ClusterStats, DroppedRequests, EndpointStats, LoadReport, LocalityStats, MessageKind, MetricStats,
    NamedMetric, Utilization,
};
use sluice_load_reports::{
    ClassLoad, Clusters, Departure, Destination, Happening, LoadLimits, Output, StreamId, Wish, read_report,
};
use sluice_setting::Backoff;
use sluice_xds::{Code, Status};

const ONE: StreamId = StreamId(1);
const OTHER: StreamId = StreamId(2);

fn at(seconds: u64) -> Time {
    Time::from_micros(seconds * 1_000_000)
}

fn load(load_rows: usize, load_rows_per_stream: usize) -> ClassLoad {
    let destination = Destination::Server { node: Bytes::from_static(b"node"), backoff: Backoff::default() };
    let mut load = ClassLoad::new(
        destination,
        LoadLimits { load_rows, load_rows_per_stream, ..LoadLimits::default() },
        at(0),
    );
    load.arrive(ONE, Group::Others, Departure::default(), at(0));
    load.arrive(OTHER, Group::Others, Departure::default(), at(0));
    load
}

fn wish(has_endpoints: bool) -> Bytes {
    write_answer(&Wish::new(Clusters::All, Duration::from_secs(10), has_endpoints))
}

fn counters(success: u64, error: u64) -> Counters {
    Counters { success, error, ..Counters::default() }
}

fn locality(success: u64, error: u64) -> LocalityStats<'static> {
    LocalityStats { counters: counters(success, error), ..LocalityStats::default() }
}

fn cluster<'a>(name: &'a str, localities: Vec<LocalityStats<'a>>) -> ClusterStats<'a> {
    ClusterStats { name, localities, ..ClusterStats::default() }
}

fn report(clusters: Vec<ClusterStats<'_>>) -> LoadReport<'_> {
    LoadReport { clusters, ..LoadReport::default() }
}

fn outputs(load: &mut ClassLoad) -> Vec<Output> {
    std::iter::from_fn(|| load.poll_output()).collect()
}

/// The next report to the server.
fn sent(load: &mut ClassLoad, now: Time) -> Bytes {
    load.handle_timeout(now);
    let sent = outputs(load).into_iter().find_map(|output| match output {
        Output::Send(bytes) => Some(bytes),
        _ => None,
    });
    load.written(now);
    sent.unwrap()
}

/// One number of a hostile client would else fill the sums of all others.
#[test]
fn lrs_18_counters_beyond_four_billion_are_cut_and_counted() {
    let mut load = load(100, 100);
    let mut drops = cluster("a", vec![locality(u64::MAX, 1)]);
    drops.dropped = u64::MAX;
    let mut hostile = report(vec![drops]);
    hostile.cut();
    load.report(ONE, &hostile, |_| true);
    load.report(OTHER, &report(vec![cluster("a", vec![locality(5, 0)])]), |_| true);
    let most = u64::from(u32::MAX);
    assert_eq!((load.accounts().read, load.oddities().saturated), (most + 6, 2));
}

/// A report may name a locality many times, and the gauges of a stream are walked with each report.
#[test]
fn lrs_15_a_locality_that_a_report_repeats_has_one_gauge() {
    let mut load = load(100, 100);
    let busy = LocalityStats {
        gauges: Gauges { in_progress: 2, active_connections: 1 },
        ..LocalityStats::default()
    };
    load.report(OTHER, &report(vec![cluster("a", vec![busy.clone()])]), |_| true);
    let one = load.gauge_bytes(OTHER);
    load.report(ONE, &report(vec![cluster("a", vec![busy; 1_000])]), |_| true);
    assert!(load.gauge_bytes(ONE) < 1_000 * one / 2, "{} bytes", load.gauge_bytes(ONE));
    let gauges = |load: &ClassLoad| load.rows().next().map(|row| row.gauges.in_progress);
    assert_eq!(gauges(&load), Some(2_002));
    load.close(ONE);
    assert_eq!(gauges(&load), Some(2));
}

#[test]
fn lrs_15_and_lrs_6_counters_drops_and_metrics_are_sums_and_gauges_are_the_latest() {
    let mut load = load(1_000, 1_000);
    load.answered(&wish(true), at(1));
    let sum = |finished, total| MetricSum { finished, total };
    let full = |weight: u64| {
        let total = weight as f64;
        let named = vec![NamedMetric { name: "named_metrics.q", sum: sum(weight, total) }];
        let endpoint = |address| EndpointStats {
            address,
            counters: Counters { issued: weight, ..counters(weight, 0) },
            in_progress: weight,
            named: named.clone(),
            metadata: b"m",
        };
        let utilization = Utilization {
            cpu: sum(weight, total),
            mem: sum(weight, 2.0 * total),
            application: sum(weight, 3.0 * total),
        };
        let stats = LocalityStats {
            priority: 1,
            counters: Counters { new_connections: 3, failed_connections: 4, ..counters(weight, 1) },
            gauges: Gauges { in_progress: weight, active_connections: 2 },
            metrics: Some(Box::new(MetricStats { utilization, named: named.clone() })),
            endpoints: vec![endpoint(b"a"), endpoint(b"b")],
            ..LocalityStats::default()
        };
        let categories = vec![DroppedRequests { category: "lb", count: 2 }];
        let cluster = ClusterStats { dropped: 5, categories, service: "eds", ..cluster("c", vec![stats]) };
        report(vec![cluster])
    };
    load.report(ONE, &full(1), |_| true);
    load.report(ONE, &full(10), |_| true);
    load.report(OTHER, &full(100), |_| true);
    let bytes = sent(&mut load, at(10));
    let read = read_report(&bytes).unwrap();
    let [stats] = &read.clusters[..] else { panic!("{read:?}") };
    assert_eq!(
        (stats.name, stats.service, stats.dropped, stats.interval),
        ("c", "eds", 15, Duration::from_secs(10))
    );
    assert_eq!(stats.categories, [DroppedRequests { category: "lb", count: 6 }]);
    let [row] = &stats.localities[..] else { panic!("{stats:?}") };
    let summed = Counters { new_connections: 9, failed_connections: 12, ..counters(111, 3) };
    assert_eq!((row.priority, row.counters), (1, summed));
    assert_eq!(row.gauges, Gauges { in_progress: 110, active_connections: 4 });
    let metrics = row.metrics.as_ref().unwrap();
    assert_eq!(metrics.named, [NamedMetric { name: "named_metrics.q", sum: sum(111, 111.0) }]);
    let Utilization { cpu, mem, application } = metrics.utilization;
    assert_eq!((cpu, mem, application), (sum(111, 111.0), sum(111, 222.0), sum(111, 333.0)));
    let [endpoint, _] = &row.endpoints[..] else { panic!("{row:?}") };
    assert_eq!((endpoint.address, endpoint.metadata, endpoint.in_progress), (&b"a"[..], &b"m"[..], 110));
    assert_eq!(endpoint.counters, Counters { issued: 111, ..counters(111, 0) });
    assert_eq!(endpoint.named[0].sum, sum(111, 111.0));

    // Counters begin anew, and gauges stay.
    load.close(OTHER);
    let bytes = sent(&mut load, at(20));
    let read = read_report(&bytes).unwrap();
    let row = &read.clusters[0].localities[0];
    assert_eq!((row.counters, row.gauges.in_progress, read.clusters[0].dropped), (counters(0, 0), 10, 0));

    // The end of the last gauges is told once: a server replaces those of the clusters in a report.
    load.close(ONE);
    let localities = |bytes: Bytes| -> Vec<usize> {
        read_report(&bytes).unwrap().clusters.iter().map(|cluster| cluster.localities.len()).collect()
    };
    assert_eq!([30, 40].map(|seconds| localities(sent(&mut load, at(seconds)))), [vec![0], vec![]]);
}

#[test]
fn lrs_18_rows_of_endpoints_go_to_servers_that_ask_for_them() {
    let mut load = load(1_000, 1_000);
    load.answered(&wish(false), at(1));
    let endpoint = EndpointStats { address: b"a", counters: counters(1, 0), ..EndpointStats::default() };
    let stats = LocalityStats { endpoints: vec![endpoint], ..locality(1, 0) };
    load.report(ONE, &report(vec![cluster("c", vec![stats])]), |_| true);
    let bytes = sent(&mut load, at(10));
    assert_eq!(read_report(&bytes).unwrap().clusters[0].localities[0].endpoints, []);
}

#[test]
fn lrs_18_a_client_with_endless_names_leaves_room_for_its_neighbours() {
    let mut load = load(1_000, 100);
    load.answered(&wish(false), at(1));
    let names: Vec<String> = (0..500).map(|number| format!("hostile-{number}")).collect();
    let hostile = |from: usize| {
        report(names[from..from + 100].iter().map(|name| cluster(name, vec![locality(1, 0)])).collect())
    };
    load.report(ONE, &hostile(0), |_| true);
    // A cluster and a row are two entries.
    assert_eq!((load.rows().count(), load.left_out().names, load.left_out().counters.success), (50, 50, 50));
    load.report(ONE, &hostile(100), |_| true);
    assert_eq!(load.rows().count(), 50);
    load.report(OTHER, &report(vec![cluster("good", vec![locality(7, 0)])]), |_| true);
    let accounts = load.accounts();
    assert_eq!((accounts.read, accounts.pending, accounts.left_out), (207, 57, 150));
    let told = outputs(&mut load);
    let rooms = told.iter().filter(|output| matches!(output, Output::Tell(Happening::NoRoom { .. })));
    assert_eq!(rooms.count(), 1, "{told:?}");

    // Names that nobody reports any more make room for others, and the rest stays.
    for interval in 1..4 {
        load.report(OTHER, &report(vec![cluster("good", vec![locality(0, 0)])]), |_| true);
        drop(sent(&mut load, at(10 * interval)));
    }
    assert_eq!(load.rows().map(|row| row.cluster.to_owned()).collect::<Vec<_>>(), ["good"]);
    load.report(ONE, &hostile(300), |_| true);
    assert_eq!(load.rows().count(), 51);
}

#[test]
fn lrs_18_categories_metrics_and_long_names_have_bounds_too() {
    let mut load = load(100, 100);
    load.answered(&wish(false), at(1));
    let names: Vec<String> = (0..200).map(|number| format!("{number}")).collect();
    let named = names.iter().map(|name| NamedMetric { name, sum: MetricSum { finished: 1, total: 1.0 } });
    let metrics = MetricStats { named: named.collect(), ..MetricStats::default() };
    let stats = LocalityStats { metrics: Some(Box::new(metrics)), ..locality(1, 0) };
    let categories = names.iter().map(|category| DroppedRequests { category, count: 1 }).collect();
    let long = "x".repeat(5_000);
    let clusters = vec![
        ClusterStats { categories, dropped: 200, ..cluster("c", vec![stats]) },
        ClusterStats { dropped: 3, ..cluster(&long, vec![locality(2, 0)]) },
    ];
    load.report(ONE, &report(clusters), |_| true);
    let left_out = load.left_out();
    assert_eq!((left_out.counters.success, left_out.dropped), (3, 3));
    assert_eq!(load.accounts().left_out, 3);
    let bytes = sent(&mut load, at(10));
    let read = read_report(&bytes).unwrap();
    assert_eq!(
        (read.clusters.len(), read.clusters[0].dropped, read.clusters[0].categories.len()),
        (1, 200, 87)
    );
}

/// Servers and gRPC libraries take messages of 4 MiB.
#[test]
fn lrs_18_no_message_to_a_server_is_larger_than_4_mib_whatever_the_names() {
    let mut load = load(100_000, 100_000);
    load.answered(&wish(true), at(1));
    let names: Vec<String> = (0..2_000).map(|number| format!("{number:04000}")).collect();
    let named: Vec<_> =
        names.iter().map(|name| NamedMetric { name, sum: MetricSum { finished: 1, total: 1.0 } }).collect();
    let metrics = MetricStats { named: named.clone(), ..MetricStats::default() };
    let endpoint = EndpointStats { address: b"a", named, ..EndpointStats::default() };
    let stats =
        LocalityStats { metrics: Some(Box::new(metrics)), endpoints: vec![endpoint], ..locality(1, 0) };
    let categories = names.iter().map(|category| DroppedRequests { category, count: 1 }).collect();
    let cluster = ClusterStats { categories, dropped: 2_000, ..cluster("c", vec![stats]) };
    load.report(ONE, &report(vec![cluster]), |_| true);
    assert_eq!((load.left_out().names, load.accounts().left_out), (3 * 1_500, 0));
    load.handle_timeout(at(10));
    let mut sizes = Vec::new();
    while let Some(output) = load.poll_output() {
        let Output::Send(bytes) = output else { continue };
        sizes.push(bytes.len());
        load.written(at(10));
    }
    assert!(sizes.len() > 1 && sizes.iter().all(|size| *size < 4 << 20), "{sizes:?}");
}

#[test]
fn lrs_18_numbers_that_are_none_are_left_out_and_full_sums_stay_full() {
    let mut load = load(1_000, 1_000);
    load.answered(&wish(false), at(1));
    let metric = |total| {
        let named = vec![NamedMetric { name: "m", sum: MetricSum { finished: 1, total } }];
        let metrics = MetricStats { named, ..MetricStats::default() };
        let gauges = Gauges { in_progress: u64::MAX, active_connections: 0 };
        let stats = LocalityStats { metrics: Some(Box::new(metrics)), gauges, ..locality(u64::MAX, 1) };
        report(vec![ClusterStats { dropped: u64::MAX, ..cluster("c", vec![stats]) }])
    };
    for total in [1.0, f64::NAN, f64::INFINITY, f64::MAX, f64::MAX] {
        load.report(ONE, &metric(total), |_| true);
    }
    assert_eq!(load.oddities().not_finite, 2);
    // A gauge of each report, a total, and four times the successes and the drops.
    assert_eq!(load.oddities().saturated, 5 + 1 + 4 + 4);
    let bytes = sent(&mut load, at(10));
    let read = read_report(&bytes).unwrap();
    let row = &read.clusters[0].localities[0];
    assert_eq!((row.counters, read.clusters[0].dropped), (counters(u64::MAX, 5), u64::MAX));
    assert_eq!(row.gauges.in_progress, u64::from(u32::MAX));
    let sum = MetricSum { finished: 3, total: f64::MAX };
    assert_eq!(row.metrics.as_ref().unwrap().named, [NamedMetric { name: "m", sum }]);
}

#[test]
fn lrs_18_an_unknown_field_is_told_once() {
    let mut load = load(1_000, 1_000);
    // Field 9 of the request.
    let bytes = [0x48, 1];
    let unknown = read_report(&bytes).unwrap();
    load.report(ONE, &unknown, |_| true);
    load.report(OTHER, &unknown, |_| true);
    let told = Output::Tell(Happening::UnknownField { message: MessageKind::Report, number: 9 });
    assert_eq!(outputs(&mut load).into_iter().filter(|output| *output == told).count(), 1);
    assert_eq!(load.unknown_fields()[&(MessageKind::Report, 9)], 2);
}

#[test]
fn lrs_21_a_server_without_the_service_costs_a_word_and_a_try_each_minute() {
    let mut load = load(1_000, 1_000);
    load.report(ONE, &report(vec![cluster("c", vec![locality(4, 0)])]), |_| true);
    let status = Status::new(Code::Unimplemented, "no such service");
    let (mut words, mut tries) = (0, 0);
    let mut now = at(0);
    while now < at(600) {
        for output in outputs(&mut load) {
            match output {
                Output::Open(_) => {
                    tries += 1;
                    load.ended(&status, 0, now);
                }
                Output::Tell(Happening::NoService(_)) => words += 1,
                _ => {}
            }
        }
        now = load.poll_timeout().unwrap();
        load.handle_timeout(now);
    }
    assert_eq!((words, tries), (1, 10));
    assert_eq!((load.wish(), load.accounts().unwanted), (Some(&Wish::nothing()), 4));
    // Nothing is collected meanwhile, and reports begin when the server has learned the service.
    load.report(ONE, &report(vec![cluster("c", vec![locality(5, 0)])]), |_| true);
    assert_eq!((load.accounts().pending, load.accounts().unwanted), (0, 9));
    load.answered(&wish(false), now);
    load.report(ONE, &report(vec![cluster("c", vec![locality(6, 0)])]), |_| true);
    assert_eq!(load.accounts().pending, 6);
}

/// Each new wish wakes all clients of the class.
#[test]
fn lrs_19_clients_hear_of_one_wish_a_second_and_of_the_last_one() {
    let mut load = load(1_000, 1_000);
    let (mut told, mut latest) = (0, None);
    for step in 0..500 {
        let now = Time::from_micros(step * 10_000);
        load.handle_timeout(now);
        load.answered(&write_answer(&Wish::new(Clusters::All, Duration::from_secs(60 + step), false)), now);
        let changes = outputs(&mut load).into_iter().filter(|output| *output == Output::WishChanged).count();
        (told, latest) = (told + changes, if changes > 0 { load.wish().cloned() } else { latest });
    }
    assert_eq!((told, load.poll_timeout()), (5, Some(at(5))));
    load.handle_timeout(at(5));
    assert!(outputs(&mut load).contains(&Output::WishChanged) && load.wish() != latest.as_ref());
    assert_eq!(load.wish().map(|wish| wish.interval.as_secs()), Some(559));
}

#[test]
fn lrs_12_lost_streams_are_tried_by_the_backoff() {
    let mut load = load(1_000, 1_000);
    let mut gaps = Vec::new();
    let mut now = at(0);
    for _ in 0..9 {
        drop(outputs(&mut load));
        load.ended(&Status::new(Code::Unavailable, "gone"), 20, now);
        let next = load.poll_timeout().unwrap();
        gaps.push(next.since(now).as_millis());
        now = next;
        load.handle_timeout(now);
    }
    assert_eq!(gaps, [1_000, 1_600, 2_560, 4_096, 6_553, 10_485, 16_777, 26_843, 30_000]);
}

/// The voices about a cluster.
fn voice(load: &ClassLoad, name: &str) -> PerGroup<Tally> {
    load.voices().find(|entry| entry.0 == name).map(|entry| entry.1).unwrap_or_default()
}

/// A client counts for at most 100 requests of each interval, with its share of errors, and not for time
/// before the step.
#[test]
fn lrs_24_no_client_drowns_out_the_others() {
    let mut load = load(1_000, 1_000);
    let told = |load: &mut ClassLoad, id, success, error, seconds, now| {
        let mut cluster = cluster("c", vec![locality(success, error)]);
        cluster.interval = Duration::from_secs(seconds);
        let report = report(vec![cluster]);
        load.hear(id, &report, now);
        load.report(id, &report, |_| true);
    };
    load.observe(at(100));
    const TWO: StreamId = StreamId(2);
    for id in [ONE, TWO] {
        told(&mut load, id, 0, 9, 10, at(101));
    }
    told(&mut load, ONE, 0, u64::MAX, 10, at(111));
    told(&mut load, TWO, 60, 0, 10, at(111));
    assert_eq!(voice(&load, "c").others, Tally { success: 60, error: 100 });
    told(&mut load, ONE, 0, 5_000, 1, at(112));
    assert_eq!(voice(&load, "c").others.requests(), 160, "a second word in an interval");
    told(&mut load, TWO, 0, 50, 60, at(121));
    assert_eq!(voice(&load, "c").others.requests(), 160, "it covers time before the step");
    told(&mut load, TWO, 999, 333, 10, at(131));
    assert_eq!(voice(&load, "c").others, Tally { success: 135, error: 125 });
}

#[test]
fn lrs_22_a_report_is_counted_at_the_server_of_each_cluster() {
    let (mut one, mut other) = (load(1_000, 1_000), load(1_000, 1_000));
    let both = report(vec![cluster("a", vec![locality(1, 0)]), cluster("b", vec![locality(2, 0)])]);
    one.report(ONE, &both, |name| name == "a");
    other.report(ONE, &both, |name| name != "a");
    assert_eq!((one.accounts().pending, other.accounts().pending), (1, 2));
}

#[test]
fn lrs_14_a_local_class_counts_for_operators_and_keeps_nothing() {
    let mut load = ClassLoad::new(Destination::Local, LoadLimits::default(), at(0));
    load.arrive(ONE, Group::Others, Departure::default(), at(0));
    for _ in 0..2 {
        load.report(ONE, &report(vec![cluster("c", vec![locality(3, 1)])]), |_| true);
    }
    assert_eq!((outputs(&mut load), load.wish()), (vec![], Some(&Wish::all())));
    let accounts = load.accounts();
    assert_eq!((accounts.read, accounts.local, accounts.pending), (8, 8, 0));
    assert_eq!(voice(&load, "c").others, Tally { success: 3, error: 1 });
    load.drain(at(1));
    assert!(load.is_drained());
}

#[test]
fn lrs_24_a_report_counts_in_the_group_that_its_client_had_all_the_time() {
    let mut load = load(1_000, 1_000);
    let traffic = |load: &mut ClassLoad, id| {
        load.report(id, &report(vec![cluster("c", vec![locality(9, 1)])]), |_| true);
    };
    // Before the step.
    traffic(&mut load, ONE);
    traffic(&mut load, ONE);
    load.observe(at(5));
    load.set_group(ONE, Group::Admitted);
    assert_eq!((voice(&load, "c"), load.observed_since()), (PerGroup::default(), at(5)));
    // These reports cover time before the step, too.
    traffic(&mut load, ONE);
    traffic(&mut load, OTHER);
    assert_eq!((voice(&load, "c"), load.reporters()), (PerGroup::default(), PerGroup::default()));
    traffic(&mut load, ONE);
    traffic(&mut load, OTHER);
    traffic(&mut load, OTHER);
    let (admitted, others) = (Tally { success: 9, error: 1 }, Tally { success: 18, error: 2 });
    assert_eq!(voice(&load, "c"), PerGroup { admitted, others, ..PerGroup::default() });
    assert_eq!(load.reporters(), PerGroup { admitted: 1, others: 1, unjudged: 0 });
    // The next step admits the other, whose reports begin anew.
    load.set_group(OTHER, Group::Admitted);
    traffic(&mut load, OTHER);
    traffic(&mut load, OTHER);
    assert_eq!(voice(&load, "c").admitted.requests(), 20);
    assert_eq!(load.accounts().pending, 90, "all reports go to the server");
}
