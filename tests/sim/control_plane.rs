//! A model of a control plane: correct by itself; faults are put into its messages on purpose.

use std::collections::BTreeMap;

use sluice_xds::{DeltaRequest, Request, SotwRequest, Variant};

use super::failing::{Failing, code_of};
use super::message::{Item, Message};
use super::rng::{Rng, mix};
use super::words::{ALL, Content, Lexicon, Mask, NAMES, SDS, TYPES, bit, bits, count, is_full_state, nth};

/// One resource of the control plane for one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub content: Content,
    /// Selected by the wildcard.
    pub member: bool,
    /// Microseconds.
    pub ttl: Option<u64>,
}

pub type Truth = [[Option<Entry>; NAMES]; TYPES];

/// The result of a connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reachable {
    Yes,
    Refused,
    Silent,
}

/// The answer to a poll.
pub enum PollAnswer {
    Message(Message),
    /// The version of the request is current (RST-4).
    Unchanged,
}

/// One control plane.
pub struct ControlPlane {
    /// By class.
    pub truth: Vec<Truth>,
    pub reachable: Reachable,
    /// The control plane supports delta.
    pub delta: bool,
    /// The control plane never reports absence.
    pub mute: bool,
    /// The percentage of corrupted messages.
    pub wrong: u64,
    pub failing: Failing,
    /// Types without a service.
    unserved: Mask,
    /// A part of the version strings: after a restart all old versions are unknown.
    epoch: u32,
    streams: BTreeMap<u64, Stream>,
}

struct Stream {
    class: usize,
    variant: Variant,
    /// The stream is a poll, which is answered as a whole.
    is_poll: bool,
    nonces: u32,
    types: [Subscription; TYPES],
}

#[derive(Clone, Debug, Default)]
struct Subscription {
    asked: bool,
    wildcard: bool,
    names: Mask,
    /// The client's resources, as far as known; in delta, zero content is an unknown content.
    sent: [Option<Content>; NAMES],
    /// Names that the client had, and gave up. Nothing that the server says later of its own accord is about them.
    forgotten: Mask,
    /// Names that need an answer, whatever was sent.
    due: Mask,
    /// Names reported in error.
    failed: Mask,
    /// The first request has no answer yet.
    greeting: bool,
    nonce: String,
    /// The version in the request of a poll.
    accepted: String,
}

impl ControlPlane {
    pub fn new(classes: usize, delta: bool, mute: bool) -> ControlPlane {
        ControlPlane {
            truth: vec![Truth::default(); classes],
            reachable: Reachable::Yes,
            delta,
            mute,
            wrong: 0,
            failing: Failing::default(),
            unserved: 0,
            epoch: 1,
            streams: BTreeMap::new(),
        }
    }

    /// Forgets every stream, and changes the version strings.
    pub fn restart(&mut self) {
        self.epoch += 1;
        self.streams.clear();
    }

    pub fn open(&mut self, link: u64, class: usize, variant: Variant) {
        self.streams
            .insert(link, Stream { class, variant, is_poll: false, nonces: 0, types: Default::default() });
    }

    /// A poll began.
    pub fn open_poll(&mut self, link: u64, class: usize) {
        self.open(link, class, Variant::Sotw);
        self.streams.get_mut(&link).unwrap().is_poll = true;
    }

    /// The answer to a poll, which ends with it. The version is that of all resources of the type.
    pub fn answer_poll(&mut self, link: u64, ty: usize) -> Option<PollAnswer> {
        let mut stream = self.streams.remove(&link)?;
        let message = self.sotw(&mut stream, ty)?;
        let entries = self.truth[stream.class][ty].iter().enumerate();
        let of = |(name, entry): (usize, &Option<Entry>)| {
            entry.map_or(0, |entry| {
                mix(u64::from(entry.content) << 8 | u64::from(entry.member) << 7 | name as u64)
                    ^ entry.ttl.unwrap_or(0)
            })
        };
        let sum =
            entries.fold(u64::from(self.failing.of(stream.class, ty)), |sum, entry| mix(sum ^ of(entry)));
        let version = format!("{}.{sum:x}", self.epoch);
        match stream.types[ty].accepted == version {
            true => Some(PollAnswer::Unchanged),
            false => Some(PollAnswer::Message(Message { version, ..message })),
        }
    }

