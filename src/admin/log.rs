//! `POST /log`: other log directives for a time.

use axum::Json;
use axum::extract::State as Shared;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use sluice_admin_api::acts::LogDirectives;
use sluice_admin_api::parameters::LogParameters;

use super::params::{Declined, bad_request, read, time};
use super::state::Admin;
use crate::setting::{Range, hours, minutes, seconds};
use crate::telemetry::logging::LogStatus;

/// A log at `debug` or `trace` grows by gigabytes a day. So its time always ends.
const TIMES: Range = crate::setting::time(seconds(1)..=hours(24));

pub(super) async fn set(Shared(admin): Shared<Admin>, uri: Uri) -> Result<Response, Declined> {
    let LogParameters { level, r#for } = read(&uri)?;
    let duration = time("for", r#for, TIMES)?;
    let set = match (level, duration) {
        (Some(level), duration) => admin.log.set(&level, duration.unwrap_or(minutes(10))),
        (None, None) => admin.log.reset(),
        (None, Some(_)) => return Err(bad_request("for: needs level, too".to_owned())),
    };
    set.map_err(|error| bad_request(format!("level: {error}")))?;
    let LogStatus { directives: level, configured, left } = admin.log.status();
    Ok(Json(LogDirectives { level, configured, seconds_left: left.map(|left| left.as_secs_f64()) })
        .into_response())
}
