//! Our own certificate against the authorities in our own files (CRT-5).

use std::path::Path;
use std::time::SystemTime;

use super::anchors::Anchors;
use super::certificate::unix_time;
use super::fault::Fault;
use super::identity::spiffe_id;
use super::pair::Pair;
use super::pool::is_issued_by;

/// Judges our certificates by the anchors for our peers. The anchors say nothing of a certificate without a
/// SPIFFE ID, or of another trust domain: the authority of our own certificate may well be another than the
/// one of our peers.
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
        let is_known = self.anchors.domains().any(|trusted| trusted == Some(&domain));
        (is_known && !self.are_issuers_of(pair)).then_some(domain)
    }

    fn are_issuers_of(&self, pair: &Pair) -> bool {
        let Ok(id) = spiffe_id(&pair.leaf) else { return true };
        let pool = self.anchors.pool(Some(id.trust_domain()), self.now);
        let [leaf, above @ ..] = pair.certified.cert.as_slice() else { return true };
        pool.of(leaf).is_some_and(|roots| is_issued_by(roots, leaf, above, unix_time(self.now)))
    }
}
