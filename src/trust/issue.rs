//! An authority that issues certificates for trying out (`sluice dev-certs`), and for tests.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, Error,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType,
    SerialNumber,
};

/// Certificates are valid from a little before now: clocks differ.
const SKEW: Duration = Duration::from_secs(300);

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A leaf to be issued.
#[derive(Clone, Debug, Default)]
pub struct Leaf<'a> {
    pub uris: &'a [&'a str],
    /// DNS names and IP addresses.
    pub hosts: &'a [&'a str],
    pub is_server: bool,
    pub is_client: bool,
}

/// A leaf with its key, in PEM.
#[derive(Clone)]
pub struct Issued {
    pub certificate: String,
    pub private_key: String,
    pub serial: SerialNumber,
}

impl Authority {
    /// A new authority with this common name, valid for `life`.
    ///
    /// # Errors
    /// An error of the cryptography.
    pub fn new(name: &str, life: Duration, now: SystemTime) -> Result<Authority, Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Authority::with(params, life, now)
    }

    /// A new authority from parameters, apart from the times.
    ///
    /// # Errors
    /// An error of the cryptography.
    pub fn with(mut params: CertificateParams, life: Duration, now: SystemTime) -> Result<Authority, Error> {
        (params.not_before, params.not_after) = ((now - SKEW).into(), (now + life).into());
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Authority { issuer: Issuer::new(params, key), pem })
    }

    /// An authority of an earlier run, by its common name, its certificate and its private key.
    ///
    /// # Errors
    /// The private key is malformed.
    pub fn restore(name: &str, certificate: String, private_key: &str) -> Result<Authority, Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Authority { issuer: Issuer::new(params, KeyPair::from_pem(private_key)?), pem: certificate })
    }

    /// The private key in PEM.
    pub fn private_key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// The certificate in PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Issues a leaf.
    ///
    /// # Errors
    /// A name of the leaf is malformed, or an error of the cryptography.
    pub fn issue(&self, leaf: &Leaf<'_>, life: Duration, now: SystemTime) -> Result<Issued, Error> {
        self.issue_with(leaf, life, now, |_| {})
    }

    /// Issues a leaf whose parameters `change` may alter.
    ///
    /// # Errors
    /// A name of the leaf is malformed, or an error of the cryptography.
    pub fn issue_with(
        &self,
        leaf: &Leaf<'_>,
        life: Duration,
        now: SystemTime,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Result<Issued, Error> {
        let hosts: Vec<String> = leaf.hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts)?;
        for uri in leaf.uris {
            params.subject_alt_names.push(SanType::URI((*uri).try_into()?));
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        for (is_wanted, purpose) in [
            (leaf.is_server, ExtendedKeyUsagePurpose::ServerAuth),
            (leaf.is_client, ExtendedKeyUsagePurpose::ClientAuth),
        ] {
            if is_wanted {
                params.extended_key_usages.push(purpose);
            }
        }
        (params.not_before, params.not_after) = ((now - SKEW).into(), (now + life).into());
        let serial = SerialNumber::from(fastrand::u64(1..));
        params.serial_number = Some(serial.clone());
        params.use_authority_key_identifier_extension = true;
        change(&mut params);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Issued { certificate, private_key: key.serialize_pem(), serial })
    }

    /// A certificate revocation list in PEM, valid for `life`.
    ///
    /// # Errors
    /// An error of the cryptography.
    pub fn revoke(&self, serials: &[SerialNumber], life: Duration, now: SystemTime) -> Result<String, Error> {
        let revoked = |serial: &SerialNumber| RevokedCertParams {
            serial_number: serial.clone(),
            revocation_time: (now - SKEW).into(),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: (now - SKEW).into(),
            next_update: (now + life).into(),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer)?.pem()
    }
}
