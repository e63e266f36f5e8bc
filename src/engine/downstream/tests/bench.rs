//! One or two sources, some clients, a clock, and rules that hold for every response.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::client::{Held, content_of};
use crate::engine::Time;
use crate::engine::cache::SessionId;
use crate::engine::downstream::{
    Answer, AnswerKey, Composition, Dialect, Limits, List, Router, Session, Shift, SourceId, Taken, Verdict,
    Watch,
};
use crate::engine::fallback;
use crate::engine::interest::{HashSeed, Interest};
use crate::engine::realm::{Realm, Space};
use crate::engine::snapshot::Snapshot;
use crate::engine::source::{self, Attachment, Files, Output, Source, Streams};
use crate::engine::upstream::{self, Cause, Changes, Scope};
use crate::xds::{
    Any, Code, DeltaRequest, Request, Resource, ResourceError, ResourceName, SetMark, SotwRequest, Status,
    StreamKind, TypeUrl, Variant, Version,
};

pub const CDS: &str = "envoy.config.cluster.v3.Cluster";
pub const EDS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";
pub const LDS: &str = "envoy.config.listener.v3.Listener";
pub const RDS: &str = "envoy.config.route.v3.RouteConfiguration";
pub const SRDS: &str = "envoy.config.route.v3.ScopedRouteConfiguration";
pub const VHDS: &str = "envoy.config.route.v3.VirtualHost";
pub const SDS: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";

pub fn url(message: &str) -> TypeUrl {
    TypeUrl::of_message(message)
}

/// `xdstp:a` is the name `a` of the `xdstp:` scheme and of this type (NAM-5).
pub fn name_of(message: &str, name: &str) -> ResourceName {
    match name.strip_prefix("xdstp:").filter(|rest| !rest.starts_with("//")) {
        Some(rest) => ResourceName::from(format!("xdstp://-/{message}/{rest}")),
        None => ResourceName::new(if name == "''" { "" } else { name }),
    }
}

/// A name in the notation of the tests.
pub fn short(message: &str, name: &ResourceName) -> String {
    name.as_str().replace(&format!("xdstp://-/{message}/"), "xdstp:")
}

pub fn names(list: &str) -> Vec<ResourceName> {
    names_of("", list)
}

pub fn names_of(message: &str, list: &str) -> Vec<ResourceName> {
    list.split_whitespace().map(|name| name_of(message, name)).collect()
}

/// `a|x|y` has the name `a` and the aliases `x` and `y`. `content~1000` is 1000 bytes larger. `content@30` has a TTL
/// of 30 seconds. A cluster with a content that begins with `e` is an EDS cluster.
pub fn resource(message: &str, name: &str, content: &str) -> Arc<Resource> {
    let (content, ttl) = content.split_once('@').map_or((content, None), |(text, ttl)| (text, Some(ttl)));
    let (text, padding) = content.split_once('~').unwrap_or((content, "0"));
    let mut value = text.as_bytes().to_vec();
    let padding: usize = padding.parse().unwrap();
    if padding > 0 {
        value.resize(value.len() + padding, b'~');
    }
    let mut hasher = std::hash::DefaultHasher::new();
    let mut names = name.split('|').map(|name| name_of(message, name));
    let name = names.next().unwrap();
    let aliases: Box<[ResourceName]> = names.collect();
    (message, name.as_str(), text).hash(&mut hasher);
    Arc::new(Resource {
        name: name.clone(),
        version: Version(u128::from(hasher.finish()) << 32 | 1),
        body: Any { type_url: url(message).shared(), value: Bytes::from(value) },
        aliases,
        ttl: ttl.map(|seconds| Duration::from_secs(seconds.parse().unwrap())),
        do_not_cache: false,
        metadata: None,
        endpoints: (message == CDS && content.starts_with('e')).then(|| name_of(EDS, &short(CDS, &name))),
        constraints: None,
    })
}

pub fn version_of(message: &str, list: &str) -> Version {
    resources(message, list).iter().fold(Version::default(), |sum, resource| sum.plus(resource.version))
}

/// `a=1 b=2`
pub fn resources(message: &str, list: &str) -> Vec<Arc<Resource>> {
    let words = list.split_whitespace().filter_map(|word| word.rsplit_once('='));
    words.map(|(name, content)| resource(message, name, content)).collect()
}

/// Sends a stream's subscriptions to the sources with these indices.
#[derive(Clone, Copy, Debug, Default)]
pub struct Routes {
    /// The number of servers in the list for all names; the sources are the sources of its servers. With 0 there is
    /// no list, and `old` and `xdstp` decide.
    pub servers: u16,
    pub reachability_only: bool,
    /// Each type has streams of its own.
    pub by_type: bool,
    /// The server without an available source.
    pub without: Option<u16>,
    pub deleting: u64,
    pub old: u64,
    pub xdstp: u64,
    pub legacy: bool,
    pub dialect: Dialect,
}

