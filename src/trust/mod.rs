//! Certificates, keys and trust anchors: read from files, proved, rotated.
//!
//! All files of one place, for example of a listener, are one *generation*: read as a whole, judged as a
//! whole, and put in force in one step (CRT-2). A bad generation changes nothing (CRT-3). In reading order:
//!
//! 1. [`provider`]: the cryptography of all connections.
//! 2. [`fault`]: a file that cannot be used. [`contents`]: the files of a place, read as a whole. [`pem`]:
//!    blocks of PEM.
//! 3. [`certificate`]: the facts of one certificate. [`identity`]: from a certificate to an identity.
//! 4. [`pair`]: a chain with its key. [`anchors`]: trust anchors, by trust domain. [`bundle_map`]: anchors in
//!    JSON. [`pool`]: what they may prove. [`crl`]: revoked certificates. [`own_leaf`]: our own chain against
//!    our own anchors.
//! 5. [`rotation`]: the task that watches the files of a place.
//! 6. [`refusal`]: the reasons for failed handshakes.
//! 7. [`server`]: everything for a listener.
//! 8. [`client`]: everything for a control plane.
//! 9. [`tokens`]: the tokens of operators and scrapers.
//! 10. [`issue`]: certificates for trying out, and for tests.

pub mod anchors;
pub mod bundle_map;
pub mod certificate;
pub mod client;
pub mod contents;
pub mod crl;
pub mod fault;
pub mod identity;
pub mod issue;
mod own_leaf;
pub mod pair;
pub mod pem;
mod pool;
pub mod provider;
pub mod refusal;
pub mod rotation;
pub mod server;
pub mod tokens;
