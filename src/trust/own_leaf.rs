//! Our own certificate against the authorities in our own files (CRT-5).

use std::path::Path;
use std::time::SystemTime;

use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, Error, RootCertStore};

use super::anchors::Anchors;
use super::certificate::unix_time;
use super::fault::Fault;
use super::identity::spiffe_id;
use super::pair::Pair;
use super::provider::provider;

/// Judges our certificates by the anchors for our peers. The anchors say nothing of a certificate without a SPIFFE ID,
/// or of another trust domain: the authority of our own certificate may well be another than the one of our peers.
pub struct OwnAuthorities<'a> {
    pub anchors: &'a Anchors,
    pub now: SystemTime,
}

impl OwnAuthorities<'_> {
    /// Refuses a new certificate of a foreign authority if the one in force is better.
    ///
    /// # Errors
    /// The authorities have issued the certificate in force, and not the new one.
    pub fn check(&self, new: &Pair, in_force: Option<&Pair>, path: &Path) -> Result<(), Fault> {
        let Some(domain) = self.foreign(new) else { return Ok(()) };
        if in_force.is_none_or(|old| old.certified.cert == new.certified.cert || !self.are_issuers_of(old)) {
            return Ok(());
        }
        let reason = format!(
            "the new certificate is not from the authorities of trust domain {domain}, unlike the one in use"
        );
        // New authorities may be in a file that is written a moment later (CRT-2).
        Err(Fault::passing(path, reason).at("certificate_file"))
    }

    /// A sentence for the log about a certificate of a foreign authority.
    pub fn remark(&self, pair: &Pair) -> Option<String> {
        let domain = self.foreign(pair)?;
        Some(format!(
            "our certificate names trust domain {domain}, and is not from the authorities of that domain in our \
             files; peers with the same authorities refuse the certificate"
        ))
    }

    /// The trust domain of a leaf that claims a known domain without its authorities.
    fn foreign(&self, pair: &Pair) -> Option<String> {
        let domain = spiffe_id(&pair.leaf).ok()?.trust_domain().to_owned();
        let is_known = self.anchors.domains().any(|known| known == Some(&domain));
        (is_known && !self.are_issuers_of(pair)).then_some(domain)
    }

    fn are_issuers_of(&self, pair: &Pair) -> bool {
        let Ok(id) = spiffe_id(&pair.leaf) else { return true };
        let roots = self.anchors.store(Some(id.trust_domain()), self.now);
        let [leaf, above @ ..] = pair.certified.cert.as_slice() else { return true };
        let now = unix_time(self.now);
        let is_foreign = |judged: &Result<(), Error>| {
            matches!(
                judged,
                Err(Error::InvalidCertificate(
                    CertificateError::UnknownIssuer | CertificateError::BadSignature
                ))
            )
        };
        // The purpose of the key is no matter here, so that one good judgement is enough.
        let judged = [as_server(leaf, above, &roots, now), as_client(leaf, above, roots, now)];
        judged.iter().any(Result::is_ok) || !judged.iter().any(is_foreign)
    }
}

fn as_server(
    leaf: &CertificateDer<'_>,
    above: &[CertificateDer<'_>],
    roots: &RootCertStore,
    now: UnixTime,
) -> Result<(), Error> {
    let algorithms = provider().signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(
        &ParsedCertificate::try_from(leaf)?,
        roots,
        above,
        now,
        algorithms,
    )
}

fn as_client(
    leaf: &CertificateDer<'_>,
    above: &[CertificateDer<'_>],
    roots: std::sync::Arc<RootCertStore>,
    now: UnixTime,
) -> Result<(), Error> {
    let Ok(verifier) = WebPkiClientVerifier::builder_with_provider(roots, provider()).build() else {
        return Err(CertificateError::UnknownIssuer.into());
    };
    verifier.verify_client_cert(leaf, above, now).map(drop)
}
