//! The reference model of a source: for each requested name, each alias and each member of a glob, all statements of the
//! server. It is told the requests that were written and the responses that arrived, and asks no machine.

use super::names::{GLOBS, LISTED, Mask, NAMES, TYPES, VHDS, bit, bits, glob_of, members};
use super::server::Message;

/// The time after which a name without an answer may count as absent (TMR-5).
const TIMEOUT: u64 = 10_000_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    #[default]
    Unknown,
    /// The resource's own name, and its edition.
    Present(usize, u32),
    Absent,
}

/// A value and its former values, with the times of the changes.
#[derive(Clone, Debug, Default)]
struct Track<T>(Vec<(u64, T)>);

impl<T: Copy + Default + PartialEq> Track<T> {
    fn at(&self, time: u64) -> T {
        let found = self.0.iter().rev().find(|(since, _)| *since <= time);
        found.map(|(_, value)| *value).unwrap_or_default()
    }

    fn now(&self) -> T {
        self.0.last().map(|(_, value)| *value).unwrap_or_default()
    }

    fn set(&mut self, now: u64, value: T) {
        if self.now() != value {
            self.0.push((now, value));
        }
    }

    fn changes(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|(at, _)| *at)
    }
}

/// The content that a client should have under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Present(u32),
    Absent,
    Unknown,
}

#[derive(Default)]
pub struct Reference {
    /// Names and aliases that are requested by themselves.
    named: [[Track<State>; LISTED]; TYPES],
    members: [[Track<State>; NAMES]; TYPES],
    /// The server has sent all members of a glob.
    whole: [[Track<bool>; 2]; TYPES],
    /// The members that the first request for a glob had, or that the stream has mentioned since, until it has sent all.
    confirmed: [[Option<Mask>; 2]; TYPES],
    /// Names and aliases that the relay may have given up before the stream, until the stream mentions them.
    doubtful: [Mask; TYPES],
    /// The time of the first request for a name without an answer.
    asked_at: [[Option<u64>; LISTED]; TYPES],
}

impl Reference {
    /// A request was written. The first request of the type on a stream lists all wanted names, and the resources that the
    /// relay has. Later requests list names that the relay does not have.
    pub fn wrote(&mut self, ty: usize, come: Mask, gone: Mask, has: Option<Mask>, now: u64) {
        bits(gone).for_each(|listed| self.free(ty, listed, now));
        for listed in bits(come) {
            match has {
                None => self.free(ty, listed, now),
                Some(has) if GLOBS.contains(&listed) => self.confirmed[ty][listed - GLOBS.start] = Some(has),
                Some(has) => {
                    let own = match self.named[ty][listed].now() {
                        State::Present(own, _) => bit(own),
                        State::Unknown | State::Absent => 0,
                    };
                    // Where aliases are in doubt, the relay says nothing of its resources (ALI-1).
                    match (own & !has != 0, ty == VHDS && has == 0) {
                        (true, true) => self.doubtful[ty] |= bit(listed),
                        (true, false) => self.free(ty, listed, now),
                        (false, _) => {}
                    }
                }
            }
            self.asked_at[ty][listed].get_or_insert(now);
        }
    }

    /// Nobody requests a name or a glob any more.
    fn free(&mut self, ty: usize, listed: usize, now: u64) {
        self.asked_at[ty][listed] = None;
        if !GLOBS.contains(&listed) {
            return self.named[ty][listed].set(now, State::Unknown);
        }
        self.whole[ty][listed - GLOBS.start].set(now, false);
        members(listed).for_each(|name| self.members[ty][name].set(now, State::Unknown));
    }

