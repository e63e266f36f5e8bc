//! The memory of clients with load reports: everything that such a stream adds, from the bytes of its socket to the
//! rows of its class.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use prost::Message;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::{ADS, CountedRelay, open};
use crate::config::{Config, Endpoint, GrpcServer, ServerKind, UpstreamServer};
use crate::driver::LoadUse;
use sluice_proto::load::{ClusterStats, LoadStatsRequest, UpstreamLocalityStats};
use sluice_proto::{DeltaDiscoveryRequest, Locality, Node};
use sluice_wire::frame::framed;

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

/// The clients' server for load reports is the relay.
fn config() -> Config {
    let nobody = Endpoint::Tcp { host: "127.0.0.1".into(), port: 1 };
    let kind = ServerKind::Grpc(GrpcServer::new(nobody));
    Config::new("test", UpstreamServer { server_uri: "nobody".into(), kind, load: Some(LoadUse::Local) })
}

/// Waits until the relay has read so many reports.
async fn has_read(relay: &CountedRelay, reports: usize) {
    let wait = async {
        while relay.metrics.load.reports.get() < reports as u64 {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(Duration::from_secs(60), wait).await.unwrap();
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
        let relay = CountedRelay::start(config()).await;
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
                has_read(&relay, read).await;
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
