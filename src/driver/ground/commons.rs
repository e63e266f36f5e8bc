//! One copy of equal content of several sources (BOD-1): of resources, and of maps of names.
//!
//! Node classes are mostly given the same resources, in the same sets. Each source has its own cache, and its
//! own account: a limit counts a shared copy for each source that holds the copy, because each has to bear
//! the copy alone when the others go.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use crate::driver::ground::weak_table::WeakTable;
use sluice_engine::commons::{CommonMap, Commons, MapKey};
use sluice_engine::source::RestoredType;
use sluice_xds::{Resource, ResourceCopies, Response, Version};

/// The content that sources share.
#[derive(Debug, Default)]
pub struct SharedCopies {
    /// Resources that differ only in their TTLs have equal versions.
    resources: WeakTable<(Version, Option<Duration>), Resource>,
    maps: WeakTable<MapKey, dyn Any + Send + Sync>,
}

impl SharedCopies {
    /// Replaces the resources of a poll's response by the equal resources that other sources have. Not for
    /// sources of one stream.
    pub fn share(&self, response: &mut Response) {
        if response.type_url().is_secret() {
            return;
        }
        let resources = match response {
            Response::Sotw(response) => &mut response.resources,
            Response::Delta(response) => &mut response.resources,
        };
        for received in resources.iter_mut().flatten() {
            let Some(resource) = &mut received.resource else { continue };
            if self.share_resource(resource) {
                received.name = resource.name.clone();
            }
        }
    }

    /// As [`SharedCopies::share`], for content from before a restart: a server does not send it again.
    pub fn share_restored(&self, types: &mut [RestoredType]) {
        let common = types.iter_mut().filter(|restored| !restored.type_url.is_secret());
        for kept in common.flat_map(RestoredType::all_mut) {
            if self.share_resource(&mut kept.resource) && kept.name == kept.resource.name {
                kept.name = kept.resource.name.clone();
            }
        }
    }

    /// Returns whether another source has an equal resource. A version is no proof: bodies under one version
    /// are equal, and the rest of a resource may differ (BOD-2).
    fn share_resource(&self, resource: &mut Arc<Resource>) -> bool {
        if resource.do_not_cache {
            return false;
        }
        match self.find_resource(resource.version, resource.ttl) {
            Some(held) if *held == **resource => {
                *resource = held;
                true
            }
            Some(_) => false,
            None => {
                self.add_resource(resource);
                false
            }
        }
    }

    /// Frees the memory of copies without owners, a part with each call.
    pub fn sweep(&self) {
        self.resources.sweep();
        self.maps.sweep();
    }
}

impl ResourceCopies for SharedCopies {
    fn find_resource(&self, version: Version, ttl: Option<Duration>) -> Option<Arc<Resource>> {
        self.resources.find(&(version, ttl))
    }

    fn add_resource(&self, resource: &Arc<Resource>) {
        self.resources.add((resource.version, resource.ttl), resource);
    }
}

impl Commons for SharedCopies {
    fn find(&self, key: &MapKey) -> Option<CommonMap> {
        self.maps.find(key)
    }

    fn add(&self, key: MapKey, map: &CommonMap) {
        self.maps.add(key, map);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use bytes::Bytes;
    use sluice_xds::{Any, DeltaResponse, Received, ResourceName, TypeUrl};

    const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
    const SECRET: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";

    fn resource(message: &str) -> Resource {
        Resource {
            name: "a".into(),
            version: Version(1),
            body: Any { type_url: TypeUrl::of_message(message).shared(), value: Bytes::from(vec![0; 100]) },
            aliases: Box::default(),
            ttl: None,
            do_not_cache: false,
            body_has_name: true,
            metadata: None,
            endpoints: None,
            constraints: None,
        }
    }

    /// The resource as a source gets it.
    fn arrive(copies: &SharedCopies, message: &str, resource: Resource) -> Arc<Resource> {
        let (name, ttl) = (ResourceName::new(resource.name.as_str()), resource.ttl);
        let received =
            Received { name, upstream_version: "1".into(), resource: Some(Arc::new(resource)), ttl };
        let mut response = Response::Delta(DeltaResponse {
            system_version_info: String::new(),
            type_url: TypeUrl::of_message(message),
            nonce: "1".to_owned(),
            resources: vec![Ok(received)],
            removed: Vec::new(),
            errors: Vec::new(),
            control_plane: String::new(),
        });
        copies.share(&mut response);
        let Response::Delta(response) = response else { panic!("delta") };
        response.resources[0].clone().unwrap().resource.unwrap()
    }

    #[test]
    fn bod_1_equal_resources_of_two_sources_are_one() {
        let copies = SharedCopies::default();
        let first = arrive(&copies, CLUSTER, resource(CLUSTER));
        let second = arrive(&copies, CLUSTER, resource(CLUSTER));
        assert!(Arc::ptr_eq(&first, &second));
        let weak = Arc::downgrade(&first);
        drop((first, second));
        assert!(weak.upgrade().is_none(), "BOD-3: the table keeps nothing alive");
        assert_eq!(*arrive(&copies, CLUSTER, resource(CLUSTER)), resource(CLUSTER));
    }

    #[test]
    fn bod_2_all_of_a_resource_is_compared() {
        let copies = SharedCopies::default();
        let first = arrive(&copies, CLUSTER, resource(CLUSTER));
        let differing = [
            Resource { ttl: Some(Duration::from_secs(5)), ..resource(CLUSTER) },
            Resource { metadata: Some(Bytes::from_static(b"m")), ..resource(CLUSTER) },
            Resource { endpoints: Some("e".into()), ..resource(CLUSTER) },
            Resource { body_has_name: false, ..resource(CLUSTER) },
            Resource { name: "b".into(), ..resource(CLUSTER) },
        ];
        for other in differing {
            assert_eq!(*arrive(&copies, CLUSTER, other.clone()), other);
        }
        assert!(Arc::ptr_eq(&first, &arrive(&copies, CLUSTER, resource(CLUSTER))));
        let with_ttl = || Resource { ttl: Some(Duration::from_secs(5)), ..resource(CLUSTER) };
        let first = arrive(&copies, CLUSTER, with_ttl());
        assert!(Arc::ptr_eq(&first, &arrive(&copies, CLUSTER, with_ttl())), "each TTL has a copy");
    }

    #[test]
    fn bod_3_secrets_and_uncached_resources_are_not_shared() {
        let copies = SharedCopies::default();
        let uncached = Resource { do_not_cache: true, ..resource(CLUSTER) };
        for (message, resource) in [(SECRET, resource(SECRET)), (CLUSTER, uncached)] {
            let both = [(); 2].map(|()| arrive(&copies, message, resource.clone()));
            assert!(!Arc::ptr_eq(&both[0], &both[1]), "{message}");
        }
        assert_eq!(copies.resources.len(), 0);
    }
}
