//! The limits that the driver enforces, for each server, connection, listener or stream.

use sluice_setting::{Range, SOME, Setting, bytes, count, settings};

/// Classes and private sources: each costs at least an upstream stream.
const SOURCES: Range = count(1..=1_000_000);

/// Encoded answers, kept for the next client with the same state; the same again for JSON. An evicted answer
/// is encoded again.
pub const ENCODED_BYTES: Setting<u64> = Setting::new("encoded_bytes", 256 << 20, bytes(0..=1 << 40));

settings! {
    /// The limits on what clients make the relay do.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RelayLimits {
        /// Changes of subscription and NACKs of one stream, and polls and new sources of one connection; 400
        /// names that came or went count as one, and so do 800 that a list repeats. Further changes wait, and
        /// the newest list of a type replaces those that wait (ADR 66). Another node's dynamic parameters
        /// change all names of the stream. ACKs never count.
        changes_per_second: u32 = 100, SOME;
        /// The burst allowed for `changes_per_second`, for a client's start.
        changes_burst: u32 = 500, SOME;
        /// First answers to the streams of one listener. Spreads a reconnect storm (RLY-56).
        first_answers_per_second: u32 = 20_000, SOME;
        /// The burst allowed for `first_answers_per_second`.
        first_answers_burst: u32 = 10_000, SOME;
        /// Node classes in use at a time, for each server: each costs an upstream stream and a cache. A
        /// client that needs one more is refused (RLY-14).
        node_classes: usize = 1_000, SOURCES;
        /// Node classes in use on one connection, Secrets aside. A downstream relay brings the classes of its
        /// own clients, by default with 30 streams per connection.
        node_classes_per_connection: usize = 64, SOURCES;
        /// Additional node classes for Secrets, which split by client, for each server: half the maximum of
        /// connections.
        secret_classes: usize = 10_000, SOURCES;
        /// Sources that serve a single stream, as their resources must not be shared (RLY-20).
        private_sources: usize = 10_000, SOURCES;
        /// Content that only the lanes of plans have, in bytes: what clients are still served, and the server
        /// has replaced. Beyond it no push begins, and nothing is given up (WAV-11).
        held_bytes: u64 = 256 << 20, bytes(0..=1 << 40);
        /// Content that only shadows have, in bytes: what servers tell clients directly, and no class has.
        /// Beyond it no shadow begins, and witnesses close (PRF-19).
        shadow_bytes: u64 = 64 << 20, bytes(1 << 20..=1 << 40);
        /// Content of one source, in bytes; each resource counts 850 bytes beside its text and content.
        /// Beyond it, resources that grow are refused (ADR 68). `None`: a quarter of the memory budget, if
        /// there is one. Below 1 MiB nothing would fit.
        source_bytes: Option<u64> = None, bytes(1 << 20..=1 << 40);
        /// Resident memory of the process, in bytes. Above 80 % the relay accepts no new connection; above 90
        /// % it closes the connections with the most memory (FP7). `None`: the limit of the process's control
        /// group, if there is one. Below 8 MiB the process itself would not fit.
        memory_bytes: Option<u64> = None, bytes(8 << 20..=1 << 50);
    }
}
