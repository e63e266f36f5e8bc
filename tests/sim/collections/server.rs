//! A delta control plane with globs and aliases, which may end streams after a request for some type.

use std::collections::BTreeMap;

use sluice_xds::{DeltaRequest, DeltaResponse, Received, Response};

use super::names::{ALIASES, GLOBS, Mask, NAMES, Names, TYPES, bit, bits, glob_of, members};
use crate::rng::Rng;

/// A resource at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub edition: u32,
    pub aliases: Mask,
}

/// One response.
#[derive(Clone, Debug)]
pub struct Message {
    pub ty: usize,
    pub nonce: String,
    pub put: Vec<(usize, Entry)>,
    pub removed: Mask,
    /// The globs whose first answer ends with the response.
    pub completes: Mask,
}

/// One type on one stream.
#[derive(Clone, Debug, Default)]
struct Subscription {
    listed: Mask,
    /// Listed, and not answered yet.
    fresh: Mask,
    /// Requested on this stream before, so that the answer repeats known resources.
    again: Mask,
    sent: [Option<u32>; NAMES],
    resolved: BTreeMap<usize, usize>,
}

/// The resources to send, the names to remove, and the globs whose first answer this is.
type Flush = (Vec<(usize, Entry)>, Mask, Mask);

#[derive(Default)]
pub struct Server {
    pub truth: [[Option<Entry>; NAMES]; TYPES],
    /// Removals name aliases, too.
    names_aliases: bool,
    /// The types whose requests end the stream.
    pub refused: Mask,
    /// The status of a refusal names no type.
    pub is_terse: bool,
    pub is_down: bool,
    streams: BTreeMap<u64, [Option<Subscription>; TYPES]>,
    nonces: u64,
}

impl Server {
    pub fn new(names_aliases: bool) -> Server {
        Server { names_aliases, ..Server::default() }
    }

    pub fn open(&mut self, link: u64) {
        self.streams.insert(link, Default::default());
    }

    pub fn close(&mut self, link: u64) {
        self.streams.remove(&link);
    }

    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Whether a request ends the stream.
    pub fn ends(&self, ty: usize, request: &DeltaRequest) -> bool {
        self.refused & bit(ty) != 0 && !request.subscribe.is_empty()
    }

    pub fn request(&mut self, names: &Names, link: u64, request: &DeltaRequest) {
        let ty = names.type_of(&request.type_url);
        let Some(stream) = self.streams.get_mut(&link) else { return };
        let is_first = stream[ty].is_none();
        let this = stream[ty].get_or_insert_default();
        for (name, text) in &request.initial_resource_versions {
            for name in bits(names.mask_of(ty, [name])).filter(|_| is_first) {
                // A version that is no edition is that of a resource which the server does not know (RLY-44).
                this.sent[name] =
                    Some(text.strip_prefix('e').and_then(|text| text.parse().ok()).unwrap_or(0));
            }
        }
        let gone = names.mask_of(ty, &request.unsubscribe);
        let come = names.mask_of(ty, &request.subscribe);
        this.listed = this.listed & !gone | come;
        this.resolved.retain(|alias, _| this.listed & bit(*alias) != 0);
        this.fresh = this.fresh & !gone | come;
        this.again = this.again & !gone | if is_first { 0 } else { come };
    }

    fn flush_type(&mut self, link: u64, ty: usize) -> Option<Flush> {
        let (truth, names_aliases) = (&self.truth[ty], self.names_aliases);
        let this = self.streams.get_mut(&link)?[ty].as_mut()?;
        let (fresh, again) = (std::mem::take(&mut this.fresh), std::mem::take(&mut this.again));
        let ways = |name: usize, entry: &Entry| bit(name) | glob_of(name).map_or(0, bit) | entry.aliases;
        let (mut put, mut removed) = (Vec::new(), 0);
        for (name, entry) in truth.iter().enumerate() {
            let covered = entry.filter(|entry| ways(name, entry) & this.listed != 0);
            match covered {
                Some(entry) => {
                    if this.sent[name] != Some(entry.edition) || ways(name, &entry) & again != 0 {
                        this.sent[name] = Some(entry.edition);
                        put.push((name, entry));
                    }
                }
                None => {
                    if this.sent[name].take().is_some() && entry.is_none() {
                        removed |= bit(name);
                    }
                }
            }
        }
        for alias in ALIASES.filter(|alias| this.listed & bit(*alias) != 0) {
            let found = truth.iter().position(|entry| entry.is_some_and(|of| of.aliases & bit(alias) != 0));
            match found {
                Some(name) => drop(this.resolved.insert(alias, name)),
                None => {
                    let before = this.resolved.remove(&alias);
                    // The resource is still there, or nothing else says that it is gone.
                    let is_said = before.is_some_and(|name| removed & bit(name) != 0) && !names_aliases;
                    let is_asked = fresh & bit(alias) != 0;
                    removed |= if before.is_some() && !is_said || is_asked { bit(alias) } else { 0 };
                }
            }
        }
        let is_lacking = |name: &usize| truth[*name].is_none() && fresh & bit(*name) != 0;
        removed |= (0..NAMES).filter(is_lacking).fold(0, |mask, name| mask | bit(name));
        let globs = GLOBS.filter(|glob| fresh & bit(*glob) != 0);
        let completes = globs.clone().fold(0, |mask, glob| mask | bit(glob));
        let is_empty = |glob: &usize| members(*glob).all(|name| truth[name].is_none());
        removed |= globs.filter(is_empty).fold(0, |mask, glob| mask | bit(glob));
        Some((put, removed, completes))
    }

    /// The due responses, in one or several parts.
    pub fn flush(&mut self, link: u64, rng: &mut Rng) -> Vec<Message> {
        let mut messages = Vec::new();
        for ty in 0..TYPES {
            let Some((put, removed, completes)) = self.flush_type(link, ty) else { continue };
            if put.is_empty() && removed == 0 {
                continue;
            }
            let size = if rng.percent(30) { 1 } else { NAMES };
            let mut parts: Vec<_> = put.chunks(size).map(<[_]>::to_vec).collect();
            if parts.is_empty() || (removed != 0 && rng.percent(20)) {
                parts.push(Vec::new());
            }
            let last = parts.len() - 1;
            for (at, put) in parts.into_iter().enumerate() {
                self.nonces += 1;
                let of_last = |mask: Mask| if at == last { mask } else { 0 };
                let (removed, completes) = (of_last(removed), of_last(completes));
                messages.push(Message { ty, nonce: self.nonces.to_string(), put, removed, completes });
            }
        }
        messages
    }
}

impl Message {
    /// The message in the engine's form.
    pub fn response(&self, names: &Names) -> Response {
        let resources = self.put.iter().map(|(name, entry)| {
            Ok(Received {
                name: names.words[self.ty][*name].clone(),
                upstream_version: format!("e{}", entry.edition).into(),
                resource: Some(names.resource(self.ty, *name, entry.edition, entry.aliases)),
                ttl: None,
            })
        });
        Response::Delta(DeltaResponse {
            system_version_info: String::new(),
            type_url: names.types[self.ty].clone(),
            nonce: self.nonce.clone(),
            resources: resources.collect(),
            removed: names.list(self.ty, self.removed),
            errors: Vec::new(),
            control_plane: String::new(),
        })
    }
}
