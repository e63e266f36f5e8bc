//! `authorization`: every way in, denials, a file of rules that changes, and `sluice check --identity`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use sluice_xds::{ApiVersion, Call, Method, Service};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::support::client::{Event, connect, node};
use crate::support::istiod;
use crate::support::relay::run;
use crate::support::{Ask, CDS, Client, ControlPlane, EDS, LDS, Relay, SDS, Setup, Variant, poll, proto};

async fn origin() -> ControlPlane {
    let origin = ControlPlane::obedient().await;
    for type_url in [CDS, EDS, LDS, SDS] {
        origin.set(type_url, "mine-1", "1");
        origin.set(type_url, "theirs-1", "canary");
    }
    origin
}

async fn relay(origin: &ControlPlane, lines: &[&str]) -> Relay {
    let setup = lines.iter().fold(Setup::of(origin.address), |setup, line| setup.line(line));
    Relay::start(setup).await
}

/// The path of every method of the discovery services: the table of services, in both versions of the API.
fn paths() -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    let aggregated =
        ["v3", "v2"].map(|api| format!("/envoy.service.discovery.{api}.AggregatedDiscoveryService/"));
    let streams = Service::all().iter().filter_map(|service| service.stream_path(sluice_xds::Variant::Delta));
    for path in streams {
        let (service, method) = path.rsplit_once('/').unwrap();
        let noun = method.strip_prefix("Delta").unwrap();
        let name = service.rsplit('.').next().unwrap();
        let services = [
            service.to_owned(),
            format!("/envoy.api.v2.{name}"),
            format!("/envoy.service.discovery.v2.{name}"),
        ];
        for service in services {
            paths.extend(["Stream", "Delta", "Fetch"].map(|call| format!("{service}/{call}{noun}")));
        }
    }
    for service in aggregated {
        paths.extend(["Stream", "Delta"].map(|call| format!("{service}{call}AggregatedResources")));
    }
    paths.retain(|path| Method::of_path(path).is_some());
    paths
}

