//! FU18: held-back mass deletions.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use super::super::*;
use crate::collection::{Collection, CollectionKind, HashSeed, NameSet};
use crate::source::Streams;
use crate::upstream::{Event, Hold, Input, Transport, UpstreamSettings};
use sluice_xds::{
    Any, Code, DeltaResponse, Received, Request, ResourceName, Response, SotwResponse, Status, Variant,
    Version,
};

const HOLD: Duration = Duration::from_secs(60);
const BOTH: [Variant; 2] = [Variant::Sotw, Variant::Delta];

fn clusters() -> TypeUrl {
    TypeUrl::of_message("envoy.config.cluster.v3.Cluster")
}

fn name(number: usize) -> ResourceName {
    format!("xdstp://x/envoy.config.cluster.v3.Cluster/c{number:02}").into()
}

fn received(number: usize, ttl: Option<Duration>) -> Received {
    let resource = Resource {
        name: name(number),
        version: Version(1),
        body: Any { type_url: clusters().shared(), value: Bytes::new() },
        aliases: Box::default(),
        ttl,
        do_not_cache: false,
        body_has_name: true,
        metadata: None,
        endpoints: None,
        constraints: None,
    };
    Received { name: name(number), upstream_version: "1".into(), resource: Some(Arc::new(resource)), ttl }
}

struct Bench {
    source: Source,
    now: Time,
    variant: Variant,
    collection: Collection,
    /// The events, and the last restated names.
    events: Vec<String>,
    restated: usize,
}

impl Bench {
    fn with(settings: UpstreamSettings, collection: Collection) -> Bench {
        let variant = settings.variant;
        let attachment = Attachment::Streams(Box::new(Streams::new(settings)));
        let source = Source::new(1, SourceSettings::default(), attachment);
        let mut bench =
            Bench { source, now: Time::ZERO, variant, collection, events: Vec::new(), restated: 0 };
        bench.source.watch(SessionId(1), &clusters(), &bench.collection.clone(), bench.now);
        bench.drain();
        bench
    }

    /// A source with 20 resources on an open stream.
    fn new(variant: Variant, collection: Collection) -> Bench {
        Bench::holding(Hold::For(HOLD), variant, collection)
    }

    fn holding(hold: Hold, variant: Variant, collection: Collection) -> Bench {
        let settings =
            UpstreamSettings { variant, mass_deletion_hold: Some(hold), ..UpstreamSettings::default() };
        let mut bench = Bench::with(settings, collection);
        bench.input(Input::Opened);
        bench.says(0..20, 0..0);
        assert_eq!((bench.served(), bench.held_back()), (20, 0));
        bench
    }

    fn drain(&mut self) {
        while let Some(output) = self.source.poll_output() {
            match output {
                SourceOutput::Upstream(
                    0,
                    upstream::Output::Send { request: Request::Delta(request), .. },
                ) => {
                    self.restated = request.initial_resource_versions.len();
                }
                SourceOutput::Upstream(0, upstream::Output::RoundTrip) => {
                    self.source.handle_upstream(0, Input::Returned, self.now);
                }
                SourceOutput::Upstream(0, upstream::Output::Flush) => {
                    self.source.handle_upstream(0, Input::Flushed, self.now);
                }
                SourceOutput::Upstream(0, upstream::Output::Event(event)) => match event {
                    Event::DeletionHeld { count, left, .. } => {
                        self.events.push(format!("held {count}/{left}"))
                    }
                    Event::DeletionWithdrawn { count, .. } => self.events.push(format!("back {count}")),
                    Event::DeletionCarriedOut { count, .. } => self.events.push(format!("gone {count}")),
                    Event::DeletionConfirmed { count, .. } => self.events.push(format!("confirmed {count}")),
                    _ => {}
                },
                _ => {}
            }
        }
    }

    fn input(&mut self, input: Input) {
        self.source.handle_upstream(0, input, self.now);
        self.drain();
    }

    /// SotW states all resources; delta states new resources and removals.
    fn says(&mut self, present: Range<usize>, gone: Range<usize>) {
        self.says_with(present.map(|number| received(number, None)).collect(), gone);
    }

