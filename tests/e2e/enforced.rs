//! Plans with `mode: enforce`: a push reaches the seats of its steps only, and a rejected push is taken back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::sleep;
use tonic::transport::Channel;

use crate::support::client::{Event, connect, fetch, node};
use crate::support::proxy::Proxy;
use crate::support::words::{Answer, Ask, eds_cluster};
use crate::support::{CDS, Client, ControlPlane, DEADLINE, EDS, RDS, Relay, Setup, Variant};

const TENTH: &str = "percent: 10";

/// One step, and the rest.
pub(super) fn plan(step: &str) -> String {
    format!(
        "rollouts: [ {{ name: edge, mode: enforce, gather: {{ quiet: 100ms, max: 1s }}, steps: [ {{ {step}, bake: 1s }} ], \
         final_bake: 1s, halt_on: {{ rejected_percent: 0 }} }} ]"
    )
}

/// The contents of an answer: type, name, text.
fn words(answer: &Answer) -> impl Iterator<Item = (String, String, String)> + '_ {
    answer.texts().into_iter().map(|(name, text)| (answer.type_url.clone(), name, text))
}

/// The control plane, the relay and the clients of a test.
pub(super) struct Fleet {
    pub origin: ControlPlane,
    pub relay: Relay,
    pub clients: Vec<Client>,
    /// All contents that each client was ever given: type, name, text.
    given: Vec<BTreeSet<(String, String, String)>>,
    /// Contents that every client rejects.
    pub bad: BTreeSet<&'static str>,
    /// Clients of this variant accept all contents.
    pub accepting: Option<Variant>,
}

impl Fleet {
    async fn start(setup: impl FnOnce(Setup) -> Setup, step: &str, count: usize) -> Fleet {
        Fleet::with(setup, &plan(step), count).await
    }

    pub async fn with(setup: impl FnOnce(Setup) -> Setup, plan: &str, count: usize) -> Fleet {
        let origin = ControlPlane::obedient().await;
        for (type_url, name) in [(CDS, "a"), (CDS, "b"), (EDS, "a"), (EDS, "b"), (RDS, "r")] {
            origin.set(type_url, name, "1");
        }
        let relay = Relay::start(setup(Setup::of(origin.address).line(plan))).await;
        let mut fleet = Fleet {
            origin,
            relay,
            clients: Vec::new(),
            given: Vec::new(),
            bad: BTreeSet::new(),
            accepting: None,
        };
        fleet.join(count).await;
        fleet
    }

    /// More clients, half of them of each variant, with all clusters, a route and endpoints.
    pub async fn join(&mut self, count: usize) {
        let first = self.clients.len();
        let mut channel: Option<Channel> = None;
        for number in first..first + count {
            if number % 50 == 0 || channel.is_none() {
                channel = Some(connect(&self.relay.address).await);
            }
            let variant = if number % 2 == 0 { Variant::Delta } else { Variant::Sotw };
            let node = node(&format!("client-{number}"));
            let mut client = Client::on(channel.clone().unwrap(), variant, Some(node));
            client.want(CDS, &["*"]);
            self.given.push(BTreeSet::new());
            self.clients.push(client);
        }
        let have = |fleet: &Fleet, type_url| {
            fleet.clients[first..].iter().all(|client| !client.holds(type_url).is_empty())
        };
        self.until("the clusters", |fleet| have(fleet, CDS)).await;
        for client in &mut self.clients[first..] {
            client.want(EDS, &["a", "b"]);
            client.want(RDS, &["r"]);
        }
        self.until("routes and endpoints", |fleet| have(fleet, RDS) && have(fleet, EDS)).await;
    }

    /// The relay dies, and another begins. All clients come back, without anything in hand; what each was ever given is remembered.
    pub async fn kill(&mut self, setup: impl FnOnce(Setup) -> Setup) {
        let count = self.clients.len();
        self.relay.signal("KILL");
        self.relay.exit().await;
        self.clients.clear();
        self.relay = Relay::start(setup(Setup::of(self.origin.address))).await;
        let before = std::mem::take(&mut self.given);
        self.join(count).await;
        for (given, before) in self.given.iter_mut().zip(before) {
            given.extend(before);
        }
    }

