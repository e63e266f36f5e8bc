//! Requests and responses in one shape for both variants, so that a case can be written once and run as
//! either.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use prost::Message;
use serde_json::json;

use super::proto::{self, Any, Constraints, Node, ResourceLocator, Status};
use super::typed;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    Sotw,
    Delta,
}

impl Variant {
    pub const BOTH: [Variant; 2] = [Variant::Sotw, Variant::Delta];

    pub fn path(self) -> &'static str {
        match self {
            Variant::Sotw => {
                "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
            }
            Variant::Delta => {
                "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
            }
        }
    }

    /// The value of `api_type` for an ADS upstream of this variant.
    pub fn api_type(self) -> &'static str {
        match self {
            Variant::Sotw => "AGGREGATED_GRPC",
            Variant::Delta => "AGGREGATED_DELTA_GRPC",
        }
    }
}

/// The connection of a relay to its control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    Ads(Variant),
    /// A stream per type, to the service of the type.
    PerType(Variant),
    Rest,
    Files,
}

impl From<Variant> for Attachment {
    fn from(variant: Variant) -> Attachment {
        Attachment::Ads(variant)
    }
}

impl Attachment {
    /// The value of `api_type`; files have none.
    pub fn api_type(self) -> &'static str {
        match self {
            Attachment::Ads(variant) => variant.api_type(),
            Attachment::PerType(Variant::Sotw) => "GRPC",
            Attachment::PerType(Variant::Delta) => "DELTA_GRPC",
            Attachment::Rest => "REST",
            Attachment::Files => "",
        }
    }

    /// Whether the upstream reports every removal. SotW streams report removals of full-state types only
    /// (RLY-28); files and answers to polls are complete (FIL-8, RST-12).
    pub fn reports_removals(self) -> bool {
        !matches!(self, Attachment::Ads(Variant::Sotw) | Attachment::PerType(Variant::Sotw))
    }
}

/// The services of the kit's types, with their REST collections: RPC-2 and the table of REST paths.
pub const SERVICES: [(&str, &str, &str, &str); 4] = [
    (super::CDS, "envoy.service.cluster.v3.ClusterDiscoveryService", "Clusters", "clusters"),
    (super::EDS, "envoy.service.endpoint.v3.EndpointDiscoveryService", "Endpoints", "endpoints"),
    (super::LDS, "envoy.service.listener.v3.ListenerDiscoveryService", "Listeners", "listeners"),
    (super::RDS, "envoy.service.route.v3.RouteDiscoveryService", "Routes", "routes"),
];

/// The variant of a gRPC path, and the type that the path implies; `None` for the aggregated services.
pub fn method(path: &str) -> Option<(Variant, Option<&'static str>)> {
    if let Some(variant) = Variant::BOTH.into_iter().find(|variant| variant.path() == path) {
        return Some((variant, None));
    }
    let (service, method) = path.strip_prefix('/')?.split_once('/')?;
    SERVICES.iter().find(|known| known.1 == service).and_then(|(type_url, _, noun, _)| {
        let variant = match method.strip_suffix(noun)? {
            "Stream" => Variant::Sotw,
            "Delta" => Variant::Delta,
            _ => return None,
        };
        Some((variant, Some(*type_url)))
    })
}

/// A request; the fields of the other variant stay empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ask {
    pub node: Option<Node>,
    pub type_url: String,
    pub version: String,
    pub names: Vec<String>,
    pub subscribe: Vec<String>,
    pub unsubscribe: Vec<String>,
    /// In SotW the list, in delta the subscriptions (TP2).
    pub locators: Vec<ResourceLocator>,
    pub locators_unsubscribe: Vec<ResourceLocator>,
    pub initial: BTreeMap<String, String>,
    pub nonce: String,
    pub error: Option<Status>,
}

impl Ask {
    pub fn of(type_url: &str) -> Ask {
        Ask { type_url: type_url.to_owned(), ..Ask::default() }
    }

    pub fn names(mut self, names: &[&str]) -> Ask {
        self.names = strings(names);
        self
    }

    pub fn subscribe(mut self, names: &[&str]) -> Ask {
        self.subscribe = strings(names);
        self
    }

    pub fn unsubscribe(mut self, names: &[&str]) -> Ask {
        self.unsubscribe = strings(names);
        self
    }

    pub fn initial(mut self, versions: &[(&str, &str)]) -> Ask {
        self.initial = versions.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        self
    }

    pub fn nonce(mut self, nonce: &str) -> Ask {
        self.nonce = nonce.to_owned();
        self
    }

    pub fn version(mut self, version: &str) -> Ask {
        self.version = version.to_owned();
        self
    }

    pub fn error(mut self, message: &str) -> Ask {
        self.error = Some(Status { code: 3, message: message.to_owned() });
        self
    }
}

