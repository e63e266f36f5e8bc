//! Plans that enforce, and the worst moments: SIGKILL in each state, a full disk, a lost checkpoint, and clients that die of a push.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::commands::sluice;
use crate::enforced::Fleet;
use crate::restart::SmallDisk;
use crate::rollout_hook::Hook;
use crate::support::client::Event;
use crate::support::control_plane::eventually;
use crate::support::proxy::Proxy;
use crate::support::{CDS, Client, EDS, RDS, Variant};

const COUNT: usize = 40;

/// A quarter of the clients goes first, and stays alone until an operator says more.
pub const WAVING: &str = "rollouts: [ { name: edge, mode: enforce, gather: { quiet: 100ms, max: 1s }, \
                      steps: [ { percent: 25, bake: 1h } ], final_bake: 1h, halt_on: { rejected_percent: 0 } } ]";

pub const BEFORE: [(&str, &str); 2] = [("a", "1"), ("b", "1")];

/// A fleet whose relay keeps a checkpoint.
pub struct Kept {
    pub fleet: Fleet,
    directory: TempDir,
    plan: String,
}

impl Kept {
    pub async fn start(plan: &str) -> Kept {
        let directory = tempfile::tempdir().unwrap();
        let fleet = Fleet::with(|setup| setup.line(&checkpoint(directory.path())), plan, COUNT).await;
        let mut kept = Kept { fleet, directory, plan: plan.to_owned() };
        kept.written("written").await;
        kept
    }

    /// All that stands is on disk: endpoints flow, and their change is the last one to be written.
    pub async fn written(&mut self, text: &str) {
        let writes = self.fleet.relay.series("sluice_checkpoint_writes_total").await;
        self.fleet.origin.set(EDS, "a", text);
        self.fleet.until("endpoints", |fleet| fleet.all_hold(EDS, &[("a", text), ("b", "1")])).await;
        eventually("a checkpoint", async || {
            self.fleet.relay.series("sluice_checkpoint_writes_total").await > writes
        })
        .await;
    }

    /// Kills the relay once the disk has the state of the plan, and starts it again.
    pub async fn kill(&mut self) {
        self.fleet.until_plan("a state on disk", |found| found["unsaved"] == false).await;
        self.kill_at_once().await;
    }

    async fn kill_at_once(&mut self) {
        let line = checkpoint(self.directory.path());
        let plan = self.plan.clone();
        self.fleet.kill(|setup| setup.line(&plan).line(&line)).await;
    }

    pub async fn order(&self, line: &str) {
        let words: Vec<_> = ["rollout"].into_iter().chain(line.split(' ')).collect();
        let done = sluice(&self.fleet.relay.admin, &words).await;
        assert_eq!(done.code, 0, "{line}: {done:?}");
    }

    /// Kills the relay once the disk has the age of what is held back. The next process knows the age (TRU-7).
    async fn kill_behind(&mut self) {
        let file = self.directory.path().join("checkpoint/rollouts.json");
        eventually("the age on disk", async || {
            fs::read_to_string(&file).is_ok_and(|text| text.contains("\"away_ms\":{\""))
        })
        .await;
        let least = |found: &Value| found["behind_seconds"].as_f64() > Some(2.0);
        let before = self.fleet.until_plan("an age", least).await["behind_seconds"].as_f64();
        self.kill().await;
        let after = self.fleet.until_plan("the age", |found| found["behind_seconds"] != 0.0).await;
        assert!(after["behind_seconds"].as_f64() >= before, "{before:?} before the restart, then {after}");
    }

    pub async fn state(&mut self, wanted: &str) -> Value {
        self.fleet.until_plan(wanted, |found| found["state"] == wanted).await
    }
}

pub fn checkpoint(directory: &Path) -> String {
    format!("checkpoint: {{ directory: {:?}, interval: 100ms }}", directory.join("checkpoint"))
}