    /// Each stream ends once, with the old process, and all clients come to the new process empty-handed. The contents that clients were ever
    /// given are remembered.
    pub async fn moved(&mut self) {
        let count = self.clients.len();
        for (client, given) in self.clients.iter_mut().zip(&mut self.given) {
            loop {
                match client.event_within(2 * DEADLINE).await {
                    Event::Answer(answer) => {
                        given.extend(words(&answer));
                        client.ack(&answer);
                    }
                    Event::End(status) => break assert_eq!(status.message(), "the server is draining"),
                }
            }
        }
        self.clients.clear();
        let before = std::mem::take(&mut self.given);
        self.join(count).await;
        for (given, before) in self.given.iter_mut().zip(before) {
            given.extend(before);
        }
    }

    /// All clients leave, and stay away for longer than a `linger` of 0 s.
    pub async fn sleep(&mut self) {
        self.clients.clear();
        self.given.clear();
        let begun = Instant::now();
        let left = async || self.relay.series("sluice_downstream_streams{variant=\"delta\"}").await;
        while left().await > 0.0 && begun.elapsed() < DEADLINE {
            sleep(Duration::from_millis(20)).await;
        }
        sleep(Duration::from_secs(2)).await;
    }

    /// Forgets the contents that clients were given.
    pub fn forget(&mut self) {
        self.given.iter_mut().for_each(BTreeSet::clear);
    }

    /// The number of clients whose seat is below this percentage.
    pub async fn seated_below(&self, percent: f64) -> usize {
        let found = self.relay.json("/clients?limit=all").await;
        let clients = found["clients"].as_array().unwrap();
        assert_eq!(clients.len(), self.clients.len());
        clients.iter().filter(|client| client["seats"][0]["percent"].as_f64().unwrap() < percent).count()
    }

    /// The indices of all clients, by seat.
    pub async fn by_seat(&self) -> Vec<usize> {
        let found = self.relay.json("/clients?limit=all").await;
        let mut clients = found["clients"].as_array().unwrap().clone();
        let percent = |of: &Value| of["seats"][0]["percent"].as_f64().unwrap();
        clients.sort_by(|one, other| percent(one).total_cmp(&percent(other)));
        let number =
            |of: &Value| of["node"].as_str().unwrap().strip_prefix("client-").unwrap().parse().unwrap();
        clients.iter().map(number).collect()
    }

    /// Answers all responses, for all clients. Returns whether there were any.
    fn answer_all(&mut self) -> bool {
        let mut any = false;
        for (client, given) in self.clients.iter_mut().zip(&mut self.given) {
            while let Some(event) = client.try_event() {
                let Event::Answer(answer) = event else { panic!("a stream ended: {event:?}") };
                any = true;
                given.extend(words(&answer));
                let is_bad = answer.texts().iter().any(|(_, text)| self.bad.contains(text.as_str()));
                match is_bad && self.accepting != Some(client.variant) {
                    true => client.nack(&answer, "cluster a: no such extension"),
                    false => client.ack(&answer),
                }
            }
        }
        any
    }

    pub async fn until(&mut self, what: &str, is_over: impl Fn(&Fleet) -> bool) {
        let begun = Instant::now();
        loop {
            let any = self.answer_all();
            if is_over(self) {
                return;
            }
            if begun.elapsed() >= DEADLINE {
                let plan = self.relay.json("/rollouts/edge").await;
                panic!("no {what}: the plan is {plan}; the log:\n{}", self.relay.log());
            }
            if !any {
                sleep(Duration::from_millis(2)).await;
            }
        }
    }

    /// All clients reject this content from now on.
    pub fn reject(&mut self, text: &'static str) {
        self.bad.insert(text);
    }

