//! The choice of the next sample (PRF-21).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::class::ClassProof;
use super::cover::Covered;
use super::input::{ClassKey, MemberId};
use super::population::{Print, Resident, keyed};
use sluice_engine::Time;
use sluice_xds::TypeUrl;

/// A differing member without an open shadow is sampled again after this time.
const RECHECK: Duration = Duration::from_secs(600);

/// The reason for a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The member differed, and has no open shadow.
    Recheck,
    /// The sample tells two explanations of a divergence apart.
    Explain(TypeUrl),
    /// (a) A fingerprint without a sample.
    NewPrint,
    /// (b) A value without an equal sample.
    NewValue,
    /// A value without a witness (PRF-22).
    Cover,
    /// (c) The fingerprint with the oldest sample.
    OldestPrint,
    /// (d) The next of the rotation.
    Turn,
}

/// A member to sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picked {
    pub class: ClassKey,
    pub member: MemberId,
    pub purpose: Purpose,
}

/// One reason after the other, over all classes.
type Step = fn(&Choice<'_>, &ClassKey, &ClassProof) -> Option<(MemberId, Purpose)>;

/// The classes, and the shadows that are open.
pub struct Choice<'a> {
    pub classes: &'a BTreeMap<ClassKey, ClassProof>,
    /// The nodes that must not be shown now: nodes with an open shadow. Until the server is known to bear two
    /// streams of one id, the nodes of all classes, too: a shadow could end the stream of a class.
    pub barred: BTreeSet<u64>,
    /// The values that witnesses hold, by class; `None`: no room for another witness.
    pub covered: Option<BTreeMap<ClassKey, Covered>>,
    pub now: Time,
}

/// The state of the rotation.
#[derive(Clone, Debug)]
pub struct Rotation {
    seed: u64,
    round: u64,
    /// The next of the steps (c) and (d), in turns.
    is_turn_next: bool,
    /// The class of the last sample: the search begins with the next class.
    last: Option<ClassKey>,
}

impl Rotation {
    pub fn new(seed: u64) -> Rotation {
        Rotation { seed, round: 1, is_turn_next: false, last: None }
    }

    pub fn round(&self) -> u64 {
        self.round
    }

    /// The next member to sample; `None`: nobody is due.
    pub fn pick(&mut self, choice: &Choice<'_>) -> Option<Picked> {
        let picked = self.pick_urgent(choice).or_else(|| self.pick_in_turn(choice))?;
        self.last = Some(picked.class.clone());
        Some(picked)
    }

    /// The classes that may be asked, beginning behind the last.
    fn classes<'a>(&self, choice: &Choice<'a>) -> Vec<(&'a ClassKey, &'a ClassProof)> {
        let is_behind = |key: &ClassKey| self.last.as_ref().is_some_and(|last| key > last);
        let all = choice.classes.iter().filter(|entry| entry.1.may_ask(choice.now));
        let (behind, before): (Vec<_>, Vec<_>) = all.partition(|entry| is_behind(entry.0));
        behind.into_iter().chain(before).collect()
    }

    fn pick_urgent(&self, choice: &Choice<'_>) -> Option<Picked> {
        let classes = self.classes(choice);
        let steps: [Step; 5] = [recheck, explain, new_print, new_value, cover];
        steps.iter().find_map(|step| {
            classes.iter().find_map(|(key, class)| {
                let (member, purpose) = step(choice, key, class)?;
                Some(Picked { class: (*key).clone(), member, purpose })
            })
        })
    }

    fn pick_in_turn(&mut self, choice: &Choice<'_>) -> Option<Picked> {
        self.is_turn_next = !self.is_turn_next;
        match self.is_turn_next {
            false => self.turn(choice).or_else(|| self.oldest_print(choice)),
            true => self.oldest_print(choice).or_else(|| self.turn(choice)),
        }
    }

    /// (c) The fingerprint with the oldest sample, and its member with the oldest sample.
    fn oldest_print(&self, choice: &Choice<'_>) -> Option<Picked> {
        let mut prints: Vec<(Time, &ClassKey, &ClassProof, Print)> = Vec::new();
        for (key, class) in self.classes(choice) {
            let sampled = class
                .population
                .prints()
                .filter_map(|entry| Some((class.evidence.print_at(entry.0)?, entry.0)));
            prints.extend(sampled.map(|entry| (entry.0, key, class, entry.1)));
        }
        prints.sort_by(|one, other| (one.0, one.1, one.3).cmp(&(other.0, other.1, other.3)));
        prints.into_iter().find_map(|(_, key, class, print)| {
            let members = class.population.with_print(print).filter(|entry| choice.is_free(class, entry.1));
            let member = members.min_by_key(|entry| class.evidence.sampled_at(entry.1.node_key))?.0;
            Some(Picked { class: key.clone(), member, purpose: Purpose::OldestPrint })
        })
    }

    /// (d) The members in the order of a keyed hash of round and id: everyone has a turn, and replicas of the
    /// relay do not agree by accident.
    fn turn(&mut self, choice: &Choice<'_>) -> Option<Picked> {
        if let Some(picked) = self.turn_of_round(choice) {
            return Some(picked);
        }
        self.round += 1;
        let picked = self.turn_of_round(choice);
        if picked.is_none() {
            self.round -= 1;
        }
        picked
    }

    fn turn_of_round(&self, choice: &Choice<'_>) -> Option<Picked> {
        let mut first: Option<(u64, Picked)> = None;
        for (key, class) in self.classes(choice) {
            for (member, resident) in class.population.residents() {
                let is_due = !class.evidence.had_turn(resident.node_key, self.round)
                    && choice.is_free(class, resident);
                let place = keyed(self.seed, &(self.round, &**key, resident.node_key));
                if is_due && first.as_ref().is_none_or(|first| place < first.0) {
                    first = Some((place, Picked { class: key.clone(), member, purpose: Purpose::Turn }));
                }
            }
        }
        first.map(|first| first.1)
    }
}