    fn says_with(&mut self, resources: Vec<Received>, gone: Range<usize>) {
        let resources = resources.into_iter().map(Ok).collect();
        let (type_url, nonce) = (clusters(), "n".to_owned());
        let (version_info, errors, control_plane) = Default::default();
        let response = match self.variant {
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
                removed: gone.map(name).collect(),
                errors,
                control_plane,
            }),
        };
        self.input(Input::Received(response));
    }

    fn after(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        while let Some(due) = self.source.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.source.handle_timeout(self.now);
            self.drain();
        }
        self.now = end;
    }

    fn served(&self) -> usize {
        let Some(types) = self.source.snapshot().of(&clusters()) else { return 0 };
        let named = types.names.entries.values().filter(|known| known.resource().is_some()).count();
        named + types.wildcard.members.len() + types.globs.members.len()
    }

    fn held_back(&self) -> usize {
        self.source.held_back(&clusters())
    }

    fn events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    fn confirm(&mut self, type_url: TypeUrl) -> usize {
        let count = self.source.confirm_deletions(|other| *other == type_url, self.now);
        self.drain();
        count
    }

    fn close(&mut self) {
        self.input(Input::Closed { status: Status::new(Code::Unavailable, ""), jitter: 0.5 });
    }
}

fn names() -> Collection {
    Collection::Names(Arc::new(NameSet::of((0..20).map(name), HashSeed(7))))
}

fn glob() -> Collection {
    let glob = ResourceName::new("xdstp://x/envoy.config.cluster.v3.Cluster/*");
    Collection::Globs(Arc::new(NameSet::of([glob], HashSeed(7))))
}

/// The possible collections, in the variants that support them.
fn all() -> Vec<(Variant, Collection)> {
    let both = BOTH.into_iter().flat_map(|variant| [(variant, Collection::Wildcard), (variant, names())]);
    both.chain([(Variant::Delta, glob())]).collect()
}

#[test]
fn fu_18_what_is_held_back_is_served_until_its_time_is_over() {
    for (variant, collection) in all() {
        let mut bench = Bench::new(variant, collection);
        bench.says(0..5, 5..20);
        assert_eq!((bench.served(), bench.held_back()), (20, 15));
        assert_eq!(bench.events(), ["held 15/5"]);
        // The server repeats the response, then sends a different response.
        bench.after(30);
        bench.says(0..5, 5..20);
        bench.says(0..4, 4..5);
        assert_eq!((bench.served(), bench.held_back()), (19, 15), "{variant:?}");
        bench.after(29);
        assert_eq!(bench.served(), 19);
        bench.after(1);
        assert_eq!((bench.served(), bench.held_back()), (4, 0));
        assert_eq!(bench.events(), ["gone 15"]);
        bench.after(600);
        assert_eq!(bench.events(), [""; 0]);
    }
}

#[test]
fn fu_18_half_of_them_or_ten_are_obeyed_at_once() {
    for (variant, collection) in all() {
        let mut bench = Bench::new(variant, collection);
        bench.says(0..10, 10..20);
        assert_eq!((bench.served(), bench.held_back()), (10, 0), "half");
        bench.says(0..0, 0..10);
        assert_eq!((bench.served(), bench.held_back()), (0, 0), "ten");
        assert_eq!(bench.events(), [""; 0]);
    }
}

#[test]
fn fu_18_what_the_server_has_again_stays() {
    for (variant, collection) in all() {
        let mut bench = Bench::new(variant, collection);
        bench.says(0..5, 5..20);
        bench.after(30);
        bench.says(0..15, 15..20);
        assert_eq!((bench.served(), bench.held_back()), (20, 5));
        bench.after(30);
        assert_eq!((bench.served(), bench.held_back()), (15, 0));
        assert_eq!(bench.events(), ["held 15/5", "back 10", "gone 5"]);
    }
}

/// DEL-35: the relay does not claim removed resources. The names are requested as if the response had been
/// obeyed, and no response of the next stream deletes the resources early.
#[test]
fn fu_18_a_new_stream_restates_what_the_server_left() {
    for (variant, collection) in all() {
        let mut bench = Bench::new(variant, collection);
        bench.says(0..5, 5..20);
        bench.close();
        bench.after(10);
        bench.input(Input::Opened);
        if variant == Variant::Delta {
            assert_eq!(bench.restated, 5);
        }
        bench.says(0..5, 5..20);
        assert_eq!((bench.served(), bench.held_back()), (20, 15));
        bench.after(50);
        assert_eq!((bench.served(), bench.held_back()), (5, 0));
        assert_eq!(bench.events(), ["held 15/5", "gone 15"]);
    }
}

