//! The relay as a client of control planes without ADS: streams per type, and polls. `matrix.rs` checks the
//! state of the clients; these cases check the requests that the control plane receives.

use http::StatusCode;

use crate::bench::Bench;
use crate::support::control_plane::eventually;
use crate::support::{Attachment, CDS, EDS, FOUR, MARKER, Variant, is_full_state};

/// RPC-2: one stream per type and collection, each to the service of its type, each with the node.
#[tokio::test]
async fn rpc_2_str_2_each_type_has_a_stream_to_its_service() {
    for variant in Variant::BOTH {
        let Some(bench) = Bench::relay(Attachment::PerType(variant)).await else { return };
        for type_url in FOUR {
            bench.origin.set(type_url, "a", "1");
        }
        let mut one = bench.client(variant, "one").await;
        let mut two = bench.client(variant, "two").await;
        for type_url in FOUR {
            for client in [&mut one, &mut two] {
                client.want(type_url, if is_full_state(type_url) { &["*"] } else { &["a"] });
                client.settle(type_url, &[("a", "1")]).await;
            }
        }
        for type_url in FOUR {
            let requests = bench.origin.requests(type_url);
            assert!(
                requests.iter().all(|r| r.of_type == Some(type_url) && r.variant == variant),
                "{type_url}"
            );
            assert!(requests.iter().all(|r| r.stream == requests[0].stream), "{type_url}: one stream");
            let nodes = requests.iter().filter(|r| r.ask.node.is_some()).count();
            assert_eq!(
                (nodes, requests[0].ask.node.is_some()),
                (1, true),
                "STR-2 on the stream of {type_url}"
            );
        }
        assert_eq!(bench.origin.opened(), 4);
        // The wildcard and names of one type never share a stream (RLY-13).
        one.want(EDS, &["a", "*"]);
        bench.origin.wait_for("a second stream of EDS", |origin| origin.opened() == 5).await;
        assert_eq!(bench.warnings(), [] as [String; 0]);
    }
}

/// RLY-2, RLY-3: a type that the server has no service for gets no answer, and the operator reads of it in
/// the log. Other types are served.
#[tokio::test]
async fn rly_2_rpc_9_a_type_without_a_service_stays_unanswered() {
    for upstream in
        [Attachment::PerType(Variant::Sotw), Attachment::PerType(Variant::Delta), Attachment::Rest]
    {
        let Some(bench) = Bench::relay(upstream).await else { return };
        bench.origin.set(CDS, "a", "1");
        let mut client = bench.delta("one").await;
        client.want(MARKER, &["m"]);
        client.want(CDS, &["a"]);
        client.settle(CDS, &[("a", "1")]).await;
        bench.quiet(&mut client).await;
        let warnings = bench.warned_of("sluice.test.Marker").await;
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }
}

/// RLY-25, RLY-40: a missing service neither harms other types nor makes the server unreachable, and is
/// reported until the service exists.
#[tokio::test]
async fn rly_25_rly_40_a_type_without_a_service_leaves_the_others_alone() {
    for upstream in
        [Attachment::PerType(Variant::Sotw), Attachment::PerType(Variant::Delta), Attachment::Rest]
    {
        leaves_the_others_alone(upstream).await;
    }
}

async fn leaves_the_others_alone(upstream: Attachment) {
    let Some(bench) = Bench::relay(upstream).await else { return };
    bench.origin.refuse_type(Some(EDS));
    bench.origin.set(EDS, "a", "1");
    bench.origin.set(CDS, "a", "1");
    let mut client = bench.delta("one").await;
    client.want(CDS, &["*"]);
    client.settle(CDS, &[("a", "1")]).await;
    client.want(EDS, &["a"]);
    let shows = |state: &'static str, is_refused: bool| {
        let bench = &bench;
        move || async move {
            let sources = bench.process().get("/sources").await.1;
            let sources: serde_json::Value = serde_json::from_str(&sources).expect("JSON");
            let source = &sources["sources"][0];
            let types = source["types"].as_array().cloned().unwrap_or_default();
            let refused = types.iter().any(|of| of["refused"]["how"] == "not_served");
            source["state"] == state && source["stale_seconds"].is_null() && refused == is_refused
        }
    };
    eventually("connected, and not served", shows("connected", true)).await;
    bench.origin.set(CDS, "a", "2");
    client.settle(CDS, &[("a", "2")]).await;
    eventually("still not served", shows("connected", true)).await;
    let warnings = bench.warned_of("does not serve a type").await;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    bench.origin.refuse_type(None);
    client.settle(EDS, &[("a", "1")]).await;
    eventually("all is well", shows("connected", false)).await;
}

