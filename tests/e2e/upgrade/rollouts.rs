//! An upgrade while a plan that enforces is in each state: the new process goes on with the state of the old process (HND-3, WAV-8).

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::commands::sluice;
use crate::enforced::Fleet;
use crate::rollout_restarts::{BEFORE, WAVING, checkpoint};
use crate::support::cluster::Cluster;
use crate::support::control_plane::eventually;
use crate::support::net::free_port;
use crate::support::proxy::Proxy;
use crate::support::{CDS, Setup};

const COUNT: usize = 24;

/// Long enough for another step to show: a tally comes each second.
const A_WHILE: Duration = Duration::from_millis(2_500);

/// A fleet and the processes of its relay. Each process ends with the test.
struct Upgraded {
    fleet: Fleet,
    successors: Vec<u32>,
    _kept: Option<TempDir>,
}

impl Upgraded {
    /// `keeps`: with a checkpoint on disk.
    async fn start(plan: &str, keeps: bool, drain: &str) -> Upgraded {
        Upgraded::of(|setup| setup, plan, keeps, drain).await
    }

    async fn of(setup: impl FnOnce(Setup) -> Setup, plan: &str, keeps: bool, drain: &str) -> Upgraded {
        let kept = keeps.then(|| tempfile::tempdir().unwrap());
        let setup = |of: Setup| {
            let setup = setup(of).line(&format!("handover: {{ drain: {drain} }}"));
            kept.as_ref()
                .map(|kept| checkpoint(kept.path()))
                .iter()
                .fold(setup, |setup, line| setup.line(line))
        };
        let fleet = Fleet::with(setup, plan, COUNT).await;
        Upgraded { fleet, successors: Vec::new(), _kept: kept }
    }

    /// Replaces the process. The streams of the old process end within the drain.
    async fn replace(&mut self) {
        let (status, body) = self.fleet.relay.post("/upgrade").await;
        self.note(status, &body);
    }

    fn note(&mut self, status: u16, body: &str) {
        assert_eq!(status, 200, "{body}");
        let found: Value = serde_json::from_str(body).unwrap();
        self.successors.push(u32::try_from(found["pid"].as_u64().unwrap()).unwrap());
    }

    /// Replaces the process, and waits until all clients have come to the new process.
    async fn upgrade(&mut self) {
        self.replace().await;
        self.fleet.moved().await;
    }

    /// Waits for the end of the drain, so that the next upgrade may begin.
    async fn settled(&mut self) {
        eventually("the end of the predecessor", async || {
            self.fleet.relay.get("/overview").await.1.contains("\"predecessor\":null")
        })
        .await;
    }

    async fn order(&self, line: &str) {
        let words: Vec<_> = ["rollout"].into_iter().chain(line.split(' ')).collect();
        let done = sluice(&self.fleet.relay.admin, &words).await;
        assert_eq!(done.code, 0, "{line}: {done:?}");
    }

    async fn state(&mut self, wanted: &str) -> Value {
        self.fleet.until_plan(wanted, |found| found["state"] == wanted).await
    }

    /// The plan's state stays for a while, no stream ends, and so many clients have ever had the content.
    async fn stays(&mut self, state: &str, (text, had): (&str, usize)) {
        let until = Instant::now() + A_WHILE;
        self.fleet.until_plan("a while", |_| Instant::now() > until).await;
        let found = self.state(state).await;
        assert_eq!(self.fleet.had(CDS, "a", text), had, "{found}");
    }
}

impl Drop for Upgraded {
    fn drop(&mut self) {
        for pid in &self.successors {
            // Some processes have ended.
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).output();
        }
    }
}

#[tokio::test]
async fn wav_8_an_upgrade_while_a_plan_gathers_gathers_again() {
    for keeps in [true, false] {
        let plan = WAVING.replace("quiet: 100ms, max: 1s", "quiet: 1m, max: 1m");
        let mut site = Upgraded::start(&plan, keeps, "300ms").await;
        site.fleet.origin.set(CDS, "a", "2");
        site.state("gathering").await;
        site.upgrade().await;
        site.stays("gathering", ("2", 0)).await;
        assert!(site.fleet.all_hold(CDS, &BEFORE));
    }
}

