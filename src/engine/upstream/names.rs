//! Names from subscriptions one by one: the state of each name, and its resource timer.

use std::collections::{BTreeMap, BTreeSet};

use imbl::OrdSet;

use super::pace::Pace;
use super::variants::Variants;
use crate::engine::{CHECKED_NAMES_MAX, Time};
use crate::xds::{Received, Resource, ResourceName, Variant};

/// A resource that the source holds, and the server's version string for the resource.
#[derive(Debug)]
pub(super) struct Held {
    /// From this server in this variant only (STR-8, RLY-64); empty if there is none.
    pub(super) version: Box<str>,
    /// The version may be claimed in `initial_resource_versions`: the bytes were really kept (CCH-1).
    pub(super) restate: bool,
    /// The resource's own name, if the subscription is to an alias (ALI-1).
    canonical: Option<ResourceName>,
}

impl Held {
    /// `restate` is false in SotW, where versions belong to responses and not to resources.
    pub(super) fn new(received: &Received, resource: &Resource, restate: bool) -> Held {
        let version = received.upstream_version.clone();
        let restate = restate && !version.is_empty() && !resource.do_not_cache;
        Held { version, restate, canonical: None }
    }

    /// A variant never occurs in `initial_resource_versions`, which has no place for constraints.
    pub(super) fn of_variant(version: &str) -> Held {
        Held { version: version.into(), restate: false, canonical: None }
    }

    /// Takes the version string out, with the permission to claim the version. `None` if the string is empty.
    pub(super) fn take_version(&mut self) -> Option<(Box<str>, bool)> {
        let (version, restate) = (std::mem::take(&mut self.version), std::mem::take(&mut self.restate));
        (!version.is_empty()).then_some((version, restate))
    }

    pub(super) fn set_version(&mut self, (version, restate): (Box<str>, bool)) {
        (self.version, self.restate) = (version, restate);
    }

    /// A resource from before the restart of the relay.
    pub(super) fn of_former(version: &str, restate: bool) -> Held {
        let restate = restate && !version.is_empty();
        Held { version: if restate { version.into() } else { Box::default() }, restate, canonical: None }
    }

    /// Returns true if the resource under `name` has the own name `own`.
    pub(super) fn is_of(&self, name: &ResourceName, own: &ResourceName) -> bool {
        self.own(name) == own
    }

    /// The own name of the resource under `name`.
    pub(super) fn own<'a>(&'a self, name: &'a ResourceName) -> &'a ResourceName {
        self.canonical.as_ref().unwrap_or(name)
    }

    pub(super) fn forget_version(&mut self) {
        self.version = Box::default();
        self.restate = false;
    }
}

/// The three states of a name (RLY-2).
#[derive(Debug, Default)]
enum Holding {
    #[default]
    Unknown,
    Held(Held),
    Absent,
}

#[derive(Debug)]
struct Timer {
    /// The first expiry, before extensions. It has the order in which names were requested.
    first_due: Time,
    due: Time,
    /// The number of the stream's signs of life at the write of the request.
    signs: u64,
}

#[derive(Debug, Default)]
struct Wanted {
    holding: Holding,
    /// Listed in the first request of the type on this stream (RLY-27 b).
    in_first_request: bool,
    /// PRESENT earlier on this stream (RLY-27 a).
    seen: bool,
    /// In a box: most names have an answer, and no timer.
    timer: Option<Box<Timer>>,
    /// The last report about the name was an error. The next report ends the state, even the repetition of an
    /// absence (ERR-3).
    failed: bool,
}

