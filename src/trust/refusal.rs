//! The reasons for failed handshakes: a label for the metric, and words for the log (SEC-11).

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, OtherError, PeerIncompatible};

/// The outcome of a handshake other than success, as the metric shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    Timeout,
    Evicted,
    Rate,
    Eof,
    NotTls,
    TooLarge,
    Version,
    Alpn,
    NoCertificate,
    UnknownIssuer,
    Expired,
    NotYetValid,
    Revoked,
    Purpose,
    Identity,
    Other,
}

impl Reason {
    pub const ALL: [Reason; 16] = [
        Reason::Timeout,
        Reason::Evicted,
        Reason::Rate,
        Reason::Eof,
        Reason::NotTls,
        Reason::TooLarge,
        Reason::Version,
        Reason::Alpn,
        Reason::NoCertificate,
        Reason::UnknownIssuer,
        Reason::Expired,
        Reason::NotYetValid,
        Reason::Revoked,
        Reason::Purpose,
        Reason::Identity,
        Reason::Other,
    ];

    /// The label of the metric.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Timeout => "timeout",
            Reason::Evicted => "evicted",
            Reason::Rate => "rate",
            Reason::Eof => "eof",
            Reason::NotTls => "not_tls",
            Reason::TooLarge => "too_large",
            Reason::Version => "version",
            Reason::Alpn => "alpn",
            Reason::NoCertificate => "no_certificate",
            Reason::UnknownIssuer => "unknown_issuer",
            Reason::Expired => "expired",
            Reason::NotYetValid => "not_yet_valid",
            Reason::Revoked => "revoked",
            Reason::Purpose => "purpose",
            Reason::Identity => "identity",
            Reason::Other => "other",
        }
    }
}

/// A failed handshake: the label, and one sentence for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: Reason,
    pub text: String,
}

impl Refusal {
    pub fn new(reason: Reason, text: impl Into<String>) -> Refusal {
        Refusal { reason, text: text.into() }
    }

