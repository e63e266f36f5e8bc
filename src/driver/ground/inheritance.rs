//! The state of a predecessor's sources, until the sources of this process take it (HND-2).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use crate::checkpoint::{Identity, Restored};
use crate::driver::ground::registry::lock;

#[derive(Default)]
pub struct Inheritance(Mutex<HashMap<Identity, Inherited>>);

struct Inherited {
    restored: Arc<Restored>,
    read_at: Instant,
}

impl Inheritance {
    pub fn put(&self, restored: Restored) {
        let identity = restored.header.identity.clone();
        let inherited = Inherited { restored: Arc::new(restored), read_at: Instant::now() };
        lock(&self.0).insert(identity, inherited);
    }

    /// The state of a source, once: a later source with the same identity begins without.
    pub fn take(&self, identity: &Identity) -> Option<Arc<Restored>> {
        let inherited = lock(&self.0).remove(identity)?;
        // Times to live run on until the source is made.
        Some(inherited.restored.later(inherited.read_at.elapsed()))
    }

    /// Drops the state that no source has taken: from now on the state may be too old.
    pub fn clear(&self) {
        lock(&self.0).clear();
    }
}
