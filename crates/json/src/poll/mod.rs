//! The request of a REST client: a `DiscoveryRequest` in proto3 JSON (RST-1, RST-2).
//!
//! The reader uses neither descriptors nor a tree of the whole document. Envoy sends hundreds of extensions
//! with its node on every poll, and the relay keeps none. The limits are the same as for requests on streams.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use sluice_wire::deframe::{ReaderLimits, check_name};
use sluice_wire::fields::{build, put_bytes, put_message};
use sluice_wire::frame::{Bound, ReadError};
use sluice_xds::{Locality, Node, ResourceName, SotwRequest, UserAgentVersion, Value};

/// The text of a list or a map has at most so many bytes for each byte that may be kept: names of fields,
/// quotes, escapes and white space.
const TEXT_OF_KEPT: usize = 4;

/// Unknown keys are skipped: a newer client may send more of them. The type follows from the path (RST-1),
/// and polls have neither nonces nor NACKs (RST-7, RST-8), so the keys for these are skipped, too.
#[derive(Deserialize)]
struct RequestText<'a> {
    #[serde(borrow, default, alias = "versionInfo")]
    version_info: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    node: Option<&'a RawValue>,
    #[serde(borrow, default, alias = "resourceNames")]
    resource_names: Option<&'a RawValue>,
    #[serde(borrow, default, alias = "resourceLocators")]
    resource_locators: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct NodeText<'a> {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    cluster: Option<String>,
    #[serde(borrow, default)]
    metadata: Option<&'a RawValue>,
    #[serde(default)]
    locality: Option<LocalityText>,
    #[serde(default, alias = "userAgentName")]
    user_agent_name: Option<String>,
    #[serde(default, alias = "userAgentVersion")]
    user_agent_version: Option<String>,
    #[serde(default, alias = "userAgentBuildVersion")]
    user_agent_build_version: Option<BuildText>,
    #[serde(borrow, default, alias = "clientFeatures")]
    client_features: Option<&'a RawValue>,
    #[serde(borrow, default, alias = "dynamicParameters")]
    dynamic_parameters: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct LocalityText {
    #[serde(default)]
    region: Option<String>,
    #[serde(default)]
    zone: Option<String>,
    #[serde(default, alias = "subZone")]
    sub_zone: Option<String>,
}

#[derive(Deserialize)]
struct BuildText {
    #[serde(default)]
    version: Option<SemanticText>,
}

#[derive(Default, Deserialize)]
struct SemanticText {
    #[serde(default, alias = "majorNumber")]
    major_number: Option<u32>,
    #[serde(default, alias = "minorNumber")]
    minor_number: Option<u32>,
    #[serde(default)]
    patch: Option<u32>,
}

#[derive(Deserialize)]
struct ParametersText {
    #[serde(default)]
    params: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct LocatorText {
    #[serde(default)]
    name: Option<String>,
    #[serde(default, alias = "dynamicParameters")]
    dynamic_parameters: Option<HasEntries>,
}

/// Whether a map has entries. They are not kept: an entry of ten bytes of text would take a hundred.
struct HasEntries(bool);

impl<'de> Deserialize<'de> for HasEntries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<HasEntries, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = HasEntries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<HasEntries, A::Error> {
        let mut has_entries = false;
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            has_entries = true;
        }
        Ok(HasEntries(has_entries))
    }
}

/// Reads a request. The type is left empty; the caller knows it from the path.
///
/// # Errors
/// The malformed part with its place, or the limit exceeded.
pub fn read_request(body: &[u8], limits: &ReaderLimits) -> Result<SotwRequest, ReadError> {
    ReadError::check(Bound::RequestBytes, body.len(), limits.request_bytes)?;
    let not_json = |error: serde_json::Error| ReadError::NotJson(error.to_string());
    let text: RequestText<'_> = serde_json::from_slice(body).map_err(not_json)?;
    must_be_object(body)?;
    let version_info = text.version_info.unwrap_or_default();
    ReadError::check(Bound::VersionBytes, version_info.len(), limits.name_bytes)?;
    let mut resource_names = Vec::new();
    read_list("resource_names", text.resource_names, limits, Some::<String>, &mut resource_names)?;
    read_list("resource_locators", text.resource_locators, limits, locator_name, &mut resource_names)?;
    let node = text.node.map(|node| read_node(node, limits)).transpose()?;
    Ok(SotwRequest {
        version_info: version_info.into_owned(),
        node: node.map(Box::new),
        resource_names,
        ..SotwRequest::default()
    })
}

