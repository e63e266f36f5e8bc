//! Resources for a single client: virtual hosts on demand (VHD-1 to VHD-6, RLY-20), and resources that must
//! not be cached (CCH-1). Beside these, clusters on demand, which are shared (ODC-1).

use std::fs;

use tonic::Code;

use crate::bench::{Bench, pause};
use crate::support::control_plane::{Recorded, eventually};
use crate::support::{Ask, CDS, Client, EDS, Item, Relay, SDS, Setup, VHDS, Variant};

/// A control plane whose answers come from the test, and a resource timer that is too long to matter.
async fn scripted(change: impl FnOnce(Setup) -> Setup) -> Option<Bench> {
    Bench::scripted(|setup| change(setup.resource_timeout(60))).await
}

/// Subscribes to virtual hosts as Envoy does: the first request has no names.
async fn open_hosts(bench: &Bench, id: &str) -> (Client, Recorded) {
    let mut client = bench.delta(id).await;
    client.send(Ask::of(VHDS));
    let asked = bench.origin.expect(VHDS).await;
    (client, asked)
}

/// The next request that subscribes to this name.
async fn asked_for(bench: &Bench, type_url: &str, name: &str) -> Recorded {
    let name = name.to_owned();
    bench.origin.expect_that(type_url, |ask| ask.subscribe.contains(&name)).await
}

fn host(name: &str, text: &str) -> Item {
    Item::new(VHDS, name, "1", text)
}

/// Every client has an upstream sub-stream of its own, whose resources reach only this client.
#[tokio::test]
async fn vhd_3_rly_20_an_empty_list_is_forwarded_for_each_client() {
    let Some(bench) = scripted(|setup| setup).await else { return };
    let (mut one, asked_one) = open_hosts(&bench, "one").await;
    let (mut two, asked_two) = open_hosts(&bench, "two").await;
    assert_ne!(asked_one.stream, asked_two.stream);
    for asked in [&asked_one, &asked_two] {
        assert_eq!(asked.ask, Ask { node: asked.ask.node.clone(), ..Ask::of(VHDS) });
        assert!(asked.ask.node.is_some(), "STR-2: it is a stream of its own");
    }
    bench.origin.answer(&asked_one, "1", vec![host("r/one", "1")], &[]);
    bench.origin.answer(&asked_two, "1", vec![host("r/two", "1"), host("s/two", "1")], &[]);
    assert_eq!(one.take(VHDS).await.names(), ["r/one"]);
    assert_eq!(two.take(VHDS).await.names(), ["r/two", "s/two"]);
    bench.origin.answer(&asked_two, "2", vec![], &["s/two"]);
    assert_eq!(two.take(VHDS).await.removed, ["s/two"]);
    one.quiet().await;
    two.quiet().await;
}

/// A name on demand goes upstream at once, and again for the next client. The route configuration's name may
/// contain slashes (VHD-2).
#[tokio::test]
async fn vhd_2_vhd_4_a_host_is_asked_for_on_demand() {
    let Some(bench) = scripted(|setup| setup).await else { return };
    let mut clients = Vec::new();
    for id in ["one", "two"] {
        let (mut client, _) = open_hosts(&bench, id).await;
        client.send(Ask::of(VHDS).subscribe(&["r/c/a.example"]));
        let asked = asked_for(&bench, VHDS, "r/c/a.example").await;
        client.quiet().await;
        bench.origin.answer(&asked, "1", vec![host("r/c/a.example", id)], &[]);
        assert_eq!(client.take(VHDS).await.get("r/c/a.example").text(), id);
        client.send(Ask::of(VHDS).subscribe(&["r/c/b.example"]));
        let asked = asked_for(&bench, VHDS, "r/c/b.example").await;
        bench.origin.answer(&asked, "2", vec![], &["r/c/b.example"]);
        assert_eq!(client.take(VHDS).await.removed, ["r/c/b.example"]);
        clients.push((client, asked));
    }
    for (client, asked) in &mut clients {
        bench.origin.answer(asked, "3", vec![host("r/c/a.example", "new")], &[]);
        assert_eq!(client.take(VHDS).await.get("r/c/a.example").text(), "new");
        client.quiet().await;
    }
}

