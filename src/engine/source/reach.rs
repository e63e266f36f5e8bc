//! Whether a server can be heard, as a whole and for one type (ADR 18).
//!
//! The end of an aggregated stream concerns every type. Where each type has streams, or polls, of its own, a
//! single type may fail alone (RLY-25, RLY-40). Two cases differ then (CLI-1): without a connection the
//! server is lost for all types; a stream that ends before its first response loses its own type.

use std::mem::discriminant;
use std::sync::Arc;

use super::Source;
use super::attachment::{Attachment, Machine, Streams};
use crate::engine::Time;
use crate::engine::planted::{Bug, planted};
use crate::engine::reach::Reach;
use crate::engine::upstream::{Input, Transport};
use crate::xds::TypeUrl;

impl Streams {
    fn is_by_type(&self) -> bool {
        self.settings.transport != Transport::Aggregated
    }

    /// Records the state of the connection, which the streams of all types share.
    pub(super) fn note_connection(&mut self, input: &Input, now: Time) {
        match input {
            Input::ConnectFailed { status } if self.is_by_type() => {
                self.connection.lose(status.clone(), now);
            }
            Input::Received(_) | Input::Unchanged | Input::Ended { .. } => self.connection.hear(now),
            // A poll begins before there is a connection.
            Input::Opened if !matches!(self.settings.transport, Transport::Rest { .. }) => {
                self.connection.hear(now);
            }
            _ => {}
        }
    }

    /// Whether the server can be heard at all. A lost stream of all types means a lost server (CLI-1). A lost
    /// stream of a single type does not, as long as there are others.
    pub fn reach(&self) -> Reach {
        let shared = || self.machines.iter().filter(|machine| machine.alone.is_none()).filter(is_used);
        if !self.is_by_type() {
            return match shared().next() {
                Some(_) => combined(shared()),
                // Streams of suspects count only if there are no others.
                None => combined(self.machines.iter().filter(is_used)),
            };
        }
        if shared().next().is_some() && self.connection.is_lost() {
            return self.connection.clone();
        }
        let reaches = || shared().map(|machine| machine.upstream.reach());
        let heard = reaches().filter(|reach| reach.is_heard()).filter_map(Reach::since).max();
        match heard {
            Some(since) => Reach::Heard { since },
            None if reaches().all(Reach::is_lost) => combined(shared()),
            None => Reach::Pending,
        }
    }

    /// Whether the server can be heard for this type; `None` if the type shares a stream with others.
    fn reach_of(&self, type_url: &TypeUrl) -> Option<Reach> {
        let own = || self.machines.iter().filter(|machine| machine.type_url.as_ref() == Some(type_url));
        let is_cut_off = self.connection.is_lost() && own().any(|machine| is_used(&machine));
        self.is_by_type()
            .then(|| if is_cut_off { self.connection.clone() } else { combined(own().filter(is_used)) })
    }
}

impl Attachment {
    /// Whether the server can be heard. A directory can be, after its first read.
    pub fn reach(&self) -> Reach {
        match self {
            Attachment::Streams(streams) => streams.reach(),
            Attachment::Files(files) if files.is_read() => Reach::Heard { since: Time::ZERO },
            Attachment::Files(_) => Reach::Pending,
        }
    }

    /// Whether the server can be heard for one type; `None` where all types share the answer.
    pub(super) fn reach_of(&self, type_url: &TypeUrl) -> Option<Reach> {
        match self {
            Attachment::Streams(streams) => streams.reach_of(type_url),
            Attachment::Files(_) => None,
        }
    }

    pub(super) fn is_lost_for(&self, type_url: &TypeUrl) -> bool {
        self.reach_of(type_url).unwrap_or_else(|| self.reach()).is_lost()
    }
}

impl Source {
    /// Whether the server can be heard for one type; `None` where all types share the answer.
    pub fn reach_of(&self, type_url: &TypeUrl) -> Option<Reach> {
        self.attachment.reach_of(type_url)
    }

    /// Publishes whether the server can be heard, at all and for each type, and the current types.
    pub(super) fn note_reach(&mut self) {
        let reach = self.attachment.reach();
        // A new reason or text of the loss wakes no session.
        let mut is_news = discriminant(&reach) != discriminant(self.snapshot.reach());
        for type_url in self.types.keys() {
            let is_current = self.attachment.is_current(type_url);
            let of_type = self.attachment.reach_of(type_url);
            let is_lost = of_type.as_ref().is_some_and(Reach::is_lost);
            self.linger.hold_type(type_url, is_lost && !self.settings.private);
            let Some(types) = self.snapshot.of_mut(type_url) else { continue };
            let was_current = types.is_current;
            if was_current != is_current {
                types.is_current = is_current;
                self.snapshot_changed = true;
                // Staleness wakes no session; its end does.
                is_news |= is_current;
            }
            let answered = match is_current || !self.settings.tells_reach {
                true => None,
                false => self.attachment.answered(type_url),
            };
            let is_same = match (&types.answered, &answered) {
                (Some(before), Some(answered)) => before.is_same(answered),
                (before, answered) => before.is_none() && answered.is_none(),
            };
            if !is_same {
                // Only observers find the sessions of the names, once for many answers (RLY-54).
                self.has_answered |= !was_current
                    && answered
                        .as_ref()
                        .is_some_and(|answered| answered.says_more(types.answered.as_deref()));
                types.answered = answered.map(Arc::new);
                self.snapshot_changed = true;
            }
            if types.reach != of_type {
                is_news |= types.reach.as_ref().map(discriminant) != of_type.as_ref().map(discriminant);
                types.reach = of_type;
                self.snapshot_changed = true;
            }
        }
        if reach != *self.snapshot.reach() {
            self.linger.hold(reach.is_lost() && !self.settings.private);
            self.snapshot.set_reach(reach);
            self.snapshot_changed = true;
        }
        if is_news && self.settings.tells_reach && !planted(Bug::ReachNotTold) {
            self.news.first.extend(self.sessions.keys());
        }
    }
}

/// RLY-25, RLY-40: a type without a service does not count.
fn is_used(machine: &&Machine) -> bool {
    !machine.upstream.is_idle() && machine.upstream.unserved().is_none()
}

/// The server is lost if any stream is lost, and heard once all streams were answered.
fn combined<'a>(machines: impl Iterator<Item = &'a Machine>) -> Reach {
    let (mut latest, mut is_heard) = (None, true);
    for machine in machines {
        let reach = machine.upstream.reach();
        if reach.is_lost() {
            return reach.clone();
        }
        is_heard &= reach.is_heard();
        latest = latest.max(reach.since());
    }
    match latest {
        Some(since) if is_heard => Reach::Heard { since },
        Some(_) | None => Reach::Pending,
    }
}
