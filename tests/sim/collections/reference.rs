//! The reference model of a source: for each requested name, each alias and each member of a glob, all statements of the
//! server. It is told the requests that were written and the responses that arrived, and asks no machine.

use super::names::{ALIASES, GLOBS, LISTED, Mask, NAMES, TYPES, VHDS, bit, bits, glob_of, members};
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
    /// The aliases that a resource has listed at some time.
    listing: [[Mask; NAMES]; TYPES],
    /// The resource that an unanswered alias keeps by its list, although nobody wants any more what the server had answered
    /// with it.
    kept: [[Track<State>; LISTED]; TYPES],
    /// The server has sent all members of a glob.
    whole: [[Track<bool>; 2]; TYPES],
    /// The members that the first request for a glob had, or that the stream has mentioned since, until it has sent all.
    confirmed: [[Option<Mask>; 2]; TYPES],
    /// Globs that were requested once more on their stream, until the server has sent all. The relay cannot tell the answer
    /// from a message that left before.
    retaken: [[bool; 2]; TYPES],
    /// Names, aliases and globs that the relay may have given up before the stream, until the stream mentions them.
    doubtful: [Mask; TYPES],
    /// Former members that the first answer on a stream left out, until the relay can know that the answer is whole.
    left_out: [[Track<State>; NAMES]; TYPES],
    /// The number of round trips since the last request for globs, or the last response; and the former members that the relay
    /// may have let go after one of them.
    returns: [u8; TYPES],
    let_go: [Mask; TYPES],
    /// The time of the first request for a name without an answer.
    asked_at: [[Option<u64>; LISTED]; TYPES],
}

/// After so many round trips the relay has no reason to wait for more of a first answer: one shows that the server has read the
/// latest request, and one that nothing follows. One may have begun before.
const RETURNS: u8 = 3;

