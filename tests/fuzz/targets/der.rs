//! A second reader of certificates, written from RFC 5280 and X.690 without a look at the first. It knows just enough to judge
//! identities.

/// One element: the tag's byte, and the content.
#[derive(Clone, Copy, Debug)]
pub struct Element<'a> {
    pub tag: u8,
    pub content: &'a [u8],
}

/// Splits the first element off; `None` if its length is wrong or not in its shortest form.
pub fn element(bytes: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    if tag & 0x1f == 0x1f {
        return None;
    }
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
            (length, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((Element { tag, content }, rest))
}

/// The elements of a content, all of them whole.
pub fn elements(mut bytes: &[u8]) -> Option<Vec<Element<'_>>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (next, rest) = element(bytes)?;
        found.push(next);
        bytes = rest;
    }
    Some(found)
}

/// The parts of a certificate that an identity depends on.
#[derive(Debug, Default)]
pub struct Facts<'a> {
    /// Alternative names, with their tags.
    pub names: Vec<(u8, &'a [u8])>,
    pub is_authority: bool,
    /// The bits of the key usage, the first one highest.
    pub key_usage: Option<u16>,
}

const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];

pub const DIGITAL_SIGNATURE: u16 = 1 << 15;
pub const CERTIFICATE_SIGN: u16 = 1 << 10;
pub const CRL_SIGN: u16 = 1 << 9;

/// Reads a certificate; `None` if this reader finds its structure wrong.
pub fn facts(der: &[u8]) -> Option<Facts<'_>> {
    let (certificate, rest) = element(der)?;
    if certificate.tag != 0x30 || !rest.is_empty() {
        return None;
    }
    let parts = elements(certificate.content)?;
    let inner = elements(parts.first().filter(|part| part.tag == 0x30)?.content)?;
    let mut facts = Facts::default();
    let Some(list) = inner.iter().find(|part| part.tag == 0xa3) else { return Some(facts) };
    let (list, _) = element(list.content)?;
    for extension in elements(list.content)? {
        let parts = elements(extension.content)?;
        let (id, value) = (parts.first()?, parts.last()?);
        if value.tag != 4 {
            return None;
        }
        // Nobody reads the content of the others.
        if ![ALTERNATIVE_NAMES, BASIC_CONSTRAINTS, KEY_USAGE].contains(&id.content) {
            continue;
        }
        let (value, _) = element(value.content)?;
        match id.content {
            ALTERNATIVE_NAMES => {
                let names = elements(value.content)?;
                facts.names.extend(names.iter().map(|name| (name.tag & 0x1f, name.content)));
            }
            BASIC_CONSTRAINTS => {
                let first = elements(value.content)?.into_iter().next();
                // X.690, section 8.2.1: a flag that is constructed is malformed.
                if first.is_some_and(|flag| flag.tag == 0x21) {
                    return None;
                }
                facts.is_authority = first.is_some_and(|flag| flag.tag == 1 && flag.content != [0]);
            }
            KEY_USAGE => {
                let bits = value.content.get(1..)?;
                let at = |index: usize| u16::from(bits.get(index).copied().unwrap_or_default());
                facts.key_usage = Some(at(0) << 8 | at(1));
            }
            _ => {}
        }
    }
    Some(facts)
}