    /// Answers until the plan's state is as wanted.
    pub async fn until_plan(&mut self, what: &str, is_over: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            self.answer_all();
            let found = self.relay.json("/rollouts/edge").await;
            if is_over(&found) {
                return found;
            }
            assert!(begun.elapsed() < DEADLINE, "no {what}: {found}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// The number of clients that were ever given this content.
    pub fn had(&self, type_url: &str, name: &str, text: &str) -> usize {
        let content = (type_url.to_owned(), name.to_owned(), text.to_owned());
        self.given.iter().filter(|given| given.contains(&content)).count()
    }

    pub fn all_hold(&self, type_url: &str, wanted: &[(&str, &str)]) -> bool {
        let wanted: BTreeMap<String, String> =
            wanted.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        self.clients.iter().all(|client| client.holds(type_url) == wanted)
    }
}

/// I22, I23, I24: of 2,000 clients, only clients with a seat in the first step are given the push.
#[tokio::test]
async fn wav_12_a_rejected_push_reaches_its_first_step_only_and_is_taken_back() {
    let mut fleet = Fleet::start(|setup| setup, "percent: 1", 2_000).await;
    let seated = fleet.seated_below(1.0).await;
    assert!((5..=50).contains(&seated), "{seated} of 2,000 clients are in the first step of 1 %");
    fleet.bad.insert("bad");
    fleet.origin.set(CDS, "a", "bad");
    fleet.until("the first rejection", |fleet| fleet.had(CDS, "a", "bad") > 0).await;
    let begun = Instant::now();
    let found = fleet.until_plan("halt", |found| found["state"] == "halted").await;
    assert!(begun.elapsed() < Duration::from_secs(3), "a tally a second");
    let had = fleet.had(CDS, "a", "bad");
    assert!((1..=seated).contains(&had), "{had} of {seated} clients with a seat: {found}");
    assert!(found["why"].as_str().unwrap().starts_with("halted push 1 after "), "{found}");
    fleet.until("way back", |fleet| fleet.all_hold(CDS, &[("a", "1"), ("b", "1")])).await;
    let had = fleet.had(CDS, "a", "bad");
    // TRU-1: those who rejected it after the halt count, too, although all have gone back.
    fleet.until_plan("count", |found| found["rejected"] == had).await;
    // A newcomer is given the content of the others (WAV-15).
    fleet.join(100).await;
    assert!(fleet.all_hold(CDS, &[("a", "1"), ("b", "1")]));
    // Endpoints flow (WAV-3, I25).
    fleet.origin.set(EDS, "b", "2");
    fleet.until("endpoints", |fleet| fleet.all_hold(EDS, &[("a", "1"), ("b", "2")])).await;
    let found = fleet.relay.json("/versions?type=Cluster&name=a").await;
    let is: Vec<_> = found["versions"].as_array().unwrap().iter().map(|of| of["is"].to_string()).collect();
    assert!(is.contains(&r#"["stable"]"#.to_owned()), "TRU-4: {found}");
    assert!(found["versions"].as_array().unwrap().iter().all(|of| of["since"].is_string()), "TRU-4: {found}");
    // The fix goes its own way.
    fleet.origin.set(CDS, "a", "good");
    fleet.until("the fix", |fleet| fleet.all_hold(CDS, &[("a", "good"), ("b", "1")])).await;
    assert_eq!(fleet.had(CDS, "a", "bad"), had, "I23: nobody else was given the halted content");
    fleet.until_plan("end", |found| found["state"] == "open").await;
}

/// A rejection does not wait for the next tally, which is due after a second.
#[tokio::test]
async fn wav_12_a_rejection_is_counted_at_once() {
    let mut fleet = Fleet::start(|setup| setup, "percent: 100", 10).await;
    fleet.bad.insert("bad");
    fleet.origin.set(CDS, "a", "bad");
    fleet.until("the first rejection", |fleet| fleet.had(CDS, "a", "bad") > 0).await;
    let begun = Instant::now();
    fleet.until_plan("halt", |found| found["state"] == "halted").await;
    assert!(begun.elapsed() < Duration::from_millis(700), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn wav_12_a_good_push_reaches_its_first_step_first_and_everybody_in_the_end() {
    let mut fleet = Fleet::start(|setup| setup, TENTH, 100).await;
    fleet.origin.set_many(CDS, &[("a", "2"), ("c", "2")]);
    fleet.until("the first step", |fleet| fleet.had(CDS, "a", "2") > 0).await;
    let begun = Instant::now();
    fleet.until("the second step", |fleet| fleet.had(CDS, "a", "2") > 25).await;
    assert!(begun.elapsed() > Duration::from_millis(900), "the first step bakes for a second");
    fleet.until("the end", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "1"), ("c", "2")])).await;
    fleet.until_plan("end", |found| found["state"] == "open").await;
    let push = fleet.relay.json("/rollouts/edge/pushes/1").await;
    assert_eq!(push["outcome"], "finished", "{push}");
}

/// WAV-7: a first answer is never held back.
#[tokio::test]
async fn wav_7_a_new_name_is_answered_during_a_halt() {
    let mut fleet = Fleet::start(|setup| setup, TENTH, 20).await;
    fleet.bad.insert("bad");
    fleet.origin.set(RDS, "r", "bad");
    fleet.until_plan("halt", |found| found["state"] == "halted").await;
    fleet.until("way back", |fleet| fleet.all_hold(RDS, &[("r", "1")])).await;
    fleet.origin.set(RDS, "new", "1");
    let begun = Instant::now();
    fleet.clients[0].want(RDS, &["r", "new"]);
    fleet.until("the new route", |fleet| fleet.clients[0].holds(RDS).contains_key("new")).await;
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert_eq!(fleet.clients[0].holds(RDS)["r"], "1");
    // GRD-2: the hold is seen, and grows older.
    fleet.relay.metric_reaches("sluice_rollout_behind_seconds", &["plan=\"edge\""], 2.0).await;
}

/// WAV-5: endpoints of stable's cluster stay while changes are held. Once stable's content is back, the hold ends, and the endpoints
/// that the control plane withdrew meanwhile go.
#[tokio::test]
async fn wav_5_endpoints_that_were_withdrawn_in_a_hold_go_at_its_end() {
    let origin = ControlPlane::obedient().await;
    let cluster = |text| eds_cluster("a", "", text);
    origin.change(|world| world.set(CDS, "a", cluster("1"), true));
    origin.set(EDS, "a", "1");
    let plan = "rollouts: [ { name: edge, mode: enforce, gather: { quiet: 60s, max: 120s }, \
         steps: [ { percent: 10, bake: 1s } ] } ]";
    let relay = Relay::start(Setup::of(origin.address).line(plan)).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["*"]);
    client.take(CDS).await;
    // No change of clusters wakes a client of endpoints alone.
    let mut other = Client::open(&relay.address, Variant::Delta, "two").await;
    other.want(EDS, &["a"]);
    other.take(EDS).await;
    origin.change(|world| world.set(CDS, "a", cluster("2"), true));
    origin.remove(EDS, "a");
    other.quiet().await;
    let begun = Instant::now();
    while relay.json("/rollouts/edge").await["state"] != "gathering" {
        assert!(begun.elapsed() < DEADLINE, "{}", relay.log());
        sleep(Duration::from_millis(20)).await;
    }
    origin.change(|world| world.set(CDS, "a", cluster("1"), true));
    assert_eq!(other.take(EDS).await.removed, ["a"]);
}

/// WAV-8: after a restart, content that was held back stays held back.
#[tokio::test]
async fn wav_8_a_killed_relay_goes_on_with_the_stable_content() {
    let kept = tempfile::tempdir().unwrap();
    let checkpoint =
        format!("checkpoint: {{ directory: {:?}, interval: 100ms }}", kept.path().join("checkpoint"));
    let mut fleet = Fleet::start(|setup| setup.line(&checkpoint), TENTH, 20).await;
    fleet.bad.insert("bad");
    fleet.origin.set(CDS, "a", "bad");
    fleet.until_plan("halt", |found| found["state"] == "halted").await;
    fleet.until("way back", |fleet| fleet.all_hold(CDS, &[("a", "1"), ("b", "1")])).await;
    let writes = fleet.relay.series("sluice_checkpoint_writes_total").await;
    let begun = Instant::now();
    while fleet.relay.series("sluice_checkpoint_writes_total").await < writes + 1.0
        && begun.elapsed() < Duration::from_secs(2)
    {
        sleep(Duration::from_millis(20)).await;
    }
    let had = fleet.had(CDS, "a", "bad");
    fleet.relay.signal("KILL");
    fleet.relay.exit().await;
    fleet.clients.clear();
    fleet.relay = Relay::start(Setup::of(fleet.origin.address).line(&plan(TENTH)).line(&checkpoint)).await;
    let before = std::mem::take(&mut fleet.given);
    fleet.join(20).await;
    fleet.until_plan("halt after the restart", |found| found["state"] == "halted").await;
    fleet.until("the way back", |fleet| fleet.all_hold(CDS, &[("a", "1"), ("b", "1")])).await;
    assert_eq!(
        fleet.had(CDS, "a", "bad"),
        0,
        "the halted content is known after the restart; {had} had it before"
    );
    drop(before);
}

/// WAV-21: a poll takes the lane of the seat.
#[tokio::test]
async fn wav_21_a_poll_is_given_the_stable_content() {
    let mut fleet = Fleet::start(|setup| setup, TENTH, 20).await;
    fleet.bad.insert("bad");
    fleet.origin.set(CDS, "a", "bad");
    fleet.until_plan("halt", |found| found["state"] == "halted").await;
    let path = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters";
    let mut ask = Ask::of(CDS);
    ask.node = Some(node("poller"));
    let answer: Answer = fetch(&fleet.relay.address, path, ask).await.unwrap();
    assert_eq!(answer.texts(), [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "1".to_owned())]);
}

/// WAV-14, QUA-4: the clients of the first step rejected the push before. So each step asks some client without such a rejection.
#[tokio::test]
async fn wav_14_a_second_bad_push_is_judged_by_other_clients() {
    let mut fleet = Fleet::start(|setup| setup, "percent: 30", 40).await;
    let seated = fleet.seated_below(30.0).await;
    for (push, bad) in [(1, "bad"), (2, "worse"), (3, "worst")] {
        fleet.bad.insert(bad);
        fleet.origin.set(CDS, "a", bad);
        let found =
            fleet.until_plan("halt", |found| found["push"] == push && found["state"] == "halted").await;
        let had = fleet.had(CDS, "a", bad);
        assert!(had <= seated + 2, "{had} of 40 had {bad}, with {seated} seats in the step: {found}");
        fleet.until("way back", |fleet| fleet.all_hold(CDS, &[("a", "1"), ("b", "1")])).await;
    }
}

/// WAV-8, WAV-15: a class without clients for longer than `linger` comes back to the stable content.
#[tokio::test]
async fn wav_15_a_class_that_sleeps_through_a_halt_gets_the_stable_content() {
    let mut fleet = Fleet::start(|setup| setup.line("linger: 0s"), TENTH, 20).await;
    fleet.bad.insert("bad");
    fleet.origin.set(CDS, "a", "bad");
    fleet.until_plan("halt", |found| found["state"] == "halted").await;
    fleet.until("way back", |fleet| fleet.all_hold(CDS, &[("a", "1"), ("b", "1")])).await;
    let had = fleet.had(CDS, "a", "bad");
    fleet.sleep().await;
    fleet.join(20).await;
    // Stable has the name as a member, also for a client of the single name (WAV-7).
    let mut alone = Client::open(&fleet.relay.address, Variant::Delta, "alone").await;
    alone.want(CDS, &["a"]);
    alone.settle(CDS, &[("a", "1")]).await;
    assert!(fleet.all_hold(CDS, &[("a", "1"), ("b", "1")]));
    assert_eq!(fleet.had(CDS, "a", "bad"), 0, "{had} had it before");
    assert_eq!(fleet.relay.json("/rollouts/edge").await["state"], "halted");
}

/// GRD-2: after a reload with other steps, the push begins anew.
#[tokio::test]
async fn grd_2_a_push_begins_anew_with_another_plan() {
    let mut fleet = Fleet::start(|setup| setup, "percent: 50", 20).await;
    fleet.origin.set(CDS, "a", "2");
    fleet.until("the first step", |fleet| fleet.had(CDS, "a", "2") > 0).await;
    let text = std::fs::read_to_string(fleet.relay.path("sluice.yaml")).unwrap();
    std::fs::write(fleet.relay.path("next"), text.replace("final_bake: 1s", "final_bake: 2s")).unwrap();
    std::fs::rename(fleet.relay.path("next"), fleet.relay.path("sluice.yaml")).unwrap();
    assert_eq!(fleet.relay.post("/reload").await.0, 200);
    fleet.until("the end", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "1")])).await;
    fleet.until_plan("end", |found| found["state"] == "open").await;
}

