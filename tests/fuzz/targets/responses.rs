//! Responses of control planes.

use std::collections::BTreeSet;

use bytes::Bytes;
use prost::Message;
use sluice_wire::response::{Beside, delta_body, head, sotw_body};
use sluice_wire::upstream::{decode_delta_response, decode_file_response, decode_sotw_response};
use sluice_wire::version::of_response;
use sluice_wire::{ResponseReader, read_mark};
use sluice_xds::{Element, Resource, TypeUrl};
use std::sync::Arc;

use super::{MEMORY, Target};

const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const WRAPPER: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";
const HOST: &str = "type.googleapis.com/envoy.config.route.v3.VirtualHost";

const WORDS: &[&str] =
    &[CLUSTER, WRAPPER, HOST, "*", "xdstp://a/b/c?x=1", "\u{12}\u{0}", "\u{1a}\u{1}a", "\u{fdd1}"];

pub const RESPONSE: Target = Target {
    name: "response",
    run: read_sotw,
    seeds: || {
        let wrapped =
            sluice_proto::Any { type_url: WRAPPER.into(), value: resource("w").encode_to_vec().into() };
        let of = |type_url: &str, resources: Vec<sluice_proto::Any>| sluice_proto::DiscoveryResponse {
            version_info: "7".into(),
            type_url: type_url.into(),
            nonce: "n".into(),
            resources,
            resource_errors: vec![error("e")],
            control_plane: Some(sluice_proto::ControlPlane { identifier: "cp".into() }),
            ..sluice_proto::DiscoveryResponse::default()
        };
        let all = [
            of(CLUSTER, vec![cluster("a"), cluster("b")]),
            of(CLUSTER, vec![cluster("a"), wrapped]),
            of(
                "type.googleapis.com/x.Y",
                vec![sluice_proto::Any { type_url: "type.googleapis.com/x.Y".into(), ..cluster("c") }],
            ),
            of(CLUSTER, Vec::new()),
        ];
        all.iter().map(Message::encode_to_vec).collect()
    },
    words: WORDS,
    mutations: 4_000,
    memory: MEMORY,
};

pub const DELTA_RESPONSE: Target = Target {
    name: "delta_response",
    run: read_delta,
    seeds: || {
        let of =
            |type_url: &str, resources: Vec<sluice_proto::Resource>| sluice_proto::DeltaDiscoveryResponse {
                system_version_info: "7".into(),
                type_url: type_url.into(),
                nonce: "n".into(),
                resources,
                removed_resources: vec!["gone".into()],
                removed_resource_names: vec![sluice_proto::ResourceName {
                    name: "left".into(),
                    ..sluice_proto::ResourceName::default()
                }],
                resource_errors: vec![error("e")],
                control_plane: Some(sluice_proto::ControlPlane { identifier: "cp".into() }),
            };
        let empty = sluice_proto::Resource { name: "r/h".into(), ..sluice_proto::Resource::default() };
        let all = [
            of(CLUSTER, vec![resource("a"), resource("b")]),
            of(HOST, vec![empty]),
            of(CLUSTER, vec![variant("a", true), variant("a", false)]),
            of(CLUSTER, Vec::new()),
        ];
        all.iter().map(Message::encode_to_vec).collect()
    },
    words: WORDS,
    mutations: 4_000,
    memory: MEMORY,
};

fn cluster(name: &str) -> sluice_proto::Any {
    let cluster = sluice_proto::Cluster { name: name.into(), ..sluice_proto::Cluster::default() };
    sluice_proto::Any { type_url: CLUSTER.into(), value: cluster.encode_to_vec().into() }
}

fn resource(name: &str) -> sluice_proto::Resource {
    sluice_proto::Resource {
        name: name.into(),
        version: "1".into(),
        aliases: vec!["alias".into()],
        resource: Some(cluster(name)),
        ttl: Some(sluice_proto::Duration { seconds: 60, nanos: 5 }),
        ..sluice_proto::Resource::default()
    }
}

