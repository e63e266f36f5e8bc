//! Certificate revocation lists (CRT-13).

use std::path::PathBuf;

use rustls::pki_types::CertificateRevocationListDer;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

use super::contents::Contents;
use super::fault::Fault;
use super::pem;

/// The revocation lists of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrlSettings {
    pub files: Vec<PathBuf>,
    pub depth: Depth,
    /// Accepts certificates of issuers without a list.
    pub allows_unknown: bool,
    /// Accepts lists after their time of the next update.
    pub allows_expired: bool,
}

/// The certificates of a chain that are looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    #[default]
    Leaf,
    /// Each certificate: every authority needs a list.
    Chain,
}

/// All lists of all files.
///
/// # Errors
/// A file with anything but lists.
pub fn read(
    settings: &CrlSettings,
    contents: &Contents,
) -> Result<Vec<CertificateRevocationListDer<'static>>, Fault> {
    let mut lists = Vec::new();
    for (index, path) in settings.files.iter().enumerate() {
        let at = |fault: Fault| fault.at(format!("crl.files[{index}]"));
        let read = pem::revocation_lists(path, contents.of(path)).map_err(at)?;
        let count = read.len();
        for (number, list) in read.into_iter().enumerate() {
            match CertificateRevocationList::from_der(&list) {
                Ok(([], _)) => lists.push(list),
                _ => {
                    let text =
                        "the certificate revocation list is malformed; the file as a whole is not used";
                    return Err(at(Fault::passing(path, text).block(number + 1, count)));
                }
            }
        }
    }
    Ok(lists)
}
