//! The task of a stream that takes the requests over the rate of changes.

use std::sync::Weak;

use tokio::time::sleep_until;

use crate::driver::source::handle::Subscriber;
use crate::driver::stream::state::{Stream, StreamState};
use sluice_engine::downstream::{Portion, RequestOutcome};
use sluice_xds::Status;

/// Takes the delayed requests at the rate of changes. Ends with the last request, or with the stream.
pub(super) async fn take_in_turn(stream: Weak<StreamState>) {
    let hold_open = || stream.upgrade()?.hold_open();
    let next_turn = |stream: Stream| {
        let state = stream.state();
        let clock = &state.context.shared.clock;
        let turn = state.inner.lock().next_turn(&state.context, clock.now());
        turn.map(|turn| clock.instant(turn))
    };
    while let Some(turn) = hold_open().and_then(next_turn) {
        sleep_until(turn).await;
        let Some(stream) = hold_open() else { return };
        let stream = stream.state();
        let watch_order = stream.watch_order.lock().await;
        let taken = stream.take_next();
        let followed = match taken {
            Ok(Some(outcome)) => stream.follow_up(outcome, watch_order).await,
            Ok(None) => Ok(()),
            Err(status) => Err(status),
        };
        if let Err(status) = followed {
            return stream.end(status);
        }
    }
}

impl StreamState {
    /// Takes the next delayed request if the turn has come.
    fn take_next(&self) -> Result<Option<RequestOutcome>, Status> {
        let (inner, now) = (&mut *self.inner.lock(), self.context.shared.clock.now());
        let Some(next) = inner.next_delayed(&self.context, now) else { return Ok(None) };
        self.take_portion(inner, &next.request, Portion::Waited(next.requests), now).map(Some)
    }
}
