//! The content of a push, as replicas with other names and classes compare it: hashes of changes (LDG-2,
//! LDG-3).

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use serde::{Deserialize, Serialize};

use crate::rollout::hex;
use sluice_xds::{ResourceName, TypeUrl, Version};

/// Names the use of the hashes. Replicas of all builds must agree on them.
const UNIT_CONTEXT: &str = "sluice 2026 shared unit";
const PLACE_CONTEXT: &str = "sluice 2026 shared place";
const CONTENT_CONTEXT: &str = "sluice 2026 shared content";
const ABSENCE_CONTEXT: &str = "sluice 2026 shared absence";

/// A larger push is shared as a whole: each change counts as a part of it (LDG-2).
pub const CHANGES_MAX: usize = 2_048;

pub(super) const HASH_BYTES: usize = 16;

/// A unit by its server list and node class. The server is left out: replicas in several places may hear the
/// same content from several servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnitKey(#[serde(with = "hex")] pub u128);

impl UnitKey {
    /// `class`: the hash of the node class, as in the record of a plan on disk.
    pub fn new(list: &str, class: &str) -> UnitKey {
        UnitKey(hash(UNIT_CONTEXT, |hasher| {
            text(hasher, list);
            text(hasher, class);
        }))
    }
}

/// A change of one name at one unit: the place (unit, type and name) in the upper half, and the version or
/// the absence in the lower half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangeHash(pub u128);

impl ChangeHash {
    /// `version`: `None` if the name has no resource any more.
    pub fn new(
        unit: UnitKey,
        type_url: &TypeUrl,
        name: &ResourceName,
        version: Option<Version>,
    ) -> ChangeHash {
        let place = hash(PLACE_CONTEXT, |hasher| {
            hasher.update(&unit.0.to_le_bytes());
            text(hasher, type_url.message());
            text(hasher, name.as_str());
        });
        let content = match version {
            Some(version) => hash(CONTENT_CONTEXT, |hasher| {
                hasher.update(&[1]);
                hasher.update(&version.0.to_le_bytes());
            }),
            None => absence(unit, type_url),
        };
        ChangeHash(place & !CONTENT | content & CONTENT)
    }

    pub fn has_place_of(self, other: ChangeHash) -> bool {
        self.0 & !CONTENT == other.0 & !CONTENT
    }
}

/// The lower half of a change without a version. It tells where something goes, so that a unit which never
/// knew the name can tell that its content lacks the name because of the push.
fn absence(unit: UnitKey, type_url: &TypeUrl) -> u128 {
    hash(ABSENCE_CONTEXT, |hasher| {
        hasher.update(&unit.0.to_le_bytes());
        text(hasher, type_url.message());
    })
}

/// The lower half of a change.
const CONTENT: u128 = u64::MAX as u128;

pub(super) fn hash(context: &str, fill: impl FnOnce(&mut blake3::Hasher)) -> u128 {
    let mut hasher = blake3::Hasher::new_derive_key(context);
    fill(&mut hasher);
    let mut first = [0; HASH_BYTES];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..HASH_BYTES]);
    u128::from_le_bytes(first)
}

pub(super) fn text(hasher: &mut blake3::Hasher, text: &str) {
    hasher.update(&(text.len() as u64).to_le_bytes());
    hasher.update(text.as_bytes());
}

/// The changes of one unit in a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitChanges {
    pub unit: UnitKey,
    pub changes: BTreeSet<ChangeHash>,
}

/// The changes of a push, in the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContentSet {
    changes: BTreeSet<ChangeHash>,
    /// Too many to list: each change is one of them.
    is_whole: bool,
}

impl ContentSet {
    pub fn has(&self, change: ChangeHash) -> bool {
        self.is_whole || self.changes.contains(&change)
    }

    /// Whether the set changes the place of a change, to whatever content.
    pub fn has_place_of(&self, change: ChangeHash) -> bool {
        let all = ChangeHash(change.0 & !CONTENT)..=ChangeHash(change.0 | CONTENT);
        self.is_whole || self.changes.range(all).next().is_some()
    }

    /// The names of a unit and a type that go with the push, as far as the set lists them.
    pub fn removals(&self, unit: UnitKey, type_url: &TypeUrl) -> impl Iterator<Item = ChangeHash> {
        let content = absence(unit, type_url) & CONTENT;
        self.changes.iter().copied().filter(move |change| change.0 & CONTENT == content)
    }

    /// The listed changes that another set does not have.
    pub fn without(&self, other: &ContentSet) -> ContentSet {
        self.changes.iter().copied().filter(|change| !other.has(*change)).collect()
    }

