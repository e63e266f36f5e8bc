//! Reads one resource of a response: its identity and, verbatim, its payload.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::super::dynamic::read_constraints;
use super::super::fields::{Fields, Malformed};
use super::super::own_name::OwnName;
use super::super::response::WRAPPER;
use super::super::version;
use sluice_xds::dynamic::is_reserved;
use sluice_xds::{
    Any, BadElement, Constraints, Element, Kind, Received, Resource, ResourceCopies, ResourceName, TypeUrl,
};

/// The wrapper used by servers that still speak v2. Its fields have the same numbers.
const WRAPPER_V2: &str = "type.googleapis.com/envoy.api.v2.Resource";

/// The payload type of a redirect: the resource is elsewhere (NAM-20).
const REDIRECT: &str = "type.googleapis.com/xds.core.v3.ResourceLocator";

/// Reads the resources of one response.
pub(super) struct ResourceReader<'a> {
    /// The complete response. All other slices point into this buffer.
    pub message: &'a Bytes,
    pub type_url: &'a TypeUrl,
    /// The version of resources without a version of their own: the version of a SotW response.
    pub version_info: &'a str,
    /// The version of the resource before. Most versions of a response are equal, and share one text.
    pub version: Arc<str>,
    /// The resources of other responses; `None`: this response shares none.
    pub copies: Option<&'a dyn ResourceCopies>,
}

