//! One type on the stream: the wanted resources, the written requests, and the chain of nonces.
//!
//! Some servers announce whole answers: other sluices (ADR 14). On a stream with such marks silence proves
//! nothing, for the server may know only as much as its own server has sent so far:
//!
//! - only a mark settles the first answers ([`super::settling`]);
//! - a resource timer makes no name absent, and only proves that the stream is alive. The server has timers
//!   of its own, and reports absences by `removed_resources`;
//! - a type is current once the server has marked the type. The server is heard as on any stream.
//!
//! A mark counts only after a usable response: an unusable response has no whole set behind it.

use std::collections::{BTreeMap, BTreeSet};

use super::api::{Changes, Event, ResourceSelection};
use super::confirmation::Confirmation;
use super::currency::Currency;
use super::exchange::TypeExchange;
use super::failover::Stash;
use super::request_size::{PartRules, PendingNames, RequestPart, RequestRoom};
use super::response::ResponseDigest;
use super::settling::Settling;
use super::want::{Want, star};
use crate::Time;
use crate::filling::Filling;
use sluice_xds::{Kind, ResourceName, SetMark, TypeUrl, Variant};

#[derive(Debug)]
pub(super) struct TypeRequest {
    pub(super) type_url: TypeUrl,
    pub(super) want: Want,
    pub(super) exchange: TypeExchange,
    /// SotW: the last accepted `version_info`. It outlives the stream (STR-9).
    pub(super) accepted: String,
    /// The held resources are no longer those of `accepted`: a response was rejected and applied in part, or
    /// a resource expired.
    pub(super) is_astray: bool,
    pub(super) currency: Currency,
    /// The first answers on this stream, if the answers come in parts.
    pub(super) first_answers: Settling,
    /// The confirmation of the wildcard on this stream.
    pub(super) confirmation: Option<Confirmation>,
    /// The state with the other server of a failover pair.
    pub(super) stash: Option<Box<Stash>>,
    pub(super) acks: u64,
    pub(super) nacks: u64,
}

/// The maximum number of names that wait until they may leave.
const LEAVING_MAX: usize = 1000;

impl TypeRequest {
    pub(super) fn new(type_url: TypeUrl) -> Self {
        TypeRequest {
            type_url,
            want: Want::Nothing,
            exchange: TypeExchange::default(),
            accepted: String::new(),
            is_astray: false,
            currency: Currency::Unasked,
            first_answers: Settling::default(),
            confirmation: None,
            stash: None,
            acks: 0,
            nacks: 0,
        }
    }

    pub(super) fn wants_nothing(&self) -> bool {
        self.want.is_nothing()
    }

    /// The first request of the type was written on this stream.
    pub(super) fn is_asked(&self) -> bool {
        self.exchange.requests.is_asked()
    }

    /// Returns true if a change waits for a request.
    pub(super) fn has_news(&self) -> bool {
        self.exchange.pending.has_news(self.part_rules())
    }

    fn part_rules(&self) -> PartRules {
        PartRules { kind: self.want.kind(), leaves_in_company: self.leaves_in_company() }
    }

    fn leaves_in_company(&self) -> bool {
        self.type_url.is_sent_unasked() && self.want.is_names()
    }

    /// Returns true if a request for the selection cannot follow the type's requests on this stream. A
    /// wildcard stands in the first request of its type on a stream, or not at all. Otherwise a response to
    /// an earlier request would look like the whole membership. A legacy wildcard cannot be left again either
    /// (RLY-19). Globs after names have the same problem.
    pub(super) fn needs_fresh_stream(&self, selection: &ResourceSelection) -> bool {
        let requests = &self.exchange.requests;
        let is_mixed = match selection {
            ResourceSelection::Wildcard => true,
            ResourceSelection::Globs(_) => !requests.for_globs,
            ResourceSelection::Names(_) => false,
        };
        requests.is_asked() && (is_mixed || requests.for_wildcard)
    }

    /// Returns true if the selection takes up a name again before the unsubscription was written. The server
    /// would see no change and send nothing, so the two need separate requests (RLY-59).
    pub(super) fn must_leave_first(&self, selection: &ResourceSelection) -> bool {
        // The server answers for a name as often as it is asked.
        let is_answered = !selection.kind().is_broad() && self.leaves_in_company();
        let mut names = selection.names().into_iter().flatten();
        !is_answered && names.any(|name| self.exchange.pending.leave.contains(name))
    }

