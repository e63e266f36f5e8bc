#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::disallowed_methods, reason = "the collector and the thread that sends have no paused clock")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tonic::{Request, Response, Status};

use super::change::{ChangeOutcome, Decoding, Delivery, Encoding, Skipped};
use super::*;
use crate::telemetry::Metrics;
use sluice_xds::TypeUrl;

const WAIT: Duration = Duration::from_secs(10);

/// A collector that passes on the spans, or never answers.
struct Collector {
    requests: mpsc::UnboundedSender<ExportTraceServiceRequest>,
    hangs: bool,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let _ = self.requests.send(request.into_inner());
        if self.hangs {
            std::future::pending::<()>().await;
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

async fn collector(hangs: bool) -> (SocketAddr, mpsc::UnboundedReceiver<ExportTraceServiceRequest>) {
    let (requests, received) = mpsc::unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = TraceServiceServer::new(Collector { requests, hangs });
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let service = TowerToHyperService::new(service.clone());
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(http.serve_connection(TokioIo::new(socket), service));
        }
    });
    (address, received)
}

fn settings(address: SocketAddr, per_second: u32) -> TraceSettings {
    TraceSettings { endpoint: format!("http://{address}"), slow: Duration::from_secs(1), per_second }
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn change(outcome: ChangeOutcome) -> FinishedChange {
    FinishedChange {
        name: "c-3-118".to_owned(),
        server: "cp-1:15010".into(),
        list: "xds_servers".into(),
        class: "c0ffee12".into(),
        type_url: TypeUrl::of_message("envoy.config.cluster.v3.Cluster"),
        type_label: "Cluster".into(),
        version: "b41f0c2e".to_owned(),
        upstream_version: Some("118".into()),
        received_at: SystemTime::UNIX_EPOCH + Duration::from_secs(1000),
        decoding: None,
        published: ms(2),
        encodings: Vec::new(),
        coalesced: Vec::new(),
        over: Duration::from_secs(30),
        added: 1,
        changed: 2,
        removed: 0,
        bytes: 1234,
        outcome,
        streams: 10_000,
        acked: 10_000,
        rejected: 0,
        waiting: 0,
        superseded: 0,
        p50: Some(ms(41)),
        p99: Some(ms(180)),
        last: Some(ms(412)),
        slowest: (0..5)
            .map(|n| Delivery { stream: 70 + n, after: ms(412 - n), rejection: None, skipped: Vec::new() })
            .collect(),
        rejections: Vec::new(),
    }
}

fn rejected() -> FinishedChange {
    let words = || Some("bad <cluster>".into());
    let no = |n| Delivery { stream: n, after: ms(900), rejection: words(), skipped: Vec::new() };
    FinishedChange {
        rejected: 500,
        rejections: (0..500).map(no).collect(),
        ..change(ChangeOutcome::Rejected)
    }
}

fn spans_of(request: ExportTraceServiceRequest) -> Vec<Span> {
    let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).collect()
}

/// Begin and end, since the receipt.
fn millis(span: &Span) -> (i64, i64) {
    let millis = |nanos: u64| i64::try_from(nanos / 1_000_000).unwrap() - 1_000_000;
    (millis(span.start_time_unix_nano), millis(span.end_time_unix_nano))
}

fn text(span: &Span, key: &str) -> String {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    let found = span.attributes.iter().find(|attribute| attribute.key == key).unwrap();
    match found.value.clone().unwrap().value.unwrap() {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        other => panic!("{other:?}"),
    }
}

async fn next<T>(received: &mut mpsc::UnboundedReceiver<T>) -> T {
    tokio::time::timeout(WAIT, received.recv()).await.expect("in time").unwrap()
}

fn start(metrics: &Metrics, settings: &TraceSettings) {
    metrics.traces.configure(Some(metrics.traces.start(settings, "relay-1").unwrap()));
}

