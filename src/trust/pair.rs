//! A certificate chain with its private key.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::sign::CertifiedKey;

use super::certificate::{Certificate, time_text};
use super::contents::{Contents, PlaceFile};
use super::fault::Fault;
use super::pem;
use super::provider::provider;

/// A new certificate must be valid for at least this time (CRT-4).
const REMAINING_MIN: Duration = Duration::from_secs(60);

/// In the mode of a file.
const READABLE_BY_ALL: u32 = 0o004;

/// The two files of a pair.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PairFiles {
    pub certificate: PathBuf,
    pub private_key: PathBuf,
}

impl PairFiles {
    /// Both files. `prefix`: the key of the pair, with a dot, or nothing.
    pub fn files(&self, prefix: &str) -> [PlaceFile; 2] {
        [
            PlaceFile::new(format!("{prefix}certificate_file"), &self.certificate),
            PlaceFile::new(format!("{prefix}private_key_file"), &self.private_key),
        ]
    }
}

/// A chain with the key of its leaf; the two match.
#[derive(Clone, Debug)]
pub struct Pair {
    pub certified: Arc<CertifiedKey>,
    pub leaf: Certificate,
    /// The file of the key, if every user of this host can read it.
    open_key: Option<PathBuf>,
}

impl Pair {
    /// Reads a pair. `in_force` is the pair that the new one would replace.
    ///
    /// # Errors
    /// The files are malformed or do not belong together; or the new leaf is worse than the one in force
    /// (CRT-4).
    pub fn read(
        files: &PairFiles,
        contents: &Contents,
        in_force: Option<&Pair>,
        now: SystemTime,
    ) -> Result<Pair, Fault> {
        let at_certificate = |fault: Fault| fault.at("certificate_file");
        let at_key = |fault: Fault| fault.at("private_key_file");
        let chain =
            pem::certificates(&files.certificate, contents.of(&files.certificate)).map_err(at_certificate)?;
        let key = pem::private_key(&files.private_key, contents.of(&files.private_key)).map_err(at_key)?;
        let key = provider().key_provider.load_private_key(key).map_err(|_| {
            at_key(Fault::passing(&files.private_key, "the private key is malformed or of an unknown kind"))
        })?;
        let leaf = chain.first().map(|der| Certificate::parse(der)).transpose();
        let unusable =
            || at_certificate(Fault::new(&files.certificate, "the first certificate is malformed"));
        let leaf = leaf.ok().flatten().ok_or_else(unusable)?;
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match().map_err(|_| {
            let reason = format!(
                "not the key of the certificate in {}; expected the pair that was issued together",
                files.certificate.display()
            );
            at_key(Fault::passing(&files.private_key, reason))
        })?;
        let mode = fs::metadata(&files.private_key).map_or(0, |metadata| metadata.mode());
        let open_key = (mode & READABLE_BY_ALL != 0).then(|| files.private_key.clone());
        let pair = Pair { certified: Arc::new(certified), leaf, open_key };
        match in_force.and_then(|old| pair.is_worse_than(old, now)) {
            Some(reason) => Err(at_certificate(Fault::new(&files.certificate, reason))),
            None => Ok(pair),
        }
    }

    /// A sentence for the log about a key that is no secret on this host.
    pub fn remark(&self) -> Option<String> {
        let path = self.open_key.as_ref()?.display();
        Some(format!("{path}: every user of this host can read the private key; expected mode 0600 or 0640"))
    }

    /// The reason to keep the old pair (CRT-4).
    fn is_worse_than(&self, old: &Pair, now: SystemTime) -> Option<String> {
        if self.leaf == old.leaf {
            return None;
        }
        let (new_end, old_end) = (self.leaf.not_after, old.leaf.not_after);
        if self.leaf.not_before > now {
            let begin = time_text(self.leaf.not_before);
            return Some(format!(
                "the new certificate is not valid before {begin}; the time is {}",
                time_text(now)
            ));
        }
        if new_end < now + REMAINING_MIN {
            return Some(format!(
                "the new certificate ends at {}; the time is {}",
                time_text(new_end),
                time_text(now)
            ));
        }
        (new_end < old_end && old_end > now).then(|| {
            format!(
                "the new certificate ends at {}, before the one in use at {}",
                time_text(new_end),
                time_text(old_end)
            )
        })
    }
}
