//! `listeners[].tls`.

use std::path::{Path, PathBuf};

use super::error::Problem;
use super::form::Form;
use super::reader::{Item, Map};
use super::server_tls::lower;
use super::units::word;
use crate::trust::anchors::AnchorFiles;
use crate::trust::crl::{CrlSettings, Depth};
use crate::trust::identity::{ClientName, IdentityKind, SHARED_CERTIFICATE, TextMatch};
use crate::trust::pair::PairFiles;
use crate::trust::server::settings::REFRESH_INTERVAL;
use crate::trust::server::{ClientCertificate, MinVersion, OnClientExpiry, ServerTls};
use sluice_identity::SpiffeId;
use sluice_identity::spiffe::check_trust_domain;
use sluice_setting::Read;

const CERTIFICATES: &str = "a list of 1 to 8 pairs of certificate_file and private_key_file";
const CERTIFICATES_MAX: usize = 8;

const CLIENT_CERTIFICATE: &[(&str, ClientCertificate)] = &[
    ("none", ClientCertificate::None),
    ("optional", ClientCertificate::Optional),
    ("required", ClientCertificate::Required),
];
const IDENTITY: &[(&str, IdentityKind)] = &[
    ("spiffe", IdentityKind::Spiffe),
    ("dns", IdentityKind::Dns),
    ("trust_domain", IdentityKind::TrustDomain),
];
pub(super) const MIN_VERSION: &[(&str, MinVersion)] =
    &[("1.2", MinVersion::Tls12), ("1.3", MinVersion::Tls13)];
const ON_CLIENT_EXPIRY: &[(&str, OnClientExpiry)] =
    &[("end", OnClientExpiry::End), ("keep", OnClientExpiry::Keep)];
const DEPTH: &[(&str, Depth)] = &[("leaf", Depth::Leaf), ("chain", Depth::Chain)];
const DENY: &[(&str, bool)] = &[("deny", false), ("allow", true)];

/// Keys of other servers, refused by name.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("proxy_protocol", "put the relay itself at the address that clients use"),
    ("jwt", "clients prove themselves by certificates"),
    ("session_tickets", "sessions are never resumed"),
];

/// `None` only if an error was reported.
pub(super) fn read_server_tls(map: &mut Map<'_>, directory: &Path) -> Option<ServerTls> {
    let certificates = read_certificates(map, directory);
    let identity = map.or("identity", IdentityKind::default(), word(IDENTITY));
    let anchors = read_anchors(map, identity, directory);
    let by_default = if anchors.is_some() { ClientCertificate::Required } else { ClientCertificate::None };
    let client_certificate = map.or("client_certificate", by_default, word(CLIENT_CERTIFICATE));
    let asks = client_certificate != ClientCertificate::None;
    if asks && anchors.is_none() {
        let expected = "ca_certificate_file or spiffe_trust_bundle_map_file, the authorities of clients";
        map.error("ca_certificate_file", Problem::Missing { expected: expected.into() });
    }
    if !asks && anchors.is_some() {
        map.contradiction("client_certificate", "none, but there are authorities for client certificates");
    }
    let clients = read_clients(map, identity);
    if identity == IdentityKind::Dns && clients.is_none() && asks {
        let expected = "the DNS names of clients: `identity: dns` accepts listed names only";
        map.error("clients", Problem::Missing { expected: expected.into() });
    }
    if let Some(domain) = anchors.as_ref().and_then(AnchorFiles::trust_domain) {
        warn_of_other_domains(map, clients.as_deref().unwrap_or_default(), domain);
    }
    let crl = map.item("crl").and_then(|item| item.map(|map| read_crl(map, directory)).flatten());
    if crl.is_some() && !asks {
        map.contradiction("crl", "no client certificate is asked for");
    }
    map.unsupported(UNSUPPORTED);
    Some(ServerTls {
        client_certificate,
        anchors,
        identity,
        clients: clients.unwrap_or_default(),
        crl,
        min_version: map.or("min_version", MinVersion::default(), word(MIN_VERSION)),
        refresh_interval: map.value(&REFRESH_INTERVAL),
        on_client_expiry: map.or("on_client_expiry", OnClientExpiry::default(), word(ON_CLIENT_EXPIRY)),
        certificates: certificates?,
    })
}

