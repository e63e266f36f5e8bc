//! RLY-1 to RLY-18: answers before the upstream's answer, and sharing between clients.

use std::time::{Duration, Instant};

use tonic::Code;

use crate::bench::{Bench, pause};
use crate::support::client::{connect, node};
use crate::support::proto::Node;
use crate::support::{
    Ask, CDS, Client, ControlPlane, EDS, Item, LDS, RDS, Relay, SDS, SILENCE, SRDS, Setup, Variant,
};

#[tokio::test]
async fn rly_1_what_is_cached_does_not_wait_for_what_is_not() {
    for variant in Variant::BOTH {
        let Some(bench) = Bench::scripted(|setup| setup.resource_timeout(60)).await else { return };
        let mut first = bench.client(variant, "first").await;
        first.want(EDS, &["a"]);
        let asked = bench.origin.expect(EDS).await;
        bench.origin.answer(&asked, "1", vec![Item::new(EDS, "a", "1", "1")], &[]);
        first.take(EDS).await;
        let mut client = bench.client(variant, "one").await;
        client.want(EDS, &["a", "b"]);
        assert_eq!(client.take(EDS).await.names(), ["a"]);
        let asked = bench.origin.expect_that(EDS, |ask| ask.subscribe.contains(&"b".to_owned())).await;
        client.quiet().await;
        bench.origin.answer(&asked, "2", vec![Item::new(EDS, "b", "1", "1")], &[]);
        assert_eq!(client.take(EDS).await.names(), ["b"]);
    }
}

/// The upstream is down at the relay's start: no removal, no empty answer, no end (RLY-3; RLY-4 `hold`).
#[tokio::test]
async fn rly_2_rly_3_rly_4_without_an_upstream_nothing_is_said() {
    for upstream in Variant::BOTH {
        let Some(mut bench) = Bench::relay(upstream).await else { return };
        bench.origin.down().await;
        let mut clients = Vec::new();
        for variant in Variant::BOTH {
            let mut client = bench.client(variant, "one").await;
            client.want(CDS, &[]);
            client.want(EDS, &["x"]);
            clients.push(client);
        }
        // Longer than the resource timer, which runs only on a connected stream.
        for client in &mut clients {
            client.silence(Duration::from_millis(700)).await;
        }
        bench.origin.set(CDS, "a", "1");
        bench.origin.set(EDS, "x", "1");
        bench.origin.up().await;
        for client in &mut clients {
            client.settle(CDS, &[("a", "1")]).await;
            client.settle(EDS, &[("x", "1")]).await;
        }
    }
}

/// RLY-5: the answer to a client that may have every name waits until no name is UNKNOWN. RLY-9: the answer
/// has the state at the time of sending, not of the request.
#[tokio::test]
async fn rly_5_rly_9_a_full_state_answer_is_held_until_all_is_known() {
    for type_url in [CDS, LDS, SRDS] {
        let Some(bench) = Bench::scripted(|setup| setup.resource_timeout(60)).await else { return };
        let mut client = bench.sotw("one").await;
        client.send(Ask::of(type_url).names(&["a", "b", "c"]).version("7"));
        let asked = bench.origin.expect(type_url).await;
        let item = |name, text| vec![Item::new(type_url, name, text, text)];
        bench.origin.answer(&asked, "1", item("a", "1"), &[]);
        bench.origin.answer(&asked, "2", item("b", "1"), &[]);
        client.quiet().await;
        bench.origin.answer(&asked, "3", item("a", "2"), &[]);
        client.quiet().await;
        bench.origin.answer(&asked, "4", vec![], &["c"]);
        let answer = client.take(type_url).await;
        assert_eq!(answer.texts(), [("a".to_owned(), "2".to_owned()), ("b".to_owned(), "1".to_owned())]);
    }
}

/// RLY-5: a control plane that never reports absence. The first set waits one second for a wrong name; later
/// sets do not wait.
#[tokio::test]
async fn rly_5_an_update_does_not_wait_for_a_wrong_name() {
    for type_url in [CDS, LDS] {
        let Some(bench) = Bench::scripted(|setup| setup.resource_timeout(60)).await else { return };
        let item = |text| vec![Item::new(type_url, "a", text, text)];
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["a", "wrong"]);
        let (begun, asked) = (Instant::now(), bench.origin.expect(type_url).await);
        bench.origin.answer(&asked, "1", item("1"), &[]);
        assert_eq!(client.take(type_url).await.names(), ["a"]);
        assert!(begun.elapsed() > Duration::from_millis(900), "{:?}", begun.elapsed());
        bench.origin.answer(&asked, "2", item("2"), &[]);
        client.settle(type_url, &[("a", "2")]).await;
        client.want(type_url, &["a", "wrong", "another"]);
        bench.origin.expect_that(type_url, |ask| ask.subscribe.contains(&"another".to_owned())).await;
        bench.origin.answer(&asked, "3", item("3"), &[]);
        client.settle(type_url, &[("a", "3")]).await;
    }
}

