//! The meaning of two contents, as the proof of the grouping compares them (PRF-14).

use bytes::Bytes;
use sluice_json::redact::{Meaning, bears_secret, compare};
use sluice_xds::TypeUrl;

use super::Target;

pub const MEANING: Target = Target {
    name: "meaning",
    run,
    seeds: || {
        let name = field(1, b"web");
        let timeout = field(4, &[8, 5]);
        // An entry of the map `typed_extension_protocol_options`.
        let entry = |key: &[u8], value: &[u8]| field(36, &[field(1, key), field(2, value)].concat());
        let any = |type_url: &[u8], value: &[u8]| [field(1, type_url), field(2, value)].concat();
        let known = any(b"type.googleapis.com/envoy.config.cluster.v3.Cluster", &name);
        let unknown = any(b"type.googleapis.com/a.Novel", &[1, 2, 3]);
        let pairs = [
            (name.clone(), name.clone()),
            ([name.clone(), timeout.clone()].concat(), [name.clone(), field(4, &[8, 6])].concat()),
            // The same fields in another order, and the same entries of a map.
            ([name.clone(), timeout.clone()].concat(), [timeout, name.clone()].concat()),
            (
                [entry(b"a", &known), entry(b"b", &unknown)].concat(),
                [entry(b"b", &unknown), entry(b"a", &known)].concat(),
            ),
            ([name.clone(), field(4_000, b"novel")].concat(), [name, field(4_000, b"other")].concat()),
        ];
        pairs
            .iter()
            .map(|(one, other)| input(0, one, other))
            .chain([input(3, &endpoints(1), &endpoints(2))])
            .collect()
    },
    words: &[
        "web",
        "\n\u{3}web",
        "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "envoy.transport_sockets.tls",
        "private_key",
        "alt_stat_name",
        "*",
    ],
    mutations: 3_000,
    memory: None,
};

const TYPES: [&str; 5] = [
    "envoy.config.cluster.v3.Cluster",
    "envoy.config.listener.v3.Listener",
    "envoy.config.route.v3.RouteConfiguration",
    "envoy.config.endpoint.v3.ClusterLoadAssignment",
    "a.Novel",
];

/// A field with a length.
fn field(number: u32, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::encode_key(number, prost::encoding::WireType::LengthDelimited, &mut bytes);
    prost::encoding::encode_varint(content.len() as u64, &mut bytes);
    bytes.extend_from_slice(content);
    bytes
}

/// Two localities in an order.
fn endpoints(first: u8) -> Vec<u8> {
    let locality = |number: u8| field(2, &field(1, &field(1, &[b'r', number])));
    [field(1, b"eds"), locality(first), locality(3 - first)].concat()
}

/// The type, the length of the first content, and both contents.
fn input(kind: u8, one: &[u8], other: &[u8]) -> Vec<u8> {
    [&[kind, one.len() as u8], one, other].concat()
}

fn run(data: &[u8]) {
    let [kind, length, rest @ ..] = data else { return };
    let type_url = TypeUrl::of_message(TYPES[usize::from(*kind) % TYPES.len()]);
    let (one, other) = rest.split_at(usize::from(*length).min(rest.len()));
    let (one, other) = (Bytes::copy_from_slice(one), Bytes::copy_from_slice(other));
    let there = compare(&type_url, &one, &other, &[]);
    // The class and the shadow may change places.
    assert_eq!(there, compare(&type_url, &other, &one, &[]));
    if one == other {
        assert!(!matches!(there, Meaning::Differs { .. }), "a content differs from itself: {there:?}");
    }
    if let Meaning::Differs { paths, ignored } = &there {
        assert!(!paths.is_empty() && ignored.is_empty());
        // A key of a map may have any text, so that its path is no word of `proof.ignore`.
        let has_key = |path: &String| path.contains('[');
        if !paths.iter().any(has_key) {
            let rest = compare(&type_url, &one, &other, paths);
            assert!(rest != there, "{paths:?} ignores nothing");
        }
    }
    assert_eq!(bears_secret(&type_url, &one), bears_secret(&type_url, &one.clone()));
}
