//! Whom to ask next, and when to stop (LRN-2, PRF-9, PRF-16, PRF-19).
//!
//! First a node of each fingerprint is asked, then a second node of each, and so on. A new answer is checked
//! before the comparison: the same node is asked again, and so is the reference, the first node with an
//! answer. Names that differ then are restless: the server says two things to the same question.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::evidence::{StudyEvidence, TypeAnswer};
use super::fleet::Fleet;
use sluice_engine::Time;
use sluice_xds::{Code, Status, TypeUrl};

/// The attempts for a node.
const ATTEMPTS_MAX: u32 = 3;

/// Refusals in a row, before any answer, after which the server cannot be asked (PRF-9).
const REFUSALS_MAX: u32 = 3;

/// Failures in a row after which the server counts as lost.
const FAILURES_MAX: u32 = 8;

/// The longest pause after failures.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Checks of new answers. Later, every [`CHECKS_EVERY`]th new answer is checked: different answers to all
/// nodes need no further proof.
const CHECKS: u32 = 64;
const CHECKS_EVERY: u32 = 16;

/// Refused nodes with a name in the report.
const REFUSED_MAX: usize = 100;

/// The bounds of a study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StudyPace {
    /// Nodes asked at once.
    pub streams: usize,
    /// Streams begun in a minute; failed ones count.
    pub per_minute: u32,
    /// The end, even if nodes are left.
    pub until: Time,
    /// The names in the distinct answers. A million takes some 50 MB.
    pub names_max: usize,
}

/// The next step of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask the server as a node of the fleet, and tell the answer with [`Study::answered`] or
    /// [`Study::failed`].
    Ask(usize),
    /// Nothing to do before this time, or before the next answer.
    Wait(Time),
    Done(StudyEnd),
}

/// Why a study is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StudyEnd {
    /// Every node was asked.
    Complete,
    TimeIsUp,
    /// The server takes no node (PRF-9). [`Study::last_failure`] has the status.
    Refused,
    /// The server is away, or takes no more streams. [`Study::last_failure`] has the reason.
    Lost,
    /// The answers take too much memory.
    TooLarge,
    /// The relay that asks is going out of service.
    Leaving,
    /// Nobody waits for the findings any more.
    Abandoned,
}

/// A node without an answer of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub node: usize,
    pub status: Status,
}

/// A study of a fleet.
///
/// Wide because a study has a queue, a pace and an account.
#[derive(Debug)]
pub struct Study {
    pace: StudyPace,
    queue: VecDeque<usize>,
    /// Nodes to ask again.
    checks: VecDeque<usize>,
    /// Nodes with a question under way.
    open: Vec<usize>,
    attempts: BTreeMap<usize, u32>,
    reference: Option<usize>,
    /// The nodes with an answer.
    answered: BTreeSet<usize>,
    is_last_check_due: bool,
    news: u32,
    /// The earliest time of the next stream.
    next_at: Time,
    failures_in_a_row: u32,
    last_failure: Option<Status>,
    refusals: Refusals,
    evidence: StudyEvidence,
    end: Option<StudyEnd>,
}

#[derive(Debug, Default)]
struct Refusals {
    in_a_row: u32,
    count: usize,
    named: Vec<Refusal>,
}

impl Study {
    pub fn new(fleet: &Fleet, pace: StudyPace) -> Study {
        let mut rounds: Vec<(usize, u32, usize)> = Vec::new();
        let mut members: BTreeMap<u32, usize> = BTreeMap::new();
        for (node, fingerprint) in fleet.fingerprints().classes().iter().enumerate() {
            let members = members.entry(*fingerprint).or_default();
            rounds.push((*members, *fingerprint, node));
            *members += 1;
        }
        rounds.sort_unstable();
        Study {
            pace,
            queue: rounds.into_iter().map(|(_, _, node)| node).collect(),
            checks: VecDeque::new(),
            open: Vec::new(),
            attempts: BTreeMap::new(),
            reference: None,
            answered: BTreeSet::new(),
            is_last_check_due: true,
            news: 0,
            next_at: Time::ZERO,
            failures_in_a_row: 0,
            last_failure: None,
            refusals: Refusals::default(),
            evidence: StudyEvidence::default(),
            end: None,
        }
    }

