//! The REST form (ADM-25): proto3 JSON both ways.

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State as Shared};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use prost::Message;
use serde_json::json;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::{ANSWER_MAX, REQUEST_BYTES_MAX, answer, too_many};
use crate::admin::bound::{held, turn_of};
use crate::admin::state::Admin;
use sluice_json::read_status_request;
use sluice_json::redact::{Reader, redact};
use sluice_proto::csds::ClientStatusRequest;
use sluice_xds::TypeUrl;

const RESPONSE: &str = "envoy.service.status.v3.ClientStatusResponse";

/// `POST /v3/discovery:client_status`.
pub(in crate::admin) async fn rest(Shared(admin): Shared<Admin>, request: Request) -> Response {
    let Some(place) = admin.budgets.calls.take(&turn_of(request.extensions())) else {
        return refuse(&too_many(&admin));
    };
    match timeout(ANSWER_MAX, respond(&admin, request.into_body())).await {
        Ok(Ok(body)) => held(([(header::CONTENT_TYPE, "application/json")], body).into_response(), place),
        Ok(Err(status)) => refuse(&status),
        Err(_) => refuse(&Status::deadline_exceeded("the answer takes too long; narrow the request")),
    }
}

async fn respond(admin: &Admin, body: Body) -> Result<String, Status> {
    let body = to_bytes(body, REQUEST_BYTES_MAX).await;
    let body = body.map_err(|_| Status::invalid_argument("the body is incomplete, or too large"))?;
    let text = std::str::from_utf8(&body).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let text = if text.trim().is_empty() { "{}" } else { text };
    let request = read_status_request(text).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let request =
        ClientStatusRequest::decode(request).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let answered = Bytes::from(answer(admin, request).await?.encode_to_vec());
    let written = tokio::task::spawn_blocking(move || {
        match redact(&TypeUrl::of_message(RESPONSE), &answered, Reader::Parser) {
            json @ serde_json::Value::Object(_) => Ok(json.to_string()),
            _ => Err(Status::resource_exhausted("too much for JSON; narrow node_matchers, or use gRPC")),
        }
    });
    written.await.unwrap_or_else(|_| Err(Status::internal("the answer failed")))
}

/// The status as JSON, under the HTTP status that gRPC's documents assign to its code.
fn refuse(status: &Status) -> Response {
    let http = match status.code() {
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (http, axum::Json(json!({ "code": status.code() as i32, "message": status.message() }))).into_response()
}
