//! The proof of the grouping, as plain data.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use sluice_engine::Time;
use sluice_proof::proof::{ClassKey, ProofReport, ProveOrder, ProveState, SampleReport};
use sluice_xds::{ResourceName, TypeUrl};

/// The proof of the grouping by the configuration in force.
pub trait ProofView {
    /// Each server whose classes are proved, in the order of the lists. Empty without `proof`.
    fn proofs(&self) -> BoxFuture<'_, Vec<ServerProof>> {
        async { Vec::new() }.boxed()
    }

    /// The same in numbers, at most 15 s old, and without a question to a task.
    fn proof_summaries(&self) -> Vec<ProofSummary> {
        Vec::new()
    }

    /// Begins to prove a class now, at each server with the class. Returns the number of the order, for
    /// [`ProofView::prove_state`].
    fn prove(&self, _order: ProveOrder) -> BoxFuture<'_, Result<u64, ProveRefusal>> {
        async { Err(ProveRefusal::Off) }.boxed()
    }

    /// The progress of an order; `None` for an order of long ago, and after a server left the proof.
    fn prove_state(&self, _order: u64) -> BoxFuture<'_, Option<ProveStatus>> {
        async { None }.boxed()
    }

    /// The latest samples of a class, by server; empty for a class that is not proved.
    fn samples(&self, _class: ClassKey) -> BoxFuture<'_, Vec<ServerSamples>> {
        async { Vec::new() }.boxed()
    }

    /// The splits of classes beside the rules.
    fn splits(&self) -> Vec<SplitStatus> {
        Vec::new()
    }

    /// Gives each value of these fields a class of its own, until [`ProofView::join_classes`] or another rule
    /// (PRF-32). `class`: the whole digest; `by`: the paths of fields, as in reports.
    ///
    /// # Errors
    /// Nothing was split.
    fn split_class(&self, _class: &str, _by: Vec<Box<str>>) -> Result<(), SplitRefusal> {
        Err(SplitRefusal::NoClass)
    }

    /// Undoes, for each class, the split behind the class, or all splits of the class. Returns the classes
    /// with the clients then.
    ///
    /// # Errors
    /// A class was not split, and nothing was joined.
    fn join_classes(&self, _classes: &[String]) -> Result<Vec<Arc<str>>, JoinRefusal> {
        Err(JoinRefusal { class: String::new(), reason: SplitRefusal::NoClass })
    }
}

/// A class without a split to undo, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRefusal {
    pub class: String,
    pub reason: SplitRefusal,
}

/// A split of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitStatus {
    /// The digest of the class that was split.
    pub class: Arc<str>,
    /// The paths of the fields, as in reports.
    pub fields: Vec<Arc<str>>,
    /// How many tuples of values have classes of their own; `None`: all.
    pub tuples: Option<usize>,
    /// The client and the type for which the proof made the split; `None`: an operator made it.
    pub found_by: Option<(Arc<str>, Arc<str>)>,
    pub since: SystemTime,
    /// The shortest time until the proof may undo the split; `None`: it does not (PRF-31).
    pub holds: Option<Duration>,
}

/// The reason why no class was split or joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SplitRefusal {
    /// No client has the class.
    NoClass,
    /// The class shows a projection of nodes to the server, so that no member may be shown.
    Projection,
    /// The class has one client by its rule, or its clients get Secrets by themselves.
    OfOne,
    /// No client of the class has this field.
    NoField(Arc<str>),
    /// The clients of the class have the same values.
    OneValue,
    /// So many further classes have no room at a server.
    NoRoom { needed: usize, room: usize },
    /// The class was not split, and is no part of a split.
    NotSplit,
}

