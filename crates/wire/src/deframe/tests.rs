#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use prost::Message;

use super::*;
use sluice_xds::{
    Code, DeltaRequest, Locality, Node, ResourceName, SotwRequest, Status, UserAgentVersion, Value,
};

fn framed(message: &impl Message) -> Bytes {
    let encoded = message.encode_to_vec();
    [&[0][..], &(encoded.len() as u32).to_be_bytes(), &encoded].concat().into()
}

/// Reads all of a body in chunks of these sizes, over and over.
fn read_in(reader: &mut RequestReader, body: &Bytes, sizes: &[usize]) -> Result<Vec<Request>, ReadError> {
    read_within(&ReaderLimits::default(), reader, body, sizes)
}

fn read_within(
    limits: &ReaderLimits,
    reader: &mut RequestReader,
    body: &Bytes,
    sizes: &[usize],
) -> Result<Vec<Request>, ReadError> {
    let (mut requests, mut rest, mut sizes) = (Vec::new(), body.clone(), sizes.iter().cycle());
    while !rest.is_empty() {
        let size = (*sizes.next().unwrap()).clamp(1, rest.len());
        reader.push(rest.split_to(size));
        while let Some(request) = reader.next(limits) {
            requests.push(request?);
        }
    }
    reader.finish()?;
    Ok(requests)
}

fn read(variant: Variant, message: &impl Message) -> Result<Request, ReadError> {
    Ok(read_in(&mut RequestReader::new(variant), &framed(message), &[usize::MAX])?.remove(0))
}

fn sotw(message: &sluice_proto::DiscoveryRequest) -> SotwRequest {
    match read(Variant::Sotw, message).unwrap() {
        Request::Sotw(request) => request,
        Request::Delta(_) => panic!("a delta request"),
    }
}

fn status(error: ReadError) -> (Code, String) {
    let Status { code, message } = error.into();
    (code, message)
}

