//! Make before break on the wire: ORD-1, ORD-3, ORD-4, ORD-10, ORD-12, ORD-13, DEL-26, RLY-34, RLY-50, RLY-51.

use std::time::{Duration, Instant};

use crate::bench::{Bench, pause};
use crate::support::client::Event;
use crate::support::control_plane::eventually;
use crate::support::words::{Item, body, eds_cluster};
use crate::support::{Answer, CDS, Client, EDS, LDS, RDS, Variant};

/// Every upstream with every downstream variant.
fn variants() -> impl Iterator<Item = (Variant, Variant)> {
    Variant::BOTH.into_iter().flat_map(|up| Variant::BOTH.map(|down| (up, down)))
}

/// A client of all clusters and of one route to the cluster `x`.
async fn join(bench: &Bench, variant: Variant, id: &str) -> Client {
    bench.origin.set_many(CDS, &[("x", "1"), ("z", "1")]);
    bench.origin.set(RDS, "r", "to x");
    let mut client = bench.client(variant, id).await;
    client.want(CDS, &["*"]);
    client.settle(CDS, &[("x", "1"), ("z", "1")]).await;
    client.want(RDS, &["r"]);
    client.take(RDS).await;
    client.quiet().await;
    client
}

/// The control plane makes before it breaks, within a few milliseconds.
fn move_route(bench: &Bench) {
    bench.origin.set(CDS, "y", "1");
    bench.origin.set(RDS, "r", "to y");
    bench.origin.remove(CDS, "x");
}

/// Receives the new route without an ACK; the new cluster came before, and the old cluster is still there.
async fn take_route(client: &mut Client) -> Answer {
    loop {
        let answer = client.any().await;
        if answer.type_url == RDS {
            assert!(client.holds(CDS).contains_key("y"), "ORD-4: the route came before its cluster");
            return answer;
        }
        client.ack(&answer);
        assert!(client.holds(CDS).contains_key("x"), "ORD-3: {answer:?} removes the cluster of the route");
    }
}

#[tokio::test]
async fn ord_1_ord_3_rly_50_rly_51_a_cluster_goes_after_the_ack_of_the_route_that_left_it() {
    for (upstream, variant) in variants() {
        let Some(bench) = Bench::relay(upstream).await else { return };
        let mut slow = join(&bench, variant, "slow").await;
        let mut prompt = join(&bench, variant, "prompt").await;
        move_route(&bench);
        let route = take_route(&mut slow).await;
        prompt.settle(CDS, &[("y", "1"), ("z", "1")]).await;
        prompt.quiet().await;
        pause(300).await;
        slow.quiet().await;
        // Other clusters are added and changed in between.
        bench.origin.set(CDS, "z", "2");
        slow.settle(CDS, &[("x", "1"), ("y", "1"), ("z", "2")]).await;
        slow.ack(&route);
        slow.settle(CDS, &[("y", "1"), ("z", "2")]).await;
        slow.quiet().await;
    }
}

#[tokio::test]
async fn rly_51_after_a_nack_a_cluster_stays_until_a_later_route_is_acked() {
    for (upstream, variant) in variants() {
        let Some(bench) = Bench::relay(upstream).await else { return };
        let mut client = join(&bench, variant, "one").await;
        move_route(&bench);
        let route = take_route(&mut client).await;
        client.nack(&route, "no");
        pause(100).await;
        client.quiet().await;
        assert!(client.holds(CDS).contains_key("x"));
        bench.origin.set(RDS, "r", "to y, mended");
        let route = client.next(RDS).await;
        client.quiet().await;
        client.ack(&route);
        client.settle(CDS, &[("y", "1"), ("z", "1")]).await;
        client.quiet().await;
    }
}