#[tokio::test]
async fn obs_2_a_change_for_10_000_clients_is_eight_spans() {
    let (address, mut received) = collector(false).await;
    let metrics = Metrics::new();
    start(&metrics, &settings(address, 5));
    metrics.traces.offer(change(ChangeOutcome::Acked));
    let request = next(&mut received).await;
    let resource = request.resource_spans[0].resource.clone().unwrap();
    assert!(
        resource.attributes.iter().any(|attribute| attribute.key == "service.instance.id"),
        "{resource:?}"
    );
    let spans = spans_of(request);
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    let deliveries = ["xds.deliver"; 5];
    assert_eq!(names, [&["xds.change", "xds.apply", "xds.fanout"][..], &deliveries].concat());
    let (root, apply, fanout) = (&spans[0], &spans[1], &spans[2]);
    assert!(root.parent_span_id.is_empty() && root.status.clone().is_none_or(|status| status.code == 0));
    assert_eq!((&apply.parent_span_id, &fanout.parent_span_id), (&root.span_id, &root.span_id));
    assert!(spans[3..].iter().all(|span| span.parent_span_id == fanout.span_id));
    assert!(spans.iter().all(|span| span.trace_id == root.trace_id && !span.span_id.is_empty()));
    assert_eq!([root, apply, fanout, &spans[3]].map(millis), [(0, 412), (0, 2), (2, 412), (2, 412)]);
    let events: Vec<_> = fanout
        .events
        .iter()
        .map(|event| (event.name.as_str(), event.time_unix_nano / 1_000_000 - 1_000_000))
        .collect();
    assert_eq!(events, [("p50", 41), ("p99", 180), ("last_ack", 412)]);
    let of_root = ["sluice.change", "sluice.outcome", "xds.type", "xds.version", "sluice.clients.acked"];
    assert_eq!(
        of_root.map(|key| text(root, key)),
        ["c-3-118", "acked", "envoy.config.cluster.v3.Cluster", "b41f0c2e", "10000"]
    );
    assert_eq!(text(&spans[3], "sluice.stream"), "70");
}

/// The largest tree: each span with its parent, and the times of the parts.
#[tokio::test]
async fn obs_2_decoding_and_the_first_bodies_have_spans_and_the_tree_is_bounded() {
    let (address, mut received) = collector(false).await;
    let metrics = Metrics::new();
    start(&metrics, &settings(address, 0));
    let body = |n: u64| Encoding { begin: ms(2 + n), end: ms(3 + n), bytes: 1000 + n as usize, messages: 1 };
    let change = FinishedChange {
        decoding: Some(Decoding { before: ms(4), took: ms(3) }),
        encodings: (0..40).map(body).collect(),
        ..rejected()
    };
    assert!(metrics.traces.offer(change));
    let spans = spans_of(next(&mut received).await);
    let name_of = |id: &[u8]| spans.iter().find(|span| span.span_id == id).map_or("", |span| &span.name);
    let tree: Vec<_> = spans.iter().map(|span| (&*span.name, name_of(&span.parent_span_id))).collect();
    let root = [("xds.change", ""), ("xds.decode", "xds.change"), ("xds.apply", "xds.change")];
    let expected = [
        &root[..],
        &[("xds.encode", "xds.change"); 16],
        &[("xds.fanout", "xds.change")],
        &[("xds.deliver", "xds.fanout"); 5 + 16],
    ];
    assert_eq!(tree, expected.concat());
    assert!(spans.len() <= 48, "{}", spans.len());
    assert_eq!([0, 1, 2, 3, 18].map(|n| millis(&spans[n])), [(-4, 900), (-4, -1), (0, 2), (2, 3), (17, 18)]);
    assert_eq!(
        (text(&spans[3], "sluice.bytes"), text(&spans[3], "sluice.messages")),
        ("1000".into(), "1".into())
    );
}

#[tokio::test]
async fn obs_3_a_delivery_links_to_eight_of_the_changes_in_whose_place_it_came_once_each() {
    let (address, mut received) = collector(false).await;
    let metrics = Metrics::new();
    start(&metrics, &settings(address, 5));
    let earlier = change(ChangeOutcome::Rejected);
    assert!(metrics.traces.offer(FinishedChange { name: "c-3-117".to_owned(), ..earlier }));
    let skipped = |n: u64| Skipped { name: format!("c-3-{n}"), is_traced: n == 117 };
    let names = (107..=117).rev().chain([117]).map(skipped).collect::<Vec<_>>();
    let slow = Delivery { stream: 9, after: ms(412), rejection: None, skipped: names };
    let coalesced = vec![skipped(116)];
    let change = FinishedChange { slowest: vec![slow], coalesced, ..change(ChangeOutcome::Rejected) };
    assert!(metrics.traces.offer(change));
    let mut spans = Vec::new();
    while spans.iter().filter(|span: &&Span| span.name == "xds.change").count() < 2 {
        spans.extend(spans_of(next(&mut received).await));
    }
    let target = spans.iter().find(|span| text(span, "sluice.change") == "c-3-117").unwrap().clone();
    let deliver = spans.iter().find(|span| !span.links.is_empty() && span.name == "xds.deliver").unwrap();
    assert_eq!((deliver.links.len(), deliver.dropped_links_count), (8, 3));
    let first = &deliver.links[0];
    assert_eq!(
        (&first.trace_id, &first.span_id),
        (&target.trace_id, &target.span_id),
        "the root of its trace"
    );
    assert_eq!((first.flags & 1, deliver.links[1].flags & 1), (1, 0), "only one of them has a trace");
    let fanout = spans.iter().rfind(|span| span.name == "xds.fanout").unwrap();
    assert_eq!(fanout.links.len(), 1);
    assert_eq!(fanout.links[0].trace_id, deliver.links[1].trace_id);
}

