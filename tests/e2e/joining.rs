//! A replica that comes to a push in the middle, without content from before it (LDG-3, LDG-5).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::sleep;

use crate::etcd::Etcd;
use crate::support::client::{Event, connect, node};
use crate::support::control_plane::eventually;
use crate::support::{CDS, Client, ControlPlane, DEADLINE, RDS, Relay, Setup, Variant};

const CLIENTS: usize = 24;
const LEASE: Duration = Duration::from_secs(5);

fn setup(origin: &ControlPlane, name: &str, etcd: u16, more: &str) -> Setup {
    let plan = "rollouts: [ { name: edge, mode: enforce, gather: { quiet: 100ms, max: 1s }, \
         steps: [ { percent: 40, bake: 60s } ], final_bake: 1s } ]";
    let ledger = format!(
        "ledger: {{ replica: {name}, lease: 5s, {more} etcd: {{ endpoints: [\"127.0.0.1:{etcd}\"] }} }}"
    );
    Setup::of(origin.address).line(plan).line(&ledger)
}

/// Clients of one replica that answer everything. They ask for all clusters and a route.
struct Clients(Vec<Client>);

impl Clients {
    async fn open(relay: &Relay) -> Clients {
        let channel = connect(&relay.address).await;
        let open = |number: usize| {
            let variant = if number.is_multiple_of(2) { Variant::Delta } else { Variant::Sotw };
            let mut client = Client::on(channel.clone(), variant, Some(node(&format!("client-{number}"))));
            client.want(CDS, &["*"]);
            client.want(RDS, &["r"]);
            client
        };
        Clients((0..CLIENTS).map(open).collect())
    }

    fn answer(&mut self) {
        for client in &mut self.0 {
            while let Some(event) = client.try_event() {
                let Event::Answer(answer) = event else { panic!("a stream ended: {event:?}") };
                client.ack(&answer);
            }
        }
    }

    /// The number of clients with this cluster `a`.
    fn having(&self, text: &str) -> usize {
        let has = |client: &&Client| client.holds(CDS).get("a").is_some_and(|held| held == text);
        self.0.iter().filter(has).count()
    }

    async fn until(&mut self, what: &str, is_so: impl Fn(&Clients) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(begun.elapsed() < DEADLINE, "no {what}: {}, {}", self.having("1"), self.having("2"));
            sleep(Duration::from_millis(5)).await;
            self.answer();
        }
    }

    async fn answer_for(&mut self, time: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time {
            sleep(Duration::from_millis(5)).await;
            self.answer();
        }
    }
}

/// A control plane, an etcd, and a replica with a push at its first step. Returns the clients, too.
async fn push_under_way() -> (ControlPlane, Etcd, Relay, Clients) {
    let (origin, etcd) = (ControlPlane::obedient().await, Etcd::start().await);
    for (type_url, name) in [(CDS, "a"), (CDS, "b"), (RDS, "r")] {
        origin.set(type_url, name, "1");
    }
    let relay = Relay::start(setup(&origin, "relay-1", etcd.port, "")).await;
    let mut clients = Clients::open(&relay).await;
    clients.until("first content", |clients| clients.having("1") == CLIENTS).await;
    origin.set(CDS, "a", "2");
    clients.until("step", |clients| clients.having("2") > 0).await;
    clients.answer_for(Duration::from_millis(500)).await;
    (origin, etcd, relay, clients)
}

/// A replica without a checkpoint, which need not be ready.
async fn joiner(origin: &ControlPlane, etcd: u16, more: &str) -> Relay {
    let relay = Relay::launch(setup(origin, "relay-2", etcd, more));
    eventually("the ledger is heard", || async {
        let heard = crate::support::net::http_get(&relay.admin, "/rollouts/edge").await;
        heard.is_ok_and(|(_, text)| {
            let plan: Value = serde_json::from_str(&text).unwrap_or_default();
            plan["ledger"]["push"] == 1
        })
    })
    .await;
    relay
}

async fn newcomers(relay: &Relay) -> Value {
    relay.json("/rollouts/edge").await["ledger"]["newcomers"].clone()
}

/// The number of types of clients by state and reason.
async fn states(relay: &Relay) -> BTreeMap<(String, String), usize> {
    let found = relay.json("/clients?limit=all").await;
    let mut states = BTreeMap::new();
    for client in found["clients"].as_array().unwrap() {
        for of_type in client["types"].as_array().unwrap() {
            let word = |key: &str| of_type[key].as_str().unwrap_or("none").to_owned();
            *states.entry((word("state"), word("why"))).or_default() += 1;
        }
    }
    states
}

