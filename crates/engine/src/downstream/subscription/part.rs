//! One collection of one source in a subscription, and the client's content.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::Time;
use crate::authority::NameGroup;
use crate::collection::{Collection, CollectionKind, NameSet};
use crate::downstream::answer::Rest;
use crate::downstream::answer::rest::ToldNames;
use crate::downstream::answer::{Answer, AnswerPart};
use crate::downstream::order::acknowledged::RejectedContent;
use crate::downstream::order::turn::Turn;
use crate::downstream::order::withheld::{Holder, Waits, Withheld, withhold};
use crate::downstream::sources::{Asked, SourceId};
use crate::snapshot::{Snapshot, TypeSnapshot};
use crate::view::{View, ViewId};
use sluice_xds::{ResourceName, TypeUrl, Variant, Version};

/// Identifies a part within a subscription. Parts are sorted by this key.
pub type Key = (CollectionKind, NameGroup);

/// One collection of one source in a subscription.
#[derive(Clone, Debug)]
pub struct Part {
    pub asked: Asked,
    /// The sources by another configuration, asked beside until the session moves to them (REL-6).
    pub next: Option<Box<Asked>>,
    pub group: NameGroup,
    pub collection: Collection,
    /// The client's content: the last view that was sent, with older content of names that this view did
    /// not know.
    pub held: Arc<View>,
    /// The view of the last answer; `None` if the part must be looked at again, whatever the source has.
    pub(in crate::downstream) at: Option<ViewId>,
    /// The changes of the source up to this number are settled, or were before the subscription.
    pub(super) seen: u64,
    /// Removals that the client is not told yet (RLY-51).
    pub withheld: Option<Box<Withheld>>,
    /// The client's content before the first unanswered response.
    pub before: Option<Arc<View>>,
    /// Rejected content, until the client accepts other content.
    pub rejected: Option<Box<RejectedContent>>,
    /// The client has ACKed nothing since it asks for this wildcard or these globs.
    pub(super) is_first: bool,
    /// The client has content of the wildcard from elsewhere (ADR 52).
    pub(in crate::downstream) is_returning: bool,
}

impl Part {
    pub(super) fn new(asked: Asked, group: NameGroup, collection: Collection) -> Part {
        let is_first = collection.kind().is_broad();
        Part {
            asked,
            next: None,
            group,
            collection,
            held: Arc::default(),
            at: None,
            seen: 0,
            withheld: None,
            before: None,
            rejected: None,
            is_first,
            is_returning: false,
        }
    }

    /// Notes whether the client has content of the wildcard from elsewhere.
    pub(in crate::downstream) fn bring_if(&mut self, brings: bool) {
        self.is_returning |= brings && self.is_wildcard();
    }

    /// The source that serves the part.
    pub fn source(&self) -> SourceId {
        self.asked.source
    }

    /// The sources that serve the part, or will.
    pub fn bound_for(&self) -> &Asked {
        self.next.as_deref().unwrap_or(&self.asked)
    }

    /// Whether the part will have another source.
    pub fn is_moving(&self) -> bool {
        self.next.as_ref().is_some_and(|next| next.source != self.asked.source)
    }

    /// All sources that are asked, each once.
    pub fn sources(&self) -> impl Iterator<Item = SourceId> {
        let next = self.next.iter().flat_map(|next| next.sources());
        self.asked.sources().chain(next.filter(|source| self.asked.sources().all(|asked| asked != *source)))
    }

    /// The changes of the source up to this number are none for the client.
    pub fn begin_changes(&mut self, number: u64) {
        self.seen = number;
    }

    /// Whether an answer may be due for a view, or for a view with withheld names (see [`Part::due`]).
    pub fn is_behind(&self, due: ViewId) -> bool {
        self.at != Some(due)
    }

    /// Notes that the client was sent everything of a part of an answer.
    pub fn bring_to(&mut self, answer: &Answer, to: &AnswerPart) {
        self.held = self.held.brought_to(&to.view, |name| answer.leaves(to, name), answer.deletes());
        self.at = Some(to.due);
    }

