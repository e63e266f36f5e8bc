//! Requests of clients: gRPC bodies in any segmentation.

use bytes::Bytes;
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use sluice_wire::upstream::{encode_node, encode_request};
use sluice_wire::{NAME_IN_REQUEST_BYTES, ReadError, ReaderLimits, RequestReader};
use sluice_xds::{Request, ResourceName, Variant};

use super::draw::Draw;
use super::{MEMORY, Target};

const WORDS: &[&str] = &[
    "*",
    "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    "xdstp://a/b/c/*",
    "\u{fdd0}",
    "\u{fdd1}",
    "\u{8}\u{1}",
    "\u{12}\u{0}",
    "\u{0}\u{0}\u{0}\u{0}\u{0}",
    "xds.config.resource-in-sotw",
];

pub const REQUEST: Target = Target {
    name: "request",
    run: |data| read(data, Variant::Sotw),
    seeds: || seeds(|first| sotw(first).encode_to_vec()),
    words: WORDS,
    mutations: 3_000,
    memory: MEMORY,
};

pub const DELTA_REQUEST: Target = Target {
    name: "delta_request",
    run: |data| read(data, Variant::Delta),
    seeds: || seeds(|first| delta(first).encode_to_vec()),
    words: WORDS,
    mutations: 3_000,
    memory: MEMORY,
};

fn seeds(request: impl Fn(bool) -> Vec<u8>) -> Vec<Vec<u8>> {
    let (first, later) = (framed(&request(true)), framed(&request(false)));
    // Four bytes in the place of the versions, and a type behind them. libFuzzer found it.
    let odd = framed(b"\x12\x01a\x2d\x06\x0a\x01a\x12\x011");
    vec![
        [&[0][..], &odd].concat(),
        [&[0][..], &first].concat(),
        [&[3][..], &later].concat(),
        [&[7][..], &first, &later, &later].concat(),
        [&[1][..], &framed(&[]), &first].concat(),
    ]
}

pub fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length, message].concat()
}

/// A node with all fields, and with some that the relay drops.
pub fn node() -> sluice_proto::Node {
    let value = |kind| sluice_proto::Value { kind: Some(kind) };
    let fields = [
        ("a", sluice_proto::value::Kind::NumberValue(1.5)),
        ("b", sluice_proto::value::Kind::NullValue(0)),
        ("c", sluice_proto::value::Kind::StringValue("text".into())),
        (
            "d",
            sluice_proto::value::Kind::ListValue(sluice_proto::ListValue {
                values: vec![value(sluice_proto::value::Kind::BoolValue(true))],
            }),
        ),
    ];
    let inner =
        sluice_proto::Struct { fields: fields.map(|(key, kind)| (key.to_owned(), value(kind))).into() };
    let outer = [("NAMESPACE".to_owned(), value(sluice_proto::value::Kind::StructValue(inner)))];
    sluice_proto::Node {
        id: "node-1".into(),
        cluster: "edge".into(),
        metadata: Some(sluice_proto::Struct { fields: outer.into() }),
        locality: Some(sluice_proto::Locality { region: "r".into(), zone: "z".into(), sub_zone: "s".into() }),
        user_agent_name: "envoy".into(),
        client_features: vec!["xds.config.resource-in-sotw".into(), "b".into()],
        extensions: vec![sluice_proto::Extension { name: "x".into(), ..sluice_proto::Extension::default() }],
        ..sluice_proto::Node::default()
    }
}

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

fn error() -> sluice_proto::Status {
    sluice_proto::Status { code: 3, message: "bad".into(), ..sluice_proto::Status::default() }
}

fn locators() -> Vec<sluice_proto::ResourceLocator> {
    let plain =
        sluice_proto::ResourceLocator { name: "plain".into(), ..sluice_proto::ResourceLocator::default() };
    let parameters = [("k".to_owned(), "v".to_owned())].into();
    vec![plain, sluice_proto::ResourceLocator { name: "located".into(), dynamic_parameters: parameters }]
}

fn sotw(is_first: bool) -> sluice_proto::DiscoveryRequest {
    sluice_proto::DiscoveryRequest {
        node: is_first.then(node),
        version_info: if is_first { String::new() } else { "7".into() },
        resource_names: vec!["a".into(), "xdstp://auth/t/b?y=1&x=2".into()],
        resource_locators: locators(),
        type_url: CDS.into(),
        response_nonce: if is_first { String::new() } else { "n".into() },
        error_detail: (!is_first).then(error),
    }
}

