//! Clients of globs, aliases and names.

use super::names::{ALIASES, Mask, NAMES, TYPES, VHDS, bit, bits, glob_of, members};

/// One response to a client.
#[derive(Clone, Debug)]
pub struct Sent {
    pub ty: usize,
    pub nonce: String,
    /// Empty in delta.
    pub version: String,
    /// Name, edition and aliases.
    pub put: Vec<(usize, u32, Mask)>,
    pub removed: Mask,
}

/// The subscription and the resources of one type.
#[derive(Clone, Debug, Default)]
pub struct Held {
    pub asked: bool,
    pub wanted: Mask,
    /// SotW: the last nonce and version on the stream.
    pub nonce: String,
    pub version: String,
    pub resources: [Option<u32>; NAMES],
    /// The resource behind each wanted alias.
    behind: [Option<usize>; 3],
}

impl Held {
    pub fn mask(&self) -> Mask {
        (0..NAMES).filter(|name| self.resources[*name].is_some()).fold(0, |mask, name| mask | bit(name))
    }

    /// The subscriptions that cover a name.
    pub fn ways(&self, name: usize) -> Mask {
        let aliases = ALIASES.filter(|alias| self.behind[alias - ALIASES.start] == Some(name));
        let all = aliases.fold(bit(name), |mask, alias| mask | bit(alias)) | glob_of(name).map_or(0, bit);
        all & self.wanted
    }

    pub fn change(&mut self, add: Mask, remove: Mask) {
        self.asked = true;
        self.wanted = (self.wanted | add) & !remove;
        for alias in bits(remove).filter(|alias| ALIASES.contains(alias)) {
            self.behind[alias - ALIASES.start] = None;
        }
        for name in 0..NAMES {
            if self.ways(name) == 0 {
                self.resources[name] = None;
            }
        }
    }

    pub fn take(&mut self, sent: &Sent) {
        for gone in bits(sent.removed) {
            if gone < NAMES {
                self.resources[gone] = None;
            } else if ALIASES.contains(&gone) {
                self.behind[gone - ALIASES.start] = None;
            } else {
                // The whole collection is gone (NAM-16).
                members(gone)
                    .filter(|name| self.wanted & bit(*name) == 0)
                    .for_each(|name| self.resources[name] = None);
            }
        }
        // Of two resources with one alias the client keeps the later one for it, as the relay does.
        for (name, _, aliases) in &sent.put {
            for alias in ALIASES {
                let behind = &mut self.behind[alias - ALIASES.start];
                if aliases & self.wanted & bit(alias) != 0 {
                    *behind = Some(*name);
                } else if *behind == Some(*name) {
                    // The resource itself says that the alias leads elsewhere.
                    *behind = None;
                }
            }
        }
        for (name, edition, _) in &sent.put {
            self.resources[*name] = (self.ways(*name) != 0).then_some(*edition);
        }
    }

    /// The state for the next stream. Resources that only an alias covers go: no request can say which alias they had.
    pub fn reconnect(&mut self) {
        (self.asked, self.behind) = (false, [None; 3]);
        self.nonce.clear();
        self.version.clear();
        for name in 0..NAMES {
            if self.ways(name) == 0 {
                self.resources[name] = None;
            }
        }
    }
}

impl Client {
    /// Virtual hosts are served in delta only.
    pub fn may_ask(&self, ty: usize) -> bool {
        !self.is_sotw || ty != VHDS
    }
}

#[derive(Default)]
pub struct Client {
    pub is_sotw: bool,
    pub stream: Option<u64>,
    pub types: [Held; TYPES],
    /// The maximum time to read a message.
    pub reads_within: u64,
    /// The earliest moment of the source that explains the last response about a name.
    pub explained: [[u64; NAMES]; TYPES],
}
