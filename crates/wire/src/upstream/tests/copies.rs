//! Resources that several responses share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::*;
use sluice_xds::{ResourceCopies, Response, Version};

const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";

type CopyKey = (Version, Option<Duration>);

#[derive(Debug, Default)]
struct Copies(Mutex<HashMap<CopyKey, Arc<Resource>>>);

impl ResourceCopies for Copies {
    fn find_resource(&self, version: Version, ttl: Option<Duration>) -> Option<Arc<Resource>> {
        self.0.lock().unwrap().get(&(version, ttl)).cloned()
    }

    fn add_resource(&self, resource: &Arc<Resource>) {
        self.0.lock().unwrap().insert((resource.version, resource.ttl), resource.clone());
    }
}

/// The resources of a delta response, as a stream reads them.
fn arrive(copies: &Copies, type_url: &str, resources: Vec<sluice_proto::Resource>) -> Vec<Received> {
    let type_url = type_url.to_owned();
    let response = sluice_proto::DeltaDiscoveryResponse { type_url, resources, ..Default::default() };
    let message = response.encode_to_vec().into();
    let Response::Delta(response) = decode_response(Variant::Delta, message, Some(copies)).unwrap() else {
        panic!("a delta response");
    };
    response.resources.into_iter().map(Result::unwrap).collect()
}

fn body(received: &Received) -> &Arc<Resource> {
    received.resource.as_ref().unwrap()
}

fn cluster(name: &str) -> sluice_proto::Resource {
    resource(name, Some(any(CLUSTER, &named(name))))
}

#[test]
fn bod_1_equal_resources_of_two_responses_are_one() {
    let copies = Copies::default();
    let first = arrive(&copies, CLUSTER, vec![cluster("a"), cluster("b")]);
    // The server's version and the order do not matter.
    let other = sluice_proto::Resource { version: "8".to_owned(), ..cluster("a") };
    let second = arrive(&copies, CLUSTER, vec![cluster("b"), cluster("c"), other]);
    assert!(Arc::ptr_eq(body(&first[0]), body(&second[2])) && Arc::ptr_eq(body(&first[1]), body(&second[0])));
    assert_eq!(first[0].name.as_str().as_ptr(), second[2].name.as_str().as_ptr(), "one text of the name");
    assert_eq!(*second[2].upstream_version, *"8");
    let sotw = sluice_proto::DiscoveryResponse {
        resources: vec![any(CLUSTER, &named("a"))],
        type_url: CLUSTER.to_owned(),
        ..Default::default()
    };
    let sotw = decode_response(Variant::Sotw, sotw.encode_to_vec().into(), Some(&copies)).unwrap();
    let Response::Sotw(sotw) = sotw else { panic!("a response of the state of the world") };
    assert!(Arc::ptr_eq(body(&first[0]), body(good(&sotw.resources[0]))));
}

#[test]
fn bod_2_all_of_a_resource_is_compared() {
    let copies = Copies::default();
    let first = arrive(&copies, CLUSTER, vec![cluster("a")]);
    let metadata = sluice_proto::Resource { metadata: Bytes::from_static(b"m"), ..cluster("a") };
    let ttl = sluice_proto::Duration { seconds: 5, nanos: 0 };
    let differing = [sluice_proto::Resource { ttl: Some(ttl), ..cluster("a") }, metadata];
    for other in differing {
        let alone = delta(CLUSTER, vec![other.clone()]);
        let arrived = arrive(&copies, CLUSTER, vec![other]);
        assert_eq!(arrived[0], *good(&alone[0]));
        assert!(!Arc::ptr_eq(body(&first[0]), body(&arrived[0])));
    }
    assert!(Arc::ptr_eq(body(&first[0]), body(&arrive(&copies, CLUSTER, vec![cluster("a")])[0])));
}

#[test]
fn bod_3_secrets_and_uncached_resources_are_not_shared() {
    let copies = Copies::default();
    let uncached = sluice_proto::Resource {
        cache_control: Some(sluice_proto::resource::CacheControl { do_not_cache: true }),
        ..cluster("a")
    };
    for (type_url, resource) in [(SECRET, resource("a", Some(any(SECRET, &named("a"))))), (CLUSTER, uncached)]
    {
        let both = [(); 2].map(|()| arrive(&copies, type_url, vec![resource.clone()]));
        assert!(!Arc::ptr_eq(body(&both[0][0]), body(&both[1][0])), "{type_url}");
    }
    assert!(copies.0.lock().unwrap().is_empty());
}

/// The bytes of a short resource are its own, so that a message goes when it is read.
#[test]
fn bod_3_a_shared_resource_keeps_no_message() {
    let copies = Copies::default();
    let first = arrive(&copies, CLUSTER, (0..10).map(|number| cluster(&number.to_string())).collect());
    assert!(first.iter().all(|received| body(received).body.value.is_unique()));
}
