//! TLS of the clients: certificates for a run, and the sessions of connections.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// The trust domain of all identities.
const TRUST_DOMAIN: &str = "load.example";

const CA: &str = "ca.crt";

/// The names of the server's certificate.
const SERVER_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The configurations of clients: one for each identity, or one without a certificate.
#[derive(Clone, Debug)]
pub struct Tls {
    configs: Vec<Arc<ClientConfig>>,
}

impl Tls {
    /// Reads the files of [`write_certificates`]. With 0 identities, clients show no certificate.
    pub fn read(directory: &Path, identities: usize) -> Result<Tls> {
        let read = |name: &str| {
            let path = directory.join(name);
            fs::read(&path).with_context(|| format!("cannot read {}; make it with `certs`", path.display()))
        };
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&read(CA)?)?)?;
        let roots = Arc::new(roots);
        let builder = || -> Result<_> {
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let builder =
                ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
            Ok(builder.with_root_certificates(roots.clone()))
        };
        let finish = |mut config: ClientConfig| {
            config.alpn_protocols = vec![b"h2".to_vec()];
            config.resumption = Resumption::disabled();
            Arc::new(config)
        };
        let mut configs = Vec::new();
        for identity in 0..identities {
            let pem = read(&format!("clients/{identity}.pem"))?;
            let chain = vec![CertificateDer::from_pem_slice(&pem)?];
            let key = PrivateKeyDer::from_pem_slice(&pem)?;
            configs.push(finish(builder()?.with_client_auth_cert(chain, key)?));
        }
        if configs.is_empty() {
            configs.push(finish(builder()?.with_no_client_auth()));
        }
        Ok(Tls { configs })
    }

    /// A new session to the server; connections take the identities in turn.
    pub fn session(&self, connection: usize, target: SocketAddr) -> Result<ClientConnection, rustls::Error> {
        let config = self.configs[connection % self.configs.len()].clone();
        ClientConnection::new(config, ServerName::IpAddress(target.ip().into()))
    }
}

/// Writes an authority, a pair for the server and pairs for `identities` clients.
pub fn write_certificates(directory: &Path, identities: usize) -> Result<()> {
    ensure!(identities <= 100_000, "--identities must be at most 100000");
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "sluice-load");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate()?;
    let authority = params.self_signed(&key)?.pem();
    let issuer = Issuer::new(params, key);
    let issue = |names: &[&str], uri: String, purpose: ExtendedKeyUsagePurpose| -> Result<(String, String)> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        params.subject_alt_names.push(SanType::URI(uri.as_str().try_into()?));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate()?;
        Ok((params.signed_by(&key, &issuer)?.pem(), key.serialize_pem()))
    };
    fs::create_dir_all(directory.join("clients"))?;
    fs::create_dir_all(directory.join("relay"))?;
    fs::write(directory.join(CA), authority)?;
    let server = format!("spiffe://{TRUST_DOMAIN}/relay");
    let (certificate, key) = issue(&SERVER_NAMES, server, ExtendedKeyUsagePurpose::ServerAuth)?;
    fs::write(directory.join("relay/tls.crt"), certificate)?;
    fs::write(directory.join("relay/tls.key"), key)?;
    for identity in 0..identities {
        let uri = format!("spiffe://{TRUST_DOMAIN}/ns/load/sa/client-{identity}");
        let (certificate, key) = issue(&[], uri, ExtendedKeyUsagePurpose::ClientAuth)?;
        fs::write(directory.join(format!("clients/{identity}.pem")), certificate + &key)?;
    }
    Ok(())
}
