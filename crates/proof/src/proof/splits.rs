//! The splits of the classes of a server: what holds them back, and how long they hold (PRF-27 to PRF-32).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::breaker::Breaker;
use super::class::ClassProof;
use super::comparison::{compare, is_same_subscription, shared, stance};
use super::departure::{Departure, REFINED_MAX};
use super::evidence::HOUR;
use super::history::NameKey;
use super::input::{ClassKey, RestoredSplit, Wanted};
use super::meaning::{Meanings, Relation};
use super::output::Split;
use super::population::{FieldNumber, Row};
use super::report::{BreakerReport, ClassState, ProofReport, SplitReport};
use sluice_engine::Time;
use sluice_xds::TypeUrl;

const MINUTE: Duration = Duration::from_secs(60);
/// New classes in a minute (PRF-29).
const PER_MINUTE: usize = REFINED_MAX;
/// A split holds for so long at first, and for twice the time after each return, up to a bound (PRF-31).
const HOLDS: Duration = HOUR;
const HOLDS_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Both classes are equal over so many changes before their members come together again (PRF-31).
const EQUAL_OVER: u32 = 2;
/// The caller moves the members within this time. Then the same is told again.
const MOVED_WITHIN: Duration = Duration::from_secs(600);
/// A split that could not be made is tried again after this time.
const REFUSED_FOR: Duration = Duration::from_secs(600);
/// After an operator joined classes, the class only warns for so long (PRF-32).
const JOINED_FOR: Duration = HOUR;
/// Two classes are compared once in this time.
const COMPARED_EVERY: Duration = Duration::from_secs(1);
/// Splits to remember; the oldest go first.
const MADE_MAX: usize = 4_096;

/// The latest equality of two classes.
#[derive(Clone, Debug)]
struct Equality {
    /// The numbers of changes of both.
    changes: (u64, u64),
    /// The collections that both knew, the names outside of the proof, and the versions of all others.
    shared: Vec<Wanted>,
    restless: BTreeSet<NameKey>,
    digest: u128,
}

/// The comparison of a class with the class that its members left.
#[derive(Clone, Debug, Default)]
struct Watch {
    /// Changes without a difference since the split.
    equal_over: u32,
    seen: Option<Equality>,
    is_equal: bool,
    differs_since: Option<Time>,
    /// The members were told to return.
    joined_at: Option<Time>,
}

/// A split, as long as some of its classes stand.
#[derive(Clone, Debug)]
struct MadeSplit {
    split: Arc<Split>,
    departure: Departure,
    made_at: Time,
    /// The age at `made_at`: a split of before a restart.
    age_before: Duration,
    /// A differing member has left.
    is_told: bool,
    children: BTreeMap<ClassKey, Watch>,
}

impl MadeSplit {
    fn age(&self, now: Time) -> Duration {
        self.age_before + now.since(self.made_at)
    }

    /// Whether members that leave by the split are still on their way.
    fn is_under_way(&self, class: &ClassKey, now: Time) -> bool {
        self.split.class == *class && now.since(self.made_at) < MOVED_WITHIN
    }

    /// Whether the split made the class: the class came from the class of the split, with one of the tuples.
    fn is_origin_of(&self, class: &ClassProof) -> bool {
        let shown = &class.representative;
        class.split_from.as_ref() == Some(&self.split.class)
            && self.departure.covers(shown.node_key, &shown.row)
    }
}

/// The reason why a class does not split now.
#[derive(Clone, Debug)]
struct Waiting {
    reason: Arc<str>,
    type_url: TypeUrl,
    /// The number of classes that the members leave for.
    classes: usize,
}

/// Whether members may leave a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passage {
    Free,
    /// The reason is to be told.
    BeginsToWait(Arc<str>),
    Waits,
}

