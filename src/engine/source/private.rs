//! What the server does not want cached or shared (CCH-1).
//!
//! A source that serves everyone never stores such a resource. It says who waits for it: they have to ask for themselves,
//! each through a source of its own. It remembers the names, for it was answered already, and no second answer comes for
//! those who join it late.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Output, Source, TypeCache};
use crate::engine::cache::SessionId;
use crate::engine::interest::Interest;
use crate::engine::upstream::{Changes, Scope};
use crate::xds::{Resource, ResourceName, TypeUrl};

/// Of one type: names that are subscribed to, and whether the wildcard has such members.
#[derive(Debug, Default)]
pub(super) struct Private {
    names: BTreeSet<ResourceName>,
    pub(super) wildcard: bool,
}

impl Private {
    pub(super) fn forget(&mut self, names: &[ResourceName]) {
        for name in names {
            self.names.remove(name);
        }
    }
}

impl TypeCache {
    /// Takes what may not be shared out of what is to be cached. Gives the names, or `None` for the wildcard, and who waits.
    fn give_up(&mut self, changes: &mut Changes) -> Vec<(Option<ResourceName>, Vec<SessionId>)> {
        let (private, rest): (Vec<Arc<Resource>>, _) =
            std::mem::take(&mut changes.present).into_iter().partition(|resource| resource.do_not_cache);
        changes.present = rest;
        match changes.scope {
            Scope::Wildcard => {
                self.private.wildcard |= !private.is_empty();
                // Without them the membership is never known as a whole.
                changes.complete &= !self.private.wildcard;
                let sessions = || self.wildcard.iter().flat_map(|wildcard| wildcard.sessions()).collect();
                if private.is_empty() { Vec::new() } else { vec![(None, sessions())] }
            }
            Scope::Globs => {
                let globs: BTreeSet<_> = private.iter().filter_map(|resource| resource.name.glob()).collect();
                self.private.names.extend(globs.iter().cloned());
                let with_sessions = |glob: ResourceName| {
                    let sessions = self.globs.sessions_of(&glob);
                    (Some(glob), sessions)
                };
                globs.into_iter().map(with_sessions).collect()
            }
            Scope::Names => {
                for resource in &changes.present {
                    self.private.names.remove(&resource.name);
                }
                changes.by_alias.retain(|(_, resource)| !resource.do_not_cache);
                let names = private.iter().flat_map(|r| std::iter::once(&r.name).chain(&r.aliases));
                let wanted: Vec<_> =
                    names.filter(|name| self.named.known().contains_key(*name)).cloned().collect();
                self.private.names.extend(wanted.iter().cloned());
                let with_sessions = |name: ResourceName| {
                    let sessions = self.named.sessions_of(&name);
                    (Some(name), sessions)
                };
                wanted.into_iter().map(with_sessions).collect()
            }
        }
    }
}

impl Source {
    pub(super) fn give_up_private(&mut self, changes: &mut Changes) {
        let type_url = changes.type_url.clone();
        let Some(cache) = self.types.get_mut(&type_url).filter(|_| !self.settings.private) else { return };
        for (name, sessions) in cache.give_up(changes) {
            self.outputs.push_back(Output::DoNotCache { type_url: type_url.clone(), name, sessions });
        }
    }

    /// A session asked for what turned out to be private before it came.
    pub(super) fn divert_late(&mut self, session: SessionId, type_url: &TypeUrl, interest: &Interest) {
        let Some(cache) = self.types.get(type_url) else { return };
        let private = &cache.private;
        let names: Vec<_> = match interest {
            Interest::Wildcard => private.wildcard.then_some(None).into_iter().collect(),
            Interest::Globs(names) | Interest::Names(names) => {
                private.names.iter().filter(|name| names.contains(name)).cloned().map(Some).collect()
            }
        };
        for name in names {
            let (type_url, sessions) = (type_url.clone(), vec![session]);
            self.outputs.push_back(Output::DoNotCache { type_url, name, sessions });
        }
    }
}
