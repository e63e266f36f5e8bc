//! The console blocks of the operator's documents, by the built binary against running relays (DOC-3).

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::control_plane::eventually;
use crate::support::relay::BINARY;
use crate::support::{CDS, Client, ControlPlane, Relay, Setup, Variant};

/// The pages with blocks that an operator follows.
const PAGES: [(&str, &str); 5] = [
    ("configuration.md", include_str!("../../docs/configuration.md")),
    ("operations.md", include_str!("../../docs/operations.md")),
    ("operate.md", include_str!("../../docs/operate.md")),
    ("systemd.md", include_str!("../../docs/systemd.md")),
    ("kubernetes.md", include_str!("../../docs/kubernetes.md")),
];

/// Commands that cannot run here, by their beginning, each with its reason.
const ELSEWHERE: [(&str, &str); 16] = [
    ("sudo apt install", "installs on this host; tests/deploy/debian.py installs the package in a folder"),
    ("sudoedit", "an editor"),
    (
        "sluice check --config /etc/sluice/sluice.yaml",
        "tests/deploy/debian.py runs it in the folder of the package",
    ),
    ("sudo systemctl", "there is no systemd; tests/deploy/units.py has systemd read the units"),
    ("sluice ui --relay relay-1.example", "there is no such host; it would serve the page for an hour"),
    ("docker build", "there is no engine; tests/deploy/image.py reads the layers"),
    ("helm install", "there is no cluster; tests/deploy/chart.py renders these values by Helm's own library"),
    (
        "kubectl -n relays exec deploy/sluice -- /app/sluice status",
        "there is no cluster; tests/deploy/pods.py asks the probes",
    ),
    ("kubectl -n relays logs", "there is no cluster"),
    ("sluice rollout pause", PLAN),
    ("sluice rollout resume", PLAN),
    ("sluice rollout promote", PLAN),
    ("sluice rollout abort", PLAN),
    ("sluice rollout rollback", PLAN),
    ("sluice rollout freeze", PLAN),
    ("sluice rollout unfreeze", PLAN),
];

const PLAN: &str = "there is no plan; tests/e2e/rollout_orders.rs gives the orders to a plan that enforces";

/// A command as the page has it, and as it runs here: with another place for files, or with an end.
const HERE: [(&str, &str); 9] = [
    ("sluice schema > sluice.schema.json", "schema"),
    (
        "sluice completion bash | sudo tee /usr/share/bash-completion/completions/sluice > /dev/null",
        "completion bash",
    ),
    ("sudo sluice man /usr/local/share/man/man1", "man man1"),
    ("sluice tail envoy-web-3", "tail envoy-web-3 --for 300ms"),
    ("sluice tail envoy-web-3 --type Cluster", "tail envoy-web-3 --type Cluster --for 300ms"),
    ("sluice drain --over 60s --after 5s", "drain --over 60s --after 5s --no-wait"),
    (
        "kubectl -n relays exec deploy/sluice -- /app/sluice bootstrap envoy --config /etc/sluice/sluice.yaml \
         --address sluice.relays.svc:18000 > envoy.yaml",
        "bootstrap envoy --config sluice.yaml --address sluice.relays.svc:18000",
    ),
    // The page's own relay is the second example of `reload`, which has its own test.
    ("sluice reload", "reload --yes"),
    ("sluice rollback", "rollback --yes"),
];

/// A block, and its place.
struct Block {
    page: &'static str,
    lines: Vec<&'static str>,
}

impl Block {
    /// The commands, each in one line. Other lines are what the last command says.
    fn commands(&self) -> Vec<String> {
        let joined = self.joined();
        let commands = joined.lines().filter_map(|line| line.strip_prefix("$ "));
        let words =
            |line: &str| line.split(" #").next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        commands.map(words).collect()
    }

    fn output(&self) -> Vec<String> {
        let joined = self.joined();
        joined.lines().filter(|line| !line.starts_with("$ ")).map(str::to_owned).collect()
    }

    /// Whether the answers of the block are those of a reload, which have their own test.
    fn is_reload(&self) -> bool {
        !self.output().is_empty()
            && self.commands().iter().any(|command| command.starts_with("sluice reload"))
    }

    fn joined(&self) -> String {
        self.lines.join("\n").replace(" \\\n", " ")
    }
}

fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    for (page, text) in PAGES {
        for part in text.split("\n```console\n").skip(1) {
            let lines = part.split("\n```").next().unwrap().lines().collect();
            blocks.push(Block { page, lines });
        }
    }
    assert!(blocks.len() >= 20, "{} blocks", blocks.len());
    blocks
}

struct Done {
    code: i32,
    out: String,
    err: String,
}

