//! Complete sets for clients without a stream.

use super::bench::{Bench, CDS, ClientId, EDS};
use super::client::content_of;
use crate::downstream::SourceId;
use sluice_xds::Version;

/// The complete set and its version, as `a=1 b=2`; `None` while the set is incomplete.
fn whole(bench: &Bench, client: ClientId) -> Option<(String, Version)> {
    let latest = |id: SourceId| bench.snapshots.get(id.0 as usize).cloned();
    let answer = bench.clients[client].session.complete_set(&latest)?;
    let composition = answer.compose();
    let [chunk] = &composition.chunks[..] else { panic!("RST-12: one message, not {composition:?}") };
    assert_eq!(answer.version_of_complete_set(), chunk.version);
    let text = |resource: &std::sync::Arc<sluice_xds::Resource>| {
        format!("{}={}", resource.name, content_of(&resource.body.value))
    };
    Some((chunk.resources.iter().map(text).collect::<Vec<_>>().join(" "), chunk.version))
}

fn set(bench: &Bench, client: ClientId) -> Option<String> {
    whole(bench, client).map(|(set, _)| set)
}

#[test]
fn rly_72_nothing_is_said_before_every_name_is_known() {
    let mut bench = Bench::cold();
    let client = bench.sotw();
    assert_eq!(set(&bench, client), None, "nothing was asked for");
    bench.ask_with(client, EDS, "a b", "", "", None);
    assert_eq!(set(&bench, client), None);
    bench.says(EDS, "a=1");
    assert_eq!(set(&bench, client), None, "RST-12: half a set is none");
    bench.says(EDS, "-b");
    assert_eq!(set(&bench, client).as_deref(), Some("a=1"));
    bench.says(EDS, "-a");
    assert_eq!(set(&bench, client).as_deref(), Some(""), "known to be empty");
}

#[test]
fn rly_72_a_wildcard_is_known_as_a_whole() {
    let mut bench = Bench::cold();
    let client = bench.sotw();
    bench.ask_with(client, CDS, "", "", "", None);
    bench.says_of_all(CDS, "a=1", false);
    assert_eq!(set(&bench, client), None);
    bench.says_of_all(CDS, "b=1", true);
    assert_eq!(set(&bench, client).as_deref(), Some("a=1 b=1"));
}

#[test]
fn rst_12_the_set_is_whole_whatever_changed_and_its_version_is_its_content() {
    let mut bench = Bench::cold();
    let client = bench.sotw();
    bench.ask_with(client, EDS, "a b", "", "", None);
    bench.says(EDS, "a=1 b=1");
    let first = whole(&bench, client).unwrap();
    bench.says(EDS, "a=2");
    let second = whole(&bench, client).unwrap();
    assert_eq!(second.0, "a=2 b=1");
    assert_ne!(first.1, second.1);
    bench.says(EDS, "a=1");
    assert_eq!(whole(&bench, client).unwrap(), first);
}

#[test]
fn sub_12_names_beside_the_wildcard_are_of_the_same_set() {
    let mut bench = Bench::cold();
    let client = bench.sotw();
    bench.ask_with(client, CDS, "* a x", "", "", None);
    bench.says_of_all(CDS, "a=1 b=1", true);
    assert_eq!(set(&bench, client), None);
    bench.says(CDS, "a=1 x=1");
    assert_eq!(set(&bench, client).as_deref(), Some("a=1 b=1 x=1"));
}

/// The version belongs to the composed set, whichever part decides (`whole` compares the two).
#[test]
fn rly_31_the_version_of_several_parts_counts_each_name_once() {
    let mut bench = Bench::cold();
    let client = bench.sotw();
    bench.ask_with(client, CDS, "* a b x xdstp:f/* xdstp:f/a", "", "", None);
    bench.says_of_all(CDS, "a=1 b=1 c=1", true);
    bench.says_of_globs(CDS, "xdstp:f/a=1 xdstp:f/b=1", "xdstp:f/*");
    bench.says(CDS, "a=1 b=2 xdstp:f/a=2 -x");
    let (set, version) = whole(&bench, client).unwrap();
    assert_eq!(
        set,
        "a=1 b=2 c=1 xdstp://-/envoy.config.cluster.v3.Cluster/f/a=2 xdstp://-/envoy.config.cluster.v3.Cluster/f/b=1"
    );
    bench.says_of_all(CDS, "a=3 b=3 d=1", false);
    let (_, other) = whole(&bench, client).unwrap();
    assert_ne!(other, version, "d is new");
}
