//! Encoded bodies, each made once and shared by all clients that stand at the same place.

#[cfg(test)]
mod tests;

pub mod private_body;
pub mod single_flight;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use moka::sync::Cache;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::driver::ground::encoder::private_body::Sharing;
use crate::driver::ground::encoder::single_flight::{FlightGuard, SingleFlight};
use crate::driver::ground::registry::lock;
use crate::engine::downstream::answer::{AnswerPart, Chunk};
use crate::engine::downstream::rest::Told;
use crate::engine::downstream::{Answer, AnswerKey};
use crate::engine::interest::Interest;
use crate::engine::snapshot::Snapshot;
use crate::engine::view::{View, ViewId};
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
    /// The names in each message, where there are several.
    pub told: Arc<[Told]>,
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
pub(crate) struct Document {
    json: Bytes,
    _bytes: GaugePart,
}

/// Answers whose sets weigh less are encoded by who needs them first; more than that would keep a worker from its other
/// connections for longer than a turn.
const LARGE_BYTES: usize = 256 << 10;

/// JSON is spelled out some ten times as slowly.
const LARGE_JSON_BYTES: usize = LARGE_BYTES / 8;

/// Below this many entries nothing is swept.
const SWEEP_MIN: usize = 64;

/// Keeps encoded bodies within a budget of bytes; what two streams need at once is made once, and nobody parks a thread for it.
#[derive(Debug)]
pub struct Encoder {
    /// Every client looks up every update. Keys are of our own making, so that nobody can make them collide.
    cache: Cache<AnswerKey, Arc<Encoded>, foldhash::fast::RandomState>,
    /// Complete sets in JSON, or why they cannot be said in it. Within a budget of the same size.
    json: Cache<JsonKey, JsonResult>,
    flights: SingleFlight<AnswerKey>,
    json_flights: SingleFlight<JsonKey>,
    made: Mutex<Made>,
    /// Large ones at a time, since each keeps a core.
    large: Semaphore,
    metrics: Arc<Metrics>,
}

type JsonKey = (AnswerKey, Version);
pub(crate) type JsonResult = Result<Arc<Document>, Status>;

/// What was made and somebody holds, be it too large for the cache.
#[derive(Debug, Default)]
struct Made {
    /// Only looked up: what is not in the cache.
    encoded: HashMap<AnswerKey, Weak<Encoded>>,
    /// By the source of their views.
    of_source: HashMap<u64, Vec<Record>>,
    /// How many there are of all sources. Some outlive what they are of: those of other sources, when one moves on, and those
    /// of sources that are gone.
    records: usize,
    /// With so many entries it is swept.
    sweep_at: usize,
}

/// Of what an encoding is.
#[derive(Debug)]
struct Record {
    key: AnswerKey,
    type_url: TypeUrl,
    interest: Interest,
    view: ViewId,
}

impl Made {
    fn add(&mut self, answer: &Answer, encoded: &Arc<Encoded>) {
        if self.len() >= self.sweep_at.max(SWEEP_MIN) {
            self.sweep();
        }
        let key = answer.key();
        // What is made again is on record.
        if self.encoded.insert(key, Arc::downgrade(encoded)).is_some() {
            return;
        }
        self.records += answer.parts.len();
        for part in &answer.parts {
            let (type_url, interest, view) = (answer.type_url.clone(), part.interest.clone(), part.view.id());
            let records = self.of_source.entry(view.source()).or_default();
            records.push(Record { key, type_url, interest, view });
        }
    }

    /// An answer has no record if it is of no source's views, and several if it is of several.
    fn len(&self) -> usize {
        self.records.max(self.encoded.len())
    }

    /// Forgets what nobody holds.
    fn sweep(&mut self) {
        self.encoded.retain(|_, encoded| encoded.strong_count() > 0);
        let live = &self.encoded;
        self.of_source.retain(|_, records| {
            records.retain(|record| live.contains_key(&record.key));
            !records.is_empty()
        });
        self.records = self.of_source.values().map(Vec::len).sum();
        self.sweep_at = 2 * self.len();
    }

