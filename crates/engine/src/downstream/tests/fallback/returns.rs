//! The return to a higher server: RLY-44, RLY-51, RLY-60.

use crate::cache::SessionId;
use crate::downstream::tests::bench::{Bench, CDS, ClientId, EDS, LDS, RDS, resources, url};
use crate::downstream::tests::fallback::*;
use crate::source::{Attachment, Streams};
use crate::upstream::{Input, UpstreamSettings};
use sluice_xds::{BadElement, Received, Response, SotwResponse, Variant};

/// Only the listener's name is the same on both servers: the listener leads to other routes and another
/// cluster.
#[test]
fn rly_51_on_the_way_back_a_cluster_stays_until_the_client_has_left_it() {
    for leaves in [true, false] {
        let mut bench = servers(2);
        let client = bench.sotw();
        bench.ask(client, LDS, "l");
        bench.lose(0);
        bench.follow(client);
        bench.hear(1);
        bench.names(1, LDS, "l=second");
        bench.follow(client);
        bench.ask(client, RDS, "second");
        bench.names(1, RDS, "second=1");
        bench.ask(client, CDS, "second");
        bench.names(1, CDS, "second=1");
        assert_eq!(bench.follow(client), "Cluster second=1; RouteConfiguration second=1");

        bench.hear(0);
        bench.names(0, LDS, "l=first");
        bench.names(0, RDS, "-second");
        bench.names(0, CDS, "-second");
        assert_eq!(bench.follow(client), "Listener l=first", "it has no other routes yet");
        bench.ask(client, RDS, "first");
        assert_eq!(bench.follow(client), "");
        bench.names(0, RDS, "first=1");
        assert_eq!(bench.follow(client), "RouteConfiguration first=1");
        bench.ask(client, CDS, "first second");
        assert_eq!(bench.follow(client), "");
        bench.names(0, CDS, "first=1");
        assert_eq!(bench.follow(client), "Cluster first=1 second=1");
        if leaves {
            bench.ask(client, CDS, "first");
            assert_eq!(bench.follow(client), "");
        } else {
            // No source needs a timer for the wait.
            bench.now = bench.now + SECOND * 16;
            assert_eq!(bench.follow(client), "Cluster first=1", "nothing waits for ever");
        }
        bench.check(client, CDS, "first=1");
    }
}

#[test]
fn rly_44_and_rly_60_a_return_waits_for_all_and_closes_the_lower_server_at_once() {
    let mut bench = servers(2);
    let client = bench.sotw();
    bench.ask(client, CDS, "");
    bench.ask(client, EDS, "a");
    bench.lose(0);
    bench.follow(client);
    bench.hear(1);
    bench.all(1, CDS, "a=e1");
    bench.names(1, EDS, "a=1");
    assert_eq!(bench.follow(client), "Cluster a=e1; ClusterLoadAssignment a=1");

    bench.hear(0);
    assert_eq!(bench.follow(client), "");
    bench.all(0, CDS, "a=e2");
    assert_eq!((bench.follow(client).as_str(), bench.serving(client)), ("", 1), "no mixture (I9)");
    bench.names(0, EDS, "a=2");
    assert_eq!(bench.follow(client), "Cluster a=e2; ClusterLoadAssignment a=2");
    assert!(bench.sources[1].is_idle(), "nothing lingers");
    assert!(!bench.sources[0].is_idle());
}

/// SotW servers that both answered for `a` and `b`. The second server serves all clients.
fn outlived(clients: &[&str]) -> (Bench, Vec<ClientId>) {
    let settings = UpstreamSettings { variant: Variant::Sotw, ..UpstreamSettings::default() };
    let streams = || Attachment::Streams(Box::new(Streams::new(settings.clone())));
    let mut bench = Bench::new((0..2).map(|_| streams()).collect());
    (bench.servers, bench.reachability_only) = (2, true);
    let clients: Vec<_> = clients
        .iter()
        .map(|names| {
            let client = bench.sotw();
            bench.ask(client, EDS, names);
            client
        })
        .collect();
    bench.opens(0);
    bench.answers_names(0, "a=1 b=1");
    clients.iter().for_each(|client| drop(bench.follow(*client)));
    bench.lose(0);
    clients.iter().for_each(|client| drop(bench.follow(*client)));
    bench.opens(1);
    bench.answers_names(1, "a=2 b=2");
    for client in &clients {
        bench.follow(*client);
        assert_eq!(bench.serving(*client), 1);
    }
    bench.advance(SECOND * 10);
    bench.opens(0);
    bench.woken.clear();
    (bench, clients)
}

