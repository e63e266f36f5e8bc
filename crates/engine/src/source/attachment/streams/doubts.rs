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
//!       └─────────────────────────── the doubtful names apart: in halves, at last each alone, now and then
//! ```
//!
//! Any other server answers the first request of a stream with the resources that exist. So a server that is
//! silent about names that do not exist, and tells changes of the others, is asked once on a new stream, and
//! nothing changes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Machine, Streams};
use crate::Time;
use crate::collection::CollectionKind;
use crate::source::api::StreamIndex;
use crate::source::attachment::doubt::{PARTS_MAX, Question, Trial, TrialNames, TypeDoubt};
use crate::upstream::{
    Cause, Changes, Event, FormerResource, LinkState, Output, ResourceSelection, Resumed, Transport,
};
use sluice_xds::{ResourceName, TypeUrl};

/// The maximum number of remembered types. Clients that ask for invented types cost bounded memory.
const REMEMBERED_MAX: usize = 64;

/// The maximum number of streams for trials of a source, and of those for a single name. A set of several
/// names never waits for long behind names that do not exist.
const TRIALS_MAX: usize = 8;
const SINGLES_MAX: usize = TRIALS_MAX / 2;

/// The time for an answer, where more than one resource timer depends on it. A server answers the first
/// request of a stream at once.
const SILENCE: Duration = Duration::from_secs(2);

/// The wait after a lost stream. The stream of the others has its own backoff.
const LOST: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrialVerdict {
    Answered,
    /// On a stream that is alive.
    Silent,
    Lost,
}

