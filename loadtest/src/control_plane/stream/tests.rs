#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::control_plane::snapshot::Change;
use crate::proto::put_message;

/// A type that the tool does not know.
const OTHER: &str = "type.googleapis.com/envoy.service.runtime.v3.Runtime";

const FIRST_CLUSTER: Change = Change { kind: Kind::Cluster, residue: 0, stride: 3 };

fn stream(variant: Variant) -> Stream {
    Stream::new(variant, Arc::default())
}

fn snapshot() -> Snapshot {
    Snapshot::new(3, &[(Kind::Cluster, 300), (Kind::Endpoints, 0)], 1)
}

fn request(variant: Variant, type_url: &str, subscribe: &[&str], unsubscribe: &[&str]) -> Vec<u8> {
    let mut message = Vec::new();
    let (node, url) = if variant == Variant::Sotw { (2, 4) } else { (1, 2) };
    put_message(&mut message, node, |out| put_bytes(out, 1, "id"));
    put_bytes(&mut message, url, type_url);
    subscribe.iter().for_each(|name| put_bytes(&mut message, 3, name));
    unsubscribe.iter().for_each(|name| put_bytes(&mut message, 4, name));
    message
}

/// The response as `nonce: names of resources, -absent names`, or `silence`.
fn answer(stream: &mut Stream, snapshot: &Snapshot) -> String {
    let Some(parts) = stream.response(snapshot) else { return "silence".to_owned() };
    let wire = parts.concat();
    assert_eq!(u32::from_be_bytes(wire[1..5].try_into().unwrap()) as usize, wire.len() - 5);
    let mut fields = Fields(&wire[5..]);
    let (mut nonce, mut names) = (String::new(), Vec::new());
    while let Some((field, bytes)) = fields.next_bytes().unwrap() {
        match field {
            2 => names.push(resource_name(bytes)),
            5 => nonce = String::from_utf8(bytes.to_vec()).unwrap(),
            6 => names.push(format!("-{}", String::from_utf8_lossy(bytes))),
            _ => {}
        }
    }
    format!("{nonce}: {}", names.join(" "))
}

/// The name in the innermost message: in a Resource's Any, or in an Any itself.
fn resource_name(bytes: &[u8]) -> String {
    let mut fields = Fields(bytes);
    let mut value = bytes;
    while let Some((field, bytes)) = fields.next_bytes().unwrap() {
        if field == 2 {
            value = bytes;
        }
    }
    let (field, name) = Fields(value).next_bytes().unwrap().unwrap();
    assert_eq!(field, 1);
    match std::str::from_utf8(name).unwrap() {
        url if url.starts_with("type.googleapis.com/") => resource_name(value),
        name => name.trim_start_matches("load-00000").to_owned(),
    }
}

#[test]
fn sst_1_a_sotw_wildcard_gets_all_clusters_each_time() {
    let mut snapshot = snapshot();
    let mut stream = stream(Variant::Sotw);
    let cluster = request(Variant::Sotw, Kind::Cluster.type_url(), &[], &[]);
    stream.request(&cluster).unwrap();
    assert_eq!(answer(&mut stream, &snapshot), "1: 0 1 2");
    stream.request(&cluster).unwrap();
    assert_eq!(answer(&mut stream, &snapshot), "silence");
    snapshot.change(FIRST_CLUSTER, 9);
    snapshot.change(FIRST_CLUSTER, 10);
    assert_eq!(answer(&mut stream, &snapshot), "2: 0 1 2");
    assert_eq!(answer(&mut stream, &snapshot), "silence");
}

#[test]
fn a_delta_wildcard_gets_what_changed() {
    let mut snapshot = snapshot();
    for first in [&[][..], &["*"][..]] {
        let mut stream = stream(Variant::Delta);
        stream.request(&request(Variant::Delta, Kind::Cluster.type_url(), first, &[])).unwrap();
        assert_eq!(answer(&mut stream, &snapshot), "1: 0 1 2");
        stream.request(&request(Variant::Delta, Kind::Cluster.type_url(), &[], &[])).unwrap();
        assert_eq!(answer(&mut stream, &snapshot), "silence");
        snapshot.change(FIRST_CLUSTER, 9);
        assert_eq!(answer(&mut stream, &snapshot), "2: 0");
    }
}

