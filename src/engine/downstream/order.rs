//! Make before break (ORD-1 to ORD-11, RLY-50 to RLY-53).
//!
//! Additions go by rank: clusters and endpoints before the routing types that may name them. Removals go
//! the other way round. Payloads are opaque, so the relay cannot tell which route names a removed cluster.
//! A stream therefore withholds a removal from the first look until the client has ACKed every routing type
//! of the same source as of that look: the type has nothing unsent and nothing unanswered, or the client
//! ACKed an answer that was begun since. Removals do not wait for later news, so routes that change all the
//! time hold no removal up. No removal waits longer than [`HOLD`].
//!
//! A control plane may send the removal a moment before the route that makes the removal safe:
//! go-control-plane does so in delta. So a removal rests first, for [`REST`], and again after each change
//! of a routing type, for [`REST_MAX`] at the most. The removal then also waits for the ACK of a route that
//! came meanwhile.
//!
//! A client that asks by name tells its own needs, as gRPC does in the state-of-the-world variant. After a
//! move to another server, the listener may lead the client to other names. A former name then stays in the
//! client's complete sets until the client has unsubscribed, which is the last step of the client's own
//! move (ORD-11).
//!
//! No names are kept for these waits. [`Withheld`] consists of the views that still have the names:
//! pointers, shared by all clients at the same place. [`targets`] computes the target of all these clients
//! once, at the composition of the answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::answer::{Answer, AnswerPart};
use super::flight::Verdict;
use super::subscription::{Part, SourceId, Subscription};
use crate::engine::Time;
use crate::engine::interest::Interest;
use crate::engine::planted::{Bug, planted};
use crate::engine::snapshot::Snapshot;
use crate::engine::view::{Leaving, View, ViewId, difference};
use crate::xds::{ResourceName, TypeUrl, Variant, Version};

/// The maximum wait of a removal for the routing types, and of the routing types for the cluster side.
pub const HOLD: Duration = Duration::from_secs(15);

/// The wait of a removal for a change of the routing types. Control planes that send the two halves of a
/// change apart send them a few milliseconds apart at the most.
const REST: Duration = Duration::from_millis(25);

/// The maximum rest, with changes of the routing types. Nobody notices a cluster that stays for 250 ms.
const REST_MAX: Duration = Duration::from_millis(250);

/// Losses within [`REST`] of each other wait together. If there are [`APART_MAX`] losses already, losses
/// within this time wait together, so that a part has at most [`APART_MAX`] losses plus [`HOLD`] ÷ this
/// time.
const TOGETHER: Duration = Duration::from_secs(1);

/// The maximum number of resting losses that are [`REST`] apart. If a part has more losses, the client is
/// slow to ACK.
const APART_MAX: usize = 10;

/// The snapshots for answers, one per source for all types, so that no type runs ahead of another.
pub type Snapshots = Vec<(SourceId, Option<Arc<Snapshot>>)>;

/// One look at the due answers of a stream.
pub struct Turn<'a> {
    pub snapshots: &'a Snapshots,
    /// The number of responses that the stream has carried.
    pub carried: u64,
    pub now: Time,
    /// Server lists with a recent move to another server.
    pub moved: Vec<u16>,
    /// The routing types have waited for the maximum time. The cluster side is sent beside unACKed
    /// responses (NON-4), each type once, and then the routing types.
    pub overdue: bool,
}

impl Turn<'_> {
    pub fn snapshot(&self, source: SourceId) -> Option<&Arc<Snapshot>> {
        let (_, snapshot) = self.snapshots.iter().find(|(id, _)| *id == source)?;
        snapshot.as_ref()
    }

    fn view(&self, type_url: &TypeUrl, part: &Part) -> Option<&Arc<View>> {
        self.snapshot(part.source())?.of(type_url)?.view(&part.interest)
    }
}

/// Whether sources have noted more interests of the cluster side since these snapshots were taken.
pub fn has_more_noted(subscriptions: &[Subscription], newest: &Snapshots, taken: &Snapshots) -> bool {
    let is_noted = |snapshots: &Snapshots, type_url: &TypeUrl, part: &Part| {
        let snapshot = snapshots.iter().find(|(id, _)| *id == part.source());
        let types = snapshot.and_then(|(_, snapshot)| snapshot.as_ref()?.of(type_url));
        types.is_some_and(|types| types.view(&part.interest).is_some())
    };
    subscriptions.iter().filter(|subscription| subscription.type_url.kind().is_cluster_side()).any(
        |subscription| {
            let type_url = &subscription.type_url;
            let mut parts = subscription.parts.iter();
            parts.any(|part| !is_noted(taken, type_url, part) && is_noted(newest, type_url, part))
        },
    )
}

