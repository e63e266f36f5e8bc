//! Lists of several servers: the scenarios of grpc-go (G1 to G5) and of psm-interop (P1 to P6), and FU9,
//! FU25, FU26, FU27 where a second server can help. The text of each resource names the server that supplied
//! the resource.

use std::time::{Duration, Instant};

use tonic::Code;

use crate::site::{SLACK, quick};
use crate::support::client::Event;
use crate::support::{Answer, CDS, Client, ControlPlane, EDS, Proxy, Relay, Setup, Variant};

/// One server of a list. Its proxy takes the server down and up.
struct Server {
    origin: ControlPlane,
    proxy: Proxy,
}

impl Server {
    /// A server with cluster `c` and endpoints `a` and `b`, each with the server's name as the text.
    async fn new(name: &str) -> Server {
        let origin = ControlPlane::obedient().await;
        origin.set(CDS, "c", name);
        origin.set_many(EDS, &[("a", name), ("b", name)]);
        Server { proxy: Proxy::start(origin.address).await, origin }
    }

    async fn dead(name: &str) -> Server {
        let mut server = Server::new(name).await;
        server.die().await;
        server
    }

    async fn die(&mut self) {
        self.proxy.refuse().await;
    }

    async fn revive(&mut self) {
        self.proxy.listen().await;
    }

    fn uri(&self) -> String {
        self.proxy.address.to_string()
    }

    /// RLY-60, I9: the server has no stream and no connection of the relay.
    async fn is_left(&self, relay: &Relay) {
        let start = Instant::now();
        self.origin.wait_for("no stream", |origin| origin.live_streams() == 0).await;
        let label = format!("server=\"{}\"", self.uri());
        relay.metric_reaches("sluice_upstream_connections", &[&label], 0.0).await;
        assert!(start.elapsed() < Duration::from_secs(1) + SLACK, "left after {:?}", start.elapsed());
    }

    /// Asserts that the server gets no connection within this time.
    async fn is_not_asked(&self, window: Duration) {
        let before = self.origin.opened();
        tokio::time::sleep(window).await;
        assert_eq!(self.origin.opened(), before, "FBK-1: everything is cached");
    }
}

async fn relay(servers: &[&Server]) -> Relay {
    relay_with(servers, |setup| setup).await
}

async fn relay_with(servers: &[&Server], with: impl FnOnce(Setup) -> Setup) -> Relay {
    let first = with(quick(servers[0].uri()));
    let setup = servers[1..].iter().fold(first, |setup, next| setup.next_server(next.uri()));
    Relay::start(setup.line("fallback: { resolve_timeout: 2s, hold_down: 3s }")).await
}

/// Reads until the client has these endpoints; no endpoints are removed in between.
async fn holds(client: &mut Client, wanted: &[(&str, &str)]) -> Answer {
    loop {
        match client.event_within(Duration::from_secs(20)).await {
            Event::Answer(answer) => {
                assert!(answer.type_url != EDS || answer.removed.is_empty(), "I4: {answer:?}");
                client.ack(&answer);
                let held = client.holds(EDS);
                let all = wanted.iter().all(|(name, text)| held.get(*name).is_some_and(|own| own == text));
                if all && held.len() == wanted.len() {
                    return answer;
                }
            }
            end => panic!("{end:?} while {wanted:?} was due"),
        }
    }
}

async fn open(relay: &Relay, id: &str, names: &[&str]) -> Client {
    let mut client = Client::open(&relay.address, Variant::Delta, id).await;
    client.want(EDS, names);
    client
}

/// G1, P1, FBK-1, FBK-8: no server is up, then the second, then the first. With all names cached, the loss of
/// the first server or of both changes nothing for clients.
#[tokio::test]
async fn g_1_p_1_both_down_then_up_then_down() {
    let (mut first, mut second) = (Server::dead("first").await, Server::dead("second").await);
    let relay = relay(&[&first, &second]).await;
    let mut client = open(&relay, "one", &["a"]).await;
    client.silence(Duration::from_secs(1)).await;
    second.revive().await;
    let answer = holds(&mut client, &[("a", "second")]).await;
    assert!(answer.control_plane.ends_with(&format!("via {}", second.uri())), "{}", answer.control_plane);
    let label = format!("server=\"{}\"", second.uri());
    relay.metric_reaches("sluice_fallback_streams", &[&label], 1.0).await;
    // I14: the first server is stale, whichever server serves.
    relay.is_stale(&first.uri()).await;

    first.revive().await;
    let answer = holds(&mut client, &[("a", "first")]).await;
    assert!(answer.control_plane.ends_with(&format!("via {}", first.uri())), "{}", answer.control_plane);
    second.is_left(&relay).await;
    assert_eq!(relay.metric("sluice_fallback_streams", &[&label]).await, 0.0);

    first.die().await;
    relay.is_stale(&first.uri()).await;
    second.is_not_asked(Duration::from_secs(2)).await;
    second.die().await;
    client.silence(Duration::from_secs(1)).await;
    let mut newcomer = open(&relay, "two", &["a"]).await;
    holds(&mut newcomer, &[("a", "first")]).await;
}

