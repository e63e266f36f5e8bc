//! The servers of the configuration in their lists, and the routing of names to lists (FED-1, FED-3).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::client::{Pool, RestServer};
use crate::engine::authority::{Authorities, Authority};
use crate::engine::downstream::List;
use crate::engine::fallback::{self, Policy};
use crate::engine::upstream;
use crate::xds::{TypeUrl, Variant};

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
    },
    /// No server: every name is known not to exist.
    Nothing,
    /// No server, because there was no room for the class: nothing is known (RLY-14).
    Refused,
}

/// An entry of a server list.
#[derive(Debug)]
pub struct Server {
    /// `server_uri`, as the operator wrote it.
    pub uri: Arc<str>,
    pub attach: Attach,
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

    /// Whether all clients get the same answers. Such a server ignores nodes, and has its content before the
    /// first request.
    pub fn is_local(&self) -> bool {
        !matches!(self.attach, Attach::Grpc { .. } | Attach::Rest { .. })
    }
}

/// Servers that are asked for the same names, in the order of priority. Two lists never share a cache, even if
/// they contain the same servers (FED-6).
#[derive(Debug)]
pub struct ServerList {
    /// The list's key in the configuration: `xds_servers`, `authorities[NAME]` or `types[NAME]`.
    pub label: Arc<str>,
    /// At least one server.
    pub servers: Vec<Arc<Server>>,
    /// The rules for moves between the servers.
    pub fallback: fallback::FallbackSettings,
}

impl ServerList {
    /// The sessions' part of fallback. `None` if the list has a single server, or if failover is up to the
    /// sources.
    pub(crate) fn fallback(&self, number: u16) -> Option<List> {
        let servers = u16::try_from(self.servers.len()).unwrap_or(u16::MAX);
        let is_theirs = servers > 1 && self.fallback.policy == Policy::Grpc;
        is_theirs.then(|| List {
            number,
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

/// A server in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub list: ListId,
    /// 0 is the preferred server.
    pub server: u16,
}

/// The number of a list in [`ServerLists`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListId(u16);

impl ListId {
    /// The list with a number from [`ListId::number`].
    pub(crate) fn of(number: u16) -> ListId {
        ListId(number)
    }

    pub(crate) fn number(self) -> u16 {
        self.0
    }

    const DEFAULT: ListId = ListId(0);
    /// The list without a server: its names do not exist.
    const NOBODY: ListId = ListId(1);
    /// The list for classes without room.
    const REFUSED: ListId = ListId(2);
}

impl Place {
    /// The place where every name is known not to exist.
    pub const NOBODY: Place = Place { list: ListId::NOBODY, server: 0 };

    /// The place where nothing is known, and no server is asked.
    pub(crate) const REFUSED: Place = Place { list: ListId::REFUSED, server: 0 };

    /// The server of a source at this place, by Envoy's rules: 0 is the place's own server, 1 is the next
    /// server.
    pub(crate) fn failover(self, number: u16) -> Place {
        Place { server: self.server + number, ..self }
    }
}

/// All server lists of the relay, and the names that each list serves.
#[derive(Debug)]
pub struct ServerLists {
    /// The constants of [`ListId`] come first, then the lists of types and authorities.
    lists: Vec<ServerList>,
    by_type: BTreeMap<TypeUrl, ListId>,
    by_authority: Vec<ListId>,
    authorities: Authorities,
}

impl ServerLists {
    /// One list for all names, those of all authorities included.
    pub fn new(servers: Vec<Arc<Server>>, fallback: fallback::FallbackSettings) -> ServerLists {
        let made_up = |name: &str, attach| ServerList {
            label: name.into(),
            servers: vec![Arc::new(Server { uri: name.into(), attach })],
            fallback: fallback::FallbackSettings::default(),
        };
        let (nobody, refused) = (made_up("none", Attach::Nothing), made_up("refused", Attach::Refused));
        let lists = vec![ServerList { label: "xds_servers".into(), servers, fallback }, nobody, refused];
        ServerLists {
            lists,
            by_type: BTreeMap::new(),
            by_authority: Vec::new(),
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
        let id = self.add(label, servers, fallback);
        self.by_type.insert(type_url, id);
    }

    /// Sets all authorities. Names of other authorities are then known not to exist (FED-3).
    pub fn set_authorities(
        &mut self,
        authorities: Vec<(String, Vec<Arc<Server>>, fallback::FallbackSettings)>,
    ) {
        self.authorities = Authorities::new(authorities.iter().map(|(name, ..)| name.as_str()));
        let add = |(name, servers, fallback)| self.add(format!("authorities[{name}]"), servers, fallback);
        self.by_authority = authorities.into_iter().map(add).collect();
    }

    fn add(
        &mut self,
        label: String,
        servers: Vec<Arc<Server>>,
        fallback: fallback::FallbackSettings,
    ) -> ListId {
        self.lists.push(ServerList { label: label.into(), servers, fallback });
        ListId(u16::try_from(self.lists.len() - 1).unwrap_or(u16::MAX))
    }

    pub fn authorities(&self) -> &Authorities {
        &self.authorities
    }

    /// The list that serves names of an authority and a type.
    pub fn route(&self, type_url: &TypeUrl, authority: Authority) -> ListId {
        match authority {
            Authority::None => self.by_type.get(type_url).copied().unwrap_or(ListId::DEFAULT),
            Authority::Any => ListId::DEFAULT,
            Authority::Configured(number) => {
                self.by_authority.get(usize::from(number)).copied().unwrap_or(ListId::NOBODY)
            }
            Authority::Unknown => ListId::NOBODY,
        }
    }

    /// The preferred server of the list that serves names of an authority and a type.
    pub fn place(&self, type_url: &TypeUrl, authority: Authority) -> Place {
        Place { list: self.route(type_url, authority), server: 0 }
    }

    /// Indexing cannot fail: only this table makes ids.
    pub fn list(&self, id: ListId) -> &ServerList {
        &self.lists[usize::from(id.0)]
    }

    /// The servers that a source of this place may use: two by Envoy's rules, else one.
    pub(crate) fn serving(&self, place: Place) -> impl Iterator<Item = &Arc<Server>> {
        let list = self.list(place.list);
        let count = if list.fallback.policy == Policy::Envoy { 2 } else { 1 };
        list.servers.iter().skip(usize::from(place.server)).take(count)
    }

    pub fn server(&self, place: Place) -> &Arc<Server> {
        &self.list(place.list).servers[usize::from(place.server)]
    }

    /// All servers of all configured lists.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        let of_list = |(list, of): (ListId, &ServerList)| {
            (0..).take(of.servers.len()).map(move |server| Place { list, server })
        };
        let places = (0..).map(ListId).zip(&self.lists).flat_map(of_list);
        places.filter(|place| !self.server(*place).is_made_up())
    }
}
