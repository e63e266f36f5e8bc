//! The machine of a server: opens shadows within the bounds, and follows their trials.
//!
//! In order: the trials and the bounds of time; the inputs and outputs, in this file; and the steps after an
//! input.

mod trials;
mod steps;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::class::{ClassProof, Published, RETRY};
use super::content::Content;
use super::input::{
    ClassFacts, ClassKey, Meaning, Member, MemberId, OrderId, ProveOrder, ShadowId, Surroundings,
};
use super::meaning::Meanings;
use super::orders::Orders;
use super::output::{Happening, Output, QuestionId};
use super::pace::{Closing, Pace};
use super::picks::Rotation;
use super::population::FieldPaths;
use super::probe::Probe;
use super::report::{ProofReport, ProveState, SampleReport, SampleResult};
use super::reports::report;
use super::settings::ProofSettings;
use super::trial::{LOOK_AFTER, Trial};
use sluice_engine::Time;
use sluice_xds::{Code, Status};
use trials::{ANSWER_MAX, Role, SEARCH_GAP, Trials, Twins, WAIT, refuses_twins};

/// The times of the machine's own acts.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    pick_at: Option<Time>,
    searched_at: Time,
    age_at: Time,
    replicas_at: Option<Time>,
    close_at: Option<Time>,
}

/// The proof of one server.
#[derive(Clone, Debug)]
pub struct Proof {
    settings: ProofSettings,
    paths: FieldPaths,
    classes: BTreeMap<ClassKey, ClassProof>,
    trials: Trials,
    meanings: Meanings,
    pace: Pace,
    rotation: Rotation,
    orders: Orders,
    twins: Twins,
    clock: Clock,
    outputs: VecDeque<Output>,
}

