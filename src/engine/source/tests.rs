//! Transcripts of a source.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod guard;
mod suspects;
mod versions;

use bytes::Bytes;

use super::*;
use crate::engine::cache::Known;
use crate::engine::interest::HashSeed;
use crate::engine::upstream::{Settings as StreamSettings, Transport};
use crate::xds::{Any, Code, Status, Variant, Version};

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
        metadata: None,
        endpoints: None,
        constraints: None,
    };
    words.map(make).map(Arc::new).collect()
}

fn set(list: &str) -> Interest {
    let names = list.split_whitespace().map(ResourceName::new);
    Interest::Names(Arc::new(NameSet::of(names, HashSeed(7))))
}

const NAMES: Collection = Collection::Names(NameStyle::Old);

impl Bench {
    fn new(attachment: Attachment, settings: Settings) -> Bench {
        Bench { source: Source::new(1, settings, attachment), now: Time::from_micros(1_000_000) }
    }

    fn files(state: &[(&str, &str)]) -> Bench {
        let mut bench = Bench::new(Attachment::Files(Files::default()), Settings::default());
        bench.state(state);
        bench
    }

    fn streams() -> Bench {
        let streams = Streams::new(StreamSettings::default());
        Bench::new(Attachment::Streams(Box::new(streams)), Settings::default())
    }

    fn state(&mut self, state: &[(&str, &str)]) {
        let state = state.iter().map(|(message, list)| (url(message), resources(message, list))).collect();
        self.source.handle_files(state, self.now);
    }

    fn says(&mut self, message: &str, scope: Scope, list: &str, complete: bool) {
        let absent = list.split_whitespace().filter_map(|word| word.strip_prefix('-'));
        let changes = Changes {
            type_url: url(message),
            scope,
            present: resources(message, list),
            by_alias: Vec::new(),
            absent: absent.map(|name| (name.into(), Cause::Removed)).collect(),
            refreshed: Vec::new(),
            replaces: complete,
            complete,
            settled: Vec::new(),
        };
        self.source.handle_changes(changes, self.now);
    }

    fn watch(&mut self, session: u64, message: &str, list: &str) {
        let interest = if list == "*" { Interest::Wildcard } else { set(list) };
        self.source.watch(SessionId(session), &url(message), &interest, self.now);
    }

    fn unwatch(&mut self, session: u64, message: &str, collection: Collection) {
        self.source.unwatch(SessionId(session), &url(message), collection, self.now);
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
            if let Output::Wake(sessions) = output {
                woken.extend(sessions.iter().map(|session| session.0));
            }
        }
        woken
    }

    /// The view of a set in the current snapshot: `a=1 -b ?1`.
    fn view(&self, message: &str, list: &str) -> String {
        let Some(types) = self.source.snapshot.of(&url(message)) else { return "none".to_owned() };
        let interest = if list == "*" { Interest::Wildcard } else { set(list) };
        let Some(view) = types.view(&interest) else { return "none".to_owned() };
        let mut words: Vec<_> =
            view.names().map(|name| format!("{name}={}", view.version_of(name).unwrap().0)).collect();
        let absent = list.split_whitespace().filter(|name| view.knows_absent(&ResourceName::new(name)));
        words.extend(absent.map(|name| format!("-{name}")));
        if !view.is_complete() {
            words.push(format!("?{}", view.unknown_len()));
        }
        // Every name of a view has its body in the same snapshot, with the same version.
        for name in view.names() {
            assert_eq!(types.body(interest.leaving(), name).map(|body| body.version), view.version_of(name));
        }
        words.join(" ")
    }
}

