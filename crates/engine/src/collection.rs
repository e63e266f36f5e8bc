//! Collections: the wildcard of a type, the members of globs, or a set of names.
//!
//! A set of names is identified by its content, so a session and a source can refer to the same set without
//! communication. Ten thousand clients with the same 500 names share one [`NameSet`]: each session builds a
//! set from its request, and replaces the set by the source's set with the next answer (ADR 22).

use std::hash::{Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdSet;

use super::class::NameStyle;
use super::filling::{Filling, Slack};
use sluice_xds::ResourceName;

/// Identifies a set of names by its content, whatever the order of insertion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId(u128);

impl SetId {
    pub(crate) fn digest(self) -> u128 {
        self.0
    }
}

/// A secret of this process. The seed goes into every hash of a name, so that no client can construct two
/// sets with the same id. The driver draws the seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashSeed(pub u128);

impl HashSeed {
    /// 128 bits of a name, usable for identity inside this process only.
    pub fn hash(self, name: &ResourceName) -> u128 {
        let half = |number: u8| {
            let mut hasher = std::hash::DefaultHasher::new();
            self.0.hash(&mut hasher);
            number.hash(&mut hasher);
            name.hash(&mut hasher);
            u128::from(hasher.finish())
        };
        half(0) << 64 | half(1)
    }
}

/// An immutable set of names. Cloning and changes of a few names are cheap.
#[derive(Clone, Debug, Default)]
pub struct NameSet {
    id: SetId,
    names: OrdSet<ResourceName>,
    /// The sum over all names.
    text_bytes: usize,
    slack: Slack,
}

impl NameSet {
    pub fn of(names: impl IntoIterator<Item = ResourceName>, seed: HashSeed) -> NameSet {
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_unstable();
        // Duplicates collapse (SUB-17).
        names.dedup();
        let id = names.iter().fold(0, |id: u128, name| id.wrapping_add(seed.hash(name)));
        let text_bytes = names.iter().map(ResourceName::allocated).sum();
        let slack = Filling::Full.slack(names.len());
        NameSet { id: SetId(id), names: Filling::Full.order(names).collect(), text_bytes, slack }
    }

    /// Adds a name. Returns whether the name is new. Duplicates collapse (SUB-17).
    pub fn insert(&mut self, name: ResourceName, seed: HashSeed) -> bool {
        if self.names.contains(&name) {
            return false;
        }
        self.id.0 = self.id.0.wrapping_add(seed.hash(&name));
        self.text_bytes += name.allocated();
        self.names.insert(name);
        self.slack.spend(1);
        true
    }

    /// This set with other allocations for the texts: those of `old`, and `added` for the names that `old`
    /// lacks. `gone` are the names that this set lacks, and `added` is sorted.
    #[must_use]
    pub fn in_texts_of(&self, old: &NameSet, gone: &[ResourceName], added: Vec<ResourceName>) -> NameSet {
        if old.is_empty() {
            let slack = Filling::Full.slack(added.len());
            return NameSet { names: Filling::Full.order(added).collect(), slack, ..*self };
        }
        let (mut names, mut slack) = (old.names.clone(), old.slack);
        for name in gone {
            names.remove(name);
        }
        slack.spend(gone.len() + added.len());
        names.extend(added);
        let set = NameSet { names, slack, ..*self };
        if set.is_loose() { set.refilled() } else { set }
    }

    /// These names in the allocations of this set.
    pub fn texts_of<'a>(&self, names: impl Iterator<Item = &'a ResourceName>) -> Vec<ResourceName> {
        names.filter_map(|name| self.names.get(name)).cloned().collect()
    }

    /// Whether the set has changed so much since its nodes were filled that many places may be empty.
    pub fn is_loose(&self) -> bool {
        self.slack.is_spent(self.names.len())
    }

    /// This set in nodes of its own, which are well filled.
    #[must_use]
    pub fn refilled(&self) -> NameSet {
        let names = Filling::Roomy.order(self.names.iter().cloned().collect()).collect();
        NameSet { names, slack: Filling::Roomy.slack(self.names.len()), ..*self }
    }

    /// Removes a name. Returns whether the name was in the set.
    pub fn remove(&mut self, name: &ResourceName, seed: HashSeed) -> bool {
        if self.names.remove(name).is_none() {
            return false;
        }
        self.text_bytes -= name.allocated();
        self.slack.spend(1);
        self.id.0 = self.id.0.wrapping_sub(seed.hash(name));
        true
    }

    pub fn id(&self) -> SetId {
        self.id
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The memory of all names, in bytes.
    pub fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    pub fn contains(&self, name: &ResourceName) -> bool {
        self.names.contains(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &ResourceName> {
        self.names.iter()
    }

    /// The first name behind `after`.
    pub fn next_name(&self, after: Option<&ResourceName>) -> Option<&ResourceName> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.names.range::<_, ResourceName>((from, Bound::Unbounded)).next()
    }

    /// The names that `self` has and `other` lacks. O(differences) if the two share their history.
    pub fn minus<'a>(&'a self, other: &'a NameSet) -> impl Iterator<Item = &'a ResourceName> {
        other.names.diff(&self.names).filter_map(|item| match item {
            imbl::ordset::DiffItem::Add(name) => Some(name),
            imbl::ordset::DiffItem::Remove(_) => None,
        })
    }
}

impl PartialEq for NameSet {
    fn eq(&self, other: &NameSet) -> bool {
        self.id == other.id && self.names == other.names
    }
}

/// The kinds of collection, in the order of precedence ([`super::precedence`]). Control plane, sources and
/// sessions keep the three kinds separate, because the wildcard is the server's selection, not the set of all
/// existing resources (RLY-13). What a removal means: [`View::excludes`](super::view::View::excludes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CollectionKind {
    Wildcard,
    /// `xdstp:` globs (NAM-14).
    Globs,
    Names,
}

impl CollectionKind {
    pub const ALL: [CollectionKind; 3] =
        [CollectionKind::Wildcard, CollectionKind::Globs, CollectionKind::Names];

    /// The kind of a single name that is not `*`.
    pub fn of(name: &ResourceName) -> CollectionKind {
        if name.is_glob() { CollectionKind::Globs } else { CollectionKind::Names }
    }

    /// Whether the server, not the client, determines the members: the wildcard, or globs.
    pub fn is_broad(self) -> bool {
        self != CollectionKind::Names
    }

    /// The word of the admin API.
    pub fn label(self) -> &'static str {
        match self {
            CollectionKind::Wildcard => "wildcard",
            CollectionKind::Globs => "globs",
            CollectionKind::Names => "names",
        }
    }

    /// The request that brings a member: `*`, or the member's glob; `None` for names.
    pub fn membership_of(self, member: &ResourceName) -> Option<ResourceName> {
        match self {
            CollectionKind::Wildcard => Some(ResourceName::new("*")),
            CollectionKind::Globs => member.glob(),
            CollectionKind::Names => None,
        }
    }

    /// The kind of an entry of a collection: of a name or a glob, or (`None`) of the wildcard.
    pub fn of_entry(name: Option<&ResourceName>) -> CollectionKind {
        name.map_or(CollectionKind::Wildcard, CollectionKind::of)
    }

    /// The key of a collection of this kind, for names of this style.
    pub const fn key(self, style: NameStyle) -> CollectionKey {
        match self {
            CollectionKind::Wildcard => CollectionKey::WILDCARD,
            kind => CollectionKey { kind, style },
        }
    }

    /// The collection of this kind with these names.
    pub fn collection<N>(self, names: N) -> Collection<N> {
        match self {
            CollectionKind::Wildcard => Collection::Wildcard,
            CollectionKind::Globs => Collection::Globs(names),
            CollectionKind::Names => Collection::Names(names),
        }
    }
}

