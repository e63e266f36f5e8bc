//! Certificates of clients that cost much to check (SEC-4, SEC-5), or that are odd.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P521_SHA512, PKCS_RSA_SHA256, PublicKeyData, SanType, SignatureAlgorithm,
};
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use sluice::trust::provider::provider;
use tokio::io::AsyncWriteExt;

use crate::arena::{Trust, WEB};
use crate::attack::{Attack, CLOSED_WITHIN, Outcome, Script, Strand, TLS, attack, handshakes};
use crate::crowd::{lanes, until_closed};
use crate::frames;

const PAUSE: Duration = Duration::from_millis(50);
const LANES: usize = 2;

/// The authority is that of the relay's clients.
type Make = fn(&Trust) -> Shown;
type Shown = (Vec<CertificateDer<'static>>, Arc<dyn SigningKey>);

/// A client that shows a chain.
macro_rules! shows {
    ($chain:expr) => {
        Script::Own(|strand| Box::pin(shows(strand, $chain)))
    };
}

pub const ALL: &[Attack] = &[
    attack("a giant client chain", TLS, handshakes(&["too_large"]), shows!(giant)),
    attack("a ring of authorities", TLS, handshakes(&["too_large"]), shows!(ring)),
    attack("many authorities of one name", TLS, handshakes(&["too_large"]), shows!(wide)),
    attack("a leaf of its own", TLS, handshakes(&["unknown_issuer"]), shows!(alone)),
    attack("an unknown critical extension", TLS, handshakes(&["other"]), shows!(critical)),
    attack("a key on P-521", TLS, handshakes(&["other"]), shows!(large_key)),
    attack("a leaf with RSA of 16,384 bits", TLS, handshakes(&["other"]), shows!(huge_leaf)),
    attack("an authority with RSA of 16,384 bits", TLS, handshakes(&["other"]), shows!(huge_authority)),
    attack(
        "three authorities with RSA of 16,384 bits",
        TLS,
        handshakes(&["other"]),
        shows!(huge_authorities),
    ),
    attack("a chain of nine", TLS, handshakes(&["too_large"]), shows!(long)),
    attack("a chain of long certificates", TLS, handshakes(&["too_large"]), shows!(broad)),
];

#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl ResolvesClientCert for Shows {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Shows the same chain again and again.
async fn shows(strand: Strand, make: Make) -> Outcome {
    let (chain, key) = make(&strand.target.trust);
    let mut config = strand.target.trust.client(&[b"h2"]);
    // A client of rustls would refuse to show some of them.
    config.client_auth_cert_resolver = Arc::new(Shows(Arc::new(CertifiedKey::new(chain, key))));
    let config = Arc::new(config);
    lanes(strand, LANES, PAUSE, move |strand| {
        let config = config.clone();
        async move {
            let begin = Instant::now();
            // In TLS 1.3 the client believes to be connected before the relay has judged.
            match strand.target.connect_with(config).await {
                Ok(mut wire) => {
                    let _ = wire.write_all(&frames::opening()).await;
                    let _ = wire.flush().await;
                    until_closed(wire, begin, CLOSED_WITHIN).await
                }
                Err(_) => Outcome::of_close(begin, true),
            }
        }
    })
    .await
}

fn leaf() -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "web");
    params.subject_alt_names = vec![SanType::URI(WEB.try_into().unwrap())];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params
}

/// The name of the relay's own authority.
fn authority(serial: u64) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "prod");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.serial_number = Some(serial.into());
    params
}

fn signed(params: CertificateParams, key: KeyPair, issuer: &Issuer<'_, KeyPair>) -> Shown {
    let certificate = params.signed_by(&key, issuer).unwrap();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let key = provider().key_provider.load_private_key(key.into()).unwrap();
    (vec![certificate.der().clone()], key)
}

fn key() -> KeyPair {
    KeyPair::generate().unwrap()
}

/// 200 authorities with the name of the right one, 64 KiB in all.
fn giant(_: &Trust) -> Shown {
    many(200)
}

/// As many as a chain may have: each is tried as the issuer of the leaf.
fn wide(_: &Trust) -> Shown {
    many(7)
}

fn many(count: u64) -> Shown {
    let (mut chain, key_of_leaf) = signed(leaf(), key(), &Issuer::new(authority(0), key()));
    for serial in 1..=count {
        chain.push(authority(serial).self_signed(&key()).unwrap().der().clone());
    }
    (chain, key_of_leaf)
}

/// Authorities that sign each other, of one name and one key: no path through them ends.
fn ring(_: &Trust) -> Shown {
    let issuer = Issuer::new(authority(0), key());
    let (mut chain, key_of_leaf) = signed(leaf(), key(), &issuer);
    for serial in 1..=7 {
        chain.push(authority(serial).signed_by(issuer.key(), &issuer).unwrap().der().clone());
    }
    (chain, key_of_leaf)
}

