//! The streams that ask for some names of a type, and the verdicts about the names (ADR 54).

use std::time::Duration;

use super::{Machine, StreamIndex, Streams};
use crate::engine::Time;
use crate::engine::collection::CollectionKind;
use crate::engine::source::attachment::doubt::{Doubt, NameSet, PARTS_MAX, Question, Trial};
use crate::engine::upstream::{Cause, Changes, Event, FormerResource, LinkState, Output, ResourceSelection};
use crate::xds::{ResourceName, TypeUrl};

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
enum Verdict {
    Answered,
    /// On a stream that is alive.
    Silent,
    Lost,
}

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
                    NameSet { names, is_new: true }
                }
                Some(Question::Alone(witness)) => NameSet { names: vec![witness.clone()], is_new: true },
                Some(Question::Parts(_)) | None => match doubt.next_set(SINGLES_MAX) {
                    Some(set) => set,
                    None => return,
                },
            };
            self.try_on_a_stream(home, type_url, set, now);
        }
    }

    fn try_on_a_stream(&mut self, home: StreamIndex, type_url: &TypeUrl, set: NameSet, now: Time) {
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
            let formers = self.machines[trial.index].upstream.former_resources(type_url);
            self.close_trial(trial.index, type_url, now);
            match self.doubts.get(type_url).and_then(|doubt| doubt.question.clone()) {
                Some(question) => {
                    self.answer_question(type_url, question, &trial.set.names, (verdict, formers), now);
                }
                None => self.judge_apart(type_url, trial.set, (verdict, formers), now),
            }
        }
    }

    fn verdict(&mut self, type_url: &TypeUrl, at: usize, now: Time) -> Option<Verdict> {
        let index = self.doubts.get(type_url)?.trials.get(at)?.index;
        self.drain(index, type_url);
        let doubt = self.doubts.get(type_url)?;
        let due = self.verdict_due(type_url, doubt, doubt.trials.get(at)?);
        let machine = self.machines.get_mut(index)?;
        match machine.upstream.state() {
            LinkState::Opening => return None,
            LinkState::Closed | LinkState::Waiting { .. } => return Some(Verdict::Lost),
            LinkState::Open => {}
        }
        if machine.upstream.has_answered(type_url) {
            return Some(Verdict::Answered);
        }
        let signs = machine.upstream.signs();
        let trial = self.doubts.get_mut(type_url)?.trials.get_mut(at)?;
        match trial.over {
            Some(over) if signs > over => Some(Verdict::Silent),
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
    pub(super) fn verdict_due(&self, type_url: &TypeUrl, doubt: &Doubt, trial: &Trial) -> Option<Time> {
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
    fn judge_apart(
        &mut self,
        type_url: &TypeUrl,
        set: NameSet,
        (verdict, formers): (Verdict, Vec<FormerResource>),
        now: Time,
    ) {
        let Some(doubt) = self.doubts.get_mut(type_url) else { return };
        match (verdict, set.names.as_slice()) {
            (Verdict::Answered, _) => self.give_back(type_url, set.names, formers, now),
            (Verdict::Lost, _) => {
                doubt.hold = Some(now + LOST);
                doubt.try_set(set);
            }
            (Verdict::Silent, [_]) if set.is_new => doubt.try_names(set.names),
            (Verdict::Silent, [name]) => {
                if doubt.silent(name, now) {
                    self.tell_silent(type_url, name);
                }
            }
            (Verdict::Silent, names) => doubt.try_halves(names),
        }
    }

    /// A name that the server is silent about is not there, as any name without an answer (TMR-5).
    fn tell_silent(&mut self, type_url: &TypeUrl, name: &ResourceName) {
        let Some(home) = self.placed(type_url, CollectionKind::Names) else { return };
        let names = vec![name.clone()];
        let told = match self.settings.timeout_is_transient {
            true => Output::Event(Event::Timeout { type_url: type_url.clone(), names }),
            false => Output::Changes(Changes::names_absent(type_url, names, Cause::Timeout)),
        };
        self.outputs.push_back((home, told));
        self.tell_doubt(home, Event::SilentAbout { type_url: type_url.clone(), name: name.clone() });
    }

    fn answer_question(
        &mut self,
        type_url: &TypeUrl,
        question: Question,
        names: &[ResourceName],
        (verdict, formers): (Verdict, Vec<FormerResource>),
        now: Time,
    ) {
        let Some(doubt) = self.doubts.get_mut(type_url) else { return };
        match (question, verdict) {
            (Question::Parts(_), Verdict::Answered) => {
                let witness = formers.into_iter().find(|former| former.own_name == former.name);
                match witness {
                    Some(witness) => doubt.question = Some(Question::Together(witness.name)),
                    None => doubt.be_quiet(now),
                }
                self.end_trials(type_url, now);
            }
            (Question::Parts(parts), Verdict::Silent) => {
                if names.len() > 1 && parts + 2 <= PARTS_MAX {
                    doubt.question = Some(Question::Parts(parts + 2));
                    doubt.try_halves(names);
                } else if doubt.trials.is_empty() && !doubt.has_queue() {
                    doubt.be_quiet(now);
                }
            }
            (Question::Together(witness), Verdict::Silent) => {
                doubt.question = Some(Question::Alone(witness));
            }
            (Question::Alone(_), Verdict::Answered) => {
                if let Some(home) = self.home(type_url) {
                    self.part(home, type_url, now);
                }
            }
            (Question::Alone(witness), Verdict::Silent) => {
                doubt.be_quiet(now);
                if let Some(home) = self.home(type_url) {
                    let doubtful = self.machines[home].upstream.doubtful(type_url);
                    let names = doubtful.into_iter().filter(|name| *name != witness).collect();
                    let type_url = type_url.clone();
                    self.tell_doubt(home, Event::Silenced { type_url, names, is_cured: false });
                }
            }
            // The server answers whatever it is asked for, or the streams break.
            (Question::Together(_), Verdict::Answered) | (_, Verdict::Lost) => {
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
