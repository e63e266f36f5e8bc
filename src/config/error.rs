//! Errors of a configuration. The operator has to fix them, so the process exits with code 64.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A line and a column of a file, both from 1. Columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub line: u32,
    pub column: u32,
}

impl Place {
    /// The first character of a file.
    pub const START: Place = Place { line: 1, column: 1 };

    /// From a parser's counts; 0 stands for an unknown place.
    pub(super) fn new(line: u64, column: u64) -> Place {
        let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX).max(1);
        Place { line: number(line), column: number(column) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// The reason why a configuration is rejected.
#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("cannot read {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: std::io::Error },
    #[error("{place}: {message}")]
    Syntax { place: Place, message: String },
    /// All errors of the file, in the order in which the keys are documented.
    #[error("{}", lines(errors))]
    Invalid { errors: Vec<KeyError> },
}

impl ConfigError {
    /// The variables and their keys, if the only errors are variables that another host may have.
    pub fn only_unset(&self) -> Option<Vec<String>> {
        let ConfigError::Invalid { errors } = self else { return None };
        let need = |error: &KeyError| match &error.problem {
            Problem::Unset { variable, within } => {
                let within = within.iter().map(|within| format!("{within}: ")).collect::<String>();
                Some(format!("{}: {within}the environment variable {variable}", error.path))
            }
            _ => None,
        };
        errors.iter().map(need).collect()
    }

    /// The error for an operator: all lines, each with the file, the line and the column.
    pub fn in_file(&self, file: &Path) -> String {
        let file = file.display();
        match self {
            ConfigError::Unreadable { .. } => self.to_string(),
            ConfigError::Syntax { .. } => format!("{file}:{self}"),
            ConfigError::Invalid { errors } => {
                let noun = if errors.len() == 1 { "error" } else { "errors" };
                let lines = errors.iter().map(|error| format!("\n  {file}:{error}")).collect::<String>();
                format!("{file}: {} {noun}:{lines}", errors.len())
            }
        }
    }
}

/// An error and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError {
    /// The value or the key; for a missing key, the map.
    pub place: Place,
    /// The key's path: `xds_servers[0].channel_creds[0].type`. Empty: the file as a whole.
    pub path: String,
    pub problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    UnknownKey {
        nearest: Option<&'static str>,
        keys: Vec<&'static str>,
    },
    Missing {
        expected: String,
    },
    Invalid {
        value: String,
        expected: String,
    },
    /// A key or value that is valid in general, but not supported by this version.
    Unsupported {
        what: String,
        instead: &'static str,
    },
    /// A value with a variable that the environment does not have, and no default.
    Unset {
        variable: String,
        /// The file, the place and the key, if another file has the value.
        within: Option<String>,
    },
    /// Values that are each valid, but not together.
    Contradiction {
        reason: String,
    },
}

/// A valid setting that probably has another effect than the operator expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub place: Place,
    pub path: String,
    pub text: String,
}

fn lines(errors: &[KeyError]) -> String {
    errors.iter().map(KeyError::to_string).collect::<Vec<_>>().join("\n")
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => write!(f, "{}: {}", self.place, self.problem),
            path => write!(f, "{}: {path}: {}", self.place, self.problem),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::UnknownKey { nearest: Some(nearest), .. } => {
                write!(f, "unknown key; did you mean `{nearest}`?")
            }
            Problem::UnknownKey { nearest: None, keys } => {
                write!(f, "unknown key; known here: {}", keys.join(", "))
            }
            Problem::Missing { expected } => write!(f, "missing; expected {expected}"),
            Problem::Invalid { value, expected } => write!(f, "found {value}; expected {expected}"),
            Problem::Unsupported { what, instead } => {
                write!(f, "{what} is not supported by this version; {instead}")
            }
            Problem::Unset { variable, within } => {
                within.iter().try_for_each(|within| write!(f, "{within}: "))?;
                write!(
                    f,
                    "the environment variable {variable} is not set; set it, or write ${{{variable}:-DEFAULT}}"
                )
            }
            Problem::Contradiction { reason } => f.write_str(reason),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.place, self.path, self.text)
    }
}
