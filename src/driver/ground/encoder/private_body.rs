//! Bodies for one stream alone. A thread for blocking work makes the large ones.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tokio::sync::oneshot;

use crate::driver::ground::encoder::Encoder;
use sluice_engine::downstream::AnswerKey;

/// The streams that may have a body.
pub(crate) enum Sharing<'a, T> {
    /// All streams whose answers have the same key.
    Shared,
    /// One stream. No other stream can find the body (CCH-1).
    Private(&'a mut PrivateBody<T>),
}

impl<'a, T> Sharing<'a, T> {
    pub fn of(private: bool, private_body: &'a mut PrivateBody<T>) -> Self {
        if private { Sharing::Private(private_body) } else { Sharing::Shared }
    }
}

/// A pending body for one stream. The body is dropped together with the stream.
///
/// Boxed: few streams have a body.
pub(crate) struct PrivateBody<T>(Option<Box<(AnswerKey, oneshot::Receiver<T>)>>);

impl<T> Default for PrivateBody<T> {
    fn default() -> Self {
        PrivateBody(None)
    }
}

impl<T: Send + 'static> PrivateBody<T> {
    /// Makes a small body at once. A large body is made elsewhere; the waker is woken at the end.
    pub fn poll<M: FnOnce(&Encoder) -> T + Send + 'static>(
        &mut self,
        encoder: &Arc<Encoder>,
        key: AnswerKey,
        waker: &Waker,
        is_large: impl FnOnce() -> bool,
        make: impl Fn() -> M,
    ) -> Poll<T> {
        let begun = self.0.take_if(|begun| begun.0 == key);
        if begun.is_none() && !is_large() {
            return Poll::Ready(make()(encoder));
        }
        let begun = self.0.insert(begun.unwrap_or_else(|| {
            let ((done, made), make) = (oneshot::channel(), make());
            // A failed send means that the stream has ended.
            tokio::spawn(encoder.clone().elsewhere(move |encoder| drop(done.send(make(encoder)))));
            Box::new((key, made))
        }));
        let made = ready!(Pin::new(&mut begun.1).poll(&mut Context::from_waker(waker)));
        self.0 = None;
        // After a panic in the other thread, the body is made here, so that the stream sees the same panic.
        Poll::Ready(made.unwrap_or_else(|_| make()(encoder)))
    }
}
