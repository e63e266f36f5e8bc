//! The state of a predecessor's sources, until the sources of this process take it (HND-2).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sluice_checkpoint::{Identity, Restored};
use tokio::time::Instant;

#[derive(Default)]
pub struct Inheritance(Mutex<HashMap<Identity, Inherited>>);

struct Inherited {
    restored: Arc<Restored>,
    read_at: Instant,
    /// Left for a hold alone.
    is_old: bool,
}

impl Inheritance {
    pub fn put(&self, restored: Restored) {
        let identity = restored.header.identity.clone();
        let inherited = Inherited { restored: Arc::new(restored), read_at: Instant::now(), is_old: false };
        self.0.lock().insert(identity, inherited);
    }

    /// The state of a source, once: a later source with the same identity begins without. `is_held`: a plan
    /// holds something back from the source, or may.
    pub fn take(&self, identity: &Identity, is_held: impl FnOnce() -> bool) -> Option<Arc<Restored>> {
        let inherited = self.0.lock().remove(identity)?;
        if inherited.is_old && !is_held() {
            return None;
        }
        // Times to live run on until the source is made.
        Some(inherited.restored.later(inherited.read_at.elapsed()))
    }

    /// Drops the state without a taker: from now on the state may be too old. The state of a class under a
    /// hold stays, for the first client of the class (WAV-8).
    pub fn clear_but_for(&self, is_held: impl Fn(&Identity) -> bool) {
        self.0.lock().retain(|identity, inherited| {
            inherited.is_old = true;
            is_held(identity)
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::telemetry::wall_now;

    use super::*;
    use sluice_checkpoint::Header;

    #[tokio::test]
    async fn wav_8_the_state_of_a_class_that_sleeps_under_a_hold_stays_as_long_as_the_hold() {
        let identity =
            |class| Identity { list: "xds_servers".into(), server: "cp".into(), class: [class; 32] };
        let at = wall_now();
        let restored = |class| Restored {
            header: Header { identity: identity(class), relay: [7; 32], written_at: at, confirmed_at: at },
            types: Vec::new(),
        };
        let inheritance = Inheritance::default();
        (1..=4).for_each(|class| inheritance.put(restored(class)));
        assert!(inheritance.take(&identity(1), || false).is_some(), "its client came in time");
        inheritance.clear_but_for(|identity| identity.class[0] > 2);
        assert!(inheritance.take(&identity(2), || true).is_none());
        assert!(inheritance.take(&identity(3), || true).is_some());
        assert!(inheritance.take(&identity(4), || false).is_none(), "the hold has ended meanwhile");
    }
}