    /// Adds wanted resources. Resources of another kind replace the previous resources.
    pub(super) fn add(&mut self, selection: ResourceSelection) {
        if self.wants_nothing() {
            // A server may keep silent to a client that claims a version (STR-10), but nothing is held.
            self.accepted.clear();
            self.stash = None;
        }
        let (kind, names) = (selection.kind(), selection.into_names());
        if self.want.kind() != Some(kind) {
            if names.as_ref().is_some_and(Vec::is_empty) {
                return;
            }
            self.drop_all();
            self.want = Want::new(kind);
            self.exchange.pending.enter.extend(names.is_none().then(star));
        }
        let (leaves_in_company, pending) = (self.leaves_in_company(), &mut self.exchange.pending);
        // In the order that fills the nodes of a new map.
        for name in names.into_iter().flat_map(|names| Filling::Full.order(names)) {
            if self.want.insert(name.clone()) {
                if leaves_in_company {
                    pending.leave.remove(&name);
                }
                pending.enter.insert(name);
            }
        }
    }

    /// Removes wanted resources.
    pub(super) fn drop(&mut self, selection: ResourceSelection) {
        let TypeExchange { pending, silence, repetition, .. } = &mut self.exchange;
        pending.is_full = false;
        match (&mut self.want, selection) {
            (Want::Wildcard(_), ResourceSelection::Wildcard) => self.drop_all(),
            (Want::Names(wanted_names), ResourceSelection::Names(names)) => {
                for name in names {
                    silence.added.remove(&name);
                    repetition.forget(&name);
                    // The server has removed the name, and counts it as subscribed no more.
                    let is_gone = self.type_url.is_sent_unasked() && wanted_names.is_absent(&name);
                    let is_listed = wanted_names.remove(&name) && !pending.withdraw(&name);
                    if is_listed && !is_gone {
                        pending.leave.insert(name);
                    }
                }
                if self.type_url.is_sent_unasked() && pending.leave.len() > LEAVING_MAX {
                    // The server goes on with their updates, and the clients are given them again.
                    pending.leave.clear();
                }
                if wanted_names.is_empty() {
                    self.want = Want::Nothing;
                }
            }
            (Want::Globs(wanted_globs), ResourceSelection::Globs(globs)) => {
                repetition.forget_all();
                for glob in globs {
                    if wanted_globs.remove(&glob) && !pending.withdraw(&glob) {
                        pending.leave.insert(glob);
                    }
                }
                if wanted_globs.is_empty() {
                    self.want = Want::Nothing;
                }
            }
            _ => {}
        }
    }

    fn drop_all(&mut self) {
        self.exchange.repetition.forget_all();
        let names = self.want.listed();
        self.want = Want::Nothing;
        for name in names {
            if !self.exchange.pending.withdraw(&name) {
                self.exchange.pending.leave.insert(name);
            }
        }
    }

    /// The part for the next delta request. `leaving`: only unsubscribe from these names. While the transport
    /// has not taken a part, an answer goes at once (ACK-8), without changes.
    pub(super) fn next_part(
        &mut self,
        room: RequestRoom,
        leaving: &[ResourceName],
        is_flushing: bool,
    ) -> RequestPart {
        let (rules, may_have_aliases) = (self.part_rules(), self.type_url.kind() == Kind::VirtualHost);
        let (want, TypeExchange { pending, requests, .. }) = (&self.want, &mut self.exchange);
        let versions = || if requests.is_asked() { BTreeMap::new() } else { want.versions(may_have_aliases) };
        match (leaving, is_flushing) {
            ([], false) => pending.next_part(rules, versions, room),
            ([], true) => RequestPart::default(),
            (names, _) => pending.leaving_part(names, room),
        }
    }

    /// The names for the next SotW request, and the names that do not fit.
    pub(super) fn fitting(&self, room: RequestRoom) -> (Vec<ResourceName>, BTreeSet<ResourceName>) {
        self.exchange.pending.fitting(self.want.listed(), room)
    }

    /// Records that a SotW request adds these names.
    pub(super) fn note_added(&mut self, names: &BTreeSet<ResourceName>, due: Time, signs: u64) {
        if !self.want.is_names() {
            return;
        }
        if self.is_asked() {
            self.exchange.silence.added.extend(names.iter().cloned());
        }
        self.exchange.silence.begin(due, signs);
    }

