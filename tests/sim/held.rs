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
    /// See [`Held::stars`].
    pub stars: u32,
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
    /// How often it gave the wildcard up.
    pub stars: u32,
    /// Some SotW list was not empty (SUB-10).
    named: bool,
    /// Zero: not there.
    pub resources: [Content; NAMES],
    /// Names of which the client may be told again although it was told before.
    pub due: Mask,
    pub due_all: bool,
    /// Names given up beside a SotW wildcard: nothing tells the client whether the wildcard has them (SUB-6).
    pub stale: Mask,
    /// Of those, names that were asked for again before any response came.
    again: Mask,
    /// Names of which the other side knows what the client has.
    pub known: Mask,
    /// It has, or had, names beside the wildcard. Each of the two is answered for itself, and its errors end for themselves
    /// (ERR-3), so that a name may come twice.
    is_mixed: bool,
    pub nonce: String,
    pub version: String,
    /// Of the last response on a stream before this one.
    pub former_version: String,
    /// Names that it may have from before the stream, as its first request says by its version.
    pub may_hold: Mask,
    /// Names that it has from before the stream although its first request did not say so.
    unsaid: Mask,
    /// When it was asked for first on the stream.
    pub asked_at: u64,
    /// The first answer is looked at, and the client has asked so lately that names without a sign are waited for.
    pub is_early: bool,
}

impl Held {
    /// Of a client that comes back with this.
    pub fn of_resources(resources: [Content; NAMES], former_version: String) -> Held {
        Held { resources, former_version, ..Held::default() }
    }

    /// A SotW request came, of these names.
    pub fn note_sotw(&mut self, names: Mask, star: bool, has_version: bool, now: u64) {
        match self.asked {
            true if star => {}
            true => self.may_hold &= names,
            false => {
                let all = names | if star || names == 0 { super::words::ALL_OLD } else { 0 };
                self.may_hold = if has_version { all } else { 0 };
                self.unsaid = if has_version { 0 } else { self.mask() };
                self.asked_at = now;
            }
        }
    }

    /// What is missing in a complete set is deleted: whether it may not miss the name, as long as nobody knows whether that
    /// exists (RLY-5).
    pub fn needs(&self, name: usize) -> bool {
        let was_sent = self.resources[name] != 0 && (self.unsaid | self.again) & bit(name) == 0;
        was_sent || self.may_hold & bit(name) != 0 || self.is_early
    }

    pub fn is_full(&self, ty: usize, variant: Variant) -> bool {
        variant == Variant::Sotw && (is_full_state(ty) || self.wildcard)
    }

    /// Names are asked for beside the wildcard, or were.
    pub fn is_mixed(&self) -> bool {
        self.is_mixed
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
        let is_first = self.nonce.is_empty();
        sent.nonce.clone_into(&mut self.nonce);
        sent.version.clone_into(&mut self.version);
        self.known |= sent.put_mask();
        let mut idle = 0;
        let before = self.mask();
        if sent.is_full {
            (self.may_hold, self.unsaid) = (0, 0);
        } else if is_first && !super::words::is_full_state(sent.ty) {
            // What is missing in an answer of such a type is deleted by nobody.
            (self.may_hold, self.unsaid) = (0, before & !sent.put_mask());
        }
        if sent.is_full {
            let is_same = sent.put_mask() == before
                && sent.put.iter().all(|(name, content)| self.resources[*name] == *content);
            let is_due = self.due_all || self.due != 0 || self.stale != 0;
            if is_same && !is_due && !self.is_mixed {
                idle = before | (1 << NAMES);
            }
            self.resources = [0; NAMES];
            // What was given up while this was on its way.
            self.stale = sent.wanted & !self.wanted;
            self.again = 0;
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
            let is_asked = (self.wanted & sent.wanted) & bit(*name) != 0
                || (self.wildcard && sent.wildcard && self.stars == sent.stars);
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
        self.again |= names & self.stale;
        self.stars += u32::from(was_wildcard && !self.wildcard);
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
        let is_first = !std::mem::replace(&mut self.asked, true);
        // Endpoints of clusters that went before they were asked for (ORD-5).
        let due_before = self.due;
        let by_omission = is_first && add == 0 && remove == 0 && star.is_none();
        if star == Some(true) {
            self.due |= self.mask();
        }
        self.wildcard |= star == Some(true) || by_omission;
        self.wanted |= add;
        self.due |= add;
        if star == Some(false) {
            self.stars += u32::from(self.wildcard);
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
            self.due = due_before | (self.due & !presented);
            self.known = presented;
        }
    }
}
