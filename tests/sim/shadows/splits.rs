//! The driver's work with splits: learned classes, moves of members, and the acts of operators.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sluice_proof::proof::{ClassFacts, ClassKey, Proof, RestoredSplit, Split};
use sluice_xds::TypeUrl;

use super::super::world::Invariant;
use super::content::{clusters, fields, number_of, shown};
use super::judge::is_never;
use super::plane::{LABELS, NAMES, Node};
use super::{CLASSES, Class, Job, MILLI, SECOND, Shadows, key};

/// Schedules with splits that violate an invariant (README.md).
pub const OPEN: &[u64] = &[];

/// Schedules with splits that once violated an invariant.
pub const MENDED: &[u64] = &[
    // Both slots have samples without an answer when a witness differs.
    4503599628300697,
    4503599628354524,
    // The stream of a shadow ends before its first message, and drew from the dice of the clients.
    4503599628138205,
    // A sample that is equal in one type says nothing about it, and a split by another type takes both members along.
    4503599628420978,
    // Two rules whose answers are encoded at random count as one.
    4503599628420263,
    4503599628425609,
    // What was known before a held push is acted upon after it, and the member that is most like the class is not asked.
    4503599628420897,
    // All members that are known to differ share a value, which is a part of the reason.
    4503599628420526,
    // A split does not wait for an ordinary sample that has said nothing so far.
    4503599628419628,
    // The answer of a member whose sample closed before a wait counts after it.
    4503599628420287,
    // A sample that ended without an answer is not taken again.
    4503599628422733,
    // Members leave without the fields by which others have just left, together with one that cannot be asked.
    4503599628419260,
    // A sample begins in the slot that a witness with a difference waits for.
    4503599628420482,
    // A sample that has said enough for a split keeps its slot.
    4503599628426070,
    // An operator's class has the values of a split of the machine, and joins.
    4503599628424165,
    // A member that does not ask for the name in which others differ counts as equal to the class.
    4503599628427120,
    // Members leave with one that has the values of a member that has left alone.
    4503599628433924,
    // Members leave by one field while an answer in another type is to be had again.
    4503599628438195,
    4503599628441661,
    // A replica is late, and equal content is encoded at random.
    4503599628435241,
    4503599628445675,
    4503599628448578,
    // The class of a split shows a member that cannot be asked: nobody notices an answer of its own.
    4503599628428325,
    // The only member that can be asked is one whose node another class shows, and the relay has restarted.
    4503599628449276,
    // A member that cannot be asked has all that those who differ have in common.
    4503599628450511,
    // A glob whose server never answers: listeners wait for its members for a second, and no longer.
    2251799813685370,
];

/// Classes for which the relay has room.
const CLASSES_MAX: usize = 10;
/// A member waits for the source of the next class.
const LOOK_AGAIN: u64 = 200 * MILLI;
/// The relay looks at its sources once in this time.
const LOOK: u64 = SECOND;
/// A refusal by the server takes so long at most.
const ROUND_TRIP: u64 = 301 * MILLI;

/// The number of a class.
pub fn number_of_class(key: &ClassKey) -> usize {
    key.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(usize::MAX)
}

/// A path with a value; `None`: the node lacks the field.
pub type Valued = (Arc<str>, Option<Arc<str>>);

/// A class that was split off.
#[derive(Clone, Debug)]
pub struct Learned {
    pub parent: usize,
    pub child: usize,
    pub values: BTreeSet<Valued>,
    pub made_at: u64,
    pub holds: Duration,
    pub is_operators: bool,
    /// The names in which members of the class were known to differ.
    pub names: BTreeSet<usize>,
    type_url: TypeUrl,
    member_id: Arc<str>,
}

impl Learned {
    /// As a split tells the values.
    pub fn of_values(parent: usize, values: BTreeSet<Valued>) -> Learned {
        Learned {
            parent,
            child: parent,
            values,
            made_at: 0,
            holds: Duration::ZERO,
            is_operators: true,
            names: BTreeSet::new(),
            type_url: clusters(),
            member_id: "".into(),
        }
    }

