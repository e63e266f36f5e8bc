//! Finds names that silence a server, and keeps them out of the request for the others (ADR 54).
//!
//! ```text
//!                     silent since more names were asked for
//!   one request ────────────────────────────────────────────▶ asks: all names on a new stream?
//!       ▲ ▲                     answered                                 │ silent
//!       │ └──────────────────────────────────────────────────────────────┤
//!       │                       silent                                   ▼
//!       ├──────────────────────────────────────────────── a name that was answered, alone?
//!       │                                                                │ answered
//!       │      answered                                                  ▼
//!       └─────────────────────────── the doubtful names apart: in halves, and at last each alone, now and then
//! ```
//!
//! Any other server answers the first request of a stream with the resources that exist. So a server that is
//! silent about names that do not exist, and tells changes of the others, is asked once on a new stream, and
//! nothing changes.

use std::collections::BTreeMap;

use super::{StreamIndex, Streams};
use crate::engine::Time;
use crate::engine::collection::CollectionKind;
use crate::engine::source::attachment::doubt::{Doubt, NameSet, Question};
use crate::engine::upstream::{
    Event, FormerResource, LinkState, Output, ResourceSelection, Resumed, Transport,
};
use crate::xds::{ResourceName, TypeUrl};

/// The maximum number of remembered types. Clients that ask for invented types cost bounded memory.
const REMEMBERED_MAX: usize = 64;

impl Streams {
    /// Ends every call that may bring news about doubts.
    pub(super) fn look_into_doubts(&mut self, now: Time) {
        if self.settings.transport != Transport::Aggregated {
            return;
        }
        for index in 0..self.machines.len() {
            let silenced = match self.machines.get(index) {
                Some(machine) if self.is_settled(index) => machine.upstream.silenced(),
                Some(_) | None => continue,
            };
            for type_url in silenced {
                self.doubt(index, &type_url, now);
            }
        }
        let busy = self.doubts.iter().filter(|(_, doubt)| doubt.is_busy(now));
        let busy: Vec<_> = busy.map(|(type_url, _)| type_url.clone()).collect();
        busy.iter().for_each(|type_url| self.judge_trials(type_url, now));
        busy.iter().for_each(|type_url| self.start_trials(type_url, now));
    }

    /// The server is silent about a type since the request for more names.
    fn doubt(&mut self, index: StreamIndex, type_url: &TypeUrl, now: Time) {
        let is_asked = |doubt: &Doubt| doubt.question.is_some() || now < doubt.quiet_until;
        if self.doubts.get(type_url).is_some_and(is_asked) {
            return;
        }
        self.forget_doubts(type_url);
        let Some(machine) = self.machines.get_mut(index) else { return };
        let doubtful = machine.upstream.doubtful(type_url);
        let witness = machine.upstream.witness(type_url, &doubtful);
        if witness.is_none() && !machine.upstream.is_answered() {
            // The server may not know the node, or not yet.
            return;
        }
        let has_others = witness.is_some() || doubtful.len() > 1;
        let has_room = self.doubts.len() < REMEMBERED_MAX || self.doubts.contains_key(type_url);
        if doubtful.is_empty() || !has_others || !has_room {
            return machine.upstream.forgive(type_url);
        }
        let doubt = self.doubts.entry(type_url.clone()).or_default();
        match witness {
            Some(_) if doubt.is_proven => self.part(index, type_url, now),
            Some(witness) => doubt.question = Some(Question::Together(witness)),
            None => {
                self.trust(type_url, now);
                let doubt = self.doubts.entry(type_url.clone()).or_default();
                doubt.question = Some(Question::Parts(2));
                doubt.try_halves(&doubtful.into_iter().collect::<Vec<_>>());
            }
        }
    }

