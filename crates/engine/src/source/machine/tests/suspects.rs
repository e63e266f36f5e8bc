//! A type for which the server ends the stream (ADR 15).

use std::collections::BTreeSet;

use super::*;
use crate::upstream::{Event, Input, Output as Out};
use sluice_xds::{DeltaResponse, Received, Request, Response};

const RUNTIME: &str = "envoy.service.runtime.v3.Runtime";

fn ended(text: &str) -> Input {
    Input::Ended { status: Status::new(Code::Unavailable, text), jitter: 0.5 }
}

impl Bench {
    fn input(&mut self, stream: StreamIndex, input: Input) -> Vec<String> {
        self.source.handle_upstream(stream, input, self.now);
        self.said()
    }

    /// The traffic to the server: opened and closed streams, requested types, and events.
    fn said(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        while let Some(output) = self.source.poll_output() {
            said.extend(match output {
                SourceOutput::Upstream(index, Out::Open { .. }) => Some(format!("{index} opens")),
                SourceOutput::Upstream(index, Out::Close) => Some(format!("{index} closes")),
                SourceOutput::Upstream(index, Out::Send { request: Request::Delta(request), .. }) => {
                    let names = request.subscribe.iter().map(|name| name.as_str());
                    let names = names.collect::<Vec<_>>().join(" ");
                    let short = request.type_url.rsplit('.').next().unwrap();
                    (!names.is_empty()).then(|| {
                        format!("{index} {short} {names} {}", request.initial_resource_versions.len())
                    })
                }
                SourceOutput::Upstream(_, Out::Event(Event::EndsStream { type_url, ends, .. })) => {
                    Some(format!("{type_url:?} ends {ends}"))
                }
                SourceOutput::Upstream(_, Out::Event(Event::BearsType { type_url })) => {
                    Some(format!("{type_url:?} is back"))
                }
                SourceOutput::Upstream(index, Out::Event(Event::Disconnected { retry_in, .. })) => {
                    Some(format!("{index} ended, retry in {retry_in:?}"))
                }
                SourceOutput::Upstream(index, Out::Event(Event::Unreachable { .. })) => {
                    Some(format!("{index} unreachable"))
                }
                _ => None,
            });
        }
        said
    }

    fn answers(&mut self, stream: StreamIndex, message: &str, list: &str) -> Vec<String> {
        let received = |resource: Arc<Resource>| Received {
            name: resource.name.clone(),
            upstream_version: "1".into(),
            resource: Some(resource),
            ttl: None,
        };
        let response = DeltaResponse {
            system_version_info: String::new(),
            type_url: url(message),
            nonce: "n".into(),
            resources: resources(message, list).into_iter().map(received).map(Ok).collect(),
            removed: Vec::new(),
            errors: Vec::new(),
            control_plane: String::new(),
        };
        self.input(stream, Input::Received(Response::Delta(response)))
    }

    /// A class with CDS and EDS at the time of the first request for RUNTIME.
    fn class() -> Bench {
        let mut bench = Bench::streams();
        bench.watch(1, CDS, "*");
        bench.watch(1, EDS, "e");
        bench.input(0, Input::Opened);
        bench.answers(0, CDS, "a=1");
        bench.answers(0, EDS, "e=1");
        bench.input(0, Input::Returned);
        bench.advance(Duration::from_secs(60));
        bench.watch(2, RUNTIME, "r");
        assert_eq!(bench.said(), ["0 Runtime r 0"]);
        bench
    }

    fn reach_is_lost(&self) -> bool {
        self.source.snapshot().standing().reach().is_lost()
    }
}

#[test]
fn str_1_the_others_are_asked_at_once_without_the_type_that_ended_the_stream() {
    let mut bench = Bench::class();
    let done = bench.input(0, ended("resource watch failed"));
    assert_eq!(done, ["Runtime ends 1", "0 ended, retry in 0ns", "0 opens", "1 opens"]);
    assert_eq!(bench.input(0, Input::Opened), ["0 Cluster * 1", "0 ClusterLoadAssignment e 1"]);
    assert_eq!(bench.input(1, Input::Opened), ["1 Runtime r 0"]);
    assert_eq!(bench.input(1, ended("resource watch failed")), ["Runtime ends 2"]);
    assert!(!bench.reach_is_lost());
    assert_eq!(bench.view(EDS, "e"), "e=1");
    // The suspect is retried alone, ever less often, without effect on the others.
    let mut waited = Vec::new();
    for _ in 0..8 {
        let from = bench.now;
        while bench.said() != ["1 opens"] {
            bench.advance(Duration::from_millis(100));
            assert!(bench.now.since(from) < Duration::from_secs(40));
        }
        waited.push(bench.now.since(from).as_secs());
        bench.input(1, Input::Opened);
        bench.input(1, ended("resource watch failed"));
    }
    assert!(waited.is_sorted() && waited[0] <= 1 && waited[7] >= 25, "{waited:?}");
}