// === withheld removals ===

/// Removals of one part that the client is not told yet.
#[derive(Clone, Debug)]
pub struct Withheld {
    source: SourceId,
    /// The view of the last search for losses.
    seen: Arc<View>,
    /// Oldest first. If empty, all removals may go, but the client was not told yet.
    losses: Vec<Loss>,
}

/// Names that the stream found gone at about the same time.
#[derive(Clone, Debug)]
struct Loss {
    /// A view that still has the names.
    base: Arc<View>,
    since: Time,
    /// The time when the last of the names was found gone.
    latest: Time,
    /// The count of carried responses at that time. Answers of the routing types that were begun later no
    /// longer use the names.
    carried: u64,
}

impl Withheld {
    /// Looks for losses since the last view. Losses are names that left the view, and names that the client
    /// `held` before and the server reports as gone only now.
    fn lose(&mut self, held: &View, view: &Arc<View>, leaving: Leaving, turn: &Turn<'_>) {
        let mut seen = std::mem::replace(&mut self.seen, view.clone());
        let late = late(held, &seen, view, leaving);
        if !late.is_empty() {
            seen = Arc::new(seen.keeping(late.into_iter(), held.remarks()));
        } else if !seen.may_lose(view) {
            return;
        }
        let is_crowded = self.losses.len() >= APART_MAX;
        let within = if is_crowded { TOGETHER } else { REST };
        match self.losses.last_mut().filter(|last| turn.now.since(last.since) < within) {
            Some(last) => {
                let gone: Vec<_> = last.base.beside(&seen).collect();
                last.base = if gone.is_empty() {
                    seen
                } else {
                    Arc::new(seen.keeping(gone.into_iter(), last.base.remarks()))
                };
                (last.latest, last.carried) = (turn.now, turn.carried);
            }
            None => self.losses.push(Loss::new(seen, turn)),
        }
    }
}

/// Names of the client's content that `view` is the first to report as gone, although `seen` did not have
/// them.
fn late(held: &View, seen: &View, view: &View, leaving: Leaving) -> Vec<(ResourceName, Version)> {
    if seen.unknown_len() == 0 || seen.id() == view.id() {
        return Vec::new();
    }
    let was_gone: BTreeSet<_> = difference(held, seen, leaving).gone.into_iter().collect();
    let gone = difference(held, view, leaving).gone.into_iter();
    let gone = gone.filter(|name| !seen.has(name) && !was_gone.contains(name));
    gone.filter_map(|name| held.version_of(&name).map(|version| (name, version))).collect()
}

impl Loss {
    fn new(base: Arc<View>, turn: &Turn<'_>) -> Loss {
        Loss { base, since: turn.now, latest: turn.now, carried: turn.carried }
    }

    /// The end of the rest, with the last change of the routing types at `changed`; `None` if there are no
    /// routing types.
    fn rests_until(&self, changed: Option<Time>) -> Option<Time> {
        let changed = changed.filter(|_| !planted(Bug::RemovalsDoNotRest))?;
        Some((self.latest.max(changed) + REST).min(self.latest + REST_MAX))
    }
}

/// The conditions that delay a removal.
struct Waits<'a> {
    /// The client may be moving to other names of another server, and then drops the former names itself.
    is_leaving: bool,
    /// The latest response of this type is unanswered.
    is_waiting: bool,
    /// The last change of the routing types; `None` if the client asks for none.
    changed: Option<Time>,
    /// Whether the routing types have followed: the client has ACKed their content as of this count of
    /// carried responses.
    may_go: &'a dyn Fn(u64) -> bool,
}

impl Part {
    fn withheld(&self) -> Option<&Withheld> {
        self.withheld.as_deref().filter(|withheld| withheld.source == self.source())
    }

    /// One of the withheld names, with the start of its wait; for reports.
    pub(super) fn withheld_name(&self, type_url: &TypeUrl, turn: &Turn<'_>) -> Option<(ResourceName, Time)> {
        let loss = self.withheld()?.losses.first()?;
        let view = turn.view(type_url, self)?;
        let (name, _) = loss.base.beside(view).find(|(name, _)| self.held.has(name))?;
        Some((name, loss.since))
    }

