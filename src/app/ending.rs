//! The end of the process: from the signal on, all of it has to fit into `drain` (RLY-77).

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// What is left of the drain for all that comes after the connections: a tenth, so that streams lose little of it, and no more
/// than this, since nothing of it takes long.
const RESERVE_MAX: Duration = Duration::from_secs(1);

/// Though the drain is shorter, the last write of the checkpoint and the last lines of the log have this much.
const END_MIN: Duration = Duration::from_secs(1);

/// When which part of the process must be gone.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    drain: Duration,
    /// When the signal came.
    began: watch::Sender<Option<Instant>>,
}

impl Ending {
    pub fn new(drain: Duration) -> Ending {
        Ending { drain, began: watch::Sender::new(None) }
    }

    /// How long connections may take to end. The rest of the drain is for what comes after them.
    pub fn connections(&self) -> Duration {
        self.drain - reserve(self.drain)
    }

    /// The signal came.
    pub fn begin(&self) {
        self.began.send_if_modified(|began| began.is_none().then(|| *began = Some(Instant::now())).is_some());
    }

    fn after(&self, time: Duration) -> Instant {
        self.began.borrow().unwrap_or_else(Instant::now) + time
    }

    /// Nobody waits for connections and answers of the admin listener any more: half of the reserve is left, for what cannot be
    /// interrupted, and for the log.
    pub fn all_closed_by(&self) -> Instant {
        self.after(self.drain - reserve(self.drain) / 2)
    }

    /// The last write of the checkpoint was done, or is given up: as for connections, since it began with their drain.
    pub fn saved_by(&self) -> Instant {
        let end = self.drain.max(END_MIN);
        self.after(end - reserve(end))
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
        self.after(self.drain.max(END_MIN)).saturating_duration_since(Instant::now())
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
            let ending = Ending::new(ms(drain));
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
        let ending = Ending::new(Duration::from_secs(2));
        ending.begin();
        tokio::time::advance(Duration::from_secs(1)).await;
        ending.begin();
        assert_eq!(ending.left(), Duration::from_secs(1));
    }
}
