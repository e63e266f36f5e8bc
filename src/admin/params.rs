//! The parameters of a request's query. Errors name the parameter, and the nearest known word.

use std::str::FromStr;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Query;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use sluice_admin_api::parameters::{BadKey, Parameters};

use sluice_setting::{Range, parse_duration};
use sluice_text::nearest::nearest;
use sluice_text::span;

/// The parameters of a request, each at most once, and all known.
pub(super) fn read<P: Parameters>(uri: &Uri) -> Result<P, Declined> {
    let query = Query::<Vec<(String, String)>>::try_from_uri(uri);
    let Query(pairs) = query.map_err(|error| bad_request(error.to_string()))?;
    P::from_pairs(pairs).map_err(|bad| {
        bad_request(match bad {
            BadKey::Unknown(key) => unknown("query key", &key, P::KEYS.iter().copied()),
            BadKey::Twice(key) => format!("duplicate query key {key:?}"),
        })
    })
}

/// The value of a parameter, from a list of words.
pub(super) fn word<T: Copy>(
    key: &str,
    text: Option<String>,
    words: &[(&str, T)],
) -> Result<Option<T>, Declined> {
    let Some(text) = text else { return Ok(None) };
    match words.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => Ok(Some(*value)),
        None => Err(bad_request(unknown(key, &text, words.iter().map(|(name, _)| *name)))),
    }
}

/// `1` or `0`.
pub(super) fn flag(key: &str, text: Option<String>) -> Result<bool, Declined> {
    Ok(word(key, text, &[("1", true), ("0", false)])?.unwrap_or(false))
}

/// A number. `allowed`: in words, for the refusal of another text.
pub(super) fn number<T: FromStr>(
    key: &str,
    text: Option<String>,
    allowed: &str,
) -> Result<Option<T>, Declined> {
    let Some(text) = text else { return Ok(None) };
    let number = text.parse().map_err(|_| bad_request(format!("{key} is {text:?}; allowed: {allowed}")));
    number.map(Some)
}

/// A time within the range, with a unit.
pub(super) fn time(key: &str, text: Option<String>, range: Range) -> Result<Option<Duration>, Declined> {
    let Some(text) = text else { return Ok(None) };
    let time = parse_duration(&text);
    let time = time.filter(|time| (range.least..=range.most).contains(&(time.as_millis() as u64)));
    time.map(Some).ok_or_else(|| {
        let [least, most] = [range.least, range.most].map(|ms| span(Duration::from_millis(ms)));
        let text = format!(
            "{key} is {text:?}; allowed: a time like 500ms, 10s, 5m, 1h or 2d, from {least} to {most}"
        );
        bad_request(text)
    })
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

/// Something that the answer needs is away.
pub(super) fn unavailable(reason: String) -> Declined {
    Declined { status: StatusCode::SERVICE_UNAVAILABLE, reason }
}

/// An unknown id or name.
pub(super) fn not_found(reason: String) -> Declined {
    Declined { status: StatusCode::NOT_FOUND, reason }
}