fn delta(is_first: bool) -> sluice_proto::DeltaDiscoveryRequest {
    sluice_proto::DeltaDiscoveryRequest {
        node: is_first.then(node),
        type_url: CDS.into(),
        resource_names_subscribe: vec!["*".into(), "a".into()],
        resource_names_unsubscribe: vec!["b".into()],
        resource_locators_subscribe: locators(),
        resource_locators_unsubscribe: locators(),
        initial_resource_versions: [("a".to_owned(), "1".to_owned())].into(),
        response_nonce: "n".into(),
        error_detail: (!is_first).then(error),
    }
}

type Outcome = (Vec<Request>, Option<ReadError>);

/// Reads a body in chunks of these sizes, again and again.
fn in_chunks(body: &[u8], variant: Variant, sizes: &[usize]) -> Outcome {
    let limits = ReaderLimits::default();
    let mut reader = RequestReader::new(variant);
    let (mut rest, mut requests, mut sizes) = (body, Vec::new(), sizes.iter().cycle());
    while !rest.is_empty() {
        let size = sizes.next().map_or(rest.len(), |size| (*size).clamp(1, rest.len()));
        let (chunk, after) = rest.split_at(size);
        rest = after;
        reader.push(Bytes::copy_from_slice(chunk));
        while let Some(request) = reader.next(&limits) {
            match request {
                Ok(request) => requests.push(request),
                Err(error) => return (requests, Some(error)),
            }
        }
        // The shortest field takes two bytes, and counts as NAME_IN_REQUEST_BYTES beside them.
        let bound = (1 + NAME_IN_REQUEST_BYTES / 2) * body.len() + 4096;
        assert!(reader.held_bytes() <= bound, "{} bytes are held of {}", reader.held_bytes(), body.len());
    }
    let end = reader.finish().err();
    (requests, end)
}

fn read(data: &[u8], variant: Variant) {
    let mut draw = Draw::new(data);
    let size = usize::from(draw.byte());
    let body = draw.rest();
    let whole = in_chunks(body, variant, &[body.len()]);
    for sizes in [&[1][..], &[size], &[size, 1, 5]] {
        assert_eq!(in_chunks(body, variant, sizes), whole, "in chunks of {sizes:?}");
    }
    for (index, request) in whole.0.iter().enumerate() {
        again(request, variant, index == 0);
    }
    compare(body, &whole, variant);
}

/// Decoded, encoded and decoded, a request is equal. Nodes are equal on the first request of a stream.
fn again(request: &Request, variant: Variant, is_first: bool) {
    let node = match request {
        Request::Sotw(request) => &request.node,
        Request::Delta(request) => &request.node,
    };
    let node = node.as_ref().map(|node| encode_node(node));
    let bytes = encode_request(request, node.as_deref());
    let (requests, error) = in_chunks(&bytes, variant, &[bytes.len()]);
    assert_eq!(error, None);
    let mut expected = request.clone();
    let mut found = requests;
    if !is_first {
        for request in std::iter::once(&mut expected).chain(&mut found) {
            match request {
                Request::Sotw(request) => request.node = None,
                Request::Delta(request) => request.node = None,
            }
        }
    }
    let found: Vec<_> = found.into_iter().map(sorted).collect();
    assert_eq!(found, [sorted(expected)]);
}

/// Locators stand after the names.
fn sorted(mut request: Request) -> Request {
    let sort = |names: &mut Vec<ResourceName>| names.sort_by_key(ResourceName::is_located);
    match &mut request {
        Request::Sotw(request) => sort(&mut request.resource_names),
        Request::Delta(request) => {
            sort(&mut request.subscribe);
            sort(&mut request.unsubscribe);
        }
    }
    request
}

