//! The send queue of one stream.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::ClientSettings;
use sluice_setting::InForce;

/// A queue of messages, bounded by bytes and by number (FU30). The message being sent counts until HTTP/2 has
/// accepted its last byte.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    /// A message was added, or the queue overflowed.
    filled: Notify,
    overflowed: Notify,
    drained: Notify,
    /// Read for each message (ADR 21).
    settings: InForce<ClientSettings>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Queued {
    Message(Bytes),
    /// See [`Queue::mark`].
    Mark,
    /// No message follows.
    End,
}

#[derive(Debug, Default)]
struct QueueState {
    messages: VecDeque<Queued>,
    /// Bytes of all unsent messages, including the message being sent.
    bytes: usize,
    sending: bool,
    overflowed: bool,
}

impl Queue {
    pub(super) fn new(settings: InForce<ClientSettings>) -> Queue {
        Queue {
            state: Mutex::default(),
            filled: Notify::new(),
            overflowed: Notify::new(),
            drained: Notify::new(),
            settings,
        }
    }

    /// Adds a message. A message for an empty queue may have any length. After an overflow, messages are
    /// discarded.
    pub(super) fn push(&self, message: Bytes) {
        let settings = self.settings.get();
        let mut state = self.state();
        let waiting = state.messages.len() + usize::from(state.sending);
        let bytes = state.bytes.saturating_add(message.len());
        let fits = waiting < settings.queue_messages_max && bytes <= settings.queue_bytes_max;
        if state.overflowed {
            return;
        }
        if waiting > 0 && !fits {
            state.overflowed = true;
            state.messages = VecDeque::new();
            drop(state);
            self.overflowed.notify_one();
            return;
        }
        state.bytes += message.len();
        state.messages.push_back(Queued::Message(message));
        drop(state);
        self.filled.notify_one();
    }

    /// Marks the end of the messages so far. Each mark needs a new message before it.
    pub(super) fn mark(&self) {
        self.state().messages.push_back(Queued::Mark);
        self.filled.notify_one();
    }

    /// Ends the relay's side of the stream after the messages so far.
    pub(super) fn end(&self) {
        self.state().messages.push_back(Queued::End);
        self.filled.notify_one();
    }

    /// The next message to send, which [`Queue::sent`] must follow, a mark, or the end.
    pub(super) async fn next(&self) -> Queued {
        loop {
            {
                let mut state = self.state();
                if let Some(next) = state.messages.pop_front() {
                    state.sending = matches!(next, Queued::Message(_));
                    return next;
                }
            }
            self.filled.notified().await;
        }
    }

    /// The message from [`Queue::next`] was sent.
    pub(super) fn sent(&self, length: usize) {
        let mut state = self.state();
        state.sending = false;
        state.bytes = state.bytes.saturating_sub(length);
        if state.bytes == 0 {
            drop(state);
            self.drained.notify_one();
        }
    }

    /// Whether all messages were sent.
    pub(super) fn is_drained(&self) -> bool {
        self.state().bytes == 0
    }

    /// Waits until the queue becomes empty. May return early.
    pub(super) async fn drained(&self) {
        self.drained.notified().await;
    }

    /// Waits until the queue overflows.
    pub(super) async fn overflowed(&self) {
        self.overflowed.notified().await;
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures_util::FutureExt;

    use super::*;

    fn queue(bytes_max: usize, messages_max: usize) -> Queue {
        Queue::new(InForce::new(settings(bytes_max, messages_max)))
    }

    fn settings(queue_bytes_max: usize, queue_messages_max: usize) -> ClientSettings {
        ClientSettings { queue_bytes_max, queue_messages_max, ..ClientSettings::default() }
    }

    fn message(length: usize) -> Bytes {
        Bytes::from(vec![0; length])
    }

    #[test]
    fn fu30_a_queue_overflows_by_bytes_and_by_number() {
        let by_bytes = queue(10, 100);
        by_bytes.push(message(6));
        by_bytes.push(message(4));
        assert_eq!(by_bytes.overflowed().now_or_never(), None);
        by_bytes.push(message(1));
        assert_eq!(by_bytes.overflowed().now_or_never(), Some(()));
        assert_eq!(by_bytes.next().now_or_never(), None, "what waited was let go");

        let by_number = queue(10, 2);
        for _ in 0..2 {
            by_number.push(message(1));
        }
        assert_eq!(by_number.overflowed().now_or_never(), None);
        by_number.push(message(1));
        assert_eq!(by_number.overflowed().now_or_never(), Some(()));
    }

    #[test]
    fn rel_5_a_queue_follows_the_limits_in_force() {
        let in_force = InForce::new(settings(10, 1));
        let queue = Queue::new(in_force.clone());
        queue.push(message(1));
        in_force.publish(settings(10, 3));
        queue.push(message(1));
        assert_eq!(queue.overflowed().now_or_never(), None);
        in_force.publish(settings(2, 3));
        assert_eq!(queue.overflowed().now_or_never(), None, "a lower limit ends no queue by itself");
        queue.push(message(1));
        assert_eq!(queue.overflowed().now_or_never(), Some(()));
    }

    /// FU33: a part of a long request waits for the part before.
    #[test]
    fn a_mark_comes_after_all_earlier_messages_and_counts_for_nothing() {
        let queue = queue(10, 100);
        queue.push(message(10));
        queue.mark();
        assert_eq!(queue.next().now_or_never(), Some(Queued::Message(message(10))));
        assert!(!queue.is_drained());
        queue.sent(10);
        assert!(queue.is_drained() && queue.drained().now_or_never().is_some());
        queue.push(message(10));
        assert_eq!(queue.next().now_or_never(), Some(Queued::Mark));
        assert_eq!(queue.next().now_or_never(), Some(Queued::Message(message(10))));
    }

    #[test]
    fn fu30_a_message_on_its_way_counts_until_it_is_sent() {
        let queue = queue(10, 100);
        queue.push(message(500));
        assert_eq!(
            queue.next().now_or_never(),
            Some(Queued::Message(message(500))),
            "alone, it may be longer"
        );
        assert!(!queue.is_drained());
        queue.sent(500);
        assert!(queue.is_drained());
        queue.push(message(10));
        assert_eq!(queue.next().now_or_never(), Some(Queued::Message(message(10))));
        queue.push(message(1));
        assert_eq!(queue.overflowed().now_or_never(), Some(()));
    }
}
