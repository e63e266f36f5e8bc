//! The relay under attack: the built binary with a plaintext and an mTLS listener, and certificates for all.

use std::fs;
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use sluice::trust::issue::{Authority, Issued, Leaf};
use sluice::trust::provider::provider;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

use crate::support::relay::BINARY;
use crate::support::{ControlPlane, Relay, net};

const DAY: Duration = Duration::from_secs(86_400);
pub const HOST: &str = "relay.example";
pub const WEB: &str = "spiffe://prod.example/ns/shop/sa/web";
pub const CLIENT: Leaf<'_> = Leaf { uris: &[WEB], hosts: &[], is_server: false, is_client: true };

/// Deadlines that end within a short run: honest clients answer within milliseconds. Places for handshakes, and bytes of
/// unfinished requests, that a crowd of a short run uses up.
const SHORT_LIMITS: &str = "preface_timeout: 2s, tls_handshake_timeout: 2s, first_request_timeout: 2s, \
    request_timeout: 1s, keepalive_interval: 1s, keepalive_timeout: 2s, tls_handshakes: 256, \
    unfinished_bytes: 8MiB, connection_bytes: 8MiB, changes_per_second: 10, changes_burst: 20";

/// The honest clients stay for the whole run, which takes longer than a connection lasts by default. The deadline of a request
/// comes before that of a connection's first request, as in a short run.
const LONG_LIMITS: &str = "connection_age: off, request_timeout: 10s, unfinished_bytes: 8MiB, \
    connection_bytes: 64MiB";

/// The way to a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    Plain,
    Tls,
}

/// A connection of either mode.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

pub type Wire = Box<dyn Io>;

/// The authority and the certificates of a run.
pub struct Trust {
    pub authority: Authority,
    server: Issued,
    client: Issued,
}

impl Trust {
    pub fn new() -> Trust {
        let authority = Authority::new("prod", DAY, now()).unwrap();
        let leaf = Leaf { hosts: &[HOST], is_server: true, ..Leaf::default() };
        let server = authority.issue(&leaf, DAY, now()).unwrap();
        let client = authority.issue(&CLIENT, DAY, now()).unwrap();
        Trust { authority, server, client }
    }

    /// The configuration of a client with the good certificate.
    pub fn client(&self, alpn: &[&[u8]]) -> ClientConfig {
        self.client_by(rustls::DEFAULT_VERSIONS, alpn)
    }

    pub fn client_by(&self, versions: &[&'static SupportedProtocolVersion], alpn: &[&[u8]]) -> ClientConfig {
        let chain = vec![CertificateDer::from_pem_slice(self.client.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(self.client.private_key.as_bytes()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.pem().as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = builder.with_protocol_versions(versions).unwrap().with_root_certificates(roots);
        let mut config = builder.with_client_auth_cert(chain, key).unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        config
    }
}

#[allow(clippy::disallowed_methods, reason = "certificates are judged by wall time")]
pub fn now() -> SystemTime {
    SystemTime::now()
}

/// The listeners of a relay. Cheap to clone.
#[derive(Clone)]
pub struct Target {
    pub plain: String,
    pub tls: String,
    pub trust: Arc<Trust>,
    config: Arc<ClientConfig>,
    http1: Arc<ClientConfig>,
}

impl Target {
    fn address(&self, mode: Mode) -> &str {
        match mode {
            Mode::Plain => &self.plain,
            Mode::Tls => &self.tls,
        }
    }

    pub async fn tcp(&self, mode: Mode) -> io::Result<TcpStream> {
        let socket = TcpStream::connect(self.address(mode)).await?;
        socket.set_nodelay(true)?;
        Ok(socket)
    }

    /// A connection for HTTP/2, after the handshake if there is one.
    pub async fn connect(&self, mode: Mode) -> io::Result<Wire> {
        match mode {
            Mode::Plain => Ok(Box::new(self.tcp(mode).await?)),
            Mode::Tls => self.connect_with(self.config.clone()).await,
        }
    }

    /// A connection for HTTP/2 with little memory in the kernel for unread bytes.
    pub async fn connect_narrowly(&self, mode: Mode, bytes: u32) -> io::Result<Wire> {
        let address = self.address(mode).parse().map_err(io::Error::other)?;
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(bytes)?;
        let socket = socket.connect(address).await?;
        match mode {
            Mode::Plain => Ok(Box::new(socket)),
            Mode::Tls => self.shake_hands(socket, self.config.clone()).await,
        }
    }

    /// A connection for HTTP/1.1.
    pub async fn connect_http1(&self, mode: Mode) -> io::Result<Wire> {
        match mode {
            Mode::Plain => Ok(Box::new(self.tcp(mode).await?)),
            Mode::Tls => self.connect_with(self.http1.clone()).await,
        }
    }

    pub async fn connect_with(&self, config: Arc<ClientConfig>) -> io::Result<Wire> {
        let socket = self.tcp(Mode::Tls).await?;
        self.shake_hands(socket, config).await
    }

    async fn shake_hands(&self, socket: TcpStream, config: Arc<ClientConfig>) -> io::Result<Wire> {
        let name = ServerName::try_from(HOST).unwrap();
        Ok(Box::new(TlsConnector::from(config).connect(name, socket).await?))
    }
}

/// A relay with its listeners.
pub struct Site {
    pub relay: Relay,
    pub target: Target,
}

impl Site {
    pub async fn start(origin: &ControlPlane, trust: &Arc<Trust>, is_long: bool) -> Site {
        let directory = tempfile::tempdir().unwrap();
        let port = || format!("127.0.0.1:{}", net::free_port());
        let (plain, tls, admin) = (port(), port(), port());
        for (name, text) in [
            ("tls.crt", trust.server.certificate.as_str()),
            ("tls.key", trust.server.private_key.as_str()),
            ("ca.crt", trust.authority.pem()),
        ] {
            fs::write(directory.path().join(name), text).unwrap();
        }
        let limits = if is_long { LONG_LIMITS } else { SHORT_LIMITS };
        let yaml = format!(
            "node: {{ id: sluice-test, cluster: kit }}\n\
             xds_servers: [ {{ server_uri: {:?}, channel_creds: [ {{ type: insecure }} ], api_type: DELTA_GRPC }} ]\n\
             listeners:\n\
             - {{ name: plain, address: {plain:?} }}\n\
             - name: mesh\n  address: {tls:?}\n  tls:\n    \
               certificates: [ {{ certificate_file: tls.crt, private_key_file: tls.key }} ]\n    \
               ca_certificate_file: ca.crt\n    trust_domain: prod.example\n\
             admin: {{ address: {admin:?} }}\n\
             limits: {{ {limits} }}\ncache: {{ encoded_bytes: 8MiB }}\n",
            origin.address.to_string(),
        );
        let config = directory.path().join("sluice.yaml");
        fs::write(&config, yaml).unwrap();
        let mut command = Command::new(BINARY);
        command.args(["serve", "--config"]).arg(&config).current_dir(directory.path());
        let mut relay = Relay::spawn(command, directory, plain.clone(), admin);
        relay.ready().await;
        let [config, http1] = [&b"h2"[..], b"http/1.1"].map(|name| Arc::new(trust.client(&[name])));
        Site { relay, target: Target { plain, tls, trust: trust.clone(), config, http1 } }
    }
}