/// An unreachable server cannot send resources again: an outage loses nothing.
#[test]
fn fu_18_while_the_server_is_lost_nothing_goes() {
    let mut bench = Bench::new(Variant::Delta, Collection::Wildcard);
    bench.says(0..0, 0..20);
    bench.close();
    bench.after(10);
    let status = Status::new(Code::Unavailable, "");
    bench.input(Input::ConnectFailed { status });
    bench.after(100);
    assert_eq!((bench.served(), bench.held_back()), (20, 20));
    bench.input(Input::Opened);
    bench.says(0..12, 0..0);
    assert_eq!((bench.served(), bench.held_back()), (20, 8));
    bench.after(60);
    assert_eq!((bench.served(), bench.held_back()), (12, 0));
    assert_eq!(bench.events(), ["held 20/0", "back 12", "gone 8"]);
}

/// RLY-25: a type without a service has no stream, and the streams of the other types tell that the server is lost.
#[test]
fn fu_18_nothing_goes_while_the_server_is_lost_and_the_type_has_no_service() {
    let mass_deletion_hold = Some(Hold::For(HOLD));
    let (transport, variant) = (Transport::PerType, Variant::Sotw);
    let settings = UpstreamSettings { transport, variant, mass_deletion_hold, ..UpstreamSettings::default() };
    let mut bench = Bench::with(settings, Collection::Wildcard);
    bench.input(Input::Opened);
    bench.says(0..20, 0..0);
    bench.says(0..0, 0..20);
    assert_eq!((bench.served(), bench.held_back()), (20, 20));
    bench.close();
    bench.after(10);
    bench.input(Input::Opened);
    let status = Status::new(Code::Unimplemented, "unknown service");
    bench.input(Input::Ended { status, jitter: 0.5 });
    let endpoints = TypeUrl::of_message("envoy.config.endpoint.v3.ClusterLoadAssignment");
    let names = NameSet::of([ResourceName::new("a")], HashSeed::default());
    bench.source.watch(SessionId(1), &endpoints, &Collection::Names(Arc::new(names)), bench.now);
    bench.source.handle_upstream(
        1,
        Input::ConnectFailed { status: Status::new(Code::Unavailable, "") },
        bench.now,
    );
    bench.drain();
    bench.after(100);
    assert_eq!((bench.served(), bench.held_back()), (20, 20));
    bench.source.handle_upstream(1, Input::Opened, bench.now);
    let (version_info, resources, errors, control_plane) = Default::default();
    let (type_url, nonce) = (endpoints, "n".to_owned());
    let answer =
        SotwResponse { version_info, type_url, states_type: true, nonce, resources, errors, control_plane };
    bench.source.handle_upstream(1, Input::Received(Response::Sotw(answer)), bench.now);
    bench.drain();
    bench.after(60);
    assert_eq!((bench.served(), bench.held_back()), (0, 0), "the server can be heard");
}

/// TTL-8.
#[test]
fn fu_18_a_time_to_live_runs_out_as_usual() {
    for variant in BOTH {
        let mut bench = Bench::new(variant, Collection::Wildcard);
        let ttl = Some(Duration::from_secs(20));
        bench.says_with((0..20).map(|number| received(number, ttl)).collect(), 0..0);
        bench.says(0..5, 5..20);
        bench.after(19);
        assert_eq!((bench.served(), bench.held_back()), (20, 15));
        bench.after(1);
        assert_eq!((bench.served(), bench.held_back()), (5, 0));
        bench.after(60);
        assert_eq!(bench.events(), ["held 15/5"]);
    }
}

/// RLY-7: a checkpoint contains all served resources, without the server's versions of removed resources.
#[test]
fn fu_18_what_is_held_back_is_kept_over_a_restart() {
    let mut bench = Bench::new(Variant::Delta, Collection::Wildcard);
    bench.says(0..5, 5..20);
    let image = bench.source.image(bench.now);
    assert_eq!(image.snapshot.of(&clusters()).unwrap().wildcard.members.len(), 20);
    assert_eq!(image.versions[&(clusters(), CollectionKind::Wildcard)].len(), 5);
}

