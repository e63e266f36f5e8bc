//! The recipes of docs/security.md: files as each tool lays them out and replaces them, followed by the built binary.
//!
//! The tools need clusters and daemons. The names of files, the order and the way of writing are from the sources of the
//! tools: spiffe-helper (`pkg/disk`), the kubelet's and csi-lib's atomic writer, and Istio's agent
//! (`OutputKeyCertToDir`).

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use sluice::trust::issue::{Authority, Issued, Leaf};
use sluice::trust::provider::provider;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::control_plane::eventually;
use crate::support::relay::BINARY;
use crate::support::{Relay, net};

const PAGE: &str = include_str!("../../docs/security.md");
const DAY: Duration = Duration::from_secs(86_400);

/// One generation of a tool's files.
struct Files {
    certificate: String,
    private_key: String,
    authorities: String,
}

struct Recipe {
    heading: &'static str,
    /// The files before the relay starts, and each later generation, with its number.
    write: fn(&Path, usize, &Files),
    /// The SPIFFE ID of a client, or its DNS name.
    client: &'static str,
}

const RECIPES: [Recipe; 4] = [
    Recipe {
        heading: "## Certificates from SPIRE",
        write: spiffe_helper,
        client: "spiffe://prod.example/ns/shop/sa/web",
    },
    Recipe {
        heading: "## Certificates from cert-manager",
        write: atomic_writer,
        client: "spiffe://cluster.local/ns/shop/sa/web",
    },
    Recipe {
        heading: "## Istio's certificates in a sidecar",
        write: istio_agent,
        client: "spiffe://cluster.local/ns/shop/sa/web",
    },
    Recipe { heading: "## Plain files", write: by_hand, client: "web.prod.example" },
];

/// Truncates each file in place, the certificate first.
fn spiffe_helper(root: &Path, _: usize, files: &Files) {
    let directory = root.join("id");
    let _ = fs::create_dir(&directory);
    fs::write(directory.join("svid.pem"), &files.certificate).unwrap();
    fs::write(directory.join("svid_key.pem"), &files.private_key).unwrap();
    fs::write(directory.join("svid_bundle.pem"), &files.authorities).unwrap();
}

/// A new directory, and a swap of the link `..data`. The old directory goes.
fn atomic_writer(root: &Path, number: usize, files: &Files) {
    let volume = root.join("id");
    let named = |number: usize| format!("..2026_11_23_09_00_{number:02}.0");
    let fresh = volume.join(named(number));
    fs::create_dir_all(&fresh).unwrap();
    let all =
        [("tls.crt", &files.certificate), ("tls.key", &files.private_key), ("ca.crt", &files.authorities)];
    for (name, text) in all {
        fs::write(fresh.join(name), text).unwrap();
    }
    symlink(named(number), volume.join("..data_tmp")).unwrap();
    fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
    for (name, _) in all {
        let _ = symlink(Path::new("..data").join(name), volume.join(name));
    }
    if number > 0 {
        fs::remove_dir_all(volume.join(named(number - 1))).unwrap();
    }
}

/// A rename for each file that differs, the key first; the authorities come last, by another way.
fn istio_agent(root: &Path, number: usize, files: &Files) {
    let directory = root.join("istio");
    let _ = fs::create_dir(&directory);
    let all = [
        ("key.pem", &files.private_key),
        ("cert-chain.pem", &files.certificate),
        ("root-cert.pem", &files.authorities),
    ];
    for (name, text) in all {
        let path = directory.join(name);
        if fs::read_to_string(&path).ok().as_ref() != Some(text) {
            let fresh = directory.join(format!("{name}.tmp.{number}"));
            fs::write(&fresh, text).unwrap();
            fs::rename(&fresh, &path).unwrap();
        }
    }
}

/// An operator's copies, the authorities first.
fn by_hand(root: &Path, _: usize, files: &Files) {
    let directory = root.join("id");
    let _ = fs::create_dir(&directory);
    fs::write(directory.join("ca.crt"), &files.authorities).unwrap();
    fs::write(directory.join("tls.key"), &files.private_key).unwrap();
    fs::write(directory.join("tls.crt"), &files.certificate).unwrap();
}

