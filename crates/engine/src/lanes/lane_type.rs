//! The content of one type in a lane, and its names. A lane follows the source but for the changes that its
//! rule holds.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::elder::{TypeElder, first_wildcard, held_or_elders};
use super::last_bytes::LastBytes;
use super::rule::{HoldRule, Stamps};
use super::stated::held_name;
use crate::annotations::Annotations;
use crate::cache::aliased::Aliased;
use crate::cache::departed::KeptNames;
use crate::cache::slots::WatchedSet;
use crate::cache::{CachedBodies, Known, UNWATCHED_BYTES, members};
use crate::collection::{CollectionKind, NameSet};
use crate::snapshot::{GlobsSnapshot, NamesSnapshot, TypeSnapshot, WildcardSnapshot};
use crate::view::View;
use sluice_xds::{Resource, ResourceName};

/// The bound for the forgotten names of one type of a lane. Beyond the bound the oldest names go (WAV-5).
const FORGOTTEN_BYTES_MAX: usize = 64 << 20;

/// The content of a type in a lane. What does not differ is the source's own, down to the pointers.
#[derive(Clone, Debug, Default)]
pub(super) struct LaneType {
    /// Without last bytes.
    pub content: TypeSnapshot,
    /// The names whose known state differs from the source's known state.
    pub names: BTreeSet<ResourceName>,
    /// The known names that the source does not know any more, or not again yet, in the order in which the
    /// source forgot them (WAV-5).
    pub forgotten: KeptNames<()>,
    /// The members that differ, of globs that are complete in both, or not complete in the lane.
    pub globs: BTreeSet<ResourceName>,
    /// Some globs are complete here, and not at the source.
    pub keeps_globs: bool,
    /// The members of the wildcard that differ, if it is complete in both, or not complete in the lane.
    pub wildcard: BTreeSet<ResourceName>,
    /// The wildcard is complete here, and not at the source.
    pub keeps_wildcard: bool,
    /// Bytes of resources that clients may have from other lanes.
    pub last_bytes: LastBytes,
}

/// The source's change of a type, as a lane sees it.
pub(super) struct TypeUpdate<'a> {
    pub before: &'a TypeSnapshot,
    pub live: &'a TypeSnapshot,
    pub rule: &'a HoldRule,
    /// The other lane's content after the update. Equal views are shared.
    pub peer: Option<&'a TypeSnapshot>,
    /// The content of another unit, for first answers.
    pub elder: Option<TypeElder<'a>>,
}

impl LaneType {
    pub fn new(content: TypeSnapshot) -> LaneType {
        LaneType { content, ..LaneType::default() }
    }

    /// Whether known content differs from the source's known content.
    pub fn differs(&self) -> bool {
        !(self.names.is_empty() && self.globs.is_empty() && self.wildcard.is_empty())
    }

    /// Whether the lane has nothing that the source lacks or has otherwise.
    pub fn is_equal(&self) -> bool {
        !self.differs() && self.forgotten.is_empty() && !self.keeps_globs && !self.keeps_wildcard
    }

    /// Whether somebody asks the source for what the lane knows, and the source does not know again yet.
    pub fn is_awaited(&self, live: &TypeSnapshot) -> bool {
        let is_unknown = |name: &ResourceName| {
            live.names.entries.get(name).is_some_and(|state| matches!(state, Known::Unknown))
        };
        let complete = &self.content.globs.complete;
        let is_unsettled =
            |glob: &ResourceName| complete.contains(glob) && !live.globs.complete.contains(glob);
        self.keeps_wildcard && live.wildcard.view.is_some()
            || self.keeps_globs && live.globs.sets.values().any(|set| set.names.iter().any(is_unsettled))
            || self.forgotten.names().any(is_unknown)
    }

    /// The names that differ from the source's in some way.
    pub fn differing(&self, kind: CollectionKind, live: Option<&TypeSnapshot>) -> BTreeSet<ResourceName> {
        let members = match kind {
            CollectionKind::Names => {
                return self.names.iter().chain(self.forgotten.names()).cloned().collect();
            }
            CollectionKind::Wildcard if !self.keeps_wildcard => return self.wildcard.clone(),
            CollectionKind::Globs if !self.keeps_globs => return self.globs.clone(),
            CollectionKind::Wildcard => &self.content.wildcard.members,
            CollectionKind::Globs => &self.content.globs.members,
        };
        let live_members = live.map(|live| match kind {
            CollectionKind::Globs => live.globs.members.keys(),
            _ => live.wildcard.members.keys(),
        });
        members.keys().chain(live_members.into_iter().flatten()).cloned().collect()
    }

