//! From a certificate to an identity (IDN-2, IDN-5).

use super::certificate::Certificate;
use sluice_identity::{Identity, SpiffeId};

/// The kind of identity that a listener takes from certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdentityKind {
    /// The only URI of the certificate is a SPIFFE ID.
    #[default]
    Spiffe,
    /// The only DNS name that the listener's `clients` accept.
    Dns,
    /// The trust domain of the authorities. The names of the certificate prove nothing, for certificates that
    /// clients share.
    TrustDomain,
}

/// The remedy for a certificate that names nobody.
pub const SHARED_CERTIFICATE: &str = "`identity: trust_domain` accepts a certificate that clients share";

/// A text, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TextMatch {
    Exact(String),
    Prefix(String),
    Suffix(String),
}

impl TextMatch {
    pub fn accepts(&self, text: &str) -> bool {
        match self {
            TextMatch::Exact(exact) => text == exact,
            TextMatch::Prefix(prefix) => text.starts_with(prefix.as_str()),
            TextMatch::Suffix(suffix) => text.ends_with(suffix.as_str()),
        }
    }
}

/// A name that may finish the handshake: an entry of `clients`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientName {
    Spiffe(TextMatch),
    Dns(TextMatch),
}

/// The SPIFFE ID of a leaf (X509-SVID, sections 2 and 5.2). The chain must be proved beforehand or
/// afterwards.
///
/// # Errors
/// The first rule that the leaf breaks, in words.
pub fn spiffe_id(leaf: &Certificate) -> Result<SpiffeId, String> {
    let count = leaf.names.uris.len() + leaf.names.bad_uris;
    let uri = match leaf.names.uris.as_slice() {
        [uri] if count == 1 => uri,
        _ => return Err(format!("{count} URIs among the alternative names; a SPIFFE certificate has one")),
    };
    let id = SpiffeId::parse(uri).map_err(|error| format!("the URI is no SPIFFE ID: {error}"))?;
    if leaf.is_authority {
        return Err("the certificate of a signing authority cannot identify a client".to_owned());
    }
    match leaf.key_usage {
        None => Err("the extension key usage is missing".to_owned()),
        Some(usage) if !usage.digital_signature => Err("key usage lacks digitalSignature".to_owned()),
        Some(usage) if usage.certificate_sign || usage.crl_sign => {
            Err("key usage permits to sign certificates or revocation lists".to_owned())
        }
        Some(_) => Ok(id),
    }
}

/// The identity of a client by its proved leaf.
///
/// # Errors
/// The leaf has no identity of this kind, or `clients` does not list the identity. An empty `clients` lists
/// every SPIFFE ID, every certificate of a trust domain, and no DNS name. `trust_domain`: that of the
/// authorities.
pub fn of_client(
    leaf: &Certificate,
    kind: IdentityKind,
    clients: &[ClientName],
    trust_domain: Option<&str>,
) -> Result<Identity, String> {
    match kind {
        IdentityKind::Spiffe => {
            let id = spiffe_id(leaf)?;
            let accepts = |name: &ClientName| match name {
                ClientName::Spiffe(text) => text.accepts(id.as_str()),
                ClientName::Dns(_) => false,
            };
            if !clients.is_empty() && !clients.iter().any(accepts) {
                return Err(format!("`clients` does not list {id}"));
            }
            Ok(Identity::Spiffe(id))
        }
        IdentityKind::Dns => dns_name(leaf, clients).map(|name| Identity::Dns(name.into())),
        IdentityKind::TrustDomain => {
            let trust_domain = trust_domain.ok_or("the authorities have no trust domain")?;
            // Any of the names will do: it restricts who may connect, and proves nothing.
            if !clients.is_empty() && accepted_names(leaf, clients).is_empty() {
                return Err(NOT_LISTED.to_owned());
            }
            Ok(Identity::TrustDomain(trust_domain.into()))
        }
    }
}

const NOT_LISTED: &str = "`clients` lists none of the certificate's DNS names";

/// The accepted DNS names, in lower case.
fn accepted_names(leaf: &Certificate, clients: &[ClientName]) -> Vec<String> {
    let names = leaf.names.dns.iter().map(|name| name.to_ascii_lowercase());
    let accepts = |name: &String| {
        clients.iter().any(|client| match client {
            ClientName::Dns(text) => text.accepts(name),
            ClientName::Spiffe(_) => false,
        })
    };
    let mut accepted: Vec<String> = names.filter(accepts).collect();
    accepted.sort_unstable();
    accepted.dedup();
    accepted
}