fn read_certificates(map: &mut Map<'_>, directory: &Path) -> Option<Vec<PairFiles>> {
    let list = map.required("certificates", CERTIFICATES)?;
    let items = list.list()?;
    if items.is_empty() || items.len() > CERTIFICATES_MAX {
        list.invalid(CERTIFICATES);
        return None;
    }
    items.iter().map(|item| item.map(|map| read_pair(map, directory)).flatten()).collect()
}

/// A certificate with its key.
fn read_pair(map: &mut Map<'_>, directory: &Path) -> Option<PairFiles> {
    let certificate = map.required("certificate_file", "a file with the certificate chain in PEM");
    let certificate = certificate.and_then(|item| read_path(&item, directory));
    let key = map.required("private_key_file", "a file with the private key in PEM");
    let key = key.and_then(|item| read_path(&item, directory));
    let (certificate, private_key) = (certificate?, key?);
    if certificate.parent() != private_key.parent() {
        map.contradiction(
            "private_key_file",
            "not in the directory of certificate_file; both must change together",
        );
    }
    Some(PairFiles { certificate, private_key })
}

/// A path, relative to the configuration's directory.
pub(super) fn read_path(item: &Item<'_>, directory: &Path) -> Option<PathBuf> {
    item.text().map(|path| directory.join(path))
}

fn read_anchors(map: &mut Map<'_>, identity: IdentityKind, directory: &Path) -> Option<AnchorFiles> {
    let file = map.item("ca_certificate_file").and_then(|item| read_path(&item, directory));
    let bundles = map.item("spiffe_trust_bundle_map_file").and_then(|item| read_path(&item, directory));
    let domain = map.item("trust_domain");
    match (file, bundles) {
        (Some(_), Some(_)) => {
            map.contradiction("spiffe_trust_bundle_map_file", "ca_certificate_file is present, too; use one");
            None
        }
        (Some(file), None) => {
            let trust_domain = read_trust_domain(map, domain, identity);
            Some(AnchorFiles::Authorities { file, trust_domain })
        }
        (None, Some(file)) => {
            if domain.is_some() {
                map.contradiction("trust_domain", "the bundle map names its trust domains itself");
            }
            if identity != IdentityKind::Spiffe {
                map.contradiction(
                    "identity",
                    "not spiffe, but a bundle map has authorities for SPIFFE IDs only",
                );
            }
            Some(AnchorFiles::BundleMap(file))
        }
        (None, None) => {
            if domain.is_some() {
                map.contradiction("trust_domain", "there is no ca_certificate_file");
            }
            None
        }
    }
}

/// IDN-3: the authorities of a file speak for one trust domain.
fn read_trust_domain(map: &Map<'_>, item: Option<Item<'_>>, identity: IdentityKind) -> Option<String> {
    match (identity, item) {
        (IdentityKind::Dns, Some(_)) => {
            map.contradiction("trust_domain", "does not apply to `identity: dns`");
            None
        }
        (IdentityKind::Dns, None) => None,
        (IdentityKind::Spiffe | IdentityKind::TrustDomain, None) => {
            let expected = match identity {
                IdentityKind::TrustDomain => {
                    "a name for the clients of ca_certificate_file, such as envoy-gateway"
                }
                _ => {
                    "the one trust domain for which ca_certificate_file may speak (several need \
                     spiffe_trust_bundle_map_file)"
                }
            };
            map.error("trust_domain", Problem::Missing { expected: expected.into() });
            None
        }
        (IdentityKind::Spiffe | IdentityKind::TrustDomain, Some(item)) => {
            let text = item.text()?;
            if check_trust_domain(text).is_err() {
                item.invalid("a trust domain such as prod.example, without spiffe://");
                return None;
            }
            Some(text.to_owned())
        }
    }
}

/// `None` without the key.
fn read_clients(map: &mut Map<'_>, identity: IdentityKind) -> Option<Vec<ClientName>> {
    let read = |item: &Item<'_>| {
        item.map(|map| {
            let read = |item: &Item<'_>, kind| {
                let text = read_text_match(item);
                text.inspect(|text| {
                    if identity == kind {
                        check_client(item, kind, text)
                    }
                })
            };
            let spiffe = map.item("spiffe").and_then(|item| read(&item, IdentityKind::Spiffe));
            // Names of certificates are compared in lower case.
            let dns = map.item("dns").and_then(|item| read(&item, IdentityKind::Dns)).map(lower);
            match (identity, spiffe, dns) {
                (IdentityKind::Spiffe, Some(text), None) => Some(ClientName::Spiffe(text)),
                (IdentityKind::Dns | IdentityKind::TrustDomain, None, Some(text)) => {
                    Some(ClientName::Dns(text))
                }
                (IdentityKind::Spiffe, ..) => {
                    map.invalid("one `spiffe`, as `identity` is spiffe");
                    None
                }
                (IdentityKind::Dns, ..) => {
                    map.invalid("one `dns`, as `identity` is dns");
                    None
                }
                (IdentityKind::TrustDomain, ..) => {
                    map.invalid("one `dns`, as `identity` is trust_domain");
                    None
                }
            }
        })
        .flatten()
    };
    map.can_be("clients", &[Form::List]);
    let key = map.item("clients")?;
    let items = key.list();
    if items.as_ref().is_some_and(Vec::is_empty) {
        // A template may have found nobody; without the key anybody may connect.
        key.invalid("at least one identity; without `clients`, any may connect");
    }
    Some(items.unwrap_or_default().iter().filter_map(read).collect())
}

