//! The discovery services, one for each type with a service, and the types that a stream of each carries.

use std::fmt;

use super::{Coding, TypeUrl, Variant};

/// The service of one type: its names on the wire (RPC-2 to RPC-4).
#[derive(Debug, PartialEq, Eq)]
pub struct Service {
    /// The usual short name: `CDS`.
    pub name: &'static str,
    /// Full service names, v3 and v2. There is no v2 ECDS or LEDS (RPC-3).
    v3: &'static str,
    v2: Option<&'static str>,
    /// The part of the method names after `Stream`, `Delta` and `Fetch`.
    noun: &'static str,
    /// The type URLs of the service. v2 methods may carry v3 types, and v3 methods v2 types (TYP-4).
    type_v3: &'static str,
    type_v2: Option<&'static str>,
    /// The part of the REST path after `discovery:`; `None` for services with delta only (RPC-9).
    rest: Option<&'static str>,
}

/// The version of the transport, as a method name or path states it. The types on the stream may have another
/// version (TYP-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ApiVersion {
    V2,
    V3,
}

/// The kind of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Stream(Variant),
    /// One request, one response.
    Fetch,
}

/// A method of the discovery services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// `None`: the aggregated service, for any type.
    pub service: Option<&'static Service>,
    pub api: ApiVersion,
    pub call: Call,
}

macro_rules! service {
    ($name:literal, $v3:literal, $v2:expr, $noun:literal, $type_v3:literal, $type_v2:expr, $rest:expr) => {
        Service {
            name: $name,
            v3: concat!("envoy.service.", $v3, "DiscoveryService"),
            v2: $v2,
            noun: $noun,
            type_v3: concat!("type.googleapis.com/envoy.", $type_v3),
            type_v2: $type_v2,
            rest: $rest,
        }
    };
}

macro_rules! v2 {
    ($service:literal) => {
        Some(concat!("envoy.", $service, "DiscoveryService"))
    };
}

macro_rules! v2_type {
    ($message:literal) => {
        Some(concat!("type.googleapis.com/envoy.", $message))
    };
}

#[rustfmt::skip]
static SERVICES: [Service; 10] = [
    service!("LDS", "listener.v3.Listener", v2!("api.v2.Listener"), "Listeners",
        "config.listener.v3.Listener", v2_type!("api.v2.Listener"), Some("listeners")),
    service!("RDS", "route.v3.Route", v2!("api.v2.Route"), "Routes",
        "config.route.v3.RouteConfiguration", v2_type!("api.v2.RouteConfiguration"), Some("routes")),
    service!("SRDS", "route.v3.ScopedRoutes", v2!("api.v2.ScopedRoutes"), "ScopedRoutes",
        "config.route.v3.ScopedRouteConfiguration", v2_type!("api.v2.ScopedRouteConfiguration"), Some("scoped-routes")),
    service!("VHDS", "route.v3.VirtualHost", v2!("api.v2.VirtualHost"), "VirtualHosts",
        "config.route.v3.VirtualHost", v2_type!("api.v2.route.VirtualHost"), None),
    service!("CDS", "cluster.v3.Cluster", v2!("api.v2.Cluster"), "Clusters",
        "config.cluster.v3.Cluster", v2_type!("api.v2.Cluster"), Some("clusters")),
    service!("EDS", "endpoint.v3.Endpoint", v2!("api.v2.Endpoint"), "Endpoints",
        "config.endpoint.v3.ClusterLoadAssignment", v2_type!("api.v2.ClusterLoadAssignment"), Some("endpoints")),
    service!("LEDS", "endpoint.v3.LocalityEndpoint", None, "LocalityEndpoints",
        "config.endpoint.v3.LbEndpoint", None, None),
    // Two old texts print `Auth` (TYP-3).
    service!("SDS", "secret.v3.Secret", v2!("service.discovery.v2.Secret"), "Secrets",
        "extensions.transport_sockets.tls.v3.Secret", v2_type!("api.v2.auth.Secret"), Some("secrets")),
    service!("RTDS", "runtime.v3.Runtime", v2!("service.discovery.v2.Runtime"), "Runtime",
        "service.runtime.v3.Runtime", v2_type!("service.discovery.v2.Runtime"), Some("runtime")),
    service!("ECDS", "extension.v3.ExtensionConfig", None, "ExtensionConfigs",
        "config.core.v3.TypedExtensionConfig", None, Some("extension_configs")),
];

