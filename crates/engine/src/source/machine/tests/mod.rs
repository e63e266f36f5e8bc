//! Transcripts of a source.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod attachments;
mod bound;
mod checkpoint;
mod commons;
mod configure;
mod do_not_cache;
mod mass_deletion;
mod mass_deletion_files;
mod private;
mod received_at;
mod silence;
mod silence_server;
mod suspects;
mod unasked;
mod versions;

use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::cache::Known;
use crate::class::NameStyle;
use crate::collection::{Collection, CollectionKind, HashSeed, NameSet};
use crate::source::{CollectionKey, Files, Streams};
use crate::upstream::{Cause, Changes, Transport, UpstreamSettings};
use sluice_xds::{Any, Code, ResourceName, Status, Variant, Version};

const EDS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";
const CDS: &str = "envoy.config.cluster.v3.Cluster";
const SDS: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";

struct Bench {
    source: Source,
    now: Time,
}

fn url(message: &str) -> TypeUrl {
    TypeUrl::of_message(message)
}

/// `a=1 b=2`; the content is a number.
fn resources(message: &str, list: &str) -> Vec<Arc<Resource>> {
    let words = list.split_whitespace().filter_map(|word| word.split_once('='));
    let make = |(name, content): (&str, &str)| Resource {
        name: name.into(),
        version: Version(content.parse().unwrap()),
        body: Any { type_url: url(message).shared(), value: Bytes::from(vec![0; 1000]) },
        aliases: Box::default(),
        ttl: None,
        do_not_cache: false,
        body_has_name: true,
        metadata: None,
        endpoints: None,
        constraints: None,
    };
    words.map(make).map(Arc::new).collect()
}

fn set(list: &str) -> Collection {
    let names = list.split_whitespace().map(ResourceName::new);
    Collection::Names(Arc::new(NameSet::of(names, HashSeed(7))))
}

const NAMES: CollectionKey = CollectionKind::Names.key(NameStyle::Old);

impl Bench {
    fn new(attachment: Attachment, settings: SourceSettings) -> Bench {
        Bench { source: Source::new(1, settings, attachment), now: Time::from_micros(1_000_000) }
    }

    fn files(state: &[(&str, &str)]) -> Bench {
        let mut bench = Bench::new(Attachment::Files(Files::default()), SourceSettings::default());
        bench.state(state);
        bench
    }

    fn streams() -> Bench {
        let streams = Streams::new(UpstreamSettings::default());
        Bench::new(Attachment::Streams(Box::new(streams)), SourceSettings::default())
    }

    fn state(&mut self, state: &[(&str, &str)]) {
        let state = state.iter().map(|(message, list)| (url(message), resources(message, list))).collect();
        self.source.handle_files(state, self.now);
    }

    fn says(&mut self, message: &str, kind: CollectionKind, list: &str, complete: bool) {
        let absent = list.split_whitespace().filter_map(|word| word.strip_prefix('-'));
        let changes = Changes {
            type_url: url(message),
            kind,
            present: resources(message, list),
            by_alias: Vec::new(),
            unasked: Vec::new(),
            absent: absent.map(|name| (name.into(), Cause::Removed)).collect(),
            refreshed: Vec::new(),
            replaces: complete,
            complete,
            settled: Vec::new(),
        };
        self.source.handle_changes(changes, self.now);
    }

    fn watch(&mut self, session: u64, message: &str, list: &str) {
        let collection = if list == "*" { Collection::Wildcard } else { set(list) };
        self.source.watch(SessionId(session), &url(message), &collection, self.now);
    }

    fn unwatch(&mut self, session: u64, message: &str, key: CollectionKey) {
        self.source.unwatch(SessionId(session), &url(message), key, self.now);
    }

    fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        while let Some(due) = self.source.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.source.handle_timeout(self.now);
        }
        self.now = end;
    }

    fn woken(&mut self) -> Vec<u64> {
        let mut woken = Vec::new();
        while let Some(output) = self.source.poll_output() {
            if let SourceOutput::Wake(sessions) = output {
                woken.extend(sessions.iter().map(|session| session.0));
            }
        }
        woken
    }

    /// The view of a set in the current snapshot: `a=1 -b ?1`.
    fn view(&self, message: &str, list: &str) -> String {
        let Some(types) = self.source.publication.snapshot.of(&url(message)) else {
            return "none".to_owned();
        };
        let collection = if list == "*" { Collection::Wildcard } else { set(list) };
        let Some(view) = types.view(&collection) else { return "none".to_owned() };
        let mut words: Vec<_> =
            view.names().map(|name| format!("{name}={}", { view.version_of(name).unwrap().0 })).collect();
        let absent = list.split_whitespace().filter(|name| view.knows_absent(&ResourceName::new(name)));
        words.extend(absent.map(|name| format!("-{name}")));
        if !view.is_complete() {
            words.push(format!("?{}", view.unknown_len()));
        }
        // Every name of a view has its body in the same snapshot, with the same version.
        for name in view.names() {
            assert_eq!(types.body(collection.kind(), name).map(|body| body.version), view.version_of(name));
        }
        words.join(" ")
    }
}

