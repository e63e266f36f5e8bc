//! Asks a server as a node, for everything that such a client would be told (LRN-2).
//!
//! Nobody is served. Each question is a source of its own, with a stream of its own, and ends with the
//! answer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::driver::ground::class_identity::of_member;
use crate::driver::ground::context::{DriverContext, DriverSettings};
use crate::driver::ground::source_key::Owner;
use crate::driver::source::class_users::Holder;
use crate::driver::source::handle::{Command, SourceHandle, Subscriber};
use crate::driver::source::silent::SilentClient;
use crate::driver::source::table::{Claim, Sources};
use crate::telemetry::Metrics;
use sluice_engine::Time;
use sluice_engine::cache::SessionId;
use sluice_engine::class::{NameStyle, NodeClass};
use sluice_engine::collection::{Collection, NameSet, style_of};
use sluice_engine::reachability::Reachability;
use sluice_engine::snapshot::{Snapshot, TypeSnapshot};
use sluice_identity::Identity;
use sluice_proof::learning::TypeAnswer;
use sluice_wire::upstream::route_names;
use sluice_xds::{Code, Kind, Node, ResourceName, Status, TypeUrl};

/// The parts of an answer that are asked for.
#[derive(Clone, Debug)]
pub struct AskedTypes {
    /// Types of which everything is asked for.
    pub whole: Vec<TypeUrl>,
    /// Types of which the names are asked for that the answers name: endpoints of clusters, and routes of
    /// listeners.
    pub named: Vec<TypeUrl>,
}

/// Asks one server.
pub struct Asker {
    shared: Arc<DriverContext>,
    sources: Sources,
    asked: AtomicU64,
}

impl Asker {
    /// Asks the first server of the settings. Must be called within a tokio runtime.
    pub fn new(settings: DriverSettings, metrics: Arc<Metrics>) -> Asker {
        let shared = Arc::new(DriverContext::new(settings, metrics));
        Asker { sources: Sources::new(shared.clone()), shared, asked: AtomicU64::new(0) }
    }

    /// The time of the process.
    pub fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// The instant of a time.
    pub fn instant(&self, time: Time) -> Instant {
        self.shared.clock.instant(time)
    }

    /// Asks as a client with this node. Types without a whole answer within `patience` are left
    /// out.
    ///
    /// # Errors
    /// The reason why the stream ended before the first answer, or DEADLINE_EXCEEDED without any answer.
    pub async fn ask(
        &self,
        node: &Node,
        types: &AskedTypes,
        patience: Duration,
    ) -> Result<BTreeMap<TypeUrl, TypeAnswer>, Status> {
        let session = SessionId(self.asked.fetch_add(1, Ordering::Relaxed));
        let settings = self.shared.epoch();
        let nobody = || Status::new(Code::Unavailable, "there is no server");
        let listed = settings.lists.configured().next().ok_or_else(nobody)?;
        // One of a kind: each question has a connection's place in the account.
        let place = usize::try_from(session.0).unwrap_or(usize::MAX);
        let holder = Holder::new(&Arc::new(Identity::Anonymous), None::<SocketAddr>, place);
        let claim = Claim {
            listed,
            class: NodeClass { node: of_member(node), ..NodeClass::of_everybody() },
            owner: Owner::Stream(session),
            is_for_secrets: false,
            holder: holder.clone(),
            held: &[],
        };
        let (source, _) = self.sources.get(claim, &|| 0).map_err(|full| full.status)?;
        let client = SilentClient::new(session, None, Arc::default());
        let mut question = Question { source: source.clone(), client, collections: BTreeMap::new() };
        let asked = self.answer(&mut question, types, Instant::now() + patience).await;
        source.forget(session);
        self.sources.release(&source, &holder);
        asked
    }

