//! The status of the relay as plain data: read-only, and free of payloads and secrets.
//!
//! The admin room and CSDS render the status. No value here refers back to a machine, so that readers can't
//! slow the relay down. Times are wall-clock times for display only (I18); they are made from the monotonic
//! clock, so that differences to [`StatusView::now`] are true ages, however the wall clock is set (ADM-8).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::driver::api::change_name::ChangeName;
use crate::driver::api::evidence::EvidenceStatus;
pub use crate::driver::api::why::{ConfigStatus, Why};
pub use crate::telemetry::SourceState;
pub use sluice_engine::cache::EntryState;
pub use sluice_engine::class::RuleId;
pub use sluice_engine::last_word::Confirmed;
use sluice_identity::Identity;
use sluice_xds::{RelayPath, ResourceName, Status, StreamKind, TypeUrl, Variant, Version};

/// A read-only view of the running relay. The driver implements this trait for the admin room.
///
/// Every method returns soon, and holds no lock between two items. A reader may pause for minutes in the
/// middle of an iterator, or drop the iterator.
pub trait StatusView: Send + Sync + 'static {
    /// The time, by the clock of all times of the status.
    fn now(&self) -> SystemTime;

    /// One entry per source; there are few.
    fn sources(&self) -> Vec<Arc<SourceStatus>>;

    /// The sources of the proof, which serve nobody; there are few.
    fn shadows(&self) -> Vec<Arc<SourceStatus>> {
        Vec::new()
    }

    /// The ways to the servers, with the age of what they lead to; there are few.
    fn tiers(&self) -> Vec<TierStatus> {
        Vec::new()
    }

    /// One entry per downstream stream, made on demand, by id. Sessions that begin or end meanwhile may be
    /// missing.
    fn sessions(&self) -> Box<dyn Iterator<Item = SessionStatus> + Send + '_> {
        self.sessions_after(None)
    }

    /// The streams behind this id.
    fn sessions_after(&self, after: Option<u64>) -> Box<dyn Iterator<Item = SessionStatus> + Send + '_>;

    /// Clients for whose node class there was no room, the latest first; bounded.
    fn refusals(&self) -> Vec<RefusalStatus> {
        Vec::new()
    }

    /// The resources of all sources, made on demand. The view may use the filter to skip resources; the
    /// reader applies the filter again.
    fn resources(&self, filter: &ResourceFilter) -> Box<dyn Iterator<Item = ResourceStatus> + Send + '_> {
        self.resources_after(filter, None)
    }

    /// The resources behind this place, by source, type, collection and name.
    fn resources_after(
        &self,
        filter: &ResourceFilter,
        after: Option<ResourcePlace>,
    ) -> Box<dyn Iterator<Item = ResourceStatus> + Send + '_>;
}

/// The sources at the same end of the same way: a server, through the relays between (ADR 101).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierStatus {
    /// `root-1 via cp:15010`.
    pub path: Arc<str>,
    /// There are relays between.
    pub is_through_relays: bool,
    /// How long ago the oldest of the contents was last confirmed; `None`: never.
    pub age: Option<Duration>,
}

/// The place of a resource in the list of all resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourcePlace {
    pub source: u64,
    pub type_url: TypeUrl,
    /// One of [`ResourceStatus::COLLECTIONS`].
    pub collection: &'static str,
    pub name: ResourceName,
}

/// An upstream attachment: its content, and the age of the content (I14). Wide because the fields are those
/// of an item of `/sources`.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceStatus {
    /// Unique in this process.
    pub id: u64,
    /// `server_uri` of the configuration.
    pub server: Arc<str>,
    /// The key of the server list in the configuration.
    pub list: Arc<str>,
    /// The only stream of a private source (RLY-20); `None` if all clients of the class share the source.
    pub stream: Option<u64>,
    /// The relay asks in the place of a client, and serves nobody from the source (PRF-1).
    pub is_shadow: bool,
    pub class: ClassStatus,
    /// The node id that the server sees.
    pub shown: Arc<str>,
    /// The latest other answer for another member of the class.
    pub evidence: Option<Arc<EvidenceStatus>>,
    pub state: SourceState,
    /// The time of the last change of state.
    pub since: SystemTime,
    /// Why the last stream or connection attempt ended; `None` once the server answers again.
    pub last_error: Option<Status>,
    /// Whether the source has received a response since it began.
    pub answered: bool,
    /// Since when the server is unreachable; `None` while the stream is up.
    pub stale_since: Option<SystemTime>,
    /// When the content was last confirmed, over all tiers.
    pub confirmed: Confirmed,
    /// Some resources are from before a restart, and the server has not confirmed them since (RLY-7).
    pub restored: bool,
    /// The variant of the current stream, or of the last stream.
    pub variant: Option<Variant>,
    /// The server marks which answers are whole (ADR 14).
    pub has_marks: bool,
    pub types: Vec<SourceTypeStatus>,
}