impl Reference {
    /// A request was written. The first request of the type on a stream lists all wanted names, and the resources that the
    /// relay has. Later requests list names that the relay does not have.
    pub fn wrote(&mut self, ty: usize, come: Mask, gone: Mask, has: Option<Mask>, now: u64) {
        bits(gone).for_each(|listed| self.free(ty, listed, now));
        self.restart(ty, come);
        if has.is_some() {
            // The relay has given up the rest while there was no stream.
            let globs = GLOBS.fold(0, |mask, glob| mask | bit(glob));
            let (of_names, of_globs) = (come & !globs != 0, come & globs != 0);
            let is_of = |listed: &usize| if GLOBS.contains(listed) { of_globs } else { of_names };
            let left = (0..LISTED).filter(is_of).filter(|listed| come & bit(*listed) == 0);
            left.for_each(|listed| self.free(ty, listed, now));
        }
        for listed in bits(come) {
            match has {
                None if GLOBS.contains(&listed) => {
                    self.free(ty, listed, now);
                    self.retaken[ty][listed - GLOBS.start] = true;
                }
                // The relay may have given the name up while there was no stream. Or a response came right before, with a
                // resource of this name or alias.
                None => {
                    if matches!(self.named[ty][listed].now(), State::Present(..)) {
                        self.doubtful[ty] |= bit(listed);
                    }
                }
                Some(has) if GLOBS.contains(&listed) => {
                    let is_present = |name: usize| matches!(self.members[ty][name].now(), State::Present(..));
                    if members(listed).any(|name| is_present(name) && has & bit(name) == 0) {
                        self.doubtful[ty] |= bit(listed);
                    }
                    self.confirmed[ty][listed - GLOBS.start] = Some(has);
                }
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
            let state = self.named[ty][listed].now();
            self.kept[ty][listed].set(now, State::Unknown);
            self.named[ty][listed].set(now, State::Unknown);
            return self.keep_by_listing(ty, state, now);
        }
        self.whole[ty][listed - GLOBS.start].set(now, false);
        for name in members(listed) {
            self.members[ty][name].set(now, State::Unknown);
            self.left_out[ty][name].set(now, State::Unknown);
        }
    }

    /// The aliases that a resource lists keep it until the server answers for them (ALI-1).
    fn keep_by_listing(&mut self, ty: usize, state: State, now: u64) {
        let State::Present(own, _) = state else { return };
        for alias in bits(self.listing[ty][own]) {
            let is_unanswered = self.named[ty][alias].now() == State::Unknown;
            if is_unanswered && self.asked_at[ty][alias].is_some() {
                self.kept[ty][alias].set(now, state);
            }
        }
    }

    /// A response arrived on a stream that lists these names. `wanted`: names and aliases that no request lists yet.
    pub fn receive(&mut self, message: &Message, listed: Mask, wanted: Mask, now: u64) {
        let ty = message.ty;
        self.restart(ty, listed);
        // Members of globs have a stream of their own, which answers no names.
        let is_of_names = bits(listed).any(|listed| !GLOBS.contains(&listed));
        let wanted = if is_of_names { wanted } else { 0 };
        for (name, entry) in &message.put {
            let state = State::Present(*name, entry.edition);
            self.listing[ty][*name] |= entry.aliases;
            // No request lists these aliases, and nobody wants them any more: the relay has no answer for them.
            for alias in ALIASES.filter(|alias| (listed | wanted) & bit(*alias) == 0) {
                let track = &mut self.named[ty][alias];
                let leads = matches!(track.now(), State::Present(own, _) if own == *name);
                if leads || entry.aliases & bit(alias) != 0 {
                    track.set(now, State::Unknown);
                }
            }
            if glob_of(*name).is_some_and(|glob| listed & bit(glob) != 0) {
                self.members[ty][*name].set(now, state);
                self.left_out[ty][*name].set(now, State::Unknown);
                self.confirm(ty, *name);
            }
            for way in bits(listed | wanted).filter(|way| !GLOBS.contains(way)) {
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
                self.doubtful[ty] &= !bit(gone);
                self.whole[ty][gone - GLOBS.start].set(now, true);
            }
            if glob_of(gone).is_some_and(|glob| listed & bit(glob) != 0) {
                self.members[ty][gone].set(now, State::Absent);
                self.left_out[ty][gone].set(now, State::Unknown);
            }
            for way in bits(listed | wanted).filter(|way| !GLOBS.contains(way)) {
                let track = &mut self.named[ty][way];
                let is_known = matches!(track.now(), State::Present(own, _) if own == gone);
                if is_known || way == gone && listed & bit(way) != 0 {
                    track.set(now, State::Absent);
                    self.doubtful[ty] &= !bit(way);
                }
            }
        }
        for glob in bits(message.completes & listed) {
            self.doubtful[ty] &= !bit(glob);
            if let Some(confirmed) = self.confirmed[ty][glob - GLOBS.start].take() {
                let others = members(glob).filter(|name| confirmed & bit(*name) == 0);
                for name in others {
                    self.left_out[ty][name].set(now, self.members[ty][name].now());
                    self.let_go[ty] &= !bit(name);
                    self.members[ty][name].set(now, State::Absent);
                }
            }
            self.whole[ty][glob - GLOBS.start].set(now, true);
            self.retaken[ty][glob - GLOBS.start] = false;
        }
    }

    /// Whether the relay may take the glob of a name for whole too early.
    pub fn is_retaken(&self, ty: usize, name: usize) -> bool {
        glob_of(name).is_some_and(|glob| self.retaken[ty][glob - GLOBS.start])
    }

    fn confirm(&mut self, ty: usize, name: usize) {
        let glob = glob_of(name).map(|glob| glob - GLOBS.start);
        if let Some(Some(confirmed)) = glob.map(|glob| &mut self.confirmed[ty][glob]) {
            *confirmed |= bit(name);
        }
    }

    /// Whether the relay still has to find out that a first answer is whole.
    pub fn is_settling(&self, ty: usize) -> bool {
        self.left_out[ty].iter().any(|track| track.now() != State::Unknown)
    }

    /// A request or a response with globs: the relay may wait for more round trips.
    fn restart(&mut self, ty: usize, listed: Mask) {
        if bits(listed).any(|listed| GLOBS.contains(&listed)) {
            self.returns[ty] = 0;
        }
    }

    /// The relay can know now that the first answers are whole; after a few times it must.
    pub fn settle(&mut self, ty: usize, now: u64) {
        self.returns[ty] = self.returns[ty].saturating_add(1);
        if self.returns[ty] < RETURNS {
            let is_left_out = |name: &usize| self.left_out[ty][*name].now() != State::Unknown;
            self.let_go[ty] |= (0..NAMES).filter(is_left_out).fold(0, |mask, name| mask | bit(name));
            return;
        }
        self.left_out[ty].iter_mut().for_each(|track| track.set(now, State::Unknown));
    }

    /// The stream of these globs ended too early for the relay to know that the first answers were whole.
    pub fn lose(&mut self, ty: usize, listed: Mask, now: u64) {
        for name in bits(listed).filter(|listed| GLOBS.contains(listed)).flat_map(members) {
            let former = self.left_out[ty][name].now();
            if former != State::Unknown && self.let_go[ty] & bit(name) == 0 {
                self.members[ty][name].set(now, former);
                self.left_out[ty][name].set(now, State::Unknown);
            }
        }
    }

    pub fn doubtful(&self, ty: usize) -> Mask {
        self.doubtful[ty]
    }

    /// The name's own subscription and its aliases decide, and then the glob (SUB-12, NAM-17).
    pub fn due(&self, ty: usize, wanted: Mask, name: usize, time: u64) -> Due {
        self.due_by(ty, wanted, name, time, |name| self.members[ty][name].at(time))
    }

    /// As before; members that a first answer left out count as they were before the stream.
    pub fn due_unsettled(&self, ty: usize, wanted: Mask, name: usize, time: u64) -> Due {
        self.due_by(ty, wanted, name, time, |name| match self.left_out[ty][name].at(time) {
            State::Unknown => self.members[ty][name].at(time),
            former => former,
        })
    }

    /// The content of a resource that the relay has under another name, for an alias that the server has not answered. The
    /// resource lists the alias, or did so. `listed`: what the open streams request; the relay may have given the rest up since.
    pub fn due_by_listing(&self, ty: usize, (wanted, listed): (Mask, Mask), name: usize, time: u64) -> Due {
        let is_unanswered =
            |alias: usize| self.named[ty][alias].at(time) == State::Unknown || listed & bit(alias) == 0;
        // The list is that of the newest content. A name that was given up may have older content here.
        let editions = self.named[ty].iter().filter_map(|track| match track.at(time) {
            State::Present(own, edition) if own == name => Some(edition),
            _ => None,
        });
        let edition = editions.max();
        let listed = || bits(self.listing[ty][name] & wanted).filter(|alias| is_unanswered(*alias));
        let kept = listed().find_map(|alias| match self.kept[ty][alias].at(time) {
            State::Present(own, edition) if own == name => Some(edition),
            _ => None,
        });
        match edition.filter(|_| listed().next().is_some()).or(kept) {
            Some(edition) => Due::Present(edition),
            None => Due::Unknown,
        }
    }

    fn due_by(
        &self,
        ty: usize,
        wanted: Mask,
        name: usize,
        time: u64,
        member: impl Fn(usize) -> State,
    ) -> Due {
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
            match member(name) {
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

    /// Whether a name had this content since then, and lost it at the same moment. Its last bytes may be sent.
    pub fn has_flashed(&self, ty: usize, name: usize, edition: u32, since: u64) -> bool {
        let is_it = |state: &State| *state == State::Present(name, edition);
        let mut tracks = self.named[ty].iter().chain([&self.members[ty][name]]);
        tracks.any(|track| {
            let mut pairs = track.0.windows(2);
            pairs.any(|pair| pair[0].0 >= since && pair[0].0 == pair[1].0 && is_it(&pair[0].1))
        })
    }

    /// Whether the alias ever led to the name.
    pub fn has_led(&self, ty: usize, alias: usize, name: usize) -> bool {
        let is_listed = self.listing[ty][name] & bit(alias) != 0;
        is_listed
            || self.named[ty][alias]
                .0
                .iter()
                .any(|(_, state)| matches!(state, State::Present(own, _) if *own == name))
    }

    /// The moments of a type from `since` on, at which anything changed.
    pub fn moments(&self, ty: usize, since: u64, now: u64) -> Vec<u64> {
        let members = self.members[ty].iter().chain(&self.left_out[ty]);
        let states = self.named[ty].iter().chain(members).flat_map(Track::changes);
        let all = states.chain(self.whole[ty].iter().flat_map(Track::changes));
        let timers = self.asked_at[ty].iter().flatten().map(|at| at + TIMEOUT);
        let mut moments: Vec<_> = all.chain(timers).filter(|at| *at > since && *at <= now).collect();
        moments.push(since);
        moments.sort_unstable();
        moments.dedup();
        moments
    }
}
