//! Upstream I/O: gRPC connections and streams to control planes, and watched directories.
//!
//! A [`Pool`] holds all connections to one gRPC server. [`Pool::open`] gives a [`StreamHandle`] at once and reports
//! [`StreamEvent`]s into the caller's channel: it waits for a ready connection, opens one stream, decodes what arrives.
//! A [`RestServer`] is polled, each poll reporting as a stream would. A [`FileServer`] is a directory that is served as if it were a control plane; it reports
//! [`FileEvent`]s.
//!
//! This room owns sockets, HTTP/2 and gRPC framing, reconnection after a failed *connect*, liveness of the transport.
//! It holds no subscriptions, sends no request of its own and decides no fallback; the backoff between *streams*
//! (CLI-4) belongs to the engine. `docs/adr/0002-upstream-on-h2.md` says why it speaks to the HTTP/2 library itself.

mod address;
mod settings;
mod event;
mod file;
mod pool;
mod stream;
mod poll;
mod rest;
mod queue;
mod decode;
mod connection;
mod dial;
mod transport;
mod status;

pub use address::GrpcAddress;
pub use event::StreamEvent;
pub use file::{FileError, FileEvent, FileHandle, FileServer, FileSettings, FileState};
pub use poll::PollHandle;
pub use pool::Pool;
pub use rest::RestServer;
pub use settings::Settings;
pub use stream::StreamHandle;