/// An error in one part of the request. The parser counts lines and columns within the part, so they are
/// removed.
fn malformed(part: &str, error: &serde_json::Error) -> ReadError {
    let text = error.to_string();
    let reason = text.rsplit_once(" at line ").map_or(&*text, |(reason, _)| reason);
    ReadError::NotJson(format!("{part}: {reason}"))
}

/// The parser would also accept a list of the fields in their order.
fn must_be_object(text: &[u8]) -> Result<(), ReadError> {
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
    if first == Some(&b'{') { Ok(()) } else { Err(ReadError::NotJson("expected a JSON object".to_owned())) }
}

// === names ===

/// `None`: this version does not support the locator.
fn locator_name(locator: LocatorText) -> Option<String> {
    let plain = locator.dynamic_parameters.is_none_or(|HasEntries(has_entries)| !has_entries);
    plain.then(|| locator.name.unwrap_or_default())
}

/// Reads a list, and stops at the limit.
fn read_list<'a, T: Deserialize<'a>>(
    part: &str,
    text: Option<&'a RawValue>,
    limits: &ReaderLimits,
    name_of: fn(T) -> Option<String>,
    names: &mut Vec<ResourceName>,
) -> Result<(), ReadError> {
    let Some(text) = text else { return Ok(()) };
    let fault = Cell::new(None);
    let seed = Names { limits, name_of, names, fault: &fault };
    let read = seed.deserialize(&mut serde_json::Deserializer::from_str(text.get()));
    match (fault.take(), read) {
        (Some(fault), _) => Err(fault),
        (None, read) => read.map_err(|error| malformed(part, &error)),
    }
}

struct Names<'n, T> {
    limits: &'n ReaderLimits,
    name_of: fn(T) -> Option<String>,
    names: &'n mut Vec<ResourceName>,
    fault: &'n Cell<Option<ReadError>>,
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Names<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Names<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of resource names")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while let Some(element) = elements.next_element::<T>()? {
            let checked = match (self.name_of)(element) {
                None => Err(ReadError::Unsupported("dynamic parameters of resource locators")),
                Some(name) => {
                    ReadError::check(Bound::Names, self.names.len() + 1, self.limits.names_per_request)
                        .and_then(|()| ReadError::check(Bound::NameBytes, name.len(), self.limits.name_bytes))
                        .and_then(|()| {
                            check_name(&name).map(drop).map_err(|fault| ReadError::NotJson(fault.to_string()))
                        })
                        .map(|()| self.names.push(ResourceName::new(&name)))
                }
            };
            if let Err(error) = checked {
                self.fault.set(Some(error));
                return Err(A::Error::custom("over a limit"));
            }
        }
        Ok(())
    }
}

// === the node ===

/// Reads a node alone, with the limits of a client's first request.
pub fn parse_node(text: &[u8]) -> Result<Node, ReadError> {
    let text: &RawValue = serde_json::from_slice(text).map_err(|error| malformed("node", &error))?;
    read_node(text, &ReaderLimits::default())
}

fn read_node(text: &RawValue, limits: &ReaderLimits) -> Result<Node, ReadError> {
    ReadError::check(Bound::NodeBytes, text.get().len(), limits.node_bytes)?;
    must_be_object(text.get().as_bytes())?;
    let text: NodeText<'_> = serde_json::from_str(text.get()).map_err(|error| malformed("node", &error))?;
    let metadata_bytes = text.metadata.map_or(0, |metadata| metadata.get().len());
    ReadError::check(Bound::NodeRetainedBytes, metadata_bytes, limits.node_retained_bytes)?;
    let features: Vec<String> = read_part("client_features", text.client_features, limits)?;
    let parameters: BTreeMap<String, ParametersText> =
        read_part("dynamic_parameters", text.dynamic_parameters, limits)?;
    let mut node = Node {
        id: text.id.unwrap_or_default(),
        cluster: text.cluster.unwrap_or_default(),
        metadata: text.metadata.map(|text| read_metadata(text, limits)).transpose()?.unwrap_or_default(),
        locality: text.locality.map(|text| Locality {
            region: text.region.unwrap_or_default(),
            zone: text.zone.unwrap_or_default(),
            sub_zone: text.sub_zone.unwrap_or_default(),
        }),
        user_agent_name: text.user_agent_name.unwrap_or_default(),
        user_agent_version: match (text.user_agent_version, text.user_agent_build_version) {
            (Some(text), _) => Some(UserAgentVersion::Text(text)),
            (None, Some(build)) => Some(build_version(&build.version.unwrap_or_default())),
            (None, None) => None,
        },
        client_features: features,
        dynamic_parameters: parameters.iter().map(|(key, text)| parameters_entry(key, text)).collect(),
    };
    ReadError::check(
        Bound::NodeRetainedBytes,
        metadata_bytes + kept_bytes(&node),
        limits.node_retained_bytes,
    )?;
    // Features are a set and parameters a map, so both are sorted.
    node.client_features.sort_unstable();
    node.client_features.dedup();
    node.dynamic_parameters.sort_unstable();
    Ok(node)
}

