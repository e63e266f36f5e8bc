//! Crowds of connections. After an outage thousands of clients come at once, and at its beginning thousands leave. Both
//! are expensive, and an update would wait behind all of them: they take turns with the other tasks, a few in each pass
//! of the workers.

use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::task::yield_now;

/// New connections that begin in one pass of a worker through its tasks.
const BEGINNING_MAX: usize = 8;

/// Connections that end in one pass of the workers through their tasks.
const ENDING_MAX: usize = 8;

/// Begins accepted connections in the order of their arrival, a few in each pass, until the listener closes.
pub(super) async fn usher<T>(mut queued: mpsc::UnboundedReceiver<T>, begin: impl Fn(T)) {
    let mut next = Vec::with_capacity(BEGINNING_MAX);
    while queued.recv_many(&mut next, BEGINNING_MAX).await > 0 {
        next.drain(..).for_each(&begin);
        yield_now().await;
    }
}

/// The connections that end: each leaves its sources and frees all of its memory.
pub(super) struct Exit(Semaphore);

impl Default for Exit {
    fn default() -> Exit {
        Exit(Semaphore::new(ENDING_MAX))
    }
}

impl Exit {
    /// Waits for the turn of a connection to end. The turn is over when the result is dropped.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        let turn = self.0.acquire().await.ok();
        yield_now().await;
        turn
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::Cell;
    use std::future::Future;

    use futures_util::future::join_all;

    use super::*;

    const CLIENTS: usize = 100;

    /// Whether another task runs between a few steps of the crowd.
    async fn takes_turns(done: &Cell<usize>, at_once: usize, crowd: impl Future) {
        let another = async {
            let mut before = 0;
            while done.get() < CLIENTS {
                yield_now().await;
                // `join` changes the order of the two after each pass.
                assert!(done.get() - before <= 2 * at_once, "{before}, then {}", done.get());
                before = done.get();
            }
        };
        tokio::join!(another, crowd);
        assert_eq!(done.get(), CLIENTS);
    }

    #[tokio::test]
    async fn sec_2_others_run_between_a_few_new_connections() {
        let (queue, queued) = mpsc::unbounded_channel();
        (0..CLIENTS).for_each(|client| queue.send(client).unwrap());
        drop(queue);
        let begun = Cell::new(0);
        takes_turns(&begun, BEGINNING_MAX, usher(queued, |_| begun.set(begun.get() + 1))).await;
    }

    #[tokio::test]
    async fn others_run_between_a_few_connections_that_end() {
        let (exit, ended) = (Exit::default(), Cell::new(0));
        let clients = (0..CLIENTS).map(|_| async {
            let _turn = exit.turn().await;
            ended.set(ended.get() + 1);
        });
        takes_turns(&ended, ENDING_MAX, join_all(clients)).await;
    }
}
