//! The standing of a client: what it accepted, rejected, or owes an answer to (TRU-1).
//!
//! Everything is read from the state that the session has anyway, so that no ACK counts anything (TRU-2).
//! "Accepted" is the client's ACK, and does not say that the client uses the content (TRU-5).

use std::borrow::Cow;
use std::time::Duration;

use crate::Time;
use crate::collection::{Collection, CollectionKind, SetId};
use crate::downstream::answer::AnswerKey;
use crate::downstream::order::turn::Turn;
use crate::downstream::session::list_position::parts;
use crate::downstream::sources::SourceId;
use crate::downstream::subscription::Subscription;
use crate::downstream::subscription::part::Part;
use crate::downstream::subscription::suspects::{Nack, Suspects};
use crate::view::ViewId;
use sluice_xds::{ResourceName, TypeUrl, Variant, Version};

/// An unanswered response makes a client silent after this time (TRU-1).
pub const SILENT_AFTER: Duration = Duration::from_secs(60);

/// The state of one stream towards a push, or towards the newest content of a type. In the order of concern:
/// of several types or sources, the last state stands for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientState {
    /// There is nothing for the client.
    #[default]
    Unaffected,
    /// The client ACKed all that is due.
    Accepted,
    /// The client was sent, or has ACKed, only content of a later push.
    Overtaken,
    /// Not sent yet, or sent less than 60 s ago.
    Pending,
    /// Sent, and unanswered for 60 s.
    Silent,
    Rejected,
}

impl ClientState {
    pub const ALL: [ClientState; 6] = [
        ClientState::Unaffected,
        ClientState::Accepted,
        ClientState::Overtaken,
        ClientState::Pending,
        ClientState::Silent,
        ClientState::Rejected,
    ];

    pub fn name(self) -> &'static str {
        match self {
            ClientState::Unaffected => "unaffected",
            ClientState::Accepted => "accepted",
            ClientState::Overtaken => "overtaken",
            ClientState::Pending => "pending",
            ClientState::Silent => "silent",
            ClientState::Rejected => "rejected",
        }
    }
}

/// One type of one source at a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTypeState {
    pub source: SourceId,
    pub type_url: TypeUrl,
    pub state: ClientState,
}

/// A part of a client's subscription, for readers outside of the session: the content that the client was
/// sent, and its answers.
#[derive(Clone, Copy)]
pub struct SentPart<'a> {
    subscription: &'a Subscription,
    part: &'a Part,
    variant: Variant,
}

/// Everything that the sent and the answered content of a part depend on. Clients at one place have the same.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct SentPlace {
    source: SourceId,
    type_url: TypeUrl,
    kind: CollectionKind,
    names: Option<SetId>,
    sent: ViewId,
    /// The unfinished answer, and the number of its messages so far.
    unfinished: Option<(AnswerKey, usize)>,
    before: Option<ViewId>,
    rejected: Option<(ViewId, ViewId)>,
}

impl<'a> SentPart<'a> {
    /// All parts of a session.
    pub(super) fn all(
        subscriptions: &'a [Subscription],
        variant: Variant,
    ) -> impl Iterator<Item = SentPart<'a>> {
        parts(subscriptions).map(move |(subscription, part)| SentPart { subscription, part, variant })
    }

    pub fn source(self) -> SourceId {
        self.part.source()
    }

    pub fn type_url(self) -> &'a TypeUrl {
        &self.subscription.type_url
    }

    pub fn collection(self) -> &'a Collection {
        &self.part.collection
    }

    /// Whether the absence of a name tells the client of a removal. In the state of the world, the absence
    /// from a set that is no full state tells nothing.
    pub fn tells_removals(self) -> bool {
        self.variant == Variant::Delta || self.subscription.is_full(self.variant)
    }

    pub fn place(self) -> SentPlace {
        let (subscription, part) = (self.subscription, self.part);
        SentPlace {
            source: part.source(),
            type_url: subscription.type_url.clone(),
            kind: part.kind(),
            names: part.names().map(|names| names.id()),
            sent: part.held.id(),
            unfinished: subscription.delivery.pending.as_ref().map(|answer| (answer.key(), answer.chunk)),
            before: part.before.as_ref().map(|view| view.id()),
            rejected: part.rejected.as_ref().map(|rejected| (rejected.before.id(), rejected.sent.id())),
        }
    }

    /// The part with the messages so far of an unfinished answer.
    pub fn content(self) -> Cow<'a, Part> {
        self.subscription.part_so_far(self.part)
    }

    /// The send time of the latest response for the type; of ACKed content, the time of the latest answer at
    /// most.
    pub fn sent_at(self) -> Option<Time> {
        self.subscription.nonces.sent_at()
    }

    /// The state of a client that owes an answer.
    pub fn unanswered_state(self, now: Time) -> ClientState {
        unanswered_state(self.subscription, now)
    }

    /// The rejections of the type, the older one first.
    pub fn nacks(self) -> impl Iterator<Item = &'a Nack> {
        self.subscription.nacks()
    }

    /// Whether a rejected response brought this version of the name, or with `None` its removal.
    pub fn is_brought_by(self, nack: &Nack, name: &ResourceName, version: Option<Version>) -> bool {
        // By content: the part may have come to another server of its list since the response (WAV-18).
        let key = self.part.key();
        nack.brought.iter().any(|brought| brought.key == key && brought.has(name, version))
    }

    pub fn suspects(self, nack: &Nack) -> Suspects {
        self.subscription.suspects(nack)
    }
}

/// The state of each type at each of its sources.
pub(super) fn type_states(subscriptions: &[Subscription], turn: &Turn<'_>) -> Vec<ClientTypeState> {
    let mut standings: Vec<ClientTypeState> = Vec::new();
    for (subscription, part) in parts(subscriptions) {
        let (source, type_url) = (part.source(), &subscription.type_url);
        let state = state_of(subscription, part, turn);
        let is_same =
            |standing: &&mut ClientTypeState| standing.source == source && standing.type_url == *type_url;
        match standings.iter_mut().find(is_same) {
            // Names of two styles, or names beside a wildcard.
            Some(standing) => standing.state = standing.state.max(state),
            None => standings.push(ClientTypeState { source, type_url: type_url.clone(), state }),
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
