//! Condemned contents, as replicas with other names and classes compare them: hashes (LDG-2, QUA-2).

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use serde::{Deserialize, Serialize};

use super::contents::{HASH_BYTES, hash, text};
use sluice_xds::{ResourceName, TypeUrl, Version};

/// Names the use of the hash. Replicas of all builds must agree on it.
const CONTEXT: &str = "sluice 2026 shared condemned";

/// The condemned contents of a plan in the ledger: what fits into a value.
pub const CONDEMNED_MAX: usize = 2_048;

/// The bytes of a content in the ledger: its hash, and its end.
const ENTRY_BYTES: usize = HASH_BYTES + 4;

/// A later end counts as news only if it is later by this much: clocks and roundings differ.
const LATER_SECONDS: u32 = 3_600;

/// A content: half of its version above, so that most contents are told apart without a hash, and the hash of
/// type, name and version below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentHash(u128);

impl ContentHash {
    pub fn new(type_url: &TypeUrl, name: &ResourceName, version: Version) -> ContentHash {
        let content = hash(CONTEXT, |hasher| {
            text(hasher, type_url.message());
            text(hasher, name.as_str());
            hasher.update(&version.0.to_le_bytes());
        });
        ContentHash(upper(version) | content & LOWER)
    }
}

const LOWER: u128 = u64::MAX as u128;

fn upper(version: Version) -> u128 {
    version.0 << u64::BITS
}

/// Condemned contents, each with its end in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CondemnedSet(BTreeMap<ContentHash, u32>);

impl CondemnedSet {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The end of a content, if it is condemned.
    pub fn end(&self, type_url: &TypeUrl, name: &ResourceName, version: Version) -> Option<u32> {
        self.0.range(ContentHash(upper(version))..=ContentHash(upper(version) | LOWER)).next()?;
        self.0.get(&ContentHash::new(type_url, name, version)).copied()
    }

    /// Adds contents, and forgets those with an end until `now`, in seconds since 1970. A full set forgets
    /// the next ends first. Returns whether the set has news.
    pub fn merge(&mut self, contents: impl IntoIterator<Item = (ContentHash, u32)>, now: u32) -> bool {
        let mut news = Vec::new();
        for (content, end) in contents.into_iter().filter(|(_, end)| *end > now) {
            if self.0.get(&content).is_none_or(|before| end > before.saturating_add(LATER_SECONDS)) {
                self.0.insert(content, end);
                news.push(content);
            }
        }
        self.0.retain(|_, end| *end > now);
        let mut ends: Vec<_> = self.0.iter().map(|(content, end)| (*end, *content)).collect();
        ends.sort_unstable();
        let surplus = ends.len().saturating_sub(CONDEMNED_MAX);
        for (_, content) in &ends[..surplus] {
            self.0.remove(content);
        }
        news.iter().any(|content| self.0.contains_key(content))
    }
}

/// In the ledger: the hashes, each with its end, one after the other.
impl Serialize for CondemnedSet {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entry = |(content, end): (&ContentHash, &u32)| {
            content.0.to_le_bytes().into_iter().chain(end.to_le_bytes())
        };
        let bytes: Vec<u8> = self.0.iter().flat_map(entry).collect();
        serializer.serialize_str(&BASE64.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for CondemnedSet {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<CondemnedSet, D::Error> {
        use serde::de::Error;
        let text = String::deserialize(deserializer)?;
        let fault =
            |error: &dyn std::fmt::Display| D::Error::custom(format_args!("condemned contents: {error}"));
        let bytes = BASE64.decode(&text).map_err(|error| fault(&error))?;
        let (entries, rest) = bytes.as_chunks::<ENTRY_BYTES>();
        if !rest.is_empty() {
            return Err(fault(&format_args!("{} bytes too many", rest.len())));
        }
        let entry = |entry: &[u8; ENTRY_BYTES]| {
            let (content, end) = entry.split_first_chunk::<HASH_BYTES>()?;
            let end = u32::from_le_bytes(end.try_into().ok()?);
            Some((ContentHash(u128::from_le_bytes(*content)), end))
        };
        Ok(CondemnedSet(entries.iter().filter_map(entry).collect()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const DAY: u32 = 24 * 3_600;

    fn content(number: u64) -> ContentHash {
        let name = ResourceName::from(number.to_string().as_str());
        ContentHash::new(&TypeUrl::of_message("t"), &name, Version(u128::from(number)))
    }

    /// Replicas of all builds must agree, so the hashes never change.
    #[test]
    fn ldg_2_a_condemned_content_is_a_hash_of_type_name_and_version() {
        let (t, u) = (TypeUrl::of_message("t"), TypeUrl::of_message("u"));
        let (a, b) = (ResourceName::from("a"), ResourceName::from("b"));
        let mut set = CondemnedSet::default();
        assert!(set.merge([(ContentHash::new(&t, &a, Version(7)), DAY)], 0));
        assert_eq!(set.end(&t, &a, Version(7)), Some(DAY));
        let others = [(&t, &a, Version(8)), (&t, &b, Version(7)), (&u, &a, Version(7))];
        // Of the last the lower half is as with the first, which decides nothing.
        let half = [(&t, &a, Version(7 | 1 << 64))];
        for (type_url, name, version) in others.into_iter().chain(half) {
            assert_eq!(set.end(type_url, name, version), None, "{type_url} {name} {version:?}");
        }
        assert_eq!(format!("{:032x}", ContentHash::new(&t, &a, Version(7)).0), VECTOR);
    }

    const VECTOR: &str = "0000000000000007ee2b11e36bb31566";

    #[test]
    fn qua_5_ends_come_to_be_the_latest_and_no_rounding_is_news() {
        let mut set = CondemnedSet::default();
        assert!(set.merge([(content(1), 7 * DAY)], 0));
        assert!(!set.merge([(content(1), 7 * DAY + LATER_SECONDS), (content(1), DAY)], 0));
        assert!(set.merge([(content(1), 8 * DAY)], 0));
        assert!(!set.merge([(content(2), DAY)], DAY), "its time has come");
        assert!(!set.merge([], 8 * DAY) && set.is_empty());
    }

    /// Replicas with more contents than the ledger holds come to an end of writes.
    #[test]
    fn ldg_2_a_full_set_forgets_the_next_ends_and_fits_into_a_value() {
        let mut set = CondemnedSet::default();
        let early = || (0..CONDEMNED_MAX as u64).map(|number| (content(number), DAY));
        let late = || (0..10).map(|number| (content(10_000 + number), 2 * DAY));
        assert!(set.merge(early(), 0) && set.merge(late(), 0));
        assert_eq!(set.len(), CONDEMNED_MAX);
        assert!(!set.merge(early(), 0) && !set.merge(late(), 0));
        let written = serde_json::to_string(&set).unwrap();
        assert!(written.len() < 60 << 10, "{} bytes", written.len());
        assert_eq!(serde_json::from_str::<CondemnedSet>(&written).unwrap(), set);
        for (text, error) in [("\"AAAA\"", "3 bytes too many"), ("\"!\"", "condemned contents")] {
            let words = serde_json::from_str::<CondemnedSet>(text).unwrap_err().to_string();
            assert!(words.contains(error), "{words}");
        }
    }
}
