//! Calls to one endpoint of etcd, over the connections that control planes have.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use prost::Message;
use prost::encoding::{DecodeContext, decode_key, skip_field};
use tokio::sync::{Mutex, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::client::{GrpcAddress, Pool, StreamEvent, StreamHandle};
use crate::ledger::EtcdUser;
use crate::ledger::live::DEADLINE;
use crate::trust::contents::read_text;
use sluice_proto::etcd::{AuthenticateRequest, AuthenticateResponse};
use sluice_wire::frame::framed;
use sluice_xds::{Code, Status};

/// The longest file of a password.
const PASSWORD_BYTES_MAX: u64 = 4096;

/// Events in the queue of a stream. A slow caller slows the server down.
const EVENTS_MAX: usize = 4;

/// The most elements of a message. An element of two bytes takes a hundred once it is decoded.
const FIELDS_MAX: usize = 1 << 17;

/// The most bytes of an answer to a call that asks for no content.
const ANSWER_BYTES_MAX: usize = 64 << 10;

const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

/// Makes a member of the cluster without a leader refuse the call. Otherwise the member would keep streams
/// open, and send no event.
const WITH_LEADER: &str = "hasleader";

/// One address of the cluster.
#[derive(Debug)]
pub(super) struct EtcdEndpoint {
    pub(super) address: GrpcAddress,
    pub(super) pool: Pool,
}

/// The failure of a call.
#[derive(Debug)]
pub(super) struct CallError {
    pub(super) status: Status,
    /// The server has refused the call. Otherwise the call may have had its effect.
    pub(super) is_refusal: bool,
}

impl CallError {
    fn ours(code: Code, message: impl Into<String>) -> CallError {
        CallError { status: Status::new(code, message), is_refusal: false }
    }

    /// Another token may help.
    fn wants_login(&self) -> bool {
        let says = |words| self.status.message.contains(words);
        self.is_refusal
            && (self.status.code == Code::Unauthenticated
                || says("invalid auth token")
                || says("revision of auth store is old")
                || says("user name is empty"))
    }
}

/// Calls to one endpoint as one user.
#[derive(Debug)]
pub(super) struct EtcdCaller {
    endpoint: Arc<EtcdEndpoint>,
    user: Option<EtcdUser>,
    /// Locked during a login, so that all calls share the result.
    token: Mutex<Option<HeaderValue>>,
}

impl EtcdCaller {
    /// Logs in, if there is a user.
    ///
    /// # Errors
    /// The reason, with the endpoint.
    pub(super) async fn open(
        endpoint: Arc<EtcdEndpoint>,
        user: Option<EtcdUser>,
    ) -> Result<Arc<EtcdCaller>, String> {
        let caller = EtcdCaller { endpoint, user, token: Mutex::default() };
        caller.log_in(None).await.map_err(|error| caller.words(&error))?;
        Ok(Arc::new(caller))
    }

    /// A failure in words, with the endpoint.
    pub(super) fn words(&self, error: &CallError) -> String {
        let address = self.endpoint.address.to_string();
        let hint = match &self.user {
            None if error.wants_login() => " (the server wants a `user`)",
            _ => "",
        };
        // A failure to connect has the address already.
        match error.status.message.starts_with(&address) {
            true => format!("{}{hint}", error.status.message),
            false => self.about(&format!("{}{hint}", error.status)),
        }
    }

    pub(super) fn address(&self) -> &GrpcAddress {
        &self.endpoint.address
    }

    /// A sentence about the endpoint.
    pub(super) fn about(&self, text: &str) -> String {
        format!("{}: {text}", self.endpoint.address)
    }

    /// Asks, and answers within [`DEADLINE`]. With an outdated token, logs in and asks once more.
    ///
    /// # Errors
    /// The call failed.
    pub(super) async fn ask<A: Message + Default>(
        &self,
        path: &'static str,
        question: &impl Message,
    ) -> Result<A, CallError> {
        self.ask_for(path, question, ANSWER_BYTES_MAX).await
    }

    /// As [`EtcdCaller::ask`], for an answer of more bytes.
    pub(super) async fn ask_for<A: Message + Default>(
        &self,
        path: &'static str,
        question: &impl Message,
        bytes_max: usize,
    ) -> Result<A, CallError> {
        let question = framed(&question.encode_to_vec()).unwrap_or_default();
        let work = async {
            let token = self.token.lock().await.clone();
            match self.call(path, question.clone(), token.clone()).await {
                Err(error) if error.wants_login() && self.user.is_some() => {
                    self.log_in(token).await?;
                    let token = self.token.lock().await.clone();
                    self.call(path, question, token).await
                }
                answer => answer,
            }
        };
        let answer = timeout(DEADLINE, work).await.unwrap_or_else(|_| Err(late()))?;
        decode(answer, bytes_max)
    }

    /// Opens a stream of messages in both directions.
    pub(super) async fn stream(&self, path: &'static str) -> EtcdStream {
        let token = self.token.lock().await.clone();
        self.open_stream(path, token)
    }

    /// Gets another token than `outdated`.
    async fn log_in(&self, outdated: Option<HeaderValue>) -> Result<(), CallError> {
        let Some(user) = &self.user else { return Ok(()) };
        let mut token = self.token.lock().await;
        if *token != outdated {
            return Ok(());
        }
        let path = user.password_file.clone();
        let read = spawn_blocking(move || {
            let read = read_text(&path, PASSWORD_BYTES_MAX);
            read.map_err(|error| format!("{}: cannot read the file: {error}", path.display()))
        });
        let read = read.await.unwrap_or_else(|error| Err(error.to_string()));
        let password = read.map_err(|fault| CallError::ours(Code::Unauthenticated, fault))?;
        let password = password.trim_end_matches(['\r', '\n']).to_owned();
        let question = AuthenticateRequest { name: user.name.clone(), password };
        let question = framed(&question.encode_to_vec()).unwrap_or_default();
        let answer = timeout(DEADLINE, self.call(AUTHENTICATE, question, None)).await;
        match answer.unwrap_or_else(|_| Err(late())) {
            Ok(answer) => {
                let answer: AuthenticateResponse = decode(answer, ANSWER_BYTES_MAX)?;
                let mut value = HeaderValue::from_str(&answer.token)
                    .map_err(|_| CallError::ours(Code::Internal, "the server's token is no header"))?;
                value.set_sensitive(true);
                *token = Some(value);
                Ok(())
            }
            // A server without authentication takes all calls, as etcd's own clients assume.
            Err(error) if error.is_refusal && error.status.message.contains("not enabled") => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn call(
        &self,
        path: &'static str,
        question: Bytes,
        token: Option<HeaderValue>,
    ) -> Result<Bytes, CallError> {
        let mut stream = self.open_stream(path, token);
        stream.handle.send(question);
        stream.handle.finish();
        let answer = stream.next().await?;
        // The status follows. A call without one may yet have failed.
        match stream.next().await {
            Err(end) if end.is_refusal && end.status.code == Code::Ok => Ok(answer),
            Err(end) => Err(end),
            Ok(_) => Err(CallError::ours(Code::Internal, "the server answered twice")),
        }
    }

    fn open_stream(&self, path: &'static str, token: Option<HeaderValue>) -> EtcdStream {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let token = token.map(|token| (HeaderName::from_static("token"), token));
        let leader = (HeaderName::from_static(WITH_LEADER), HeaderValue::from_static("true"));
        let metadata = token.into_iter().chain([leader]).collect();
        EtcdStream { handle: self.endpoint.pool.open_call(path, metadata, sender), events }
    }
}

fn late() -> CallError {
    CallError::ours(Code::DeadlineExceeded, format!("no answer within {DEADLINE:?}"))
}

/// A stream of messages; ends with the handle.
#[derive(Debug)]
pub(super) struct EtcdStream {
    handle: StreamHandle,
    events: mpsc::Receiver<StreamEvent>,
}

impl EtcdStream {
    pub(super) fn send(&self, message: &impl Message) {
        self.handle.send(framed(&message.encode_to_vec()).unwrap_or_default());
    }

    /// The next message of the server. Cancel-safe.
    ///
    /// # Errors
    /// The stream has ended, or no connection can be made.
    pub(super) async fn next(&mut self) -> Result<Bytes, CallError> {
        loop {
            match self.events.recv().await {
                Some(StreamEvent::Message(message)) => return Ok(message),
                Some(StreamEvent::Ended(status)) => return Err(CallError { status, is_refusal: true }),
                Some(StreamEvent::ConnectFailed(status) | StreamEvent::Closed(status)) => {
                    return Err(CallError { status, is_refusal: false });
                }
                // `Closed` follows an undecodable message. The rest is about the connection.
                Some(_) => {}
                None => return Err(CallError::ours(Code::Internal, "the stream has ended")),
            }
        }
    }
}

/// Decodes a message that takes no more memory than its bounds say.
pub(super) fn decode<A: Message + Default>(message: Bytes, bytes_max: usize) -> Result<A, CallError> {
    let malformed = |reason: String| CallError::ours(Code::Internal, reason);
    if message.len() > bytes_max {
        let length = message.len();
        return Err(malformed(format!("an answer has {length} bytes; at most {bytes_max} are taken")));
    }
    let mut rest = message.clone();
    for count in 0.. {
        if rest.is_empty() {
            break;
        }
        if count == FIELDS_MAX {
            return Err(malformed(format!("a message has more than {FIELDS_MAX} elements")));
        }
        let skipped = decode_key(&mut rest)
            .and_then(|(tag, kind)| skip_field(kind, tag, &mut rest, DecodeContext::default()));
        skipped.map_err(|error| malformed(error.to_string()))?;
    }
    A::decode(message).map_err(|error| malformed(error.to_string()))
}
