//! One request to one relay, with a bound on time and on bytes. Redirects are not followed.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, HOST, HeaderValue, USER_AGENT};
use http::response::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::address::Target;
use super::connection::{RelayTls, connect};
use super::typed::Typed;

/// The longest answer. A list of 100,000 clients has 100 MiB; an answer beyond that is no list of a relay, or
/// would fill the memory of the operator's host.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// The bytes of a refusal.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// The longest refusal that is shown.
const REASON_CHARS_MAX: usize = 2_000;

/// Everything for a request besides its path.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub tls: Option<RelayTls>,
    /// The header `Authorization`.
    pub token: Option<HeaderValue>,
    /// From the first packet to the last byte of an answer; of an answer without end, to its head.
    pub timeout: Duration,
}

/// The reason for a missing answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// The relay cannot be reached, or answers nothing usable.
    Silent(String),
    /// The relay refuses the request.
    Refused { status: u16, reason: String },
}

impl Missing {
    /// Whether the request is at fault, not the relay.
    pub(super) fn is_usage(&self) -> bool {
        matches!(self, Missing::Refused { status: 400..=499, .. })
    }

    pub(super) fn text(&self) -> String {
        match self {
            Missing::Silent(reason) => reason.clone(),
            Missing::Refused { reason, .. } => reason.clone(),
        }
    }
}

/// An answer whose body is still to be read. The connection ends with it.
pub(super) struct Open {
    pub(super) response: Response<Incoming>,
    _connection: AbortOnDropHandle<()>,
}

impl Open {
    /// The head, the rest, and the connection that brings it.
    pub(super) fn split(self) -> (Parts, Incoming, AbortOnDropHandle<()>) {
        let (head, body) = self.response.into_parts();
        (head, body, self._connection)
    }
}

impl Caller {
    /// The JSON of an answer with a status of success.
    pub(super) async fn json(&self, relay: &Target, method: &Method, path: &str) -> Result<Value, Missing> {
        let (status, body) = self.whole(relay, method, path).await?;
        if !status.is_success() {
            return Err(refusal(status, &body));
        }
        serde_json::from_slice(&body)
            .map_err(|error| Missing::Silent(format!("answers no JSON, so is no relay: {error}")))
    }

    /// An answer with a status of success.
    pub(super) async fn typed<T: DeserializeOwned>(
        &self,
        relay: &Target,
        method: &Method,
        path: &str,
    ) -> Result<Typed<T>, Missing> {
        Typed::new(self.json(relay, method, path).await?, &relay.label).map_err(Missing::Silent)
    }

    /// An answer with a status of success, whose body goes on. The time is that to its head.
    pub(super) async fn open(
        &self,
        relay: &Target,
        method: &Method,
        path: &str,
        accept: &str,
    ) -> Result<Open, Missing> {
        let answer = async {
            let open = self.send(relay, method, path, accepting(accept)?, Bytes::new()).await?;
            let status = open.response.status();
            if status.is_success() {
                return Ok(open);
            }
            let body = Limited::new(open.response.into_body(), REFUSAL_BYTES_MAX).collect().await;
            let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            Err(refusal(status, &body))
        };
        timeout(self.timeout, answer).await.unwrap_or_else(|_| Err(self.late()))
    }

    /// An answer with any status, whose body goes on. The time is that to its head.
    pub(super) async fn forward(
        &self,
        relay: &Target,
        method: &Method,
        path: &str,
        headers: HeaderMap,
    ) -> Result<Open, Missing> {
        let answer = self.send(relay, method, path, headers, Bytes::new());
        timeout(self.timeout, answer).await.unwrap_or_else(|_| Err(self.late()))
    }

    /// Status and body of an answer, whatever the status.
    pub(super) async fn whole(
        &self,
        relay: &Target,
        method: &Method,
        path: &str,
    ) -> Result<(StatusCode, Bytes), Missing> {
        self.whole_of(relay, method, path, Bytes::new()).await
    }

    /// The answer to a POST with a body. A refusal may be such an answer, too.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        relay: &Target,
        path: &str,
        body: Bytes,
    ) -> Result<Typed<T>, Missing> {
        let (status, answer) = self.whole_of(relay, &Method::POST, path, body).await?;
        let json = serde_json::from_slice::<Value>(&answer).ok();
        json.and_then(|json| Typed::new(json, &relay.label).ok()).ok_or_else(|| refusal(status, &answer))
    }

    async fn whole_of(
        &self,
        relay: &Target,
        method: &Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), Missing> {
        let answer = async {
            let Open { response, _connection } =
                self.send(relay, method, path, accepting("application/json")?, body).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| match error.is::<http_body_util::LengthLimitError>() {
                true => Missing::Silent(format!(
                    "the answer is longer than {} MiB; ask for less by filters or --limit",
                    ANSWER_BYTES_MAX >> 20
                )),
                false => Missing::Silent(format!("the answer broke off: {error}")),
            })?;
            Ok((status, body.to_bytes()))
        };
        timeout(self.timeout, answer).await.unwrap_or_else(|_| Err(self.late()))
    }

    fn late(&self) -> Missing {
        Missing::Silent(format!("no answer within {:?}", self.timeout))
    }

    async fn send(
        &self,
        relay: &Target,
        method: &Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Open, Missing> {
        let silent = |error: hyper::Error| {
            let hint = if self.tls.is_none() { "; if it speaks TLS, pass --ca FILE" } else { "" };
            Missing::Silent(format!("speaks no HTTP: {error}{hint}"))
        };
        let (io, host) = connect(relay, self.tls.as_ref()).await.map_err(Missing::Silent)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await.map_err(silent)?;
        let connection = tokio::spawn(async move {
            // An error of the connection is also the error of its request.
            let _ = connection.await;
        });
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, host)
            .header(USER_AGENT, concat!("sluice/", env!("CARGO_PKG_VERSION")))
            .header(CONNECTION, "close");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        for (name, value) in &headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body));
        let request = request.map_err(|error| Missing::Silent(format!("{path}: {error}")))?;
        let response = sender.send_request(request).await.map_err(silent)?;
        Ok(Open { response, _connection: AbortOnDropHandle::new(connection) })
    }
}

/// The header for this media type.
fn accepting(media_type: &str) -> Result<HeaderMap, Missing> {
    let value = HeaderValue::from_str(media_type);
    let value = value.map_err(|error| Missing::Silent(format!("{media_type}: {error}")))?;
    Ok(HeaderMap::from_iter([(ACCEPT, value)]))
}

fn refusal(status: StatusCode, body: &[u8]) -> Missing {
    let body = String::from_utf8_lossy(body);
    let reason: String = body.trim().chars().take(REASON_CHARS_MAX).collect();
    let reason = if reason.is_empty() { status.to_string() } else { reason };
    let reason = match status.is_redirection() {
        true => format!("answers {status}, so is no relay"),
        false => reason,
    };
    Missing::Refused { status: status.as_u16(), reason }
}
