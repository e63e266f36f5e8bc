//! `listeners[].tls`.

use super::*;
use crate::trust::anchors::AnchorFiles;
use crate::trust::crl::{CrlSettings, Depth};
use crate::trust::identity::{ClientName, IdentityKind, TextMatch};
use crate::trust::pair::PairFiles;
use crate::trust::server::{ClientCertificate, MinVersion, OnClientExpiry, ServerTls};

fn tls(text: &str) -> ServerTls {
    let text = format!("listeners: [{{name: mesh, address: '127.0.0.1:1', tls: {{{PAIR}{text}}}}}]");
    with_server(&text).listeners[0].tls.clone().unwrap()
}

fn errors(text: &str) -> Vec<String> {
    let text = format!("{SERVER}listeners: [{{name: mesh, address: '127.0.0.1:1', tls: {{{text}}}}}]");
    messages(&read(&text).expect_err(&text))
}

const PAIR: &str = "certificates: [{certificate_file: id/tls.crt, private_key_file: id/tls.key}]";

#[test]
fn a_pair_is_enough_for_tls_without_client_certificates() {
    let directory = Path::new("/etc/sluice/id");
    let pair = PairFiles { certificate: directory.join("tls.crt"), private_key: directory.join("tls.key") };
    let expected = ServerTls {
        certificates: vec![pair],
        client_certificate: ClientCertificate::None,
        anchors: None,
        identity: IdentityKind::Spiffe,
        clients: Vec::new(),
        crl: None,
        min_version: MinVersion::Tls12,
        refresh_interval: Duration::from_secs(600),
        on_client_expiry: OnClientExpiry::End,
    };
    assert_eq!(tls(""), expected);
}

#[test]
fn authorities_ask_for_client_certificates() {
    let mesh = tls(
        ", ca_certificate_file: ca.crt, trust_domain: prod.example, min_version: '1.3', on_client_expiry: keep, \
         clients: [{spiffe: {prefix: 'spiffe://prod.example/ns/'}}, {spiffe: 'spiffe://prod.example/a'}], \
         crl: {files: [crl.pem], depth: chain, when_unknown: allow, when_expired: allow}",
    );
    assert_eq!(mesh.client_certificate, ClientCertificate::Required);
    let file = "/etc/sluice/ca.crt".into();
    let anchors = AnchorFiles::Authorities { file, trust_domain: Some("prod.example".into()) };
    assert_eq!(mesh.anchors, Some(anchors));
    let clients = [
        ClientName::Spiffe(TextMatch::Prefix("spiffe://prod.example/ns/".into())),
        ClientName::Spiffe(TextMatch::Exact("spiffe://prod.example/a".into())),
    ];
    assert_eq!(mesh.clients, clients);
    let crl = CrlSettings {
        files: vec!["/etc/sluice/crl.pem".into()],
        depth: Depth::Chain,
        allows_unknown: true,
        allows_expired: true,
    };
    assert_eq!(mesh.crl, Some(crl));
    assert_eq!((mesh.min_version, mesh.on_client_expiry), (MinVersion::Tls13, OnClientExpiry::Keep));

    let dns = tls(", ca_certificate_file: ca.crt, identity: dns, clients: [{dns: {suffix: .mesh}}], \
                   client_certificate: optional");
    assert_eq!(dns.clients, [ClientName::Dns(TextMatch::Suffix(".mesh".into()))]);
    assert_eq!(dns.client_certificate, ClientCertificate::Optional);
    // Names of certificates are compared in lower case.
    let dns = tls(", ca_certificate_file: ca.crt, identity: dns, clients: [{dns: Web.Mesh}]");
    assert_eq!(dns.clients, [ClientName::Dns(TextMatch::Exact("web.mesh".into()))]);
    let shared = tls(", ca_certificate_file: ca.crt, identity: trust_domain, trust_domain: gateway, \
                      clients: [{dns: '*.gateway-system'}]");
    assert_eq!(shared.identity, IdentityKind::TrustDomain);
    assert_eq!(shared.clients, [ClientName::Dns(TextMatch::Exact("*.gateway-system".into()))]);
    let bundles = tls(", spiffe_trust_bundle_map_file: map.json");
    assert_eq!(bundles.anchors, Some(AnchorFiles::BundleMap("/etc/sluice/map.json".into())));
}

#[test]
fn a_listener_on_the_network_warns_only_in_plaintext() {
    let warnings = |tls: &str| {
        let text = format!("{SERVER}listeners: [{{name: a, address: '0.0.0.0:1'{tls}}}]");
        let warnings = read(&text).unwrap().warnings;
        warnings.iter().filter(|warning| warning.path == "listeners[0].address").count()
    };
    assert_eq!((warnings(""), warnings(&format!(", tls: {{{PAIR}}}"))), (1, 0));
}

