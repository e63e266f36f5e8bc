//! Views of lanes: the source's views at another release (WAV-5).

use super::{View, ViewId};
use crate::change::ChangeMarks;
use sluice_xds::{Resource, ResourceName};

impl View {
    /// Whether both views tell a client the same. Shared parts cost nothing.
    pub fn is_same(&self, other: &View) -> bool {
        let sizes =
            |view: &View| (view.digest, view.len(), view.absent.len(), view.globs.len(), view.unknown_len());
        let tell_the_same = || {
            let news = self.annotations.news(&other.annotations);
            news.errors.is_empty()
                && news.over.is_empty()
                && news.beats.is_empty()
                && news.unleased.is_empty()
        };
        sizes(self) == sizes(other)
            && self.present.diff(&other.present).next().is_none()
            && self.absent.diff(&other.absent).next().is_none()
            && self.globs.diff(&other.globs).next().is_none()
            && tell_the_same()
    }

    /// The same content with another mark of losses. Lanes are not in the order of time, so a view that a lane keeps
    /// has a mark of its own: else names that only the newer view has would seem to be in the older one (WAV-10).
    #[must_use]
    pub fn marked(&self, lost: ViewId) -> View {
        View { lost, ..self.clone() }
    }

    /// This view without an answer for a name, or for the membership that the name is in. The id depends on the name and the version.
    #[must_use]
    pub fn withholding(&self, name: &ResourceName, resource: &Resource) -> View {
        let mut view = self.clone();
        view.id = view.id.derived(("withheld", name, resource.version));
        view.take_as(name, resource);
        view.drop_annotations(name);
        if let Some(glob) = name.glob().filter(|glob| view.knows_glob(glob)) {
            view.drop_glob(&glob);
        }
        view.withheld += 1;
        view
    }

    /// The view did not go through the changes of the source so far.
    pub fn forget_changes(&mut self) {
        self.changes = ChangeMarks::default();
    }

    /// The view took content over from the latest change of another view.
    pub fn take_change_of(&mut self, other: &View) {
        if other.changes.latest() > self.changes.latest() {
            self.changes.add(other.changes.latest());
        }
    }
}