/// WAV-8: a push that was on its way begins anew. Its first step has the same clients.
#[tokio::test]
async fn wav_8_a_relay_killed_in_a_wave_begins_the_push_anew() {
    let mut kept = Kept::start(WAVING).await;
    let seated = kept.fleet.seated_below(25.0).await;
    kept.fleet.origin.set(CDS, "a", "2");
    kept.fleet.until("the first step", |fleet| fleet.had(CDS, "a", "2") == seated).await;
    kept.kill().await;
    let found = kept.state("waving").await;
    kept.fleet.until_plan("the step", |found| found["accepted"] == seated).await;
    assert_eq!(kept.fleet.had(CDS, "a", "2"), seated, "the same seats");
    kept.order(&format!("promote edge --push {} --all", found["push"])).await;
    kept.fleet.until("all", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "1")])).await;
    // In the final bake, too.
    kept.state("settling").await;
    kept.kill().await;
    let found = kept.state("waving").await;
    kept.order(&format!("promote edge --push {} --all", found["push"])).await;
    kept.fleet.until("all again", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "1")])).await;
}

/// WAV-8: no change follows the push, and the disk has it all the same.
#[tokio::test]
async fn wav_8_a_relay_killed_after_a_push_begins_with_its_content() {
    let mut kept = Kept::start(&WAVING.replace("bake: 1h", "bake: 1s")).await;
    kept.fleet.origin.set(CDS, "a", "of the push");
    kept.fleet.until("all", |fleet| fleet.all_hold(CDS, &[("a", "of the push"), ("b", "1")])).await;
    kept.state("open").await;
    let directory = kept.directory.path().join("checkpoint");
    eventually("the content on disk", async || {
        let files = fs::read_dir(&directory).unwrap().filter_map(|file| fs::read(file.unwrap().path()).ok());
        files.into_iter().any(|bytes| bytes.windows(11).any(|text| text == b"of the push"))
    })
    .await;
    kept.kill_at_once().await;
    kept.fleet.until("as before", |fleet| fleet.all_hold(CDS, &[("a", "of the push"), ("b", "1")])).await;
    let found = kept.state("open").await;
    assert!(found["latest"].is_null(), "nothing is to be rolled out again: {found}");
}

/// WAV-8: whatever of the halt is on disk, nobody but the seats of the first step is ever given the bad push.
#[tokio::test]
async fn wav_8_a_relay_killed_at_the_moment_of_a_halt_spreads_nothing() {
    let mut kept = Kept::start(WAVING).await;
    let seated = kept.fleet.seated_below(25.0).await;
    kept.fleet.bad.insert("bad");
    kept.fleet.origin.set(CDS, "a", "bad");
    kept.state("halted").await;
    for _ in 0..2 {
        kept.kill().await;
        kept.state("halted").await;
        kept.fleet.until("the way back", |fleet| fleet.all_hold(CDS, &BEFORE)).await;
        let had = kept.fleet.had(CDS, "a", "bad");
        assert!(had <= seated, "{had} of {seated} seats");
    }
    kept.fleet.origin.set(CDS, "a", "good");
    let found = kept.state("waving").await;
    kept.order(&format!("promote edge --push {} --all", found["push"])).await;
    kept.fleet.until("the fix", |fleet| fleet.all_hold(CDS, &[("a", "good"), ("b", "1")])).await;
}

/// WAV-8: changes that were gathered are gathered again.
#[tokio::test]
async fn wav_8_a_relay_killed_while_it_gathers_gathers_again() {
    let mut kept = Kept::start(&WAVING.replace("quiet: 100ms, max: 1s", "quiet: 1m, max: 1m")).await;
    kept.fleet.origin.set(CDS, "a", "2");
    kept.state("gathering").await;
    kept.kill().await;
    kept.state("gathering").await;
    assert!(kept.fleet.all_hold(CDS, &BEFORE));
    assert_eq!(kept.fleet.had(CDS, "a", "2"), 0);
}

/// WAV-8, HIS-4: the word of an operator survives: a paused push counts as halted, a freeze stays, a pin stays.
#[tokio::test]
async fn wav_8_the_word_of_an_operator_survives_the_relay() {
    let mut kept = Kept::start(WAVING).await;
    let seated = kept.fleet.seated_below(25.0).await;
    kept.order("freeze --for 1h").await;
    kept.fleet.origin.set(CDS, "a", "2");
    kept.fleet.until_plan("the change", |found| found["behind_seconds"] != 0.0).await;
    kept.written("while frozen").await;
    kept.kill_behind().await;
    kept.state("frozen").await;
    assert_eq!(kept.fleet.had(CDS, "a", "2"), 0);

    kept.order("unfreeze").await;
    kept.fleet.until("the first step", |fleet| fleet.had(CDS, "a", "2") == seated).await;
    let found = kept.state("waving").await;
    kept.order(&format!("pause edge --push {}", found["push"])).await;
    kept.state("paused").await;
    kept.written("while paused").await;
    kept.kill_behind().await;
    let found = kept.state("halted").await;
    kept.fleet.until("the way back", |fleet| fleet.all_hold(CDS, &BEFORE)).await;
    assert_eq!(kept.fleet.had(CDS, "a", "2"), seated);
    kept.order(&format!("promote edge --push {} --all", found["push"])).await;
    kept.fleet.until("all", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "1")])).await;
}

