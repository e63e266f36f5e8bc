//! Finds the deciding fields (LRN-6 to LRN-9).

use super::evidence::Answers;
use super::fleet::Column;
use super::partition::Partition;

/// The deciding fields, as places in the list of columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldSplit {
    /// Fields with a single value in each group of answers (LRN-6: the closure).
    pub closure: Vec<usize>,
    /// A sufficient minimum.
    pub minimum: Vec<usize>,
    /// The groups of answers.
    pub groups: usize,
}

impl FieldSplit {
    /// The fields to split by: the closure and the minimum (LRN-8).
    pub fn fields(&self) -> Vec<usize> {
        let mut fields = [self.closure.as_slice(), &self.minimum].concat();
        fields.sort_unstable();
        fields.dedup();
        fields
    }
}

/// The answers of some rows, and the possible explanations.
pub(super) struct Search<'a> {
    answers: Answers,
    columns: Vec<&'a Column>,
    /// For each column the cells of the rows.
    cells: Vec<Vec<u32>>,
}

impl<'a> Search<'a> {
    /// Nodes with equal fields and equal answers are a single row. `columns` in the order of the fields.
    pub fn new(all: &Answers, columns: Vec<&'a Column>) -> Search<'a> {
        let mut rows = Partition::by(all.numbers.classes());
        for column in &columns {
            let cells: Vec<u32> =
                all.nodes.iter().filter_map(|node| column.cells.get(*node).copied()).collect();
            rows = rows.refine(&cells);
        }
        let mut next = 0;
        let is_first = |class: &u32| {
            let is_first = *class == next;
            next += u32::from(is_first);
            is_first
        };
        let firsts = rows.classes().iter().map(is_first).collect::<Vec<bool>>();
        let firsts = firsts.into_iter().enumerate().filter(|(_, is_first)| *is_first).map(|(row, _)| row);
        let answers = all.only(&firsts.collect::<Vec<usize>>());
        let of_rows = |column: &&Column| -> Vec<u32> {
            answers.nodes.iter().filter_map(|node| column.cells.get(*node).copied()).collect()
        };
        let cells = columns.iter().map(of_rows).collect();
        Search { answers, columns, cells }
    }

    pub fn answers(&self) -> &Answers {
        &self.answers
    }

    pub fn column(&self, place: usize) -> Option<&'a Column> {
        self.columns.get(place).copied()
    }

    fn refined(&self, part: &Partition, place: usize) -> Partition {
        let varies = self.column(place).is_some_and(|column| !column.is_constant());
        self.cells.get(place).filter(|_| varies).map_or_else(|| part.clone(), |cells| part.refine(cells))
    }

    /// The rows split by some fields.
    pub fn by(&self, places: impl IntoIterator<Item = usize>) -> Partition {
        let whole = Partition::whole(self.answers.nodes.len());
        places.into_iter().fold(whole, |part, place| self.refined(&part, place))
    }

    /// Whether all fields together explain the answers.
    pub fn is_explained(&self) -> bool {
        self.answers.holds(&self.by(0..self.columns.len()))
    }

    /// The deciding fields, beside `always`, which split in any case. `None`: all fields together do not
    /// suffice.
    pub fn split(&self, always: &[usize]) -> Option<FieldSplit> {
        if !self.is_explained() {
            return None;
        }
        let groups = self.answers.groups();
        let is_determined =
            |place: &usize| self.cells.get(*place).is_some_and(|cells| groups.determines(cells));
        let closure: Vec<usize> = (0..self.columns.len()).filter(is_determined).collect();
        let mut enough = closure.clone();
        let mut part = self.by(always.iter().chain(&closure).copied());
        // Lossless, but finer than the groups.
        while !self.answers.holds(&part) {
            let rest = (0..self.columns.len()).filter(|place| !enough.contains(place));
            let numbers = self.answers.numbers.classes();
            let refined = rest.map(|place| (self.refined(&part, place), place));
            let best =
                refined.min_by_key(|(part, place)| (part.unequal_pairs(numbers), self.preference(*place)))?;
            part = best.0;
            enough.push(best.1);
        }
        let minimum = self.minimal(always, enough);
        Some(FieldSplit { closure, minimum, groups: groups.count() })
    }

    /// The smallest explanation of the answers, whatever else the groups have in common.
    pub fn minimum(&self, always: &[usize]) -> Vec<usize> {
        self.minimal(always, (0..self.columns.len()).collect())
    }

    /// Drops fields while the rest suffices, the least preferred first (LRN-6, LRN-9).
    fn minimal(&self, always: &[usize], mut fields: Vec<usize>) -> Vec<usize> {
        fields.retain(|place| !always.contains(place));
        fields.sort_by_cached_key(|place| self.preference(*place));
        let base = self.by(always.iter().copied());
        let mut before = vec![base];
        for place in &fields {
            let refined = before.last().map(|part| self.refined(part, *place));
            before.extend(refined);
        }
        let mut kept: Vec<usize> = Vec::new();
        for (place, before) in fields.iter().zip(&before).rev() {
            let part = kept.iter().fold(before.clone(), |part, kept| self.refined(&part, *kept));
            if !self.answers.holds(&part) {
                kept.push(*place);
            }
        }
        kept.sort_unstable();
        kept
    }

    /// Plain before derived, few values before many, and then by name (LRN-9). The columns are in the order
    /// of the fields, derived fields last.
    fn preference(&self, place: usize) -> (bool, usize, usize) {
        let column = self.column(place);
        let is_derived = column.is_some_and(|column| matches!(column.field, super::field::Field::Derived(_)));
        (is_derived, column.map_or(0, |column| column.values.len()), place)
    }

    /// The pairs of rows with unequal answers and without a difference in the other given fields.
    pub fn counterexamples(&self, fields: &[usize], field: usize) -> u64 {
        let others = fields.iter().copied().filter(|place| *place != field);
        let part = self.by(others);
        match self.answers.holds(&part) {
            true => 0,
            false => part.unequal_pairs(self.answers.numbers.classes()),
        }
    }

    /// Two nodes with unequal answers and a difference in a single field: no other field can be the reason
    /// (LRN-7). `None`: there are none.
    pub fn decisive(&self, field: usize) -> Option<(usize, usize)> {
        let part = self.by((0..self.columns.len()).filter(|place| *place != field));
        self.pair(&part)
    }

    /// Two nodes with unequal answers and a common class.
    pub fn pair(&self, part: &Partition) -> Option<(usize, usize)> {
        let (one, other) = self.answers.conflict(part)?;
        Some((*self.answers.nodes.get(one)?, *self.answers.nodes.get(other)?))
    }
}
