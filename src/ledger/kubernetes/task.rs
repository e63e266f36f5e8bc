//! The task of a session: the load, the lease, and events in order.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::info;

use super::content::{ClusterContent, Renewal, Renewals};
use super::lease::{OldLease, give_back, keep_alive, now_text};
use super::objects::{
    ApiObject, ConfigMap, LABEL, LeaseObject, lease_name, lease_object, revision, root_object,
};
use super::place::{KubernetesLink, KubernetesLive, KubernetesPlace};
use super::watch::{ObjectNews, changes};
use crate::kubernetes::{ApiError, ApiServer, Collection};
use crate::ledger::holdings::{too_large, too_many};
use crate::ledger::keeper::{RELOAD_PAUSE, SessionKeeper, SessionStore};
use crate::ledger::live::{DEADLINE, LeaseClock, LiveSession};
use crate::ledger::{ENTRIES_MAX, LEDGER_BYTES_MAX, LedgerEvent};

pub(super) struct KubernetesStore {
    pub(super) place: Arc<KubernetesPlace>,
    /// This handle among all holders of the lease.
    pub(super) holder: String,
    /// The lease of the name, while another process has it.
    pub(super) old: Option<OldLease>,
}

impl SessionStore for KubernetesStore {
    type Link = KubernetesLink;

    async fn session(&mut self, keeper: &SessionKeeper<KubernetesLink>) -> String {
        let (Ok(reason) | Err(reason)) = self.attempt(keeper).await;
        reason
    }
}

/// A list of all objects at one version.
struct Listed<T> {
    items: Vec<T>,
    version: String,
}

/// The content, and the versions from which the watches go on.
struct LoadedObjects {
    content: ClusterContent,
    maps: String,
    leases: String,
}

/// Why a session goes on with a new load, or ends.
enum Break {
    Expired,
    Ended(String),
}

impl KubernetesStore {
    async fn attempt(&mut self, keeper: &SessionKeeper<KubernetesLink>) -> Result<String, String> {
        let place = self.place.clone();
        let settings = &place.settings;
        // Read anew for each session: tokens and authorities rotate.
        let server = ApiServer::open(&settings.access, self.place.pause.clone()).await?;
        let namespace = settings.namespace.as_deref().unwrap_or(server.namespace());
        let label = format!("{LABEL}={}", settings.name);
        let leases = server.collection("apis/coordination.k8s.io/v1", "leases", namespace, &label)?;
        let maps = server.collection("api/v1", "configmaps", namespace, &label)?;
        let hidden = place.hidden.lock().clone();
        if let Some(name) = hidden {
            place.look_for(&maps, &name).await?;
        }

        let name = lease_name(&settings.name, &self.place.replica);
        let mut others = list::<LeaseObject>(&leases).await?;
        self.free_name(&leases, &name, &others.items).await?;
        others.items.retain(|lease| lease.metadata.name != name);
        // Content that is out of bounds costs no lease.
        let mut loaded = load(&maps, others, &settings.name).await?;

        let (sent_at, time, length) = (Instant::now(), now_text(), self.place.ledger.lease);
        let object = lease_object(&settings.name, &name, &self.holder, length, &time);
        let lease = leases.create::<LeaseObject>(&object).await;
        let lease = lease.map_err(|error| lease_fault(error, &leases, &name, &settings.name))?;
        loaded.content.set_own_lease(&lease.metadata.uid);
        let deaf_at = Some(Instant::now() + DEADLINE);
        let link = KubernetesLink {
            maps,
            leases,
            lease_name: name,
            lease_uid: lease.metadata.uid,
            renewals: Mutex::new(Renewals::from([Renewal { time, sent_at, deaf_at }])),
            renew: Notify::new(),
        };
        let session = Arc::new(LiveSession::new(link, LeaseClock::new(sent_at, length)));
        Ok(tokio::select! {
            biased;
            reason = keep_alive(&session, length) => reason,
            reason = session.fault() => reason,
            reason = self.follow(&session, loaded, keeper) => reason,
        })
    }

