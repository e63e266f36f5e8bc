//! Traces of changes, as a collector gets them from the built binary (OBS-2).

use std::net::SocketAddr;

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
use tokio::sync::mpsc;
use tonic::{Request, Response, Status};

use crate::support::control_plane::eventually;
use crate::support::proto::Node;
use crate::support::{CDS, Client, ControlPlane, Relay, Setup, Variant, poll};

/// A collector that passes on the spans.
struct Collector(mpsc::UnboundedSender<Span>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let scopes = request.into_inner().resource_spans.into_iter().flat_map(|all| all.scope_spans);
        for span in scopes.flat_map(|scope| scope.spans) {
            let _ = self.0.send(span);
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

pub(crate) async fn collector() -> (SocketAddr, mpsc::UnboundedReceiver<Span>) {
    let (spans, received) = mpsc::unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = TraceServiceServer::new(Collector(spans));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(http.serve_connection(TokioIo::new(socket), service));
        }
    });
    (address, received)
}

#[tokio::test]
async fn obs_2_a_rejected_change_is_a_trace_with_the_client_and_its_words() {
    let (address, mut spans) = collector().await;
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    // Only bad changes have a trace.
    let traces = format!("traces: {{ endpoint: 'http://{address}', slow: 60s, per_second: 0 }}");
    let relay = Relay::start(Setup::of(origin.address).line(&traces)).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["*"]);
    client.take(CDS).await;
    origin.set(CDS, "a", "2");
    let answer = client.next(CDS).await;
    client.nack(&answer, "no such extension: teapot 7");
    let mut trace = Vec::new();
    for _ in 0..6 {
        trace.push(spans.recv().await.unwrap());
    }
    let names: Vec<_> = trace.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["xds.change", "xds.decode", "xds.apply", "xds.encode", "xds.fanout", "xds.deliver"]);
    assert!(trace.iter().all(|span| span.trace_id == trace[0].trace_id));
    assert!(trace[1..5].iter().all(|span| span.parent_span_id == trace[0].span_id));
    let [decode, apply, encode, fanout, deliver] = [1, 2, 3, 4, 5].map(|n| &trace[n]);
    assert_eq!(deliver.parent_span_id, fanout.span_id);
    assert_eq!(deliver.status.clone().unwrap().message, "no such extension: teapot 7");
    assert!(deliver.end_time_unix_nano > deliver.start_time_unix_nano);
    // The relay's own clock has microseconds.
    let micros = |nanos: u64| nanos / 1000;
    let begins = [decode, apply, encode].map(|span| micros(span.start_time_unix_nano));
    assert!(begins.is_sorted(), "{begins:?}");
    assert!(decode.end_time_unix_nano <= apply.end_time_unix_nano, "{decode:?} {apply:?}");
    assert!(encode.end_time_unix_nano <= deliver.end_time_unix_nano, "made before it was answered");
    let id: String = trace[0].trace_id.iter().map(|byte| format!("{byte:02x}")).collect();

    // OBS-13: the log, the event and the trace have the same name, and the same id.
    let change = attribute(&trace[0], "sluice.change");
    eventually("the warning", || async { relay.log().contains(&id) }).await;
    let log = relay.log();
    let line = log.lines().find(|line| line.contains(&format!("trace_id=\"{id}\""))).unwrap();
    for part in
        ["WARN", "a client rejected an update (NACK)", &format!("change=\"{change}\""), "generation=1"]
    {
        assert!(line.contains(part), "{part} in {line}");
    }
    let events = relay.get("/events?kind=nack").await.1;
    for part in
        [format!("\"trace_id\":\"{id}\""), format!("\"change\":\"{change}\""), "\"generation\":1".to_owned()]
    {
        assert!(events.contains(&part), "{part} in {events}");
    }
    // OBS-8.
    let exemplar = format!("sluice_downstream_nacks_total{{type=\"Cluster\"}} 1 # {{trace_id=\"{id}\"}} 1 ");
    eventually("the exemplar", || async { relay.get("/metrics").await.1.contains(&exemplar) }).await;
    let scrape = relay.get("/metrics").await.1;
    assert!(scrape.contains("\nsluice_telemetry_spans_dropped_total 0\n"));
}

fn number(span: &Span, key: &str) -> i64 {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    let found = span.attributes.iter().find(|attribute| attribute.key == key).unwrap();
    match found.value.clone().unwrap().value.unwrap() {
        Value::IntValue(number) => number,
        other => panic!("{other:?}"),
    }
}

