//! The answers about the meaning of unequal bodies (PRF-14).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::input::Meaning;
use sluice_xds::{TypeUrl, Version};

/// Pairs to remember. Forgotten pairs are asked about again.
const PAIRS_MAX: usize = 4_096;

/// The relation of two versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relation {
    Same,
    /// With the paths of the differing fields.
    Unlike(Arc<[Arc<str>]>),
    /// The caller has to ask.
    Unasked,
}

/// The answers about one server.
#[derive(Clone, Debug, Default)]
pub struct Meanings {
    /// A version with equal meaning, for each version with several encodings.
    stands_for: BTreeMap<Version, Version>,
    /// Pairs of versions with unequal meaning, each pair in order.
    unlike: BTreeMap<(Version, Version), Arc<[Arc<str>]>>,
    /// The types with secrets within their resources (PRF-8).
    secret_types: BTreeSet<TypeUrl>,
    /// The types that were told as encoded at random.
    encoding: BTreeSet<TypeUrl>,
    /// The paths of `proof.ignore` that hid a difference, by type (PRF-15).
    ignored: BTreeSet<(TypeUrl, Arc<str>)>,
}

impl Meanings {
    fn root(&self, version: Version) -> Version {
        self.stands_for.get(&version).copied().unwrap_or(version)
    }

    fn pair(&self, one: Version, other: Version) -> (Version, Version) {
        let (one, other) = (self.root(one), self.root(other));
        (one.min(other), one.max(other))
    }

    /// The relation of two versions of a type. Secrets, and types with secrets, are compared by version only
    /// (PRF-7, PRF-8).
    pub fn relation(&self, type_url: &TypeUrl, one: Version, other: Version) -> Relation {
        let pair = self.pair(one, other);
        if pair.0 == pair.1 {
            return Relation::Same;
        }
        if type_url.is_secret() || self.secret_types.contains(type_url) {
            return Relation::Unlike(Arc::default());
        }
        self.unlike.get(&pair).map_or(Relation::Unasked, |paths| Relation::Unlike(paths.clone()))
    }

    /// Adds an answer. Returns whether the type is told as encoded at random, or as secret-bearing, for the
    /// first time.
    pub fn learn(&mut self, type_url: &TypeUrl, one: Version, other: Version, meaning: Meaning) -> bool {
        if self.stands_for.len() + self.unlike.len() >= PAIRS_MAX {
            self.stands_for.clear();
            self.unlike.clear();
        }
        let pair = self.pair(one, other);
        match meaning {
            Meaning::HasSecret => self.secret_types.insert(type_url.clone()),
            Meaning::Differs { paths, ignored } => {
                self.note_ignored(type_url, ignored);
                self.unlike.insert(pair, paths.into());
                false
            }
            Meaning::Equal { ignored } => {
                let is_encoding = ignored.is_empty();
                self.note_ignored(type_url, ignored);
                for target in self.stands_for.values_mut().filter(|target| **target == pair.1) {
                    *target = pair.0;
                }
                self.stands_for.insert(pair.1, pair.0);
                is_encoding && self.encoding.insert(type_url.clone())
            }
        }
    }

    /// As the settings bound `proof.ignore`, the set is small.
    fn note_ignored(&mut self, type_url: &TypeUrl, paths: Vec<Arc<str>>) {
        self.ignored.extend(paths.into_iter().map(|path| (type_url.clone(), path)));
    }

    /// Whether equal content has unequal versions, so that versions alone say little.
    pub fn is_encoded_at_random(&self, type_url: &TypeUrl) -> bool {
        self.encoding.contains(type_url)
    }

    pub fn ignored(&self) -> impl Iterator<Item = &(TypeUrl, Arc<str>)> {
        self.ignored.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Version = Version(1);
    const TWO: Version = Version(2);
    const THREE: Version = Version(3);

    fn clusters() -> TypeUrl {
        TypeUrl::of_message("envoy.config.cluster.v3.Cluster")
    }

    fn equal() -> Meaning {
        Meaning::Equal { ignored: Vec::new() }
    }

    #[test]
    fn prf_14_equal_meaning_is_an_equivalence_and_is_told_once() {
        let mut meanings = Meanings::default();
        assert_eq!(meanings.relation(&clusters(), ONE, TWO), Relation::Unasked);
        assert!(meanings.learn(&clusters(), THREE, TWO, equal()));
        assert!(!meanings.learn(&clusters(), TWO, ONE, equal()));
        for (one, other) in [(ONE, TWO), (TWO, THREE), (THREE, ONE)] {
            assert_eq!(meanings.relation(&clusters(), one, other), Relation::Same);
        }
        let differs = Meaning::Differs { paths: vec!["a".into()], ignored: Vec::new() };
        assert!(!meanings.learn(&clusters(), Version(4), THREE, differs));
        assert_eq!(meanings.relation(&clusters(), ONE, Version(4)), Relation::Unlike(["a".into()].into()));
    }

    #[test]
    fn prf_8_a_secret_bearing_type_is_never_asked_about_again() {
        let mut meanings = Meanings::default();
        assert!(meanings.learn(&clusters(), ONE, TWO, Meaning::HasSecret));
        assert_eq!(meanings.relation(&clusters(), ONE, TWO), Relation::Unlike(Arc::default()));
        assert_eq!(meanings.relation(&clusters(), THREE, TWO), Relation::Unlike(Arc::default()));
    }

    #[test]
    fn prf_7_secrets_are_never_asked_about() {
        let secrets = TypeUrl::of_message("envoy.extensions.transport_sockets.tls.v3.Secret");
        assert_eq!(Meanings::default().relation(&secrets, ONE, TWO), Relation::Unlike(Arc::default()));
    }

    #[test]
    fn prf_15_an_ignored_path_is_counted_and_is_no_encoding() {
        let mut meanings = Meanings::default();
        assert!(!meanings.learn(
            &clusters(),
            ONE,
            TWO,
            Meaning::Equal { ignored: vec!["stat_prefix".into()] }
        ));
        assert_eq!(meanings.relation(&clusters(), TWO, ONE), Relation::Same);
        assert_eq!(meanings.ignored().count(), 1);
    }
}
