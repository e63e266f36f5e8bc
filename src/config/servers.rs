//! The server lists: the default one, those of authorities, and those of types (FED-1, FED-3).

use std::collections::BTreeMap;
use std::path::Path;

use super::error::Problem;
use super::reader::{Item, Map};
use super::units::boolean;
use super::upstream::UpstreamServer;
use crate::xds::{Kind, TypeUrl};

/// Servers in the order in which they are preferred; never empty.
pub type ServerList = Vec<UpstreamServer>;

/// Every server list of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Servers {
    /// `xds_servers`: for all that the others are not for.
    pub default: ServerList,
    /// `authorities`, by name; "" is the authority of `xdstp:///` (NAM-4). A list that the file left out is the default one
    /// (FED-3). Empty: names of every authority go to the default list.
    pub authorities: BTreeMap<String, ServerList>,
    /// `types`: for old-style names and the wildcard of these types.
    pub types: BTreeMap<TypeUrl, ServerList>,
}

impl Servers {
    /// One list for everything.
    pub fn new(default: ServerList) -> Servers {
        Servers { default, authorities: BTreeMap::new(), types: BTreeMap::new() }
    }

    /// All server lists under the path of their keys, the default one first.
    pub fn lists(&self) -> impl Iterator<Item = (String, &ServerList)> {
        let of_authorities =
            self.authorities.iter().map(|(name, servers)| (format!("authorities[{name}]"), servers));
        let of_types =
            self.types.iter().map(|(type_url, servers)| (format!("types[{}]", type_url.message()), servers));
        std::iter::once(("xds_servers".to_owned(), &self.default)).chain(of_authorities).chain(of_types)
    }
}

const ONE: &str = "a list of one server";

/// Keys of an authority that speak to a gRPC client.
const CLIENT_KEYS: &[&str] = &["client_listener_resource_name_template"];

/// `None` beside a fault that leaves no default list.
pub(super) fn read_servers(map: &mut Map<'_>, directory: &Path) -> Option<Servers> {
    let default = read_list(map, directory);
    let authorities = read_authorities(map, default.as_ref(), directory);
    let types = read_types(map, directory);
    Some(Servers { default: default?, authorities, types })
}

/// The list under `xds_servers` of any map.
fn read_list(map: &mut Map<'_>, directory: &Path) -> Option<ServerList> {
    let list = map.required("xds_servers", ONE)?;
    read_items(&list, directory)
}

/// One server: fallback between several is still to come.
fn read_items(list: &Item<'_>, directory: &Path) -> Option<ServerList> {
    let items = list.list()?;
    let read = |item: &Item<'_>| item.map(|map| UpstreamServer::read(map, directory)).flatten();
    let servers: Vec<_> = items.iter().map(read).collect();
    match items.len() {
        0 => list.invalid(ONE),
        1 => {}
        count => list.fault(Problem::Unsupported {
            what: format!("fallback between {count} servers"),
            instead: "list exactly one",
        }),
    }
    let servers: Option<Vec<_>> = servers.into_iter().collect();
    servers.filter(|servers| servers.len() == 1)
}

fn read_authorities(
    map: &mut Map<'_>,
    default: Option<&ServerList>,
    directory: &Path,
) -> BTreeMap<String, ServerList> {
    let mut authorities = BTreeMap::new();
    for (name, item) in map.item("authorities").and_then(|item| item.entries()).unwrap_or_default() {
        if name.contains(['/', '?', '#']) {
            item.fault(Problem::Contradiction {
                reason: format!("{name:?} cannot stand between `xdstp://` and the next `/`"),
            });
        }
        let servers = item.map(|map| read_authority(map, default, directory)).flatten();
        authorities.extend(servers.map(|servers| (name.to_owned(), servers)));
    }
    authorities
}

fn read_authority(map: &mut Map<'_>, default: Option<&ServerList>, directory: &Path) -> Option<ServerList> {
    if let Some(item) = map.item("fallback_on_reachability_only")
        && item.parse(boolean).is_some()
    {
        item.warn("has no effect: a list of one server has nothing to fall back to");
    }
    map.foreign(CLIENT_KEYS, "has no effect: it speaks to a gRPC client, and is left to its bootstrap");
    match map.item("xds_servers") {
        Some(list) => read_items(&list, directory),
        None => default.cloned(),
    }
}

fn read_types(map: &mut Map<'_>, directory: &Path) -> BTreeMap<TypeUrl, ServerList> {
    let mut types = BTreeMap::new();
    for (name, item) in map.item("types").and_then(|item| item.entries()).unwrap_or_default() {
        let type_url = TypeUrl::of_message(name);
        // A short name would be a type that nobody asks for.
        if !name.contains('.') || name.contains('/') {
            item.fault(Problem::Contradiction {
                reason: format!(
                    "{name:?} is not a full message name, such as envoy.config.endpoint.v3.ClusterLoadAssignment"
                ),
            });
        }
        if type_url.kind() == Kind::Other && name.starts_with("envoy.") {
            item.warn(
                "is no type of which sluice knows a service: it is asked for by this name all the same",
            );
        }
        let servers = item.map(|map| read_list(map, directory)).flatten();
        types.extend(servers.map(|servers| (type_url, servers)));
    }
    types
}
