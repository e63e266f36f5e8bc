//! Call metadata of the relay itself: a token (gRFC A97), and constant entries. A client's own metadata is
//! never passed on (IDN-12).
//!
//! 1. [`token`]: the expiry of a token.
//! 2. [`value_file`]: one value that is read from a file, again and again.

mod token;
mod value_file;

use std::path::PathBuf;

use http::{HeaderMap, HeaderName, HeaderValue, header};

pub use token::{TokenError, VALUE_BYTES_MAX, token_expiry};
use value_file::{Content, ValueFile};

use sluice_setting::Backoff;
use sluice_xds::Status;

/// The metadata of all calls to one server, as configured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CallMetadata {
    /// The file of a JSON Web Token, sent as `authorization: Bearer TOKEN` (IDN-9).
    pub token_file: Option<PathBuf>,
    pub initial: Vec<InitialMetadata>,
}

/// A constant entry (IDN-12).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InitialMetadata {
    pub key: HeaderName,
    pub value: MetadataValue,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MetadataValue {
    /// Marked as sensitive, so that neither logs nor HTTP/2's table of headers have the value.
    Text(HeaderValue),
    File(PathBuf),
}

impl MetadataValue {
    /// `None` if a header cannot have the value: control characters, or too long.
    pub fn text(text: &str) -> Option<MetadataValue> {
        let mut value = HeaderValue::from_str(text).ok().filter(|value| value.len() <= VALUE_BYTES_MAX)?;
        value.set_sensitive(true);
        Some(MetadataValue::Text(value))
    }
}

/// The metadata of all calls to one server, with the values of files.
#[derive(Debug)]
pub(super) struct MetadataInForce {
    entries: Vec<(HeaderName, EntryValue)>,
}

#[derive(Debug)]
enum EntryValue {
    Text(HeaderValue),
    File(ValueFile),
}

impl MetadataInForce {
    pub(super) fn new(metadata: &CallMetadata) -> MetadataInForce {
        let token = metadata.token_file.iter().map(|path| {
            (header::AUTHORIZATION, EntryValue::File(ValueFile::new(path.clone(), Content::Token)))
        });
        let initial = metadata.initial.iter().map(|entry| {
            let value = match &entry.value {
                MetadataValue::Text(text) => EntryValue::Text(text.clone()),
                MetadataValue::File(path) => {
                    EntryValue::File(ValueFile::new(path.clone(), Content::Constant))
                }
            };
            (entry.key.clone(), value)
        });
        MetadataInForce { entries: token.chain(initial).collect() }
    }

    /// Adds the metadata to the headers of one call.
    ///
    /// # Errors
    /// The status of the call, if a file has no usable value: UNAVAILABLE or UNAUTHENTICATED. After an error,
    /// the file is not read before the end of a backoff.
    pub(super) async fn add_to(&self, headers: &mut HeaderMap, backoff: &Backoff) -> Result<(), Status> {
        for (key, value) in &self.entries {
            let value = match value {
                EntryValue::Text(text) => text.clone(),
                EntryValue::File(file) => file.value(backoff).await?,
            };
            headers.append(key.clone(), value);
        }
        Ok(())
    }
}
