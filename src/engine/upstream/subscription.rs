//! One type on the stream: what is wanted, what of it has been written, and the nonce chain.

use std::collections::{BTreeMap, BTreeSet};

use super::api::{Changes, Interest};
use super::failover::Stash;
use super::globs::Globs;
use super::names::Names;
use super::order::Lower;
use super::proof::Currency;
use super::response::Digest;
use super::settling::Settling;
use super::wildcard::Wildcard;
use crate::engine::Time;
use crate::engine::planted::{Bug, planted};
use crate::xds::{ResourceName, TypeUrl, Variant};

/// What is wanted of a type: the wildcard, globs or names, never two of them.
#[derive(Debug, Default)]
pub(super) enum Want {
    #[default]
    Nothing,
    Names(Names),
    Wildcard(Wildcard),
    Globs(Globs),
}

/// What has been said about a type on the present stream. A new stream starts with nothing said (DEL-28).
#[derive(Debug, Default)]
pub(super) struct Said {
    /// The first request has been written.
    pub(super) asked: bool,
    /// It was for the wildcard.
    for_wildcard: bool,
    /// It was for globs only.
    for_globs: bool,
    /// The server has spoken of the type: a response came from which something can be derived.
    pub(super) spoken: bool,
    /// SotW, names: a response without a fault came, so that what it answers is current.
    pub(super) is_good: bool,
    /// The first request claims what is held, so that a server may answer it by silence (DEL-35, STR-10).
    pub(super) may_be_silent: bool,
    /// The server marks what is whole ([`super::marks`]).
    pub(super) has_marks: bool,
    /// How many requests of the type were written.
    pub(super) requests: u64,
    /// Of the last response, empty before (ACK-9).
    pub(super) nonce: String,
    /// When something was asked for last, if no response of the type came since.
    pub(super) unanswered: Option<Time>,
    /// Wanted names (`*` for the wildcard) that no request lists yet.
    pub(super) enter: BTreeSet<ResourceName>,
    /// Names that the last request lists but that are no longer wanted.
    pub(super) leave: BTreeSet<ResourceName>,
}

#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) type_url: TypeUrl,
    pub(super) want: Want,
    pub(super) said: Said,
    /// SotW: the `version_info` accepted last. It outlives the stream (STR-9).
    pub(super) accepted: String,
    pub(super) currency: Currency,
    /// The first answers on this stream, where they come in parts.
    pub(super) first: Settling,
    /// Something was rejected on this stream.
    pub(super) is_rejected: bool,
    pub(super) stash: Option<Box<Stash>>,
    pub(super) acks: u64,
    pub(super) nacks: u64,
}

fn star() -> ResourceName {
    ResourceName::new("*")
}

impl Subscription {
    pub(super) fn new(type_url: TypeUrl) -> Self {
        let (want, said, accepted, currency, first, stash) = Default::default();
        let is_rejected = false;
        Subscription {
            type_url,
            want,
            said,
            accepted,
            currency,
            first,
            is_rejected,
            stash,
            acks: 0,
            nacks: 0,
        }
    }

    pub(super) fn wants_nothing(&self) -> bool {
        matches!(self.want, Want::Nothing)
    }

    /// Some change waits for a request.
    pub(super) fn has_news(&self) -> bool {
        !self.said.enter.is_empty() || !self.said.leave.is_empty()
    }

    /// The interest can't follow what was said of the type on this stream. A wildcard stands in the first request of
    /// its type on a stream or not at all: a response on its way may answer an earlier request, and nothing tells
    /// it from the whole membership. A legacy wildcard can't be left again either (RLY-19). So it is with globs after names.
    pub(super) fn needs_fresh_stream(&self, interest: &Interest) -> bool {
        let is_mixed = match interest {
            Interest::Wildcard => true,
            Interest::Globs(_) => !self.said.for_globs,
            Interest::Names(_) => false,
        };
        self.said.asked && (is_mixed || self.said.for_wildcard)
    }

    /// The interest takes up a name again before its unsubscription was written. The server would see no change and
    /// send nothing, so the two have to go in two requests (RLY-59).
    pub(super) fn must_leave_first(&self, interest: &Interest) -> bool {
        match interest {
            Interest::Wildcard => false,
            _ if planted(Bug::LeftAndEnteredTogether) => false,
            Interest::Names(names) | Interest::Globs(names) => {
                names.iter().any(|name| self.said.leave.contains(name))
            }
        }
    }

