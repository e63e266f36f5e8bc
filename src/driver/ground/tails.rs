//! Tails: the requests and responses of single streams, for an operator who watches (ADM-15).
//!
//! A stream looks at one flag in each request and each response. Only while a tail is open, it makes a line
//! for the tails that follow the stream. A tail keeps few lines, and counts the rest: a reader that stalls
//! costs no memory.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sluice_xds::{ResourceName, Status, Version};

/// OpenTail tails. Each costs the streams a comparison of numbers or names, and up to [`BYTES_MAX`].
pub const TAILS_MAX: usize = 8;

/// PendingLines lines of one tail. Its reader takes them once a second, so this is also the number of lines a
/// second.
pub const LINES_MAX: usize = 1_000;

/// The approximate memory of the waiting lines of one tail: all tails together take 4 MiB.
pub const BYTES_MAX: usize = 512 << 10;

/// Names in one line; more are counted.
pub const NAMES_MAX: usize = 10;

/// The longest name, type, nonce or version in a line, in bytes. Those of the relay are shorter.
const WORD_BYTES_MAX: usize = 128;

/// The longest text that a peer chose, in bytes, as in the ring of events.
const TEXT_BYTES_MAX: usize = 400;

/// The followed streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Followed {
    /// One stream, to its end.
    Stream(u64),
    /// All streams of a node, also those to come.
    Node(Box<str>),
}

/// A line of a tail: one fact about one stream.
#[derive(Debug, PartialEq)]
pub struct TailLine {
    pub at: SystemTime,
    pub stream: u64,
    pub fact: Fact,
}

/// Never a content, and of Secrets neither a version nor words (ADM-12).
#[derive(Debug, PartialEq)]
pub enum Fact {
    /// The stream has named its node.
    Opened {
        service: String,
        listener: Arc<str>,
        peer: Option<SocketAddr>,
    },
    Request(Asked),
    Response(Sent),
    Ended(Option<Status>),
}

/// The answer in a request to an earlier response.
#[derive(Debug, PartialEq)]
pub enum Answered {
    Ack,
    /// With the words of the client.
    Nack(Box<str>),
    /// The nonce is that of no response in flight.
    Stale,
    /// The request answers no response.
    Nothing,
    /// A report; with its words, if it has any.
    Report(Box<str>),
    /// The request ends the stream, for this reason.
    Refused(Box<str>),
}

/// A request of the client.
#[derive(Debug, PartialEq)]
pub struct Asked {
    /// The name of the message.
    pub type_name: Box<str>,
    pub answered: Answered,
    pub nonce: Box<str>,
    /// The version that a SotW client states.
    pub version: Option<Box<str>>,
    pub subscribe: SomeNames,
    pub unsubscribe: SomeNames,
    /// Resources that the client has from before.
    pub presented: usize,
    pub is_delta: bool,
}

/// A response to the client.
#[derive(Debug, PartialEq)]
pub struct Sent {
    pub type_name: Box<str>,
    pub version: Option<Version>,
    /// `None` in an answer to a poll by REST.
    pub nonce: Option<Box<str>>,
    pub names: SomeNames,
    pub removed: SomeNames,
    pub bytes: usize,
    /// The position of the message in the answer, from 1, and the number of messages.
    pub message: (usize, usize),
    /// The changes in the response: source and number.
    pub changes: Box<[(u64, u64)]>,
}

/// The first names of a set, and the size of the set.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SomeNames {
    pub first: Box<[Box<str>]>,
    pub count: usize,
}

impl SomeNames {
    pub fn of<'a>(names: impl IntoIterator<Item = &'a ResourceName>, count: usize) -> SomeNames {
        let first = names.into_iter().take(NAMES_MAX).map(|name| word(name.as_str()));
        SomeNames { first: first.collect(), count }
    }

    fn bytes(&self) -> usize {
        self.first.iter().map(|name| name.len() + size_of::<Box<str>>()).sum()
    }
}

/// The words of a peer, cut.
pub fn words(text: &str) -> Box<str> {
    cut(text, TEXT_BYTES_MAX)
}

/// A name, type, nonce or version of a peer, cut.
pub fn word(text: &str) -> Box<str> {
    cut(text, WORD_BYTES_MAX)
}

