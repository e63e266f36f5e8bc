//! The move of a stream to another configuration: other node classes, or other server lists (REL-6).

use std::sync::Arc;

use tracing::{debug, warn};

use crate::driver::ground::context::DriverSettings;
use crate::driver::ground::registry::lock;
use crate::driver::source::handle::{SourceHandle, Subscriber};
use crate::driver::stream::destination::{destinations, lists_other_names, regroups};
use crate::driver::stream::refusal::RETRY;
use crate::driver::stream::routes::Routes;
use crate::driver::stream::state::{Inner, StreamState};
use crate::engine::downstream::{SourceId, Watch};
use crate::setting::Epoch;
use crate::xds::{Code, Node, Status};

impl StreamState {
    /// Takes a configuration over without a move. False: the stream has to move. `is_alike`:
    /// the configuration routes everything as the one with this number does.
    pub(crate) fn adopt(
        &self,
        in_force: &Arc<Epoch<DriverSettings>>,
        mut is_alike: impl FnMut(&Epoch<DriverSettings>) -> bool,
    ) -> bool {
        let inner = &mut *lock(&self.inner);
        if inner.routing.number() >= in_force.number() {
            return true;
        }
        let is_known = |other: &DriverSettings, node: &Option<Arc<Node>>| {
            node.as_deref().is_none_or(|node| in_force.classes.know_alike(&other.classes, node))
        };
        if let Some(to) = &mut inner.moving_to {
            let goes_on = is_alike(to) && is_known(to, &inner.node);
            if goes_on {
                *to = in_force.clone();
            }
            return goes_on;
        }
        let stays = is_alike(&inner.routing) && is_known(&inner.routing, &inner.node)
            || !regroups(inner, in_force) && destinations(self, inner, in_force).all(|of| of.stays());
        if stays {
            inner.routing = in_force.clone();
        }
        stays
    }

    /// Begins the move to the configuration in force. The former sources serve meanwhile. A stream whose new class has no room
    /// stays, and looks for room again until there is another configuration.
    pub(crate) async fn reclassify(self: Arc<Self>) {
        while let Some(number) = self.try_move().await {
            tokio::time::sleep(RETRY.mul_f64(0.5 + fastrand::f64())).await;
            if self.shared.settings().number() != number {
                // The walk of the other configuration finds the stream.
                return;
            }
        }
    }

    /// Returns the number of the configuration for which there is no room.
    async fn try_move(self: &Arc<Self>) -> Option<u64> {
        // Keeps the stream open until all sources are told. Otherwise nothing would remove a stream entering
        // a source after the end.
        let _held = self.hold_open()?;
        let _order = self.lock_watch_order().await;
        let in_force = self.shared.epoch();
        let number = in_force.number();
        let begun = {
            let inner = &mut *lock(&self.inner);
            self.begin_move(inner, in_force)
        };
        let mut stays = None;
        match begun {
            Ok(watches) => self.send_watches(watches).await,
            Err(status) if is_final(&status) => self.end(status),
            Err(status) => {
                self.note_stay(&status);
                // The sources that the refused configuration alone has.
                self.leave_unused_sources(SourceHandle::forget);
                stays = Some(number);
            }
        }
        self.wake();
        stays
    }

    fn begin_move(
        &self,
        inner: &mut Inner,
        in_force: Arc<Epoch<DriverSettings>>,
    ) -> Result<Vec<Watch>, Status> {
        let mut watches = Vec::new();
        if lists_other_names(inner, &in_force) {
            // No source may be asked for names that its class does not have. So names of other rules have their new source at
            // once, and the client keeps their content until that source knows them.
            inner.routing = in_force.clone();
            watches = self.regroup(inner);
        }
        let (settings, node): (&DriverSettings, _) = (&in_force, inner.node.as_deref());
        let mut routes = Routes { stream: self, settings, node, sources: &mut inner.sources, refusal: None };
        match inner.session.reclassify(&mut routes, self.shared.clock.now()) {
            Ok(moved) => watches.extend(moved),
            Err(status) if inner.routing.number() != in_force.number() => return Err(status),
            // Some names have left their former sources already.
            Err(status) => {
                inner.end.get_or_insert_with(|| Box::new(status));
                return Ok(watches);
            }
        }
        inner.moving_to = Some(in_force);
        if inner.session.is_moving() {
            inner.sources_left().for_each(|source| source.note_leaving(self.session()));
        } else {
            watches.extend(self.settle(inner));
        }
        Ok(watches)
    }

