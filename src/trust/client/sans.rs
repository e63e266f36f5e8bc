//! The accepted names of a server: `match_sans` (IDN-4, IDN-7).

use std::net::IpAddr;

use rustls::pki_types::{CertificateDer, DnsName, ServerName};
use rustls::server::ParsedCertificate;

use crate::trust::certificate::Certificate;
use crate::trust::identity::{TextMatch, spiffe_id};

/// An accepted name. Names are typed: a DNS name never matches a URI.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SanMatch {
    /// In lower case. An exact name also accepts a certificate with the wildcard above the name (RFC 9525,
    /// section 6.3).
    Dns(TextMatch),
    /// The only URI of a valid X.509-SVID.
    Spiffe(TextMatch),
    /// Any URI.
    Uri(TextMatch),
    Ip(IpAddr),
}

impl SanMatch {
    /// Whether a leaf has the name. `facts` are those of `leaf`.
    pub(super) fn accepts(&self, leaf: &CertificateDer<'_>, facts: &Certificate) -> bool {
        match self {
            SanMatch::Dns(TextMatch::Exact(name)) => has_dns_name(leaf, name),
            SanMatch::Dns(part) => {
                facts.names.dns.iter().any(|name| part.accepts(&name.to_ascii_lowercase()))
            }
            SanMatch::Spiffe(text) => spiffe_id(facts).is_ok_and(|id| text.accepts(id.as_str())),
            SanMatch::Uri(text) => facts.names.uris.iter().any(|uri| text.accepts(uri)),
            SanMatch::Ip(address) => facts.names.ips.contains(address),
        }
    }
}

fn has_dns_name(leaf: &CertificateDer<'_>, name: &str) -> bool {
    let (Ok(leaf), Ok(name)) = (ParsedCertificate::try_from(leaf), DnsName::try_from(name)) else {
        return false;
    };
    rustls::client::verify_server_name(&leaf, &ServerName::DnsName(name)).is_ok()
}

/// All names of a certificate for a message; the first few of many.
pub(super) fn names_text(facts: &Certificate) -> String {
    /// More names help nobody.
    const SHOWN: usize = 4;
    /// The longest name shown, in bytes: a SPIFFE ID of usual length.
    const NAME_BYTES: usize = 200;
    let names = &facts.names;
    let ips = names.ips.iter().map(IpAddr::to_string);
    let mut all: Vec<String> = names.dns.iter().chain(&names.uris).cloned().chain(ips).collect();
    let more = all.len().saturating_sub(SHOWN);
    all.truncate(SHOWN);
    for name in &mut all {
        name.truncate(name.floor_char_boundary(NAME_BYTES));
    }
    match (all.is_empty(), more) {
        (true, _) => "no name".to_owned(),
        (false, 0) => all.join(", "),
        (false, more) => format!("{} and {more} more", all.join(", ")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use rustls::pki_types::pem::PemObject;

    use super::*;
    use crate::telemetry::wall_now;
    use crate::trust::issue::{Authority, Leaf};

    const DAY: Duration = Duration::from_secs(86_400);

    fn accepts(leaf: &Leaf<'_>, san: SanMatch) -> bool {
        let now = wall_now();
        let issued = Authority::new("test", DAY, now).unwrap().issue(leaf, DAY, now).unwrap();
        let der = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
        san.accepts(&der, &Certificate::parse(&der).unwrap())
    }

    #[test]
    fn idn_4_names_are_typed() {
        use TextMatch::{Exact, Prefix, Suffix};
        let text = |text: &str| text.to_owned();
        let hosts = ["cp.example", "*.mesh.example", "10.0.0.1"];
        let uris = ["spiffe://d/ns/a/sa/istiod"];
        let leaf = Leaf { hosts: &hosts, uris: &uris, ..Leaf::default() };
        for (san, is_accepted) in [
            (SanMatch::Dns(Exact(text("cp.example"))), true),
            (SanMatch::Dns(Exact(text("a.mesh.example"))), true),
            (SanMatch::Dns(Exact(text("a.b.mesh.example"))), false),
            (SanMatch::Dns(Exact(text("mesh.example"))), false),
            (SanMatch::Dns(Exact(text("10.0.0.1"))), false),
            (SanMatch::Dns(Exact(text("spiffe://d/ns/a/sa/istiod"))), false),
            (SanMatch::Dns(Prefix(text("cp."))), true),
            (SanMatch::Dns(Suffix(text(".mesh.example"))), true),
            (SanMatch::Dns(Suffix(text("istiod"))), false),
            (SanMatch::Spiffe(Exact(text("spiffe://d/ns/a/sa/istiod"))), true),
            (SanMatch::Spiffe(Prefix(text("spiffe://d/ns/a/"))), true),
            (SanMatch::Spiffe(Prefix(text("spiffe://e/"))), false),
            (SanMatch::Uri(Suffix(text("/istiod"))), true),
            (SanMatch::Uri(Exact(text("cp.example"))), false),
            (SanMatch::Ip("10.0.0.1".parse().unwrap()), true),
            (SanMatch::Ip("10.0.0.2".parse().unwrap()), false),
        ] {
            assert_eq!(accepts(&leaf, san.clone()), is_accepted, "{san:?}");
        }
    }

    #[test]
    fn idn_2_a_leaf_with_two_uris_has_no_spiffe_id() {
        let leaf = Leaf { uris: &["spiffe://d/a", "spiffe://d/b"], ..Leaf::default() };
        assert!(!accepts(&leaf, SanMatch::Spiffe(TextMatch::Exact("spiffe://d/a".to_owned()))));
        assert!(accepts(&leaf, SanMatch::Uri(TextMatch::Exact("spiffe://d/a".to_owned()))));
    }
}