/// WAV-8, HIS-3: a pin without an end of its own outlives the relay. Nobody is given the held content.
#[tokio::test]
async fn wav_8_a_killed_relay_stays_pinned() {
    let mut kept = Kept::start(WAVING).await;
    kept.fleet.origin.set(CDS, "a", "2");
    let found = kept.state("waving").await;
    kept.order(&format!("promote edge --push {} --all", found["push"])).await;
    kept.fleet.until("all", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "1")])).await;
    kept.order("pin edge --to 0 --until unpin").await;
    kept.fleet.until("the first release", |fleet| fleet.all_hold(CDS, &BEFORE)).await;
    for text in ["pinned", "pinned again"] {
        kept.written(text).await;
        kept.fleet.forget();
        kept.kill().await;
        kept.state("pinned").await;
        kept.fleet.origin.set(RDS, "r", text);
        kept.fleet.until_plan("the change", |found| found["behind_seconds"].as_f64() > Some(2.0)).await;
        let found = kept.state("pinned").await;
        assert!(kept.fleet.all_hold(CDS, &BEFORE) && kept.fleet.all_hold(RDS, &[("r", "1")]), "{found}");
        assert_eq!((kept.fleet.had(CDS, "a", "2"), kept.fleet.had(RDS, "r", text)), (0, 0), "{found}");
    }
}

/// WAV-8, WAV-16: with `on_halt: stay`, too, a halted push stays halted. The clients of the push come back with new streams, and get the
/// content of the others.
#[tokio::test]
async fn wav_8_a_relay_killed_after_a_halt_that_stays_keeps_it_halted() {
    // The content is not condemned: the halt alone keeps the content from clients.
    let stays = WAVING.replace("final_bake", "on_halt: stay, condemn_after: 100, final_bake");
    let mut kept = Kept::start(&stays).await;
    let seated = kept.fleet.seated_below(25.0).await;
    // Clients of the state of the world reject, clients of delta accept.
    (kept.fleet.accepting, _) = (Some(Variant::Delta), kept.fleet.bad.insert("2"));
    kept.fleet.origin.set(CDS, "a", "2");
    kept.fleet.until("the first step", |fleet| fleet.had(CDS, "a", "2") == seated).await;
    kept.state("halted").await;
    let keeps = |fleet: &Fleet| fleet.clients.iter().any(|client| client.holds(CDS)["a"] == "2");
    assert!(keeps(&kept.fleet), "those that accepted it keep it");
    kept.written("while halted").await;
    kept.fleet.forget();
    kept.kill().await;
    kept.fleet.until_plan("later moment", |found| found["behind_seconds"].as_f64() > Some(2.0)).await;
    let found = kept.state("halted").await;
    assert!(kept.fleet.all_hold(CDS, &BEFORE), "{found}");
    assert_eq!(kept.fleet.had(CDS, "a", "2"), 0, "{found}");
}

/// WAV-8: a push in a pause for a silent client begins anew.
#[tokio::test]
async fn wav_8_a_relay_killed_while_a_client_is_silent_begins_the_push_anew() {
    let impatient = "halt_on: { rejected_percent: 0, accepted_percent: 100, patience: 1s }";
    let plan = WAVING.replace("bake: 1h }", "bake: 4s }");
    let mut kept = Kept::start(&plan.replace("halt_on: { rejected_percent: 0 }", impatient)).await;
    let seated = kept.fleet.seated_below(25.0).await;
    // Another stream of the node with the first seat says nothing to the push.
    let node = format!("client-{}", kept.fleet.by_seat().await[0]);
    let mut silent = Client::open(&kept.fleet.relay.address, Variant::Delta, &node).await;
    silent.want(CDS, &["*"]);
    silent.settle(CDS, &BEFORE).await;
    kept.fleet.origin.set(CDS, "a", "2");
    silent.next(CDS).await;
    kept.state("paused").await;
    assert_eq!(kept.fleet.had(CDS, "a", "2"), seated);
    kept.kill().await;
    let mut silent = Client::open(&kept.fleet.relay.address, Variant::Delta, &node).await;
    silent.want(CDS, &["*"]);
    silent.next(CDS).await;
    kept.state("waving").await;
    kept.state("paused").await;
    assert_eq!(kept.fleet.had(CDS, "a", "2"), seated);
    let found = kept.state("paused").await;
    kept.order(&format!("promote edge --push {} --all", found["push"])).await;
    kept.fleet.until("all", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "1")])).await;
}

