//! The messages, in the order of sending (HND-3).
//!
//! | from | message | the sender |
//! |---|---|---|
//! | new | `hello` | has a valid configuration |
//! | old | `offer` | passes sockets and lock |
//! | old | `source` | passes the state of a source; the new process answers `taken` |
//! | new | `ready` | has opened the upstream streams |
//! | old | `accept` | accepts no more, keeps the descriptors, and passes its plans and splits of classes |
//! | new | `accepting` | accepts: from here on there is no way back |
//! | old | `done` | has told the supervisor |
//! | old | `draining` | tells the number of streams, until the end |
//! | new | `end` | wants the old process to end at once |
//! | new | `stopping` | was told to stop: the old process stops, too |
//!
//! Either side may send `refused` with a reason before `accepting`, and ends the hand-over.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::HandoverFault;

/// The protocols of the build. A change of meaning takes a new number; a new key does not.
pub const OLDEST: u32 = 1;
pub const NEWEST: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum HandoverMessage {
    Hello(Hello),
    Offer(Offer),
    Source(Source),
    Taken {
        number: u64,
    },
    Ready,
    Accept,
    Accepting,
    Done,
    Draining(Draining),
    End,
    Stopping,
    Refused {
        reason: String,
    },
    /// A message of another build, without a meaning here.
    #[serde(other)]
    Unknown,
}

impl HandoverMessage {
    fn name(&self) -> &'static str {
        match self {
            HandoverMessage::Hello(_) => "hello",
            HandoverMessage::Offer(_) => "offer",
            HandoverMessage::Source(_) => "source",
            HandoverMessage::Taken { .. } => "taken",
            HandoverMessage::Ready => "ready",
            HandoverMessage::Accept => "accept",
            HandoverMessage::Accepting => "accepting",
            HandoverMessage::Done => "done",
            HandoverMessage::Draining(_) => "draining",
            HandoverMessage::End => "end",
            HandoverMessage::Stopping => "stopping",
            HandoverMessage::Refused { .. } => "refused",
            HandoverMessage::Unknown => "unknown",
        }
    }

    /// The error of a message at the place of `expected`.
    pub fn instead_of(&self, expected: &'static str) -> HandoverFault {
        HandoverFault::Unexpected { received: self.name(), expected }
    }
}

/// The successor introduces itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The newest protocol of the sender.
    pub protocol: u32,
    pub oldest: u32,
    pub version: String,
    pub pid: u32,
}

/// The predecessor's property. A descriptor for each of `sockets`, then the lock's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The protocol in use from here on.
    pub protocol: u32,
    pub version: String,
    pub pid: u32,
    pub sockets: Vec<SocketHead>,
    /// The checkpoint directory of the lock; `None`: no lock is passed.
    #[serde(default)]
    pub lock: Option<String>,
    /// The number of `source` messages.
    pub sources: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketHead {
    /// The name of the listener in the configuration; `admin` for the admin listener.
    pub name: String,
    /// The address in the configuration.
    pub address: String,
    /// A supervisor made the socket, and removes the file.
    #[serde(default)]
    pub is_lent: bool,
}

/// A source, and the class. The descriptor is the state, in the format of the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    pub number: u64,
    /// The node of the class: a `core.v3.Node` in JSON.
    pub node: String,
    /// The values that split the class without a field in the node.
    #[serde(default)]
    pub attributes: BTreeMap<Box<str>, Box<str>>,
    #[serde(default)]
    pub identity: Option<String>,
    #[serde(default)]
    pub identity_metadata: Option<String>,
    /// The class is split by client only for Secrets.
    #[serde(default)]
    pub is_for_secrets: bool,
}

/// The state of a predecessor's drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draining {
    pub streams: u64,
    pub connections: u64,
    /// The time until the last stream has ended.
    pub milliseconds_left: u64,
}

impl Offer {
    /// # Errors
    /// The predecessor goes on in a protocol of another build.
    pub fn is_understood(&self) -> Result<(), HandoverFault> {
        match (OLDEST..=NEWEST).contains(&self.protocol) {
            true => Ok(()),
            false => Err(HandoverFault::Protocol { theirs_from: self.protocol, theirs_to: self.protocol }),
        }
    }
}

impl Hello {
    pub fn of_this_build() -> Hello {
        Hello {
            protocol: NEWEST,
            oldest: OLDEST,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
        }
    }

    /// The newest common protocol.
    ///
    /// # Errors
    /// There is none.
    pub fn agree(&self) -> Result<u32, HandoverFault> {
        agree(OLDEST..=NEWEST, self.oldest..=self.protocol)
    }
}

fn agree(ours: RangeInclusive<u32>, theirs: RangeInclusive<u32>) -> Result<u32, HandoverFault> {
    let common = *ours.end().min(theirs.end());
    match ours.contains(&common) && theirs.contains(&common) {
        true => Ok(common),
        false => Err(HandoverFault::Protocol { theirs_from: *theirs.start(), theirs_to: *theirs.end() }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn hnd_2_both_sides_take_the_newest_common_protocol() {
        assert_eq!(agree(1..=3, 2..=5).unwrap(), 3);
        assert_eq!(agree(2..=5, 1..=3).unwrap(), 3);
        assert_eq!(agree(1..=1, 1..=1).unwrap(), 1);
        let fault = agree(1..=1, 2..=5).unwrap_err();
        let text = "the other process speaks the protocols 2 to 5, this one 1 to 1";
        assert_eq!(fault.to_string(), text);
        assert!(agree(4..=5, 1..=3).is_err());
    }

    #[test]
    fn hnd_2_keys_that_came_later_may_be_missing() {
        let text = r#"{"message":"offer","protocol":1,"version":"0.0.9","pid":7,"sources":0,"sockets":[]}"#;
        let HandoverMessage::Offer(offer) = serde_json::from_str(text).unwrap() else { unreachable!() };
        assert_eq!((offer.pid, offer.lock), (7, None));
    }
}
