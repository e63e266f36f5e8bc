//! The relay as the admin room sees it: read-only, item by item, without a lock between items.

use std::ops::Bound;
use std::sync::Arc;
use std::time::SystemTime;

use crate::driver::api::status::{
    ClientStatus, ConfigStatus, HeldStatus, Lane, NackStatus, RefusalStatus, ResourceFilter, ResourcePlace,
    ResourceStatus, RuleId, SeatStatus, SessionStatus, SessionTypeStatus, SourceStatus, StatusView,
    WaitStatus, Why,
};
use crate::driver::ground::clock::Clock;
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::servers::Place as ServerPlace;
use crate::driver::relay::Relay;
use crate::driver::relay::changes;
use crate::driver::relay::waiting_types;
use crate::driver::source::handle::{SourceHandle, Subscriber};
use crate::driver::stream::own_sources::{OwnSources, newest};
use crate::driver::stream::state::StreamState;
use crate::engine::Time;
use crate::engine::annotations::Annotations;
use crate::engine::cache::{CachedResource, EntryState};
use crate::engine::downstream::{Nack, Session, SourceId, Subscription, TypeReport, UnsentNews, WhyUnsent};
use crate::engine::snapshot::{Snapshot, TypeSnapshot};
use crate::text::secrets;
use crate::xds::{Node, ResourceName, TypeUrl, Variant, Version};

impl StatusView for Relay {
    fn now(&self) -> SystemTime {
        self.shared.clock.wall(self.shared.clock.now())
    }

    fn sources(&self) -> Vec<Arc<SourceStatus>> {
        // Lists without a server have no attachment to show.
        let is_attached = |handle: &&Arc<SourceHandle>| !handle.server(0).is_made_up();
        self.tables.sources.all().iter().filter(is_attached).map(|handle| handle.status()).collect()
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
            Walk::new(&handle, &filter, after, self.shared.clock)
        }))
    }
}

pub(super) fn session_status(stream: &Arc<StreamState>, shared: &DriverContext) -> SessionStatus {
    let waiting = stream.delayed_types();
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
        types: type_statuses(node, session, sources, (shared, &waiting)),
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
        let candidate = lanes.candidate.as_ref().filter(|(_, candidate)| Arc::ptr_eq(candidate, &served));
        candidate.map_or(Lane::Stable, |(push, _)| Lane::Candidate { push: *push })
    });
    Some(SeatStatus { plan: (*plan.name).into(), bucket: seat.bucket, lane })
}

/// The sources of the parts of a subscription.
fn sources_of<'a>(
    subscription: &'a Subscription,
    sources: &'a [(SourceId, Arc<SourceHandle>)],
) -> impl Iterator<Item = &'a SourceHandle> {
    let of = |id| sources.iter().find(|(known, _)| *known == id).map(|(_, handle)| &**handle);
    subscription.parts.iter().filter_map(move |part| of(part.source()))
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

/// The version of the content that was sent. In SotW, that is the version of the last message. A delta message
/// contains changes only, so its version is not that of the state.
fn version_sent(subscription: &Subscription, session: &Session) -> Option<Version> {
    let sent = subscription.nonces.version_sent;
    match session.variant() {
        Variant::Sotw => sent,
        Variant::Delta => sent.and_then(|_| subscription.version_of_sent()),
    }
}

fn is_restored(subscription: &Subscription, sources: &[(SourceId, Arc<SourceHandle>)]) -> bool {
    let mut snapshots = sources_of(subscription, sources).map(SourceHandle::snapshot);
    snapshots.any(|snapshot| {
        snapshot.standing().of(&subscription.type_url).is_some_and(|standing| standing.restored)
    })
}

fn type_statuses(
    node: Option<&Node>,
    session: &Session,
    sources: &OwnSources,
    (shared, waiting): (&DriverContext, &[(TypeUrl, Time)]),
) -> Vec<SessionTypeStatus> {
    let reports = session.reports(&newest(sources), shared.clock.now());
    let types = session.subscriptions().iter().zip(reports);
    let taken = types.map(|(of, report)| type_status(of, report, (node, session), sources, shared));
    let mut types: Vec<_> = taken.collect();
    waiting_types::show(waiting, &mut types, &shared.clock);
    types
}

