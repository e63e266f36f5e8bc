//! The invariants of the proof: no false alarm (I34), no missed rule (I35), and the bounds (I39).

use std::collections::{BTreeSet, VecDeque};

use sluice_proof::proof::{ClassState, Happening, MemberId, OpenShadow, ShadowKind, Surroundings};
use sluice_xds::{ResourceName, TypeUrl};

use super::super::schedule::SECOND;
use super::super::world::Invariant;
use super::content::{number_of, type_of};
use super::losses::Losses;
use super::plane::{MEMBERS, NAMES, Node, Rule, Twins};
use super::splits::number_of_class;
use super::{CLASSES, Shadows, Stream, key};

/// A difference is confirmed within this time after the server has told the nodes apart: window, `settle`, and the longest
/// confirmation.
const CONFIRMED_WITHIN: u64 = 200 * SECOND;
/// A rule for a covered value is told within this time. Several at once wait for each other, and all of them for samples
/// that the server does not answer: these give their slots up after 30 s.
const TOLD_WITHIN: u64 = 45 * SECOND;
/// The window, and some time until a push has arrived.
const LATELY: u64 = 70 * SECOND;
/// Witnesses of so small a fleet.
const WITNESSES_MAX: usize = 4;

/// Nodes for which a connection has a meaning to the server.
pub fn is_never(node: Node) -> bool {
    node.number % 9 == 7
}

/// A rule that a witness has to notice.
#[derive(Clone, Debug)]
struct Expected {
    class: usize,
    witness: u64,
    name: usize,
    due: u64,
}

#[derive(Default)]
pub struct Judge {
    /// Begins of samples in the last minute.
    begins: VecDeque<u64>,
    expected: Vec<Expected>,
    is_disturbed: bool,
    /// Orders are not bound by the minute.
    has_orders: bool,
    /// A control began: the relay knows that the server bears two streams of one id.
    pub knows_twins: bool,
    pub losses: Losses,
}

impl Judge {
    /// No shadow may begin now.
    pub fn is_disturbed(&mut self, around: &Surroundings, _: u64) {
        self.is_disturbed =
            around.is_unwell || around.is_leaving || around.memory_percent > 80 || around.waiting > 10;
        self.forget();
    }

    pub fn ordered_at(&mut self, _: u64) {
        self.has_orders = true;
    }

    /// Another push, or another disturbance, makes the outcome of the rules before uncertain.
    pub fn forget(&mut self) {
        self.expected.clear();
        self.losses.forget();
    }

    /// Another process knows the splits, and nothing else.
    pub fn restarted(&mut self) {
        self.expected.clear();
        self.begins.clear();
        self.knows_twins = false;
        self.losses.restart();
    }
}

impl Shadows {
    fn count(&self, kinds: &[ShadowKind]) -> usize {
        self.streams.values().filter(|stream| stream.shadow.is_some() && kinds.contains(&stream.kind)).count()
    }

    /// I39: a shadow begins.
    pub fn judge_open(&mut self, open: &OpenShadow, class: usize, node: Node) {
        let (now, minute) = (self.now, 60 * SECOND);
        if is_never(node) {
            self.fail(Invariant::ShadowBounds, || format!("node {} is shown, and never may be", node.number));
        }
        if self.judge.is_disturbed {
            self.fail(Invariant::ShadowBounds, || format!("{:?} begins in a time of want", open.kind));
        }
        if matches!(open.kind, ShadowKind::Control | ShadowKind::Replica) && self.plane.twins != Twins::Borne
        {
            self.fail(Invariant::ShadowBounds, || {
                format!("a control of class {class} at a server of one stream per id")
            });
        }
        self.judge.knows_twins |= open.kind == ShadowKind::Control;
        let gone = open.member.is_some_and(|member| !self.members.values().any(|other| *other == member));
        if gone {
            self.fail(Invariant::ShadowBounds, || format!("node {} has left, and is shown", node.number));
        }
        if self.judge.has_orders {
            return;
        }
        let streams = self.settings.pace.streams as usize;
        let samples = self.count(&[ShadowKind::Sample, ShadowKind::Replica]);
        let confirming = self.count(&[ShadowKind::Second, ShadowKind::Control]);
        match open.kind {
            ShadowKind::Sample | ShadowKind::Replica => {
                while self.judge.begins.front().is_some_and(|begin| begin + minute <= now) {
                    self.judge.begins.pop_front();
                }
                self.judge.begins.push_back(now);
                let begins = self.judge.begins.len();
                // Samples that explain a divergence have a bound of the same size of their own.
                let kinds = if self.is_splitting() { 2 } else { 1 };
                if begins > kinds * self.settings.pace.per_minute as usize {
                    self.fail(Invariant::ShadowBounds, || format!("{begins} samples in a minute"));
                }
                if samples >= streams {
                    self.fail(Invariant::ShadowBounds, || {
                        format!("{samples} samples are open, and another begins")
                    });
                }
            }
            ShadowKind::Second | ShadowKind::Control | ShadowKind::Witness => {
                if confirming >= 2 * streams {
                    self.fail(Invariant::ShadowBounds, || {
                        format!("{confirming} shadows confirm, and another begins")
                    });
                }
            }
        }
    }

