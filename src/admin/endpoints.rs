//! The table of endpoints: each with its role (AUT-14). An endpoint without a role does not compile.

use std::sync::LazyLock;

use axum::Router;
use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};

use super::access::{Area, Target};
use super::bound::bound;
use super::state::Admin;
use super::ui;
use super::{
    changes, classes, client, confirm, content, csds, events, guard, host, metrics, overview, ready,
    refuse_body, refused, resources, rollouts, sources, tail, versions, who,
};
use super::{config, drain, end, log, reload, upgrade};

/// An endpoint in the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Endpoint {
    /// The path, and the role that opens it.
    pub target: Target,
    /// The parameters.
    query: &'static str,
    about: &'static str,
    handler: fn() -> MethodRouter<Admin>,
    /// Whether the endpoint counts for the limit of concurrent requests.
    is_bounded: bool,
}

const fn open(
    path: &'static str,
    area: Area,
    about: &'static str,
    handler: fn() -> MethodRouter<Admin>,
) -> Endpoint {
    Endpoint { target: Target { method: "GET", path, area }, query: "", about, handler, is_bounded: false }
}

/// An endpoint with two answers: a bounded one, and a live one with a budget of its own. The handler takes the permit.
const fn live(
    path: &'static str,
    query: &'static str,
    about: &'static str,
    handler: fn() -> MethodRouter<Admin>,
) -> Endpoint {
    Endpoint {
        target: Target { method: "GET", path, area: Area::View },
        query,
        about,
        handler,
        is_bounded: false,
    }
}

const fn bounded(
    (method, path): (&'static str, &'static str),
    area: Area,
    query: &'static str,
    about: &'static str,
    handler: fn() -> MethodRouter<Admin>,
) -> Endpoint {
    Endpoint { target: Target { method, path, area }, query, about, handler, is_bounded: true }
}

/// A question with a body, besides those for client status: a node is too long for a query.
const EXPLAIN_CLASS: (&str, &str) = ("POST", "/classes/explain");

/// A plan may be for the text in the body.
const RELOAD: (&str, &str) = ("POST", "/reload");

/// Whether the endpoint of a request reads the body, and bounds it.
pub(super) fn takes_body(request: &Request) -> bool {
    let path = request.uri().path();
    [EXPLAIN_CLASS, RELOAD].contains(&(request.method().as_str(), path)) || csds::takes_body(path)
}

/// An endpoint with a limit of its own.
const fn unbounded(
    (method, path): (&'static str, &'static str),
    about: &'static str,
    handler: fn() -> MethodRouter<Admin>,
) -> Endpoint {
    Endpoint {
        target: Target { method, path, area: Area::View },
        query: "",
        about,
        handler,
        is_bounded: false,
    }
}

