//! Worlds of their own for the proof of the grouping: a control plane that is a function of the node, classes that may
//! be too coarse, clients that come and go, and the machine that has to find out.
//!
//! Two classes have a stream each. A rule of the control plane changes a name for the nodes with a label, with two labels
//! together, or with one id. Streams and replicas lag; some names have a stamp; some servers encode at random, refuse some
//! nodes, or bear one stream for each id. From [`SPLITS`] on the policy is `split`: members move to classes of their own
//! and back, under held pushes, acts of operators and restarts.

mod content;
mod plane;
mod judge;
mod losses;
mod splits;
mod untouched;

pub use splits::{MENDED, OPEN};
pub use untouched::TWOFOLD;

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_proof::proof::{
    ClassKey, Meaning, Member, MemberId, OpenShadow, Output, Policy, Proof, ProofSettings, ProveOrder,
    Question, ShadowId, ShadowKind, Surroundings,
};
use sluice_xds::{Code, Status};

use self::content::{Stated, content, fields, shown, wants};
use self::judge::Judge;
use self::plane::{MEMBERS, NAMES, Node, Plane, State, Twins};
use self::splits::{Divisions, number_of_class};
use self::untouched::{Untouched, is_twofold};
use super::rng::{Rng, mix};
use super::schedule::{Act, EVENTS_MIN, MILLI, SECOND};
use super::scheduler::{Scheduler, schedules};
use super::world::{Invariant, Outcome};

/// From this seed on schedules have these worlds.
pub const SHADOWS: u64 = 1 << 52;

/// From this seed on the policy of these worlds is `split`.
pub const SPLITS: u64 = SHADOWS + (1 << 20);

pub const NODES: u64 = 18;
const CLASSES: usize = 2;

#[derive(Debug)]
pub enum Job {
    /// A state of the server reaches a stream.
    Deliver(u64, usize),
    /// The first answer, without the whole wildcard.
    Begin(u64, usize),
    /// The server ends a stream.
    End(u64, Code),
    Mean(Box<Question>),
    /// A class knows a name again.
    Learn(usize, usize),
    /// The end of a disturbance.
    Calm,
    /// A member belongs to another class.
    Move(usize),
    /// The end of a held push in a class.
    Unhold(usize),
    /// The machine hears which node a class shows.
    Show(usize),
    /// The source of a class tries again.
    Reopen(usize),
}

/// A stream of a class or of a shadow.
#[derive(Clone, Debug)]
pub struct Stream {
    /// `None`: of a class.
    pub shadow: Option<ShadowId>,
    pub class: usize,
    pub node: Node,
    pub kind: ShadowKind,
    pub member: Option<MemberId>,
    replica: usize,
    pub lag: u64,
    /// The newest state that has arrived.
    pub seen: Option<usize>,
    is_whole: bool,
    /// The content as published last: a source publishes changes only.
    last: Option<([Stated; NAMES], bool)>,
}

/// A class, while it has members.
#[derive(Clone, Debug)]
pub struct Class {
    pub node: Node,
    pub stream: u64,
    unknown: [bool; NAMES],
    /// The machine knows the class.
    is_told: bool,
    /// Until then the server may refuse the stream because of a shadow.
    heard_until: u64,
}

/// The state of one schedule.
pub struct Shadows {
    is_live: bool,
    scheduler: Scheduler<Job>,
    rng: Rng,
    pub plane: Plane,
    pub proof: Proof,
    pub settings: ProofSettings,
    pub nodes: Vec<Node>,
    /// By the number of the node.
    pub members: BTreeMap<usize, MemberId>,
    pub classes: BTreeMap<usize, Class>,
    /// The class of each member, and the class of the rules for each class.
    pub homes: BTreeMap<usize, usize>,
    pub roots: BTreeMap<usize, usize>,
    /// The first name that each member asks for by its name.
    pub wants_from: BTreeMap<usize, usize>,
    pub divisions: Divisions,
    pub streams: BTreeMap<u64, Stream>,
    around: Surroundings,
    judge: Judge,
    untouched: Untouched,
    /// Streams end by accident no more.
    is_calm: bool,
    orders: u32,
    member_count: u64,
}

