//! The commands around a configuration: `check` with and without the host, addresses of bootstraps, `migrate`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::CDS;
use crate::support::relay::run;
use crate::support::{ControlPlane, Relay, Setup};

fn write(directory: &Path, name: &str, text: &str) {
    fs::write(directory.join(name), text).unwrap();
}

/// A directory `served` with a file that has no cluster.
fn serve_nothing(directory: &Path) {
    fs::create_dir(directory.join("served")).unwrap();
    write(directory, "served/none.yaml", &format!("type_url: {CDS}\n"));
}

/// Everything at once that this host lacks, and nothing of it for another host.
#[test]
fn check_names_what_the_host_lacks_and_offline_lists_it() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let yaml = "\
xds_servers:
  - server_uri: 'cp.example:1'
    channel_creds: [{ type: tls, config: { ca_certificate_file: cp/ca.crt } }]
    initial_metadata: [{ key: x-token, value_file: token }]
types: { a.B: { xds_servers: [{ server_uri: 'file:lists' }] } }
listeners:
  - name: main
    address: '127.0.0.1:1'
    tls: { certificates: [{ certificate_file: tls.crt, private_key_file: tls.key }] }
checkpoint: { directory: open }
";
    write(directory.path(), "sluice.yaml", yaml);
    fs::create_dir(at("open")).unwrap();
    fs::set_permissions(at("open"), fs::Permissions::from_mode(0o777)).unwrap();
    let (code, _, errors) = run(&["check", "--config", "sluice.yaml"], directory.path());
    assert_eq!(code, 64, "{errors}");
    assert!(errors.contains("5 errors on this host:"), "{errors}");
    for line in [
        "xds_servers[0].channel_creds[tls].config.ca_certificate_file: ",
        "listeners[0].tls.certificates[0].certificate_file: ",
        "xds_servers[0].initial_metadata: ",
        "types[a.B].xds_servers[0].server_uri: file:",
        "checkpoint.directory: ",
    ] {
        assert!(errors.contains(&format!("\n  {line}")), "{line}\n{errors}");
    }
    let (code, text, errors) = run(&["check", "--offline", "--config", "sluice.yaml"], directory.path());
    assert_eq!(code, 0, "{errors}");
    for line in [
        "sluice.yaml is a valid configuration".to_owned(),
        "listeners[0].address: whether 127.0.0.1:1 is free".to_owned(),
        format!("listeners[0].tls.certificates[0].private_key_file: the file {}", at("tls.key").display()),
        "xds_servers[0].server_uri: whether cp.example can be reached".to_owned(),
        format!("xds_servers[0].initial_metadata: the file {}", at("token").display()),
        format!("types[a.B].xds_servers[0].server_uri: the directory {}", at("lists").display()),
        format!("checkpoint.directory: whether {} is writable", at("open").display()),
    ] {
        assert!(text.lines().any(|found| found.trim() == line), "{line}\n{text}");
    }
    // No directory was created, and no probe is left.
    assert_eq!(fs::read_dir(at("open")).unwrap().count(), 0);
    serve_nothing(directory.path());
    write(
        directory.path(),
        "sluice.yaml",
        "xds_servers: [{server_uri: 'file:served'}]\ncheckpoint: {directory: new/deep}",
    );
    assert_eq!(run(&["check", "--config", "sluice.yaml"], directory.path()).0, 0);
    assert!(!at("new").exists());
    write(
        directory.path(),
        "sluice.yaml",
        "xds_servers: [{server_uri: 'file:served'}]\ncheckpoint: {directory: sluice.yaml/a}",
    );
    let (code, _, errors) = run(&["check", "--config", "sluice.yaml"], directory.path());
    assert!(code == 69 && errors.contains("1 error on this host:\n  checkpoint.directory: "), "{errors}");
}

#[test]
fn every_error_has_its_file_line_and_column() {
    let directory = tempfile::tempdir().unwrap();
    write(
        directory.path(),
        "relay.yaml",
        "xds_servers: [{server_uri: 'file:.'}]\nlisteners:\n  - name: a\n    address: b\n",
    );
    let (code, _, errors) = run(&["check", "--config", "relay.yaml"], directory.path());
    assert_eq!(code, 64);
    assert!(
        errors.contains("relay.yaml: 1 error:\n  relay.yaml:4:14: listeners[0].address: found \"b\""),
        "{errors}"
    );
    write(directory.path(), "torn.yaml", "a: 1\nb: [");
    let (code, _, errors) = run(&["check", "--config", "torn.yaml"], directory.path());
    assert!(code == 64 && errors.starts_with("sluice: torn.yaml:2:"), "{errors}");
    let (_, _, errors) = run(&["check", "--config", "open.yaml"], {
        write(
            directory.path(),
            "open.yaml",
            "xds_servers: [{server_uri: 'file:.'}]\nlisteners: [{name: a, address: '0.0.0.0:1'}]",
        );
        directory.path()
    });
    assert!(errors.starts_with("sluice: warning: open.yaml:2:32: listeners[0].address: "), "{errors}");
}

