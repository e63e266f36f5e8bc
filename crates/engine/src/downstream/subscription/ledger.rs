//! The content of a client beside the content that it should have, name by name (ADM-7). Computed for a
//! report only: a ledger shares the views of the session, so that the report needs no lock.

use std::sync::Arc;

use crate::cache::{CachedResource, EntryState, Known};
use crate::collection::{Collection, CollectionKind};
use crate::downstream::answer::spelling::Refusals;
use crate::downstream::order::acknowledged::RejectedContent;
use crate::downstream::order::turn::Turn;
use crate::downstream::sources::SourceId;
use crate::downstream::subscription::part::{Part, accepted_view};
use crate::downstream::subscription::parts::PartList;
use crate::precedence::deciding;
use crate::snapshot::Snapshot;
use crate::upstream::Cause;
use crate::view::{FORCED, PERHAPS, STAYS, View};
use sluice_xds::{ResourceName, Status, TypeUrl, Version};

/// One type of one client at one moment.
#[derive(Debug)]
pub struct Ledger {
    pub type_url: TypeUrl,
    parts: Vec<LedgerPart>,
    refusals: Option<Refusals>,
    is_waiting: bool,
    is_rejected: bool,
}

#[derive(Debug)]
struct LedgerPart {
    collection: Collection,
    source: SourceId,
    /// The last view that was sent.
    sent: Arc<View>,
    /// The view before the first response that the client has not accepted.
    before: Option<Arc<View>>,
    rejected: Option<Box<RejectedContent>>,
    withheld: Vec<Arc<View>>,
    snapshot: Option<Arc<Snapshot>>,
}

/// The standing of one name at one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameStanding {
    /// The client has the newest content, or knows that there is none.
    Current,
    /// The client rejected the newest content.
    Rejected,
    /// The client has not answered.
    Unacked,
    /// The newest content was not sent.
    Unsent,
    /// The resource is gone, and the client is not told yet (RLY-51).
    Withheld,
    /// The client has the resource, and its existence is not known (RLY-5).
    Doubtful,
    /// The existence of the resource is not known.
    Unknown,
    /// The client may not ask for the name, or the name is malformed.
    Refused,
}

/// One name of a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameEntry {
    pub name: ResourceName,
    /// The version that the client has accepted.
    pub has: Option<HeldVersion>,
    /// The version that the client should have.
    pub should: Option<Version>,
    pub standing: NameStanding,
}

/// The version of a client's resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldVersion {
    Known(Version),
    /// The client has the resource from another server, or from a former stream.
    Unknown,
}

/// The knowledge of a source about one name.
#[derive(Clone, Debug)]
pub struct NameKnowledge {
    pub source: SourceId,
    pub kind: CollectionKind,
    /// `None` while the source has not processed the collection.
    pub state: Option<EntryState>,
    pub cached: Option<CachedResource>,
    pub absent: Option<Cause>,
    pub error: Option<Arc<Status>>,
}

impl HeldVersion {
    pub(super) fn of(view: &View, name: &ResourceName) -> Option<HeldVersion> {
        let version = view.known_version_of(name)?;
        let is_unknown = version == Version::default() || matches!(version, FORCED | PERHAPS | STAYS);
        Some(if is_unknown { HeldVersion::Unknown } else { HeldVersion::Known(version) })
    }

    pub fn known(self) -> Option<Version> {
        match self {
            HeldVersion::Known(version) => Some(version),
            HeldVersion::Unknown => None,
        }
    }
}

impl LedgerPart {
    fn new(part: &Part, turn: &Turn<'_>) -> LedgerPart {
        LedgerPart {
            collection: part.collection.clone(),
            source: part.source(),
            sent: part.held.clone(),
            before: part.before.clone(),
            rejected: part.rejected.clone(),
            withheld: part.keeps(),
            snapshot: turn.snapshot(part.source()).cloned(),
        }
    }

    fn due(&self, type_url: &TypeUrl) -> Option<&Arc<View>> {
        self.snapshot.as_ref()?.of(type_url)?.view(&self.collection)
    }

    fn accepted(&self, name: &ResourceName) -> Option<HeldVersion> {
        HeldVersion::of(accepted_view(&self.sent, self.before.as_ref(), self.rejected.as_deref(), name), name)
    }

    fn withholds(&self, name: &ResourceName) -> bool {
        self.sent.has(name) && self.withheld.iter().any(|base| base.has(name))
    }

    fn next_name(&self, type_url: &TypeUrl, after: Option<&ResourceName>) -> Option<&ResourceName> {
        let asked = self.collection.named().and_then(|names| names.next_name(after));
        let views = [Some(&self.sent), self.before.as_ref(), self.due(type_url)];
        asked.into_iter().chain(views.into_iter().flatten().filter_map(|view| view.next_name(after))).min()
    }

