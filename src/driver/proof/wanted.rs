//! The question of a client to the source of its class (PRF-2).

use std::hash::{DefaultHasher, Hash, Hasher};

use sluice_engine::downstream::{Part, Session, SourceId};
use sluice_proof::proof::Wanted;
use sluice_xds::{Node, TypeUrl};

/// The parts of a stream that a source serves, and that may be asked for again. Secrets are asked for only if
/// their versions are to be compared (PRF-7). Parts that may not be shared have private sources (PRF-6).
pub(super) fn wanted_of(session: &Session, source: SourceId, compares_secrets: bool) -> Vec<Wanted> {
    let parts = parts_of(session)
        .filter(|(type_url, part)| part.source() == source && (compares_secrets || !type_url.is_secret()));
    parts.map(|(type_url, part)| (type_url.clone(), part.collection.clone())).collect()
}

/// All parts of a stream, each with its type.
pub(super) fn parts_of(session: &Session) -> impl Iterator<Item = (&TypeUrl, &Part)> {
    let subscriptions = session.subscriptions().iter();
    subscriptions
        .flat_map(|subscription| subscription.parts.iter().map(|part| (&subscription.type_url, part)))
}

/// A number that changes whenever the node, a part or a source of the stream changes. A look at ten thousand
/// streams compares such numbers, and copies nothing.
pub(super) fn signature(node: Option<&Node>, session: &Session) -> u64 {
    let mut hasher = DefaultHasher::new();
    node.map(std::ptr::from_ref).hash(&mut hasher);
    for (type_url, part) in parts_of(session) {
        type_url.as_str().hash(&mut hasher);
        part.source().0.hash(&mut hasher);
        part.collection.kind().hash(&mut hasher);
        part.collection.names().map(|names| (names.id(), names.len())).hash(&mut hasher);
    }
    hasher.finish()
}
