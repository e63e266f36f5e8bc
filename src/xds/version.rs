//! Versions: what a resource's content is, in 128 bits.

use std::fmt;

/// The content version of a resource, or of a set of them.
///
/// A version depends on content alone (RLY-30, RLY-31), so that two replicas, a restarted relay and a relay that
/// fell back to a server with the same data all agree. Upstream version strings are never exposed as such
/// (RLY-32). [`crate::wire`] computes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u128);

impl Version {
    /// Of a set: the sum of its members' versions modulo 2^128, so that it is order-independent and kept up in
    /// O(changes) (RLY-31).
    #[must_use]
    pub fn plus(self, member: Version) -> Version {
        Version(self.0.wrapping_add(member.0))
    }

    #[must_use]
    pub fn minus(self, member: Version) -> Version {
        Version(self.0.wrapping_sub(member.0))
    }

    /// Reads what [`fmt::Display`] wrote; `None` for a version that some other server made (RLY-32).
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
        write!(f, "{:032x}", self.0)
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
