//! The task of a session: one endpoint after the other, and events in order.

use std::sync::Arc;

use tokio::time::{Instant, sleep, sleep_until};
use tracing::info;

use super::call::{EtcdCaller, EtcdEndpoint};
use super::content::{Interruption, LoadedContent, PrefixWatch, load};
use super::keep_alive::{grant, keep_alive};
use super::place::{EtcdLink, EtcdLive, EtcdPlace};
use crate::ledger::LedgerEvent;
use crate::ledger::holdings::Holdings;
use crate::ledger::keeper::{RELOAD_PAUSE, SessionKeeper, SessionStore};
use crate::ledger::live::{DEADLINE, LiveSession};

pub(super) struct EtcdStore {
    pub(super) place: Arc<EtcdPlace>,
    /// The number of the endpoint for the next attempt.
    pub(super) next: usize,
}

impl SessionStore for EtcdStore {
    type Link = EtcdLink;

    /// One session at one endpoint, the first that has one. The endpoints that were tried before have no part
    /// in a later loss.
    async fn session(&mut self, keeper: &SessionKeeper<EtcdLink>) -> String {
        let mut reasons = Vec::new();
        for _ in 0..self.place.endpoints.len() {
            let endpoint = &self.place.endpoints[self.next % self.place.endpoints.len()];
            self.next = self.next.wrapping_add(1);
            let (Ok(reason) | Err(reason)) = self.attempt(endpoint, keeper).await;
            if keeper.is_loaded() {
                return reason;
            }
            reasons.push(reason);
        }
        reasons.join("; ")
    }
}

impl EtcdStore {
    /// One session at one endpoint. Returns the reason of its end.
    async fn attempt(
        &self,
        endpoint: &Arc<EtcdEndpoint>,
        keeper: &SessionKeeper<EtcdLink>,
    ) -> Result<String, String> {
        let caller = EtcdCaller::open(endpoint.clone(), self.place.user.clone()).await?;
        // Content that is out of bounds costs the server no lease.
        let content = load(&caller, &self.place.prefix).await?;
        let length = self.place.ledger.lease;
        let (id, lease) = grant(&caller, length).await?;
        let link = EtcdLink { caller, cluster: content.cluster, lease: id };
        let session = Arc::new(LiveSession::new(link, lease));
        Ok(tokio::select! {
            biased;
            reason = keep_alive(&session, length) => reason,
            reason = session.fault() => reason,
            reason = self.follow(&session, content, keeper) => reason,
        })
    }

    /// Reports the content and its changes.
    async fn follow(
        &self,
        session: &Arc<EtcdLive>,
        mut content: LoadedContent,
        keeper: &SessionKeeper<EtcdLink>,
    ) -> String {
        let (caller, prefix) = (&*session.link.caller, &*self.place.prefix);
        loop {
            let ended = match PrefixWatch::open(caller, prefix, &content).await {
                Ok(mut watch) => self.watch(session, content, &mut watch, keeper).await,
                Err(interruption) => interruption,
            };
            match ended {
                Interruption::Compacted => sleep(RELOAD_PAUSE).await,
                Interruption::Ended(reason) => return reason,
            }
            content = match load(caller, prefix).await {
                Ok(content) if content.cluster == session.link.cluster => content,
                Ok(_) => return caller.about("another cluster of etcd answers"),
                Err(reason) => return reason,
            };
        }
    }

    async fn watch(
        &self,
        session: &Arc<EtcdLive>,
        content: LoadedContent,
        watch: &mut PrefixWatch<'_>,
        keeper: &SessionKeeper<EtcdLink>,
    ) -> Interruption {
        let LoadedContent { cluster, revision, entries, mut holdings } = content;
        let identity = format!("{cluster:016x}");
        if !keeper.is_loaded() {
            let (place, endpoint) = (&self.place.ledger.name, &session.link.caller.address());
            info!(ledger = %place, %endpoint, identity, revision, entries = entries.len(), "the ledger is loaded");
        }
        keeper.begin(session);
        let _connected = self.place.ledger.metrics.connected();
        let loaded = LedgerEvent::Loaded { identity, revision, entries };
        match keeper.tell(loaded).await {
            Ok(()) => pump(session, &mut holdings, watch, keeper).await,
            Err(reason) => Interruption::Ended(reason),
        }
    }
}

async fn pump(
    session: &EtcdLive,
    holdings: &mut Holdings,
    watch: &mut PrefixWatch<'_>,
    keeper: &SessionKeeper<EtcdLink>,
) -> Interruption {
    // An own write without its event yet, and the time at which the watch counts as dead.
    let mut awaited: Option<(u64, Instant)> = None;
    loop {
        awaited = session.awaited(awaited, holdings.revision());
        let silent_at = awaited.map_or_else(Instant::now, |(_, at)| at);
        let events = tokio::select! {
            events = watch.next() => events,
            () = session.wrote.notified() => continue,
            () = sleep_until(silent_at), if awaited.is_some() => {
                let reason = format!("the watch has not reported an own write for {DEADLINE:?}");
                return session.link.caller.about(&reason).into();
            }
        };
        let events = match events {
            Ok(events) => events,
            Err(interruption) => return interruption,
        };
        for event in events {
            let result = match holdings.take(&event) {
                Ok(()) => keeper.tell(event).await,
                Err(reason) => Err(session.link.caller.about(&reason)),
            };
            if let Err(reason) = result {
                return reason.into();
            }
        }
    }
}
