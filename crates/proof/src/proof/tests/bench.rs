//! A machine, its classes and a server that answers as a test says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::node_fields::{FieldRank, NodeField, NodeFields};
use crate::proof::content::{Content, TypeContent};
use crate::proof::*;
use sluice_engine::Time;
use sluice_engine::cache::slots::WatchedSet;
use sluice_engine::cache::{CachedResource, Known};
use sluice_engine::collection::{Collection, HashSeed, NameSet};
use sluice_engine::snapshot::{TypeSnapshot, TypeStanding, WildcardSnapshot};
use sluice_engine::time::ReceivedAt;
use sluice_engine::upstream::Cause;
use sluice_engine::view::View;
use sluice_xds::{Any, Code, Node, Resource, ResourceName, Status, TypeUrl, Value, Version};

pub const SEED: HashSeed = HashSeed(7);

pub fn at_ms(ms: u64) -> Time {
    Time::from_micros(ms * 1_000)
}

pub fn clusters() -> TypeUrl {
    TypeUrl::of_message("envoy.config.cluster.v3.Cluster")
}

pub fn endpoints() -> TypeUrl {
    TypeUrl::of_message("envoy.config.endpoint.v3.ClusterLoadAssignment")
}

pub fn secrets() -> TypeUrl {
    TypeUrl::of_message("envoy.extensions.transport_sockets.tls.v3.Secret")
}

pub fn resource(type_url: &TypeUrl, name: &str, version: u128) -> Arc<Resource> {
    Arc::new(Resource {
        name: ResourceName::new(name),
        version: Version(version),
        body: Any { type_url: type_url.as_str().into(), value: bytes::Bytes::from(version.to_string()) },
        body_has_name: true,
        aliases: Box::default(),
        ttl: None,
        do_not_cache: false,
        metadata: None,
        endpoints: None,
        constraints: None,
    })
}

fn cached(type_url: &TypeUrl, name: &str, version: u128) -> CachedResource {
    CachedResource { resource: resource(type_url, name, version), received_at: ReceivedAt::default() }
}

