//! What the names of a session take, which it alone holds.

use super::session::Session;
use super::spelling::Refusals;
use super::subscription::Subscription;
use crate::xds::ResourceName;

/// What a name takes beside its text, near enough: its allocation, and its places in the set of the session and in the sets
/// of its source. 200,000 names of 60 bytes fit into the default of `limits.connection_bytes` together with the request that
/// brings the last of them.
pub const NAME_BYTES: usize = 192;

impl Session {
    /// What the names take that this stream asks for, gave up, or says that it holds, in bytes.
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

/// What one name takes.
pub(super) fn weight(name: &ResourceName) -> usize {
    name.as_str().len() + NAME_BYTES
}
