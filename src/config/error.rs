//! Errors of a configuration. The operator has to fix them, so the process exits with code 64.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

/// The reason why a configuration is rejected.
#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("cannot read {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: std::io::Error },
    #[error("line {line}, column {column}: {message}")]
    Syntax { line: u64, column: u64, message: String },
    /// All errors of the file, in the order in which the keys are documented.
    #[error("{}", lines(errors))]
    Invalid { errors: Vec<KeyError> },
}

/// An error and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError {
    /// The key's path: `xds_servers[0].channel_creds[0].type`. Empty: the file as a whole.
    pub path: String,
    pub problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    UnknownKey {
        nearest: Option<&'static str>,
        known: Vec<&'static str>,
    },
    Missing {
        expected: String,
    },
    Invalid {
        found: String,
        expected: String,
    },
    /// A key or value that is valid in general, but not supported by this version.
    Unsupported {
        what: String,
        instead: &'static str,
    },
    /// Values that are each valid, but not together.
    Contradiction {
        reason: String,
    },
}

/// A valid setting that probably has another effect than the operator expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub path: String,
    pub text: String,
}

fn lines(errors: &[KeyError]) -> String {
    errors.iter().map(KeyError::to_string).collect::<Vec<_>>().join("\n")
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => write!(f, "{}", self.problem),
            path => write!(f, "{path}: {}", self.problem),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::UnknownKey { nearest: Some(nearest), .. } => {
                write!(f, "unknown key; did you mean `{nearest}`?")
            }
            Problem::UnknownKey { nearest: None, known } => {
                write!(f, "unknown key; known here: {}", known.join(", "))
            }
            Problem::Missing { expected } => write!(f, "missing; expected {expected}"),
            Problem::Invalid { found, expected } => write!(f, "found {found}; expected {expected}"),
            Problem::Unsupported { what, instead } => {
                write!(f, "{what} is not supported by this version; {instead}")
            }
            Problem::Contradiction { reason } => f.write_str(reason),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.text)
    }
}