impl<'a> ResourceReader<'a> {
    /// An owner of equal Secrets must not be seen in the memory of another: they are not shared (BOD-3).
    pub fn new(
        message: &'a Bytes,
        type_url: &'a TypeUrl,
        version_info: &'a str,
        copies: Option<&'a dyn ResourceCopies>,
    ) -> ResourceReader<'a> {
        let copies = copies.filter(|_| !type_url.is_secret());
        ResourceReader { message, type_url, version_info, version: Arc::default(), copies }
    }

    /// An element of a SotW response: the bare message or a wrapper (WIR-7).
    pub fn sotw(&mut self, any: &'a [u8]) -> Element {
        let (type_url, value) = read_any(any).map_err(|error| bad("", error.to_string()))?;
        if is_wrapper(type_url) {
            return self.wrapped(value, true);
        }
        if *type_url != *self.type_url.as_str() {
            return Err(bad("", format!("unexpected type {}", shown(type_url))));
        }
        if !self.type_url.kind().has_name_field() {
            return Err(bad("", "a message without a name field must be wrapped".to_owned()));
        }
        let name = self.name_in(value)?;
        let parts = Parts { name, any: Some((type_url, value)), ..Parts::default() };
        self.received(name, &parts)
    }

    /// A resource of a delta response.
    pub fn delta(&mut self, resource: &'a [u8]) -> Element {
        self.wrapped(resource, false)
    }

    /// A `Resource` message. In SotW, the payload of a nameless `Resource` may state the name, as in a bare
    /// message.
    fn wrapped(&mut self, message: &'a [u8], sotw: bool) -> Element {
        let mut parts = Parts::default();
        let outcome = parts.read(message);
        let mut name = if parts.name.is_empty() { parts.resource_name } else { parts.name };
        outcome.map_err(|error| bad(name, error.to_string()))?;
        if !parts.resource_name.is_empty() && parts.resource_name != name {
            return Err(bad(name, "name and resource_name differ".to_owned()));
        }
        if let Some((type_url, value)) = parts.any {
            if *type_url != *self.type_url.as_str() && type_url != REDIRECT {
                return Err(bad(name, format!("unexpected payload type {}", shown(type_url))));
            }
            if name.is_empty() && sotw && type_url != REDIRECT && self.type_url.kind().has_name_field() {
                name = self.name_in(value)?;
            }
        }
        self.received(name, &parts)
    }

    fn name_in(&self, value: &'a [u8]) -> Result<&'a str, BadElement> {
        let stated = OwnName::of(value).and_then(|stated| stated.text(self.type_url.kind()));
        stated.map_err(|error| bad("", error.to_string()))
    }

    /// For on-demand virtual hosts, a name without a payload means "no such host". The waiting client must
    /// get exactly this answer (VHD-6).
    fn unknown_host(&self, key: &ResourceName, parts: &Parts) -> Option<Arc<Resource>> {
        (self.type_url.kind() == Kind::VirtualHost).then_some(())?;
        self.resource(key, "", &[], parts).ok()
    }

    fn received(&mut self, name: &str, parts: &Parts) -> Element {
        if name.is_empty() && !may_be_nameless(self.type_url) {
            return Err(bad("", "the resource has no name".to_owned()));
        }
        if is_reserved(name) {
            return Err(bad("", "the name ends with a reserved character, U+FDD0 or U+FDD1".to_owned()));
        }
        let key = key_of(name, parts.constraints.as_ref());
        let resource = match parts.any {
            Some((type_url, value)) => Some(self.resource(&key, type_url, value, parts)?),
            None => self.unknown_host(&key, parts),
        };
        let version = if parts.version.is_empty() { self.version_info } else { parts.version };
        if *self.version != *version {
            self.version = version.into();
        }
        let name = resource.as_ref().map_or(key, |resource| resource.name.clone());
        Ok(Received { name, upstream_version: self.version.clone(), resource, ttl: parts.ttl })
    }

    fn resource(
        &self,
        key: &ResourceName,
        url: &str,
        value: &[u8],
        parts: &Parts,
    ) -> Result<Arc<Resource>, BadElement> {
        let name = key.plain();
        let kind = self.type_url.kind();
        let (body_has_name, endpoints) = match url {
            REDIRECT => (false, None),
            _ => {
                let malformed = |error: Malformed| bad(name, error.to_string());
                let (own_name, endpoints) = match kind {
                    Kind::Cluster => endpoints(name, value).map_err(malformed)?,
                    _ => (OwnName::of(value).map_err(malformed)?, None),
                };
                (own_name.is(name, kind), endpoints)
            }
        };
        let mut aliases: Vec<_> = parts.aliases.iter().map(|alias| ResourceName::received(alias)).collect();
        aliases.sort_unstable();
        aliases.dedup();
        let received = Resource {
            // The constraints are part of the variant's name (RLY-30).
            version: version::of_content(key.as_str(), url, value, &aliases),
            name: key.clone(),
            body: Any {
                type_url: match url {
                    REDIRECT => REDIRECT.into(),
                    "" => "".into(),
                    _ => self.type_url.shared(),
                },
                value: self.message.slice_ref(value),
            },
            body_has_name,
            aliases: aliases.into(),
            ttl: parts.ttl,
            do_not_cache: parts.do_not_cache,
            metadata: parts.metadata.map(|metadata| self.message.slice_ref(metadata)),
            endpoints,
            constraints: parts.constraints.clone(),
        };
        Ok(self.shared(received))
    }

    /// The equal resource of another response, or this resource with bytes of its own. A version is no proof:
    /// bodies under one version are equal, and the rest of a resource may differ (BOD-2).
    ///
    /// Bytes are copied last: thousands of copies that are dropped at once would keep pages of memory.
    fn shared(&self, mut received: Resource) -> Arc<Resource> {
        let copies = self.copies.filter(|_| !received.do_not_cache);
        let held = copies.and_then(|copies| copies.find_resource(received.version, received.ttl));
        let is_new = held.is_none();
        if let Some(held) = held.filter(|held| **held == received) {
            return held;
        }
        received.body.value = self.retain(&received.body.value);
        received.metadata = received.metadata.map(|metadata| self.retain(&metadata));
        let received = Arc::new(received);
        if let Some(copies) = copies.filter(|_| is_new) {
            copies.add_resource(&received);
        }
        received
    }

    /// Copies or shares a part of the message, to be kept as long as the resource lives.
    ///
    /// A shared slice keeps the whole message alive. Resources of one message have different lifetimes: after
    /// a while, each may be the last of its message, and even small messages of fifty resources would then
    /// cost fifty times the useful memory. So a part is shared only if it is at least half of its message,
    /// which bounds the waste to a factor of two. Large resources qualify; small ones are cheap to copy.
    fn retain(&self, part: &[u8]) -> Bytes {
        if part.len() >= self.message.len() / 2 {
            self.message.slice_ref(part)
        } else {
            Bytes::copy_from_slice(part)
        }
    }
}

/// The fields of a `Resource`.
#[derive(Default)]
struct Parts<'a> {
    version: &'a str,
    any: Option<(&'a str, &'a [u8])>,
    name: &'a str,
    aliases: Vec<&'a str>,
    ttl: Option<Duration>,
    do_not_cache: bool,
    resource_name: &'a str,
    constraints: Option<Arc<Constraints>>,
    metadata: Option<&'a [u8]>,
}

impl<'a> Parts<'a> {
    /// Fields read before an error stay, so that the report can name the bad element.
    fn read(&mut self, message: &'a [u8]) -> Result<(), Malformed> {
        for field in Fields::of(message) {
            match field? {
                (1, payload) => self.version = payload.text()?,
                (2, payload) => self.any = Some(read_any(payload.bytes()?)?),
                (3, payload) => self.name = payload.text()?,
                (4, payload) => self.aliases.push(payload.text()?),
                (6, payload) => self.ttl = Some(read_duration(payload.bytes()?)?),
                (7, payload) => self.do_not_cache = read_flag(payload.bytes()?)?,
                (8, payload) => {
                    let constraints;
                    (self.resource_name, constraints) = read_resource_name(payload.bytes()?)?;
                    self.constraints = constraints.map(read_constraints).transpose()?.map(Arc::new);
                }
                (9, payload) => self.metadata = Some(payload.bytes()?),
                _ => {}
            }
        }
        Ok(())
    }
}

