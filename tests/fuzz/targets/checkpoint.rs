//! Files of checkpoints: raw bytes, and records with right checksums.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sluice_checkpoint::format::decode;
use sluice_wire::version::FORMAT as VERSIONS;

use super::draw::Draw;
use super::{MEMORY, Target};

pub const CHECKPOINT_FILE: Target = Target {
    name: "checkpoint_file",
    run,
    seeds: || {
        // Kinds and choices of a file with each kind of record.
        let records = [1, 2, 3, 4, 6, 6, 5, 6, 2, 3, 7];
        let structured: Vec<u8> = records.iter().flat_map(|kind| [*kind, 0, 1, 2, 3, 4, 5, 6]).collect();
        let mut draw = Draw::new(&structured);
        let file = assemble(&mut draw).0;
        vec![[&[1][..], &structured].concat(), [&[0][..], &file].concat(), [&[1][..], &[7; 64]].concat()]
    },
    words: &[
        "SLUICECP",
        "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "sluice resource v1",
        "\u{0}\u{0}\u{0}\u{0}",
    ],
    mutations: 8_000,
    memory: MEMORY,
};

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000)
}

/// RLY-7: a file is read as a whole or not at all.
fn run(data: &[u8]) {
    let Some((form, rest)) = data.split_first() else { return };
    let mut draw = Draw::new(rest);
    let (file, resources) = match form & 1 {
        0 => (rest.to_vec(), None),
        _ => {
            let (file, resources) = assemble(&mut draw);
            (file, Some(resources))
        }
    };
    let read = decode(&file, now());
    assert_eq!(read, decode(&file, now()));
    let Ok(restored) = read else { return };
    if let Some(resources) = resources {
        assert!(restored.resources() <= resources, "{restored:?}");
    }
    let at = draw.number() as usize % file.len();
    let mut changed = file.clone();
    changed[at] ^= 1 << (form >> 1 & 7);
    assert!(decode(&changed, now()).is_err(), "byte {at} may change");
    assert!(decode(&file[..at], now()).is_err(), "the file may end at {at}");
    let restored = Arc::new(restored);
    let (soon, late) = (restored.later(Duration::from_secs(1)), restored.later(Duration::from_secs(1 << 40)));
    assert!(late.resources() <= soon.resources() && soon.resources() <= restored.resources());
}

/// A file with right checksums, and the number of its resources.
fn assemble(draw: &mut Draw<'_>) -> (Vec<u8>, usize) {
    let mut file = [&b"SLUICECP"[..], &1_u32.to_le_bytes()].concat();
    let (mut number, mut resources) = (0, 0);
    while number < 64 {
        let kind = match (number, draw.is_empty()) {
            (0, _) => 1,
            (_, true) => 7,
            _ => draw.byte() % 9,
        };
        let mut payload = payload(kind, number, draw);
        if draw.byte() == 255 {
            payload = draw.bytes(64).to_vec();
        }
        resources += usize::from(kind == 3 || kind == 6);
        let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
        let record = [&[kind][..], &length, &payload].concat();
        file.extend_from_slice(&record);
        let mut hasher = blake3::Hasher::new();
        hasher.update(&number.to_le_bytes());
        hasher.update(&record);
        file.extend_from_slice(&hasher.finalize().as_bytes()[..8]);
        number += 1;
        if kind == 7 {
            break;
        }
    }
    let whole = blake3::hash(&file);
    file.extend_from_slice(whole.as_bytes());
    (file, resources)
}

fn bytes(payload: &mut Vec<u8>, bytes: &[u8]) {
    payload.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_le_bytes());
    payload.extend_from_slice(bytes);
}

fn payload(kind: u8, number: u64, draw: &mut Draw<'_>) -> Vec<u8> {
    let mut payload = Vec::new();
    let name =
        |draw: &mut Draw<'_>| draw.one_of(&["a", "b", "xdstp://x/t/a", "xdstp://x/t/*", ""]).to_owned();
    match kind {
        1 => {
            bytes(&mut payload, b"xds_servers");
            bytes(&mut payload, b"localhost:1");
            payload.extend_from_slice(&[7; 64]);
            let written = draw.one_of(&[1_900_000_000, 2_100_000_000, 0, u64::MAX / 1_000_000]) * 1_000_000;
            payload.extend_from_slice(&written.to_le_bytes());
            payload.extend_from_slice(&written.to_le_bytes());
            bytes(&mut payload, VERSIONS);
        }
        2 => bytes(
            &mut payload,
            draw.one_of(&["type.googleapis.com/envoy.config.cluster.v3.Cluster", "x", ""]).as_bytes(),
        ),
        3 | 6 => {
            if kind == 3 {
                bytes(&mut payload, name(draw).as_bytes());
            }
            bytes(&mut payload, name(draw).as_bytes());
            payload.extend_from_slice(&[number as u8; 16]);
            payload.push(0);
            bytes(&mut payload, draw.bytes(16));
            let aliases = u64::from(draw.byte());
            payload.extend_from_slice(&if aliases > 250 { u64::MAX } else { aliases & 1 }.to_le_bytes());
            if aliases & 1 == 1 {
                bytes(&mut payload, b"alias");
            }
            payload.extend_from_slice(&[0, 0]);
            let (ttl, left) = (draw.byte(), draw.number());
            for value in [60_000_000, left] {
                payload.push(ttl & 1);
                if ttl & 1 == 1 {
                    payload.extend_from_slice(&value.to_le_bytes());
                }
            }
            bytes(&mut payload, b"7");
        }
        5 => bytes(&mut payload, name(draw).as_bytes()),
        7 => payload.extend_from_slice(&number.to_le_bytes()),
        _ => {}
    }
    payload
}