/// Whether the old cluster goes last, although the control plane removes it first; `None` without a relay.
async fn moves_in_order(upstream: Variant, variant: Variant) -> Option<bool> {
    let bench = Bench::relay(upstream).await?;
    let mut client = join(&bench, variant, "one").await;
    bench.origin.remove(CDS, "x");
    pause(10).await;
    bench.origin.set(RDS, "r", "to z");
    let first = client.any().await;
    if first.type_url != RDS {
        return Some(false);
    }
    pause(100).await;
    client.quiet().await;
    assert!(client.holds(CDS).contains_key("x"), "ORD-3: the route is not ACKed");
    client.ack(&first);
    client.settle(CDS, &[("z", "1")]).await;
    client.quiet().await;
    Some(true)
}

/// Some control planes send the removal a moment before the route, as go-control-plane does in delta.
#[tokio::test]
async fn ord_3_rly_51_a_removal_goes_after_the_route_that_comes_right_behind() {
    for (upstream, variant) in variants() {
        let mut is_in_order = false;
        // On a busy machine the two may be further apart.
        for _ in 0..5 {
            let Some(found) = moves_in_order(upstream, variant).await else { return };
            is_in_order |= found;
            if found {
                break;
            }
        }
        assert!(is_in_order, "ORD-3: {upstream:?} {variant:?}: the cluster goes before the route leaves it");
    }
}

/// The next response, after at most the longest permitted wait.
async fn wait_long(client: &mut Client) -> Answer {
    match client.event_within(Duration::from_secs(25)).await {
        Event::Answer(answer) => answer,
        Event::End(status) => panic!("the stream ended with {status:?}"),
    }
}

/// The only case that waits in real time: 15 s, for all variants together.
#[tokio::test]
async fn ord_10_nothing_waits_longer_than_15_seconds() {
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    let mut clients = Vec::new();
    for variant in Variant::BOTH {
        clients.push(join(&bench, variant, "late").await);
        clients.push(join(&bench, variant, "mute").await);
    }
    let start = Instant::now();
    bench.origin.set(CDS, "w", "1");
    let [late, mute, late_delta, mute_delta] = &mut clients[..] else { return };
    for client in [&mut *mute, &mut *mute_delta] {
        client.next(CDS).await;
    }
    for client in [&mut *late, &mut *late_delta] {
        client.take(CDS).await;
    }
    move_route(&bench);
    for client in [late, late_delta] {
        // The client never ACKs the route: the removal of the cluster goes after the timeout.
        take_route(client).await;
        let clusters = wait_long(client).await;
        assert_eq!(clusters.type_url, CDS);
        client.ack(&clusters);
        assert_eq!(client.holds(CDS).into_keys().collect::<Vec<_>>(), ["w", "y", "z"]);
        assert!(start.elapsed() > Duration::from_secs(14), "{:?}", start.elapsed());
    }
    for client in [mute, mute_delta] {
        // The client never ACKs clusters: after the timeout the relay sends the next clusters beside the
        // unACKed response, and then the route (NON-4).
        let clusters = wait_long(client).await;
        assert!(clusters.type_url == CDS && clusters.names().contains(&"y"), "{clusters:?}");
        assert_eq!(client.next(RDS).await.get("r").text(), "to y");
    }
}

/// SST-6, ORD-5: a client with endpoints that are removed upstream gets the endpoints again with the changed
/// cluster.
#[tokio::test]
async fn rly_34_ord_5_endpoints_that_are_gone_follow_their_changed_cluster() {
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    let cluster = |text| eds_cluster("c", "service", text);
    bench.origin.change(|world| world.set(CDS, "c", cluster("1"), true));
    bench.origin.set(EDS, "service", "1");
    let mut client = bench.sotw("one").await;
    client.want(CDS, &["*"]);
    client.take(CDS).await;
    client.want(EDS, &["service"]);
    client.take(EDS).await;
    client.quiet_after_optional(EDS).await;
    bench.origin.remove(EDS, "service");
    client.quiet().await;
    bench.origin.change(|world| world.set(CDS, "c", cluster("2"), true));
    assert_eq!(client.take(CDS).await.get("c").text(), "2");
    assert_eq!(client.take(EDS).await.get("service").text(), "1");
    client.quiet().await;
}

