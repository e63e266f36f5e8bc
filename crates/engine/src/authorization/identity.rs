//! Patterns of identities (AUT-3). `{name}` takes exactly one segment of a SPIFFE ID's path, or one label of
//! a DNS name.

use crate::authorization::template::Captures;
use sluice_identity::Identity;
use sluice_identity::spiffe::{SpiffeId, check_trust_domain};

/// The identities that a rule is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityPattern {
    /// Every client, also an anonymous one.
    Any,
    Anonymous,
    /// The users of a unix socket.
    Unix(Box<[u32]>),
    Spiffe {
        trust_domain: Box<str>,
        segments: Box<[PatternPart]>,
    },
    /// The labels of a DNS name, in lower case.
    Dns(Box<[PatternPart]>),
    /// Every client that the authorities of a trust domain have proved, by a SPIFFE ID or without a name.
    TrustDomain(Box<str>),
}

/// A segment or a label of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternPart {
    Literal(Box<str>),
    Capture(Box<str>),
}

/// The reason why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError(pub String);

impl IdentityPattern {
    /// Parses `spiffe://TRUST-DOMAIN/SEGMENT/…`, in which a segment may be `{name}`.
    ///
    /// # Errors
    /// The fault in words.
    pub fn spiffe(text: &str) -> Result<IdentityPattern, PatternError> {
        let expected = || PatternError("does not begin with spiffe://TRUST-DOMAIN/".to_owned());
        let rest = text.strip_prefix("spiffe://").ok_or_else(expected)?;
        let (trust_domain, path) = rest.split_once('/').ok_or_else(expected)?;
        check_trust_domain(trust_domain).map_err(|error| PatternError(error.to_string()))?;
        let segments = parts(path.split('/'))?;
        // A pattern that no SPIFFE ID can match is a mistake: each capture becomes a valid segment for this
        // check.
        let sample: Vec<&str> = segments.iter().map(PatternPart::sample).collect();
        let sample = format!("spiffe://{trust_domain}/{}", sample.join("/"));
        SpiffeId::parse(&sample).map_err(|error| PatternError(error.to_string()))?;
        Ok(IdentityPattern::Spiffe { trust_domain: trust_domain.into(), segments })
    }

    /// Parses a DNS name, in which a label may be `{name}`.
    ///
    /// # Errors
    /// The fault in words.
    pub fn dns(text: &str) -> Result<IdentityPattern, PatternError> {
        let labels = parts(text.split('.'))?;
        let is_label = |part: &PatternPart| match part {
            PatternPart::Capture(_) => true,
            PatternPart::Literal(label) => {
                let valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
                !label.is_empty() && label.len() <= 63 && label.bytes().all(valid)
            }
        };
        if !labels.iter().all(is_label) {
            return Err(PatternError("a label is empty, too long or has a character of no DNS name".into()));
        }
        let lower = |part: PatternPart| match part {
            PatternPart::Literal(label) => PatternPart::Literal(label.to_ascii_lowercase().into()),
            capture @ PatternPart::Capture(_) => capture,
        };
        Ok(IdentityPattern::Dns(labels.into_iter().map(lower).collect()))
    }

    /// The names of the captures, in order.
    pub fn captures(&self) -> Vec<String> {
        let parts: &[PatternPart] = match self {
            IdentityPattern::Spiffe { segments, .. } => segments,
            IdentityPattern::Dns(labels) => labels,
            IdentityPattern::Any
            | IdentityPattern::Anonymous
            | IdentityPattern::Unix(_)
            | IdentityPattern::TrustDomain(_) => &[],
        };
        let name = |part: &PatternPart| match part {
            PatternPart::Capture(name) => Some(name.to_string()),
            PatternPart::Literal(_) => None,
        };
        parts.iter().filter_map(name).collect()
    }

    /// The captures of an identity that matches; `None` if the identity does not match.
    pub fn matches(&self, identity: &Identity) -> Option<Captures> {
        match (self, identity) {
            (IdentityPattern::Any, _) | (IdentityPattern::Anonymous, Identity::Anonymous) => {
                Some(Captures::default())
            }
            (IdentityPattern::Unix(users), Identity::Unix { uid }) => {
                users.contains(uid).then(Captures::default)
            }
            (IdentityPattern::Spiffe { trust_domain, segments }, Identity::Spiffe(id)) => {
                (id.trust_domain() == &**trust_domain).then(|| capture(segments, id.segments()))?
            }
            (IdentityPattern::Dns(labels), Identity::Dns(name)) => capture(labels, name.split('.')),
            (IdentityPattern::TrustDomain(name), Identity::TrustDomain(proved)) => {
                (name == proved).then(Captures::default)
            }
            (IdentityPattern::TrustDomain(name), Identity::Spiffe(id)) => {
                (**name == *id.trust_domain()).then(Captures::default)
            }
            _ => None,
        }
    }
}

fn parts<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Box<[PatternPart]>, PatternError> {
    let mut parts: Vec<PatternPart> = Vec::new();
    for text in texts {
        let Some(name) = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) else {
            if text.contains(['{', '}']) {
                return Err(PatternError(format!("a capture takes a whole part, and {text:?} is more")));
            }
            parts.push(PatternPart::Literal(text.into()));
            continue;
        };
        let is_name = !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if !is_name {
            return Err(PatternError(format!("{text:?} is no capture; names have a-z, 0-9 and _")));
        }
        if parts.iter().any(|part| matches!(part, PatternPart::Capture(earlier) if **earlier == *name)) {
            return Err(PatternError(format!("{text:?} stands in it twice")));
        }
        parts.push(PatternPart::Capture(name.into()));
    }
    Ok(parts.into())
}

/// Matches part by part: a capture never spans a separator.
fn capture<'a>(parts: &[PatternPart], mut texts: impl Iterator<Item = &'a str>) -> Option<Captures> {
    let mut captures = Vec::new();
    for part in parts {
        let text = texts.next()?;
        match part {
            PatternPart::Literal(literal) if **literal == *text => {}
            PatternPart::Literal(_) => return None,
            PatternPart::Capture(_) if text.is_empty() => return None,
            PatternPart::Capture(_) => captures.push(text.into()),
        }
    }
    texts.next().is_none().then(|| captures.into())
}

impl PatternPart {
    fn sample(&self) -> &str {
        match self {
            PatternPart::Literal(text) => text,
            PatternPart::Capture(_) => "x",
        }
    }
}
