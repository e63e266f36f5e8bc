//! The keys of `channel_creds` and `tls` of a server.

use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;

use super::sans::SanMatch;
use crate::trust::anchors::AnchorFiles;
use crate::trust::contents::PlaceFile;
use crate::trust::pair::PairFiles;
use crate::trust::provider::provider;
use crate::trust::server::MinVersion;
use sluice_setting::{Range, Setting, hours, minutes, ms, seconds, time};

/// The interval in which all files are read again, changed or not (gRFC A65). Bootstraps of tests have
/// fractions of seconds.
pub const REFRESH_INTERVAL: Setting<Duration> =
    Setting::new("refresh_interval", minutes(10), time(ms(100)..=hours(24)));

/// From the TCP connection to the end of the handshake. A control plane that restarts under the handshakes of
/// all its clients needs seconds (TLS-7).
pub const HANDSHAKE_TIMEOUT: Setting<Duration> = Setting::new("handshake_timeout", seconds(5), HANDSHAKES);

const HANDSHAKES: Range = time(ms(100)..=seconds(300));

/// TLS towards one server. Two settings are two servers (ISO-5).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientTls {
    pub authorities: ServerAuthorities,
    /// The relay's own certificate.
    pub pair: Option<PairFiles>,
    pub refresh_interval: Duration,
    /// The name for SNI and `:authority`, and for the check without `match_sans`. `None`: the host of the
    /// address.
    pub server_name: Option<String>,
    /// Checked instead of the server's name, unless empty (IDN-7).
    pub match_sans: Vec<SanMatch>,
    pub min_version: MinVersion,
    pub key_exchange: KeyExchange,
}

impl Default for ClientTls {
    /// The authorities of the system, and no certificate of the relay.
    fn default() -> ClientTls {
        ClientTls {
            authorities: ServerAuthorities::System,
            pair: None,
            refresh_interval: REFRESH_INTERVAL.default,
            server_name: None,
            match_sans: Vec::new(),
            min_version: MinVersion::default(),
            key_exchange: KeyExchange::default(),
        }
    }
}

impl ClientTls {
    /// All files, of which one generation consists.
    pub fn files(&self) -> Vec<PlaceFile> {
        let mut files: Vec<_> = self.pair.iter().flat_map(|pair| pair.files("")).collect();
        if let ServerAuthorities::Files(anchors) = &self.authorities {
            files.push(anchors.file());
        }
        files
    }
}

/// The authorities that may sign the server's certificate (IDN-8).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ServerAuthorities {
    /// The host's own, as OpenSSL finds them.
    System,
    Files(AnchorFiles),
}

/// The groups of the key exchange (TLS-13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KeyExchange {
    /// X25519MLKEM768 first. The first message then takes two segments.
    #[default]
    Hybrid,
    /// X25519, P-256 and P-384, for a device on the path that resets a connection whose first message is
    /// long.
    Classic,
}

impl KeyExchange {
    pub(super) fn provider(self) -> std::sync::Arc<CryptoProvider> {
        let all = provider();
        match self {
            KeyExchange::Hybrid => all,
            KeyExchange::Classic => {
                use rustls::NamedGroup::{X25519, secp256r1, secp384r1};
                let is_classic = |group: rustls::NamedGroup| [X25519, secp256r1, secp384r1].contains(&group);
                let mut classic = (*all).clone();
                classic.kx_groups.retain(|group| is_classic(group.name()));
                classic.into()
            }
        }
    }
}

/// Whether a text is a DNS name or an address, as a server's certificate may have.
pub fn is_server_name(text: &str) -> bool {
    ServerName::try_from(text).is_ok()
}
