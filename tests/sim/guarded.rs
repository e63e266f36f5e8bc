//! The reference model of mass deletions at a source: resources removed in one response and served on for a
//! while (FU18).

use std::collections::BTreeMap;

use super::reference::Source;
use super::track::State;
use super::words::{ALL, Mask, TYPES, bit, bits};

/// The duration of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Microseconds.
    For(u64),
    /// Until the operator confirms the deletion.
    UntilConfirmed,
}

/// A mass deletion removes more than this number at once, and more than half.
const NAMES_MIN: u32 = 10;

/// The held resources. `true`: members of the wildcard; `false`: names.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    pub hold: Option<Hold>,
    held: BTreeMap<(usize, bool), Mask>,
    /// The end of each hold.
    until: BTreeMap<(usize, bool, usize), u64>,
}

impl Guard {
    pub fn held(&self, ty: usize, members: bool) -> Mask {
        self.held.get(&(ty, members)).copied().unwrap_or_default()
    }

    pub fn is_held(&self, ty: usize, members: bool, name: usize) -> bool {
        self.hold.is_some() && self.held(ty, members) & bit(name) != 0
    }

    /// The end of the first hold.
    pub fn next(&self) -> Option<u64> {
        self.until.values().min().copied()
    }

    /// The number of held resources of a type.
    pub fn count(&self, ty: usize) -> usize {
        [false, true].into_iter().map(|members| self.held(ty, members).count_ones() as usize).sum()
    }

    /// Drops names that are removed or restored.
    pub fn forget(&mut self, ty: usize, members: bool, names: Mask) {
        if let Some(held) = self.held.get_mut(&(ty, members)).filter(|held| **held & names != 0) {
            *held &= !names;
            for name in bits(names) {
                self.until.remove(&(ty, members, name));
            }
        }
    }

    /// A response removes `taken` from the resources `there`, and brings others. Returns the held names.
    pub fn judge(&mut self, key: (usize, bool), taken: Mask, there: Mask, brought: Mask, now: u64) -> Mask {
        let Some(hold) = self.hold else { return 0 };
        let held = self.held(key.0, key.1);
        let (standing, fresh) = (there & !held, taken & !held);
        self.forget(key.0, key.1, brought);
        if fresh.count_ones() > NAMES_MIN && 2 * fresh.count_ones() > standing.count_ones() {
            *self.held.entry(key).or_default() |= fresh;
            if let Hold::For(time) = hold {
                self.until.extend(bits(fresh).map(|name| ((key.0, key.1, name), now + time)));
            }
        }
        self.held(key.0, key.1)
    }
}

impl Source {
    pub fn guarded(mut self, hold: Option<Hold>) -> Source {
        self.guard.hold = hold;
        self
    }

    /// The resources of a collection.
    pub fn there(&self, ty: usize, members: bool) -> Mask {
        let tracks = if members { &self.members[ty] } else { &self.names[ty] };
        let there = tracks.iter().enumerate().filter(|(_, track)| matches!(track.state(), State::Present(_)));
        there.fold(0, |mask, (name, _)| mask | bit(name))
    }

    /// Drops resources after the hold. While the server is lost it cannot restore resources, so the hold
    /// restarts.
    pub(super) fn let_deletions_go(&mut self, now: u64, is_lost: [bool; TYPES]) {
        let Some(Hold::For(time)) = self.guard.hold else { return };
        let over: Vec<_> =
            self.guard.until.iter().filter(|(_, due)| **due <= now).map(|(key, _)| *key).collect();
        for (ty, members, name) in over {
            if is_lost[ty] {
                self.guard.until.insert((ty, members, name), now + time);
            } else {
                self.delete_held(ty, members, bit(name));
            }
        }
    }

    /// The operator confirms the held deletions of a type.
    pub fn confirm_deletions(&mut self, ty: usize) {
        self.moment += 1;
        for members in [false, true] {
            self.delete_held(ty, members, ALL);
        }
    }

    fn delete_held(&mut self, ty: usize, members: bool, names: Mask) {
        let moment = self.moment;
        let over = self.guard.held(ty, members) & names;
        self.guard.forget(ty, members, over);
        let absent = if self.complete[ty] || !members { State::Absent } else { State::Unknown };
        let tracks = if members { &mut self.members[ty] } else { &mut self.names[ty] };
        bits(over).for_each(|name| tracks[name].lose(absent, moment));
    }

    /// Keeps serving these, although the server has removed them: the relay claims no version of them.
    pub(super) fn keep_held(&mut self, ty: usize, members: bool, names: Mask) {
        let tracks = if members { &mut self.members[ty] } else { &mut self.names[ty] };
        bits(names).for_each(|name| tracks[name].upstream_version = Box::default());
    }

    pub(super) fn forget_expired(&mut self) {
        if self.guard.hold.is_none() {
            return;
        }
        for (ty, members) in (0..TYPES).flat_map(|ty| [(ty, false), (ty, true)]) {
            let there = self.there(ty, members);
            self.guard.forget(ty, members, !there);
        }
    }
}
