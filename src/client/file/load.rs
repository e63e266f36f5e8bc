//! Reads files into resources.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::debug;

use super::FileState;
use super::changes::KUBERNETES_DATA;
use super::debounce::FileStamp;
use crate::trust::contents::{self, ReadFileError};
use sluice_json::{JsonError, parse_json, parse_text, parse_yaml};
use sluice_wire::upstream::{DecodeError, decode_file_response, undelimited};
use sluice_xds::{Resource, ResourceName, SotwResponse, TypeUrl};

/// The content of one file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LoadedFile {
    /// `None` for a file without resources and without a type.
    type_url: Option<TypeUrl>,
    resources: Vec<Arc<Resource>>,
}

impl LoadedFile {
    pub(super) fn says_nothing(&self) -> bool {
        self.type_url.is_none()
    }

    pub(super) fn has_resources(&self) -> bool {
        !self.resources.is_empty()
    }
}

/// The reason why a file is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// The content is unknown: no change of the file will show that it can be read again.
    Unreadable(String),
    Content(String),
}

/// The reason why a directory's content is not served.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileProblem {
    pub(super) path: PathBuf,
    pub(super) reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileFormat {
    Json,
    Yaml,
    Binary,
    /// Binary, with a length prefix.
    Delimited,
    Text,
}

impl FileFormat {
    fn of(path: &Path) -> Option<FileFormat> {
        match path.extension()?.to_ascii_lowercase().to_str()? {
            "json" => Some(FileFormat::Json),
            "yaml" | "yml" => Some(FileFormat::Yaml),
            "pb" => Some(FileFormat::Binary),
            "pb_length_delimited" => Some(FileFormat::Delimited),
            "pb_text" => Some(FileFormat::Text),
            _ => None,
        }
    }
}

/// The entries of a directory with the extension of a format.
#[derive(Debug, Default)]
pub(super) struct DirectoryListing {
    pub(super) files: BTreeMap<OsString, FileStamp>,
    /// The entries that cannot be looked at, with the reasons. Their files may still exist.
    pub(super) faults: BTreeMap<OsString, String>,
    /// The subdirectories, sockets and the like.
    pub(super) others: BTreeSet<OsString>,
}

impl DirectoryListing {
    pub(super) fn has_no_file(&self) -> bool {
        self.files.is_empty() && self.faults.is_empty()
    }
}

enum FileEntry {
    File(FileStamp),
    Other,
    Gone,
}

/// Looks at all entries of a directory.
pub(super) fn scan(directory: &Path) -> io::Result<DirectoryListing> {
    let mut listing = DirectoryListing::default();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let path = directory.join(&name);
        if name.as_bytes().starts_with(b".") {
            continue;
        }
        if FileFormat::of(&path).is_none() {
            debug!(path = %path.display(), "ignored: unknown file extension");
            continue;
        }
        match look_at(&path) {
            Ok(FileEntry::File(stamp)) => {
                listing.files.insert(name, stamp);
            }
            Ok(FileEntry::Other) => {
                listing.others.insert(name);
            }
            Ok(FileEntry::Gone) => {}
            Err(reason) => {
                listing.faults.insert(name, reason);
            }
        }
    }
    Ok(listing)
}

/// An entry of the listing. Only a name that the directory no longer has is gone. Any other error is the
/// fault of a file that may still exist: a permission, a disk, a volume that is away for a moment.
fn look_at(path: &Path) -> Result<FileEntry, String> {
    let fault = |error: io::Error| format!("cannot look at the file: {error}");
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(FileEntry::File(FileStamp::of(&metadata))),
        Ok(_) => Ok(FileEntry::Other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::read_link(path) {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(FileEntry::Gone),
            Ok(target) if left_its_volume(path, &target) => Ok(FileEntry::Gone),
            Ok(target) => Err(format!("a link to {}, which does not exist", target.display())),
            Err(_) => Err(fault(error)),
        },
        Err(error) => Err(fault(error)),
    }
}

/// Whether a dangling link shows a key that left a Kubernetes volume (FIL-2). The kubelet replaces the volume
/// by a swap of `..data`, and then removes the link.
fn left_its_volume(link: &Path, target: &Path) -> bool {
    let Some(directory) = link.parent() else { return false };
    target.starts_with(KUBERNETES_DATA) && directory.join(KUBERNETES_DATA).is_dir()
}

