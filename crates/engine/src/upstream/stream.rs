//! The state of the open stream to the server.

use std::time::Duration;

use super::api::{Output, OutputQueue};
use super::backoff::BackoffSettings;
use super::one_by_one::TypeSequence;
use crate::Time;
use sluice_xds::{Code, Status};

/// The open stream to the server.
#[derive(Debug)]
pub(super) struct ServerStream {
    pub(super) opened: Time,
    /// The node was sent, with the first request.
    pub(super) has_node: bool,
    /// The server marks whole sets (ADR 14).
    pub(super) has_marks: bool,
    pub(super) transport: TransportState,
    pub(super) evidence: StreamEvidence,
    pub(super) gathering: ChangeGathering,
    pub(super) sequence: TypeSequence,
    pub(super) successor: Successor,
}

impl ServerStream {
    /// `is_heard`: an earlier stream proves that the server can be heard.
    pub(super) fn new(is_heard: bool, now: Time) -> ServerStream {
        ServerStream {
            opened: now,
            has_node: false,
            has_marks: false,
            transport: TransportState::default(),
            evidence: StreamEvidence { is_heard, ..StreamEvidence::default() },
            gathering: ChangeGathering::default(),
            sequence: TypeSequence::default(),
            successor: Successor::default(),
        }
    }
}

/// The transport under the stream: its life, and the bytes on the way.
#[derive(Debug, Default)]
pub(super) struct TransportState {
    /// The number of signs of life: responses, and answers to probes.
    pub(super) signs: u64,
    is_probing: bool,
    /// Bytes of a message have arrived, and the rest is outstanding.
    pub(super) is_receiving: bool,
    /// A round trip of the transport has begun.
    pub(super) has_round: bool,
    /// The transport has not taken a part of a long request. The rest waits (FU33).
    pub(super) is_flushing: bool,
}

impl TransportState {
    pub(super) fn sign_of_life(&mut self) {
        self.signs += 1;
        self.is_probing = false;
    }

    /// Checks the transport, unless a check is under way.
    pub(super) fn probe(&mut self, outputs: &mut OutputQueue) {
        if !std::mem::replace(&mut self.is_probing, true) {
            outputs.push(Output::Probe);
        }
    }

    pub(super) fn begin_round(&mut self, outputs: &mut OutputQueue) {
        self.has_round = true;
        outputs.push(Output::RoundTrip);
    }

    /// A part of a long request was written.
    pub(super) fn flush(&mut self, outputs: &mut OutputQueue) {
        if !std::mem::replace(&mut self.is_flushing, true) {
            outputs.push(Output::Flush);
        }
    }
}

/// The evidence of the stream about the server as a whole ([`super::health`]).
#[derive(Debug, Default)]
pub(super) struct StreamEvidence {
    /// The time of the first request.
    pub(super) asked: Option<Time>,
    /// The time of the first response.
    pub(super) answered: Option<Time>,
    /// The time at which the silence turned out to be an answer.
    pub(super) silent: Option<Time>,
    /// The stream proves that the server can be heard.
    pub(super) is_heard: bool,
    /// An event reported the silence of the server.
    pub(super) is_mute: bool,
    /// The server asked the relay to leave the connection. The end of the stream is the server's wish, not a
    /// failure (KAL-5).
    pub(super) is_dismissed: bool,
}

impl StreamEvidence {
    /// Returns true if the end says nothing against the server: after an answer (CLI-2), at the server's
    /// wish, or in good order after a meaningful silence (KAL-5).
    pub(super) fn ends_well(&self, status: &Status) -> bool {
        let had_nothing_to_say = self.is_heard && status.code == Code::Ok;
        self.answered.is_some() || self.is_dismissed || had_nothing_to_say
    }
}

/// The first wait of gathered changes: some round trips of a nearby network, and the resolution of the
/// process's timers.
pub(super) const FIRST_WAIT: Duration = Duration::from_millis(1);

/// Gathers changes of subscriptions before they are written (FLW-5, RLY-62).
///
/// A starting client asks for listeners, routes, clusters and endpoints in sequence, each after the answer
/// before. A single client should not wait for absent clients. Ten thousand clients that start together
/// should cost few requests all the same. So the first change after a quiet spell is written at once. Later
/// changes are gathered for [`FIRST_WAIT`], then for twice as long, and so on, up to the setting. No change
/// waits much longer than the burst has lasted already, and a burst costs only a handful of requests more
/// than a constant interval of full length.
#[derive(Debug, Default)]
pub(super) struct ChangeGathering {
    until: Option<Time>,
    /// The time of the last write, and the wait of later changes.
    last: Option<(Time, Duration)>,
}

impl ChangeGathering {
    /// The end of the wait of gathered changes.
    pub(super) fn until(&self) -> Option<Time> {
        self.until
    }

    /// Ends an expired wait. Returns true if gathered changes are due.
    pub(super) fn end(&mut self, now: Time) -> bool {
        self.until.take_if(|until| *until <= now).is_some()
    }

    /// Records a write. Later changes wait, at most for `max`.
    pub(super) fn note_write(&mut self, now: Time, max: Duration) {
        let in_burst = self.last.filter(|(at, _)| now.since(*at) < max * 2);
        let wait = in_burst.map_or(FIRST_WAIT, |(_, wait)| wait * 2).min(max);
        self.last = Some((now, wait));
        self.until = Some(now + wait);
    }
}

/// A second stream that is to replace the open stream, because the node for new streams has changed.
///
/// Make before break (RLY-48, FU10): the current stream stays until the second stream is open. The second
/// stream restates everything, as after a reconnect (DEL-35, STR-10): held resources stay held, and the
/// server has to send only the differences. Current types stay current, so that no session looks for another
/// server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Successor {
    #[default]
    Unwanted,
    Opening {
        failures: u32,
    },
    /// The stream could not be opened, `failures` times.
    Failed {
        failures: u32,
        retry_at: Time,
    },
}

impl Successor {
    /// The time of the next attempt.
    pub(super) fn due(&self) -> Option<Time> {
        match self {
            Successor::Failed { retry_at, .. } => Some(*retry_at),
            Successor::Unwanted | Successor::Opening { .. } => None,
        }
    }

    pub(super) fn is_opening(&self) -> bool {
        matches!(self, Successor::Opening { .. })
    }

    /// Begins the first attempt. False if attempts are under way: a failed stream is tried again in its time,
    /// and begins with the newest node.
    pub(super) fn begin(&mut self) -> bool {
        let is_first = *self == Successor::Unwanted;
        if is_first {
            *self = Successor::Opening { failures: 0 };
        }
        is_first
    }

    /// The attempt failed. The next attempt follows with the backoff of any stream (CLI-4).
    pub(super) fn fail(&mut self, backoff: &BackoffSettings, now: Time) {
        if let Successor::Opening { failures } = *self {
            let failures = failures.saturating_add(1);
            *self = Successor::Failed { failures, retry_at: now + backoff.after(failures) };
        }
    }

    /// Begins another attempt if one is due. Returns true if one was due.
    pub(super) fn retry(&mut self, now: Time) -> bool {
        match *self {
            Successor::Failed { failures, retry_at } if retry_at <= now => {
                *self = Successor::Opening { failures };
                true
            }
            _ => false,
        }
    }
}
