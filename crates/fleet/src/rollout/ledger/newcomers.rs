//! Units without stable content (LDG-3).
//!
//! A replica, or a class, that begins in the middle of a push is given the push by its control plane, and
//! knows nothing older that its clients could have meanwhile. So its clients wait for the types with content
//! of the push, until the push is over or has admitted their seats. The unit has stable content from then on,
//! and a *newcomer* no longer.
//!
//! The ledger has hashes of what a push changes, and none of what was there before. So other content in a
//! place of the push may be older or newer than the push. While the push is under way, it waits too, unless
//! all clients of some replica were given it. Afterwards it waits for as long as a next push may be gathered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sluice_engine::Time;
use sluice_engine::cache::Known;
use sluice_engine::gated::{Gated, flows};
use sluice_engine::snapshot::{Snapshot, TypeSnapshot};
use sluice_xds::{Resource, ResourceName, TypeUrl};

use crate::rollout::admission::Admission;
use crate::rollout::shared::contents::{ChangeHash, ContentSet, UnitKey};
use crate::rollout::shared::record::{PastPush, SharedState};

/// The clients of a newcomer: whether they wait for a push that is under way elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JoinPolicy {
    #[default]
    Wait,
    /// They are given the content of the control plane.
    Live,
}

/// The word of a plan for newcomers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinWord {
    pub policy: JoinPolicy,
    /// The clients that the push in the ledger has admitted.
    pub admission: Admission,
    pub way: JoinWay,
}

/// The content of the ledger for newcomers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinWay {
    /// The ledger has said nothing since the process began. Nobody waits for its first word after this time:
    /// a replica must not refuse its clients for ever.
    Unheard {
        until: Time,
    },
    Heard(Arc<LedgerPushes>),
}

/// The pushes in the ledger: the latest one, and the halted contents of earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerPushes {
    pub(super) push: u64,
    pub(super) state: SharedState,
    /// Since when the latest push is in that state.
    pub(super) since: Time,
    /// The time after which a change that was there when the push ended is in a push of its own.
    pub(super) gathered_within: Duration,
    pub(super) changed: ContentSet,
    /// The content of the push before, and the content that the latest push has lost on its way. Some of it
    /// may be gathered into a later push.
    pub(super) rest: PushRest,
    /// The units that the halt of the latest push blames; none: all.
    pub(super) blamed: Vec<UnitKey>,
    /// Since when no live replica has a part of the latest push.
    pub(super) deserted: Option<Time>,
    /// The pushes that all clients of some replica were given, by number.
    pub(super) done: BTreeMap<u64, Arc<PastPush>>,
    pub(super) halted: BTreeMap<(u64, Box<str>), Arc<PastPush>>,
}

/// Content that a push had, and that not all clients have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushRest {
    pub(super) contents: ContentSet,
    /// `None`: until the latest push is over, and some time after.
    pub(super) until: Option<Time>,
}

/// The gated content that all clients of a newcomer would be given.
#[derive(Clone, Debug)]
pub struct NewcomerContent {
    pub types: Vec<NewcomerType>,
    /// It is what the server says now: no push of this replica holds a later word back.
    pub is_newest: bool,
}

/// One type of a newcomer.
#[derive(Clone, Debug)]
pub struct NewcomerType {
    pub type_url: TypeUrl,
    /// All members of the wildcard or of some glob are known: a name that is not among them may be gone.
    pub is_whole: bool,
    pub contents: BTreeSet<ChangeHash>,
}

/// A unit without stable content.
#[derive(Debug)]
pub struct Newcomer {
    unit: UnitKey,
    /// The contents in places of the push that are no part of it, each with the time of its first sight.
    others: BTreeMap<ChangeHash, Time>,
    /// The content that all clients were given when it did not have to wait: it does not wait afterwards.
    given: BTreeSet<ChangeHash>,
    /// The types with all of their members among it.
    given_whole: BTreeSet<TypeUrl>,
}

