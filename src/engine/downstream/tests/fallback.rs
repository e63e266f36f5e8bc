//! Several servers in one list: FBK, and RLY-40 to RLY-49.

use std::time::Duration;

use super::bench::{Bench, CDS, ClientId, EDS, LDS, RDS, resources, streams, url};
use crate::engine::cache::SessionId;
use crate::engine::downstream::SourceId;
use crate::engine::reach::Reach;
use crate::engine::source::{Attachment, Streams};
use crate::engine::upstream::{Event, Input, Scope, Settings};
use crate::xds::{
    BadElement, Code, DeltaResponse, Received, ResourceError, Response, SotwResponse, Status, Variant,
};

const SECOND: Duration = Duration::from_secs(1);

/// The servers of one list, all connecting.
fn servers(count: u16) -> Bench {
    let mut bench = Bench::new((0..count).map(|_| streams()).collect());
    bench.servers = count;
    bench
}

fn down() -> Status {
    Status::new(Code::Unavailable, "down")
}

impl Bench {
    /// A server becomes unreachable.
    pub fn lose(&mut self, server: usize) {
        self.lose_all(server, 1);
    }

    /// As [`Bench::lose`], with this number of streams.
    fn lose_all(&mut self, server: usize, streams: usize) {
        for stream in 0..streams {
            let closed = Input::Closed { status: down(), jitter: 0.0 };
            self.sources[server].handle_upstream(stream, closed, self.now);
        }
        self.advance(SECOND);
        for stream in 0..streams {
            let failed = Input::ConnectFailed { status: down() };
            self.sources[server].handle_upstream(stream, failed, self.now);
        }
        self.settle();
        assert!(matches!(self.snapshots[server].reach(), Reach::Lost { .. }), "server {server}");
    }

    /// A server answers on a stream for every type; the resources come with [`Bench::changes`].
    pub fn hear(&mut self, server: usize) {
        self.hear_all(server, 1);
    }

    /// As [`Bench::hear`], with this number of streams.
    fn hear_all(&mut self, server: usize, streams: usize) {
        self.hear_of(server, streams, &[CDS, EDS, LDS, RDS]);
    }

    /// As [`Bench::hear`], for these types.
    fn hear_of(&mut self, server: usize, streams: usize, messages: &[&str]) {
        for stream in 0..streams {
            self.sources[server].handle_upstream(stream, Input::Opened, self.now);
            for message in messages {
                let response = DeltaResponse {
                    system_version_info: String::new(),
                    type_url: url(message),
                    nonce: "n".into(),
                    resources: Vec::new(),
                    removed: Vec::new(),
                    errors: Vec::new(),
                    control_plane: String::new(),
                };
                let received = Input::Received(Response::Delta(response));
                self.sources[server].handle_upstream(stream, received, self.now);
            }
        }
        self.settle();
        assert!(matches!(self.snapshots[server].reach(), Reach::Heard { .. }), "server {server}");
    }

    fn names(&mut self, server: usize, message: &str, list: &str) {
        self.changes(server, message, Scope::Names, list, false);
    }

    fn all(&mut self, server: usize, message: &str, list: &str) {
        self.changes(server, message, Scope::Wildcard, list, true);
    }

    fn serving(&self, client: ClientId) -> u16 {
        self.clients[client].session.served_by().map(|(_, server)| server).next().unwrap_or(0)
    }

    fn asks(&self, client: ClientId, server: u64) -> bool {
        self.clients[client].session.uses(SourceId(server))
    }

    /// Makes due moves, and drains the responses.
    fn follow(&mut self, client: ClientId) -> String {
        self.shift(client);
        self.drain(client)
    }
}

