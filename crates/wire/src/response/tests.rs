#![allow(clippy::unwrap_used)]

use prost::Message;

use super::*;
use crate::version;
use sluice_xds::Any;

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";

fn resource(type_url: &TypeUrl, name: &str, value: &'static [u8]) -> Resource {
    Resource {
        name: name.into(),
        version: version::of_content(name, type_url.as_str(), value, &[]),
        body: Any { type_url: type_url.shared(), value: Bytes::from_static(value) },
        aliases: Box::default(),
        ttl: None,
        do_not_cache: false,
        body_has_name: true,
        metadata: None,
        endpoints: None,
        constraints: None,
    }
}

/// The message that a client reads: head and body, one behind the other.
fn message(nonce: &str, body: &Bytes) -> Bytes {
    let head = head(nonce, None, body.len()).unwrap();
    let whole = [&head[..], &body[..]].concat();
    let (header, message) = whole.split_at(HEADER_LEN);
    assert_eq!(header, frame::header(message.len()).unwrap());
    Bytes::copy_from_slice(message)
}

#[test]
fn rpc_7_a_sotw_response_reads_back() {
    let url = TypeUrl::of_message(CLUSTER);
    let resources = [resource(&url, "a", b"\x0a\x01a"), resource(&url, "b", b"\x0a\x01b")];
    let version = version::of_response(&resources);
    let body = sotw_body(&url, version, resources.iter(), Beside::default(), "relay");
    let expected = sluice_proto::DiscoveryResponse {
        version_info: version.to_string(),
        resources: resources
            .iter()
            .map(|r| sluice_proto::Any { type_url: r.body.type_url.to_string(), value: r.body.value.clone() })
            .collect(),
        type_url: url.as_str().to_owned(),
        nonce: "17".to_owned(),
        control_plane: Some(sluice_proto::ControlPlane { identifier: "relay".to_owned() }),
        ..Default::default()
    };
    assert_eq!(sluice_proto::DiscoveryResponse::decode(message("17", &body)).unwrap(), expected);
}

#[test]
fn typ_7_a_payload_with_unknown_fields_leaves_byte_identical() {
    // Field 9999 as a string, which no schema here knows.
    const PAYLOAD: &[u8] = b"\x0a\x01a\xfa\xf0\x04\x03xyz";
    let url = TypeUrl::of_message(CLUSTER);
    let sent = sluice_proto::DiscoveryResponse {
        resources: vec![sluice_proto::Any {
            type_url: url.as_str().to_owned(),
            value: Bytes::from_static(PAYLOAD),
        }],
        type_url: url.as_str().to_owned(),
        ..Default::default()
    };
    let received = crate::upstream::decode_sotw_response(sent.encode_to_vec().into()).unwrap();
    let resource = received.resources[0].as_ref().unwrap().resource.clone().unwrap();

    let body = sotw_body(&url, resource.version, [&*resource].into_iter(), Beside::default(), "");
    let left = sluice_proto::DiscoveryResponse::decode(message("1", &body)).unwrap();
    assert_eq!(left.resources[0].value, PAYLOAD);
    let body =
        delta_body(&url, resource.version, [&*resource].into_iter(), [].iter(), &[], Beside::default(), "");
    let left = sluice_proto::DeltaDiscoveryResponse::decode(message("1", &body)).unwrap();
    assert_eq!(left.resources[0].resource.as_ref().unwrap().value, PAYLOAD);
}

#[test]
fn del_12_a_delta_response_reads_back() {
    let url = TypeUrl::of_message(CLUSTER);
    let mut full = resource(&url, "a", b"\x0a\x01a");
    full.aliases = ["x".into(), "y".into()].into();
    full.do_not_cache = true;
    full.ttl = Some(std::time::Duration::from_secs(5));
    full.metadata = Some(Bytes::from_static(b"\x0a\x00"));
    let removed = ["gone".into(), "lost".into()];
    let beside = Beside::default();
    let body = delta_body(&url, Version(5), [&full].into_iter(), removed.iter(), &[], beside, "relay");
    let expected = sluice_proto::DeltaDiscoveryResponse {
        system_version_info: Version(5).to_string(),
        resources: vec![sluice_proto::Resource {
            version: full.version.to_string(),
            resource: Some(sluice_proto::Any {
                type_url: url.as_str().to_owned(),
                value: full.body.value.clone(),
            }),
            name: "a".to_owned(),
            aliases: vec!["x".to_owned(), "y".to_owned()],
            cache_control: Some(sluice_proto::resource::CacheControl { do_not_cache: true }),
            metadata: Bytes::from_static(b"\x0a\x00"),
            ..Default::default()
        }],
        type_url: url.as_str().to_owned(),
        nonce: "n".to_owned(),
        removed_resources: vec!["gone".to_owned(), "lost".to_owned()],
        control_plane: Some(sluice_proto::ControlPlane { identifier: "relay".to_owned() }),
        ..Default::default()
    };
    assert_eq!(sluice_proto::DeltaDiscoveryResponse::decode(message("n", &body)).unwrap(), expected);
}

