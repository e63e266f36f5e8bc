//! The judgement of client certificates: the chain by rustls, then the identity of the leaf.

use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};

use super::settings::{ChainLimits, ClientCertificate, ServerTls};
use crate::trust::anchors::{AnchorFiles, Anchors};
use crate::trust::certificate::Certificate;
use crate::trust::crl::Depth;
use crate::trust::fault::Fault;
use crate::trust::identity::{ClientName, IdentityKind, of_client, spiffe_id};
use crate::trust::pool::AnchorPool;
use crate::trust::provider::provider;
use crate::trust::refusal::{Reason, Refusal};
use sluice_identity::Identity;

/// The names of authorities are hints for clients with several certificates. With more bytes, none are sent:
/// clients refuse a message that is too large (SEC-6).
const HINTS_BYTES_MAX: usize = 16 << 10;

/// Authorities of one name in a client's chain (SEC-5). Each of them is tried as the issuer of each other, a
/// signature at a time: seven took 100 signatures, some 8 ms. Nested authorities of SPIRE have one name.
const NAMESAKES_MAX: usize = 3;

/// Verifiers by the leaves that they may prove.
type Chains = AnchorPool<Arc<dyn ClientCertVerifier>>;

/// Judges the certificates of clients of one listener.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    /// One verifier for each trust domain; `None` for names without a domain (IDN-3).
    chains: Vec<(Option<String>, Chains)>,
    kind: IdentityKind,
    /// The trust domain of the authorities, if it is one.
    trust_domain: Option<String>,
    clients: Vec<ClientName>,
    is_mandatory: bool,
    limits: ChainLimits,
    hints: Vec<DistinguishedName>,
}

impl ClientVerifier {
    /// # Errors
    /// No valid anchor, or lists that rustls refuses.
    pub(super) fn new(
        settings: &ServerTls,
        limits: ChainLimits,
        anchors: &Anchors,
        lists: &[CertificateRevocationListDer<'static>],
        now: SystemTime,
    ) -> Result<ClientVerifier, Fault> {
        let mut chains = Vec::new();
        let mut hints = Vec::new();
        for domain in anchors.domains() {
            let pool = anchors.pool(domain, now);
            if pool.is_empty() {
                continue;
            }
            hints.extend(pool.groups().flat_map(|roots| roots.subjects()));
            let verifiers = pool.try_map(|roots| chain_verifier(settings, roots.clone(), lists))?;
            chains.push((domain.map(str::to_owned), verifiers));
        }
        if chains.is_empty() {
            let path = settings.anchors.as_ref().map(|anchors| anchors.path().clone()).unwrap_or_default();
            return Err(Fault::new(&path, "every authority has expired").at("ca_certificate_file"));
        }
        if hints.iter().map(|name| name.as_ref().len() + 2).sum::<usize>() > HINTS_BYTES_MAX {
            hints.clear();
        }
        Ok(ClientVerifier {
            chains,
            kind: settings.identity,
            trust_domain: settings.anchors.as_ref().and_then(AnchorFiles::trust_domain).map(str::to_owned),
            clients: settings.clients.clone(),
            is_mandatory: settings.client_certificate == ClientCertificate::Required,
            limits,
            hints,
        })
    }

    /// Judges a chain: its size, the signatures up to an anchor of the leaf's trust domain, and the identity.
    pub(super) fn judge(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        self.check_size(leaf, intermediates)?;
        let facts =
            Certificate::parse(leaf).map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        check_keys(&facts, intermediates)?;
        let refused = |text: String| Refusal::new(Reason::Identity, text).into_error();
        let id = match self.kind {
            IdentityKind::Spiffe => Some(spiffe_id(&facts).map_err(refused)?),
            IdentityKind::Dns | IdentityKind::TrustDomain => None,
        };
        let domain = id.as_ref().map(|id| id.trust_domain()).or(self.trust_domain.as_deref());
        // IDN-3: only the anchors of the domain that the leaf names.
        let chain = self.chains.iter().find(|(other, _)| other.as_deref() == domain);
        let Some(chain) = chain.and_then(|(_, pool)| pool.of(leaf)) else {
            return Err(CertificateError::UnknownIssuer.into());
        };
        let refused_authority = |error| if facts.is_authority { authority_refused() } else { error };
        chain.verify_client_cert(leaf, intermediates, now).map_err(refused_authority)?;
        self.identity(&facts).map(drop).map_err(refused)
    }

    /// The identity of a proved leaf.
    ///
    /// # Errors
    /// The reason in words.
    pub(super) fn identity(&self, leaf: &Certificate) -> Result<Identity, String> {
        of_client(leaf, self.kind, &self.clients, self.trust_domain.as_deref())
    }

    fn check_size(&self, leaf: &CertificateDer<'_>, above: &[CertificateDer<'_>]) -> Result<(), Error> {
        let bytes = leaf.len() + above.iter().map(|der| der.len()).sum::<usize>();
        if above.len() + 1 > self.limits.client_chain_certificates || bytes > self.limits.client_chain_bytes {
            let text = format!("a chain of {} certificates with {bytes} bytes is too large", above.len() + 1);
            return Err(Refusal::new(Reason::TooLarge, text).into_error());
        }
        Ok(())
    }
}

