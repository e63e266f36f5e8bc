//! The reason of a failed connection, in words that name the side, the file and the alert (TLS-7).

use std::io;

use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

use super::settings::{ClientTls, ServerAuthorities};
use crate::trust::certificate::time_text;
use crate::trust::refusal::{Reason, Refusal, alert_name};
use crate::trust::server::MinVersion;

/// Names of a server's certificate in a message; a certificate of a hosting service has hundreds.
const NAMES_SHOWN: usize = 4;

/// Words for the failures of connections to one server.
#[derive(Clone, Debug)]
pub struct Failures {
    authorities: String,
    certificate: Option<String>,
    versions: &'static str,
}

impl Failures {
    pub fn new(tls: &ClientTls) -> Failures {
        let authorities = match &tls.authorities {
            ServerAuthorities::System => "an authority of this host".to_owned(),
            ServerAuthorities::Files(files) => files.path().display().to_string(),
        };
        let certificate = tls.pair.as_ref().map(|pair| pair.certificate.display().to_string());
        let versions = match tls.min_version {
            MinVersion::Tls12 => "TLS 1.2 or 1.3",
            MinVersion::Tls13 => "TLS 1.3",
        };
        Failures { authorities, certificate, versions }
    }

    /// The reason of an error of a TLS connection, during the handshake or later; `None` if the error comes
    /// from the socket below. No text of a library is passed on (TLS-10).
    pub fn reason_of(&self, error: &io::Error) -> Option<Refusal> {
        let error = error.get_ref()?.downcast_ref::<Error>()?;
        Some(match error {
            Error::AlertReceived(alert) => self.of_alert(*alert),
            Error::InvalidCertificate(error) => self.of_certificate(error),
            Error::NoApplicationProtocol => {
                Refusal::new(Reason::Alpn, "the server selected an application protocol that was not offered")
            }
            Error::PeerIncompatible(error) => {
                let text = match error {
                    PeerIncompatible::NoKxGroupsInCommon => "no key exchange group in common with the server",
                    PeerIncompatible::NoCipherSuitesInCommon => "no cipher suite in common with the server",
                    _ => return Some(self.version()),
                };
                Refusal::new(Reason::Version, text)
            }
            other => {
                let Refusal { reason, text } = Refusal::of(other);
                Refusal::new(reason, format!("the TLS connection to the server failed: {text}"))
            }
        })
    }

    /// The reason of an end without an alert. Servers of gRPC C-core refuse a certificate so.
    pub fn silent_end(&self, moment: &str) -> Refusal {
        let hint = match &self.certificate {
            Some(file) => format!("it may have refused our certificate {file}"),
            None => "it may want a certificate of ours, and certificate_file is not set".to_owned(),
        };
        Refusal::new(
            Reason::Eof,
            format!("the server closed the connection {moment} without an alert; {hint}"),
        )
    }

    fn version(&self) -> Refusal {
        Refusal::new(Reason::Version, format!("the server does not speak {}", self.versions))
    }

    fn of_alert(&self, alert: AlertDescription) -> Refusal {
        use AlertDescription as A;
        let name = alert_name(alert);
        match alert {
            A::CertificateRequired
            | A::NoCertificate
            | A::BadCertificate
            | A::UnsupportedCertificate
            | A::CertificateRevoked
            | A::CertificateExpired
            | A::CertificateUnknown
            | A::UnknownCA
            | A::AccessDenied
            | A::DecryptError => {
                let reason = match alert {
                    A::CertificateRequired | A::NoCertificate => Reason::NoCertificate,
                    A::CertificateRevoked => Reason::Revoked,
                    A::CertificateExpired => Reason::Expired,
                    A::UnknownCA => Reason::UnknownIssuer,
                    A::UnsupportedCertificate => Reason::Purpose,
                    A::AccessDenied => Reason::Identity,
                    _ => Reason::Other,
                };
                let remark = match &self.certificate {
                    Some(file) => format!("the server refused our certificate (alert {name}): {file}"),
                    None => format!(
                        "the server refused our certificate (alert {name}): none was sent, as certificate_file is not \
                         set"
                    ),
                };
                Refusal::new(reason, remark)
            }
            A::ProtocolVersion => {
                let Refusal { reason, text } = self.version();
                Refusal::new(reason, format!("{text} (alert {name})"))
            }
            A::NoApplicationProtocol => {
                let text = format!("the server does not offer the application protocol (alert {name})");
                Refusal::new(Reason::Alpn, text)
            }
            A::UnrecognisedName => Refusal::new(
                Reason::Identity,
                format!("the server does not know the server name (alert {name})"),
            ),
            A::HandshakeFailure if self.certificate.is_none() => Refusal::new(
                Reason::Other,
                format!("the server ended the handshake (alert {name}); it may want a certificate of ours"),
            ),
            _ => Refusal::new(Reason::Other, format!("the server ended the TLS connection (alert {name})")),
        }
    }

