//! Clients with content from elsewhere at a source whose first answers come in several messages (ADR 52).

use std::time::Duration;

use super::bench::{Bench, CDS, ClientId, LDS, RDS, resources, url, version_of};
use crate::upstream::{Input, RESOURCE_TIMEOUT};
use sluice_xds::{DeltaResponse, Received, Response, Version};

const GAP: Duration = Duration::from_millis(20);

impl Bench {
    /// The control plane sends one of several messages about a wildcard.
    fn sends(&mut self, message: &str, list: &str, removed: &str) {
        self.sends_on(0, message, list, removed);
    }

    fn sends_on(&mut self, stream: usize, message: &str, list: &str, removed: &str) {
        let received = |resource: std::sync::Arc<sluice_xds::Resource>| {
            let (name, ttl) = (resource.name.clone(), None);
            Ok(Received { name, upstream_version: "1".into(), resource: Some(resource), ttl })
        };
        let response = DeltaResponse {
            system_version_info: String::new(),
            type_url: url(message),
            nonce: format!("{list}{removed}"),
            resources: resources(message, list).into_iter().map(received).collect(),
            removed: super::bench::names_of(message, removed),
            errors: Vec::new(),
            control_plane: String::new(),
        };
        self.sources[0].handle_upstream(stream, Input::Received(Response::Delta(response)), self.now);
        self.settle();
    }

    fn opened(&mut self) {
        self.opens_stream(0);
    }

    fn opens_stream(&mut self, stream: usize) {
        self.sources[0].handle_upstream(stream, Input::Opened, self.now);
        self.settle();
    }

    /// A delta client that has these resources from an earlier stream.
    fn returns(&mut self, list: &[&str]) -> ClientId {
        self.returns_with(CDS, list)
    }

    fn returns_with(&mut self, message: &str, list: &[&str]) -> ClientId {
        let client = self.delta();
        let version = |word: &&str| version_of(message, word);
        let presented: Vec<(&str, Version)> =
            list.iter().map(|word| (word.split_once('=').unwrap().0, version(word))).collect();
        self.change_with(client, message, "+*", "", &presented, None);
        client
    }

    fn newcomer(&mut self) -> ClientId {
        let client = self.delta();
        self.change(client, CDS, "+*");
        client
    }
}

const ALL: [&str; 4] = ["a=1", "b=1", "c=1", "d=1"];

#[test]
fn rly_5_no_removal_before_the_rest_of_the_first_answers() {
    let mut bench = Bench::cold();
    let delta = bench.returns(&ALL);
    let (sotw, newcomer, old) = (bench.sotw(), bench.newcomer(), bench.sotw());
    bench.ask_with(sotw, CDS, "*", "", "7", None);
    bench.ask(old, CDS, "*");
    bench.opened();
    bench.sends(CDS, "a=1 b=2", "");
    assert_eq!(bench.drain(newcomer), "Cluster a=1 b=2", "newcomers wait for nothing");
    assert_eq!(bench.drain(old), "Cluster a=1 b=2", "a client without a version is a newcomer");
    assert_eq!(bench.drain(delta), "Cluster b=2", "changes wait for nothing");
    assert_eq!(bench.drain(sotw), "", "the set may be half of what the client has");
    bench.advance(GAP);
    bench.sends(CDS, "c=1 d=1", "");
    assert_eq!(bench.drain(delta), "");
    // All that the client brought is there: nothing is in doubt any more.
    bench.sends(CDS, "", "d");
    assert_eq!(bench.drain(delta), "Cluster -d");
    assert_eq!(bench.drain(sotw), "");
    bench.advance(RESOURCE_TIMEOUT.default);
    assert_eq!(bench.drain(sotw), "Cluster a=1 b=2 c=1");
    assert_eq!(bench.drain(newcomer), "Cluster c=1");
}

#[test]
fn rly_5_a_removal_follows_the_quiet() {
    let mut bench = Bench::cold();
    let delta = bench.returns(&ALL);
    bench.opened();
    bench.sends(CDS, "a=1", "");
    bench.advance(Duration::from_secs(9));
    bench.sends(CDS, "b=1", "");
    bench.advance(Duration::from_secs(9));
    assert_eq!(bench.drain(delta), "");
    bench.advance(Duration::from_secs(1));
    assert_eq!(bench.drain(delta), "Cluster -c -d");
    // From now on the source is warm.
    let (other, sotw) = (bench.returns(&ALL), bench.sotw());
    assert_eq!(bench.drain(other), "Cluster -c -d");
    bench.ask_with(sotw, CDS, "*", "", "7", None);
    assert_eq!(bench.drain(sotw), "Cluster a=1 b=1");
}