const ADS_V3: &str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
const ADS_V2: &str = "envoy.service.discovery.v2.AggregatedDiscoveryService";

impl Service {
    pub fn all() -> &'static [Service] {
        &SERVICES
    }

    /// The type implied by a method of this transport version (RPC-6).
    pub fn type_url(&self, api: ApiVersion) -> &'static str {
        match (api, self.type_v2) {
            (ApiVersion::V2, Some(type_v2)) => type_v2,
            _ => self.type_v3,
        }
    }

    /// Whether streams of this service may name the type: only the service's own, in either version (RPC-6,
    /// TYP-4).
    pub fn carries(&self, type_url: &str) -> bool {
        type_url == self.type_v3 || Some(type_url) == self.type_v2
    }

    /// VHDS and LEDS have no SotW variant (RPC-2).
    fn is_delta_only(&self) -> bool {
        self.rest.is_none()
    }

    /// The service of a REST path such as `/v3/discovery:clusters`, and the path's version.
    pub fn of_rest_path(path: &str) -> Option<(&'static Service, ApiVersion)> {
        let (api, rest) = rest_path(path)?;
        let service = SERVICES.iter().find(|service| service.rest == Some(rest))?;
        (api == ApiVersion::V3 || service.v2.is_some()).then_some((service, api))
    }

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

/// The path of the aggregated v3 method of a variant (RPC-1).
pub fn ads_path(variant: Variant) -> String {
    format!("/{}/{}AggregatedResources", ADS_V3, prefix(variant))
}

fn prefix(variant: Variant) -> &'static str {
    match variant {
        Variant::Sotw => "Stream",
        Variant::Delta => "Delta",
    }
}

impl Method {
    /// The method of a gRPC path such as `/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters`.
    pub fn of_path(path: &str) -> Option<Method> {
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        let aggregated = |api| {
            let call = match method {
                "StreamAggregatedResources" => Call::Stream(Variant::Sotw),
                "DeltaAggregatedResources" => Call::Stream(Variant::Delta),
                _ => return None,
            };
            Some(Method { service: None, api, call })
        };
        match service {
            ADS_V3 => return aggregated(ApiVersion::V3),
            ADS_V2 => return aggregated(ApiVersion::V2),
            _ => {}
        }
        SERVICES.iter().find_map(|entry| {
            let api = match service {
                _ if service == entry.v3 => ApiVersion::V3,
                _ if Some(service) == entry.v2 => ApiVersion::V2,
                _ => return None,
            };
            let call = match method.strip_suffix(entry.noun)? {
                "Delta" => Call::Stream(Variant::Delta),
                _ if entry.is_delta_only() => return None,
                "Stream" => Call::Stream(Variant::Sotw),
                "Fetch" => Call::Fetch,
                _ => return None,
            };
            Some(Method { service: Some(entry), api, call })
        })
    }
}

/// The version of a REST path and the part after `discovery:`; `None` for any other path.
pub fn rest_path(path: &str) -> Option<(ApiVersion, &str)> {
    match path.strip_prefix("/v3/discovery:") {
        Some(rest) => Some((ApiVersion::V3, rest)),
        None => Some((ApiVersion::V2, path.strip_prefix("/v2/discovery:")?)),
    }
}

/// Whether a type belongs to the v2 API. Listeners serve these types only if configured to (TYP-5).
pub fn is_v2_type(type_url: &str) -> bool {
    type_url.starts_with("type.googleapis.com/envoy.api.v2.")
        || type_url == "type.googleapis.com/envoy.service.discovery.v2.Runtime"
}

