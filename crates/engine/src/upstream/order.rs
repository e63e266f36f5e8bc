//! Irregular version strings of a server: a version that stands for other bytes than before (FU20, WIR-2),
//! and a version that is lower than the version before (FU21).
//!
//! Neither changes the treatment of a response. VersionCheck are opaque to the protocol. Two versions are
//! compared only if the form of both shows an order; see [`is_lower`].

use super::api::{Event, Lower};
use super::names::HeldResource;
use sluice_xds::{Received, Resource, ResourceName, TypeUrl, Variant, Version};

/// The version, if it is lower than the version before. `name` as in [`Lower`].
pub(super) fn lower_version(name: Option<&ResourceName>, version: &str, before: &str) -> Option<Lower> {
    is_lower(version, before).then(|| Lower {
        name: name.cloned(),
        version: version.into(),
        before: before.into(),
    })
}

/// The versions of one response, compared with the held versions.
#[derive(Debug, Default)]
pub(super) struct VersionCheck {
    /// By wanted name, the content of resources that came under the version of the held resource.
    repeated: Vec<(ResourceName, Version)>,
    lower: Option<Lower>,
}

impl VersionCheck {
    /// Compares a resource for a name with the held resource. An alias may have moved here from another
    /// resource (ALI-2); then the version of the other resource proves nothing.
    pub(super) fn compare(
        &mut self,
        name: &ResourceName,
        held: Option<&HeldResource>,
        received: &Received,
        resource: &Resource,
        variant: Variant,
    ) {
        let Some(held) = held.filter(|held| *held.own_name(name) == received.name) else { return };
        let version = &received.upstream_version;
        if held.version == *version {
            if !version.is_empty() {
                self.repeated.push((name.clone(), resource.version));
            }
        } else if variant == Variant::Delta && self.lower.is_none() {
            self.lower = lower_version(Some(&received.name), version, &held.version);
        }
    }

    pub(super) fn events(self, type_url: &TypeUrl) -> impl Iterator<Item = Event> {
        let VersionCheck { repeated: contents, lower } = self;
        let repeated =
            (!contents.is_empty()).then(|| Event::SameVersion { type_url: type_url.clone(), contents });
        let lower = lower.map(|lower| Event::WentBackwards { type_url: type_url.clone(), lower });
        repeated.into_iter().chain(lower)
    }
}

/// Returns true if `version` is known to be lower than `before`. Both have to be decimal numbers after equal
/// words without digits (`12`, `v12`), or times of RFC 3339 in UTC with a number (`2026-01-31T12:00:00Z/12`,
/// the form of istiod). All other versions have no order.
fn is_lower(version: &str, before: &str) -> bool {
    if version == before {
        return false;
    }
    let (Some(version), Some(before)) = (OrderedVersion::parse(version), OrderedVersion::parse(before))
    else {
        return false;
    };
    let is_alike = version.words == before.words && version.time.is_empty() == before.time.is_empty();
    is_alike && (version.time, version.rank()) < (before.time, before.rank())
}

struct OrderedVersion<'a> {
    words: &'a str,
    /// Empty, or of one length and one form, so that the order of texts is the order of times.
    time: &'a str,
    /// Without leading zeros.
    number: &'a str,
}

/// `2026-01-31T12:00:00Z/`, 0 for any digit.
const TIME: &[u8] = b"0000-00-00T00:00:00Z/";

impl OrderedVersion<'_> {
    fn parse(version: &str) -> Option<OrderedVersion<'_>> {
        let start = version.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (head, number) = version.split_at_checked(start).filter(|(_, number)| !number.is_empty())?;
        let is_time = head.len() == TIME.len()
            && head.bytes().zip(TIME).all(|(byte, form)| match form {
                b'0' => byte.is_ascii_digit(),
                _ => byte == *form,
            });
        let (words, time) = if is_time { ("", head) } else { (head, "") };
        let number = number.trim_start_matches('0');
        (!words.contains(|c: char| c.is_ascii_digit())).then_some(OrderedVersion { words, time, number })
    }

    fn rank(&self) -> (usize, &str) {
        (self.number.len(), self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::is_lower;

    #[test]
    fn fu_21_versions_of_one_form_have_an_order() {
        let lower = [
            ("4", "5"),
            ("9", "10"),
            ("0", "1"),
            ("v9", "v12"),
            ("config-007", "config-8"),
            ("18446744073709551616", "18446744073709551617"),
            ("2026-01-31T12:00:00Z/12", "2026-01-31T12:00:00Z/13"),
            ("2026-01-31T11:59:59Z/14", "2026-01-31T12:00:00Z/13"),
        ];
        for (version, before) in lower {
            assert!(is_lower(version, before), "{version} after {before}");
            assert!(!is_lower(before, version) && !is_lower(version, version), "{before} after {version}");
        }
        assert!(!is_lower("007", "7") && !is_lower("7", "007"));
    }

    #[test]
    fn fu_21_others_have_none() {
        let others = [
            ("", "5"),
            ("4", ""),
            ("v4", "5"),
            ("v4", "w5"),
            ("v1.4", "v2.3"),
            ("a3f4", "b7c9"),
            ("4 ", "5 "),
            ("4a", "5a"),
            ("12", "2026-01-31T12:00:00Z/13"),
            ("2026-01-31T12:00:00+01:00/1", "2026-01-31T12:00:00+01:00/2"),
        ];
        for (version, before) in others {
            assert!(!is_lower(version, before) && !is_lower(before, version), "{version} and {before}");
        }
    }
}