schedules!(Shadows, Job);

/// The events of a seed.
pub fn acts(seed: u64) -> Vec<Act> {
    let mut rng = Rng::new(mix(seed) ^ 0x5ad0);
    let count = EVENTS_MIN / 4 + rng.below(40) as usize;
    let act = |_| Act {
        gap: match rng.below(100) {
            0..25 if seed >= SPLITS => rng.below(100 * MILLI),
            25..50 if seed >= SPLITS => rng.below(6 * SECOND),
            50..80 if seed >= SPLITS => rng.below(60 * SECOND),
            80..95 if seed >= SPLITS => rng.below(600 * SECOND),
            _ if seed >= SPLITS => rng.below(4_000 * SECOND),
            0..30 => rng.below(100 * MILLI),
            30..70 => rng.below(6 * SECOND),
            70..97 => rng.below(30 * SECOND),
            _ => rng.below(600 * SECOND),
        },
        what: rng.below(100) as u8,
        choice: rng.next(),
    };
    (0..count).map(act).collect()
}

pub fn run(seed: u64, acts: &[Act], origin: u64, tells: bool) -> Outcome {
    let mut world = Shadows::new(seed, origin, tells, false);
    world.play(acts);
    if is_twofold(seed) && world.failure.is_none() {
        let mut without = Shadows::new(seed, origin, false, true);
        without.play(acts);
        world.judge_untouched(&without);
    }
    world.scheduler.outcome()
}

pub fn key(class: usize) -> ClassKey {
    format!("class-{class}").into()
}

impl Shadows {
    fn new(seed: u64, origin: u64, tells: bool, is_off: bool) -> Shadows {
        let mut rng = Rng::new(mix(seed) ^ 0x5ad1);
        let node = |number| Node { number, labels: [rng.below(3), rng.below(3), rng.below(3)] };
        let nodes: Vec<Node> = (0..NODES as usize).map(node).collect();
        let twins = [Twins::Borne, Twins::Borne, Twins::Borne, Twins::EndsFirst, Twins::RefusesSecond];
        let mut state = State::default();
        for name in 0..NAMES {
            state.base[name] = if rng.percent(80) { rng.next() | 1 } else { 0 };
            state.stamped[name] = rng.percent(4);
        }
        // Of a replica, and of some streams. Both together stay below half a window.
        let (behind, late) = [(0, 0), (0, 0), (0, 8), (0, 20), (3, 8), (20, 0)][rng.below(6) as usize];
        let plane = Plane {
            states: vec![(0, state)],
            twins: twins[rng.below(5) as usize],
            is_random: rng.percent(20),
            refused: if rng.percent(15) { rng.below(4) as usize } else { 4 },
            replica_lag: [0, behind * SECOND],
            stream_lag: (late * SECOND, if late > 0 { 20 } else { 0 }),
        };
        let mut settings = ProofSettings::default();
        let (mut plane, is_split) = (plane, seed >= SPLITS);
        if is_split {
            settings.policy = Policy::Split;
            if rng.percent(80) {
                plane.twins = Twins::Borne;
            }
        }
        let mut world = Shadows {
            is_live: seed.is_multiple_of(2),
            scheduler: Scheduler::new(origin, tells),
            rng,
            plane,
            proof: Proof::new(settings, seed),
            settings,
            nodes,
            members: BTreeMap::new(),
            classes: BTreeMap::new(),
            homes: BTreeMap::new(),
            roots: BTreeMap::new(),
            wants_from: BTreeMap::new(),
            divisions: Divisions::default(),
            streams: BTreeMap::new(),
            around: Surroundings { clients: 1_000, ..Surroundings::default() },
            judge: Judge::default(),
            untouched: Untouched::new(seed, is_off),
            is_calm: false,
            orders: 0,
            member_count: 0,
        };
        world.proof.surroundings(world.around.clone(), world.scheduler.time());
        for number in 0..NODES as usize {
            if world.rng.percent(80) {
                world.come(number);
            }
        }
        world
    }

    pub fn is_splitting(&self) -> bool {
        self.settings.policy == Policy::Split
    }

    // === time ===

