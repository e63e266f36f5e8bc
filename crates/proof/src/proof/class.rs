//! The state of one class.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::content::Content;
use super::divergence::{Record, RecordClass};
use super::evidence::Evidence;
use super::history::History;
use super::input::{ClassFacts, ClassKey};
use super::population::{FieldPaths, Population, Row};
use super::trial::ClassSide;
use sluice_engine::Time;
use sluice_xds::{Code, Node, Status, TypeUrl};

/// An impossible proof is tried again after an hour (PRF-9).
pub const RETRY: Duration = Duration::from_secs(3_600);
/// So many refused members in a row make the proof impossible (PRF-9).
const REFUSED_MAX: usize = 3;
/// The wait after the first failed shadow; doubles up to the maximum.
const BACKOFF: Duration = Duration::from_secs(10);
const BACKOFF_MAX: Duration = Duration::from_secs(640);

/// Whether the server lets the relay ask about a class.
#[derive(Clone, Debug, Default)]
pub struct Asking {
    /// The reason of the server, and the time of the next try.
    impossible: Option<(Status, Time)>,
    /// The refused nodes in a row.
    refused: BTreeSet<u64>,
    failures: u32,
    backoff_until: Option<Time>,
}

impl Asking {
    /// Whether a shadow may be opened now.
    pub fn may_ask(&self, now: Time) -> bool {
        let is_over = |until: Option<Time>| until.is_none_or(|until| now >= until);
        is_over(self.impossible.as_ref().map(|impossible| impossible.1)) && is_over(self.backoff_until)
    }

    /// Whether the next shadow waits only because of failures.
    pub fn backs_off(&self, now: Time) -> bool {
        self.impossible.is_none() && !self.may_ask(now)
    }

    /// The server answered a shadow. Returns whether the proof was impossible until now.
    pub fn answered(&mut self) -> bool {
        let was_impossible = self.impossible.is_some();
        *self = Asking::default();
        was_impossible
    }

    /// A shadow ended before its answer. Returns whether the proof has become impossible (PRF-9).
    pub fn failed(&mut self, node_key: u64, status: &Status, now: Time) -> bool {
        let doublings = self.failures.min(6);
        self.failures += 1;
        self.backoff_until = Some(now + (BACKOFF * 2u32.pow(doublings)).min(BACKOFF_MAX));
        if !is_refusal(status.code) {
            self.refused.clear();
            return false;
        }
        self.refused.insert(node_key);
        let is_over = self.impossible.is_some();
        if self.refused.len() < REFUSED_MAX && !is_over {
            // The server may accept the next member, so no wait is needed.
            self.backoff_until = None;
            return false;
        }
        self.refused.clear();
        self.impossible = Some((status.clone(), now + RETRY));
        !is_over
    }

    /// A shadow begins. While the proof is impossible, a single shadow an hour tries again.
    pub fn begin(&mut self, now: Time) {
        if let Some(impossible) = &mut self.impossible {
            impossible.1 = now + RETRY;
        }
    }

    pub fn impossible(&self) -> Option<&Status> {
        self.impossible.as_ref().map(|impossible| &impossible.0)
    }
}

/// Whether the status refuses the node (PRF-9).
pub fn is_refusal(code: Code) -> bool {
    matches!(code, Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated)
}

/// The node of the class towards the server.
#[derive(Clone, Debug)]
pub struct Representative {
    pub node: Arc<Node>,
    pub node_key: u64,
    pub row: Row,
    pub is_never: bool,
}

/// New content of a class.
pub struct Published {
    pub content: Content,
    pub connection: Option<u64>,
    /// A witness was equal to the content before.
    pub is_watched: bool,
}

/// The newest content of a class.
#[derive(Clone, Debug, Default)]
pub struct LiveContent {
    pub newest: Option<Content>,
    history: History,
    connection: Option<u64>,
    /// Counts the changes, and the time of the latest.
    pub changes: u64,
    pub changed_at: Time,
}

