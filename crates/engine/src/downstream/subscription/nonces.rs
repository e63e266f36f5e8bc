//! Nonces: the outstanding responses of one type, and the client's answers (STR, NON, ACK).

use std::time::Duration;

use crate::Time;
use crate::downstream::sources::ChangeId;
use crate::downstream::subscription::carried::Carried;
use sluice_xds::{Status, Version};

/// The maximum number of unanswered responses of one type. Beyond the maximum, the oldest are forgotten.
pub const IN_FLIGHT_MAX: usize = 64;

/// A response that was handed out.
#[derive(Clone, Debug)]
struct Sent {
    nonce: u64,
    version: Version,
    at: Time,
    /// The time when the content came from upstream; `None` for first answers, which are not updates.
    changed_at: Option<Time>,
    carried: Carried,
    /// The client gave up names since.
    has_lost_names: bool,
}

/// The changes that a verdict settles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// The changes in the answered response.
    pub carried: Carried,
    /// Changes in earlier responses that the client answered only by this verdict.
    pub overtaken: Vec<ChangeId>,
    /// The client gave up names before its verdict.
    pub has_lost_names: bool,
}

/// The meaning of a request for an earlier response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The client accepted the latest response, or an older known response (NON-5). `latency`: the time since
    /// the content came from upstream, if the response was an update.
    Ack { latency: Option<Duration> },
    /// The client rejected the response (ACK-1). `repeated`: the stream rejected the same version before.
    Nack { status: Status, version: Version, repeated: bool },
    /// The nonce is not in flight, or no longer: neither ACK nor NACK (NON-1).
    Stale,
    /// The request answers no response: a first request, or a change of subscription.
    None,
}

/// The nonce chain of one type on one stream (STR-1, STR-5).
#[derive(Debug, Default)]
pub struct Nonces {
    /// The unanswered responses, oldest first. Mostly one at a time, so the list keeps room for as many as
    /// there were at once.
    sent: Vec<Sent>,
    /// The latest nonce, or 0. The nonce stays valid after its answer, and with an empty list of names
    /// (NON-6).
    latest: u64,
    /// The time of the last verdict; before the first verdict, the time of the first request. For reports
    /// (ADM-8).
    pub since: Time,
    /// The version of the latest response.
    version_sent: Version,
    /// The version of the response that the client ACKed last, if it ACKed any.
    version_acked: Version,
    has_acked: bool,
}

impl Nonces {
    /// Notes a response with these changes. Returns the changes of a response that is forgotten for want of
    /// room.
    #[inline]
    pub fn send(
        &mut self,
        nonce: u64,
        version: Version,
        at: Time,
        changed_at: Option<Time>,
        carried: Carried,
    ) -> Option<Carried> {
        let is_full = self.sent.len() >= IN_FLIGHT_MAX;
        let forgotten = if is_full { Some(self.sent.remove(0)) } else { None };
        self.sent.reserve_exact(1);
        self.sent.push(Sent { nonce, version, at, changed_at, carried, has_lost_names: false });
        self.latest = nonce;
        self.version_sent = version;
        forgotten.map(|sent| sent.carried)
    }

    /// Judges a request. `nonce`: the parsed nonce; `None` if the request has no nonce of this stream.
    /// `rejected`: the version of the stream's last rejection.
    pub fn judge(
        &mut self,
        nonce: Option<u64>,
        error: Option<Status>,
        rejected: Option<Version>,
        now: Time,
    ) -> (Verdict, Judged) {
        let none = |verdict| (verdict, Judged::default());
        let Some(nonce) = nonce else { return none(Verdict::Stale) };
        let Some(index) = self.sent.iter().position(|sent| sent.nonce == nonce) else {
            return none(if self.latest() == Some(nonce) { Verdict::None } else { Verdict::Stale });
        };
        let sent = self.sent.remove(index);
        let (carried, has_lost_names) = (sent.carried, sent.has_lost_names);
        let mut judged = Judged { carried, overtaken: Vec::new(), has_lost_names };
        self.since = now;
        if self.latest == nonce {
            // A client may skip overtaken responses: the latest verdict covers the earlier responses.
            for skipped in self.sent.drain(..) {
                let is_other = |id: &&ChangeId| !judged.carried.rejected().contains(id);
                judged.overtaken.extend(skipped.carried.whole().iter().filter(is_other));
            }
        }
        let verdict = match error {
            Some(status) => {
                let repeated = rejected == Some(sent.version);
                Verdict::Nack { status, version: sent.version, repeated }
            }
            None => {
                (self.version_acked, self.has_acked) = (sent.version, true);
                Verdict::Ack { latency: sent.changed_at.map(|changed_at| now.since(changed_at)) }
            }
        };
        (verdict, judged)
    }

