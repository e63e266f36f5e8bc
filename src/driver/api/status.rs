//! What drivers let others see of the relay: plain data, read-only, free of payloads and secrets.
//!
//! The admin room and CSDS render these; nothing in here reaches back into a machine, so that looking at the relay
//! can't slow it down. Times are wall-clock times for display only (I18).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use crate::engine::cache::EntryState;
pub use crate::telemetry::SourceState;
use crate::xds::Variant;
use crate::xds::{ResourceName, Status, StreamKind, TypeUrl, Version};

/// A read-only view of the running relay. Implemented by the driver, read by the admin room.
///
/// Every method returns soon and holds no lock between two items: a reader may stop for minutes in the middle of an
/// iterator, or drop it.
pub trait StatusView: Send + Sync + 'static {
    /// One entry per source; there are few.
    fn sources(&self) -> Vec<Arc<SourceStatus>>;

    /// One entry per downstream stream, built when it is pulled. Sessions that come or go meanwhile may or may not
    /// be among them.
    fn sessions(&self) -> Box<dyn Iterator<Item = SessionStatus> + Send + '_>;

    /// The clients for whose node class there was no room, the last one first: a bounded number of them.
    fn refusals(&self) -> Vec<RefusalStatus> {
        Vec::new()
    }

    /// The resources of all sources, built when they are pulled. The view may use the filter to skip what it does
    /// not let through; the reader applies it again.
    fn resources(&self, filter: &ResourceFilter) -> Box<dyn Iterator<Item = ResourceStatus> + Send + '_>;
}

/// One upstream attachment: what it serves, and how fresh that is (I14).
#[derive(Clone, Debug, PartialEq)]
pub struct SourceStatus {
    /// `server_uri` of the configuration.
    pub server: Arc<str>,
    /// The server list for which it is: the key of the configuration.
    pub list: Arc<str>,
    /// The stream that it serves alone (RLY-20); `None`: everyone of the class.
    pub stream: Option<u64>,
    pub class: ClassStatus,
    /// The id under which the server sees the class.
    pub shown: Arc<str>,
    pub state: SourceState,
    /// Since when it is in this state.
    pub since: SystemTime,
    /// Why the last stream or connection attempt ended; `None` once the server answers again.
    pub last_error: Option<Status>,
    /// Whether a response ever came since the source began.
    pub answered: bool,
    /// Since when the server could not be heard; `None` while the stream is up.
    pub stale_since: Option<SystemTime>,
    /// Some of what it holds is from before a restart, and its server has not spoken of it since (RLY-7).
    pub restored: bool,
    /// The variant of the current, or last, stream.
    pub variant: Option<Variant>,
    /// The server marks which answers are whole (ADR 14).
    pub has_marks: bool,
    pub types: Vec<SourceTypeStatus>,
}

/// Which node class a source serves. The fields are those by which the class was split, free of secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassStatus {
    /// Short, stable, fit for comparing.
    pub digest: Arc<str>,
    pub fields: Arc<[(String, String)]>,
}

impl SourceStatus {
    /// The last error as a person reads it.
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

/// One type of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceTypeStatus {
    pub type_url: TypeUrl,
    /// Names and globs subscribed to, without the wildcard.
    pub names: usize,
    pub wildcard: bool,
    /// Names by what is known of them (RLY-2).
    pub present: usize,
    pub absent: usize,
    pub unknown: usize,
    /// Of what is present: what the server took away, and is served on for a while (FU18).
    pub held_back: usize,
    pub held_back_since: Option<SystemTime>,
    /// Why the server does not serve this type, or may not.
    pub refused: Option<RefusedStatus>,
    /// Where each type has a stream or a poll of its own: this one cannot be heard.
    pub lost: Option<LostStatus>,
    /// Bytes of what is present.
    pub bytes: usize,
    /// The version of the whole set (RLY-31).
    pub version: Option<Version>,
}

/// A type of which the server cannot be heard.
#[derive(Clone, Debug, PartialEq)]
pub struct LostStatus {
    pub since: SystemTime,
    pub error: Status,
}

/// What a server makes of one type.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusedStatus {
    pub how: Refused,
    pub since: SystemTime,
    /// When it is asked again; `None` while it is being asked.
    pub next_try: Option<SystemTime>,
    /// With what it refused last.
    pub error: Status,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It ends the stream when it is asked for it: it is asked on a stream of its own (ADR 15).
    EndsStream,
    /// It has no service for it (RLY-25).
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

/// One downstream stream.
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
    pub kind: StreamKind,
    pub opened_at: SystemTime,
    pub types: Vec<SessionTypeStatus>,
}

