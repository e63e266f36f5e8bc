//! Polls of a scripted REST server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sluice::client::{
    CallMetadata, ClientSettings, Credentials, GrpcAddress, InitialMetadata, MetadataValue, PollHandle,
    RestServer, ServerChannel, StreamEvent,
};
use sluice::telemetry::metrics::{ClientMetrics, TlsMetrics};
use sluice::trust::client::Protocol;
use sluice_xds::{SotwRequest, TypeUrl};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::peer::{settings, soon};

const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

struct Peer {
    listener: TcpListener,
    server: RestServer,
    metrics: Arc<ClientMetrics>,
}

impl Peer {
    async fn start(settings: ClientSettings) -> Peer {
        Peer::with(Credentials::default(), settings).await
    }

    async fn with(credentials: Credentials, settings: ClientSettings) -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let metrics = Arc::new(ClientMetrics::default());
        let address = GrpcAddress::Tcp { host: "127.0.0.1".to_owned(), port };
        let tls = TlsMetrics::default();
        let channel =
            ServerChannel::open(address, credentials, Protocol::Http1, "xds_servers[0]", &tls).unwrap();
        let server = RestServer::with_channel(channel, "/some/prefix", settings, metrics.clone());
        Peer { listener, server, metrics }
    }

    async fn accept(&self) -> TcpStream {
        soon(self.listener.accept()).await.unwrap().0
    }

    fn poll(&self, version: &str) -> Poll {
        let (sender, events) = mpsc::channel(4);
        let type_url = TypeUrl::new(CLUSTER);
        let mut handle = self.server.open(&type_url, None, sender).unwrap();
        let request = SotwRequest {
            version_info: version.to_owned(),
            resource_names: vec!["a".into()],
            type_url: CLUSTER.to_owned(),
            ..SotwRequest::default()
        };
        handle.send(request, Bytes::from_static(br#"{"id":"n"}"#));
        Poll { _handle: handle, events }
    }

    /// The reports of a poll whose response is these bytes, followed by the end of the connection.
    async fn answered(&self, version: &str, response: &str) -> Vec<String> {
        let mut poll = self.poll(version);
        let mut socket = self.accept().await;
        read_request(&mut socket).await;
        socket.write_all(response.as_bytes()).await.unwrap();
        drop(socket);
        poll.reports().await
    }
}

struct Poll {
    _handle: PollHandle,
    events: mpsc::Receiver<StreamEvent>,
}

impl Poll {
    /// All reports except `Opened`.
    async fn reports(&mut self) -> Vec<String> {
        let mut reports = Vec::new();
        while let Some(event) = soon(self.events.recv()).await {
            match event {
                StreamEvent::Opened => {}
                StreamEvent::Response(response, _) => {
                    let sluice_xds::Response::Sotw(response) = *response else { panic!("{response:?}") };
                    let names: Vec<_> =
                        response.resources.iter().map(|r| r.as_ref().unwrap().name.as_str()).collect();
                    reports.push(format!("{} {}", response.version_info, names.join(" ")));
                }
                StreamEvent::Closed(status) => reports.push(format!("closed {status}")),
                StreamEvent::Ended(status) => reports.push(format!("refused {status}")),
                StreamEvent::ConnectFailed(status) => reports.push(format!("unconnected {status}")),
                StreamEvent::Undecodable(_) => reports.push("undecodable".to_owned()),
                event => reports.push(format!("{event:?}")),
            }
        }
        reports
    }
}

/// Head and body of a request.
async fn read_request(socket: &mut TcpStream) -> (String, serde_json::Value) {
    let mut bytes = Vec::new();
    loop {
        assert_ne!(soon(socket.read_buf(&mut bytes)).await.unwrap(), 0, "the request ended early");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && let Ok(body) = serde_json::from_str(body)
        {
            return (head.to_ascii_lowercase(), body);
        }
    }
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn clusters(version: &str) -> String {
    format!(r#"{{"version_info": "{version}", "resources": [{{"@type": "{CLUSTER}", "name": "a"}}]}}"#)
}

#[tokio::test]
async fn rst_1_rst_6_a_poll_from_its_head_to_its_end_and_the_next_on_the_same_connection() {
    let peer = Peer::start(settings()).await;
    let mut first = peer.poll("");
    let mut socket = peer.accept().await;
    let (head, body) = read_request(&mut socket).await;
    assert!(head.starts_with("post /some/prefix/v3/discovery:clusters http/1.1\r\n"), "{head}");
    assert!(head.contains("\r\ncontent-type: application/json"), "{head}");
    assert!(head.contains("\r\nuser-agent: sluice/"), "{head}");
    assert!(head.contains("\r\nhost: 127.0.0.1:"), "{head}");
    let expected = serde_json::json!({"node": {"id": "n"}, "resource_names": ["a"], "type_url": CLUSTER});
    assert_eq!(body, expected);
    socket.write_all(ok(&clusters("v1")).as_bytes()).await.unwrap();
    assert_eq!(first.reports().await, ["v1 a", "closed OK"]);

    let mut second = peer.poll("v1");
    let (_, body) = read_request(&mut socket).await;
    assert_eq!((&body["version_info"], &body["node"]["id"]), (&"v1".into(), &"n".into()));
    socket.write_all(b"HTTP/1.1 304 Not Modified\r\n\r\n").await.unwrap();
    assert_eq!(second.reports().await, ["Unchanged", "closed OK"]);
    assert_eq!((peer.metrics.connects.get(), peer.metrics.connections.get()), (1, 1));
    drop(socket);
}

#[tokio::test]
async fn rst_4_rst_11_whatever_is_not_a_good_answer_is_a_failure() {
    let peer = Peer::start(ClientSettings { max_response_bytes: 1000, ..settings() }).await;
    let unknown = clusters("v1").replace("config.cluster.v3.Cluster", "acme.T");
    let other = r#"{"type_url": "type.googleapis.com/envoy.config.listener.v3.Listener"}"#;
    let cases = [
        (
            "v1",
            "HTTP/1.1 503 Busy\r\ncontent-length: 9\r\n\r\ntry later".to_owned(),
            "UNAVAILABLE",
            "try later",
        ),
        ("v1", "HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n".to_owned(), "UNIMPLEMENTED", "404"),
        (
            "v1",
            "HTTP/1.1 302 There\r\nlocation: /a\r\ncontent-length: 0\r\n\r\n".to_owned(),
            "UNKNOWN",
            "302",
        ),
        ("", "HTTP/1.1 304 Not Modified\r\n\r\n".to_owned(), "INTERNAL", "without a version"),
        ("v1", "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_owned(), "UNAVAILABLE", ""),
        ("v1", "no HTTP at all\r\n\r\n".to_owned(), "UNAVAILABLE", ""),
        ("v1", String::new(), "UNAVAILABLE", ""),
        ("v1", ok(""), "INTERNAL", "EOF"),
        ("v1", ok("\u{1}"), "INTERNAL", "not JSON: expected value at line 1"),
        ("v1", ok(&clusters("v1")).replace("OK", "OK\r\ncontent-encoding: gzip"), "INTERNAL", "gzip"),
        ("v1", ok(&unknown), "INTERNAL", "unknown type \"type.googleapis.com/envoy.acme.T\""),
        ("v1", ok(other), "INTERNAL", "but the request was for"),
        ("v1", ok(&clusters(&"v".repeat(1000))), "RESOURCE_EXHAUSTED", "1000"),
    ];
    for (version, response, code, text) in cases {
        let reports = peer.answered(version, &response).await;
        let last = reports.last().unwrap();
        let is_refusal = response.starts_with("HTTP/1.1 ") && !response.starts_with("HTTP/1.1 200");
        let end = format!("{} {code}", if is_refusal { "refused" } else { "closed" });
        assert!(last.starts_with(&end) && last.contains(text), "{response:?}: {reports:?}");
        assert!(!reports.iter().any(|line| line == "Unchanged"), "{response:?}: {reports:?}");
        let is_undecodable = reports.iter().any(|line| line == "undecodable");
        let is_answered = response.starts_with("HTTP/1.1 200") && code != "UNAVAILABLE";
        assert_eq!(is_undecodable, is_answered, "{response:?}: {reports:?}");
    }
    assert_eq!(peer.metrics.undecodable.get(), 6);
    assert_eq!(peer.metrics.connect_failures.get(), 0);
}

#[tokio::test]
async fn a_server_that_says_nothing_or_stops_is_given_up() {
    let brief = Duration::from_millis(100);
    let peer =
        Peer::start(ClientSettings { request_timeout: brief, connect_timeout: brief, ..settings() }).await;
    for begun in ["", "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"] {
        let mut poll = peer.poll("");
        let mut socket = peer.accept().await;
        read_request(&mut socket).await;
        socket.write_all(begun.as_bytes()).await.unwrap();
        let reports = poll.reports().await;
        assert!(reports.last().unwrap().starts_with("closed DEADLINE_EXCEEDED"), "{reports:?}");
        // The connection is not used again.
        assert_eq!(soon(socket.read(&mut [0; 1])).await.unwrap_or(0), 0);
    }
}

#[tokio::test]
async fn cli_1_a_server_that_is_not_there_is_named() {
    let peer = Peer::start(settings()).await;
    let port = peer.listener.local_addr().unwrap().port();
    drop(peer.listener);
    let (sender, events) = mpsc::channel(4);
    let mut handle = peer.server.open(&TypeUrl::new(CLUSTER), None, sender).unwrap();
    handle.send(SotwRequest::default(), Bytes::from_static(b"{}"));
    let reports = Poll { _handle: handle, events }.reports().await;
    let last = reports.last().unwrap();
    assert!(last.starts_with("closed UNAVAILABLE") && last.contains(&port.to_string()), "{reports:?}");
    assert_eq!(peer.metrics.connect_failures.get(), 1);
}

#[tokio::test]
async fn rpc_9_types_without_a_rest_path_are_not_polled() {
    let peer = Peer::start(settings()).await;
    for message in ["envoy.config.route.v3.VirtualHost", "envoy.config.endpoint.v3.LbEndpoint", "acme.T"] {
        let (sender, _events) = mpsc::channel(4);
        assert!(peer.server.open(&TypeUrl::of_message(message), None, sender).is_none(), "{message}");
    }
}

#[tokio::test]
async fn idn_12_each_poll_has_the_metadata_of_the_relay() {
    let value = MetadataValue::text("secret").unwrap();
    let initial = vec![InitialMetadata { key: "x-token".parse().unwrap(), value }];
    let calls = CallMetadata { token_file: None, initial };
    let peer = Peer::with(Credentials { tls: None, calls }, settings()).await;
    let _poll = peer.poll("");
    let (head, _) = read_request(&mut peer.accept().await).await;
    assert!(head.contains("\r\nx-token: secret"), "{head}");
}

/// The connection of a cancelled poll is closed. Otherwise the late answer would be read as the answer to the
/// next poll.
#[tokio::test]
async fn a_poll_that_is_dropped_is_over() {
    let peer = Peer::start(settings()).await;
    let poll = peer.poll("v1");
    let mut socket = peer.accept().await;
    read_request(&mut socket).await;
    drop(poll);
    assert_eq!(soon(socket.read(&mut [0; 1])).await.unwrap_or(0), 0);
    let mut next = peer.poll("");
    let mut socket = peer.accept().await;
    read_request(&mut socket).await;
    socket.write_all(ok(&clusters("v2")).as_bytes()).await.unwrap();
    assert_eq!(next.reports().await, ["v2 a", "closed OK"]);
}
