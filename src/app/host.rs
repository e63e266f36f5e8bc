//! The process and its host: limits of files, core files, and entropy.

use std::hash::{BuildHasher, Hasher, RandomState};

use tracing::{debug, info, warn};

/// A core file would have private keys and Secrets in it (ISO-8). The hard limit stays, so that `prlimit` can
/// allow core files while an operator looks for a fault.
pub(super) fn forbid_core_files() {
    if let Err(error) = rlimit::Resource::CORE.set(0, rlimit::Resource::CORE.get_hard().unwrap_or_default()) {
        warn!(%error, "cannot forbid core files");
    }
}

/// Seeds this thread's generator with the system's entropy, taken from std's hash keys. By default, the seed
/// would be the clock and the thread's number, which others can guess.
pub(super) fn seed() {
    fastrand::seed(RandomState::new().build_hasher().finish());
}

/// Raises the soft limit of open files to the hard limit: each connection takes a file descriptor.
pub(super) fn raise_open_files() {
    let before = rlimit::Resource::NOFILE.get_soft().unwrap_or_default();
    match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(limit) if limit > before => info!(before, limit, "raised the limit of open files"),
        Ok(limit) => debug!(limit, "limit of open files"),
        Err(error) => warn!(limit = before, %error, "cannot raise the limit of open files"),
    }
}

#[cfg(test)]
mod tests {
    use super::seed;

    #[test]
    fn a_seed_is_not_that_of_before() {
        let drawn = || {
            fastrand::seed(1);
            seed();
            fastrand::u128(..)
        };
        assert_ne!(drawn(), drawn());
    }
}
