//! Identities: of leaves, as text, as patterns; and the expiry of tokens.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use rustls::server::ParsedCertificate;
use sluice::client::{VALUE_BYTES_MAX, token_expiry};
use sluice::trust::certificate::Certificate;
use sluice::trust::identity::{ClientName, IdentityKind, TextMatch, of_client, spiffe_id};
use sluice_engine::authorization::{Captures, IdentityPattern, Match, Template};
use sluice_identity::{Identity, SpiffeId};

use super::der::{self, CERTIFICATE_SIGN, CRL_SIGN, DIGITAL_SIGNATURE};
use super::issue;
use super::{MEMORY, Target};

pub const LEAF_IDENTITY: Target = Target {
    name: "leaf_identity",
    run: leaf_identity,
    seeds: issue::odd_leaves,
    words: &[
        "spiffe://",
        "/",
        "..",
        "\u{0}",
        "\u{3}U\u{1d}\u{11}",
        "\u{3}U\u{1d}\u{f}",
        "\u{3}U\u{1d}\u{13}",
        "%2f",
    ],
    mutations: 3_000,
    memory: MEMORY,
};

const TAG_DNS: u8 = 2;
const TAG_URI: u8 = 6;

/// IDN-2, IDN-4, IDN-5: a second reader of the same bytes finds the same identity.
fn leaf_identity(data: &[u8]) {
    let Ok(leaf) = Certificate::parse(data) else { return };
    let found = spiffe_id(&leaf);
    let dns =
        of_client(&leaf, IdentityKind::Dns, &[ClientName::Dns(TextMatch::Suffix("example".into()))], None);
    // Every chain is read by rustls, too, before anybody asks for an identity; rustls knows DER only.
    if ParsedCertificate::try_from(&CertificateDer::from(data)).is_err() {
        return;
    }
    let Some(facts) = der::facts(data) else {
        assert!(found.is_err(), "{found:?} of a certificate that the second reader refuses");
        return;
    };
    let uris: Vec<_> = facts.names.iter().filter(|(tag, _)| *tag == TAG_URI).collect();
    let usage = facts.key_usage.unwrap_or_default();
    let may_identify = uris.len() == 1
        && !facts.is_authority
        && usage & DIGITAL_SIGNATURE != 0
        && usage & (CERTIFICATE_SIGN | CRL_SIGN) == 0;
    let expected = uris.first().filter(|(_, uri)| may_identify && is_spiffe(uri)).map(|(_, uri)| *uri);
    assert_eq!(found.as_ref().ok().map(|id| id.as_str().as_bytes()), expected, "{found:?} {facts:?}");
    // The name is one of the certificate's DNS names, as a whole, and no wildcard; no other name is accepted.
    if let Ok(Identity::Dns(name)) = dns {
        let names = facts.names.iter().filter(|(tag, _)| *tag == TAG_DNS);
        let mut accepted: Vec<_> = names.map(|(_, name)| name.to_ascii_lowercase()).collect();
        accepted.retain(|name| name.ends_with(b"example"));
        accepted.dedup();
        assert!(accepted.iter().all(|other| other == name.as_bytes()) && !accepted.is_empty());
        assert!(!name.contains('*'));
    }
}

pub const SPIFFE_ID: Target = Target {
    name: "spiffe_id",
    run: |data| {
        let Ok(text) = std::str::from_utf8(data) else { return };
        let parsed = SpiffeId::parse(text);
        assert_eq!(parsed.is_ok(), is_spiffe(data), "{text:?}: {parsed:?}");
        let Ok(id) = parsed else { return };
        assert_eq!(id.to_string(), text);
        let path: Vec<&str> = id.segments().collect();
        assert_eq!(format!("spiffe://{}/{}", id.trust_domain(), path.join("/")), text);
    },
    seeds: || {
        let texts = [
            "spiffe://prod.example/ns/shop/sa/web",
            "spiffe://d/a",
            "spiffe://d",
            "spiffe://d//a",
            "http://d/a",
        ];
        let long = format!("spiffe://{}/{}", "d".repeat(255), "a/".repeat(890) + "aa");
        texts.iter().map(|text| text.as_bytes().to_vec()).chain([long.into_bytes()]).collect()
    },
    words: &["spiffe://", "/", "//", "/.", "/..", "%", "?", "#", "@", ":", "\u{0}", "-", "_", "A", "é"],
    mutations: 20_000,
    memory: MEMORY,
};