fn cut(text: &str, bytes_max: usize) -> Box<str> {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default().into()
}

impl TailLine {
    /// The approximate memory.
    fn bytes(&self) -> usize {
        let of_fact = match &self.fact {
            Fact::Opened { service, .. } => service.len(),
            Fact::Request(asked) => {
                let words = match &asked.answered {
                    Answered::Nack(words) | Answered::Report(words) | Answered::Refused(words) => words.len(),
                    Answered::Ack | Answered::Stale | Answered::Nothing => 0,
                };
                words + asked.nonce.len() + asked.subscribe.bytes() + asked.unsubscribe.bytes()
            }
            Fact::Response(sent) => sent.names.bytes() + sent.removed.bytes() + sent.changes.len() * 16,
            Fact::Ended(status) => status.as_ref().map_or(0, |status| status.message.len()),
        };
        size_of::<TailLine>() + of_fact
    }
}

/// All open tails.
#[derive(Debug, Default)]
pub struct Tails {
    /// Read in each request and each response.
    are_open: AtomicBool,
    open: ArcSwap<Vec<Arc<OpenTail>>>,
    /// Held by changes of `open`.
    turn: Mutex<()>,
}

#[derive(Debug)]
struct OpenTail {
    followed: Followed,
    /// A type, by any of its names.
    type_name: Option<String>,
    waiting: Mutex<PendingLines>,
}

#[derive(Debug, Default)]
struct PendingLines {
    lines: VecDeque<Arc<TailLine>>,
    bytes: usize,
    left_out: u64,
    is_over: bool,
}

/// The lines since the last look.
#[derive(Debug, Default)]
pub struct Taken {
    pub lines: Vec<Arc<TailLine>>,
    /// Lines behind `lines` for which there was no room.
    pub left_out: u64,
    /// The followed stream has ended.
    pub is_over: bool,
}

impl Tails {
    /// Whether somebody watches. One load, as all streams ask.
    pub fn are_open(&self) -> bool {
        self.are_open.load(Ordering::Relaxed)
    }

    /// `None` if too many are open.
    pub fn open(self: &Arc<Self>, followed: Followed, type_name: Option<String>) -> Option<Tail> {
        let _turn = self.turn.lock();
        let mut open = Vec::clone(&self.open.load());
        if open.len() >= TAILS_MAX {
            return None;
        }
        let new = Arc::new(OpenTail { followed, type_name, waiting: Mutex::default() });
        open.push(new.clone());
        self.open.store(Arc::new(open));
        self.are_open.store(true, Ordering::Relaxed);
        Some(Tail { tails: self.clone(), open: new })
    }

    fn close(&self, closed: &Arc<OpenTail>) {
        let _turn = self.turn.lock();
        let mut open = Vec::clone(&self.open.load());
        open.retain(|other| !Arc::ptr_eq(other, closed));
        self.are_open.store(!open.is_empty(), Ordering::Relaxed);
        self.open.store(Arc::new(open));
    }

    /// Makes a line about a stream, if a tail follows the stream and has room. `is_type`: whether a text
    /// names the type of the line.
    pub fn tell(&self, stream: u64, node: &str, is_type: impl Fn(&str) -> bool, make: impl Fn() -> TailLine) {
        let mut made: Option<Arc<TailLine>> = None;
        for open in self.open.load().iter() {
            let is_followed = match &open.followed {
                Followed::Stream(followed) => *followed == stream,
                Followed::Node(followed) => **followed == *node,
            };
            if is_followed && open.type_name.as_deref().is_none_or(&is_type) {
                open.add(|| made.get_or_insert_with(|| Arc::new(make())).clone());
            }
        }
    }

    /// The end of a stream, which belongs to no type.
    pub fn tell_end(&self, stream: u64, node: &str, make: impl Fn() -> TailLine) {
        self.tell(stream, node, |_| true, make);
        for open in self.open.load().iter().filter(|open| open.followed == Followed::Stream(stream)) {
            open.waiting.lock().is_over = true;
        }
    }
}