    pub fn lacks_service(&self, ty: usize) -> bool {
        self.unserved & bit(ty) != 0
    }

    pub fn serve_all(&mut self) {
        self.unserved = 0;
    }

    pub fn toggle_service(&mut self, ty: usize) {
        self.unserved ^= bit(ty);
    }

    pub fn close(&mut self, link: u64) {
        self.streams.remove(&link);
    }

    /// Whether a client gave a name up that it was sent, and asked for it again, and the server says nothing of it since. The
    /// client may take what was on its way for the answer.
    pub fn is_silent_again(&self, class: usize, ty: usize, name: usize) -> bool {
        let mut streams = self.streams.values().filter(|stream| stream.class == class);
        self.mute
            && streams.any(|stream| stream.types[ty].forgotten & stream.types[ty].names & bit(name) != 0)
    }

    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    pub fn links(&self) -> impl Iterator<Item = u64> {
        self.streams.keys().copied()
    }

    fn version_of(&self, content: Content) -> Box<str> {
        format!("{}.{content:x}", self.epoch).into()
    }

    // === requests ===

    pub fn request(&mut self, words: &Lexicon, link: u64, request: &Request) {
        let (epoch, Some(stream)) = (self.epoch, self.streams.get_mut(&link)) else { return };
        match request {
            Request::Sotw(request) => stream.take_sotw(words, request),
            Request::Delta(request) => stream.take_delta(words, request, epoch),
        }
    }

    /// The messages due on a stream now, in the order of the types.
    pub fn flush(&mut self, link: u64) -> Vec<Message> {
        let mut messages = Vec::new();
        let is_served = |stream: &Stream| self.delta || stream.variant == Variant::Sotw;
        if !self.streams.get(&link).is_some_and(is_served) {
            return messages;
        }
        let Some(mut stream) = self.streams.remove(&link) else { return messages };
        for ty in 0..TYPES {
            let message = match stream.variant {
                Variant::Sotw => self.sotw(&mut stream, ty),
                Variant::Delta => self.delta(&mut stream, ty),
            };
            messages.extend(message);
        }
        self.streams.insert(link, stream);
        messages
    }

    /// Splits an answer into several messages, if the variant and the type allow that (DEL-26, SST-4).
    pub fn split(&mut self, link: u64, mut message: Message, rng: &mut Rng) -> Vec<Message> {
        let is_whole = message.variant == Variant::Sotw && is_full_state(message.ty);
        let (ty, variant, most) = (message.ty, message.variant, 1 + rng.below(3) as usize);
        let Some(stream) = self.streams.get_mut(&link).filter(|_| !is_whole) else { return vec![message] };
        let mut rest = message.items.split_off(most.min(message.items.len()));
        let mut messages = vec![message];
        while !rest.is_empty() {
            let next = rest.split_off(most.min(rest.len()));
            let part = stream.message(ty, variant, std::mem::replace(&mut rest, next), 0);
            messages.push(Message { is_of_first: messages[0].is_of_first, ..part });
        }
        messages
    }

    /// Heartbeats of resources with a time to live (TTL-4).
    pub fn beats(&mut self, link: u64) -> Vec<Message> {
        let Some(stream) = self.streams.get(&link) else { return Vec::new() };
        let (class, variant) = (stream.class, stream.variant);
        let mut messages = Vec::new();
        for ty in 0..TYPES {
            let stream = &self.streams[&link];
            let wanted = |name: usize| stream.types[ty].sent[name].is_some();
            let live: Vec<_> = (0..NAMES)
                .filter(|name| wanted(*name))
                .filter_map(|name| {
                    let entry = self.truth[class][ty][name]?;
                    entry.ttl.filter(|_| stream.types[ty].sent[name] == Some(entry.content))?;
                    Some(Item::Bare { name, version: self.version_of(entry.content), ttl: entry.ttl })
                })
                .collect();
            if !live.is_empty()
                && let Some(stream) = self.streams.get_mut(&link)
            {
                messages.push(stream.message(ty, variant, live, 0));
            }
        }
        messages
    }

