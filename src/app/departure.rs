//! The reason for the end of the process, and the time until the drain: a signal with a delay, or a successor
//! with a window (HND-3, HND-8).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, interval, sleep};
use tracing::{info, warn};

use super::handover::upgrader::{Handed, Upgrader, drain_window};
use super::signals::StopSignal;
use crate::admin::{Readiness, Shutdown, State};
use crate::driver::Relay;
use crate::driver::api::control::Controls as _;
use crate::driver::api::emptying::{Emptying, floor};
use crate::handover::message::Draining;
use crate::handover::supervisor::Supervisor;
use crate::handover::{HandoverMessage, HandoverSettings};
use crate::telemetry::events::{Events, tell};
use sluice_setting::InForce;

/// The interval of reports to the successor.
const REPORTS: Duration = Duration::from_millis(250);

/// The longest wait for a successor without a reader.
const REPORT_MAX: Duration = Duration::from_millis(100);

/// The parts for the time before connections leave.
pub(super) struct DepartingProcess {
    pub relay: Relay,
    pub emptying: Arc<dyn Emptying>,
    pub readiness: Arc<Readiness>,
    pub supervisor: Arc<Supervisor>,
    pub stop_admin: Shutdown,
    pub drain: Duration,
    pub handover: InForce<HandoverSettings>,
    pub drain_delay: InForce<Duration>,
    pub events: Events,
}

impl DepartingProcess {
    /// Resolves when the last drain is to begin.
    pub(super) async fn wait(self, upgrader: &Upgrader, mut signals: StopSignal) {
        loop {
            let handed = tokio::select! {
                signal = signals.next() => {
                    upgrader.following().into_iter().for_each(|before| before.stop());
                    return self.delay(signal, signals).await;
                }
                handed = upgrader.handed() => handed,
            };
            if self.empty(&handed, &mut signals).await == Left::ForGood {
                return;
            }
            upgrader.step_back();
        }
    }

    /// After a signal: not ready, and in service for clients without a look at `/ready`, for the delay.
    async fn delay(&self, signal: &'static str, mut signals: StopSignal) {
        self.leave(signal);
        if let Err(error) = self.supervisor.tell("STOPPING=1") {
            warn!(%error, "cannot tell the supervisor");
        }
        let delay = ***self.drain_delay.get();
        if !delay.is_zero() {
            info!(?delay, "not ready; accepting connections for `drain_delay`");
            self.emptying.announce();
            tokio::select! {
                () = sleep(delay) => {}
                // A second signal ends the delay.
                _ = signals.next() => {}
            }
        }
        let (streams, needed) = self.needed();
        if needed > self.drain {
            warn!(
                streams,
                drain = ?self.drain,
                ?needed,
                "`drain` is shorter than the time that other relays with the same limits.first_answers_per_second need for \
                    these clients"
            );
        }
    }

    /// After a hand-over: streams end one by one, and clients find the successor. The sockets stay open, and
    /// nobody is accepted.
    async fn empty(&self, handed: &Handed, signals: &mut StopSignal) -> Left {
        self.leave("a new process serves");
        self.stop_admin.hang_up();
        let drain = self.handover.get().drain;
        let streams = self.emptying.status().streams;
        let window = drain_window(drain, streams, self.relay.first_answers_per_second());
        // An operator's drain goes on.
        let _ = self.emptying.empty(Duration::ZERO, Some(window));
        let end = Instant::now() + window;
        // `None` once the successor has closed the connection.
        let mut word = Some(word_of(handed));
        let mut reports = interval(REPORTS);
        loop {
            tokio::select! {
                // A word of the successor comes before its end.
                biased;
                message = OptionFuture::from(word.as_mut()), if word.is_some() => match message {
                    Some(Ok(HandoverMessage::End)) => {
                        info!("the new process wants this one to end now");
                        self.relay.end_streams();
                        break;
                    }
                    Some(Ok(_)) => {
                        info!(pid = handed.pid, "the new process stops, and so does this one; draining for `drain`");
                        break;
                    }
                    _ => word = None,
                },
                _ = reports.tick() => {}
                status = handed.ended() => {
                    tell!(self.events, warn(Handover, "the new process has died; this process serves again")
                        .detail(format_args!("process {}, {status}", handed.pid)); { pid = handed.pid, %status });
                    handed.channel.stop_reading();
                    return Left::InVain;
                }
                signal = signals.next() => {
                    info!(
                        signal,
                        successor = handed.pid,
                        "draining for `drain`, in place of the rest of `handover.drain`; the new process serves on, and this one \
                            does not step in for it any more"
                    );
                    break;
                }
            }
            let status = self.emptying.status();
            report(
                handed,
                &Draining {
                    streams: status.streams,
                    connections: status.connections,
                    milliseconds_left: u64::try_from(status.left.as_millis()).unwrap_or(u64::MAX),
                },
            )
            .await;
            // Also without clients: the successor may die.
            if Instant::now() >= end {
                break;
            }
        }
        handed.channel.stop_reading();
        info!(pid = handed.pid, "all clients have left for the new process, or their time is over");
        Left::ForGood
    }

    fn leave(&self, reason: &str) {
        self.readiness.advance(State::Draining);
        tell!(self.events, info(Drain, "draining").detail(reason); { signal = reason });
    }

    /// The streams, and the time of other relays for their first answers (HND-9).
    fn needed(&self) -> (u64, Duration) {
        let streams = self.emptying.status().streams;
        (streams, floor(streams, self.relay.first_answers_per_second()))
    }
}

/// The end of the time behind a successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// The process ends.
    ForGood,
    /// The successor has died.
    InVain,
}

/// Resolves to the successor's `end` or `stopping`; an error when the successor has ended.
fn word_of(handed: &Handed) -> oneshot::Receiver<HandoverMessage> {
    let (sender, receiver) = oneshot::channel();
    if let Ok(channel) = handed.channel.another() {
        spawn_blocking(move || {
            let _ = channel.wait_at_most(None);
            while let Ok((message, _)) = channel.receive() {
                if matches!(message, HandoverMessage::End | HandoverMessage::Stopping) {
                    let _ = sender.send(message);
                    return;
                }
            }
        });
    }
    receiver
}

async fn report(handed: &Handed, draining: &Draining) {
    let (channel, message) = (handed.channel.another(), HandoverMessage::Draining(*draining));
    let sent = spawn_blocking(move || channel.map(|channel| channel.send(&message, &[])));
    // After its end, a successor needs no report.
    let _ = tokio::time::timeout(REPORT_MAX, sent).await;
}
