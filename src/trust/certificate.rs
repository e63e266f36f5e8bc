//! The facts of one certificate that rustls does not tell: times, names, and the uses of the key.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rustls::pki_types::UnixTime;
use x509_parser::asn1_rs::{Any, Tag};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension, X509Extension};
use x509_parser::oid_registry::{
    OID_X509_EXT_BASIC_CONSTRAINTS, OID_X509_EXT_EXTENDED_KEY_USAGE, OID_X509_EXT_KEY_USAGE,
    OID_X509_EXT_NAME_CONSTRAINTS, OID_X509_EXT_SUBJECT_ALT_NAME, Oid,
};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::time::ASN1Time;
use x509_parser::x509::{SubjectPublicKeyInfo, X509Version};

/// The tags of DNS names and of URIs among the alternative names (RFC 5280, section 4.2.1.6).
const TAG_DNS: u32 = 2;
const TAG_URI: u32 = 6;

/// The permitted sizes of RSA keys, in bits (SEC-5). Larger keys cost milliseconds for each handshake.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=4096;

/// The extensions that decide about an identity, with their names.
const READ: [(Oid<'static>, &str); 5] = [
    (OID_X509_EXT_BASIC_CONSTRAINTS, "basic constraints"),
    (OID_X509_EXT_EXTENDED_KEY_USAGE, "extended key usage"),
    (OID_X509_EXT_KEY_USAGE, "key usage"),
    (OID_X509_EXT_NAME_CONSTRAINTS, "name constraints"),
    (OID_X509_EXT_SUBJECT_ALT_NAME, "subject alternative name"),
];

/// The facts of a certificate. None of them is proved before the chain is proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    pub not_before: SystemTime,
    pub not_after: SystemTime,
    pub names: Names,
    /// May sign certificates: basic constraints say so.
    pub is_authority: bool,
    /// `None`: a leaf of an authority.
    pub reach: Option<Reach>,
    /// `None` without the extension.
    pub key_usage: Option<KeyUsage>,
    /// The permitted purposes of the key; `None` without the extension.
    pub purposes: Option<Purposes>,
    pub has_accepted_key: bool,
    /// Restricts the names below an authority.
    pub has_name_constraints: bool,
    /// The subject, as DER.
    pub subject: Vec<u8>,
}

/// The proofs by a certificate as a trust anchor (SEC-12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The certificates that it signs.
    Others,
    /// Issuer and subject have one name, and it is no authority: it proves itself alone.
    Itself,
    /// An authority whose issuer and subject have one name, with alternative names: a server may also show it
    /// as its own certificate. Kuma and `openssl req -x509` make such ones.
    OthersAndItself,
}

/// The subject alternative names, typed (IDN-4). The common name is never read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    pub dns: Vec<String>,
    pub ips: Vec<IpAddr>,
    pub uris: Vec<String>,
    /// URIs that are no text; they count, too (IDN-2).
    pub bad_uris: usize,
    /// DNS names that are no text; they count, too (IDN-5).
    pub bad_dns: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUsage {
    pub digital_signature: bool,
    pub certificate_sign: bool,
    pub crl_sign: bool,
}

/// The extended key usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purposes {
    pub server: bool,
    pub client: bool,
}

impl Certificate {
    /// Parses one certificate in DER.
    ///
    /// # Errors
    /// The reason in words.
    pub fn parse(der: &[u8]) -> Result<Certificate, String> {
        let (rest, parsed) = X509Certificate::from_der(der).map_err(|_| "DER is malformed".to_owned())?;
        if !rest.is_empty() {
            return Err(format!("DER ends after {} of {} bytes", der.len() - rest.len(), der.len()));
        }
        // The parser would report a malformed extension as an absent one.
        for extension in parsed.iter_extensions() {
            let is_malformed = matches!(extension.parsed_extension(), ParsedExtension::ParseError { .. });
            let is_malformed = is_malformed || has_constructed_flag(extension);
            if let Some((_, name)) = READ.iter().find(|(oid, _)| is_malformed && *oid == extension.oid) {
                return Err(format!("the extension {name} is malformed"));
            }
        }
        let malformed = |what: &'static str| move |_| format!("the extension {what} is malformed");
        let key_usage = parsed.key_usage().map_err(malformed("key usage"))?.map(|usage| KeyUsage {
            digital_signature: usage.value.digital_signature(),
            certificate_sign: usage.value.key_cert_sign(),
            crl_sign: usage.value.crl_sign(),
        });
        let purposes =
            parsed.extended_key_usage().map_err(malformed("extended key usage"))?.map(|usage| Purposes {
                server: usage.value.any || usage.value.server_auth,
                client: usage.value.any || usage.value.client_auth,
            });
        let constraints = parsed.basic_constraints().map_err(malformed("basic constraints"))?;
        let is_authority = constraints.map(|constraints| constraints.value.ca);
        let has_name_constraints =
            parsed.name_constraints().map_err(malformed("name constraints"))?.is_some();
        let names = Names::read(&parsed);
        Ok(Certificate {
            not_before: time(parsed.validity().not_before),
            not_after: time(parsed.validity().not_after),
            is_authority: is_authority.unwrap_or_default(),
            reach: Reach::of(&parsed, &names, is_authority, key_usage),
            names,
            key_usage,
            purposes,
            has_accepted_key: is_accepted(parsed.public_key()),
            has_name_constraints,
            subject: parsed.subject().as_raw().to_vec(),
        })
    }