    async fn answer(
        &self,
        question: &mut Question,
        types: &AskedTypes,
        until: Instant,
    ) -> Result<BTreeMap<TypeUrl, TypeAnswer>, Status> {
        for type_url in &types.whole {
            self.want(question, type_url, Collection::Wildcard).await;
        }
        loop {
            let snapshot = question.source.snapshot();
            for type_url in types
                .named
                .iter()
                .filter(|named| !question.collections.contains_key(*named))
                .cloned()
                .collect::<Vec<_>>()
            {
                let Some(names) = named_in(&snapshot, &type_url, question) else { continue };
                for collection in self.collections(names) {
                    self.want(question, &type_url, collection).await;
                }
                // Nothing to ask for is an answer, too.
                question.collections.entry(type_url).or_default();
            }
            let answers = question.answers(&snapshot);
            if answers.len() == types.whole.len() + types.named.len() {
                return Ok(answers);
            }
            if answers.is_empty()
                && let Some(status) = question.failure(&snapshot)
            {
                return Err(status);
            }
            if timeout_at(until, question.client.changed()).await.is_err() {
                let late = || Status::new(Code::DeadlineExceeded, "the server has not answered");
                return if answers.is_empty() { Err(late()) } else { Ok(answers) };
            }
        }
    }

    async fn want(&self, question: &mut Question, type_url: &TypeUrl, collection: Collection) {
        question.collections.entry(type_url.clone()).or_default().push(collection.clone());
        let (stream, type_url) = (question.client.clone() as Arc<dyn Subscriber>, type_url.clone());
        let (previous, seen) = (None, u64::MAX);
        question.source.send(Command::Watch { stream, type_url, collection, previous, seen }).await;
    }

    /// A collection has names of one style.
    fn collections(&self, names: BTreeSet<ResourceName>) -> Vec<Collection> {
        let seed = self.shared.content.seed;
        let sets = [NameStyle::Old, NameStyle::Xdstp]
            .map(|style| NameSet::of(names.iter().filter(|name| style_of(name) == style).cloned(), seed));
        let stated = sets.into_iter().filter(|set| !set.is_empty());
        stated.map(|set| Collection::Names(Arc::new(set))).collect()
    }
}

/// A node before the server, and what it has asked for.
struct Question {
    source: Arc<SourceHandle>,
    client: Arc<SilentClient>,
    collections: BTreeMap<TypeUrl, Vec<Collection>>,
}

impl Question {
    /// The whole answers so far.
    fn answers(&self, snapshot: &Snapshot) -> BTreeMap<TypeUrl, TypeAnswer> {
        let whole = |(type_url, collections): (&TypeUrl, &Vec<Collection>)| {
            Some((type_url.clone(), answer(snapshot.of(type_url), collections)?))
        };
        self.collections.iter().filter_map(whole).collect()
    }

    fn failure(&self, snapshot: &Snapshot) -> Option<Status> {
        let lost = match snapshot.standing().reach() {
            Reachability::Lost { status, .. } => Some(status.clone()),
            Reachability::Pending | Reachability::Heard { .. } => None,
        };
        lost.or_else(|| self.client.ended())
    }
}

/// `None`: some name is unknown yet.
fn answer(types: Option<&TypeSnapshot>, collections: &[Collection]) -> Option<TypeAnswer> {
    let mut names = BTreeMap::new();
    for collection in collections {
        let view = types?.view(collection)?;
        if view.lacks_an_answer() {
            return None;
        }
        names.extend(view.names().map(|name| (name.clone(), view.version_of(name))));
        names.extend(view.absent_names().map(|name| (name.clone(), None)));
    }
    let is_whole = collections.iter().any(|collection| matches!(collection, Collection::Wildcard));
    Some(TypeAnswer { is_whole, names: names.into_iter().collect() })
}

/// The names of a type that the answers for another type name; `None` until these answers are whole.
fn named_in(snapshot: &Snapshot, type_url: &TypeUrl, question: &Question) -> Option<BTreeSet<ResourceName>> {
    let base = match type_url.kind() {
        Kind::ClusterLoadAssignment => Kind::Cluster,
        _ => Kind::Listener,
    };
    let (base_url, collections) =
        question.collections.iter().find(|(base_url, _)| base_url.kind() == base)?;
    let types = snapshot.of(base_url)?;
    answer(Some(types), collections)?;
    let resources = types.resources();
    Some(match base {
        Kind::Cluster => resources.filter_map(|resource| resource.endpoints.clone()).collect(),
        _ => resources.flat_map(|resource| route_names(&resource.body.value)).collect(),
    })
}
