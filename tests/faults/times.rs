//! With default settings: the time from each fault to the first answer of the next server, while a client
//! with all its resources notices nothing.

use std::time::{Duration, Instant};

use crate::support::client::Event;
use crate::support::{Client, ControlPlane, EDS, Proxy, Relay, Setup, Variant};

/// The delay that the machine may add.
const SLACK: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
enum Fault {
    Refused,
    Blackhole,
    HalfOpen,
    Stopped,
}

impl Fault {
    /// The time from the fault to the first answer of the next server.
    fn bound(self) -> Duration {
        Duration::from_millis(match self {
            Fault::Refused => 1_500,
            Fault::Blackhole => 7_000,
            Fault::HalfOpen => 20_000,
            Fault::Stopped => 45_000,
        })
    }
}

/// A client subscribes to a new name at the moment of the fault.
async fn falls_back(fault: Fault) {
    let (first, second) = (ControlPlane::obedient().await, ControlPlane::obedient().await);
    for (server, text) in [(&first, "first"), (&second, "second")] {
        server.set_many(EDS, &[("cached", text), ("late", text)]);
    }
    let mut proxy = Proxy::start(first.address).await;
    let setup = Setup::of(proxy.address).with_defaults().next_server(second.address);
    let relay = Relay::start(setup).await;
    let mut cached = Client::open(&relay.address, Variant::Delta, "cached").await;
    let mut lacking = Client::open(&relay.address, Variant::Delta, "lacking").await;
    for client in [&mut cached, &mut lacking] {
        client.want(EDS, &["cached"]);
        client.settle(EDS, &[("cached", "first")]).await;
    }
    let start = Instant::now();
    match fault {
        Fault::Refused => proxy.refuse().await,
        Fault::Blackhole => {
            proxy.blackhole();
            proxy.cut();
        }
        Fault::HalfOpen => proxy.partition(),
        Fault::Stopped => proxy.hang(),
    }
    lacking.want(EDS, &["cached", "late"]);
    while lacking.holds(EDS).get("late").is_none_or(|text| text != "second") {
        match lacking.event_within(fault.bound() + SLACK).await {
            Event::Answer(answer) => {
                assert_eq!(answer.removed, [""; 0], "{fault:?}: {answer:?}");
                lacking.ack(&answer);
            }
            end => panic!("{fault:?}: {end:?}"),
        }
    }
    let took = start.elapsed();
    assert!(took < fault.bound() + SLACK, "{fault:?}: {took:?}");
    cached.silence(Duration::from_millis(200)).await;
    drop(relay);
}

#[tokio::test]
async fn the_next_server_answers_in_time() {
    tokio::join!(
        falls_back(Fault::Refused),
        falls_back(Fault::Blackhole),
        falls_back(Fault::HalfOpen),
        falls_back(Fault::Stopped),
    );
}

/// Revert: within the backoff's cap and a second, if the first server has everything. The outage is long
/// enough to reach the cap, which is shortened, since 30 s would take minutes.
#[tokio::test]
async fn the_first_server_is_back_in_time() {
    let cap = Duration::from_secs(5);
    let (first, second) = (ControlPlane::obedient().await, ControlPlane::obedient().await);
    for (server, text) in [(&first, "first"), (&second, "second")] {
        server.set(EDS, "a", text);
    }
    let mut proxy = Proxy::start(first.address).await;
    proxy.refuse().await;
    let setup = Setup::of(proxy.address).with_defaults().server_line("backoff: { initial: 1s, max: 5s }");
    let relay = Relay::start(setup.next_server(second.address)).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(EDS, &["a"]);
    client.settle(EDS, &[("a", "second")]).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let start = Instant::now();
    proxy.listen().await;
    client.settle(EDS, &[("a", "first")]).await;
    let bound = cap.mul_f64(1.2) + Duration::from_secs(1);
    assert!(start.elapsed() < bound + SLACK, "back after {:?}", start.elapsed());
    drop(relay);
}
