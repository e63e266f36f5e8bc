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

use crate::support::{CDS, Client, ControlPlane, Relay, Setup, Variant};

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

async fn collector() -> (SocketAddr, mpsc::UnboundedReceiver<Span>) {
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
    for _ in 0..4 {
        trace.push(spans.recv().await.unwrap());
    }
    let names: Vec<_> = trace.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["xds.change", "xds.apply", "xds.fanout", "xds.deliver"]);
    assert!(trace.iter().all(|span| span.trace_id == trace[0].trace_id));
    assert_eq!(trace[3].parent_span_id, trace[2].span_id);
    assert_eq!(trace[3].status.clone().unwrap().message, "no such extension: teapot 7");
    assert!(trace[3].end_time_unix_nano > trace[3].start_time_unix_nano);
    let scrape = relay.get("/metrics").await.1;
    assert!(scrape.contains("\nsluice_telemetry_spans_dropped_total 0\n"));
}
