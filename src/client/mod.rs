//! Upstream I/O: gRPC connections and streams to control planes, polls, and watched directories.
//!
//! A [`Pool`] holds all connections to one gRPC server. [`Pool::open`] returns a [`StreamHandle`] at once.
//! The stream waits for a ready connection, opens, decodes responses, and reports [`StreamEvent`]s into the
//! caller's channel. A [`RestServer`] is polled; each poll reports the same events as a stream. A
//! [`FileServer`] watches a directory that takes the place of a control plane, and reports [`FileEvent`]s.
//!
//! This room owns sockets, HTTP/2, gRPC framing, reconnection after a failed *connect*, and transport
//! liveness. It holds no subscriptions, sends no requests of its own and decides no fallback. The backoff
//! between *streams* (CLI-4) belongs to the engine. `docs/adr/0002-upstream-on-h2.md` explains the direct use
//! of the HTTP/2 library.

mod address;
mod calls;
mod settings;
mod event;
mod connection_choice;
mod file;
mod connections;
mod peer;
mod pool;
mod stream;
mod rest_connector;
mod poll;
mod rest;
mod webhook;
mod queue;
mod decode;
mod connection;
mod dial;
mod pings;
mod transport;
mod first_bytes;
mod tls;
mod credentials;
mod status;

pub use address::GrpcAddress;
pub use calls::{CallMetadata, InitialMetadata, MetadataValue, TokenError, VALUE_BYTES_MAX, token_expiry};
pub use connection_choice::{ConnectionChoice, TakenConnection};
pub use credentials::{Credentials, ServerChannel};
pub use event::{Arrival, StreamEvent};
pub use file::{FileError, FileEvent, FileHandle, FileServer, FileSettings, FileState};
pub use poll::PollHandle;
pub use pool::Pool;
pub use rest::RestServer;
pub use settings::{ClientSettings, RESERVE_IDLE_TIMEOUT, TcpKeepalive, backoff};
pub use stream::StreamHandle;
pub use webhook::Webhook;
