//! The state of the plans on disk, in JSON (WAV-8). Units are numbered as in the process that wrote the file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::checkpoint::Identity;
use crate::xds::Version;

/// The format of the file. Another number means another format.
const FORMAT: u32 = 1;

/// The file.
#[derive(Debug, Serialize, Deserialize)]
struct File {
    format: u32,
    plans: Vec<StoredPlan>,
}

/// A plan with `mode: enforce`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredPlan {
    pub name: String,
    /// Microseconds since 1970.
    pub written_at: u64,
    pub last_push: u64,
    pub push: Option<StoredPush>,
    /// The latest first.
    pub releases: Vec<StoredRelease>,
    pub units: BTreeMap<u64, StoredUnit>,
    pub barred: Vec<u64>,
    /// Files of earlier builds lack the list.
    #[serde(default)]
    pub proved: Vec<u64>,
    /// The units that hold something back, each with the age of the oldest change. Files of earlier builds lack the ages.
    #[serde(default)]
    pub away_ms: BTreeMap<u64, u64>,
    /// The time left of a freeze.
    pub frozen_ms: Option<u64>,
    pub pin: Option<StoredPin>,
    /// The release that is the stable content. Files of earlier builds lack it.
    #[serde(default)]
    pub served: Option<u64>,
    pub condemned: Vec<StoredContent>,
    /// Files of earlier builds lack it.
    #[serde(default)]
    pub rejected: StoredRejected,
}

/// The rejected pushes that clients may have a part of (WAV-10).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoredRejected {
    /// The latest push.
    pub push: u64,
    pub nodes: Vec<String>,
    pub restated: Vec<StoredRestated>,
}

/// The names that a unit restates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredRestated {
    pub unit: u64,
    /// The latest push of the unit.
    pub push: u64,
    pub names: Vec<StoredNames>,
}

/// Names of a type, of one kind of collection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredNames {
    pub type_url: String,
    pub kind: StoredKind,
    pub names: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredKind {
    Wildcard,
    Globs,
    Names,
}

/// A source, as in the names of the sources' files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredUnit {
    list: String,
    server: String,
    /// A hash of the node class, in hexadecimal digits.
    class: String,
}

/// The halted push.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredPush {
    pub number: u64,
    pub step: u8,
    pub threshold: u16,
    /// The number, the stable content and the content of the push.
    pub units: Vec<(u64, StoredDigest, StoredDigest)>,
    pub blamed: Vec<u64>,
}

/// A content that all clients had.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredRelease {
    pub push: u64,
    pub units: Vec<(u64, StoredDigest)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredPin {
    pub release: u64,
    pub until: StoredPinEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredPinEnd {
    NextPush,
    Unpin,
    LeftMs(u64),
}

/// A content that clients rejected by its name, or that an operator condemned (QUA-2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredContent {
    pub type_url: String,
    pub name: String,
    pub version: StoredDigest,
    /// The time for which the content is remembered (QUA-5). Files of earlier builds lack it.
    #[serde(default)]
    pub left_ms: Option<u64>,
}

/// 128 bits, as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StoredDigest(pub u128);

impl From<StoredDigest> for String {
    fn from(digest: StoredDigest) -> String {
        Version(digest.0).to_string()
    }
}

impl TryFrom<String> for StoredDigest {
    type Error = String;

    fn try_from(text: String) -> Result<StoredDigest, String> {
        Version::parse(&text)
            .map(|version| StoredDigest(version.0))
            .ok_or_else(|| format!("{text:?} is not 32 hexadecimal digits"))
    }
}

impl StoredPlan {
    pub fn holds(&self, unit: &StoredUnit) -> bool {
        let found = self.units.iter().find(|(_, of)| *of == unit);
        found.is_some_and(|(number, _)| {
            let mut pushed = self.push.iter().flat_map(|push| &push.units).map(|(number, ..)| number);
            self.pin.is_some()
                || pushed.any(|pushed| pushed == number)
                || self.away_ms.contains_key(number)
                || self.barred.contains(number)
        })
    }
}

