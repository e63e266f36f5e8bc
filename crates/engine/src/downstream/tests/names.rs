//! Names of the `xdstp:` scheme: NAM.

use std::sync::Arc;

use super::bench::{Bench, CDS, EDS, LDS, version_of};
use crate::downstream::Limits;
use sluice_xds::{Code, DeltaRequest, Request, ResourceName, Variant, Version};

const A1B2: &str = "xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/x?a=1&b=2";
const B2A1: &str = "xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/x?b=2&a=1";

fn state(bench: &mut Bench, list: &str) {
    bench.state(0, &[(EDS, list)]);
}

// === spelling ===

#[test]
fn nam_8_each_delta_client_is_answered_in_its_own_spelling() {
    let mut bench = Bench::files(&[(EDS, &format!("{A1B2}=1"))]);
    let (one, other) = (bench.delta(), bench.delta());
    bench.change(one, EDS, &format!("+{A1B2}"));
    bench.change(other, EDS, &format!("+{B2A1}"));
    assert_eq!(bench.drain(one), format!("ClusterLoadAssignment {A1B2}=1"));
    assert_eq!(bench.drain(other), format!("ClusterLoadAssignment {B2A1}=1"));
    // NAM-6: both share one entry.
    assert_eq!(bench.sources[0].types().map(|(_, counts, _)| counts.present).sum::<usize>(), 1);
    state(&mut bench, "");
    assert_eq!(bench.drain(one), format!("ClusterLoadAssignment -{A1B2}"));
    assert_eq!(bench.drain(other), format!("ClusterLoadAssignment -{B2A1}"));
}

#[test]
fn nam_8_a_client_that_asks_in_two_spellings_is_answered_in_both() {
    let mut bench = Bench::files(&[(EDS, &format!("{A1B2}=1"))]);
    let client = bench.delta();
    bench.change(client, EDS, &format!("+{A1B2} +{B2A1}"));
    assert_eq!(bench.drain(client), format!("ClusterLoadAssignment {A1B2}=1 {B2A1}=1"));
    // DEL-20: a spelling that was never requested is not given up.
    bench.change(client, EDS, "-xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/%78?a=1&b=2");
    bench.change(client, EDS, &format!("-{A1B2}"));
    assert_eq!(bench.drain(client), "");
    state(&mut bench, &format!("{A1B2}=2"));
    assert_eq!(bench.drain(client), format!("ClusterLoadAssignment {B2A1}=2"));
    bench.change(client, EDS, &format!("-{B2A1}"));
    state(&mut bench, &format!("{A1B2}=3"));
    assert_eq!(bench.drain(client), "");
    assert!(bench.clients[client].session.subscriptions()[0].parts.is_empty());
}

#[test]
fn nam_8_clients_that_spell_alike_share_their_answers() {
    let mut bench = Bench::files(&[(EDS, &format!("{A1B2}=1"))]);
    let clients = [bench.delta(), bench.delta(), bench.delta()];
    for (client, name) in clients.into_iter().zip([B2A1, B2A1, A1B2]) {
        bench.change(client, EDS, &format!("+{name}"));
        bench.drain(client);
    }
    assert_eq!(bench.composed.len(), 2, "one answer for each spelling");
}

#[test]
fn nam_8_presented_versions_count_in_any_spelling() {
    let mut bench = Bench::files(&[(EDS, &format!("{A1B2}=1"))]);
    let client = bench.delta();
    let version = version_of(EDS, &format!("{A1B2}=1"));
    bench.change_with(client, EDS, &format!("+{B2A1}"), "", &[(B2A1, version)], None);
    assert_eq!(bench.drain(client), "");
    let other = bench.delta();
    bench.change_with(other, EDS, &format!("+{B2A1}"), "", &[(B2A1, Version(9))], None);
    assert_eq!(bench.drain(other), format!("ClusterLoadAssignment {B2A1}=1"));
}

