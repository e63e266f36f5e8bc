//! The routes of the clients to the sources.

use crate::authority::{Authority, NameGroup};
use crate::downstream::{ClientFeatures, List, ListId, Router, SourceId};
use crate::fallback;
use sluice_xds::{Code, ResourceName, Status, TypeUrl};

/// Sends a stream's subscriptions to the sources with these indices.
#[derive(Clone, Copy, Debug, Default)]
pub struct Routes {
    /// The number of servers in the list for all names; the sources are the sources of its servers. With 0
    /// there is no list, and `old` and `xdstp` decide.
    pub servers: u16,
    pub reachability_only: bool,
    /// Each type has streams of its own.
    pub by_type: bool,
    /// The server without an available source.
    pub without: Option<u16>,
    pub deleting: u64,
    /// The list of all servers: other servers, or another order, are another list.
    pub list: u64,
    /// The source of each server in the list.
    pub order: [u64; 4],
    pub old: u64,
    pub xdstp: u64,
    /// Names of the `xdstp:` scheme have one server beside the list: the source `xdstp`.
    pub is_apart: bool,
    /// Names of the `xdstp:` scheme are of no known authority.
    pub is_unknown: bool,
    pub legacy: bool,
    /// The number of the latest change of the first sources. Changes of the others do not count.
    pub last_changes: [u64; 16],
    pub features: ClientFeatures,
}

/// The id of the first list of a server beside the list of all servers.
const APART: u64 = 1_000;

impl Routes {
    fn is_beside(&self, group: NameGroup) -> bool {
        self.is_apart && group.authority != Authority::None
    }
}

impl Router for Routes {
    fn group_of(&self, _: &TypeUrl, name: Option<&ResourceName>) -> NameGroup {
        match name.map_or(Authority::None, Authority::of_style) {
            Authority::Any if self.is_unknown => Authority::Unknown.shared(),
            authority => authority.shared(),
        }
    }

    fn fallback(&self, list: ListId) -> Option<List> {
        let on_reachability_only = self.reachability_only;
        let settings =
            fallback::FallbackSettings { on_reachability_only, ..fallback::FallbackSettings::default() };
        let Routes { servers, by_type, deleting, .. } = *self;
        (servers > 1 && list.0 < APART).then_some(List { id: list, servers, by_type, settings, deleting })
    }

    fn source(&mut self, _: &TypeUrl, group: NameGroup, server: u16) -> Result<SourceId, Status> {
        if self.without == Some(server) {
            return Err(Status::new(Code::ResourceExhausted, "too many sources"));
        }
        if self.servers > 0 && !self.is_beside(group) {
            return Ok(SourceId(self.order[usize::from(server)]));
        }
        Ok(SourceId(if group.authority == Authority::None { self.old } else { self.xdstp }))
    }

    fn list(&self, _: &TypeUrl, group: NameGroup) -> ListId {
        ListId(if self.is_beside(group) { APART + self.xdstp } else { self.list })
    }

    /// The sources of a class are the even ones, those of the other class the odd ones: 0 and 1 are of one server.
    fn position_of(&self, _: ListId, source: SourceId) -> Option<u16> {
        let order = &self.order[..usize::from(self.servers)];
        let found = order.iter().position(|own| *own / 2 == source.0 / 2);
        found.and_then(|position| u16::try_from(position).ok()).filter(|_| self.servers > 1)
    }

    fn last_change(&self, source: SourceId) -> u64 {
        self.last_changes.get(source.0 as usize).copied().unwrap_or(u64::MAX)
    }

    fn legacy_wildcard(&self, _: &TypeUrl) -> Result<bool, Status> {
        Ok(self.legacy)
    }

    fn client_features(&self, _: &TypeUrl) -> ClientFeatures {
        self.features
    }
}
