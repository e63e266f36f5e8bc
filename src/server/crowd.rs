//! Crowds of connections. After an outage thousands of clients come at once, and at its beginning thousands
//! leave. Both are expensive, and an update would wait behind all of them: they take turns with the other
//! tasks, a few in each pass of the workers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
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
pub(super) struct Exit(Arc<Semaphore>);

/// The turn of a connection to end, over when it is dropped.
pub(super) type ExitTurn = OwnedSemaphorePermit;

impl Default for Exit {
    fn default() -> Exit {
        Exit(Arc::new(Semaphore::new(ENDING_MAX)))
    }
}

impl Exit {
    /// Waits for the turn of a connection to end.
    pub(super) fn turn(&self) -> impl Future<Output = Option<ExitTurn>> + Send + use<> {
        let turn = self.0.clone().acquire_owned();
        async {
            let turn = turn.await.ok();
            yield_now().await;
            turn
        }
    }

    /// Whether a connection that ends now would have to wait for its turn.
    pub(super) fn is_crowded(&self) -> bool {
        self.0.available_permits() == 0
    }
}

/// A connection whose peer has left, beside many others. The last bytes of the peer are read in the
/// connection's turn to end.
pub(super) enum Leaving {
    /// The turn is to come.
    Waits(Pin<Box<dyn Future<Output = Option<ExitTurn>> + Send>>),
    /// The turn has begun; `None` once it was given back.
    Goes(Option<ExitTurn>),
}

impl Leaving {
    pub(super) fn begin(exit: &Exit) -> Box<Leaving> {
        Box::new(Leaving::Waits(Box::pin(exit.turn())))
    }

    /// Waits for the turn. Ready with true at its begin, and with false afterwards.
    pub(super) fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let Leaving::Waits(turn) = self else { return Poll::Ready(false) };
        *self = Leaving::Goes(ready!(turn.as_mut().poll(context)));
        Poll::Ready(true)
    }

    /// Gives the turn back: the connection has more to read before its end.
    pub(super) fn pause(&mut self) {
        if let Leaving::Goes(turn) = self {
            *turn = None;
        }
    }

    /// The turn, if it has begun.
    pub(super) fn into_turn(self) -> Option<ExitTurn> {
        match self {
            Leaving::Goes(turn) => turn,
            Leaving::Waits(_) => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::Cell;
    use std::future::{Future, poll_fn};

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
    async fn a_connection_reads_its_last_bytes_in_a_turn_of_its_own() {
        let exit = Exit::default();
        let others = join_all((0..ENDING_MAX).map(|_| exit.turn())).await;
        assert!(exit.is_crowded());
        let mut leaving = Leaving::begin(&exit);
        for _ in 0..3 {
            assert!(poll_fn(|context| Poll::Ready(leaving.poll_turn(context).is_pending())).await);
            yield_now().await;
        }
        drop(others);
        assert!(poll_fn(|context| leaving.poll_turn(context)).await, "the turn begins");
        assert!(!poll_fn(|context| leaving.poll_turn(context)).await, "once");
        let free = exit.0.available_permits();
        leaving.pause();
        assert_eq!((free, exit.0.available_permits()), (ENDING_MAX - 1, ENDING_MAX));
        assert!(leaving.into_turn().is_none());
        let mut leaving = Leaving::begin(&exit);
        poll_fn(|context| leaving.poll_turn(context)).await;
        assert!(leaving.into_turn().is_some(), "kept until the connection has ended");
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