/// OBS-5, OBS-13: the id of a trace is known before there is one.
#[tokio::test]
async fn obs_5_an_act_always_has_a_trace_with_its_steps_and_its_failure() {
    let (address, mut received) = collector(false).await;
    let metrics = Metrics::new();
    assert_eq!(metrics.traces.begin(Act::Drain).trace_id(), None, "nobody gets it");
    start(&metrics, &settings(address, 0));
    let mut act = metrics.traces.begin(Act::Reload);
    act.step("sluice.reload.prepare");
    act.step("sluice.reload.commit");
    act.note("sluice.generation", 7);
    let id = act.trace_id().unwrap();
    act.end(Some("listeners[0]: refused".to_owned()));
    let spans = spans_of(next(&mut received).await);
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["sluice.reload", "sluice.reload.prepare", "sluice.reload.commit"]);
    let hex: String = spans[0].trace_id.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((hex, text(&spans[0], "sluice.generation")), (id, "7".to_owned()));
    assert_eq!(spans[0].status.clone().unwrap().message, "listeners[0]: refused");
    assert!(spans[1..].iter().all(|span| span.parent_span_id == spans[0].span_id));
    for act in [Act::HandOver, Act::Drain, Act::Checkpoint] {
        metrics.traces.begin(act).end(None);
    }
    let mut names = Vec::new();
    while names.len() < 3 {
        names.extend(spans_of(next(&mut received).await).into_iter().map(|span| span.name));
    }
    assert_eq!(names, ["sluice.handover", "sluice.drain", "sluice.checkpoint"]);
}

#[tokio::test]
async fn obs_8_exemplars_stand_beside_the_samples_of_exported_traces_only() {
    let (address, mut received) = collector(false).await;
    let metrics = Metrics::new();
    let clusters = metrics.of_type(&TypeUrl::of_message("envoy.config.cluster.v3.Cluster"));
    clusters.delivered(ms(412));
    clusters.nack();
    let exemplars = || {
        let text = metrics.encode().unwrap();
        let with = text.lines().filter(|line| line.contains(" # ")).map(str::to_owned);
        with.collect::<Vec<_>>()
    };
    start(&metrics, &settings(address, 0));
    assert!(!metrics.traces.offer(change(ChangeOutcome::Acked)), "has no trace");
    assert!(metrics.traces.offer(rejected()));
    let trace: String =
        spans_of(next(&mut received).await)[0].trace_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let found = tokio::time::timeout(WAIT, async {
        loop {
            let found = exemplars();
            if !found.is_empty() {
                return found;
            }
            tokio::time::sleep(ms(5)).await;
        }
    });
    let expected = [
        format!(r#"sluice_downstream_nacks_total{{type="Cluster"}} 1 # {{trace_id="{trace}"}} 1 1000.900"#),
        format!(
            r#"sluice_downstream_delivery_seconds_bucket{{le="0.5",type="Cluster"}} 1 # {{trace_id="{trace}"}} 0.412 1000.412"#
        ),
    ];
    assert_eq!(found.await.expect("after the answer of the collector"), expected, "one a bucket");
    assert!("trace_id".len() + trace.len() <= 128);
}

#[tokio::test]
async fn obs_8_a_trace_that_never_arrived_is_no_exemplar() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let metrics = Metrics::new();
    metrics.of_type(&TypeUrl::of_message("envoy.config.cluster.v3.Cluster")).nack();
    start(&metrics, &settings(address, 5));
    metrics.traces.offer(rejected());
    is_dropped(&metrics).await;
    assert!(!metrics.encode().unwrap().contains(" # "));
    // The last traces go another way.
    let dropped = metrics.traces.dropped.get();
    metrics.traces.offer(rejected());
    metrics.traces.end(Duration::from_secs(5));
    assert!(metrics.traces.dropped.get() > dropped && !metrics.encode().unwrap().contains(" # "));
}

/// Waits until spans that a collector did not take are counted.
async fn is_dropped(metrics: &Metrics) {
    tokio::time::timeout(WAIT, async {
        while metrics.traces.dropped.get() == 0 {
            tokio::time::sleep(ms(10)).await;
        }
    })
    .await
    .expect("the refused connection is noticed");
}

#[tokio::test]
async fn obs_2_a_change_that_500_clients_reject_names_16_with_their_words() {
    let (address, mut received) = collector(false).await;
    let metrics = Metrics::new();
    start(&metrics, &settings(address, 0));
    metrics.traces.offer(rejected());
    let spans = spans_of(next(&mut received).await);
    assert_eq!(spans.len(), 3 + 5 + 16);
    let failed: Vec<_> =
        spans.iter().filter(|span| span.status.clone().unwrap_or_default().code == 2).collect();
    assert_eq!(failed.len(), 17, "the change and its rejections");
    assert!(failed[1..].iter().all(|span| span.status.clone().unwrap().message == "bad <cluster>"));
    assert_eq!(millis(&spans[0]), (0, 900), "until the last answer");
}

