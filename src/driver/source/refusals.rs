//! The clients for whose node class there was no room, for the operator.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Mutex;

use crate::driver::api::status::RefusalStatus;
use crate::driver::ground::registry::lock;
use crate::engine::Time;
use crate::engine::cache::SessionId;
use crate::telemetry::Limit;
use crate::xds::{Node, TypeUrl};

/// The maximum number of remembered clients, the latest: enough to identify them.
const REFUSALS_MAX: usize = 256;

/// The maximum length of a text that a client chose, in characters.
const TEXT_MAX: usize = 200;

struct Refused {
    number: u64,
    limit: Limit,
    node_id: String,
    type_url: TypeUrl,
    node_cluster: String,
    stream: u64,
    peer: Option<SocketAddr>,
    count: u64,
    last: Time,
}

/// The latest refused clients.
#[derive(Default)]
pub(crate) struct Refusals(Mutex<VecDeque<Refused>>);

/// The number after the latest.
fn next_number(refused: &VecDeque<Refused>) -> u64 {
    refused.back().map_or(0, |last| last.number + 1)
}

impl Refusals {
    pub fn note(
        &self,
        limit: Limit,
        stream: SessionId,
        peer: Option<SocketAddr>,
        node: Option<&Node>,
        type_url: &TypeUrl,
        now: Time,
    ) {
        let cut = |text: &str| text.chars().take(TEXT_MAX).collect::<String>();
        let (node_id, node_cluster) =
            node.map_or_else(Default::default, |node| (cut(&node.id), cut(&node.cluster)));
        let mut refused = lock(&self.0);
        let is_known = |known: &Refused| {
            known.limit == limit
                && known.type_url == *type_url
                && (known.stream == stream.0 || (!node_id.is_empty() && known.node_id == node_id))
                && known.node_cluster == node_cluster
        };
        let number = next_number(&refused);
        let known = refused.iter().position(is_known).and_then(|index| refused.remove(index));
        let count = known.map_or(0, |known| known.count) + 1;
        if refused.len() >= REFUSALS_MAX {
            refused.pop_front();
        }
        refused.push_back(Refused {
            number,
            limit,
            node_id,
            type_url: type_url.clone(),
            node_cluster,
            stream: stream.0,
            peer,
            count,
            last: now,
        });
    }

    /// All refusals, the latest first.
    pub fn all(&self, wall: impl Fn(Time) -> std::time::SystemTime) -> Vec<RefusalStatus> {
        let status = |of: &Refused| RefusalStatus {
            number: of.number,
            limit: of.limit.name(),
            node_id: of.node_id.clone(),
            node_cluster: of.node_cluster.clone(),
            type_url: of.type_url.clone(),
            stream: of.stream,
            peer: of.peer,
            count: of.count,
            last: wall(of.last),
        };
        lock(&self.0).iter().rev().map(status).collect()
    }
}
