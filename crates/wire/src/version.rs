//! Computes versions from content.

use sluice_xds::{Resource, ResourceName, Version};

/// Names the format of the hash input. A new format needs a new tag, so that replicas of different builds
/// never get equal versions by accident.
pub const FORMAT: &[u8] = b"sluice resource v1";

/// The version of a resource (RLY-30): 128 bits of BLAKE3 over name, payload type URL, payload bytes and
/// aliases. TTL, metadata, the upstream and its version string are left out, so that replicas, restarts and
/// servers with the same data agree.
///
/// `name` is in canonical spelling; `aliases` are sorted.
pub fn of_content(name: &str, type_url: &str, value: &[u8], aliases: &[ResourceName]) -> Version {
    let mut hasher = blake3::Hasher::new();
    // Each part follows its length, so that no two inputs give the same bytes.
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

/// The version of a response (RLY-31): the sum over its resources, in any order.
pub fn of_response<'a>(members: impl IntoIterator<Item = &'a Resource>) -> Version {
    members.into_iter().fold(Version::default(), |sum, resource| sum.plus(resource.version))
}

/// The version of a set of names, to be added to the version of a poll's response: the same resources need
/// not be the current answer for other names (RST-4). Zero for no names. Ignores order.
pub fn of_names(names: &[ResourceName]) -> Version {
    if names.is_empty() {
        return Version::default();
    }
    let mut sorted: Vec<_> = names.iter().map(ResourceName::as_str).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let mut hasher = blake3::Hasher::new_derive_key("sluice 2026 names of a REST poll");
    for name in sorted {
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name.as_bytes());
    }
    let mut head = [0; 16];
    hasher.finalize_xof().fill(&mut head);
    Version(u128::from_be_bytes(head))
}

/// A short name for some bytes, equal in every process: 64 bits in hexadecimal.
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
    fn rst_4_the_version_of_names_is_of_the_set() {
        assert_eq!(of_names(&names(&["a", "b", "a"])), of_names(&names(&["b", "a"])));
        assert_ne!(of_names(&names(&["a", "b"])), of_names(&names(&["ab"])));
        assert_eq!(of_names(&[]), Version::default());
    }

    #[test]
    fn rly_30_replicas_of_different_builds_agree() {
        let version = of_content("a", "t/x", b"\x0a\x01a", &names(&["b", "c"]));
        // The input, spelled out: it must never change under this format tag.
        let input = b"\x12\0\0\0\0\0\0\0sluice resource v1\
            \x01\0\0\0\0\0\0\0a\x03\0\0\0\0\0\0\0t/x\x03\0\0\0\0\0\0\0\x0a\x01a\
            \x01\0\0\0\0\0\0\0b\x01\0\0\0\0\0\0\0c";
        assert!(blake3::hash(input).to_hex().starts_with(&version.to_string()));
        assert_eq!(version.to_string(), "7a484915853f2d624b8d3756178ed22c");
    }

    #[test]
    fn rly_31_a_response_is_the_sum_of_what_it_holds() {
        let resource = |version| Resource {
            name: "a".into(),
            version: Version(version),
            body: sluice_xds::Any { type_url: "t".into(), value: bytes::Bytes::new() },
            aliases: Box::default(),
            ttl: None,
            do_not_cache: false,
            body_has_name: true,
            metadata: None,
            endpoints: None,
            constraints: None,
        };
        let [a, b] = [resource(u128::MAX), resource(7)];
        assert_eq!(of_response([&a, &b]), Version(6));
        assert_eq!(of_response([&b, &a]), Version(6));
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