    fn knowledge(&self, type_url: &TypeUrl, name: &ResourceName) -> NameKnowledge {
        let kind = self.collection.kind();
        let mut knowledge =
            NameKnowledge { source: self.source, kind, state: None, cached: None, absent: None, error: None };
        let types = self.snapshot.as_ref().and_then(|snapshot| snapshot.of(type_url));
        let (Some(types), Some(view)) = (types, self.due(type_url)) else { return knowledge };
        knowledge.error = view.annotations().error(name).cloned();
        knowledge.cached = types.cached(kind, name).cloned();
        if kind.is_broad() {
            knowledge.state = Some(match &knowledge.cached {
                Some(_) => EntryState::of_member(name, view.annotations()),
                None if view.rules_out(kind, name) => EntryState::DoesNotExist,
                None => EntryState::Requested,
            });
        } else if let Some(entry) = types.names.entries.get(name) {
            knowledge.state = Some(EntryState::of(entry, name, &types.names.annotations));
            if let Known::Absent(cause) = entry {
                knowledge.absent = Some(*cause);
            }
        }
        knowledge
    }
}

impl Ledger {
    /// The ledger of a type. `is_waiting`: a response is unanswered; `is_rejected`: the client's last verdict
    /// is a rejection.
    pub(super) fn new(
        type_url: &TypeUrl,
        parts: &PartList,
        refusals: Option<&Refusals>,
        is_waiting: bool,
        is_rejected: bool,
        turn: &Turn<'_>,
    ) -> Ledger {
        Ledger {
            type_url: type_url.clone(),
            parts: parts.iter().map(|part| LedgerPart::new(part, turn)).collect(),
            refusals: refusals.cloned(),
            is_waiting,
            is_rejected,
        }
    }

    /// Whether the client asks for the name, by itself, by a glob or by the wildcard.
    pub fn covers(&self, name: &ResourceName) -> bool {
        self.parts.iter().any(|part| part.collection.covers(name)) || self.refusal(name).is_some()
    }

    /// The reason for which the client's name was refused.
    pub fn refusal(&self, name: &ResourceName) -> Option<Arc<Status>> {
        self.refusals.as_ref()?.reason(name)
    }

    /// The first name behind `after`, requested, held or due. Names that the client gave up are left out.
    pub fn next_name(&self, after: Option<&ResourceName>) -> Option<ResourceName> {
        let mut after = after.cloned();
        loop {
            let of_parts =
                self.parts.iter().filter_map(|part| part.next_name(&self.type_url, after.as_ref()));
            let refused = self.refusals.as_ref().and_then(|refusals| refusals.next_name(after.as_ref()));
            let next = of_parts.chain(refused).min()?.clone();
            if self.covers(&next) {
                return Some(next);
            }
            after = Some(next);
        }
    }

    /// The version that the client has accepted.
    pub fn has(&self, name: &ResourceName) -> Option<HeldVersion> {
        deciding(&self.parts, |part| part.accepted(name))
    }

    /// The version that was sent last.
    pub fn sent(&self, name: &ResourceName) -> Option<HeldVersion> {
        deciding(&self.parts, |part| HeldVersion::of(&part.sent, name))
    }

    /// The version that the client should have.
    pub fn should(&self, name: &ResourceName) -> Option<Version> {
        deciding(&self.parts, |part| part.due(&self.type_url)?.version_of(name))
    }

    pub fn entry(&self, name: ResourceName) -> NameEntry {
        let (has, should) = (self.has(&name), self.should(&name));
        NameEntry { standing: self.standing(&name, has, should), name, has, should }
    }

    fn standing(
        &self,
        name: &ResourceName,
        has: Option<HeldVersion>,
        should: Option<Version>,
    ) -> NameStanding {
        if self.refusal(name).is_some() {
            return NameStanding::Refused;
        }
        let (sent, due) = (self.sent(name), should.map(HeldVersion::Known));
        match (has == due, sent == due) {
            (true, true) if should.is_some() || self.is_known_absent(name) => NameStanding::Current,
            (true, true) => NameStanding::Unknown,
            _ if should.is_none() && self.parts.iter().any(|part| part.withholds(name)) => {
                NameStanding::Withheld
            }
            (false, true) if self.is_waiting => NameStanding::Unacked,
            (false, true) => NameStanding::Rejected,
            _ if should.is_none() && !self.is_known_absent(name) => NameStanding::Doubtful,
            _ if self.is_waiting => NameStanding::Unacked,
            _ => NameStanding::Unsent,
        }
    }

    /// Whether the sources know that there is no resource with a name that is not due.
    fn is_known_absent(&self, name: &ResourceName) -> bool {
        self.parts.iter().filter(|part| part.collection.covers(name)).all(|part| {
            let Some(view) = part.due(&self.type_url) else { return false };
            view.rules_out(part.collection.kind(), name)
        })
    }

    /// Whether the client's last verdict on the type is a rejection.
    pub fn is_rejected(&self) -> bool {
        self.is_rejected
    }

    /// The source of the first part.
    pub fn first_source(&self) -> Option<SourceId> {
        self.parts.first().map(|part| part.source)
    }

    /// The knowledge of the sources about a name that the client asks for, by part.
    pub fn knowledge(&self, name: &ResourceName) -> Vec<NameKnowledge> {
        let asked = self.parts.iter().filter(|part| part.collection.covers(name));
        asked.map(|part| part.knowledge(&self.type_url, name)).collect()
    }
}