/// SPIFFE-ID, section 2, byte by byte.
fn is_spiffe(text: &[u8]) -> bool {
    let mut parts = text.split(|byte| *byte == b'/');
    let head = [parts.next(), parts.next()];
    let Some(domain) = parts.next() else { return false };
    let path: Vec<&[u8]> = parts.collect();
    let is_small = |b: &u8| b"abcdefghijklmnopqrstuvwxyz0123456789.-_".contains(b);
    let is_any = |b: &u8| is_small(&b.to_ascii_lowercase());
    head == [Some(&b"spiffe:"[..]), Some(&b""[..])]
        && text.len() <= 2048
        && (1..=255).contains(&domain.len())
        && domain.iter().all(is_small)
        && !path.is_empty()
        && path.iter().all(|part| !matches!(*part, b"" | b"." | b"..") && part.iter().all(is_any))
}

pub const IDENTITY_PATTERN: Target = Target {
    name: "identity_pattern",
    run: identity_pattern,
    seeds: || {
        [
            "spiffe://d/ns/{ns}/sa/{sa}\nspiffe://d/ns/shop/sa/web\nkubernetes://{ns}/\nkubernetes://shop/x",
            "{app}.shop.example\nWeb.shop.example\n{app}\nweb",
            "spiffe://d/a\nspiffe://d/a\n{{x}}\n{x}",
            "{a}.{b}\n{b}.c\n{a}\n{b}",
        ]
        .iter()
        .map(|text| text.as_bytes().to_vec())
        .collect()
    },
    words: &["spiffe://d/", "{", "}", "{ns}", "{{", "}}", "/", ".", "\n", "*", "{a}{b}", ".."],
    mutations: 10_000,
    memory: MEMORY,
};

/// AUT-3: a pattern, an identity, a template and a text, in four lines.
fn identity_pattern(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.splitn(4, '\n');
    let mut line = || lines.next().unwrap_or_default();
    let (pattern, name, template, other) = (line(), line(), line(), line());
    let spiffe = SpiffeId::parse(name).ok().map(Identity::Spiffe);
    let dns = Identity::Dns(name.to_ascii_lowercase().into());
    let both = [(IdentityPattern::spiffe(pattern), true), (IdentityPattern::dns(pattern), false)];
    for (parsed, is_spiffe) in both {
        let Ok(parsed) = parsed else { continue };
        let keys = parsed.captures();
        for identity in spiffe.iter().chain([&dns, &Identity::Anonymous, &Identity::Unix { uid: 0 }]) {
            let found = parsed.matches(identity);
            let expected = naive_match(pattern, identity, is_spiffe);
            let found_by_key: Option<BTreeMap<String, String>> = found.as_ref().map(|found| {
                assert_eq!(found.len(), keys.len());
                keys.iter().cloned().zip(found.iter().map(ToString::to_string)).collect()
            });
            assert_eq!(found_by_key, expected, "{pattern:?} {identity:?}");
            if let Some(captures) = &found {
                check_template(template, other, &keys, captures);
            }
        }
    }
}

/// Compares part by part. DNS names are compared in lower case.
pub fn naive_match(pattern: &str, identity: &Identity, is_spiffe: bool) -> Option<BTreeMap<String, String>> {
    let (pattern, text, separator) = match identity {
        Identity::Spiffe(id) if is_spiffe => (pattern.to_owned(), id.to_string(), '/'),
        Identity::Dns(name) if !is_spiffe => (pattern.to_ascii_lowercase(), name.to_string(), '.'),
        _ => return None,
    };
    let (wanted, found): (Vec<&str>, Vec<&str>) =
        (pattern.split(separator).collect(), text.split(separator).collect());
    let mut captures = BTreeMap::new();
    for (wanted, found) in wanted.iter().zip(&found) {
        if wanted.starts_with('{') {
            captures.insert(wanted.trim_matches(['{', '}']).to_owned(), (*found).to_owned());
        }
        if !wanted.starts_with('{') && wanted != found || found.is_empty() && wanted.starts_with('{') {
            return None;
        }
    }
    (wanted.len() == found.len()).then_some(captures)
}

