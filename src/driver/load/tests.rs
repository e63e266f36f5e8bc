//! Streams of clients, their classes and their bounds.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::noop_waker;

use crate::client::{ClientSettings, RestServer};
use crate::driver::api::downstream::{LoadStream, LoadWord, OpenStreams};
use crate::driver::api::load::{ClassLoadStatus, LoadsView, RowOrder, RowQuery};
use crate::driver::ground::context::DriverSettings;
use crate::driver::ground::servers::{Attach, LoadUse, Server, ServerLists};
use crate::driver::relay::Relay;
use crate::driver::stream::state::tests::{peer, settings};
use crate::telemetry::{Limit, Metrics};
use sluice_engine::class::{ClassRule, IdPart, NameStyle, NodeClasses, Projection};
use sluice_engine::fallback::FallbackSettings;
use sluice_engine::upstream::UpstreamSettings;
use sluice_load_reports::LoadLimits;
use sluice_load_reports::codec::{ReportWriter, read_answer, write_first_request};
use sluice_load_reports::counters::{Counters, Gauges};
use sluice_load_reports::report::{ClusterStats, LocalityStats};
use sluice_wire::ReaderLimits;
use sluice_wire::upstream::encode_node;
use sluice_xds::{Code, Node, Status};

fn relay(load: Option<LoadUse>) -> Relay {
    Relay::new(with(load, NodeClasses::default()), Arc::new(Metrics::new()))
}

fn with(load: Option<LoadUse>, classes: NodeClasses) -> DriverSettings {
    let metrics = Metrics::new().of_server("a").client().clone();
    let server = RestServer::new("127.0.0.1", 1, "", ClientSettings::default(), metrics);
    let attach = Attach::Rest { server, settings: UpstreamSettings::default() };
    let servers = vec![Arc::new(Server { uri: "a".into(), attach, load })];
    DriverSettings { classes, ..settings(ServerLists::new(servers, FallbackSettings::default())) }
}

/// Each client has a class of its own.
fn by_id() -> NodeClasses {
    let projection = Projection { id: IdPart::Whole, ..Projection::whole_node_but_id() };
    NodeClasses::new(vec![ClassRule::for_names(NameStyle::Old, projection)])
}

fn open(relay: &Relay, id: &str) -> Box<dyn LoadStream> {
    let mut stream = relay.open_load(Arc::new(peer([127, 0, 0, 1]))).unwrap();
    let node = Node { id: id.into(), ..Node::default() };
    stream.report(write_first_request(&encode_node(&node)), &ReaderLimits::default()).unwrap();
    stream
}

fn report(clusters: &[&str], success: u64, in_progress: u64) -> Bytes {
    let mut writer = ReportWriter::default();
    for name in clusters {
        let counters = Counters { success, ..Counters::default() };
        let gauges = Gauges { in_progress, ..Gauges::default() };
        let localities = vec![LocalityStats { counters, gauges, ..LocalityStats::default() }];
        writer.push(&ClusterStats { name, localities, ..ClusterStats::default() });
    }
    writer.finish().remove(0).bytes
}

/// The interval of the next answer, in seconds; `None` without an answer.
fn answer(stream: &mut dyn LoadStream) -> Option<u64> {
    let (waker, limit) = (noop_waker(), 5);
    match stream.poll_word(&mut Context::from_waker(&waker)) {
        Poll::Ready(LoadWord::Answer(answer)) => {
            Some(read_answer(&answer[limit..]).unwrap().interval.as_secs())
        }
        Poll::Ready(LoadWord::End(status)) => panic!("{status}"),
        Poll::Pending => None,
    }
}

/// The gauges and the requests of each class.
fn classes(relay: &Relay) -> Vec<(u64, u64)> {
    let gauges = |load: &ClassLoadStatus| {
        let query = RowQuery { cluster: None, order: RowOrder::Errors, count: 1_000 };
        relay.load_rows(load.number, &query).iter().map(|row| row.gauges.in_progress).sum()
    };
    relay.loads().iter().map(|load| (gauges(load), load.accounts.read)).collect()
}

