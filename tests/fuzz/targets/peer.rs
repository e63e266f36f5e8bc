//! A server on a unix socket, for targets that send raw bytes.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use sluice::driver::api::downstream::{
    Codec, LoadStream, LoadWord, Message, OpenStreams, Peer, Polled, RelayStream,
};
use sluice::server::{Listener, Server, ServerLimits};
use sluice::telemetry::metrics::DownstreamMetrics;
use sluice_wire::ReaderLimits;
use sluice_xds::{Request, SotwRequest, Status, StreamKind};
use tokio::runtime::Runtime;

/// The server ends a connection within this time after its peer has.
pub const PATIENCE: Duration = Duration::from_secs(8);

/// Threads of servers; a panic of one of them is a finding.
const THREAD: &str = "fuzzed server";

/// Answers each stream with one message, and each poll with a document.
struct Relay;

#[derive(Clone)]
struct Stream(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    requests: usize,
    answered: bool,
    over: Option<Option<Status>>,
    waker: Option<Waker>,
}

impl OpenStreams for Relay {
    type Stream = Stream;

    fn open(&self, _: StreamKind, _: impl Into<Arc<Peer>>) -> Result<Stream, Status> {
        Ok(Stream(Arc::default()))
    }

    fn open_load(&self, _: Arc<Peer>) -> Result<Box<dyn LoadStream>, Status> {
        Ok(Box::new(Reports::default()))
    }
}

/// Answers each report.
#[derive(Default)]
struct Reports {
    unanswered: usize,
    is_over: bool,
}

impl LoadStream for Reports {
    fn set_dropped(&mut self, _: bool) {}

    fn arrived(&mut self, _: usize, _: &ReaderLimits) -> Result<(), Status> {
        Ok(())
    }

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn report(&mut self, _: Bytes, _: &ReaderLimits) -> Result<(), Status> {
        self.unanswered += 1;
        Ok(())
    }

    fn half_close(&mut self) {
        self.is_over = true;
    }

    fn poll_word(&mut self, _: &mut Context<'_>) -> Poll<LoadWord> {
        if self.unanswered > 0 {
            self.unanswered -= 1;
            return Poll::Ready(LoadWord::Answer(Bytes::from_static(&[0, 0, 0, 0, 0])));
        }
        if self.is_over { Poll::Ready(LoadWord::End(Status::ok())) } else { Poll::Pending }
    }
}

impl Stream {
    fn change(&self, change: impl FnOnce(&mut Script)) {
        let mut script = self.0.lock().unwrap();
        change(&mut script);
        if let Some(waker) = script.waker.take() {
            waker.wake();
        }
    }
}

impl RelayStream for Stream {
    async fn request(&self, _: Request) -> Result<(), Status> {
        self.change(|script| script.requests += 1);
        Ok(())
    }

    fn half_close(&self) {
        self.change(|script| script.over = Some(None));
    }

    fn fail(&self, status: Status) {
        self.change(|script| script.over = Some(Some(status)));
    }

    fn poll_message(&self, context: &mut Context<'_>) -> Poll<Option<Result<Message, Status>>> {
        let mut script = self.0.lock().unwrap();
        if script.requests > 0 && !script.answered {
            script.answered = true;
            let (private, shared) = (Bytes::from_static(&[0, 0, 0, 0, 4, b'h']), Bytes::from_static(b"ead"));
            return Poll::Ready(Some(Ok(Message { private, shared, delivery: None })));
        }
        if let Some(over) = &script.over {
            return Poll::Ready(over.clone().map(Err));
        }
        script.waker = Some(context.waker().clone());
        Poll::Pending
    }

    async fn poll_once(&self, request: SotwRequest, form: Codec, _: Duration) -> Result<Polled, Status> {
        if form == Codec::Json && request.version_info == "same" {
            return Ok(Polled::Unchanged);
        }
        Ok(Polled::Set { private: Bytes::new(), shared: Bytes::from_static(b"{}") })
    }

    fn has_answered(&self) -> bool {
        self.0.lock().unwrap().answered
    }
}

/// A running server.
pub struct Host {
    path: PathBuf,
    _runtime: Runtime,
    _directory: tempfile::TempDir,
}

/// Panics of servers' threads. libFuzzer's own hook ends the process at the first.
static PANICS: LazyLock<Arc<AtomicUsize>> = LazyLock::new(|| {
    let panics = Arc::new(AtomicUsize::new(0));
    let (counter, hook) = (panics.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().name() == Some(THREAD) {
            counter.fetch_add(1, Ordering::SeqCst);
        }
        hook(info);
    }));
    panics
});

impl Host {
    pub fn start(protect: impl FnOnce(Listener) -> Listener) -> Host {
        LazyLock::force(&PANICS);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name(THREAD).enable_all().build().unwrap();
        let limits = ServerLimits { tls_handshakes_per_second: 1_000_000, ..ServerLimits::default() };
        let server = Server::new(Arc::new(Relay), limits, Arc::new(DownstreamMetrics::default()));
        let _entered = runtime.enter();
        let listener = protect(Listener::bind_unix("main", &path, None).unwrap());
        runtime.spawn(server.serve(vec![listener], std::future::pending()));
        drop(_entered);
        Host { path, _runtime: runtime, _directory: directory }
    }

    pub fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends all bytes in chunks of this size, ends, and returns the answer up to the server's end. `waits`: ends only
    /// after the first byte of the answer.
    pub fn talk(&self, bytes: &[u8], chunk: usize, waits: bool) -> Vec<u8> {
        let mut stream = self.connect();
        for chunk in bytes.chunks(chunk.max(1)) {
            // The server may close before it has read everything.
            if stream.write_all(chunk).is_err() {
                break;
            }
        }
        let mut answer = Vec::new();
        if waits {
            let mut first = [0; 1];
            let count = stream.read(&mut first).unwrap_or_default();
            answer.extend_from_slice(&first[..count]);
        }
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let end = stream.read_to_end(&mut answer);
        let is_over = |kind| !matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut);
        assert!(
            end.map_or_else(|error| is_over(error.kind()), |_| true),
            "the server keeps an ended connection"
        );
        check_panics();
        answer
    }
}

/// Panics if a thread of a server has.
pub fn check_panics() {
    assert_eq!(PANICS.swap(0, Ordering::SeqCst), 0, "panics of the server");
}
