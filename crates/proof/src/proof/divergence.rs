//! The confirmed divergences of a class (PRF-17).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::answer::DifferingAnswer;
use super::comparison::{Differing, Stance, is_same, is_same_subscription};
use super::departure::Departure;
use super::evidence::shown_id;
use super::history::NameKey;
use super::input::{MemberId, Wanted};
use super::meaning::Meanings;
use super::population::{FieldNumber, FieldPaths, Pair, Population, Print, Resident, Row, shown_value};
use super::report::{Divergence, DivergentName};
use super::trial::{Confirmed, Subject, Trial, Unasked, unasked};
use crate::explanation::{explain_rows, value_at, values_at};
use crate::node_fields::FieldRank;
use sluice_engine::Time;
use sluice_xds::{Node, ResourceName, TypeUrl};

/// Names, and fields, in a report (PRF-17).
const LISTED_MAX: usize = 100;
/// Members to remember for the explanation.
const ROWS_MAX: usize = 64;
/// Equal rows to remember: those of all witnesses, and some more.
const EQUAL_MAX: usize = 320;
/// Values, and explanations, in a report.
const VALUES_MAX: usize = 16;
const EXPLANATIONS_MAX: usize = 8;
/// Samples that are taken only to tell several explanations apart.
const TRIES_MAX: u32 = 8;
/// Samples of one member for an explanation: a stream may end without an answer.
const ASKS_MAX: u32 = 3;
/// The samples for an explanation take so long at most, so that a split follows its push within 20 s.
const ASKED_FOR: Duration = Duration::from_secs(8);
/// While no shadow may begin, the explanation waits, and for so long at most.
const ASKED_WITHIN: Duration = Duration::from_secs(60);

/// A differing member.
#[derive(Clone, Debug)]
struct Counterexample {
    member: Option<MemberId>,
    node: Arc<Node>,
    shown: Shown,
    /// The answer is of before a wait of the class, or cannot be compared: the member has to be asked again.
    is_outdated: bool,
    /// The begin of the explanation.
    asks_since: Time,
    /// Until then further samples may make the explanation better.
    asks_until: Time,
}

impl Counterexample {
    /// The member was asked again.
    fn renew(&mut self, now: Time) {
        if std::mem::take(&mut self.is_outdated) {
            self.asks_until = (now + ASKED_FOR).min(self.asks_since + ASKED_WITHIN);
        }
    }

    fn wait(&mut self, now: Time) {
        let until = (now + ASKED_FOR).min(self.asks_since + ASKED_WITHIN);
        self.asks_until = self.asks_until.max(until);
    }
}

/// The answer of a differing member, and the values that may explain the answer.
#[derive(Clone, Debug)]
struct Shown {
    row: Row,
    answer: DifferingAnswer,
    answered_at: Time,
}

/// A member that is equal in all names of the type that it asks for.
#[derive(Clone, Debug)]
pub struct EqualMember {
    row: Row,
    wants: Arc<[Wanted]>,
}

impl EqualMember {
    pub fn of(trial: &Trial) -> EqualMember {
        EqualMember { row: trial.subject.row.clone(), wants: trial.sample.wants.clone() }
    }
}

/// The names in which members differ.
#[derive(Clone, Debug, Default)]
struct Differences {
    names: BTreeMap<ResourceName, DivergentName>,
    count: usize,
    compared: usize,
    /// The states that members were shown, and their class was not.
    shown: BTreeMap<NameKey, Vec<Stance>>,
}

/// A divergence of one type, as long as some member differs. Wide because all of the evidence ends with the
/// divergence.
#[derive(Clone, Debug)]
pub struct Record {
    type_url: TypeUrl,
    differences: Differences,
    since: Time,
    /// By the key of the node.
    members: BTreeMap<u64, Counterexample>,
    /// The class's own node, which is equal in all names.
    class: Row,
    /// Equal members in the type since the evidence began.
    equal: Vec<EqualMember>,
    /// Members with an answer like that of a differing member, without a control: evidence for the
    /// explanation alone.
    alike: BTreeMap<u64, Shown>,
    /// Equal rows of before a new difference say nothing about that difference.
    evidence_since: Time,
    explained_by: Vec<Vec<FieldNumber>>,
    tries: u32,
    /// How often members were asked for the explanation.
    asks: BTreeMap<u64, u32>,
    /// The time of the last report as an event (PRF-26).
    pub told_at: Option<Time>,
    /// The breaker was open: the divergence counts again after another confirmation (PRF-29).
    pub is_doubted: bool,
}