    fn play(&mut self, acts: &[Act]) {
        for act in acts {
            self.advance(act.gap);
            if self.failure.is_some() {
                return;
            }
            self.rng = Rng::new(act.choice);
            self.act(act);
        }
        if self.is_live && self.failure.is_none() {
            self.come_to_rest();
        }
    }

    fn advance(&mut self, by: u64) {
        let end = self.now + by;
        loop {
            let timer = self.proof.poll_timeout().filter(|_| !self.untouched.is_off);
            let timer = timer.map(|time| self.relative(time));
            let Some(next) = self.next_due(&[timer], end) else { break };
            self.pass_to(next);
            if timer.is_some_and(|timer| timer <= self.now) {
                let now = self.time();
                self.proof.handle_timeout(now);
                self.drain();
            } else if let Some(job) = self.pop() {
                self.dispatch(job);
            }
            self.judge_now();
        }
        self.scheduler.now = self.now.max(end);
    }

    fn dispatch(&mut self, job: Job) {
        match job {
            Job::Begin(stream, state) => {
                self.arrive(stream, state);
                // A stream that has ended draws nothing: of a shadow, the clients' dice would show it.
                let Some(open) = self.streams.get(&stream) else { return };
                let is_shadow = open.shadow.is_some();
                let soon = 1 + self.draws(is_shadow).below(200 * MILLI);
                self.after(soon, Job::Deliver(stream, state));
            }
            Job::Deliver(stream, state) => {
                if let Some(stream) = self.streams.get_mut(&stream) {
                    stream.is_whole = true;
                }
                self.arrive(stream, state);
            }
            Job::End(stream, code) => self.end_stream(stream, code),
            Job::Mean(question) => self.mean(&question),
            Job::Learn(class, name) => {
                if let Some(class) = self.classes.get_mut(&class) {
                    class.unknown[name] = false;
                    let stream = class.stream;
                    self.publish(stream);
                }
            }
            Job::Calm => {
                self.around = Surroundings { clients: 1_000, ..Surroundings::default() };
                self.surround();
            }
            Job::Move(number) => self.go_over(number),
            Job::Unhold(class) => self.unhold(class),
            Job::Show(class) => self.show(class),
            Job::Reopen(class) => self.reopen(class),
        }
    }

    fn surround(&mut self) {
        let now = self.time();
        let around = self.around.clone();
        self.tell(|| format!("surroundings: {around:?}"));
        self.judge.is_disturbed(&self.around, self.scheduler.now);
        self.proof.surroundings(self.around.clone(), now);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.proof.poll_output().filter(|_| !self.untouched.is_off) {
            match output {
                Output::Open(open) => self.open(&open),
                Output::Close(id) => {
                    self.tell(|| format!("closes shadow {}", id.0));
                    self.note(3, id.0, 0);
                    self.streams.retain(|_, stream| stream.shadow != Some(id));
                }
                Output::Keep(id) => {
                    self.tell(|| format!("keeps shadow {}", id.0));
                    let of = self.streams.values_mut().find(|stream| stream.shadow == Some(id));
                    of.into_iter().for_each(|stream| stream.kind = ShadowKind::Witness);
                }
                Output::Ask(question) => {
                    let within = 1 + self.draws(true).below(200 * MILLI);
                    self.after(within, Job::Mean(Box::new(question)));
                }
                Output::Tell(happening) => {
                    self.tell(|| format!("{happening:?}"));
                    self.judge_happening(&happening);
                }
                Output::Split(split) => self.split(&split),
                Output::Join { class } => self.join(&class),
                Output::Refuse { class, .. } | Output::Admit { class, .. } => {
                    let invariant = if self.is_splitting() { Invariant::Walls } else { Invariant::Untouched };
                    self.fail(invariant, || format!("{class} is refused under another policy"));
                }
            }
        }
    }

    // === streams ===

