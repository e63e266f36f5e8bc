//! Models of clients: their subscriptions, their answers, and their misbehaviour.

use std::collections::{BTreeMap, VecDeque};

use sluice_xds::{Code, DeltaRequest, Request, SotwRequest, Status, Variant};

use super::held::{Held, Sent};
use super::relay::show_sent;
use super::rng::Rng;
use super::routes::cluster_of;
use super::schedule::{ClientPlan, Kind, MILLI, SECOND};
use super::upstream::show_request;
use super::words::{
    ALL, ALL_OLD, CDS, EDS, LDS, Mask, NAMES, RDS, SHORT, TYPES, at_home, bit, bits, count, has_endpoints,
    nth, of_other_class, version,
};
use super::world::{Job, World};

pub struct Client {
    pub plan: ClientPlan,
    pub types: [Held; TYPES],
    pub stream: Option<u64>,
    /// Responses without an answer yet, by type: nonce and version.
    answers: [VecDeque<(String, String)>; TYPES],
    /// The client reads nothing.
    pub is_blocked: bool,
    /// The client answers nothing.
    pub is_mute: bool,
    pub is_tame: bool,
    /// By source and type, the moment of the reference in the newest response (I2).
    pub explained: BTreeMap<usize, [u32; TYPES]>,
    /// The client stays disconnected.
    pub has_left: bool,
}

impl Client {
    pub fn new(plan: ClientPlan) -> Client {
        Client {
            plan,
            types: Default::default(),
            stream: None,
            answers: Default::default(),
            is_blocked: false,
            is_mute: false,
            is_tame: false,
            explained: BTreeMap::new(),
            has_left: false,
        }
    }

    pub fn variant(&self) -> Variant {
        if self.plan.delta { Variant::Delta } else { Variant::Sotw }
    }

    pub fn reads_within(&self) -> u64 {
        if self.is_tame { MILLI } else { self.plan.read_within }
    }
}

/// A client's subscription of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    pub names: Mask,
    pub wildcard: bool,
}

impl World {
    // === streams ===

    pub fn open_stream(&mut self, client: usize) {
        if self.clients[client].stream.is_some() || self.clients[client].has_left {
            return;
        }
        self.turn_client(client, self.configured[client]);
        let id = self.new_stream(client);
        self.note(30, id, client as u64);
        self.tell(|| format!("client {client} opens stream {id}"));
        let this = &mut self.clients[client];
        this.stream = Some(id);
        this.answers = Default::default();
        let before: Vec<Held> = this.types.to_vec();
        for (ty, old) in before.into_iter().enumerate() {
            let want = Want { names: old.wanted, wildcard: old.wildcard };
            let is_sure = old.wildcard && old.wanted == 0 && old.stale == 0;
            let former = if old.version.is_empty() { old.former_version } else { old.version.clone() };
            // gRPC and Envoy continue with the version that they have.
            let version = match (is_sure, old.wanted) {
                (true, _) => old.version,
                (false, 0) => String::new(),
                (false, _) => former.clone(),
            };
            // A client drops resources that it no longer subscribes to.
            self.clients[client].types[ty] = Held::of_resources(old.resources, former);
            if let Some(Some(stream)) = self.streams.get_mut(id as usize) {
                stream.mirror[ty].resources = self.clients[client].types[ty].resources;
            }
            if want.names != 0 || want.wildcard {
                self.ask(client, ty, want, &version);
            } else {
                self.clients[client].types[ty].resources = [0; NAMES];
            }
        }
        self.begin(client);
    }

    /// The first requests of a client without any.
    fn begin(&mut self, client: usize) {
        let nothing = Want { names: 0, wildcard: false };
        let has_none = (0..TYPES).all(|ty| self.want_of(client, ty) == nothing);
        if !has_none {
            return;
        }
        match self.clients[client].plan.kind {
            Kind::Envoy => {
                let all = Want { names: 0, wildcard: true };
                self.ask(client, CDS, all, "");
                self.ask(client, LDS, all, "");
            }
            Kind::Grpc => {
                let name = nth(self.plan.names, self.rng.below(count(self.plan.names)));
                self.ask(client, LDS, Want { names: bit(name), wildcard: false }, "");
            }
            Kind::Free | Kind::Hostile => {
                let (ty, want) = (self.rng.below(TYPES as u64) as usize, self.random_want());
                self.ask(client, ty, want, "");
            }
        }
    }

    pub fn want_of(&self, client: usize, ty: usize) -> Want {
        let held = &self.clients[client].types[ty];
        Want { names: held.wanted, wildcard: held.wildcard }
    }

    pub fn random_want(&mut self) -> Want {
        let names = (self.rng.next() as Mask) & (self.rng.next() as Mask) & self.plan.names;
        Want { names, wildcard: self.rng.percent(20) }
    }