impl Bench {
    fn opens(&mut self, server: usize) {
        self.sources[server].handle_upstream(0, Input::Opened, self.now);
        self.settle();
    }

    /// A SotW response; `!b` is a bad element.
    fn answers_names(&mut self, server: usize, list: &str) {
        let good = resources(EDS, list).into_iter().map(|resource| {
            let name = resource.name.clone();
            Ok(Received { name, upstream_version: "".into(), resource: Some(resource), ttl: None })
        });
        let bad = list.split_whitespace().filter_map(|word| word.strip_prefix('!')).map(|name| {
            Err(BadElement { name: Some(name.into()), reason: "bad".to_owned(), is_instance: true })
        });
        let response = SotwResponse {
            version_info: "v".to_owned(),
            type_url: url(EDS),
            states_type: true,
            nonce: "n".to_owned(),
            resources: good.chain(bad).collect(),
            errors: Vec::new(),
            control_plane: String::new(),
        };
        let received = Input::Received(Response::Sotw(response));
        self.sources[server].handle_upstream(0, received, self.now);
        self.settle();
    }

    /// Whether the session was woken since the last call.
    fn looks(&mut self, client: ClientId) -> bool {
        self.woken.remove(&SessionId(client as u64))
    }
}

#[test]
fn rly_44_a_session_returns_when_its_own_names_are_answered() {
    let (mut bench, clients) = outlived(&["a", "b", "a b"]);
    let (one, other, both) = (clients[0], clients[1], clients[2]);
    bench.answers_names(0, "a=3");
    assert_eq!(bench.follow(one), "ClusterLoadAssignment a=3");
    assert_eq!((bench.follow(other).as_str(), bench.serving(other)), ("", 1), "before, none do (I9)");
    assert_eq!((bench.follow(both).as_str(), bench.serving(both)), ("", 1), "no mixture (I9)");
    bench.woken.clear();
    bench.advance(SECOND);
    // The content is the server's content from before the loss, so nothing changes.
    bench.answers_names(0, "b=1");
    assert!(bench.looks(other) && bench.looks(both), "nothing else would wake it");
    assert_eq!(bench.follow(other), "ClusterLoadAssignment b=1");
    assert_eq!(bench.follow(both), "ClusterLoadAssignment a=3 b=1");
    assert!(bench.sources[1].is_idle(), "nothing lingers");
}

/// The type becomes current as a whole by an answer for another client.
#[test]
fn rly_44_whoever_waits_for_a_type_is_woken_though_only_others_have_news() {
    let (mut bench, clients) = outlived(&["a", "b"]);
    bench.answers_names(0, "a=1");
    bench.advance(SECOND);
    bench.woken.clear();
    bench.answers_names(0, "b=3");
    assert!(bench.looks(clients[0]));
}

#[test]
fn rly_44_what_a_rejected_response_says_makes_no_session_return() {
    for rejected in ["!a", "!a b=3", "a=3 a=4"] {
        let (mut bench, clients) = outlived(&["a", "b"]);
        bench.answers_names(0, rejected);
        for client in &clients {
            assert_eq!((bench.follow(*client).as_str(), bench.serving(*client)), ("", 1), "{rejected}");
        }
        bench.answers_names(0, "a=5");
        assert_eq!(bench.follow(clients[0]), "ClusterLoadAssignment a=5", "{rejected}");
    }
}

#[test]
fn rly_44_names_that_are_never_answered_return_by_silence() {
    let (mut bench, clients) = outlived(&["a", "b"]);
    bench.answers_names(0, "a=3");
    bench.follow(clients[0]);
    bench.advance(SECOND * 9);
    assert_eq!((bench.follow(clients[1]).as_str(), bench.serving(clients[1])), ("", 1));
    bench.woken.clear();
    bench.advance(SECOND);
    assert!(bench.looks(clients[1]));
    assert_eq!(bench.follow(clients[1]), "ClusterLoadAssignment b=1");
}
