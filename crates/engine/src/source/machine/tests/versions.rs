//! Other bytes under the same version: FU20.

use bytes::Bytes;

use super::super::*;
use crate::collection::{Collection, CollectionKind, HashSeed, NameSet};
use crate::source::Streams;
use crate::upstream::{Event, Input, UpstreamSettings};
use sluice_xds::{Any, DeltaResponse, Received, ResourceName, Response, SotwResponse, Variant, Version};

const NOW: Time = Time::ZERO;

fn clusters() -> TypeUrl {
    TypeUrl::of_message("envoy.config.cluster.v3.Cluster")
}

/// A source with one session of this collection, on an open stream.
fn source(variant: Variant, collection: &Collection) -> Source {
    let settings = UpstreamSettings { variant, ..UpstreamSettings::default() };
    let attachment = Attachment::Streams(Box::new(Streams::new(settings)));
    let mut source = Source::new(1, SourceSettings::default(), attachment);
    source.watch(SessionId(1), &clusters(), collection, NOW);
    source.handle_upstream(0, Input::Opened, NOW);
    source
}

/// `a=7/1`: version 7, content 1. Returns the names that are reported to have other bytes under the same
/// version.
fn says(source: &mut Source, variant: Variant, list: &str) -> Vec<String> {
    let resources: Vec<_> = list.split_whitespace().map(|word| Ok(received(word))).collect();
    let (type_url, nonce) = (clusters(), "n".to_owned());
    let (version_info, errors, control_plane) = Default::default();
    let response = match variant {
        Variant::Sotw => Response::Sotw(SotwResponse {
            version_info,
            type_url,
            states_type: true,
            nonce,
            resources,
            errors,
            control_plane,
        }),
        Variant::Delta => Response::Delta(DeltaResponse {
            system_version_info: version_info,
            type_url,
            nonce,
            resources,
            removed: Vec::new(),
            errors,
            control_plane,
        }),
    };
    source.handle_upstream(0, Input::Received(response), NOW);
    let mut told = Vec::new();
    while let Some(output) = source.poll_output() {
        if let SourceOutput::Upstream(0, upstream::Output::Event(Event::SameVersion { contents, .. })) =
            output
        {
            told.extend(contents.into_iter().map(|(name, _)| name.to_string()));
        }
    }
    told
}

fn received(word: &str) -> Received {
    let (name, rest) = word.split_once('=').unwrap();
    let (version, content) = rest.split_once('/').unwrap();
    let resource = Resource {
        name: name.into(),
        version: Version(content.parse().unwrap()),
        body: Any { type_url: clusters().shared(), value: Bytes::new() },
        aliases: Box::default(),
        ttl: None,
        do_not_cache: false,
        body_has_name: true,
        metadata: None,
        endpoints: None,
        constraints: None,
    };
    let resource = Some(Arc::new(resource));
    Received { name: name.into(), upstream_version: version.into(), resource, ttl: None }
}

fn names(list: &str) -> Collection {
    Collection::Names(Arc::new(NameSet::of(list.split_whitespace().map(ResourceName::new), HashSeed(7))))
}

#[test]
fn fu_20_other_bytes_under_the_same_version_are_told_and_used() {
    for variant in [Variant::Sotw, Variant::Delta] {
        for collection in [Collection::Wildcard, names("a b")] {
            let mut source = source(variant, &collection);
            let mut says = |list: &str| says(&mut source, variant, list);
            assert_eq!(says("a=7/1 b=7/1"), [""; 0], "nothing was held");
            assert_eq!(says("a=7/1 b=7/1"), [""; 0], "the same bytes");
            assert_eq!(says("a=8/2 b=7/2"), ["b"]);
            assert_eq!(says("a=8/3 b=7/3"), ["a", "b"], "each time, beside what came last");
            assert_eq!(says("a=/4 b=/4"), [""; 0]);
            assert_eq!(says("a=/5 b=/5"), [""; 0], "no version says nothing");
            let snapshot = source.take_snapshot().unwrap();
            let types = snapshot.of(&clusters()).unwrap();
            let held = types.names.entries.get("a").and_then(|known| known.resource());
            let member = || types.wildcard.members.get("a").map(|cached| &cached.resource);
            let held = held.or_else(member).unwrap();
            assert_eq!(held.version, Version(5));
        }
    }
}

#[test]
fn fu_20_members_of_globs_are_compared() {
    let glob = "xdstp://x/envoy.config.cluster.v3.Cluster/*";
    let globs = Collection::Globs(Arc::new(NameSet::of([glob.into()], HashSeed(7))));
    let mut source = source(Variant::Delta, &globs);
    let member = "xdstp://x/envoy.config.cluster.v3.Cluster/a";
    assert_eq!(says(&mut source, Variant::Delta, &format!("{member}=7/1")), [""; 0]);
    assert_eq!(says(&mut source, Variant::Delta, &format!("{member}=7/2")), [member]);
}

#[test]
fn wav_8_no_version_is_claimed_for_content_that_the_server_has_replaced() {
    let mut source = source(Variant::Delta, &Collection::Wildcard);
    says(&mut source, Variant::Delta, "a=7/1 b=7/2");
    let stable = source.snapshot().clone();
    says(&mut source, Variant::Delta, "a=8/3");
    let versions = source.image(NOW).serving(&stable).versions;
    assert_eq!(versions[&(clusters(), CollectionKind::Wildcard)], [("b".into(), "7".into())]);
}
