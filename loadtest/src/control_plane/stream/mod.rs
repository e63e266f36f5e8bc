//! One ADS stream of the control plane: requests in, the next response out. The stream has no socket.
//!
//! A scripted server for measurements: ACKs and NACKs are handled alike, and a reconnecting client gets
//! everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::snapshot::Snapshot;
use crate::function::{Function, Who};
use crate::proto::{Fields, Malformed, put_bytes};
use crate::xds::{Kind, Variant, resource_name};

/// Resources for a response, concatenated where possible, and absent names.
type Content = (Vec<Bytes>, Vec<String>);

/// One type on one stream.
#[derive(Default)]
struct Subscription {
    wildcard: bool,
    names: BTreeSet<String>,
    /// Version of the snapshot behind the last response.
    answered: u64,
    /// The parts that need an answer even without a change: the wildcard, names.
    due_wildcard: bool,
    due_names: BTreeSet<String>,
}

/// One stream.
pub struct Stream {
    variant: Variant,
    function: Arc<Function>,
    /// The values that the function looks at in the client, from the node of the first request.
    who: Who,
    nonce: u64,
    subscriptions: BTreeMap<String, Subscription>,
}

/// The fields of a request that matter here.
#[derive(Default)]
struct Request {
    /// The encoded node; empty in most requests.
    node: Vec<u8>,
    type_url: String,
    subscribe: Vec<String>,
    unsubscribe: Vec<String>,
}

impl Request {
    /// Field numbers: DiscoveryRequest and DeltaDiscoveryRequest.
    fn parse(variant: Variant, message: &[u8]) -> Result<Request, Malformed> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| Malformed);
        let mut request = Request::default();
        let mut fields = Fields(message);
        while let Some((field, bytes)) = fields.next_bytes()? {
            match (variant, field) {
                (Variant::Sotw, 2) | (Variant::Delta, 1) => request.node = bytes.to_vec(),
                (Variant::Sotw, 4) | (Variant::Delta, 2) => request.type_url = text(bytes)?,
                (Variant::Sotw | Variant::Delta, 3) => request.subscribe.push(text(bytes)?),
                (Variant::Delta, 4) => request.unsubscribe.push(text(bytes)?),
                _ => {}
            }
        }
        Ok(request)
    }
}

impl Stream {
    pub fn new(variant: Variant, function: Arc<Function>) -> Stream {
        Stream { variant, function, who: Who::default(), nonce: 0, subscriptions: BTreeMap::new() }
    }

    /// Handles the next request.
    pub fn request(&mut self, message: &[u8]) -> Result<(), Malformed> {
        let request = Request::parse(self.variant, message)?;
        if self.subscriptions.is_empty() {
            self.who = self.function.read(&request.node)?;
        }
        let first = !self.subscriptions.contains_key(&request.type_url);
        let subscription = self.subscriptions.entry(request.type_url).or_default();
        match self.variant {
            Variant::Sotw => subscription.replace(request.subscribe, first),
            Variant::Delta => subscription.adjust(request.subscribe, &request.unsubscribe, first),
        }
        Ok(())
    }

    /// The next response to send, framed for gRPC, in parts; all streams share the last parts.
    pub fn response(&mut self, snapshot: &Snapshot) -> Option<Vec<Bytes>> {
        for (type_url, subscription) in &mut self.subscriptions {
            let content = subscription.due_content(self.variant, type_url, self.who, snapshot);
            // A snapshot without changes for the client is not compared again.
            if content.is_some() || subscription.answered > 0 {
                subscription.answered = snapshot.version;
            }
            let Some(content) = content else { continue };
            self.nonce += 1;
            let parts = encode(self.variant, type_url, snapshot.version, self.nonce, content);
            subscription.due_wildcard = false;
            subscription.due_names.clear();
            return Some(parts);
        }
        None
    }
}

impl Subscription {
    /// SotW: the names are the whole subscription (SUB-1, SUB-9 to SUB-11).
    fn replace(&mut self, names: Vec<String>, first: bool) {
        let mut names: BTreeSet<String> = names.into_iter().collect();
        let wildcard =
            names.remove("*") || names.is_empty() && (first || self.wildcard && self.names.is_empty());
        self.due_wildcard |= wildcard && !self.wildcard;
        self.due_names.extend(names.difference(&self.names).cloned());
        self.due_names.retain(|name| names.contains(name));
        self.wildcard = wildcard;
        self.names = names;
    }

