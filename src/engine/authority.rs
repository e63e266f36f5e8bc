//! The authority of a name: none, the authority of its `xdstp://` URL, or an authority without configuration.
//! Names of one authority form a group.

use super::class::NameStyle;
use super::collection::style_of;
use crate::xds::ResourceName;
use crate::xds::xdstp::spell_authority;

/// The names of one type that are requested from one server list, by all streams together or by each stream
/// for itself. Small, because every part of every subscription has a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameGroup {
    pub authority: Authority,
    /// The server forbids caching or sharing: each stream asks for itself (CCH-1).
    pub private: bool,
}

/// The authority that a name belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Authority {
    /// Old-style names and wildcards, which belong to no authority (NAM-3).
    None,
    /// Names of all authorities, where no authority is configured (NAM-21: the default source).
    Any,
    /// Names of the authority with this number (NAM-4, FED-3).
    Configured(u16),
    /// Names of an authority without configuration (FED-3), or with no authority.
    Unknown,
}

impl Authority {
    pub fn style(self) -> NameStyle {
        match self {
            Authority::None => NameStyle::Old,
            Authority::Any | Authority::Configured(_) | Authority::Unknown => NameStyle::Xdstp,
        }
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

/// The authorities of a relay by number, each as canonical names spell it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authorities(Vec<Box<str>>);

impl Authorities {
    /// Numbers the authorities in the given order. Authorities beyond [`u16::MAX`] count as unknown.
    pub fn new(names: impl IntoIterator<Item = impl AsRef<str>>) -> Authorities {
        Authorities(names.into_iter().map(|name| spell_authority(name.as_ref()).into()).collect())
    }

    /// The authority of a canonically spelled name. The empty authority of `xdstp:///` is an ordinary
    /// authority, and not the lack of an authority (NAM-4).
    pub fn authority_of(&self, name: &ResourceName) -> Authority {
        if self.0.is_empty() || !name.is_xdstp() {
            return Authority::of_style(name);
        }
        let known = |authority: &str| self.0.iter().position(|known| **known == *authority);
        let number = name.authority().and_then(known).and_then(|number| u16::try_from(number).ok());
        number.map_or(Authority::Unknown, Authority::Configured)
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
        assert_eq!(authority(&authorities, "xdstp://a.example/t/id"), Authority::Configured(0));
        assert_eq!(authority(&authorities, "xdstp:///t/id"), Authority::Configured(1));
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
        let canonical = |name: &str| ResourceName::new(&crate::xds::xdstp::canonical(name).unwrap());
        for (name, number) in [
            ("xdstp://a b/t/id", 0),
            ("xdstp://a%20b/t/id", 0),
            ("xdstp://b\u{fc}cher/t/id", 1),
            ("xdstp://b%c3%bccher/t/id", 1),
            ("xdstp://[::1]:80/t/id", 2),
        ] {
            assert_eq!(authorities.authority_of(&canonical(name)), Authority::Configured(number), "{name}");
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
        assert!(size_of::<NameGroup>() <= 6);
    }
}
