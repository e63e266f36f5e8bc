//! TLS towards a server: `config` of the `tls` credentials, in gRPC's words (A65, A87), and the section `tls`
//! for everything that gRPC has no word for.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use super::error::Problem;
use super::form::{Form, Parsed, Shaped};
use super::reader::{Item, Map};
use super::tree::Tree;
use super::units::{text, word};
use crate::trust::anchors::AnchorFiles;
use crate::trust::client::{
    ClientTls, HANDSHAKE_TIMEOUT, KeyExchange, REFRESH_INTERVAL, SanMatch, ServerAuthorities, is_server_name,
};
use crate::trust::identity::TextMatch;
use crate::trust::pair::PairFiles;
use crate::trust::server::MinVersion;
use sluice_identity::SpiffeId;
use sluice_setting::Read;

const KEY_EXCHANGES: &[(&str, KeyExchange)] =
    &[("hybrid", KeyExchange::Hybrid), ("classic", KeyExchange::Classic)];

/// The maximum number of accepted names. More are a mistake: a control plane has a few.
const SANS_MAX: usize = 64;

const SAN_FORMS: &str = "one of `dns`, `spiffe`, `uri` and `ip`";

/// Reads `config` of the credentials. All keys are optional.
pub(super) fn read_tls_config(map: &mut Map<'_>, directory: &Path) -> ClientTls {
    let file = |item: Option<Item<'_>>| item.and_then(|item| item.text().map(|file| directory.join(file)));
    let authorities = file(map.item("ca_certificate_file"));
    let (certificate, private_key) = (map.item("certificate_file"), map.item("private_key_file"));
    match (&certificate, &private_key) {
        (Some(_), None) => map.error("private_key_file", missing("the key of certificate_file")),
        (None, Some(_)) => map.error("certificate_file", missing("the certificate of private_key_file")),
        _ => {}
    }
    let pair = file(certificate).zip(file(private_key));
    if let Some((certificate, key)) = &pair
        && certificate.parent() != key.parent()
    {
        let reason =
            "not in the directory of certificate_file; expected both in one, to be replaced together";
        map.contradiction("private_key_file", reason);
    }
    let refresh_interval = map.value(&REFRESH_INTERVAL);
    let bundles = map.item("spiffe_trust_bundle_map_file");
    if let (Some(bundles), Some(_)) = (&bundles, &authorities) {
        bundles.warn("used instead of ca_certificate_file, as in gRPC");
    }
    let authorities = match (file(bundles), authorities) {
        (Some(bundles), _) => ServerAuthorities::Files(AnchorFiles::BundleMap(bundles)),
        (None, Some(file)) => ServerAuthorities::Files(AnchorFiles::Authorities { file, trust_domain: None }),
        (None, None) => ServerAuthorities::System,
    };
    let pair = pair.map(|(certificate, private_key)| PairFiles { certificate, private_key });
    ClientTls { authorities, pair, refresh_interval, ..ClientTls::default() }
}

fn missing(expected: &str) -> Problem {
    Problem::Missing { expected: expected.to_owned() }
}

/// Reads the section `tls` of a server with TLS. `host`: the host of the address; `None` for a unix socket.
/// Returns the timeout of handshakes besides.
pub(super) fn read_tls(map: &mut Map<'_>, config: ClientTls, host: Option<&str>) -> (ClientTls, Duration) {
    let read = |map: &mut Map<'_>| {
        let server_name = map.optional("server_name", server_name);
        let sans = map.item("match_sans");
        let match_sans = sans.as_ref().map(read_sans).unwrap_or_default();
        let bundles = matches!(config.authorities, ServerAuthorities::Files(AnchorFiles::BundleMap(_)));
        if sans.is_none() && bundles {
            let reason = "missing; with spiffe_trust_bundle_map_file any workload of any listed domain would be taken \
                          for the control plane";
            map.contradiction("match_sans", reason);
        } else if sans.is_none() && server_name.is_none() && !map.has("server_name") {
            check_host(map, host);
        }
        let tls = ClientTls {
            server_name,
            match_sans,
            min_version: map.or("min_version", MinVersion::default(), Shaped(VERSION, version)),
            key_exchange: map.or("key_exchange", KeyExchange::default(), word(KEY_EXCHANGES)),
            ..config
        };
        (tls, map.value(&HANDSHAKE_TIMEOUT))
    };
    map.section("tls", read).unwrap_or_else(|| (ClientTls::default(), HANDSHAKE_TIMEOUT.default))
}

/// Without another name, the host of the address is the name of the server.
fn check_host(map: &Map<'_>, host: Option<&str>) {
    match host {
        None => {
            map.error("server_name", missing("a name, or match_sans: a unix socket has no host to check"))
        }
        // An error of the address was reported.
        Some("") => {}
        Some(host) if is_server_name(host) => {}
        Some(host) => {
            let reason = format!("missing; the host {host} is no name that a certificate can have");
            map.contradiction("server_name", reason);
        }
    }
}

