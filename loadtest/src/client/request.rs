//! The requests of the simulated clients: the first requests of a stream, ACKs, NACKs, changed subscriptions.

use super::profile::{Like, Node, Profile, Wanted};
use super::response::Response;
use crate::load::{Load, Report};
use crate::proto::{put_bytes, put_message, put_string_entry, put_uint};
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

/// The feature of clients that can report all of their clusters (LRS-1).
const ALL_CLUSTERS_FEATURE: &str = "envoy.lrs.supports_send_all_clusters";

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

/// Writes the requests of all clients; clients differ in the id and the labels of their node, and in their names.
pub struct Requests {
    pub profile: Profile,
    /// The node without its id, whose two parts surround the client's number, and without its metadata.
    node: Vec<u8>,
    /// The entries of the metadata that all clients have.
    metadata: Vec<u8>,
    id: (String, Option<String>),
    /// The load reports of all clients.
    reports: Vec<Report>,
}

impl Requests {
    pub fn new(profile: Profile) -> Requests {
        let mut metadata = Vec::new();
        profile.node.metadata.iter().for_each(|(key, value)| put_string_entry(&mut metadata, key, value));
        let node = common_node(&profile.node, metadata.len());
        let id = match profile.node.id.split_once("{}") {
            Some((before, after)) => (before.to_owned(), Some(after.to_owned())),
            None => (profile.node.id.clone(), None),
        };
        let reports = profile.load.map_or_else(Vec::new, Load::reports);
        Requests { profile, node, metadata, id, reports }
    }

    /// Appends a request, framed for gRPC.
    pub fn put(&self, out: &mut Vec<u8>, from: From, purpose: Purpose<'_>) {
        put_framed(out, |out| match self.profile.variant {
            Variant::Sotw => self.put_sotw(out, from, purpose),
            Variant::Delta => self.put_delta(out, from, purpose),
        });
    }

    pub fn reports(&self) -> &[Report] {
        &self.reports
    }

    /// Appends a message of load reporting, framed for gRPC: the introduction of a client, or one of the reports.
    pub fn put_report(&self, out: &mut Vec<u8>, client: usize, number: Option<usize>) {
        put_framed(out, |out| {
            if number.is_none() || self.profile.node.every_request {
                let mut node = self.node(client);
                put_bytes(&mut node, 10, ALL_CLUSTERS_FEATURE);
                put_bytes(out, 1, node);
            }
            let report = number.and_then(|number| self.reports.get(number));
            report.into_iter().for_each(|report| out.extend_from_slice(&report.bytes));
        });
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
        put_bytes(out, field, self.node(from.client));
    }

    /// The node of a client, a core.v3.Node.
    pub fn node(&self, client: usize) -> Vec<u8> {
        let mut node = Vec::with_capacity(self.node.len() + self.metadata.len() + 100);
        let (before, after) = &self.id;
        match after {
            Some(after) => put_bytes(&mut node, 1, format!("{before}{client}{after}")),
            None => put_bytes(&mut node, 1, before),
        }
        let function = &self.profile.function;
        if !self.metadata.is_empty() || function.has_labels() {
            put_message(&mut node, 3, |out| {
                out.extend_from_slice(&self.metadata);
                function.metadata(client).for_each(|(key, value)| put_string_entry(out, key, &value));
            });
        }
        node.extend_from_slice(&self.node);
        node
    }
}