    /// I39: the shadows of a member that has left are closed.
    pub fn judge_leaver(&mut self, id: MemberId, class: usize) {
        self.judge.forget();
        let is_left = self.streams.values().any(|open| open.member == Some(id) && open.class == class);
        if is_left {
            self.fail(Invariant::ShadowBounds, || format!("a shadow outlives its member of class {class}"));
        }
    }

    /// I34: every alarm has a reason.
    pub fn judge_happening(&mut self, happening: &Happening) {
        match happening {
            Happening::Restless { names, .. } => {
                for name in names.iter().map(number_of) {
                    if !self.plane.state().stamped[name] {
                        self.fail(Invariant::FalseAlarm, || format!("n{name} is restless, and has no stamp"));
                    }
                }
            }
            Happening::ReplicasDisagree { names, .. } if self.plane.replica_lag == [0, 0] => {
                self.fail(Invariant::FalseAlarm, || format!("replicas disagree about {names:?}"));
            }
            Happening::Diverged(divergence) => {
                let names: Vec<ResourceName> =
                    divergence.names.iter().map(|name| name.name.clone()).collect();
                let member = divergence.member_id.trim_start_matches("node-").parse::<usize>();
                let from = self.now.saturating_sub(CONFIRMED_WITHIN);
                let class = number_of_class(&divergence.class);
                let Some(shown) = self.classes.get(&class).map(|class| class.node) else { return };
                let root = self.root_of(class);
                for name in names.iter().map(number_of) {
                    // Another member may be the one that differs in this name.
                    let members = self.nodes.iter().copied().filter(|node| node.number % CLASSES == root);
                    let mut others = members.filter(|node| *node != shown);
                    let is_told = others.any(|node| {
                        self.plane.told_apart(shown, node, name, from.min(self.since(divergence)))
                    });
                    if !is_told || self.plane.state().stamped[name] {
                        self.fail(Invariant::FalseAlarm, || {
                            format!("n{name} differs at node {member:?}: nothing tells it apart")
                        });
                    }
                }
            }
            _ => {}
        }
    }

    fn since(&self, divergence: &sluice_proof::proof::Divergence) -> u64 {
        self.relative(divergence.since).saturating_sub(CONFIRMED_WITHIN)
    }

    /// A rule comes. The witnesses that hold its value have to notice, if nothing else happens.
    pub fn expect_rule(&mut self, rule: Rule) {
        self.judge.forget();
        let (state, plane) = (self.plane.states.len() - 1, &self.plane);
        let mut next = plane.state().clone();
        next.rules.push(rule);
        let is_sure = plane.twins == Twins::Borne
            && plane.refused == 4
            && plane.replica_lag == [0, 0]
            && !self.judge.is_disturbed
            && !next.stamped[rule.name];
        let is_here = |stream: &Stream| stream.seen == Some(state) && stream.lag < SECOND / 10;
        let due = self.now + TOLD_WITHIN;
        let mut expected = Vec::new();
        for (number, stream) in &self.streams {
            let Some(class) = self.classes.get(&stream.class) else { continue };
            let is_concerned = stream.kind == ShadowKind::Witness
                && is_here(stream)
                && self.streams.get(&class.stream).is_some_and(is_here)
                && !class.unknown.iter().any(|unknown| *unknown)
                && rule.name != MEMBERS
                && !rule.test.holds(class.node)
                && !is_never(class.node)
                && (0..NAMES).all(|name| !plane.state().tells_apart(stream.node, class.node, name))
                && next.tells_apart(stream.node, class.node, rule.name)
                // Content that the class had lately counts as lag.
                && !self.had_lately(class.node, rule.name, next.content(stream.node, rule.name));
            if is_sure && is_concerned {
                expected.push(Expected { class: stream.class, witness: *number, name: rule.name, due });
            }
        }
        let classes: BTreeSet<usize> = expected.iter().map(|expected| expected.class).collect();
        self.judge.expected.extend(expected);
        classes.into_iter().for_each(|class| self.expect_undone(class, rule));
    }

    fn had_lately(&self, shown: Node, name: usize, content: Option<u64>) -> bool {
        let from = self.plane.state_at(self.now.saturating_sub(LATELY));
        self.plane.states[from..].iter().any(|state| state.1.content(shown, name) == content)
    }

    /// I35: the rules that are due have a divergence. I39: the number of witnesses.
    pub fn judge_now(&mut self) {
        let witnesses = self.count(&[ShadowKind::Witness]);
        if witnesses > WITNESSES_MAX {
            self.fail(Invariant::ShadowBounds, || format!("{witnesses} witnesses"));
        }
        self.judge_undone();
        let now = self.now;
        if self.judge.expected.iter().all(|expected| expected.due > now) {
            return;
        }
        let due: Vec<Expected> = self.judge.expected.extract_if(.., |expected| expected.due <= now).collect();
        for Expected { class, witness, name, .. } in due {
            if self.streams.contains_key(&witness) && !self.has_divergence(class, &type_of(name)) {
                self.fail(Invariant::MissedRule, || {
                    format!("a rule for n{name} is not told in class {class}")
                });
            }
        }
    }

