//! The checkpoint directory of one relay: the lock, and the files found at startup.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;

use super::disk::{Disk, HostDisk, UNFINISHED, replace};
use super::format::{decode, encode};
use super::{EXTENSION, FormatError, Header, Identity, Restored};
use sluice_engine::source::Image;

/// A state of the relay as a whole, in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateFile {
    /// The plans of rollouts (WAV-8).
    Plans,
    /// The splits of node classes (PRF-32).
    Splits,
    /// The memory of the ledger of several replicas (LDG-6).
    Ledger,
}

impl StateFile {
    fn name(self) -> &'static str {
        match self {
            StateFile::Plans => "rollouts.json",
            StateFile::Splits => "classes.json",
            StateFile::Ledger => "ledger.json",
        }
    }
}

/// The maximum size of such a state. Each has a bounded number of hashes.
const STATE_BYTES_MAX: u64 = 16 << 20;

/// The relay holds this lock while it uses the directory. The kernel releases the lock when the process ends,
/// in any way.
const LOCK: &str = "lock";

/// The reason why the directory is unusable.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("another process uses the directory")]
    Locked,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The reason why a file is ignored.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("not a regular file")]
    Irregular,
    #[error("other users can write to the file (mode {0:03o})")]
    Mode(u32),
    #[error("the file belongs to another user (uid {0})")]
    Owner(u32),
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error("the file name does not match the source in the file")]
    Misplaced,
    #[error("not a state of the relay: {0}")]
    State(String),
    #[error("the file has {0} bytes; a state of the relay has at most {STATE_BYTES_MAX}")]
    TooLarge(u64),
    #[error("{0}")]
    Unwanted(Unwanted),
    #[error("cannot read the file: {0}")]
    Io(#[from] io::Error),
}

/// The reason why an intact file is ignored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unwanted {
    #[error("the configuration has no server {server} in {list}")]
    Server { list: Box<str>, server: Box<str> },
    #[error("written by a relay with another `node`")]
    Relay,
    #[error("last confirmed {age} s ago; `max_age` is {max} s")]
    TooOld { age: u64, max: u64 },
}

/// The content of a directory.
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
    /// The lock came from a predecessor, which may be writing still (HND-2).
    is_inherited: AtomicBool,
}