/// The configuration of a recipe, completed to a relay on this port.
fn configuration(recipe: &Recipe, port: u16, admin: &str) -> String {
    let (_, section) = PAGE.split_once(recipe.heading).expect("a section of the page");
    let section = section.split("\n## ").next().unwrap_or_default();
    let (_, block) = section.split_once("```yaml\n").expect("a recipe");
    let block = block.split("```").next().unwrap_or_default();
    let listeners = if block.starts_with("listeners:") {
        block.replace("0.0.0.0:18001", &format!("127.0.0.1:{port}"))
    } else {
        format!("listeners:\n  - name: mesh\n    address: 127.0.0.1:{port}\n{block}")
    };
    format!("xds_servers: [{{ server_uri: 'file:resources' }}]\nadmin: {{ address: '{admin}' }}\n{listeners}")
}

/// Two authorities: the second one takes over.
struct Issuers([Authority; 2]);

impl Issuers {
    fn issue(&self, by: usize, leaf: &Leaf<'_>) -> Issued {
        self.0[by].issue(leaf, DAY, SystemTime::now()).unwrap()
    }

    fn relay(&self, by: usize, trusted: &[usize]) -> Files {
        let leaf = Leaf { hosts: &["127.0.0.1"], is_server: true, is_client: true, ..Leaf::default() };
        let own = self.issue(by, &leaf);
        let authorities = trusted.iter().map(|number| self.0[*number].pem()).collect();
        Files { certificate: own.certificate, private_key: own.private_key, authorities }
    }

    /// A client with a leaf of one authority, and trust in both.
    fn client(&self, by: usize, name: &str) -> Arc<ClientConfig> {
        self.client_of(by, name, &self.0)
    }

    /// The same with trust in others.
    fn client_of(&self, by: usize, name: &str, trusted: &[Authority]) -> Arc<ClientConfig> {
        let names = [name];
        let leaf = if name.starts_with("spiffe:") {
            Leaf { uris: &names, is_client: true, ..Leaf::default() }
        } else {
            Leaf { hosts: &names, is_client: true, ..Leaf::default() }
        };
        let issued = self.issue(by, &leaf);
        let mut roots = RootCertStore::empty();
        for authority in trusted {
            roots.add(certificate(authority.pem())).unwrap();
        }
        let key = PrivateKeyDer::from_pem_slice(issued.private_key.as_bytes()).unwrap();
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.unwrap().with_root_certificates(roots);
        let mut config = builder.with_client_auth_cert(vec![certificate(&issued.certificate)], key).unwrap();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

/// The certificate of the relay, once the relay has answered the client.
async fn ask(address: &str, config: &Arc<ClientConfig>) -> io::Result<CertificateDer<'static>> {
    let socket = TcpStream::connect(address).await?;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = TlsConnector::from(config.clone()).connect(name, socket).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: relay\r\nConnection: close\r\n\r\n").await?;
    let mut answer = [0; 9];
    stream.read_exact(&mut answer).await?;
    assert_eq!(&answer, b"HTTP/1.1 ");
    Ok(stream.get_ref().1.peer_certificates().unwrap_or_default()[0].clone().into_owned())
}

/// The directory of a relay that follows a recipe.
struct Site {
    directory: tempfile::TempDir,
    port: u16,
    admin: String,
}

impl Site {
    fn new(recipe: &Recipe) -> Site {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let (port, admin) = (net::free_port(), format!("127.0.0.1:{}", net::free_port()));
        fs::create_dir(root.join("resources")).unwrap();
        fs::write(root.join("resources/none.yaml"), "type_url: type.googleapis.com/a.B\nresources: []\n")
            .unwrap();
        fs::write(root.join("sluice.yaml"), configuration(recipe, port, &admin)).unwrap();
        Site { directory, port, admin }
    }