    /// Follows a change of the subscriptions of a stream that moves.
    pub(crate) fn keep_moving(&self, inner: &mut Inner) -> Vec<Watch> {
        let Some(to) = &inner.moving_to else { return Vec::new() };
        let (settings, node): (&DriverSettings, _) = (to, inner.node.as_deref());
        let mut routes = Routes { stream: self, settings, node, sources: &mut inner.sources, refusal: None };
        match inner.session.keep_moving(&mut routes, self.shared.clock.now()) {
            Ok(mut watches) => {
                if !inner.session.is_moving() {
                    watches.extend(self.settle(inner));
                }
                watches
            }
            Err(status) if is_final(&status) => {
                inner.end.get_or_insert_with(|| Box::new(status));
                Vec::new()
            }
            Err(status) => {
                self.note_stay(&status);
                Vec::new()
            }
        }
    }

    /// The session has the sources of the configuration to which it moved.
    pub(crate) fn settle(&self, inner: &mut Inner) -> Vec<Watch> {
        let Some(to) = inner.moving_to.take() else { return Vec::new() };
        debug!(stream = self.number(), generation = to.generation, "a stream moved to another configuration");
        let is_other = regroups(inner, &to);
        inner.routing = to;
        inner.leave_former_lists();
        if is_other { self.regroup(inner) } else { Vec::new() }
    }

    /// Finds the groups of all names anew.
    fn regroup(&self, inner: &mut Inner) -> Vec<Watch> {
        let (settings, node): (&DriverSettings, _) = (&inner.routing, inner.node.as_deref());
        let refusal = Some(&mut inner.refusal);
        let mut routes = Routes { stream: self, settings, node, sources: &mut inner.sources, refusal };
        inner.session.regroup(&mut routes).unwrap_or_else(|status| {
            inner.end.get_or_insert_with(|| Box::new(status));
            Vec::new()
        })
    }

    fn note_stay(&self, status: &Status) {
        if let Some(suppressed) = self.shared.throttle.allow("refused classes of a reload") {
            warn!(listener = %self.peer.listener, stream = self.number(), error = %status.message, suppressed,
                "a client stays with its former sources, because the sources of the new configuration cannot be used");
        }
    }
}

/// Whether the other configuration serves the client nothing, rather than that there is no room: it withholds Secrets that the client shares
/// by the former one (IDN-5, RLY-21), or nothing tells the client apart any more. To stay would be to share.
fn is_final(status: &Status) -> bool {
    matches!(status.code, Code::PermissionDenied | Code::InvalidArgument)
}

impl Inner {
    /// Whether the session is on its way to other sources than this one.
    pub(crate) fn is_leaving(&self, source: SourceId) -> bool {
        let mut parts = self.session.subscriptions().iter().flat_map(|of| &of.parts);
        self.session.is_moving() && !parts.any(|part| part.bound_for().sources().any(|to| to == source))
    }

    /// The sources that serve the session until it has moved.
    fn sources_left(&self) -> impl Iterator<Item = &Arc<SourceHandle>> {
        self.sources.iter().filter(|(id, _)| self.is_leaving(*id)).map(|(_, source)| source)
    }

    /// Forgets the servers of lists that the session has left.
    fn leave_former_lists(&mut self) {
        let session = &self.session;
        self.fallbacks
            .retain(|((list, _), ..)| session.served_by().any(|(of, server)| of == *list && server > 0));
    }
}
