//! The files of a place, read as a whole (CRT-2). The bounded read of any file.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use thiserror::Error;

use super::fault::Fault;

/// The longest file (SEC-10). The bundles of all public authorities take 300 KiB.
pub const FILE_BYTES_MAX: u64 = 4 << 20;

/// A file of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceFile {
    /// The key in the configuration, below the place: `certificates[0].private_key_file`.
    pub key: String,
    pub path: PathBuf,
}

impl PlaceFile {
    pub fn new(key: impl Into<String>, path: &Path) -> PlaceFile {
        PlaceFile { key: key.into(), path: path.to_owned() }
    }
}

/// A file changed so recently may change again without a new time: clocks of file systems have ticks, and
/// some count seconds.
const TICK: Duration = Duration::from_secs(2);

/// The state of a file without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Device and inode. Links are followed, so a swap of the `..data` link of a mounted volume counts.
    pub inode: (u64, u64),
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<Metadata> for Stamp {
    fn from(metadata: Metadata) -> Stamp {
        Stamp {
            inode: (metadata.dev(), metadata.ino()),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Stamp {
    fn is_recent(&self, now: SystemTime) -> bool {
        let seconds = u64::try_from(self.changed.0).unwrap_or_default();
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) + TICK >= now
    }
}

/// The stamps of all files of a place; `None` stands for a file without a stamp.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamps(Vec<Option<Stamp>>);

impl Stamps {
    pub fn of(files: &[PlaceFile]) -> Stamps {
        Stamps(files.iter().map(|file| fs::metadata(&file.path).ok().map(Stamp::from)).collect())
    }

    /// Whether equal stamps may hide another content.
    pub fn are_recent(&self, now: SystemTime) -> bool {
        self.0.iter().flatten().any(|stamp| stamp.is_recent(now))
    }
}

/// The contents of all files of a place, from one moment.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Contents(BTreeMap<PathBuf, Vec<u8>>);

impl Contents {
    /// Reads all files, between two equal looks at their stamps.
    ///
    /// # Errors
    /// The first unreadable file, or a file that changed meanwhile.
    pub fn read(files: &[PlaceFile]) -> Result<(Contents, Stamps), Fault> {
        let before = Stamps::of(files);
        let mut contents = BTreeMap::new();
        for PlaceFile { key, path } in files {
            if !contents.contains_key(path) {
                contents.insert(path.clone(), read(path).map_err(|fault| fault.at(key))?);
            }
        }
        let after = Stamps::of(files);
        let moved = before.0.iter().zip(&after.0).position(|(before, after)| before != after);
        if let Some(PlaceFile { key, path }) = moved.and_then(|at| files.get(at)) {
            return Err(Fault::passing(path, "the file changed while it was read").at(key));
        }
        Ok((Contents(contents), before))
    }

    /// A digest of all paths and contents. The contents are not kept: one of them is a private key.
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        for (path, bytes) in &self.0 {
            let path = path.as_os_str().as_encoded_bytes();
            for part in [path, bytes] {
                hasher.update(&(part.len() as u64).to_le_bytes());
                hasher.update(part);
            }
        }
        *hasher.finalize().as_bytes()
    }

    /// The content of a file; empty for a path that is no file of the place.
    pub fn of(&self, path: &Path) -> &[u8] {
        self.0.get(path).map(Vec::as_slice).unwrap_or_default()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Fault> {
    read_file(path, FILE_BYTES_MAX).map_err(|error| match error {
        ReadFileError::NotRegular => Fault::new(path, error.to_string()),
        ReadFileError::TooLong(bytes) => Fault::new(path, format!("longer than {} MiB", bytes >> 20)),
        ReadFileError::Failed(error) => Fault::passing(path, format!("cannot read the file: {error}")),
    })
}

/// The reason why a bounded read has no content.
#[derive(Debug, Error)]
pub enum ReadFileError {
    #[error("not a regular file")]
    NotRegular,
    #[error("longer than {0} bytes")]
    TooLong(u64),
    #[error(transparent)]
    Failed(#[from] io::Error),
}

/// The content of a regular file of at most `bytes_max` bytes. No more than this is ever in memory.
pub fn read_file(path: &Path, bytes_max: u64) -> Result<Vec<u8>, ReadFileError> {
    // Looked at first: to open a pipe waits for a writer.
    if !fs::metadata(path)?.is_file() {
        return Err(ReadFileError::NotRegular);
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max { Err(ReadFileError::TooLong(bytes_max)) } else { Ok(bytes) }
}

/// The content of a file in UTF-8, as [`read_file`] reads it.
pub fn read_text(path: &Path, bytes_max: u64) -> Result<String, ReadFileError> {
    let not_utf_8 = |_| io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8");
    Ok(String::from_utf8(read_file(path, bytes_max)?).map_err(not_utf_8)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rustix::fs::{FileType, Mode};

    use super::*;

    #[test]
    fn sec_10_a_long_file_a_directory_a_pipe_and_no_file_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let long = directory.path().join("long");
        File::create(&long).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        for (path, reason) in [
            (pipe, "not a regular file"),
            (long, "longer than 4 MiB"),
            (directory.path().to_owned(), "not a regular file"),
            (directory.path().join("absent"), "cannot read the file: No such file or directory (os error 2)"),
        ] {
            let fault = Contents::read(&[PlaceFile::new("some_file", &path)]).err().unwrap();
            assert_eq!((fault.path, fault.reason.as_str()), (path, reason));
            assert_eq!(fault.key, "some_file");
        }
    }

    #[test]
    fn crt_1_another_target_of_a_link_is_another_stamp() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["old", "new"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("tls.crt"), "equal length").unwrap();
        }
        std::os::unix::fs::symlink("old", at("..data")).unwrap();
        std::os::unix::fs::symlink("..data/tls.crt", at("tls.crt")).unwrap();
        let paths = [PlaceFile::new("certificate_file", &at("tls.crt"))];
        let before = Stamps::of(&paths);
        assert_eq!(before, Stamps::of(&paths));
        std::os::unix::fs::symlink("new", at("..swap")).unwrap();
        fs::rename(at("..swap"), at("..data")).unwrap();
        assert_ne!(before, Stamps::of(&paths));
    }
}
