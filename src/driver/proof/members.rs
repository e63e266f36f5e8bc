//! The clients of the proved classes, as the machine sees them. A walk over the streams finds them, so that
//! no stream knows of the proof (PRF-10).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::classes::ClassFollower;
use super::wanted::{parts_of, signature, wanted_of};
use crate::driver::ground::context::DriverSettings;
use crate::driver::ground::proof_rules::ProofRules;
use crate::driver::source::handle::Subscriber;
use crate::driver::stream::state::{StreamState, Tables};
use sluice_engine::Time;
use sluice_engine::downstream::{Session, SourceId};
use sluice_proof::proof::{ClassKey, Member, MemberId, Proof, Wanted};
use sluice_xds::Node;

/// The streams of one step of the walk. Ten thousand take two steps of some milliseconds.
const STREAMS_PER_STEP: usize = 5_000;

/// The new and changed streams of one step. Each costs some 50 us, and others of the thread wait.
const CHANGED_PER_STEP: usize = 200;

/// A client without an answer for longer than this waits for something that the server does not have.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(60);

/// The clients that the machine knows.
#[derive(Default)]
pub(super) struct MemberFollower {
    streams: BTreeMap<u64, FollowedStream>,
    /// The number of streams when the nodes of the map were last filled.
    filled: usize,
    /// The latest stream of the pass.
    last: Option<u64>,
    /// The clients that wait for a first answer: in this pass so far, and in the pass before.
    waiting: u32,
    waiting_before: u32,
}

struct FollowedStream {
    /// See [`signature`].
    signature: u64,
    /// The classes of which the stream is a member: mostly one, and a set would take ten times its bytes.
    classes: Box<[ClassKey]>,
    /// A source of the stream is not known to the machine yet.
    is_incomplete: bool,
    /// The pass has met the stream.
    is_met: bool,
}

/// The parts for a step of the walk.
pub(super) struct MemberWalk<'a> {
    pub settings: &'a DriverSettings,
    pub rules: &'a ProofRules,
    pub tables: &'a Tables,
    pub classes: &'a mut ClassFollower,
    pub machine: &'a mut Proof,
    pub now: Time,
}

/// A stream that is new, or asks for something else.
struct ChangedStream {
    signature: u64,
    /// For each source of a proved class: the question, and the rule of the class.
    questions: Vec<(SourceId, Vec<Wanted>, Arc<str>)>,
}

impl MemberFollower {
    /// The clients that wait for a first answer.
    pub fn waiting(&self) -> u32 {
        self.waiting.max(self.waiting_before)
    }

    /// All streams are looked at again, as if they were new.
    pub fn begin_anew(&mut self) {
        self.streams.values_mut().for_each(|stream| stream.is_incomplete = true);
    }

    /// One step of the walk over all streams. At the end of a pass, streams that the pass has not met have
    /// left. Returns whether the step ended early, and the next one should follow soon.
    pub fn step(&mut self, walk: &mut MemberWalk<'_>) -> bool {
        let mut changed = 0;
        for _ in 0..STREAMS_PER_STEP {
            let Some(stream) = walk.tables.streams.next(self.last) else {
                self.end_pass(walk);
                return false;
            };
            self.last = Some(stream.number());
            changed += usize::from(self.look(&stream, walk));
            if changed == CHANGED_PER_STEP {
                return true;
            }
        }
        false
    }

    fn end_pass(&mut self, walk: &mut MemberWalk<'_>) {
        self.streams.retain(|number, stream| {
            let is_here = std::mem::take(&mut stream.is_met);
            if !is_here {
                let leave = |class| walk.machine.member_left(class, MemberId(*number), walk.now);
                stream.classes.iter().for_each(leave);
            }
            is_here
        });
        let len = self.streams.len();
        self.filled = self.filled.min(len);
        // Streams come in the order of their numbers, and leave half of each node empty.
        if len > self.filled + self.filled / 4 {
            self.streams = std::mem::take(&mut self.streams).into_iter().collect();
            self.filled = len;
        }
        self.last = None;
        self.waiting_before = std::mem::take(&mut self.waiting);
    }

    /// Returns whether the stream is new, or asks for something else.
    fn look(&mut self, stream: &Arc<StreamState>, walk: &mut MemberWalk<'_>) -> bool {
        let number = stream.number();
        let before = self.streams.get(&number).filter(|before| !before.is_incomplete);
        let before = before.map(|before| before.signature);
        let age = walk.now.since(stream.context.opened_at);
        if !stream.answered.load(Ordering::Relaxed) && age < FIRST_ANSWER_MAX {
            self.waiting += 1;
        }
        let changed = stream.look(|node, session, _| walk.question(node, session, before));
        match (changed, stream.node()) {
            (Some(changed), Some(node)) => {
                let before = self.streams.remove(&number).map(|before| before.classes).unwrap_or_default();
                let followed = walk.join(stream, &node, changed, &before);
                self.streams.insert(number, followed);
                true
            }
            _ => {
                if let Some(followed) = self.streams.get_mut(&number) {
                    followed.is_met = true;
                }
                false
            }
        }
    }
}

impl MemberWalk<'_> {
    /// The questions of a stream; `None` if they are as they were.
    fn question(&self, node: Option<&Node>, session: &Session, before: Option<u64>) -> Option<ChangedStream> {
        let signature = signature(node, session);
        if before == Some(signature) {
            return None;
        }
        let compares_secrets = self.rules.settings.compares_secrets;
        let sources: BTreeSet<_> = parts_of(session).map(|(_, part)| part.source()).collect();
        let proved = sources.into_iter().filter(|source| self.classes.has(*source));
        let questions = proved.map(|source| {
            let rule = rule_of(node, session, source, self.settings);
            (source, wanted_of(session, source, compares_secrets), rule)
        });
        Some(ChangedStream { signature, questions: questions.collect() })
    }

    /// Tells the machine the place of a stream in its classes, and which classes it has left.
    fn join(
        &mut self,
        stream: &StreamState,
        node: &Arc<Node>,
        changed: ChangedStream,
        before: &[ClassKey],
    ) -> FollowedStream {
        let (id, now) = (MemberId(stream.number()), self.now);
        let (mut joined, mut is_incomplete) = (Vec::new(), false);
        let is_never = self.rules.never_shows(node);
        for (source, wants, rule) in changed.questions {
            let Some(class) = self.classes.known(source, || rule, self.rules, self.machine, now) else {
                is_incomplete = true;
                continue;
            };
            let member = Member {
                node: node.clone(),
                fields: self.classes.fields_as_shown(source, node),
                may_be_sampled: !node.id.is_empty() && !wants.is_empty(),
                wants: wants.into(),
                is_never,
            };
            self.machine.member(&class, id, member, now);
            joined.push(class);
        }
        let left = before.iter().filter(|class| !joined.contains(class));
        left.for_each(|class| self.machine.member_left(class, id, now));
        FollowedStream { signature: changed.signature, classes: joined.into(), is_incomplete, is_met: true }
    }
}

/// The rule that put a stream into the class of a source, in words.
fn rule_of(node: Option<&Node>, session: &Session, source: SourceId, settings: &DriverSettings) -> Arc<str> {
    let anonymous = Node::default();
    let part = parts_of(session).find(|(_, part)| part.source() == source);
    let rule = part.and_then(|(type_url, part)| {
        settings.classes.rule(node.unwrap_or(&anonymous), type_url, part.group.authority.names())
    });
    rule.map_or_else(|| "node_classes".into(), |rule| rule.id.to_string().into())
}
