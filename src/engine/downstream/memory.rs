//! Memory of the names that belong to a single session.

use super::session::Session;
use super::spelling::Refusals;
use super::subscription::Subscription;
use crate::xds::ResourceName;

/// Approximate memory of a name in addition to the text: the allocation, and the entries in the set of the
/// session and in the sets of the source. 200,000 names of 60 bytes fit into the default of
/// `limits.connection_bytes`, together with the request that brings the last names.
pub const NAME_BYTES: usize = 192;

impl Session {
    /// Memory of the names that this stream asks for, gave up, or presented, in bytes.
    pub fn names_bytes(&self) -> usize {
        self.subscriptions.iter().map(Subscription::names_bytes).sum()
    }
}

impl Subscription {
    fn names_bytes(&self) -> usize {
        let sets = self.parts.iter().filter_map(|part| part.names());
        let wanted: usize = sets.map(|names| names.text_bytes() + names.len() * NAME_BYTES).sum();
        let departed: usize = self.departed.iter().map(weight).sum();
        let spelled = self.spellings().map_or(0, |spellings| spellings.bytes());
        let refused = self.refusals().map_or(0, Refusals::bytes);
        wanted + departed + spelled + refused + self.presented_bytes
    }
}

/// Memory of one name, in bytes.
pub(super) fn weight(name: &ResourceName) -> usize {
    name.as_str().len() + NAME_BYTES
}
