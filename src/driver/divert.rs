//! Streams that have to ask for themselves for what may not be shared (CCH-1).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::registry::lock;
use super::routes::Routes;
use super::source::Subscriber;
use super::stream::StreamState;
use crate::xds::TypeUrl;

/// Between two diversions of a stream. Each goes through all names of the stream, and a control plane may bring them one by one.
const PAUSE: Duration = Duration::from_millis(50);

/// The types of a stream of which some part is to be asked for elsewhere.
#[derive(Debug, Default)]
pub(super) struct Diverts {
    waiting: Vec<TypeUrl>,
    not_before: Option<Instant>,
}

impl Diverts {
    /// How long to wait, for whoever has to see to it; `None` if somebody does already.
    fn note(&mut self, type_url: TypeUrl, now: Instant) -> Option<Duration> {
        if self.waiting.contains(&type_url) {
            return None;
        }
        self.waiting.push(type_url);
        let wait = self.not_before.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        (self.waiting.len() == 1).then_some(wait)
    }

    fn take(&mut self, now: Instant) -> Vec<TypeUrl> {
        self.not_before = Some(now + PAUSE);
        std::mem::take(&mut self.waiting)
    }
}

impl StreamState {
    /// Asks its other sources for what may not be shared, soon.
    pub(super) fn divert_soon(&self, type_url: TypeUrl) {
        // Held until its sources know: one that a stream enters after its farewell would be kept by it for ever.
        let Some(held) = self.hold_open() else { return };
        let Some(wait) = lock(&self.diverts).note(type_url, Instant::now()) else { return };
        tokio::spawn(async move {
            let stream = held.state();
            if !wait.is_zero() {
                sleep(wait).await;
            }
            let _telling = stream.tell_in_order().await;
            let types = lock(&stream.diverts).take(Instant::now());
            for type_url in types {
                stream.divert_now(&type_url).await;
            }
            Subscriber::wake(&**stream);
        });
    }

    async fn divert_now(self: &Arc<Self>, type_url: &TypeUrl) {
        let diverted = {
            let inner = &mut *lock(&self.inner);
            let mut routes = Routes {
                stream: self,
                node: inner.node.as_deref(),
                sources: &mut inner.sources,
                refusal: Some(&mut inner.refusal),
            };
            inner.session.divert(type_url, &mut routes)
        };
        match diverted {
            Ok(watches) => self.tell(watches).await,
            Err(status) => self.end(status),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cch_1_what_a_burst_of_responses_gives_up_is_one_diversion() {
        let (mut diverts, start) = (Diverts::default(), Instant::now());
        let [one, other] = ["acme.One", "acme.Other"].map(TypeUrl::of_message);
        assert_eq!(diverts.note(one.clone(), start), Some(Duration::ZERO), "the first one goes at once");
        for _ in 0..1000 {
            assert_eq!(diverts.note(one.clone(), start), None, "it covers what came meanwhile");
        }
        assert_eq!(diverts.note(other.clone(), start), None);
        assert_eq!(diverts.take(start), [one.clone(), other]);
        assert_eq!(diverts.note(one.clone(), start + PAUSE / 5), Some(PAUSE * 4 / 5));
        assert_eq!(diverts.note(one.clone(), start + PAUSE / 2), None);
        assert_eq!(diverts.take(start + PAUSE), std::slice::from_ref(&one));
        assert_eq!(diverts.note(one, start + PAUSE * 3), Some(Duration::ZERO));
    }
}
