//! Trust anchors, apart by trust domain (IDN-3).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::SystemTime;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;

use super::bundle_map;
use super::certificate::{Certificate, time_text};
use super::contents::{Contents, PlaceFile};
use super::fault::Fault;
use super::pem;
use super::pool::AnchorPool;

/// Authorities of one subject above which a WARN is due: a chain costs a signature check for each (SEC-5).
const SAME_SUBJECT_MAX: usize = 16;

/// The files with trust anchors.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnchorFiles {
    /// PEM. The authorities speak for `trust_domain` alone; `None`: identities have no trust domain.
    Authorities { file: PathBuf, trust_domain: Option<String> },
    /// JSON with the anchors of several trust domains.
    BundleMap(PathBuf),
}

impl AnchorFiles {
    pub fn path(&self) -> &PathBuf {
        match self {
            AnchorFiles::Authorities { file, .. } => file,
            AnchorFiles::BundleMap(file) => file,
        }
    }

    /// The one trust domain for which the authorities speak.
    pub fn trust_domain(&self) -> Option<&str> {
        match self {
            AnchorFiles::Authorities { trust_domain, .. } => trust_domain.as_deref(),
            AnchorFiles::BundleMap(_) => None,
        }
    }

    /// The file with its key in the configuration.
    pub fn file(&self) -> PlaceFile {
        PlaceFile::new(self.key(), self.path())
    }

    fn key(&self) -> &'static str {
        match self {
            AnchorFiles::Authorities { .. } => "ca_certificate_file",
            AnchorFiles::BundleMap(_) => "spiffe_trust_bundle_map_file",
        }
    }
}

/// One trust anchor.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Anchor {
    der: CertificateDer<'static>,
    facts: Certificate,
}

/// Trust anchors by trust domain; `None` stands for names without a trust domain. Anchors of different
/// domains are never pooled: each authority could otherwise sign for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchors(BTreeMap<Option<String>, Vec<Anchor>>);

impl Anchors {
    /// # Errors
    /// A malformed file, or one without any anchor.
    pub fn read(files: &AnchorFiles, contents: &Contents) -> Result<Anchors, Fault> {
        let bytes = contents.of(files.path());
        let by_domain: Vec<(Option<String>, Vec<CertificateDer<'static>>)> = match files {
            AnchorFiles::Authorities { file, trust_domain } => {
                let authorities = pem::anchors(file, bytes).map_err(|f| f.at(files.key()))?;
                vec![(trust_domain.clone(), authorities)]
            }
            AnchorFiles::BundleMap(file) => {
                let map = bundle_map::read(file, bytes).map_err(|f| f.at(files.key()))?;
                map.into_iter().map(|(domain, anchors)| (Some(domain), anchors)).collect()
            }
        };
        let anchor =
            |der: CertificateDer<'static>| Certificate::parse(&der).ok().map(|facts| Anchor { der, facts });
        Ok(Anchors(
            by_domain
                .into_iter()
                .map(|(domain, ders)| (domain, ders.into_iter().filter_map(anchor).collect()))
                .collect(),
        ))
    }

    /// The trust domains; `None` for names without a domain.
    pub fn domains(&self) -> impl Iterator<Item = Option<&str>> {
        self.0.keys().map(Option::as_deref)
    }

    /// The anchors of a domain for rustls. Expired anchors are left out: webpki would trust them for ever
    /// (CRT-6). One that webpki cannot use is named by `remarks`.
    pub fn pool(&self, domain: Option<&str>, now: SystemTime) -> AnchorPool {
        let anchors = self.0.iter().find(|(other, _)| other.as_deref() == domain);
        let anchors = anchors.into_iter().flat_map(|(_, anchors)| anchors);
        let valid = anchors.filter(|anchor| !anchor.facts.is_expired(now));
        AnchorPool::new(valid.map(|anchor| (anchor.der.clone(), anchor.facts.reach)))
    }

    /// The number of anchors that are still valid.
    pub fn valid_at(&self, now: SystemTime) -> usize {
        self.0.values().flatten().filter(|anchor| !anchor.facts.is_expired(now)).count()
    }

    /// The validity of the valid anchor that ends first.
    pub fn first_to_end(&self, now: SystemTime) -> Option<(SystemTime, SystemTime)> {
        let valid =
            self.0.values().flatten().map(|anchor| &anchor.facts).filter(|facts| !facts.is_expired(now));
        valid.map(|facts| (facts.not_before, facts.not_after)).min_by_key(|(_, end)| *end)
    }

    /// Oddities for the log, one sentence each.
    pub fn remarks(&self, now: SystemTime) -> Vec<String> {
        let mut remarks = Vec::new();
        for (domain, anchors) in &self.0 {
            let owner =
                domain.as_ref().map(|domain| format!(" of trust domain {domain}")).unwrap_or_default();
            let expired: Vec<_> = anchors.iter().filter(|anchor| anchor.facts.is_expired(now)).collect();
            if let Some(last) = expired.iter().map(|anchor| anchor.facts.not_after).max() {
                remarks.push(format!(
                    "{} expired authorities{owner} are left out; the last ended at {}",
                    expired.len(),
                    time_text(last)
                ));
            }
            if anchors.iter().any(|anchor| anchor.facts.has_name_constraints) {
                remarks.push(format!(
                    "an authority{owner} has name constraints; certificates below URI constraints are refused"
                ));
            }
            let unusable =
                anchors.iter().filter(|anchor| RootCertStore::empty().add(anchor.der.clone()).is_err());
            match unusable.count() {
                0 => {}
                count => remarks.push(format!("{count} authorities{owner} cannot be used as trust anchors")),
            }
            let mut subjects: BTreeMap<&[u8], usize> = BTreeMap::new();
            for anchor in anchors {
                *subjects.entry(&anchor.facts.subject).or_default() += 1;
            }
            if subjects.values().any(|count| *count > SAME_SUBJECT_MAX) {
                remarks.push(format!(
                    "more than {SAME_SUBJECT_MAX} authorities{owner} have the same subject; each costs a signature \
                     check for each connection"
                ));
            }
        }
        remarks
    }
}
