//! Responses to clients, as transcripts, and rules that hold for every response.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::collection::Collection;
use crate::downstream::tests::bench::{Bench, CDS, ClientId, EDS, short, url};
use crate::downstream::tests::client::{Held, content_of};
use crate::downstream::{Answer, Composition, SourceId};
use sluice_xds::{ResourceName, SetMark, Variant, Version};

impl Bench {
    /// The next response, as `Cluster a=1 b=2 -c`; empty if there is none. The response is not ACKed.
    pub fn poll(&mut self, client: ClientId) -> String {
        loop {
            let snapshots = self.picked(client);
            let latest = |id: SourceId| snapshots.get(id.0 as usize).cloned();
            let now = self.now;
            let session = &mut self.clients[client].session;
            let Some((index, answer)) = session.poll_answer(&latest, now) else { return String::new() };
            let composition = self.compose(client, &answer);
            let chunk = composition.chunks.get(answer.chunk);
            let version = chunk.map(|chunk| chunk.version).unwrap_or_default();
            let session = &mut self.clients[client].session;
            let nonce = session.commit(
                index,
                &answer,
                composition.chunks.len(),
                version,
                &composition.endpoints,
                &composition.targets,
                &composition.told_names,
                now,
            );
            let passed = session.take_passed();
            // The driver looks for no further answer then (ADR 86).
            let is_sated = session.is_sated(index);
            assert!(
                !is_sated || session.poll_answer(&latest, now).is_none(),
                "an answer is due behind the last"
            );
            self.settled.passed(client, passed);
            let session = &mut self.clients[client].session;
            let (Some(chunk), Some(nonce)) = (chunk, nonce) else { continue };
            let mark = session.mark(index, &answer, composition.chunks.len());
            let nonce = session.nonce_text(nonce);
            self.judge(client, &answer, chunk);
            let variant = self.clients[client].variant;
            let held = self.held(client, answer.type_url.message());
            let idle = held.take(&answer.type_url, variant, chunk, &nonce);
            self.idle.extend(idle.iter().map(|name| format!("{client} {:?} {name}", answer.type_url)));
            if answer.chunk + 1 >= composition.chunks.len() && answer.type_url == url(CDS) {
                self.held(client, EDS).due.extend(composition.endpoints.iter().cloned());
            }
            for (name, _) in &chunk.errors {
                // The resource ends the error, changed or not (ERR-3).
                self.held(client, answer.type_url.message()).due.insert(name.clone());
            }
            let mut text = answer.type_url.short().to_owned();
            let ttl =
                |name| chunk.ttls.get(name).map(|ttl| format!("@{}", ttl.as_secs())).unwrap_or_default();
            for resource in &chunk.resources {
                let name = short(answer.type_url.message(), &resource.name);
                text += &format!(" {name}={}{}", content_of(&resource.body.value), ttl(&resource.name));
            }
            for resource in &chunk.beats {
                let name = short(answer.type_url.message(), &resource.name);
                text += &format!(" ~{name}{}", ttl(&resource.name));
            }
            for name in &chunk.removed {
                text += &format!(" -{}", short(answer.type_url.message(), name));
            }
            for (name, error) in &chunk.errors {
                let name = short(answer.type_url.message(), name);
                text += &format!(" !{name}:{}", error.code.name());
            }
            if let Some(SetMark { requests, whole, globs }) = mark {
                let what = whole.then_some("whole").into_iter().chain(globs.iter().map(ResourceName::as_str));
                text += &format!(" ({requests}: {})", what.collect::<Vec<_>>().join(" "));
            }
            return text;
        }
    }

    /// Polls and ACKs until no response is left, even after removals have rested; joined by `; `.
    pub fn drain(&mut self, client: ClientId) -> String {
        let mut transcript = Vec::new();
        loop {
            let text = self.poll(client);
            if text.is_empty() {
                let until = self.clients[client].session.held_until().map(|until| until.since(self.now));
                match until.filter(|rest| *rest <= Duration::from_millis(250)) {
                    Some(rest) => self.advance(rest),
                    None => return transcript.join("; "),
                }
                continue;
            }
            assert!(transcript.len() < 50, "a stream without an end: {transcript:?}");
            transcript.push(text);
            let types: Vec<_> = self.clients[client].held.keys().cloned().collect();
            for type_url in types {
                if !self.held(client, type_url.message()).unanswered.is_empty() {
                    self.ack(client, type_url.message());
                    self.held(client, type_url.message()).unanswered.clear();
                }
            }
        }
    }

    /// Like [`Bench::drain`], but only responses that are due now.
    pub fn drain_now(&mut self, client: ClientId) -> String {
        let mut transcript = Vec::new();
        loop {
            let text = self.poll(client);
            if text.is_empty() {
                return transcript.join("; ");
            }
            transcript.push(text);
            let types: Vec<_> = self.clients[client].held.keys().cloned().collect();
            for type_url in types {
                let held = self.held(client, type_url.message());
                if !std::mem::take(&mut held.unanswered).is_empty() {
                    self.ack(client, type_url.message());
                }
            }
        }
    }