/// One resource of a response. `version` is empty in SotW.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Item {
    pub name: String,
    pub version: String,
    pub body: Option<Any>,
    /// In delta only, like the next field.
    pub aliases: Vec<String>,
    pub do_not_cache: bool,
    /// With constraints, the name is in `resource_name`, in SotW within a wrapper.
    pub constraints: Option<Constraints>,
}

impl Item {
    pub fn new(type_url: &str, name: &str, version: &str, text: &str) -> Item {
        let body = Some(body(type_url, name, text));
        Item { name: name.to_owned(), version: version.to_owned(), body, ..Item::default() }
    }

    pub fn text(&self) -> String {
        self.body.as_ref().map(text).unwrap_or_default()
    }
}

/// A response; `removed` is for delta only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    pub type_url: String,
    pub version: String,
    pub nonce: String,
    pub items: Vec<Item>,
    pub removed: Vec<String>,
    /// Removals with constraints (DYN-6).
    pub removed_variants: Vec<(String, Constraints)>,
    pub control_plane: String,
    pub canary: bool,
    /// The encoded size, as received.
    pub size: usize,
    /// Entries that used `resource_name` or `removed_resource_names` without constraints (WIR-3, WIR-4).
    pub long_names: usize,
    /// Times to live by name; an item without a body that has one is a heartbeat (TTL-4).
    pub ttls: BTreeMap<String, Duration>,
    /// SotW: the names of elements that came in a wrapper (WIR-7).
    pub wrapped: BTreeSet<String>,
    /// `resource_errors`, by name.
    pub errors: BTreeMap<String, Status>,
}

impl Answer {
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.items.iter().map(|item| item.name.as_str()).collect();
        names.sort_unstable();
        names
    }

    pub fn get(&self, name: &str) -> &Item {
        self.items
            .iter()
            .find(|item| item.name == name)
            .unwrap_or_else(|| panic!("no {name} in {:?}", self.names()))
    }

    /// Name and text of every resource, by name.
    pub fn texts(&self) -> Vec<(String, String)> {
        let mut texts: Vec<_> = self.items.iter().map(|item| (item.name.clone(), item.text())).collect();
        texts.sort_unstable();
        texts
    }

    /// Asserts the structural rules of every response: STR-5, STR-7, RPC-7, SST-8, SST-9, DEL-15, DEL-16.
    pub fn assert_well_formed(&self, variant: Variant) {
        assert!(!self.nonce.is_empty(), "STR-5: empty nonce in {self:?}");
        assert!(!self.type_url.is_empty(), "RPC-7: empty type_url in {self:?}");
        assert!(!self.canary, "WIR-5: canary is set in {self:?}");
        assert_eq!(
            self.long_names, 0,
            "WIR-3, WIR-4: names in the form with constraints, without constraints, in {self:?}"
        );
        let mut seen = BTreeSet::new();
        for item in &self.items {
            assert!(
                seen.insert((&item.name, item.constraints.as_ref())),
                "SST-8, DEL-16: {} twice in {self:?}",
                item.name
            );
            match &item.body {
                Some(body) => {
                    let is_redirect = body.type_url == super::REDIRECT;
                    assert!(is_redirect || body.type_url == self.type_url, "SST-9: {}", body.type_url);
                }
                None => {
                    let may_lack_it = self.type_url == super::VHDS || self.ttls.contains_key(&item.name);
                    assert!(may_lack_it, "DEL-12, VHD-6: a resource without a body");
                }
            }
            if variant == Variant::Delta {
                assert!(!item.version.is_empty(), "DEL-15: {} has no version", item.name);
            }
        }
        for (name, error) in &self.errors {
            assert!(seen.insert((name, None)), "ERR-2: {name} twice in {self:?}");
            assert!(error.code != 0 && !name.is_empty(), "ERR-6: {self:?}");
        }
        for name in &self.removed {
            assert!(seen.insert((name, None)), "DEL-16: {name} twice in {self:?}");
        }
        for (name, constraints) in &self.removed_variants {
            assert!(seen.insert((name, Some(constraints))), "DEL-16: {name} twice in {self:?}");
        }
        if variant == Variant::Sotw {
            assert!(!self.version.is_empty(), "STR-7: empty version_info in {self:?}");
        }
    }
}

pub fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A resource of a type, with a text that distinguishes resources with equal names.
pub fn body(type_url: &str, name: &str, text: &str) -> Any {
    Any { type_url: type_url.to_owned(), value: typed::encode(type_url, name, text) }
}

