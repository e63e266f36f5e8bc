#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod copies;
mod requests;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;

use super::*;
use crate::deframe::{ReaderLimits, RequestReader};
use crate::version;
use sluice_xds::{
    BadElement, Code, DeltaRequest, DeltaResponse, Element, Locality, Node, Received, Request, Resource,
    ResourceName, SotwRequest, SotwResponse, Status, TypeUrl, UserAgentVersion, Value, Variant,
};

const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
const LEDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpointCollection";
const DUBBO: &str =
    "type.googleapis.com/envoy.extensions.filters.network.dubbo_proxy.v3.MultipleRouteConfiguration";
const WRAPPER: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";
const REDIRECT: &str = "type.googleapis.com/xds.core.v3.ResourceLocator";

fn any(type_url: &str, value: &[u8]) -> sluice_proto::Any {
    sluice_proto::Any { type_url: type_url.to_owned(), value: Bytes::copy_from_slice(value) }
}

/// A message with a name in field 1.
fn named(name: &str) -> Vec<u8> {
    sluice_proto::Cluster { name: name.to_owned(), ..Default::default() }.encode_to_vec()
}

fn resource(name: &str, payload: Option<sluice_proto::Any>) -> sluice_proto::Resource {
    sluice_proto::Resource {
        name: name.to_owned(),
        version: "7".to_owned(),
        resource: payload,
        ..Default::default()
    }
}

fn wrapped(resource: &sluice_proto::Resource) -> sluice_proto::Any {
    any(WRAPPER, &resource.encode_to_vec())
}

fn sotw(type_url: &str, resources: Vec<sluice_proto::Any>) -> SotwResponse {
    let response = sluice_proto::DiscoveryResponse {
        version_info: "v3".to_owned(),
        resources,
        type_url: type_url.to_owned(),
        nonce: "n".to_owned(),
        control_plane: Some(sluice_proto::ControlPlane { identifier: "cp-1".to_owned() }),
        ..Default::default()
    };
    decode_sotw_response(response.encode_to_vec().into()).unwrap()
}

fn delta_of(response: &sluice_proto::DeltaDiscoveryResponse) -> DeltaResponse {
    decode_delta_response(response.encode_to_vec().into()).unwrap()
}

fn delta(type_url: &str, resources: Vec<sluice_proto::Resource>) -> Vec<Element> {
    let type_url = type_url.to_owned();
    delta_of(&sluice_proto::DeltaDiscoveryResponse { type_url, resources, ..Default::default() }).resources
}

fn good(element: &Element) -> &Received {
    element.as_ref().unwrap()
}

fn payload(element: &Element) -> &Resource {
    good(element).resource.as_deref().unwrap()
}

/// The name of a bad element, and whether its reason mentions this.
#[track_caller]
fn assert_bad(element: &Element, name: Option<&str>, mention: &str) {
    let BadElement { name: stated, reason, .. } = element.as_ref().expect_err("bad");
    assert_eq!(stated.as_ref().map(ResourceName::as_str), name, "{reason}");
    assert!(reason.contains(mention), "{reason:?} should mention {mention:?}");
}

#[test]
fn a_sotw_response_is_read_whole() {
    let response = sotw(CLUSTER, vec![any(CLUSTER, &named("a"))]);
    assert_eq!((response.version_info.as_str(), response.nonce.as_str()), ("v3", "n"));
    assert_eq!((response.type_url.as_str(), response.control_plane.as_str()), (CLUSTER, "cp-1"));
    let expected = version::of_content("a", CLUSTER, &named("a"), &[]);
    let a = payload(&response.resources[0]);
    assert_eq!((a.name.as_str(), a.version, &a.body.value[..]), ("a", expected, &named("a")[..]));
    assert_eq!(&*good(&response.resources[0]).upstream_version, "v3");
}

