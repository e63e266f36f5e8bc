//! The load reports of one client: the server's wishes in, reports out.

use std::ops::AddAssign;
use std::time::Duration;

use super::connection::ConnectionError;
use crate::load::{Report, Sums, VARIETY, read_wish};
use crate::measure::nanos;

/// The length of a frame's head of gRPC.
const HEAD: usize = 5;

/// The reports of clients, and the answers to them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    sent: [u64; VARIETY],
    /// The number of living clients, by the report that they sent last.
    last: [u64; VARIETY],
    pub answers: u64,
    /// Answers that came sooner after the answer before than reports are wanted.
    pub early: u64,
    /// Wished intervals, in nanoseconds.
    pub shortest: Option<u64>,
    pub longest: Option<u64>,
}

impl Tally {
    pub fn reports(&self) -> u64 {
        self.sent.iter().sum()
    }

    pub fn sums(&self, reports: &[Report]) -> Sums {
        let mut sums = Sums::default();
        for (report, count) in reports.iter().zip(self.sent) {
            sums += report.sums.times(count);
        }
        sums
    }

    pub fn in_progress(&self, reports: &[Report]) -> u64 {
        reports.iter().zip(self.last).map(|(report, count)| report.in_progress * count).sum()
    }

    /// The tally of clients that have left: nothing is in progress.
    pub fn left(self) -> Tally {
        Tally { last: [0; VARIETY], ..self }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        for index in 0..VARIETY {
            self.sent[index] += other.sent[index];
            self.last[index] += other.last[index];
        }
        self.answers += other.answers;
        self.early += other.early;
        self.shortest = self.shortest.into_iter().chain(other.shortest).min();
        self.longest = self.longest.max(other.longest);
    }
}

/// The stream of a reporter.
pub struct Reporting {
    client: usize,
    unread: Vec<u8>,
    /// The time of the last answer, and the wished interval.
    answered: Option<(u64, Duration)>,
    due: Option<u64>,
    has_stopped: bool,
    pub tally: Tally,
}

impl Reporting {
    pub fn new(client: usize) -> Reporting {
        Reporting {
            client,
            unread: Vec::new(),
            answered: None,
            due: None,
            has_stopped: false,
            tally: Tally::default(),
        }
    }

    /// Handles bytes of the response stream. Each answer restarts the interval, as in Envoy.
    pub fn data(&mut self, bytes: &[u8], now: u64) -> Result<(), ConnectionError> {
        self.unread.extend_from_slice(bytes);
        while let Some((head, rest)) = self.unread.split_at_checked(HEAD) {
            let length = head[1..].iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
            let Some(message) = rest.get(..length) else { break };
            let interval = read_wish(message).map_err(|_| ConnectionError::Wish)?;
            self.unread.drain(..HEAD + length);
            if interval.is_zero() {
                return Err(ConnectionError::Wish);
            }
            self.answer(interval, now);
        }
        Ok(())
    }

    fn answer(&mut self, interval: Duration, now: u64) {
        if let Some((before, wished)) = self.answered {
            self.tally.early += u64::from(now - before < nanos(wished));
        }
        self.answered = Some((now, interval));
        self.tally += Tally {
            answers: 1,
            shortest: Some(nanos(interval)),
            longest: Some(nanos(interval)),
            ..Tally::default()
        };
        if !self.has_stopped {
            self.due = Some(now + nanos(interval));
        }
    }

    pub fn due(&self) -> Option<u64> {
        self.due
    }

    /// The number of the report that is due. A client whose last report still waits leaves one out.
    pub fn take_due(&mut self, now: u64, is_waiting: bool) -> Option<usize> {
        let (_, interval) = self.answered?;
        self.due.filter(|due| *due <= now)?;
        self.due = Some(now + nanos(interval));
        if is_waiting {
            return None;
        }
        let number = (self.client + self.tally.reports() as usize) % VARIETY;
        self.tally.sent[number] += 1;
        self.tally.last = [0; VARIETY];
        self.tally.last[number] = 1;
        Some(number)
    }

    /// Reports no more.
    pub fn stop(&mut self) {
        (self.has_stopped, self.due) = (true, None);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::load::{Load, wish};

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn reports_follow_the_interval_of_the_last_answer() {
        let mut reporting = Reporting::new(2);
        assert_eq!((reporting.due(), reporting.take_due(9 * SECOND, false)), (None, None));
        let answer = wish(Duration::from_secs(2));
        // The answer comes in two pieces.
        reporting.data(&answer[..7], 0).unwrap();
        assert_eq!(reporting.due(), None);
        reporting.data(&answer[7..], SECOND).unwrap();
        assert_eq!(reporting.take_due(3 * SECOND - 1, false), None);
        assert_eq!(reporting.take_due(3 * SECOND, false), Some(2));
        // An answer restarts the interval; this one is no earlier than the interval before it.
        reporting.data(&wish(Duration::from_secs(1)), 4 * SECOND).unwrap();
        assert_eq!((reporting.due(), reporting.tally.early), (Some(5 * SECOND), 0));
        reporting.data(&wish(Duration::from_secs(1)), 4 * SECOND + 1).unwrap();
        assert_eq!(reporting.tally.early, 1);
        assert_eq!(reporting.take_due(6 * SECOND, true), None);
        assert_eq!(reporting.take_due(7 * SECOND, false), Some(3));
        reporting.stop();
        reporting.data(&answer, 8 * SECOND).unwrap();
        assert_eq!(reporting.due(), None);
        let tally = reporting.tally;
        assert_eq!((tally.answers, tally.shortest, tally.longest), (4, Some(SECOND), Some(2 * SECOND)));
        let reports = Load { clusters: 3, localities: 2, interval: Duration::from_secs(1) }.reports();
        let mut sums = reports[2].sums;
        sums += reports[3].sums;
        assert_eq!((tally.sums(&reports), tally.in_progress(&reports)), (sums, reports[3].in_progress));
        assert_eq!(tally.left().in_progress(&reports), 0);
    }

    #[test]
    fn a_wish_without_an_interval_is_refused() {
        assert_eq!(Reporting::new(0).data(&wish(Duration::ZERO), 0), Err(ConnectionError::Wish));
    }
}