/// WAV-20, ADR 45: the hook of a waiting push is asked again, before the first client.
#[tokio::test]
async fn wav_8_a_relay_killed_while_its_hook_says_wait_asks_again() {
    let hook = Hook::start().await;
    let mut kept = Kept::start(&hook.plan("mode: enforce")).await;
    let seated = kept.fleet.seated_below(50.0).await;
    kept.fleet.origin.set(CDS, "a", "2");
    let first = hook.asked(&mut kept.fleet).await;
    assert_eq!(first.body["step"], 0);
    let changes = first.body["changes"].clone();
    first.say("wait", "not yet");
    let waits = |found: &Value| found["latest"]["hook"]["verdict"] == "wait";
    kept.fleet.until_plan("wait", waits).await;
    kept.kill().await;
    let again = hook.asked(&mut kept.fleet).await;
    assert_eq!((&again.body["step"], &again.body["changes"]), (&0.into(), &changes));
    assert_eq!(kept.fleet.had(CDS, "a", "2"), 0);
    again.say("go", "");
    // The relay dies between the steps, and the answer of the hook is lost.
    let lost = hook.asked(&mut kept.fleet).await;
    assert_eq!((&lost.body["step"], kept.fleet.had(CDS, "a", "2")), (&1.into(), seated));
    kept.kill().await;
    drop(lost);
    let anew = hook.asked(&mut kept.fleet).await;
    assert_eq!((&anew.body["step"], kept.fleet.had(CDS, "a", "2")), (&0.into(), seated));
    anew.say("go", "");
    for step in 1..3 {
        let next = hook.asked(&mut kept.fleet).await;
        assert_eq!(next.body["step"], step);
        next.say("go", "");
    }
    kept.fleet.until("all", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "1")])).await;
}

/// WAV-8: a part of the server's answer is not another content. What an operator took back is given to nobody for its sake.
#[tokio::test]
async fn wav_8_an_order_stands_while_the_server_has_not_answered_for_a_type() {
    let mut kept = Kept::start(WAVING).await;
    let seated = kept.fleet.seated_below(25.0).await;
    kept.fleet.origin.set_many(CDS, &[("a", "2"), ("b", "2")]);
    kept.fleet.origin.set(RDS, "r", "2");
    kept.fleet.until("the first step", |fleet| fleet.had(CDS, "a", "2") == seated).await;
    let found = kept.state("waving").await;
    kept.order(&format!("abort edge --push {}", found["push"])).await;
    kept.fleet.until("the way back", |fleet| fleet.all_hold(CDS, &BEFORE)).await;
    kept.fleet.origin.ends_on(Some(RDS));
    kept.kill().await;
    kept.fleet.until_plan("later moment", |found| found["behind_seconds"].as_f64() > Some(5.0)).await;
    let found = kept.state("halted").await;
    assert_eq!(kept.fleet.had(CDS, "a", "2"), seated, "{found}");
    assert!(kept.fleet.all_hold(CDS, &BEFORE));
    kept.fleet.origin.ends_on(None);
    kept.order(&format!("promote edge --push {} --all", found["push"])).await;
    kept.fleet.until("all", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "2")])).await;
}