fn variant(name: &str, is_default: bool) -> sluice_proto::Resource {
    use sluice_proto::dynamic_parameter_constraints::{SingleConstraint, Type, single_constraint};
    let value = if is_default { "default" } else { "other" };
    let constraint = SingleConstraint {
        key: "env".into(),
        constraint_type: Some(single_constraint::ConstraintType::Value(value.into())),
    };
    let constraints =
        sluice_proto::DynamicParameterConstraints { r#type: Some(Type::Constraint(constraint)) };
    let name =
        sluice_proto::ResourceName { name: name.into(), dynamic_parameter_constraints: Some(constraints) };
    sluice_proto::Resource { name: String::new(), resource_name: Some(name), ..resource("a") }
}

fn error(name: &str) -> sluice_proto::ResourceError {
    sluice_proto::ResourceError {
        resource_name: Some(sluice_proto::ResourceName {
            name: name.into(),
            ..sluice_proto::ResourceName::default()
        }),
        error_detail: Some(sluice_proto::Status {
            code: 5,
            message: "none".into(),
            ..sluice_proto::Status::default()
        }),
    }
}

/// The resources with a body, each name once.
fn usable(elements: &[Element]) -> Vec<Arc<Resource>> {
    let mut seen = BTreeSet::new();
    let received = elements.iter().flatten().filter_map(|received| received.resource.clone());
    received.filter(|resource| seen.insert(resource.variant_name().into_owned())).collect()
}

/// A body cut by a reader of responses, after a head.
fn message(head: &Bytes, body: &Bytes) -> Bytes {
    let mut reader = ResponseReader::default();
    for part in [head, body] {
        for half in [part.slice(..part.len() / 2), part.slice(part.len() / 2..)] {
            reader.push(half);
        }
    }
    reader.next().expect("a message").expect("of gRPC")
}

fn read_sotw(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    let _ = decode_file_response(bytes.clone());
    let Ok(response) = decode_sotw_response(bytes) else { return };
    if let Ok(other) = sluice_proto::DiscoveryResponse::decode(data) {
        assert_eq!((&response.version_info, &response.nonce), (&other.version_info, &other.nonce));
        assert_eq!(response.type_url.as_str(), TypeUrl::new(&other.type_url).as_str());
        assert!(response.resources.len() <= other.resources.len() + other.resource_errors.len() + 1);
        let good = response.resources.iter().flatten().count();
        assert!(good <= other.resources.len());
    }
    let resources = usable(&response.resources);
    let resources: Vec<_> = resources.iter().filter(|resource| resource.has_payload()).collect();
    let all = resources.iter().map(|resource| &***resource);
    let version = of_response(all.clone());
    let body = sotw_body(&response.type_url, version, all, Beside::default(), &response.control_plane);
    let again = message(&head(&response.nonce, None, body.len()).expect("a head"), &body);
    let again = decode_sotw_response(again).expect("our own response");
    assert_eq!((&again.type_url, &again.nonce), (&response.type_url, &response.nonce));
    assert_eq!(again.control_plane, response.control_plane);
    let found = usable(&again.resources);
    assert_eq!(found.len(), again.resources.len(), "{:?}", again.resources);
    // A server may state another name beside a body than within; the body itself is passed on.
    let key = |resource: &Resource| resource.body.clone();
    let expected: Vec<_> = resources.iter().map(|resource| key(resource)).collect();
    assert_eq!(found.iter().map(|resource| key(resource)).collect::<Vec<_>>(), expected);
}

fn read_delta(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    let _ = read_mark(data);
    let Ok(response) = decode_delta_response(bytes) else { return };
    if let Ok(other) = sluice_proto::DeltaDiscoveryResponse::decode(data) {
        assert_eq!(
            (&response.system_version_info, &response.nonce),
            (&other.system_version_info, &other.nonce)
        );
        let good = response.resources.iter().flatten().count();
        assert!(good <= other.resources.len());
        assert!(response.removed.len() <= other.removed_resources.len() + other.removed_resource_names.len());
        assert!(response.errors.len() <= other.resource_errors.len());
    }
    // Clients are told plain names, with the constraints beside.
    let plain = |resource: &Arc<Resource>| Resource {
        name: resource.name.plain().into(),
        ..Resource::clone(resource)
    };
    let resources: Vec<_> = usable(&response.resources).iter().map(plain).collect();
    let all = resources.iter();
    let mut named: BTreeSet<_> = resources.iter().map(|resource| resource.name.clone()).collect();
    let removed: Vec<_> = response
        .removed
        .iter()
        .filter(|name| !name.is_variant() && named.insert((*name).clone()))
        .cloned()
        .collect();
    let version = of_response(all.clone());
    let (control_plane, beside) = (&response.control_plane, Beside::default());
    let body = delta_body(&response.type_url, version, all, removed.iter(), &[], beside, control_plane);
    let again = message(&head(&response.nonce, None, body.len()).expect("a head"), &body);
    let again = decode_delta_response(again).expect("our own response");
    assert_eq!((&again.type_url, &again.nonce), (&response.type_url, &response.nonce));
    assert_eq!(again.removed, removed);
    // A time to live is stated beside the resource.
    let without_ttl = |resource: &Resource| Resource { ttl: None, ..resource.clone() };
    let found: Vec<_> =
        usable(&again.resources).iter().map(|resource| without_ttl(&plain(resource))).collect();
    assert_eq!(found, resources.iter().map(without_ttl).collect::<Vec<_>>());
}
