//! Exit codes, errors with their paths, bootstraps.

use std::fs;

use crate::support::CDS;
use crate::support::net::free_port;
use crate::support::relay::run;

/// The folder of the manifest, which contains `config/quickstart/`.
const CHECKOUT: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn every_fault_is_named_by_its_path_with_exit_code_64() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bad.yaml");
    let yaml = "\
xds_servers:
  - server_uri: \"127.0.0.1:1\"
    channel_creds: [ { type: insecure } ]
    api_type: AGGREGATED_CARRIER_PIGEON
    resource_timeout: soon
listenerz: []
listeners: [ { name: main, address: \"nowhere\" } ]
";
    fs::write(&file, yaml).unwrap();
    for command in ["check", "serve"] {
        let (code, _, errors) = run(&[command, "--config", file.to_str().unwrap()], directory.path());
        assert_eq!(code, 64, "{command}: {errors}");
        let paths = [
            "xds_servers[0].api_type",
            "xds_servers[0].resource_timeout",
            "listenerz",
            "listeners[0].address",
        ];
        for path in paths {
            assert!(errors.contains(path), "{command} does not name {path}:\n{errors}");
        }
        assert!(errors.contains("AGGREGATED_CARRIER_PIGEON"), "the found value is missing:\n{errors}");
        assert!(errors.contains("AGGREGATED_DELTA_GRPC"), "the expected value is missing:\n{errors}");
    }
}

#[test]
fn a_file_that_is_not_there_or_no_yaml_is_64() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("torn.yaml"), "xds_servers: [ {").unwrap();
    for file in ["missing.yaml", "torn.yaml"] {
        let (code, _, errors) = run(&["check", "--config", file], directory.path());
        assert_eq!(code, 64, "{errors}");
        assert!(errors.contains(file), "{errors}");
    }
}

/// A problem of the host is no error of the configuration.
#[test]
fn a_taken_port_and_a_missing_directory_are_69_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let file = directory.path().join("sluice.yaml");
    fs::create_dir(directory.path().join("here")).unwrap();
    fs::write(directory.path().join("here/none.yaml"), format!("type_url: {CDS}\nresources: []\n")).unwrap();
    for (server, named) in [("here", taken.as_str()), ("nowhere", "nowhere")] {
        let yaml = format!(
            "xds_servers: [ {{ server_uri: \"file:{server}\" }} ]\n\
             listeners: [ {{ name: main, address: \"{taken}\" }} ]\n\
             admin: {{ address: \"127.0.0.1:{}\" }}\n",
            free_port()
        );
        fs::write(&file, yaml).unwrap();
        let (code, _, errors) = run(&["serve", "--config", file.to_str().unwrap()], directory.path());
        assert_eq!(code, 69, "{errors}");
        let last = errors.lines().last().unwrap_or_default();
        assert!(last.starts_with("sluice: ") && last.contains(named), "{errors}");
    }
}

#[test]
fn arguments_that_do_not_exist_are_64() {
    for arguments in [&["serve", "--fast"][..], &["sing"]] {
        let (code, _, errors) = run(arguments, CHECKOUT.as_ref());
        assert_eq!(code, 64, "{errors}");
    }
}

#[test]
fn the_files_we_ship_are_sound() {
    let files = ["sluice", "container", "example", "istio", "istio-kubernetes", "go-control-plane"];
    for file in files.map(|name| format!("config/{name}.yaml")) {
        let (code, _, errors) = run(&["check", "--config", &file], CHECKOUT.as_ref());
        assert_eq!(code, 0, "{file}: {errors}");
        // Only configurations for containers may be reachable from other hosts.
        let is_open = ["container", "istio", "go-control-plane"].iter().any(|open| file.contains(open));
        assert_eq!(errors.contains("listeners[0].address"), is_open, "{file}: {errors}");
    }
    let image = std::fs::read_to_string(format!("{CHECKOUT}/Dockerfile")).unwrap();
    assert!(image.contains(r#"CMD ["serve", "--config", "/app/config/container.yaml"]"#), "{image}");
}

/// With the exit codes of `serve`.
#[test]
fn check_reads_the_directories_that_are_to_be_served() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("sluice.yaml"), "xds_servers: [{server_uri: 'file:here'}]").unwrap();
    let check = || run(&["check", "--config", "sluice.yaml"], directory.path());
    let (code, _, errors) = check();
    assert!(code == 69 && errors.contains("/here: the directory does not exist"), "{code}: {errors}");
    let here = directory.path().join("here");
    std::fs::create_dir(&here).unwrap();
    let (code, _, errors) = check();
    assert!(
        code == 69 && errors.contains("/here: the directory contains no file to serve"),
        "{code}: {errors}"
    );
    std::fs::write(here.join("a.yaml"), "resources:\n- {\n").unwrap();
    std::os::unix::fs::symlink("nowhere", here.join("b.yaml")).unwrap();
    let (code, _, errors) = check();
    assert!(code == 69 && errors.contains("2 errors"), "{code}: {errors}");
    assert!(errors.contains("/here/a.yaml: ") && errors.contains("line 2"), "{errors}");
    assert!(errors.contains("/here/b.yaml: a link to nowhere, which does not exist"), "{errors}");
    std::fs::write(here.join("a.yaml"), "resources: []\n").unwrap();
    std::fs::remove_file(here.join("b.yaml")).unwrap();
    assert_eq!(check().0, 0);
}

