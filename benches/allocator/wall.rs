//! The hot paths in wall time, at the sizes of a large relay.
#![allow(clippy::expect_used, clippy::panic, reason = "a bench that cannot run panics with the reason")]

use std::cell::RefCell;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use sluice_xds::Variant;

use sluice_benches::authorization::Authorize;
use sluice_benches::decode::{FirstRequest, NodeAgain, decode, delta_response};
use sluice_benches::fan_out::{FanOut, encode_once, full_set};
use sluice_benches::first_answer::{CLIENTS, FirstAnswer};
use sluice_benches::hold::Hold;
use sluice_benches::subscribe::Subscribe;

/// The allocator of the relay.
#[cfg(not(target_env = "msvc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const SESSIONS: usize = 10_000;

fn fan_out(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fan_out");
    group.throughput(Throughput::Elements(SESSIONS as u64));
    group.sample_size(20).measurement_time(Duration::from_secs(4));
    let cases = [
        ("delta", FanOut::new as fn(_, _, _) -> _, Variant::Delta),
        ("delta_by_pushes", FanOut::by_pushes, Variant::Delta),
        ("sotw", FanOut::new, Variant::Sotw),
        ("sotw_by_pushes", FanOut::by_pushes, Variant::Sotw),
    ];
    for (name, new, variant) in cases {
        let relay = RefCell::new(new(variant, SESSIONS, 1_000));
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || relay.borrow_mut().next_response(),
                |response| relay.borrow_mut().deliver(response),
                BatchSize::PerIteration,
            );
        });
    }
}

fn first_answer(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("first_answer");
    group.throughput(Throughput::Elements(CLIENTS as u64)).sample_size(20);
    for (name, messages) in [("whole", 1), ("split", 2)] {
        group.bench_function(name, |bencher| {
            bencher.iter_batched_ref(
                || FirstAnswer::new(messages),
                FirstAnswer::send,
                BatchSize::PerIteration,
            );
        });
    }
}

fn hold(criterion: &mut Criterion) {
    const CLUSTERS: usize = 100_000;
    let mut group = criterion.benchmark_group("hold");
    group.sample_size(20);
    let steps = [("begin", Hold::begin as fn(&mut Hold) -> _), ("cut", Hold::cut), ("settle", Hold::settle)];
    for (number, (name, step)) in steps.into_iter().enumerate() {
        let prepared = || Hold::before(number, CLUSTERS);
        group.bench_function(name, |bencher| {
            bencher.iter_batched_ref(prepared, step, BatchSize::PerIteration)
        });
    }
}

fn encode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode_once");
    for (name, variant) in [("delta", Variant::Delta), ("sotw", Variant::Sotw)] {
        let answer = full_set(variant, 100);
        group.bench_function(name, |bencher| bencher.iter(|| encode_once(black_box(&answer))));
    }
}

fn subscribe(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("subscribe");
    group.bench_function("first", |bencher| {
        bencher.iter_batched_ref(|| Subscribe::first(1_000), Subscribe::take, BatchSize::LargeInput);
    });
    group.bench_function("repeated", |bencher| {
        bencher.iter_batched_ref(|| Subscribe::repeated(1_000), Subscribe::take, BatchSize::LargeInput);
    });
}

fn decoding(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    let request = FirstRequest::new();
    group.bench_function("node_class", |bencher| bencher.iter(|| black_box(&request).classify()));
    let mut again = NodeAgain::new();
    group.bench_function("node_again", |bencher| bencher.iter(|| black_box(&mut again).read()));
    let message = delta_response(100);
    group.bench_function("delta_response", |bencher| bencher.iter(|| decode(black_box(message.clone()))));
}

fn authorize(criterion: &mut Criterion) {
    const NAMES: usize = 1_000;
    let authorize = Authorize::new(NAMES);
    let grant = authorize.decide();
    assert_eq!(authorize.names(&grant), NAMES, "all names are allowed");
    assert_eq!(authorize.foreign_names(&grant), 0, "no name of another namespace is");
    let mut group = criterion.benchmark_group("authorization");
    group.bench_function("stream", |bencher| bencher.iter(|| black_box(&authorize).decide()));
    group.throughput(Throughput::Elements(NAMES as u64));
    group.bench_function("names", |bencher| bencher.iter(|| authorize.names(black_box(&grant))));
    group.bench_function("denied_names", |bencher| {
        bencher.iter(|| authorize.foreign_names(black_box(&grant)))
    });
}

criterion_group!(benches, fan_out, first_answer, hold, encode, subscribe, decoding, authorize);
criterion_main!(benches);