/// Explanations by plain fields of some members together.
#[derive(Clone, Debug)]
pub struct Theory {
    explanations: Vec<Vec<FieldNumber>>,
    members: Vec<u64>,
    /// The values of all nodes with the answer of these members.
    rows: Vec<Row>,
}

/// A member whose answer makes a theory better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitQuestion {
    pub member: MemberId,
    pub purpose: QuestionPurpose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionPurpose {
    /// The answer of a differing member is not known any more.
    Renew,
    /// The answer tells explanations apart.
    TellApart,
    /// The answer supports the only explanation.
    Support,
    /// The explanation is supported, and may be wrong for the member. A split does not wait until the member
    /// can be asked.
    Doubt,
}

impl Theory {
    /// All fields of the explanations. A member with the values of all of these fields leaves by no wrong
    /// field, whichever explanation is right.
    pub fn fields(&self) -> Vec<FieldNumber> {
        let fields: BTreeSet<FieldNumber> = self.explanations.iter().flatten().copied().collect();
        fields.into_iter().collect()
    }

    /// Whether two nodes with these values differ.
    fn is_supported(&self, fields: &[FieldNumber], values: &[u64]) -> bool {
        self.rows.iter().filter(|row| values_at(row, fields) == values).count() >= 2
    }

    /// Whether a node with these values has all that the differing nodes have in common, missing fields
    /// included, and this explains them: whichever common values are the reason, the node has these, too.
    fn has_common(&self, row: &Row) -> bool {
        let Some(first) = self.rows.first() else { return false };
        let fields: BTreeSet<FieldNumber> =
            self.rows.iter().chain([row]).flat_map(|row| row.iter().map(|pair| pair.0)).collect();
        let is_common = |field: &FieldNumber| {
            self.rows.iter().all(|other| value_at(other, *field) == value_at(first, *field))
        };
        self.explanations.iter().any(|set| set.iter().all(is_common))
            && fields
                .iter()
                .all(|field| !is_common(field) || value_at(row, *field) == value_at(first, *field))
    }
}

/// The class of a record, for its report.
#[derive(Clone, Copy)]
pub struct RecordClass<'a> {
    pub class: &'a Arc<str>,
    pub rule: &'a Arc<str>,
    pub node: &'a Node,
    pub population: &'a Population,
    pub paths: &'a FieldPaths,
}

impl Record {
    pub fn new(type_url: TypeUrl, class: Row, since: Time) -> Record {
        Record {
            type_url,
            differences: Differences::default(),
            since,
            members: BTreeMap::new(),
            class,
            equal: Vec::new(),
            alike: BTreeMap::new(),
            evidence_since: since,
            explained_by: Vec::new(),
            tries: 0,
            asks: BTreeMap::new(),
            told_at: None,
            is_doubted: false,
        }
    }

    /// Adds a counterexample with its names. Secrets are counted only (PRF-7).
    pub fn add(
        &mut self,
        trial: &Trial,
        confirmed: &[Confirmed],
        compared: usize,
        meanings: &Meanings,
        now: Time,
    ) {
        self.is_doubted = false;
        let subject = &trial.subject;
        let answer = trial.answer(&self.type_url, &self.differences.shown, meanings, now);
        let shown = Shown { row: subject.row.clone(), answer, answered_at: now };
        if self.members.len() < ROWS_MAX || self.members.contains_key(&subject.node_key) {
            let counterexample = Counterexample {
                member: subject.member,
                node: subject.node.clone(),
                shown,
                is_outdated: false,
                asks_since: now,
                asks_until: now + ASKED_FOR,
            };
            self.members.insert(subject.node_key, counterexample);
        }
        let differences = &mut self.differences;
        differences.compared = differences.compared.max(compared);
        differences.count = differences.count.max(confirmed.len());
        for Confirmed { differing, .. } in confirmed.iter().take(LISTED_MAX) {
            let shown = differences.shown.entry(differing.key.clone()).or_default();
            if shown.len() < ROWS_MAX && !shown.contains(&differing.shadow) {
                shown.push(differing.shadow);
            }
        }
        if self.type_url.is_secret() {
            return;
        }
        for Confirmed { differing, paths, .. } in confirmed {
            let name = differing.key.name.clone();
            if differences.names.len() < LISTED_MAX || differences.names.contains_key(&name) {
                let divergent = DivergentName {
                    name: name.clone(),
                    class_version: differing.class.version,
                    member_version: differing.shadow.version,
                    paths: paths.to_vec(),
                };
                differences.names.insert(name, divergent);
            }
        }
        differences.count = differences.count.max(differences.names.len());
    }

