//! Whom to ask next, and when to stop (LRN-2, PRF-9, PRF-16, PRF-19).
//!
//! First a node of each fingerprint is asked, then a second node of each, and so on. A new answer is checked
//! before the comparison: the same node is asked again, and so is the reference, the first node with an
//! answer. Names that differ then are restless: the server says two things to the same question.

use std::collections::{BTreeMap, VecDeque};
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

/// The names in the distinct answers of a study. More would take gigabytes.
const NAMES_MAX: usize = 20_000_000;

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

    fn finish(&mut self, end: StudyEnd) -> Step {
        Step::Done(*self.end.get_or_insert(end))
    }

    /// The server has answered a node. Types without an answer are left out.
    pub fn answered(&mut self, node: usize, answers: BTreeMap<TypeUrl, TypeAnswer>) {
        self.close(node);
        (self.failures_in_a_row, self.refusals.in_a_row) = (0, 0);
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
        if self.evidence.held_names() > NAMES_MAX {
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
            self.refusals.count += 1;
            if self.refusals.named.len() < REFUSED_MAX {
                self.refusals.named.push(Refusal { node, status });
            }
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
            self.refusals.count += 1;
            if self.refusals.named.len() < REFUSED_MAX {
                self.refusals.named.push(Refusal { node, status });
            }
        }
        if self.failures_in_a_row >= FAILURES_MAX {
            self.end.get_or_insert(StudyEnd::Lost);
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
mod tests {
    use super::*;
    use sluice_xds::{Node, ResourceName, Version};
    use std::sync::Arc;

    const MINUTE: Duration = Duration::from_secs(60);

    fn study(nodes: usize, teams: usize, pace: StudyPace) -> Study {
        let node = |number: usize| {
            Arc::new(Node {
                id: format!("n{number}"),
                cluster: format!("team-{}", number % teams),
                ..Node::default()
            })
        };
        Study::new(&Fleet::new((0..nodes).map(node).collect()), pace)
    }

    fn pace(streams: usize) -> StudyPace {
        StudyPace { streams, per_minute: 60_000, until: Time::ZERO + 10 * MINUTE }
    }

    fn answer(versions: &[u128]) -> BTreeMap<TypeUrl, TypeAnswer> {
        let name = |(number, version): (usize, &u128)| {
            (ResourceName::from(format!("c{number}")), Some(Version(*version)))
        };
        let names = versions.iter().enumerate().map(name).collect();
        let answer = TypeAnswer { is_whole: true, names };
        [(TypeUrl::of_message("envoy.config.cluster.v3.Cluster"), answer)].into()
    }

    /// Asks until the end; `says` answers as the server would. Returns the nodes in the order of asking.
    fn run(
        study: &mut Study,
        mut says: impl FnMut(usize) -> Result<Vec<u128>, Code>,
    ) -> (Vec<usize>, StudyEnd, Time) {
        let (mut now, mut asked) = (Time::ZERO, Vec::new());
        loop {
            match study.next_step(now) {
                Step::Ask(node) => {
                    asked.push(node);
                    match says(node) {
                        Ok(versions) => study.answered(node, answer(&versions)),
                        Err(code) => study.failed(node, Status::new(code, "no"), now),
                    }
                }
                Step::Wait(until) => now = until,
                Step::Done(end) => return (asked, end, now),
            }
        }
    }

    #[test]
    fn lrn_2_each_fingerprint_has_its_turn_before_a_second_member() {
        let mut study = study(6, 3, pace(1));
        let (asked, end, _) = run(&mut study, |_| Ok(vec![1]));
        // The first answer is checked at the same node, and the end once more.
        assert_eq!((asked.as_slice(), end), (&[0, 0, 1, 2, 3, 4, 5, 0][..], StudyEnd::Complete));
        assert_eq!(study.evidence().nodes().len(), 6);
    }

    #[test]
    fn prf_16_a_counter_in_an_answer_is_restless_and_a_difference_is_checked() {
        let mut study = study(4, 2, pace(1));
        let mut counter = 0;
        let (asked, ..) = run(&mut study, |node| {
            counter += 1;
            Ok(vec![counter, u128::from(node % 2 == 1)])
        });
        assert!(
            asked.iter().filter(|node| **node == 0).count() > 2,
            "the reference is asked again: {asked:?}"
        );
        let restless: Vec<_> = study.evidence().restless().flat_map(|(_, names)| names.clone()).collect();
        assert_eq!(restless, [ResourceName::from("c0".to_owned())]);
    }

    #[test]
    fn prf_16_a_push_meanwhile_is_no_difference_between_nodes() {
        let mut study = study(8, 2, pace(1));
        let mut asked = 0;
        run(&mut study, |_| {
            asked += 1;
            Ok(vec![u128::from(asked > 5), 7])
        });
        let types: Vec<TypeUrl> = study.evidence().types().cloned().collect();
        assert_eq!(study.evidence().joint(&types).groups().count(), 1);
    }

    #[test]
    fn prf_9_a_server_that_refuses_everybody_is_left_alone_and_one_that_refuses_some_is_not() {
        let mut study = study(9, 3, pace(1));
        let (asked, end, _) = run(&mut study, |_| Err(Code::Unauthenticated));
        assert_eq!((asked.len(), end), (3, StudyEnd::Refused));
        assert_eq!(study.last_failure().map(|status| status.code), Some(Code::Unauthenticated));
        let mut study = self::study(9, 3, pace(1));
        let (_, end, _) =
            run(&mut study, |node| if node == 4 { Err(Code::PermissionDenied) } else { Ok(vec![1]) });
        let (named, count) = study.refused();
        assert_eq!((end, count, named[0].node), (StudyEnd::Complete, 1, 4));
    }

    #[test]
    fn prf_9_a_node_that_answers_between_failures_is_not_refused() {
        let (mut study, mut asked) = (study(9, 9, pace(1)), 0);
        let (_, end, _) = run(&mut study, |node| {
            asked += u32::from(node == 0);
            if node == 0 && asked % 2 == 0 { Err(Code::Unavailable) } else { Ok(vec![node as u128]) }
        });
        assert!(asked > 2 * ATTEMPTS_MAX, "the reference failed often enough: {asked}");
        assert_eq!((end, study.refused().1), (StudyEnd::Complete, 0));
    }

    #[test]
    fn prf_19_the_pace_holds_and_failures_make_pauses() {
        let mut slow = study(6, 1, StudyPace { per_minute: 12, ..pace(2) });
        let (asked, _, now) = run(&mut slow, |_| Ok(vec![1]));
        assert_eq!(now.since(Time::ZERO), Duration::from_secs(5) * (asked.len() as u32 - 1));
        let mut lost = study(50, 50, pace(1));
        let (asked, end, now) = run(&mut lost, |_| Err(Code::Unavailable));
        assert_eq!((asked.len(), end), (8, StudyEnd::Lost));
        assert!(now.since(Time::ZERO) > MINUTE, "{now:?}");
        let mut short = study(500, 1, StudyPace { per_minute: 12, until: Time::ZERO + MINUTE, ..pace(1) });
        assert_eq!(run(&mut short, |_| Ok(vec![1])).1, StudyEnd::TimeIsUp);
    }

    #[test]
    fn prf_19_no_more_streams_than_allowed_are_open() {
        let mut study = study(6, 6, pace(2));
        let now = Time::ZERO + MINUTE;
        let (one, other) = (study.next_step(now), study.next_step(now + MINUTE));
        assert!(matches!((one, other), (Step::Ask(0), Step::Ask(1))));
        assert_eq!(study.next_step(now + MINUTE), Step::Wait(study.pace.until));
        study.answered(0, answer(&[1]));
        assert_eq!(study.next_step(now + 2 * MINUTE), Step::Ask(0));
    }
}
