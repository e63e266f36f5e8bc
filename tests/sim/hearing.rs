//! Whether a server counts as lost, from the events on one stream (CLI-1, FU9, KAL-5, DEL-35).
//!
//! The reference does not consult the machines; their verdict is compared with the reference's.

use sluice_engine::reachability::Reachability;
use sluice_engine::upstream::Input;

use super::judge::kind_of;
use super::relay::Slot;
use super::schedule::{SECOND, Wire};
use super::words::{SHORT, TYPES};
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

    pub fn hear(&mut self, now: u64) {
        if !matches!(self, Heard::Yes(_)) {
            *self = Heard::Yes(now);
        }
    }

    pub fn lose(&mut self, now: u64) {
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

/// The meaning of the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The status is OK.
    InOrder,
    Fails,
    /// The end of a poll; without an answer it is a failure.
    PollFails,
    /// The server does not speak delta (RLY-25).
    RefusesDelta,
    /// The server has no service for the only type of the stream (RLY-25).
    RefusesType,
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
    /// The server has no service for the only type of the stream.
    is_unserved: bool,
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
            self.is_unserved = false;
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

    /// A type without a service does not count (RLY-25, RLY-40).
    pub fn is_used(&self) -> bool {
        self.is_used && !self.is_unserved
    }

    pub fn open(&mut self, now: u64) {
        self.open = Some(Open { since: now, ..Open::default() });
    }

    /// A response came.
    pub fn answer(&mut self, now: u64) {
        self.pass(now);
        self.is_unserved = false;
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
        self.is_unserved = false;
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

    /// The stream ended.
    pub fn end(&mut self, ending: Ending, now: u64) {
        self.pass(now);
        let Some(open) = self.open.take() else { return };
        let is_in_order = ending == Ending::InOrder && open.is_heard;
        if open.answered.is_none() && !open.is_dismissed && !is_in_order {
            match ending {
                Ending::RefusesDelta => {}
                // Said once, until the state changes.
                Ending::RefusesType if self.is_unserved => {}
                Ending::RefusesType => (self.is_unserved, self.heard) = (true, Heard::Pending),
                Ending::InOrder | Ending::Fails | Ending::PollFails => self.fail(now),
            }
            return;
        }
        // Every poll ends, and soon.
        if ending == Ending::PollFails {
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
        // A failed attempt counts as long as there are attempts; each poll is one.
        let is_tried =
            |stream: &Hearing| stream.is_used && (stream.open.is_none() || this.wire != Wire::PerType);
        let is_tried = this.heard.iter().any(is_tried);
        this.connection = if is_tried { this.connection } else { Heard::Pending };
        let found = found(this.snapshot.standing().reach(), now);
        if matches!(found, Heard::Yes(_)) && !matches!(this.reach(now), Heard::Yes(_)) {
            // The machines hear a silent server when what it had still to answer is given up.
            self.hear_silence(slot);
        }
        let this = &mut self.slots[slot];
        let due = this.reach(now);
        this.was_lost = this.lost_types(now);
        this.reference_due = this.reference.due(this.was_lost);
        // An event of this very moment may precede its timer.
        let is_same = found.is_as(due) || found.is_as(this.reach(now.saturating_sub(1)));
        // A difference that was excused stays so until the two agree, even on the next streams.
        this.is_apart = !is_same && (this.is_apart || this.reference.is_unclear());
        if !is_same && !this.is_apart {
            let invariant = if found.is_lost() { Invariant::Gate } else { Invariant::Revert };
            self.fail(invariant, || format!("slot {slot} takes its server for {found:?}, which is {due:?}"));
        }
        (0..TYPES).for_each(|ty| self.compare_reach_of(slot, ty));
    }

    /// The same for one type, where types can be lost one by one (RLY-40).
    fn compare_reach_of(&mut self, slot: usize, ty: usize) {
        let (now, this) = (self.now, &self.slots[slot]);
        let standing = this.snapshot.standing().of(&self.words.types[ty]);
        let Some(found) = standing.and_then(|of_type| of_type.reach.as_ref()).map(|reach| found(reach, now))
        else {
            return;
        };
        let due = this.reach_of(ty, now);
        let is_same = found.is_as(due) || found.is_as(this.reach_of(ty, now.saturating_sub(1)));
        if !is_same && !this.reference.is_unclear() {
            let invariant = if found.is_lost() { Invariant::Gate } else { Invariant::Revert };
            self.fail(invariant, || {
                format!("slot {slot} takes its server for {found:?} for {}, which is {due:?}", SHORT[ty])
            });
        }
    }
}

/// A state of the machines.
fn found(reach: &Reachability, now: u64) -> Heard {
    match reach {
        Reachability::Pending => Heard::Pending,
        Reachability::Heard { .. } => Heard::Yes(now),
        Reachability::Lost { .. } => Heard::Lost(now),
    }
}

impl Slot {
    fn used(&self, ty: Option<usize>) -> impl Iterator<Item = &Hearing> {
        let is_of_type = move |index: usize| ty.is_none() || self.of_types.get(index) == Some(&ty);
        let streams = self.heard.iter().enumerate().filter(move |(index, _)| is_of_type(*index));
        streams.map(|(_, stream)| stream).filter(|stream| stream.is_used())
    }

    /// Whether the server is heard. One lost stream of all types makes the server lost; of the streams of
    /// single types all must be lost, or their connection (RLY-40).
    pub fn reach(&self, now: u64) -> Heard {
        let heard = || self.used(None).map(|stream| stream.heard(now));
        if self.wire == Wire::Aggregated {
            return Heard::of_all(heard());
        }
        if self.connection.is_lost() && heard().next().is_some() {
            return self.connection;
        }
        let latest =
            heard().filter_map(|heard| if let Heard::Yes(since) = heard { Some(since) } else { None });
        match latest.max() {
            Some(since) => Heard::Yes(since),
            None if heard().all(Heard::is_lost) => Heard::of_all(heard()),
            None => Heard::Pending,
        }
    }

    /// Whether the server is heard for one type.
    pub fn reach_of(&self, ty: usize, now: u64) -> Heard {
        if self.wire == Wire::Aggregated {
            return self.reach(now);
        }
        let mut used = self.used(Some(ty)).peekable();
        match self.connection.is_lost() && used.peek().is_some() {
            true => self.connection,
            false => Heard::of_all(used.map(|stream| stream.heard(now))),
        }
    }

    /// The types whose content stays while the server is lost (RLY-46).
    pub fn lost_types(&self, now: u64) -> [bool; TYPES] {
        let is_lost = self.is_lost(now);
        if self.wire == Wire::Aggregated {
            return [is_lost; TYPES];
        }
        std::array::from_fn(|ty| is_lost || self.reach_of(ty, now).is_lost())
    }

    /// Notes what an event says of the connection, which the streams of all types share.
    pub fn note_connection(&mut self, input: &Input, now: u64) {
        match input {
            Input::ConnectFailed { .. } => self.connection.lose(now),
            Input::Received(_) | Input::Unchanged | Input::Ended { .. } => self.connection.hear(now),
            // A poll begins before there is a connection.
            Input::Opened if self.wire == Wire::PerType => self.connection.hear(now),
            _ => {}
        }
    }
}
