//! The steps of the machine: the choice of samples, and the consequences of a judgement.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::class::ClassProof;
use super::super::comparison::is_same_subscription;
use super::super::content::Content;
use super::super::cover::Covered;
use super::super::divergence::Record;
use super::super::evidence::SampleOf;
use super::super::input::{ClassKey, MemberId, OrderId, ShadowId};
use super::super::output::{Happening, Lagging, OpenShadow, Output, Question, QuestionId, ResourcePair};
use super::super::pace::Closing;
use super::super::picks::{Choice, Picked, Purpose};
use super::super::probe::Probe;
use super::super::report::{SampleResult, ShadowKind};
use super::super::reports::Bounds;
use super::super::settings::Policy;
use super::super::trial::{
    ASKED_MAX, Confirmed, Judgement, LOOK_AFTER, Outcome, Subject, Surround, Trial, Unasked,
};
use super::Proof;
use super::trials::{
    AGE_EVERY, ANSWER_MAX, Asked, IDLE, RENEWED_AFTER, REPLICAS_EVERY, Role, TEST_MAX, TOLD_EVERY,
    TWINS_AFTER, Twins, WAIT,
};
use sluice_engine::Time;
use sluice_xds::{Resource, TypeUrl, Version};

/// The reason for a sample.
pub(super) enum SampleReason {
    Order(OrderId),
    Turn(Purpose),
    /// The members that a split moves depend on the answer.
    Split,
    /// Whether the server bears two streams of an id is to be found out.
    Test,
}

impl Proof {
    /// Ages the evidence, and closes outdated witnesses.
    pub(super) fn age(&mut self, now: Time) {
        if now < self.clock.age_at {
            return;
        }
        self.clock.age_at = now + AGE_EVERY;
        let round = self.bounds().round;
        self.classes.values_mut().for_each(|class| class.evidence.age(round, now));
        // A witness with an outdated subscription compares little.
        let is_outdated = |trial: &Trial| {
            let class = self.classes.get(&trial.class);
            let resident = class.zip(trial.subject.member).and_then(|pair| pair.0.population.get(pair.1));
            trial.is_witness
                && now.since(trial.sample.since) >= RENEWED_AFTER
                && resident
                    .is_some_and(|resident| !is_same_subscription(&resident.wants, &trial.sample.wants))
        };
        for sample in self.samples_of(is_outdated) {
            self.end(sample, None, now);
        }
    }

