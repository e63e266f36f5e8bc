//! Models of clients: their subscriptions, and what they make of contents that they cannot stand.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use sluice_fleet::rollout::{Plan, Seat};
use sluice_xds::{Code, DeltaRequest, Node, Request, SotwRequest, Status};

use super::content::{FATAL, FLAGS, IGNORED, REJECTED, cluster_of, is_gated};
use super::plan::{ClientPlan, Kind, WavePlan};
use super::relay::Given;
use super::world::{Job, Table, World, show_table};
use crate::schedule::{MILLI, SECOND};
use crate::words::{CDS, EDS, LDS, Mask, OLD, RDS, SHORT, TYPES, bit, bits, has_endpoints, show, version};

/// The subscription of a type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Want {
    pub names: Mask,
    pub wildcard: bool,
}

impl Want {
    pub fn covers(self, name: usize) -> bool {
        self.wildcard || self.names & bit(name) != 0
    }

    pub fn is_nothing(self) -> bool {
        self == Want::default()
    }
}

pub struct Client {
    pub plan: ClientPlan,
    pub node: Arc<Node>,
    pub seat: Seat,
    pub stream: Option<u64>,
    pub has_left: bool,
    pub wants: [Want; TYPES],
    /// The contents in use.
    pub has: Table,
    /// All that was ever sent, by type, name and content.
    pub ever: BTreeSet<(usize, usize, u32)>,
    nonces: [String; TYPES],
    /// The versions in requests: those of the latest ACKs.
    versions: [String; TYPES],
    /// The versions of the latest contents that the client took. A client ACKs what it took at once, though the ACK may be on its way
    /// for long.
    taken: [String; TYPES],
    /// The contents with these versions, as the client presents them.
    taken_contents: Table,
    /// The names of which the client presented another content at its latest reconnect than it had, and was told nothing since. Nobody can
    /// know that it has another.
    pub has_claimed: [Mask; TYPES],
    /// The pushes with content in rejected responses since the client last presented what it had, with the units; 0 for responses of
    /// no push.
    refused: [BTreeSet<(u64, usize)>; TYPES],
    /// The names in these responses whose content was none of the push. Nobody restates them.
    refused_beside: [Mask; TYPES],
    /// A request for the type was sent on the present stream.
    asked: [bool; TYPES],
    /// Responses without an answer: nonce, version and verdict.
    answers: [VecDeque<Answer>; TYPES],
}

/// The answer of a client to a response.
#[derive(Clone, Debug)]
pub struct Answer {
    nonce: String,
    version: String,
    /// The words of a rejection.
    error: Option<String>,
}

impl Client {
    /// The relay forgets what the client may have of pushes that it rejected.
    pub fn be_forgotten(&mut self) {
        let list = self.plan.list;
        for refused in self.refused.iter_mut().filter(|refused| !refused.is_empty()) {
            refused.insert((0, list));
        }
    }

    pub fn new(plan: &WavePlan, client: usize, rollout: &Plan) -> Client {
        let node = Arc::new(plan.node(client));
        Client {
            plan: plan.clients[client].clone(),
            seat: rollout.seat(&node),
            node,
            stream: None,
            has_left: false,
            wants: Default::default(),
            has: Table::default(),
            ever: BTreeSet::new(),
            nonces: Default::default(),
            versions: Default::default(),
            taken: Default::default(),
            taken_contents: Table::default(),
            has_claimed: Default::default(),
            refused: Default::default(),
            refused_beside: Default::default(),
            asked: Default::default(),
            answers: Default::default(),
        }
    }

    /// The contents that the client claims to have. Its versions are those of the last responses that it took whole, though it has the
    /// rest of rejected ones.
    fn presented(&self) -> Table {
        let mut presented = self.has;
        for ty in (0..TYPES).filter(|ty| self.plan.delta || matches!(*ty, CDS | LDS)) {
            presented[ty] = self.taken_contents[ty];
        }
        presented
    }

    /// A delta client has no versions of names that it does not ask for. The version of a complete set stands for the whole set.
    fn forget(&mut self, ty: usize) {
        for name in (0..OLD).filter(|name| self.plan.delta && !self.wants[ty].covers(*name)) {
            self.taken_contents[ty][name] = 0;
        }
    }

    /// The names of a type of which the client claims another content than it has.
    fn claims(&self, ty: usize) -> Mask {
        let presented = self.presented()[ty];
        let differing = (0..OLD).filter(|name| presented[*name] != self.has[ty][*name]);
        differing.fold(0, |mask, name| mask | bit(name))
    }

