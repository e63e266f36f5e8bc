//! The parts that all tasks of the driver share.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::Guard;
use prometheus_client::metrics::gauge::Gauge;

use crate::driver::ground::checkpoint_writer::{self, CheckpointWriter};
use crate::driver::ground::class_refusals::ClassRefusals;
use crate::driver::ground::clock::Clock;
use crate::driver::ground::connection::Connections;
use crate::driver::ground::durable::{DurableState, LedgerMemoryStore, PlanStore};
use crate::driver::ground::encoder::Encoder;
use crate::driver::ground::inheritance::Inheritance;
use crate::driver::ground::limits::RelayLimits;
use crate::driver::ground::memory_gauge::MemoryGauge;
use crate::driver::ground::once_logs::OnceLogs;
use crate::driver::ground::plans::{Decider, Plans};
use crate::driver::ground::presented_views::PresentedViews;
use crate::driver::ground::proof_rules::ProofRules;
use crate::driver::ground::rate::{FirstAnswers, Limiter};
use crate::driver::ground::servers::{Server, ServerLists};
use crate::driver::ground::shared_content::{DoNotCacheNames, SharedContent};
use crate::driver::ground::splits::{SplitStore, Splits};
use crate::driver::ground::tails::Tails;
use crate::ledger::Ledger;
use crate::telemetry::{Metrics, Throttle};
use sluice_engine::authority::Authority;
use sluice_engine::authorization::Policy;
use sluice_engine::class::{
    IdPart, NameKind, NameStyle, NodeClass, NodeClasses, SecretsWithheld, ShareSecrets,
};
use sluice_engine::collection::HashSeed;
use sluice_engine::downstream::{ClientFeatures, Limits};
use sluice_engine::{Time, source};
use sluice_fleet::rollout::Plan;
use sluice_fleet::rollout::ledger::Replica;
use sluice_identity::Identity;
use sluice_load_reports::LoadLimits;
use sluice_setting::{Epoch, InForce};
use sluice_xds::{Code, Node, RelayId, ResourceName, Status, TypeUrl, Variant};

/// The configuration of a relay.
///
/// Wide because it has one field for each section of the file that the driver obeys.
#[derive(Clone, Debug)]
pub struct DriverSettings {
    /// The number of the configuration, from 1 (REL-4). Reasons and explanations name it.
    pub generation: u64,
    pub lists: ServerLists,
    pub source: source::SourceSettings,
    pub classes: NodeClasses,
    /// The splits of classes beside the rules (PRF-27). The relay puts them in, since they outlive the
    /// configuration.
    pub splits: Arc<Splits>,
    /// The rules of authorization at the start. [`DriverContext::policy`] has the policy in force.
    pub policy: Policy,
    /// The admin listener speaks TLS.
    pub admin_has_tls: bool,
    pub limits: RelayLimits,
    /// The relay's own node (RLY-15), read at the start of a source: another node needs a new process.
    pub node: Node,
    pub stream: Limits,
    /// See [`ENCODED_BYTES`](crate::driver::ground::limits::ENCODED_BYTES).
    pub encoded_bytes: u64,
    /// The plans for pushes; the first that matches a source decides. Empty: nothing is judged.
    pub rollouts: Vec<Arc<Plan>>,
    /// `None`: nobody is asked beside the classes.
    pub proof: Option<Arc<ProofRules>>,
    /// By listener, whether it takes the load reports of its clients.
    pub load_listeners: BTreeMap<Arc<str>, bool>,
    /// The bounds of the load of one class.
    pub load: LoadLimits,
    /// `None`: nothing is kept on disk. The directory is read once, at the start.
    pub checkpoint: Option<checkpoint_writer::CheckpointSettings>,
    /// `None`: each plan decides for this replica only. Read once, at the start.
    pub ledger: Option<LedgerParts>,
}

/// The ledger that replicas share, and the name of this one (LDG-1).
#[derive(Clone, Debug)]
pub struct LedgerParts {
    pub ledger: Arc<dyn Ledger>,
    pub replica: Replica,
    /// 1 while the plans act on the ledger.
    pub believed: Gauge,
}

impl DriverSettings {
    /// The authority of a name, or the list of a rule that has the name, for the client with this node.
    pub fn authority_of(&self, node: Option<&Node>, type_url: &TypeUrl, name: &ResourceName) -> Authority {
        match self.lists.authorities().authority_of(name) {
            Authority::None if !name.is_wildcard() => {
                let listing = self.classes.listing(node, type_url, name);
                listing.map_or(Authority::None, Authority::Listed)
            }
            authority => authority,
        }
    }