    /// Asserts that equal keys mean equal compositions. As in the driver, the messages after the first are
    /// not composed again.
    fn compose(&mut self, client: ClientId, answer: &Answer) -> Composition {
        let key = answer.key();
        let unsent = &mut self.clients[client].unsent;
        let kept = unsent.iter().position(|(kept, _)| *kept == key).map(|at| unsent.swap_remove(at).1);
        let kept = kept.filter(|_| answer.chunk > 0);
        assert!(kept.is_some() || answer.chunk == 0, "the rest of an answer is kept");
        let mut composition = kept.unwrap_or_else(|| answer.compose().spelled(answer));
        if answer.chunk == 0 {
            self.note(answer, &composition);
            // As in the driver, clients share the messages.
            let unsent = self.clients.iter().flat_map(|client| &client.unsent);
            if let Some((_, shared)) = unsent.into_iter().find(|(kept, _)| *kept == key) {
                composition.told_names = shared.told_names.clone();
            }
        }
        if answer.chunk + 1 < composition.chunks.len() {
            self.clients[client].unsent.push((key, composition.clone()));
        }
        composition
    }

    fn note(&mut self, answer: &Answer, composition: &Composition) {
        let mut text = format!("{:?} {:?}", answer.type_url, composition.endpoints);
        for chunk in &composition.chunks {
            let resources: Vec<_> = chunk.resources.iter().map(|r| (&r.name, r.version)).collect();
            text += &format!(" {resources:?} -{:?} {}", chunk.removed, chunk.version);
            text += &format!(" {:?} {:?} {:?}", chunk.beats, chunk.ttls, chunk.errors);
        }
        let known = self.composed.entry(answer.key()).or_insert_with(|| text.clone());
        assert_eq!(*known, text, "equal keys, equal compositions");
    }

    /// Asserts the rules for every response.
    fn judge(&mut self, client: ClientId, answer: &Answer, chunk: &crate::downstream::Chunk) {
        let sum = chunk.resources.iter().fold(Version::default(), |sum, r| sum.plus(r.version));
        let brings_nothing = !answer.full && chunk.resources.is_empty() && chunk.removed.is_empty();
        let is_repeated = brings_nothing && (!chunk.beats.is_empty() || !chunk.errors.is_empty());
        assert!(is_repeated || chunk.version == sum, "RLY-31: the version is of exactly this content");
        let sent: BTreeSet<_> = chunk.names().collect();
        assert!(chunk.errors.iter().all(|(name, _)| !sent.contains(name)), "ERR-2: in one list only");
        let held = self.held(client, answer.type_url.message());
        if answer.full {
            judge_missing(held, answer, chunk);
            held.returning.clear();
        }
        let (wanted, wildcard) = (held.wanted.clone(), held.wildcard);
        for resource in &chunk.resources {
            assert!(
                wildcard
                    || wanted.contains(&resource.name)
                    || resource.aliases.iter().any(|alias| wanted.contains(alias))
                    || resource.name.glob().is_some_and(|glob| wanted.contains(&glob)),
                "SUB-18: {} was not asked for",
                resource.name
            );
        }
        for name in &chunk.removed {
            for part in &answer.parts {
                assert!(!part.view.has(name), "DEL-22: {name} still exists");
                let settled = match &part.collection {
                    Collection::Wildcard => part.view.is_complete() || !part.held.has(name),
                    Collection::Globs(_) => part.view.knows_gone(name) || !part.collection.covers(name),
                    Collection::Names(names) => part.view.knows_absent(name) || !names.contains(name),
                };
                assert!(settled, "RLY-2: {name} is not known to be absent");
            }
        }
        assert!(chunk.removed.is_empty() || answer.variant == Variant::Delta);
    }
}

/// RLY-5: a complete set contains every resource that may exist and that the client was sent or may have from
/// before.
fn judge_missing(held: &Held, answer: &Answer, chunk: &crate::downstream::Chunk) {
    let is_told = |name: &ResourceName| {
        chunk.resources.iter().any(|resource| resource.name == *name || resource.aliases.contains(name))
            || chunk.errors.iter().any(|(other, _)| other == name)
    };
    let missing = held.resources.keys().chain(&held.returning).filter(|name| !is_told(name));
    let missing: Vec<_> = missing.collect();
    for part in &answer.parts {
        if matches!(part.collection, Collection::Wildcard) {
            assert!(part.view.is_complete(), "RLY-5: a wildcard is not known as a whole");
            continue;
        }
        for name in missing.iter().filter(|name| part.collection.covers(name)) {
            let is_known = part.view.has(name) || part.view.knows_gone(name) || part.view.knows_glob(name);
            assert!(is_known, "RLY-5: {name} is missing, and may exist");
        }
    }
}
