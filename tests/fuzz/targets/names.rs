//! `xdstp:` names.

use std::collections::BTreeMap;

use sluice_xds::ResourceName;
use sluice_xds::dynamic::is_reserved;
use sluice_xds::xdstp::{Xdstp, canonical, glob_of, is_glob, member_as};

use super::{MEMORY, Target};

pub const XDSTP_NAME: Target = Target {
    name: "xdstp_name",
    run,
    seeds: || {
        [
            "xdstp://auth/envoy.config.cluster.v3.Cluster/a/b?y=1&x=2#alt=z",
            "xdstp:///t/*?a=b",
            "xdstp://a%41/t/i%2fd/%C3%A9?k%3D=v%26",
            "xdstp://a/t/x?k&k=1",
            "plain",
            "xdstp:opaque",
        ]
        .iter()
        .map(|text| text.as_bytes().to_vec())
        .collect()
    },
    words: &[
        "xdstp://", "/", "?", "#", "&", "=", "%", "%2F", "%2f", "%41", "%ff", "%C3%A9", "*", "%2A", "+", ":",
        "\u{e9}",
    ],
    mutations: 20_000,
    memory: MEMORY,
};

/// NAM-6, NAM-7: equal names, and only they, have one spelling.
fn run(data: &[u8]) {
    let Ok(name) = std::str::from_utf8(data) else { return };
    let received = ResourceName::received(name);
    if is_reserved(name) {
        return;
    }
    let naive = naive(name);
    let parsed = Xdstp::parse(name);
    assert_eq!(parsed.is_ok(), naive.is_some(), "{name:?}: {parsed:?} {naive:?}");
    let (Ok(parsed), Some(naive)) = (parsed, naive) else {
        assert_eq!(received.as_str(), name, "a malformed name stays as sent");
        return;
    };
    let found = (parsed.authority.clone(), parsed.resource_type.clone(), parsed.id.clone());
    let mut context: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, value) in &parsed.context {
        context.entry(key.clone()).or_default().push(value.clone());
    }
    assert_eq!((found, context), naive, "{name:?}");
    let spelled = canonical(name).expect("a parsed name");
    // NAM-9: with a repeated key, a name equals only itself.
    if parsed.has_duplicate_key() {
        assert!(name.starts_with(&*spelled));
        return;
    }
    assert_eq!(spelled, parsed.to_string());
    assert_eq!(canonical(&spelled).as_deref(), Ok(&*spelled), "canonical is canonical: {name:?}");
    assert_eq!(Xdstp::parse(&spelled).as_ref(), Ok(&parsed), "the same name: {name:?} {spelled:?}");
    assert_eq!(received.as_str(), spelled);
    if let Some(glob) = glob_of(&spelled) {
        assert!(is_glob(&glob) && !is_glob(&spelled) && glob_of(&glob).is_none(), "{name:?} {glob:?}");
        assert_eq!(canonical(&glob).as_deref(), Ok(&*glob));
        assert_eq!(member_as(&glob, &spelled).as_deref(), Some(&*spelled));
    }
    assert_eq!(received.canonical(&parsed.resource_type), Ok(None));
}

type Parts = ((String, String, String), BTreeMap<String, Vec<String>>);

/// NAM-1, NAM-6, by splitting, and by decoding what has no place in RFC 3986 as a delimiter.
fn naive(name: &str) -> Option<Parts> {
    let name = name.split('#').next()?;
    let (path, query) = match name.find('?') {
        Some(at) => (&name[..at], &name[at + 1..]),
        None => (name, ""),
    };
    let mut segments = path.strip_prefix("xdstp://")?.splitn(3, '/');
    let (authority, kind, id) = (segments.next()?, segments.next()?, segments.next()?);
    if kind.is_empty() || id.is_empty() {
        return None;
    }
    let mut context: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = match pair.find('=') {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, ""),
        };
        if key.is_empty() {
            return None;
        }
        context.entry(spelled(key, "/?")?).or_default().push(spelled(value, "/?=")?);
    }
    context.values_mut().for_each(|values| values.sort_unstable());
    Some(((spelled(authority, "&=[]")?, spelled(kind, "&=")?, spelled(id, "&=/")?), context))
}

/// Each character by itself: an unreserved one as such, a delimiter as sent, and any other one escaped.
fn spelled(text: &str, delimiters: &str) -> Option<String> {
    unescaped(text)?;
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || "-._~".contains(char::from(byte));
    let is_delimiter =
        |byte: u8| "!$'()*+,;:@".contains(char::from(byte)) || delimiters.contains(char::from(byte));
    let (mut spelled, mut bytes) = (String::new(), text.bytes());
    while let Some(byte) = bytes.next() {
        let (byte, is_plain) = match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                let byte = u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?;
                (byte, is_unreserved(byte))
            }
            byte => (byte, is_unreserved(byte) || is_delimiter(byte)),
        };
        match is_plain {
            true => spelled.push(char::from(byte)),
            false => spelled.push_str(&format!("%{byte:02X}")),
        }
    }
    Some(spelled)
}

fn unescaped(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}