/// A wildcard is held over a SotW upstream that answers late.
#[tokio::test]
async fn rly_5_a_wildcard_is_held_as_a_whole() {
    for variant in Variant::BOTH {
        let Some(bench) = Bench::scripted(|setup| setup.upstream(Variant::Sotw).resource_timeout(60)).await
        else {
            return;
        };
        let mut named = bench.client(variant, "named").await;
        named.want(CDS, &["a"]);
        let asked = bench.origin.expect(CDS).await;
        bench.origin.answer(&asked, "1", vec![Item::new(CDS, "a", "", "1")], &[]);
        named.take(CDS).await;
        let mut client = bench.client(variant, "wild").await;
        client.want(CDS, &["*"]);
        let asked = bench.origin.expect_that(CDS, |ask| ask.names.contains(&"*".to_owned())).await;
        client.quiet().await;
        bench.origin.answer(
            &asked,
            "2",
            vec![Item::new(CDS, "a", "", "1"), Item::new(CDS, "b", "", "1")],
            &[],
        );
        client.settle(CDS, &[("a", "1"), ("b", "1")]).await;
    }
}

async fn of_cluster(bench: &Bench, variant: Variant, cluster: &str) -> Client {
    Client::of_cluster(&connect(bench.target()).await, variant, cluster)
}

/// Two clients whose nodes differ in a class key get separate upstream answers.
#[tokio::test]
async fn rly_10_rly_14_classes_do_not_share() {
    for variant in Variant::BOTH {
        let Some(bench) = Bench::scripted(|setup| setup).await else { return };
        let mut blue = of_cluster(&bench, variant, "blue").await;
        let mut green = of_cluster(&bench, variant, "green").await;
        for client in [&mut blue, &mut green] {
            client.want(LDS, &["l"]);
        }
        for text in ["one", "two"] {
            // ACKs on the first stream have no node (STR-2).
            let asked = bench.origin.expect_that(LDS, |ask| ask.node.is_some()).await;
            let cluster = asked.ask.node.clone().expect("the node upstream").cluster;
            let text = format!("{cluster} {text}");
            bench.origin.answer(&asked, "1", vec![Item::new(LDS, "l", "1", &text)], &[]);
        }
        assert!(blue.take(LDS).await.get("l").text().starts_with("blue"));
        assert!(green.take(LDS).await.get("l").text().starts_with("green"));
        assert_eq!(bench.origin.live_streams(), 2);
    }
}

/// Nodes without an id cannot be told apart, so none gets a Secret (FD11).
#[tokio::test]
async fn rly_21_a_node_without_an_id_gets_no_secret() {
    for variant in Variant::BOTH {
        let Some(bench) = Bench::relay(Variant::Delta).await else { return };
        bench.origin.set(SDS, "key", "hunter2");
        bench.origin.set(CDS, "a", "1");
        let mut nameless = bench.client(variant, "").await;
        nameless.want(CDS, &["a"]);
        nameless.settle(CDS, &[("a", "1")]).await;
        nameless.want(SDS, &["key"]);
        let status = nameless.ended().await;
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains("node.id"), "{status:?}");
        assert!(bench.origin.requests(SDS).is_empty(), "the relay asks for its own");
        let mut named = bench.client(variant, "one").await;
        named.want(SDS, &["key"]);
        named.settle(SDS, &[("key", "hunter2")]).await;
    }
}

/// The operator's setting declares that Secrets are equal for all clients.
#[tokio::test]
async fn rly_21_shared_secrets_need_no_id() {
    let rule = "node_classes: [{match: {types: [envoy.extensions.transport_sockets.tls.v3.Secret]}, \
        split_by: {}, share_secrets: true}]";
    let Some(bench) = Bench::with(|setup| setup.line(rule)).await else { return };
    bench.origin.set(SDS, "key", "hunter2");
    let mut nameless = bench.delta("").await;
    nameless.want(SDS, &["key"]);
    nameless.settle(SDS, &[("key", "hunter2")]).await;
}

