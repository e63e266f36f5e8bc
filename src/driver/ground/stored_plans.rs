//! The state of the plans on disk, in JSON (WAV-8). Units are numbered as in the process that wrote the file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use sluice_checkpoint::Identity;
use sluice_fleet::rollout::{PinRecord, PushRecord, ReleaseRecord, UnitId};
use sluice_xds::Version;

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
    pub push: Option<PushRecord>,
    /// The latest first.
    pub releases: Vec<ReleaseRecord>,
    pub units: BTreeMap<UnitId, StoredUnit>,
    pub barred: Vec<UnitId>,
    /// Files of earlier builds lack the list.
    #[serde(default)]
    pub proved: Vec<UnitId>,
    /// The units that hold something back, each with the age of the oldest change. Files of earlier builds
    /// lack the ages.
    #[serde(default)]
    pub away_ms: BTreeMap<UnitId, u64>,
    /// The time left of a freeze.
    pub frozen_ms: Option<u64>,
    pub pin: Option<PinRecord>,
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
    pub unit: UnitId,
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

/// A content that clients rejected by its name, or that an operator condemned (QUA-2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredContent {
    pub type_url: String,
    pub name: String,
    #[serde(with = "hex")]
    pub version: Version,
    /// The time for which the content is remembered (QUA-5). Files of earlier builds lack it.
    #[serde(default)]
    pub left_ms: Option<u64>,
}

/// Versions as 32 hexadecimal digits.
mod hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use sluice_xds::Version;

    pub(super) fn serialize<S: Serializer>(version: &Version, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(version)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Version, D::Error> {
        let text = String::deserialize(deserializer)?;
        let error = || D::Error::custom(format_args!("{text:?} is not 32 hexadecimal digits"));
        Version::parse(&text).ok_or_else(error)
    }
}

impl StoredPlan {
    /// Whether the plan holds content back from a unit, or has the unit pinned.
    pub fn holds(&self, unit: &StoredUnit) -> bool {
        let number = self.units.iter().find(|(_, stored)| *stored == unit);
        number.is_some_and(|(number, _)| {
            let mut pushed = self.push.iter().flat_map(|push| &push.units);
            self.pin.is_some()
                || pushed.any(|part| part.unit == *number)
                || self.away_ms.contains_key(number)
                || self.barred.contains(number)
        })
    }
}

impl From<&Identity> for StoredUnit {
    fn from(source: &Identity) -> StoredUnit {
        let class = source.class.iter().map(|byte| format!("{byte:02x}")).collect();
        StoredUnit { list: source.list.to_string(), server: source.server.to_string(), class }
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
    use std::time::Duration;

    use super::*;
    use sluice_fleet::rollout::{PinEnd, ReleaseDigest, UnitRecord};

    fn plan() -> StoredPlan {
        let identity = Identity { list: "xds_servers".into(), server: "cp-1:15010".into(), class: [7; 32] };
        let (unit, bits) = (UnitId(3), u128::MAX - 5);
        let (stable, candidate) = (ReleaseDigest(0), ReleaseDigest(bits));
        StoredPlan {
            name: "edge".to_owned(),
            written_at: 1,
            last_push: 42,
            push: Some(PushRecord {
                number: 42,
                step: 2,
                threshold: 1_000,
                units: vec![UnitRecord { unit, stable, candidate }],
                blamed: vec![unit],
            }),
            releases: vec![ReleaseRecord { push: 41, units: vec![(unit, stable)] }],
            units: BTreeMap::from([(unit, StoredUnit::from(&identity))]),
            barred: Vec::new(),
            proved: vec![unit],
            away_ms: BTreeMap::from([(unit, 86_400_000)]),
            frozen_ms: Some(5),
            pin: Some(PinRecord { release: 41, until: PinEnd::Left(Duration::from_millis(9)) }),
            served: Some(2),
            condemned: vec![StoredContent {
                type_url: "t".into(),
                name: "a".into(),
                version: Version(bits),
                left_ms: Some(3),
            }],
            rejected: StoredRejected {
                push: 42,
                nodes: vec!["envoy-7".into()],
                restated: vec![StoredRestated {
                    unit,
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

    const FILE: &str = concat!(
        r#"{"format":1,"plans":[{"name":"edge","written_at":1,"last_push":42,"push":{"number":42,"step":2,"threshold":1000,"#,
        r#""units":[[3,"00000000000000000000000000000000","fffffffffffffffffffffffffffffffa"]],"blamed":[3]},"#,
        r#""releases":[{"push":41,"units":[[3,"00000000000000000000000000000000"]]}],"#,
        r#""units":{"3":{"list":"xds_servers","server":"cp-1:15010","#,
        r#""class":"0707070707070707070707070707070707070707070707070707070707070707"}},"#,
        r#""barred":[],"proved":[3],"away_ms":{"3":86400000},"frozen_ms":5,"#,
        r#""pin":{"release":41,"until":{"left_ms":9}},"served":2,"#,
        r#""condemned":[{"type_url":"t","name":"a","version":"fffffffffffffffffffffffffffffffa","left_ms":3}],"#,
        r#""rejected":{"push":42,"nodes":["envoy-7"],"#,
        r#""restated":[{"unit":3,"push":42,"names":[{"type_url":"t","kind":"wildcard","names":["a"]}]}]}}]}"#,
    );

    #[test]
    fn wav_8_the_state_of_plans_is_read_as_it_was_written() {
        let bytes = encode_plans(&[plan()]);
        assert_eq!(decode_plans(&bytes).unwrap(), [plan()]);
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text, FILE, "other builds read the file");
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