#[test]
fn rly_40_one_client_that_lacks_something_moves_nobody_else() {
    let mut bench = servers(2);
    let (content, newcomer) = (bench.delta(), bench.delta());
    bench.change(content, EDS, "+a");
    bench.hear(0);
    bench.names(0, EDS, "a=1");
    assert_eq!(bench.follow(content), "ClusterLoadAssignment a=1");
    bench.lose(0);
    assert_eq!((bench.follow(content).as_str(), bench.asks(content, 1)), ("", false), "FBK-1: all is cached");

    bench.change(newcomer, EDS, "+a +b");
    assert_eq!(bench.follow(newcomer), "ClusterLoadAssignment a=1", "RLY-1: what is known comes at once");
    assert!(bench.asks(newcomer, 1) && bench.asks(newcomer, 0), "FBK-4, FBK-5: both are asked for all");
    bench.hear(1);
    bench.names(1, EDS, "a=other b=2");
    assert_eq!(bench.follow(newcomer), "ClusterLoadAssignment a=other b=2");
    assert_eq!((bench.serving(newcomer), bench.serving(content)), (1, 0));
    assert_eq!(bench.follow(content), "");
    bench.check(content, EDS, "a=1");
}

#[test]
fn rly_43_identical_data_is_no_traffic_both_ways() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, CDS, "");
    bench.change(client, EDS, "+a +b");
    bench.hear(0);
    bench.all(0, CDS, "a=e1 b=e1");
    bench.names(0, EDS, "a=1");
    assert_eq!(bench.follow(client), "Cluster a=e1 b=e1; ClusterLoadAssignment a=1");
    bench.lose(0);
    assert_eq!(bench.follow(client), "");
    bench.hear(1);
    bench.all(1, CDS, "a=e1 b=e1");
    bench.names(1, EDS, "a=1 b=1");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment b=1");
    assert_eq!(bench.serving(client), 1);

    bench.hear(0);
    bench.names(0, EDS, "b=1");
    assert_eq!(bench.follow(client), "");
    assert_eq!((bench.serving(client), bench.asks(client, 1)), (0, false));
}

#[test]
fn fbk_11_a_name_added_in_fallback_is_asked_of_every_open_server() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, EDS, "+a");
    bench.lose(0);
    bench.follow(client);
    bench.hear(1);
    bench.names(1, EDS, "a=1");
    bench.follow(client);
    bench.change(client, EDS, "+b");
    for server in [0, 1] {
        let names = bench.snapshots[server].of(&url(EDS)).map(|types| types.named.len());
        assert_eq!(names, Some(2), "server {server}");
    }
}

#[test]
fn rly_42_absence_on_the_second_server_deletes_no_name_that_the_first_supplied() {
    for delta in [false, true] {
        let mut bench = servers(2);
        let client = if delta { bench.delta() } else { bench.sotw() };
        let ask = |bench: &mut Bench, list: &str| match delta {
            true => bench.change(client, CDS, list),
            false => bench.ask(client, CDS, list.replace('+', "").as_str()),
        };
        ask(&mut bench, "+a +b");
        bench.hear(0);
        bench.names(0, CDS, "a=1 b=1");
        assert_eq!(bench.follow(client), "Cluster a=1 b=1");
        bench.lose(0);
        ask(&mut bench, if delta { "+c" } else { "+a +b +c" });
        assert_eq!(bench.follow(client), "");
        bench.hear(1);
        bench.names(1, CDS, "a=2 -b c=2");
        let news = if delta { "Cluster a=2 c=2" } else { "Cluster a=2 b=1 c=2" };
        assert_eq!(bench.follow(client), news);
        bench.check(client, CDS, "a=2 b=1 c=2");

        // A newcomer to the second server is sent the same resources.
        let newcomer = if delta { bench.delta() } else { bench.sotw() };
        match delta {
            true => bench.change(newcomer, CDS, "+a +b +c"),
            false => bench.ask(newcomer, CDS, "a b c"),
        };
        assert_eq!(bench.follow(newcomer), "Cluster a=2 b=1 c=2");
    }
}