/// RLY-12: features belong to the class. RLY-11: the id does not.
#[tokio::test]
async fn rly_11_rly_12_the_id_is_no_class_but_features_are() {
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    bench.origin.set(LDS, "l", "1");
    for id in ["one", "two", "three"] {
        let mut client = bench.delta(id).await;
        client.want(LDS, &["l"]);
        client.take(LDS).await;
    }
    assert_eq!(bench.origin.opened(), 1);
    let featured = Node { client_features: vec!["acme.feature".to_owned()], ..node("four") };
    let mut client = Client::on(connect(bench.target()).await, Variant::Delta, Some(featured));
    client.want(LDS, &["l"]);
    client.take(LDS).await;
    assert_eq!(bench.origin.opened(), 2);
}

/// A wildcard's set is the server's selection, not all existing resources; the set proves nothing about a
/// name outside.
#[tokio::test]
async fn rly_13_wildcards_and_names_do_not_answer_for_each_other() {
    for upstream in Variant::BOTH {
        for variant in Variant::BOTH {
            for type_url in [CDS, EDS] {
                let Some(bench) = Bench::relay(upstream).await else { return };
                bench.origin.set(type_url, "in", "1");
                bench.origin.set_unlisted(type_url, "out", "1");
                let mut named = bench.client(variant, "named").await;
                named.want(type_url, &["out"]);
                named.settle(type_url, &[("out", "1")]).await;
                let mut wild = bench.client(variant, "wild").await;
                wild.want(type_url, &["*"]);
                wild.settle(type_url, &[("in", "1")]).await;
                wild.quiet().await;
                assert_eq!(wild.holds(type_url).len(), 1, "{upstream:?} {variant:?} {type_url}");
                // The reverse: the set is known and lacks the name, and yet the resource exists.
                let mut late = bench.client(variant, "late").await;
                late.want(type_url, &["out", "in"]);
                late.settle(type_url, &[("in", "1"), ("out", "1")]).await;
            }
        }
    }
}

#[tokio::test]
async fn rly_18_upstream_is_asked_for_the_wildcard_only_if_a_client_asked() {
    for upstream in Variant::BOTH {
        let Some(bench) = Bench::relay(upstream).await else { return };
        bench.origin.set(CDS, "a", "1");
        let mut client = bench.delta("one").await;
        client.want(CDS, &["a"]);
        client.take(CDS).await;
        let asked = bench.origin.expect(CDS).await.ask;
        assert_eq!([asked.names, asked.subscribe].concat(), ["a"]);
        // A legacy empty list becomes an explicit `*`.
        let mut wild = bench.sotw("two").await;
        wild.want(CDS, &[]);
        wild.take(CDS).await;
        let star = "*".to_owned();
        bench.origin.expect_that(CDS, |ask| ask.names.contains(&star) || ask.subscribe.contains(&star)).await;
    }
}

/// RLY-19 too: names go on a stream of their own, since a stream cannot leave a legacy wildcard.
#[tokio::test]
async fn rly_18_rly_19_a_legacy_upstream_gets_the_empty_list() {
    for upstream in Variant::BOTH {
        let legacy = |setup: Setup| setup.upstream(upstream).server_line("wildcard: legacy");
        let Some(bench) = Bench::with(legacy).await else { return };
        bench.origin.set(CDS, "a", "1");
        bench.origin.set_unlisted(CDS, "b", "1");
        let mut wild = bench.sotw("one").await;
        wild.want(CDS, &["*"]);
        wild.take(CDS).await;
        let asked = bench.origin.expect(CDS).await;
        assert_eq!([asked.ask.names, asked.ask.subscribe].concat(), Vec::<String>::new());
        let mut named = bench.delta("two").await;
        named.want(CDS, &["b"]);
        named.settle(CDS, &[("b", "1")]).await;
        let b = "b".to_owned();
        let other =
            bench.origin.expect_that(CDS, |ask| ask.names.contains(&b) || ask.subscribe.contains(&b)).await;
        assert_ne!(other.stream, asked.stream);
        for recorded in bench.origin.requests(CDS) {
            let names = [recorded.ask.names, recorded.ask.subscribe].concat();
            assert!(!names.contains(&"*".to_owned()), "an older server takes `*` for a name");
        }
    }
}