/// RST-6, RST-10: every poll carries the node and the last accepted version, and each type has one
/// outstanding poll.
#[tokio::test]
async fn rst_6_rst_10_polls_carry_the_node_and_the_last_version() {
    let Some(bench) = Bench::relay(Attachment::Rest).await else { return };
    bench.origin.set_many(EDS, &[("a", "1"), ("b", "1")]);
    let mut client = bench.delta("one").await;
    client.want(EDS, &["a"]);
    client.settle(EDS, &[("a", "1")]).await;
    let first = bench.origin.expect(EDS).await.ask;
    assert_eq!((first.version.as_str(), &first.names[..]), ("", &["a".to_owned()][..]));
    let next = bench.origin.expect_that(EDS, |ask| !ask.version.is_empty()).await.ask;
    assert!(next.version.starts_with("of a="), "{next:?}");
    // A server may look at the version alone, so a poll with more names carries no version.
    client.want(EDS, &["a", "b"]);
    client.settle(EDS, &[("a", "1"), ("b", "1")]).await;
    let grown = bench.origin.expect_that(EDS, |ask| ask.names.len() == 2).await.ask;
    assert_eq!(grown.version, "");
    bench.origin.set(EDS, "b", "2");
    client.settle(EDS, &[("a", "1"), ("b", "2")]).await;
    // 304 means no change, and so do equal bytes under another version (RLY-36).
    bench.origin.change(|world| world.restart());
    bench.quiet(&mut client).await;
    for recorded in bench.origin.requests(EDS) {
        let node = recorded.ask.node.expect("RST-6");
        assert!(node.id.starts_with("sluice-test/"), "RLY-15: {node:?}");
        assert!(node.client_features.contains(&"xds.config.resource-in-sotw".to_owned()), "RLY-22");
        assert_eq!((recorded.ask.nonce.as_str(), recorded.ask.error), ("", None), "RST-7, RST-8");
    }
    let (status, metrics) = bench.process().get("/metrics").await;
    assert_eq!(status, 200);
    assert!(metrics.contains("sluice_upstream_connected{server=") && !metrics.contains("sources_stale{} 1"));
}

/// RST-12, RLY-27: a name missing from a 200 is absent, whatever its type; a name that never existed is
/// reported as absent at once, without a timer.
#[tokio::test]
async fn rst_12_rly_27_what_a_response_lacks_is_absent() {
    let Some(bench) = Bench::relay(Attachment::Rest).await else { return };
    bench.origin.set(EDS, "a", "1");
    let mut client = bench.delta("one").await;
    client.want(EDS, &["a", "never"]);
    let mut answer = client.take(EDS).await;
    if answer.removed.is_empty() {
        answer = client.take(EDS).await;
    }
    assert_eq!(answer.removed, ["never"]);
    bench.origin.remove(EDS, "a");
    assert_eq!(client.take(EDS).await.removed, ["a"]);
}

/// RST-11, CLI-1, and FIL-7 likewise: an unreadable response or a refusal leaves the served state alone, is
/// reported with its reason, and is over after a good response.
#[tokio::test]
async fn rst_11_cli_1_a_bad_answer_takes_nothing_away() {
    let Some(bench) = Bench::relay(Attachment::Rest).await else { return };
    bench.origin.set_many(CDS, &[("a", "1"), ("b", "1")]);
    let mut client = bench.sotw("one").await;
    client.want(CDS, &["*"]);
    client.settle(CDS, &[("a", "1"), ("b", "1")]).await;
    let unknown = format!(r#"{{"version_info": "9", "resources": [{{"@type": "{MARKER}", "name": "a"}}]}}"#);
    for (status, body, reason) in [
        (StatusCode::OK, unknown.as_str(), "sluice.test.Marker"),
        (StatusCode::INTERNAL_SERVER_ERROR, "the dog ate it", "the dog ate it"),
    ] {
        bench.origin.refuse_polls(status, body);
        let polls = bench.origin.requests(CDS).len();
        bench.origin.wait_for("a refused poll", |origin| origin.requests(CDS).len() > polls).await;
        client.silence(std::time::Duration::from_millis(100)).await;
        let is_reported = || async { bench.process().get("/sources").await.1.contains(reason) };
        eventually("the reason in /sources", is_reported).await;
        // New clients are served from the cache.
        let mut last = bench.sotw("last").await;
        last.want(CDS, &["*"]);
        last.settle(CDS, &[("a", "1"), ("b", "1")]).await;
        bench.origin.answer_polls();
        let text = format!("after {reason}");
        bench.origin.set(CDS, "a", &text);
        client.settle(CDS, &[("a", &text), ("b", "1")]).await;
        bench.origin.set(CDS, "a", "1");
        client.settle(CDS, &[("a", "1"), ("b", "1")]).await;
    }
    bench.warned_of("ends the stream").await;
}
