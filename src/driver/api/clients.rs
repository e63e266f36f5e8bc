//! One client in detail: each name with the version that the client has, and the version that it should have
//! (ADM-7). Plain data, as in [`status`](crate::driver::api::status).

use std::sync::Arc;
use std::time::SystemTime;

use crate::driver::api::proof::SplitStatus;
use crate::driver::api::status::{ConfigStatus, NackStatus, RuleId, SessionStatus, SourceStatus, Why};
pub use sluice_engine::class::NearMiss;
pub use sluice_engine::downstream::HeldVersion;
pub use sluice_fleet::rollout::ClientState;
use sluice_xds::{Node, ResourceName, Status, TypeUrl, Version};

/// Single clients, and their names. Each method locks one stream for a moment, and returned iterators hold no
/// lock.
pub trait ClientView: Send + Sync + 'static {
    /// The stream with this id; `None` if there is none, or no longer.
    fn session(&self, id: u64) -> Option<SessionStatus>;

    /// The names of one type of a stream behind `after`, at one moment; `None` if the stream is gone, or does
    /// not ask for the type.
    fn names(&self, id: u64, type_url: &TypeUrl, after: Option<ResourceName>) -> Option<NameStatuses>;

    /// Why a stream has its content of a type, or of one name; `None` if the stream is gone.
    fn explain(&self, id: u64, type_url: &TypeUrl, name: Option<&ResourceName>) -> Option<Explanation>;

    /// All streams, each with its content of one name.
    fn holdings<'a>(
        &'a self,
        type_url: &'a TypeUrl,
        name: &'a ResourceName,
    ) -> Box<dyn Iterator<Item = Holding> + Send + 'a>;

    /// All streams, each with the state of its types. The ACK of a relay among the clients means structure
    /// only.
    fn type_states(&self) -> Box<dyn Iterator<Item = ClientTypes> + Send + '_> {
        Box::new(std::iter::empty())
    }

    /// The lost streams soon after a response of a type, by source.
    fn lost_streams(&self, type_url: &TypeUrl) -> Vec<(u64, u64)> {
        let _ = type_url;
        Vec::new()
    }

    /// Whether some source knows the name, as present or as absent.
    fn knows(&self, type_url: &TypeUrl, name: &ResourceName) -> bool;

    /// The classes of a node without a proved identity, for the common types and those of the rules.
    fn classify_node(&self, node: &Node) -> Vec<NodeExplanation>;
}

/// The names of one type of one client, in order.
pub type NameStatuses = Box<dyn Iterator<Item = NameStatus> + Send>;

/// One name of a client: requested, held or due.
#[derive(Clone, Debug, PartialEq)]
pub struct NameStatus {
    pub name: ResourceName,
    /// The version that the client has accepted.
    pub has: Option<HeldVersion>,
    /// The version that the sources have for the client.
    pub should: Option<Version>,
    pub why: Option<Why>,
    /// The reason for which the client may not have the resource, or for which the name is malformed.
    pub refused: Option<Arc<Status>>,
}

impl NameStatus {
    pub fn state(&self) -> ConfigStatus {
        self.why.map_or(ConfigStatus::Synced, Why::state)
    }
}

/// The way from a client to a name, each step with its reason (ADM-9).
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The stream, with the explained type alone.
    pub session: SessionStatus,
    pub class: ClassChoice,
    /// The key of the server list, with the servers in the order of priority.
    pub list: Arc<str>,
    pub servers: Vec<Arc<str>>,
    /// The server that serves the client; `None` while no source has been chosen.
    pub server: Option<Arc<str>>,
    pub source: Option<Arc<SourceStatus>>,
    /// The name; `None` if the whole type is explained.
    pub name: Option<NameExplanation>,
}

/// The choice of a class.
#[derive(Clone, Debug, Default)]
pub struct ClassChoice {
    pub digest: Option<Arc<str>>,
    /// `None` where the server gives all clients the same answers.
    pub rule: Option<RuleText>,
    /// The split beside the rules that made the class (PRF-32).
    pub split: Option<SplitStatus>,
    /// The number of the configuration in force, from 1.
    pub generation: u64,
}

/// A rule of `node_classes`, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleText {
    pub id: RuleId,
    /// The conditions.
    pub matches: String,
    /// The parts of the node that split classes.
    pub splits: String,
    pub nearest: Option<NearMiss>,
    pub not_reached: Vec<RuleId>,
}

/// One name of an explanation.
#[derive(Clone, Debug)]
pub struct NameExplanation {
    pub name: ResourceName,
    /// `None` if the client does not ask for the name.
    pub at_client: Option<NameStatus>,
    /// `names`, `wildcard` or `globs`: the collection that decides.
    pub collection: Option<&'static str>,
    /// The knowledge of the source: PRESENT, ABSENT or UNKNOWN (RLY-2).
    pub state: &'static str,
    /// The state of the cache entry (DAT-8).
    pub entry: Option<&'static str>,
    /// The cause of an absence.
    pub cause: Option<&'static str>,
    pub error: Option<Arc<Status>>,
    pub received_at: Option<SystemTime>,
}

/// The types of one client by the newest content of their sources (TRU-1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTypes {
    pub types: Vec<TypeState>,
}

/// The state of a client towards one type of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeState {
    /// The number of the source, unique in this process.
    pub source: u64,
    pub type_url: TypeUrl,
    pub state: ClientState,
}

/// One client and one name.
#[derive(Clone, Debug)]
pub struct Holding {
    pub id: u64,
    pub node_id: Arc<str>,
    /// The name and the version that the client's node tells: `envoy 1.38.2`. Empty without a name.
    pub user_agent: String,
    /// `None` if the client does not ask for the name.
    pub name: Option<NameStatus>,
    /// The last NACK of the type, until a later response is ACKed.
    pub nack: Option<NackStatus>,
}

/// The class of a node that need not have a client, for one type and style of names.
#[derive(Clone, Debug)]
pub struct NodeExplanation {
    pub type_url: TypeUrl,
    /// `old` or `xdstp`.
    pub names: &'static str,
    pub class: ClassChoice,
    /// The node has no class: it lacks an id that the class needs.
    pub refused: Option<Status>,
}
