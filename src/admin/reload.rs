//! `POST /reload`, `POST /rollback`: another configuration for the running process (REL-1, REL-9).

use axum::Json;
use axum::extract::{Request, State as Shared};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use http_body::Body as _;
use sluice_admin_api::config as api;
use sluice_admin_api::parameters::{ReloadParameters, RollbackParameters};

use super::params::{Declined, bad_request, flag, number, read, read_body};
use super::reloading::{KeyChange, ListenerChanges, Moves, ReloadResult, Report, Wanted};
use super::state::Admin;

/// The longest text of a configuration. The largest ones have some thousand node classes.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// The changed keys in an answer.
const CHANGES_MAX: usize = 500;

impl From<KeyChange> for api::KeyChange {
    fn from(change: KeyChange) -> api::KeyChange {
        let KeyChange { key, from, to, effect } = change;
        api::KeyChange { key, from, to, effect: effect.to_owned() }
    }
}

pub(super) async fn reload(Shared(admin): Shared<Admin>, request: Request) -> Result<Response, Declined> {
    let params: ReloadParameters = read(request.uri())?;
    let is_plan = flag("dry_run", params.dry_run)?;
    let yes = flag("yes", params.yes)?;
    let has_body = !request.body().is_end_stream();
    let desired = match (is_plan, has_body) {
        (true, true) => Wanted::PlanText(read_text(request).await?),
        (true, false) => Wanted::PlanFile,
        (false, false) => Wanted::File { yes },
        (false, true) => {
            let text = "a text is for dry_run=1 only: a reload takes the file of the process".to_owned();
            return Err(bad_request(text));
        }
    };
    Ok(respond(admin.process.reloading.reload(desired).await))
}

pub(super) async fn rollback(Shared(admin): Shared<Admin>, uri: Uri) -> Result<Response, Declined> {
    let params: RollbackParameters = read(&uri)?;
    let is_plan = flag("dry_run", params.dry_run)?;
    let yes = flag("yes", params.yes)?;
    let to = number("to", params.to, "the number of a generation")?;
    let desired = if is_plan { Wanted::PlanGeneration { to } } else { Wanted::Generation { to, yes } };
    Ok(respond(admin.process.reloading.reload(desired).await))
}

/// A configuration in the body of a request.
pub(super) async fn read_text(request: Request) -> Result<String, Declined> {
    let bytes = read_body(request.into_body(), TEXT_BYTES_MAX).await?;
    String::from_utf8(bytes.into()).map_err(|_| bad_request("the body is no UTF-8".to_owned()))
}

fn respond(report: Report) -> Response {
    let status = match report.result {
        ReloadResult::Changed | ReloadResult::Unchanged => StatusCode::OK,
        ReloadResult::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
        ReloadResult::NeedsProcess | ReloadResult::Held => StatusCode::CONFLICT,
        ReloadResult::Failed | ReloadResult::Ending => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(answer(report))).into_response()
}

fn answer(report: Report) -> api::ReloadReport {
    let Report { result, is_plan, generation, changes, listeners, moves, warnings, faults, say } = report;
    let changes_left_out = changes.len().saturating_sub(CHANGES_MAX);
    let ListenerChanges { added, removed, moved } = listeners;
    api::ReloadReport {
        result: result.name().to_owned(),
        dry_run: is_plan,
        generation,
        changes: changes.into_iter().take(CHANGES_MAX).map(api::KeyChange::from).collect(),
        changes_left_out,
        listeners: api::ListenerChanges { added, removed, moved },
        moves: moves.map(effects),
        warnings,
        faults,
        say,
    }
}

fn effects(moves: Moves) -> api::Moves {
    api::Moves {
        streams: moves.sessions,
        streams_moved: moves.sessions_moved,
        streams_undecided: moves.sessions_undecided,
        sources: moves.sources,
        sources_opened: moves.sources_opened,
        sources_closed: moves.sources_closed,
        upstream_streams_opened: moves.upstream_streams_opened,
        upstream_streams_closed: moves.upstream_streams_closed,
        names_gone: moves.names_gone,
        names: moves.names,
    }
}