#[test]
fn rly_42_overdue_types_are_told_what_a_higher_server_supplies_by_now() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, EDS, "+a +b");
    bench.change(client, RDS, "+r +s");
    bench.hear(0);
    bench.names(0, RDS, "s=1");
    bench.drain(client);
    bench.lose(0);
    bench.shift(client);
    bench.hear(1);
    bench.names(1, EDS, "a=1 b=1");
    bench.names(1, RDS, "r=1 -s");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment a=1 b=1; RouteConfiguration r=1");
    assert_eq!(bench.serving(client), 1);

    bench.names(1, EDS, "b=2");
    assert_eq!(bench.poll(client), "ClusterLoadAssignment b=2");
    bench.names(1, EDS, "b=3");
    bench.names(1, RDS, "r=2");
    assert_eq!(bench.poll(client), "");
    bench.advance(SECOND * 15);
    bench.names(1, EDS, "b=4 -a");
    bench.names(1, RDS, "r=2 -s");
    assert_eq!(bench.poll(client), "ClusterLoadAssignment b=4", "what is gone waits for the route (RLY-51)");
    // The turn of the routing types has begun. The client is slow, and the first server comes back meanwhile.
    bench.advance(SECOND * 15);
    bench.hear(0);
    bench.names(0, EDS, "a=5");
    bench.names(0, RDS, "s=5");
    assert_eq!(bench.poll(client), "ClusterLoadAssignment a=5");
    assert_eq!(bench.poll(client), "RouteConfiguration r=2 s=5");
    assert_eq!(bench.serving(client), 1);
}

#[test]
fn rly_51_what_no_server_supplies_any_more_goes_after_the_routes() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, EDS, "+a +b");
    bench.change(client, RDS, "+r");
    bench.hear(0);
    bench.names(0, EDS, "a=1");
    bench.names(0, RDS, "r=a");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment a=1; RouteConfiguration r=a");
    bench.lose(0);
    bench.follow(client);
    bench.hear(1);
    bench.names(1, EDS, "-a b=1");
    bench.names(1, RDS, "r=a");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment b=1", "the first server supplied a");
    assert_eq!(bench.serving(client), 1);

    bench.names(0, EDS, "-a");
    assert_eq!(bench.poll(client), "");
    bench.names(1, RDS, "r=b");
    assert_eq!(bench.drain(client), "RouteConfiguration r=b; ClusterLoadAssignment -a");
}

#[test]
fn rly_42_a_server_whose_errors_count_deletes() {
    let mut bench = servers(2);
    bench.deleting = 0b10;
    let client = bench.delta();
    bench.change(client, CDS, "+a +b");
    bench.hear(0);
    bench.names(0, CDS, "a=1");
    bench.follow(client);
    bench.lose(0);
    bench.follow(client);
    bench.hear(1);
    bench.names(1, CDS, "-a b=2");
    assert_eq!(bench.follow(client), "Cluster b=2 -a");
}

#[test]
fn rly_42_a_wildcard_is_taken_as_a_whole_and_removals_come_last() {
    for delta in [false, true] {
        let mut bench = servers(2);
        let client = if delta { bench.delta() } else { bench.sotw() };
        for (message, list) in [(CDS, ""), (LDS, "")] {
            match delta {
                true => bench.change(client, message, list),
                false => bench.ask(client, message, list),
            };
        }
        match delta {
            true => bench.change(client, RDS, "+r +s"),
            false => bench.ask(client, RDS, "r s"),
        };
        bench.hear(0);
        bench.all(0, CDS, "a=1 b=1");
        bench.all(0, LDS, "l=1");
        bench.names(0, RDS, "r=b");
        bench.follow(client);
        bench.lose(0);
        assert_eq!(bench.follow(client), "", "RLY-41: nothing before the second server has it all");
        bench.hear(1);
        bench.all(1, CDS, "b=1 c=1");
        assert_eq!(bench.follow(client), "");
        bench.all(1, LDS, "l=1");
        bench.names(1, RDS, "r=c s=1");
        let transcript = bench.follow(client);
        let expected = match delta {
            true => "Cluster c=1; RouteConfiguration r=c s=1; Cluster -a",
            false => "Cluster a=1 b=1 c=1; RouteConfiguration r=c s=1; Cluster b=1 c=1",
        };
        assert_eq!(transcript, expected, "ORD-1, RLY-51: clusters, routes, removals");
        bench.check(client, CDS, "b=1 c=1");
    }
}

/// Only the listener's name is the same on both servers: the listener leads to other routes and another cluster.
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
    let settings = Settings { variant: Variant::Sotw, ..Settings::default() };
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

#[test]
fn rly_45_a_name_known_not_to_exist_is_no_reason_to_leave() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, EDS, "+typo");
    bench.hear(0);
    bench.names(0, EDS, "-typo");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment -typo");
    bench.lose(0);
    bench.follow(client);
    assert!(!bench.asks(client, 1), "FBK-2");
}

