//! NAM-1 to NAM-20, RLY-26, LED-1 to LED-6, ALI-1 to ALI-3: spelling of names, collections, aliases.

use std::collections::BTreeMap;

use crate::bench::{Bench, pause};
use crate::support::client::{connect, node};
use crate::support::proto::{Any, Node};
use crate::support::words::{self, Answer, Ask};
use crate::support::{
    CDS, Client, EDS, Item, LEDS, LEDS_LIST, RDS, REDIRECT, Relay, SILENCE, Setup, Variant,
};

fn endpoints(id: &str) -> String {
    format!("xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/{id}")
}

fn endpoint(id: &str) -> String {
    format!("xdstp://a/envoy.config.endpoint.v3.LbEndpoint/{id}")
}

async fn delta_bench() -> Option<Bench> {
    Bench::relay(Variant::Delta).await
}

// === spelling ===

/// Two spellings of a name are one name upstream; each client sees its own spelling (RLY-26).
#[tokio::test]
async fn nam_6_nam_8_rly_26_one_entry_and_every_client_its_own_spelling() {
    let (sorted, turned) = (endpoints("x?a=1&b=2"), endpoints("x?b=2&a=1"));
    for upstream in Variant::BOTH {
        let Some(bench) = Bench::relay(upstream).await else { return };
        bench.origin.set(EDS, &sorted, "1");
        let (mut one, mut other) = (bench.delta("one").await, bench.delta("two").await);
        one.want(EDS, &[&sorted]);
        other.want(EDS, &[&turned]);
        one.settle(EDS, &[(&sorted, "1")]).await;
        other.settle(EDS, &[(&turned, "1")]).await;
        bench.origin.set(EDS, &sorted, "2");
        one.settle(EDS, &[(&sorted, "2")]).await;
        other.settle(EDS, &[(&turned, "2")]).await;
        let asks = bench.origin.requests(EDS).into_iter();
        let names: Vec<String> =
            asks.flat_map(|asked| [asked.ask.names, asked.ask.subscribe].concat()).collect();
        assert!(names.iter().all(|name| *name == sorted), "asked upstream: {names:?}");
        if upstream == Variant::Delta {
            bench.origin.remove(EDS, &sorted);
            one.settle(EDS, &[]).await;
            other.settle(EDS, &[]).await;
        }
    }
}

/// RFC 3986: an escape of a reserved character is not the character. Both spellings reach the control plane as the client
/// wrote them, and each has its own resource.
#[tokio::test]
async fn nam_6_an_escaped_slash_is_no_slash() {
    let (one, two) = (endpoints("d/x%2Fy"), endpoints("d/x/y"));
    for upstream in Variant::BOTH {
        let Some(bench) = Bench::relay(upstream).await else { return };
        bench.origin.set_many(EDS, &[(&one, "1"), (&two, "2")]);
        for (client, name, text) in [("one", &one, "1"), ("two", &two, "2")] {
            let mut client = bench.delta(client).await;
            client.want(EDS, &[name]);
            client.settle(EDS, &[(name, text)]).await;
        }
        let mut both = bench.sotw("both").await;
        both.want(EDS, &[&one, &two]);
        both.settle(EDS, &[(&one, "1"), (&two, "2")]).await;
    }
}

#[tokio::test]
async fn nam_14_a_member_of_a_glob_may_have_an_escaped_slash() {
    let Some(bench) = delta_bench().await else { return };
    let (member, deep, glob) = (endpoint("f/x%2Fy"), endpoint("f/x/y"), endpoint("f/*"));
    bench.origin.set_many(LEDS, &[(&member, "1"), (&deep, "1")]);
    let mut client = bench.delta("one").await;
    client.want(LEDS, &[&glob]);
    client.settle(LEDS, &[(&member, "1")]).await;
}

