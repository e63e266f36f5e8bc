#![allow(clippy::unwrap_used)]

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;

use super::*;
use crate::telemetry::wall_now;
use crate::trust::anchors::AnchorFiles;
use crate::trust::crl::{CrlSettings, Depth};
use crate::trust::identity::{ClientName, IdentityKind, TextMatch};
use crate::trust::issue::{Authority, Issued, Leaf};
use crate::trust::pair::PairFiles;
use crate::trust::rotation::FilesInForce as _;
use crate::trust::server::{MinVersion, OnClientExpiry};

const DAY: Duration = Duration::from_secs(86_400);
const WEB: &str = "spiffe://prod.example/ns/shop/sa/web";

struct Fixture {
    directory: tempfile::TempDir,
    authority: Authority,
    settings: ServerTls,
}

impl Fixture {
    fn new() -> Fixture {
        let now = wall_now();
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let authority = Authority::new("prod", DAY, now).unwrap();
        let own = authority.issue(&Leaf { hosts: &["relay"], is_server: true, ..Leaf::default() }, DAY, now);
        let own = own.unwrap();
        for (name, text) in [
            ("tls.crt", &own.certificate),
            ("tls.key", &own.private_key),
            ("ca.crt", &authority.pem().to_owned()),
        ] {
            std::fs::write(at(name), text).unwrap();
            set_permissions(at(name), Permissions::from_mode(0o640)).unwrap();
        }
        let settings = ServerTls {
            certificates: vec![PairFiles { certificate: at("tls.crt"), private_key: at("tls.key") }],
            client_certificate: ClientCertificate::Required,
            anchors: Some(AnchorFiles::Authorities {
                file: at("ca.crt"),
                trust_domain: Some("prod.example".into()),
            }),
            identity: IdentityKind::Spiffe,
            clients: Vec::new(),
            crl: None,
            min_version: MinVersion::Tls12,
            refresh_interval: Duration::from_secs(600),
            on_client_expiry: OnClientExpiry::End,
        };
        Fixture { directory, authority, settings }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn generation(&self) -> Result<ServerFiles, Fault> {
        let (contents, _) = Contents::read(&self.settings.files())?;
        ServerFiles::read(&self.settings, ChainLimits::default(), &contents, None, wall_now())
    }

    /// The reason for which a client is refused, or its identity.
    fn judge(&self, chain: &[CertificateDer<'_>], now: SystemTime) -> Result<Identity, Reason> {
        let generation = self.generation().unwrap();
        generation.judge_again(chain, now).map_err(|refusal| refusal.reason)?;
        let proved = generation.prove(Some(chain)).map_err(|refusal| refusal.reason)?;
        Ok(proved.unwrap().identity)
    }

    fn client(&self, leaf: &Leaf<'_>) -> Issued {
        self.authority.issue(leaf, DAY / 2, wall_now()).unwrap()
    }
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

const CLIENT: Leaf<'_> = Leaf { uris: &[WEB], hosts: &[], is_server: false, is_client: true };

#[test]
fn clients_are_judged_by_chain_time_purpose_and_identity() {
    let fixture = Fixture::new();
    let now = wall_now();
    let good = der(&fixture.client(&CLIENT).certificate);
    let judge = |leaf: &Leaf<'_>| fixture.judge(&[der(&fixture.client(leaf).certificate)], now);
    assert_eq!(judge(&CLIENT).unwrap().to_string(), WEB);
    assert_eq!(judge(&Leaf { is_server: true, is_client: false, ..CLIENT }), Err(Reason::Purpose));
    assert_eq!(judge(&Leaf { uris: &[], ..CLIENT }), Err(Reason::Identity));
    // IDN-3: the authority of one domain signs an ID of another.
    assert_eq!(judge(&Leaf { uris: &["spiffe://other.example/a"], ..CLIENT }), Err(Reason::UnknownIssuer));
    let foreign = Authority::new("prod", DAY, now).unwrap().issue(&CLIENT, DAY, now).unwrap();
    assert_eq!(fixture.judge(&[der(&foreign.certificate)], now), Err(Reason::UnknownIssuer));
    assert_eq!(fixture.judge(std::slice::from_ref(&good), now + DAY), Err(Reason::Expired));
    assert_eq!(fixture.judge(std::slice::from_ref(&good), now - DAY), Err(Reason::NotYetValid));
    assert_eq!(fixture.judge(&vec![good; 9], now), Err(Reason::TooLarge));
}

#[test]
fn sec_5_authorities_of_one_name_are_few() {
    let fixture = Fixture::new();
    let now = wall_now();
    let namesakes: Vec<Authority> = (0..5).map(|_| Authority::new("prod", DAY, now).unwrap()).collect();
    let leaf = der(&namesakes[0].issue(&CLIENT, DAY / 2, now).unwrap().certificate);
    let judge = |count: usize| {
        let above = namesakes[1..=count].iter().map(|authority| der(authority.pem()));
        let chain: Vec<_> = std::iter::once(leaf.clone()).chain(above).collect();
        fixture.judge(&chain, now)
    };
    assert_eq!(judge(3), Err(Reason::UnknownIssuer));
    assert_eq!(judge(4), Err(Reason::TooLarge));
}

#[test]
fn crt_13_a_revoked_leaf_and_an_expired_list_refuse() {
    let mut fixture = Fixture::new();
    let now = wall_now();
    let (good, bad) = (fixture.client(&CLIENT), fixture.client(&CLIENT));
    let list = fixture.authority.revoke(std::slice::from_ref(&bad.serial), DAY / 4, now).unwrap();
    std::fs::write(fixture.path("crl.pem"), list).unwrap();
    let settings = CrlSettings {
        files: vec![fixture.path("crl.pem")],
        depth: Depth::Leaf,
        allows_unknown: false,
        allows_expired: false,
    };
    fixture.settings.crl = Some(settings.clone());
    let (good, bad) = (der(&good.certificate), der(&bad.certificate));
    let judge = |fixture: &Fixture, leaf: &CertificateDer<'static>, now| {
        fixture.judge(std::slice::from_ref(leaf), now).map(drop)
    };
    assert_eq!(judge(&fixture, &good, now), Ok(()));
    assert_eq!(judge(&fixture, &bad, now), Err(Reason::Revoked));
    let later = now + DAY / 3;
    assert_eq!(judge(&fixture, &good, later), Err(Reason::Revoked), "the list has expired");
    fixture.settings.crl = Some(CrlSettings { allows_expired: true, ..settings.clone() });
    assert_eq!(judge(&fixture, &good, later), Ok(()));
    // A list of another authority says nothing.
    let other = Authority::new("other", DAY, now).unwrap().revoke(&[], DAY, now).unwrap();
    std::fs::write(fixture.path("crl.pem"), other).unwrap();
    fixture.settings.crl = Some(settings.clone());
    assert_eq!(judge(&fixture, &good, now), Err(Reason::Revoked));
    fixture.settings.crl = Some(CrlSettings { allows_unknown: true, ..settings });
    assert_eq!(judge(&fixture, &good, now), Ok(()));
}

#[test]
fn a_key_that_every_user_can_read_is_told() {
    let fixture = Fixture::new();
    let mode = |mode| set_permissions(fixture.path("tls.key"), Permissions::from_mode(mode)).unwrap();
    assert_eq!(fixture.generation().unwrap().remarks(wall_now()), [""; 0]);
    mode(0o644);
    let remarks = fixture.generation().unwrap().remarks(wall_now());
    assert_eq!(remarks.len(), 1, "{remarks:?}");
    assert!(remarks[0].contains("tls.key: every user of this host can read the private key"), "{remarks:?}");
}

#[test]
fn crt_6_an_expired_authority_is_left_out_and_told() {
    let fixture = Fixture::new();
    let now = wall_now();
    let old = Authority::new("old", Duration::from_secs(60), now - DAY).unwrap();
    let both = format!("{}{}", old.pem(), fixture.authority.pem());
    std::fs::write(fixture.path("ca.crt"), both).unwrap();
    let generation = fixture.generation().unwrap();
    let remarks = generation.remarks(now);
    assert!(
        remarks[0].starts_with("1 expired authorities of trust domain prod.example are left out"),
        "{remarks:?}"
    );
    let by_old = old.issue(&CLIENT, DAY, now).unwrap();
    assert_eq!(fixture.judge(&[der(&by_old.certificate)], now), Err(Reason::UnknownIssuer));
    assert!(fixture.judge(&[der(&fixture.client(&CLIENT).certificate)], now).is_ok());

    std::fs::write(fixture.path("ca.crt"), old.pem()).unwrap();
    assert_eq!(fixture.generation().unwrap_err().reason, "every authority has expired");
}

#[test]
fn crt_8_another_authority_judges_differently_and_another_leaf_does_not() {
    let fixture = Fixture::new();
    let now = wall_now();
    let before = fixture.generation().unwrap();
    let own = fixture.client(&Leaf { hosts: &["relay"], is_server: true, ..Leaf::default() });
    std::fs::write(fixture.path("tls.crt"), own.certificate).unwrap();
    std::fs::write(fixture.path("tls.key"), own.private_key).unwrap();
    assert!(fixture.generation().unwrap().judges_like(&before));
    let other = Authority::new("prod", DAY, now).unwrap();
    std::fs::write(fixture.path("ca.crt"), other.pem()).unwrap();
    assert!(!fixture.generation().unwrap().judges_like(&before));
}

#[test]
fn crt_5_a_leaf_of_a_foreign_authority_does_not_replace_one_of_ours() {
    const RELAY: &str = "spiffe://prod.example/ns/infra/sa/relay";
    let fixture = Fixture::new();
    let now = wall_now();
    let put = |authority: &Authority, uri: &str| {
        let leaf = Leaf { uris: &[uri], is_server: true, ..Leaf::default() };
        let own = authority.issue(&leaf, DAY, now).unwrap();
        std::fs::write(fixture.path("tls.crt"), own.certificate).unwrap();
        std::fs::write(fixture.path("tls.key"), own.private_key).unwrap();
    };
    let read = |in_force: &ServerFiles| {
        let (contents, _) = Contents::read(&fixture.settings.files()).unwrap();
        ServerFiles::read(&fixture.settings, ChainLimits::default(), &contents, Some(in_force), now)
    };
    put(&fixture.authority, RELAY);
    let good = fixture.generation().unwrap();
    assert_eq!(good.remarks(now), [""; 0]);

    let other = Authority::new("other", DAY, now).unwrap();
    put(&other, RELAY);
    let fault = read(&good).unwrap_err();
    assert_eq!(fault.key, "certificates[0].certificate_file");
    assert!(fault.reason.contains("authorities of trust domain prod.example"), "{fault}");
    assert!(fault.may_pass, "the new authorities may come a moment later");
    // At the start there is nothing better.
    let foreign = fixture.generation().unwrap();
    assert_eq!(foreign.remarks(now).len(), 1, "{:?}", foreign.remarks(now));
    assert!(read(&foreign).is_ok());

    // Of other names the files know nothing, and with the new authority all is well.
    put(&other, "spiffe://elsewhere.example/relay");
    assert_eq!(read(&good).unwrap().remarks(now), [""; 0]);
    put(&other, RELAY);
    std::fs::write(fixture.path("ca.crt"), other.pem()).unwrap();
    assert_eq!(read(&good).unwrap().remarks(now), [""; 0]);
}

#[test]
fn crt_3_one_bad_block_among_good_ones_is_named() {
    let fixture = Fixture::new();
    let good = fixture.authority.pem();
    let bad = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n";
    std::fs::write(fixture.path("ca.crt"), format!("{good}{bad}{good}")).unwrap();
    let fault = fixture.generation().unwrap_err();
    assert_eq!(fault.key, "ca_certificate_file");
    let text = "PEM block 2 of 3: not a certificate (DER is malformed); the file as a whole is not used";
    assert!(fault.to_string().ends_with(text), "{fault}");
}

#[test]
fn sec_12_a_client_that_signed_itself_admits_nobody_else() {
    let fixture = Fixture::new();
    let now = wall_now();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.subject_alt_names.push(rcgen::SanType::URI(WEB.try_into().unwrap()));
    params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
    let alone = Authority::with(params, DAY, now).unwrap();
    std::fs::write(fixture.path("ca.crt"), format!("{}{}", fixture.authority.pem(), alone.pem())).unwrap();
    assert_eq!(fixture.judge(&[der(alone.pem())], now).unwrap().to_string(), WEB);
    assert!(fixture.judge(&[der(&fixture.client(&CLIENT).certificate)], now).is_ok());
    let operator = Leaf { uris: &["spiffe://prod.example/ns/ops/sa/root"], ..CLIENT };
    let forged = der(&alone.issue(&operator, DAY, now).unwrap().certificate);
    assert_eq!(fixture.judge(std::slice::from_ref(&forged), now), Err(Reason::UnknownIssuer));
    assert_eq!(fixture.judge(&[forged, der(alone.pem())], now), Err(Reason::Other));

    // A client's leaf instead of the authority: nothing of the file is used.
    std::fs::write(fixture.path("ca.crt"), fixture.client(&CLIENT).certificate).unwrap();
    let fault = fixture.generation().unwrap_err();
    assert_eq!((fault.key.as_str(), fault.may_pass), ("ca_certificate_file", false));
    assert!(fault.to_string().contains("PEM block 1 of 1: not an authority"), "{fault}");
}

/// The key of an anchor could sign for every client, so it is no client itself, unlike the anchor of one
/// server.
#[test]
fn sec_12_an_authority_among_the_anchors_of_a_listener_is_no_client() {
    let mut fixture = Fixture::new();
    let mut params = rcgen::CertificateParams::new(vec!["web.example".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let both = Authority::with(params, DAY, wall_now()).unwrap();
    std::fs::write(fixture.path("ca.crt"), both.pem()).unwrap();
    let file = fixture.path("ca.crt");
    fixture.settings.anchors = Some(AnchorFiles::Authorities { file, trust_domain: None });
    fixture.settings.identity = IdentityKind::Dns;
    fixture.settings.clients = vec![ClientName::Dns(TextMatch::Suffix(".example".to_owned()))];
    let generation = fixture.generation().unwrap();
    let refusal = generation.judge_again(&[der(both.pem())], wall_now()).unwrap_err();
    assert_eq!(refusal.reason, Reason::Purpose);
    assert!(refusal.text.contains("expected one with CA:FALSE, which may be self-signed"), "{refusal}");
    let leaf = Leaf { hosts: &["web.example"], uris: &[], ..CLIENT };
    let issued = both.issue(&leaf, DAY / 2, wall_now()).unwrap();
    assert_eq!(generation.judge_again(&[der(&issued.certificate)], wall_now()), Ok(()));
}