/// Unwanted names are not held back: a later session waits for the server.
#[test]
fn fu_18_what_nobody_wants_is_freed() {
    for (variant, collection) in all() {
        let mut bench = Bench::new(variant, collection);
        bench.says(0..5, 5..20);
        bench.source.forget(SessionId(1), bench.now);
        bench.after(31);
        assert_eq!((bench.served(), bench.held_back()), (0, 0));
        assert!(bench.source.is_idle());
    }
}

/// The same, while other names of the type are wanted.
#[test]
fn fu_18_a_wildcard_that_nobody_wants_is_freed() {
    let mut bench = Bench::new(Variant::Delta, Collection::Wildcard);
    bench.says(0..5, 5..20);
    bench.source.watch(SessionId(2), &clusters(), &names(), bench.now);
    bench.source.forget(SessionId(1), bench.now);
    bench.after(31);
    assert_eq!((bench.served(), bench.held_back()), (0, 0));
}

/// FBK-20: the other server of a failover has answered nothing before.
#[test]
fn fu_18_the_first_answer_of_another_server_is_obeyed() {
    let settings = UpstreamSettings {
        variant: Variant::Sotw,
        mass_deletion_hold: Some(Hold::For(HOLD)),
        failover: true,
        ..UpstreamSettings::default()
    };
    let mut bench = Bench::with(settings, Collection::Wildcard);
    for _ in 0..2 {
        bench.close();
        bench.after(1);
    }
    bench.input(Input::Opened);
    bench.says(0..20, 0..0);
    bench.says(0..8, 0..0);
    assert_eq!((bench.served(), bench.held_back()), (20, 12));
    bench.close();
    bench.after(2);
    bench.input(Input::Opened);
    bench.says(0..1, 0..0);
    assert_eq!((bench.served(), bench.held_back()), (1, 0), "the primary has its turn");
    assert_eq!(bench.events(), ["held 12/8"]);
}

#[test]
fn fu_18_where_responses_are_obeyed_nothing_is_kept() {
    for (variant, collection) in all() {
        let settings = UpstreamSettings { variant, ..UpstreamSettings::default() };
        let mut bench = Bench::with(settings, collection);
        bench.input(Input::Opened);
        bench.says(0..20, 0..0);
        bench.says(0..5, 5..20);
        assert_eq!((bench.served(), bench.held_back()), (5, 0));
        assert_eq!(bench.events(), [""; 0]);
    }
}

#[test]
fn fu_18_without_a_time_they_go_when_the_operator_says_so() {
    for (variant, collection) in all() {
        let mut bench = Bench::holding(Hold::UntilConfirmed, variant, collection);
        bench.says(0..5, 5..20);
        bench.after(1_000_000);
        assert_eq!((bench.served(), bench.held_back()), (20, 15));
        // Some resources come back, and are no longer held back.
        match variant {
            Variant::Sotw => bench.says(0..8, 0..0),
            Variant::Delta => bench.says(5..8, 0..0),
        }
        assert_eq!((bench.served(), bench.held_back()), (20, 12));
        assert_eq!(bench.confirm(TypeUrl::of_message("envoy.config.listener.v3.Listener")), 0);
        assert_eq!(bench.served(), 20);
        assert_eq!(bench.confirm(clusters()), 12);
        assert_eq!((bench.served(), bench.held_back()), (8, 0), "{variant:?}");
        assert_eq!(bench.confirm(clusters()), 0);
        assert_eq!(bench.events(), ["held 15/5", "back 3", "confirmed 12"]);
        // The next response is judged like the first.
        bench.says(0..20, 0..0);
        bench.says(0..5, 5..20);
        assert_eq!(bench.held_back(), 15);
    }
}

#[test]
fn fu_18_the_operator_need_not_wait_for_a_time() {
    for (variant, collection) in all() {
        let mut bench = Bench::new(variant, collection);
        bench.says(0..5, 5..20);
        // Also while the server cannot be heard.
        bench.close();
        assert_eq!(bench.confirm(clusters()), 15);
        assert_eq!((bench.served(), bench.held_back()), (5, 0));
        bench.after(600);
        assert_eq!(bench.events(), ["held 15/5", "confirmed 15"]);
    }
}
