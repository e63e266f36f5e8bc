//! A source is saved, restored, and continues.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use bytes::Bytes;

use super::super::*;
use crate::cache::expiry::Leased;
use crate::collection::{Collection, CollectionKind, HashSeed, NameSet};
use crate::source::{Kept, RestoredType, Streams};
use crate::upstream::Input;
use crate::upstream::{Transport, UpstreamSettings};
use sluice_xds::Variant;
use sluice_xds::{
    Any, Code, DeltaResponse, Received, Request, ResourceName, Response, SotwResponse, Status, Version,
};

const CDS: &str = "envoy.config.cluster.v3.Cluster";
const EDS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";
const SDS: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";
const SECOND: Duration = Duration::from_secs(1);

fn url(message: &str) -> TypeUrl {
    TypeUrl::of_message(message)
}

fn set(list: &str) -> Collection {
    if list == "*" {
        return Collection::Wildcard;
    }
    Collection::Names(Arc::new(NameSet::of(list.split_whitespace().map(ResourceName::new), HashSeed(7))))
}

/// `a=1`; the content is a number, the server's version is `v` and that number.
fn resource(message: &str, word: &str, ttl: Option<Duration>) -> Received {
    let (name, content) = word.split_once('=').unwrap();
    let resource = Resource {
        name: name.into(),
        version: Version(content.parse().unwrap()),
        body: Any { type_url: url(message).shared(), value: Bytes::from(vec![0; 100]) },
        aliases: Box::default(),
        ttl,
        do_not_cache: false,
        body_has_name: true,
        metadata: None,
        endpoints: None,
        constraints: None,
    };
    let upstream_version = format!("v{content}").into();
    Received { name: name.into(), upstream_version, resource: Some(Arc::new(resource)), ttl }
}

struct Bench {
    source: Source,
    now: Time,
    variant: Variant,
    /// Requests written, by stream.
    sent: Vec<(StreamIndex, Request)>,
    probes: Vec<StreamIndex>,
    opened: Vec<StreamIndex>,
    confirmed: bool,
}

impl Bench {
    fn new(variant: Variant) -> Bench {
        let settings = UpstreamSettings { variant, ..UpstreamSettings::default() };
        Bench::with(settings, SourceSettings::default())
    }

    fn with(streams: UpstreamSettings, settings: SourceSettings) -> Bench {
        let variant = streams.variant;
        let attachment = Attachment::Streams(Box::new(Streams::new(streams)));
        let source = Source::new(7, settings, attachment).of_server("cp".into(), true);
        let (sent, probes, opened) = Default::default();
        Bench { source, now: Time::from_micros(1_000_000), variant, sent, probes, opened, confirmed: false }
    }

    fn drain(&mut self) {
        while let Some(output) = self.source.poll_output() {
            match output {
                SourceOutput::Upstream(index, upstream::Output::Send { request, .. }) => {
                    self.sent.push((index, request))
                }
                SourceOutput::Upstream(index, upstream::Output::Probe) => self.probes.push(index),
                SourceOutput::Upstream(index, upstream::Output::RoundTrip) => {
                    self.source.handle_upstream(index, Input::Returned, self.now);
                }
                SourceOutput::Upstream(index, upstream::Output::Flush) => {
                    self.source.handle_upstream(index, Input::Flushed, self.now);
                }
                SourceOutput::Upstream(index, upstream::Output::Open { .. }) => self.opened.push(index),
                SourceOutput::Confirmed => self.confirmed = true,
                _ => {}
            }
        }
    }

    fn input(&mut self, index: StreamIndex, input: Input) {
        self.source.handle_upstream(index, input, self.now);
        self.drain();
    }

    fn watch(&mut self, session: u64, message: &str, list: &str) {
        self.source.watch(SessionId(session), &url(message), &set(list), self.now);
        self.drain();
    }

    fn open(&mut self) {
        for index in std::mem::take(&mut self.opened) {
            self.input(index, Input::Opened);
        }
    }

