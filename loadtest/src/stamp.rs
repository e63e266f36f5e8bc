//! The time of a change, carried inside a resource from the control plane to the clients.
//!
//! It stands in a string of the resource's payload, because that is what a relay must not touch; versions and nonces
//! are the relay's own. Clients find it by a mark, wherever a server puts the resource in its response.

use std::sync::LazyLock;

use memchr::memmem::Finder;

const MARK: &[u8] = b"sluice-load-stamp:";
const DIGITS: usize = 16;

/// Bytes of a stamp as it stands in the payload.
pub const LENGTH: usize = MARK.len() + DIGITS;

static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(MARK));

/// The text of a stamp, nanoseconds of CLOCK_MONOTONIC.
pub fn text(monotonic_ns: u64) -> String {
    format!("sluice-load-stamp:{monotonic_ns:016x}")
}

/// Looks for a stamp in bytes that arrive in pieces.
#[derive(Default)]
pub struct Search {
    found: Option<u64>,
    /// The last bytes of what came before, in which a stamp may begin; fewer than [`LENGTH`].
    tail: Vec<u8>,
}

impl Search {
    pub fn found(&self) -> Option<u64> {
        self.found
    }

    pub fn reset(&mut self) {
        self.found = None;
        self.tail.clear();
    }

    /// The next piece. Once a stamp was found, the rest is not looked at.
    pub fn push(&mut self, piece: &[u8]) {
        if self.found.is_some() {
            return;
        }
        if !self.tail.is_empty() {
            let kept = self.tail.len();
            self.tail.extend_from_slice(piece.get(..LENGTH - 1).unwrap_or(piece));
            self.found = find(&self.tail);
            self.tail.truncate(kept);
        }
        self.found = self.found.or_else(|| find(piece));
        if self.found.is_some() {
            return self.tail.clear();
        }
        self.tail.extend_from_slice(&piece[piece.len().saturating_sub(LENGTH - 1)..]);
        let excess = self.tail.len().saturating_sub(LENGTH - 1);
        self.tail.drain(..excess);
    }
}

fn find(bytes: &[u8]) -> Option<u64> {
    let digits = bytes.get(FINDER.find(bytes)? + MARK.len()..)?.get(..DIGITS)?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_stamp_is_found_however_it_is_split() {
        let whole = format!("{}{}{}", "s".repeat(50), text(0x1234_5678_9abc), "sluice-load-".repeat(9));
        for piece in 1..=whole.len() {
            let mut search = Search::default();
            whole.as_bytes().chunks(piece).for_each(|bytes| search.push(bytes));
            assert_eq!(search.found(), Some(0x1234_5678_9abc), "in pieces of {piece}");
        }
        assert_eq!(text(7).len(), LENGTH);
    }

    #[test]
    fn what_is_no_stamp_is_not_found() {
        let mut search = Search::default();
        for piece in ["sluice-load-stamp:", "00000000zz000000", "sluice-load-stamp:123"] {
            search.push(piece.as_bytes());
            assert!(search.tail.len() < LENGTH);
        }
        assert_eq!(search.found(), None);
    }
}