/// Identifies a collection of a session among the session's collections of one type at one source. The two
/// styles of names are always separate, because the styles may come from different sources (RLY-11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CollectionKey {
    pub kind: CollectionKind,
    /// The wildcard belongs to the old style (NAM-3).
    pub style: NameStyle,
}

impl CollectionKey {
    pub const WILDCARD: CollectionKey =
        CollectionKey { kind: CollectionKind::Wildcard, style: NameStyle::Old };
}

/// The style of a name (NAM-3).
pub fn style_of(name: &ResourceName) -> NameStyle {
    if name.is_xdstp() { NameStyle::Xdstp } else { NameStyle::Old }
}

/// Resources of one type that belong together: the wildcard, the members of globs, or a set of names. A
/// collection has one of the three kinds, and all its names are of one style. `N` holds the names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collection<N = Arc<NameSet>> {
    Wildcard,
    /// The members of all these globs. Each name is a member of at most one glob (NAM-15).
    Globs(N),
    Names(N),
}

impl<N> Collection<N> {
    pub fn kind(&self) -> CollectionKind {
        match self {
            Collection::Wildcard => CollectionKind::Wildcard,
            Collection::Globs(_) => CollectionKind::Globs,
            Collection::Names(_) => CollectionKind::Names,
        }
    }

