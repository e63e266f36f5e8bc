//! The views that clients hold: updates sent, forgotten or due again.

use std::sync::Arc;

use imbl::OrdSet;

use super::{FORCED, View, ViewId};
use crate::annotations::Annotations;
use sluice_xds::{ResourceName, Version};

/// Whether a resource of this version must be sent again.
fn is_due(version: Version) -> bool {
    version == FORCED || version == Version::default()
}

impl View {
    /// For two presented views: whether both present the same names and versions.
    pub fn presents_the_same(&self, other: &View) -> bool {
        self.present.versions == other.present.versions
    }

    /// Whether the client holds a resource that must be sent again.
    pub fn is_due_again(&self, name: &ResourceName) -> bool {
        self.version_of(name).is_some_and(is_due)
    }

    /// The state of a client at `self` after an update to `to`. The client keeps names that are unknown in
    /// `to`. Such names are not sent again if they turn out to be equal (DEL-29, RLY-36), and not left behind
    /// if they turn out to be gone (DEL-30, RLY-6). `covers`: whether a name may be in `to`. `deletes`:
    /// whether the client learns of absence; otherwise the client also keeps gone names (SST-6).
    pub fn brought_to(
        &self,
        to: &Arc<View>,
        covers: impl Fn(&ResourceName) -> bool,
        deletes: bool,
    ) -> Arc<View> {
        if to.is_complete() && deletes {
            return to.clone();
        }
        let kept: Vec<_> =
            self.beside(to).filter(|(name, _)| covers(name) && !(deletes && to.knows_gone(name))).collect();
        let is_settled =
            |name: &ResourceName| to.has(name) || to.absent.contains(name) || to.knows_glob(name);
        let absent = self.absent.iter().filter(|name| covers(name) && !is_settled(name));
        let absent: Vec<_> = absent.cloned().collect();
        if kept.is_empty() && absent.is_empty() {
            return to.clone();
        }
        let mut view = (**to).clone();
        for (name, version) in kept {
            view.present.put(name, version);
        }
        view.absent.extend(absent);
        view.id = to.id.derived(("kept", self.id));
        view.again.clone_from(&self.again);
        Arc::new(view)
    }

    /// The version of a client's resource. A resource that is due again has the version that the client was
    /// sent before, or a version that no content has if the version before is not known.
    pub fn known_version_of(&self, name: &ResourceName) -> Option<Version> {
        let version = self.version_of(name)?;
        let again = self.again.as_ref().filter(|_| is_due(version));
        Some(again.and_then(|again| again.version_of(name)).unwrap_or(version))
    }

    /// Whether the content has names that are due again, and the client's versions of these names.
    pub fn is_due_in_part(&self) -> bool {
        self.again.is_some()
    }

    /// The digest with the known versions of the names that are due again.
    pub fn known_digest(&self) -> Version {
        let Some(again) = &self.again else { return self.digest() };
        self.differing(again).fold(self.digest(), |digest, name| {
            match (self.version_of(name), self.known_version_of(name)) {
                (Some(version), Some(known_version)) => digest.minus(version).plus(known_version),
                _ => digest,
            }
        })
    }

    /// Keeps the version of a name that is about to be due again. All clients share the content with these
    /// versions.
    pub fn keep_known(held: &mut Arc<View>, name: &ResourceName) {
        let Some(version) = held.version_of(name).filter(|version| !is_due(*version)) else { return };
        let origin = held.again.is_none().then(|| held.clone());
        match &mut Arc::make_mut(held).again {
            again @ None => *again = origin,
            Some(again) if again.version_of(name) == Some(version) => {}
            Some(again) => Arc::make_mut(again).hold(std::iter::once((name, version)), std::iter::empty()),
        }
    }

    /// The version of a name that is due again is not known any more.
    pub fn unlearn(held: &mut Arc<View>, name: &ResourceName) {
        if !held.again.as_ref().is_some_and(|again| again.has(name)) {
            return;
        }
        let view = Arc::make_mut(held);
        view.id = view.id.derived(("unlearned", name));
        if let Some(again) = &mut view.again {
            Arc::make_mut(again).let_go(name);
        }
    }

    /// As [`View::keep_known`], with the versions of another content of the client.
    pub fn keep_known_of(&mut self, other: &View, names: &[(&ResourceName, Version)]) {
        for (name, version) in names {
            if let Some(known_version) =
                other.known_version_of(name).filter(|known_version| known_version != version)
            {
                let again = Arc::make_mut(self.again.get_or_insert_default());
                again.hold(std::iter::once((*name, known_version)), std::iter::empty());
            }
        }
    }

