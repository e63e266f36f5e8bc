//! Isolation of identities through the built binary (ISO-3): random clients with certificates, and a canary in each
//! resource. The rules change, the relay restarts, and its server fails over. `engine/downstream/tests/isolation.rs` has
//! a million probes without sockets.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use sluice::trust::issue::{Authority, Leaf};
use sluice::trust::provider::provider;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};

use crate::support::client::{Event, node};
use crate::support::net::free_port;
use crate::support::{Ask, Client, ControlPlane, EDS, Relay, SDS, Variant, istiod, words};

pub const DAY: Duration = Duration::from_secs(86_400);
const HOST: &str = "relay.example";
/// The namespace of each identity; the last one has no rule.
const NAMESPACES: [&str; 4] = ["a", "b", "ab", "nobody"];
const NAMES: [&str; 7] = ["a/x", "a/y", "b/x", "b/y", "ab/x", "nobody/x", "a"];
const IDS: [&str; 3] = ["one", "two", "three"];
/// Open streams, each of which keeps receiving while others are probed.
const LIVE_MAX: usize = 40;

fn uri(namespace: &str) -> String {
    format!("spiffe://prod.example/ns/{namespace}")
}

/// A server whose resources say for whom they are made: `planted:IDENTITY:NAME`.
struct Origin {
    address: String,
    plane: Arc<ControlPlane>,
    task: AbortHandle,
}

