//! The proved identity of a peer (IDN-1).
//!
//! A node is a claim that any client can make. An identity comes from the verified certificate of the
//! connection, or from the kernel for a unix socket.
//!
//! 1. [`spiffe`]: the syntax of SPIFFE IDs.

use std::fmt;

pub mod spiffe;

pub use spiffe::SpiffeId;

/// The identity of the peer of one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// The peer proved nothing: plaintext over TCP, or TLS without a client certificate.
    #[default]
    Anonymous,
    /// The user id of the process at the other end of a unix socket.
    Unix { uid: u32 },
    /// The URI of a verified X.509-SVID.
    Spiffe(SpiffeId),
    /// A DNS name of a verified certificate, in lower case.
    Dns(Box<str>),
    /// A verified certificate of the authorities of this trust domain, whose names prove nothing: its holder
    /// is any of their clients, and not one of them.
    TrustDomain(Box<str>),
}

impl Identity {
    /// The identity as a text that no other identity has, of whatever kind.
    pub fn key(&self) -> String {
        match self {
            Identity::Anonymous => "anonymous".to_owned(),
            Identity::Unix { uid } => format!("unix:{uid}"),
            Identity::Spiffe(id) => id.to_string(),
            Identity::Dns(name) => format!("dns:{name}"),
            Identity::TrustDomain(name) => format!("trust_domain:{name}"),
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Anonymous => f.write_str("anonymous"),
            Identity::Unix { uid } => write!(f, "unix user {uid}"),
            Identity::Spiffe(id) => write!(f, "{id}"),
            Identity::Dns(name) => f.write_str(name),
            Identity::TrustDomain(name) => write!(f, "trust domain {name}"),
        }
    }
}