impl OpenTail {
    fn add(&self, line: impl FnOnce() -> Arc<TailLine>) {
        let mut waiting = self.waiting.lock();
        if waiting.left_out > 0 || waiting.lines.len() >= LINES_MAX || waiting.bytes >= BYTES_MAX {
            waiting.left_out += 1;
            return;
        }
        let line = line();
        waiting.bytes += line.bytes();
        waiting.lines.push_back(line);
    }
}

/// An open tail. Closes when dropped.
#[derive(Debug)]
pub struct Tail {
    tails: Arc<Tails>,
    open: Arc<OpenTail>,
}

impl Tail {
    pub fn take(&self) -> Taken {
        let waiting = std::mem::take(&mut *self.open.waiting.lock());
        let PendingLines { lines, left_out, is_over, .. } = waiting;
        Taken { lines: lines.into(), left_out, is_over }
    }

    pub fn followed(&self) -> &Followed {
        &self.open.followed
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.tails.close(&self.open);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn line(stream: u64, words: &str) -> TailLine {
        let asked = Asked {
            type_name: "t".into(),
            answered: Answered::Nack(super::words(words)),
            nonce: word("n"),
            version: None,
            subscribe: SomeNames::default(),
            unsubscribe: SomeNames::default(),
            presented: 0,
            is_delta: true,
        };
        TailLine { at: SystemTime::UNIX_EPOCH, stream, fact: Fact::Request(asked) }
    }

    #[test]
    fn adm_15_only_followed_streams_make_lines() {
        let (tails, made) = (Arc::new(Tails::default()), Cell::new(0));
        let tell = |stream, node: &str, of_type: &str| {
            let make = || {
                made.set(made.get() + 1);
                line(stream, "")
            };
            tails.tell(stream, node, |text| text == of_type, make);
        };
        tell(1, "a", "T");
        assert_eq!((made.get(), tails.are_open()), (0, false));
        let one = tails.open(Followed::Stream(1), None).unwrap();
        let node = tails.open(Followed::Node("a".into()), Some("T".to_owned())).unwrap();
        assert!(tails.are_open());
        for (stream, node, of_type) in [(1, "a", "T"), (2, "a", "T"), (2, "a", "U"), (3, "b", "T")] {
            tell(stream, node, of_type);
        }
        assert_eq!(made.get(), 2, "a line is made once for all tails");
        let streams = |tail: &Tail| tail.take().lines.iter().map(|line| line.stream).collect::<Vec<_>>();
        assert_eq!((streams(&one), streams(&node)), (vec![1], vec![1, 2]));
        assert!(one.take().lines.is_empty());
        tails.tell_end(2, "a", || line(2, "end"));
        assert!(!one.take().is_over && !node.take().is_over, "a node may come back");
        tails.tell_end(1, "a", || line(1, "end"));
        assert!(one.take().is_over && !node.take().is_over);
        drop(one);
        assert!(tails.are_open());
        drop(node);
        assert!(!tails.are_open());
    }

    #[test]
    fn adm_15_a_reader_that_stalls_costs_few_bytes_and_learns_the_rest() {
        let tails = Arc::new(Tails::default());
        let tail = tails.open(Followed::Stream(1), None).unwrap();
        let flood = |words: &str| {
            for _ in 0..5_000 {
                tails.tell(1, "", |_| true, || line(1, words));
            }
            let bytes = tail.open.waiting.lock().bytes;
            assert!(bytes < BYTES_MAX + 4096, "{bytes}");
            let taken = tail.take();
            assert_eq!(taken.lines.len() as u64 + taken.left_out, 5_000);
            taken.lines.len()
        };
        assert_eq!(flood(""), LINES_MAX);
        assert!(flood(&"x".repeat(10_000)) < LINES_MAX, "long lines");
        assert_eq!(flood(""), LINES_MAX, "room again");
    }

    #[test]
    fn adm_15_eight_at_once() {
        let tails = Arc::new(Tails::default());
        let open = |_| tails.open(Followed::Node("a".into()), None);
        let mut all: Vec<_> = (0..TAILS_MAX).map(open).collect();
        assert!(all.iter().all(Option::is_some) && open(0).is_none());
        all.pop();
        assert!(open(0).is_some());
    }
}
