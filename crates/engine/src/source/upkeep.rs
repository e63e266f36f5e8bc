//! The timers of a source: resources expire (TTL-8), and unavailable names are reported (ERR-10).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::Time;
use crate::cache::expiry::{Expiry, Leased, Left};
use crate::collection::CollectionKind;
use sluice_xds::{Code, ResourceName, Status, TypeUrl};

/// An unknown name of an unreachable server is reported as UNAVAILABLE after this time (RLY-8, ERR-10).
const UNREACHABLE: Duration = Duration::from_secs(10);

/// With so many asked names, a search for those that need no check is not worth its time.
const FEW_ASKED: usize = 4096;

/// The timers of a source, and the server's name in errors.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    /// Names the upstream to clients (ERR-9).
    pub(super) server: Arc<str>,
    pub(super) expiry: Expiry,
    /// Names, or globs, that were asked for together, and the time to check them; in the order of time.
    asked: VecDeque<(Time, TypeUrl, Vec<ResourceName>)>,
    /// The number of names in `asked`.
    asked_len: usize,
}

impl Upkeep {
    /// The source asked for names of unknown state.
    pub(super) fn note_asked(&mut self, type_url: &TypeUrl, names: &[ResourceName], now: Time) {
        self.asked_len += names.len();
        self.asked.push_back((now + UNREACHABLE, type_url.clone(), names.to_vec()));
    }

    /// The next names to check.
    pub(super) fn take_asked(&mut self, now: Time) -> Option<(TypeUrl, Vec<ResourceName>)> {
        let (_, type_url, names) = self.asked.pop_front_if(|(due, ..)| *due <= now)?;
        self.asked_len -= names.len();
        Some((type_url, names))
    }

    /// Forgets the names of a type whose names are all known. A class keeps no texts of its own then (BOD-3).
    pub(super) fn end_asked(&mut self, type_url: &TypeUrl) {
        self.asked.retain(|(_, asked_type, _)| asked_type != type_url);
        self.asked.shrink_to_fit();
        self.asked_len = self.asked.iter().map(|(.., names)| names.len()).sum();
    }

    /// Forgets names that need no check, once most do not. `count`: the number of names that the source
    /// knows.
    pub(super) fn forget_asked(
        &mut self,
        count: usize,
        is_unknown: impl Fn(&TypeUrl, &ResourceName) -> bool,
    ) {
        if self.asked_len <= 2 * count + FEW_ASKED {
            return;
        }
        let mut later = BTreeSet::new();
        for (_, type_url, names) in self.asked.iter_mut().rev() {
            // A name that was freed and asked for again counts from then on.
            names.retain(|name| is_unknown(type_url, name) && later.insert((type_url.clone(), name.clone())));
            names.shrink_to_fit();
        }
        self.asked.retain(|(.., names)| !names.is_empty());
        self.asked_len = later.len();
    }

    /// Names, or members of globs, are freed.
    pub(super) fn free(&mut self, type_url: &TypeUrl, kind: CollectionKind, names: &[ResourceName]) {
        for name in names {
            self.expiry.cancel(&Leased::new(type_url, kind, name));
        }
    }

    /// The members of the wildcard are freed.
    pub(super) fn free_wildcard(&mut self, type_url: &TypeUrl) {
        self.expiry.keep_only(type_url, CollectionKind::Wildcard, |_| false);
    }

    pub(super) fn leases_left(&self, now: Time) -> BTreeMap<Leased, Left> {
        self.expiry.left(now).map(|(leased, left)| (leased.clone(), left)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bod_3_names_of_a_known_type_are_not_remembered() {
        let mut upkeep = Upkeep::default();
        let [known, other] = ["a.B", "a.C"].map(TypeUrl::of_message);
        let name = ResourceName::new("a");
        for type_url in [&known, &other, &known] {
            upkeep.note_asked(type_url, std::slice::from_ref(&name), Time::ZERO);
        }
        upkeep.end_asked(&known);
        assert_eq!(upkeep.asked_len, 1);
        let checked = upkeep.take_asked(Time::ZERO + UNREACHABLE);
        assert_eq!(checked, Some((other, vec![name])));
        upkeep.end_asked(&known);
        assert_eq!((upkeep.poll_timeout(), upkeep.asked.capacity()), (None, 0));
    }

    #[test]
    fn err_10_names_that_came_and_went_are_not_remembered() {
        let mut upkeep = Upkeep::default();
        let (type_url, second) =
            (TypeUrl::of_message("envoy.config.cluster.v3.Cluster"), Duration::from_secs(1));
        let names: Vec<ResourceName> =
            (0..FEW_ASKED).map(|number| ResourceName::new(&number.to_string())).collect();
        let start = Time::from_micros(1);
        upkeep.note_asked(&type_url, &names, start);
        upkeep.forget_asked(0, |_, _| false);
        assert_eq!(upkeep.asked_len, FEW_ASKED, "a few are left alone");
        // Freed and asked for again: the later time counts.
        upkeep.note_asked(&type_url, &names, start + second);
        upkeep.forget_asked(0, |_, name| *name != names[0]);
        assert_eq!(upkeep.asked_len, FEW_ASKED - 1);
        assert!(upkeep.take_asked(start + UNREACHABLE).is_none());
        let (_, left) = upkeep.take_asked(start + second + UNREACHABLE).unwrap();
        assert_eq!((left.len(), upkeep.asked_len), (FEW_ASKED - 1, 0));
    }
}