#[test]
fn wir_7_bare_and_wrapped_elements_are_both_indexed() {
    let response = sotw(
        CLUSTER,
        vec![
            any(CLUSTER, &named("a")),
            wrapped(&resource("b", Some(any(CLUSTER, &named("b"))))),
            any(
                "type.googleapis.com/envoy.api.v2.Resource",
                &resource("c", Some(any(CLUSTER, b""))).encode_to_vec(),
            ),
            wrapped(&sluice_proto::Resource {
                resource: Some(any(CLUSTER, &named("d"))),
                ..Default::default()
            }),
        ],
    );
    let read: Vec<_> =
        response.resources.iter().map(|r| (good(r).name.as_str(), &*good(r).upstream_version)).collect();
    assert_eq!(read, [("a", "v3"), ("b", "7"), ("c", "7"), ("d", "v3")]);
    // RLY-30: the wrapper does not count.
    let bare = sotw(CLUSTER, vec![any(CLUSTER, &named("b"))]);
    assert_eq!(payload(&response.resources[1]), payload(&bare.resources[0]));
}

#[test]
fn wir_9_a_bare_element_without_a_name_field_cannot_be_identified() {
    let response = sotw(
        LEDS,
        vec![
            any(LEDS, b""),
            wrapped(&resource("l", Some(any(LEDS, b"")))),
            wrapped(&resource("", Some(any(LEDS, b"")))),
        ],
    );
    assert_bad(&response.resources[0], None, "must be wrapped");
    assert_eq!(good(&response.resources[1]).name.as_str(), "l");
    assert_bad(&response.resources[2], None, "no name");
}

#[test]
fn rly_37_bad_elements_are_reported_and_the_rest_is_used() {
    let response = sotw(
        CLUSTER,
        vec![
            any(CLUSTER, b"\xff"),
            any(LISTENER, &named("b")),
            any(CLUSTER, b""),
            any(CLUSTER, b"\x0a\x01\xff"),
            any(CLUSTER, b"\x08\x01"),
            wrapped(&resource("e", Some(any(LISTENER, &named("e"))))),
            wrapped(&resource("f", Some(any(CLUSTER, b"\xff")))),
            any(CLUSTER, &named("ok")),
        ],
    );
    let elements = &response.resources;
    assert_bad(&elements[0], None, "malformed");
    assert_bad(&elements[1], None, LISTENER);
    assert_bad(&elements[2], None, "no name");
    assert_bad(&elements[3], None, "UTF-8");
    assert_bad(&elements[4], None, "wire type");
    assert_bad(&elements[5], Some("e"), LISTENER);
    assert_bad(&elements[6], Some("f"), "malformed");
    assert_eq!(good(&elements[7]).name.as_str(), "ok");
}

#[test]
fn rly_37_a_flood_of_bad_elements_is_summed_up() {
    let response = sotw(CLUSTER, vec![any("", b""); 5000]);
    assert_eq!(response.resources.len(), 1001);
    assert_bad(&response.resources[1000], None, "4000 more");
}

#[test]
fn typ_1_any_type_is_read_by_its_first_field() {
    const ADDRESS: &str = "type.googleapis.com/istio.workload.Address";
    let response = sotw(ADDRESS, vec![any(ADDRESS, &named("a"))]);
    assert_eq!(good(&response.resources[0]).name.as_str(), "a");
}

/// istiod's name table is a map: what stands in its first field is no name, be it text.
#[test]
fn wir_9_a_payload_of_an_unknown_type_may_have_no_name() {
    const NDS: &str = "type.googleapis.com/istio.networking.nds.v1.NameTable";
    let entry = b"\x0a\x0e\x0a\x03web\x12\x07\x0a\x05::1:1";
    for value in [&entry[..], b"", b"\x08\x01", b"\x0a\x02\xff\xfe"] {
        let response = sotw(NDS, vec![any(NDS, value)]);
        let received = response.resources[0].as_ref().unwrap();
        assert_eq!(received.name.as_str(), "");
        assert_eq!(received.resource.as_ref().unwrap().body.value, value);
    }
    assert_eq!(sotw(NDS, vec![any(NDS, &named("a"))]).resources[0].as_ref().unwrap().name.as_str(), "a");
    assert!(sotw(NDS, vec![any(NDS, b"\x0a\x05cut")]).resources[0].is_err(), "malformed");
    assert!(sotw(CLUSTER, vec![any(CLUSTER, b"")]).resources[0].is_err());
}

