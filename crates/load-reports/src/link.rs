//! The stream to a server: when it is opened, and when a report is due (LRS-12, LRS-17, LRS-21).

use std::time::Duration;

use sluice_engine::Time;
use sluice_setting::Backoff;
use sluice_xds::{Code, Status};

/// The time between two tries at a server without the service (LRS-21).
const RETRY_OF_NONE: Duration = Duration::from_secs(60);
/// The random share of a delay: ±20 %, as for other streams to servers (CLI-4).
const JITTER_PERCENT: u64 = 20;

/// The stream as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkState {
    /// No stream, and no need of one.
    #[default]
    Idle,
    /// No stream until then.
    Waiting { until: Time },
    /// The first request is under way, and the server has not answered.
    Opening,
    /// The server has answered.
    Open,
    /// The relay has ended its side, and waits for the status.
    Ending,
    /// All is over.
    Ended,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEnd {
    /// The server read to the end and said OK.
    Complete,
    /// The server has no such service. `is_first`: nobody has been told.
    NoService {
        is_first: bool,
    },
    Lost,
}

/// The stream of one class to one server.
#[derive(Clone, Debug, Default)]
pub struct Link {
    state: LinkState,
    failures: u32,
    /// The server lacks the service, as far as is known.
    lacks_service: bool,
}

impl Link {
    pub fn state(&self) -> LinkState {
        self.state
    }

    pub fn has_no_service(&self) -> bool {
        self.lacks_service
    }

    /// Whether a stream has to be opened now. If so, the stream counts as opening.
    pub fn open(&mut self, now: Time) -> bool {
        let is_due = match self.state {
            LinkState::Idle => true,
            LinkState::Waiting { until } => until <= now,
            LinkState::Opening | LinkState::Open | LinkState::Ending | LinkState::Ended => false,
        };
        if is_due {
            self.state = LinkState::Opening;
        }
        is_due
    }

    /// The server answered.
    pub fn answered(&mut self) {
        (self.failures, self.lacks_service) = (0, false);
        if self.state == LinkState::Opening {
            self.state = LinkState::Open;
        }
    }

    /// The relay ends its side of the stream; true if there is a stream to end.
    pub fn end(&mut self) -> bool {
        let has_stream = matches!(self.state, LinkState::Opening | LinkState::Open);
        self.state = if has_stream { LinkState::Ending } else { LinkState::Ended };
        has_stream
    }

    /// The stream ended, or could not be opened. `random` spreads the next tries of many streams.
    pub fn ended(&mut self, status: &Status, backoff: Backoff, random: u64, now: Time) -> LinkEnd {
        if self.state == LinkState::Ending {
            self.state = LinkState::Ended;
            return if status.code == Code::Ok { LinkEnd::Complete } else { LinkEnd::Lost };
        }
        // LRS-21: only a stream without an answer shows that the service is not there.
        if status.code == Code::Unimplemented && self.state == LinkState::Opening {
            self.state = LinkState::Waiting { until: now + RETRY_OF_NONE };
            let is_first = !std::mem::replace(&mut self.lacks_service, true);
            return LinkEnd::NoService { is_first };
        }
        self.failures = self.failures.saturating_add(1);
        self.state = LinkState::Waiting { until: now + delay(backoff, self.failures, random) };
        LinkEnd::Lost
    }

    /// The time of the next try, if there is to be one.
    pub fn poll_timeout(&self) -> Option<Time> {
        match self.state {
            LinkState::Waiting { until } => Some(until),
            _ => None,
        }
    }
}

/// The delay after the `nth` failure: 1.6 times the delay before, as for other streams to servers (CLI-4).
fn delay(backoff: Backoff, nth: u32, random: u64) -> Duration {
    let grown = (1..nth).try_fold(backoff.initial, |delay, _| {
        let next = delay * 8 / 5;
        if next < backoff.max { Ok(next) } else { Err(backoff.max) }
    });
    let base = grown.unwrap_or_else(|most| most);
    let percent = 100 - JITTER_PERCENT + random % (2 * JITTER_PERCENT + 1);
    base * percent as u32 / 100
}
