//! The operator's page: HTML made by the relay, which works without scripts (PAG-1, ADR 34).
//!
//! A page shows the data of the endpoint with its name, and takes the same query. Nothing here changes the
//! relay (PAG-3): where something is to be done, the page shows the command.
//!
//! 1. `text`: values as people read them, and their escaping. `assets`: the sheet and the scripts. `parts`:
//!    states and commands as words and shapes.
//! 2. `frame`: the head of all pages, and the page of a request that fails. `filter`: the query of a list, as
//!    a form.
//! 3. `plot`: plots, made here.
//! 4. A file per page, each with its template in `templates/`.

mod text;
mod assets;
mod parts;
mod frame;
mod filter;
mod clients;
mod client;
mod sources;
mod classes;
mod loads;
mod resources;
mod events;
mod plot;
mod changes;
mod rollouts;
mod overview;
mod diff;
mod tail;
mod explain;
mod resource;
mod config;

use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};

use super::state::Admin;
use frame::{Ask, PageFault};

/// No inline script or style, nothing from elsewhere, and no frame of another page (PAG-2).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Pages and assets below this path.
const ROOT: &str = "/ui/";

/// `/`: the list of endpoints; for a browser, the page.
pub(super) fn index(headers: &HeaderMap, list: &'static str) -> Response {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    match accepted.and_then(|accepted| accepted.split([',', ';']).next()) {
        Some("text/html") => to_root(),
        _ => list.into_response(),
    }
}

pub(super) fn to_root() -> Response {
    Redirect::to(ROOT).into_response()
}

/// `/ui/assets/…`.
pub(super) async fn asset(request: Request) -> Response {
    let path = request.uri().path();
    let asset = path.strip_prefix("/ui/assets/").and_then(assets::find);
    asset.unwrap_or_else(|| (StatusCode::NOT_FOUND, "not an asset of this release\n").into_response())
}

/// `/ui/…`.
pub(super) async fn page(Shared(admin): Shared<Admin>, request: Request) -> Response {
    let (head, _) = request.into_parts();
    let ask = Ask { admin: &admin, uri: &head.uri, headers: &head.headers, now: admin.relay.now() };
    let (status, html) = match html(&ask).await {
        Ok(html) => (StatusCode::OK, html),
        Err(fault) => (fault.status, fault.html(&ask)),
    };
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "same-origin"),
    ];
    (status, headers, html).into_response()
}

async fn html(ask: &Ask<'_>) -> Result<String, PageFault> {
    ask.admin.relay.refresh().await;
    let path = ask.uri.path().strip_prefix(ROOT).unwrap_or_default();
    let segments: Vec<&str> = path.split('/').collect();
    match *segments.as_slice() {
        [""] => overview::html(ask).await,
        ["changes"] => changes::html(ask).await,
        ["changes", id] => changes::one(ask, id).await,
        ["rollouts"] => rollouts::html(ask),
        ["rollouts", plan] => rollouts::plan(ask, plan),
        ["rollouts", plan, push] => rollouts::push(ask, plan, push),
        ["clients"] => clients::html(ask).await,
        ["clients", id] => client::html(ask, id),
        ["clients", id, "diff"] => diff::html(ask, id).await,
        ["clients", id, "tail"] => tail::html(ask, id).await,
        ["clients", id, "explain"] => explain::html(ask, id).await,
        ["resource"] => resource::html(ask).await,
        ["sources"] => sources::html(ask).await,
        ["classes"] => classes::html(ask).await,
        ["load"] => loads::html(ask).await,
        ["events"] => events::html(ask),
        ["resources"] => resources::html(ask).await,
        ["config"] => config::html(ask).await,
        _ => Err(PageFault::not_found(format!("There is no page {path:?}."))),
    }
}
