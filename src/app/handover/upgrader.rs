//! The start of a successor, and the step back (HND-3, HND-5).

use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use super::Ways;
use super::attempt::{Attempt, Property};
use super::successor::Following;
use crate::admin::{NotUpgraded, PredecessorStatus, Readiness, State, UpgradeWish, Upgraded, Upgrading};
use crate::driver::Relay;
use crate::driver::api::control::Controls as _;
use crate::driver::api::emptying::{Emptying, floor};
use crate::handover::message::Hello;
use crate::handover::start::Invocation;
use crate::handover::supervisor::Supervisor;
use crate::handover::{Channel, HandoverFault, HandoverMessage, HandoverSettings};
use crate::telemetry::Metrics;
use crate::telemetry::events::tell;
use crate::telemetry::traces::act::Act;
use sluice_setting::InForce;

/// The first process of a container. The container ends with the process.
const FIRST_PROCESS: u32 = 1;

/// Upgrades the process. Clones are the same.
#[derive(Clone)]
pub(in crate::app) struct Upgrader(Arc<UpgraderInner>);

struct UpgraderInner {
    parts: UpgradeParts,
    /// Held during an upgrade.
    turn: Mutex<()>,
    handed: watch::Sender<Option<Arc<Handed>>>,
}

/// The parts for an upgrade.
pub(in crate::app) struct UpgradeParts {
    pub invocation: Invocation,
    pub pid: u32,
    pub settings: InForce<HandoverSettings>,
    pub relay: Relay,
    pub ways: Arc<Ways>,
    pub emptying: Arc<dyn Emptying>,
    pub readiness: Arc<Readiness>,
    pub supervisor: Arc<Supervisor>,
    pub metrics: Arc<Metrics>,
    /// The process before the last upgrade.
    pub following: Option<Arc<Following>>,
}

/// A successor in service.
pub(in crate::app) struct Handed {
    pub pid: u32,
    pub channel: Channel,
    /// The end of the process, once it is known.
    ended: watch::Receiver<Option<ExitStatus>>,
}

impl Handed {
    /// Resolves when the successor has ended. It says [`HandoverMessage::Stopping`] before an orderly end.
    pub async fn ended(&self) -> ExitStatus {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await.map(|ended| *ended) {
            Ok(Some(status)) => status,
            _ => std::future::pending().await,
        }
    }
}

/// The successor at the end of the work.
struct PreparedSuccessor {
    hello: Hello,
    sources: u64,
    took: Duration,
}

impl Upgrader {
    pub fn new(parts: UpgradeParts) -> Upgrader {
        Upgrader(Arc::new(UpgraderInner { parts, turn: Mutex::default(), handed: watch::Sender::new(None) }))
    }

    /// The successor has died, and this process serves again.
    pub fn step_back(&self) {
        let UpgraderInner { parts, handed, .. } = &*self.0;
        handed.send_replace(None);
        parts.relay.be_restored();
        parts.emptying.admit();
        parts.readiness.return_to_service();
        parts.ways.take_back();
        // Also heard from a process that is not the main one, with `NotifyAccess=all`.
        if let Err(error) = parts.supervisor.tell(&format!("MAINPID={}\nREADY=1", parts.pid)) {
            warn!(%error, "cannot tell the supervisor that this process serves again");
        }
    }

    /// Whether a successor serves.
    pub fn has_handed(&self) -> bool {
        self.0.handed.borrow().is_some()
    }

    /// The process before this one, while it drains.
    pub fn following(&self) -> Option<&Arc<Following>> {
        self.0.parts.following.as_ref()
    }

    /// Resolves when a successor serves.
    pub async fn handed(&self) -> Arc<Handed> {
        let mut handed = self.0.handed.subscribe();
        match handed.wait_for(Option::is_some).await.map(|handed| handed.clone()) {
            Ok(Some(handed)) => handed,
            _ => std::future::pending().await,
        }
    }
}

impl Upgrading for Upgrader {
    fn upgrade(&self, wish: UpgradeWish) -> BoxFuture<'static, Result<Upgraded, NotUpgraded>> {
        let inner = self.0.clone();
        // A separate task: the leave of an operator must not end the hand-over halfway.
        let task = tokio::spawn(async move { inner.upgrade(wish).await });
        async move { task.await.unwrap_or_else(|error| Err(NotUpgraded::Failed(error.to_string()))) }.boxed()
    }

    fn predecessor(&self) -> Option<PredecessorStatus> {
        self.0.parts.following.as_ref()?.status()
    }
}

