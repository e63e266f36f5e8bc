//! A sample, from begin to result (PRF-12, PRF-13, PRF-16).
//!
//! ```text
//!  Watching ── equal ──────────────────────────────────────────────▶ equal
//!     │  ▲
//!     │  └── the difference is gone, or one side has what the other had lately
//!     ▼ stands for `settle`, and the bodies have unequal meanings
//!  Second: the same member again ── like the class ─────────────────▶ lag: the sample's stream was late
//!     │                          └── like neither ─────────────────▶ restless
//!     ▼ like the sample
//!  Control: the class's own node ── like the sample ────────────────▶ lag: the class's stream is late
//!     │                          └── like neither ─────────────────▶ restless
//!     ▼ like the class
//!  differs
//! ```
//!
//! The second comes before the control, and shows whether the server bears two streams of an id. Without the
//! knowledge a control could end the stream of the class itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::answer::DifferingAnswer;
use super::comparison::{Compared, Differing, Stance, compare, is_same};
use super::content::Content;
use super::evidence::Evidence;
use super::history::{History, NameKey};
use super::input::{ClassKey, MemberId, OrderId};
use super::meaning::{Meanings, Relation};
use super::population::{Print, Row};
use super::probe::Probe;
use super::report::SampleResult;
use super::settings::ProofPace;
use sluice_engine::Time;
use sluice_xds::{Node, TypeUrl, Version};

/// A sample without a word from all parts ends after this time. Longer than the time in which a server has to
/// answer for a name.
pub const WORD_MAX: Duration = Duration::from_secs(30);
/// A confirmation ends after this time.
pub const CONFIRM_MAX: Duration = Duration::from_secs(60);
/// The answers of a second and of a control stand for so long before they count: a server may send a set in
/// parts.
const QUIET: Duration = Duration::from_secs(1);
/// Between the publication of a witness or a class, and the look at both: the other side is mostly equal by
/// then, and the look costs a comparison of digests.
pub const LOOK_AFTER: Duration = Duration::from_millis(300);
/// Pairs in one question.
pub const ASKED_MAX: usize = 100;
/// Restless names change so often within a window, at both sides (PRF-13).
const RESTLESS_CHANGES: usize = 3;

/// The side of the class in a comparison.
#[derive(Clone, Copy)]
pub struct ClassSide<'a> {
    pub content: Option<&'a Content>,
    pub history: &'a History,
    pub connection: Option<u64>,
}

/// The surroundings of a judgement beside the trial.
#[derive(Clone, Copy)]
pub struct Surround<'a> {
    pub class: ClassSide<'a>,
    pub meanings: &'a Meanings,
    pub evidence: &'a Evidence,
    pub pace: &'a ProofPace,
    pub now: Time,
}

/// The client of the sample.
#[derive(Clone, Debug)]
pub struct Subject {
    /// `None`: the class's own node, on another connection (PRF-18).
    pub member: Option<MemberId>,
    pub node: Arc<Node>,
    pub node_key: u64,
    pub print: Print,
    /// The fields of the fingerprint, and all fields.
    pub common: Row,
    pub row: Row,
    /// Chosen for uncovered values (PRF-22).
    pub is_for_cover: bool,
    /// Chosen to explain a divergence, so that a split moves the right members (PRF-27).
    pub is_for_split: bool,
}

/// An undecided difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unsettled {
    class: Stance,
    shadow: Stance,
    /// Neither side changed the name since.
    since: Time,
}

/// A decided difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DecidedDifference {
    class: Stance,
    shadow: Stance,
    /// Otherwise one side was late.
    is_confirmed: bool,
}

/// Two versions with unknown meanings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unasked {
    pub key: NameKey,
    pub one: Version,
    pub other: Version,
}

/// The next step of a trial.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// Nothing to do until the next publication, or until [`Trial::look_at`].
    Waits,
    /// All parts are equal now.
    Equal,
    /// The meaning decides, all of one type.
    Ask(Vec<Unasked>),
    /// A second shadow and a control are needed.
    Confirm,
    /// The difference is gone amid the confirmation: the second and the control are needed no more.
    Relax,
    Done(Outcome),
}