/// A control plane may answer in another spelling than the request's.
#[tokio::test]
async fn nam_8_a_control_plane_may_spell_as_it_likes() {
    let Some(bench) = Bench::scripted(|setup| setup.resource_timeout(60)).await else { return };
    let (sorted, turned) = (endpoints("x?a=1&b=2"), endpoints("x?b=2&a=1"));
    let mut client = bench.delta("one").await;
    client.want(EDS, &[&sorted]);
    let asked = bench.origin.expect(EDS).await;
    assert_eq!(asked.ask.subscribe, std::slice::from_ref(&sorted));
    bench.origin.answer(&asked, "1", vec![Item::new(EDS, &turned, "1", "1")], &[]);
    assert_eq!(client.take(EDS).await.names(), [sorted.as_str()]);
    bench.origin.answer(&asked, "2", vec![], &[&turned]);
    assert_eq!(client.take(EDS).await.removed, [sorted]);
}

/// The client gets an error for the name, the control plane no request, and the neighbours are served.
#[tokio::test]
async fn nam_1_nam_5_a_name_that_cannot_be_is_answered_here() {
    let Some(bench) = delta_bench().await else { return };
    bench.origin.set(EDS, "plain", "1");
    let wrong = "xdstp://a/envoy.config.cluster.v3.Cluster/x";
    let mut client = bench.delta("one").await;
    client.send(Ask::of(EDS).subscribe(&[wrong, "xdstp://a", "plain"]));
    let (mut removed, mut names, mut errors) = (Vec::new(), Vec::new(), BTreeMap::new());
    while removed.len() < 2 || names.is_empty() || errors.len() < 2 {
        let answer = client.take(EDS).await;
        removed.extend(answer.removed.clone());
        errors.extend(answer.errors);
        names.extend(answer.items.into_iter().map(|item| item.name));
    }
    assert!(errors.values().all(|error| error.code == 3), "INVALID_ARGUMENT: {errors:?}");
    assert!(errors[wrong].message.contains("ClusterLoadAssignment"), "{errors:?}");
    removed.sort();
    assert_eq!((removed, names), (vec!["xdstp://a".to_owned(), wrong.to_owned()], vec!["plain".to_owned()]));
    client.quiet().await;
    let mut sotw = bench.sotw("two").await;
    sotw.want(EDS, &[wrong, "plain"]);
    assert_eq!(sotw.take(EDS).await.names(), ["plain"]);
    let asked = bench.origin.requests(EDS);
    assert!(asked.iter().all(|asked| asked.ask.subscribe.iter().all(|name| name == "plain")), "{asked:?}");
    bench.warned_of("cannot be served").await;
}

// === globs ===

#[tokio::test]
async fn nam_14_nam_16_led_1_a_glob_follows_its_members() {
    let Some(bench) = delta_bench().await else { return };
    let (a, b, deep, glob) = (endpoint("f/a"), endpoint("f/b"), endpoint("f/a/b"), endpoint("f/*"));
    bench.origin.set_many(LEDS, &[(&a, "1"), (&deep, "1"), (&endpoint("f/a?k=v"), "1")]);
    let mut client = bench.delta("one").await;
    client.want(LEDS, &[&glob]);
    client.settle(LEDS, &[(&a, "1")]).await;
    bench.origin.set(LEDS, &b, "1");
    client.settle(LEDS, &[(&a, "1"), (&b, "1")]).await;
    // The second client is answered from the cache (RLY-58).
    let mut other = bench.delta("two").await;
    other.want(LEDS, &[&glob]);
    other.settle(LEDS, &[(&a, "1"), (&b, "1")]).await;
    assert_eq!(bench.origin.requests(LEDS).iter().filter(|asked| !asked.ask.subscribe.is_empty()).count(), 1);
    bench.origin.remove(LEDS, &a);
    assert_eq!(client.take(LEDS).await.removed, [a]);
    bench.origin.remove(LEDS, &b);
    let mut removed = client.take(LEDS).await.removed;
    removed.sort();
    assert_eq!(removed, [glob, b.clone()], "the last member, and the collection that is empty now");
    bench.origin.set(LEDS, &b, "2");
    assert_eq!(client.take(LEDS).await.names(), [b.as_str()]);
}

