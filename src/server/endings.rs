//! The end of a connection's streams, each at its own moment.

use std::time::Duration;

use tokio::time::Instant;

use super::handshake::certificate::LeafEnd;
use super::streams::{StreamId, Streams};
use crate::driver::api::downstream::RelayStream;
use sluice_xds::{Code, Status};

/// The least time between the last end of a stream and the cut, in windows twice as long. A client on a busy
/// host needs some hundred milliseconds to read the end and to close the connection (HND-1).
const FLUSH_MIN: Duration = Duration::from_millis(500);

/// The reason for a GOAWAY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goaway {
    /// The connection never opened a stream.
    Idle,
    /// The connection reached its age (KAL-4).
    Age,
    /// The server drains (RLY-77).
    Drain,
    /// An operator empties the relay (HND-9).
    Emptied { window: Duration },
    /// The certificate of the client does not carry the connection any more (CRT-8, CRT-9).
    Certificate(LeafEnd),
}

impl Goaway {
    /// Whether the process or the relay leaves, and not this connection alone.
    pub(super) fn is_departure(self) -> bool {
        matches!(self, Goaway::Drain | Goaway::Emptied { .. })
    }

    /// Whether a connection that can only announce its end with a response stays for the next request
    /// (HND-1): a close at rest may meet a request on its way. A client without a request for long, or
    /// without the right to one, is not waited for.
    pub(super) fn waits_for_request(self) -> bool {
        match self {
            Goaway::Emptied { .. } | Goaway::Drain | Goaway::Age => true,
            Goaway::Certificate(LeafEnd::Expires { .. }) => true,
            Goaway::Idle | Goaway::Certificate(LeafEnd::Refused { .. }) => false,
        }
    }
}

/// The planned ends of the streams of a closing connection.
pub(super) struct Endings {
    /// The streams with their moments, the next moment last.
    planned: Vec<(Instant, StreamId)>,
    /// The time that ends all remaining streams, e.g. streams opened before the client saw the GOAWAY.
    end_all: Instant,
    all_ended: bool,
    pub(super) cut: Instant,
    status: Status,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Going,
    /// All streams were told to end.
    Ended,
    /// The time for the cut.
    Over,
}

impl Endings {
    /// Spreads the ends of answered streams over the window, so that their clients don't all return at once.
    /// The last tenth of the window, at least [`FLUSH_MIN`], is left for messages that are being written. In
    /// a drain, streams without any response end at once, because no answer will come (RLY-77).
    pub(super) fn plan<S: RelayStream>(
        streams: &Streams<S>,
        reason: Goaway,
        waits: bool,
        now: Instant,
        window: Duration,
    ) -> Self {
        let flush = (window / 10).max(FLUSH_MIN.min(window / 2));
        let end_all = now + (window - flush);
        let mut planned = Vec::new();
        for (id, stream) in streams.all() {
            let at = match (reason, stream.has_answered()) {
                (_, false) if reason.is_departure() => now,
                (_, false) => end_all,
                (_, true) => now + (window - flush).mul_f64(fastrand::f64()),
            };
            planned.push((at, id));
        }
        planned.sort_unstable_by(|a, b| b.cmp(a));
        let text = match reason {
            Goaway::Idle => "the connection was idle",
            Goaway::Age => "the connection reached its maximum age",
            Goaway::Drain | Goaway::Emptied { .. } => "the server is draining",
            Goaway::Certificate(LeafEnd::Expires { .. }) => "the client certificate expires",
            Goaway::Certificate(LeafEnd::Refused { .. }) => "the client certificate is not accepted any more",
        };
        let status = Status::new(Code::Unavailable, text);
        // A connection whose streams are over has only the GOAWAY to write. Only a peer that doesn't answer,
        // or an endless health watch, keeps the connection open. The first stream of a new connection may be
        // on its way (HND-1).
        let is_brief = reason.is_departure() && planned.is_empty() && !waits && streams.was_used();
        let cut = now + if is_brief { flush } else { window };
        Endings { planned, end_all, all_ended: false, cut, status }
    }

    /// Leaves more time to a connection that waits for its next request, and to streams that are not planned
    /// yet.
    pub(super) fn extend(&mut self, time: Duration) {
        self.end_all += time;
        self.cut += time;
    }

    /// The time of the next call of [`Endings::end_due`].
    pub(super) fn next(&self) -> Instant {
        let ending = match self.planned.last() {
            Some((at, _)) => *at,
            None if self.all_ended => self.cut,
            None => self.end_all,
        };
        ending.min(self.cut)
    }

    pub(super) fn end_due<S: RelayStream>(&mut self, streams: &Streams<S>, now: Instant) -> Progress {
        if now >= self.cut {
            return Progress::Over;
        }
        while let Some((_, id)) = self.planned.pop_if(|(at, _)| *at <= now) {
            if let Some(stream) = streams.get(id) {
                stream.fail(self.status.clone());
            }
        }
        if now >= self.end_all && !self.all_ended {
            self.all_ended = true;
            for (_, stream) in streams.all() {
                stream.fail(self.status.clone());
            }
            return Progress::Ended;
        }
        Progress::Going
    }
}
