//! The task of one server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::classes::ClassFollower;
use super::meaning::meanings;
use super::members::{MemberFollower, MemberWalk};
use super::replicas::ReplicaLog;
use super::shadows::OpenShadows;
use super::tell::ProofTeller;
use crate::client::ConnectionChoice;
use crate::driver::api::proof::{ProveRefusal, ProveStatus, ServerProof, ServerSamples, SplitRefusal};
use crate::driver::ground::class_refusals::RefusedType;
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::proof_rules::ProofRules;
use crate::driver::ground::servers::Place;
use crate::driver::ground::splits::{NewSplit, SplitCause};
use crate::driver::source::shadow::{Shadow, ShadowOrder};
use crate::driver::stream::state::Tables;
use crate::telemetry::wall_now;
use sluice_engine::Time;
use sluice_proof::proof::{
    ClassKey, ClassState, Happening, Meaning, OpenShadow, OrderId, Output, Proof, ProofReport, ProveOrder,
    Question, QuestionId, ShadowKind, Split, Surroundings,
};
use sluice_xds::{Code, Status};

/// The time between two looks at streams and sources.
const LOOK: Duration = Duration::from_secs(1);

/// The time until the next look while clients come in great numbers.
const SOON: Duration = Duration::from_millis(20);

/// The time between two looks at the content of the classes while a shadow is open.
const QUICK_LOOK: Duration = Duration::from_millis(200);

/// The time for which clients of a split are looked for often.
const MOVING: Duration = Duration::from_secs(10);

/// The age of the gauges.
const GAUGES: Duration = Duration::from_secs(15);

/// An order to the task, or a question.
pub(super) enum ProofCommand {
    /// Another configuration is in force.
    Configure,
    Report(oneshot::Sender<ServerProof>),
    Prove(ProveOrder, oneshot::Sender<Result<OrderId, ProveRefusal>>),
    /// An operator joined the parts of the class.
    Joined(ClassKey),
    State(OrderId, oneshot::Sender<Option<ProveStatus>>),
    /// `None`: the server has no such class.
    Samples(ClassKey, oneshot::Sender<Option<ServerSamples>>),
}

/// The proof of one server at work: the machine, and the parts that supply its inputs and carry out its
/// outputs.
pub(super) struct ProofTask {
    pub place: Place,
    pub tables: Tables,
    pub teller: ProofTeller,
    rules: Arc<ProofRules>,
    machine: Proof,
    classes: ClassFollower,
    members: MemberFollower,
    shadows: OpenShadows,
    replicas: ReplicaLog,
    questions: JoinSet<(QuestionId, Vec<Meaning>)>,
    moves: SplitMoves,
    next: NextWork,
}

/// The times of regular work.
struct NextWork {
    look: Instant,
    gauges: Instant,
}

/// The splits of this task.
struct SplitMoves {
    classes: BTreeSet<ClassKey>,
    /// Clients are on their way to other classes until then.
    until: Instant,
}

impl ProofTask {
    pub(super) fn new(
        place: Place,
        rules: Arc<ProofRules>,
        tables: Tables,
        teller: ProofTeller,
    ) -> ProofTask {
        let now = Instant::now();
        ProofTask {
            machine: Proof::new(rules.settings, fastrand::u64(..)),
            place,
            tables,
            teller,
            rules,
            classes: ClassFollower::default(),
            members: MemberFollower::default(),
            shadows: OpenShadows::default(),
            replicas: ReplicaLog::default(),
            questions: JoinSet::new(),
            moves: SplitMoves { classes: BTreeSet::new(), until: now },
            next: NextWork { look: now, gauges: now },
        }
    }

