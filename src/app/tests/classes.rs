//! The memory of node classes with equal content (BOD-3): all that a class costs beside its client, from the stream to
//! its server to the tasks and tables of its source.

use std::path::Path;

use bytes::{Buf, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::Response;
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::{ADS, CountedRelay, open};
use crate::config::{self, Config};
use sluice_proto::{Any, DeltaDiscoveryRequest, DeltaDiscoveryResponse, Node, Resource};
use sluice_wire::frame::framed;

pub(super) const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

/// The classes that are counted, and those that are there before: the first one pays for the content.
const CLASSES: usize = 60;
const BEFORE: usize = 4;

/// The names of each class.
const NAMES: usize = 1_000;

/// A source with few clients remembers four changes.
const CHANGES: usize = 6;

/// The most bytes for each name of a further class: 84 and 107 are counted.
const BYTES_MAX: [(&str, i64); 2] = [(CLUSTERS, 95), (ENDPOINTS, 120)];

fn name(number: usize) -> String {
    format!("outbound|8080||service-{number:04}.default.svc.cluster.local")
}

/// A response with these resources, after so many changes. Each has some 60 bytes, so that the relay reads and writes
/// all of them in its own thread. The first field of both types is the name; the relay does not read the other one.
fn response(type_url: &str, numbers: impl Iterator<Item = usize>, changes: usize) -> Bytes {
    let resource = |number: usize| {
        // The change with this number changed the resource with this number.
        let version = if number <= changes { number } else { 0 }.to_string();
        let body = Node { id: name(number), user_agent_name: version.clone(), ..Node::default() };
        let body = Any { type_url: type_url.to_owned(), value: body.encode_to_vec().into() };
        Resource { name: name(number), version, resource: Some(body), ..Resource::default() }
    };
    let response = DeltaDiscoveryResponse {
        type_url: type_url.to_owned(),
        nonce: changes.to_string(),
        resources: numbers.map(resource).collect(),
        ..DeltaDiscoveryResponse::default()
    };
    framed(&response.encode_to_vec()).unwrap()
}

/// The messages of one direction of a stream.
struct Messages {
    body: RecvStream,
    unread: BytesMut,
}

impl Messages {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.unread.len() >= 5 {
                let length = self.unread[1..5].iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
                if self.unread.len() >= 5 + length {
                    self.unread.advance(5);
                    return Some(self.unread.split_to(length).freeze());
                }
            }
            let chunk = self.body.data().await?.ok()?;
            self.body.flow_control().release_capacity(chunk.len()).ok()?;
            self.unread.extend_from_slice(&chunk);
        }
    }
}

impl From<RecvStream> for Messages {
    fn from(body: RecvStream) -> Messages {
        Messages { body, unread: BytesMut::new() }
    }
}

/// A server that answers each stream's first request with all resources, and sends all streams the same changes.
pub(super) async fn serve(listener: TcpListener, type_url: &'static str, changes: watch::Receiver<usize>) {
    while let Ok((socket, _)) = listener.accept().await {
        let changes = changes.clone();
        tokio::spawn(async move {
            let mut connection = h2::server::handshake(socket).await.unwrap();
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                let mut changes = changes.clone();
                tokio::spawn(async move {
                    let mut requests = Messages::from(request.into_body());
                    requests.next().await.unwrap();
                    let head = Response::builder().header("content-type", "application/grpc");
                    let mut answers = respond.send_response(head.body(()).unwrap(), false).unwrap();
                    let made = *changes.borrow_and_update();
                    answers.send_data(response(type_url, 0..NAMES, made), false).unwrap();
                    tokio::spawn(async move { while requests.next().await.is_some() {} });
                    while changes.changed().await.is_ok() {
                        let number = *changes.borrow_and_update();
                        let change = response(type_url, std::iter::once(number), number);
                        answers.send_data(change, false).unwrap();
                    }
                });
            }
        });
    }
}

