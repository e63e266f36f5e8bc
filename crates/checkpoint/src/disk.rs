//! Atomic replacement of a file: after a crash at any moment, either the old or the new file is there (FP2,
//! I13).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The extension of files still being written.
pub const UNFINISHED: &str = "unfinished";

/// The system calls of a write. Any of them may fail, or be the last before a crash.
pub trait Disk {
    type File;

    /// Creates an empty file that only its owner may read and write.
    fn create(&self, path: &Path) -> io::Result<Self::File>;
    fn write(&self, file: &mut Self::File, bytes: &[u8]) -> io::Result<()>;
    fn sync(&self, file: &mut Self::File) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The file system of the host.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostDisk;

impl Disk for HostDisk {
    type File = File;

    fn create(&self, path: &Path) -> io::Result<File> {
        // Remove the leftover of a crash. If another file or link then appears at the path, `create_new`
        // refuses to write through it.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => OpenOptions::new().write(true).create_new(true).mode(0o600).open(path),
        }
    }

    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn sync(&self, file: &mut File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        File::open(directory)?.sync_all()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

/// Replaces the file `name` in a directory: writes and syncs a temporary file, renames it, and syncs the
/// directory. Returns the result of `write`.
///
/// # Errors
/// Errors of the system calls and of `write`. The old file is still in place, unless only the last call
/// failed.
pub fn replace<D: Disk, T>(
    disk: &D,
    directory: &Path,
    name: &str,
    write: impl FnOnce(&mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<T>,
) -> io::Result<T> {
    let (path, unfinished) = (directory.join(name), directory.join(format!("{name}.{UNFINISHED}")));
    let attempt = || -> io::Result<T> {
        let mut file = disk.create(&unfinished)?;
        let written = write(&mut |piece| disk.write(&mut file, piece))?;
        disk.sync(&mut file)?;
        drop(file);
        disk.rename(&unfinished, &path)?;
        Ok(written)
    };
    let written = attempt();
    if written.is_err() {
        // The leftover takes disk space, but the next attempt overwrites it, so a failure here is harmless.
        let _ = disk.remove(&unfinished);
    }
    let written = written?;
    disk.sync_directory(directory)?;
    Ok(written)
}