/// The splits, and what holds further ones back.
#[derive(Clone, Debug, Default)]
pub struct Splits {
    pub breaker: Breaker,
    /// Classes with a held push (PRF-30).
    held: BTreeSet<ClassKey>,
    /// Classes that do not split for a while, with the reason.
    barred: BTreeMap<ClassKey, (Arc<str>, Time)>,
    waiting: BTreeMap<ClassKey, Waiting>,
    made: VecDeque<MadeSplit>,
    /// Classes that operators split off.
    operators: BTreeSet<ClassKey>,
    /// New classes of the last minute.
    begins: VecDeque<Time>,
    /// The times for which the next splits of classes hold, since when: classes that came together again.
    holds: BTreeMap<ClassKey, (Duration, Time)>,
    /// Classes and types under refusal (PRF-28).
    refused: BTreeSet<(ClassKey, TypeUrl)>,
    /// The next time to decide.
    pub due_at: Option<Time>,
    compared_at: Time,
}

impl Splits {
    pub fn wake_at(&mut self, at: Time) {
        self.due_at = Some(self.due_at.map_or(at, |due_at| due_at.min(at)));
    }

    /// The unit of the class has a plan that is not open (PRF-30).
    pub fn hold(&mut self, class: &ClassKey, is_held: bool, now: Time) {
        match is_held {
            true => self.held.insert(class.clone()),
            false => self.held.remove(class),
        };
        self.wake_at(now);
    }

    /// The split could not be made: the class stays as it is, and the split is forgotten.
    pub fn refuse(&mut self, class: &ClassKey, reason: Arc<str>, now: Time) {
        self.made.retain(|made| made.split.class != *class || !made.children.is_empty());
        self.barred.insert(class.clone(), (reason, now + REFUSED_FOR));
        self.wake_at(now);
    }

    /// An operator joined the classes that were split off from the class.
    pub fn join(&mut self, parent: &ClassKey, now: Time) {
        self.made.retain(|made| made.split.class != *parent);
        let reason = "an operator joined the class again within the last hour".into();
        self.barred.insert(parent.clone(), (reason, now + JOINED_FOR));
    }

    /// A split of before a restart or an upgrade (PRF-32).
    pub fn restore(&mut self, restored: RestoredSplit, now: Time) {
        let RestoredSplit { class, parent, type_url, member_id, age, holds } = restored;
        let (fields, values) = (Vec::new(), Vec::new());
        let split = Split { class: parent, type_url, member_id, fields, values, holds };
        self.add(MadeSplit {
            split: Arc::new(split),
            departure: Departure::default(),
            made_at: now,
            age_before: age,
            is_told: true,
            children: [(class, Watch::default())].into(),
        });
        self.wake_at(now);
    }

    fn add(&mut self, made: MadeSplit) {
        if self.made.len() >= MADE_MAX {
            self.made.pop_front();
        }
        self.made.push_back(made);
    }

    /// A class began, or has another representative; or members may be split off into the class again, while
    /// it lasts after their return. The newest split that made the class says how long it holds.
    pub fn adopt(&mut self, key: &ClassKey, class: &ClassProof, now: Time) {
        if self.operators.contains(key) {
            return;
        }
        let Some(newest) = self.made.iter().rposition(|made| made.is_origin_of(class)) else { return };
        let is_apart =
            |made: &MadeSplit| made.children.get(key).is_some_and(|watch| watch.joined_at.is_none());
        let has_class = |made: &MadeSplit| made.children.contains_key(key);
        if self.made.iter().any(is_apart) || self.made.get(newest).is_some_and(has_class) {
            return;
        }
        self.made.iter_mut().for_each(|made| drop(made.children.remove(key)));
        if let Some(made) = self.made.get_mut(newest) {
            made.children.insert(key.clone(), Watch::default());
        }
        self.wake_at(now);
    }

    /// An operator split the class off: it is the operator's, and never joined (PRF-31).
    pub fn leave_to_operator(&mut self, class: &ClassKey, is_operators: bool) {
        if !is_operators {
            self.operators.remove(class);
            return;
        }
        self.operators.insert(class.clone());
        self.made.iter_mut().for_each(|made| drop(made.children.remove(class)));
    }

    pub fn class_ended(&mut self, class: &ClassKey) {
        self.held.remove(class);
        self.operators.remove(class);
        self.waiting.remove(class);
        for made in &mut self.made {
            made.children.retain(|child, watch| child != class || watch.joined_at.is_none());
            // While one of two classes is away, nobody knows whether they differ.
            let is_origin = made.split.class == *class;
            let watches = made.children.iter_mut().filter(|(child, _)| is_origin || *child == class);
            watches.for_each(|(_, watch)| watch.begin_anew());
        }
    }