    fn open(&mut self, open: &OpenShadow) {
        self.note(2, open.id.0, 0);
        let class = number_of_class(&open.class);
        let node = self.nodes.iter().copied().find(|node| shown(*node).id == open.node.id);
        let Some(node) = node else { return };
        self.tell(|| {
            format!("opens shadow {}: {:?} of class {class} as node {}", open.id.0, open.kind, node.number)
        });
        self.judge_open(open, class, node);
        let own = self.classes.get(&class).and_then(|class| self.streams.get(&class.stream));
        let own = own.map_or(0, |stream| stream.replica);
        let replica = if open.on_another_connection { 1 - own } else { own };
        let stream = self.begin_stream(Some(open.id), class, node, replica);
        if let Some(stream) = self.streams.get_mut(&stream) {
            (stream.kind, stream.member) = (open.kind, open.member);
        }
    }

    /// Opens a stream, as far as the server lets it in.
    fn begin_stream(&mut self, shadow: Option<ShadowId>, class: usize, node: Node, replica: usize) -> u64 {
        let number = self.next_number();
        let (lag, percent) = self.plane.stream_lag;
        let is_shadow = shadow.is_some();
        let rng = self.draws(is_shadow);
        let lag = if rng.percent(percent) { lag } else { rng.below(50 * MILLI) };
        // Two classes that show one node are no matter of the proof: the former shows another one soon.
        let is_twin =
            |open: &Stream| open.node.number == node.number && (open.shadow.is_some() || shadow.is_some());
        let twin = self.streams.iter().find(|open| is_twin(open.1)).map(|open| *open.0);
        let kind = ShadowKind::Sample;
        let opened_at = self.scheduler.now;
        let member = None;
        let stream = Stream {
            shadow,
            class,
            node,
            kind,
            member,
            replica,
            lag,
            seen: None,
            is_whole: false,
            last: None,
        };
        self.streams.insert(number, stream);
        let latency = MILLI + self.draws(is_shadow).below(300 * MILLI);
        if is_shadow && node.number % 4 == self.plane.refused {
            self.after(latency, Job::End(number, Code::PermissionDenied));
            return number;
        }
        if is_shadow && !self.is_calm && self.draws(true).percent(2) {
            self.after(latency, Job::End(number, Code::Unavailable));
            return number;
        }
        match (twin, self.plane.twins) {
            (Some(twin), Twins::EndsFirst) => self.after(latency, Job::End(twin, Code::Aborted)),
            (Some(_), Twins::RefusesSecond) => {
                self.after(latency, Job::End(number, Code::AlreadyExists));
                return number;
            }
            (None, _) | (Some(_), Twins::Borne) => {}
        }
        let behind = self.plane.replica_lag[replica];
        let first = self.plane.state_at(self.scheduler.now.saturating_sub(behind));
        self.after(latency, Job::Begin(number, first));
        for state in first + 1..self.plane.states.len() {
            let at = self.plane.states[state].0 + behind + lag;
            self.at(at.max(opened_at + latency + SECOND / 2), Job::Deliver(number, state));
        }
        number
    }

    fn end_stream(&mut self, number: u64, code: Code) {
        let Some(stream) = self.streams.remove(&number) else { return };
        self.tell(|| format!("the server ends the stream of node {}: {code:?}", stream.node.number));
        let now = self.time();
        let Some(shadow) = stream.shadow else {
            return self.lose_class_stream(stream.class);
        };
        self.proof.shadow_ended(shadow, Status::new(code, "scripted"), now);
        self.drain();
    }

    fn arrive(&mut self, number: u64, state: usize) {
        let Some(stream) = self.streams.get_mut(&number) else { return };
        stream.seen = Some(stream.seen.map_or(state, |seen| seen.max(state)));
        let (seen, shadow, class) = (stream.seen, stream.shadow, stream.class);
        self.scheduler.tell(|| match shadow {
            Some(id) => format!("shadow {} has state {seen:?}", id.0),
            None => format!("class {class} has state {seen:?}"),
        });
        self.publish(number);
    }

