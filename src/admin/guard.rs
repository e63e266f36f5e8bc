//! The checks of each request: its token, its peer, and web pages (AUT-14, ADM-3); and its place (ADM-14).

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::{info, warn};

use super::access::{Area, Denied, Granted, Presented, RequestTarget};
use super::bound::held;
use super::entrance::AdminPeer;
use super::state::Admin;

const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Browsers add this header, and pages cannot change it.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Adds the headers that keep an answer from other sites, from guesses about its type, and from caches
/// (ADM-13). Assets of the page say themselves that they may be kept: their path has their hash.
pub(super) async fn protect(request: Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    let headers = answer.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    answer
}

/// Lets those pass who may use the endpoint.
pub(super) async fn check(
    Shared((admin, endpoint)): Shared<(Admin, RequestTarget)>,
    request: Request,
    next: Next,
) -> Response {
    match judge(&admin, endpoint, &request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal,
    }
}

/// Answers if there is a place.
pub(super) async fn bound(
    Shared((admin, area)): Shared<(Admin, Area)>,
    request: Request,
    next: Next,
) -> Response {
    match admin.permit(area, request.extensions()) {
        Ok(place) => held(next.run(request).await, place),
        Err(refusal) => refusal,
    }
}

/// # Errors
/// The answer to a caller who may not use the endpoint: counted and logged already.
#[expect(clippy::result_large_err, reason = "the error is the answer")]
pub(super) fn judge(admin: &Admin, endpoint: RequestTarget, request: &Request) -> Result<(), Response> {
    let anonymous = Arc::default();
    let peer: &Arc<AdminPeer> = request.extensions().get().unwrap_or(&anonymous);
    let headers = request.headers();
    if endpoint.area != Area::Health && is_from_another_site(headers) && !is_visit(endpoint, headers) {
        let text = "requests of web pages are refused; type the address into the browser, or use a tool\n";
        return Err(refuse(admin, endpoint, peer, "web page", (StatusCode::FORBIDDEN, text).into_response()));
    }
    let presented = presented(headers);
    let settings = admin.settings.get();
    let tokens = settings.tokens.as_ref().map(|tokens| tokens.in_force().epoch());
    let decision =
        settings.access.decide(endpoint.area, peer, presented, tokens.as_ref().map(|epoch| &***epoch));
    let granted = decision.map_err(|denied| {
        let answer = answer(denied, endpoint, &settings.access.public().to_string());
        refuse(admin, endpoint, peer, reason(denied), answer)
    })?;
    if endpoint.area == Area::Act {
        // Any web page can let a browser send a POST to a loopback address, with a client certificate, too.
        // The browser then adds this header. A page cannot have a token.
        if headers.contains_key(header::ORIGIN) && granted.token.is_none() {
            let text = "web pages may not act: send no Origin header, or a token\n";
            let answer = (StatusCode::FORBIDDEN, text).into_response();
            return Err(refuse(admin, endpoint, peer, "web page", answer));
        }
        note_act(endpoint, peer, &granted);
    }
    Ok(())
}

fn is_from_another_site(headers: &HeaderMap) -> bool {
    let site = headers.get(FETCH_SITE).map(HeaderValue::as_bytes);
    site.is_some_and(|site| !matches!(site, b"none" | b"same-origin"))
}

/// A person follows a link to the page, from a chat or a dashboard. The other site cannot read the answer.
fn is_visit(endpoint: RequestTarget, headers: &HeaderMap) -> bool {
    let says =
        |name: HeaderName, value: &[u8]| headers.get(name).is_some_and(|header| header.as_bytes() == value);
    endpoint.path.starts_with("/ui") && says(FETCH_MODE, b"navigate") && says(FETCH_DEST, b"document")
}

/// The token of the header `Authorization`, the only place where a token is read: addresses get into logs.
fn presented(headers: &HeaderMap) -> Presented<'_> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        let is_there = headers.contains_key(header::AUTHORIZATION);
        return if is_there { Presented::Unusable } else { Presented::Nothing };
    };
    match value.as_bytes().split_at_checked(b"Bearer ".len()) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"Bearer ") => {
            Presented::Token(token.trim_ascii())
        }
        _ => Presented::Unusable,
    }
}

fn refuse(
    admin: &Admin,
    endpoint: RequestTarget,
    peer: &AdminPeer,
    reason: &'static str,
    answer: Response,
) -> Response {
    admin.metrics.downstream.denied("admin", 1);
    if let Some(suppressed) = admin.throttle.allow(reason) {
        let (address, identity) = (peer.address.map(tracing::field::display), &peer.identity);
        warn!(%endpoint, peer = address, %identity, reason, suppressed, "refused an admin request");
    }
    answer
}

fn note_act(endpoint: RequestTarget, peer: &AdminPeer, granted: &Granted) {
    let (address, identity) = (peer.address.map(tracing::field::display), &peer.identity);
    info!(%endpoint, peer = address, %identity, token = granted.token, "an operator acts");
}

fn reason(denied: Denied) -> &'static str {
    match denied {
        Denied::Plaintext => "open to the network without admin.tls",
        Denied::NobodyMay => "no admin.auth",
        Denied::NoProof => "no token, and no certificate with a role",
        Denied::BadToken => "unknown token",
        Denied::OtherUser => "another user",
        Denied::Lacks(_) => "another role",
    }
}

fn answer(denied: Denied, endpoint: RequestTarget, public: &str) -> Response {
    let role = endpoint.area.name();
    let (status, challenge, text) = match denied {
        Denied::Plaintext => (
            StatusCode::FORBIDDEN,
            None,
            format!("without admin.tls, a listener on the network answers public paths only: {public}"),
        ),
        Denied::NobodyMay => (
            StatusCode::FORBIDDEN,
            None,
            format!("without admin.auth, a listener on the network answers public paths only: {public}"),
        ),
        Denied::NoProof => (
            StatusCode::UNAUTHORIZED,
            Some("Bearer realm=\"sluice admin\""),
            format!(
                "{endpoint} needs the role {role}: send the header `Authorization: Bearer TOKEN` (a token in the query \
                 is not read), or a client certificate with this role"
            ),
        ),
        Denied::BadToken => (
            StatusCode::UNAUTHORIZED,
            Some("Bearer realm=\"sluice admin\", error=\"invalid_token\""),
            format!("{endpoint} needs the role {role}, and the token is unknown: see admin.auth.tokens"),
        ),
        Denied::OtherUser => (
            StatusCode::FORBIDDEN,
            None,
            format!(
                "{endpoint} is for root and the user of the relay; admin.auth gives the role {role} to others"
            ),
        ),
        Denied::Lacks(roles) => (
            StatusCode::FORBIDDEN,
            Some("Bearer realm=\"sluice admin\", error=\"insufficient_scope\""),
            format!("{endpoint} needs the role {role}; yours: {roles}"),
        ),
    };
    let mut response = (status, text + "\n").into_response();
    if let Some(challenge) = challenge {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    }
    response
}
