//! One type on the stream: the wanted resources, the written requests, and the chain of nonces.

mod currency;
mod exchange;
mod marks;

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::Time;
use crate::engine::upstream::api::Lower;
use crate::engine::upstream::api::{Changes, Event, Wanted};
use crate::engine::upstream::confirmation::Confirmation;
use crate::engine::upstream::failover::Stash;
use crate::engine::upstream::globs::Globs;
use crate::engine::upstream::names::Names;
use crate::engine::upstream::proof::Currency;
use crate::engine::upstream::request_size::Part;
use crate::engine::upstream::response::Digest;
use crate::engine::upstream::said::Said;
use crate::engine::upstream::settling::Settling;
use crate::engine::upstream::wildcard::Wildcard;
use crate::xds::{Kind, ResourceName, TypeUrl, Variant};

/// The wanted resources of a type: the wildcard, globs or names, never two of the three.
#[derive(Debug, Default)]
pub(in crate::engine::upstream) enum Want {
    #[default]
    Nothing,
    Names(Names),
    Wildcard(Wildcard),
    Globs(Globs),
}

#[derive(Debug)]
pub(in crate::engine::upstream) struct TypeRequest {
    pub(in crate::engine::upstream) type_url: TypeUrl,
    pub(in crate::engine::upstream) want: Want,
    pub(in crate::engine::upstream) said: Said,
    /// SotW: the last accepted `version_info`. It outlives the stream (STR-9).
    pub(in crate::engine::upstream) accepted: String,
    /// The held resources are no longer those of `accepted`: a response was rejected and applied in part, or a
    /// resource expired.
    pub(in crate::engine::upstream) is_astray: bool,
    pub(in crate::engine::upstream) currency: Currency,
    /// The first answers on this stream, if the answers come in parts.
    pub(in crate::engine::upstream) first: Settling,
    /// The confirmation of the wildcard on this stream.
    pub(in crate::engine::upstream) confirmation: Option<Confirmation>,
    /// A response was rejected on this stream.
    pub(in crate::engine::upstream) is_rejected: bool,
    pub(in crate::engine::upstream) stash: Option<Box<Stash>>,
    pub(in crate::engine::upstream) acks: u64,
    pub(in crate::engine::upstream) nacks: u64,
}

/// The maximum number of names that wait until they may leave.
const LEAVING_MAX: usize = 1000;

fn star() -> ResourceName {
    ResourceName::new("*")
}

impl TypeRequest {
    pub(in crate::engine::upstream) fn new(type_url: TypeUrl) -> Self {
        let (want, said, accepted, currency, first, stash) = Default::default();
        let is_astray = false;
        let is_rejected = false;
        TypeRequest {
            type_url,
            want,
            said,
            accepted,
            is_astray,
            currency,
            first,
            confirmation: None,
            is_rejected,
            stash,
            acks: 0,
            nacks: 0,
        }
    }

    pub(in crate::engine::upstream) fn wants_nothing(&self) -> bool {
        matches!(self.want, Want::Nothing)
    }

    /// Returns true if a change waits for a request.
    pub(in crate::engine::upstream) fn has_news(&self) -> bool {
        let leaves = !self.said.leave.is_empty() && !self.holds_leaving();
        !(self.said.enter.is_empty() || self.said.is_full) || leaves
    }

    /// Whether names that leave wait for a request with names that enter. istiod takes a request of such a type that names nothing
    /// new for one of nothing at all, and answers by removing all that the stream has.
    pub(in crate::engine::upstream) fn holds_leaving(&self) -> bool {
        self.leaves_in_company() && self.said.enter.is_empty()
    }

    pub(in crate::engine::upstream) fn leaves_in_company(&self) -> bool {
        self.type_url.is_sent_unasked() && matches!(self.want, Want::Names(_))
    }

    /// Returns true if a request for `wanted` cannot follow the type's requests on this stream. A wildcard
    /// stands in the first request of its type on a stream, or not at all. Otherwise a response to an earlier
    /// request would look like the whole membership. A legacy wildcard cannot be left again either (RLY-19).
    /// Globs after names have the same problem.
    pub(in crate::engine::upstream) fn needs_fresh_stream(&self, wanted: &Wanted) -> bool {
        let is_mixed = match wanted {
            Wanted::Wildcard => true,
            Wanted::Globs(_) => !self.said.for_globs,
            Wanted::Names(_) => false,
        };
        self.said.asked && (is_mixed || self.said.for_wildcard)
    }

