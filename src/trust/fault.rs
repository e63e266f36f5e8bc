//! A file that cannot be used.

use std::fmt;
use std::path::{Path, PathBuf};

/// The reason why the files of a place cannot be used (CRT-3). The text contains no content of a file
/// (TLS-14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The key in the configuration, below the place: `certificates[0].private_key_file`.
    pub key: String,
    pub path: PathBuf,
    /// The PEM block with the error, counted from 1, and the number of blocks.
    pub block: Option<(usize, usize)>,
    pub reason: String,
    /// A rotation in progress can cause the fault: it may be over a moment later.
    pub may_pass: bool,
}

impl Fault {
    /// A fault that stays until somebody writes a file.
    pub fn new(path: &Path, reason: impl Into<String>) -> Fault {
        let (key, path) = (String::new(), path.to_owned());
        Fault { key, path, block: None, reason: reason.into(), may_pass: false }
    }

    /// A fault that half-written files cause, too.
    pub fn passing(path: &Path, reason: impl Into<String>) -> Fault {
        Fault { may_pass: true, ..Fault::new(path, reason) }
    }

    #[must_use]
    pub fn block(self, number: usize, count: usize) -> Fault {
        Fault { block: Some((number, count)), ..self }
    }

    #[must_use]
    pub fn at(self, key: impl Into<String>) -> Fault {
        Fault { key: key.into(), ..self }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some((number, count)) = self.block {
            write!(f, ", PEM block {number} of {count}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for Fault {}