/// Appends a message behind its head of gRPC.
fn put_framed(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let prefix = out.len();
    out.extend_from_slice(&[0; 5]);
    fill(out);
    let length = (out.len() - prefix - 5) as u32;
    out[prefix + 1..prefix + 5].copy_from_slice(&length.to_be_bytes());
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

/// The part of core.v3.Node beside the metadata that all clients have, and its length: cluster, user agent, and for
/// a long node extensions.
fn common_node(shape: &Node, metadata: usize) -> Vec<u8> {
    let mut node = Vec::new();
    if !shape.cluster.is_empty() {
        put_bytes(&mut node, 2, &shape.cluster);
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
        if node.len() + metadata >= shape.bytes {
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
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;
    use crate::client::profile::Subscription;
    use crate::client::response::ResponseReader;
    use crate::proto::Fields;
    use crate::xds::Kind;

    const FROM: From = From { client: 3, subscription: 0, offset: 0, first: true };

    fn requests(variant: Variant, every_request: bool) -> Requests {
        let mut profile = Profile::plain(variant, 10);
        profile.node.every_request = every_request;
        profile.subscriptions = vec![
            Subscription { kind: Kind::Cluster, wanted: Wanted::Wildcard },
            Subscription { kind: Kind::Endpoints, wanted: Wanted::Names { count: 2, step: 1 } },
        ];
        Requests::new(profile)
    }

    /// The fields of each gRPC message, the node and errors shortened.
    fn transcript(wire: &[u8], node: u64, error: u64) -> Vec<String> {
        let mut lines = Vec::new();
        let mut rest = wire;
        while let Some((prefix, after)) = rest.split_at_checked(5) {
            let length = u32::from_be_bytes(prefix[1..].try_into().unwrap()) as usize;
            let mut fields = Fields(&after[..length]);
            let mut line = Vec::new();
            while let Some((field, bytes)) = fields.next_bytes().unwrap() {
                let text = String::from_utf8_lossy(bytes);
                let text = text.rsplit('.').next().unwrap().trim_start_matches("load-00000");
                line.push(match field {
                    _ if field == node => "node".to_owned(),
                    _ if field == error => "error".to_owned(),
                    _ => format!("{field}={text}"),
                });
            }
            lines.push(line.join(" "));
            rest = &after[length..];
        }
        lines
    }

    /// Both subscriptions' requests for a purpose.
    fn both(requests: &Requests, from: From, purpose: Purpose<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        requests.put(&mut out, from, purpose);
        requests.put(&mut out, From { subscription: 1, first: false, ..from }, purpose);
        out
    }

    /// A response with version v7 and nonce n9.
    fn with_response(then: impl FnOnce(&Response)) {
        let mut message = Vec::new();
        put_bytes(&mut message, 1, "v7");
        put_bytes(&mut message, 5, "n9");
        let mut wire = vec![0];
        wire.extend_from_slice(&(message.len() as u32).to_be_bytes());
        wire.extend_from_slice(&message);
        let mut reader = ResponseReader::new();
        let sought = requests(Variant::Sotw, false).profile.sought;
        then(reader.next(&mut &wire[..], sought).unwrap().unwrap());
    }

    #[test]
    fn ack_2_a_sotw_ack_has_version_nonce_and_all_names() {
        let requests = requests(Variant::Sotw, false);
        let first = both(&requests, FROM, Purpose::Subscribe);
        assert_eq!(transcript(&first, 2, 6), ["node 4=Cluster", "3=3 3=4 4=ClusterLoadAssignment"]);
        with_response(|response| {
            let acks = both(&requests, From { first: false, ..FROM }, Purpose::Ack(response));
            let expected = ["1=v7 4=Cluster 5=n9", "1=v7 3=3 3=4 4=ClusterLoadAssignment 5=n9"];
            assert_eq!(transcript(&acks, 2, 6), expected);
            let nacks = both(&requests, From { first: false, ..FROM }, Purpose::Nack(response, b"v6"));
            let expected = ["1=v6 4=Cluster 5=n9 error", "1=v6 3=3 3=4 4=ClusterLoadAssignment 5=n9 error"];
            assert_eq!(transcript(&nacks, 2, 6), expected);
        });
    }

    #[test]
    fn del_1_a_delta_ack_has_the_nonce_and_no_names() {
        let requests = requests(Variant::Delta, true);
        let first = both(&requests, FROM, Purpose::Subscribe);
        assert_eq!(transcript(&first, 1, 7), ["node 2=Cluster", "node 2=ClusterLoadAssignment 3=3 3=4"]);
        with_response(|response| {
            let acks = both(&requests, FROM, Purpose::Ack(response));
            assert_eq!(transcript(&acks, 1, 7), ["node 2=Cluster 6=n9", "node 2=ClusterLoadAssignment 6=n9"]);
            let nacks = both(&requests, FROM, Purpose::Nack(response, b"v6"));
            let expected = ["node 2=Cluster 6=n9 error", "node 2=ClusterLoadAssignment 6=n9 error"];
            assert_eq!(transcript(&nacks, 1, 7), expected);
        });
    }

    #[test]
    fn a_client_that_moves_on_names_what_comes_and_goes() {
        let from = From { subscription: 1, offset: 1, first: false, ..FROM };
        let purpose = Purpose::Move { by: 1, version: b"v7", nonce: b"n9" };
        let mut out = Vec::new();
        requests(Variant::Delta, false).put(&mut out, from, purpose);
        assert_eq!(transcript(&out, 1, 7), ["2=ClusterLoadAssignment 3=5 4=3"]);
        out.clear();
        requests(Variant::Sotw, false).put(&mut out, from, purpose);
        assert_eq!(transcript(&out, 2, 6), ["1=v7 3=4 3=5 4=ClusterLoadAssignment 5=n9"]);
    }

    #[test]
    fn a_node_is_about_as_long_as_asked() {
        let length = common_node(&Node { bytes: 61_000, ..Node::plain() }, 0).len();
        assert!((61_000..61_200).contains(&length), "{length}");
        assert!(common_node(&Node::plain(), 0).len() < 20);
        let mut profile = Profile::plain(Variant::Sotw, 1);
        profile.node = Node { like: Like::Grpc, metadata: vec![("k".into(), "v".into())], ..Node::plain() };
        assert!((80..200).contains(&Requests::new(profile).node(1).len()));
    }

    #[test]
    fn the_number_of_a_client_stands_where_it_is_told_to() {
        let id = |template: &str| {
            let mut profile = Profile::plain(Variant::Sotw, 1);
            profile.node.id = template.to_owned();
            let mut out = Vec::new();
            Requests::new(profile).put(&mut out, FROM, Purpose::Subscribe);
            let (_, node) = Fields(&out[5..]).next_bytes().unwrap().unwrap();
            String::from_utf8(Fields(node).next_bytes().unwrap().unwrap().1.to_vec()).unwrap()
        };
        assert_eq!(id("sidecar~10.0.0.1~pod-{}.ns~x"), "sidecar~10.0.0.1~pod-3.ns~x");
        assert_eq!(id("always"), "always");
    }
}
