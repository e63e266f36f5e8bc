//! The choice of our own certificate for a connection (TLS-5).

use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::trust::pair::Pair;

/// Picks by SNI among the listener's own certificates. SNI decides nothing else.
#[derive(Debug)]
pub(super) struct Resolver {
    /// At least one.
    pairs: Vec<Pair>,
}

impl Resolver {
    pub(super) fn new(pairs: Vec<Pair>) -> Resolver {
        Resolver { pairs }
    }

    fn pick(&self, name: Option<&str>, suits: impl Fn(&Pair) -> bool) -> Option<Arc<CertifiedKey>> {
        let named =
            |pair: &&Pair| name.is_some_and(|name| pair.leaf.names.dns.iter().any(|dns| matches(dns, name)));
        let suitable = || self.pairs.iter().filter(|pair| suits(pair));
        let pair = suitable().find(named).or_else(|| suitable().next()).or(self.pairs.first())?;
        Some(pair.certified.clone())
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        self.pick(hello.server_name(), |pair| pair.certified.key.choose_scheme(schemes).is_some())
    }
}

/// RFC 9525: a wildcard stands for exactly one label, the leftmost.
fn matches(pattern: &str, name: &str) -> bool {
    let Some(parent) = pattern.strip_prefix("*.") else { return pattern.eq_ignore_ascii_case(name) };
    name.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest.eq_ignore_ascii_case(parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_5_a_wildcard_takes_one_label() {
        for (pattern, name, is_match) in [
            ("relay.example", "RELAY.example", true),
            ("*.example", "relay.example", true),
            ("*.example", "a.relay.example", false),
            ("*.example", "example", false),
            ("*.example", ".example", false),
            ("relay.example", "other.example", false),
        ] {
            assert_eq!(matches(pattern, name), is_match, "{pattern} {name}");
        }
    }
}