    /// What this content does to the client.
    fn fate(&self, content: u32) -> u32 {
        let stands = |flag: u32, is_weak: bool| if is_weak { 0 } else { flag };
        let stood = stands(REJECTED, self.plan.rejects)
            | stands(IGNORED, self.plan.falls_silent)
            | stands(FATAL, self.plan.crashes);
        content & FLAGS & !stood
    }
}

impl World {
    // === streams ===

    pub fn open_stream(&mut self, client: usize) {
        if self.clients[client].stream.is_some() || self.clients[client].has_left {
            return;
        }
        let id = self.new_stream(client);
        self.note(30, id, client as u64);
        let this = &mut self.clients[client];
        this.stream = Some(id);
        this.versions.clone_from(&this.taken);
        (this.answers, this.nonces, this.asked) = Default::default();
        let (wants, has) = (this.wants, this.has);
        self.tell(|| format!("client {client} opens stream {id} with {}", show_all(&has)));
        let this = &self.clients[client];
        let presented = this.presented();
        // The relay knows what the client may have of a push whose rejection it has heard of (WAV-10), at the server of the push.
        let list = this.plan.list;
        let is_of_it =
            |(push, unit): &(u64, usize)| self.pilot.has_rejected(&this.node.id, *push) && *unit == list;
        let is_known =
            |ty: usize| is_gated(ty) && !this.refused[ty].is_empty() && this.refused[ty].iter().all(is_of_it);
        let has_claimed = std::array::from_fn(|ty| {
            let restated = if is_known(ty) { !this.refused_beside[ty] } else { 0 };
            this.claims(ty) & !restated
        });
        self.clients[client].has_claimed = has_claimed;
        self.reference_presents(id, &presented);
        for ty in [CDS, LDS, EDS, RDS] {
            if wants[ty].is_nothing() {
                self.clients[client].has[ty] = [0; OLD];
                self.clients[client].forget(ty);
            } else {
                self.ask(client, ty, wants[ty]);
            }
        }
        if wants.iter().all(|want| want.is_nothing()) {
            self.begin(client);
        }
    }

    /// The first requests of a client.
    fn begin(&mut self, client: usize) {
        let all = Want { names: 0, wildcard: true };
        let some = |mask: u64| Want { names: mask as Mask & 0b11_1111, wildcard: false };
        match self.clients[client].plan.kind {
            Kind::Envoy => {
                self.ask(client, CDS, all);
                self.ask(client, LDS, all);
            }
            Kind::Grpc => {
                let name = self.rng.below(3);
                self.ask(client, LDS, some(1 << name));
            }
            Kind::Free => self.wander(client),
        }
    }

    /// A client that asks for anything asks for something else.
    pub fn wander(&mut self, client: usize) {
        if self.clients[client].plan.kind != Kind::Free || self.clients[client].stream.is_none() {
            return;
        }
        let ty = [CDS, EDS, LDS, RDS][self.rng.below(4) as usize];
        let names = (self.rng.next() & self.rng.next()) as Mask & 0b11_1111;
        let may_be_whole = matches!(ty, CDS | LDS);
        let wildcard = may_be_whole && self.rng.percent(30);
        let names = if wildcard { 0 } else { names.max(1) };
        self.ask(client, ty, Want { names, wildcard });
    }

    /// A client without a stream comes back.
    fn return_within(&mut self, client: usize, within: u64) {
        let delay = 1 + self.rng.below(if self.is_healed { 100 * MILLI } else { within });
        self.after(delay, Job::Reconnect(client));
    }

    /// The stream ends. `is_lost`: without a word.
    pub fn disconnect(&mut self, client: usize, is_lost: bool) {
        let Some(id) = self.clients[client].stream.take() else { return };
        self.tell(|| format!("client {client} leaves stream {id}{}", if is_lost { ", lost" } else { "" }));
        self.end_stream(id, is_lost);
        self.return_within(client, 3 * SECOND);
    }

    pub fn crash(&mut self, client: usize, id: u64) {
        if self.clients[client].stream != Some(id) {
            return;
        }
        self.tell(|| format!("client {client} crashes"));
        self.disconnect(client, true);
        self.lose_all(client);
    }

    fn lose_all(&mut self, client: usize) {
        self.clients[client].has = Table::default();
        self.clients[client].taken = Default::default();
        self.clients[client].taken_contents = Table::default();
        if self.clients[client].plan.kind != Kind::Free {
            self.clients[client].wants = Default::default();
        }
    }