#[test]
fn err_10_who_asked_is_told_once_the_type_ended_a_stream_alone() {
    let mut bench = Bench::class();
    bench.input(0, ended("resource watch failed"));
    let error = |bench: &Bench| {
        let types = bench.source.snapshot().of(&url(RUNTIME)).unwrap();
        types.names.annotations.error(&"r".into()).map(ToString::to_string)
    };
    assert_eq!(error(&bench), None, "the first end may have had another reason");
    bench.input(1, Input::Opened);
    bench.input(1, ended("resource watch failed"));
    assert!(
        error(&bench).unwrap().contains("ends the stream when it is asked for this type"),
        "{:?}",
        error(&bench)
    );
    assert_eq!(bench.view(RUNTIME, "r"), "?1", "nobody said that it does not exist");
    bench.advance(Duration::from_secs(2));
    bench.input(1, Input::Opened);
    bench.answers(1, RUNTIME, "r=1");
    assert_eq!((error(&bench), bench.view(RUNTIME, "r")), (None, "r=1".to_owned()));
}

#[test]
fn a_suspect_that_the_server_bears_is_asked_for_with_the_others_again() {
    let mut bench = Bench::class();
    bench.input(0, ended("restarting"));
    bench.input(0, Input::Opened);
    bench.answers(0, CDS, "a=1");
    bench.input(1, Input::Opened);
    bench.answers(1, RUNTIME, "r=1");
    bench.advance(Duration::from_secs(5));
    assert_eq!(bench.said(), [] as [&str; 0]);
    bench.advance(Duration::from_secs(1));
    assert_eq!(bench.said(), ["Runtime is back", "0 Runtime r 1", "1 closes"]);
    // The suspect ends the stream again: the next trial with the others comes later each time.
    let done = bench.input(0, ended("resource watch failed"));
    assert_eq!(done, ["Runtime ends 2", "0 ended, retry in 0ns", "0 opens"]);
    bench.input(0, Input::Opened);
    assert_eq!(bench.said(), [] as [&str; 0]);
    bench.advance(Duration::from_secs(1));
    assert_eq!(bench.said(), ["1 opens"]);
}

#[test]
fn several_candidates_are_asked_one_after_the_other() {
    let mut bench = Bench::class();
    bench.watch(2, "acme.A", "a");
    bench.advance(Duration::from_millis(100));
    assert_eq!(bench.said(), ["0 A a 0"]);
    let done = bench.input(0, ended("resource watch failed"));
    assert_eq!(done[2..], ["0 ended, retry in 0ns", "0 opens", "1 opens"]);
    bench.input(0, Input::Opened);
    assert_eq!(bench.input(1, Input::Opened), ["1 Runtime r 0"]);
    assert_eq!(bench.answers(1, RUNTIME, "r=1"), ["2 opens"], "an answer gives the turn to the next");
    assert_eq!(bench.input(2, Input::Opened), ["2 A a 0"]);
    assert_eq!(bench.input(2, ended("resource watch failed")), ["A ends 2"]);
    bench.advance(Duration::from_secs(6));
    assert!(bench.said().contains(&"Runtime is back".to_owned()));
}

#[test]
fn a_status_that_names_the_type_blames_it_alone_even_on_a_stream_without_an_answer() {
    let mut bench = Bench::streams();
    bench.watch(1, CDS, "*");
    bench.watch(2, RUNTIME, "r");
    bench.input(0, Input::Opened);
    let text = format!("no cache defined for key {}", url(RUNTIME).as_str());
    let done = bench.input(0, ended(&text));
    assert_eq!(done, ["Runtime ends 1", "0 ended, retry in 0ns", "0 opens", "1 opens"]);
}

#[test]
fn who_asks_for_it_later_goes_to_its_own_stream_at_once() {
    let mut bench = Bench::class();
    bench.input(0, ended("resource watch failed"));
    bench.input(0, Input::Opened);
    bench.input(1, Input::Opened);
    bench.input(1, ended("resource watch failed"));
    bench.source.forget(SessionId(2), bench.now);
    bench.advance(Duration::from_secs(60));
    bench.said();
    bench.watch(3, RUNTIME, "r");
    bench.advance(Duration::from_millis(1));
    let said = bench.said();
    assert!(said == ["1 opens"], "{said:?}");
}