#[test]
fn rly_5_a_sotw_client_with_the_present_version_has_returned() {
    let mut bench = Bench::cold();
    let (sotw, version) = (bench.sotw(), version_of(CDS, "a=1 b=1").to_string());
    bench.ask_with(sotw, CDS, "*", "", &version, None);
    bench.opened();
    bench.sends(CDS, "a=1 b=1", "");
    assert_eq!(bench.drain(sotw), "", "STR-10");
    bench.sends(CDS, "a=2", "");
    assert_eq!(bench.drain(sotw), "Cluster a=2 b=1", "updates wait for nothing");
}

/// The turn of the routing types began when the listener might have been gone.
#[test]
fn rly_5_a_round_that_began_in_doubt_removes_nothing() {
    let mut bench = Bench::cold();
    let delta = bench.returns_with(LDS, &["k=1", "l=1"]);
    bench.change(delta, CDS, "+*");
    bench.change(delta, RDS, "+r");
    bench.opened();
    bench.sends(CDS, "a=1", "");
    assert_eq!(bench.poll(delta), "Cluster a=1");
    bench.sends(CDS, "a=2", "");
    bench.sends(RDS, "r=1", "");
    assert_eq!(bench.poll(delta), "");
    for message in ["k=2", "k=3"] {
        bench.advance(Duration::from_secs(8));
        bench.sends(LDS, message, "");
    }
    assert_eq!(bench.poll(delta), "Cluster a=2", "the turn of the routing types has begun");
    bench.sends(LDS, "l=1", "");
    assert_eq!(bench.poll(delta), "Listener k=3");
    assert_eq!(bench.poll(delta), "RouteConfiguration r=1");
}

/// An outage leaves the client with its content.
#[test]
fn rly_5_a_source_that_loses_its_server_confirms_nothing() {
    let mut bench = Bench::cold();
    let delta = bench.returns(&ALL);
    bench.opened();
    bench.sends(CDS, "a=1 b=1", "");
    let lost = Input::Closed { status: sluice_xds::Status::ok(), jitter: 0.5 };
    bench.sources[0].handle_upstream(0, lost, bench.now);
    bench.settle();
    bench.advance(Duration::from_secs(120));
    assert_eq!(bench.drain(delta), "");
    bench.opened();
    bench.sends(CDS, "c=1", "");
    bench.advance(RESOURCE_TIMEOUT.default);
    assert_eq!(bench.drain(delta), "Cluster -d");
}

/// The client has its former clusters and its former routes. A new route may name a cluster of the set that waits.
#[test]
fn ord_10_routes_wait_for_a_complete_set_in_doubt() {
    let mut bench = Bench::cold();
    let sotw = bench.sotw();
    bench.ask_with(sotw, CDS, "*", "", "7", None);
    bench.ask(sotw, RDS, "r");
    bench.opened();
    bench.sends(CDS, "a=1", "");
    bench.sends(RDS, "r=a", "");
    assert_eq!(bench.drain(sotw), "");
    bench.advance(RESOURCE_TIMEOUT.default);
    assert_eq!(bench.drain(sotw), "Cluster a=1; RouteConfiguration r=a");
}

/// The set waits for the wildcard. A new route may name a cluster beside the wildcard.
#[test]
fn ord_10_routes_wait_for_a_name_beside_a_wildcard_in_doubt() {
    let mut bench = Bench::cold();
    let sotw = bench.sotw();
    bench.ask_with(sotw, CDS, "f *", "", "7", None);
    bench.ask(sotw, RDS, "r");
    // A stream for the names, and one for the wildcard.
    bench.opens_stream(0);
    bench.opens_stream(1);
    bench.sends(CDS, "f=1", "");
    bench.sends_on(1, CDS, "", "");
    bench.sends(RDS, "r=f", "");
    assert_eq!(bench.drain(sotw), "");
    bench.advance(RESOURCE_TIMEOUT.default);
    assert_eq!(bench.drain(sotw), "Cluster f=1; RouteConfiguration r=f");
}

#[test]
fn ord_12_routes_wait_for_no_removal_in_doubt() {
    let mut bench = Bench::cold();
    let delta = bench.returns(&["a=1", "x=1"]);
    bench.change(delta, RDS, "+r");
    bench.opened();
    bench.sends(CDS, "a=1", "");
    bench.sends(RDS, "r=a", "");
    assert_eq!(bench.drain(delta), "RouteConfiguration r=a");
    bench.advance(RESOURCE_TIMEOUT.default);
    assert_eq!(bench.drain(delta), "Cluster -x");
}

/// The new listener may have the address of one whose removal is in doubt: a client would reject it, and then remove the other.
#[test]
fn del_26_no_new_listener_before_the_removal_of_another() {
    let mut bench = Bench::cold();
    let (delta, knows_all) = (bench.returns_with(LDS, &["old=1"]), bench.returns_with(LDS, &["new=1"]));
    bench.opened();
    bench.sends(LDS, "new=2", "");
    assert_eq!(bench.drain(knows_all), "Listener new=2", "nothing is in doubt");
    assert_eq!(bench.drain(delta), "");
    bench.advance(RESOURCE_TIMEOUT.default);
    assert_eq!(bench.drain(delta), "Listener new=2 -old");
}
