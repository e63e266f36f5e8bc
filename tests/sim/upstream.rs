//! The connections between the relay and its servers: connections that fail, delay, become silent and end.

use std::collections::VecDeque;

use sluice_engine::upstream::{Event, Input, Output};
use sluice_xds::{Code, Request, Status, Variant};

use super::control_plane::Reachable;
use super::hearing::{Ending, Heard};
use super::judge::kind_of;
use super::message::Item;
use super::message::Message;
use super::schedule::{MILLI, SECOND, Wire};
use super::words::{SHORT, bits, names_of_list, show, show_content};
use super::world::{Invariant, Job, World};

/// The time until a silent connection is detected: TCP's keepalive (FU3).
const SILENCE: u64 = 20 * SECOND;
/// The timeout of a probe (RLY-29).
const PROBE: u64 = 10 * SECOND;
const CONNECT_TIMEOUT: u64 = 3 * SECOND;
const CONNECT_BACKOFF_MAX: u64 = 30 * SECOND;

/// One upstream stream, from the request to open it to its end.
#[derive(Debug)]
pub struct Link {
    pub slot: usize,
    pub index: usize,
    pub server: usize,
    pub variant: Variant,
    pub is_open: bool,
    /// No message arrives any more, on either side, without a notice.
    pub is_silent: bool,
    /// Failed attempts to connect.
    attempts: u32,
    /// The arrival of the last message: on one stream no message overtakes another.
    up: u64,
    pub down: u64,
    /// The arrival of the first bytes of the last message.
    begins: u64,
    /// A response that the relay has to answer: its type, its nonce, and whether a NACK is due.
    expected: Option<(usize, String, bool)>,
    /// A flush is scheduled.
    flushing: bool,
    /// Messages that the server has not handed to its transport yet.
    paused: VecDeque<Message>,
    /// The only type of the stream.
    pub ty: Option<usize>,
    /// The stream is a poll.
    pub is_poll: bool,
}

impl Link {
    fn ending(&self, status: &Status) -> Ending {
        match status.code {
            Code::Unimplemented if self.variant == Variant::Delta => Ending::RefusesDelta,
            Code::Unimplemented if self.ty.is_some() => Ending::RefusesType,
            _ if self.is_poll => Ending::PollFails,
            Code::Ok => Ending::InOrder,
            _ => Ending::Fails,
        }
    }
}

pub fn unavailable(text: &str) -> Status {
    Status::new(Code::Unavailable, text)
}

impl World {
    pub fn latency(&mut self, server: usize) -> u64 {
        let most = if self.is_healed { MILLI } else { self.plan.servers[server].latency };
        1 + self.rng.below(most)
    }

    // === what a source says ===

    pub fn upstream_output(&mut self, slot: usize, index: usize, output: Output) {
        match output {
            Output::Open { variant, .. } => self.open_link(slot, index, variant),
            Output::Close => self.drop_link(slot, index),
            // No class of these worlds shows the node of a member.
            Output::OpenNext { .. } | Output::TakeNext => {
                self.fail(Invariant::UpstreamEconomy, || {
                    format!("slot {slot} opens a second stream {index}")
                });
            }
            Output::Send { request, .. } => self.send(slot, index, request),
            Output::Probe => {
                let Some(link) = self.link_of(slot, index) else { return };
                let is_silent = self.links[&link].is_silent;
                self.note(1, link, u64::from(is_silent));
                let latency = self.latency(self.links[&link].server);
                self.after(if is_silent { PROBE } else { latency }, Job::Probed(link));
            }
            // Requests of these worlds are short.
            Output::Flush => self.input(slot, index, Input::Flushed),
            Output::RoundTrip => self.round_trip(slot, index),
            Output::Changes(_) => {}
            Output::Event(event) => self.upstream_event(slot, index, &event),
        }
    }

    fn upstream_event(&mut self, slot: usize, index: usize, event: &Event) {
        // An ACK without names cannot be written for an old server.
        if let Event::Ignored { .. } = event
            && self.plan.legacy_wildcard
            && let Some(link) = self.link_of(slot, index).and_then(|link| self.links.get_mut(&link))
        {
            link.expected = None;
        }
        if let Event::Disconnected { retry_in, answered, .. } = event {
            self.note(2, slot as u64, retry_in.as_micros() as u64);
            self.judge_retry(slot, index, *answered, *retry_in);
        }
    }

    pub fn link_of(&self, slot: usize, index: usize) -> Option<u64> {
        self.slots[slot].links.get(index).copied().flatten()
    }

