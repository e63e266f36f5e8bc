//! How a file is replaced so that a crash at any moment leaves the old one or the new one (FP2, I13).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Ends the names of files that are being written.
pub const UNFINISHED: &str = "unfinished";

/// The calls to the operating system that writing takes, each of which may fail, or be the last.
pub trait Disk {
    type File;

    /// An empty file that only its owner may read and write.
    fn create(&self, path: &Path) -> io::Result<Self::File>;
    fn write(&self, file: &mut Self::File, bytes: &[u8]) -> io::Result<()>;
    fn sync(&self, file: &mut Self::File) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// That of the host.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostDisk;

impl Disk for HostDisk {
    type File = File;

    fn create(&self, path: &Path) -> io::Result<File> {
        // What a crash left behind goes. Whatever else comes to stand there meanwhile, a link too, is not written through.
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

/// Writes `name` in a directory anew: beside it first, down to the disk, then in its place, and that down to the disk too.
/// Gives what `write` gives.
///
/// # Errors
/// Those of the calls, and of `write`. The old file is still there, unless only the last call failed.
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
        // It takes room, and the next attempt writes it over: that it stays is no further fault.
        let _ = disk.remove(&unfinished);
    }
    let written = written?;
    disk.sync_directory(directory)?;
    Ok(written)
}
