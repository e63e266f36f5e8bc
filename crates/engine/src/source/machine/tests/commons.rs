//! Sources with equal content share their maps (BOD-1).

use std::any::Any as Anything;
use std::cell::RefCell;
use std::sync::Weak;

use super::*;
use crate::cache::CachedResource;
use crate::commons::{CommonMap, MapKey, MapUse};
use sluice_xds::{DeltaResponse, Received, Response};

/// More than the smallest map that is shared.
const COUNT: usize = 40;

/// The commons of a relay.
#[derive(Default)]
struct Table(RefCell<BTreeMap<MapKey, Weak<dyn Anything + Send + Sync>>>);

impl Commons for Table {
    fn find(&self, key: &MapKey) -> Option<CommonMap> {
        self.0.borrow().get(key).and_then(Weak::upgrade)
    }

    fn add(&self, key: MapKey, map: &CommonMap) {
        self.0.borrow_mut().insert(key, Arc::downgrade(map));
    }
}

impl Table {
    /// The most owners of one map of this use.
    fn owners(&self, map_use: MapUse) -> usize {
        let table = self.0.borrow();
        let of_use = table.iter().filter(|(key, _)| key.map_use == map_use);
        of_use.map(|(_, map)| map.strong_count()).max().unwrap_or(0)
    }
}

/// A source with its server.
struct Served {
    source: Source,
    now: Time,
    type_url: TypeUrl,
    responses: u64,
    /// All outputs so far.
    outputs: Vec<String>,
}

fn name(number: usize) -> ResourceName {
    ResourceName::from(format!("n{number:03}"))
}

fn all_names() -> Collection {
    some_names(0..COUNT)
}

fn some_names(numbers: impl Iterator<Item = usize>) -> Collection {
    Collection::Names(Arc::new(NameSet::of(numbers.map(name), HashSeed(7))))
}

impl Served {
    fn new(message: &str, collection: &Collection, private: bool) -> Served {
        let streams = Attachment::Streams(Box::new(Streams::new(UpstreamSettings::default())));
        let source = Source::new(1, SourceSettings { private, ..SourceSettings::default() }, streams);
        let now = Time::from_micros(1_000_000);
        let mut served = Served { source, now, type_url: url(message), responses: 0, outputs: Vec::new() };
        served.watch(1, collection);
        served.hear(upstream::Input::Opened);
        served
    }

    fn watch(&mut self, session: u64, collection: &Collection) {
        self.source.watch(SessionId(session), &self.type_url, collection, self.now);
        self.settle();
    }

    fn hear(&mut self, input: upstream::Input) {
        self.source.handle_upstream(0, input, self.now);
        self.settle();
    }

    fn settle(&mut self) {
        while let Some(output) = self.source.poll_output() {
            self.outputs.push(format!("{output:?}"));
            let answer = match output {
                SourceOutput::Upstream(0, upstream::Output::RoundTrip) => upstream::Input::Returned,
                SourceOutput::Upstream(0, upstream::Output::Flush) => upstream::Input::Flushed,
                _ => continue,
            };
            self.source.handle_upstream(0, answer, self.now);
        }
    }

    /// The server sends these resources: numbers with contents.
    fn says(&mut self, resources: impl Iterator<Item = (usize, u128)>, removed: &[usize], version: &str) {
        self.now = self.now + Duration::from_secs(1);
        self.source.handle_timeout(self.now);
        self.responses += 1;
        let received = |(number, content): (usize, u128)| {
            let mut made = resources_of(&self.type_url, number, content);
            let upstream_version = format!("{version}{content}").into();
            Ok(Received { name: name(number), upstream_version, resource: made.pop(), ttl: None })
        };
        let response = DeltaResponse {
            system_version_info: String::new(),
            type_url: self.type_url.clone(),
            nonce: self.responses.to_string(),
            resources: resources.map(received).collect(),
            removed: removed.iter().map(|number| name(*number)).collect(),
            errors: Vec::new(),
            control_plane: String::new(),
        };
        self.hear(upstream::Input::Received(Response::Delta(response)));
    }

    fn reconnect(&mut self) {
        let status = Status::new(Code::Unavailable, "gone");
        self.hear(upstream::Input::Closed { status, jitter: 0.5 });
        self.now = self.now + Duration::from_secs(60);
        self.source.handle_timeout(self.now);
        self.settle();
        self.hear(upstream::Input::Opened);
    }

    /// All that a client, a checkpoint and an operator can see.
    fn content(&self) -> String {
        let Some(types) = self.source.snapshot().of(&self.type_url) else { return String::new() };
        let cached = |cached: &CachedResource| ({ cached.resource.version.0 }, cached.received_at);
        let entry = |known: &Known| (known.cached().map(cached), matches!(known, Known::Absent(_)));
        let entries: Vec<_> = types.names.entries.iter().map(|(name, known)| (name, entry(known))).collect();
        let members: Vec<_> =
            types.wildcard.members.iter().map(|(name, held)| (name, cached(held))).collect();
        let view = |view: &Arc<View>| {
            let versions: Vec<_> = view.names().map(|name| (name.clone(), view.version_of(name))).collect();
            let absent: Vec<_> = view.absent_names().cloned().collect();
            let counts = (view.len(), view.unknown_len(), view.bytes());
            format!(
                "{:?} {versions:?} {absent:?} {counts:?} {:?}",
                view.id(),
                (view.digest(), view.changes())
            )
        };
        let sets: Vec<_> = types
            .names
            .sets
            .values()
            .map(|set| (set.names.iter().collect::<Vec<_>>(), view(&set.view)))
            .collect();
        let wildcard = types.wildcard.view.as_ref().map(view);
        let versions = self.source.image(self.now).versions;
        format!("{entries:?} {members:?} {sets:?} {wildcard:?} {versions:?} {:?}", self.outputs)
    }

