//! Unasked resources of a source: DEL-17.

use super::*;
use crate::source::{Kept, RestoredType};

const ADDRESS: &str = "istio.workload.Address";

fn source(unasked_names: Option<usize>) -> Bench {
    let streams = Attachment::Streams(Box::new(Streams::new(UpstreamSettings::default())));
    Bench::new(streams, SourceSettings { unasked_names, ..SourceSettings::default() })
}

fn offered(bench: &Bench) -> Vec<ResourceName> {
    let types = bench.source.publication.snapshot.of(&url(ADDRESS)).unwrap();
    types.names.unasked.iter().flat_map(|unasked| unasked.after(0)).cloned().collect()
}

/// The server counts restored names as subscribed, and sends them to no newcomer unasked.
#[test]
fn del_17_restored_names_are_for_whoever_of_the_client_comes() {
    for is_of_one in [true, false] {
        let mut bench = source(is_of_one.then_some(10));
        let keep = |resource: Arc<Resource>| Kept {
            name: resource.name.clone(),
            resource,
            server_version: "v".into(),
            left: None,
        };
        let names = resources(ADDRESS, "a=1 vip=1").into_iter().map(keep).collect();
        let restored = RestoredType { names, ..RestoredType::new(url(ADDRESS)) };
        bench.source.restore(&[restored], Duration::from_secs(1), bench.now);
        bench.watch(1, ADDRESS, "vip");
        assert_eq!(bench.view(ADDRESS, "vip"), "vip=1");
        assert_eq!(offered(&bench).len(), if is_of_one { 2 } else { 0 });
    }
}

/// A name that is asked for by then is no news for those who asked.
#[test]
fn del_17_sessions_of_the_type_are_woken() {
    let mut bench = source(Some(10));
    bench.watch(1, ADDRESS, "vip");
    bench.watch(2, EDS, "x");
    bench.watch(3, ADDRESS, "*");
    bench.advance(Duration::from_secs(1));
    bench.woken();
    let changes = Changes {
        present: resources(ADDRESS, "a=1"),
        unasked: vec!["a".into()],
        ..Changes::new(&url(ADDRESS), CollectionKind::Names)
    };
    bench.source.handle_changes(changes, bench.now);
    assert_eq!((bench.woken(), offered(&bench)), (vec![1], vec!["a".into()]));
    bench.watch(1, ADDRESS, "a vip");
    assert_eq!(bench.view(ADDRESS, "a vip"), "a=1 ?1");
    bench.unwatch(1, ADDRESS, NAMES);
    bench.advance(Duration::from_secs(31));
    assert!(offered(&bench).is_empty() && bench.view(ADDRESS, "a vip") == "none");
}
