//! A client's subscription and resources of one type. The same model serves the client itself, with the
//! received responses, and the judge, with the sent responses.

use super::words::{Content, Mask, NAMES, bit, bits, is_full_state};
use sluice_xds::Variant;

/// One response to a client.
#[derive(Clone, Debug)]
pub struct Sent {
    pub ty: usize,
    pub nonce: String,
    pub version: String,
    pub put: Vec<(usize, Content)>,
    pub removed: Mask,
    /// Names reported in error.
    pub errors: Mask,
    /// Names with a heartbeat.
    pub beats: Mask,
    /// The client's subscription as known to the relay.
    pub wanted: Mask,
    pub wildcard: bool,
    /// See [`Held::stars`].
    pub stars: u32,
    /// The response is the complete set.
    pub is_full: bool,
    /// The class of the stream.
    pub class: usize,
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
    /// A request was sent.
    pub asked: bool,
    pub wanted: Mask,
    pub wildcard: bool,
    /// How often the client dropped the wildcard.
    pub stars: u32,
    /// A SotW list was not empty (SUB-10).
    named: bool,
    /// Zero: absent.
    pub resources: [Content; NAMES],
    /// Names that the client may get again although it has them.
    pub due: Mask,
    pub due_all: bool,
    /// Names dropped beside a SotW wildcard: nothing shows the client whether the wildcard has them (SUB-6).
    pub stale: Mask,
    /// Those of the stale names that were requested again before any response.
    again: Mask,
    /// Names that the client gave up before it had answered a response with them. Where the client asks for them again in
    /// time, it may keep what that response brings, and so it may be told that they are gone (NAM-16).
    pub unread: Mask,
    /// Names whose state at the client is known to the other side.
    pub known: Mask,
    /// The client has, or had, names beside the wildcard. Each of the two is answered separately, and its
    /// errors end separately (ERR-3), so that a name may come twice.
    is_mixed: bool,
    pub nonce: String,
    pub version: String,
    /// The version of the last response on an earlier stream.
    pub former_version: String,
    /// Names that the client may have from earlier streams, by the version in its first request.
    pub may_hold: Mask,
    /// Names that the client has from earlier streams, although its first request did not present them.
    unsaid: Mask,
    /// The client asked for the wildcard at once, and the stream is still in the class of then (ADR 52).
    began_with_all: bool,
    /// The time of the first request on the stream.
    pub asked_at: u64,
    /// The first answer is under review, and the client's request is so recent that the relay waits for names
    /// without a sign.
    pub is_early: bool,
}

impl Held {
    /// The state of a client that reconnects with these resources.
    pub fn of_resources(resources: [Content; NAMES], former_version: String) -> Held {
        Held { resources, former_version, ..Held::default() }
    }

    /// Records a SotW request with these names.
    pub fn note_sotw(&mut self, names: Mask, star: bool, has_version: bool, now: u64) {
        match self.asked {
            true if star => {}
            true => self.may_hold &= names,
            false => {
                let all = names | if star || names == 0 { super::words::ALL_OLD } else { 0 };
                self.may_hold = if has_version { all } else { 0 };
                self.unsaid = if has_version { 0 } else { self.mask() };
                (self.asked_at, self.began_with_all) = (now, star || names == 0);
            }
        }
    }

    /// A complete set deletes every missing name: whether the set must not lack the name while its existence
    /// is unknown (RLY-5).
    pub fn needs(&self, name: usize) -> bool {
        let was_sent = self.resources[name] != 0 && (self.unsaid | self.again) & bit(name) == 0;
        was_sent || self.may_hold & bit(name) != 0 || self.is_early
    }

    /// Records the first request of a delta client.
    pub fn begin(&mut self, with_all: bool, now: u64) {
        (self.asked_at, self.began_with_all) = (now, with_all);
    }

    /// The stream comes from another class, or other lists.
    pub fn come(&mut self) {
        self.began_with_all = false;
    }

    /// The client has the name from elsewhere, by the wildcard alone, and said so. It never dropped the wildcard, and was sent nothing on
    /// the stream.
    pub fn brings(&self, name: usize) -> bool {
        let has = self.resources[name] != 0 && self.unsaid & bit(name) == 0;
        let by_wildcard = self.wildcard && self.stars == 0 && !self.is_mixed;
        by_wildcard && self.began_with_all && self.nonce.is_empty() && has
    }

    pub fn is_full(&self, ty: usize, variant: Variant) -> bool {
        variant == Variant::Sotw && (is_full_state(ty) || self.wildcard)
    }

    /// Whether names are, or were, requested beside the wildcard.
    pub fn is_mixed(&self) -> bool {
        self.is_mixed
    }

    /// An empty list asks for the wildcard (SUB-9).
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

    /// Applies a response. Returns the resources that the client had already, without a reason for a
    /// repetition.
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
            // An omission in an answer of such a type deletes nothing.
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
            // Names dropped while this response was in flight.
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
            idle |= sent.removed & !before & !self.due & !self.unread;
            if self.is_mixed {
                idle = 0;
            }
            self.due &= !(sent.put_mask() | sent.removed);
        }
        self.unread &= !sent.removed;
        for name in bits(sent.removed) {
            self.resources[name] = 0;
        }
        for (name, content) in &sent.put {
            // A response in flight at the time of the drop does not answer a later request.
            let is_asked = (self.wanted & sent.wanted) & bit(*name) != 0
                || (self.wildcard && sent.wildcard && self.stars == sent.stars);
            if is_asked {
                self.resources[*name] = *content;
            }
        }
        // Only the resource clears an error, changed or not (ERR-3).
        self.due |= sent.errors;
        idle
    }

    /// A SotW list replaces the subscription (SUB-1).
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

    /// The client accepted responses with these names. Those that it asks for again by now it has (RLY-5).
    pub fn has_read(&mut self, names: Mask) {
        self.again &= !(names & self.wanted);
    }

    pub fn want_delta(&mut self, add: Mask, remove: Mask, star: Option<bool>, presented: Mask) {
        let is_first = !std::mem::replace(&mut self.asked, true);
        // Endpoints of clusters that were sent before the request for the endpoints (ORD-5).
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
            // The server reports the new state (DEL-19).
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
