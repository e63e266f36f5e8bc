//! The relay as the admin room sees it: read-only, item by item, without a lock between items.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use crate::driver::api::status::{
    ConfigStatus, Confirmed, HeldStatus, Lane, NackStatus, RefusalStatus, ResourceFilter, ResourcePlace,
    ResourceStatus, RuleId, SeatStatus, SessionStatus, SessionTypeStatus, SourceStatus, SourceTypeStatus,
    StatusView, TierStatus, WaitStatus, Why,
};
use crate::driver::ground::clock::Clock;
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::servers::Place;
use crate::driver::relay::changes;
use crate::driver::relay::handle::Relay;
use crate::driver::relay::walk::SnapshotWalk;
use crate::driver::source::handle::{SourceHandle, Subscriber, VIA};
use crate::driver::stream::own_sources::{OwnSources, newest};
use crate::driver::stream::state::StreamState;
use sluice_engine::Time;
use sluice_engine::downstream::{Nack, Session, Subscription, TypeReport, UnsentNews, WhyUnsent};
use sluice_text::secrets;
use sluice_xds::{Node, TypeUrl, Variant, Version};

/// The ways that are told apart. A server gives itself its name, and may do so anew in each response.
const PATHS_MAX: usize = 32;

/// The path of all further ways.
const OTHER_PATHS: &str = "other";

impl StatusView for Relay {
    fn now(&self) -> SystemTime {
        self.shared.clock.wall(self.shared.clock.now())
    }

    fn sources(&self) -> Vec<Arc<SourceStatus>> {
        // Lists without a server have no attachment to show.
        let is_attached = |handle: &&Arc<SourceHandle>| !handle.server(0).is_made_up();
        self.tables.sources.all().iter().filter(is_attached).map(|handle| handle.status()).collect()
    }

    fn shadows(&self) -> Vec<Arc<SourceStatus>> {
        self.tables.sources.shadows().iter().map(|handle| handle.status()).collect()
    }

    fn tiers(&self) -> Vec<TierStatus> {
        let mut by_path: BTreeMap<Arc<str>, Vec<Confirmed>> = BTreeMap::new();
        for source in self.tables.sources.all().iter().filter(|source| !source.server(0).is_local()) {
            let path = match source.path() {
                path if by_path.len() < PATHS_MAX || by_path.contains_key(&path) => path,
                _ => OTHER_PATHS.into(),
            };
            by_path.entry(path).or_default().push(source.confirmed());
        }
        let now = self.shared.clock.now();
        let tier = |(path, confirmed): (Arc<str>, Vec<Confirmed>)| TierStatus {
            is_through_relays: path.contains(VIA),
            age: Confirmed::of_all(confirmed).word(now).0,
            path,
        };
        by_path.into_iter().map(tier).collect()
    }

    fn sessions_after(&self, after: Option<u64>) -> Box<dyn Iterator<Item = SessionStatus> + Send + '_> {
        let mut last = after;
        Box::new(std::iter::from_fn(move || {
            let stream = self.tables.streams.next(last)?;
            last = Some(stream.id().0);
            Some(session_status(&stream, &self.shared))
        }))
    }

    fn refusals(&self) -> Vec<RefusalStatus> {
        self.tables.sources.refusals.all(|time| self.shared.clock.wall(time))
    }

    fn resources_after(
        &self,
        filter: &ResourceFilter,
        after: Option<ResourcePlace>,
    ) -> Box<dyn Iterator<Item = ResourceStatus> + Send + '_> {
        let filter = filter.clone();
        let from = after.as_ref().map_or(0, |place| place.source);
        let all = self.tables.sources.all().into_iter().filter(move |handle| handle.id().0 >= from);
        Box::new(all.flat_map(move |handle| {
            let after = after.as_ref().filter(|place| place.source == handle.id().0);
            SnapshotWalk::new(&handle, &filter, after, self.shared.clock)
        }))
    }
}

