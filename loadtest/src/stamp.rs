//! The time of a change, carried inside a resource from the control plane to the clients.
//!
//! It stands in a string of the resource's payload, because that is what a relay must not touch; versions and nonces
//! are the relay's own. Clients find it by a mark, wherever a server puts the resource in its response. The index of
//! the resource stands beside the time, so that a client knows what it has got without decoding anything.

use std::sync::LazyLock;

use memchr::memmem::Finder;

/// A resource that was changed, and one that never was. The second is passed over where nobody asks for it: a first
/// answer may be full of them.
const CHANGED: &[u8] = b"sluice-load-stamp:";
const UNCHANGED: &[u8] = b"sluice-load-still:";
const EITHER: &[u8] = b"sluice-load-st";

const TIME_DIGITS: usize = 16;
const INDEX_DIGITS: usize = 8;

/// Bytes of a stamp as it stands in the payload.
pub const LENGTH: usize = CHANGED.len() + TIME_DIGITS + 1 + INDEX_DIGITS;

static FIND_CHANGED: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(CHANGED));
static FIND_EITHER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(EITHER));

/// The text of a stamp: nanoseconds of CLOCK_MONOTONIC, 0 for a resource that was never changed.
pub fn text(monotonic_ns: u64, index: usize) -> String {
    let word = if monotonic_ns == 0 { "still" } else { "stamp" };
    format!("sluice-load-{word}:{monotonic_ns:016x}:{index:08x}")
}

/// A stamp that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub time: u64,
    pub index: usize,
}

/// What to look for.
#[derive(Clone, Copy, Debug)]
pub struct Sought {
    /// Resources that were never changed, too.
    pub unchanged: bool,
    /// After so many in one message the rest is not looked at: it costs time, and who knows how many there are need
    /// not spend it.
    pub most: usize,
}

/// Looks for stamps in the payloads of a message, which arrive in pieces.
#[derive(Default)]
pub struct Search {
    found: Vec<Stamp>,
    /// The last bytes of what came before, in which a stamp may begin; fewer than [`LENGTH`].
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

    /// The next piece of a payload; `more` of it will follow.
    pub fn push(&mut self, piece: &[u8], more: bool, sought: Sought) {
        if self.found.len() >= sought.most {
            return;
        }
        let mut rest = piece;
        if !self.tail.is_empty() {
            let kept = self.tail.len();
            self.tail.extend_from_slice(piece.get(..LENGTH - 1).unwrap_or(piece));
            // A stamp that is whole only now begins in what was kept.
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

/// The first whole stamp and where it ends. What has the mark and is no stamp is passed over.
fn find(bytes: &[u8], sought: Sought) -> Option<(Option<Stamp>, usize)> {
    let finder = if sought.unchanged { &FIND_EITHER } else { &FIND_CHANGED };
    let start = finder.find(bytes)?;
    let text = bytes.get(start..start + LENGTH)?;
    Some((parse(text), start + LENGTH))
}

fn parse(text: &[u8]) -> Option<Stamp> {
    let digits = text.strip_prefix(CHANGED).or_else(|| text.strip_prefix(UNCHANGED))?;
    let (time, index) = std::str::from_utf8(digits).ok()?.split_once(':')?;
    let time = u64::from_str_radix(time, 16).ok()?;
    Some(Stamp { time, index: usize::from_str_radix(index, 16).ok()? })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    const ALL: Sought = Sought { unchanged: true, most: usize::MAX };

    fn search(pieces: &[&[u8]], sought: Sought) -> Vec<(u64, usize)> {
        let mut search = Search::default();
        for (number, piece) in pieces.iter().enumerate() {
            search.push(piece, number + 1 < pieces.len(), sought);
            assert!(search.tail.len() < LENGTH);
        }
        search.found().iter().map(|stamp| (stamp.time, stamp.index)).collect()
    }

    #[test]
    fn stamps_are_found_however_they_are_split() {
        let noise = "sluice-load-".repeat(9);
        let whole =
            format!("{noise}{}{}{noise}{}s", text(0x1234_5678_9abc, 7), text(0, 8), text(5, 0xabcdef));
        for size in 1..=whole.len() {
            let pieces: Vec<&[u8]> = whole.as_bytes().chunks(size).collect();
            let expected = [(0x1234_5678_9abc, 7), (0, 8), (5, 0xabcdef)];
            assert_eq!(search(&pieces, ALL), expected, "in pieces of {size}");
            let changed = Sought { unchanged: false, ..ALL };
            assert_eq!(search(&pieces, changed), [expected[0], expected[2]], "in pieces of {size}");
            assert_eq!(search(&pieces, Sought { most: 1, ..ALL }), [expected[0]], "in pieces of {size}");
        }
        assert_eq!(text(7, 3).len(), LENGTH);
        assert_eq!(text(0, 3).len(), LENGTH);
    }

    #[test]
    fn what_is_no_stamp_is_not_found() {
        let pieces: [&[u8]; 3] =
            [b"sluice-load-stamp:", b"00000000zz000000:00000000", b"sluice-load-stamp:123"];
        assert_eq!(search(&pieces, ALL), []);
    }
}
