//! The routes of the table of endpoints (AUT-14). An endpoint without a handler does not compile.

use std::sync::LazyLock;

use axum::Router;
use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};
use sluice_admin_api::endpoints::{Area, Endpoint, index};

use super::access::RequestTarget;
use super::state::Admin;
use super::{
    acts, changes, classes, client, content, csds, events, guard, host, learning, loads, metrics, overview,
    proofs, ready, refuse_body, refused, resources, rollouts, sources, splits, tail, ui, versions, who,
};
use super::{config, drain, reload, upgrade};

/// Whether the endpoint of a request reads the body, and bounds it.
pub(super) fn takes_body(request: &Request) -> bool {
    use Endpoint::{ClientStatus, ExplainClass, FetchClientStatus, LearnClasses, Reload, StreamClientStatus};
    let (method, path) = (request.method().as_str(), request.uri().path());
    // Client status: whatever the method, as gRPC answers in its own form.
    let is_status = [ClientStatus, FetchClientStatus, StreamClientStatus].map(Endpoint::path).contains(&path);
    is_status || [ExplainClass, LearnClasses, Reload].iter().any(|endpoint| endpoint.matches(method, path))
}

/// Whether the endpoint counts for the limit of concurrent requests. Live answers and client status have
/// budgets of their own, whose permits their handlers take.
fn is_bounded(endpoint: Endpoint) -> bool {
    use Endpoint::*;
    !matches!(
        endpoint,
        Index
            | Healthz
            | Ready
            | Overview
            | Events
            | Tail
            | ClientStatus
            | FetchClientStatus
            | StreamClientStatus
            | Page
            | PageAsset
    )
}

fn handler(endpoint: Endpoint) -> MethodRouter<Admin> {
    match endpoint {
        Endpoint::Index => get(async |headers: HeaderMap| ui::index(&headers, &INDEX)),
        Endpoint::Healthz => get(async || "ok\n"),
        Endpoint::Ready => get(ready),
        Endpoint::Metrics => get(metrics),
        Endpoint::Overview => get(overview::overview),
        Endpoint::Clients => get(client::clients),
        Endpoint::Client => get(client::one),
        Endpoint::ClientDiff => get(client::diff),
        Endpoint::ClientExplain => get(client::explain),
        Endpoint::Who => get(who::who),
        Endpoint::Versions => get(versions::versions),
        Endpoint::Classes => get(classes::classes),
        Endpoint::ExplainClass => post(classes::explain),
        Endpoint::Divergences => get(proofs::divergences),
        Endpoint::Samples => get(proofs::samples),
        Endpoint::ProveClass => post(proofs::prove),
        Endpoint::ProveProgress => get(proofs::progress),
        Endpoint::LearnClasses => post(learning::learn),
        Endpoint::LearnProgress => get(learning::progress),
        Endpoint::Splits => get(splits::splits),
        Endpoint::SplitClass => post(splits::split),
        Endpoint::JoinClass => post(splits::join),
        Endpoint::Load => get(loads::rows),
        Endpoint::LoadClasses => get(loads::by_class),
        Endpoint::Sources => get(sources),
        Endpoint::Resources => get(resources),
        Endpoint::Resource => get(content::resource),
        Endpoint::Events => get(events::events),
        Endpoint::Tail => get(tail::tail),
        Endpoint::Changes => get(changes::list),
        Endpoint::Change => get(changes::one),
        Endpoint::Rollouts => get(rollouts::plans),
        Endpoint::Rollout => get(rollouts::plan),
        Endpoint::Pushes => get(rollouts::pushes),
        Endpoint::Push => get(rollouts::push),
        Endpoint::Candidate => get(content::candidate),
        Endpoint::Ledger => get(rollouts::ledger),
        Endpoint::InitLedger => post(rollouts::init_ledger),
        Endpoint::Refused => get(refused),
        Endpoint::Drain => get(drain::show),
        Endpoint::BeginDrain => post(drain::begin),
        Endpoint::EndDrain => delete(drain::end),
        Endpoint::Upgrade => post(upgrade::begin),
        Endpoint::Config => get(config::show),
        Endpoint::Reload => post(reload::reload),
        Endpoint::Rollback => post(reload::rollback),
        Endpoint::EndStream => post(acts::end_stream),
        Endpoint::Log => post(acts::set_log),
        Endpoint::ConfirmDeletions => post(acts::confirm_deletions),
        Endpoint::CommandPlan => post(rollouts::command),
        Endpoint::Freeze => post(rollouts::freeze),
        Endpoint::Unfreeze => post(rollouts::unfreeze),
        Endpoint::ClientStatus => post(csds::rest),
        Endpoint::FetchClientStatus | Endpoint::StreamClientStatus => csds::grpc(),
        Endpoint::Page => get(async || ui::to_root()),
        Endpoint::PageRoot | Endpoint::PageBelow => get(ui::page),
        Endpoint::PageAsset => get(ui::asset),
    }
}

/// All other paths. A caller without the role does not learn which paths exist.
const OTHERS: RequestTarget = RequestTarget { method: "this", path: "path", area: Area::View };

/// The answer to `GET /`.
pub(super) static INDEX: LazyLock<String> = LazyLock::new(index);

/// The routes of all endpoints.
pub(super) fn router(admin: Admin) -> Router {
    let mut router = Router::new().fallback(not_found);
    for endpoint in Endpoint::ALL.iter().copied() {
        let mut handler = handler(endpoint);
        let target = RequestTarget::from(endpoint);
        if is_bounded(endpoint) {
            handler = handler.route_layer(from_fn_with_state((admin.clone(), target.area), guard::bound));
        }
        // The answer to a wrong method requires the role, too.
        let check = from_fn_with_state((admin.clone(), target), guard::check);
        router = router.route(target.path, handler.layer(check));
    }
    router
        .layer(from_fn(refuse_body))
        .layer(from_fn_with_state(admin.clone(), host::check))
        .layer(from_fn(guard::protect))
        .with_state(admin)
}

async fn not_found(Shared(admin): Shared<Admin>, request: Request) -> Response {
    match guard::judge(&admin, OTHERS, &request) {
        Ok(()) => (StatusCode::NOT_FOUND, format!("not found\n\n{}", *INDEX)).into_response(),
        Err(refusal) => refusal,
    }
}