    /// Forgets what is not of the views of this snapshot.
    fn move_on(&mut self, source: u64, snapshot: &Snapshot) -> Vec<AnswerKey> {
        let mut outdated = Vec::new();
        let Some(records) = self.of_source.get_mut(&source) else { return outdated };
        let before = records.len();
        records.retain(|record| {
            let view = snapshot.of(&record.type_url).and_then(|types| types.view(&record.interest));
            let is_current = view.is_some_and(|view| view.id() == record.view);
            if !is_current {
                self.encoded.remove(&record.key);
                outdated.push(record.key);
            }
            is_current
        });
        self.records -= before - records.len();
        if records.is_empty() {
            self.of_source.remove(&source);
        }
        outdated
    }
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
            .weigher(|_, document: &JsonResult| {
                let bytes = document.as_ref().map_or(0, |document| document.json.len());
                u32::try_from(bytes + 128).unwrap_or(u32::MAX)
            })
            .time_to_idle(IDLE)
            .build();
        // Half of the cores go on with what is small.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Encoder {
            cache,
            json,
            flights: SingleFlight::default(),
            json_flights: SingleFlight::default(),
            made: Mutex::default(),
            large: Semaphore::new((cores / 2).max(1)),
            metrics,
        }
    }

    /// `identifier`: what `control_plane.identifier` says (WIR-6). Answers of one key come from the same servers, so it is
    /// made with the body. `patient`: a large one may be made elsewhere. The
    /// waker is woken when it is there, or somebody has to try again.
    pub fn poll_encode(
        self: &Arc<Self>,
        answer: &Answer,
        sharing: Sharing<'_, Arc<Encoded>>,
        identifier: impl Fn() -> String,
        patient: bool,
        waker: &Waker,
    ) -> Poll<Arc<Encoded>> {
        let key = answer.key();
        let is_large = || patient && is_large(answer, LARGE_BYTES) && Handle::try_current().is_ok();
        if let Sharing::Private(private_body) = sharing {
            let make = |answer: Answer, told: String| {
                move |encoder: &Encoder| Arc::new(encoder.make(&answer, &told))
            };
            return private_body.poll(self, key, waker, is_large, || make(answer.clone(), identifier()));
        }
        if let Some(encoded) = self.find(&key) {
            self.metrics.encodings.hit();
            return Poll::Ready(encoded);
        }
        if !self.flights.begin(key, waker) {
            return Poll::Pending;
        }
        // Made since it was looked for.
        if let Some(encoded) = self.find(&key) {
            self.flights.end(&key);
            self.metrics.encodings.hit();
            return Poll::Ready(encoded);
        }
        self.metrics.encodings.miss();
        if is_large() {
            self.flights.begin(key, waker);
            let (encoder, answer, identifier) = (self.clone(), answer.clone(), identifier());
            let make = move |encoder: &Encoder| drop(encoder.make_shared(&answer, &identifier));
            tokio::spawn(encoder.elsewhere(make));
            return Poll::Pending;
        }
        Poll::Ready(self.make_shared(answer, &identifier()))
    }

    /// The source of these has not moved on from them.
    pub fn is_current(&self, key: &AnswerKey) -> bool {
        lock(&self.made).encoded.contains_key(key)
    }

    fn find(&self, key: &AnswerKey) -> Option<Arc<Encoded>> {
        self.cache.get(key).or_else(|| lock(&self.made).encoded.get(key)?.upgrade())
    }

    /// Makes what others wait for.
    fn make_shared(&self, answer: &Answer, identifier: &str) -> Arc<Encoded> {
        let flight = FlightGuard { flights: &self.flights, key: answer.key() };
        let encoded = Arc::new(self.make(answer, identifier));
        lock(&self.made).add(answer, &encoded);
        self.cache.insert(flight.key, encoded.clone());
        encoded
    }

    /// On a thread that may be kept busy.
    pub(crate) async fn elsewhere(self: Arc<Self>, make: impl FnOnce(&Encoder) + Send + 'static) {
        let Ok(_permit) = self.large.acquire().await else { return };
        let encoder = self.clone();
        // A panic ends the flight, and whoever waits tries for itself.
        let _ = tokio::task::spawn_blocking(move || make(&encoder)).await;
    }

    /// A source has published something else: nobody will ask for what it had before.
    pub fn move_on(&self, source: u64, snapshot: &Snapshot) {
        let outdated = lock(&self.made).move_on(source, snapshot);
        if outdated.is_empty() {
            return;
        }
        outdated.iter().for_each(|key| self.cache.invalidate(key));
        // The cache would keep them until it has enough to do.
        self.cache.run_pending_tasks();
    }

    /// Drops what is kept; it is made again when somebody needs it.
    pub fn clear(&self) {
        self.cache.invalidate_all();
        self.json.invalidate_all();
        // At once: memory is short.
        self.cache.run_pending_tasks();
        self.json.run_pending_tasks();
    }

    /// A complete set as a JSON document under this version. The rest is as for [`Encoder::poll_encode`].
    pub fn poll_json(
        self: &Arc<Self>,
        answer: &Answer,
        version: Version,
        sharing: Sharing<'_, JsonResult>,
        identifier: impl Fn() -> String,
        patient: bool,
        waker: &Waker,
    ) -> Poll<Result<Bytes, Status>> {
        let text = |document: JsonResult| document.map(|document| document.json.clone());
        let is_large = || patient && is_large(answer, LARGE_JSON_BYTES) && Handle::try_current().is_ok();
        if let Sharing::Private(private_body) = sharing {
            let make = |answer: Answer, told: String| {
                move |encoder: &Encoder| encoder.write_json(&answer, version, &told)
            };
            return private_body
                .poll(self, answer.key(), waker, is_large, || make(answer.clone(), identifier()))
                .map(text);
        }
        let key = (answer.key(), version);
        if let Some(document) = self.json.get(&key) {
            self.metrics.encodings.hit();
            return Poll::Ready(text(document));
        }
        if !self.json_flights.begin(key, waker) {
            return Poll::Pending;
        }
        if let Some(document) = self.json.get(&key) {
            self.json_flights.end(&key);
            self.metrics.encodings.hit();
            return Poll::Ready(text(document));
        }
        self.metrics.encodings.miss();
        if is_large() {
            self.json_flights.begin(key, waker);
            let (encoder, answer, identifier) = (self.clone(), answer.clone(), identifier());
            let make = move |encoder: &Encoder| drop(encoder.make_shared_json(&answer, version, &identifier));
            tokio::spawn(encoder.elsewhere(make));
            return Poll::Pending;
        }
        Poll::Ready(text(self.make_shared_json(answer, version, &identifier())))
    }

    fn make_shared_json(&self, answer: &Answer, version: Version, identifier: &str) -> JsonResult {
        let flight = FlightGuard { flights: &self.json_flights, key: (answer.key(), version) };
        let document = self.write_json(answer, version, identifier);
        self.json.insert(flight.key, document.clone());
        document
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
            told: composition.told,
            _bytes: self.metrics.encodings.bytes(bytes),
        }
    }
}

/// Whether an answer weighs so much: the sets that are told as a whole, and what differs in the others.
fn is_large(answer: &Answer, bytes: usize) -> bool {
    let mut left = bytes;
    for part in &answer.parts {
        // Of what a client presented the weight is not known, and it shares nothing with the set: comparing takes as long as
        // telling all of it.
        let is_presented = part.held.bytes() == 0;
        let weight = match answer.full || is_presented {
            true => part.view.bytes(),
            false => weight_of_news(answer, part, left),
        };
        left = left.saturating_sub(weight);
    }
    left == 0
}

/// What differs in a set, up to so many bytes: what changes in a large set is mostly small, and found at once.
fn weight_of_news(answer: &Answer, part: &AnswerPart, most: usize) -> usize {
    if part.view.bytes().max(part.held.bytes()) < most {
        return 0;
    }
    let (types, leaving) = (part.snapshot.of(&answer.type_url), part.interest.leaving());
    let mut weight = 0;
    for name in part.held.differing(&part.view) {
        let resource = types.and_then(|types| types.body(leaving, name));
        weight += resource.map_or_else(|| name.as_str().len(), |resource| resource.size());
        if weight >= most {
            break;
        }
    }
    weight
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
