//! The wildcard and the globs of a type in a lane. A membership is the lane's own from its first completeness
//! on. Before, the lane has the source's members, in the lane's own content where another way to ask tells it
//! (WAV-7).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::lane_type::{LaneType, TypeUpdate, choose_view, names_of_news};
use super::rule::{HoldRule, Stamps};
use super::stated::{first_wildcard, held_or_elders};
use crate::cache::slots::WatchedSet;
use crate::cache::{CachedBodies, Known, members};
use crate::collection::{CollectionKind, NameSet};
use crate::snapshot::{GlobsSnapshot, WildcardSnapshot};
use crate::view::View;
use sluice_xds::{Resource, ResourceName};

impl LaneType {
    pub(super) fn follow_wildcard(&mut self, update: &TypeUpdate<'_>, stamps: &mut Stamps) {
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
        if holds(name, held.as_ref(), new.map(|cached| &cached.resource), update) {
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

    pub(super) fn follow_globs(&mut self, update: &TypeUpdate<'_>, stamps: &mut Stamps) {
        let live = &update.live.globs;
        for name in self.changed_in_globs(&update.before.globs, live) {
            let Some(glob) = name.glob() else { continue };
            let (held, new) = (self.content.globs.members.get(&name), live.members.get(&name));
            let is_complete = self.content.globs.complete.contains(&glob);
            if is_complete && !live.complete.contains(&glob) {
                continue;
            }
            let [held, resource] = [held, new].map(|cached| cached.map(|cached| &cached.resource));
            if is_complete && holds(&name, held, resource, update) {
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

/// Whether the lane keeps its own member, or lacks the source's.
fn holds(
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
