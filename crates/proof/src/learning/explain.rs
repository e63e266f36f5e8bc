//! Explains unequal answers by the differing fields of the nodes (LRN-7).

use std::collections::BTreeSet;

/// The fields that explain all counterexamples: each difference set has at least a field of theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation<F> {
    /// The fields alone in a difference set: nothing else can be the reason.
    pub decisive: Vec<F>,
    /// The fields in every difference set.
    pub single: Vec<F>,
    /// Two fields, if no single field will do: every difference set has the first or the second.
    pub pair: Option<(F, F)>,
}

impl<F> Default for Explanation<F> {
    fn default() -> Self {
        Explanation { decisive: Vec::new(), single: Vec::new(), pair: None }
    }
}

impl<F: Clone> Explanation<F> {
    /// The fields to show, and to split by: a single field, or the pair. Empty: nothing explains.
    pub fn fields(&self) -> Vec<F> {
        match (self.single.first(), &self.pair) {
            (Some(single), _) => vec![single.clone()],
            (None, Some((one, other))) => vec![one.clone(), other.clone()],
            (None, None) => Vec::new(),
        }
    }
}

/// Explains counterexamples. Each set has the differing fields of a pair of nodes with unequal answers.
/// Single fields are sorted; decisive fields come first. Without sets, there is nothing to explain.
pub fn explain<F: Ord + Clone>(differences: &[BTreeSet<F>]) -> Explanation<F> {
    let distinct: BTreeSet<&BTreeSet<F>> = differences.iter().collect();
    let Some(smallest) = distinct.iter().min_by_key(|set| set.len()) else { return Explanation::default() };
    let alone = distinct.iter().filter(|set| set.len() == 1).flat_map(|set| set.iter());
    let decisive: Vec<F> = alone.cloned().collect::<BTreeSet<F>>().into_iter().collect();
    let is_in_all = |field: &&F| distinct.iter().all(|set| set.contains(*field));
    let mut single: Vec<F> = smallest.iter().filter(is_in_all).cloned().collect();
    single.sort_by_key(|field| !decisive.contains(field));
    let pair = if single.is_empty() { pair(&distinct, smallest, &decisive) } else { None };
    Explanation { decisive, single, pair }
}

/// The smallest set has a field of each possible pair. A decisive field has to be in the pair.
fn pair<F: Ord + Clone>(
    distinct: &BTreeSet<&BTreeSet<F>>,
    smallest: &BTreeSet<F>,
    decisive: &[F],
) -> Option<(F, F)> {
    smallest.iter().find_map(|one| {
        let mut rest = distinct.iter().filter(|set| !set.contains(one));
        let first = (*rest.next()?).clone();
        let others = rest.fold(first, |others, set| others.intersection(set).cloned().collect());
        let mut others: Vec<F> = others.into_iter().collect();
        others.sort_by_key(|field| !decisive.contains(field));
        Some((one.clone(), others.into_iter().next()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(texts: &[&'static str]) -> Vec<BTreeSet<&'static str>> {
        texts.iter().map(|text| text.split(' ').filter(|field| !field.is_empty()).collect()).collect()
    }

    #[test]
    fn lrn_7_what_explains_is_in_every_difference_set() {
        let explained = explain(&sets(&["team id", "team zone id", "id team name"]));
        assert_eq!((explained.single, explained.pair), (vec!["id", "team"], None));
        let explained = explain(&sets(&["team id", "team"]));
        assert_eq!((explained.decisive.as_slice(), explained.fields()), (&["team"][..], vec!["team"]));
    }

    #[test]
    fn lrn_7_two_fields_explain_where_no_single_one_does() {
        let explained = explain(&sets(&["a x", "b x y", "b y", "a"]));
        assert_eq!((explained.single.is_empty(), explained.pair), (true, Some(("a", "b"))));
        assert_eq!(explain(&sets(&["a", "b", "c"])).fields(), Vec::<&str>::new());
    }

    #[test]
    fn lrn_7_equal_nodes_with_unequal_answers_have_no_explanation() {
        assert_eq!(explain(&sets(&["", "a"])).fields(), Vec::<&str>::new());
        assert_eq!(explain::<&str>(&[]), Explanation::default());
    }
}
