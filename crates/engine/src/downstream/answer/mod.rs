//! Answers: the steps from the views that a client holds to the views that the client should hold.
//!
//! An [`Answer`] names two views per part of a subscription; [`Answer::compose`] turns the views into
//! resources and removals. Equal keys mean equal compositions, so the driver composes and encodes once for
//! all clients with the same views.

pub mod chunk;
pub mod client_features;
pub mod client_names;
pub mod compose;
pub mod rest;
pub mod spelling;
mod targets;

use std::sync::Arc;

use crate::Time;
use crate::collection::{Collection, CollectionKind};
use crate::downstream::answer::client_features::ClientFeatures;
use crate::downstream::answer::rest::{ToldNames, ToldVariants};
use crate::downstream::answer::spelling::Spellings;
use crate::downstream::sources::SourceId;
use crate::precedence::{deciding, keeps_in_doubt};
use crate::snapshot::{Snapshot, TypeSnapshot};
use crate::view::{View, ViewId};
use sluice_xds::{Resource, ResourceName, Status, TypeUrl, Variant, Version};

/// One part of a subscription: one collection of one source.
#[derive(Clone, Debug)]
pub struct AnswerPart {
    pub source: SourceId,
    pub collection: Collection,
    pub held: Arc<View>,
    pub view: Arc<View>,
    /// Views with names that left `view`, but that the client keeps for now (RLY-51).
    pub keeps: Vec<Arc<View>>,
    /// Identifies `view` together with `keeps`.
    pub due: ViewId,
    /// [`TypeSnapshot::last_bytes`](crate::snapshot::TypeSnapshot::last_bytes)
    pub last_bytes: u64,
    pub snapshot: Arc<Snapshot>,
}

/// The content of a response, not yet composed. Wide because the bytes of the messages depend on all fields
/// together: each is a part of the key, or of the state between two messages.
#[derive(Clone, Debug)]
pub struct Answer {
    pub type_url: TypeUrl,
    pub variant: Variant,
    /// The response holds the complete set (SST-1 to SST-3).
    pub full: bool,
    /// A first answer to a wildcard. The answer is due even if the set is empty (SST-7, DEL-25).
    pub greeting: bool,
    pub features: ClientFeatures,
    /// The time to which the remaining TTLs refer; zero if the answer has no TTL.
    pub told_at: Time,
    /// The version of a SotW message without content.
    pub repeats: Option<Version>,
    pub parts: Vec<AnswerPart>,
    /// Names to answer regardless of the parts: the client unsubscribed from the name beside a wildcard
    /// (DEL-19), or the name is refused (NAM-5, AUT-8).
    pub departed: Vec<ResourceName>,
    /// The refused names of `departed`, and the reasons (NAM-5, AUT-8).
    pub refused: Vec<(ResourceName, Arc<Status>)>,
    /// The client's own spellings, for names that the client does not spell canonically (NAM-8).
    pub spellings: Option<Arc<Spellings>>,
    /// The variants that a client with dynamic parameters (DYN-7) was told.
    pub told_variants: Option<Arc<ToldVariants>>,
    /// The position of the next message in the composition.
    pub chunk: usize,
    /// Set for the messages after the first, in place of the snapshots. Such an answer is not composed again.
    pub rest: Option<Box<Rest>>,
    /// The number of responses on the stream at the start of this answer.
    pub begun: u64,
}

/// Identifies the content of an answer inside this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AnswerKey {
    variant: Variant,
    full: bool,
    greeting: bool,
    features: ClientFeatures,
    /// The body states that some resources are from before a restart.
    restored: bool,
    step: KeyViews,
}

impl AnswerKey {
    /// A number for a table that is looked up for each client. Keys of one moment rarely have the same
    /// number.
    pub fn spread(&self) -> usize {
        let after = match self.step {
            KeyViews::Plain { due, .. } => due,
            KeyViews::Derived(view) => view,
        };
        after.count()
    }
}

/// The views before and after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum KeyViews {
    /// An answer of one part and nothing else, as nearly all updates are. Nothing is hashed, because the key
    /// is made for each client.
    Plain {
        due: ViewId,
        held: ViewId,
        kind: CollectionKind,
        last_bytes: u64,
    },
    Derived(ViewId),
}

/// The state of an answer after the handover of its first message.
#[derive(Clone, Debug)]
pub struct Rest {
    key: AnswerKey,
    pub(in crate::downstream) told_names: Arc<[ToldNames]>,
    pub(in crate::downstream) targets: Vec<Arc<View>>,
    /// For a client with dynamic parameters: the client's content after this answer.
    pub(in crate::downstream) told_variants: Option<ToldVariants>,
}

