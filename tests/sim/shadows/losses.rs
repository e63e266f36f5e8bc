//! The invariants of splits: no wrong join (I36), wrong content is bounded (I37), walls (I40), quiet (I41), and held
//! pushes (I42).

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_proof::proof::Split;

use super::super::schedule::SECOND;
use super::super::world::Invariant;
use super::content::type_of;
use super::judge::is_never;
use super::plane::{NAMES, Node, Rule, Test, Twins};
use super::splits::{Learned, Valued};
use super::{Shadows, Stated};

/// A rule by a covered value is undone within this time after its push.
const UNDONE_WITHIN: u64 = 90 * SECOND;
/// The same split is not told again within this time.
const TOLD_AGAIN: u64 = 590 * SECOND;
/// A difference for so long is seen, whatever the lag of the streams.
const SEEN_AFTER: u64 = 60 * SECOND;
/// A split holds for so long at least.
const HOLDS: Duration = Duration::from_secs(3_600);

/// A rule by a covered value, and the members that it concerns.
#[derive(Clone, Debug)]
struct Undone {
    members: Vec<usize>,
    name: usize,
    due: u64,
}

/// What the judge of splits remembers.
#[derive(Default)]
pub struct Losses {
    undone: Vec<Undone>,
    /// By class and values.
    told_at: BTreeMap<(usize, Vec<Valued>), u64>,
    /// The least time for which the next split of a class holds.
    holds: BTreeMap<usize, Duration>,
    /// Splits without room, since when.
    pub without_room: BTreeMap<usize, u64>,
    /// Nothing may be split any more.
    pub is_quiet: bool,
}

impl Losses {
    /// Another event makes the outcome of the rules before uncertain.
    pub fn forget(&mut self) {
        self.undone.clear();
    }

    /// The relay remembers the splits, and nothing else.
    pub fn restart(&mut self) {
        self.undone.clear();
        self.told_at.clear();
        self.holds.clear();
    }
}

impl Shadows {
    /// The content that the members of a class are given under a name, if the class has a word.
    fn given(&self, class: usize, name: usize) -> Option<Stated> {
        let stream = self.classes.get(&class).and_then(|class| self.streams.get(&class.stream))?;
        let (names, is_whole) = stream.last?;
        is_whole.then_some(names[name]).filter(|stated| *stated != Stated::Unknown)
    }

    /// Whether the class gives the node the content of the function.
    fn is_right(&self, node: Node, class: usize, name: usize) -> bool {
        let state = self.plane.state();
        match self.given(class, name) {
            None => true,
            Some(_) if state.stamped[name] => true,
            Some(Stated::Present(content, _)) => state.content(node, name) == Some(content),
            Some(Stated::Absent | Stated::Unknown) => state.content(node, name).is_none(),
        }
    }

    fn asks_for(&self, number: usize) -> impl Iterator<Item = usize> + use<> {
        let from = self.wants_from.get(&number).copied().unwrap_or(0);
        (0..NAMES).filter(move |name| *name < super::MEMBERS || *name >= from)
    }

    pub fn is_askable(&self, node: Node) -> bool {
        !is_never(node) && node.number % 4 != self.plane.refused
    }

    /// Whether nobody may ask as the node: a class shows the node to the server. The relay does not know whether the
    /// server bears two streams of one id, and has no other member to find out by.
    pub fn is_hidden(&self, node: Node) -> bool {
        let is_shown = |node: Node| self.classes.values().any(|class| class.node == node);
        let tells = |number: &usize| {
            let (other, class) = (self.nodes[*number], self.homes.get(number));
            let is_open =
                class.and_then(|class| self.classes.get(class)).is_some_and(|class| !is_never(class.node));
            is_open && self.is_askable(other) && !is_shown(other)
        };
        !self.judge.knows_twins && is_shown(node) && !self.members.keys().any(tells)
    }