    /// Runs until the configuration has no such server or no proof: then `commands` is closed.
    pub(super) async fn run(mut self, commands: &mut mpsc::UnboundedReceiver<ProofCommand>) {
        loop {
            let due = self.due();
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => self.obey(command),
                    None => return,
                },
                () = self.shadows.changed.notified() => {}
                Some(answer) = self.questions.join_next() => {
                    if let Ok((question, meanings)) = answer {
                        self.machine.meant(question, meanings, self.now());
                    }
                }
                () = sleep_until(due) => {}
            }
            self.turn();
        }
    }

    fn now(&self) -> Time {
        self.shared().clock.now()
    }

    fn shared(&self) -> &Arc<DriverContext> {
        &self.teller.shared
    }

    fn due(&self) -> Instant {
        let quick = (!self.shadows.is_empty()).then(|| Instant::now() + QUICK_LOOK);
        let machine = self.machine.poll_timeout().map(|due| self.shared().clock.instant(due));
        let due = [Some(self.next.look), quick, machine];
        due.into_iter().flatten().min().unwrap_or(self.next.look)
    }

    /// Tells the machine all news, and carries out its word.
    fn turn(&mut self) {
        if Instant::now() >= self.next.look {
            self.next.look = Instant::now() + LOOK;
            self.look();
        }
        let now = self.now();
        self.classes.publish(&self.rules, &mut self.machine, now);
        let classes = &self.classes;
        self.shadows.look(|class| classes.source(class), &mut self.machine, now);
        self.machine.handle_timeout(now);
        while let Some(output) = self.machine.poll_output() {
            self.carry_out(output);
        }
        if Instant::now() >= self.next.gauges {
            self.next.gauges = Instant::now() + GAUGES;
            self.show();
        }
    }

    /// Looks at sources, streams and the relay.
    fn look(&mut self) {
        let (now, settings) = (self.now(), self.shared().epoch());
        let rules = self.rules.clone();
        let (sources, machine) = (&self.tables.sources, &mut self.machine);
        let registers_clients = self.classes.find(self.place, &rules, sources, machine, now);
        self.classes.hold(&mut self.machine, now);
        let splits = self.shared().durable.splits.get();
        self.classes.leave_to_operators(&splits, &mut self.machine, now);
        self.classes.restore(&splits, &self.moves.classes, &mut self.machine, now);
        let (classes, machine) = (&mut self.classes, &mut self.machine);
        let mut walk =
            MemberWalk { settings: &settings, rules: &rules, tables: &self.tables, classes, machine, now };
        if self.members.step(&mut walk) {
            self.next.look = Instant::now() + SOON;
        } else if Instant::now() < self.moves.until {
            self.next.look = Instant::now() + QUICK_LOOK;
        }
        let shared = self.shared();
        let surroundings = Surroundings {
            is_unwell: self.classes.is_unwell(),
            registers_clients,
            clients: u32::try_from(self.tables.streams.len()).unwrap_or(u32::MAX),
            waiting: self.members.waiting(),
            // The gauge knows the mark of 80 %, and no number.
            memory_percent: if shared.clients.pressure.is_high() { 81 } else { 0 },
            is_leaving: shared.is_leaving(),
            shadow_bytes: self.shadows.bytes(),
        };
        self.machine.surroundings(surroundings, now);
        if self.classes.is_exhausted() {
            self.machine.exhausted(now);
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Open(open) => self.open(open),
            Output::Close(id) => self.shadows.close(id),
            Output::Keep(id) => self.shadows.keep(id),
            Output::Ask(question) => self.ask(question),
            Output::Tell(happening) => self.tell(&happening),
            Output::Split(split) => self.split(split),
            Output::Join { class } => self.join(&class),
            Output::Refuse { class, type_url } => {
                let refused = RefusedType { place: self.place, class, type_url };
                self.shared().clients.refused_classes.refuse(refused, self.now());
            }
            Output::Admit { class, type_url } => {
                let refused = RefusedType { place: self.place, class, type_url };
                self.shared().clients.refused_classes.admit(&refused);
            }
        }
    }

    fn tell(&mut self, happening: &Happening) {
        let now = self.now();
        let compared = self.replicas.note(happening, &self.classes, &self.shadows, now);
        self.teller.tell(happening, compared);
        // Operators see a divergence, and its end, at once (PRF-26).
        self.next.gauges = Instant::now();
    }

    /// Gives the members with some values classes of their own (PRF-27). The keeper of the splits moves them.
    fn split(&mut self, split: Split) {
        let Some(source) = self.classes.source(&split.class) else { return };
        let (needed, room) = (split.values.len(), self.tables.sources.room_beside(&source.key().class));
        if needed > room {
            let refusal = SplitRefusal::NoRoom { needed, room };
            self.machine.split_refused(&split.class, refusal.to_string().into(), self.now());
            return;
        }
        self.moves.classes.insert(split.class.clone());
        let cause = SplitCause::Proof {
            client: (&*split.member_id).into(),
            type_name: split.type_url.message().into(),
        };
        let new = NewSplit {
            class: source.key().class.clone(),
            fields: split.fields.iter().map(|field| Box::from(&**field)).collect(),
            values: Some(split.values),
            cause,
            holds: Some(split.holds),
        };
        self.shared().durable.splits.add(new, wall_now());
        // The members are in their classes as soon as their streams have taken the split over.
        self.next.look = Instant::now() + SOON;
        self.moves.until = Instant::now() + MOVING;
    }

    /// Undoes a split of the proof (PRF-31).
    fn join(&mut self, class: &ClassKey) {
        if let Some(source) = self.classes.source(class) {
            self.shared().durable.splits.undo(&source.key().class);
        }
    }

    fn open(&mut self, open: OpenShadow) {
        let OpenShadow { id, class, kind, node, wants, on_another_connection, member: _ } = open;
        let shadow = self.classes.source(&class).and_then(|source| {
            let key = source.key();
            let order = ShadowOrder {
                place: key.place,
                class: key.class.clone(),
                node,
                parts: wants.to_vec(),
                // The same connection, or certainly another one (PRF-3, PRF-18).
                connection: ConnectionChoice {
                    preferred: source.connection(),
                    is_apart: on_another_connection,
                    ..ConnectionChoice::default()
                },
                changed: self.shadows.changed.clone(),
            };
            Shadow::open(order, &self.shared().settings(), &self.tables.sources)
        });
        let now = self.now();
        match shadow {
            Some(shadow) => self.shadows.add(id, shadow, class, kind, now),
            None => {
                let status = Status::new(Code::Unavailable, "the class has no source any more");
                self.machine.shadow_ended(id, status, now);
            }
        }
    }

    fn ask(&mut self, question: Question) {
        let ignored = self.rules.ignored_of(&question.type_url);
        self.questions.spawn_blocking(move || (question.id, meanings(&question, &ignored)));
    }

    fn obey(&mut self, command: ProofCommand) {
        match command {
            ProofCommand::Configure => self.configure(),
            // The asker may have gone meanwhile.
            ProofCommand::Report(reply) => {
                let _ = reply.send(self.report());
            }
            ProofCommand::Prove(order, reply) => {
                // The class may be new.
                self.look();
                let is_known = self.classes.source(&order.class).is_some();
                let now = self.now();
                let _ = reply.send(match is_known {
                    true => self.machine.prove(&order, now).ok_or(ProveRefusal::Busy),
                    false => Err(ProveRefusal::NotProved),
                });
            }
            ProofCommand::Joined(class) => {
                let now = self.now();
                self.machine.joined(&class, now);
            }
            ProofCommand::State(order, reply) => {
                let state = self.machine.prove_state(order);
                let is_under_way = state.as_ref().is_some_and(|state| !state.is_done);
                let gives_way = self.machine.gives_way(self.now()).filter(|_| is_under_way);
                let _ = reply.send(state.map(|state| ProveStatus { state, gives_way }));
            }
            ProofCommand::Samples(class, reply) => {
                let _ = reply.send(self.samples(&class));
            }
        }
    }

    /// Other rules for classes may give another rule to each client.
    fn configure(&mut self) {
        if let Some(rules) = self.shared().settings().proof.clone() {
            self.rules = rules;
        }
        let now = self.now();
        self.machine.configure(self.rules.settings, now);
        self.classes.begin_anew();
        self.members.begin_anew();
        self.next.look = Instant::now();
    }

    fn report(&self) -> ServerProof {
        ServerProof {
            server: self.teller.server.clone(),
            list: self.teller.list.clone(),
            report: self.machine.report(self.now()),
            replicas: self.replicas.all(),
            origin: self.shared().clock.wall(Time::ZERO),
        }
    }

    fn samples(&self, class: &ClassKey) -> Option<ServerSamples> {
        let samples = self.machine.samples(class)?;
        let origin = self.shared().clock.wall(Time::ZERO);
        Some(ServerSamples { server: self.teller.server.clone(), samples, origin })
    }

    /// Brings the gauges up to date.
    fn show(&mut self) {
        let ProofReport { classes, divergences, unproved_members, round, .. } =
            self.machine.report(self.now());
        let mut types: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for divergence in &divergences {
            let label = self.shared().metrics.of_type(&divergence.type_url).label().into();
            *types.entry(label).or_default() += 1;
        }
        let in_state = |state: ClassState| classes.iter().filter(|class| class.state == state).count();
        let split_waits = in_state(ClassState::SplitWaits);
        let differ = in_state(ClassState::Differs) + split_waits;
        self.teller
            .summary
            .send_modify(|summary| (summary.differ, summary.split_waits) = (differ, split_waits));
        let impossible = classes.iter().filter(|class| class.state == ClassState::Impossible).count();
        let kinds = self.shadows.counts().into_iter();
        let kinds = kinds.map(|(kind, count)| (kind_name(kind).into(), count)).collect();
        let metrics = &mut self.teller.metrics;
        metrics.divergences(&types);
        metrics.streams(&kinds);
        metrics.coverage(unproved_members, impossible, round.as_secs_f64());
    }
}

/// The word of the metric.
fn kind_name(kind: ShadowKind) -> &'static str {
    match kind {
        ShadowKind::Sample | ShadowKind::Second => "sample",
        ShadowKind::Control | ShadowKind::Replica => "control",
        ShadowKind::Witness => "witness",
    }
}

impl Drop for ProofTask {
    /// Nobody would admit clients again.
    fn drop(&mut self) {
        self.shared().clients.refused_classes.admit_all_of(self.place);
    }
}
