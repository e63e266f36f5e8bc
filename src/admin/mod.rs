//! The admin room: an operator's queries and commands to a running relay, over HTTP on a separate listener.
//!
//! The endpoints are a table in the crate `sluice-admin-api`, with the types of all answers (ADR 87);
//! `docs/admin-api.md` has a section for each.
//!
//! Contents are shown without secrets, and only if the configuration allows (ADM-12); of a Secret only the
//! name is shown. The room reads the relay's status through [`Controls`], and holds no lock. Lists are
//! written item by item: a dump of all clients takes a small buffer, however slow its reader is. Requests,
//! connections, headers and times are bounded.
//!
//! 1. [`entrance`]: connections and their peers. `turn`, `bound`: the peers that keep the relay waiting, and
//!    the places that they lose. [`access`]: who may ask for what. `guard`, `host`: the checks of each
//!    request.
//! 2. `endpoints`: the routes of the endpoints. `params`, `page`, `query`, `types`: parameters. `unknown`:
//!    the nearest name.
//! 3. `live`: answers that go on, each a position and no queue. `events`: what happened. `tail`: one client.
//!    `overview`, `census`: the whole relay in numbers.
//! 4. `list`, `item`, `rejections`: the lists. `client`, `who`, `standings`, `versions`, `proofs`,
//!    `learning`, `classes`, `loads`: the endpoints about clients. `changes`: what was published, and how far
//!    it came. `rollouts`: what plans say about pushes. `readiness`: the answer to `/ready`. [`reloading`],
//!    `reload`, `config`: the configuration, and the way to another one. `acts`, `drain`, `upgrade`: the
//!    other acts.
//! 5. `ui`: the operator's page, over all of these.

pub mod entrance;
pub mod access;
mod readiness;
pub mod reloading;
mod state;
mod params;
mod page;
mod query;
mod item;
mod rejections;
mod list;
mod protocol;
mod turn;
mod bound;
mod changes;
mod rollouts;
mod client;
mod standings;
mod versions;
mod who;
mod proofs;
mod learning;
mod splits;
mod loads;
mod classes;
mod connection;
mod drain;
mod reload;
mod config;
mod acts;
mod upgrade;
mod host;
mod guard;
mod types;
mod unknown;
mod content;
mod csds;
mod live;
mod events;
mod tail;
mod census;
mod overview;
mod ui;
mod endpoints;

pub use entrance::Shutdown;

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body::Body as _;
use sluice_admin_api::lists::Listed;
use sluice_admin_api::overview::ReadyReport;
use sluice_admin_api::resources::Resource;
use sluice_admin_api::sources::{RefusedClient, Source};
use tokio::task::{AbortHandle, JoinSet};
use tracing::debug;

use crate::driver::api::control::Controls;
use crate::driver::api::status::{ConfigStatus, Why};
use crate::telemetry::metrics::CONTENT_TYPE;
use crate::telemetry::wall_now;
use crate::telemetry::{Limit, Metrics, Throttle};
use bound::{ORDERS_MAX, REQUESTS_MAX, RequestPlaces};
use entrance::Entrance;
use page::{Page, cursor, resource_cursor, resource_place};
use params::{Declined, bad_request};
use query::SourcesQuery;
use rejections::Rejections;
use sluice_setting::InForce;
pub use state::{
    About, AdminSettings, ContentMode, NotUpgraded, PredecessorStatus, Process, Readiness, State,
    UpgradeWish, Upgraded, Upgrading,
};
use state::{Admin, Budgets};
use turn::{GRACE, RequestTurns};

/// For a further connection, the oldest connection without a request under way is closed, or one that keeps
/// the relay waiting. Health checks are thus always answered.
const CONNECTIONS_MAX: usize = 128;

/// The time for finishing answers at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves until `shutdown`, then finishes answers for at most a second.
pub async fn serve(
    mut entrance: impl Entrance,
    settings: InForce<AdminSettings>,
    relay: Arc<dyn Controls>,
    process: Process,
    metrics: Arc<Metrics>,
    shutdown: impl Into<Shutdown>,
) {
    let shutdown = shutdown.into();
    let throttle = Arc::new(Throttle::new(metrics.log.clone()));
    let admin = Admin {
        relay,
        process,
        metrics: metrics.clone(),
        budgets: Budgets {
            requests: RequestPlaces::new(REQUESTS_MAX),
            acts: RequestPlaces::new(ORDERS_MAX),
            live: RequestPlaces::new(live::LIVE_MAX),
            calls: RequestPlaces::new(csds::CALLS_MAX),
        },
        census: Arc::default(),
        started: wall_now(),
        settings,
        throttle,
    };
    let router = endpoints::router(admin);
    let mut connections = JoinSet::new();
    let mut open: VecDeque<OpenConnection> = VecDeque::new();
    while let Some(proving) = shutdown.all().run_until_cancelled(entrance.accept()).await {
        while connections.try_join_next().is_some() {}
        open.retain(|open| !open.task.is_finished());
        if open.len() >= CONNECTIONS_MAX {
            metrics.limit_hit(Limit::AdminConnections);
            let Some(closed) = displaced(&open).and_then(|index| open.remove(index)) else { continue };
            closed.task.abort();
        }
        let turns = RequestTurns::default();
        let (router, end) = (router.clone(), shutdown.of_connection());
        let drive = connection::prove_and_drive(proving, router, turns.clone(), end);
        open.push_back(OpenConnection { task: connections.spawn(drive), turns });
    }
    drop(entrance);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, all_ended).await.is_err() {
        debug!(
            connections = connections.len(),
            "admin connections were still open at the end of the process"
        );
    }
}