    pub fn follow(&mut self, update: &TypeUpdate<'_>, stamps: &mut Stamps) {
        let changed: Vec<_> = changed_names(&update.before.names, &update.live.names);
        self.follow_by(&changed, update, stamps);
    }

    /// `changed`: all names whose state may differ from the source's in another way than before.
    pub fn follow_by(&mut self, changed: &[ResourceName], update: &TypeUpdate<'_>, stamps: &mut Stamps) {
        self.content.evicted = update.live.evicted;
        self.follow_names(changed, update, stamps);
        self.follow_wildcard(update, stamps);
        self.follow_globs(update, stamps);
    }

    /// Brings the names to the source's, but for those that the lane holds.
    fn follow_names(&mut self, changed: &[ResourceName], update: &TypeUpdate<'_>, stamps: &mut Stamps) {
        let mut followed = Vec::new();
        for name in changed {
            let previous = self.content.names.entries.get(name).cloned().unwrap_or_default();
            let live = update.live.names.entries.get(name);
            if self.hold_new_name(name, &previous, live, update) {
                followed.push((name, previous));
                continue;
            }
            match holds(name, &previous, live.unwrap_or(&Known::Unknown), update.rule) {
                true => self.hold_name(name, &previous, live),
                false => {
                    self.take_name(name, &update.live.names);
                    followed.push((name, previous));
                }
            }
        }
        if self.names.is_empty() && self.forgotten.is_empty() {
            self.content.names = update.live.names.clone();
            return;
        }
        let annotated = self.annotate_names(&update.live.names.annotations);
        for item in update.before.names.sets.diff(&update.live.names.sets) {
            use imbl::ordmap::DiffItem;
            let (id, set) = match item {
                DiffItem::Remove(id, _) => {
                    self.content.names.sets.remove(id);
                    continue;
                }
                DiffItem::Add(id, set) | DiffItem::Update { new: (id, set), .. } => (id, set),
            };
            let view = match self.content.names.sets.get(id) {
                None => self.view_of_new(set, update, stamps),
                Some(previous) => {
                    let previous = previous.view.clone();
                    let view = self.changed_view(previous.clone(), set, &followed, &annotated);
                    update.choose(
                        view,
                        &previous,
                        |types| types.names.sets.get(id).map(|set| &set.view),
                        stamps,
                    )
                }
            };
            self.content.names.sets.insert(*id, WatchedSet { names: set.names.clone(), view });
        }
        let is_unwatched = |name: &ResourceName| !update.live.names.entries.contains_key(name);
        for name in self.forgotten.evict(FORGOTTEN_BYTES_MAX, is_unwatched) {
            self.content.names.entries.remove(&name);
            self.content.names.aliases.remove(&name);
            self.content.names.annotations.forget(&name);
        }
    }

    /// Holds the lane's state of a name that nobody asked for by the name before, if another way to ask tells
    /// it (WAV-7), or that of another unit (WAV-22).
    fn hold_new_name(
        &mut self,
        name: &ResourceName,
        previous: &Known,
        live: Option<&Known>,
        update: &TypeUpdate<'_>,
    ) -> bool {
        let is_first = matches!(update.rule, HoldRule::Gated) && matches!(previous, Known::Unknown);
        let new = live.filter(|_| is_first);
        let (content, elder, kind) = (&self.content, update.elder.as_ref(), CollectionKind::Names);
        let held = new.and_then(|new| match new {
            Known::Present(new) => held_or_elders(content, elder, kind, name, new),
            _ => held_name(content, update.live, name, new)
                .or_else(|| elder?.held(kind, name, None).filter(|_| *new != Known::Unknown)),
        });
        let Some(held) = held else { return false };
        let names = &mut self.content.names;
        if let Some(resource) = held.resource().filter(|resource| resource.name != *name) {
            names.aliases.insert(name.clone(), Arc::new(Aliased::new(resource)));
        }
        names.entries.insert(name.clone(), held);
        self.names.insert(name.clone());
        true
    }

    fn hold_name(&mut self, name: &ResourceName, held: &Known, live: Option<&Known>) {
        match live {
            None | Some(Known::Unknown) => {
                self.names.remove(name);
                forget(&mut self.forgotten, name, held);
            }
            Some(_) => {
                self.forgotten.remove(name);
                self.names.insert(name.clone());
            }
        }
    }

