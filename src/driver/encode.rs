//! Encoded bodies, each made once and shared by all clients that stand at the same place.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use moka::sync::Cache;

use crate::engine::downstream::answer::Chunk;
use crate::engine::downstream::{Answer, AnswerKey};
use crate::engine::view::View;
use crate::telemetry::Metrics;
use crate::telemetry::metrics::GaugePart;
use crate::wire::json::write_response;
use crate::wire::response::{self, Beside};
use crate::xds::{Code, ResourceName, Status, TypeUrl, Variant, Version};

/// What nobody asked for within this time is dropped: an update reaches its clients in less, and the next one has
/// another key.
const IDLE: Duration = Duration::from_secs(5);

/// A composed answer, ready to be written.
#[derive(Debug)]
pub struct Encoded {
    pub messages: Vec<EncodedMessage>,
    /// The endpoints that must follow (ORD-5).
    pub endpoints: Arc<[ResourceName]>,
    /// What the client is brought to, where that is not just what the source has.
    pub targets: Vec<Arc<View>>,
    /// How many resources the client cannot be sent (RLY-23).
    pub left_out: usize,
    _bytes: GaugePart,
}

/// All of one message but its nonce.
#[derive(Debug)]
pub struct EncodedMessage {
    pub body: Bytes,
    pub version: Version,
    /// How many heartbeats it holds (TTL-4); in SotW the resource itself is one.
    pub beats: usize,
    /// The codes of its `resource_errors`.
    pub errors: Box<[Code]>,
}

/// A complete set in JSON.
#[derive(Debug)]
struct Document {
    json: Bytes,
    _bytes: GaugePart,
}

/// Keeps encoded bodies within a budget of bytes; two streams that need the same one at once make it once.
#[derive(Debug)]
pub struct Encoder {
    /// Every client looks up every update. Keys are of our own making, so that nobody can make them collide.
    cache: Cache<AnswerKey, Arc<Encoded>, foldhash::fast::RandomState>,
    /// Complete sets in JSON, or why they cannot be said in it. Within a budget of the same size.
    json: Cache<(AnswerKey, Version), Result<Arc<Document>, Status>>,
    metrics: Arc<Metrics>,
}

impl Encoder {
    pub fn new(bytes_max: u64, metrics: Arc<Metrics>) -> Encoder {
        let cache = Cache::builder()
            .max_capacity(bytes_max)
            .weigher(|_, encoded: &Arc<Encoded>| {
                let bytes: usize = encoded.messages.iter().map(|message| message.body.len()).sum();
                u32::try_from(bytes + 128).unwrap_or(u32::MAX)
            })
            .time_to_idle(IDLE)
            .build_with_hasher(foldhash::fast::RandomState::default());
        let json = Cache::builder()
            .max_capacity(bytes_max)
            .weigher(|_, document: &Result<Arc<Document>, Status>| {
                let bytes = document.as_ref().map_or(0, |document| document.json.len());
                u32::try_from(bytes + 128).unwrap_or(u32::MAX)
            })
            .time_to_idle(IDLE)
            .build();
        Encoder { cache, json, metrics }
    }

    /// `identifier`: what `control_plane.identifier` says (WIR-6). Answers of one key come from the same servers, so it is
    /// made with the body. What is `private` to a stream is not kept (CCH-1).
    pub fn encode(&self, answer: &Answer, private: bool, identifier: impl Fn() -> String) -> Arc<Encoded> {
        if private {
            return Arc::new(self.make(answer, &identifier()));
        }
        let key = answer.key();
        if let Some(encoded) = self.cache.get(&key) {
            self.metrics.encodings.hit();
            return encoded;
        }
        self.cache.get_with(key, || {
            self.metrics.encodings.miss();
            Arc::new(self.make(answer, &identifier()))
        })
    }

    /// Drops what is kept; it is made again when somebody needs it.
    pub fn clear(&self) {
        self.cache.invalidate_all();
        self.json.invalidate_all();
    }

    /// A complete set as a JSON document under this version. `private` and `identifier` as for [`Encoder::encode`].
    pub fn json(
        &self,
        answer: &Answer,
        version: Version,
        private: bool,
        identifier: impl Fn() -> String,
    ) -> Result<Bytes, Status> {
        if private {
            return self.write_json(answer, version, &identifier()).map(|document| document.json.clone());
        }
        let key = (answer.key(), version);
        if let Some(document) = self.json.get(&key) {
            self.metrics.encodings.hit();
            return document.map(|document| document.json.clone());
        }
        let document = self.json.get_with(key, || {
            self.metrics.encodings.miss();
            self.write_json(answer, version, &identifier())
        });
        document.map(|document| document.json.clone())
    }

    fn write_json(
        &self,
        answer: &Answer,
        version: Version,
        identifier: &str,
    ) -> Result<Arc<Document>, Status> {
        let identifier = &*told_of(answer, identifier);
        let composition = answer.located(answer.spelled(answer.compose()));
        let resources = composition.chunks.iter().flat_map(|chunk| &chunk.resources).map(Arc::as_ref);
        let json = write_response(&answer.type_url, version, resources, identifier)?;
        let bytes = self.metrics.encodings.bytes(json.len());
        Ok(Arc::new(Document { json, _bytes: bytes }))
    }

    fn make(&self, answer: &Answer, identifier: &str) -> Encoded {
        let identifier = &*told_of(answer, identifier);
        let composition = answer.located(answer.spelled(answer.compose()));
        let messages: Vec<_> = composition
            .chunks
            .iter()
            .map(|chunk| EncodedMessage {
                body: body_of(&answer.type_url, answer.variant, chunk, identifier),
                version: chunk.version,
                beats: chunk.beats.len(),
                errors: chunk.errors.iter().map(|(_, error)| error.code).collect(),
            })
            .collect();
        let bytes = messages.iter().map(|message| message.body.len()).sum();
        Encoded {
            messages,
            endpoints: composition.endpoints,
            targets: composition.targets,
            left_out: composition.left_out,
            _bytes: self.metrics.encodings.bytes(bytes),
        }
    }
}

/// What `control_plane.identifier` says of an answer: also that it is restored (RLY-7). Bodies are kept by a key that tells
/// the two apart.
fn told_of<'a>(answer: &Answer, identifier: &'a str) -> Cow<'a, str> {
    match answer.is_restored() {
        true => format!("{identifier}, restored from a checkpoint").into(),
        false => identifier.into(),
    }
}

fn body_of(type_url: &TypeUrl, variant: Variant, chunk: &Chunk, identifier: &str) -> Bytes {
    let resources = chunk.resources.iter().map(Arc::as_ref);
    let ttls = Some(&chunk.ttls).filter(|ttls| !ttls.is_empty());
    let beside = Beside { ttls, beats: &chunk.beats, errors: &chunk.errors };
    match variant {
        Variant::Sotw => response::sotw_body(type_url, chunk.version, resources, beside, identifier),
        Variant::Delta => {
            let (removed, variants) = (chunk.removed.iter(), &chunk.removed_variants);
            response::delta_body(type_url, chunk.version, resources, removed, variants, beside, identifier)
        }
    }
}
