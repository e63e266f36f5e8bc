//! Traces of changes and acts, by OTLP over gRPC (ADR 33).
//!
//! A trace is made when a change is over, from the counters that the relay keeps anyway; nothing on the way
//! of an update to its clients knows of traces (OBS-2). In reading order: [`change`], a change that is over;
//! [`act`], an act that is over; [`sampling`], the changes with a trace; [`ids`], the ids of traces;
//! [`tree`], the spans of a trace; [`exemplars`], the traces beside the metrics; [`export`], the thread that
//! sends.

pub mod act;
pub mod change;
mod exemplars;
mod export;
mod ids;
mod sampling;
mod tree;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;
use tokio::time::Instant;

use export::TraceGuard;

use self::act::{Act, ActTrace, FinishedAct};
use self::change::FinishedChange;
pub(super) use self::exemplars::Exemplars;
use self::ids::Ids;
use self::sampling::Sampler;
use sluice_setting::{Setting, count, time};

/// Every change that took longer from its receipt to the last ACK has a trace.
pub const SLOW: Setting<Duration> =
    Setting::new("slow", Duration::from_secs(1), time(Duration::ZERO..=Duration::from_secs(60)));

/// The traces per second of changes that were neither rejected nor slow.
pub const PER_SECOND: Setting<u32> = Setting::new("per_second", 5, count(0..=1000));

/// The changes and acts that wait for the collector. Each takes a few KiB, because the texts of rejections
/// are bounded.
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
    running: ArcSwapOption<RunningTraces>,
    /// Ends the thread that runs.
    thread: Mutex<Option<TraceGuard>>,
    /// Spans that never reached the collector.
    dropped: Counter,
    ids: Ids,
    exemplars: Exemplars,
    /// The number of acts so far.
    acts: AtomicU64,
}

/// Something with a trace.
#[derive(Clone, Debug)]
enum Finished {
    Change(Box<FinishedChange>),
    Act(Box<FinishedAct>),
}

/// A thread that sends traces, once [`Traces::configure`] has it. Ends when dropped.
#[derive(Debug)]
pub struct TraceThread {
    running: Arc<RunningTraces>,
    guard: TraceGuard,
}

#[derive(Debug)]
struct RunningTraces {
    queue: mpsc::Sender<Finished>,
    sampler: Mutex<Sampler>,
}

impl Traces {
    pub(super) fn new(dropped: Counter) -> Traces {
        let (running, thread, acts) = (ArcSwapOption::empty(), Mutex::default(), AtomicU64::new(0));
        Traces { running, thread, dropped, ids: Ids::new(), exemplars: Exemplars::default(), acts }
    }

    /// The exported traces beside the metrics.
    pub(super) fn exemplars(&self) -> &Exemplars {
        &self.exemplars
    }

    /// Starts a thread that sends. `instance`: the name of this relay among others.
    ///
    /// # Errors
    /// The thread could not start.
    pub fn start(&self, settings: &TraceSettings, instance: &str) -> io::Result<TraceThread> {
        let (queue, changes) = mpsc::channel(QUEUED_MAX);
        let outcome = export::ExportOutcome {
            dropped: self.dropped.clone(),
            ids: self.ids.clone(),
            exemplars: self.exemplars.clone(),
        };
        let guard = export::start(&settings.endpoint, instance, changes, outcome)?;
        let sampler = Mutex::new(Sampler::new(settings));
        Ok(TraceThread { running: Arc::new(RunningTraces { queue, sampler }), guard })
    }

    /// Traces go to this thread from now on, or nowhere. The thread of before sends its last traces, and
    /// ends.
    pub fn configure(&self, thread: Option<TraceThread>) {
        let (running, guard) = thread.map(|thread| (thread.running, thread.guard)).unzip();
        self.running.store(running);
        *self.thread.lock() = guard;
    }

    /// Sends the last traces, and waits for it at most this long. Call it after the relay's runtime has ended
    /// (OBS-7).
    pub fn end(&self, limit: Duration) {
        let guard = self.thread.lock().take();
        if let Some(guard) = guard {
            guard.wait_at_most(limit);
        }
    }

    /// Whether finished changes are wanted at all.
    pub fn is_on(&self) -> bool {
        self.running.load().is_some()
    }

    /// The id of the trace of a change, if the change gets one; `None` without a collector.
    pub fn trace_id(&self, name: &str) -> Option<String> {
        self.is_on().then(|| self.ids.of(name).0.to_string())
    }

    /// A change is over. Never waits: a collector that hangs costs traces, and nothing else (OBS-6). Returns
    /// whether the change has a trace.
    pub fn offer(&self, change: FinishedChange) -> bool {
        let running = self.running.load();
        let Some(running) = &*running else { return false };
        if !running.sampler.lock().wants(&change, Instant::now()) {
            return false;
        }
        self.send(running, Finished::Change(Box::new(change)))
    }

    /// Begins an act. Its trace is sent at its end, whatever the sampling (OBS-5).
    pub fn begin(self: &Arc<Self>, act: Act) -> ActTrace {
        ActTrace::begin(self.clone(), act)
    }

    fn next_act(&self) -> u64 {
        self.acts.fetch_add(1, Ordering::Relaxed)
    }

    fn offer_act(&self, act: FinishedAct) {
        let running = self.running.load();
        if let Some(running) = &*running {
            self.send(running, Finished::Act(Box::new(act)));
        }
    }

    fn send(&self, running: &RunningTraces, finished: Finished) -> bool {
        let Err(unsent) = running.queue.try_send(finished) else { return true };
        self.dropped.inc_by(tree::spans(&unsent.into_inner(), &self.ids).len() as u64);
        false
    }
}
