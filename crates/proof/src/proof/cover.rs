//! Witnesses: a few members with all values of a class (PRF-22).
//!
//! If a rule of the server selects clients by a covered value, the push with the rule changes the answer of a
//! witness, although the answer to the representative stays.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::population::{Pair, Population, Row};

/// The values of the representative and of the witnesses.
#[derive(Clone, Debug, Default)]
pub struct Covered(BTreeSet<Pair>);

impl Covered {
    pub fn by<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Covered {
        Covered(rows.into_iter().flat_map(|row| row.iter()).copied().collect())
    }

    /// The number of values added by a witness with the row.
    pub fn gain(&self, population: &Population, row: &Row) -> usize {
        row.iter().filter(|pair| !self.0.contains(pair) && population.is_to_cover(pair)).count()
    }

    /// The maximum gain over all members that may be asked: the greedy choice.
    pub fn best_gain(&self, population: &Population) -> usize {
        let is_askable = |print| population.with_print(print).any(|entry| entry.1.is_askable());
        let prints = population.prints().filter(|entry| is_askable(entry.0));
        prints.map(|entry| self.gain(population, entry.1)).max().unwrap_or(0)
    }

    /// The uncovered values, with texts.
    pub fn missing<'a>(
        &'a self,
        population: &'a Population,
    ) -> impl Iterator<Item = (&'a Pair, &'a Arc<str>)> {
        population.to_cover().filter(|entry| !self.0.contains(entry.0))
    }
}