/// Also where exactly this certificate is a trust anchor: anchors of a listener speak for all of its clients,
/// so that the holder of the key could be each of them. An anchor of one server speaks for this server alone
/// (SEC-12).
fn authority_refused() -> Error {
    let text = "the client's certificate is one of an authority (basic constraints with CA), whose key could sign for every \
                client; expected one with CA:FALSE, which may be self-signed and stand in ca_certificate_file itself";
    Refusal::new(Reason::Purpose, text).into_error()
}

/// SEC-5: keys of unusual kinds or sizes, and many authorities of one name, are refused before any signature
/// is checked.
fn check_keys(leaf: &Certificate, intermediates: &[CertificateDer<'_>]) -> Result<(), Error> {
    let above: Vec<Option<Certificate>> =
        intermediates.iter().map(|der| Certificate::parse(der).ok()).collect();
    let is_good = |facts: &Option<Certificate>| facts.as_ref().is_some_and(|facts| facts.has_accepted_key);
    if !leaf.has_accepted_key || !above.iter().all(is_good) {
        let text = "a key of the certificate chain is not RSA of 2048 to 4096 bits, P-256, P-384 or Ed25519";
        return Err(Refusal::new(Reason::Other, text).into_error());
    }
    let subjects = || above.iter().flatten().map(|facts| &facts.subject);
    if subjects().any(|name| subjects().filter(|other| *other == name).count() > NAMESAKES_MAX) {
        let text = format!("more than {NAMESAKES_MAX} authorities of the certificate chain have one name");
        return Err(Refusal::new(Reason::TooLarge, text).into_error());
    }
    Ok(())
}

fn chain_verifier(
    settings: &ServerTls,
    roots: Arc<RootCertStore>,
    lists: &[CertificateRevocationListDer<'static>],
) -> Result<Arc<dyn ClientCertVerifier>, Fault> {
    let mut builder = WebPkiClientVerifier::builder_with_provider(roots, provider());
    if let Some(crl) = &settings.crl {
        builder = builder.with_crls(lists.iter().cloned());
        if crl.depth == Depth::Leaf {
            builder = builder.only_check_end_entity_revocation();
        }
        if crl.allows_unknown {
            builder = builder.allow_unknown_revocation_status();
        }
        // Without this call, rustls accepts a list of any age (CRT-13).
        if !crl.allows_expired {
            builder = builder.enforce_revocation_expiration();
        }
    }
    builder.build().map_err(|_| {
        let path = settings.crl.iter().flat_map(|crl| &crl.files).next().cloned().unwrap_or_default();
        Fault::passing(&path, "a certificate revocation list cannot be used").at("crl.files")
    })
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.judge(leaf, intermediates, now).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signed, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
