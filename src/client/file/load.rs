//! Reads files into resources.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::debug;

use super::FileState;
use super::debounce::Stamp;
use crate::wire::json::{parse_json, parse_text, parse_yaml};
use crate::wire::upstream::{decode_file_response, undelimited};
use crate::xds::{Resource, ResourceName, SotwResponse, TypeUrl};

/// The content of one file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Loaded {
    type_url: TypeUrl,
    resources: Vec<Arc<Resource>>,
}

/// The reason why a directory's content is not served.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Problem {
    pub(super) path: PathBuf,
    pub(super) reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Json,
    Yaml,
    Binary,
    /// Binary, with a length prefix.
    Delimited,
    Text,
}

impl Format {
    fn of(path: &Path) -> Option<Format> {
        match path.extension()?.to_ascii_lowercase().to_str()? {
            "json" => Some(Format::Json),
            "yaml" | "yml" => Some(Format::Yaml),
            "pb" => Some(Format::Binary),
            "pb_length_delimited" => Some(Format::Delimited),
            "pb_text" => Some(Format::Text),
            _ => None,
        }
    }
}

/// The files of a directory to be served.
pub(super) fn scan(directory: &Path) -> io::Result<BTreeMap<OsString, Stamp>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let path = directory.join(&name);
        if name.as_bytes().starts_with(b".") {
            continue;
        }
        if Format::of(&path).is_none() {
            debug!(path = %path.display(), "ignored: unknown file extension");
            continue;
        }
        // The file may have vanished, or its symlink is dangling: skip the file.
        if let Ok(stamp) = stamp(&path) {
            files.insert(name, stamp);
        }
    }
    Ok(files)
}

/// Follows symlinks. An error if there is no file.
pub(super) fn stamp(path: &Path) -> io::Result<Stamp> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(Stamp {
        inode: (metadata.dev(), metadata.ino()),
        length: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
    })
}

/// Reads one file. The error contains the reason, with the line if known.
pub(super) fn read(path: &Path, bytes_max: u64) -> Result<Loaded, String> {
    let format = Format::of(path).ok_or("unknown file extension")?;
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > bytes_max {
        return Err(format!("the file is longer than {bytes_max} bytes"));
    }
    let response = match format {
        Format::Json => parse_json(text(&bytes)?).map_err(|error| error.to_string())?,
        Format::Yaml => parse_yaml(text(&bytes)?).map_err(|error| error.to_string())?,
        Format::Text => parse_text(text(&bytes)?).map_err(|error| error.to_string())?,
        Format::Binary => decode_file_response(bytes.into()).map_err(|error| error.to_string())?,
        Format::Delimited => {
            undelimited(bytes.into()).and_then(decode_file_response).map_err(|error| error.to_string())?
        }
    };
    loaded(response)
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line} is not UTF-8")
    })
}

/// A file is all or nothing: one unusable resource makes the file bad (FIL-7).
fn loaded(response: SotwResponse) -> Result<Loaded, String> {
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
    Ok(Loaded { type_url: response.type_url, resources })
}

/// The state of a directory, or all its problems.
pub(super) fn merge(
    directory: &Path,
    files: &BTreeMap<OsString, Result<Loaded, String>>,
) -> Result<FileState, BTreeSet<Problem>> {
    let mut problems = BTreeSet::new();
    let mut types: BTreeMap<TypeUrl, BTreeMap<ResourceName, (&Arc<Resource>, &OsString)>> = BTreeMap::new();
    for (file, content) in files {
        let mut problem = |reason| problems.insert(Problem { path: directory.join(file), reason });
        let loaded = match content {
            Ok(loaded) => loaded,
            Err(reason) => {
                problem(reason.clone());
                continue;
            }
        };
        let of_type = types.entry(loaded.type_url.clone()).or_default();
        for resource in &loaded.resources {
            if let Some((_, other)) = of_type.insert(resource.name.clone(), (resource, file)) {
                let (kind, name) = (loaded.type_url.short(), &resource.name);
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
