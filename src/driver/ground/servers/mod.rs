//! The servers of the configuration in their lists, and the routing of names to lists (FED-1, FED-3).

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::discriminant;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::client::{Credentials, Pool, RestServer};
use sluice_engine::authority::{Authorities, Authority, AuthorityId};
use sluice_engine::downstream::{List, ListId};
use sluice_engine::fallback::{self, FallbackPolicy};
use sluice_engine::upstream;
use sluice_xds::{TypeUrl, Variant};

/// The server side of a source.
#[derive(Clone, Debug)]
pub enum Attach {
    /// Clones of a pool share its connections, even across lists (FED-6).
    Grpc {
        pool: Pool,
        settings: upstream::UpstreamSettings,
    },
    Rest {
        server: RestServer,
        settings: upstream::UpstreamSettings,
    },
    Files {
        directory: PathBuf,
        mass_deletion_hold: Option<upstream::Hold>,
    },
    /// No server: every name is known not to exist.
    Nothing,
    /// No server, because there was no room for the class: nothing is known (RLY-14).
    Refused,
}

/// Where load reports of the clients of a server go (LRS-14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoadUse {
    /// The sums of each node class to the server, in one stream.
    Aggregate,
    /// Each client's reports as they are to the server, in a stream for each client.
    Forward,
    /// To nobody: the relay counts them for operators.
    Local,
}

/// An entry of a server list.
#[derive(Debug)]
pub struct Server {
    /// `server_uri`, as the operator wrote it.
    pub uri: Arc<str>,
    pub attach: Attach,
    /// `None`: load reports are dropped. No part of the server's identity: sources have nothing to do with
    /// load reports.
    pub load: Option<LoadUse>,
}

impl Server {
    /// How long a name of this type may stay unanswered.
    pub fn resource_timeout(&self, type_url: &TypeUrl) -> Duration {
        match &self.attach {
            Attach::Grpc { settings, .. } | Attach::Rest { settings, .. } => settings.timeout_of(type_url),
            Attach::Files { .. } | Attach::Nothing | Attach::Refused => {
                upstream::UpstreamSettings::default().timeout_of(type_url)
            }
        }
    }

    /// The settings of the server's streams and polls.
    pub fn upstream_settings(&self) -> Option<&upstream::UpstreamSettings> {
        match &self.attach {
            Attach::Grpc { settings, .. } | Attach::Rest { settings, .. } => Some(settings),
            Attach::Files { .. } | Attach::Nothing | Attach::Refused => None,
        }
    }

    /// Whether the operator configured the server without delta.
    pub fn is_sotw(&self) -> bool {
        matches!(&self.attach, Attach::Grpc { settings, .. } if settings.variant == Variant::Sotw)
    }

    /// `fail_on_data_errors`: names that the server reports as missing are removed, even if another server
    /// supplied them (RLY-42).
    fn fails_on_data_errors(&self) -> bool {
        matches!(&self.attach, Attach::Grpc { settings, .. } if settings.fails_on_data_errors)
    }

    /// Whether each type has its own streams or polls, so that a single type can be lost (RLY-40).
    fn is_by_type(&self) -> bool {
        match &self.attach {
            Attach::Grpc { settings, .. } | Attach::Rest { settings, .. } => {
                settings.transport != upstream::Transport::Aggregated
            }
            Attach::Files { .. } | Attach::Nothing | Attach::Refused => false,
        }
    }

    /// Whether the entry stands for no server of the configuration.
    pub(crate) fn is_made_up(&self) -> bool {
        matches!(self.attach, Attach::Nothing | Attach::Refused)
    }

    /// The server by its content (ADR 21): the URI, the credentials (ISO-5), the kind of its streams, and the
    /// features of the server.
    /// Settings that a running source can take over, such as timeouts, are no part of the id.
    fn id(&self) -> ServerId {
        let of_attach = match &self.attach {
            Attach::Grpc { settings, .. } | Attach::Rest { settings, .. } => hash_of(&(
                (discriminant(&settings.transport), settings.variant, settings.fall_back_to_sotw),
                (
                    discriminant(&settings.wildcard),
                    settings.timeout_is_transient,
                    settings.fails_on_data_errors,
                ),
            )),
            Attach::Files { directory, .. } => hash_of(directory),
            Attach::Nothing | Attach::Refused => 0,
        };
        ServerId(hash_of(&(&self.uri, discriminant(&self.attach), of_attach, self.credentials())))
    }

