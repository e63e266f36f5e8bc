//! The standing of a client: what it accepted, rejected, or owes an answer to (TRU-1).
//!
//! Everything is read from the state that the session has anyway, so that no ACK counts anything (TRU-2). "Accepted" is the
//! client's ACK, and does not say that the client uses the content (TRU-5).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::Time;
use crate::collection::{CollectionKind, SetId};
use crate::downstream::answer::key::AnswerKey;
use crate::downstream::order::turn::Turn;
use crate::downstream::session::Session;
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
    /// The time when the client was sent content of the push; `None` if it was not. Of content that was ACKed, the time
    /// of the client's latest answer for the type at most.
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

/// The states of content that clients share, during one walk over the clients. Clients at one place of a push are compared
/// with it once.
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
    pub(super) fn of(of: &Subscription, part: &Part) -> SentPlace {
        SentPlace {
            source: part.source(),
            type_url: of.type_url.clone(),
            kind: part.kind(),
            names: part.names().map(|names| names.id()),
            sent: part.held.id(),
            unfinished: of.delivery.pending.as_ref().map(|answer| (answer.key(), answer.chunk)),
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

impl Session {
    /// The state of each type at each of its sources, by the newest content. `latest` as in [`Session::poll_answer`].
    pub fn type_standings(
        &self,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        now: Time,
    ) -> Vec<TypeStanding> {
        let snapshots = self.served(latest);
        let turn = self.turn(&snapshots, false, now);
        let mut standings: Vec<TypeStanding> = Vec::new();
        for (of, part) in self.parts() {
            let (source, state) = (part.source(), of.state_of(part, &turn));
            let is_same = |known: &&mut TypeStanding| known.source == source && known.type_url == of.type_url;
            match standings.iter_mut().find(is_same) {
                // Names of two styles, or names beside a wildcard.
                Some(known) => known.state = known.state.max(state),
                None => standings.push(TypeStanding { source, type_url: of.type_url.clone(), state }),
            }
        }
        standings
    }

    /// Whether the client accepted this version of a resource, and has it (TRU-6).
    pub fn has_accepted(&self, type_url: &TypeUrl, name: &ResourceName, version: Version) -> bool {
        self.parts().filter(|(of, _)| of.type_url == *type_url).any(|(of, part)| {
            let part = of.part_so_far(part);
            part.held.known_version_of(name) == Some(version) && part.has_accepted(name, Some(version))
        })
    }

    /// The client's standing towards a push. `latest` as in [`Session::poll_answer`].
    pub fn push_standing(
        &self,
        push: &PushSet,
        compared: &mut Compared,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        now: Time,
    ) -> PushStanding {
        let mut standing = PushStanding::default();
        for (of, part) in self.parts() {
            let Some((unit, pushed)) = push.find(part.source(), &of.type_url) else { continue };
            let live = latest(part.source());
            // In the state of the world, the absence of a name from a set that is no full state tells nothing.
            let tells_removals = self.variant() == Variant::Delta || of.is_full(self.variant());
            let progress = compared.progress(of, part, pushed, (live.as_deref(), tells_removals));
            if progress.sent || progress.accepted {
                standing.sent_at = standing.sent_at.max(of.nonces.sent_at());
                standing.source = Some(part.source());
            }
            // The older one first: what it says is more than that something else was rejected, too.
            let nack = of.nacks().find(|nack| nack.is_of(unit, pushed, (part, tells_removals), progress));
            if let Some(nack) = nack {
                standing.reject(of, nack, part.source());
            }
            standing.state = standing.state.max(match nack {
                Some(_) => ClientState::Rejected,
                None => progress.state(of, now),
            });
        }
        standing
    }
}

impl Subscription {
    fn state_of(&self, part: &Part, turn: &Turn<'_>) -> ClientState {
        let is_rejected = |nack: &Nack| {
            // A response about another part says nothing about this one.
            nack.brought.is_empty() || nack.brought.iter().any(|brought| brought.key == part.key())
        };
        if self.nack().is_some_and(is_rejected) {
            return ClientState::Rejected;
        }
        if self.nonces.is_waiting() {
            return self.unanswered_state(turn.now);
        }
        let view = part.view_in(turn, &self.type_url);
        let is_due = view
            .is_some_and(|view| part.is_behind(part.due(view)) && !(part.held.is_empty() && view.is_empty()));
        match is_due || self.delivery.pending.is_some() {
            true => ClientState::Pending,
            false if part.at.is_none() && part.held.is_empty() => ClientState::Unaffected,
            false => ClientState::Accepted,
        }
    }

    fn unanswered_state(&self, now: Time) -> ClientState {
        match self.nonces.waiting_since() {
            Some(since) if now.since(since) >= SILENT_AFTER => ClientState::Silent,
            _ => ClientState::Pending,
        }
    }
}

impl Progress {
    fn state(self, of: &Subscription, now: Time) -> ClientState {
        if self.sent || self.due {
            of.unanswered_state(now)
        } else if self.overtaken {
            ClientState::Overtaken
        } else if self.accepted {
            ClientState::Accepted
        } else {
            ClientState::Unaffected
        }
    }
}

impl Compared {
    fn progress(
        &mut self,
        of: &Subscription,
        part: &Part,
        pushed: &PushType,
        (live, tells_removals): (Option<&Snapshot>, bool),
    ) -> Progress {
        let place = Place {
            sent: SentPlace::of(of, part),
            before: part.before.as_ref().map(|view| view.id()),
            rejected: part.rejected.as_ref().map(|rejected| (rejected.before.id(), rejected.sent.id())),
            live: live.map_or(0, Snapshot::last_change),
            tells_removals,
        };
        *self.0.entry(place).or_insert_with(|| progress(of, part, pushed, (live, tells_removals)))
    }
}

fn progress(
    of: &Subscription,
    part: &Part,
    pushed: &PushType,
    (live, tells_removals): (Option<&Snapshot>, bool),
) -> Progress {
    let mut progress = Progress::default();
    let part = &*of.part_so_far(part);
    let live = live.and_then(|live| live.of(&of.type_url));
    let live = |name: &ResourceName| {
        live.and_then(|live| live.body(part.kind(), name)).map(|resource| resource.version)
    };
    // The client neither was sent anything nor presented anything. An unanswered removal of all names is something.
    let had_nothing = part.before.as_ref().is_none_or(|before| before.is_empty());
    let is_new = part.at.is_none() && part.held.is_empty() && had_nothing;
    pushed.names_of(&part.collection, |of| {
        if tells_removals || of.version().is_some() {
            progress.add(of, part, is_new, &live);
        }
    });
    progress
}

impl Progress {
    fn add(
        &mut self,
        of: &PushedName,
        part: &Part,
        is_new: bool,
        live: &dyn Fn(&ResourceName) -> Option<Version>,
    ) {
        let (wanted, sent) = (of.version(), part.held.version_of(&of.name));
        if wanted.is_none() && part.never_had(&of.name) {
            return;
        }
        if sent == wanted {
            let is_accepted = part.has_accepted(&of.name, wanted);
            self.accepted |= is_accepted;
            self.sent |= !is_accepted;
            return;
        }
        let live = live(&of.name);
        // Content that went back is due to nobody.
        if is_new || live == wanted || sent == of.version_before() && live != sent {
            self.due = true;
        } else {
            self.overtaken = true;
        }
    }
}

impl Nack {
    /// Whether the rejected response brought content of the push (TRU-3): by its content, else by its changes.
    fn is_of(
        &self,
        unit: &PushUnit,
        pushed: &PushType,
        (part, tells_removals): (&Part, bool),
        progress: Progress,
    ) -> bool {
        // By content: the part may have come to another server of its list since the response (WAV-18).
        let own = || self.brought.iter().filter(|of| of.key == part.key());
        let mut is_brought = false;
        pushed.names_of(&part.collection, |of| {
            // A name that the client gave up is gone from what it was sent next, and that is no removal.
            let is_told = of.version().is_some() || tells_removals;
            is_brought |= is_told && own().any(|brought| brought.has(&of.name, of.version()));
        });
        let mut changes = self.carried.rejected().iter().filter(|id| id.source == part.source());
        // A change that the push itself replaced is not judged while its replacement is due.
        let is_sent = (progress.sent || progress.accepted) && !progress.due;
        is_brought || is_sent && changes.any(|id| unit.has_change(id.number))
    }
}

impl PushStanding {
    fn reject(&mut self, of: &Subscription, nack: &Nack, source: SourceId) {
        if self.rejections.iter().any(|known| known.source == source && known.type_url == of.type_url) {
            return;
        }
        self.rejections.push(PushRejection {
            source,
            type_url: of.type_url.clone(),
            at: nack.at,
            words: nack.status.to_string(),
            suspects: of.suspects(nack),
        });
    }
}
