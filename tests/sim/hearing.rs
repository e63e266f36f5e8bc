//! Whether a server counts as lost, from the events on one stream (CLI-1, FU9, KAL-5, DEL-35).
//!
//! The reference does not consult the machines; their verdict is compared with the reference's.

use sluice::engine::reachability::Reachability;

use super::judge::kind_of;
use super::schedule::SECOND;
use super::words::TYPES;
use super::world::{Invariant, World};

/// A stream with a shorter life is a sign of a server that answers and dies. An unsteady server must last
/// this long.
const LASTING: u64 = 10 * SECOND;
/// The number of short streams within this time that makes a server unsteady.
const ENDS: usize = 5;
const WITHIN: u64 = 60 * SECOND;

/// The known state of a server, and its begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Heard {
    #[default]
    Pending,
    Yes(u64),
    Lost(u64),
}

impl Heard {
    pub fn is_lost(self) -> bool {
        matches!(self, Heard::Lost(_))
    }

    /// The same state, whenever it began.
    pub fn is_as(self, other: Heard) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// One lost stream makes the server lost; the server is heard once all streams are.
    pub fn of_all(streams: impl Iterator<Item = Heard>) -> Heard {
        let (mut latest, mut is_heard) = (None, true);
        for stream in streams {
            match stream {
                Heard::Lost(_) => return stream,
                Heard::Pending => is_heard = false,
                Heard::Yes(since) => latest = latest.max(Some(since)),
            }
        }
        latest.filter(|_| is_heard).map_or(Heard::Pending, Heard::Yes)
    }

    fn hear(&mut self, now: u64) {
        if !matches!(self, Heard::Yes(_)) {
            *self = Heard::Yes(now);
        }
    }

    fn lose(&mut self, now: u64) {
        if !self.is_lost() {
            *self = Heard::Lost(now);
        }
    }
}

/// An open stream.
#[derive(Clone, Debug, Default)]
struct Open {
    since: u64,
    answered: Option<u64>,
    /// The time at which silence became an answer.
    silent: Option<u64>,
    is_heard: bool,
    is_dismissed: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Hearing {
    /// The relay wants a stream.
    is_used: bool,
    heard: Heard,
    /// Enough streams ended in a row that the server counts as lost until a stream has lasted, however long
    /// that takes (FU9).
    is_unsteady: bool,
    ends: Vec<u64>,
    open: Option<Open>,
    /// The state before the relay left the stream, until it is clear whether the relay reopens the stream at
    /// once.
    left: Option<Box<Hearing>>,
}

impl Hearing {
    pub fn heard(&self, now: u64) -> Heard {
        match self.steady_at().filter(|at| *at <= now) {
            Some(at) => Heard::Yes(at),
            None => self.heard,
        }
    }

    /// The time at which an unsteady server will have lasted.
    fn steady_at(&self) -> Option<u64> {
        let open = self.open.as_ref().filter(|_| self.is_unsteady)?;
        Some(open.answered.or(open.silent)? + LASTING)
    }

    fn pass(&mut self, now: u64) {
        if let Some(at) = self.steady_at().filter(|at| *at <= now) {
            self.is_unsteady = false;
            self.hear(at);
        }
    }

    /// Effective once for each stream.
    fn hear(&mut self, now: u64) {
        let Some(open) = &mut self.open else { return };
        if !std::mem::replace(&mut open.is_heard, true) {
            self.heard.hear(now);
        }
    }

    /// The relay wants a stream.
    pub fn want(&mut self) {
        if let Some(left) = self.left.take() {
            *self = Hearing { open: None, left: None, ..*left };
        }
        self.is_used = true;
    }

    pub fn is_used(&self) -> bool {
        self.is_used
    }

    pub fn open(&mut self, now: u64) {
        self.open = Some(Open { since: now, ..Open::default() });
    }

