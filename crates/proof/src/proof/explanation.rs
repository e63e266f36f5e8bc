//! The fewest fields for an explanation of a divergence (LRN-7).

use std::collections::BTreeSet;

use super::population::{FieldNumber, Row, value_at, values_at};
use crate::node_fields::FieldRank;

/// Explanations in a report.
const SHOWN_MAX: usize = 8;

/// Explains the answers of some members by sets of fields: no equal and no unequal member share the values.
/// Alternatives, the best first: plain fields, pairs of plain fields, and then other fields. Empty: nothing
/// explains the answers, or there is no equal member.
pub fn explain(
    equal: &[Row],
    unequal: &[Row],
    rank: impl Fn(FieldNumber) -> FieldRank,
) -> Vec<Vec<FieldNumber>> {
    let (Some(first), Some(other)) = (unequal.first(), equal.first()) else { return Vec::new() };
    let fields: BTreeSet<FieldNumber> = first.iter().chain(other.iter()).map(|pair| pair.0).collect();
    // A field with one value at both cannot tell the two apart.
    let differs = |field: &FieldNumber| value_at(first, *field) != value_at(other, *field);
    let fields: Vec<FieldNumber> = fields.into_iter().filter(differs).collect();
    let of_rank =
        |chosen: FieldRank| fields.iter().copied().filter(|field| rank(*field) == chosen).collect::<Vec<_>>();
    let singles = |fields: &[FieldNumber]| -> Vec<Vec<FieldNumber>> {
        fields.iter().map(|field| vec![*field]).filter(|set| holds(set, equal, unequal)).collect()
    };
    let plain = of_rank(FieldRank::Plain);
    let mut shown = singles(&plain);
    if shown.is_empty() {
        // Fields with one value at the first two may decide together with others.
        let all: BTreeSet<FieldNumber> = first.iter().map(|pair| pair.0).collect();
        let partners: Vec<FieldNumber> =
            all.into_iter().filter(|field| rank(*field) == FieldRank::Plain).collect();
        let pairs = plain.iter().flat_map(|one| {
            partners.iter().filter(move |other| *other != one).map(move |other| {
                let mut pair = vec![*one, *other];
                pair.sort_unstable();
                pair
            })
        });
        let pairs: BTreeSet<Vec<FieldNumber>> = pairs.filter(|set| holds(set, equal, unequal)).collect();
        shown = pairs.into_iter().collect();
    }
    for rank in [FieldRank::Derived, FieldRank::Unique] {
        if shown.is_empty() {
            shown = singles(&of_rank(rank));
        }
    }
    shown.truncate(SHOWN_MAX);
    shown
}

/// Whether no equal and no unequal member have the same values of these fields.
fn holds(fields: &[FieldNumber], equal: &[Row], unequal: &[Row]) -> bool {
    let suspect: BTreeSet<Vec<u64>> = unequal.iter().map(|row| values_at(row, fields)).collect();
    !equal.iter().any(|row| suspect.contains(&values_at(row, fields)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEAM: FieldNumber = 0;
    const ZONE: FieldNumber = 1;
    const ID: FieldNumber = 9;

    fn row(team: u64, zone: u64, id: u64) -> Row {
        [(TEAM, team), (ZONE, zone), (ID, id)].into()
    }

    fn rank(field: FieldNumber) -> FieldRank {
        if field == ID { FieldRank::Unique } else { FieldRank::Plain }
    }

    #[test]
    fn lrn_7_a_single_field_explains_and_further_samples_tell_two_apart() {
        let (equal, unequal) = ([row(1, 1, 1)], [row(2, 2, 2)]);
        assert_eq!(explain(&equal, &unequal, rank), [vec![TEAM], vec![ZONE]]);
        assert_eq!(explain(&[row(1, 1, 1), row(1, 2, 3)], &unequal, rank), [vec![TEAM]]);
    }

    #[test]
    fn lrn_7_two_fields_together_explain_if_none_does_alone() {
        let equal = [row(1, 1, 1), row(1, 2, 3), row(2, 1, 4)];
        assert_eq!(explain(&equal, &[row(2, 2, 2)], rank), [vec![TEAM, ZONE]]);
    }

    #[test]
    fn lrn_4_unique_fields_come_last() {
        assert_eq!(explain(&[row(1, 1, 1), row(1, 1, 3)], &[row(1, 1, 2)], rank), [vec![ID]]);
        assert!(explain(&[], &[row(1, 1, 2)], rank).is_empty());
    }
}