    /// The content of a stream, as its source publishes it.
    fn publish(&mut self, number: u64) {
        let Some(stream) = self.streams.get(&number) else { return };
        let Some(seen) = stream.seen else { return };
        let state = &self.plane.states[seen].1;
        let unknown = stream
            .shadow
            .is_none()
            .then(|| self.classes.get(&stream.class).map(|class| class.unknown))
            .flatten();
        let mut names = [Stated::Absent; NAMES];
        for (name, stated) in names.iter_mut().enumerate() {
            let spelling = if self.plane.is_random { mix(number) } else { 0 };
            let stamp = if state.stamped[name] { mix(number) } else { 0 };
            *stated = match state.content(stream.node, name) {
                _ if unknown.is_some_and(|unknown| unknown[name]) => Stated::Unknown,
                // Of a set in parts, one member comes first.
                Some(_) if !stream.is_whole && (1..MEMBERS).contains(&name) => Stated::Unknown,
                Some(content) => Stated::Present(content ^ stamp, spelling),
                None => Stated::Absent,
            };
        }
        let (is_whole, now) = (stream.is_whole, self.time());
        if stream.shadow.is_none() {
            self.note_content(stream.class, seen, is_whole);
        }
        let Some(stream) = self.streams.get_mut(&number) else { return };
        if stream.last.replace((names, is_whole)) == Some((names, is_whole)) {
            return;
        }
        let (content, connection) = (content(&names, is_whole), Some(stream.replica as u64));
        let (shadow, class) = (stream.shadow, stream.class);
        match shadow {
            Some(id) => self.proof.shadow_published(id, content, connection, now),
            None => self.proof.class_published(&key(class), content, connection, now),
        }
        self.drain();
    }

    fn mean(&mut self, question: &Question) {
        let meaning = |pair: &sluice_proof::proof::ResourcePair| match pair.class.body == pair.shadow.body {
            true => Meaning::Equal { ignored: Vec::new() },
            false => Meaning::Differs { paths: vec!["field".into()], ignored: Vec::new() },
        };
        let now = self.time();
        self.proof.meant(question.id, question.pairs.iter().map(meaning).collect(), now);
        self.drain();
    }

    // === events ===

    fn come(&mut self, number: usize) {
        let node = self.nodes[number];
        let class = self.divisions.class_of(node);
        self.begin_class(class, node);
        self.tell_class(class);
        self.homes.insert(number, class);
        self.note_home(number, class);
        self.member_count += 1;
        let id = MemberId(self.member_count);
        self.members.insert(number, id);
        self.tell(|| format!("node {number} comes: {:?}, class {class}", node.labels));
        self.state_member(number);
    }

    fn state_member(&mut self, number: usize) {
        let (node, id, now) = (self.nodes[number], self.members[&number], self.time());
        let from = MEMBERS + self.rng.below(2) as usize;
        self.wants_from.insert(number, from);
        let member = Member {
            node: shown(node),
            fields: fields(node),
            wants: wants(from),
            is_never: judge::is_never(node),
            may_be_sampled: true,
        };
        self.proof.member(&key(self.class_of(node)), id, member, now);
        self.drain();
    }

    fn go(&mut self, number: usize) {
        let Some(id) = self.members.remove(&number) else { return };
        let (class, now) = (self.class_of(self.nodes[number]), self.time());
        self.tell(|| format!("node {number} leaves"));
        self.homes.remove(&number);
        self.proof.member_left(&key(class), id, now);
        self.drain();
        self.judge_leaver(id, class);
        self.end_empty(class);
    }

    /// A class without members ends.
    fn end_empty(&mut self, class: usize) {
        if self.members.keys().any(|other| self.class_of(self.nodes[*other]) == class) {
            return;
        }
        let now = self.time();
        self.proof.class_ended(&key(class), now);
        self.drain();
        let ended = self.classes.remove(&class);
        if let Some(class) = ended {
            self.streams.remove(&class.stream);
        }
    }

    fn push(&mut self, change: impl FnOnce(&mut State)) {
        let at = self.scheduler.now;
        self.plane.push(at, change);
        let state = self.plane.states.len() - 1;
        let lag = |stream: &Stream| self.plane.replica_lag[stream.replica] + stream.lag;
        let open =
            self.streams.iter().map(|(number, stream)| (*number, stream.shadow.is_some(), lag(stream)));
        for (stream, is_shadow, lag) in open.collect::<Vec<_>>() {
            let delay = lag + self.draws(is_shadow).below(50 * MILLI);
            self.after(delay, Job::Deliver(stream, state));
        }
    }