    fn has_divergence(&self, class: usize, type_url: &TypeUrl) -> bool {
        let report = self.proof.report(self.time());
        report
            .divergences
            .iter()
            .any(|divergence| divergence.class == key(class) && divergence.type_url == *type_url)
    }

    /// The types of a class in which a member differs from the class, at rest.
    fn differing(&self, class: usize, is_asked: impl Fn(Node) -> bool) -> Vec<TypeUrl> {
        let Some(shown) = self.classes.get(&class).map(|class| class.node) else { return Vec::new() };
        let state = self.plane.state();
        let members = self.members.keys().map(|number| self.nodes[*number]);
        let members = members
            .filter(|node| self.class_of(*node) == class && *node != shown)
            .filter(|node| is_asked(*node));
        let mut types: Vec<TypeUrl> = members
            .flat_map(|node| {
                (0..NAMES).filter(move |name| !state.stamped[*name] && state.tells_apart(node, shown, *name))
            })
            .map(type_of)
            .collect();
        types.sort();
        types.dedup();
        types
    }

    /// Nothing has changed for hours.
    pub fn judge_rest(&mut self) {
        let (refused, twins) = (self.plane.refused, self.plane.twins);
        for class in self.classes.keys().copied().collect::<Vec<_>>() {
            let Some(shown) = self.classes.get(&class).map(|class| class.node) else { continue };
            let all = self.differing(class, |_| true);
            // I34: no alarm outlives its reason.
            let report = self.proof.report(self.time());
            for divergence in report.divergences.iter().filter(|divergence| divergence.class == key(class)) {
                if !all.contains(&divergence.type_url) {
                    let short = divergence.type_url.short().to_owned();
                    self.fail(Invariant::FalseAlarm, || format!("class {class} still differs in {short}"));
                }
            }
            // A server that refuses three members in a row is asked about one an hour.
            let of_class = report.classes.iter().find(|of_class| of_class.class == key(class));
            let is_impossible = of_class.is_some_and(|of_class| of_class.state == ClassState::Impossible);
            if twins != Twins::Borne || is_never(shown) || shown.number % 4 == refused || is_impossible {
                continue;
            }
            self.judge_losses(class);
            if refused == 4 && self.lacks_cover(class) {
                self.fail(Invariant::MissedRule, || {
                    format!("class {class} has room for a witness, and a value without one")
                });
            }
            // I35: every rule is told. Members ask for the last two names at least.
            let asked = self.differing(class, |node| self.is_askable(node) && !self.is_hidden(node));
            let is_sure = |type_url: &TypeUrl| !self.differs_in_unasked_only(class, type_url);
            let missed =
                asked.into_iter().filter(is_sure).find(|type_url| !self.has_divergence(class, type_url));
            if let Some(type_url) = missed {
                self.fail(Invariant::MissedRule, || {
                    format!("class {class} differs in {}, and nothing tells", type_url.short())
                });
            }
        }
    }

    /// Whether witnesses could hold a value that nobody holds: there is room, and a member to ask.
    fn lacks_cover(&self, class: usize) -> bool {
        let Some(shown) = self.classes.get(&class).map(|class| class.node) else { return false };
        let of_class = |node: &Node| self.class_of(*node) == class;
        let members: Vec<Node> =
            self.members.keys().map(|number| self.nodes[*number]).filter(of_class).collect();
        let witnesses =
            self.streams.values().filter(|open| open.kind == ShadowKind::Witness && open.class == class);
        let holders: Vec<Node> = witnesses.map(|open| open.node).chain([shown]).collect();
        let is_free = self.count(&[ShadowKind::Witness]) < WITNESSES_MAX.min(self.members.len());
        let is_uncovered = |label: usize, value: u64| {
            let holds = |node: &&Node| node.labels[label] == value;
            let askable = |node: &Node| {
                holds(&node) && self.is_askable(*node) && !self.is_hidden(*node) && *node != shown
            };
            members.iter().filter(holds).count() >= 2
                && members.iter().any(|node| !holds(&node))
                && members.iter().any(askable)
                && !holders.iter().any(|node| node.labels[label] == value)
        };
        is_free && (0..3).any(|label| (0..3).any(|value| is_uncovered(label, value)))
    }

    /// The only name with a difference is one that some members do not ask for.
    fn differs_in_unasked_only(&self, class: usize, type_url: &TypeUrl) -> bool {
        let Some(shown) = self.classes.get(&class).map(|class| class.node) else { return true };
        let (state, refused) = (self.plane.state(), self.plane.refused);
        let members = self.members.keys().map(|number| self.nodes[*number]);
        let asked = members.filter(|node| self.class_of(*node) == class && *node != shown);
        let mut asked = asked.filter(|node| !is_never(*node) && node.number % 4 != refused);
        let names = (0..NAMES)
            .filter(|name| type_of(*name) == *type_url && *name != MEMBERS && !state.stamped[*name]);
        let names: Vec<usize> = names.collect();
        !asked.any(|node| names.iter().any(|name| state.tells_apart(node, shown, *name)))
    }
}
