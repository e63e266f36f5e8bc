//! The attachment of a source to its server: by streams or polls, or by files.

mod files;
mod streams;
mod suspect;
mod doubt;

pub use files::Files;
pub use streams::Streams;
pub use suspect::SuspectType;

use crate::Time;
use crate::reachability::Reachability;
use crate::snapshot::AnsweredParts;
use crate::source::api::SourceSettings;
use sluice_xds::TypeUrl;

#[derive(Debug)]
pub enum Attachment {
    Streams(Box<Streams>),
    Files(Files),
}

impl Attachment {
    /// Passes the source's settings on to the streams.
    pub(super) fn set(mut self, settings: &SourceSettings) -> Attachment {
        if let Attachment::Streams(streams) = &mut self {
            streams.settings = settings.for_streams(&streams.settings);
        }
        self
    }

    pub(super) fn close_idle(&mut self, now: Time) {
        if let Attachment::Streams(streams) = self {
            streams.machines_mut().for_each(|(_, machine)| machine.close_idle(now));
        }
    }

    /// The current part of a type that is not current as a whole.
    pub(super) fn answered(&self, type_url: &TypeUrl) -> Option<AnsweredParts> {
        match self {
            Attachment::Streams(streams) => streams.answered(type_url),
            Attachment::Files(_) => None,
        }
    }

    /// Whether the wildcard counts as whole, and may have more members.
    pub(super) fn is_provisional(&self, type_url: &TypeUrl) -> bool {
        match self {
            Attachment::Streams(streams) => streams.is_provisional(type_url),
            Attachment::Files(_) => false,
        }
    }

    /// Whether the held resources of a type are the server's current resources, as far as the relay can tell.
    /// Files are current from their first state on, because they are always reachable.
    pub fn is_current(&self, type_url: &TypeUrl) -> bool {
        match self {
            Attachment::Streams(streams) => streams.is_current(type_url),
            Attachment::Files(files) => files.is_read(),
        }
    }

    /// Whether the server can be heard. A directory can be, after its first read.
    pub fn reach(&self) -> Reachability {
        match self {
            Attachment::Streams(streams) => streams.reach(),
            Attachment::Files(files) if files.is_read() => Reachability::Heard { since: Time::ZERO },
            Attachment::Files(_) => Reachability::Pending,
        }
    }

    /// Whether the server can be heard for one type; `None` where all types share the answer.
    pub(super) fn reach_of(&self, type_url: &TypeUrl) -> Option<Reachability> {
        match self {
            Attachment::Streams(streams) => streams.reach_of(type_url),
            Attachment::Files(_) => None,
        }
    }

    pub(super) fn is_lost_for(&self, type_url: &TypeUrl) -> bool {
        // A type without a service has no stream that could tell: the others show whether the server can be
        // heard.
        self.reach().is_lost() || self.reach_of(type_url).is_some_and(|reach| reach.is_lost())
    }
}
