//! `mass_deletion` of a server: FU18.

use super::*;
use sluice_engine::upstream::Hold;

/// Of a gRPC server with these keys.
fn policy(keys: &str) -> Option<Hold> {
    let server = format!("{{server_uri: 'localhost:1', channel_creds: [{{type: insecure}}]{keys}}}");
    grpc(&config(&format!("xds_servers: [{server}]"))).stream.mass_deletion_hold
}

fn errors(server: &str) -> Vec<String> {
    let text = format!("xds_servers: [{{{server}}}]");
    messages(&read(&text).expect_err(&text))
}

#[test]
fn fu_18_a_mass_deletion_is_obeyed_at_once_unless_a_time_is_set() {
    assert_eq!(policy(""), None);
    assert_eq!(policy(", mass_deletion: {policy: honour}"), None);
    let held = |seconds| Some(Hold::For(Duration::from_secs(seconds)));
    assert_eq!(policy(", mass_deletion: {policy: hold_then_honour}"), held(300));
    assert_eq!(policy(", mass_deletion: {policy: hold_then_honour, hold: 1h}"), held(3600));
    assert_eq!(policy(", mass_deletion: {policy: hold_until_confirmed}"), Some(Hold::UntilConfirmed));
    let rest = config(REST);
    let ServerKind::Rest(rest) = &rest.servers.default.servers[0].kind else { panic!("not REST") };
    assert_eq!(rest.stream.mass_deletion_hold, held(300));
    let files = config("xds_servers: [{server_uri: 'file:/a', mass_deletion: {policy: hold_then_honour}}]");
    let directory = ServerKind::Directory { path: "/a".into(), mass_deletion_hold: held(300) };
    assert_eq!(files.servers.default.servers[0].kind, directory);
}

#[test]
fn fu_18_a_time_without_its_policy_means_nothing() {
    assert_eq!(
        errors("server_uri: 'localhost:1', channel_creds: [{type: insecure}], mass_deletion: {hold: 5s}"),
        ["xds_servers[0].mass_deletion.hold: does not apply to `policy: honour`"]
    );
    assert_eq!(
        errors(
            "server_uri: 'localhost:1', channel_creds: [{type: insecure}], \
             mass_deletion: {policy: hold_until_confirmed, hold: 5s}"
        ),
        ["xds_servers[0].mass_deletion.hold: does not apply to `policy: hold_until_confirmed`"]
    );
}
