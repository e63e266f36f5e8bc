//! Types with streams of their own, and files.

use super::*;
use crate::reachability::Reachability;
use crate::upstream::Input;

fn per_type(variant: Variant, transport: Transport) -> Bench {
    let settings = UpstreamSettings { transport, variant, ..UpstreamSettings::default() };
    Bench::new(Attachment::Streams(Box::new(Streams::new(settings))), SourceSettings::default())
}

impl Bench {
    /// The actions for the driver: streams opened with their types, and types without a service.
    pub(super) fn done(&mut self) -> Vec<String> {
        let mut done = Vec::new();
        while let Some(output) = self.source.poll_output() {
            let Attachment::Streams(streams) = &self.source.attachment else { panic!("files") };
            done.extend(match output {
                SourceOutput::Upstream(index, upstream::Output::Open { variant, .. }) => {
                    Some(format!("{index} {:?} {variant:?}", streams.type_of(index)))
                }
                SourceOutput::Upstream(index, upstream::Output::Close) => Some(format!("{index} closed")),
                SourceOutput::Unserved(type_url) => Some(format!("unserved {type_url:?}")),
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
    bench.unwatch(1, CDS, CollectionKey::WILDCARD);
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
    let globs = Collection::Globs(Arc::new(NameSet::of([glob], HashSeed(7))));
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
    let streams = Streams::new(UpstreamSettings::default());
    let settings = SourceSettings { tells_reach: true, ..SourceSettings::default() };
    let mut bench = Bench::new(Attachment::Streams(Box::new(streams)), settings);
    let is_current =
        |bench: &Bench| bench.source.publication.snapshot.standing().of(&url(CDS)).unwrap().is_current;
    let answer = |bench: &mut Bench, stream: StreamIndex| {
        let response = sluice_xds::DeltaResponse {
            system_version_info: String::new(),
            type_url: url(CDS),
            nonce: "n".into(),
            resources: Vec::new(),
            removed: Vec::new(),
            errors: Vec::new(),
            control_plane: String::new(),
        };
        let response = upstream::Input::Received(sluice_xds::Response::Delta(response));
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
    let covers = |collection| {
        bench.source.publication.snapshot.standing().of(&url(CDS)).unwrap().is_current_for(&collection)
    };
    assert!(covers(Collection::Wildcard) && !covers(set("a")), "each speaks for itself");
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
    let mut bench = Bench::new(Attachment::Files(Files::default()), SourceSettings::default());
    bench.watch(1, CDS, "*");
    assert!(!bench.source.publication.snapshot.standing().of(&url(CDS)).unwrap().is_current);
    bench.state(&[(EDS, "a=1")]);
    assert!(bench.source.publication.snapshot.standing().of(&url(CDS)).unwrap().is_current);
}

#[test]
fn cli_1_a_lost_connection_is_forgotten_with_the_last_stream() {
    let rest = Transport::Rest { refresh_delay: Duration::from_secs(1) };
    for (variant, transport) in [(Variant::Delta, Transport::PerType), (Variant::Sotw, rest)] {
        let mut bench = per_type(variant, transport);
        let status = Status::new(Code::Unavailable, "refused");
        bench.watch(1, EDS, "a");
        bench.source.handle_upstream(0, Input::ConnectFailed { status }, bench.now);
        assert!(bench.source.reach_of(&url(EDS)).is_some_and(|reach| reach.is_lost()));
        bench.source.forget(SessionId(1), bench.now);
        bench.advance(Duration::from_secs(31));
        assert!(bench.source.is_idle());
        bench.watch(2, EDS, "a");
        let reach = bench.source.reach_of(&url(EDS));
        assert_eq!(reach, Some(Reachability::Pending), "no attempt has failed yet");
    }
}

/// The stream of another type lives on, in silence.
#[test]
fn cli_1_a_failed_attempt_is_forgotten_once_nothing_is_attempted() {
    let mut bench = per_type(Variant::Sotw, Transport::PerType);
    bench.watch(1, CDS, "x");
    bench.source.handle_upstream(0, Input::Opened, bench.now);
    bench.advance(Duration::from_secs(10));
    bench.source.handle_upstream(0, Input::Alive, bench.now);
    let is_lost = |bench: &Bench| bench.source.reach_of(&url(CDS)).is_some_and(|reach| reach.is_lost());
    bench.watch(2, EDS, "a");
    assert!(!is_lost(&bench));
    let status = Status::new(Code::Unavailable, "refused");
    bench.source.handle_upstream(1, Input::ConnectFailed { status }, bench.now);
    assert!(is_lost(&bench));
    bench.source.forget(SessionId(2), bench.now);
    bench.advance(Duration::from_secs(31));
    let reach = bench.source.reach_of(&url(CDS));
    assert!(reach.is_some_and(|reach| reach.is_heard()), "nobody attempts any more");
    bench.source.forget(SessionId(1), bench.now);
    bench.advance(Duration::from_secs(31));
    assert!(bench.source.is_idle());
}

#[test]
fn rly_25_a_service_that_is_there_again_and_silent_is_heard() {
    let mut bench = per_type(Variant::Sotw, Transport::PerType);
    bench.watch(1, EDS, "a");
    bench.source.handle_upstream(0, Input::Opened, bench.now);
    let status = Status::new(Code::Unimplemented, "unknown service");
    bench.source.handle_upstream(0, Input::Ended { status, jitter: 0.5 }, bench.now);
    assert_eq!(bench.source.reach_of(&url(EDS)), Some(Reachability::Pending), "the type does not count");
    bench.advance(Duration::from_secs(1));
    bench.source.handle_upstream(0, Input::Opened, bench.now);
    bench.advance(Duration::from_secs(10));
    bench.source.handle_upstream(0, Input::Alive, bench.now);
    assert!(bench.source.reach_of(&url(EDS)).is_some_and(|reach| reach.is_heard()), "silence is an answer");
}