    fn sotw(&self, stream: &mut Stream, ty: usize) -> Option<Message> {
        let truth = &self.truth[stream.class][ty];
        let subscription = &mut stream.types[ty];
        if !subscription.asked {
            return None;
        }
        let is_full = is_full_state(ty) || subscription.wildcard || stream.is_poll;
        let mut current = subscription.current(truth);
        let failing = subscription.fail(self.failing.of(stream.class, ty));
        bits(failing).for_each(|name| current[name] = None);
        let is_news = |name: usize| subscription.sent[name] != current[name].map(|entry| entry.content);
        let news: Mask = bits(ALL).filter(|name| is_news(*name)).fold(0, |mask, name| mask | bit(name));
        let there: Mask = (0..NAMES).filter(|name| current[*name].is_some()).fold(0, |mask, n| mask | bit(n));
        let due = std::mem::take(&mut subscription.due);
        let errors = if is_full { failing } else { failing & due };
        let greeting = std::mem::take(&mut subscription.greeting);
        let told = if is_full { there } else { (news | due) & there };
        let says_something = if stream.is_poll {
            true
        } else if is_full {
            news != 0 || due != 0 || greeting
        } else {
            told != 0 || errors != 0 || subscription.wildcard && greeting
        };
        if !says_something {
            return None;
        }
        let items = bits(told).filter_map(|name| self.item(name, current[name]?)).collect();
        for name in 0..NAMES {
            subscription.sent[name] = current[name].map(|entry| entry.content);
        }
        let is_of_first = greeting && subscription.wildcard;
        let errors = bits(errors).map(|name| (name, code_of(ty, name))).collect();
        Some(Message { is_of_first, errors, ..stream.message(ty, Variant::Sotw, items, 0) })
    }

    fn delta(&self, stream: &mut Stream, ty: usize) -> Option<Message> {
        let truth = &self.truth[stream.class][ty];
        let subscription = &mut stream.types[ty];
        if !subscription.asked {
            return None;
        }
        let current = subscription.current(truth);
        let was_failing = subscription.failed;
        let failing = subscription.fail(self.failing.of(stream.class, ty));
        let due = std::mem::take(&mut subscription.due);
        let errors: Vec<_> = bits(failing & due).map(|name| (name, code_of(ty, name))).collect();
        let (mut items, mut removed) = (Vec::new(), 0);
        for name in bits(ALL & !failing) {
            let sent = subscription.sent[name];
            let is_mute = self.mute && was_failing & bit(name) == 0;
            match current[name] {
                Some(entry) if sent != Some(entry.content) || due & bit(name) != 0 => {
                    items.extend(self.item(name, entry));
                    subscription.sent[name] = Some(entry.content);
                    subscription.forgotten &= !bit(name);
                }
                None if sent.is_some() || (due & bit(name) != 0 && !is_mute) => {
                    removed |= bit(name);
                    subscription.sent[name] = None;
                }
                _ => {}
            }
        }
        let greeting = std::mem::take(&mut subscription.greeting) && subscription.wildcard;
        if items.is_empty() && removed == 0 && errors.is_empty() && !greeting {
            return None;
        }
        Some(Message { is_of_first: greeting, errors, ..stream.message(ty, Variant::Delta, items, removed) })
    }

    fn item(&self, name: usize, entry: Entry) -> Option<Item> {
        Some(Item::Resource {
            name,
            content: entry.content,
            version: self.version_of(entry.content),
            ttl: entry.ttl,
        })
    }

    // === faults ===

    /// Corrupts a message in one of the ways of FU12 to FU24. Returns the name of the fault.
    pub fn spoil(&self, message: &mut Message, names: Mask, rng: &mut Rng) -> &'static str {
        let name = nth(names, rng.below(count(names)));
        let is_new = !message.items.iter().any(|item| item.name() == Some(name))
            && !message.errors.iter().any(|(failed, _)| *failed == name)
            && message.removed & bit(name) == 0;
        match rng.below(9) {
            0 if is_new => {
                message.items.push(Item::Bad(Some(name)));
                "a bad element"
            }
            1 => {
                message.items.push(Item::Bad(None));
                "an element without a name"
            }
            2 if !message.items.is_empty() => {
                let again = message.items[0].clone();
                message.items.push(again);
                "a name twice"
            }
            3 if message.variant == Variant::Delta && is_new => {
                message.removed |= bit(name);
                "a removal of something else"
            }
            4 => {
                message.nonce = String::new();
                "no nonce"
            }
            5 => {
                message.nonce = "1".to_owned();
                "an old nonce"
            }
            6 => {
                for item in &mut message.items {
                    if let Item::Resource { version, .. } = item {
                        *version = "7".into();
                    }
                }
                message.version = "7".to_owned();
                "a version that says nothing"
            }
            7 => {
                for item in &mut message.items {
                    if let Item::Resource { version, .. } = item {
                        *version = "".into();
                    }
                }
                "no version"
            }
            _ if is_new && message.ty != SDS => {
                let content = super::words::content(200, rng.below(1000) as u32);
                message.items.push(Item::Resource { name, content, version: "9".into(), ttl: None });
                "a resource that nobody asked for, perhaps"
            }
            _ => "nothing",
        }
    }
}

