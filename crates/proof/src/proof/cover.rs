//! Witnesses: the members that together hold the values of a class (PRF-22).
//!
//! A rule of the server that selects clients by one such value changes the answer of a witness at the push
//! that brings the rule, although the answer to the representative stays.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::population::{Pair, Population, Row};

/// The values that the representative and the witnesses hold.
#[derive(Clone, Debug, Default)]
pub struct Covered(BTreeSet<Pair>);

impl Covered {
    pub fn by<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Covered {
        Covered(rows.into_iter().flat_map(|row| row.iter()).copied().collect())
    }

    /// The number of values that a witness with this row would add.
    pub fn gain(&self, population: &Population, row: &Row) -> usize {
        row.iter().filter(|pair| !self.0.contains(pair) && population.is_to_cover(pair)).count()
    }

    /// The most values that any member would add: the greedy choice.
    pub fn best_gain(&self, population: &Population) -> usize {
        population.prints().map(|entry| self.gain(population, entry.1)).max().unwrap_or(0)
    }

    /// The values that nobody holds, with their texts.
    pub fn missing<'a>(
        &'a self,
        population: &'a Population,
    ) -> impl Iterator<Item = (&'a Pair, &'a Arc<str>)> {
        population.to_cover().filter(|entry| !self.0.contains(entry.0))
    }
}
