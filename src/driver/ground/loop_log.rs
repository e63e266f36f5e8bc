//! Loops of relays, for the log (TIR-2).

use std::collections::HashSet;
use std::sync::Mutex;

use crate::driver::ground::registry::lock;
use crate::xds::RelayPath;

/// The maximum number of paths with a WARN. A loop has a path for each server of its relays.
const PATHS_MAX: usize = 64;

/// The paths in the log.
#[derive(Debug, Default)]
pub struct LoopLog(Mutex<HashSet<String>>);

impl LoopLog {
    /// Whether no earlier call had a path through the same relays. Instances do not count: after a restart, a relay is the
    /// same relay.
    pub fn is_first(&self, path: &RelayPath) -> bool {
        let mut told = lock(&self.0);
        told.len() < PATHS_MAX && told.insert(path.to_string())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn tir_2_a_loop_is_told_once_and_the_table_is_bounded() {
        let log = LoopLog::default();
        let path = |text: String| RelayPath::parse(text.as_bytes()).unwrap();
        assert!(log.is_first(&path("a~1,b~2".into())));
        assert!(!log.is_first(&path("a~7,b~9".into())));
        let told = (0..200).filter(|number| log.is_first(&path(format!("x{number}~1")))).count();
        assert_eq!(told, PATHS_MAX - 1);
    }
}