    fn take_name(&mut self, name: &ResourceName, live: &NamesSnapshot) {
        self.names.remove(name);
        self.forgotten.remove(name);
        let names = &mut self.content.names;
        match live.entries.get(name) {
            Some(state) => drop(names.entries.insert(name.clone(), state.clone())),
            None => drop(names.entries.remove(name)),
        }
        match live.aliases.get(name) {
            Some(aliased) => drop(names.aliases.insert(name.clone(), aliased.clone())),
            None => drop(names.aliases.remove(name)),
        }
    }

    /// Whether the lane has a name otherwise than the source.
    fn holds_name(&self, name: &ResourceName) -> bool {
        self.names.contains(name) || self.forgotten.contains(name)
    }

    /// Takes errors and leases over, but for held names: an error is about the state that it stands beside.
    /// Returns the names.
    fn annotate_names(&mut self, live: &Annotations) -> Vec<ResourceName> {
        let mut annotated = names_of_news(&self.content.names.annotations, live);
        annotated.retain(|name| !self.holds_name(name));
        for name in &annotated {
            self.content.names.annotations.copy(name, live);
        }
        annotated
    }

    fn changed_view(
        &self,
        mut view: Arc<View>,
        set: &WatchedSet,
        followed: &[(&ResourceName, Known)],
        annotated: &[ResourceName],
    ) -> Arc<View> {
        let names = &self.content.names;
        for (name, old) in followed.iter().filter(|(name, _)| set.names.contains(name)) {
            let new = names.entries.get(*name).unwrap_or(&Known::Unknown);
            let changed = Arc::make_mut(&mut view);
            change_state(changed, name, old, new);
            changed.take_change_of(&set.view);
        }
        for name in annotated.iter().filter(|name| set.names.contains(name)) {
            Arc::make_mut(&mut view).annotate(name, &names.annotations);
        }
        view
    }

    /// The view of a set that the lane does not have yet: the source's view, with the lane's own names.
    fn view_of_new(&self, set: &WatchedSet, update: &TypeUpdate<'_>, stamps: &mut Stamps) -> Arc<View> {
        let names = &self.content.names;
        let held: Vec<_> = match self.names.len() + self.forgotten.len() < set.names.len() {
            true => {
                let held = self.names.iter().chain(self.forgotten.names());
                held.filter(|name| set.names.contains(name)).collect()
            }
            false => set.names.iter().filter(|name| self.holds_name(name)).collect(),
        };
        if held.is_empty() {
            return set.view.clone();
        }
        let mut view = (*set.view).clone();
        for name in held {
            let [old, new] = [&update.live.names.entries, &names.entries].map(|states| states.get(name));
            let (old, new) = (old.unwrap_or(&Known::Unknown), new.unwrap_or(&Known::Unknown));
            change_state(&mut view, name, old, new);
            view.annotate(name, &names.annotations);
        }
        view.forget_changes();
        let id = set.names.id();
        update.choose(
            Arc::new(view),
            &Arc::default(),
            |types| types.names.sets.get(&id).map(|set| &set.view),
            stamps,
        )
    }

    // === The wildcard and the globs. A membership is the lane's own from its first completeness on. Before,
    // the lane has the source's members, in the lane's own content where another way to ask tells it (WAV-7)
    // ===

    fn follow_wildcard(&mut self, update: &TypeUpdate<'_>, stamps: &mut Stamps) {
        let (before, live) = (&update.before.wildcard, &update.live.wildcard);
        let previous = match &self.content.wildcard.view {
            Some(view) if view.is_complete() => view.clone(),
            _ => return self.follow_first_wildcard(update, stamps),
        };
        let Some(live_view) = live.view.as_ref().filter(|_| live.is_whole()) else {
            self.keeps_wildcard = true;
            self.wildcard.clear();
            let view = choose_view(previous.clone(), &previous, before.view.as_ref(), None, None, stamps);
            self.content.wildcard.view = Some(view);
            return;
        };
        let is_new = std::mem::take(&mut self.keeps_wildcard) || !before.is_whole();
        let members = if is_new { &self.content.wildcard.members } else { &before.members };
        let changed = changed_members(members, &live.members);
        let mut view = previous.clone();
        for name in &changed {
            let is_held = !self.take_member(name, &live.members, update, &mut view);
            match is_held {
                true => drop(self.wildcard.insert(name.clone())),
                false => drop(self.wildcard.remove(name)),
            }
        }
        if self.wildcard.is_empty() {
            return self.take_wildcard(live);
        }
        for name in names_of_news(view.annotations(), live_view.annotations()) {
            if !self.wildcard.contains(&name) {
                Arc::make_mut(&mut view).annotate(&name, live_view.annotations());
            }
        }
        let view = update.choose(view, &previous, |types| types.wildcard.view.as_ref(), stamps);
        self.content.wildcard.view = Some(view);
    }