    /// A client loses its stream through no fault of its own.
    pub fn lose_stream(&mut self, client: usize) {
        self.clients[client].stream = None;
        let within = if self.is_healed { 100 * MILLI } else { 3 * SECOND };
        let delay = self.rng.below(within);
        self.after(delay, Job::Reconnect(client));
    }

    pub fn disconnect(&mut self, client: usize) {
        if let Some(id) = self.clients[client].stream {
            self.tell(|| format!("client {client} loses stream {id}"));
            self.end_stream(id);
            self.lose_stream(client);
        }
    }

    /// Changes the node of a client without a stream, and so its class. The client keeps its resources.
    pub fn change_class(&mut self, client: usize) {
        let class = 1 - self.configured[client];
        self.disconnect(client);
        self.tell(|| format!("client {client} is of class {class} from now on"));
        self.configured[client] = class;
        self.turn_client(client, class);
    }

    // === requests ===

    fn send_request(&mut self, client: usize, request: Request) {
        let Some(id) = self.clients[client].stream else { return };
        self.tell(|| format!("client {client} > {}", show_request(&request)));
        let latency = 1 + self.rng.below(2 * MILLI);
        let now = self.now;
        let Some(Some(stream)) = self.streams.get_mut(id as usize) else { return };
        stream.up = stream.up.max(now + latency);
        let at = stream.up;
        self.at(at, Job::Request(id, Box::new(request)));
    }

    /// Changes the subscription of a type. `version`: the version that a reconnecting client presents.
    pub fn ask(&mut self, client: usize, ty: usize, want: Want, version: &str) {
        let request = match self.clients[client].variant() {
            Variant::Sotw => self.sotw_list(client, ty, want, version),
            Variant::Delta => self.delta_change(client, ty, want),
        };
        self.send_request(client, request);
    }

    fn sotw_list(&mut self, client: usize, ty: usize, want: Want, version: &str) -> Request {
        let this = &mut self.clients[client];
        let held = &mut this.types[ty];
        // An empty list means the wildcard until a non-empty list (SUB-9).
        let by_omission = want.names == 0 && !this.plan.star && (!held.asked || held.is_implicit());
        let star = want.wildcard && !by_omission;
        let nonce = held.nonce.clone();
        held.want_sotw(want.names, star);
        let version = if version.is_empty() { held.version.clone() } else { version.to_owned() };
        self.sotw_request(ty, want.names, star, nonce, version, None)
    }

    fn sotw_request(
        &self,
        ty: usize,
        names: Mask,
        star: bool,
        response_nonce: String,
        version_info: String,
        error_detail: Option<Status>,
    ) -> Request {
        let mut resource_names = self.words.list(ty, names);
        if star {
            resource_names.push(self.words.star.clone());
        }
        let type_url = self.words.types[ty].as_str().to_owned();
        Request::Sotw(SotwRequest {
            version_info,
            node: None,
            resource_names,
            type_url,
            response_nonce,
            error_detail,
        })
    }