#[test]
fn an_unset_variable_is_an_error_and_offline_a_need() {
    let directory = tempfile::tempdir().unwrap();
    let yaml = "xds_servers: [{server_uri: '${SLUICE_TEST_UNSET}', channel_creds: [{type: insecure}]}]\nlinger: ${SLUICE_TEST_UNSET_TOO:-5s}\n";
    write(directory.path(), "sluice.yaml", yaml);
    let run = |arguments: &[&str]| {
        let all = [&["check", "--config", "sluice.yaml"], arguments].concat();
        run(&all, directory.path())
    };
    let hint = "xds_servers[0].server_uri: the environment variable SLUICE_TEST_UNSET";
    let (code, _, errors) = run(&[]);
    assert!(code == 64 && errors.contains(&format!("sluice.yaml:1:28: {hint} is not set")), "{errors}");
    let (code, text, errors) = run(&["--offline"]);
    assert!(code == 0 && text.contains(&format!("\n  {hint}\n")), "{text}{errors}");
    assert_eq!(run(&["--offline", "--identity", "anonymous"]).0, 64);
    // So is one in the file of `authorization`.
    let server = "xds_servers: [{server_uri: 'localhost:1', channel_creds: [{type: insecure}]}]\n";
    write(directory.path(), "sluice.yaml", &format!("{server}authorization: {{file: rules.yaml}}\n"));
    write(
        directory.path(),
        "rules.yaml",
        "rules: [{name: a, match: {identity: '${SLUICE_TEST_UNSET}'}, deny: true}]\n",
    );
    let place = "rules.yaml:1:37: rules[0].match.identity: the environment variable SLUICE_TEST_UNSET";
    let (code, text, errors) = run(&["--offline"]);
    let is_listed = text.contains("\n  authorization.file: ") && text.contains(&format!("/{place}\n"));
    assert!(code == 0 && is_listed, "{text}{errors}");
    let (code, _, errors) = run(&[]);
    assert!(code == 64 && errors.contains(&format!("/{place} is not set")), "{errors}");
    // Any other error counts.
    write(directory.path(), "sluice.yaml", &format!("{yaml}lingr: 1s\n"));
    assert_eq!(run(&["--offline"]).0, 64);
}

#[test]
fn check_prints_the_class_of_a_node_its_rule_and_its_values() {
    let directory = tempfile::tempdir().unwrap();
    serve_nothing(directory.path());
    let yaml = "xds_servers: [{server_uri: 'file:served'}]\nnode_classes:\n  - match: {names: old, id: {prefix: web}}\n    \
                split_by: {cluster: true, locality: zone, user_agent_version: major, metadata: [TEAM]}\n";
    write(directory.path(), "sluice.yaml", yaml);
    let node = "{\"id\": \"web-1\", \"cluster\": \"web\", \"locality\": {\"region\": \"eu\", \"zone\": \"z\"}, \"metadata\": \
                {\"TEAM\": \"hush\"}, \"user_agent_build_version\": {\"version\": {\"major_number\": 1, \"minor_number\": 40}}}";
    write(directory.path(), "node.json", node);
    let (code, text, errors) =
        run(&["check", "--config", "sluice.yaml", "--node", "node.json"], directory.path());
    assert_eq!(code, 0, "{errors}");
    let line = text.lines().find(|line| line.starts_with("Cluster ") && line.contains(" old ")).unwrap();
    assert!(line.contains(" node_classes[0] "), "{line}");
    let class = line.split_once(" class ").unwrap().1;
    let (digest, values) = class.split_once(' ').unwrap();
    assert!(digest.len() >= 8 && digest.bytes().all(|b| b.is_ascii_hexdigit()), "{line}");
    assert_eq!(
        values,
        "cluster=\"web\" region=\"eu\" zone=\"z\" user_agent_version=\"1.0.0\" metadata=\"TEAM\""
    );
    assert!(!text.contains("hush"), "{text}");
}

#[test]
fn a_bootstrap_has_the_address_and_the_authorities() {
    let directory = tempfile::tempdir().unwrap();
    let yaml = "xds_servers: [{server_uri: 'file:.'}]\nauthorities: {a.example: {}, b.example: {}}\n";
    write(directory.path(), "sluice.yaml", yaml);
    let run = |client: &str, address: &str| {
        run(&["bootstrap", client, "--config", "sluice.yaml", "--address", address], directory.path())
    };
    let (code, text, errors) = run("grpc", "relay.example:443");
    assert_eq!(code, 0, "{errors}");
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["xds_servers"][0]["server_uri"], "relay.example:443");
    assert_eq!(json["authorities"], serde_json::json!({ "a.example": {}, "b.example": {} }));
    let (_, text, _) = run("envoy", "relay.example:443");
    assert!(text.contains("STRICT_DNS") && text.contains("\"relay.example\", port_value: 443"), "{text}");
    let (_, text, _) = run("envoy", "unix:/run/xds.sock");
    assert!(text.contains("pipe: { path: \"/run/xds.sock\" }"), "{text}");
    for bad in ["relay.example", "relay.example:0", ":1", "unix:", "unix:run/xds.sock", "https://a:1"] {
        let (code, _, errors) = run("grpc", bad);
        assert!(code == 64 && errors.contains("--address: found "), "{bad}: {errors}");
    }
}

