//! The timers of a source: resources expire (TTL-8), and unavailable names are reported (ERR-10).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Time;
use crate::engine::cache::expiry::{Expiry, Leased, Left};
use crate::engine::collection::CollectionKind;
use crate::xds::{Code, ResourceName, Status, TypeUrl};

/// An unknown name of an unreachable server is reported as UNAVAILABLE after this time (RLY-8, ERR-10).
pub(super) const UNREACHABLE: Duration = Duration::from_secs(10);

/// The timers of a source, and the server's name in errors.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    /// Names the upstream to clients (ERR-9).
    pub(super) server: Arc<str>,
    pub(super) expiry: Expiry,
    /// Names, or globs, that were asked for together, and the time to check them; in the order of time.
    pub(super) asked: VecDeque<(Time, TypeUrl, Vec<ResourceName>)>,
}

impl Upkeep {
    /// The source asked for names of unknown state.
    pub(super) fn asked(&mut self, type_url: &TypeUrl, names: &[ResourceName], now: Time) {
        self.asked.push_back((now + UNREACHABLE, type_url.clone(), names.to_vec()));
    }

    /// Names, or members of globs, are freed.
    pub(super) fn freed(&mut self, type_url: &TypeUrl, kind: CollectionKind, names: &[ResourceName]) {
        for name in names {
            self.expiry.cancel(&Leased::new(type_url, kind, name));
        }
    }

    /// The members of the wildcard are freed.
    pub(super) fn freed_wildcard(&mut self, type_url: &TypeUrl) {
        self.expiry.keep_only(type_url, CollectionKind::Wildcard, |_| false);
    }

    pub(super) fn left(&self, now: Time) -> BTreeMap<Leased, Left> {
        self.expiry.left(now).map(|(what, left)| (what.clone(), left)).collect()
    }

    pub(super) fn has_leases(&self) -> bool {
        !self.expiry.is_empty()
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let asked = self.asked.front().map(|(due, ..)| *due);
        [asked, self.expiry.poll_timeout()].into_iter().flatten().min()
    }

    /// An error as clients see it (ERR-9).
    pub(super) fn error(&self, code: Code, message: &str) -> Arc<Status> {
        let colon = if message.is_empty() { "" } else { ": " };
        Arc::new(Status::new(code, format!("{}{colon}{message}", self.server)))
    }
}
