//! The cryptography of all connections.

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;

static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));

/// The provider for all builders of rustls. The process has no default provider: a second provider among the features
/// of a dependency would make a lookup of the default panic at first use (TLS-1).
pub fn provider() -> Arc<CryptoProvider> {
    PROVIDER.clone()
}