    /// All of it is wanted already.
    pub(super) fn wants(&self, interest: &Interest) -> bool {
        match (&self.want, interest) {
            (Want::Wildcard(_), Interest::Wildcard) => true,
            (Want::Names(wanted), Interest::Names(names)) => names.iter().all(|name| wanted.contains(name)),
            _ => false,
        }
    }

    /// A good response: its version may be claimed from now on (STR-9), but not if what it answers all of was less than
    /// is wanted by now: a server may look at the version only, and say that nothing changed.
    pub(super) fn accept(&mut self, digest: &Digest) {
        if !(digest.answers_all && self.has_news()) {
            self.accepted.clone_from(&digest.version_info);
        }
    }

    /// SotW: the version of the response, if it is lower than the one accepted before it (FU21).
    pub(super) fn lower(&self, digest: &Digest) -> Option<Lower> {
        Lower::of(None, &digest.version_info, &self.accepted)
    }

    /// An interest of the other kind than the one before takes its place.
    pub(super) fn add(&mut self, interest: Interest) {
        if self.wants_nothing() {
            // A server may keep silent to a client that claims a version (STR-10), but nothing is held.
            self.accepted.clear();
            self.stash = None;
        }
        match (&mut self.want, interest) {
            (Want::Wildcard(_), Interest::Wildcard) => {}
            (Want::Names(wanted), Interest::Names(names)) => {
                for name in names {
                    if wanted.insert(name.clone()) {
                        self.said.enter.insert(name);
                    }
                }
            }
            (Want::Globs(wanted), Interest::Globs(globs)) => {
                for glob in globs {
                    if wanted.insert(glob.clone()) {
                        self.said.enter.insert(glob);
                    }
                }
            }
            (_, Interest::Globs(globs)) if !globs.is_empty() => {
                self.drop_all();
                self.want = Want::Globs(Globs::default());
                self.add(Interest::Globs(globs));
            }
            (_, Interest::Wildcard) => {
                self.drop_all();
                self.want = Want::Wildcard(Wildcard::default());
                self.said.enter.insert(star());
            }
            (_, Interest::Names(names)) if !names.is_empty() => {
                self.drop_all();
                self.want = Want::Names(Names::default());
                self.add(Interest::Names(names));
            }
            (_, Interest::Names(_) | Interest::Globs(_)) => {}
        }
    }