    fn open_link(&mut self, slot: usize, index: usize, variant: Variant) {
        if self.link_of(slot, index).is_some() {
            self.fail(Invariant::UpstreamEconomy, || format!("slot {slot} opens stream {index} twice"));
        }
        self.link_numbers += 1;
        let (id, server) = (self.link_numbers, self.slots[slot].server);
        let links = &mut self.slots[slot].links;
        if links.len() <= index {
            links.resize(index + 1, None);
        }
        links[index] = Some(id);
        let ty = self.type_of_stream(slot, index);
        let is_same_type =
            |other: &usize| self.link_of(slot, *other).is_some_and(|id| self.links[&id].ty == ty);
        let count = (0..index).filter(is_same_type).count();
        self.slots[slot].hearing(index).want();
        if count > 1 {
            self.fail(Invariant::UpstreamEconomy, || format!("slot {slot} has more than two streams"));
        }
        let link = Link {
            slot,
            index,
            server,
            variant,
            is_open: false,
            is_silent: false,
            attempts: 0,
            up: 0,
            down: 0,
            begins: 0,
            expected: None,
            flushing: false,
            paused: VecDeque::new(),
            ty,
            is_poll: self.plan.wire(server) == Wire::Rest,
        };
        // A poll begins before there is a connection.
        let latency = if link.is_poll { 1 } else { self.latency(server) };
        self.links.insert(id, link);
        self.note(3, id, slot as u64);
        self.after(latency, Job::Connect(id));
    }

    /// The relay drops a stream: the server learns of the drop later.
    fn drop_link(&mut self, slot: usize, index: usize) {
        let Some(id) = self.slots[slot].links.get_mut(index).and_then(Option::take) else { return };
        self.slots[slot].reference.stream_ended(index);
        let now = self.now;
        self.slots[slot].hearing(index).leave(now);
        let Some(link) = self.links.remove(&id) else { return };
        self.note(4, id, 0);
        self.tell(|| format!("slot {slot} drops stream {index}"));
        self.after(MILLI, Job::ServerCloses(link.server, id));
    }

    fn send(&mut self, slot: usize, index: usize, request: Request) {
        let Some(id) = self.link_of(slot, index) else {
            self.fail(Invariant::UpstreamEconomy, || "a request without a stream".to_owned());
            return;
        };
        self.tell(|| format!("slot {slot}.{index} > {}", show_request(&request)));
        self.judge_written(slot, index, &request);
        let latency = self.latency(self.links[&id].server);
        let now = self.now;
        let Some(link) = self.links.get_mut(&id) else { return };
        if !link.is_open {
            self.fail(Invariant::UpstreamEconomy, || "a request before the stream is open".to_owned());
            return;
        }
        if link.is_poll {
            return self.poll_server(id, request);
        }
        judge_answer(link, &request).unwrap_or_else(|text| self.fail(Invariant::Nonces, || text));
        let Some(link) = self.links.get_mut(&id) else { return };
        link.up = link.up.max(now + latency);
        let at = link.up;
        if !link.is_silent {
            self.at(at, Job::ToServer(id, Box::new(request)));
        }
    }

    // === connecting ===

    pub fn connect(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let (slot, index, server, variant) = (link.slot, link.index, link.server, link.variant);
        let is_poll = link.is_poll;
        match self.servers[server].reachable {
            _ if is_poll => self.begin_poll(id),
            Reachable::Yes => {
                link.is_open = true;
                let class = self.slots[slot].class;
                self.servers[server].open(id, class, variant);
                self.slots[slot].reference.stream_opened(index, variant);
                let now = self.now;
                self.slots[slot].hearing(index).open(now);
                self.tell(|| format!("slot {slot}.{index} is open, {variant:?}"));
                if variant == Variant::Delta && !self.servers[server].delta {
                    let status = Status::new(Code::Unimplemented, "delta is not served");
                    self.after(2 * MILLI, Job::End(id, status));
                } else if self.links[&id].ty.is_some_and(|ty| self.servers[server].lacks_service(ty)) {
                    let status = Status::new(Code::Unimplemented, "the type is not served");
                    self.after(2 * MILLI, Job::EndedByServer(id, status));
                }
                self.input(slot, index, Input::Opened);
            }
            other => {
                link.attempts += 1;
                let backoff = (SECOND << link.attempts.min(6)).min(CONNECT_BACKOFF_MAX);
                let timeout = if other == Reachable::Silent { CONNECT_TIMEOUT } else { 0 };
                self.after(timeout + backoff, Job::Connect(id));
                self.tell(|| format!("slot {slot}.{index} cannot connect"));
                let now = self.now;
                self.slots[slot].hearing(index).fail(now);
                self.input(slot, index, Input::ConnectFailed { status: unavailable("refused") });
            }
        }
    }

