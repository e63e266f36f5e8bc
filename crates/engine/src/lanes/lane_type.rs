//! The content of one type in a lane, and its names. A lane follows the source but for the changes that its rule holds.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::elder::TypeElder;
use super::forgotten::Forgotten;
use super::lasts::Lasts;
use super::rule::{Rule, Stamps};
use super::stated::{held_name, held_or_elders};
use crate::annotations::Annotations;
use crate::cache::Known;
use crate::cache::aliased::Aliased;
use crate::cache::slots::WatchedSet;
use crate::collection::CollectionKind;
use crate::snapshot::{NamesSnapshot, TypeSnapshot};
use crate::view::View;
use sluice_xds::ResourceName;

/// The content of a type in a lane. What does not differ is the source's own, down to the pointers.
#[derive(Clone, Debug, Default)]
pub(super) struct LaneType {
    /// Without last bytes.
    pub content: TypeSnapshot,
    /// The names whose known state differs from the source's known state.
    pub names: BTreeSet<ResourceName>,
    /// The known names that the source does not know.
    pub forgotten: Forgotten,
    /// The members that differ, of globs that are complete in both, or not complete in the lane.
    pub globs: BTreeSet<ResourceName>,
    /// Some globs are complete here, and not at the source.
    pub keeps_globs: bool,
    /// The members of the wildcard that differ, if it is complete in both, or not complete in the lane.
    pub wildcard: BTreeSet<ResourceName>,
    /// The wildcard is complete here, and not at the source.
    pub keeps_wildcard: bool,
    /// Bytes of resources that clients may have from other lanes.
    pub lasts: Lasts,
}

/// The source's change, as a lane sees it.
pub(super) struct Step<'a> {
    pub before: &'a TypeSnapshot,
    pub live: &'a TypeSnapshot,
    pub rule: &'a Rule,
    /// The other lane's content after the change. Equal views are shared.
    pub peer: Option<&'a TypeSnapshot>,
    /// The content of another unit, for first answers.
    pub elder: Option<TypeElder<'a>>,
}

impl LaneType {
    pub fn of(content: TypeSnapshot) -> LaneType {
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
        let is_unknown =
            |name: &ResourceName| live.names.entries.get(name).is_some_and(|of| matches!(of, Known::Unknown));
        let (own, globs) = (&self.content.globs, &live.globs);
        let is_unsettled =
            |glob: &ResourceName| own.complete.contains(glob) && !globs.complete.contains(glob);
        self.keeps_wildcard && live.wildcard.view.is_some()
            || self.keeps_globs && globs.sets.values().any(|set| set.names.iter().any(is_unsettled))
            || self.forgotten.names().any(is_unknown)
    }

    pub fn follow(&mut self, step: &Step<'_>, stamps: &mut Stamps) {
        let changed: Vec<_> = changed_names(&step.before.names, &step.live.names);
        self.follow_by(&changed, step, stamps);
    }

    /// `changed`: all names whose state may differ from the source's in another way than before.
    pub fn follow_by(&mut self, changed: &[ResourceName], step: &Step<'_>, stamps: &mut Stamps) {
        self.content.evicted = step.live.evicted;
        self.follow_names(changed, step, stamps);
        self.follow_wildcard(step, stamps);
        self.follow_globs(step, stamps);
    }

    /// Brings the names to the source's, but for those that the lane holds.
    fn follow_names(&mut self, changed: &[ResourceName], step: &Step<'_>, stamps: &mut Stamps) {
        let mut followed = Vec::new();
        for name in changed {
            let own = self.content.names.entries.get(name).cloned().unwrap_or_default();
            let new = step.live.names.entries.get(name);
            if self.hold_new_name(name, &own, new, step) {
                followed.push((name, own));
                continue;
            }
            match holds(name, &own, new.unwrap_or(&Known::Unknown), step.rule) {
                true => self.hold_name(name, &own, new),
                false => {
                    self.take_name(name, &step.live.names);
                    followed.push((name, own));
                }
            }
        }
        if self.names.is_empty() && self.forgotten.is_empty() {
            self.content.names = step.live.names.clone();
            return;
        }
        let annotated = self.annotate_names(&step.live.names.annotations);
        for item in step.before.names.sets.diff(&step.live.names.sets) {
            use imbl::ordmap::DiffItem;
            let (id, set) = match item {
                DiffItem::Remove(id, _) => {
                    self.content.names.sets.remove(id);
                    continue;
                }
                DiffItem::Add(id, set) | DiffItem::Update { new: (id, set), .. } => (id, set),
            };
            let view = match self.content.names.sets.get(id) {
                None => self.view_of_new(set, step, stamps),
                Some(own) => {
                    let own = own.view.clone();
                    let before = step.before.names.sets.get(id).map(|set| &set.view);
                    let view = self.changed_view(own.clone(), set, &followed, &annotated);
                    let peer = step.peer.and_then(|peer| peer.names.sets.get(id)).map(|set| &set.view);
                    settled(view, &own, before, Some(&set.view), peer, stamps)
                }
            };
            self.content.names.sets.insert(*id, WatchedSet { names: set.names.clone(), view });
        }
        let is_watched = |name: &ResourceName| step.live.names.entries.contains_key(name);
        for name in self.forgotten.evict(is_watched) {
            self.content.names.entries.remove(&name);
            self.content.names.aliases.remove(&name);
            self.content.names.annotations.forget(&name);
        }
    }