    /// This view of a wildcard, with a membership that may have more members.
    #[must_use]
    pub fn doubted(&self) -> View {
        let (id, lost) = (self.id.derived("doubted"), self.lost.derived("doubted"));
        View { id, lost, unknown: self.unknown + 1, ..self.clone() }
    }

    /// The client was sent the names of `sent`, and removals of the names of `gone`.
    pub fn hold<'a>(
        &mut self,
        sent: impl Iterator<Item = (&'a ResourceName, Version)>,
        gone: impl Iterator<Item = &'a ResourceName>,
    ) {
        // Resources from other servers may be gone already.
        self.lost = ViewId::default();
        for (name, version) in sent {
            self.absent.remove(name);
            self.present.put(name.clone(), version);
            self.id = self.id.derived(("sent", name, version));
        }
        for name in gone {
            self.present.take(name);
            self.absent.insert(name.clone());
            self.id = self.id.derived(("gone", name));
        }
    }

    /// The client was sent the annotations of these names in `view`.
    pub fn hold_annotations<'a>(&mut self, names: impl Iterator<Item = &'a ResourceName>, view: &View) {
        for name in names {
            self.annotations.copy(name, &view.annotations);
            self.id = self.id.derived(("told", name, view.id));
        }
    }

    /// The client was sent the leases of these names, and the resources, too, if `with_resources`.
    pub fn hold_leases<'a>(
        &mut self,
        names: impl Iterator<Item = &'a ResourceName>,
        view: &View,
        with_resources: bool,
    ) {
        for name in names {
            self.annotations.copy_lease(name, &view.annotations, with_resources);
            self.id = self.id.derived(("leased", name, view.id));
        }
    }

    /// The client was sent this view without the view's errors: the client has the errors of `before` (SST-7)
    /// that no resource has ended since (ERR-3).
    pub fn without_errors_since(&mut self, before: &View) {
        let news = before.annotations.news(&self.annotations);
        if news.errors.is_empty() {
            return;
        }
        self.annotations = before.annotations.with_leases_of(&self.annotations);
        for name in news.over.iter().filter(|name| self.present.versions.contains_key(*name)) {
            self.annotations.set_error(name, None);
        }
        self.id = self.id.derived(("errors of", before.id));
    }

    /// The client must be told of `name` again (DEL-11, SUB-3). A held name stays with an unknown version, so
    /// that the client is also told of a removal before the next sending.
    pub fn forget(held: &mut Arc<View>, name: &ResourceName) {
        View::keep_known(held, name);
        let view = Arc::make_mut(held);
        let was_held = view.present.replace(name, Version::default()).is_some();
        let was_told = view.absent.remove(name).is_some() | view.annotations.forget(name);
        if was_held || was_told {
            view.id = view.id.derived(("forgotten", name));
        }
    }

    /// The client dropped `name`, and has no copy any more.
    pub fn let_go(&mut self, name: &ResourceName) {
        if let Some(again) = self.again.as_mut().filter(|again| again.has(name)) {
            Arc::make_mut(again).let_go(name);
        }
        self.present.take(name);
        self.absent.remove(name);
        self.annotations.forget(name);
        self.id = self.id.derived(("let go", name));
    }

    /// The client must be sent `name` again because of an update of another type (ORD-5). Unlike after
    /// [`View::forget`], `name` is due even if the resource is gone meanwhile.
    pub fn force(held: &mut Arc<View>, name: &ResourceName) {
        View::keep_known(held, name);
        let view = Arc::make_mut(held);
        if view.version_of(name).is_some_and(|version| version != Version::default()) {
            view.present.replace(name, FORCED);
            view.id = view.id.derived(("forced", name));
        }
    }

    /// The client must be told of everything again.
    pub fn forget_all(held: &mut Arc<View>) {
        if held.again.is_some() {
            let names: Vec<_> = held.names().cloned().collect();
            names.iter().for_each(|name| View::keep_known(held, name));
        }
        let again = held.again.clone().or_else(|| Some(held.clone()));
        let view = Arc::make_mut(held);
        view.again = again;
        let names = view.present.versions.keys();
        view.present.versions = names.map(|name| (name.clone(), Version::default())).collect();
        view.present.digest = Version::default();
        view.absent = OrdSet::new();
        view.annotations = Annotations::default();
        view.id = view.id.derived("all forgotten");
    }
}