    /// `a=1 -b`: resources and removals.
    fn says_on(&mut self, index: StreamIndex, message: &str, list: &str) {
        let words = || list.split_whitespace();
        let resources =
            words().filter(|word| word.contains('=')).map(|word| Ok(resource(message, word, None)));
        let resources: Vec<_> = resources.collect();
        let removed = words().filter_map(|word| word.strip_prefix('-')).map(ResourceName::new).collect();
        let (type_url, nonce) = (url(message), "n".to_owned());
        let response = match self.variant {
            Variant::Sotw => Response::Sotw(SotwResponse {
                version_info: "1".into(),
                type_url,
                states_type: true,
                nonce,
                resources,
                errors: Vec::new(),
                control_plane: String::new(),
            }),
            Variant::Delta => Response::Delta(DeltaResponse {
                system_version_info: String::new(),
                type_url,
                nonce,
                resources,
                removed,
                errors: Vec::new(),
                control_plane: String::new(),
            }),
        };
        self.input(index, Input::Received(response));
    }

    fn says(&mut self, message: &str, list: &str) {
        self.says_on(0, message, list);
    }

    fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        while let Some(due) = self.source.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.source.handle_timeout(self.now);
            self.drain();
        }
        self.now = end;
    }

    /// `a=1 -b ?1`
    fn view(&self, message: &str, list: &str) -> String {
        let view = self.source.snapshot().of(&url(message)).and_then(|of| of.view(&set(list)));
        let Some(view) = view else { return "none".to_owned() };
        let mut words: Vec<_> =
            view.names().map(|name| format!("{name}={}", { view.version_of(name).unwrap().0 })).collect();
        let absent = list.split_whitespace().filter(|name| view.knows_absent(&ResourceName::new(name)));
        words.extend(absent.map(|name| format!("-{name}")));
        words.extend((!view.is_complete()).then(|| format!("?{}", view.unknown_len())));
        words.join(" ")
    }

    /// The source as a checkpoint would save and load it. Includes only the values that the checkpoint keeps.
    fn saved(&self) -> Vec<RestoredType> {
        let image = self.source.image(self.now);
        let kept =
            |type_url: &TypeUrl, kind: CollectionKind, name: &ResourceName, resource: &Arc<Resource>| {
                let versions = image.versions.get(&(type_url.clone(), kind));
                let version = versions.and_then(|list| list.iter().find(|(known, _)| known == name));
                let left = image.left.get(&Leased::new(type_url, kind, name)).map(|of| of.left);
                let server_version = version.map(|(_, version)| version.clone()).unwrap_or_default();
                Kept { name: name.clone(), resource: resource.clone(), server_version, left }
            };
        let types = image.snapshot.types().map(|(type_url, of)| {
            let names = of.names.entries.iter().filter_map(|(name, known)| Some((name, known.resource()?)));
            let is_whole = of.wildcard.is_whole();
            RestoredType {
                type_url: type_url.clone(),
                names: names
                    .map(|(name, resource)| kept(type_url, CollectionKind::Names, name, resource))
                    .collect(),
                wildcard: is_whole.then(|| {
                    let members = of.wildcard.members.iter();
                    members
                        .map(|(name, of)| kept(type_url, CollectionKind::Wildcard, name, &of.resource))
                        .collect()
                }),
                globs: Vec::new(),
            }
        });
        types.collect()
    }

    /// Another process with the saved source.
    fn restarted(&self) -> Bench {
        let mut again = Bench::new(self.variant);
        again.source.restore(&self.saved(), Duration::ZERO, again.now);
        again.drain();
        again
    }

    fn initial_versions(&self, message: &str) -> Vec<String> {
        let of = |(_, request): &(StreamIndex, Request)| match request {
            Request::Delta(request) if request.type_url == url(message).as_str() => {
                Some(request.initial_resource_versions.clone())
            }
            _ => None,
        };
        let first = self.sent.iter().find_map(of).unwrap_or_default();
        first.into_iter().map(|(name, version)| format!("{name}={version}")).collect()
    }
}

