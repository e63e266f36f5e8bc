//! Traces of changes, by OTLP over gRPC (ADR 33).
//!
//! A trace is made when a change is over, from the counters that the relay keeps anyway; nothing on the way of an update to
//! its clients knows of traces (OBS-2). In reading order: [`change`], a change that is over; [`sampling`], the changes with
//! a trace; [`tree`], the spans of a trace; [`export`], the thread that sends them.

pub mod change;
mod sampling;
mod tree;
mod export;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;
use tokio::time::Instant;

use export::TraceGuard;

use self::change::FinishedChange;
use self::sampling::Sampler;
use crate::setting::{Setting, count, time};
use crate::telemetry::instruments::lock;

/// Every change that took longer from its receipt to the last ACK has a trace.
pub const SLOW: Setting<Duration> =
    Setting::new("slow", Duration::from_secs(1), time(Duration::ZERO..=Duration::from_secs(60)));

/// The traces per second of changes that were neither rejected nor slow.
pub const PER_SECOND: Setting<u32> = Setting::new("per_second", 5, count(0..=1000));

/// The changes that wait for the collector. Each takes a few KiB, because the texts of rejections are bounded.
const QUEUED_MAX: usize = 256;

/// Where to send traces, and of which changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSettings {
    /// `http://HOST:PORT` of a collector.
    pub endpoint: String,
    /// See [`SLOW`].
    pub slow: Duration,
    /// See [`PER_SECOND`].
    pub per_second: u32,
}

/// The changes that are over, on their way to the collector. Does nothing before [`Traces::configure`].
#[derive(Debug)]
pub struct Traces {
    running: ArcSwapOption<Running>,
    /// Ends the thread that runs.
    thread: Mutex<Option<TraceGuard>>,
    /// Spans that never reached the collector.
    dropped: Counter,
}

/// A thread that sends traces, once [`Traces::configure`] has it. Ends when dropped.
#[derive(Debug)]
pub struct TraceThread {
    running: Arc<Running>,
    guard: TraceGuard,
}

#[derive(Debug)]
struct Running {
    queue: mpsc::Sender<FinishedChange>,
    sampler: Mutex<Sampler>,
}

impl Traces {
    pub(super) fn new(dropped: Counter) -> Traces {
        Traces { running: ArcSwapOption::empty(), thread: Mutex::default(), dropped }
    }

    /// Starts a thread that sends. `instance`: the name of this relay among others.
    ///
    /// # Errors
    /// The thread could not start.
    pub fn start(&self, settings: &TraceSettings, instance: &str) -> io::Result<TraceThread> {
        let (queue, changes) = mpsc::channel(QUEUED_MAX);
        let guard = export::start(&settings.endpoint, instance, changes, self.dropped.clone())?;
        let sampler = Mutex::new(Sampler::new(settings));
        Ok(TraceThread { running: Arc::new(Running { queue, sampler }), guard })
    }

    /// Traces go to this thread from now on, or nowhere. The thread of before sends its last traces, and ends.
    pub fn configure(&self, thread: Option<TraceThread>) {
        let (running, guard) = thread.map(|of| (of.running, of.guard)).unzip();
        self.running.store(running);
        *lock(&self.thread) = guard;
    }

    /// Sends the last traces, and waits for it at most this long. Call it after the relay's runtime has ended (OBS-7).
    pub fn end(&self, limit: Duration) {
        let guard = lock(&self.thread).take();
        if let Some(guard) = guard {
            guard.wait_at_most(limit);
        }
    }

    /// Whether finished changes are wanted at all.
    pub fn is_on(&self) -> bool {
        self.running.load().is_some()
    }

    /// A change is over. Never waits: a collector that hangs costs traces, and nothing else (OBS-6).
    pub fn offer(&self, change: FinishedChange) {
        let running = self.running.load();
        let Some(running) = &*running else { return };
        if !lock(&running.sampler).wants(&change, Instant::now()) {
            return;
        }
        if let Err(unsent) = running.queue.try_send(change) {
            self.dropped.inc_by(tree::spans(&unsent.into_inner()).len() as u64);
        }
    }
}