/// The node class of a source. The fields are those that split the classes, without secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassStatus {
    /// Short and stable, for comparisons.
    pub digest: Arc<str>,
    pub fields: Arc<[(String, String)]>,
}

impl SourceStatus {
    /// The last error, for people.
    pub fn error_text(&self) -> Option<String> {
        let error = self.last_error.as_ref()?;
        Some(match self.state {
            SourceState::EndsStreams { lived, .. } => {
                format!("ends the stream after {} ms with {error}", lived.as_millis())
            }
            _ => error.to_string(),
        })
    }
}

/// A type of a source. Wide because the fields are those of a type of `/sources`.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceTypeStatus {
    pub type_url: TypeUrl,
    /// Subscribed names and globs, without the wildcard.
    pub names: usize,
    pub wildcard: bool,
    /// Names by state (RLY-2).
    pub present: usize,
    pub absent: usize,
    pub unknown: usize,
    /// The part of `present` that the server has deleted and that is served on for a while (FU18).
    pub held_back: usize,
    pub held_back_since: Option<SystemTime>,
    /// Why the server does not serve the type, or may not.
    pub refused: Option<RefusedStatus>,
    /// Names that the server answers no request with.
    pub silent: Option<SilentStatus>,
    /// Resources that the bound on the content keeps out.
    pub no_room: Option<NoRoomStatus>,
    /// The server is unreachable for this type alone, where each type has a stream or a poll of its own.
    pub lost: Option<LostStatus>,
    /// Bytes of the present resources.
    pub bytes: usize,
    /// The version of the whole set (RLY-31).
    pub version: Option<Version>,
}

/// Names of a type that the server answers no request with (ADR 54).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SilentStatus {
    /// The time since when the first of the names is requested apart.
    pub since: SystemTime,
    pub names: usize,
    /// The first of the names.
    pub first: Vec<ResourceName>,
}

/// Resources of a type that the bound on the content of a source keeps out (ADR 68).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoomStatus {
    /// The time of the first refusal.
    pub since: SystemTime,
    /// The number of refused names, as far as they are remembered.
    pub names: usize,
    /// The first of the names.
    pub first: Vec<ResourceName>,
}

/// A type for which the server is unreachable.
#[derive(Clone, Debug, PartialEq)]
pub struct LostStatus {
    pub since: SystemTime,
    pub error: Status,
}

/// A server's refusal of one type.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusedStatus {
    pub how: Refused,
    pub since: SystemTime,
    /// The time of the next request; `None` while a request is under way.
    pub next_try: Option<SystemTime>,
    /// The error of the last refusal.
    pub error: Status,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The server ends streams after a request for the type. The relay requests the type on a separate stream
    /// (ADR 15).
    EndsStream,
    /// The server has no service for the type (RLY-25).
    NotServed,
}

impl Refused {
    pub fn name(self) -> &'static str {
        match self {
            Refused::EndsStream => "ends_stream",
            Refused::NotServed => "not_served",
        }
    }
}

/// A downstream stream.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionStatus {
    /// Unique in this process.
    pub id: u64,
    /// Empty until the first request has named the node (STR-2).
    pub node_id: Arc<str>,
    pub node_cluster: Arc<str>,
    pub listener: Arc<str>,
    /// `None` on a unix socket.
    pub peer: Option<SocketAddr>,
    /// The proved identity of the client (IDN-1).
    pub identity: Arc<Identity>,
    /// The relays on the way, if the client is a relay (TIR-2).
    pub relays: Option<Arc<RelayPath>>,
    pub kind: StreamKind,
    pub opened_at: SystemTime,
    /// The client's places in plans, sorted by plan. A relay has none (TIR-1).
    pub seats: Vec<SeatStatus>,
    pub types: Vec<SessionTypeStatus>,
}