impl From<&Identity> for StoredUnit {
    fn from(of: &Identity) -> StoredUnit {
        let class = of.class.iter().map(|byte| format!("{byte:02x}")).collect();
        StoredUnit { list: of.list.to_string(), server: of.server.to_string(), class }
    }
}

/// Writes all plans as one file.
#[must_use]
pub fn encode_plans(plans: &[StoredPlan]) -> Vec<u8> {
    // Plain data: no map has a key that JSON lacks.
    serde_json::to_vec(&File { format: FORMAT, plans: plans.to_vec() }).unwrap_or_default()
}

/// Reads the plans of a file.
///
/// # Errors
/// The text is not of this format.
pub fn decode_plans(bytes: &[u8]) -> Result<Vec<StoredPlan>, String> {
    let file: File = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    match file.format {
        FORMAT => Ok(file.plans),
        other => Err(format!("format {other}; this build reads {FORMAT}")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn plan() -> StoredPlan {
        let identity = Identity { list: "xds_servers".into(), server: "cp-1:15010".into(), class: [7; 32] };
        let digest = StoredDigest(u128::MAX - 5);
        StoredPlan {
            name: "edge".to_owned(),
            written_at: 1,
            last_push: 42,
            push: Some(StoredPush {
                number: 42,
                step: 2,
                threshold: 1_000,
                units: vec![(3, StoredDigest(0), digest)],
                blamed: vec![3],
            }),
            releases: vec![StoredRelease { push: 41, units: vec![(3, StoredDigest(0))] }],
            units: BTreeMap::from([(3, StoredUnit::from(&identity))]),
            barred: Vec::new(),
            proved: vec![3],
            away_ms: BTreeMap::from([(3, 86_400_000)]),
            frozen_ms: Some(5),
            pin: Some(StoredPin { release: 41, until: StoredPinEnd::LeftMs(9) }),
            served: Some(2),
            condemned: vec![StoredContent {
                type_url: "t".into(),
                name: "a".into(),
                version: digest,
                left_ms: Some(3),
            }],
            rejected: StoredRejected {
                push: 42,
                nodes: vec!["envoy-7".into()],
                restated: vec![StoredRestated {
                    unit: 3,
                    push: 42,
                    names: vec![StoredNames {
                        type_url: "t".into(),
                        kind: StoredKind::Wildcard,
                        names: vec!["a".into()],
                    }],
                }],
            },
        }
    }

    #[test]
    fn wav_8_the_state_of_plans_is_read_as_it_was_written() {
        let bytes = encode_plans(&[plan()]);
        assert_eq!(decode_plans(&bytes).unwrap(), [plan()]);
        let text = String::from_utf8(bytes).unwrap();
        let earlier = text.replacen("\"away_ms\":{\"3\":86400000},", "", 1);
        let without_ages = StoredPlan { away_ms: BTreeMap::new(), ..plan() };
        assert_eq!(decode_plans(earlier.as_bytes()).unwrap(), [without_ages], "a file of an earlier build");
        let from = text.find(",\"rejected\":").unwrap();
        let earlier = format!("{}}}]}}", &text[..from]);
        let without_rejections = StoredPlan { rejected: StoredRejected::default(), ..plan() };
        assert_eq!(
            decode_plans(earlier.as_bytes()).unwrap(),
            [without_rejections],
            "a file of an earlier build"
        );
        let other = text.replacen("\"format\":1", "\"format\":2", 1);
        assert_eq!(decode_plans(other.as_bytes()).unwrap_err(), "format 2; this build reads 1");
        let broken = text.replacen("fffffffffffffffffffffffffffffffa", "fffg", 1);
        assert!(
            decode_plans(broken.as_bytes()).unwrap_err().contains("\"fffg\" is not 32 hexadecimal digits")
        );
        assert!(decode_plans(b"").is_err());
        let earlier = text.replacen(",\"left_ms\":3", "", 1);
        let condemned = decode_plans(earlier.as_bytes()).unwrap().remove(0).condemned.remove(0);
        assert_eq!((condemned.name.as_str(), condemned.left_ms), ("a", None), "a file of an earlier build");
    }
}
