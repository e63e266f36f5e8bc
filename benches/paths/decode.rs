//! Decoding of messages from peers.

use std::sync::Arc;

use bytes::Bytes;
use sluice_engine::class::{NameStyle, NodeClass, NodeClasses};
use sluice_identity::Identity;
use sluice_wire::response::{Beside, delta_body, head};
use sluice_wire::upstream::{decode_delta_response, encode_node};
use sluice_wire::{ReaderLimits, RequestReader};
use sluice_xds::{
    DeltaResponse, Locality, Node, Request, Resource, TypeUrl, UserAgentVersion, Value, Variant, Version,
};

use super::{CLUSTER, field, resource};

/// Bytes of a default Envoy's node, nearly all of them extensions.
const NODE_BYTES: usize = 61_000;

/// The size of the chunks in which an HTTP/2 connection delivers a large request, in bytes.
const CHUNK_BYTES: usize = 16 << 10;

/// Bytes of the gRPC header of a message.
const HEADER_BYTES: usize = 5;

/// The first request of a stream as Envoy sends the request, in chunks as they arrive.
pub struct FirstRequest {
    chunks: Vec<Bytes>,
    classes: NodeClasses,
    type_url: TypeUrl,
}

impl FirstRequest {
    pub fn new() -> FirstRequest {
        let type_url = TypeUrl::of_message(CLUSTER);
        let mut message = field(1, &envoy_node());
        message.extend(field(2, type_url.as_str().as_bytes()));
        FirstRequest { chunks: chunks(message), classes: NodeClasses::default(), type_url }
    }

    /// Decodes the request as the server does, and finds the client's class by the default rules.
    pub fn classify(&self) -> NodeClass {
        let mut reader = RequestReader::new(Variant::Delta);
        let mut request = None;
        for chunk in &self.chunks {
            reader.push(chunk.clone());
            request = reader.next(&ReaderLimits::default());
        }
        let Some(Ok(Request::Delta(request))) = request else { panic!("a request: {request:?}") };
        let class = self.classes.classify(
            request.node.as_deref(),
            &Identity::Anonymous,
            &self.type_url,
            NameStyle::Old,
        );
        class.expect("a class")
    }
}

/// The body of a request, as it arrives.
fn chunks(message: Vec<u8>) -> Vec<Bytes> {
    let mut body = vec![0];
    body.extend((message.len() as u32).to_be_bytes());
    body.extend(message);
    body.chunks(CHUNK_BYTES).map(Bytes::copy_from_slice).collect()
}

/// A state-of-the-world stream of an Envoy that repeats its node in each request, before an ACK.
pub struct NodeAgain {
    reader: RequestReader,
    limits: ReaderLimits,
    ack: Vec<Bytes>,
}

impl NodeAgain {
    pub fn new() -> NodeAgain {
        let url = TypeUrl::of_message(CLUSTER);
        let message = |nonce: &str| {
            let fields = [
                (1, nonce.as_bytes()),
                (2, &envoy_node()),
                (4, url.as_str().as_bytes()),
                (5, nonce.as_bytes()),
            ];
            fields.iter().flat_map(|(number, payload)| field(*number, payload)).collect()
        };
        let mut again = NodeAgain {
            reader: RequestReader::new(Variant::Sotw),
            limits: ReaderLimits::default(),
            ack: chunks(message("")),
        };
        again.read();
        again.ack = chunks(message("0000000000000001"));
        again
    }

    /// Reads the next request as the server does.
    pub fn read(&mut self) -> Request {
        let mut request = None;
        for chunk in &self.ack {
            self.reader.push(chunk.clone());
            request = self.reader.next(&self.limits);
        }
        request.expect("a whole request").expect("a good request")
    }
}

fn envoy_node() -> Vec<u8> {
    let text = |text: &str| Value::String(text.to_owned());
    let labels = (0..12).map(|number| (format!("label-{number}"), text("some-value-of-it")));
    let node = Node {
        id: "sidecar~10.0.0.1~service-000001.default~default.svc.cluster.local".to_owned(),
        cluster: "service-000001.default".to_owned(),
        metadata: [
            ("NAMESPACE".to_owned(), text("default")),
            ("MESH_ID".to_owned(), text("cluster.local")),
            ("LABELS".to_owned(), Value::Struct(labels.collect())),
        ]
        .into(),
        locality: Some(Locality {
            region: "region-1".to_owned(),
            zone: "zone-a".to_owned(),
            sub_zone: "rack-7".to_owned(),
        }),
        user_agent_name: "envoy".to_owned(),
        user_agent_version: Some(UserAgentVersion::Build { major: 1, minor: 37, patch: 0 }),
        client_features: vec!["envoy.lb.does_not_support_overprovisioning".to_owned()],
        dynamic_parameters: Vec::new(),
    };
    let mut bytes = encode_node(&node);
    for number in 0.. {
        if bytes.len() >= NODE_BYTES {
            break;
        }
        let mut extension = field(1, format!("envoy.filters.http.extension_{number:03}").as_bytes());
        extension.extend(field(2, b"envoy.filters.http"));
        extension
            .extend(field(5, format!("envoy.extensions.filters.http.v3.Extension{number:03}").as_bytes()));
        bytes.extend(field(9, &extension));
    }
    bytes
}

/// A delta response of an upstream with this number of clusters, without the gRPC header.
pub fn delta_response(clusters: usize) -> Bytes {
    let type_url = TypeUrl::of_message(CLUSTER);
    let resources: Vec<Arc<Resource>> = (0..clusters).map(|number| resource(&type_url, number, 0)).collect();
    let resources = resources.iter().map(Arc::as_ref);
    let body =
        delta_body(&type_url, Version(1), resources, [].iter(), &[], Beside::default(), "control-plane-0");
    let head = head("1", None, body.len()).expect("a message that can be framed");
    [&head[HEADER_BYTES..], &body].concat().into()
}

pub fn decode(message: Bytes) -> DeltaResponse {
    decode_delta_response(message).expect("a response")
}
