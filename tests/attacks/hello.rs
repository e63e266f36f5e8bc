//! ClientHellos and records of TLS by hand (RFC 8446, section 4.1.2).

use crate::arena::HOST;

pub const TLS12: u16 = 0x0303;
pub const TLS13: u16 = 0x0304;

pub const HANDSHAKE: u8 = 22;
pub const APPLICATION_DATA: u8 = 23;

const SERVER_NAME: u16 = 0;
const GROUPS: u16 = 10;
const SIGNATURES: u16 = 13;
const ALPN: u16 = 16;
const MASTER_SECRET: u16 = 23;
pub const SESSION_TICKET: u16 = 35;
pub const PRE_SHARED_KEY: u16 = 41;
pub const EARLY_DATA: u16 = 42;
const VERSIONS: u16 = 43;
const PSK_MODES: u16 = 45;
const KEY_SHARE: u16 = 51;

const X25519: u16 = 0x1d;
/// ECDSA with P-256, RSA-PSS and Ed25519.
const SCHEMES: [u16; 3] = [0x0403, 0x0804, 0x0807];
/// TLS 1.3 and 1.2 with AEAD.
const SUITES: [u16; 2] = [0x1301, 0xc02b];
/// Static RSA and CBC.
const OLD_SUITES: [u16; 2] = [0x002f, 0xc009];

/// The variable parts of a ClientHello.
pub struct Hello<'a> {
    pub versions: &'a [u16],
    pub suites: &'a [u16],
    pub alpn: &'a [u8],
    /// The last extensions.
    pub more: Vec<(u16, Vec<u8>)>,
}

impl Default for Hello<'_> {
    fn default() -> Self {
        Hello { versions: &[TLS13, TLS12], suites: &SUITES, alpn: b"h2", more: Vec::new() }
    }
}

impl Hello<'_> {
    pub fn old_versions() -> Self {
        Hello { versions: &[0x0302, 0x0301], ..Hello::default() }
    }

    pub fn old_suites() -> Self {
        Hello { versions: &[TLS12], suites: &OLD_SUITES, ..Hello::default() }
    }

    /// With these offers of a session, for an early request too.
    pub fn resuming(identities: usize) -> Self {
        let identity = [sized(2, &[7; 120]), vec![0; 4]].concat();
        let binder = sized(1, &[7; 32]);
        let offers = [sized(2, &identity.repeat(identities)), sized(2, &binder.repeat(identities))].concat();
        let more = vec![
            (SESSION_TICKET, vec![7; 200]),
            (EARLY_DATA, Vec::new()),
            (PSK_MODES, vec![1, 1]),
            (PRE_SHARED_KEY, offers),
        ];
        Hello { more, ..Hello::default() }
    }

    /// The handshake message.
    pub fn message(&self) -> Vec<u8> {
        let mut extensions = vec![
            (SERVER_NAME, sized(2, &[&[0][..], &sized(2, HOST.as_bytes())].concat())),
            (GROUPS, sized(2, &numbers(&[X25519]))),
            (SIGNATURES, sized(2, &numbers(&SCHEMES))),
            (ALPN, sized(2, &sized(1, self.alpn))),
            (MASTER_SECRET, Vec::new()),
            (VERSIONS, sized(1, &numbers(self.versions))),
            (KEY_SHARE, sized(2, &[numbers(&[X25519]), sized(2, &[9; 32])].concat())),
        ];
        extensions.extend(self.more.iter().cloned());
        let extensions: Vec<u8> = extensions
            .into_iter()
            .flat_map(|(id, body)| [numbers(&[id]), sized(2, &body)].concat())
            .collect();
        // The random bytes of the client, a session for middleboxes, and no compression.
        let body = [
            numbers(&[TLS12]),
            vec![5; 32],
            sized(1, &[6; 32]),
            sized(2, &numbers(self.suites)),
            vec![1, 0],
            sized(2, &extensions),
        ];
        [vec![1], sized(3, &body.concat())].concat()
    }

    pub fn bytes(&self) -> Vec<u8> {
        records(&self.message(), 16_384)
    }
}

fn numbers(all: &[u16]) -> Vec<u8> {
    all.iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// With the length before, in so many bytes.
fn sized(bytes: usize, body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_be_bytes()[4 - bytes..], body].concat()
}

pub fn record(content: u8, payload: &[u8]) -> Vec<u8> {
    [&[content, 3, 3][..], &(payload.len() as u16).to_be_bytes(), payload].concat()
}

/// A handshake message in records of this size.
pub fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|part| record(HANDSHAKE, part)).collect()
}
