//! What one stream wants of one type, and what the client holds of it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::answer::{Answer, Chunk};
use super::dialect::Dialect;
use super::flight::Flight;
use crate::engine::class::NameStyle;
use crate::engine::interest::{HashSeed, Interest, NameSet, style_of};
use crate::engine::view::{Leaving, View, ViewId};
use crate::xds::{DeltaRequest, ResourceName, SotwRequest, TypeUrl, Version};

/// A source, by the number that the driver gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u64);

/// One collection of one source that the client subscribed to.
#[derive(Clone, Debug)]
pub struct Part {
    pub source: SourceId,
    pub style: NameStyle,
    pub interest: Interest,
    /// What the client holds: the view to which it was last brought, and before it what that view did not know.
    pub held: Arc<View>,
    /// The view to which the client was last brought; `None` if it must be looked at again whatever the source has.
    at: Option<ViewId>,
}

impl Part {
    fn new(source: SourceId, style: NameStyle, interest: Interest) -> Part {
        Part { source, style, interest, held: Arc::default(), at: None }
    }

    /// Whether there may be something to say of this view.
    pub fn is_behind(&self, view: &View) -> bool {
        self.at != Some(view.id())
    }

    /// The client was told all that there is to say of this view. `deletes`: absence too.
    pub fn bring_to(&mut self, view: &Arc<View>, deletes: bool) {
        self.held = self.held.brought_to(view, |name| self.interest.covers(name), deletes);
        self.at = Some(view.id());
    }

    /// The client was told nothing of errors, for want of something to say beside them (SST-7).
    pub fn keep_errors(&mut self, before: &View) {
        if !(before.remarks().is_empty() && self.held.remarks().is_empty()) {
            Arc::make_mut(&mut self.held).without_errors_since(before);
        }
    }

    /// The client holds something else than was thought.
    fn hold(&mut self, held: Arc<View>) {
        self.held = held;
        self.at = None;
    }

    /// What the client holds of the names because another part brought it.
    fn take_over(&mut self, other: &View, which: impl Fn(&ResourceName) -> bool) {
        let Interest::Names(names) = &self.interest else { return };
        let brought = names.iter().filter(|name| !self.held.has(name) && which(name));
        let brought: Vec<_> = brought.filter_map(|name| Some((name, other.version_of(name)?))).collect();
        if !brought.is_empty() {
            Arc::make_mut(&mut self.held).hold(brought.into_iter(), std::iter::empty());
            self.at = None;
        }
    }

    /// The client was sent a part of what brings it to a view.
    fn hold_chunk(&mut self, chunk: &Chunk, view: &View) {
        let sent = chunk.resources.iter().map(|resource| (&resource.name, resource.version));
        let sent = sent.filter(|(name, version)| view.version_of(name) == Some(*version));
        let held = Arc::make_mut(&mut self.held);
        held.hold(sent, chunk.removed.iter().filter(|name| self.interest.covers(name)));
        if !(held.remarks().is_empty() && view.remarks().is_empty()) {
            held.hold_remarks(chunk.names().chain(chunk.errors.iter().map(|(name, _)| name)), view);
        }
    }

    /// The client must be told of the name again, whatever it holds. Whether it was told before.
    fn forget(&mut self, name: &ResourceName) -> bool {
        let has_error = self.held.remarks().error(name).is_some();
        let was_told = self.held.has(name) || self.held.knows_absent(name) || has_error;
        if was_told {
            Arc::make_mut(&mut self.held).forget(name);
            self.at = None;
        }
        was_told
    }

    pub fn leaving(&self) -> Leaving {
        self.interest.leaving()
    }

    pub fn is_wildcard(&self) -> bool {
        matches!(self.interest, Interest::Wildcard)
    }

    pub fn names(&self) -> Option<&Arc<NameSet>> {
        match &self.interest {
            Interest::Wildcard => None,
            Interest::Names(names) => Some(names),
        }
    }
}