/// LED-6: each locality's collection is a separate subscription with a separate answer.
#[tokio::test]
async fn nam_16_led_6_an_empty_collection_is_told_under_its_name() {
    let Some(bench) = delta_bench().await else { return };
    let (a, full, empty) = (endpoint("f/a"), endpoint("f/*"), endpoint("g/*"));
    bench.origin.set(LEDS, &a, "1");
    let mut client = bench.delta("one").await;
    client.want(LEDS, &[&full]);
    assert_eq!(client.take(LEDS).await.names(), [a.as_str()]);
    client.want(LEDS, &[&full, &empty]);
    let answer = client.take(LEDS).await;
    assert_eq!((answer.names().len(), answer.removed), (0, vec![empty]));
    client.quiet().await;
}

/// Resources outside the collection reach no client.
#[tokio::test]
async fn nam_15_a_server_that_matches_any_depth_is_filtered() {
    let Some(bench) = Bench::scripted(|setup| setup).await else { return };
    let mut client = bench.delta("one").await;
    client.want(LEDS, &[&endpoint("f/*")]);
    let asked = bench.origin.expect(LEDS).await;
    let item = |id: &str| Item::new(LEDS, &endpoint(id), "1", "1");
    let sent = ["f/a", "f/a/b", "g/a", "f/a?k=v"].map(item).to_vec();
    bench.origin.answer(&asked, "1", sent, &[]);
    assert_eq!(client.take(LEDS).await.names(), [endpoint("f/a")]);
    client.quiet().await;
}

/// DEL-19 and DEL-22 with a glob instead of the wildcard.
#[tokio::test]
async fn nam_17_a_member_that_is_asked_for_by_itself_too() {
    let Some(bench) = delta_bench().await else { return };
    let (a, x, glob) = (endpoint("f/a"), endpoint("f/x"), endpoint("f/*"));
    bench.origin.set(LEDS, &a, "1");
    let mut client = bench.delta("one").await;
    client.want(LEDS, &[&glob]);
    client.settle(LEDS, &[(&a, "1")]).await;
    client.want(LEDS, &[&glob, &a, &x]);
    while !client.take(LEDS).await.removed.contains(&x) {}
    client.quiet_after_optional(LEDS).await;
    client.send(Ask::of(LEDS).unsubscribe(&[&a]));
    assert_eq!(client.take(LEDS).await.names(), [a.as_str()]);
    client.send(Ask::of(LEDS).unsubscribe(&[&x]));
    assert_eq!(client.take(LEDS).await.removed, [x]);
    client.quiet().await;
}

#[tokio::test]
async fn del_32_a_client_that_comes_back_is_sent_the_difference() {
    let Some(bench) = delta_bench().await else { return };
    let (a, b, c, glob) = (endpoint("f/a"), endpoint("f/b"), endpoint("f/c"), endpoint("f/*"));
    bench.origin.set_many(LEDS, &[(&a, "1"), (&b, "1"), (&c, "1")]);
    let mut client = bench.delta("one").await;
    client.want(LEDS, &[&glob]);
    client.settle(LEDS, &[(&a, "1"), (&b, "1"), (&c, "1")]).await;
    let held: BTreeMap<String, String> = client.versions(LEDS);
    drop(client);
    bench.origin.set(LEDS, &b, "2");
    bench.origin.remove(LEDS, &c);
    let mut client = bench.delta("one").await;
    client.send(Ask { initial: held, ..Ask::of(LEDS).subscribe(&[&glob]) });
    let (mut names, mut removed) = (Vec::new(), Vec::new());
    while names.is_empty() || removed.is_empty() {
        let answer = client.take(LEDS).await;
        names.extend(answer.texts());
        removed.extend(answer.removed);
    }
    assert_eq!((names, removed), (vec![(b, "2".to_owned())], vec![c]));
    client.quiet().await;
}