#[test]
fn fbk_3_a_name_that_has_an_error_is_no_reason_to_leave() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, EDS, "+a");
    bench.hear(0);
    bench.fails(EDS, "a", Code::Internal);
    bench.follow(client);
    bench.lose(0);
    bench.follow(client);
    assert!(!bench.asks(client, 1));
}

#[test]
fn fbk_17_with_reachability_only_all_clients_go() {
    let mut bench = servers(2);
    bench.reachability_only = true;
    let client = bench.delta();
    bench.change(client, EDS, "+a");
    bench.hear(0);
    bench.names(0, EDS, "a=1");
    bench.follow(client);
    bench.lose(0);
    assert_eq!(bench.follow(client), "");
    bench.hear(1);
    bench.names(1, EDS, "a=2");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment a=2");
}

#[test]
fn rly_46_while_all_are_down_newcomers_get_what_is_known() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, CDS, "");
    bench.change(client, EDS, "+a");
    bench.hear(0);
    bench.all(0, CDS, "a=e1");
    bench.names(0, EDS, "a=1");
    bench.follow(client);
    bench.lose(0);
    bench.leave(client);
    bench.advance(SECOND * 3600);
    let newcomer = bench.delta();
    bench.change(newcomer, CDS, "");
    bench.change(newcomer, EDS, "+a +b");
    let expected = "Cluster a=e1; ClusterLoadAssignment a=1";
    assert_eq!(bench.follow(newcomer), expected, "an hour after the last client left");
    bench.lose(1);
    assert_eq!(bench.follow(newcomer), "");
    bench.check(newcomer, EDS, "a=1");
}

#[test]
fn rly_4_a_session_is_stranded_when_no_server_can_answer_what_it_lacks() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, EDS, "+a");
    let stranded = |bench: &Bench, impatient| {
        let latest = |id: SourceId| bench.snapshots.get(id.0 as usize).cloned();
        bench.clients[client].session.is_stranded(&latest, impatient)
    };
    assert_eq!((stranded(&bench, false), stranded(&bench, true)), (false, true), "on its way");
    bench.lose(0);
    bench.follow(client);
    assert!(!stranded(&bench, false), "the second one is asked first");
    bench.lose(1);
    bench.follow(client);
    assert!(stranded(&bench, false));
    bench.hear(1);
    assert!(!stranded(&bench, true), "whoever is heard may answer yet");
}

#[test]
fn fbk_1_what_a_source_was_not_told_of_yet_does_not_lack() {
    let mut bench = servers(2);
    let (first, second) = (bench.delta(), bench.delta());
    bench.change(first, EDS, "+a +b");
    bench.hear(0);
    bench.names(0, EDS, "a=1 b=1");
    bench.lose(0);
    bench.slow_watches = true;
    bench.change(second, EDS, "+a");
    assert_eq!((bench.follow(second).as_str(), bench.asks(second, 1)), ("", false));
    bench.deliver(second, 1);
    assert_eq!(bench.follow(second), "ClusterLoadAssignment a=1");
    assert!(!bench.asks(second, 1));
}

#[test]
fn rly_43_an_error_of_a_lower_server_beside_a_name_of_the_first_is_nothing() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, EDS, "+a +b");
    bench.hear(0);
    bench.names(0, EDS, "a=1");
    bench.follow(client);
    bench.lose(0);
    bench.follow(client);
    bench.hear(1);
    bench.names(1, EDS, "b=1 -a");
    let error = ResourceError { name: "a".into(), status: Status::new(Code::PermissionDenied, "no") };
    let event = Event::ResourceError { type_url: url(EDS), error };
    bench.sources[1].handle_event(&event, bench.now);
    bench.settle();
    assert_eq!(bench.follow(client), "ClusterLoadAssignment b=1");
    assert_eq!(bench.serving(client), 1);
    bench.hear(0);
    bench.names(0, EDS, "b=1");
    assert_eq!(bench.follow(client), "");
    assert_eq!(bench.serving(client), 0);
}

#[test]
fn fbk_3_a_name_of_which_the_only_instance_was_nacked_is_no_reason_to_leave() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, EDS, "+a");
    bench.hear(0);
    let faults = vec![("a".into(), "bad".to_owned())];
    let event = Event::Malformed { type_url: url(EDS), faults };
    bench.sources[0].handle_event(&event, bench.now);
    bench.settle();
    bench.follow(client);
    bench.lose(0);
    bench.follow(client);
    assert!(!bench.asks(client, 1));
}