    /// I40, I41, I42: a split is told.
    pub fn judge_split(&mut self, parent: usize, split: &Split) {
        let now = self.scheduler.now;
        if self.divisions.held.contains(&parent) {
            self.fail(Invariant::HeldPushes, || format!("class {parent} splits under a held push"));
        }
        if self.divisions.barred.get(&parent).is_some_and(|until| now < *until) {
            self.fail(Invariant::Quiet, || format!("class {parent} splits again, after an operator's join"));
        }
        if self.judge.losses.is_quiet && !self.judge.losses.without_room.contains_key(&parent) {
            self.fail(Invariant::Quiet, || format!("class {parent} splits, hours after the last change"));
        }
        let least = self.judge.losses.holds.get(&parent).copied().unwrap_or(HOLDS);
        if split.holds < least {
            self.fail(Invariant::Quiet, || {
                format!("a split holds for {:?} instead of {least:?}", split.holds)
            });
        }
        for tuple in &split.values {
            let values: Vec<Valued> = split.fields.iter().cloned().zip(tuple.iter().cloned()).collect();
            let learned = Learned::of_values(parent, values.iter().cloned().collect());
            let is_here =
                |number: &usize| self.homes.get(number) == Some(&parent) && learned.has(self.nodes[*number]);
            if !self.members.keys().any(is_here) {
                self.fail(Invariant::Walls, || format!("nobody in class {parent} has {values:?}"));
            }
            let before = self.judge.losses.told_at.insert((parent, values), now);
            if before.is_some_and(|before| now - before < TOLD_AGAIN) && !self.has_no_room(parent) {
                self.fail(Invariant::Quiet, || format!("the same split of class {parent} is told again"));
            }
        }
    }

    fn has_no_room(&self, class: usize) -> bool {
        self.judge.losses.without_room.contains_key(&class)
    }

    /// I36, I40, I41, I42: the members of a class return.
    pub fn judge_join(&mut self, child: usize) {
        let learned = self.divisions.learned(child).filter(|learned| !learned.is_operators).cloned();
        let Some(learned) = learned else {
            return self.fail(Invariant::Walls, || {
                format!("class {child} joins, and no split of the machine made it")
            });
        };
        let (parent, now) = (learned.parent, self.scheduler.now);
        for class in [child, parent] {
            if self.divisions.held.contains(&class) {
                self.fail(Invariant::HeldPushes, || {
                    format!("class {child} joins, and class {class} is held")
                });
            }
        }
        let age = Duration::from_micros(now - learned.made_at);
        if age < learned.holds {
            self.fail(Invariant::Quiet, || format!("class {child} joins after {age:?}, within the hold"));
        }
        self.judge.losses.holds.insert(parent, (learned.holds * 2).min(HOLDS * 24));
        let nodes = [child, parent].map(|class| self.classes.get(&class).map(|class| class.node));
        let [Some(one), Some(other)] = nodes else { return };
        let changes = self.changes_without_difference(one, other, learned.made_at);
        if changes < 2 {
            self.fail(Invariant::WrongMerge, || {
                format!("class {child} joins class {parent} after {changes} changes without a difference")
            });
        }
    }

    /// The changes of the function for two nodes since it told them apart, or since a time.
    fn changes_without_difference(&self, one: Node, other: Node, since: u64) -> usize {
        let states = &self.plane.states;
        let is_proved = |name: &usize| !self.plane.state().stamped[*name];
        let names: Vec<usize> = (0..NAMES).filter(is_proved).collect();
        let mut changes = 0;
        for number in (1..states.len()).rev() {
            let (at, state) = &states[number];
            let until = states.get(number + 1).map_or(self.scheduler.now, |next| next.0);
            if *at < since {
                break;
            }
            let differs = names.iter().any(|name| state.tells_apart(one, other, *name));
            if differs && until - at > SEEN_AFTER {
                break;
            }
            let before = &states[number - 1].1;
            let is_change = names.iter().any(|name| state.content(one, *name) != before.content(one, *name));
            changes += usize::from(is_change);
        }
        changes
    }

