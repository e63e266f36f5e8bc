//! The caches of the three kinds of collection behind one face. A caller looks a cache up by its kind, and
//! asks: each kind knows what stands for it, what is known about it, and what a removal means.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::departed::Departed;
use super::news::{News, SessionId, Stamp};
use crate::annotations::{Annotations, ErrorKind, Lease};
use crate::collection::Collection;
use crate::time::ReceivedAt;
use crate::upstream::Changes;
use sluice_xds::{Received, Resource, ResourceName, Status};

/// The part of a collection that lingers by itself: a name, a glob, or (`None`) the wildcard.
pub type Entry = Option<ResourceName>;

/// The cache of one kind of collection of one type.
pub trait KindCache {
    /// Applies the changes of one response or timer as one step (I7b).
    fn apply(&mut self, changes: &Changes, received_at: ReceivedAt);

    /// Stamps the changed views, and adds their sessions to `news`.
    fn settle(&mut self, stamp: &mut Stamp, news: &mut News);

    /// The last bytes of absent names, or of former members.
    fn departed(&self) -> &Departed;

    fn departed_mut(&mut self) -> &mut Departed;

    /// The resource of a name or a member.
    fn resource(&self, name: &ResourceName) -> Option<&Arc<Resource>>;

    /// The number of resources.
    fn resources_len(&self) -> usize;

    /// The size of all resources, in bytes.
    fn bytes(&self) -> usize;

    /// Errors and leases.
    fn annotations(&self) -> &Annotations;

    /// Whether content that arrives under a name is stored under this name. Members always are; a resource
    /// that was requested by its aliases only is stored under the aliases (ALI-1).
    fn stores(&self, _name: &ResourceName) -> bool {
        true
    }

    /// Sets or ends the lease of a resource.
    fn set_lease(&mut self, name: &ResourceName, lease: Option<Lease>);

    /// Removes an expired resource. Returns false if the resource was freed meanwhile.
    fn expire(&mut self, name: &ResourceName) -> bool;

    /// The server cannot supply a name (ERR-1), or can again. The cached copy stays (ERR-4).
    fn set_error(&mut self, name: &ResourceName, error: Option<&Arc<Status>>);

    /// A name is unavailable, for this reason. The absence of a member is no error: the member's removal
    /// reports the absence.
    fn fail(&mut self, name: &ResourceName, error: &Arc<Status>, kind: ErrorKind);

    /// Ends the transient errors (DAT-7). Returns the entries of unknown state among them.
    fn end_transient_errors(&mut self) -> Vec<ResourceName> {
        let mut over = self.annotations().transient_errors();
        over.iter().for_each(|name| self.set_error(name, None));
        over.retain(|name| self.is_unknown(name));
        over
    }

    /// Whether the server has not answered for a name or a glob yet.
    fn is_unknown(&self, name: &ResourceName) -> bool;

    /// The weight of an entry without sessions, and whether the entry has content; `None` if a session
    /// watches.
    fn unwatched(&self, entry: Option<&ResourceName>) -> Option<(usize, bool)>;

    /// Whether an entry that was restored has something to keep: content, or a known membership.
    fn is_worth_keeping(&self, entry: Option<&ResourceName>) -> bool;

    /// The entries that a restart may have restored.
    fn restorable(&self) -> Vec<Entry>;

    /// The weight of what an arriving resource replaces; `None` if nobody wants the resource.
    fn weight_before(&self, received: &Received) -> Option<usize>;

    /// The resources that a response of the full state removes by omission. Globs have no such response.
    fn omittable(&self) -> Vec<(&ResourceName, &Arc<Resource>)> {
        Vec::new()
    }

    /// Takes note of private resources, which were taken out of a response. Returns the entries of the
    /// resources, and the sessions that wait for them: each session once for all names.
    fn give_up_private(
        &self,
        resources: &[Arc<Resource>],
        changes: &mut Changes,
        private: &mut PrivateNames,
    ) -> (Vec<Entry>, Vec<SessionId>);
}

/// The private names of one type that are subscribed to, and whether the wildcard has private members.
///
/// Resources that the server forbids to cache or share (CCH-1).
///
/// A source that serves everyone never stores such a resource. The source reports the waiting sessions; each
/// has to ask for itself, through a source of its own. The source remembers the names: the server has
/// answered, and sends no second answer for sessions that join late.
#[derive(Debug, Default)]
pub struct PrivateNames {
    pub(super) names: BTreeSet<ResourceName>,
    pub wildcard: bool,
}

impl PrivateNames {
    /// The private entries of a collection.
    pub fn entries_in(&self, collection: &Collection) -> Vec<Entry> {
        let Some(names) = collection.names() else {
            return self.wildcard.then_some(None).into_iter().collect();
        };
        // Iterates over the smaller of the two.
        if self.names.len() < names.len() {
            self.names.iter().filter(|name| names.contains(name)).cloned().map(Some).collect()
        } else {
            names.iter().filter(|name| self.names.contains(*name)).cloned().map(Some).collect()
        }
    }

    pub fn forget(&mut self, names: &[ResourceName]) {
        for name in names {
            self.names.remove(name);
        }
    }
}
