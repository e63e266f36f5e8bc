//! The directory of one relay: what is in it at the start, and who may write to it.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use super::disk::{Disk, HostDisk, UNFINISHED, replace};
use super::format::{decode, encode};
use super::{EXTENSION, Fault, Header, Identity, Restored};
use crate::engine::source::Image;

/// Locked for as long as a relay uses the directory; the kernel lets go when the process ends, however it does.
const LOCK: &str = "lock";

/// Why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("another process uses the directory")]
    Locked,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("it is no regular file")]
    Irregular,
    #[error("others may write to it (mode {0:03o})")]
    Mode(u32),
    #[error("it belongs to another user ({0})")]
    Owner(u32),
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error("it is not the file of the source that it names")]
    Misplaced,
    #[error("{0}")]
    Unwanted(Unwanted),
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// Why a file that is in order is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unwanted {
    #[error("it is of {list} at {server}, which the configuration does not name")]
    Server { list: Box<str>, server: Box<str> },
    #[error("it was written by a relay with another `node`")]
    Relay,
    #[error("what it holds was confirmed {age} s ago, and `max_age` is {max} s")]
    TooOld { age: u64, max: u64 },
}

/// What a directory held.
#[derive(Debug, Default)]
pub struct Loaded {
    pub sources: Vec<Restored>,
    pub bytes: u64,
    pub refused: Vec<(PathBuf, Refused)>,
}

#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    lock: Mutex<Option<File>>,
}

impl Store {
    pub fn new(directory: PathBuf) -> Store {
        Store { directory, lock: Mutex::default() }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes the directory if need be, and takes it for this process. Once it is taken, this does nothing.
    ///
    /// # Errors
    /// If another process has it, or the host does not let it be.
    pub fn open(&self) -> Result<(), StoreError> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if lock.is_some() {
            return Ok(());
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        check_directory(&self.directory)?;
        let mut options = File::options();
        let file =
            options.write(true).create(true).truncate(false).mode(0o600).open(self.directory.join(LOCK))?;
        match file.try_lock() {
            Ok(()) => *lock = Some(file),
            Err(TryLockError::WouldBlock) => return Err(StoreError::Locked),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        Ok(())
    }

    /// Reads every source that is there. The directory must be open. Files that are too old, and what a crash left
    /// unfinished, are removed.
    ///
    /// # Errors
    /// If the directory cannot be listed; of a single file, [`Loaded::refused`] tells.
    pub fn load(
        &self,
        now: SystemTime,
        judge: &dyn Fn(&Header) -> Result<(), Unwanted>,
    ) -> io::Result<Loaded> {
        let mut loaded = Loaded::default();
        let mut paths: Vec<_> = fs::read_dir(&self.directory)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        paths.sort();
        for path in paths {
            let extension = path.extension().unwrap_or_default();
            if extension == UNFINISHED {
                let _ = HostDisk.remove(&path);
            } else if extension == EXTENSION {
                match read(&path, now, judge) {
                    Ok((bytes, source)) => {
                        loaded.bytes += bytes;
                        loaded.sources.push(source);
                    }
                    Err(refused) => {
                        if matches!(refused, Refused::Unwanted(Unwanted::TooOld { .. })) {
                            let _ = HostDisk.remove(&path);
                        }
                        loaded.refused.push((path, refused));
                    }
                }
            }
        }
        Ok(loaded)
    }

    /// Replaces the file of a source. How many bytes it has.
    ///
    /// # Errors
    /// Those of the disk; the old file stays.
    pub fn write(&self, header: &Header, image: &Image) -> io::Result<u64> {
        let name = header.identity.file_name();
        replace(&HostDisk, &self.directory, &name, |sink| encode(header, image, sink))
    }

    /// Removes the file of a source, if there is one.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn remove(&self, identity: &Identity) -> io::Result<()> {
        match HostDisk.remove(&self.directory.join(identity.file_name())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }
}

/// What others may write into a directory is as good as written by them.
///
/// # Errors
/// It is another's, or open to others.
fn check_directory(path: &Path) -> io::Result<()> {
    let found = fs::metadata(path)?;
    let fault = if is_of_another(&found) {
        format!("it belongs to another user (uid {})", found.uid())
    } else if found.mode() & 0o022 != 0 {
        format!(
            "others may write to it (mode {:03o}); a directory within it, made by the relay, will do",
            found.mode() & 0o777
        )
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, fault))
}

/// Not of whoever runs this process, nor of root, who may write anything anyway.
fn is_of_another(found: &fs::Metadata) -> bool {
    let own = fs::metadata("/proc/self").map(|own| own.uid());
    found.uid() != 0 && own.is_ok_and(|own| own != found.uid())
}

fn read(
    path: &Path,
    now: SystemTime,
    judge: &dyn Fn(&Header) -> Result<(), Unwanted>,
) -> Result<(u64, Restored), Refused> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(Refused::Irregular);
    }
    let mut file = File::open(path)?;
    let found = file.metadata()?;
    if found.mode() & 0o022 != 0 {
        return Err(Refused::Mode(found.mode() & 0o777));
    }
    if is_of_another(&found) {
        return Err(Refused::Owner(found.uid()));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(found.len()).unwrap_or_default());
    file.read_to_end(&mut bytes)?;
    let source = decode(&bytes, now)?;
    if path.file_name().is_none_or(|name| *name != *source.header.identity.file_name()) {
        return Err(Refused::Misplaced);
    }
    judge(&source.header).map_err(Refused::Unwanted)?;
    Ok((bytes.len() as u64, source))
}
