//! The keys of `listeners[].tls`.

use std::time::Duration;

use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};

use crate::trust::anchors::AnchorFiles;
use crate::trust::contents::PlaceFile;
use crate::trust::crl::CrlSettings;
use crate::trust::identity::{ClientName, IdentityKind};
use crate::trust::pair::PairFiles;
use sluice_setting::{Range, Setting, bytes, count, hours, minutes, seconds, settings, time};

/// The interval in which all files are read again, changed or not (gRFC A65).
pub const REFRESH_INTERVAL: Setting<Duration> = Setting::new("refresh_interval", minutes(10), REFRESHES);

/// A second is often enough to notice a change that the state of the file does not show.
const REFRESHES: Range = time(seconds(1)..=hours(24));

settings! {
    /// The limits on the certificates that a client may send (SEC-4, SEC-5).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ChainLimits {
        /// Bytes of all certificates of a client. A chain of three has 2 to 4 KiB; the relay keeps them for
        /// the life of the connection.
        client_chain_bytes: usize = 16 << 10, bytes(1 << 10..=60 << 10);
        /// Certificates of a client. Each costs a signature check for each authority of one subject.
        client_chain_certificates: usize = 8, count(1..=16);
    }
}

/// TLS of one listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTls {
    /// 1 to 8; SNI picks one, else the first (TLS-5).
    pub certificates: Vec<PairFiles>,
    pub client_certificate: ClientCertificate,
    /// The authorities of clients. Present unless no client certificate is asked for.
    pub anchors: Option<AnchorFiles>,
    pub identity: IdentityKind,
    /// Identities that may finish the handshake. Empty: any SPIFFE ID.
    pub clients: Vec<ClientName>,
    pub crl: Option<CrlSettings>,
    pub min_version: MinVersion,
    pub refresh_interval: Duration,
    pub on_client_expiry: OnClientExpiry,
}

impl ServerTls {
    /// All files, of which one generation consists.
    pub fn files(&self) -> Vec<PlaceFile> {
        let pairs = self.certificates.iter().enumerate();
        let mut files: Vec<_> =
            pairs.flat_map(|(index, pair)| pair.files(&format!("certificates[{index}]."))).collect();
        files.extend(self.anchors.iter().map(AnchorFiles::file));
        let lists = self.crl.iter().flat_map(|crl| &crl.files).enumerate();
        files.extend(lists.map(|(index, path)| PlaceFile::new(format!("crl.files[{index}]"), path)));
        files
    }
}

/// Whether clients show a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificate {
    None,
    /// A client without one is anonymous. A bad one is refused.
    Optional,
    Required,
}

/// The oldest permitted version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MinVersion {
    /// Envoy as a client stops at 1.2 by default (TLS-2).
    #[default]
    Tls12,
    Tls13,
}

impl MinVersion {
    /// The versions for a builder of rustls.
    pub fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
        static NEWEST: [&SupportedProtocolVersion; 1] = [&TLS13];
        match self {
            MinVersion::Tls12 => &BOTH,
            MinVersion::Tls13 => &NEWEST,
        }
    }
}

/// The treatment of a connection whose client certificate runs out (CRT-9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnClientExpiry {
    /// The connection is asked to close before the end, and is cut a minute after.
    #[default]
    End,
    Keep,
}