impl UpgraderInner {
    async fn upgrade(self: Arc<Self>, wish: UpgradeWish) -> Result<Upgraded, NotUpgraded> {
        let Ok(_turn) = self.turn.try_lock() else { return Err(conflict("an upgrade is under way")) };
        self.may_begin(&wish)?;
        let settings = (***self.parts.settings.get()).clone();
        let binary =
            wish.binary.clone().or(settings.binary).unwrap_or_else(|| self.parts.invocation.binary.clone());
        let mut act = self.parts.metrics.traces.begin(Act::HandOver);
        act.note("sluice.binary", binary.display().to_string());
        let result = self.try_upgrade(&binary, settings.timeout, wish.dry_run).await;
        let events = &self.parts.metrics.events;
        let prepared = match result {
            Ok(prepared) => prepared,
            Err(reason) => {
                tell!(events, warn(Handover, "the upgrade has failed").detail(&reason);
                    { reason } + "; this process serves on");
                act.end(Some(reason.clone()));
                return Err(NotUpgraded::Failed(reason));
            }
        };
        let PreparedSuccessor { hello, sources, took } = prepared;
        let status = self.parts.emptying.status();
        let window =
            drain_window(settings.drain, status.streams, self.parts.relay.first_answers_per_second());
        if !wish.dry_run {
            act.note("sluice.successor.pid", u64::from(hello.pid));
            act.note("sluice.successor.version", hello.version.as_str());
            act.note("sluice.sources", sources);
            act.end(None);
            tell!(events, info(Handover, "a new process serves")
                .detail(format_args!("process {}, version {}", hello.pid, hello.version));
                { pid = hello.pid, version = hello.version, sources, ?took } + " in place of this one");
        }
        Ok(Upgraded {
            pid: hello.pid,
            version: hello.version,
            binary: binary.display().to_string(),
            seconds: took.as_secs_f64(),
            sources,
            predecessor: PredecessorStatus {
                pid: self.parts.pid,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                streams: status.streams,
                connections: status.connections,
                seconds_left: window.as_secs_f64(),
            },
            dry_run: wish.dry_run,
        })
    }

    fn may_begin(&self, wish: &UpgradeWish) -> Result<(), NotUpgraded> {
        if self.parts.pid == FIRST_PROCESS {
            return Err(conflict(
                "this process is the first of its container, and the container ends with it: use a rolling update",
            ));
        }
        if let Some(handed) = &*self.handed.borrow() {
            return Err(conflict(&format!("process {} serves in place of this one", handed.pid)));
        }
        let state = self.parts.readiness.state();
        if state != State::Ready {
            let reason = format!("the relay is not in service: {}", state.name());
            let left = Some(self.parts.emptying.status().left);
            return Err(NotUpgraded::Conflict { reason, left });
        }
        let following = self.parts.following.as_ref();
        if let Some((following, status)) =
            following.and_then(|following| Some((following, following.status()?)))
        {
            if !wish.now {
                let reason =
                    format!("the process before this one, {}, still drains; --now ends it", status.pid);
                let left = Some(Duration::from_secs_f64(status.seconds_left));
                return Err(NotUpgraded::Conflict { reason, left });
            }
            if !wish.dry_run {
                following.end();
            }
        }
        Ok(())
    }