/// WAV-12: a client that comes and goes as before the push says nothing about the push.
#[tokio::test]
async fn wav_12_a_client_that_reconnects_all_the_time_halts_no_push() {
    let mut fleet = Fleet::start(|setup| setup, "percent: 99", 5).await;
    let proxy = Proxy::start(fleet.relay.address.parse().unwrap()).await;
    let come_and_go = async || {
        let mut client = Client::open(&proxy.address.to_string(), Variant::Delta, "restless").await;
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        proxy.cut();
        client.ended().await;
    };
    for _ in 0..40 {
        come_and_go().await;
    }
    fleet.origin.set(CDS, "a", "2");
    let restless = async {
        loop {
            come_and_go().await;
            sleep(Duration::from_millis(250)).await;
        }
    };
    let over = fleet.until_plan("verdict", |found| {
        found["state"] == "halted" || found["pushes"][0] == 1 && found["state"] == "open"
    });
    let found = tokio::select! {
        found = over => found,
        () = restless => unreachable!(),
    };
    let push = fleet.relay.json("/rollouts/edge/pushes/1").await;
    assert_eq!((&push["outcome"], sum_lost(&push)), (&"finished".into(), 0), "{found}");
}

fn sum_lost(push: &Value) -> u64 {
    push["lost"].as_u64().unwrap() + push["others"]["lost"].as_u64().unwrap()
}