/// An entry without a payload means that no resource has this alias. The entry reaches the client unchanged,
/// not as a removal.
#[tokio::test]
async fn vhd_6_an_unknown_host_is_passed_on_without_a_payload() {
    let Some(bench) = scripted(|setup| setup).await else { return };
    let (mut client, opened) = open_hosts(&bench, "one").await;
    client.send(Ask::of(VHDS).subscribe(&["r/x.example"]));
    let asked = asked_for(&bench, VHDS, "r/x.example").await;
    let nothing = |name: &str| Item {
        name: name.to_owned(),
        version: "1".to_owned(),
        aliases: vec![name.to_owned(), format!("{name}:80")],
        ..Item::default()
    };
    bench.origin.answer(&asked, "1", vec![nothing("r/x.example")], &[]);
    let answer = client.take(VHDS).await;
    assert!(answer.removed.is_empty());
    let item = answer.get("r/x.example");
    assert_eq!(
        (&item.body, item.aliases.as_slice()),
        (&None, &["r/x.example".to_owned(), "r/x.example:80".to_owned()][..])
    );
    assert!(!item.version.is_empty());
    // The same holds on the stream that subscribed to all hosts.
    bench.origin.answer(&opened, "1", vec![nothing("r/y.example")], &[]);
    assert_eq!(client.take(VHDS).await.get("r/y.example").body, None);
    // A new host replaces the empty entry.
    bench.origin.answer(&asked, "2", vec![host("r/x.example", "1")], &[]);
    assert_eq!(client.take(VHDS).await.get("r/x.example").text(), "1");
    client.quiet().await;
}

/// The sub-streams of a client end with the client, without lingering.
#[tokio::test]
async fn rly_20_what_is_private_ends_with_its_stream() {
    let Some(bench) = scripted(|setup| setup.line("linger: 1h")).await else { return };
    let (mut one, _) = open_hosts(&bench, "one").await;
    let (two, asked_two) = open_hosts(&bench, "two").await;
    one.send(Ask::of(VHDS).subscribe(&["r/a"]));
    asked_for(&bench, VHDS, "r/a").await;
    assert_eq!(bench.origin.live_streams(), 3);
    let (_, metrics) = bench.process().get("/metrics").await;
    assert!(metrics.contains("sluice_private_sources 2"), "{metrics}");
    drop(one);
    bench.origin.wait_for("one stream is left", |origin| origin.live_streams() == 1).await;
    drop(two);
    bench.origin.wait_for("no stream is left", |origin| origin.live_streams() == 0).await;
    assert!(asked_two.ask.subscribe.is_empty());
    crate::support::control_plane::eventually("no source is left", || async {
        bench.process().get("/sources").await.1.contains("\"count\":0")
    })
    .await;
}

/// RLY-64: after an outage of the upstream, the relay restates the client's resources, and sends nothing
/// twice.
#[tokio::test]
async fn rly_20_a_private_stream_is_restated_after_an_outage() {
    let Some(bench) = scripted(|setup| setup.server_line("backoff: { initial: 10ms, max: 10ms }")).await
    else {
        return;
    };
    let (mut client, asked) = open_hosts(&bench, "one").await;
    bench.origin.answer(&asked, "1", vec![host("r/a", "1")], &[]);
    client.take(VHDS).await;
    // A set that was incomplete at the end of its stream would be requested afresh.
    client.quiet().await;
    bench.origin.close_streams(Code::Ok);
    let again = bench.origin.expect_that(VHDS, |ask| ask.initial.contains_key("r/a")).await;
    assert!(again.ask.subscribe.is_empty());
    bench.origin.answer(&again, "1", vec![host("r/a", "1"), host("r/b", "1")], &[]);
    assert_eq!(client.take(VHDS).await.names(), ["r/b"]);
    client.quiet().await;
}

#[tokio::test]
async fn vhd_1_virtual_hosts_are_refused_in_sotw() {
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    let mut client = bench.sotw("one").await;
    client.want(VHDS, &["r/a"]);
    let status = client.ended().await;
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("delta"), "{status:?}");
    assert!(bench.origin.log().is_empty());
}

/// With a control plane without delta, virtual hosts do not exist, and are not requested.
#[tokio::test]
async fn vhd_1_a_server_without_delta_is_not_asked() {
    let Some(bench) = Bench::relay(Variant::Sotw).await else { return };
    let mut client = bench.delta("one").await;
    client.want(VHDS, &["r/a"]);
    assert_eq!(client.take(VHDS).await.removed, ["r/a"]);
    assert!(bench.origin.log().is_empty());
}