/// A source with clusters `a` and `b` from the wildcard, and endpoints `x` and `y` by name.
fn before(variant: Variant) -> Bench {
    let mut bench = Bench::new(variant);
    bench.watch(1, CDS, "*");
    bench.watch(1, EDS, "x y z");
    bench.open();
    bench.says(CDS, "a=1 b=2");
    bench.says(EDS, "x=1 y=2");
    bench
}

#[test]
fn rly_46_what_was_present_is_served_and_nothing_is_absent() {
    for variant in [Variant::Delta, Variant::Sotw] {
        let mut old = before(variant);
        old.advance(SECOND * 11);
        // The timer of the name has expired, but only this event confirms that the stream is alive.
        old.input(0, Input::Alive);
        assert_eq!(old.view(EDS, "x y z"), "x=1 y=2 -z");
        let mut again = old.restarted();
        assert!(again.source.is_restored());
        again.watch(1, CDS, "*");
        again.watch(1, EDS, "x y z");
        assert_eq!(again.view(CDS, "*"), "a=1 b=2", "the membership is known");
        assert_eq!(
            again.view(EDS, "x y z"),
            "x=1 y=2 ?1",
            "RLY-2: only its server says that z does not exist"
        );
        assert!(again.source.snapshot().standing().of(&url(CDS)).unwrap().restored);
        // The server is down for an hour.
        for _ in 0..60 {
            again.input(0, Input::ConnectFailed { status: Status::new(Code::Unavailable, "refused") });
            again.advance(SECOND * 60);
        }
        assert_eq!(again.view(CDS, "*"), "a=1 b=2");
        assert_eq!(again.view(EDS, "x y z"), "x=1 y=2 ?1");
        assert!(again.source.is_restored() && !again.confirmed);
    }
}

#[test]
fn rly_64_a_restart_restates_the_server_s_own_versions_in_delta_only() {
    let mut again = before(Variant::Delta).restarted();
    again.watch(1, CDS, "*");
    again.open();
    assert_eq!(again.initial_versions(CDS), ["a=v1", "b=v2"]);
    assert_eq!(again.initial_versions(EDS), ["x=v1", "y=v2"]);
    // The configuration now says SotW, where the versions have no meaning.
    let mut sotw = Bench::new(Variant::Sotw);
    sotw.source.restore(&before(Variant::Delta).saved(), Duration::ZERO, sotw.now);
    sotw.drain();
    sotw.open();
    for (_, request) in &sotw.sent {
        assert!(matches!(request, Request::Sotw(request) if request.version_info.is_empty()), "{request:?}");
    }
}

#[test]
fn rly_27_what_a_first_whole_response_lacks_goes_once() {
    for variant in [Variant::Delta, Variant::Sotw] {
        let mut again = before(variant).restarted();
        again.watch(1, CDS, "*");
        again.open();
        assert_eq!(again.view(CDS, "*"), "a=1 b=2");
        // A delta server was told both versions, and so reports the removal (DEL-30).
        again.says(CDS, if variant == Variant::Delta { "a=3 -b" } else { "a=3" });
        assert_eq!(again.view(CDS, "*"), "a=3");
    }
}

#[test]
fn rly_27_without_versions_a_delta_wildcard_loses_what_is_not_sent_again() {
    let mut saved = before(Variant::Delta).saved();
    for kept in saved.iter_mut().flat_map(|of| of.wildcard.iter_mut().flatten()) {
        kept.server_version = Box::default();
    }
    let mut again = Bench::new(Variant::Delta);
    again.source.restore(&saved, Duration::ZERO, again.now);
    again.drain();
    again.watch(1, CDS, "*");
    again.open();
    assert_eq!(again.initial_versions(CDS), Vec::<String>::new());
    again.says(CDS, "a=1");
    assert_eq!(again.view(CDS, "*"), "a=1");
}