#[test]
fn fil_8_a_directory_says_all_there_is_to_know() {
    let mut bench = Bench::new(Attachment::Files(Files::default()), SourceSettings::default());
    bench.watch(1, EDS, "a b");
    bench.watch(2, EDS, "*");
    assert_eq!(bench.view(EDS, "a b"), "?2", "nothing is known before the first state");
    assert_eq!(bench.view(EDS, "*"), "?1");
    bench.state(&[(EDS, "a=1 c=1"), (CDS, "x=1")]);
    assert_eq!(bench.view(EDS, "a b"), "a=1 -b");
    assert_eq!(bench.view(EDS, "*"), "a=1 c=1");
    bench.state(&[(EDS, "b=1")]);
    assert_eq!(bench.view(EDS, "a b"), "b=1 -a");
    assert_eq!(bench.view(EDS, "*"), "b=1");
    bench.watch(3, CDS, "*");
    assert_eq!(bench.view(CDS, "*"), "", "a type without a file is known to be empty");
}

#[test]
fn rly_54_only_those_who_want_it_are_woken_and_gathered() {
    let mut bench = Bench::files(&[(EDS, "a=1 b=1")]);
    bench.watch(1, EDS, "a");
    bench.watch(2, EDS, "a");
    bench.watch(3, EDS, "b");
    bench.watch(4, EDS, "*");
    assert!(bench.woken().contains(&3), "a first answer is never gathered");
    bench.advance(Duration::from_secs(1));
    bench.woken();
    bench.state(&[(EDS, "a=2 b=1")]);
    assert_eq!(bench.woken(), [1, 2, 4]);
    bench.state(&[(EDS, "a=2 b=2")]);
    bench.state(&[(EDS, "a=3 b=3")]);
    assert_eq!(bench.woken(), [] as [u64; 0]);
    bench.advance(Duration::from_millis(10));
    assert_eq!(bench.woken(), [1, 2, 3, 4], "each once");
    bench.advance(Duration::from_secs(1));
    bench.state(&[(EDS, "a=3 b=3")]);
    assert_eq!(bench.woken(), [] as [u64; 0], "RLY-36");
}

#[test]
fn rly_58_a_set_is_shared_and_another_one_is_made_of_what_is_known() {
    let mut bench = Bench::streams();
    bench.watch(1, EDS, "a b");
    bench.says(EDS, CollectionKind::Names, "a=1 -b", false);
    bench.watch(2, EDS, "b a");
    assert_eq!(bench.view(EDS, "a b"), "a=1 -b");
    bench.watch(3, EDS, "a c");
    assert_eq!(bench.view(EDS, "a c"), "a=1 ?1");
    bench.says(EDS, CollectionKind::Names, "b=1 c=1 zzz=1", false);
    assert_eq!((bench.view(EDS, "a b"), bench.view(EDS, "a c")), ("a=1 b=1".into(), "a=1 c=1".into()));
    let (_, counts, wildcard) = bench.source.types().next().unwrap();
    assert_eq!((counts.present, counts.absent, counts.unknown), (3, 0, 0), "RLY-61: zzz is not wanted");
    assert!(wildcard.is_none());
}

#[test]
fn a_set_that_one_of_several_leaves_stays_as_it_was() {
    let mut bench = Bench::files(&[(EDS, "a=1 b=1 c=1")]);
    bench.watch(1, EDS, "a b");
    bench.watch(2, EDS, "a b");
    bench.watch(1, EDS, "a b c");
    assert_eq!((bench.view(EDS, "a b"), bench.view(EDS, "a b c")), ("a=1 b=1".into(), "a=1 b=1 c=1".into()));
    // A session that is alone in its set changes the set.
    bench.watch(1, EDS, "c");
    assert_eq!((bench.view(EDS, "c"), bench.view(EDS, "a b c")), ("c=1".into(), "none".into()));
    // The session joins another set.
    bench.watch(1, EDS, "a b");
    assert_eq!(bench.view(EDS, "c"), "none");
    bench.unwatch(2, EDS, NAMES);
    assert_eq!(bench.view(EDS, "a b"), "a=1 b=1");
    bench.state(&[(EDS, "a=2")]);
    assert_eq!(bench.view(EDS, "a b"), "a=2 -b");
    bench.unwatch(1, EDS, NAMES);
    assert_eq!(bench.view(EDS, "a b"), "none");
}