    /// Makes room for the own lease. A lease of this very handle is from a session before. A lease of another
    /// process goes when it was not renewed for its length since it was first seen.
    async fn free_name(
        &mut self,
        leases: &Collection,
        name: &str,
        seen: &[LeaseObject],
    ) -> Result<(), String> {
        let Some(lease) = seen.iter().find(|lease| lease.metadata.name == name) else {
            self.old = None;
            return Ok(());
        };
        let (holder, replica) = (&lease.spec.holder_identity, &self.place.replica);
        if *holder != self.holder && !OldLease::is_over(&mut self.old, lease, Instant::now()) {
            return Err(format!(
                "another process has the name {replica:?}: {holder:?} holds the Lease {name:?}"
            ));
        }
        give_back(leases, lease).await
    }

    /// Reports the content and its changes.
    async fn follow(
        &self,
        session: &Arc<KubernetesLive>,
        mut loaded: LoadedObjects,
        keeper: &SessionKeeper<KubernetesLink>,
    ) -> String {
        let link = &session.link;
        loop {
            match self.watch(session, loaded, keeper).await {
                Break::Ended(reason) => return reason,
                Break::Expired => sleep(RELOAD_PAUSE).await,
            }
            loaded = match self.load_again(link).await {
                Ok(loaded) => loaded,
                Err(reason) => return reason,
            };
        }
    }

    /// A load within a session.
    async fn load_again(&self, link: &KubernetesLink) -> Result<LoadedObjects, String> {
        // The list has the renewals that were answered before. The watch after it does not report them.
        link.renewals.lock().retain(|renewal| renewal.deaf_at.is_none());
        let mut leases = list::<LeaseObject>(&link.leases).await?;
        let lease = leases.items.iter().position(|lease| lease.metadata.uid == link.lease_uid);
        let lease = lease.map(|at| leases.items.swap_remove(at));
        let lease =
            lease.ok_or_else(|| format!("the Lease {:?} of this replica is gone", link.lease_name))?;
        let mut loaded = load(&link.maps, leases, &self.place.settings.name).await?;
        loaded.content.set_own_lease(&link.lease_uid);
        loaded.content.found_lease(lease, &mut link.renewals.lock(), Instant::now())?;
        Ok(loaded)
    }

    async fn watch(
        &self,
        session: &Arc<KubernetesLive>,
        loaded: LoadedObjects,
        keeper: &SessionKeeper<KubernetesLink>,
    ) -> Break {
        let LoadedObjects { mut content, maps, leases } = loaded;
        let (maps, leases) = (changes(&session.link.maps, maps), changes(&session.link.leases, leases));
        let mut news = WatchedNews { maps, leases };
        let (identity, revision, entries) = (content.identity.clone(), content.revision(), content.shown());
        if !keeper.is_loaded() {
            let place = &self.place.ledger.name;
            info!(ledger = %place, identity, revision, entries = entries.len(), "the ledger is loaded");
        }
        keeper.begin(session);
        let _connected = self.place.ledger.metrics.connected();
        let mut events = vec![LedgerEvent::Loaded { identity, revision, entries }];
        let mut awaited = None;
        loop {
            for event in events.drain(..) {
                if let Err(reason) = keeper.tell(event).await {
                    return Break::Ended(reason);
                }
            }
            awaited = session.awaited(awaited, content.revision());
            events = match next_events(&self.place, session, &mut content, &mut news, awaited).await {
                Ok(events) => events,
                Err(end) => return end,
            };
        }
    }
}

/// The two watches of a session.
struct WatchedNews {
    maps: mpsc::Receiver<ObjectNews<ConfigMap>>,
    leases: mpsc::Receiver<ObjectNews<LeaseObject>>,
}

/// The next events, perhaps none.
async fn next_events(
    place: &KubernetesPlace,
    session: &Arc<KubernetesLive>,
    content: &mut ClusterContent,
    news: &mut WatchedNews,
    awaited: Option<(u64, Instant)>,
) -> Result<Vec<LedgerEvent>, Break> {
    let link = &session.link;
    let unproven = link.renewals.lock().iter().find_map(|renewal| renewal.deaf_at);
    let deaf_at = [unproven, awaited.map(|(_, at)| at)].into_iter().flatten().min();
    let suspect_at = content.next_end();
    let at = |time: Option<Instant>| time.unwrap_or_else(Instant::now);
    let events = tokio::select! {
        news = news.maps.recv() => match news {
            Some(ObjectNews::Found(map)) => content.found_map(map),
            Some(ObjectNews::Gone(map)) => match is_gone(place, session, &map).await {
                Ok(()) => content.lost_map(&map),
                Err(reason) => Err(reason),
            },
            other => return Err(ended(other)),
        },
        news = news.leases.recv() => match news {
            Some(ObjectNews::Found(lease)) => {
                let events = content.found_lease(lease, &mut link.renewals.lock(), Instant::now());
                events.map(|events| [events, bury(session, content)].concat())
            }
            Some(ObjectNews::Gone(lease)) => content.lost_lease(&lease),
            other => return Err(ended(other)),
        },
        () = session.wrote.notified() => Ok(Vec::new()),
        () = sleep_until(at(deaf_at)), if deaf_at.is_some() => {
            Err(format!("the watch has not reported an own write for {DEADLINE:?}"))
        }
        () = sleep_until(at(suspect_at)), if suspect_at.is_some() => {
            // The report of a renewal from now on proves the death.
            content.suspect(Instant::now());
            link.renew.notify_one();
            Ok(Vec::new())
        }
    };
    events.map_err(Break::Ended)
}

