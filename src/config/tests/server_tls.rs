//! TLS towards servers.

use super::*;
use crate::client::Credentials;
use crate::trust::anchors::AnchorFiles;
use crate::trust::client::{ClientTls, KeyExchange, SanMatch, ServerAuthorities};
use crate::trust::identity::TextMatch;
use crate::trust::pair::PairFiles;
use crate::trust::server::MinVersion;

fn entry(uri: &str, keys: &str) -> String {
    format!("xds_servers: [{{server_uri: '{uri}', {keys}}}]")
}

fn credentials(text: &str) -> Credentials {
    match &config(text).servers.default.servers[0].kind {
        ServerKind::Grpc(server) => server.credentials.clone(),
        ServerKind::Rest(server) => server.credentials.clone(),
        other => panic!("{other:?}"),
    }
}

/// The errors of a server, without its path.
fn faults(uri: &str, keys: &str) -> Vec<String> {
    let text = read(&entry(uri, keys)).err().map(|error| messages(&error).join("\n")).unwrap_or_default();
    text.lines().map(|line| line.strip_prefix("xds_servers[0].").unwrap_or(line).to_owned()).collect()
}

const TLS: &str = "channel_creds: [{type: tls}]";

#[test]
fn tls_8_the_first_supported_type_counts_and_nothing_falls_to_plaintext() {
    let unsupported = |index: usize| {
        format!(
            "channel_creds[{index}].type: \"alts\" is not supported by this version; use `tls`, or `insecure` as the \
             first entry if plaintext is acceptable"
        )
    };
    for (list, expected) in [
        ("tls", Ok((true, vec![]))),
        ("insecure", Ok((false, vec![]))),
        ("tls insecure", Ok((true, vec![1]))),
        ("insecure tls alts", Ok((false, vec![1, 2]))),
        ("alts tls insecure", Ok((true, vec![0, 2]))),
        ("alts", Err(vec![unsupported(0)])),
        ("alts insecure", Err(vec![unsupported(0)])),
        ("alts insecure tls", Err(vec![unsupported(0)])),
    ] {
        let types: Vec<_> = list.split(' ').map(|kind| format!("{{type: {kind}}}")).collect();
        let keys = format!("channel_creds: [{}]", types.join(", "));
        let chosen = match read(&entry("localhost:1", &keys)) {
            Ok(loaded) => {
                let warned = loaded.warnings.iter().map(|warning| warning.path.clone()).collect::<Vec<_>>();
                Ok((grpc(&loaded.config).credentials.tls.is_some(), warned))
            }
            Err(_) => Err(faults("localhost:1", &keys)),
        };
        let path = |index: usize| format!("xds_servers[0].channel_creds[{index}].type");
        let expected = expected.map(|(is_tls, warned)| (is_tls, warned.into_iter().map(path).collect()));
        assert_eq!(chosen, expected, "{list}");
    }
}

#[test]
fn fed_1_a_bootstrap_of_grpc_with_tls_loads_as_it_is() {
    let bootstrap = r#"{"xds_servers": [{
        "server_uri": "cp.example:15012",
        "channel_creds": [{"type": "google_default"}, {"type": "tls", "config": {
            "ca_certificate_file": "/cp/ca.crt", "certificate_file": "/id/tls.crt",
            "private_key_file": "/id/tls.key", "refresh_interval": "600.500s"}}]
    }]}"#;
    let loaded = parse(bootstrap, Format::Json, context(".")).unwrap();
    let file = AnchorFiles::Authorities { file: "/cp/ca.crt".into(), trust_domain: None };
    let pair = PairFiles { certificate: "/id/tls.crt".into(), private_key: "/id/tls.key".into() };
    let expected = ClientTls {
        authorities: ServerAuthorities::Files(file),
        pair: Some(pair),
        refresh_interval: Duration::from_millis(600_500),
        ..ClientTls::default()
    };
    assert_eq!(grpc(&loaded.config).credentials.tls, Some(expected));
    let warned: Vec<_> = loaded.warnings.iter().map(|warning| warning.path.as_str()).collect();
    assert_eq!(warned, ["xds_servers[0].channel_creds[0].type"], "nothing is said of plaintext");
}