/// The end of a trial, or of one round of a witness.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub confirmed: Vec<Confirmed>,
    pub restless: Vec<NameKey>,
    /// Names for which the sample's stream is late, since when.
    pub late_shadow: Vec<(NameKey, Time)>,
    /// Names for which the class's stream is late.
    pub late_class: Vec<(NameKey, Time)>,
    /// The shadow's versions were such as the class had lately, to the end.
    pub is_lag: bool,
    /// Shadows were on several connections, so replicas were compared with each other.
    pub is_torn: bool,
}

impl Outcome {
    pub fn result(&self) -> SampleResult {
        if !self.confirmed.is_empty() {
            SampleResult::Differs
        } else if self.is_torn {
            SampleResult::NoWord
        } else if !self.restless.is_empty() {
            SampleResult::Restless
        } else if self.is_lag || !self.late_shadow.is_empty() || !self.late_class.is_empty() {
            SampleResult::Lag
        } else {
            SampleResult::NoWord
        }
    }
}

/// A confirmed difference.
#[derive(Clone, Debug, PartialEq)]
pub struct Confirmed {
    pub differing: Differing,
    pub paths: Arc<[Arc<str>]>,
    pub since: Time,
}

/// The relation of a second or a control to the two sides.
enum Like {
    Class,
    Shadow,
    Neither,
    Unasked(Unasked),
}

/// The judgement about one name.
enum Verdict {
    Waits,
    /// The second or the control is older than the difference, and says nothing about it.
    Later,
    Ask(Unasked),
    LateShadow,
    LateClass,
    Restless,
    Torn,
    Confirmed,
}

/// A sample or a witness, with the shadows for the confirmation of differences.
#[derive(Clone, Debug)]
pub struct Trial {
    pub class: ClassKey,
    pub subject: Subject,
    pub sample: Probe,
    pub second: Option<Probe>,
    pub control: Option<Probe>,
    pub is_witness: bool,
    pub order: Option<OrderId>,
    pub look_at: Option<Time>,
    /// At the last look both sides had a word for everything.
    has_word: bool,
    confirming_since: Option<Time>,
    unsettled: BTreeMap<NameKey, Unsettled>,
    /// Decided differences that still stand.
    settled: BTreeMap<NameKey, DecidedDifference>,
}

impl Trial {
    pub fn new(class: ClassKey, subject: Subject, sample: Probe, order: Option<OrderId>) -> Trial {
        let look_at = Some(sample.since + WORD_MAX);
        Trial {
            class,
            subject,
            sample,
            second: None,
            control: None,
            is_witness: false,
            order,
            look_at,
            has_word: false,
            confirming_since: None,
            unsettled: BTreeMap::new(),
            settled: BTreeMap::new(),
        }
    }

    /// All shadows of the trial.
    pub fn probes(&self) -> impl Iterator<Item = &Probe> {
        [Some(&self.sample), self.second.as_ref(), self.control.as_ref()].into_iter().flatten()
    }

    pub fn is_confirming(&self) -> bool {
        self.confirming_since.is_some()
    }

    pub fn begin_confirming(&mut self, now: Time) {
        self.confirming_since.get_or_insert(now);
    }

    /// Ends a confirmation. The caller closes the returned shadows.
    pub fn end_confirming(&mut self) -> Vec<Probe> {
        self.confirming_since = None;
        [self.second.take(), self.control.take()].into_iter().flatten().collect()
    }

    /// Whether the last look found both sides equal, with a word for everything.
    pub fn was_equal(&self) -> bool {
        self.has_word && self.unsettled.is_empty() && self.settled.is_empty()
    }

    /// Whether the last look found both sides equal in a type, with a word for everything.
    pub fn was_equal_in(&self, type_url: &TypeUrl) -> bool {
        self.has_word && !self.differing_types().contains(type_url)
    }

    /// Whether some difference is undecided.
    pub fn is_undecided(&self) -> bool {
        !self.unsettled.is_empty()
    }

    /// Whether the sample has shown one of these states for a while, unlike the class: like a member with a
    /// confirmed difference.
    pub fn is_like(&self, shown: &BTreeMap<NameKey, Vec<Stance>>, meanings: &Meanings, now: Time) -> bool {
        self.unsettled.iter().any(|(key, difference)| is_like(key, *difference, shown, meanings, now))
    }