    /// A member leaves a class. Returns whether a split moves the member; and the split, if the member is the
    /// first of those that differ.
    pub fn member_left(
        &mut self,
        class: &ClassKey,
        node_key: u64,
        row: &Row,
        differs: bool,
        now: Time,
    ) -> (bool, Option<Arc<Split>>) {
        let mut made = self.made.iter_mut();
        let covers =
            |made: &&mut MadeSplit| made.is_under_way(class, now) && made.departure.covers(node_key, row);
        let Some(made) = made.find(covers) else { return (false, None) };
        let is_first = differs && !made.is_told;
        made.is_told |= differs;
        (true, is_first.then(|| made.split.clone()))
    }

    /// Whether the member is on its way out of the class already.
    pub fn is_leaving(&self, class: &ClassKey, node_key: u64, row: &Row, now: Time) -> bool {
        self.made.iter().any(|made| made.is_under_way(class, now) && made.departure.covers(node_key, row))
    }

    /// The fields that explain the members on their way out of the class. Others may share the values of one
    /// that leaves alone.
    pub fn leaving_fields(&self, class: &ClassKey, now: Time) -> BTreeSet<FieldNumber> {
        let under_way = self.made.iter().filter(|made| made.is_under_way(class, now));
        under_way.flat_map(|made| &made.departure.explained_by).copied().collect()
    }

    /// The time at which members that are on their way may be told again.
    pub fn told_again_at(&self, class: &ClassKey, now: Time) -> Option<Time> {
        let under_way = self.made.iter().filter(|made| made.is_under_way(class, now));
        under_way.map(|made| made.made_at + MOVED_WITHIN).min()
    }

    /// Whether members of the class may leave now for so many classes, or a split of the class waits.
    pub fn pass(&mut self, class: &ClassKey, type_url: &TypeUrl, classes: usize, now: Time) -> Passage {
        if self.is_stopped(class, type_url) {
            return Passage::Waits;
        }
        let Some((reason, until)) = self.reason_to_wait(class, classes, now) else {
            self.waiting.remove(class);
            return Passage::Free;
        };
        until.into_iter().for_each(|until| self.wake_at(until));
        match self.wait(class, type_url, classes, &reason) {
            true => Passage::BeginsToWait(reason),
            false => Passage::Waits,
        }
    }

    /// Whether the class has waited until now.
    pub fn ends_wait(&mut self, class: &ClassKey, now: Time) -> bool {
        let Some(classes) = self.waiting.get(class).map(|waiting| waiting.classes) else { return false };
        let is_over = self.breaker.open().is_none() && self.reason_to_wait(class, classes, now).is_none();
        is_over && self.waiting.remove(class).is_some()
    }

    /// Whether the breaker stops splits and refusals (PRF-29).
    pub fn is_stopped(&mut self, class: &ClassKey, type_url: &TypeUrl) -> bool {
        let Some((reason, until)) = self.breaker.open() else { return false };
        let reason = reason.clone();
        self.wake_at(until);
        self.wait(class, type_url, 1, &reason);
        true
    }

    /// Returns whether the reason is another one than before.
    fn wait(&mut self, class: &ClassKey, type_url: &TypeUrl, classes: usize, reason: &Arc<str>) -> bool {
        let waiting = Waiting { reason: reason.clone(), type_url: type_url.clone(), classes };
        let before = self.waiting.insert(class.clone(), waiting);
        before.is_none_or(|before| before.reason != *reason)
    }