    fn credentials(&self) -> Option<&Credentials> {
        match &self.attach {
            Attach::Grpc { pool, .. } => Some(pool.credentials()),
            Attach::Rest { server, .. } => Some(server.credentials()),
            Attach::Files { .. } | Attach::Nothing | Attach::Refused => None,
        }
    }

    /// Whether all clients get the same answers. Such a server ignores nodes, and has its content before the
    /// first request.
    pub fn is_local(&self) -> bool {
        !matches!(self.attach, Attach::Grpc { .. } | Attach::Rest { .. })
    }
}

/// A list by its key in the configuration, which is all that tells lists with the same servers apart (FED-6).
/// Unlike [`ListId`], the key stays when servers join or leave the list, so that sources of the other servers
/// stay too (ADR 21).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListKey(u64);

/// A server by its content, whatever its position in a list (ADR 21). By Envoy's rules, a server together
/// with the server that it fails over to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(u64);

/// A server in a list, by content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub list: ListKey,
    pub server: ServerId,
}

impl Place {
    /// The place where every name is known not to exist.
    pub(crate) const NOBODY: Place = Place { list: ListKey(0), server: ServerId(0) };

    /// The place where nothing is known, and no server is asked.
    pub(crate) const REFUSED: Place = Place { list: ListKey(1), server: ServerId(0) };
}

/// 64 bits of the operator's texts and numbers. Clients cannot choose what is hashed, and a thousand servers
/// have two equal ids by chance in one of 10^13 configurations. For identity inside the process only.
fn hash_of(content: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    // The lowest values are the places without a server.
    hasher.finish() | 2
}

/// Servers that are asked for the same names, in the order of priority. Two lists never share a cache, even
/// if they contain the same servers (FED-6).
#[derive(Clone, Debug)]
pub struct ServerList {
    /// The list's key in the configuration: `xds_servers`, `authorities[NAME]` or `types[NAME]`.
    pub label: Arc<str>,
    /// The list with its servers and their order.
    pub id: ListId,
    /// At least one server.
    servers: Vec<Arc<Server>>,
    /// The place of each server.
    places: Vec<Place>,
    /// The rules for moves between the servers.
    fallback: fallback::FallbackSettings,
}

impl ServerList {
    fn new(label: &str, servers: Vec<Arc<Server>>, fallback: fallback::FallbackSettings) -> ServerList {
        let key = ListKey(hash_of(&label));
        let ids: Vec<ServerId> = servers.iter().map(|server| server.id()).collect();
        let together = if fallback.policy == FallbackPolicy::Envoy { 2 } else { 1 };
        let mut places: Vec<Place> = Vec::new();
        for number in 0..ids.len() {
            let mut server = match ids[number..].get(..together) {
                Some(serving) if together > 1 => ServerId(hash_of(&serving)),
                _ => ids[number],
            };
            // An entry that repeats another is a server of its own.
            while places.iter().any(|place| place.server == server) {
                server = ServerId(hash_of(&server));
            }
            places.push(Place { list: key, server });
        }
        let id = ListId(hash_of(&(key, &places)));
        ServerList { label: label.into(), id, servers, places, fallback }
    }

    /// A list for names that no server is asked for.
    fn made_up(label: &str, attach: Attach, place: Place) -> ServerList {
        let servers = vec![Arc::new(Server { uri: label.into(), attach, load: None })];
        let list = ServerList::new(label, servers, fallback::FallbackSettings::default());
        ServerList { places: vec![place], ..list }
    }

    /// The key of the list.
    pub fn key(&self) -> ListKey {
        self.places.first().unwrap_or(&Place::NOBODY).list
    }

    pub fn servers(&self) -> &[Arc<Server>] {
        &self.servers
    }

