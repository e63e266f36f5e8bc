//! Views: the names of a set, or of a wildcard, with their versions at one moment.
//!
//! A view maps names to content versions. The resource bodies are in the
//! [`Snapshot`](super::snapshot::Snapshot). A client's state is the last view that the client received: one
//! pointer, shared by all clients in the same state, whatever the size of the set. An update is the
//! difference between two views. The same two views give the same answer to every client, so the answer is
//! encoded once.

mod held;

use std::hash::{Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use super::Time;
use super::annotations::{Annotations, Lease};
use super::change::ChangeMarks;
use super::collection::HashSeed;
use super::commons::{Commons, ContentKey, MapUse, SHARED_MIN, Shared};
use super::filling::{Filling, Slack};
use crate::collection::CollectionKind;
use sluice_xds::{Resource, ResourceName, Status, Version};

/// Identifies the content of a view inside this process. Two views with the same id are equal. Aligned to 8
/// bytes, as half of the number is, and as a [`Version`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(Rust, packed(8))]
pub struct ViewId(u128);

impl ViewId {
    /// The id of the `count`-th view of a source.
    pub fn fresh(source: u64, count: u64) -> ViewId {
        ViewId(u128::from(source) << 64 | u128::from(count))
    }

    /// The source that made the view. Valid only for ids that are not derived.
    pub fn source(self) -> u64 {
        (self.0 >> 64) as u64
    }

    /// The number of the view among those of its source. Derived ids have any number.
    pub fn count(self) -> usize {
        self.0 as usize
    }

    /// The id of a view that is derived from this view by a change. The same derivation gives the same id, so
    /// clients with the same forced updates still share their answer.
    #[must_use]
    pub fn derived(self, change: impl Hash) -> ViewId {
        let half = |number: u8| {
            let mut hasher = std::hash::DefaultHasher::new();
            (number, self.0).hash(&mut hasher);
            change.hash(&mut hasher);
            u128::from(hasher.finish())
        };
        ViewId(half(0) << 64 | half(1))
    }
}

/// Stands for content that the client has, and must be sent again. No content has this version.
pub const FORCED: Version = Version(u128::MAX);

/// Stands for content that the client may have. No content has this version. Where the resource has departed,
/// the client is told so, and is not sent the last bytes before.
pub const PERHAPS: Version = Version(u128::MAX - 1);

/// Stands for content that the client has in some version, and keeps while the removal waits. No content has
/// this version, and nothing is ever sent for it.
pub const STAYS: Version = Version(u128::MAX - 2);

/// Names that exist, with the version of their content.
#[derive(Clone, Debug, Default)]
struct Present {
    versions: OrdMap<ResourceName, Version>,
    /// The sum of the versions (RLY-31).
    digest: Version,
    /// The size of the resources, in bytes. Only the source's own changes count, as for the slack.
    bytes: usize,
    slack: Slack,
}

impl Present {
    /// Puts a name in a version. Returns the version before.
    fn put(&mut self, name: ResourceName, version: Version) -> Option<Version> {
        let before = self.versions.insert(name, version);
        self.digest = self.digest.minus(before.unwrap_or_default()).plus(version);
        before
    }

    /// Changes the version of a name, if the name is present. Returns the version before.
    fn replace(&mut self, name: &ResourceName, version: Version) -> Option<Version> {
        let before = std::mem::replace(self.versions.get_mut(name)?, version);
        self.digest = self.digest.minus(before).plus(version);
        Some(before)
    }

    fn take(&mut self, name: &ResourceName) -> Option<Version> {
        let version = self.versions.remove(name)?;
        self.digest = self.digest.minus(version);
        Some(version)
    }
}

/// Names and their states. Cloning is cheap; changing a few names is O(log n).
#[derive(Clone, Debug, Default)]
pub struct View {
    id: ViewId,
    /// The names that exist.
    present: Present,
    /// The names known not to exist (RLY-2), and the globs known to be empty (NAM-16). Empty for a wildcard:
    /// its membership suffices.
    absent: OrdSet<ResourceName>,
    /// The globs with complete membership.
    globs: OrdSet<ResourceName>,
    /// The number of names in neither state. For a wildcard, 1 until its membership is complete (RLY-5).
    unknown: usize,
    /// The names withheld from a client: they count as unknown.
    withheld: usize,
    /// The time of the last change of content.
    changed_at: Time,
    /// The source's changes that brought content of this view.
    changes: ChangeMarks,
    /// The mark of the last departure from the collection. If two views of a collection have the same mark,
    /// the later view has every name of the earlier view.
    lost: ViewId,
    /// Errors and leases (ERR-1, TTL-1).
    annotations: Annotations,
    /// For a client's content whose names are due again: the content with the versions that the client has of
    /// these names.
    again: Option<Arc<View>>,
}

impl View {
    /// A view of `unknown` names of unknown state.
    pub fn unknown(unknown: usize) -> View {
        View { unknown, ..View::default() }
    }

    /// The view that a client presents (DEL-29, DEL-30). Versions from other servers are held as
    /// [`Version::default`], which no content has (RLY-32).
    pub fn presented(versions: impl IntoIterator<Item = (ResourceName, Version)>, seed: HashSeed) -> View {
        let versions: OrdMap<ResourceName, Version> = versions.into_iter().collect();
        if versions.is_empty() {
            return View::default();
        }
        let start = ViewId(seed.0).derived("presented");
        let id = versions.iter().fold(start, |id, (name, version)| id.derived((name, version.0)));
        let digest = versions.values().fold(Version::default(), |digest, version| digest.plus(*version));
        View { id, present: Present { versions, digest, ..Present::default() }, ..View::default() }
    }

    pub fn id(&self) -> ViewId {
        self.id
    }

    pub fn version_of(&self, name: &ResourceName) -> Option<Version> {
        self.present.versions.get(name).copied()
    }

    pub fn has(&self, name: &ResourceName) -> bool {
        self.present.versions.contains_key(name)
    }

    pub fn knows_absent(&self, name: &ResourceName) -> bool {
        self.absent.contains(name)
    }

    /// Whether an absent name is known to be gone, because the name does not exist, or because the membership
    /// of its glob is complete.
    pub fn knows_gone(&self, name: &ResourceName) -> bool {
        self.absent.contains(name)
            || (!self.globs.is_empty() && name.glob().is_some_and(|glob| self.globs.contains(&glob)))
    }

    /// Whether a name that this view of a collection lacks is gone by the known membership: of the wildcard
    /// (RLY-5), or of the name's glob (NAM-16). Sets of names have no membership: their names are gone if
    /// known to be absent, and never by the loss of a name alone (RLY-2).
    pub fn excludes(&self, kind: CollectionKind, name: &ResourceName) -> bool {
        match kind {
            CollectionKind::Wildcard => self.is_complete(),
            CollectionKind::Globs => self.knows_gone(name),
            CollectionKind::Names => false,
        }
    }

    /// Whether a name that this view of a collection lacks is gone, by the membership or by its absence.
    pub fn rules_out(&self, kind: CollectionKind, name: &ResourceName) -> bool {
        self.excludes(kind, name) || self.knows_gone(name)
    }

    /// Whether the membership of the glob is complete.
    pub fn knows_glob(&self, glob: &ResourceName) -> bool {
        self.globs.contains(glob)
    }

    pub fn globs_len(&self) -> usize {
        self.globs.len()
    }

    pub fn names(&self) -> impl Iterator<Item = &ResourceName> {
        self.present.versions.keys()
    }

    /// The first present name that follows `after`.
    pub fn next_name(&self, after: Option<&ResourceName>) -> Option<&ResourceName> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.present.versions.range::<_, ResourceName>((from, Bound::Unbounded)).next().map(|(name, _)| name)
    }

    pub fn len(&self) -> usize {
        self.present.versions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.present.versions.is_empty()
    }

    /// The names known not to exist, and the globs known to be empty.
    pub fn absent_names(&self) -> impl Iterator<Item = &ResourceName> {
        self.absent.iter()
    }

    pub fn absent_len(&self) -> usize {
        self.absent.len()
    }

    /// No name is UNKNOWN, and the membership of a wildcard is known (RLY-5).
    pub fn is_complete(&self) -> bool {
        self.unknown_len() == 0
    }

    /// Whether names are unknown to the source, too.
    pub fn lacks_an_answer(&self) -> bool {
        self.unknown > 0
    }

    pub fn unknown_len(&self) -> usize {
        self.unknown + self.withheld
    }

    pub fn digest(&self) -> Version {
        self.present.digest
    }

    /// The names that are present in only one of the two views, or have different content. Shared parts cost
    /// nothing.
    pub fn differing<'a>(&'a self, other: &'a View) -> impl Iterator<Item = &'a ResourceName> {
        use imbl::ordmap::DiffItem;
        self.present.versions.diff(&other.present.versions).map(|item| match item {
            DiffItem::Add(name, _) | DiffItem::Remove(name, _) | DiffItem::Update { new: (name, _), .. } => {
                name
            }
        })
    }

    pub fn bytes(&self) -> usize {
        self.present.bytes
    }

    pub fn changed_at(&self) -> Time {
        self.changed_at
    }

    /// The changes of the source that this view went through.
    pub fn changes(&self) -> ChangeMarks {
        self.changes
    }

    /// Whether a client at `self` may have a name that is gone from `to`. Quick, and errs on the side of
    /// true.
    pub fn may_lose(&self, to: &View) -> bool {
        self.lost != to.lost && !self.present.versions.is_empty()
    }

    /// Whether `to` has new or changed content. Departures do not count.
    pub fn has_news_in(&self, to: &View) -> bool {
        let mut items = self.present.versions.diff(&to.present.versions);
        items.any(|item| !matches!(item, imbl::ordmap::DiffItem::Remove(..)))
    }

    /// The names that must be sent again to a client at `self` (see [`View::force`]), although `to` lacks the
    /// names.
    pub fn forced_beside(&self, to: &View) -> impl Iterator<Item = ResourceName> {
        self.beside(to).filter(|(_, version)| *version == FORCED).map(|(name, _)| name)
    }

    /// The names that `other` lacks, with their versions.
    pub fn beside(&self, other: &View) -> impl Iterator<Item = (ResourceName, Version)> {
        // The comparison of a new client's empty content would visit all of the other names.
        let differences =
            (!self.present.versions.is_empty()).then(|| self.present.versions.diff(&other.present.versions));
        differences.into_iter().flatten().filter_map(|item| match item {
            imbl::ordmap::DiffItem::Remove(name, version) => Some((name.clone(), *version)),
            _ => None,
        })
    }

    /// This view plus departed names that a client keeps, with the `annotations` that the client was sent.
    /// The id depends on the names and annotations.
    #[must_use]
    pub fn keeping(
        &self,
        kept: impl Iterator<Item = (ResourceName, Version)>,
        annotations: &Annotations,
    ) -> View {
        let mut view = self.clone();
        for (name, version) in kept {
            view.id = view.id.derived(("kept", &name, version));
            if !(view.annotations.is_empty() && annotations.is_empty()) {
                let lease = annotations.lease(&name).map(|lease| lease.beat);
                let error = annotations.error(&name).map(ToString::to_string);
                view.id = view.id.derived(("told", lease, error));
                view.annotations.copy(&name, annotations);
            }
            view.absent.remove(&name);
            // A glob with a kept member is not empty for the client (NAM-16).
            if let Some(glob) = name.glob().filter(|_| !view.globs.is_empty()) {
                view.absent.remove(&glob);
            }
            view.present.put(name, version);
        }
        view
    }

    /// This view plus missing names that another server supplied (RLY-42). The id depends on the names and
    /// versions.
    #[must_use]
    pub fn with_stand_ins(&self, stand_ins: &[(ResourceName, Arc<Resource>)]) -> View {
        let mut view = self.clone();
        for (name, resource) in stand_ins {
            view.id = view.id.derived(("stands in", name, resource.version));
            // The mark of the collection does not change when a stand-in leaves (RLY-51).
            view.lost = view.lost.derived(("stands in", name));
            view.put_as(name, None, resource);
            // Beside a resource an error has no effect (ERR-2), so its end is no change either (RLY-43).
            view.drop_annotations(name);
        }
        view
    }

    /// This view for a client without knowledge of the errors of these names.
    #[must_use]
    pub fn without_errors_of(&self, names: &[&ResourceName]) -> View {
        let mut view = self.clone();
        for name in names {
            view.id = view.id.derived(("error untold", name));
            view.annotations.set_error(name, None);
        }
        view
    }

    pub fn annotations(&self) -> &Annotations {
        &self.annotations
    }

    // === lanes: the source's views at another release (WAV-5) ===

    /// Whether both views tell a client the same. Shared parts cost nothing.
    pub fn is_same(&self, other: &View) -> bool {
        let sizes = |view: &View| {
            (view.digest(), view.len(), view.absent.len(), view.globs.len(), view.unknown_len())
        };
        let tell_the_same = || {
            let news = self.annotations.news(&other.annotations);
            news.errors.is_empty()
                && news.over.is_empty()
                && news.beats.is_empty()
                && news.unleased.is_empty()
        };
        sizes(self) == sizes(other)
            && self.present.versions.diff(&other.present.versions).next().is_none()
            && self.absent.diff(&other.absent).next().is_none()
            && self.globs.diff(&other.globs).next().is_none()
            && tell_the_same()
    }

    /// The same content with another mark of losses. Lanes are not in the order of time, so a view that a
    /// lane keeps needs a mark of its own: with the mark of the newer view, the older view would seem to have
    /// every name of the newer one (WAV-10).
    #[must_use]
    pub fn marked(&self, lost: ViewId) -> View {
        View { lost, ..self.clone() }
    }

    /// This view without an answer for a name, or for the membership that the name is in. The id depends on
    /// the name and the version.
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

    // === changes, made by the source ===

    /// A name with the state unknown, absent or `old` now has `new`.
    pub fn put(&mut self, old: Option<&Resource>, new: &Resource) {
        self.put_as(&new.name, old, new);
    }

    /// As [`View::put`], for a name that may be an alias of the resource (ALI-1).
    pub fn put_as(&mut self, name: &ResourceName, old: Option<&Resource>, new: &Resource) {
        match old {
            Some(old) => self.present.bytes -= old.size(),
            None if self.absent.remove(name).is_some() => {}
            None => self.unknown = self.unknown.saturating_sub(1),
        }
        self.present.bytes += new.size();
        if self.present.put(name.clone(), new.version).is_none() {
            self.present.slack.spend(1);
        }
    }

    /// Names of unknown state, sorted, now have these resources.
    pub fn put_sorted(&mut self, present: Vec<(ResourceName, Arc<Resource>)>) {
        let is_first = self.is_empty();
        for (name, resource) in Filling::Full.order(present) {
            self.put_as(&name, None, &resource);
        }
        if is_first {
            self.present.slack = Filling::Full.slack(self.len());
        }
    }

    /// A named resource is known not to exist.
    pub fn put_absent(&mut self, name: &ResourceName, old: Option<&Resource>) {
        match old {
            Some(old) => self.take_as(name, old),
            None if self.absent.contains(name) => {}
            None => self.unknown = self.unknown.saturating_sub(1),
        }
        self.absent.insert(name.clone());
    }

    /// A member leaves the wildcard, or a name leaves the set.
    pub fn take(&mut self, old: &Resource) {
        self.take_as(&old.name, old);
    }

    /// As [`View::take`], for a name that may be an alias of the resource.
    pub fn take_as(&mut self, name: &ResourceName, old: &Resource) {
        if self.present.take(name).is_some() {
            self.present.slack.spend(1);
            self.present.bytes -= old.size();
        }
    }

    /// A name of unknown state joins the set.
    pub fn add_unknown(&mut self) {
        self.unknown += 1;
    }

    /// A name of unknown state leaves the set.
    pub fn drop_unknown(&mut self) {
        self.unknown = self.unknown.saturating_sub(1);
    }

    /// A name known to be absent leaves the set.
    pub fn drop_absent(&mut self, name: &ResourceName) {
        self.absent.remove(name);
    }

    /// The annotations of a name changed, or the name joined the set with annotations.
    pub fn annotate(&mut self, name: &ResourceName, from: &Annotations) {
        self.annotations.copy(name, from);
    }

    /// Sets or ends an error. Returns whether the error changed.
    pub fn set_error(&mut self, name: &ResourceName, error: Option<&Arc<Status>>) -> bool {
        self.annotations.set_error(name, error)
    }

    /// Sets or ends a lease. Returns whether the lease changed.
    pub fn set_lease(&mut self, name: &ResourceName, lease: Option<Lease>) -> bool {
        self.annotations.set_lease(name, lease)
    }

    /// A name leaves the set, with its annotations.
    pub fn drop_annotations(&mut self, name: &ResourceName) {
        self.annotations.forget(name);
    }

    /// A wildcard's membership is now known.
    pub fn complete(&mut self) {
        self.unknown = 0;
    }

    /// The unknown membership of a glob is now complete.
    pub fn resolve_glob(&mut self, glob: &ResourceName) {
        if self.globs.insert(glob.clone()).is_none() {
            self.unknown = self.unknown.saturating_sub(1);
        }
    }

    /// Records whether a glob with complete membership has no member (NAM-16).
    pub fn set_glob_empty(&mut self, glob: &ResourceName, is_empty: bool) {
        if is_empty {
            self.absent.insert(glob.clone());
        } else {
            self.absent.remove(glob);
        }
    }

    /// A glob leaves the set; its members have left before.
    pub fn drop_glob(&mut self, glob: &ResourceName) {
        self.absent.remove(glob);
        if self.globs.remove(glob).is_none() {
            self.drop_unknown();
        }
    }

    /// Whether so many names came and went since the nodes were filled that many places may be empty.
    pub fn is_loose(&self) -> bool {
        self.present.slack.is_spent(self.len())
    }

    /// Stores the names in well-filled nodes.
    pub(crate) fn refill(&mut self, filling: Filling) {
        (self.present.versions, self.present.slack) = refilled(&self.present.versions, filling);
    }

    /// The identity of a completely known content that is worth sharing.
    pub(crate) fn content_key(&self) -> Option<ContentKey> {
        let is_worth_it = self.is_complete() && self.len() >= SHARED_MIN;
        is_worth_it.then(|| ContentKey { digest: self.digest(), len: self.len() })
    }

    #[cfg(test)]
    pub(crate) fn shares_versions(&self, other: &View) -> bool {
        self.present.versions.ptr_eq(&other.present.versions)
    }

    /// Takes the equal versions of another source's view over. Returns whether the versions have other nodes
    /// now.
    pub(crate) fn share(
        view: &mut Arc<View>,
        content: ContentKey,
        shared: &mut Shared,
        commons: &dyn Commons,
    ) -> bool {
        let Present { versions, mut slack, .. } = view.present.clone();
        let other = shared.share(&versions, content.key(MapUse::Versions), commons, |versions| {
            let filled = slack.is_spent(versions.len()).then(|| refilled(versions, Filling::Full));
            filled.map(|(versions, full)| {
                slack = full;
                versions
            })
        });
        let is_other = other.is_some();
        if let Some(versions) = other {
            let present = &mut Arc::make_mut(view).present;
            (present.versions, present.slack) = (versions, slack);
        }
        is_other
    }

    pub fn stamp(&mut self, id: ViewId, now: Time, lost: ViewId) {
        self.id = id;
        self.changed_at = now;
        self.lost = lost;
    }

    /// The content changed with this change of the source.
    pub fn note_change(&mut self, number: u64) {
        self.changes.add(number);
    }
}