#[tokio::test]
async fn rly_20_private_streams_are_bounded() {
    let Some(bench) = scripted(|setup| setup.line("limits: { private_sources: 1 }")).await else { return };
    let (mut one, _) = open_hosts(&bench, "one").await;
    let mut two = bench.delta("two").await;
    two.send(Ask::of(VHDS));
    let status = two.ended().await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("limits.private_sources"), "{status:?}");
    one.quiet().await;
}

/// A directory answers all clients alike: its virtual hosts are shared.
#[tokio::test]
async fn vhd_3_virtual_hosts_of_a_directory_are_shared() {
    let directory = tempfile::tempdir().unwrap();
    let yaml = format!(
        "type_url: {VHDS}\nresources:\n  - {{ \"@type\": {VHDS}, name: r/a, domains: [ a.example ] }}\n"
    );
    fs::write(directory.path().join("hosts.yaml"), yaml).unwrap();
    let relay = Relay::start(Setup::of(format!("file:{}", directory.path().display()))).await;
    let mut clients = Vec::new();
    for id in ["one", "two"] {
        let mut client = Client::open(&relay.address, Variant::Delta, id).await;
        client.send(Ask::of(VHDS));
        assert_eq!(client.take(VHDS).await.names(), ["r/a"]);
        client.send(Ask::of(VHDS).subscribe(&["r/b"]));
        assert_eq!(client.take(VHDS).await.removed, ["r/b"]);
        clients.push(client);
    }
    let (_, sources) = relay.get("/sources").await;
    assert!(sources.contains("\"count\":1,"), "{sources}");
}

fn uncached(type_url: &str, name: &str, text: &str) -> Item {
    Item { do_not_cache: true, ..Item::new(type_url, name, text, text) }
}

/// The second client's name is requested again, and neither client sees the other's resource.
#[tokio::test]
async fn cch_1_what_is_not_to_be_cached_is_asked_for_by_each_client() {
    for type_url in [EDS, CDS] {
        for variant in Variant::BOTH {
            let Some(bench) = scripted(|setup| setup).await else { return };
            let mut one = bench.client(variant, "one").await;
            one.want(type_url, &["plain", "e"]);
            let shared = asked_for(&bench, type_url, "e").await;
            let items = vec![uncached(type_url, "e", "0"), Item::new(type_url, "plain", "1", "1")];
            bench.origin.answer(&shared, "1", items, &[]);
            let mut asked = Vec::new();
            let own = asked_for(&bench, type_url, "e").await;
            bench.origin.answer(&own, "1", vec![uncached(type_url, "e", "one")], &[]);
            one.settle(type_url, &[("e", "one"), ("plain", "1")]).await;
            asked.push(own.stream);

            let mut two = bench.client(variant, "two").await;
            two.want(type_url, &["e"]);
            let own = asked_for(&bench, type_url, "e").await;
            two.quiet().await;
            bench.origin.answer(&own, "1", vec![uncached(type_url, "e", "two")], &[]);
            two.settle(type_url, &[("e", "two")]).await;
            asked.push(own.stream);
            bench.origin.answer(&own, "2", vec![uncached(type_url, "e", "two again")], &[]);
            two.settle(type_url, &[("e", "two again")]).await;
            one.quiet().await;
            assert!(!asked.contains(&shared.stream) && asked[0] != asked[1], "{asked:?}");
            // The shared cache never had a copy.
            let (_, resources) = bench.process().get("/resources?name=e&state=ACKED").await;
            assert!(resources.contains("\"count\":2,"), "{resources}");
        }
    }
}

