//! The targets of an answer: the views that the client holds after the answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::downstream::answer::{Answer, AnswerPart};
use crate::view::{STAYS, View, difference};
use sluice_xds::{ResourceName, Version};

/// The targets of the parts of an answer; empty if the targets are the sources' own views. Withheld names
/// stay, and forced endpoints (ORD-5) go once more although they are gone (SST-6), both with their last
/// bytes.
pub fn targets(answer: &Answer) -> Vec<Arc<View>> {
    let plain = |part: &AnswerPart| part.keeps.is_empty() && (part.last_bytes == 0 || answer.deletes());
    if answer.parts.iter().all(plain) {
        return Vec::new();
    }
    let kept: Vec<_> = answer.parts.iter().map(|part| kept(answer, part)).collect();
    if kept.iter().all(BTreeMap::is_empty) {
        return Vec::new();
    }
    let targets = answer.parts.iter().zip(kept).map(|(part, kept)| match kept.is_empty() {
        true => part.view.clone(),
        false => Arc::new(part.view.keeping(kept.into_iter(), part.held.annotations())),
    });
    targets.collect()
}

/// Whether a client that must be sent a name again had the last bytes before. A client without the last bytes
/// may have newer content, of another server or of an earlier stream. Endpoints go after their cluster in any
/// case (ORD-5).
fn is_known(before: Option<Version>, held: Version, last: Version) -> bool {
    before == Some(last) || held != Version::default()
}

fn kept(answer: &Answer, part: &AnswerPart) -> BTreeMap<ResourceName, Version> {
    let kind = part.collection.kind();
    let last = |name: &ResourceName| {
        let types = part.snapshot.of(&answer.type_url)?;
        let held = || part.held.version_of(name);
        types.departed_as(kind, name, held).map(|resource| resource.version)
    };
    let mut kept = BTreeMap::new();
    if !answer.deletes() {
        let forced = part.held.forced_beside(&part.view).filter(|name| part.collection.covers(name));
        kept.extend(forced.filter_map(|name| last(&name).map(|version| (name, version))));
        return kept;
    }
    for base in &part.keeps {
        for name in difference(base, &part.view, kind).gone {
            let is_there = answer.parts.iter().any(|part| part.view.has(&name));
            let Some(held) = part.held.version_of(&name).filter(|_| base.has(&name) && !is_there) else {
                continue;
            };
            // A complete set needs the bytes. Delta needs them only for a resend. A name that was given up
            // beside a glob needs none: its own content may have been newer, and the removal is the answer
            // (DEL-19).
            if answer.is_departed(&name) && !answer.full {
                kept.insert(name, STAYS);
                continue;
            }
            let again = answer.full || part.held.is_due_again(&name);
            let version = match last(&name).filter(|_| again) {
                Some(last) if answer.full || is_known(base.version_of(&name), held, last) => Some(last),
                Some(_) => Some(STAYS),
                None => Some(held).filter(|_| !answer.full),
            };
            kept.extend(version.map(|version| (name, version)));
        }
    }
    kept
}
