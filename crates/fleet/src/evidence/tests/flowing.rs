//! Resources that flow although their type is gated (WAV-3).

use std::time::Duration;

use crate::evidence::PushUnit;
use crate::rollout::push::ReleaseDigest;
use sluice_engine::downstream::SourceId;
use sluice_engine::lanes::tests::bench::*;

const KINDS: [(CollectionKind, &str); 2] = [(CollectionKind::Wildcard, "*"), (CollectionKind::Names, "a b")];

fn collection(text: &str) -> Collection {
    match text {
        "*" => Collection::Wildcard,
        list => names(&list.split(' ').collect::<Vec<_>>()),
    }
}

fn plain(name: &str, version: u128) -> Arc<Resource> {
    resource(name, version)
}

fn with_ttl(name: &str, version: u128) -> Arc<Resource> {
    let ttl = Some(Duration::from_secs(60));
    Arc::new(Resource { ttl, ..Arc::unwrap_or_clone(resource(name, version)) })
}

/// Whether a plan that observes counts the latest change as a push.
fn is_push(before: &Snapshot, after: &Snapshot) -> bool {
    let gated = Gated::Types(vec![url()]);
    let differs = PushUnit::differs(before, after, &gated);
    let between = PushUnit::between(SourceId(1), before, after, &gated);
    assert_eq!(differs, !between.types.is_empty());
    differs
}

#[test]
fn wav_3_a_resource_with_a_ttl_flows_under_each_mode() {
    type Make = fn(&str, u128) -> Arc<Resource>;
    let changes: [(Make, Make, bool); 4] = [
        (plain, plain, true),
        (with_ttl, with_ttl, false),
        (plain, with_ttl, false),
        (with_ttl, plain, false),
    ];
    for (kind, list) in KINDS {
        for (index, (before, after, is_held)) in changes.into_iter().enumerate() {
            let mut bench = Bench::new();
            bench.watch(1, &collection(list));
            bench.say_resources(url(), kind, vec![before("a", 1), plain("b", 1)], &[]);
            let former = bench.published.live.clone();
            bench.say_resources(url(), kind, vec![after("a", 2)], &[]);
            assert_eq!(bench.lanes.is_holding(), is_held, "{kind:?} {index}");
            assert_eq!(is_push(&former, &bench.published.live), is_held, "{kind:?} {index}: observe");
        }
    }
}

#[test]
fn wav_3_a_resource_with_a_ttl_flows_into_the_lanes_of_a_hold() {
    for (kind, list) in KINDS {
        let mut bench = Bench::new();
        let collection = collection(list);
        bench.watch(1, &collection);
        bench.say_resources(url(), kind, vec![with_ttl("a", 1), plain("b", 1)], &[]);
        bench.say_resources(url(), kind, vec![plain("b", 2)], &[]);
        bench.operate(|lanes| lanes.cut(1));
        bench.say_resources(url(), kind, vec![with_ttl("a", 2), plain("b", 3)], &[]);
        let lanes = |bench: &Bench| {
            [bench.stable(), bench.candidate()].map(|of| versions(of.view(&collection).unwrap()))
        };
        let of = |pairs: &[(&str, u128)]| -> Vec<(String, u128)> {
            pairs.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect()
        };
        assert_eq!(lanes(&bench), [of(&[("a", 2), ("b", 1)]), of(&[("a", 2), ("b", 2)])], "{kind:?}");
        // The server lets the resource expire.
        bench.now = bench.now + Duration::from_secs(61);
        bench.source.handle_timeout(bench.now);
        bench.settle();
        assert_eq!(lanes(&bench), [of(&[("b", 1)]), of(&[("b", 2)])], "{kind:?}");
    }
}

/// WAV-8: a content that was halted before a restart is known by its digest, whatever flowed meanwhile.
#[test]
fn wav_3_what_flows_is_part_of_no_digest() {
    let digest = |bench: &Bench| ReleaseDigest::of(&bench.published.live, &Gated::Types(vec![url()]));
    for (kind, list) in KINDS {
        let mut bench = Bench::new();
        bench.watch(1, &collection(list));
        bench.say_resources(url(), kind, vec![with_ttl("a", 1), plain("b", 1)], &[]);
        let former = digest(&bench);
        bench.say_resources(url(), kind, vec![with_ttl("a", 2)], &[]);
        assert_eq!(digest(&bench), former, "{kind:?}");
        bench.say_resources(url(), kind, vec![plain("b", 2)], &[]);
        assert_ne!(digest(&bench), former, "{kind:?}");
    }
}
