//! Load reports (LRS): the streams stay open, and the reports are dropped.
//!
//! The relay has no use for reports yet. But a refusal is worse than a stream without use: an Envoy retries
//! every 5 s, for ever, so 10,000 Envoys make 2,000 calls a second (RPC-8). So the first response asks for no
//! cluster and for a report in five minutes. There is no second response, because each response restarts
//! Envoy's interval.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use http::HeaderMap;
use tokio::task::coop;
use tokio::time::Instant;

use super::body::{Piece, poll_data};
use super::status;
use super::streams::Streams;
use crate::driver::api::downstream::RelayStream;
use crate::telemetry::Limit;
use crate::telemetry::metrics::DownstreamMetrics;
use sluice_xds::{ApiVersion, Code, Status};

/// The API of the load reporting method with this path.
pub(super) fn api_of_path(path: &str) -> Option<ApiVersion> {
    match path {
        "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats" => Some(ApiVersion::V3),
        "/envoy.service.load_stats.v2.LoadReportingService/StreamLoadStats" => Some(ApiVersion::V2),
        _ => None,
    }
}

/// The interval that clients are asked for: rarely, because the reports are dropped. Their bytes are bounded
/// for the same time.
const INTERVAL: Duration = Duration::from_secs(300);

/// A gRPC message with a `LoadStatsResponse` that sets only `load_reporting_interval` (2), to `seconds` (1)
/// of [`INTERVAL`].
const WISH: [u8; 10] = [0, 0, 0, 0, 5, 0x12, 3, 0x08, 0xac, 0x02];

/// Keeps a stream until the client ends the stream, the connection closes, or the client sends more than
/// `bytes_max` in an interval. `bytes_max` is the limit of one request, which is some 40,000 localities.
pub(super) async fn keep<S: RelayStream>(
    mut reports: RecvStream,
    mut send: SendStream<Piece>,
    streams: Arc<Streams<S>>,
    bytes_max: usize,
    metrics: Arc<DownstreamMetrics>,
) {
    // Here and below, an error means that the stream is gone.
    let _ = send.send_data(Bytes::from_static(&WISH).into(), false);
    let status = tokio::select! {
        biased;
        status = streams.going() => status,
        end = drop_reports(&mut reports, bytes_max, &metrics) => match end {
            Some(status) => status,
            None => return,
        },
    };
    let trailers: HeaderMap = status::trailers(&status);
    let _ = send.send_trailers(trailers);
}

/// `None` if the client is gone.
async fn drop_reports(
    reports: &mut RecvStream,
    bytes_max: usize,
    metrics: &DownstreamMetrics,
) -> Option<Status> {
    let (mut begin, mut read) = (Instant::now(), 0);
    loop {
        // A busy client could keep the body always ready; the budget makes the task yield its thread.
        coop::consume_budget().await;
        let Some(data) = poll_fn(|context| poll_data(reports, context)).await else {
            return Some(Status::ok());
        };
        let bytes = data.ok()?.len();
        metrics.request_bytes.inc_by(bytes as u64);
        if begin.elapsed() >= INTERVAL {
            (begin, read) = (Instant::now(), 0);
        }
        read += bytes;
        if read > bytes_max {
            metrics.limit_hit(Limit::RequestBytes);
            let text = format!(
                "more than {bytes_max} bytes of load reports in {INTERVAL:?}; the limit is limits.request_bytes"
            );
            return Some(Status::new(Code::ResourceExhausted, text));
        }
    }
}