/// Follows symlinks. An error if there is no file.
pub(super) fn stamp(path: &Path) -> io::Result<FileStamp> {
    let metadata = fs::metadata(path)?;
    if metadata.is_file() { Ok(FileStamp::of(&metadata)) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

impl FileStamp {
    fn of(metadata: &fs::Metadata) -> FileStamp {
        FileStamp {
            inode: (metadata.dev(), metadata.ino()),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// Reads one file.
pub(super) fn read(path: &Path, bytes_max: u64) -> Result<LoadedFile, Unusable> {
    let bytes = contents::read_file(path, bytes_max).map_err(|error| match error {
        ReadFileError::TooLong(_) => Unusable::Content(format!("the file is {error}")),
        ReadFileError::NotRegular | ReadFileError::Failed(_) => {
            Unusable::Unreadable(format!("cannot read the file: {error}"))
        }
    })?;
    parse(path, bytes).map_err(Unusable::Content)
}

/// The error contains the reason, with the line if known.
fn parse(path: &Path, bytes: Vec<u8>) -> Result<LoadedFile, String> {
    let format = FileFormat::of(path).ok_or("unknown file extension")?;
    let parse = match format {
        FileFormat::Json => parse_json,
        FileFormat::Yaml => parse_yaml,
        FileFormat::Text => parse_text,
        FileFormat::Binary | FileFormat::Delimited => {
            let is_delimited = format == FileFormat::Delimited;
            let message = if is_delimited { undelimited(bytes.into()) } else { Ok(bytes.into()) };
            return loaded(message.and_then(decode_file_response).map_err(|error| error.to_string())?);
        }
    };
    let text = text(&bytes)?;
    match parse(text) {
        Ok(response) => loaded(response),
        // An empty file was cut off more likely than written.
        Err(JsonError::Response(DecodeError::NoType)) if !text.trim().is_empty() => {
            Ok(LoadedFile { type_url: None, resources: Vec::new() })
        }
        Err(error) => Err(error.to_string()),
    }
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line} is not UTF-8")
    })
}

/// A file is all or nothing: one unusable resource makes the file bad (FIL-7).
fn loaded(response: SotwResponse) -> Result<LoadedFile, String> {
    let mut resources = Vec::with_capacity(response.resources.len());
    for (index, element) in response.resources.into_iter().enumerate() {
        let received = element.map_err(|bad| match bad.name {
            Some(name) => format!("resources[{index}] {name:?}: {}", bad.reason),
            None => format!("resources[{index}]: {}", bad.reason),
        })?;
        let name = received.name;
        resources
            .push(received.resource.ok_or_else(|| format!("resources[{index}] {name:?} has no content"))?);
    }
    Ok(LoadedFile { type_url: Some(response.type_url), resources })
}

/// The state of a directory, or all its problems. A directory without a file is a problem, as at the start
/// (FIL-3): it may be the place of a volume that is not mounted.
pub(super) fn merge(
    directory: &Path,
    files: &BTreeMap<OsString, Result<LoadedFile, Unusable>>,
    faults: &BTreeMap<OsString, String>,
) -> Result<FileState, BTreeSet<FileProblem>> {
    let of_file = |(name, reason): (&OsString, &String)| FileProblem {
        path: directory.join(name),
        reason: reason.clone(),
    };
    let mut problems: BTreeSet<_> = faults.iter().map(of_file).collect();
    if files.is_empty() && faults.is_empty() {
        let reason = "the directory contains no file to serve".to_owned();
        problems.insert(FileProblem { path: directory.to_owned(), reason });
    }
    let mut types: BTreeMap<TypeUrl, BTreeMap<ResourceName, (&Arc<Resource>, &OsString)>> = BTreeMap::new();
    for (file, content) in files {
        let mut problem = |reason| problems.insert(FileProblem { path: directory.join(file), reason });
        let loaded = match content {
            Ok(loaded) => loaded,
            Err(Unusable::Unreadable(reason) | Unusable::Content(reason)) => {
                problem(reason.clone());
                continue;
            }
        };
        let Some(type_url) = &loaded.type_url else { continue };
        let of_type = types.entry(type_url.clone()).or_default();
        for resource in &loaded.resources {
            if let Some((_, other)) = of_type.insert(resource.name.clone(), (resource, file)) {
                let (kind, name) = (type_url.short(), &resource.name);
                let other = directory.join(other);
                problem(format!("the {kind} {name:?} is already in {}", other.display()));
            }
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let values =
        |names: BTreeMap<_, (&Arc<Resource>, _)>| names.into_values().map(|(r, _)| r.clone()).collect();
    Ok(types.into_iter().map(|(type_url, names)| (type_url, values(names))).collect())
}
