//! Routes subscriptions: divides a subscription into parts, and finds the sources of each part.

use crate::authority::NameGroup;
use crate::collection::{Collection, CollectionKind};
use crate::downstream::answer::spelling::SPELLINGS_MAX;
use crate::downstream::session::Session;
use crate::downstream::session::limits::Excess;
use crate::downstream::session::list_position::{ListPosition, ListPositions};
use crate::downstream::session::router::{Router, Watch};
use crate::downstream::sources::{Asked, Others, SourceId};
use crate::downstream::subscription::part::{Key, Part};
use crate::downstream::subscription::{Change, NameSetChange, Subscription};
use sluice_xds::{Code, ResourceName, Status, TypeUrl};

/// The sources of a part that are found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// The sources that serve the part.
    Serving,
    /// The sources that the part is bound for.
    Last,
}

impl Asked {
    pub(super) fn find(
        type_url: &TypeUrl,
        group: NameGroup,
        which: Which,
        positions: &mut ListPositions,
        router: &mut dyn Router,
    ) -> Result<Asked, Status> {
        let list = router.list(type_url, group);
        let Some(position) = positions.enter(list, type_url, which, router) else {
            return Ok(Asked { list, source: router.source(type_url, group, 0)?, others: None });
        };
        let fallback = position.fallback_of(which);
        let source = router.source(type_url, group, fallback.serving())?;
        let mut others = Others::default();
        for server in fallback.others() {
            others.0.push((server, router.source(type_url, group, server)?));
        }
        Ok(Asked { list, source, others: (!others.0.is_empty()).then(|| Box::new(others)) })
    }
}

impl Session {
    pub(super) fn apply(
        &mut self,
        index: usize,
        change: Change,
        router: &mut dyn Router,
    ) -> Result<Vec<Watch>, Status> {
        let mut watches = Vec::new();
        let (subscription, positions) = (&mut self.subscriptions[index], &mut self.positions);
        subscription.delivery.sent_after = None;
        let type_url = subscription.type_url.clone();
        // Names go first, because they keep the content of a glob or wildcard that goes with the same
        // request.
        let is_named = |(key, _): &(Key, NameSetChange)| key.0 == CollectionKind::Names;
        let (names, globs): (Vec<_>, Vec<_>) = change.names.into_iter().partition(is_named);
        for ((kind, group), names) in names.into_iter().chain(globs) {
            let collection = (!names.0.is_empty()).then(|| kind.collection(names.0));
            set_part(subscription, (kind, group), collection, positions, router, &mut watches)?;
        }
        if let Some(wildcard) = change.wildcard {
            let collection = wildcard.then_some(Collection::Wildcard);
            let group = router.group_of(&type_url, None);
            set_part(
                subscription,
                (CollectionKind::Wildcard, group),
                collection,
                positions,
                router,
                &mut watches,
            )?;
        }
        subscription.keep_left(&change.left);
        let names = self.names_len();
        if names > self.limits.names_per_stream {
            self.excess = Some(Excess::Names);
            let text = format!(
                "{names} names on one stream, of which {type_url} is the last; at most {} are served",
                self.limits.names_per_stream
            );
            return Err(Status::new(Code::ResourceExhausted, text));
        }
        if let Some(name) = self.subscriptions[index].crowded() {
            self.excess = Some(Excess::Names);
            let text = format!("{name} is asked for in more than {SPELLINGS_MAX} spellings");
            return Err(Status::new(Code::ResourceExhausted, text));
        }
        self.list_sources();
        Ok(watches)
    }

    /// Routes every part again after the node of the client changed in a property that splits node classes
    /// (RLY-16). The client's content stays, so that only differences are sent.
    pub fn reroute(&mut self, router: &mut dyn Router) -> Result<Vec<Watch>, Status> {
        self.replace_where(&|_, _| true, Which::Serving, router)
    }

