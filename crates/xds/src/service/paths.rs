//! The client side of the services: from a type to the paths of its methods.

use super::Service;
use crate::{TypeUrl, Variant};

/// The path of the aggregated v3 method of a variant (RPC-1).
pub fn ads_path(variant: Variant) -> String {
    format!("/{}/{}AggregatedResources", super::ADS_V3, prefix(variant))
}

fn prefix(variant: Variant) -> &'static str {
    match variant {
        Variant::Sotw => "Stream",
        Variant::Delta => "Delta",
    }
}

impl Service {
    /// The service of a v3 type. Types without a service travel by ADS or in files only.
    pub fn of_type(type_url: &TypeUrl) -> Option<&'static Service> {
        Service::all().iter().find(|service| service.type_v3 == type_url.as_str())
    }

    /// The path of the v3 streaming method of a variant, if the service has such a method (RPC-2, RPC-4).
    pub fn stream_path(&self, variant: Variant) -> Option<String> {
        let exists = variant == Variant::Delta || !self.is_delta_only();
        exists.then(|| format!("/{}/{}{}", self.v3, prefix(variant), self.noun))
    }

    /// The v3 REST path, if the service has a REST method (RPC-9).
    pub fn rest_path(&self) -> Option<String> {
        self.rest.map(|collection| format!("/v3/discovery:{collection}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ApiVersion, Call, Method};

    #[test]
    fn rpc_2_rpc_4_rpc_9_types_have_the_paths_of_their_services() {
        for service in Service::all() {
            let found = Service::of_type(&TypeUrl::new(service.type_url(ApiVersion::V3)));
            assert_eq!(found, Some(service));
            let delta = Method::of_path(&service.stream_path(Variant::Delta).unwrap_or_default());
            let expected =
                Method { service: Some(service), api: ApiVersion::V3, call: Call::Stream(Variant::Delta) };
            assert_eq!(delta, Some(expected), "{}", service.name);
            let path = service.rest_path();
            assert_eq!(path.is_some(), service.stream_path(Variant::Sotw).is_some(), "{}", service.name);
            let by_path = path.and_then(|path| Service::of_rest_path(&path));
            assert!(by_path.is_none_or(|found| found == (service, ApiVersion::V3)), "{}", service.name);
        }
        let of = |message| Service::of_type(&TypeUrl::of_message(message));
        let scoped = of("envoy.config.route.v3.ScopedRouteConfiguration").and_then(Service::rest_path);
        assert_eq!(scoped.as_deref(), Some("/v3/discovery:scoped-routes"));
        assert_eq!(of("envoy.config.route.v3.VirtualHost").and_then(Service::rest_path), None);
        assert_eq!(of("envoy.config.listener.v3.ListenerCollection"), None);
        assert_eq!(of("acme.Anything"), None);
        let ads = Method::of_path(&ads_path(Variant::Sotw));
        assert_eq!(
            ads.map(|method| (method.service, method.call)),
            Some((None, Call::Stream(Variant::Sotw)))
        );
    }
}
