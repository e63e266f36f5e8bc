//! The server at the other end of all connections of a pool.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::Guard;
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::warn;

use super::{ClientSettings, GrpcAddress};
use crate::telemetry::metrics::ClientMetrics;
use sluice_setting::{Epoch, InForce};
use sluice_xds::Status;

/// PINGs for round trips that may follow each other while the server writes nothing. grpc-go closes a
/// connection at the third PING that comes too early (gRFC A8); the PING of the interval may come between.
const ROUND_PINGS: u32 = 2;

/// One server, as its connections and their pool know it.
#[derive(Debug)]
pub(super) struct GrpcPeer {
    pub(super) address: GrpcAddress,
    pub(super) settings: InForce<ClientSettings>,
    pub(super) metrics: Arc<ClientMetrics>,
    tolerance: Mutex<PingTolerance>,
    pub(super) news: watch::Sender<ConnectionNews>,
}

/// The PINGs that a server bears.
#[derive(Debug)]
struct PingTolerance {
    /// Multiplies the interval of PINGs; doubles when the server says `too_many_pings` to such a PING (FU32).
    interval_factor: u32,
    /// See [`ROUND_PINGS`]. One less when the server says `too_many_pings` to the PING of a round trip.
    round_pings: u32,
}

/// Changes whenever waiting streams should check again.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionNews {
    /// The number of failed attempts.
    pub(super) failures: u64,
    /// The failure of the last attempt.
    pub(super) failed: Option<Status>,
}

impl GrpcPeer {
    pub(super) fn new(
        address: GrpcAddress,
        settings: InForce<ClientSettings>,
        metrics: Arc<ClientMetrics>,
    ) -> GrpcPeer {
        let tolerance = Mutex::new(PingTolerance { interval_factor: 1, round_pings: ROUND_PINGS });
        GrpcPeer { address, settings, metrics, tolerance, news: watch::Sender::default() }
    }

    /// The settings in force, for the next connection, stream, message or timer. A connection keeps its
    /// windows and socket options.
    pub(super) fn settings(&self) -> Guard<Arc<Epoch<ClientSettings>>> {
        self.settings.get()
    }

    pub(super) fn configure(&self, settings: ClientSettings) {
        self.settings.publish(settings);
        self.notify();
    }

    pub(super) fn ping_interval(&self) -> Duration {
        self.settings().ping_interval.saturating_mul(self.tolerance.lock().interval_factor)
    }

    /// The PINGs for round trips that the server bears without DATA or HEADERS between.
    pub(super) fn round_pings(&self) -> u32 {
        self.tolerance.lock().round_pings
    }

    /// The server considers our PINGs too frequent (FU32). Only the kind of the last PING becomes less
    /// frequent: `is_for_round`, or that of the interval.
    pub(super) fn too_many_pings(&self, is_for_round: bool) {
        self.metrics.too_many_pings.inc();
        let mut tolerance = self.tolerance.lock();
        if is_for_round {
            tolerance.round_pings = tolerance.round_pings.saturating_sub(1);
        } else {
            tolerance.interval_factor = tolerance.interval_factor.saturating_mul(2);
        }
        let round_pings = tolerance.round_pings;
        drop(tolerance);
        let interval = self.ping_interval();
        warn!(server = %self.address, ?interval, round_pings,
            "the server said too_many_pings; PINGs become less frequent");
    }

    /// Makes all waiting streams check again.
    pub(super) fn notify(&self) {
        self.news.send_modify(|_| ());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fu32_rel_5_too_many_pings_doubles_the_interval_each_time() {
        let address = GrpcAddress::Tcp { host: "127.0.0.1".to_owned(), port: 1 };
        let settings = InForce::new(ClientSettings::default());
        let peer = GrpcPeer::new(address, settings, Arc::new(ClientMetrics::default()));
        assert_eq!(peer.ping_interval(), Duration::from_secs(300));
        for seconds in [600, 1200] {
            peer.too_many_pings(false);
            assert_eq!((peer.ping_interval(), peer.round_pings()), (Duration::from_secs(seconds), 2));
        }
        for round_pings in [1, 0, 0] {
            peer.too_many_pings(true);
            assert_eq!((peer.ping_interval(), peer.round_pings()), (Duration::from_secs(1200), round_pings));
        }
        peer.configure(ClientSettings {
            ping_interval: Duration::from_secs(60),
            ..ClientSettings::default()
        });
        assert_eq!(
            peer.ping_interval(),
            Duration::from_secs(240),
            "the server's wish stays with its connections"
        );
    }
}
