//! A source with names and a wildcard, and its lanes.

pub use std::sync::Arc;

pub use bytes::Bytes;

pub use crate::Time;
pub use crate::cache::{Known, SessionId};
pub use crate::collection::{Collection, CollectionKind, HashSeed, NameSet};
pub use crate::gated::Gated;
pub use crate::lanes::{Differences, Lanes, Published};
pub use crate::snapshot::{LastVersion, Snapshot, TypeSnapshot};
pub use crate::source::{Attachment, Source, SourceSettings, Streams};
pub use crate::upstream::{Cause, Changes, UpstreamSettings};
pub use crate::view::{FORCED, PERHAPS, View};
pub use sluice_xds::{Any, Resource, ResourceName, TypeUrl, Version};

pub const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

pub const GLOB: &str = "xdstp://x/envoy.config.cluster.v3.Cluster/left/*";

pub struct Bench {
    pub source: Source,
    pub live: Arc<Snapshot>,
    pub lanes: Lanes,
    pub published: Published,
    pub now: Time,
}

pub fn url() -> TypeUrl {
    TypeUrl::new(CLUSTER)
}

pub fn resource(name: &str, version: u128) -> Arc<Resource> {
    Arc::new(Resource {
        name: name.into(),
        version: Version(version),
        body: Any { type_url: Arc::from(CLUSTER), value: Bytes::from(vec![0; 10]) },
        aliases: Box::default(),
        ttl: None,
        do_not_cache: false,
        body_has_name: true,
        metadata: None,
        endpoints: Some(name.into()),
        constraints: None,
    })
}

pub fn names(list: &[&str]) -> Collection {
    let names = list.iter().map(|name| ResourceName::new(name));
    Collection::Names(Arc::new(NameSet::of(names, HashSeed(7))))
}

impl Bench {
    #[allow(clippy::new_without_default, reason = "only tests make one")]
    pub fn new() -> Bench {
        let attachment = Attachment::Streams(Box::new(Streams::new(UpstreamSettings::default())));
        let source = Source::new(1, SourceSettings::default(), attachment);
        let lanes = Lanes::new(1, Gated::Default, 2);
        let (live, published) = (Arc::default(), Published::default());
        Bench { source, live, lanes, published, now: Time::from_micros(1) }
    }

    pub fn watch(&mut self, session: u64, collection: &Collection) {
        self.source.watch(SessionId(session), &url(), collection, self.now);
        self.settle();
    }

    pub fn say(&mut self, kind: CollectionKind, present: &[(&str, u128)], absent: &[&str]) {
        self.say_of(url(), kind, present, absent);
    }

    pub fn say_of(
        &mut self,
        type_url: TypeUrl,
        kind: CollectionKind,
        present: &[(&str, u128)],
        absent: &[&str],
    ) {
        let present = present.iter().map(|(name, version)| resource(name, *version)).collect();
        self.say_resources(type_url, kind, present, absent);
    }

    pub fn say_resources(
        &mut self,
        type_url: TypeUrl,
        kind: CollectionKind,
        present: Vec<Arc<Resource>>,
        absent: &[&str],
    ) {
        let changes = Changes {
            type_url,
            kind,
            present,
            by_alias: Vec::new(),
            unasked: Vec::new(),
            absent: absent.iter().map(|name| (ResourceName::new(name), Cause::Removed)).collect(),
            refreshed: Vec::new(),
            replaces: false,
            complete: kind == CollectionKind::Wildcard,
            settled: Vec::new(),
        };
        self.source.handle_changes(changes, self.now);
        self.settle();
    }

    pub fn settle(&mut self) {
        while self.source.poll_output().is_some() {}
        if let Some(live) = self.source.take_snapshot() {
            let before = std::mem::replace(&mut self.live, live.clone());
            self.published = self.lanes.follow(&before, &live, self.now);
        }
    }

    /// The source forgets what nobody asks for.
    pub fn sleep(&mut self) {
        self.settle();
        while let Some(due) = self.source.poll_timeout().filter(|due| due.since(self.now).as_secs() < 120) {
            self.now = due;
            self.source.handle_timeout(due);
            self.settle();
        }
    }

    pub fn operate(&mut self, operation: impl FnOnce(&mut Lanes)) {
        operation(&mut self.lanes);
        self.published = self.lanes.published(self.now);
    }

    pub fn live(&self) -> &TypeSnapshot {
        self.published.live.of(&url()).unwrap()
    }

    pub fn stable(&self) -> &TypeSnapshot {
        self.published.held().unwrap().of(&url()).unwrap()
    }

    pub fn candidate(&self) -> &TypeSnapshot {
        self.published.lanes.as_ref().unwrap().candidate.as_ref().unwrap().1.of(&url()).unwrap()
    }
}

pub fn versions(view: &View) -> Vec<(String, u128)> {
    view.names().map(|name| (name.to_string(), view.version_of(name).unwrap().0)).collect()
}

pub fn view<'a>(of: &'a TypeSnapshot, list: &[&str]) -> &'a Arc<View> {
    of.view(&names(list)).unwrap()
}

impl Bench {
    pub fn say_changes(&mut self, changes: impl FnOnce(Changes) -> Changes) {
        let none = Changes {
            type_url: url(),
            kind: CollectionKind::Names,
            present: Vec::new(),
            by_alias: Vec::new(),
            unasked: Vec::new(),
            absent: Vec::new(),
            refreshed: Vec::new(),
            replaces: false,
            complete: false,
            settled: Vec::new(),
        };
        self.source.handle_changes(changes(none), self.now);
        self.settle();
    }

    /// The server states members of the wildcard, and has stated all if the wildcard `is_whole`.
    pub fn say_members(&mut self, present: &[(&str, u128)], is_whole: bool) {
        let present = present.iter().map(|(name, version)| resource(name, *version)).collect();
        self.say_changes(|none| Changes {
            kind: CollectionKind::Wildcard,
            present,
            complete: is_whole,
            ..none
        });
    }

    pub fn say_glob(&mut self, present: &[(&str, u128)], is_whole: bool) {
        let present = present.iter().map(|(name, version)| resource(name, *version)).collect();
        let settled = if is_whole { vec![ResourceName::new(GLOB)] } else { Vec::new() };
        self.say_changes(|none| Changes { kind: CollectionKind::Globs, present, settled, ..none });
    }
}

/// A hold on names: one changes, one comes, one stays, and one goes.
pub fn held_by_name() -> Bench {
    let mut bench = Bench::new();
    bench.watch(1, &names(&["changed", "comes", "stays", "goes"]));
    bench.say(CollectionKind::Names, &[("changed", 1), ("stays", 1), ("goes", 1)], &["comes"]);
    bench.say(CollectionKind::Names, &[("changed", 2), ("comes", 2)], &["goes"]);
    bench
}
