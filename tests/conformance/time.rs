//! Resources with a time to live, and clients without the features that a control plane uses (TTL, WIR, FEA).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::bench::{Bench, pause};
use crate::support::client::{connect, node};
use crate::support::{Answer, Ask, CDS, Client, EDS, Item, RDS, Variant};

const WRAPPER: &str = "xds.config.resource-in-sotw";
const TTL: &str = "xds.config.supports-resource-ttl";
const LEDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpointCollection";

/// An upstream whose messages come from the test.
async fn scripted(upstream: Variant) -> Option<Bench> {
    Bench::scripted(|setup| setup.upstream(upstream).resource_timeout(60)).await
}

/// `name` is a heartbeat; `name=text` has content.
fn timed(type_url: &str, version: &str, item: &str, ttl: Duration) -> Answer {
    let (name, text) = item.split_once('=').map_or((item, None), |(name, text)| (name, Some(text)));
    let mut item = Item::new(type_url, name, version, text.unwrap_or_default());
    item.body = item.body.filter(|_| text.is_some());
    Answer {
        type_url: type_url.to_owned(),
        version: version.to_owned(),
        items: vec![item],
        ttls: BTreeMap::from([(name.to_owned(), ttl)]),
        ..Answer::default()
    }
}

/// A client with the TTL feature gets the TTL and refreshes; when the upstream becomes silent, the resource
/// is removed.
#[tokio::test]
async fn ttl_1_ttl_4_ttl_5_rly_39_heartbeats_pass_and_end_with_those_of_the_upstream() {
    const LIFE: Duration = Duration::from_secs(3);
    for upstream in Variant::BOTH {
        for variant in Variant::BOTH {
            let Some(bench) = scripted(upstream).await else { return };
            let mut client = Client::with_features(bench.target(), variant, "one", &[TTL, WRAPPER]).await;
            client.want(EDS, &["a"]);
            let asked = bench.origin.expect(EDS).await;
            bench.origin.answer_raw(asked.stream, timed(EDS, "7", "a=1", LIFE));
            let first = client.take(EDS).await;
            assert_eq!(first.get("a").text(), "1");
            assert!(first.ttls["a"] <= LIFE && first.ttls["a"] > LIFE / 2, "{:?}", first.ttls);
            assert_eq!(first.wrapped.contains("a"), variant == Variant::Sotw, "TTL-2");
            bench.origin.answer_raw(asked.stream, timed(EDS, "7", "a", LIFE));
            let beat = client.take(EDS).await;
            assert!(beat.ttls["a"] <= LIFE, "{:?}", beat.ttls);
            match variant {
                // The resource itself: Envoy's timer is not reset by a SotW refresh without a body (TTL-4).
                Variant::Sotw => {
                    assert_eq!((beat.get("a").text(), &beat.version), ("1".into(), &first.version));
                }
                Variant::Delta => {
                    assert_eq!(beat.get("a").body, None, "TTL-4");
                    assert_eq!(beat.get("a").version, first.get("a").version, "TTL-4");
                }
            }
            if variant == Variant::Delta {
                assert_eq!(client.take(EDS).await.removed, ["a"], "TTL-8");
            } else {
                client.silence(Duration::from_millis(300)).await;
            }
        }
    }
}

/// A client without the feature sees no TTL and no wrapper, and still loses an expired resource.
#[tokio::test]
async fn ttl_1_ttl_8_wir_8_without_the_feature_a_resource_goes_when_its_time_is_over() {
    for upstream in Variant::BOTH {
        for variant in Variant::BOTH {
            let Some(bench) = scripted(upstream).await else { return };
            let mut client = bench.client(variant, "one").await;
            client.want(CDS, &["a", "b"]);
            let asked = bench.origin.expect(CDS).await;
            let mut answer = timed(CDS, "1", "a=1", Duration::from_secs(1));
            answer.items.push(Item::new(CDS, "b", "1", "1"));
            bench.origin.answer_raw(asked.stream, answer);
            let first = client.take(CDS).await;
            assert!(first.ttls.is_empty(), "TTL-1");
            client.settle(CDS, &[("b", "1")]).await;
            let log = bench.process().get("/metrics").await.1;
            let series = format!(
                "sluice_upstream_expiries_total{{server=\"{}\",type=\"Cluster\"}} 1",
                bench.origin.address
            );
            assert!(log.contains(&series), "{log}");
        }
    }
}