/// G2, P3, FU1, FBK-4: the first server dies, and a client subscribes to a name without a cached answer. The
/// second server supplies this name and all others; after the return of the first server, its new state is in
/// force.
#[tokio::test]
async fn g_2_p_3_the_first_dies_before_an_update() {
    let (mut first, second) = (Server::new("first").await, Server::new("second").await);
    let relay = relay(&[&first, &second]).await;
    let mut client = open(&relay, "one", &["a"]).await;
    holds(&mut client, &[("a", "first")]).await;
    assert_eq!(second.origin.opened(), 0, "a server in reserve is not connected to");
    let start = Instant::now();
    first.die().await;
    client.want(EDS, &["a", "b"]);
    holds(&mut client, &[("a", "second"), ("b", "second")]).await;
    assert!(start.elapsed() < Duration::from_millis(1500) + SLACK, "{:?}", start.elapsed());
    first.origin.set_many(EDS, &[("a", "new"), ("b", "new")]);
    first.revive().await;
    holds(&mut client, &[("a", "new"), ("b", "new")]).await;
    second.is_left(&relay).await;
}

/// G3, P2: the first server supplies the cluster and dies at the request for its endpoints.
#[tokio::test]
async fn g_3_p_2_the_first_dies_during_the_start() {
    let (mut first, second) = (Server::new("first").await, Server::new("second").await);
    first.origin.change(|world| ["a", "b"].iter().for_each(|name| world.remove(EDS, name)));
    let relay = relay(&[&first, &second]).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["c"]);
    client.settle(CDS, &[("c", "first")]).await;
    client.want(EDS, &["a"]);
    first.die().await;
    holds(&mut client, &[("a", "second")]).await;
    assert_eq!(client.holds(CDS)["c"], "second", "one server supplies the whole chain");
    first.origin.set(EDS, "a", "first");
    first.revive().await;
    holds(&mut client, &[("a", "first")]).await;
    second.is_left(&relay).await;
}

/// G4: a client that connects while the first server is down is served without delay.
#[tokio::test]
async fn g_4_the_first_is_down_at_the_start() {
    let (mut first, second) = (Server::dead("first").await, Server::new("second").await);
    let relay = relay(&[&first, &second]).await;
    let start = Instant::now();
    let mut client = open(&relay, "one", &["a"]).await;
    holds(&mut client, &[("a", "second")]).await;
    assert!(start.elapsed() < Duration::from_millis(1500) + SLACK, "{:?}", start.elapsed());
    first.revive().await;
    holds(&mut client, &[("a", "first")]).await;
    second.is_left(&relay).await;
}

/// G5: the whole list goes down, and up again one by one.
#[tokio::test]
async fn g_5_three_servers() {
    let (mut first, mut second) = (Server::dead("first").await, Server::dead("second").await);
    let third = Server::new("third").await;
    let relay = relay(&[&first, &second, &third]).await;
    let mut client = open(&relay, "one", &["a"]).await;
    holds(&mut client, &[("a", "third")]).await;
    second.revive().await;
    holds(&mut client, &[("a", "second")]).await;
    third.is_left(&relay).await;
    first.revive().await;
    holds(&mut client, &[("a", "first")]).await;
    second.is_left(&relay).await;
}

/// P4, FU8: a server in the middle that refuses every stream is skipped.
#[tokio::test]
async fn p_4_the_middle_one_is_broken() {
    let (mut first, second) = (Server::new("first").await, Server::new("second").await);
    let third = Server::new("third").await;
    second.origin.refuse_delta(Some(Code::Unavailable));
    let relay = relay(&[&first, &second, &third]).await;
    let mut client = open(&relay, "one", &["a"]).await;
    holds(&mut client, &[("a", "first")]).await;
    first.die().await;
    client.want(EDS, &["a", "b"]);
    holds(&mut client, &[("a", "third"), ("b", "third")]).await;
    relay.is_stale(&second.uri()).await;
}

/// P5, FBK-7: after the last server fails, the client gets an error with the name of a server, and not
/// before.
#[tokio::test]
async fn p_5_all_are_broken() {
    let (first, second) = (Server::dead("first").await, Server::dead("second").await);
    let relay = relay(&[&first, &second]).await;
    let start = Instant::now();
    let mut client = open(&relay, "one", &["a"]).await;
    match client.event_within(Duration::from_secs(25)).await {
        Event::Answer(answer) => {
            assert_eq!((answer.items.len(), answer.removed.len()), (0, 0), "{answer:?}");
            let error = &answer.errors["a"];
            assert!(
                error.message.contains(&first.uri()) || error.message.contains(&second.uri()),
                "{error:?}"
            );
            assert!(start.elapsed() > Duration::from_secs(8), "reported after {:?}", start.elapsed());
        }
        end => panic!("{end:?}"),
    }
}