impl Origin {
    async fn start() -> Origin {
        let plane = Arc::new(ControlPlane::scripted().await);
        let task = tokio::spawn(answer(plane.clone())).abort_handle();
        Origin { address: plane.address.to_string(), plane, task }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(plane: Arc<ControlPlane>) {
    let mut owners: BTreeMap<u64, String> = BTreeMap::new();
    let mut read = 0;
    loop {
        let news = plane.until(|| Some(plane.log().split_off(read)).filter(|log| !log.is_empty())).await;
        read += news.len();
        for asked in news {
            if let Some(node) = &asked.ask.node {
                let owner = istiod::metadata_of(node).remove("WHO").unwrap_or_default();
                owners.insert(asked.stream, owner);
            }
            let owner = &owners[&asked.stream];
            let item = |name: &String| {
                words::Item::new(&asked.ask.type_url, name, "1", &format!("planted:{owner}:{name}"))
            };
            let items: Vec<_> = asked.ask.subscribe.iter().map(item).collect();
            if !items.is_empty() && plane.is_live(asked.stream) {
                plane.answer(&asked, "1", items, &[]);
            }
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// The certificates of a run.
pub struct Trust {
    pub authority: Authority,
}

impl Trust {
    pub fn write(&self, directory: &Path, now: SystemTime) {
        let leaf = Leaf { hosts: &[HOST], is_server: true, ..Leaf::default() };
        let own = self.authority.issue(&leaf, DAY, now).unwrap();
        std::fs::write(directory.join("tls.crt"), own.certificate).unwrap();
        std::fs::write(directory.join("tls.key"), own.private_key).unwrap();
        std::fs::write(directory.join("ca.crt"), self.authority.pem()).unwrap();
    }

    fn client(&self, namespace: &str, now: SystemTime) -> Arc<ClientConfig> {
        self.issue(&Leaf { uris: &[&uri(namespace)], is_client: true, ..Leaf::default() }, now)
    }

    /// TLS of a client with this certificate.
    pub fn issue(&self, leaf: &Leaf<'_>, now: SystemTime) -> Arc<ClientConfig> {
        let issued = self.authority.issue(leaf, DAY, now).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(issued.private_key.as_bytes()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.pem().as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.unwrap().with_root_certificates(roots);
        let mut config = builder.with_client_auth_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    }
}

pub async fn connect(address: &str, config: Arc<ClientConfig>) -> Channel {
    let address = address.to_owned();
    let connector = tower::service_fn(move |_: http::Uri| {
        let (address, connector) = (address.clone(), TlsConnector::from(config.clone()));
        async move {
            let socket = TcpStream::connect(address).await?;
            let name = ServerName::try_from(HOST).unwrap();
            connector.connect(name, socket).await.map(TokioIo::new)
        }
    });
    // The scheme says nothing about the connection, as the connector is ours.
    Endpoint::from_static("http://relay.example").connect_with_connector(connector).await.unwrap()
}

/// The second of two policies takes `a/y` from namespace `a`.
fn rules(policy: usize) -> String {
    let allow = |name: &str| format!("allow: [{{ types: [{SDS}, {EDS}], names: [{{ {name} }}] }}]");
    let less =
        format!("  - {{ name: less, match: {{ identity: {:?} }}, {} }}\n", uri("a"), allow("exact: a/x"));
    let nobody = format!("  - {{ name: nobody, match: {{ identity: {:?} }}, deny: true }}\n", uri("nobody"));
    let fleet = format!(
        "  - {{ name: fleet, match: {{ identity: {:?} }}, {} }}\n",
        uri("{ns}"),
        allow("prefix: \"{ns}/\"")
    );
    format!("rules:\n{nobody}{}{fleet}", if policy == 1 { &less } else { "" })
}

/// The oracle, without patterns and templates.
fn is_allowed(policy: usize, namespace: &str, name: &str) -> bool {
    match (policy, namespace) {
        (_, "nobody") => false,
        (1, "a") => name == "a/x",
        _ => name.strip_prefix(namespace).is_some_and(|rest| rest.starts_with('/')),
    }
}

/// A probing stream.
struct Probe {
    client: Client,
    namespace: &'static str,
}

struct World {
    random: Random,
    directory: tempfile::TempDir,
    configs: BTreeMap<&'static str, Arc<ClientConfig>>,
    relay: Relay,
    channels: BTreeMap<&'static str, Channel>,
    policy: usize,
    live: Vec<Probe>,
    /// Canaries that reached their owners.
    read: usize,
}

/// Starts the relay on the files of a directory.
pub async fn relay(directory: &Path) -> Relay {
    let (address, admin) = (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
    let place = std::fs::read_to_string(directory.join("template.yaml")).unwrap();
    let yaml = place.replace("ADDRESS", &address).replace("ADMIN", &admin);
    std::fs::write(directory.join("sluice.yaml"), yaml).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.args(["serve", "--config"]).arg(directory.join("sluice.yaml"));
    let mut relay = Relay::spawn(command, tempfile::tempdir().unwrap(), address, admin);
    relay.ready().await;
    relay
}

impl World {
    async fn new(origins: &[Origin]) -> World {
        let directory = tempfile::tempdir().unwrap();
        let now = sluice::telemetry::wall_now();
        let trust = Trust { authority: Authority::new("prod", DAY, now).unwrap() };
        trust.write(directory.path(), now);
        let server = |origin: &Origin| {
            format!(
                "  - {{ server_uri: \"{}\", channel_creds: [{{ type: insecure }}], api_type: AGGREGATED_DELTA_GRPC, \
                 resource_timeout: 1s }}\n",
                origin.address
            )
        };
        let servers: String = origins.iter().map(server).collect();
        let template = format!(
            "xds_servers:\n{servers}listeners:\n  - {{ name: main, address: ADDRESS, tls: {{ certificates: [{{ \
             certificate_file: tls.crt, private_key_file: tls.key }}], ca_certificate_file: ca.crt, trust_domain: \
             prod.example }} }}\nadmin: {{ address: ADMIN }}\nauthorization: {{ file: rules.yaml }}\nnode_classes: [{{ \
             match: {{ names: old }}, split_by: {{ cluster: true, identity: full }}, identity_metadata: WHO }}]\n\
             checkpoint: {{ directory: kept, interval: 100ms }}\ndrain: 1s\nfallback: {{ resolve_timeout: 1s, hold_down: \
             0s }}\n"
        );
        std::fs::write(directory.path().join("template.yaml"), template).unwrap();
        std::fs::write(directory.path().join("rules.yaml"), rules(0)).unwrap();
        let configs = NAMESPACES.map(|namespace| (namespace, trust.client(namespace, now))).into();
        let relay = relay(directory.path()).await;
        let mut world = World {
            random: Random(20_261_122),
            directory,
            configs,
            relay,
            channels: BTreeMap::new(),
            policy: 0,
            live: Vec::new(),
            read: 0,
        };
        world.connect().await;
        world
    }

    async fn connect(&mut self) {
        for (namespace, config) in &self.configs {
            let channel = connect(&self.relay.address, config.clone()).await;
            self.channels.insert(*namespace, channel);
        }
    }

    /// One client asks for random names. It gets each allowed name, and never anything of others.
    async fn probe(&mut self) {
        let namespace = self.random.pick(&NAMESPACES);
        let variant = self.random.pick(&Variant::BOTH);
        let type_url = self.random.pick(&[SDS, EDS]);
        let mut names: Vec<&str> = (0..=self.random.below(3)).map(|_| self.random.pick(&NAMES)).collect();
        names.sort_unstable();
        names.dedup();
        // The claims of the node are those of another identity.
        let claimed = uri(self.random.pick(&NAMESPACES));
        let node = crate::support::proto::Node {
            metadata: Some(istiod::metadata(&[("WHO", &claimed)])),
            ..node(self.random.pick(&IDS))
        };
        let client = Client::on(self.channels[namespace].clone(), variant, Some(node));
        let mut probe = Probe { client, namespace };
        probe.client.send(Ask::of(type_url).names(&names).subscribe(&names));
        let allowed: Vec<&str> =
            names.into_iter().filter(|name| is_allowed(self.policy, namespace, name)).collect();
        let mut missing = allowed.clone();
        while !missing.is_empty() {
            let event = probe.client.event().await;
            let came = self.judge(&mut probe, &event);
            missing.retain(|name| !came.contains(&(*name).to_owned()));
        }
        self.live.push(probe);
        if self.live.len() > LIVE_MAX {
            let at = self.random.below(self.live.len());
            let probe = self.live.swap_remove(at);
            self.close(probe);
        }
    }

    /// Reads the remaining events of a stream.
    fn close(&mut self, mut probe: Probe) {
        while let Some(event) = probe.client.try_event() {
            self.judge(&mut probe, &event);
        }
    }

    /// The names that came. Every canary must be the client's own.
    fn judge(&mut self, probe: &mut Probe, event: &Event) -> Vec<String> {
        let shown = match event {
            Event::Answer(answer) => format!("{:?} {answer:?}", answer.texts()),
            Event::End(status) => format!("{status:?}"),
        };
        let own = format!("planted:{}:", uri(probe.namespace));
        let (all, owned) = (shown.matches("planted:").count(), shown.matches(&own).count());
        assert_eq!(all, owned, "{} reads a canary of others: {shown}", probe.namespace);
        self.read += owned;
        match event {
            Event::Answer(answer) => {
                probe.client.ack(answer);
                answer.items.iter().map(|item| item.name.clone()).collect()
            }
            Event::End(_) => Vec::new(),
        }
    }

    fn close_all(&mut self) {
        for probe in std::mem::take(&mut self.live) {
            self.close(probe);
        }
    }

    async fn change_rules(&mut self) {
        self.policy = 1 - self.policy;
        let before = self.relay.log_lines("reloaded the rules").len();
        std::fs::write(self.directory.path().join("rules.yaml"), rules(self.policy)).unwrap();
        while self.relay.log_lines("reloaded the rules").len() == before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.close_all();
    }

    async fn restart(&mut self) {
        self.close_all();
        self.inspect().await;
        self.relay.sigterm();
        assert_eq!(self.relay.exit().await.code(), Some(0));
        self.relay = relay(self.directory.path()).await;
        self.connect().await;
    }

    /// Neither logs nor lists have a canary, and the disk has none of a Secret.
    async fn inspect(&self) {
        assert!(!self.relay.log().contains("planted:"));
        for path in ["/sources", "/clients", "/resources", "/metrics"] {
            assert!(!self.relay.get(path).await.1.contains("planted:"), "{path}");
        }
        for entry in std::fs::read_dir(self.directory.path().join("kept")).into_iter().flatten() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains("tls.v3.Secret"), "no Secret is kept on disk");
        }
    }
}

/// Rules change twice in each quarter, the relay restarts, and its first server is away for a while.
async fn probe(count: usize) {
    let origins = [Origin::start().await, Origin::start().await];
    let mut world = World::new(&origins).await;
    let quarter = count / 4;
    for number in 1..=count {
        let in_quarter = number % quarter * 25;
        match in_quarter / quarter {
            _ if !in_quarter.is_multiple_of(quarter) => {}
            5 | 15 => world.change_rules().await,
            10 => world.restart().await,
            at @ (20 | 22) => {
                let first = &origins[0].plane;
                first.refuse_delta((at == 20).then_some(tonic::Code::Unavailable));
                first.close_streams(tonic::Code::Unavailable);
            }
            _ => {}
        }
        world.probe().await;
    }
    world.close_all();
    world.inspect().await;
    assert!(world.read > count / 5, "{}", world.read);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn iso_3_random_probes_of_the_binary_find_no_leak() {
    probe(1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "tests/run --long"]
async fn iso_3_ten_thousand_probes_of_the_binary_find_no_leak() {
    probe(10_000).await;
}
