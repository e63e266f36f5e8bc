//! Encoded bodies. Each is made once, and shared by all clients with the same state.

#[cfg(test)]
mod tests;

mod made;
pub mod private_body;
pub mod single_flight;

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use moka::sync::Cache;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::driver::ground::encoder::made::{Made, RecentBodies};
use crate::driver::ground::encoder::private_body::Sharing;
use crate::driver::ground::encoder::single_flight::{FlightGuard, SingleFlight};
use crate::telemetry::Metrics;
use crate::telemetry::metrics::GaugePart;
use sluice_engine::downstream::ToldNames;
use sluice_engine::downstream::{Answer, AnswerKey};
use sluice_engine::downstream::{AnswerPart, Chunk};
use sluice_engine::lanes::Published;
use sluice_engine::view::View;
use sluice_json::write_response;
use sluice_setting::InForce;
use sluice_wire::coding::CompressedBody;
use sluice_wire::response::{self, Beside};
use sluice_xds::{Code, Coding, ResourceName, Status, TypeUrl, Variant, Version};

/// A body that was unused for this time is dropped. An update reaches its clients sooner, and the next update
/// has another key.
const IDLE: Duration = Duration::from_secs(5);

/// A composed answer, ready to be written.
#[derive(Debug)]
pub struct Encoded {
    pub messages: Vec<EncodedMessage>,
    /// The endpoints that must follow (ORD-5).
    pub endpoints: Arc<[ResourceName]>,
    /// The views that the client has after the answer, if they differ from the source's views.
    pub targets: Vec<Arc<View>>,
    /// The number of resources that cannot be sent to the client (RLY-23).
    pub left_out: usize,
    /// The names in each message, if there are several messages.
    pub message_names: Arc<[ToldNames]>,
    _bytes: GaugePart,
}

/// A message without its nonce.
#[derive(Debug)]
pub struct EncodedMessage {
    pub body: Bytes,
    pub version: Version,
    /// The number of heartbeats in the message (TTL-4). In SotW, the resource itself is a heartbeat.
    pub beats: usize,
    /// The codes of the `resource_errors`.
    pub errors: Box<[Code]>,
    /// The number of resources, and of removed names.
    pub resources: usize,
    pub removed: usize,
    compressed: CompressedForms,
}

/// The body in each coding, once a client has asked for it; `None`: the body goes as it is.
type CompressedForms = [OnceLock<Option<(CompressedBody, GaugePart)>>; Coding::ALL.len()];

impl EncodedMessage {
    /// The compressed body, for all clients with the coding. The first of them makes it: at most 4 MiB, in
    /// some 2 ms.
    pub fn compressed(&self, coding: Coding, metrics: &Metrics) -> Option<&CompressedBody> {
        let form = self.compressed[coding as usize].get_or_init(|| {
            let body = CompressedBody::new(coding, &self.body)?;
            let bytes = metrics.encodings.bytes(body.bytes());
            Some((body, bytes))
        });
        form.as_ref().map(|form| &form.0)
    }
}

/// A complete set in JSON.
#[derive(Debug)]
pub(crate) struct JsonDocument {
    json: Bytes,
    _bytes: GaugePart,
}

/// The caller for a document.
pub(crate) struct DocumentCaller<'a> {
    pub waker: &'a Waker,
    /// Gone together with the caller.
    pub presence: &'a Arc<()>,
}

/// The making of one body.
#[derive(Clone, Copy, Debug)]
pub struct BodyTimes {
    pub begin: Instant,
    pub end: Instant,
    /// The bytes of all messages.
    pub bytes: usize,
    pub messages: usize,
}

/// The words of a body, and the notes about its making. Only the maker of a body asks for them.
#[derive(Default)]
pub struct Maker {
    /// The text of `control_plane.identifier` (WIR-6).
    pub identifier: String,
    /// Told when the body is ready.
    pub ready: Option<Box<dyn Fn(BodyTimes) + Send + Sync>>,
}

impl Maker {
    fn note(&self, begin: Instant, bytes: usize, messages: usize) {
        if let Some(ready) = &self.ready {
            ready(BodyTimes { begin, end: Instant::now(), bytes, messages });
        }
    }
}

/// Smaller answers are encoded by the first stream that needs them. Larger answers would keep a worker away
/// from other connections for more than a turn. Measured CPU time of 256 KiB: 0.2 ms in resources of 64 KiB,
/// 0.4 ms in resources of 2 KB, and 1.5 ms in resources of 100 bytes.
const LARGE_BYTES: usize = 256 << 10;