/// P6, RLY-40: only a client without a needed resource moves; the other keeps its resources, and gets
/// nothing.
#[tokio::test]
async fn p_6_one_moves_and_the_other_stays() {
    let (mut first, second) = (Server::new("first").await, Server::new("second").await);
    let relay = relay(&[&first, &second]).await;
    let mut stays = open(&relay, "stays", &["a"]).await;
    let mut moves = open(&relay, "moves", &["a"]).await;
    for client in [&mut stays, &mut moves] {
        holds(client, &[("a", "first")]).await;
    }
    first.die().await;
    moves.want(EDS, &["a", "b"]);
    holds(&mut moves, &[("a", "second"), ("b", "second")]).await;
    stays.silence(Duration::from_millis(500)).await;
    let label = format!("server=\"{}\"", second.uri());
    assert_eq!(relay.metric("sluice_fallback_streams", &[&label]).await, 1.0);
    first.revive().await;
    holds(&mut moves, &[("a", "first"), ("b", "first")]).await;
    stays.silence(Duration::from_millis(500)).await;
    second.is_left(&relay).await;
}

/// RLY-44: a first server that returns and finds every version current may be silent. The relay still detects
/// the return, long before the silence counts as an answer.
#[tokio::test]
async fn rly_44_a_server_that_comes_back_unchanged_is_heard_at_once() {
    let (mut first, second) = (Server::new("first").await, Server::new("second").await);
    let relay =
        relay_with(&[&first, &second], |setup| setup.line("fallback_on_reachability_only: true")).await;
    let mut client = open(&relay, "one", &["a"]).await;
    holds(&mut client, &[("a", "first")]).await;
    first.die().await;
    holds(&mut client, &[("a", "second")]).await;
    first.revive().await;
    let start = Instant::now();
    holds(&mut client, &[("a", "first")]).await;
    // The resource timeout of the relay is a minute.
    assert!(start.elapsed() < Duration::from_secs(5), "back after {:?}", start.elapsed());
    second.is_left(&relay).await;
}

/// RLY-44: in SotW a server says nothing about missing names. A client that does not need such a name returns
/// at once all the same, long before the silence counts as an answer, or the limit ends.
#[tokio::test]
async fn rly_44_a_silent_name_of_one_client_keeps_no_other_from_returning() {
    let (mut first, second) = (Server::new("first").await, Server::new("second").await);
    let setup = quick(first.uri()).upstream(Variant::Sotw).next_server(second.uri());
    let relay = Relay::start(setup.line("fallback_on_reachability_only: true")).await;
    let mut returns = open(&relay, "returns", &["a"]).await;
    let mut waits = open(&relay, "waits", &["b"]).await;
    holds(&mut returns, &[("a", "first")]).await;
    holds(&mut waits, &[("b", "first")]).await;
    first.die().await;
    holds(&mut returns, &[("a", "second")]).await;
    holds(&mut waits, &[("b", "second")]).await;
    first.origin.remove(EDS, "b");
    first.revive().await;
    let start = Instant::now();
    holds(&mut returns, &[("a", "first")]).await;
    assert!(start.elapsed() < Duration::from_secs(5), "back after {:?}", start.elapsed());
    waits.silence(Duration::from_millis(200)).await;
}

/// FU9: a server that answers and dies, over and over, counts as unreachable after the fifth time within a
/// minute, although a single such end is no error (CLI-2).
#[tokio::test]
async fn fu_9_answering_and_dying_is_unreachable() {
    let (first, second) = (Server::new("first").await, Server::new("second").await);
    let relay =
        relay_with(&[&first, &second], |setup| setup.line("fallback_on_reachability_only: true")).await;
    let mut client = open(&relay, "one", &["a"]).await;
    holds(&mut client, &[("a", "first")]).await;
    let (start, mut ended, mut deaths) = (Instant::now(), 0, 0);
    while client.holds(EDS)["a"] != "second" {
        assert!(start.elapsed() < Duration::from_secs(30), "after {deaths} deaths it still counts as well");
        if first.origin.log().iter().any(|r| r.stream > ended && !r.ask.nonce.is_empty()) {
            ended = first.origin.opened();
            deaths += 1;
            first.origin.close_streams(Code::Unavailable);
            first.origin.change(|world| world.restart());
        }
        let event = tokio::time::timeout(Duration::from_millis(5), client.event()).await;
        if let Ok(Event::Answer(answer)) = event {
            assert_eq!(answer.removed, [""; 0]);
            client.ack(&answer);
        }
    }
    assert!((5..=6).contains(&deaths), "moved after {deaths} deaths");
    relay.is_stale(&first.uri()).await;
    // One line for the source, one for the move.
    relay.warned(2).await;
}