    pub(super) fn drop(&mut self, interest: Interest) {
        match (&mut self.want, interest) {
            (Want::Wildcard(_), Interest::Wildcard) => self.drop_all(),
            (Want::Names(wanted), Interest::Names(names)) => {
                for name in names {
                    let is_said = wanted.remove(&name) && !self.said.enter.remove(&name);
                    if is_said && !planted(Bug::NeverUnsubscribed) {
                        self.said.leave.insert(name);
                    }
                }
                if wanted.is_empty() {
                    self.want = Want::Nothing;
                }
            }
            (Want::Globs(wanted), Interest::Globs(globs)) => {
                for glob in globs {
                    if wanted.remove(&glob) && !self.said.enter.remove(&glob) {
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
        let names = match std::mem::take(&mut self.want) {
            Want::Nothing => Vec::new(),
            Want::Names(names) => names.iter().cloned().collect(),
            Want::Globs(globs) => globs.iter().cloned().collect(),
            Want::Wildcard(_) => vec![star()],
        };
        for name in names {
            if !self.said.enter.remove(&name) {
                self.said.leave.insert(name);
            }
        }
    }

    /// The complete list of names (SUB-1); `*` for the wildcard.
    pub(super) fn listed(&self) -> Vec<ResourceName> {
        match &self.want {
            Want::Nothing => Vec::new(),
            Want::Names(names) => names.iter().cloned().collect(),
            Want::Globs(globs) => globs.iter().cloned().collect(),
            Want::Wildcard(_) => vec![star()],
        }
    }

    /// The server's own version strings of what is held (RLY-64), sorted by name.
    pub(super) fn versions(&self) -> Vec<(ResourceName, String)> {
        let versions = match &self.want {
            Want::Nothing => BTreeMap::new(),
            Want::Names(names) => names.versions(),
            Want::Globs(globs) => globs.versions(),
            Want::Wildcard(wildcard) => {
                let held = wildcard.members.iter().filter(|(_, held)| held.restate);
                held.map(|(name, held)| (name.clone(), held.version.to_string())).collect()
            }
        };
        versions.into_iter().collect()
    }

    /// A request that says everything is written now; timers of its new names run until `due`.
    pub(super) fn written(&mut self, variant: Variant, due: Time, signs: u64) {
        let is_first = !self.said.asked;
        let entered = std::mem::take(&mut self.said.enter);
        if planted(Bug::NamesAskedTwice) {
            self.said.enter.clone_from(&entered);
        }
        self.said.leave.clear();
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
                }
                globs.written(&entered, self.said.requests);
            }
            Want::Wildcard(wildcard) => {
                self.said.for_wildcard = true;
                if is_first && variant == Variant::Delta {
                    wildcard.restated();
                }
            }
        }
    }

    pub(super) fn stream_ended(&mut self) {
        self.said = Said { enter: self.listed().into_iter().collect(), ..Said::default() };
        (self.first, self.is_rejected) = Default::default();
        match &mut self.want {
            Want::Nothing => {}
            Want::Names(names) => names.stream_ended(),
            Want::Globs(globs) => globs.stream_ended(),
            Want::Wildcard(wildcard) => {
                // A server that finds its own version claimed may have nothing to add to what is not all there.
                if !wildcard.complete {
                    self.accepted.clear();
                }
                wildcard.stream_ended();
            }
        }
    }

    /// The other variant of the protocol knows nothing of this one's versions.
    pub(super) fn forget_versions(&mut self) {
        self.accepted.clear();
        match &mut self.want {
            Want::Nothing => {}
            Want::Names(names) => names.forget_versions(),
            Want::Globs(globs) => globs.forget_versions(),
            Want::Wildcard(wildcard) => wildcard.members.values_mut().for_each(|held| held.forget_version()),
        }
    }

    /// `is_receiving`: bytes are arriving, so that there is no silence.
    pub(super) fn next_timeout(&self, is_receiving: bool) -> Option<Time> {
        let of_want = match &self.want {
            Want::Nothing => return None,
            Want::Names(names) => names.next_due().filter(|_| !is_receiving),
            Want::Globs(globs) => globs.next_due(),
            Want::Wildcard(_) => None,
        };
        let silence = self.currency.due().filter(|_| !is_receiving);
        of_want.into_iter().chain(self.first.due()).chain(silence).min()
    }

    /// Everything whose first answers come in parts.
    pub(super) fn each_settling(&mut self, mut visit: impl FnMut(&mut Settling)) {
        visit(&mut self.first);
        if let Want::Globs(globs) = &mut self.want {
            globs.each_settling(visit);
        }
    }

    /// What is known as a whole by now, if anything is.
    pub(super) fn settle(&mut self) -> Option<Changes> {
        let has_settled = self.first.settle();
        if has_settled {
            self.currency.settled(self.is_rejected);
        }
        match &mut self.want {
            Want::Wildcard(wildcard) if has_settled => {
                let was_complete = wildcard.complete;
                let gone = wildcard.settle();
                let is_news = !was_complete || !gone.is_empty();
                is_news.then(|| Changes::of_settled(&self.type_url, gone))
            }
            Want::Globs(globs) => globs.settle_proven(&self.type_url),
            Want::Nothing | Want::Names(_) | Want::Wildcard(_) => None,
        }
    }

    pub(super) fn check_invariants(&self, is_open: bool) {
        let (count, wants): (usize, &dyn Fn(&ResourceName) -> bool) = match &self.want {
            Want::Nothing => (0, &|_| false),
            Want::Names(names) => (names.len(), &|name| names.contains(name)),
            Want::Globs(globs) => (globs.len(), &|glob| globs.contains(glob)),
            Want::Wildcard(_) => (1, &ResourceName::is_wildcard),
        };
        debug_assert!(self.wants_nothing() || count > 0, "an empty list of names is no interest");
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
