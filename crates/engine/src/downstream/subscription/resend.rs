//! Content that is due again, although the client was sent the content before.

use crate::downstream::subscription::Subscription;
use crate::view::View;
use sluice_xds::ResourceName;

impl Subscription {
    /// The client asks for names again, and must be sent them again, whatever its content (SUB-3, DEL-11).
    pub(super) fn resubscribe(&mut self, names: &[ResourceName]) {
        self.interrupt();
        for name in names {
            self.forget_name(name);
        }
        self.fresh = true;
    }

    pub(super) fn forget_name(&mut self, name: &ResourceName) {
        self.interrupt();
        for part in &mut self.parts {
            part.forget(name);
        }
    }

    /// A name was given up. Names beside a glob keep the members that the glob brought, as they are (NAM-17).
    pub(super) fn forget_left(&mut self, name: &ResourceName) {
        if !name.is_glob() {
            self.forget_name(name);
            // The client may drop it.
            self.parts.iter_mut().for_each(|part| View::unlearn(&mut part.held, name));
        }
    }

    /// Makes the endpoints of a cluster due, changed or not, because the cluster was just sent (ORD-5,
    /// RLY-52).
    pub fn force(&mut self, name: &ResourceName) {
        self.interrupt();
        for part in &mut self.parts {
            if part.held.has(name) {
                View::force(&mut part.held, name);
                part.at = None;
                self.fresh = true;
            }
        }
    }

    /// Makes the client's whole content due again, changed or not.
    pub fn force_all(&mut self) {
        let held: Vec<_> = self.parts.iter().flat_map(|part| part.held.names()).cloned().collect();
        held.iter().for_each(|name| self.force(name));
    }
}
