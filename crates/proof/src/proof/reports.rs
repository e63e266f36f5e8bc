//! Reports for operators: the proved part, and the rest (PRF-24).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use super::class::ClassProof;
use super::cover::Covered;
use super::evidence::at_most;
use super::input::{ClassKey, MemberId};
use super::meaning::Meanings;
use super::pace::REGISTERS;
use super::population::{FieldPaths, Resident, Row, shown_value};
use super::report::{ClassReport, ClassState, ProofReport, ShadowKind, ShadowReport};
use super::settings::ProofSettings;
use super::trial::{LOOK_AFTER, Trial};
use sluice_xds::{ResourceName, Status, TypeUrl};

/// Values and names in a report.
const LISTED_MAX: usize = 100;
/// The usual time of a push, of the second shadow and of the control, beside `settle`.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(4);

/// The bounds of a server (PRF-19, PRF-24).
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds {
    /// Witnesses at once.
    pub standing: usize,
    /// Every member and every fingerprint has a turn: 2 × N ÷ `per_minute`, because the two take turns.
    pub round: Duration,
    /// A rule by a covered value is noticed.
    pub covered_within: Duration,
}

impl Bounds {
    pub fn new(settings: &ProofSettings, classes: &BTreeMap<ClassKey, ClassProof>) -> Bounds {
        let members: usize = classes.values().map(|class| class.population.len()).sum();
        let prints: usize = classes.values().map(|class| class.population.prints_len()).sum();
        let turns = u32::try_from(2 * members.max(prints)).unwrap_or(u32::MAX);
        Bounds {
            standing: settings.standing.of_members(members),
            round: Duration::from_secs(60).saturating_mul(turns) / settings.pace.per_minute,
            covered_within: settings.pace.settle + LOOK_AFTER + CONFIRMED_WITHIN,
        }
    }
}

/// The proof of a server, without the reason to give way.
pub fn report(
    classes: &BTreeMap<ClassKey, ClassProof>,
    trials: &[&Trial],
    meanings: &Meanings,
    paths: &FieldPaths,
    bounds: Bounds,
) -> ProofReport {
    let mut report = ProofReport { round: bounds.round, ..ProofReport::default() };
    for (key, class) in classes {
        let of_class: Vec<&Trial> = trials.iter().copied().filter(|trial| trial.class == *key).collect();
        report.unproved_members += unproved(class);
        report.shadows.extend(of_class.iter().flat_map(|trial| shadows(trial)));
        let records = class.records.values().filter_map(|record| record.report(class.of_records(key, paths)));
        report.divergences.extend(records.map(Arc::new));
        report.classes.push(class_report(key, class, &of_class, bounds, paths));
    }
    let ignored: Vec<(TypeUrl, Arc<str>)> = meanings.ignored().cloned().collect();
    report.classes.iter_mut().for_each(|class| class.ignored.clone_from(&ignored));
    report
}

/// Members with a fingerprint without an equal sample. A sample without a word proves nothing.
fn unproved(class: &ClassProof) -> usize {
    let (equal, namesakes) = (class.evidence.equal_prints(), namesakes(class));
    let has_answer = |id: &MemberId, resident: &Resident| {
        resident.node_key == class.representative.node_key && !namesakes.contains(id)
    };
    let residents = class.population.residents();
    residents.filter(|entry| !equal.contains(&entry.1.print) && !has_answer(&entry.0, entry.1)).count()
}

/// Members that are never asked about.
fn not_sampled(class: &ClassProof) -> usize {
    let namesakes = namesakes(class);
    let is_never = |id: &MemberId, resident: &Resident| match resident.node_key {
        key if key == class.representative.node_key => namesakes.contains(id),
        _ => !resident.is_askable(),
    };
    class.population.residents().filter(|entry| is_never(&entry.0, entry.1)).count()
}

/// Other clients with the id of the representative. A server is not shown this id twice, so nobody asks about
/// them. The representative, and whoever looks the same, has the answer of the class.
pub(super) fn namesakes(class: &ClassProof) -> BTreeSet<MemberId> {
    let of_id =
        class.population.residents().filter(|entry| entry.1.node_key == class.representative.node_key);
    let rows: Vec<(MemberId, Row)> =
        of_id.map(|(id, resident)| (id, class.population.full_row(resident))).collect();
    let shown = rows.iter().find(|entry| entry.1 == class.representative.row).or(rows.first());
    let Some((_, shown)) = shown else { return BTreeSet::new() };
    rows.iter().filter(|entry| entry.1 != *shown).map(|entry| entry.0).collect()
}

fn shadows(trial: &Trial) -> Vec<ShadowReport> {
    let kind = match (trial.subject.member, trial.is_witness) {
        (None, _) => ShadowKind::Replica,
        (_, true) => ShadowKind::Witness,
        (_, false) => ShadowKind::Sample,
    };
    let open = [
        Some((&trial.sample, kind)),
        trial.second.as_ref().map(|probe| (probe, ShadowKind::Second)),
        trial.control.as_ref().map(|probe| (probe, ShadowKind::Control)),
    ];
    let report = |(probe, kind): (&super::probe::Probe, ShadowKind)| ShadowReport {
        id: probe.id,
        class: trial.class.clone(),
        kind,
        member: trial.subject.member.filter(|_| kind != ShadowKind::Control),
        since: probe.since,
    };
    open.into_iter().flatten().map(report).collect()
}

