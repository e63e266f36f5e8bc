//! The precedence between the wildcard, globs and names.
//!
//! A client has one resource under a name, in however many ways the client asks for it. Its collections stand
//! in the order of [`CollectionKind`]: the wildcard, then globs, then names.
//!
//! - The last collection with a resource of the name decides, because the client asked for the name in the
//!   narrowest way (SUB-12, NAM-17). A name that is known to be absent has no resource, so the wildcard or a
//!   glob decides (DEL-22).
//! - Content that a later collection overrides is no content of the client ([`overriding`]).
//! - While the source of a name does not know the name, the client keeps its resource, unless the wildcard or
//!   a glob supplies one (RLY-2, SUB-12).

use super::collection::CollectionKind;

/// The answer of the collection that decides about a name. `ask`: `None` if a collection has no resource of
/// the name.
pub fn deciding<'a, C, A>(collections: &'a [C], ask: impl Fn(&'a C) -> Option<A>) -> Option<A> {
    collections.iter().rev().find_map(ask)
}

/// The collections that decide before the one at this place.
pub fn overriding<C>(collections: &[C], at: usize) -> &[C] {
    collections.get(at + 1..).unwrap_or_default()
}

/// Whether a client keeps the resource of a name in a collection whose source does not know the name.
/// `is_supplied`: whether the wildcard or a glob has a resource of the name.
pub fn keeps_in_doubt(kind: CollectionKind, is_supplied: impl FnOnce() -> bool) -> bool {
    kind.is_broad() || !is_supplied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use CollectionKind::{Globs, Names, Wildcard};

    fn decides(having: &[CollectionKind]) -> Option<CollectionKind> {
        let has = |kind: &CollectionKind| having.contains(kind).then_some(*kind);
        deciding(&CollectionKind::ALL, has)
    }

    #[test]
    fn sub_12_nam_17_the_narrowest_way_to_ask_decides() {
        assert!(CollectionKind::ALL.is_sorted());
        assert_eq!(decides(&[Wildcard, Globs, Names]), Some(Names));
        assert_eq!(decides(&[Wildcard, Names]), Some(Names));
        assert_eq!(decides(&[Globs, Names]), Some(Names));
        assert_eq!(decides(&[Wildcard, Globs]), Some(Globs));
        assert_eq!(overriding(&CollectionKind::ALL, 0), [Globs, Names]);
        assert_eq!(overriding(&CollectionKind::ALL, 2), []);
    }

    #[test]
    fn del_22_the_wildcard_or_a_glob_decides_about_a_name_without_a_resource() {
        assert_eq!(
            (decides(&[Wildcard]), decides(&[Globs]), decides(&[])),
            (Some(Wildcard), Some(Globs), None)
        );
    }

    #[test]
    fn rly_2_a_name_in_doubt_stays_unless_another_way_to_ask_supplies_it() {
        assert!(keeps_in_doubt(Names, || false) && !keeps_in_doubt(Names, || true));
        assert!(keeps_in_doubt(Wildcard, || true) && keeps_in_doubt(Globs, || true));
    }
}
