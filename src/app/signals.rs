//! The signals that the process listens for.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;
use tracing::warn;

use super::handover::upgrader::Upgrader;
use super::reload::Reloader;
use crate::admin::{NotUpgraded, UpgradeWish, Upgrading};

/// Signals that come together are one reload.
const GATHERED: Duration = Duration::from_millis(100);

/// Reads the configuration again on SIGHUP, as other servers do; by default, the signal would end this
/// process. While the relay begins or ends, the signal does nothing.
pub(super) fn on_hangups(reloader: Reloader) {
    match signal(SignalKind::hangup()) {
        Ok(mut hangups) => {
            tokio::spawn(async move {
                while hangups.recv().await.is_some() {
                    sleep(GATHERED).await;
                    // The signals of the pause are one more.
                    let _ = hangups.recv().now_or_never();
                    reloader.notify("SIGHUP");
                }
            });
        }
        Err(error) => warn!(%error, "cannot listen for a signal"),
    }
}

/// The signals to stop, from the call of [`stop_signal`] on.
pub(super) struct StopSignal([(&'static str, Option<Signal>); 2]);

pub(super) fn stop_signal() -> StopSignal {
    let kinds = [("SIGTERM", SignalKind::terminate()), ("SIGINT", SignalKind::interrupt())];
    StopSignal(kinds.map(|(name, kind)| (name, listen(kind))))
}

impl StopSignal {
    /// Resolves at the next signal, with its name.
    pub(super) async fn next(&mut self) -> &'static str {
        let [(first, terminate), (second, interrupt)] = &mut self.0;
        tokio::select! {
            () = received(terminate) => first,
            () = received(interrupt) => second,
        }
    }
}

/// SIGUSR2: an upgrade, as `sluice upgrade` asks for. Never ends.
pub(super) async fn upgrade_on_signal(upgrader: Upgrader) {
    let mut asked = listen(SignalKind::user_defined2());
    loop {
        received(&mut asked).await;
        // A failure of the new process is in the log already.
        if let Err(refusal @ NotUpgraded::Conflict { .. }) = upgrader.upgrade(UpgradeWish::default()).await {
            warn!(reason = refusal.text(), "SIGUSR2: no upgrade");
        }
    }
}

fn listen(kind: SignalKind) -> Option<Signal> {
    signal(kind).inspect_err(|error| warn!(%error, "cannot listen for a signal")).ok()
}

async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}
