//! Content versions of resources: 128 bits.

use std::fmt;

/// The content version of a resource, or of a set of resources.
///
/// A version depends on content alone (RLY-30, RLY-31). Two replicas agree on versions; so do a relay before
/// and after a restart, and two servers with the same data. Clients never see an upstream's version string as
/// a resource version (RLY-32). [`sluice_wire::version`] computes versions.
///
/// Aligned as its halves: each client has several `Option<Version>`, of 24 bytes instead of 32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(Rust, packed(8))]
pub struct Version(pub u128);

impl Version {
    /// Adds a member to the version of a set: the sum of the members' versions modulo 2^128. The sum does not
    /// depend on order, and costs O(changes) to maintain (RLY-31).
    #[must_use]
    pub fn plus(self, member: Version) -> Version {
        Version(self.0.wrapping_add(member.0))
    }

    #[must_use]
    pub fn minus(self, member: Version) -> Version {
        Version(self.0.wrapping_sub(member.0))
    }

    /// Parses the output of [`fmt::Display`]; `None` for a version from any other server (RLY-32).
    pub fn parse(text: &str) -> Option<Version> {
        let well_formed = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if !well_formed {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(Version)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", { self.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rly_31_a_set_version_does_not_depend_on_order() {
        let (a, b, c) = (Version(u128::MAX), Version(7), Version(1 << 90));
        assert_eq!(a.plus(b).plus(c), c.plus(a).plus(b));
        assert_eq!(a.plus(b).minus(b), a);
    }

    #[test]
    fn rly_32_only_our_own_spelling_parses() {
        let version = Version(0xabc);
        assert_eq!(Version::parse(&version.to_string()), Some(version));
        for foreign in ["", "1", "v1", "00000000000000000000000000000ABC", "+0000000000000000000000000000abc"]
        {
            assert_eq!(Version::parse(foreign), None, "{foreign}");
        }
    }
}