/// The types and options of a downstream stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamKind {
    pub variant: Variant,
    /// `None`: aggregated, so every request must name its type (RPC-5).
    pub service: Option<&'static Service>,
    /// The version of the method. Decides the type meant by an empty type URL (RPC-6).
    pub api: ApiVersion,
    /// The listener serves types of the v2 API (TYP-5).
    pub v2: bool,
    /// The client reads marks ([`super::mark`]). Only delta streams have marks.
    pub marks: bool,
    /// The client is a relay that reads last words ([`super::last_word`]).
    pub last_words: bool,
    /// Large responses are compressed so.
    pub coding: Option<Coding>,
}

impl From<Variant> for StreamKind {
    /// An aggregated v3 stream.
    fn from(variant: Variant) -> Self {
        let (service, api) = (None, ApiVersion::V3);
        StreamKind { variant, service, api, v2: false, marks: false, last_words: false, coding: None }
    }
}

impl fmt::Display for StreamKind {
    /// The usual short name of the service: `ADS`, `CDS`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.service.map_or("ADS", |service| service.name))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{Kind, TypeUrl};

    fn method(path: &str) -> Option<(&'static str, ApiVersion, Call)> {
        let method = Method::of_path(path)?;
        Some((method.service.map_or("ADS", |service| service.name), method.api, method.call))
    }

    #[test]
    fn rpc_2_every_method_of_every_service_is_known() {
        use ApiVersion::{V2, V3};
        let (sotw, delta) = (Call::Stream(Variant::Sotw), Call::Stream(Variant::Delta));
        for (path, expected) in [
            (
                "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
                ("ADS", V3, sotw),
            ),
            (
                "/envoy.service.discovery.v2.AggregatedDiscoveryService/DeltaAggregatedResources",
                ("ADS", V2, delta),
            ),
            ("/envoy.service.listener.v3.ListenerDiscoveryService/StreamListeners", ("LDS", V3, sotw)),
            ("/envoy.service.route.v3.RouteDiscoveryService/DeltaRoutes", ("RDS", V3, delta)),
            (
                "/envoy.service.route.v3.ScopedRoutesDiscoveryService/FetchScopedRoutes",
                ("SRDS", V3, Call::Fetch),
            ),
            ("/envoy.service.route.v3.VirtualHostDiscoveryService/DeltaVirtualHosts", ("VHDS", V3, delta)),
            ("/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters", ("CDS", V3, sotw)),
            ("/envoy.service.endpoint.v3.EndpointDiscoveryService/FetchEndpoints", ("EDS", V3, Call::Fetch)),
            (
                "/envoy.service.endpoint.v3.LocalityEndpointDiscoveryService/DeltaLocalityEndpoints",
                ("LEDS", V3, delta),
            ),
            ("/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets", ("SDS", V3, sotw)),
            ("/envoy.service.runtime.v3.RuntimeDiscoveryService/StreamRuntime", ("RTDS", V3, sotw)),
            (
                "/envoy.service.extension.v3.ExtensionConfigDiscoveryService/DeltaExtensionConfigs",
                ("ECDS", V3, delta),
            ),
            ("/envoy.api.v2.ClusterDiscoveryService/StreamClusters", ("CDS", V2, sotw)),
            ("/envoy.api.v2.VirtualHostDiscoveryService/DeltaVirtualHosts", ("VHDS", V2, delta)),
            ("/envoy.service.discovery.v2.SecretDiscoveryService/FetchSecrets", ("SDS", V2, Call::Fetch)),
            ("/envoy.service.discovery.v2.RuntimeDiscoveryService/StreamRuntime", ("RTDS", V2, sotw)),
        ] {
            assert_eq!(method(path), Some(expected), "{path}");
        }
    }

