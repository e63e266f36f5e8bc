//! The use of servers other than the preferred server of a list.

use std::sync::Arc;

use super::catalogue::{Catalogue, Counters, Gauges};
use crate::telemetry::instruments::GaugePart;

#[derive(Debug)]
pub struct FallbackMetrics {
    streams: Gauges<2>,
    moves: Counters<2>,
}

impl FallbackMetrics {
    pub(super) fn new(catalogue: &mut Catalogue) -> FallbackMetrics {
        FallbackMetrics {
            streams: catalogue.add(
                "sluice_fallback_streams",
                "Downstream streams served by another server of the list than the preferred one",
            ),
            moves: catalogue.add(
                "sluice_fallback_moves",
                "Moves of downstream streams to a server of the list, including returns to the preferred one",
            ),
        }
    }

    /// A stream moved to `server`. Unless the server is the `preferred` one, the stream counts as served by
    /// it until the handle is dropped.
    pub fn moved(&self, list: &Arc<str>, server: &Arc<str>, preferred: bool) -> Option<GaugePart> {
        let labels = [("list", list.clone()), ("server", server.clone())];
        self.moves.get_or_create(&labels).inc();
        (!preferred).then(|| GaugePart::new(&self.streams.get_or_create_owned(&labels), 1))
    }
}
