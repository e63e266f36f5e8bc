//! The clients for whose node class there was no room, for the operator.

use std::collections::VecDeque;
use std::net::SocketAddr;

use parking_lot::Mutex;

use crate::driver::api::status::RefusalStatus;
use crate::telemetry::Limit;
use sluice_engine::Time;
use sluice_engine::cache::SessionId;
use sluice_xds::{Node, TypeUrl};

/// The maximum number of remembered clients, the latest: enough to identify them.
const REFUSALS_MAX: usize = 256;

/// The maximum length of a text that a client chose, in characters.
const TEXT_MAX: usize = 200;

struct RefusedClient {
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
pub(crate) struct Refusals(Mutex<VecDeque<RefusedClient>>);

/// The number after the latest.
fn next_number(refused: &VecDeque<RefusedClient>) -> u64 {
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
        let mut refused = self.0.lock();
        let is_known = |refused: &RefusedClient| {
            refused.limit == limit
                && refused.type_url == *type_url
                && (refused.stream == stream.0 || (!node_id.is_empty() && refused.node_id == node_id))
                && refused.node_cluster == node_cluster
        };
        let number = next_number(&refused);
        let same = refused.iter().position(is_known).and_then(|index| refused.remove(index));
        let count = same.map_or(0, |same| same.count) + 1;
        if refused.len() >= REFUSALS_MAX {
            refused.pop_front();
        }
        refused.push_back(RefusedClient {
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
        let status = |refused: &RefusedClient| RefusalStatus {
            number: refused.number,
            limit: refused.limit.name(),
            node_id: refused.node_id.clone(),
            node_cluster: refused.node_cluster.clone(),
            type_url: refused.type_url.clone(),
            stream: refused.stream,
            peer: refused.peer,
            count: refused.count,
            last: wall(refused.last),
        };
        self.0.lock().iter().rev().map(status).collect()
    }
}