impl fmt::Display for SplitRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SplitRefusal::NoClass => f.write_str("no client has the class"),
            SplitRefusal::Projection => f.write_str(
                "the class shows the server a projection of nodes (`upstream_node`), which tells no member from others; \
                 split it by its rule in `node_classes`",
            ),
            SplitRefusal::OfOne => f.write_str("the class is of one client already"),
            SplitRefusal::NoField(field) => write!(f, "no client of the class has the field {field}"),
            SplitRefusal::OneValue => f.write_str("all clients of the class have the same values of these fields"),
            SplitRefusal::NoRoom { needed, room } => write!(
                f,
                "the split needs {needed} further classes at a server, which has room for {room} (`limits.node_classes`)"
            ),
            SplitRefusal::NotSplit => f.write_str("the class was not split, and is no part of a split"),
        }
    }
}

/// The proof of one server in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProofSummary {
    /// `server_uri` of the configuration.
    pub server: Arc<str>,
    /// The key of the server list.
    pub list: Arc<str>,
    /// Classes with clients that the server tells otherwise, and those of them whose split has to wait.
    pub differ: usize,
    pub split_waits: usize,
}

/// The reason why an order had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProveRefusal {
    /// The configuration has no `proof`.
    Off,
    /// No class with this digest is proved: it has one client, or shows a projection, or another list.
    NotProved,
    /// A server has too many orders under way.
    Busy,
}

/// The progress of an order, of all servers together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProveStatus {
    pub state: ProveState,
    /// The reason why no further client is asked now (PRF-20).
    pub gives_way: Option<&'static str>,
}

impl ProveStatus {
    /// Adds the progress at another server. The class is proved only if each server was asked.
    pub fn add(&mut self, other: ProveStatus) {
        let (sum, other_state) = (&mut self.state, other.state);
        sum.asked += other_state.asked;
        sum.equal += other_state.equal;
        sum.differs += other_state.differs;
        sum.no_word += other_state.no_word;
        sum.is_done &= other_state.is_done;
        sum.refused = sum.refused.take().or(other_state.refused);
        self.gives_way = self.gives_way.or(other.gives_way);
    }
}

/// The proof of one server at one moment.
#[derive(Clone, Debug)]
pub struct ServerProof {
    /// `server_uri` of the configuration.
    pub server: Arc<str>,
    /// The key of the server list.
    pub list: Arc<str>,
    pub report: ProofReport,
    /// The latest comparison of replicas of each class.
    pub replicas: BTreeMap<ClassKey, ReplicaComparison>,
    /// The wall clock at the origin of the report's times.
    pub origin: SystemTime,
}

impl ServerProof {
    /// A time of the report, for display (I18).
    pub fn wall(&self, time: Time) -> SystemTime {
        self.origin + time.since(Time::ZERO)
    }
}

/// A replica of a control plane, as the relay sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replica {
    /// `None`: a unix socket, or no stream yet.
    pub address: Option<SocketAddr>,
    /// `control_plane.identifier` of its latest response.
    pub control_plane: Option<Arc<str>>,
}

impl fmt::Display for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "{address}")?,
            None => f.write_str("a unix socket")?,
        }
        match &self.control_plane {
            Some(control_plane) => write!(f, " ({control_plane})"),
            None => Ok(()),
        }
    }
}

/// The latest comparison of two replicas, by the node of one class (PRF-18).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaComparison {
    pub at: Time,
    /// The replica that answers the class, and the other one.
    pub class: Replica,
    pub other: Replica,
    /// The names about which the two disagree; `None`: they agree.
    pub disagree: Option<ReplicaDifference>,
}

/// The names about which two replicas disagree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaDifference {
    pub type_url: TypeUrl,
    /// At most 100. Empty for Secrets.
    pub names: Vec<ResourceName>,
}

/// The latest samples of one class at one server.
#[derive(Clone, Debug)]
pub struct ServerSamples {
    /// `server_uri` of the configuration.
    pub server: Arc<str>,
    /// The newest first.
    pub samples: Vec<SampleReport>,
    /// The wall clock at the origin of the samples' times.
    pub origin: SystemTime,
}
