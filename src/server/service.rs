//! From a request's path to what answers it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, Ready, ready};
use http::{HeaderMap, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout};
use tonic::codegen::Service as _;

use super::body::{ResponseBody, StreamBody};
use super::listener::ListenerOptions;
use super::reader::read_requests;
use super::status;
use super::streams::Streams;
use super::unary::{Unary, is_rest};
use super::{HealthService, Shared};
use crate::driver::handle::{Peer, Relay};
use crate::telemetry::Limit;
use crate::telemetry::metrics::CallKind;
use crate::wire::RequestReader;
use crate::xds::{ApiVersion, Call, Code, Method, Status, StreamKind};

/// What answers a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// The discovery services (RPC-1, RPC-2).
    Discovery(Method),
    /// tonic's health service.
    Health,
}

fn route(path: &str) -> Option<Route> {
    match path {
        "/grpc.health.v1.Health/Check" | "/grpc.health.v1.Health/Watch" => Some(Route::Health),
        _ => Method::of_path(path).map(Route::Discovery),
    }
}

/// Answers the calls of one connection.
pub(super) struct Service<R: Relay> {
    pub(super) shared: Arc<Shared<R>>,
    pub(super) streams: Arc<Streams<R::Stream>>,
    pub(super) peer: Peer,
    pub(super) options: ListenerOptions,
}

type Answer<S> = Response<ResponseBody<S>>;

impl<R: Relay> hyper::service::Service<Request<Incoming>> for Service<R> {
    type Response = Answer<R::Stream>;
    type Error = Infallible;
    type Future = Either<
        Ready<Result<Self::Response, Infallible>>,
        BoxFuture<'static, Result<Self::Response, Infallible>>,
    >;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.streams.mark_used();
        if let Some(refused) = self.refuse_long_headers(&request) {
            return Either::Left(ready(Ok(refused)));
        }
        if is_rest(request.uri().path()) {
            self.shared.metrics.call(CallKind::Rest);
            return Either::Right(self.unary().rest(request).map(Ok).boxed());
        }
        if request.method() != http::Method::POST {
            let mut response = status::plain(StatusCode::METHOD_NOT_ALLOWED);
            response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("POST"));
            return Either::Left(ready(Ok(response)));
        }
        if !is_grpc(request.headers()) {
            let is_known = route(request.uri().path()).is_some();
            let code = if is_known { StatusCode::UNSUPPORTED_MEDIA_TYPE } else { StatusCode::NOT_FOUND };
            return Either::Left(ready(Ok(status::plain(code))));
        }
        if request.version() < Version::HTTP_2 {
            // Streams and trailers need HTTP/2.
            return Either::Left(ready(Ok(status::plain(StatusCode::HTTP_VERSION_NOT_SUPPORTED))));
        }
        match route(request.uri().path()) {
            Some(Route::Discovery(method)) if method.api == ApiVersion::V2 && !self.options.v2 => {
                let text = format!(
                    "{} is a method of the v2 API, which `v2: true` on the listener turns on",
                    request.uri().path()
                );
                Either::Left(ready(Ok(self.unimplemented(text))))
            }
            Some(Route::Discovery(method)) => match method.call {
                Call::Stream(variant) => {
                    let (service, api, v2) = (method.service, method.api, self.options.v2);
                    let kind = StreamKind { variant, service, api, v2 };
                    Either::Left(ready(Ok(self.open_stream(kind, request.into_body()))))
                }
                Call::Fetch => match method.service {
                    Some(service) => {
                        self.shared.metrics.call(CallKind::Fetch);
                        let answer = self.unary().fetch(service, method.api, request.into_body());
                        Either::Right(answer.map(Ok).boxed())
                    }
                    // There is no aggregated Fetch.
                    None => {
                        let text = format!("{} is not served here", request.uri().path());
                        Either::Left(ready(Ok(self.unimplemented(text))))
                    }
                },
            },
            Some(Route::Health) => {
                let time = self.shared.limits.first_request_timeout;
                Either::Right(
                    answer_health(self.shared.health_service.clone(), request, time).map(Ok).boxed(),
                )
            }
            None => {
                let text = format!("{} is not served here", request.uri().path());
                Either::Left(ready(Ok(self.unimplemented(text))))
            }
        }
    }
}

