//! Moves to a private source, for names that may not be shared (CCH-1).

use std::sync::Arc;

use tokio::time::{Instant, sleep};

use crate::driver::ground::registry::lock;
use crate::driver::source::handle::Subscriber;
use crate::driver::stream::routes::Routes;
use crate::driver::stream::state::StreamState;
use crate::xds::TypeUrl;

impl StreamState {
    /// Schedules the move of a type's names to a private source.
    pub(crate) fn divert_soon(&self, type_url: TypeUrl) {
        // Keeps the stream open until all sources are told. Otherwise nothing would remove a stream entering
        // a source after the end.
        let Some(held) = self.hold_open() else { return };
        let Some(wait) = lock(&self.diverts).get_or_insert_default().note(type_url, Instant::now()) else {
            return;
        };
        tokio::spawn(async move {
            let stream = held.state();
            if !wait.is_zero() {
                sleep(wait).await;
            }
            let _order = stream.lock_watch_order().await;
            let types = lock(&stream.diverts).get_or_insert_default().take(Instant::now());
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
                settings: &inner.routing,
                node: inner.node.as_deref(),
                sources: &mut inner.sources,
                refusal: Some(&mut inner.refusal),
            };
            let diverted = inner.session.divert(type_url, &mut routes);
            diverted.map(|watches| [watches, self.keep_moving(inner)].concat())
        };
        match diverted {
            Ok(watches) => self.send_watches(watches).await,
            Err(status) => self.end(status),
        }
    }
}