/// The proof of one class.
#[derive(Clone, Debug)]
pub struct ClassProof {
    pub rule: Arc<str>,
    /// The class that the members came from.
    pub split_from: Option<ClassKey>,
    pub representative: Representative,
    pub live: LiveContent,
    pub population: Population,
    pub evidence: Evidence,
    pub records: BTreeMap<TypeUrl, Record>,
    pub asking: Asking,
    /// The content changed since a shadow was last seen equal.
    is_push_pending: bool,
    pub replicas_disagree: bool,
}

impl ClassProof {
    pub fn new(facts: ClassFacts, paths: &mut FieldPaths) -> ClassProof {
        ClassProof {
            rule: facts.rule.clone(),
            split_from: facts.split_from.clone(),
            representative: representative(facts, paths),
            live: LiveContent::default(),
            population: Population::default(),
            evidence: Evidence::default(),
            records: BTreeMap::new(),
            asking: Asking::default(),
            is_push_pending: false,
            replicas_disagree: false,
        }
    }

    /// The class has another representative or another rule. Evidence from under another rule does not count
    /// (PRF-25).
    pub fn restate(&mut self, facts: ClassFacts, paths: &mut FieldPaths) {
        if facts.rule != self.rule {
            self.rule = facts.rule.clone();
            self.evidence = Evidence::default();
        }
        self.split_from.clone_from(&facts.split_from);
        self.representative = representative(facts, paths);
    }

    pub fn publish(&mut self, published: Published, now: Time, window: Duration) {
        let Published { content, connection, is_watched } = published;
        let live = &mut self.live;
        if let Some(before) = &live.newest
            && live.history.note(before, &content, now, window)
        {
            self.is_push_pending |= is_watched;
            live.changes += 1;
            live.changed_at = now;
        }
        (live.newest, live.connection) = (Some(content), connection);
    }

    /// A shadow is equal again after a change.
    pub fn see_push(&mut self) {
        if std::mem::take(&mut self.is_push_pending) {
            self.evidence.see_push();
        }
    }

    pub fn side(&self) -> ClassSide<'_> {
        let LiveContent { newest, history, connection, .. } = &self.live;
        ClassSide { content: newest.as_ref(), history, connection: *connection }
    }

    /// Whether shadows for this class may be opened now.
    pub fn may_ask(&self, now: Time) -> bool {
        self.live.newest.is_some() && !self.representative.is_never && self.asking.may_ask(now)
    }

    /// The class of its records, for reports.
    pub fn of_records<'a>(&'a self, class: &'a ClassKey, paths: &'a FieldPaths) -> RecordClass<'a> {
        RecordClass {
            class,
            rule: &self.rule,
            node: &self.representative.node,
            population: &self.population,
            paths,
        }
    }
}

fn representative(facts: ClassFacts, paths: &mut FieldPaths) -> Representative {
    let row = paths.row(&facts.fields);
    Representative { node_key: paths.node_key(&facts.node), node: facts.node, row, is_never: facts.is_never }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn prf_9_three_refused_members_in_a_row_are_told_once() {
        let refusal = Status::new(Code::PermissionDenied, "the token is of another pod");
        let mut asking = Asking::default();
        assert!(!asking.failed(1, &refusal, at(0)) && !asking.failed(2, &refusal, at(1)));
        assert!(asking.may_ask(at(1)));
        assert!(asking.failed(3, &refusal, at(2)));
        assert_eq!((asking.may_ask(at(3_601)), asking.may_ask(at(3_602))), (false, true));
        assert!(!asking.failed(4, &refusal, at(3_602)), "told once");
        assert!(!asking.may_ask(at(7_201)) && asking.answered() && asking.may_ask(at(7_201)));
    }

    #[test]
    fn prf_9_the_same_member_again_or_another_failure_is_no_row() {
        let refusal = Status::new(Code::Unauthenticated, "");
        let mut asking = Asking::default();
        assert!(!(0..9).any(|second| asking.failed(1, &refusal, at(second))));
        let unavailable = Status::new(Code::Unavailable, "");
        let mut asking = Asking::default();
        assert!(!asking.failed(1, &refusal, at(0)) && !asking.failed(2, &refusal, at(0)));
        assert!(!asking.failed(3, &unavailable, at(0)) && !asking.may_ask(at(9)));
        assert!(!asking.failed(4, &refusal, at(700)), "the row begins anew");
    }
}