/// All names of one type.
#[derive(Debug, Default)]
pub(super) struct Names {
    wanted: BTreeMap<ResourceName, Wanted>,
    /// Own name of a resource → the wanted aliases that the resource answers.
    aliases: BTreeMap<ResourceName, BTreeSet<ResourceName>>,
    /// Running timers, in the order of expiry.
    due: BTreeSet<(Time, ResourceName)>,
    /// Timers that expired without a sign of life since the write of the request (RLY-29).
    unproven: BTreeSet<ResourceName>,
    /// Timers that expired before the server spoke of the type on this stream (see [`Self::run_out`]).
    overdue: BTreeSet<ResourceName>,
    pace: Pace,
    /// SotW: names that were known before this stream, and have no answer on the stream yet. Snapshots share the
    /// set.
    unanswered: OrdSet<ResourceName>,
    /// Names with variants, and names wanted with parameters; nearly always `None`.
    pub(super) variants: Option<Box<Variants>>,
}

impl Names {
    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.wanted.len()
    }

    pub(super) fn contains(&self, name: &ResourceName) -> bool {
        self.wanted.contains_key(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ResourceName> {
        self.wanted.keys()
    }

    /// Returns true if the name is new.
    pub(super) fn insert(&mut self, name: ResourceName) -> bool {
        if self.variants.is_some() || name.is_located() {
            self.enter_family(&name);
        }
        let mut is_new = false;
        self.wanted.entry(name).or_insert_with(|| {
            is_new = true;
            Wanted::default()
        });
        is_new
    }

    /// Returns true if the name was wanted.
    pub(super) fn remove(&mut self, name: &ResourceName) -> bool {
        self.cancel_timer(name);
        self.is_told(name);
        self.leave_family(name);
        let Some(wanted) = self.wanted.remove(name) else { return false };
        self.unlink(name, &wanted.holding);
        true
    }

    /// The wanted names that a resource answers: the own name and the aliases (ALI-1).
    pub(super) fn answered_by(
        &self,
        name: &ResourceName,
        aliases: &[ResourceName],
    ) -> BTreeSet<ResourceName> {
        let known = self.aliases.get(name).into_iter().flatten();
        let candidates = std::iter::once(name).chain(aliases).chain(known);
        candidates.filter(|candidate| self.contains(candidate)).cloned().collect()
    }

    /// The resource of a wanted name arrived; `own` is the resource's own name.
    pub(super) fn hold(&mut self, name: &ResourceName, own: &ResourceName, mut held: Held, seen: bool) {
        self.cancel_timer(name);
        self.is_told(name);
        let Some(wanted) = self.wanted.get_mut(name) else { return };
        wanted.seen |= seen;
        wanted.failed = false;
        let before = std::mem::take(&mut wanted.holding);
        if own != name {
            held.canonical = Some(own.clone());
        }
        wanted.holding = Holding::Held(held);
        self.unlink(name, &before);
        if own != name {
            self.aliases.entry(own.clone()).or_default().insert(name.clone());
        }
    }

    /// Returns true if the absence is news.
    pub(super) fn set_absent(&mut self, name: &ResourceName) -> bool {
        self.cancel_timer(name);
        self.is_told(name);
        let Some(wanted) = self.wanted.get_mut(name) else { return false };
        let before = std::mem::replace(&mut wanted.holding, Holding::Absent);
        let ends_error = std::mem::take(&mut wanted.failed);
        self.unlink(name, &before);
        ends_error || !matches!(before, Holding::Absent)
    }

    /// Records an error about a name.
    pub(super) fn note_error(&mut self, name: &ResourceName) {
        if let Some(wanted) = self.wanted.get_mut(name) {
            wanted.failed = true;
        }
    }

    pub(super) fn held(&self, name: &ResourceName) -> Option<&Held> {
        match &self.wanted.get(name)?.holding {
            Holding::Held(held) => Some(held),
            Holding::Unknown | Holding::Absent => None,
        }
    }

    pub(super) fn is_gone(&self, name: &ResourceName) -> bool {
        self.wanted.get(name).is_some_and(|wanted| matches!(wanted.holding, Holding::Absent))
    }

    /// Names whose omission from a full-state response proves their absence (RLY-27 a, b).
    pub(super) fn omitted(&self, mentioned: &BTreeSet<ResourceName>) -> Vec<ResourceName> {
        let proves = |wanted: &Wanted| {
            (wanted.seen || wanted.in_first_request)
                && (wanted.failed || !matches!(wanted.holding, Holding::Absent))
        };
        let omitted =
            self.wanted.iter().filter(|(name, wanted)| proves(wanted) && !mentioned.contains(*name));
        omitted.map(|(name, _)| name.clone()).collect()
    }

    /// The content of `initial_resource_versions`, under the resources' own names.
    ///
    /// An unknown name may be an alias of a held resource, or the own name of a resource that is held under an alias. The
    /// server does not send restated resources again, and its silence would count as absence (ALI-1, TMR-5). So nothing
    /// is restated then.
    pub(super) fn versions(&self, may_have_aliases: bool) -> BTreeMap<ResourceName, String> {
        let is_unknown = |wanted: &Wanted| matches!(wanted.holding, Holding::Unknown);
        if (may_have_aliases || !self.aliases.is_empty()) && self.wanted.values().any(is_unknown) {
            return BTreeMap::new();
        }
        let held = self.wanted.iter().filter_map(|(name, wanted)| match &wanted.holding {
            Holding::Held(held) if held.restate => Some((name, held)),
            _ => None,
        });
        held.map(|(name, held)| (held.canonical.as_ref().unwrap_or(name).clone(), held.version.to_string()))
            .collect()
    }

    pub(super) fn forget_versions(&mut self) {
        self.each_held(|_, held| held.forget_version());
    }

    pub(super) fn each_held(&mut self, mut visit: impl FnMut(&ResourceName, &mut Held)) {
        for (name, wanted) in &mut self.wanted {
            if let Holding::Held(held) = &mut wanted.holding {
                visit(name, held);
            }
        }
    }

    /// Records the write of a request that lists the name. The timer starts if the name is unknown (TMR-2,
    /// TMR-3).
    pub(super) fn written(&mut self, name: &ResourceName, in_first_request: bool, due: Time, signs: u64) {
        let Some(wanted) = self.wanted.get_mut(name) else { return };
        wanted.in_first_request = in_first_request;
        if matches!(wanted.holding, Holding::Unknown) {
            wanted.timer = Some(Box::new(Timer { first_due: due, due, signs }));
            self.due.insert((due, name.clone()));
        }
    }

    /// Returns true if the name was PRESENT earlier on this stream.
    pub(super) fn is_seen(&self, name: &ResourceName) -> bool {
        self.wanted.get(name).is_some_and(|wanted| wanted.seen)
    }

    /// Records an answer to the name. Other names of the same and of later requests are still outstanding.
    /// `until`: the end of a timer that would start now.
    pub(super) fn answered(&mut self, name: &ResourceName, until: Time, now: Time) {
        let Some(wanted) = self.wanted.get(name) else { return };
        let of_first = wanted.in_first_request && !wanted.seen;
        let asked = wanted.timer.as_ref().map(|timer| timer.first_due).or(of_first.then_some(Time::ZERO));
        if let Some(asked) = asked {
            self.pace.note(asked, until, now);
        }
    }

    /// Records the first request on a stream, to a server that owes an answer to each listed name.
    pub(super) fn expect_all(&mut self) {
        let known = self.wanted.iter().filter(|(_, wanted)| !matches!(wanted.holding, Holding::Unknown));
        self.unanswered = known.map(|(name, _)| name.clone()).collect();
    }

    /// Names that were known before this stream, and have no answer on the stream yet.
    pub(super) fn unanswered(&self) -> &OrdSet<ResourceName> {
        &self.unanswered
    }

    fn is_told(&mut self, name: &ResourceName) {
        // The set is nearly always empty, and a removal would search for the name.
        if !self.unanswered.is_empty() {
            self.unanswered.remove(name);
        }
    }

    /// TMR-4: timers stop, and observations of the old stream do not count on the next stream.
    pub(super) fn stream_ended(&mut self) {
        self.unanswered.clear();
        self.pace = Pace::default();
        for wanted in self.wanted.values_mut() {
            wanted.in_first_request = false;
            wanted.seen = false;
            wanted.timer = None;
        }
        self.due.clear();
        self.unproven.clear();
        self.overdue.clear();
        self.variants_are_old();
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
    /// ([`Self::restart`]).
    pub(super) fn run_out(&mut self, now: Time, signs: u64, spoken: bool) -> Vec<ResourceName> {
        let (mut out, mut unproven) = (Vec::new(), Vec::new());
        while self.next_due().is_some_and(|due| due <= now) {
            let Some((_, name)) = self.due.pop_first() else { break };
            if !spoken {
                self.overdue.insert(name);
                continue;
            }
            let timer = self.wanted.get(&name).and_then(|wanted| wanted.timer.as_ref());
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
        let (pace, wanted, due) = (&self.pace, &mut self.wanted, &mut self.due);
        out.retain(|name| {
            let timer = wanted.get_mut(name).and_then(|wanted| wanted.timer.as_mut());
            let until = timer.as_ref().and_then(|timer| pace.holds(timer.first_due, now));
            let (Some(timer), Some(until)) = (timer, until) else { return true };
            timer.due = until;
            due.insert((until, name.clone()));
            false
        });
    }

    /// Restarts overdue timers, because the server has begun to speak of the type. An omission from now on
    /// comes from a server that knows its resources.
    pub(super) fn restart(&mut self, due: Time, signs: u64) {
        for name in std::mem::take(&mut self.overdue) {
            if let Some(timer) = self.wanted.get_mut(&name).and_then(|wanted| wanted.timer.as_mut()) {
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
        let timer = self.wanted.get_mut(name).and_then(|wanted| wanted.timer.take());
        if let Some(timer) = timer {
            self.due.remove(&(timer.due, name.clone()));
            self.unproven.remove(name);
            self.overdue.remove(name);
        }
    }

    /// An alias may move from one resource to another (ALI-2).
    fn unlink(&mut self, name: &ResourceName, before: &Holding) {
        let Holding::Held(Held { canonical: Some(own), .. }) = before else { return };
        if let Some(aliases) = self.aliases.get_mut(own) {
            aliases.remove(name);
            if aliases.is_empty() {
                self.aliases.remove(own);
            }
        }
    }

    /// Timers run only on an open stream, and only for unknown names. Every index agrees with the names.
    pub(super) fn check_invariants(&self, is_open: bool) {
        if self.wanted.len() > CHECKED_NAMES_MAX {
            return;
        }
        let timers = self.wanted.values().filter(|wanted| wanted.timer.is_some()).count();
        let kept_back = self.unproven.len() + self.overdue.len();
        debug_assert_eq!(timers, self.due.len() + kept_back, "a timer is due, or kept back for one reason");
        debug_assert!(is_open || timers == 0, "no timer without a stream");
        for wanted in self.wanted.values() {
            let is_unknown = matches!(wanted.holding, Holding::Unknown);
            debug_assert!(wanted.timer.is_none() || is_unknown, "a timer of a known name");
            debug_assert!(
                is_open || !(wanted.seen || wanted.in_first_request),
                "knowledge of a stream that is gone"
            );
        }
        let linked: usize = self.aliases.values().map(BTreeSet::len).sum();
        let held = self.wanted.keys().filter_map(|name| self.held(name));
        debug_assert_eq!(
            linked,
            held.filter(|held| held.canonical.is_some()).count(),
            "aliases are linked both ways"
        );
    }
}

/// An element without payload is a heartbeat if the element repeats the held version. Otherwise old servers
/// mean an absence (TTL-10). In SotW the element is always a heartbeat (TTL-4).
pub(super) fn is_heartbeat(variant: Variant, held: Option<&Held>, received: &Received) -> bool {
    let version = &received.upstream_version;
    match variant {
        Variant::Sotw => true,
        Variant::Delta => held.is_some_and(|held| !version.is_empty() && held.version == *version),
    }
}
