//! The requests of the simulated clients: the first requests of a stream, ACKs, NACKs, changed subscriptions.

use super::profile::{Like, Node, Profile, Wanted};
use super::response::Response;
use crate::proto::{put_bytes, put_message, put_uint};
use crate::xds::Variant;

/// Fields of DiscoveryRequest.
mod sotw {
    pub const VERSION: u32 = 1;
    pub const NODE: u32 = 2;
    pub const NAMES: u32 = 3;
    pub const TYPE_URL: u32 = 4;
    pub const NONCE: u32 = 5;
    pub const ERROR: u32 = 6;
}

/// Fields of DeltaDiscoveryRequest.
mod delta {
    pub const NODE: u32 = 1;
    pub const TYPE_URL: u32 = 2;
    pub const SUBSCRIBE: u32 = 3;
    pub const UNSUBSCRIBE: u32 = 4;
    pub const NONCE: u32 = 6;
    pub const ERROR: u32 = 7;
}

/// INVALID_ARGUMENT, the code of Envoy and gRPC for unusable resources.
const INVALID_ARGUMENT: u64 = 3;

/// The client and the subscription of a request.
#[derive(Clone, Copy)]
pub struct From {
    pub client: usize,
    /// Index in the profile's list.
    pub subscription: usize,
    /// The number of names that the client has moved on since its start.
    pub offset: usize,
    /// Whether the request is the first on its stream, which always has the node.
    pub first: bool,
}

/// The purpose of a request.
#[derive(Clone, Copy)]
pub enum Purpose<'a> {
    Subscribe,
    /// Drop this number of names and subscribe to as many others; the response is the last answered response.
    Move {
        by: usize,
        version: &'a [u8],
        nonce: &'a [u8],
    },
    Ack(&'a Response),
    /// Carries the last accepted version.
    Nack(&'a Response, &'a [u8]),
}

impl Purpose<'_> {
    fn version(&self) -> &[u8] {
        match self {
            Purpose::Subscribe => b"",
            Purpose::Move { version, .. } | Purpose::Nack(_, version) => version,
            Purpose::Ack(response) => &response.version,
        }
    }

    fn nonce(&self) -> &[u8] {
        match self {
            Purpose::Subscribe => b"",
            Purpose::Move { nonce, .. } => nonce,
            Purpose::Ack(response) | Purpose::Nack(response, _) => &response.nonce,
        }
    }
}

/// Writes the requests of all clients; clients differ in the id of their node and in their names.
pub struct Requests {
    pub profile: Profile,
    /// The node without its id, whose two parts surround the client's number.
    node: Vec<u8>,
    id: (String, Option<String>),
}

impl Requests {
    pub fn new(profile: Profile) -> Requests {
        let node = node_without_id(&profile.node);
        let id = match profile.node.id.split_once("{}") {
            Some((before, after)) => (before.to_owned(), Some(after.to_owned())),
            None => (profile.node.id.clone(), None),
        };
        Requests { profile, node, id }
    }

    /// Appends a request, framed for gRPC.
    pub fn put(&self, out: &mut Vec<u8>, from: From, purpose: Purpose<'_>) {
        let prefix = out.len();
        out.extend_from_slice(&[0; 5]);
        match self.profile.variant {
            Variant::Sotw => self.put_sotw(out, from, purpose),
            Variant::Delta => self.put_delta(out, from, purpose),
        }
        let length = (out.len() - prefix - 5) as u32;
        out[prefix + 1..prefix + 5].copy_from_slice(&length.to_be_bytes());
    }

    /// A SotW request repeats the names each time: the list is the whole subscription (SUB-1). The empty list
    /// asks for the wildcard, the legacy form of Envoy (SUB-9).
    fn put_sotw(&self, out: &mut Vec<u8>, from: From, purpose: Purpose<'_>) {
        let subscription = self.profile.subscriptions[from.subscription];
        put_unless_empty(out, sotw::VERSION, purpose.version());
        self.put_node(out, sotw::NODE, from);
        if let Wanted::Names { count, step } = subscription.wanted {
            let start = from.client * step + from.offset;
            (start..start + count).for_each(|index| put_bytes(out, sotw::NAMES, self.profile.name(index)));
        }
        put_bytes(out, sotw::TYPE_URL, subscription.kind.type_url());
        put_unless_empty(out, sotw::NONCE, purpose.nonce());
        put_error(out, sotw::ERROR, purpose);
    }