#[tokio::test(start_paused = true)]
async fn obs_5_of_a_thousand_changes_a_second_the_bad_ones_and_a_few_others_have_traces() {
    let mut sampler = Sampler::new(&settings("127.0.0.1:1".parse().unwrap(), 5));
    let slow = FinishedChange { last: Some(ms(1001)), ..change(ChangeOutcome::Acked) };
    let (mut ordinary, mut special) = (Vec::new(), 0);
    for n in 0..3000_u64 {
        let now = Instant::now();
        if sampler.wants(&change(ChangeOutcome::Acked), now) {
            ordinary.push(n);
        }
        let bad = [rejected(), slow.clone(), change(ChangeOutcome::Unfinished)];
        special += bad.iter().filter(|change| sampler.wants(change, now)).count();
        tokio::time::advance(ms(1)).await;
    }
    assert_eq!((ordinary.len(), special), (15, 9000));
    assert!(ordinary.windows(2).all(|pair| pair[1] - pair[0] == 200), "evenly: {ordinary:?}");
    let mut none = Sampler::new(&settings("127.0.0.1:1".parse().unwrap(), 0));
    assert!(!none.wants(&change(ChangeOutcome::Acked), Instant::now()));
    assert!(none.wants(&rejected(), Instant::now()));
}

/// On a runtime with one thread, which nothing of the export may block (OBS-6).
#[tokio::test]
async fn obs_6_a_collector_that_hangs_costs_traces_and_nothing_else() {
    let (address, mut received) = collector(true).await;
    let metrics = Arc::new(Metrics::new());
    start(&metrics, &settings(address, 5));
    metrics.traces.offer(rejected());
    next(&mut received).await;
    let begin = std::time::Instant::now();
    let offered = 2 * QUEUED_MAX;
    for _ in 0..offered {
        metrics.traces.offer(rejected());
    }
    // Neither waits for the collector, which would take 5 s.
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    let of_one = 3 + 5 + 16;
    assert_eq!(metrics.traces.dropped.get(), (offered - QUEUED_MAX) as u64 * of_one);
    let begin = std::time::Instant::now();
    metrics.traces.end(Duration::from_secs(60));
    assert!(begin.elapsed() < Duration::from_secs(4), "OBS-7: {:?}", begin.elapsed());
    assert_eq!(metrics.traces.dropped.get(), (offered + 1) as u64 * of_one, "every span is accounted for");
}

#[tokio::test]
async fn obs_6_an_absent_collector_is_counted_and_a_later_one_gets_the_next_traces() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let metrics = Metrics::new();
    start(&metrics, &settings(address, 5));
    metrics.traces.offer(rejected());
    is_dropped(&metrics).await;
    metrics.traces.end(Duration::from_secs(5));
}

#[tokio::test]
async fn obs_7_the_last_traces_leave_before_the_end() {
    let (address, mut received) = collector(false).await;
    let metrics = Arc::new(Metrics::new());
    start(&metrics, &settings(address, 5));
    for _ in 0..10 {
        metrics.traces.offer(rejected());
    }
    // The thread sends while this one waits, as at the end of the process.
    let ending = metrics.clone();
    tokio::task::spawn_blocking(move || ending.traces.end(WAIT)).await.unwrap();
    let mut spans = 0;
    while let Ok(request) = received.try_recv() {
        spans += spans_of(request).len();
    }
    assert_eq!((spans, metrics.traces.dropped.get()), (10 * 24, 0));
}

#[tokio::test]
async fn rel_2_another_collector_gets_the_next_traces_and_none_is_lost() {
    let ((first, mut by_first), (second, mut by_second)) = (collector(false).await, collector(false).await);
    let metrics = Metrics::new();
    start(&metrics, &settings(first, 5));
    metrics.traces.offer(rejected());
    start(&metrics, &settings(second, 5));
    metrics.traces.offer(rejected());
    assert_eq!(spans_of(next(&mut by_first).await).len(), 24);
    assert_eq!(spans_of(next(&mut by_second).await).len(), 24);
    metrics.traces.configure(None);
    assert!(!metrics.traces.is_on());
    assert_eq!(metrics.traces.dropped.get(), 0);
}

#[test]
fn without_a_collector_nothing_is_gathered() {
    let metrics = Metrics::new();
    assert!(!metrics.traces.is_on());
    metrics.traces.offer(rejected());
    assert_eq!(metrics.traces.dropped.get(), 0);
}
