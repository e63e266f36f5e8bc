//! SPIFFE IDs: `spiffe://TRUST-DOMAIN/PATH` (SPIFFE-ID, section 2).

use std::fmt;

/// The longest SPIFFE ID, in bytes (SPIFFE-ID, section 2.3).
pub const LENGTH_MAX: usize = 2048;
/// The longest trust domain, in bytes (SPIFFE-ID, section 2.3).
pub const TRUST_DOMAIN_MAX: usize = 255;

const SCHEME: &str = "spiffe://";

/// A valid SPIFFE ID of a workload: the path is not empty.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpiffeId {
    /// The whole ID, with the scheme.
    text: Box<str>,
    /// The end of the trust domain in `text`.
    path_at: usize,
}

/// A text is no SPIFFE ID, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpiffeError {
    #[error("longer than {LENGTH_MAX} bytes")]
    TooLong,
    #[error("does not begin with spiffe://")]
    Scheme,
    #[error("the trust domain must have 1 to {TRUST_DOMAIN_MAX} characters of a-z, 0-9, '.', '-' and '_'")]
    TrustDomain,
    #[error("the path is empty; the ID names a whole trust domain and no workload")]
    NoPath,
    #[error("a segment of the path is empty, or '.' or '..'")]
    Segment,
    #[error("a segment of the path has a character outside of a-z, A-Z, 0-9, '.', '-' and '_'")]
    Character,
}

impl SpiffeId {
    /// Parses the ID of a workload (IDN-2).
    ///
    /// # Errors
    /// The first rule that `text` breaks.
    pub fn parse(text: &str) -> Result<SpiffeId, SpiffeError> {
        if text.len() > LENGTH_MAX {
            return Err(SpiffeError::TooLong);
        }
        let rest = text.strip_prefix(SCHEME).ok_or(SpiffeError::Scheme)?;
        let (domain, path) = rest.split_once('/').map_or((rest, None), |(domain, path)| (domain, Some(path)));
        check_trust_domain(domain)?;
        let path = path.ok_or(SpiffeError::NoPath)?;
        for segment in path.split('/') {
            if matches!(segment, "" | "." | "..") {
                return Err(SpiffeError::Segment);
            }
            if !segment.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_')) {
                return Err(SpiffeError::Character);
            }
        }
        Ok(SpiffeId { text: text.into(), path_at: SCHEME.len() + domain.len() })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn trust_domain(&self) -> &str {
        self.text.get(SCHEME.len()..self.path_at).unwrap_or_default()
    }

    /// The segments of the path, at least one.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.text.get(self.path_at + 1..).unwrap_or_default().split('/')
    }
}

/// Whether a text is a valid trust domain.
///
/// # Errors
/// [`SpiffeError::TrustDomain`].
pub fn check_trust_domain(domain: &str) -> Result<(), SpiffeError> {
    let is_valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'_');
    if domain.is_empty() || domain.len() > TRUST_DOMAIN_MAX || !domain.bytes().all(is_valid) {
        return Err(SpiffeError::TrustDomain);
    }
    Ok(())
}

impl fmt::Display for SpiffeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for SpiffeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn idn_2_a_workload_has_a_trust_domain_and_a_path() {
        let id = SpiffeId::parse("spiffe://prod.example/ns/shop/sa/web").unwrap();
        assert_eq!(id.trust_domain(), "prod.example");
        assert_eq!(id.segments().collect::<Vec<_>>(), ["ns", "shop", "sa", "web"]);
        assert_eq!(id.to_string(), "spiffe://prod.example/ns/shop/sa/web");
    }

    #[test]
    fn idn_2_every_other_form_is_refused() {
        let long_domain = format!("spiffe://{}/a", "d".repeat(TRUST_DOMAIN_MAX + 1));
        let long = format!("spiffe://d/{}", "a".repeat(LENGTH_MAX));
        for (text, error) in [
            ("", SpiffeError::Scheme),
            ("https://d/a", SpiffeError::Scheme),
            ("SPIFFE://d/a", SpiffeError::Scheme),
            ("spiffe:///a", SpiffeError::TrustDomain),
            ("spiffe://D/a", SpiffeError::TrustDomain),
            ("spiffe://d:1/a", SpiffeError::TrustDomain),
            ("spiffe://u@d/a", SpiffeError::TrustDomain),
            ("spiffe://d?q/a", SpiffeError::TrustDomain),
            (&long_domain, SpiffeError::TrustDomain),
            ("spiffe://d", SpiffeError::NoPath),
            ("spiffe://d/", SpiffeError::Segment),
            ("spiffe://d/a/", SpiffeError::Segment),
            ("spiffe://d//a", SpiffeError::Segment),
            ("spiffe://d/./a", SpiffeError::Segment),
            ("spiffe://d/a/..", SpiffeError::Segment),
            ("spiffe://d/a%2fb", SpiffeError::Character),
            ("spiffe://d/a?b", SpiffeError::Character),
            ("spiffe://d/a#b", SpiffeError::Character),
            ("spiffe://d/a\0", SpiffeError::Character),
            ("spiffe://d/é", SpiffeError::Character),
            (&long, SpiffeError::TooLong),
        ] {
            assert_eq!(SpiffeId::parse(text), Err(error), "{text:?}");
        }
    }
}