#[test]
fn rly_60_names_linger_are_kept_up_and_are_revived() {
    let mut bench = Bench::streams();
    bench.watch(1, EDS, "a b");
    bench.says(EDS, CollectionKind::Names, "a=1 b=1", false);
    bench.source.forget(SessionId(1), bench.now);
    assert!(bench.source.lingering_bytes() > 2000);
    // RLY-59: a lingering name stays subscribed, so its content follows.
    bench.says(EDS, CollectionKind::Names, "a=2 -b", false);
    bench.advance(Duration::from_secs(29));
    bench.watch(2, EDS, "a");
    assert_eq!(bench.view(EDS, "a"), "a=2");
    assert!(bench.source.lingering_bytes() < 2000, "what is watched does not count");
    // N3: a revived name is not freed with the others.
    bench.advance(Duration::from_secs(2));
    assert_eq!(bench.view(EDS, "a"), "a=2");
    assert!(matches!(
        bench.source.publication.snapshot.of(&url(EDS)).unwrap().names.entries.get("a"),
        Some(Known::Present(_))
    ));
    assert!(bench.source.publication.snapshot.of(&url(EDS)).unwrap().names.entries.get("b").is_none());
    assert_eq!(bench.source.lingering_bytes(), 0);
    // RLY-61: a freed name is unknown.
    bench.says(EDS, CollectionKind::Names, "b=9", false);
    bench.watch(3, EDS, "b");
    assert_eq!(bench.view(EDS, "b"), "?1");
}

#[test]
fn rly_60_secrets_go_at_once() {
    let mut bench = Bench::streams();
    bench.watch(1, SDS, "s");
    bench.watch(1, SDS, "*");
    bench.says(SDS, CollectionKind::Names, "s=1", false);
    bench.source.forget(SessionId(1), bench.now);
    assert_eq!(bench.source.poll_timeout(), Some(bench.now));
    bench.advance(Duration::ZERO);
    assert!(bench.source.is_idle());
}

/// RLY-60: the bytes go at once, the stream stays for clients that return.
#[test]
fn rly_60_a_secret_that_comes_and_goes_leaves_its_stream_open() {
    let mut bench = Bench::streams();
    bench.watch(1, SDS, "s");
    bench.source.handle_upstream(0, upstream::Input::Opened, bench.now);
    assert_eq!(bench.done(), ["0 None Delta"]);
    for _ in 0..20 {
        bench.says(SDS, CollectionKind::Names, "s=1", false);
        bench.unwatch(1, SDS, NAMES);
        bench.advance(Duration::from_secs(5));
        assert_eq!((bench.view(SDS, "s"), bench.done()), ("none".to_owned(), Vec::new()));
        bench.watch(1, SDS, "s");
        assert_eq!(bench.view(SDS, "s"), "?1", "nothing was kept");
    }
    bench.unwatch(1, SDS, NAMES);
    bench.advance(Duration::from_secs(29));
    assert_eq!((bench.done(), bench.source.is_idle()), (Vec::new(), false));
    bench.advance(Duration::from_secs(1));
    assert_eq!((bench.done(), bench.source.is_idle()), (vec!["0 closed".to_owned()], true));
}

