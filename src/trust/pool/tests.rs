//! Certificates as trust anchors.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose};
use rustls::pki_types::pem::PemObject;

use super::*;
use crate::telemetry::wall_now;
use crate::trust::issue::{Authority, Leaf};
use crate::trust::{bundle_map, pem};

const DAY: Duration = Duration::from_secs(86_400);
const LEAF: Leaf<'_> = Leaf { uris: &["spiffe://d/a"], hosts: &[], is_server: true, is_client: true };

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

/// A certificate that signed itself, with this common name.
fn by_itself(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Authority {
    let mut params = CertificateParams::new(vec!["cp.example".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    change(&mut params);
    Authority::with(params, DAY, wall_now()).unwrap()
}

/// A leaf of this authority.
fn leaf(by: &Authority, change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
    der(&by.issue_with(&LEAF, DAY / 2, wall_now(), change).unwrap().certificate)
}

fn pem_of(der: &[u8]) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der))
}

/// The first element of DER, with its header, and the rest.
fn element(der: &[u8]) -> (&[u8], &[u8]) {
    let length = match der[1] {
        0x82 => 4 + (usize::from(der[2]) << 8 | usize::from(der[3])),
        0x81 => 3 + usize::from(der[2]),
        short => 2 + usize::from(short),
    };
    der.split_at(length)
}

fn sequence(content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    let header = if high == 0 { vec![0x30, 0x81, low] } else { vec![0x30, 0x82, high, low] };
    [header.as_slice(), content].concat()
}

/// The same certificate in version 1: without the version, and without extensions. Nobody checks the
/// signature of an anchor.
fn version_1(der: &[u8]) -> CertificateDer<'static> {
    let (to_sign, signature) = element(&der[4..]);
    let (_version, mut rest) = element(&to_sign[4..]);
    let mut kept = Vec::new();
    while !rest.is_empty() {
        let (next, after) = element(rest);
        if next[0] != 0xa3 {
            kept.extend_from_slice(next);
        }
        rest = after;
    }
    sequence(&[&sequence(&kept), signature].concat()).into()
}

/// Whether a file with this certificate among good ones is read; the number of its anchors.
fn read(der: &CertificateDer<'_>) -> Result<usize, String> {
    let good = Authority::new("good", DAY, wall_now()).unwrap();
    let text = format!("{}{}{}", good.pem(), pem_of(der), good.pem());
    pem::anchors(Path::new("ca.crt"), text.as_bytes()).map(|anchors| anchors.len()).map_err(|f| f.to_string())
}

fn pool_of(ders: &[CertificateDer<'static>]) -> AnchorPool {
    AnchorPool::new(ders.iter().map(|der| (der.clone(), Certificate::parse(der).unwrap().reach)))
}

/// Whether a pool proves a leaf.
fn proves(pool: &AnchorPool, leaf: &CertificateDer<'_>, above: &[CertificateDer<'_>]) -> bool {
    let now = unix_time(wall_now());
    let judged = |roots: &Arc<RootCertStore>| as_server(leaf, above, roots, now).is_ok();
    pool.of(leaf).is_some_and(judged)
}

#[test]
fn sec_12_a_leaf_is_no_trust_anchor() {
    let authority = Authority::new("prod", DAY, wall_now()).unwrap();
    let nothing = |_: &mut CertificateParams| {};
    let namesake =
        |params: &mut CertificateParams| params.distinguished_name.push(DnType::CommonName, "prod");
    let error = "ca.crt, PEM block 2 of 3: not an authority (basic constraints without CA), nor signed by its own \
                 key; the file as a whole is not used";
    for (name, der) in [
        ("a leaf", leaf(&authority, nothing)),
        ("a leaf that says so", leaf(&authority, |params| params.is_ca = IsCa::ExplicitNoCa)),
        ("a leaf with the name of its authority", leaf(&authority, namesake)),
        ("a leaf of version 1", version_1(&leaf(&authority, nothing))),
    ] {
        assert_eq!(read(&der), Err(error.to_owned()), "{name}");
        let x5c = STANDARD.encode(&der);
        let map =
            format!(r#"{{"trust_domains":{{"d":{{"keys":[{{"use":"x509-svid","x5c":["{x5c}"]}}]}}}}}}"#);
        let fault = bundle_map::read(Path::new("map.json"), map.as_bytes()).unwrap_err().to_string();
        let expected = "map.json: trust domain \"d\", key 1: not an authority (basic constraints without CA), nor \
                        signed by its own key";
        assert_eq!(fault, expected, "{name}");
    }
}

#[test]
fn sec_12_an_authority_whose_key_must_not_sign_is_no_trust_anchor() {
    let with = |usages: &[KeyUsagePurpose]| {
        by_itself("root", |params| {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = usages.to_vec();
        })
    };
    let mute = with(&[KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::CrlSign]);
    let error = "ca.crt, PEM block 2 of 3: an authority whose key must not sign certificates (key usage without \
                 keyCertSign); the file as a whole is not used";
    assert_eq!(read(&der(mute.pem())), Err(error.to_owned()));
    // webpki itself would take the signatures of this key.
    assert!(proves(&pool_of(&[der(mute.pem())]), &leaf(&mute, |_| {}), &[]));
    for usages in
        [&[][..], &[KeyUsagePurpose::KeyCertSign], &[KeyUsagePurpose::CrlSign, KeyUsagePurpose::KeyCertSign]]
    {
        assert_eq!(read(&der(with(usages).pem())), Ok(3), "{usages:?}");
    }
}

#[test]
fn sec_12_authorities_of_every_age_are_trust_anchors() {
    let root = Authority::new("root", DAY, wall_now()).unwrap();
    let middle = |params: &mut CertificateParams| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, "middle");
    };
    assert_eq!(read(&leaf(&root, middle)), Ok(3), "an authority that another one has signed");

    let of_usage = by_itself("usage", |params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign]);
    let of_version_1 = by_itself("version 1", |_| {});
    for (name, by, anchor) in [
        ("usual", &root, der(root.pem())),
        ("with the key usage alone", &of_usage, der(of_usage.pem())),
        ("of version 1", &of_version_1, version_1(&der(of_version_1.pem()))),
    ] {
        assert_eq!(read(&anchor), Ok(3), "{name}");
        assert!(proves(&pool_of(&[anchor]), &leaf(by, |_| {}), &[]), "{name}");
    }
}

