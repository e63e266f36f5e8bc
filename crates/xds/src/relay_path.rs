//! The relays that a call has passed through (TIR-2).
//!
//! A relay below this one sends its path with each call, and this relay adds itself to the path of its own
//! calls. So a relay can tell relays from other clients, and finds itself in the path if servers lead back to
//! it.

use std::error::Error;
use std::fmt;

/// The header with the path: ids with commas between, the relay nearest to the client first.
pub const HEADER: &str = "x-sluice-path";

/// The maximum number of relays in a path. Three tiers serve millions of clients.
pub const RELAYS_MAX: usize = 8;

/// The maximum size of an id. A longer id of a node is cut: the instance tells relays apart. A whole path
/// stays far below 8 KiB, the bound of some servers for all headers of a call.
const ID_BYTES_MAX: usize = 256;

/// The id of one run of a relay: the id of its node, and a number drawn at the start. Replicas may share the
/// id of a node, and a path through two of them is no loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayId(Box<str>);

impl RelayId {
    pub fn new(node_id: &str, instance: u64) -> RelayId {
        let mut text = String::with_capacity(node_id.len() + 17);
        for byte in node_id.bytes() {
            if text.len() + 3 + 17 > ID_BYTES_MAX {
                break;
            }
            match byte {
                b'%' | b',' | b'~' => text.push_str(&format!("%{byte:02X}")),
                b'!'..=b'~' => text.push(char::from(byte)),
                _ => text.push_str(&format!("%{byte:02X}")),
            }
        }
        text.push_str(&format!("~{instance:016x}"));
        RelayId(text.into())
    }
}

/// The ids of relays, the one nearest to the client first; never empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelayPath(Box<str>);

/// A header is not a path of relays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    Character,
    /// The position of the entry, from 1.
    Empty(usize),
    /// The position of the entry, from 1.
    TooLong(usize),
    TooMany,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{HEADER}`: ")?;
        match self {
            Self::Character => write!(f, "found a character that is not printable ASCII"),
            Self::Empty(entry) => write!(f, "entry {entry} is empty"),
            Self::TooLong(entry) => write!(f, "entry {entry} has more than {ID_BYTES_MAX} bytes"),
            Self::TooMany => write!(f, "found more than {RELAYS_MAX} relays"),
        }
    }
}

impl Error for PathError {}

impl RelayPath {
    /// Reads the value of the header.
    ///
    /// # Errors
    /// The first fault of the value.
    pub fn parse(value: &[u8]) -> Result<RelayPath, PathError> {
        let is_printable = |byte: &u8| matches!(byte, b' '..=b'~');
        let text = str::from_utf8(value).ok().filter(|text| text.as_bytes().iter().all(is_printable));
        let text = text.ok_or(PathError::Character)?;
        let mut ids = Vec::new();
        for (index, id) in text.split(',').map(str::trim).enumerate() {
            match id.len() {
                _ if index == RELAYS_MAX => return Err(PathError::TooMany),
                0 => return Err(PathError::Empty(index + 1)),
                1..=ID_BYTES_MAX => ids.push(id),
                _ => return Err(PathError::TooLong(index + 1)),
            }
        }
        Ok(RelayPath(ids.join(",").into()))
    }

    /// The path of a relay's own calls: the path of its client, if the client is a relay, and the relay
    /// itself. The relays nearest to the client are left out if there are too many: a client that invents
    /// relays must not cost other clients their upstream.
    pub fn through(before: Option<&RelayPath>, relay: &RelayId) -> RelayPath {
        let Some(before) = before else { return RelayPath(relay.0.clone()) };
        let surplus = (before.hops() + 1).saturating_sub(RELAYS_MAX);
        let ids: Vec<_> = before.ids().skip(surplus).chain([&*relay.0]).collect();
        RelayPath(ids.join(",").into())
    }

    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.split(',')
    }

    /// The number of relays.
    pub fn hops(&self) -> usize {
        self.ids().count()
    }

    pub fn has(&self, id: &RelayId) -> bool {
        self.ids().any(|relay| *relay == *id.0)
    }

    /// The value of the header.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// For people: without the numbers of instances.
impl fmt::Display for RelayPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, id) in self.ids().enumerate() {
            let name = id.rsplit_once('~').map_or(id, |(name, _)| name);
            write!(f, "{}{name}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn tir_2_a_path_grows_by_one_relay_and_is_read_again() {
        let (leaf, root) = (RelayId::new("leaf", 1), RelayId::new("root", 2));
        let path = RelayPath::through(None, &leaf);
        let path = RelayPath::through(Some(&path), &root);
        assert_eq!(path.as_str(), "leaf~0000000000000001,root~0000000000000002");
        assert_eq!(RelayPath::parse(path.as_str().as_bytes()), Ok(path.clone()));
        assert_eq!((path.to_string().as_str(), path.hops()), ("leaf, root", 2));
        assert!(path.has(&leaf) && path.has(&root) && !path.has(&RelayId::new("root", 3)));
    }

    #[test]
    fn tir_2_a_full_path_loses_the_relays_nearest_to_the_client() {
        let full = RelayPath::parse(b"1,2,3,4,5,6,7,8").unwrap();
        let path = RelayPath::through(Some(&full), &RelayId::new("root", 2));
        assert_eq!(path.as_str(), "2,3,4,5,6,7,8,root~0000000000000002");
    }

    #[test]
    fn tir_2_any_id_of_a_node_fits_into_a_header() {
        for node in ["a,b~c%", "käse\n", "", &"ü".repeat(5000)] {
            let id = RelayId::new(node, u64::MAX);
            let path = RelayPath::through(None, &id);
            assert_eq!(RelayPath::parse(path.as_str().as_bytes()), Ok(path.clone()), "{node:?}");
            assert!(path.has(&id) && path.hops() == 1, "{node:?}");
        }
    }

    #[test]
    fn tir_2_faults_are_named() {
        let parse = |text: &str| RelayPath::parse(text.as_bytes());
        let faults = [
            ("", PathError::Empty(1)),
            ("a,,b", PathError::Empty(2)),
            ("a,b\u{7f}", PathError::Character),
            ("käse", PathError::Character),
            ("1,2,3,4,5,6,7,8,9", PathError::TooMany),
        ];
        for (text, fault) in faults {
            assert_eq!(parse(text), Err(fault), "{text:?}");
        }
        assert_eq!(parse(&"x".repeat(257)), Err(PathError::TooLong(1)));
        assert_eq!(parse(" a , b ").map(|path| path.as_str().to_owned()), Ok("a,b".to_owned()));
        assert_eq!(parse("1,2,3,4,5,6,7,8").map(|path| path.hops()), Ok(8));
    }
}
