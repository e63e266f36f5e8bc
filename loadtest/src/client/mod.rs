//! The simulated clients: one thread, one epoll set, HTTP/2 frames of our own. A general HTTP/2 client would cost as
//! much as the server it measures; this one costs about 10 us per update, of which most is the kernel's.
//!
//! Only [`fleet`] touches sockets. It does no TLS.

mod connection;
mod fleet;
mod flow;
mod frame;
mod headers;
mod profile;
mod request;
mod response;
mod stream;

pub use fleet::{Fleet, Manner, Odd, Reading};
pub use profile::{ENVOY_NODE_BYTES, Like, Node, Profile, Subscription, Wanted};
pub use request::Requests;
pub use response::Response;

use crate::xds::Kind;

/// Who wants to know what happens to clients.
pub trait Observer {
    /// A client is to connect, or to come back, at `since`.
    fn opened(&mut self, client: usize, since: u64);

    /// The last byte of a response has arrived, at `now`.
    fn response(&mut self, client: usize, kind: Kind, response: &Response, now: u64);

    /// A client has everything that it asked for first, so long after it was to connect.
    fn served(&mut self, client: usize, wait_ns: u64, again: bool);

    /// A client has lost its connection. Nobody asked for that.
    fn lost(&mut self, client: usize);
}
