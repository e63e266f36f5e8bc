//! Deadlines for the end of the process: from the signal on, the whole shutdown fits into `drain` (RLY-77).

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use sluice_setting::InForce;

/// The part of the drain reserved for work after the connections: a tenth, at most this long.
const RESERVE_MAX: Duration = Duration::from_secs(1);

/// The least time for the last write of the checkpoint and the last log lines, even with a shorter drain.
const END_MIN: Duration = Duration::from_secs(1);

/// Deadlines for the parts of the process.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    /// `drain`, until the signal comes.
    drain: InForce<Duration>,
    began: watch::Sender<Option<Began>>,
}

/// The moment of the signal, and `drain` at that moment.
#[derive(Clone, Copy, Debug)]
struct Began {
    at: Instant,
    drain: Duration,
}

impl Ending {
    pub fn new(drain: InForce<Duration>) -> Ending {
        Ending { drain, began: watch::Sender::new(None) }
    }

    /// Takes another length over, unless the signal came already.
    pub fn configure(&self, drain: Duration) {
        self.drain.publish(drain);
    }

    /// The longest time for connections to end. The rest of the drain is reserved for later work.
    pub fn connections(&self) -> Duration {
        let drain = self.now().drain;
        drain - reserve(drain)
    }

    /// The signal came.
    pub fn begin(&self) {
        let now = self.now();
        self.began.send_if_modified(|began| began.is_none().then(|| *began = Some(now)).is_some());
    }

    /// The beginning of the drain; before the signal, a drain that would begin now.
    fn now(&self) -> Began {
        self.began.borrow().unwrap_or_else(|| Began { at: Instant::now(), drain: ***self.drain.get() })
    }

    /// The deadline of connections and of admin answers. Half of the reserve is left for uninterruptible work
    /// and the log.
    pub fn all_closed_by(&self) -> Instant {
        let Began { at, drain } = self.now();
        at + (drain - reserve(drain) / 2)
    }

    /// The deadline of the last checkpoint write: the same as for connections, since both begin together.
    pub fn saved_by(&self) -> Instant {
        let Began { at, drain } = self.now();
        let end = drain.max(END_MIN);
        at + (end - reserve(end))
    }

    /// Resolves at [`Ending::all_closed_by`]; never before the signal.
    pub async fn closes(&self) {
        let mut began = self.began.subscribe();
        if began.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
        sleep_until(self.all_closed_by()).await;
    }

    /// Until the process must be gone.
    pub fn left(&self) -> Duration {
        let Began { at, drain } = self.now();
        (at + drain.max(END_MIN)).saturating_duration_since(Instant::now())
    }
}

fn reserve(drain: Duration) -> Duration {
    (drain / 10).min(RESERVE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rly_77_all_parts_of_the_end_share_one_drain() {
        let drains =
            [(60_000, 59_000, 59_500, 59_000, 500), (2_000, 1_800, 1_900, 1_800, 100), (0, 0, 0, 900, 1_000)];
        for (drain, connections, closed, saved, left) in drains {
            let ms = Duration::from_millis;
            let ending = Ending::new(InForce::new(ms(drain)));
            assert_eq!(ending.connections(), ms(connections));
            ending.begin();
            let began = Instant::now();
            ending.closes().await;
            assert_eq!(began.elapsed(), ms(closed));
            assert_eq!(ending.saved_by(), began + ms(saved));
            assert_eq!(ending.left(), ms(left));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_gives_no_more_time() {
        let ending = Ending::new(InForce::new(Duration::from_secs(2)));
        ending.begin();
        tokio::time::advance(Duration::from_secs(1)).await;
        ending.begin();
        assert_eq!(ending.left(), Duration::from_secs(1));
    }
    #[tokio::test(start_paused = true)]
    async fn rel_5_the_signal_takes_the_drain_in_force() {
        let seconds = Duration::from_secs;
        let drain = InForce::new(seconds(2));
        let ending = Ending::new(drain.clone());
        drain.publish(seconds(5));
        ending.begin();
        assert_eq!(ending.left(), seconds(5));
        drain.publish(seconds(60));
        assert_eq!(ending.left(), seconds(5), "a drain under way keeps its end");
    }
}
