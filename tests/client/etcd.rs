//! A scripted etcd on loopback: one member, with keys, leases without an end, and watches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use h2::server::Builder;
use h2::{RecvStream, SendStream};
use parking_lot::Mutex;
use prost::Message;
use sluice_proto::etcd::compare::TargetUnion;
use sluice_proto::etcd::event::EventType;
use sluice_proto::etcd::watch_request::RequestUnion;
use sluice_proto::etcd::*;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::peer::{Order, Peer, PeerStream, framed, trailers};

/// The state of the store, and the script.
#[derive(Default)]
pub struct Store {
    pub cluster: u64,
    pub revision: i64,
    pub keys: BTreeMap<Bytes, KeyValue>,
    /// Leases, with the time at which each was last granted or kept alive.
    pub leases: BTreeMap<i64, Instant>,
    watches: Vec<mpsc::UnboundedSender<WatchResponse>>,
    /// Methods that are never answered, by the end of their paths.
    pub mute: BTreeSet<&'static str>,
    /// The TTL in answers of `LeaseKeepAlive`, if it is not that of the grant.
    pub ttl: Option<i64>,
    /// Changes are not reported to watches.
    pub is_silent: bool,
    /// Answers to the next calls of a method: number and message.
    pub refusals: Vec<(&'static str, &'static str, &'static str)>,
    /// The token that calls need, and the logins so far.
    pub token: Option<String>,
    pub logins: Vec<AuthenticateRequest>,
    /// The methods of all calls, and whether each asked for a member with a leader.
    pub calls: Vec<(String, bool)>,
    ttl_granted: i64,
}

impl Store {
    fn header(&self) -> Option<ResponseHeader> {
        Some(ResponseHeader { cluster_id: self.cluster, revision: self.revision })
    }

    /// Tells all watches.
    fn tell(&mut self, events: Vec<Event>) {
        if !self.is_silent {
            self.respond(WatchResponse { events, ..WatchResponse::default() });
        }
    }

    /// Sends a response to all watches.
    pub fn respond(&mut self, response: WatchResponse) {
        let response = WatchResponse { header: self.header(), ..response };
        self.watches.retain(|watch| watch.send(response.clone()).is_ok());
    }

    pub fn put(&mut self, key: &str, value: impl Into<Bytes>) {
        self.write(PutRequest { key: Bytes::from(key.to_owned()), value: value.into(), lease: 0 });
    }