fn alone(_: &Trust) -> Shown {
    signed(leaf(), key(), &Issuer::new(authority(0), key()))
}

/// Good but for the authorities beside it, which have names of their own.
fn beside(trust: &Trust, count: u64, bytes: usize) -> Shown {
    let (mut chain, key_of_leaf) = signed(leaf(), key(), &good_issuer(trust));
    for serial in 1..=count {
        let mut params = authority(serial);
        params.distinguished_name.push(DnType::CommonName, format!("other {serial}"));
        let extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 2], vec![4; bytes]);
        params.custom_extensions.push(extension);
        chain.push(params.self_signed(&key()).unwrap().der().clone());
    }
    (chain, key_of_leaf)
}

fn long(trust: &Trust) -> Shown {
    beside(trust, 8, 10)
}

fn broad(trust: &Trust) -> Shown {
    beside(trust, 2, 9_000)
}

/// The authority that the relay trusts.
fn good_issuer(trust: &Trust) -> Issuer<'static, KeyPair> {
    Issuer::new(authority(0), KeyPair::from_pem(&trust.authority.private_key()).unwrap())
}

fn critical(trust: &Trust) -> Shown {
    let mut params = leaf();
    let mut extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![5, 0]);
    extension.set_criticality(true);
    params.custom_extensions.push(extension);
    signed(params, key(), &good_issuer(trust))
}

fn large_key(trust: &Trust) -> Shown {
    const LARGE: &SignatureAlgorithm = &PKCS_ECDSA_P521_SHA512;
    signed(leaf(), KeyPair::generate_for(LARGE).unwrap(), &good_issuer(trust))
}

/// A public key of 16,384 bits without a private key: the signatures are no signatures, but the relay has to compute to
/// find out. A modulus and an exponent of random bits cost as much as those of a real key.
#[derive(Clone, Debug)]
struct Huge(Arc<Vec<u8>>);

const HUGE_BYTES: usize = 16_384 / 8;

impl Huge {
    fn new() -> Huge {
        let mut modulus = vec![0xa5; HUGE_BYTES];
        provider().secure_random.fill(&mut modulus).unwrap();
        modulus[0] |= 0x80;
        modulus[HUGE_BYTES - 1] |= 1;
        let integer = |bytes: &[u8]| {
            let [high, low] = u16::try_from(bytes.len() + 1).unwrap().to_be_bytes();
            [&[2, 0x82, high, low, 0], bytes].concat()
        };
        // 33 bits is the largest exponent that libraries take.
        let numbers = [integer(&modulus), vec![2, 5, 1, 0xff, 0xff, 0xff, 0xff]].concat();
        let [high, low] = u16::try_from(numbers.len()).unwrap().to_be_bytes();
        Huge(Arc::new([&[0x30, 0x82, high, low][..], &numbers].concat()))
    }
}

impl PublicKeyData for Huge {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_RSA_SHA256
    }
}

impl rcgen::SigningKey for Huge {
    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        Ok(vec![0x11; HUGE_BYTES])
    }
}

impl SigningKey for Huge {
    fn choose_scheme(&self, _: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        Some(Box::new(self.clone()))
    }

    fn algorithm(&self) -> rustls::SignatureAlgorithm {
        rustls::SignatureAlgorithm::RSA
    }
}

impl Signer for Huge {
    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        Ok(vec![0x11; HUGE_BYTES])
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::RSA_PSS_SHA256
    }
}

/// A leaf of the right authority.
fn huge_leaf(trust: &Trust) -> Shown {
    let huge = Huge::new();
    let certificate = leaf().signed_by(&huge, &good_issuer(trust)).unwrap();
    (vec![certificate.der().clone()], Arc::new(huge))
}

/// Below the right authority, above the leaf.
fn huge_authority(trust: &Trust) -> Shown {
    below(trust, 1)
}

/// As many as fit into a chain, of one name: each might have signed the leaf.
fn huge_authorities(trust: &Trust) -> Shown {
    below(trust, 3)
}

fn below(trust: &Trust, count: u64) -> Shown {
    let name = |serial| {
        let mut params = authority(serial);
        params.distinguished_name.push(DnType::CommonName, "huge");
        params
    };
    let huge = Huge::new();
    let (mut chain, key_of_leaf) = {
        let key = key();
        let certificate = leaf().signed_by(&key, &Issuer::new(name(1), huge.clone())).unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        (vec![certificate.der().clone()], provider().key_provider.load_private_key(key.into()).unwrap())
    };
    for serial in 1..=count {
        chain.push(name(serial).signed_by(&Huge::new(), &good_issuer(trust)).unwrap().der().clone());
    }
    (chain, key_of_leaf)
}