/// RLY-46: during an outage of the upstream new clients get all cached resources, unknown names wait, and no
/// client is disconnected.
#[tokio::test]
async fn rly_46_an_outage_is_no_news() {
    for upstream in Variant::BOTH {
        let Some(mut bench) = Bench::relay(upstream).await else { return };
        bench.origin.set_many(CDS, &[("a", "1"), ("b", "1")]);
        bench.origin.set(EDS, "a", "1");
        let mut old = bench.sotw("old").await;
        for (type_url, names) in [(CDS, &[][..]), (EDS, &["a"])] {
            old.want(type_url, names);
            old.take(type_url).await;
        }
        bench.origin.down().await;
        for variant in Variant::BOTH {
            let mut newcomer = bench.client(variant, "new").await;
            newcomer.want(CDS, &[]);
            newcomer.settle(CDS, &[("a", "1"), ("b", "1")]).await;
            newcomer.want(EDS, &["a", "unknown"]);
            newcomer.settle(EDS, &[("a", "1")]).await;
            newcomer.silence(SILENCE).await;
        }
        old.silence(Duration::from_millis(50)).await;
        bench.origin.set(EDS, "a", "2");
        bench.origin.up().await;
        old.settle(EDS, &[("a", "2")]).await;
    }
}

/// RLY-58: a thousand subscribers make one upstream name; RLY-57: the union.
#[tokio::test]
async fn rly_57_rly_58_upstream_is_asked_once_for_the_union() {
    for upstream in Variant::BOTH {
        let Some(bench) = Bench::relay(upstream).await else { return };
        bench.origin.set_many(EDS, &[("a", "1"), ("b", "1")]);
        let mut clients = Vec::new();
        for number in 0..20 {
            let mut client = bench.client(Variant::BOTH[number % 2], &format!("c-{number}")).await;
            let names: &[&str] = if number % 3 == 0 { &["a", "b"] } else { &["a"] };
            client.want(EDS, names);
            client.settle(EDS, &[("a", "1"), ("b", "1")][..names.len()]).await;
            clients.push(client);
        }
        let mut asked: Vec<String> = Vec::new();
        let mut last = Vec::new();
        for recorded in bench.origin.requests(EDS) {
            asked.extend(recorded.ask.subscribe);
            if !recorded.ask.names.is_empty() {
                last = recorded.ask.names;
            }
        }
        let mut union = if upstream == Variant::Delta { asked } else { last };
        union.sort_unstable();
        assert_eq!(union, ["a", "b"]);
        assert_eq!(bench.origin.opened(), 1);
    }
}

/// A client that joins while an answer for the same name is in flight gets the answer once (N2), without a
/// second request.
#[tokio::test]
async fn rly_58_a_name_in_flight_is_not_asked_for_again() {
    let Some(bench) = Bench::scripted(|setup| setup.resource_timeout(60)).await else { return };
    let mut first = bench.delta("first").await;
    first.want(EDS, &["a"]);
    let asked = bench.origin.expect(EDS).await;
    let mut second = bench.sotw("second").await;
    second.want(EDS, &["a"]);
    second.quiet().await;
    bench.origin.answer(&asked, "1", vec![Item::new(EDS, "a", "1", "1")], &[]);
    for client in [&mut first, &mut second] {
        client.take(EDS).await;
        client.quiet().await;
    }
    let subscribed = bench.origin.requests(EDS).iter().filter(|r| !r.ask.subscribe.is_empty()).count();
    assert_eq!(subscribed, 1);
}

/// RLY-60: a client that leaves and returns within the linger causes no upstream request (N3); RLY-59.
#[tokio::test]
async fn rly_59_rly_60_the_linger() {
    let Some(bench) = Bench::with(|setup| setup.line("linger: 400ms")).await else { return };
    bench.origin.set_many(RDS, &[("a", "1"), ("keep", "1")]);
    let mut keeper = bench.delta("keeper").await;
    keeper.want(RDS, &["keep"]);
    keeper.take(RDS).await;
    for _ in 0..3 {
        let mut client = bench.delta("one").await;
        client.want(RDS, &["a"]);
        client.take(RDS).await;
        drop(client);
        pause(50).await;
    }
    let changes = |bench: &Bench| {
        let requests = bench.origin.requests(RDS);
        requests.iter().filter(|r| r.ask.subscribe.contains(&"a".to_owned())).count()
    };
    assert_eq!(changes(&bench), 1);
    let left = Instant::now();
    let gone = bench.origin.expect_that(RDS, |ask| ask.unsubscribe == ["a"]).await;
    assert!(gone.at >= left + Duration::from_millis(200), "RLY-60: before the linger was over");
    // RLY-61: the name is evicted, so a later message requests the name anew.
    bench.origin.set(RDS, "a", "2");
    let mut client = bench.delta("one").await;
    client.want(RDS, &["a"]);
    assert_eq!(client.take(RDS).await.get("a").text(), "2");
    assert_eq!(changes(&bench), 2);
}

