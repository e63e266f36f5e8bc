//! TLS of the clients: certificates for a run, and the sessions of connections.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, DigitallySignedStruct, NamedGroup, RootCertStore,
    SignatureScheme,
};

/// The trust domain of all identities.
const TRUST_DOMAIN: &str = "load.example";

const CA: &str = "ca.crt";

/// The names of the server's certificate.
const SERVER_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The groups that clients offer for the key exchange; the words are those of the relay's `xds_servers[].tls.key_exchange`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum KeyExchange {
    /// X25519MLKEM768 first, then the classic groups
    #[default]
    Hybrid,
    /// X25519, P-256 and P-384 only
    Classic,
}

impl KeyExchange {
    fn provider(self) -> CryptoProvider {
        let mut provider = aws_lc_rs::default_provider();
        // Like Envoy and gRPC, whose BoringSSL offers AES-128 first. A client of AES-256 pays more for its handshake.
        provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
        if self == KeyExchange::Classic {
            let classic = [NamedGroup::X25519, NamedGroup::secp256r1, NamedGroup::secp384r1];
            provider.kx_groups.retain(|group| classic.contains(&group.name()));
        }
        provider
    }
}

/// The configurations of clients: one for each identity, or one without a certificate.
#[derive(Clone, Debug)]
pub struct Tls {
    configs: Vec<Arc<ClientConfig>>,
}

impl Tls {
    /// Reads the files of [`write_certificates`]. With 0 identities, clients show no certificate.
    pub fn read(directory: &Path, identities: usize, key_exchange: KeyExchange) -> Result<Tls> {
        let read = |name: &str| {
            let path = directory.join(name);
            fs::read(&path).with_context(|| format!("cannot read {}; make it with `certs`", path.display()))
        };
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&read(CA)?)?)?;
        let provider = Arc::new(key_exchange.provider());
        let verifier = Arc::new(VerifiedOnce::new(roots, provider.clone())?);
        let builder = || -> Result<_> {
            let builder = ClientConfig::builder_with_provider(provider.clone());
            let builder = builder.with_safe_default_protocol_versions()?;
            Ok(builder.dangerous().with_custom_certificate_verifier(verifier.clone()))
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

/// Verifies the chain of a server once for the whole fleet: thousands of connections in one thread measure the server, not
/// the verification by the tool. The key is proved in each handshake.
#[derive(Debug)]
struct VerifiedOnce {
    verifier: Arc<WebPkiServerVerifier>,
    /// The first good leaf.
    verified: OnceLock<CertificateDer<'static>>,
}

impl VerifiedOnce {
    fn new(roots: RootCertStore, provider: Arc<CryptoProvider>) -> Result<VerifiedOnce> {
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        Ok(VerifiedOnce { verifier, verified: OnceLock::new() })
    }
}

impl ServerCertVerifier for VerifiedOnce {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.verified.get() == Some(leaf) {
            return Ok(ServerCertVerified::assertion());
        }
        let verified = self.verifier.verify_server_cert(leaf, above, name, ocsp_response, now)?;
        let _ = self.verified.set(leaf.clone().into_owned());
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, leaf, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, leaf, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_the_chain_that_was_verified_is_trusted_again() {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        directories.iter().for_each(|directory| write_certificates(directory.path(), 0).unwrap());
        let read = |directory: usize, name: &str| {
            CertificateDer::from_pem_file(directories[directory].path().join(name)).unwrap()
        };
        let mut roots = RootCertStore::empty();
        roots.add(read(0, CA)).unwrap();
        let verifier = VerifiedOnce::new(roots, Arc::new(KeyExchange::Hybrid.provider())).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let is_trusted = |leaf| {
            verifier
                .verify_server_cert(&read(leaf, "relay/tls.crt"), &[], &name, &[], UnixTime::now())
                .is_ok()
        };
        assert_eq!([1, 0, 0, 1, 0].map(is_trusted), [false, true, true, false, true]);
    }

    /// The first bytes of a ClientHello tell the groups: 0x11ec is X25519MLKEM768.
    #[test]
    fn classic_leaves_the_hybrid_key_exchange_out() {
        let directory = tempfile::tempdir().unwrap();
        write_certificates(directory.path(), 1).unwrap();
        for (key_exchange, is_hybrid) in [(KeyExchange::Hybrid, true), (KeyExchange::Classic, false)] {
            for identities in [0, 1] {
                let tls = Tls::read(directory.path(), identities, key_exchange).unwrap();
                let mut hello = Vec::new();
                tls.session(0, "127.0.0.1:1".parse().unwrap()).unwrap().write_tls(&mut hello).unwrap();
                assert_eq!(hello.windows(2).any(|pair| pair == [0x11, 0xec]), is_hybrid);
                assert_eq!(hello.len() > 1000, is_hybrid);
            }
        }
    }
}