#[test]
fn wir_9_what_has_no_name_of_its_own_goes_wrapped_in_sotw() {
    let collection = TypeUrl::of_message("envoy.config.endpoint.v3.LbEndpointCollection");
    let cluster = TypeUrl::of_message(CLUSTER);
    let mut redirect = resource(&cluster, "xdstp://a/envoy.config.cluster.v3.Cluster/b", b"\x12\x01c");
    redirect.body.type_url = "type.googleapis.com/xds.core.v3.ResourceLocator".into();
    let mut nameless = resource(&cluster, "c", b"\x12\x01c");
    nameless.body_has_name = false;
    let list = resource(&collection, "l", b"\x0a\x00");
    for (url, sent) in [(&collection, list), (&cluster, redirect), (&cluster, nameless)] {
        let body = sotw_body(url, sent.version, [&sent].into_iter(), Beside::default(), "");
        let response = sluice_proto::DiscoveryResponse::decode(message("1", &body)).unwrap();
        assert_eq!(response.resources[0].type_url, WRAPPER);
        let wrapper = sluice_proto::Resource::decode(response.resources[0].value.clone()).unwrap();
        assert_eq!(
            (wrapper.name.as_str(), &wrapper.version),
            (sent.name.as_str(), &sent.version.to_string())
        );
        let inner = wrapper.resource.unwrap();
        assert_eq!((inner.type_url.as_str(), &inner.value), (&*sent.body.type_url, &sent.body.value));
    }
}

#[test]
fn an_empty_response_still_says_what_it_is() {
    let url = TypeUrl::of_message(CLUSTER);
    let body = sotw_body(&url, Version::default(), [].iter(), Beside::default(), "");
    let response = sluice_proto::DiscoveryResponse::decode(message("1", &body)).unwrap();
    assert_eq!((response.version_info.len(), response.type_url.as_str()), (32, url.as_str()));
    assert_eq!(response.control_plane, None);
}

#[test]
#[should_panic(expected = "two resources of a response have the same name")]
fn sst_8_a_repeated_name_is_a_bug_of_ours() {
    let url = TypeUrl::of_message(CLUSTER);
    let twice = resource(&url, "a", b"\x0a\x01a");
    sotw_body(&url, Version::default(), [&twice, &twice].into_iter(), Beside::default(), "");
}

#[test]
#[should_panic(expected = "a delta response names a resource twice")]
fn del_16_a_name_both_sent_and_removed_is_a_bug_of_ours() {
    let url = TypeUrl::of_message(CLUSTER);
    let sent = resource(&url, "a", b"\x0a\x01a");
    let beside = Beside::default();
    delta_body(&url, Version::default(), [&sent].into_iter(), ["a".into()].iter(), &[], beside, "");
}

#[test]
fn a_message_beyond_grpc_is_an_error_not_a_lie() {
    assert!(head("1", None, u32::MAX as usize - 3).is_ok());
    assert_eq!(head("1", None, u32::MAX as usize - 2).unwrap_err().code, Code::ResourceExhausted);
}

#[test]
fn dyn_2_dyn_6_a_variant_is_told_with_its_constraints() {
    let url = TypeUrl::of_message(CLUSTER);
    let constraints = |key: &str| {
        let encoded = sluice_proto::DynamicParameterConstraints {
            r#type: Some(sluice_proto::dynamic_parameter_constraints::Type::Constraint(
                sluice_proto::dynamic_parameter_constraints::SingleConstraint {
                    key: key.to_owned(),
                    constraint_type: None,
                },
            )),
        };
        let condition = sluice_xds::Constraint::Exists(key.into());
        let constraints = Arc::new(Constraints::new(condition, encoded.encode_to_vec().into()));
        let dynamic_parameter_constraints = Some(encoded);
        (constraints, sluice_proto::ResourceName { name: "a".to_owned(), dynamic_parameter_constraints })
    };
    let ((is, expected), (was, gone)) = (constraints("k"), constraints("l"));
    let mut variant = resource(&url, "a", b"\x0a\x01a");
    variant.constraints = Some(is);
    let variants = [("a".into(), was)];
    let body = delta_body(
        &url,
        Version(5),
        [&variant].into_iter(),
        ["a".into()].iter(),
        &variants,
        Beside::default(),
        "",
    );
    let response = sluice_proto::DeltaDiscoveryResponse::decode(message("n", &body)).unwrap();
    let sent = &response.resources[0];
    assert_eq!((sent.name.as_str(), sent.resource_name.as_ref()), ("", Some(&expected)));
    assert_eq!(
        (response.removed_resources.as_slice(), response.removed_resource_names.as_slice()),
        (&["a".to_owned()][..], &[gone][..])
    );
    // WIR-10: in SotW it takes the wrapper.
    let body = sotw_body(&url, variant.version, [&variant].into_iter(), Beside::default(), "");
    let response = sluice_proto::DiscoveryResponse::decode(message("1", &body)).unwrap();
    let wrapper = sluice_proto::Resource::decode(response.resources[0].value.clone()).unwrap();
    assert_eq!(wrapper.resource_name, Some(expected));
    assert_eq!(wrapper.resource.unwrap().value, variant.body.value);
}

