//! Live answers: event streams of HTTP, written at the reader's pace (ADM-14).
//!
//! A stream keeps a position, not a queue. Once a second, everything behind the position is written, so a
//! stalled reader costs no memory.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Extensions, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::bound::{RequestPlace, turn_of};
use super::state::Admin;
use crate::telemetry::Limit;

/// Open live streams. The budget is apart from the budget of other requests, so open pages never keep a
/// scrape out, and a quarter of the connections.
pub(super) const LIVE_MAX: usize = 32;

/// The pause between two looks.
const GATHER: Duration = Duration::from_secs(1);

/// The longest silence. Proxies cut silent answers, often after a minute, and a lost peer is noticed.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(15);

pub(super) const MEDIA_TYPE: &str = "text/event-stream";

/// Marks an answer as live, for its connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiveMark;

/// The end of a connection, for live answers: the process stops, or the proof of the peer ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Closing(pub CancellationToken);

/// The content of a live stream.
pub(super) trait Feed: Send + 'static {
    /// Appends due messages. `is_last`: nothing is asked for afterwards.
    fn write(&mut self, out: &mut String, is_last: bool) -> impl Future<Output = FeedState> + Send;
}

/// A feed after a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FeedState {
    /// Nothing is due until the next look.
    Wait,
    /// More is due already.
    More,
    /// The answer is complete.
    End,
}

/// Whether the caller wants an event stream.
pub(super) fn is_wanted(headers: &axum::http::HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter();
    accepted.filter_map(|value| value.to_str().ok()).any(|value| value.contains(MEDIA_TYPE))
}

/// Appends a message: `data` has no line break.
pub(super) fn message(out: &mut String, id: Option<u64>, event: Option<&str>, data: &str) {
    for (field, value) in [("id", id.map(|id| id.to_string()).as_deref()), ("event", event)] {
        if let Some(value) = value {
            out.extend([field, ": ", value, "\n"]);
        }
    }
    out.extend(["data: ", data, "\n\n"]);
}

/// Answers with the feed, until the reader leaves or the listener closes.
pub(super) fn respond(admin: &Admin, request: &Extensions, feed: impl Feed) -> Response {
    let Some(place) = admin.budgets.live.take(&turn_of(request)) else {
        admin.metrics.limit_hit(Limit::AdminStreams);
        let text = format!("{LIVE_MAX} live streams are open\n");
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "5")], text).into_response();
    };
    let closing = request.get::<Closing>().cloned().unwrap_or_default();
    let mut looks = interval(GATHER);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let counted = admin.metrics.admin_stream();
    let stream =
        Feeder { feed, looks, last_part: Instant::now(), is_behind: false, closing, _held: (place, counted) };
    let parts = stream::unfold(Some(stream), |stream| async move {
        let mut stream = stream?;
        let (part, is_last) = stream.next().await;
        Some((Ok::<_, Infallible>(part), (!is_last).then_some(stream)))
    });
    let mut response = ([(header::CONTENT_TYPE, MEDIA_TYPE)], Body::from_stream(parts)).into_response();
    response.extensions_mut().insert(LiveMark);
    response
}

struct Feeder<F> {
    feed: F,
    looks: Interval,
    /// The time of the last part.
    last_part: Instant,
    /// The feed has more messages.
    is_behind: bool,
    closing: Closing,
    _held: (RequestPlace, crate::telemetry::metrics::GaugePart),
}

impl<F: Feed> Feeder<F> {
    /// The next part of the answer, and whether the answer ends.
    async fn next(&mut self) -> (Bytes, bool) {
        let mut part = String::new();
        loop {
            let closing = self.closing.0.clone();
            if closing.is_cancelled()
                || (!self.is_behind && closing.run_until_cancelled(self.looks.tick()).await.is_none())
            {
                self.feed.write(&mut part, true).await;
                message(&mut part, None, Some("bye"), "{}");
                return (part.into(), true);
            }
            let next = self.feed.write(&mut part, false).await;
            if next == FeedState::End {
                return (part.into(), true);
            }
            self.is_behind = next == FeedState::More;
            if part.is_empty() && self.last_part.elapsed() >= SILENCE_MAX {
                part.push_str(":\n\n");
            }
            if !part.is_empty() {
                self.last_part = Instant::now();
                return (part.into(), false);
            }
        }
    }
}