/// A cluster that takes its endpoints from EDS (ORD-5).
pub fn eds_cluster(name: &str, service_name: &str, text: &str) -> Any {
    let body = proto::Body {
        name: name.to_owned(),
        stat_name: text.to_owned(),
        discovery_type: proto::DISCOVERY_TYPE_EDS,
        eds_cluster_config: Some(proto::EdsClusterConfig { service_name: service_name.to_owned() }),
        ..proto::Body::default()
    };
    Any { type_url: super::CDS.to_owned(), value: body.encode_to_vec() }
}

pub fn text(any: &Any) -> String {
    typed::text(&any.type_url, &any.value)
}

/// A resource in proto3 JSON, with the text in a field of the type.
pub fn json(any: &Any) -> serde_json::Value {
    let name = proto::Named::decode(any.value.as_slice()).map(|body| body.name).unwrap_or_default();
    let (name_field, (field, text)) = match any.type_url.as_str() {
        super::CDS => ("name", ("alt_stat_name", json!(text(any)))),
        super::LDS => ("name", ("stat_prefix", json!(text(any)))),
        super::RDS => ("name", ("request_headers_to_remove", json!([text(any)]))),
        super::EDS => ("cluster_name", ("named_endpoints", json!({ text(any): {} }))),
        other => panic!("{other} has no place for a text"),
    };
    json!({ "@type": any.type_url, name_field: name, field: text })
}

impl From<Ask> for proto::DiscoveryRequest {
    fn from(ask: Ask) -> Self {
        proto::DiscoveryRequest {
            version_info: ask.version,
            node: ask.node,
            resource_names: ask.names,
            type_url: ask.type_url,
            response_nonce: ask.nonce,
            error_detail: ask.error,
            resource_locators: ask.locators,
        }
    }
}

impl From<proto::DiscoveryRequest> for Ask {
    fn from(request: proto::DiscoveryRequest) -> Self {
        Ask {
            node: request.node,
            type_url: request.type_url,
            version: request.version_info,
            names: request.resource_names,
            locators: request.resource_locators,
            nonce: request.response_nonce,
            error: request.error_detail,
            ..Ask::default()
        }
    }
}

impl From<Ask> for proto::DeltaDiscoveryRequest {
    fn from(ask: Ask) -> Self {
        proto::DeltaDiscoveryRequest {
            node: ask.node,
            type_url: ask.type_url,
            resource_names_subscribe: ask.subscribe,
            resource_names_unsubscribe: ask.unsubscribe,
            initial_resource_versions: ask.initial,
            response_nonce: ask.nonce,
            error_detail: ask.error,
            resource_locators_subscribe: ask.locators,
            resource_locators_unsubscribe: ask.locators_unsubscribe,
        }
    }
}

impl From<proto::DeltaDiscoveryRequest> for Ask {
    fn from(request: proto::DeltaDiscoveryRequest) -> Self {
        Ask {
            node: request.node,
            type_url: request.type_url,
            subscribe: request.resource_names_subscribe,
            unsubscribe: request.resource_names_unsubscribe,
            locators: request.resource_locators_subscribe,
            locators_unsubscribe: request.resource_locators_unsubscribe,
            initial: request.initial_resource_versions,
            nonce: request.response_nonce,
            error: request.error_detail,
            ..Ask::default()
        }
    }
}

impl From<Answer> for proto::DiscoveryResponse {
    fn from(answer: Answer) -> Self {
        proto::DiscoveryResponse {
            version_info: answer.version,
            resources: answer.items.into_iter().filter_map(|item| in_sotw(item, &answer.ttls)).collect(),
            canary: answer.canary,
            type_url: answer.type_url,
            nonce: answer.nonce,
            control_plane: identifier(answer.control_plane),
            resource_errors: to_errors(answer.errors),
        }
    }
}

impl From<proto::DiscoveryResponse> for Answer {
    fn from(response: proto::DiscoveryResponse) -> Self {
        let size = response.encoded_len();
        let (mut ttls, mut wrapped) = (BTreeMap::new(), BTreeSet::new());
        let item = |any: Any| {
            if any.type_url != WRAPPER {
                let name =
                    proto::Named::decode(any.value.as_slice()).map(|body| body.name).unwrap_or_default();
                let name = if any.type_url == super::NDS { String::new() } else { name };
                return Item { name, body: Some(any), ..Item::default() };
            }
            let inner = proto::Resource::decode(any.value.as_slice()).expect("a wrapper holds a resource");
            ttls.extend(ttl_of(&inner));
            let item = item(inner);
            wrapped.insert(item.name.clone());
            item
        };
        let items = response.resources.into_iter().map(item).collect();
        Answer {
            type_url: response.type_url,
            version: response.version_info,
            nonce: response.nonce,
            items,
            ttls,
            wrapped,
            errors: from_errors(response.resource_errors),
            control_plane: response.control_plane.map(|c| c.identifier).unwrap_or_default(),
            canary: response.canary,
            size,
            ..Answer::default()
        }
    }
}