pub(super) fn session_status(stream: &Arc<StreamState>, shared: &DriverContext) -> SessionStatus {
    let delayed = stream.delayed_types();
    stream.look(|node, session, sources| SessionStatus {
        id: stream.id().0,
        node_id: node.map_or("", |node| &node.id).into(),
        node_cluster: node.map_or("", |node| &node.cluster).into(),
        listener: stream.context.peer.listener.clone(),
        peer: stream.context.peer.address,
        identity: stream.context.peer.identity.clone(),
        relays: stream.context.peer.relays.clone(),
        kind: stream.context.kind,
        opened_at: shared.clock.wall(stream.context.opened_at),
        seats: seats_of(sources),
        types: type_statuses(node, session, sources, &delayed, shared),
    })
}

/// The places of the client in the plans of the sources.
fn seats_of(sources: &OwnSources) -> Vec<SeatStatus> {
    let mut seats: Vec<_> = sources.iter().filter_map(|(_, source)| seat_of(source, sources)).collect();
    seats.sort();
    // A client with several sources of a plan may be between two releases at some of them.
    seats.dedup_by(|later, earlier| later.plan == earlier.plan);
    seats
}

fn seat_of(source: &SourceHandle, sources: &OwnSources) -> Option<SeatStatus> {
    let handle = source.judge()?;
    let plan = handle.plan();
    let seat = sources.seat_in(&plan)?;
    let published = source.published();
    let lane = published.lanes.as_ref().map(|lanes| {
        let served = sources.served(source);
        let candidate =
            lanes.of_clients().0.as_ref().filter(|(_, candidate)| Arc::ptr_eq(candidate, &served));
        candidate.map_or(Lane::Stable, |(push, _)| Lane::Candidate { push: *push })
    });
    Some(SeatStatus { plan: (*plan.name).into(), bucket: seat.bucket, lane })
}

/// The sources of the parts of a subscription.
fn sources_of<'a>(
    subscription: &'a Subscription,
    sources: &'a OwnSources,
) -> impl Iterator<Item = &'a SourceHandle> {
    subscription.parts.iter().filter_map(|part| sources.get(part.source())).map(|source| &**source)
}

fn type_of<'a>(status: &'a SourceStatus, type_url: &TypeUrl) -> Option<&'a SourceTypeStatus> {
    status.types.iter().find(|of_type| of_type.type_url == *type_url)
}

/// The servers of these sources, each once.
fn servers_of<'a>(sources: impl Iterator<Item = &'a SourceHandle>) -> Option<Arc<str>> {
    join(sources.map(|source| source.serving_server().uri.clone()))
}

fn join(texts: impl Iterator<Item = Arc<str>>) -> Option<Arc<str>> {
    let mut texts: Vec<_> = texts.collect();
    texts.dedup();
    match texts.as_slice() {
        [] => None,
        [text] => Some(text.clone()),
        texts => Some(texts.join(", ").into()),
    }
}

/// The version of the content that was sent. In SotW, that is the version of the last message. A delta
/// message contains changes only, so its version is not that of the state.
fn version_sent(subscription: &Subscription, session: &Session) -> Option<Version> {
    let sent = subscription.nonces.version_sent();
    match session.variant() {
        Variant::Sotw => sent,
        Variant::Delta => sent.and_then(|_| subscription.version_of_sent()),
    }
}

fn is_restored(subscription: &Subscription, sources: &OwnSources) -> bool {
    let mut snapshots = sources_of(subscription, sources).map(SourceHandle::snapshot);
    snapshots.any(|snapshot| {
        snapshot.standing().of(&subscription.type_url).is_some_and(|standing| standing.restored)
    })
}

fn type_statuses(
    node: Option<&Node>,
    session: &Session,
    sources: &OwnSources,
    delayed: &[(TypeUrl, Time)],
    shared: &DriverContext,
) -> Vec<SessionTypeStatus> {
    let reports = session.reports(&newest(sources), shared.clock.now());
    let types = session.subscriptions().iter().zip(reports);
    let taken = types.map(|(subscription, report)| {
        let rules = rules_of(node, subscription, sources, shared);
        type_status(subscription, report, rules, session, sources, shared)
    });
    let mut types: Vec<_> = taken.collect();
    show_delayed(delayed, &mut types, &shared.clock);
    types
}