    /// Returns true if `wanted` takes up a name again before the unsubscription was written. The server
    /// would see no change and send nothing, so the two need separate requests (RLY-59).
    pub(in crate::engine::upstream) fn must_leave_first(&self, wanted: &Wanted) -> bool {
        match wanted {
            Wanted::Wildcard => false,
            // The server answers for a name as often as it is asked.
            Wanted::Names(_) if self.leaves_in_company() => false,
            Wanted::Names(names) | Wanted::Globs(names) => {
                names.iter().any(|name| self.said.leave.contains(name))
            }
        }
    }

    /// Returns true if all of `wanted` is wanted already.
    pub(in crate::engine::upstream) fn wants(&self, wanted: &Wanted) -> bool {
        match (&self.want, wanted) {
            (Want::Wildcard(_), Wanted::Wildcard) => true,
            (Want::Names(wanted), Wanted::Names(names)) => names.iter().all(|name| wanted.contains(name)),
            _ => false,
        }
    }

    /// Accepts a good response: the version may be claimed from now on (STR-9). The exception is a complete
    /// answer to a request for less than is wanted by now: a server may look at the version only, and report
    /// no change.
    pub(in crate::engine::upstream) fn accept(&mut self, digest: &Digest) {
        if !(digest.answers_all && self.has_news()) {
            self.accepted.clone_from(&digest.version_info);
            self.is_astray = false;
        }
    }

    /// SotW: the version of the response, if it is lower than the last accepted version (FU21).
    pub(in crate::engine::upstream) fn lower(&self, digest: &Digest) -> Option<Lower> {
        Lower::of(None, &digest.version_info, &self.accepted)
    }

    /// Notes a response with its effects, which may be none.
    pub(in crate::engine::upstream) fn note_response(
        &mut self,
        changes: Option<&Changes>,
        events: &[Event],
        now: Time,
    ) {
        let by_name = matches!(self.want, Want::Names(_));
        self.said.repetition.note(changes, events, by_name, now);
    }

    /// Adds wanted resources. Resources of another kind replace the previous resources.
    pub(in crate::engine::upstream) fn add(&mut self, wanted: Wanted) {
        if self.wants_nothing() {
            // A server may keep silent to a client that claims a version (STR-10), but nothing is held.
            self.accepted.clear();
            self.stash = None;
        }
        match (&mut self.want, wanted) {
            (Want::Wildcard(_), Wanted::Wildcard) => {}
            (Want::Names(wanted), Wanted::Names(names)) => {
                for name in names {
                    if wanted.insert(name.clone()) {
                        if self.type_url.is_sent_unasked() {
                            self.said.leave.remove(&name);
                        }
                        self.said.enter.insert(name);
                    }
                }
            }
            (Want::Globs(wanted), Wanted::Globs(globs)) => {
                for glob in globs {
                    if wanted.insert(glob.clone()) {
                        self.said.enter.insert(glob);
                    }
                }
            }
            (_, Wanted::Globs(globs)) if !globs.is_empty() => {
                self.drop_all();
                self.want = Want::Globs(Globs::default());
                self.add(Wanted::Globs(globs));
            }
            (_, Wanted::Wildcard) => {
                self.drop_all();
                self.want = Want::Wildcard(Wildcard::default());
                self.said.enter.insert(star());
            }
            (_, Wanted::Names(names)) if !names.is_empty() => {
                self.drop_all();
                self.want = Want::Names(Names::default());
                self.add(Wanted::Names(names));
            }
            (_, Wanted::Names(_) | Wanted::Globs(_)) => {}
        }
    }

    /// A SotW request adds these names.
    pub(in crate::engine::upstream) fn asks_more(
        &mut self,
        names: &BTreeSet<ResourceName>,
        due: Time,
        signs: u64,
    ) {
        if !matches!(self.want, Want::Names(_)) {
            return;
        }
        if self.said.asked {
            self.said.silence.added.extend(names.iter().cloned());
        }
        self.said.silence.asked(due, signs);
    }