    /// Another client with an id and a seat of its own takes the place of one that has no stream.
    pub fn replace(&mut self, client: usize) {
        let node = self.plan.clients.iter().map(|of| of.node).max().unwrap_or_default() + 1;
        self.plan.clients[client].node = node;
        self.lose_all(client);
        let new = Client::new(&self.plan, client, &self.pilot.plan);
        let this = &mut self.clients[client];
        (this.plan.node, this.node, this.seat) = (node, new.node, new.seat);
        (this.refused, this.refused_beside, this.has_claimed) = Default::default();
        let id = this.node.id.clone();
        self.tell(|| format!("client {client} is {id} from now on"));
    }

    // === requests ===

    fn send(&mut self, client: usize, request: Request) {
        let Some(id) = self.clients[client].stream else { return };
        self.tell(|| format!("client {client} > {}", crate::upstream::show_request(&request)));
        let latency = 1 + self.rng.below(2 * MILLI);
        let now = self.now;
        let Some(Some(stream)) = self.streams.get_mut(id as usize) else { return };
        stream.up = stream.up.max(now + latency);
        let at = stream.up;
        self.at(at, Job::Request(id, Box::new(request)));
    }

    pub fn ask(&mut self, client: usize, ty: usize, want: Want) {
        let this = &mut self.clients[client];
        let is_first = !std::mem::replace(&mut this.asked[ty], true);
        let before = if is_first { Want::default() } else { this.wants[ty] };
        this.wants[ty] = want;
        for name in (0..OLD).filter(|name| !want.covers(*name)) {
            this.has[ty][name] = 0;
        }
        this.forget(ty);
        let request = match this.plan.delta {
            false => self.sotw(client, ty, None, is_first),
            true => self.delta(client, ty, (before, want), is_first),
        };
        self.send(client, request);
    }

    fn sotw(&self, client: usize, ty: usize, answer: Option<&Answer>, is_first: bool) -> Request {
        let this = &self.clients[client];
        let mut resource_names = self.words.list(ty, this.wants[ty].names);
        if this.wants[ty].wildcard {
            resource_names.push(self.words.star.clone());
        }
        let nonce = answer.map_or(&this.nonces[ty], |answer| &answer.nonce);
        let error = answer.and_then(|answer| answer.error.as_ref());
        Request::Sotw(SotwRequest {
            version_info: this.versions[ty].clone(),
            node: None,
            resource_names,
            type_url: self.words.types[ty].as_str().to_owned(),
            response_nonce: if is_first { String::new() } else { nonce.clone() },
            error_detail: error.map(|words| Status::new(Code::Internal, words.as_str())),
        })
    }

    fn delta(&self, client: usize, ty: usize, (old, new): (Want, Want), is_first: bool) -> Request {
        let this = &self.clients[client];
        let mut subscribe = self.words.list(ty, new.names & !old.names);
        let mut unsubscribe = self.words.list(ty, old.names & !new.names);
        match (old.wildcard, new.wildcard) {
            (false, true) => subscribe.push(self.words.star.clone()),
            (true, false) => unsubscribe.push(self.words.star.clone()),
            _ => {}
        }
        let presented = (0..OLD).filter(|name| is_first && this.taken_contents[ty][*name] != 0);
        let versions = presented.map(|name| {
            let version = version(ty, name, this.plan.list, this.taken_contents[ty][name]);
            (self.words.names[ty][name].clone(), version.to_string())
        });
        Request::Delta(DeltaRequest {
            node: None,
            type_url: self.words.types[ty].as_str().to_owned(),
            subscribe,
            unsubscribe,
            initial_resource_versions: versions.collect(),
            response_nonce: String::new(),
            error_detail: None,
        })
    }

    // === responses ===