    /// The server at a position, 0 being preferred; the preferred server if there is none.
    pub fn at(&self, number: u16) -> ListedServer<'_> {
        let number = usize::from(number);
        ListedServer { list: self, number: if number < self.servers.len() { number } else { 0 } }
    }

    /// The position of the server of a place, in whatever list; `None` if this list has no such server, or if
    /// the sources choose among its servers.
    pub(crate) fn position_of(&self, place: Place) -> Option<u16> {
        self.fallback()?;
        let position = self.places.iter().position(|other| *other == place)?;
        u16::try_from(position).ok()
    }

    /// Whether the sources choose among the servers, and not the sessions.
    pub(crate) fn is_of_sources(&self) -> bool {
        self.fallback.policy == FallbackPolicy::Envoy
    }

    pub(crate) fn resolve_timeout(&self) -> Duration {
        self.fallback.resolve_timeout
    }

    fn all(&self) -> impl Iterator<Item = ListedServer<'_>> {
        (0..self.servers.len()).map(|number| ListedServer { list: self, number })
    }

    /// The sessions' part of fallback. `None` if the list has a single server, or if failover is up to the
    /// sources.
    pub(crate) fn fallback(&self) -> Option<List> {
        let servers = u16::try_from(self.servers.len()).unwrap_or(u16::MAX);
        let is_theirs = servers > 1 && self.fallback.policy == FallbackPolicy::Grpc;
        is_theirs.then(|| List {
            id: self.id,
            servers,
            by_type: self.servers.first().is_some_and(|server| server.is_by_type()),
            settings: self.fallback.clone(),
            deleting: (0..64)
                .zip(&self.servers)
                .filter(|(_, server)| server.fails_on_data_errors())
                .map(|(bit, _)| 1 << bit)
                .sum(),
        })
    }
}

/// A server in its list.
#[derive(Clone, Copy, Debug)]
pub struct ListedServer<'a> {
    pub list: &'a ServerList,
    /// Within the list.
    number: usize,
}

impl<'a> ListedServer<'a> {
    pub fn place(self) -> Place {
        self.list.places[self.number]
    }

    pub fn server(self) -> &'a Arc<Server> {
        &self.list.servers[self.number]
    }

    /// The servers of the list that clients prefer to this one.
    pub fn higher(self) -> &'a [Place] {
        &self.list.places[..self.number]
    }

    /// The servers that a source of this place may use: two by Envoy's rules, else one.
    pub(crate) fn serving(self) -> &'a [Arc<Server>] {
        let count = if self.list.fallback.policy == FallbackPolicy::Envoy { 2 } else { 1 };
        let end = (self.number + count).min(self.list.servers.len());
        &self.list.servers[self.number..end]
    }
}

/// All server lists of the relay, and the names that each list serves.
#[derive(Clone, Debug)]
pub struct ServerLists {
    /// The constants below come first, then the lists of types and authorities.
    lists: Vec<ServerList>,
    by_id: HashMap<ListId, usize>,
    by_type: BTreeMap<TypeUrl, usize>,
    by_authority: BTreeMap<AuthorityId, usize>,
    authorities: Authorities,
}

const DEFAULT: usize = 0;
/// The list without a server: its names do not exist.
const NOBODY: usize = 1;
/// The list for classes without room.
const REFUSED: usize = 2;

impl ServerLists {
    /// One list for all names, those of all authorities included.
    pub fn new(servers: Vec<Arc<Server>>, fallback: fallback::FallbackSettings) -> ServerLists {
        let lists = vec![
            ServerList::new("xds_servers", servers, fallback),
            ServerList::made_up("none", Attach::Nothing, Place::NOBODY),
            ServerList::made_up("refused", Attach::Refused, Place::REFUSED),
        ];
        ServerLists {
            by_id: lists.iter().map(|list| list.id).zip(0..).collect(),
            lists,
            by_type: BTreeMap::new(),
            by_authority: BTreeMap::new(),
            authorities: Authorities::default(),
        }
    }

    /// Routes old-style names and the wildcard of a type to another list.
    pub fn add_type(
        &mut self,
        type_url: TypeUrl,
        servers: Vec<Arc<Server>>,
        fallback: fallback::FallbackSettings,
    ) {
        let label = format!("types[{}]", type_url.message());
        let index = self.add(&label, servers, fallback);
        self.by_type.insert(type_url, index);
    }

    /// Sets all authorities. Names of other authorities are then known not to exist (FED-3).
    pub fn set_authorities(
        &mut self,
        authorities: Vec<(String, Vec<Arc<Server>>, fallback::FallbackSettings)>,
    ) {
        self.authorities = Authorities::new(authorities.iter().map(|(name, ..)| name.as_str()));
        self.by_authority.clear();
        for (name, servers, fallback) in authorities {
            let index = self.add(&format!("authorities[{name}]"), servers, fallback);
            self.by_authority.insert(AuthorityId::of(&name), index);
        }
    }