pub(super) fn bad(name: &str, reason: String) -> BadElement {
    BadElement { name: (!name.is_empty()).then(|| ResourceName::received(name)), reason, is_instance: true }
}

pub(super) fn is_wrapper(type_url: &str) -> bool {
    matches!(type_url, WRAPPER | WRAPPER_V2)
}

/// Whether an empty name is valid. In the wildcard of an unknown type, a nameless resource is the member with
/// the empty name. Subscribers to names reject nameless resources.
pub(super) fn may_be_nameless(type_url: &TypeUrl) -> bool {
    type_url.kind() == Kind::Other
}

/// A type URL for a message to humans, shortened.
fn shown(type_url: &str) -> String {
    let short: String = type_url.chars().take(200).collect();
    format!("{short:?}")
}

/// Type URL and value.
pub(super) fn read_any(message: &[u8]) -> Result<(&str, &[u8]), Malformed> {
    let (mut type_url, mut value) = ("", &[][..]);
    for field in Fields::of(message) {
        match field? {
            (1, payload) => type_url = payload.text()?,
            (2, payload) => value = payload.bytes()?,
            _ => {}
        }
    }
    Ok((type_url, value))
}

/// The key of a resource, or of its variant with these constraints (DYN-1).
pub(super) fn key_of(name: &str, constraints: Option<&Arc<Constraints>>) -> ResourceName {
    let name = ResourceName::received(name);
    constraints.map(|constraints| name.variant(constraints)).unwrap_or(name)
}

/// The name, and its constraints if there are any (WIR-3).
pub(super) fn read_resource_name(message: &[u8]) -> Result<(&str, Option<&[u8]>), Malformed> {
    let (mut name, mut constraints) = ("", None);
    for field in Fields::of(message) {
        match field? {
            (1, payload) => name = payload.text()?,
            (2, payload) => constraints = Some(payload.bytes()?),
            _ => {}
        }
    }
    Ok((name, constraints))
}

fn read_flag(message: &[u8]) -> Result<bool, Malformed> {
    let mut flag = false;
    for field in Fields::of(message) {
        if let (1, payload) = field? {
            flag = payload.varint()? != 0;
        }
    }
    Ok(flag)
}

fn read_duration(message: &[u8]) -> Result<Duration, Malformed> {
    let (mut seconds, mut nanos) = (0, 0);
    for field in Fields::of(message) {
        match field? {
            (1, payload) => seconds = payload.varint()?,
            (2, payload) => nanos = payload.varint()?,
            _ => {}
        }
    }
    // Both numbers are signed. Negative numbers arrive as huge ones. Protobuf durations end at 10,000 years.
    match u32::try_from(nanos) {
        Ok(nanos) if nanos < 1_000_000_000 && seconds <= 315_576_000_000 => Ok(Duration::new(seconds, nanos)),
        _ => Err(Malformed::new("the ttl is negative or out of range")),
    }
}

/// The name and the endpoints of a cluster of type EDS (ORD-5): the service name, or else the cluster's name.
/// For an xdstp name, the second rule does not apply (NAM-23).
fn endpoints<'a>(
    resource_name: &str,
    cluster: &'a [u8],
) -> Result<(OwnName<'a>, Option<ResourceName>), Malformed> {
    const EDS: u64 = 3;
    let (mut own_name, mut name, mut discovery_type, mut service_name) = (OwnName::default(), "", 0, "");
    for field in Fields::of(cluster) {
        match field? {
            (1, payload) => (own_name, name) = (OwnName::in_field(payload), payload.text()?),
            (2, payload) => discovery_type = payload.varint()?,
            // `cluster_type` and `type` are members of the same oneof.
            (38, _) => discovery_type = 0,
            (3, payload) => {
                for field in Fields::of(payload.bytes()?) {
                    if let (2, payload) = field? {
                        service_name = payload.text()?;
                    }
                }
            }
            _ => {}
        }
    }
    let endpoints = match service_name {
        _ if discovery_type != EDS => None,
        "" if name.is_empty() || name.starts_with("xdstp:") || resource_name.starts_with("xdstp:") => None,
        "" => Some(name),
        service_name => Some(service_name),
    };
    Ok((own_name, endpoints.map(ResourceName::received)))
}
