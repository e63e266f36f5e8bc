//! The link to the server: the present stream, or the wait for the next stream.

use std::time::Duration;

use super::api::UpstreamSettings;
use super::backoff::StreamBackoff;
use super::failover::ServerTurns;
use super::stream::ServerStream;
use super::variant_guess::VariantGuess;
use crate::Time;
use sluice_xds::{Code, Status, Variant};

#[derive(Debug)]
pub(super) enum LinkPhase {
    Closed,
    Waiting { until: Time },
    Opening,
    Open(ServerStream),
}

#[derive(Debug)]
pub(super) struct ServerLink {
    pub(super) phase: LinkPhase,
    /// The time at which the phase was entered.
    pub(super) since: Time,
    /// No stream opens before, even if all subscriptions ended and came back meanwhile.
    pub(super) retry_at: Time,
    /// Nothing is wanted of the open stream, which closes then.
    pub(super) idle_until: Option<Time>,
    /// The variant of the stream, or of the next stream as things stand.
    pub(super) variant: Variant,
    pub(super) turns: ServerTurns,
    pub(super) backoff: StreamBackoff,
    /// For the primary and the failover server.
    guesses: [VariantGuess; 2],
}

impl ServerLink {
    pub(super) fn new(variant: Variant) -> ServerLink {
        ServerLink {
            phase: LinkPhase::Closed,
            since: Time::default(),
            retry_at: Time::default(),
            idle_until: None,
            variant,
            turns: ServerTurns::default(),
            backoff: StreamBackoff::default(),
            guesses: Default::default(),
        }
    }

    pub(super) fn stream(&self) -> Option<&ServerStream> {
        if let LinkPhase::Open(stream) = &self.phase { Some(stream) } else { None }
    }

    pub(super) fn stream_mut(&mut self) -> Option<&mut ServerStream> {
        if let LinkPhase::Open(stream) = &mut self.phase { Some(stream) } else { None }
    }

    /// Returns true if there is no stream, and none is on its way.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.phase, LinkPhase::Closed)
    }

    /// Returns true if a stream is open or opening.
    pub(super) fn has_stream(&self) -> bool {
        matches!(self.phase, LinkPhase::Opening | LinkPhase::Open(_))
    }

    pub(super) fn enter(&mut self, phase: LinkPhase, now: Time) {
        self.phase = phase;
        self.since = now;
    }

    /// Waits until a stream may open.
    pub(super) fn wait(&mut self, now: Time) {
        self.enter(LinkPhase::Waiting { until: self.retry_at }, now);
    }

    /// Waits after the end of a stream or of an attempt.
    pub(super) fn retry_in(&mut self, delay: Duration, now: Time) {
        self.retry_at = now + delay;
        self.wait(now);
    }

    /// No stream opens before `until`, from now on.
    pub(super) fn hold_off(&mut self, until: Time) {
        self.retry_at = self.retry_at.max(until);
    }

    /// Returns true if the two servers take turns, so far.
    pub(super) fn alternates(&self, settings: &UpstreamSettings) -> bool {
        settings.failover && !self.turns.has_primary_answered()
    }

    /// The wait after an attempt without an answer. The failover server has its turn at once, the primary has
    /// its next turn after the backoff.
    pub(super) fn delay_after_failure(&mut self, settings: &UpstreamSettings, jitter: f64) -> Duration {
        if !self.alternates(settings) {
            return self.backoff.after_unanswered(&settings.backoff, jitter);
        }
        if self.turns.fail() {
            return Duration::ZERO;
        }
        self.backoff.after_unanswered(&settings.failover_backoff, jitter)
    }

    fn guess(&self) -> &VariantGuess {
        let [primary, failover] = &self.guesses;
        if self.turns.is_primary() { primary } else { failover }
    }

    pub(super) fn guess_mut(&mut self) -> &mut VariantGuess {
        let [primary, failover] = &mut self.guesses;
        if self.turns.is_primary() { primary } else { failover }
    }

    /// The variant of the next stream.
    pub(super) fn next_variant(&self, settings: &UpstreamSettings, now: Time) -> Variant {
        if self.guess().holds(now) { Variant::Sotw } else { settings.variant }
    }

    /// Returns true if the end of a stream without an answer says that the server lacks delta. The next
    /// stream is SotW then.
    pub(super) fn guess_sotw(&mut self, settings: &UpstreamSettings, status: &Status, now: Time) -> bool {
        let may_guess = self.variant == Variant::Delta && settings.fall_back_to_sotw;
        let is_refusal = may_guess && status.code == Code::Unimplemented;
        if is_refusal {
            self.guess_mut().begin(now);
        }
        is_refusal
    }

    /// The time at which the silence of the present stream refutes the guess.
    pub(super) fn guess_refuted_at(&self) -> Option<Time> {
        let (stream, guess) = (self.stream()?, self.guess());
        let is_refutable = guess.is_refutable() && self.variant == Variant::Sotw;
        let is_silent = !stream.transport.is_receiving && self.idle_until.is_none();
        Some(stream.evidence.asked.filter(|_| is_refutable && is_silent)? + guess.patience())
    }
}
