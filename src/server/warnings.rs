//! Warnings about handshakes, spaced out by reason.

use std::net::SocketAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::telemetry::Warnings;
use crate::trust::refusal::{Reason, Refusal};

/// Warnings of one listener about handshakes, spaced out by reason.
pub(super) struct WarnTable(Mutex<[Warnings; Reason::ALL.len()]>);

/// An operator reads one line a minute and reason.
const HANDSHAKE_INTERVAL: Duration = Duration::from_secs(60);

impl Default for WarnTable {
    fn default() -> WarnTable {
        WarnTable(Mutex::new(Reason::ALL.map(|_| Warnings::new(HANDSHAKE_INTERVAL))))
    }
}

impl WarnTable {
    fn due(&self, reason: Reason) -> Option<u64> {
        let mut table = self.0.lock();
        table.get_mut(reason as usize)?.due(Instant::now())
    }

    /// A handshake failed. Peers that leave or stay silent are everyday life, and only counted.
    pub(super) fn refused(&self, listener: &str, peer: Option<SocketAddr>, refusal: &Refusal) {
        let peer = peer.map_or_else(|| "unix".to_owned(), |peer| peer.to_string());
        if matches!(refusal.reason, Reason::Eof | Reason::Timeout) {
            tracing::debug!(listener, peer, reason = %refusal, "a TLS handshake failed");
        } else if let Some(suppressed) = self.due(refusal.reason) {
            tracing::warn!(listener, peer, suppressed, reason = %refusal, "refused a TLS handshake");
        }
    }

    /// A client speaks TLS to a plaintext listener (SEC-7).
    pub(super) fn tls_on_plaintext(&self, listener: &str) {
        if let Some(suppressed) = self.due(Reason::NotTls) {
            tracing::warn!(
                listener,
                suppressed,
                "closed a connection: the client speaks TLS, and the listener has no `tls` in the configuration"
            );
        }
    }

    /// An open connection ends, because its certificate would be refused now (CRT-8).
    pub(super) fn ended(&self, listener: &str, refusal: &Refusal) {
        if let Some(suppressed) = self.due(refusal.reason) {
            tracing::warn!(
                listener, suppressed, reason = %refusal,
                "closing a connection: its client certificate is not accepted any more"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_place_in_the_table() {
        for (place, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
        }
    }
}