    /// Content that an alias brought is the client's content of the resource's own name, too, and of its
    /// other aliases, though the source does not know these names (ALI-1).
    pub(super) fn follow_aliases(&mut self, to: &AnswerPart, type_url: &TypeUrl) {
        let Some(types) = to.snapshot.of(type_url).filter(|types| !types.names.aliases.is_empty()) else {
            return;
        };
        if to.view.is_complete() {
            return;
        }
        let own_of = |name| types.names.aliases.get(name).map_or(name, |aliased| aliased.name());
        let changed = to.held.differing(&to.view);
        let brought = changed.filter_map(|name| Some((own_of(name), to.view.version_of(name)?)));
        let brought: BTreeMap<_, _> = brought.collect();
        let held = self.held.beside(&to.view).collect::<Vec<_>>();
        let held = held.iter().filter_map(|(name, held)| {
            let version = brought.get(own_of(name)).filter(|version| *version != held)?;
            Some((name, *version))
        });
        let is_new = |name: &ResourceName| to.is_in_doubt(name) && !self.held.has(name);
        let new = brought.iter().filter(|(name, _)| is_new(name));
        let other: Vec<_> = held.chain(new.map(|(name, version)| (*name, *version))).collect();
        if !other.is_empty() {
            self.hold_also(other.into_iter());
        }
    }

    /// Notes that the client already has the whole view.
    pub fn have(&mut self, view: &Arc<View>, due: ViewId) {
        (self.held, self.at, self.is_first) = (view.clone(), Some(due), false);
    }

    /// Keeps the client's former errors: no message told the client of new errors (SST-7).
    pub fn keep_errors(&mut self, before: &View) {
        if !(before.annotations().is_empty() && self.held.annotations().is_empty()) {
            Arc::make_mut(&mut self.held).without_errors_since(before);
        }
    }

    /// Replaces the record of the client's content.
    pub(super) fn hold(&mut self, held: Arc<View>) {
        self.held = held;
        self.at = None;
    }

