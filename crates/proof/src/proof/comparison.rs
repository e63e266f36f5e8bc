//! The content of a class compared with a shadow's, over the subscription of a member (PRF-11).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::content::{Content, TypeContent};
use super::history::NameKey;
use super::input::Wanted;
use super::meaning::{Meanings, Relation};
use sluice_engine::annotations::{Annotations, ErrorKind};
use sluice_engine::cache::{CachedResource, Known};
use sluice_engine::collection::{Collection, CollectionKind, HashSeed, NameSet};
use sluice_xds::{Code, ResourceName, TypeUrl, Version};

/// The listed differences of a comparison, in the order of types and names. Further ones wait for a decision
/// about the first.
const DIFFERENCES_MAX: usize = 1_000;

/// The state of a name at one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stance {
    /// `None`: absent.
    pub version: Option<Version>,
    /// The code of the server's error; the text does not count.
    pub error: Option<Code>,
    pub has_ttl: bool,
}

/// A name with unequal states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differing {
    pub key: NameKey,
    pub class: Stance,
    pub shadow: Stance,
}

/// The result of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    pub differing: Vec<Differing>,
    /// Compared names of each type.
    pub names: BTreeMap<TypeUrl, usize>,
    /// Parts and names without a word: unknown to a side, or not current (PRF-11).
    pub without_word: usize,
    /// The sum of the class's versions over all compared names.
    pub digest: u128,
}

impl Compared {
    fn count(&mut self, type_url: &TypeUrl, names: usize, digest: Version) {
        *self.names.entry(type_url.clone()).or_default() += names;
        self.digest = self.digest.wrapping_add(digest.0);
    }

    /// Compares one name. `None`: a side has no word.
    fn add(&mut self, key: NameKey, class: Option<Stance>, shadow: Option<Stance>) {
        let (Some(class), Some(shadow)) = (class, shadow) else {
            self.without_word += 1;
            return;
        };
        self.count(&key.type_url, 1, class.version.unwrap_or(Version(0)));
        if class != shadow && self.differing.len() < DIFFERENCES_MAX {
            self.differing.push(Differing { key, class, shadow });
        }
    }
}

/// Compares both sides. The digests come first: parts with equal digests are not walked.
pub fn compare(wants: &[Wanted], class: &Content, shadow: &Content) -> Compared {
    let mut compared = Compared::default();
    for (type_url, collection) in wants {
        let sides = (current(class, type_url, collection), current(shadow, type_url, collection));
        let (Some(class), Some(shadow)) = sides else {
            compared.without_word += 1;
            continue;
        };
        match equal_names(collection, class, shadow) {
            Some((names, digest)) => compared.count(type_url, names, digest),
            None => walk(type_url, collection, class, shadow, &mut compared),
        }
    }
    compared
}

/// The collections of which both sides know something. Two classes have no subscription in common, so these
/// are the names to compare (PRF-31).
pub fn shared(one: &Content, other: &Content) -> Vec<Wanted> {
    let mut wants = Vec::new();
    for (type_url, ours) in &one.types {
        let Some(theirs) = other.types.get(type_url) else { continue };
        let (ours, theirs) = (&ours.snapshot, &theirs.snapshot);
        if ours.wildcard.is_whole() && theirs.wildcard.is_whole() {
            wants.push((type_url.clone(), Collection::Wildcard));
        }
        let globs = ours.globs.complete.iter().filter(|glob| theirs.globs.complete.contains(*glob));
        let globs = NameSet::of(globs.cloned(), HashSeed::default());
        if !globs.is_empty() {
            wants.push((type_url.clone(), Collection::Globs(Arc::new(globs))));
        }
        let is_known = |state: &Known| !matches!(state, Known::Unknown);
        let names = ours.names.entries.iter().filter(|entry| is_known(entry.1)).map(|entry| entry.0);
        let names = names.filter(|name| theirs.names.entries.get(*name).is_some_and(is_known));
        let names = NameSet::of(names.cloned(), HashSeed::default());
        if !names.is_empty() {
            wants.push((type_url.clone(), Collection::Names(Arc::new(names))));
        }
    }
    wants
}

/// Whether two subscriptions have the same parts.
pub fn is_same_subscription(one: &[Wanted], other: &[Wanted]) -> bool {
    let part = |part: &Wanted| (part.0.clone(), part.1.key(), part.1.names().map(|names| names.id()));
    std::ptr::eq(one, other) || one.iter().map(part).eq(other.iter().map(part))
}