#[test]
fn tmr_3_no_timer_deletes_what_was_restored() {
    let mut again = before(Variant::Delta).restarted();
    again.watch(1, EDS, "x y z");
    again.open();
    again.says(CDS, "a=1");
    again.advance(SECOND * 60);
    again.input(0, Input::Alive);
    assert_eq!(
        again.view(EDS, "x y z"),
        "x=1 y=2 -z",
        "of z nothing was held, so that its timer ran (TMR-5)"
    );
    again.says(EDS, "-y");
    assert_eq!(again.view(EDS, "x y z"), "x=1 -y -z", "RLY-28: the server says so");
}

#[test]
fn rly_60_nothing_restored_is_let_go_before_its_server_has_spoken() {
    let mut again = before(Variant::Delta).restarted();
    again.watch(1, CDS, "*");
    again.watch(2, EDS, "x");
    again.source.forget(SessionId(2), again.now);
    again.advance(SECOND * 300);
    again.watch(3, EDS, "x y");
    assert_eq!(again.view(EDS, "x y"), "x=1 y=2");
    again.source.forget(SessionId(3), again.now);
    again.drain();
    again.open();
    again.says(CDS, "a=1");
    again.says(EDS, "x=1");
    assert!(again.confirmed);
    // From now on names without sessions linger as usual.
    again.advance(SECOND * 31);
    again.watch(4, EDS, "x y");
    assert_eq!(again.view(EDS, "x y"), "?2");
    assert_eq!(again.view(CDS, "*"), "a=1 b=2");
}

#[test]
fn rly_14_a_restored_source_that_nobody_wants_makes_room() {
    let mut again = before(Variant::Delta).restarted();
    again.watch(1, CDS, "*");
    again.source.forget(SessionId(1), again.now);
    again.drain();
    again.advance(SECOND * 29);
    assert!(!again.source.is_idle());
    again.advance(SECOND * 2);
    assert!(again.source.is_idle() && !again.source.is_restored());
    assert!(again.source.snapshot().types().next().is_none());
}

#[test]
fn i14_what_was_restored_is_marked_until_the_server_has_spoken_of_each_type() {
    let mut again = before(Variant::Delta).restarted();
    again.watch(1, CDS, "*");
    again.open();
    let is_restored =
        |bench: &Bench, message: &str| bench.source.snapshot().standing().of(&url(message)).unwrap().restored;
    again.says(CDS, "a=3");
    assert!(!is_restored(&again, CDS) && is_restored(&again, EDS) && !again.confirmed);
    again.says(EDS, "x=3");
    assert!(!is_restored(&again, EDS) && again.confirmed && !again.source.is_restored());
}

#[test]
fn i12_a_delta_server_that_has_no_news_says_so_by_silence_on_a_live_transport() {
    let mut again = before(Variant::Delta).restarted();
    again.watch(1, CDS, "*");
    again.open();
    again.advance(SECOND * 9);
    assert!(again.probes.is_empty());
    again.advance(SECOND * 2);
    assert!(!again.probes.is_empty(), "RLY-29: silence proves nothing on a dead transport");
    assert!(!again.confirmed);
    again.input(0, Input::Alive);
    assert!(again.confirmed);
    assert_eq!(again.view(CDS, "*"), "a=1 b=2");
    // A SotW server owes a response.
    let mut sotw = before(Variant::Sotw).restarted();
    sotw.watch(1, CDS, "*");
    sotw.open();
    sotw.advance(SECOND * 60);
    sotw.input(0, Input::Alive);
    assert!(!sotw.confirmed && sotw.source.is_restored());
}

