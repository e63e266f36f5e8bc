//! The hand-over from a predecessor of the process.

use prometheus_client::metrics::gauge::Gauge;

use super::catalogue::Catalogue;

#[derive(Debug)]
pub struct HandoverMetrics {
    predecessor_streams: Gauge,
}

impl HandoverMetrics {
    pub(super) fn new(catalogue: &mut Catalogue) -> HandoverMetrics {
        let help = "Streams that the process before the last upgrade still serves";
        HandoverMetrics { predecessor_streams: catalogue.add("sluice_handover_predecessor_streams", help) }
    }

    pub fn predecessor_streams(&self, count: u64) {
        self.predecessor_streams.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}