    /// Before a counterexample is added: another answer than all before is the sign of another rule at the
    /// server. Members that were equal before that rule came are no evidence about the rule (PRF-27).
    pub fn forget_equal(
        &mut self,
        subject: &Subject,
        confirmed: &[Confirmed],
        meanings: &Meanings,
        now: Time,
    ) {
        self.alike.remove(&subject.node_key);
        self.equal.retain(|equal| equal.row != subject.row);
        let is_new = |one: &Confirmed| {
            let Differing { key, shadow, .. } = &one.differing;
            let is_known = |shown: &Stance| is_same(key, *shadow, *shown, meanings) == Some(true);
            self.differences.shown.get(key).is_none_or(|shown| !shown.iter().any(is_known))
        };
        if !self.members.is_empty() && confirmed.iter().any(is_new) {
            self.forget_evidence(now);
        }
    }

    fn forget_evidence(&mut self, now: Time) {
        (self.tries, self.evidence_since) = (0, now);
        self.equal.clear();
        self.alike.clear();
        self.asks.clear();
    }

    /// A member is equal in the type, while others differ. Returns whether this is news.
    pub fn add_equal(&mut self, trial: &Trial) -> bool {
        let equal = EqualMember::of(trial);
        if let Some(twin) = self.equal.iter_mut().find(|twin| twin.row == equal.row) {
            let is_new = !is_same_subscription(&twin.wants, &equal.wants);
            *twin = equal;
            return is_new;
        }
        let is_new = self.equal.len() < EQUAL_MAX;
        if is_new {
            self.equal.push(equal);
        }
        is_new
    }

    /// The class has another node, which is equal in all names.
    pub fn show(&mut self, class: &Row) {
        self.class.clone_from(class);
    }

    /// The rows of the equal members that ask for a name in which one of these differs: others say nothing.
    fn equal_to_class(&self, differing: &[&Shown]) -> Vec<Row> {
        let is_evidence =
            |equal: &&EqualMember| differing.iter().any(|shown| shown.answer.is_seen_by(&equal.wants));
        let equal = self.equal.iter().filter(is_evidence).map(|equal| &equal.row);
        equal.chain([&self.class]).cloned().collect()
    }

    /// A member is equal again, or has left. Returns whether no member differs any more.
    pub fn remove(&mut self, node_key: u64) -> bool {
        self.members.remove(&node_key);
        self.members.is_empty()
    }

    /// Takes the present answer of a sample: of a differing member, of one with such an answer, or of one
    /// that is equal in the type, whatever other types say. Returns whether the answer was not known.
    pub fn note(&mut self, trial: &Trial, meanings: &Meanings, now: Time) -> bool {
        let (node_key, row) = (trial.subject.node_key, &trial.subject.row);
        let shown = &self.differences.shown;
        let is_member = self.members.contains_key(&node_key);
        if !is_member && trial.was_equal_in(&self.type_url) {
            return self.add_equal(trial);
        }
        if !is_member && !trial.is_like(shown, meanings, now) {
            return false;
        }
        let answer = trial.answer(&self.type_url, shown, meanings, now);
        let is_read = trial.is_witness || answer.is_decided();
        let shown = Shown { row: row.clone(), answer, answered_at: now };
        if let Some(member) = self.members.get_mut(&node_key) {
            if is_read {
                member.shown = shown;
                member.renew(now);
            }
            return false;
        }
        let is_new = self.alike.len() < EQUAL_MAX && self.alike.insert(node_key, shown).is_none();
        if is_new {
            self.equal.retain(|equal| equal.row != *row);
        }
        is_new
    }

