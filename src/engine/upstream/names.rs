//! Names that are asked for one by one: what is known of each, and its resource timer.

use std::collections::{BTreeMap, BTreeSet};

use imbl::OrdSet;

use super::pace::Pace;
use super::variants::Variants;
use crate::engine::Time;
use crate::engine::planted::{Bug, planted};
use crate::xds::{Received, Resource, ResourceName, Variant};

/// A resource that the source holds, and the string by which this server knows its version.
#[derive(Debug)]
pub(super) struct Held {
    /// Of this server and this variant only (STR-8, RLY-64); empty if there is none.
    pub(super) version: Box<str>,
    /// The version may be claimed in `initial_resource_versions`: the bytes were really kept (CCH-1).
    pub(super) restate: bool,
    /// The resource's own name, where it was subscribed to by an alias (ALI-1).
    canonical: Option<ResourceName>,
}

impl Held {
    /// `restate` is false in SotW, whose versions belong to responses and not to resources.
    pub(super) fn new(received: &Received, resource: &Resource, restate: bool) -> Held {
        let version = received.upstream_version.clone();
        let restate = restate && !version.is_empty() && !resource.do_not_cache;
        Held { version, restate, canonical: None }
    }

    /// A variant is not told of in `initial_resource_versions`, which knows no constraints.
    pub(super) fn of_variant(version: &str) -> Held {
        Held { version: version.into(), restate: false, canonical: None }
    }

    /// What the server calls the version, if it has a name, and whether it may be claimed. It is forgotten by that.
    pub(super) fn take_version(&mut self) -> Option<(Box<str>, bool)> {
        let (version, restate) = (std::mem::take(&mut self.version), std::mem::take(&mut self.restate));
        (!version.is_empty()).then_some((version, restate))
    }

    pub(super) fn set_version(&mut self, (version, restate): (Box<str>, bool)) {
        (self.version, self.restate) = (version, restate);
    }

    /// Of what was held before the relay was restarted.
    pub(super) fn of_former(version: &str, restate: bool) -> Held {
        let restate = restate && !version.is_empty();
        Held { version: if restate { version.into() } else { Box::default() }, restate, canonical: None }
    }

    /// Whether it is the resource of this own name, as held under `name`.
    pub(super) fn is_of(&self, name: &ResourceName, own: &ResourceName) -> bool {
        self.canonical.as_ref().unwrap_or(name) == own
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
    /// When it would have run out by itself, which is in the order in which names were asked for.
    first_due: Time,
    due: Time,
    /// How many signs of life the stream had given when the request was written.
    signs: u64,
}

#[derive(Debug, Default)]
struct Wanted {
    holding: Holding,
    /// Listed in the first request of the type on this stream (RLY-27 b).
    in_first_request: bool,
    /// PRESENT earlier on this stream (RLY-27 a).
    seen: bool,
    timer: Option<Timer>,
    /// An error is the last word on it. It ends with the next one, be that a name's absence once more (ERR-3).
    failed: bool,
}

/// All names of one type.
#[derive(Debug, Default)]
pub(super) struct Names {
    wanted: BTreeMap<ResourceName, Wanted>,
    /// Own name of a resource → the wanted aliases that it answers.
    aliases: BTreeMap<ResourceName, BTreeSet<ResourceName>>,
    /// Running timers in the order in which they run out.
    due: BTreeSet<(Time, ResourceName)>,
    /// Timers that ran out with no sign of life since their request was written (RLY-29).
    unproven: BTreeSet<ResourceName>,
    /// Timers that ran out while the server had not spoken of the type on this stream (see [`Self::run_out`]).
    overdue: BTreeSet<ResourceName>,
    pace: Pace,
    /// SotW: what was known before this stream, and not answered on it until now. Snapshots share it.
    unanswered: OrdSet<ResourceName>,
    /// Of names that have variants or are wanted with parameters; nearly always nothing.
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

    /// Whether the name is new.
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

    /// Whether the name was there.
    pub(super) fn remove(&mut self, name: &ResourceName) -> bool {
        self.cancel_timer(name);
        self.is_told(name);
        self.leave_family(name);
        let Some(wanted) = self.wanted.remove(name) else { return false };
        self.unlink(name, &wanted.holding);
        true
    }

    /// The wanted names that a resource answers: its own and its aliases (ALI-1).
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

    /// Whether this is news.
    pub(super) fn set_absent(&mut self, name: &ResourceName) -> bool {
        self.cancel_timer(name);
        self.is_told(name);
        let Some(wanted) = self.wanted.get_mut(name) else { return false };
        let before = std::mem::replace(&mut wanted.holding, Holding::Absent);
        let ends_error = std::mem::take(&mut wanted.failed);
        self.unlink(name, &before);
        ends_error || !matches!(before, Holding::Absent)
    }

    /// An error was said of a name.
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

    /// Names whose omission from a full-state response proves their absence (RLY-27 a, b).
    pub(super) fn omitted(&self, mentioned: &BTreeSet<ResourceName>) -> Vec<ResourceName> {
        let proves = |wanted: &Wanted| {
            (wanted.seen || wanted.in_first_request || planted(Bug::OmissionOfLateNames))
                && (wanted.failed || !matches!(wanted.holding, Holding::Absent))
        };
        let omitted =
            self.wanted.iter().filter(|(name, wanted)| proves(wanted) && !mentioned.contains(*name));
        omitted.map(|(name, _)| name.clone()).collect()
    }