/// A client of SotW reads the name in the body, so only a body with the name of its wrapper may go bare.
#[test]
fn wir_9_the_name_of_a_wrapper_is_compared_with_the_body() {
    const NDS: &str = "type.googleapis.com/istio.networking.nds.v1.NameTable";
    let names_itself = |type_url: &str, name: &str, body: &[u8]| {
        let response = delta(type_url, vec![resource(name, Some(any(type_url, body)))]);
        payload(&response[0]).names_itself(&TypeUrl::new(type_url))
    };
    assert!(names_itself(CLUSTER, "a", &named("a")));
    assert!(!names_itself(CLUSTER, "a", &named("b")));
    assert!(!names_itself(CLUSTER, "a", b""));
    assert!(!names_itself(CLUSTER, "a", b"\xe2\x01\x01a"), "another field");
    assert!(!names_itself(LEDS, "a", &named("a")));
    let [one, other] =
        ["x=1&y=2", "y=2&x=1"].map(|list| format!("xdstp://h/envoy.config.cluster.v3.Cluster/a?{list}"));
    assert!(names_itself(CLUSTER, &one, &named(&other)), "two spellings of one name");
    assert!(names_itself(NDS, "", b"\x0a\x0e\x0a\x03web\x12\x07\x0a\x05::1:1"));
    assert!(!names_itself(NDS, "a", b"\x0a\x0e\x0a\x03web\x12\x07\x0a\x05::1:1"));
    assert!(names_itself(NDS, "", b"\x0a\x03abc"), "no name, whatever it reads as");
}

#[test]
fn typ_2_only_dubbos_routes_may_be_nameless() {
    assert_eq!(good(&sotw(DUBBO, vec![any(DUBBO, b"")]).resources[0]).name.as_str(), "");
    assert_bad(&delta(CLUSTER, vec![resource("", Some(any(CLUSTER, &named("a"))))])[0], None, "no name");
}

#[test]
fn wir_3_a_name_is_read_from_either_field() {
    let in_resource_name = |name: &str, inner: &str| sluice_proto::Resource {
        name: name.to_owned(),
        resource_name: Some(sluice_proto::ResourceName { name: inner.to_owned(), ..Default::default() }),
        resource: Some(any(CLUSTER, b"")),
        ..Default::default()
    };
    let mut constrained = in_resource_name("", "c");
    constrained.resource_name.as_mut().unwrap().dynamic_parameter_constraints = Some(Default::default());
    let found = delta(
        CLUSTER,
        vec![in_resource_name("", "a"), in_resource_name("b", "b"), in_resource_name("b", "x"), constrained],
    );
    assert_eq!((good(&found[0]).name.as_str(), good(&found[1]).name.as_str()), ("a", "b"));
    assert_bad(&found[2], Some("b"), "differ");
    assert_bad(&found[3], Some("c"), "constraints");
}

