//! The standing of a client: what it accepted, rejected, or owes an answer to (TRU-1).
//!
//! Everything is read from the state that the session has anyway, so that no ACK counts anything (TRU-2).
//! "Accepted" is the client's ACK, and does not say that the client uses the content (TRU-5).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::Time;
use crate::collection::{CollectionKind, SetId};
use crate::downstream::answer::AnswerKey;
use crate::downstream::order::turn::Turn;
use crate::downstream::session::list_position::parts;
use crate::downstream::session::push_set::{PushSet, PushType, PushUnit, PushedName};
use crate::downstream::sources::SourceId;
use crate::downstream::subscription::Subscription;
use crate::downstream::subscription::part::Part;
use crate::downstream::subscription::suspects::{Nack, Suspects};
use crate::rollout::ClientState;
use crate::snapshot::Snapshot;
use crate::view::ViewId;
use sluice_xds::{ResourceName, TypeUrl, Variant, Version};

/// An unanswered response makes a client silent after this time (TRU-1).
pub const SILENT_AFTER: Duration = Duration::from_secs(60);

/// One type of one source at a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeStanding {
    pub source: SourceId,
    pub type_url: TypeUrl,
    pub state: ClientState,
}

/// A client's standing towards a push.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushStanding {
    pub state: ClientState,
    /// The time when the client was sent content of the push; `None` if it was not. Of content that was
    /// ACKed, the time of the client's latest answer for the type at most.
    pub sent_at: Option<Time>,
    /// A source whose content of the push the client was sent.
    pub source: Option<SourceId>,
    pub rejections: Vec<PushRejection>,
}

/// A client's rejection of content of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushRejection {
    pub source: SourceId,
    pub type_url: TypeUrl,
    pub at: Time,
    /// The client's words, without those about a Secret.
    pub words: String,
    pub suspects: Suspects,
}

/// The states of content that clients share, during one walk over the clients. Clients at one place of a push
/// are compared with it once.
#[derive(Debug, Default)]
pub struct Compared(HashMap<Place, Progress>);

/// Everything that the sent content of a part depends on.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct SentPlace {
    source: SourceId,
    type_url: TypeUrl,
    kind: CollectionKind,
    names: Option<SetId>,
    sent: ViewId,
    /// The unfinished answer, and the number of its messages so far.
    unfinished: Option<(AnswerKey, usize)>,
}

impl SentPlace {
    pub(super) fn of(subscription: &Subscription, part: &Part) -> SentPlace {
        SentPlace {
            source: part.source(),
            type_url: subscription.type_url.clone(),
            kind: part.kind(),
            names: part.names().map(|names| names.id()),
            sent: part.held.id(),
            unfinished: subscription.delivery.pending.as_ref().map(|answer| (answer.key(), answer.chunk)),
        }
    }
}

/// Everything that a comparison depends on.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Place {
    sent: SentPlace,
    before: Option<ViewId>,
    rejected: Option<(ViewId, ViewId)>,
    live: u64,
    tells_removals: bool,
}

/// The names of a push at a client.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    accepted: bool,
    /// Sent, and not accepted.
    sent: bool,
    /// Not sent.
    due: bool,
    overtaken: bool,
}

/// The state of each type at each of its sources.
pub(super) fn type_standings(subscriptions: &[Subscription], turn: &Turn<'_>) -> Vec<TypeStanding> {
    let mut standings: Vec<TypeStanding> = Vec::new();
    for (subscription, part) in parts(subscriptions) {
        let (source, type_url) = (part.source(), &subscription.type_url);
        let state = state_of(subscription, part, turn);
        let is_same =
            |standing: &&mut TypeStanding| standing.source == source && standing.type_url == *type_url;
        match standings.iter_mut().find(is_same) {
            // Names of two styles, or names beside a wildcard.
            Some(standing) => standing.state = standing.state.max(state),
            None => standings.push(TypeStanding { source, type_url: type_url.clone(), state }),
        }
    }
    standings
}

/// Whether the client accepted this version of a resource, and has it (TRU-6).
pub(super) fn has_accepted(
    subscriptions: &[Subscription],
    type_url: &TypeUrl,
    name: &ResourceName,
    version: Version,
) -> bool {
    let of_type = parts(subscriptions).filter(|(subscription, _)| subscription.type_url == *type_url);
    of_type.into_iter().any(|(subscription, part)| {
        let part = subscription.part_so_far(part);
        part.held.known_version_of(name) == Some(version) && part.has_accepted(name, Some(version))
    })
}

impl PushStanding {
    /// The standing of a client towards a push.
    pub(super) fn of_client(
        subscriptions: &[Subscription],
        variant: Variant,
        push: &PushSet,
        compared: &mut Compared,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        now: Time,
    ) -> PushStanding {
        let mut standing = PushStanding::default();
        for (subscription, part) in parts(subscriptions) {
            let Some((unit, pushed)) = push.find(part.source(), &subscription.type_url) else { continue };
            let live = latest(part.source());
            // In the state of the world, the absence of a name from a set that is no full state tells
            // nothing.
            let tells_removals = variant == Variant::Delta || subscription.is_full(variant);
            let comparison = Comparison { subscription, part, pushed, live: live.as_deref(), tells_removals };
            let progress = compared.progress(&comparison);
            if progress.sent || progress.accepted {
                standing.sent_at = standing.sent_at.max(subscription.nonces.sent_at());
                standing.source = Some(part.source());
            }
            // The older one first: what it says is more than that something else was rejected, too.
            let nack = subscription.nacks().find(|nack| comparison.is_rejected_by(nack, unit, progress));
            if let Some(nack) = nack {
                standing.reject(subscription, nack, part.source());
            }
            standing.state = standing.state.max(match nack {
                Some(_) => ClientState::Rejected,
                None => progress.state(subscription, now),
            });
        }
        standing
    }

