//! What a client wants and holds of one type. The same model serves the client itself, who sees what arrives, and the
//! judge, who sees what is sent.

use super::words::{Content, Mask, NAMES, bit, bits, is_full_state};
use sluice::xds::Variant;

/// One response as it goes to a client.
#[derive(Clone, Debug)]
pub struct Sent {
    pub ty: usize,
    pub nonce: String,
    pub version: String,
    pub put: Vec<(usize, Content)>,
    pub removed: Mask,
    /// Names told to be in error.
    pub errors: Mask,
    /// Names told to live on.
    pub beats: Mask,
    /// What the client wanted as far as the relay knew.
    pub wanted: Mask,
    pub wildcard: bool,
    /// It is the complete set.
    pub is_full: bool,
}

impl Sent {
    pub fn put_mask(&self) -> Mask {
        self.put.iter().fold(0, |mask, (name, _)| mask | bit(*name))
    }

    pub fn content(&self, name: usize) -> Option<Content> {
        self.put.iter().find(|(other, _)| *other == name).map(|(_, content)| *content)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Held {
    /// Some request was sent.
    pub asked: bool,
    pub wanted: Mask,
    pub wildcard: bool,
    /// Some SotW list was not empty (SUB-10).
    named: bool,
    /// Zero: not there.
    pub resources: [Content; NAMES],
    /// Names of which the client may be told again although it was told before.
    pub due: Mask,
    pub due_all: bool,
    /// Names given up beside a SotW wildcard: nothing tells the client whether the wildcard has them (SUB-6).
    pub stale: Mask,
    /// Names of which the other side knows what the client has.
    pub known: Mask,
    /// It has, or had, names beside the wildcard. Each of the two is answered for itself, and its errors end for themselves
    /// (ERR-3), so that a name may come twice.
    is_mixed: bool,
    pub nonce: String,
    pub version: String,
}

impl Held {
    /// Of a client that comes back with this.
    pub fn of_resources(resources: [Content; NAMES]) -> Held {
        Held { resources, ..Held::default() }
    }

    pub fn is_full(&self, ty: usize, variant: Variant) -> bool {
        variant == Variant::Sotw && (is_full_state(ty) || self.wildcard)
    }

    /// The wildcard is asked for by an empty list (SUB-9).
    pub fn is_implicit(&self) -> bool {
        self.wildcard && !self.named
    }

    pub fn mask(&self) -> Mask {
        (0..NAMES).filter(|name| self.resources[*name] != 0).fold(0, |mask, name| mask | bit(name))
    }

    fn drop_all_but(&mut self, keep: Mask) {
        for name in bits(!keep & ((1 << NAMES) - 1)) {
            self.resources[name] = 0;
        }
    }

    /// Applies a response and gives what of it the client held already and had no reason to be sent.
    pub fn take(&mut self, sent: &Sent) -> Mask {
        sent.nonce.clone_into(&mut self.nonce);
        sent.version.clone_into(&mut self.version);
        self.known |= sent.put_mask();
        let mut idle = 0;
        let before = self.mask();
        if sent.is_full {
            let is_same = sent.put_mask() == before
                && sent.put.iter().all(|(name, content)| self.resources[*name] == *content);
            let is_due = self.due_all || self.due != 0 || self.stale != 0;
            if is_same && !is_due {
                idle = before | (1 << NAMES);
            }
            self.resources = [0; NAMES];
            self.stale = 0;
            self.due = 0;
            self.due_all = false;
        } else {
            for (name, content) in &sent.put {
                if self.resources[*name] == *content && self.due & bit(*name) == 0 {
                    idle |= bit(*name);
                }
            }
            idle |= sent.removed & !before & !self.due;
            if self.is_mixed {
                idle = 0;
            }
            self.due &= !(sent.put_mask() | sent.removed);
        }
        for name in bits(sent.removed) {
            self.resources[name] = 0;
        }
        for (name, content) in &sent.put {
            // What was on its way when the client gave it up is nothing that it asked for since.
            let is_asked = (self.wanted & sent.wanted) & bit(*name) != 0 || (self.wildcard && sent.wildcard);
            if is_asked {
                self.resources[*name] = *content;
            }
        }
        // Only its resource ends an error, changed or not (ERR-3).
        self.due |= sent.errors;
        idle
    }

    /// A SotW list replaces what was asked for (SUB-1).
    pub fn want_sotw(&mut self, names: Mask, star: bool) {
        let was_wildcard = self.wildcard;
        self.asked = true;
        self.named |= names != 0 || star;
        self.wildcard = star || !self.named;
        self.due_all |= self.wildcard && !was_wildcard;
        self.due |= names & !self.wanted;
        if self.wildcard {
            self.stale |= self.wanted & !names;
        } else {
            self.stale = 0;
            self.drop_all_but(names);
        }
        self.wanted = names;
        self.is_mixed |= self.wildcard && names != 0;
    }

    pub fn want_delta(&mut self, add: Mask, remove: Mask, star: Option<bool>, presented: Mask) {
        // Clusters may have been sent before their endpoints were asked for (ORD-5).
        let due_before = self.due;
        let is_first = !std::mem::replace(&mut self.asked, true);
        let by_omission = is_first && add == 0 && remove == 0 && star.is_none();
        if star == Some(true) {
            self.due |= self.mask();
        }
        self.wildcard |= star == Some(true) || by_omission;
        self.wanted |= add;
        self.due |= add;
        if star == Some(false) {
            self.wildcard = false;
            self.drop_all_but(self.wanted);
        }
        let remove = remove & self.wanted;
        self.wanted &= !remove;
        if self.wildcard {
            // The server says what becomes of it (DEL-19).
            self.due |= remove;
        } else {
            self.drop_all_but(!remove);
        }
        self.is_mixed |= self.wildcard && self.wanted != 0;
        if is_first {
            self.due &= !presented | due_before;
            self.known = presented;
        }
    }
}
