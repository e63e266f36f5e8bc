//! What is to be said of names beside their content: errors, and how long resources live.
//!
//! Both are rare, so that a [`View`](super::view::View) without any carries an empty pointer. They are part of a view,
//! and what a client must be told of them is the difference of two views, as content is.

use std::sync::Arc;
use std::time::Duration;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use super::Time;
use crate::xds::{Code, ResourceName, Status};

/// The time to live of a resource, as clients are told of it (RLY-39).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Which heartbeat this is: clients that were told of another one are due one.
    pub beat: u64,
    /// When the resource is gone unless its server refreshes it.
    pub expires: Time,
    /// As the server stated it.
    pub ttl: Duration,
}

/// Where an error about a name comes from (DAT-1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorKind {
    /// The server said so (ERR-1).
    #[default]
    Reported,
    /// The last instance of the resource was structurally bad and is NACKed (RLY-37).
    Malformed,
    /// No answer in time, where that is a transient error (TMR-5).
    Timeout,
    /// The server cannot be reached (ERR-10).
    Unreachable,
}

/// Errors and leases by name. Cheap to clone; nothing is allocated while there is none.
#[derive(Clone, Debug, Default)]
pub struct Remarks(Option<Arc<Maps>>);

#[derive(Clone, Debug, Default)]
struct Maps {
    errors: OrdMap<ResourceName, Arc<Status>>,
    /// Of the errors that the server did not report; never of a name without an error.
    kinds: OrdMap<ResourceName, ErrorKind>,
    leases: OrdMap<ResourceName, Lease>,
    /// No lease is shorter.
    shortest: Duration,
}

impl Remarks {
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn error(&self, name: &ResourceName) -> Option<&Arc<Status>> {
        self.0.as_ref()?.errors.get(name)
    }

    pub fn lease(&self, name: &ResourceName) -> Option<&Lease> {
        self.0.as_ref()?.leases.get(name)
    }

    pub fn errors(&self) -> impl Iterator<Item = (&ResourceName, &Arc<Status>)> {
        self.0.iter().flat_map(|maps| &maps.errors)
    }

    /// The kind of the error that stands, if one does.
    pub fn error_kind(&self, name: &ResourceName) -> Option<ErrorKind> {
        let maps = self.0.as_ref().filter(|maps| maps.errors.contains_key(name))?;
        Some(maps.kinds.get(name).copied().unwrap_or_default())
    }

    /// Says of the error of a name, if it has one, what kind it is.
    pub fn set_error_kind(&mut self, name: &ResourceName, kind: ErrorKind) {
        if self.error_kind(name).is_some_and(|standing| standing != kind) {
            self.change(|maps| match kind {
                ErrorKind::Reported => drop(maps.kinds.remove(name)),
                kind => drop(maps.kinds.insert(name.clone(), kind)),
            });
        }
    }

