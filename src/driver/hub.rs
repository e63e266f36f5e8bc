//! The table of sources, and the door for downstream streams.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tracing::warn;

use super::clock::Clock;
use super::encode::Encoder;
use super::handle::{Peer, Relay, Variant};
use super::limiter::Limiter;
use super::source::SourceHandle;
use super::stream::{Stream, StreamState};
use crate::client::Pool;
use crate::engine::Time;
use crate::engine::class::{NameStyle, NodeClass, NodeClasses, splitting_field};
use crate::engine::downstream::{Dialect, Limits, SourceId};
use crate::engine::interest::HashSeed;
use crate::engine::{source, upstream};
use crate::telemetry::{Limit, Metrics, Throttle};
use crate::xds::{Code, Node, Status, TypeUrl};

/// With fewer sources than this nobody needs a hint about their number.
const HINT_SOURCES_MIN: usize = 64;

/// The hint is given again at most this often.
const HINT_PAUSE: Duration = Duration::from_secs(3600);

/// What sources are attached to.
#[derive(Debug)]
pub enum Attach {
    Grpc { pool: Pool, settings: upstream::Settings },
    Files { directory: PathBuf },
}

/// What a hub needs to know.
#[derive(Debug)]
pub struct Settings {
    /// `server_uri`, as the operator wrote it.
    pub server: Arc<str>,
    pub attach: Attach,
    pub source: source::Settings,
    pub classes: NodeClasses,
    pub classes_max: usize,
    /// The relay's own node (RLY-15).
    pub node: Node,
    pub stream: Limits,
    /// Changes of subscription and NACKs of one stream.
    pub changes_per_second: u32,
    pub changes_burst: u32,
    /// Streams of one listener that get their first answer (RLY-56).
    pub first_answers_per_second: u32,
    pub first_answers_burst: u32,
    pub encoded_bytes_max: u64,
}

/// The relay: many streams on one side, few sources on the other. Cheap to clone.
#[derive(Clone)]
pub struct Hub(pub(super) Arc<Shared>);

pub(super) struct Shared {
    pub settings: Settings,
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    pub throttle: Throttle,
    pub encoder: Encoder,
    pub seed: HashSeed,
    /// Of each listener, the rate of first answers.
    first_answers: Mutex<HashMap<Arc<str>, Limiter>>,
    streams_made: AtomicU64,
    streams: Mutex<BTreeMap<u64, Weak<StreamState>>>,
    sources: Mutex<Sources>,
}

#[derive(Default)]
struct Sources {
    by_class: HashMap<Arc<NodeClass>, Arc<SourceHandle>>,
    made: u64,
    hinted_at: Option<tokio::time::Instant>,
}

impl Hub {
    /// Must be called within a tokio runtime.
    pub fn new(settings: Settings, metrics: Arc<Metrics>) -> Hub {
        let identifier = format!("{} via {}", settings.node.id, settings.server);
        Hub(Arc::new(Shared {
            encoder: Encoder::new(settings.encoded_bytes_max, &identifier, metrics.clone()),
            throttle: Throttle::new(metrics.log.clone()),
            clock: Clock::start(),
            seed: HashSeed(fastrand::u128(..)),
            first_answers: Mutex::default(),
            streams_made: AtomicU64::new(0),
            streams: Mutex::default(),
            sources: Mutex::default(),
            settings,
            metrics,
        }))
    }

    /// Loads what needs no client to be known: the state of a `file:` server. Resolves once it is there, or with the
    /// reason why the first state cannot be loaded.
    pub async fn load(&self) -> Result<(), Status> {
        match self.0.settings.attach {
            Attach::Grpc { .. } => Ok(()),
            Attach::Files { .. } => self.0.source(NodeClass::any())?.loaded().await,
        }
    }
}

impl Relay for Hub {
    type Stream = Stream;

    fn open(&self, variant: Variant, peer: Peer) -> Result<Stream, Status> {
        let id = self.0.streams_made.fetch_add(1, Ordering::Relaxed);
        let stream = Stream::new(id, variant, peer, self.0.clone());
        lock(&self.0.streams).insert(id, Arc::downgrade(stream.state()));
        Ok(stream)
    }
}

impl NodeClass {
    /// The one class of a server that answers everyone alike.
    fn any() -> NodeClass {
        NodeClass { node: Node::default(), legacy_wildcard: true }
    }
}

