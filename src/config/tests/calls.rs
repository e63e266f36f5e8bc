//! Call metadata of servers: tokens, and constant entries.

use super::*;
use crate::client::{CallMetadata, InitialMetadata, MetadataValue};

fn calls(text: &str) -> CallMetadata {
    grpc(&config(text)).credentials.calls.clone()
}

/// The errors of a server, without the path of the server.
fn faults(uri: &str, keys: &str) -> Vec<String> {
    let error =
        read(&format!("xds_servers: [{{server_uri: '{uri}', channel_creds: [{{type: insecure}}], {keys}}}]"))
            .err();
    let text = error.map(|error| messages(&error).join("\n")).unwrap_or_default();
    text.lines().map(|line| line.strip_prefix("xds_servers[0].").unwrap_or(line).to_owned()).collect()
}

#[test]
fn idn_9_a_token_is_for_private_ways_and_unknown_types_are_skipped() {
    let token = "call_creds: [{type: gcp, config: {a: 1}}, {type: jwt_token_file, config: {jwt_token_file: cp/token}}]";
    for uri in ["localhost:1", "127.0.0.1:1", "[::1]:1", "unix:/run/cp"] {
        let text =
            format!("xds_servers: [{{server_uri: '{uri}', channel_creds: [{{type: insecure}}], {token}}}]");
        assert_eq!(calls(&text).token_file, Some("/etc/sluice/cp/token".into()), "{uri}");
        let warnings = read(&text).unwrap().warnings.into_iter();
        let warned: Vec<_> = warnings.map(|warning| (warning.path, warning.text)).collect();
        let says = "\"gcp\" is not supported; skipped, as gRPC does";
        assert_eq!(warned, [("xds_servers[0].call_creds[0].type".to_owned(), says.to_owned())]);
    }
    assert_eq!(
        faults("control-plane.example:1", token),
        [
            "call_creds[1]: a token would leave in plaintext to control-plane.example; expected channel_creds of \
          type tls"
        ]
    );
    assert_eq!(
        faults(
            "localhost:1",
            "call_creds: [{type: jwt_token_file, config: {token: a}}, {type: jwt_token_file}]"
        ),
        [
            "call_creds[0].config.jwt_token_file: missing; expected the file of the token",
            "call_creds[0].config.token: unknown key; known here: jwt_token_file",
            "call_creds[1].config: missing; expected {jwt_token_file: FILE}",
        ]
    );
}

#[test]
fn idn_12_initial_metadata_has_no_reserved_key_and_no_value_in_any_error() {
    let text = "xds_servers: [{server_uri: 'localhost:1', channel_creds: [{type: insecure}], initial_metadata: \
                [{key: X-Consul-Token, value: canary}, {key: x-b, value_file: b}]}]";
    let expected = [
        ("x-consul-token", MetadataValue::text("canary").unwrap()),
        ("x-b", MetadataValue::File("/etc/sluice/b".into())),
    ];
    let expected = expected.map(|(key, value)| InitialMetadata { key: key.parse().unwrap(), value }).to_vec();
    assert_eq!(calls(text), CallMetadata { token_file: None, initial: expected });
    assert!(!format!("{:?}", config(text)).contains("canary"));

    for key in [":path", "grpc-timeout", "GRPC-Status", "te", "content-type", "host", "user-agent"] {
        let faults = faults("localhost:1", &format!("initial_metadata: [{{key: '{key}', value: a}}]"));
        assert_eq!(faults, [format!("initial_metadata[0].key: {key:?} belongs to gRPC or HTTP")]);
    }
    for (entry, fault) in [
        ("{key: a}", "initial_metadata[0]: found none or several; expected one of `value` and `value_file`"),
        (
            "{key: 'a b', value: c}",
            "initial_metadata[0].key: found \"a b\"; expected the name of a header: letters, digits, - and _",
        ),
        (
            "{key: a, value: \"canary\\n\"}",
            "initial_metadata[0].value: found a value that no header can have; expected text without line breaks, of \
             at most 16384 bytes; in quotes if it looks like a number",
        ),
    ] {
        assert_eq!(faults("localhost:1", &format!("initial_metadata: [{entry}]")), [fault]);
    }
    assert_eq!(
        faults("cp.example:1", "initial_metadata: [{key: a, value_file: b}, {key: c, value: d}]"),
        [
            "initial_metadata[0].value_file: the content of a file would leave in plaintext to cp.example; expected \
          channel_creds of type tls"
        ]
    );
    let both = "call_creds: [{type: jwt_token_file, config: {jwt_token_file: t}}], \
                initial_metadata: [{key: Authorization, value: a}]";
    assert_eq!(
        faults("localhost:1", both),
        ["initial_metadata: `authorization` is the token of call_creds; leave out one of the two"]
    );
}
