//! Certificates that are equal in each run: Ed25519 keys from fixed seeds, and fixed times.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CustomExtension, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ED25519,
    RevokedCertParams, SanType, SerialNumber,
};
use rustls::pki_types::PrivatePkcs8KeyDer;

const DAY: Duration = Duration::from_secs(86_400);

/// PKCS #8 of an Ed25519 key, up to the 32 bytes of the seed (RFC 8410).
const PKCS8: &[u8] = &[0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// The time at which files and certificates are judged.
pub fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + 20_000 * DAY
}

pub fn key(number: u8) -> KeyPair {
    let pkcs8 = [PKCS8, &[number; 32]].concat();
    KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(pkcs8), &PKCS_ED25519).unwrap()
}

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

pub fn authority(number: u8) -> Authority {
    let mut params = params(&[], &[]);
    params.distinguished_name.push(DnType::CommonName, format!("authority {number}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = key(number);
    let pem = params.self_signed(&key).unwrap().pem();
    Authority { issuer: Issuer::new(params, key), pem }
}

/// A leaf that is valid a century long, so that the clock of a test does not matter.
fn params(uris: &[&str], hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).unwrap();
    for uri in uris {
        params.subject_alt_names.push(SanType::URI((*uri).try_into().unwrap()));
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    (params.not_before, params.not_after) = ((now() - DAY).into(), (now() + 36_500 * DAY).into());
    params.serial_number = Some(SerialNumber::from(7_u64));
    params
}

impl Authority {
    /// A leaf with the key of this number, and with changed parameters.
    pub fn leaf(
        &self,
        number: u8,
        uris: &[&str],
        hosts: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> rcgen::Certificate {
        let mut params = params(uris, hosts);
        change(&mut params);
        params.signed_by(&key(number), &self.issuer).unwrap()
    }

    /// A list with these serials, in PEM.
    pub fn revoke(&self, serials: &[u64]) -> String {
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: now().into(),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: now().into(),
            next_update: (now() + 36_500 * DAY).into(),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

/// Basic constraints with a constructed flag.
fn constrain(params: &mut CertificateParams, flag: u8) {
    let constraints = vec![0x30, 6, 0x21, 1, flag, 2, 1, 0];
    let extension = CustomExtension::from_oid_content(&[2, 5, 29, 19], constraints);
    params.custom_extensions.push(extension);
}

/// The leaves that SPIFFE's rules tell apart, in DER.
pub fn odd_leaves() -> Vec<Vec<u8>> {
    const GOOD: &str = "spiffe://d/ns/shop";
    let authority = authority(1);
    let leaf = |uris: &[&str], hosts: &[&str], change: fn(&mut CertificateParams)| {
        authority.leaf(2, uris, hosts, change).der().to_vec()
    };
    vec![
        leaf(&[GOOD], &[], |_| {}),
        leaf(&[GOOD], &["relay.example", "10.0.0.1", "::1"], |_| {}),
        leaf(&[], &["a.example", "*.example"], |_| {}),
        leaf(&[GOOD, GOOD], &[], |_| {}),
        leaf(&["https://other", GOOD], &[], |_| {}),
        leaf(&["spiffe://D/a"], &[], |_| {}),
        leaf(&["spiffe://d/a%20b"], &[], |_| {}),
        leaf(&["spiffe://d"], &[], |_| {}),
        leaf(&[GOOD], &[], |params| params.key_usages.clear()),
        leaf(&[GOOD], &[], |params| params.key_usages = vec![KeyUsagePurpose::KeyAgreement]),
        leaf(&[GOOD], &[], |params| params.key_usages.push(KeyUsagePurpose::KeyCertSign)),
        leaf(&[GOOD], &[], |params| params.key_usages.push(KeyUsagePurpose::CrlSign)),
        leaf(&[GOOD], &[], |params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0))),
        leaf(&[GOOD], &[], |params| params.is_ca = IsCa::ExplicitNoCa),
        leaf(&[GOOD], &[], |params| params.extended_key_usages.clear()),
        // Found by libFuzzer: a subject key identifier that is longer than its extension. Nobody reads it.
        leaf(&[GOOD], &[], |params| {
            let extension = CustomExtension::from_oid_content(&[2, 5, 29, 14], vec![4, 22, 1]);
            params.custom_extensions.push(extension);
        }),
        // Found by libFuzzer: the flag of an authority in a malformed form.
        leaf(&[GOOD], &[], |params| constrain(params, 0xff)),
        leaf(&[GOOD], &[], |params| constrain(params, 0)),
    ]
}