/// FP3: while nothing can be written, pushes go by steps, are halted and taken back. What a restart finds is older.
#[tokio::test]
async fn wav_8_a_full_disk_hinders_no_plan() {
    let directory = tempfile::tempdir().unwrap();
    let kept = directory.path().join("checkpoint");
    fs::create_dir(&kept).unwrap();
    let Some(disk) = SmallDisk::mount(kept) else {
        // Mounting requires root.
        return;
    };
    let line = checkpoint(directory.path());
    let fleet = Fleet::with(|setup| setup.line(&line), WAVING, COUNT).await;
    let mut kept = Kept { fleet, directory, plan: WAVING.to_owned() };
    kept.written("written").await;
    let seated = kept.fleet.seated_below(25.0).await;
    let filler = disk.fill();
    kept.fleet.bad.insert("bad");
    kept.fleet.origin.set(CDS, "a", "bad");
    kept.state("halted").await;
    kept.fleet.until("the way back", |fleet| fleet.all_hold(CDS, &BEFORE)).await;
    kept.fleet.origin.set(EDS, "a", "unwritten");
    eventually("a failure", async || kept.fleet.relay.series("sluice_checkpoint_failing").await == 1.0).await;
    assert_eq!(kept.state("halted").await["unsaved"], true);
    kept.kill_at_once().await;
    kept.state("halted").await;
    kept.fleet.until("the way back", |fleet| fleet.all_hold(CDS, &BEFORE)).await;
    let had = kept.fleet.had(CDS, "a", "bad");
    assert!(had <= seated, "{had} of {seated} seats");
    fs::remove_file(filler).unwrap();
    eventually("a write", async || kept.fleet.relay.series("sluice_checkpoint_failing").await == 0.0).await;
}

/// ADR 43: without its checkpoint a relay knows no other content than the newest. The next push goes by steps again.
#[tokio::test]
async fn wav_8_without_its_checkpoint_a_relay_serves_what_the_control_plane_says() {
    let mut kept = Kept::start(WAVING).await;
    kept.fleet.origin.set(CDS, "a", "2");
    kept.state("waving").await;
    let directory = kept.directory.path().join("checkpoint");
    kept.fleet.relay.signal("STOP");
    fs::remove_dir_all(&directory).unwrap();
    kept.kill_at_once().await;
    kept.fleet.until("all", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "1")])).await;
    let seated = kept.fleet.seated_below(25.0).await;
    kept.fleet.origin.set(CDS, "a", "3");
    kept.fleet.until("the first step", |fleet| fleet.had(CDS, "a", "3") == seated).await;
    kept.fleet.until_plan("the step", |found| found["accepted"] == seated).await;
    assert_eq!(kept.fleet.had(CDS, "a", "3"), seated);
}

/// WAV-12, I23: clients that die of a cluster's content reject nothing. The push is halted and taken back, and they live again.
#[tokio::test]
async fn wav_12_clients_that_die_of_a_push_stop_it_at_the_first_step() {
    let mut fleet = Fleet::with(|setup| setup, WAVING, COUNT).await;
    let seated = fleet.seated_below(25.0).await;
    let mut mortals = Vec::new();
    for number in 0..COUNT {
        let proxy = Proxy::start(fleet.relay.address.parse().unwrap()).await;
        mortals.push(tokio::spawn(live_and_die(proxy, number)));
    }
    let streams = "sluice_downstream_streams{variant=\"delta\"}";
    eventually("mortals", async || fleet.relay.series(streams).await == (COUNT / 2 + COUNT) as f64).await;
    fleet.origin.set(CDS, "a", "deadly");
    let found = fleet.until_plan("halt", |found| found["state"] == "halted").await;
    assert!(found["why"].as_str().unwrap().contains("ended within a minute of the push"), "{found}");
    assert!(fleet.had(CDS, "a", "deadly") <= seated, "{found}");
    fleet.until("the way back", |fleet| fleet.all_hold(CDS, &BEFORE)).await;
    eventually("mortals", async || fleet.relay.series(streams).await == (COUNT / 2 + COUNT) as f64).await;
    let mut died = 0;
    for mortal in mortals {
        mortal.abort();
        died += usize::from(mortal.await.is_err());
    }
    assert_eq!(died, COUNT, "none has panicked: each was aborted");
}

/// A client that loses its connection with the first response that has the deadly cluster, and comes back.
async fn live_and_die(proxy: Proxy, number: usize) {
    loop {
        let mut client =
            Client::open(&proxy.address.to_string(), Variant::Delta, &format!("mortal-{number}")).await;
        client.want(CDS, &["*"]);
        while let Event::Answer(answer) = client.event_within(Duration::from_secs(600)).await {
            if answer.texts().iter().any(|(_, text)| text == "deadly") {
                proxy.cut();
            } else {
                client.ack(&answer);
            }
        }
    }
}