#[tokio::test]
async fn ldg_3_clients_of_a_replica_that_joins_in_a_push_wait_for_their_seat_or_its_end() {
    let (origin, etcd, first, mut clients) = push_under_way().await;
    let seated = clients.having("2");
    assert!(seated > 0 && seated < CLIENTS, "{seated} clients are in the first step");
    let second = joiner(&origin, etcd.port, "").await;
    let (status, report) = second.get("/ready").await;
    assert_eq!(status, 503, "{report}");
    assert!(report.contains("\"joining\":true"), "{report}");

    // The clients come with their seats, and without content.
    let mut moved = Clients::open(&second).await;
    moved.until("step", |moved| moved.having("2") == seated).await;
    moved.until("routes", |moved| moved.0.iter().all(|client| client.holds(RDS).len() == 1)).await;
    moved.answer_for(Duration::from_secs(2)).await;
    assert_eq!(moved.having("2"), seated, "only the seats of the step have the push");
    assert_eq!(moved.having("1"), 0);
    let waits = "clients of 1 unit wait for push 1: there is no content from before it here";
    assert_eq!(newcomers(&second).await, waits);
    let (status, report) = second.get("/ready").await;
    assert!(status == 503 && report.contains(waits), "{report}");
    let is = states(&second).await;
    let waiting = ("NOT_SENT".to_owned(), "held:join".to_owned());
    assert_eq!(is.get(&waiting), Some(&(CLIENTS - seated)), "{is:?}");
    assert_eq!(is.keys().filter(|(state, _)| state == "STALE").count(), 0, "{is:?}");
    let begun = "units without stable content come to a push that is under way elsewhere";
    assert_eq!(second.warnings(begun).len(), 1, "{}", second.log());

    let (status, answer) = first.post("/rollouts/edge/promote?push=1&all=1").await;
    assert_eq!(status, 200, "{answer}");
    moved.until("end of the push", |moved| moved.having("2") == CLIENTS).await;
    clients.until("end of the push", |clients| clients.having("2") == CLIENTS).await;
    eventually("the replica is ready", || async { second.get("/ready").await.0 == 200 }).await;
    assert_eq!(newcomers(&second).await, Value::Null);
    let over = "no units without stable content wait any longer";
    eventually("the end is told", || async { second.log().contains(over) }).await;
    let events = second.json("/events?kind=push").await.to_string();
    for event in ["units without stable content come to a push", over] {
        assert!(events.contains(event), "{events}");
    }
    // From now on the replica takes part.
    origin.set(CDS, "a", "3");
    moved.until("the next step", |moved| moved.having("3") == seated).await;
}

#[tokio::test]
async fn ldg_3_with_join_live_all_clients_of_a_replica_that_joins_are_given_the_push() {
    let (origin, etcd, _first, _clients) = push_under_way().await;
    let second = joiner(&origin, etcd.port, "join: live,").await;
    let mut moved = Clients::open(&second).await;
    moved.until("the push", |moved| moved.having("2") == CLIENTS).await;
    let given = newcomers(&second).await;
    assert!(given.as_str().unwrap().contains("are all given push 1"), "{given}");
    let (status, report) = second.get("/ready").await;
    assert!(status == 200 && report.contains("are all given push 1"), "{report}");
    assert_eq!(second.warnings("come to a push that is under way elsewhere").len(), 1, "{}", second.log());
}

/// A replica that has never heard the ledger waits for its first word for the length of a lease.
#[tokio::test]
async fn ldg_5_a_ledger_that_says_nothing_keeps_nobody_waiting_for_longer_than_a_lease() {
    let origin = ControlPlane::obedient().await;
    for (type_url, name) in [(CDS, "a"), (RDS, "r")] {
        origin.set(type_url, name, "1");
    }
    let begun = Instant::now();
    let nobody = crate::support::net::free_port();
    let mut relay = Relay::launch(setup(&origin, "relay-1", nobody, ""));
    eventually("the listener is open", || async {
        crate::support::net::http_get(&relay.admin, "/ready").await.is_ok_and(|(status, _)| status == 503)
    })
    .await;
    let mut clients = Clients::open(&relay).await;
    eventually("the wait is told", || async { newcomers(&relay).await != Value::Null }).await;
    assert_eq!(newcomers(&relay).await, "clients of 1 unit wait for the first word of the ledger");
    clients.until("the content", |clients| clients.having("1") == CLIENTS).await;
    assert!(begun.elapsed() >= LEASE, "they waited");
    relay.ready().await;
    assert_eq!(newcomers(&relay).await, Value::Null);
}

/// A content that one replica condemned is refused by a replica that began when the first one was gone.
#[tokio::test]
async fn ldg_2_a_content_that_a_replica_condemned_halts_a_push_elsewhere_before_its_first_client() {
    let (origin, etcd, first, clients) = push_under_way().await;
    let (status, answer) = first.post("/rollouts/edge/abort?push=1&condemn=Cluster/a").await;
    assert_eq!(status, 200, "{answer}");
    eventually("the ledger knows", || async {
        etcd.store.lock().keys.contains_key(&b"/sluice/condemned/edge"[..])
    })
    .await;
    drop((first, clients));
    // As etcd does when the lease has run out.
    etcd.store.lock().remove(b"/sluice/tally/edge/relay-1");
    origin.set(CDS, "a", "3");
    let second = Relay::start(setup(&origin, "relay-2", etcd.port, "")).await;
    let mut moved = Clients::open(&second).await;
    moved.until("mended content", |moved| moved.having("3") == CLIENTS).await;

    origin.set_many(CDS, &[("a", "2"), ("b", "2")]);
    let plan = async || second.json("/rollouts/edge").await;
    eventually("the halt", || async { plan().await["state"] == "halted" }).await;
    let found = plan().await;
    assert_eq!(found["step"], 0, "before the first client: {found}");
    let why = found["why"].as_str().unwrap();
    assert!(why.contains("it brings Cluster \"a\" ") && why.ends_with(", which is condemned"), "{found}");
    assert_eq!(found["condemned"]["count"], 1, "its name is known: {found}");
    moved.answer_for(Duration::from_millis(500)).await;
    assert_eq!(moved.having("3"), CLIENTS);
    assert_eq!(second.warnings("another replica has condemned a content").len(), 1, "{}", second.log());
}