/// TTL-6: every refresh of a complete set is the whole set.
#[tokio::test]
async fn ttl_6_a_sotw_set_is_refreshed_in_full() {
    let Some(bench) = scripted(Variant::Delta).await else { return };
    let mut client = Client::with_features(bench.target(), Variant::Sotw, "one", &[TTL, WRAPPER]).await;
    client.want(CDS, &["*"]);
    let asked = bench.origin.expect(CDS).await;
    let life = Duration::from_secs(30);
    let mut answer = timed(CDS, "1", "a=1", life);
    answer.items.push(Item::new(CDS, "b", "1", "1"));
    bench.origin.answer_raw(asked.stream, answer.clone());
    let first = client.take(CDS).await;
    // The TTL is sent anew with the content.
    answer.ttls.insert("a".to_owned(), life * 2);
    bench.origin.answer_raw(asked.stream, answer);
    let second = client.take(CDS).await;
    assert_eq!((first.names(), second.names()), (vec!["a", "b"], vec!["a", "b"]));
    assert_eq!(first.version, second.version);
    assert!(second.items.iter().all(|item| item.body.is_some()), "TTL-6");
    assert!(second.ttls["a"] > life && !second.ttls.contains_key("b"));
    assert!(second.wrapped.contains("a") && !second.wrapped.contains("b"));
}

/// TTL-7: whatever features gRPC lists.
#[tokio::test]
async fn ttl_7_grpc_is_told_nothing_of_ttls() {
    let Some(bench) = scripted(Variant::Delta).await else { return };
    let mut node = node("one");
    node.user_agent_name = "gRPC C-core".to_owned();
    node.client_features = vec![TTL.to_owned(), WRAPPER.to_owned()];
    let mut client = Client::on(connect(bench.target()).await, Variant::Sotw, Some(node));
    client.want(EDS, &["a"]);
    let asked = bench.origin.expect(EDS).await;
    bench.origin.answer_raw(asked.stream, timed(EDS, "1", "a=1", Duration::from_secs(30)));
    let first = client.take(EDS).await;
    assert!(first.ttls.is_empty() && first.wrapped.is_empty());
    bench.origin.answer_raw(asked.stream, timed(EDS, "1", "a=1", Duration::from_secs(60)));
    client.quiet().await;
}

/// RLY-22, FEA-3: the upstream sees the class's own features and the wrapper; RLY-12: other features make
/// another class.
#[tokio::test]
async fn rly_12_rly_22_fea_2_fea_3_features_belong_to_the_class() {
    let Some(bench) = scripted(Variant::Delta).await else { return };
    let classes: [(&[&str], &[&str]); 3] =
        [(&[], &[WRAPPER]), (&["x.y"], &["x.y", WRAPPER]), (&[TTL], &[WRAPPER, TTL])];
    for (features, seen) in classes {
        let mut client = Client::with_features(bench.target(), Variant::Delta, "one", features).await;
        client.want(EDS, &["a"]);
        let asked = bench.origin.expect_that(EDS, |ask: &Ask| ask.node.is_some()).await;
        assert_eq!(asked.ask.node.unwrap().client_features, seen);
    }
    assert_eq!(bench.origin.opened(), 3);
}