    fn add(&mut self, label: &str, servers: Vec<Arc<Server>>, fallback: fallback::FallbackSettings) -> usize {
        let (list, index) = (ServerList::new(label, servers, fallback), self.lists.len());
        self.by_id.insert(list.id, index);
        self.lists.push(list);
        index
    }

    pub fn authorities(&self) -> &Authorities {
        &self.authorities
    }

    /// The list that serves names of an authority and a type. Indexing cannot fail: only this table makes
    /// indices.
    pub fn route(&self, type_url: &TypeUrl, authority: Authority) -> &ServerList {
        let index = match authority {
            Authority::None | Authority::Listed(_) => self.by_type.get(type_url).copied().unwrap_or(DEFAULT),
            Authority::Any => DEFAULT,
            Authority::Configured(id) => self.by_authority.get(&id).copied().unwrap_or(NOBODY),
            Authority::Unknown => NOBODY,
        };
        &self.lists[index]
    }

    pub fn list(&self, id: ListId) -> Option<&ServerList> {
        self.by_id.get(&id).map(|index| &self.lists[*index])
    }

    /// The server of names that are known not to exist.
    pub(crate) fn nobody(&self) -> ListedServer<'_> {
        self.lists[NOBODY].at(0)
    }

    /// The server of classes without room.
    pub(crate) fn refused(&self) -> ListedServer<'_> {
        self.lists[REFUSED].at(0)
    }

    /// The server of a place; `None` if the configuration has no such server.
    pub(crate) fn find(&self, place: Place) -> Option<ListedServer<'_>> {
        self.lists.iter().flat_map(ServerList::all).find(|listed| listed.place() == place)
    }

    /// All lists, also those without a server.
    pub(crate) fn all_lists(&self) -> impl Iterator<Item = &ServerList> {
        self.lists.iter()
    }

    /// All servers of all configured lists.
    pub fn configured(&self) -> impl Iterator<Item = ListedServer<'_>> {
        self.lists.iter().flat_map(ServerList::all).filter(|listed| !listed.server().is_made_up())
    }

    /// Whether some server takes load reports.
    pub(crate) fn take_load(&self) -> bool {
        self.configured().any(|listed| listed.server().load.is_some())
    }

    /// Whether servers take the reports of clients as they are. All or none do.
    pub(crate) fn forward_load(&self) -> bool {
        self.configured().any(|listed| listed.server().load == Some(LoadUse::Forward))
    }

    /// Whether all names have the same servers in the same order.
    pub(crate) fn routes_as(&self, other: &ServerLists) -> bool {
        let id = |lists: &ServerLists, index: usize| lists.lists.get(index).map(|list| list.id);
        let types = self.by_type.iter().map(|(key, index)| (key, id(self, *index)));
        let authorities = self.by_authority.iter().map(|(key, index)| (key, id(self, *index)));
        id(self, DEFAULT) == id(other, DEFAULT)
            && self.authorities == other.authorities
            && types.eq(other.by_type.iter().map(|(key, index)| (key, id(other, *index))))
            && authorities.eq(other.by_authority.iter().map(|(key, index)| (key, id(other, *index))))
    }
}

