//! The simulated clients: one thread, one epoll set, HTTP/2 frames of our own. A general HTTP/2 client would cost as
//! much as the server it measures; this one costs about 10 us per update, of which most is the kernel's.
//!
//! Only [`fleet`] touches sockets. It does no TLS.

mod connection;
mod fleet;
mod flow;
mod frame;
mod headers;
mod request;
mod response;

pub use fleet::{Fleet, Round};
pub use request::{Profile, Requests};