impl Router for Routes {
    fn realm_of(&self, _: &TypeUrl, name: Option<&ResourceName>) -> Realm {
        name.map_or(Space::Old, Space::of_style).shared()
    }

    fn fallback(&self, list: u16) -> Option<List> {
        let on_reachability_only = self.reachability_only;
        let settings = fallback::Settings { on_reachability_only, ..fallback::Settings::default() };
        let Routes { servers, by_type, deleting, .. } = *self;
        (servers > 1).then_some(List { number: list, servers, by_type, settings, deleting })
    }

    fn source(&mut self, _: &TypeUrl, realm: Realm, server: u16) -> Result<SourceId, Status> {
        if self.without == Some(server) {
            return Err(Status::new(Code::ResourceExhausted, "too many sources"));
        }
        if self.servers > 0 {
            return Ok(SourceId(u64::from(server)));
        }
        Ok(SourceId(if realm.space == Space::Old { self.old } else { self.xdstp }))
    }

    fn legacy_wildcard(&self, _: &TypeUrl) -> Result<bool, Status> {
        Ok(self.legacy)
    }

    fn dialect(&self, _: &TypeUrl) -> Dialect {
        self.dialect
    }
}

pub struct Client {
    pub session: Session,
    pub variant: Variant,
    pub routes: Routes,
    pub held: BTreeMap<TypeUrl, Held>,
    /// Changes of interest that the sources have not been told.
    pub on_the_way: VecDeque<Watch>,
    /// The compositions of answers with unsent messages.
    pub unsent: Vec<(AnswerKey, Composition)>,
}

pub struct Bench {
    pub now: Time,
    pub sources: Vec<Source>,
    pub snapshots: Vec<Arc<Snapshot>>,
    pub clients: Vec<Client>,
    pub woken: BTreeSet<SessionId>,
    /// Changes of interest wait for [`Bench::deliver`].
    pub slow_watches: bool,
    pub composed: BTreeMap<AnswerKey, String>,
    /// Resources that a client was sent again without a reason.
    pub idle: Vec<String>,
    /// The number of servers in a list of all sources; 0 without a list.
    pub servers: u16,
    pub reachability_only: bool,
    pub by_type: bool,
    pub deleting: u64,
}

pub type ClientId = usize;

impl Bench {
    pub fn new(attachments: Vec<Attachment>) -> Bench {
        let make = |(index, attachment)| {
            let settings = source::Settings { tells_reach: true, ..source::Settings::default() };
            let source = Source::new(index as u64, settings, attachment);
            source.of_server("cp-1".into(), true)
        };
        let sources: Vec<_> = attachments.into_iter().enumerate().map(make).collect();
        Bench {
            now: Time::from_micros(1_000_000),
            snapshots: sources.iter().map(|_| Arc::default()).collect(),
            sources,
            clients: Vec::new(),
            woken: BTreeSet::new(),
            slow_watches: false,
            composed: BTreeMap::new(),
            idle: Vec::new(),
            servers: 0,
            reachability_only: false,
            by_type: false,
            deleting: 0,
        }
    }

    /// A source with this state.
    pub fn files(state: &[(&str, &str)]) -> Bench {
        let mut bench = Bench::new(vec![Attachment::Files(Files::default())]);
        bench.state(0, state);
        bench
    }

    /// A source without any answer.
    pub fn cold() -> Bench {
        Bench::new(vec![streams()])
    }

    pub fn state(&mut self, source: usize, state: &[(&str, &str)]) {
        let state = state.iter().map(|(message, list)| (url(message), resources(message, list))).collect();
        self.sources[source].handle_files(state, self.now);
        self.settle();
    }

    /// The control plane answers for names: `a=1 -b`.
    pub fn says(&mut self, message: &str, list: &str) {
        self.changes(0, message, Scope::Names, list, false);
    }

    /// The control plane names members of the wildcard. `complete`: there are no more members.
    pub fn says_of_all(&mut self, message: &str, list: &str, complete: bool) {
        self.changes(0, message, Scope::Wildcard, list, complete);
    }