    #[test]
    fn rpc_4_what_is_no_method_is_none() {
        for path in [
            "/envoy.service.route.v3.ScopedRouteDiscoveryService/StreamScopedRoutes",
            "/envoy.service.route.v3.VirtualHostDiscoveryService/StreamVirtualHosts",
            "/envoy.service.endpoint.v3.LocalityEndpointDiscoveryService/FetchLocalityEndpoints",
            "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamRoutes",
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/FetchAggregatedResources",
            "/envoy.api.v2.ExtensionConfigDiscoveryService/StreamExtensionConfigs",
            "/envoy.service.cluster.v3.ClusterDiscoveryService",
            "/",
            "",
        ] {
            assert_eq!(method(path), None, "{path}");
        }
    }

    #[test]
    fn rpc_9_rest_paths() {
        let of_path = |path| Service::of_rest_path(path).map(|(service, api)| (service.name, api));
        assert_eq!(of_path("/v3/discovery:clusters"), Some(("CDS", ApiVersion::V3)));
        assert_eq!(of_path("/v2/discovery:scoped-routes"), Some(("SRDS", ApiVersion::V2)));
        assert_eq!(of_path("/v3/discovery:extension_configs"), Some(("ECDS", ApiVersion::V3)));
        for path in [
            "/v2/discovery:extension_configs",
            "/v3/discovery:virtual-hosts",
            "/v3/discovery:",
            "/v4/discovery:clusters",
        ] {
            assert_eq!(of_path(path), None, "{path}");
        }
    }

    #[test]
    fn typ_3_types_of_both_versions_have_the_same_properties() {
        for service in Service::all() {
            let v3 = TypeUrl::new(service.type_url(ApiVersion::V3));
            assert_ne!(v3.kind(), Kind::Other, "{v3}");
            if let Some(type_v2) = service.type_v2 {
                assert!(is_v2_type(type_v2) && service.carries(type_v2));
                assert_eq!(TypeUrl::new(type_v2).kind(), v3.kind(), "{type_v2}");
            }
        }
        assert!(is_v2_type("type.googleapis.com/envoy.api.v2.auth.Secret"));
        assert!(!is_v2_type("type.googleapis.com/envoy.config.cluster.v3.Cluster"));
    }

    #[test]
    fn rpc_2_rpc_4_rpc_9_types_have_the_paths_of_their_services() {
        for service in Service::all() {
            let service_of_type = Service::of_type(&TypeUrl::new(service.type_url(ApiVersion::V3)));
            assert_eq!(service_of_type, Some(service));
            let delta = Method::of_path(&service.stream_path(Variant::Delta).unwrap_or_default());
            let expected =
                Method { service: Some(service), api: ApiVersion::V3, call: Call::Stream(Variant::Delta) };
            assert_eq!(delta, Some(expected), "{}", service.name);
            let path = service.rest_path();
            assert_eq!(path.is_some(), service.stream_path(Variant::Sotw).is_some(), "{}", service.name);
            let by_path = path.and_then(|path| Service::of_rest_path(&path));
            assert!(by_path.is_none_or(|pair| pair == (service, ApiVersion::V3)), "{}", service.name);
        }
        let of_message = |message| Service::of_type(&TypeUrl::of_message(message));
        let scoped =
            of_message("envoy.config.route.v3.ScopedRouteConfiguration").and_then(Service::rest_path);
        assert_eq!(scoped.as_deref(), Some("/v3/discovery:scoped-routes"));
        assert_eq!(of_message("envoy.config.route.v3.VirtualHost").and_then(Service::rest_path), None);
        assert_eq!(of_message("envoy.config.listener.v3.ListenerCollection"), None);
        assert_eq!(of_message("acme.Anything"), None);
        let ads = Method::of_path(&ads_path(Variant::Sotw));
        assert_eq!(
            ads.map(|method| (method.service, method.call)),
            Some((None, Call::Stream(Variant::Sotw)))
        );
    }
}
