//! The judgement of server certificates: the chain, then the names.

use std::time::SystemTime;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

use super::sans::{SanMatch, names_text};
use crate::trust::anchors::Anchors;
use crate::trust::certificate::Certificate;
use crate::trust::identity::spiffe_id;
use crate::trust::pool::AnchorPool;
use crate::trust::provider::provider;
use crate::trust::refusal::{Reason, Refusal};

/// The authorities of a server.
#[derive(Debug)]
pub(super) enum Roots {
    /// One set for all names.
    Pooled(AnchorPool),
    /// Apart by trust domain (IDN-3).
    ByDomain(Vec<(String, AnchorPool)>),
}

impl Roots {
    /// The anchors of a bundle map, without the expired ones.
    pub(super) fn by_domain(anchors: &Anchors, now: SystemTime) -> Roots {
        let domains = anchors.domains().flatten();
        let pools = domains.map(|domain| (domain.to_owned(), anchors.pool(Some(domain), now)));
        Roots::ByDomain(pools.filter(|(_, pool)| !pool.is_empty()).collect())
    }

    pub(super) fn are_empty(&self) -> bool {
        match self {
            Roots::Pooled(pool) => pool.is_empty(),
            Roots::ByDomain(pools) => pools.is_empty(),
        }
    }
}

/// Judges the certificates of one server. No setting turns the judgement off (IDN-7).
#[derive(Debug)]
pub(super) struct ServerVerifier {
    pub(super) roots: Roots,
    pub(super) match_sans: Vec<SanMatch>,
}

impl ServerVerifier {
    fn judge(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let parsed = ParsedCertificate::try_from(leaf)?;
        let prove = |pool: &AnchorPool| {
            if let Some(judged) = pool.judge_itself(leaf, now) {
                return judged.map_err(Error::from);
            }
            let roots = pool.of(leaf).ok_or(CertificateError::UnknownIssuer)?;
            // Checks the extended key usage, too (IDN-6).
            let algorithms = algorithms().all;
            verify_server_cert_signed_by_trust_anchor(&parsed, roots, intermediates, now, algorithms)
                .map_err(|error| if is_authority(leaf) { authority_refused() } else { error })
        };
        if self.match_sans.is_empty() {
            return match &self.roots {
                Roots::Pooled(roots) => {
                    prove(roots)?;
                    verify_server_name(&parsed, name)
                }
                // The configuration demands `match_sans`: any workload could be the server otherwise (IDN-7).
                Roots::ByDomain(_) => Err(CertificateError::NotValidForName.into()),
            };
        }
        let facts =
            Certificate::parse(leaf).map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        match &self.roots {
            Roots::Pooled(roots) => prove(roots)?,
            Roots::ByDomain(pools) => {
                let refused = |text| Refusal::new(Reason::Identity, text).into_error();
                let id = spiffe_id(&facts)
                    .map_err(|text| refused(format!("the server's certificate has no SPIFFE ID: {text}")))?;
                let pool = pools.iter().find(|(domain, _)| domain == id.trust_domain());
                prove(&pool.ok_or(CertificateError::UnknownIssuer)?.1)?;
            }
        }
        if self.match_sans.iter().any(|san| san.accepts(leaf, &facts)) {
            return Ok(());
        }
        let text = format!("match_sans accepts no name of the server's certificate: {}", names_text(&facts));
        Err(Refusal::new(Reason::Identity, text).into_error())
    }
}

fn is_authority(leaf: &CertificateDer<'_>) -> bool {
    Certificate::parse(leaf).is_ok_and(|facts| facts.is_authority)
}

fn authority_refused() -> Error {
    let text = "the server's certificate is one of an authority (basic constraints with CA), which is accepted for a server \
                only if exactly this certificate, signed by itself, stands in ca_certificate_file";
    Refusal::new(Reason::Purpose, text).into_error()
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    provider().signature_verification_algorithms
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.judge(leaf, intermediates, name, now).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, cert, signed, &algorithms())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, cert, signed, &algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        algorithms().supported_schemes()
    }
}
