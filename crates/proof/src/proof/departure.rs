//! The members that a split moves.

use std::collections::BTreeSet;

use super::population::{FieldNumber, Population, Print, Row};
use crate::explanation::values_at;

/// The classes of one refined split: no more than may be split off in a minute.
pub const REFINED_MAX: usize = 10;

/// Members that leave the class together (PRF-27).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Departure {
    /// Empty: by the id.
    pub fields: Vec<FieldNumber>,
    /// The values of the fields; for the id, the keys of the nodes.
    pub tuples: BTreeSet<Vec<u64>>,
    /// A differing member among them.
    pub first: u64,
    /// The fields that explain the members that leave, also those that leave by the id.
    pub explained_by: Vec<FieldNumber>,
}

impl Departure {
    /// Whether a member is among those that leave.
    pub fn covers(&self, node_key: u64, row: &Row) -> bool {
        match self.fields.is_empty() {
            true => self.tuples.contains([node_key].as_slice()),
            false => self.tuples.contains(&values_at(row, &self.fields)),
        }
    }

    /// Leaves out the members with the values of a row.
    pub fn leave_out(&mut self, row: &Row) {
        if !self.fields.is_empty() {
            self.tuples.remove(&values_at(row, &self.fields));
        }
    }

    /// Leaves out the members that are on their way already. The others leave apart from each other by the
    /// values of all of `fields`, which explain other divergences of the class, also of those that are on
    /// their way: else a client with its own answer to one would be given a neighbour's answer to another.
    /// Returns whether anybody is left.
    pub fn refine(
        &mut self,
        fields: &BTreeSet<FieldNumber>,
        population: &Population,
        leaves: impl Fn(u64, &Row) -> bool,
    ) -> bool {
        if self.fields.is_empty() {
            self.tuples.retain(|tuple| tuple.first().is_some_and(|key| !leaves(*key, &Row::from([]))));
            return !self.tuples.is_empty();
        }
        let stays = |entry: &(Print, &Row)| {
            self.tuples.contains(&values_at(entry.1, &self.fields))
                && population.with_print(entry.0).any(|resident| !leaves(resident.1.node_key, entry.1))
        };
        let rows: Vec<&Row> = population.prints().filter(stays).map(|entry| entry.1).collect();
        let tuples_at = |fields: &[FieldNumber]| -> BTreeSet<Vec<u64>> {
            rows.iter().map(|row| values_at(row, fields)).collect()
        };
        let fields: Vec<FieldNumber> = fields.iter().copied().collect();
        let refined = tuples_at(&fields);
        if refined.len() <= REFINED_MAX {
            self.explained_by.clone_from(&fields);
            (self.fields, self.tuples) = (fields, refined);
        } else {
            self.tuples = tuples_at(&self.fields);
        }
        !self.tuples.is_empty()
    }
}