    /// The view of the collection. The part takes the copy of the names that all subscribers of the same
    /// names share (ADR 22).
    pub(super) fn look_up<'a>(&mut self, types: &'a TypeSnapshot) -> Option<&'a Arc<View>> {
        if self.is_wildcard() {
            return types.wildcard.view.as_ref();
        }
        let set = types.watched(&self.collection)?;
        if let Collection::Globs(names) | Collection::Names(names) = &mut self.collection
            && !Arc::ptr_eq(names, &set.names)
        {
            names.clone_from(&set.names);
        }
        Some(&set.view)
    }

    /// Notes content that the client may have beside the part's own.
    pub(super) fn hold_also<'a>(&mut self, content: impl Iterator<Item = (&'a ResourceName, Version)>) {
        Arc::make_mut(&mut self.held).hold(content, std::iter::empty());
        self.at = None;
    }

    /// Keeps content that the client accepted through another part. The client has not answered yet for what
    /// this part sends (TRU-1).
    pub(super) fn keep_accepted<'a>(&mut self, content: impl Iterator<Item = (&'a ResourceName, Version)>) {
        let is_known = |name: &ResourceName| {
            self.before.as_ref().is_some_and(|before| before.has(name) || before.knows_absent(name))
        };
        let new: Vec<_> = content.filter(|(name, _)| !is_known(name)).collect();
        if !new.is_empty() {
            let before = self.before.get_or_insert_default();
            Arc::make_mut(before).hold(new.into_iter(), std::iter::empty());
        }
    }

    /// Takes over content of names in the collection that another part brought.
    pub(super) fn take_over(&mut self, other: &View, which: impl Fn(&ResourceName) -> bool) {
        if self.is_wildcard() {
            return;
        }
        let candidates: Vec<_> = match self.collection.named() {
            Some(names) => names.iter().collect(),
            None => other.names().filter(|name| self.collection.covers(name)).collect(),
        };
        let brought = candidates.into_iter().filter(|name| !self.held.has(name) && which(name));
        let brought: Vec<_> = brought.filter_map(|name| Some((name, other.version_of(name)?))).collect();
        if !brought.is_empty() {
            let held = Arc::make_mut(&mut self.held);
            held.keep_known_of(other, &brought);
            held.hold(brought.into_iter(), std::iter::empty());
            self.at = None;
        }
    }

    /// Takes over what the client holds of names that came from other parts of the same kind.
    pub fn inherit(&mut self, left: &[(CollectionKind, Arc<View>)]) {
        let kind = self.kind();
        for (_, left) in left.iter().filter(|(left_kind, _)| *left_kind == kind) {
            if let Some(names) = self.collection.named() {
                let is_new = |name: &&ResourceName| !self.held.has(name) && !self.held.knows_absent(name);
                let came: Vec<_> =
                    names.iter().filter(is_new).filter(|name| left.knows_absent(name)).collect();
                if !came.is_empty() {
                    let held = Arc::make_mut(&mut self.held);
                    held.hold(std::iter::empty(), came.iter().copied());
                    held.hold_annotations(came.into_iter(), left);
                }
            }
            self.take_over(left, |_| true);
        }
    }

    /// As [`Self::follow_aliases`], for one of several messages.
    pub(super) fn follow_sent(&mut self, message: &ToldNames, view: &View) {
        let brought = self.brought_by_aliases(message, view);
        if brought.is_empty() {
            return;
        }
        let is_new = |name: &ResourceName, version: &Version| {
            brought.contains(version)
                && self.is_unknown(name, view)
                && self.held.version_of(name) != Some(*version)
        };
        let other: Vec<_> = message.sent.iter().filter(|(name, version)| is_new(name, version)).collect();
        if !other.is_empty() {
            self.hold_also(other.into_iter().map(|(name, version)| (name, *version)));
        }
    }

    /// The versions of resources in a message that an alias leads to.
    fn brought_by_aliases(&self, message: &ToldNames, view: &View) -> BTreeSet<Version> {
        let aliases = message.aliases().filter(|alias| self.collection.covers(alias));
        aliases.filter_map(|alias| view.version_of(alias)).collect()
    }

    /// Whether the client asks for a name that the source knows nothing of.
    fn is_unknown(&self, name: &ResourceName, view: &View) -> bool {
        let is_named = self.names().is_some_and(|names| names.contains(name));
        is_named && !view.has(name) && !view.knows_absent(name)
    }

    /// Whether the client's content and the collection are the ones that an answer began with, and the
    /// content is the same for all clients with its id.
    pub(super) fn is_as_answered(&self, answered: &AnswerPart) -> bool {
        let names = |collection: &Collection| collection.names().map(|names| names.id());
        Arc::ptr_eq(&self.held, &answered.held)
            && !self.held.is_due_in_part()
            && self.kind() == answered.collection.kind()
            && names(&self.collection) == names(&answered.collection)
    }

    /// Notes one of several messages that bring the client to a view.
    pub(super) fn hold_chunk(&mut self, message: &ToldNames, view: &View) {
        let sent = message.sent.iter().map(|(name, version)| (name, *version));
        let held = Arc::make_mut(&mut self.held);
        // The message also replaces the client's content of names that left the collection.
        let is_left = |name: &ResourceName| !self.collection.covers(name) && held.has(name);
        let (sent, other): (Vec<_>, Vec<_>) =
            sent.partition(|(name, version)| view.version_of(name) == Some(*version) || is_left(name));
        // Content from the wildcard or a glob replaced the client's content of a name (SUB-12).
        if self.collection.named().is_some() {
            let replaced: Vec<_> = other.into_iter().filter(|(name, _)| held.has(name)).collect();
            replaced.into_iter().for_each(|(name, _)| held.let_go(name));
        }
        held.hold(sent.into_iter(), message.removed.iter().filter(|name| self.collection.covers(name)));
        self.follow_sent(message, view);
        let held = Arc::make_mut(&mut self.held);
        if !(held.annotations().is_empty() && view.annotations().is_empty()) {
            // An error in a later message is not told yet, even if the resource of its name is.
            held.hold_leases(message.names(), view, true);
            held.hold_leases(message.beats.iter(), view, false);
            held.hold_annotations(message.errors.iter(), view);
        }
    }

    /// Makes the name due again, whatever the client holds; for a glob, all its members.
    pub(super) fn forget(&mut self, name: &ResourceName) {
        if self.kind() == CollectionKind::Globs && name.is_glob() {
            let members: Vec<_> =
                self.held.names().filter(|member| member.glob().as_ref() == Some(name)).cloned().collect();
            for member in &members {
                self.forget(member);
            }
        }
        let has_error = self.held.annotations().error(name).is_some();
        if self.held.has(name) || self.held.knows_absent(name) || has_error {
            View::forget(&mut self.held, name);
            self.at = None;
        }
    }

    /// Notes that the client gave the name up, and no longer has the resource.
    pub(super) fn let_go(&mut self, name: &ResourceName) {
        if self.held.has(name)
            || self.held.knows_absent(name)
            || self.held.annotations().error(name).is_some()
        {
            Arc::make_mut(&mut self.held).let_go(name);
            self.at = None;
        }
    }

    pub fn kind(&self) -> CollectionKind {
        self.collection.kind()
    }

    pub fn key(&self) -> Key {
        (self.collection.kind(), self.group)
    }

    pub fn is_wildcard(&self) -> bool {
        matches!(self.collection, Collection::Wildcard)
    }

    pub fn is_broad(&self) -> bool {
        self.kind().is_broad()
    }

    /// The requested names or globs; `None` for the wildcard.
    pub fn names(&self) -> Option<&Arc<NameSet>> {
        self.collection.names()
    }

    pub(in crate::downstream) fn withheld(&self) -> Option<&Withheld> {
        self.withheld.as_deref().filter(|withheld| withheld.is_of(self.source()))
    }

    /// One of the withheld names, with the start of its wait; for reports.
    pub(in crate::downstream) fn withheld_name(
        &self,
        type_url: &TypeUrl,
        turn: &Turn<'_>,
    ) -> Option<(ResourceName, Time)> {
        self.withheld()?.first_name(&self.held, self.view_in(turn, type_url)?)
    }

    /// The views with withheld names.
    pub fn keeps(&self) -> Vec<Arc<View>> {
        self.withheld().map_or_else(Vec::new, Withheld::keeps)
    }

    /// Identifies the client's target while the source has `view`.
    pub fn due(&self, view: &View) -> ViewId {
        self.withheld().map_or_else(|| view.id(), |withheld| withheld.due(view))
    }

    /// The view of the part's collection in these snapshots.
    pub(in crate::downstream) fn view_in<'a>(
        &self,
        turn: &Turn<'a>,
        type_url: &TypeUrl,
    ) -> Option<&'a Arc<View>> {
        turn.snapshot(self.source())?.of(type_url)?.view(&self.collection)
    }

    /// Whether `view` has news for the client. Unknown names are no news.
    pub(super) fn has_news(&self, view: Option<&Arc<View>>) -> bool {
        match view {
            None => !self.held.is_empty(),
            Some(view) => self.is_behind(view.id()) && !(self.held.is_empty() && view.is_empty()),
        }
    }

    /// Withholds removals, and lets removals go whose wait is over. Returns the time of the next look if no
    /// event comes first.
    pub(in crate::downstream) fn withhold(
        &mut self,
        types: &TypeSnapshot,
        view: &Arc<View>,
        waits: &Waits<'_>,
        turn: &Turn<'_>,
    ) -> Option<Time> {
        let (source, kind, is_behind) = (self.source(), self.kind(), self.is_behind(view.id()));
        let last = |name: &ResourceName| {
            let held = || self.held.version_of(name);
            types.departed_as(kind, name, held).map(|resource| resource.version)
        };
        let holder = Holder { source, held: &self.held, kind, is_behind, last: &last };
        withhold(&mut self.withheld, &holder, view, waits, turn)
    }

    /// Notes that the client was sent the messages of an answer so far. `index`: the part's place in the
    /// answer. All clients that had the same content share the content after each message.
    pub(super) fn hold_sent(&mut self, index: usize, answer: &Answer, rest: &Rest) {
        let Some(answered) = answer.parts.get(index) else { return };
        let view = rest.targets.get(index).unwrap_or(&answered.view);
        let mut is_shared = self.is_as_answered(answered);
        for message in rest.told_names.iter().take(answer.chunk) {
            let made = || {
                let mut made = self.clone();
                made.hold_chunk(message, view);
                made.held
            };
            match is_shared.then(|| message.so_far(index, made)).flatten() {
                Some(held) => self.held.clone_from(held),
                None => {
                    is_shared = false;
                    self.hold_chunk(message, view);
                }
            }
        }
    }

    /// The content before a response, and before all that the client rejected earlier and never accepted.
    /// `sent`: the content with the response.
    pub(super) fn before_rejected(&self, before: Arc<View>, sent: &View) -> Arc<View> {
        match &self.rejected {
            Some(rejected) => rejected.before_again(before, sent),
            None => before,
        }
    }

    /// Notes an ACK of all responses. An ACK of other content accepts nothing that was rejected, as the ACK
    /// of a removal. `earlier`: the content before the second unanswered response; `full`: the client
    /// accepted a complete set.
    pub(super) fn accept(&mut self, earlier: Option<&Arc<View>>, full: bool, variant: Variant) {
        self.is_first &= self.at.is_none();
        let Some(rejected) = self.rejected.take() else { return };
        let before = earlier.or(self.before.as_ref());
        // The client accepted the complete set, or every rejected name with other content or once more.
        let stands =
            !full && rejected.stands(before.map(|before| &**before), &self.held, self.kind(), variant);
        self.rejected = Some(rejected).filter(|_| stands);
    }

    /// Notes a rejection: the client keeps its former content. `newest`: the content with all messages of an
    /// unfinished answer; `after`: the content with the rejected response, if a later response is unanswered;
    /// `is_older`: such a response may still be accepted (NON-1).
    pub(super) fn reject(&mut self, newest: Option<&Arc<View>>, after: Option<&Arc<View>>, is_older: bool) {
        let sent = after.or(newest).unwrap_or(&self.held).clone();
        let before = self.before.take().unwrap_or_else(|| self.held.clone());
        if is_older {
            self.before = Some(if after.is_some() { before.clone() } else { self.held.clone() });
        }
        if before.id() != sent.id() {
            let before = self.before_rejected(before, &sent);
            self.rejected = Some(Box::new(RejectedContent { before, sent }));
        }
    }

    /// Whether the client has accepted this version of a name; with `None`, that it has no resource. What a
    /// first answer leaves out is not accepted before its ACK.
    pub fn has_accepted(&self, name: &ResourceName, version: Option<Version>) -> bool {
        let is_first =
            || self.before.as_ref().is_some_and(|before| self.is_first || before.id() == ViewId::default());
        self.accepted(name) == version && !(version.is_none() && is_first())
    }

    /// Whether the client was sent nothing of the part yet, and had no resource of the name before.
    pub fn never_had(&self, name: &ResourceName) -> bool {
        let had = || self.before.as_ref().is_some_and(|before| before.has(name));
        self.at.is_none() && self.held.is_empty() && !had()
    }

    /// Whether the client neither was sent anything nor presented anything. An unanswered removal of all
    /// names is something.
    pub fn is_untouched(&self) -> bool {
        let had_nothing = self.before.as_ref().is_none_or(|before| before.is_empty());
        self.at.is_none() && self.held.is_empty() && had_nothing
    }

    /// The version of a name that the client has accepted.
    pub(super) fn accepted(&self, name: &ResourceName) -> Option<Version> {
        let accepted = accepted_view(&self.held, self.before.as_ref(), self.rejected.as_deref(), name);
        accepted.known_version_of(name)
    }

    /// The client's accepted content, but for rejected names.
    pub(super) fn answered_content(&self) -> &Arc<View> {
        self.before.as_ref().unwrap_or(&self.held)
    }

    /// Whether nothing but new content can be due.
    pub(super) fn is_at_rest(&self) -> bool {
        self.at.is_some()
            && self.next.is_none()
            && self.withheld.is_none()
            && self.rejected.is_none()
            && !self.is_returning
    }

    /// Whether nothing is in doubt for the client: the set is whole, or has everything from the client.
    /// `presented`: the one version that the client stated for all.
    pub(in crate::downstream) fn has_returned(
        &self,
        snapshot: &Snapshot,
        type_url: &TypeUrl,
        presented: Option<Version>,
    ) -> bool {
        let Some(view) = snapshot.of(type_url).and_then(|types| types.view(&self.collection)) else {
            return false;
        };
        let standing = snapshot.standing().of(type_url);
        if !standing.is_some_and(|standing| standing.is_provisional) {
            return view.is_complete();
        }
        match self.held.is_empty() {
            // In SotW a client states one version for all.
            true => presented == Some(view.digest()),
            false => self.held.len() <= view.len() && self.held.beside(view).next().is_none(),
        }
    }

    /// The part of an answer that brings the client to a view.
    pub(super) fn answered(
        &self,
        snapshot: &Arc<Snapshot>,
        types: &TypeSnapshot,
        view: &Arc<View>,
    ) -> AnswerPart {
        AnswerPart {
            source: self.source(),
            collection: self.collection.clone(),
            held: self.held.clone(),
            view: view.clone(),
            keeps: self.keeps(),
            due: self.due(view),
            last_bytes: types.last_bytes(),
            snapshot: snapshot.clone(),
        }
    }
}

/// The view with the content of a name that the client accepted.
pub(super) fn accepted_view<'a>(
    sent: &'a Arc<View>,
    before: Option<&'a Arc<View>>,
    rejected: Option<&'a RejectedContent>,
    name: &ResourceName,
) -> &'a View {
    let is_rejected = |rejected: &&RejectedContent| {
        let version = rejected.sent.known_version_of(name);
        sent.known_version_of(name) == version && rejected.before.known_version_of(name) != version
    };
    rejected.filter(is_rejected).map_or(before.unwrap_or(sent), |rejected| &rejected.before)
}