#[test]
fn ttl_2_ttl_4_err_2_what_is_said_beside_resources_reads_back() {
    let url = TypeUrl::of_message("envoy.config.endpoint.v3.ClusterLoadAssignment");
    let (sent, kept) = (resource(&url, "a", b"\x0a\x01a"), Arc::new(resource(&url, "b", b"\x0a\x01b")));
    let ttls =
        BTreeMap::from([("a".into(), Duration::from_millis(1_500)), ("b".into(), Duration::from_secs(9))]);
    let error = Arc::new(Status::new(Code::Unavailable, "cp-1: away"));
    let (beats, errors) = ([kept.clone()], [("c".into(), error)]);
    let beside = Beside { ttls: Some(&ttls), beats: &beats, errors: &errors };
    let version = Version(7);
    let sotw = sotw_body(&url, version, [&sent].into_iter(), Beside { beats: &[], ..beside }, "");
    let sotw = crate::upstream::decode_sotw_response(sotw).unwrap();
    let delta = delta_body(&url, version, [&sent].into_iter(), [].iter(), &[], beside, "");
    let delta = crate::upstream::decode_delta_response(delta).unwrap();
    for (elements, errors) in [(&sotw.resources, &sotw.errors), (&delta.resources, &delta.errors)] {
        let a = elements[0].as_ref().unwrap();
        assert_eq!(a.resource.as_ref().unwrap().ttl, Some(Duration::from_millis(1_500)));
        assert_eq!((errors[0].name.as_str(), errors[0].status.code), ("c", Code::Unavailable));
    }
    let b = delta.resources[1].as_ref().unwrap();
    assert_eq!((b.name.as_str(), &b.resource, b.ttl), ("b", &None, Some(Duration::from_secs(9))));
    assert_eq!(*b.upstream_version, kept.version.to_string());
}

/// ADR 14: whoever reads no marks reads the response as if there were none.
#[test]
fn a_mark_is_a_field_that_others_skip() {
    let url = TypeUrl::of_message(CLUSTER);
    let a = resource(&url, "a", b"\x0a\x01a");
    let body = delta_body(&url, a.version, [&a].into_iter(), [].iter(), &[], Beside::default(), "relay");
    let globs = (0..3).map(|number| ResourceName::from(format!("xdstp://x/C/{number}/*"))).collect();
    for mark in [SetMark { requests: 300, whole: true, globs }, SetMark::default()] {
        let head = head("17", Some(&mark), body.len()).unwrap();
        let whole = [&head[..], &body[..]].concat();
        let (header, marked) = whole.split_at(HEADER_LEN);
        assert_eq!(header, frame::header(marked.len()).unwrap());
        assert_eq!(crate::read_mark(marked), Some(mark));
        let plain = message("17", &body);
        assert_eq!(crate::read_mark(&plain), None);
        let read = |bytes: &[u8]| sluice_proto::DeltaDiscoveryResponse::decode(bytes).unwrap();
        assert_eq!(read(marked), read(&plain));
        let read =
            |bytes: &[u8]| crate::upstream::decode_delta_response(Bytes::copy_from_slice(bytes)).unwrap();
        assert_eq!(read(marked), read(&plain));
    }
}

#[test]
fn a_mark_that_cannot_be_read_says_nothing_and_a_long_one_is_cut() {
    let nonce = build(0, |sink| put_bytes(sink, NONCE, b"1"));
    for mark in [&b"\x08"[..], b"\x12\x01x", b"\x1a\x01\xff"] {
        // The key of the field, and what it holds.
        let field = [&b"\xf2\x84\x1e"[..], &[u8::try_from(mark.len()).unwrap()], mark].concat();
        assert_eq!(crate::read_mark(&[&nonce[..], &field].concat()), None);
    }
    let globs = (0..2000).map(|number| ResourceName::from(format!("xdstp://x/C/{number}/*"))).collect();
    let head = head("1", Some(&SetMark { globs, ..SetMark::default() }), 0).unwrap();
    let read = crate::read_mark(&head[HEADER_LEN..]).unwrap();
    assert_eq!(read.globs.len(), sluice_xds::mark::GLOBS_MAX);
}