/// Calls a method with one request, and returns the status with which the call ends.
async fn call(relay: &Relay, path: &str) -> Status {
    let method = Method::of_path(path).unwrap();
    let type_url = match method.service {
        Some(service) => service.type_url(method.api),
        None => CDS,
    };
    let ask =
        Ask { node: Some(node("client")), ..Ask::of(type_url).names(&["mine-1"]).subscribe(&["mine-1"]) };
    let mut grpc = tonic::client::Grpc::new(connect(&relay.address).await);
    grpc.ready().await.unwrap();
    let path = http::uri::PathAndQuery::try_from(path).unwrap();
    type Sotw = tonic_prost::ProstCodec<proto::DiscoveryRequest, proto::DiscoveryResponse>;
    type Delta = tonic_prost::ProstCodec<proto::DeltaDiscoveryRequest, proto::DeltaDiscoveryResponse>;
    let ended = match method.call {
        Call::Fetch => {
            let request = tonic::Request::new(proto::DiscoveryRequest::from(ask));
            grpc.unary(request, path, Sotw::default()).await.map(|_| ())
        }
        Call::Stream(sluice_xds::Variant::Sotw) => {
            let requests = tokio_stream::iter([proto::DiscoveryRequest::from(ask)]);
            let requests = tokio_stream::StreamExt::chain(requests, tokio_stream::pending());
            match grpc.streaming(tonic::Request::new(requests), path, Sotw::default()).await {
                Ok(response) => response.into_inner().message().await.map(|_| ()),
                Err(status) => Err(status),
            }
        }
        Call::Stream(sluice_xds::Variant::Delta) => {
            let requests = tokio_stream::iter([proto::DeltaDiscoveryRequest::from(ask)]);
            let requests = tokio_stream::StreamExt::chain(requests, tokio_stream::pending());
            match grpc.streaming(tonic::Request::new(requests), path, Delta::default()).await {
                Ok(response) => response.into_inner().message().await.map(|_| ()),
                Err(status) => Err(status),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), async { ended }).await.unwrap().expect_err("no answer")
}

/// AUT-1: without a rule, no method of any service, variant or version answers anything, and nothing goes upstream.
#[tokio::test]
async fn aut_1_every_method_is_denied_without_a_rule() {
    let origin = origin().await;
    let relay = relay(&origin, &["authorization: { rules: [] }"]).await;
    let paths = paths();
    let of = |api| {
        paths.iter().filter(|path| Method::of_path(path).is_some_and(|method| method.api == api)).count()
    };
    // ADS has two methods, a service without SotW one, and every other service three.
    assert_eq!(of(ApiVersion::V3), 2 + 2 + 8 * 3, "{paths:?}");
    assert!(of(ApiVersion::V2) > 15, "{paths:?}");
    for path in &paths {
        let status = call(&relay, path).await;
        assert_eq!(status.code(), Code::PermissionDenied, "{path}: {status:?}");
        assert_eq!(status.message(), "a client without a proved identity has no access here");
    }
    let rest: Vec<_> = Service::all().iter().filter_map(Service::rest_path).collect();
    assert_eq!(rest.len(), 8);
    for path in rest.iter().flat_map(|path| [path.clone(), path.replace("/v3/", "/v2/")]) {
        if Service::of_rest_path(&path).is_none() {
            continue;
        }
        let body = poll::request(Some(&node("client")), "", &["mine-1".to_owned()]);
        let (status, body) = poll::post(&relay.address, &path, &body).await.unwrap();
        assert_eq!(status, 403, "{path}: {body}");
        assert!(!body.to_string().contains("canary"), "{body}");
        assert_eq!(rest_over_http2(&relay, &path).await, 403, "{path}");
    }
    assert!(origin.log().is_empty(), "nothing goes upstream: {:?}", origin.log());
    let denied = relay.metric("sluice_authorization_denials_total", &["what=\"identity\""]).await;
    assert!(denied > paths.len() as f64, "{denied}");
    relay.logged("authorization denied a client").await;
    assert_eq!(relay.log_lines("authorization denied a client").len(), 1, "the rest is counted (AUT-13)");
    let mut health = HealthClient::new(connect(&relay.address).await);
    let service = String::new();
    health.check(HealthCheckRequest { service }).await.expect("health needs no rule");
}

async fn rest_over_http2(relay: &Relay, path: &str) -> u16 {
    let socket = tokio::net::TcpStream::connect(&relay.address).await.unwrap();
    let (send, connection) = h2::client::handshake(socket).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::post(format!("http://relay{path}"))
        .header("content-type", "application/json")
        .body(())
        .unwrap();
    let (response, mut body) = send.ready().await.unwrap().send_request(request, false).unwrap();
    body.send_data(
        json!({ "node": { "id": "client" }, "resource_names": ["mine-1"] }).to_string().into(),
        true,
    )
    .unwrap();
    let status = response.await.unwrap().status().as_u16();
    connection.abort();
    status
}

const POLICY: &str = r#"
authorization:
  rules:
    - name: beside
      match: { listeners: [main], identity: anonymous }
      node: { cluster: kit, id: { prefix: client- } }
      allow:
        - { types: [envoy.config.listener.v3.Listener], wildcard: true }
        - types:
            - envoy.config.cluster.v3.Cluster
            - envoy.config.endpoint.v3.ClusterLoadAssignment
            - envoy.extensions.transport_sockets.tls.v3.Secret
          names: [{ prefix: mine- }]
"#;

/// AUT-4, AUT-8, AUT-9, AUT-13.
#[tokio::test]
async fn aut_8_aut_9_a_client_gets_its_names_and_learns_nothing_of_others() {
    let origin = origin().await;
    let relay = relay(&origin, &[POLICY]).await;
    // AUT-4: a claim that does not hold, with the client's own value and no other.
    let mut spoofed = Client::open(&relay.address, Variant::Delta, "other-1").await;
    spoofed.want(EDS, &["mine-1"]);
    let status = spoofed.ended().await;
    assert_eq!(status.code(), Code::PermissionDenied);
    let text = "the node's id is \"other-1\", which a client without a proved identity may not say";
    assert_eq!(status.message(), text);
    for (variant, id) in [(Variant::Delta, "client-1"), (Variant::Sotw, "client-2")] {
        let mut client = Client::open(&relay.address, variant, id).await;
        client.want(EDS, &["mine-1", "theirs-1", "theirs-2"]);
        client.settle(EDS, &[("mine-1", "1")]).await;
        client.want(SDS, &["mine-1", "theirs-1"]);
        client.settle(SDS, &[("mine-1", "1")]).await;
        // AUT-5: a later node changes nothing.
        client.send(Ask { node: Some(node("other-1")), ..Ask::of(EDS) });
        client.want(LDS, &["*"]);
        client.settle(LDS, &[("mine-1", "1"), ("theirs-1", "canary")]).await;
        // AUT-9: the wildcard is denied for clusters.
        client.want(CDS, &["*"]);
        let status = client.ended().await;
        assert_eq!(status.code(), Code::PermissionDenied);
        assert!(status.message().contains("may not ask for all resources of"), "{status:?}");
    }
    let mut sotw = Client::open(&relay.address, Variant::Sotw, "client-3").await;
    sotw.want(CDS, &["mine-1", "theirs-1"]);
    assert_eq!(sotw.ended().await.code(), Code::PermissionDenied);
    let asked =
        |type_url| origin.requests(type_url).iter().any(|asked| format!("{asked:?}").contains("theirs-"));
    assert!(!asked(EDS) && !asked(SDS) && !asked(CDS), "denied names go nowhere");
    for what in ["node", "name", "wildcard"] {
        relay.metric_reaches("sluice_authorization_denials_total", &[&format!("what=\"{what}\"")], 1.0).await;
    }
    let body = poll::request(Some(&node("client-4")), "", &["theirs-1".to_owned()]);
    let (status, body) = poll::post(&relay.address, "/v3/discovery:endpoints", &body).await.unwrap();
    assert!(status == 200 && !body.to_string().contains("canary"), "{status} {body}");
    let body = poll::request(Some(&node("client-4")), "", &["theirs-1".to_owned()]);
    let (status, _) = poll::post(&relay.address, "/v3/discovery:clusters", &body).await.unwrap();
    assert_eq!(status, 403);
}

fn write(file: &Path, rules: &str) {
    let staged = file.with_extension("new");
    fs::write(&staged, rules).unwrap();
    fs::rename(&staged, file).unwrap();
}

fn rules(prefix: &str) -> String {
    format!(
        "rules:\n  - name: all\n    match: {{ identity: any }}\n    allow:\n      - types: all\n        names: [{{ prefix: {prefix} }}]\n"
    )
}

/// AUT-12: a narrowed policy ends the streams within 5 s and removes nothing; a typo changes nothing.
#[tokio::test]
async fn aut_12_a_changed_file_of_rules_judges_open_streams_again() {
    let (origin, directory) = (origin().await, tempfile::tempdir().unwrap());
    let file = directory.path().join("rules.yaml");
    write(&file, &rules("mine-"));
    let line = format!("authorization: {{ file: {:?} }}", file.display().to_string());
    let relay = relay(&origin, &[&line]).await;
    let mut clients = Vec::new();
    for connection in 0..20 {
        let channel = connect(&relay.address).await;
        // Other tests run beside this one.
        for number in 0..25 {
            let (variant, id) = (Variant::BOTH[number % 2], format!("client-{connection}-{number}"));
            let mut client = Client::on(channel.clone(), variant, Some(node(&id)));
            client.want(EDS, &["mine-1"]);
            clients.push(client);
        }
    }
    for client in &mut clients {
        client.settle(EDS, &[("mine-1", "1")]).await;
    }
    write(&file, "rules: [{ name: all }]");
    relay.logged("the last good rules stay in force").await;
    let begin = Instant::now();
    write(&file, &rules("other-"));
    for client in &mut clients {
        match client.event().await {
            Event::Answer(answer) => panic!("nothing is removed: {answer:?}"),
            Event::End(status) => assert_eq!(status.code(), Code::PermissionDenied),
        }
        assert_eq!(client.holds(EDS).len(), 1);
    }
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    relay.logged("reloaded the rules of authorization").await;
    assert_eq!(relay.warnings("the last good rules stay in force").len(), 1, "once per content");
    // A stream whose denied name is allowed again learns so.
    let mut denied = Client::open(&relay.address, Variant::Delta, "client").await;
    denied.want(EDS, &["mine-1"]);
    denied.settle(EDS, &[]).await;
    write(&file, &rules("mine-"));
    assert_eq!(denied.ended().await.code(), Code::Unavailable);
}

/// IDN-1, ISO-1, ISO-4: the kernel tells the user of a unix socket. Rules match the user, and the server reads the user
/// under a key that no client sets.
#[tokio::test]
async fn iso_4_a_server_reads_the_verified_user_of_a_unix_socket() {
    let (origin, uid) =
        (origin().await, std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap()));
    let rule = |uid: u32| {
        format!(
            "{{ name: u{uid}, match: {{ identity: {{ unix_uid: [{uid}] }} }}, allow: [{{ types: all, wildcard: true }}] }}"
        )
    };
    let classes = "node_classes: [{ match: { names: old }, split_by: { cluster: true, identity: full }, \
                   identity_metadata: WHO }]";
    let setup = |uid| {
        let line = format!("authorization: {{ rules: [{}] }}", rule(uid));
        Setup { unix: true, ..Setup::of(origin.address).line(classes).line(&line) }
    };
    let relay = Relay::start(setup(uid)).await;
    let spoofed = proto::Node { metadata: Some(istiod::metadata(&[("WHO", "unix:4711")])), ..node("client") };
    let mut client = Client::on(connect(&relay.address).await, Variant::Delta, Some(spoofed));
    client.want(EDS, &["mine-1"]);
    client.settle(EDS, &[("mine-1", "1")]).await;
    let asked = origin.requests(EDS);
    let told = asked.iter().find_map(|asked| asked.ask.node.clone()).expect("the first request has a node");
    assert_eq!(istiod::metadata_of(&told).get("WHO"), Some(&format!("unix:{uid}")));
    // Another user has no rule.
    let relay = Relay::start(setup(uid + 1)).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "client").await;
    client.want(EDS, &["mine-1"]);
    let status = client.ended().await;
    assert_eq!(status.message(), format!("unix user {uid} has no access here"));
}

