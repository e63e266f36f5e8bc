//! The end of a client certificate, and of its connection (CRT-8, CRT-9).

use std::pin::pin;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use tokio::time::{Instant, sleep, sleep_until};

use super::ListenerTls;
use crate::telemetry::metrics::TlsMetrics;
use crate::telemetry::wall_now;
use crate::trust::server::Proved;

/// The time from the end of a leaf to the end of its connection.
const GRACE: Duration = Duration::from_secs(60);

/// Connections are judged again over this time after a change: 10,000 at once would hold up updates.
const SPREAD: Duration = Duration::from_secs(4);

/// From the refusal of an open connection to its cut.
const REFUSED_WINDOW: Duration = Duration::from_secs(1);

/// A leaf with less time left counts as expiring (CRT-11).
const EXPIRING: Duration = Duration::from_secs(600);

/// The wall clock may be set at any time (CRT-12): it is read at least this often.
const CLOCK_CHECK: Duration = Duration::from_secs(300);

/// The certificate of the client of an open connection.
pub(in crate::server) struct ClientLeaf {
    chain: Vec<CertificateDer<'static>>,
    not_before: SystemTime,
    not_after: SystemTime,
    tls: ListenerTls,
    metrics: TlsMetrics,
}

/// The reason for which a connection must close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum LeafEnd {
    /// The certificate ends soon, or has ended. The connection may stay for `window`.
    Expires { window: Duration },
    /// The certificate would be refused now.
    Refused { window: Duration },
}

impl ClientLeaf {
    pub(in crate::server) fn new(
        chain: Vec<CertificateDer<'static>>,
        proved: &Proved,
        tls: ListenerTls,
        metrics: TlsMetrics,
    ) -> ClientLeaf {
        ClientLeaf { chain, not_before: proved.not_before, not_after: proved.not_after, tls, metrics }
    }

    /// Resolves when the connection must close.
    pub(in crate::server) async fn end(&self, listener: &str) -> LeafEnd {
        // Spread over the last tenth of the life, so that the clients of one agent don't return at once.
        let life = self.not_after.duration_since(self.not_before).unwrap_or_default();
        let ahead = life.mul_f64(0.1 * fastrand::f64());
        let mut judgements = self.tls.watched.judgements();
        let mut expiring = None;
        let mut judge_at: Option<Instant> = None;
        loop {
            let left = self.not_after.duration_since(wall_now()).unwrap_or_default();
            if left <= EXPIRING && expiring.is_none() {
                expiring = Some(self.metrics.expiring());
            }
            let ends_at_expiry = ***self.tls.ends_at_expiry.get();
            if left <= ahead && ends_at_expiry {
                return LeafEnd::Expires { window: left + GRACE };
            }
            let next = if ends_at_expiry { left - ahead } else { CLOCK_CHECK };
            let mut clock = pin!(sleep(next.min(CLOCK_CHECK).max(Duration::from_millis(10))));
            tokio::select! {
                () = &mut clock => {}
                changed = judgements.changed() => match changed {
                    Ok(()) => judge_at = Some(Instant::now() + SPREAD.mul_f64(fastrand::f64())),
                    // The server is about to end.
                    Err(_) => std::future::pending().await,
                },
                () = sleep_until(judge_at.unwrap_or_else(Instant::now)), if judge_at.is_some() => {
                    judge_at = None;
                    let generation = self.tls.watched.in_force().epoch();
                    if let Err(refusal) = generation.judge_again(&self.chain, wall_now()) {
                        self.tls.warnings.ended(listener, &refusal);
                        return LeafEnd::Refused { window: REFUSED_WINDOW };
                    }
                }
            }
        }
    }
}