    /// Smaller for a narrower split: by the id, and by more fields.
    fn breadth(&self) -> (bool, std::cmp::Reverse<usize>) {
        let is_by_id = self.values.iter().all(|value| *value.0 == *"id");
        (!is_by_id, std::cmp::Reverse(self.values.len()))
    }

    pub fn has(&self, node: Node) -> bool {
        let stated = fields(node);
        let value = |path: &Arc<str>| {
            stated.0.iter().find(|field| field.path == *path).map(|field| field.value.clone())
        };
        self.values.iter().all(|(path, expected)| value(path) == *expected)
    }
}

/// The learned classes, and what holds them.
#[derive(Clone, Debug, Default)]
pub struct Divisions {
    pub learned: Vec<Learned>,
    pub held: BTreeSet<usize>,
    /// An operator joined classes of the class, until.
    pub barred: BTreeMap<usize, u64>,
    last: usize,
}

impl Divisions {
    /// The class of a node by the rules, and by all that was learned since.
    pub fn class_of(&self, node: Node) -> usize {
        let mut class = node.number % CLASSES;
        let leaving = |class| self.learned.iter().filter(move |one| one.parent == class && one.has(node));
        // As in the driver, the narrowest split takes the node.
        while let Some(learned) = leaving(class).min_by_key(|one| one.breadth()) {
            class = learned.child;
        }
        class
    }

    pub fn learned(&self, child: usize) -> Option<&Learned> {
        self.learned.iter().find(|learned| learned.child == child)
    }

    fn next_class(&mut self) -> usize {
        self.last = self.last.max(CLASSES - 1) + 1;
        self.last
    }

    /// The class goes, with the classes that came from it.
    fn forget(&mut self, child: usize) {
        self.learned.retain(|learned| learned.child != child);
        let parts = self.learned.iter().filter(|learned| learned.parent == child);
        for part in parts.map(|learned| learned.child).collect::<Vec<_>>() {
            self.forget(part);
        }
    }

    /// Whether splits of the machine alone make the class from the other.
    pub fn is_part(&self, class: usize, of: usize) -> bool {
        let made = self.learned(class).filter(|learned| !learned.is_operators);
        made.is_some_and(|made| made.parent == of || self.is_part(made.parent, of))
    }
}

impl Shadows {
    /// The class of a member now; of others, the class that they would come to.
    pub fn class_of(&self, node: Node) -> usize {
        self.homes.get(&node.number).copied().unwrap_or_else(|| self.divisions.class_of(node))
    }

    /// The class of the rules that a class comes from.
    pub fn root_of(&self, class: usize) -> usize {
        self.roots.get(&class).copied().unwrap_or(class)
    }

    pub fn facts(&self, class: usize, node: Node) -> ClassFacts {
        let parent = self.divisions.learned(class).map(|learned| learned.parent);
        ClassFacts {
            rule: "rule".into(),
            node: shown(node),
            fields: fields(node),
            is_never: is_never(node),
            split_from: parent.map(key),
        }
    }

    /// The class begins with its first member. The machine hears of a class when a client is in it.
    pub fn begin_class(&mut self, class: usize, node: Node) {
        if self.classes.contains_key(&class) {
            return;
        }
        let replica = self.rng.below(2) as usize;
        let stream = self.begin_stream(None, class, node, replica);
        self.roots.insert(class, node.number % CLASSES);
        let unknown = [false; NAMES];
        self.classes.insert(class, Class { node, stream, unknown, is_told: false, heard_until: 0 });
    }

