//! The cryptography of all connections.

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::{CipherSuite, SupportedCipherSuite};

static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites.sort_by_key(place);
    Arc::new(provider)
});

/// The place of a suite in the offer of our own handshakes: like BoringSSL and Go, TLS 1.3 and AES-128 first.
/// The suites of AES-256 hash with SHA-384, for which few CPUs have instructions (ADR 24). As a server, the
/// relay follows the order of the client.
fn place(suite: &SupportedCipherSuite) -> (bool, bool) {
    use CipherSuite as Suite;
    let is_first = matches!(
        suite.suite(),
        Suite::TLS13_AES_128_GCM_SHA256
            | Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    );
    (suite.tls13().is_none(), !is_first)
}

/// The provider for all builders of rustls. The process has no default provider: a second provider among the
/// features of a dependency would make a lookup of the default panic at first use (TLS-1).
pub fn provider() -> Arc<CryptoProvider> {
    PROVIDER.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_of_aes_128_are_offered_first() {
        let offered: Vec<_> = provider().cipher_suites.iter().map(SupportedCipherSuite::suite).collect();
        assert_eq!(offered[0], CipherSuite::TLS13_AES_128_GCM_SHA256);
        assert_eq!(offered[3], CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256);
        assert_eq!(offered.len(), rustls::crypto::aws_lc_rs::default_provider().cipher_suites.len());
    }
}
