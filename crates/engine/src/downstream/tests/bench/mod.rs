//! One or two sources, some clients, a clock, and rules that hold for every response.

mod changes;
pub mod fallback;
pub mod lanes;
mod notation;
mod requests;
mod responses;
mod routes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::Time;
use crate::authorization::Grant;
use crate::cache::SessionId;
use crate::collection::{CollectionKind, HashSeed};
use crate::downstream::tests::client::Held;
use crate::downstream::{
    AnswerKey, ClientFeatures, Composition, Limits, Portion, RequestOutcome, Session, Shift, SourceId, Watch,
};
use crate::snapshot::Snapshot;
use crate::source;
use crate::source::{Attachment, Files, Source, SourceOutput, Streams};
use crate::upstream;
use crate::upstream::{Cause, Changes};
use sluice_xds::{Code, Request, ResourceError, Status, StreamKind, TypeUrl, Variant};

pub use notation::{
    CDS, EDS, LDS, RDS, SDS, SRDS, VHDS, name_of, names, names_of, resource, resources, short, url,
    version_of,
};
pub use routes::Routes;

pub struct Client {
    pub session: Session,
    pub variant: Variant,
    pub routes: Routes,
    /// The routes by the configuration to which the session moves.
    pub moving_to: Option<Routes>,
    pub held: BTreeMap<TypeUrl, Held>,
    /// Changes of the session's collections on their way to the sources.
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
    /// Changes of sessions' collections wait for [`Bench::deliver`].
    pub slow_watches: bool,
    pub composed: BTreeMap<AnswerKey, String>,
    /// Resources that a client was sent again without a reason.
    pub idle: Vec<String>,
    /// How each client settled the changes of the sources.
    pub settled: changes::Settled,
    /// The number of servers in a list of all sources; 0 without a list.
    pub servers: u16,
    pub reachability_only: bool,
    pub by_type: bool,
    pub deleting: u64,
    /// The lanes of the first source.
    pub lanes: Option<lanes::LaneBench>,
}

pub type ClientId = usize;

impl Bench {
    pub fn new(attachments: Vec<Attachment>) -> Bench {
        let mut bench = Bench {
            now: Time::from_micros(1_000_000),
            snapshots: Vec::new(),
            sources: Vec::new(),
            clients: Vec::new(),
            woken: BTreeSet::new(),
            slow_watches: false,
            composed: BTreeMap::new(),
            idle: Vec::new(),
            settled: changes::Settled::default(),
            servers: 0,
            reachability_only: false,
            by_type: false,
            deleting: 0,
            lanes: None,
        };
        attachments.into_iter().for_each(|attachment| bench.add(attachment));
        bench
    }

    /// Adds a source.
    pub fn add(&mut self, attachment: Attachment) {
        let settings = source::SourceSettings { tells_reach: true, ..source::SourceSettings::default() };
        let source = Source::new(self.sources.len() as u64, settings, attachment);
        self.sources.push(source.of_server("cp-1".into(), true));
        self.snapshots.push(Arc::default());
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
        self.changes(0, message, CollectionKind::Names, list, false);
    }

    /// The control plane names members of the wildcard. `complete`: there are no more members.
    pub fn says_of_all(&mut self, message: &str, list: &str, complete: bool) {
        self.changes(0, message, CollectionKind::Wildcard, list, complete);
    }

    /// The control plane names members of globs. `settled`: the globs without further members.
    pub fn says_of_globs(&mut self, message: &str, list: &str, settled: &str) {
        let absent = list.split_whitespace().filter_map(|word| word.strip_prefix('-'));
        let changes = Changes {
            type_url: url(message),
            kind: CollectionKind::Globs,
            present: resources(message, list),
            by_alias: Vec::new(),
            unasked: Vec::new(),
            absent: absent.map(|name| (name_of(message, name), Cause::Removed)).collect(),
            refreshed: Vec::new(),
            replaces: false,
            complete: false,
            settled: names_of(message, settled),
        };
        self.sources[0].handle_changes(changes, self.now);
        self.settle();
    }