/// The push and the bake begin anew, with the same seats.
#[tokio::test]
async fn wav_8_an_upgrade_in_a_wave_shortens_no_bake() {
    for keeps in [true, false] {
        let plan = WAVING.replace("bake: 1h", "bake: 4s").replace("final_bake: 1h", "final_bake: 1s");
        let mut site = Upgraded::start(&plan, keeps, "300ms").await;
        let seated = site.fleet.seated_below(25.0).await;
        site.fleet.origin.set(CDS, "a", "2");
        site.fleet.until("the first step", |fleet| fleet.had(CDS, "a", "2") == seated).await;
        sleep(Duration::from_secs(1)).await;
        site.replace().await;
        let upgraded = Instant::now();
        site.fleet.moved().await;
        site.fleet
            .until_plan("the step", |found| found["state"] == "waving" && found["accepted"] == seated)
            .await;
        assert_eq!(site.fleet.had(CDS, "a", "2"), seated, "the same seats");
        site.fleet.until("the others", |fleet| fleet.had(CDS, "a", "2") > seated).await;
        assert!(upgraded.elapsed() >= Duration::from_secs(4), "a whole bake: {:?}", upgraded.elapsed());
        site.fleet.until("all", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "1")])).await;
        site.state("open").await;
    }
}

/// The old process leaves the ledger, so the new one has its name and a lease at once. As after each begin, the push goes on one lease
/// later, when other replicas have had the time to write.
#[tokio::test]
async fn ldg_1_an_upgrade_in_a_wave_takes_the_ledger_over() {
    const LEASE: Duration = Duration::from_secs(6);
    let (cluster, directory) = (Cluster::start(), tempfile::tempdir().unwrap());
    let kubeconfig = cluster.kubeconfig(directory.path(), "token");
    let ledger = format!(
        "ledger: {{ replica: one, lease: 6s, kubernetes: {{ name: edge, kubeconfig: {kubeconfig:?} }} }}"
    );
    let plan = WAVING.replace("bake: 1h", "bake: 4s").replace("final_bake: 1h", "final_bake: 1s");
    let mut site = Upgraded::of(|setup| setup.line(&ledger), &plan, true, "300ms").await;
    let tally = || {
        let entry = cluster.entry("tally/edge/one").unwrap_or_default();
        serde_json::from_str::<Value>(entry["data"]["value"].as_str().unwrap_or("null")).unwrap()
    };
    site.fleet.until_plan("the ledger", |found| found["ledger"]["fault"].is_null()).await;
    let seated = site.fleet.seated_below(25.0).await;
    site.fleet.origin.set(CDS, "a", "2");
    site.fleet.until("the first step", |fleet| fleet.had(CDS, "a", "2") == seated).await;
    eventually("the tally of the old process", async || tally()["step"] == 1).await;
    let old = tally()["process"].clone();
    site.replace().await;
    let upgraded = Instant::now();
    eventually("the ledger at the new process", async || {
        site.fleet.relay.json("/ledger").await["fault"].is_null()
    })
    .await;
    assert!(upgraded.elapsed() < LEASE / 2, "no lease is waited for: {:?}", upgraded.elapsed());
    site.fleet.moved().await;
    eventually("the tally of the new process", async || tally()["process"] != old && tally()["step"] == 1)
        .await;
    site.fleet.until_plan("almost a lease", |_| upgraded.elapsed() > LEASE * 3 / 4).await;
    assert_eq!(site.fleet.had(CDS, "a", "2"), seated, "nobody is given more before");
    site.fleet.until("all", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "1")])).await;
    site.state("open").await;
    assert!(cluster.entry("halted/edge/1/one").is_none());
}

/// Docs: a push that an operator paused counts as halted.
#[tokio::test]
async fn wav_8_an_upgrade_keeps_a_paused_push_from_all() {
    for keeps in [true, false] {
        let mut site = Upgraded::start(WAVING, keeps, "300ms").await;
        let seated = site.fleet.seated_below(25.0).await;
        site.fleet.origin.set(CDS, "a", "2");
        let found = site.state("waving").await;
        site.fleet.until("the first step", |fleet| fleet.had(CDS, "a", "2") == seated).await;
        site.order(&format!("pause edge --push {}", found["push"])).await;
        site.state("paused").await;
        site.upgrade().await;
        site.stays("halted", ("2", seated)).await;
        assert!(site.fleet.all_hold(CDS, &BEFORE));
        site.order(&format!("promote edge --push {} --all", found["push"])).await;
        site.fleet.until("all", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "1")])).await;
    }
}

