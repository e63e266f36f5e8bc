//! The interests of one stream in one type, and the client's content.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::answer::{Answer, AnswerKey, AnswerPart};
use super::dialect::Dialect;
use super::flight::Flight;
use super::located::Located;
use super::marks::Marks;
use super::memory::weight;
use super::order::{Refused, Trail, Withheld};
use super::rest::Told;
use super::routing::Asked;
use super::spelling::{Peculiar, Refusals, Spellings, key_of};
use super::wait::{First, Hold};
use crate::engine::interest::{HashSeed, Interest, NameSet, Shape};
use crate::engine::planted::{Bug, planted};
use crate::engine::realm::Realm;
use crate::engine::snapshot::TypeSnapshot;
use crate::engine::view::{Leaving, View, ViewId};
use crate::xds::{DeltaRequest, ResourceName, SotwRequest, TypeUrl, Version};

/// A source, by the driver's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u64);

/// Identifies a part within a subscription. Parts are sorted by this key.
pub type Key = (Shape, Realm);

/// One collection of one source in a subscription.
#[derive(Clone, Debug)]
pub struct Part {
    pub asked: Asked,
    pub realm: Realm,
    pub interest: Interest,
    /// The client's content: the last view that was sent, with older content of names that this view did
    /// not know.
    pub held: Arc<View>,
    /// The view of the last answer; `None` if the part must be looked at again, whatever the source has.
    at: Option<ViewId>,
    /// Removals that the client is not told yet (RLY-51).
    pub withheld: Option<Box<Withheld>>,
    /// For a routing type: the client's content before the first unanswered response.
    pub before: Option<Arc<View>>,
    /// For a routing type: rejected content, until the client accepts other content.
    pub refused: Option<Box<Refused>>,
}

impl Part {
    fn new(asked: Asked, realm: Realm, interest: Interest) -> Part {
        Part {
            asked,
            realm,
            interest,
            held: Arc::default(),
            at: None,
            withheld: None,
            before: None,
            refused: None,
        }
    }

    /// The source that serves the part.
    pub fn source(&self) -> SourceId {
        self.asked.source
    }

    /// Whether an answer may be due for a view, or for a view with withheld names (see [`Part::due`]).
    pub fn is_behind(&self, due: ViewId) -> bool {
        self.at != Some(due)
    }

    /// Notes that the client was sent everything of a part of an answer.
    pub fn bring_to(&mut self, answer: &Answer, to: &AnswerPart) {
        if !planted(Bug::HeldNotBrought) || self.held.is_empty() {
            self.held = self.held.brought_to(&to.view, |name| answer.leaves(to, name), answer.deletes());
        }
        self.at = Some(to.due);
    }

    /// Notes that the client already has the whole view.
    pub fn have(&mut self, view: &Arc<View>, due: ViewId) {
        (self.held, self.at) = (view.clone(), Some(due));
    }

    /// Keeps the client's former errors: no message told the client of new errors (SST-7).
    pub fn keep_errors(&mut self, before: &View) {
        if !(before.remarks().is_empty() && self.held.remarks().is_empty()) {
            Arc::make_mut(&mut self.held).without_errors_since(before);
        }
    }

    /// Replaces the record of the client's content.
    fn hold(&mut self, held: Arc<View>) {
        self.held = held;
        self.at = None;
    }

    /// Before the first answer, takes the set of names that all subscribers of the same names share.
    pub(super) fn share_names(&mut self, types: &TypeSnapshot) {
        if self.at.is_none()
            && let Some(shared) = types.names(&self.interest)
            && let Interest::Globs(names) | Interest::Names(names) = &mut self.interest
        {
            names.clone_from(shared);
        }
    }

    /// Takes over content of names in the interest that another part brought.
    fn take_over(&mut self, other: &View, which: impl Fn(&ResourceName) -> bool) {
        let candidates: Vec<_> = match &self.interest {
            Interest::Wildcard => return,
            Interest::Globs(_) => other.names().filter(|name| self.interest.covers(name)).collect(),
            Interest::Names(names) => names.iter().collect(),
        };
        let brought = candidates.into_iter().filter(|name| !self.held.has(name) && which(name));
        let brought: Vec<_> = brought.filter_map(|name| Some((name, other.version_of(name)?))).collect();
        if !brought.is_empty() {
            Arc::make_mut(&mut self.held).hold(brought.into_iter(), std::iter::empty());
            self.at = None;
        }
    }

