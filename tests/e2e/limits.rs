//! Limits end the offender, and no other peer.

use tonic::Code;

use crate::support::{Ask, CDS, Client, ControlPlane, EDS, Relay, Setup, Variant};

async fn limited(limits: &str) -> (ControlPlane, Relay) {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    let relay = Relay::start(Setup::of(origin.address).line(&format!("limits: {limits}"))).await;
    (origin, relay)
}

/// A client beside the offender, served before and after the offence.
async fn neighbour(relay: &Relay) -> Client {
    let mut client = Client::open(&relay.address, Variant::Sotw, "neighbour").await;
    client.want(CDS, &["*"]);
    client.take(CDS).await;
    client
}

/// SUB-20: the number of names in a request.
#[tokio::test]
async fn too_many_names_in_a_request() {
    let (_origin, relay) = limited("{ names_per_request: 10 }").await;
    let mut good = neighbour(&relay).await;
    for variant in Variant::BOTH {
        let mut client = Client::open(&relay.address, variant, "greedy").await;
        let names: Vec<String> = (0..11).map(|number| format!("e-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        client.want(EDS, &names);
        assert_eq!(client.ended().await.code(), Code::ResourceExhausted, "{variant:?}");
    }
    good.quiet().await;
}

#[tokio::test]
async fn too_many_names_on_a_stream() {
    let (_origin, relay) = limited("{ names_per_request: 10, names_per_stream: 15 }").await;
    let mut client = Client::open(&relay.address, Variant::Delta, "greedy").await;
    for batch in 0..2 {
        let names: Vec<String> = (0..10).map(|number| format!("e-{batch}-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        client.send(Ask::of(EDS).subscribe(&names));
    }
    assert_eq!(client.ended().await.code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn too_large_a_request() {
    let (_origin, relay) = limited("{ request_bytes: 64KiB, node_bytes: 64KiB }").await;
    let mut good = neighbour(&relay).await;
    for variant in Variant::BOTH {
        let mut client = Client::open(&relay.address, variant, "large").await;
        let long = "n".repeat(100_000);
        client.want(EDS, &[&long]);
        assert_eq!(client.ended().await.code(), Code::ResourceExhausted, "{variant:?}");
    }
    good.quiet().await;
}

#[tokio::test]
async fn too_long_a_name() {
    let (_origin, relay) = limited("{ name_bytes: 100 }").await;
    let mut client = Client::open(&relay.address, Variant::Delta, "long").await;
    client.want(EDS, &[&"n".repeat(101)]);
    let code = client.ended().await.code();
    assert!(matches!(code, Code::ResourceExhausted | Code::InvalidArgument), "{code:?}");
}

#[tokio::test]
async fn too_many_types_on_a_stream() {
    let (_origin, relay) = limited("{ types_per_stream: 3 }").await;
    let mut client = Client::open(&relay.address, Variant::Delta, "curious").await;
    for number in 0..4 {
        client.want(&format!("type.googleapis.com/acme.Type{number}"), &["a"]);
    }
    assert_eq!(client.ended().await.code(), Code::ResourceExhausted);
}

/// RLY-14: more classes than allowed are refused, not merged.
#[tokio::test]
async fn too_many_node_classes() {
    use crate::support::client::{connect, node};
    use crate::support::proto::Node;
    let (_origin, relay) = limited("{ node_classes: 2 }").await;
    let mut clients = Vec::new();
    for cluster in ["one", "two"] {
        let node = Node { cluster: cluster.to_owned(), ..node("client") };
        let mut client = Client::on(connect(&relay.address).await, Variant::Delta, Some(node));
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        clients.push(client);
    }
    let third = Node { cluster: "three".to_owned(), ..node("client") };
    let mut client = Client::on(connect(&relay.address).await, Variant::Delta, Some(third));
    client.want(CDS, &["*"]);
    assert_eq!(client.ended().await.code(), Code::ResourceExhausted);
}

/// A soft limit of open files below the hard limit is raised, and logged.
#[tokio::test]
async fn the_limit_of_open_files_is_raised() {
    let directory = tempfile::tempdir().unwrap();
    let (_soft, hard) = {
        let (_origin, relay) = limited("{}").await;
        relay.file_limit()
    };
    let origin = ControlPlane::obedient().await;
    let admin = format!("127.0.0.1:{}", crate::support::net::free_port());
    let address = format!("127.0.0.1:{}", crate::support::net::free_port());
    let yaml = format!(
        "xds_servers: [ {{ server_uri: \"{}\", channel_creds: [ {{ type: insecure }} ] }} ]\n\
         listeners: [ {{ name: main, address: \"{address}\" }} ]\nadmin: {{ address: \"{admin}\" }}\n",
        origin.address
    );
    let config = directory.path().join("sluice.yaml");
    std::fs::write(&config, yaml).unwrap();
    let mut command = std::process::Command::new("bash");
    let script = format!(
        "ulimit -S -n 256; exec {} serve --config {}",
        crate::support::relay::BINARY,
        config.display()
    );
    command.args(["-c", &script]);
    let mut relay = Relay::spawn(command, directory, address, admin);
    relay.ready().await;
    assert_eq!(relay.file_limit().0, hard);
    relay.logged("256").await;
}
