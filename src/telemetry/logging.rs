//! Logging: `tracing` events to standard error, as text or JSON, one line each.
//!
//! Levels: TRACE is a message on a stream, DEBUG or INFO a change of state, WARN what an operator should act on,
//! ERROR what ends the process. Values are fields, not formatted text; `line` makes them harmless, so that call sites need
//! not.
//!
//! Events are formatted by who logs them and written by a thread of their own. Between the two stands a bounded
//! queue: if the sink blocks, lines are dropped and counted, and serving never waits (FP14).

#![allow(
    clippy::disallowed_types,
    reason = "the lines are written by a thread of their own, which may block"
)]

mod line;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::metrics::LogMetrics;

/// What may wait for a blocked sink.
const LINES_MAX: usize = 4096;
const BYTES_MAX: usize = 4 << 20;

/// How long the end of the process waits for a sink that does not take the last lines.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Text,
    Json,
}

/// Why logging could not begin.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("log directives {directives:?}: {reason}")]
    Directives { directives: String, reason: String },
    #[error("the log writer could not start: {0}")]
    Thread(#[from] io::Error),
    #[error("logging was set up already")]
    Twice,
}

/// Reads log directives: a level, or `target=level` pairs with commas (`info,sluice::client=trace`).
pub fn parse_directives(directives: &str) -> Result<EnvFilter, LogError> {
    EnvFilter::builder().parse(directives).map_err(|error| LogError::Directives {
        directives: directives.to_owned(),
        reason: error.to_string(),
    })
}

/// Sets up logging for the whole process. The guard must live until its end; dropping it writes what is queued.
pub fn init(format: Format, directives: &str, metrics: &LogMetrics) -> Result<LogGuard, LogError> {
    let filter = parse_directives(directives)?;
    let (sink, guard) = LineSink::start(io::stderr(), metrics.dropped.clone())?;
    tracing::subscriber::set_global_default(subscriber(format, filter, sink)).map_err(|_| LogError::Twice)?;
    Ok(guard)
}

fn subscriber(format: Format, filter: EnvFilter, sink: LineSink) -> Box<dyn Subscriber + Send + Sync> {
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(sink).with_ansi(false);
    match format {
        Format::Text => Box::new(builder.fmt_fields(line::TextFields).finish()),
        Format::Json => Box::new(builder.event_format(line::JsonLine).finish()),
    }
}

enum Message {
    Line(Vec<u8>),
    Stop,
}

/// Where formatted lines go; cheap to clone, never blocks.
#[derive(Clone)]
struct LineSink {
    queue: SyncSender<Message>,
    queued_bytes: Arc<AtomicUsize>,
    dropped: Counter,
}

impl LineSink {
    fn start(output: impl Write + Send + 'static, dropped: Counter) -> io::Result<(LineSink, LogGuard)> {
        let (queue, lines) = sync_channel(LINES_MAX);
        let (stopped, done) = channel();
        let queued_bytes = Arc::new(AtomicUsize::new(0));
        let bytes = queued_bytes.clone();
        std::thread::Builder::new().name("log".to_owned()).spawn(move || {
            write_lines(&lines, output, &bytes);
            // Nobody listens any more if the guard's patience ended first.
            let _ = stopped.send(());
        })?;
        let guard = LogGuard { queue: queue.clone(), done, patience: FLUSH_TIMEOUT };
        Ok((LineSink { queue, queued_bytes, dropped }, guard))
    }

    fn push(&self, line: &[u8]) {
        let queued = self.queued_bytes.fetch_add(line.len(), Relaxed) + line.len();
        if queued > BYTES_MAX || self.queue.try_send(Message::Line(line.to_vec())).is_err() {
            self.queued_bytes.fetch_sub(line.len(), Relaxed);
            self.dropped.inc();
        }
    }
}

/// The formatter hands over one whole event per call.
impl Write for LineSink {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LineSink {
    type Writer = LineSink;

    fn make_writer(&'a self) -> LineSink {
        self.clone()
    }
}

fn write_lines(lines: &Receiver<Message>, mut output: impl Write, queued_bytes: &AtomicUsize) {
    while let Ok(Message::Line(line)) = lines.recv() {
        // A sink that is gone can't be told of in the log; the process serves on without one.
        let _ = output.write_all(&line);
        queued_bytes.fetch_sub(line.len(), Relaxed);
    }
    let _ = output.flush();
}

/// Writes what is queued when it is dropped, and waits for that at most a second, or less.
#[must_use = "dropping it ends logging"]
pub struct LogGuard {
    queue: SyncSender<Message>,
    done: Receiver<()>,
    patience: Duration,
}

impl LogGuard {
    /// How long the process may wait for its log. Never more than a second.
    pub fn wait_at_most(&mut self, patience: Duration) {
        self.patience = patience.min(FLUSH_TIMEOUT);
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        // A full queue means a blocked sink: then there is nothing to wait for.
        if self.queue.try_send(Message::Stop).is_ok() {
            let _: Result<(), RecvTimeoutError> = self.done.recv_timeout(self.patience);
        }
    }
}

#[cfg(test)]
mod tests;
