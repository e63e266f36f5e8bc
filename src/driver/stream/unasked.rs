//! Subscribes a stream to the resources that a control plane sends its client unasked (DEL-17).

use tracing::warn;

use crate::driver::stream::own_sources::newest;
use crate::driver::stream::routes::Routes;
use crate::driver::stream::state::{Inner, STREAM_BYTES, StreamState};
use crate::engine::downstream::{NoRoomFor, Watch};
use crate::telemetry::Limit;
use crate::xds::TypeUrl;

impl StreamState {
    /// The names count like those that the client asks for. Beyond a limit they are left out, and the stream goes on.
    pub(crate) fn adopt_unasked(&self, inner: &mut Inner) -> Vec<Watch> {
        let served = inner.sources.clone();
        let Inner { session, names, node, routing, sources, .. } = inner;
        let node = node.as_deref();
        let mut routes = Routes { stream: self, settings: routing, node, sources, refusal: None };
        let mut charge = |bytes| names.set(STREAM_BYTES + bytes).is_ok();
        let adopted = session.adopt(&newest(&served), &mut routes, &mut charge);
        if !adopted.watches.is_empty() {
            // Names that went make room, and a charge for less never fails.
            let _ = names.set(STREAM_BYTES + session.names_bytes());
        }
        for (type_url, names, why) in adopted.left_out {
            self.tell_left_out(&type_url, names, why);
        }
        adopted.watches
    }

    fn tell_left_out(&self, type_url: &TypeUrl, names: usize, why: NoRoomFor) {
        let limit = match why {
            NoRoomFor::Names => Limit::NamesPerStream,
            NoRoomFor::Memory => Limit::ConnectionBytes,
        };
        self.shared.metrics.limit_hit(limit);
        if let Some(suppressed) = self.shared.throttle.allow("unasked names left out") {
            warn!(stream = self.id, %type_url, names, limit = limit.name(), suppressed, "a client is sent resources that it \
                did not ask for, and its names would pass limits.{}; leaving these resources out", limit.name());
        }
    }
}