    /// Holds the lane's state of a name that nobody asked for by the name before, if another way to ask tells it (WAV-7), or that of another
    /// unit (WAV-22).
    fn hold_new_name(
        &mut self,
        name: &ResourceName,
        own: &Known,
        new: Option<&Known>,
        step: &Step<'_>,
    ) -> bool {
        let is_first = matches!(step.rule, Rule::Gated) && matches!(own, Known::Unknown);
        let new = new.filter(|_| is_first);
        let (content, elder, kind) = (&self.content, step.elder.as_ref(), CollectionKind::Names);
        let held = new.and_then(|new| match new {
            Known::Present(new) => held_or_elders(content, elder, kind, (name, new)),
            _ => held_name(content, step.live, name, new)
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

    fn hold_name(&mut self, name: &ResourceName, own: &Known, new: Option<&Known>) {
        match new {
            None | Some(Known::Unknown) => {
                self.names.remove(name);
                self.forgotten.add(name, own.resource().map(Arc::as_ref));
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
        let own = &mut self.content.names;
        match live.entries.get(name) {
            Some(known) => drop(own.entries.insert(name.clone(), known.clone())),
            None => drop(own.entries.remove(name)),
        }
        match live.aliases.get(name) {
            Some(aliased) => drop(own.aliases.insert(name.clone(), aliased.clone())),
            None => drop(own.aliases.remove(name)),
        }
    }

    /// Whether the lane has a name otherwise than the source.
    fn has_own(&self, name: &ResourceName) -> bool {
        self.names.contains(name) || self.forgotten.contains(name)
    }

    /// Takes errors and leases over, but for held names: an error is about the state that it stands beside. Returns the
    /// names.
    fn annotate_names(&mut self, live: &Annotations) -> Vec<ResourceName> {
        let mut annotated = names_of_news(&self.content.names.annotations, live);
        annotated.retain(|name| !self.has_own(name));
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
        let own = &self.content.names;
        for (name, old) in followed.iter().filter(|(name, _)| set.names.contains(name)) {
            let new = own.entries.get(*name).unwrap_or(&Known::Unknown);
            let changed = Arc::make_mut(&mut view);
            change_state(changed, name, old, new);
            changed.take_change_of(&set.view);
        }
        for name in annotated.iter().filter(|name| set.names.contains(name)) {
            Arc::make_mut(&mut view).annotate(name, &own.annotations);
        }
        view
    }

    /// The view of a set that the lane does not have yet: the source's view, with the lane's own names.
    fn view_of_new(&self, set: &WatchedSet, step: &Step<'_>, stamps: &mut Stamps) -> Arc<View> {
        let own = &self.content.names;
        let held: Vec<_> = match self.names.len() + self.forgotten.len() < set.names.len() {
            true => {
                let held = self.names.iter().chain(self.forgotten.names());
                held.filter(|name| set.names.contains(name)).collect()
            }
            false => set.names.iter().filter(|name| self.has_own(name)).collect(),
        };
        if held.is_empty() {
            return set.view.clone();
        }
        let mut view = (*set.view).clone();
        for name in held {
            let [old, new] = [&step.live.names.entries, &own.entries].map(|known| known.get(name));
            let (old, new) = (old.unwrap_or(&Known::Unknown), new.unwrap_or(&Known::Unknown));
            change_state(&mut view, name, old, new);
            view.annotate(name, &own.annotations);
        }
        view.forget_changes();
        let peer = step.peer.and_then(|peer| peer.names.sets.get(&set.names.id())).map(|set| &set.view);
        settled(Arc::new(view), &Arc::default(), None, Some(&set.view), peer, stamps)
    }
}

/// Whether the lane keeps its own state of a name.
fn holds(name: &ResourceName, own: &Known, new: &Known, rule: &Rule) -> bool {
    let is_same = match (own, new) {
        (Known::Unknown, _) | (Known::Absent(_), Known::Absent(_)) => true,
        (own, new) => match (own.resource(), new.resource()) {
            (Some(own), Some(new)) => own.version == new.version,
            _ => false,
        },
    };
    !is_same && rule.holds(name, own.resource().map(Arc::as_ref), new.resource().map(Arc::as_ref))
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
pub(super) fn names_of_news(own: &Annotations, live: &Annotations) -> Vec<ResourceName> {
    if own.is_empty() && live.is_empty() {
        return Vec::new();
    }
    let news = own.news(live);
    let names: BTreeSet<_> = news.errors.into_iter().map(|(name, _)| name).collect();
    names.into_iter().chain(news.over).chain(news.beats).chain(news.unleased).collect()
}

/// The view that the lane publishes after a change: the source's, the other lane's or its former view if that tells the
/// same, else `view` with a stamp. A view that differs from the source's has a mark of its own. `own`: the former view.
/// `before` and `live`: the source's. `peer`: the other lane's view.
pub(super) fn settled(
    mut view: Arc<View>,
    own: &Arc<View>,
    before: Option<&Arc<View>>,
    live: Option<&Arc<View>>,
    peer: Option<&Arc<View>>,
    stamps: &mut Stamps,
) -> Arc<View> {
    if let Some(live) = live.filter(|live| view.is_same(live)) {
        return live.clone();
    }
    let is_changed = !Arc::ptr_eq(&view, own) && !view.is_same(own);
    let is_sources = before.is_some_and(|before| Arc::ptr_eq(before, own));
    if !is_changed && !is_sources {
        return own.clone();
    }
    let is_live = |peer: &Arc<View>| live.is_some_and(|live| Arc::ptr_eq(live, peer));
    if let Some(peer) = peer.filter(|peer| !is_live(peer) && view.is_same(peer)) {
        return peer.clone();
    }
    if !is_changed {
        return Arc::new(own.marked(stamps.fresh()));
    }
    stamps.stamp(Arc::make_mut(&mut view), live.unwrap_or(own));
    view
}