    /// The reason why members of the class stay, and the end if there is one to know.
    fn reason_to_wait(
        &mut self,
        class: &ClassKey,
        classes: usize,
        now: Time,
    ) -> Option<(Arc<str>, Option<Time>)> {
        if self.held.contains(class) {
            let reason = "a plan holds a push back: `sluice rollout promote` or `abort` ends the wait";
            return Some((reason.into(), None));
        }
        self.barred.retain(|_, barred| now < barred.1);
        if let Some((reason, until)) = self.barred.get(class) {
            return Some((reason.clone(), Some(*until)));
        }
        while self.begins.front().is_some_and(|begin| now.since(*begin) >= MINUTE) {
            self.begins.pop_front();
        }
        // Members of one split leave together, as far as a minute has room for all.
        let over = (self.begins.len() + classes.min(PER_MINUTE)).checked_sub(PER_MINUTE + 1)?;
        let until = self.begins.get(over).map(|begin| *begin + MINUTE);
        Some((format!("{PER_MINUTE} classes were split off within a minute").into(), until))
    }

    /// The class has no divergence any more, so nothing waits.
    pub fn forget_waiting(&mut self, classes: &BTreeMap<ClassKey, ClassProof>) {
        self.waiting.retain(|class, waiting| {
            classes.get(class).is_some_and(|class| class.records.contains_key(&waiting.type_url))
        });
    }

    /// The tuples that may leave within the minute.
    pub fn room(&self) -> usize {
        PER_MINUTE.saturating_sub(self.begins.len())
    }

    /// The time for which the next split of the class holds (PRF-31).
    pub fn holds(&mut self, class: &ClassKey, now: Time) -> Duration {
        self.holds.retain(|_, holds| now.since(holds.1) <= 2 * HOLDS_MAX);
        self.holds.get(class).map_or(HOLDS, |holds| holds.0)
    }

    /// A split is told.
    pub fn begin(&mut self, split: &Arc<Split>, departure: Departure, now: Time) {
        self.begins.extend(departure.tuples.iter().map(|_| now));
        self.add(MadeSplit {
            split: split.clone(),
            departure,
            made_at: now,
            age_before: Duration::ZERO,
            is_told: false,
            children: BTreeMap::new(),
        });
    }

    /// The types of classes under refusal that are to be refused no more, and those that are to be refused
    /// (PRF-28).
    pub fn refuse_only(&mut self, due: BTreeSet<(ClassKey, TypeUrl)>) -> [Vec<(ClassKey, TypeUrl)>; 2] {
        let before = std::mem::replace(&mut self.refused, due);
        let admitted = before.difference(&self.refused).cloned().collect();
        [admitted, self.refused.difference(&before).cloned().collect()]
    }

    /// The class has new content, which may bring classes together.
    pub fn published(&mut self, class: &ClassKey, now: Time) {
        let is_pair = |made: &MadeSplit| made.split.class == *class || made.children.contains_key(class);
        if self.made.iter().any(is_pair) {
            let next = self.compared_at + COMPARED_EVERY;
            self.wake_at(next.max(now + COMPARED_EVERY / 3));
        }
    }

    /// Compares the classes of splits with the classes that they came from. Returns the classes whose members
    /// return, each with the class to return to (PRF-31).
    pub fn compare(
        &mut self,
        classes: &BTreeMap<ClassKey, ClassProof>,
        meanings: &Meanings,
        settle: Duration,
        now: Time,
    ) -> Vec<(ClassKey, ClassKey)> {
        self.compared_at = now;
        let (mut joined, mut wakes) = (Vec::new(), Vec::new());
        let is_still = |class: &ClassKey| !self.held.contains(class) && self.breaker.open().is_none();
        // The parts of a class come together before the class goes itself.
        let divided: BTreeSet<&ClassKey> =
            classes.values().filter_map(|class| class.split_from.as_ref()).collect();
        for made in &mut self.made {
            let (age, holds, parent) = (made.age(now), made.split.holds, &made.split.class);
            let Some(origin) = classes.get(parent) else { continue };
            for (key, watch) in &mut made.children {
                let Some(class) = classes.get(key) else { continue };
                wakes.extend(watch.look(origin, class, meanings, settle, now));
                if age < holds {
                    wakes.push(now + (holds - age));
                } else if class.population.len() > 0
                    && watch.may_join(now)
                    && origin.records.is_empty()
                    && class.records.is_empty()
                    && is_still(parent)
                    && is_still(key)
                    && !divided.contains(key)
                {
                    watch.joined_at = Some(now);
                    self.holds.insert(parent.clone(), ((holds * 2).min(HOLDS_MAX), now));
                    joined.push((key.clone(), parent.clone()));
                }
            }
        }
        wakes.into_iter().for_each(|at| self.wake_at(at));
        joined
    }

