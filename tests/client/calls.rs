//! Call metadata: the relay's token, and constant entries.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use h2::server::Builder;
use sluice::client::{
    CallMetadata, Credentials, GrpcAddress, InitialMetadata, MetadataValue, Pool, ServerChannel, StreamEvent,
};
use sluice::telemetry::metrics::{ClientMetrics, TlsMetrics};
use sluice::telemetry::wall_now;
use sluice::trust::client::Protocol;
use sluice_xds::Code;

use crate::peer::*;

/// A token that expires after this many seconds.
fn token(name: &str, seconds: u64) -> String {
    let now = wall_now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    format!("{name}.{}.c2ln", URL_SAFE_NO_PAD.encode(format!("{{\"exp\":{}}}", now + seconds)))
}

fn pool_with(port: u16, calls: CallMetadata) -> Pool {
    let address = GrpcAddress::Tcp { host: "127.0.0.1".to_owned(), port };
    let credentials = Credentials { tls: None, calls };
    let channel =
        ServerChannel::open(address, credentials, Protocol::Http2, "xds_servers[0]", &TlsMetrics::default());
    Pool::with_channel(channel.unwrap(), settings(), Arc::new(ClientMetrics::default()))
}

fn token_file(path: &Path) -> CallMetadata {
    CallMetadata { token_file: Some(path.to_owned()), initial: Vec::new() }
}

fn entry(key: &str, value: MetadataValue) -> InitialMetadata {
    InitialMetadata { key: key.parse().unwrap(), value }
}

#[tokio::test]
async fn idn_9_each_stream_has_the_token_of_its_moment() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    // Within its last minute, a token is read anew for each stream.
    let (first, second) = (token("a", 55), token("b", 3600));
    std::fs::write(&path, &first).unwrap();
    let mut peer = Peer::start(Builder::new()).await;
    let pool = pool_with(peer.port, token_file(&path));
    let mut old = Client::open(&pool);
    old.opened().await;
    let mut old_stream = peer.stream().await;
    assert_eq!(old_stream.request.headers()["authorization"], format!("Bearer {first}"));
    std::fs::write(&path, &second).unwrap();
    Client::open(&pool).opened().await;
    assert_eq!(peer.stream().await.request.headers()["authorization"], format!("Bearer {second}"));
    old_stream.headers().send_data(response("1"), false).unwrap();
    assert_eq!(old.event_text().await, "Response 1", "a new token ends no stream");
}

#[tokio::test]
async fn idn_9_no_call_leaves_without_its_token() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    let mut peer = Peer::start(Builder::new()).await;
    let pool = pool_with(peer.port, token_file(&path));
    let status = Client::open(&pool).closed().await;
    assert_eq!(status.code, Code::Unavailable, "{status}");
    assert!(status.message.contains(&path.display().to_string()), "{status}");
    std::fs::write(&path, "e30.e30.c2ln").unwrap();
    let refused = loop {
        // Until the backoff of the unreadable file is over.
        let status = Client::open(&pool).closed().await;
        if status.code != Code::Unavailable {
            break status;
        }
    };
    assert_eq!(refused.code, Code::Unauthenticated, "{refused}");
    assert!(refused.message.contains("no expiry"), "{refused}");
    assert!(peer.streams.try_recv().is_err(), "the server saw no call");
}

#[tokio::test]
async fn idn_12_constant_entries_are_sent_and_shown_nowhere() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("consul");
    std::fs::write(&path, "canary-of-a-file\n").unwrap();
    let initial = vec![
        entry("x-constant", MetadataValue::text("canary-of-a-text").unwrap()),
        entry("x-consul-token", MetadataValue::File(path.clone())),
    ];
    let calls = CallMetadata { token_file: None, initial };
    let mut peer = Peer::start(Builder::new()).await;
    let pool = pool_with(peer.port, calls.clone());
    Client::open(&pool).opened().await;
    let stream = peer.stream().await;
    assert_eq!(stream.request.headers()["x-constant"], "canary-of-a-text");
    assert_eq!(stream.request.headers()["x-consul-token"], "canary-of-a-file");
    for shown in [format!("{calls:?}"), format!("{pool:?}")] {
        assert!(shown.contains("x-consul-token") && !shown.contains("canary"), "{shown}");
    }
}

#[tokio::test]
async fn idn_9_a_failing_token_is_no_event_of_the_connection() {
    let peer = Peer::start(Builder::new()).await;
    let pool = pool_with(peer.port, token_file(Path::new("/nowhere/token")));
    let mut client = Client::open(&pool);
    let Some(StreamEvent::Closed(status)) = client.event().await else { panic!("not closed") };
    assert_eq!(status.code, Code::Unavailable);
    assert_eq!(pool.metrics().connect_failures.get(), 0);
}
