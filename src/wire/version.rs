//! Versions from content.

use crate::xds::{Resource, ResourceName, Version};

/// Names the format of what is hashed. A change of the format changes the tag, so that replicas of different
/// builds never agree by accident.
const FORMAT: &[u8] = b"sluice resource v1";

/// The version of one resource (RLY-30): 128 bits of BLAKE3 over its name, the type URL and bytes of its payload,
/// and its aliases. TTL, metadata, upstream version and upstream have no part in it, so that replicas, restarts
/// and servers with the same data agree.
///
/// `name` is the canonical spelling; `aliases` are sorted.
pub fn of_content(name: &str, type_url: &str, value: &[u8], aliases: &[ResourceName]) -> Version {
    let mut hasher = blake3::Hasher::new();
    // Each part goes behind its length, so that no two inputs run together to the same bytes.
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    part(FORMAT);
    part(name.as_bytes());
    part(type_url.as_bytes());
    part(value);
    for alias in aliases {
        part(alias.as_str().as_bytes());
    }
    let mut head = [0; 16];
    hasher.finalize_xof().fill(&mut head);
    Version(u128::from_be_bytes(head))
}

/// The version of a response (RLY-31): the sum of what it holds, whatever the order.
pub fn of_response<'a>(members: impl IntoIterator<Item = &'a Resource>) -> Version {
    members.into_iter().fold(Version::default(), |sum, resource| sum.plus(resource.version))
}

/// A short name for some bytes, the same in every process: 64 bits, hex.
pub fn digest(bytes: &[u8]) -> String {
    let hash = blake3::hash(bytes);
    hash.as_bytes().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<ResourceName> {
        names.iter().map(|name| ResourceName::new(name)).collect()
    }

    #[test]
    fn rly_30_replicas_of_different_builds_agree() {
        let version = of_content("a", "type.googleapis.com/acme.Thing", b"\x0a\x01a", &names(&["b", "c"]));
        assert_eq!(version.to_string(), "golden");
        let version = of_content("", "", b"", &[]);
        assert_eq!(version.to_string(), "golden");
    }

    #[test]
    fn rly_30_each_part_counts_and_none_run_together() {
        let inputs: [(&str, &str, &[u8], &[&str]); 7] = [
            ("a", "t", b"v", &[]),
            ("b", "t", b"v", &[]),
            ("a", "u", b"v", &[]),
            ("a", "t", b"w", &[]),
            ("a", "t", b"v", &["x"]),
            ("at", "", b"v", &[]),
            ("a", "t", b"v", &["x", ""]),
        ];
        let versions: std::collections::BTreeSet<_> = inputs
            .iter()
            .map(|(name, url, value, aliases)| of_content(name, url, value, &names(aliases)))
            .collect();
        assert_eq!(versions.len(), inputs.len());
    }
}