/// Two clients wait for the same answer, and a third joins before the answer.
#[tokio::test]
async fn cch_1_all_who_wait_ask_for_themselves() {
    let Some(bench) = scripted(|setup| setup).await else { return };
    let mut clients = Vec::new();
    for id in ["one", "two", "three"] {
        let mut client = bench.delta(id).await;
        client.want(EDS, &["e"]);
        // The answer to a later request proves that the earlier event was handled.
        client.quiet().await;
        clients.push(client);
    }
    let shared = asked_for(&bench, EDS, "e").await;
    bench.origin.answer(&shared, "1", vec![uncached(EDS, "e", "shared")], &[]);
    for _ in &clients {
        let own = asked_for(&bench, EDS, "e").await;
        assert_ne!(own.stream, shared.stream);
        bench.origin.answer(&own, "1", vec![uncached(EDS, "e", "own")], &[]);
    }
    for client in &mut clients {
        client.settle(EDS, &[("e", "own")]).await;
        client.quiet().await;
        client.want(EDS, &[]);
    }
    drop(clients);
    let markers_only = |origin: &crate::support::ControlPlane| origin.live_streams() == 1;
    bench.origin.wait_for("the private streams end", markers_only).await;
}

/// Each client requests a wildcard with such a member for itself, as a whole.
#[tokio::test]
async fn cch_1_a_wildcard_with_a_member_that_is_not_to_be_cached_is_not_shared() {
    for variant in Variant::BOTH {
        let Some(bench) = scripted(|setup| setup).await else { return };
        for id in ["one", "two"] {
            let mut client = bench.client(variant, id).await;
            client.want(CDS, &["*"]);
            if id == "one" {
                let shared = asked_for(&bench, CDS, "*").await;
                let items = vec![Item::new(CDS, "a", "1", "1"), uncached(CDS, "b", "0")];
                bench.origin.answer(&shared, "1", items, &[]);
            }
            let own = asked_for(&bench, CDS, "*").await;
            let items = vec![Item::new(CDS, "a", "1", "1"), uncached(CDS, "b", id)];
            bench.origin.answer(&own, "1", items, &[]);
            client.settle(CDS, &[("a", "1"), ("b", id)]).await;
            client.quiet().await;
        }
    }
}

/// RLY-60: the bytes of a Secret go with its last client. The stream lingers, so a client that toggles the name opens none.
#[tokio::test]
async fn rly_60_a_secret_that_comes_and_goes_leaves_its_stream_open() {
    for upstream in Variant::BOTH {
        let Some(bench) = Bench::relay(upstream).await else { return };
        let mut client = bench.delta("one").await;
        for round in ["1", "2", "3", "4", "5"] {
            bench.origin.set(SDS, "s", round);
            client.want(SDS, &["s"]);
            client.settle(SDS, &[("s", round)]).await;
            client.want(SDS, &[]);
            eventually("the relay has no Secret", || async {
                let resources = bench.process().get("/resources?name=s").await.1;
                resources.contains("\"count\":0,")
            })
            .await;
            // Longer than any linger of a moment.
            pause(300).await;
        }
        assert_eq!(bench.origin.opened(), 1, "{upstream:?}");
    }
}

/// ODCDS: a name beside the wildcard, on the same stream. The answer comes from the server. SotW cannot
/// express that an added name does not exist (RLY-27); there the answer comes from the timer.
#[tokio::test]
async fn odc_1_clusters_on_demand_beside_a_wildcard() {
    for (upstream, timeout) in [(Variant::Delta, 60), (Variant::Sotw, 1)] {
        let bench = Bench::with(|setup| setup.upstream(upstream).resource_timeout(timeout)).await;
        let Some(bench) = bench else { return };
        bench.origin.set(CDS, "listed", "1");
        bench.origin.set_unlisted(CDS, "hidden", "1");
        let mut client = bench.delta("one").await;
        client.want(CDS, &["*"]);
        client.settle(CDS, &[("listed", "1")]).await;
        client.send(Ask::of(CDS).subscribe(&["hidden"]));
        assert_eq!(client.take(CDS).await.names(), ["hidden"]);
        client.send(Ask::of(CDS).subscribe(&["nowhere"]));
        let answer = client.take(CDS).await;
        assert!(answer.items.is_empty());
        assert_eq!(answer.removed, ["nowhere"]);
        // The cluster is created, and changes; the wildcard continues beside it.
        bench.origin.set_unlisted(CDS, "nowhere", "1");
        assert_eq!(client.take(CDS).await.names(), ["nowhere"]);
        bench.origin.set(CDS, "listed", "2");
        assert_eq!(client.take(CDS).await.names(), ["listed"]);
        // An unsubscription beside the wildcard is answered (DEL-19).
        client.send(Ask::of(CDS).unsubscribe(&["hidden"]));
        assert_eq!(client.take(CDS).await.removed, ["hidden"]);
        client.quiet().await;
    }
}