    fn view(&self) -> Arc<View> {
        let types = self.source.snapshot().of(&self.type_url).unwrap();
        let set = types.names.sets.values().next().map(|set| set.view.clone());
        set.or_else(|| types.wildcard.view.clone()).unwrap()
    }
}

fn resources_of(type_url: &TypeUrl, number: usize, content: u128) -> Vec<Arc<Resource>> {
    let message = type_url.as_str().rsplit('/').next().unwrap();
    resources(message, &format!("{}={content}", name(number)))
}

fn contents(content: u128) -> impl Iterator<Item = (usize, u128)> {
    (0..COUNT).map(move |number| (number, content))
}

#[test]
fn bod_1_the_maps_of_equal_sets_are_one() {
    for collection in [Collection::Wildcard, all_names()] {
        let table = Table::default();
        let mut classes = [(); 3].map(|()| Served::new(CDS, &collection, false));
        let [first, second, other] = &mut classes;
        for class in [&mut *first, &mut *second, &mut *other] {
            class.says(contents(1), &[], "v");
            class.source.share(&table);
        }
        let of_server = match collection {
            Collection::Wildcard => MapUse::HeldMembers,
            _ => MapUse::WantedNames,
        };
        let owners = || (table.owners(MapUse::Versions), table.owners(of_server));
        assert_eq!(owners(), (3, 3), "{collection:?}");
        assert!(first.view().shares_versions(&second.view()));
        if collection != Collection::Wildcard {
            assert_eq!((table.owners(MapUse::Set), table.owners(MapUse::Watchers)), (3, 3));
        }
        // A change that only one of them has seen.
        first.says([(7, 2)].into_iter(), &[], "v");
        first.source.share(&table);
        assert!(!first.view().shares_versions(&second.view()));
        assert_eq!(owners(), (2, 2));
        second.says([(7, 2)].into_iter(), &[], "v");
        second.source.share(&table);
        assert!(first.view().shares_versions(&second.view()));
        assert_eq!(owners(), (2, 2));
        // The stream begins again, and nothing is sent again.
        for class in [&mut *first, &mut *second] {
            class.reconnect();
            class.source.share(&table);
        }
        assert_eq!(owners(), (2, 2), "{collection:?}");
        // Another server has other versions for equal content.
        other.says([(7, 2)].into_iter(), &[], "w");
        other.source.share(&table);
        assert!(first.view().shares_versions(&other.view()));
        assert_eq!(owners().0, 3);
    }
}

#[test]
fn bod_3_private_sources_and_secrets_share_no_maps() {
    for (message, private) in [(SDS, false), (CDS, true)] {
        for collection in [Collection::Wildcard, all_names()] {
            let table = Table::default();
            let mut source = Served::new(message, &collection, private);
            source.says(contents(1), &[], "v");
            source.source.share(&table);
            assert_eq!(source.view().len(), COUNT);
            assert!(table.0.borrow().is_empty(), "{message} {private}");
        }
    }
}

/// The same inputs, with and without commons: nobody can tell the difference.
#[test]
fn bod_1_sharing_is_not_seen() {
    let mut seed: u64 = 7;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for collection in [Collection::Wildcard, all_names()] {
        let table = Table::default();
        let mut pairs = [(); 3].map(|()| [(); 2].map(|()| Served::new(CDS, &collection, false)));
        let mut most = 0;
        for step in 0..200_u128 {
            let (action, first, count) = (random(10), random(COUNT), 1 + random(4));
            let numbers: Vec<_> = (first..COUNT.min(first + count)).collect();
            // A class may miss a step.
            let missing = random(6);
            for (class, [sharing, alone]) in pairs.iter_mut().enumerate() {
                if class == missing {
                    continue;
                }
                for served in [&mut *sharing, &mut *alone] {
                    match action {
                        0 => served.says(contents(step / 20), &[], "v"),
                        1 => served.says([].into_iter(), &numbers, "v"),
                        2 => served.reconnect(),
                        3 => served.watch(2, &some_names(first..COUNT)),
                        4 => served.source.forget(SessionId(2), served.now),
                        5 => served.watch(3, &Collection::Wildcard),
                        _ => served.says(numbers.iter().map(|number| (*number, step / 3)), &[], "v"),
                    }
                }
                sharing.source.share(&table);
                // The texts are long.
                let is_same = sharing.content() == alone.content();
                assert!(is_same, "step {step}, action {action}, class {class}");
            }
            most = most.max(table.owners(MapUse::Versions));
        }
        assert_eq!(most, 3, "the classes share something");
    }
}

/// The names have the texts of the class's own client, which is the last place that keeps them.
#[test]
fn bod_3_names_that_are_all_known_wait_for_no_check() {
    let mut class = Served::new(CDS, &some_names(0..2), false);
    class.says([(0, 1)].into_iter(), &[], "v");
    assert!(class.source.upkeep.poll_timeout().is_some(), "ERR-10: one may have to be reported");
    class.says([(1, 1)].into_iter(), &[], "v");
    assert_eq!(class.source.upkeep.poll_timeout(), None);
    class.watch(2, &some_names(0..3));
    assert!(class.source.upkeep.poll_timeout().is_some(), "a name that nobody has asked for before");
}