    pub fn changes(
        &mut self,
        source: usize,
        message: &str,
        kind: CollectionKind,
        list: &str,
        complete: bool,
    ) {
        let absent = list.split_whitespace().filter_map(|word| word.strip_prefix('-'));
        let present = resources(message, list);
        let aliases =
            present.iter().flat_map(|resource| resource.aliases.iter().map(move |alias| (alias, resource)));
        let by_alias = aliases.map(|(alias, resource)| (alias.clone(), resource.clone())).collect();
        let changes = Changes {
            type_url: url(message),
            kind,
            present: present.clone(),
            by_alias,
            unasked: Vec::new(),
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
    pub fn beats(&mut self, message: &str, kind: CollectionKind, list: &str) {
        let changes = Changes {
            type_url: url(message),
            kind,
            present: Vec::new(),
            by_alias: Vec::new(),
            unasked: Vec::new(),
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
        for (index, (source, snapshot)) in self.sources.iter_mut().zip(&mut self.snapshots).enumerate() {
            while let Some(output) = source.poll_output() {
                match output {
                    SourceOutput::Wake(sessions) => self.woken.extend(sessions),
                    SourceOutput::Upstream(stream, upstream::Output::RoundTrip) => {
                        source.handle_upstream(stream, upstream::Input::Returned, self.now);
                    }
                    SourceOutput::Upstream(stream, upstream::Output::Flush) => {
                        source.handle_upstream(stream, upstream::Input::Flushed, self.now);
                    }
                    _ => {}
                }
            }
            if let Some(new) = source.take_snapshot() {
                if let Some(lanes) = self.lanes.as_mut().filter(|_| index == 0) {
                    lanes.published = lanes.of.follow(snapshot, &new, self.now);
                }
                *snapshot = new;
            }
        }
        self.number_changes();
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
        self.join_with(variant, limits, Grant::everything())
    }

    pub fn join_with(&mut self, variant: Variant, limits: Limits, grant: Arc<Grant>) -> ClientId {
        let id = self.clients.len();
        let nonces = 0xab00 + u32::try_from(id).unwrap();
        self.clients.push(Client {
            session: Session::new(variant, limits, HashSeed(7), nonces, grant),
            variant,
            unsent: Vec::new(),
            routes: Routes {
                without: None,
                servers: self.servers,
                reachability_only: self.reachability_only,
                by_type: self.by_type,
                deleting: self.deleting,
                list: 0,
                order: [0, 1, 2, 3],
                old: 0,
                xdstp: self.sources.len() as u64 - 1,
                is_apart: false,
                is_unknown: false,
                legacy: true,
                last_changes: [0; 16],
                features: ClientFeatures::default(),
            },
            moving_to: None,
            held: BTreeMap::new(),
            on_the_way: VecDeque::new(),
        });
        self.number_changes();
        id
    }

    pub fn sotw(&mut self) -> ClientId {
        self.join(Variant::Sotw, Limits::default())
    }

    pub fn delta(&mut self) -> ClientId {
        self.join(Variant::Delta, Limits::default())
    }

    /// A client that is another sluice and reads marks. The transcript shows a mark as `(2: whole GLOB)`: the
    /// number of requests, and the complete collections.
    pub fn sluice(&mut self) -> ClientId {
        let client = self.delta();
        let kind = StreamKind { marks: true, ..Variant::Delta.into() };
        let nonces = 0xab00 + u32::try_from(client).unwrap();
        self.clients[client].session =
            Session::new(kind, Limits::default(), HashSeed(7), nonces, Grant::everything());
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

    pub fn request(&mut self, client: ClientId, request: Request) -> RequestOutcome {
        self.try_request(client, request).unwrap()
    }

    pub fn try_request(&mut self, client: ClientId, request: Request) -> Result<RequestOutcome, Status> {
        self.try_portion(client, request, Portion::Whole)
    }

    /// Takes a part of a request.
    pub fn try_portion(
        &mut self,
        client: ClientId,
        request: Request,
        portion: Portion,
    ) -> Result<RequestOutcome, Status> {
        let this = &mut self.clients[client];
        let mut routes = this.routes;
        let mut taken = this.session.request_portion(&request, portion, &mut routes, self.now)?;
        this.on_the_way.extend(std::mem::take(&mut taken.watches));
        if let Some(mut to) = this.moving_to {
            this.on_the_way.extend(this.session.keep_moving(&mut to, self.now).unwrap());
            if !this.session.is_moving() {
                (this.routes, this.moving_to) = (to, None);
            }
        }
        self.settled.judged(client, &taken);
        if !self.slow_watches {
            self.deliver(client, usize::MAX);
        }
        Ok(taken)
    }

    /// Tells the sources of the next `count` changes of a session's collections.
    pub fn deliver(&mut self, client: ClientId, count: usize) {
        let session = SessionId(client as u64);
        for _ in 0..count {
            let Some(watch) = self.clients[client].on_the_way.pop_front() else { break };
            match watch {
                Watch::Watch { source, type_url, collection, previous } => {
                    self.sources[source.0 as usize].watch_after(
                        session,
                        &type_url,
                        &collection,
                        previous.as_deref(),
                        self.now,
                    );
                }
                Watch::Unwatch { source, type_url, key } => {
                    self.sources[source.0 as usize].unwatch(session, &type_url, key, self.now);
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

    /// Another configuration has these routes for the client.
    pub fn reclassify(&mut self, client: ClientId, change: impl Fn(&mut Routes)) {
        let this = &mut self.clients[client];
        let mut to = this.routes;
        change(&mut to);
        let watches = this.session.reclassify(&mut to, self.now).unwrap();
        this.on_the_way.extend(watches);
        if this.session.is_moving() {
            this.moving_to = Some(to);
        } else {
            (this.routes, this.moving_to) = (to, None);
        }
        if !self.slow_watches {
            self.deliver(client, usize::MAX);
        }
    }

    /// The client's configuration knows no authority of its names from now on.
    pub fn regroup(&mut self, client: ClientId) {
        let this = &mut self.clients[client];
        this.routes.is_unknown = true;
        let watches = this.session.regroup(&mut this.routes).unwrap();
        this.on_the_way.extend(watches);
        self.deliver(client, usize::MAX);
    }

    /// Makes due moves, as the driver does before a poll.
    pub fn shift(&mut self, client: ClientId) -> Shift {
        let (snapshots, now) = (self.snapshots.clone(), self.now);
        let latest = |id: SourceId| snapshots.get(id.0 as usize).cloned();
        let this = &mut self.clients[client];
        if !this.session.look(&latest, now).is_due {
            return Shift::default();
        }
        let mut routes = this.moving_to.unwrap_or(this.routes);
        let shift = this.session.shift(&latest, &mut routes, now);
        if shift.is_settled {
            (this.routes, this.moving_to) = (routes, None);
        }
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

    pub fn check(&self, client: ClientId, message: &str, expected: &str) {
        let text =
            self.clients[client].held.get(&url(message)).map(|held| held.text(message)).unwrap_or_default();
        assert_eq!(text, expected, "what client {client} holds of {message}");
    }
}

/// Each type has streams of its own.
pub fn streams_by_type(transport: upstream::Transport) -> Attachment {
    let settings = upstream::UpstreamSettings { transport, ..upstream::UpstreamSettings::default() };
    Attachment::Streams(Box::new(Streams::new(settings)))
}

pub fn streams() -> Attachment {
    Attachment::Streams(Box::new(Streams::new(upstream::UpstreamSettings::default())))
}
