//! Keeps an inherited source at work until its clients have come over from the predecessor (HND-1).
//!
//! To the source, a keeper is one more stream: it wants everything that the source holds, and is never sent
//! anything.

use std::sync::Arc;

use super::handle::{Command, SourceHandle};
use super::silent::SilentClient;
use sluice_engine::cache::SessionId;
use sluice_engine::class::NameStyle;
use sluice_engine::collection::{Collection, CollectionKind, HashSeed, NameSet, style_of};
use sluice_engine::source::RestoredType;
use sluice_xds::ResourceName;

/// Lets the source go when it is dropped.
pub struct Keeper {
    source: Arc<SourceHandle>,
    session: SessionId,
}

impl Keeper {
    /// `session` is of no stream. Subscribes to everything in `types`.
    pub async fn new(
        source: Arc<SourceHandle>,
        session: SessionId,
        types: &[RestoredType],
        seed: HashSeed,
    ) -> Keeper {
        let keeper = Keeper { source, session };
        let client = SilentClient::new(session, None, Arc::default());
        for of_type in types {
            for collection in collections(of_type, seed) {
                let (stream, type_url) = (client.clone(), of_type.type_url.clone());
                // A keeper is sent nothing.
                let (previous, seen) = (None, u64::MAX);
                keeper.source.send(Command::Watch { stream, type_url, collection, previous, seen }).await;
            }
        }
        keeper
    }

    pub fn source(&self) -> &Arc<SourceHandle> {
        &self.source
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.source.forget(self.session);
    }
}

/// A collection has names of one style.
fn collections(of_type: &RestoredType, seed: HashSeed) -> Vec<Collection> {
    let wildcard = of_type.wildcard.is_some().then_some(Collection::Wildcard);
    let names: Vec<ResourceName> = of_type.names.iter().map(|kept| kept.name.clone()).collect();
    let globs: Vec<ResourceName> = of_type.globs.iter().map(|(glob, _)| glob.clone()).collect();
    let sets = [(CollectionKind::Names, names), (CollectionKind::Globs, globs)];
    let sets = sets.into_iter().flat_map(|(kind, names)| {
        [NameStyle::Old, NameStyle::Xdstp].map(|style| {
            let of_style = names.iter().filter(|name| style_of(name) == style).cloned();
            let set = NameSet::of(of_style, seed);
            (!set.is_empty()).then(|| kind.collection(Arc::new(set)))
        })
    });
    wildcard.into_iter().chain(sets.flatten()).collect()
}