/// A client's place in a plan (WAV-13), and the release that the client is served.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeatStatus {
    pub plan: Arc<str>,
    /// Steps of more than `bucket` / 100 percent admit the client.
    pub bucket: u16,
    /// `None` while the plan holds nothing back.
    pub lane: Option<Lane>,
}

/// The release that a client is served while a plan holds content back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// The content of this push.
    Candidate { push: u64 },
    /// The content before the push under way.
    Stable,
}

/// A type of a downstream stream. Wide because the fields are those of a type of `/clients`.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionTypeStatus {
    pub type_url: TypeUrl,
    /// The server that serves the type now; `None` while no source has been chosen.
    pub server: Option<Arc<str>>,
    /// The node classes of the sources that serve the type.
    pub class: Option<Arc<str>>,
    /// A server other than the preferred one of its list serves the type (RLY-40).
    pub fallback: bool,
    /// The latest change of the content that the client asks for (ADM-10).
    pub change: Option<ChangeName>,
    /// Since when the server is unreachable, so that nothing confirms the client's resources (I14).
    pub stale_since: Option<SystemTime>,
    pub wildcard: bool,
    /// The number of subscribed names and globs, without the wildcard.
    pub names: usize,
    pub version_sent: Option<Version>,
    pub version_acked: Option<Version>,
    /// The nonce of the last response.
    pub nonce: Option<Arc<str>>,
    pub state: ConfigStatus,
    /// The reason for the state; `None` for SYNCED.
    pub why: Option<Why>,
    /// The beginning of the state.
    pub since: SystemTime,
    /// The version of the content that the client has accepted, as a whole.
    pub has: Option<Version>,
    /// The version of the content that its sources have for the client, as a whole.
    pub should: Option<Version>,
    /// The rules of `node_classes` that chose the classes; empty where all clients are in one class.
    pub rules: Vec<RuleId>,
    /// The server does not serve the type, or ends streams for the type (ADR 15).
    pub server_refuses: Option<RefusedStatus>,
    /// There is no room for the node class, so the type is not served (RLY-14).
    pub refused: bool,
    /// Some resources are from before a restart, and unconfirmed (RLY-7).
    pub restored: bool,
    /// How long the last response has waited for its ACK.
    pub unacked: Option<Duration>,
    /// The name that updates of the type wait for (RLY-5).
    pub waits: Option<WaitStatus>,
    /// A change that the client has not been sent, for the reason in `waits` or another (ADM-7).
    pub held: Option<HeldStatus>,
    /// The last NACK, until a later response of the type is ACKed.
    pub nack: Option<NackStatus>,
}

/// A client waits for a name that it may have, and whose existence is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitStatus {
    /// `*` for a wildcard.
    pub name: ResourceName,
    /// The server that has not answered for the name.
    pub server: Option<Arc<str>>,
    pub duration: Duration,
}

/// A pending change of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldStatus {
    /// One of the reasons `held:…`.
    pub why: Why,
    /// The name, or the type that goes first; `None` for a mass deletion.
    pub what: Option<Arc<str>>,
    pub duration: Option<Duration>,
}

/// A client for whose node class there was no room (RLY-14).
#[derive(Clone, Debug, PartialEq)]
pub struct RefusalStatus {
    /// Unique in this process; later refusals have higher numbers.
    pub number: u64,
    /// The exceeded limit, by its key.
    pub limit: &'static str,
    pub node_id: String,
    pub node_cluster: String,
    pub type_url: TypeUrl,
    /// The stream of the last refusal.
    pub stream: u64,
    pub peer: Option<SocketAddr>,
    pub count: u64,
    pub last: SystemTime,
}

/// A client's rejection of a response (RLY-38).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NackStatus {
    pub version: Option<Version>,
    /// The `error_detail`, truncated.
    pub detail: Arc<str>,
    pub at: SystemTime,
    /// The resources of the client that the text names.
    pub names: Vec<ResourceName>,
}