/// A control plane restarts without memory: the relay compares members, and sends removals.
#[tokio::test]
async fn del_32_an_outage_of_the_control_plane_is_no_news() {
    let Some(mut bench) = delta_bench().await else { return };
    let (a, b, glob) = (endpoint("f/a"), endpoint("f/b"), endpoint("f/*"));
    bench.origin.set_many(LEDS, &[(&a, "1"), (&b, "1")]);
    let mut client = bench.delta("one").await;
    client.want(LEDS, &[&glob]);
    client.settle(LEDS, &[(&a, "1"), (&b, "1")]).await;
    bench.origin.down().await;
    client.silence(SILENCE).await;
    bench.origin.remove(LEDS, &b);
    bench.origin.up().await;
    assert_eq!(client.take(LEDS).await.removed, [b]);
    client.quiet().await;
}

/// SotW cannot ask for globs: the state stays unknown, the client gets no answer, and the log gives the
/// reason (SUB-21).
#[tokio::test]
async fn sub_21_a_sotw_upstream_cannot_serve_a_glob() {
    let Some(bench) = Bench::relay(Variant::Sotw).await else { return };
    bench.origin.set(LEDS, &endpoint("f/a"), "1");
    bench.origin.set(EDS, "x", "1");
    let mut client = bench.delta("one").await;
    client.want(LEDS, &[&endpoint("f/*")]);
    client.want(EDS, &["x"]);
    assert_eq!(client.take(EDS).await.names(), ["x"]);
    client.quiet().await;
    assert!(bench.origin.requests(LEDS).is_empty());
    bench.warned_of("has no glob collections").await;
}

/// A directory serves globs from the names in its files, to both variants (SUB-21).
#[tokio::test]
async fn nam_14_a_file_server_has_globs() {
    if std::env::var("SLUICE_CONFORMANCE_TARGET").is_ok_and(|target| target == "origin") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let name = |id: &str| format!("xdstp://a/envoy.config.cluster.v3.Cluster/{id}");
    let mut yaml = format!("type_url: {CDS}\nresources:\n");
    for id in ["f/a", "f/b", "f/a/b", "g/a"] {
        yaml += &format!("  - {{ \"@type\": {CDS}, name: {:?}, connect_timeout: 1s }}\n", name(id));
    }
    std::fs::write(directory.path().join("clusters.yaml"), yaml).unwrap();
    let relay = Relay::start(Setup::of(format!("file:{}", directory.path().display()))).await;
    for variant in Variant::BOTH {
        let mut client = Client::open(&relay.address, variant, "one").await;
        client.want(CDS, &[&name("f/*")]);
        assert_eq!(client.take(CDS).await.names(), [name("f/a"), name("f/b")]);
    }
}

// === list collections, redirects ===

/// NAM-18, LED-1: a list collection is one opaque resource (TYP-8).
#[tokio::test]
async fn nam_18_nam_20_lists_and_redirects_pass_as_they_are() {
    let Some(bench) = Bench::scripted(|setup| setup).await else { return };
    let list = "xdstp://a/envoy.config.endpoint.v3.LbEndpointCollection/f".to_owned();
    let other = "xdstp://a/envoy.config.endpoint.v3.LbEndpointCollection/g".to_owned();
    let mut client = bench.delta("one").await;
    client.want(LEDS_LIST, &[&list, &other]);
    let asked = bench.origin.expect(LEDS_LIST).await;
    // An entry, and a locator for a redirect to another place (NAM-20).
    let entries =
        Any { type_url: LEDS_LIST.to_owned(), value: b"\x0a\x08\x12\x06\x0a\x01n\x12\x011".to_vec() };
    let target = Any { type_url: REDIRECT.to_owned(), value: b"\x12\x01h\x1a\x01b".to_vec() };
    let item = |name: &str, body: &Any| Item {
        name: name.to_owned(),
        version: "1".to_owned(),
        body: Some(body.clone()),
        ..Item::default()
    };
    bench.origin.answer(&asked, "1", vec![item(&list, &entries), item(&other, &target)], &[]);
    let answer = client.take(LEDS_LIST).await;
    assert_eq!(answer.get(&list).body.as_ref(), Some(&entries));
    assert_eq!(answer.get(&other).body.as_ref(), Some(&target));
}

