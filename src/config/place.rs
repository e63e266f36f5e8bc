//! Lines and columns of values and keys.

use std::fmt;

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