/// The new process gives the halted content to no client, not even to the first seats.
#[tokio::test]
async fn wav_8_an_upgrade_keeps_a_halted_push_from_all() {
    for keeps in [true, false] {
        let mut site = Upgraded::start(WAVING, keeps, "300ms").await;
        let seated = site.fleet.seated_below(25.0).await;
        site.fleet.bad.insert("bad");
        site.fleet.origin.set(CDS, "a", "bad");
        site.state("halted").await;
        site.fleet.until("the way back", |fleet| fleet.all_hold(CDS, &BEFORE)).await;
        let had = site.fleet.had(CDS, "a", "bad");
        assert!(had <= seated, "{had} of {seated} seats");
        for _ in 0..2 {
            site.upgrade().await;
            site.fleet.forget();
            site.stays("halted", ("bad", 0)).await;
            assert!(site.fleet.all_hold(CDS, &BEFORE));
            site.settled().await;
        }
        site.fleet.origin.set(CDS, "a", "good");
        let found = site.state("waving").await;
        site.order(&format!("promote edge --push {} --all", found["push"])).await;
        site.fleet.until("the fix", |fleet| fleet.all_hold(CDS, &[("a", "good"), ("b", "1")])).await;
    }
}

#[tokio::test]
async fn his_4_an_upgrade_keeps_a_pin() {
    for keeps in [true, false] {
        let plan = WAVING.replace("bake: 1h", "bake: 1s").replace("final_bake: 1h", "final_bake: 1s");
        let mut site = Upgraded::start(&plan, keeps, "300ms").await;
        site.fleet.origin.set(CDS, "a", "2");
        site.fleet.until("all", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "1")])).await;
        site.state("open").await;
        site.order("pin edge --to 0 --until unpin").await;
        site.fleet.until("the pinned release", |fleet| fleet.all_hold(CDS, &BEFORE)).await;
        site.upgrade().await;
        site.fleet.forget();
        site.stays("pinned", ("2", 0)).await;
        site.fleet.origin.set(CDS, "a", "3");
        site.stays("pinned", ("3", 0)).await;
        assert!(site.fleet.all_hold(CDS, &BEFORE));
        site.order("unpin edge").await;
        site.fleet.until("the newest", |fleet| fleet.all_hold(CDS, &[("a", "3"), ("b", "1")])).await;
    }
}

#[tokio::test]
async fn his_4_an_upgrade_keeps_a_freeze() {
    for keeps in [true, false] {
        let mut site = Upgraded::start(WAVING, keeps, "300ms").await;
        site.order("freeze --for 1h").await;
        site.fleet.origin.set(CDS, "a", "2");
        site.fleet.until_plan("the change", |found| found["behind_seconds"] != 0.0).await;
        site.upgrade().await;
        site.stays("frozen", ("2", 0)).await;
        site.order("unfreeze").await;
        let seated = site.fleet.seated_below(25.0).await;
        site.fleet.until("the first step", |fleet| fleet.had(CDS, "a", "2") == seated).await;
    }
}

/// The new process has read the state of the plan before the operator's order, and waits for the control plane.
#[tokio::test]
async fn hnd_3_a_freeze_in_the_middle_of_an_upgrade_stands() {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let mut proxy = None;
    let through = |setup: Setup| {
        let server = setup.server.parse().unwrap();
        proxy = Some(tokio::spawn(Proxy::at(address, server)));
        Setup { server: address.to_string(), ..setup }
    };
    let mut site = Upgraded::of(through, WAVING, true, "300ms").await;
    let proxy = proxy.unwrap().await.unwrap();
    proxy.hang();
    let upgrade = site.fleet.relay.post("/upgrade");
    let freeze = async {
        eventually("the state in the new process", async || {
            site.fleet.relay.log().contains("took the state of the predecessor over")
        })
        .await;
        site.order("freeze --for 1h").await;
    };
    let ((status, body), ()) = tokio::join!(upgrade, freeze);
    site.note(status, &body);
    proxy.heal();
    site.fleet.moved().await;
    site.fleet.origin.set(CDS, "a", "2");
    site.fleet.until_plan("the change", |found| found["behind_seconds"] != 0.0).await;
    site.stays("frozen", ("2", 0)).await;
}

/// The old process drains, and begins no step: the clients there stay in the step of the upgrade.
#[tokio::test]
async fn hnd_3_a_process_that_drains_moves_no_push() {
    let plan = WAVING.replace("bake: 1h", "bake: 3s");
    let mut site = Upgraded::start(&plan, true, "8s").await;
    let seated = site.fleet.seated_below(25.0).await;
    site.fleet.origin.set(CDS, "a", "2");
    site.fleet.until("the first step", |fleet| fleet.had(CDS, "a", "2") == seated).await;
    site.replace().await;
    site.order("freeze --for 1h").await;
    site.fleet.moved().await;
    assert_eq!(site.fleet.had(CDS, "a", "2"), seated);
    assert!(site.fleet.all_hold(CDS, &BEFORE));
}