    /// The answer of the sample in a type. A difference counts as soon as it is confirmed, here or at another
    /// member.
    pub fn answer(
        &self,
        type_url: &TypeUrl,
        shown: &BTreeMap<NameKey, Vec<Stance>>,
        meanings: &Meanings,
        now: Time,
    ) -> DifferingAnswer {
        let settled = self.settled.iter().map(|(key, decided)| (key, decided.shadow, decided.is_confirmed));
        let unsettled = self.unsettled.iter().map(|(key, difference)| {
            (key, difference.shadow, is_like(key, *difference, shown, meanings, now))
        });
        let of_type = settled.chain(unsettled).filter(|state| state.0.type_url == *type_url);
        let states = of_type.map(|(key, shadow, is_sure)| (key.clone(), is_sure.then_some(shadow)));
        DifferingAnswer::new(states.collect(), self.sample.wants.clone())
    }

    /// The states of a type in which class and sample are unlike now.
    pub fn differing_states(&self, type_url: &TypeUrl) -> impl Iterator<Item = (&NameKey, Stance, Stance)> {
        let settled = self.settled.iter().map(|(key, decided)| (key, decided.class, decided.shadow));
        let unsettled =
            self.unsettled.iter().map(|(key, difference)| (key, difference.class, difference.shadow));
        settled.chain(unsettled).filter(move |state| state.0.type_url == *type_url)
    }

    /// The decided differences want another second and control (PRF-29).
    pub fn doubt(&mut self, settle: Duration, now: Time) {
        let since = now - settle;
        let settled = std::mem::take(&mut self.settled);
        let doubted = settled
            .into_iter()
            .map(|(key, DecidedDifference { class, shadow, .. })| (key, Unsettled { class, shadow, since }));
        self.unsettled.extend(doubted);
        self.look_soon(now);
    }

    /// Only differences by lag are left, so the trial may end for another that waits. A difference that has
    /// not stood for `settle` may be a real one.
    pub fn is_lagging(&self, settle: Duration, now: Time) -> bool {
        let is_old = |difference: &Unsettled| now.since(difference.since) > settle;
        !self.is_witness
            && !self.is_confirming()
            && !self.unsettled.is_empty()
            && self.unsettled.values().all(is_old)
    }

    /// Both sides want a look soon.
    pub fn look_soon(&mut self, at: Time) {
        self.look_at = Some(self.look_at.map_or(at, |look_at| look_at.min(at)));
    }

    /// The types with a difference now, decided or not.
    pub fn differing_types(&self) -> BTreeSet<&TypeUrl> {
        self.unsettled.keys().chain(self.settled.keys()).map(|key| &key.type_url).collect()
    }

    /// The number of compared names of a type.
    pub fn compared_names(&self, class: &Content, type_url: &TypeUrl) -> usize {
        let Some(content) = &self.sample.content else { return 0 };
        compare(&self.sample.wants, class, content).names.get(type_url).copied().unwrap_or(0)
    }

    /// Compares both sides, and decides about the next step.
    pub fn judge(&mut self, around: Surround<'_>) -> Judgement {
        self.look_at = None;
        let (Some(class), Some(shadow)) = (around.class.content, &self.sample.content) else {
            return self.wait_for_word(around);
        };
        let compared = compare(&self.sample.wants, class, shadow);
        let without_word = compared.without_word;
        self.has_word = without_word == 0;
        if self.has_word {
            self.sample.answered_at.get_or_insert(around.now);
        }
        self.update(compared, around);
        if !self.unsettled.is_empty() {
            return self.decide(around);
        }
        if self.was_equal() {
            return Judgement::Equal;
        }
        let next = if self.has_word { Judgement::Waits } else { self.wait_for_word(around) };
        // A confirmation without a difference would stay open for ever.
        if next == Judgement::Waits && self.is_confirming() { Judgement::Relax } else { next }
    }

    fn wait_for_word(&mut self, around: Surround<'_>) -> Judgement {
        let until = self.sample.since + WORD_MAX;
        if self.is_witness {
            return Judgement::Waits;
        }
        if around.now >= until {
            return Judgement::Done(Outcome::default());
        }
        self.look_soon(until);
        Judgement::Waits
    }

    /// Takes the differences over, each with the begin of its life.
    fn update(&mut self, compared: Compared, around: Surround<'_>) {
        let before = std::mem::take(&mut self.unsettled);
        let settled = std::mem::take(&mut self.settled);
        for Differing { key, class, shadow } in compared.differing {
            if around.evidence.is_restless(&key)
                || is_same(&key, class, shadow, around.meanings) == Some(true)
            {
                continue;
            }
            let decided = settled.get(&key).filter(|old| (old.class, old.shadow) == (class, shadow));
            if let Some(decided) = decided {
                self.settled.insert(key, *decided);
                continue;
            }
            let stood = before.get(&key).filter(|old| (old.class, old.shadow) == (class, shadow));
            let changed = [&around.class.history.changed_at(&key), &self.sample.history.changed_at(&key)]
                .into_iter()
                .flatten()
                .copied()
                .fold(Time::ZERO, Time::max);
            let since = stood.map_or(around.now, |old| old.since).max(changed);
            self.unsettled.insert(key, Unsettled { class, shadow, since });
        }
    }