    /// The reason why no shadow begins now (PRF-20).
    pub fn gives_way(&self, now: Time) -> Option<&'static str> {
        if matches!(&self.twins, Twins::Forbidden { until, .. } if now < *until) {
            return Some("the server bears one stream for each node");
        }
        self.pace.gives_way(&self.settings.pace, self.settings.shadow_bytes, now)
    }

    /// Closes witnesses while something is short, the newest first (PRF-20).
    pub(super) fn close_for_want(&mut self, now: Time) {
        if self.clock.close_at.is_none_or(|close_at| now < close_at) {
            return;
        }
        self.clock.close_at = None;
        match self.pace.closes(self.settings.shadow_bytes, now) {
            Closing::Nothing => {}
            Closing::All => {
                for sample in self.samples_of(|_| true) {
                    self.end(sample, None, now);
                }
            }
            Closing::Newest => {
                let newest = self.samples_of(|trial| trial.is_witness).into_iter().next_back();
                if let Some(sample) = newest {
                    self.end(sample, None, now);
                    self.clock.close_at = Some(now + WAIT);
                }
            }
        }
    }

    pub(super) fn begin_orders(&mut self, now: Time) {
        if self.gives_way(now).is_some() {
            return;
        }
        let mut put_back = Vec::new();
        while let Some((order, key, member)) = self.orders.next() {
            let Some(class) = self.classes.get(&key) else {
                self.orders.finish(order, None, now);
                continue;
            };
            let Some(member) = member else {
                if !self.order_replica(order, &key, now) {
                    put_back.push((order, None));
                }
                continue;
            };
            let Some(resident) = class.population.get(member).filter(|resident| resident.is_askable()) else {
                self.orders.finish(order, None, now);
                continue;
            };
            let node_key = resident.node_key;
            if let Some(result) = self.watched_result(&key, node_key) {
                self.orders.finish(order, Some(result), now);
                continue;
            }
            let is_busy = self.trials.of_class(&key).any(|trial| trial.subject.node_key == node_key);
            if is_busy || !class.may_ask(now) {
                put_back.push((order, Some(member)));
                continue;
            }
            if self.barred().contains(&resident.node_key) {
                self.orders.finish(order, None, now);
                continue;
            }
            self.open_sample(&key, member, SampleReason::Order(order), now);
        }
        put_back.into_iter().for_each(|(order, member)| self.orders.put_back(order, member));
    }

    /// The result of a node with a witness, which stays open: no other sample of the node may begin. `None`:
    /// no witness, or a witness with an undecided difference.
    fn watched_result(&self, key: &ClassKey, node_key: u64) -> Option<SampleResult> {
        let mut witnesses = self.trials.of_class(key).filter(|trial| trial.is_witness);
        let witness = witnesses.find(|trial| trial.subject.node_key == node_key)?;
        if witness.was_equal() {
            return Some(SampleResult::Equal);
        }
        if self.classes.get(key)?.evidence.is_differing(node_key) {
            return Some(SampleResult::Differs);
        }
        (!witness.is_undecided()).then_some(SampleResult::NoWord)
    }

    fn open_nodes(&self) -> impl Iterator<Item = u64> {
        self.trials.by_sample.values().map(|trial| trial.subject.node_key)
    }

    /// The nodes without permission for another stream now.
    pub(super) fn barred(&self) -> BTreeSet<u64> {
        let open = self.open_nodes();
        let shown = self.trials.shown.values().copied().filter(|_| !matches!(self.twins, Twins::Allowed));
        open.chain(shown).collect()
    }

    pub(super) fn begin_samples(&mut self, now: Time) {
        self.clock.searched_at = now;
        self.clock.pick_at = Some(now + IDLE);
        if self.orders.is_waiting() {
            self.clock.pick_at = Some(now + WAIT);
        }
        let next = self.pace.next_sample(&self.settings.pace, now);
        if next > now {
            return self.search_at(next);
        }
        let has_slot =
            self.trials.in_slots() < self.settings.pace.streams as usize && self.trials.waiting.is_empty();
        if self.gives_way(now).is_some() || !has_slot {
            return self.search_at(now + WAIT);
        }
        if self.begin_replica(now) {
            return self.search_at(self.pace.next_sample(&self.settings.pace, now));
        }
        let covered = self.has_room().then(|| self.covered());
        let choice = Choice { classes: &self.classes, barred: self.barred(), covered, now };
        let Some(Picked { class, member, purpose }) = self.rotation.pick(&choice) else { return };
        if let Purpose::Explain(type_url) = &purpose
            && let Some(record) =
                self.classes.get_mut(&class).and_then(|class| class.records.get_mut(type_url))
        {
            record.try_once();
        }
        self.pace.begin_sample(now);
        self.open_sample(&class, member, SampleReason::Turn(purpose), now);
        self.search_at(self.pace.next_sample(&self.settings.pace, now));
    }

    fn search_at(&mut self, at: Time) {
        self.clock.pick_at = Some(self.clock.pick_at.map_or(at, |pick_at| pick_at.min(at)));
    }

    /// Whether another witness may stay open (PRF-19).
    fn has_room(&self) -> bool {
        self.trials.witnesses() < self.bounds().standing
    }

    /// The values of the representatives and witnesses, by class.
    fn covered(&self) -> BTreeMap<ClassKey, Covered> {
        self.classes.iter().map(|(key, class)| (key.clone(), self.covered_in(key, class))).collect()
    }

    fn covered_in(&self, key: &ClassKey, class: &ClassProof) -> Covered {
        let witnesses = self.trials.of_class(key).filter(|trial| trial.is_witness);
        Covered::by(witnesses.map(|trial| &trial.subject.row).chain([&class.representative.row]))
    }

    pub(super) fn open_sample(&mut self, key: &ClassKey, member: MemberId, reason: SampleReason, now: Time) {
        let is_for_split = matches!(reason, SampleReason::Split);
        let (order, is_for_cover) = match reason {
            SampleReason::Order(order) => (Some(order), false),
            SampleReason::Turn(purpose) => (None, purpose == Purpose::Cover),
            SampleReason::Split | SampleReason::Test => (None, false),
        };
        let Some(class) = self.classes.get(key) else { return };
        let Some(resident) = class.population.get(member) else { return };
        let subject = Subject {
            member: Some(member),
            node: resident.node.clone(),
            node_key: resident.node_key,
            print: resident.print,
            common: class.population.common_row(resident),
            row: class.population.full_row(resident),
            is_for_cover,
            is_for_split,
        };
        let wants = resident.wants.clone();
        if let Some(class) = self.classes.get_mut(key) {
            class.asking.begin(now);
        }
        let probe = Probe::new(self.trials.next_shadow(), wants, now);
        self.open(key, &probe, ShadowKind::Sample, Some(member), &subject);
        self.trials.roles.insert(probe.id, (probe.id, Role::Sample));
        self.trials.by_sample.insert(probe.id, Trial::new(key.clone(), subject, probe, order));
    }

    fn open(
        &mut self,
        class: &ClassKey,
        probe: &Probe,
        kind: ShadowKind,
        member: Option<MemberId>,
        subject: &Subject,
    ) {
        self.outputs.push_back(Output::Open(OpenShadow {
            id: probe.id,
            class: class.clone(),
            kind,
            member,
            node: subject.node.clone(),
            wants: probe.wants.clone(),
            on_another_connection: kind == ShadowKind::Replica,
        }));
    }

    /// Opens the class's own node on another connection, once an hour (PRF-18). Returns whether a shadow
    /// began.
    fn begin_replica(&mut self, now: Time) -> bool {
        let replicas_at = *self.clock.replicas_at.get_or_insert(now + REPLICAS_EVERY);
        if now < replicas_at || !matches!(self.twins, Twins::Allowed) {
            return false;
        }
        self.clock.replicas_at = Some(now + REPLICAS_EVERY);
        let asked = self.classes.iter().filter(|entry| entry.1.may_ask(now));
        // Another class each hour; the wants of a member say what the class serves.
        let asked: Vec<&ClassKey> = asked.map(|entry| entry.0).collect();
        let hour = now.as_micros() / u64::try_from(REPLICAS_EVERY.as_micros()).unwrap_or(1);
        let place = usize::try_from(hour).unwrap_or(0) % asked.len().max(1);
        let Some(key) = asked.get(place).map(|key| (*key).clone()) else { return false };
        if !self.open_replica(&key, None, now) {
            return false;
        }
        self.pace.begin_sample(now);
        true
    }

    /// Opens the class's own node on another connection. Returns whether a shadow began: nothing says what
    /// the class serves, if no member may be asked about.
    fn open_replica(&mut self, key: &ClassKey, order: Option<OrderId>, now: Time) -> bool {
        let Some(class) = self.classes.get(key) else { return false };
        let askable = class.population.residents().find(|entry| entry.1.is_askable());
        let Some(wants) = askable.map(|entry| entry.1.wants.clone()) else { return false };
        let subject = own_node(class);
        let probe = Probe::new(self.trials.next_shadow(), wants, now);
        self.open(key, &probe, ShadowKind::Replica, None, &subject);
        self.trials.roles.insert(probe.id, (probe.id, Role::Sample));
        self.trials.by_sample.insert(probe.id, Trial::new(key.clone(), subject, probe, order));
        true
    }

    /// Begins the comparison of replicas of an order, or ends the order. Returns whether the order need not
    /// wait. A server that was not seen to bear two streams of a node is tested first, by a member: a second
    /// stream with the node of the class could end the first one.
    fn order_replica(&mut self, order: OrderId, key: &ClassKey, now: Time) -> bool {
        if self.trials.of_class(key).any(|trial| trial.subject.member.is_none()) {
            return false;
        }
        if matches!(self.twins, Twins::Unknown) {
            self.clock.replicas_at = Some(now);
            let is_testing = self.trials.of_class(key).any(|trial| !trial.is_witness);
            let is_vain = self.orders.has_waited(order, TEST_MAX, now);
            if is_vain || !is_testing && !self.begin_test(key, now) {
                self.orders.finish(order, None, now);
                return true;
            }
            return false;
        }
        if !self.open_replica(key, Some(order), now) {
            self.orders.finish(order, None, now);
        }
        true
    }

    /// Opens a sample of a member, to find out whether the server bears two streams of an id. Returns whether
    /// there is such a member.
    fn begin_test(&mut self, key: &ClassKey, now: Time) -> bool {
        let free = |proof: &Proof| {
            let (barred, class) = (proof.barred(), proof.classes.get(key)?);
            let mut residents = class.population.residents();
            let askable = residents.find(|entry| entry.1.is_askable() && !barred.contains(&entry.1.node_key));
            askable.map(|entry| entry.0)
        };
        let mut member = free(self);
        if member.is_none() {
            // A witness is open already, and tests nothing.
            let witness = self.samples_of(|trial| trial.class == *key && trial.is_witness).into_iter().next();
            witness.into_iter().for_each(|witness| self.end(witness, None, now));
            member = free(self);
        }
        let Some(member) = member else { return false };
        self.open_sample(key, member, SampleReason::Test, now);
        true
    }

    /// Looks at a trial, and takes the next step.
    pub(super) fn look(&mut self, sample: ShadowId, now: Time) {
        self.trials.waiting.remove(&sample);
        let Some(trial) = self.trials.by_sample.get_mut(&sample) else { return };
        let Some(class) = self.classes.get(&trial.class) else { return };
        let around = Surround {
            class: class.side(),
            meanings: &self.meanings,
            evidence: &class.evidence,
            pace: &self.settings.pace,
            now,
        };
        let judgement = trial.judge(around);
        let (key, node_key, is_known) =
            (trial.class.clone(), trial.subject.node_key, trial.sample.answered_at.is_some());
        if is_known && trial.subject.member.is_some() {
            let differing = trial.differing_types().into_iter().cloned().collect();
            self.settle_records(&key, node_key, &differing, false, now);
        }
        match judgement {
            Judgement::Waits => self.progress(sample, now),
            Judgement::Equal => self.equal(sample, now),
            Judgement::Ask(pairs) => self.ask(sample, pairs, now),
            Judgement::Confirm => self.confirm(sample, now),
            Judgement::Relax => self.relax(sample),
            Judgement::Done(outcome) => self.finish(sample, &outcome, now),
        }
    }

    pub(super) fn relax(&mut self, sample: ShadowId) {
        let Some(trial) = self.trials.by_sample.get_mut(&sample) else { return };
        let closed = trial.end_confirming();
        self.close(closed.into_iter().map(|probe| probe.id).collect());
    }

    /// Both sides are equal.
    fn equal(&mut self, sample: ShadowId, now: Time) {
        if self.wants_twins(now) && self.test_twins(sample, now) {
            return;
        }
        self.relax(sample);
        let Some(trial) = self.trials.by_sample.get(&sample) else { return };
        let trial = trial.clone();
        let (key, is_witness) = (trial.class.clone(), trial.is_witness);
        let node_key = trial.subject.node_key;
        let is_replica = trial.subject.member.is_none();
        let Some(class) = self.classes.get_mut(&key) else { return };
        if is_replica {
            let ends_disagreement = std::mem::take(&mut class.replicas_disagree);
            self.tell(Happening::ReplicasAgree { class: key, shadow: sample, ends_disagreement });
            return self.end(sample, Some(SampleResult::Equal), now);
        }
        if is_witness {
            class.see_push();
        }
        let is_news = is_witness && !class.evidence.is_equal(node_key);
        let is_evidence = !class.records.is_empty();
        for record in class.records.values_mut() {
            if record.add_equal(&trial) {
                record.explain(&class.population, &self.paths);
            }
        }
        if !is_witness {
            self.end(sample, Some(SampleResult::Equal), now);
        } else if is_news {
            self.note(&trial, SampleResult::Equal, now);
        }
        if is_evidence {
            self.decide_soon(now);
        }
    }

    /// Whether to find out if the server bears two streams of an id, for [`Proof::begin_replica`].
    fn wants_twins(&self, now: Time) -> bool {
        matches!(self.twins, Twins::Unknown)
            && self.clock.replicas_at.is_some_and(|at| now >= at)
            && self.gives_way(now).is_none()
    }

    /// Opens a second shadow of an equal sample. Returns whether the sample has to wait for the test.
    fn test_twins(&mut self, sample: ShadowId, now: Time) -> bool {
        let Some(trial) = self.trials.by_sample.get(&sample) else { return false };
        if trial.is_witness || trial.subject.member.is_none() {
            return false;
        }
        if trial.second.is_none() {
            if trial.is_confirming() || self.pace.next_confirmation(&self.settings.pace, now) > now {
                return false;
            }
            self.begin_second(sample, now);
        }
        self.progress(sample, now);
        matches!(self.twins, Twins::Unknown)
            && self
                .trials
                .by_sample
                .get(&sample)
                .is_some_and(|trial| now.since(trial.sample.since) < WAIT * 30)
    }

    /// Asks for the meaning of bodies, unless an answer is due already.
    pub(super) fn ask(&mut self, sample: ShadowId, pairs: Vec<Unasked>, now: Time) {
        let has_question = self.trials.has_question(sample);
        let Some(trial) = self.trials.by_sample.get_mut(&sample) else { return };
        trial.look_soon(now + ANSWER_MAX);
        if has_question {
            return;
        }
        let key = trial.class.clone();
        let Some(class) = self.classes.get(&key).and_then(|class| class.live.newest.as_ref()) else {
            return;
        };
        let probes = self.trials.of_class(&key).flat_map(Trial::probes);
        let contents: Vec<&Content> =
            probes.filter_map(|probe| probe.content.as_ref()).chain([class]).collect();
        let bodies = |pair: &Unasked| {
            let one = contents.iter().find_map(|content| body(content, pair, pair.one))?;
            let other = contents.iter().find_map(|content| body(content, pair, pair.other))?;
            Some(ResourcePair { class: one.clone(), shadow: other.clone() })
        };
        let held: Vec<(Unasked, ResourcePair)> = pairs
            .into_iter()
            .filter_map(|pair| bodies(&pair).map(|bodies| (pair, bodies)))
            .take(ASKED_MAX)
            .collect();
        let Some(type_url) = held.first().map(|pair| pair.0.key.type_url.clone()) else { return };
        let (pairs, bodies) = held.into_iter().unzip();
        self.trials.last_question += 1;
        let id = QuestionId(self.trials.last_question);
        self.trials.questions.insert(id, Asked { trial: sample, type_url: type_url.clone(), pairs, at: now });
        self.outputs.push_back(Output::Ask(Question { id, type_url, pairs: bodies }));
    }

    /// A difference has to be confirmed: by a second shadow of the member, and by a control (PRF-16).
    fn confirm(&mut self, sample: ShadowId, now: Time) {
        let is_free =
            self.gives_way(now).is_none() && self.pace.next_confirmation(&self.settings.pace, now) <= now;
        let Some(trial) = self.trials.by_sample.get_mut(&sample) else { return };
        if !is_free {
            return trial.look_soon(now + WAIT);
        }
        let (is_witness, is_replica) = (trial.is_witness, trial.subject.member.is_none());
        if is_witness && !self.has_slot(now) {
            self.trials.waiting.insert(sample);
            if let Some(trial) = self.trials.by_sample.get_mut(&sample) {
                trial.look_soon(now + WAIT);
            }
            return;
        }
        match is_replica {
            true => self.begin_control(sample, now),
            false => self.begin_second(sample, now),
        }
        self.progress(sample, now);
    }

    fn begin_second(&mut self, sample: ShadowId, now: Time) {
        self.pace.begin_confirmation(now);
        let id = self.trials.next_shadow();
        let Some(trial) = self.trials.by_sample.get_mut(&sample) else { return };
        trial.begin_confirming(now);
        let probe = Probe::new(id, trial.sample.wants.clone(), now);
        let (class, subject) = (trial.class.clone(), trial.subject.clone());
        trial.second = Some(probe.clone());
        self.trials.roles.insert(id, (sample, Role::Second));
        self.open(&class, &probe, ShadowKind::Second, subject.member, &subject);
    }

    fn begin_control(&mut self, sample: ShadowId, now: Time) {
        let id = self.trials.next_shadow();
        let Some(trial) = self.trials.by_sample.get_mut(&sample) else { return };
        if !trial.is_confirming() {
            self.pace.begin_confirmation(now);
        }
        let Some(class) = self.classes.get(&trial.class) else { return };
        trial.begin_confirming(now);
        let probe = Probe::new(id, trial.sample.wants.clone(), now);
        let (key, subject) = (trial.class.clone(), own_node(class));
        trial.control = Some(probe.clone());
        self.trials.roles.insert(id, (sample, Role::Control));
        self.open(&key, &probe, ShadowKind::Control, None, &subject);
    }

    /// Opens the control once the server is known to bear two streams of one id.
    fn progress(&mut self, sample: ShadowId, now: Time) {
        let gives_way = self.gives_way(now).is_some();
        let Some(trial) = self.trials.by_sample.get_mut(&sample) else { return };
        let Some(second) = trial.second.as_mut().filter(|_| trial.control.is_none()) else { return };
        if matches!(self.twins, Twins::Unknown | Twins::Forbidden { .. }) {
            if !second.has_answer() {
                return;
            }
            let answered_at = *second.answered_at.get_or_insert(now);
            if now < answered_at + TWINS_AFTER {
                return trial.look_soon(answered_at + TWINS_AFTER);
            }
            self.twins = Twins::Allowed;
        }
        if trial.was_equal() {
            return;
        }
        if gives_way {
            return trial.look_soon(now + WAIT);
        }
        self.begin_control(sample, now);
    }

    /// Takes the results of a trial.
    fn finish(&mut self, sample: ShadowId, outcome: &Outcome, now: Time) {
        self.relax(sample);
        let Some(trial) = self.trials.by_sample.get(&sample).cloned() else { return };
        self.tell_late(&trial, outcome, now);
        self.exclude(&trial, outcome, now);
        let result = outcome.result();
        if trial.subject.member.is_none() {
            self.tell_replicas(&trial, outcome);
            return self.end(sample, Some(result), now);
        }
        if result == SampleResult::Differs {
            self.record(&trial, &outcome.confirmed, now);
        }
        if !trial.is_witness {
            // Without the server nobody could have a word: the sample is void.
            let is_void = result == SampleResult::NoWord && self.pace.surroundings.is_unwell;
            self.end(sample, (!is_void).then_some(result), now);
        } else if outcome.is_torn {
            self.end(sample, None, now);
        }
        if result == SampleResult::NoWord
            && outcome.is_torn
            && let Some(class) = self.classes.get_mut(&trial.class)
        {
            // The node is asked again at once, with luck on one connection: the difference may be real.
            class.evidence.forget(trial.subject.node_key);
        }
        if !trial.is_witness || outcome.is_torn {
            return;
        }
        if result == SampleResult::Differs {
            self.note(&trial, result, now);
        }
        if let Some(trial) = self.trials.by_sample.get_mut(&sample) {
            trial.look_soon(now + LOOK_AFTER);
        }
    }

    fn tell_late(&mut self, trial: &Trial, outcome: &Outcome, now: Time) {
        let shadow = outcome.late_shadow.first().map(|late| (Lagging::Shadow(trial.sample.id), late));
        let class = outcome.late_class.first().map(|late| (Lagging::Class, late));
        for (who, (name, since)) in [shadow, class].into_iter().flatten() {
            let behind = now.since(*since);
            if behind >= self.settings.pace.window {
                let (class, type_url, name) = (trial.class.clone(), name.type_url.clone(), name.name.clone());
                self.tell(Happening::Lagging { class, who, type_url, name, behind });
            }
        }
    }

    /// Restless names leave the proof, loudly (PRF-16).
    fn exclude(&mut self, trial: &Trial, outcome: &Outcome, now: Time) {
        let Some(class) = self.classes.get_mut(&trial.class) else { return };
        let mut excluded: BTreeMap<TypeUrl, Vec<_>> = BTreeMap::new();
        for key in &outcome.restless {
            if class.evidence.exclude(key, now) {
                excluded.entry(key.type_url.clone()).or_default().push(key.name.clone());
            }
        }
        for (type_url, names) in excluded {
            // Names of Secrets are in no report (PRF-7).
            let names = if type_url.is_secret() { Vec::new() } else { names };
            self.tell(Happening::Restless { class: trial.class.clone(), type_url, names });
        }
    }

    fn tell_replicas(&mut self, trial: &Trial, outcome: &Outcome) {
        let Some(class) = self.classes.get_mut(&trial.class) else { return };
        let Some(first) = outcome.confirmed.first() else { return };
        class.replicas_disagree = true;
        let type_url = first.differing.key.type_url.clone();
        let names = outcome.confirmed.iter().map(|confirmed| &confirmed.differing.key);
        let names =
            names.filter(|key| key.type_url == type_url && !type_url.is_secret()).map(|key| key.name.clone());
        let names = names.take(100).collect();
        let (class, shadow) = (trial.class.clone(), trial.sample.id);
        self.tell(Happening::ReplicasDisagree { class, shadow, type_url, names });
    }

    /// Records a confirmed divergence, by type.
    fn record(&mut self, trial: &Trial, confirmed: &[Confirmed], now: Time) {
        self.decide_soon(now);
        let family = self.family(&trial.class);
        let Some(class) = self.classes.get_mut(&trial.class) else { return };
        let mut by_type: BTreeMap<TypeUrl, Vec<Confirmed>> = BTreeMap::new();
        for one in confirmed {
            by_type.entry(one.differing.key.type_url.clone()).or_default().push(one.clone());
        }
        let content = class.live.newest.clone().unwrap_or_default();
        for (type_url, confirmed) in by_type {
            let since = confirmed.iter().map(|one| one.since).min().unwrap_or(now);
            if !class.records.contains_key(&type_url) {
                self.splits.breaker.note(family.clone(), now);
            }
            let shown = &class.representative.row;
            let record = class
                .records
                .entry(type_url.clone())
                .or_insert_with(|| Record::new(type_url.clone(), shown.clone(), since));
            record.show(shown);
            if self.settings.policy == Policy::Split {
                record.forget_equal(&trial.subject, &confirmed, &self.meanings, now);
            }
            let compared = trial.compared_names(&content, &type_url);
            record.add(trial, &confirmed, compared, &self.meanings, now);
            // Witnesses that are equal now are evidence about the explanation.
            let witnesses = self
                .trials
                .by_sample
                .values()
                .filter(|other| other.class == trial.class && other.was_equal());
            for witness in witnesses {
                record.add_equal(witness);
            }
            record.explain(&class.population, &self.paths);
        }
        let mut news = Vec::new();
        let mut records = std::mem::take(&mut class.records);
        for record in records.values_mut() {
            if record.told_at.is_none_or(|at| now.since(at) >= TOLD_EVERY)
                && let Some(divergence) = record.report(class.of_records(&trial.class, &self.paths))
            {
                record.told_at = Some(now);
                news.push(Happening::Diverged(Arc::new(divergence)));
            }
        }
        class.records = records;
        news.into_iter().for_each(|happening| self.tell(happening));
    }

    /// A node differs in `differing` only. Divergences without a differing member end. `is_split`: the node
    /// has left the class by a split, and is not equal to the class.
    pub(super) fn settle_records(
        &mut self,
        key: &ClassKey,
        node_key: u64,
        differing: &BTreeSet<TypeUrl>,
        is_split: bool,
        now: Time,
    ) {
        let Some(class) = self.classes.get_mut(key) else { return };
        let mut ended = Vec::new();
        let mut records = std::mem::take(&mut class.records);
        records.retain(|type_url, record| {
            if differing.contains(type_url) {
                return true;
            }
            record.forget_alike(node_key);
            if !record.has(node_key) {
                return true;
            }
            let last = record.report(class.of_records(key, &self.paths));
            let is_over = record.remove(node_key);
            if is_over {
                ended.extend(last.filter(|_| !is_split));
            } else {
                record.explain(&class.population, &self.paths);
            }
            !is_over
        });
        class.records = records;
        if !ended.is_empty() {
            self.decide_soon(now);
        }
        ended.into_iter().for_each(|last| self.tell(Happening::DivergenceEnded(Arc::new(last))));
    }

    /// Adds a result to the evidence.
    fn note(&mut self, trial: &Trial, result: SampleResult, now: Time) {
        let round = self.rotation.round();
        if let Some(class) = self.classes.get_mut(&trial.class) {
            let Subject { node, node_key, print, common, .. } = &trial.subject;
            let sample =
                SampleOf { node_key: *node_key, node_id: &node.id, print: *print, row: common, round };
            class.evidence.add(&sample, result, now);
        }
        self.tell(Happening::Sampled { class: trial.class.clone(), result });
    }

    /// Ends a trial, unless the sample stays open as a witness. `None`: the sample is void.
    pub(super) fn end(&mut self, sample: ShadowId, result: Option<SampleResult>, now: Time) {
        self.relax(sample);
        let Some(mut trial) = self.trials.by_sample.remove(&sample) else { return };
        self.trials.waiting.remove(&sample);
        self.search_soon(now);
        self.trials.questions.retain(|_, asked| asked.trial != sample);
        // A replica proves nothing about members.
        let is_evidence = !trial.is_witness && trial.subject.member.is_some();
        if let Some(result) = result.filter(|_| is_evidence) {
            self.note(&trial, result, now);
        }
        if let Some(order) = trial.order.take() {
            self.orders.finish(order, result, now);
            self.clock.pick_at = Some(now);
        }
        let is_open = self.trials.roles.contains_key(&sample);
        if is_open && !trial.is_witness && result.is_some_and(|result| self.is_worthy(&trial, result)) {
            trial.is_witness = true;
            trial.look_soon(now + LOOK_AFTER);
            self.outputs.push_back(Output::Keep(sample));
            self.trials.by_sample.insert(sample, trial);
        } else {
            self.close(vec![sample]);
        }
    }

    /// Whether a sample becomes a witness: the sample differs, or has the maximum of uncovered values among
    /// all members (PRF-22).
    fn is_worthy(&self, trial: &Trial, result: SampleResult) -> bool {
        let Some(class) = self.classes.get(&trial.class).filter(|_| self.has_room()) else { return false };
        let is_member = trial.subject.member.is_some_and(|member| class.population.get(member).is_some());
        if result == SampleResult::Differs {
            return is_member;
        }
        let covered = self.covered_in(&trial.class, class);
        let gain = covered.gain(&class.population, &trial.subject.common);
        let is_greedy = trial.subject.is_for_cover || gain >= covered.best_gain(&class.population);
        is_member && result == SampleResult::Equal && gain > 0 && is_greedy
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds::new(&self.settings, &self.classes)
    }

    /// There is news about a divergence. Under `warn` nothing follows from it.
    pub(super) fn decide_soon(&mut self, now: Time) {
        if self.settings.policy != Policy::Warn {
            self.splits.wake_at(now);
        }
    }

    /// The class from which the class was split off, over all splits.
    pub(super) fn family(&self, key: &ClassKey) -> ClassKey {
        let mut family = key;
        // Two classes may come from each other, after a split and a return.
        for _ in 0..self.classes.len() {
            match self.classes.get(family).and_then(|class| class.split_from.as_ref()) {
                Some(parent) if parent != key => family = parent,
                Some(_) | None => break,
            }
        }
        family.clone()
    }
}

/// The class as the subject of a shadow.
fn own_node(class: &ClassProof) -> Subject {
    let shown = &class.representative;
    Subject {
        member: None,
        node: shown.node.clone(),
        node_key: shown.node_key,
        print: 0,
        common: shown.row.clone(),
        row: shown.row.clone(),
        is_for_cover: false,
        is_for_split: false,
    }
}

/// The body of a version of a name, if the content still has the version.
fn body<'a>(content: &'a Content, pair: &Unasked, version: Version) -> Option<&'a Arc<Resource>> {
    let types = content.types.get(&pair.key.type_url)?;
    types.snapshot.body(pair.key.kind, &pair.key.name).filter(|body| body.version == version)
}
