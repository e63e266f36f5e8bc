//! Tells the server of clients that reject what the relay has accepted (`report_rejections`).

use std::time::Duration;

use tokio::time::Instant;

use super::surroundings::Surroundings;
use crate::driver::source::report::SourceReport;
use sluice_engine::source::Source;

/// From the first rejection to the request. Most clients of a bad push answer within this time, and are
/// counted together.
const GATHER: Duration = Duration::from_secs(1);

/// Between two requests. A server that pushes many bad updates hears of them six times a minute.
const PAUSE: Duration = Duration::from_secs(10);

/// When the server is told.
#[derive(Debug, Default)]
pub(super) struct RejectionTeller {
    due: Option<Instant>,
    latest: Option<Instant>,
}

impl RejectionTeller {
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Clients have rejected something.
    pub(super) fn note(&mut self, now: Instant) {
        let earliest = self.latest.map(|latest| latest + PAUSE);
        self.due.get_or_insert(earliest.map_or(now + GATHER, |earliest| earliest.max(now + GATHER)));
    }

    /// Whether it is time.
    fn take(&mut self, now: Instant) -> bool {
        let is_due = self.due.take_if(|due| *due <= now).is_some();
        if is_due {
            self.latest = Some(now);
        }
        is_due
    }

    /// Tells the server, if it is time. `clients`: the number of clients of the source.
    pub(super) fn tell(
        &mut self,
        clients: usize,
        source: &mut Source,
        report: &mut SourceReport,
        around: &Surroundings,
    ) {
        if !self.take(Instant::now()) {
            return;
        }
        for (type_url, rejection) in around.handle.rejected.take() {
            let words = rejection.words(clients).to_string();
            if source.report_rejections(&type_url, &words, around.now()) {
                report.told_rejections(&type_url, &words);
            } else if around.handle.rejected.put_back(type_url, rejection) {
                self.note(Instant::now());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_told_after_a_second_and_not_again_within_ten() {
        let (mut telling, start) = (RejectionTeller::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(!telling.take(start));
        telling.note(start);
        telling.note(start + GATHER / 2);
        assert!(!telling.take(start + GATHER / 2));
        assert!(telling.take(after(1)));
        assert!(!telling.take(after(2)), "nothing is new");
        telling.note(after(3));
        assert_eq!(telling.due(), Some(after(11)));
        assert!(!telling.take(after(10)));
        assert!(telling.take(after(11)));
        telling.note(after(60));
        assert_eq!(telling.due(), Some(after(61)));
    }
}