    /// There are differences.
    fn decide(&mut self, around: Surround<'_>) -> Judgement {
        let mut due: Vec<NameKey> = self
            .unsettled
            .iter()
            .filter(|entry| self.is_due(entry.0, *entry.1, around))
            .map(|entry| entry.0.clone())
            .collect();
        let unasked = self.unasked(&due, around);
        if !unasked.is_empty() {
            return Judgement::Ask(unasked);
        }
        due.retain(|key| !self.may_be_late(key, around));
        if due.is_empty() {
            return self.wait_for_due(around);
        }
        let Some(since) = self.confirming_since else { return Judgement::Confirm };
        self.note_answers(&due, around.now);
        self.confirm(&due, since, around)
    }

    /// Whether a difference counts: old enough, or of a restless name; and no lag (PRF-12, PRF-13).
    fn is_due(&self, key: &NameKey, difference: Unsettled, around: Surround<'_>) -> bool {
        let (now, window) = (around.now, around.pace.window);
        let (class, shadow) = (around.class.history, &self.sample.history);
        if class.is_blind(now) || shadow.is_blind(now) {
            return false;
        }
        // A version that the class had lately is lag. A version of the class that the shadow had decides
        // nothing: a rule that changes the member alone looks so, too.
        let is_of_versions = difference.class.version != difference.shadow.version;
        if is_of_versions && class.has_had(key, difference.shadow.version, now, window) {
            return false;
        }
        now.since(difference.since) >= around.pace.settle || self.is_moving(key, around)
    }

    /// Whether another replica may only be late: no second tells, and where equal content is encoded at
    /// random, versions do not tell either. Nothing is late for longer than the window (PRF-18).
    fn may_be_late(&self, key: &NameKey, around: Surround<'_>) -> bool {
        let is_new = |difference: &Unsettled| around.now.since(difference.since) < around.pace.window;
        self.subject.member.is_none()
            && around.meanings.is_encoded_at_random(&key.type_url)
            && self.unsettled.get(key).is_some_and(is_new)
    }

    /// Whether the name changes all the time at both sides, without a version in common (PRF-13).
    fn is_moving(&self, key: &NameKey, around: Surround<'_>) -> bool {
        let (now, window) = (around.now, around.pace.window);
        let (class, shadow) = (around.class.history, &self.sample.history);
        // For half a window one side may only be late.
        now.since(self.sample.since) >= window / 2
            && !around.meanings.is_encoded_at_random(&key.type_url)
            && class.count(key, now, window) >= RESTLESS_CHANGES
            && shadow.count(key, now, window) >= RESTLESS_CHANGES
            && !class.shares(shadow, key, now, window)
    }

    /// The due pairs with unknown meaning, of one type.
    fn unasked(&self, due: &[NameKey], around: Surround<'_>) -> Vec<Unasked> {
        let pairs = due.iter().filter_map(|key| {
            let difference = self.unsettled.get(key)?;
            unasked(key, difference.class, difference.shadow, around.meanings)
        });
        let mut pairs: Vec<Unasked> = pairs.collect();
        if let Some(first) = pairs.first().map(|pair| pair.key.type_url.clone()) {
            pairs.retain(|pair| pair.key.type_url == first);
        }
        pairs.truncate(ASKED_MAX);
        pairs
    }

    /// No difference counts so far. Lag ends with the window, or by a publication.
    fn wait_for_due(&mut self, around: Surround<'_>) -> Judgement {
        let (settle, now) = (around.pace.settle, around.now);
        let until = self.sample.since + around.pace.window + WORD_MAX + settle;
        if !self.is_witness && now >= until {
            return Judgement::Done(Outcome { is_lag: true, ..Outcome::default() });
        }
        let standing = self.unsettled.values().map(|difference| difference.since + settle);
        let next = standing.filter(|at| *at > now).min();
        self.look_at = Some(next.unwrap_or(now + settle));
        if self.is_confirming() { Judgement::Relax } else { Judgement::Waits }
    }

