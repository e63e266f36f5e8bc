//! `POST /clients/{id}/end`: ends one stream, so that its client connects again.

use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::query::{bad_request, values};
use super::state::Admin;

pub(super) async fn stream(
    Shared(admin): Shared<Admin>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, Response> {
    let [] = values(&uri, []).map_err(bad_request)?;
    let number: u64 =
        id.parse().map_err(|_| bad_request(format!("id is {id:?}; allowed: the number of a stream")))?;
    if !admin.relay.end_stream(number) {
        let text = format!("no stream has the number {number}; GET /clients lists them\n");
        return Err((StatusCode::NOT_FOUND, text).into_response());
    }
    Ok(Json(json!({ "ended": number })).into_response())
}