/// The members of a wildcard with their versions.
pub type Members<'a> = &'a [(&'a str, u128)];

/// A content with the wildcard of a type, whole and current.
pub fn wildcard(type_url: &TypeUrl, members: Members<'_>) -> Content {
    let mut view = View::default();
    for (name, version) in members {
        view.put(None, &resource(type_url, name, *version));
    }
    let members =
        members.iter().map(|(name, version)| (ResourceName::new(name), cached(type_url, name, *version)));
    let snapshot = TypeSnapshot {
        wildcard: WildcardSnapshot {
            members: members.collect(),
            view: Some(Arc::new(view)),
            ..WildcardSnapshot::default()
        },
        ..TypeSnapshot::default()
    };
    of_type(type_url, snapshot)
}

/// A content with some names of a type; without a version: absent.
pub fn named(type_url: &TypeUrl, names: &[(&str, Option<u128>)]) -> Content {
    let set = Arc::new(name_set(&names.iter().map(|name| name.0).collect::<Vec<_>>()));
    let (mut snapshot, mut view) = (TypeSnapshot::default(), View::unknown(names.len()));
    for (name, version) in names {
        let state = match version {
            Some(version) => {
                view.put(None, &resource(type_url, name, *version));
                Known::Present(cached(type_url, name, *version))
            }
            None => {
                view.put_absent(&ResourceName::new(name), None);
                Known::Absent(Cause::Removed)
            }
        };
        snapshot.names.entries.insert(ResourceName::new(name), state);
    }
    snapshot.names.sets.insert(set.id(), WatchedSet { names: set, view: Arc::new(view) });
    of_type(type_url, snapshot)
}

fn of_type(type_url: &TypeUrl, snapshot: TypeSnapshot) -> Content {
    let standing = TypeStanding { is_current: true, ..TypeStanding::default() };
    Content { types: [(type_url.clone(), TypeContent { snapshot, standing })].into() }
}

pub fn name_set(names: &[&str]) -> NameSet {
    NameSet::of(names.iter().map(|name| ResourceName::new(name)), SEED)
}

pub fn all_clusters() -> Arc<[Wanted]> {
    [(clusters(), Collection::Wildcard)].into()
}

/// A node with an id and labels.
pub fn node(id: &str, labels: &[(&str, &str)]) -> Arc<Node> {
    let metadata = labels.iter().map(|(key, value)| ((*key).to_owned(), Value::String((*value).to_owned())));
    Arc::new(Node { id: id.to_owned(), metadata: metadata.collect(), ..Node::default() })
}

/// The id, and the labels as plain fields.
pub fn fields(node: &Node) -> NodeFields {
    let id = NodeField { path: "id".into(), value: node.id.as_str().into(), rank: FieldRank::Unique };
    let labels = node.metadata.iter().map(|(key, value)| NodeField {
        path: format!("metadata.{key}").into(),
        value: value.to_string().into(),
        rank: FieldRank::Plain,
    });
    NodeFields([id].into_iter().chain(labels).collect())
}

/// An open shadow at the server.
#[derive(Clone, Debug)]
pub struct AtServer {
    pub open: OpenShadow,
    pub kind: ShadowKind,
}

/// A machine with one class, and its outputs so far.
pub struct Bench {
    pub proof: Proof,
    pub now: Time,
    pub shadows: BTreeMap<ShadowId, AtServer>,
    pub opened: Vec<(Time, OpenShadow)>,
    pub closed: Vec<ShadowId>,
    pub happenings: Vec<Happening>,
    pub questions: Vec<Question>,
}

pub fn class() -> ClassKey {
    "c0ffee".into()
}

impl Bench {
    /// A class whose representative is `rep` with these labels.
    pub fn new(settings: ProofSettings, labels: &[(&str, &str)]) -> Bench {
        let mut bench = Bench {
            proof: Proof::new(settings, 11),
            now: at_ms(1_000_000),
            shadows: BTreeMap::new(),
            opened: Vec::new(),
            closed: Vec::new(),
            happenings: Vec::new(),
            questions: Vec::new(),
        };
        let node = node("rep", labels);
        let facts = ClassFacts {
            rule: "node_classes[0]".into(),
            fields: fields(&node),
            node: node.clone(),
            is_never: false,
            split_from: None,
        };
        bench.proof.class(&class(), facts, bench.now);
        bench.member_as(0, Member { wants: all_clusters(), ..member(&node) });
        bench
    }

    pub fn member(&mut self, id: u64, name: &str, labels: &[(&str, &str)]) {
        self.member_as(id, member(&node(name, labels)));
    }

    pub fn member_as(&mut self, id: u64, member: Member) {
        self.proof.member(&class(), MemberId(id), member, self.now);
        self.drain();
    }

    pub fn publish(&mut self, content: Content) {
        self.proof.class_published(&class(), content, Some(1), self.now);
        self.drain();
    }

    /// The server answers a shadow on the connection of the class.
    pub fn answer(&mut self, id: ShadowId, content: Content) {
        self.answer_on(id, content, 1);
    }

    pub fn answer_on(&mut self, id: ShadowId, content: Content, connection: u64) {
        self.proof.shadow_published(id, content, Some(connection), self.now);
        self.proof.handle_timeout(self.now);
        self.drain();
    }

    pub fn end(&mut self, id: ShadowId, code: Code) {
        self.proof.shadow_ended(id, Status::new(code, "no"), self.now);
        self.shadows.remove(&id);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.proof.poll_output() {
            match output {
                Output::Open(open) => {
                    self.opened.push((self.now, open.clone()));
                    self.shadows.insert(open.id, AtServer { kind: open.kind, open });
                }
                Output::Close(id) => {
                    assert!(self.shadows.remove(&id).is_some(), "closes a shadow twice");
                    self.closed.push(id);
                }
                Output::Keep(id) => self.shadows.get_mut(&id).unwrap().kind = ShadowKind::Witness,
                Output::Ask(question) => self.questions.push(question),
                Output::Tell(happening) => self.happenings.push(happening),
                Output::Split(_) | Output::Join { .. } | Output::Refuse { .. } | Output::Admit { .. } => {}
            }
        }
    }

    /// Time passes, with all timeouts on the way.
    pub fn pass(&mut self, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        let mut steps = 0;
        while let Some(next) = self.proof.poll_timeout().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            self.proof.handle_timeout(self.now);
            self.drain();
            steps += 1;
            assert!(steps < 100_000, "the machine spins");
        }
        self.now = until;
    }

    /// Passes time until a shadow of this kind is open, and returns it.
    pub fn wait_for(&mut self, kind: ShadowKind) -> ShadowId {
        for _ in 0..1_200 {
            if let Some(id) = self.find(kind) {
                return id;
            }
            self.pass(100);
        }
        panic!("no {kind:?} in two minutes");
    }

    pub fn find(&self, kind: ShadowKind) -> Option<ShadowId> {
        self.shadows.iter().find(|shadow| shadow.1.kind == kind).map(|shadow| *shadow.0)
    }

    /// The id of a shadow's node.
    pub fn shown(&self, id: ShadowId) -> String {
        self.shadows[&id].open.node.id.clone()
    }

    pub fn results(&self) -> Vec<SampleResult> {
        let result = |happening: &Happening| match happening {
            Happening::Sampled { result, .. } => Some(*result),
            _ => None,
        };
        self.happenings.iter().filter_map(result).collect()
    }

    pub fn divergences(&self) -> Vec<Arc<Divergence>> {
        let divergence = |happening: &Happening| match happening {
            Happening::Diverged(divergence) => Some(divergence.clone()),
            _ => None,
        };
        self.happenings.iter().filter_map(divergence).collect()
    }

    pub fn report(&self) -> ClassReport {
        self.proof.report(self.now).classes.remove(0)
    }

    /// Answers all questions so far in one way.
    pub fn mean(&mut self, meaning: &Meaning) {
        for question in std::mem::take(&mut self.questions) {
            let meanings = question.pairs.iter().map(|_| meaning.clone()).collect();
            self.proof.meant(question.id, meanings, self.now);
            self.proof.handle_timeout(self.now);
            self.drain();
        }
    }

    pub fn differs(&mut self) {
        self.mean(&Meaning::Differs { paths: vec!["circuit_breakers".into()], ignored: Vec::new() });
    }
}

pub fn member(node: &Arc<Node>) -> Member {
    Member {
        node: node.clone(),
        fields: fields(node),
        wants: all_clusters(),
        is_never: false,
        may_be_sampled: true,
    }
}
