//! The state of the plans on disk, in JSON (WAV-8). Units are numbered as in the process that wrote the file.

use serde::{Deserialize, Serialize};

use super::record::Record;

/// The format of the file. Another number means another format.
const FORMAT: u32 = 1;

/// The file.
#[derive(Debug, Serialize, Deserialize)]
struct File {
    format: u32,
    plans: Vec<Record>,
}

/// Writes all plans as one file.
#[must_use]
pub fn encode_plans(plans: &[Record]) -> Vec<u8> {
    // Plain data: no map has a key that JSON lacks.
    serde_json::to_vec(&File { format: FORMAT, plans: plans.to_vec() }).unwrap_or_default()
}

/// Reads the plans of a file.
///
/// # Errors
/// The text is not of this format.
pub fn decode_plans(bytes: &[u8]) -> Result<Vec<Record>, String> {
    let file: File = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    match file.format {
        FORMAT => Ok(file.plans),
        other => Err(format!("format {other}; this build reads {FORMAT}")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::rollout::record::{
        Millis, PinEnd, PinRecord, PushRecord, ReleaseRecord, StoredContent, StoredNames, StoredRejected,
        StoredRestated, StoredUnit, UnitRecord,
    };
    use crate::rollout::{ReleaseDigest, UnitId};
    use sluice_engine::collection::CollectionKind;

    fn plan() -> Record {
        let source =
            StoredUnit { list: "xds_servers".into(), server: "cp-1:15010".into(), class: "07".repeat(32) };
        let (unit, bits) = (UnitId(3), u128::MAX - 5);
        let (stable, candidate) = (ReleaseDigest(0), ReleaseDigest(bits));
        Record {
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
            units: BTreeMap::from([(unit, source)]),
            barred: Vec::new(),
            proved: vec![unit],
            away_ms: BTreeMap::from([(unit, Millis(Duration::from_secs(86_400)))]),
            frozen_ms: Some(Millis(Duration::from_millis(5))),
            pin: Some(PinRecord { release: 41, until: PinEnd::Left(Duration::from_millis(9)) }),
            served: Some(2),
            shared: None,
            condemned: vec![StoredContent {
                type_url: "t".into(),
                name: "a".into(),
                version: bits,
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
                        kind: CollectionKind::Wildcard,
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
        let without_ages = Record { away_ms: BTreeMap::new(), ..plan() };
        assert_eq!(decode_plans(earlier.as_bytes()).unwrap(), [without_ages], "a file of an earlier build");
        let from = text.find(",\"rejected\":").unwrap();
        let earlier = format!("{}}}]}}", &text[..from]);
        let without_rejections = Record { rejected: StoredRejected::default(), ..plan() };
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
