//! The position of a session in server lists with more than one server (RLY-40).
//!
//! A session takes all resources of a list from one server, chosen by [`Fallback`]. Each poll of the session
//! checks the requested servers ([`Session::look`](super::Session::look)), and the session moves as a whole
//! ([`Session::shift`](super::Session::shift)). The client's content stays, so that only differences are
//! sent: clusters before routes, removals last.

use crate::engine::Time;
use crate::engine::downstream::order::turn::Snapshots;
use crate::engine::downstream::session::router::{List, Router};
use crate::engine::downstream::sources::ListId;
use crate::engine::fallback::Fallback;
use crate::xds::TypeUrl;

#[derive(Debug, Default)]
pub struct ListPositions(pub(super) Vec<ListPosition>);

/// One list, or one type of a list.
#[derive(Debug)]
pub(super) struct ListPosition {
    pub list: List,
    /// `None`: all types.
    pub(super) type_url: Option<TypeUrl>,
    pub fallback: Fallback,
    /// A move failed: the session keeps its server until this time.
    pub(super) refused_until: Option<Time>,
    /// The former sources' content, as long as removals that need the last bytes may wait (RLY-51).
    pub former: Option<Box<Former>>,
}

#[derive(Debug)]
pub(super) struct Former {
    pub snapshots: Snapshots,
    pub(super) until: Time,
}

impl ListPositions {
    /// The fallback of a list with collections, created at the first use; `None` if the list has one server.
    pub fn enter(&mut self, id: ListId, type_url: &TypeUrl, router: &dyn Router) -> Option<&Fallback> {
        let index = match self.0.iter().position(|position| position.covers(type_url, id)) {
            Some(index) => index,
            None => {
                let list = router.fallback(id)?;
                let type_url = list.by_type.then(|| type_url.clone());
                self.0.reserve_exact(1);
                self.0.push(ListPosition {
                    list,
                    type_url,
                    fallback: Fallback::default(),
                    refused_until: None,
                    former: None,
                });
                self.0.len() - 1
            }
        };
        self.0.get(index).map(|position| &position.fallback)
    }

    /// Takes other rules of fallback over. The id of a list stands for its servers, so positions stay valid.
    pub(super) fn configure(&mut self, list: &dyn Fn(ListId) -> Option<List>) {
        for position in &mut self.0 {
            if let Some(configured) = list(position.list.id) {
                position.list = configured;
            }
        }
    }

    /// Forgets lists, and types of lists, without collections.
    pub(super) fn keep(&mut self, is_wanted: impl Fn(&ListPosition) -> bool) {
        self.0.retain(is_wanted);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ListPosition> {
        self.0.iter()
    }

    /// The lists with a move so recent that removals may still wait.
    pub(super) fn moved(&self) -> Vec<ListId> {
        self.0.iter().filter(|position| position.former.is_some()).map(|position| position.list.id).collect()
    }

    /// Drops last bytes after the wait of all removals.
    pub(super) fn forget_former(&mut self, now: Time) {
        for position in &mut self.0 {
            position.former.take_if(|former| former.until <= now);
        }
    }
}

impl ListPosition {
    /// Whether the position serves the collections in a type of a list.
    pub(super) fn covers(&self, type_url: &TypeUrl, list: ListId) -> bool {
        self.list.id == list && self.type_url.as_ref().is_none_or(|own| own == type_url)
    }
}