/// AUT-15: a report counts and warns, and denies nothing.
#[tokio::test]
async fn aut_15_a_report_denies_nothing() {
    let origin = origin().await;
    let relay = relay(&origin, &["authorization: { mode: report, rules: [] }"]).await;
    relay.logged("nothing is denied").await;
    assert_eq!(relay.warnings("nothing is denied").len(), 1);
    let mut client = Client::open(&relay.address, Variant::Delta, "client").await;
    client.want(EDS, &["theirs-1"]);
    client.settle(EDS, &[("theirs-1", "canary")]).await;
    relay.metric_reaches("sluice_authorization_denials_total", &["what=\"identity\""], 1.0).await;
    relay.logged("authorization would deny a client").await;
}

/// AUT-6, AUT-15.
#[test]
fn aut_6_aut_15_check_explains_a_decision() {
    let directory = tempfile::tempdir().unwrap();
    let config = r#"
xds_servers: [{ server_uri: "localhost:1", channel_creds: [{ type: insecure }] }]
listeners: [{ name: mesh, address: "127.0.0.1:1" }]
node_classes:
  - match: { names: old }
    split_by: { cluster: true, metadata: [NAMESPACE, REVISION] }
authorization:
  rules:
    - { name: quarantined, match: { identity: "spiffe://prod.example/ns/old/sa/{sa}" }, deny: true }
    - name: sidecars
      match: { listeners: [mesh], identity: "spiffe://prod.example/ns/{ns}/sa/{sa}" }
      node: { id: { prefix: "{sa}." }, metadata: [{ path: NAMESPACE, exact: "{ns}" }] }
      allow:
        - { types: all, wildcard: true }
        - types: [envoy.extensions.transport_sockets.tls.v3.Secret]
          names: [{ prefix: "kubernetes://{ns}/" }]
"#;
    fs::write(directory.path().join("sluice.yaml"), config).unwrap();
    let node = json!({ "id": "web.1", "metadata": { "NAMESPACE": "shop" } });
    fs::write(directory.path().join("node.json"), node.to_string()).unwrap();
    let check = |arguments: &[&str]| {
        let all = [&["check", "--config", "sluice.yaml"], arguments].concat();
        let (code, out, error) = run(&all, directory.path());
        assert_eq!(code, 0, "{error}");
        // The lines about node classes and servers are the business of another test.
        let is_decision = |line: &&str| line.starts_with("listener ") || line.starts_with([' ', '"']);
        out.lines().filter(is_decision).collect::<Vec<_>>().join("\n")
    };
    let unbound = "listener mesh: node_classes looks at cluster, metadata REVISION, and no rule of authorization \
                   binds these claims";
    assert_eq!(check(&[]), unbound);
    let shop = "spiffe://prod.example/ns/shop/sa/web";
    let secret = "envoy.extensions.transport_sockets.tls.v3.Secret";
    let asks =
        ["--identity", shop, "--node", "node.json", "--type", secret, "--name", "kubernetes://cart/tls"];
    assert_eq!(
        check(&asks),
        format!(
            "{unbound}\nlistener mesh, {shop}: rule 2 \"sidecars\"\n  all types but Secrets: every name, the wildcard\n  \
             Secret: names \"kubernetes://shop/\"…\n\"kubernetes://cart/tls\" of {secret}: denied"
        )
    );
    let denied = check(&["--identity", "spiffe://prod.example/ns/old/sa/web"]);
    let rule = "listener mesh, spiffe://prod.example/ns/old/sa/web: rule 1 \"quarantined\"";
    let reads = "  denied; the client reads: spiffe://prod.example/ns/old/sa/web has no access here";
    assert_eq!(denied, format!("{unbound}\n{rule}\n{reads}"));
    assert!(check(&["--identity", "anonymous"]).contains("anonymous: no rule"));
    let (code, _, error) = run(&["check", "--config", "sluice.yaml", "--identity", "x"], directory.path());
    assert_eq!(code, 64);
    assert!(error.contains("--identity: x is no"), "{error}");
}