    fn reject(&mut self, subscription: &Subscription, nack: &Nack, source: SourceId) {
        let type_url = &subscription.type_url;
        let is_same =
            |rejection: &PushRejection| rejection.source == source && rejection.type_url == *type_url;
        if self.rejections.iter().any(is_same) {
            return;
        }
        self.rejections.push(PushRejection {
            source,
            type_url: type_url.clone(),
            at: nack.at,
            words: nack.status.to_string(),
            suspects: subscription.suspects(nack),
        });
    }
}

fn state_of(subscription: &Subscription, part: &Part, turn: &Turn<'_>) -> ClientState {
    let is_rejected = |nack: &Nack| {
        // A response about another part says nothing about this one.
        nack.brought.is_empty() || nack.brought.iter().any(|brought| brought.key == part.key())
    };
    if subscription.nack().is_some_and(is_rejected) {
        return ClientState::Rejected;
    }
    if subscription.nonces.is_waiting() {
        return unanswered_state(subscription, turn.now);
    }
    let view = part.view_in(turn, &subscription.type_url);
    let is_due =
        view.is_some_and(|view| part.is_behind(part.due(view)) && !(part.held.is_empty() && view.is_empty()));
    match is_due || subscription.delivery.pending.is_some() {
        true => ClientState::Pending,
        false if part.at.is_none() && part.held.is_empty() => ClientState::Unaffected,
        false => ClientState::Accepted,
    }
}

fn unanswered_state(subscription: &Subscription, now: Time) -> ClientState {
    match subscription.nonces.waiting_since() {
        Some(since) if now.since(since) >= SILENT_AFTER => ClientState::Silent,
        _ => ClientState::Pending,
    }
}

impl Progress {
    fn state(self, subscription: &Subscription, now: Time) -> ClientState {
        if self.sent || self.due {
            unanswered_state(subscription, now)
        } else if self.overtaken {
            ClientState::Overtaken
        } else if self.accepted {
            ClientState::Accepted
        } else {
            ClientState::Unaffected
        }
    }

    fn add(
        &mut self,
        pushed: &PushedName,
        part: &Part,
        is_new: bool,
        live_version: &dyn Fn(&ResourceName) -> Option<Version>,
    ) {
        let (version, sent) = (pushed.version(), part.held.version_of(&pushed.name));
        if version.is_none() && part.never_had(&pushed.name) {
            return;
        }
        if sent == version {
            let is_accepted = part.has_accepted(&pushed.name, version);
            self.accepted |= is_accepted;
            self.sent |= !is_accepted;
            return;
        }
        let live = live_version(&pushed.name);
        // Content that went back is due to nobody.
        if is_new || live == version || sent == pushed.version_before() && live != sent {
            self.due = true;
        } else {
            self.overtaken = true;
        }
    }
}

/// A part of a client beside the names that a push changes.
struct Comparison<'a> {
    subscription: &'a Subscription,
    part: &'a Part,
    pushed: &'a PushType,
    /// The newest content of the source.
    live: Option<&'a Snapshot>,
    /// The absence of a name tells the client of a removal.
    tells_removals: bool,
}

impl Compared {
    fn progress(&mut self, comparison: &Comparison<'_>) -> Progress {
        let Comparison { subscription, part, live, tells_removals, .. } = comparison;
        let place = Place {
            sent: SentPlace::of(subscription, part),
            before: part.before.as_ref().map(|view| view.id()),
            rejected: part.rejected.as_ref().map(|rejected| (rejected.before.id(), rejected.sent.id())),
            live: live.map_or(0, Snapshot::last_change),
            tells_removals: *tells_removals,
        };
        *self.0.entry(place).or_insert_with(|| comparison.progress())
    }
}

impl Comparison<'_> {
    fn progress(&self) -> Progress {
        let mut progress = Progress::default();
        let part = &*self.subscription.part_so_far(self.part);
        let live = self.live.and_then(|live| live.of(&self.subscription.type_url));
        let live_version = |name: &ResourceName| {
            live.and_then(|live| live.body(part.kind(), name)).map(|resource| resource.version)
        };
        // The client neither was sent anything nor presented anything. An unanswered removal of all names is
        // something.
        let had_nothing = part.before.as_ref().is_none_or(|before| before.is_empty());
        let is_new = part.at.is_none() && part.held.is_empty() && had_nothing;
        self.pushed.names_of(&part.collection, |name| {
            if self.tells_removals || name.version().is_some() {
                progress.add(name, part, is_new, &live_version);
            }
        });
        progress
    }

    /// Whether a rejected response brought content of the push (TRU-3): by its content, else by its changes.
    fn is_rejected_by(&self, nack: &Nack, unit: &PushUnit, progress: Progress) -> bool {
        let part = self.part;
        // By content: the part may have come to another server of its list since the response (WAV-18).
        let of_part = || nack.brought.iter().filter(|brought| brought.key == part.key());
        let mut is_brought = false;
        self.pushed.names_of(&part.collection, |name| {
            // A name that the client gave up is gone from what it was sent next, and that is no removal.
            let is_told = name.version().is_some() || self.tells_removals;
            is_brought |= is_told && of_part().any(|brought| brought.has(&name.name, name.version()));
        });
        let mut changes = nack.carried.rejected().iter().filter(|id| id.source == part.source());
        // A change that the push itself replaced is not judged while its replacement is due.
        let is_sent = (progress.sent || progress.accepted) && !progress.due;
        is_brought || is_sent && changes.any(|id| unit.has_change(id.number))
    }
}
