//! Credentials for control planes, from an operator's view: files that cannot be used, and metadata of the relay alone.

use std::fs;
use std::path::Path;

use crate::support::net::free_port;
use crate::support::relay::run;
use crate::support::{CDS, Client, ControlPlane, Relay, Setup, Variant};

/// A configuration with one server over TLS.
fn write(directory: &Path, config: &str, more: &str) {
    let yaml = format!(
        "xds_servers:\n  - server_uri: \"127.0.0.1:1\"\n    channel_creds: [ {{ type: tls, config: {{ {config} }} }} ]\n    \
         {more}\nlisteners: [ {{ name: main, address: \"127.0.0.1:{}\" }} ]\nadmin: {{ address: \"127.0.0.1:{}\" }}\n",
        free_port(),
        free_port()
    );
    fs::write(directory.join("sluice.yaml"), yaml).unwrap();
}

/// The errors of `serve`, which must refuse the start as a fault of the configuration.
fn refused(directory: &Path) -> String {
    let (code, _, errors) = run(&["serve", "--config", "sluice.yaml"], directory);
    assert_eq!(code, 64, "{errors}");
    errors
}

/// CRT-7, TLS-8: each file of a server that cannot be used refuses the start, with its key and its path.
#[test]
fn crt_7_bad_files_of_a_server_refuse_the_start_with_exit_code_64() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let (code, _, errors) = run(&["dev-certs", "certs"], directory.path());
    assert_eq!(code, 0, "{errors}");
    let torn = fs::read_to_string(at("certs/ca.crt")).unwrap();
    fs::write(at("torn.crt"), &torn[..torn.len() / 2]).unwrap();
    fs::write(at("empty.crt"), "").unwrap();
    let leaf = fs::read_to_string(at("certs/client/tls.crt")).unwrap();
    fs::write(at("mixed.crt"), format!("{}{leaf}", fs::read_to_string(at("certs/ca.crt")).unwrap())).unwrap();
    let private_key = fs::read_to_string(at("certs/relay/tls.key")).unwrap();
    let secret = private_key.lines().nth(1).unwrap();
    fs::write(at("certs/client/other.key"), &private_key).unwrap();
    let client = "certificate_file: certs/client/tls.crt";
    let key = "xds_servers[0].channel_creds[tls].config.";
    for (config, more, named) in [
        ("ca_certificate_file: missing.crt".to_owned(), "", [key, "ca_certificate_file", "missing.crt"]),
        ("ca_certificate_file: torn.crt".to_owned(), "", [key, "ca_certificate_file", "torn.crt"]),
        ("ca_certificate_file: empty.crt".to_owned(), "", [key, "ca_certificate_file", "empty.crt"]),
        (
            "ca_certificate_file: mixed.crt".to_owned(),
            "",
            [key, "ca_certificate_file", "mixed.crt, PEM block 2 of 2: not an authority (basic constraints"],
        ),
        (
            format!("{client}, private_key_file: certs/client/other.key"),
            "",
            [key, "private_key_file", "not the key of the certificate"],
        ),
        (
            format!("{client}, private_key_file: certs/client/tls.crt"),
            "",
            [key, "private_key_file", "certs/client/tls.crt"],
        ),
        (
            "spiffe_trust_bundle_map_file: torn.crt".to_owned(),
            "tls: { match_sans: [{ spiffe: { prefix: \"spiffe://a/\" } }] }",
            [key, "spiffe_trust_bundle_map_file", "torn.crt"],
        ),
    ] {
        write(directory.path(), &config, more);
        let errors = refused(directory.path());
        for named in named {
            assert!(errors.contains(named), "{config} does not name {named}:\n{errors}");
        }
        assert!(!errors.contains(secret), "no content of a file is shown (TLS-14): {errors}");
    }
}

/// With `--keep-authority` the next pairs have the same authority; otherwise no key of an authority stays, and the next
/// call makes another one.
#[test]
fn dev_certs_keep_their_authority_on_demand() {
    let directory = tempfile::tempdir().unwrap();
    let read = |name: &str| fs::read_to_string(directory.path().join("certs").join(name)).unwrap_or_default();
    let make = |more: &[&str]| {
        let (code, shown, errors) = run(&[&["dev-certs", "certs"], more].concat(), directory.path());
        assert_eq!(code, 0, "{errors}");
        assert!(shown.contains("for trying out only"), "{shown}");
        (read("ca.crt"), read("relay/tls.crt"))
    };
    let (first, _) = make(&[]);
    assert_eq!(read("ca.key"), "");
    let (second, leaf) = make(&["--keep-authority"]);
    assert_ne!(first, second);
    let (third, other) = make(&["--keep-authority"]);
    assert!(second == third && leaf != other);
    fs::write(directory.path().join("certs/ca.key"), "no key").unwrap();
    let (code, _, errors) = run(&["dev-certs", "certs", "--keep-authority"], directory.path());
    assert!(code == 64 && errors.contains("ca.key"), "{code} {errors}");
}

/// IDN-8: without authorities on the host, a server over TLS refuses the start.
#[test]
fn idn_8_a_host_without_authorities_refuses_the_start() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("none.pem"), "").unwrap();
    write(directory.path(), "", "");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["serve", "--config", "sluice.yaml"])
        .current_dir(directory.path())
        .env("SSL_CERT_FILE", "none.pem")
        .env_remove("SSL_CERT_DIR")
        .output()
        .unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(64), "{errors}");
    assert!(errors.contains("expected ca_certificate_file, SSL_CERT_FILE"), "{errors}");
}

/// IDN-12: the metadata that the control plane sees are the relay's own, under a key that a client sends, too.
#[tokio::test]
async fn idn_12_metadata_of_a_client_is_never_passed_on() {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    let line = "initial_metadata: [ { key: authorization, value: of-the-relay } ]";
    for (setup, expected) in [
        (Setup::of(origin.address), None),
        (Setup::of(origin.address).server_line(line), Some("of-the-relay")),
    ] {
        let seen = origin.headers().len();
        let relay = Relay::start(setup).await;
        let mut client = Client::with_token(&relay.address, Variant::Delta, "canary-of-the-client").await;
        client.want(CDS, &["a"]);
        client.settle(CDS, &[("a", "1")]).await;
        let headers = origin.headers().split_off(seen);
        assert!(!headers.is_empty());
        for headers in headers {
            assert_eq!(headers.get("authorization").map(String::as_str), expected, "{headers:?}");
        }
        for path in ["/sources", "/clients"] {
            let (_, shown) = relay.get(path).await;
            assert!(!shown.contains("canary") && !shown.contains("of-the-relay"), "{path}: {shown}");
        }
        assert!(!relay.log().contains("canary") && !relay.log().contains("of-the-relay"));
    }
}