#[tokio::test(start_paused = true)]
async fn lrs_1_nothing_is_said_before_the_first_message() {
    let relay = relay(Some(LoadUse::Local));
    let mut stream = relay.open_load(Arc::new(peer([127, 0, 0, 1]))).unwrap();
    assert_eq!(answer(&mut *stream), None);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((answer(&mut *stream), relay.loads().len()), (None, 0));
    stream.half_close();
    let waker = noop_waker();
    let word = stream.poll_word(&mut Context::from_waker(&waker));
    assert!(matches!(word, Poll::Ready(LoadWord::End(status)) if status == Status::ok()));
}

/// ADR 36: what a client has in progress is counted once, wherever the client is.
#[tokio::test(start_paused = true)]
async fn lrs_15_the_gauges_of_a_client_move_with_its_class_and_go_with_its_stream() {
    let relay = relay(Some(LoadUse::Local));
    let limits = ReaderLimits::default();
    let (mut one, mut other) = (open(&relay, "1"), open(&relay, "2"));
    one.report(report(&["c"], 10, 3), &limits).unwrap();
    other.report(report(&["c"], 1, 4), &limits).unwrap();
    assert_eq!(classes(&relay), [(7, 11)]);
    relay.configure(with(Some(LoadUse::Local), by_id()));
    assert!(answer(&mut *one).is_some(), "the first answer");
    answer(&mut *other);
    assert_eq!(classes(&relay), [(0, 11), (3, 0), (4, 0)]);
    one.report(report(&["c"], 5, 2), &limits).unwrap();
    assert_eq!(classes(&relay), [(0, 11), (2, 5), (4, 0)]);
    drop(one);
    assert_eq!(classes(&relay), [(0, 11), (0, 5), (4, 0)]);
    // A load without clients lingers like a source.
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(classes(&relay), [(4, 0)]);
}

#[tokio::test(start_paused = true)]
async fn lrs_21_without_a_server_that_takes_reports_a_client_is_asked_for_nothing() {
    let relay = relay(None);
    let mut stream = open(&relay, "1");
    assert!(answer(&mut *stream).is_some_and(|seconds| seconds >= 270));
    stream.report(report(&["c"], 10, 3), &ReaderLimits::default()).unwrap();
    assert!(relay.loads().is_empty());
    relay.configure(with(Some(LoadUse::Local), NodeClasses::default()));
    assert!(answer(&mut *stream).is_some_and(|seconds| seconds <= 10), "asked at once");
    stream.set_dropped(true);
    stream.report(report(&["c"], 10, 3), &ReaderLimits::default()).unwrap();
    assert_eq!(classes(&relay), [(0, 0)], "the listener drops");
}