/// WAV-16: with `on_halt: stay`, clients with a halted push keep it. Newcomers get the content of the others, whatever their seat.
#[tokio::test]
async fn wav_16_a_halted_push_stays_with_its_clients_only() {
    let stays = plan("percent: 50").replace("final_bake", "on_halt: stay, final_bake");
    let mut fleet = Fleet::with(|setup| setup, &stays.replace("bake: 1s }", "bake: 60s }"), 20).await;
    let seated = fleet.seated_below(50.0).await;
    // Clients of the state of the world reject, clients of delta accept.
    (fleet.accepting, _) = (Some(Variant::Delta), fleet.bad.insert("2"));
    fleet.origin.set(CDS, "a", "2");
    fleet.until("the first step", |fleet| fleet.had(CDS, "a", "2") == seated).await;
    fleet.until_plan("halt", |found| found["state"] == "halted").await;
    fleet.join(20).await;
    let holding = |fleet: &Fleet| fleet.clients.iter().filter(|client| client.holds(CDS)["a"] == "2").count();
    let kept = holding(&fleet);
    assert!(kept > 0 && kept < seated, "{kept} of {seated} accepted the push and keep it");
    assert_eq!(fleet.had(CDS, "a", "2"), seated, "nobody else was given the push");
    fleet.origin.set(CDS, "a", "3");
    fleet.until("the next push", |fleet| fleet.had(CDS, "a", "3") >= seated).await;
    assert_eq!(fleet.had(CDS, "a", "2"), seated);
}
