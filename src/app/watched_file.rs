//! A file that is read again when it changes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;
use tracing::info;

use crate::config::ConfigError;
use crate::trust::contents::Stamp;

/// A file that is replaced before each look is read at this look in a row: its content is whole each time.
const REPLACED_MAX: u32 = 3;
/// A file that changes in place before each look is a fault after this many looks: nobody knows when it is
/// whole.
const CHANGING_MAX: u32 = 20;

/// A poll by path: notifications of the kernel get lost, and see nothing on network file systems.
pub(super) struct WatchedFile {
    path: PathBuf,
    /// The interval of looks. A content is read when two looks in a row found it the same, so that a file in
    /// the middle of a write is left alone.
    interval: Duration,
    /// The file at the last read that was no fault of the disk.
    read: Option<Stamp>,
    last: Option<Stamp>,
    /// The looks in a row that found another file than the look before.
    changes: u32,
    /// The fault of the last content. Each fault is told once.
    fault: Option<String>,
}

/// The result of a look.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look<T> {
    /// The content, read anew. The start may have read another one, so the first looks read it, too.
    Content(T),
    /// The content is that of the last read, which is in use.
    Confirmed,
    /// The file cannot be used, for a reason that was not told before.
    Fault(String),
    /// The file is on its way, or its fault was told.
    Nothing,
}

impl WatchedFile {
    pub fn new(path: PathBuf, interval: Duration) -> WatchedFile {
        WatchedFile { path, interval, read: None, last: None, changes: 0, fault: None }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the next look, and reads the file if it is another one. `load` runs on a thread that may
    /// wait for disks.
    pub async fn look<T: Send + 'static>(
        &mut self,
        load: impl FnOnce(&Path) -> Result<T, ConfigError> + Send + 'static,
    ) -> Look<T> {
        sleep(self.interval).await;
        let stamp = match tokio::fs::metadata(&self.path).await {
            Ok(metadata) => Stamp::from(metadata),
            Err(error) => {
                (self.read, self.last) = (None, None);
                return self.tell(error.to_string());
            }
        };
        let previous = self.last.replace(stamp);
        if self.read == Some(stamp) {
            self.changes = 0;
            return if self.fault.is_none() { Look::Confirmed } else { Look::Nothing };
        }
        self.changes = if previous == Some(stamp) { 0 } else { self.changes + 1 };
        let is_replaced = previous.is_some_and(|previous| previous.inode != stamp.inode);
        if self.changes > 0 && !(is_replaced && self.changes >= REPLACED_MAX) {
            let is_fault = self.changes >= CHANGING_MAX && !is_replaced;
            let fault = || "the file changes before each look, and is not read meanwhile".to_owned();
            return if is_fault { self.tell(fault()) } else { Look::Nothing };
        }
        let path = self.path.clone();
        match tokio::task::spawn_blocking(move || load(&path)).await {
            Ok(Ok(content)) => {
                self.read = Some(stamp);
                if self.fault.take().is_some() {
                    info!(file = %self.path.display(), "the file can be used again");
                }
                Look::Content(content)
            }
            Ok(Err(error)) => {
                // A fault of the disk may pass with the same file.
                self.read = (!matches!(error, ConfigError::Unreadable { .. })).then_some(stamp);
                self.tell(error.to_string())
            }
            Err(error) => self.tell(error.to_string()),
        }
    }

    fn tell<T>(&mut self, fault: String) -> Look<T> {
        if self.fault.as_ref() == Some(&fault) {
            return Look::Nothing;
        }
        self.fault = Some(fault.clone());
        Look::Fault(fault)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::io::{self, Write};

    use super::*;

    struct Site {
        directory: tempfile::TempDir,
        file: WatchedFile,
    }

    fn site() -> Site {
        let directory = tempfile::tempdir().unwrap();
        let file = WatchedFile::new(directory.path().join("file"), Duration::from_millis(1));
        Site { directory, file }
    }

    fn load(path: &Path) -> Result<String, ConfigError> {
        fs::read_to_string(path).map_err(|error| ConfigError::Unreadable { path: path.to_owned(), error })
    }

    impl Site {
        /// Puts a whole content in the place of the file.
        fn replace(&self, text: &str) {
            let next = self.directory.path().join("next");
            fs::write(&next, text).unwrap();
            fs::rename(next, self.file.path()).unwrap();
        }

        async fn look(&mut self) -> Look<String> {
            self.file.look(load).await
        }
    }

    fn content(text: &str) -> Look<String> {
        Look::Content(text.to_owned())
    }

    #[tokio::test]
    async fn rel_8_a_content_is_read_once_two_looks_found_it() {
        let mut site = site();
        site.replace("a");
        assert_eq!(site.look().await, Look::Nothing);
        assert_eq!(site.look().await, content("a"));
        assert_eq!(site.look().await, Look::Confirmed);
        site.replace("b");
        assert_eq!(site.look().await, Look::Nothing, "another content is no confirmation");
        assert_eq!(site.look().await, content("b"));
    }

    /// A table that a controller writes for each Pod that comes and goes.
    #[tokio::test]
    async fn rel_8_a_file_that_is_replaced_before_each_look_is_read() {
        let mut site = site();
        site.replace("0");
        let mut read = 0;
        for number in 1..=20 {
            site.replace(&number.to_string());
            match site.look().await {
                Look::Content(text) => {
                    assert_eq!(text, number.to_string());
                    read += 1;
                }
                look => assert_eq!(look, Look::Nothing),
            }
        }
        assert!(read >= 15, "{read} of 20");
    }

    /// Half a write is no content, and a file that is written for ever is told.
    #[tokio::test]
    async fn rel_8_a_file_that_changes_in_place_is_not_read_and_told() {
        let mut site = site();
        site.replace("0");
        assert_eq!(site.look().await, Look::Nothing);
        assert_eq!(site.look().await, content("0"));
        let mut open = fs::File::options().append(true).open(site.file.path()).unwrap();
        let mut told = Vec::new();
        for _ in 0..30 {
            open.write_all(b"1").unwrap();
            told.push(site.look().await);
        }
        let faults = told.iter().filter(|look| matches!(look, Look::Fault(_))).count();
        assert_eq!((faults, told.iter().filter(|look| **look == Look::Nothing).count()), (1, 29));
        assert_eq!(site.look().await, content(&format!("0{}", "1".repeat(30))));
    }

    #[tokio::test]
    async fn rel_8_a_fault_is_told_once_and_a_fault_of_the_disk_is_tried_again() {
        let mut site = site();
        assert!(matches!(site.look().await, Look::Fault(text) if text.contains("No such file")));
        assert_eq!(site.look().await, Look::Nothing);
        site.replace("a");
        assert_eq!(site.look().await, Look::Nothing);
        let path = site.file.path().to_owned();
        let broken = || ConfigError::Unreadable { path: path.clone(), error: io::Error::other("EIO") };
        let error = broken();
        assert!(matches!(site.file.look::<()>(move |_| Err(error)).await, Look::Fault(_)));
        let error = broken();
        assert_eq!(site.file.look::<()>(move |_| Err(error)).await, Look::Nothing);
        assert_eq!(site.look().await, content("a"), "of the same file");
        let invalid = ConfigError::Invalid { errors: Vec::new() };
        site.replace("b");
        assert_eq!(site.look().await, Look::Nothing);
        assert!(matches!(site.file.look::<()>(move |_| Err(invalid)).await, Look::Fault(_)));
        assert_eq!(site.look().await, Look::Nothing, "a bad content stays bad");
    }
}