#[test]
fn kal_5_ends_that_have_other_reasons_blame_nobody() {
    let down = || Status::new(Code::Unavailable, "");
    // The connection broke; the server asked to be left; the type was answered; the type was requested long
    // before.
    let ways: [&dyn Fn(&mut Bench); 4] = [
        &|bench| drop(bench.input(0, Input::Closed { status: down(), jitter: 0.5 })),
        &|bench| {
            bench.input(0, Input::GoingAway);
            bench.input(0, ended(""));
        },
        &|bench| {
            bench.answers(0, RUNTIME, "r=1");
            bench.input(0, ended(""));
        },
        &|bench| {
            bench.advance(Duration::from_secs(6));
            bench.input(0, ended(""));
        },
    ];
    for (number, end) in ways.iter().enumerate() {
        let mut bench = Bench::class();
        end(&mut bench);
        let Attachment::Streams(streams) = bench.source.attachment() else { panic!("files") };
        assert!(streams.suspect_of(&url(RUNTIME)).is_none(), "{number}");
    }
}

/// The separate stream would otherwise stay on trial for a type that no session wants.
#[test]
fn rly_60_a_secret_that_is_dropped_before_its_trial_is_over_closes_its_own_stream() {
    let mut bench = Bench::class();
    bench.watch(3, SDS, "s");
    bench.advance(Duration::from_millis(100));
    assert_eq!(bench.said(), ["0 Secret s 0"]);
    let done = bench.input(0, ended("no secrets here: envoy.extensions.transport_sockets.tls.v3.Secret"));
    assert_eq!(done, ["Secret ends 1", "0 ended, retry in 0ns", "0 opens", "1 opens"]);
    bench.input(1, Input::Opened);
    bench.answers(1, SDS, "s=1");
    bench.advance(Duration::from_secs(2));
    bench.source.forget(SessionId(3), bench.now);
    bench.advance(Duration::ZERO);
    assert_eq!(bench.said(), ["1 closes"]);
    bench.now = bench.now + Duration::from_secs(10);
    bench.source.handle_timeout(bench.now);
    assert!(bench.source.poll_timeout().is_none_or(|due| due > bench.now));
}

/// A renewed request without news owes no answer.
#[test]
fn the_type_that_owes_an_answer_is_blamed_before_those_that_may_be_silent() {
    let mut bench = Bench::class();
    bench.answers(0, RUNTIME, "r=1");
    let lost = Status::new(Code::Unavailable, "");
    bench.input(0, Input::Closed { status: lost, jitter: 0.5 });
    bench.watch(3, "acme.T", "t");
    bench.advance(Duration::from_secs(1));
    assert_eq!(bench.said(), ["0 opens"]);
    bench.input(0, Input::Opened);
    let done = bench.input(0, ended("resource watch failed"));
    assert_eq!(done, ["T ends 1", "0 ended, retry in 0ns", "0 opens", "1 opens"]);
    assert!(!bench.reach_is_lost());
}

/// CLI-1: no other stream can tell whether the server is reachable.
#[test]
fn cli_1_where_only_a_suspect_is_asked_for_the_server_is_judged_by_its_stream() {
    let mut bench = Bench::class();
    bench.input(0, ended("resource watch failed"));
    bench.input(0, Input::Opened);
    bench.answers(0, CDS, "a=1");
    bench.input(1, Input::Opened);
    bench.input(1, ended("resource watch failed"));
    assert!(!bench.reach_is_lost(), "the others are served");
    bench.source.forget(SessionId(1), bench.now);
    for _ in 0..40 {
        bench.advance(Duration::from_secs(1));
        if bench.said().contains(&"1 opens".to_owned()) {
            bench.input(1, Input::Opened);
            bench.input(1, ended("resource watch failed"));
        }
    }
    assert!(bench.reach_is_lost());
    bench.advance(Duration::from_secs(40));
    bench.input(1, Input::Opened);
    bench.answers(1, RUNTIME, "r=1");
    assert!(bench.source.snapshot().standing().reach().is_heard());
}

#[test]
fn dat_7_what_was_said_against_a_type_ends_when_the_server_bears_it() {
    let mut bench = Bench::class();
    bench.input(0, ended("resource watch failed"));
    bench.input(0, Input::Opened);
    bench.answers(0, CDS, "a=1");
    bench.input(1, Input::Opened);
    bench.input(1, ended("resource watch failed"));
    bench.advance(Duration::from_secs(2));
    bench.input(1, Input::Opened);
    let is_error = |bench: &Bench| {
        let types = bench.source.snapshot().of(&url(RUNTIME)).unwrap();
        types.names.annotations.error(&"r".into()).is_some()
    };
    assert!(is_error(&bench));
    bench.advance(Duration::from_secs(6));
    assert!(bench.said().contains(&"Runtime is back".to_owned()));
    assert!(!is_error(&bench));
}