#[test]
fn fil_8_a_directory_says_all_there_is_to_know() {
    let mut bench = Bench::new(Attachment::Files(Files::default()), Settings::default());
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
    bench.says(EDS, Scope::Names, "a=1 -b", false);
    bench.watch(2, EDS, "b a");
    assert_eq!(bench.view(EDS, "a b"), "a=1 -b");
    bench.watch(3, EDS, "a c");
    assert_eq!(bench.view(EDS, "a c"), "a=1 ?1");
    bench.says(EDS, Scope::Names, "b=1 c=1 zzz=1", false);
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
    bench.says(EDS, Scope::Names, "a=1 b=1", false);
    bench.source.forget(SessionId(1), bench.now);
    assert!(bench.source.lingering_bytes() > 2000);
    // RLY-59: a lingering name stays subscribed, so its content follows.
    bench.says(EDS, Scope::Names, "a=2 -b", false);
    bench.advance(Duration::from_secs(29));
    bench.watch(2, EDS, "a");
    assert_eq!(bench.view(EDS, "a"), "a=2");
    assert!(bench.source.lingering_bytes() < 2000, "what is watched does not count");
    // N3: a revived name is not freed with the others.
    bench.advance(Duration::from_secs(2));
    assert_eq!(bench.view(EDS, "a"), "a=2");
    assert!(matches!(bench.source.snapshot.of(&url(EDS)).unwrap().named.get("a"), Some(Known::Present(_))));
    assert!(bench.source.snapshot.of(&url(EDS)).unwrap().named.get("b").is_none());
    assert_eq!(bench.source.lingering_bytes(), 0);
    // RLY-61: a freed name is unknown.
    bench.says(EDS, Scope::Names, "b=9", false);
    bench.watch(3, EDS, "b");
    assert_eq!(bench.view(EDS, "b"), "?1");
}

