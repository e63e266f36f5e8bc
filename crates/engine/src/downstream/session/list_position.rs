//! The position of a session in server lists with more than one server (RLY-40).
//!
//! A session takes all resources of a list from one server, chosen by [`Fallback`]. Each poll of the session
//! checks the requested servers ([`Session::look`](super::Session::look)), and the session moves as a whole
//! ([`Session::shift`](super::Session::shift)). The client's content stays, so that only differences are
//! sent: clusters before routes, removals last.

use std::sync::Arc;

use crate::Time;
use crate::downstream::order::ORDER_WAIT_MAX;
use crate::downstream::order::turn::Snapshots;
use crate::downstream::session::router::{List, Router};
use crate::downstream::session::routing::Which;
use crate::downstream::sources::{ListId, SourceId};
use crate::fallback::{Fallback, FallbackSettings};
use crate::snapshot::Snapshot;
use sluice_xds::TypeUrl;

#[derive(Debug, Default)]
pub struct ListPositions(pub(super) Vec<ListPosition>, IsMoving);

/// Whether the session moves to another configuration.
type IsMoving = bool;

/// One list, or one type of a list.
#[derive(Debug)]
pub(super) struct ListPosition {
    pub list: List,
    /// `None`: all types.
    pub(super) type_url: Option<TypeUrl>,
    pub fallback: Fallback,
    /// While the session moves to another configuration: the state by the former one.
    former_fallback: Option<Box<Fallback>>,
    /// A move failed: the session keeps its server until this time.
    pub(super) refused_until: Option<Time>,
    /// The former sources' content, as long as removals that need the last bytes may wait (RLY-51).
    pub former: Option<Box<Former>>,
}

#[derive(Debug, Default)]
pub(super) struct Former {
    pub snapshots: Snapshots,
    pub(super) until: Time,
}

impl ListPositions {
    /// The position in a list with collections, created at the first use; `None` if the list has one server. Collections
    /// that are new during a move have a former state, too, which the moves of the new sources leave alone.
    pub(super) fn enter(
        &mut self,
        id: ListId,
        type_url: &TypeUrl,
        which: Which,
        router: &dyn Router,
    ) -> Option<&ListPosition> {
        let index = match self.0.iter().position(|position| position.covers(type_url, id)) {
            Some(index) => index,
            None => {
                let list = router.fallback(id)?;
                let type_url = list.by_type.then(|| type_url.clone());
                self.0.reserve_exact(1);
                let has_former = self.1 && which == Which::Serving;
                self.0.push(ListPosition {
                    list,
                    type_url,
                    fallback: Fallback::default(),
                    former_fallback: has_former.then(Box::default),
                    refused_until: None,
                    former: None,
                });
                self.0.len() - 1
            }
        };
        self.0.get(index)
    }

    /// The position in a list that is new to the session, whose server at `serving` serves the session already.
    pub fn begin_at(&mut self, id: ListId, type_url: &TypeUrl, serving: u16, router: &dyn Router) {
        if !self.0.iter().any(|position| position.covers(type_url, id))
            && self.enter(id, type_url, Which::Last, router).is_some()
            && let Some(position) = self.0.last_mut()
        {
            position.fallback = Fallback::at(serving.min(position.list.servers.saturating_sub(1)));
        }
    }

    /// Another configuration: each list is looked at anew from the state of its serving server on.
    pub(super) fn begin_move(&mut self) {
        self.1 = true;
        for position in &mut self.0 {
            match &position.former_fallback {
                Some(former) => position.fallback = (**former).clone(),
                None => position.former_fallback = Some(Box::new(position.fallback.clone())),
            }
        }
    }

    /// The session has moved, or stays.
    pub(super) fn end_move(&mut self) {
        self.1 = false;
        self.0.iter_mut().for_each(|position| position.former_fallback = None);
    }

    /// Remembers a source that served a part of this list until now. A list of one server has a position for that
    /// time.
    pub(super) fn remember(
        &mut self,
        (id, type_url): (ListId, &TypeUrl),
        source: (SourceId, Option<Arc<Snapshot>>),
        until: Time,
        router: &dyn Router,
    ) {
        if self.enter(id, type_url, Which::Last, router).is_none() {
            let settings = FallbackSettings::default();
            let list = List { id, servers: 1, by_type: false, settings, deleting: 0 };
            let fallback = Fallback::default();
            let (former_fallback, refused_until, former) = (None, None, None);
            self.0.push(ListPosition {
                list,
                type_url: None,
                fallback,
                former_fallback,
                refused_until,
                former,
            });
        }
        let Some(position) = self.0.iter_mut().find(|position| position.covers(type_url, id)) else { return };
        let former = position.former.get_or_insert_default();
        if former.until != until {
            former.snapshots.clear();
            former.until = until;
        }
        if !former.snapshots.iter().any(|(known, _)| *known == source.0) {
            former.snapshots.push(source);
        }
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

    /// Whether the wait of all removals is over in some list that the session has moved in.
    pub(super) fn has_waited(&self, now: Time) -> bool {
        self.0.iter().any(|position| position.former.as_ref().is_some_and(|former| former.until <= now))
    }

    /// Drops last bytes after the wait of all removals. `awaited`: the lists whose former content is needed for longer.
    pub(super) fn forget_former(&mut self, awaited: &[ListId], now: Time) {
        let mut is_over = false;
        for position in &mut self.0 {
            if let Some(former) = position.former.as_mut().filter(|_| awaited.contains(&position.list.id)) {
                former.until = former.until.max(now + ORDER_WAIT_MAX);
            }
            is_over |= position.former.take_if(|former| former.until <= now).is_some();
        }
        if is_over {
            self.0.retain(|position| position.list.servers > 1 || position.former.is_some());
        }
    }
}

impl ListPosition {
    /// The state for sources of the former configuration, or of the one that the session is bound for.
    pub fn fallback_of(&self, which: Which) -> &Fallback {
        match (which, &self.former_fallback) {
            (Which::Serving, Some(former)) => former,
            (Which::Serving, None) | (Which::Last, _) => &self.fallback,
        }
    }

    /// A list that another configuration leaves as it is moves at once, also during a move to that configuration. Names
    /// that are asked for meanwhile come from the same server.
    pub(super) fn serve_as_bound(&mut self) {
        if let Some(former) = &mut self.former_fallback {
            **former = self.fallback.clone();
        }
    }

    /// Whether the position serves the collections in a type of a list.
    pub(super) fn covers(&self, type_url: &TypeUrl, list: ListId) -> bool {
        self.list.id == list && self.type_url.as_ref().is_none_or(|own| own == type_url)
    }
}