#[test]
fn aut_2_certificates_without_rules_cause_a_warning() {
    let warnings = |rest: &str| {
        let tls = format!("{PAIR}, ca_certificate_file: ca.crt, trust_domain: prod.example");
        let text =
            format!("{SERVER}{rest}\nlisteners: [{{name: a, address: '127.0.0.1:1', tls: {{{tls}}}}}]");
        let warnings = read(&text).unwrap().warnings;
        let of_tls = warnings.iter().filter(|warning| warning.path == "listeners[0].tls");
        of_tls.map(|warning| warning.text.clone()).collect::<Vec<_>>()
    };
    let text = "client certificates are checked, but there is no `authorization`: any certificate of \
                /etc/sluice/ca.crt may claim any node";
    assert_eq!(warnings(""), [text]);
    let rule = "authorization: {rules: [{name: all, match: {identity: any}, allow: [{types: all, wildcard: true}]}]}";
    assert!(warnings(rule).is_empty());
}

#[test]
fn idn_3_a_client_of_another_trust_domain_causes_a_warning() {
    let tls = "ca_certificate_file: ca.crt, trust_domain: prod.example, clients: [{spiffe: 'spiffe://prod.example/a'}, \
               {spiffe: 'spiffe://prod.exampl/a'}, {spiffe: {prefix: 'spiffe://prod'}}, \
               {spiffe: {prefix: 'spiffe://test.example/'}}, {spiffe: {suffix: /a}}]";
    let text = format!("{SERVER}listeners: [{{name: a, address: '127.0.0.1:1', tls: {{{PAIR}, {tls}}}}}]");
    let warnings = read(&text).unwrap().warnings;
    let of_clients: Vec<_> = warnings.iter().filter(|warning| warning.path.contains(".clients")).collect();
    let paths: Vec<_> = of_clients.iter().map(|warning| warning.path.as_str()).collect();
    assert_eq!(paths, ["listeners[0].tls.clients[1].spiffe", "listeners[0].tls.clients[3].spiffe"]);
    let says = "fits nobody: this listener proves spiffe://prod.example/... only (trust_domain)";
    assert!(of_clients.iter().all(|warning| warning.text == says), "{of_clients:?}");
}

#[test]
fn idn_3_a_rule_for_a_trust_domain_of_none_of_its_listeners_causes_a_warning() {
    let listener = |name: &str, port: u16, anchors: &str| {
        format!("{{name: {name}, address: '127.0.0.1:{port}', tls: {{{PAIR}{anchors}}}}}")
    };
    let prod = listener("prod", 1, ", ca_certificate_file: a, trust_domain: prod.example");
    let test = listener("test", 2, ", ca_certificate_file: a, trust_domain: test.example");
    let map = listener("map", 3, ", spiffe_trust_bundle_map_file: m");
    let plain = listener("plain", 4, "");
    let warnings = |listeners: &[&String], on: &str| {
        let list: Vec<_> = listeners.iter().map(|listener| listener.as_str()).collect();
        let rule = |name: &str, domain: &str| {
            format!("{{name: {name}, match: {{{on}identity: 'spiffe://{domain}/{{ns}}'}}, deny: true}}")
        };
        let rules = [rule("good", "prod.example"), rule("odd", "test.example")].join(", ");
        let text = format!("{SERVER}listeners: [{}]\nauthorization: {{rules: [{rules}]}}\n", list.join(", "));
        let warnings = read(&text).unwrap().warnings;
        let of_rules = warnings.into_iter().filter(|warning| warning.path.starts_with("authorization"));
        of_rules.map(|warning| format!("{}: {}", warning.path, warning.text)).collect::<Vec<_>>()
    };
    let odd = "authorization.rules[1].match.identity: rule \"odd\" matches nobody: its trust domain is test.example, and \
               its listeners prove prod.example only";
    assert_eq!(warnings(&[&prod], ""), [odd]);
    assert_eq!(warnings(&[&prod, &plain], ""), [odd]);
    assert_eq!(warnings(&[&prod, &test], "listeners: [prod], "), [odd]);
    assert_eq!(warnings(&[&prod, &test], ""), [""; 0]);
    assert_eq!(warnings(&[&prod, &map], ""), [""; 0], "the domains of a bundle map are in its file");
    assert_eq!(warnings(&[&plain], ""), [""; 0]);
}