    /// Takes a wildcard that the lane does not know as a whole.
    fn follow_first_wildcard(&mut self, update: &TypeUpdate<'_>, stamps: &mut Stamps) {
        let (live, previous) = (&update.live.wildcard, self.content.wildcard.view.take().unwrap_or_default());
        let (first, differing) = match update.rule {
            HoldRule::Gated => first_wildcard(&self.content, live, update.elder.as_ref()),
            HoldRule::Endpoints(_) => Default::default(),
        };
        self.take_wildcard(live);
        if differing.is_empty() {
            return;
        }
        let view = first.view.clone().unwrap_or_default();
        let view = update.choose(view, &previous, |types| types.wildcard.view.as_ref(), stamps);
        self.content.wildcard = WildcardSnapshot { view: Some(view), ..first };
        self.wildcard = differing;
    }

    fn take_wildcard(&mut self, live: &WildcardSnapshot) {
        self.wildcard.clear();
        self.keeps_wildcard = false;
        self.content.wildcard = live.clone();
    }

    /// Takes the source's member under a name, or returns false for a name that the lane holds.
    fn take_member(
        &mut self,
        name: &ResourceName,
        live: &CachedBodies,
        update: &TypeUpdate<'_>,
        view: &mut Arc<View>,
    ) -> bool {
        let held = self.content.wildcard.members.get(name).map(|cached| cached.resource.clone());
        let new = live.get(name);
        if holds_member(name, held.as_ref(), new.map(|cached| &cached.resource), update) {
            return false;
        }
        let view = Arc::make_mut(view);
        match new {
            Some(cached) => {
                members::put(view, held.as_deref(), &cached.resource);
                self.content.wildcard.members.insert(name.clone(), cached.clone());
            }
            None => {
                held.iter().for_each(|held| view.take(held));
                self.content.wildcard.members.remove(name);
            }
        }
        if let Some(live) = &update.live.wildcard.view {
            view.take_change_of(live);
        }
        true
    }

    fn follow_globs(&mut self, update: &TypeUpdate<'_>, stamps: &mut Stamps) {
        let live = &update.live.globs;
        for name in self.changed_in_globs(&update.before.globs, live) {
            let Some(glob) = name.glob() else { continue };
            let (held, new) = (self.content.globs.members.get(&name), live.members.get(&name));
            let is_complete = self.content.globs.complete.contains(&glob);
            if is_complete && !live.complete.contains(&glob) {
                continue;
            }
            let [held, resource] = [held, new].map(|cached| cached.map(|cached| &cached.resource));
            if is_complete && holds_member(&name, held, resource, update) {
                self.globs.insert(name);
                continue;
            }
            let is_gated = matches!(update.rule, HoldRule::Gated) && !is_complete;
            let stated = new.filter(|_| is_gated).and_then(|new| {
                held_or_elders(&self.content, update.elder.as_ref(), CollectionKind::Globs, &name, new)
            });
            match stated {
                Some(_) => drop(self.globs.insert(name.clone())),
                None => drop(self.globs.remove(&name)),
            }
            match stated.as_ref().map_or(new, Known::cached) {
                Some(new) => drop(self.content.globs.members.insert(name, new.clone())),
                None => drop(self.content.globs.members.remove(&name)),
            }
        }
        self.keep_lost_members(update);
        let complete = &self.content.globs.complete;
        self.globs.retain(|name| {
            name.glob().is_some_and(|glob| live.complete.contains(&glob) || !complete.contains(&glob))
        });
        self.content.globs.complete.extend(live.complete.iter().cloned());
        self.keeps_globs = self.content.globs.complete.len() != live.complete.len();
        if self.globs.is_empty() && !self.keeps_globs {
            self.content.globs = live.clone();
            return;
        }
        self.annotate_globs(live);
        self.follow_sets_of_globs(update, stamps);
    }

