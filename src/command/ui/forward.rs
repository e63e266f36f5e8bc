//! A request of the browser, sent to the relay as a request of the caller, and the answer.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    LOCATION, REFERRER_POLICY, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;

use super::gate;
use crate::command::address::Target;
use crate::command::request::{Caller, Open};

pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The passed headers. Cookies and credentials of the browser never reach the relay.
const ASKED: [HeaderName; 2] = [ACCEPT, LAST_EVENT_ID];
const ANSWERED: [HeaderName; 8] = [
    CONTENT_TYPE,
    CACHE_CONTROL,
    CONTENT_SECURITY_POLICY,
    REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
    RESOURCE_POLICY,
    RETRY_AFTER,
    LOCATION,
];

/// The time between two parts of an answer. A live stream of the relay has a comment every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The longest refusal of a relay.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

pub(super) async fn answer(caller: &Caller, relay: &Target, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    if let Err((status, reason)) = gate::check(&head.method, &head.uri, &head.headers) {
        return say(status, reason);
    }
    if !body.is_end_stream() {
        return say(StatusCode::PAYLOAD_TOO_LARGE, "the page takes no body");
    }
    let path =
        head.uri.path_and_query().filter(|path| path.path() != "/").map_or("/ui/", |path| path.as_str());
    let headers = chosen(&head.headers, &ASKED);
    match caller.forward(relay, &head.method, path, headers).await {
        Ok(open) => pass(open, relay).await,
        Err(missing) => {
            let text = format!("the relay {} does not answer: {}", relay.label, missing.text());
            say(StatusCode::BAD_GATEWAY, &text)
        }
    }
}

/// The relay's answer. A refusal of the caller is told in words: the browser cannot mend it by a password.
async fn pass(open: Open, relay: &Target) -> Response<Body> {
    let (head, body, connection) = open.split();
    if [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&head.status) {
        let text = match timeout(SILENCE_MAX, Limited::new(body, REFUSAL_BYTES_MAX).collect()).await {
            Ok(Ok(body)) => String::from_utf8_lossy(&body.to_bytes()).trim().to_owned(),
            Ok(Err(_)) | Err(_) => head.status.to_string(),
        };
        let text = format!(
            "the relay {} refuses: {text}\n\nsluice ui asks as its command line says: --token-file FILE, or --cert \
             FILE and --key FILE",
            relay.label
        );
        return say(StatusCode::FORBIDDEN, &text);
    }
    let parts = stream::unfold((body, connection), |(mut body, connection)| async {
        let part = match timeout(SILENCE_MAX, body.frame()).await {
            Ok(part) => part?.map_err(io::Error::other),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        Some((part, (body, connection)))
    });
    let mut answer = Response::new(StreamBody::new(parts).boxed_unsync());
    *answer.status_mut() = head.status;
    *answer.headers_mut() = chosen(&head.headers, &ANSWERED);
    // A redirection stays on the page.
    if answer.headers().get(LOCATION).is_some_and(|to| !to.as_bytes().starts_with(b"/ui/")) {
        answer.headers_mut().remove(LOCATION);
    }
    answer
}

fn chosen(headers: &HeaderMap, names: &[HeaderName]) -> HeaderMap {
    let kept = names.iter().filter_map(|name| Some((name.clone(), headers.get(name)?.clone())));
    kept.collect()
}

/// A text of this command.
fn say(status: StatusCode, text: &str) -> Response<Body> {
    let body = Full::new(Bytes::from(format!("{text}\n"))).map_err(|never| match never {}).boxed_unsync();
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = [
        (CONTENT_TYPE, "text/plain; charset=utf-8"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CACHE_CONTROL, "no-store"),
        (RESOURCE_POLICY, "same-origin"),
    ];
    for (name, value) in headers {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}
