//! The running process, from the first accepted connection to the last.

use std::sync::Arc;

use anyhow::{Result, bail};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::base::Base;
use super::departure::DepartingProcess;
use super::handover::successor::Following;
use super::handover::upgrader::{UpgradeParts, Upgrader};
use super::handover::watchdog;
use super::parts::Parts;
use super::reload::{ConfigFile, Live, ReloadRequests, Reloader, Reloads};
use super::signals::{StopSignal, stop_signal, upgrade_on_signal};
use super::sockets::listener_files;
use super::tls::Certificates;
use crate::admin::{Process, Readiness, Shutdown, State};
use crate::config::Loaded;
use crate::driver::Relay;
use crate::driver::api::emptying::Emptying;
use crate::handover::start::Invocation;
use crate::handover::supervisor::Supervisor;
use crate::server::{self, Server};
use crate::telemetry::count_each_second;
use crate::telemetry::events::{Kind, Occurrence};
use crate::telemetry::traces::act::Act;
use crate::telemetry::{cgroup_memory_limit, resident_bytes};
use sluice_setting::InForce;

/// The process itself, for an upgrade.
pub(super) struct OwnProcess {
    pub invocation: Invocation,
    /// The process before.
    pub following: Option<Arc<Following>>,
    pub supervisor: Arc<Supervisor>,
}

impl OwnProcess {
    fn upgrader(
        self,
        relay: &Relay,
        base: &Base,
        emptying: &Arc<dyn Emptying>,
        readiness: &Arc<Readiness>,
    ) -> Upgrader {
        Upgrader::new(UpgradeParts {
            invocation: self.invocation,
            pid: std::process::id(),
            settings: base.handover.clone(),
            relay: relay.clone(),
            ways: base.ways.clone(),
            emptying: emptying.clone(),
            readiness: readiness.clone(),
            supervisor: self.supervisor,
            metrics: base.metrics.clone(),
            following: self.following,
        })
    }
}

/// Nobody is asked beside the classes while the relay goes out of service (PRF-20).
fn tell_leaving(relay: &Relay, readiness: Arc<Readiness>) {
    relay.tell_leaving(move || readiness.state() == State::Draining);
}

pub(super) struct Running {
    relay: Relay,
    server: Server<Relay>,
    sockets: Vec<server::Listener>,
    readiness: Arc<Readiness>,
    admin: JoinHandle<()>,
    stop_admin: Shutdown,
    stopped: StopSignal,
    upgrader: Upgrader,
    emptying: Arc<dyn Emptying>,
    supervisor: Arc<Supervisor>,
    _tasks: [AbortOnDropHandle<()>; 5],
    stop_reloads: CancellationToken,
}

impl Running {
    /// Starts all tasks but the listeners for clients.
    pub(super) fn start(
        parts: Parts,
        loaded: Loaded,
        base: &Arc<Base>,
        reloader: Reloader,
        requests: ReloadRequests,
        file: ConfigFile,
        process: OwnProcess,
    ) -> Result<Running> {
        let Parts { relay, channels, policy, facts, sockets, listeners, admin, server } = parts;
        let (of_listeners, of_servers) = (listener_files(&listeners), channels.files());
        let certificates = InForce::new(Certificates { listeners: of_listeners, servers: of_servers });
        let (emptying, drain, expiring) = (server.emptying(), server.emptying(), certificates.clone());
        let readiness = Readiness::default().with_certificates(move || expiring.get().have_expired());
        let readiness = Arc::new(readiness.with_drain(move || drain.is_emptying()));
        tell_leaving(&relay, readiness.clone());
        let supervisor = process.supervisor.clone();
        let upgrader = process.upgrader(&relay, base, &emptying, &readiness);
        let acts = Process {
            readiness: readiness.clone(),
            emptying: emptying.clone(),
            log: base.log.clone(),
            upgrading: Arc::new(upgrader.clone()),
            reloading: Arc::new(reloader),
        };

        let counting = tokio::spawn(count_each_second(base.metrics.clone()));
        let memory = hold_to_memory(&relay, loaded.config.limits.relay.memory_bytes)?;
        let live = Live {
            base: base.clone(),
            relay: relay.clone(),
            limits: server.limits(),
            listening: server.listening(),
            listeners,
            channels,
            admin: admin.live(),
            certificates,
            policy,
            facts,
        };
        let (stop_admin, stop_reloads) = (Shutdown::from(CancellationToken::new()), CancellationToken::new());
        let reloads = Reloads::new(requests, file, live, loaded);
        let reloads = tokio::spawn(reloads.run(stop_reloads.clone()));
        let admin = admin.serve(relay.clone(), acts, base.metrics.clone(), stop_admin.clone());
        let admin = tokio::spawn(admin);
        // Whoever sees the relay ready may stop it in an orderly way.
        let stopped = stop_signal();
        readiness.advance(State::Ready);
        Ok(Running {
            relay,
            server,
            sockets,
            readiness,
            admin,
            stop_admin,
            stopped,
            upgrader: upgrader.clone(),
            emptying,
            supervisor: supervisor.clone(),
            _tasks: [
                counting,
                memory,
                reloads,
                tokio::spawn(watchdog::tell(supervisor, upgrader.clone())),
                tokio::spawn(upgrade_on_signal(upgrader)),
            ]
            .map(AbortOnDropHandle::new),
            stop_reloads,
        })
    }