/// One stream × one type (STR-1).
#[derive(Debug)]
pub struct Subscription {
    pub type_url: TypeUrl,
    /// The wildcard first, then old-style names, then `xdstp:` names; no part is empty.
    pub parts: Vec<Part>,
    /// Names unsubscribed from beside a wildcard, still to be answered (DEL-19).
    pub departed: BTreeSet<ResourceName>,
    pub flight: Flight,
    /// A first answer to the wildcard is due even if it is empty (SST-7, DEL-25).
    pub greeting: bool,
    /// Something newly asked for may be answered beside an unACKed response (NON-4).
    pub fresh: bool,
    /// The version that a wildcard client presented on its first request (STR-10).
    pub presented: Option<Version>,
    /// The rest of an answer that takes several messages. It is finished before a newer one begins (RLY-31).
    pub pending: Option<Box<Answer>>,
    /// An empty first request means the wildcard (SUB-9, SUB-15).
    pub legacy_wildcard: bool,
    /// What the client understands of the type.
    pub dialect: Dialect,
    /// A request came.
    seen: bool,
    /// Some request had a non-empty list: an empty one means nothing from then on (SUB-10).
    named: bool,
    /// Of the last SotW list, so that an ACK that repeats it costs no comparison of sets.
    fingerprint: u64,
}

/// How a request changed what is wanted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Change {
    pub wildcard: Option<bool>,
    /// The names by style, where they changed.
    pub names: BTreeMap<NameStyle, NameSetChange>,
}

/// A set of names before and after.
#[derive(Debug)]
pub struct NameSetChange(pub Arc<NameSet>);

impl PartialEq for NameSetChange {
    fn eq(&self, other: &Self) -> bool {
        self.0.id() == other.0.id()
    }
}

impl Eq for NameSetChange {}

impl Subscription {
    pub fn new(type_url: TypeUrl) -> Subscription {
        Subscription {
            type_url,
            parts: Vec::new(),
            departed: BTreeSet::new(),
            flight: Flight::default(),
            greeting: false,
            fresh: false,
            presented: None,
            pending: None,
            legacy_wildcard: true,
            dialect: Dialect::default(),
            seen: false,
            named: false,
            fingerprint: 0,
        }
    }

    pub fn is_wildcard(&self) -> bool {
        self.parts.iter().any(Part::is_wildcard)
    }

    pub fn names_len(&self) -> usize {
        self.parts.iter().filter_map(Part::names).map(|names| names.len()).sum()
    }

    /// The client was brought nothing of what it asks for yet.
    pub fn holds_nothing(&self) -> bool {
        self.flight.version_sent.is_none() && self.parts.iter().all(|part| part.held.is_empty())
    }

    /// No request of this type was taken yet on this stream.
    pub fn is_new(&self) -> bool {
        !self.seen
    }

    fn names_of(&self, style: NameStyle) -> Arc<NameSet> {
        let part = self.parts.iter().find(|part| part.style == style && !part.is_wildcard());
        part.and_then(Part::names).cloned().unwrap_or_default()
    }

    /// A SotW request: its list is the complete set (SUB-1).
    pub fn take_sotw(&mut self, request: &SotwRequest, seed: HashSeed) -> Change {
        let names = &request.resource_names;
        let first = !std::mem::replace(&mut self.seen, true);
        let fingerprint = fingerprint_of(names, seed);
        if !first && fingerprint == self.fingerprint {
            return Change::default();
        }
        self.fingerprint = fingerprint;
        // A presented version says what the client has only as long as it gives nothing up (STR-10).
        self.presented = None;
        self.named |= !names.is_empty();
        // The implicit wildcard lasts while every request so far was empty (SUB-9); a total list ends it (SUB-11).
        let implicit = !self.named && self.legacy_wildcard;
        let wildcard = implicit || names.iter().any(ResourceName::is_wildcard);
        if first && wildcard && names.len() <= 1 {
            self.presented = Version::parse(&request.version_info);
        }
        let mut change = Change::default();
        if wildcard != self.is_wildcard() {
            change.wildcard = Some(wildcard);
        }
        for style in [NameStyle::Old, NameStyle::Xdstp] {
            let wanted = names.iter().filter(|name| !name.is_wildcard() && style_of(name) == style);
            let wanted = NameSet::of(wanted.cloned(), seed);
            let old = self.names_of(style);
            if wanted.id() != old.id() {
                let added: Vec<_> = wanted.minus(&old).cloned().collect();
                if !added.is_empty() {
                    self.resubscribe(&added);
                }
                change.names.insert(style, NameSetChange(Arc::new(wanted)));
            }
        }
        change
    }