    /// # Errors
    /// The reason, in words. The new process has ended, and the old process serves as before.
    async fn try_upgrade(
        self: &Arc<Self>,
        binary: &Path,
        timeout: Duration,
        dry_run: bool,
    ) -> Result<PreparedSuccessor, String> {
        let begun = Instant::now();
        let (invocation, path) = (self.parts.invocation.clone(), PathBuf::from(binary));
        let started = spawn_blocking(move || {
            let (child, channel) = invocation.start(&path)?;
            channel.wait_at_most(Some(timeout))?;
            let closer = channel.another()?;
            Ok::<_, std::io::Error>((Attempt::new(child, channel), closer))
        });
        let cannot = |error: &dyn std::fmt::Display| format!("cannot start {}: {error}", binary.display());
        let (attempt, closer) = match started.await {
            Ok(Ok(started)) => started,
            Ok(Err(error)) => return Err(cannot(&error)),
            Err(error) => return Err(cannot(&error)),
        };
        let mut work = tokio::spawn(self.clone().work(attempt, dry_run, begun));
        let result = match timeout_at(begun + timeout, &mut work).await {
            Ok(result) => result,
            Err(_) => {
                // Every wait of the work ends with the connection.
                closer.close();
                match work.await {
                    Ok(Err(_)) => return Err(format!("the new process was not ready within {timeout:?}")),
                    result => result,
                }
            }
        };
        match result {
            Ok(Ok(prepared)) => Ok(prepared),
            Ok(Err(fault)) => Err(fault.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn work(
        self: Arc<Self>,
        attempt: Attempt,
        dry_run: bool,
        begun: Instant,
    ) -> Result<PreparedSuccessor, HandoverFault> {
        let parts = &self.parts;
        let (attempt, hello) = on_thread(attempt, Attempt::greeted).await?;
        let protocol = hello.agree()?;
        let estates = parts.relay.estates().await;
        let (sockets, descriptors) = parts.ways.descriptors()?;
        let lock = parts.relay.checkpoint_lock();
        let lock = lock.map(|(file, directory)| (directory.display().to_string(), file.into()));
        let property = Property { sockets, descriptors, lock, estates };
        let (attempt, sources) =
            on_thread(attempt, move |attempt| attempt.prepare(property, protocol)).await?;
        let took = begun.elapsed();
        if dry_run {
            let reason = "only tried".to_owned();
            attempt.channel.send(&HandoverMessage::Refused { reason }, &[])?;
            return Ok(PreparedSuccessor { hello, sources, took });
        }

        // HND-3: from here on the kernel queues connections, and nobody writes the checkpoint.
        let _paused = parts.relay.pause_checkpoint().await;
        parts.ways.pause();
        let decisions = parts.relay.pass_decisions();
        let attempt = match on_thread(attempt, move |attempt| attempt.let_accept(&decisions)).await {
            Ok((attempt, ())) => attempt,
            Err(fault) => {
                parts.ways.resume();
                parts.relay.keep_decisions();
                return Err(fault);
            }
        };
        parts.relay.be_succeeded();
        parts.ways.give_up();
        // HND-6: the supervisor takes the word of its main process alone, so the word comes before the new
        // process's READY.
        if let Err(error) = parts.supervisor.tell(&format!("MAINPID={}", hello.pid)) {
            warn!(%error, "cannot tell the supervisor about the new process");
        }
        let (child, channel) = attempt.succeed();
        let (end, ended) = watch::channel(None);
        child.into_iter().for_each(|child| reap(child, end.clone()));
        let channel = channel?;
        if let Err(fault) = channel.send(&HandoverMessage::Done, &[]) {
            warn!(%fault, "the new process has ended");
        }
        self.handed.send_replace(Some(Arc::new(Handed { pid: hello.pid, channel, ended })));
        Ok(PreparedSuccessor { hello, sources, took })
    }
}

/// The window of the drain after a hand-over: at least the successor's time for the first answers of all
/// clients (HND-9).
pub(in crate::app) fn drain_window(drain: Duration, streams: u64, first_answers_per_second: u32) -> Duration {
    drain.max(floor(streams, first_answers_per_second))
}

fn conflict(reason: &str) -> NotUpgraded {
    NotUpgraded::Conflict { reason: reason.to_owned(), left: None }
}

/// Waits for the end of a successor before the end of the process.
fn reap(mut child: Child, ended: watch::Sender<Option<ExitStatus>>) {
    // The thread ends with the process at the latest. Without a thread, an ended successor stays a zombie
    // until then.
    let wait = move || ended.send_replace(child.wait().ok());
    let waited = std::thread::Builder::new().name("successor".to_owned()).spawn(wait);
    if let Err(error) = waited {
        warn!(%error, "cannot wait for the new process");
    }
}

/// Runs a blocking step. After an error the new process has ended.
async fn on_thread<T: Send + 'static>(
    mut attempt: Attempt,
    step: impl FnOnce(&mut Attempt) -> Result<T, HandoverFault> + Send + 'static,
) -> Result<(Attempt, T), HandoverFault> {
    let done = spawn_blocking(move || {
        let result = step(&mut attempt)?;
        Ok((attempt, result))
    });
    done.await.unwrap_or(Err(HandoverFault::Closed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hnd_9_a_drain_is_as_long_as_the_first_answers_take() {
        let seconds = Duration::from_secs;
        assert_eq!(drain_window(seconds(60), 10_000, 1_000), seconds(60));
        assert_eq!(drain_window(seconds(60), 100_000, 1_000), seconds(100));
        assert_eq!(drain_window(seconds(0), 999, 1_000), seconds(0));
    }
}
