//! How the relay proves itself to a server.

use super::CallMetadata;

/// All but the address of a server. Two credentials for one address are two servers, with connections and sources
/// of their own (ISO-5).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Credentials {
    pub calls: CallMetadata,
}
