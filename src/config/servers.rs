//! The server lists: the default list, and those of authorities and of types (FED-1, FED-3).

use std::collections::BTreeMap;
use std::path::Path;

use super::error::Problem;
use super::fallback::{check_envoy, read_fallback, warn_if_single};
use super::form::Form;
use super::reader::{Item, Map};
use super::units::text;
use super::upstream::UpstreamServer;
use crate::driver::LoadUse;
use sluice_engine::fallback::FallbackSettings;
use sluice_xds::{Kind, TypeUrl};

/// Servers that replace each other.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerListSettings {
    /// In order of preference; never empty.
    pub servers: Vec<UpstreamServer>,
    pub fallback: FallbackSettings,
}

impl ServerListSettings {
    /// A list with gRPC's fallback rules and their defaults.
    pub fn new(servers: Vec<UpstreamServer>) -> ServerListSettings {
        ServerListSettings { servers, fallback: FallbackSettings::default() }
    }
}

/// Every server list of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Servers {
    /// `xds_servers`: for everything without a list of its own.
    pub default: ServerListSettings,
    /// `authorities`, by name; "" is the authority of `xdstp:///` (NAM-4). An authority without servers has
    /// those of the default list (FED-3). If the map is empty, the default list serves every authority.
    pub authorities: BTreeMap<String, ServerListSettings>,
    /// `types`: for old-style names and the wildcard of these types.
    pub types: BTreeMap<TypeUrl, ServerListSettings>,
    pub templates: ListenerTemplates,
}

/// The names of listeners in the bootstraps of gRPC clients and servers. They have no effect on the relay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerTemplates {
    /// For targets without an authority.
    pub client_default: Option<String>,
    /// For targets with an authority, by its name (A47).
    pub authorities: BTreeMap<String, String>,
    /// For servers, whose address stands for `%s` (A36).
    pub server: Option<String>,
}

impl Servers {
    /// One list for everything.
    pub fn new(default: Vec<UpstreamServer>) -> Servers {
        let default = ServerListSettings::new(default);
        Servers {
            default,
            authorities: BTreeMap::new(),
            types: BTreeMap::new(),
            templates: ListenerTemplates::default(),
        }
    }

    /// All server lists with the paths of their keys, the default list first.
    pub fn lists(&self) -> impl Iterator<Item = (String, &ServerListSettings)> {
        let of_authorities =
            self.authorities.iter().map(|(name, servers)| (format!("authorities[{name}]"), servers));
        let of_types =
            self.types.iter().map(|(type_url, servers)| (format!("types[{}]", type_url.message()), servers));
        std::iter::once(("xds_servers".to_owned(), &self.default)).chain(of_authorities).chain(of_types)
    }
}

/// The maximum number of servers in a list. Each server after the first costs a connection and a cache while
/// the servers before it are unreachable. More than a few are a mistake.
const SERVERS_MAX: usize = 16;

const SOME: &str = "a list of 1 to 16 servers";

/// For gRPC clients only; the relay passes it on in their bootstraps.
const CLIENT_TEMPLATE: &str = "client_listener_resource_name_template";

/// `None` if there is no valid default list; an error was then reported.
pub(super) fn read_servers(map: &mut Map<'_>, directory: &Path) -> Option<Servers> {
    let servers = map.required("xds_servers", SOME).and_then(|list| read_items(&list, directory));
    let fallback = read_fallback(map, &FallbackSettings::default());
    let default = servers.map(|servers| ServerListSettings { servers, fallback: fallback.clone() });
    // The flag applies to each list alone (FBK-17).
    let inherited = FallbackSettings { on_reachability_only: false, ..fallback };
    let (authorities, of_authorities) = read_authorities(map, default.as_ref(), &inherited, directory);
    let types = read_types(map, &inherited, directory);
    let templates = ListenerTemplates {
        client_default: map.optional("client_default_listener_resource_name_template", text),
        authorities: of_authorities,
        server: map.optional("server_listener_resource_name_template", text),
    };
    let servers = Servers { default: default?, authorities, types, templates };
    check_load(map, &servers);
    let ServerListSettings { servers: first, fallback } = &servers.default;
    check_envoy(map, fallback, first);
    if first.len() == 1 {
        warn_if_single(map, fallback, servers.lists().any(|(_, list)| list.servers.len() > 1));
    }
    Some(servers)
}

/// The reports of a client go as they are to one server, so that nobody can divide them by clusters (LRS-22).
/// The only type that decides about reports is that of clusters.
fn check_load(map: &Map<'_>, servers: &Servers) {
    let uses = || {
        let lists = servers.lists();
        lists.flat_map(|(path, list)| {
            list.servers.iter().filter_map(move |server| Some((path.clone(), server.load?)))
        })
    };
    let forwards = uses().find(|(_, load)| *load == LoadUse::Forward);
    let sums = uses().find(|(_, load)| *load != LoadUse::Forward);
    if let (Some((forwards, _)), Some((sums, _))) = (forwards, sums) {
        let reason = format!(
            "`lrs: forward` in {forwards} and other load reports in {sums}: a client's reports go as they are to one \
            server, so all servers with `lrs` say `forward`, or none does"
        );
        map.contradiction("xds_servers", reason);
    }
    for (type_url, list) in &servers.types {
        let is_idle =
            type_url.kind() != Kind::Cluster && list.servers.iter().any(|server| server.load.is_some());
        if is_idle {
            let reason = format!(
                "`lrs` in types[{}] has no effect: load reports go where the clusters come from",
                type_url.message()
            );
            map.contradiction("types", reason);
        }
    }
}