/// A client that drops the type and asks again, over and over, causes no additional requests to the server.
#[test]
fn cli_4_the_backoff_of_a_suspect_outlives_its_subscription() {
    let mut bench = Bench::class();
    bench.watch(3, SDS, "s");
    bench.advance(Duration::from_millis(100));
    bench.said();
    bench.input(0, ended("no secrets here: envoy.extensions.transport_sockets.tls.v3.Secret"));
    bench.input(0, Input::Opened);
    bench.input(1, Input::Opened);
    bench.input(1, ended("no secrets here"));
    let mut attempts = 0;
    for _ in 0..600 {
        bench.source.forget(SessionId(3), bench.now);
        bench.advance(Duration::from_millis(50));
        bench.watch(3, SDS, "s");
        bench.advance(Duration::from_millis(50));
        if bench.said().contains(&"1 opens".to_owned()) {
            attempts += 1;
            bench.input(1, Input::Opened);
            bench.input(1, ended("no secrets here"));
        }
    }
    // In a minute: after 1, 1.6, 2.6, 4.1, 6.6, 10.5 and 16.8 s.
    assert!((6..=8).contains(&attempts), "{attempts}");
}

/// The server begins to refuse a type that it had: each stream restates all types, and ends before any answer.
#[test]
fn str_1_a_restated_type_that_ends_each_stream_is_found() {
    for refused in [CDS, EDS, RUNTIME] {
        let mut bench = Bench::class();
        bench.answers(0, RUNTIME, "r=1");
        bench.input(0, Input::Closed { status: Status::new(Code::Unavailable, ""), jitter: 0.5 });
        let short = refused.rsplit('.').next().unwrap();
        let from = bench.now;
        let (mut waiting, mut blamed) = (false, Vec::new());
        while blamed.is_empty() {
            assert!(bench.now.since(from) < Duration::from_secs(30), "{refused}");
            bench.advance(Duration::from_millis(100));
            let mut said = bench.said();
            if said.contains(&"0 opens".to_owned()) {
                said.extend(bench.input(0, Input::Opened));
                waiting = true;
            }
            if waiting && said.iter().any(|line| line.starts_with(&format!("0 {short} "))) {
                said.extend(bench.input(0, ended("resource watch failed")));
                waiting = false;
            }
            blamed.extend(said.into_iter().filter(|line| line.contains(" ends ")));
        }
        assert_eq!(blamed, [format!("{short} ends 1")]);
    }
}

/// A proxy in front of a control plane that is down.
#[test]
fn kal_5_a_server_that_serves_nobody_blames_no_type() {
    let mut bench = Bench::class();
    bench.answers(0, RUNTIME, "r=1");
    bench.input(0, Input::Closed { status: Status::new(Code::Unavailable, ""), jitter: 0.5 });
    let (mut first, mut streams) = (BTreeSet::new(), 0);
    for _ in 0..1200 {
        bench.advance(Duration::from_millis(100));
        if bench.said().contains(&"0 opens".to_owned()) {
            streams += 1;
            let said = bench.input(0, Input::Opened);
            first.insert(said[0].clone());
            assert_eq!(said.len(), if streams <= 2 { 3 } else { 1 }, "{said:?}");
            let done = bench.input(0, ended("no healthy upstream"));
            assert!(!done.iter().any(|line| line.contains(" ends ")), "{done:?}");
        }
    }
    assert!(streams >= 6 && first.len() == 3, "{streams}: {first:?}");
    // The server is there again. Its first answer ends the care.
    while !bench.said().contains(&"0 opens".to_owned()) {
        bench.advance(Duration::from_millis(100));
    }
    let said = bench.input(0, Input::Opened);
    assert_eq!(said.len(), 1, "{said:?}");
    let message = if said[0].contains(" r ") {
        RUNTIME
    } else if said[0].contains(" e ") {
        EDS
    } else {
        CDS
    };
    let list = if message == CDS {
        "a=2"
    } else if message == EDS {
        "e=2"
    } else {
        "r=2"
    };
    assert_eq!(bench.answers(0, message, list).len(), 2, "the others are asked for at once");
    assert!(!bench.reach_is_lost());
}
