//! Whether a server counts as lost, by what happened on one stream to it (CLI-1, FU9, KAL-5, DEL-35).
//!
//! The machines are not asked. Their answer is compared with this one.

use sluice::engine::reach::Reach;

use super::judge::shape_of;
use super::schedule::SECOND;
use super::words::TYPES;
use super::world::{Invariant, World};

/// A stream that lives less than this tells of a server that answers and dies. An unsteady server must last as long.
const LASTING: u64 = 10 * SECOND;
/// So many short streams within this time make a server unsteady.
const ENDS: usize = 5;
const WITHIN: u64 = 60 * SECOND;

/// What is known of a server, and since when.
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

    /// The same news, whenever it came.
    pub fn is_as(self, other: Heard) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// One that is lost stands for all, and the server is heard once all are.
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

/// A stream that is open.
#[derive(Clone, Debug, Default)]
struct Open {
    since: u64,
    answered: Option<u64>,
    /// When its silence became an answer.
    silent: Option<u64>,
    is_heard: bool,
    is_dismissed: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Hearing {
    /// The relay wants a stream.
    is_used: bool,
    heard: Heard,
    /// So many streams ended one after the other that the server counts as lost until one has lasted, however long it takes
    /// until there is one (FU9).
    is_unsteady: bool,
    ends: Vec<u64>,
    open: Option<Open>,
    /// What was known before the relay left the stream, until it is clear whether it opens another one at once.
    left: Option<Box<Hearing>>,
}

impl Hearing {
    pub fn heard(&self, now: u64) -> Heard {
        match self.steady_at().filter(|at| *at <= now) {
            Some(at) => Heard::Yes(at),
            None => self.heard,
        }
    }

    /// When an unsteady server will have lasted.
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

    /// Once for each stream.
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

    /// It was asked for everything, has said nothing for long enough, and is alive (DEL-35).
    pub fn be_silent(&mut self, now: u64) {
        self.pass(now);
        match &mut self.open {
            Some(open) if self.is_unsteady => drop(open.silent.get_or_insert(now)),
            _ => self.hear(now),
        }
    }

    /// The server asks to be left: what follows says nothing against it (RLY-48).
    pub fn dismiss(&mut self) {
        if let Some(open) = &mut self.open {
            open.is_dismissed = true;
        }
    }

    /// No stream could be opened.
    pub fn fail(&mut self, now: u64) {
        self.heard.lose(now);
    }

    /// The relay left the stream, because it wants nothing any more, or another one at once.
    pub fn leave(&mut self, now: u64) {
        self.pass(now);
        *self = Hearing { left: Some(Box::new(std::mem::take(self))), ..Hearing::default() };
    }

    /// All outputs of a call were taken. `is_wanted`: there is a stream, or something is wanted of it.
    pub fn settle(&mut self, is_wanted: bool) {
        self.left = None;
        self.is_used |= is_wanted;
        if self.is_used && !is_wanted {
            *self = Hearing::default();
        }
    }

    /// The stream ended. `in_order`: with OK; `refuses`: it says no more than that delta is not served (RLY-25).
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
    /// The time has come, or a stream is alive: a server that was asked for everything and says nothing has nothing to say.
    pub fn hear_silence(&mut self, slot: usize) {
        let (now, types) = (self.now, &self.words.types);
        let this = &mut self.slots[slot];
        for index in 0..this.heard.len() {
            let is_here = |ty: usize| shape_of(this.source.as_ref(), index, &types[ty]).is_some();
            if this.reference.is_silent(index, is_here) {
                this.heard[index].be_silent(now);
            }
        }
    }

    /// A source says of its server what the reference says.
    pub fn compare_reach(&mut self, slot: usize) {
        let (now, types) = (self.now, &self.words.types);
        let this = &mut self.slots[slot];
        for index in 0..this.heard.len() {
            let is_here = |ty: usize| shape_of(this.source.as_ref(), index, &types[ty]).is_some();
            let is_open = this.links.get(index).is_some_and(Option::is_some);
            this.heard[index].settle(is_open || (0..TYPES).any(is_here));
        }
        let due = this.reach(now);
        this.was_lost = due.is_lost();
        this.reference_due = this.reference.due(this.was_lost);
        let found = match this.snapshot.reach() {
            Reach::Pending => Heard::Pending,
            Reach::Heard { .. } => Heard::Yes(now),
            Reach::Lost { .. } => Heard::Lost(now),
        };
        // What happens at this very moment may come before its timer.
        let is_same = found.is_as(due) || found.is_as(this.reach(now.saturating_sub(1)));
        if !is_same && !this.reference.is_unclear() {
            let invariant = if found.is_lost() { Invariant::Gate } else { Invariant::Revert };
            self.fail(invariant, || format!("slot {slot} takes its server for {found:?}, which is {due:?}"));
        }
    }
}