    fn write(&mut self, put: PutRequest) {
        self.revision += 1;
        let kv = KeyValue {
            key: put.key.clone(),
            mod_revision: self.revision,
            value: put.value,
            lease: put.lease,
        };
        self.keys.insert(put.key, kv.clone());
        self.tell(vec![Event { r#type: EventType::Put.into(), kv: Some(kv) }]);
    }

    pub fn remove(&mut self, key: &[u8]) -> i64 {
        if self.keys.remove(key).is_none() {
            return 0;
        }
        self.revision += 1;
        let key = Bytes::copy_from_slice(key);
        let kv = KeyValue { key, mod_revision: self.revision, ..KeyValue::default() };
        self.tell(vec![Event { r#type: EventType::Delete.into(), kv: Some(kv) }]);
        1
    }

    fn range(&self, range: &RangeRequest) -> RangeResponse {
        let is_within = |key: &Bytes| match range.range_end.is_empty() {
            true => *key == range.key,
            false => *key >= range.key && *key < range.range_end,
        };
        let limit = if range.limit == 0 { usize::MAX } else { range.limit as usize };
        let all: Vec<&KeyValue> =
            self.keys.iter().filter(|(key, _)| is_within(key)).map(|(_, kv)| kv).collect();
        let kvs = all.iter().take(limit).map(|kv| (*kv).clone()).collect();
        RangeResponse { header: self.header(), kvs, more: all.len() > limit }
    }

    fn transact(&mut self, txn: TxnRequest) -> Result<TxnResponse, (&'static str, &'static str)> {
        let succeeded = txn.compare.iter().all(|compare| {
            let revision = self.keys.get(&compare.key).map_or(0, |kv| kv.mod_revision);
            compare.target_union == Some(TargetUnion::ModRevision(revision))
        });
        let operations = if succeeded { txn.success } else { txn.failure };
        let mut responses = Vec::new();
        for operation in operations {
            let response = match operation.request.unwrap() {
                request_op::Request::RequestRange(range) => {
                    response_op::Response::ResponseRange(self.range(&range))
                }
                request_op::Request::RequestPut(put) => {
                    if put.lease != 0 && !self.leases.contains_key(&put.lease) {
                        return Err(("5", "etcdserver: requested lease not found"));
                    }
                    self.write(put);
                    response_op::Response::ResponsePut(PutResponse { header: self.header() })
                }
                request_op::Request::RequestDeleteRange(range) => {
                    let deleted = self.remove(&range.key);
                    response_op::Response::ResponseDeleteRange(DeleteRangeResponse {
                        header: self.header(),
                        deleted,
                    })
                }
            };
            responses.push(ResponseOp { response: Some(response) });
        }
        Ok(TxnResponse { header: self.header(), succeeded, responses })
    }

    fn grant(&mut self, ttl: i64) -> LeaseGrantResponse {
        let id = 7_000 + self.leases.len() as i64;
        self.leases.insert(id, Instant::now());
        self.ttl_granted = ttl;
        LeaseGrantResponse { header: self.header(), id, ttl, error: String::new() }
    }

    fn keep_alive(&mut self, id: i64) -> LeaseKeepAliveResponse {
        let ttl = self.ttl.unwrap_or(self.ttl_granted);
        if ttl > 0 {
            self.leases.insert(id, Instant::now());
        }
        LeaseKeepAliveResponse { header: self.header(), id, ttl }
    }

    /// The lease of the newest session.
    pub fn lease(&self) -> i64 {
        *self.leases.keys().max().unwrap()
    }
}

/// The server of a [`Store`].
pub struct Etcd {
    pub port: u16,
    pub store: Arc<Mutex<Store>>,
    connections: mpsc::Receiver<mpsc::Sender<Order>>,
}

impl Etcd {
    pub async fn start() -> Etcd {
        Etcd::listen(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub fn listen(listener: TcpListener) -> Etcd {
        let Peer { port, mut streams, connections, .. } = Peer::listen(listener, Builder::new());
        let store = Store { cluster: 0xabc, revision: 1, ..Store::default() };
        let store = Arc::new(Mutex::new(store));
        let shared = store.clone();
        tokio::spawn(async move {
            while let Some(stream) = streams.recv().await {
                tokio::spawn(serve(stream, shared.clone()));
            }
        });
        Etcd { port, store, connections }
    }

    /// Closes all connections so far.
    pub async fn cut(&mut self) {
        while let Ok(orders) = self.connections.try_recv() {
            let _ = orders.send(Order::Cut).await;
        }
    }
}

async fn next_message(body: &mut RecvStream, rest: &mut BytesMut) -> Option<Bytes> {
    loop {
        if rest.len() >= 5 {
            let length = u32::from_be_bytes(rest[1..5].try_into().unwrap()) as usize;
            if rest.len() >= 5 + length {
                rest.advance(5);
                return Some(rest.split_to(length).freeze());
            }
        }
        let chunk = body.data().await?.ok()?;
        let _ = body.flow_control().release_capacity(chunk.len());
        rest.extend_from_slice(&chunk);
    }
}

async fn serve(mut stream: PeerStream, store: Arc<Mutex<Store>>) {
    let path = stream.request.uri().path().to_owned();
    let method = path.rsplit('/').next().unwrap().to_owned();
    let has_leader = stream.request.headers().get("hasleader").is_some_and(|value| value == "true");
    let token = stream.request.headers().get("token").map(|token| token.to_str().unwrap().to_owned());
    let refusal = {
        let mut store = store.lock();
        store.calls.push((path, has_leader));
        let refusal = store.refusals.iter().position(|(refused, ..)| *refused == method);
        let refusal = refusal.map(|at| store.refusals.remove(at));
        let is_unknown = method != "Authenticate" && store.token.is_some() && store.token != token;
        let unknown = ("", "16", "etcdserver: invalid auth token");
        refusal.or(is_unknown.then_some(unknown)).map(|(_, number, message)| (number, message))
    };
    let mut answers = stream.headers();
    if let Some((number, message)) = refusal {
        let _ = answers.send_trailers(trailers(number, message));
        return;
    }
    let mut body = stream.request.into_body();
    match method.as_str() {
        "Watch" => watch(&mut body, &mut answers, store).await,
        "LeaseKeepAlive" => keep_alive(&mut body, &mut answers, store).await,
        _ => {
            let Some(question) = next_message(&mut body, &mut BytesMut::new()).await else { return };
            let answer = answer(&method, question, &store);
            if store.lock().mute.contains(method.as_str()) {
                std::future::pending::<()>().await;
            }
            let end = match answer {
                Ok(answer) => {
                    let _ = send_all(&mut answers, framed(&answer)).await;
                    trailers("0", "")
                }
                Err((number, message)) => trailers(number, message),
            };
            let _ = answers.send_trailers(end);
        }
    }
}

fn answer(
    method: &str,
    question: Bytes,
    store: &Mutex<Store>,
) -> Result<Vec<u8>, (&'static str, &'static str)> {
    let mut store = store.lock();
    Ok(match method {
        "Range" => store.range(&RangeRequest::decode(question).unwrap()).encode_to_vec(),
        "Txn" => store.transact(TxnRequest::decode(question).unwrap())?.encode_to_vec(),
        "LeaseGrant" => store.grant(LeaseGrantRequest::decode(question).unwrap().ttl).encode_to_vec(),
        "LeaseRevoke" => {
            let id = LeaseRevokeRequest::decode(question).unwrap().id;
            store.leases.remove(&id);
            LeaseRevokeResponse { header: store.header() }.encode_to_vec()
        }
        "Authenticate" => {
            let login = AuthenticateRequest::decode(question).unwrap();
            store.logins.push(login.clone());
            if login.password != "secret" {
                return Err(("3", "etcdserver: authentication failed, invalid user ID or password"));
            }
            let token = store.token.clone().unwrap();
            AuthenticateResponse { header: store.header(), token }.encode_to_vec()
        }
        _ => return Err(("12", "unknown method")),
    })
}

/// Sends as much as flow control permits, and waits for the rest.
async fn send_all(answers: &mut SendStream<Bytes>, mut bytes: Bytes) -> Option<()> {
    while !bytes.is_empty() {
        answers.reserve_capacity(bytes.len());
        let capacity = std::future::poll_fn(|context| answers.poll_capacity(context)).await?.ok()?;
        answers.send_data(bytes.split_to(capacity.min(bytes.len())), false).ok()?;
    }
    Some(())
}

async fn watch(body: &mut RecvStream, answers: &mut SendStream<Bytes>, store: Arc<Mutex<Store>>) {
    let Some(question) = next_message(body, &mut BytesMut::new()).await else { return };
    let Some(RequestUnion::CreateRequest(create)) = WatchRequest::decode(question).unwrap().request_union
    else {
        return;
    };
    let (sender, mut responses) = mpsc::unbounded_channel();
    {
        let mut store = store.lock();
        if store.mute.contains("Watch") {
            return;
        }
        assert_eq!(create.start_revision, store.revision + 1, "nothing is missed");
        let created = WatchResponse { header: store.header(), created: true, ..WatchResponse::default() };
        sender.send(created).unwrap();
        store.watches.push(sender);
    }
    while let Some(response) = responses.recv().await {
        if send_all(answers, framed(&response.encode_to_vec())).await.is_none() {
            return;
        }
    }
}

async fn keep_alive(body: &mut RecvStream, answers: &mut SendStream<Bytes>, store: Arc<Mutex<Store>>) {
    let mut rest = BytesMut::new();
    while let Some(question) = next_message(body, &mut rest).await {
        let id = LeaseKeepAliveRequest::decode(question).unwrap().id;
        let answer = {
            let mut store = store.lock();
            if store.mute.contains("LeaseKeepAlive") {
                continue;
            }
            store.keep_alive(id)
        };
        if send_all(answers, framed(&answer.encode_to_vec())).await.is_none() {
            return;
        }
    }
}

/// A short lease for tests.
pub const LEASE: Duration = Duration::from_millis(900);
