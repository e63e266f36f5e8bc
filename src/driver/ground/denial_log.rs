//! The first denial of each identity, for the log (AUT-13).

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use crate::driver::ground::registry::lock;
use crate::identity::Identity;

/// Identities with a WARN of their own since the last change of the policy: more than an operator reads. Further ones
/// are counted by the metric, and logged at DEBUG.
const IDENTITIES_MAX: usize = 1024;

/// The identities that were denied something, since the policy came into force.
#[derive(Debug, Default)]
pub struct DenialLog(Mutex<HashSet<Arc<Identity>>>);

impl DenialLog {
    /// Whether this is the first denial of the identity.
    pub fn is_first(&self, identity: &Arc<Identity>) -> bool {
        let mut told = lock(&self.0);
        let has_room = told.len() < IDENTITIES_MAX;
        !told.contains(identity) && has_room && told.insert(identity.clone())
    }

    /// Forgets all identities: other rules are in force.
    pub fn clear(&self) {
        lock(&self.0).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aut_13_an_identity_is_told_once_and_the_table_is_bounded() {
        let log = DenialLog::default();
        let user = |uid: usize| Arc::new(Identity::Unix { uid: u32::try_from(uid).unwrap_or_default() });
        assert!(log.is_first(&user(0)) && !log.is_first(&user(0)));
        for uid in 1..IDENTITIES_MAX {
            assert!(log.is_first(&user(uid)));
        }
        assert!(!log.is_first(&user(IDENTITIES_MAX)));
        log.clear();
        assert!(log.is_first(&user(IDENTITIES_MAX)));
    }
}