#[test]
fn all_keys_of_tls_are_read() {
    let keys = format!(
        "{TLS}, tls: {{server_name: CP.example, min_version: 1.3, key_exchange: classic, handshake_timeout: 9s, \
         match_sans: [{{dns: A.b}}, {{dns: {{suffix: .Mesh.example}}}}, {{spiffe: 'spiffe://d/a'}}, \
         {{spiffe: {{prefix: 'spiffe://d/'}}}}, {{uri: {{exact: 'urn:a'}}}}, {{ip: '::1'}}]}}"
    );
    let config = config(&entry("unix:/run/cp", &keys));
    let tls = grpc(&config).credentials.tls.clone().unwrap();
    let text = |text: &str| text.to_owned();
    let expected = ClientTls {
        server_name: Some(text("cp.example")),
        match_sans: vec![
            SanMatch::Dns(TextMatch::Exact(text("a.b"))),
            SanMatch::Dns(TextMatch::Suffix(text(".mesh.example"))),
            SanMatch::Spiffe(TextMatch::Exact(text("spiffe://d/a"))),
            SanMatch::Spiffe(TextMatch::Prefix(text("spiffe://d/"))),
            SanMatch::Uri(TextMatch::Exact(text("urn:a"))),
            SanMatch::Ip("::1".parse().unwrap()),
        ],
        min_version: MinVersion::Tls13,
        key_exchange: KeyExchange::Classic,
        ..ClientTls::default()
    };
    assert_eq!(tls, expected);
    assert_eq!(grpc(&config).connection.handshake_timeout, Duration::from_secs(9));
}

#[test]
fn rest_has_tls_by_its_scheme() {
    let rest = |uri: &str, keys: &str| credentials(&entry(uri, &format!("refresh_delay: 1s{keys}"))).tls;
    assert_eq!(rest("http://localhost", ""), None);
    assert_eq!(rest("https://localhost", ""), Some(ClientTls::default()));
    let creds = ", channel_creds: [{type: tls, config: {ca_certificate_file: ca.crt}}]";
    assert!(rest("https://localhost", creds).is_some_and(|tls| tls != ClientTls::default()));
    assert_eq!(
        faults("http://localhost", "refresh_delay: 1s, channel_creds: [{type: tls}]"),
        ["channel_creds: an http:// address is plaintext; expected https:// for TLS"]
    );
    assert_eq!(
        faults("https://localhost", "refresh_delay: 1s, channel_creds: [{type: insecure}]"),
        ["channel_creds: an https:// address needs `tls`; plaintext has http://"]
    );
}

#[test]
fn idn_7_idn_9_tls_makes_a_token_private() {
    let token = "call_creds: [{type: jwt_token_file, config: {jwt_token_file: t}}]";
    let tls = credentials(&entry("cp.example:1", &format!("{TLS}, {token}")));
    assert_eq!(tls.calls.token_file, Some("/etc/sluice/t".into()));
}

#[test]
fn each_fault_of_tls_is_named() {
    let config = |config: &str| format!("channel_creds: [{{type: tls, config: {{{config}}}}}]");
    for (uri, keys, expected) in [
        (
            "cp.example:1",
            config("certificate_file: a/tls.crt"),
            "channel_creds[0].config.private_key_file: missing; expected the key of certificate_file",
        ),
        (
            "cp.example:1",
            config("certificate_file: a/tls.crt, private_key_file: b/tls.key"),
            "channel_creds[0].config.private_key_file: not in the directory of certificate_file; expected both in one, \
             to be replaced together",
        ),
        (
            "cp.example:1",
            config("spiffe_trust_bundle_map_file: a"),
            "tls.match_sans: missing; with spiffe_trust_bundle_map_file any workload of any listed domain would be \
             taken for the control plane",
        ),
        (
            "unix:/run/cp",
            TLS.to_owned(),
            "tls.server_name: missing; expected a name, or match_sans: a unix socket has no host to check",
        ),
        (
            "localhost:1",
            "channel_creds: [{type: insecure}], tls: {}".to_owned(),
            "tls: does not apply to plaintext",
        ),
        (
            "cp.example:1",
            format!("{TLS}, tls: {{match_sans: []}}"),
            "tls.match_sans: found 0 entries; expected 1 to 64",
        ),
        (
            "cp.example:1",
            format!("{TLS}, tls: {{match_sans: [{{dns: a.b, ip: '::1'}}]}}"),
            "tls.match_sans[0]: found none or several; expected one of `dns`, `spiffe`, `uri` and `ip`",
        ),
        (
            "cp.example:1",
            format!("{TLS}, tls: {{match_sans: [{{spiffe: 'https://a'}}]}}"),
            "tls.match_sans[0].spiffe: found \"https://a\"; expected a SPIFFE ID (does not begin with spiffe://)",
        ),
        (
            "cp.example:1",
            format!("{TLS}, tls: {{match_sans: [{{spiffe: {{prefix: 'spiffe://prod'}}}}]}}"),
            "tls.match_sans[0].spiffe: found a map; expected a prefix with a whole trust domain, like spiffe://D/",
        ),
        (
            "cp.example:1",
            format!("{TLS}, tls: {{min_version: 1.1}}"),
            "tls.min_version: found 1.1; expected \"1.2\" or \"1.3\"",
        ),
        (
            "cp.example:1",
            format!("{TLS}, tls: {{server_name: 'a b'}}"),
            "tls.server_name: found \"a b\"; expected a DNS name or an IP address",
        ),
    ] {
        assert_eq!(faults(uri, &keys), [expected], "{keys}");
    }
}