/// The names in well-filled nodes.
fn refilled(
    versions: &OrdMap<ResourceName, Version>,
    filling: Filling,
) -> (OrdMap<ResourceName, Version>, Slack) {
    let present = versions.iter().map(|(name, version)| (name.clone(), *version)).collect();
    (filling.order(present).collect(), filling.slack(versions.len()))
}

/// The difference in content between two views.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Names that are new or have another version, sorted.
    pub put: Vec<ResourceName>,
    /// Names whose removal a client at `from` must learn, sorted.
    pub gone: Vec<ResourceName>,
}

impl Difference {
    pub fn is_empty(&self) -> bool {
        self.put.is_empty() && self.gone.is_empty()
    }
}

/// The changes from one view to another.
pub fn difference(from: &View, to: &View, kind: CollectionKind) -> Difference {
    let mut difference = Difference::default();
    for item in from.present.versions.diff(&to.present.versions) {
        match item {
            imbl::ordmap::DiffItem::Add(name, _) | imbl::ordmap::DiffItem::Update { new: (name, _), .. } => {
                difference.put.push(name.clone());
            }
            imbl::ordmap::DiffItem::Remove(name, _) => {
                if to.excludes(kind, name) {
                    difference.gone.push(name.clone());
                }
            }
        }
    }
    if kind != CollectionKind::Wildcard {
        for item in from.absent.diff(&to.absent) {
            if let imbl::ordset::DiffItem::Add(name) = item {
                difference.gone.push(name.clone());
            }
        }
    }
    difference
}
#[cfg(test)]
mod tests;