    /// A client is in the class.
    pub fn tell_class(&mut self, class: usize) {
        let Some(begun) = self.classes.get_mut(&class).filter(|class| !class.is_told) else { return };
        begun.is_told = true;
        let (node, stream) = (begun.node, begun.stream);
        let (facts, now) = (self.facts(class, node), self.time());
        self.proof.class(&key(class), facts, now);
        self.leave_to_operator(class);
        if self.divisions.held.contains(&class) {
            self.proof.hold(&key(class), true, now);
        }
        self.drain();
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.last = None;
        }
        self.publish(stream);
    }

    fn leave_to_operator(&mut self, class: usize) {
        let is_operators = self.divisions.learned(class).is_some_and(|learned| learned.is_operators);
        let now = self.time();
        self.proof.leave_to_operator(&key(class), is_operators, now);
    }

    /// The relay looks at its sources once a second: the machine hears which node a new class shows.
    pub fn show(&mut self, class: usize) {
        let Some(node) = self.classes.get(&class).map(|class| class.node) else { return };
        let now = self.time();
        self.proof.shows(&key(class), &shown(node), now);
        self.drain();
    }

    /// The server ended the stream of a class because of a shadow of the same node. Until the machine has
    /// heard of the class, and as long as its word takes, this is nobody's fault. The source tries again.
    pub fn lose_class_stream(&mut self, class: usize) {
        let heard_until = self.classes.get(&class).map_or(0, |class| class.heard_until);
        if self.scheduler.now > heard_until {
            return self
                .fail(Invariant::ShadowBounds, || format!("a shadow ended the stream of class {class}"));
        }
        self.after(SECOND, Job::Reopen(class));
    }

    pub fn reopen(&mut self, class: usize) {
        let Some(node) = self.classes.get(&class).map(|class| class.node) else { return };
        let replica = self.rng.below(2) as usize;
        let stream = self.begin_stream(None, class, node, replica);
        if let Some(class) = self.classes.get_mut(&class) {
            class.stream = stream;
        }
    }

    pub fn split(&mut self, split: &Split) {
        self.tell(|| format!("split: {split:?}"));
        let parent = number_of_class(&split.class);
        self.judge_split(parent, split);
        let now = self.time();
        if self.classes.len() + split.values.len() > CLASSES_MAX {
            self.proof.split_refused(&split.class, "no room".into(), now);
            let now = self.scheduler.now;
            self.judge.losses.without_room.insert(parent, now);
            return;
        }
        let report = self.proof.report(now);
        let known = report.divergences.iter().filter(|divergence| divergence.class == split.class);
        let names: BTreeSet<usize> =
            known.flat_map(|divergence| &divergence.names).map(|name| number_of(&name.name)).collect();
        for tuple in &split.values {
            let values: BTreeSet<Valued> = split.fields.iter().cloned().zip(tuple.iter().cloned()).collect();
            let is_there = |one: &Learned| one.parent == parent && one.values == values;
            if self.divisions.learned.iter().any(is_there) {
                continue;
            }
            let learned = Learned {
                parent,
                child: self.divisions.next_class(),
                values,
                made_at: self.scheduler.now,
                holds: split.holds,
                is_operators: false,
                names: names.clone(),
                type_url: split.type_url.clone(),
                member_id: split.member_id.clone(),
            };
            self.divisions.learned.push(learned);
        }
        self.walk();
    }

    /// The members return to the class that they came from.
    pub fn join(&mut self, class: &ClassKey) {
        let child = number_of_class(class);
        self.tell(|| format!("join: class {child}"));
        self.judge_join(child);
        self.divisions.forget(child);
        self.walk();
    }

    /// Moves all members to the classes where they belong.
    fn walk(&mut self) {
        let moved =
            self.members.keys().copied().filter(|number| {
                self.homes.get(number) != Some(&self.divisions.class_of(self.nodes[*number]))
            });
        for number in moved.collect::<Vec<_>>() {
            let within = 1 + self.rng.below(SECOND);
            self.after(within, Job::Move(number));
        }
    }

    /// A member moves once the source of the next class knows everything.
    pub fn go_over(&mut self, number: usize) {
        let node = self.nodes[number];
        let (Some(id), Some(from)) = (self.members.get(&number).copied(), self.homes.get(&number).copied())
        else {
            return;
        };
        let to = self.divisions.class_of(node);
        if from == to {
            return;
        }
        if !self.classes.contains_key(&to) {
            self.begin_class(to, node);
            let within = self.rng.below(LOOK);
            self.after(within, Job::Show(to));
            let heard_until = self.scheduler.now + LOOK + ROUND_TRIP;
            self.classes.get_mut(&to).into_iter().for_each(|class| class.heard_until = heard_until);
        }
        let stream = self.classes.get(&to).and_then(|class| self.streams.get(&class.stream));
        if !stream.is_some_and(|stream| stream.is_whole && stream.seen.is_some()) {
            return self.after(LOOK_AGAIN, Job::Move(number));
        }
        self.tell(|| format!("node {number} moves from class {from} to class {to}"));
        self.judge_move(number, from, to);
        self.tell_class(to);
        let now = self.time();
        self.proof.member_left(&key(from), id, now);
        self.drain();
        self.homes.insert(number, to);
        self.note_home(number, to);
        self.state_member(number);
        self.end_empty(from);
    }

    /// Acts of operators, plans of rollouts, and restarts of the relay.
    pub fn act_on_splits(&mut self) {
        let classes: Vec<usize> = self.classes.keys().copied().collect();
        let Some(class) = classes.get(self.rng.below(classes.len().max(1) as u64) as usize).copied() else {
            return;
        };
        let now = self.time();
        match self.rng.below(10) {
            0..5 => {
                self.tell(|| format!("a push is held in class {class}"));
                self.judge.forget();
                self.divisions.held.insert(class);
                self.proof.hold(&key(class), true, now);
                let until = self.rng.below(5_400 * SECOND);
                self.after(until, Job::Unhold(class));
            }
            5 => {
                let Some(node) = self.classes.get(&class).map(|class| class.node) else { return };
                let label = self.rng.below(3) as usize;
                let values = (
                    format!("metadata.{}", LABELS[label]).into(),
                    Some(node.labels[label].to_string().into()),
                );
                self.tell(|| format!("an operator splits class {class} by {values:?}"));
                self.judge.forget();
                let child = self.divisions.next_class();
                let made = Learned::of_values(class, [values].into());
                self.divisions.learned.push(Learned { child, ..made });
                self.walk();
            }
            6 => {
                let Some(parent) = self.divisions.learned(class).map(|learned| learned.parent) else {
                    return;
                };
                self.tell(|| format!("an operator joins class {class} and class {parent}"));
                self.judge.forget();
                self.divisions.forget(class);
                self.divisions.barred.insert(parent, self.scheduler.now + 3_600 * SECOND);
                self.proof.joined(&key(parent), now);
                self.walk();
            }
            _ => self.restart(),
        }
        self.drain();
    }

    pub fn unhold(&mut self, class: usize) {
        self.tell(|| format!("the push in class {class} is through"));
        self.divisions.held.remove(&class);
        let now = self.time();
        self.proof.hold(&key(class), false, now);
        self.drain();
    }

    /// Another process begins, with the splits of the former.
    fn restart(&mut self) {
        self.tell(|| "the relay restarts".to_owned());
        self.judge.restarted();
        self.divisions.barred.clear();
        self.streams.retain(|_, stream| stream.shadow.is_none());
        let (seed, now) = (self.rng.next(), self.time());
        self.proof = Proof::new(self.settings, seed);
        self.proof.surroundings(self.around.clone(), now);
        for learned in self.divisions.learned.clone().into_iter().filter(|learned| !learned.is_operators) {
            let split = RestoredSplit {
                class: key(learned.child),
                parent: key(learned.parent),
                type_url: learned.type_url,
                member_id: learned.member_id,
                age: Duration::from_micros(self.scheduler.now - learned.made_at),
                holds: learned.holds,
            };
            self.proof.restore_split(split, now);
        }
        let classes = self.classes.iter().map(|class| (*class.0, class.1.node, class.1.is_told));
        for (class, node, is_told) in classes.collect::<Vec<_>>() {
            if !is_told {
                self.proof.shows(&key(class), &shown(node), now);
                continue;
            }
            let facts = self.facts(class, node);
            self.proof.class(&key(class), facts, now);
            self.leave_to_operator(class);
            self.proof.hold(&key(class), self.divisions.held.contains(&class), now);
            let stream = self.classes.get(&class).map_or(0, |class| class.stream);
            if let Some(stream) = self.streams.get_mut(&stream) {
                stream.last = None;
            }
            self.publish(stream);
        }
        for number in self.members.keys().copied().collect::<Vec<_>>() {
            self.state_member(number);
        }
    }
}
