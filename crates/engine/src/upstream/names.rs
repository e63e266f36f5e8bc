//! Names from subscriptions one by one: the state of each name, and its resource timer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use super::variants::{NameFamily, NameVariants};
use crate::commons::{Commons, ContentKey, MapUse, Shared};
use crate::filling::{Filling, Refilled};
use crate::{CHECKED_NAMES_MAX, Time};
use sluice_xds::{Received, Resource, ResourceName, Variant};

/// A resource that the source holds, and the server's version string for the resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeldResource {
    /// From this server in this variant only (STR-8, RLY-64); empty if there is none.
    pub(super) version: Arc<str>,
    /// The version may be claimed in `initial_resource_versions`: the bytes were really kept (CCH-1).
    pub(super) restate: bool,
    /// The resource's own name, if the subscription is to an alias (ALI-1).
    canonical: Option<ResourceName>,
}

impl HeldResource {
    /// `restate` is false in SotW, where versions belong to responses and not to resources.
    pub(super) fn new(received: &Received, resource: &Resource, restate: bool) -> HeldResource {
        let version = received.upstream_version.clone();
        let restate = restate && !version.is_empty() && !resource.do_not_cache;
        HeldResource { version, restate, canonical: None }
    }

    /// A variant never occurs in `initial_resource_versions`, which has no place for constraints.
    pub(super) fn from_variant(version: &str) -> HeldResource {
        HeldResource { version: version.into(), restate: false, canonical: None }
    }

    /// Takes the version string out, with the permission to claim the version. `None` if the string is empty.
    pub(super) fn take_version(&mut self) -> Option<(Arc<str>, bool)> {
        let (version, restate) = (std::mem::take(&mut self.version), std::mem::take(&mut self.restate));
        (!version.is_empty()).then_some((version, restate))
    }

    pub(super) fn set_version(&mut self, version: Arc<str>, restate: bool) {
        (self.version, self.restate) = (version, restate);
    }

    /// A resource from before the restart of the relay.
    pub(super) fn from_former(version: &str, restate: bool) -> HeldResource {
        let restate = restate && !version.is_empty();
        HeldResource {
            version: if restate { version.into() } else { Arc::default() },
            restate,
            canonical: None,
        }
    }

    /// The own name of the resource under `name`.
    pub(super) fn own_name<'a>(&'a self, name: &'a ResourceName) -> &'a ResourceName {
        self.canonical.as_ref().unwrap_or(name)
    }

    pub(super) fn forget_version(&mut self) {
        self.version = Arc::default();
        self.restate = false;
    }
}

