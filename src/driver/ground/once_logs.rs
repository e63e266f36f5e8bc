//! Facts that are logged once: the first denial of each identity (AUT-13), loops of relays (TIR-2), and
//! servers of a list that clients begin to use.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::driver::ground::fallback_log::FallbackLog;
use sluice_identity::Identity;
use sluice_load_reports::report::MessageKind;
use sluice_xds::RelayPath;

/// The logs of facts that are logged once.
#[derive(Debug, Default)]
pub struct OnceLogs {
    pub fallbacks: FallbackLog,
    pub denials: DenialLog,
    pub loops: LoopLog,
    pub load: LoadLog,
}

/// Identities with a WARN of their own since the last change of the policy: more than an operator reads.
/// Further ones are counted by the metric, and logged at DEBUG.
const IDENTITIES_MAX: usize = 1024;

/// The identities that were denied something, since the policy came into force.
#[derive(Debug, Default)]
pub struct DenialLog(Mutex<HashSet<Arc<Identity>>>);

impl DenialLog {
    /// Whether this is the first denial of the identity.
    pub fn is_first(&self, identity: &Arc<Identity>) -> bool {
        let mut logged = self.0.lock();
        let has_room = logged.len() < IDENTITIES_MAX;
        !logged.contains(identity) && has_room && logged.insert(identity.clone())
    }

    /// Forgets all identities: other rules are in force.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

/// The maximum number of paths with a WARN. A loop has a path for each server of its relays.
const PATHS_MAX: usize = 64;

/// The paths in the log.
#[derive(Debug, Default)]
pub struct LoopLog(Mutex<HashSet<String>>);

impl LoopLog {
    /// Whether no earlier call had a path through the same relays. Instances do not count: after a restart, a
    /// relay is the same relay.
    pub fn is_first(&self, path: &RelayPath) -> bool {
        let mut logged = self.0.lock();
        logged.len() < PATHS_MAX && logged.insert(path.to_string())
    }
}

/// Distinct unknown fields with a WARN.
const FIELDS_MAX: usize = 64;

/// The servers without load reports, and the unknown fields of reports.
#[derive(Debug, Default)]
pub struct LoadLog {
    /// As many as the configuration has servers.
    without_service: Mutex<HashSet<Arc<str>>>,
    fields: Mutex<HashSet<(MessageKind, u32)>>,
    has_dropped: AtomicBool,
}

impl LoadLog {
    /// Whether no earlier report was dropped for want of a server.
    pub fn is_first_drop(&self) -> bool {
        !self.has_dropped.swap(true, Ordering::Relaxed)
    }

    /// Whether no other class has found that this server takes no reports (LRS-21).
    pub fn is_first_without_service(&self, server: &Arc<str>) -> bool {
        self.without_service.lock().insert(server.clone())
    }

    /// Whether no earlier report had this unknown field (LRS-18).
    pub fn is_first_field(&self, message: MessageKind, number: u32) -> bool {
        let mut fields = self.fields.lock();
        fields.len() < FIELDS_MAX && fields.insert((message, number))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
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

    #[test]
    fn tir_2_a_loop_is_told_once_and_the_table_is_bounded() {
        let log = LoopLog::default();
        let path = |text: String| RelayPath::parse(text.as_bytes()).unwrap();
        assert!(log.is_first(&path("a~1,b~2".into())));
        assert!(!log.is_first(&path("a~7,b~9".into())));
        let logged = (0..200).filter(|number| log.is_first(&path(format!("x{number}~1")))).count();
        assert_eq!(logged, PATHS_MAX - 1);
    }
}