    /// The answers of closed samples cannot be compared with further ones, where equal content is encoded at
    /// random: these members have to be asked again. `open`: the nodes of the open samples.
    pub fn forget_uncompared(&mut self, open: &BTreeSet<u64>, meanings: &Meanings) {
        if !meanings.is_encoded_at_random(&self.type_url) {
            return;
        }
        let is_uncompared = |one: &Shown| {
            self.known()
                .any(|other| !self.is_before(one, other) && one.answer.is_uncompared(&other.answer, meanings))
        };
        let members = self.members.iter().filter(|member| !member.1.is_outdated);
        let of_members = members.map(|(key, member)| (*key, &member.shown));
        let closed = of_members.chain(self.alike.iter().map(|(key, shown)| (*key, shown)));
        let closed = closed.filter(|(key, shown)| !open.contains(key) && is_uncompared(shown));
        for key in closed.map(|entry| entry.0).collect::<Vec<_>>() {
            self.alike.remove(&key);
            if let Some(member) = self.members.get_mut(&key) {
                member.is_outdated = true;
                member.asks_until = member.asks_since + ASKED_WITHIN;
            }
        }
    }

    /// The member does not have the answer of a differing member any more. Returns whether it had.
    pub fn forget_alike(&mut self, node_key: u64) -> bool {
        self.alike.remove(&node_key).is_some()
    }

    /// Whether the answer of a sample that explains the divergence is known: equal to the class, or like that
    /// of a differing member, with no meaning left to ask for.
    pub fn is_enough(&self, trial: &Trial, meanings: &Meanings) -> bool {
        let is_alike = || self.is_known(trial.subject.node_key);
        trial.was_equal_in(&self.type_url)
            || is_alike() && self.unasked([trial].into_iter(), meanings).is_empty()
    }

    pub fn since(&self) -> Time {
        self.since
    }

    pub fn has(&self, node_key: u64) -> bool {
        self.members.contains_key(&node_key)
    }

    /// The differing nodes.
    pub fn node_keys(&self) -> impl Iterator<Item = u64> {
        self.members.keys().copied()
    }

    /// Finds the explanations anew. Unique fields come last.
    pub fn explain(&mut self, population: &Population, paths: &FieldPaths) {
        let members = self.members.values().map(|member| &member.shown);
        let shown: Vec<&Shown> = members.chain(self.alike.values()).collect();
        let unequal: Vec<Row> = shown.iter().map(|shown| shown.row.clone()).collect();
        let equal = self.equal_to_class(&shown);
        self.explained_by = explain_rows(&equal, &unequal, |field| rank_of(field, population, paths));
    }

    /// The answers that are evidence.
    fn known(&self) -> impl Iterator<Item = &Shown> {
        let members = self.members.values().filter(|member| !member.is_outdated);
        members.map(|member| &member.shown).chain(self.alike.values())
    }

    fn is_known(&self, node_key: u64) -> bool {
        self.alike.contains_key(&node_key)
            || self.members.get(&node_key).is_some_and(|member| !member.is_outdated)
    }

    /// Whether the members of a theory have to be asked again.
    pub fn is_outdated(&self, theory: &Theory) -> bool {
        theory.members.iter().any(|key| !self.is_known(*key))
    }

    /// The rows of the members that have to be asked again, while there is time.
    pub fn outdated(&self, now: Time) -> Vec<Row> {
        let is_awaited = |member: &&Counterexample| member.is_outdated && now < member.asks_until;
        self.members.values().filter(is_awaited).map(|member| member.shown.row.clone()).collect()
    }

    /// An answer of before the newest rule of the server is no evidence about the answers since.
    fn is_before(&self, one: &Shown, other: &Shown) -> bool {
        (one.answered_at < self.evidence_since) != (other.answered_at < self.evidence_since)
    }

    /// The members with a known answer that do not leave anyway, those with the same answer together.
    fn groups(&self, meanings: &Meanings, leaves: impl Fn(u64, &Row) -> bool) -> Vec<Vec<u64>> {
        let mut groups: Vec<Vec<(u64, &Shown)>> = Vec::new();
        for (key, member) in &self.members {
            let shown = &member.shown;
            if leaves(*key, &shown.row) || member.is_outdated {
                continue;
            }
            let is_apart = |other: &(u64, &Shown)| {
                self.is_before(shown, other.1) || shown.answer.is_unlike(&other.1.answer, meanings)
            };
            match groups.iter_mut().find(|group| !group.iter().any(is_apart)) {
                Some(group) => group.push((*key, shown)),
                None => groups.push(vec![(*key, shown)]),
            }
        }
        groups.into_iter().map(|group| group.into_iter().map(|member| member.0).collect()).collect()
    }

