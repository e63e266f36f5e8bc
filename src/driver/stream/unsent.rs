//! What is left to send of answers that take several messages.
//!
//! A stream keeps the messages of an answer until the last one is handed out, whatever becomes of the encoder's copy: a set that
//! the cache has no room for is encoded once, and not once for each message and client. A client that has stopped to read
//! may keep them only as long as they are current: what its source has moved on from is taken back, and the client is sent
//! the difference to what there is when it reads again (RLY-55).

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::driver::ground::encoder::Encoded;
use crate::driver::ground::encoder::private_body::Sharing;
use crate::driver::ground::registry::lock;
use crate::driver::stream::state::{Inner, StreamState, Tables};
use crate::engine::downstream::Answer;

/// Between two looks at what clients have stopped to read.
const INTERVAL: Duration = Duration::from_secs(5);

/// A client that takes no message in this time has stopped to read: of one that takes longer for its 3 MiB, each update would
/// begin the answer anew.
const STALLED_AFTER: Duration = Duration::from_secs(15);

/// A stream that waited so often for a body, and was overtaken by a newer state each time, makes the next one itself: it would never
/// be served otherwise while updates come faster than they are encoded.
pub(crate) const WAITS_MAX: u8 = 3;

impl StreamState {
    /// The messages of an answer. The rest of one that takes several is what was made for its first. `None`: it is begun anew.
    pub(crate) fn encoded(
        &self,
        inner: &mut Inner,
        index: usize,
        answer: &Answer,
        waker: &Waker,
    ) -> Poll<Option<Arc<Encoded>>> {
        if answer.chunk > 0 {
            let key = answer.key();
            let unsent = inner.unsent.iter().find(|(kept, _)| *kept == key);
            let unsent = unsent.map(|(_, unsent)| unsent.clone());
            if unsent.is_none() {
                inner.session.begin_anew(index);
            }
            return Poll::Ready(unsent);
        }
        let (mut private_body, patient) = (std::mem::take(&mut inner.private_body), inner.waits < WAITS_MAX);
        let sharing = Sharing::of(inner.is_private(index), &mut private_body);
        let identifier = || inner.identifier(index);
        let encoded = self.shared.encoder.poll_encode(answer, sharing, identifier, patient, waker);
        inner.private_body = private_body;
        inner.waits = if encoded.is_pending() { inner.waits.saturating_add(1) } else { 0 };
        encoded.map(Some)
    }

    /// Takes back what a client has left to read of an answer that is outdated, if it has taken nothing for so long.
    pub(crate) fn take_back(&self, stalled: Duration) {
        if self.unread_for().is_none_or(|age| age < stalled) {
            return;
        }
        let inner = &mut *lock(&self.inner);
        if inner.unsent.is_empty() {
            return;
        }
        inner.session.give_up(|key| !self.shared.encoder.is_current(key));
        inner.drop_sent();
    }
}

impl Inner {
    /// Keeps the messages as long as some of them are still to be sent.
    pub(crate) fn keep_unsent(&mut self, answer: &Answer, encoded: &Arc<Encoded>) {
        let is_last = answer.chunk + 1 >= encoded.messages.len();
        if is_last && self.unsent.is_empty() {
            return;
        }
        self.drop_sent();
        let key = answer.key();
        if !is_last && !self.unsent.iter().any(|(kept, _)| *kept == key) {
            self.unsent.reserve_exact(1);
            self.unsent.push((key, encoded.clone()));
        }
    }

    fn drop_sent(&mut self) {
        let pending: Vec<_> = self.session.subscriptions().iter().filter_map(|s| s.pending_key()).collect();
        self.unsent.retain(|(key, _)| pending.contains(key));
        if self.unsent.is_empty() {
            self.unsent = Vec::new();
        }
    }
}

/// Looks at all streams again and again.
pub(crate) async fn take_back(tables: Tables) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let mut next = None;
        while let Some(stream) = tables.streams.next(next) {
            next = Some(stream.number());
            stream.take_back(STALLED_AFTER);
        }
    }
}