#[test]
fn sec_12_a_leaf_that_signed_itself_proves_itself_alone() {
    let authority = Authority::new("prod", DAY, wall_now()).unwrap();
    for (name, is_ca) in [("silent", IsCa::NoCa), ("explicit", IsCa::ExplicitNoCa)] {
        let alone = by_itself("cp", |params| params.is_ca = is_ca);
        let anchor = der(alone.pem());
        assert_eq!(read(&anchor), Ok(3), "{name}");
        let pool = pool_of(&[der(authority.pem()), anchor.clone()]);
        assert!(proves(&pool, &anchor, &[]), "{name}");
        assert!(proves(&pool, &leaf(&authority, |_| {}), &[]), "{name}");
        // What the holder of its key would sign.
        let forged = leaf(&alone, |_| {});
        assert!(!proves(&pool, &forged, &[]), "{name}");
        assert!(
            !proves(&pool_of(std::slice::from_ref(&anchor)), &forged, std::slice::from_ref(&anchor)),
            "{name}"
        );
    }
}

/// Kuma's own certificate, and the default of `openssl req -x509`: webpki takes an authority for no leaf.
#[test]
fn sec_12_an_authority_is_the_leaf_of_a_server_if_it_is_the_anchor_itself() {
    use CertificateError as C;
    let of = |name: &str, purposes: &[ExtendedKeyUsagePurpose]| {
        by_itself(name, |params| {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.extended_key_usages = purposes.to_vec();
        })
    };
    let judge = |anchors: &[&CertificateDer<'static>], leaf: &CertificateDer<'_>, now| {
        let anchors: Vec<_> = anchors.iter().map(|der| (*der).clone()).collect();
        pool_of(&anchors).judge_itself(leaf, unix_time(now))
    };
    let (kuma, now) = (of("cp", &[ExtendedKeyUsagePurpose::ServerAuth]), wall_now());
    let (anchor, other) = (der(kuma.pem()), der(of("cp", &[]).pem()));
    assert_eq!(read(&anchor), Ok(3));
    assert_eq!(judge(&[&other, &anchor], &anchor, now), Some(Ok(())));
    assert_eq!(
        judge(&[&other], &other, now),
        Some(Ok(())),
        "without the extension, each purpose is permitted"
    );
    assert_eq!(judge(&[&other], &anchor, now), None, "another one of the same name");
    assert!(matches!(judge(&[&anchor], &anchor, now - DAY), Some(Err(C::NotValidYetContext { .. }))));
    assert!(matches!(judge(&[&anchor], &anchor, now + 2 * DAY), Some(Err(C::ExpiredContext { .. }))));
    let for_clients = der(of("cp", &[ExtendedKeyUsagePurpose::ClientAuth]).pem());
    assert_eq!(judge(&[&for_clients], &for_clients, now), Some(Err(C::InvalidPurpose)));

    let root = Authority::new("root", DAY, now).unwrap();
    assert_eq!(judge(&[&der(root.pem())], &der(root.pem()), now), None, "without names it is no server's");
    let middle = leaf(&root, |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    assert_eq!(judge(&[&middle], &middle, now), None, "another one has signed it");
    // What its key signs is proved as before.
    assert!(proves(&pool_of(&[anchor]), &leaf(&kuma, |_| {}), &[]));
}
