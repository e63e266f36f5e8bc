//! The trust anchors that may prove a leaf (SEC-12).

#[cfg(test)]
mod tests;

use std::sync::Arc;

use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, Error, RootCertStore};

use super::certificate::{Certificate, Reach, unix_time};
use super::provider::provider;

/// The anchors of one trust domain. webpki takes every anchor for an authority: the holder of a server's own
/// certificate could otherwise sign for all other servers.
#[derive(Debug)]
pub struct AnchorPool<T = Arc<RootCertStore>> {
    /// `None` without any.
    authorities: Option<T>,
    /// Certificates that prove themselves alone.
    alone: Vec<(CertificateDer<'static>, T)>,
    /// Authorities that a server may also show as its own certificate.
    itself_too: Vec<CertificateDer<'static>>,
}

impl AnchorPool {
    /// A pool of certificates and what they prove; of unusable ones, nothing.
    pub fn new(anchors: impl IntoIterator<Item = (CertificateDer<'static>, Option<Reach>)>) -> AnchorPool {
        let mut authorities = RootCertStore::empty();
        let (mut alone, mut itself_too) = (Vec::new(), Vec::new());
        for (der, reach) in anchors {
            let mut itself = RootCertStore::empty();
            match reach {
                Some(Reach::Others) => _ = authorities.add(der),
                Some(Reach::OthersAndItself) if authorities.add(der.clone()).is_ok() => itself_too.push(der),
                Some(Reach::Itself) if itself.add(der.clone()).is_ok() => alone.push((der, Arc::new(itself))),
                _ => {}
            }
        }
        AnchorPool {
            authorities: (!authorities.is_empty()).then(|| Arc::new(authorities)),
            alone,
            itself_too,
        }
    }
}

impl<T> AnchorPool<T> {
    pub fn is_empty(&self) -> bool {
        self.authorities.is_none() && self.alone.is_empty()
    }

    /// The anchors that may prove a leaf.
    pub fn of(&self, leaf: &CertificateDer<'_>) -> Option<&T> {
        let itself = self.alone.iter().find(|(der, _)| der == leaf);
        itself.map(|(_, anchor)| anchor).or(self.authorities.as_ref())
    }

    /// Judges a leaf that is one of the authorities itself, equal in each byte, as a server's: by its times
    /// and its purpose. webpki takes no authority for a leaf. `None`: the leaf is none of them.
    pub fn judge_itself(
        &self,
        leaf: &CertificateDer<'_>,
        now: UnixTime,
    ) -> Option<Result<(), CertificateError>> {
        let itself = self.itself_too.iter().find(|der| *der == leaf)?;
        Some(Certificate::parse(itself).map_err(|_| CertificateError::BadEncoding).and_then(|facts| {
            let (not_before, not_after) = (unix_time(facts.not_before), unix_time(facts.not_after));
            match facts.purposes {
                _ if now < not_before => Err(CertificateError::NotValidYetContext { time: now, not_before }),
                _ if not_after < now => Err(CertificateError::ExpiredContext { time: now, not_after }),
                Some(purposes) if !purposes.server => Err(CertificateError::InvalidPurpose),
                _ => Ok(()),
            }
        }))
    }

    /// The anchors in their groups.
    pub fn groups(&self) -> impl Iterator<Item = &T> {
        self.authorities.iter().chain(self.alone.iter().map(|(_, anchor)| anchor))
    }

    /// # Errors
    /// The first error of `make`.
    pub fn try_map<U, E>(&self, make: impl Fn(&T) -> Result<U, E>) -> Result<AnchorPool<U>, E> {
        let alone = self.alone.iter().map(|(der, anchor)| Ok((der.clone(), make(anchor)?)));
        Ok(AnchorPool {
            authorities: self.authorities.as_ref().map(&make).transpose()?,
            alone: alone.collect::<Result<_, E>>()?,
            itself_too: self.itself_too.clone(),
        })
    }
}

/// Whether a certificate may stand among trust anchors.
///
/// # Errors
/// A leaf of an authority: the holder of its key could sign for all. An authority whose key must not verify
/// certificates (RFC 5280, section 4.2.1.9): webpki takes subject, key and name constraints of an anchor, and
/// never looks at its key usage.
pub(super) fn check_anchor(der: &CertificateDer<'_>, facts: &Certificate) -> Result<(), &'static str> {
    let must_not_sign = facts.key_usage.is_some_and(|usage| !usage.certificate_sign);
    if facts.is_authority && must_not_sign {
        return Err("an authority whose key must not sign certificates (key usage without keyCertSign)");
    }
    let is_good = match facts.reach {
        Some(Reach::Others | Reach::OthersAndItself) => true,
        // A leaf may have the name of its authority by mistake.
        Some(Reach::Itself) => {
            let mut itself = RootCertStore::empty();
            let is_usable = itself.add(CertificateDer::from(der.to_vec())).is_ok();
            !is_usable || is_issued_by(&Arc::new(itself), der, &[], unix_time(facts.not_before))
        }
        None => false,
    };
    is_good.then_some(()).ok_or("not an authority (basic constraints without CA), nor signed by its own key")
}

/// Whether one of these anchors has signed a chain. The purpose of the key is no matter.
pub(super) fn is_issued_by(
    roots: &Arc<RootCertStore>,
    leaf: &CertificateDer<'_>,
    above: &[CertificateDer<'_>],
    now: UnixTime,
) -> bool {
    let is_foreign = |judged: &Result<(), Error>| {
        use CertificateError as C;
        matches!(judged, Err(Error::InvalidCertificate(C::UnknownIssuer | C::BadSignature)))
    };
    let judged = [as_server(leaf, above, roots, now), as_client(leaf, above, roots.clone(), now)];
    judged.iter().any(Result::is_ok) || !judged.iter().any(is_foreign)
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
    roots: Arc<RootCertStore>,
    now: UnixTime,
) -> Result<(), Error> {
    let Ok(verifier) = WebPkiClientVerifier::builder_with_provider(roots, provider()).build() else {
        return Err(CertificateError::UnknownIssuer.into());
    };
    verifier.verify_client_cert(leaf, above, now).map(drop)
}
