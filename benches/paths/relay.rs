//! One source, its server's side of the conversation, and the sessions that it serves.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sluice_engine::Time;
use sluice_engine::authority::{Authority, NameGroup};
use sluice_engine::authorization::Grant;
use sluice_engine::cache::SessionId;
use sluice_engine::collection::HashSeed;
use sluice_engine::commons::Commons;
use sluice_engine::downstream::{
    Answer, AnswerKey, Composition, Limits, RequestOutcome, Router, Session, SourceId, Watch,
};
use sluice_engine::lanes::{Lanes, Published};
use sluice_engine::snapshot::Snapshot;
use sluice_engine::source::{self, Attachment, Source, SourceOutput, Streams};
use sluice_engine::upstream::{self, Input};
use sluice_fleet::rollout::plan::{BUCKETS, Gated};
use sluice_fleet::rollout::{Admission, RolloutState, Seat};
use sluice_wire::response::{self, Beside};
use sluice_xds::{
    DeltaRequest, DeltaResponse, Request, ResourceName, Response, SotwRequest, Status, TypeUrl, Variant,
    Version,
};

use super::received;
use bytes::Bytes;

/// The `control_plane` identifier in every response of the server.
const IDENTIFIER: &str = "control-plane-0";

/// The router of a relay with one server, for clients of one class.
struct OneSource;

impl Router for OneSource {
    fn group_of(&self, _: &TypeUrl, name: Option<&ResourceName>) -> NameGroup {
        name.map_or(Authority::None, Authority::of_style).shared()
    }

    fn source(&mut self, _: &TypeUrl, _: NameGroup, _: u16) -> Result<SourceId, Status> {
        Ok(SourceId(0))
    }

    fn legacy_wildcard(&self, _: &TypeUrl) -> Result<bool, Status> {
        Ok(true)
    }
}

pub struct Relay {
    source: Source,
    /// The source's own content.
    live: Arc<Snapshot>,
    published: Published,
    /// The content that all sessions are served.
    snapshot: Arc<Snapshot>,
    /// The lanes of a plan that enforces.
    lanes: Option<Lanes>,
    /// The copies that sources share, as in a relay with several node classes.
    commons: Option<Rc<dyn Commons>>,
    pub clients: Vec<Client>,
    now: Time,
    nonces: u64,
}

pub struct Client {
    session: Session,
    /// Nonce and version of the newest response, as the client repeats both.
    nonce: String,
    version: String,
}

/// An encoded answer, as far as sessions can share the bytes: without the nonces.
pub struct Encoded {
    bodies: Vec<(Bytes, Version)>,
    composition: Composition,
}

impl Relay {
    pub fn new() -> Relay {
        let streams = Streams::new(upstream::UpstreamSettings::default());
        let attachment = Attachment::Streams(Box::new(streams));
        Relay {
            source: Source::new(0, source::SourceSettings::default(), attachment),
            live: Arc::default(),
            published: Published::default(),
            snapshot: Arc::default(),
            lanes: None,
            commons: None,
            clients: Vec::new(),
            now: Time::from_micros(1_000_000),
            nonces: 0,
        }
    }

    /// A relay that shares equal maps with others.
    pub fn with_commons(commons: Rc<dyn Commons>) -> Relay {
        Relay { commons: Some(commons), ..Relay::new() }
    }

    pub fn join(&mut self, variant: Variant) {
        self.join_with(variant, Grant::everything());
    }

    pub fn join_with(&mut self, variant: Variant, grant: Arc<Grant>) {
        let nonce_prefix = self.clients.len() as u32;
        let session = Session::new(variant, Limits::default(), HashSeed(7), nonce_prefix, grant);
        self.clients.push(Client { session, nonce: String::new(), version: String::new() });
    }

    /// A request that subscribes to these names, or to the wildcard if there are none. Nonce and version of
    /// the last response make the request an ACK too.
    pub fn request(&self, client: usize, type_url: &TypeUrl, names: &[ResourceName]) -> Request {
        let Client { session, nonce, version } = &self.clients[client];
        match session.variant() {
            Variant::Sotw => Request::Sotw(SotwRequest {
                version_info: version.clone(),
                resource_names: names.to_vec(),
                type_url: type_url.as_str().to_owned(),
                response_nonce: nonce.clone(),
                ..SotwRequest::default()
            }),
            Variant::Delta => Request::Delta(DeltaRequest {
                subscribe: names.to_vec(),
                type_url: type_url.as_str().to_owned(),
                response_nonce: nonce.clone(),
                ..DeltaRequest::default()
            }),
        }
    }