    /// The views with withheld names.
    pub fn keeps(&self) -> Vec<Arc<View>> {
        let losses = self.withheld().map_or(&[][..], |withheld| &withheld.losses);
        losses.iter().map(|loss| loss.base.clone()).collect()
    }

    /// Identifies the client's target while the source has `view`.
    pub fn due(&self, view: &View) -> ViewId {
        match self.withheld() {
            None => view.id(),
            Some(withheld) => {
                withheld.losses.iter().fold(view.id(), |id, loss| id.derived(("withheld", loss.base.id())))
            }
        }
    }

    /// Whether `view` has news for the client. Unknown names are no news.
    fn has_news(&self, view: Option<&Arc<View>>) -> bool {
        match view {
            None => !self.held.is_empty(),
            Some(view) => self.is_behind(view.id()) && !(self.held.is_empty() && view.is_empty()),
        }
    }

    /// Whether the client asks by name, and may be moving to other names of another server.
    fn may_be_leaving(&self, routes: &[Subscription], turn: &Turn<'_>) -> bool {
        let mut hangs_below = routes.iter().flat_map(|subscription| &subscription.parts);
        matches!(self.interest, Interest::Names(_))
            && turn.moved.contains(&self.asked.list)
            && hangs_below.any(|route| route.source() == self.source())
    }

    /// Notes names that are gone from `view`, and drops losses whose wait is over. Returns the time of the
    /// next look if no event comes first.
    fn withhold(&mut self, view: &Arc<View>, waits: &Waits<'_>, turn: &Turn<'_>) -> Option<Time> {
        if self.withheld().is_none() {
            self.withheld = None;
            let rests = waits.is_waiting || waits.is_leaving || waits.changed.is_some();
            if !self.held.may_lose(view) || (!rests && (waits.may_go)(turn.carried)) {
                return None;
            }
            let gone = difference(&self.held, view, self.leaving()).gone;
            if !gone.iter().any(|name| self.held.has(name)) {
                return None;
            }
            let losses = vec![Loss::new(self.held.clone(), turn)];
            self.withheld = Some(Box::new(Withheld { source: self.source(), seen: view.clone(), losses }));
        }
        let leaving = self.leaving();
        let withheld = self.withheld.as_mut()?;
        withheld.lose(&self.held, view, leaving, turn);
        let held = &self.held;
        let is_left = |loss: &Loss| !loss.base.beside(view).any(|(name, _)| held.has(&name));
        let rests = |loss: &Loss| {
            let until = loss.rests_until(waits.changed).filter(|until| *until > turn.now);
            until.filter(|_| !planted(Bug::RemovalsDoNotRest))
        };
        let may_go = |loss: &Loss| {
            let has_followed = (waits.may_go)(loss.carried) || planted(Bug::RemovalsDoNotWait);
            rests(loss).is_none() && has_followed && (!waits.is_leaving || is_left(loss))
        };
        let first = withheld.losses.iter().position(|loss| loss.since + HOLD > turn.now && !may_go(loss));
        withheld.losses.drain(..first.unwrap_or(withheld.losses.len()));
        let Some(first) = withheld.losses.first() else {
            if !self.is_behind(view.id()) {
                self.withheld = None;
            }
            return None;
        };
        Some(rests(first).unwrap_or(first.since + HOLD))
    }
}

/// Notes the removals that the cluster side must withhold: the subscriptions before the index
/// `cluster_side`. Returns the time of the next look if no event comes first.
pub fn withhold(
    subscriptions: &mut [Subscription],
    cluster_side: usize,
    variant: Variant,
    turn: &Turn<'_>,
) -> Option<Time> {
    let (clusters, routes) = subscriptions.split_at_mut(cluster_side.min(subscriptions.len()));
    let mut until = None;
    for index in 0..clusters.len() {
        let (before, rest) = clusters.split_at_mut(index);
        let Some(subscription) = rest.first_mut() else { break };
        // If the client is never told of removals, nothing has to wait (SST-6).
        if variant == Variant::Sotw && !subscription.is_full(variant) {
            continue;
        }
        let (type_url, is_waiting) = (&subscription.type_url, subscription.flight.is_waiting());
        for part in &mut subscription.parts {
            let Some(view) = turn.view(type_url, part) else { continue };
            let source = part.source();
            // Clusters go before their endpoints (ORD-3).
            let follows = |other: &Part| other.source() == source && other.withheld().is_some();
            let may_go = |carried| {
                !before.iter().flat_map(|subscription| &subscription.parts).any(follows)
                    && routes.iter().all(|route| route.has_followed(source, carried, turn))
            };
            let is_leaving = variant == Variant::Sotw && part.may_be_leaving(routes, turn);
            let has_lost = part.withheld.is_some() || part.held.may_lose(view);
            let changed = if has_lost { changed_at(routes, source, turn) } else { None };
            let waits = Waits { is_leaving, is_waiting, changed, may_go: &may_go };
            let look_at = part.withhold(view, &waits, turn);
            until = until.into_iter().chain(look_at).min();
        }
    }
    until
}

