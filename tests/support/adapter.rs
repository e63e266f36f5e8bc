//! Sets the state of a judged server through an adapter: a process that reads JSON lines, or the adapter
//! service of ii/xds-test-harness. `tests/conformance/README.md` has both protocols.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::uri::PathAndQuery;
use prost::Message;
use serde_json::{Value, json};
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;

use super::judge::skip;
use super::proto::Any;

/// One change of the server's resources.
pub enum Change {
    Set { name: String, version: String, body: Any },
    Remove { type_url: String, name: String },
}

pub struct Adapter(Mutex<Kind>);

enum Kind {
    Process(Process),
    Service(Service),
}

impl Adapter {
    /// `exec:COMMAND` or `grpc:HOST:PORT`; `node` is the node id of the clients.
    pub fn start(spec: &str, node: &str) -> Adapter {
        let kind = if let Some(command) = spec.strip_prefix("exec:") {
            Kind::Process(Process::start(command, node))
        } else if let Some(address) = spec.strip_prefix("grpc:") {
            Kind::Service(Service::new(address, node))
        } else {
            panic!("the adapter {spec:?} is neither exec:COMMAND nor grpc:HOST:PORT")
        };
        Adapter(Mutex::new(kind))
    }

    /// Removes all resources that earlier cases set.
    pub fn clear(&self) {
        match &mut *self.lock() {
            Kind::Process(process) => process.ask(&json!({ "op": "clear" })),
            Kind::Service(service) => service.clear(),
        }
    }

    /// Applies several changes as one, and returns after the server has them.
    pub fn apply(&self, changes: Vec<Change>) {
        match &mut *self.lock() {
            Kind::Process(process) => process.apply(&changes),
            Kind::Service(service) => service.apply(changes),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kind> {
        // A case that was skipped or failed in the middle of a call leaves a usable adapter behind.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

struct Process {
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// The process ends at the end of its input.
    _child: Child,
}

impl Process {
    fn start(command: &str, node: &str) -> Process {
        let mut child = Command::new("sh")
            .args(["-c", command])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the adapter starts");
        let stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut process = Process { stdin, stdout, _child: child };
        process.ask(&json!({ "op": "hello", "node": node }));
        process
    }

    fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            self.ask(&match change {
                Change::Set { name, version, body } => json!({
                    "op": "set", "type_url": body.type_url, "name": name, "version": version,
                    "resource_base64": BASE64_STANDARD.encode(&body.value),
                }),
                Change::Remove { type_url, name } => {
                    json!({ "op": "remove", "type_url": type_url, "name": name })
                }
            });
        }
        self.ask(&json!({ "op": "commit" }));
    }

    /// Sends one line and reads one line. An operation that the adapter declines skips the case.
    fn ask(&mut self, line: &Value) {
        let written = writeln!(self.stdin, "{line}").and_then(|()| self.stdin.flush());
        assert!(written.is_ok(), "the adapter ended before {line}");
        let mut answer = String::new();
        let _ = self.stdout.read_line(&mut answer);
        assert!(!answer.is_empty(), "the adapter ended instead of an answer to {line}");
        let answer: Value =
            serde_json::from_str(&answer).unwrap_or_else(|e| panic!("the adapter answered {answer:?}: {e}"));
        let error = answer["error"].as_str().unwrap_or("it gave no reason");
        if answer["unsupported"] == true {
            skip(format!("the adapter cannot: {error}"));
        }
        assert!(answer["ok"] == true, "the adapter refused {line}: {error}");
    }
}

/// `adapter.SetStateRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct SetState {
    #[prost(string, tag = "1")]
    pub node: String,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(message, repeated, tag = "3")]
    pub resources: Vec<Any>,
}

/// `adapter.SetStateResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct StateSet {
    #[prost(bool, tag = "1")]
    pub success: bool,
}

/// `adapter.clearStateRequest`.
#[derive(Clone, PartialEq, Message)]
struct ClearState {
    #[prost(string, tag = "1")]
    node: String,
}

/// `adapter.clearStateResponse`.
#[derive(Clone, PartialEq, Message)]
struct StateCleared {
    #[prost(string, tag = "1")]
    response: String,
}

/// Gets the whole state each time: `UpdateResource` and similar calls leave the content to the adapter, and
/// these cases compare content.
struct Service {
    address: String,
    node: String,
    version: u64,
    state: BTreeMap<(String, String), Any>,
}

impl Service {
    fn new(address: &str, node: &str) -> Service {
        Service { address: address.to_owned(), node: node.to_owned(), version: 0, state: BTreeMap::new() }
    }

    fn clear(&mut self) {
        self.state.clear();
        let _: StateCleared =
            self.call("/adapter.Adapter/ClearState", ClearState { node: self.node.clone() });
    }

    fn apply(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Set { name, body, .. } => {
                    self.state.insert((body.type_url.clone(), name), body);
                }
                Change::Remove { type_url, name } => {
                    self.state.remove(&(type_url, name));
                }
            }
        }
        self.version += 1;
        let (node, version) = (self.node.clone(), self.version.to_string());
        let request = SetState { node, version, resources: self.state.values().cloned().collect() };
        let answer: StateSet = self.call("/adapter.Adapter/SetState", request);
        assert!(answer.success, "the adapter did not set version {} of the state", self.version);
    }

    /// Cases change the state between awaits, so the call runs on a thread of its own.
    fn call<Req, Resp>(&self, path: &'static str, request: Req) -> Resp
    where
        Req: Message + 'static,
        Resp: Message + Default + 'static,
    {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).expect("an address");
        let call = async move {
            let channel =
                endpoint.connect().await.map_err(|e| tonic::Status::unavailable(format!("{e:?}")))?;
            let mut grpc = tonic::client::Grpc::new(channel);
            grpc.ready().await.map_err(|e| tonic::Status::unavailable(e.to_string()))?;
            let codec = ProstCodec::<Req, Resp>::default();
            let path = PathAndQuery::from_static(path);
            grpc.unary(tonic::Request::new(request), path, codec).await
        };
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
            runtime.block_on(call)
        });
        match thread.join().expect("the call does not panic") {
            Ok(response) => response.into_inner(),
            Err(status) => panic!("the adapter at {} answered {path} with {status}", self.address),
        }
    }
}
