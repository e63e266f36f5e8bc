//! The parts that all tasks of the driver share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::driver::ground::checkpoint_writer::{self, CheckpointWriter};
use crate::driver::ground::clock::Clock;
use crate::driver::ground::connection::Connections;
use crate::driver::ground::do_not_cache::DoNotCacheNames;
use crate::driver::ground::encoder::Encoder;
use crate::driver::ground::fallback_log::FallbackLog;
use crate::driver::ground::limits::RelayLimits;
use crate::driver::ground::memory_gauge::MemoryGauge;
use crate::driver::ground::presented_views::PresentedViews;
use crate::driver::ground::rate::Limiter;
use crate::driver::ground::registry::lock;
use crate::driver::ground::servers::{Server, ServerLists};
use crate::engine::class::{NameStyle, NodeClass, NodeClasses};
use crate::engine::collection::HashSeed;
use crate::engine::downstream::{ClientFeatures, Limits};
use crate::engine::{Time, source};
use crate::telemetry::{Metrics, Throttle};
use crate::xds::{Code, Node, Status, TypeUrl, Variant};

/// The configuration of a relay.
#[derive(Debug)]
pub struct DriverSettings {
    pub lists: ServerLists,
    pub source: source::SourceSettings,
    pub classes: NodeClasses,
    pub limits: RelayLimits,
    /// The relay's own node (RLY-15).
    pub node: Node,
    pub stream: Limits,
    /// See [`ENCODED_BYTES`](crate::driver::ground::limits::ENCODED_BYTES).
    pub encoded_bytes: u64,
    /// `None`: nothing is kept on disk.
    pub checkpoint: Option<checkpoint_writer::CheckpointSettings>,
}

pub struct DriverContext {
    pub settings: DriverSettings,
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    pub throttle: Throttle,
    pub encoder: Arc<Encoder>,
    pub seed: HashSeed,
    pub pressure: MemoryGauge,
    pub connections: Connections,
    pub do_not_cache: DoNotCacheNames,
    pub checkpoint: Option<Arc<CheckpointWriter>>,
    pub presented_views: PresentedViews,
    pub fallback_log: FallbackLog,
    /// The rate of first answers, by listener.
    first_answers: Mutex<HashMap<Arc<str>, Limiter>>,
}

impl DriverContext {
    pub fn new(settings: DriverSettings, metrics: Arc<Metrics>) -> DriverContext {
        let writer =
            |checkpoint| CheckpointWriter::new(checkpoint, &settings.node, metrics.checkpoint.clone());
        DriverContext {
            checkpoint: settings.checkpoint.clone().map(writer).map(Arc::new),
            encoder: Arc::new(Encoder::new(settings.encoded_bytes, metrics.clone())),
            throttle: Throttle::new(metrics.log.clone()),
            clock: Clock::start(),
            seed: HashSeed(fastrand::u128(..)),
            pressure: MemoryGauge::default(),
            connections: Connections::default(),
            do_not_cache: DoNotCacheNames::default(),
            presented_views: PresentedViews::default(),
            fallback_log: FallbackLog::default(),
            first_answers: Mutex::default(),
            settings,
            metrics,
        }
    }

    /// The rate at which a stream may change its subscriptions, or a connection may poll.
    pub fn changes_limiter(&self) -> Limiter {
        Limiter::new(self.settings.limits.changes_per_second, self.settings.limits.changes_burst)
    }

    /// How long the next first answer of a listener has to wait.
    pub fn first_answer_in(&self, listener: &Arc<str>, now: Time) -> Duration {
        let rate = || {
            Limiter::new(
                self.settings.limits.first_answers_per_second,
                self.settings.limits.first_answers_burst,
            )
        };
        let mut listeners = lock(&self.first_answers);
        match listeners.get_mut(listener) {
            Some(limiter) => limiter.reserve(now),
            None => listeners.entry(listener.clone()).or_insert_with(rate).reserve(now),
        }
    }

    /// The class of a client, for names of one style and one type at a server. At a server that ignores nodes,
    /// all clients are in one class.
    pub fn classify(
        &self,
        node: Option<&Node>,
        type_url: &TypeUrl,
        style: NameStyle,
        server: &Server,
    ) -> Result<NodeClass, Status> {
        let anonymous = Node::default();
        let is_local = server.is_local();
        // RLY-21, FD11: without an id, such clients would share their secrets.
        if !is_local && self.settings.classes.lacks_id(node, type_url, style) {
            let text = "Secrets are served per node, and this client has no `node.id`";
            return Err(Status::new(Code::InvalidArgument, text));
        }
        let node = if is_local { node.or(Some(&anonymous)) } else { node };
        let class = self.settings.classes.classify(node, type_url, style);
        class.map_err(|needed| Status::new(Code::InvalidArgument, needed.to_string()))
    }

    /// Whether clients are split by id only because the type holds Secrets (RLY-21).
    pub fn is_apart_for_secrets(&self, node: Option<&Node>, type_url: &TypeUrl, style: NameStyle) -> bool {
        let anonymous = Node::default();
        let rule = || self.settings.classes.rule(node.unwrap_or(&anonymous), type_url, style);
        type_url.is_secret() && rule().is_some_and(|rule| !rule.projection.id && !rule.share_secrets)
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
            .map(|style| self.settings.classes.rule(node, type_url, style))
            .into_iter()
            .flatten();
        ClientFeatures::of(node, variant, type_url, rules.any(|rule| rule.resource_errors_alone))
    }
}