fn class_report(
    key: &ClassKey,
    class: &ClassProof,
    trials: &[&Trial],
    bounds: Bounds,
    paths: &FieldPaths,
) -> ClassReport {
    let witnesses: Vec<&Trial> = trials.iter().copied().filter(|trial| trial.is_witness).collect();
    let rows = witnesses.iter().map(|trial| &trial.subject.row).chain([&class.representative.row]);
    let covered = Covered::by(rows);
    let missing: Vec<(Arc<str>, Arc<str>)> = covered
        .missing(&class.population)
        .map(|entry| (paths.path(entry.0.0), shown_value(entry.1)))
        .collect();
    let (samples, sampled_fingerprints) = class.evidence.equal();
    let differs = class.evidence.differs();
    let mut report = ClassReport {
        class: key.clone(),
        rule: class.rule.clone(),
        state: state(class),
        members: class.population.len(),
        not_sampled: not_sampled(class),
        fingerprints: class.population.prints_len(),
        samples,
        sampled_members: samples + differs,
        sampled_fingerprints,
        pushes_seen: class.evidence.pushes_seen(),
        differs,
        at_most: at_most(samples).filter(|_| differs == 0 && class.records.is_empty()),
        since: class.evidence.since(),
        uncovered_count: missing.len(),
        uncovered: missing.into_iter().take(LISTED_MAX).collect(),
        witnesses: witnesses.len(),
        restless: restless(class),
        ignored: Vec::new(),
        impossible: class.asking.impossible().cloned(),
        split_from: class.split_from.clone(),
        split: None,
        split_waits: None,
        covered_within: bounds.covered_within,
        round: bounds.round,
        words: String::new(),
    };
    report.words = words(&report, class);
    report
}

impl ClassReport {
    /// The server cannot be asked at all (PRF-9).
    pub fn be_impossible(&mut self, status: &Status) {
        self.state = ClassState::Impossible;
        self.impossible = Some(status.clone());
        self.words = impossible_words(self.impossible.as_ref());
    }

    /// The server must not be asked (PRF-5).
    pub fn be_registered(&mut self) {
        self.state = ClassState::Impossible;
        self.words = format!("cannot be proved: {REGISTERS}");
    }
}

fn state(class: &ClassProof) -> ClassState {
    if class.asking.impossible().is_some() || class.representative.is_never {
        ClassState::Impossible
    } else if !class.records.is_empty() {
        ClassState::Differs
    } else if class.evidence.restless().next().is_some() {
        ClassState::Restless
    } else if unproved(class) == 0 && (class.evidence.equal().0 > 0 || class.population.len() <= 1) {
        ClassState::Proved
    } else {
        ClassState::Unproved
    }
}

/// Restless names by type. Names of Secrets are counted only (PRF-7).
fn restless(class: &ClassProof) -> Vec<(TypeUrl, Vec<ResourceName>, usize)> {
    let mut names: BTreeMap<TypeUrl, BTreeSet<ResourceName>> = BTreeMap::new();
    for key in class.evidence.restless() {
        names.entry(key.type_url.clone()).or_default().insert(key.name.clone());
    }
    let listed = |type_url: &TypeUrl, names: &BTreeSet<ResourceName>| match type_url.is_secret() {
        true => Vec::new(),
        false => names.iter().take(LISTED_MAX).cloned().collect(),
    };
    names.iter().map(|(type_url, names)| (type_url.clone(), listed(type_url, names), names.len())).collect()
}

fn impossible_words(status: Option<&Status>) -> String {
    match status {
        Some(status) => {
            format!("cannot be proved: the server refuses shadows ({status}); tried again every hour")
        }
        None => "cannot be proved: the node of the class matches proof.never".to_owned(),
    }
}

/// The proved part with numbers, and the rest (PRF-24).
fn words(report: &ClassReport, class: &ClassProof) -> String {
    if report.state == ClassState::Impossible {
        return impossible_words(report.impossible.as_ref());
    }
    if report.members == 1 && report.sampled_members == 0 {
        return "The class has one client, so there is nobody who could differ.".to_owned();
    }
    let mut text = format!("{} of {} sampled members differ", report.differs, report.sampled_members);
    match report.at_most {
        Some(share) if share < 1_000 => {
            let _ = write!(text, ": fewer than {}.{} % do (95 %)", share / 10, share % 10);
        }
        Some(_) => text.push_str(": too few samples for a bound"),
        None if report.sampled_members == 0 => text.push_str(": nothing is proved yet"),
        None => {}
    }
    let _ = write!(
        text,
        ". Sampled: {} members of {} fingerprints; the class has {} of {} now. {} changes of the content seen.",
        report.sampled_members,
        report.sampled_fingerprints,
        report.members,
        report.fingerprints,
        report.pushes_seen
    );
    let _ = write!(
        text,
        " A rule by one value that a witness holds is noticed within {} after its push; any other rule within {}.",
        span(report.covered_within),
        span(report.round)
    );
    if report.uncovered_count > 0 {
        let _ = write!(text, " No witness holds {} values.", report.uncovered_count);
    }
    if report.not_sampled > 0 {
        let _ = write!(text, " {} members are never sampled.", report.not_sampled);
    }
    let restless = class.evidence.restless().count();
    if restless > 0 {
        let _ = write!(
            text,
            " {restless} names cannot be proved: the server gives the same node unequal answers."
        );
    }
    text
}

/// A time for people: seconds, minutes or hours, rounded up.
fn span(time: Duration) -> String {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3_600)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up() {
        let spans = [9_300, 119_000, 120_000, 121_000, 7_200_000, 7_200_001]
            .map(|ms| span(Duration::from_millis(ms)));
        assert_eq!(spans, ["10 s", "119 s", "2 min", "3 min", "2 h", "3 h"]);
    }
}
