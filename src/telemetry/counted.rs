//! Events of what happens too often for an event each: hits of limits, and clients that come and go. They are
//! read off the counters of the metrics, so the places that count have nothing more to do.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::events::{Kind, Occurrence};
use crate::telemetry::metrics::{Limit, Metrics};
use sluice_xds::Variant;

/// The time between two events of one limit. An attack lasts for hours, and its hits are in the metrics.
const LIMIT_PAUSE: Duration = Duration::from_secs(10);

/// Reports hits of limits and streams of clients, for as long as the future is polled.
pub async fn count_each_second(metrics: Arc<Metrics>) {
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut counted = LastCounts { limits: [(0, None); Limit::ALL.len()], opened: 0, ended: 0 };
    loop {
        seconds.tick().await;
        counted.report(&metrics, Instant::now());
    }
}

/// The counters at the last look.
struct LastCounts {
    /// By limit, with the time of its last event.
    limits: [(u64, Option<Instant>); Limit::ALL.len()],
    opened: u64,
    ended: u64,
}

impl LastCounts {
    fn report(&mut self, metrics: &Metrics, now: Instant) {
        for (limit, (counted, told_at)) in Limit::ALL.into_iter().zip(&mut self.limits) {
            let hits = metrics.limits().of(limit);
            let is_silent =
                told_at.is_some_and(|told_at| now.saturating_duration_since(told_at) < LIMIT_PAUSE);
            if hits == *counted || is_silent {
                continue;
            }
            let hit = Occurrence::warn(Kind::Limit, "clients or servers hit a limit").limit(limit.name());
            metrics.events.add(hit.count(hits - *counted));
            (*counted, *told_at) = (hits, Some(now));
        }
        let downstream = &metrics.downstream;
        let opened = [Variant::Sotw, Variant::Delta].map(|variant| downstream.streams_opened(variant));
        let opened: u64 = opened.into_iter().sum();
        // Streams may open between the two reads.
        let open = u64::try_from(downstream.streams_open()).unwrap_or_default().min(opened);
        let ended = (opened - open).max(self.ended);
        let tell = |count: u64, text| {
            if count > 0 {
                metrics.events.add(Occurrence::info(Kind::Client, text).count(count));
            }
        };
        tell(opened - self.opened, "clients opened streams");
        tell(ended - self.ended, "streams of clients ended");
        (self.opened, self.ended) = (opened, ended);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn events_of(metrics: &Metrics) -> Vec<(&'static str, Option<&'static str>, u64)> {
        let page = metrics.events.after(0, 100, |_| true);
        page.events.iter().map(|event| (event.first.text, event.first.limit, event.count)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn adm_11_clients_are_counted_per_second() {
        let metrics = Arc::new(Metrics::new());
        let task = tokio::spawn(count_each_second(metrics.clone()));
        let first: Vec<_> = (0..3).map(|_| metrics.downstream.stream(Variant::Delta)).collect();
        let _second = metrics.downstream.stream(Variant::Sotw);
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(events_of(&metrics), [("clients opened streams", None, 4)]);
        drop(first);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(events_of(&metrics)[1..], [("streams of clients ended", None, 3)]);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(events_of(&metrics).len(), 2, "nothing happened meanwhile");
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn adm_11_an_attack_on_a_limit_is_an_event_now_and_then() {
        let metrics = Arc::new(Metrics::new());
        let task = tokio::spawn(count_each_second(metrics.clone()));
        for _ in 0..300 {
            metrics.limit_hit(Limit::NameBytes);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(LIMIT_PAUSE).await;
        let events = events_of(&metrics);
        assert!((3..=5).contains(&events.len()), "{events:?}");
        assert!(events.iter().all(|(_, limit, _)| *limit == Some("name_bytes")));
        assert_eq!(events.iter().map(|(.., count)| count).sum::<u64>(), 300, "no hit is lost");
        task.abort();
    }
}