/// FU25: a server that goes up and down all the time moves a client at most three times, then once per
/// `hold_down`; the client's set of resources never shrinks.
#[tokio::test]
async fn fu_25_a_flapping_server() {
    let (mut first, second) = (Server::new("first").await, Server::new("second").await);
    for number in 0..40 {
        for server in [&first, &second] {
            server.origin.set(EDS, &format!("n{number}"), "text");
        }
    }
    let relay = relay(&[&first, &second]).await;
    let mut client = open(&relay, "one", &["a"]).await;
    holds(&mut client, &[("a", "first")]).await;
    let mut names = vec!["a".to_owned()];
    let start = Instant::now();
    let window = Duration::from_secs(12);
    while start.elapsed() < window {
        first.die().await;
        names.push(format!("n{}", names.len()));
        client.want(EDS, &names.iter().map(String::as_str).collect::<Vec<_>>());
        tokio::time::sleep(Duration::from_millis(500)).await;
        first.revive().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let moves = relay.metric("sluice_fallback_moves_total", &[]).await;
    let most = 3.0 + start.elapsed().as_secs_f64() / 3.0 + 1.0;
    assert!((2.0..=most).contains(&moves), "{moves} moves in {:?}", start.elapsed());
    // In the end the client has everything, and nothing was removed in between.
    while client.holds(EDS).len() < names.len() {
        let answer = client.take(EDS).await;
        assert_eq!(answer.removed, [""; 0], "{answer:?}");
    }
}

/// FU26, FU27, RLY-41, RLY-42, I9: the members of a wildcard come from one server: from the second while the
/// second serves, and from the first after its return with fewer members. The set is never a mix.
#[tokio::test]
async fn fu_26_fu_27_servers_that_disagree() {
    let (mut first, second) = (Server::new("first").await, Server::new("second").await);
    first.origin.set_many(CDS, &[("only-first", "first"), ("leaves", "first")]);
    second.origin.set(CDS, "only-second", "second");
    let relay = relay(&[&first, &second]).await;
    for variant in Variant::BOTH {
        let mut client = Client::open(&relay.address, variant, "one").await;
        client.want(CDS, &["*"]);
        client.settle(CDS, &[("c", "first"), ("only-first", "first"), ("leaves", "first")]).await;
        client.want(EDS, &["a"]);
        holds(&mut client, &[("a", "first")]).await;
        first.die().await;
        let late = format!("late-{variant:?}");
        second.origin.set(EDS, &late, "second");
        client.want(EDS, &["a", &late]);
        holds(&mut client, &[("a", "second"), (&late, "second")]).await;
        client.settle(CDS, &[("c", "second"), ("only-second", "second")]).await;
        first.origin.remove(CDS, "leaves");
        first.origin.set(EDS, &late, "first");
        first.revive().await;
        client.settle(CDS, &[("c", "first"), ("only-first", "first")]).await;
        holds(&mut client, &[("a", "first"), (&late, "first")]).await;
        second.is_left(&relay).await;
        first.origin.set(CDS, "leaves", "first");
    }
}

/// FU4, FU2: fallback does not require a refusal.
#[tokio::test]
async fn fu_2_fu_4_fallback_from_silence() {
    for stopped in [false, true] {
        let (first, second) = (Server::new("first").await, Server::new("second").await);
        let relay = relay_with(&[&first, &second], |setup| setup.resource_timeout(1)).await;
        let mut client = open(&relay, "one", &["a"]).await;
        let mut cached = open(&relay, "cached", &["a"]).await;
        for client in [&mut client, &mut cached] {
            holds(client, &[("a", "first")]).await;
        }
        if stopped {
            first.proxy.hang()
        } else {
            first.proxy.partition()
        }
        let start = Instant::now();
        client.want(EDS, &["a", "b"]);
        holds(&mut client, &[("a", "second"), ("b", "second")]).await;
        // A second until the timer, ten until the probe's timeout, half a second for SETTINGS that do not
        // arrive; or the missing acknowledgement.
        let bound = if stopped { Duration::from_millis(11_500) } else { Duration::from_millis(4_000) };
        assert!(start.elapsed() < bound + SLACK, "{:?}", start.elapsed());
        cached.silence(Duration::from_millis(100)).await;
        first.proxy.heal();
        holds(&mut client, &[("a", "first"), ("b", "first")]).await;
        second.is_left(&relay).await;
    }
}