#[test]
fn del_11_names_are_answered_one_by_one() {
    let mut snapshot = snapshot();
    let mut stream = stream(Variant::Delta);
    let url = Kind::Cluster.type_url();
    stream.request(&request(Variant::Delta, url, &["load-000001", "nobody"], &[])).unwrap();
    assert_eq!(answer(&mut stream, &snapshot), "1: -nobody 1");
    snapshot.change(FIRST_CLUSTER, 9);
    assert_eq!(answer(&mut stream, &snapshot), "silence", "cluster 0 is not subscribed");
    stream.request(&request(Variant::Delta, url, &["load-000000"], &["load-000001"])).unwrap();
    assert_eq!(answer(&mut stream, &snapshot), "2: 0");
    snapshot.change(FIRST_CLUSTER, 10);
    assert_eq!(answer(&mut stream, &snapshot), "3: 0");
}

#[test]
fn endpoints_are_answered_by_name_in_both_variants() {
    let mut snapshot = snapshot();
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut stream = stream(variant);
        let url = Kind::Endpoints.type_url();
        stream.request(&request(variant, url, &["load-000000", "load-000002"], &[])).unwrap();
        assert_eq!(answer(&mut stream, &snapshot), "1: 0 2");
        snapshot.change(FIRST_CLUSTER, 9);
        assert_eq!(answer(&mut stream, &snapshot), "silence", "endpoints never change");
    }
    let mut stream = stream(Variant::Sotw);
    stream.request(&request(Variant::Sotw, Kind::Endpoints.type_url(), &["nobody"], &[])).unwrap();
    assert_eq!(answer(&mut stream, &snapshot), "silence", "SotW cannot say that a name is absent");
}

#[test]
fn sub_11_explicit_names_end_a_legacy_wildcard() {
    let mut snapshot = snapshot();
    let mut stream = stream(Variant::Sotw);
    let url = Kind::Cluster.type_url();
    stream.request(&request(Variant::Sotw, url, &[], &[])).unwrap();
    assert_eq!(answer(&mut stream, &snapshot), "1: 0 1 2");
    stream.request(&request(Variant::Sotw, url, &["load-000000"], &[])).unwrap();
    assert_eq!(answer(&mut stream, &snapshot), "2: 0");
    stream.request(&request(Variant::Sotw, url, &[], &[])).unwrap();
    snapshot.change(FIRST_CLUSTER, 9);
    assert_eq!(answer(&mut stream, &snapshot), "silence", "SUB-10: an empty list is now nothing");
}

#[test]
fn types_of_which_there_is_nothing_are_said_to_be_empty() {
    let snapshot = snapshot();
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut stream = stream(variant);
        stream.request(&request(variant, OTHER, &[], &[])).unwrap();
        assert_eq!(answer(&mut stream, &snapshot), "1: ");
        assert_eq!(answer(&mut stream, &snapshot), "silence");
    }
    let mut stream = stream(Variant::Delta);
    stream.request(&request(Variant::Delta, OTHER, &["a"], &[])).unwrap();
    assert_eq!(answer(&mut stream, &snapshot), "1: -a");
}

#[test]
fn requests_that_are_none_are_refused() {
    assert!(stream(Variant::Sotw).request(&[0x0a, 9]).is_err());
}

#[test]
fn a_resource_is_about_as_long_as_asked_and_carries_the_stamp() {
    let mut snapshot = Snapshot::new(1, &[(Kind::Cluster, 500)], 1);
    snapshot.change(FIRST_CLUSTER, 0x55);
    let resource = snapshot.get(Kind::Cluster, Who::default(), "load-000000").unwrap();
    let length = resource.bytes(Variant::Sotw).len();
    assert!((540..600).contains(&length), "{length}");
    let mut search = crate::stamp::Search::default();
    let sought = crate::stamp::Sought { unchanged: false, most: 1 };
    search.push(resource.bytes(Variant::Delta), false, sought);
    assert_eq!(search.found(), [crate::stamp::Stamp { time: 0x55, index: 0, audience: 0 }]);
}

#[test]
fn types_that_are_not_full_state_are_told_what_changed() {
    let mut snapshot = snapshot();
    let second = Change { kind: Kind::Endpoints, residue: 1, stride: 3 };
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut stream = stream(variant);
        let names = ["load-000000", "load-000001"];
        stream.request(&request(variant, Kind::Endpoints.type_url(), &names, &[])).unwrap();
        assert_eq!(answer(&mut stream, &snapshot), "1: 0 1");
        snapshot.change(FIRST_CLUSTER, 8);
        assert_eq!(answer(&mut stream, &snapshot), "silence");
        snapshot.change(second, 9);
        assert_eq!(answer(&mut stream, &snapshot), "2: 1");
        snapshot.change(Change { residue: 2, ..second }, 10);
        assert_eq!(answer(&mut stream, &snapshot), "silence", "the third one is not subscribed");
    }
}
