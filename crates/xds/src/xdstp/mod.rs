//! `xdstp:` names: their parts, and the canonical spelling that makes equal names the same key.
//!
//! Two names are equal if authority, type and id are equivalent by RFC 3986, 6.2.2, and the context
//! parameters are equal as a set (NAM-6). An escape of an unreserved character equals the character. An
//! escape of a reserved character is data where the character may be a delimiter: `x%2Fy` is one segment of
//! an id, and `x/y` two (ADR 57).
//!
//! [`canonical`] gives equal names one spelling (NAM-7): parameters sorted by key, no escape of an unreserved
//! character, other escapes with upper-case digits, and escapes in place of characters that no URI contains.
//! Names as C-core, grpc-go and Envoy write them are canonical already, apart from the order of parameters.
//! So are nearly all names of control planes that compare names as strings.

use std::borrow::Cow;
use std::fmt;

/// The scheme without the slashes of the authority. A name with this prefix is never an old-style name
/// (NAM-3).
pub const SCHEME: &str = "xdstp:";

const PREFIX: &str = "xdstp://";

/// The parts of a name in the canonical spelling (NAM-1). Directives are dropped: they are for clients, and
/// no part of the name (NAM-2, NAM-13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xdstp {
    /// The authority that owns the name. May be empty; the empty authority is an authority, too (NAM-4).
    pub authority: String,
    /// The full message name of the resource's type.
    pub resource_type: String,
    /// One or more segments, with the slashes between them.
    pub id: String,
    /// Context parameters, sorted by key. A repeated key stays repeated, see [`Xdstp::has_duplicate_key`].
    pub context: Vec<(String, String)>,
}

/// The reason why a name cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameError {
    /// Not `xdstp://[authority]/<type>/<id>` (NAM-1).
    NoAuthority,
    NoType,
    NoId,
    /// A `%` without two hexadecimal digits after it.
    BadEscape,
    /// The text is not UTF-8 after percent-decoding.
    NotUtf8,
    /// A context parameter without a key.
    NoKey,
    /// The type in the name differs from the type of the request (NAM-5).
    WrongType {
        stated: String,
        expected: String,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameError::NoAuthority => f.write_str("an xdstp name begins with `xdstp://[authority]/`"),
            NameError::NoType => f.write_str("no resource type follows the authority"),
            NameError::NoId => f.write_str("no id follows the resource type"),
            NameError::BadEscape => f.write_str("`%` must be followed by two hexadecimal digits"),
            NameError::NotUtf8 => f.write_str("the name is not UTF-8 after percent-decoding"),
            NameError::NoKey => f.write_str("a context parameter has no key"),
            NameError::WrongType { stated, expected } => {
                write!(f, "the name has type {stated}, but the request is for {expected}")
            }
        }
    }
}

impl std::error::Error for NameError {}

impl Xdstp {
    /// Parses a name. Drops the fragment.
    pub fn parse(name: &str) -> Result<Xdstp, NameError> {
        let name = without_directives(name);
        let rest = name.strip_prefix(PREFIX).ok_or(NameError::NoAuthority)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = path.split_once('/').ok_or(NameError::NoType)?;
        let (resource_type, id) =
            path.split_once('/').ok_or(if path.is_empty() { NameError::NoType } else { NameError::NoId })?;
        if resource_type.is_empty() {
            return Err(NameError::NoType);
        }
        if id.is_empty() {
            return Err(NameError::NoId);
        }
        let mut context = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if key.is_empty() {
                return Err(NameError::NoKey);
            }
            context.push((normal(key, is_query)?, normal(value, is_value)?));
        }
        context.sort();
        Ok(Xdstp {
            authority: normal(authority, is_authority)?,
            resource_type: normal(resource_type, is_path)?,
            id: normal(id, |byte| is_path(byte) || byte == b'/')?,
            context,
        })
    }

    /// Whether a key occurs twice. Clients disagree on the value that counts (NAM-9), so such a name equals
    /// only itself.
    pub fn has_duplicate_key(&self) -> bool {
        self.context.windows(2).any(|pair| pair[0].0 == pair[1].0)
    }
}

/// The canonical spelling.
impl fmt::Display for Xdstp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}/{}/{}", self.authority, self.resource_type, self.id)?;
        for (index, (key, value)) in self.context.iter().enumerate() {
            write!(f, "{}{key}={value}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

/// The canonical spelling of an authority (NAM-7). A text with a malformed escape is taken literally.
pub fn spell_authority(authority: &str) -> String {
    normal(authority, is_authority).unwrap_or_else(|_| escaped(authority, is_authority))
}

/// The canonical spelling of a name, used as its key. A name with a repeated context key stays as sent
/// (NAM-9). Old-style names are opaque. Borrows if the name is canonical already, as nearly all names are.
pub fn canonical(name: &str) -> Result<Cow<'_, str>, NameError> {
    if !name.starts_with(SCHEME) {
        return Ok(Cow::Borrowed(name));
    }
    let parts = Xdstp::parse(name)?;
    Ok(canonical_of(name, &parts))
}

/// Like [`canonical`], for a name in a request for resources of this message type (NAM-5).
pub fn canonical_of_type<'a>(name: &'a str, message: &str) -> Result<Cow<'a, str>, NameError> {
    if !name.starts_with(SCHEME) {
        return Ok(Cow::Borrowed(name));
    }
    let parts = Xdstp::parse(name)?;
    if parts.resource_type != message {
        return Err(NameError::WrongType { stated: parts.resource_type, expected: message.to_owned() });
    }
    Ok(canonical_of(name, &parts))
}