/// Refuses a name that no client with this kind of identity can have.
fn check_client(item: &Item<'_>, kind: IdentityKind, text: &TextMatch) {
    let (TextMatch::Exact(name) | TextMatch::Prefix(name) | TextMatch::Suffix(name)) = text;
    let reason = match (kind, text) {
        // IDN-5: a wildcard would identify all that share the certificate.
        (IdentityKind::Dns, _) if name.contains('*') => {
            format!(
                "a wildcard name cannot identify a client; {SHARED_CERTIFICATE}, and {{suffix: TEXT}} many names"
            )
        }
        (IdentityKind::Spiffe, _) if name.contains('*') => {
            "no SPIFFE ID has a `*`; {prefix: TEXT} and {suffix: TEXT} accept many".to_owned()
        }
        (IdentityKind::Spiffe, TextMatch::Exact(id)) => match SpiffeId::parse(id) {
            Ok(_) => return,
            Err(error) => format!("it is no SPIFFE ID: {error}"),
        },
        _ => return,
    };
    let shown = item.quoting(format!("{name:?} accepts nobody: {reason}"));
    item.error(Problem::Contradiction { reason: shown });
}

/// Warns of clients that cannot connect: the authorities speak for another trust domain (IDN-3).
fn warn_of_other_domains(map: &Map<'_>, clients: &[ClientName], domain: &str) {
    let proved = format!("spiffe://{domain}/");
    for (index, client) in clients.iter().enumerate() {
        let may_fit = match client {
            ClientName::Spiffe(TextMatch::Exact(text)) => text.starts_with(&proved),
            ClientName::Spiffe(TextMatch::Prefix(text)) => {
                text.starts_with(&proved) || proved.starts_with(text.as_str())
            }
            ClientName::Spiffe(TextMatch::Suffix(_)) | ClientName::Dns(_) => true,
        };
        if !may_fit {
            let text = format!("fits nobody: this listener proves {proved}... only (trust_domain)");
            map.warn_at(&format!("clients[{index}].spiffe"), text);
        }
    }
}

/// A text, or a map with `prefix` or `suffix`.
pub(super) fn read_text_match(item: &Item<'_>) -> Option<TextMatch> {
    item.can_be(&[Form::Text, Form::Map]);
    if let super::tree::Tree::Text(text) = item.tree
        && !text.is_empty()
    {
        return Some(TextMatch::Exact(text.clone()));
    }
    item.map(|map| {
        let text = |item: Option<Item<'_>>| item.and_then(|item| item.text().map(str::to_owned));
        let (prefix, suffix) = (text(map.item("prefix")), text(map.item("suffix")));
        match (prefix, suffix) {
            (Some(prefix), None) => Some(TextMatch::Prefix(prefix)),
            (None, Some(suffix)) => Some(TextMatch::Suffix(suffix)),
            _ => {
                map.invalid("a text, or one of prefix and suffix");
                None
            }
        }
    })
    .flatten()
}

fn read_crl(map: &mut Map<'_>, directory: &Path) -> Option<CrlSettings> {
    const FILES: &str = "at least one file with certificate revocation lists in PEM";
    let list = map.required("files", FILES)?;
    let items = list.list()?;
    if items.is_empty() {
        list.invalid(FILES);
    }
    Some(CrlSettings {
        files: items.iter().filter_map(|item| read_path(item, directory)).collect(),
        depth: map.or("depth", Depth::default(), word(DEPTH)),
        allows_unknown: map.or("when_unknown", false, word(DENY)),
        allows_expired: map.or("when_expired", false, word(DENY)),
    })
}