    /// Notes one of several messages that bring the client to a view.
    pub(super) fn hold_chunk(&mut self, told: &Told, view: &View) {
        let sent = told.sent.iter().map(|(name, version)| (name, *version));
        let held = Arc::make_mut(&mut self.held);
        // The message also replaces the client's content of names that left the interest.
        let is_left = |name: &ResourceName| !self.interest.covers(name) && held.has(name);
        let sent: Vec<_> =
            sent.filter(|(name, version)| view.version_of(name) == Some(*version) || is_left(name)).collect();
        held.hold(sent.into_iter(), told.removed.iter().filter(|name| self.interest.covers(name)));
        if !(held.remarks().is_empty() && view.remarks().is_empty()) {
            // An error in a later message is not told yet, even if the resource of its name is.
            held.hold_leases(told.names(), view, true);
            held.hold_leases(told.beats.iter(), view, false);
            held.hold_remarks(told.errors.iter(), view);
        }
    }

    /// Makes the name due again, whatever the client holds; for a glob, all its members.
    fn forget(&mut self, name: &ResourceName) {
        if matches!(self.interest, Interest::Globs(_)) && name.is_glob() {
            let members: Vec<_> =
                self.held.names().filter(|member| member.glob().as_ref() == Some(name)).cloned().collect();
            for member in &members {
                self.forget(member);
            }
        }
        let has_error = self.held.remarks().error(name).is_some();
        if self.held.has(name) || self.held.knows_absent(name) || has_error {
            Arc::make_mut(&mut self.held).forget(name);
            self.at = None;
        }
    }

    /// Notes that the client gave the name up, and no longer has the resource.
    fn let_go(&mut self, name: &ResourceName) {
        if self.held.has(name) || self.held.knows_absent(name) || self.held.remarks().error(name).is_some() {
            Arc::make_mut(&mut self.held).let_go(name);
            self.at = None;
        }
    }

    pub fn leaving(&self) -> Leaving {
        self.interest.leaving()
    }

    fn key(&self) -> Key {
        (self.interest.shape(), self.realm)
    }

    pub fn is_wildcard(&self) -> bool {
        matches!(self.interest, Interest::Wildcard)
    }

    /// Whether the server, not the client, determines the members: the wildcard, or globs.
    pub fn is_broad(&self) -> bool {
        self.interest.shape() != Shape::Names
    }

    /// The requested names or globs; `None` for the wildcard.
    pub fn names(&self) -> Option<&Arc<NameSet>> {
        self.interest.names()
    }
}

/// One stream × one type (STR-1).
#[derive(Debug)]
pub struct Subscription {
    pub type_url: TypeUrl,
    /// The wildcard, then globs, then names, each by realm: old-style names before authorities. No part is
    /// empty.
    pub parts: Vec<Part>,
    /// Names that were unsubscribed beside a wildcard, and still need an answer (DEL-19).
    pub departed: BTreeSet<ResourceName>,
    pub flight: Flight,
    /// For a routing type: the client's ACKs so far.
    pub trail: Trail,
    /// A first answer to the wildcard is due, even without resources (SST-7, DEL-25).
    pub greeting: bool,
    /// New interests may be answered beside an unACKed response (NON-4).
    pub fresh: bool,
    /// The SotW state before the first answer of the type (RLY-5).
    pub(super) first: Option<Box<First>>,
    /// The client's wait for a name.
    pub hold: Option<Box<Hold>>,
    /// The version in the first request of a wildcard client (STR-10).
    pub presented: Option<Version>,
    /// The rest of an answer that takes several messages. The rest goes out before a newer answer begins
    /// (RLY-31).
    pub pending: Option<Box<Answer>>,
    /// An empty first request means the wildcard (SUB-9, SUB-15).
    pub legacy_wildcard: bool,
    /// The client's capabilities for the type.
    pub dialect: Dialect,
    /// The client's own spellings of names, and refused names. Nearly always `None`.
    peculiar: Option<Box<Peculiar>>,
    /// The client's content under names with dynamic parameters, if the client asks for any.
    pub located: Option<Arc<Located>>,
    /// The marks sent so far, if the client reads marks.
    pub(super) marks: Option<Box<Marks>>,
    /// Memory of the names in the client's initial versions, in bytes, until the first answer.
    pub(super) presented_bytes: usize,
    /// A request of the type came.
    seen: bool,
    /// Some request had a non-empty list: from then on an empty list means no names (SUB-10).
    named: bool,
    /// A hash of the last SotW list, so that an ACK with the same list costs no comparison of sets.
    fingerprint: u64,
}