/// The same limit for JSON, which takes about six times as long: 32 KiB take 0.6 ms in resources of 2 KB, and
/// 1.5 ms in resources of 100 bytes.
const LARGE_JSON_BYTES: usize = LARGE_BYTES / 8;

/// Keeps encoded bodies within a budget of bytes. Streams that need the same body at the same time share the
/// work, and block no thread.
#[derive(Debug)]
pub struct Encoder {
    recent: RecentBodies,
    caches: InForce<Caches>,
    flights: SingleFlight<AnswerKey>,
    json_flights: SingleFlight<JsonKey>,
    made: Mutex<Made<AnswerKey, Encoded>>,
    json_made: Mutex<Made<JsonKey, JsonDocument>>,
    /// Limits concurrent encodings of large bodies, since each of them occupies a core.
    large: Semaphore,
    metrics: Arc<Metrics>,
}

/// The bodies within a budget. Another budget needs other caches, because the size of a cache is fixed.
#[derive(Debug)]
struct Caches {
    bytes_max: u64,
    idle: Duration,
    /// Every client looks up every update, so the hash is a fast one. Clients cannot choose the keys, and so
    /// cannot cause collisions.
    messages: Cache<AnswerKey, Arc<Encoded>, foldhash::fast::RandomState>,
    /// Complete sets in JSON, or the errors of failed conversions. The budget has the same size.
    json: Cache<JsonKey, JsonResult>,
}

type JsonKey = (AnswerKey, Version);
pub(crate) type JsonResult = Result<Arc<JsonDocument>, Status>;

impl Caches {
    fn new(bytes_max: u64, idle: Duration) -> Caches {
        let messages = Cache::builder()
            .max_capacity(bytes_max)
            .weigher(|_, encoded: &Arc<Encoded>| {
                let bytes: usize = encoded.messages.iter().map(|message| message.body.len()).sum();
                u32::try_from(bytes + 128).unwrap_or(u32::MAX)
            })
            .time_to_idle(idle)
            .build_with_hasher(foldhash::fast::RandomState::default());
        let json = Cache::builder()
            .max_capacity(bytes_max)
            .weigher(|_, document: &JsonResult| {
                let bytes = document.as_ref().map_or(0, |document| document.json.len());
                u32::try_from(bytes + 128).unwrap_or(u32::MAX)
            })
            .time_to_idle(idle)
            .build();
        Caches { bytes_max, idle, messages, json }
    }

    fn run_pending_tasks(&self) {
        self.messages.run_pending_tasks();
        self.json.run_pending_tasks();
    }
}

impl Encoder {
    pub fn new(bytes_max: u64, metrics: Arc<Metrics>) -> Encoder {
        Encoder::with_idle(bytes_max, IDLE, metrics)
    }