/// LED-5: resources made for clients with a feature are not shared with clients without.
#[tokio::test]
async fn led_5_a_client_feature_splits_classes_of_xdstp_names_too() {
    let Some(bench) = delta_bench().await else { return };
    let name = endpoints("x");
    bench.origin.set(EDS, &name, "1");
    let features = vec!["xds.endpoint.supports_lb_endpoint_collection".to_owned()];
    let with = Node { client_features: features.clone(), ..node("with") };
    for node in [with, node("without")] {
        let mut client = Client::on(connect(bench.target()).await, Variant::Delta, Some(node));
        client.want(EDS, &[&name]);
        client.settle(EDS, &[(&name, "1")]).await;
    }
    let firsts = bench.origin.requests(EDS).into_iter().filter_map(|asked| asked.ask.node);
    let has_feature: Vec<bool> = firsts.map(|node| node.client_features.contains(&features[0])).collect();
    assert_eq!(has_feature, [true, false]);
}

// === aliases ===

fn aliased(version: &str, name: &str, text: &str, aliases: &[&str]) -> Answer {
    Answer {
        type_url: RDS.to_owned(),
        items: vec![Item { aliases: words::strings(aliases), ..Item::new(RDS, name, version, text) }],
        ..Answer::default()
    }
}

#[tokio::test]
async fn ali_1_ali_2_ali_3_a_name_asked_for_by_alias() {
    let Some(bench) = Bench::scripted(|setup| setup.resource_timeout(60)).await else { return };
    let mut client = bench.delta("one").await;
    client.want(RDS, &["rc/a.example"]);
    let asked = bench.origin.expect(RDS).await;
    assert_eq!(asked.ask.subscribe, ["rc/a.example"], "ALI-3: the relay cannot resolve it");
    bench.origin.answer_raw(asked.stream, aliased("1", "rc/vh1", "1", &["rc/a.example"]));
    let answer = client.take(RDS).await;
    assert_eq!(answer.texts(), [("rc/vh1".to_owned(), "1".to_owned())]);
    assert_eq!(answer.get("rc/vh1").aliases, ["rc/a.example"]);
    // An update needs no new request, and a second client is answered from the cache.
    bench.origin.answer_raw(asked.stream, aliased("2", "rc/vh1", "2", &["rc/a.example"]));
    assert_eq!(client.take(RDS).await.texts(), [("rc/vh1".to_owned(), "2".to_owned())]);
    let mut other = bench.delta("two").await;
    other.want(RDS, &["rc/a.example"]);
    assert_eq!(other.take(RDS).await.texts(), [("rc/vh1".to_owned(), "2".to_owned())]);
    // The alias moves to another resource (ALI-2).
    bench.origin.answer_raw(asked.stream, aliased("3", "rc/vh2", "3", &["rc/a.example"]));
    assert_eq!(client.take(RDS).await.texts(), [("rc/vh2".to_owned(), "3".to_owned())]);
    bench.origin.answer(&asked, "4", vec![], &["rc/vh1"]);
    pause(50).await;
    client.quiet().await;
    bench.origin.answer(&asked, "5", vec![], &["rc/vh2"]);
    let mut removed = client.take(RDS).await.removed;
    removed.sort();
    assert_eq!(removed, ["rc/a.example", "rc/vh2"]);
}