/// The change of interests in a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Change {
    pub wildcard: Option<bool>,
    /// The changed sets of names and globs, by part.
    pub names: BTreeMap<Key, NameSetChange>,
    /// Spellings have changed, or names were refused.
    pub peculiar: bool,
}

/// The new set of names.
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
            trail: Trail::default(),
            greeting: false,
            fresh: false,
            first: None,
            hold: None,
            presented: None,
            pending: None,
            legacy_wildcard: true,
            dialect: Dialect::default(),
            peculiar: None,
            located: None,
            marks: None,
            presented_bytes: 0,
            seen: false,
            named: false,
            fingerprint: 0,
        }
    }

    pub fn is_wildcard(&self) -> bool {
        self.parts.iter().any(Part::is_wildcard)
    }

    /// The number of requested names, counted once per spelling.
    pub fn names_len(&self) -> usize {
        let refused = self.refusals().map_or(0, Refusals::len);
        let respelled = self.peculiar.as_ref().map_or(0, |peculiar| peculiar.spellings.extra());
        refused
            + respelled
            + self.parts.iter().filter_map(Part::names).map(|names| names.len()).sum::<usize>()
    }

    /// A name in more spellings than are served.
    pub fn crowded(&self) -> Option<&ResourceName> {
        self.peculiar.as_ref()?.spellings.crowded()
    }

    /// Requested names that cannot be served (NAM-5).
    pub fn refusals(&self) -> Option<&Refusals> {
        self.peculiar.as_ref().map(|peculiar| &peculiar.refusals)
    }

    /// The client's spellings that differ from the canonical names (NAM-8).
    pub fn spellings(&self) -> Option<Arc<Spellings>> {
        let peculiar = self.peculiar.as_ref().filter(|peculiar| !peculiar.spellings.is_empty())?;
        Some(peculiar.spellings.clone())
    }

    /// Whether the client was sent nothing of its interests yet, and presented nothing.
    pub fn holds_nothing(&self) -> bool {
        self.flight.version_sent.is_none() && self.parts.iter().all(|part| part.held.is_empty())
    }

    /// The key of the answer with messages left to send.
    pub fn pending_key(&self) -> Option<AnswerKey> {
        self.pending.as_ref().map(|answer| answer.key())
    }

    /// Whether no request of this type came on this stream yet.
    pub fn is_new(&self) -> bool {
        !self.seen
    }

    /// Notes that the client was told of these names.
    pub fn told(&mut self, departed: &[ResourceName]) {
        if departed.is_empty() {
            return;
        }
        self.departed.retain(|name| !departed.contains(name));
        if let Some(peculiar) = &mut self.peculiar {
            peculiar.refusals.told();
        }
    }

    /// The key of the part with this name.
    fn holding(&self, name: &ResourceName) -> Option<Key> {
        let has = |part: &&Part| part.names().is_some_and(|names| names.contains(name));
        self.parts.iter().find(has).map(Part::key)
    }

    fn names_of(&self, key: Key) -> Arc<NameSet> {
        let part = self.parts.iter().find(|part| part.key() == key);
        part.and_then(Part::names).cloned().unwrap_or_default()
    }

    /// The names of a list by part. Parts that lose all their names are in the result, with empty sets.
    fn by_key<'a>(
        &self,
        names: impl Iterator<Item = &'a ResourceName>,
        seed: HashSeed,
        realm_of: &dyn Fn(&ResourceName) -> Realm,
    ) -> BTreeMap<Key, NameSet> {
        let before = self.parts.iter().filter(|part| !part.is_wildcard());
        let mut sets: BTreeMap<_, _> = before.map(|part| (part.key(), NameSet::default())).collect();
        for name in names.filter(|name| !name.is_wildcard()) {
            // A name that is private to this stream stays private.
            let private = self.holding(name).filter(|(_, realm)| realm.private);
            let place = private.unwrap_or_else(|| (Shape::of(name), realm_of(name)));
            sets.entry(place).or_default().insert(name.clone(), seed);
        }
        sets
    }

    /// Handles a SotW request: its list is the complete set (SUB-1).
    pub fn take_sotw(
        &mut self,
        request: &SotwRequest,
        seed: HashSeed,
        realm_of: &dyn Fn(&ResourceName) -> Realm,
    ) -> Change {
        let names = &request.resource_names;
        let first = !std::mem::replace(&mut self.seen, true);
        let fingerprint = fingerprint_of(names, seed);
        if !first && fingerprint == self.fingerprint {
            return Change::default();
        }
        self.fingerprint = fingerprint;
        self.note_located(names);
        // A presented version describes the client's content only until the client gives something up
        // (STR-10).
        self.presented = None;
        self.named |= !names.is_empty();
        // The implicit wildcard lasts while every request is empty (SUB-9); an explicit list ends the
        // wildcard (SUB-11).
        let implicit = !self.named && self.legacy_wildcard;
        let (names, peculiar) = self.take_list(names, seed);
        let mut change = Change { peculiar, ..Change::default() };
        let wildcard = implicit || names.iter().any(ResourceName::is_wildcard);
        if first && wildcard && names.len() <= 1 {
            self.presented = Version::parse(&request.version_info);
        }
        if wildcard != self.is_wildcard() {
            change.wildcard = Some(wildcard);
        }
        let former = self.parts.iter().filter_map(Part::names).filter(|_| planted(Bug::ListsAddUp));
        let former: Vec<_> = former.cloned().collect();
        let all = names.iter().chain(former.iter().flat_map(|names| names.iter()));
        let sets = self.by_key(all, seed, realm_of);
        // Beside a wildcard the client keeps the content of given-up names: the wildcard may have them
        // (SUB-6).
        if !wildcard {
            if let Some(first) = &mut self.first {
                first.keep(&sets, seed);
            }
            self.forget_given_up(&sets);
        }
        for (place, wanted) in sets {
            let old = self.names_of(place);
            if wanted.id() != old.id() {
                let added: Vec<_> = wanted.minus(&old).cloned().collect();
                if !added.is_empty() {
                    self.resubscribe(&added);
                }
                change.names.insert(place, NameSetChange(Arc::new(wanted)));
            }
        }
        change
    }

    /// Forgets the content of names and globs outside `wanted`, because the client has dropped the content.
    /// The client keeps a given-up name under a requested glob, and a requested name under a given-up glob
    /// (NAM-17).
    fn forget_given_up(&mut self, wanted: &BTreeMap<Key, NameSet>) {
        let asks = |shape: Shape, name: &ResourceName| {
            wanted.iter().any(|((at, _), names)| *at == shape && names.contains(name))
        };
        let (mut gone, none) = (Vec::new(), NameSet::default());
        for part in &self.parts {
            let (Some(old), new) = (part.names(), wanted.get(&part.key()).unwrap_or(&none)) else { continue };
            if old.id() == new.id() {
                continue;
            }
            if part.key().0 == Shape::Globs {
                let left = |member: &&ResourceName| {
                    let is_left = |glob| old.contains(&glob) && !new.contains(&glob);
                    member.glob().is_some_and(is_left) && !asks(Shape::Names, member)
                };
                gone.extend(part.held.names().filter(left).cloned());
            } else {
                let is_covered =
                    |name: &ResourceName| name.glob().is_some_and(|glob| asks(Shape::Globs, &glob));
                gone.extend(old.minus(new).filter(|name| !is_covered(name)).cloned());
            }
        }
        for name in gone.iter().filter(|_| !planted(Bug::UnsubscribedStillHeld)) {
            self.interrupt();
            self.parts.iter_mut().for_each(|part| part.let_go(name));
        }
    }

    /// The canonical names of a complete list, and whether spellings or refusals have changed.
    fn take_list<'a>(
        &mut self,
        names: &'a [ResourceName],
        seed: HashSeed,
    ) -> (Cow<'a, [ResourceName]>, bool) {
        let before = self.peculiar.take();
        let (keys, after) = Peculiar::of_list(names, &self.type_url, before.as_deref(), seed);
        let respelled = Peculiar::respelled(after.as_deref(), before.as_deref());
        let refused = after.as_ref().is_some_and(|after| after.refusals.untold().next().is_some());
        self.peculiar = after;
        if !respelled.is_empty() {
            self.resubscribe(&respelled);
        }
        self.fresh |= refused;
        (keys, refused || !respelled.is_empty())
    }

    /// The canonical name; `None` if the name is refused.
    fn take_name(&mut self, name: &ResourceName) -> Option<ResourceName> {
        match key_of(name, &self.type_url) {
            Ok(key) => Some(key.unwrap_or_else(|| name.clone())),
            Err(error) => {
                self.interrupt();
                self.fresh = true;
                self.peculiar.get_or_insert_default().refusals.insert(name, error);
                None
            }
        }
    }

    /// Notes a spelling that the client uses for the name.
    fn spell(&mut self, key: &ResourceName, name: &ResourceName, wanted: bool, seed: HashSeed) {
        if key != name || self.peculiar.is_some() {
            let peculiar = self.peculiar.get_or_insert_default();
            Arc::make_mut(&mut peculiar.spellings).insert(key, name, wanted, seed);
        }
    }

    /// Notes that the client gives up a spelling. Returns the canonical name if no spelling is left.
    fn give_up(&mut self, name: &ResourceName, seed: HashSeed) -> Option<ResourceName> {
        let key = match key_of(name, &self.type_url) {
            Ok(key) => key.unwrap_or_else(|| name.clone()),
            Err(_) => {
                if let Some(peculiar) = &mut self.peculiar {
                    peculiar.refusals.remove(name);
                }
                return None;
            }
        };
        let spellings = self.peculiar.as_mut().map(|peculiar| Arc::make_mut(&mut peculiar.spellings));
        let still_wanted = spellings.map_or(key != *name, |spellings| spellings.remove(&key, name, seed));
        (!still_wanted).then_some(key)
    }

    /// The change of interests for names whose realm has changed.
    pub fn divert(&self, seed: HashSeed, realm_of: &dyn Fn(&ResourceName) -> Realm) -> Change {
        let parts: Vec<_> = self.parts.iter().filter_map(Part::names).collect();
        let sets = self.by_key(parts.iter().flat_map(|names| names.iter()), seed, realm_of);
        let moved = sets.into_iter().filter(|(place, set)| set.id() != self.names_of(*place).id());
        let names = moved.map(|(place, set)| (place, NameSetChange(Arc::new(set)))).collect();
        Change { wildcard: None, names, peculiar: false }
    }

    /// Handles a delta request: `subscribe` before `unsubscribe` (DEL-4), with any nonce (DEL-2).
    pub fn take_delta(
        &mut self,
        request: &DeltaRequest,
        seed: HashSeed,
        realm_of: &dyn Fn(&ResourceName) -> Realm,
    ) -> Change {
        let first = !std::mem::replace(&mut self.seen, true);
        let both_empty = request.subscribe.is_empty() && request.unsubscribe.is_empty();
        let was_wildcard = self.is_wildcard();
        self.note_located(&request.subscribe);
        // The first request decides on the implicit wildcard (DEL-6, DEL-10); more names keep the wildcard
        // (DEL-7).
        let mut wildcard = was_wildcard || (first && both_empty && self.legacy_wildcard);
        let mut sets: BTreeMap<Key, NameSet> = BTreeMap::new();
        let mut departed = Vec::new();
        for name in &request.subscribe {
            if name.is_wildcard() {
                if was_wildcard {
                    self.resubscribe_wildcard();
                }
                wildcard = true;
                continue;
            }
            let Some(key) = self.take_name(name) else { continue };
            // The new subscription answers for the name.
            self.departed.remove(&key);
            let place = self.holding(&key).unwrap_or_else(|| (Shape::of(&key), realm_of(&key)));
            let set = sets.entry(place).or_insert_with(|| (*self.names_of(place)).clone());
            let wanted = !set.insert(key.clone(), seed);
            self.spell(&key, name, wanted, seed);
            // A repeated subscription, or a name that the wildcard has brought: a forced resend (DEL-11).
            self.resubscribe(std::slice::from_ref(&key));
        }
        for name in &request.unsubscribe {
            if name.is_wildcard() {
                wildcard &= planted(Bug::WildcardStillServed);
                continue;
            }
            let Some(key) = self.give_up(name, seed) else { continue };
            let place = self.holding(&key).unwrap_or_else(|| (Shape::of(&key), realm_of(&key)));
            let set = sets.entry(place).or_insert_with(|| (*self.names_of(place)).clone());
            if planted(Bug::UnsubscribedStillServed) {
                continue;
            }
            if set.remove(&key, seed) {
                self.forget_name(&key);
                departed.push(key);
            }
        }
        // Names that already wait interrupt no answer: each ACK would restart the answer, for ever.
        let mut waiting = std::mem::take(&mut self.departed);
        let is_covered = |name: &ResourceName| {
            name.glob().is_some_and(|glob| self.asks_for_glob(&glob, realm_of(&glob), &sets))
        };
        waiting.retain(|name| wildcard || is_covered(name));
        departed.retain(|name| wildcard || is_covered(name));
        self.departed = waiting;
        for name in departed.iter().filter(|_| !planted(Bug::GivenUpNotAnswered)) {
            self.depart(name);
        }
        self.peculiar.take_if(|peculiar| peculiar.is_empty());
        let names = sets
            .into_iter()
            .filter(|(place, set)| set.id() != self.names_of(*place).id())
            .map(|(place, set)| (place, NameSetChange(Arc::new(set))))
            .collect();
        Change { wildcard: (wildcard != was_wildcard).then_some(wildcard), names, peculiar: false }
    }

    /// Whether a glob is requested. `changed` holds the sets that the request changes.
    fn asks_for_glob(&self, glob: &ResourceName, realm: Realm, changed: &BTreeMap<Key, NameSet>) -> bool {
        let place = self.holding(glob).unwrap_or((Shape::Globs, realm));
        changed.get(&place).map_or_else(|| self.names_of(place).contains(glob), |globs| globs.contains(glob))
    }

    /// The client asks for names again, and must be sent them again, whatever its content (SUB-3, DEL-11).
    fn resubscribe(&mut self, names: &[ResourceName]) {
        self.interrupt();
        for name in names {
            self.forget_name(name);
        }
        self.fresh = true;
    }

    fn forget_name(&mut self, name: &ResourceName) {
        if planted(Bug::UnsubscribedStillHeld) {
            return;
        }
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

    /// A name was given up beside the wildcard or its glob. The client must learn whether the wildcard or
    /// glob still has the name (DEL-19, NAM-17).
    fn depart(&mut self, name: &ResourceName) {
        self.departed.insert(name.clone());
        self.interrupt();
        self.fresh = true;
    }

    /// Makes the endpoints of a cluster due, changed or not, because the cluster was just sent (ORD-5,
    /// RLY-52).
    pub fn force(&mut self, name: &ResourceName) {
        self.interrupt();
        for part in &mut self.parts {
            if part.held.has(name) {
                Arc::make_mut(&mut part.held).force(name);
                part.at = None;
                self.fresh = true;
            }
        }
    }

    /// Makes the client's whole content due again, changed or not.
    pub fn force_all(&mut self) {
        let held: Vec<_> = self.parts.iter().flat_map(|part| part.held.names()).cloned().collect();
        held.iter().for_each(|name| self.force(name));
    }

    /// Sets the interest in one collection; `None` removes the part. The client's content stays. Returns
    /// the former sources of the part.
    pub fn set_part(
        &mut self,
        realm: Realm,
        interest: Option<(Asked, Interest)>,
        shape: Shape,
    ) -> Option<Asked> {
        self.interrupt();
        if planted(Bug::RejectedWithTheNext) && self.flight.nack.is_some() {
            self.force_all();
        }
        let wildcard = shape == Shape::Wildcard;
        // There is only one wildcard, in any realm.
        let is_it = |part: &Part| part.interest.shape() == shape && (wildcard || part.realm == realm);
        let at = self.parts.iter().position(is_it);
        let old = at.map(|at| self.parts[at].asked.clone());
        if let Some(at) = at {
            self.fall_back_to_wildcard(at, interest.as_ref().map(|(_, interest)| interest));
        }
        match (at, interest) {
            (Some(at), Some((asked, interest))) => {
                let part = &mut self.parts[at];
                self.fresh |= part.source() != asked.source || interest.asks_for_more_than(&part.interest);
                part.asked = asked;
                part.realm = realm;
                let old = std::mem::replace(&mut part.interest, interest);
                if shape == Shape::Globs && old.asks_for_more_than(&part.interest) {
                    let left = part.held.clone();
                    self.keep_of_broad(&left);
                }
            }
            (Some(at), None) => {
                let left = self.parts.remove(at);
                if left.is_broad() {
                    self.keep_of_broad(&left.held);
                }
                self.greeting &= !wildcard;
            }
            (None, Some((asked, interest))) => {
                self.parts.reserve_exact(1);
                self.parts.push(Part::new(asked, realm, interest));
                self.parts.sort_by_key(Part::key);
                self.greeting |= wildcard;
                self.fresh = true;
            }
            (None, None) => {}
        }
        old
    }

    /// Names leave a part. If the wildcard or a glob has other content of a name, the client must be sent
    /// that content now.
    fn fall_back_to_wildcard(&mut self, at: usize, interest: Option<&Interest>) {
        let part = &self.parts[at];
        let Interest::Names(old) = &part.interest else { return };
        let (old, held, none) = (old.clone(), part.held.clone(), NameSet::default());
        let new = match interest {
            Some(Interest::Names(names)) => names,
            _ => &none,
        };
        for broad in self.parts.iter_mut().filter(|part| part.is_broad()) {
            for name in old.minus(new) {
                let (own, other) = (held.version_of(name), broad.held.version_of(name));
                if own.is_some() && other.is_some() && own != other {
                    broad.forget(name);
                }
            }
        }
    }

    /// The wildcard or a glob goes. The client keeps content that other parts request too (DEL-9, SUB-13,
    /// NAM-17).
    fn keep_of_broad(&mut self, left: &View) {
        for part in &mut self.parts {
            part.take_over(left, |_| true);
        }
    }

    /// Keeps names in doubt: a name that leaves one part with this answer is not removed while the other
    /// part does not know the name yet (DEL-22, RLY-2). The client's content moves to the other part.
    pub fn keep_in_doubt(&mut self, answer: &Answer) {
        let first_names = self.parts.iter().take_while(|part| part.is_broad()).count();
        let (broad, names) = self.parts.split_at_mut(first_names);
        let (of_broad, of_names) = answer.parts.split_at(first_names.min(answer.parts.len()));
        for (broad, of_broad) in broad.iter_mut().zip(of_broad) {
            for (part, answered) in names.iter_mut().zip(of_names) {
                let left = part.held.names().filter(|name| !answered.view.has(name) && broad.held.has(name));
                let left = left.filter(|name| of_broad.may_have(name));
                let left: Vec<_> =
                    left.filter_map(|name| Some((name, part.held.version_of(name)?))).collect();
                if !left.is_empty() {
                    Arc::make_mut(&mut broad.held).hold(left.into_iter(), std::iter::empty());
                }
                if !answered.view.is_complete() {
                    let in_doubt =
                        |name: &ResourceName| answered.is_in_doubt(name) && !of_broad.view.has(name);
                    part.take_over(&broad.held, in_doubt);
                }
            }
        }
    }

    /// Notes the versions of a reconnecting delta client (DEL-29 to DEL-31) in the parts that cover the
    /// names.
    pub fn present(
        &mut self,
        versions: &[(ResourceName, String)],
        seed: HashSeed,
        share: &dyn Fn(View) -> Arc<View>,
    ) {
        let key =
            |name: &ResourceName| key_of(name, &self.type_url).ok().flatten().unwrap_or_else(|| name.clone());
        let versions: Vec<_> = versions.iter().map(|(name, version)| (key(name), version)).collect();
        self.presented_bytes = versions.iter().map(|(name, _)| weight(name)).sum();
        for part in self.parts.iter_mut().filter(|_| !planted(Bug::PresentedIgnored)) {
            let held = versions.iter().filter(|(name, _)| part.interest.covers(name));
            // A version from another server matches no content (RLY-32).
            let held =
                held.map(|(name, version)| (name.clone(), Version::parse(version).unwrap_or_default()));
            part.hold(share(View::presented(held, seed)));
        }
    }
}

fn fingerprint_of(names: &[ResourceName], seed: HashSeed) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    seed.0.hash(&mut hasher);
    names.hash(&mut hasher);
    hasher.finish()
}