    /// Takes members from another unit that the source lacks in a glob at its first completeness.
    fn keep_lost_members(&mut self, update: &TypeUpdate<'_>) {
        let (live, held) = (&update.live.globs, &mut self.content.globs);
        let is_new = |glob: ResourceName| live.complete.contains(&glob) && !held.complete.contains(&glob);
        let is_there =
            |name: &ResourceName| live.members.contains_key(name) || !name.glob().is_some_and(is_new);
        let lost = update.elder.iter().flat_map(|elder| elder.lost_members(CollectionKind::Globs, is_there));
        for (name, member) in lost.map(|(name, member)| (name.clone(), member.clone())).collect::<Vec<_>>() {
            self.globs.insert(name.clone());
            held.members.insert(name, member);
        }
    }

    /// The names whose membership may differ in another way than before.
    fn changed_in_globs(&self, before: &GlobsSnapshot, live: &GlobsSnapshot) -> Vec<ResourceName> {
        let mut changed = changed_members(&before.members, &live.members);
        let held = &self.content.globs;
        let is_back = |glob: &ResourceName| held.complete.contains(glob) && !before.complete.contains(glob);
        let back: BTreeSet<_> = live.complete.iter().filter(|glob| is_back(glob)).collect();
        if !back.is_empty() {
            let names = held.members.keys().chain(live.members.keys());
            let names = names.filter(|name| name.glob().is_some_and(|glob| back.contains(&glob)));
            changed.extend(names.cloned());
            changed.sort_unstable();
            changed.dedup();
        }
        changed
    }

    fn annotate_globs(&mut self, live: &GlobsSnapshot) {
        for name in names_of_news(&self.content.globs.annotations, &live.annotations) {
            let glob = if name.is_glob() { Some(name.clone()) } else { name.glob() };
            let is_kept = glob.is_some_and(|glob| {
                self.content.globs.complete.contains(&glob) && !live.complete.contains(&glob)
            });
            if !is_kept && !self.globs.contains(&name) {
                self.content.globs.annotations.copy(&name, &live.annotations);
            }
        }
    }

    fn follow_sets_of_globs(&mut self, update: &TypeUpdate<'_>, stamps: &mut Stamps) {
        use imbl::ordmap::DiffItem;
        for item in update.before.globs.sets.diff(&update.live.globs.sets) {
            let (id, set) = match item {
                DiffItem::Remove(id, _) => {
                    self.content.globs.sets.remove(id);
                    continue;
                }
                DiffItem::Add(id, set) | DiffItem::Update { new: (id, set), .. } => (id, set),
            };
            let view = Arc::new(self.view_of_globs(&set.names));
            let previous = self.content.globs.sets.get(id).map(|set| set.view.clone()).unwrap_or_default();
            let view =
                update.choose(view, &previous, |types| types.globs.sets.get(id).map(|set| &set.view), stamps);
            self.content.globs.sets.insert(*id, WatchedSet { names: set.names.clone(), view });
        }
    }

    fn view_of_globs(&self, globs: &NameSet) -> View {
        let held = &self.content.globs;
        let mut view = View::unknown(globs.len());
        let is_member = |name: &ResourceName| name.glob().is_some_and(|glob| globs.contains(&glob));
        let mut filled = BTreeSet::new();
        for (name, cached) in held.members.iter().filter(|(name, _)| is_member(name)) {
            members::put(&mut view, None, &cached.resource);
            filled.extend(name.glob());
        }
        for glob in globs.iter().filter(|glob| held.complete.contains(*glob)) {
            view.resolve_glob(glob);
            view.set_glob_empty(glob, !filled.contains(glob));
        }
        let none = View::default();
        for name in names_of_news(none.annotations(), &held.annotations) {
            if globs.contains(&name) || is_member(&name) {
                view.annotate(&name, &held.annotations);
            }
        }
        view
    }
}

/// The source has forgotten a name with this state in the lane.
fn forget(forgotten: &mut KeptNames<()>, name: &ResourceName, held: &Known) {
    if !forgotten.contains(name) {
        let bytes = held.resource().map_or(0, |resource| resource.size());
        forgotten.put(name, bytes + name.as_str().len() + UNWATCHED_BYTES, ());
    }
}

