//! Node classes whose new clients are turned away, type by type (PRF-28).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::driver::ground::class_identity::class_digest;
use crate::driver::ground::servers::Place;
use sluice_engine::Time;
use sluice_engine::class::NodeClass;
use sluice_xds::{Code, Status, TypeUrl};

/// A type of a class at a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RefusedType {
    pub place: Place,
    /// The digest of the class.
    pub class: Arc<str>,
    pub type_url: TypeUrl,
}

/// The refused types of classes, each since a time. Streams of before keep what they have, and are served on.
#[derive(Debug, Default)]
pub struct ClassRefusals {
    refused: Mutex<BTreeMap<RefusedType, Time>>,
    /// So that a relay without refusals pays for no lock.
    has_any: AtomicBool,
}

impl ClassRefusals {
    pub fn refuse(&self, refused: RefusedType, now: Time) {
        self.change(|all| {
            all.entry(refused).or_insert(now);
        });
    }

    pub fn admit(&self, refused: &RefusedType) {
        self.change(|all| {
            all.remove(refused);
        });
    }

    /// Nobody watches over the classes of a server any more.
    pub fn admit_all_of(&self, place: Place) {
        self.change(|all| all.retain(|refused, _| refused.place != place));
    }

    /// The reason why a stream that was opened at this time gets nothing of the type.
    pub fn reason(
        &self,
        place: Place,
        class: &NodeClass,
        type_url: &TypeUrl,
        opened_at: Time,
    ) -> Option<Status> {
        if !self.has_any.load(Ordering::Relaxed) {
            return None;
        }
        let key = RefusedType { place, class: class_digest(class).into(), type_url: type_url.clone() };
        let since = *self.refused.lock().get(&key)?;
        (opened_at >= since).then(|| {
            let text = format!(
                "the control plane tells some clients of node class {} otherwise about {}, so that no further client is \
                 served by this class (`proof.policy: refuse`)",
                key.class,
                type_url.short()
            );
            Status::new(Code::Unavailable, text)
        })
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<RefusedType, Time>)) {
        let mut refused = self.refused.lock();
        change(&mut refused);
        self.has_any.store(!refused.is_empty(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prf_28_new_streams_are_refused_and_streams_of_before_are_not() {
        let (refusals, class) = (ClassRefusals::default(), NodeClass::of_everybody());
        let type_url = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
        let digest: Arc<str> = class_digest(&class).into();
        let refused = RefusedType { place: Place::NOBODY, class: digest, type_url: type_url.clone() };
        let at = Time::from_micros;
        refusals.refuse(refused.clone(), at(5));
        refusals.refuse(refused.clone(), at(9));
        let is_refused =
            |place, opened_at| refusals.reason(place, &class, &type_url, at(opened_at)).is_some();
        assert_eq!(
            [is_refused(Place::NOBODY, 4), is_refused(Place::NOBODY, 5), is_refused(Place::REFUSED, 5)],
            [false, true, false]
        );
        let listeners = TypeUrl::of_message("envoy.config.listener.v3.Listener");
        assert!(refusals.reason(Place::NOBODY, &class, &listeners, at(9)).is_none());
        refusals.admit(&refused);
        assert!(!is_refused(Place::NOBODY, 9));
    }
}
