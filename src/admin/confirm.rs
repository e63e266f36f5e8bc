//! `POST /confirm_deletions`: lets deletions through that are held back.

use axum::Json;
use axum::extract::State as Shared;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use sluice_admin_api::acts::{ConfirmedDeletions, ConfirmedSource};
use sluice_admin_api::parameters::DeletionsParameters;

use super::params::{Declined, not_found, read};
use super::state::Admin;
use crate::driver::api::control::DeletionFilter;

/// Confirms mass deletions that are held back (FU18).
pub(super) async fn confirm_deletions(Shared(admin): Shared<Admin>, uri: Uri) -> Result<Response, Declined> {
    let DeletionsParameters { server, r#type } = read(&uri)?;
    let filter = DeletionFilter { server, type_name: r#type };
    let confirmed = admin.relay.confirm_deletions(filter).await;
    if confirmed.is_empty() {
        let text = "no matching deletion is held back; GET /sources lists the held deletions";
        return Err(not_found(text.to_owned()));
    }
    let confirmed = confirmed.into_iter().map(|deletion| ConfirmedSource {
        server: deletion.source.server.to_string(),
        list: deletion.source.list.to_string(),
        class: deletion.source.class.digest.to_string(),
        removed: deletion.removed,
    });
    Ok(Json(ConfirmedDeletions { confirmed: confirmed.collect() }).into_response())
}