    /// The version of the latest response.
    pub fn version_sent(&self) -> Option<Version> {
        (self.latest != 0).then_some(self.version_sent)
    }

    /// The version of the response that the client ACKed last.
    pub fn version_acked(&self) -> Option<Version> {
        self.has_acked.then_some(self.version_acked)
    }

    /// The client gave up names, and the record forgets their content in the unanswered responses.
    pub fn lose_names(&mut self) {
        self.sent.iter_mut().for_each(|sent| sent.has_lost_names = true);
    }

    /// The client rejected these changes: the other responses with them count no more.
    pub fn give_up_changes(&mut self, rejected: &[ChangeId]) {
        self.sent.iter_mut().for_each(|sent| sent.carried.drop_all(rejected));
    }

    /// The changes in unanswered responses.
    pub fn unanswered(&self) -> impl Iterator<Item = &Carried> {
        self.sent.iter().map(|sent| &sent.carried)
    }

    /// The changes in the latest response, if unanswered.
    pub fn latest_changes(&self) -> &[ChangeId] {
        self.sent.last().map_or(&[], |sent| sent.carried.rejected())
    }

    /// Whether a response is unACKed (NON-4).
    pub fn is_waiting(&self) -> bool {
        !self.sent.is_empty()
    }

    /// The send time of the oldest unACKed response.
    pub fn waiting_since(&self) -> Option<Time> {
        self.sent.first().map(|sent| sent.at)
    }

    /// The send time of the latest response, or once the client has answered the time of the answer.
    pub fn sent_at(&self) -> Option<Time> {
        let answered = || (self.latest != 0).then_some(self.since);
        self.sent.last().map(|sent| sent.at).or_else(answered)
    }

    pub fn latest(&self) -> Option<u64> {
        (self.latest != 0).then_some(self.latest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_xds::Code;

    fn with_sent(numbers: &[u64]) -> Nonces {
        let mut nonces = Nonces::default();
        for nonce in numbers {
            nonces.send(
                *nonce,
                Version(u128::from(*nonce)),
                Time::ZERO,
                Some(Time::from_micros(1)),
                Carried::Nothing,
            );
        }
        nonces
    }

    fn error() -> Option<Status> {
        Some(Status::new(Code::Internal, "bad"))
    }

    #[test]
    fn ack_1_only_error_detail_makes_a_nack() {
        let mut nonces = with_sent(&[1]);
        let ack = nonces.judge(Some(1), None, None, Time::from_micros(11)).0;
        assert_eq!(ack, Verdict::Ack { latency: Some(Duration::from_micros(10)) });
        assert!(!nonces.is_waiting());
        nonces.send(2, Version(2), Time::ZERO, None, Carried::Nothing);
        assert!(matches!(
            nonces.judge(Some(2), error(), None, Time::ZERO).0,
            Verdict::Nack { repeated: false, .. }
        ));
        assert_eq!(nonces.version_acked(), Some(Version(1)));
    }

    #[test]
    fn non_1_an_old_nonce_says_nothing_of_the_newest_response() {
        let mut nonces = with_sent(&[1, 2]);
        assert!(matches!(
            nonces.judge(Some(1), error(), None, Time::ZERO).0,
            Verdict::Nack { version: Version(1), .. }
        ));
        assert!(nonces.is_waiting());
        assert_eq!(nonces.judge(Some(1), None, None, Time::ZERO).0, Verdict::Stale);
        assert_eq!(nonces.judge(Some(99), None, None, Time::ZERO).0, Verdict::Stale);
        assert!(nonces.is_waiting());
    }

    #[test]
    fn non_6_the_latest_nonce_stays_valid() {
        let mut nonces = with_sent(&[1]);
        nonces.judge(Some(1), None, None, Time::ZERO);
        assert_eq!(nonces.judge(Some(1), None, None, Time::ZERO).0, Verdict::None);
    }

    #[test]
    fn a_skipped_ack_is_covered_by_the_next_one() {
        let mut nonces = with_sent(&[1, 2, 3]);
        nonces.judge(Some(3), None, None, Time::ZERO);
        assert!(!nonces.is_waiting());
    }

    #[test]
    fn rly_38_a_repeated_nack_is_told_apart() {
        let mut nonces = with_sent(&[1]);
        nonces.judge(Some(1), error(), None, Time::ZERO);
        nonces.send(2, Version(1), Time::ZERO, None, Carried::Nothing);
        let verdict = nonces.judge(Some(2), error(), Some(Version(1)), Time::ZERO).0;
        assert!(matches!(verdict, Verdict::Nack { repeated: true, .. }));
    }

    #[test]
    fn a_client_that_never_acks_costs_a_bounded_number() {
        let nonces: Vec<u64> = (0..1000).collect();
        assert_eq!(with_sent(&nonces).sent.len(), IN_FLIGHT_MAX);
    }
}
