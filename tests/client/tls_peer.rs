//! TLS servers with certificates of the test's own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use sluice::client::{CallMetadata, ClientSettings, Credentials, GrpcAddress, Pool, ServerChannel};
use sluice::telemetry::metrics::{ClientMetrics, TlsMetrics};
use sluice::telemetry::wall_now;
use sluice::trust::anchors::AnchorFiles;
use sluice::trust::client::{ClientTls, Protocol, ServerAuthorities};
use sluice::trust::issue::{Authority, Issued, Leaf};
use sluice::trust::pair::PairFiles;
use sluice::trust::provider::provider;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::peer::{Order, Peer, PeerStream, serve, settings};

pub const DAY: Duration = Duration::from_secs(86_400);

/// An authority, and the directory with its files.
pub struct Site {
    pub directory: tempfile::TempDir,
    pub authority: Authority,
}

impl Site {
    pub fn new() -> Site {
        let authority = Authority::new("test", 100 * DAY, wall_now()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.crt"), authority.pem()).unwrap();
        Site { directory, authority }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn server(&self) -> Issued {
        let leaf = Leaf { hosts: &["127.0.0.1", "localhost"], is_server: true, ..Leaf::default() };
        self.authority.issue(&leaf, DAY, wall_now()).unwrap()
    }

    /// Writes a certificate of the relay that ends after `life`.
    pub fn write_client(&self, authority: &Authority, life: Duration) -> PairFiles {
        let leaf = Leaf { uris: &["spiffe://d/relay"], is_client: true, ..Leaf::default() };
        let issued = authority.issue(&leaf, life, wall_now()).unwrap();
        self.write(&issued, "tls")
    }

    pub fn write(&self, issued: &Issued, name: &str) -> PairFiles {
        let files = PairFiles {
            certificate: self.path(&format!("{name}.crt")),
            private_key: self.path(&format!("{name}.key")),
        };
        for (path, text) in
            [(&files.private_key, &issued.private_key), (&files.certificate, &issued.certificate)]
        {
            let new = path.with_extension("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(new, path).unwrap();
        }
        files
    }

    /// Settings that trust the authority of the site.
    pub fn tls(&self) -> ClientTls {
        let file = AnchorFiles::Authorities { file: self.path("ca.crt"), trust_domain: None };
        ClientTls { authorities: ServerAuthorities::Files(file), ..ClientTls::default() }
    }

    pub fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.pem().as_bytes()).unwrap()).unwrap();
        Arc::new(roots)
    }

    /// A server with this certificate and ALPN; with `mutual`, it wants a certificate of this authority.
    pub fn config(&self, issued: &Issued, alpn: &[&str], mutual: bool) -> ServerConfig {
        let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = match mutual {
            true => {
                let verifier = WebPkiClientVerifier::builder_with_provider(self.roots(), provider());
                builder.unwrap().with_client_cert_verifier(verifier.build().unwrap())
            }
            false => builder.unwrap().with_no_client_auth(),
        };
        let chain = vec![CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(issued.private_key.as_bytes()).unwrap();
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        config
    }
}

/// An HTTP/2 server behind TLS. `connections` tells of each connection after its handshake.
pub struct TlsPeer {
    pub port: u16,
    pub streams: mpsc::Receiver<PeerStream>,
    /// The certificate of each client.
    pub clients: mpsc::Receiver<Option<Vec<u8>>>,
}

impl TlsPeer {
    pub async fn start(config: ServerConfig) -> TlsPeer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (streams_tx, streams) = mpsc::channel(100);
        let (clients_tx, clients) = mpsc::channel(100);
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            for number in 0.. {
                let Ok((socket, _)) = listener.accept().await else { return };
                let (acceptor, streams) = (acceptor.clone(), streams_tx.clone());
                let clients = clients_tx.clone();
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(socket).await else { return };
                    let leaf = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
                    let _ = clients.send(leaf.map(|leaf| leaf.to_vec())).await;
                    serve_on(number, stream, streams).await;
                });
            }
        });
        TlsPeer { port, streams, clients }
    }

    pub async fn stream(&mut self) -> PeerStream {
        crate::peer::soon(self.streams.recv()).await.unwrap()
    }
}

async fn serve_on<T: AsyncRead + AsyncWrite + Unpin>(
    number: usize,
    stream: T,
    streams: mpsc::Sender<PeerStream>,
) {
    let (_orders, orders) = mpsc::channel::<Order>(1);
    serve(number, stream, &h2::server::Builder::new(), streams, orders).await;
}

/// The DER of a certificate in a file.
pub fn der(path: &Path) -> Vec<u8> {
    CertificateDer::from_pem_slice(&std::fs::read(path).unwrap()).unwrap().to_vec()
}

pub fn channel(port: u16, tls: ClientTls, protocol: Protocol) -> ServerChannel {
    let address = GrpcAddress::Tcp { host: "127.0.0.1".to_owned(), port };
    let credentials = Credentials { tls: Some(tls), calls: CallMetadata::default() };
    ServerChannel::open(address, credentials, protocol, "xds_servers[0]", &TlsMetrics::default()).unwrap()
}

pub fn pool(port: u16, tls: ClientTls) -> Pool {
    pool_with(port, tls, settings())
}

pub fn pool_with(port: u16, tls: ClientTls, settings: ClientSettings) -> Pool {
    let channel = channel(port, tls, Protocol::Http2);
    Pool::with_channel(channel, settings, Arc::new(ClientMetrics::default()))
}

/// A plaintext HTTP/2 server.
pub async fn plaintext() -> Peer {
    Peer::start(h2::server::Builder::new()).await
}
