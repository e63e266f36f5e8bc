//! Client status (CSDS, ADM-20): the relay as a client of its servers, and as the server of its clients.
//!
//! 1. `matcher`: the selection of clients. `answer`: the bounded answer.
//! 2. `as_client`, `as_server`: the two views. [`rest`]: the same with JSON.
//!
//! The service is tonic's, behind tower's layers, on the admin listener only: on a listener for clients, one
//! client could read another (ADR 31).

mod matcher;
mod answer;
mod as_client;
mod as_server;
mod rest;

use std::sync::Arc;
use std::time::Duration;

use axum::BoxError;
use axum::body::Body;
use axum::error_handling::HandleErrorLayer;
use axum::extract::{Request, State as Shared};
use axum::response::Response;
use axum::routing::{MethodRouter, post};
use futures_util::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status, Streaming};
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::timeout::TimeoutLayer;
use tower::{ServiceBuilder, ServiceExt};

use super::bound::{RequestPlace, held, turn_of};
use super::state::Admin;
use super::turn::RequestTurn;
use crate::telemetry::Limit;
pub(super) use rest::rest;
use sluice_proto::csds::service::client_status_discovery_service_server::{
    ClientStatusDiscoveryService, ClientStatusDiscoveryServiceServer,
};
use sluice_proto::csds::{ClientStatusRequest, ClientStatusResponse};

/// A request has 64 conditions of 4 KiB at most.
const REQUEST_BYTES_MAX: usize = 512 << 10;

/// Calls at once. A call may hold an answer of 64 MiB until its reader has taken the last byte.
pub(super) const CALLS_MAX: usize = 4;

/// Requests whose answers are begun at once, so that a few connections cannot start hundreds.
const BEGUN_MAX: usize = 16;

/// The time for one answer. Ten thousand resources take about a second.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// The life of a stream. Most clients ask once.
const STREAM_MAX: Duration = Duration::from_secs(120);

/// The two gRPC methods, behind a timeout and a limit of concurrency. The role is checked before, as for
/// every endpoint.
pub(super) fn grpc() -> MethodRouter<Admin> {
    let layers = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(async |_: BoxError| {
            Status::deadline_exceeded("the answer takes too long; narrow the request").into_http::<Body>()
        }))
        .layer(TimeoutLayer::new(ANSWER_MAX))
        .layer(GlobalConcurrencyLimitLayer::new(BEGUN_MAX));
    post(call).layer(layers)
}

/// Holds a place until the reader has taken the last byte.
async fn call(Shared(admin): Shared<Admin>, request: Request) -> Response {
    let turn = turn_of(request.extensions());
    let place = Arc::new(CallPlace { turn, place: Mutex::default() });
    if let Err(refusal) = place.take(&admin) {
        return refusal.into_http::<Body>();
    }
    let service = ClientStatusDiscoveryServiceServer::new(Csds { admin, place: place.clone() });
    let service = service.max_decoding_message_size(REQUEST_BYTES_MAX);
    let Ok(response) = service.oneshot(request).await;
    held(response.map(Body::new), place)
}

#[derive(Clone)]
struct Csds {
    admin: Admin,
    place: Arc<CallPlace>,
}

/// The place of a call. A stream has none while it waits for a request.
struct CallPlace {
    turn: Arc<RequestTurn>,
    place: Mutex<Option<RequestPlace>>,
}

impl CallPlace {
    fn take(&self, admin: &Admin) -> Result<(), Status> {
        let place = admin.budgets.calls.take(&self.turn).ok_or_else(|| too_many(admin))?;
        *self.place.lock() = Some(place);
        Ok(())
    }

    fn free(&self) {
        *self.place.lock() = None;
    }
}

fn too_many(admin: &Admin) -> Status {
    admin.metrics.limit_hit(Limit::AdminRequests);
    Status::unavailable("too many requests for client status at once")
}

#[tonic::async_trait]
impl ClientStatusDiscoveryService for Csds {
    type StreamClientStatusStream = BoxStream<'static, Result<ClientStatusResponse, Status>>;

    /// One answer for each request (CSD-1).
    async fn stream_client_status(
        &self,
        request: tonic::Request<Streaming<ClientStatusRequest>>,
    ) -> Result<tonic::Response<Self::StreamClientStatusStream>, Status> {
        let state = (self.clone(), Some(request.into_inner()), Instant::now() + STREAM_MAX);
        let answers = stream::unfold(state, async |(csds, requests, end)| {
            let mut requests = requests?;
            csds.place.free();
            csds.place.turn.set_idle(true);
            let message = timeout_at(end, requests.message()).await;
            csds.place.turn.set_idle(false);
            let answer = match message {
                Ok(Ok(Some(request))) => match csds.place.take(&csds.admin) {
                    Ok(()) => answer(&csds.admin, request).await,
                    Err(refusal) => Err(refusal),
                },
                Ok(Ok(None)) => return None,
                Ok(Err(status)) => Err(status),
                Err(_) => Err(Status::deadline_exceeded("the stream is too old; open another one")),
            };
            let goes_on = answer.is_ok();
            Some((answer, (csds, goes_on.then_some(requests), end)))
        });
        Ok(tonic::Response::new(answers.boxed()))
    }

    async fn fetch_client_status(
        &self,
        request: tonic::Request<ClientStatusRequest>,
    ) -> Result<tonic::Response<ClientStatusResponse>, Status> {
        answer(&self.admin, request.into_inner()).await.map(tonic::Response::new)
    }
}

async fn answer(admin: &Admin, request: ClientStatusRequest) -> Result<ClientStatusResponse, Status> {
    let answered = match request.node_matchers.is_empty() {
        true => as_client::answer(admin, &request).await,
        false => as_server::answer(admin, &request).await,
    };
    answered.map_err(|status| Status::new(Code::from_i32(status.code as i32), status.message))
}
