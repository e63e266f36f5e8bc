#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::client::profile::Subscription;
use crate::client::response::ResponseReader;
use crate::proto::Fields;
use crate::xds::Kind;

const FROM: From = From { client: 3, subscription: 0, offset: 0, first: true };

fn requests(variant: Variant, every_request: bool) -> Requests {
    let mut profile = Profile::plain(variant, 10);
    profile.node.every_request = every_request;
    profile.subscriptions = vec![
        Subscription { kind: Kind::Cluster, wanted: Wanted::Wildcard },
        Subscription { kind: Kind::Endpoints, wanted: Wanted::Names { count: 2, step: 1 } },
    ];
    Requests::new(profile)
}

/// The fields of each gRPC message, the node and errors shortened.
fn transcript(wire: &[u8], node: u64, error: u64) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = wire;
    while let Some((prefix, after)) = rest.split_at_checked(5) {
        let length = u32::from_be_bytes(prefix[1..].try_into().unwrap()) as usize;
        let mut fields = Fields(&after[..length]);
        let mut line = Vec::new();
        while let Some((field, bytes)) = fields.next_bytes().unwrap() {
            let text = String::from_utf8_lossy(bytes);
            let text = text.rsplit('.').next().unwrap().trim_start_matches("load-00000");
            line.push(match field {
                _ if field == node => "node".to_owned(),
                _ if field == error => "error".to_owned(),
                _ => format!("{field}={text}"),
            });
        }
        lines.push(line.join(" "));
        rest = &after[length..];
    }
    lines
}

/// Both subscriptions' requests for a purpose.
fn both(requests: &Requests, from: From, purpose: Purpose<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    requests.put(&mut out, from, purpose);
    requests.put(&mut out, From { subscription: 1, first: false, ..from }, purpose);
    out
}

/// A response with version v7 and nonce n9.
fn with_response(then: impl FnOnce(&Response)) {
    let mut message = Vec::new();
    put_bytes(&mut message, 1, "v7");
    put_bytes(&mut message, 5, "n9");
    let mut wire = vec![0];
    wire.extend_from_slice(&(message.len() as u32).to_be_bytes());
    wire.extend_from_slice(&message);
    let mut reader = ResponseReader::new();
    let sought = requests(Variant::Sotw, false).profile.sought;
    then(reader.next(&mut &wire[..], sought).unwrap().unwrap());
}

#[test]
fn ack_2_a_sotw_ack_has_version_nonce_and_all_names() {
    let requests = requests(Variant::Sotw, false);
    let first = both(&requests, FROM, Purpose::Subscribe);
    assert_eq!(transcript(&first, 2, 6), ["node 4=Cluster", "3=3 3=4 4=ClusterLoadAssignment"]);
    with_response(|response| {
        let acks = both(&requests, From { first: false, ..FROM }, Purpose::Ack(response));
        let expected = ["1=v7 4=Cluster 5=n9", "1=v7 3=3 3=4 4=ClusterLoadAssignment 5=n9"];
        assert_eq!(transcript(&acks, 2, 6), expected);
        let nacks = both(&requests, From { first: false, ..FROM }, Purpose::Nack(response, b"v6"));
        let expected = ["1=v6 4=Cluster 5=n9 error", "1=v6 3=3 3=4 4=ClusterLoadAssignment 5=n9 error"];
        assert_eq!(transcript(&nacks, 2, 6), expected);
    });
}

#[test]
fn del_1_a_delta_ack_has_the_nonce_and_no_names() {
    let requests = requests(Variant::Delta, true);
    let first = both(&requests, FROM, Purpose::Subscribe);
    assert_eq!(transcript(&first, 1, 7), ["node 2=Cluster", "node 2=ClusterLoadAssignment 3=3 3=4"]);
    with_response(|response| {
        let acks = both(&requests, FROM, Purpose::Ack(response));
        assert_eq!(transcript(&acks, 1, 7), ["node 2=Cluster 6=n9", "node 2=ClusterLoadAssignment 6=n9"]);
        let nacks = both(&requests, FROM, Purpose::Nack(response, b"v6"));
        let expected = ["node 2=Cluster 6=n9 error", "node 2=ClusterLoadAssignment 6=n9 error"];
        assert_eq!(transcript(&nacks, 1, 7), expected);
    });
}

#[test]
fn a_client_that_moves_on_names_what_comes_and_goes() {
    let from = From { subscription: 1, offset: 1, first: false, ..FROM };
    let purpose = Purpose::Move { by: 1, version: b"v7", nonce: b"n9" };
    let mut out = Vec::new();
    requests(Variant::Delta, false).put(&mut out, from, purpose);
    assert_eq!(transcript(&out, 1, 7), ["2=ClusterLoadAssignment 3=5 4=3"]);
    out.clear();
    requests(Variant::Sotw, false).put(&mut out, from, purpose);
    assert_eq!(transcript(&out, 2, 6), ["1=v7 3=4 3=5 4=ClusterLoadAssignment 5=n9"]);
}

#[test]
fn a_node_is_about_as_long_as_asked() {
    let length = node_without_id(&Node { bytes: 61_000, ..Node::plain() }).len();
    assert!((61_000..61_200).contains(&length), "{length}");
    assert!(node_without_id(&Node::plain()).len() < 20);
    let grpc = Node { like: Like::Grpc, metadata: vec![("k".into(), "v".into())], ..Node::plain() };
    assert!((80..200).contains(&node_without_id(&grpc).len()));
}

#[test]
fn the_number_of_a_client_stands_where_it_is_told_to() {
    let id = |template: &str| {
        let mut profile = Profile::plain(Variant::Sotw, 1);
        profile.node.id = template.to_owned();
        let mut out = Vec::new();
        Requests::new(profile).put(&mut out, FROM, Purpose::Subscribe);
        let (_, node) = Fields(&out[5..]).next_bytes().unwrap().unwrap();
        String::from_utf8(Fields(node).next_bytes().unwrap().unwrap().1.to_vec()).unwrap()
    };
    assert_eq!(id("sidecar~10.0.0.1~pod-{}.ns~x"), "sidecar~10.0.0.1~pod-3.ns~x");
    assert_eq!(id("always"), "always");
}
