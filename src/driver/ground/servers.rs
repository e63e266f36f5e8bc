//! The servers that the operator named, in lists, and which list is asked for what (FED-1, FED-3).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::client::{Pool, RestServer};
use crate::engine::downstream::List;
use crate::engine::fallback::{self, Policy};
use crate::engine::realm::{Authorities, Space};
use crate::engine::upstream;
use crate::xds::{TypeUrl, Variant};

/// What sources are attached to.
#[derive(Clone, Debug)]
pub enum Attach {
    /// Clones of a pool share its connections, whatever list the server stands in (FED-6).
    Grpc {
        pool: Pool,
        settings: upstream::Settings,
    },
    Rest {
        server: RestServer,
        settings: upstream::Settings,
    },
    Files {
        directory: PathBuf,
    },
    /// To nothing: every name is known not to exist.
    Nothing,
    /// To nothing, as there was no room for the class: nothing is known (RLY-14).
    Refused,
}

/// One entry of a server list.
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
                upstream::Settings::default().timeout_of(type_url)
            }
        }
    }

    /// It was said to have no delta.
    pub fn is_sotw(&self) -> bool {
        matches!(&self.attach, Attach::Grpc { settings, .. } if settings.variant == Variant::Sotw)
    }

    /// `fail_on_data_errors`: what it says does not exist is gone, whoever supplied it (RLY-42).
    fn fails_on_data_errors(&self) -> bool {
        matches!(&self.attach, Attach::Grpc { settings, .. } if settings.fails_on_data_errors)
    }

    /// Each type has streams or polls of its own, so that one may be lost and the others not (RLY-40).
    fn is_by_type(&self) -> bool {
        match &self.attach {
            Attach::Grpc { settings, .. } | Attach::Rest { settings, .. } => {
                settings.transport != upstream::Transport::Aggregated
            }
            Attach::Files { .. } | Attach::Nothing | Attach::Refused => false,
        }
    }

    /// No server of the configuration.
    pub(crate) fn is_made_up(&self) -> bool {
        matches!(self.attach, Attach::Nothing | Attach::Refused)
    }

    /// It answers everyone alike: there is no node to select by, and what it has is there before anyone asks.
    pub fn is_local(&self) -> bool {
        !matches!(self.attach, Attach::Grpc { .. } | Attach::Rest { .. })
    }
}

/// The servers of one purpose, the preferred one first. Two lists never share a cache, even of the same servers (FED-6).
#[derive(Debug)]
pub struct ServerList {
    /// The configuration's key for it: `xds_servers`, `authorities[NAME]` or `types[NAME]`.
    pub label: Arc<str>,
    /// At least one.
    pub servers: Vec<Arc<Server>>,
    /// How they stand in for each other.
    pub fallback: fallback::Settings,
}

impl ServerList {
    /// What sessions need to know of it; `None` if there is nothing to fall back to, or the sources see to it.
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

/// One server in one list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub list: ListId,
    /// 0 is the preferred one.
    pub server: u16,
}

/// One of [`ServerLists`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListId(u16);

impl ListId {
    /// The list with a number that [`ListId::number`] gave.
    pub(crate) fn of(number: u16) -> ListId {
        ListId(number)
    }

    pub(crate) fn number(self) -> u16 {
        self.0
    }

    const DEFAULT: ListId = ListId(0);
    /// Nobody is asked for what goes here: it does not exist.
    const NOBODY: ListId = ListId(1);
    /// Of whom there was no room to ask.
    const REFUSED: ListId = ListId(2);
}

impl Place {
    /// Where every name is known not to exist.
    pub const NOBODY: Place = Place { list: ListId::NOBODY, server: 0 };

    /// Where nothing is known, and no server is asked.
    pub(crate) const REFUSED: Place = Place { list: ListId::REFUSED, server: 0 };

    /// The server that a source of this place is at, by Envoy's rules: 0 is the place's own, 1 the next one.
    pub(crate) fn failover(self, number: u16) -> Place {
        Place { server: self.server + number, ..self }
    }
}

/// Every server list of the relay, and what each is for.
#[derive(Debug)]
pub struct ServerLists {
    /// At the numbers that [`ListId`] names, then those of types and authorities.
    lists: Vec<ServerList>,
    by_type: BTreeMap<TypeUrl, ListId>,
    by_authority: Vec<ListId>,
    authorities: Authorities,
}

impl ServerLists {
    /// One list for everything, names of every authority included.
    pub fn new(servers: Vec<Arc<Server>>, fallback: fallback::Settings) -> ServerLists {
        let made_up = |name: &str, attach| ServerList {
            label: name.into(),
            servers: vec![Arc::new(Server { uri: name.into(), attach })],
            fallback: fallback::Settings::default(),
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

    /// Old-style names and the wildcard of a type go to another list.
    pub fn add_type(&mut self, type_url: TypeUrl, servers: Vec<Arc<Server>>, fallback: fallback::Settings) {
        let label = format!("types[{}]", type_url.message());
        let id = self.add(label, servers, fallback);
        self.by_type.insert(type_url, id);
    }

    /// States all authorities; names of others are known not to exist from then on (FED-3).
    pub fn set_authorities(&mut self, authorities: Vec<(String, Vec<Arc<Server>>, fallback::Settings)>) {
        self.authorities = Authorities::new(authorities.iter().map(|(name, ..)| name.as_str()));
        let add = |(name, servers, fallback)| self.add(format!("authorities[{name}]"), servers, fallback);
        self.by_authority = authorities.into_iter().map(add).collect();
    }

    fn add(&mut self, label: String, servers: Vec<Arc<Server>>, fallback: fallback::Settings) -> ListId {
        self.lists.push(ServerList { label: label.into(), servers, fallback });
        ListId(u16::try_from(self.lists.len() - 1).unwrap_or(u16::MAX))
    }

    pub fn authorities(&self) -> &Authorities {
        &self.authorities
    }

    /// The list that is asked for names of a space of a type.
    pub fn route(&self, type_url: &TypeUrl, space: Space) -> ListId {
        match space {
            Space::Old => self.by_type.get(type_url).copied().unwrap_or(ListId::DEFAULT),
            Space::AnyAuthority => ListId::DEFAULT,
            Space::Authority(number) => {
                self.by_authority.get(usize::from(number)).copied().unwrap_or(ListId::NOBODY)
            }
            Space::Unknown => ListId::NOBODY,
        }
    }

    /// The preferred server of the list that is asked for names of a space of a type.
    pub fn place(&self, type_url: &TypeUrl, space: Space) -> Place {
        Place { list: self.route(type_url, space), server: 0 }
    }

    /// Ids come from this table alone.
    pub fn list(&self, id: ListId) -> &ServerList {
        &self.lists[usize::from(id.0)]
    }

    /// The servers that a source of this place may be at: by Envoy's rules two of them, else its own.
    pub(crate) fn serving(&self, place: Place) -> impl Iterator<Item = &Arc<Server>> {
        let list = self.list(place.list);
        let count = if list.fallback.policy == Policy::Envoy { 2 } else { 1 };
        list.servers.iter().skip(usize::from(place.server)).take(count)
    }

    pub fn server(&self, place: Place) -> &Arc<Server> {
        &self.list(place.list).servers[usize::from(place.server)]
    }

    /// Every server of every list of the configuration.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        let of_list = |(list, of): (ListId, &ServerList)| {
            (0..).take(of.servers.len()).map(move |server| Place { list, server })
        };
        let places = (0..).map(ListId).zip(&self.lists).flat_map(of_list);
        places.filter(|place| !self.server(*place).is_made_up())
    }
}