    /// Routes the parts of a source again: the source no longer serves this session, or not yet (RLY-14).
    /// The client's content stays.
    pub fn leave(&mut self, source: SourceId, router: &mut dyn Router) -> Result<Vec<Watch>, Status> {
        let is_of = |_: &TypeUrl, part: &Part| part.asked.sources().any(|asked| asked == source);
        self.replace_where(&is_of, Which::Serving, router)
    }

    /// Routes these parts again.
    pub(super) fn replace_where(
        &mut self,
        is_of: &dyn Fn(&TypeUrl, &Part) -> bool,
        which: Which,
        router: &mut dyn Router,
    ) -> Result<Vec<Watch>, Status> {
        // All sources are found before any change: after an error the session stays as before.
        let mut found = Vec::new();
        for subscription in &self.subscriptions {
            let type_url = &subscription.type_url;
            for part in subscription.parts.iter().filter(|part| is_of(type_url, part)) {
                found.push(Asked::find(type_url, part.group, which, &mut self.positions, router)?);
            }
        }
        let (mut found, mut watches) = (found.into_iter(), Vec::new());
        for subscription in &mut self.subscriptions {
            let type_url = subscription.type_url.clone();
            let parts = || subscription.parts.iter().filter(|part| is_of(&type_url, part));
            let asked: Vec<_> = found.by_ref().take(parts().count()).collect();
            let known = |part| if which == Which::Last { Part::bound_for(part) } else { &part.asked };
            if parts().map(known).eq(&asked) {
                continue;
            }
            subscription.interrupt();
            let (states_version, is_unanswered) =
                (subscription.presented_version().is_some(), subscription.nonces.latest().is_none());
            for (part, asked) in
                subscription.parts.iter_mut().filter(|part| is_of(&type_url, part)).zip(asked)
            {
                let before: Vec<_> = part.sources().collect();
                match &mut part.next {
                    Some(next) if which == Which::Last => **next = asked,
                    _ => {
                        // Nothing of the former server is in the client's content (ADR 52).
                        let is_moved = part.asked.list == asked.list && part.source() != asked.source;
                        let brings = states_version || !part.held.is_empty();
                        part.serve_from(asked, router);
                        part.bring_if(is_moved && is_unanswered && brings);
                    }
                }
                part.watch_instead(&before, &type_url, &mut watches);
            }
        }
        self.list_sources();
        Ok(watches)
    }

    /// Routes names of a type whose group has changed (CCH-1). The client's content stays until the new
    /// source has other content.
    pub fn divert(&mut self, type_url: &TypeUrl, router: &mut dyn Router) -> Result<Vec<Watch>, Status> {
        let Some(index) = self.subscriptions.iter().position(|s| s.type_url == *type_url) else {
            return Ok(Vec::new());
        };
        let subscription = &self.subscriptions[index];
        let mut change = subscription.divert(self.seed, &|name| router.group_of(type_url, Some(name)));
        let group = router.group_of(type_url, None);
        let moves = |part: &Part| part.is_wildcard() && part.group != group;
        change.wildcard = subscription.parts.iter().any(moves).then_some(true);
        let (keys, left): (Vec<_>, _) =
            (change.names.keys().copied().collect(), subscription.held_by_names());
        let watches = self.apply(index, change, router)?;
        let parts = self.subscriptions[index].parts.iter_mut();
        parts.filter(|part| keys.contains(&part.key())).for_each(|part| part.inherit(&left));
        Ok(watches)
    }

    /// Routes the names of all types whose group has changed: the configuration has other authorities.
    pub fn regroup(&mut self, router: &mut dyn Router) -> Result<Vec<Watch>, Status> {
        let mut watches = Vec::new();
        for index in 0..self.subscriptions.len() {
            let type_url = self.subscriptions[index].type_url.clone();
            let group_of = |name: &ResourceName| router.group_of(&type_url, Some(name));
            if self.subscriptions[index].divert(self.seed, &group_of) != Change::default() {
                watches.extend(self.divert(&type_url, router)?);
            }
        }
        Ok(watches)
    }

