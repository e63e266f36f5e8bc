//! Explanations of unequal answers: the fewest fields of the nodes (LRN-7).
//!
//! A set of fields explains answers if each two nodes with unequal answers differ in one of its fields. A
//! study knows pairs of such nodes, as the sets of fields in which they differ; the proof knows members that
//! are told the same as their class, and members that are not, as rows of values.

use std::collections::BTreeSet;

use crate::node_fields::FieldRank;

/// Alternatives with the fewest fields: single fields, or else pairs of a field and a partner. Empty: none of
/// them explains the answers.
fn fewest<F: Ord + Clone>(fields: &[F], partners: &[F], explains: impl Fn(&[F]) -> bool) -> Vec<Vec<F>> {
    let singles = fields.iter().map(|field| vec![field.clone()]);
    let singles: Vec<Vec<F>> = singles.filter(|set| explains(set)).collect();
    if !singles.is_empty() {
        return singles;
    }
    let pair = |one: &F, other: &F| {
        let mut pair = vec![one.clone(), other.clone()];
        pair.sort_unstable();
        pair
    };
    let mut pairs = BTreeSet::new();
    for one in fields {
        pairs.extend(partners.iter().filter(|other| *other != one).map(|other| pair(one, other)));
    }
    pairs.into_iter().filter(|set| explains(set)).collect()
}

/// Explains counterexamples. Each set has the differing fields of a pair of nodes with unequal answers.
/// Alternatives, first those with a field that is alone in a difference set: nothing else can be the reason
/// there. Empty: nothing explains, or there is nothing to explain.
pub fn explain_differences<F: Ord + Clone>(differences: &[BTreeSet<F>]) -> Vec<Vec<F>> {
    let distinct: BTreeSet<&BTreeSet<F>> = differences.iter().collect();
    let Some(smallest) = distinct.iter().min_by_key(|set| set.len()) else { return Vec::new() };
    let fields: Vec<F> = smallest.iter().cloned().collect();
    let partners: BTreeSet<&F> = distinct.iter().copied().flatten().collect();
    let partners: Vec<F> = partners.into_iter().cloned().collect();
    let hits = |set: &[F], difference: &BTreeSet<F>| set.iter().any(|field| difference.contains(field));
    let explains = |set: &[F]| distinct.iter().all(|difference| hits(set, difference));
    let mut alternatives = fewest(&fields, &partners, explains);
    let is_decisive = |field: &F| distinct.iter().any(|set| set.len() == 1 && set.contains(field));
    alternatives.sort_by_key(|set| !set.iter().any(is_decisive));
    alternatives
}

/// Explains the answers of some members by sets of fields: no equal and no unequal member share the values.
/// Alternatives, the best first: plain fields, pairs of plain fields, and then other fields. Empty: nothing
/// explains the answers, or there is no equal member.
pub fn explain_rows<F: Ord + Copy, R: AsRef<[(F, u64)]>>(
    equal: &[R],
    unequal: &[R],
    rank: impl Fn(F) -> FieldRank,
) -> Vec<Vec<F>> {
    let (Some(first), Some(other)) = (unequal.first(), equal.first()) else { return Vec::new() };
    let (first, other) = (first.as_ref(), other.as_ref());
    let explains = |set: &[F]| {
        let suspect: BTreeSet<Vec<u64>> = unequal.iter().map(|row| values_at(row.as_ref(), set)).collect();
        !equal.iter().any(|row| suspect.contains(&values_at(row.as_ref(), set)))
    };
    let fields: BTreeSet<F> = first.iter().chain(other).map(|pair| pair.0).collect();
    // A field with one value at both cannot tell the two apart.
    let differs = |field: &F| value_at(first, *field) != value_at(other, *field);
    let fields: Vec<F> = fields.into_iter().filter(differs).collect();
    for chosen in [FieldRank::Plain, FieldRank::Derived, FieldRank::Unique] {
        let is_chosen = |field: &F| rank(*field) == chosen;
        let candidates: Vec<F> = fields.iter().copied().filter(is_chosen).collect();
        // Fields with one value at the first two may decide together with others, if all are plain.
        let partners: Vec<F> = match chosen {
            FieldRank::Plain => first.iter().map(|pair| pair.0).filter(is_chosen).collect(),
            FieldRank::Derived | FieldRank::Unique => Vec::new(),
        };
        let alternatives = fewest(&candidates, &partners, explains);
        if !alternatives.is_empty() {
            return alternatives;
        }
    }
    Vec::new()
}

/// The values of a row at some fields.
pub fn values_at<F: Ord + Copy>(row: &[(F, u64)], fields: &[F]) -> Vec<u64> {
    fields.iter().map(|field| value_at(row, *field)).collect()
}

/// The value of a row, which is sorted by field; 0 for a missing field.
pub fn value_at<F: Ord + Copy>(row: &[(F, u64)], field: F) -> u64 {
    let place = row.binary_search_by_key(&field, |pair| pair.0).ok();
    place.and_then(|place| row.get(place)).map_or(0, |pair| pair.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(texts: &[&'static str]) -> Vec<BTreeSet<&'static str>> {
        texts.iter().map(|text| text.split(' ').filter(|field| !field.is_empty()).collect()).collect()
    }

    #[test]
    fn lrn_7_what_explains_is_in_every_difference_set() {
        let explained = explain_differences(&sets(&["team id", "team zone id", "id team name"]));
        assert_eq!(explained, [["id"], ["team"]]);
        // The decisive field comes first.
        let explained = explain_differences(&sets(&["b a", "b a c", "b"]));
        assert_eq!(explained, [["b"]]);
    }

    #[test]
    fn lrn_7_two_fields_explain_where_no_single_one_does() {
        assert_eq!(explain_differences(&sets(&["a x", "b x y", "b y", "a"])), [["a", "b"], ["a", "y"]]);
        assert!(explain_differences(&sets(&["a", "b", "c"])).is_empty());
    }

    #[test]
    fn lrn_7_equal_nodes_with_unequal_answers_have_no_explanation() {
        assert!(explain_differences(&sets(&["", "a"])).is_empty());
        assert!(explain_differences::<&str>(&[]).is_empty());
    }

    const TEAM: u32 = 0;
    const ZONE: u32 = 1;
    const ID: u32 = 9;

    fn row(team: u64, zone: u64, id: u64) -> [(u32, u64); 3] {
        [(TEAM, team), (ZONE, zone), (ID, id)]
    }

    fn rank(field: u32) -> FieldRank {
        if field == ID { FieldRank::Unique } else { FieldRank::Plain }
    }

    #[test]
    fn lrn_7_a_single_field_explains_and_further_samples_tell_two_apart() {
        let (equal, unequal) = ([row(1, 1, 1)], [row(2, 2, 2)]);
        assert_eq!(explain_rows(&equal, &unequal, rank), [[TEAM], [ZONE]]);
        assert_eq!(explain_rows(&[row(1, 1, 1), row(1, 2, 3)], &unequal, rank), [[TEAM]]);
    }

    #[test]
    fn lrn_7_two_fields_together_explain_if_none_does_alone() {
        let equal = [row(1, 1, 1), row(1, 2, 3), row(2, 1, 4)];
        assert_eq!(explain_rows(&equal, &[row(2, 2, 2)], rank), [[TEAM, ZONE]]);
    }

    #[test]
    fn lrn_4_unique_fields_come_last() {
        assert_eq!(explain_rows(&[row(1, 1, 1), row(1, 1, 3)], &[row(1, 1, 2)], rank), [[ID]]);
        assert!(explain_rows(&[], &[row(1, 1, 2)], rank).is_empty());
    }
}