/// Whether two states mean the same; `None`: the caller has to ask.
pub fn is_same(key: &NameKey, one: Stance, other: Stance, meanings: &Meanings) -> Option<bool> {
    if one == other {
        return Some(true);
    }
    if (one.error, one.has_ttl) != (other.error, other.has_ttl) {
        return Some(false);
    }
    let (Some(one), Some(other)) = (one.version, other.version) else { return Some(false) };
    match meanings.relation(&key.type_url, one, other) {
        Relation::Same => Some(true),
        Relation::Unlike(_) => Some(false),
        Relation::Unasked => None,
    }
}

/// The state of one name of a part; `None`: no word.
pub fn stance(content: &Content, wants: &[Wanted], key: &NameKey) -> Option<Stance> {
    let is_part =
        |part: &&Wanted| part.0 == key.type_url && part.1.kind() == key.kind && part.1.covers(&key.name);
    let (type_url, collection) = wants.iter().find(is_part)?;
    let side = current(content, type_url, collection)?;
    match collection {
        Collection::Names(_) => named(side, &key.name),
        Collection::Wildcard => {
            member(side.snapshot.wildcard.members.get(&key.name), &key.name, wildcard_notes(side))
        }
        Collection::Globs(_) => glob_member(side, &key.name),
    }
}

/// The type, if the server has answered for the collection as a whole, and nothing is restored.
fn current<'a>(content: &'a Content, type_url: &TypeUrl, collection: &Collection) -> Option<&'a TypeContent> {
    let side = content.types.get(type_url)?;
    let is_whole = collection.kind() != CollectionKind::Wildcard || side.snapshot.wildcard.is_whole();
    (is_whole && !side.standing.restored && side.standing.is_current_for(collection)).then_some(side)
}

/// The number of names and the digest, if both digests are equal.
fn equal_names(
    collection: &Collection,
    class: &TypeContent,
    shadow: &TypeContent,
) -> Option<(usize, Version)> {
    let (one, other) = (class.snapshot.view(collection)?, shadow.snapshot.view(collection)?);
    let is_plain = one.annotations().is_empty() && other.annotations().is_empty();
    let is_equal = one.digest() == other.digest()
        && (one.len(), one.absent_len()) == (other.len(), other.absent_len())
        && one.is_complete()
        && other.is_complete();
    (is_plain && is_equal).then(|| (one.len() + one.absent_len(), one.digest()))
}

fn walk(
    type_url: &TypeUrl,
    collection: &Collection,
    class: &TypeContent,
    shadow: &TypeContent,
    compared: &mut Compared,
) {
    let key = |name: &ResourceName| NameKey {
        type_url: type_url.clone(),
        kind: collection.kind(),
        name: name.clone(),
    };
    match collection {
        Collection::Names(names) => {
            for name in names.iter() {
                compared.add(key(name), named(class, name), named(shadow, name));
            }
        }
        Collection::Wildcard => {
            let (ours, theirs) = (&class.snapshot.wildcard.members, &shadow.snapshot.wildcard.members);
            let only_theirs = theirs.keys().filter(|name| !ours.contains_key(*name));
            for name in ours.keys().chain(only_theirs) {
                let one = member(ours.get(name), name, wildcard_notes(class));
                compared.add(key(name), one, member(theirs.get(name), name, wildcard_notes(shadow)));
            }
        }
        Collection::Globs(globs) => {
            let (ours, theirs) = (&class.snapshot.globs.members, &shadow.snapshot.globs.members);
            let only_theirs = theirs.keys().filter(|name| !ours.contains_key(*name));
            for name in ours.keys().chain(only_theirs).filter(|name| is_in(globs, name)) {
                compared.add(key(name), glob_member(class, name), glob_member(shadow, name));
            }
        }
    }
}

fn is_in(globs: &NameSet, name: &ResourceName) -> bool {
    name.glob().is_some_and(|glob| globs.contains(&glob))
}

fn wildcard_notes(side: &TypeContent) -> Option<&Annotations> {
    side.snapshot.wildcard.view.as_ref().map(|view| view.annotations())
}

fn named(side: &TypeContent, name: &ResourceName) -> Option<Stance> {
    let cached = match side.snapshot.names.entries.get(name)? {
        Known::Unknown => return None,
        Known::Absent(_) => None,
        Known::Present(cached) => Some(cached),
    };
    member(cached, name, Some(&side.snapshot.names.annotations))
}

/// A name outside of complete globs is unknown.
fn glob_member(side: &TypeContent, name: &ResourceName) -> Option<Stance> {
    let is_complete = name.glob().is_some_and(|glob| side.snapshot.globs.complete.contains(&glob));
    let cached = side.snapshot.globs.members.get(name);
    is_complete.then(|| member(cached, name, Some(&side.snapshot.globs.annotations))).flatten()
}