fn attribute(span: &Span, key: &str) -> String {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    let found = span.attributes.iter().find(|attribute| attribute.key == key).unwrap();
    match found.value.clone().unwrap().value.unwrap() {
        Value::StringValue(text) => text,
        other => panic!("{other:?}"),
    }
}

async fn until_fanout(spans: &mut mpsc::UnboundedReceiver<Span>) -> Vec<Span> {
    let mut trace: Vec<Span> = Vec::new();
    while trace.last().is_none_or(|span| span.name != "xds.fanout") {
        trace.push(spans.recv().await.unwrap());
    }
    trace
}

/// A directory has no response to decode, and a poll no stream: reading the files and writing the document are parts of
/// the change's way, too.
#[tokio::test]
async fn obs_2_reading_a_directory_and_the_document_of_a_poll_have_spans() {
    let (address, mut spans) = collector().await;
    let directory = tempfile::tempdir().unwrap();
    let save = |timeout: &str| {
        let text = format!(
            "type_url: {CDS}\nresources: [{{ \"@type\": {CDS}, name: a, connect_timeout: {timeout} }}]\n"
        );
        let next = directory.path().join(".next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(&next, directory.path().join("clusters.yaml")).unwrap();
    };
    save("1s");
    let traces = format!("traces: {{ endpoint: 'http://{address}', slow: 60s, per_second: 1000 }}");
    let setup = Setup::of(format!("file:{}", directory.path().display())).line(&traces);
    let relay = Relay::start(Setup { listener: "rest_hold: 60s".to_owned(), ..setup }).await;
    let node = Node { id: "one".into(), ..Node::default() };
    let (to, path) = (relay.address.clone(), "/v3/discovery:clusters");
    let (status, first) = poll::post(&to, path, &poll::request(Some(&node), "", &[])).await.unwrap();
    assert_eq!(status, 200, "{first}");
    // The relay holds a poll with the newest version until the change.
    let ask = poll::request(Some(&node), first["version_info"].as_str().unwrap(), &[]);
    let held = tokio::spawn(async move { poll::post(&to, path, &ask).await.unwrap() });
    eventually("the poll waits", || async { relay.get("/clients").await.1.contains("\"one\"") }).await;
    // For the first poll, the resource was new.
    until_fanout(&mut spans).await;
    save("2s");
    let (status, second) = held.await.unwrap();
    assert_eq!((status, &second["resources"][0]["connect_timeout"]), (200, &"2s".into()), "{second}");
    let trace = until_fanout(&mut spans).await;
    let names: Vec<_> = trace.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["xds.change", "xds.decode", "xds.apply", "xds.encode", "xds.fanout"]);
    let [decode, apply, encode] = [1, 2, 3].map(|n| &trace[n]);
    assert!(decode.end_time_unix_nano > decode.start_time_unix_nano, "{decode:?}");
    // The relay's own clock has microseconds.
    let micros = |nanos: u64| nanos / 1000;
    assert_eq!(trace[0].start_time_unix_nano, decode.start_time_unix_nano);
    assert!(micros(decode.start_time_unix_nano) < micros(apply.start_time_unix_nano), "{decode:?} {apply:?}");
    assert!(
        micros(decode.end_time_unix_nano) <= micros(apply.start_time_unix_nano) + 1,
        "{decode:?} {apply:?}"
    );
    assert!(micros(encode.start_time_unix_nano) >= micros(apply.end_time_unix_nano), "{apply:?} {encode:?}");
    assert!(number(encode, "sluice.bytes") > 100, "{encode:?}");
}

/// Three updates while the client owes an ACK: it gets the last in place of all.
#[tokio::test]
async fn obs_3_a_client_that_stalled_for_three_updates_has_one_delivery_with_two_links() {
    let (address, mut spans) = collector().await;
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    let traces = format!("traces: {{ endpoint: 'http://{address}', slow: 0s, per_second: 1000 }}");
    let relay = Relay::start(Setup::of(origin.address).line(&traces)).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["*"]);
    // The answer of before the changes is not ACKed yet.
    let owed = client.next(CDS).await;
    for (version, count) in [("2", 2), ("3", 3), ("4", 4)] {
        origin.set(CDS, "a", version);
        let is_published = || async { relay.get("/changes").await.1.contains(&format!("-{count}\"")) };
        eventually("the change is published", is_published).await;
    }
    client.ack(&owed);
    client.take(CDS).await;
    let (mut last, mut delivered, mut to_all) = (None, Vec::new(), 0);
    while delivered.is_empty() {
        let span = spans.recv().await.unwrap();
        let is_of_last = last.as_ref().is_some_and(|last: &Span| last.trace_id == span.trace_id);
        match &*span.name {
            "xds.change" if attribute(&span, "sluice.change").ends_with("-4") => last = Some(span),
            "xds.fanout" if is_of_last => to_all = span.links.len(),
            "xds.deliver" if is_of_last => delivered.push(span),
            _ => {}
        }
    }
    assert_eq!(to_all, 2, "no client had the earlier changes by themselves");
    let links: Vec<_> = delivered[0].links.iter().map(|link| link.attributes[0].value.clone()).collect();
    let links: Vec<_> = links.iter().map(|value| format!("{value:?}")).collect();
    assert_eq!(links.len(), 2, "{links:?}");
    assert!(links[0].contains("-3\"") && links[1].contains("-2\""), "{links:?}");
}

