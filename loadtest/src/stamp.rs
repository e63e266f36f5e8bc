//! The time of a change, carried inside a resource from the control plane to the clients.
//!
//! The stamp is in a string of the resource's payload, since a relay must not touch the payload; versions and
//! nonces are the relay's own. Clients find the stamp by a mark, wherever the resource is in a response. A number
//! follows the time, so that a client identifies the resource without decoding: the resource's index, and above it
//! the content's audience (see [`crate::function`]).

use std::sync::LazyLock;

use memchr::memmem::Finder;

/// The marks of a changed resource, and of an unchanged resource. The second mark is skipped unless
/// requested: a first answer may be full of such resources.
const CHANGED: &[u8] = b"sluice-load-stamp:";
const UNCHANGED: &[u8] = b"sluice-load-still:";
const EITHER: &[u8] = b"sluice-load-st";

const TIME_DIGITS: usize = 16;
const NUMBER_DIGITS: usize = 8;

/// The bits of the index in the number; the audience has the 12 bits above.
const INDEX_BITS: u32 = 20;

/// More resources than this have no index.
pub const MOST_RESOURCES: usize = 1 << INDEX_BITS;

/// Bytes of a stamp in the payload.
pub const LENGTH: usize = CHANGED.len() + TIME_DIGITS + 1 + NUMBER_DIGITS;

static FIND_CHANGED: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(CHANGED));
static FIND_EITHER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(EITHER));

/// The text of a stamp: nanoseconds of CLOCK_MONOTONIC, 0 for an unchanged resource.
pub fn text(monotonic_ns: u64, index: usize, audience: usize) -> String {
    let word = if monotonic_ns == 0 { "still" } else { "stamp" };
    let number = audience << INDEX_BITS | index;
    format!("sluice-load-{word}:{monotonic_ns:016x}:{number:08x}")
}

/// A stamp that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub time: u64,
    pub index: usize,
    pub audience: usize,
}

/// The stamps to look for.
#[derive(Clone, Copy, Debug)]
pub struct Sought {
    /// Include resources that were never changed.
    pub unchanged: bool,
    /// The maximum number of stamps in one message; the rest is skipped, since the search costs time, and a
    /// caller with a known number can spare the cost.
    pub most: usize,
}

/// Looks for stamps in the payloads of a message, which arrive in pieces.
#[derive(Default)]
pub struct Search {
    found: Vec<Stamp>,
    /// The last bytes of earlier pieces, in case a stamp begins there; fewer than [`LENGTH`].
    tail: Vec<u8>,
}

impl Search {
    pub fn found(&self) -> &[Stamp] {
        &self.found
    }

    pub fn reset(&mut self) {
        self.found.clear();
        self.tail.clear();
    }

    /// Searches the next piece of a payload; `more` means that further pieces follow.
    pub fn push(&mut self, piece: &[u8], more: bool, sought: Sought) {
        if self.found.len() >= sought.most {
            return;
        }
        let mut rest = piece;
        if !self.tail.is_empty() {
            let kept = self.tail.len();
            self.tail.extend_from_slice(piece.get(..LENGTH - 1).unwrap_or(piece));
            // A stamp that is complete only now begins in the kept bytes.
            match find(&self.tail, sought) {
                Some((stamp, end)) => {
                    self.found.extend(stamp);
                    rest = piece.get(end - kept..).unwrap_or_default();
                    self.tail.clear();
                }
                None if piece.len() < LENGTH => {
                    let excess = self.tail.len().saturating_sub(LENGTH - 1);
                    self.tail.drain(..excess);
                    rest = &[];
                }
                None => self.tail.clear(),
            }
        }
        while self.found.len() < sought.most
            && let Some((stamp, end)) = find(rest, sought)
        {
            self.found.extend(stamp);
            rest = &rest[end..];
        }
        if more {
            self.tail.extend_from_slice(&rest[rest.len().saturating_sub(LENGTH - 1)..]);
        } else {
            self.tail.clear();
        }
    }
}

/// The first complete stamp, and its end. A mark without a stamp is skipped.
fn find(bytes: &[u8], sought: Sought) -> Option<(Option<Stamp>, usize)> {
    let finder = if sought.unchanged { &FIND_EITHER } else { &FIND_CHANGED };
    let start = finder.find(bytes)?;
    let text = bytes.get(start..start + LENGTH)?;
    Some((parse(text), start + LENGTH))
}

fn parse(text: &[u8]) -> Option<Stamp> {
    let digits = text.strip_prefix(CHANGED).or_else(|| text.strip_prefix(UNCHANGED))?;
    let (time, number) = std::str::from_utf8(digits).ok()?.split_once(':')?;
    let time = u64::from_str_radix(time, 16).ok()?;
    let number = usize::from_str_radix(number, 16).ok()?;
    Some(Stamp { time, index: number % MOST_RESOURCES, audience: number / MOST_RESOURCES })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    const ALL: Sought = Sought { unchanged: true, most: usize::MAX };

    fn search(pieces: &[&[u8]], sought: Sought) -> Vec<(u64, usize, usize)> {
        let mut search = Search::default();
        for (number, piece) in pieces.iter().enumerate() {
            search.push(piece, number + 1 < pieces.len(), sought);
            assert!(search.tail.len() < LENGTH);
        }
        search.found().iter().map(|stamp| (stamp.time, stamp.index, stamp.audience)).collect()
    }

    #[test]
    fn stamps_are_found_however_they_are_split() {
        let noise = "sluice-load-".repeat(9);
        let whole = format!(
            "{noise}{}{}{noise}{}s",
            text(0x1234_5678_9abc, 7, 0),
            text(0, 8, 1),
            text(5, 0xabcde, 4095)
        );
        for size in 1..=whole.len() {
            let pieces: Vec<&[u8]> = whole.as_bytes().chunks(size).collect();
            let expected = [(0x1234_5678_9abc, 7, 0), (0, 8, 1), (5, 0xabcde, 4095)];
            assert_eq!(search(&pieces, ALL), expected, "in pieces of {size}");
            let changed = Sought { unchanged: false, ..ALL };
            assert_eq!(search(&pieces, changed), [expected[0], expected[2]], "in pieces of {size}");
            assert_eq!(search(&pieces, Sought { most: 1, ..ALL }), [expected[0]], "in pieces of {size}");
        }
        assert_eq!(text(7, 3, 1).len(), LENGTH);
        assert_eq!(text(0, 3, 4095).len(), LENGTH);
    }

    #[test]
    fn what_is_no_stamp_is_not_found() {
        let pieces: [&[u8]; 3] =
            [b"sluice-load-stamp:", b"00000000zz000000:00000000", b"sluice-load-stamp:123"];
        assert_eq!(search(&pieces, ALL), []);
    }
}
