//! Requests to a server.

use super::*;

/// A request as a server sees it that reads with the codec of this crate.
fn reread(request: &Request, node: Option<&[u8]>) -> Request {
    let variant = if matches!(request, Request::Sotw(_)) { Variant::Sotw } else { Variant::Delta };
    let mut reader = RequestReader::new(variant);
    reader.push(encode_request(request, node));
    reader.next(&ReaderLimits::default()).unwrap().unwrap()
}

fn node() -> Node {
    Node {
        id: "relay-1".to_owned(),
        cluster: "edge".to_owned(),
        metadata: BTreeMap::from([
            ("null".to_owned(), Value::Null),
            ("flag".to_owned(), Value::Bool(false)),
            ("list".to_owned(), Value::List(vec![Value::Number(0), Value::String(String::new())])),
            (
                "inner".to_owned(),
                Value::Struct(BTreeMap::from([("k".to_owned(), Value::Number(2.5f64.to_bits()))])),
            ),
            ("empty".to_owned(), Value::List(vec![])),
        ]),
        locality: Some(Locality { region: "eu".to_owned(), ..Locality::default() }),
        user_agent_name: "sluice".to_owned(),
        user_agent_version: Some(UserAgentVersion::Text("1.0".to_owned())),
        client_features: vec!["a".to_owned(), "b".to_owned()],
        dynamic_parameters: vec![Bytes::from_static(b"\x0a\x01k")],
    }
}

#[test]
fn requests_of_both_variants_read_back_with_the_node_spliced_in() {
    let mut sotw = SotwRequest {
        version_info: "v".to_owned(),
        node: None,
        resource_names: vec!["a".into(), "b".into()],
        type_url: CLUSTER.to_owned(),
        response_nonce: "n".to_owned(),
        error_detail: Some(Status::new(Code::InvalidArgument, "bad: a")),
    };
    let mut delta = DeltaRequest {
        node: None,
        type_url: CLUSTER.to_owned(),
        subscribe: vec!["*".into()],
        unsubscribe: vec!["b".into()],
        initial_resource_versions: vec![("a".into(), "1".to_owned()), ("b".into(), String::new())],
        response_nonce: "n".to_owned(),
        error_detail: None,
    };
    assert_eq!(reread(&Request::Sotw(sotw.clone()), None), Request::Sotw(sotw.clone()));
    assert_eq!(reread(&Request::Delta(delta.clone()), None), Request::Delta(delta.clone()));
    let build = UserAgentVersion::Build { major: 1, minor: 0, patch: 3 };
    for node in [node(), Node { user_agent_version: Some(build), ..node() }] {
        let encoded = encode_node(&node);
        sluice_proto::Node::decode(&*encoded).expect("a node to others as well");
        sotw.node = Some(Box::new(node.clone()));
        delta.node = Some(Box::new(node));
        assert_eq!(reread(&Request::Sotw(sotw.clone()), Some(&encoded)), Request::Sotw(sotw.clone()));
        assert_eq!(reread(&Request::Delta(delta.clone()), Some(&encoded)), Request::Delta(delta.clone()));
    }
}

#[test]
fn a_nacks_message_is_cut_to_size() {
    let error_detail = Some(Status::new(Code::InvalidArgument, "\u{e9}".repeat(3000)));
    let request = Request::Sotw(SotwRequest { error_detail, ..SotwRequest::default() });
    let encoded = encode_request(&request, None);
    let read = sluice_proto::DiscoveryRequest::decode(encoded.slice(5..)).unwrap();
    assert_eq!(read.error_detail.unwrap().message, "\u{e9}".repeat(2048));
}