#[test]
fn xds_relays_files_become_a_configuration_that_check_accepts() {
    let directory = tempfile::tempdir().unwrap();
    let all = [
        "listener.v3.Listener",
        "cluster.v3.Cluster",
        "route.v3.RouteConfiguration",
        "endpoint.v3.ClusterLoadAssignment",
    ]
    .map(|name| format!("type.googleapis.com/envoy.config.{name}"))
    .join(", ");
    let rules = format!(
        "fragments:\n- rules:\n  - match: {{ request_type_match: {{ types: [{all}] }} }}\n    result: {{ request_node_fragment: \
         {{ cluster_action: ACTION }} }}\n"
    );
    let bootstrap = "server: { address: { address: 127.0.0.1, port_value: 7001 } }\norigin_server: { address: { address: \
                     cp.internal, port_value: 7002 } }\nlogging: { level: INFO }\n";
    write(directory.path(), "boot.yaml", bootstrap);
    let migrate = |rules: &str, files: &[&str]| {
        write(directory.path(), "rules.yaml", rules);
        let (code, yaml, errors) = run(&[&["migrate", "xds-relay"], files].concat(), directory.path());
        write(directory.path(), "sluice.yaml", &yaml);
        let checked = run(&["check", "--offline", "--config", "sluice.yaml"], directory.path());
        assert_eq!(checked.0, 0, "{yaml}\n{}", checked.2);
        (code, errors)
    };
    let (code, errors) = migrate(&rules.replace("ACTION", "{ exact: true }"), &["boot.yaml", "rules.yaml"]);
    assert_eq!((code, errors.as_str()), (0, ""));
    let partly = rules.replace("ACTION", "{ regex_action: { pattern: 'a', replace: b } }");
    let (code, errors) = migrate(&partly, &["rules.yaml"]);
    assert_eq!(code, 1, "{errors}");
    let place = "sluice: rules.yaml:4:";
    assert!(errors.starts_with(place) && errors.contains("cluster_action.regex_action: "), "{errors}");
    assert!(errors.contains("CONTROL_PLANE"), "{errors}");
    for bad in ["boot", "fragments: 7"] {
        write(directory.path(), "bad.yaml", bad);
        let (code, text, errors) = run(&["migrate", "xds-relay", "bad.yaml"], directory.path());
        assert!(code == 64 && text.is_empty() && errors.contains("bad.yaml:1:"), "{bad}: {errors}");
    }
    assert_eq!(run(&["migrate", "xds-relay", "nowhere.yaml"], directory.path()).0, 64);
}

/// Readers of JSON read every line of it.
#[tokio::test]
async fn the_warnings_of_the_start_have_the_form_of_the_log() {
    let origin = ControlPlane::obedient().await;
    let setup = Setup::of(origin.address).server_line("server_features: [never_heard_of]");
    let relay = Relay::start(setup.line("log: { format: json, level: info }")).await;
    relay.logged("never_heard_of").await;
    // The last line may be under way.
    let log = relay.log();
    let (whole, _) = log.rsplit_once('\n').unwrap();
    let lines: Vec<serde_json::Value> = whole
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let warning = lines.iter().find(|line| line.to_string().contains("never_heard_of"));
    assert_eq!(warning.unwrap_or_else(|| panic!("{lines:?}"))["level"], "WARN");
}

/// A shipped configuration is valid as it is, and no file of the operator is lost.
#[test]
fn init_writes_a_valid_configuration_once() {
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| run(arguments, directory.path());
    for recipe in ["istio", "istio-kubernetes", "envoy-gateway", "go-control-plane", "directory"] {
        let file = format!("{recipe}.yaml");
        let (code, text, errors) = run(&["init", recipe, &file]);
        assert!(code == 0 && text.starts_with(&format!("{file} is written")), "{errors}");
        let (code, _, errors) = run(&["check", "--offline", "--config", &file]);
        assert_eq!(code, 0, "{errors}");
        let (_, shown, _) = run(&["init", recipe, "-"]);
        assert_eq!(shown, std::fs::read_to_string(directory.path().join(&file)).unwrap());
    }
    write(directory.path(), "sluice.yaml", "mine");
    let (code, _, errors) = run(&["init", "istio"]);
    assert!(code == 64 && errors.contains("sluice.yaml exists"), "{errors}");
    assert_eq!(std::fs::read_to_string(directory.path().join("sluice.yaml")).unwrap(), "mine");
    let (code, _, errors) = run(&["init", "other"]);
    assert!(code == 64 && errors.contains("go-control-plane"), "{errors}");
}
