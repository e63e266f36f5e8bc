//! Names and wildcards without sessions linger, and are freed (RLY-59 to RLY-61).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Source;
use crate::engine::Time;
use crate::engine::cache::WildcardCache;
use crate::engine::collection::CollectionKind;
use crate::engine::source::attachment::Attachment;
use crate::engine::source::linger::Lingering;
use crate::engine::upstream;
use crate::xds::{ResourceName, TypeUrl};

impl Source {
    pub(super) fn start_linger(&mut self, type_url: &TypeUrl, names: Vec<ResourceName>, now: Time) {
        let Some(cache) = self.types.get(type_url) else { return };
        for name in names {
            // A session that moves between two sets leaves the old set after it joined the new set.
            let unwatched = cache.unwatched(&name).filter(|_| !self.is_kept(type_url, Some(&name)));
            if let Some((bytes, has_content)) = unwatched {
                self.linger.add((type_url.clone(), Some(name)), bytes, has_content, now);
            }
        }
    }

    /// Unsubscribes and frees names whose linger is over (RLY-61).
    pub(super) fn expire_linger(&mut self, now: Time) {
        let lingered = std::iter::from_fn(|| self.linger.pop(now)).collect();
        self.free(lingered, now);
    }

    pub(super) fn free(&mut self, lingered: Vec<Lingering>, now: Time) {
        let mut names: BTreeMap<TypeUrl, Vec<ResourceName>> = BTreeMap::new();
        for (type_url, name) in lingered {
            match name {
                Some(name) => names.entry(type_url).or_default().push(name),
                None => self.expire_wildcard(&type_url, now),
            }
        }
        for (type_url, names) in names {
            let Some(cache) = self.types.get_mut(&type_url) else { continue };
            let (globs, names): (Vec<_>, Vec<_>) = names.into_iter().partition(ResourceName::is_glob);
            let names: Vec<_> = names.into_iter().filter(|name| cache.named.free(name)).collect();
            let mut members = Vec::new();
            let globs: Vec<_> =
                globs.into_iter().filter(|glob| cache.globs.free(glob, &mut members)).collect();
            cache.private.forget(&names);
            cache.private.forget(&globs);
            if let Some(unasked) = &mut cache.unasked {
                let unasked = Arc::make_mut(unasked);
                names.iter().for_each(|name| unasked.remove(name));
            }
            let (no_names, no_globs) = (cache.named.is_empty(), cache.globs.is_empty());
            for (kind, freed) in [(CollectionKind::Names, &names), (CollectionKind::Globs, &members)] {
                self.upkeep.freed(&type_url, kind, freed);
                self.guard.forget(&type_url, kind, freed);
            }
            if let Attachment::Streams(streams) = &mut self.attachment {
                streams.unsubscribe(&type_url, upstream::ResourceSelection::Names(names), no_names, now);
                streams.unsubscribe(&type_url, upstream::ResourceSelection::Globs(globs), no_globs, now);
            }
            self.settle(&type_url, now);
        }
        let types = &self.types;
        let known = types.values().map(|cache| cache.named.known().len() + cache.globs.len()).sum();
        self.upkeep.forget_asked(known, |type_url, name| {
            types.get(type_url).is_some_and(|cache| cache.is_unknown(name))
        });
    }

    fn expire_wildcard(&mut self, type_url: &TypeUrl, now: Time) {
        let Some(cache) = self.types.get_mut(type_url) else { return };
        if cache.wildcard.as_ref().is_none_or(WildcardCache::is_watched) {
            return;
        }
        cache.wildcard = None;
        cache.private.wildcard = false;
        self.upkeep.freed_wildcard(type_url);
        self.guard.forget_wildcard(type_url);
        if let Attachment::Streams(streams) = &mut self.attachment {
            streams.unsubscribe(type_url, upstream::ResourceSelection::Wildcard, true, now);
        }
        self.settle(type_url, now);
    }
}
