//! The open shadows of one server.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::driver::api::proof::Replica;
use crate::driver::source::handle::SourceHandle;
use crate::driver::source::shadow::Shadow;
use sluice_engine::Time;
use sluice_engine::collection::CollectionKind;
use sluice_engine::snapshot::{Snapshot, TypeSnapshot};
use sluice_proof::proof::{ClassKey, Content, Proof, ShadowId, ShadowKind};
use sluice_xds::{Code, Resource, Status};

/// The resources of a type whose bodies are looked at, to estimate what only the shadow holds.
const WEIGHED_MAX: usize = 64;

/// The shadows, and the signal that one of them has changed.
#[derive(Default)]
pub(super) struct OpenShadows {
    all: BTreeMap<ShadowId, OpenedShadow>,
    pub changed: Arc<Notify>,
}

struct OpenedShadow {
    shadow: Shadow,
    class: ClassKey,
    kind: ShadowKind,
    began: Time,
    has_answered: bool,
    /// The content that the machine knows.
    content: Option<Arc<Snapshot>>,
    /// An estimate of the bytes that nobody else holds.
    bytes: u64,
}

/// The news of a shadow.
enum ShadowNews {
    Ended(Status),
    Content(Arc<Snapshot>),
}

impl OpenShadows {
    pub fn add(&mut self, id: ShadowId, shadow: Shadow, class: ClassKey, kind: ShadowKind, now: Time) {
        let (has_answered, content, bytes) = (false, None, 0);
        let opened = OpenedShadow { shadow, class, kind, began: now, has_answered, content, bytes };
        self.all.insert(id, opened);
    }

    pub fn close(&mut self, id: ShadowId) {
        self.all.remove(&id);
    }

    /// A sample stays open as a witness.
    pub fn keep(&mut self, id: ShadowId) {
        if let Some(opened) = self.all.get_mut(&id) {
            opened.kind = ShadowKind::Witness;
        }
    }

    /// The replica of the server that answers a shadow.
    pub fn replica(&self, id: ShadowId) -> Option<Replica> {
        Some(self.all.get(&id)?.shadow.replica())
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The number of open shadows of each kind.
    pub fn counts(&self) -> BTreeMap<ShadowKind, usize> {
        let mut counts = BTreeMap::new();
        self.all.values().for_each(|opened| *counts.entry(opened.kind).or_default() += 1);
        counts
    }

    /// An estimate of the bytes that only shadows hold.
    pub fn bytes(&self) -> u64 {
        self.all.values().map(|opened| opened.bytes).sum()
    }

    /// Tells the machine the news of all shadows. `source_of`: the source of a class.
    pub fn look(
        &mut self,
        source_of: impl Fn(&ClassKey) -> Option<Arc<SourceHandle>>,
        machine: &mut Proof,
        now: Time,
    ) {
        let mut ended = Vec::new();
        for (id, opened) in &mut self.all {
            match opened.news() {
                None => {}
                Some(ShadowNews::Ended(status)) => {
                    ended.push(*id);
                    if status.code == Code::ResourceExhausted {
                        machine.exhausted(now);
                    }
                    machine.shadow_ended(*id, status, now);
                }
                Some(ShadowNews::Content(content)) => {
                    if !opened.has_answered && is_any_current(&content) {
                        opened.has_answered = true;
                        machine.first_answer(now.since(opened.began), now);
                    }
                    opened.bytes = match source_of(&opened.class) {
                        Some(class) => own_bytes(&content, &class.snapshot()),
                        None => 0,
                    };
                    let connection = Some(opened.shadow.connection()).filter(|number| *number > 0);
                    machine.shadow_published(*id, Content::of(&content), connection, now);
                    opened.content = Some(content);
                }
            }
        }
        ended.iter().for_each(|id| self.close(*id));
    }
}

impl OpenedShadow {
    fn news(&mut self) -> Option<ShadowNews> {
        let snapshot = self.shadow.snapshot();
        // A stream that ends after its first answer begins anew by itself.
        if let Some(status) = self.shadow.end(&snapshot) {
            return Some(ShadowNews::Ended(status));
        }
        let is_new = self.content.as_ref().is_none_or(|content| !Arc::ptr_eq(content, &snapshot));
        is_new.then_some(ShadowNews::Content(snapshot))
    }
}

fn is_any_current(snapshot: &Snapshot) -> bool {
    snapshot
        .types()
        .any(|(type_url, _)| snapshot.standing().of(type_url).is_some_and(|of_type| of_type.is_current))
}

/// An estimate of the bytes of the resources that the class does not share, from a few of each type.
fn own_bytes(shadow: &Snapshot, class: &Snapshot) -> u64 {
    let of_type = |(type_url, types): (_, &TypeSnapshot)| {
        let (mut looked, mut unshared, mut all) = (0_u64, 0_u64, 0_u64);
        for resource in types.resources() {
            all += 1;
            if looked < WEIGHED_MAX as u64 {
                looked += 1;
                let is_shared = class.of(type_url).is_some_and(|class| shares(class, resource));
                unshared += if is_shared { 0 } else { resource.size() as u64 };
            }
        }
        unshared.saturating_mul(all) / looked.max(1)
    };
    shadow.types().map(of_type).sum()
}

fn shares(class: &TypeSnapshot, resource: &Arc<Resource>) -> bool {
    let same = |kind| class.body(kind, &resource.name).is_some_and(|body| Arc::ptr_eq(body, resource));
    CollectionKind::ALL.into_iter().any(same)
}