    /// The listed changes.
    pub fn listed(&self) -> impl Iterator<Item = ChangeHash> {
        self.changes.iter().copied()
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && !self.is_whole
    }

    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub fn covers<'a>(&self, changes: impl IntoIterator<Item = &'a ChangeHash>) -> bool {
        changes.into_iter().all(|change| self.has(*change))
    }

    /// Which changes of the set are among these, in the order of the set: a bit each, in base64. Empty for a
    /// whole set.
    pub fn places(&self, changes: &BTreeSet<ChangeHash>) -> String {
        let mut bits = vec![0; self.changes.len().div_ceil(8)];
        for (place, change) in self.changes.iter().enumerate() {
            bits[place / 8] |= u8::from(changes.contains(change)) << (place % 8);
        }
        BASE64.encode(bits)
    }

    /// The changes at these places.
    pub fn at(&self, places: &str) -> impl Iterator<Item = ChangeHash> {
        let bits = BASE64.decode(places).unwrap_or_default();
        let is_set =
            move |place: usize| bits.get(place / 8).is_some_and(|byte| byte & (1 << (place % 8)) != 0);
        self.changes.iter().enumerate().filter(move |(place, _)| is_set(*place)).map(|(_, change)| *change)
    }

    pub fn add(&mut self, changes: impl IntoIterator<Item = ChangeHash>) {
        for change in changes.into_iter().filter(|_| !self.is_whole) {
            self.changes.insert(change);
            if self.changes.len() > CHANGES_MAX {
                *self = ContentSet { changes: BTreeSet::new(), is_whole: true };
                return;
            }
        }
    }
}

impl FromIterator<ChangeHash> for ContentSet {
    fn from_iter<I: IntoIterator<Item = ChangeHash>>(changes: I) -> ContentSet {
        let mut set = ContentSet::default();
        set.add(changes);
        set
    }
}

/// In the ledger: the hashes one after the other, or a word for all.
const WHOLE: &str = "whole";

impl Serialize for ContentSet {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_whole {
            return serializer.serialize_str(WHOLE);
        }
        let bytes: Vec<u8> = self.changes.iter().flat_map(|change| change.0.to_le_bytes()).collect();
        serializer.serialize_str(&BASE64.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for ContentSet {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<ContentSet, D::Error> {
        use serde::de::Error;
        let text = String::deserialize(deserializer)?;
        if text == WHOLE {
            return Ok(ContentSet { changes: BTreeSet::new(), is_whole: true });
        }
        let bytes = BASE64
            .decode(&text)
            .map_err(|error| D::Error::custom(format_args!("hashes of changes: {error}")))?;
        let (hashes, rest) = bytes.as_chunks::<HASH_BYTES>();
        if !rest.is_empty() {
            return Err(D::Error::custom(format_args!("hashes of changes: {} bytes too many", rest.len())));
        }
        Ok(hashes.iter().map(|hash| ChangeHash(u128::from_le_bytes(*hash))).collect())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn change(number: u128) -> ChangeHash {
        ChangeHash(number)
    }

    /// Replicas of all builds must agree, so the hashes never change.
    #[test]
    fn ldg_2_a_change_is_a_hash_of_unit_type_name_and_version() {
        let type_url = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
        let of = |list: &str, class: &str, name: &str, version| {
            let name = ResourceName::from(name);
            ChangeHash::new(UnitKey::new(list, class), &type_url, &name, version)
        };
        let versions = [Some(Version(0)), Some(Version(7)), None];
        let hashes: BTreeSet<ChangeHash> = [("x", "07"), ("x0", "7"), ("y", "07")]
            .into_iter()
            .flat_map(|(list, class)| ["a", "b"].map(|name| (list, class, name)))
            .flat_map(|(list, class, name)| versions.map(|version| of(list, class, name, version)))
            .collect();
        assert_eq!(hashes.len(), 3 * 2 * 3, "each part counts");
        let set: ContentSet = [of("x", "07", "a", None)].into_iter().collect();
        let has_place = |name| set.has_place_of(of("x", "07", name, Some(Version(7))));
        assert_eq!([has_place("a"), has_place("b")], [true, false], "a place has any content");
        let removals = |class| set.removals(UnitKey::new("x", class), &type_url).collect::<Vec<ChangeHash>>();
        assert_eq!((removals("07"), removals("7")), (vec![of("x", "07", "a", None)], vec![]));
        let one = of("xds_servers", "07", "a", Some(Version(7)));
        assert_eq!(format!("{:032x}", one.0), VECTOR);
    }

    const VECTOR: &str = "3f0f8bbaba18c836e51c368c17d91c70";

    #[test]
    fn ldg_2_a_set_is_read_as_it_was_written_and_a_large_push_is_whole() {
        let mut set: ContentSet = (0..CHANGES_MAX as u128).map(change).collect();
        let text = serde_json::to_string(&set).unwrap();
        assert!(text.len() < 48 << 10, "{} bytes leave room in a record of 64 KiB", text.len());
        assert_eq!(serde_json::from_str::<ContentSet>(&text).unwrap(), set);
        assert!(!set.covers(&[change(1 << 100)]));
        set.add([change(1 << 100)]);
        assert!(set.is_whole() && set.covers(&[change(1 << 101)]));
        assert_eq!(serde_json::to_string(&set).unwrap(), "\"whole\"");
        assert_eq!(serde_json::from_str::<ContentSet>("\"whole\"").unwrap(), set);
        for (text, error) in [("\"AAAA\"", "3 bytes too many"), ("\"!\"", "hashes of changes")] {
            let words = serde_json::from_str::<ContentSet>(text).unwrap_err().to_string();
            assert!(words.contains(error), "{words}");
        }
    }
}