    fn note_answers(&mut self, due: &[NameKey], now: Time) {
        for probe in [&mut self.second, &mut self.control].into_iter().flatten() {
            if probe.answered_at.is_none() && due.iter().all(|key| probe.stance(key).is_some()) {
                probe.answered_at = Some(now);
            }
        }
    }

    /// Judges the due names by the second and the control.
    fn confirm(&mut self, due: &[NameKey], since: Time, around: Surround<'_>) -> Judgement {
        let is_over = around.now.since(since) >= CONFIRM_MAX;
        let (mut outcome, mut asks) = (Outcome::default(), Vec::new());
        let (mut waits, mut is_later) = (false, false);
        for key in due {
            let Some(difference) = self.unsettled.get(key).copied() else { continue };
            match self.verdict(key, difference, around) {
                Verdict::Waits => waits = true,
                Verdict::Later => is_later = true,
                Verdict::Ask(unasked) => asks.push(unasked),
                Verdict::LateShadow => outcome.late_shadow.push((key.clone(), difference.since)),
                Verdict::LateClass => outcome.late_class.push((key.clone(), difference.since)),
                Verdict::Restless => outcome.restless.push(key.clone()),
                Verdict::Torn => outcome.is_torn = true,
                Verdict::Confirmed => outcome.confirmed.push(confirmed(key, difference, around.meanings)),
            }
        }
        if let Some(first) = asks.first().map(|ask| ask.key.type_url.clone()) {
            asks.retain(|ask| ask.key.type_url == first);
            asks.truncate(ASKED_MAX);
            return Judgement::Ask(asks);
        }
        if waits && !is_over {
            let answers =
                [&self.second, &self.control].into_iter().flatten().filter_map(|probe| probe.answered_at);
            let counts = answers.map(|at| at + QUIET).filter(|at| *at > around.now);
            self.look_at = counts.chain([around.now + LOOK_AFTER, since + CONFIRM_MAX]).min();
            return Judgement::Waits;
        }
        if is_later && outcome == Outcome::default() {
            self.look_at = Some(around.now + LOOK_AFTER);
            return Judgement::Relax;
        }
        self.settle(&outcome);
        Judgement::Done(outcome)
    }

    /// Remembers the decided differences: a witness does not confirm a difference twice.
    fn settle(&mut self, outcome: &Outcome) {
        let late = outcome.late_class.iter().chain(&outcome.late_shadow).map(|late| (&late.0, false));
        let confirmed = outcome.confirmed.iter().map(|confirmed| (&confirmed.differing.key, true));
        for (key, is_confirmed) in confirmed.chain(late) {
            if let Some(Unsettled { class, shadow, .. }) = self.unsettled.remove(key) {
                self.settled.insert(key.clone(), DecidedDifference { class, shadow, is_confirmed });
            }
        }
    }

    fn verdict(&self, key: &NameKey, difference: Unsettled, around: Surround<'_>) -> Verdict {
        // A side may be late, and half a window is more than streams are late. Without this wait a name would
        // leave the proof because of a push in the midst of it.
        let restless_after = (around.pace.window / 2).max(around.pace.settle);
        if self.subject.member.is_some() {
            let Some(second) = &self.second else { return Verdict::Waits };
            let Some(stance) = second.stance(key) else { return Verdict::Waits };
            if second.since < difference.since {
                return Verdict::Later;
            }
            // With the answer of the sample, the second stands for the sample, whatever the connection: the
            // control has to be beside the second.
            let is_elsewhere = is_apart(self.sample.connection, second.connection);
            let stood = self.stood(second, key, around);
            match self.like(key, stance, &second.history, difference, around) {
                Like::Shadow if stood >= QUIET => {}
                Like::Class if stood >= QUIET && is_elsewhere => return Verdict::Torn,
                Like::Class if stood >= QUIET => return Verdict::LateShadow,
                Like::Unasked(unasked) => return Verdict::Ask(unasked),
                Like::Neither if stood >= restless_after && is_elsewhere => return Verdict::Torn,
                Like::Neither if stood >= restless_after => return Verdict::Restless,
                Like::Class | Like::Shadow | Like::Neither => return Verdict::Waits,
            }
        }
        let Some(control) = &self.control else { return Verdict::Waits };
        let Some(stance) = control.stance(key) else { return Verdict::Waits };
        if control.since < difference.since {
            return Verdict::Later;
        }
        if self.second.as_ref().is_some_and(|second| is_apart(second.connection, control.connection)) {
            return Verdict::Torn;
        }
        let stood = self.stood(control, key, around);
        let is_elsewhere = is_apart(around.class.connection, control.connection);
        let is_late = around.now.since(difference.since) >= around.pace.window;
        match self.like(key, stance, &control.history, difference, around) {
            Like::Class if stood >= QUIET => Verdict::Confirmed,
            Like::Shadow if stood >= QUIET && is_elsewhere => Verdict::Torn,
            Like::Shadow if is_late => Verdict::LateClass,
            Like::Unasked(unasked) => Verdict::Ask(unasked),
            Like::Neither if stood >= restless_after && is_elsewhere => Verdict::Torn,
            Like::Neither if stood >= restless_after => Verdict::Restless,
            Like::Class | Like::Shadow | Like::Neither => Verdict::Waits,
        }
    }