/// The change that the client is not sent. The stream holds it back, or a source holds back a mass deletion
/// (FU18).
fn held_status(
    held: Option<&UnsentNews>,
    subscription: &Subscription,
    sources: &[(SourceId, Arc<SourceHandle>)],
    shared: &DriverContext,
) -> Option<HeldStatus> {
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
        status.types.iter().find(|of| of.type_url == subscription.type_url)?.held_back_since
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
    if let Some(nack) = &nonces.nack {
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
    let is_unknown = nonces.version_sent.is_none() && subscription.holds_nothing() && !report.is_known;
    (is_unknown.then_some(Why::Unknown), since(None))
}

/// The rules that chose the classes of a subscription. Servers that ignore nodes have one class (ADM-9).
fn rules_of(
    node: Option<&Node>,
    subscription: &Subscription,
    sources: &[(SourceId, Arc<SourceHandle>)],
    shared: &DriverContext,
) -> Vec<RuleId> {
    let (anonymous, settings) = (Node::default(), shared.settings());
    let is_classed = |id| sources.iter().any(|(known, handle)| *known == id && !handle.server(0).is_local());
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
    (node, session): (Option<&Node>, &Session),
    sources: &[(SourceId, Arc<SourceHandle>)],
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
        rules: rules_of(node, subscription, sources, shared),
        fallback: session.is_on_fallback(subscription),
        change: changes::latest_of(subscription, sources),
        stale_since: statuses().filter_map(|status| status.stale_since).min(),
        wildcard: subscription.is_wildcard(),
        names: subscription.names_len(),
        version_sent: version_sent(subscription, session),
        version_acked: match session.variant() {
            Variant::Sotw => nonces.version_acked,
            Variant::Delta => nonces.version_acked.and_then(|_| subscription.version_held()),
        },
        has: subscription.version_held(),
        should: report.should,
        nonce: nonces.latest().map(|nonce| session.nonce_text(nonce).into()),
        state: why.map_or(ConfigStatus::Synced, Why::state),
        why,
        since,
        server_refuses: statuses().find_map(|status| {
            status.types.iter().find(|of| of.type_url == subscription.type_url)?.refused.clone()
        }),
        refused: sources_of(subscription, sources).any(|source| source.key().place == ServerPlace::REFUSED),
        restored: is_restored(subscription, sources),
        unacked: nonces.waiting_since().map(|since| shared.clock.now().since(since)),
        waits: subscription.name_wait.as_ref().map(|wait| WaitStatus {
            name: wait.name.clone(),
            server: servers_of(
                sources.iter().filter(|(id, _)| *id == wait.source).map(|(_, source)| &**source),
            ),
            duration: shared.clock.now().since(wait.since),
        }),
        held,
        nack: nonces.nack.as_ref().map(|nack| nack_status(nack, subscription, &shared.clock)),
    }
}

impl Place {
    fn behind(place: &ResourcePlace) -> Place {
        let last = Some(place.name.clone());
        match place.collection {
            "names" => Place::Names(last),
            "wildcard" => Place::Members(last),
            _ => Place::GlobMembers(last),
        }
    }
}

/// An iterator over one snapshot, name by name.
pub(super) struct Walk {
    source: u64,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) types: std::vec::IntoIter<TypeUrl>,
    current: Option<(TypeUrl, Place)>,
    server: Arc<str>,
    class: Arc<str>,
    clock: Clock,
    now: Time,
}

/// The names come first, then the members of the wildcard, then the members of globs. Each variant has the last
/// returned name.
#[derive(Clone)]
enum Place {
    Names(Option<ResourceName>),
    Members(Option<ResourceName>),
    GlobMembers(Option<ResourceName>),
}

impl Walk {
    pub(super) fn new(
        handle: &SourceHandle,
        filter: &ResourceFilter,
        after: Option<&ResourcePlace>,
        clock: Clock,
    ) -> Walk {
        Walk::over(handle, handle.snapshot(), (filter, after), clock)
    }

