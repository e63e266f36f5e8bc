//! Upstream I/O: gRPC connections and streams to control planes, and watched directories.
//!
//! A [`Pool`] holds all connections to one gRPC server. [`Pool::open`] gives a [`StreamHandle`] at once and reports
//! [`StreamEvent`]s into the caller's channel: it waits for a ready connection, opens one ADS stream, decodes what
//! arrives. A [`FileServer`] is a directory that is served as if it were a control plane; it reports
//! [`FileEvent`]s.
//!
//! ```text
//! impl Pool {                                   // Clone; shared by all sources of one server
//!     fn new(address: GrpcAddress, settings: Settings, metrics: Arc<ClientMetrics>) -> Pool
//!     fn open(&self, variant: Variant, events: mpsc::Sender<StreamEvent>) -> StreamHandle
//! }
//! impl StreamHandle {                           // dropping it resets the stream
//!     fn send(&self, message: Bytes)            // framed for gRPC; never blocks
//!     fn probe(&self)                           // Alive follows, or the connection ends
//! }
//! impl FileServer {
//!     async fn watch(directory: &Path, settings: FileSettings, events: mpsc::Sender<FileEvent>)
//!         -> Result<FileHandle, FileError>      // dropping the handle ends the watch
//! }
//! enum FileEvent {
//!     State(Vec<(TypeUrl, Vec<Arc<Resource>>)>) // all of the directory; what is missing was deleted
//!     Bad { path: PathBuf, reason: String }     // the last State stays in force
//! }
//! ```
//!
//! This room owns sockets, HTTP/2 and gRPC framing, reconnection after a failed *connect*, liveness of the transport.
//! It holds no subscriptions, sends no request of its own and decides no fallback; the backoff between *streams*
//! (CLI-4) belongs to the engine. `docs/adr/0002-upstream-on-h2.md` says why it speaks to the HTTP/2 library itself.

mod address;
mod event;
mod metrics;
mod settings;

pub use address::{AddressError, GrpcAddress, ServerAddress};
pub use event::StreamEvent;
pub use metrics::{ClientMetrics, Count};
pub use settings::Settings;