/// How a newcomer stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinStanding {
    /// Its content is stable from now on.
    Settled,
    /// Nothing of its content waits so far.
    Free,
    Waits(JoinWait),
}

/// A wait of a newcomer's clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinWait {
    /// `None`: for the first word of the ledger.
    pub push: Option<u64>,
    /// `None`: all types that the plan holds.
    pub types: Option<BTreeSet<TypeUrl>>,
    /// All that waits is content of the push, so the clients that the push has admitted may have it.
    pub is_of_push: bool,
    /// When another look is due, whatever happens; `None`: when something changes.
    pub due: Option<Time>,
}

impl JoinWord {
    pub fn unheard(policy: JoinPolicy, until: Time) -> JoinWord {
        JoinWord { policy, admission: Admission::NOBODY, way: JoinWay::Unheard { until } }
    }

    /// Whether the clients of a replica without any stable content would have to wait.
    pub fn is_in_the_way(&self, now: Time) -> bool {
        self.policy == JoinPolicy::Wait
            && match &self.way {
                JoinWay::Unheard { until } => now < *until,
                JoinWay::Heard(pushes) => pushes.is_in_the_way(now),
            }
    }
}

impl Newcomer {
    pub fn new(unit: UnitKey) -> Newcomer {
        let (others, given, given_whole) = Default::default();
        Newcomer { unit, others, given, given_whole }
    }

    pub fn unit(&self) -> UnitKey {
        self.unit
    }

    pub fn look(
        &mut self,
        word: &JoinWord,
        content: impl FnOnce(UnitKey) -> NewcomerContent,
        now: Time,
    ) -> JoinStanding {
        match &word.way {
            JoinWay::Unheard { until } if now < *until => JoinStanding::Waits(JoinWait {
                push: None,
                types: None,
                is_of_push: false,
                due: Some(*until),
            }),
            JoinWay::Unheard { .. } => settled_if(has_content(&content(self.unit).types)),
            JoinWay::Heard(pushes) => self.compare(pushes, &content(self.unit), now),
        }
    }

    fn compare(&mut self, pushes: &LedgerPushes, content: &NewcomerContent, now: Time) -> JoinStanding {
        let NewcomerContent { types, is_newest } = content;
        self.note_others(&pushes.changed, types, now);
        // Since when the server has other content in some place of the push.
        let changed = self.others.values().max().copied().filter(|_| *is_newest);
        let holds = |(push, past): (u64, &PastPush)| self.holds_halted(pushes, push, past, content);
        let halted = pushes.halted.iter().map(|((push, _), past)| (*push, &**past));
        let halted: Vec<_> = halted.filter(|past| holds(*past)).collect();
        let mut wait = JoinWait { push: Some(pushes.push), types: None, is_of_push: true, due: None };
        let mut waiting = BTreeSet::new();
        for part in types {
            let mut waits = self.waits_of(pushes, part, changed);
            if halted.iter().any(|(push, past)| self.has_part(pushes, *push, &past.changed, part)) {
                waits.push(Hold { is_of_push: false, until: None });
            }
            for Hold { is_of_push, until } in waits {
                if until.is_some_and(|until| until <= now) {
                    continue;
                }
                wait.due = wait.due.into_iter().chain(until).min();
                wait.is_of_push &= is_of_push;
                waiting.insert(part.type_url.clone());
            }
        }
        self.note_given(types, &waiting);
        match waiting.is_empty() {
            false => JoinStanding::Waits(JoinWait { types: Some(waiting), ..wait }),
            true => settled_if(pushes.is_past(now) && has_content(types)),
        }
    }

    /// Notes the contents in places of the latest push that are no part of it.
    fn note_others(&mut self, changed: &ContentSet, types: &[NewcomerType], now: Time) {
        let contents = || types.iter().flat_map(|part| part.contents.iter().copied());
        let is_other = |change: &ChangeHash| changed.has_place_of(*change) && !changed.has(*change);
        let others: BTreeSet<ChangeHash> = contents().filter(is_other).collect();
        self.others.retain(|change, _| others.contains(change));
        for other in others {
            self.others.entry(other).or_insert(now);
        }
    }