    pub(in crate::engine::upstream) fn drop(&mut self, wanted: Wanted) {
        self.said.is_full = false;
        match (&mut self.want, wanted) {
            (Want::Wildcard(_), Wanted::Wildcard) => self.drop_all(),
            (Want::Names(wanted), Wanted::Names(names)) => {
                for name in names {
                    self.said.silence.added.remove(&name);
                    self.said.repetition.forget(&name);
                    // The server has removed the name, and counts it as subscribed no more.
                    let is_gone = self.type_url.is_sent_unasked() && wanted.is_gone(&name);
                    let is_said = wanted.remove(&name) && !self.said.withdraw(&name);
                    if is_said && !is_gone {
                        self.said.leave.insert(name);
                    }
                }
                if self.type_url.is_sent_unasked() && self.said.leave.len() > LEAVING_MAX {
                    // The server goes on with their updates, and the clients are given them again.
                    self.said.leave.clear();
                }
                if wanted.is_empty() {
                    self.want = Want::Nothing;
                }
            }
            (Want::Globs(wanted), Wanted::Globs(globs)) => {
                self.said.repetition.forget_all();
                for glob in globs {
                    if wanted.remove(&glob) && !self.said.withdraw(&glob) {
                        self.said.leave.insert(glob);
                    }
                }
                if wanted.is_empty() {
                    self.want = Want::Nothing;
                }
            }
            _ => {}
        }
    }

    fn drop_all(&mut self) {
        self.said.repetition.forget_all();
        let names = match std::mem::take(&mut self.want) {
            Want::Nothing => Vec::new(),
            Want::Names(names) => names.iter().cloned().collect(),
            Want::Globs(globs) => globs.iter().cloned().collect(),
            Want::Wildcard(_) => vec![star()],
        };
        for name in names {
            if !self.said.withdraw(&name) {
                self.said.leave.insert(name);
            }
        }
    }

    /// The complete list of names (SUB-1); `*` for the wildcard.
    pub(in crate::engine::upstream) fn listed(&self) -> Vec<ResourceName> {
        match &self.want {
            Want::Nothing => Vec::new(),
            Want::Names(names) => names.iter().cloned().collect(),
            Want::Globs(globs) => globs.iter().cloned().collect(),
            Want::Wildcard(_) => vec![star()],
        }
    }

    /// The server's own version strings of held resources (RLY-64), sorted by name.
    pub(in crate::engine::upstream) fn versions(&self) -> BTreeMap<ResourceName, String> {
        match &self.want {
            Want::Nothing => BTreeMap::new(),
            Want::Names(names) => names.versions(self.type_url.kind() == Kind::VirtualHost),
            Want::Globs(globs) => globs.versions(),
            Want::Wildcard(wildcard) => {
                let held = wildcard.members.iter().filter(|(_, held)| held.restate);
                held.map(|(name, held)| (name.clone(), held.version.to_string())).collect()
            }
        }
    }

    /// Records the write of a request that newly lists the names of `part`. Timers of new names run until `due`.
    pub(in crate::engine::upstream) fn written(
        &mut self,
        variant: Variant,
        part: Part,
        due: Time,
        signs: u64,
    ) {
        let is_first = !self.said.asked;
        let Part { subscribe: entered, unsubscribe, unclaimed, .. } = part;
        if self.type_url.is_sent_unasked() {
            self.said.left.note(&unsubscribe, &entered);
        }
        self.said.asked = true;
        self.said.requests += 1;
        if is_first {
            self.currency.asked(due, signs);
        }
        match &mut self.want {
            Want::Nothing => {}
            Want::Names(names) => {
                for name in &entered {
                    names.written(name, is_first, due, signs);
                }
                if is_first && variant == Variant::Sotw {
                    names.expect_all();
                }
            }
            Want::Globs(globs) => {
                self.said.for_globs |= is_first;
                if is_first {
                    globs.restated();
                    globs.doubt(&unclaimed);
                }
                globs.written(&entered, self.said.requests);
            }
            Want::Wildcard(wildcard) => {
                self.said.for_wildcard = true;
                if is_first && variant == Variant::Delta {
                    wildcard.restated();
                    wildcard.doubt(unclaimed);
                }
            }
        }
    }