    /// Lists the sources of the parts. Unused sources and positions go, so that nothing keeps them alive.
    pub(super) fn list_sources(&mut self) {
        self.note_returning();
        let parts = || self.subscriptions.iter().flat_map(|subscription| &subscription.parts);
        let asked = || parts().flat_map(Part::sources);
        self.sources.retain(|source| asked().any(|used| used == *source));
        for source in asked() {
            if !self.sources.contains(&source) {
                self.sources.reserve_exact(1);
                self.sources.push(source);
            }
        }
        let is_wanted = |subscription: &Subscription, position: &ListPosition| {
            let lists = |part: &Part| [part.asked.list, part.bound_for().list];
            let mut lists = subscription.parts.iter().flat_map(lists);
            lists.any(|list| position.covers(&subscription.type_url, list))
        };
        self.positions
            .keep(|position| self.subscriptions.iter().any(|subscription| is_wanted(subscription, position)));
    }
}

/// Brings one part of a subscription to the new collection, and notes the changes for its sources.
fn set_part(
    subscription: &mut Subscription,
    (kind, group): Key,
    collection: Option<Collection>,
    positions: &mut ListPositions,
    router: &mut dyn Router,
    watches: &mut Vec<Watch>,
) -> Result<(), Status> {
    let type_url = subscription.type_url.clone();
    match collection {
        Some(collection) => {
            let asked = Asked::find(&type_url, group, Which::Serving, positions, router)?;
            let seen = router.last_change(asked.source);
            let part = subscription.parts.iter().find(|part| part.key() == (kind, group));
            let former = part.and_then(Part::names).cloned();
            let before = subscription.set_part(group, Some((asked, collection)), kind);
            let set = subscription.parts.iter_mut().find(|part| part.key() == (kind, group));
            let Some(part) = set else { return Ok(()) };
            part.begin_changes(seen);
            // This very request may have changed the client's node class (RLY-16).
            part.unwatch_former(&before, &type_url, watches);
            for source in part.sources() {
                let (type_url, collection) = (type_url.clone(), part.collection.clone());
                watches.push(Watch::Watch { source, type_url, collection, former: former.clone() });
            }
        }
        None => {
            let key = kind.key(group.authority.style());
            let former = subscription.set_part(group, None, kind);
            for source in former {
                // Names of unknown authorities have one source (FED-3), which may be asked by another part, too.
                let asks = |part: &&Part| {
                    part.collection.key() == key && part.sources().any(|asked| asked == source)
                };
                let collection = subscription.parts.iter().find(asks).map(|part| part.collection.clone());
                let type_url = type_url.clone();
                watches.push(match collection {
                    Some(collection) => Watch::Watch { source, type_url, collection, former: None },
                    None => Watch::Unwatch { source, type_url, key },
                });
            }
        }
    }
    Ok(())
}

impl Part {
    pub(super) fn serve_from(&mut self, asked: Asked, router: &dyn Router) {
        let old = std::mem::replace(&mut self.asked, asked);
        if old.source != self.source() {
            self.begin_changes(router.last_change(self.source()));
        }
    }

    /// Notes the sources that are no longer asked, and those that are asked now.
    pub(super) fn watch_instead(&self, before: &[SourceId], type_url: &TypeUrl, watches: &mut Vec<Watch>) {
        self.unwatch_former(before, type_url, watches);
        for source in self.sources().filter(|source| !before.contains(source)) {
            let (type_url, collection) = (type_url.clone(), self.collection.clone());
            watches.push(Watch::Watch { source, type_url, collection, former: None });
        }
    }

    fn unwatch_former(&self, before: &[SourceId], type_url: &TypeUrl, watches: &mut Vec<Watch>) {
        let key = self.collection.key();
        for source in before.iter().copied().filter(|source| self.sources().all(|asked| asked != *source)) {
            watches.push(Watch::Unwatch { source, type_url: type_url.clone(), key });
        }
    }
}