/// A client that has all that its class has.
pub(super) struct ClassClient {
    _send: SendRequest<Bytes>,
    pub(super) requests: SendStream<Bytes>,
    answers: Messages,
    type_url: &'static str,
}

impl ClassClient {
    pub(super) async fn connect(relay: &CountedRelay, id: usize, type_url: &'static str) -> ClassClient {
        let socket = TcpStream::connect(relay.address).await.unwrap();
        let (mut send, connection) = h2::client::handshake(socket).await.unwrap();
        tokio::spawn(connection);
        let names = if type_url == CLUSTERS { 0..0 } else { 0..NAMES };
        let request = DeltaDiscoveryRequest {
            node: Some(Node { id: format!("client-{id}"), ..Node::default() }),
            type_url: type_url.to_owned(),
            resource_names_subscribe: names.map(name).collect(),
            ..DeltaDiscoveryRequest::default()
        };
        let (mut requests, answers) = open(&mut send, ADS).await;
        requests.send_data(framed(&request.encode_to_vec()).unwrap(), false).unwrap();
        let mut client = ClassClient { _send: send, requests, answers: answers.into(), type_url };
        client.take(NAMES).await;
        client
    }

    /// Waits for an answer with so many resources, and accepts it.
    pub(super) async fn take(&mut self, resources: usize) {
        let mut taken = 0;
        while taken < resources {
            let answer = DeltaDiscoveryResponse::decode(self.answers.next().await.unwrap()).unwrap();
            taken += answer.resources.len();
            let ack = DeltaDiscoveryRequest {
                type_url: self.type_url.to_owned(),
                response_nonce: answer.nonce,
                ..DeltaDiscoveryRequest::default()
            };
            self.requests.send_data(framed(&ack.encode_to_vec()).unwrap(), false).unwrap();
        }
        assert_eq!(taken, resources);
    }
}

/// A relay with a class for each node id. No encoded body is kept: each would go some seconds after its use.
pub(super) fn config(port: u16) -> Config {
    let text = format!(
        "xds_servers: [ {{ server_uri: '127.0.0.1:{port}', channel_creds: [ {{ type: insecure }} ] }} ]\n\
         node_classes: [ {{ split_by: {{ id: true }} }} ]\n\
         cache: {{ encoded_bytes: 0 }}\n"
    );
    config::parse_file(&text, Path::new("sluice.yaml"), "test").unwrap().config
}

/// The bytes that each of [`CLASSES`] further clients adds. `splits`: each client is a class.
async fn bytes_each(type_url: &'static str, splits: bool) -> i64 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let relay = CountedRelay::start(config(listener.local_addr().unwrap().port())).await;
    let (changes, follows) = watch::channel(0);
    tokio::spawn(serve(listener, type_url, follows));
    let (mut clients, mut bytes) = (Vec::new(), Vec::new());
    for part in [0..BEFORE, BEFORE..BEFORE + CLASSES] {
        for number in part {
            clients.push(ClassClient::connect(&relay, if splits { number } else { 0 }, type_url).await);
        }
        for _ in 0..CHANGES {
            changes.send_modify(|number| *number += 1);
            for client in &mut clients {
                client.take(1).await;
            }
        }
        bytes.push(relay.bytes().await);
    }
    (bytes[1] - bytes[0]) / CLASSES as i64
}

/// BOD-3, for the whole process. A client's own connection and session are not of the class: a client of an existing
/// class has them, too.
#[tokio::test]
async fn bod_3_a_further_class_with_equal_content_takes_few_bytes_a_name() {
    for (type_url, most) in BYTES_MAX {
        let (class, client) = (bytes_each(type_url, true).await, bytes_each(type_url, false).await);
        let of_name = (class - client) / NAMES as i64;
        println!("{type_url}: {class} bytes with the client, {client} of a client, {of_name} a name");
        assert!(of_name <= most, "{of_name} bytes a name and class of {type_url}");
    }
}
