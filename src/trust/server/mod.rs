//! TLS of a listener: settings, the files as one generation, and the judgement of clients.
//!
//! 1. [`settings`]: the keys of the configuration.
//! 2. [`verifier`]: the judgement of client certificates. [`resolver`]: the choice of our own certificate.
//! 3. [`generation`]: all files of a listener, ready for handshakes.

pub mod generation;
mod resolver;
pub mod settings;
mod verifier;

pub use generation::{Proved, ServerFiles};
pub use settings::{ChainLimits, ClientCertificate, MinVersion, OnClientExpiry, ServerTls};
