//! The memory of clients with load reports, counted in the size classes of the relay's allocator: everything
//! that such a stream adds, from the bytes of its socket to the rows of its class.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::Request;
use prost::Message;
use sluice_proto::load::{ClusterStats, LoadStatsRequest, UpstreamLocalityStats};
use sluice_proto::{DeltaDiscoveryRequest, Locality, Node};
use tikv_jemalloc_ctl::thread;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::servers::{self, Channels};
use super::settings::{relay_settings, server_limits};
use crate::config::{Config, Endpoint, GrpcServer, ServerKind, UpstreamServer};
use crate::driver::{LoadUse, Relay};
use crate::server::{Listener, Server};
use crate::telemetry::Metrics;
use sluice_wire::frame::framed;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const ADS: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const LRS: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";
const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const ALL: &str = "envoy.lrs.supports_send_all_clusters";

/// The clients that are counted, and those that report before: the first ones make the rows of the class.
const CLIENTS: usize = 100;
const BEFORE: usize = 10;
/// The reports of each client: some 14 KB of 100 clusters with three localities.
const REPORTS: usize = 4;

/// The most bytes of a client's stream at rest, in its client's first minutes.
const BYTES_MAX: i64 = 3_072;

/// A relay in a thread of its own, so that the counters of the thread are those of the relay.
struct CountedRelay {
    address: SocketAddr,
    metrics: Arc<Metrics>,
    counts: mpsc::UnboundedSender<oneshot::Sender<i64>>,
}