impl Answer {
    /// Whether the answer brings content of a push, from the candidate of a source. `lanes`: the source's
    /// content for all other clients, and the candidate. `messages`: the number of messages of the answer.
    /// Without any, the client is told nothing.
    pub fn brings(&self, push: u64, messages: usize, source: SourceId, lanes: [&Snapshot; 2]) -> bool {
        if messages == 0 {
            return false;
        }
        let [stable, candidate] = lanes.map(|lane| lane.of(&self.type_url));
        // Only gated types have the last bytes of all releases.
        let (Some(stable), Some(candidate)) = (stable.filter(|types| types.lasts.is_some()), candidate)
        else {
            return false;
        };
        let is_of_push =
            |part: &&AnswerPart| part.source == source && part.snapshot.lane().push == Some(push);
        self.parts.iter().filter(is_of_push).any(|part| self.brings_another(part, stable, candidate))
    }

    /// The push of which a client has content after an answer (WAV-15). `had`: the push before the answer.
    /// `candidate`: the push of the candidate that the client is served, if any. A client that is not served
    /// a candidate keeps content of a push only if the answer has no message, and only while a source of the
    /// client holds content back (`holds`): between the cut of the next push and its first step, nobody is
    /// served a candidate.
    pub fn push_after(
        had: Option<u64>,
        candidate: Option<u64>,
        messages: usize,
        holds: impl FnOnce() -> bool,
        brings: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let keeps = |_: &u64| candidate.is_some() || messages == 0 && holds();
        candidate.filter(|push| brings(*push)).or_else(|| had.filter(keeps))
    }

    /// Whether this part brings the client a name with different contents in the candidate and in `stable`.
    /// The push does not change a name that only one of the two knows. The snapshot of the part may have
    /// content of other servers beside the candidate's (RLY-42).
    fn brings_another(&self, part: &AnswerPart, stable: &TypeSnapshot, candidate: &TypeSnapshot) -> bool {
        let view = |types: &TypeSnapshot| types.view(&part.collection).cloned();
        let Some((stable, candidate)) = view(stable).zip(view(candidate)) else { return false };
        let kind = part.collection.kind();
        let knows = |view: &View, name: &ResourceName| view.has(name) || view.rules_out(kind, name);
        let is_known = |name: &ResourceName| knows(&stable, name) && knows(&candidate, name);
        let is_sent = |name: &ResourceName| {
            let version = candidate.version_of(name);
            part.view.version_of(name) == version && (self.full || part.held.version_of(name) != version)
        };
        // Content of another server that takes the place of removed content is not the content from before.
        let is_as_before = |name: &ResourceName| {
            let shown = part.view.version_of(name);
            shown.is_some() && (shown == part.held.version_of(name) || shown == stable.version_of(name))
        };
        let is_kept =
            |name: &ResourceName| is_as_before(name) || part.keeps.iter().any(|kept| kept.has(name));
        let is_removed = |name: &ResourceName| self.deletes() && part.held.has(name) && !is_kept(name);
        let is_told =
            |name: &ResourceName| if candidate.has(name) { is_sent(name) } else { is_removed(name) };
        // Views of equal content have one id.
        stable.id() != candidate.id()
            && stable.differing(&candidate).any(|name| is_known(name) && is_told(name))
    }

    pub fn key(&self) -> AnswerKey {
        if let Some(key) = self.rest_key() {
            return key;
        }
        let Answer { variant, full, greeting, features, .. } = *self;
        AnswerKey { variant, full, greeting, features, restored: self.is_restored(), step: self.step() }
    }

    fn step(&self) -> KeyViews {
        let is_timed = self.told_at != Time::ZERO || self.repeats.is_some();
        if let [part] = self.parts.as_slice()
            && self.departed.is_empty()
            && self.refused.is_empty()
            && self.spellings.is_none()
            && self.told_variants.is_none()
            && !is_timed
        {
            let AnswerPart { due, last_bytes, .. } = *part;
            return KeyViews::Plain { due, held: part.held.id(), kind: part.collection.kind(), last_bytes };
        }
        // Without parts, only the type separates answers of different types.
        let start = ViewId::default().derived((&self.departed, self.type_url.as_str()));
        let ids = self.parts.iter().fold(start, |id, part| {
            id.derived((part.due, part.held.id(), part.collection.kind(), part.last_bytes))
        });
        // A reason may name the client (AUT-13), so only clients with equal reasons share an answer.
        let ids = self.refused.iter().fold(ids, |id, (name, status)| id.derived((name, &*status.message)));
        let ids = match &self.spellings {
            Some(spellings) => ids.derived(spellings.id()),
            None => ids,
        };
        let ids = match &self.told_variants {
            Some(told_variants) => ids.derived(told_variants),
            None => ids,
        };
        KeyViews::Derived(if is_timed { ids.derived((self.told_at, self.repeats)) } else { ids })
    }