    /// A delta request: `subscribe` before `unsubscribe` (DEL-4), whatever the nonce says (DEL-2).
    pub fn take_delta(&mut self, request: &DeltaRequest, seed: HashSeed) -> Change {
        let first = !std::mem::replace(&mut self.seen, true);
        let both_empty = request.subscribe.is_empty() && request.unsubscribe.is_empty();
        let was_wildcard = self.is_wildcard();
        // Wildcard by omission is decided on the first request (DEL-6, DEL-10); adding names keeps it (DEL-7).
        let mut wildcard = was_wildcard || (first && both_empty && self.legacy_wildcard);
        let mut sets: BTreeMap<NameStyle, NameSet> = BTreeMap::new();
        for name in &request.subscribe {
            if name.is_wildcard() {
                if was_wildcard {
                    self.resubscribe_wildcard();
                }
                wildcard = true;
                continue;
            }
            // What becomes of a name that is wanted again, its own subscription says.
            self.departed.remove(name);
            let style = style_of(name);
            let set = sets.entry(style).or_insert_with(|| (*self.names_of(style)).clone());
            set.insert(name.clone(), seed);
            // Asked for again without having been given up, or brought by the wildcard before: a forced resend (DEL-11).
            self.resubscribe(std::slice::from_ref(name));
        }
        for name in &request.unsubscribe {
            if name.is_wildcard() {
                wildcard = false;
                continue;
            }
            let style = style_of(name);
            let set = sets.entry(style).or_insert_with(|| (*self.names_of(style)).clone());
            if set.remove(name, seed) {
                self.forget_name(name);
                if wildcard {
                    self.depart(name);
                }
            }
        }
        if !wildcard {
            self.departed.clear();
        }
        let names = sets
            .into_iter()
            .filter(|(style, set)| set.id() != self.names_of(*style).id())
            .map(|(style, set)| (style, NameSetChange(Arc::new(set))))
            .collect();
        Change { wildcard: (wildcard != was_wildcard).then_some(wildcard), names }
    }

    /// The client asks for names anew: it is told of them again, whatever it holds (SUB-3, DEL-11).
    fn resubscribe(&mut self, names: &[ResourceName]) {
        self.interrupt();
        for name in names {
            self.forget_name(name);
        }
        self.fresh = true;
    }

    /// Gives up the rest of an answer that takes several messages, for a newer answer. What was sent of it the client holds.
    pub fn interrupt(&mut self) {
        let Some(answer) = self.pending.take() else { return };
        self.fresh = true;
        for chunk in answer.compose().chunks.iter().take(answer.chunk) {
            for (part, answered) in self.parts.iter_mut().zip(&answer.parts) {
                part.hold_chunk(chunk, &answered.view);
            }
        }
    }

    fn forget_name(&mut self, name: &ResourceName) {
        self.interrupt();
        for part in &mut self.parts {
            part.forget(name);
        }
    }

    fn resubscribe_wildcard(&mut self) {
        self.interrupt();
        for part in self.parts.iter_mut().filter(|part| part.is_wildcard()) {
            let mut held = (*part.held).clone();
            held.forget_all();
            part.hold(Arc::new(held));
        }
        self.greeting = true;
        self.fresh = true;
    }

    /// A name was given up beside the wildcard: the client learns whether the wildcard still has it (DEL-19).
    fn depart(&mut self, name: &ResourceName) {
        self.departed.insert(name.clone());
        self.interrupt();
        self.fresh = true;
    }

    /// The endpoints of a cluster that was just sent must follow, changed or not (ORD-5, RLY-52).
    pub fn force(&mut self, name: &ResourceName) {
        self.interrupt();
        for part in &mut self.parts {
            if part.held.has(name) && part.forget(name) {
                self.fresh = true;
            }
        }
    }