/// The change that the client is not sent. The stream holds it back, or a source holds back a mass deletion
/// (FU18).
fn held_status(
    held: Option<&UnsentNews>,
    subscription: &Subscription,
    sources: &OwnSources,
    shared: &DriverContext,
) -> Option<HeldStatus> {
    let waits = |source: &SourceHandle| source.wait_for(&subscription.type_url, &sources.served(source));
    if let Some(wait) = sources_of(subscription, sources).find_map(waits) {
        let what = wait.push.map_or_else(|| "the ledger".to_owned(), |push| format!("push {push}"));
        let duration = Some(shared.clock.now().since(wait.since));
        return Some(HeldStatus { why: Why::Join, what: Some(what.into()), duration });
    }
    if let Some(UnsentNews { why, since }) = held {
        let duration = since.map(|since| shared.clock.now().since(since));
        let (why, what) = match why {
            WhyUnsent::Name(name) => (Why::Name, Some(name.as_str().into())),
            WhyUnsent::Order(type_url) => (Why::Order, Some(type_url.message().into())),
            WhyUnsent::Withheld(name) => (Why::Withheld, Some(name.as_str().into())),
            WhyUnsent::Unread => (Why::Unread, None),
        };
        return Some(HeldStatus { why, what, duration });
    }
    let since = sources_of(subscription, sources).filter_map(|source| {
        let status = source.status();
        type_of(&status, &subscription.type_url)?.held_back_since
    });
    let since = since.min()?;
    let duration = shared.clock.wall(shared.clock.now()).duration_since(since).unwrap_or_default();
    Some(HeldStatus { why: Why::Deletion, what: None, duration: Some(duration) })
}

/// The reason for the state, the first that holds, with the beginning of the state (ADM-7).
fn why(
    subscription: &Subscription,
    report: &TypeReport,
    held: Option<&HeldStatus>,
    clock: &Clock,
) -> (Option<Why>, SystemTime) {
    let nonces = &subscription.nonces;
    let since = |time: Option<Time>| clock.wall(time.unwrap_or(nonces.since));
    if let Some(nack) = subscription.nack() {
        return (Some(Why::Rejected), since(Some(nack.at)));
    }
    if nonces.is_waiting() {
        return (Some(Why::Unacked), since(nonces.waiting_since()));
    }
    if let Some(held) = held {
        let now = clock.wall(clock.now());
        let begun = held.duration.and_then(|duration| now.checked_sub(duration));
        return (Some(held.why), begun.unwrap_or_else(|| since(report.changed_at)));
    }
    let is_unknown = nonces.version_sent().is_none() && subscription.holds_nothing() && !report.is_known;
    (is_unknown.then_some(Why::Unknown), since(None))
}

/// The rules that chose the classes of a subscription. Servers that ignore nodes have one class (ADM-9).
fn rules_of(
    node: Option<&Node>,
    subscription: &Subscription,
    sources: &OwnSources,
    shared: &DriverContext,
) -> Vec<RuleId> {
    let (anonymous, settings) = (Node::default(), shared.settings());
    let is_classed = |id| sources.get(id).is_some_and(|source| !source.server(0).is_local());
    let parts = subscription.parts.iter().filter(|part| is_classed(part.source()));
    let rules = parts.filter_map(|part| {
        let names = part.group.authority.names();
        settings.classes.rule(node.unwrap_or(&anonymous), &subscription.type_url, names)
    });
    let mut rules: Vec<_> = rules.map(|rule| rule.id).collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}

pub(super) fn nack_status(nack: &Nack, subscription: &Subscription, clock: &Clock) -> NackStatus {
    let detail = nack.status.to_string();
    // A client may quote the content that it rejects (ADM-12).
    let detail: Arc<str> = secrets::hide(&detail).unwrap_or(detail).into();
    NackStatus {
        version: Some(nack.version),
        names: subscription.names_in(nack),
        detail,
        at: clock.wall(nack.at),
    }
}