/// The only accepted DNS name, in lower case. A wildcard would identify all that share the certificate
/// (IDN-5).
fn dns_name(leaf: &Certificate, clients: &[ClientName]) -> Result<String, String> {
    if leaf.names.bad_dns > 0 {
        return Err("a DNS name of the certificate has a byte outside of ASCII".to_owned());
    }
    let accepted = accepted_names(leaf, clients);
    match accepted.as_slice() {
        [] => Err(NOT_LISTED.to_owned()),
        [name] if name.contains('*') => {
            Err(format!("a wildcard name cannot identify a client; {SHARED_CERTIFICATE}"))
        }
        [name] => Ok(name.clone()),
        [..] => {
            Err(format!("`clients` lists {} DNS names of the certificate; one is needed", accepted.len()))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, CustomExtension, IsCa, KeyUsagePurpose};
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;
    use crate::telemetry::wall_now;
    use crate::trust::issue::{Authority, Leaf};

    const DAY: Duration = Duration::from_secs(86_400);

    fn facts(leaf: &Leaf<'_>, change: impl FnOnce(&mut CertificateParams)) -> Certificate {
        let now = wall_now();
        let issued = Authority::new("test", DAY, now).unwrap().issue_with(leaf, DAY, now, change).unwrap();
        Certificate::parse(&CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap()).unwrap()
    }

    fn spiffe_of(uris: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Result<String, String> {
        spiffe_id(&facts(&Leaf { uris, is_client: true, ..Leaf::default() }, change)).map(|id| id.to_string())
    }

    #[test]
    fn idn_2_bad_leaves_have_no_spiffe_id() {
        const GOOD: &str = "spiffe://d/ns/shop";
        assert_eq!(spiffe_of(&[GOOD], |_| {}).as_deref(), Ok(GOOD));
        for uris in [&[][..], &[GOOD, GOOD], &[GOOD, "https://other"], &["https://other", GOOD]] {
            let error =
                format!("{} URIs among the alternative names; a SPIFFE certificate has one", uris.len());
            assert_eq!(spiffe_of(uris, |_| {}), Err(error));
        }
        for uri in [
            "spiffe://d",
            "spiffe://d/",
            "spiffe://D/a",
            "spiffe://d/a%20b",
            "spiffe://d/a/../b",
            "http://d/a",
        ] {
            let error = spiffe_of(&[uri], |_| {}).unwrap_err();
            assert!(error.starts_with("the URI is no SPIFFE ID: "), "{uri}: {error}");
        }
        type Change = fn(&mut CertificateParams);
        let changes: [(Change, &str); 4] = [
            (|params| params.key_usages.clear(), "the extension key usage is missing"),
            (
                |params| params.key_usages = vec![KeyUsagePurpose::KeyAgreement],
                "key usage lacks digitalSignature",
            ),
            (
                |params| params.key_usages.push(KeyUsagePurpose::KeyCertSign),
                "key usage permits to sign certificates or revocation lists",
            ),
            (
                |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained),
                "the certificate of a signing authority cannot identify a client",
            ),
        ];
        for (change, error) in changes {
            assert_eq!(spiffe_of(&[GOOD], change), Err(error.to_owned()));
        }
    }

    /// A URI with a byte outside of ASCII is no text, and counts all the same.
    #[test]
    fn idn_2_uris_are_counted_on_the_raw_extension() {
        const SUBJECT_ALTERNATIVE_NAME: [u64; 4] = [2, 5, 29, 17];
        let mut names = vec![0x86, 12];
        names.extend(b"spiffe://d/a");
        names.extend([0x86, 2, 0xff, 0xfe]);
        let content = [&[0x30, names.len() as u8], names.as_slice()].concat();
        let error = spiffe_of(&[], |params| {
            params
                .custom_extensions
                .push(CustomExtension::from_oid_content(&SUBJECT_ALTERNATIVE_NAME, content));
        });
        assert_eq!(error, Err("2 URIs among the alternative names; a SPIFFE certificate has one".to_owned()));
    }

    #[test]
    fn idn_5_one_accepted_name_is_the_identity() {
        let suffix = [ClientName::Dns(TextMatch::Suffix(".mesh.example".into()))];
        let of = |hosts: &[&str]| {
            of_client(&facts(&Leaf { hosts, ..Leaf::default() }, |_| {}), IdentityKind::Dns, &suffix, None)
        };
        let web = Ok(Identity::Dns("web.mesh.example".into()));
        assert_eq!(of(&["web.mesh.example", "web.local"]), web);
        assert_eq!(of(&["web.local", "Web.mesh.example"]), web);
        assert!(of(&["web.local"]).is_err());
        assert!(of(&["*.mesh.example"]).unwrap_err().contains("wildcard"));
        assert!(of(&["a.mesh.example", "b.mesh.example"]).unwrap_err().contains("2 DNS names"));
    }

    /// All Envoys of Envoy Gateway share one certificate.
    #[test]
    fn idn_5_a_shared_certificate_proves_the_trust_domain_alone() {
        const SHARED: &str = "*.envoy-gateway-system";
        let of = |hosts: &[&str], clients: &[ClientName]| {
            let leaf = facts(&Leaf { hosts, ..Leaf::default() }, |_| {});
            of_client(&leaf, IdentityKind::TrustDomain, clients, Some("gateway"))
        };
        let proved = Ok(Identity::TrustDomain("gateway".into()));
        assert_eq!(of(&[SHARED], &[]), proved);
        assert_eq!(of(&[], &[]), proved, "the certificate needs no name");
        let envoys = [ClientName::Dns(TextMatch::Exact(SHARED.to_owned()))];
        assert_eq!(of(&[SHARED, "a.example"], &envoys), proved);
        assert_eq!(of(&["envoy-rate-limit"], &envoys), Err(NOT_LISTED.to_owned()));
        let leaf = facts(&Leaf { hosts: &[SHARED], ..Leaf::default() }, |_| {});
        let as_name = of_client(&leaf, IdentityKind::Dns, &envoys, None);
        assert!(as_name.unwrap_err().contains("`identity: trust_domain` accepts"));
    }

    /// Found by the fuzz target `leaf_identity`: `clients` could not see the second name, so the first one
    /// passed alone.
    #[test]
    fn idn_5_a_name_outside_of_ascii_is_not_skipped() {
        const SUBJECT_ALTERNATIVE_NAME: [u64; 4] = [2, 5, 29, 17];
        let suffix = [ClientName::Dns(TextMatch::Suffix(".example".into()))];
        let of = |second: &[u8; 9]| {
            let content = [&[0x30, 22, 0x82, 9], &b"a.example"[..], &[0x82, 9], second].concat();
            let leaf = facts(&Leaf::default(), |params| {
                let extension = CustomExtension::from_oid_content(&SUBJECT_ALTERNATIVE_NAME, content);
                params.custom_extensions.push(extension);
            });
            of_client(&leaf, IdentityKind::Dns, &suffix, None)
        };
        assert_eq!(of(b"a.example"), Ok(Identity::Dns("a.example".into())));
        assert!(of(b"b.example").unwrap_err().contains("2 DNS names"));
        assert!(of(b"\xc1.example").unwrap_err().contains("outside of ASCII"));
    }

    #[test]
    fn idn_4_a_dns_name_in_a_uri_does_not_match() {
        let leaf = facts(&Leaf { uris: &["web.mesh.example"], ..Leaf::default() }, |_| {});
        let clients = [ClientName::Dns(TextMatch::Exact("web.mesh.example".into()))];
        assert!(of_client(&leaf, IdentityKind::Dns, &clients, None).is_err());
    }

    #[test]
    fn clients_restrict_spiffe_ids() {
        let leaf = facts(&Leaf { uris: &["spiffe://d/ns/shop"], ..Leaf::default() }, |_| {});
        let of = |clients: &[ClientName]| of_client(&leaf, IdentityKind::Spiffe, clients, Some("d")).is_ok();
        assert!(of(&[]));
        assert!(of(&[ClientName::Spiffe(TextMatch::Prefix("spiffe://d/ns/".into()))]));
        assert!(!of(&[ClientName::Spiffe(TextMatch::Prefix("spiffe://e/".into()))]));
        assert!(!of(&[ClientName::Dns(TextMatch::Exact("spiffe://d/ns/shop".into()))]));
    }
}
