//! Whether two contents mean the same, though their bytes differ (PRF-14), and contents that bear a secret
//! (PRF-8). A report has the paths of fields, and no value.

use std::cell::Cell;
use std::collections::BTreeSet;

use bytes::Bytes;
use prost::Message;
use prost_reflect::{DynamicMessage, FieldDescriptor, MapKey, ReflectMessage, UnknownField, Value as Field};

use super::super::canonical;
use super::{Budget, DEPTH_MAX, decode, open, rules};
use sluice_text::shortened;
use sluice_xds::TypeUrl;

/// The paths in a report. Further ones tell no more.
const PATHS_MAX: usize = 16;

/// The letters of a map's key in a path.
const KEY_LETTERS_MAX: usize = 64;

/// Repeated fields whose order has no meaning: endpoints, localities, virtual hosts and their domains.
const UNORDERED: [&str; 4] = [
    "envoy.config.endpoint.v3.ClusterLoadAssignment.endpoints",
    "envoy.config.endpoint.v3.LocalityLbEndpoints.lb_endpoints",
    "envoy.config.route.v3.RouteConfiguration.virtual_hosts",
    "envoy.config.route.v3.VirtualHost.domains",
];

/// The comparison of two contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The contents mean the same, apart from ignored fields.
    Same { ignored: Vec<String> },
    /// The paths of the first fields that differ, sorted, such as
    /// `circuit_breakers.thresholds[0].max_retries`.
    Differs { paths: Vec<String>, ignored: Vec<String> },
    /// No descriptor knows the type, or the content is malformed or too large: the bytes decide.
    Unread,
}

/// Compares two contents of a type. Entries of maps are compared by their keys, unknown fields and payloads
/// of unknown types by their bytes. `ignored`: the paths of fields that may differ, without indices; a path
/// covers the fields below it (PRF-15).
pub fn compare(type_url: &TypeUrl, one: &Bytes, other: &Bytes, ignored: &[String]) -> Meaning {
    let (Ok((one, budget)), Ok((other, other_budget))) = (decode(type_url, one), decode(type_url, other))
    else {
        return Meaning::Unread;
    };
    let mut walk = Comparison {
        budgets: [budget, other_budget],
        ignored,
        covered: BTreeSet::new(),
        paths: BTreeSet::new(),
        at: Vec::new(),
    };
    if walk.messages(&one, &other).is_none() {
        return Meaning::Unread;
    }
    let ignored = walk.covered.into_iter().map(|index| ignored[index].clone()).collect();
    if walk.paths.is_empty() {
        return Meaning::Same { ignored };
    }
    Meaning::Differs { paths: walk.paths.into_iter().collect(), ignored }
}

/// Whether a content has a private key, a password or a token in it, rather than the place of one (PRF-8).
pub fn bears_secret(type_url: &TypeUrl, body: &Bytes) -> bool {
    let Ok((message, budget)) = decode(type_url, body) else { return false };
    SecretWalk { budget: Cell::new(budget) }.message(&message, 0)
}

/// A part of a path.
enum Step {
    Field(String),
    Index(usize),
    /// An element of a list without order.
    Any,
    Key(String),
}

/// A walk over both contents.
struct Comparison<'a> {
    budgets: [Budget; 2],
    ignored: &'a [String],
    /// The indices of the ignored paths with a difference.
    covered: BTreeSet<usize>,
    paths: BTreeSet<String>,
    at: Vec<Step>,
}