#[test]
fn nam_8_a_sotw_client_that_spells_anew_is_sent_the_name_again() {
    let mut bench = Bench::files(&[(EDS, &format!("{A1B2}=1"))]);
    let client = bench.sotw();
    // A bare message is not changed: its name stands inside. The relay counts by the key.
    bench.ask(client, EDS, A1B2);
    assert_eq!(bench.drain(client), format!("ClusterLoadAssignment {A1B2}=1"));
    bench.ask(client, EDS, A1B2);
    assert_eq!(bench.drain(client), "");
    let collection = "envoy.config.endpoint.v3.LbEndpointCollection";
    let (name, spelled) =
        (format!("xdstp://a/{collection}/x?a=1&b=2"), format!("xdstp://a/{collection}/x?b=2&a=1"));
    bench.state(0, &[(collection, &format!("{name}=1"))]);
    bench.clients[client].routes.features.wrapper = true;
    bench.ask(client, collection, &spelled);
    assert_eq!(bench.drain(client), format!("LbEndpointCollection {spelled}=1"));
    bench.ask(client, collection, &name);
    assert_eq!(bench.drain(client), format!("LbEndpointCollection {name}=1"));
    bench.ask(client, collection, &format!("{spelled} {name}"));
    assert_eq!(bench.drain(client), format!("LbEndpointCollection {name}=1 {spelled}=1"));
    // SUB-6: the client gave up a spelling, not the name.
    bench.ask(client, collection, &spelled);
    assert_eq!(bench.drain(client), "");
}

#[test]
fn nam_9_a_key_twice_makes_a_name_of_its_own() {
    let twice = format!("{A1B2}&b=3");
    let mut bench = Bench::files(&[(EDS, &format!("{A1B2}=1 {twice}=2"))]);
    let client = bench.delta();
    bench.change(client, EDS, &format!("+{twice}"));
    assert_eq!(bench.drain(client), format!("ClusterLoadAssignment {twice}=2"));
}

// === refused names ===

#[test]
fn nam_5_a_name_of_another_type_is_absent_and_hurts_nothing_else() {
    let wrong = "xdstp://a/envoy.config.cluster.v3.Cluster/x";
    let mut bench = Bench::files(&[(EDS, &format!("a=1 {wrong}=1"))]);
    let client = bench.delta();
    let taken = bench.change(client, EDS, &format!("+{wrong}"));
    assert!(taken.watches.is_empty() && bench.clients[client].on_the_way.is_empty(), "not forwarded");
    let (name, error) = taken.refused.unwrap();
    assert_eq!(name.as_str(), wrong);
    assert!(error.to_string().contains("the request is for envoy.config.endpoint.v3.ClusterLoadAssignment"));
    // ERR-2: the reason follows for clients that read errors.
    let refused = format!("ClusterLoadAssignment -{wrong}; ClusterLoadAssignment !{wrong}:INVALID_ARGUMENT");
    assert_eq!(bench.drain(client), refused);
    bench.change(client, EDS, "+a");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment a=1");
    // DEL-11: a new request is answered again. Giving up the name is not answered.
    bench.change(client, EDS, &format!("+{wrong}"));
    // ERR-2: the reason follows for clients that read errors.
    let refused = format!("ClusterLoadAssignment -{wrong}; ClusterLoadAssignment !{wrong}:INVALID_ARGUMENT");
    assert_eq!(bench.drain(client), refused);
    bench.change(client, EDS, &format!("-{wrong}"));
    assert_eq!(bench.drain(client), "");
    assert_eq!(bench.sources[0].types().map(|(_, counts, _)| counts.absent).sum::<usize>(), 0);
}

