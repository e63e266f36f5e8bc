//! A client: its requests, responses and resources.

use std::collections::{BTreeMap, BTreeSet};

use super::bench::short;
use crate::downstream::Chunk;
use sluice_xds::{ResourceName, TypeUrl, Variant};

/// One type on one stream, as the client sees it.
#[derive(Debug, Default)]
pub struct Held {
    pub wanted: BTreeSet<ResourceName>,
    pub wildcard: bool,
    /// The last SotW list as sent.
    pub list: String,
    /// Some SotW list was not empty (SUB-10).
    pub named: bool,
    /// The contents by name.
    pub resources: BTreeMap<ResourceName, String>,
    /// The nonce of the latest response.
    pub nonce: String,
    pub version: String,
    /// Responses without an ACK or a NACK.
    pub unanswered: Vec<String>,
    /// Names that the client may be told again.
    pub due: BTreeSet<ResourceName>,
    pub due_all: bool,
    /// Names that the client may have from before the stream: the first request had a version.
    pub returning: BTreeSet<ResourceName>,
    /// Names that the client gave up beside a SotW wildcard. Nothing tells the client whether the wildcard contains
    /// them (SUB-6).
    pub stale: BTreeSet<ResourceName>,
}

/// The text of a resource, without padding.
pub fn content_of(value: &[u8]) -> String {
    let text = std::str::from_utf8(value).unwrap();
    text.split('~').next().unwrap().to_owned()
}

impl Held {
    /// Applies a response. Returns the resources that the client already held and had no reason to be sent.
    pub fn take(
        &mut self,
        type_url: &TypeUrl,
        variant: Variant,
        chunk: &Chunk,
        nonce: &str,
    ) -> Vec<ResourceName> {
        assert_ne!(self.nonce, nonce, "STR-5: nonces are unique");
        nonce.clone_into(&mut self.nonce);
        self.version = chunk.version.to_string();
        self.unanswered.push(nonce.to_owned());
        let sent: BTreeMap<_, _> =
            chunk.resources.iter().map(|r| (r.name.clone(), content_of(&r.body.value))).collect();
        assert_eq!(sent.len(), chunk.resources.len(), "SST-8, DEL-16: no name twice");
        assert!(chunk.removed.iter().all(|name| !sent.contains_key(name)), "DEL-16: in one list only");
        let removed: BTreeSet<_> = chunk.removed.iter().collect();
        assert_eq!(removed.len(), chunk.removed.len(), "DEL-16: no name twice");
        let full = variant == Variant::Sotw && (type_url.is_full_state() || self.wildcard);
        let mut idle: Vec<_> = Vec::new();
        if full {
            let same = self.resources == sent;
            let due = self.due_all || !self.due.is_empty() || !self.stale.is_empty();
            if same && !due {
                idle.extend(sent.keys().cloned());
            }
            self.resources.clear();
            self.stale.clear();
        } else {
            let is_idle = |name: &ResourceName, content: &String| {
                self.resources.get(name) == Some(content) && !self.due.contains(name)
            };
            idle.extend(sent.iter().filter(|(name, content)| is_idle(name, content)).map(|(n, _)| n.clone()));
        }
        let is_told = |name: &&ResourceName| !self.resources.contains_key(*name) && !self.due.contains(*name);
        idle.extend(chunk.removed.iter().filter(is_told).cloned());
        for name in sent.keys().chain(&chunk.removed) {
            self.due.remove(name);
        }
        for name in &chunk.removed {
            self.resources.remove(name);
        }
        self.resources.extend(sent);
        if full {
            self.due.clear();
            self.due_all = false;
        }
        idle
    }

    /// A SotW list replaces the previous list (SUB-1).
    pub fn want_sotw(&mut self, names: &[ResourceName], legacy: bool) {
        let was_wildcard = self.wildcard;
        self.named |= !names.is_empty();
        let named: BTreeSet<_> = names.iter().filter(|name| !name.is_wildcard()).cloned().collect();
        self.returning.retain(|name| named.contains(name));
        self.wildcard = names.iter().any(ResourceName::is_wildcard) || (!self.named && legacy);
        if self.wildcard && !was_wildcard {
            self.due_all = true;
        }
        self.due.extend(named.difference(&self.wanted).cloned());
        if self.wildcard {
            self.stale.extend(self.wanted.difference(&named).cloned());
        } else {
            self.stale.clear();
            self.resources.retain(|name, _| named.contains(name));
        }
        self.wanted = named;
    }

    pub fn want_delta(&mut self, subscribe: &[ResourceName], unsubscribe: &[ResourceName], legacy: bool) {
        self.wildcard |= legacy;
        for name in subscribe {
            if name.is_wildcard() {
                self.wildcard = true;
                self.due.extend(self.resources.keys().cloned());
            } else {
                self.wanted.insert(name.clone());
                self.due.insert(name.clone());
            }
        }
        for name in unsubscribe {
            if name.is_wildcard() {
                self.wildcard = false;
                self.resources.retain(|name, _| self.wanted.contains(name));
            } else {
                self.wanted.remove(name);
                // Beside the wildcard, the server answers for the name (DEL-19).
                if self.wildcard {
                    self.due.insert(name.clone());
                } else {
                    self.resources.remove(name);
                }
            }
        }
    }

    /// The client's resources, as `a=1 b=2`.
    pub fn text(&self, message: &str) -> String {
        let word = |(name, content)| format!("{}={content}", short(message, name));
        let words: Vec<_> = self.resources.iter().map(word).collect();
        words.join(" ")
    }
}