/// A filled template matches as the text does.
fn check_template(template: &str, text: &str, keys: &[String], captures: &Captures) {
    let Ok(parsed) = Template::parse(template, keys) else { return };
    let filled = parsed.fill(captures);
    let mut naive = template.replace("{{", "\u{1}").replace("}}", "\u{2}");
    let is_clean = |text: &str| !text.contains(['\u{1}', '\u{2}']);
    // By hand, a capture with braces would be filled in again.
    if is_clean(template)
        && captures.iter().all(|capture| is_clean(capture) && !capture.contains('{'))
        && !template.contains("{{{")
        && !template.contains("}}}")
    {
        for (key, value) in keys.iter().zip(captures) {
            naive = naive.replace(&format!("{{{key}}}"), value);
        }
        assert_eq!(filled, naive.replace('\u{1}', "{").replace('\u{2}', "}"), "{template:?}");
    }
    assert_eq!(parsed.matches(Match::Exact, text, captures), text == filled);
    assert_eq!(parsed.matches(Match::Prefix, text, captures), text.starts_with(&filled));
    assert_eq!(parsed.matches(Match::Suffix, text, captures), text.ends_with(&filled));
    assert!(parsed.matches(Match::Exact, &filled, captures));
}

pub const TOKEN_EXPIRY: Target = Target {
    name: "token_expiry",
    run: token,
    seeds: || {
        [
            "eyJhbGciOiJub25lIn0.eyJleHAiOjE4OTMwMDAwMDB9.sig",
            "a.eyJleHAiOjE4OTMwMDAwMDAuNX0.b",
            "a.eyJleHAiOi0xfQ.b",
            "a.eyJleHAiOjFlMTB9.b",
            "a.eyJhIjoxfQ.b",
            "a.W10.b",
            "a.WzE4OTMwMDAwMDBd.b",
            "a.b",
        ]
        .iter()
        .map(|text| text.as_bytes().to_vec())
        .collect()
    },
    words: &[".", "eyJleHAiOj", "MTg5", "fQ", "=", "-", "_", "+", "/", "e", "E"],
    mutations: 20_000,
    memory: MEMORY,
};

/// IDN-9: base64url by hand, and the claims as a whole JSON value.
fn token(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let claims = text.split('.').nth(1).and_then(claims_of).unwrap_or_default();
    // The two readers treat repeated keys and broken escapes in ignored texts differently.
    if claims.matches("exp").count() > 1 || claims.contains('\\') {
        return;
    }
    let found = token_expiry(text);
    let expected = naive_expiry(text);
    match (&found, expected) {
        // Fractions of a second may be rounded.
        (Ok(found), Some(seconds)) => {
            let since = found.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            assert!(since.as_secs_f64() <= seconds.max(0.0) + 1.0, "{text:?}: {found:?}");
            assert!(
                since + Duration::from_secs(2)
                    >= Duration::from_secs_f64(seconds.clamp(0.0, 253_402_300_799.0))
            );
        }
        (Err(_), None) => {}
        _ => panic!("{text:?}: {found:?}, and by hand {expected:?}"),
    }
    if let Err(error) = found {
        assert!(error.to_string().len() < 100, "an error has no part of the token (TLS-14)");
    }
}

fn naive_expiry(text: &str) -> Option<f64> {
    let parts: Vec<&str> = text.split('.').collect();
    let [head, claims, signature] = parts.as_slice() else { return None };
    let is_text = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_=".contains(&b));
    let is_token = !head.is_empty() && is_text(head) && is_text(signature) && text.len() <= VALUE_BYTES_MAX;
    let claims: serde_json::Value = serde_json::from_str(&claims_of(claims)?).ok()?;
    let expiry = claims.as_object()?.get("exp")?.as_f64();
    expiry.filter(|seconds| is_token && *seconds >= 0.0)
}

fn claims_of(text: &str) -> Option<String> {
    let claims = naive_base64(text.trim_end_matches('=').as_bytes())?;
    Some(String::from_utf8_lossy(&claims).into_owned())
}

/// Strict: no padding, no unused bits.
fn naive_base64(text: &[u8]) -> Option<Vec<u8>> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for letter in text {
        let value = LETTERS.iter().position(|known| known == letter)?;
        bits = bits << 6 | u32::try_from(value).ok()?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
        bits &= (1 << count) - 1;
    }
    (bits == 0 && count < 6).then_some(bytes)
}
