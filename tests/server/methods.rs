//! From a path to a stream of the right kind.

use std::time::Duration;

use sluice::driver::api::downstream::WhenUnavailable;
use sluice::server::listener::Compression;
use sluice::server::{Listener, ListenerOptions, LoadReports, ServerLimits};
use sluice_xds::{ApiVersion, Code, Status, Variant};

use crate::kit::*;

const V2_CLUSTERS: &str = "/envoy.api.v2.ClusterDiscoveryService/DeltaClusters";
const FETCH: &str = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters";
const LOAD_REPORTS: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";

/// The header with the compression of a stream's messages.
async fn coding(client: &mut Client, headers: &[(&str, &str)]) -> Option<String> {
    let request = http::Request::post(format!("http://relay{SOTW}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let head = client.call(request.body(()).unwrap()).await.head().await;
    head.headers().get("grpc-encoding").map(|value| value.to_str().unwrap().to_owned())
}

/// A relay is known by the path of its calls; any other client gets nothing compressed unless the listener says so.
#[tokio::test]
async fn responses_are_compressed_for_relays_and_for_others_where_the_listener_says_so() {
    let listener = Listener::bind_tcp("main", "127.0.0.1:0".parse().unwrap()).unwrap();
    let (address, options) = (listener.address().unwrap(), listener.options());
    let server = start_on(ServerLimits::default(), vec![listener], address);
    let mut client = server.connect().await;
    let (relay, reads) = (("x-sluice-path", "leaf~1"), |list| ("grpc-accept-encoding", list));
    assert_eq!(coding(&mut client, &[relay, reads("gzip,zstd")]).await.as_deref(), Some("zstd"));
    assert_eq!(coding(&mut client, &[relay, reads("identity")]).await, None);
    assert_eq!(coding(&mut client, &[relay]).await, None);
    assert_eq!(coding(&mut client, &[reads("gzip,zstd")]).await, None);
    options.publish(ListenerOptions { compression: Compression::All, ..ListenerOptions::default() });
    assert_eq!(coding(&mut client, &[reads("identity, deflate, gzip")]).await.as_deref(), Some("gzip"));
    options.publish(ListenerOptions { compression: Compression::Off, ..ListenerOptions::default() });
    assert_eq!(coding(&mut client, &[relay, reads("zstd")]).await, None);
}

#[tokio::test]
async fn rpc_2_a_method_of_one_type_opens_a_stream_of_it() {
    let server = start(ServerLimits::default());
    let mut client = server.connect().await;
    for (index, (path, service, variant)) in [
        ("/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters", "CDS", Variant::Sotw),
        ("/envoy.service.route.v3.VirtualHostDiscoveryService/DeltaVirtualHosts", "VHDS", Variant::Delta),
        (SOTW, "ADS", Variant::Sotw),
    ]
    .into_iter()
    .enumerate()
    {
        let mut call = client.open(path).await;
        call.send_request("");
        let stream = server.relay.stream(index).await;
        assert_eq!((stream.kind.to_string().as_str(), stream.variant), (service, variant));
        assert!(!stream.kind.v2);
        stream.publish(b"", b"x");
        assert_eq!(call.message().await.unwrap()[..], *b"x");
    }
}

#[tokio::test]
async fn rpc_4_the_singular_of_scoped_routes_is_unimplemented() {
    let server = start(ServerLimits::default());
    let mut client = server.connect().await;
    let path = "/envoy.service.route.v3.ScopedRouteDiscoveryService/StreamScopedRoutes";
    let head = client.open(path).await.head().await;
    assert_eq!(status_of(head.headers()).0, "12");
    client.open("/envoy.service.route.v3.ScopedRoutesDiscoveryService/StreamScopedRoutes").await.head().await;
    assert_eq!(server.relay.opened(), 1);
}

#[tokio::test]
async fn typ_5_methods_of_v2_are_off_until_the_listener_turns_them_on() {
    let server = start(ServerLimits::default());
    let head = server.connect().await.open(V2_CLUSTERS).await.head().await;
    let (code, text) = status_of(head.headers());
    assert_eq!(code, "12");
    assert!(text.contains("v2:%20true"), "{text}");

    let options = ListenerOptions { v2: true, ..ListenerOptions::default() };
    let listener = Listener::bind_tcp("main", "127.0.0.1:0".parse().unwrap()).unwrap().with(options);
    let address = listener.address().unwrap();
    let server = start_on(ServerLimits::default(), vec![listener], address);
    server.connect().await.open(V2_CLUSTERS).await.head().await;
    let stream = server.relay.stream(0).await;
    assert_eq!((stream.kind.api, stream.kind.v2), (ApiVersion::V2, true));
}

/// One connection all along: each call reads the options of its listener.
#[tokio::test]
async fn rel_5_calls_follow_the_options_in_force() {
    let listener = Listener::bind_tcp("main", "127.0.0.1:0".parse().unwrap()).unwrap();
    let (address, options) = (listener.address().unwrap(), listener.options());
    let server = start_on(ServerLimits::default(), vec![listener], address);
    let mut client = server.connect().await;
    assert_eq!(status_of(client.open(V2_CLUSTERS).await.head().await.headers()).0, "12");
    client.open(SOTW).await.head().await;
    assert_eq!(server.relay.stream(0).await.peer.when_unavailable, WhenUnavailable::Hold);
    client.open(LOAD_REPORTS).await.head().await;

    options.publish(ListenerOptions {
        v2: true,
        rest_hold: Duration::from_millis(70),
        when_unavailable: WhenUnavailable::Fail,
        load_reports: Some(LoadReports::Refuse),
        ..ListenerOptions::default()
    });
    client.open(V2_CLUSTERS).await.head().await;
    let stream = server.relay.stream(1).await;
    assert!(stream.kind.v2 && stream.peer.when_unavailable == WhenUnavailable::Fail);
    assert_eq!(status_of(client.open(LOAD_REPORTS).await.head().await.headers()).0, "12");
    *server.relay.polls.answer.lock().unwrap() = Some(Err(Status::new(Code::Unavailable, "later")));
    let mut poll = client.open(FETCH).await;
    poll.send_request(CDS);
    poll.head().await;
    assert_eq!(server.relay.polls.asked.lock().unwrap()[0].2, Duration::from_millis(70));
}