    pub(in crate::engine::upstream) fn stream_ended(&mut self) {
        self.said = Said { enter: self.listed().into_iter().collect(), ..Said::default() };
        (self.first, self.confirmation, self.is_rejected) = Default::default();
        match &mut self.want {
            Want::Nothing => {}
            Want::Names(names) => names.stream_ended(),
            Want::Globs(globs) => globs.stream_ended(),
            Want::Wildcard(wildcard) => {
                // A server may answer a claimed version by silence, and the membership would stay incomplete.
                if !wildcard.complete {
                    self.accepted.clear();
                }
                wildcard.stream_ended();
            }
        }
    }

    /// The other variant of the protocol does not know the versions of the present variant.
    pub(in crate::engine::upstream) fn forget_versions(&mut self) {
        self.accepted.clear();
        match &mut self.want {
            Want::Nothing => {}
            Want::Names(names) => names.forget_versions(),
            Want::Globs(globs) => globs.forget_versions(),
            Want::Wildcard(wildcard) => wildcard.members.values_mut().for_each(|held| held.forget_version()),
        }
    }

    /// `is_receiving`: bytes are arriving, so that there is no silence.
    pub(in crate::engine::upstream) fn next_timeout(&self, is_receiving: bool) -> Option<Time> {
        let of_want = match &self.want {
            Want::Nothing => return None,
            Want::Names(names) => names.next_due().filter(|_| !is_receiving),
            Want::Globs(globs) => globs.next_due(),
            Want::Wildcard(_) => None,
        };
        let silence = [self.currency.due(), self.said.silence.due()];
        let silence = silence.into_iter().flatten().min().filter(|_| !is_receiving);
        let confirmation = self.confirmation.and_then(Confirmation::due).filter(|_| !is_receiving);
        of_want.into_iter().chain(self.first.due()).chain(silence).chain(confirmation).min()
    }

    /// Visits everything with first answers in parts.
    pub(in crate::engine::upstream) fn each_settling(&mut self, mut visit: impl FnMut(&mut Settling)) {
        visit(&mut self.first);
        if let Want::Globs(globs) = &mut self.want {
            globs.each_settling(visit);
        }
    }

    /// Settles the sets that are completely known by now, and confirms those that are proven, if any. `wait`: a confirmation
    /// that begins now.
    pub(in crate::engine::upstream) fn settle(&mut self, wait: Confirmation) -> Option<Changes> {
        let has_settled = self.first.settle();
        if has_settled {
            self.currency.settled(self.is_rejected);
        }
        // A mark is about the whole set.
        let has_marks = self.said.has_marks;
        match &mut self.want {
            Want::Wildcard(wildcard) => {
                if has_settled && !wildcard.is_confirmed {
                    self.confirmation = Some(wait);
                }
                if has_settled && has_marks || self.confirmation.is_some_and(Confirmation::is_proven) {
                    (wildcard.is_confirmed, self.confirmation) = (true, None);
                }
                if !has_settled {
                    return None;
                }
                let was_complete = wildcard.complete;
                let gone = wildcard.settle();
                let is_news = !was_complete || !gone.is_empty();
                is_news.then(|| Changes::of_settled(&self.type_url, gone))
            }
            Want::Globs(globs) => globs.settle_proven(&self.type_url),
            Want::Nothing | Want::Names(_) => None,
        }
    }

    pub(in crate::engine::upstream) fn check_invariants(&self, is_open: bool) {
        let (count, wants): (usize, &dyn Fn(&ResourceName) -> bool) = match &self.want {
            Want::Nothing => (0, &|_| false),
            Want::Names(names) => (names.len(), &|name| names.contains(name)),
            Want::Globs(globs) => (globs.len(), &|glob| globs.contains(glob)),
            Want::Wildcard(_) => (1, &ResourceName::is_wildcard),
        };
        debug_assert!(self.wants_nothing() || count > 0, "an empty list of names is no wanted");
        debug_assert!(self.said.enter.iter().all(wants), "what enters is wanted");
        debug_assert!(!self.said.leave.iter().any(wants), "what leaves is not wanted");
        if !self.said.asked {
            debug_assert_eq!(self.said.enter.len(), count, "all of it enters by the first request");
            debug_assert!(self.said.leave.is_empty() && self.said.nonce.is_empty());
        }
        debug_assert!(self.said.asked || count > 0, "no first request says that nothing is wanted");
        debug_assert!(is_open || !self.said.asked, "nothing is said without a stream");
        if let Want::Names(names) = &self.want {
            names.check_invariants(is_open);
        }
    }
}
