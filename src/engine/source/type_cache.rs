//! The caches of one type.

use std::sync::Arc;

use crate::engine::Time;
use crate::engine::cache::{Departed, GlobCache, Known, NamedCache, UnaskedNames, WildcardCache};
use crate::engine::collection::CollectionKind;
use crate::engine::snapshot::{GlobsSnapshot, NamesSnapshot, TypeSnapshot, WildcardSnapshot};
use crate::engine::source::do_not_cache::Private;
use crate::xds::ResourceName;

#[derive(Debug, Default)]
pub(super) struct TypeCache {
    pub(super) named: NamedCache,
    pub(super) wildcard: Option<WildcardCache>,
    pub(super) private: Private,
    pub(super) globs: GlobCache,
    /// Unasked names (DEL-17). `None` for nearly all types.
    pub(super) unasked: Option<Arc<UnaskedNames>>,
}

impl TypeCache {
    pub(super) fn is_empty(&self) -> bool {
        self.named.is_empty() && self.wildcard.is_none() && self.globs.is_empty()
    }

    /// Whether the state of a name or a glob is unknown, and no error says why.
    pub(super) fn is_unknown(&self, name: &ResourceName) -> bool {
        match CollectionKind::of(name) {
            CollectionKind::Globs => {
                self.globs.is_unknown(name) && self.globs.annotations().error(name).is_none()
            }
            _ => {
                let is_unknown = matches!(self.named.known().get(name), Some(Known::Unknown));
                is_unknown && self.named.annotations().error(name).is_none()
            }
        }
    }

    /// The weight of a name or a glob without sessions, and whether the name has content; `None` if a session
    /// watches.
    pub(super) fn unwatched(&self, name: &ResourceName) -> Option<(usize, bool)> {
        let (is_watched, weight, has_content) = match name.is_glob() {
            true => (self.globs.is_watched(name), self.globs.weight(name), self.globs.has_members(name)),
            false => {
                let has_content =
                    self.named.known().get(name).is_some_and(|known| known.resource().is_some());
                (self.named.is_watched(name), self.named.weight(name), has_content)
            }
        };
        (!is_watched).then_some((weight, has_content))
    }

    /// Routes may refer to departed resources of the cluster side (RLY-51). Nothing refers to departed
    /// resources of other types.
    pub(super) fn keep_departed(&mut self, keep: bool) {
        self.named.departed.kept = keep;
        if let Some(wildcard) = &mut self.wildcard {
            wildcard.departed_mut().kept = keep;
        }
        self.globs.departed_mut().kept = keep;
    }

    /// The content for a snapshot.
    pub(super) fn snapshot(&self) -> TypeSnapshot {
        let wildcard = self.wildcard.as_ref().map(|wildcard| WildcardSnapshot {
            members: wildcard.members().clone(),
            view: Some(wildcard.view().clone()),
            departed: wildcard.departed().bodies().clone(),
        });
        TypeSnapshot {
            names: NamesSnapshot {
                known: self.named.known().clone(),
                aliases: self.named.aliases().clone(),
                sets: self.named.sets().clone(),
                departed: self.named.departed.bodies().clone(),
                annotations: self.named.annotations().clone(),
                unasked: self.unasked.clone(),
            },
            globs: GlobsSnapshot {
                members: self.globs.members().clone(),
                complete: self.globs.complete().clone(),
                sets: self.globs.sets().clone(),
                departed: self.globs.departed().bodies().clone(),
                annotations: self.globs.annotations().clone(),
            },
            wildcard: wildcard.unwrap_or_default(),
            evicted: self.departed().map(Departed::evicted).sum(),
            lasts: None,
        }
    }

    pub(super) fn departed(&self) -> impl Iterator<Item = &Departed> {
        let wildcard = self.wildcard.as_ref().map(|wildcard| wildcard.departed());
        [&self.named.departed, self.globs.departed()].into_iter().chain(wildcard)
    }

    /// Frees the last bytes of resources that left long enough ago. Returns whether there were any.
    pub(super) fn expire_departed(&mut self, now: Time) -> bool {
        let members = self.wildcard.as_mut().is_some_and(|wildcard| wildcard.departed_mut().expire(now));
        self.globs.departed_mut().expire(now) || members
    }
}