/// Another client had each change: none is part of the last one's way to all. Only the rejected change has a trace.
#[tokio::test]
async fn obs_3_a_change_that_another_client_had_is_linked_from_the_delivery_alone() {
    let (address, mut spans) = collector().await;
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    let traces = format!("traces: {{ endpoint: 'http://{address}', slow: 60s, per_second: 0 }}");
    let relay = Relay::start(Setup::of(origin.address).line(&traces)).await;
    let mut prompt = Client::open(&relay.address, Variant::Delta, "prompt").await;
    prompt.want(CDS, &["*"]);
    prompt.take(CDS).await;
    let mut stalls = Client::open(&relay.address, Variant::Delta, "stalls").await;
    stalls.want(CDS, &["*"]);
    let owed = stalls.next(CDS).await;
    for version in ["2", "3", "4"] {
        origin.set(CDS, "a", version);
        prompt.settle(CDS, &[("a", version)]).await;
    }
    stalls.ack(&owed);
    let last = stalls.next(CDS).await;
    stalls.nack(&last, "no");
    let mut trace = Vec::new();
    while !trace.iter().any(|span: &Span| !span.links.is_empty()) {
        trace.push(spans.recv().await.unwrap());
    }
    assert!(attribute(&trace[0], "sluice.change").ends_with("-4"), "{:?}", trace[0]);
    let linked = trace.pop().unwrap();
    assert_eq!((&*linked.name, linked.status.unwrap().message.as_str()), ("xds.deliver", "no"));
    assert_eq!(linked.links.len(), 2, "{:?}", linked.links);
    assert!(linked.links.iter().all(|link| link.flags & 1 == 0), "they have no trace: {:?}", linked.links);
}

/// A verdict on the latest response covers the earlier ones, and stands in place of their changes.
#[tokio::test]
async fn obs_3_a_verdict_on_the_latest_response_is_linked_to_the_changes_of_the_earlier() {
    let (address, mut spans) = collector().await;
    let origin = ControlPlane::obedient().await;
    origin.set_many(CDS, &[("a", "1"), ("b", "1")]);
    let traces = format!("traces: {{ endpoint: 'http://{address}', slow: 60s, per_second: 0 }}");
    let relay = Relay::start(Setup::of(origin.address).line(&traces)).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["a"]);
    client.take(CDS).await;
    origin.set(CDS, "a", "2");
    let earlier = client.next(CDS).await;
    assert_eq!(earlier.names(), ["a"]);
    client.want(CDS, &["a", "b"]);
    let latest = client.next(CDS).await;
    assert_eq!(latest.names(), ["b"]);
    client.nack(&latest, "no");
    let mut trace = Vec::new();
    while !trace.iter().any(|span: &Span| span.name == "xds.deliver") {
        trace.push(spans.recv().await.unwrap());
    }
    let delivered = trace.pop().unwrap();
    assert_eq!(delivered.status.unwrap().message, "no");
    assert_eq!(delivered.links.len(), 1, "{:?}", delivered.links);
    let link = format!("{:?}", delivered.links[0].attributes);
    let change = attribute(&trace[0], "sluice.change");
    let number = |text: &str| text.rsplit('-').next().unwrap().parse::<u32>().unwrap();
    assert!(link.contains(&format!("-{}\"", number(&change) - 1)), "{change} {link}");
}

