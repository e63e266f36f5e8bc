//! The times at which a source received the content of its resources (ADM-21).

use std::time::Duration;

use super::{Bench, resources, url};
use crate::cache::SessionId;
use crate::collection::{Collection, CollectionKind, HashSeed, NameSet};
use crate::source::checkpoint::{Kept, RestoredType};
use crate::time::ReceivedAt;

const CDS: &str = "envoy.config.cluster.v3.Cluster";
const GLOB: &str = "xdstp://x/envoy.config.cluster.v3.Cluster/a/*";
const MEMBER: &str = "xdstp://x/envoy.config.cluster.v3.Cluster/a/b";

fn received_at(bench: &Bench, kind: CollectionKind, name: &str) -> Option<ReceivedAt> {
    let types = bench.source.snapshot().of(&url(CDS))?;
    let cached = match kind {
        CollectionKind::Wildcard => types.wildcard.members.get(name),
        CollectionKind::Globs => types.globs.members.get(name),
        CollectionKind::Names => types.names.entries.get(name)?.cached(),
    };
    cached.map(|cached| cached.received_at)
}

#[test]
fn the_time_of_receipt_is_that_of_the_last_change_of_content() {
    for kind in CollectionKind::ALL {
        let name = if kind == CollectionKind::Globs { MEMBER } else { "a" };
        let mut bench = Bench::streams();
        let collection = kind.collection(match kind {
            CollectionKind::Globs => NameSet::of([GLOB.into()], HashSeed(7)),
            _ => NameSet::of([name.into()], HashSeed(7)),
        });
        let collection = match collection {
            Collection::Wildcard => Collection::Wildcard,
            Collection::Globs(names) => Collection::Globs(names.into()),
            Collection::Names(names) => Collection::Names(names.into()),
        };
        bench.source.watch(SessionId(1), &url(CDS), &collection, bench.now);
        let mut says = |list: &str| {
            bench.now = bench.now + Duration::from_secs(1);
            bench.says(CDS, kind, list, false);
            (received_at(&bench, kind, name), Some(ReceivedAt::from(bench.now)))
        };
        let (first, now) = says(&format!("{name}=1"));
        assert_eq!(first, now, "{kind:?}");
        let (again, _) = says(&format!("{name}=1"));
        assert_eq!(again, first, "{kind:?}: equal content");
        let (changed, now) = says(&format!("{name}=2"));
        assert_eq!(changed, now, "{kind:?}");
        let (removed, _) = says(&format!("-{name}"));
        assert_eq!(removed, None, "{kind:?}");
        let (back, now) = says(&format!("{name}=2"));
        assert_eq!(back, now, "{kind:?}: the content was gone meanwhile");
    }
}

#[test]
fn a_file_that_is_read_again_without_a_change_keeps_its_time() {
    let mut bench = Bench::files(&[(CDS, "a=1 b=1")]);
    let read_at = ReceivedAt::from(bench.now);
    bench.now = bench.now + Duration::from_secs(1);
    bench.watch(1, CDS, "a");
    bench.watch(2, CDS, "*");
    let both = |bench: &Bench| {
        [CollectionKind::Names, CollectionKind::Wildcard].map(|kind| received_at(bench, kind, "a").unwrap())
    };
    assert_eq!(both(&bench), [read_at; 2]);
    bench.state(&[(CDS, "a=1 b=2")]);
    assert_eq!(both(&bench), [read_at; 2]);
    bench.state(&[(CDS, "a=2 b=2")]);
    assert_eq!(both(&bench), [ReceivedAt::from(bench.now); 2]);
}

#[test]
fn a_restored_resource_is_as_old_as_the_checkpoint() {
    let kept = |name: &str| Kept {
        name: name.into(),
        resource: resources(CDS, &format!("{name}=1")).remove(0),
        server_version: "1".into(),
        left: None,
    };
    let restored = RestoredType {
        names: vec![kept("a")],
        wildcard: Some(vec![kept("a")]),
        globs: vec![(GLOB.into(), vec![kept(MEMBER)])],
        ..RestoredType::new(url(CDS))
    };
    let mut bench = Bench::streams();
    let age = Duration::from_secs(60);
    bench.source.restore(&[restored], age, bench.now);
    let expected = ReceivedAt::before(bench.now, age);
    assert!(expected.as_micros() < 0, "before the origin of the engine's time");
    for (kind, name) in
        [(CollectionKind::Names, "a"), (CollectionKind::Wildcard, "a"), (CollectionKind::Globs, MEMBER)]
    {
        assert_eq!(received_at(&bench, kind, name), Some(expected), "{kind:?}");
    }
}