    /// The error that a verifier returns. Carries the refusal through rustls to [`Refusal::of`].
    pub fn into_error(self) -> Error {
        Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(self))))
    }

    /// The reason of an error from a handshake.
    pub fn of_io(error: &io::Error) -> Refusal {
        let inner = error.get_ref();
        if let Some(refusal) = inner.and_then(|inner| inner.downcast_ref::<Refusal>()) {
            return refusal.clone();
        }
        if let Some(error) = inner.and_then(|inner| inner.downcast_ref::<Error>()) {
            return Refusal::of(error);
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                Refusal::new(Reason::Eof, "the peer left during the handshake")
            }
            kind => Refusal::new(Reason::Other, format!("the connection failed: {kind}")),
        }
    }

    /// The reason of an error of rustls. The texts are ours: those of the library contain links (TLS-10).
    pub fn of(error: &Error) -> Refusal {
        match error {
            Error::InvalidCertificate(error) => of_certificate(error),
            Error::NoCertificatesPresented => {
                Refusal::new(Reason::NoCertificate, "the peer presented no certificate")
            }
            Error::NoApplicationProtocol => Refusal::new(
                Reason::Alpn,
                "no application protocol (ALPN) in common; listeners serve h2 and http/1.1, the admin listener http/1.1",
            ),
            Error::PeerIncompatible(error) => of_incompatible(error),
            Error::InvalidMessage(
                InvalidMessage::HandshakePayloadTooLarge | InvalidMessage::MessageTooLarge,
            )
            | Error::PeerSentOversizedRecord => {
                Refusal::new(Reason::TooLarge, "a message of the handshake is too large")
            }
            Error::AlertReceived(alert) => {
                Refusal::new(Reason::Other, format!("the peer refused: alert {}", alert_name(*alert)))
            }
            Error::DecryptError => Refusal::new(Reason::Other, "a record could not be decrypted"),
            Error::InvalidMessage(_) => {
                Refusal::new(Reason::Other, "a message of the handshake is malformed")
            }
            _ => Refusal::new(Reason::Other, "the peer violated TLS"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Refusal {}

fn of_certificate(error: &CertificateError) -> Refusal {
    if let CertificateError::Other(other) = error
        && let Some(refusal) = other.0.downcast_ref::<Refusal>()
    {
        return refusal.clone();
    }
    let (reason, text) = match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            (Reason::Expired, "the certificate, or one above it, has expired")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            (Reason::NotYetValid, "the certificate, or one above it, is not valid yet")
        }
        CertificateError::Revoked => (Reason::Revoked, "the certificate was revoked"),
        CertificateError::UnknownRevocationStatus => {
            (Reason::Revoked, "no certificate revocation list covers the certificate")
        }
        CertificateError::ExpiredRevocationList | CertificateError::ExpiredRevocationListContext { .. } => {
            (Reason::Revoked, "the certificate revocation list has expired")
        }
        // An authority with the trusted name and another key leaves a wrong signature.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            (Reason::UnknownIssuer, "no trusted authority signed the certificate")
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => (
            Reason::Purpose,
            "the extended key usage of the certificate does not permit this side (clients need clientAuth, which \
             public authorities no longer issue; servers need serverAuth)",
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            (Reason::Identity, "the certificate is not valid for the expected name")
        }
        CertificateError::BadEncoding => (Reason::Other, "the certificate is malformed"),
        CertificateError::UnhandledCriticalExtension => {
            (Reason::Other, "the certificate has an unknown critical extension")
        }
        _ => (Reason::Other, "the certificate was not accepted"),
    };
    Refusal::new(reason, text)
}

fn of_incompatible(error: &PeerIncompatible) -> Refusal {
    use PeerIncompatible as P;
    match error {
        P::ServerDoesNotSupportTls12Or13
        | P::ServerTlsVersionIsDisabledByOurConfig
        // Clients of TLS 1.1 and older lack the extensions of 1.2.
        | P::SignatureAlgorithmsExtensionRequired
        | P::SupportedVersionsExtensionRequired
        | P::Tls12NotOffered
        | P::Tls12NotOfferedOrEnabled => {
            Refusal::new(Reason::Version, "the peer offers no TLS version that is enabled here")
        }
        P::NoCipherSuitesInCommon => Refusal::new(Reason::Version, "no cipher suite in common"),
        P::ExtendedMasterSecretExtensionRequired => {
            Refusal::new(Reason::Version, "the peer lacks the extended master secret of TLS 1.2 (RFC 7627)")
        }
        P::NoKxGroupsInCommon => Refusal::new(Reason::Version, "no key exchange group in common"),
        P::NoSignatureSchemesInCommon => Refusal::new(
            Reason::Version,
            "no signature scheme in common; the kind of the certificate's key may not suit the peer",
        ),
        _ => Refusal::new(Reason::Other, "the peer lacks a required feature of TLS"),
    }
}

/// The name of an alert in the words of RFC 8446, section 6.
pub fn alert_name(alert: AlertDescription) -> String {
    let (mut name, mut was_capital) = (String::new(), true);
    for character in format!("{alert:?}").chars() {
        if character.is_ascii_uppercase() && !was_capital {
            name.push('_');
        }
        was_capital = character.is_ascii_uppercase();
        name.push(character.to_ascii_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_have_the_names_of_the_rfc() {
        for (alert, name) in [
            (AlertDescription::CertificateRequired, "certificate_required"),
            (AlertDescription::UnknownCA, "unknown_ca"),
            (AlertDescription::NoApplicationProtocol, "no_application_protocol"),
            (AlertDescription::HandshakeFailure, "handshake_failure"),
        ] {
            assert_eq!(alert_name(alert), name);
        }
    }

    #[test]
    fn tls_10_no_text_of_the_library_is_told() {
        let error = io::Error::other(Error::General("see https://docs.example/".into()));
        assert_eq!(Refusal::of_io(&error).text, "the peer violated TLS");
    }

    #[test]
    fn a_refusal_passes_through_rustls() {
        let refusal = Refusal::new(Reason::Identity, "no");
        let error = io::Error::other(refusal.clone().into_error());
        assert_eq!(Refusal::of_io(&error), refusal);
    }
}
