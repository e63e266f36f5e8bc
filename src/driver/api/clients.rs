//! One client in detail: each name with the version that the client has, and the version that it should have
//! (ADM-7). Plain data, as in [`status`](crate::driver::api::status).

use std::sync::Arc;

use crate::driver::api::status::{ConfigStatus, SessionStatus, Why};
pub use crate::engine::downstream::HeldVersion;
use crate::xds::{ResourceName, Status, TypeUrl, Version};

/// Single clients, and their names. Each method locks one stream for a moment, and returned iterators hold no lock.
pub trait ClientView: Send + Sync + 'static {
    /// The stream with this id; `None` if there is none, or no longer.
    fn session(&self, id: u64) -> Option<SessionStatus>;

    /// The names of one type of a stream behind `after`, at one moment; `None` if the stream is gone, or does not ask
    /// for the type.
    fn names(&self, id: u64, type_url: &TypeUrl, after: Option<ResourceName>) -> Option<NameStatuses>;
}

/// The names of one type of one client, in order.
pub type NameStatuses = Box<dyn Iterator<Item = NameStatus> + Send>;

/// One name of a client: requested, held or due.
#[derive(Clone, Debug, PartialEq)]
pub struct NameStatus {
    pub name: ResourceName,
    /// The version that the client has accepted.
    pub has: Option<HeldVersion>,
    /// The version that the sources have for the client.
    pub should: Option<Version>,
    pub why: Option<Why>,
    /// The reason for which the client may not have the resource, or for which the name is malformed.
    pub refused: Option<Arc<Status>>,
}

impl NameStatus {
    pub fn state(&self) -> ConfigStatus {
        self.why.map_or(ConfigStatus::Synced, Why::state)
    }
}
