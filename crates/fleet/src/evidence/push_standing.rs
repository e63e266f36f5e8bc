//! The standing of a client towards a push, read from the ledger of its session (TRU-1).

use std::collections::HashMap;
use std::sync::Arc;

use super::push_set::{PushSet, PushType, PushUnit, PushedName};
use sluice_engine::Time;
use sluice_engine::downstream::{ClientState, Nack, Part, SentPart, SentPlace, Session, SourceId, Suspects};
use sluice_engine::snapshot::Snapshot;
use sluice_xds::{ResourceName, TypeUrl, Version};

/// A client's standing towards a push.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushStanding {
    pub state: ClientState,
    /// The time when the client was sent content of the push; `None` without content. After an ACK, the time
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

/// The states of shared content, during one walk over the clients. Clients at one place are compared with a
/// push once.
#[derive(Debug, Default)]
pub struct Compared(HashMap<(SentPlace, u64, bool), Progress>);

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

impl PushStanding {
    /// `latest`: the content of a source that is due to the client.
    pub fn of_client(
        session: &Session,
        push: &PushSet,
        compared: &mut Compared,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        now: Time,
    ) -> PushStanding {
        let mut standing = PushStanding::default();
        for part in session.sent_parts() {
            let Some((unit, pushed)) = push.find(part.source(), part.type_url()) else { continue };
            let live = latest(part.source());
            let comparison = PartComparison { part, pushed, live: live.as_deref() };
            let progress = compared.progress(&comparison);
            if progress.sent || progress.accepted {
                standing.sent_at = standing.sent_at.max(part.sent_at());
                standing.source = Some(part.source());
            }
            // The older rejection first: a later rejection adds less.
            let nack = part.nacks().find(|nack| comparison.is_rejected_by(nack, unit, progress));
            if let Some(nack) = nack {
                standing.reject(part, nack);
            }
            standing.state = standing.state.max(match nack {
                Some(_) => ClientState::Rejected,
                None => progress.state(part, now),
            });
        }
        standing
    }

    fn reject(&mut self, part: SentPart<'_>, nack: &Nack) {
        let (source, type_url) = (part.source(), part.type_url());
        let is_same =
            |rejection: &PushRejection| rejection.source == source && rejection.type_url == *type_url;
        if !self.rejections.iter().any(is_same) {
            self.rejections.push(PushRejection {
                source,
                type_url: type_url.clone(),
                at: nack.at,
                words: nack.status.to_string(),
                suspects: part.suspects(nack),
            });
        }
    }
}

impl Progress {
    fn state(self, part: SentPart<'_>, now: Time) -> ClientState {
        if self.sent || self.due {
            part.unanswered_state(now)
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
struct PartComparison<'a> {
    part: SentPart<'a>,
    pushed: &'a PushType,
    /// The newest content of the source.
    live: Option<&'a Snapshot>,
}

impl Compared {
    fn progress(&mut self, comparison: &PartComparison<'_>) -> Progress {
        let PartComparison { part, live, .. } = comparison;
        let live = live.map_or(0, Snapshot::last_change);
        // Everything that a comparison depends on.
        *self.0.entry((part.place(), live, part.tells_removals())).or_insert_with(|| comparison.progress())
    }
}

impl PartComparison<'_> {
    fn progress(&self) -> Progress {
        let mut progress = Progress::default();
        let content = &*self.part.content();
        let live = self.live.and_then(|live| live.of(self.part.type_url()));
        let live_version = |name: &ResourceName| {
            live.and_then(|live| live.body(content.kind(), name)).map(|resource| resource.version)
        };
        let (is_new, tells_removals) = (content.is_untouched(), self.part.tells_removals());
        self.pushed.names_of(&content.collection, |name| {
            if tells_removals || name.version().is_some() {
                progress.add(name, content, is_new, &live_version);
            }
        });
        progress
    }

    /// Whether a rejected response brought content of the push (TRU-3): by its content, else by its changes.
    fn is_rejected_by(&self, nack: &Nack, unit: &PushUnit, progress: Progress) -> bool {
        let part = self.part;
        let mut is_brought = false;
        self.pushed.names_of(part.collection(), |name| {
            // A name without interest of the client is missing in the next response without a removal.
            let is_told = name.version().is_some() || part.tells_removals();
            is_brought |= is_told && part.is_brought_by(nack, &name.name, name.version());
        });
        let mut changes = nack.carried.rejected().iter().filter(|id| id.source == part.source());
        // A change with a replacement in the same push is not judged while the replacement is due.
        let is_sent = (progress.sent || progress.accepted) && !progress.due;
        is_brought || is_sent && changes.any(|id| unit.has_change(id.number))
    }
}
