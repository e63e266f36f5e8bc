//! Asks a server as a node, for everything that such a client would be told (LRN-2).
//!
//! Nobody is served. Each question is a shadow, with a stream of its own, and ends with the answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use crate::client::ConnectionChoice;
use crate::driver::api::study::AskedTypes;
use crate::driver::ground::context::{DriverContext, DriverSettings};
use crate::driver::ground::servers::Place;
use crate::driver::source::shadow::{Shadow, ShadowOrder};
use crate::driver::source::table::Sources;
use crate::telemetry::Metrics;
use sluice_engine::Time;
use sluice_engine::class::{NameStyle, NodeClass};
use sluice_engine::collection::{Collection, NameSet, style_of};
use sluice_engine::snapshot::{Snapshot, TypeSnapshot};
use sluice_identity::Identity;
use sluice_proof::learning::TypeAnswer;
use sluice_wire::upstream::route_names;
use sluice_xds::{Code, Kind, Node, ResourceName, Status, TypeUrl};

/// Two streams of a node that live for so long are borne both.
const TWINS_FOR: Duration = Duration::from_secs(1);

/// Asks one server.
pub struct Asker {
    shared: Arc<DriverContext>,
    sources: Arc<Sources>,
    place: Place,
}

impl Asker {
    /// Asks the first server of the settings, without a relay; `None`: there is no server. Must be called
    /// within a tokio runtime.
    pub fn alone(settings: DriverSettings, metrics: Arc<Metrics>) -> Option<Asker> {
        let place = settings.lists.configured().next()?.place();
        let shared = Arc::new(DriverContext::new(settings, metrics));
        Some(Asker { sources: Arc::new(Sources::new(shared.clone())), shared, place })
    }

    /// Asks a server of a running relay, beside its sources.
    pub(in crate::driver) fn of_relay(
        shared: Arc<DriverContext>,
        sources: Arc<Sources>,
        place: Place,
    ) -> Asker {
        Asker { shared, sources, place }
    }

    /// The time of the process.
    pub fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// The instant of a time.
    pub fn instant(&self, time: Time) -> Instant {
        self.shared.clock.instant(time)
    }

    /// Whether the stream of a class shows a node with this id to the server now.
    pub(in crate::driver) fn is_shown(&self, id: &str) -> bool {
        let here = self.sources.all().into_iter().filter(|source| source.key().place == self.place);
        here.filter_map(|source| source.shown()).any(|node| node.id == id)
    }

    /// Asks as a client with this node. Types without a whole answer within `patience` are left
    /// out.
    ///
    /// # Errors
    /// The reason why the stream ended before the first answer, or DEADLINE_EXCEEDED without any answer.
    pub async fn ask(
        &self,
        node: &Arc<Node>,
        identity: &Identity,
        types: &AskedTypes,
        patience: Duration,
    ) -> Result<BTreeMap<TypeUrl, TypeAnswer>, Status> {
        let mut question = self.open(node, identity, types)?;
        let until = Instant::now() + patience;
        loop {
            let snapshot = question.shadow.snapshot();
            self.want_named(&mut question, &snapshot, types);
            let answers = question.answers(&snapshot);
            if answers.len() == types.whole.len() + types.named.len() {
                return Ok(answers);
            }
            if answers.is_empty()
                && let Some(status) = question.shadow.end(&snapshot)
            {
                return Err(status);
            }
            if timeout_at(until, question.shadow.changed()).await.is_err() {
                let late = || Status::new(Code::DeadlineExceeded, "the server has not answered");
                return if answers.is_empty() { Err(late()) } else { Ok(answers) };
            }
        }
    }

    /// Whether the server bears two streams of a node: a control plane may end the first one for the second.
    pub(in crate::driver) async fn bears_twins(
        &self,
        node: &Arc<Node>,
        identity: &Identity,
        types: &AskedTypes,
        patience: Duration,
    ) -> bool {
        let until = Instant::now() + patience;
        let mut open = Vec::new();
        for _ in 0..2 {
            let Ok(question) = self.open(node, identity, types) else { return false };
            while question.answers(&question.shadow.snapshot()).is_empty() {
                let is_over = question.shadow.end(&question.shadow.snapshot()).is_some();
                if is_over || timeout_at(until, question.shadow.changed()).await.is_err() {
                    return false;
                }
            }
            open.push(question);
        }
        sleep(TWINS_FOR).await;
        open.iter().all(|question| question.shadow.end(&question.shadow.snapshot()).is_none())
    }

    /// Begins a question with the types of which everything is asked for.
    fn open(&self, node: &Arc<Node>, identity: &Identity, types: &AskedTypes) -> Result<Question, Status> {
        let settings = self.shared.epoch();
        let order = ShadowOrder {
            place: self.place,
            class: self.guise(&settings, node, identity, types)?,
            node: node.clone(),
            parts: types.whole.iter().map(|type_url| (type_url.clone(), Collection::Wildcard)).collect(),
            connection: ConnectionChoice::default(),
            changed: Arc::default(),
        };
        let whole = |type_url: &TypeUrl| (type_url.clone(), vec![Collection::Wildcard]);
        let collections = types.whole.iter().map(whole).collect();
        let shadow = Shadow::open(order, &settings, &self.sources);
        let gone = || Status::new(Code::Unavailable, "the configuration has no such server any more");
        Ok(Question { shadow: shadow.ok_or_else(gone)?, collections })
    }

    /// The class by which the server sees the client (PRF-4).
    fn guise(
        &self,
        settings: &DriverSettings,
        node: &Node,
        identity: &Identity,
        types: &AskedTypes,
    ) -> Result<NodeClass, Status> {
        let first = types.whole.first().or(types.named.first());
        let listed = settings.lists.find(self.place);
        match first.zip(listed) {
            Some((type_url, listed)) => {
                settings.classify(Some(node), identity, type_url, NameStyle::Old, listed.server())
            }
            None => Ok(NodeClass::of_everybody()),
        }
    }

    /// Asks for the names that the answers name.
    fn want_named(&self, question: &mut Question, snapshot: &Snapshot, types: &AskedTypes) {
        let is_new = |named: &&TypeUrl| !question.collections.contains_key(*named);
        let new: Vec<TypeUrl> = types.named.iter().filter(is_new).cloned().collect();
        for type_url in new {
            let Some(names) = named_in(snapshot, &type_url, question) else { continue };
            let collections = self.collections(names);
            let parts = collections.iter().map(|collection| (type_url.clone(), collection.clone()));
            question.shadow.want(parts.collect());
            // Nothing to ask for is an answer, too.
            question.collections.insert(type_url, collections);
        }
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
    shadow: Shadow,
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