impl Choice<'_> {
    /// Whether a member may be asked about, and has no open shadow. The representative has the answer of the
    /// class anyway.
    fn may_ask(&self, class: &ClassProof, resident: &Resident) -> bool {
        resident.is_askable()
            && resident.node_key != class.representative.node_key
            && !self.barred.contains(&resident.node_key)
    }

    /// As [`Choice::may_ask`], and not within an hour after the last sample (PRF-21).
    fn is_free(&self, class: &ClassProof, resident: &Resident) -> bool {
        class.evidence.is_rested(resident.node_key, self.now) && self.may_ask(class, resident)
    }

    /// As [`Choice::may_ask`], and not since `since`.
    fn is_free_since(&self, class: &ClassProof, resident: &Resident, since: Time) -> bool {
        let sampled_at = class.evidence.sampled_at(resident.node_key);
        sampled_at.is_none_or(|at| at < since) && self.may_ask(class, resident)
    }
}

fn recheck(choice: &Choice<'_>, _: &ClassKey, class: &ClassProof) -> Option<(MemberId, Purpose)> {
    if class.records.is_empty() {
        return None;
    }
    let differing: BTreeSet<u64> = class.records.values().flat_map(|record| record.node_keys()).collect();
    let mut members = class.population.residents().filter(|entry| differing.contains(&entry.1.node_key));
    let since = choice.now - RECHECK;
    let member = members.find(|entry| choice.is_free_since(class, entry.1, since))?;
    Some((member.0, Purpose::Recheck))
}

fn explain(choice: &Choice<'_>, _: &ClassKey, class: &ClassProof) -> Option<(MemberId, Purpose)> {
    class.records.iter().find_map(|(type_url, record)| {
        let prints = class.population.prints().filter_map(|entry| Some((record.splits(entry.1)?, entry.0)));
        let mut prints: Vec<(usize, Print)> = prints.collect();
        prints.sort_unstable_by_key(|entry| (std::cmp::Reverse(entry.0), entry.1));
        prints.into_iter().find_map(|(_, print)| {
            let mut members = class.population.with_print(print);
            let member = members.find(|entry| choice.is_free_since(class, entry.1, record.since()))?;
            Some((member.0, Purpose::Explain(type_url.clone())))
        })
    })
}

/// A member of a fingerprint for which the test holds.
fn of_print(
    choice: &Choice<'_>,
    class: &ClassProof,
    is_wanted: impl Fn(Print, &super::population::Row) -> bool,
) -> Option<MemberId> {
    class.population.prints().filter(|entry| is_wanted(entry.0, entry.1)).find_map(|(print, _)| {
        class.population.with_print(print).find(|entry| choice.is_free(class, entry.1)).map(|entry| entry.0)
    })
}

fn new_print(choice: &Choice<'_>, _: &ClassKey, class: &ClassProof) -> Option<(MemberId, Purpose)> {
    let member = of_print(choice, class, |print, _| class.evidence.print_at(print).is_none())?;
    Some((member, Purpose::NewPrint))
}

fn new_value(choice: &Choice<'_>, _: &ClassKey, class: &ClassProof) -> Option<(MemberId, Purpose)> {
    let member = of_print(choice, class, |_, row| class.evidence.lacks_value_of(row))?;
    Some((member, Purpose::NewValue))
}

/// The member with the most uncovered values. The hour between two samples does not count: a
/// witness has left, and the values are uncovered.
fn cover(choice: &Choice<'_>, key: &ClassKey, class: &ClassProof) -> Option<(MemberId, Purpose)> {
    let covered = choice.covered.as_ref()?.get(key)?;
    let gains = class.population.prints().map(|entry| (covered.gain(&class.population, entry.1), entry.0));
    let mut gains: Vec<(usize, Print)> = gains.filter(|entry| entry.0 > 0).collect();
    gains.sort_unstable_by_key(|entry| (std::cmp::Reverse(entry.0), entry.1));
    let since = choice.now - RECHECK;
    gains.into_iter().find_map(|(_, print)| {
        let mut members = class.population.with_print(print);
        let member = members.find(|entry| choice.is_free_since(class, entry.1, since))?;
        Some((member.0, Purpose::Cover))
    })
}