    /// Explains the members that do not leave anyway: those with one answer together, or each alone if no
    /// plain field explains them (PRF-27). Members with another answer are as unlike these as equal ones.
    /// Nothing explains the members that have to be asked again.
    pub fn theories(
        &self,
        population: &Population,
        paths: &FieldPaths,
        meanings: &Meanings,
        leaves: impl Fn(u64, &Row) -> bool,
    ) -> Vec<Theory> {
        let is_plain = |set: &Vec<FieldNumber>| {
            set.iter().all(|field| rank_of(*field, population, paths) == FieldRank::Plain)
        };
        let plain = |equal: &[Row], unequal: &[Row]| -> Vec<Vec<FieldNumber>> {
            let sets = explain_rows(equal, unequal, |field| rank_of(field, population, paths));
            sets.into_iter().filter(is_plain).collect()
        };
        let mut theories = Vec::new();
        for members in self.groups(meanings, &leaves) {
            let shown = |key: &u64| self.members.get(key).map(|member| &member.shown);
            let of_group: Vec<&Shown> = members.iter().filter_map(shown).collect();
            let (mut equal, mut rows) = (self.equal_to_class(&of_group), Vec::new());
            for other in self.known() {
                let is_unlike = of_group.iter().any(|one| one.answer.is_unlike(&other.answer, meanings));
                let is_before = of_group.iter().any(|one| self.is_before(one, other));
                // A newer answer tells its member from those with older ones.
                if is_before && (!is_unlike || other.answered_at < self.evidence_since) {
                    continue;
                }
                if is_unlike { &mut equal } else { &mut rows }.push(other.row.clone());
            }
            let explanations = plain(&equal, &rows);
            if !explanations.is_empty() {
                theories.push(Theory { explanations, members, rows });
                continue;
            }
            let alone = |key: u64| {
                let explanations = plain(&equal, std::slice::from_ref(&self.members.get(&key)?.shown.row));
                Some(Theory { explanations, members: vec![key], rows: rows.clone() })
            };
            theories.extend(members.into_iter().filter_map(alone));
        }
        let outdated = self
            .members
            .iter()
            .filter(|(key, member)| member.is_outdated && !leaves(**key, &member.shown.row));
        let again = |key: &u64| Theory { explanations: Vec::new(), members: vec![*key], rows: Vec::new() };
        theories.extend(outdated.map(|entry| again(entry.0)));
        theories
    }

    /// Nobody can be asked now: the members wait for better explanations, up to a bound.
    pub fn wait_for_samples(&mut self, now: Time) {
        self.members.values_mut().for_each(|member| member.wait(now));
    }

    /// The member of the class whose answer makes a theory better. `class`: the row of the class's own node.
    /// `asked`: the fingerprints of the open samples for explanations.
    /// `None`: enough was asked, or nobody is free.
    pub fn question(
        &self,
        theory: &Theory,
        population: &Population,
        class: &Row,
        is_free: impl Fn(&Resident, Time) -> bool,
        asked: &BTreeSet<Print>,
        now: Time,
    ) -> Option<SplitQuestion> {
        let members: Vec<&Counterexample> =
            theory.members.iter().filter_map(|key| self.members.get(key)).collect();
        if members.iter().all(|member| now >= member.asks_until) {
            return None;
        }
        let asks = |resident: &Resident| self.asks.get(&resident.node_key).copied().unwrap_or(0);
        let is_free = |resident: &Resident| {
            is_free(resident, self.evidence_since)
                && !self.is_known(resident.node_key)
                && asks(resident) < ASKS_MAX
        };
        if self.is_outdated(theory) {
            let again = members.iter().filter_map(|member| member.member);
            let mut free = again.filter(|id| population.get(*id).is_some_and(is_free));
            return free.next().map(|member| SplitQuestion { member, purpose: QuestionPurpose::Renew });
        }
        if theory.explanations.is_empty() {
            return None;
        }
        let is_concerned =
            |resident: &Resident| members.iter().any(|one| one.shown.answer.is_seen_by(&resident.wants));
        // Those that were asked in vain come last.
        let find = |prints: &[Print], again: bool| {
            let mut residents = prints.iter().flat_map(|print| population.with_print(*print));
            let is_next = |resident: &Resident| {
                (asks(resident) > 0) == again
                    && !asked.contains(&resident.print)
                    && is_concerned(resident)
                    && is_free(resident)
            };
            let free = residents.find(|entry| is_next(entry.1));
            free.map(|entry| entry.0)
        };
        let first = |prints: Vec<Print>| {
            let again = || find(&prints, true).filter(|_| !self.asks.is_empty());
            find(&prints, false).or_else(again)
        };
        let may_try = self.tries < TRIES_MAX;
        let tell_apart = || first(self.telling(theory, population)).filter(|_| may_try);
        let support = || first(self.supporting(theory, population, now));
        let doubt = || first(self.doubtful(theory, population, class, now)).filter(|_| may_try);
        let question = |purpose| move |member| SplitQuestion { member, purpose };
        tell_apart()
            .map(question(QuestionPurpose::TellApart))
            .or_else(|| support().map(question(QuestionPurpose::Support)))
            .or_else(|| doubt().map(question(QuestionPurpose::Doubt)))
    }