#[test]
fn nam_1_a_malformed_name_is_absent() {
    let mut bench = Bench::files(&[(EDS, "a=1"), (CDS, "c=1")]);
    let client = bench.delta();
    bench.change(client, EDS, "+xdstp://a +a +xdstp://a/x/%zz");
    let errors = "!xdstp://a:INVALID_ARGUMENT !xdstp://a/x/%zz:INVALID_ARGUMENT";
    let refused = "a=1 -xdstp://a -xdstp://a/x/%zz; ClusterLoadAssignment";
    assert_eq!(bench.drain(client), format!("ClusterLoadAssignment {refused} {errors}"));
    // SotW can only leave out the name (SST-10), and an empty complete set tells the absence of all names (SST-14).
    let client = bench.sotw();
    bench.ask(client, EDS, "a xdstp://a");
    let refused = "!xdstp://a:INVALID_ARGUMENT";
    assert_eq!(bench.drain(client), format!("ClusterLoadAssignment a=1 {refused}"));
    bench.ask(client, CDS, "c xdstp://a");
    assert_eq!(bench.drain(client), format!("Cluster c=1 {refused}"));
    bench.ask(client, LDS, "xdstp://a");
    assert_eq!(bench.drain(client), format!("Listener {refused}"));
    bench.ask(client, LDS, "xdstp://a xdstp://b");
    assert_eq!(bench.drain(client), "Listener !xdstp://b:INVALID_ARGUMENT");
    let bad = bench.sotw();
    bench.ask(bad, EDS, "xdstp://a");
    assert_eq!(bench.drain(bad), "");
    // SST-7: errors alone are sent only to clients that take errors for answers.
    let able = bench.sotw();
    bench.clients[able].routes.features.errors_alone = true;
    bench.ask(able, EDS, "xdstp://a");
    assert_eq!(bench.drain(able), format!("ClusterLoadAssignment {refused}"));
}

/// A name has an unlimited number of spellings, and the client is sent the resource in each spelling.
#[test]
fn nam_8_fd16_the_spellings_of_a_stream_are_bounded() {
    let spelled = |name: usize, spelling: usize| {
        // `%61` is `a`.
        let letters = |bit: usize| if spelling >> bit & 1 == 1 { "%61" } else { "a" };
        let id: String = (0..4).map(letters).collect();
        ResourceName::new(&format!("xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/{id}{name}"))
    };
    let ask = |names: Vec<ResourceName>| {
        let type_url = super::bench::url(EDS).as_str().to_owned();
        Request::Delta(DeltaRequest { type_url, subscribe: names, ..DeltaRequest::default() })
    };
    let mut bench = Bench::files(&[]);
    let limits = Limits { names_per_stream: 20, types_per_stream: 2 };
    let client = bench.join(Variant::Delta, limits);
    bench.try_request(client, ask((0..8).map(|spelling| spelled(0, spelling)).collect())).unwrap();
    bench.change(client, EDS, &format!("-{}", spelled(0, 1).as_str()));
    bench.try_request(client, ask(vec![spelled(0, 8)])).unwrap();
    let status = bench.try_request(client, ask(vec![spelled(0, 9)])).unwrap_err();
    assert_eq!(status.code, Code::ResourceExhausted);
    assert!(status.message.contains("aaaa0 is asked for in more than 8 spellings"), "{status}");

    // Each spelling counts as a name.
    let client = bench.join(Variant::Delta, limits);
    let names = |count| (0..count).flat_map(|name| (0..5).map(move |spelling| spelled(name, spelling)));
    bench.try_request(client, ask(names(4).collect())).unwrap();
    let status = bench.try_request(client, ask(vec![spelled(4, 0)])).unwrap_err();
    assert!(status.message.contains("21 names on one stream"), "{status}");
}

/// Clients with equal names share one set.
#[test]
fn rly_55_clients_with_the_same_names_share_one_set() {
    const LEDS: &str = "envoy.config.endpoint.v3.LbEndpoint";
    for (message, change) in [(EDS, "+a +b"), (LEDS, "+xdstp:foo/*")] {
        let mut bench = Bench::files(&[(EDS, "a=1"), (LEDS, "xdstp:foo/a=1")]);
        let mut sets = Vec::new();
        for _ in 0..2 {
            let client = bench.delta();
            bench.change(client, message, change);
            bench.drain(client);
            let parts = &bench.clients[client].session.subscriptions()[0].parts;
            sets.push(parts.iter().find_map(|part| part.names()).unwrap().clone());
        }
        assert!(Arc::ptr_eq(&sets[0], &sets[1]), "{change}");
    }
}