impl Proof {
    /// `seed` keys the order of the rotation (PRF-21).
    pub fn new(settings: ProofSettings, seed: u64) -> Proof {
        Proof {
            settings,
            paths: FieldPaths::new(seed),
            classes: BTreeMap::new(),
            trials: Trials::default(),
            meanings: Meanings::default(),
            pace: Pace::default(),
            rotation: Rotation::new(seed),
            orders: Orders::default(),
            twins: Twins::Unknown,
            clock: Clock::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Other settings are in force.
    pub fn configure(&mut self, settings: ProofSettings, now: Time) {
        self.settings = settings;
        self.search_soon(now);
    }

    /// A class began, or has another rule or representative.
    pub fn class(&mut self, class: &ClassKey, facts: ClassFacts, now: Time) {
        match self.classes.get_mut(class) {
            Some(proof) => proof.restate(facts, &mut self.paths),
            None => drop(self.classes.insert(class.clone(), ClassProof::new(facts, &mut self.paths))),
        }
        self.search_soon(now);
    }

    /// The newest live content of a class, with the standing. `connection`: a number of the connection of the
    /// stream.
    pub fn class_published(
        &mut self,
        class: &ClassKey,
        content: Content,
        connection: Option<u64>,
        now: Time,
    ) {
        let is_watched = self.trials.of_class(class).any(|trial| trial.is_witness && trial.was_equal);
        let Some(proof) = self.classes.get_mut(class) else { return };
        let is_first = proof.content.is_none();
        proof.publish(Published { content, connection, is_watched }, now, self.settings.pace.window);
        for trial in self.trials.by_sample.values_mut().filter(|trial| trial.class == *class) {
            trial.look_soon(now + LOOK_AFTER);
        }
        if is_first {
            self.search_soon(now);
        }
    }

    /// The source of the class ended. The shadows of the class close.
    pub fn class_ended(&mut self, class: &ClassKey, now: Time) {
        for sample in self.samples_of(|trial| trial.class == *class) {
            self.end(sample, None, now);
        }
        self.orders.refuse(Some(class), "the class has no members any more", now);
        self.classes.remove(class);
    }

    /// A member came, or has another node or subscription.
    pub fn member(&mut self, class: &ClassKey, id: MemberId, member: Member, now: Time) {
        let Some(proof) = self.classes.get_mut(class) else { return };
        let is_askable = !member.is_never && member.may_be_sampled;
        proof.population.put(id, member, &mut self.paths);
        if !is_askable {
            self.end_of_member(class, id, now);
        }
        self.search_soon(now);
    }

    /// A member left. The member's shadows close.
    pub fn member_left(&mut self, class: &ClassKey, id: MemberId, now: Time) {
        let Some(proof) = self.classes.get_mut(class) else { return };
        let Some(resident) = proof.population.remove(id) else { return };
        let is_back = proof.population.residents().any(|entry| entry.1.node_key == resident.node_key);
        if !is_back {
            proof.evidence.forget_differing(resident.node_key);
            self.settle_records(class, resident.node_key, &BTreeSet::new());
        }
        self.end_of_member(class, id, now);
        self.search_soon(now);
    }

    fn end_of_member(&mut self, class: &ClassKey, id: MemberId, now: Time) {
        for sample in self.samples_of(|trial| trial.class == *class && trial.subject.member == Some(id)) {
            self.end(sample, None, now);
        }
    }

    /// The newest content of a shadow. `connection`: equal numbers are one connection.
    pub fn shadow_published(&mut self, id: ShadowId, content: Content, connection: Option<u64>, now: Time) {
        let Some((sample, role)) = self.trials.roles.get(&id).copied() else { return };
        let Some(trial) = self.trials.by_sample.get_mut(&sample) else { return };
        let probe = match role {
            Role::Sample => Some(&mut trial.sample),
            Role::Second => trial.second.as_mut(),
            Role::Control => trial.control.as_mut(),
        };
        let Some(probe) = probe else { return };
        probe.publish(content, connection, now, self.settings.pace.window);
        if probe.has_answer()
            && let Some(class) = self.classes.get_mut(&trial.class)
        {
            class.asking.answered();
        }
        let is_at_rest = role == Role::Sample && trial.is_witness;
        trial.look_soon(if is_at_rest { now + LOOK_AFTER } else { now });
    }

    /// The stream of a shadow ended, or could not be opened. The shadow is closed.
    pub fn shadow_ended(&mut self, id: ShadowId, status: Status, now: Time) {
        let Some((sample, role)) = self.trials.roles.remove(&id) else { return };
        if status.code == Code::ResourceExhausted {
            self.pace.exhausted(now);
        }
        let Some(trial) = self.trials.by_sample.get_mut(&sample) else { return };
        let is_open = |probe: &Option<Probe>| probe.as_ref().is_some_and(Probe::has_answer);
        let is_unwell = self.pace.surroundings.is_unwell;
        let is_test = matches!(self.twins, Twins::Unknown) && !is_unwell;
        match role {
            // The second stream of the id ended the first.
            Role::Sample if is_test && is_open(&trial.second) => self.forbid(status, now),
            Role::Sample => {
                let (class, node_key) = (trial.class.clone(), trial.subject.node_key);
                let had_answer = trial.sample.has_answer();
                self.end(sample, (!is_unwell).then_some(SampleResult::NoWord), now);
                if !had_answer && !is_unwell {
                    self.fail(&class, node_key, &status, now);
                }
            }
            // The second stream of the id was refused.
            Role::Second if is_test && !is_open(&trial.second) && refuses_twins(status.code) => {
                self.forbid(status, now);
            }
            Role::Second | Role::Control => {
                let is_witness = trial.is_witness;
                let closed = trial.end_confirming();
                trial.look_soon(now + WAIT);
                self.close(closed.into_iter().map(|probe| probe.id).filter(|other| *other != id).collect());
                if !is_witness {
                    self.end(sample, Some(SampleResult::NoWord), now);
                }
            }
        }
    }

    fn fail(&mut self, class: &ClassKey, node_key: u64, status: &Status, now: Time) {
        let Some(proof) = self.classes.get_mut(class) else { return };
        if proof.asking.failed(node_key, status, now) {
            let impossible = Happening::Impossible { class: Some(class.clone()), status: status.clone() };
            self.tell(impossible);
            self.orders.refuse(Some(class), &format!("the server refuses shadows: {status}"), now);
        }
    }

    /// The server bears no second stream of an id, so that no control is possible.
    fn forbid(&mut self, status: Status, now: Time) {
        let was_told = matches!(&self.twins, Twins::Forbidden { was_told: true, .. });
        for sample in self.samples_of(|_| true) {
            self.end(sample, None, now);
        }
        self.orders.refuse(None, &format!("the server bears one stream for each node: {status}"), now);
        if !was_told {
            self.tell(Happening::Impossible { class: None, status: status.clone() });
        }
        self.twins = Twins::Forbidden { status, until: now + RETRY, was_told: true };
    }

    /// The state of the server and of the relay.
    pub fn surroundings(&mut self, surroundings: Surroundings, now: Time) {
        self.pace.surroundings = surroundings;
        if self.pace.closes(self.settings.shadow_bytes, now) != Closing::Nothing {
            self.clock.close_at.get_or_insert(now);
        }
    }

    /// A stream to the server had its first answer after so long.
    pub fn first_answer(&mut self, took: Duration, now: Time) {
        self.pace.first_answer(took, now);
    }

    /// A stream to the server ended with RESOURCE_EXHAUSTED.
    pub fn exhausted(&mut self, now: Time) {
        self.pace.exhausted(now);
        self.clock.close_at.get_or_insert(now);
    }

    /// The answer to a question: a meaning for each pair, in order.
    pub fn meant(&mut self, question: QuestionId, meanings: Vec<Meaning>, now: Time) {
        let Some(asked) = self.trials.questions.remove(&question) else { return };
        let class = self.trials.by_sample.get(&asked.trial).map(|trial| trial.class.clone());
        for (pair, meaning) in asked.pairs.iter().zip(meanings) {
            let is_secret = meaning == Meaning::HasSecret;
            let is_first = self.meanings.learn(&asked.type_url, pair.one, pair.other, meaning);
            if let Some(class) = class.clone().filter(|_| is_first) {
                let type_url = asked.type_url.clone();
                self.tell(match is_secret {
                    true => Happening::SecretBearing { class, type_url },
                    false => Happening::Encoding { class, type_url, name: pair.key.name.clone() },
                });
            }
        }
        if let Some(trial) = self.trials.by_sample.get_mut(&asked.trial) {
            trial.look_soon(now);
        }
    }

    /// Proves a class now: all members, or a member of each fingerprint.
    pub fn prove(&mut self, order: &ProveOrder, now: Time) -> OrderId {
        let class = self.classes.get(&order.class);
        let refused = match (class, &self.twins) {
            (None, _) => Some("the server has no such class".into()),
            (_, Twins::Forbidden { status, until, .. }) if now < *until => {
                Some(format!("the server bears one stream for each node: {status}").into())
            }
            (Some(class), _) if class.representative.is_never => {
                Some("the node of the class matches proof.never".into())
            }
            (Some(class), _) => class
                .asking
                .impossible()
                .filter(|_| !class.asking.may_ask(now))
                .map(|status| format!("the server refuses shadows: {status}").into()),
        };
        let id = self.orders.add(order, class, refused, now);
        self.clock.pick_at = Some(now);
        id
    }

    pub fn prove_state(&self, order: OrderId) -> Option<ProveState> {
        self.orders.state(order)
    }

    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The next time for [`Proof::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        let trials = self.trials.by_sample.values().filter_map(|trial| trial.look_at);
        let picks = self.clock.pick_at.filter(|_| !self.classes.is_empty());
        trials.chain(picks).chain(self.clock.close_at).min()
    }

    pub fn handle_timeout(&mut self, now: Time) {
        self.close_for_want(now);
        self.trials.questions.retain(|_, asked| now.since(asked.at) < ANSWER_MAX);
        let due = |trial: &Trial| trial.look_at.is_some_and(|look_at| look_at <= now);
        for sample in self.samples_of(due) {
            self.look(sample, now);
        }
        if self.clock.pick_at.is_some_and(|pick_at| pick_at <= now) {
            self.age(now);
            self.begin_orders(now);
            self.begin_samples(now);
        }
    }

    /// The samples of the trials for which the test holds.
    fn samples_of(&self, test: impl Fn(&Trial) -> bool) -> Vec<ShadowId> {
        self.trials.by_sample.iter().filter(|entry| test(entry.1)).map(|entry| *entry.0).collect()
    }

    fn tell(&mut self, happening: Happening) {
        self.outputs.push_back(Output::Tell(happening));
    }

    fn close(&mut self, shadows: Vec<ShadowId>) {
        for id in shadows {
            if self.trials.roles.remove(&id).is_some() {
                self.outputs.push_back(Output::Close(id));
            }
        }
    }

    fn search_soon(&mut self, now: Time) {
        let at = now.max(self.clock.searched_at + SEARCH_GAP);
        self.clock.pick_at = Some(self.clock.pick_at.map_or(at, |pick_at| pick_at.min(at)));
    }

    /// The proof of all classes.
    pub fn report(&self, now: Time) -> ProofReport {
        let forbidden = match &self.twins {
            Twins::Forbidden { status, .. } => Some(status),
            Twins::Unknown | Twins::Allowed => None,
        };
        let trials: Vec<&Trial> = self.trials.by_sample.values().collect();
        let mut report = report(&self.classes, &trials, &self.meanings, &self.paths, self.bounds());
        for class in report.classes.iter_mut().filter(|_| forbidden.is_some()) {
            class.be_impossible(forbidden);
        }
        report.gives_way = self.gives_way(now);
        report
    }

    /// The latest samples of a class, the newest first; `None`: no such class.
    pub fn samples(&self, class: &ClassKey) -> Option<Vec<SampleReport>> {
        self.classes.get(class).map(|class| class.evidence.listed())
    }
}