/// A trial that is over.
struct TrialOutcome {
    verdict: TrialVerdict,
    /// The resources that the server sent.
    resources: Vec<FormerResource>,
}

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
        let is_asked = |doubt: &TypeDoubt| doubt.question.is_some() || now < doubt.quiet_until;
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
        self.report_doubt(index, Event::Silenced { type_url: type_url.clone(), names, is_cured: true });
    }

    pub(super) fn report_doubt(&mut self, index: StreamIndex, event: Event) {
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
        selection: ResourceSelection,
        now: Time,
    ) -> Option<ResourceSelection> {
        let ResourceSelection::Names(names) = selection else { return Some(selection) };
        let home = self.home(type_url).and_then(|index| self.machines.get(index));
        let has_others = home.is_some_and(|machine| machine.upstream.names(type_url).next().is_some());
        let doubt = self.doubts.get_mut(type_url).filter(|doubt| doubt.is_proven && has_others);
        let Some(doubt) = doubt else { return Some(ResourceSelection::Names(names)) };
        let (others, mut new): (Vec<_>, Vec<_>) = names.into_iter().partition(ResourceName::is_located);
        new.retain(|name| !doubt.apart.contains_key(name));
        doubt.take_apart(&new, now);
        doubt.try_set(TrialNames { names: new, is_new: true });
        self.start_trials(type_url, now);
        (!others.is_empty()).then_some(ResourceSelection::Names(others))
    }

    /// The server answered for these names: they join the others.
    pub(super) fn give_back(
        &mut self,
        type_url: &TypeUrl,
        names: Vec<ResourceName>,
        resources: Vec<FormerResource>,
        now: Time,
    ) {
        let (Some(home), Some(doubt)) = (self.home(type_url), self.doubts.get_mut(type_url)) else { return };
        let back = names.into_iter().filter_map(|name| doubt.apart.remove(&name).map(|apart| (name, apart)));
        let back: BTreeMap<_, _> = back.collect();
        let resources = resources.into_iter().filter(|resource| back.contains_key(&resource.name));
        let resources: Vec<_> = resources.collect();
        let is_whole = resources.len() == back.len();
        let Some(machine) = self.machines.get_mut(home) else { return };
        // The resources are here already: no timer runs for them.
        if !resources.is_empty() {
            machine.upstream.resume(type_url, Resumed::Names(resources), now);
        }
        machine.upstream.subscribe(type_url, ResourceSelection::Names(back.keys().cloned().collect()), now);
        for (name, _) in back.into_iter().filter(|(_, apart)| apart.silences > 0) {
            self.report_doubt(home, Event::SpeaksOf { type_url: type_url.clone(), name });
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
        selection: ResourceSelection,
        last: bool,
        now: Time,
    ) -> ResourceSelection {
        let ResourceSelection::Names(mut names) = selection else { return selection };
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
        let due = |type_url: &TypeUrl, doubt: &TypeDoubt| {
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
        self.doubts.iter().filter_map(|(type_url, doubt)| due(type_url, doubt)).min()
    }

    /// The names that the server is silent about, if any, and the time since when the first of them is apart.
    pub fn silent_names(&self, type_url: &TypeUrl) -> Option<(Time, Vec<&ResourceName>)> {
        let doubt = self.doubts.get(type_url)?;
        let since = doubt.silent_names().map(|(_, apart)| apart.since).min()?;
        Some((since, doubt.silent_names().map(|(name, _)| name).collect()))
    }
}

/// The streams that ask for some names of a type, and the verdicts about the names.
impl Streams {
    /// Opens streams for the next names, as long as the stream of the others is open.
    pub(super) fn start_trials(&mut self, type_url: &TypeUrl, now: Time) {
        if let Some(doubt) = self.doubts.get_mut(type_url) {
            doubt.try_again(now);
        }
        let Some(home) = self.home(type_url) else { return };
        let is_open = |machine: &Machine| matches!(machine.upstream.state(), LinkState::Open);
        if !self.machines.get(home).is_some_and(is_open) {
            return;
        }
        loop {
            let running: usize = self.doubts.values().map(|doubt| doubt.trials.len()).sum();
            let Some(doubt) = self.doubts.get_mut(type_url) else { return };
            doubt.hold = doubt.hold.filter(|hold| *hold > now);
            if doubt.hold.is_some() || running >= TRIALS_MAX {
                return;
            }
            let is_asked = !doubt.trials.is_empty();
            let set = match &doubt.question {
                Some(Question::Together(_) | Question::Alone(_)) if is_asked => return,
                Some(Question::Together(witness)) => {
                    let doubtful = self.machines[home].upstream.doubtful(type_url);
                    let names = doubtful.into_iter().chain([witness.clone()]).collect();
                    TrialNames { names, is_new: true }
                }
                Some(Question::Alone(witness)) => TrialNames { names: vec![witness.clone()], is_new: true },
                Some(Question::Parts(_)) | None => match doubt.next_set(SINGLES_MAX) {
                    Some(set) => set,
                    None => return,
                },
            };
            self.try_on_a_stream(home, type_url, set, now);
        }
    }

    fn try_on_a_stream(&mut self, home: StreamIndex, type_url: &TypeUrl, set: TrialNames, now: Time) {
        let mut upstream = self.machines[home].upstream.beside();
        upstream.subscribe(type_url, ResourceSelection::Names(set.names.clone()), now);
        let machine = Machine { tries: Some(type_url.clone()), ..Machine::new(None, upstream) };
        let is_free = |machine: &Machine| machine.tries.is_some() && machine.upstream.is_done();
        let index = match self.machines.iter().position(is_free) {
            Some(index) => {
                self.machines[index] = machine;
                index
            }
            None => {
                self.machines.push(machine);
                self.machines.len() - 1
            }
        };
        if let Some(doubt) = self.doubts.get_mut(type_url) {
            doubt.trials.push(Trial { index, set, over: None });
        }
    }

    /// Acts on every trial that is over.
    pub(super) fn judge_trials(&mut self, type_url: &TypeUrl, now: Time) {
        loop {
            let Some(doubt) = self.doubts.get(type_url) else { return };
            let count = doubt.trials.len();
            let verdict = (0..count).find_map(|at| Some((at, self.verdict(type_url, at, now)?)));
            let Some((at, verdict)) = verdict else { return };
            let Some(doubt) = self.doubts.get_mut(type_url) else { return };
            let trial = doubt.trials.remove(at);
            let resources = self.machines[trial.index].upstream.former_resources(type_url);
            let outcome = TrialOutcome { verdict, resources };
            self.close_trial(trial.index, type_url, now);
            match self.doubts.get(type_url).and_then(|doubt| doubt.question.clone()) {
                Some(question) => {
                    self.answer_question(type_url, question, &trial.set.names, outcome, now);
                }
                None => self.judge_apart(type_url, trial.set, outcome, now),
            }
        }
    }

    fn verdict(&mut self, type_url: &TypeUrl, at: usize, now: Time) -> Option<TrialVerdict> {
        let index = self.doubts.get(type_url)?.trials.get(at)?.index;
        self.drain(index, type_url);
        let doubt = self.doubts.get(type_url)?;
        let due = self.verdict_due(type_url, doubt, doubt.trials.get(at)?);
        let machine = self.machines.get_mut(index)?;
        match machine.upstream.state() {
            LinkState::Opening => return None,
            LinkState::Closed | LinkState::Waiting { .. } => return Some(TrialVerdict::Lost),
            LinkState::Open => {}
        }
        if machine.upstream.has_answered(type_url) {
            return Some(TrialVerdict::Answered);
        }
        let signs = machine.upstream.signs();
        let trial = self.doubts.get_mut(type_url)?.trials.get_mut(at)?;
        match trial.over {
            Some(over) if signs > over => Some(TrialVerdict::Silent),
            None if due.is_some_and(|due| due <= now) => {
                trial.over = Some(signs);
                machine.upstream.probe();
                self.drain(index, type_url);
                None
            }
            Some(_) | None => None,
        }
    }

    /// The end of the time for an answer.
    pub(super) fn verdict_due(&self, type_url: &TypeUrl, doubt: &TypeDoubt, trial: &Trial) -> Option<Time> {
        let upstream = &self.machines.get(trial.index)?.upstream;
        let is_open = matches!(upstream.state(), LinkState::Open);
        if !is_open || upstream.is_receiving() || trial.over.is_some() {
            return None;
        }
        let timeout = self.settings.timeout_of(type_url);
        let is_unheard = |name: &ResourceName| doubt.apart.get(name).is_some_and(|apart| apart.silences == 0);
        let time = match (&doubt.question, trial.set.names.as_slice()) {
            // The name counts as absent afterwards.
            (None, [name]) if is_unheard(name) && !trial.set.is_new => timeout,
            _ => timeout.min(SILENCE),
        };
        Some(upstream.since() + time)
    }

    /// A trial of names that are apart.
    fn judge_apart(&mut self, type_url: &TypeUrl, set: TrialNames, outcome: TrialOutcome, now: Time) {
        let Some(doubt) = self.doubts.get_mut(type_url) else { return };
        match (outcome.verdict, set.names.as_slice()) {
            (TrialVerdict::Answered, _) => self.give_back(type_url, set.names, outcome.resources, now),
            (TrialVerdict::Lost, _) => {
                doubt.hold = Some(now + LOST);
                doubt.try_set(set);
            }
            (TrialVerdict::Silent, [_]) if set.is_new => doubt.try_names(set.names),
            (TrialVerdict::Silent, [name]) => {
                if doubt.silent(name, now) {
                    self.report_silent(type_url, name);
                }
            }
            (TrialVerdict::Silent, names) => doubt.try_halves(names),
        }
    }

    /// A name that the server is silent about is not there, as any name without an answer (TMR-5).
    fn report_silent(&mut self, type_url: &TypeUrl, name: &ResourceName) {
        let Some(home) = self.placed(type_url, CollectionKind::Names) else { return };
        let names = vec![name.clone()];
        let output = match self.settings.timeout_is_transient {
            true => Output::Event(Event::Timeout { type_url: type_url.clone(), names }),
            false => Output::Changes(Changes::names_absent(type_url, names, Cause::Timeout)),
        };
        self.outputs.push_back((home, output));
        self.report_doubt(home, Event::SilentAbout { type_url: type_url.clone(), name: name.clone() });
    }

    fn answer_question(
        &mut self,
        type_url: &TypeUrl,
        question: Question,
        names: &[ResourceName],
        outcome: TrialOutcome,
        now: Time,
    ) {
        let Some(doubt) = self.doubts.get_mut(type_url) else { return };
        match (question, outcome.verdict) {
            (Question::Parts(_), TrialVerdict::Answered) => {
                let witness =
                    outcome.resources.into_iter().find(|resource| resource.own_name == resource.name);
                match witness {
                    Some(witness) => doubt.question = Some(Question::Together(witness.name)),
                    None => doubt.be_quiet(now),
                }
                self.end_trials(type_url, now);
            }
            (Question::Parts(parts), TrialVerdict::Silent) => {
                if names.len() > 1 && parts + 2 <= PARTS_MAX {
                    doubt.question = Some(Question::Parts(parts + 2));
                    doubt.try_halves(names);
                } else if doubt.trials.is_empty() && !doubt.has_queue() {
                    doubt.be_quiet(now);
                }
            }
            (Question::Together(witness), TrialVerdict::Silent) => {
                doubt.question = Some(Question::Alone(witness));
            }
            (Question::Alone(_), TrialVerdict::Answered) => {
                if let Some(home) = self.home(type_url) {
                    self.part(home, type_url, now);
                }
            }
            (Question::Alone(witness), TrialVerdict::Silent) => {
                doubt.be_quiet(now);
                if let Some(home) = self.home(type_url) {
                    let doubtful = self.machines[home].upstream.doubtful(type_url);
                    let names = doubtful.into_iter().filter(|name| *name != witness).collect();
                    let type_url = type_url.clone();
                    self.report_doubt(home, Event::Silenced { type_url, names, is_cured: false });
                }
            }
            // The server answers whatever it is asked for, or the streams break.
            (Question::Together(_), TrialVerdict::Answered) | (_, TrialVerdict::Lost) => {
                doubt.be_quiet(now);
                self.end_trials(type_url, now);
            }
        }
    }

    pub(super) fn end_trials(&mut self, type_url: &TypeUrl, now: Time) {
        let trials = self.doubts.get_mut(type_url).map(|doubt| std::mem::take(&mut doubt.trials));
        for trial in trials.unwrap_or_default() {
            self.close_trial(trial.index, type_url, now);
        }
        if let Some(doubt) = self.doubts.get_mut(type_url)
            && matches!(doubt.question, Some(Question::Together(_)))
        {
            doubt.clear_queue();
        }
    }

    fn close_trial(&mut self, index: StreamIndex, type_url: &TypeUrl, now: Time) {
        if let Some(machine) = self.machine(index) {
            let names = machine.names(type_url).cloned().collect();
            machine.unsubscribe(type_url, ResourceSelection::Names(names), now);
            machine.close_idle(now);
        }
        self.drain(index, type_url);
    }

    /// Takes the outputs of a stream for a trial. Its names are known to be there, or not to be there, by the
    /// verdict alone, and its life says nothing about the server.
    fn drain(&mut self, index: StreamIndex, type_url: &TypeUrl) {
        let Some(machine) = self.machines.get_mut(index) else { return };
        let apart = self.doubts.get(type_url).map(|doubt| &doubt.apart);
        let is_apart = |name: &ResourceName| apart.is_some_and(|apart| apart.contains_key(name));
        while let Some(output) = machine.upstream.poll_output() {
            let output = match output {
                Output::Changes(mut changes) => {
                    changes.present.retain(|resource| is_apart(&resource.name));
                    changes.by_alias.retain(|(alias, _)| is_apart(alias));
                    (changes.absent, changes.refreshed) = Default::default();
                    let is_empty = changes.present.is_empty() && changes.by_alias.is_empty();
                    (!is_empty).then_some(Output::Changes(changes))
                }
                Output::Event(event @ (Event::Acked { .. } | Event::Nacked { .. })) => {
                    Some(Output::Event(event))
                }
                Output::Event(_) => None,
                other => Some(other),
            };
            self.outputs.extend(output.map(|output| (index, output)));
        }
    }
}