    /// Passes an event on a stream to its source.
    pub fn input(&mut self, slot: usize, index: usize, input: Input) {
        let (time, now) = (self.time(), self.now);
        self.slots[slot].note_connection(&input, now);
        if let Some(source) = &mut self.slots[slot].source {
            source.handle_upstream(index, input, time);
        }
        self.drain(slot);
    }

    // === ending ===

    /// The stream ends with its connection.
    pub fn end_link(&mut self, id: u64, status: Status) {
        self.finish_link(id, status, |status, jitter| Input::Closed { status, jitter });
    }

    /// The server ends the stream, and the connection stays.
    pub fn end_by_server(&mut self, id: u64, status: Status) {
        self.finish_link(id, status, |status, jitter| Input::Ended { status, jitter });
    }

    fn finish_link(&mut self, id: u64, status: Status, input: fn(Status, f64) -> Input) {
        let Some(link) = self.links.remove(&id) else { return };
        let (slot, index) = (link.slot, link.index);
        self.servers[link.server].close(id);
        self.slots[slot].links[index] = None;
        self.slots[slot].reference.end_poll(index);
        self.slots[slot].reference.stream_ended(index);
        self.note(5, id, 0);
        self.tell(|| format!("slot {slot}.{index} ends: {status}"));
        let now = self.now;
        let ending = link.ending(&status);
        self.slots[slot].hearing(index).end(ending, now);
        let jitter = self.rng.unit();
        self.input(slot, index, input(status, jitter));
    }

    pub fn dismiss(&mut self, id: u64) {
        let Some(link) = self.links.get(&id).filter(|link| link.is_open && !link.is_poll) else { return };
        let (slot, index) = (link.slot, link.index);
        self.tell(|| format!("slot {slot}.{index} is dismissed"));
        self.after(5 * MILLI, Job::End(id, unavailable("maximum age")));
        self.slots[slot].hearing(index).dismiss();
        self.input(slot, index, Input::GoingAway);
    }

    pub fn probed(&mut self, id: u64) {
        let Some(link) = self.links.get(&id) else { return };
        if link.is_silent {
            return self.end_link(id, unavailable("no answer to a PING"));
        }
        let (slot, index) = (link.slot, link.index);
        let now = self.now;
        self.slots[slot].reference.alive(index, now);
        self.hear_silence(slot);
        self.tell(|| format!("slot {slot}.{index} is alive"));
        self.input(slot, index, Input::Alive);
    }

    /// Messages that the server sends before it sees the round trip arrive before the answer.
    fn round_trip(&mut self, slot: usize, index: usize) {
        let Some(id) = self.link_of(slot, index) else { return };
        let latency = 2 * self.latency(self.links[&id].server);
        let now = self.now;
        self.slots[slot].reference.round_began(index, now);
        let Some(link) = self.links.get_mut(&id).filter(|link| !link.is_silent) else { return };
        // The rest of a begun message may follow it.
        let at = link.begins.max(now + latency);
        link.down = link.down.max(at);
        self.at(at, Job::Returned(id));
    }

    pub fn returned(&mut self, id: u64) {
        let Some(link) = self.links.get(&id).filter(|link| !link.is_silent) else { return };
        let (slot, index) = (link.slot, link.index);
        self.slots[slot].reference.round_ended(index, self.scheduler.now);
        self.slots[slot].reference.hear_silence(self.scheduler.now);
        self.tell(|| format!("slot {slot}.{index} made a round trip"));
        self.input(slot, index, Input::Returned);
    }