    /// Handles a client's request, and the resulting demand of the source.
    pub fn take(&mut self, client: usize, request: &Request) -> RequestOutcome {
        let session = &mut self.clients[client].session;
        let mut taken = session.request(request, &mut OneSource, self.now).expect("a request that is served");
        for watch in std::mem::take(&mut taken.watches) {
            let session = SessionId(client as u64);
            match watch {
                Watch::Watch { type_url, collection, previous, .. } => {
                    self.source.watch_after(session, &type_url, &collection, previous.as_deref(), self.now);
                }
                Watch::Unwatch { type_url, key, .. } => {
                    self.source.unwatch(session, &type_url, key, self.now);
                }
            }
        }
        taken
    }

    /// Performs the actions of the source; returns the sessions to wake.
    pub fn settle(&mut self) -> Vec<SessionId> {
        let mut woken = Vec::new();
        let mut opens = Vec::new();
        while let Some(output) = self.source.poll_output() {
            match output {
                SourceOutput::Wake(sessions) => woken.extend(sessions),
                SourceOutput::Upstream(stream, upstream::Output::Open { .. }) => opens.push(stream),
                SourceOutput::Upstream(stream, upstream::Output::RoundTrip) => {
                    self.source.handle_upstream(stream, Input::Returned, self.now);
                }
                SourceOutput::Upstream(stream, upstream::Output::Flush) => {
                    self.source.handle_upstream(stream, Input::Flushed, self.now);
                }
                _ => {}
            }
        }
        if let Some(commons) = &self.commons {
            self.source.share(&**commons);
        }
        if let Some(live) = self.source.take_snapshot() {
            let before = std::mem::replace(&mut self.live, live);
            let published = match &mut self.lanes {
                Some(lanes) => lanes.follow(&before, &self.live, self.now),
                None => Published::without_lanes(self.live.clone()),
            };
            if published.reads_the_same(&self.published) {
                woken.clear();
            }
            self.serve(published, &Admission::NOBODY);
        }
        for stream in opens {
            self.source.handle_upstream(stream, Input::Opened, self.now);
            woken.extend(self.settle());
        }
        woken
    }

    /// The server's next delta response: these resources, in this revision.
    pub fn response(
        &mut self,
        type_url: &TypeUrl,
        numbers: impl Iterator<Item = usize>,
        revision: usize,
    ) -> Response {
        self.nonces += 1;
        Response::Delta(DeltaResponse {
            system_version_info: revision.to_string(),
            type_url: type_url.clone(),
            nonce: self.nonces.to_string(),
            resources: numbers.map(|number| Ok(received(type_url, number, revision))).collect(),
            removed: Vec::new(),
            errors: Vec::new(),
            control_plane: IDENTIFIER.to_owned(),
        })
    }

    /// Delivers the server's response, long enough after the previous response that no changes are gathered.
    /// Returns the sessions to wake.
    pub fn receive(&mut self, response: Response) -> Vec<SessionId> {
        self.now = self.now + Duration::from_secs(1);
        self.source.handle_upstream(0, Input::Received(response), self.now);
        self.settle()
    }