    /// The control plane names members of globs. `settled`: the globs without further members.
    pub fn says_of_globs(&mut self, message: &str, list: &str, settled: &str) {
        let absent = list.split_whitespace().filter_map(|word| word.strip_prefix('-'));
        let changes = Changes {
            type_url: url(message),
            scope: Scope::Globs,
            present: resources(message, list),
            by_alias: Vec::new(),
            absent: absent.map(|name| (name_of(message, name), Cause::Removed)).collect(),
            refreshed: Vec::new(),
            replaces: false,
            complete: false,
            settled: names_of(message, settled),
        };
        self.sources[0].handle_changes(changes, self.now);
        self.settle();
    }

    pub fn changes(&mut self, source: usize, message: &str, scope: Scope, list: &str, complete: bool) {
        let absent = list.split_whitespace().filter_map(|word| word.strip_prefix('-'));
        let changes = Changes {
            type_url: url(message),
            scope,
            present: resources(message, list),
            by_alias: Vec::new(),
            absent: absent.map(|name| (name_of(message, name), Cause::Removed)).collect(),
            refreshed: Vec::new(),
            replaces: false,
            complete,
            settled: Vec::new(),
        };
        self.sources[source].handle_changes(changes, self.now);
        self.settle();
    }

    /// The control plane refreshes names.
    pub fn beats(&mut self, message: &str, scope: Scope, list: &str) {
        let changes = Changes {
            type_url: url(message),
            scope,
            present: Vec::new(),
            by_alias: Vec::new(),
            absent: Vec::new(),
            refreshed: names_of(message, list).into_iter().map(|name| (name, None)).collect(),
            replaces: false,
            complete: false,
            settled: Vec::new(),
        };
        self.sources[0].handle_changes(changes, self.now);
        self.settle();
    }

    /// The control plane cannot supply a name.
    pub fn fails(&mut self, message: &str, name: &str, code: Code) {
        let error = ResourceError { name: name_of(message, name), status: Status::new(code, "why") };
        let event = upstream::Event::ResourceError { type_url: url(message), error };
        self.sources[0].handle_event(&event, self.now);
        self.settle();
    }

    /// Processes the outputs of the sources.
    pub fn settle(&mut self) {
        for (source, snapshot) in self.sources.iter_mut().zip(&mut self.snapshots) {
            while let Some(output) = source.poll_output() {
                match output {
                    Output::Wake(sessions) => self.woken.extend(sessions),
                    Output::Upstream(stream, upstream::Output::RoundTrip) => {
                        source.handle_upstream(stream, upstream::Input::Returned, self.now);
                    }
                    _ => {}
                }
            }
            if let Some(new) = source.take_snapshot() {
                *snapshot = new;
            }
        }
    }