#[test]
fn every_contradiction_is_named() {
    let key = |name: &str| format!("listeners[0].tls.{name}");
    for (text, name, says) in [
        ("".to_owned(), "certificates", "missing"),
        ("certificates: []".to_owned(), "certificates", "1 to 8 pairs"),
        (
            "certificates: [{certificate_file: a/tls.crt, private_key_file: b/tls.key}]".to_owned(),
            "certificates[0].private_key_file",
            "not in the directory of certificate_file",
        ),
        (
            format!("{PAIR}, client_certificate: required"),
            "ca_certificate_file",
            "the authorities of clients",
        ),
        (
            format!("{PAIR}, ca_certificate_file: a"),
            "trust_domain",
            "the one trust domain for which ca_certificate_file may speak",
        ),
        (format!("{PAIR}, trust_domain: a"), "trust_domain", "there is no ca_certificate_file"),
        (
            format!("{PAIR}, ca_certificate_file: a, trust_domain: 'spiffe://a'"),
            "trust_domain",
            "without spiffe://",
        ),
        (format!("{PAIR}, ca_certificate_file: a, identity: dns"), "clients", "accepts listed names only"),
        (
            format!("{PAIR}, ca_certificate_file: a, trust_domain: a, spiffe_trust_bundle_map_file: b"),
            "spiffe_trust_bundle_map_file",
            "use one",
        ),
        (
            format!("{PAIR}, ca_certificate_file: a, trust_domain: a, client_certificate: none"),
            "client_certificate",
            "there are authorities",
        ),
        (
            format!("{PAIR}, ca_certificate_file: a, trust_domain: a, clients: [{{dns: b}}]"),
            "clients[0]",
            "one `spiffe`",
        ),
        (format!("{PAIR}, crl: {{files: [a]}}"), "crl", "no client certificate is asked for"),
        (format!("{PAIR}, min_version: '1.1'"), "min_version", "1.2 or 1.3"),
        (format!("{PAIR}, proxy_protocol: true"), "proxy_protocol", "not supported"),
        (format!("{PAIR}, jwt: {{}}"), "jwt", "not supported"),
    ] {
        let errors = errors(&text);
        let is_reported =
            errors.iter().any(|error| error.starts_with(&format!("{}: ", key(name))) && error.contains(says));
        assert!(is_reported, "{text}: {errors:?}");
        assert_eq!(errors.len(), 1, "one error for one fault: {errors:?}");
    }
}

/// An empty list, as a template may leave it, admits nobody by its words; the same key left out admits all.
#[test]
fn idn_1_an_empty_list_of_clients_is_refused() {
    let none = "found a list; expected at least one identity; without `clients`, any may connect";
    for (text, says) in [
        ("trust_domain: a, clients: []", none),
        ("trust_domain: a, clients: ", "found nothing; expected at least one identity"),
        ("identity: dns, clients: []", none),
        ("trust_domain: a, clients: web", "expected a list"),
    ] {
        let errors = errors(&format!("{PAIR}, ca_certificate_file: a, {text}"));
        assert_eq!(errors.len(), 1, "one error for one fault: {errors:?}");
        let is_named = errors[0].starts_with("listeners[0].tls.clients: ") && errors[0].contains(says);
        assert!(is_named, "{text}: {errors:?}");
    }
}

#[test]
fn idn_5_a_client_that_nobody_can_be_is_refused_with_the_remedy() {
    let wildcard = "accepts nobody: a wildcard name cannot identify a client; `identity: trust_domain` accepts a \
                    certificate that clients share, and {suffix: TEXT} many names";
    let star = "accepts nobody: no SPIFFE ID has a `*`; {prefix: TEXT} and {suffix: TEXT} accept many";
    for (identity, client, says) in [
        ("identity: dns", "dns: '*.envoy-gateway-system'", wildcard),
        ("identity: dns", "dns: {prefix: '*.'}", wildcard),
        ("identity: dns", "dns: {suffix: '*.a'}", wildcard),
        ("trust_domain: a", "spiffe: 'spiffe://a/*'", star),
        ("trust_domain: a", "spiffe: {prefix: 'spiffe://a/*'}", star),
        ("trust_domain: a", "spiffe: 'a/b'", "\"a/b\" accepts nobody: it is no SPIFFE ID: "),
    ] {
        let errors = errors(&format!("{PAIR}, ca_certificate_file: a, {identity}, clients: [{{{client}}}]"));
        assert_eq!(errors.len(), 1, "{client}: one error for one fault: {errors:?}");
        let is_named = errors[0].starts_with("listeners[0].tls.clients[0].") && errors[0].contains(says);
        assert!(is_named, "{client}: {errors:?}");
    }
    let name = errors(&format!("{PAIR}, ca_certificate_file: a, identity: trust_domain"));
    assert_eq!(name.len(), 1, "{name:?}");
    assert!(name[0].contains("trust_domain") && name[0].contains("a name for the clients of"), "{name:?}");
}