fn names(names: &[&str]) -> Vec<ResourceName> {
    names.iter().map(|name| ResourceName::new(name)).collect()
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn value(kind: sluice_proto::value::Kind) -> sluice_proto::Value {
    sluice_proto::Value { kind: Some(kind) }
}

fn big_node() -> sluice_proto::Node {
    use sluice_proto::value::Kind::{BoolValue, ListValue, NullValue, NumberValue, StringValue, StructValue};
    let fields = BTreeMap::from([
        ("number".to_owned(), value(NumberValue(1.5))),
        ("text".to_owned(), value(StringValue("x".to_owned()))),
        (
            "list".to_owned(),
            value(ListValue(sluice_proto::ListValue {
                values: vec![value(BoolValue(true)), value(NullValue(0))],
            })),
        ),
        (
            "inner".to_owned(),
            value(StructValue(sluice_proto::Struct {
                fields: BTreeMap::from([("k".to_owned(), value(NullValue(0)))]),
            })),
        ),
    ]);
    let extension = |n| sluice_proto::Extension {
        name: format!("envoy.filters.http.the_extension_number_{n}"),
        category: "envoy.filters.http".to_owned(),
        type_urls: vec!["envoy.extensions.filters.http.something.v3.Config".to_owned()],
        ..Default::default()
    };
    let parameters =
        |v: &str| sluice_proto::ContextParams { params: BTreeMap::from([("k".to_owned(), v.to_owned())]) };
    sluice_proto::Node {
        id: "node-1".to_owned(),
        cluster: "edge".to_owned(),
        metadata: Some(sluice_proto::Struct { fields }),
        locality: Some(sluice_proto::Locality {
            region: "eu".to_owned(),
            zone: "a".to_owned(),
            sub_zone: String::new(),
        }),
        user_agent_name: "envoy".to_owned(),
        user_agent_version_type: Some(sluice_proto::node::UserAgentVersionType::UserAgentBuildVersion(
            sluice_proto::BuildVersion {
                version: Some(sluice_proto::SemanticVersion { major_number: 1, minor_number: 40, patch: 0 }),
                metadata: None,
            },
        )),
        extensions: (0..516).map(extension).collect(),
        client_features: strings(&["b", "a", "b"]),
        listening_addresses: vec![sluice_proto::Any { type_url: "x".repeat(1000), value: Bytes::new() }],
        dynamic_parameters: BTreeMap::from([
            ("z".to_owned(), parameters("1")),
            ("y".to_owned(), parameters("2")),
        ]),
    }
}

fn big_request() -> sluice_proto::DiscoveryRequest {
    sluice_proto::DiscoveryRequest {
        version_info: "v1".to_owned(),
        node: Some(big_node()),
        resource_names: strings(&["b", "a", "b"]),
        type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned(),
        response_nonce: "n1".to_owned(),
        error_detail: Some(sluice_proto::Status { code: 13, message: "no".to_owned(), details: vec![] }),
        resource_locators: vec![sluice_proto::ResourceLocator { name: "c".to_owned(), ..Default::default() }],
    }
}

#[test]
fn a_sotw_request_is_read_whole() {
    let request = sotw(&big_request());
    let node = *request.node.unwrap();
    assert_eq!((request.version_info.as_str(), request.response_nonce.as_str()), ("v1", "n1"));
    assert_eq!(request.type_url, "type.googleapis.com/envoy.config.cluster.v3.Cluster");
    assert_eq!(request.resource_names, names(&["b", "a", "b", "c"]), "in the order of the wire");
    assert_eq!(request.error_detail, Some(Status::new(Code::Internal, "no")));
    assert_eq!((node.id.as_str(), node.cluster.as_str()), ("node-1", "edge"));
    assert_eq!(
        node.locality,
        Some(Locality { region: "eu".into(), zone: "a".into(), sub_zone: String::new() })
    );
    assert_eq!(node.user_agent_name, "envoy");
    assert_eq!(node.user_agent_version, Some(UserAgentVersion::Build { major: 1, minor: 40, patch: 0 }));
    assert_eq!(node.metadata["number"], Value::Number(1.5f64.to_bits()));
    assert_eq!(node.metadata["text"], Value::String("x".to_owned()));
    assert_eq!(node.metadata["list"], Value::List(vec![Value::Bool(true), Value::Null]));
    assert_eq!(node.metadata["inner"], Value::Struct(BTreeMap::from([("k".to_owned(), Value::Null)])));
}

#[test]
fn a_delta_request_is_read_whole() {
    let message = sluice_proto::DeltaDiscoveryRequest {
        node: Some(sluice_proto::Node { id: "n".to_owned(), ..Default::default() }),
        type_url: "t".to_owned(),
        resource_names_subscribe: strings(&["b", "a"]),
        resource_names_unsubscribe: strings(&["*"]),
        initial_resource_versions: BTreeMap::from([
            ("q".to_owned(), "2".to_owned()),
            ("p".to_owned(), "1".to_owned()),
        ]),
        response_nonce: "7".to_owned(),
        error_detail: Some(sluice_proto::Status::default()),
        resource_locators_subscribe: vec![sluice_proto::ResourceLocator {
            name: "c".to_owned(),
            ..Default::default()
        }],
        resource_locators_unsubscribe: vec![sluice_proto::ResourceLocator {
            name: "d".to_owned(),
            ..Default::default()
        }],
    };
    let expected = DeltaRequest {
        node: Some(Box::new(Node { id: "n".to_owned(), ..Node::default() })),
        type_url: "t".to_owned(),
        subscribe: names(&["b", "a", "c"]),
        unsubscribe: names(&["*", "d"]),
        initial_resource_versions: vec![("p".into(), "1".to_owned()), ("q".into(), "2".to_owned())],
        response_nonce: "7".to_owned(),
        // ACK-1: that there is a detail makes it a NACK, whatever it says.
        error_detail: Some(Status::ok()),
    };
    assert_eq!(read(Variant::Delta, &message).unwrap(), Request::Delta(expected));
}

#[test]
fn fea_1_features_are_a_sorted_set() {
    assert_eq!(sotw(&big_request()).node.unwrap().client_features, strings(&["a", "b"]));
}

#[test]
fn dyn_1_parameters_that_are_no_map_of_maps_of_strings_are_an_error() {
    let good = &b"\x0a\x01k\x12\x08\x0a\x06\x0a\x01p\x12\x01v"[..];
    let bad = [&b"\xff"[..], b"\x0a\x01\xff", b"\x08\x01", b"\x12\x01\xff", b"\x12\x05\x0a\x03\x0a\x01\xff"];
    for (entry, is_good) in std::iter::once((good, true)).chain(bad.map(|entry| (entry, false))) {
        let node = [&[0x62, entry.len() as u8], entry].concat();
        let message = [&[0x12, node.len() as u8], &node[..]].concat();
        let body: Bytes = [&[0, 0, 0, 0, message.len() as u8], &message[..]].concat().into();
        let read = read_in(&mut RequestReader::new(Variant::Sotw), &body, &[1400]);
        assert_eq!(read.is_ok(), is_good, "{entry:?}: {read:?}");
    }
}

#[test]
fn str_3_of_later_nodes_only_what_may_count_is_kept() {
    let body: Bytes = [framed(&big_request()), framed(&big_request())].concat().into();
    let requests = read_in(&mut RequestReader::new(Variant::Sotw), &body, &[1400]).unwrap();
    let [Request::Sotw(first), Request::Sotw(second)] = &requests[..] else { panic!("{requests:?}") };
    let (first, second) = (first.node.as_ref().unwrap(), second.node.as_ref().unwrap());
    assert_eq!(first.dynamic_parameters.len(), 2);
    assert!(first.dynamic_parameters.is_sorted());
    let kept =
        Node { id: "node-1".into(), dynamic_parameters: first.dynamic_parameters.clone(), ..Node::default() };
    assert_eq!(**second, kept);
}

#[test]
fn str_3_a_node_of_an_envoy_is_never_held() {
    let body = framed(&big_request());
    assert!(body.len() > 60_000, "as large as an Envoy's: {}", body.len());
    let limits = ReaderLimits { node_retained_bytes: 500, ..ReaderLimits::default() };
    let mut reader = RequestReader::new(Variant::Sotw);
    read_within(&limits, &mut reader, &body, &[16 << 10])
        .expect("extensions and addresses do not count as retained");
    assert!(reader.chunk.is_empty() && reader.message.is_none());
}

#[test]
fn limits_are_named_with_what_was_found_and_what_is_allowed() {
    let limits = ReaderLimits {
        request_bytes: 10_000,
        node_bytes: 2_000,
        node_retained_bytes: 100,
        metadata_depth: 3,
        names_per_request: 3,
        name_bytes: 5,
        type_url_bytes: 6,
        error_detail_bytes: 4,
    };
    type Set = fn(&mut sluice_proto::DiscoveryRequest);
    let node = |set: fn(&mut sluice_proto::Node)| {
        let mut node = sluice_proto::Node::default();
        set(&mut node);
        sluice_proto::DiscoveryRequest { node: Some(node), ..Default::default() }
    };
    let request = |set: Set| {
        let mut request = sluice_proto::DiscoveryRequest::default();
        set(&mut request);
        request
    };
    let cases = [
        (
            request(|r| r.version_info = "x".repeat(20_000)),
            "bytes of a request message: found 20004, the limit is 10000",
        ),
        (
            node(|n| {
                n.extensions = vec![sluice_proto::Extension { name: "x".repeat(2_000), ..Default::default() }]
            }),
            "bytes of the node: found 2006, the limit is 2000",
        ),
        (node(|n| n.cluster = "x".repeat(101)), "kept bytes of the node: found 101, the limit is 100"),
        (node(|n| n.metadata = Some(nested(4))), "levels of metadata: found 4, the limit is 3"),
        (
            request(|r| r.resource_names = strings(&["a"; 4])),
            "resource names in a request: found 4, the limit is 3",
        ),
        (
            request(|r| r.resource_names = strings(&["abcdef"])),
            "bytes of a resource name: found 6, the limit is 5",
        ),
        (request(|r| r.type_url = "abcdefg".into()), "bytes of type_url: found 7, the limit is 6"),
        (request(|r| r.response_nonce = "abcdef".into()), "bytes of response_nonce: found 6, the limit is 5"),
    ];
    for (message, expected) in cases {
        let mut reader = RequestReader::new(Variant::Sotw);
        let error = read_within(&limits, &mut reader, &framed(&message), &[64]).expect_err(expected);
        assert_eq!(status(error), (Code::ResourceExhausted, expected.to_owned()));
        reader.push(framed(&sluice_proto::DiscoveryRequest::default()));
        assert_eq!(reader.next(&limits), None, "nothing more after an error");
    }
    let fits = sluice_proto::Node { metadata: Some(nested(3)), ..Default::default() };
    let fits = sluice_proto::DiscoveryRequest {
        node: Some(fits),
        resource_names: strings(&["abcde"; 3]),
        ..Default::default()
    };
    read_within(&limits, &mut RequestReader::new(Variant::Sotw), &framed(&fits), &[64])
        .expect("all within the limits");
}

/// A struct of so many levels, lists and structs in turn.
fn nested(levels: usize) -> sluice_proto::Struct {
    use sluice_proto::value::Kind::{ListValue, NullValue, StructValue};
    let mut inner = value(NullValue(0));
    for level in 1..levels {
        inner = if level % 2 == 0 {
            value(ListValue(sluice_proto::ListValue { values: vec![inner] }))
        } else {
            value(StructValue(sluice_proto::Struct { fields: BTreeMap::from([("k".to_owned(), inner)]) }))
        };
    }
    sluice_proto::Struct { fields: BTreeMap::from([("k".to_owned(), inner)]) }
}

#[test]
fn a_nacks_message_is_cut_between_characters_and_need_not_be_text() {
    let limits = ReaderLimits { error_detail_bytes: 4, ..ReaderLimits::default() };
    for (sent, kept) in
        [(&b"abcd\xc3"[..], "abcd"), ("abc\u{e9}!".as_bytes(), "abc"), (b"a\xff", "a\u{fffd}"), (b"ok", "ok")]
    {
        // A status with its message as bytes, which no string field could hold.
        let detail = [&[8, 13, 18, sent.len() as u8][..], sent].concat();
        let message = [&[50, detail.len() as u8][..], &detail].concat();
        let body = [&[0, 0, 0, 0, message.len() as u8][..], &message].concat().into();
        let requests = read_within(&limits, &mut RequestReader::new(Variant::Sotw), &body, &[3]).unwrap();
        let Request::Sotw(request) = &requests[0] else { panic!("{requests:?}") };
        assert_eq!(request.error_detail, Some(Status::new(Code::Internal, kept)), "{sent:?}");
    }
}

#[test]
fn garbage_is_an_error_of_its_kind() {
    let cases: [(&[u8], Code); 11] = [
        (&[1, 0, 0, 0, 0], Code::Unimplemented),
        (&[2, 0, 0, 0, 0], Code::InvalidArgument),
        (&[0, 0, 0, 0, 3, 34, 5, 1], Code::InvalidArgument),
        (&[0, 0, 0, 0, 1, 34], Code::InvalidArgument),
        (&[0, 0, 0, 0, 3, 34, 1, 0xff], Code::InvalidArgument),
        (&[0, 0, 0, 0, 2, 0, 0], Code::InvalidArgument),
        (&[0, 0, 0, 0, 1, 3 << 3 | 3], Code::InvalidArgument),
        (&[0, 0, 0, 0, 4, 18, 2, 10, 9], Code::InvalidArgument),
        (&[0, 0, 0, 0, 12, 8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2, 0], Code::InvalidArgument),
        (&[0, 0, 0], Code::InvalidArgument),
        (&[0, 0, 0, 0, 9, 34, 1], Code::InvalidArgument),
    ];
    for (body, code) in cases {
        let error = read_in(&mut RequestReader::new(Variant::Sotw), &Bytes::copy_from_slice(body), &[64])
            .expect_err("garbage");
        assert_eq!(status(error).0, code, "{body:?}");
    }
}

#[test]
fn dyn_7_dyn_8_locators_are_names_with_or_without_parameters() {
    let parameters = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
    let locator = |name: &str, dynamic_parameters: &BTreeMap<_, _>| sluice_proto::ResourceLocator {
        name: name.to_owned(),
        dynamic_parameters: dynamic_parameters.clone(),
    };
    let pair = [locator("c", &parameters), locator("d", &BTreeMap::new())];
    let located = ResourceName::located("c", &parameters);
    let request = sluice_proto::DiscoveryRequest {
        resource_names: vec!["n".to_owned()],
        resource_locators: pair.to_vec(),
        ..Default::default()
    };
    let Request::Sotw(request) = read(Variant::Sotw, &request).unwrap() else { panic!("SotW") };
    assert_eq!(request.resource_names, ["n".into(), located.clone(), "d".into()]);
    let request = sluice_proto::DeltaDiscoveryRequest {
        resource_locators_subscribe: pair.to_vec(),
        resource_locators_unsubscribe: pair[..1].to_vec(),
        ..Default::default()
    };
    let Request::Delta(request) = read(Variant::Delta, &request).unwrap() else { panic!("delta") };
    assert_eq!(request.subscribe, [located.clone(), "d".into()]);
    assert_eq!(request.unsubscribe, [located]);
}

#[test]
fn locators_and_names_that_cannot_be_are_refused() {
    let parameters = BTreeMap::from([("k".to_owned(), "v".repeat(5000))]);
    let short = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
    let ask = |name: &str, dynamic_parameters: &BTreeMap<_, _>| sluice_proto::DiscoveryRequest {
        resource_locators: vec![sluice_proto::ResourceLocator {
            name: name.to_owned(),
            dynamic_parameters: dynamic_parameters.clone(),
        }],
        ..Default::default()
    };
    let forged = ResourceName::located("c", &short).to_string();
    let plain = sluice_proto::DiscoveryRequest { resource_names: vec![forged.clone()], ..Default::default() };
    let cases = [
        (ask("c", &parameters), Code::ResourceExhausted),
        (ask("*", &short), Code::Unimplemented),
        (ask("xdstp://a/t/x/*", &short), Code::Unimplemented),
        (ask(&forged, &short), Code::InvalidArgument),
        (plain, Code::InvalidArgument),
    ];
    for (request, code) in cases {
        assert_eq!(status(read(Variant::Sotw, &request).unwrap_err()).0, code, "{request:?}");
    }
}

#[test]
fn unknown_fields_and_repeated_ones_are_read_as_protobuf_does() {
    // Field 99 as a varint, 98 as 32 bits, 97 as 64 bits, 96 with a length; then two type URLs.
    let mut message =
        vec![0x98, 6, 1, 0x95, 6, 1, 2, 3, 4, 0x89, 6, 1, 2, 3, 4, 5, 6, 7, 8, 0x82, 6, 2, 9, 9];
    message.extend([34, 1, b'a', 34, 1, b'b']);
    let body: Bytes = [&[0, 0, 0, 0, message.len() as u8][..], &message].concat().into();
    let requests = read_in(&mut RequestReader::new(Variant::Sotw), &body, &[1]).unwrap();
    let expected = SotwRequest { type_url: "b".to_owned(), ..SotwRequest::default() };
    assert_eq!(requests, [Request::Sotw(expected)]);
}

#[test]
fn many_messages_in_one_chunk_come_one_by_one_and_leave_nothing_behind() {
    let body: Bytes = framed(&sluice_proto::DiscoveryRequest::default()).repeat(3).into();
    let mut reader = RequestReader::new(Variant::Sotw);
    reader.push(body);
    let count = std::iter::from_fn(|| reader.next(&ReaderLimits::default())).count();
    assert_eq!(count, 3);
    assert!(reader.finish().is_ok() && reader.message.is_none());
}

proptest! {
    #[test]
    fn no_bytes_in_any_chunks_panic(
        body in proptest::collection::vec(any::<u8>(), 0..300),
        length in 0u8..,
        sizes in proptest::collection::vec(1usize..40, 1..5),
        delta in any::<bool>(),
    ) {
        let variant = if delta { Variant::Delta } else { Variant::Sotw };
        // Arbitrary bytes hardly ever make a header; half of the value is behind a good one.
        let framed: Bytes = [&[0, 0, 0, 0, length][..], &body].concat().into();
        let _ = read_in(&mut RequestReader::new(variant), &framed, &sizes);
        let _ = read_in(&mut RequestReader::new(variant), &body.into(), &sizes);
    }

    #[test]
    fn a_damaged_request_does_not_panic(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        sizes in proptest::collection::vec(1usize..200, 1..5),
    ) {
        let mut request = big_request();
        request.node.as_mut().unwrap().extensions.truncate(2);
        let mut body = framed(&request).to_vec();
        for (index, byte) in flips {
            let at = index.index(body.len());
            body[at] = byte;
        }
        let _ = read_in(&mut RequestReader::new(Variant::Sotw), &body.into(), &sizes);
    }

    #[test]
    fn a_request_cut_anywhere_is_the_same_request(
        sizes in proptest::collection::vec(1usize..5000, 1..8),
    ) {
        let body = framed(&big_request());
        let whole = read_in(&mut RequestReader::new(Variant::Sotw), &body, &[usize::MAX]);
        prop_assert!(whole.is_ok());
        prop_assert_eq!(read_in(&mut RequestReader::new(Variant::Sotw), &body, &sizes), whole);
    }
}

#[test]
fn a_node_of_another_message_is_read_within_the_limits_of_requests() {
    let node = sluice_proto::Node { id: "n".repeat(100), cluster: "c".into(), ..Default::default() };
    let read = |limits: &ReaderLimits| read_node(&node.encode_to_vec(), limits);
    let found = read(&ReaderLimits::default()).unwrap();
    assert_eq!((found.id.len(), found.cluster.as_str()), (100, "c"));
    let small = ReaderLimits { node_bytes: 64, ..ReaderLimits::default() };
    assert!(matches!(read(&small), Err(ReadError::OverLimit { limit: Bound::NodeBytes, .. })));
    assert!(read_node(&[0x0a, 5, b'x'], &ReaderLimits::default()).is_err());
    assert_eq!(read_node(&[], &ReaderLimits::default()).unwrap(), Node::default());
}
