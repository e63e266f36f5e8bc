//! Certificates, keys and trust anchors: read from files, proved, rotated.
//!
//! 1. [`provider`]: the cryptography of all connections.

pub mod provider;