/// prost reads the same from each message.
fn compare(body: &[u8], whole: &Outcome, variant: Variant) {
    let mut rest = body;
    let mut read = whole.0.iter();
    while let Some((head, after)) = rest.split_first_chunk::<5>() {
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let Some((message, after)) = after.split_at_checked(length) else { break };
        rest = after;
        spelled_by_prost(message, variant);
        let Some(request) = read.next() else { break };
        if is_misread_by_prost(message, variant) {
            continue;
        }
        match request {
            Request::Sotw(request) => {
                let Ok(other) = sluice_proto::DiscoveryRequest::decode(message) else { continue };
                assert_eq!(
                    (&request.version_info, &request.type_url, &request.response_nonce),
                    (&other.version_info, &other.type_url, &other.response_nonce)
                );
                assert_eq!(request.error_detail.is_some(), other.error_detail.is_some());
                assert_eq!(request.node.is_some(), other.node.is_some());
                assert_eq!(
                    plain(&request.resource_names),
                    names(&other.resource_names, &other.resource_locators)
                );
            }
            Request::Delta(request) => {
                let Ok(other) = sluice_proto::DeltaDiscoveryRequest::decode(message) else { continue };
                assert_eq!(
                    (&request.type_url, &request.response_nonce),
                    (&other.type_url, &other.response_nonce)
                );
                assert_eq!(request.error_detail.is_some(), other.error_detail.is_some());
                let subscribe = names(&other.resource_names_subscribe, &other.resource_locators_subscribe);
                let unsubscribe =
                    names(&other.resource_names_unsubscribe, &other.resource_locators_unsubscribe);
                assert_eq!(
                    (plain(&request.subscribe), plain(&request.unsubscribe)),
                    (subscribe, unsubscribe)
                );
                let versions = request.initial_resource_versions.iter();
                let versions: std::collections::BTreeMap<String, String> =
                    versions.map(|(name, version)| (name.as_str().to_owned(), version.clone())).collect();
                assert_eq!(versions, other.initial_resource_versions);
            }
        }
    }
}

/// prost reads an entry of a map whatever wire type it has. In protobuf, a field of another wire type is unknown.
fn is_misread_by_prost(message: &[u8], variant: Variant) -> bool {
    match variant {
        Variant::Sotw => has_odd_entry(message, None, &[SOTW_LOCATORS]),
        Variant::Delta => has_odd_entry(message, Some(INITIAL_VERSIONS), &DELTA_LOCATORS),
    }
}

const SOTW_LOCATORS: u32 = 7;
const DELTA_LOCATORS: [u32; 2] = [8, 9];
const INITIAL_VERSIONS: u32 = 5;
/// The field of a locator.
const PARAMETERS: u32 = 2;

/// Whether the field `map` of a message, or the parameters of a locator, have another wire type than messages have.
fn has_odd_entry(mut message: &[u8], map: Option<u32>, locators: &[u32]) -> bool {
    while let Ok((field, wire_type)) = decode_key(&mut message) {
        if map == Some(field) && wire_type != WireType::LengthDelimited {
            return true;
        }
        if locators.contains(&field) && wire_type == WireType::LengthDelimited {
            let mut rest = message;
            let locator = decode_varint(&mut rest).ok().and_then(|length| rest.get(..length as usize));
            if locator.is_some_and(|locator| has_odd_entry(locator, Some(PARAMETERS), &[])) {
                return true;
            }
        }
        if skip_field(wire_type, field, &mut message, DecodeContext::default()).is_err() {
            break;
        }
    }
    false
}

/// The reader takes everything that prost writes, but for names with an ending of the relay's own.
fn spelled_by_prost(message: &[u8], variant: Variant) {
    let written = match variant {
        Variant::Sotw => {
            sluice_proto::DiscoveryRequest::decode(message).map(|request| request.encode_to_vec())
        }
        Variant::Delta => {
            sluice_proto::DeltaDiscoveryRequest::decode(message).map(|request| request.encode_to_vec())
        }
    };
    let Ok(written) = written else { return };
    let body = framed(&written);
    let (requests, error) = in_chunks(&body, variant, &[body.len()]);
    let is_reserved = String::from_utf8_lossy(&written).contains(['\u{fdd0}', '\u{fdd1}']);
    let is_fault = matches!(error, Some(ReadError::Malformed(_) | ReadError::Truncated));
    assert!(!is_fault || is_reserved, "{error:?}");
    assert!(error.is_some() || requests.len() == 1);
}

fn plain(names: &[ResourceName]) -> Vec<String> {
    let mut names: Vec<_> = names.iter().map(|name| name.plain().to_owned()).collect();
    names.sort_unstable();
    names
}

fn names(names: &[String], locators: &[sluice_proto::ResourceLocator]) -> Vec<String> {
    let mut names: Vec<_> =
        names.iter().cloned().chain(locators.iter().map(|locator| locator.name.clone())).collect();
    names.sort_unstable();
    names
}