    /// Records the write of a request that newly lists the names of `part`. Timers of new names run until
    /// `due`.
    pub(super) fn note_request(&mut self, variant: Variant, part: RequestPart, due: Time, signs: u64) {
        let TypeExchange { requests, pending, .. } = &mut self.exchange;
        let is_first = !requests.is_asked();
        let RequestPart { subscribe: entered, unsubscribe, unclaimed, .. } = part;
        if self.type_url.is_sent_unasked() {
            pending.unsubscribed.note(&unsubscribe, &entered);
        }
        requests.count += 1;
        if is_first {
            self.currency.ask(due, signs);
        }
        match &mut self.want {
            Want::Nothing => {}
            Want::Names(names) => {
                for name in &entered {
                    names.note_request(name, is_first, due, signs);
                }
                if is_first && variant == Variant::Sotw {
                    names.expect_all();
                }
            }
            Want::Globs(globs) => {
                requests.for_globs |= is_first;
                if is_first {
                    globs.restate();
                    globs.doubt(&unclaimed);
                }
                globs.note_request(&entered, requests.count);
            }
            Want::Wildcard(wildcard) => {
                requests.for_wildcard = true;
                if is_first && variant == Variant::Delta {
                    wildcard.restate();
                    wildcard.doubt(unclaimed);
                }
            }
        }
    }

    /// Reports the globs of a SotW server once for each stream.
    pub(super) fn report_unserved_globs(&mut self) -> Option<Event> {
        let Want::Globs(globs) = &mut self.want else { return None };
        if std::mem::replace(&mut globs.is_unserved, true) {
            return None;
        }
        let (type_url, names) = (self.type_url.clone(), globs.iter().cloned().collect());
        Some(Event::GlobsUnserved { type_url, names })
    }

    /// Accepts a good response: the version may be claimed from now on (STR-9). The exception is a complete
    /// answer to a request for less than is wanted by now: a server may look at the version only, and report
    /// no change.
    pub(super) fn accept(&mut self, digest: &ResponseDigest) {
        if !(digest.answers_all && self.has_news()) {
            self.accepted.clone_from(&digest.version_info);
            self.is_astray = false;
        }
    }

    /// Notes a response with its effects, which may be none.
    pub(super) fn note_response(&mut self, changes: Option<&Changes>, events: &[Event], now: Time) {
        let by_name = self.want.is_names();
        self.exchange.repetition.note(changes, events, by_name, now);
    }

    /// An unusable response arrived, of which nothing can be derived.
    pub(super) fn interrupt(&mut self, now: Time) {
        self.each_settling(Settling::interrupt);
        self.confirmation.iter_mut().for_each(|confirmation| confirmation.interrupt(now));
    }

    pub(super) fn end_stream(&mut self) {
        let pending = PendingNames::of_new_stream(self.want.listed());
        self.exchange = TypeExchange { pending, ..TypeExchange::default() };
        (self.first_answers, self.confirmation) = Default::default();
        // A server may answer a claimed version by silence, and the membership would stay incomplete.
        if matches!(&self.want, Want::Wildcard(wildcard) if !wildcard.complete) {
            self.accepted.clear();
        }
        self.want.end_stream();
    }

    /// The other variant of the protocol does not know the versions of the present variant.
    pub(super) fn forget_versions(&mut self) {
        self.accepted.clear();
        self.want.forget_versions();
    }

    /// The turn of another server begins. Stores the versions of one server, and restores the stored versions
    /// of the other server, if their variant is the present variant.
    pub(super) fn exchange_versions(&mut self, before: Variant, now: Variant) {
        let mut versions = BTreeMap::new();
        self.want.each_held(|name, held| {
            versions.extend(held.take_version().map(|version| (name.clone(), version)));
        });
        let stash = Stash { variant: before, accepted: std::mem::take(&mut self.accepted), versions };
        let Some(mut other) = self.stash.replace(Box::new(stash)).filter(|other| other.variant == now) else {
            return;
        };
        self.accepted = other.accepted;
        self.want.each_held(|name, held| {
            if let Some((version, restate)) = other.versions.remove(name) {
                held.set_version(version, restate);
            }
        });
    }

    /// `is_receiving`: bytes are arriving, so that there is no silence.
    pub(super) fn next_timeout(&self, is_receiving: bool) -> Option<Time> {
        let resources = match &self.want {
            Want::Nothing => return None,
            Want::Names(names) => names.next_due().filter(|_| !is_receiving),
            Want::Globs(globs) => globs.next_due(),
            Want::Wildcard(_) => None,
        };
        let silence = [self.currency.due(), self.exchange.silence.due()];
        let silence = silence.into_iter().flatten().min().filter(|_| !is_receiving);
        let confirmation = self.confirmation.and_then(Confirmation::due).filter(|_| !is_receiving);
        resources.into_iter().chain(self.first_answers.due()).chain(silence).chain(confirmation).min()
    }

