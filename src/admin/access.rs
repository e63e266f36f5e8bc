//! The rights of callers (AUT-14, ADM-4). A decision takes the peer's proof and its token; HTTP is unknown
//! here.

use std::fmt;

pub use sluice_admin_api::endpoints::Area;
use sluice_admin_api::endpoints::{Endpoint, Line};

use super::entrance::AdminPeer;
use crate::trust::tokens::{TokenFile, Tokens};
use sluice_engine::authorization::IdentityPattern;
use sluice_identity::Identity;

/// The aim of a request, as the checks see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestTarget {
    pub method: &'static str,
    pub path: &'static str,
    pub area: Area,
}

impl From<Endpoint> for RequestTarget {
    fn from(endpoint: Endpoint) -> RequestTarget {
        let Line { method, path, area, .. } = endpoint.line();
        RequestTarget { method, path, area }
    }
}

impl fmt::Display for RequestTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// A set of areas: the roles of a caller, or the public ones.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Areas(u8);

impl Areas {
    pub fn has(self, area: Area) -> bool {
        self.0 & (1 << area as u8) != 0
    }

    pub fn is_empty(self) -> bool {
        self == Areas::default()
    }

    #[must_use]
    pub fn and(self, other: Areas) -> Areas {
        Areas(self.0 | other.0)
    }
}

impl FromIterator<Area> for Areas {
    fn from_iter<I: IntoIterator<Item = Area>>(areas: I) -> Areas {
        Areas(areas.into_iter().fold(0, |areas, area| areas | (1 << area as u8)))
    }
}

impl fmt::Display for Areas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = Area::ALL.into_iter().filter(|area| self.has(*area)).map(Area::name).collect();
        f.write_str(if names.is_empty() { "none".to_owned() } else { names.join(", ") }.as_str())
    }
}

impl fmt::Debug for Areas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// `admin.auth`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// Areas that need neither a token nor an identity.
    pub public: Areas,
    pub tokens: Vec<TokenGrant>,
    pub identities: Vec<IdentityGrant>,
}

/// The roles of the holder of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenGrant {
    pub file: TokenFile,
    pub roles: Areas,
}

/// The roles of proved identities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityGrant {
    pub pattern: IdentityPattern,
    pub roles: Areas,
}

/// The hosts that reach the listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListenerReach {
    /// This host alone, over TCP.
    #[default]
    Loopback,
    /// This host alone, over a unix socket. Root and `owner`, the user of the relay, may do everything.
    Unix { owner: u32 },
    /// Other hosts.
    Network { has_tls: bool },
}

/// The rules of the listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    pub reach: ListenerReach,
    pub auth: Option<Auth>,
}

/// The token of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presented<'a> {
    Nothing,
    /// Not one token of the scheme `Bearer`.
    Unusable,
    Token(&'a [u8]),
}

/// A caller who may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Granted {
    /// The name of the token that opened the area. A web page cannot have a token.
    pub token: Option<String>,
}

/// The reason why a caller may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// Other hosts reach the listener in plaintext: a token or an answer could be read on the way.
    Plaintext,
    /// Without `admin.auth`, other hosts get the public areas only.
    NobodyMay,
    /// The caller proved nothing.
    NoProof,
    /// The token is in no file.
    BadToken,
    /// Another user of the host, on a unix socket.
    OtherUser,
    /// The caller has other roles.
    Lacks(Areas),
}

impl Access {
    /// The areas for everybody.
    pub fn public(&self) -> Areas {
        let by_default = || [Area::Health, Area::Ready].into_iter().collect();
        self.auth.as_ref().map_or_else(by_default, |auth| auth.public)
    }

    /// `tokens` are those in force.
    pub(super) fn decide(
        &self,
        area: Area,
        peer: &AdminPeer,
        presented: Presented<'_>,
        tokens: Option<&Tokens>,
    ) -> Result<Granted, Denied> {
        if self.public().has(area) {
            return Ok(Granted::default());
        }
        let is_owner = match self.reach {
            ListenerReach::Unix { owner } => peer.uid.is_some_and(|uid| uid == 0 || uid == owner),
            ListenerReach::Loopback | ListenerReach::Network { .. } => false,
        };
        match (self.reach, &self.auth) {
            (ListenerReach::Network { has_tls: false }, _) => Err(Denied::Plaintext),
            (ListenerReach::Network { has_tls: true }, None) => Err(Denied::NobodyMay),
            (ListenerReach::Loopback, None) => Ok(Granted::default()),
            // The mode of the socket decides who may look.
            (ListenerReach::Unix { .. }, None) if area != Area::Act => Ok(Granted::default()),
            (ListenerReach::Unix { .. }, _) if is_owner => Ok(Granted::default()),
            (ListenerReach::Unix { .. }, None) => Err(Denied::OtherUser),
            (_, Some(auth)) => auth.decide(area, peer, presented, tokens),
        }
    }
}

impl Auth {
    fn decide(
        &self,
        area: Area,
        peer: &AdminPeer,
        presented: Presented<'_>,
        tokens: Option<&Tokens>,
    ) -> Result<Granted, Denied> {
        let owners: Vec<&str> = match (presented, tokens) {
            (Presented::Token(token), Some(tokens)) => tokens.owners(token).collect(),
            _ => Vec::new(),
        };
        let by_token = |grant: &&TokenGrant| owners.contains(&&*grant.file.name);
        if let Some(grant) = self.tokens.iter().filter(by_token).find(|grant| opens(grant.roles, area)) {
            return Ok(Granted { token: Some(grant.file.name.to_string()) });
        }
        let user = peer.uid.map(|uid| Identity::Unix { uid });
        let matches = |grant: &&IdentityGrant| {
            let fits = |identity| grant.pattern.matches(identity).is_some();
            fits(&peer.identity) || user.as_ref().is_some_and(fits)
        };
        let of_identity = self.identities.iter().filter(matches).map(|grant| grant.roles);
        let roles = self.tokens.iter().filter(by_token).map(|grant| grant.roles).chain(of_identity);
        let roles = roles.fold(Areas::default(), Areas::and);
        if opens(roles, area) {
            Ok(Granted::default())
        } else if !roles.is_empty() {
            Err(Denied::Lacks(roles))
        } else if presented == Presented::Nothing {
            Err(Denied::NoProof)
        } else {
            Err(Denied::BadToken)
        }
    }
}

fn opens(roles: Areas, area: Area) -> bool {
    let is_for_all = matches!(area, Area::Health | Area::Ready);
    roles.has(area) || (is_for_all && !roles.is_empty())
}
