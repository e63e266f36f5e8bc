//! The proof of the grouping, as plain data.

use std::sync::Arc;
use std::time::SystemTime;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use sluice_engine::Time;
use sluice_proof::proof::{ProofReport, ProveOrder, ProveState};

/// The proof of the grouping by the configuration in force.
pub trait ProofView {
    /// Each server whose classes are proved, in the order of the lists. Empty without `proof`.
    fn proofs(&self) -> BoxFuture<'_, Vec<ServerProof>> {
        async { Vec::new() }.boxed()
    }

    /// Begins to prove a class now. Returns the number of the order, for [`ProofView::prove_state`].
    fn prove(&self, _order: ProveOrder) -> BoxFuture<'_, Result<u64, ProveRefusal>> {
        async { Err(ProveRefusal::Off) }.boxed()
    }

    /// The progress of an order; `None` for an order of long ago.
    fn prove_state(&self, _order: u64) -> BoxFuture<'_, Option<ProveState>> {
        async { None }.boxed()
    }
}

/// The reason why an order had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProveRefusal {
    /// The configuration has no `proof`.
    Off,
    /// No class with this digest is proved: it has one client, or shows a projection, or another list.
    NotProved,
}

/// The proof of one server at one moment.
#[derive(Clone, Debug)]
pub struct ServerProof {
    /// `server_uri` of the configuration.
    pub server: Arc<str>,
    /// The key of the server list.
    pub list: Arc<str>,
    pub report: ProofReport,
    /// The wall clock at the origin of the report's times.
    pub origin: SystemTime,
}

impl ServerProof {
    /// A time of the report, for display (I18).
    pub fn wall(&self, time: Time) -> SystemTime {
        self.origin + time.since(Time::ZERO)
    }
}
