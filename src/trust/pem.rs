//! Blocks of PEM (RFC 7468), each judged with its number (CRT-3).

use std::path::Path;

use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

use super::certificate::Certificate;
use super::fault::Fault;
use super::pool::check_anchor;

/// The maximum number of blocks in a file (SEC-10): several times the number of all public authorities.
pub const BLOCKS_MAX: usize = 1024;

const BEGIN: &[u8] = b"-----BEGIN ";

/// All blocks of a file.
fn blocks(path: &Path, bytes: &[u8]) -> Result<Vec<(SectionKind, Vec<u8>)>, Fault> {
    let count = bytes.windows(BEGIN.len()).filter(|window| *window == BEGIN).count();
    if count > BLOCKS_MAX {
        return Err(Fault::new(path, format!("{count} PEM blocks; at most {BLOCKS_MAX} are allowed")));
    }
    let mut blocks = Vec::with_capacity(count);
    for block in <(SectionKind, Vec<u8>)>::pem_slice_iter(bytes) {
        match block {
            Ok(block) => blocks.push(block),
            // A half-written file ends within a block.
            Err(_) => {
                return Err(Fault::passing(path, "not valid PEM").block(blocks.len() + 1, count));
            }
        }
    }
    if blocks.len() < count {
        return Err(Fault::passing(path, "not a PEM block of a known kind").block(blocks.len() + 1, count));
    }
    Ok(blocks)
}

/// All certificates of a file, in order. Other kinds of blocks are ignored, so that a file may also contain
/// the key.
///
/// # Errors
/// A block that is no valid certificate: the file is bad as a whole. A file without any certificate.
pub fn certificates(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, Fault> {
    certificates_if(path, bytes, |_, _| Ok(()))
}

/// The trust anchors of a file, in order.
///
/// # Errors
/// As for [`certificates`], or a leaf of an authority.
pub fn anchors(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, Fault> {
    certificates_if(path, bytes, check_anchor)
}

fn certificates_if(
    path: &Path,
    bytes: &[u8],
    check: impl Fn(&CertificateDer<'_>, &Certificate) -> Result<(), &'static str>,
) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let blocks = blocks(path, bytes)?;
    let count = blocks.len();
    let mut certificates = Vec::new();
    for (number, (kind, der)) in blocks.into_iter().enumerate() {
        if kind == SectionKind::Certificate {
            let reason = |reason: &str| format!("{reason}; the file as a whole is not used");
            let facts = Certificate::parse(&der).map_err(|error| {
                let reason = reason(&format!("not a certificate ({error})"));
                Fault::passing(path, reason).block(number + 1, count)
            })?;
            let der = CertificateDer::from(der);
            check(&der, &facts).map_err(|error| Fault::new(path, reason(error)).block(number + 1, count))?;
            certificates.push(der);
        }
    }
    match certificates.is_empty() {
        true => Err(Fault::passing(path, "contains no certificate in PEM (BEGIN CERTIFICATE)")),
        false => Ok(certificates),
    }
}

/// The only private key of a file.
///
/// # Errors
/// No key, several keys, or a key in an unknown or encrypted form.
pub fn private_key(path: &Path, bytes: &[u8]) -> Result<PrivateKeyDer<'static>, Fault> {
    let mut keys = blocks(path, bytes)?.into_iter().filter_map(|(kind, der)| match kind {
        SectionKind::RsaPrivateKey => Some(PrivateKeyDer::Pkcs1(der.into())),
        SectionKind::PrivateKey => Some(PrivateKeyDer::Pkcs8(der.into())),
        SectionKind::EcPrivateKey => Some(PrivateKeyDer::Sec1(der.into())),
        _ => None,
    });
    match (keys.next(), keys.next()) {
        (Some(key), None) => Ok(key),
        (Some(_), Some(_)) => Err(Fault::passing(path, "contains more than one private key")),
        (None, _) => {
            let text = "contains no private key in PEM (BEGIN PRIVATE KEY; encrypted keys are not supported)";
            Err(Fault::passing(path, text))
        }
    }
}

/// All certificate revocation lists of a file.
///
/// # Errors
/// A block of another kind, or none.
pub fn revocation_lists(
    path: &Path,
    bytes: &[u8],
) -> Result<Vec<CertificateRevocationListDer<'static>>, Fault> {
    let blocks = blocks(path, bytes)?;
    let count = blocks.len();
    let mut lists = Vec::new();
    for (number, (kind, der)) in blocks.into_iter().enumerate() {
        if kind != SectionKind::Crl {
            let text = "not a certificate revocation list (BEGIN X509 CRL)";
            return Err(Fault::passing(path, text).block(number + 1, count));
        }
        lists.push(CertificateRevocationListDer::from(der));
    }
    match lists.is_empty() {
        true => Err(Fault::passing(path, "contains no certificate revocation list in PEM (BEGIN X509 CRL)")),
        false => Ok(lists),
    }
}