    /// The names, or the names of the globs.
    pub fn names(&self) -> Option<&N> {
        match self {
            Collection::Wildcard => None,
            Collection::Globs(names) | Collection::Names(names) => Some(names),
        }
    }

    /// As [`Collection::names`].
    pub fn into_names(self) -> Option<N> {
        match self {
            Collection::Wildcard => None,
            Collection::Globs(names) | Collection::Names(names) => Some(names),
        }
    }
}

impl Collection {
    pub fn key(&self) -> CollectionKey {
        let first = self.names().and_then(|names| names.iter().next());
        self.kind().key(first.map_or(NameStyle::Old, style_of))
    }

    /// The names that are requested one by one; `None` for the wildcard and globs.
    pub fn named(&self) -> Option<&Arc<NameSet>> {
        if let Collection::Names(names) = self { Some(names) } else { None }
    }

    /// Whether the name is requested by itself.
    pub fn names_itself(&self, name: &ResourceName) -> bool {
        self.named().is_some_and(|names| names.contains(name))
    }

    pub fn asks_for_more_than(&self, old: &Collection) -> bool {
        match (self, old) {
            (Collection::Names(new), Collection::Names(old))
            | (Collection::Globs(new), Collection::Globs(old)) => new.minus(old).next().is_some(),
            (Collection::Wildcard, Collection::Wildcard) => false,
            _ => true,
        }
    }

    /// Whether a name may be in a view of this collection. The members of a wildcard are known to the server
    /// alone, so a wildcard covers every name.
    pub fn covers(&self, name: &ResourceName) -> bool {
        match self {
            Collection::Wildcard => true,
            Collection::Globs(globs) => {
                globs.contains(name) || name.glob().is_some_and(|glob| globs.contains(&glob))
            }
            Collection::Names(names) => names.contains(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> NameSet {
        NameSet::of(names.iter().map(|n| ResourceName::new(n)), HashSeed(7))
    }

    #[test]
    fn a_set_is_identified_by_its_content() {
        assert_eq!(set(&["a", "b"]).id(), set(&["b", "a"]).id());
        assert_ne!(set(&["a", "b"]).id(), set(&["a", "c"]).id());
        assert_ne!(set(&["a"]).id(), set(&["a", ""]).id());
        let mut changed = set(&["a", "c"]);
        assert!(changed.remove(&"c".into(), HashSeed(7)));
        assert!(changed.insert("b".into(), HashSeed(7)));
        assert_eq!(changed.id(), set(&["a", "b"]).id());
    }

    #[test]
    fn sub_17_duplicates_collapse() {
        let twice = set(&["a", "a"]);
        assert_eq!((twice.len(), twice.id()), (1, set(&["a"]).id()));
    }

    #[test]
    fn other_texts_leave_the_set_equal() {
        let all = set(&["a", "b", "c", "d"]);
        for old in [set(&[]), set(&["x"]), set(&["a", "c"]), set(&["a", "b", "c", "d", "x"])] {
            let added: Vec<_> = all.minus(&old).map(|name| ResourceName::new(name.as_str())).collect();
            let gone: Vec<_> = old.minus(&all).cloned().collect();
            let changed = all.in_texts_of(&old, &gone, added.clone());
            assert!(changed.iter().eq(all.iter()));
            assert_eq!((changed.id(), changed.text_bytes()), (all.id(), all.text_bytes()));
            let given: Vec<_> = old.iter().chain(&added).collect();
            assert!(changed.iter().all(|name| given.iter().any(|text| text.is_same_text(name))));
        }
    }

    #[test]
    fn minus_gives_what_was_added() {
        let (old, new) = (set(&["a", "b"]), set(&["b", "c", "d"]));
        let added: Vec<_> = new.minus(&old).map(ResourceName::as_str).collect();
        assert_eq!(added, ["c", "d"]);
    }
}