/// The last change of a source's content of routing types, among the client's interests; `None` without
/// such interests.
fn changed_at(routes: &[Subscription], source: SourceId, turn: &Turn<'_>) -> Option<Time> {
    let routes = routes.iter().filter(|route| route.type_url.kind().refers_to_clusters());
    let parts = routes.flat_map(|route| route.parts.iter().map(move |part| (&route.type_url, part)));
    let parts = parts.filter(|(_, part)| part.source() == source);
    let views = parts.map(|(type_url, part)| turn.view(type_url, part));
    views.map(|view| view.map_or(Time::ZERO, |view| view.changed_at())).max()
}

// === the client's progress in the routing types ===

/// The client's verdicts on the answers of a routing type. An answer is identified by the count of carried
/// responses at its beginning.
#[derive(Debug, Default)]
pub struct Trail {
    /// The count of the latest answer that was handed out as a whole.
    begun: u64,
    /// The nonce of the last message of that answer; nonces begin with 1.
    ended: u64,
    /// The count of the latest ACKed answer, plus one.
    acked: u64,
}

impl Subscription {
    /// Keeps the content before an answer until the client has accepted or rejected the answer.
    pub fn remember(&mut self) {
        if self.type_url.kind().refers_to_clusters() {
            for part in &mut self.parts {
                part.before.get_or_insert_with(|| part.held.clone());
            }
        }
    }

    /// Notes that a whole answer was handed out. `begun` is the count of carried responses at its
    /// beginning.
    pub fn went(&mut self, begun: u64, nonce: u64) {
        self.trail.begun = begun;
        self.trail.ended = nonce;
    }

    /// Notes the client's ACK or NACK of a response.
    pub fn follow(&mut self, nonce: Option<u64>, verdict: &Verdict, variant: Variant) {
        if !self.type_url.kind().refers_to_clusters() {
            return;
        }
        let waiting = self.flight.is_waiting();
        match verdict {
            Verdict::Ack { .. } => {
                if self.trail.ended > 0 && nonce >= Some(self.trail.ended) {
                    self.trail.acked = self.trail.begun + 1;
                }
                let full = self.is_full(variant);
                for part in self.parts.iter_mut().filter(|_| !waiting) {
                    // The client accepted the complete set, or other content of every rejected name.
                    part.refused =
                        part.refused.take().filter(|refused| !full && refused.stands(part, variant));
                }
            }
            Verdict::Nack { .. } => self.refuse(waiting),
            Verdict::Stale | Verdict::None => return,
        }
        for part in self.parts.iter_mut().filter(|_| !waiting) {
            part.before = None;
        }
    }

    /// Notes a rejection: the client keeps its former content, and may not hold any content sent since.
    fn refuse(&mut self, waiting: bool) {
        for (index, part) in self.parts.iter_mut().enumerate() {
            let pending = self.pending.as_ref().and_then(|answer| answer.parts.get(index));
            let sent = pending.map_or(&part.held, |answered| &answered.view).clone();
            let before = part.before.take().unwrap_or_else(|| part.held.clone());
            if before.id() != sent.id() {
                let before = part.refused.take().map_or(before, |refused| refused.before);
                part.refused = Some(Box::new(Refused { before, sent }));
            }
            if waiting {
                part.before = Some(part.held.clone());
            }
        }
    }

    /// Whether the client has ACKed this type's content of this source, as of this count of carried
    /// responses.
    fn has_followed(&self, source: SourceId, carried: u64, turn: &Turn<'_>) -> bool {
        if !self.type_url.kind().refers_to_clusters() {
            return true;
        }
        let own = || self.parts.iter().filter(|part| part.source() == source);
        if own().any(|part| part.refused.is_some()) {
            return false;
        }
        let has_news = |part: &Part| part.has_news(turn.view(&self.type_url, part));
        let nothing_left = || !self.flight.is_waiting() && self.pending.is_none() && !own().any(has_news);
        self.trail.acked > carried || own().next().is_none() || nothing_left()
    }

