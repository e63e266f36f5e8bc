//! Bodies that are made for one stream alone, on a thread of their own if they are large.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tokio::sync::oneshot;

use crate::driver::ground::encoder::Encoder;
use crate::engine::downstream::AnswerKey;

/// Who may have a body.
pub(crate) enum Sharing<'a, T> {
    /// Everyone whose answer has the same key.
    Shared,
    /// One stream. Nobody else finds it (CCH-1).
    Private(&'a mut PrivateBody<T>),
}

impl<'a, T> Sharing<'a, T> {
    pub fn of(private: bool, private_body: &'a mut PrivateBody<T>) -> Self {
        if private { Sharing::Private(private_body) } else { Sharing::Shared }
    }
}

/// A body that is made elsewhere for one stream, and goes with it.
pub(crate) struct PrivateBody<T>(Option<(AnswerKey, oneshot::Receiver<T>)>);

impl<T> Default for PrivateBody<T> {
    fn default() -> Self {
        PrivateBody(None)
    }
}

impl<T: Send + 'static> PrivateBody<T> {
    /// A small body is made at once. For a large one the waker is woken when it is there.
    pub fn poll<M: FnOnce(&Encoder) -> T + Send + 'static>(
        &mut self,
        encoder: &Arc<Encoder>,
        key: AnswerKey,
        waker: &Waker,
        is_large: impl FnOnce() -> bool,
        make: impl Fn() -> M,
    ) -> Poll<T> {
        let begun = self.0.take_if(|(known, _)| *known == key);
        if begun.is_none() && !is_large() {
            return Poll::Ready(make()(encoder));
        }
        let (_, made) = self.0.insert(begun.unwrap_or_else(|| {
            let ((done, made), make) = (oneshot::channel(), make());
            // Nobody waits for it any more if it cannot be sent.
            tokio::spawn(encoder.clone().elsewhere(move |encoder| drop(done.send(make(encoder)))));
            (key, made)
        }));
        let made = ready!(Pin::new(made).poll(&mut Context::from_waker(waker)));
        self.0 = None;
        // If it could not be made, the stream finds out why for itself.
        Poll::Ready(made.unwrap_or_else(|_| make()(encoder)))
    }
}
