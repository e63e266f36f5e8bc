//! Errors and leases: facts about names beside their content.
//!
//! Both are rare, so a [`View`](super::view::View) without annotations has an empty pointer. Annotations are
//! a part of a view. Like content, updates of annotations to a client are the difference of two views.

use std::sync::Arc;
use std::time::Duration;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use super::Time;
use sluice_xds::{Code, ResourceName, Status};

/// The time to live of a resource, for clients (RLY-39).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The number of the heartbeat: clients with another number are due a heartbeat.
    pub beat: u64,
    /// The time when the resource expires unless its server refreshes the resource.
    pub expires: Time,
    /// The TTL as the server stated.
    pub ttl: Duration,
}

/// The origin of an error of a name (DAT-1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorKind {
    /// The server reported the error (ERR-1).
    #[default]
    Reported,
    /// The last instance of the resource was malformed and is NACKed (RLY-37).
    Malformed,
    /// No answer in time, where a timeout is a transient error (TMR-5).
    Timeout,
    /// The server cannot be reached (ERR-10).
    Unreachable,
}

/// Errors and leases by name. Cheap to clone; empty annotations allocate nothing.
#[derive(Clone, Debug, Default)]
pub struct Annotations(Option<Arc<Maps>>);

#[derive(Clone, Debug, Default)]
struct Maps {
    errors: OrdMap<ResourceName, Arc<Status>>,
    /// The kinds of errors that the server did not report. Has no names without an error.
    kinds: OrdMap<ResourceName, ErrorKind>,
    leases: OrdMap<ResourceName, Lease>,
    /// A lower bound of the leases' TTLs.
    shortest: Duration,
}

impl Annotations {
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

    /// The kind of the current error; `None` without an error.
    pub fn error_kind(&self, name: &ResourceName) -> Option<ErrorKind> {
        let maps = self.0.as_ref().filter(|maps| maps.errors.contains_key(name))?;
        Some(maps.kinds.get(name).copied().unwrap_or_default())
    }

    /// Sets the kind of the current error. Has no effect on a name without an error.
    pub fn set_error_kind(&mut self, name: &ResourceName, kind: ErrorKind) {
        if self.error_kind(name).is_some_and(|standing| standing != kind) {
            self.change(|maps| match kind {
                ErrorKind::Reported => drop(maps.kinds.remove(name)),
                kind => drop(maps.kinds.insert(name.clone(), kind)),
            });
        }
    }

    /// Names with errors that tell nothing about the resource, and end when the server is heard again (DAT-1,
    /// DAT-7).
    pub fn transient_errors(&self) -> Vec<ResourceName> {
        let is_transient = |name: &ResourceName, error: &Status| match self.error_kind(name) {
            // A timeout is no ambient error: there never is a copy, and the silent server counts as heard.
            Some(ErrorKind::Malformed | ErrorKind::Timeout) | None => false,
            Some(ErrorKind::Unreachable) => true,
            Some(ErrorKind::Reported) => !matches!(error.code, Code::NotFound | Code::PermissionDenied),
        };
        self.errors()
            .filter(|(name, error)| is_transient(name, error))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// A lower bound of all leases' TTLs; `None` without leases.
    pub fn shortest_ttl(&self) -> Option<Duration> {
        self.0.as_ref().filter(|maps| !maps.leases.is_empty()).map(|maps| maps.shortest)
    }

    /// Sets or ends an error. Returns whether the error changed: an error is reported once, until it changes
    /// (ERR-3). A changed error counts as reported by the server.
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

    /// Sets or ends a lease. Returns whether the lease changed.
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

    /// Copies the annotations of a name.
    pub fn copy(&mut self, name: &ResourceName, from: &Annotations) {
        if !(self.is_empty() && from.is_empty()) {
            self.set_error(name, from.error(name));
            self.set_error_kind(name, from.error_kind(name).unwrap_or_default());
            self.set_lease(name, from.lease(name).copied());
        }
    }

    /// Copies the lease of a name. `ends_error`: the resource came with the lease, and ends the error of the
    /// name (ERR-3).
    pub fn copy_lease(&mut self, name: &ResourceName, from: &Annotations, ends_error: bool) {
        if !(self.is_empty() && from.is_empty()) {
            if ends_error {
                self.set_error(name, None);
            }
            self.set_lease(name, from.lease(name).copied());
        }
    }

    /// Removes the annotations of a name. Returns whether there were any.
    pub fn forget(&mut self, name: &ResourceName) -> bool {
        let error = self.set_error(name, None);
        self.set_lease(name, None) || error
    }

    /// The errors of `self` with the leases of `other`.
    #[must_use]
    pub fn with_leases_of(&self, other: &Annotations) -> Annotations {
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

    /// The annotations that a client with `self` needs in order to reach `to`.
    pub fn news(&self, to: &Annotations) -> AnnotationNews {
        let mut news = AnnotationNews::default();
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

/// The difference between two [`Annotations`].
#[derive(Debug, Default)]
pub struct AnnotationNews {
    /// New or changed errors.
    pub errors: Vec<(ResourceName, Arc<Status>)>,
    /// Names whose error is over. Only the resource itself tells a client so (ERR-3).
    pub over: Vec<ResourceName>,
    /// Names whose time to live began, or starts anew.
    pub beats: Vec<ResourceName>,
    /// Names whose time to live no longer counts: only a resource without a TTL tells a client so (TTL-3).
    pub unleased: Vec<ResourceName>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_xds::Code;

    #[test]
    fn err_3_what_is_equal_is_no_news() {
        let mut annotations = Annotations::default();
        let error = Arc::new(Status::new(Code::Unavailable, "x"));
        assert!(annotations.set_error(&"a".into(), Some(&error)));
        assert!(!annotations.set_error(&"a".into(), Some(&Arc::new(Status::new(Code::Unavailable, "x")))));
        let before = annotations.clone();
        assert!(before.news(&annotations).errors.is_empty());
        assert!(annotations.set_error(&"a".into(), None));
        assert!(annotations.is_empty());
        assert_eq!(before.news(&annotations).over, ["a".into()]);
    }

    #[test]
    fn ttl_3_a_new_beat_and_the_end_of_a_lease_are_news() {
        let lease = |beat| Lease { beat, expires: Time::ZERO, ttl: Duration::ZERO };
        let mut annotations = Annotations::default();
        annotations.set_lease(&"a".into(), Some(lease(1)));
        let before = annotations.clone();
        annotations.set_lease(&"a".into(), Some(lease(2)));
        assert_eq!(before.news(&annotations).beats, ["a".into()]);
        assert!(annotations.forget(&"a".into()) && !annotations.forget(&"a".into()));
        assert_eq!(before.news(&annotations).unleased, ["a".into()]);
    }
}
