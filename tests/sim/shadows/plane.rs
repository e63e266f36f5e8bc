//! A control plane whose answers are a function of the node.

use super::super::rng::{Rng, mix};

/// Names of the wildcard, and names that are asked for one by one.
pub const MEMBERS: usize = 4;
pub const NAMES: usize = MEMBERS + 3;

pub const LABELS: [&str; 3] = ["team", "zone", "version"];

/// A client as its node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    pub number: usize,
    pub labels: [u64; 3],
}

/// The nodes for which a rule holds.
#[derive(Clone, Copy, Debug)]
pub enum Test {
    Label(usize, u64),
    Pair((usize, u64), (usize, u64)),
    Id(usize),
}

impl Test {
    pub fn holds(self, node: Node) -> bool {
        match self {
            Test::Label(label, value) => node.labels[label] == value,
            Test::Pair(one, other) => node.labels[one.0] == one.1 && node.labels[other.0] == other.1,
            Test::Id(number) => node.number == number,
        }
    }
}

/// The nodes of the test have another content under the name, or none.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub test: Test,
    pub name: usize,
    /// 0: the name is absent.
    pub effect: u64,
}

/// Everything that the answers depend on, beside the stream.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// 0: absent.
    pub base: [u64; NAMES],
    pub rules: Vec<Rule>,
    /// Names with a stamp that each stream has of its own.
    pub stamped: [bool; NAMES],
}

impl State {
    /// The content for a node; `None`: absent.
    pub fn content(&self, node: Node, name: usize) -> Option<u64> {
        let mut content = self.base[name];
        for rule in self.rules.iter().filter(|rule| rule.name == name && rule.test.holds(node)) {
            content = if rule.effect == 0 { 0 } else { mix(content ^ rule.effect) | 1 };
        }
        (content != 0).then_some(content)
    }

    pub fn tells_apart(&self, one: Node, other: Node, name: usize) -> bool {
        self.content(one, name) != self.content(other, name)
    }
}

/// The number of streams that may show one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twins {
    Borne,
    /// The second stream ends the first.
    EndsFirst,
    RefusesSecond,
}

/// The server, with all its states so far: (since, state).
pub struct Plane {
    pub states: Vec<(u64, State)>,
    pub twins: Twins,
    /// Equal content comes in other bytes on each stream.
    pub is_random: bool,
    /// Nodes with these numbers, modulo 4, are refused; 4: none.
    pub refused: usize,
    /// Replicas may be behind by so long.
    pub replica_lag: [u64; 2],
    /// A stream may be behind by so long, and the percentage of such streams.
    pub stream_lag: (u64, u64),
}

impl Plane {
    pub fn state(&self) -> &State {
        &self.states[self.states.len() - 1].1
    }

    /// The number of the newest state at a time.
    pub fn state_at(&self, at: u64) -> usize {
        self.states.iter().rposition(|state| state.0 <= at).unwrap_or(0)
    }

    /// Whether the server told the nodes apart at some time since `from`.
    pub fn told_apart(&self, one: Node, other: Node, name: usize, from: u64) -> bool {
        self.states[self.state_at(from)..].iter().any(|state| state.1.tells_apart(one, other, name))
    }

    pub fn push(&mut self, at: u64, change: impl FnOnce(&mut State)) {
        let mut state = self.state().clone();
        change(&mut state);
        self.states.push((at, state));
    }

    pub fn random_rule(rng: &mut Rng, nodes: u64) -> Rule {
        let label = |rng: &mut Rng| (rng.below(3) as usize, rng.below(3));
        let test = match rng.below(10) {
            0..6 => {
                let (label, value) = label(rng);
                Test::Label(label, value)
            }
            6..8 => {
                let (one, other) = (label(rng), label(rng));
                if one.0 == other.0 { Test::Label(one.0, one.1) } else { Test::Pair(one, other) }
            }
            _ => Test::Id(rng.below(nodes) as usize),
        };
        let effect = if rng.percent(25) { 0 } else { rng.next() | 1 };
        Rule { test, name: rng.below(NAMES as u64) as usize, effect }
    }
}