    pub fn is_expired(&self, now: SystemTime) -> bool {
        self.not_after < now
    }
}

impl Reach {
    /// `is_authority`: what basic constraints say. Roots from before them exist: of version 1, or with the
    /// usage alone.
    fn of(
        parsed: &X509Certificate<'_>,
        names: &Names,
        is_authority: Option<bool>,
        usage: Option<KeyUsage>,
    ) -> Option<Reach> {
        let is_self_issued = parsed.issuer().as_raw() == parsed.subject().as_raw();
        let is_old_root = parsed.version() == X509Version::V1 && is_self_issued;
        let may_sign = usage.is_some_and(|usage| usage.certificate_sign);
        match is_authority.unwrap_or(is_old_root || may_sign) {
            true if is_self_issued && *names != Names::default() => Some(Reach::OthersAndItself),
            true => Some(Reach::Others),
            false => is_self_issued.then_some(Reach::Itself),
        }
    }
}

impl Names {
    fn read(parsed: &X509Certificate<'_>) -> Names {
        let mut names = Names::default();
        for extension in parsed.iter_extensions() {
            let ParsedExtension::SubjectAlternativeName(alternative) = extension.parsed_extension() else {
                continue;
            };
            for name in &alternative.general_names {
                match name {
                    GeneralName::DNSName(name) => names.dns.push((*name).to_owned()),
                    GeneralName::URI(uri) => names.uris.push((*uri).to_owned()),
                    GeneralName::Invalid(tag, _) if tag.0 == TAG_URI => names.bad_uris += 1,
                    GeneralName::Invalid(tag, _) if tag.0 == TAG_DNS => names.bad_dns += 1,
                    GeneralName::IPAddress(bytes) => names.ips.extend(ip(bytes)),
                    _ => {}
                }
            }
        }
        names
    }
}

/// Basic constraints with a flag in parts: malformed (X.690, section 8.2.1), and readers of DER differ about
/// its value.
fn has_constructed_flag(extension: &X509Extension<'_>) -> bool {
    if extension.oid != OID_X509_EXT_BASIC_CONSTRAINTS {
        return false;
    }
    let Ok((_, constraints)) = Any::from_der(extension.value) else { return true };
    // Without a flag and a length of the path, the sequence is empty.
    Any::from_der(constraints.data)
        .is_ok_and(|(_, first)| first.tag() == Tag::Boolean && first.header.is_constructed())
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::from(v4));
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