    /// Time passes, and the driver takes what the source reports.
    pub fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.source.handle_timeout(self.now);
        self.source.take_changes();
        self.settle();
    }

    /// From now on changes go by steps.
    pub fn begin_plan(&mut self) {
        let mut lanes = Lanes::new(0, Gated::Default, 10);
        lanes.follow(&self.live, &self.live, self.now);
        self.lanes = Some(lanes);
    }

    pub fn is_holding(&self) -> bool {
        self.lanes.as_ref().is_some_and(Lanes::is_holding)
    }

    /// Admits all sessions to what is held, as a push. Returns the sessions to wake.
    pub fn push(&mut self, push: u64) -> Vec<SessionId> {
        let lanes = self.lanes.as_mut().expect("a plan");
        lanes.cut(push);
        let published = lanes.published(self.now);
        let state = RolloutState::Settling;
        self.serve(published, &Admission { push, threshold: BUCKETS, step: 1, state, ..Admission::NOBODY });
        (0..self.clients.len() as u64).map(SessionId).collect()
    }

    /// Ends a push that all sessions have.
    pub fn settle_push(&mut self, push: u64) {
        if let Some(lanes) = &mut self.lanes {
            lanes.settle(push);
            lanes.rest();
            let published = lanes.published(self.now);
            self.serve(published, &Admission::NOBODY);
        }
    }

    fn serve(&mut self, published: Published, admission: &Admission) {
        let seat = Seat { bucket: 0, labelled_step: None };
        self.snapshot = published.pick(|push| admission.admits_to(push, seat, None)).clone();
        self.published = published;
    }

    /// The source's own content.
    pub fn live(&self) -> Arc<Snapshot> {
        self.live.clone()
    }

    pub fn poll(&mut self, client: usize) -> Option<(usize, Answer)> {
        let snapshot = &self.snapshot;
        self.clients[client].session.poll_answer(&|_| Some(snapshot.clone()), self.now)
    }

    /// Sends the client the next answer, if there is one. Takes bodies from `made`; the first session that
    /// needs a body adds the body there. Returns the bytes for the client's connection.
    pub fn send(&mut self, client: usize, made: &mut Vec<(AnswerKey, Encoded)>) -> usize {
        self.clients[client].session.note_news();
        let Some((index, answer)) = self.poll(client) else { return 0 };
        let key = answer.key();
        let at = made.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            made.push((key, encode(&answer)));
            made.len() - 1
        });
        let Encoded { bodies, composition } = &made[at].1;
        if bodies.is_empty() {
            return self.skip(client, index, &answer, at, made);
        }
        let (body, version) = &bodies[answer.chunk];
        let Client { session, nonce, version: text } = &mut self.clients[client];
        let number = session
            .commit(
                index,
                &answer,
                bodies.len(),
                *version,
                &composition.endpoints,
                &composition.targets,
                &composition.told_names,
                self.now,
            )
            .expect("the nonce of a message");
        *nonce = session.nonce_text(number);
        if session.variant() == Variant::Sotw {
            *text = version.to_string();
        }
        let head = response::head(nonce, None, body.len()).expect("a message that can be framed");
        head.len() + body.len()
    }

    /// An answer without news only brings the session to the newest view.
    #[cold]
    fn skip(
        &mut self,
        client: usize,
        index: usize,
        answer: &Answer,
        at: usize,
        made: &mut Vec<(AnswerKey, Encoded)>,
    ) -> usize {
        let Encoded { composition, .. } = &made[at].1;
        let (endpoints, targets, told) =
            (&composition.endpoints, &composition.targets, &composition.told_names);
        let session = &mut self.clients[client].session;
        session.commit(index, answer, 0, Version::default(), endpoints, targets, told, self.now);
        self.send(client, made)
    }
}

/// Encodes like the driver's encoder for the first session that needs an answer.
pub fn encode(answer: &Answer) -> Encoded {
    let composition = answer.compose().spelled(answer).with_plain_names(answer);
    let type_url = &answer.type_url;
    let body = |chunk: &sluice_engine::downstream::Chunk| {
        let resources = chunk.resources.iter().map(Arc::as_ref);
        let ttls = Some(&chunk.ttls).filter(|ttls| !ttls.is_empty());
        let beside = Beside { ttls, beats: &chunk.beats, errors: &chunk.errors };
        match answer.variant {
            Variant::Sotw => response::sotw_body(type_url, chunk.version, resources, beside, IDENTIFIER),
            Variant::Delta => {
                let (removed, variants) = (chunk.removed.iter(), &chunk.removed_variants);
                response::delta_body(
                    type_url,
                    chunk.version,
                    resources,
                    removed,
                    variants,
                    beside,
                    IDENTIFIER,
                )
            }
        }
    };
    let bodies = composition.chunks.iter().map(|chunk| (body(chunk), chunk.version)).collect();
    Encoded { bodies, composition }
}

impl Encoded {
    pub fn bytes(&self) -> usize {
        self.bodies.iter().map(|(body, _)| body.len()).sum()
    }
}
