//! Acts of a few lines: the end of one stream, held-back deletions, and the log.

use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use sluice_admin_api::acts::{ConfirmedDeletions, ConfirmedSource, EndedStream, LogDirectives};
use sluice_admin_api::parameters::{DeletionsParameters, LogParameters, NoParameters};

use super::params::{Declined, bad_request, not_found, read, time};
use super::state::Admin;
use crate::driver::api::control::DeletionFilter;
use crate::telemetry::logging::LogStatus;
use sluice_setting::{Range, hours, minutes, seconds};

/// A log at `debug` or `trace` grows by gigabytes a day. So its time always ends.
const LOG_TIMES: Range = sluice_setting::time(seconds(1)..=hours(24));

/// `POST /clients/{id}/end`: ends one stream, so that its client connects again.
pub(super) async fn end_stream(
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

/// `POST /confirm_deletions`: lets deletions through that are held back (FU18).
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

/// `POST /log`: other log directives for a time.
pub(super) async fn set_log(Shared(admin): Shared<Admin>, uri: Uri) -> Result<Response, Declined> {
    let LogParameters { level, r#for } = read(&uri)?;
    let duration = time("for", r#for, LOG_TIMES)?;
    let set = match (level, duration) {
        (Some(level), duration) => admin.process.log.set(&level, duration.unwrap_or(minutes(10))),
        (None, None) => admin.process.log.reset(),
        (None, Some(_)) => return Err(bad_request("for: needs level, too".to_owned())),
    };
    set.map_err(|error| bad_request(format!("level: {error}")))?;
    let LogStatus { directives: level, configured, left } = admin.process.log.status();
    Ok(Json(LogDirectives { level, configured, seconds_left: left.map(|left| left.as_secs_f64()) })
        .into_response())
}