    /// Serves until a signal or a successor, then drains.
    pub(super) async fn until_end(self, base: &Base) {
        let Running {
            relay, server, sockets, readiness, mut admin, stop_admin, stopped, stop_reloads, ..
        } = self;
        let (events, ending) = (&base.metrics.events, &base.ending);
        let ((last, is_saved), (left, leaving)) = (oneshot::channel(), oneshot::channel());
        let reporting = relay.clone();
        let departure = DepartingProcess {
            relay: relay.clone(),
            emptying: self.emptying,
            readiness,
            supervisor: self.supervisor,
            stop_admin: stop_admin.clone(),
            drain: ending.connections(),
            handover: base.handover.clone(),
            drain_delay: base.drain_delay.clone(),
            events: events.clone(),
        };
        let (upgrader, signaled, traces) = (self.upgrader, ending.clone(), base.metrics.traces.clone());
        let shutdown = async move {
            departure.wait(&upgrader, stopped).await;
            signaled.begin();
            let _ = left.send(traces.begin(Act::Drain));
            stop_reloads.cancel();
            if !relay.is_succeeded() {
                // Save before clients leave and take their subscriptions with them.
                let _ = last.send(tokio::spawn(async move { relay.save().await }));
            }
        };
        let cut = tokio::select! {
            () = server.serve(sockets, shutdown) => None,
            () = ending.closes() => Some("connections were still open at the end of the drain"),
        };
        if let Some(text) = cut {
            events.add(Occurrence::warn(Kind::Drain, text));
            warn!("{text}");
        }
        if let Ok(mut act) = leaving.await {
            act.note("sluice.trigger", "end of the process");
            act.end(cut.map(str::to_owned));
        }
        // LRS-16: all clients have reported by now.
        let left = ending.all_closed_by().saturating_duration_since(Instant::now());
        reporting.finish_loads(left).await;
        if let Ok(last) = is_saved.await
            && timeout_at(ending.saved_by(), last).await.is_err()
        {
            warn!("the last write of the checkpoint did not finish before the end of the drain");
        }
        stop_admin.cancel();
        if timeout_at(ending.all_closed_by(), &mut admin).await.is_err() {
            admin.abort();
            // A socket file goes with it.
            let _ = admin.await;
        }
    }
}

/// Holds the process to `limits.memory_bytes` (FP7), or else to the limit of its control group. Without
/// either, the relay only reclaims the memory of clients that stopped reading.
fn hold_to_memory(relay: &Relay, budget: Option<u64>) -> Result<JoinHandle<()>> {
    let (resident, otherwise) = (resident_bytes(), cgroup_memory_limit());
    if budget.is_some() && resident.is_none() {
        bail!("cannot enforce limits.memory_bytes: /proc/self/status does not report the resident memory");
    }
    let from = if budget.is_some() { "limits.memory_bytes" } else { "the control group" };
    if let (Some(budget), Some(resident)) = (budget.or(otherwise), resident) {
        info!(resident, budget, from, "memory budget in force");
    }
    let relay = relay.clone();
    Ok(tokio::spawn(async move {
        futures_util::future::join3(relay.hold_to_memory(otherwise), relay.take_back(), relay.keep_splits())
            .await;
    }))
}
