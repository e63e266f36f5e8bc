//! The two ways to set the state of a judged server, tested without such a server: the calls that an adapter
//! receives.

use std::sync::{Arc, Mutex};

use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpListener;
use tonic_prost::ProstCodec;

use crate::support::adapter::{Adapter, Change, SetState, StateSet};
use crate::support::proto::Identifier;
use crate::support::{CDS, EDS, words};

fn set(type_url: &str, name: &str, text: &str) -> Change {
    let body = words::body(type_url, name, text);
    Change::Set { name: name.to_owned(), version: "1".to_owned(), body }
}

fn remove(type_url: &str, name: &str) -> Change {
    Change::Remove { type_url: type_url.to_owned(), name: name.to_owned() }
}

#[test]
fn a_process_writes_files() {
    use crate::support::proto::DiscoveryResponse;
    let directory = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/adapters/files.py");
    let spec = format!("exec:python3 '{script}' '{}' --settle 0", directory.path().display());
    let adapter = Adapter::start(&spec, "one");
    let file = directory.path().join("envoy.config.cluster.v3.Cluster.pb");
    let held = || DiscoveryResponse::decode(std::fs::read(&file).unwrap().as_slice()).unwrap();
    let empty = DiscoveryResponse { type_url: CDS.to_owned(), ..DiscoveryResponse::default() };
    assert_eq!(held(), empty);
    adapter.apply(vec![set(CDS, "a", "1"), set(CDS, "b", "1")]);
    let resources = vec![words::body(CDS, "a", "1"), words::body(CDS, "b", "1")];
    assert_eq!(held(), DiscoveryResponse { resources, ..empty.clone() });
    adapter.apply(vec![remove(CDS, "a"), set(CDS, "b", "2")]);
    assert_eq!(held().resources, [words::body(CDS, "b", "2")]);
    adapter.clear();
    assert_eq!(held(), empty);
}

/// The adapter's reply decides: an unknown operation skips the case, a refusal fails the case.
#[test]
fn a_process_may_decline() {
    let answers = r#"exec:for answer in '{"ok":true}' '{"unsupported":true,"error":"no secrets"}' '{"error":"full"}'; do
        read line; echo "$answer"; done"#;
    let adapter = Adapter::start(answers, "one");
    for reason in ["SKIPPED: the adapter cannot: no secrets", "full", "the adapter ended"] {
        let clear = std::panic::AssertUnwindSafe(|| adapter.clear());
        let panic = std::panic::catch_unwind(clear).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains(reason), "{text}");
    }
}

type Calls = Arc<Mutex<Vec<(String, SetState)>>>;

/// The adapter service: records every call, and accepts all.
async fn service(
    request: http::Request<hyper::body::Incoming>,
    calls: Calls,
) -> http::Response<tonic::body::Body> {
    let path = request.uri().path().to_owned();
    let request = request.map(tonic::body::Body::new);
    let sets = path.ends_with("/SetState");
    let keep = move |request: tonic::Request<SetState>| {
        calls.lock().unwrap().push((path.clone(), request.into_inner()));
    };
    if sets {
        let handler = tower::service_fn(move |request| {
            keep(request);
            async { Ok::<_, tonic::Status>(tonic::Response::new(StateSet { success: true })) }
        });
        tonic::server::Grpc::new(ProstCodec::<StateSet, SetState>::default()).unary(handler, request).await
    } else {
        let handler = tower::service_fn(move |request| {
            keep(request);
            let cleared = Identifier { identifier: "cleared".to_owned() };
            async { Ok::<_, tonic::Status>(tonic::Response::new(cleared)) }
        });
        tonic::server::Grpc::new(ProstCodec::<Identifier, SetState>::default()).unary(handler, request).await
    }
}

async fn serve(listener: TcpListener, calls: Calls) {
    while let Ok((socket, _)) = listener.accept().await {
        let calls = calls.clone();
        let service = hyper::service::service_fn(move |request| {
            let calls = calls.clone();
            async move { Ok::<_, std::convert::Infallible>(service(request, calls).await) }
        });
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        tokio::spawn(builder.serve_connection(TokioIo::new(socket), service));
    }
}

#[tokio::test]
async fn a_service_is_told_the_whole_state() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let spec = format!("grpc:{}", listener.local_addr().unwrap());
    let calls = Calls::default();
    tokio::spawn(serve(listener, calls.clone()));
    let run = move || {
        let adapter = Adapter::start(&spec, "test-id");
        adapter.clear();
        adapter.apply(vec![set(CDS, "a", "1"), set(EDS, "a", "1")]);
        adapter.apply(vec![remove(CDS, "a"), set(EDS, "b", "2")]);
    };
    tokio::task::spawn_blocking(run).await.unwrap();
    let calls = calls.lock().unwrap();
    let paths: Vec<&str> = calls.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["ClearState", "SetState", "SetState"].map(|m| format!("/adapter.Adapter/{m}")));
    assert!(calls.iter().all(|(_, state)| state.node == "test-id"));
    assert_eq!(calls[1].1.resources, [words::body(CDS, "a", "1"), words::body(EDS, "a", "1")]);
    assert_eq!(calls[2].1.resources, [words::body(EDS, "a", "1"), words::body(EDS, "b", "2")]);
    assert_ne!(calls[1].1.version, calls[2].1.version);
}
