//! The answer of an endpoint, for a page that shows this one answer. Page and API then cannot disagree.

use axum::response::Response;
use http_body_util::{BodyExt, Limited};
use serde::de::DeserializeOwned;

use super::frame::Fault;

/// The longest answer that a page shows. Longer ones are for tools.
const BYTES_MAX: usize = 8 << 20;

/// # Errors
/// The endpoint's own refusal, with its text.
pub(super) async fn told<T: DeserializeOwned>(answer: Result<Response, Response>) -> Result<T, Fault> {
    let (head, body) = match answer {
        Ok(answer) | Err(answer) => answer.into_parts(),
    };
    let body = Limited::new(body, BYTES_MAX).collect().await;
    let body = body.map_err(|error| Fault::failed(error.to_string()))?.to_bytes();
    if !head.status.is_success() {
        return Err(Fault::of(head.status, String::from_utf8_lossy(&body).trim()));
    }
    serde_json::from_slice(&body).map_err(|error| Fault::failed(error.to_string()))
}