    /// The next step. The caller asks again after each step, answer and wait.
    pub fn next_step(&mut self, now: Time) -> Step {
        if let Some(end) = self.end {
            return Step::Done(end);
        }
        if now >= self.pace.until {
            return self.finish(StudyEnd::TimeIsUp);
        }
        if self.open.len() >= self.pace.streams {
            return Step::Wait(self.pace.until);
        }
        let is_over = self.queue.is_empty() && self.checks.is_empty();
        if is_over && !self.open.is_empty() {
            return Step::Wait(self.pace.until);
        }
        if is_over {
            // A push after the last check shows at the reference.
            let last = self.reference.filter(|_| std::mem::take(&mut self.is_last_check_due));
            match last {
                Some(reference) => self.checks.push_back(reference),
                None => return self.finish(StudyEnd::Complete),
            }
        }
        if now < self.next_at {
            return Step::Wait(self.next_at.min(self.pace.until));
        }
        match self.checks.pop_front().or_else(|| self.queue.pop_front()) {
            Some(node) => {
                self.next_at = now + Duration::from_secs(60) / self.pace.per_minute.max(1);
                self.open.push(node);
                Step::Ask(node)
            }
            None => self.finish(StudyEnd::Complete),
        }
    }

    /// Ends the study before its time. What was answered stays.
    pub fn stop(&mut self, end: StudyEnd) {
        self.end.get_or_insert(end);
    }

    fn finish(&mut self, end: StudyEnd) -> Step {
        Step::Done(*self.end.get_or_insert(end))
    }

    /// The server has answered a node. Types without an answer are left out.
    pub fn answered(&mut self, node: usize, answers: BTreeMap<TypeUrl, TypeAnswer>) {
        self.close(node);
        (self.failures_in_a_row, self.refusals.in_a_row) = (0, 0);
        self.answered.insert(node);
        // Failures apart from each other do not leave a node without an answer.
        self.attempts.remove(&node);
        let mut is_news = false;
        for (type_url, answer) in answers {
            is_news |= self.evidence.add(node, &type_url, answer);
        }
        let reference = *self.reference.get_or_insert(node);
        if !is_news {
            return;
        }
        self.news += 1;
        if self.news <= CHECKS || self.news.is_multiple_of(CHECKS_EVERY) {
            for again in [reference, node] {
                if !self.checks.contains(&again) {
                    self.checks.push_back(again);
                }
            }
        }
        if self.evidence.held_names() > self.pace.names_max {
            self.end.get_or_insert(StudyEnd::TooLarge);
        }
    }

    /// The server gave a node no answer.
    pub fn failed(&mut self, node: usize, status: Status, now: Time) {
        self.close(node);
        let is_first = self.reference.is_none();
        self.last_failure = Some(status.clone());
        if is_refusal(status.code) {
            self.refusals.in_a_row += 1;
            self.note_refusal(node, status);
            if is_first && self.refusals.in_a_row >= REFUSALS_MAX {
                self.end.get_or_insert(StudyEnd::Refused);
            }
            return;
        }
        self.failures_in_a_row += 1;
        let pause = Duration::from_millis(500) * 2_u32.saturating_pow(self.failures_in_a_row.min(10));
        self.next_at = self.next_at.max(now + pause.min(PAUSE_MAX));
        let attempts = self.attempts.entry(node).or_default();
        *attempts += 1;
        if *attempts < ATTEMPTS_MAX {
            self.queue.push_back(node);
        } else {
            self.note_refusal(node, status);
        }
        if self.failures_in_a_row >= FAILURES_MAX {
            self.end.get_or_insert(StudyEnd::Lost);
        }
    }

    /// The node was not asked after all: nothing is known about it.
    pub fn leave_out(&mut self, node: usize, now: Time) {
        self.close(node);
        self.next_at = self.next_at.min(now);
    }

    /// The node is asked after all others.
    pub fn postpone(&mut self, node: usize, now: Time) {
        self.leave_out(node, now);
        self.queue.push_back(node);
    }

    /// The check of a node that has answered leaves nobody without an answer.
    fn note_refusal(&mut self, node: usize, status: Status) {
        if self.answered.contains(&node) {
            return;
        }
        self.refusals.count += 1;
        if self.refusals.named.len() < REFUSED_MAX {
            self.refusals.named.push(Refusal { node, status });
        }
    }

    fn close(&mut self, node: usize) {
        if let Some(place) = self.open.iter().position(|open| *open == node) {
            self.open.swap_remove(place);
        }
    }

    pub fn evidence(&self) -> &StudyEvidence {
        &self.evidence
    }

    /// The number of nodes with an answer.
    pub fn answered_count(&self) -> usize {
        self.answered.len()
    }

    /// The first node with an answer.
    pub fn reference(&self) -> Option<usize> {
        self.reference
    }

    /// The nodes without an answer of the server: at most 100, and the number of all.
    pub fn refused(&self) -> (&[Refusal], usize) {
        (&self.refusals.named, self.refusals.count)
    }

    /// The status of the last node without an answer.
    pub fn last_failure(&self) -> Option<&Status> {
        self.last_failure.as_ref()
    }
}

/// The server understood, and will not answer the node.
fn is_refusal(code: Code) -> bool {
    matches!(code, Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated)
}

#[cfg(test)]
mod tests;
