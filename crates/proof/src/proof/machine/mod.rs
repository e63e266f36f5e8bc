//! The machine of a server: opens shadows within the bounds, and follows their trials.
//!
//! In order: the trials and the bounds of time; the inputs, the outputs and the decisions about splits, in
//! this file; and the steps after an input.

mod trials;
mod steps;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::breaker::{Breaker, Share};
use super::class::{ClassProof, Published, RETRY};
use super::content::Content;
use super::departure::Departure;
use super::divergence::{EqualMember, QuestionPurpose, SplitQuestion, Theory};
use super::input::{
    ClassFacts, ClassKey, Meaning, Member, MemberId, OrderId, ProveOrder, RestoredSplit, ShadowId,
    Surroundings,
};
use super::meaning::Meanings;
use super::orders::Orders;
use super::output::{Happening, Output, QuestionId, Split};
use super::pace::{Closing, Pace, REGISTERS};
use super::picks::Rotation;
use super::population::{FieldNumber, FieldPaths, Print, Resident, Row};
use super::probe::Probe;
use super::report::{ProofReport, ProveState, SampleReport, SampleResult};
use super::reports::report;
use super::settings::{Policy, ProofSettings};
use super::splits::{Passage, Splits};
use super::trial::{LOOK_AFTER, Trial};
use sluice_engine::Time;
use sluice_xds::{Code, Node, Status, TypeUrl};
use steps::SampleReason;
use trials::{ANSWER_MAX, ASKED_EVERY, Role, SEARCH_GAP, SHARE_OF, Trials, Twins, WAIT, refuses_twins};

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
    splits: Splits,
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
            splits: Splits::default(),
            twins: Twins::Unknown,
            clock: Clock::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Other settings are in force.
    pub fn configure(&mut self, settings: ProofSettings, now: Time) {
        self.settings = settings;
        self.search_soon(now);
        self.splits.wake_at(now);
    }

    /// The stream of a class shows this node to the server, also before anybody has come to the class.
    /// Shadows of the node give way, unless the server is known to bear two streams of an id: it would refuse
    /// the class, or end its stream.
    pub fn shows(&mut self, class: &ClassKey, node: &Node, now: Time) {
        let node_key = self.paths.node_key(node);
        self.trials.shown.insert(class.clone(), node_key);
        if !matches!(self.twins, Twins::Allowed) {
            for sample in self.samples_of(|trial| trial.subject.node_key == node_key) {
                self.end(sample, None, now);
            }
        }
    }

    /// A class began, or has another rule or representative.
    pub fn class(&mut self, class: &ClassKey, facts: ClassFacts, now: Time) {
        self.shows(class, &facts.node, now);
        match self.classes.get_mut(class) {
            Some(proof) => proof.restate(facts, &mut self.paths),
            None => drop(self.classes.insert(class.clone(), ClassProof::new(facts, &mut self.paths))),
        }
        self.adopt(class, now);
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
        let is_watched = self.trials.of_class(class).any(|trial| trial.is_witness && trial.was_equal());
        let Some(proof) = self.classes.get_mut(class) else { return };
        let is_first = proof.live.newest.is_none();
        proof.publish(Published { content, connection, is_watched }, now, self.settings.pace.window);
        for trial in self.trials.by_sample.values_mut().filter(|trial| trial.class == *class) {
            trial.look_soon(now + LOOK_AFTER);
        }
        if is_first {
            self.search_soon(now);
        }
        self.splits.published(class, now);
    }

    /// The source of the class ended. The shadows of the class close.
    pub fn class_ended(&mut self, class: &ClassKey, now: Time) {
        for sample in self.samples_of(|trial| trial.class == *class) {
            self.end(sample, None, now);
        }
        self.orders.refuse(Some(class), "the class has no members any more", now);
        self.classes.remove(class);
        self.trials.shown.remove(class);
        self.splits.class_ended(class);
        self.decide_soon(now);
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
        let Some(row) = proof.population.get(id).map(|resident| proof.population.full_row(resident)) else {
            return;
        };
        let Some(resident) = proof.population.remove(id) else { return };
        let node_key = resident.node_key;
        let is_back = proof.population.residents().any(|entry| entry.1.node_key == node_key);
        if !is_back {
            proof.evidence.forget_differing(node_key);
            let differs = proof.records.values().any(|record| record.has(node_key));
            let (is_split, news) = self.splits.member_left(class, node_key, &row, differs, now);
            self.settle_records(class, node_key, &BTreeSet::new(), is_split, now);
            news.into_iter().for_each(|split| self.tell(Happening::SplitOff { split }));
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
        let registers_clients = surroundings.registers_clients && !self.pace.surroundings.registers_clients;
        self.pace.surroundings = surroundings;
        if registers_clients {
            self.orders.refuse(None, REGISTERS, now);
            let status = Status::new(Code::FailedPrecondition, REGISTERS);
            self.tell(Happening::Impossible { class: None, status });
        }
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
        // Other samples of the class may have the same versions.
        let of_class = |trial: &&mut Trial| class.as_ref().is_some_and(|class| trial.class == *class);
        self.trials.by_sample.values_mut().filter(of_class).for_each(|trial| trial.look_soon(now));
        self.decide_soon(now);
    }

    /// The unit of the class has a plan that is not open: splits and joins of the class wait (PRF-30).
    pub fn hold(&mut self, class: &ClassKey, is_held: bool, now: Time) {
        self.splits.hold(class, is_held, now);
    }

    /// Whether an operator split the class off, after the class began: then the class is the operator's, and
    /// never joined (PRF-31).
    pub fn leave_to_operator(&mut self, class: &ClassKey, is_operators: bool, now: Time) {
        self.splits.leave_to_operator(class, is_operators);
        self.adopt(class, now);
    }

    fn adopt(&mut self, class: &ClassKey, now: Time) {
        if let Some(proof) = self.classes.get(class) {
            self.splits.adopt(class, proof, now);
        }
    }

    /// The split could not be made: no room (`limits.node_classes`), or the like. The class stays as under
    /// `warn`, with the reason in its report, and the split is tried again after ten minutes.
    pub fn split_refused(&mut self, class: &ClassKey, reason: Arc<str>, now: Time) {
        self.splits.refuse(class, reason, now);
    }

    /// A split of before a restart or an upgrade (PRF-32). Before or after the class begins.
    pub fn restore_split(&mut self, split: RestoredSplit, now: Time) {
        self.splits.restore(split, now);
    }

    /// An operator joined the classes that were split off from this class: the machine does not split the
    /// class again for an hour, and only warns (PRF-32).
    pub fn joined(&mut self, parent: &ClassKey, now: Time) {
        self.splits.join(parent, now);
    }

    /// Proves a class now: all members, or a member of each fingerprint. `None`: too many orders are under
    /// way.
    pub fn prove(&mut self, order: &ProveOrder, now: Time) -> Option<OrderId> {
        let class = self.classes.get(&order.class);
        let refused = match (class, &self.twins) {
            (None, _) => Some("the server has no such class".into()),
            _ if self.pace.surroundings.registers_clients => Some(REGISTERS.into()),
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
        let id = self.orders.add(order, class, refused, now)?;
        self.clock.pick_at = Some(now);
        Some(id)
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
        trials.chain(picks).chain(self.clock.close_at).chain(self.splits.due_at).min()
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
        if self.splits.due_at.is_some_and(|due_at| due_at <= now) {
            self.decide(now);
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
        let trials: Vec<&Trial> = self.trials.by_sample.values().collect();
        let mut report = report(&self.classes, &trials, &self.meanings, &self.paths, self.bounds());
        for class in &mut report.classes {
            match &self.twins {
                _ if self.pace.surroundings.registers_clients => class.be_registered(),
                Twins::Forbidden { status, .. } => class.be_impossible(status),
                Twins::Unknown | Twins::Allowed => {}
            }
        }
        report.gives_way = self.gives_way(now);
        self.splits.complete(&mut report, now);
        report
    }

    /// The latest samples of a class, the newest first; `None`: no such class.
    pub fn samples(&self, class: &ClassKey) -> Option<Vec<SampleReport>> {
        self.classes.get(class).map(|class| class.evidence.listed())
    }

    // The decisions about splits.

    /// Decides about splits, refusals and returns (PRF-27 to PRF-31).
    pub(super) fn decide(&mut self, now: Time) {
        self.splits.due_at = None;
        self.splits.forget(&self.classes, now);
        self.splits.forget_waiting(&self.classes);
        if self.settings.policy != Policy::Warn {
            self.watch_breaker(now);
        }
        self.refuse();
        if self.settings.policy == Policy::Split {
            self.split(now);
            self.join(now);
        }
    }

    /// Opens the breaker if too much differs at once. At the end of the pause each divergence wants another
    /// second and control (PRF-29).
    fn watch_breaker(&mut self, now: Time) {
        if self.splits.breaker.close(now) {
            self.classes.values_mut().flat_map(|class| class.records.values_mut()).for_each(|record| {
                record.is_doubted = true;
            });
            let settle = self.settings.pace.settle;
            self.trials.by_sample.values_mut().for_each(|trial| trial.doubt(settle, now));
        }
        let share = self.share(now);
        if let Some(reason) = self.splits.breaker.trip(share, now) {
            self.tell(Happening::Breaker { reason, pause: Breaker::PAUSE });
        }
    }

    /// The samples of the last minute since the last change, over all classes. Witnesses are samples that
    /// stay open.
    fn share(&self, now: Time) -> Share {
        let changes = self.classes.values().map(|class| class.live.changed_at);
        let since = changes.fold(now - SHARE_OF, Time::max);
        let (mut share, mut families) = (Share::default(), BTreeSet::new());
        for (key, class) in &self.classes {
            let mut nodes: BTreeMap<u64, bool> = class.evidence.recent(since).collect();
            for trial in self.trials.of_class(key).filter(|trial| trial.is_witness) {
                let node_key = trial.subject.node_key;
                let differs = class.evidence.is_differing(node_key);
                if trial.was_equal() || differs {
                    nodes.insert(node_key, differs && !trial.was_equal());
                }
            }
            let differing = nodes.values().filter(|differs| **differs).count();
            share.samples += nodes.len();
            share.differing += differing;
            if differing > 0 {
                families.insert(self.family(key));
            }
        }
        share.families = families.len();
        share
    }

    /// New streams of a class that differs are refused the type (PRF-28).
    fn refuse(&mut self) {
        let is_due = self.settings.policy == Policy::Refuse;
        let mut due = BTreeSet::new();
        for (key, type_url) in self.divergences().into_iter().filter(|_| is_due) {
            let is_doubted = self.is_doubted(&key, &type_url);
            if !self.splits.is_stopped(&key, &type_url) && !is_doubted {
                due.insert((key, type_url));
            }
        }
        let [admitted, refused] = self.splits.refuse_only(due);
        let admit = |(class, type_url)| Output::Admit { class, type_url };
        let refuse = |(class, type_url)| Output::Refuse { class, type_url };
        self.outputs.extend(admitted.into_iter().map(admit).chain(refused.into_iter().map(refuse)));
    }

    /// The classes and types with a divergence.
    fn divergences(&self) -> Vec<(ClassKey, TypeUrl)> {
        let of_class = |(key, class): (&ClassKey, &ClassProof)| -> Vec<(ClassKey, TypeUrl)> {
            class.records.keys().map(|type_url| (key.clone(), type_url.clone())).collect()
        };
        self.classes.iter().flat_map(of_class).collect()
    }

    fn is_doubted(&self, key: &ClassKey, type_url: &TypeUrl) -> bool {
        let record = self.classes.get(key).and_then(|class| class.records.get(type_url));
        record.is_none_or(|record| record.is_doubted)
    }

    /// Members that differ leave their class (PRF-27).
    fn split(&mut self, now: Time) {
        let classes = self.classes.iter().filter(|entry| !entry.1.records.is_empty());
        for key in classes.map(|entry| entry.0.clone()).collect::<Vec<_>>() {
            self.split_class(&key, now);
            self.splits.told_again_at(&key, now).into_iter().for_each(|at| self.splits.wake_at(at));
        }
    }

    fn split_class(&mut self, key: &ClassKey, now: Time) {
        if self.splits.ends_wait(key, now) {
            self.begin_anew(key, now);
        }
        let types = self.classes.get(key).map(|class| class.records.keys().cloned().collect::<Vec<_>>());
        let mut fields = self.splits.leaving_fields(key, now);
        let (mut departures, mut asked, mut outdated) = (Vec::new(), Vec::new(), Vec::new());
        for type_url in types.unwrap_or_default() {
            self.note_answers(key, &type_url, now);
            let is_compared = self.ask_between(key, &type_url, now);
            let is_doubted = self.is_doubted(key, &type_url);
            for theory in self.theories(key, &type_url, now) {
                fields.extend(theory.fields());
                if is_doubted {
                    continue;
                }
                let is_due = self.ask_for_split(key, &type_url, &theory, now) || is_compared;
                let Some(class) = self.classes.get(key) else { return };
                let Some(record) = class.records.get(&type_url) else { continue };
                let (is_outdated, awaited) = (record.is_outdated(&theory), record.outdated(now));
                let is_asked = is_due || is_outdated && !awaited.is_empty();
                if is_asked {
                    self.splits.wake_at(now + ASKED_EVERY);
                }
                let due = record.departures(&theory, &class.population, is_asked, now);
                let due = due.into_iter().map(|departure| (is_outdated, type_url.clone(), departure));
                departures.extend(due);
                outdated.extend(awaited);
                if is_asked {
                    asked.push((type_url.clone(), record.waiting(&theory, now)));
                }
            }
        }
        // As long as an answer is to be had again, nobody knows which fields explain it: members leave alone,
        // or not yet.
        departures.retain(|entry| outdated.is_empty() || entry.2.fields.is_empty());
        // Nobody is moved with a member whose other differences nothing explains yet.
        for (_, type_url, departure) in &mut departures {
            let others = asked.iter().filter(|asked| asked.0 != *type_url).flat_map(|asked| &asked.1);
            others.for_each(|row| departure.leave_out(row));
        }
        // A member that leaves alone is not to be shown for the others. One whose answer could not be had
        // again leaves with the others, if they have a value in common.
        departures.sort_by_key(|entry| (entry.0, !entry.2.fields.is_empty()));
        for (_, type_url, mut departure) in departures {
            let Some(class) = self.classes.get(key) else { return };
            let leaves = |node_key, row: &Row| {
                let shown = class.records.get(&type_url).and_then(|record| record.row(node_key));
                self.splits.is_leaving(key, node_key, shown.unwrap_or(row), now)
            };
            if departure.refine(&fields, &class.population, leaves) {
                self.depart(key, &type_url, departure, now);
            }
        }
    }

    fn theories(&self, key: &ClassKey, type_url: &TypeUrl, now: Time) -> Vec<Theory> {
        let Some(class) = self.classes.get(key) else { return Vec::new() };
        let Some(record) = class.records.get(type_url) else { return Vec::new() };
        let leaves = |node_key, row: &Row| self.splits.is_leaving(key, node_key, row, now);
        record.theories(&class.population, &self.paths, &self.meanings, leaves)
    }

    /// Members with the answer of a differing member are evidence at once, without a control of their own.
    fn note_answers(&mut self, key: &ClassKey, type_url: &TypeUrl, now: Time) {
        let Some(class) = self.classes.get_mut(key) else { return };
        let Some(record) = class.records.get_mut(type_url) else { return };
        let is_open = |trial: &&Trial| trial.class == *key && trial.subject.member.is_some();
        let mut is_news = false;
        for trial in self.trials.by_sample.values().filter(is_open) {
            is_news |= record.note(trial, &self.meanings, now);
        }
        let open = self.trials.by_sample.values().filter(is_open);
        let open = open.filter(|trial| trial.sample.content.is_some());
        record.forget_uncompared(&open.map(|trial| trial.subject.node_key).collect(), &self.meanings);
        if is_news {
            record.explain(&class.population, &self.paths);
        }
    }

    /// The class waits for nothing any more. What explains its divergences is found anew, because the rules
    /// of the server may have changed meanwhile (PRF-27).
    fn begin_anew(&mut self, key: &ClassKey, now: Time) {
        let Some(class) = self.classes.get_mut(key) else { return };
        for (type_url, record) in &mut class.records {
            let equal = self.trials.of_class(key).filter(|trial| trial.was_equal_in(type_url));
            record.show(&class.representative.row);
            record.begin_anew(equal.map(EqualMember::of).collect(), now);
            record.explain(&class.population, &self.paths);
        }
    }

    /// Asks whether answers of the class that are encoded at random mean the same. Returns whether an answer
    /// is due.
    fn ask_between(&mut self, key: &ClassKey, type_url: &TypeUrl, now: Time) -> bool {
        let record = self.classes.get(key).and_then(|class| class.records.get(type_url));
        let open = self.trials.of_class(key).filter(|trial| trial.subject.member.is_some());
        let pairs = record.map(|record| record.unasked(open, &self.meanings)).unwrap_or_default();
        let samples = self.samples_of(|trial| trial.class == *key);
        if samples.iter().any(|sample| self.trials.has_question(*sample)) {
            return !pairs.is_empty();
        }
        let Some(first) = samples.first().filter(|_| !pairs.is_empty()) else { return false };
        self.ask(*first, pairs, now);
        self.trials.has_question(*first)
    }

    /// Opens samples that make a theory better, as far as there is room. They have a bound of their own:
    /// a split is not to wait for the turn of a sample. Returns whether an answer is due.
    fn ask_for_split(&mut self, key: &ClassKey, type_url: &TypeUrl, theory: &Theory, now: Time) -> bool {
        while let Some(question) = self.question_for_split(key, type_url, theory, now) {
            let backs_off = self.classes.get(key).is_some_and(|class| class.asking.backs_off(now));
            let may_ask = self.gives_way(now).is_none() && !backs_off;
            let is_free =
                may_ask && self.pace.next_explanation(&self.settings.pace, now) <= now && self.has_slot(now);
            let Some(class) = self.classes.get_mut(key) else { return false };
            let node_key = class.population.get(question.member).map(|resident| resident.node_key);
            let (Some(record), Some(node_key)) = (class.records.get_mut(type_url), node_key) else {
                return false;
            };
            if !is_free {
                if !may_ask || question.purpose != QuestionPurpose::Doubt {
                    record.wait_for_samples(now);
                }
                return true;
            }
            record.ask(node_key, question.purpose);
            self.pace.begin_explanation(now);
            self.open_sample(key, question.member, SampleReason::Split, now);
        }
        self.awaits_answer(key, type_url)
    }

    fn question_for_split(
        &self,
        key: &ClassKey,
        type_url: &TypeUrl,
        theory: &Theory,
        now: Time,
    ) -> Option<SplitQuestion> {
        let is_open = |class: &&ClassProof| class.may_ask(now) || class.asking.backs_off(now);
        let class = self.classes.get(key).filter(is_open)?;
        let barred = self.barred();
        let prints: BTreeSet<Print> = self
            .trials
            .of_class(key)
            .filter(|trial| trial.subject.is_for_split)
            .map(|trial| trial.subject.print)
            .collect();
        let is_free = |resident: &Resident, since: Time| {
            resident.is_askable()
                && resident.node_key != class.representative.node_key
                && !barred.contains(&resident.node_key)
                && !class.evidence.has_word_since(resident.node_key, since)
        };
        let (record, shown) = (class.records.get(type_url)?, &class.representative.row);
        record.question(theory, &class.population, shown, is_free, &prints, now)
    }

    /// Whether a sample has said nothing so far, or one for the explanation has not said enough.
    fn awaits_answer(&self, key: &ClassKey, type_url: &TypeUrl) -> bool {
        let record = self.classes.get(key).and_then(|class| class.records.get(type_url));
        let says_enough =
            |trial: &Trial| record.is_some_and(|record| record.is_enough(trial, &self.meanings));
        let is_silent = |trial: &Trial| match trial.subject.is_for_split {
            true => !trial.is_witness && !says_enough(trial),
            false => trial.subject.member.is_some() && trial.sample.answered_at.is_none(),
        };
        self.trials.of_class(key).any(is_silent)
    }

    /// Whether a slot of `streams` is free. A sample in wait for a late stream gives its slot away, and one
    /// that has said enough for a split.
    fn has_slot(&mut self, now: Time) -> bool {
        if self.trials.in_slots() < self.settings.pace.streams as usize {
            return true;
        }
        let settle = self.settings.pace.settle;
        let is_enough = |trial: &Trial| {
            let mut records =
                self.classes.get(&trial.class).into_iter().flat_map(|class| class.records.values());
            !trial.is_witness
                && !trial.is_confirming()
                && records.all(|record| record.is_enough(trial, &self.meanings))
        };
        let gives_way = |trial: &Trial| match trial.subject.is_for_split {
            true => is_enough(trial),
            false => trial.is_lagging(settle, now) && trial.order.is_none(),
        };
        let Some(sample) = self.samples_of(gives_way).into_iter().next() else { return false };
        let is_for_split = self.trials.by_sample.get(&sample).is_some_and(|trial| trial.subject.is_for_split);
        self.end(sample, (!is_for_split).then_some(SampleResult::Lag), now);
        true
    }

    /// Tells the caller to move members, unless the split has to wait (PRF-29, PRF-30).
    fn depart(&mut self, key: &ClassKey, type_url: &TypeUrl, mut departure: Departure, now: Time) {
        let (class, type_url) = (key.clone(), type_url.clone());
        match self.splits.pass(key, &type_url, departure.tuples.len(), now) {
            Passage::Free => {}
            Passage::Waits => return,
            Passage::BeginsToWait(reason) => {
                return self.tell(Happening::SplitWaits { class, type_url, reason });
            }
        }
        while departure.tuples.len() > self.splits.room() {
            departure.tuples.pop_last();
        }
        let holds = self.splits.holds(key, now);
        let Some(proof) = self.classes.get(key) else { return };
        let Some(record) = proof.records.get(&type_url) else { return };
        let id = |node_key: &u64| record.node_id(*node_key).map(Arc::from);
        let text = |(field, value): (&FieldNumber, &u64)| proof.population.text(&(*field, *value)).cloned();
        let (fields, values) = match departure.fields.is_empty() {
            true => {
                let ids = departure.tuples.iter().map(|tuple| tuple.iter().map(id).collect());
                (vec!["id".into()], ids.collect())
            }
            false => {
                let paths = departure.fields.iter().map(|field| self.paths.path(*field));
                let values = departure
                    .tuples
                    .iter()
                    .map(|tuple| departure.fields.iter().zip(tuple).map(text).collect());
                (paths.collect(), values.collect())
            }
        };
        let member_id = record.node_id(departure.first).unwrap_or_default().into();
        let split = Arc::new(Split { class, type_url, member_id, fields, values, holds });
        self.splits.begin(&split, departure, now);
        self.classes.iter().for_each(|(key, class)| self.splits.adopt(key, class, now));
        self.outputs.push_back(Output::Split(Split::clone(&split)));
    }

    /// Members of classes that were split off return (PRF-31).
    fn join(&mut self, now: Time) {
        let settle = self.settings.pace.settle;
        for (class, parent) in self.splits.compare(&self.classes, &self.meanings, settle, now) {
            self.tell(Happening::Joined { class: class.clone(), parent });
            self.outputs.push_back(Output::Join { class });
        }
    }
}