/// A resource, or a name without a resource, of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceStatus {
    /// The id of the source.
    pub source: u64,
    pub type_url: TypeUrl,
    pub name: ResourceName,
    /// The kind of subscription, one of [`ResourceStatus::COLLECTIONS`]. A resource with several kinds has an
    /// entry for each.
    pub collection: &'static str,
    /// `None` without a cached copy.
    pub version: Option<Version>,
    /// The size of the cached copy, as in the sums of sources and changes; 0 without a copy.
    pub bytes: usize,
    /// The time at which the cached content arrived; `None` without a copy. Equal content that arrives again
    /// does not count. After a restart, the time of the checkpoint.
    pub received_at: Option<SystemTime>,
    pub state: ClientStatus,
    /// Why the server, or the relay, cannot supply the resource or a newer version (ERR-1).
    pub error: Option<Status>,
    /// The remaining TTL (TTL-1), if the class is told of TTLs.
    pub expires_in: Option<Duration>,
    /// The server and the node class of the source.
    pub server: Arc<str>,
    pub class: Arc<str>,
}

impl ResourceStatus {
    /// In the order of the list of resources.
    pub const COLLECTIONS: [&str; 3] = ["names", "wildcard", "globs"];

    pub fn place(&self) -> ResourcePlace {
        let ResourceStatus { source, ref type_url, collection, ref name, .. } = *self;
        ResourcePlace { source, type_url: type_url.clone(), collection, name: name.clone() }
    }
}

/// `client_status` in the words of the client side of CSDS (CSD-4, DAT-5). A cached copy may coexist with any
/// status but REQUESTED.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientStatus {
    Requested = 1,
    DoesNotExist = 2,
    Acked = 3,
    Nacked = 4,
    ReceivedError = 5,
    Timeout = 6,
}

impl ClientStatus {
    pub const ALL: [ClientStatus; 6] = [
        ClientStatus::Requested,
        ClientStatus::DoesNotExist,
        ClientStatus::Acked,
        ClientStatus::Nacked,
        ClientStatus::ReceivedError,
        ClientStatus::Timeout,
    ];

    pub fn name(self) -> &'static str {
        match self {
            ClientStatus::Requested => "REQUESTED",
            ClientStatus::DoesNotExist => "DOES_NOT_EXIST",
            ClientStatus::Acked => "ACKED",
            ClientStatus::Nacked => "NACKED",
            ClientStatus::ReceivedError => "RECEIVED_ERROR",
            ClientStatus::Timeout => "TIMEOUT",
        }
    }
}

/// Selects resources; `None` selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceFilter {
    /// See [`names_type`].
    pub type_name: Option<String>,
    /// The exact name.
    pub name: Option<String>,
    pub state: Option<ClientStatus>,
}

impl ResourceFilter {
    /// Whether any resource of this type can match, so that a source skips other types.
    pub fn wants_type(&self, type_url: &TypeUrl) -> bool {
        self.type_name.as_deref().is_none_or(|text| names_type(text, type_url))
    }

    pub fn matches(&self, resource: &ResourceStatus) -> bool {
        self.wants_type(&resource.type_url)
            && self.name.as_deref().is_none_or(|name| name == resource.name.as_str())
            && self.state.is_none_or(|state| state == resource.state)
    }
}

/// Whether `text` names this type. A person may write the URL, the message name, or its last segment.
pub fn names_type(text: &str, type_url: &TypeUrl) -> bool {
    text == type_url.short() || text == type_url.message() || text == type_url.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_takes_a_type_by_each_of_its_names() {
        let cluster = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
        for text in [
            "Cluster",
            "envoy.config.cluster.v3.Cluster",
            "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        ] {
            assert!(names_type(text, &cluster), "{text}");
        }
        for text in ["cluster", "", "v3.Cluster", "Listener"] {
            assert!(!names_type(text, &cluster), "{text}");
        }
    }

    #[test]
    fn csd_4_states_have_the_names_and_numbers_of_csds() {
        let config: Vec<_> = ConfigStatus::ALL.iter().map(|s| (*s as i32, s.name())).collect();
        assert_eq!(config, [(1, "SYNCED"), (2, "NOT_SENT"), (3, "STALE"), (4, "ERROR")]);
        let client: Vec<_> = ClientStatus::ALL.iter().map(|s| (*s as i32, s.name())).collect();
        let expected = ["REQUESTED", "DOES_NOT_EXIST", "ACKED", "NACKED", "RECEIVED_ERROR", "TIMEOUT"];
        assert_eq!(client, (1..).zip(expected).collect::<Vec<_>>());
    }
}