/// Reads a list or a map of the node. Its text is measured before: an entry of three bytes takes ten times as
/// much, and the precise measure of the kept bytes comes too late.
fn read_part<'a, T: Default + Deserialize<'a>>(
    part: &str,
    text: Option<&'a RawValue>,
    limits: &ReaderLimits,
) -> Result<T, ReadError> {
    let Some(text) = text else { return Ok(T::default()) };
    let allowed = limits.node_retained_bytes.saturating_mul(TEXT_OF_KEPT);
    ReadError::check(Bound::NodeRetainedBytes, text.get().len(), allowed)?;
    let read = serde_json::from_str::<Option<T>>(text.get());
    read.map(Option::unwrap_or_default).map_err(|error| malformed(&format!("{part} of the node"), &error))
}

/// Bytes kept of a node besides its metadata.
fn kept_bytes(node: &Node) -> usize {
    let locality = node.locality.as_ref();
    let locality =
        locality.map_or(0, |locality| locality.region.len() + locality.zone.len() + locality.sub_zone.len());
    let agent = match &node.user_agent_version {
        Some(UserAgentVersion::Text(text)) => text.len(),
        _ => 0,
    };
    let features: usize = node.client_features.iter().map(|feature| feature.len() + 2).sum();
    let parameters: usize = node.dynamic_parameters.iter().map(Bytes::len).sum();
    node.id.len() + node.cluster.len() + node.user_agent_name.len() + locality + agent + features + parameters
}

fn build_version(version: &SemanticText) -> UserAgentVersion {
    UserAgentVersion::Build {
        major: version.major_number.unwrap_or_default(),
        minor: version.minor_number.unwrap_or_default(),
        patch: version.patch.unwrap_or_default(),
    }
}

/// An entry of `dynamic_parameters` as on the wire.
fn parameters_entry(key: &str, text: &ParametersText) -> Bytes {
    let entry = build(0, |sink| {
        put_bytes(sink, 1, key.as_bytes());
        put_message(sink, 2, |parameters| {
            for (key, value) in text.params.iter().flatten() {
                put_message(parameters, 1, |entry| {
                    put_bytes(entry, 1, key.as_bytes());
                    put_bytes(entry, 2, value.as_bytes());
                });
            }
        });
    });
    entry.into()
}

fn read_metadata(text: &RawValue, limits: &ReaderLimits) -> Result<BTreeMap<String, Value>, ReadError> {
    let fault = Cell::new(None);
    let seed = Metadata { levels: limits.metadata_depth, allowed: limits.metadata_depth, fault: &fault };
    let read = seed.deserialize(&mut serde_json::Deserializer::from_str(text.get()));
    match (fault.take(), read) {
        (Some(fault), _) => Err(fault),
        (None, Ok(Value::Struct(fields))) => Ok(fields),
        (None, Ok(_)) => Err(ReadError::NotJson("the metadata of the node is not an object".to_owned())),
        (None, Err(error)) => Err(malformed("metadata of the node", &error)),
    }
}

/// A `google.protobuf.Value`. `levels`: the remaining levels of nesting.
#[derive(Clone, Copy)]
struct Metadata<'n> {
    levels: usize,
    allowed: usize,
    fault: &'n Cell<Option<ReadError>>,
}

impl Metadata<'_> {
    fn descend<E: Error>(self) -> Result<Self, E> {
        let Some(levels) = self.levels.checked_sub(1) else {
            let (limit, value) = (Bound::MetadataDepth, self.allowed + 1);
            self.fault.set(Some(ReadError::OverLimit { limit, value, allowed: self.allowed }));
            return Err(E::custom("over a limit"));
        };
        Ok(Metadata { levels, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Metadata<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Metadata<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Number(value.to_bits()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number((value as f64).to_bits()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number((value as f64).to_bits()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let inner = self.descend()?;
        let mut values = Vec::new();
        while let Some(value) = elements.next_element_seed(inner)? {
            values.push(value);
        }
        Ok(Value::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inner = self.descend()?;
        let mut fields = BTreeMap::new();
        while let Some(key) = entries.next_key::<String>()? {
            fields.insert(key, entries.next_value_seed(inner)?);
        }
        Ok(Value::Struct(fields))
    }
}