    /// Delta: requests list only changed names; the wildcard is the empty list of a first request (DEL-6).
    fn put_delta(&self, out: &mut Vec<u8>, from: From, purpose: Purpose<'_>) {
        let subscription = self.profile.subscriptions[from.subscription];
        self.put_node(out, delta::NODE, from);
        put_bytes(out, delta::TYPE_URL, subscription.kind.type_url());
        if let Wanted::Names { count, step } = subscription.wanted {
            let start = from.client * step + from.offset;
            let (come, go) = match purpose {
                Purpose::Subscribe => (start..start + count, 0..0),
                Purpose::Move { by, .. } => (start + count - by..start + count, start - by..start),
                Purpose::Ack(_) | Purpose::Nack(..) => (0..0, 0..0),
            };
            come.for_each(|index| put_bytes(out, delta::SUBSCRIBE, self.profile.name(index)));
            go.for_each(|index| put_bytes(out, delta::UNSUBSCRIBE, self.profile.name(index)));
        }
        // Only an ACK or a NACK carries a nonce (DEL-1).
        if !matches!(purpose, Purpose::Move { .. }) {
            put_unless_empty(out, delta::NONCE, purpose.nonce());
        }
        put_error(out, delta::ERROR, purpose);
    }

    fn put_node(&self, out: &mut Vec<u8>, field: u32, from: From) {
        if !(from.first || self.profile.node.every_request) {
            return;
        }
        put_message(out, field, |out| {
            let (before, after) = &self.id;
            match after {
                Some(after) => put_bytes(out, 1, format!("{before}{}{after}", from.client)),
                None => put_bytes(out, 1, before),
            }
            out.extend_from_slice(&self.node);
        });
    }
}

fn put_unless_empty(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    if !bytes.is_empty() {
        put_bytes(out, field, bytes);
    }
}

/// The google.rpc.Status of a NACK.
fn put_error(out: &mut Vec<u8>, field: u32, purpose: Purpose<'_>) {
    if matches!(purpose, Purpose::Nack(..)) {
        put_message(out, field, |out| {
            put_uint(out, 1, INVALID_ARGUMENT);
            put_bytes(out, 2, "sluice-load rejects every update, as requested");
        });
    }
}

/// core.v3.Node from field 2 on: cluster, metadata, user agent, and for a long node extensions.
fn node_without_id(shape: &Node) -> Vec<u8> {
    let mut node = Vec::new();
    if !shape.cluster.is_empty() {
        put_bytes(&mut node, 2, &shape.cluster);
    }
    if !shape.metadata.is_empty() {
        put_message(&mut node, 3, |out| {
            for (key, value) in &shape.metadata {
                put_message(out, 1, |out| {
                    put_bytes(out, 1, key);
                    put_message(out, 2, |out| put_bytes(out, 3, value));
                });
            }
        });
    }
    match shape.like {
        Like::Plain if shape.bytes == 0 => return node,
        Like::Plain | Like::Envoy => {
            put_bytes(&mut node, 6, "envoy");
            put_message(&mut node, 8, |out| {
                put_message(out, 1, |out| {
                    put_uint(out, 1, 1);
                    put_uint(out, 2, 40);
                });
            });
        }
        Like::Grpc => {
            put_bytes(&mut node, 6, "gRPC Go");
            put_bytes(&mut node, 7, "1.80.0");
            put_bytes(&mut node, 10, "envoy.lb.does_not_support_overprovisioning");
            put_bytes(&mut node, 10, "xds.config.resource-in-sotw");
        }
    }
    for index in 0.. {
        if node.len() >= shape.bytes {
            break;
        }
        put_message(&mut node, 9, |out| {
            put_bytes(out, 1, format!("envoy.filters.http.extension_{index:04}"));
            put_bytes(out, 2, "envoy.filters.http");
            put_bytes(out, 6, format!("envoy.extensions.filters.http.extension_{index:04}.v3.Extension"));
        });
    }
    node
}

#[cfg(test)]
mod tests;
