//! The kernel's figures about this process.

use std::fs;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Resident memory in bytes; `None` if `/proc` is unavailable.
pub fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// How long the result of a walk over the descriptors is reused: several collectors cost one walk. Shorter
/// than the interval between two scrapes.
const WALK_AGE_MAX: Duration = Duration::from_secs(5);

/// The open file descriptors.
#[derive(Debug, Default)]
pub(super) struct OpenFds {
    walked: Mutex<Option<(Instant, u64)>>,
}

impl OpenFds {
    /// `None` if `/proc` is unavailable.
    pub(super) fn count(&self, now: Instant) -> Option<u64> {
        // Linux 6.2 and later report the number. Earlier kernels need a walk, which takes milliseconds if
        // there are many.
        let counted = fs::metadata("/proc/self/fd").ok().map(|metadata| metadata.len());
        counted.filter(|count| *count > 0).or_else(|| {
            // Reading the directory takes one descriptor itself.
            self.walk(now, || Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as u64))
        })
    }

    /// Only one thread walks at a time; other threads wait for its result.
    fn walk(&self, now: Instant, walk: impl FnOnce() -> Option<u64>) -> Option<u64> {
        let mut walked = self.walked.lock();
        match *walked {
            Some((at, count)) if now.saturating_duration_since(at) < WALK_AGE_MAX => Some(count),
            _ => {
                let count = walk()?;
                *walked = Some((now, count));
                Some(count)
            }
        }
    }
}

/// The soft limit of open file descriptors.
pub(super) fn max_fds() -> Option<u64> {
    rlimit::getrlimit(rlimit::Resource::NOFILE).ok().map(|(soft, _)| soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_walked_once_in_a_while() {
        let (fds, now) = (OpenFds::default(), Instant::now());
        assert_eq!(fds.walk(now, || Some(7)), Some(7));
        let again = fds.walk(now + WALK_AGE_MAX / 2, || panic!("it was walked just now"));
        assert_eq!(again, Some(7));
        assert_eq!(fds.walk(now + WALK_AGE_MAX, || Some(8)), Some(8));
    }
}
