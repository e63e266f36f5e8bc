//! TLS towards a control plane: settings, the files as one generation, and the judgement of the server.
//!
//! 1. [`settings`]: the keys of the configuration. [`sans`]: the accepted names of a server.
//! 2. [`verifier`]: the judgement of server certificates.
//! 3. [`generation`]: all files for one server, ready for handshakes.
//! 4. [`failure`]: the reason of a failed connection, in words.

mod failure;
mod generation;
mod sans;
mod settings;
mod verifier;

pub use failure::Failures;
pub use generation::{Generation, Protocol, place};
pub use sans::SanMatch;
pub use settings::{
    ClientTls, HANDSHAKE_TIMEOUT, KeyExchange, REFRESH_INTERVAL, ServerAuthorities, is_server_name,
};