    fn note_given(&mut self, types: &[NewcomerType], waiting: &BTreeSet<TypeUrl>) {
        let before = std::mem::take(&mut self.given);
        for part in types {
            let is_given = !waiting.contains(&part.type_url);
            let given = part.contents.iter().filter(|change| is_given || before.contains(change));
            self.given.extend(given);
            if is_given && part.is_whole {
                self.given_whole.insert(part.type_url.clone());
            }
        }
    }

    /// Why a type waits for the latest push.
    fn waits_of(&self, pushes: &LedgerPushes, part: &NewcomerType, changed: Option<Time>) -> Vec<Hold> {
        let others = part.contents.iter().filter_map(|change| {
            let is_new = !pushes.knows(*change) && !self.given.contains(change);
            let seen = self.others.get(change).filter(|_| is_new)?;
            Some(Hold { is_of_push: false, until: pushes.other_until(*seen) })
        });
        let has_part = self.has_part(pushes, pushes.push, &pushes.changed, part);
        let until = pushes.part_until(self.unit, changed);
        let PushRest { contents, until: rest_until } = &pushes.rest;
        let has_rest = self.has_part(pushes, pushes.push, contents, part);
        let rest = has_rest.then_some(Hold { is_of_push: false, until: *rest_until });
        others.chain(has_part.then_some(Hold { is_of_push: true, until })).chain(rest).collect()
    }

    /// Whether a type has content of a push that not all clients of some replica were given.
    fn has_part(&self, pushes: &LedgerPushes, push: u64, set: &ContentSet, part: &NewcomerType) -> bool {
        let stands = |change: ChangeHash| {
            !pushes.knows(change) && !pushes.has_replaced(push, change) && !self.given.contains(&change)
        };
        let is_there = |gone: ChangeHash| part.contents.iter().any(|change| change.has_place_of(gone));
        let mut gone = set.removals(self.unit, &part.type_url);
        part.contents.iter().any(|change| set.has(*change) && stands(*change))
            || part.is_whole
                && !self.given_whole.contains(&part.type_url)
                && gone.any(|gone| stands(gone) && !is_there(gone))
    }

    /// Whether the unit was blamed for the halt of a push, and its server has changed nothing there since.
    fn holds_halted(
        &self,
        pushes: &LedgerPushes,
        push: u64,
        past: &PastPush,
        content: &NewcomerContent,
    ) -> bool {
        let set = &past.changed;
        let NewcomerContent { types, is_newest } = content;
        let mut contents = types.iter().flat_map(|part| part.contents.iter());
        is_blamed(&past.blamed, self.unit)
            && !set.is_whole()
            && !(*is_newest && contents.any(|change| set.has_place_of(*change) && !set.has(*change)))
            && types.iter().any(|part| self.has_part(pushes, push, set, part))
    }
}

fn settled_if(is_settled: bool) -> JoinStanding {
    if is_settled { JoinStanding::Settled } else { JoinStanding::Free }
}

/// A unit whose server has not answered has no stable content either.
fn has_content(types: &[NewcomerType]) -> bool {
    types.iter().any(|part| part.is_whole || !part.contents.is_empty())
}

/// A reason to wait; `until`: not longer.
struct Hold {
    is_of_push: bool,
    until: Option<Time>,
}

fn is_blamed(blamed: &[UnitKey], unit: UnitKey) -> bool {
    blamed.is_empty() || blamed.contains(&unit)
}

impl LedgerPushes {
    /// The rest at the next word of the ledger, about push `push` in `state` with `changed`.
    pub(super) fn next_rest(
        &self,
        push: u64,
        state: SharedState,
        changed: &ContentSet,
        now: Time,
    ) -> PushRest {
        let is_same = self.push == push;
        let lost = if is_same { self.changed.without(changed) } else { self.changed.clone() };
        let until = (!is_same || !state.is_under_way()).then_some(now + self.gathered_within);
        match &self.rest.until {
            // The latest push was not over at the word before.
            None if !self.rest.contents.is_empty() => {
                let mut contents = lost;
                contents.add(self.rest.contents.listed());
                PushRest { contents, until }
            }
            _ if is_same && lost.is_empty() => self.rest.clone(),
            _ => PushRest { contents: lost, until },
        }
    }