impl Shared {
    /// The source that serves a class, made if there is none.
    pub fn source(self: &Arc<Self>, class: NodeClass) -> Result<Arc<SourceHandle>, Status> {
        let pinned = matches!(self.settings.attach, Attach::Files { .. });
        // Files have no node to select by: everyone shares them.
        let class =
            Arc::new(if pinned { NodeClass::any() } else { NodeClass { legacy_wildcard: true, ..class } });
        let mut sources = lock(&self.sources);
        if let Some(handle) = sources.by_class.get(&class) {
            return Ok(handle.clone());
        }
        if sources.by_class.len() >= self.settings.classes_max {
            self.metrics.limit_hit(Limit::NodeClasses);
            let text = format!(
                "{} node classes are in use, which is the limit `limits.node_classes`; \
                this client would need one more",
                sources.by_class.len()
            );
            return Err(Status::new(Code::ResourceExhausted, text));
        }
        sources.made += 1;
        let handle = SourceHandle::start(SourceId(sources.made), class.clone(), self.clone());
        sources.by_class.insert(class, handle.clone());
        self.hint(&mut sources);
        Ok(handle)
    }

    /// How long the next first answer of a listener has to wait.
    pub fn first_answer_in(&self, listener: &Arc<str>, now: Time) -> Duration {
        let rate = || Limiter::new(self.settings.first_answers_per_second, self.settings.first_answers_burst);
        let mut listeners = lock(&self.first_answers);
        match listeners.get_mut(listener) {
            Some(limiter) => limiter.reserve(now),
            None => listeners.entry(listener.clone()).or_insert_with(rate).reserve(now),
        }
    }

    /// The class of a client for names of one style of one type. A `file:` server needs no node: it answers everyone
    /// alike.
    pub fn classify(
        &self,
        node: Option<&Node>,
        type_url: &TypeUrl,
        style: NameStyle,
    ) -> Result<NodeClass, Status> {
        let anonymous = Node::default();
        let node = match self.settings.attach {
            Attach::Files { .. } => node.or(Some(&anonymous)),
            Attach::Grpc { .. } => node,
        };
        let class = self.settings.classes.classify(node, type_url, style);
        class.map_err(|needed| Status::new(Code::InvalidArgument, needed.to_string()))
    }

    /// What a client understands of a type, beside what the operator says of it (ERR-8).
    pub fn dialect(&self, node: Option<&Node>, variant: Variant, type_url: &TypeUrl) -> Dialect {
        let anonymous = Node::default();
        let node = node.unwrap_or(&anonymous);
        // It is the client that is able, whichever names it asks for.
        let mut rules = [NameStyle::Old, NameStyle::Xdstp]
            .map(|style| self.settings.classes.rule(node, type_url, style))
            .into_iter()
            .flatten();
        Dialect::of(node, variant, type_url, rules.any(|rule| rule.resource_errors_alone))
    }

    /// A source whose task failed makes room for a new one.
    pub fn forget_source(&self, class: &NodeClass) {
        lock(&self.sources).by_class.remove(class);
    }

    /// Takes a source away that nobody uses, unless somebody just began to. Called by its own task.
    pub fn retire(&self, class: &NodeClass) -> bool {
        let mut sources = lock(&self.sources);
        // One reference is the table's, one the task's.
        let unused = sources.by_class.get(class).is_none_or(|handle| Arc::strong_count(handle) <= 2);
        if unused {
            sources.by_class.remove(class);
        }
        unused
    }

    pub fn sources(&self) -> Vec<Arc<SourceHandle>> {
        let mut all: Vec<_> = lock(&self.sources).by_class.values().cloned().collect();
        all.sort_by_key(|handle| handle.id());
        all
    }

    /// Classes that are nearly as many as clients share nothing; the operator should know which field splits them.
    fn hint(&self, sources: &mut Sources) {
        let count = sources.by_class.len();
        let streams = lock(&self.streams).len();
        if count < HINT_SOURCES_MIN || count * 5 < streams * 4 {
            return;
        }
        let now = tokio::time::Instant::now();
        if sources.hinted_at.is_some_and(|at| now.duration_since(at) < HINT_PAUSE) {
            return;
        }
        sources.hinted_at = Some(now);
        if let Some((field, values)) = splitting_field(sources.by_class.keys().map(|class| &class.node)) {
            warn!(
                classes = count,
                streams,
                field,
                values,
                "node classes are nearly as many as streams, so that little \
                is shared: `node_classes` can leave out this part of the node if it does not matter to the control plane"
            );
        }
    }

    /// The live stream with the smallest id above `after`.
    pub fn next_stream(&self, after: Option<u64>) -> Option<Arc<StreamState>> {
        let mut from = after.map_or(0, |id| id + 1);
        loop {
            let (id, stream) = {
                let streams = lock(&self.streams);
                let (id, stream) = streams.range(from..).next()?;
                (*id, stream.upgrade())
            };
            match stream {
                Some(stream) => return Some(stream),
                None => from = id + 1,
            }
        }
    }

    pub fn forget_stream(&self, id: u64) {
        lock(&self.streams).remove(&id);
    }
}

/// A panic in one task must not take the others along: the data behind these locks is whole between two statements.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