    pub fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        for source in &mut self.sources {
            while let Some(due) = source.poll_timeout().filter(|due| *due <= end) {
                self.now = self.now.max(due);
                source.handle_timeout(self.now);
            }
        }
        self.now = end;
        self.settle();
    }

    // === clients ===

    pub fn join(&mut self, variant: Variant, limits: Limits) -> ClientId {
        let id = self.clients.len();
        self.clients.push(Client {
            session: Session::new(variant, limits, HashSeed(7), 0xab00 + u32::try_from(id).unwrap()),
            variant,
            unsent: Vec::new(),
            routes: Routes {
                without: None,
                servers: self.servers,
                reachability_only: self.reachability_only,
                by_type: self.by_type,
                deleting: self.deleting,
                old: 0,
                xdstp: self.sources.len() as u64 - 1,
                legacy: true,
                dialect: Dialect::default(),
            },
            held: BTreeMap::new(),
            on_the_way: VecDeque::new(),
        });
        id
    }

    pub fn sotw(&mut self) -> ClientId {
        self.join(Variant::Sotw, Limits::default())
    }

    pub fn delta(&mut self) -> ClientId {
        self.join(Variant::Delta, Limits::default())
    }

    /// A client that is another sluice and reads marks. The transcript shows a mark as `(2: whole GLOB)`: the number
    /// of requests, and the complete collections.
    pub fn sluice(&mut self) -> ClientId {
        let client = self.delta();
        let kind = StreamKind { marks: true, ..Variant::Delta.into() };
        let nonces = 0xab00 + u32::try_from(client).unwrap();
        self.clients[client].session = Session::new(kind, Limits::default(), HashSeed(7), nonces);
        client
    }

    pub fn held(&mut self, client: ClientId, message: &str) -> &mut Held {
        self.clients[client].held.entry(url(message)).or_default()
    }

    /// The stream ends.
    pub fn leave(&mut self, client: ClientId) {
        self.deliver(client, usize::MAX);
        for source in &mut self.sources {
            source.forget(SessionId(client as u64), self.now);
        }
        self.settle();
    }

    pub fn request(&mut self, client: ClientId, request: Request) -> Taken {
        self.try_request(client, request).unwrap()
    }

    pub fn try_request(&mut self, client: ClientId, request: Request) -> Result<Taken, Status> {
        let this = &mut self.clients[client];
        let mut routes = this.routes;
        let mut taken = this.session.request(&request, &mut routes, self.now)?;
        this.on_the_way.extend(std::mem::take(&mut taken.watches));
        if !self.slow_watches {
            self.deliver(client, usize::MAX);
        }
        Ok(taken)
    }

    /// Tells the sources of the next changes of interest.
    pub fn deliver(&mut self, client: ClientId, count: usize) {
        let session = SessionId(client as u64);
        for _ in 0..count {
            let Some(watch) = self.clients[client].on_the_way.pop_front() else { break };
            match watch {
                Watch::Watch { source, type_url, interest } => {
                    self.sources[source.0 as usize].watch(session, &type_url, &interest, self.now);
                }
                Watch::Unwatch { source, type_url, collection } => {
                    self.sources[source.0 as usize].unwatch(session, &type_url, collection, self.now);
                }
            }
        }
        self.settle();
    }

    pub fn reroute(&mut self, client: ClientId, old: u64) {
        let this = &mut self.clients[client];
        this.routes.old = old;
        let watches = this.session.reroute(&mut this.routes.clone()).unwrap();
        this.on_the_way.extend(watches);
        self.deliver(client, usize::MAX);
    }

    /// Makes due moves, as the driver does before a poll.
    pub fn shift(&mut self, client: ClientId) -> Shift {
        let (snapshots, now) = (self.snapshots.clone(), self.now);
        let latest = |id: SourceId| snapshots.get(id.0 as usize).cloned();
        let this = &mut self.clients[client];
        if this.session.look(&latest, now).next.is_none() {
            return Shift::default();
        }
        let mut routes = this.routes;
        let shift = this.session.shift(&latest, &mut routes, now);
        this.on_the_way.extend(shift.watches.iter().cloned());
        self.deliver(client, usize::MAX);
        for source in 0..self.sources.len() {
            if !self.clients[client].session.uses(SourceId(source as u64)) {
                self.sources[source].dismiss(SessionId(client as u64), now);
            }
        }
        self.settle();
        shift
    }

    // === SotW requests ===

    /// Sends a list of names like a well-behaved client: with its newest nonce and version, so the request is an ACK,
    /// too.
    pub fn ask(&mut self, client: ClientId, message: &str, list: &str) -> Taken {
        let (nonce, version) = {
            let held = self.held(client, message);
            (held.nonce.clone(), held.version.clone())
        };
        self.ask_with(client, message, list, &nonce, &version, None)
    }

    pub fn ask_with(
        &mut self,
        client: ClientId,
        message: &str,
        list: &str,
        nonce: &str,
        version: &str,
        error: Option<Status>,
    ) -> Taken {
        let routes = self.clients[client].routes;
        let request = SotwRequest {
            version_info: version.to_owned(),
            node: None,
            resource_names: names_of(message, list),
            type_url: url(message).as_str().to_owned(),
            response_nonce: nonce.to_owned(),
            error_detail: error,
        };
        let is_new = !self.clients[client].session.subscriptions().iter().any(|s| s.type_url == url(message));
        let held = self.held(client, message);
        held.unanswered.retain(|sent| sent != nonce);
        list.clone_into(&mut held.list);
        if is_new && !version.is_empty() {
            held.returning = request.resource_names.iter().cloned().collect();
        }
        held.want_sotw(&request.resource_names, routes.legacy);
        self.request(client, Request::Sotw(request))
    }

    // === delta requests ===

    /// `+a -b`: a spontaneous change, without a nonce.
    pub fn change(&mut self, client: ClientId, message: &str, list: &str) -> Taken {
        self.change_with(client, message, list, "", &[], None)
    }

    pub fn change_with(
        &mut self,
        client: ClientId,
        message: &str,
        list: &str,
        nonce: &str,
        presented: &[(&str, Version)],
        error: Option<Status>,
    ) -> Taken {
        let part = |sign: char| -> Vec<ResourceName> {
            list.split_whitespace()
                .filter_map(|word| word.strip_prefix(sign))
                .map(|name| name_of(message, name))
                .collect()
        };
        let request = DeltaRequest {
            node: None,
            type_url: url(message).as_str().to_owned(),
            subscribe: part('+'),
            unsubscribe: part('-'),
            initial_resource_versions: presented
                .iter()
                .map(|(name, version)| (name_of(message, name), version.to_string()))
                .collect(),
            response_nonce: nonce.to_owned(),
            error_detail: error,
        };
        let routes = self.clients[client].routes;
        let is_new = !self.clients[client].session.subscriptions().iter().any(|s| s.type_url == url(message));
        let held = self.held(client, message);
        held.unanswered.retain(|sent| sent != nonce);
        held.want_delta(&request.subscribe, &request.unsubscribe, is_new && list.is_empty() && routes.legacy);
        for (name, _) in presented.iter().filter(|_| is_new) {
            held.due.remove(&name_of(message, name));
        }
        self.request(client, Request::Delta(request))
    }

    // === answers of clients ===

    /// ACKs the latest response of a type.
    pub fn ack(&mut self, client: ClientId, message: &str) -> Verdict {
        self.answer(client, message, None).verdict
    }

    pub fn nack(&mut self, client: ClientId, message: &str) -> Verdict {
        self.answer(client, message, Some(Status::new(Code::Internal, ""))).verdict
    }

    fn answer(&mut self, client: ClientId, message: &str, error: Option<Status>) -> Taken {
        let variant = self.clients[client].variant;
        let held = self.held(client, message);
        let (nonce, version) = (held.nonce.clone(), held.version.clone());
        let list = held.list.clone();
        match variant {
            Variant::Sotw => self.ask_with(client, message, &list, &nonce, &version, error),
            Variant::Delta => self.change_with(client, message, "", &nonce, &[], error),
        }
    }

    // === responses ===

    /// The next response, as `Cluster a=1 b=2 -c`; empty if there is none. The response is not ACKed.
    pub fn poll(&mut self, client: ClientId) -> String {
        loop {
            let snapshots = self.snapshots.clone();
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
                &composition.told,
                now,
            );
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

    /// Asserts that equal keys mean equal compositions. As in the driver, the messages after the first are not
    /// composed again.
    fn compose(&mut self, client: ClientId, answer: &Answer) -> Composition {
        let key = answer.key();
        let unsent = &mut self.clients[client].unsent;
        let kept = unsent.iter().position(|(kept, _)| *kept == key).map(|at| unsent.swap_remove(at).1);
        let kept = kept.filter(|_| answer.chunk > 0);
        assert!(kept.is_some() || answer.chunk == 0, "the rest of an answer is kept");
        let composition = kept.unwrap_or_else(|| answer.spelled(answer.compose()));
        if answer.chunk == 0 {
            self.note(answer, &composition);
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
    fn judge(&mut self, client: ClientId, answer: &Answer, chunk: &crate::engine::downstream::Chunk) {
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
                let settled = match &part.interest {
                    Interest::Wildcard => part.view.is_complete() || !part.held.has(name),
                    Interest::Globs(_) => part.view.knows_gone(name) || !part.interest.covers(name),
                    Interest::Names(names) => part.view.knows_absent(name) || !names.contains(name),
                };
                assert!(settled, "RLY-2: {name} is not known to be absent");
            }
        }
        assert!(chunk.removed.is_empty() || answer.variant == Variant::Delta);
    }

    pub fn check(&self, client: ClientId, message: &str, expected: &str) {
        let text =
            self.clients[client].held.get(&url(message)).map(|held| held.text(message)).unwrap_or_default();
        assert_eq!(text, expected, "what client {client} holds of {message}");
    }
}