/// A class without a source: the server answers for the routes first.
#[tokio::test]
async fn ord_12_first_routes_do_not_overtake_first_clusters() {
    for variant in Variant::BOTH {
        let Some(bench) = Bench::scripted(|setup| setup).await else { return };
        let mut client = bench.client(variant, "one").await;
        client.want(CDS, &["*"]);
        client.want(RDS, &["r"]);
        let (clusters, routes) = (bench.origin.expect(CDS).await, bench.origin.expect(RDS).await);
        bench.origin.answer(&routes, "1", vec![Item::new(RDS, "r", "1", "to x")], &[]);
        eventually("the route is known", || async {
            bench.process().json("/clients").await.to_string().contains("held:order")
        })
        .await;
        client.silence(Duration::from_millis(100)).await;
        bench.origin.answer(&clusters, "1", vec![Item::new(CDS, "x", "1", "1")], &[]);
        assert_eq!(client.take(CDS).await.names(), ["x"]);
        assert_eq!(client.take(RDS).await.names(), ["r"]);
    }
}

#[tokio::test]
async fn ord_13_a_route_goes_after_the_endpoints_of_its_new_cluster() {
    for (upstream, variant) in variants() {
        let Some(bench) = Bench::relay(upstream).await else { return };
        bench.origin.change(|world| world.set(CDS, "a", eds_cluster("a", "a", "1"), true));
        bench.origin.set_many(EDS, &[("a", "1"), ("b", "1")]);
        bench.origin.set(RDS, "r", "to a");
        let mut clients = Vec::new();
        for id in ["asks", "does not ask"] {
            let mut client = bench.client(variant, id).await;
            client.want(CDS, &["*"]);
            client.take(CDS).await;
            client.want(EDS, &["a"]);
            client.take(EDS).await;
            client.want(RDS, &["r"]);
            client.take(RDS).await;
            client.quiet().await;
            clients.push(client);
        }
        bench.origin.change(|world| world.set(CDS, "b", eds_cluster("b", "b", "1"), true));
        bench.origin.set(RDS, "r", "to b");
        let [asks, other] = &mut clients[..] else { return };
        let clusters = asks.next(CDS).await;
        asks.quiet().await;
        asks.want(EDS, &["a", "b"]);
        assert!(asks.take(EDS).await.names().contains(&"b"));
        assert_eq!(asks.take(RDS).await.get("r").text(), "to b");
        asks.ack(&clusters);
        asks.quiet().await;
        // The client answers for the clusters, and asks for no endpoints.
        other.take(CDS).await;
        assert_eq!(other.take(RDS).await.get("r").text(), "to b");
    }
}

/// Two listeners may have one address: the former one goes before its successor comes, in an answer of several messages.
#[tokio::test]
async fn del_26_a_removed_listener_makes_room_in_the_first_message() {
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    bench.origin.set(LDS, "zz-old", "1");
    let mut client = bench.delta("one").await;
    client.want(LDS, &["*"]);
    client.take(LDS).await;
    let large = "x".repeat(2 << 20);
    bench.origin.change(|world| {
        for name in ["aa-new", "b", "c"] {
            world.set(LDS, name, body(LDS, name, &large), true);
        }
        world.remove(LDS, "zz-old");
    });
    let first = client.next(LDS).await;
    assert_eq!((first.names(), &first.removed[..]), (vec!["aa-new"], &["zz-old".to_owned()][..]));
    client.nack(&first, "duplicate address");
    for name in ["b", "c"] {
        assert_eq!(client.take(LDS).await.names(), [name]);
    }
    assert_eq!(client.take(LDS).await.names(), ["aa-new"], "once more, after the rest");
    client.quiet().await;
}
