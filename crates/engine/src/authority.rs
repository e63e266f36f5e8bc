//! The authority of a name: none, the authority of its `xdstp://` URL, or an authority without configuration.
//! Names of one authority form a group.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::class::{NameKind, NameStyle, ResourcesId};
use super::collection::style_of;
use sluice_xds::ResourceName;
use sluice_xds::xdstp::spell_authority;

/// The names of one type that are requested from one server list, by all streams together or by each stream
/// for itself. Small, because every part of every subscription has a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameGroup {
    pub authority: Authority,
    /// The server forbids caching or sharing: each stream asks for itself (CCH-1).
    pub private: bool,
}

/// The authority of a name, or the list of a rule with the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Authority {
    /// Old-style names and wildcards, which belong to no authority (NAM-3).
    None,
    /// Old-style names in the list of a rule for classes (RLY-11). The server list is the same as for all
    /// others, the class is not.
    Listed(ResourcesId),
    /// Names of all authorities, where no authority is configured (NAM-21: the default source).
    Any,
    /// Names of this authority, which the configuration names (NAM-4, FED-3).
    Configured(AuthorityId),
    /// Names of an authority without configuration (FED-3), or with no authority.
    Unknown,
}

impl Authority {
    pub fn style(self) -> NameStyle {
        match self {
            Authority::None | Authority::Listed(_) => NameStyle::Old,
            Authority::Any | Authority::Configured(_) | Authority::Unknown => NameStyle::Xdstp,
        }
    }

    /// The names, as the rules for classes see them.
    pub fn names(self) -> NameKind {
        let listed = match self {
            Authority::Listed(id) => Some(id),
            _ => None,
        };
        NameKind { style: self.style(), listed }
    }

    /// The authority of a name while no authority is configured.
    pub fn of_style(name: &ResourceName) -> Authority {
        match style_of(name) {
            NameStyle::Old => Authority::None,
            NameStyle::Xdstp => Authority::Any,
        }
    }

    /// The group for shared resources.
    pub fn shared(self) -> NameGroup {
        NameGroup { authority: self, private: false }
    }
}

/// An authority by its name, whatever its position in the configuration (ADR 21). 56 bits, so that an
/// [`Authority`] has 8 bytes. Only the operator's names are hashed: of a thousand authorities, two are equal
/// by chance in one of 10^11 configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuthorityId([u8; 7]);

impl AuthorityId {
    /// The id of an authority, however the name is spelled.
    pub fn of(name: &str) -> AuthorityId {
        AuthorityId::of_canonical(&spell_authority(name))
    }

    fn of_canonical(name: &str) -> AuthorityId {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let [_, id @ ..] = hasher.finish().to_be_bytes();
        AuthorityId(id)
    }
}

/// The authorities of the configuration, each as canonical names spell it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authorities(Vec<(Box<str>, AuthorityId)>);

impl Authorities {
    pub fn new(names: impl IntoIterator<Item = impl AsRef<str>>) -> Authorities {
        let entry = |name: &str| {
            let canonical = spell_authority(name);
            let id = AuthorityId::of_canonical(&canonical);
            (canonical.into(), id)
        };
        Authorities(names.into_iter().map(|name| entry(name.as_ref())).collect())
    }

    pub fn ids(&self) -> impl Iterator<Item = AuthorityId> {
        self.0.iter().map(|(_, id)| *id)
    }

    /// The authority of a canonically spelled name. The empty authority of `xdstp:///` is an ordinary
    /// authority, and not the lack of an authority (NAM-4).
    pub fn authority_of(&self, name: &ResourceName) -> Authority {
        if self.0.is_empty() || !name.is_xdstp() {
            return Authority::of_style(name);
        }
        let entry = |authority: &str| self.0.iter().find(|(configured, _)| **configured == *authority);
        name.authority().and_then(entry).map_or(Authority::Unknown, |(_, id)| Authority::Configured(*id))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn authority(authorities: &Authorities, name: &str) -> Authority {
        authorities.authority_of(&name.into())
    }

    #[test]
    fn fed_3_nam_3_nam_4_a_name_belongs_to_its_authority() {
        let authorities = Authorities::new(["a.example", ""]);
        let configured = |name| Authority::Configured(AuthorityId::of(name));
        assert_eq!(authority(&authorities, "xdstp://a.example/t/id"), configured("a.example"));
        assert_eq!(authority(&authorities, "xdstp:///t/id"), configured(""));
        assert_ne!(configured(""), configured("a.example"));
        assert_eq!(authority(&authorities, "xdstp://b.example/t/id"), Authority::Unknown);
        assert_eq!(
            authority(&authorities, "xdstp://a.example"),
            Authority::Unknown,
            "there is no name behind it"
        );
        assert_eq!(authority(&authorities, "xdstp:t/id"), Authority::Unknown);
        for old in ["t/id", "//a.example/t/id", "*", ""] {
            assert_eq!(authority(&authorities, old), Authority::None, "{old}");
        }
    }

    #[test]
    fn fed_3_an_authority_is_found_however_it_is_spelled() {
        let authorities = Authorities::new(["a b", "b\u{fc}cher", "[::1]:80"]);
        let canonical = |name: &str| ResourceName::new(&sluice_xds::xdstp::canonical(name).unwrap());
        for (name, authority) in [
            ("xdstp://a b/t/id", "a b"),
            ("xdstp://a%20b/t/id", "a b"),
            ("xdstp://b\u{fc}cher/t/id", "b\u{fc}cher"),
            ("xdstp://b%c3%bccher/t/id", "b\u{fc}cher"),
            ("xdstp://[::1]:80/t/id", "[::1]:80"),
        ] {
            let id = AuthorityId::of(authority);
            assert_eq!(authorities.authority_of(&canonical(name)), Authority::Configured(id), "{name}");
        }
    }

    #[test]
    fn rel_5_an_authority_keeps_its_id_when_others_come_before() {
        let (before, after) = (Authorities::new(["b", "c"]), Authorities::new(["a", "b", "c"]));
        for name in ["xdstp://b/t/id", "xdstp://c/t/id"] {
            assert_eq!(authority(&before, name), authority(&after, name), "{name}");
        }
    }

    #[test]
    fn nam_21_without_authorities_the_default_list_answers_for_all() {
        let none = Authorities::default();
        assert_eq!(authority(&none, "xdstp://b.example/t/id"), Authority::Any);
        assert_eq!(authority(&none, "xdstp:t/id"), Authority::Any);
        assert_eq!(authority(&none, "a"), Authority::None);
    }

    #[test]
    fn a_group_is_small() {
        assert!(size_of::<NameGroup>() <= 9);
    }
}