/// RLY-5: a complete set contains every resource that may exist and that the client was sent or may have from before.
fn judge_missing(held: &Held, answer: &Answer, chunk: &crate::engine::downstream::Chunk) {
    let is_told = |name: &ResourceName| {
        chunk.resources.iter().any(|resource| resource.name == *name || resource.aliases.contains(name))
            || chunk.errors.iter().any(|(other, _)| other == name)
    };
    let missing = held.resources.keys().chain(&held.returning).filter(|name| !is_told(name));
    let missing: Vec<_> = missing.collect();
    for part in &answer.parts {
        if matches!(part.interest, Interest::Wildcard) {
            assert!(part.view.is_complete(), "RLY-5: a wildcard is not known as a whole");
            continue;
        }
        for name in missing.iter().filter(|name| part.interest.covers(name)) {
            let is_known = part.view.has(name) || part.view.knows_gone(name) || part.view.knows_glob(name);
            assert!(is_known, "RLY-5: {name} is missing, and may exist");
        }
    }
}

/// Each type has streams of its own.
pub fn streams_by_type(transport: upstream::Transport) -> Attachment {
    let settings = upstream::Settings { transport, ..upstream::Settings::default() };
    Attachment::Streams(Box::new(Streams::new(settings)))
}

pub fn streams() -> Attachment {
    Attachment::Streams(Box::new(Streams::new(upstream::Settings::default())))
}
