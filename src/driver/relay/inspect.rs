//! The relay as the admin room sees it: read-only, item by item, without a lock between items.

use std::ops::Bound;
use std::sync::Arc;

use crate::driver::api::status::{
    ClientStatus, ConfigStatus, HeldStatus, NackStatus, RefusalStatus, ResourceFilter, ResourceStatus,
    SessionStatus, SessionTypeStatus, SourceStatus, StatusView, WaitStatus,
};
use crate::driver::ground::clock::Clock;
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::servers::Place as ServerPlace;
use crate::driver::relay::Relay;
use crate::driver::source::handle::{SourceHandle, Subscriber};
use crate::driver::stream::state::StreamState;
use crate::engine::Time;
use crate::engine::annotations::Annotations;
use crate::engine::cache::{CachedResource, EntryState};
use crate::engine::downstream::{Session, SourceId, Subscription, UnsentNews, WhyUnsent};
use crate::engine::snapshot::{Snapshot, TypeSnapshot};
use crate::telemetry::wall_now;
use crate::xds::{ResourceName, TypeUrl, Variant, Version};

impl StatusView for Relay {
    fn sources(&self) -> Vec<Arc<SourceStatus>> {
        // Lists without a server have no attachment to show.
        let is_attached = |handle: &&Arc<SourceHandle>| !handle.server(0).is_made_up();
        self.tables.sources.all().iter().filter(is_attached).map(|handle| handle.status()).collect()
    }

    fn sessions(&self) -> Box<dyn Iterator<Item = SessionStatus> + Send + '_> {
        let mut last = None;
        Box::new(std::iter::from_fn(move || {
            let stream = self.tables.streams.next(last)?;
            last = Some(stream.id().0);
            Some(session_status(&stream, &self.shared))
        }))
    }

    fn refusals(&self) -> Vec<RefusalStatus> {
        self.tables.sources.refusals.all(|time| self.shared.clock.wall(time))
    }

    fn resources(&self, filter: &ResourceFilter) -> Box<dyn Iterator<Item = ResourceStatus> + Send + '_> {
        let filter = filter.clone();
        let all = self.tables.sources.all().into_iter();
        Box::new(all.flat_map(move |handle| Walk::new(&handle, &filter, self.shared.clock)))
    }
}