    fn some_class(&mut self) -> usize {
        let classes: Vec<usize> = self.classes.keys().copied().collect();
        match self.is_splitting() && !classes.is_empty() {
            true => classes[self.rng.below(classes.len() as u64) as usize],
            false => self.rng.below(2) as usize,
        }
    }

    fn act(&mut self, act: &Act) {
        self.note(1, u64::from(act.what), 0);
        if self.is_splitting() && self.rng.percent(10) {
            return self.act_on_splits();
        }
        match act.what {
            0..25 => {
                let name = self.rng.below(NAMES as u64) as usize;
                let base = if self.rng.percent(85) { self.rng.next() | 1 } else { 0 };
                self.judge.forget();
                self.tell(|| format!("push: n{name} for all"));
                self.push(|state| state.base[name] = base);
            }
            // Few rules at once, so that classes come together again.
            25..45 if self.is_splitting() && self.plane.state().rules.len() > 2 => {
                self.judge.forget();
                self.tell(|| "push: the first rule goes".to_owned());
                self.push(|state| {
                    state.rules.remove(0);
                });
            }
            25..45 => {
                let rule = Plane::random_rule(&mut self.rng, NODES);
                self.tell(|| format!("push: {rule:?}"));
                self.expect_rule(rule);
                self.push(|state| state.rules.push(rule));
            }
            45..55 => {
                let count = self.plane.state().rules.len();
                if count > 0 {
                    let rule = self.rng.below(count as u64) as usize;
                    self.judge.forget();
                    self.tell(|| format!("push: rule {rule} goes"));
                    self.push(|state| {
                        state.rules.remove(rule);
                    });
                }
            }
            55..80 => {
                let number = self.rng.below(NODES) as usize;
                if self.members.contains_key(&number) { self.go(number) } else { self.come(number) }
            }
            80..85 => {
                let number = self.rng.below(NODES) as usize;
                if self.members.contains_key(&number) {
                    self.state_member(number);
                }
            }
            85..90 => {
                let (class, name) = (self.some_class(), MEMBERS + self.rng.below(3) as usize);
                let Some(stated) = self.classes.get_mut(&class) else { return };
                stated.unknown[name] = true;
                self.judge.forget();
                let stream = stated.stream;
                self.publish(stream);
                let back = self.rng.below(40 * SECOND);
                self.after(back, Job::Learn(class, name));
            }
            90..95 => self.unsettle(),
            95..98 if self.orders < 3 => self.order(),
            _ => {}
        }
    }

    fn unsettle(&mut self) {
        match self.rng.below(4) {
            0 => self.around.is_unwell = true,
            1 => self.around.memory_percent = 90,
            2 => self.around.waiting = 100,
            _ => self.around.is_leaving = true,
        }
        self.surround();
        let calm = self.rng.below(60 * SECOND);
        self.after(calm, Job::Calm);
    }

    fn order(&mut self) {
        self.orders += 1;
        let (class, now) = (key(self.some_class()), self.time());
        self.tell(|| format!("order: prove {class}"));
        let order = ProveOrder { class, all: self.rng.percent(50), replicas: false, streams: 3 };
        self.proof.prove(&order, now);
        self.judge.ordered_at(self.scheduler.now);
        self.drain();
    }

    // === the end ===

    /// Nothing changes any more. After an hour, in which no node is sampled twice, and a round, everything is known.
    fn come_to_rest(&mut self) {
        self.tell(|| "nothing changes any more".to_owned());
        self.is_calm = true;
        (self.plane.stream_lag, self.plane.replica_lag) = ((0, 0), [0, 0]);
        self.around = Surroundings { clients: 1_000, ..Surroundings::default() };
        self.surround();
        self.advance(60 * SECOND);
        self.advance(2 * 3_600 * SECOND + Duration::from_secs(600).as_micros() as u64);
        if self.untouched.is_off {
            return;
        }
        self.judge_rest();
        if self.is_splitting() && self.failure.is_none() {
            self.judge.losses.is_quiet = true;
            self.advance(3_600 * SECOND);
        }
    }
}