    /// The connection becomes silent: messages in flight are lost, and only the keepalive detects the loss.
    pub fn fall_silent(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id).filter(|link| link.is_open && !link.is_silent) else {
            return;
        };
        link.is_silent = true;
        let (slot, index) = (link.slot, link.index);
        self.tell(|| format!("slot {slot}.{index} falls silent"));
        self.after(SILENCE, Job::Silence(id));
    }

    pub fn silence(&mut self, id: u64) {
        if self.links.get(&id).is_some_and(|link| link.is_silent) {
            self.end_link(id, unavailable("keepalive timed out"));
        }
    }

    // === the server's side ===

    pub fn reach_server(&mut self, id: u64, request: &Request) {
        let Some(link) = self.links.get(&id).filter(|link| !link.is_silent) else { return };
        let server = link.server;
        self.servers[server].request(&self.words, id, request);
        self.flush_soon(id);
    }

    /// Schedules the server's messages on a stream.
    pub fn flush_soon(&mut self, id: u64) {
        let Some(link) = self.links.get(&id).filter(|link| link.is_open && !link.flushing) else { return };
        let latency = self.latency(link.server);
        if let Some(link) = self.links.get_mut(&id) {
            link.flushing = true;
        }
        self.after(latency, Job::Flush(id));
    }

    pub fn flush(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.flushing = false;
        let server = link.server;
        if link.is_poll {
            return self.answer_poll(id, server);
        }
        let mut messages = self.servers[server].flush(id);
        if self.plan.parts {
            let (server, rng) = (&mut self.servers[server], &mut self.rng);
            messages = messages.into_iter().flat_map(|message| server.split(id, message, rng)).collect();
        }
        self.deliver(id, server, messages);
    }

    pub fn deliver(&mut self, id: u64, server: usize, mut messages: Vec<Message>) {
        if self.plan.pauses
            && let Some(link) = self.links.get_mut(&id).filter(|link| !link.is_poll)
        {
            let is_pausing = !link.paused.is_empty();
            let now = if is_pausing { 0 } else { messages.len().min(1) };
            link.paused.extend(messages.drain(now..));
            if !is_pausing && !link.paused.is_empty() {
                self.pause(id);
            }
        }
        self.hand_over(id, server, messages);
    }

    /// Schedules the next message of a server that pauses.
    fn pause(&mut self, id: u64) {
        let most = if self.is_healed { MILLI } else { [20 * MILLI, 2 * SECOND][self.rng.below(2) as usize] };
        let pause = 1 + self.rng.below(most);
        self.after(pause, Job::GoOn(id));
    }

    pub fn go_on(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let server = link.server;
        let Some(message) = link.paused.pop_front() else { return };
        if !link.paused.is_empty() {
            self.pause(id);
        }
        self.hand_over(id, server, vec![message]);
    }

    fn hand_over(&mut self, id: u64, server: usize, messages: Vec<Message>) {
        for mut message in messages {
            let wrong = self.servers[server].wrong;
            if wrong > 0 && self.rng.percent(wrong) {
                let names = names_of_list(server / 2) & self.plan.names;
                let how = self.servers[server].spoil(&mut message, names, &mut self.rng);
                self.tell(|| format!("server {server} spoils its next message: {how}"));
            }
            if self.servers[server].failing.is_void && !message.items.is_empty() {
                message.items.push(message.items[0].clone());
            }
            let latency = self.latency(server);
            let is_poll = self.links.get(&id).is_some_and(|link| link.is_poll);
            let rest = if is_poll { 0 } else { self.takes_for_rest() };
            let now = self.now;
            let Some(link) = self.links.get_mut(&id).filter(|link| !link.is_silent) else { return };
            link.begins = link.down.max(now + latency);
            link.down = link.begins + rest;
            let (begins, at) = (link.begins, link.down);
            let (slot, index) = (link.slot, link.index);
            if message.is_of_first {
                self.slots[slot].reference.promise(index, message.ty);
            }
            if rest > 0 {
                self.at(begins, Job::Begun(id));
            }
            self.at(at, Job::ToRelay(id, Box::new(message)));
        }
    }

    /// The time between the first and the last bytes of a message.
    fn takes_for_rest(&mut self) -> u64 {
        if !self.plan.parts || self.is_healed || !self.rng.percent(40) {
            return 0;
        }
        let most = [MILLI, 100 * MILLI, 2 * SECOND, 15 * SECOND][self.rng.below(4) as usize];
        1 + self.rng.below(most)
    }

    pub fn begun(&mut self, id: u64) {
        let Some(link) = self.links.get(&id).filter(|link| !link.is_silent) else { return };
        let (slot, index) = (link.slot, link.index);
        self.slots[slot].reference.begun(index, self.scheduler.now);
        self.tell(|| format!("slot {slot}.{index} begins to receive a message"));
        self.note(7, id, 0);
        self.input(slot, index, Input::Receiving);
    }

    // === what arrives at the relay ===

    /// To be called when the relay has the answer.
    pub fn hear_answer(&mut self, slot: usize, index: usize) {
        let now = self.now;
        self.slots[slot].hearing(index).answer(now);
        self.heard(slot);
    }

    pub fn reach_relay(&mut self, id: u64, message: &Message) {
        let Some(link) = self.links.get(&id).filter(|link| !link.is_silent) else { return };
        let (slot, index) = (link.slot, link.index);
        let now = self.now;
        self.hear_answer(slot, index);
        let class = self.told_class(self.slots[slot].class);
        self.tell(|| format!("slot {slot}.{index} < {}", show_message(message)));
        self.note(6, id, message.items.len() as u64 | u64::from(message.removed) << 8);
        let shape = kind_of(self.slots[slot].source.as_ref(), index, &self.words.types[message.ty]);
        let reference = &mut self.slots[slot].reference;
        let asked = reference.streams[index].as_ref().is_some_and(|stream| stream.types[message.ty].asked);
        reference.receive(index, shape, message, self.scheduler.now);
        // An unsteady server may be heard only later, and that ends its earlier errors (DAT-7).
        let this = &self.slots[slot];
        let is_unsure =
            this.wire != Wire::Aggregated && !matches!(this.reach_of(message.ty, now), Heard::Yes(_));
        if is_unsure || this.lost_types(now)[message.ty] {
            self.slots[slot].reference.doubt_errors(message.ty);
        }
        if let Some(link) = self.links.get_mut(&id).filter(|link| asked && !link.is_poll) {
            link.expected = Some((message.ty, message.nonce.clone(), message.has_faults()));
        }
        let response = message.response(&self.words, class);
        self.input(slot, index, Input::Received(response));
        if let Some(link) = self.links.get_mut(&id)
            && let Some((ty, nonce, _)) = link.expected.take()
        {
            self.fail(Invariant::Nonces, || format!("ACK-8: {} {nonce:?} is not answered", SHORT[ty]));
        }
        if self.links.get(&id).is_some_and(|link| link.is_poll) {
            self.end_link(id, Status::ok());
        }
    }
}

