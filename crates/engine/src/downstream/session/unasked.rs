//! A session adopts the unasked names of its sources (DEL-17).

use std::sync::Arc;

use crate::downstream::memory::{SUBSCRIBED_NAME_BYTES, weight};
use crate::downstream::session::Session;
use crate::downstream::session::router::{Router, Watch};
use crate::downstream::sources::SourceId;
use crate::snapshot::Snapshot;
use sluice_xds::{DeltaRequest, ResourceName, TypeUrl, Variant};

/// The limit behind an omission of unasked names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoomFor {
    /// The names of the stream.
    Names,
    /// The memory of the connection.
    Memory,
}

/// The result of an adoption.
#[derive(Debug, Default)]
pub struct Adopted {
    pub watches: Vec<Watch>,
    /// The number of names without room, by type.
    pub left_out: Vec<(TypeUrl, usize, NoRoomFor)>,
}

impl Session {
    /// Whether a [`Session::adopt`] is due.
    pub(super) fn owes_unasked(&self, latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>) -> bool {
        let mut types = self.subscriptions.iter().filter(|of| of.type_url.is_sent_unasked());
        types.any(|subscription| self.kind.variant == Variant::Delta && subscription.owes_unasked(latest))
    }

    /// Subscribes to the unasked names of the sources, and gives adopted names up after the client was told of the removal.
    /// `charge`: whether the connection may hold so many bytes of names.
    pub fn adopt(
        &mut self,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        router: &mut dyn Router,
        charge: &mut dyn FnMut(usize) -> bool,
    ) -> Adopted {
        let mut adopted = Adopted::default();
        if self.kind.variant == Variant::Sotw {
            return adopted;
        }
        for index in 0..self.subscriptions.len() {
            let Some(subscription) = self.subscriptions.get(index) else { break };
            if subscription.type_url.is_sent_unasked() && subscription.owes_unasked(latest) {
                self.adopt_of_type(index, latest, router, charge, &mut adopted);
            }
        }
        adopted
    }

    fn adopt_of_type(
        &mut self,
        index: usize,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        router: &mut dyn Router,
        charge: &mut dyn FnMut(usize) -> bool,
        adopted: &mut Adopted,
    ) {
        let (names_len, names_bytes) = (self.names_len(), self.names_bytes());
        let Some(subscription) = self.subscriptions.get_mut(index) else { return };
        let (type_url, grant) = (subscription.type_url.clone(), self.grant.clone());
        let group_of = |name: &ResourceName| router.group_of(&type_url, Some(name));
        let of_type = grant.of_type(&type_url).ok();
        let mut subscribe = subscription.take_unasked(latest, &group_of, of_type.as_ref());
        let unsubscribe = subscription.take_gone(latest);
        let room = (self.limits.names_per_stream + unsubscribe.len()).saturating_sub(names_len);
        let more = subscribe.len().saturating_sub(room);
        if more > 0 {
            subscribe.truncate(room);
            adopted.left_out.push((type_url.clone(), more, NoRoomFor::Names));
        }
        let of_name = |name: &ResourceName| name.allocated() + SUBSCRIBED_NAME_BYTES + weight(name);
        let bytes: usize = subscribe.iter().map(of_name).sum();
        if !subscribe.is_empty() && !charge(names_bytes + bytes) {
            adopted.left_out.push((type_url.clone(), subscribe.len(), NoRoomFor::Memory));
            subscribe.clear();
        }
        let request = DeltaRequest { subscribe, unsubscribe, ..DeltaRequest::default() };
        if !request.asks() {
            return;
        }
        let change = subscription.take_delta(&request, self.seed, &group_of, &grant);
        match self.apply(index, change, router) {
            Ok(watches) => adopted.watches.extend(watches),
            // The source of the names serves the client already, so the router has the source.
            Err(_) => return,
        }
        if let Some(subscription) = self.subscriptions.get_mut(index) {
            subscription.note_adopted(request.subscribe);
        }
    }
}
