//! The targets: each takes any bytes, and panics where a rule does not hold.
//!
//! 1. [`draw`]: choices from bytes. [`der`]: a second reader of certificates. [`issue`]: certificates that are equal in
//!    each run.
//! 2. Trust: [`identities`], [`files`], [`handshake`], [`rotation`].
//! 3. The others: [`requests`], [`responses`], [`json`], [`meaning`], [`names`], [`classes`], [`checkpoint`], [`config`],
//!    [`admin`], [`http2`], [`streams`].

pub mod admin;
pub mod checkpoint;
pub mod classes;
pub mod config;
pub mod der;
pub mod draw;
pub mod files;
pub mod handshake;
pub mod http2;
pub mod identities;
pub mod issue;
pub mod json;
pub mod meaning;
pub mod names;
pub mod peer;
pub mod requests;
pub mod responses;
pub mod rotation;
pub mod simulator;
pub mod streams;

/// One target.
pub struct Target {
    pub name: &'static str,
    /// Panics if the input violates a rule.
    pub run: fn(&[u8]),
    /// Inputs to begin with, equal in each run.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Pieces of the input's language, for mutations.
    pub words: &'static [&'static str],
    /// The number of mutations under `cargo test`, chosen so that all targets together take some 20 s without
    /// optimization.
    pub mutations: u32,
    #[allow(dead_code, reason = "no count of memory under `cargo test`, which forbids `unsafe`")]
    /// The memory that an input may take: bytes, and bytes for each byte of the input. Judged by libFuzzer's runs only, and
    /// only for targets without threads.
    pub memory: Option<(usize, usize)>,
}

/// The memory of most targets, with that of their oracles: a tree of JSON takes 130 bytes for two of text.
const MEMORY: Option<(usize, usize)> = Some((256 << 10, 400));

/// All targets: 10 of trust, then 14 others.
pub const TARGETS: &[&Target] = &[
    &identities::LEAF_IDENTITY,
    &identities::SPIFFE_ID,
    &identities::IDENTITY_PATTERN,
    &config::AUTHORIZATION_FILE,
    &files::BUNDLE_MAP,
    &files::PEM_GENERATION,
    &files::REVOCATION_LIST,
    &identities::TOKEN_EXPIRY,
    &handshake::TLS_RECORDS,
    &rotation::FILE_EVENTS,
    &requests::REQUEST,
    &requests::DELTA_REQUEST,
    &responses::RESPONSE,
    &responses::DELTA_RESPONSE,
    &json::REST_JSON,
    &meaning::MEANING,
    &names::XDSTP_NAME,
    &classes::NODE_CLASSES,
    &checkpoint::CHECKPOINT_FILE,
    &config::CONFIGURATION,
    &admin::ADMIN_QUERY,
    &http2::HTTP2_FRAMES,
    &streams::STREAM_SCRIPT,
    &streams::SOTW_AGAINST_DELTA,
];

/// The target with this name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().copied().find(|target| target.name == name)
}