    /// What `initial_resource_versions` says, under the resources' own names.
    pub(super) fn versions(&self) -> BTreeMap<ResourceName, String> {
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

    /// The name stands in a request that is written now. Its timer starts if nothing is known of it (TMR-2, TMR-3).
    pub(super) fn written(&mut self, name: &ResourceName, in_first_request: bool, due: Time, signs: u64) {
        let Some(wanted) = self.wanted.get_mut(name) else { return };
        wanted.in_first_request = in_first_request;
        if matches!(wanted.holding, Holding::Unknown) {
            wanted.timer = Some(Timer { first_due: due, due, signs });
            self.due.insert((due, name.clone()));
        }
    }

    /// PRESENT earlier on this stream.
    pub(super) fn is_seen(&self, name: &ResourceName) -> bool {
        self.wanted.get(name).is_some_and(|wanted| wanted.seen)
    }

    /// Something is said of the name. What was asked for with it and after it is still to come; `until`: when a timer would run
    /// out that started now.
    pub(super) fn answered(&mut self, name: &ResourceName, until: Time, now: Time) {
        let Some(wanted) = self.wanted.get(name) else { return };
        let of_first = wanted.in_first_request && !wanted.seen;
        let asked = wanted.timer.as_ref().map(|timer| timer.first_due).or(of_first.then_some(Time::ZERO));
        if let Some(asked) = asked {
            self.pace.note(asked, until, now);
        }
    }

    /// The first request on a stream is written, to a server that owes an answer to each name that it lists.
    pub(super) fn expect_all(&mut self) {
        let known = self.wanted.iter().filter(|(_, wanted)| !matches!(wanted.holding, Holding::Unknown));
        self.unanswered = known.map(|(name, _)| name.clone()).collect();
    }

    /// What was known before this stream, and of which the server has not spoken on it.
    pub(super) fn unanswered(&self) -> &OrdSet<ResourceName> {
        &self.unanswered
    }

    fn is_told(&mut self, name: &ResourceName) {
        // It is nearly always empty, and a removal would look for the name.
        if !self.unanswered.is_empty() {
            self.unanswered.remove(name);
        }
    }

    /// TMR-4: timers stop, and nothing seen on the old stream counts on the next.
    pub(super) fn stream_ended(&mut self) {
        self.unanswered.clear();
        self.pace = Pace::default();
        for wanted in self.wanted.values_mut() {
            wanted.in_first_request = false;
            wanted.seen = false;
            if !planted(Bug::TimerOutlivesStream) {
                wanted.timer = None;
            }
        }
        if !planted(Bug::TimerOutlivesStream) {
            self.due.clear();
            self.unproven.clear();
            self.overdue.clear();
        }
        self.variants_are_old();
    }

    pub(super) fn next_due(&self) -> Option<Time> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Takes the timers that have run out. Those without a sign of life since are kept back (see [`Self::prove`]).
    ///
    /// `spoken`: the server has spoken of the type on this stream, and not of the name. While it is silent about the type as a
    /// whole, it may be slow or still gathering what it knows: its silence proves nothing of one name (RLY-1, RLY-2), and the
    /// timer starts anew when it speaks ([`Self::restart`]).
    pub(super) fn run_out(&mut self, now: Time, signs: u64, spoken: bool) -> Vec<ResourceName> {
        let (mut out, mut unproven) = (Vec::new(), Vec::new());
        while self.next_due().is_some_and(|due| due <= now) {
            let Some((_, name)) = self.due.pop_first() else { break };
            if !spoken && !planted(Bug::SilentTypeRunsOut) {
                self.overdue.insert(name);
                continue;
            }
            let timer = self.wanted.get(&name).and_then(|wanted| wanted.timer.as_ref());
            let is_proven = timer.is_some_and(|timer| signs > timer.signs);
            if is_proven || planted(Bug::TimerOnSilentTransport) { &mut out } else { &mut unproven }
                .push(name);
        }
        self.put_off(&mut out, now);
        self.put_off(&mut unproven, now);
        self.unproven.extend(unproven);
        for name in &out {
            self.cancel_timer(name);
        }
        out
    }

    /// Leaves those whose time is over. While the server is still answering the request of a name, its timer goes on.
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

    /// The server has begun to speak of the type: what it leaves out from now on is left out by one that knows what it has.
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

    /// The stream gave a sign of life: takes the timers that were kept back.
    pub(super) fn prove(&mut self, now: Time) -> Vec<ResourceName> {
        let mut out: Vec<_> = std::mem::take(&mut self.unproven).into_iter().collect();
        self.put_off(&mut out, now);
        for name in &out {
            self.cancel_timer(name);
        }
        out
    }

    /// TMR-7.
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

    /// Timers run only on an open stream, only for what is unknown; every index agrees with the names.
    pub(super) fn check_invariants(&self, is_open: bool) {
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

/// A payload-less element is a heartbeat if it repeats the version that is held; if not, old servers mean an
/// absence by it (TTL-10). In SotW it can't mean anything but a heartbeat (TTL-4).
pub(super) fn is_heartbeat(variant: Variant, held: Option<&Held>, received: &Received) -> bool {
    let version = &received.upstream_version;
    match variant {
        Variant::Sotw => true,
        Variant::Delta => held.is_some_and(|held| !version.is_empty() && held.version == *version),
    }
}