    /// Names with errors that say nothing about the resource itself, and end when the server is heard again (DAT-1, DAT-7).
    pub fn transient_errors(&self) -> Vec<ResourceName> {
        let is_transient = |name: &ResourceName, error: &Status| match self.error_kind(name) {
            // A timeout is no ambient error, as there never is a copy, and the silence that it ends in counts as being heard.
            Some(ErrorKind::Malformed | ErrorKind::Timeout) | None => false,
            Some(ErrorKind::Unreachable) => true,
            Some(ErrorKind::Reported) => !matches!(error.code, Code::NotFound | Code::PermissionDenied),
        };
        self.errors()
            .filter(|(name, error)| is_transient(name, error))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// No lease is shorter than this; `None` without any.
    pub fn shortest_ttl(&self) -> Option<Duration> {
        self.0.as_ref().filter(|maps| !maps.leases.is_empty()).map(|maps| maps.shortest)
    }

    /// Whether this is news: an error is told once, until it changes (ERR-3). One that is news counts as reported by the
    /// server.
    pub fn set_error(&mut self, name: &ResourceName, error: Option<&Arc<Status>>) -> bool {
        if self.error(name) == error {
            return false;
        }
        self.change(|maps| {
            maps.kinds.remove(name);
            match error {
                Some(error) => drop(maps.errors.insert(name.clone(), error.clone())),
                None => drop(maps.errors.remove(name)),
            }
        });
        true
    }

    /// Whether this is news.
    pub fn set_lease(&mut self, name: &ResourceName, lease: Option<Lease>) -> bool {
        if self.lease(name) == lease.as_ref() {
            return false;
        }
        self.change(|maps| match lease {
            Some(lease) => {
                let is_first = maps.leases.is_empty();
                maps.shortest = if is_first { lease.ttl } else { maps.shortest.min(lease.ttl) };
                maps.leases.insert(name.clone(), lease);
            }
            None => drop(maps.leases.remove(name)),
        });
        true
    }

    /// Takes over what another one has of a name.
    pub fn copy(&mut self, name: &ResourceName, from: &Remarks) {
        if !(self.is_empty() && from.is_empty()) {
            self.set_error(name, from.error(name));
            self.set_error_kind(name, from.error_kind(name).unwrap_or_default());
            self.set_lease(name, from.lease(name).copied());
        }
    }

    /// Takes over the lease of a name, which was told as it is. `ends_error`: with its resource, which no error outlives
    /// (ERR-3).
    pub fn copy_lease(&mut self, name: &ResourceName, from: &Remarks, ends_error: bool) {
        if !(self.is_empty() && from.is_empty()) {
            if ends_error {
                self.set_error(name, None);
            }
            self.set_lease(name, from.lease(name).copied());
        }
    }

    /// Forgets a name. Whether there was something.
    pub fn forget(&mut self, name: &ResourceName) -> bool {
        let error = self.set_error(name, None);
        self.set_lease(name, None) || error
    }

    /// The errors of `self` with the leases of `other`.
    #[must_use]
    pub fn with_leases_of(&self, other: &Remarks) -> Remarks {
        let mut mixed = self.clone();
        mixed.change(|maps| {
            let other = other.0.as_deref().cloned().unwrap_or_default();
            (maps.leases, maps.shortest) = (other.leases, other.shortest);
        });
        mixed
    }

    fn change(&mut self, change: impl FnOnce(&mut Maps)) {
        let maps = Arc::make_mut(self.0.get_or_insert_default());
        change(maps);
        if maps.errors.is_empty() && maps.leases.is_empty() {
            self.0 = None;
        }
    }

    /// What a client that was told `self` does not know of `to` yet.
    pub fn news(&self, to: &Remarks) -> RemarkNews {
        let mut news = RemarkNews::default();
        if self.0.is_none() && to.0.is_none() {
            return news;
        }
        let empty = Arc::default();
        let (old, new) = (self.0.as_ref().unwrap_or(&empty), to.0.as_ref().unwrap_or(&empty));
        for item in old.errors.diff(&new.errors) {
            match item {
                DiffItem::Add(name, error) | DiffItem::Update { new: (name, error), .. } => {
                    news.errors.push((name.clone(), error.clone()));
                }
                DiffItem::Remove(name, _) => news.over.push(name.clone()),
            }
        }
        for item in old.leases.diff(&new.leases) {
            match item {
                DiffItem::Add(name, _) | DiffItem::Update { new: (name, _), .. } => {
                    news.beats.push(name.clone())
                }
                DiffItem::Remove(name, _) => news.unleased.push(name.clone()),
            }
        }
        news
    }
}

/// How two [`Remarks`] differ.
#[derive(Debug, Default)]
pub struct RemarkNews {
    /// Errors that are new, or others than before.
    pub errors: Vec<(ResourceName, Arc<Status>)>,
    /// Names of which an error no longer stands. Only their resource says so to a client (ERR-3).
    pub over: Vec<ResourceName>,
    /// Names whose time to live began, or begins anew.
    pub beats: Vec<ResourceName>,
    /// Names whose time to live no longer counts: only the resource without one says so (TTL-3).
    pub unleased: Vec<ResourceName>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xds::Code;

    #[test]
    fn err_3_what_is_equal_is_no_news() {
        let mut remarks = Remarks::default();
        let error = Arc::new(Status::new(Code::Unavailable, "x"));
        assert!(remarks.set_error(&"a".into(), Some(&error)));
        assert!(!remarks.set_error(&"a".into(), Some(&Arc::new(Status::new(Code::Unavailable, "x")))));
        let told = remarks.clone();
        assert!(told.news(&remarks).errors.is_empty());
        assert!(remarks.set_error(&"a".into(), None));
        assert!(remarks.is_empty());
        assert_eq!(told.news(&remarks).over, ["a".into()]);
    }

    #[test]
    fn ttl_3_a_new_beat_and_the_end_of_a_lease_are_news() {
        let lease = |beat| Lease { beat, expires: Time::ZERO, ttl: Duration::ZERO };
        let mut remarks = Remarks::default();
        remarks.set_lease(&"a".into(), Some(lease(1)));
        let told = remarks.clone();
        remarks.set_lease(&"a".into(), Some(lease(2)));
        assert_eq!(told.news(&remarks).beats, ["a".into()]);
        assert!(remarks.forget(&"a".into()) && !remarks.forget(&"a".into()));
        assert_eq!(told.news(&remarks).unleased, ["a".into()]);
    }
}
