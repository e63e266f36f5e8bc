//! `POST /clients/{id}/end`: ends one stream, so that its client connects again.

use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use sluice_admin_api::acts::EndedStream;
use sluice_admin_api::parameters::NoParameters;

use super::params::{Declined, bad_request, not_found, read};
use super::state::Admin;

pub(super) async fn stream(
    Shared(admin): Shared<Admin>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, Declined> {
    read::<NoParameters>(&uri)?;
    let number: u64 =
        id.parse().map_err(|_| bad_request(format!("id is {id:?}; allowed: the number of a stream")))?;
    if !admin.relay.end_stream(number) {
        return Err(not_found(format!("no stream has the number {number}; GET /clients lists them")));
    }
    Ok(Json(EndedStream { ended: number }).into_response())
}