/// WIR-9, LED-4: the list form of LEDS has no name of its own; in SotW only the wrapper can carry a name.
#[tokio::test]
async fn wir_9_led_4_rly_23_a_type_without_names_goes_wrapped_or_not_at_all() {
    const LISTS: &str = "xds.endpoint.supports_lb_endpoint_collection";
    for features in [&[][..], &[WRAPPER], &[WRAPPER, LISTS]] {
        let Some(bench) = scripted(Variant::Delta).await else { return };
        let mut client = Client::with_features(bench.target(), Variant::Sotw, "one", features).await;
        client.want(LEDS, &["a"]);
        let asked = bench.origin.expect(LEDS).await;
        bench.origin.answer(&asked, "", vec![Item::new(LEDS, "a", "1", "1")], &[]);
        if features.contains(&LISTS) {
            assert!(client.take(LEDS).await.wrapped.contains("a"));
            continue;
        }
        client.quiet().await;
        let warnings = bench.warned_of("").await;
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        let log = bench.process().get("/metrics").await.1;
        assert!(log.contains("sluice_downstream_resources_left_out_total{type=\"LbEndpointCollection\"} 1"));
    }
}

/// WIR-9: only the wrapper has the name. A client that reads names from bodies gets the other resources, and a metric
/// counts the resource that was left out.
#[tokio::test]
async fn wir_9_rly_23_a_body_without_its_name_goes_wrapped_or_not_at_all() {
    for features in [&[][..], &[WRAPPER]] {
        let Some(bench) = scripted(Variant::Delta).await else { return };
        let mut client = Client::with_features(bench.target(), Variant::Sotw, "one", features).await;
        client.want(CDS, &["*"]);
        let asked = bench.origin.expect(CDS).await;
        let other = Item::new(CDS, "a", "1", "1");
        let nameless = Item { body: Item::new(CDS, "", "1", "1").body, ..Item::new(CDS, "b", "1", "1") };
        bench.origin.answer(&asked, "", vec![other, nameless], &[]);
        let taken = client.take(CDS).await;
        assert_eq!(taken.get("a").text(), "1");
        assert_eq!(taken.wrapped.contains("b"), features.contains(&WRAPPER));
        assert_eq!(taken.items.len(), 1 + features.len());
        let metrics = bench.process().get("/metrics").await.1;
        let left_out = "sluice_downstream_resources_left_out_total{type=\"Cluster\"} 1";
        assert_eq!(metrics.contains(left_out), features.is_empty());
    }
}

/// RLY-29: the timer of a type.
#[tokio::test]
async fn rly_29_a_type_may_have_a_timer_of_its_own() {
    let lists = "resource_timeouts: { envoy.config.route.v3.RouteConfiguration: 1s }";
    let Some(bench) = Bench::scripted(|setup| setup.resource_timeout(60).server_line(lists)).await else {
        return;
    };
    let mut client = bench.delta("one").await;
    client.want(EDS, &["a", "c"]);
    // Routes wait for the first answer of the cluster side (ORD-12).
    let asked = bench.origin.expect(EDS).await;
    bench.origin.answer(&asked, "v", vec![Item::new(EDS, "c", "", "1")], &[]);
    assert_eq!(client.take(EDS).await.names(), ["c"]);
    client.want(RDS, &["a", "b"]);
    // The timer starts after the server has answered for the type (RLY-2).
    let asked = bench.origin.expect(RDS).await;
    bench.origin.answer(&asked, "v", vec![Item::new(RDS, "b", "", "1")], &[]);
    assert_eq!(client.take(RDS).await.get("b").text(), "1");
    assert_eq!(client.take(RDS).await.removed, ["a"]);
    client.quiet().await;
}

/// RLY-2, TMR-3: a name that a slow server has yet to send is not absent; an omitted name is absent one timer
/// after the server became silent.
#[tokio::test]
async fn rly_2_a_name_that_the_server_has_still_to_send_is_not_told_as_gone() {
    let Some(bench) = Bench::scripted(|setup| setup.resource_timeout(1)).await else { return };
    let mut client = bench.delta("one").await;
    client.want(EDS, &["a", "b", "c", "d"]);
    let asked = bench.origin.expect(EDS).await;
    for name in ["a", "b", "c"] {
        bench.origin.answer(&asked, "v", vec![Item::new(EDS, name, "", "1")], &[]);
        let answer = client.take(EDS).await;
        assert_eq!((answer.names(), answer.removed.len()), (vec![name], 0));
        if name != "c" {
            pause(600).await;
        }
    }
    assert_eq!(client.take(EDS).await.removed, ["d"]);
}