fn canonical_of<'a>(name: &'a str, parts: &Xdstp) -> Cow<'a, str> {
    let bare = without_directives(name);
    if parts.has_duplicate_key() {
        return Cow::Borrowed(bare);
    }
    let text = parts.to_string();
    if text == bare { Cow::Borrowed(bare) } else { Cow::Owned(text) }
}

/// Whether a canonical name names a glob collection: the last segment of its id is `*` (NAM-14).
pub fn is_glob(name: &str) -> bool {
    name.starts_with(PREFIX) && path_of(name).ends_with("/*")
}

/// The glob collection that contains a canonical name: one level up, with the same context (NAM-14, NAM-15).
/// `None` for old-style names and for globs.
pub fn glob_of(name: &str) -> Option<String> {
    let id = path_of(name.strip_prefix(PREFIX)?).rfind('/')? + PREFIX.len() + 1;
    let path = path_of(name);
    let last = path.get(id..)?;
    // Type and id are at least two segments.
    let levels = path.get(PREFIX.len()..)?.matches('/').count();
    (last != "*" && levels >= 2).then(|| format!("{}*{}", &name[..id], &name[path.len()..]))
}

/// The name of a glob's member, spelled for a client that spelled the glob in a non-canonical way (NAM-8,
/// NAM-11). `spelled` is the glob as the client wrote it; `member` is the canonical name.
pub fn member_as(spelled: &str, member: &str) -> Option<String> {
    let path = path_of(member);
    let last = path.rsplit('/').next()?;
    let spelled = without_directives(spelled);
    let star = path_of(spelled).len().checked_sub(1)?;
    let from = spelled.get(..=star)?.rfind('/').map_or(0, |slash| slash + 1);
    Some(format!("{}{last}{}", spelled.get(..from)?, spelled.get(star + 1..)?))
}

fn path_of(name: &str) -> &str {
    name.split_once('?').map_or(name, |(path, _)| path)
}

fn without_directives(name: &str) -> &str {
    name.split_once('#').map_or(name, |(name, _)| name)
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn is_path(byte: u8) -> bool {
    is_unreserved(byte) || b"!$&'()*+,;=:@".contains(&byte)
}

fn is_authority(byte: u8) -> bool {
    is_path(byte) || matches!(byte, b'[' | b']')
}

fn is_query(byte: u8) -> bool {
    (is_path(byte) && !matches!(byte, b'&' | b'=')) || matches!(byte, b'/' | b'?')
}

/// A value may contain `=`: the first one of a pair ends the key.
fn is_value(byte: u8) -> bool {
    is_query(byte) || byte == b'='
}

/// The canonical spelling of a component, in which these characters need no escape. The crate
/// `percent-encoding` leaves bad escapes as they are, and tells no escaped character from a plain one.
fn normal(text: &str, is_plain: impl Fn(u8) -> bool) -> Result<String, NameError> {
    if !text.contains('%') {
        return Ok(escaped(text, is_plain));
    }
    let mut spelled = String::with_capacity(text.len());
    let mut decoded = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'%' {
            put(&mut spelled, *first, &is_plain);
            decoded.push(*first);
            continue;
        }
        let digit = |at: usize| tail.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else { return Err(NameError::BadEscape) };
        let byte = u8::try_from(high << 4 | low).map_err(|_| NameError::BadEscape)?;
        put(&mut spelled, byte, is_unreserved);
        decoded.push(byte);
        rest = &tail[2..];
    }
    String::from_utf8(decoded).map_err(|_| NameError::NotUtf8)?;
    Ok(spelled)
}

/// Escapes all but plain characters.
fn escaped(text: &str, is_plain: impl Fn(u8) -> bool) -> String {
    let mut spelled = String::with_capacity(text.len());
    text.bytes().for_each(|byte| put(&mut spelled, byte, &is_plain));
    spelled
}

fn put(into: &mut String, byte: u8, is_plain: impl Fn(u8) -> bool) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if is_plain(byte) {
        into.push(char::from(byte));
    } else {
        into.push('%');
        into.push(char::from(DIGITS[usize::from(byte >> 4)]));
        into.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

#[cfg(test)]
mod tests;
