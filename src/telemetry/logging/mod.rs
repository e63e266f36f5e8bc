//! Logging: `tracing` events to standard error, as text or JSON, one line each.
//!
//! Levels: TRACE for messages on a stream, DEBUG or INFO for changes of state, WARN for problems that need an
//! operator, ERROR for the end of the process. Values are fields, not formatted text. Call sites pass values
//! unescaped; `line` escapes them.
//!
//! The logging thread formats an event; a dedicated thread writes the line. Between them is a bounded queue:
//! if the output blocks, lines are dropped and counted, and serving never waits (FP14).

#![allow(
    clippy::disallowed_types,
    reason = "the lines are written by a thread of their own, which may block"
)]

mod level;
mod line;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tracing::Subscriber;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::{EnvFilter, reload};

pub use level::{LogLevel, LogStatus};

use super::metrics::LogMetrics;
use sluice_setting::InForce;

/// Limits on lines queued for a blocked output: the memory of a process must not depend on its log. Further
/// lines are dropped and counted (FP14).
const LINES_MAX: usize = 4096;
const BYTES_MAX: usize = 4 << 20;

/// How long the process waits at its end for an output that does not accept the last lines.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// A crate that is built with `tracing`'s feature `log` makes each span of HTTP/2 dearer, in use or not.
/// Nobody reads records of `log`, so a release build compiles them out.
#[cfg(not(debug_assertions))]
const _: () = assert!(matches!(log::STATIC_MAX_LEVEL, log::LevelFilter::Off), "see `log` in Cargo.toml");

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// The reason why logging failed to start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("log directives {directives:?}: {reason}")]
    Directives { directives: String, reason: String },
    #[error("the log writer could not start: {0}")]
    Thread(#[from] io::Error),
    #[error("logging is set up already")]
    Twice,
    #[error("cannot change the log directives: {0}")]
    Ended(reload::Error),
}

/// A peer can make h2 warn as often as the peer connects. Metrics count such connections. The client of
/// Kubernetes logs each fault, which the relay tells as well, and with an answer that it cannot read all
/// secrets in it.
const QUIET: &str = "h2=off,kube_client=off";

/// Parses log directives: a level, or comma-separated `target=level` pairs (`info,sluice::client=trace`). The
/// HTTP/2 library and the client of Kubernetes log nothing, unless the directives name `h2` or `kube_client`.
pub fn parse_directives(directives: &str) -> Result<EnvFilter, LogError> {
    EnvFilter::builder().parse(format!("{QUIET},{directives}")).map_err(|error| LogError::Directives {
        directives: directives.to_owned(),
        reason: error.to_string(),
    })
}

/// Starts logging for the whole process. Each line has the format in force. The guard must live until the
/// process ends; dropping the guard flushes the queue.
pub fn init(
    format: InForce<LogFormat>,
    directives: &str,
    metrics: &LogMetrics,
) -> Result<(LogGuard, LogFilter), LogError> {
    let filter = parse_directives(directives)?;
    let (sink, guard) = LineSink::start(io::stderr(), metrics.dropped.clone())?;
    let (subscriber, filter) = subscriber(format, filter, sink);
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Twice)?;
    Ok((guard, filter))
}

fn subscriber(
    format: InForce<LogFormat>,
    filter: EnvFilter,
    sink: LineSink,
) -> (impl Subscriber + Send + Sync, LogFilter) {
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(sink).with_ansi(false);
    let builder = builder.fmt_fields(line::TextFields).map_event_format(|text| line::Line { format, text });
    let builder = builder.with_filter_reloading();
    let handle = builder.reload_handle();
    let configure = move |filter| handle.reload(filter);
    (builder.finish(), LogFilter(Box::new(configure)))
}

/// The log directives in force. The filter remembers the directives of each call site, so `tracing` has to be
/// told of others.
pub struct LogFilter(Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>);

impl LogFilter {
    /// The filter of a process that writes no log.
    pub fn without_log() -> LogFilter {
        LogFilter(Box::new(|_| Ok(())))
    }

    /// Puts other directives in force, for all call sites.
    ///
    /// # Errors
    /// The directives are unreadable, or logging has ended.
    pub fn publish(&self, directives: &str) -> Result<(), LogError> {
        (self.0)(parse_directives(directives)?).map_err(LogError::Ended)
    }
}

enum LogMessage {
    Line(Vec<u8>),
    Stop,
}

/// The queue of formatted lines. Cheap to clone; never blocks.
#[derive(Clone)]
struct LineSink {
    queue: SyncSender<LogMessage>,
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
            // If the guard gave up waiting, there is no receiver any more.
            let _ = stopped.send(());
        })?;
        let guard = LogGuard { queue: queue.clone(), done, patience: FLUSH_TIMEOUT };
        Ok((LineSink { queue, queued_bytes, dropped }, guard))
    }

    fn push(&self, line: &[u8]) {
        let queued = self.queued_bytes.fetch_add(line.len(), Relaxed) + line.len();
        if queued > BYTES_MAX || self.queue.try_send(LogMessage::Line(line.to_vec())).is_err() {
            self.queued_bytes.fetch_sub(line.len(), Relaxed);
            self.dropped.inc();
        }
    }
}

/// The formatter passes one whole event per call.
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

fn write_lines(lines: &Receiver<LogMessage>, mut output: impl Write, queued_bytes: &AtomicUsize) {
    while let Ok(LogMessage::Line(line)) = lines.recv() {
        // A failing output can't be reported in the log. The process continues without a log.
        let _ = output.write_all(&line);
        queued_bytes.fetch_sub(line.len(), Relaxed);
    }
    let _ = output.flush();
}

/// Flushes the queue when dropped, and waits for the flush at most a second, or less.
#[must_use = "dropping it ends logging"]
pub struct LogGuard {
    queue: SyncSender<LogMessage>,
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
        // A full queue means that the output blocks, so waiting would be useless.
        if self.queue.try_send(LogMessage::Stop).is_ok() {
            let _: Result<(), RecvTimeoutError> = self.done.recv_timeout(self.patience);
        }
    }
}

#[cfg(test)]
mod tests;