    /// A response came.
    pub fn answer(&mut self, now: u64) {
        self.pass(now);
        if let Some(open) = &mut self.open {
            open.answered.get_or_insert(now);
        }
        if !self.is_unsteady {
            self.hear(now);
        }
    }

    /// The server has every request, was silent for long enough, and is alive (DEL-35).
    pub fn be_silent(&mut self, now: u64) {
        self.pass(now);
        match &mut self.open {
            Some(open) if self.is_unsteady => drop(open.silent.get_or_insert(now)),
            _ => self.hear(now),
        }
    }

    /// The server asks the relay to leave: later events are no evidence against the server (RLY-48).
    pub fn dismiss(&mut self) {
        if let Some(open) = &mut self.open {
            open.is_dismissed = true;
        }
    }

    /// No stream could be opened.
    pub fn fail(&mut self, now: u64) {
        self.heard.lose(now);
    }

    /// The relay left the stream, because it has no subscriptions left, or wants another stream at once.
    pub fn leave(&mut self, now: u64) {
        self.pass(now);
        *self = Hearing { left: Some(Box::new(std::mem::take(self))), ..Hearing::default() };
    }

    /// All outputs of a call were taken. `is_wanted`: there is a stream, or a subscription for one.
    pub fn settle(&mut self, is_wanted: bool) {
        self.left = None;
        self.is_used |= is_wanted;
        if self.is_used && !is_wanted {
            *self = Hearing::default();
        }
    }

    /// The stream ended. `in_order`: with OK; `refuses`: the only meaning is that delta is not served
    /// (RLY-25).
    pub fn end(&mut self, in_order: bool, refuses: bool, now: u64) {
        self.pass(now);
        let Some(open) = self.open.take() else { return };
        if open.answered.is_none() && !open.is_dismissed && !(open.is_heard && in_order) {
            if !refuses {
                self.heard.lose(now);
            }
            return;
        }
        if open.since + LASTING <= now || open.is_dismissed {
            return;
        }
        self.ends.push(now);
        self.ends.retain(|at| at + WITHIN >= now);
        if !self.is_unsteady && self.ends.len() >= ENDS {
            self.is_unsteady = true;
            self.ends.clear();
            self.heard.lose(now);
        }
    }
}

impl World {
    /// The time has come, or a stream is alive: the silence of a server with every request is an answer.
    pub fn hear_silence(&mut self, slot: usize) {
        let (now, types) = (self.now, &self.words.types);
        let this = &mut self.slots[slot];
        for index in 0..this.heard.len() {
            let is_here = |ty: usize| kind_of(this.source.as_ref(), index, &types[ty]).is_some();
            if this.reference.is_silent(index, is_here) {
                this.heard[index].be_silent(now);
            }
        }
    }

    /// Compares a source's state of its server with the reference.
    pub fn compare_reach(&mut self, slot: usize) {
        let (now, types) = (self.now, &self.words.types);
        let this = &mut self.slots[slot];
        for index in 0..this.heard.len() {
            let is_here = |ty: usize| kind_of(this.source.as_ref(), index, &types[ty]).is_some();
            let is_open = this.links.get(index).is_some_and(Option::is_some);
            this.heard[index].settle(is_open || (0..TYPES).any(is_here));
        }
        let due = this.reach(now);
        this.was_lost = due.is_lost();
        this.reference_due = this.reference.due(this.was_lost);
        let found = match this.snapshot.standing().reach() {
            Reachability::Pending => Heard::Pending,
            Reachability::Heard { .. } => Heard::Yes(now),
            Reachability::Lost { .. } => Heard::Lost(now),
        };
        // An event of this very moment may precede its timer.
        let is_same = found.is_as(due) || found.is_as(this.reach(now.saturating_sub(1)));
        if !is_same && !this.reference.is_unclear() {
            let invariant = if found.is_lost() { Invariant::Gate } else { Invariant::Revert };
            self.fail(invariant, || format!("slot {slot} takes its server for {found:?}, which is {due:?}"));
        }
    }
}
