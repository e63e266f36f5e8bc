//! The unsent messages of answers with several messages.
//!
//! A stream keeps the messages of an answer until the last is handed out, regardless of the encoder's cache. A
//! set too large for the cache is thus encoded once, and not once per message and client. A client that has
//! stopped reading may keep only current messages. The stream drops outdated messages, and sends the difference
//! when the client reads again (RLY-55).

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use thin_vec::ThinVec;

use crate::driver::ground::context::DriverContext;
use crate::driver::ground::encoder::private_body::Sharing;
use crate::driver::ground::encoder::{BodyTimes, Encoded, Maker};
use crate::driver::ground::registry::lock;
use crate::driver::source::changes::TrackedChange;
use crate::driver::stream::state::{Inner, StreamState, Tables};
use crate::engine::downstream::Answer;

/// The time between two checks for clients that have stopped reading.
const INTERVAL: Duration = Duration::from_secs(5);

/// A client that takes no message for this time has stopped reading. A shorter time would make slow clients
/// begin anew at each update of a set of 3 MiB.
const STALLED_AFTER: Duration = Duration::from_secs(15);

/// After this many waits for a body, each ended by a newer state, the stream makes the next body itself.
/// Otherwise it would not be served while updates come faster than bodies are encoded.
pub(crate) const WAITS_MAX: u8 = 3;

impl StreamState {
    /// The messages of an answer. Later messages come from the body that was made for the first message.
    /// `None`: the body is gone, and the answer begins anew.
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
        let maker = || self.maker(inner, index, answer);
        let encoded = self.shared.encoder.poll_encode(answer, sharing, maker, patient, waker);
        inner.private_body = private_body;
        inner.waits = if encoded.is_pending() { inner.waits.saturating_add(1) } else { 0 };
        encoded.map(Some)
    }

    /// The maker of a body for this stream. With traces, it notes the making in the changes that the body brings (OBS-2).
    pub(crate) fn maker(&self, inner: &Inner, index: usize, answer: &Answer) -> Maker {
        let changes = || inner.changes_in(index, answer);
        let ready = self.shared.metrics.traces.is_on().then(|| notes(changes()));
        Maker { identifier: inner.identifier(index), ready }
    }

    /// Drops the unread messages of an outdated answer if the client has read nothing for this long.
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

/// Notes the making of a body in these changes.
fn notes(changes: Vec<Arc<TrackedChange>>) -> Box<dyn Fn(BodyTimes) + Send + Sync> {
    Box::new(move |times| changes.iter().for_each(|change| change.encoded(times)))
}

impl Inner {
    /// Keeps the body of an answer while some of its messages are unsent.
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
            self.unsent = ThinVec::new();
        }
    }
}

/// Checks all streams, and the encodings without recent use, periodically.
pub(crate) async fn take_back(shared: Arc<DriverContext>, tables: Tables) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let mut next = None;
        while let Some(stream) = tables.streams.next(next) {
            next = Some(stream.number());
            stream.take_back(STALLED_AFTER);
        }
        shared.encoder.tidy();
    }
}