    /// Drops splits that no class stands for.
    pub fn forget(&mut self, classes: &BTreeMap<ClassKey, ClassProof>, now: Time) {
        self.made.retain(|made| {
            let is_new = now.since(made.made_at) < MOVED_WITHIN;
            let is_here = made.children.keys().any(|class| classes.contains_key(class));
            // A class without a member for a while comes again as the same class.
            is_new || is_here || (!made.children.is_empty() && made.age(now) < 2 * HOLDS_MAX)
        });
    }

    /// Completes a report with the splits.
    pub fn complete(&self, report: &mut ProofReport, now: Time) {
        let breaker = self.breaker.open();
        report.breaker = breaker
            .map(|(reason, until)| BreakerReport { reason: reason.clone(), ends_in: until.since(now) });
        for class in &mut report.classes {
            let made = self.made.iter().find_map(|made| Some((made, made.children.get(&class.class)?)));
            class.split = made.map(|(made, watch)| SplitReport {
                parent: made.split.class.clone(),
                type_url: made.split.type_url.clone(),
                member_id: made.split.member_id.clone(),
                age: made.age(now),
                holds: made.split.holds,
                equal_over: watch.equal_over,
            });
            let waiting = self.waiting.get(&class.class).filter(|_| class.state == ClassState::Differs);
            if let Some(waiting) = waiting {
                class.state = ClassState::SplitWaits;
                class.split_waits = Some(waiting.reason.clone());
            }
        }
    }
}

impl Watch {
    /// Former equality counts no more.
    fn begin_anew(&mut self) {
        (self.equal_over, self.seen, self.is_equal) = (0, None, false);
    }

    fn may_join(&self, now: Time) -> bool {
        self.is_equal
            && self.equal_over >= EQUAL_OVER
            && self.joined_at.is_none_or(|at| now.since(at) >= MOVED_WITHIN)
    }