impl<R: Relay> Service<R> {
    /// HTTP/2 lets through what is a few times too long; here it is counted and told.
    fn refuse_long_headers(&self, request: &Request<Incoming>) -> Option<Answer<R::Stream>> {
        let max = self.shared.limits.header_list_bytes_max;
        let found = header_list_bytes(request);
        if found <= max as usize {
            return None;
        }
        self.shared.metrics.limit_hit(Limit::HeaderListBytes);
        if !is_grpc(request.headers()) {
            return Some(status::plain(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
        }
        let text = format!("bytes of a call's headers: found {found}, allowed are {max}");
        Some(status::trailers_only(&Status::new(Code::ResourceExhausted, text)))
    }

    fn unary(&self) -> Unary<R> {
        let (shared, streams, peer) = (self.shared.clone(), self.streams.clone(), self.peer.clone());
        Unary { shared, streams, peer, options: self.options }
    }

    fn unimplemented(&self, text: String) -> Answer<R::Stream> {
        self.shared.metrics.calls_unimplemented.inc();
        status::trailers_only(&Status::new(Code::Unimplemented, text))
    }

    fn open_stream(&self, kind: StreamKind, body: Incoming) -> Answer<R::Stream> {
        let Shared { relay, limits, metrics, .. } = &*self.shared;
        if self.streams.refuses_new() {
            return status::trailers_only(&draining());
        }
        let stream = match relay.open(kind, self.peer.clone()) {
            Ok(stream) => stream,
            Err(status) => return status::trailers_only(&status),
        };
        metrics.call(if kind.service.is_some() { CallKind::PerType } else { CallKind::Ads });
        let Some(registered) = self.streams.register(stream.clone(), Some(kind.variant)) else {
            return status::trailers_only(&draining());
        };
        let requests = RequestReader::new(kind.variant, limits.requests);
        let deadline = Instant::now() + limits.first_request_timeout;
        let reader = tokio::spawn(read_requests(body, requests, stream, deadline, metrics.clone()));
        let body = StreamBody::new(registered, reader.abort_handle());
        status::stream_response(ResponseBody::Stream(body))
    }
}

fn draining() -> Status {
    Status::new(Code::Unavailable, "the server is draining")
}

/// The size of a call's headers as RFC 9113 §6.5.2 counts it: names and values, and 32 bytes for each field.
fn header_list_bytes(request: &Request<Incoming>) -> usize {
    const FIELD: usize = 32;
    let uri = request.uri();
    let scheme = uri.scheme_str().map_or(0, |scheme| ":scheme".len() + scheme.len() + FIELD);
    let authority =
        uri.authority().map_or(0, |authority| ":authority".len() + authority.as_str().len() + FIELD);
    let path = uri.path_and_query().map_or(0, |path| ":path".len() + path.as_str().len() + FIELD);
    let method = ":method".len() + request.method().as_str().len() + FIELD;
    let fields = request
        .headers()
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + FIELD)
        .sum::<usize>();
    scheme + authority + path + method + fields
}

/// `application/grpc`, with or without a codec or parameters; not `application/grpc-web`, which frames differently.
fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).map_or(&[][..], |value| value.as_bytes());
    let rest = content_type.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

async fn answer_health<S: crate::driver::handle::RelayStream>(
    mut health: HealthService,
    request: Request<Incoming>,
    first_request_timeout: Duration,
) -> Answer<S> {
    match timeout(first_request_timeout, health.call(request)).await {
        Ok(Ok(response)) => response.map(ResponseBody::Health),
        Ok(Err(never)) => match never {},
        Err(_) => status::trailers_only(&Status::new(Code::DeadlineExceeded, "no request came in time")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn content_types_of_grpc() {
        for (content_type, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/grpcx", false),
            ("application/json", false),
        ] {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, content_type.parse().unwrap())]);
            assert_eq!(is_grpc(&headers), expected, "{content_type}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