    fn of_certificate(&self, error: &CertificateError) -> Refusal {
        use CertificateError as C;
        match error {
            C::UnknownIssuer | C::BadSignature => {
                let text = format!("the server's certificate is not signed by {}", self.authorities);
                Refusal::new(Reason::UnknownIssuer, text)
            }
            C::ExpiredContext { time, not_after } => {
                let (end, now) = (unix_text(*not_after), unix_text(*time));
                let text =
                    format!("the server's certificate, or one above it, ended at {end}; the time is {now}");
                Refusal::new(Reason::Expired, text)
            }
            C::NotValidYetContext { time, not_before } => {
                let (begin, now) = (unix_text(*not_before), unix_text(*time));
                let text = format!(
                    "the server's certificate, or one above it, begins at {begin}; the time is {now}"
                );
                Refusal::new(Reason::NotYetValid, text)
            }
            C::NotValidForNameContext { expected, presented } => {
                let more = if presented.len() > NAMES_SHOWN { ", …" } else { "" };
                let names: Vec<&str> = presented.iter().take(NAMES_SHOWN).map(String::as_str).collect();
                let names = if names.is_empty() { "no name".to_owned() } else { names.join(", ") };
                let expected = expected.to_str();
                let text =
                    format!("the server's certificate is not valid for {expected}; it has {names}{more}");
                Refusal::new(Reason::Identity, text)
            }
            C::InvalidPurpose | C::InvalidPurposeContext { .. } => Refusal::new(
                Reason::Purpose,
                "the server's certificate is not for servers: its extended key usage lacks serverAuth",
            ),
            other => {
                let Refusal { reason, text } = Refusal::of(&Error::InvalidCertificate(other.clone()));
                // A text of our own verifier names the server already.
                let of_verifier = matches!(other, C::Other(_));
                let text = if of_verifier { text } else { format!("the server: {text}") };
                Refusal::new(reason, text)
            }
        }
    }
}

fn unix_text(time: rustls::pki_types::UnixTime) -> String {
    time_text(std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(time.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::pair::PairFiles;

    fn text(tls: &ClientTls, error: Error) -> String {
        let refusal = Failures::new(tls).reason_of(&io::Error::other(error));
        refusal.map_or_else(String::new, |refusal| format!("{}: {}", refusal.reason.name(), refusal.text))
    }

    #[test]
    fn tls_7_an_alert_names_the_side_and_the_file() {
        let without = ClientTls::default();
        let files = PairFiles { certificate: "id/tls.crt".into(), private_key: "id/tls.key".into() };
        let with = ClientTls { pair: Some(files), ..ClientTls::default() };
        let newest = ClientTls { min_version: MinVersion::Tls13, ..ClientTls::default() };
        use AlertDescription as A;
        for (tls, alert, expected) in [
            (
                &without,
                A::CertificateRequired,
                "no_certificate: the server refused our certificate (alert certificate_required): none was sent, as \
                 certificate_file is not set",
            ),
            (
                &with,
                A::UnknownCA,
                "unknown_issuer: the server refused our certificate (alert unknown_ca): id/tls.crt",
            ),
            (
                &with,
                A::CertificateExpired,
                "expired: the server refused our certificate (alert certificate_expired): id/tls.crt",
            ),
            (
                &newest,
                A::ProtocolVersion,
                "version: the server does not speak TLS 1.3 (alert protocol_version)",
            ),
            (
                &with,
                A::NoApplicationProtocol,
                "alpn: the server does not offer the application protocol (alert no_application_protocol)",
            ),
            (&with, A::InternalError, "other: the server ended the TLS connection (alert internal_error)"),
        ] {
            assert_eq!(text(tls, Error::AlertReceived(alert)), expected);
        }
    }

    #[test]
    fn tls_10_other_errors_have_words_of_ours() {
        let tls = ClientTls::default();
        let error = Error::General("see https://docs.example/".into());
        assert_eq!(
            text(&tls, error),
            "other: the TLS connection to the server failed: the peer violated TLS"
        );
        assert_eq!(
            text(&tls, Error::InvalidCertificate(CertificateError::UnknownIssuer)),
            "unknown_issuer: the server's certificate is not signed by an authority of this host"
        );
        assert!(Failures::new(&tls).reason_of(&io::Error::other("reset")).is_none());
    }
}