fn type_status(
    subscription: &Subscription,
    report: TypeReport,
    rules: Vec<RuleId>,
    session: &Session,
    sources: &OwnSources,
    shared: &DriverContext,
) -> SessionTypeStatus {
    let held = held_status(report.unsent.as_ref(), subscription, sources, shared);
    let nonces = &subscription.nonces;
    let (why, since) = why(subscription, &report, held.as_ref(), &shared.clock);
    let statuses = || sources_of(subscription, sources).map(SourceHandle::status);
    SessionTypeStatus {
        type_url: subscription.type_url.clone(),
        server: servers_of(sources_of(subscription, sources)),
        class: join(statuses().map(|status| status.class.digest.clone())),
        rules,
        fallback: session.is_on_fallback(subscription),
        change: changes::latest_of(subscription, sources),
        stale_since: statuses().filter_map(|status| status.stale_since).min(),
        wildcard: subscription.is_wildcard(),
        names: subscription.names_len(),
        version_sent: version_sent(subscription, session),
        version_acked: match session.variant() {
            Variant::Sotw => nonces.version_acked(),
            Variant::Delta => nonces.version_acked().and_then(|_| subscription.version_held()),
        },
        has: subscription.version_held(),
        should: report.should,
        nonce: nonces.latest().map(|nonce| session.nonce_text(nonce).into()),
        state: why.map_or(ConfigStatus::Synced, Why::state),
        why,
        since,
        server_refuses: statuses()
            .find_map(|status| type_of(&status, &subscription.type_url)?.refused.clone()),
        refused: sources_of(subscription, sources).any(|source| source.key().place == Place::REFUSED),
        restored: is_restored(subscription, sources),
        unacked: nonces.waiting_since().map(|since| shared.clock.now().since(since)),
        waits: subscription.name_wait().map(|wait| WaitStatus {
            name: wait.name.clone(),
            server: servers_of(sources.get(wait.source).map(|source| &**source).into_iter()),
            duration: shared.clock.now().since(wait.since),
        }),
        held,
        nack: subscription.nack().map(|nack| nack_status(nack, subscription, &shared.clock)),
    }
}

/// Shows types with delayed requests as waiting, each since its oldest request.
fn show_delayed(delayed: &[(TypeUrl, Time)], types: &mut Vec<SessionTypeStatus>, clock: &Clock) {
    for (type_url, since) in delayed {
        match types.iter_mut().find(|status| status.type_url == *type_url) {
            Some(status) => wait_for_rate(status, *since, clock),
            None => {
                let mut status = status_of_unknown(type_url.clone(), clock.wall(*since));
                wait_for_rate(&mut status, *since, clock);
                types.push(status);
            }
        }
    }
}

/// The status of a type without a taken request.
fn status_of_unknown(type_url: TypeUrl, since: SystemTime) -> SessionTypeStatus {
    SessionTypeStatus {
        type_url,
        server: None,
        class: None,
        fallback: false,
        change: None,
        stale_since: None,
        wildcard: false,
        names: 0,
        version_sent: None,
        version_acked: None,
        nonce: None,
        state: ConfigStatus::NotSent,
        why: None,
        since,
        has: None,
        should: None,
        rules: Vec::new(),
        server_refuses: None,
        refused: false,
        restored: false,
        unacked: None,
        waits: None,
        held: None,
        nack: None,
    }
}

/// Shows that requests of the type wait in the relay (ADR 66). A rejection alone matters more, and of several
/// requests the oldest counts.
fn wait_for_rate(status: &mut SessionTypeStatus, since: Time, clock: &Clock) {
    if status.why.is_some_and(|why| why <= Why::Rate) {
        return;
    }
    (status.state, status.why, status.since) = (Why::Rate.state(), Some(Why::Rate), clock.wall(since));
    let duration = Some(clock.now().since(since));
    status.held =
        Some(HeldStatus { why: Why::Rate, what: Some("limits.changes_per_second".into()), duration });
}