/// Whether the lane keeps its own state of a name.
fn holds(name: &ResourceName, held: &Known, live: &Known, rule: &HoldRule) -> bool {
    let (resource, live_resource) = (held.resource().map(Arc::as_ref), live.resource().map(Arc::as_ref));
    let is_same = match (held, live) {
        (Known::Unknown, _) | (Known::Absent(_), Known::Absent(_)) => true,
        _ => resource.zip(live_resource).is_some_and(|(held, live)| held.version == live.version),
    };
    !is_same && rule.holds(name, resource, live_resource)
}

fn change_state(view: &mut View, name: &ResourceName, old: &Known, new: &Known) {
    let was = old.resource().map(Arc::as_ref);
    match (old, new) {
        (_, Known::Present(cached)) => view.put_as(name, was, &cached.resource),
        (_, Known::Absent(_)) => view.put_absent(name, was),
        (Known::Unknown, Known::Unknown) => {}
        (Known::Present(cached), Known::Unknown) => {
            view.take_as(name, &cached.resource);
            view.add_unknown();
        }
        (Known::Absent(_), Known::Unknown) => {
            view.drop_absent(name);
            view.add_unknown();
        }
    }
}

pub(super) fn changed_names(before: &NamesSnapshot, live: &NamesSnapshot) -> Vec<ResourceName> {
    use imbl::ordmap::DiffItem;
    let changed = before.entries.diff(&live.entries).map(|item| match item {
        DiffItem::Add(name, _) | DiffItem::Remove(name, _) | DiffItem::Update { new: (name, _), .. } => name,
    });
    changed.cloned().collect()
}

/// The names whose errors or leases differ.
fn names_of_news(previous: &Annotations, live: &Annotations) -> Vec<ResourceName> {
    if previous.is_empty() && live.is_empty() {
        return Vec::new();
    }
    let news = previous.news(live);
    let names: BTreeSet<_> = news.errors.into_iter().map(|(name, _)| name).collect();
    names.into_iter().chain(news.over).chain(news.beats).chain(news.unleased).collect()
}

impl TypeUpdate<'_> {
    /// The view of a collection that the lane publishes after a change, as [`choose_view`]. `find`: the
    /// collection's view in the content of the source or of the other lane.
    pub fn choose(
        &self,
        view: Arc<View>,
        previous: &Arc<View>,
        find: impl Fn(&TypeSnapshot) -> Option<&Arc<View>>,
        stamps: &mut Stamps,
    ) -> Arc<View> {
        choose_view(view, previous, find(self.before), find(self.live), self.peer.and_then(find), stamps)
    }
}

/// The source's view, the other lane's or the lane's `previous` view if that tells the same, else `view` with
/// a stamp. A view that differs from the source's has a mark of its own. `before` and `live`: the source's.
/// `peer`: the other lane's.
fn choose_view(
    mut view: Arc<View>,
    previous: &Arc<View>,
    before: Option<&Arc<View>>,
    live: Option<&Arc<View>>,
    peer: Option<&Arc<View>>,
    stamps: &mut Stamps,
) -> Arc<View> {
    if let Some(live) = live.filter(|live| view.is_same(live)) {
        return live.clone();
    }
    let is_changed = !Arc::ptr_eq(&view, previous) && !view.is_same(previous);
    let was_live = before.is_some_and(|before| Arc::ptr_eq(before, previous));
    if !is_changed && !was_live {
        return previous.clone();
    }
    let is_live = |peer: &Arc<View>| live.is_some_and(|live| Arc::ptr_eq(live, peer));
    if let Some(peer) = peer.filter(|peer| !is_live(peer) && view.is_same(peer)) {
        return peer.clone();
    }
    if !is_changed {
        return Arc::new(previous.marked(stamps.fresh()));
    }
    stamps.stamp(Arc::make_mut(&mut view), live.unwrap_or(previous));
    view
}

/// Whether the lane keeps its own member, or lacks the source's.
fn holds_member(
    name: &ResourceName,
    held: Option<&Arc<Resource>>,
    live: Option<&Arc<Resource>>,
    update: &TypeUpdate<'_>,
) -> bool {
    let is_same = held.map(|held| held.version) == live.map(|live| live.version);
    !is_same && update.rule.holds(name, held.map(Arc::as_ref), live.map(Arc::as_ref))
}

pub(super) fn changed_members(before: &CachedBodies, live: &CachedBodies) -> Vec<ResourceName> {
    use imbl::ordmap::DiffItem;
    let changed = before.diff(live).map(|item| match item {
        DiffItem::Add(name, _) | DiffItem::Remove(name, _) | DiffItem::Update { new: (name, _), .. } => name,
    });
    changed.cloned().collect()
}