/// The first request after a response answers the response, with an error exactly if there was a fault
/// (ACK-8, RLY-37).
fn judge_answer(link: &mut Link, request: &Request) -> Result<(), String> {
    let (nonce, error) = match request {
        Request::Sotw(request) => (&request.response_nonce, &request.error_detail),
        Request::Delta(request) => (&request.response_nonce, &request.error_detail),
    };
    let Some((ty, expected, is_bad)) = link.expected.take() else { return Ok(()) };
    if *nonce != expected {
        return Err(format!("{} {expected:?} is answered with {nonce:?}", SHORT[ty]));
    }
    if error.is_some() != is_bad {
        return Err(format!(
            "{} {expected:?} is {} with {error:?}",
            SHORT[ty],
            if is_bad { "bad" } else { "good" }
        ));
    }
    Ok(())
}

pub fn show_request(request: &Request) -> String {
    let short = |url: &str| url.rsplit('.').next().unwrap_or_default().to_owned();
    match request {
        Request::Sotw(request) => format!(
            "{} {:?} nonce {:?} version {:?}{}",
            short(&request.type_url),
            request.resource_names,
            request.response_nonce,
            request.version_info,
            if request.error_detail.is_some() { " NACK" } else { "" }
        ),
        Request::Delta(request) => format!(
            "{} +{:?} -{:?} nonce {:?} has {:?}{}",
            short(&request.type_url),
            request.subscribe,
            request.unsubscribe,
            request.response_nonce,
            request.initial_resource_versions,
            if request.error_detail.is_some() { " NACK" } else { "" }
        ),
    }
}

fn show_message(message: &Message) -> String {
    let items = message.items.iter().map(|item| match item {
        Item::Resource { name, content, ttl, .. } => {
            let ttl = ttl.map(|ttl| format!("@{}s", ttl / SECOND)).unwrap_or_default();
            format!(" {}={}{ttl}", show(1 << name), show_content(*content))
        }
        Item::Bare { name, .. } => format!(" ~{}", show(1 << name)),
        Item::Bad(name) => format!(" !{}", name.map(|name| show(1 << name)).unwrap_or_default()),
    });
    let removed = bits(message.removed).map(|name| format!(" -{}", show(1 << name)));
    let errors = message.errors.iter().map(|(name, code)| format!(" !{} {code:?}", show(1 << name)));
    let text: String = items.chain(removed).chain(errors).collect();
    format!("{:?} {}{text} nonce {:?}", message.variant, SHORT[message.ty], message.nonce)
}