    fn with_idle(bytes_max: u64, idle: Duration, metrics: Arc<Metrics>) -> Encoder {
        // The other half of the cores keeps serving small bodies.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Encoder {
            recent: RecentBodies::default(),
            caches: InForce::new(Caches::new(bytes_max, idle)),
            flights: SingleFlight::default(),
            json_flights: SingleFlight::default(),
            made: Mutex::default(),
            json_made: Mutex::default(),
            large: Semaphore::new((cores / 2).max(1)),
            metrics,
        }
    }

    /// Puts another budget in force. Its caches begin empty; streams still find the bodies that others send,
    /// and make the rest again.
    pub fn configure(&self, bytes_max: u64) {
        let caches = self.caches.get();
        if caches.bytes_max != bytes_max {
            self.caches.publish(Caches::new(bytes_max, caches.idle));
        }
    }

    /// Looks up the body of an answer, or makes it. Answers with the same key come from the same servers.
    /// With `patient`, a large body may be made on another thread. The waker is then woken when the body is
    /// ready, or when the caller has to try again.
    pub fn poll_encode(
        self: &Arc<Self>,
        answer: &Answer,
        sharing: Sharing<'_, Arc<Encoded>>,
        maker: impl Fn() -> Maker,
        patient: bool,
        waker: &Waker,
    ) -> Poll<Arc<Encoded>> {
        let key = answer.key();
        let is_large = || patient && is_large(answer, LARGE_BYTES) && Handle::try_current().is_ok();
        if let Sharing::Private(private_body) = sharing {
            let make = |answer: Answer, maker: Maker| {
                move |encoder: &Encoder| Arc::new(encoder.make(&answer, &maker))
            };
            return private_body.poll(self, key, waker, is_large, || make(answer.clone(), maker()));
        }
        if let Some(encoded) = self.find(&key) {
            self.metrics.encodings.hit();
            return Poll::Ready(encoded);
        }
        if !self.flights.begin(key, waker) {
            return Poll::Pending;
        }
        // Another thread may have made the body since the first lookup.
        if let Some(encoded) = self.find(&key) {
            self.flights.end(&key);
            self.metrics.encodings.hit();
            return Poll::Ready(encoded);
        }
        self.metrics.encodings.miss();
        if is_large() {
            self.flights.begin(key, waker);
            let (encoder, answer, maker) = (self.clone(), answer.clone(), maker());
            let make = move |encoder: &Encoder| drop(encoder.make_shared(&answer, &maker));
            tokio::spawn(encoder.elsewhere(make));
            return Poll::Pending;
        }
        Poll::Ready(self.make_shared(answer, &maker()))
    }

    /// Whether the source still has the views of this answer.
    pub fn is_current(&self, key: &AnswerKey) -> bool {
        self.made.lock().live.contains_key(key)
    }

    fn find(&self, key: &AnswerKey) -> Option<Arc<Encoded>> {
        self.recent.find(key).or_else(|| {
            let cached = self.caches.get().messages.get(key);
            let body = cached.or_else(|| self.made.lock().live.get(key)?.upgrade())?;
            self.recent.note(key, &body);
            Some(body)
        })
    }

    /// Makes a body that other streams may be waiting for.
    fn make_shared(&self, answer: &Answer, maker: &Maker) -> Arc<Encoded> {
        let flight = FlightGuard { flights: &self.flights, key: answer.key() };
        let encoded = Arc::new(self.make(answer, maker));
        self.made.lock().add(flight.key, answer, &encoded);
        self.caches.get().messages.insert(flight.key, encoded.clone());
        encoded
    }

    /// Runs the work on a thread for blocking work.
    pub(crate) async fn elsewhere(self: Arc<Self>, make: impl FnOnce(&Encoder) + Send + 'static) {
        let Ok(_permit) = self.large.acquire().await else { return };
        let encoder = self.clone();
        // A panic ends the flight. Each waiting stream then makes the body on its own.
        let _ = tokio::task::spawn_blocking(move || make(&encoder)).await;
    }

    /// Forgets the outdated bodies of a source that has published a new snapshot.
    pub fn move_on(&self, source: u64, served: &Published) {
        let caches = self.caches.get();
        let outdated = self.made.lock().move_on(source, served);
        if !outdated.is_empty() {
            outdated.iter().for_each(|key| caches.messages.invalidate(key));
            // Otherwise the cache would keep the bodies until it is busy enough.
            caches.messages.run_pending_tasks();
        }
        let outdated = self.json_made.lock().move_on(source, served);
        if !outdated.is_empty() {
            outdated.iter().for_each(|key| caches.json.invalidate(key));
            caches.json.run_pending_tasks();
        }
    }

    /// Drops bodies without recent use. The caches do this by themselves only while they are used, so the
    /// documents of the last polls would stay until the next poll.
    pub fn tidy(&self) {
        self.caches.get().run_pending_tasks();
    }

    /// Drops all bodies. Streams make them again when needed.
    pub fn clear(&self) {
        let caches = self.caches.get();
        caches.messages.invalidate_all();
        caches.json.invalidate_all();
        // Memory is short, so the caches must not put this off.
        caches.run_pending_tasks();
    }

    /// A complete set as a JSON document with this version. Otherwise like [`Encoder::poll_encode`]. A
    /// document that waits for its turn is not made if all of its callers have left: thousands of polls could
    /// leave work for seconds behind.
    pub(crate) fn poll_json(
        self: &Arc<Self>,
        answer: &Answer,
        version: Version,
        sharing: Sharing<'_, JsonResult>,
        maker: impl Fn() -> Maker,
        patient: bool,
        caller: &DocumentCaller<'_>,
    ) -> Poll<Result<Bytes, Status>> {
        let DocumentCaller { waker, presence } = *caller;
        let text = |document: JsonResult| document.map(|document| document.json.clone());
        let is_large = || patient && is_large(answer, LARGE_JSON_BYTES) && Handle::try_current().is_ok();
        if let Sharing::Private(private_body) = sharing {
            let make = |answer: Answer, maker: Maker| {
                move |encoder: &Encoder| encoder.write_json(&answer, version, &maker)
            };
            return private_body
                .poll(self, answer.key(), waker, is_large, || make(answer.clone(), maker()))
                .map(text);
        }
        let key = (answer.key(), version);
        if let Some(document) = self.caches.get().json.get(&key) {
            self.metrics.encodings.hit();
            return Poll::Ready(text(document));
        }
        if !self.json_flights.begin_for(key, waker, presence) {
            return Poll::Pending;
        }
        if let Some(document) = self.caches.get().json.get(&key) {
            self.json_flights.end(&key);
            self.metrics.encodings.hit();
            return Poll::Ready(text(document));
        }
        self.metrics.encodings.miss();
        if is_large() {
            self.json_flights.begin_for(key, waker, presence);
            let (encoder, answer, maker) = (self.clone(), answer.clone(), maker());
            let make = move |encoder: &Encoder| match encoder.json_flights.is_wanted(&key) {
                true => drop(encoder.make_shared_json(&answer, version, &maker)),
                false => encoder.json_flights.end(&key),
            };
            tokio::spawn(encoder.elsewhere(make));
            return Poll::Pending;
        }
        Poll::Ready(text(self.make_shared_json(answer, version, &maker())))
    }

    fn make_shared_json(&self, answer: &Answer, version: Version, maker: &Maker) -> JsonResult {
        let flight = FlightGuard { flights: &self.json_flights, key: (answer.key(), version) };
        let document = self.write_json(answer, version, maker);
        if let Ok(document) = &document {
            self.json_made.lock().add(flight.key, answer, document);
        }
        self.caches.get().json.insert(flight.key, document.clone());
        document
    }

    fn write_json(
        &self,
        answer: &Answer,
        version: Version,
        maker: &Maker,
    ) -> Result<Arc<JsonDocument>, Status> {
        let begin = Instant::now();
        let identifier = &*told_of(answer, &maker.identifier);
        let composition = answer.compose().spelled(answer).with_plain_names(answer);
        let resources = composition.chunks.iter().flat_map(|chunk| &chunk.resources).map(Arc::as_ref);
        let json = write_response(&answer.type_url, version, resources, identifier)?;
        maker.note(begin, json.len(), 1);
        let bytes = self.metrics.encodings.bytes(json.len());
        Ok(Arc::new(JsonDocument { json, _bytes: bytes }))
    }

    fn make(&self, answer: &Answer, maker: &Maker) -> Encoded {
        let begin = Instant::now();
        let identifier = &*told_of(answer, &maker.identifier);
        let composition = answer.compose().spelled(answer).with_plain_names(answer);
        let messages: Vec<EncodedMessage> = composition
            .chunks
            .iter()
            .map(|chunk| EncodedMessage {
                body: body_of(&answer.type_url, answer.variant, chunk, identifier),
                version: chunk.version,
                beats: chunk.beats.len(),
                errors: chunk.errors.iter().map(|(_, error)| error.code).collect(),
                resources: chunk.resources.len(),
                removed: chunk.removed.len(),
                compressed: CompressedForms::default(),
            })
            .collect();
        let bytes = messages.iter().map(|message| message.body.len()).sum();
        maker.note(begin, bytes, messages.len());
        Encoded {
            messages,
            endpoints: composition.endpoints,
            targets: composition.targets,
            left_out: composition.left_out,
            message_names: composition.told_names,
            _bytes: self.metrics.encodings.bytes(bytes),
        }
    }
}