#[test]
fn dyn_1_rly_30_the_name_of_a_variant_and_its_version_include_its_constraints() {
    let of = |value: &str| {
        use sluice_proto::dynamic_parameter_constraints::{SingleConstraint, Type, single_constraint};
        let constraint_type = Some(single_constraint::ConstraintType::Value(value.to_owned()));
        let constraint = SingleConstraint { key: "env".to_owned(), constraint_type };
        let constraints =
            sluice_proto::DynamicParameterConstraints { r#type: Some(Type::Constraint(constraint)) };
        let dynamic_parameter_constraints = Some(constraints);
        sluice_proto::ResourceName { name: "c".to_owned(), dynamic_parameter_constraints }
    };
    let variant = |value: &str| sluice_proto::Resource {
        resource_name: Some(of(value)),
        resource: Some(any(CLUSTER, &named("c"))),
        ..Default::default()
    };
    let found = delta(CLUSTER, vec![variant("a"), variant("b"), variant("a")]);
    let [a, b, again] = [0, 1, 2].map(|at| payload(&found[at]));
    assert!(a.name.is_variant() && a.name.plain() == "c" && a.name == again.name && a.name != b.name);
    assert!(a.version == again.version && a.version != b.version);
    assert!(a.body_has_name, "constraints are no part of the name");
    assert_eq!(a.constraints.as_ref().unwrap().to_string(), "env=a");
    let removed = delta_of(&sluice_proto::DeltaDiscoveryResponse {
        type_url: CLUSTER.to_owned(),
        removed_resource_names: vec![of("b")],
        ..Default::default()
    });
    assert_eq!(removed.removed, std::slice::from_ref(&b.name));
    let file = sluice_proto::DiscoveryResponse {
        type_url: CLUSTER.to_owned(),
        resources: vec![sluice_proto::Any {
            type_url: super::super::response::WRAPPER.to_owned(),
            value: variant("a").encode_to_vec().into(),
        }],
        ..Default::default()
    };
    let file = decode_file_response(file.encode_to_vec().into()).unwrap();
    assert_bad(&file.resources[0], Some("c"), "not supported in files");
}

#[test]
fn ttl_10_an_entry_without_payload_is_for_the_machine_to_judge() {
    let found = delta(CLUSTER, vec![resource("a", None)]);
    let entry = Received { name: "a".into(), upstream_version: "7".into(), resource: None, ttl: None };
    assert_eq!(found, [Ok(entry)]);
    let response = sotw(CLUSTER, vec![wrapped(&resource("a", None))]);
    assert_eq!(good(&response.resources[0]).resource, None);
}

#[test]
fn what_a_resource_says_beside_its_payload_is_kept() {
    let found = delta(
        CLUSTER,
        vec![sluice_proto::Resource {
            aliases: vec!["y".to_owned(), "x".to_owned(), "y".to_owned()],
            ttl: Some(sluice_proto::Duration { seconds: 5, nanos: 500 }),
            cache_control: Some(sluice_proto::resource::CacheControl { do_not_cache: true }),
            metadata: Bytes::from_static(b"\x0a\x00"),
            ..resource("a", Some(any(CLUSTER, &named("a"))))
        }],
    );
    let a = payload(&found[0]);
    let aliases = ["x".into(), "y".into()];
    assert_eq!(*a.aliases, aliases);
    assert_eq!((a.ttl, a.do_not_cache), (Some(Duration::new(5, 500)), true));
    assert_eq!(a.metadata.as_deref(), Some(&b"\x0a\x00"[..]));
    assert_eq!(a.version, version::of_content("a", CLUSTER, &named("a"), &aliases));
    for ttl in
        [sluice_proto::Duration { seconds: -1, nanos: 0 }, sluice_proto::Duration { seconds: 0, nanos: -1 }]
    {
        let entry = sluice_proto::Resource { ttl: Some(ttl), ..resource("a", None) };
        assert_bad(&delta(CLUSTER, vec![entry])[0], Some("a"), "ttl");
    }
}

#[test]
fn nam_20_a_redirect_stays_opaque() {
    // Its type is an enum in field 1: neither a name nor a cluster.
    const LOCATOR: &[u8] = b"\x08\x00\x12\x01x";
    let redirect = resource("xdstp://a/envoy.config.cluster.v3.Cluster/b", Some(any(REDIRECT, LOCATOR)));
    let response = sotw(CLUSTER, vec![wrapped(&redirect), any(REDIRECT, LOCATOR)]);
    for element in [&delta(CLUSTER, vec![redirect.clone()])[0], &response.resources[0]] {
        let resource = payload(element);
        assert_eq!(
            (&*resource.body.type_url, &resource.body.value[..], &resource.endpoints),
            (REDIRECT, LOCATOR, &None)
        );
    }
    assert_bad(&response.resources[1], None, REDIRECT);
}

#[test]
fn ord_5_an_eds_cluster_tells_its_endpoints() {
    use sluice_proto::cluster::{DiscoveryType, EdsClusterConfig};
    let endpoints = |name: &str, discovery: DiscoveryType, service: Option<&str>, more: &[u8]| {
        let cluster = sluice_proto::Cluster {
            name: name.to_owned(),
            r#type: discovery as i32,
            eds_cluster_config: service.map(|name| EdsClusterConfig { service_name: name.to_owned() }),
        };
        let value = [&cluster.encode_to_vec(), more].concat();
        let elements = delta(CLUSTER, vec![resource(name, Some(any(CLUSTER, &value)))]);
        payload(&elements[0]).endpoints.as_ref().map(|name| name.as_str().to_owned())
    };
    let xdstp = "xdstp://a/envoy.config.cluster.v3.Cluster/c";
    let eds = DiscoveryType::Eds;
    assert_eq!(endpoints("c", eds, Some("s"), b"").as_deref(), Some("s"));
    assert_eq!(endpoints("c", eds, Some(""), b"").as_deref(), Some("c"));
    assert_eq!(endpoints("c", eds, None, b"").as_deref(), Some("c"));
    assert_eq!(endpoints("c", DiscoveryType::StrictDns, Some("s"), b""), None);
    assert_eq!(endpoints(xdstp, eds, Some("s"), b"").as_deref(), Some("s"));
    assert_eq!(endpoints(xdstp, eds, None, b""), None, "NAM-23");
    assert_eq!(
        endpoints("c", eds, None, b"\xb2\x02\x00"),
        None,
        "a custom cluster_type takes the place of type"
    );
    let listener = delta(LISTENER, vec![resource("c", Some(any(LISTENER, b"\x0a\x01c\x10\x03")))]);
    assert_eq!(payload(&listener[0]).endpoints, None);
}

#[test]
fn del_12_removals_are_read_from_both_fields() {
    let constrained = sluice_proto::ResourceName {
        name: "c".to_owned(),
        dynamic_parameter_constraints: Some(sluice_proto::DynamicParameterConstraints::default()),
    };
    let response = delta_of(&sluice_proto::DeltaDiscoveryResponse {
        system_version_info: "s".to_owned(),
        type_url: CLUSTER.to_owned(),
        nonce: "n".to_owned(),
        removed_resources: vec!["a".to_owned(), String::new()],
        removed_resource_names: vec![
            sluice_proto::ResourceName { name: "b".to_owned(), ..Default::default() },
            constrained,
        ],
        control_plane: Some(sluice_proto::ControlPlane { identifier: "cp".to_owned() }),
        ..Default::default()
    });
    assert_eq!(response.removed, ["a".into(), "b".into()]);
    assert_bad(&response.resources[0], None, "no name");
    assert_bad(&response.resources[1], Some("c"), "constraints");
    assert_eq!((response.system_version_info.as_str(), response.nonce.as_str()), ("s", "n"));
    assert_eq!(response.control_plane, "cp");
}

#[test]
fn sst_8_and_del_16_repetitions_reach_the_machine() {
    let twice = sotw(CLUSTER, vec![any(CLUSTER, &named("a")); 2]);
    assert_eq!(twice.resources.iter().filter(|r| good(r).name.as_str() == "a").count(), 2);
    let both = delta_of(&sluice_proto::DeltaDiscoveryResponse {
        type_url: CLUSTER.to_owned(),
        resources: vec![resource("a", Some(any(CLUSTER, b"")))],
        removed_resources: vec!["a".to_owned()],
        ..Default::default()
    });
    assert_eq!((good(&both.resources[0]).name.as_str(), both.removed[0].as_str()), ("a", "a"));
}

#[test]
fn err_6_errors_without_a_name_or_a_code_are_bad() {
    let error = |name: Option<&str>, code: i32| sluice_proto::ResourceError {
        resource_name: name
            .map(|name| sluice_proto::ResourceName { name: name.to_owned(), ..Default::default() }),
        error_detail: Some(sluice_proto::Status { code, message: "gone".to_owned(), details: vec![] }),
    };
    let resource_errors = vec![error(Some("a"), 5), error(None, 5), error(Some("b"), 0)];
    let sotw = sluice_proto::DiscoveryResponse {
        type_url: CLUSTER.to_owned(),
        resource_errors: resource_errors.clone(),
        ..Default::default()
    };
    let sotw = decode_sotw_response(sotw.encode_to_vec().into()).unwrap();
    let delta = delta_of(&sluice_proto::DeltaDiscoveryResponse {
        type_url: CLUSTER.to_owned(),
        resource_errors,
        ..Default::default()
    });
    for (errors, elements) in [(&sotw.errors, &sotw.resources), (&delta.errors, &delta.resources)] {
        assert_eq!(errors.len(), 1);
        assert_eq!((errors[0].name.as_str(), &errors[0].status), ("a", &Status::new(Code::NotFound, "gone")));
        assert_bad(&elements[0], None, "no name");
        assert_bad(&elements[1], Some("b"), "no error code");
    }
}

#[test]
fn a_response_without_a_type_is_an_error_but_in_a_file() {
    let response = |resources| {
        sluice_proto::DiscoveryResponse { resources, ..Default::default() }.encode_to_vec().into()
    };
    let bare: Bytes = response(vec![any(CLUSTER, &named("a"))]);
    assert_eq!(decode_sotw_response(bare.clone()), Err(DecodeError::NoType));
    assert_eq!(decode_delta_response(Bytes::new()), Err(DecodeError::NoType));
    assert_eq!(Status::from(DecodeError::NoType).code, Code::InvalidArgument);
    let wrapped = response(vec![wrapped(&resource("l", Some(any(LEDS, b""))))]);
    assert_eq!(decode_file_response(bare).unwrap().type_url.as_str(), CLUSTER);
    assert_eq!(decode_file_response(wrapped).unwrap().type_url.as_str(), LEDS);
    assert_eq!(decode_file_response(Bytes::new()), Err(DecodeError::NoType));
    assert!(matches!(decode_sotw_response(Bytes::from_static(b"\xff")), Err(DecodeError::Malformed(_))));
}

#[test]
fn a_payload_never_keeps_more_than_twice_its_size_alive() {
    let big = sluice_proto::Cluster { name: "x".repeat(1000), ..Default::default() }.encode_to_vec();
    for (count, shared) in [(1, true), (3, false)] {
        let type_url = CLUSTER.to_owned();
        let resources = vec![any(CLUSTER, &big); count];
        let message: Bytes = sluice_proto::DiscoveryResponse { resources, type_url, ..Default::default() }
            .encode_to_vec()
            .into();
        let response = decode_sotw_response(message.clone()).unwrap();
        let value = payload(&response.resources[0]).body.value.clone();
        assert_eq!(value, big);
        let is_slice = message.as_ptr_range().contains(&value.as_ptr());
        assert_eq!(is_slice, shared, "one of {count}");
    }
}

#[test]
fn types_are_kept_by_one_text() {
    let response = sotw(CLUSTER, vec![any(CLUSTER, &named("a")), any(CLUSTER, &named("b"))]);
    let shared = TypeUrl::shared(&response.type_url);
    assert!(response.resources.iter().all(|r| std::sync::Arc::ptr_eq(&payload(r).body.type_url, &shared)));
}

proptest::proptest! {
    #[test]
    fn no_bytes_of_an_upstream_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        let _ = decode_sotw_response(bytes.clone().into());
        let _ = decode_delta_response(bytes.clone().into());
        let _ = decode_file_response(bytes.clone().into());
        // The same as a payload of a sound response.
        sotw(CLUSTER, vec![any(CLUSTER, &bytes), any(WRAPPER, &bytes)]);
    }
}