/// RLY-63: a name beside `*` loses its last subscriber; the upstream's answer (DEL-19) changes no set.
#[tokio::test]
async fn rly_63_a_name_that_leaves_beside_a_wildcard() {
    let Some(bench) = Bench::with(|setup| setup.line("linger: 100ms")).await else { return };
    bench.origin.set(CDS, "in", "1");
    bench.origin.set_unlisted(CDS, "out", "1");
    let mut wild = bench.delta("wild").await;
    wild.want(CDS, &["*"]);
    wild.settle(CDS, &[("in", "1")]).await;
    let mut named = bench.delta("named").await;
    named.want(CDS, &["in", "out"]);
    named.settle(CDS, &[("in", "1"), ("out", "1")]).await;
    assert_eq!(
        bench.origin.live_streams(),
        2,
        "names and the wildcard of one type never share a stream (RLY-13, RLY-19)"
    );
    drop(named);
    bench.origin.wait_for("the stream of the names is closed", |origin| origin.live_streams() == 1).await;
    wild.quiet().await;
    let mut late = bench.sotw("late").await;
    late.want(CDS, &["*"]);
    assert_eq!(late.take(CDS).await.names(), ["in"]);
}

/// RLY-74: a client's credentials stay at the relay.
#[tokio::test]
async fn rly_74_call_credentials_are_not_forwarded() {
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    bench.origin.set(CDS, "a", "1");
    let mut client = Client::with_token(bench.target(), Variant::Sotw, "Bearer of-the-client").await;
    client.want(CDS, &["a"]);
    client.take(CDS).await;
    for headers in bench.origin.headers() {
        assert!(!headers.contains_key("authorization"), "{headers:?}");
        assert!(!headers.values().any(|value| value.contains("of-the-client")), "{headers:?}");
    }
}

/// Two relays over one control plane: a client that moves presents its versions and gets no resource
/// (RLY-30).
#[tokio::test]
async fn rly_30_replicas_agree() {
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    let other = Relay::start(Setup::of(bench.origin.address).upstream(Variant::Sotw)).await;
    bench.origin.set_many(CDS, &[("a", "1"), ("b", "1")]);
    let mut client = bench.delta("one").await;
    client.want(CDS, &["*"]);
    client.settle(CDS, &[("a", "1"), ("b", "1")]).await;
    let mut moved = Client::open(&other.address, Variant::Delta, "one").await;
    moved.send(Ask { initial: client.versions(CDS), ..Ask::of(CDS).subscribe(&["*"]) });
    moved.quiet().await;
    // RLY-31: the relays agree on the version of a whole set, too.
    let mut here = bench.sotw("two").await;
    let mut there = Client::open(&other.address, Variant::Sotw, "two").await;
    here.want(CDS, &[]);
    there.want(CDS, &[]);
    assert_eq!(here.take(CDS).await.version, there.take(CDS).await.version);
}

/// A second control plane with the same content and other version strings: the same versions downstream (RLY-32).
#[tokio::test]
async fn rly_30_rly_32_versions_are_of_content_and_nobody_elses() {
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    let other = ControlPlane::obedient().await;
    for number in 0..5 {
        other.set(EDS, "a", &number.to_string());
    }
    let second = Relay::start(Setup::of(other.address)).await;
    other.set(EDS, "a", "same");
    bench.origin.set(EDS, "a", "same");
    let mut here = bench.delta("one").await;
    let mut there = Client::open(&second.address, Variant::Delta, "one").await;
    here.want(EDS, &["a"]);
    there.want(EDS, &["a"]);
    let (here, there) = (here.take(EDS).await, there.take(EDS).await);
    assert_eq!(here.items, there.items);
    let version = &here.items[0].version;
    assert!(version.len() == 32 && version.bytes().all(|b| b.is_ascii_hexdigit()), "{version}");
}