    /// Whether unsent content is due, as far as visible without a composition.
    pub fn is_due(&self, turn: &Turn<'_>) -> bool {
        self.pending.is_some() || self.parts.iter().any(|part| part.has_news(turn.view(&self.type_url, part)))
    }

    /// Whether a source has unsent content, apart from withheld removals.
    pub(super) fn has_unsent(&self, turn: &Turn<'_>) -> bool {
        let is_behind = |part: &Part, view: &View| {
            part.is_behind(part.due(view)) && !(part.held.is_empty() && view.is_empty())
        };
        let views = self.parts.iter().map(|part| (part, turn.view(&self.type_url, part)));
        self.pending.is_some()
            || views.into_iter().any(|(part, view)| view.is_some_and(|view| is_behind(part, view)))
    }

    /// Whether news of this type cannot be sent before the client's ACK, so that the routing types must
    /// wait (RLY-50). Removals, renewed TTLs and errors are no such news.
    pub fn holds_back(&self, turn: &Turn<'_>) -> bool {
        self.flight.is_waiting()
            && self.parts.iter().any(|part| {
                let view = turn.view(&self.type_url, part);
                view.is_some_and(|view| {
                    let only_adds =
                        part.withheld.is_none() && !part.held.may_lose(view) && view.remarks().is_empty();
                    part.is_behind(part.due(view)) && (only_adds || part.held.has_news_in(view))
                })
            })
    }
}

/// A client's rejection of a routing type's content: the content before, and the rejected content.
#[derive(Clone, Debug)]
pub struct Refused {
    before: Arc<View>,
    sent: Arc<View>,
}

impl Refused {
    /// Whether the client was sent no other content since.
    fn stands(&self, part: &Part, variant: Variant) -> bool {
        let difference = difference(&self.before, &self.sent, part.leaving());
        let gone = |name: &ResourceName| self.before.has(name) && !part.held.has(name);
        difference.put.iter().any(|name| part.held.version_of(name) == self.sent.version_of(name))
            || (variant == Variant::Delta && difference.gone.iter().any(gone))
    }
}

// === answers ===

/// The targets of the parts of an answer; empty if the targets are the sources' own views. Withheld names
/// stay, and forced endpoints (ORD-5) go once more although they are gone (SST-6), both with their last
/// bytes.
pub fn targets(answer: &Answer) -> Vec<Arc<View>> {
    let plain = |part: &AnswerPart| part.keeps.is_empty() && (part.last_bytes == 0 || answer.deletes());
    if answer.parts.iter().all(plain) {
        return Vec::new();
    }
    let kept: Vec<_> = answer.parts.iter().map(|part| kept(answer, part)).collect();
    if kept.iter().all(BTreeMap::is_empty) {
        return Vec::new();
    }
    let targets = answer.parts.iter().zip(kept).map(|(part, kept)| match kept.is_empty() {
        true => part.view.clone(),
        false => Arc::new(part.view.keeping(kept.into_iter(), part.held.remarks())),
    });
    targets.collect()
}

fn kept(answer: &Answer, part: &AnswerPart) -> BTreeMap<ResourceName, Version> {
    let leaving = part.interest.leaving();
    let last = |name: &ResourceName| {
        let types = part.snapshot.of(&answer.type_url);
        types.and_then(|types| types.departed(leaving, name)).map(|resource| resource.version)
    };
    let mut kept = BTreeMap::new();
    if !answer.deletes() {
        let forced = part.held.forced_beside(&part.view).filter(|name| part.interest.covers(name));
        kept.extend(forced.filter_map(|name| last(&name).map(|version| (name, version))));
        return kept;
    }
    for base in &part.keeps {
        for name in difference(base, &part.view, leaving).gone {
            let is_there = answer.parts.iter().any(|part| part.view.has(&name));
            let Some(held) = part.held.version_of(&name).filter(|_| base.has(&name) && !is_there) else {
                continue;
            };
            // A complete set needs the bytes. Delta needs them only for a resend.
            let again = answer.full || part.held.is_due_again(&name);
            let version = if again { last(&name) } else { None };
            if let Some(version) = version.or(Some(held).filter(|_| !answer.full)) {
                kept.insert(name, version);
            }
        }
    }
    kept
}