    /// Delta: subscribe before unsubscribe (DEL-4, DEL-6, DEL-11).
    fn adjust(&mut self, subscribe: Vec<String>, unsubscribe: &[String], first: bool) {
        let mut wildcard = first && subscribe.is_empty() && unsubscribe.is_empty();
        for name in subscribe {
            if name == "*" {
                wildcard = true;
            } else {
                self.due_names.insert(name.clone());
                self.names.insert(name);
            }
        }
        self.due_wildcard |= wildcard;
        self.wildcard |= wildcard;
        for name in unsubscribe {
            if name == "*" {
                self.wildcard = false;
                self.due_wildcard = false;
            }
            self.names.remove(name);
            self.due_names.remove(name);
        }
    }

    /// The resources and absent names of the next response; `None` if there is nothing to send.
    fn due_content(
        &self,
        variant: Variant,
        type_url: &str,
        who: Who,
        snapshot: &Snapshot,
    ) -> Option<Content> {
        let Some(kind) = Kind::of(type_url.as_bytes()) else {
            return self.nothing_of_it(variant);
        };
        let changed = self.changed(kind, who, snapshot);
        if !self.due_wildcard && self.due_names.is_empty() && changed.is_empty() {
            return None;
        }
        let full_state = variant == Variant::Sotw && kind.is_full_state();
        if self.wildcard && (full_state || self.due_wildcard) {
            return Some((vec![snapshot.all(kind, who, variant)], Vec::new()));
        }
        let changed = changed.into_iter().map(resource_name);
        let names: BTreeSet<String> = match full_state {
            true => self.names.clone(),
            false => self.due_names.iter().cloned().chain(changed).collect(),
        };
        let (mut resources, mut removed) = (Vec::new(), Vec::new());
        for name in names {
            match snapshot.get(kind, who, &name) {
                Some(resource) => resources.push(resource.bytes(variant).clone()),
                None => removed.push(name),
            }
        }
        // SotW cannot express absence (SST-10); for a type that is not full-state the server is then silent.
        let silent = variant == Variant::Sotw && !full_state && resources.is_empty();
        if silent { None } else { Some((resources, removed)) }
    }

    /// The indices of subscribed resources that have changed.
    fn changed(&self, kind: Kind, who: Who, snapshot: &Snapshot) -> BTreeSet<usize> {
        if self.answered == 0 || self.answered == snapshot.version {
            return BTreeSet::new();
        }
        let mut changed = snapshot.changed_since(kind, who, self.answered);
        if !self.wildcard {
            changed.retain(|index| self.names.contains(&resource_name(*index)));
        }
        changed
    }

    /// The answer for types without resources: an empty wildcard is reported as empty, names as absent.
    fn nothing_of_it(&self, variant: Variant) -> Option<Content> {
        match variant {
            Variant::Sotw if self.due_wildcard => Some((Vec::new(), Vec::new())),
            Variant::Delta if self.due_wildcard || !self.due_names.is_empty() => {
                Some((Vec::new(), self.due_names.iter().cloned().collect()))
            }
            _ => None,
        }
    }
}

/// Encodes a response: first the parts private to the stream, so that streams can share the rest.
fn encode(
    variant: Variant,
    type_url: &str,
    version: u64,
    nonce: u64,
    (resources, removed): Content,
) -> Vec<Bytes> {
    let mut head = vec![0; 5];
    put_bytes(&mut head, 1, version.to_string());
    put_bytes(&mut head, 4, type_url);
    put_bytes(&mut head, 5, nonce.to_string());
    if variant == Variant::Delta {
        removed.iter().for_each(|name| put_bytes(&mut head, 6, name));
    }
    let mut parts = vec![Bytes::new()];
    parts.extend(resources);
    let length = head.len() - 5 + parts.iter().map(Bytes::len).sum::<usize>();
    head[1..5].copy_from_slice(&(length as u32).to_be_bytes());
    parts[0] = head.into();
    parts
}

#[cfg(test)]
mod tests;
