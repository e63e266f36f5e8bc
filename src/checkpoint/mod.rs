//! The last good state of sources on disk, for a warm restart (RLY-7).
//!
//! A directory holds one file per source ([`format`](self::format)), replaced as a whole ([`disk`]), by one relay at a time
//! ([`store`]). Everything in here blocks: callers see to it that no task waits for a disk.
//!
//! What is never written: Secrets, what is `do_not_cache`, what one stream has for itself, and what is read from files
//! anyway. Absence is not written either: only an upstream can say that something does not exist (RLY-2).

pub mod disk;
mod record;
pub mod format;
pub mod store;
#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use format::{Fault, Header, Restored};
pub use store::{Loaded, Refused, Store, StoreError};

/// Of bytes that stand for something: the same in every process and build.
pub type Digest = [u8; 32];

/// Which source a file is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The configuration's key of the server list.
    pub list: Box<str>,
    /// `server_uri`.
    pub server: Box<str>,
    /// Of the node class. Values of a node may be confidential, and are not written.
    pub class: Digest,
}

impl Identity {
    /// Fit for the name of a file, and different for different sources.
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

/// Of the files of sources.
pub const EXTENSION: &str = "checkpoint";

/// Microseconds since 1970; what is before is 1970.
fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The reverse; a time beyond what the platform can count is 1970.
fn time_of(micros: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_micros(micros)).unwrap_or(UNIX_EPOCH)
}