/// `None`: the name has an error of the relay's own, so the state is not the server's word.
fn member(
    cached: Option<&CachedResource>,
    name: &ResourceName,
    notes: Option<&Annotations>,
) -> Option<Stance> {
    let error = match notes.and_then(|notes| notes.error_kind(name)) {
        None => None,
        Some(ErrorKind::Reported) => notes.and_then(|notes| notes.error(name)).map(|status| status.code),
        Some(ErrorKind::Malformed | ErrorKind::Timeout | ErrorKind::Unreachable) => return None,
    };
    let resource = cached.map(|cached| &cached.resource);
    Some(Stance {
        version: resource.map(|resource| resource.version),
        error,
        has_ttl: resource.is_some_and(|resource| resource.ttl.is_some()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::tests::bench::{all_clusters, clusters, endpoints, name_set, named, wildcard};
    use std::time::Duration;

    fn names(compared: &Compared) -> Vec<&str> {
        compared.differing.iter().map(|differing| differing.key.name.as_str()).collect()
    }

    #[test]
    fn prf_11_wildcards_are_compared_by_members_and_versions() {
        let class = wildcard(&clusters(), &[("a", 1), ("b", 1), ("c", 1)]);
        let compared =
            compare(&all_clusters(), &class, &wildcard(&clusters(), &[("a", 1), ("b", 2), ("d", 1)]));
        assert_eq!(names(&compared), ["b", "c", "d"]);
        assert_eq!((compared.names[&clusters()], compared.without_word), (4, 0));
        let equal = compare(&all_clusters(), &class, &wildcard(&clusters(), &[("a", 1), ("b", 1), ("c", 1)]));
        assert_eq!((equal.differing.len(), equal.names[&clusters()]), (0, 3));
    }

    #[test]
    fn prf_11_absent_names_are_compared_and_unknown_ones_have_no_word() {
        let wants = [(endpoints(), Collection::Names(Arc::new(name_set(&["a", "b", "c"]))))];
        let class = named(&endpoints(), &[("a", Some(1)), ("b", None), ("c", Some(1))]);
        let mut shadow = named(&endpoints(), &[("a", None), ("b", None), ("c", Some(1))]);
        let compared = compare(&wants, &class, &shadow);
        assert_eq!((names(&compared), compared.without_word), (vec!["a"], 0));
        let entries = &mut shadow.types.get_mut(&endpoints()).unwrap().snapshot.names.entries;
        entries.insert("a".into(), Known::Unknown);
        let compared = compare(&wants, &class, &shadow);
        assert_eq!((names(&compared), compared.without_word), (vec![], 1), "unknown is not absent");
        assert_eq!(compared.names[&endpoints()], 2);
    }

    #[test]
    fn prf_11_nothing_restored_and_nothing_partial_counts() {
        let class = wildcard(&clusters(), &[("a", 1)]);
        let mut shadow = wildcard(&clusters(), &[("a", 2)]);
        shadow.types.get_mut(&clusters()).unwrap().standing.restored = true;
        assert_eq!(compare(&all_clusters(), &class, &shadow).without_word, 1);
        let mut shadow = wildcard(&clusters(), &[("a", 2)]);
        shadow.types.get_mut(&clusters()).unwrap().snapshot.wildcard.view = None;
        assert_eq!(compare(&all_clusters(), &class, &shadow).without_word, 1);
        assert_eq!(compare(&all_clusters(), &class, &Content::default()).without_word, 1);
    }

    #[test]
    fn prf_11_a_time_to_live_counts_and_its_length_does_not() {
        let content = |ttl: Option<u64>| {
            let mut content = wildcard(&clusters(), &[("a", 1), ("b", 1)]);
            let members = &mut content.types.get_mut(&clusters()).unwrap().snapshot.wildcard.members;
            let cached = members.get_mut(&ResourceName::new("a")).unwrap();
            Arc::make_mut(&mut cached.resource).ttl = ttl.map(Duration::from_secs);
            content
        };
        let side = |ttl| {
            // Leases are annotations of the view, so the digests do not decide.
            let mut content = content(ttl);
            let wildcard = &mut content.types.get_mut(&clusters()).unwrap().snapshot.wildcard;
            let lease = sluice_engine::annotations::Lease {
                beat: 1,
                expires: sluice_engine::Time::ZERO,
                ttl: Duration::ZERO,
            };
            Arc::make_mut(wildcard.view.as_mut().unwrap()).set_lease(&"a".into(), ttl.map(|_| lease));
            content
        };
        assert_eq!(names(&compare(&all_clusters(), &side(Some(1)), &side(None))), ["a"]);
        assert!(compare(&all_clusters(), &side(Some(1)), &side(Some(9))).differing.is_empty());
    }
}