    /// The fingerprints that tell explanations apart, those that refute most first.
    fn telling(&self, theory: &Theory, population: &Population) -> Vec<Print> {
        let members: Vec<&Row> =
            theory.members.iter().filter_map(|key| Some(&self.members.get(key)?.shown.row)).collect();
        let suspects = theory.explanations.iter().map(|fields| {
            let values: BTreeSet<Vec<u64>> = members.iter().map(|row| values_at(row, fields)).collect();
            (fields, values)
        });
        let suspects: Vec<_> = suspects.collect();
        let refuted = |row: &Row| {
            let is_suspect = |suspect: &&(&Vec<FieldNumber>, BTreeSet<Vec<u64>>)| {
                suspect.1.contains(&values_at(row, suspect.0))
            };
            let agreeing = suspects.iter().filter(is_suspect).count();
            agreeing.min(suspects.len() - agreeing)
        };
        let prints = population.prints().map(|entry| (refuted(entry.1), entry.0));
        let mut prints: Vec<(usize, Print)> = prints.filter(|entry| entry.0 > 0).collect();
        prints.sort_unstable_by_key(|entry| (Reverse(entry.0), entry.1));
        prints.into_iter().map(|entry| entry.1).collect()
    }

    /// The fingerprints with the values of a member that no other member supports, those first that have the
    /// least else in common with the member.
    fn supporting(&self, theory: &Theory, population: &Population, now: Time) -> Vec<Print> {
        let fields = theory.fields();
        let mut supporting: Vec<(usize, Print)> = Vec::new();
        let members = theory.members.iter().filter_map(|key| self.members.get(key));
        for member in members.filter(|member| now < member.asks_until) {
            let values = values_at(&member.shown.row, &fields);
            if theory.is_supported(&fields, &values) {
                continue;
            }
            let alike =
                |row: &Row| row.iter().filter(|pair| member.shown.row.binary_search(pair).is_ok()).count();
            let prints = population.prints_with(&fields, &values);
            supporting.extend(prints.map(|(print, row)| (alike(row), print)));
        }
        supporting.sort_unstable();
        supporting.into_iter().map(|entry| entry.1).collect()
    }

    /// The fingerprints with the values of a member that leave by a wrong field, if the explanation is wrong:
    /// those that have more in common with the class than all nodes that are known to differ; and those that
    /// lack most of what all these nodes have in common, which may be a part of the reason.
    fn doubtful(&self, theory: &Theory, population: &Population, class: &Row, now: Time) -> Vec<Print> {
        let fields = theory.fields();
        let has = |row: &Row, pair: &Pair| row.binary_search(pair).is_ok();
        let mut doubtful: Vec<(Reverse<usize>, Print)> = Vec::new();
        let members = theory.members.iter().filter_map(|key| self.members.get(key));
        for member in members.filter(|member| now < member.asks_until) {
            let values = values_at(&member.shown.row, &fields);
            let alike: Vec<&Row> =
                theory.rows.iter().filter(|row| values_at(row, &fields) == values).collect();
            for (print, row) in population.prints_with(&fields, &values) {
                let of_print = |pair: &&Pair| row.binary_search_by_key(&pair.0, |one| one.0).is_ok();
                let of_class =
                    |other: &Row| other.iter().filter(of_print).filter(|pair| has(class, pair)).count();
                let is_like_class = alike.iter().all(|other| of_class(other) < of_class(row));
                let is_shared = |pair: &&Pair| alike.iter().all(|other| has(other, pair));
                let lacks = |pair: &&Pair| !has(row, pair);
                let lacking = member.shown.row.iter().filter(of_print).filter(is_shared).filter(lacks);
                let doubts = lacking.count() + usize::from(is_like_class);
                if doubts > 0 {
                    doubtful.push((Reverse(doubts), print));
                }
            }
        }
        doubtful.sort_unstable();
        doubtful.into_iter().map(|entry| entry.1).collect()
    }