fn server_name(tree: &Tree) -> Parsed<String> {
    match tree {
        Tree::Text(name) if is_server_name(name) => Ok(name.to_ascii_lowercase()),
        _ => Err("a DNS name or an IP address".into()),
    }
}

/// Also without quotes, which YAML takes for a number.
const VERSION: &[Form] =
    &[Form::Word("1.2"), Form::Word("1.3"), Form::Unquoted("1.2"), Form::Unquoted("1.3")];

fn version(tree: &Tree) -> Parsed<MinVersion> {
    match tree.describe().trim_matches('"') {
        "1.2" => Ok(MinVersion::Tls12),
        "1.3" => Ok(MinVersion::Tls13),
        _ => Err("\"1.2\" or \"1.3\"".into()),
    }
}

fn read_sans(list: &Item<'_>) -> Vec<SanMatch> {
    let items = list.list().unwrap_or_default();
    if !(1..=SANS_MAX).contains(&items.len()) {
        let (value, expected) = (format!("{} entries", items.len()), format!("1 to {SANS_MAX}"));
        list.error(Problem::Invalid { value, expected });
    }
    items.iter().filter_map(|item| item.map(read_san).flatten()).collect()
}

fn read_san(map: &mut Map<'_>) -> Option<SanMatch> {
    let kinds = ["dns", "spiffe", "uri", "ip"];
    let dns = map.item("dns").and_then(|item| read_text(&item, dns_name));
    let spiffe = map.item("spiffe").and_then(|item| read_text(&item, spiffe));
    let uri = map.item("uri").and_then(|item| read_text(&item, |_| Ok(())));
    let ip = map.optional("ip", ip);
    if kinds.iter().filter(|kind| map.has(kind)).count() != 1 {
        map.invalid(SAN_FORMS);
        return None;
    }
    dns.map(|text| SanMatch::Dns(lower(text)))
        .or(spiffe.map(SanMatch::Spiffe))
        .or(uri.map(SanMatch::Uri))
        .or(ip.map(SanMatch::Ip))
}

/// Reads TEXT, `{exact: TEXT}`, `{prefix: TEXT}` or `{suffix: TEXT}`. `check` judges the text.
fn read_text(item: &Item<'_>, check: fn(&TextMatch) -> Result<(), String>) -> Option<TextMatch> {
    item.can_be(&[Form::Text, Form::Map]);
    let text = match item.tree {
        Tree::Text(exact) if !exact.is_empty() => Some(TextMatch::Exact(exact.clone())),
        Tree::Map(_) => item.map(read_part).flatten(),
        _ => {
            item.invalid("text, {exact: TEXT}, {prefix: TEXT} or {suffix: TEXT}");
            None
        }
    }?;
    match check(&text) {
        Ok(()) => Some(text),
        Err(expected) => {
            item.invalid(expected);
            None
        }
    }
}

fn read_part(map: &mut Map<'_>) -> Option<TextMatch> {
    let exact = map.optional("exact", text).map(TextMatch::Exact);
    let prefix = map.optional("prefix", text).map(TextMatch::Prefix);
    let suffix = map.optional("suffix", text).map(TextMatch::Suffix);
    if ["exact", "prefix", "suffix"].iter().filter(|key| map.has(key)).count() != 1 {
        map.invalid("one of `exact`, `prefix` and `suffix`");
        return None;
    }
    exact.or(prefix).or(suffix)
}

fn dns_name(text: &TextMatch) -> Result<(), String> {
    match text {
        TextMatch::Exact(name) if !is_server_name(name) || name.parse::<IpAddr>().is_ok() => {
            Err("a DNS name without wildcard".to_owned())
        }
        _ => Ok(()),
    }
}

fn spiffe(text: &TextMatch) -> Result<(), String> {
    match text {
        TextMatch::Exact(id) => {
            SpiffeId::parse(id).map(drop).map_err(|error| format!("a SPIFFE ID ({error})"))
        }
        // A prefix within the trust domain would also accept other domains.
        TextMatch::Prefix(prefix) => {
            let rest = prefix.strip_prefix("spiffe://").unwrap_or_default();
            let is_whole = rest.split_once('/').is_some_and(|(domain, _)| !domain.is_empty());
            if is_whole {
                Ok(())
            } else {
                Err("a prefix with a whole trust domain, like spiffe://D/".to_owned())
            }
        }
        TextMatch::Suffix(_) => Ok(()),
    }
}

/// DNS names are compared in lower case.
pub(super) fn lower(text: TextMatch) -> TextMatch {
    match text {
        TextMatch::Exact(text) => TextMatch::Exact(text.to_ascii_lowercase()),
        TextMatch::Prefix(text) => TextMatch::Prefix(text.to_ascii_lowercase()),
        TextMatch::Suffix(text) => TextMatch::Suffix(text.to_ascii_lowercase()),
    }
}

fn ip(tree: &Tree) -> Parsed<IpAddr> {
    match tree {
        Tree::Text(text) => text.parse().map_err(|_| "an IP address".into()),
        _ => Err("an IP address".into()),
    }
}
