//! The record of a type whose names a server may answer only together, or not at all (ADR 54).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::Time;
use crate::source::api::StreamIndex;
use sluice_xds::ResourceName;

/// The wait before the next question about a server that answered all names, or none. The wait doubles up to
/// the cap: the questions cost a stream each.
const AGAIN: Duration = Duration::from_secs(60);
const AGAIN_MAX: Duration = Duration::from_secs(3600);

/// The wait before the next request for a name that the server is silent about. The wait doubles up to the
/// cap.
const NEXT: Duration = Duration::from_secs(5);
const NEXT_MAX: Duration = Duration::from_secs(60);

/// The maximum number of requests for parts of a type that the server has never answered. Three levels of
/// halves.
pub(super) const PARTS_MAX: u32 = 14;

/// The doubtful names of a type.
#[derive(Debug, Default)]
pub(super) struct TypeDoubt {
    /// The server answers the names of the type, and is silent about more of them.
    pub(super) is_proven: bool,
    pub(super) question: Option<Question>,
    /// No question before.
    pub(super) quiet_until: Time,
    quiets: u32,
    /// A stream for names was lost: the next stream opens then.
    pub(super) hold: Option<Time>,
    /// Names that the shared request does not list. Only a proven server has such names.
    pub(super) apart: BTreeMap<ResourceName, Apart>,
    /// Sets of names that wait for a stream of their own: new names and sets of several names first.
    queue: VecDeque<TrialNames>,
    pub(super) trials: Vec<Trial>,
}

/// The questions that find out whether names silence the server. Each has a new stream, whose first request
/// any other server answers with the resources that exist.
#[derive(Clone, Debug)]
pub(super) enum Question {
    /// No name has an answer: parts of the names look for the first one. The number of parts so far.
    Parts(u32),
    /// The witness, which has been answered before, together with the doubtful names.
    Together(ResourceName),
    /// The witness alone.
    Alone(ResourceName),
}

/// A name without a place in the shared request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Apart {
    pub(super) since: Time,
    /// The number of requests for this name alone without an answer.
    pub(super) silences: u32,
    /// The time of the next request; `None` while a request waits or is under way.
    pub(super) next: Option<Time>,
}

/// Names for one stream.
#[derive(Debug)]
pub(super) struct TrialNames {
    pub(super) names: Vec<ResourceName>,
    /// The server was not asked for these names before. They do not wait behind names that it is silent
    /// about.
    pub(super) is_new: bool,
}

impl TrialNames {
    /// A single name that the server was silent about, together with others or alone.
    fn is_single(&self) -> bool {
        self.names.len() == 1 && !self.is_new
    }
}

/// A stream for some names, until the server has answered or was silent for long enough.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) index: StreamIndex,
    pub(super) set: TrialNames,
    /// The number of signs of life at the end of the time for an answer: one more proves the silence.
    pub(super) over: Option<u64>,
}

impl TypeDoubt {
    /// The server answers all names, or none: there is no question for a while.
    pub(super) fn be_quiet(&mut self, now: Time) {
        self.question = None;
        self.queue.clear();
        self.quiet_until = now + (AGAIN * (1 << self.quiets.min(6))).min(AGAIN_MAX);
        self.quiets = self.quiets.saturating_add(1);
    }

    /// The server is silent about some of these names. They are asked for apart from now on: in halves, as
    /// long as a set has several names.
    pub(super) fn convict(&mut self, names: &[ResourceName], now: Time) {
        (self.is_proven, self.question, self.quiets) = (true, None, 0);
        self.queue.clear();
        self.take_apart(names, now);
        self.try_halves(names);
    }

    pub(super) fn take_apart(&mut self, names: &[ResourceName], now: Time) {
        let apart = Apart { since: now, silences: 0, next: None };
        self.apart.extend(names.iter().map(|name| (name.clone(), apart)));
    }

    pub(super) fn try_halves(&mut self, names: &[ResourceName]) {
        let (first, second) = names.split_at(names.len().div_ceil(2));
        self.try_names(first.to_vec());
        self.try_names(second.to_vec());
    }

    pub(super) fn try_names(&mut self, names: Vec<ResourceName>) {
        self.try_set(TrialNames { names, is_new: false });
    }

    pub(super) fn try_set(&mut self, set: TrialNames) {
        if set.is_single() {
            self.queue.push_back(set);
        } else {
            self.queue.push_front(set);
        }
    }

    /// The next names that may have a stream. `singles_max`: the number of streams for single names.
    pub(super) fn next_set(&mut self, singles_max: usize) -> Option<TrialNames> {
        if self.question.is_none() {
            let apart = &self.apart;
            self.queue.iter_mut().for_each(|set| set.names.retain(|name| apart.contains_key(name)));
        }
        self.queue.retain(|set| !set.names.is_empty());
        let singles = self.trials.iter().filter(|trial| trial.set.is_single()).count();
        let is_free = |set: &TrialNames| !set.is_single() || singles < singles_max;
        if self.queue.front().is_some_and(is_free) { self.queue.pop_front() } else { None }
    }

    pub(super) fn clear_queue(&mut self) {
        self.queue.clear();
    }

    pub(super) fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The server was silent about this name alone. Returns true the first time.
    pub(super) fn silent(&mut self, name: &ResourceName, now: Time) -> bool {
        let Some(apart) = self.apart.get_mut(name) else { return false };
        apart.next = Some(now + (NEXT * (1 << apart.silences.min(6))).min(NEXT_MAX));
        apart.silences = apart.silences.saturating_add(1);
        apart.silences == 1
    }

    /// The names whose next request is due begin to wait for a stream.
    pub(super) fn try_again(&mut self, now: Time) {
        let due = self.apart.iter_mut().filter(|(_, apart)| apart.next.is_some_and(|next| next <= now));
        for (name, apart) in due {
            apart.next = None;
            self.queue.push_back(TrialNames { names: vec![name.clone()], is_new: false });
        }
    }

    pub(super) fn next_try(&self) -> Option<Time> {
        self.apart.values().filter_map(|apart| apart.next).min()
    }

    /// Nothing is in doubt any more. Returns the names that were apart.
    pub(super) fn end(&mut self) -> Vec<ResourceName> {
        self.question = None;
        self.queue.clear();
        std::mem::take(&mut self.apart).into_keys().collect()
    }

    /// Something is to do now, or after an input of a stream.
    pub(super) fn is_busy(&self, now: Time) -> bool {
        let is_asking = self.question.is_some() || !self.trials.is_empty() || !self.queue.is_empty();
        is_asking || self.next_try().is_some_and(|next| next <= now)
    }

    /// The silent names.
    pub(super) fn silent_names(&self) -> impl Iterator<Item = (&ResourceName, &Apart)> {
        self.apart.iter().filter(|(_, apart)| apart.silences > 0)
    }
}
