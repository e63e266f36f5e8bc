//! Several control planes behind one relay, as an operator configures them: directories, since those need no
//! other program.

use std::fs;
use std::path::Path;

use crate::support::relay::run;
use crate::support::{CDS, Client, EDS, Relay, Setup, Variant};

const ASSIGNMENT: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";

fn clusters(directory: &Path, names: &[&str]) {
    let mut yaml = format!("type_url: {CDS}\nresources:\n");
    for name in names {
        yaml += &format!("  - {{ \"@type\": {CDS}, name: \"{name}\", connect_timeout: 1s }}\n");
    }
    fs::write(directory.join("clusters.yaml"), yaml).unwrap();
}

fn endpoints(directory: &Path, names: &[&str]) {
    let mut yaml = format!("type_url: {EDS}\nresources:\n");
    for name in names {
        yaml += &format!("  - {{ \"@type\": {EDS}, cluster_name: \"{name}\" }}\n");
    }
    fs::write(directory.join("endpoints.yaml"), yaml).unwrap();
}

fn server(directory: &Path) -> String {
    format!("{{ xds_servers: [ {{ server_uri: \"file:{}\" }} ] }}", directory.display())
}

/// Clusters from one directory, endpoints from a second, an authority from a third; all on one stream.
#[tokio::test]
async fn one_stream_carries_what_three_directories_have() {
    let [main, eds, mesh] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let theirs = format!("xdstp://mesh.example/{ASSIGNMENT}/c");
    clusters(main.path(), &["c"]);
    endpoints(main.path(), &["never asked for"]);
    endpoints(eds.path(), &["c"]);
    endpoints(mesh.path(), &[&theirs]);
    let setup = Setup::of(format!("file:{}", main.path().display()))
        .line(&format!("types: {{ {ASSIGNMENT}: {} }}", server(eds.path())))
        .line(&format!("authorities: {{ mesh.example: {} }}", server(mesh.path())));
    let relay = Relay::start(setup).await;
    for variant in Variant::BOTH {
        let mut client = Client::open(&relay.address, variant, "one").await;
        client.want(CDS, &["*"]);
        assert_eq!(client.take(CDS).await.names(), ["c"]);
        client.want(EDS, &["c", &theirs]);
        while client.holds(EDS).len() < 2 {
            client.take(EDS).await;
        }
        clusters(main.path(), &["c", "d"]);
        while client.holds(CDS).len() < 2 {
            client.take(CDS).await;
        }
        clusters(main.path(), &["c"]);
        while client.holds(CDS).len() > 1 {
            client.take(CDS).await;
        }
    }
    let lists =
        ["xds_servers", "types[envoy.config.endpoint.v3.ClusterLoadAssignment]", "authorities[mesh.example]"];
    for list in lists {
        relay.logged(&format!("list={list}")).await;
    }
}

/// The relay loads every directory before it is ready, and names a directory that fails to load.
#[tokio::test]
async fn a_directory_that_is_not_there_stops_the_start() {
    let [directory, main] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    clusters(main.path(), &["c"]);
    let missing = main.path().join("missing");
    let yaml = format!(
        "xds_servers: [ {{ server_uri: \"file:{}\" }} ]\nauthorities: {{ mesh.example: {} }}\n\
         listeners: [ {{ name: main, address: \"unix:{}\" }} ]\nadmin: {{ address: \"unix:{}\" }}\n",
        main.path().display(),
        server(&missing),
        directory.path().join("xds.sock").display(),
        directory.path().join("admin.sock").display(),
    );
    fs::write(directory.path().join("sluice.yaml"), yaml).unwrap();
    let (code, _, errors) = run(&["serve", "--config", "sluice.yaml"], directory.path());
    assert_eq!(code, 69, "{errors}");
    assert!(errors.contains(&missing.display().to_string()), "{errors}");
}

#[test]
fn check_says_who_is_asked_for_what() {
    let directory = tempfile::tempdir().unwrap();
    let yaml = "xds_servers: [ { server_uri: \"file:main\" } ]\nauthorities: { mesh.example: {} }\n\
                types: { envoy.config.cluster.v3.Cluster: { xds_servers: [ { server_uri: \"file:clusters\" } ] } }\n";
    fs::write(directory.path().join("sluice.yaml"), yaml).unwrap();
    fs::write(directory.path().join("node.json"), "{\"id\": \"one\"}").unwrap();
    for served in ["main", "clusters"] {
        fs::create_dir(directory.path().join(served)).unwrap();
        fs::write(directory.path().join(served).join("none.yaml"), format!("type_url: {CDS}\n")).unwrap();
    }
    let (code, text, errors) =
        run(&["check", "--config", "sluice.yaml", "--node", "node.json"], directory.path());
    assert_eq!(code, 0, "{errors}");
    for line in [
        "xds_servers: old-style names of all other types: file:main\n",
        "authorities[mesh.example]: names beginning with xdstp://mesh.example/: file:main\n",
        "types[envoy.config.cluster.v3.Cluster]: old-style names of Cluster: file:clusters\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
}
