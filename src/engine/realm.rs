//! The realm of a name: no authority, the authority of its `xdstp://` URL, or an authority without
//! configuration.

use super::class::NameStyle;
use super::collection::style_of;
use crate::xds::ResourceName;
use crate::xds::xdstp::spell_authority;

/// The names of one type that are requested from one server list, by all streams together or by each stream
/// for itself. Small, because every part of every subscription has a realm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Realm {
    pub space: Space,
    /// The server forbids caching or sharing: each stream asks for itself (CCH-1).
    pub private: bool,
}

/// The authority that a name belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// Old-style names and wildcards, which belong to no authority (NAM-3).
    Old,
    /// Names of all authorities, where no authority is configured (NAM-21: the default source).
    AnyAuthority,
    /// Names of the authority with this number (NAM-4, FED-3).
    Authority(u16),
    /// Names of an authority without configuration (FED-3), or with no authority.
    Unknown,
}

impl Space {
    pub fn style(self) -> NameStyle {
        match self {
            Space::Old => NameStyle::Old,
            Space::AnyAuthority | Space::Authority(_) | Space::Unknown => NameStyle::Xdstp,
        }
    }

    /// The space of a name while no authority is configured.
    pub fn of_style(name: &ResourceName) -> Space {
        match style_of(name) {
            NameStyle::Old => Space::Old,
            NameStyle::Xdstp => Space::AnyAuthority,
        }
    }

    /// The realm for shared resources.
    pub fn shared(self) -> Realm {
        Realm { space: self, private: false }
    }
}

/// The authorities of a relay by number, each as canonical names spell it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authorities(Vec<Box<str>>);

impl Authorities {
    /// Numbers the authorities in the given order. Authorities beyond [`u16::MAX`] count as unknown.
    pub fn new(names: impl IntoIterator<Item = impl AsRef<str>>) -> Authorities {
        Authorities(names.into_iter().map(|name| spell_authority(name.as_ref()).into()).collect())
    }

    /// The space of a canonically spelled name. The empty authority of `xdstp:///` is an ordinary authority,
    /// and not the old-style space (NAM-4).
    pub fn space_of(&self, name: &ResourceName) -> Space {
        if self.0.is_empty() || !name.is_xdstp() {
            return Space::of_style(name);
        }
        let known = |authority: &str| self.0.iter().position(|known| **known == *authority);
        let number = name.authority().and_then(known).and_then(|number| u16::try_from(number).ok());
        number.map_or(Space::Unknown, Space::Authority)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn space(authorities: &Authorities, name: &str) -> Space {
        authorities.space_of(&name.into())
    }

    #[test]
    fn fed_3_nam_3_nam_4_a_name_belongs_to_its_authority() {
        let authorities = Authorities::new(["a.example", ""]);
        assert_eq!(space(&authorities, "xdstp://a.example/t/id"), Space::Authority(0));
        assert_eq!(space(&authorities, "xdstp:///t/id"), Space::Authority(1));
        assert_eq!(space(&authorities, "xdstp://b.example/t/id"), Space::Unknown);
        assert_eq!(space(&authorities, "xdstp://a.example"), Space::Unknown, "there is no name behind it");
        assert_eq!(space(&authorities, "xdstp:t/id"), Space::Unknown);
        for old in ["t/id", "//a.example/t/id", "*", ""] {
            assert_eq!(space(&authorities, old), Space::Old, "{old}");
        }
    }

    #[test]
    fn fed_3_an_authority_is_found_however_it_is_spelled() {
        let authorities = Authorities::new(["a b", "b\u{fc}cher", "[::1]:80"]);
        let canonical = |name: &str| ResourceName::new(&crate::xds::xdstp::canonical(name).unwrap());
        for (name, number) in [
            ("xdstp://a b/t/id", 0),
            ("xdstp://a%20b/t/id", 0),
            ("xdstp://b\u{fc}cher/t/id", 1),
            ("xdstp://b%c3%bccher/t/id", 1),
            ("xdstp://[::1]:80/t/id", 2),
        ] {
            assert_eq!(authorities.space_of(&canonical(name)), Space::Authority(number), "{name}");
        }
    }

    #[test]
    fn nam_21_without_authorities_the_default_list_answers_for_all() {
        let none = Authorities::default();
        assert_eq!(space(&none, "xdstp://b.example/t/id"), Space::AnyAuthority);
        assert_eq!(space(&none, "xdstp:t/id"), Space::AnyAuthority);
        assert_eq!(space(&none, "a"), Space::Old);
    }

    #[test]
    fn a_realm_is_small() {
        assert!(size_of::<Realm>() <= 6);
    }
}