/// Times before 1970 count as 1970.
fn time(time: ASN1Time) -> SystemTime {
    let seconds = u64::try_from(time.timestamp()).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// A time for rustls.
pub fn unix_time(now: SystemTime) -> UnixTime {
    UnixTime::since_unix_epoch(now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

/// A time for messages: both clocks belong into a message about validity (CRT-4).
pub fn time_text(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let time = i64::try_from(seconds).ok().and_then(|seconds| ASN1Time::from_timestamp(seconds).ok());
    time.and_then(|time| time.to_rfc2822().ok()).unwrap_or_else(|| format!("Unix time {seconds}"))
}

/// Whether a key is RSA of a usual size, P-256, P-384 or Ed25519 (SEC-5).
fn is_accepted(key: &SubjectPublicKeyInfo<'_>) -> bool {
    const ED25519: &str = "1.3.101.112";
    match key.parsed() {
        Ok(PublicKey::RSA(rsa)) => RSA_BITS.contains(&rsa.key_size()),
        Ok(PublicKey::EC(point)) => matches!(point.key_size(), 256 | 384),
        _ => key.algorithm.algorithm.to_id_string() == ED25519,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;
    use crate::telemetry::wall_now;
    use crate::trust::issue::{Authority, Leaf};

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn idn_4_names_are_typed() {
        let now = wall_now();
        let leaf = Leaf {
            uris: &["spiffe://d/a", "https://relay.example"],
            hosts: &["relay.example", "10.0.0.1", "::1"],
            is_client: true,
            ..Leaf::default()
        };
        let issued = Authority::new("test", DAY, now).unwrap().issue(&leaf, DAY, now).unwrap();
        let facts =
            Certificate::parse(&CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap())
                .unwrap();
        assert_eq!(facts.names.dns, ["relay.example"]);
        assert_eq!(facts.names.uris, ["spiffe://d/a", "https://relay.example"]);
        assert_eq!(facts.names.ips, ["10.0.0.1".parse::<IpAddr>().unwrap(), "::1".parse().unwrap()]);
        assert_eq!(facts.purposes, Some(Purposes { server: false, client: true }));
        assert!(facts.has_accepted_key && !facts.is_authority && !facts.is_expired(now));
        assert!(facts.is_expired(now + DAY + Duration::from_secs(1)));
    }

    /// Found by the fuzz target `leaf_identity`: malformed basic constraints counted as absent.
    #[test]
    fn idn_2_a_malformed_extension_is_not_an_absent_one() {
        let now = wall_now();
        let leaf = Leaf { uris: &["spiffe://d/a"], is_client: true, ..Leaf::default() };
        let authority = Authority::new("test", DAY, now).unwrap();
        for (oid, name) in [
            (&[2, 5, 29, 19][..], "basic constraints"),
            (&[2, 5, 29, 30], "name constraints"),
            (&[2, 5, 29, 17], "subject alternative name"),
        ] {
            let issued = authority.issue_with(&leaf, DAY, now, |params| {
                params.subject_alt_names.clear();
                let extension = rcgen::CustomExtension::from_oid_content(
                    &oid.iter().map(|part| *part as u64).collect::<Vec<_>>(),
                    vec![0x30, 2],
                );
                params.custom_extensions.push(extension);
            });
            let der = CertificateDer::from_pem_slice(issued.unwrap().certificate.as_bytes()).unwrap();
            assert_eq!(Certificate::parse(&der), Err(format!("the extension {name} is malformed")));
        }
    }

    /// Found by the fuzz target `leaf_identity`: readers of DER differ about a constructed flag. The leaf is
    /// refused.
    #[test]
    fn idn_2_a_constructed_flag_of_an_authority_is_malformed() {
        let now = wall_now();
        let leaf = Leaf { uris: &["spiffe://d/a"], is_client: true, ..Leaf::default() };
        let authority = Authority::new("test", DAY, now).unwrap();
        let parse = |constraints: &[u8]| {
            let issued = authority.issue_with(&leaf, DAY, now, |params| {
                let extension =
                    rcgen::CustomExtension::from_oid_content(&[2, 5, 29, 19], constraints.to_vec());
                params.custom_extensions.push(extension);
            });
            let der = CertificateDer::from_pem_slice(issued.unwrap().certificate.as_bytes()).unwrap();
            Certificate::parse(&der).map(|leaf| leaf.is_authority)
        };
        for flag in [0, 0xff] {
            let error = Err("the extension basic constraints is malformed".to_owned());
            assert_eq!(parse(&[0x30, 6, 0x21, 1, flag, 2, 1, 0]), error);
        }
        assert_eq!(parse(&[0x30, 6, 1, 1, 0xff, 2, 1, 0]), Ok(true));
        assert_eq!(parse(&[0x30, 0]), Ok(false));
    }

    #[test]
    fn crt_3_a_cut_certificate_is_told_apart_from_one_with_a_tail() {
        let now = wall_now();
        let authority = Authority::new("test", DAY, now).unwrap();
        let der = CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap().to_vec();
        assert!(Certificate::parse(&der).unwrap().is_authority);
        assert_eq!(Certificate::parse(&der[..der.len() - 1]), Err("DER is malformed".to_owned()));
        let long = [der.as_slice(), &[0; 3]].concat();
        let error = format!("DER ends after {} of {} bytes", der.len(), der.len() + 3);
        assert_eq!(Certificate::parse(&long), Err(error));
    }
}