    /// The class of a client, for names of one kind and one type at a server. At a server that ignores nodes,
    /// all clients are in one class.
    pub fn classify(
        &self,
        node: Option<&Node>,
        identity: &Identity,
        type_url: &TypeUrl,
        names: impl Into<NameKind>,
        server: &Server,
    ) -> Result<NodeClass, Status> {
        let anonymous = Node::default();
        let (is_local, names) = (server.is_local(), names.into());
        // RLY-21, FD11: such clients would share their secrets.
        let withheld = self.classes.withheld_secrets(node, identity, type_url, names);
        if let Some(withheld) = withheld.filter(|_| !is_local) {
            let code = match withheld {
                SecretsWithheld::NoId => Code::InvalidArgument,
                SecretsWithheld::SharedProof(_) => Code::PermissionDenied,
            };
            return Err(Status::new(code, withheld.to_string()));
        }
        let node = if is_local { node.or(Some(&anonymous)) } else { node };
        let class = self.classes.classify(node, identity, type_url, names);
        let class = class.map_err(|needed| Status::new(Code::InvalidArgument, needed.to_string()))?;
        Ok(self.splits.apply(class, node))
    }

    /// Whether clients are split by id only because the type holds Secrets (RLY-21).
    pub fn is_apart_for_secrets(&self, node: Option<&Node>, type_url: &TypeUrl, names: NameKind) -> bool {
        let anonymous = Node::default();
        let rule = || self.classes.rule(node.unwrap_or(&anonymous), type_url, names);
        type_url.is_secret()
            && rule().is_some_and(|rule| {
                rule.projection.id != IdPart::Whole && rule.share_secrets != ShareSecrets::Yes
            })
    }

    /// The features that a client supports for a type, with the operator's additions (ERR-8).
    pub fn client_features(
        &self,
        node: Option<&Node>,
        variant: Variant,
        type_url: &TypeUrl,
    ) -> ClientFeatures {
        let anonymous = Node::default();
        let node = node.unwrap_or(&anonymous);
        // Features belong to the client, so the rules of both name styles count.
        let mut rules = [NameStyle::Old, NameStyle::Xdstp]
            .map(|style| self.classes.rule(node, type_url, style))
            .into_iter()
            .flatten();
        ClientFeatures::of(node, variant, type_url, rules.any(|rule| rule.resource_errors_alone))
    }
}

/// The parts that all tasks of the driver share.
pub struct DriverContext {
    in_force: InForce<DriverSettings>,
    policy: InForce<Policy>,
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    pub throttle: Throttle,
    pub once: OnceLogs,
    pub tails: Arc<Tails>,
    pub content: SharedContent,
    pub clients: ClientBounds,
    pub plans: Plans,
    pub durable: DurableState,
    pub process: Arc<ThisProcess>,
}

/// The bounds that all clients share.
#[derive(Default)]
pub struct ClientBounds {
    pub connections: Connections,
    pub pressure: MemoryGauge,
    /// The classes that the proof keeps new clients from.
    pub refused_classes: ClassRefusals,
    first_answers: FirstAnswers,
}

/// The process, as relays, hooks and successors see it.
pub struct ThisProcess {
    /// This process in the paths of calls (TIR-2).
    pub relay_id: RelayId,
    /// The bound address of the admin listener, for hooks. Unset for a unix socket.
    pub admin_address: OnceLock<SocketAddr>,
    /// A successor has taken over: nothing connects upstream any more (HND-3).
    pub is_succeeded: AtomicBool,
    /// Whether the relay is going out of service. Unset: never.
    pub is_leaving: OnceLock<LeavingProbe>,
}

/// Tells whether the relay is going out of service.
pub type LeavingProbe = Box<dyn Fn() -> bool + Send + Sync>;

impl DriverContext {
    pub fn new(settings: DriverSettings, metrics: Arc<Metrics>) -> DriverContext {
        let writer =
            |checkpoint| CheckpointWriter::new(checkpoint, &settings.node, metrics.checkpoint.clone());
        DriverContext {
            durable: DurableState {
                checkpoint: settings.checkpoint.clone().map(writer).map(Arc::new),
                inheritance: Inheritance::default(),
                plans: PlanStore::default(),
                splits: SplitStore::default(),
                ledger: LedgerMemoryStore::default(),
            },
            content: SharedContent {
                encoder: Arc::new(Encoder::new(settings.encoded_bytes, metrics.clone())),
                presented_views: PresentedViews::default(),
                copies: Arc::default(),
                do_not_cache: DoNotCacheNames::default(),
                seed: HashSeed(fastrand::u128(..)),
            },
            process: Arc::new(ThisProcess {
                relay_id: RelayId::new(&settings.node.id, fastrand::u64(..)),
                admin_address: OnceLock::new(),
                is_succeeded: AtomicBool::new(false),
                is_leaving: OnceLock::new(),
            }),
            clock: Clock::start(),
            throttle: Throttle::new(metrics.log.clone()),
            once: OnceLogs::default(),
            tails: Arc::default(),
            clients: ClientBounds::default(),
            plans: Plans::default(),
            policy: InForce::new(settings.policy.clone()),
            in_force: InForce::new(settings),
            metrics,
        }
    }