    /// Sets what is wanted of one collection; an empty set of names takes the part away. What the client holds stays. Gives
    /// the source that the part came from before.
    pub fn set_part(
        &mut self,
        style: NameStyle,
        interest: Option<(SourceId, Interest)>,
        wildcard: bool,
    ) -> Option<SourceId> {
        self.interrupt();
        let at = self.parts.iter().position(|part| part.style == style && part.is_wildcard() == wildcard);
        let old = at.map(|at| self.parts[at].source);
        if let Some(at) = at {
            self.fall_back_to_wildcard(at, interest.as_ref().map(|(_, interest)| interest));
        }
        match (at, interest) {
            (Some(at), Some((source, interest))) => {
                let part = &mut self.parts[at];
                self.fresh |= part.source != source || interest.asks_for_more_than(&part.interest);
                part.source = source;
                part.interest = interest;
            }
            (Some(at), None) => {
                let left = self.parts.remove(at);
                if left.is_wildcard() {
                    self.keep_of_wildcard(&left.held);
                }
                self.greeting &= !wildcard;
            }
            (None, Some((source, interest))) => {
                self.parts.reserve_exact(1);
                self.parts.push(Part::new(source, style, interest));
                self.parts.sort_by_key(|part| (!part.is_wildcard(), part.style));
                self.greeting |= wildcard;
                self.fresh = true;
            }
            (None, None) => {}
        }
        old
    }

    /// Names leave a part: where the wildcard has other content under them, that is what the client should hold now.
    fn fall_back_to_wildcard(&mut self, at: usize, interest: Option<&Interest>) {
        let part = &self.parts[at];
        let Interest::Names(old) = &part.interest else { return };
        let (old, held, none) = (old.clone(), part.held.clone(), NameSet::default());
        let new = match interest {
            Some(Interest::Names(names)) => names,
            _ => &none,
        };
        for wildcard in self.parts.iter_mut().filter(|part| part.is_wildcard()) {
            for name in old.minus(new) {
                let (own, other) = (held.version_of(name), wildcard.held.version_of(name));
                if own.is_some() && other.is_some() && own != other {
                    wildcard.forget(name);
                }
            }
        }
    }

    /// The wildcard goes. What it brought under names that are wanted for themselves, the client keeps (DEL-9, SUB-13).
    fn keep_of_wildcard(&mut self, left: &View) {
        for part in &mut self.parts {
            part.take_over(left, |_| true);
        }
    }

    /// A name that leaves one part with this answer, while the other does not know it yet, is not removed (DEL-22, RLY-2):
    /// what the client has under it, it keeps under the other.
    pub fn keep_in_doubt(&mut self, answer: &Answer) {
        let [wildcard, names @ ..] = self.parts.as_mut_slice() else { return };
        let [of_wildcard, of_names @ ..] = answer.parts.as_slice() else { return };
        if !wildcard.is_wildcard() {
            return;
        }
        for (part, answered) in names.iter_mut().zip(of_names) {
            if !of_wildcard.view.is_complete() {
                let left =
                    part.held.names().filter(|name| !answered.view.has(name) && !of_wildcard.view.has(name));
                let left = left.filter(|name| wildcard.held.has(name));
                let left: Vec<_> =
                    left.filter_map(|name| Some((name, part.held.version_of(name)?))).collect();
                if !left.is_empty() {
                    Arc::make_mut(&mut wildcard.held).hold(left.into_iter(), std::iter::empty());
                }
            }
            if !answered.view.is_complete() {
                let in_doubt =
                    |name: &ResourceName| answered.is_in_doubt(name) && !of_wildcard.view.has(name);
                part.take_over(&wildcard.held, in_doubt);
            }
        }
    }

    /// What a reconnecting delta client says it holds (DEL-29 to DEL-31): counted where it is subscribed to.
    pub fn present(&mut self, versions: &[(ResourceName, String)], seed: HashSeed) {
        for part in &mut self.parts {
            let held = versions.iter().filter(|(name, _)| part.interest.covers(name));
            // A version that another server made matches no content (RLY-32).
            let held =
                held.map(|(name, version)| (name.clone(), Version::parse(version).unwrap_or_default()));
            part.hold(Arc::new(View::presented(held, seed)));
        }
    }
}

fn fingerprint_of(names: &[ResourceName], seed: HashSeed) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    seed.0.hash(&mut hasher);
    names.hash(&mut hasher);
    hasher.finish()
}