    /// Compares the two classes, for the names that both know. Returns the time of the next look, if any.
    fn look(
        &mut self,
        origin: &ClassProof,
        class: &ClassProof,
        meanings: &Meanings,
        settle: Duration,
        now: Time,
    ) -> Option<Time> {
        self.is_equal = false;
        let (Some(one), Some(other)) = (&origin.live.newest, &class.live.newest) else { return None };
        let is_proved = |class: &ClassProof, part: &Wanted| !class.evidence.is_restless_type(&part.0);
        let mut shared = shared(one, other);
        shared.retain(|part| is_proved(origin, part) && is_proved(class, part));
        let compared = compare(&shared, one, other);
        if compared.names.is_empty() {
            return None;
        }
        let is_restless = |key: &NameKey| origin.evidence.is_restless(key) || class.evidence.is_restless(key);
        let differs = compared.differing.iter().any(|differing| {
            let versions = differing.class.version.zip(differing.shadow.version);
            let is_same = versions.is_some_and(|(one, other)| {
                meanings.relation(&differing.key.type_url, one, other) == Relation::Same
            });
            !is_restless(&differing.key) && !is_same
        });
        let changes = (origin.live.changes, class.live.changes);
        if !differs {
            (self.is_equal, self.differs_since) = (true, None);
            // A restless name proves nothing, so its changes are none.
            let restless: BTreeSet<&NameKey> =
                origin.evidence.restless().chain(class.evidence.restless()).collect();
            let versions = restless.iter().copied().filter_map(|key| stance(one, &shared, key)?.version);
            let digest = versions.fold(compared.digest, |sum, version| sum.wrapping_sub(version.0));
            let is_later = |seen: &Equality| {
                changes.0 > seen.changes.0 && changes.1 > seen.changes.1 && digest != seen.digest
            };
            // Names that a class has come to know, or knows no more, are no change at the server.
            let is_alike = |seen: &Equality| {
                is_same_subscription(&seen.shared, &shared)
                    && seen.restless.iter().eq(restless.iter().copied())
            };
            let is_change = self.seen.as_ref().map(|seen| (is_alike(seen), is_later(seen)));
            if is_change != Some((true, false)) {
                self.equal_over += u32::from(is_change == Some((true, true)));
                let restless = restless.into_iter().cloned().collect();
                self.seen = Some(Equality { changes, shared, restless, digest });
            }
            return None;
        }
        // For a moment one of the two may only be late.
        let since = *self.differs_since.get_or_insert(now);
        if now.since(since) >= settle {
            self.begin_anew();
            return None;
        }
        Some(since + settle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::class::Published;
    use crate::proof::content::Content;
    use crate::proof::input::ClassFacts;
    use crate::proof::population::FieldPaths;
    use crate::proof::tests::bench::{at_ms, endpoints, fields, named, node};
    use sluice_engine::collection::CollectionKind;

    /// A class, and the class that its members left.
    struct Pair {
        classes: [ClassProof; 2],
        watch: Watch,
        now: Time,
    }

    impl Pair {
        fn new() -> Pair {
            let class = |id| {
                let node = node(id, &[]);
                let (rule, fields) = ("node_classes[0]".into(), fields(&node));
                let facts = ClassFacts { rule, node, fields, is_never: false, split_from: None };
                ClassProof::new(facts, &mut FieldPaths::new(1))
            };
            Pair { classes: [class("one"), class("other")], watch: Watch::default(), now: at_ms(1_000) }
        }

        /// Both classes have new content. Returns the changes without a difference.
        fn have(&mut self, contents: [Content; 2]) -> u32 {
            self.now = self.now + HOUR;
            for (class, content) in self.classes.iter_mut().zip(contents) {
                class.publish(Published { content, connection: None, is_watched: false }, self.now, MINUTE);
            }
            let [origin, class] = &self.classes;
            self.watch.look(origin, class, &Meanings::default(), MINUTE, self.now);
            self.watch.equal_over
        }

        fn both_have(&mut self, names: &[(&str, Option<u128>)]) -> u32 {
            self.have([named(&endpoints(), names), named(&endpoints(), names)])
        }
    }

    #[test]
    fn prf_31_names_that_classes_know_or_forget_are_no_change() {
        let mut pair = Pair::new();
        pair.both_have(&[("a", Some(1)), ("b", Some(1))]);
        assert_eq!(pair.both_have(&[("a", Some(1))]), 0);
        assert_eq!(pair.both_have(&[("a", Some(1)), ("c", Some(1))]), 0);
        assert_eq!(pair.both_have(&[("a", Some(2)), ("c", Some(1))]), 1);
        assert_eq!(pair.both_have(&[("a", None), ("c", Some(1))]), 2);
    }

    #[test]
    fn prf_31_a_restless_name_is_no_change() {
        let mut pair = Pair::new();
        let key = NameKey { type_url: endpoints(), kind: CollectionKind::Names, name: "restless".into() };
        let content = |version| named(&endpoints(), &[("a", Some(1)), ("restless", Some(version))]);
        pair.have([content(1), content(1)]);
        pair.classes[0].evidence.exclude(&key, pair.now);
        assert_eq!(pair.have([content(3), content(4)]), 0);
        assert_eq!(pair.have([content(5), content(6)]), 0);
        assert_eq!(pair.both_have(&[("a", Some(2)), ("restless", Some(7))]), 1);
    }

    #[test]
    fn prf_31_nothing_is_known_about_the_time_without_a_class() {
        let class_of = |name: &str| ClassKey::from(name);
        for away in ["parent", "child"] {
            let mut splits = Splits::default();
            let (age, holds) = (HOUR, HOUR);
            let (class, parent, member_id) = (class_of("child"), class_of("parent"), "n".into());
            let restored = RestoredSplit { class, parent, type_url: endpoints(), member_id, age, holds };
            splits.restore(restored, at_ms(0));
            let equal_over = |splits: &Splits| splits.made[0].children["child"].equal_over;
            splits.made[0].children.get_mut("child").unwrap().equal_over = 1;
            splits.class_ended(&class_of("another"));
            assert_eq!(equal_over(&splits), 1);
            splits.class_ended(&class_of(away));
            assert_eq!(equal_over(&splits), 0, "{away} was away");
        }
    }
}