    /// The context of sources that nobody may hear of: with metrics, events and log lines of their own, which
    /// no one reads, and without plans and disk. Configuration, clock and process are shared.
    pub fn unheard(&self) -> DriverContext {
        let metrics = Arc::new(Metrics::new());
        DriverContext {
            durable: DurableState {
                checkpoint: None,
                inheritance: Inheritance::default(),
                plans: PlanStore::default(),
                splits: SplitStore::default(),
                ledger: LedgerMemoryStore::default(),
            },
            content: SharedContent {
                encoder: Arc::new(Encoder::new(0, metrics.clone())),
                presented_views: PresentedViews::default(),
                // A shadow costs names and versions only (BOD-1).
                copies: self.content.copies.clone(),
                do_not_cache: DoNotCacheNames::default(),
                seed: self.content.seed,
            },
            process: self.process.clone(),
            clock: self.clock,
            throttle: Throttle::mute(metrics.log.clone()),
            once: OnceLogs::default(),
            tails: Arc::default(),
            clients: ClientBounds::default(),
            plans: Plans::default(),
            policy: self.policy.clone(),
            in_force: self.in_force.clone(),
            metrics,
        }
    }

    /// Whether the relay drains, or hands over to a successor: nobody is asked beside the classes then
    /// (PRF-20).
    pub fn is_leaving(&self) -> bool {
        self.process.is_succeeded.load(Ordering::Relaxed)
            || self.process.is_leaving.get().is_some_and(|is_leaving| is_leaving())
            || self.plans.turn() == Decider::Successor
    }

    /// The configuration in force.
    pub fn settings(&self) -> Guard<Arc<Epoch<DriverSettings>>> {
        self.in_force.get()
    }

    /// The number of the configuration in force.
    pub fn settings_number(&self) -> u64 {
        self.in_force.number()
    }

    /// The configuration in force, to keep across an await.
    pub fn epoch(&self) -> Arc<Epoch<DriverSettings>> {
        self.in_force.epoch()
    }

    /// Puts a configuration in force, with the splits of classes as they are. The caller tells sources and
    /// streams.
    pub fn publish(&self, mut settings: DriverSettings) {
        if let (Some(writer), Some(checkpoint)) = (&self.durable.checkpoint, &settings.checkpoint) {
            writer.configure(checkpoint.clone());
        }
        self.content.encoder.configure(settings.encoded_bytes);
        self.durable.splits.in_turn(|splits| {
            settings.splits = splits.clone();
            self.in_force.publish(settings);
        });
    }

    /// Puts the configuration in force with a change, and with the splits of classes as they are. The caller
    /// tells streams.
    pub fn amend(&self, change: impl FnOnce(&mut DriverSettings)) {
        self.durable.splits.in_turn(|splits| {
            let mut settings = DriverSettings::clone(&self.settings());
            settings.splits = splits.clone();
            change(&mut settings);
            self.in_force.publish(settings);
        });
    }

    /// The policy in force. It has a life of its own, because its file is read again without the rest of the
    /// configuration (AUT-12).
    pub fn policy(&self) -> Guard<Arc<Epoch<Policy>>> {
        self.policy.get()
    }

    /// Puts a policy in force for streams to come. The caller judges the open streams again.
    pub fn publish_policy(&self, policy: Policy) {
        self.policy.publish(policy);
        self.once.denials.clear();
    }

    /// The rate at which a stream may change its subscriptions, or a connection may poll.
    pub fn changes_limiter(&self) -> Limiter {
        let settings = self.settings();
        Limiter::new(settings.limits.changes_per_second, settings.limits.changes_burst)
    }

    /// How long the next first answer of a listener has to wait.
    pub fn first_answer_in(&self, listener: &Arc<str>, now: Time) -> Duration {
        let limits = &self.settings().limits;
        let (per_second, burst) = (limits.first_answers_per_second, limits.first_answers_burst);
        self.clients.first_answers.reserve(listener, per_second, burst, now)
    }
}