    /// Visits everything with first answers in parts.
    pub(super) fn each_settling(&mut self, mut visit: impl FnMut(&mut Settling)) {
        visit(&mut self.first_answers);
        if let Want::Globs(globs) = &mut self.want {
            globs.each_settling(visit);
        }
    }

    /// Settles the sets that are completely known by now, and confirms those that are proven, if any. `wait`:
    /// a confirmation that begins now.
    pub(super) fn settle(&mut self, wait: Confirmation) -> Option<Changes> {
        let has_settled = self.first_answers.settle();
        if has_settled {
            self.currency.settle(self.exchange.responses.has_rejected);
        }
        // A mark is about the whole set.
        let has_marks = self.exchange.has_marks;
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
                is_news.then(|| Changes::wildcard_settled(&self.type_url, gone))
            }
            Want::Globs(globs) => globs.settle_proven(&self.type_url),
            Want::Nothing | Want::Names(_) => None,
        }
    }

    /// Returns true if the server has answered for the type, by a response, or by silence where silence is an
    /// answer (DEL-35, STR-10). Omissions are then meant (RLY-2).
    pub(super) fn has_spoken(&self) -> bool {
        let TypeExchange { requests, responses, .. } = &self.exchange;
        responses.has_usable || requests.may_be_silent && self.currency == Currency::Current
    }

    /// Judges a response about existing resources. `is_good`: the response has no fault. `is_full`: the
    /// response has all resources.
    pub(super) fn judge_currency(&mut self, is_good: bool, is_full: bool) {
        let responses = &mut self.exchange.responses;
        responses.has_rejected |= !is_good;
        let is_answered = match &self.want {
            _ if is_full => true,
            // A type becomes current by settling, and stays current afterwards.
            _ if self.first_answers.is_running() => return self.currency.note_response(is_good),
            Want::Names(names) if !self.first_answers.is_settled() => {
                responses.has_good |= is_good;
                names.unanswered().is_empty()
            }
            _ => false,
        };
        match (is_good, is_answered) {
            (true, true) => self.currency = Currency::Current,
            (true, false) => {}
            (false, _) => self.currency.note_response(false),
        }
    }

    /// The meaning of silence on a live stream: everything is current, unless the server sets marks.
    pub(super) fn currency_after_silence(&self) -> Currency {
        if self.exchange.has_marks { Currency::Silent } else { Currency::Current }
    }

    /// The silence of the server turned out to be an answer, or not. Timers that restart run until `due`.
    pub(super) fn note_silence(&mut self, due: Time, signs: u64) {
        if self.has_spoken() {
            self.restart_timers(due, signs);
        }
        if self.currency == Currency::Current
            && let Want::Wildcard(wildcard) = &mut self.want
        {
            wildcard.confirm_by_silence();
        }
    }

    /// Restarts timers of names that expired before the server spoke. The server gets the whole time for the
    /// rest.
    pub(super) fn restart_timers(&mut self, due: Time, signs: u64) {
        if let Want::Names(names) = &mut self.want {
            names.restart_timers(due, signs);
        }
    }

    /// Lets the known resources of the type, and later subscriptions, wait for a mark.
    pub(super) fn expect_marks(&mut self) {
        self.exchange.has_marks = true;
        self.each_settling(Settling::expect_mark);
    }

    pub(super) fn take_mark(&mut self, mark: &SetMark) {
        if !self.first_answers.may_be_marked() {
            return;
        }
        if let Want::Globs(globs) = &mut self.want {
            // A mark means a glob that was left and taken up again only if the server had read the new
            // request (RLY-59).
            let is_meant = |glob: &&ResourceName| {
                globs.request_number(glob).is_some_and(|number| number <= mark.requests)
            };
            let marked: Vec<_> = mark.globs.iter().filter(is_meant).cloned().collect();
            marked.into_iter().for_each(|glob| globs.mark(glob));
        }
        // A wildcard stands in the first request of its type, and a type becomes current once: every mark is
        // about both.
        if mark.whole {
            self.first_answers.mark();
        }
    }

    pub(super) fn check_invariants(&self, is_open: bool) {
        let (is_asked, pending) = (self.is_asked(), &self.exchange.pending);
        self.want.check_invariants(pending.enter.iter(), pending.leave.iter(), is_open);
        if !is_asked {
            let count = self.want.listed_len();
            debug_assert_eq!(pending.enter.len(), count, "all of it enters by the first request");
            debug_assert!(pending.leave.is_empty() && self.exchange.responses.nonce.is_empty());
        }
        debug_assert!(is_asked || !self.wants_nothing(), "no first request says that nothing is wanted");
        debug_assert!(is_open || !is_asked, "nothing is said without a stream");
    }
}
