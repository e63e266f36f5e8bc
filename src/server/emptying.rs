//! The end of streams: of all with the process (RLY-77), or for an operator who empties the relay (HND-9); of
//! one listener with the listener.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::limits::ServerLimits;
use crate::driver::api::downstream::Signal;
use crate::driver::api::emptying::{AlreadyEmptying, Emptying, EmptyingPhase, EmptyingStatus};
use crate::telemetry::metrics::DownstreamMetrics;
use sluice_setting::InForce;

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

/// The way of a listener's connections in and out.
#[derive(Debug)]
pub(super) struct Door(ArcSwap<Departure>);

impl Door {
    /// The departure of a new connection; `None` while nobody is admitted.
    pub(super) fn departure(&self) -> Option<Arc<Departure>> {
        Some(self.0.load_full()).filter(|departure| !departure.leave.is_raised())
    }

    fn leave(&self, window: Duration) {
        let departure = self.0.load();
        // Set once: a departure is replaced at the end of its drain.
        let _ = departure.window.set(window);
        departure.leave.raise();
    }
}

/// The doors of all listeners.
struct Doors {
    open: Vec<Arc<Door>>,
    /// The window of an operator's drain, once streams leave.
    leaving: Option<Duration>,
}

impl Doors {
    fn leave(&mut self, window: Duration) {
        self.leaving = Some(window);
        self.open.iter().for_each(|door| door.leave(window));
    }
}

/// The doors, and the drain under way.
pub(super) struct Emptier {
    doors: Arc<Mutex<Doors>>,
    process_end: Arc<Signal>,
    drain: Mutex<Option<UnderwayDrain>>,
    is_emptying: watch::Sender<bool>,
    limits: InForce<ServerLimits>,
    metrics: Arc<DownstreamMetrics>,
}

struct UnderwayDrain {
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
        let doors = Arc::new(Mutex::new(Doors { open: Vec::new(), leaving: None }));
        let (drain, is_emptying) = (Mutex::new(None), watch::Sender::new(false));
        Arc::new(Emptier { doors, process_end, drain, is_emptying, limits, metrics })
    }

    /// A door for the connections of one more listener.
    pub(super) fn door(&self) -> Arc<Door> {
        let door = Arc::new(Door(ArcSwap::new(Departure::new(self.process_end.clone()))));
        let mut doors = self.doors.lock();
        if let Some(window) = doors.leaving {
            door.leave(window);
        }
        doors.open.push(door.clone());
        door
    }

    /// Ends the connections of one listener, like those of a drain.
    pub(super) fn retire(&self, door: &Arc<Door>) {
        self.doors.lock().open.retain(|other| !Arc::ptr_eq(other, door));
        door.leave(self.limits.get().drain_window);
    }

    /// Ends all connections: the process ends.
    pub(super) fn end(&self) {
        self.process_end.raise();
        self.doors.lock().open.iter().for_each(|door| door.0.load().leave.raise());
    }

    /// Tells of the begin and the end of drains.
    pub(super) fn watch(&self) -> watch::Receiver<bool> {
        self.is_emptying.subscribe()
    }

    fn drain(&self) -> MutexGuard<'_, Option<UnderwayDrain>> {
        self.drain.lock()
    }

    fn streams(&self) -> u64 {
        u64::try_from(self.metrics.streams_to_leave()).unwrap_or_default()
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
        let doors = self.doors.clone();
        let leave = move || doors.lock().leave(over);
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
        *drain = Some(UnderwayDrain { leaves_at, over, streams, cut, _pause: pause });
        self.is_emptying.send_replace(true);
        Ok(())
    }

    fn admit(&self) -> bool {
        let mut drain = self.drain();
        let was_emptying = drain.take().is_some();
        // After the end of the process has begun, nobody is admitted any more.
        if was_emptying && !self.process_end.is_raised() {
            let mut doors = self.doors.lock();
            if doors.leaving.take().is_some() {
                doors.open.iter().for_each(|door| door.0.store(Departure::new(self.process_end.clone())));
            }
            self.is_emptying.send_replace(false);
        }
        was_emptying
    }

    fn announce(&self) {
        self.is_emptying.send_replace(true);
    }

    fn status(&self) -> EmptyingStatus {
        let (streams, now) = (self.streams(), Instant::now());
        let connections = u64::try_from(self.metrics.connections_open.get()).unwrap_or_default();
        let drain = self.drain();
        let Some(drain) = &*drain else {
            let left = self.limits.get().drain_window;
            let phase = EmptyingPhase::Serving;
            return EmptyingStatus { phase, connections, streams, streams_before: streams, cut: 0, left };
        };
        let phase = match now < drain.leaves_at {
            true => EmptyingPhase::Announced,
            false if streams == 0 => EmptyingPhase::Empty,
            false => EmptyingPhase::Leaving,
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