    /// Members waited for reasons of their class, and what explains them is found anew: `equal` are the
    /// members that are equal now. Differing members without an open sample are asked again.
    pub fn begin_anew(&mut self, equal: Vec<EqualMember>, now: Time) {
        self.forget_evidence(now);
        self.equal = equal;
        for member in self.members.values_mut() {
            (member.is_outdated, member.asks_since, member.asks_until) = (true, now, now + ASKED_WITHIN);
        }
    }

    /// Pairs of states with unknown meaning: of members that may differ in one way or in two, and of samples
    /// that may be equal to the class (PRF-14). Only where equal content is encoded at random: elsewhere
    /// unequal bytes are unequal answers.
    pub fn unasked<'a>(&self, trials: impl Iterator<Item = &'a Trial>, meanings: &Meanings) -> Vec<Unasked> {
        if !meanings.is_encoded_at_random(&self.type_url) {
            return Vec::new();
        }
        let (mut firsts, mut pairs): (BTreeMap<&NameKey, Vec<Stance>>, Vec<Unasked>) = Default::default();
        let answers = self.known().flat_map(|shown| shown.answer.states());
        let differing: Vec<(&NameKey, Stance, Stance)> =
            trials.flat_map(|trial| trial.differing_states(&self.type_url)).collect();
        pairs.extend(
            differing.iter().filter_map(|(key, class, shadow)| unasked(key, *class, *shadow, meanings)),
        );
        for (key, stance) in answers.chain(differing.iter().map(|(key, _, shadow)| (*key, *shadow))) {
            let firsts = firsts.entry(key).or_default();
            if firsts.iter().any(|first| is_same(key, *first, stance, meanings) == Some(true)) {
                continue;
            }
            let before = pairs.len();
            pairs.extend(firsts.iter().filter_map(|first| unasked(key, *first, stance, meanings)));
            if pairs.len() == before {
                firsts.push(stance);
            }
        }
        pairs
    }

    /// The members that leave now by a theory. `is_asked`: a sample may make the theory better yet.
    ///
    /// If several explanations are left, the members leave by the values of all of their fields. Values that
    /// a single node supports, while others have them, are no reason to move the others, unless they have all
    /// that the differing nodes have in common: the node leaves alone, by its id. With the first member that
    /// leaves by the fields go all that are known to have its answer: once the member has left, nobody knows
    /// the answer any more.
    pub fn departures(
        &self,
        theory: &Theory,
        population: &Population,
        is_asked: bool,
        now: Time,
    ) -> Vec<Departure> {
        let explained_by = theory.fields();
        let mut departures: Vec<Departure> = Vec::new();
        for key in &theory.members {
            let Some(member) = self.members.get(key) else { continue };
            if is_asked && now < member.asks_until {
                continue;
            }
            let others_differ = |values: &[u64]| {
                let differs = |other: &Resident| {
                    other.node_key == *key || theory.has_common(&population.full_row(other))
                };
                let mut prints = population.prints_with(&explained_by, values);
                prints.all(|entry| population.with_print(entry.0).all(|other| differs(other.1)))
            };
            let leave = |values: &Vec<u64>| {
                !explained_by.is_empty()
                    && (theory.is_supported(&explained_by, values) || others_differ(values))
            };
            let (fields, tuples) = match leave(&values_at(&member.shown.row, &explained_by)) {
                true => {
                    let tuples = theory.rows.iter().map(|row| values_at(row, &explained_by));
                    (explained_by.clone(), tuples.filter(leave).collect())
                }
                false => (Vec::new(), BTreeSet::from([vec![*key]])),
            };
            match departures.iter_mut().find(|departure| departure.fields == fields) {
                Some(departure) => departure.tuples.extend(tuples),
                None => {
                    let explained_by = explained_by.clone();
                    departures.push(Departure { fields, tuples, first: *key, explained_by });
                }
            }
        }
        departures
    }

    /// The rows of the members that wait for a better explanation.
    pub fn waiting(&self, theory: &Theory, now: Time) -> Vec<Row> {
        let members = theory.members.iter().filter_map(|key| self.members.get(key));
        members.filter(|member| now < member.asks_until).map(|member| member.shown.row.clone()).collect()
    }

    /// The values of a differing node.
    pub fn row(&self, node_key: u64) -> Option<&Row> {
        self.members.get(&node_key).map(|member| &member.shown.row)
    }

    /// The id of a differing node.
    pub fn node_id(&self, node_key: u64) -> Option<&str> {
        self.members.get(&node_key).map(|member| &*member.node.id)
    }

    /// How well a sample of the row tells the explanations apart: the minimum number of refuted explanations,
    /// whatever the result. `None`: not at all, or enough was tried.
    pub fn splits(&self, row: &Row) -> Option<usize> {
        let (Some(counterexample), true) = (self.members.values().next(), self.tries < TRIES_MAX) else {
            return None;
        };
        if self.explained_by.len() < 2 {
            return None;
        }
        let agrees = |fields: &&Vec<FieldNumber>| {
            values_at(row, fields) == values_at(&counterexample.shown.row, fields)
        };
        let agreeing = self.explained_by.iter().filter(agrees).count();
        let ended = agreeing.min(self.explained_by.len() - agreeing);
        (ended > 0).then_some(ended)
    }

    /// A sample is taken for the explanation.
    pub fn try_once(&mut self) {
        self.tries += 1;
    }

    /// A member is asked for the explanation.
    pub fn ask(&mut self, node_key: u64, purpose: QuestionPurpose) {
        *self.asks.entry(node_key).or_default() += 1;
        if matches!(purpose, QuestionPurpose::TellApart | QuestionPurpose::Doubt) {
            self.try_once();
        }
    }

    /// The report; `None` without a differing member.
    pub fn report(&self, class: RecordClass<'_>) -> Option<Divergence> {
        let first = self.members.values().next()?;
        let fields = self.explained_by.first().cloned().unwrap_or_default();
        let suspect: BTreeSet<Vec<u64>> =
            self.members.values().map(|member| values_at(&member.shown.row, &fields)).collect();
        let clients = match fields.is_empty() {
            true => self.members.len(),
            false => class.population.count_with(&fields, &suspect),
        };
        let path = |field: &FieldNumber| class.paths.path(*field);
        let text = |row: &Row, field: FieldNumber| {
            class.population.text(&(field, value_at(row, field))).map_or_else(|| "-".into(), shown_value)
        };
        let texts: BTreeSet<Vec<Arc<str>>> = self
            .members
            .values()
            .map(|member| fields.iter().map(|field| text(&member.shown.row, *field)).collect())
            .collect();
        let differing = class.node.differences(&first.node, LISTED_MAX);
        let explanations = self.explained_by.iter().take(EXPLANATIONS_MAX);
        Some(Divergence {
            class: class.class.clone(),
            rule: class.rule.clone(),
            type_url: self.type_url.clone(),
            names: self.differences.names.values().cloned().collect(),
            name_count: self.differences.count,
            compared: self.differences.compared,
            member: first.member.unwrap_or(MemberId(0)),
            member_id: shown_id(&first.node.id),
            representative_id: shown_id(&class.node.id),
            differing_fields: differing.into_iter().map(Arc::from).collect(),
            explained_by: explanations.map(|set| set.iter().map(path).collect()).collect(),
            suspect_values: texts.into_iter().filter(|_| !fields.is_empty()).take(VALUES_MAX).collect(),
            clients,
            since: self.since,
        })
    }
}

fn rank_of(field: FieldNumber, population: &Population, paths: &FieldPaths) -> FieldRank {
    if population.is_unique(field) { FieldRank::Unique } else { paths.rank(field) }
}
