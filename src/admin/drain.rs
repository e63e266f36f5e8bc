//! `/drain`: empties the relay without an end of its process, and the way back (HND-9).

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State as Shared;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use sluice_admin_api::acts::DrainStatus;
use sluice_admin_api::parameters::{DrainParameters, NoParameters};
use tokio::time::interval;
use tracing::warn;

use super::params::{Declined, conflict, flag, read, time};
use super::state::{Admin, State};
use crate::driver::api::emptying::{Emptying, EmptyingPhase, EmptyingStatus, floor};
use crate::telemetry::events::{Kind, Occurrence};
use crate::telemetry::traces::act::{Act, ActTrace};
use sluice_setting::{Range, hours, ms};

/// Longer drains are mistakes: a client may be told to leave only by the end of its stream.
const TIMES: Range = sluice_setting::time(ms(0)..=hours(1));

/// The time between two looks at a drain that is traced.
const LOOKS: Duration = Duration::from_millis(100);

fn answer(status: EmptyingStatus) -> DrainStatus {
    DrainStatus {
        draining: status.phase != EmptyingPhase::Serving,
        state: status.phase.name().to_owned(),
        connections: status.connections,
        streams: status.streams,
        left: status.streams_before.saturating_sub(status.streams),
        cut: status.cut,
        seconds_left: status.left.as_secs_f64(),
        dry_run: false,
        warning: None,
    }
}

/// The window of a drain.
fn window(admin: &Admin, wish: Option<Duration>) -> (Duration, Option<String>) {
    let EmptyingStatus { left, streams, .. } = admin.process.emptying.status();
    choose(wish, left, streams, admin.relay.first_answers_per_second())
}

/// Without a wish, a window is long enough for the first answers of all clients elsewhere. A shorter wish
/// holds, with a warning.
fn choose(
    wish: Option<Duration>,
    usual: Duration,
    streams: u64,
    per_second: u32,
) -> (Duration, Option<String>) {
    let needed = floor(streams, per_second);
    let Some(over) = wish else { return (usual.max(needed), None) };
    let warning = (over < needed).then(|| {
        format!(
            "over is {over:?}; relays with limits.first_answers_per_second: {per_second} need {needed:?} for {streams} \
             streams, and keep the rest waiting"
        )
    });
    (over, warning)
}

/// Follows a drain to its end, for its trace.
async fn follow(emptying: Arc<dyn Emptying>, mut act: ActTrace) {
    act.step("sluice.drain.announce");
    let (mut looks, mut is_leaving) = (interval(LOOKS), false);
    loop {
        looks.tick().await;
        let status = emptying.status();
        if status.phase == EmptyingPhase::Leaving && !is_leaving {
            is_leaving = true;
            act.step("sluice.drain.leave");
        }
        let is_over = status.left.is_zero() && status.phase == EmptyingPhase::Leaving;
        if is_over || matches!(status.phase, EmptyingPhase::Empty | EmptyingPhase::Serving) {
            let left = status.streams_before.saturating_sub(status.streams);
            act.note("sluice.outcome", status.phase.name());
            act.note("sluice.streams.left", left);
            act.note("sluice.connections.cut", status.cut);
            act.end(None);
            return;
        }
    }
}

pub(super) async fn show(Shared(admin): Shared<Admin>, uri: Uri) -> Result<Response, Declined> {
    read::<NoParameters>(&uri)?;
    Ok(Json(answer(admin.process.emptying.status())).into_response())
}

pub(super) async fn begin(Shared(admin): Shared<Admin>, uri: Uri) -> Result<Response, Declined> {
    let params: DrainParameters = read(&uri)?;
    let over = time("over", params.over, TIMES)?;
    let after = time("after", params.after, TIMES)?.unwrap_or(Duration::ZERO);
    let dry_run = flag("dry_run", params.dry_run)?;
    let is_serving = admin.process.readiness.state() == State::Ready;
    if dry_run && is_serving {
        let ((over, warning), status) = (window(&admin, over), admin.process.emptying.status());
        let status = EmptyingStatus { left: after + over, ..status };
        return Ok(Json(DrainStatus { dry_run, warning, ..answer(status) }).into_response());
    }
    let (over, warning) = window(&admin, over);
    if !is_serving || admin.process.emptying.empty(after, Some(over)).is_err() {
        let left = admin.process.emptying.status().left;
        let text = format!(
            "the relay is not in service: {}; {:.1} s left of a drain",
            admin.process.readiness.state().name(),
            left.as_secs_f64()
        );
        return Err(conflict(text));
    }
    admin.metrics.events.add(Occurrence::info(Kind::Drain, "an operator drains the relay"));
    let mut act = admin.metrics.traces.begin(Act::Drain);
    if let Some(warning) = &warning {
        warn!(trace_id = act.trace_id(), warning, "the window of the drain is short");
    }
    act.note("sluice.trigger", "request");
    tokio::spawn(follow(admin.process.emptying.clone(), act));
    Ok(Json(DrainStatus { warning, ..answer(admin.process.emptying.status()) }).into_response())
}

pub(super) async fn end(Shared(admin): Shared<Admin>, uri: Uri) -> Result<Response, Declined> {
    read::<NoParameters>(&uri)?;
    if !admin.process.emptying.admit() {
        return Err(conflict("there is no drain; POST /drain begins one".to_owned()));
    }
    admin.metrics.events.add(Occurrence::info(Kind::Drain, "the relay is in service again"));
    Ok(Json(answer(admin.process.emptying.status())).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hnd_9_a_usual_window_grows_with_the_clients_and_a_wish_does_not() {
        let seconds = Duration::from_secs;
        assert_eq!(choose(None, seconds(10), 10_000, 2_000), (seconds(10), None));
        assert_eq!(choose(None, seconds(10), 100_000, 2_000), (seconds(50), None));
        assert_eq!(choose(Some(seconds(50)), seconds(10), 100_000, 2_000), (seconds(50), None));
        let (over, warning) = choose(Some(seconds(49)), seconds(10), 100_000, 2_000);
        assert_eq!((over, warning.is_some()), (seconds(49), true));
    }
}
