//! The simulated clients: one thread, one epoll set, HTTP/2 frames of our own. A general HTTP/2 client would
//! cost as much as the server under test; this client costs about 10 us per update, most of that in the
//! kernel.
//!
//! Only [`fleet`] touches sockets; `link` hides TLS from it.

mod connection;
mod fleet;
mod flow;
mod frame;
mod headers;
mod link;
mod profile;
mod reporting;
mod request;
mod response;
mod stream;

pub use fleet::{Fleet, Manner, Odd, Reading};
pub use profile::{ENVOY_NODE_BYTES, Like, Node, Profile, Subscription, Wanted};
pub use reporting::Tally;
pub use request::Requests;
pub use response::Response;

use crate::xds::Kind;

/// Receives the events of clients.
pub trait Observer {
    /// A client is scheduled to connect, or to reconnect, at `since`.
    fn opened(&mut self, client: usize, since: u64);

    /// The last byte of a response arrived at `now`.
    fn response(&mut self, client: usize, kind: Kind, response: &Response, now: u64);

    /// A client has the complete answer to its first requests, this long after its scheduled connect.
    fn served(&mut self, client: usize, wait_ns: u64, again: bool);

    /// A client has lost its connection unexpectedly.
    fn lost(&mut self, client: usize);
}
