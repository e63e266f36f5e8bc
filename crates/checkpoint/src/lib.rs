//! The last good state of sources on disk, for a warm restart (RLY-7).
//!
//! A directory holds one file per source ([`format`](self::format)). Each file is replaced as a whole
//! ([`disk`]), and one relay at a time owns the directory ([`store`]). All calls block, so callers must run
//! them outside async tasks.
//!
//! Beside the sources, one file has the state of all plans.
//!
//! Never written: Secrets, `do_not_cache` resources, the private state of single streams, and resources that
//! come from files anyway. Absence is not written either: only an upstream can say that a resource does not
//! exist (RLY-2).

pub mod disk;
mod record;
pub mod format;
pub mod store;
#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use format::{Header, Restored};
pub use record::FormatError;
pub use store::{Loaded, Refused, StateFile, Store, StoreError};

/// A hash that is equal in every process and build.
pub type Digest = [u8; 32];

/// The source that a file belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The configuration key of the server list.
    pub list: Box<str>,
    /// `server_uri`.
    pub server: Box<str>,
    /// A hash of the node class. The node's values may be confidential, and are not written.
    pub class: Digest,
}

impl Identity {
    /// A valid file name, unique to the source.
    pub fn file_name(&self) -> String {
        let mut hasher = blake3::Hasher::new_derive_key("sluice 2026 file of a source");
        for part in [self.list.as_bytes(), self.server.as_bytes(), &self.class] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let hex: String = hasher.finalize().as_bytes().iter().take(16).map(|b| format!("{b:02x}")).collect();
        format!("{hex}.{EXTENSION}")
    }
}

/// The extension of the sources' files.
pub const EXTENSION: &str = "checkpoint";

/// Microseconds since 1970. Times before 1970 become 1970.
fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The reverse of [`micros`]. Times beyond the platform's range become 1970.
fn time_of(micros: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_micros(micros)).unwrap_or(UNIX_EPOCH)
}