/// The three states of a name (RLY-2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Presence {
    #[default]
    Unknown,
    Held(HeldResource),
    Absent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ResourceTimer {
    /// The first expiry, before extensions. It has the order in which names were requested.
    first_due: Time,
    due: Time,
    /// The number of the stream's signs of life at the write of the request.
    signs: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct NameState {
    presence: Presence,
    /// Listed in the first request of the type on this stream (RLY-27 b), and not PRESENT since.
    in_first_request: bool,
    /// PRESENT earlier on this stream (RLY-27 a).
    seen: bool,
    /// In a box: most names have an answer, and no timer.
    timer: Option<Box<ResourceTimer>>,
    /// The last report about the name was an error. The next report ends the state, even the repetition of an
    /// absence (ERR-3).
    failed: bool,
}

/// All names of one type.
#[derive(Debug, Default)]
pub(super) struct WantedNames {
    /// Sources with equal states share them.
    states: OrdMap<ResourceName, NameState>,
    shared: Shared,
    refilled: Refilled,
    /// Own name of a resource → the wanted aliases that the resource answers.
    aliases: BTreeMap<ResourceName, BTreeSet<ResourceName>>,
    /// Running timers, in the order of expiry.
    due: BTreeSet<(Time, ResourceName)>,
    /// Timers that expired without a sign of life since the write of the request (RLY-29).
    unproven: BTreeSet<ResourceName>,
    /// Timers that expired before the server spoke of the type on this stream (see [`Self::run_out`]).
    overdue: BTreeSet<ResourceName>,
    pace: AnswerPace,
    /// SotW: names that were known before this stream, and have no answer on the stream yet. Snapshots share
    /// the set.
    unanswered: OrdSet<ResourceName>,
    /// Names with variants, and names wanted with parameters; nearly always `None`.
    pub(super) variants: NameVariants,
}

impl WantedNames {
    pub(super) fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    pub(super) fn contains(&self, name: &ResourceName) -> bool {
        self.states.contains_key(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ResourceName> {
        self.states.keys()
    }

    /// Returns true if the name is new.
    pub(super) fn insert(&mut self, name: ResourceName) -> bool {
        self.variants.enter(&name, |plain| self.states.contains_key(plain));
        let is_new = !self.states.contains_key(&name);
        if is_new {
            self.states.insert(name, NameState::default());
        }
        is_new
    }

    /// Returns true if the name was wanted.
    pub(super) fn remove(&mut self, name: &ResourceName) -> bool {
        self.cancel_timer(name);
        self.mark_answered(name);
        self.variants.leave(name);
        let Some(state) = self.states.remove(name) else { return false };
        self.unlink(name, &state.presence);
        true
    }

    /// The wanted names that a resource answers: the own name and the aliases (ALI-1).
    pub(super) fn answered_by(
        &self,
        name: &ResourceName,
        aliases: &[ResourceName],
    ) -> BTreeSet<ResourceName> {
        let earlier_aliases = self.aliases.get(name).into_iter().flatten();
        let candidates = std::iter::once(name).chain(aliases).chain(earlier_aliases);
        candidates.filter(|candidate| self.contains(candidate)).cloned().collect()
    }

    /// The wanted names that a server can mean by `name`: the names that a resource `name` answers, and the
    /// family of the plain name.
    pub(super) fn meant_by(&self, name: &ResourceName) -> BTreeSet<ResourceName> {
        let mut names = self.answered_by(name, &[]);
        names.extend(self.variants.family_names(name).cloned());
        names
    }

    /// The family of a name with variants.
    pub(super) fn family_mut(&mut self, name: &ResourceName) -> Option<&mut NameFamily> {
        self.variants.family_mut(name, |plain| self.states.contains_key(plain))
    }

    /// The resource of a wanted name arrived. `seen`: the name was in a written request.
    pub(super) fn hold(
        &mut self,
        name: &ResourceName,
        own_name: &ResourceName,
        mut held: HeldResource,
        seen: bool,
    ) {
        self.cancel_timer(name);
        self.mark_answered(name);
        let Some(state) = self.states.get_mut(name) else { return };
        state.seen |= seen;
        // Two names whose resources came have equal states, however they were requested.
        state.in_first_request &= !state.seen;
        state.failed = false;
        if own_name != name {
            held.canonical = Some(own_name.clone());
        }
        let before = std::mem::replace(&mut state.presence, Presence::Held(held));
        self.unlink(name, &before);
        if own_name != name {
            self.aliases.entry(own_name.clone()).or_default().insert(name.clone());
        }
    }

    /// Returns true if the absence is news.
    pub(super) fn set_absent(&mut self, name: &ResourceName) -> bool {
        self.cancel_timer(name);
        self.mark_answered(name);
        let Some(state) = self.states.get_mut(name) else { return false };
        let before = std::mem::replace(&mut state.presence, Presence::Absent);
        let ends_error = std::mem::take(&mut state.failed);
        self.unlink(name, &before);
        ends_error || !matches!(before, Presence::Absent)
    }

    /// Records an error about a name.
    pub(super) fn note_error(&mut self, name: &ResourceName) {
        if let Some(state) = self.states.get_mut(name) {
            state.failed = true;
        }
    }

    pub(super) fn held(&self, name: &ResourceName) -> Option<&HeldResource> {
        match &self.states.get(name)?.presence {
            Presence::Held(held) => Some(held),
            Presence::Unknown | Presence::Absent => None,
        }
    }

    /// The names with a resource.
    pub(super) fn held_names(&self) -> impl Iterator<Item = (&ResourceName, &HeldResource)> {
        self.states.iter().filter_map(|(name, state)| match &state.presence {
            Presence::Held(held) => Some((name, held)),
            Presence::Unknown | Presence::Absent => None,
        })
    }

    pub(super) fn is_absent(&self, name: &ResourceName) -> bool {
        self.states.get(name).is_some_and(|state| matches!(state.presence, Presence::Absent))
    }

    /// Names whose omission from a full-state response proves their absence (RLY-27 a, b).
    pub(super) fn omitted(&self, mentioned: &BTreeSet<ResourceName>) -> Vec<ResourceName> {
        let proves = |state: &NameState| {
            (state.seen || state.in_first_request)
                && (state.failed || !matches!(state.presence, Presence::Absent))
        };
        let omitted = self.states.iter().filter(|(name, state)| proves(state) && !mentioned.contains(*name));
        omitted.map(|(name, _)| name.clone()).collect()
    }

    /// The content of `initial_resource_versions`, under the resources' own names.
    ///
    /// An unknown name may be an alias of a held resource, or the own name of a resource that is held under
    /// an alias. The server does not send restated resources again, and its silence would count as absence
    /// (ALI-1, TMR-5). So nothing is restated then.
    pub(super) fn versions(&self, may_have_aliases: bool) -> BTreeMap<ResourceName, String> {
        let is_unknown = |state: &NameState| matches!(state.presence, Presence::Unknown);
        if (may_have_aliases || !self.aliases.is_empty()) && self.states.values().any(is_unknown) {
            return BTreeMap::new();
        }
        let held = self.states.iter().filter_map(|(name, state)| match &state.presence {
            Presence::Held(held) if held.restate => Some((name, held)),
            _ => None,
        });
        held.map(|(name, held)| (held.own_name(name).clone(), held.version.to_string())).collect()
    }

    pub(super) fn each_held(&mut self, mut visit: impl FnMut(&ResourceName, &mut HeldResource)) {
        let names: Vec<_> = self.states.keys().cloned().collect();
        for name in &names {
            if let Some(Presence::Held(held)) = self.states.get_mut(name).map(|state| &mut state.presence) {
                visit(name, held);
            }
        }
    }

    /// Records the write of a request that lists the name. The timer starts if the name is unknown (TMR-2,
    /// TMR-3).
    pub(super) fn note_request(
        &mut self,
        name: &ResourceName,
        in_first_request: bool,
        due: Time,
        signs: u64,
    ) {
        let Some(state) = self.states.get_mut(name) else { return };
        state.in_first_request = in_first_request;
        if matches!(state.presence, Presence::Unknown) {
            state.timer = Some(Box::new(ResourceTimer { first_due: due, due, signs }));
            self.due.insert((due, name.clone()));
        }
    }

    /// Returns true if the name was PRESENT earlier on this stream.
    pub(super) fn is_seen(&self, name: &ResourceName) -> bool {
        self.states.get(name).is_some_and(|state| state.seen)
    }

    /// Records an answer to the name. Other names of the same and of later requests are still outstanding.
    /// `until`: the end of a timer that would start now.
    pub(super) fn note_answer(&mut self, name: &ResourceName, until: Time, now: Time) {
        let Some(state) = self.states.get(name) else { return };
        let is_first = state.in_first_request && !state.seen;
        let asked = state.timer.as_ref().map(|timer| timer.first_due).or(is_first.then_some(Time::ZERO));
        if let Some(asked) = asked {
            self.pace.note(asked, until, now);
        }
    }

    /// Records the first request on a stream, to a server that owes an answer to each listed name.
    pub(super) fn expect_all(&mut self) {
        let answered = self.states.iter().filter(|(_, state)| !matches!(state.presence, Presence::Unknown));
        self.unanswered = answered.map(|(name, _)| name.clone()).collect();
    }

    /// Names that were known before this stream, and have no answer on the stream yet.
    pub(super) fn unanswered(&self) -> &OrdSet<ResourceName> {
        &self.unanswered
    }

    fn mark_answered(&mut self, name: &ResourceName) {
        // The set is nearly always empty, and a removal would search for the name.
        if !self.unanswered.is_empty() {
            self.unanswered.remove(name);
        }
    }

    /// TMR-4: timers stop, and observations of the old stream do not count on the next stream.
    pub(super) fn end_stream(&mut self) {
        self.unanswered.clear();
        self.pace = AnswerPace::default();
        let ended = self.states.iter().map(|(name, state)| {
            let mut state = state.clone();
            state.in_first_request = false;
            state.seen = false;
            state.timer = None;
            (name.clone(), state)
        });
        self.states = Filling::Full.order(ended.collect()).collect();
        self.due.clear();
        self.unproven.clear();
        self.overdue.clear();
        self.variants.end_stream();
    }

    pub(super) fn next_due(&self) -> Option<Time> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Takes the expired timers. Timers without a sign of life since their requests are kept back (see
    /// [`Self::prove`]).
    ///
    /// `spoken`: the server has spoken of the type on this stream, but not of the name. A server that is
    /// silent about the whole type may be slow, or may be gathering its own knowledge. The silence then
    /// proves nothing about a single name (RLY-1, RLY-2), and the timer restarts when the server speaks
    /// ([`Self::restart_timers`]).
    pub(super) fn run_out(&mut self, now: Time, signs: u64, spoken: bool) -> Vec<ResourceName> {
        let (mut out, mut unproven) = (Vec::new(), Vec::new());
        while self.next_due().is_some_and(|due| due <= now) {
            let Some((_, name)) = self.due.pop_first() else { break };
            if !spoken {
                self.overdue.insert(name);
                continue;
            }
            let timer = self.states.get(&name).and_then(|state| state.timer.as_ref());
            let is_proven = timer.is_some_and(|timer| signs > timer.signs);
            if is_proven { &mut out } else { &mut unproven }.push(name);
        }
        self.put_off(&mut out, now);
        self.put_off(&mut unproven, now);
        self.unproven.extend(unproven);
        for name in &out {
            self.cancel_timer(name);
        }
        out
    }

    /// Removes names from `out` while the server is still answering their requests, and extends their timers.
    fn put_off(&mut self, out: &mut Vec<ResourceName>, now: Time) {
        let (pace, states, due) = (&self.pace, &mut self.states, &mut self.due);
        out.retain(|name| {
            let timer = states.get_mut(name).and_then(|state| state.timer.as_mut());
            let until = timer.as_ref().and_then(|timer| pace.timers_end(timer.first_due, now));
            let (Some(timer), Some(until)) = (timer, until) else { return true };
            timer.due = until;
            due.insert((until, name.clone()));
            false
        });
    }

    /// Restarts overdue timers, because the server has begun to speak of the type. An omission from now on
    /// comes from a server that knows its resources.
    pub(super) fn restart_timers(&mut self, due: Time, signs: u64) {
        for name in std::mem::take(&mut self.overdue) {
            if let Some(timer) = self.states.get_mut(&name).and_then(|state| state.timer.as_mut()) {
                (timer.due, timer.signs) = (due, signs);
                self.due.insert((due, name));
            }
        }
    }

    pub(super) fn has_unproven(&self) -> bool {
        !self.unproven.is_empty()
    }

    /// Takes the kept-back timers, after a sign of life of the stream.
    pub(super) fn prove(&mut self, now: Time) -> Vec<ResourceName> {
        let mut out: Vec<_> = std::mem::take(&mut self.unproven).into_iter().collect();
        self.put_off(&mut out, now);
        for name in &out {
            self.cancel_timer(name);
        }
        out
    }

    /// Stops the timer of a name (TMR-7).
    pub(super) fn cancel_timer(&mut self, name: &ResourceName) {
        let timer = self.states.get_mut(name).and_then(|state| state.timer.take());
        if let Some(timer) = timer {
            self.due.remove(&(timer.due, name.clone()));
            self.unproven.remove(name);
            self.overdue.remove(name);
        }
    }

    /// An alias may move from one resource to another (ALI-2).
    fn unlink(&mut self, name: &ResourceName, before: &Presence) {
        let Presence::Held(HeldResource { canonical: Some(own_name), .. }) = before else { return };
        if let Some(aliases) = self.aliases.get_mut(own_name) {
            aliases.remove(name);
            if aliases.is_empty() {
                self.aliases.remove(own_name);
            }
        }
    }

    /// Takes the equal states of another source over. `content`: the content of the names, which have no
    /// running timer.
    pub(super) fn share(&mut self, content: ContentKey, commons: &dyn Commons) {
        let fill = |states: &_| self.refilled.refill(states);
        let key = content.key(MapUse::WantedNames);
        if let Some(states) = self.shared.share(&self.states, key, commons, fill) {
            self.states = states;
        }
    }

    /// Timers run only on an open stream, and only for unknown names. Every index agrees with the names.
    pub(super) fn check_invariants(&self, is_open: bool) {
        if self.states.len() > CHECKED_NAMES_MAX {
            return;
        }
        let timers = self.states.values().filter(|state| state.timer.is_some()).count();
        let kept_back = self.unproven.len() + self.overdue.len();
        debug_assert_eq!(timers, self.due.len() + kept_back, "a timer is due, or kept back for one reason");
        debug_assert!(is_open || timers == 0, "no timer without a stream");
        for state in self.states.values() {
            let is_unknown = matches!(state.presence, Presence::Unknown);
            debug_assert!(state.timer.is_none() || is_unknown, "a timer of a known name");
            debug_assert!(
                is_open || !(state.seen || state.in_first_request),
                "knowledge of a stream that is gone"
            );
        }
        let linked: usize = self.aliases.values().map(BTreeSet::len).sum();
        let held = self.states.keys().filter_map(|name| self.held(name));
        debug_assert_eq!(
            linked,
            held.filter(|held| held.canonical.is_some()).count(),
            "aliases are linked both ways"
        );
    }
}

/// The pace of answers to the requests of one type on one stream.
///
/// A server that is still answering a request withholds nothing: the rest is outstanding.
/// 100,000 names take a slow server longer than the resource timer. A name without an answer by then is not
/// gone (RLY-2, TMR-3). So a timer depends on the names of the same request and of earlier requests: the
/// timer ends no earlier than a whole timer after the last first answer to these names. Names of later
/// requests do not count, because newcomers would put off the end for ever.
#[derive(Debug, Default)]
struct AnswerPace {
    /// The request time of a name with a first answer, and the earliest end of timers because of the answer.
    /// Both ascend.
    answered: VecDeque<(Time, Time)>,
}

impl AnswerPace {
    /// Records the first answer to a name that was requested at `asked`.
    fn note(&mut self, asked: Time, until: Time, now: Time) {
        while self.answered.front().is_some_and(|(_, until)| *until <= now) {
            self.answered.pop_front();
        }
        // An earlier request counts for all later requests.
        while self.answered.back().is_some_and(|(later, _)| *later >= asked) {
            self.answered.pop_back();
        }
        self.answered.push_back((asked, until));
    }

    /// The earliest end of timers for names that were requested at `asked`, if later than `now`.
    fn timers_end(&self, asked: Time, now: Time) -> Option<Time> {
        let (_, until) = self.answered.iter().rev().find(|(earlier, _)| *earlier <= asked)?;
        Some(*until).filter(|until| *until > now)
    }
}

/// An element without payload is a heartbeat if the element repeats the held version. Otherwise old servers
/// mean an absence (TTL-10). In SotW the element is always a heartbeat (TTL-4).
pub(super) fn is_heartbeat(variant: Variant, held: Option<&HeldResource>, received: &Received) -> bool {
    let version = &received.upstream_version;
    match variant {
        Variant::Sotw => true,
        Variant::Delta => held.is_some_and(|held| !version.is_empty() && held.version == *version),
    }
}