    fn delta_change(&mut self, client: usize, ty: usize, want: Want) -> Request {
        let this = &mut self.clients[client];
        let held = &mut this.types[ty];
        let is_first = !held.asked;
        let (add, remove) = (want.names & !held.wanted, held.wanted & !want.names);
        let by_omission = is_first && want.wildcard && add == 0 && !this.plan.star;
        let star = match (held.wildcard, want.wildcard) {
            (false, true) if !by_omission => Some(true),
            (true, false) => Some(false),
            _ => None,
        };
        let covered = if want.wildcard { ALL } else { want.names };
        let presented = if is_first { held.mask() & covered } else { 0 };
        held.want_delta(add, remove, star, presented);
        let class = self.told_class(self.clients[client].plan.class);
        let versions = bits(presented).map(|name| {
            let (home, content) = at_home(class, self.clients[client].types[ty].resources[name]);
            (self.words.names[ty][name].clone(), version(ty, name, home, content).to_string())
        });
        let versions = versions.collect();
        let mut subscribe = self.words.list(ty, add);
        let mut unsubscribe = self.words.list(ty, remove);
        match star {
            Some(true) => subscribe.push(self.words.star.clone()),
            Some(false) => unsubscribe.push(self.words.star.clone()),
            None => {}
        }
        self.delta_request(ty, subscribe, unsubscribe, versions, String::new(), None)
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of a request")]
    fn delta_request(
        &self,
        ty: usize,
        subscribe: Vec<sluice_xds::ResourceName>,
        unsubscribe: Vec<sluice_xds::ResourceName>,
        initial_resource_versions: Vec<(sluice_xds::ResourceName, String)>,
        response_nonce: String,
        error_detail: Option<Status>,
    ) -> Request {
        let type_url = self.words.types[ty].as_str().to_owned();
        Request::Delta(DeltaRequest {
            node: None,
            type_url,
            subscribe,
            unsubscribe,
            initial_resource_versions,
            response_nonce,
            error_detail,
        })
    }

    // === responses ===

    pub fn reach_client(&mut self, id: u64, sent: &Sent) {
        let Some(Some(stream)) = self.streams.get(id as usize) else { return };
        let client = stream.client;
        self.tell(|| format!("client {client} < {} nonce {:?}", show_sent(&SHORT, sent), sent.nonce));
        let mut sent = sent.clone();
        if !self.plan.twins && sent.class != self.clients[client].plan.class {
            sent.put.iter_mut().for_each(|(_, content)| *content = of_other_class(*content));
        }
        let (this, sent) = (&mut self.clients[client], &sent);
        this.types[sent.ty].take(sent);
        this.answers[sent.ty].push_back((sent.nonce.clone(), sent.version.clone()));
        if !this.is_mute {
            let within = if this.is_tame { MILLI } else { this.plan.answers_within };
            let delay = self.rng.below(within.max(1));
            self.after(delay, Job::Answer(client, id, sent.ty));
        }
        self.follow(client, sent.ty);
    }

    /// Envoy and gRPC subscribe to the names in a resource.
    fn follow(&mut self, client: usize, ty: usize) {
        let held = &self.clients[client].types[ty];
        let there = held.mask();
        let clusters =
            || bits(there).filter(|name| has_endpoints(held.resources[*name])).fold(0, |m, n| m | bit(n));
        let next = match (self.clients[client].plan.kind, ty) {
            (Kind::Envoy | Kind::Grpc, CDS) => Some((EDS, clusters())),
            (Kind::Envoy | Kind::Grpc, LDS) => Some((RDS, there)),
            (Kind::Grpc, RDS) if self.plan.routes => {
                let named = |name: usize| bit(cluster_of(name, held.resources[name], self.plan.names));
                Some((CDS, bits(there).fold(0, |mask, name| mask | named(name))))
            }
            (Kind::Grpc, RDS) => Some((CDS, (there | (there & ALL_OLD) << 1 & ALL_OLD) & self.plan.names)),
            _ => None,
        };
        if let Some((ty, names)) = next
            && self.clients[client].types[ty].wanted != names
        {
            self.ask(client, ty, Want { names, wildcard: false }, "");
        }
    }

    /// ACKs or NACKs the oldest response of a type.
    pub fn answer(&mut self, client: usize, id: u64, ty: usize) {
        if self.clients[client].stream != Some(id) {
            return;
        }
        let this = &mut self.clients[client];
        let Some((nonce, version)) = this.answers[ty].pop_front() else { return };
        let rejects = !this.is_tame && self.rng.percent(this.plan.rejects);
        let error = rejects.then(|| Status::new(Code::Internal, "no"));
        self.answer_with(client, ty, nonce, version, error);
    }

    fn answer_with(
        &mut self,
        client: usize,
        ty: usize,
        nonce: String,
        version: String,
        error: Option<Status>,
    ) {
        let this = &self.clients[client];
        let request = match this.variant() {
            Variant::Sotw => {
                let held = &this.types[ty];
                let star = held.wildcard && !held.is_implicit();
                self.sotw_request(ty, held.wanted, star, nonce, version, error)
            }
            Variant::Delta => self.delta_request(ty, Vec::new(), Vec::new(), Vec::new(), nonce, error),
        };
        self.send_request(client, request);
    }

    /// Sends a request with a meaningless nonce.
    pub fn send_nonsense(&mut self, client: usize, rng: &mut Rng) {
        let ty = rng.below(TYPES as u64) as usize;
        let Some(id) = self.clients[client].stream.filter(|_| self.clients[client].types[ty].asked) else {
            return;
        };
        let nonce = match rng.below(4) {
            0 => "stale".to_owned(),
            1 => "0000ab00-1".to_owned(),
            2 => format!("{:08x}-{}", 0xab00 + id, rng.below(20)),
            _ => self.clients[client].types[ty].nonce.clone(),
        };
        let error = rng.percent(50).then(|| Status::new(Code::Internal, "no"));
        self.answer_with(client, ty, nonce, "nonsense".to_owned(), error);
    }

    /// Answers all unanswered responses.
    pub fn answer_all(&mut self, client: usize) {
        let Some(id) = self.clients[client].stream else { return };
        for ty in 0..TYPES {
            for _ in 0..self.clients[client].answers[ty].len() {
                self.after(MILLI, Job::Answer(client, id, ty));
            }
        }
    }

    /// Makes the client read again.
    pub fn unblock(&mut self, client: usize) {
        self.clients[client].is_blocked = false;
        let Some(id) = self.clients[client].stream else { return };
        if let Some(Some(stream)) = self.streams.get_mut(id as usize)
            && let Some(sent) = stream.unread.take()
        {
            self.after(1, Job::RequestOutcome(id, sent));
        }
    }
}
