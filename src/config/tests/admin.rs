//! `admin`: TLS, tokens, identities, and the contradictions between them.

use super::*;
use crate::admin::ContentMode;
use crate::admin::access::{Area, Areas, IdentityGrant, TokenGrant};
use crate::trust::server::ClientCertificate;
use crate::trust::tokens::TokenFile;
use sluice_engine::authorization::IdentityPattern;

const TLS: &str = "tls: {certificates: [{certificate_file: id/tls.crt, private_key_file: id/tls.key}]";
const MUTUAL: &str = "client_certificate: optional, ca_certificate_file: ca.crt, trust_domain: prod.example";
const TOKEN: &str = "{name: a, token_file: b, roles: [view]}";

fn admin(text: &str) -> AdminListener {
    with_server(&format!("admin: {{{text}}}")).admin
}

fn errors(text: &str) -> Vec<String> {
    messages(&read(&format!("{SERVER}admin: {{{text}}}")).expect_err(text))
}

fn areas(areas: &[Area]) -> Areas {
    areas.iter().copied().collect()
}

#[test]
fn aut_14_tokens_and_identities_have_roles() {
    let listener = admin(&format!(
        "address: '0.0.0.0:19000', {TLS}, {MUTUAL}}}, auth: {{public: [health, metrics], \
         tokens: [{{name: scraper, token_file: admin/scraper.token, roles: [metrics, view]}}], \
         identities: [{{match: 'spiffe://prod.example/ns/ops/sa/{{sa}}', roles: [act]}}]}}"
    ));
    let tls = listener.tls.unwrap();
    assert_eq!(tls.client_certificate, ClientCertificate::Optional);
    let auth = listener.auth.unwrap();
    assert_eq!(auth.public, areas(&[Area::Health, Area::Metrics]));
    let file = TokenFile { name: "scraper".into(), path: "/etc/sluice/admin/scraper.token".into() };
    assert_eq!(auth.tokens, [TokenGrant { file, roles: areas(&[Area::Metrics, Area::View]) }]);
    let pattern = IdentityPattern::spiffe("spiffe://prod.example/ns/ops/sa/{sa}").unwrap();
    assert_eq!(auth.identities, [IdentityGrant { pattern, roles: areas(&[Area::Act]) }]);

    let listener = admin("auth: {}");
    assert_eq!(listener.auth.unwrap().public, areas(&[Area::Health, Area::Ready]));
    assert_eq!(admin("auth: {public: []}").auth.unwrap().public, areas(&[]));
    assert_eq!((admin("").auth, admin("").tls), (None, None));
}

#[test]
fn adm_12_contents_are_for_this_host_and_never_without_redaction() {
    assert_eq!(admin("").content, ContentMode::Redacted);
    assert_eq!(admin("address: 'unix:/run/sluice.sock'").content, ContentMode::Redacted);
    assert_eq!(admin("address: '0.0.0.0:19000'").content, ContentMode::Off);
    assert_eq!(admin("content: off").content, ContentMode::Off);
    assert_eq!(admin("address: '0.0.0.0:19000', content: redacted").content, ContentMode::Redacted);
    assert!(
        errors("content: unredacted")[0].contains("redacted or off"),
        "{:?}",
        errors("content: unredacted")
    );
}

#[test]
fn aut_14_an_address_on_the_network_is_warned_about_until_it_has_tls_and_roles() {
    let warnings = |rest: &str| {
        let text = format!("{SERVER}admin: {{address: '0.0.0.0:19000'{rest}}}");
        let warnings = read(&text).unwrap().warnings;
        let of_admin = warnings.iter().filter(|warning| warning.path == "admin.address");
        of_admin.map(|warning| warning.text.clone()).collect::<Vec<_>>().join("; ")
    };
    let plaintext = "open to the network without `admin.tls`: only the public paths are answered there \
                     (admin.auth.public; by default health and readiness)";
    assert_eq!(warnings(""), plaintext);
    assert_eq!(warnings(", auth: {public: [health, ready, metrics]}"), plaintext);
    assert!(warnings(&format!(", {TLS}}}")).starts_with("open to the network without `admin.auth`"));
    assert_eq!(warnings(&format!(", {TLS}}}, auth: {{tokens: [{TOKEN}]}}")), "");
}

#[test]
fn every_contradiction_is_named() {
    let network = "address: '0.0.0.0:19000'";
    let spiffe = "{match: 'spiffe://a/b', roles: [act]}";
    for (text, key, says) in [
        (format!("{network}, auth: {{tokens: [{TOKEN}]}}"), "admin.auth.tokens", "needs admin.tls"),
        (
            format!("{network}, auth: {{identities: [{{match: {{unix_uid: [0]}}, roles: [act]}}]}}"),
            "admin.auth.identities",
            "needs admin.tls",
        ),
        (
            format!("auth: {{identities: [{spiffe}]}}"),
            "admin.auth.identities[0].match",
            "no client certificate",
        ),
        (
            format!("{TLS}, {MUTUAL}}}, auth: {{identities: [{{match: {{dns: a.b}}, roles: [act]}}]}}"),
            "admin.auth.identities[0].match",
            "not the kind of admin.tls.identity",
        ),
        (
            "auth: {identities: [{match: {unix_uid: [0]}, roles: [act]}]}".to_owned(),
            "admin.auth.identities[0].match",
            "no unix socket",
        ),
        (
            "auth: {identities: [{match: any, roles: [act]}]}".to_owned(),
            "admin.auth.identities[0].match",
            "admin.auth.public",
        ),
        ("auth: {public: [act]}".to_owned(), "admin.auth.public[0]", "health, ready, metrics or view"),
        (
            "auth: {tokens: [{name: a, token_file: b, roles: [admin]}]}".to_owned(),
            "admin.auth.tokens[0].roles[0]",
            "metrics, view or act",
        ),
        (
            "auth: {tokens: [{name: a, token_file: b, roles: []}]}".to_owned(),
            "admin.auth.tokens[0].roles",
            "a list of metrics, view and act",
        ),
        (
            "auth: {tokens: [{name: a, roles: [act]}]}".to_owned(),
            "admin.auth.tokens[0].token_file",
            "one token a line",
        ),
        (
            "auth: {tokens: [{name: a, token: s3cr3t, token_file: b, roles: [act]}]}".to_owned(),
            "admin.auth.tokens[0].token",
            "a file of its own",
        ),
        (format!("auth: {{tokens: [{TOKEN}, {TOKEN}]}}"), "admin.auth.tokens[1].name", "another token"),
        ("tls: {}".to_owned(), "admin.tls.certificates", "missing"),
    ] {
        let errors = errors(&text);
        let is_reported =
            errors.iter().any(|error| error.starts_with(&format!("{key}: ")) && error.contains(says));
        assert!(is_reported && !format!("{errors:?}").contains("s3cr3t"), "{text}: {errors:?}");
    }
}