    /// A response arrived on a stream that lists these names.
    pub fn receive(&mut self, message: &Message, listed: Mask, now: u64) {
        let ty = message.ty;
        for (name, entry) in &message.put {
            let state = State::Present(*name, entry.edition);
            if glob_of(*name).is_some_and(|glob| listed & bit(glob) != 0) {
                self.members[ty][*name].set(now, state);
                self.confirm(ty, *name);
            }
            for way in bits(listed).filter(|way| !GLOBS.contains(way)) {
                let track = &mut self.named[ty][way];
                let is_known = matches!(track.now(), State::Present(own, _) if own == *name);
                if is_known || (bit(*name) | entry.aliases) & bit(way) != 0 {
                    track.set(now, state);
                    self.doubtful[ty] &= !bit(way);
                }
            }
        }
        for gone in bits(message.removed) {
            if GLOBS.contains(&gone) && listed & bit(gone) != 0 {
                members(gone).for_each(|name| self.members[ty][name].set(now, State::Absent));
                self.whole[ty][gone - GLOBS.start].set(now, true);
            }
            if glob_of(gone).is_some_and(|glob| listed & bit(glob) != 0) {
                self.members[ty][gone].set(now, State::Absent);
            }
            for way in bits(listed).filter(|way| !GLOBS.contains(way)) {
                let track = &mut self.named[ty][way];
                let is_known = matches!(track.now(), State::Present(own, _) if own == gone);
                if is_known || way == gone {
                    track.set(now, State::Absent);
                    self.doubtful[ty] &= !bit(way);
                }
            }
        }
        for glob in bits(message.completes & listed) {
            if let Some(confirmed) = self.confirmed[ty][glob - GLOBS.start].take() {
                let others = members(glob).filter(|name| confirmed & bit(*name) == 0);
                others.for_each(|name| self.members[ty][name].set(now, State::Absent));
            }
            self.whole[ty][glob - GLOBS.start].set(now, true);
        }
    }

    fn confirm(&mut self, ty: usize, name: usize) {
        let glob = glob_of(name).map(|glob| glob - GLOBS.start);
        if let Some(Some(confirmed)) = glob.map(|glob| &mut self.confirmed[ty][glob]) {
            *confirmed |= bit(name);
        }
    }

    pub fn doubtful(&self, ty: usize) -> Mask {
        self.doubtful[ty]
    }

    /// The name's own subscription and its aliases decide, and then the glob (SUB-12, NAM-17).
    pub fn due(&self, ty: usize, wanted: Mask, name: usize, time: u64) -> Due {
        let ways = || bits(wanted).filter(|way| !GLOBS.contains(way));
        let by_name = ways().find_map(|way| match self.named[ty][way].at(time) {
            State::Present(own, edition) if own == name => Some(edition),
            _ => None,
        });
        if let Some(edition) = by_name {
            return Due::Present(edition);
        }
        let is_wanted = wanted & bit(name) != 0;
        let mut is_unknown = is_wanted && self.is_open(ty, name, time);
        // A name that does not exist is an answer, whatever the glob has (RLY-5).
        let is_answered = is_wanted && !is_unknown;
        if let Some(glob) = glob_of(name).filter(|glob| wanted & bit(*glob) != 0) {
            match self.members[ty][name].at(time) {
                State::Present(_, edition) => return Due::Present(edition),
                State::Absent => {}
                State::Unknown => is_unknown |= !is_answered && !self.whole[ty][glob - GLOBS.start].at(time),
            }
        }
        if is_unknown { Due::Unknown } else { Due::Absent }
    }

    /// The server has not answered for a name, and the timer runs.
    fn is_open(&self, ty: usize, name: usize, time: u64) -> bool {
        let is_over = self.asked_at[ty][name].is_some_and(|since| since + TIMEOUT <= time);
        self.named[ty][name].at(time) == State::Unknown && !is_over
    }

    /// Whether an alias has no resource, or a glob no members.
    pub fn is_empty(&self, ty: usize, listed: usize, time: u64) -> bool {
        if !GLOBS.contains(&listed) {
            return !matches!(self.named[ty][listed].at(time), State::Present(..))
                && !self.is_open(ty, listed, time);
        }
        self.whole[ty][listed - GLOBS.start].at(time)
            && members(listed).all(|name| !matches!(self.members[ty][name].at(time), State::Present(..)))
    }

    /// Whether the alias ever led to the name.
    pub fn has_led(&self, ty: usize, alias: usize, name: usize) -> bool {
        self.named[ty][alias]
            .0
            .iter()
            .any(|(_, state)| matches!(state, State::Present(own, _) if *own == name))
    }

    /// The moments of a type from `since` on, at which anything changed.
    pub fn moments(&self, ty: usize, since: u64, now: u64) -> Vec<u64> {
        let states = self.named[ty].iter().chain(&self.members[ty]).flat_map(Track::changes);
        let all = states.chain(self.whole[ty].iter().flat_map(Track::changes));
        let timers = self.asked_at[ty].iter().flatten().map(|at| at + TIMEOUT);
        let mut moments: Vec<_> = all.chain(timers).filter(|at| *at > since && *at <= now).collect();
        moments.push(since);
        moments.sort_unstable();
        moments.dedup();
        moments
    }
}
