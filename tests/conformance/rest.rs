//! Clients that poll by REST-JSON (RST-1 to RST-12, RLY-72), and `Fetch*`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bench::{Bench, pause};
use crate::support::client::{fetch, node};
use crate::support::poll::{answer, post, request};
use crate::support::proto::Any;
use crate::support::{Ask, CDS, EDS, LDS, MARKER, Setup, Variant, words};

const CLUSTERS: &str = "/v3/discovery:clusters";
const ENDPOINTS: &str = "/v3/discovery:endpoints";

fn names(names: &[&str]) -> Vec<String> {
    words::strings(names)
}

async fn poll(bench: &Bench, path: &str, version: &str, wanted: &[&str]) -> (u16, Value) {
    let body = request(Some(&node("poller")), version, &names(wanted));
    post(bench.target(), path, &body).await.expect("an answer")
}

fn texts(type_url: &str, response: &Value) -> Vec<(String, String)> {
    answer(type_url, response).texts()
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

/// The version that a response states.
fn version(response: &Value) -> String {
    response["version_info"].as_str().expect("version_info").to_owned()
}

#[tokio::test]
async fn rst_3_rst_4_rst_12_news_is_the_whole_set_and_no_news_is_304() {
    for upstream in Variant::BOTH {
        let Some(bench) = Bench::relay(upstream).await else { return };
        bench.origin.set_many(EDS, &[("a", "1"), ("b", "1")]);
        let (status, first) = poll(&bench, ENDPOINTS, "", &["a", "b"]).await;
        assert_eq!((status, texts(EDS, &first)), (200, pairs(&[("a", "1"), ("b", "1")])));
        assert_eq!(first["type_url"], EDS, "RPC-7");

        let (status, body) = poll(&bench, ENDPOINTS, &version(&first), &["b", "a"]).await;
        assert_eq!((status, body), (304, Value::Null));

        bench.origin.set(EDS, "a", "2");
        let (status, second) = poll(&bench, ENDPOINTS, &version(&first), &["a", "b"]).await;
        assert_eq!((status, texts(EDS, &second)), (200, pairs(&[("a", "2"), ("b", "1")])));

        // RST-8: a client that rejects a response polls on with the old version.
        let (status, again) = poll(&bench, ENDPOINTS, &version(&first), &["a", "b"]).await;
        assert_eq!((status, again), (200, second.clone()));
    }
}

#[tokio::test]
async fn rst_4_what_is_current_for_some_names_is_news_for_others() {
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    bench.origin.set(EDS, "a", "1");
    let (_, first) = poll(&bench, ENDPOINTS, "", &["a"]).await;
    // The other name does not exist, and the client must learn the absence.
    let (status, second) = poll(&bench, ENDPOINTS, &version(&first), &["a", "absent"]).await;
    assert_eq!((status, texts(EDS, &second)), (200, pairs(&[("a", "1")])));
    assert_eq!(poll(&bench, ENDPOINTS, &version(&second), &["a", "absent"]).await.0, 304);
}

#[tokio::test]
async fn rst_9_a_poll_waits_for_news() {
    let Some(bench) = Bench::with(|setup| Setup { listener: "rest_hold: 10s".to_owned(), ..setup }).await
    else {
        return;
    };
    bench.origin.set(CDS, "a", "1");
    let (_, first) = poll(&bench, CLUSTERS, "", &[]).await;
    let begin = Instant::now();
    let change = async {
        pause(300).await;
        bench.origin.set(CDS, "a", "2");
    };
    let version = version(&first);
    let ((status, second), ()) = tokio::join!(poll(&bench, CLUSTERS, &version, &[]), change);
    assert_eq!((status, texts(CDS, &second)), (200, pairs(&[("a", "2")])));
    assert!((Duration::from_millis(300)..Duration::from_secs(9)).contains(&begin.elapsed()));
}

#[tokio::test]
async fn rly_72_what_is_not_known_is_503_and_never_an_empty_set() {
    let slow = |setup: Setup| Setup { listener: "rest_hold: 200ms".to_owned(), ..setup };
    let Some(bench) = Bench::scripted(|setup| slow(setup).resource_timeout(30)).await else { return };
    let (status, body) = poll(&bench, CLUSTERS, "", &[]).await;
    assert_eq!(status, 503, "{body}");
    assert!(body["message"].as_str().is_some_and(|text| text.contains("not answered yet")), "{body}");

    // One name of two is known: the set is incomplete, so there is no answer (RST-12).
    let (status, _) = poll(&bench, ENDPOINTS, "", &["a", "b"]).await;
    assert_eq!(status, 503);
    let asked = bench.origin.expect(EDS).await;
    bench.origin.answer(&asked, "1", vec![words::Item::new(EDS, "a", "1", "1")], &[]);
    // The ACK proves the arrival.
    bench.origin.expect_that(EDS, |ask| !ask.nonce.is_empty()).await;
    let (status, _) = poll(&bench, ENDPOINTS, "", &["a", "b"]).await;
    assert_eq!(status, 503);
    let (status, alone) = poll(&bench, ENDPOINTS, "", &["a"]).await;
    assert_eq!((status, texts(EDS, &alone)), (200, pairs(&[("a", "1")])));
}

#[tokio::test]
async fn rly_72_polls_share_one_subscription_that_lingers() {
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    bench.origin.set(EDS, "a", "1");
    for id in ["one", "two", "one"] {
        let body = request(Some(&node(id)), "", &names(&["a"]));
        assert_eq!(post(bench.target(), ENDPOINTS, &body).await.unwrap().0, 200);
    }
    // The control plane received the name once for all polls.
    let mut witness = bench.delta("witness").await;
    witness.want(MARKER, &["m"]);
    witness.take(MARKER).await;
    let subscribed: Vec<Ask> = bench.origin.requests(EDS).into_iter().map(|recorded| recorded.ask).collect();
    assert_eq!(subscribed.iter().filter(|ask| !ask.subscribe.is_empty()).count(), 1, "{subscribed:?}");
    assert!(subscribed.iter().all(|ask| ask.unsubscribe.is_empty()), "{subscribed:?}");
}

#[tokio::test]
async fn rst_1_rst_2_envoys_whole_node_and_either_spelling_are_taken() {
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    bench.origin.set(CDS, "a", "1");
    let extension = json!({"name": "envoy.filters.http.router", "category": "envoy.filters.http",
        "type_urls": ["envoy.extensions.filters.http.router.v3.Router"], "version": {"metadata": {"x": 1}}});
    let node = json!({"id": "envoy", "cluster": "c", "metadata": {"role": "edge", "n": 1.5},
        "locality": {"region": "r", "zone": "z"}, "user_agent_name": "envoy",
        "user_agent_build_version": {"version": {"major_number": 1, "minor_number": 40, "patch": 0},
            "metadata": {"revision.status": "Clean"}},
        "client_features": ["envoy.lb.does_not_support_overprovisioning"],
        "extensions": vec![extension; 600]});
    let body = json!({"node": node, "resource_names": ["a"], "type_url": "wrong"});
    let (status, response) = post(bench.target(), CLUSTERS, &body).await.unwrap();
    assert_eq!((status, texts(CDS, &response)), (200, pairs(&[("a", "1")])));

    let camel = json!({"versionInfo": version(&response), "resourceNames": ["a"],
        "node": {"id": "other", "userAgentName": "envoy"}});
    assert_eq!(post(bench.target(), CLUSTERS, &camel).await.unwrap().0, 304);
}

#[tokio::test]
async fn rst_11_what_json_cannot_say_is_an_error_that_names_it() {
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    // Listener.metadata.typed_filter_metadata["k"] of an unknown type.
    let any = b"\x0a\x0ex/acme.Unknown";
    let entry = [b"\x0a\x01k\x12".as_slice(), &[any.len() as u8], any].concat();
    let metadata = [b"\x12".as_slice(), &[entry.len() as u8], &entry].concat();
    let value = [b"\x0a\x03odd\x32".as_slice(), &[metadata.len() as u8], &metadata].concat();
    bench.origin.set(LDS, "good", "1");
    bench.origin.change(|world| {
        world.set(LDS, "odd", Any { type_url: LDS.to_owned(), value }, true);
    });
    let (status, body) = poll(&bench, "/v3/discovery:listeners", "", &["good"]).await;
    assert_eq!((status, texts(LDS, &body)), (200, pairs(&[("good", "1")])));
    let (status, body) = poll(&bench, "/v3/discovery:listeners", "", &[]).await;
    assert_eq!(status, 501);
    let message = body["message"].as_str().unwrap_or_default();
    assert!(message.contains("acme.Unknown") && message.contains("odd"), "{message}");

    bench.origin.set("type.googleapis.com/envoy.api.v2.Cluster", "old", "1");
    let (status, body) = poll(&bench, "/v2/discovery:clusters", "", &["old"]).await;
    assert_eq!(status, 501, "{body}");
    assert!(body["message"].as_str().unwrap_or_default().contains("envoy.api.v2.Cluster"), "{body}");
}

#[tokio::test]
async fn rst_6_an_outage_of_the_control_plane_is_no_news() {
    let Some(mut bench) = Bench::relay(Variant::Delta).await else { return };
    bench.origin.set(CDS, "a", "1");
    let (_, first) = poll(&bench, CLUSTERS, "", &[]).await;
    bench.origin.down().await;
    assert_eq!(poll(&bench, CLUSTERS, &version(&first), &[]).await.0, 304);
    assert_eq!(poll(&bench, CLUSTERS, "", &[]).await, (200, first), "a newcomer is served from the cache");
    bench.origin.up().await;
}

#[tokio::test]
async fn rpc_2_fetch_gives_the_whole_set_at_once() {
    const FETCH: &str = "/envoy.service.endpoint.v3.EndpointDiscoveryService/FetchEndpoints";
    let slow = |setup: Setup| Setup { listener: "rest_hold: 3s".to_owned(), ..setup };
    let Some(bench) = Bench::with(slow).await else { return };
    bench.origin.set_many(EDS, &[("a", "1"), ("b", "1")]);
    let ask = |version: &str| {
        Ask { node: Some(node("fetcher")), ..Ask::default() }.names(&["a", "b"]).version(version)
    };
    let first = fetch(bench.target(), FETCH, ask("")).await.unwrap();
    first.assert_well_formed(Variant::Sotw);
    assert_eq!((first.type_url.as_str(), first.texts()), (EDS, pairs(&[("a", "1"), ("b", "1")])));

    // The protocol cannot express "unchanged": the set is sent again, at once.
    let begin = Instant::now();
    let again = fetch(bench.target(), FETCH, ask(&first.version)).await.unwrap();
    assert_eq!((again.texts(), again.version), (first.texts(), first.version));
    assert!(begin.elapsed() < Duration::from_secs(2));

    let status = fetch(bench.target(), FETCH, Ask { type_url: CDS.to_owned(), ..ask("") }).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument, "RPC-6");
}