/// `None` from a method: the contents cannot be compared as a whole.
impl Comparison<'_> {
    fn messages(&mut self, one: &DynamicMessage, other: &DynamicMessage) -> Option<()> {
        if self.at.len() >= DEPTH_MAX {
            return None;
        }
        if one.descriptor() != other.descriptor() {
            self.note();
            return Some(());
        }
        if one.descriptor().full_name() == super::super::ANY {
            return self.payloads(one, other);
        }
        for field in one.descriptor().fields() {
            if one.has_field(&field) || other.has_field(&field) {
                self.at.push(Step::Field(field.name().to_owned()));
                self.fields(&field, one, other)?;
                self.at.pop();
            }
        }
        let unknown = |message: &DynamicMessage| {
            let mut unknown: Vec<UnknownField> = message.unknown_fields().cloned().collect();
            unknown.sort_by_key(UnknownField::number);
            unknown
        };
        if unknown(one) != unknown(other) {
            self.at.push(Step::Field("unknown".to_owned()));
            self.note();
            self.at.pop();
        }
        Some(())
    }

    fn fields(
        &mut self,
        field: &FieldDescriptor,
        one: &DynamicMessage,
        other: &DynamicMessage,
    ) -> Option<()> {
        if !field.is_list() && !field.is_map() && one.has_field(field) != other.has_field(field) {
            self.note();
            return Some(());
        }
        match (&*one.get_field(field), &*other.get_field(field)) {
            (Field::Map(one), Field::Map(other)) => {
                let mut keys: Vec<&MapKey> = one.keys().chain(other.keys()).collect();
                keys.sort_unstable();
                keys.dedup();
                for key in keys {
                    self.at.push(Step::Key(key_text(key)));
                    match (one.get(key), other.get(key)) {
                        (Some(one), Some(other)) => self.values(one, other)?,
                        _ => self.note(),
                    }
                    self.at.pop();
                }
                Some(())
            }
            (Field::List(one), Field::List(other)) if UNORDERED.contains(&field.full_name()) => {
                let (one, other) = (sorted(one)?, sorted(other)?);
                self.lists(&one, &other, |_| Step::Any)
            }
            (Field::List(one), Field::List(other)) => {
                let (one, other): (Vec<_>, Vec<_>) = (one.iter().collect(), other.iter().collect());
                self.lists(&one, &other, Step::Index)
            }
            (one, other) => self.values(one, other),
        }
    }

    fn lists(&mut self, one: &[&Field], other: &[&Field], step: impl Fn(usize) -> Step) -> Option<()> {
        if one.len() != other.len() {
            self.note();
            return Some(());
        }
        for (index, (one, other)) in one.iter().zip(other).enumerate() {
            self.at.push(step(index));
            self.values(one, other)?;
            self.at.pop();
        }
        Some(())
    }

    fn values(&mut self, one: &Field, other: &Field) -> Option<()> {
        match (one, other) {
            (Field::Message(one), Field::Message(other)) => self.messages(one, other),
            (one, other) => {
                if one != other {
                    self.note();
                }
                Some(())
            }
        }
    }

    /// Payloads of an `Any`. What cannot be decoded is compared by its bytes.
    fn payloads(&mut self, one: &DynamicMessage, other: &DynamicMessage) -> Option<()> {
        if one == other {
            return Some(());
        }
        let [budget, other_budget] = &mut self.budgets;
        match (open(one, budget), open(other, other_budget)) {
            (Ok((type_url, one)), Ok((other_url, other))) if type_url == other_url => {
                self.messages(&one, &other)
            }
            _ => {
                self.note();
                Some(())
            }
        }
    }

    /// The fields at this place differ.
    fn note(&mut self) {
        if let Some(index) = self.ignored_by() {
            self.covered.insert(index);
        } else if self.paths.len() < PATHS_MAX {
            self.paths.insert(self.path(true));
        }
    }

    /// The index of the ignored path that covers this place.
    fn ignored_by(&self) -> Option<usize> {
        let path = self.path(false);
        let covers = |ignored: &String| {
            path.strip_prefix(ignored.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.ignored.iter().position(covers)
    }

    fn path(&self, has_indices: bool) -> String {
        let mut path = String::new();
        for step in &self.at {
            match step {
                Step::Field(name) if path.is_empty() => path.push_str(name),
                Step::Field(name) => path.extend([".", name]),
                Step::Index(index) if has_indices => path.push_str(&format!("[{index}]")),
                Step::Any if has_indices => path.push_str("[]"),
                Step::Key(key) if has_indices => path.push_str(&format!("[{key}]")),
                Step::Index(_) | Step::Any | Step::Key(_) => {}
            }
        }
        path
    }
}

fn key_text(key: &MapKey) -> String {
    match key {
        MapKey::String(text) => shortened(text, KEY_LETTERS_MAX).to_string(),
        MapKey::Bool(key) => key.to_string(),
        MapKey::I32(key) => key.to_string(),
        MapKey::I64(key) => key.to_string(),
        MapKey::U32(key) => key.to_string(),
        MapKey::U64(key) => key.to_string(),
    }
}

/// The elements in the order of their canonical bytes.
fn sorted(values: &[Field]) -> Option<Vec<&Field>> {
    let pool = super::super::pool().ok()?;
    let mut keyed = Vec::with_capacity(values.len());
    for value in values {
        let bytes = match value {
            Field::Message(message) => {
                canonical::encode(pool, message).unwrap_or_else(|_| message.encode_to_vec())
            }
            Field::String(text) => text.as_bytes().to_vec(),
            _ => Vec::new(),
        };
        keyed.push((bytes, value));
    }
    keyed.sort_by(|(one, _), (other, _)| one.cmp(other));
    Some(keyed.into_iter().map(|(_, value)| value).collect())
}

/// A walk for secrets.
struct SecretWalk {
    budget: Cell<Budget>,
}

impl SecretWalk {
    fn message(&self, message: &DynamicMessage, depth: usize) -> bool {
        if depth >= DEPTH_MAX {
            return false;
        }
        if message.descriptor().full_name() == super::super::ANY {
            let mut budget = self.budget.get();
            let opened = open(message, &mut budget);
            self.budget.set(budget);
            return opened.is_ok_and(|(_, payload)| self.message(&payload, depth + 1));
        }
        let is_secret = |field: &FieldDescriptor| rules().is_ok_and(|rules| rules.is_secret(field));
        message.fields().any(
            |(field, value)| {
                if is_secret(&field) { is_inline(value) } else { self.value(value, depth + 1) }
            },
        )
    }

    fn value(&self, value: &Field, depth: usize) -> bool {
        match value {
            Field::Message(message) => self.message(message, depth),
            Field::List(values) => values.iter().any(|value| self.value(value, depth)),
            Field::Map(entries) => entries.values().any(|value| self.value(value, depth)),
            _ => false,
        }
    }
}

/// Whether a field for a secret has the secret itself. A `DataSource` may name a file or a variable.
fn is_inline(value: &Field) -> bool {
    match value {
        Field::String(text) => !text.is_empty(),
        Field::Bytes(bytes) => !bytes.is_empty(),
        Field::Message(message) if message.descriptor().full_name() == "envoy.config.core.v3.DataSource" => {
            let has = |name| message.get_field_by_name(name).as_deref().is_some_and(is_inline);
            has("inline_string") || has("inline_bytes")
        }
        Field::Message(message) => message.fields().any(|(_, value)| is_inline(value)),
        Field::List(values) => values.iter().any(is_inline),
        Field::Map(entries) => entries.values().any(is_inline),
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::parse_json;
    use serde_json::json;

    const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
    const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    const LOADS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

    fn body(type_url: &str, mut content: serde_json::Value) -> Bytes {
        content["@type"] = type_url.into();
        let text = json!({ "version_info": "1", "resources": [content] }).to_string();
        let response = parse_json(&text).unwrap();
        let resource = response.resources[0].as_ref().unwrap();
        resource.resource.as_ref().unwrap().body.value.clone()
    }

    fn compared(
        type_url: &str,
        one: serde_json::Value,
        other: serde_json::Value,
        ignored: &[&str],
    ) -> Meaning {
        let ignored: Vec<String> = ignored.iter().map(ToString::to_string).collect();
        compare(&TypeUrl::new(type_url), &body(type_url, one), &body(type_url, other), &ignored)
    }

    fn differs(paths: &[&str]) -> Meaning {
        Meaning::Differs { paths: paths.iter().map(ToString::to_string).collect(), ignored: Vec::new() }
    }

    fn same(ignored: &[&str]) -> Meaning {
        Meaning::Same { ignored: ignored.iter().map(ToString::to_string).collect() }
    }

    #[test]
    fn prf_14_a_report_has_the_paths_of_fields_and_no_value() {
        let cluster = |retries: u32, seconds: &str| {
            json!({ "name": "a", "connect_timeout": seconds,
                "circuit_breakers": { "thresholds": [{ "max_retries": retries }] } })
        };
        assert_eq!(compared(CLUSTER, cluster(1, "1s"), cluster(1, "1s"), &[]), same(&[]));
        assert_eq!(
            compared(CLUSTER, cluster(1, "1s"), cluster(3, "2s"), &[]),
            differs(&["circuit_breakers.thresholds[0].max_retries.value", "connect_timeout.seconds"])
        );
    }

    #[test]
    fn prf_15_an_ignored_path_covers_what_is_below_and_nothing_else() {
        let listener = |prefix: &str| json!({ "name": "a", "stat_prefix": prefix });
        assert_eq!(
            compared(LISTENER, listener("a"), listener("b"), &["stat_prefix"]),
            same(&["stat_prefix"])
        );
        assert_eq!(compared(LISTENER, listener("a"), listener("b"), &["stat"]), differs(&["stat_prefix"]));
    }

    #[test]
    fn prf_14_endpoints_have_no_order_and_a_payload_is_compared_inside() {
        let endpoint = |port: u32| json!({ "endpoint": { "address": { "socket_address": { "address": "10.0.0.1", "port_value": port } } } });
        let loads = |ports: [u32; 2]| json!({ "cluster_name": "a", "endpoints": [{ "lb_endpoints": ports.map(endpoint) }] });
        assert_eq!(compared(LOADS, loads([1, 2]), loads([2, 1]), &[]), same(&[]));
        assert_eq!(
            compared(LOADS, loads([1, 2]), loads([1, 3]), &[]),
            differs(&["endpoints[].lb_endpoints[].endpoint.address.socket_address.port_value"])
        );
        let filter = |prefix: &str| {
            json!({ "name": "a", "filter_chains": [{ "filters": [{ "name": "f", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
                "stat_prefix": prefix, "cluster": "c" } }] }] })
        };
        let path = "filter_chains[0].filters[0].typed_config.stat_prefix";
        assert_eq!(compared(LISTENER, filter("a"), filter("b"), &[]), differs(&[path]));
        let ignored = ["filter_chains.filters.typed_config.stat_prefix"];
        assert_eq!(compared(LISTENER, filter("a"), filter("b"), &ignored), same(&ignored));
    }

    #[test]
    fn prf_8_an_inline_key_is_a_secret_and_the_place_of_one_is_none() {
        let cluster = |key: serde_json::Value| {
            let context = json!({
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                "common_tls_context": { "tls_certificates": [{ "private_key": key }] } });
            body(
                CLUSTER,
                json!({ "name": "a", "transport_socket": { "name": "t", "typed_config": context } }),
            )
        };
        let type_url = TypeUrl::new(CLUSTER);
        assert!(bears_secret(&type_url, &cluster(json!({ "inline_string": "KEY" }))));
        assert!(!bears_secret(&type_url, &cluster(json!({ "filename": "/key.pem" }))));
    }
}