#[test]
fn i17_a_time_to_live_goes_on_and_is_not_lengthened() {
    let saved = |left| {
        let received = resource(CDS, "a=1", Some(SECOND * 30));
        let kept = Kept {
            name: "a".into(),
            resource: received.resource.unwrap(),
            server_version: "v1".into(),
            left: Some(left),
        };
        vec![RestoredType { wildcard: Some(vec![kept]), ..RestoredType::new(url(CDS)) }]
    };
    for (left, lives) in [(SECOND * 12, SECOND * 12), (SECOND * 3600, SECOND * 30)] {
        let mut again = Bench::new(Variant::Delta);
        again.source.restore(&saved(left), Duration::ZERO, again.now);
        again.watch(1, CDS, "*");
        again.advance(lives - SECOND);
        assert_eq!(again.view(CDS, "*"), "a=1");
        again.advance(SECOND * 2);
        assert_eq!(again.view(CDS, "*"), "", "TTL-8: it is removed in its time, its server dead or not");
    }
}

/// Endpoints `x` from before a restart, with 12 s left to live. A session wants another name of the source.
fn with_a_short_name() -> Bench {
    let received = resource(EDS, "x=1", Some(SECOND * 30));
    let (name, server_version, left) = ("x".into(), "v1".into(), Some(SECOND * 12));
    let kept = Kept { name, resource: received.resource.unwrap(), server_version, left };
    let mut again = Bench::new(Variant::Delta);
    again.source.restore(
        &[RestoredType { names: vec![kept], ..RestoredType::new(url(EDS)) }],
        Duration::ZERO,
        again.now,
    );
    again.watch(1, CDS, "*");
    again
}

#[test]
fn rly_61_a_restored_name_that_ran_out_unwatched_lingers_and_goes() {
    let mut again = with_a_short_name();
    again.advance(SECOND * 13);
    assert!(again.source.snapshot().of(&url(EDS)).is_some());
    again.advance(SECOND * 30);
    assert!(again.source.snapshot().of(&url(EDS)).is_none(), "I16: nobody wants it, and there is nothing");
}

#[test]
fn i14_what_was_given_up_is_not_marked_as_restored() {
    let mut again = with_a_short_name();
    again.advance(SECOND * 5);
    again.source.forget(SessionId(1), again.now);
    again.drain();
    // The resource expired before the source was given up, and lingers beyond that time.
    again.advance(SECOND * 32);
    assert!(!again.source.is_restored());
    assert!(!again.source.snapshot().standing().of(&url(EDS)).unwrap().restored);
}

#[test]
fn rly_39_what_is_left_of_a_time_to_live_is_saved() {
    let mut bench = Bench::new(Variant::Delta);
    bench.watch(1, CDS, "a");
    bench.open();
    let response = DeltaResponse {
        system_version_info: String::new(),
        type_url: url(CDS),
        nonce: "n".into(),
        resources: vec![Ok(resource(CDS, "a=1", Some(SECOND * 30)))],
        removed: Vec::new(),
        errors: Vec::new(),
        control_plane: String::new(),
    };
    bench.input(0, Input::Received(Response::Delta(response)));
    bench.advance(SECOND * 10);
    assert!(bench.source.has_leases());
    assert_eq!(bench.saved()[0].names[0].left, Some(SECOND * 20));
}

#[test]
fn rpc_2_a_type_that_cannot_be_asked_for_any_more_is_not_restored() {
    let settings = UpstreamSettings { transport: Transport::PerType, ..UpstreamSettings::default() };
    let mut again = Bench::with(settings, SourceSettings::default());
    let mut saved = before(Variant::Delta).saved();
    saved[1].type_url = url("acme.Unserved");
    again.source.restore(&saved, Duration::ZERO, again.now);
    again.watch(1, CDS, "*");
    again.watch(1, "acme.Unserved", "x");
    assert_eq!(again.view(CDS, "*"), "a=1 b=2");
    assert_eq!(again.view("acme.Unserved", "x"), "?1");
}

#[test]
fn secrets_have_no_image() {
    let mut bench = Bench::new(Variant::Delta);
    bench.watch(1, SDS, "s");
    bench.open();
    bench.says(SDS, "s=1");
    assert!(bench.source.image(bench.now).versions.is_empty());
}