    /// The doubtful names leave the request for the others.
    pub(super) fn part(&mut self, index: StreamIndex, type_url: &TypeUrl, now: Time) {
        let (Some(machine), Some(doubt)) = (self.machines.get_mut(index), self.doubts.get_mut(type_url))
        else {
            return;
        };
        let mut names = machine.upstream.doubtful(type_url);
        if let Some(Question::Alone(witness)) = &doubt.question {
            names.remove(witness);
        }
        if doubt.is_proven && machine.upstream.unheld(type_url).is_empty() {
            // All of them were answered before they joined the others: one of the others is gone.
            let others = machine.upstream.names(type_url).filter(|name| !name.is_located());
            names = others.filter(|name| !names.contains(*name)).cloned().collect();
        }
        let leaves_some = machine.upstream.names(type_url).any(|name| !names.contains(name));
        let is_silent = machine.upstream.silenced().contains(type_url);
        if names.is_empty() || !leaves_some || !is_silent {
            return doubt.be_quiet(now);
        }
        let names: Vec<_> = names.into_iter().collect();
        machine.upstream.unsubscribe(type_url, ResourceSelection::Names(names.clone()), now);
        machine.upstream.forgive(type_url);
        doubt.convict(&names, now);
        self.tell_doubt(index, Event::Silenced { type_url: type_url.clone(), names, is_cured: true });
    }

    pub(super) fn tell_doubt(&mut self, index: StreamIndex, event: Event) {
        self.outputs.push_back((index, Output::Event(event)));
    }

    /// The stream with the names of a type, if the stream may be in doubt.
    pub(super) fn home(&self, type_url: &TypeUrl) -> Option<StreamIndex> {
        self.placed(type_url, CollectionKind::Names).filter(|index| self.is_settled(*index))
    }

    /// New names of a type with doubts are tried before they join the others. Returns the names for the
    /// request of the others.
    pub(super) fn try_first(
        &mut self,
        type_url: &TypeUrl,
        wanted: ResourceSelection,
        now: Time,
    ) -> Option<ResourceSelection> {
        let ResourceSelection::Names(names) = wanted else { return Some(wanted) };
        let home = self.home(type_url).and_then(|index| self.machines.get(index));
        let has_others = home.is_some_and(|machine| machine.upstream.names(type_url).next().is_some());
        let doubt = self.doubts.get_mut(type_url).filter(|doubt| doubt.is_proven && has_others);
        let Some(doubt) = doubt else { return Some(ResourceSelection::Names(names)) };
        let (others, mut new): (Vec<_>, Vec<_>) = names.into_iter().partition(ResourceName::is_located);
        new.retain(|name| !doubt.apart.contains_key(name));
        doubt.take_apart(&new, now);
        doubt.try_set(NameSet { names: new, is_new: true });
        self.start_trials(type_url, now);
        (!others.is_empty()).then_some(ResourceSelection::Names(others))
    }

    /// The server answered for these names: they join the others.
    pub(super) fn give_back(
        &mut self,
        type_url: &TypeUrl,
        names: Vec<ResourceName>,
        formers: Vec<FormerResource>,
        now: Time,
    ) {
        let (Some(home), Some(doubt)) = (self.home(type_url), self.doubts.get_mut(type_url)) else { return };
        let back = names.into_iter().filter_map(|name| doubt.apart.remove(&name).map(|apart| (name, apart)));
        let back: BTreeMap<_, _> = back.collect();
        let formers: Vec<_> = formers.into_iter().filter(|former| back.contains_key(&former.name)).collect();
        let is_whole = formers.len() == back.len();
        let Some(machine) = self.machines.get_mut(home) else { return };
        // The resources are here already: no timer runs for them.
        if !formers.is_empty() {
            machine.upstream.resume(type_url, Resumed::Names(formers), now);
        }
        machine.upstream.subscribe(type_url, ResourceSelection::Names(back.keys().cloned().collect()), now);
        for (name, _) in back.into_iter().filter(|(_, apart)| apart.silences > 0) {
            self.tell_doubt(home, Event::SpeaksOf { type_url: type_url.clone(), name });
        }
        if is_whole {
            self.part_from_unanswered(home, type_url, now);
        } else {
            // The server leaves out what it lacks, as any other.
            self.trust(type_url, now);
            self.doubts.entry(type_url.clone()).or_default().be_quiet(now);
        }
    }