#[test]
fn rly_46_of_a_lost_server_names_with_content_are_kept_and_others_go() {
    let mut bench = Bench::streams();
    bench.source.watch(SessionId(1), &url(EDS), &set("a b"), bench.now);
    let status = Status::new(Code::Unavailable, "refused");
    bench.says(EDS, CollectionKind::Names, "a=1", false);
    bench.source.handle_upstream(0, upstream::Input::ConnectFailed { status }, bench.now);
    bench.source.forget(SessionId(1), bench.now);
    bench.now = bench.now + Duration::from_secs(31);
    bench.source.handle_timeout(bench.now);
    let snapshot = bench.source.take_snapshot().unwrap();
    let names = &snapshot.of(&url(EDS)).unwrap().names.entries;
    assert_eq!(names.keys().map(ResourceName::as_str).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn what_lingers_has_a_bound() {
    let settings = SourceSettings { unwatched_bytes: 4200, ..SourceSettings::default() };
    let streams = Attachment::Streams(Box::new(Streams::new(UpstreamSettings::default())));
    let mut bench = Bench::new(streams, settings);
    for (session, name) in [(1, "a"), (2, "b"), (3, "c")] {
        bench.watch(session, EDS, name);
        bench.says(EDS, CollectionKind::Names, &format!("{name}=1"), false);
        bench.source.forget(SessionId(session), bench.now);
        bench.advance(Duration::from_millis(1));
    }
    assert!(bench.source.lingering_bytes() <= 4200);
    bench.watch(4, EDS, "a b c");
    assert_eq!(bench.view(EDS, "a b c"), "b=1 c=1 ?1", "the oldest went");
}

#[test]
fn a_wildcard_that_is_watched_again_is_what_it_was() {
    let mut bench = Bench::streams();
    bench.watch(1, CDS, "*");
    bench.says(CDS, CollectionKind::Wildcard, "a=1 b=1", true);
    bench.unwatch(1, CDS, CollectionKey::WILDCARD);
    bench.says(CDS, CollectionKind::Wildcard, "a=2", true);
    bench.advance(Duration::from_secs(29));
    bench.watch(2, CDS, "*");
    assert_eq!((bench.view(CDS, "*"), bench.source.lingering_bytes()), ("a=2".into(), 0));
    bench.advance(Duration::from_secs(60));
    assert_eq!(bench.view(CDS, "*"), "a=2");
    bench.says(CDS, CollectionKind::Wildcard, "a=3", true);
    assert!(bench.woken().contains(&2));
    bench.unwatch(2, CDS, CollectionKey::WILDCARD);
    bench.advance(Duration::from_secs(30));
    assert!(bench.source.is_idle());
    bench.watch(3, CDS, "*");
    assert_eq!(bench.view(CDS, "*"), "?1", "it begins anew");
}

#[test]
fn i7b_a_response_is_applied_as_one_step() {
    let mut bench = Bench::streams();
    bench.watch(1, CDS, "*");
    bench.says(CDS, CollectionKind::Wildcard, "a=1 b=1 c=1", true);
    bench.source.take_snapshot();
    let before = bench.source.publication.snapshot.of(&url(CDS)).unwrap().wildcard.clone().view.unwrap();
    bench.says(CDS, CollectionKind::Wildcard, "a=2 d=1", true);
    let snapshot = bench.source.take_snapshot().unwrap();
    assert_eq!(bench.view(CDS, "*"), "a=2 d=1");
    assert!(bench.source.take_snapshot().is_none());
    assert_eq!(
        (before.len(), snapshot.of(&url(CDS)).unwrap().wildcard.members.len()),
        (3, 2),
        "the old view stands"
    );
}

#[test]
fn rly_13_wildcard_and_names_are_two_caches() {
    let mut bench = Bench::streams();
    bench.watch(1, CDS, "*");
    bench.watch(1, CDS, "a b");
    bench.says(CDS, CollectionKind::Wildcard, "a=1", true);
    assert_eq!((bench.view(CDS, "*"), bench.view(CDS, "a b")), ("a=1".into(), "?2".into()));
    bench.says(CDS, CollectionKind::Names, "b=1 -a", false);
    assert_eq!((bench.view(CDS, "*"), bench.view(CDS, "a b")), ("a=1".into(), "b=1 -a".into()));
}

#[test]
fn i16_when_all_have_gone_nothing_is_left() {
    let mut bench = Bench::streams();
    for session in 0..50 {
        bench.watch(session, EDS, &format!("n{} n{} shared", session, session % 7));
        bench.watch(session, CDS, "*");
        bench.watch(session, EDS, &format!("n{} shared", session % 5));
    }
    bench.says(EDS, CollectionKind::Names, "shared=1 n1=1 -n2", false);
    bench.says(CDS, CollectionKind::Wildcard, "a=1", true);
    for session in 0..50 {
        if session % 2 == 0 {
            bench.unwatch(session, EDS, NAMES);
            bench.unwatch(session, EDS, NAMES);
            bench.unwatch(session, CDS, CollectionKey::WILDCARD);
        }
        bench.source.forget(SessionId(session), bench.now);
        bench.source.forget(SessionId(session), bench.now);
    }
    assert!(!bench.source.is_idle());
    bench.advance(Duration::from_secs(31));
    assert!(bench.source.is_idle());
    assert_eq!((bench.source.lingering_bytes(), bench.source.sessions.len()), (0, 0));
    assert_eq!(bench.source.publication.snapshot.types().count(), 0);
    assert_eq!(bench.source.poll_timeout(), None);
}
