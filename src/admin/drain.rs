//! `/drain`: empties the relay without an end of its process, and the way back (HND-9).

use std::time::Duration;

use axum::Json;
use axum::extract::State as Shared;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::params::{Params, bad_request};
use super::readiness::State;
use super::state::Admin;
use crate::driver::api::emptying::{EmptyingStatus, Phase};
use crate::setting::{Range, hours, ms};
use crate::telemetry::events::{Kind, Occurrence};

/// Longer drains are mistakes: a client may be told to leave only by the end of its stream.
const TIMES: Range = crate::setting::time(ms(0)..=hours(1));

#[derive(Serialize)]
struct Answer {
    draining: bool,
    /// `serving`, `announced`, `leaving` or `empty`.
    state: &'static str,
    connections: u64,
    streams: u64,
    /// Streams that have ended since the begin of the drain.
    left: u64,
    /// Connections that were cut at the end of the drain.
    cut: u64,
    /// The time until the last stream has ended.
    seconds_left: f64,
    /// The drain was only asked about.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
}

fn answer(status: EmptyingStatus) -> Answer {
    Answer {
        draining: status.phase != Phase::Serving,
        state: status.phase.name(),
        connections: status.connections,
        streams: status.streams,
        left: status.streams_before.saturating_sub(status.streams),
        cut: status.cut,
        seconds_left: status.left.as_secs_f64(),
        dry_run: false,
    }
}

pub(super) async fn show(Shared(admin): Shared<Admin>, uri: Uri) -> Result<Response, Response> {
    Params::parse(&uri, &[]).map_err(bad_request)?;
    Ok(Json(answer(admin.emptying.status())).into_response())
}

pub(super) async fn begin(Shared(admin): Shared<Admin>, uri: Uri) -> Result<Response, Response> {
    let mut params = Params::parse(&uri, &["over", "after", "dry_run"]).map_err(bad_request)?;
    let over = params.time("over", TIMES).map_err(bad_request)?;
    let after = params.time("after", TIMES).map_err(bad_request)?.unwrap_or(Duration::ZERO);
    let dry_run = params.flag("dry_run").map_err(bad_request)?;
    let is_serving = admin.readiness.state() == State::Ready;
    if dry_run && is_serving {
        let status = admin.emptying.status();
        let left = after + over.unwrap_or(status.left);
        return Ok(Json(Answer { dry_run, ..answer(EmptyingStatus { left, ..status }) }).into_response());
    }
    if !is_serving || admin.emptying.empty(after, over).is_err() {
        let left = admin.emptying.status().left;
        let text = format!(
            "the relay is not in service: {}; {:.1} s left of a drain\n",
            admin.readiness.state().name(),
            left.as_secs_f64()
        );
        return Err((StatusCode::CONFLICT, text).into_response());
    }
    admin.metrics.events.add(Occurrence::info(Kind::Drain, "an operator drains the relay"));
    Ok(Json(answer(admin.emptying.status())).into_response())
}

pub(super) async fn end(Shared(admin): Shared<Admin>, uri: Uri) -> Result<Response, Response> {
    Params::parse(&uri, &[]).map_err(bad_request)?;
    if !admin.emptying.admit() {
        let text = "there is no drain; POST /drain begins one\n";
        return Err((StatusCode::CONFLICT, text).into_response());
    }
    admin.metrics.events.add(Occurrence::info(Kind::Drain, "the relay is in service again"));
    Ok(Json(answer(admin.emptying.status())).into_response())
}