    /// Names without a resource, which had no others beside them until now, leave the request.
    fn part_from_unanswered(&mut self, home: StreamIndex, type_url: &TypeUrl, now: Time) {
        let (Some(machine), Some(doubt)) = (self.machines.get_mut(home), self.doubts.get_mut(type_url))
        else {
            return;
        };
        let names = machine.upstream.unheld(type_url);
        if !names.is_empty() && machine.upstream.names(type_url).count() > names.len() {
            machine.upstream.unsubscribe(type_url, ResourceSelection::Names(names.clone()), now);
            doubt.take_apart(&names, now);
            doubt.try_names(names);
        }
    }

    /// All names of a type are in one request again.
    pub(super) fn trust(&mut self, type_url: &TypeUrl, now: Time) {
        let Some(doubt) = self.doubts.get_mut(type_url) else { return };
        doubt.is_proven = false;
        let names = doubt.end();
        self.end_trials(type_url, now);
        let index = self.placed(type_url, CollectionKind::Names);
        if let Some(machine) = index.and_then(|index| self.machine(index)) {
            machine.subscribe(type_url, ResourceSelection::Names(names), now);
        }
    }

    /// Sessions leave names that may be apart. Returns the others. `last`: no session wants names of the
    /// type.
    pub(super) fn leave_apart(
        &mut self,
        type_url: &TypeUrl,
        wanted: ResourceSelection,
        last: bool,
        now: Time,
    ) -> ResourceSelection {
        let ResourceSelection::Names(mut names) = wanted else { return wanted };
        let index = self.placed(type_url, CollectionKind::Names);
        let home = index.and_then(|index| self.machines.get(index));
        let Some(doubt) = self.doubts.get_mut(type_url) else { return ResourceSelection::Names(names) };
        names.retain(|name| doubt.apart.remove(name).is_none());
        let is_proven = doubt.is_proven;
        let leaves_none =
            || home.is_none_or(|machine| machine.upstream.names(type_url).count() <= names.len());
        if last || !doubt.apart.is_empty() && leaves_none() {
            // Names without others are in one request: they silence nobody.
            self.trust(type_url, now);
            self.doubts.entry(type_url.clone()).or_default().is_proven = is_proven;
        }
        ResourceSelection::Names(names)
    }

    /// Forgets types without names, if there are too many. `but`: the type that is asked about.
    fn forget_doubts(&mut self, but: &TypeUrl) {
        if self.doubts.len() >= REMEMBERED_MAX {
            let placed = &self.placed;
            let is_wanted =
                |type_url: &TypeUrl| placed.contains_key(&(type_url.clone(), CollectionKind::Names));
            self.doubts.retain(|type_url, _| type_url == but || is_wanted(type_url));
        }
    }

    /// The time of the next question or trial, or of a verdict.
    pub(super) fn doubts_due(&self) -> Option<Time> {
        let due = |(type_url, doubt): (&TypeUrl, &Doubt)| {
            let home = self.home(type_url).and_then(|index| self.machines.get(index));
            let is_open = home.is_some_and(|machine| matches!(machine.upstream.state(), LinkState::Open));
            // Until something is answered, nothing is asked but with the next input.
            let is_answered = home.is_some_and(|machine| machine.upstream.is_answered());
            let is_silenced =
                || is_answered && home.is_some_and(|machine| machine.upstream.silenced().contains(type_url));
            let question = (doubt.question.is_none() && is_silenced()).then_some(doubt.quiet_until);
            let hold = doubt.hold.filter(|_| is_open && doubt.has_queue());
            let verdicts = doubt.trials.iter().filter_map(|trial| self.verdict_due(type_url, doubt, trial));
            verdicts.chain(question).chain(hold).chain(doubt.next_try()).min()
        };
        self.doubts.iter().filter_map(due).min()
    }

    /// The names that the server is silent about, if any, and the time since when the first of them is apart.
    pub fn silent_names(&self, type_url: &TypeUrl) -> Option<(Time, Vec<&ResourceName>)> {
        let doubt = self.doubts.get(type_url)?;
        let since = doubt.silent_names().map(|(_, apart)| apart.since).min()?;
        Some((since, doubt.silent_names().map(|(name, _)| name).collect()))
    }
}