    /// Whether all clients of some replica were given the content.
    fn knows(&self, change: ChangeHash) -> bool {
        self.done.values().any(|past| past.changed.has(change))
    }

    /// Whether all clients were given other content there since a push: what was halted before may be tried
    /// again.
    fn has_replaced(&self, push: u64, change: ChangeHash) -> bool {
        self.done.range(push + 1..).any(|(_, past)| past.changed.has_place_of(change))
    }

    /// Until when content of the latest push waits. `changed`: since when the unit's server has other content
    /// in some place of the push.
    fn part_until(&self, unit: UnitKey, changed: Option<Time>) -> Option<Time> {
        match (self.state, changed) {
            (SharedState::Gathering | SharedState::Moving, _) => None,
            (SharedState::Over, _) => Some(self.since + self.gathered_within),
            // The rest of a mended push is gathered anew, where somebody has older content.
            (SharedState::Halted, Some(changed)) => self.left_until(changed),
            (SharedState::Halted, None) if is_blamed(&self.blamed, unit) => None,
            // Not blamed, and nobody is there who could give it by steps.
            (SharedState::Halted, None) => self.left_until(self.since),
        }
    }

    /// Until when content of a halted push waits that may go on from `then`: at the replicas with a part of
    /// the push it does not, until each blamed unit has changed.
    fn left_until(&self, then: Time) -> Option<Time> {
        self.deserted.map(|deserted| deserted.max(then).max(self.since) + self.gathered_within)
    }

    /// Until when other content in a place of the latest push waits, which was `seen` first at a time.
    fn other_until(&self, seen: Time) -> Option<Time> {
        match self.state {
            SharedState::Gathering | SharedState::Moving => None,
            SharedState::Halted => self.left_until(seen),
            SharedState::Over => Some(self.since + self.gathered_within),
        }
    }

    /// Whether the latest push is under way, or halted at some replica.
    fn is_in_the_way(&self, now: Time) -> bool {
        match self.state {
            SharedState::Gathering | SharedState::Moving => true,
            SharedState::Halted => self.deserted.is_none_or(|since| now < since + self.gathered_within),
            SharedState::Over => false,
        }
    }

    /// Whether no push is under way, nor about to begin with content from before the end of the latest.
    fn is_past(&self, now: Time) -> bool {
        self.state == SharedState::Over && now >= self.since + self.gathered_within
    }
}

impl NewcomerType {
    /// The gated content of a snapshot, as [`PushUnit::shared`](crate::evidence::PushUnit::shared) names it.
    pub fn of(snapshot: &Snapshot, gated: &Gated, unit: UnitKey) -> Vec<NewcomerType> {
        let of_type = |(type_url, content): (&TypeUrl, &TypeSnapshot)| NewcomerType {
            type_url: type_url.clone(),
            is_whole: content.wildcard.is_whole() || !content.globs.complete.is_empty(),
            contents: contents_of(content)
                .filter(|(_, resource)| !resource.is_some_and(flows))
                .map(|(name, resource)| {
                    ChangeHash::new(unit, type_url, name, resource.map(|resource| resource.version))
                })
                .collect(),
        };
        snapshot.gated_types(gated).map(of_type).collect()
    }
}

/// The known names, with their resources; `None` for one that is known to have none.
pub fn contents_of(content: &TypeSnapshot) -> impl Iterator<Item = (&ResourceName, Option<&Resource>)> {
    let members = content.wildcard.members.iter().chain(content.globs.members.iter());
    let members = members.map(|(name, cached)| (name, Some(&*cached.resource)));
    let named = content.names.entries.iter().filter(|(_, state)| !matches!(state, Known::Unknown));
    members.chain(named.map(|(name, state)| (name, state.resource().map(|resource| &**resource))))
}
