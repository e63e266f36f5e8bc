//! A signal that is raised once, for any number of tasks.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use pin_project_lite::pin_project;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// A flag that is raised once. Connections wait for signals beside everything else, and are polled several
/// times per update. Such a poll reads one flag, and takes no lock that other tasks take.
#[derive(Debug, Default)]
pub struct Signal {
    is_raised: AtomicBool,
    waiting: Notify,
}

impl Signal {
    pub fn raise(&self) {
        self.is_raised.store(true, Ordering::Release);
        self.waiting.notify_waiters();
    }

    pub fn is_raised(&self) -> bool {
        self.is_raised.load(Ordering::Acquire)
    }

    /// Resolves when the signal is raised, or at once after that. After the first poll, all polls must come
    /// from the same task, because only this task is woken.
    pub fn raised(&self) -> Raised<'_> {
        Raised { signal: self, waiting: self.waiting.notified(), is_registered: false }
    }
}

pin_project! {
    /// See [`Signal::raised`]. Written by hand: each connection has two of these futures, and an `async`
    /// block takes twice the memory.
    #[derive(Debug)]
    pub struct Raised<'a> {
        signal: &'a Signal,
        #[pin]
        waiting: Notified<'a>,
        is_registered: bool,
    }
}

impl Future for Raised<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.signal.is_raised.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        if std::mem::replace(this.is_registered, true) {
            return Poll::Pending;
        }
        // A signal raised since this future began is noticed.
        this.waiting.poll(context)
    }
}

/// A [`Signal`] for one task alone. Both the signal and the wait take less memory, and each connection has
/// one of both.
#[derive(Debug, Default)]
pub struct SoleSignal {
    is_raised: AtomicBool,
    waiting: AtomicWaker,
}

impl SoleSignal {
    pub fn raise(&self) {
        self.is_raised.store(true, Ordering::Release);
        self.waiting.wake();
    }

    pub fn is_raised(&self) -> bool {
        self.is_raised.load(Ordering::Acquire)
    }

    /// As [`Signal::raised`]. Only the task that waited last is woken.
    pub fn raised(&self) -> SolelyRaised<'_> {
        SolelyRaised { signal: self, is_registered: false }
    }
}

/// See [`SoleSignal::raised`].
#[derive(Debug)]
pub struct SolelyRaised<'a> {
    signal: &'a SoleSignal,
    is_registered: bool,
}

impl Future for SolelyRaised<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if !std::mem::replace(&mut self.is_registered, true) {
            self.signal.waiting.register(context.waker());
        }
        // A signal raised before the registration is noticed here.
        if self.signal.is_raised() { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::Arc;

    use futures_util::task::noop_waker;
    use tokio::task::yield_now;

    #[tokio::test]
    async fn a_signal_wakes_all_waiting_tasks_and_stays_raised() {
        let signal = Arc::new(Signal::default());
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                tokio::spawn({
                    let signal = signal.clone();
                    async move { signal.raised().await }
                })
            })
            .collect();
        yield_now().await;
        assert!(waiting.iter().all(|task| !task.is_finished()));
        signal.raise();
        for task in waiting {
            assert!(task.await.is_ok());
        }
        signal.raise();
        signal.raised().await;
    }

    #[tokio::test]
    async fn a_signal_for_one_task_wakes_it_and_stays_raised() {
        let signal = Arc::new(SoleSignal::default());
        let waiting = tokio::spawn({
            let signal = signal.clone();
            async move { signal.raised().await }
        });
        yield_now().await;
        assert!(!waiting.is_finished() && !signal.is_raised());
        signal.raise();
        assert!(waiting.await.is_ok());
        signal.raised().await;
    }

    #[test]
    fn a_task_polled_before_sees_the_signal() {
        let (signal, waker) = (Signal::default(), noop_waker());
        let mut context = Context::from_waker(&waker);
        let mut raised = pin!(signal.raised());
        for _ in 0..3 {
            assert!(raised.as_mut().poll(&mut context).is_pending());
        }
        signal.raise();
        assert!(raised.as_mut().poll(&mut context).is_ready());
    }
}