pub(super) const ENDPOINTS: &[Endpoint] = &[
    open("/", Area::View, "this list; for a browser, the page", || {
        get(async |headers: HeaderMap| ui::index(&headers, &INDEX))
    }),
    open("/healthz", Area::Health, "200 while the process lives", || get(async || "ok\n")),
    open("/ready", Area::Ready, "200 while the relay may get traffic; the state of every upstream", || {
        get(ready)
    }),
    bounded(("GET", "/metrics"), Area::Metrics, "", "OpenMetrics text", || get(metrics)),
    live("/overview", "", "the whole relay; live as text/event-stream", || get(overview::overview)),
    bounded(
        ("GET", "/clients"),
        Area::View,
        "?node=&q=&type=&state=&why=&server=&class=&listener=&behind_for=&sort=&after=&limit=",
        "the downstream streams",
        || get(client::clients),
    ),
    bounded(
        ("GET", "/clients/{id}"),
        Area::View,
        "?type=&names=&after=&limit=",
        "one downstream stream",
        || get(client::one),
    ),
    bounded(
        ("GET", "/clients/{id}/diff"),
        Area::View,
        "?to=&type=&name=&format=&any_class=",
        "from what a client has to what it should have",
        || get(client::diff),
    ),
    bounded(
        ("GET", "/clients/{id}/explain"),
        Area::View,
        "?type=&name=",
        "why a client has its content",
        || get(client::explain),
    ),
    bounded(
        ("GET", "/who"),
        Area::View,
        "?type=&name=&version=&after=&limit=",
        "the clients that have, lack or rejected a resource",
        || get(who::who),
    ),
    bounded(
        ("GET", "/versions"),
        Area::View,
        "?type=&name=",
        "the versions of a resource that clients hold, and their rejections",
        || get(versions::versions),
    ),
    bounded(("GET", "/classes"), Area::View, "?q=&after=&limit=", "the node classes", || {
        get(classes::classes)
    }),
    bounded(EXPLAIN_CLASS, Area::View, "", "the class of the node in the body, as JSON", || {
        post(classes::explain)
    }),
    bounded(
        ("GET", "/sources"),
        Area::View,
        "?server=&type=&state=&after=&limit=",
        "the upstream attachments",
        || get(sources),
    ),
    bounded(("GET", "/resources"), Area::View, "?type=&name=&state=&after=&limit=", "what is cached", || {
        get(resources)
    }),
    bounded(
        ("GET", "/resources/{type}/{*name}"),
        Area::View,
        "?source=&format=",
        "one resource, with its content but for secrets",
        || get(content::resource),
    ),
    live("/events", "?kind=&severity=&after=&limit=", "what happened; live as text/event-stream", || {
        get(events::events)
    }),
    live("/tail", "?client=&node=&type=", "one client's requests and responses, live", || get(tail::tail)),
    bounded(
        ("GET", "/changes"),
        Area::View,
        "?type=&source=&after=&limit=",
        "the published changes, and the clients' answers",
        || get(changes::list),
    ),
    bounded(("GET", "/changes/{id}"), Area::View, "", "one change", || get(changes::one)),
    bounded(("GET", "/rollouts"), Area::View, "?after=&limit=", "the plans for pushes", || {
        get(rollouts::plans)
    }),
    bounded(("GET", "/rollouts/{plan}"), Area::View, "", "one plan, with its latest push", || {
        get(rollouts::plan)
    }),
    bounded(
        ("GET", "/rollouts/{plan}/pushes"),
        Area::View,
        "?after=&limit=",
        "the pushes that a plan remembers",
        || get(rollouts::pushes),
    ),
    bounded(("GET", "/rollouts/{plan}/pushes/{push}"), Area::View, "", "one push", || get(rollouts::push)),
    bounded(
        ("GET", "/rollouts/{plan}/pushes/{push}/candidate"),
        Area::View,
        "?after=&limit=",
        "the resources of the push under way, with their content but for secrets",
        || get(content::candidate),
    ),
    bounded(
        ("GET", "/refused"),
        Area::View,
        "?after=&limit=",
        "clients for whose node class there was no room",
        || get(refused),
    ),
    bounded(("GET", "/drain"), Area::View, "", "an operator's drain, or none", || get(drain::show)),
    bounded(
        ("POST", "/drain"),
        Area::Act,
        "?over=&after=&dry_run=",
        "takes the relay out of service, and lets its clients go over a time",
        || post(drain::begin),
    ),
    bounded(("DELETE", "/drain"), Area::Act, "", "takes the relay into service again", || delete(drain::end)),
    bounded(
        ("POST", "/upgrade"),
        Area::Act,
        "?now=&dry_run=&binary=",
        "starts a new process that takes over sockets and state; this one drains",
        || post(upgrade::begin),
    ),
    bounded(
        ("GET", "/config"),
        Area::View,
        "?generation=&against=",
        "the configuration in force without credentials, and those before; a difference",
        || get(config::show),
    ),
    bounded(RELOAD, Area::Act, "?dry_run=&yes=", "takes the configuration file again", || {
        post(reload::reload)
    }),
    bounded(
        ("POST", "/rollback"),
        Area::Act,
        "?to=&dry_run=&yes=",
        "takes an earlier configuration again",
        || post(reload::rollback),
    ),
    bounded(("POST", "/clients/{id}/end"), Area::Act, "", "ends one stream", || post(end::stream)),
    bounded(("POST", "/log"), Area::Act, "?level=&for=", "other log directives for a time", || {
        post(log::set)
    }),
    bounded(
        ("POST", "/confirm_deletions"),
        Area::Act,
        "?server=&type=",
        "confirms mass deletions that are held back",
        || post(confirm::deletions_meant),
    ),
    bounded(
        ("POST", "/rollouts/{plan}/{command}"),
        Area::Act,
        "?push=&step=&all=&class=&condemn=&to=&until=&for=&reason=&as=",
        "pause, resume, promote, abort, bar, pin, unpin or rollback: a push of a plan",
        || post(rollouts::command),
    ),
    bounded(("POST", "/freeze"), Area::Act, "?for=&reason=&as=", "begins no push for a time", || {
        post(rollouts::freeze)
    }),
    bounded(("POST", "/unfreeze"), Area::Act, "?reason=&as=", "lets pushes begin again", || {
        post(rollouts::unfreeze)
    }),
    unbounded(("POST", csds::REST), "client status (CSDS) in JSON", || post(csds::rest)),
    unbounded(("POST", csds::FETCH), "client status, by gRPC", csds::grpc),
    unbounded(("POST", csds::STREAM), "client status, by gRPC", csds::grpc),
    open("/ui", Area::View, "the page", || get(async || ui::to_root())),
    bounded(("GET", "/ui/"), Area::View, "", "the page", || get(ui::page)),
    bounded(("GET", "/ui/{*page}"), Area::View, "", "the page", || get(ui::page)),
    open("/ui/assets/{build}/{name}", Area::View, "its sheet and scripts", || get(ui::asset)),
];

/// All other paths. A caller without the role does not learn which paths exist.
const OTHERS: Target = Target { method: "this", path: "path", area: Area::View };

/// The answer to `GET /`.
pub(super) static INDEX: LazyLock<String> = LazyLock::new(|| {
    let line = |endpoint: &Endpoint| {
        let (head, role) = (endpoint.target.to_string(), endpoint.target.area.name());
        format!("{head:<24} {role:<8} {:<29} {}\n", endpoint.query, endpoint.about)
    };
    format!("sluice admin: path, role, parameters\n{}", ENDPOINTS.iter().map(line).collect::<String>())
});

impl Admin {
    pub(super) fn router(self) -> Router {
        let mut router = Router::new().fallback(not_found);
        for endpoint in ENDPOINTS {
            let mut handler = (endpoint.handler)();
            if endpoint.is_bounded {
                handler =
                    handler.route_layer(from_fn_with_state((self.clone(), endpoint.target.area), bound));
            }
            // Also the answer to a wrong method takes the role.
            let check = from_fn_with_state((self.clone(), endpoint.target), guard::check);
            router = router.route(endpoint.target.path, handler.layer(check));
        }
        router
            .layer(from_fn(refuse_body))
            .layer(from_fn_with_state(self.clone(), host::check))
            .layer(from_fn(guard::protect))
            .with_state(self)
    }
}

async fn not_found(Shared(admin): Shared<Admin>, request: Request) -> Response {
    match guard::judge(&admin, OTHERS, &request) {
        Ok(()) => (StatusCode::NOT_FOUND, format!("not found\n\n{}", *INDEX)).into_response(),
        Err(refusal) => refusal,
    }
}