impl Store {
    pub fn new(directory: PathBuf) -> Store {
        Store { directory, lock: Mutex::default(), is_inherited: AtomicBool::new(false) }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Creates the directory if necessary, and locks it for this process. Does nothing if this process holds
    /// the lock already.
    ///
    /// # Errors
    /// Another process holds the lock, or the host refuses access.
    pub fn open(&self) -> Result<(), StoreError> {
        let mut lock = self.lock.lock();
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

    /// The open lock, to be passed to a successor: the lock belongs to the open file, not to the process
    /// (HND-2). `None` if this process does not hold the lock.
    pub fn lock_file(&self) -> Option<io::Result<File>> {
        let lock = self.lock.lock();
        lock.as_ref().map(File::try_clone)
    }

    /// Takes a predecessor's lock of this directory over. False if the file is not the lock of the directory.
    pub fn inherit_lock(&self, file: File) -> bool {
        let identity = |metadata: io::Result<fs::Metadata>| {
            metadata.ok().map(|metadata| (metadata.dev(), metadata.ino()))
        };
        let lock_file = identity(fs::metadata(self.directory.join(LOCK)));
        let is_it = lock_file.is_some() && identity(file.metadata()) == lock_file;
        // The lock is held already: this only fails for a file that nobody had locked.
        let is_held = is_it && file.try_lock().is_ok();
        if is_held {
            self.is_inherited.store(true, Ordering::Relaxed);
            *self.lock.lock() = Some(file);
        }
        is_held
    }

    /// Reads the file of every source. The directory must be open. Removes files that are too old, and
    /// unfinished files left by a crash; those of a predecessor are under way.
    ///
    /// # Errors
    /// The directory cannot be listed. Errors of single files are in [`Loaded::refused`].
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
                if !self.is_inherited.load(Ordering::Relaxed) {
                    let _ = HostDisk.remove(&path);
                }
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

    /// Replaces the file of a source. Returns the file's size in bytes.
    ///
    /// # Errors
    /// Errors of the disk; the old file stays in place.
    pub fn write(&self, header: &Header, image: &Image) -> io::Result<u64> {
        let name = header.identity.file_name();
        replace(&HostDisk, &self.directory, &name, |sink| encode(header, image, sink))
    }

    /// Replaces a state of the relay.
    ///
    /// # Errors
    /// Errors of the disk; the old file stays in place.
    pub fn write_state(&self, file: StateFile, state: &[u8]) -> io::Result<()> {
        replace(&HostDisk, &self.directory, file.name(), |sink| sink(state))
    }

    /// Removes a state of the relay. Returns false if there is none.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn remove_state(&self, file: StateFile) -> io::Result<bool> {
        match HostDisk.remove(&self.directory.join(file.name())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed.and_then(|()| HostDisk.sync_directory(&self.directory)).map(|()| true),
        }
    }

    /// A state of the relay, as `read` understands it; `None` if there is no file.
    ///
    /// # Errors
    /// The file cannot be read, other users can write to it, or `read` fails.
    pub fn read_state<T>(
        &self,
        file: StateFile,
        read: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<Option<T>, (PathBuf, Refused)> {
        let path = self.directory.join(file.name());
        match read_own(&path, STATE_BYTES_MAX) {
            Ok(state) => read(&state).map(Some).map_err(|error| (path, Refused::State(error))),
            // A directory that cannot be used is told when it is opened.
            Err(Refused::Io(error))
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
            {
                Ok(None)
            }
            Err(refused) => Err((path, refused)),
        }
    }

    /// Removes the file of a source, if there is one.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn remove(&self, identity: &Identity) -> io::Result<()> {
        match HostDisk.remove(&self.directory.join(identity.file_name())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }
}

/// Whether a relay could use this directory. Neither creates the directory nor takes its lock, which a
/// running relay may hold.
///
/// # Errors
/// The directory, or its nearest parent if it does not exist, cannot be used.
pub fn check_usable(directory: &Path) -> io::Result<()> {
    let missing =
        |path: &&Path| fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let existing = directory.ancestors().find(|path| !missing(path)).unwrap_or(Path::new("/"));
    if existing == directory {
        check_directory(directory)?;
    }
    let probe = existing.join(format!(".sluice-check-{}", std::process::id()));
    File::options().write(true).create_new(true).mode(0o600).open(&probe)?;
    fs::remove_file(&probe)
}

/// A directory open to other users could contain files written by them.
///
/// # Errors
/// The directory belongs to another user, or other users may write to it.
fn check_directory(path: &Path) -> io::Result<()> {
    let metadata = fs::metadata(path)?;
    let fault = if is_of_another(&metadata) {
        format!("the directory belongs to another user (uid {})", metadata.uid())
    } else if metadata.mode() & 0o022 != 0 {
        format!(
            "other users can write to the directory (mode {:03o}); use a subdirectory created by the relay",
            metadata.mode() & 0o777
        )
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, fault))
}

/// Whether the owner is neither the user of this process nor root; root can write anything anyway.
fn is_of_another(metadata: &fs::Metadata) -> bool {
    let process_user = fs::metadata("/proc/self").map(|status| status.uid());
    metadata.uid() != 0 && process_user.is_ok_and(|user| user != metadata.uid())
}

fn read(
    path: &Path,
    now: SystemTime,
    judge: &dyn Fn(&Header) -> Result<(), Unwanted>,
) -> Result<(u64, Restored), Refused> {
    let bytes = read_own(path, u64::MAX)?;
    let source = decode(&bytes, now)?;
    if path.file_name().is_none_or(|name| *name != *source.header.identity.file_name()) {
        return Err(Refused::Misplaced);
    }
    judge(&source.header).map_err(Refused::Unwanted)?;
    Ok((bytes.len() as u64, source))
}

/// Reads a file that no other user can write to.
fn read_own(path: &Path, bytes_max: u64) -> Result<Vec<u8>, Refused> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(Refused::Irregular);
    }
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.mode() & 0o022 != 0 {
        return Err(Refused::Mode(metadata.mode() & 0o777));
    }
    if is_of_another(&metadata) {
        return Err(Refused::Owner(metadata.uid()));
    }
    if metadata.len() > bytes_max {
        return Err(Refused::TooLarge(metadata.len()));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}
