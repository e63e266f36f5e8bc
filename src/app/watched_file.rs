//! A file that is read again when it changes.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

/// A poll by path: notifications of the kernel get lost, and see nothing on network file systems.
pub(super) struct WatchedFile {
    path: PathBuf,
    /// The interval of looks. A content is read when two looks in a row found it the same, so that a file in the middle
    /// of a write is left alone.
    interval: Duration,
    read: Option<Stamp>,
    last: Option<Stamp>,
}

/// Tells contents apart without reading them. Links are followed, so a swap of `..data` shows.
#[derive(PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        Stamp {
            inode: (metadata.dev(), metadata.ino()),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl WatchedFile {
    pub fn new(path: PathBuf, interval: Duration) -> WatchedFile {
        WatchedFile { path, interval, read: None, last: None }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the next look. True if the file is to be read: at the first looks too, because the start may have read
    /// another content.
    ///
    /// # Errors
    /// The file cannot be looked at. Once it is back, it is read again.
    pub async fn look(&mut self) -> io::Result<bool> {
        sleep(self.interval).await;
        let found = match tokio::fs::metadata(&self.path).await {
            Ok(metadata) => Some(Stamp::of(&metadata)),
            Err(error) => {
                (self.read, self.last) = (None, None);
                return Err(error);
            }
        };
        let is_due = found == self.last && found != self.read;
        match is_due {
            true => self.read = found,
            false => self.last = found,
        }
        Ok(is_due)
    }
}
