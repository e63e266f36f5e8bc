//! Whether a server can be heard, as a whole and for one type (ADR 18).
//!
//! The end of an aggregated stream concerns every type. Where each type has streams, or polls, of its own, a
//! single type may fail alone (RLY-25, RLY-40). Two cases differ then (CLI-1): without a connection the
//! server is lost for all types; a stream that ends before its first response loses its own type.

use super::{Machine, Streams};
use crate::engine::Time;
use crate::engine::reachability::Reachability;
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

    /// A failed attempt counts as long as some stream is attempted. Without attempts the state of the
    /// connection says nothing about the next one (CLI-1, FBK-21), and the open streams show by themselves
    /// whether the server can be heard.
    pub(super) fn forget_connection(&mut self) {
        let is_rest = matches!(self.settings.transport, Transport::Rest { .. });
        let attempts = |machine: &Machine| match is_rest {
            // Each poll is an attempt.
            true => !machine.upstream.is_idle(),
            false => machine.upstream.is_attempting(),
        };
        if !self.machines.iter().any(attempts) {
            self.connection = Reachability::Pending;
        }
    }

    /// Whether the server can be heard at all. A lost stream of all types means a lost server (CLI-1). A lost
    /// stream of a single type does not, as long as there are others.
    pub fn reach(&self) -> Reachability {
        let shared = || self.machines.iter().filter(|machine| machine.is_shared()).filter(is_used);
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
        let heard = reaches().filter(|reach| reach.is_heard()).filter_map(Reachability::since).max();
        match heard {
            Some(since) => Reachability::Heard { since },
            None if reaches().all(Reachability::is_lost) => combined(shared()),
            None => Reachability::Pending,
        }
    }

    /// Whether the server can be heard for this type; `None` if the type shares a stream with others.
    pub(in crate::engine::source) fn reach_of(&self, type_url: &TypeUrl) -> Option<Reachability> {
        let own = || self.machines.iter().filter(|machine| machine.type_url.as_ref() == Some(type_url));
        let is_cut_off = self.connection.is_lost() && own().any(|machine| is_used(&machine));
        self.is_by_type()
            .then(|| if is_cut_off { self.connection.clone() } else { combined(own().filter(is_used)) })
    }
}

/// RLY-25, RLY-40: a type without a service does not count.
fn is_used(machine: &&Machine) -> bool {
    !machine.upstream.is_idle() && machine.upstream.unserved().is_none()
}

/// The server is lost if any stream is lost, and heard once all streams were answered.
fn combined<'a>(machines: impl Iterator<Item = &'a Machine>) -> Reachability {
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
        Some(since) if is_heard => Reachability::Heard { since },
        Some(_) | None => Reachability::Pending,
    }
}