/// One type of one downstream stream.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionTypeStatus {
    pub type_url: TypeUrl,
    /// The server that the type is served from now; `None` while no source has been chosen.
    pub server: Option<Arc<str>>,
    /// The node classes of the sources that it comes from.
    pub class: Option<Arc<str>>,
    /// Since when that server could not be heard, so that nothing confirms what the client has (I14).
    pub stale_since: Option<SystemTime>,
    pub wildcard: bool,
    /// How many names and globs are subscribed to, without the wildcard.
    pub names: usize,
    pub version_sent: Option<Version>,
    pub version_acked: Option<Version>,
    /// The nonce of the last response.
    pub nonce: Option<Arc<str>>,
    pub state: ConfigStatus,
    /// The server does not serve the type, or ends streams for it (ADR 15).
    pub server_refuses: Option<RefusedStatus>,
    /// There is no room for its node class: the type is not served (RLY-14).
    pub refused: bool,
    /// Some of it is from before a restart, and unconfirmed (RLY-7).
    pub restored: bool,
    /// How long the last response has been waiting for its ACK.
    pub unacked: Option<Duration>,
    /// The client gets no news of the type before this is known (RLY-5).
    pub waits: Option<WaitStatus>,
    /// There is news that the client is not sent, for this or another reason (ADM-7).
    pub held: Option<HeldStatus>,
    /// The last NACK, until a later response of the type is ACKed.
    pub nack: Option<NackStatus>,
}

/// A client is kept waiting for a name that it may have, and of which nobody knows whether it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitStatus {
    /// `*` of a wildcard.
    pub name: ResourceName,
    /// Of the server that owes it.
    pub server: Option<Arc<str>>,
    pub duration: Duration,
}

/// News of a type that a client is not sent yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldStatus {
    /// `name`, `order`, `withheld`, `unread` or `deletion`.
    pub why: &'static str,
    /// The name, or the type that goes before; of a mass deletion nothing.
    pub what: Option<Arc<str>>,
    pub duration: Option<Duration>,
}

/// A client for whose node class there was no room (RLY-14).
#[derive(Clone, Debug, PartialEq)]
pub struct RefusalStatus {
    /// The limit that was passed, by the name of its key.
    pub limit: &'static str,
    pub node_id: String,
    pub node_cluster: String,
    pub type_url: TypeUrl,
    /// The stream that was refused last.
    pub stream: u64,
    pub peer: Option<SocketAddr>,
    pub count: u64,
    pub last: SystemTime,
}

/// What a client said of a response that it refused (RLY-38).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NackStatus {
    pub version: Option<Version>,
    /// The `error_detail`, cut to what is kept of it.
    pub detail: Arc<str>,
    pub at: SystemTime,
}

/// `config_status` as the server side of CSDS words it (CSD-4, RLY-71).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigStatus {
    Synced = 1,
    NotSent = 2,
    Stale = 3,
    Error = 4,
}

impl ConfigStatus {
    pub const ALL: [ConfigStatus; 4] =
        [ConfigStatus::Synced, ConfigStatus::NotSent, ConfigStatus::Stale, ConfigStatus::Error];

    pub fn name(self) -> &'static str {
        match self {
            ConfigStatus::Synced => "SYNCED",
            ConfigStatus::NotSent => "NOT_SENT",
            ConfigStatus::Stale => "STALE",
            ConfigStatus::Error => "ERROR",
        }
    }
}

/// One resource, or one name without a resource, of one source.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceStatus {
    pub type_url: TypeUrl,
    pub name: ResourceName,
    /// How it is asked for: `names`, `wildcard` or `globs`. What is wanted in several ways is there several times.
    pub collection: &'static str,
    /// `None` without a cached copy.
    pub version: Option<Version>,
    /// Of the cached copy; 0 without one.
    pub bytes: usize,
    pub state: ClientStatus,
    /// Why the server, or the relay, cannot supply it, or a newer one of it (ERR-1).
    pub error: Option<Status>,
    /// What is left of its time to live (TTL-1), where the class is told of that.
    pub expires_in: Option<Duration>,
    /// The server and node class of the source that holds it.
    pub server: Arc<str>,
    pub class: Arc<str>,
}

/// `client_status` as the client side of CSDS words it (CSD-4, DAT-5). A cached copy may coexist with any but
/// REQUESTED.
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

/// Which resources are wanted; `None` lets everything through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceFilter {
    /// See [`names_type`].
    pub type_name: Option<String>,
    /// The exact name.
    pub name: Option<String>,
    pub state: Option<ClientStatus>,
}

impl ResourceFilter {
    /// Whether anything of this type can pass, so that a source skips the others.
    pub fn wants_type(&self, type_url: &TypeUrl) -> bool {
        self.type_name.as_deref().is_none_or(|text| names_type(text, type_url))
    }

    pub fn matches(&self, resource: &ResourceStatus) -> bool {
        self.wants_type(&resource.type_url)
            && self.name.as_deref().is_none_or(|name| name == resource.name.as_str())
            && self.state.is_none_or(|state| state == resource.state)
    }
}

/// Whether a person who writes `text` means this type: its URL, its message name or the last segment of that.
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
