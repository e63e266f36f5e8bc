//! The hot paths in instructions, at sizes that valgrind finishes in seconds. `benches/check` starts this program once for
//! each path under valgrind, which counts what `sluice_counted_path` does, and compares the counts with the committed baseline.
#![allow(clippy::panic, reason = "a bench that cannot run panics with the reason")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command that lists its paths")]

use std::hint::black_box;
use std::process::ExitCode;

use sluice_benches::authorization::Authorize;
use sluice_benches::decode::{FirstRequest, NodeAgain, decode, delta_response};
use sluice_benches::fan_out::{FanOut, encode_once, full_set};
use sluice_benches::first_answer::FirstAnswer;
use sluice_benches::subscribe::Subscribe;
use sluice_engine::authorization::Grant;
use sluice_xds::Variant;

const SESSIONS: usize = 500;
const CLUSTERS: usize = 1_000;

/// Each path by its name in the baseline.
const PATHS: [(&str, fn()); 20] = [
    ("fan_out/delta", || fan_out(FanOut::new(Variant::Delta, SESSIONS, CLUSTERS))),
    ("fan_out/sotw", || fan_out(FanOut::new(Variant::Sotw, SESSIONS, CLUSTERS))),
    ("fan_out_by_pushes/delta", || fan_out(FanOut::by_pushes(Variant::Delta, SESSIONS, CLUSTERS))),
    ("fan_out_by_pushes/sotw", || fan_out(FanOut::by_pushes(Variant::Sotw, SESSIONS, CLUSTERS))),
    ("acks/delta", || acks(Variant::Delta)),
    ("acks/sotw", || acks(Variant::Sotw)),
    ("first_answer/whole", || first_answer(1)),
    ("first_answer/split", || first_answer(2)),
    ("encode_once/delta", || encode(Variant::Delta)),
    ("encode_once/sotw", || encode(Variant::Sotw)),
    ("subscribe/first", || subscribe(Subscribe::first(1_000))),
    ("subscribe/repeated", || subscribe(Subscribe::repeated(1_000))),
    ("subscribe/few", || subscribe(Subscribe::one_more_of(100))),
    ("subscribe/many", || subscribe(Subscribe::one_more_of(10_000))),
    ("authorization/stream", || counted(Authorize::new(0), |authorize| authorize.decide())),
    ("authorization_names/allowed", || judge(Authorize::names)),
    ("authorization_names/denied", || judge(Authorize::foreign_names)),
    ("node_class/envoy", || counted(FirstRequest::new(), |request| request.classify())),
    ("node_again/envoy", || counted(NodeAgain::new(), |stream| stream.read())),
    ("delta_response_decoded/hundred", || counted(delta_response(100), |message| decode(message.clone()))),
];

/// The part of a path that counts. Neither the set-up nor the end of what the path returns belongs to it.
fn counted<S, R>(mut set_up: S, path: impl FnOnce(&mut S) -> R) {
    let result = sluice_counted_path(black_box(&mut set_up), path);
    drop((black_box(result), set_up));
}

/// The function that valgrind finds by its name.
#[inline(never)]
fn sluice_counted_path<S, R>(set_up: &mut S, path: impl FnOnce(&mut S) -> R) -> R {
    path(set_up)
}

fn fan_out(mut relay: FanOut) {
    let response = relay.next_response();
    counted((relay, Some(response)), |(relay, response)| {
        response.take().map(|response| relay.deliver(response))
    });
}

fn acks(variant: Variant) {
    let mut relay = FanOut::new(variant, SESSIONS, CLUSTERS);
    let acks = relay.acks();
    counted((relay, acks), |(relay, acks)| relay.take(acks));
}

fn first_answer(messages: usize) {
    counted(FirstAnswer::new(messages), |clients| clients.send());
}

fn encode(variant: Variant) {
    counted(full_set(variant, 100), |answer| encode_once(answer));
}

fn subscribe(session: Subscribe) {
    counted(session, |session| session.take());
}

/// A client's grant, and 1,000 names to judge.
fn judge(names: fn(&Authorize, &Grant) -> usize) {
    let authorize = Authorize::new(1_000);
    let grant = authorize.decide();
    counted((authorize, grant), |(authorize, grant)| names(authorize, grant));
}

/// Runs the path of the first argument, or lists all paths. `cargo bench` adds an argument of its own.
fn main() -> ExitCode {
    match std::env::args().skip(1).find(|argument| argument != "--bench") {
        None => PATHS.iter().for_each(|(name, _)| println!("{name}")),
        Some(path) => match PATHS.iter().find(|(name, _)| *name == path) {
            Some((_, run)) => run(),
            None => {
                eprintln!("no path has the name {path:?}");
                return ExitCode::FAILURE;
            }
        },
    }
    ExitCode::SUCCESS
}