impl CountedRelay {
    async fn start() -> CountedRelay {
        let (counts, mut asked) = mpsc::unbounded_channel::<oneshot::Sender<i64>>();
        let (told, address) = oneshot::channel();
        let metrics = Arc::new(Metrics::new());
        let of_relay = metrics.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let nobody = Endpoint::Tcp { host: "127.0.0.1".into(), port: 1 };
                let kind = ServerKind::Grpc(GrpcServer::new(nobody));
                let server = UpstreamServer { server_uri: "nobody".into(), kind, load: Some(LoadUse::Local) };
                let config = Config::new("test", server);
                let lists =
                    servers::lists(&config.servers, 1 << 20, &of_relay, &Channels::default()).unwrap().0;
                let relay = Relay::new(relay_settings(&config, lists, Arc::default(), 1), of_relay.clone());
                let listener = Listener::bind_tcp("main", "127.0.0.1:0".parse().unwrap()).unwrap();
                told.send(listener.address().unwrap()).unwrap();
                let limits = server_limits(&config.limits.server, Duration::ZERO);
                let server = Server::new(Arc::new(relay), limits, of_relay.downstream.clone());
                tokio::spawn(server.serve(vec![listener], pending()));
                while let Some(asker) = asked.recv().await {
                    let allocated = thread::allocatedp::read().unwrap().get() as i64;
                    let _ = asker.send(allocated - thread::deallocatedp::read().unwrap().get() as i64);
                }
            });
        });
        CountedRelay { address: address.await.unwrap(), metrics, counts }
    }

    /// The bytes in use, once they stay the same.
    async fn bytes(&self) -> i64 {
        let mut before = None;
        loop {
            let (asker, answer) = oneshot::channel();
            self.counts.send(asker).unwrap();
            let now = answer.await.unwrap();
            if before.replace(now) == Some(now) {
                return now;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the relay has read so many reports.
    async fn has_read(&self, reports: usize) {
        let wait = async {
            while self.metrics.load.reports.get() < reports as u64 {
                sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(Duration::from_secs(60), wait).await.unwrap();
    }
}

/// A client with a stream of discovery, and one of load reports.
struct CountedClient {
    node: Node,
    send: SendRequest<Bytes>,
    _ads: (SendStream<Bytes>, RecvStream),
    reports: Option<SendStream<Bytes>>,
}

impl CountedClient {
    async fn connect(address: SocketAddr, number: usize, features: &[&str]) -> CountedClient {
        let socket = TcpStream::connect(address).await.unwrap();
        let (mut send, connection) = h2::client::handshake(socket).await.unwrap();
        tokio::spawn(connection);
        let locality = Locality { region: "region".into(), zone: "zone".into(), sub_zone: String::new() };
        let node = Node {
            id: format!("sidecar~10.0.0.{number}~app-{number}.default~default.svc.cluster.local"),
            cluster: "app.default".into(),
            locality: Some(locality),
            client_features: features.iter().map(|feature| (*feature).to_owned()).collect(),
            ..Node::default()
        };
        let type_url = CDS.to_owned();
        let request = DeltaDiscoveryRequest { node: Some(node.clone()), type_url, ..Default::default() };
        let (mut requests, answers) = open(&mut send, ADS).await;
        requests.send_data(framed(&request.encode_to_vec()).unwrap(), false).unwrap();
        CountedClient { node, send, _ads: (requests, answers), reports: None }
    }

    /// Opens the stream of reports, and waits for the wish.
    async fn open_reports(&mut self) {
        let (mut requests, mut answers) = open(&mut self.send, LRS).await;
        let first = LoadStatsRequest { node: Some(self.node.clone()), ..Default::default() };
        requests.send_data(framed(&first.encode_to_vec()).unwrap(), false).unwrap();
        answers.data().await.unwrap().unwrap();
        // The wish was the last word, as long as nothing changes.
        tokio::spawn(async move { while let Some(Ok(_)) = answers.data().await {} });
        self.reports = Some(requests);
    }
}

async fn open(send: &mut SendRequest<Bytes>, path: &str) -> (SendStream<Bytes>, RecvStream) {
    let request = Request::post(format!("http://relay{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    let (response, requests) = send.send_request(request.body(()).unwrap(), false).unwrap();
    (requests, response.await.unwrap().into_body())
}

fn report() -> Bytes {
    let row = |zone: usize| UpstreamLocalityStats {
        locality: Some(Locality {
            region: "region".into(),
            zone: format!("zone-{zone}"),
            sub_zone: String::new(),
        }),
        total_successful_requests: 3,
        total_requests_in_progress: 1 + zone as u64 % 2,
        total_issued_requests: 3,
        ..Default::default()
    };
    let stats = |cluster: usize| ClusterStats {
        cluster_name: format!("outbound|8080||service-{cluster}.default.svc.cluster.local"),
        upstream_locality_stats: (0..3).map(row).collect(),
        load_report_interval: Some(sluice_proto::Duration { seconds: 10, nanos: 0 }),
        ..Default::default()
    };
    let report = LoadStatsRequest { cluster_stats: (0..100).map(stats).collect(), ..Default::default() };
    framed(&report.encode_to_vec()).unwrap()
}

/// A client that understands "all clusters", as Envoy does, and one that is asked by names.
#[tokio::test]
async fn lrs_18_a_stream_of_load_reports_takes_little_memory() {
    for features in [&[ALL][..], &[]] {
        let relay = CountedRelay::start().await;
        let (report, mut read) = (report(), 0);
        let mut clients = Vec::new();
        for number in 0..BEFORE + CLIENTS {
            clients.push(CountedClient::connect(relay.address, number, features).await);
        }
        let mut bytes = Vec::new();
        for part in [0..BEFORE, BEFORE..BEFORE + CLIENTS] {
            let part = &mut clients[part];
            bytes.push(relay.bytes().await);
            for client in part.iter_mut() {
                client.open_reports().await;
            }
            read += part.len();
            bytes.push(relay.bytes().await);
            for _ in 0..REPORTS {
                for client in part.iter_mut() {
                    client.reports.as_mut().unwrap().send_data(report.clone(), false).unwrap();
                }
                read += part.len();
                relay.has_read(read).await;
            }
        }
        bytes.push(relay.bytes().await);
        let each: Vec<_> = bytes[2..].windows(2).map(|pair| (pair[1] - pair[0]) / CLIENTS as i64).collect();
        println!(
            "{features:?}: {each:?} bytes of each stream: opened, and with reports of {} bytes",
            report.len()
        );
        assert!(each.iter().sum::<i64>() <= BYTES_MAX, "{each:?} bytes with {features:?}");
    }
}