/// Runs a command line in the relay's directory.
async fn sluice(relay: &Relay, line: &str) -> Done {
    let mut command = Command::new(BINARY);
    command.args(line.split(' ')).current_dir(relay.directory.path()).stdin(Stdio::null());
    command.env_clear().env("SLUICE_ADMIN", &relay.admin);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Done { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// The clients that the pages name; both are in sync after a change.
async fn fleet(origin: &ControlPlane, relay: &Relay, version: &str) -> Vec<Client> {
    let mut clients = Vec::new();
    for node in ["envoy-web-3", "envoy-web-4"] {
        let mut client = Client::open(&relay.address, Variant::Delta, node).await;
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        clients.push(client);
    }
    origin.set(CDS, "web", version);
    for client in &mut clients {
        client.take(CDS).await;
    }
    let settled = async || sluice(relay, "wait --for synced=100% --timeout 100ms").await.code == 0;
    eventually("both clients are in sync", settled).await;
    clients
}

/// The process that an upgrade has started, ended with the test.
struct Successor(Option<String>);

impl Drop for Successor {
    fn drop(&mut self) {
        if let Some(pid) = &self.0 {
            // It may have ended.
            let _ = Command::new("kill").args(["-KILL", pid]).output();
        }
    }
}

/// Each command of each block ends well, or stands above with the reason why it cannot run.
#[tokio::test]
async fn doc_3_each_console_block_runs() {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "web", "1");
    let relay = Relay::start(Setup::of(origin.address).line("handover: { drain: 1s }")).await;
    let mut _clients = fleet(&origin, &relay, "2").await;
    let (mut ran, mut left) = (0, Vec::new());
    let mut successor = Successor(None);
    for block in blocks().iter().filter(|block| !block.is_reload()) {
        for told in block.commands() {
            if let Some((elsewhere, _)) = ELSEWHERE.iter().find(|(begin, _)| told.starts_with(begin)) {
                left.push(*elsewhere);
                continue;
            }
            let here = HERE.iter().find(|(page, _)| *page == told).map(|(_, here)| *here);
            let plain = || told.strip_prefix("sluice ").filter(|rest| !rest.contains(['|', '>', '&']));
            let line = here
                .or_else(plain)
                .unwrap_or_else(|| panic!("{}: `{told}` neither runs here nor has a reason", block.page));
            // A generation to come back from.
            if line == "reload --yes" {
                let file = relay.directory.path().join("sluice.yaml");
                change(&file, &file, "handover: { drain: 1s }", "handover: { drain: 2s }");
            }
            if line == "events -w" {
                follows_events(&relay, &origin).await;
            } else {
                let Done { code, out, err } = sluice(&relay, line).await;
                assert_eq!(code, 0, "{}: {told}\n{out}{err}", block.page);
                let pid = out.strip_prefix("upgraded: process ").and_then(|rest| rest.split(' ').next());
                successor.0 = pid.map(str::to_owned).or(successor.0.take());
                if line == "upgrade" {
                    let alone = async || relay.get("/overview").await.1.contains("\"predecessor\":null");
                    eventually("the end of the predecessor", alone).await;
                    // The new process knows of no change yet.
                    _clients = fleet(&origin, &relay, "3").await;
                }
            }
            ran += 1;
        }
    }
    assert!(ran >= 25, "{ran} commands");
    for (begin, reason) in ELSEWHERE {
        assert!(left.contains(&begin), "no page has `{begin}` ({reason})");
    }
}

/// `events -w` has no end: it tells a change, and the test ends it.
async fn follows_events(relay: &Relay, origin: &ControlPlane) {
    let log = relay.directory.path().join("events");
    let file = fs::File::create(&log).unwrap();
    let mut command = Command::new(BINARY);
    command.args(["events", "-w"]).env("SLUICE_ADMIN", &relay.admin).stdin(Stdio::null()).stdout(file);
    let mut child = command.spawn().unwrap();
    origin.set(CDS, "cart", "1");
    eventually("an event", async || fs::read_to_string(&log).is_ok_and(|text| !text.is_empty())).await;
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Rewrites the relay's configuration.
fn change(from: &Path, to: &Path, old: &str, new: &str) {
    let text = fs::read_to_string(from).unwrap();
    assert!(text.contains(old), "{text}");
    fs::write(to, text.replace(old, new)).unwrap();
}

/// The lines of a command, with the address of the page's relay.
fn told(relay: &Relay, done: &Done) -> Vec<String> {
    let all = format!("{}{}", done.out, done.err).replace(&relay.admin, "127.0.0.1:19000");
    // New sources may not have answered yet: a matter of milliseconds, which no page shows.
    all.lines().filter(|line| !line.contains("streams undecided")).map(str::to_owned).collect()
}

/// The blocks with answers are those of two reloads: a plan, and one that moves all clients.
#[tokio::test]
async fn doc_3_the_answers_in_the_pages_are_the_relay_s() {
    let blocks: Vec<Block> = blocks().into_iter().filter(Block::is_reload).collect();
    let [plan, held] = blocks.as_slice() else { panic!("{} blocks have answers", blocks.len()) };
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "web", "1");
    let lines = ["drain: 10s", "node_classes: [ { match: { names: old }, split_by: { cluster: true } } ]"];
    let setup = lines.iter().fold(Setup::of(origin.address), |setup, line| setup.line(line));
    let relay = Relay::start(setup).await;
    let (file, new) = (relay.directory.path().join("sluice.yaml"), relay.directory.path().join("new.yaml"));
    let mut clients = Vec::new();
    for number in 0..10 {
        let mut client = Client::open(&relay.address, Variant::Delta, &format!("envoy-{number}")).await;
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        clients.push(client);
    }

    change(&file, &new, "drain: 10s", "drain: 30s");
    let planned = sluice(&relay, plan.commands()[0].strip_prefix("sluice ").unwrap()).await;
    assert_eq!((planned.code, told(&relay, &planned)), (0, plan.output()));

    change(&file, &file, "{ cluster: true }", "{ cluster: true, id: true }");
    let refused = sluice(&relay, held.commands()[0].strip_prefix("sluice ").unwrap()).await;
    assert_eq!((refused.code, told(&relay, &refused)), (1, held.output()));

    // The answer of the API, by the same flag as elsewhere.
    let json = sluice(&relay, "reload --yes -o json").await;
    let answer: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((json.code, &answer["relays"][0]["relay"]), (0, &relay.admin.clone().into()), "{}", json.out);
    let json = sluice(&relay, "rollback --dry-run --output json").await;
    assert!(json.out.starts_with('{') && json.out.contains("\"generation\""), "{}{}", json.out, json.err);
}