    /// I40: a member moves within the classes of its rule. I37: nobody is moved to the content of a neighbour.
    pub fn judge_move(&mut self, number: usize, from: usize, to: usize) {
        let node = self.nodes[number];
        let roots = [from, to].map(|class| self.root_of(class));
        if roots != [number % super::CLASSES; 2] {
            self.fail(Invariant::Walls, || format!("node {number} moves from class {from} to class {to}"));
        }
        let changed_at = self.plane.states.last().map_or(0, |state| state.0);
        let is_at_rest = self.scheduler.now > changed_at + SEEN_AFTER;
        // An operator's split or join moves whom the operator wants; a join of the machine is judged as I36.
        let is_split = self.divisions.is_part(to, from);
        let Some(learned) = self.divisions.learned(to).filter(|_| is_split) else { return };
        let is_noticed = self.classes.get(&to).is_some_and(|class| self.is_askable(class.node));
        if is_at_rest && is_noticed && self.is_askable(node) {
            // In other names the representative may have an answer of its own that nobody has noticed, and one that
            // cannot be asked in any name.
            let mut names = self.asks_for(number).filter(|name| learned.names.contains(name));
            let loss = |name: &usize| self.is_right(node, from, *name) && !self.is_right(node, to, *name);
            if let Some(name) = names.find(loss) {
                self.fail(Invariant::BoundedLoss, || {
                    format!("node {number} is moved to class {to}, where n{name} is that of a neighbour")
                });
            }
        }
    }

    /// I37: a rule comes, which is certain to be noticed in the class.
    pub fn expect_undone(&mut self, class: usize, rule: Rule) {
        let Test::Label(..) = rule.test else { return };
        let members: Vec<usize> = self
            .members
            .keys()
            .copied()
            .filter(|number| {
                let node = self.nodes[*number];
                self.class_of(node) == class
                    && rule.test.holds(node)
                    && self.asks_for(*number).any(|name| name == rule.name)
            })
            .collect();
        let askable = members.iter().filter(|number| self.is_askable(self.nodes[**number])).count();
        let report = self.proof.report(self.time());
        let is_at_rest = report.divergences.is_empty()
            && report.breaker.is_none()
            && self.divisions.held.is_empty()
            && self.divisions.barred.values().all(|until| *until <= self.scheduler.now)
            && self.classes.len() < 6
            && !self.plane.is_random;
        if self.is_splitting() && is_at_rest && askable >= 3 {
            let due = self.scheduler.now + UNDONE_WITHIN;
            self.judge.losses.undone.push(Undone { members, name: rule.name, due });
        }
    }

    /// I37: the rules that are due are undone.
    pub fn judge_undone(&mut self) {
        let now = self.scheduler.now;
        if self.judge.losses.undone.iter().all(|undone| undone.due > now) {
            return;
        }
        let due: Vec<Undone> = self.judge.losses.undone.extract_if(.., |undone| undone.due <= now).collect();
        for Undone { members, name, .. } in due {
            let present = members.iter().copied().filter(|number| self.members.contains_key(number));
            let wrong = present.filter(|number| {
                let node = self.nodes[*number];
                !self.is_right(node, self.class_of(node), name)
            });
            if let Some(number) = wrong.into_iter().next() {
                self.fail(Invariant::BoundedLoss, || {
                    format!(
                        "node {number} has n{name} of its neighbours {} s after the push",
                        UNDONE_WITHIN / SECOND
                    )
                });
            }
        }
    }

    /// I37: nothing has changed for hours, and everybody has the content of the function.
    pub fn judge_losses(&mut self, class: usize) {
        let is_excused = self.divisions.held.contains(&class)
            || self.has_no_room(class)
            || self
                .divisions
                .barred
                .get(&class)
                .is_some_and(|until| *until + 3_600 * SECOND > self.scheduler.now);
        if !self.is_splitting() || is_excused || self.plane.twins != Twins::Borne {
            return;
        }
        let members: Vec<usize> = self.members.keys().copied().collect();
        for number in members {
            let node = self.nodes[number];
            if self.class_of(node) != class || !self.is_askable(node) || self.is_hidden(node) {
                continue;
            }
            if let Some(name) = self.asks_for(number).find(|name| !self.is_right(node, class, *name)) {
                let short = type_of(name).short().to_owned();
                self.fail(Invariant::BoundedLoss, || {
                    format!("node {number} of class {class} has {short} n{name} of its neighbours for ever")
                });
            }
        }
    }
}