    /// The age of a shadow's present answer about a name. A restless name counts from the first answer.
    fn stood(&self, probe: &Probe, key: &NameKey, around: Surround<'_>) -> Duration {
        let Some(answered_at) = probe.answered_at else { return Duration::ZERO };
        let changed_at = probe.history.changed_at(key).filter(|_| !self.is_moving(key, around));
        around.now.since(changed_at.map_or(answered_at, |at| at.max(answered_at)))
    }

    /// Compares a third side with the two. Restless names are compared by all versions of the window.
    fn like(
        &self,
        key: &NameKey,
        stance: Stance,
        history: &History,
        difference: Unsettled,
        around: Surround<'_>,
    ) -> Like {
        let (class, shadow) = (difference.class, difference.shadow);
        match (is_same(key, stance, class, around.meanings), is_same(key, stance, shadow, around.meanings)) {
            (Some(true), _) => Like::Class,
            (_, Some(true)) => Like::Shadow,
            (Some(false), Some(false)) if self.is_moving(key, around) => {
                let (now, window) = (around.now, around.pace.window);
                let meets = |side: &History, of_side: Stance| {
                    side.has_had(key, stance.version, now, window)
                        || history.has_had(key, of_side.version, now, window)
                        || history.shares(side, key, now, window)
                };
                match (meets(around.class.history, class), meets(&self.sample.history, shadow)) {
                    (true, false) => Like::Class,
                    (false, true) => Like::Shadow,
                    (true, true) | (false, false) => Like::Neither,
                }
            }
            (Some(false), Some(false)) => Like::Neither,
            (None, _) | (_, None) => {
                let ask = |side| unasked(key, stance, side, around.meanings);
                ask(class).or_else(|| ask(shadow)).map_or(Like::Neither, Like::Unasked)
            }
        }
    }
}

/// Whether a difference has stood for a while, and shows one of these states.
fn is_like(
    key: &NameKey,
    difference: Unsettled,
    shown: &BTreeMap<NameKey, Vec<Stance>>,
    meanings: &Meanings,
    now: Time,
) -> bool {
    let is_shown = |stance: &Stance| is_same(key, difference.shadow, *stance, meanings) == Some(true);
    now.since(difference.since) >= QUIET && shown.get(key).is_some_and(|shown| shown.iter().any(is_shown))
}

/// Whether two streams are on two known connections.
fn is_apart(one: Option<u64>, other: Option<u64>) -> bool {
    one.zip(other).is_some_and(|pair| pair.0 != pair.1)
}

/// The two versions, if the caller has to ask whether they mean the same.
pub fn unasked(key: &NameKey, one: Stance, other: Stance, meanings: &Meanings) -> Option<Unasked> {
    if is_same(key, one, other, meanings).is_some() {
        return None;
    }
    let (one, other) = one.version.zip(other.version)?;
    Some(Unasked { key: key.clone(), one, other })
}

fn confirmed(key: &NameKey, difference: Unsettled, meanings: &Meanings) -> Confirmed {
    let Unsettled { class, shadow, since } = difference;
    let paths =
        class.version.zip(shadow.version).map(|(one, other)| meanings.relation(&key.type_url, one, other));
    let paths = match paths {
        Some(Relation::Unlike(paths)) => paths,
        Some(Relation::Same | Relation::Unasked) | None => Arc::default(),
    };
    Confirmed { differing: Differing { key: key.clone(), class, shadow }, paths, since }
}
