//! A relay over files: the quickstart, saves in place, renames over a file, a unix socket.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::support::control_plane::eventually;
use crate::support::relay::BINARY;
use crate::support::{CDS, Client, EDS, LDS, RDS, Relay, Setup, Variant};

fn clusters(names: &[(&str, &str)]) -> String {
    let mut yaml = format!("type_url: {CDS}\nresources:\n");
    for (name, timeout) in names {
        yaml += &format!("  - {{ \"@type\": {CDS}, name: {name}, connect_timeout: {timeout} }}\n");
    }
    yaml
}

async fn over_files(directory: &Path) -> Relay {
    Relay::start(Setup::of(format!("file:{}", directory.display()))).await
}

/// A copy of `config/`, run as the README says, with other ports.
#[tokio::test]
async fn the_quickstart_needs_no_other_program() {
    let directory = tempfile::tempdir().unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    fs::create_dir_all(directory.path().join("config/quickstart")).unwrap();
    for entry in fs::read_dir(from.join("quickstart")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        fs::copy(&path, directory.path().join("config/quickstart").join(name)).unwrap();
    }
    let (xds, admin) = (crate::support::net::free_port(), crate::support::net::free_port());
    let yaml = fs::read_to_string(from.join("sluice.yaml")).unwrap();
    assert!(yaml.contains("127.0.0.1:18000") && yaml.contains("127.0.0.1:19000"), "the ports of the README");
    let yaml = yaml.replace("18000", &xds.to_string()).replace("19000", &admin.to_string());
    fs::write(directory.path().join("config/sluice.yaml"), yaml).unwrap();
    let mut command = Command::new(BINARY);
    command.arg("serve").current_dir(directory.path());
    let (address, admin) = (format!("127.0.0.1:{xds}"), format!("127.0.0.1:{admin}"));
    let mut relay = Relay::spawn(command, directory, address, admin);
    relay.ready().await;
    for variant in Variant::BOTH {
        let mut client = Client::open(&relay.address, variant, "one").await;
        for type_url in [CDS, LDS] {
            client.want(type_url, &["*"]);
            assert!(!client.take(type_url).await.items.is_empty());
        }
        client.want(EDS, &["backend"]);
        assert_eq!(client.take(EDS).await.names(), ["backend"]);
        client.want(RDS, &["main"]);
        assert_eq!(client.take(RDS).await.names(), ["main"]);
    }
}

#[tokio::test]
async fn a_save_in_place_and_a_rename_reach_a_client() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("clusters.yaml");
    fs::write(&file, clusters(&[("a", "1s")])).unwrap();
    let relay = over_files(directory.path()).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["*"]);
    let first = client.take(CDS).await;
    assert_eq!(first.names(), ["a"]);
    // Saved in place.
    fs::write(&file, clusters(&[("a", "2s"), ("b", "1s")])).unwrap();
    while client.holds(CDS).len() < 2 || client.versions(CDS)["a"] == first.items[0].version {
        client.take(CDS).await;
    }
    // Renamed over the file.
    let next = directory.path().join(".clusters.yaml.next");
    fs::write(&next, clusters(&[("b", "1s"), ("c", "1s")])).unwrap();
    fs::rename(&next, &file).unwrap();
    while client.holds(CDS).keys().collect::<Vec<_>>() != ["b", "c"] {
        client.take(CDS).await;
    }
    // Writing the same bytes again is no change.
    fs::write(&file, clusters(&[("b", "1s"), ("c", "1s")])).unwrap();
    client.silence(std::time::Duration::from_millis(600)).await;
}

#[tokio::test]
async fn a_torn_file_changes_nothing_and_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("clusters.yaml");
    fs::write(&file, clusters(&[("a", "1s"), ("b", "1s")])).unwrap();
    let relay = over_files(directory.path()).await;
    let mut client = Client::open(&relay.address, Variant::Sotw, "one").await;
    client.want(CDS, &["*"]);
    assert_eq!(client.take(CDS).await.names(), ["a", "b"]);
    fs::write(&file, "type_url: type.googleapis.com/envoy.config.cluster.v3.Cluster\nresources: [ {")
        .unwrap();
    client.silence(std::time::Duration::from_millis(600)).await;
    eventually("the warning", || async { !relay.warnings("clusters.yaml").is_empty() }).await;
    // I14: the served state differs from the state on disk.
    let server = format!("file:{}", directory.path().display());
    relay.is_stale(&server).await;
    fs::write(&file, clusters(&[("a", "1s")])).unwrap();
    assert_eq!(client.take(CDS).await.names(), ["a"]);
    relay.is_fresh(&server).await;
}

/// FIL-2: a ConfigMap changes all its files at once, through the rename of a symlink.
#[tokio::test]
async fn fil_2_a_kubernetes_volume_changes_in_one_step() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let generation = |name: &str, timeout: &str| {
        fs::create_dir(path(name)).unwrap();
        for cluster in ["a", "b"] {
            fs::write(path(name).join(format!("{cluster}.yaml")), clusters(&[(cluster, timeout)])).unwrap();
        }
        symlink(name, path("..data_tmp")).unwrap();
        fs::rename(path("..data_tmp"), path("..data")).unwrap();
    };
    generation("..1", "1s");
    for file in ["a.yaml", "b.yaml"] {
        symlink(Path::new("..data").join(file), path(file)).unwrap();
    }
    let relay = over_files(directory.path()).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["*"]);
    assert_eq!(client.take(CDS).await.names(), ["a", "b"]);
    for (name, timeout) in [("..2", "2s"), ("..3", "3s")] {
        generation(name, timeout);
        assert_eq!(client.take(CDS).await.names(), ["a", "b"], "both in one response");
    }
    assert_eq!(relay.log_lines("WARN"), [] as [String; 0]);
}

#[tokio::test]
async fn a_unix_socket_serves() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("clusters.yaml"), clusters(&[("a", "1s")])).unwrap();
    let mut setup = Setup::of(format!("file:{}", directory.path().display()));
    setup.unix = true;
    let relay = Relay::start(setup).await;
    for variant in Variant::BOTH {
        let mut client = Client::open(&relay.address, variant, "one").await;
        client.want(CDS, &["*"]);
        assert_eq!(client.take(CDS).await.names(), ["a"]);
    }
}