/// Whether an answer weighs at least this much. Complete sets count in full, other sets with their
/// differences.
fn is_large(answer: &Answer, bytes: usize) -> bool {
    let mut left = bytes;
    for part in &answer.parts {
        // The weight of a presented view is unknown. The view shares no bodies with the set, so a comparison
        // takes as long as encoding the whole set.
        let is_presented = part.held.bytes() == 0;
        let weight = match answer.full || is_presented {
            true => part.view.bytes(),
            false => weight_of_news(answer, part, left),
        };
        left = left.saturating_sub(weight);
    }
    left == 0
}

/// The bytes of the differences, counted up to `most`. The differences of a large set are mostly small, and
/// are found at once.
fn weight_of_news(answer: &Answer, part: &AnswerPart, most: usize) -> usize {
    if part.view.bytes().max(part.held.bytes()) < most {
        return 0;
    }
    let (types, kind) = (part.snapshot.of(&answer.type_url), part.collection.kind());
    let mut weight = 0;
    for name in part.held.differing(&part.view) {
        let resource = types.and_then(|types| types.body(kind, name));
        weight += resource.map_or_else(|| name.as_str().len(), |resource| resource.size());
        if weight >= most {
            break;
        }
    }
    weight
}

/// The text of `control_plane.identifier` for an answer. It tells whether the answer is restored (RLY-7). The
/// keys of bodies differ in the same way.
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