impl Subscription {
    /// Returns the names that cannot be supplied. Marks as due the newly failing names, and names that can be
    /// supplied again.
    fn fail(&mut self, names: Mask) -> Mask {
        let failing = if self.wildcard { 0 } else { names & self.names };
        self.due |= (failing ^ self.failed) & self.names;
        // A delta client keeps the resource of the name, and gets the next change.
        self.failed = failing;
        failing
    }

    fn current(&self, truth: &[Option<Entry>; NAMES]) -> [Option<Entry>; NAMES] {
        std::array::from_fn(|name| {
            let is_named = self.names & bit(name) != 0;
            truth[name].filter(|entry| is_named || (self.wildcard && entry.member))
        })
    }
}

impl Stream {
    fn message(&mut self, ty: usize, variant: Variant, items: Vec<Item>, removed: Mask) -> Message {
        self.nonces += 1;
        let nonce = self.nonces.to_string();
        self.types[ty].nonce.clone_from(&nonce);
        Message {
            variant,
            ty,
            version: nonce.clone(),
            nonce,
            items,
            removed,
            errors: Vec::new(),
            is_of_first: false,
        }
    }

    fn take_sotw(&mut self, words: &Lexicon, request: &SotwRequest) {
        let Some(ty) = words.types.iter().position(|url| url.as_str() == request.type_url) else { return };
        let subscription = &mut self.types[ty];
        let mask = words.mask_of(&request.resource_names);
        let wildcard = request.resource_names.iter().any(|name| name.is_wildcard())
            || (request.resource_names.is_empty() && (!subscription.asked || subscription.wildcard));
        subscription.due |= mask & !subscription.names;
        subscription.greeting |= !subscription.asked || (wildcard && !subscription.wildcard);
        for name in bits(!mask & subscription.names & ((1 << NAMES) - 1)) {
            subscription.sent[name] = None;
        }
        subscription.names = mask;
        subscription.wildcard = wildcard;
        subscription.asked = true;
        subscription.accepted.clone_from(&request.version_info);
    }

    fn take_delta(&mut self, words: &Lexicon, request: &DeltaRequest, epoch: u32) {
        let Some(ty) = words.types.iter().position(|url| url.as_str() == request.type_url) else { return };
        let subscription = &mut self.types[ty];
        let is_first = !std::mem::replace(&mut subscription.asked, true);
        let by_omission = is_first && request.subscribe.is_empty() && request.unsubscribe.is_empty();
        let add = words.mask_of(&request.subscribe);
        let remove = words.mask_of(&request.unsubscribe);
        if request.subscribe.iter().any(|name| name.is_wildcard()) || by_omission {
            subscription.wildcard = true;
            subscription.greeting = true;
        }
        if request.unsubscribe.iter().any(|name| name.is_wildcard()) {
            subscription.wildcard = false;
        }
        subscription.due |= add;
        subscription.names = (subscription.names | add) & !remove;
        for name in bits(remove) {
            let sent = subscription.sent[name].take();
            subscription.forgotten |= sent.map_or(0, |_| bit(name));
            subscription.due &= !bit(name);
        }
        for (name, version) in request.initial_resource_versions.iter().filter(|_| is_first) {
            let Some(name) = words.name_of(name) else { continue };
            let content = version.split_once('.').filter(|(by, _)| **by == epoch.to_string());
            let content = content.and_then(|(_, text)| Content::from_str_radix(text, 16).ok());
            subscription.sent[name] = Some(content.unwrap_or(0));
            // A resource presented in its current version is not sent again (DEL-29).
            subscription.due &= !bit(name);
        }
    }
}