/// The sources of a subscription count their changes apart, and a response may bring a change of each.
#[tokio::test]
async fn obs_3_a_link_stays_within_its_source() {
    let (address, mut spans) = collector().await;
    let (origin, other) = (ControlPlane::obedient().await, ControlPlane::obedient().await);
    let far = "xdstp://b.example/envoy.config.cluster.v3.Cluster/far";
    origin.set(CDS, "near", "1");
    other.set(CDS, far, "1");
    let server =
        format!("server_uri: {:?}, channel_creds: [ {{ type: insecure }} ]", other.address.to_string());
    let lines = format!(
        "traces: {{ endpoint: 'http://{address}', slow: 60s, per_second: 0 }}\n\
         authorities: {{ b.example: {{ xds_servers: [ {{ {server}, api_type: DELTA_GRPC }} ] }} }}"
    );
    let relay = Relay::start(Setup::of(origin.address).line(&lines)).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["near", far]);
    client.settle(CDS, &[("near", "1"), (far, "1")]).await;
    for version in ["2", "3", "4", "5"] {
        other.set(CDS, far, version);
        client.settle(CDS, &[("near", "1"), (far, version)]).await;
    }
    origin.set(CDS, "near", "2");
    let owed = client.next(CDS).await;
    for (version, count) in [("3", 3), ("4", 4), ("5", 5)] {
        origin.set(CDS, "near", version);
        let is_published = || async { has_change(&relay, &origin, count).await };
        eventually("the change is published", is_published).await;
    }
    other.set(CDS, far, "6");
    eventually("the change is published", || async { has_change(&relay, &other, 6).await }).await;
    client.ack(&owed);
    let last = client.next(CDS).await;
    client.nack(&last, "no");
    let mut links = std::collections::BTreeMap::new();
    let mut server = String::new();
    while links.len() < 2 {
        let span = spans.recv().await.unwrap();
        match &*span.name {
            "xds.change" => server = attribute(&span, "sluice.server"),
            "xds.deliver" => drop(links.insert(server.clone(), span.links.len())),
            _ => {}
        }
    }
    let expected = [(origin.address.to_string(), 2), (other.address.to_string(), 0)];
    assert_eq!(links, expected.into());
}

/// Whether the relay has published this many changes of the server's source.
async fn has_change(relay: &Relay, server: &ControlPlane, count: usize) -> bool {
    let changes = relay.json("/changes").await["changes"].as_array().unwrap().clone();
    let address = server.address.to_string();
    let of_server = |change: &&serde_json::Value| change["server"] == *address;
    let ends = |change: &serde_json::Value| change["id"].as_str().unwrap().ends_with(&format!("-{count}"));
    changes.iter().filter(of_server).any(ends)
}

/// OBS-5: the acts of the relay as a whole have traces, whatever the sampling.
#[tokio::test]
async fn obs_5_a_reload_a_drain_and_a_checkpoint_have_traces() {
    let (address, mut spans) = collector().await;
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    let lines = format!(
        "traces: {{ endpoint: 'http://{address}', slow: 60s, per_second: 0 }}\n\
         checkpoint: {{ directory: checkpoint, interval: 1s }}"
    );
    let mut relay = Relay::start(Setup::of(origin.address).line(&lines)).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["*"]);
    client.take(CDS).await;
    let written = of_act(&mut spans, "sluice.checkpoint").await;
    assert_eq!(written.status.clone().unwrap_or_default().code, 0, "{written:?}");
    let config = relay.path("sluice.yaml");
    let good = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{good}\nteapot: 1\n")).unwrap();
    relay.post("/reload").await;
    let refused = of_act(&mut spans, "sluice.reload").await;
    assert_eq!(
        (refused.status.clone().unwrap().code, attribute(&refused, "sluice.outcome")),
        (2, "invalid".into())
    );
    assert!(refused.status.unwrap().message.contains("teapot"));
    let id: String = refused.trace_id.iter().map(|byte| format!("{byte:02x}")).collect();
    relay.logged(&id).await;
    for (place, text) in [("the log", relay.log()), ("the events", relay.get("/events?kind=reload").await.1)]
    {
        assert!(
            text.lines().any(|line| line.contains(&id) && line.contains("generation")),
            "{place}: {text}"
        );
    }
    relay.post("/drain?over=1s").await;
    let drained = of_act(&mut spans, "sluice.drain").await;
    assert_eq!(attribute(&drained, "sluice.trigger"), "request");
    relay.sigterm();
    let ended = of_act(&mut spans, "sluice.drain").await;
    assert_eq!(attribute(&ended, "sluice.trigger"), "end of the process");
    relay.exit().await;
}

async fn of_act(spans: &mut mpsc::UnboundedReceiver<Span>, name: &str) -> Span {
    loop {
        let span = spans.recv().await.unwrap();
        if span.name == name {
            return span;
        }
    }
}