    /// Whether some content is from before the restart of the relay, and not confirmed since (RLY-7, I14).
    pub fn is_restored(&self) -> bool {
        let mut snapshots = self.parts.iter().filter_map(|part| part.snapshot.standing().of(&self.type_url));
        snapshots.any(|standing| standing.restored)
    }

    /// This answer with other views in place of the views of the sources.
    pub fn brought_to(&self, targets: &[Arc<View>]) -> Answer {
        let mut answer = self.clone();
        for (part, target) in answer.parts.iter_mut().zip(targets) {
            part.view = target.clone();
        }
        answer
    }

    /// Whether the client keeps its resource under a name of a part while the part's source does not know the
    /// name.
    pub fn leaves(&self, part: &AnswerPart, name: &ResourceName) -> bool {
        let has = |other: &AnswerPart| other.collection.kind().is_broad() && other.view.has(name);
        part.collection.covers(name) && keeps_in_doubt(part.collection.kind(), || self.parts.iter().any(has))
    }

    /// Some names of the next message, for people: sent and removed ones, at most `most` of each.
    pub fn some_names<'a>(
        &'a self,
        told_names: &'a [ToldNames],
        most: usize,
    ) -> (Vec<&'a ResourceName>, Vec<&'a ResourceName>) {
        if let Some(message) = told_names.get(self.chunk) {
            return (message.names().take(most).collect(), message.removed.iter().take(most).collect());
        }
        let (mut sent, mut removed) = (Vec::new(), Vec::new());
        removed.extend(self.departed.iter().take(most));
        for part in &self.parts {
            if self.full {
                sent.extend(part.view.names().take(most - sent.len()));
                continue;
            }
            // A difference may be as long as the whole set.
            for name in part.held.differing(&part.view).take(2 * most) {
                let list = if part.view.has(name) { &mut sent } else { &mut removed };
                if list.len() < most {
                    list.push(name);
                }
            }
        }
        (sent, removed)
    }

    /// Whether the answer tells the client of removals (SST-6).
    pub fn deletes(&self) -> bool {
        self.full || self.variant == Variant::Delta
    }

    /// The part that decides about a name.
    fn part_with(&self, name: &ResourceName) -> Option<&AnswerPart> {
        deciding(&self.parts, |part| part.view.has(name).then_some(part))
    }

    /// The resource under a name.
    fn body(&self, name: &ResourceName) -> Option<&Arc<Resource>> {
        let part = self.part_with(name)?;
        let (types, kind) = (part.snapshot.of(&self.type_url)?, part.collection.kind());
        // A name that stays in the view although the source no longer has the name keeps its last bytes.
        types.body(kind, name).or_else(|| types.departed_as(kind, name, || part.view.version_of(name)))
    }

    /// The key of the whole answer; `None` if no message was handed out yet.
    fn rest_key(&self) -> Option<AnswerKey> {
        self.rest.as_ref().map(|rest| rest.key)
    }

    /// The rest of the answer after the message that was just handed out.
    pub(super) fn rest(
        &self,
        told_names: &Arc<[ToldNames]>,
        targets: &[Arc<View>],
        told_variants: Option<ToldVariants>,
    ) -> Answer {
        let rest = || {
            let (key, told_names, targets) = (self.key(), told_names.clone(), targets.to_vec());
            Box::new(Rest { key, told_names, targets, told_variants })
        };
        let rest = self.rest.clone().unwrap_or_else(rest);
        let part = |part: &AnswerPart| AnswerPart {
            collection: part.collection.clone(),
            held: part.held.clone(),
            view: part.view.clone(),
            keeps: Vec::new(),
            snapshot: Arc::default(),
            ..*part
        };
        let parts = self.parts.iter().map(part).collect();
        let (spellings, type_url) = (self.spellings.clone(), self.type_url.clone());
        let (departed, refused) = (self.departed.clone(), self.refused.clone());
        let (rest, chunk) = (Some(rest), self.chunk + 1);
        Answer { type_url, parts, departed, refused, spellings, told_variants: None, rest, chunk, ..*self }
    }
}

impl AnswerPart {
    /// Whether the wildcard or a glob may contain the name. The source does not know yet.
    pub fn may_have(&self, name: &ResourceName) -> bool {
        let kind = self.collection.kind();
        let is_open = kind.is_broad() && self.collection.covers(name) && !self.view.excludes(kind, name);
        is_open && !self.view.has(name)
    }

    /// Whether the name was requested, and the source does not know yet if the name exists (RLY-2).
    pub fn is_in_doubt(&self, name: &ResourceName) -> bool {
        self.collection.names_itself(name) && !self.view.has(name) && !self.view.knows_absent(name)
    }
}