impl From<Answer> for proto::DeltaDiscoveryResponse {
    fn from(answer: Answer) -> Self {
        proto::DeltaDiscoveryResponse {
            system_version_info: answer.version,
            resources: answer.items.into_iter().map(|item| resource(item, &answer.ttls)).collect(),
            type_url: answer.type_url,
            nonce: answer.nonce,
            removed_resources: answer.removed,
            control_plane: identifier(answer.control_plane),
            removed_resource_names: answer
                .removed_variants
                .into_iter()
                .map(|(name, constraints)| proto::ResourceName { name, constraints: Some(constraints) })
                .collect(),
            resource_errors: to_errors(answer.errors),
        }
    }
}

impl From<proto::DeltaDiscoveryResponse> for Answer {
    fn from(response: proto::DeltaDiscoveryResponse) -> Self {
        let size = response.encoded_len();
        let names = response.resources.iter().filter_map(|resource| resource.resource_name.as_ref());
        let names = names.chain(&response.removed_resource_names);
        let long_names = names.filter(|name| name.constraints.is_none()).count();
        let variants = response.removed_resource_names.into_iter();
        let ttls = response.resources.iter().filter_map(ttl_of).collect();
        Answer {
            type_url: response.type_url,
            version: response.system_version_info,
            nonce: response.nonce,
            items: response.resources.into_iter().map(item).collect(),
            removed: response.removed_resources,
            control_plane: response.control_plane.map(|c| c.identifier).unwrap_or_default(),
            canary: false,
            size,
            long_names,
            removed_variants: variants
                .map(|name| (name.name, name.constraints.unwrap_or_default()))
                .collect(),
            ttls,
            errors: from_errors(response.resource_errors),
            ..Answer::default()
        }
    }
}

const WRAPPER: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";

fn to_duration(ttl: &Duration) -> proto::Duration {
    let nanos = i32::try_from(ttl.subsec_nanos()).expect("nanoseconds");
    proto::Duration { seconds: i64::try_from(ttl.as_secs()).expect("seconds"), nanos }
}

fn ttl_of(resource: &proto::Resource) -> Option<(String, Duration)> {
    let ttl = resource.ttl.as_ref()?;
    let (seconds, nanos) = (u64::try_from(ttl.seconds).expect("seconds"), u32::try_from(ttl.nanos));
    let name = resource.resource_name.as_ref().map_or(&resource.name, |long| &long.name);
    Some((name.clone(), Duration::new(seconds, nanos.expect("nanoseconds"))))
}

fn to_errors(errors: BTreeMap<String, Status>) -> Vec<proto::ResourceError> {
    let entry = |(name, status): (String, Status)| proto::ResourceError {
        resource_name: Some(proto::ResourceName { name, constraints: None }),
        error_detail: Some(status),
    };
    errors.into_iter().map(entry).collect()
}

fn from_errors(errors: Vec<proto::ResourceError>) -> BTreeMap<String, Status> {
    let entry = |error: proto::ResourceError| {
        (error.resource_name.unwrap_or_default().name, error.error_detail.unwrap_or_default())
    };
    errors.into_iter().map(entry).collect()
}

fn identifier(name: String) -> Option<proto::Identifier> {
    (!name.is_empty()).then_some(proto::Identifier { identifier: name })
}

fn resource(item: Item, ttls: &BTreeMap<String, Duration>) -> proto::Resource {
    let ttl = ttls.get(&item.name).map(to_duration);
    let (name, constraints) = (item.name, item.constraints);
    let (name, resource_name) = match constraints {
        Some(_) => (String::new(), Some(proto::ResourceName { name, constraints })),
        None => (name, None),
    };
    proto::Resource {
        version: item.version,
        resource: item.body,
        name,
        aliases: item.aliases,
        cache_control: item.do_not_cache.then_some(proto::CacheControl { do_not_cache: true }),
        resource_name,
        ttl,
    }
}

fn item(resource: proto::Resource) -> Item {
    let (name, constraints) = match resource.resource_name {
        Some(name) => (name.name, name.constraints),
        None => (resource.name, None),
    };
    Item {
        name,
        version: resource.version,
        body: resource.resource,
        aliases: resource.aliases,
        do_not_cache: resource.cache_control.is_some_and(|control| control.do_not_cache),
        constraints,
    }
}

/// An item in a SotW response: bare, or wrapped if there are constraints or a TTL.
fn in_sotw(item: Item, ttls: &BTreeMap<String, Duration>) -> Option<Any> {
    if item.constraints.is_none() && !ttls.contains_key(&item.name) {
        return item.body;
    }
    Some(Any { type_url: WRAPPER.to_owned(), value: resource(item, ttls).encode_to_vec() })
}