    /// A walk over any content of the source.
    pub(super) fn over(
        handle: &SourceHandle,
        snapshot: Arc<Snapshot>,
        (filter, after): (&ResourceFilter, Option<&ResourcePlace>),
        clock: Clock,
    ) -> Walk {
        let is_left = |url: &TypeUrl| after.is_none_or(|place| *url > place.type_url);
        let types: Vec<_> = snapshot
            .types()
            .map(|(url, _)| url.clone())
            .filter(|url| filter.wants_type(url) && is_left(url))
            .collect();
        let current = after.map(|place| (place.type_url.clone(), Place::behind(place)));
        let status = handle.status();
        let (server, class) = (status.server.clone(), status.class.digest.clone());
        let now = clock.now();
        let source = handle.id().0;
        Walk { source, snapshot, types: types.into_iter(), current, server, class, clock, now }
    }

    pub(super) fn status(
        &self,
        type_url: &TypeUrl,
        name: &ResourceName,
        cached: Option<&CachedResource>,
        state: EntryState,
        annotations: &Annotations,
        collection: &'static str,
    ) -> ResourceStatus {
        let error = annotations.error(name);
        ResourceStatus {
            source: self.source,
            type_url: type_url.clone(),
            name: name.clone(),
            collection,
            version: cached.map(|cached| cached.resource.version),
            bytes: cached.map_or(0, |cached| cached.resource.size()),
            received_at: cached.map(|cached| self.clock.wall_of(cached.received_at)),
            state: client_status(state),
            error: error.map(|error| (**error).clone()),
            expires_in: annotations.lease(name).map(|lease| lease.expires.since(self.now)),
            server: self.server.clone(),
            class: self.class.clone(),
        }
    }

    fn step(&self, type_url: &TypeUrl, place: &Place) -> Option<(ResourceStatus, Place)> {
        let types: &TypeSnapshot = self.snapshot.of(type_url)?;
        match place {
            Place::Names(last) => {
                let Some((name, known)) = types.names.known.range(behind(last)).next() else {
                    return self.step(type_url, &Place::Members(None));
                };
                let state = EntryState::of(known, name, &types.names.annotations);
                let status =
                    self.status(type_url, name, known.cached(), state, &types.names.annotations, "names");
                Some((status, Place::Names(Some(name.clone()))))
            }
            Place::Members(last) => {
                let Some((name, cached)) = types.wildcard.members.range(behind(last)).next() else {
                    return self.step(type_url, &Place::GlobMembers(None));
                };
                let none = Annotations::default();
                let annotations = types.wildcard.view.as_ref().map_or(&none, |view| view.annotations());
                let state = EntryState::of_member(name, annotations);
                let status = self.status(type_url, name, Some(cached), state, annotations, "wildcard");
                Some((status, Place::Members(Some(name.clone()))))
            }
            Place::GlobMembers(last) => {
                let (name, cached) = types.globs.members.range(behind(last)).next()?;
                let annotations = &types.globs.annotations;
                let state = EntryState::of_member(name, annotations);
                let status = self.status(type_url, name, Some(cached), state, annotations, "globs");
                Some((status, Place::GlobMembers(Some(name.clone()))))
            }
        }
    }
}

/// The status in the words of CSDS: an error about a newer version matters more than the cached copy (DAT-5).
fn client_status(state: EntryState) -> ClientStatus {
    match state {
        EntryState::Requested => ClientStatus::Requested,
        EntryState::DoesNotExist => ClientStatus::DoesNotExist,
        EntryState::Acked => ClientStatus::Acked,
        EntryState::Nacked | EntryState::NackedButCached => ClientStatus::Nacked,
        EntryState::Timeout => ClientStatus::Timeout,
        EntryState::ReceivedError | EntryState::ReceivedErrorButCached => ClientStatus::ReceivedError,
    }
}

fn behind(last: &Option<ResourceName>) -> (Bound<ResourceName>, Bound<ResourceName>) {
    (last.clone().map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}

impl Iterator for Walk {
    type Item = ResourceStatus;

    fn next(&mut self) -> Option<ResourceStatus> {
        loop {
            if let Some((type_url, place)) = self.current.take()
                && let Some((status, next)) = self.step(&type_url, &place)
            {
                self.current = Some((type_url, next));
                return Some(status);
            }
            self.current = Some((self.types.next()?, Place::Names(None)));
        }
    }
}
