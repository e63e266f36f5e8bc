//! The hot paths in instructions, at sizes that valgrind finishes in seconds. `benches/check` compares the
//! counts with the committed baseline.
#![allow(clippy::expect_used, clippy::panic, reason = "a bench that cannot run panics with the reason")]
#![allow(
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a command without connections has nothing to drain"
)]

mod paths;

/// A module of its own, since the macros generate a `main`.
mod counted {
    use std::hint::black_box;
    use std::sync::Arc;

    use bytes::Bytes;
    use gungraun::{library_benchmark, library_benchmark_group};
    use sluice_engine::authorization::Grant;
    use sluice_engine::class::NodeClass;
    use sluice_engine::downstream::{Answer, Verdict};
    use sluice_xds::{DeltaResponse, Request, Response, Variant};

    use super::paths::authorization::Authorize;
    use super::paths::decode::{FirstRequest, NodeAgain, decode, delta_response};
    use super::paths::fan_out::{FanOut, encode_once as encode, full_set};
    use super::paths::first_answer::FirstAnswer;
    use super::paths::relay::Encoded;
    use super::paths::subscribe::Subscribe;

    const SESSIONS: usize = 500;

    fn changed(variant: Variant) -> (FanOut, Response) {
        let mut relay = FanOut::new(variant, SESSIONS, 1_000);
        let response = relay.next();
        (relay, response)
    }

    // The functions return their set-up, so that dropping the set-up does not count.

    #[library_benchmark(setup = changed)]
    #[bench::delta(Variant::Delta)]
    #[bench::sotw(Variant::Sotw)]
    fn fan_out((mut relay, response): (FanOut, Response)) -> (FanOut, usize) {
        let bytes = relay.deliver(black_box(response));
        (relay, bytes)
    }

    fn pushed(variant: Variant) -> (FanOut, Response) {
        let mut relay = FanOut::by_pushes(variant, SESSIONS, 1_000);
        let response = relay.next();
        (relay, response)
    }

    #[library_benchmark(setup = FirstAnswer::new)]
    #[bench::whole(1)]
    #[bench::split(2)]
    fn first_answer(mut clients: FirstAnswer) -> (FirstAnswer, usize) {
        let bytes = black_box(&mut clients).send();
        (clients, bytes)
    }

    #[library_benchmark(setup = pushed)]
    #[bench::delta(Variant::Delta)]
    #[bench::sotw(Variant::Sotw)]
    fn fan_out_by_pushes((mut relay, response): (FanOut, Response)) -> (FanOut, usize) {
        let bytes = relay.deliver(black_box(response));
        (relay, bytes)
    }

    fn sent(variant: Variant) -> (FanOut, Vec<Request>) {
        let mut relay = FanOut::new(variant, SESSIONS, 1_000);
        let acks = relay.acks();
        (relay, acks)
    }

    #[library_benchmark(setup = sent)]
    #[bench::delta(Variant::Delta)]
    #[bench::sotw(Variant::Sotw)]
    fn acks((mut relay, acks): (FanOut, Vec<Request>)) -> (FanOut, Vec<Request>, usize) {
        let looks = relay.take(black_box(&acks));
        (relay, acks, looks)
    }

    fn set(variant: Variant) -> Answer {
        full_set(variant, 100)
    }

    #[library_benchmark(setup = set)]
    #[bench::delta(Variant::Delta)]
    #[bench::sotw(Variant::Sotw)]
    fn encode_once(answer: Answer) -> (Encoded, Answer) {
        (encode(black_box(&answer)), answer)
    }

    #[library_benchmark]
    #[bench::first(Subscribe::first(1_000))]
    #[bench::repeated(Subscribe::repeated(1_000))]
    #[bench::few(Subscribe::one_more_of(100))]
    #[bench::many(Subscribe::one_more_of(10_000))]
    fn subscribe(mut session: Subscribe) -> (Subscribe, Verdict) {
        let verdict = black_box(&mut session).take();
        (session, verdict)
    }

    #[library_benchmark]
    #[bench::stream(Authorize::new(0))]
    fn authorization(authorize: Authorize) -> (Arc<Grant>, Authorize) {
        (black_box(&authorize).decide(), authorize)
    }

    /// A client's grant, and 1,000 names to judge.
    type Judged = (Authorize, Arc<Grant>, fn(&Authorize, &Grant) -> usize);

    fn granted(judge: fn(&Authorize, &Grant) -> usize) -> Judged {
        let authorize = Authorize::new(1_000);
        let grant = authorize.decide();
        (authorize, grant, judge)
    }

    #[library_benchmark(setup = granted)]
    #[bench::allowed(Authorize::names)]
    #[bench::denied(Authorize::foreign_names)]
    fn authorization_names((authorize, grant, judge): Judged) -> (usize, Judged) {
        (judge(&authorize, black_box(&grant)), (authorize, grant, judge))
    }

    #[library_benchmark]
    #[bench::envoy(FirstRequest::new())]
    fn node_class(request: FirstRequest) -> (NodeClass, FirstRequest) {
        (black_box(&request).classify(), request)
    }

    #[library_benchmark]
    #[bench::envoy(NodeAgain::new())]
    fn node_again(mut stream: NodeAgain) -> (Request, NodeAgain) {
        (black_box(&mut stream).read(), stream)
    }

    #[library_benchmark]
    #[bench::hundred(delta_response(100))]
    fn delta_response_decoded(message: Bytes) -> (DeltaResponse, Bytes) {
        (decode(black_box(message.clone())), message)
    }

    library_benchmark_group!(
        name = counts,
        benchmarks = [
            fan_out,
            fan_out_by_pushes,
            acks,
            first_answer,
            encode_once,
            subscribe,
            authorization,
            authorization_names,
            node_class,
            node_again,
            delta_response_decoded,
        ]
    );

    gungraun::main!(library_benchmark_groups = counts);

    pub fn run() {
        main();
    }
}

/// The path of the runner that `benches/check` installs; set in `.cargo/config.toml`.
const RUNNER: Option<&str> = option_env!("GUNGRAUN_RUNNER");

fn main() {
    if RUNNER.is_some_and(|runner| std::path::Path::new(runner).exists()) {
        counted::run();
    } else {
        eprintln!("instruction counts: skipped, gungraun-runner is not installed; benches/check does it");
    }
}
