//! Honest clients beside the attackers: the time from a change at the control plane to each client, and the time of a new
//! client from the connect to the first answer.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};
use tonic::transport::{Channel, Endpoint};

use crate::arena::{Mode, Target};
use crate::support::client::{Event, node};
use crate::support::{CDS, Client, ControlPlane, Variant};

/// The time between two updates, and between two new clients.
const UPDATES: Duration = Duration::from_millis(50);
const CONNECTS: Duration = Duration::from_millis(100);

/// A new client without an answer for so long has failed.
const CONNECT_MAX: Duration = Duration::from_secs(10);

const NAME: &str = "tick";
const BODY_BYTES: usize = 1024;

/// A resource for clients that read nothing. No honest client wants it.
pub const LARGE: &str = "large";
const LARGE_BYTES: usize = 100 << 10;
/// A resource of a megabyte that never changes.
pub const STILL: &str = "still";
/// A large update for so many small ones.
const LARGE_EVERY: usize = 4;

/// Latencies with the moment of the cause: an update sent, or a connect begun.
#[derive(Default)]
struct Latencies(Mutex<Vec<(Instant, Duration)>>);

impl Latencies {
    fn add(&self, begin: Instant, latency: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((begin, latency));
    }

    fn within(&self, from: Instant, until: Instant) -> Vec<Duration> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|(begin, _)| (from..until).contains(begin)).map(|(_, latency)| *latency).collect()
    }
}

/// The 99th percentiles of a span of time.
#[derive(Clone, Copy, Debug)]
pub struct Percentiles {
    pub update: Duration,
    pub connect: Duration,
}

/// The control plane's updates, and when each was sent.
#[derive(Clone)]
pub struct Ticks {
    origin: Arc<ControlPlane>,
    sent: Arc<Mutex<Vec<Instant>>>,
}

impl Ticks {
    pub fn start(runtime: &Runtime, origin: Arc<ControlPlane>) -> Ticks {
        origin.set(CDS, STILL, &"z".repeat(1 << 20));
        let ticks = Ticks { origin, sent: Arc::default() };
        ticks.next();
        let forever = ticks.clone();
        runtime.spawn(async move {
            loop {
                sleep(UPDATES).await;
                forever.next();
            }
        });
        ticks
    }

    fn next(&self) {
        let mut sent = self.sent.lock().unwrap();
        let text = format!("{:08}{}", sent.len(), "x".repeat(BODY_BYTES));
        sent.push(Instant::now());
        self.origin.set(CDS, NAME, &text);
        if sent.len() % LARGE_EVERY == 1 {
            self.origin.set(CDS, LARGE, &format!("{}{}", sent.len(), "y".repeat(LARGE_BYTES)));
        }
    }

    fn at(&self, number: usize) -> Instant {
        self.sent.lock().unwrap()[number]
    }

    fn within(&self, from: Instant, until: Instant) -> usize {
        self.sent.lock().unwrap().iter().filter(|at| (from..until).contains(*at)).count()
    }
}

/// The clients of one relay.
pub struct Fleet {
    updates: Arc<Latencies>,
    connects: Arc<Latencies>,
    ticks: Ticks,
    clients: usize,
}

impl Fleet {
    /// Opens `clients` clients, half of them by TLS.
    pub fn start(runtime: &Runtime, ticks: &Ticks, target: &Target, clients: usize) -> Fleet {
        let (updates, connects): (Arc<Latencies>, Arc<Latencies>) = Default::default();
        for number in 0..clients {
            let mode = if number % 2 == 0 { Mode::Plain } else { Mode::Tls };
            runtime.spawn(live(target.clone(), mode, number, ticks.clone(), updates.clone()));
        }
        for mode in [Mode::Plain, Mode::Tls] {
            runtime.spawn(probe(target.clone(), mode, connects.clone()));
        }
        Fleet { updates, connects, ticks: ticks.clone(), clients }
    }

    /// The percentiles of all events with a begin in this time. Waits for the last update to arrive.
    pub async fn percentiles(&self, from: Instant, until: Instant) -> Percentiles {
        let expected = self.ticks.within(from, until) * self.clients;
        let all_came = async {
            while self.updates.within(from, until).len() < expected {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let _ = timeout(CONNECT_MAX, all_came).await;
        let mut updates = self.updates.within(from, until);
        // A missing update counts with the whole wait.
        updates.resize(expected.max(updates.len()), CONNECT_MAX);
        Percentiles { update: p99(updates), connect: p99(self.connects.within(from, until)) }
    }

    /// Waits until all clients have the newest update.
    pub async fn settled(&self) {
        loop {
            let now = Instant::now();
            sleep(UPDATES * 4).await;
            let came = self.updates.within(now, now + UPDATES * 2).len();
            if came >= self.clients {
                return;
            }
        }
    }
}

fn p99(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    let at = (all.len() * 99 / 100).min(all.len().saturating_sub(1));
    all.get(at).copied().unwrap_or_default()
}

async fn channel(target: Target, mode: Mode) -> Result<Channel, tonic::transport::Error> {
    let connector = tower::service_fn(move |_: http::Uri| {
        let target = target.clone();
        async move { target.connect(mode).await.map(TokioIo::new) }
    });
    // The scheme says nothing about the connection, as the connector is ours.
    Endpoint::from_static("http://relay.example").connect_with_connector(connector).await
}

fn open(channel: Channel, id: &str) -> Client {
    let mut client = Client::on(channel, Variant::Delta, Some(node(id)));
    client.want(CDS, &[NAME]);
    client
}

/// Reads all updates. A newer update brings the content of the updates before.
async fn live(target: Target, mode: Mode, number: usize, ticks: Ticks, updates: Arc<Latencies>) {
    let mut client = open(channel(target, mode).await.expect("a connection"), &format!("honest-{number}"));
    let mut next = None;
    loop {
        // After the end of the stream all further updates are missing.
        let Event::Answer(answer) = client.event_within(Duration::from_secs(600)).await else { return };
        client.ack(&answer);
        let Some(text) = answer.items.first().map(|item| item.text()) else { continue };
        let newest: usize = text[..8].parse().expect("a number");
        for tick in next.unwrap_or(newest)..=newest {
            let at = ticks.at(tick);
            updates.add(at, at.elapsed());
        }
        next = Some(newest + 1);
    }
}

/// Connects again and again.
async fn probe(target: Target, mode: Mode, connects: Arc<Latencies>) {
    loop {
        let begin = Instant::now();
        let first_answer = async {
            let channel = channel(target.clone(), mode).await.ok()?;
            let mut client = open(channel, "probe");
            matches!(client.event_within(CONNECT_MAX).await, Event::Answer(_)).then_some(())
        };
        let latency = match within(first_answer).await {
            Some(()) => begin.elapsed(),
            None => CONNECT_MAX,
        };
        connects.add(begin, latency);
        sleep(CONNECTS).await;
    }
}

async fn within(answer: impl Future<Output = Option<()>>) -> Option<()> {
    timeout(CONNECT_MAX, answer).await.ok().flatten()
}