/// Ids of lists and servers before and after a change of the configuration.
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::client::RestServer;
    use crate::telemetry::Metrics;
    use sluice_engine::fallback::FallbackSettings;
    use sluice_engine::upstream::{Transport, UpstreamSettings};

    const CDS: &str = "envoy.config.cluster.v3.Cluster";

    fn server(uri: &str, settings: UpstreamSettings) -> Arc<Server> {
        let metrics = Metrics::new().of_server(uri).client().clone();
        let server = RestServer::new("127.0.0.1", 1, "", crate::client::ClientSettings::default(), metrics);
        Arc::new(Server { uri: uri.into(), attach: Attach::Rest { server, settings }, load: None })
    }

    fn servers(uris: &[&str]) -> Vec<Arc<Server>> {
        uris.iter().map(|uri| server(uri, UpstreamSettings::default())).collect()
    }

    fn by(policy: FallbackPolicy) -> FallbackSettings {
        FallbackSettings { policy, ..FallbackSettings::default() }
    }

    /// Lists of authorities, each with the same server as `xds_servers`.
    fn lists(authorities: &[&str]) -> ServerLists {
        let mut lists = ServerLists::new(servers(&["a", "b"]), FallbackSettings::default());
        let authority = |name: &&str| (name.to_string(), servers(&["a"]), FallbackSettings::default());
        lists.set_authorities(authorities.iter().map(authority).collect());
        lists
    }

    fn of_authority<'a>(lists: &'a ServerLists, name: &str) -> &'a ServerList {
        lists.route(&TypeUrl::of_message(CDS), Authority::Configured(AuthorityId::of(name)))
    }

    fn default(lists: &ServerLists) -> &ServerList {
        lists.route(&TypeUrl::of_message(CDS), Authority::Any)
    }

    fn places(list: &ServerList) -> Vec<Place> {
        list.all().map(ListedServer::place).collect()
    }

    #[test]
    fn rel_5_fed_6_lists_keep_their_ids_when_others_come_before() {
        let (before, mut after) = (lists(&["y", "z"]), lists(&["x", "y", "z"]));
        after.add_type(TypeUrl::of_message(CDS), servers(&["c"]), FallbackSettings::default());
        for (was, is) in [
            (of_authority(&before, "y"), of_authority(&after, "y")),
            (of_authority(&before, "z"), of_authority(&after, "z")),
            (default(&before), default(&after)),
        ] {
            assert_eq!((was.id, was.key(), places(was)), (is.id, is.key(), places(is)), "{}", was.label);
            assert_eq!(after.list(was.id).unwrap().label, was.label);
        }
        let (y, z) = (of_authority(&before, "y"), of_authority(&before, "z"));
        assert_ne!((y.id, y.key()), (z.id, z.key()), "lists with the same servers share nothing");
        assert_ne!(y.at(0).place(), default(&before).at(0).place());
    }

    #[test]
    fn rel_5_servers_keep_their_places_when_others_join_their_list() {
        let lists = |uris: &[&str]| ServerLists::new(servers(uris), FallbackSettings::default());
        let (before, after) = (lists(&["a", "b"]), lists(&["new", "b", "a"]));
        let (was, is) = (default(&before), default(&after));
        assert_ne!(was.id, is.id, "positions in the list have other servers now");
        assert_eq!(was.key(), is.key());
        assert_eq!(was.at(0).place(), is.at(2).place());
        assert_eq!(was.at(1).place(), is.at(1).place());
        assert!(!places(was).contains(&is.at(0).place()));
    }

    #[test]
    fn rel_5_another_kind_of_stream_is_another_server_and_another_timeout_is_not() {
        let place = |settings| {
            let lists = ServerLists::new(vec![server("a", settings)], FallbackSettings::default());
            default(&lists).at(0).place()
        };
        let base = UpstreamSettings::default;
        let rest = |refresh| Transport::Rest { refresh_delay: Duration::from_secs(refresh) };
        let patient = UpstreamSettings { resource_timeout: Duration::from_secs(99), ..base() };
        assert_eq!(place(base()), place(patient));
        assert_eq!(
            place(UpstreamSettings { transport: rest(1), ..base() }),
            place(UpstreamSettings { transport: rest(2), ..base() })
        );
        for other in [
            UpstreamSettings { transport: Transport::PerType, ..base() },
            UpstreamSettings { variant: Variant::Sotw, ..base() },
            UpstreamSettings { fails_on_data_errors: true, ..base() },
        ] {
            assert_ne!(place(base()), place(other));
        }
    }

    #[test]
    fn rel_5_a_repeated_server_and_a_pair_of_envoy_have_places_of_their_own() {
        let lists = |uris: &[&str], policy| ServerLists::new(servers(uris), by(policy));
        let twice = lists(&["a", "a"], FallbackPolicy::Grpc);
        assert_ne!(default(&twice).at(0).place(), default(&twice).at(1).place());
        let (before, after) =
            (lists(&["a", "b"], FallbackPolicy::Envoy), lists(&["a", "c"], FallbackPolicy::Envoy));
        // The source of the first place uses both servers.
        assert_ne!(default(&before).at(0).place(), default(&after).at(0).place());
    }
}