/// One connection.
struct OpenConnection {
    task: AbortHandle,
    turns: RequestTurns,
}

/// The connection to close for a further connection: the oldest without a request under way, or else the
/// longest wait.
fn displaced(open: &VecDeque<OpenConnection>) -> Option<usize> {
    let waits =
        open.iter().enumerate().filter_map(|(index, open)| Some((open.turns.wait()?, Reverse(index))));
    let (_, Reverse(index)) = waits.max().filter(|(wait, _)| *wait >= GRACE)?;
    Some(index)
}

/// A few endpoints take a body, and bound it. The others refuse bodies here.
async fn refuse_body(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() || endpoints::takes_body(&request) {
        next.run(request).await
    } else {
        (StatusCode::PAYLOAD_TOO_LARGE, [(header::CONNECTION, "close")], "this endpoint takes no body\n")
            .into_response()
    }
}

async fn ready(Shared(admin): Shared<Admin>) -> Response {
    admin.relay.refresh().await;
    let (ready, report) = {
        let requires_upstream = admin.settings.get().ready_requires_upstream;
        let (sources, plans) = (admin.relay.sources(), admin.relay.rollouts());
        let (readiness, proofs) = (&admin.process.readiness, admin.relay.proof_summaries());
        let (ready, report) =
            readiness::report(readiness, requires_upstream, &sources, &plans, &proofs, admin.relay.now());
        (ready, ReadyReport { tiers: readiness::tiers(&*admin.relay), ..report })
    };
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, axum::Json(report)).into_response()
}

async fn metrics(Shared(admin): Shared<Admin>) -> Response {
    let census = admin.census.census(&*admin.relay).await;
    admin.metrics.downstream.clients(ConfigStatus::Synced.name(), "none", census.synced);
    for why in Why::ALL {
        admin.metrics.downstream.clients(why.state().name(), why.name(), census.count(why));
    }
    let tiers = admin.relay.tiers().into_iter();
    admin.metrics.upstream_tiers(tiers.filter_map(|tier| Some((tier.path, tier.age?))));
    // Reads `/proc`, and the text is long with many types. So the work runs on a thread that serves no
    // clients.
    let metrics = admin.metrics.clone();
    match tokio::task::spawn_blocking(move || metrics.encode()).await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Ok(Err(_)) | Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn sources(Shared(admin): Shared<Admin>, uri: Uri, headers: HeaderMap) -> Result<Response, Declined> {
    let (query, page) = SourcesQuery::parse(&uri, &headers)?;
    types::check(&admin, query.type_name.as_deref()).await.map_err(bad_request)?;
    let after: Option<u64> = page.after()?;
    let now = admin.relay.now();
    Ok(list::respond(Source::KEY, &page, move |writer| async move {
        admin.relay.refresh().await;
        let mut sources = admin.relay.sources();
        if query.has_shadows {
            sources.extend(admin.relay.shadows());
        }
        sources.sort_by_key(|source| source.id);
        sources.retain(|source| after.is_none_or(|after| source.id > after));
        let render = |source: &Arc<_>, out: &mut _| list::append(out, item::source(source, &query, now));
        writer.write_all(sources.into_iter(), |source| cursor(&source.id), render).await
    }))
}

async fn resources(Shared(admin): Shared<Admin>, uri: Uri, headers: HeaderMap) -> Result<Response, Declined> {
    let (filter, page) = query::resources(&uri, &headers)?;
    types::check(&admin, filter.type_name.as_deref()).await.map_err(bad_request)?;
    let after = resource_place(&page)?;
    Ok(list::respond(Resource::KEY, &page, move |writer| async move {
        let rejections = Rejections::gather(&*admin.relay, &filter).await;
        let resources = admin.relay.resources_after(&filter, after);
        let render =
            |status: &_, out: &mut _| list::append(out, item::resource(status, &filter, &rejections));
        writer.write_all(resources, resource_cursor, render).await
    }))
}

async fn refused(Shared(admin): Shared<Admin>, uri: Uri, headers: HeaderMap) -> Result<Response, Declined> {
    let page = Page::parse(&uri, &headers)?;
    let after: Option<u64> = page.after()?;
    let now = admin.relay.now();
    Ok(list::respond(RefusedClient::KEY, &page, move |writer| async move {
        // The latest first, so behind means before.
        let refusals = admin.relay.refusals().into_iter();
        let refusals = refusals.filter(|refusal| after.is_none_or(|after| refusal.number < after));
        let render = |refusal: &_, out: &mut _| list::append(out, Some(item::refused_client(refusal, now)));
        writer.write_all(refusals, |refusal| cursor(&refusal.number), render).await
    }))
}

#[cfg(test)]
mod tests;
