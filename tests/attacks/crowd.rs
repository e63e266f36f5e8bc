//! Many connections with the same behaviour: at once, or one after the other on a few lanes.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::attack::{Outcome, Strand};

/// A crowd of thousands connects over this time: the kernel's queue of new connections is bounded.
const ARRIVAL: Duration = Duration::from_millis(300);

/// All at once, each until its own end.
pub async fn crowd<F, R>(strand: Strand, count: usize, one: F) -> Outcome
where
    F: Fn(Strand) -> R + Clone + Send + 'static,
    R: Future<Output = Outcome> + Send + 'static,
{
    let mut all = JoinSet::new();
    for number in 0..count {
        let (strand, one) = (strand.clone(), one.clone());
        let wait = ARRIVAL.mul_f64(number as f64 / count as f64);
        all.spawn(async move {
            sleep(wait).await;
            one(strand).await
        });
    }
    sum(all).await
}

/// Again and again on `count` lanes, with a pause between.
pub async fn lanes<F, R>(strand: Strand, count: usize, pause: Duration, one: F) -> Outcome
where
    F: Fn(Strand) -> R + Clone + Send + 'static,
    R: Future<Output = Outcome> + Send + 'static,
{
    let mut all = JoinSet::new();
    for _ in 0..count {
        let (strand, one) = (strand.clone(), one.clone());
        all.spawn(async move {
            let mut outcome = Outcome::default();
            while !strand.is_over() {
                outcome.add(one(strand.clone()).await);
                sleep(pause).await;
            }
            outcome
        });
    }
    sum(all).await
}

async fn sum(all: JoinSet<Outcome>) -> Outcome {
    let mut outcome = Outcome::default();
    for one in all.join_all().await {
        outcome.add(one);
    }
    outcome
}

/// Reads until the relay closes, at most so long.
pub async fn until_closed(read: impl AsyncRead + Unpin, begin: Instant, within: Duration) -> Outcome {
    Outcome::of_close(begin, timeout(within, drain(read)).await.is_ok())
}

/// Returns when the relay has closed.
pub async fn drain(mut read: impl AsyncRead + Unpin) {
    let mut buffer = vec![0; 4 << 10];
    while let Ok(1..) = read.read(&mut buffer).await {}
}

/// A connection that did not come about.
pub fn unopened(error: std::io::Error) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.fault(format!("no connection: {error}"));
    outcome
}
