//! The name of a published change, as the operator reads and writes it.

use std::fmt;
use std::str::FromStr;

/// The name of a change: one published change of one type of one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangeName {
    pub source: u64,
    /// Counts from 1 in the source.
    pub number: u64,
}

impl fmt::Display for ChangeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c-{}-{}", self.source, self.number)
    }
}

impl FromStr for ChangeName {
    type Err = ();

    fn from_str(text: &str) -> Result<ChangeName, ()> {
        let (source, number) = text.strip_prefix("c-").and_then(|rest| rest.split_once('-')).ok_or(())?;
        let parse = |digits: &str| {
            let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            is_plain.then(|| digits.parse::<u64>().ok()).flatten().ok_or(())
        };
        Ok(ChangeName { source: parse(source)?, number: parse(number)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adm_10_a_change_has_one_name() {
        let name = ChangeName { source: 3, number: 118 };
        assert_eq!((name.to_string(), "c-3-118".parse()), ("c-3-118".to_owned(), Ok(name)));
        for text in
            ["", "c-", "c-3", "c-3-", "c--1", "c-+3-1", "c-3-118-", "d-3-118", "c-3-99999999999999999999"]
        {
            assert_eq!(text.parse::<ChangeName>(), Err(()), "{text}");
        }
    }
}