#[test]
fn rly_60_secrets_go_at_once() {
    let mut bench = Bench::streams();
    bench.watch(1, SDS, "s");
    bench.watch(1, SDS, "*");
    bench.says(SDS, Scope::Names, "s=1", false);
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
        bench.says(SDS, Scope::Names, "s=1", false);
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
    bench.says(EDS, Scope::Names, "a=1", false);
    bench.source.handle_upstream(0, upstream::Input::ConnectFailed { status }, bench.now);
    bench.source.forget(SessionId(1), bench.now);
    bench.now = bench.now + Duration::from_secs(31);
    bench.source.handle_timeout(bench.now);
    let snapshot = bench.source.take_snapshot().unwrap();
    let names = &snapshot.of(&url(EDS)).unwrap().named;
    assert_eq!(names.keys().map(ResourceName::as_str).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn what_lingers_has_a_bound() {
    let settings = Settings { unwatched_bytes: 4200, ..Settings::default() };
    let streams = Attachment::Streams(Box::new(Streams::new(StreamSettings::default())));
    let mut bench = Bench::new(streams, settings);
    for (session, name) in [(1, "a"), (2, "b"), (3, "c")] {
        bench.watch(session, EDS, name);
        bench.says(EDS, Scope::Names, &format!("{name}=1"), false);
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
    bench.says(CDS, Scope::Wildcard, "a=1 b=1", true);
    bench.unwatch(1, CDS, Collection::Wildcard);
    bench.says(CDS, Scope::Wildcard, "a=2", true);
    bench.advance(Duration::from_secs(29));
    bench.watch(2, CDS, "*");
    assert_eq!((bench.view(CDS, "*"), bench.source.lingering_bytes()), ("a=2".into(), 0));
    bench.advance(Duration::from_secs(60));
    assert_eq!(bench.view(CDS, "*"), "a=2");
    bench.says(CDS, Scope::Wildcard, "a=3", true);
    assert!(bench.woken().contains(&2));
    bench.unwatch(2, CDS, Collection::Wildcard);
    bench.advance(Duration::from_secs(30));
    assert!(bench.source.is_idle());
    bench.watch(3, CDS, "*");
    assert_eq!(bench.view(CDS, "*"), "?1", "it begins anew");
}

#[test]
fn i7b_a_response_is_applied_as_one_step() {
    let mut bench = Bench::streams();
    bench.watch(1, CDS, "*");
    bench.says(CDS, Scope::Wildcard, "a=1 b=1 c=1", true);
    bench.source.take_snapshot();
    let before = bench.source.snapshot.of(&url(CDS)).unwrap().wildcard.clone().unwrap();
    bench.says(CDS, Scope::Wildcard, "a=2 d=1", true);
    let snapshot = bench.source.take_snapshot().unwrap();
    assert_eq!(bench.view(CDS, "*"), "a=2 d=1");
    assert!(bench.source.take_snapshot().is_none());
    assert_eq!((before.len(), snapshot.of(&url(CDS)).unwrap().members.len()), (3, 2), "the old view stands");
}

#[test]
fn rly_13_wildcard_and_names_are_two_caches() {
    let mut bench = Bench::streams();
    bench.watch(1, CDS, "*");
    bench.watch(1, CDS, "a b");
    bench.says(CDS, Scope::Wildcard, "a=1", true);
    assert_eq!((bench.view(CDS, "*"), bench.view(CDS, "a b")), ("a=1".into(), "?2".into()));
    bench.says(CDS, Scope::Names, "b=1 -a", false);
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
    bench.says(EDS, Scope::Names, "shared=1 n1=1 -n2", false);
    bench.says(CDS, Scope::Wildcard, "a=1", true);
    for session in 0..50 {
        if session % 2 == 0 {
            bench.unwatch(session, EDS, NAMES);
            bench.unwatch(session, EDS, NAMES);
            bench.unwatch(session, CDS, Collection::Wildcard);
        }
        bench.source.forget(SessionId(session), bench.now);
        bench.source.forget(SessionId(session), bench.now);
    }
    assert!(!bench.source.is_idle());
    bench.advance(Duration::from_secs(31));
    assert!(bench.source.is_idle());
    assert_eq!((bench.source.lingering_bytes(), bench.source.sessions.len()), (0, 0));
    assert_eq!(bench.source.snapshot.types().count(), 0);
    assert_eq!(bench.source.poll_timeout(), None);
}

fn per_type(variant: Variant, transport: Transport) -> Bench {
    let settings = StreamSettings { transport, variant, ..StreamSettings::default() };
    Bench::new(Attachment::Streams(Box::new(Streams::new(settings))), Settings::default())
}

impl Bench {
    /// The actions for the driver: streams opened with their types, and types without a service.
    fn done(&mut self) -> Vec<String> {
        let mut done = Vec::new();
        while let Some(output) = self.source.poll_output() {
            let Attachment::Streams(streams) = &self.source.attachment else { panic!("files") };
            done.extend(match output {
                Output::Upstream(index, upstream::Output::Open { variant, .. }) => {
                    Some(format!("{index} {:?} {variant:?}", streams.type_of(index)))
                }
                Output::Upstream(index, upstream::Output::Close) => Some(format!("{index} closed")),
                Output::Unserved(type_url) => Some(format!("unserved {type_url:?}")),
                _ => None,
            });
        }
        done
    }
}

#[test]
fn rpc_2_rly_13_each_type_has_a_stream_for_its_names_and_one_for_its_wildcard() {
    let mut bench = per_type(Variant::Delta, Transport::PerType);
    bench.watch(1, EDS, "a");
    bench.watch(2, EDS, "b");
    bench.watch(1, CDS, "*");
    bench.watch(1, CDS, "x");
    let opened = ["0 Some(ClusterLoadAssignment) Delta", "1 Some(Cluster) Delta", "2 Some(Cluster) Delta"];
    assert_eq!(bench.done(), opened);
    bench.unwatch(1, CDS, Collection::Wildcard);
    bench.advance(Duration::from_secs(30));
    assert_eq!(bench.done(), ["1 closed"]);
    bench.watch(3, CDS, "*");
    assert_eq!(bench.done(), ["1 Some(Cluster) Delta"], "the stream's place is taken again");
    for session in 1..4 {
        bench.source.forget(SessionId(session), bench.now);
    }
    bench.advance(Duration::from_secs(31));
    assert!(bench.source.is_idle());
}

#[test]
fn rly_2_a_type_without_a_service_stays_unknown() {
    const VHDS: &str = "envoy.config.route.v3.VirtualHost";
    const ACME: &str = "acme.Anything";
    let rest = Transport::Rest { refresh_delay: Duration::from_secs(1) };
    for (variant, transport, unserved) in [
        (Variant::Delta, Transport::PerType, &["unserved Anything"][..]),
        (Variant::Sotw, Transport::PerType, &["unserved VirtualHost", "unserved Anything"]),
        (Variant::Sotw, rest, &["unserved VirtualHost", "unserved Anything"]),
    ] {
        let mut bench = per_type(variant, transport);
        bench.watch(1, VHDS, "a");
        bench.watch(1, ACME, "a");
        let done: Vec<_> = bench.done().into_iter().filter(|line| line.starts_with("unserved")).collect();
        assert_eq!(done, unserved, "{transport:?}");
        bench.advance(Duration::from_secs(3600));
        assert_eq!(bench.view(ACME, "a"), "?1");
        bench.source.forget(SessionId(1), bench.now);
        bench.advance(Duration::from_secs(31));
        assert!(bench.source.is_idle());
    }
}

#[test]
fn rly_2_globs_of_a_type_without_a_service_are_told_too() {
    let mut bench = per_type(Variant::Delta, Transport::PerType);
    let glob = ResourceName::new("xdstp://x/acme.Anything/*");
    let globs = Interest::Globs(Arc::new(NameSet::of([glob], HashSeed(7))));
    bench.source.watch(SessionId(1), &url("acme.Anything"), &globs, bench.now);
    assert_eq!(bench.done(), ["unserved Anything"]);
}

/// RLY-25, per type: VHDS has no other variant for a fallback.
#[test]
fn rly_25_delta_refused_is_sotw_for_the_types_that_have_it() {
    let mut bench = per_type(Variant::Delta, Transport::PerType);
    bench.watch(1, EDS, "a");
    bench.watch(1, "envoy.config.route.v3.VirtualHost", "r/a");
    bench.done();
    for stream in 0..2 {
        bench.source.handle_upstream(stream, upstream::Input::Opened, bench.now);
        let status = Status::new(Code::Unimplemented, "");
        bench.source.handle_upstream(stream, upstream::Input::Closed { status, jitter: 0.5 }, bench.now);
    }
    assert_eq!(bench.done(), ["0 Some(ClusterLoadAssignment) Sotw"]);
    bench.advance(Duration::from_secs(1));
    assert_eq!(bench.done(), ["1 Some(VirtualHost) Delta"]);
}

#[test]
fn a_type_is_current_when_every_stream_that_carries_it_has_been_answered() {
    let streams = Streams::new(StreamSettings::default());
    let settings = Settings { tells_reach: true, ..Settings::default() };
    let mut bench = Bench::new(Attachment::Streams(Box::new(streams)), settings);
    let is_current = |bench: &Bench| bench.source.snapshot.of(&url(CDS)).unwrap().is_current;
    let answer = |bench: &mut Bench, stream: StreamIndex| {
        let response = crate::xds::DeltaResponse {
            system_version_info: String::new(),
            type_url: url(CDS),
            nonce: "n".into(),
            resources: Vec::new(),
            removed: Vec::new(),
            errors: Vec::new(),
            control_plane: String::new(),
        };
        let response = upstream::Input::Received(crate::xds::Response::Delta(response));
        bench.source.handle_upstream(stream, response, bench.now);
        bench.source.handle_upstream(stream, upstream::Input::Returned, bench.now);
    };
    bench.watch(1, CDS, "*");
    bench.watch(2, CDS, "a b");
    for stream in 0..2 {
        bench.source.handle_upstream(stream, upstream::Input::Opened, bench.now);
    }
    answer(&mut bench, 0);
    assert!(!is_current(&bench), "the names are on another stream");
    let covers = |interest| bench.source.snapshot.of(&url(CDS)).unwrap().is_current_for(&interest);
    assert!(covers(Interest::Wildcard) && !covers(set("a")), "each speaks for itself");
    bench.woken();
    answer(&mut bench, 1);
    assert!(is_current(&bench));
    assert!(bench.source.take_snapshot().is_some());
    bench.advance(Duration::from_millis(10));
    assert_eq!(
        bench.woken(),
        [1, 2, 1, 2],
        "that the server is heard, and that the type is current, and nothing else"
    );

    let closed = upstream::Input::Closed { status: Status::ok(), jitter: 0.0 };
    bench.source.handle_upstream(0, closed, bench.now);
    assert!(!is_current(&bench));
    assert!(bench.source.take_snapshot().is_some());
    bench.advance(Duration::from_millis(10));
    assert_eq!(bench.woken(), [] as [u64; 0], "what they have stays");
}

#[test]
fn files_are_current_once_they_are_read() {
    let mut bench = Bench::new(Attachment::Files(Files::default()), Settings::default());
    bench.watch(1, CDS, "*");
    assert!(!bench.source.snapshot.of(&url(CDS)).unwrap().is_current);
    bench.state(&[(EDS, "a=1")]);
    assert!(bench.source.snapshot.of(&url(CDS)).unwrap().is_current);
}