/// Looks whether a ConfigMap that no watch shows any more is gone. One under a lease goes with the lease.
async fn is_gone(place: &KubernetesPlace, session: &KubernetesLive, map: &ConfigMap) -> Result<(), String> {
    match map.owner() {
        None => place.look_for(&session.link.maps, &map.metadata.name).await,
        Some(_) => Ok(()),
    }
}

fn ended<T>(news: Option<ObjectNews<T>>) -> Break {
    match news {
        Some(ObjectNews::Ended(reason)) => Break::Ended(reason),
        _ => Break::Expired,
    }
}

/// Takes dead leases out of the content, and out of the store: the cluster deletes their entries then. One of
/// the replicas succeeds.
fn bury(session: &Arc<KubernetesLive>, content: &mut ClusterContent) -> Vec<LedgerEvent> {
    let (events, dead) = content.expire();
    for lease in dead {
        let leases = session.link.leases.clone();
        tokio::spawn(async move { leases.delete(&lease.name, lease.version).await });
    }
    events
}

/// Why there is no Lease of this replica, in words. One that no list shows has lost its label.
fn lease_fault(error: ApiError, leases: &Collection, name: &str, ledger: &str) -> String {
    if error.status != Some(409) {
        return error.text;
    }
    let namespace = leases.namespace();
    format!(
        "no list shows the Lease {name:?} of this replica, and it is there: it has lost its label, or another process \
        of the name has just begun; this puts the label back: kubectl label lease {name} --namespace {namespace} \
        --overwrite {LABEL}={ledger}"
    )
}

/// The content with all entries. The first replica makes the ConfigMap of the ledger itself.
async fn load(maps: &Collection, leases: Listed<LeaseObject>, ledger: &str) -> Result<LoadedObjects, String> {
    let has_root = |maps: &Listed<ConfigMap>| maps.items.iter().any(|map| map.metadata.name == ledger);
    let mut listed = list::<ConfigMap>(maps).await?;
    if !has_root(&listed) {
        match maps.create::<ConfigMap>(&root_object(ledger)).await {
            // Another replica was faster.
            Ok(_) | Err(ApiError { status: Some(409), .. }) => {}
            Err(error) => return Err(error.text),
        }
        listed = list::<ConfigMap>(maps).await?;
    }
    if !has_root(&listed) {
        return Err(format!(
            "there is a ConfigMap {ledger:?} without the label {LABEL}={ledger}: either it is no ledger's, or it has \
            lost the label"
        ));
    }
    let revision = revision(&listed.version)?;
    let content = ClusterContent::new(ledger, listed.items, leases.items, revision, Instant::now())?;
    Ok(LoadedObjects { content, maps: listed.version, leases: leases.version })
}

/// All objects of a kind. Content beyond the bounds of a ledger is not gathered.
async fn list<T: ApiObject>(collection: &Collection) -> Result<Listed<T>, String> {
    let (mut items, mut next, mut bytes) = (Vec::new(), None, 0);
    loop {
        let page = collection.page::<T>(next).await.map_err(|error| error.text)?;
        bytes += page.items.iter().map(T::bytes).sum::<usize>();
        items.extend(page.items);
        next = page.next;
        // One more than entries: the ledger itself.
        if items.len() > ENTRIES_MAX + 1 {
            return Err(too_many());
        }
        // With some room for the names of fields.
        if bytes > LEDGER_BYTES_MAX + (4 << 20) {
            return Err(too_large());
        }
        if next.is_none() {
            return Ok(Listed { items, version: page.version });
        }
    }
}
