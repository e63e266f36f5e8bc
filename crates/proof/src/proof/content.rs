//! The content of a source as the proof compares it.

use std::collections::BTreeMap;

use sluice_engine::snapshot::{Snapshot, TypeSnapshot, TypeStanding};
use sluice_xds::TypeUrl;

/// A type: the resources, and the current parts.
#[derive(Clone, Debug, Default)]
pub struct TypeContent {
    pub snapshot: TypeSnapshot,
    pub standing: TypeStanding,
}

/// The content of a source at one moment. Cloning copies a few pointers for each type.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pub types: BTreeMap<TypeUrl, TypeContent>,
}

impl Content {
    /// The content and the standing of a snapshot.
    pub fn of(snapshot: &Snapshot) -> Content {
        let of_type = |(type_url, types): (&TypeUrl, &TypeSnapshot)| {
            let standing = snapshot.standing().of(type_url).cloned().unwrap_or_default();
            (type_url.clone(), TypeContent { snapshot: types.clone(), standing })
        };
        Content { types: snapshot.types().map(of_type).collect() }
    }
}
