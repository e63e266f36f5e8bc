//! Encoded bodies, each made once and shared by all clients that stand at the same place.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use moka::sync::Cache;

use crate::engine::downstream::answer::Chunk;
use crate::engine::downstream::{Answer, AnswerKey};
use crate::telemetry::Metrics;
use crate::telemetry::metrics::GaugePart;
use crate::wire::response;
use crate::xds::{ResourceName, TypeUrl, Variant, Version};

/// What nobody asked for within this time is dropped: an update reaches its clients in less, and the next one has
/// another key.
const IDLE: Duration = Duration::from_secs(5);

/// A composed answer, ready to be written.
#[derive(Debug)]
pub struct Encoded {
    pub messages: Vec<EncodedMessage>,
    /// The endpoints that must follow (ORD-5).
    pub endpoints: Vec<ResourceName>,
    _bytes: GaugePart,
}

/// All of one message but its nonce.
#[derive(Debug)]
pub struct EncodedMessage {
    pub body: Bytes,
    pub version: Version,
}

/// Keeps encoded bodies within a budget of bytes; two streams that need the same one at once make it once.
#[derive(Debug)]
pub struct Encoder {
    cache: Cache<AnswerKey, Arc<Encoded>>,
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
            .build();
        Encoder { cache, metrics }
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
    }

    fn make(&self, answer: &Answer, identifier: &str) -> Encoded {
        let composition = answer.located(answer.spelled(answer.compose()));
        let messages: Vec<_> = composition
            .chunks
            .iter()
            .map(|chunk| EncodedMessage {
                body: body_of(&answer.type_url, answer.variant, chunk, identifier),
                version: chunk.version,
            })
            .collect();
        let bytes = messages.iter().map(|message| message.body.len()).sum();
        Encoded { messages, endpoints: composition.endpoints, _bytes: self.metrics.encodings.bytes(bytes) }
    }
}

fn body_of(type_url: &TypeUrl, variant: Variant, chunk: &Chunk, identifier: &str) -> Bytes {
    let resources = chunk.resources.iter().map(Arc::as_ref);
    match variant {
        Variant::Sotw => response::sotw_body(type_url, chunk.version, resources, identifier),
        Variant::Delta => {
            let (removed, variants) = (chunk.removed.iter(), &chunk.removed_variants);
            response::delta_body(type_url, chunk.version, resources, removed, variants, identifier)
        }
    }
}