fn session_status(stream: &Arc<StreamState>, shared: &DriverContext) -> SessionStatus {
    stream.look(|node, session, sources| SessionStatus {
        id: stream.id().0,
        node_id: node.map_or("", |node| &node.id).into(),
        node_cluster: node.map_or("", |node| &node.cluster).into(),
        listener: stream.peer.listener.clone(),
        peer: stream.peer.address,
        identity: stream.peer.identity.clone(),
        kind: stream.kind(),
        opened_at: shared.clock.wall(stream.opened_at),
        types: type_statuses(session, sources, shared),
    })
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

/// The version of the client's state. In SotW, that is the version of the last message. A delta message
/// contains changes only, so its version is not that of the state.
fn version_held(subscription: &Subscription, session: &Session) -> Option<Version> {
    let parts = || subscription.parts.iter().map(|part| part.held.digest());
    match session.variant() {
        Variant::Sotw => subscription.nonces.version_sent,
        Variant::Delta => {
            parts().reduce(Version::plus).filter(|_| subscription.nonces.version_sent.is_some())
        }
    }
}

fn is_restored(subscription: &Subscription, sources: &[(SourceId, Arc<SourceHandle>)]) -> bool {
    let mut snapshots = sources_of(subscription, sources).map(SourceHandle::snapshot);
    snapshots.any(|snapshot| {
        snapshot.standing().of(&subscription.type_url).is_some_and(|standing| standing.restored)
    })
}

fn type_statuses(
    session: &Session,
    sources: &[(SourceId, Arc<SourceHandle>)],
    shared: &DriverContext,
) -> Vec<SessionTypeStatus> {
    let latest = |id| sources.iter().find(|(known, _)| *known == id).map(|(_, handle)| handle.snapshot());
    let held = session.unsent_news(&latest, shared.clock.now());
    let types = session.subscriptions().iter().zip(held);
    types.map(|(subscription, held)| type_status(subscription, held, session, sources, shared)).collect()
}

/// The change that the client is not sent. The stream holds it back, or a source holds back a mass deletion
/// (FU18).
fn held_status(
    held: Option<UnsentNews>,
    subscription: &Subscription,
    sources: &[(SourceId, Arc<SourceHandle>)],
    shared: &DriverContext,
) -> Option<HeldStatus> {
    if let Some(UnsentNews { why, since }) = held {
        let duration = since.map(|since| shared.clock.now().since(since));
        let (why, what) = match &why {
            WhyUnsent::Name(name) => ("name", Some(name.as_str().into())),
            WhyUnsent::Order(type_url) => ("order", Some(type_url.message().into())),
            WhyUnsent::Withheld(name) => ("withheld", Some(name.as_str().into())),
            WhyUnsent::Unread => ("unread", None),
        };
        return Some(HeldStatus { why, what, duration });
    }
    let since = sources_of(subscription, sources).filter_map(|source| {
        let status = source.status();
        status.types.iter().find(|of| of.type_url == subscription.type_url)?.held_back_since
    });
    let since = since.min()?;
    let duration = wall_now().duration_since(since).unwrap_or_default();
    Some(HeldStatus { why: "deletion", what: None, duration: Some(duration) })
}

fn type_status(
    subscription: &Subscription,
    held: Option<UnsentNews>,
    session: &Session,
    sources: &[(SourceId, Arc<SourceHandle>)],
    shared: &DriverContext,
) -> SessionTypeStatus {
    let held = held_status(held, subscription, sources, shared);
    let nonces = &subscription.nonces;
    let state = match (&nonces.nack, nonces.version_sent, nonces.is_waiting()) {
        (Some(_), _, _) => ConfigStatus::Error,
        (None, None, _) if subscription.holds_nothing() => ConfigStatus::NotSent,
        (None, _, true) => ConfigStatus::Stale,
        // The client has not been sent all changes.
        (None, _, false) if held.is_some() => ConfigStatus::Stale,
        (None, _, false) => ConfigStatus::Synced,
    };
    SessionTypeStatus {
        type_url: subscription.type_url.clone(),
        server: servers_of(sources_of(subscription, sources)),
        class: join(sources_of(subscription, sources).map(|source| source.status().class.digest.clone())),
        stale_since: sources_of(subscription, sources).filter_map(|source| source.status().stale_since).min(),
        wildcard: subscription.is_wildcard(),
        names: subscription.names_len(),
        version_sent: version_held(subscription, session),
        version_acked: match session.variant() {
            Variant::Sotw => nonces.version_acked,
            Variant::Delta => {
                let is_acked = nonces.nack.is_none() && !nonces.is_waiting();
                version_held(subscription, session).filter(|_| is_acked)
            }
        },
        nonce: nonces.latest().map(|nonce| session.nonce_text(nonce).into()),
        state,
        server_refuses: sources_of(subscription, sources).find_map(|source| {
            let status = source.status();
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
        nack: nonces.nack.as_ref().map(|nack| NackStatus {
            version: Some(nack.version),
            detail: nack.status.to_string().into(),
            at: shared.clock.wall(nack.at),
        }),
    }
}

/// An iterator over one snapshot, name by name.
pub(super) struct Walk {
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
    pub(super) fn new(handle: &SourceHandle, filter: &ResourceFilter, clock: Clock) -> Walk {
        let snapshot = handle.snapshot();
        let types: Vec<_> =
            snapshot.types().map(|(url, _)| url.clone()).filter(|url| filter.wants_type(url)).collect();
        let status = handle.status();
        let (server, class) = (status.server.clone(), status.class.digest.clone());
        let now = clock.now();
        Walk { snapshot, types: types.into_iter(), current: None, server, class, clock, now }
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
            type_url: type_url.clone(),
            name: name.clone(),
            collection,
            version: cached.map(|cached| cached.resource.version),
            bytes: cached.map_or(0, |cached| cached.resource.body.value.len()),
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