#[tokio::test(start_paused = true)]
async fn lrs_18_a_client_has_bounds_of_bytes_gauges_and_classes() {
    let limits = ReaderLimits { request_bytes: 1_000, ..ReaderLimits::default() };
    let mut settings = with(Some(LoadUse::Local), by_id());
    settings.limits.node_classes = 2;
    settings.load = LoadLimits { load_rows: 100, load_rows_per_stream: 100, ..LoadLimits::default() };
    let metrics = Arc::new(Metrics::new());
    let relay = Relay::new(settings, metrics.clone());
    let mut streams: Vec<_> = ["1", "2", "3"].into_iter().map(|id| open(&relay, id)).collect();
    assert_eq!((relay.loads().len(), metrics.limits().of(Limit::NodeClasses)), (2, 1));
    assert!(answer(&mut *streams[2]).is_some_and(|seconds| seconds >= 270), "no room");
    streams[0].arrived(1_000, &limits).unwrap();
    let status = streams[0].arrived(1, &limits).unwrap_err();
    assert_eq!((status.code, metrics.limits().of(Limit::RequestBytes)), (Code::ResourceExhausted, 1));
    let names: Vec<String> = (0..200).map(|number| format!("c{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    streams[1].report(report(&names, 1, 1), &limits).unwrap();
    let load = &relay.loads()[1];
    assert_eq!((load.row_count, load.accounts.left_out, load.accounts.local), (44, 156, 44));
    // A report walks over all gauges, of 88 bytes here. A small report counts as if it had their size.
    let ends: Vec<_> = (0..12).map(|_| streams[1].report(report(&[], 0, 0), &limits)).collect();
    assert!(ends[..11].iter().all(Result::is_ok), "{ends:?}");
    assert_eq!(ends[11].as_ref().unwrap_err().code, Code::ResourceExhausted);
}

/// No reload is needed, and nobody wakes a client that has found no room.
#[tokio::test(start_paused = true)]
async fn lrs_18_a_class_without_room_is_looked_for_again() {
    let mut settings = with(Some(LoadUse::Local), by_id());
    settings.limits.node_classes = 2;
    let metrics = Arc::new(Metrics::new());
    let relay = Relay::new(settings, metrics.clone());
    let mut streams: Vec<_> = ["1", "2", "3"].into_iter().map(|id| open(&relay, id)).collect();
    let mut late = streams.remove(2);
    assert!(answer(&mut *late).is_some_and(|seconds| seconds >= 270), "no room");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(answer(&mut *late), None);
    assert_eq!((relay.loads().len(), metrics.limits().of(Limit::NodeClasses)), (2, 1));
    drop(streams.remove(0));
    // The load of the first client lingers for 30 s.
    tokio::time::sleep(Duration::from_secs(45)).await;
    assert!(answer(&mut *late).is_some_and(|seconds| seconds <= 10), "asked at once");
    late.report(report(&["c"], 7, 0), &ReaderLimits::default()).unwrap();
    assert_eq!(classes(&relay).last(), Some(&(0, 7)));
}

/// Clients may bring ever new classes, and each class has a bound of its own.
#[tokio::test(start_paused = true)]
async fn lrs_18_all_classes_together_have_a_bound_and_late_ones_have_room() {
    let limits = ReaderLimits::default();
    let mut settings = with(Some(LoadUse::Local), by_id());
    settings.load = LoadLimits { load_rows: 1_000, load_rows_per_stream: 1_000, load_rows_total: 2_000 };
    (settings.limits.node_classes, settings.limits.node_classes_per_connection) = (100, 100);
    let relay = Relay::new(settings, Arc::new(Metrics::new()));
    let names: Vec<String> = (0..300).map(|number| format!("c{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut streams = Vec::new();
    for round in 0..40 {
        let mut stream = open(&relay, &round.to_string());
        stream.report(report(&names, 1, 1), &limits).unwrap();
        streams.push(stream);
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        let rows: usize = relay.loads().iter().map(|load| load.row_count).sum();
        assert!(rows <= 1_000, "{rows} rows are {} entries", 2 * rows);
    }
    let mut late = open(&relay, "late");
    late.report(report(&["a", "b", "c"], 1, 1), &limits).unwrap();
    let loads = relay.loads();
    assert_eq!((loads[40].row_count, loads[40].accounts.left_out), (3, 0));
    let largest = loads.iter().map(|load| load.row_count).max();
    assert!(largest < Some(100), "{largest:?}");
    // Room that is free again serves the largest, too.
    streams.truncate(1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    streams[0].report(report(&names, 1, 1), &limits).unwrap();
    assert_eq!(relay.loads()[0].row_count, 300);
}

#[tokio::test(start_paused = true)]
async fn lrs_20_first_answers_are_admitted_like_those_of_other_streams() {
    let mut settings = with(Some(LoadUse::Local), NodeClasses::default());
    (settings.limits.first_answers_per_second, settings.limits.first_answers_burst) = (1, 1);
    let relay = Relay::new(settings, Arc::new(Metrics::new()));
    let (mut one, mut other) = (open(&relay, "1"), open(&relay, "2"));
    assert!(answer(&mut *one).is_some() && answer(&mut *other).is_none());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(answer(&mut *other).is_some());
}
