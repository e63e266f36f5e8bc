//! What the simulated clients say: the first requests of a stream and the ACKs.

use super::response::Response;
use crate::proto::{put_bytes, put_message, put_uint};
use crate::xds::{Kind, Variant, cluster_name};

/// Fields of DiscoveryRequest.
mod sotw {
    pub const VERSION: u32 = 1;
    pub const NODE: u32 = 2;
    pub const NAMES: u32 = 3;
    pub const TYPE_URL: u32 = 4;
    pub const NONCE: u32 = 5;
}

/// Fields of DeltaDiscoveryRequest.
mod delta {
    pub const NODE: u32 = 1;
    pub const TYPE_URL: u32 = 2;
    pub const SUBSCRIBE: u32 = 3;
    pub const NONCE: u32 = 6;
}

/// What kind of client to be.
#[derive(Clone, Debug)]
pub struct Profile {
    pub variant: Variant,
    /// About how long the node is; 0 gives one with an id and a cluster only. An Envoy 1.40 sends 61,000 bytes, most
    /// of them the list of its extensions.
    pub node_bytes: usize,
    /// Repeat the node in every request, ACKs included, as Envoy does unless told otherwise.
    pub node_every_request: bool,
    /// How many clusters are asked for by name for their endpoints, besides the wildcard for clusters.
    pub endpoint_names: usize,
}

/// Writes the requests of all clients; they differ in the id of their node.
pub struct Requests {
    profile: Profile,
    /// The node but for its id.
    node: Vec<u8>,
    endpoint_names: Vec<String>,
}

impl Requests {
    pub fn new(profile: Profile) -> Requests {
        let node = node_without_id(profile.node_bytes);
        let endpoint_names = (0..profile.endpoint_names).map(cluster_name).collect();
        Requests { profile, node, endpoint_names }
    }

    pub fn variant(&self) -> Variant {
        self.profile.variant
    }

    pub fn endpoint_names(&self) -> usize {
        self.endpoint_names.len()
    }

    /// The requests with which a stream begins, framed for gRPC. Clusters are subscribed by the empty list, the legacy
    /// wildcard that Envoy sends (SUB-9, DEL-6).
    pub fn put_first(&self, out: &mut Vec<u8>, client: usize) {
        self.put_request(out, client, Kind::Cluster, true, None);
        if !self.endpoint_names.is_empty() {
            self.put_request(out, client, Kind::Endpoints, self.profile.node_every_request, None);
        }
    }

    /// The ACK of a response (ACK-2, DEL-1), framed for gRPC.
    pub fn put_ack(&self, out: &mut Vec<u8>, client: usize, kind: Kind, response: &Response) {
        self.put_request(out, client, kind, self.profile.node_every_request, Some(response));
    }

    fn put_request(
        &self,
        out: &mut Vec<u8>,
        client: usize,
        kind: Kind,
        node: bool,
        acked: Option<&Response>,
    ) {
        let prefix = out.len();
        out.extend_from_slice(&[0; 5]);
        match self.profile.variant {
            Variant::Sotw => self.put_sotw(out, client, kind, node, acked),
            Variant::Delta => self.put_delta(out, client, kind, node, acked),
        }
        let length = (out.len() - prefix - 5) as u32;
        out[prefix + 1..prefix + 5].copy_from_slice(&length.to_be_bytes());
    }

    /// A SotW request repeats the names each time: they are the whole subscription (SUB-1).
    fn put_sotw(&self, out: &mut Vec<u8>, client: usize, kind: Kind, node: bool, acked: Option<&Response>) {
        if let Some(response) = acked {
            put_bytes(out, sotw::VERSION, &response.version);
        }
        if node {
            self.put_node(out, sotw::NODE, client);
        }
        if kind == Kind::Endpoints {
            self.endpoint_names.iter().for_each(|name| put_bytes(out, sotw::NAMES, name));
        }
        put_bytes(out, sotw::TYPE_URL, kind.type_url());
        if let Some(response) = acked {
            put_bytes(out, sotw::NONCE, &response.nonce);
        }
    }