    fn root(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// Starts the relay, once there are files.
    async fn start(&self) -> Relay {
        let mut command = Command::new(BINARY);
        command.args(["serve", "--config"]).arg(self.directory.path().join("sluice.yaml"));
        let spare = tempfile::tempdir().unwrap();
        let mut relay = Relay::spawn(command, spare, format!("127.0.0.1:{}", self.port), self.admin.clone());
        relay.ready().await;
        relay
    }
}

async fn follow(recipe: &Recipe) {
    let now = SystemTime::now();
    let issuers = Issuers(["old", "new"].map(|name| Authority::new(name, DAY, now).unwrap()));
    let site = Site::new(recipe);
    // Each tool spreads a new authority before the first signature.
    let generations = [(0, &[0][..]), (0, &[0]), (0, &[0, 1]), (1, &[0, 1]), (1, &[1])];
    let mut relay = None;
    for (number, (by, trusted)) in generations.into_iter().enumerate() {
        let files = issuers.relay(by, trusted);
        (recipe.write)(&site.root(), number, &files);
        if relay.is_none() {
            relay = Some(site.start().await);
        }
        let relay = relay.as_ref().unwrap();
        let client = issuers.client(by, recipe.client);
        let expected = certificate(&files.certificate);
        let shows = || async { ask(&relay.address, &client).await.is_ok_and(|shown| shown == expected) };
        eventually("the new certificate", shows).await;
    }
    let relay = relay.unwrap();
    // A removed authority admits nobody, and no generation was taken for a fault.
    let former = issuers.client(0, recipe.client);
    eventually("the old authority goes", || async { ask(&relay.address, &former).await.is_err() }).await;
    assert_eq!(relay.metric("sluice_tls_reload_failing", &[]).await, 0.0, "{}", recipe.heading);
    let warnings = relay.log_lines("WARN");
    // The first words are of the check before the start.
    let about_files = warnings.iter().filter(|line| line.contains("sluice::trust"));
    let others =
        about_files.filter(|line| !line.contains("every user of this host can read the private key"));
    assert_eq!(others.count(), 0, "{warnings:?}");
}

/// SEC-12: a client's leaf that gets into the file of authorities, by a rename, changes nothing and is told; the client can
/// sign for nobody. The next good file is taken.
#[tokio::test]
async fn sec_12_a_leaf_in_the_place_of_an_authority_changes_nothing() {
    let recipe = &RECIPES[3];
    let now = SystemTime::now();
    let issuers = Issuers(["old", "new"].map(|name| Authority::new(name, DAY, now).unwrap()));
    let site = Site::new(recipe);
    let root = site.root();
    (recipe.write)(&root, 0, &issuers.relay(0, &[0]));
    let relay = site.start().await;
    let client = issuers.client(0, recipe.client);
    assert!(ask(&relay.address, &client).await.is_ok());

    let put = |authorities: String| {
        fs::write(root.join("id/next"), authorities).unwrap();
        fs::rename(root.join("id/next"), root.join("id/ca.crt")).unwrap();
    };
    let leaf = issuers.issue(0, &Leaf { hosts: &[recipe.client], is_client: true, ..Leaf::default() });
    put(format!("{}{}", issuers.0[0].pem(), leaf.certificate));
    let failing = || async { relay.metric("sluice_tls_reload_failing", &[]).await };
    eventually("the leaf is told", || async { failing().await == 1.0 }).await;
    // The metric is told first, and a line of the log is written by another thread.
    eventually("the words", || async { relay.log_lines("WARN").join("\n").contains("stay in force") }).await;
    let warnings = relay.log_lines("WARN").join("\n");
    for named in ["ca_certificate_file", "id/ca.crt, PEM block 2 of 2: not an authority", "stay in force"] {
        assert!(warnings.contains(named), "{named}: {warnings}");
    }
    assert!(ask(&relay.address, &client).await.is_ok(), "the last good files are in force");
    let thief = Issuers([
        Authority::restore("", leaf.certificate.clone(), &leaf.private_key).unwrap(),
        Authority::new("new", DAY, now).unwrap(),
    ]);
    let forged = thief.client_of(0, "root.prod.example", &issuers.0);
    assert!(ask(&relay.address, &forged).await.is_err());

    put(format!("{}{}", issuers.0[0].pem(), issuers.0[1].pem()));
    let other = issuers.client(1, recipe.client);
    eventually("the new authority", || async { ask(&relay.address, &other).await.is_ok() }).await;
    assert_eq!(failing().await, 0.0);
}

#[tokio::test]
async fn doc_3_each_recipe_for_certificates_follows_its_tool() {
    for recipe in &RECIPES {
        follow(recipe).await;
    }
}
