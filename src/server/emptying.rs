//! The end of all streams: with the process (RLY-77), or for an operator who empties the relay (HND-9).

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::limits::ServerLimits;
use crate::driver::api::downstream::Signal;
use crate::driver::api::emptying::{AlreadyEmptying, Emptying, EmptyingStatus, Phase};
use crate::setting::InForce;
use crate::telemetry::metrics::DownstreamMetrics;

/// The end of the connections that were accepted between two drains.
#[derive(Debug)]
pub(super) struct Departure {
    /// Raised when the connections are to end.
    pub(super) leave: Signal,
    /// Raised at the end of the process, for all departures.
    pub(super) process_end: Arc<Signal>,
    /// Set before `leave` by an operator.
    window: OnceLock<Duration>,
}

impl Departure {
    fn new(process_end: Arc<Signal>) -> Arc<Departure> {
        Arc::new(Departure { leave: Signal::default(), process_end, window: OnceLock::new() })
    }

    /// The window of an operator's drain; `None` at the end of the process.
    pub(super) fn operators_window(&self) -> Option<Duration> {
        self.window.get().copied().filter(|_| !self.process_end.is_raised())
    }
}

/// The departure of new connections, and the drain under way.
pub(super) struct Emptier {
    current: ArcSwap<Departure>,
    process_end: Arc<Signal>,
    drain: Mutex<Option<Drain>>,
    is_emptying: watch::Sender<bool>,
    limits: InForce<ServerLimits>,
    metrics: Arc<DownstreamMetrics>,
}

struct Drain {
    leaves_at: Instant,
    over: Duration,
    streams: u64,
    cut: u64,
    /// Ends the pause before the streams leave.
    _pause: Option<AbortOnDropHandle<()>>,
}

impl Emptier {
    pub(super) fn new(limits: InForce<ServerLimits>, metrics: Arc<DownstreamMetrics>) -> Arc<Emptier> {
        let process_end = Arc::new(Signal::default());
        let current = ArcSwap::new(Departure::new(process_end.clone()));
        let (drain, is_emptying) = (Mutex::new(None), watch::Sender::new(false));
        Arc::new(Emptier { current, process_end, drain, is_emptying, limits, metrics })
    }

    /// The departure of a new connection; `None` while nobody is admitted.
    pub(super) fn departure(&self) -> Option<Arc<Departure>> {
        Some(self.current.load_full()).filter(|departure| !departure.leave.is_raised())
    }

    /// Ends all connections: the process ends.
    pub(super) fn end(&self) {
        self.process_end.raise();
        self.current.load().leave.raise();
    }

    /// Tells of the begin and the end of drains.
    pub(super) fn watch(&self) -> watch::Receiver<bool> {
        self.is_emptying.subscribe()
    }

    fn drain(&self) -> MutexGuard<'_, Option<Drain>> {
        // Every critical section leaves the drain consistent.
        self.drain.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn streams(&self) -> u64 {
        u64::try_from(self.metrics.streams_open()).unwrap_or_default()
    }
}

impl Emptying for Emptier {
    fn empty(&self, after: Duration, over: Option<Duration>) -> Result<(), AlreadyEmptying> {
        let mut drain = self.drain();
        if drain.is_some() || self.process_end.is_raised() {
            return Err(AlreadyEmptying);
        }
        let over = over.unwrap_or(self.limits.get().drain_window);
        let leaves_at = Instant::now() + after;
        let departure = self.current.load_full();
        // An operator's window is set once: a departure is replaced at the end of its drain.
        let leave = move || {
            let _ = departure.window.set(over);
            departure.leave.raise();
        };
        let pause = match after.is_zero() {
            true => {
                leave();
                None
            }
            false => Some(AbortOnDropHandle::new(tokio::spawn(async move {
                sleep_until(leaves_at).await;
                leave();
            }))),
        };
        let (streams, cut) = (self.streams(), self.metrics.closed_cut.get());
        *drain = Some(Drain { leaves_at, over, streams, cut, _pause: pause });
        self.is_emptying.send_replace(true);
        Ok(())
    }

    fn admit(&self) -> bool {
        let mut drain = self.drain();
        let was_emptying = drain.take().is_some();
        // After the end of the process has begun, nobody is admitted any more.
        if was_emptying && !self.process_end.is_raised() {
            if self.current.load().leave.is_raised() {
                self.current.store(Departure::new(self.process_end.clone()));
            }
            self.is_emptying.send_replace(false);
        }
        was_emptying
    }

    fn status(&self) -> EmptyingStatus {
        let (streams, now) = (self.streams(), Instant::now());
        let connections = u64::try_from(self.metrics.connections_open.get()).unwrap_or_default();
        let drain = self.drain();
        let Some(drain) = &*drain else {
            let left = self.limits.get().drain_window;
            let phase = Phase::Serving;
            return EmptyingStatus { phase, connections, streams, streams_before: streams, cut: 0, left };
        };
        let phase = match now < drain.leaves_at {
            true => Phase::Announced,
            false if streams == 0 => Phase::Empty,
            false => Phase::Leaving,
        };
        EmptyingStatus {
            phase,
            connections,
            streams,
            streams_before: drain.streams,
            cut: self.metrics.closed_cut.get() - drain.cut,
            left: (drain.leaves_at + drain.over).saturating_duration_since(now),
        }
    }

    fn is_emptying(&self) -> bool {
        *self.is_emptying.borrow()
    }
}
