//! `POST /confirm_deletions`: lets deletions through that are held back.

use axum::Json;
use axum::extract::State as Shared;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::params::bad_request;
use super::query::deletions;
use super::state::Admin;

#[derive(Serialize)]
struct Answer {
    confirmed: Vec<Confirmed>,
}

#[derive(Serialize)]
struct Confirmed {
    server: String,
    list: String,
    class: String,
    /// The number of resources that clients lose.
    removed: usize,
}

/// Confirms mass deletions that are held back (FU18).
pub(super) async fn deletions_meant(Shared(admin): Shared<Admin>, uri: Uri) -> Result<Response, Response> {
    let filter = deletions(&uri).map_err(bad_request)?;
    let confirmed = admin.relay.confirm_deletions(filter).await;
    if confirmed.is_empty() {
        let text = "no matching deletion is held back; GET /sources lists the held deletions\n";
        return Err((StatusCode::NOT_FOUND, text).into_response());
    }
    let confirmed = confirmed.into_iter().map(|of| Confirmed {
        server: of.source.server.to_string(),
        list: of.source.list.to_string(),
        class: of.source.class.digest.to_string(),
        removed: of.removed,
    });
    Ok(Json(Answer { confirmed: confirmed.collect() }).into_response())
}