    fn put_delta(&self, out: &mut Vec<u8>, client: usize, kind: Kind, node: bool, acked: Option<&Response>) {
        if node {
            self.put_node(out, delta::NODE, client);
        }
        put_bytes(out, delta::TYPE_URL, kind.type_url());
        match acked {
            Some(response) => put_bytes(out, delta::NONCE, &response.nonce),
            None if kind == Kind::Endpoints => {
                self.endpoint_names.iter().for_each(|name| put_bytes(out, delta::SUBSCRIBE, name));
            }
            None => {}
        }
    }

    fn put_node(&self, out: &mut Vec<u8>, field: u32, client: usize) {
        put_message(out, field, |out| {
            put_bytes(out, 1, format!("sluice-load-{client}"));
            out.extend_from_slice(&self.node);
        });
    }
}

/// core.v3.Node from field 2 on: cluster, and for a long node the user agent, its version and extensions.
fn node_without_id(bytes: usize) -> Vec<u8> {
    let mut node = Vec::new();
    put_bytes(&mut node, 2, "sluice-load");
    if bytes == 0 {
        return node;
    }
    put_bytes(&mut node, 6, "envoy");
    put_message(&mut node, 8, |out| {
        put_message(out, 1, |out| {
            put_uint(out, 1, 1);
            put_uint(out, 2, 40);
        });
    });
    for index in 0.. {
        if node.len() >= bytes {
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
    use crate::client::response::ResponseReader;
    use crate::proto::Fields;

    fn requests(variant: Variant, node_every_request: bool) -> Requests {
        Requests::new(Profile { variant, node_bytes: 0, node_every_request, endpoint_names: 2 })
    }

    /// The fields of each gRPC message, the node shortened to its length.
    fn transcript(wire: &[u8], node: u64) -> Vec<String> {
        let mut lines = Vec::new();
        let mut rest = wire;
        while let Some((prefix, after)) = rest.split_at_checked(5) {
            let length = u32::from_be_bytes(prefix[1..].try_into().unwrap()) as usize;
            let mut fields = Fields(&after[..length]);
            let mut line = Vec::new();
            while let Some((field, bytes)) = fields.next_bytes().unwrap() {
                let text = String::from_utf8_lossy(bytes);
                let text = text.rsplit('.').next().unwrap();
                line.push(if field == node { "node".to_owned() } else { format!("{field}={text}") });
            }
            lines.push(line.join(" "));
            rest = &after[length..];
        }
        lines
    }

    fn acks(requests: &Requests) -> Vec<u8> {
        let mut message = Vec::new();
        put_bytes(&mut message, 1, "v7");
        put_bytes(&mut message, 5, "n9");
        let mut wire = vec![0];
        wire.extend_from_slice(&(message.len() as u32).to_be_bytes());
        wire.extend_from_slice(&message);
        let mut reader = ResponseReader::new();
        let mut out = Vec::new();
        let response = reader.next(&mut &wire[..]).unwrap().unwrap();
        requests.put_ack(&mut out, 3, Kind::Cluster, response);
        requests.put_ack(&mut out, 3, Kind::Endpoints, response);
        out
    }

    #[test]
    fn ack_2_a_sotw_ack_has_version_nonce_and_all_names() {
        let requests = requests(Variant::Sotw, false);
        let mut first = Vec::new();
        requests.put_first(&mut first, 3);
        assert_eq!(
            transcript(&first, 2),
            ["node 4=Cluster", "3=load-000000 3=load-000001 4=ClusterLoadAssignment"]
        );
        assert_eq!(
            transcript(&acks(&requests), 2),
            ["1=v7 4=Cluster 5=n9", "1=v7 3=load-000000 3=load-000001 4=ClusterLoadAssignment 5=n9"]
        );
    }

    #[test]
    fn del_1_a_delta_ack_has_the_nonce_and_no_names() {
        let requests = requests(Variant::Delta, true);
        let mut first = Vec::new();
        requests.put_first(&mut first, 3);
        assert_eq!(
            transcript(&first, 1),
            ["node 2=Cluster", "node 2=ClusterLoadAssignment 3=load-000000 3=load-000001"]
        );
        assert_eq!(
            transcript(&acks(&requests), 1),
            ["node 2=Cluster 6=n9", "node 2=ClusterLoadAssignment 6=n9"]
        );
    }

    #[test]
    fn a_node_is_about_as_long_as_asked() {
        let length = node_without_id(61_000).len();
        assert!((61_000..61_200).contains(&length), "{length}");
        assert!(node_without_id(0).len() < 20);
    }
}