#[test]
fn fbk_3_that_no_server_is_reachable_is_no_answer() {
    let mut bench = servers(2);
    let (cached, client) = (bench.delta(), bench.delta());
    bench.change(cached, EDS, "+a");
    bench.hear(0);
    bench.names(0, EDS, "a=1");
    bench.follow(cached);
    // A hanging server: pending names are told to be unavailable (ERR-10) before the server counts as lost.
    bench.sources[0].handle_upstream(0, Input::Closed { status: down(), jitter: 0.0 }, bench.now);
    bench.settle();
    bench.change(client, EDS, "+a +b");
    bench.advance(SECOND * 11);
    assert_eq!(bench.follow(client), "ClusterLoadAssignment a=1 !b:UNAVAILABLE");
    bench.sources[0].handle_upstream(0, Input::ConnectFailed { status: down() }, bench.now);
    bench.settle();
    bench.follow(client);
    assert!(bench.asks(client, 1), "FBK-1: b lacks still");
}

#[test]
fn rly_42_what_the_wildcard_of_the_second_server_has_it_does_not_lack_as_a_name() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, CDS, "+* +f");
    bench.hear_all(0, 2);
    bench.all(0, CDS, "f=1");
    bench.names(0, CDS, "f=1");
    assert_eq!(bench.follow(client), "Cluster f=1");
    bench.lose_all(0, 2);
    bench.change(client, EDS, "+z");
    bench.follow(client);
    bench.hear_all(1, 2);
    // The server does not answer for the name until the client takes the server as is (RLY-41).
    bench.all(1, CDS, "f=2");
    bench.advance(SECOND * 16);
    bench.names(1, EDS, "z=2");
    assert_eq!(bench.follow(client), "Cluster f=2; ClusterLoadAssignment z=2");
    bench.check(client, CDS, "f=2");
}

#[test]
fn rly_40_a_session_that_cannot_move_stays_as_it_is_and_tries_again() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, CDS, "+a");
    bench.hear(0);
    bench.names(0, CDS, "a=1");
    bench.follow(client);
    bench.lose(0);
    bench.change(client, EDS, "+b");
    bench.clients[client].routes.without = Some(1);
    let shift = bench.shift(client);
    assert_eq!(shift.refused.map(|status| status.code), Some(Code::ResourceExhausted));
    assert!(shift.watches.is_empty() && shift.moves.is_empty());
    assert!(bench.asks(client, 0) && !bench.asks(client, 1));
    // The session does not retry at once, and its resources are still updated.
    assert!(bench.shift(client).refused.is_none(), "it waits");
    bench.clients[client].routes.without = None;
    bench.follow(client);
    assert!(!bench.asks(client, 1));
    bench.advance(SECOND * 5);
    bench.follow(client);
    assert!(bench.asks(client, 1));
    bench.hear(1);
    bench.names(1, CDS, "a=2");
    bench.names(1, EDS, "b=2");
    assert_eq!(bench.follow(client), "Cluster a=2; ClusterLoadAssignment b=2");
}

/// SUB-12: the next server has no answer for a name, but its wildcard has the name. The client is sent the wildcard's
/// resource, and nothing again when the answer for the name follows.
#[test]
fn sub_12_the_wildcard_of_the_next_server_supplies_names_that_it_is_silent_about() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, EDS, "+* +f");
    bench.hear_all(0, 2);
    bench.names(0, EDS, "f=1");
    bench.all(0, EDS, "f=1 g=1");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment f=1 g=1");
    bench.lose_all(0, 2);
    bench.change(client, EDS, "+h");
    bench.shift(client);
    bench.hear_of(1, 2, &[CDS]);
    bench.all(1, EDS, "f=2 g=1");
    bench.names(1, EDS, "-h");
    bench.advance(SECOND * 15);
    assert_eq!(bench.follow(client), "ClusterLoadAssignment f=2 -h");
    bench.names(1, EDS, "f=2");
    assert_eq!(bench.drain(client), "");
    bench.names(1, EDS, "f=3");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment f=3");
}
