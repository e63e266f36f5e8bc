//! The parameters of a request's query. Errors name the parameter, and the nearest known word.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Query;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use crate::setting::{Range, parse_duration};
use crate::text::nearest::nearest;
use crate::text::span;

/// The parameters of a request, each at most once, and all known.
#[derive(Debug)]
pub(super) struct Params(Vec<(String, String)>);

impl Params {
    pub fn parse(uri: &Uri, allowed: &[&str]) -> Result<Params, String> {
        let Query(pairs) =
            Query::<Vec<(String, String)>>::try_from_uri(uri).map_err(|error| error.to_string())?;
        for (number, (key, _)) in pairs.iter().enumerate() {
            if !allowed.contains(&key.as_str()) {
                return Err(unknown("query key", key, allowed.iter().copied()));
            }
            if pairs.iter().take(number).any(|(earlier, _)| earlier == key) {
                return Err(format!("duplicate query key {key:?}"));
            }
        }
        Ok(Params(pairs))
    }

    /// The value of a parameter, once.
    pub fn take(&mut self, key: &str) -> Option<String> {
        let index = self.0.iter().position(|(name, _)| name == key)?;
        Some(self.0.swap_remove(index).1)
    }

    pub fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(name, _)| name == key)
    }

    /// The value of a parameter, from a list of words.
    pub fn word<T: Copy>(&mut self, key: &str, words: &[(&str, T)]) -> Result<Option<T>, String> {
        let Some(text) = self.take(key) else { return Ok(None) };
        match words.iter().find(|(name, _)| *name == text) {
            Some((_, value)) => Ok(Some(*value)),
            None => Err(unknown(key, &text, words.iter().map(|(name, _)| *name))),
        }
    }

    /// A time within the range, with a unit.
    pub fn time(&mut self, key: &str, range: Range) -> Result<Option<Duration>, String> {
        let Some(text) = self.take(key) else { return Ok(None) };
        let time = parse_duration(&text);
        let time = time.filter(|time| (range.least..=range.most).contains(&(time.as_millis() as u64)));
        time.map(Some).ok_or_else(|| {
            let [least, most] = [range.least, range.most].map(|ms| span(Duration::from_millis(ms)));
            format!(
                "{key} is {text:?}; allowed: a time like 500ms, 10s, 5m, 1h or 2d, from {least} to {most}"
            )
        })
    }

    /// `1` or `0`.
    pub fn flag(&mut self, key: &str) -> Result<bool, String> {
        Ok(self.word(key, &[("1", true), ("0", false)])?.unwrap_or(false))
    }
}

/// The error for an unknown word.
pub(super) fn unknown<'a>(kind: &str, text: &str, allowed: impl Iterator<Item = &'a str> + Clone) -> String {
    let all: Vec<_> = allowed.clone().collect();
    let near = nearest(text, allowed).map(|near| format!("; nearest: {near}")).unwrap_or_default();
    format!("unknown {kind} {text:?}{near}; allowed: {}", all.join(", "))
}

/// The time for the body of a request. A tool on the same host or network sends it at once.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// The body of a request, up to a number of bytes.
pub(super) async fn read_body(body: Body, bytes_max: usize) -> Result<Bytes, Declined> {
    let declined = |status, reason: String| Declined { status, reason };
    let bytes = tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, bytes_max)).await;
    let bytes =
        bytes.map_err(|_| declined(StatusCode::REQUEST_TIMEOUT, "the body took too long".to_owned()))?;
    let text = format!("the body is longer than {bytes_max} bytes");
    bytes.map_err(|_| declined(StatusCode::PAYLOAD_TOO_LARGE, text))
}

/// A request without an answer: the reason, as a line for the caller.
#[derive(Debug)]
pub(super) struct Declined {
    pub status: StatusCode,
    pub reason: String,
}

impl IntoResponse for Declined {
    fn into_response(self) -> Response {
        (self.status, self.reason + "\n").into_response()
    }
}

impl From<Declined> for Response {
    fn from(declined: Declined) -> Response {
        declined.into_response()
    }
}

/// An invalid query.
pub(super) fn bad_request(reason: String) -> Declined {
    Declined { status: StatusCode::BAD_REQUEST, reason }
}

/// A question without a sense in the present state.
pub(super) fn conflict(reason: String) -> Declined {
    Declined { status: StatusCode::CONFLICT, reason }
}

/// An unknown id or name.
pub(super) fn not_found(reason: String) -> Declined {
    Declined { status: StatusCode::NOT_FOUND, reason }
}