#[test]
fn bootstraps_are_printed() {
    let (code, envoy, _) = run(&["bootstrap", "envoy"], CHECKOUT.as_ref());
    assert_eq!(code, 0);
    assert!(envoy.contains("api_type: DELTA_GRPC") && envoy.contains("18000"), "{envoy}");
    let (code, grpc, _) = run(&["bootstrap", "grpc"], CHECKOUT.as_ref());
    assert_eq!(code, 0);
    let json: serde_json::Value = serde_json::from_str(&grpc).unwrap();
    assert_eq!(json["xds_servers"][0]["server_uri"], "127.0.0.1:18000");

    // A47: the authorities go on, with the names of their listeners.
    let directory = tempfile::tempdir().unwrap();
    let template = "xdstp://b.example/envoy.config.listener.v3.Listener/clients/%s";
    let authorities =
        format!("a.example: {{}}, b.example: {{client_listener_resource_name_template: '{template}'}}");
    let yaml = format!("xds_servers: [{{server_uri: 'file:.'}}]\nauthorities: {{{authorities}}}\n");
    std::fs::write(directory.path().join("sluice.yaml"), yaml).unwrap();
    let (code, grpc, errors) = run(&["bootstrap", "grpc", "--config", "sluice.yaml"], directory.path());
    assert_eq!((code, errors.as_str()), (0, ""));
    let json: serde_json::Value = serde_json::from_str(&grpc).unwrap();
    let expected = serde_json::json!({
        "a.example": {}, "b.example": { "client_listener_resource_name_template": template },
    });
    assert_eq!(json["authorities"], expected);

    // The names of listeners, by the file and by the option.
    let templates = "client_default_listener_resource_name_template: 'c/%s'\nserver_listener_resource_name_template: 's/%s'\n";
    let yaml = format!("xds_servers: [{{server_uri: 'file:.'}}]\n{templates}");
    std::fs::write(directory.path().join("sluice.yaml"), yaml).unwrap();
    let print = |options: &[&str]| {
        run(&[&["bootstrap", "grpc", "--config", "sluice.yaml"], options].concat(), directory.path())
    };
    for (options, server) in
        [(&[][..], "s/%s"), (&["--server-listener-template", "own/%s", "--language", "python"], "own/%s")]
    {
        let (code, grpc, errors) = print(options);
        assert_eq!((code, errors.as_str()), (0, ""));
        let json: serde_json::Value = serde_json::from_str(&grpc).unwrap();
        assert_eq!(json["client_default_listener_resource_name_template"], "c/%s");
        assert_eq!(json["server_listener_resource_name_template"], server);
    }
}

/// A language gets a bootstrap for the library, or words about the lack.
#[test]
fn a_bootstrap_for_a_language_says_what_it_cannot_do() {
    let directory = tempfile::tempdir().unwrap();
    let (code, ..) = run(&["dev-certs", "certs"], directory.path());
    assert_eq!(code, 0);
    let listener = |client_certificate: &str| {
        let pair = "{certificate_file: certs/relay/tls.crt, private_key_file: certs/relay/tls.key}";
        let tls = format!("certificates: [{pair}], ca_certificate_file: certs/ca.crt, {client_certificate}");
        let yaml = format!(
            "xds_servers: [{{server_uri: 'file:.'}}]\nlisteners: [{{name: main, address: '127.0.0.1:18443', tls: {{{tls}}}}}]\n"
        );
        std::fs::write(directory.path().join("sluice.yaml"), yaml).unwrap();
    };
    let print = |options: &[&str]| {
        let fixed = ["bootstrap", "grpc", "--config", "sluice.yaml", "--ca", "certs/ca.crt"];
        run(&[&fixed, options].concat(), directory.path())
    };
    listener("trust_domain: dev.example, client_certificate: optional");
    let (code, text, errors) = print(&[]);
    assert!(
        code == 0 && text.contains("ca_certificate_file") && errors.contains("--language java"),
        "{errors}"
    );
    let (code, text, errors) = print(&["--language", "java"]);
    assert!(code == 0 && !text.contains("ca_certificate_file") && errors.contains("trustStore"), "{errors}");
    let (code, _, errors) = print(&["--language", "node"]);
    assert!(code == 64 && errors.contains("grpc-js-xds has no TLS"), "{errors}");
    let pair = ["--certificate", "certs/client/tls.crt", "--private-key", "certs/client/tls.key"];
    let (code, _, errors) = print(&[&["--language", "java"], &pair[..]].concat());
    assert!(code == 64 && errors.contains("no client certificate"), "{errors}");
    let (code, text, errors) = print(&[&["--language", "go"], &pair[..]].concat());
    assert!(code == 0 && text.contains("client/tls.key") && !errors.contains("language"), "{errors}");
}

#[test]
fn help_and_version_are_0() {
    for argument in ["--help", "--version"] {
        let (code, text, _) = run(&[argument], CHECKOUT.as_ref());
        assert_eq!((code, text.is_empty()), (0, false));
    }
}