    pub fn reach_client(&mut self, id: u64, given: &Given) {
        let Some(Some(stream)) = self.streams.get(id as usize) else { return };
        let (client, ty) = (stream.client, given.ty);
        let open = stream.of.open[ty].iter().find(|open| open.nonce == given.nonce);
        let push = open.map_or((0, stream.unit), |open| (open.push.unwrap_or(0), open.unit));
        let of_push = open.iter().flat_map(|open| &open.of_push);
        let of_push = of_push.fold(0, |mask: Mask, (name, _)| mask | bit(*name));
        self.tell(|| format!("client {client} < {}", given.show()));
        let worst = |this: &Client, flag: u32| {
            given.put.iter().find(|(_, content)| this.fate(*content) & flag != 0).map(|(name, _)| *name)
        };
        let this = &mut self.clients[client];
        if worst(this, FATAL).is_some() && !self.is_healed {
            let delay = 1 + self.rng.below(5 * MILLI);
            return self.after(delay, Job::Crash(client, id));
        }
        if worst(this, IGNORED).is_some() && !self.is_healed {
            return self.tell(|| format!("client {client} says nothing more about {}", SHORT[ty]));
        }
        this.nonces[ty].clone_from(&given.nonce);
        let told = given.put.iter().fold(given.removed, |mask, (name, _)| mask | bit(*name));
        this.has_claimed[ty] &= if given.is_full { 0 } else { !told };
        let rejected = worst(this, REJECTED);
        let error = rejected.map(|name| match this.plan.names_suspects {
            true => format!("{} is bad", show(bit(name))),
            false => "no".to_owned(),
        });
        let answer = Answer { nonce: given.nonce.clone(), version: given.version.clone(), error };
        this.answers[ty].push_back(answer);
        let within = if self.is_healed { MILLI } else { this.plan.answers_within };
        // The rest of a rejected response is in use.
        let kept = rejected.map(|name| (name, this.has[ty][name]));
        take(&mut this.has[ty], given, this.wants[ty]);
        match kept {
            Some((name, content)) => {
                this.has[ty][name] = content;
                this.refused[ty].insert(push);
                this.refused_beside[ty] |= told & !of_push;
            }
            None => {
                this.taken[ty].clone_from(&given.version);
                match this.plan.delta {
                    true => take(&mut this.taken_contents[ty], given, this.wants[ty]),
                    false => this.taken_contents[ty] = this.has[ty],
                }
            }
        }
        if this.claims(ty) == 0 {
            this.refused[ty].clear();
            this.refused_beside[ty] = 0;
        }
        let delay = self.rng.below(within);
        self.after(delay, Job::Answer(client, id, ty));
        self.follow(client, ty);
    }

    /// ACKs or NACKs the oldest response of a type.
    pub fn answer(&mut self, client: usize, id: u64, ty: usize) {
        let this = &mut self.clients[client];
        if this.stream != Some(id) {
            return;
        }
        let Some(answer) = this.answers[ty].pop_front() else { return };
        if answer.error.is_none() {
            this.versions[ty].clone_from(&answer.version);
        }
        let request = match this.plan.delta {
            false => self.sotw(client, ty, Some(&answer), false),
            true => {
                let want = this.wants[ty];
                let Request::Delta(request) = self.delta(client, ty, (want, want), false) else { return };
                let error_detail = answer.error.map(|words| Status::new(Code::Internal, words.as_str()));
                Request::Delta(DeltaRequest { response_nonce: answer.nonce, error_detail, ..request })
            }
        };
        self.send(client, request);
    }

    /// Envoy and gRPC subscribe to the names in a resource.
    fn follow(&mut self, client: usize, ty: usize) {
        let this = &self.clients[client];
        let there = |ty: usize| (0..OLD).filter(move |name| this.has[ty][*name] != 0);
        let mask = |names: &mut dyn Iterator<Item = usize>| names.fold(0, |mask, name| mask | bit(name));
        let next = match (this.plan.kind, ty) {
            (Kind::Envoy | Kind::Grpc, CDS) => {
                Some((EDS, mask(&mut there(CDS).filter(|name| has_endpoints(this.has[CDS][*name])))))
            }
            (Kind::Envoy | Kind::Grpc, LDS) => Some((RDS, mask(&mut there(LDS)))),
            (Kind::Grpc, RDS) => {
                Some((CDS, mask(&mut there(RDS).map(|name| cluster_of(this.has[RDS][name])))))
            }
            _ => None,
        };
        if let Some((ty, names)) = next
            && self.clients[client].wants[ty].names != names
            && (names != 0 || self.clients[client].plan.delta)
        {
            self.ask(client, ty, Want { names, wildcard: false });
        }
    }
}

/// The contents after a response.
pub fn take(has: &mut [u32; OLD], given: &Given, want: Want) {
    if given.is_full {
        *has = [0; OLD];
    }
    for (name, content) in given.put.iter().filter(|(name, _)| want.covers(*name)) {
        has[*name] = *content;
    }
    bits(given.removed).filter(|name| *name < OLD).for_each(|name| has[name] = 0);
}

fn show_all(has: &Table) -> String {
    let rows = [CDS, EDS, LDS, RDS].map(|ty| format!("{} {}", SHORT[ty], show_table(&has[ty])));
    rows.join(", ")
}