/// Reads all servers of a list, to report the errors of each.
fn read_items(list: &Item<'_>, directory: &Path) -> Option<Vec<UpstreamServer>> {
    let items = list.list()?;
    let read = |item: &Item<'_>| item.map(|map| UpstreamServer::read(map, directory)).flatten();
    let servers: Vec<_> = items.iter().map(read).collect();
    match items.len() {
        0 => list.invalid(SOME),
        1..=SERVERS_MAX => {}
        count => list.error(Problem::Invalid { value: format!("{count} servers"), expected: SOME.into() }),
    }
    for (index, item) in items.iter().enumerate() {
        let same = |other: &usize| servers[index].is_some() && servers[*other] == servers[index];
        if let Some(other) = (0..index).find(same) {
            item.warn(format!("same server as {}; a server cannot be its own fallback", items[other].path));
        }
    }
    let servers: Option<Vec<_>> = servers.into_iter().collect();
    servers.filter(|servers| (1..=SERVERS_MAX).contains(&servers.len()))
}

fn read_authorities(
    map: &mut Map<'_>,
    default: Option<&ServerListSettings>,
    inherited: &FallbackSettings,
    directory: &Path,
) -> (BTreeMap<String, ServerListSettings>, BTreeMap<String, String>) {
    let (mut authorities, mut templates) = (BTreeMap::new(), BTreeMap::new());
    for (name, item) in map.item("authorities").and_then(|item| item.entries()).unwrap_or_default() {
        if name.contains(['/', '?', '#']) {
            item.error(Problem::Contradiction {
                reason: format!(
                    "{name:?} is not a valid authority; an authority contains no `/`, `?` or `#`"
                ),
            });
        }
        // `a%2Eb` is another spelling of `a.b`; a list under the first would never be used (NAM-7).
        if name.contains('%') {
            item.error(Problem::Contradiction {
                reason: format!("{name:?} is percent-encoded; write the authority without encoding"),
            });
        }
        let read = |map: &mut Map<'_>| {
            map.can_be(CLIENT_TEMPLATE, &[Form::Text]);
            let template = map.item(CLIENT_TEMPLATE).and_then(|item| read_client_template(&item, name));
            templates.extend(template.map(|template| (name.to_owned(), template)));
            read_authority(map, default, inherited, directory)
        };
        let servers = item.map(read).flatten();
        authorities.extend(servers.map(|servers| (name.to_owned(), servers)));
    }
    (authorities, templates)
}

/// A47: gRPC refuses a bootstrap whose template is of another authority.
fn read_client_template(item: &Item<'_>, authority: &str) -> Option<String> {
    let (text, begin) = (item.text()?, format!("xdstp://{authority}/"));
    if !text.starts_with(&begin) {
        item.invalid(format!(
            "a name that begins with {begin}, in which %s stands for the target of the client"
        ));
        return None;
    }
    Some(text.to_owned())
}

/// An authority without servers of its own still has its own fallback state (FBK-15).
fn read_authority(
    map: &mut Map<'_>,
    default: Option<&ServerListSettings>,
    inherited: &FallbackSettings,
    directory: &Path,
) -> Option<ServerListSettings> {
    let servers = match map.item("xds_servers") {
        Some(list) => read_items(&list, directory),
        None => default.map(|list| list.servers.clone()),
    };
    read_list(map, servers, inherited)
}

/// Reads the keys beside the servers of a list.
fn read_list(
    map: &mut Map<'_>,
    servers: Option<Vec<UpstreamServer>>,
    inherited: &FallbackSettings,
) -> Option<ServerListSettings> {
    let fallback = read_fallback(map, inherited);
    let servers = servers?;
    // A list inherited with all its rules was checked at its origin.
    if map.has("xds_servers") || fallback != *inherited {
        check_envoy(map, &fallback, &servers);
    }
    if servers.len() == 1 {
        warn_if_single(map, &fallback, false);
    }
    Some(ServerListSettings { servers, fallback })
}

fn read_types(
    map: &mut Map<'_>,
    inherited: &FallbackSettings,
    directory: &Path,
) -> BTreeMap<TypeUrl, ServerListSettings> {
    let mut types = BTreeMap::new();
    for (name, item) in map.item("types").and_then(|item| item.entries()).unwrap_or_default() {
        let type_url = TypeUrl::of_message(name);
        // A short name would be a type that no client uses.
        if !name.contains('.') || name.contains('/') {
            item.error(Problem::Contradiction {
                reason: format!(
                    "{name:?} is not a full message name, such as envoy.config.endpoint.v3.ClusterLoadAssignment"
                ),
            });
        }
        if type_url.kind() == Kind::Other && name.starts_with("envoy.") {
            item.warn("not a resource type known to sluice; used by exactly this name");
        }
        let read = |map: &mut Map<'_>| {
            let servers = map.required("xds_servers", SOME).and_then(|list| read_items(&list, directory));
            read_list(map, servers, inherited)
        };
        let servers = item.map(read).flatten();
        types.extend(servers.map(|servers| (type_url, servers)));
    }
    types
}
