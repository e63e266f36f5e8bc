//! Reloads of the running process, from an operator's view (REL-1 to REL-9).

use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::control_plane::eventually;
use crate::support::net::free_port;
use crate::support::relay::BINARY;
use crate::support::{CDS, Client, ControlPlane, Relay, Setup, Variant};

async fn pair(line: &str) -> (ControlPlane, Relay, Client) {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    let relay = Relay::start(Setup::of(origin.address).line(line)).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "client").await;
    client.want(CDS, &["*"]);
    client.take(CDS).await;
    (origin, relay, client)
}

fn text(relay: &Relay) -> String {
    fs::read_to_string(relay.path("sluice.yaml")).unwrap()
}

/// Replaces the file at once, as an editor does.
fn write(relay: &Relay, text: &str) {
    fs::write(relay.path("next"), text).unwrap();
    fs::rename(relay.path("next"), relay.path("sluice.yaml")).unwrap();
}

/// Replaces a part of the file.
fn edit(relay: &Relay, from: &str, to: &str) {
    let text = text(relay);
    assert!(text.contains(from), "{text}");
    write(relay, &text.replace(from, to));
}

async fn reload(relay: &Relay) -> (u16, Value) {
    answer(relay.post("/reload").await)
}

fn answer((status, body): (u16, String)) -> (u16, Value) {
    (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{status}: {error}: {body}")))
}

async fn config(relay: &Relay) -> Value {
    relay.json("/config").await
}

/// The parts of the answers that no reload without effect may change.
async fn dump(relay: &Relay) -> (Value, Value, Value) {
    let mut config = config(relay).await;
    config.as_object_mut().unwrap().remove("last_reload");
    let clients = relay.json("/clients").await;
    let mut shown = Vec::new();
    for client in clients["clients"].as_array().unwrap() {
        shown.push(json!([
            client["id"],
            client["node"],
            client["listener"],
            client["types"][0]["held_version"]
        ]));
    }
    (config, json!(shown), relay.json("/resources").await["count"].clone())
}

fn descriptors(relay: &Relay) -> usize {
    fs::read_dir(format!("/proc/{}/fd", relay.process())).unwrap().count()
}

/// Runs a command towards the relay: exit code, standard output, standard error.
async fn sluice(relay: &Relay, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(BINARY);
    command.args(arguments).env("SLUICE_ADMIN", &relay.admin).current_dir(relay.directory.path());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// The reloads of a test; a thousand in `tests/run --long`.
fn reloads(usual: usize) -> usize {
    std::env::var("SLUICE_RELOADS").ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

/// REL-1: signals that come together are two reloads at most.
#[tokio::test]
async fn rel_1_a_hundred_signals_at_once_are_two_reloads_at_most() {
    let (origin, mut relay, mut client) = pair("drain: 2s").await;
    edit(&relay, "drain: 2s", "drain: 3s");
    let pid = relay.process().to_string();
    let kill = format!("for n in $(seq 100); do kill -HUP {pid}; done");
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    eventually("a reload", async || config(&relay).await["generation"] == 2).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let reloads = relay.metric("sluice_config_reloads_total", &[]).await;
    assert!((1.0..=2.0).contains(&reloads), "{reloads}");
    assert_eq!(relay.metric("sluice_config_reloads_total", &["result=\"changed\""]).await, 1.0);
    origin.set(CDS, "a", "2");
    client.take(CDS).await;
    // A storm while the relay drains changes nothing.
    relay.sigterm();
    assert!(Command::new("sh").args(["-c", &kill]).status().is_ok());
    assert_eq!(relay.exit().await.code(), Some(0));
}

/// REL-2, REL-4: good, bad, good again. A failure leaves everything as it was, and is shown until it is over.
#[tokio::test]
async fn rel_4_after_a_bad_file_the_last_good_one_runs_and_is_no_fault_when_it_is_back() {
    let (_origin, relay, mut client) = pair("drain: 2s").await;
    let good = text(&relay);
    write(&relay, &good.replace("drain: 2s", "drain: 2 parsecs\nlimits: { conections: 5 }"));
    let before = dump(&relay).await;
    let (status, report) = reload(&relay).await;
    assert_eq!((status, &report["result"], &report["generation"]), (422, &json!("invalid"), &json!(1)));
    let faults = report["faults"].to_string();
    assert!(faults.contains("drain: ") && faults.contains("limits.conections"), "all of them: {faults}");
    assert_eq!(dump(&relay).await, before);
    assert_eq!(relay.metric("sluice_config_last_reload_successful", &[]).await, 0.0);
    relay.logged("cannot take the configuration").await;
    assert_eq!(relay.warnings("cannot take the configuration").len(), 1, "{}", relay.log());
    let overview = relay.json("/overview").await;
    assert!(overview["attention"].to_string().contains("the last reload failed (invalid)"), "{overview}");
    assert_eq!(overview["config"]["last_reload"]["result"], "invalid");
    assert!(relay.json("/events?kind=reload").await.to_string().contains("limits.conections"));

    write(&relay, &good);
    let (status, report) = reload(&relay).await;
    assert_eq!((status, &report["result"], &report["generation"]), (200, &json!("unchanged"), &json!(1)));
    assert_eq!(relay.metric("sluice_config_last_reload_successful", &[]).await, 1.0);
    assert_eq!(relay.metric("sluice_config_generation", &[]).await, 1.0);
    assert_eq!(relay.json("/overview").await["attention"], json!([]));

    write(&relay, &good.replace("drain: 2s", "drain: 4s"));
    let (status, report) = reload(&relay).await;
    assert_eq!((status, &report["result"], &report["generation"]), (200, &json!("changed"), &json!(2)));
    let change = json!([{"key": "drain", "from": "2s", "to": "4s", "effect": "live"}]);
    assert_eq!(report["changes"], change);
    assert_eq!(relay.metric("sluice_config_generation", &[]).await, 2.0);
    assert!(relay.json("/drain").await["seconds_left"].as_f64().unwrap() > 3.0, "the new one is in force");
    client.quiet().await;
}

/// REL-2: whatever the file is, the process lives, and nothing is left behind.
#[tokio::test]
async fn rel_2_twenty_reloads_half_of_them_impossible_leave_nothing_behind() {
    let (_origin, relay, mut client) = pair("drain: 2s").await;
    let good = text(&relay);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = format!(
        "{{ name: more, address: \"127.0.0.1:{}\" }}, {{ name: busy, address: \"{}\" }}",
        free_port(),
        taken.local_addr().unwrap()
    );
    let socket = relay.path("more.sock");
    let also = format!("{{ name: also, address: \"unix:{}\" }}, {busy}", socket.display());
    let with = |more: &str| good.replace("listeners: [ ", &format!("listeners: [ {more}, "));
    let bad = [
        with(&busy),
        with(&also),
        "\u{0}\u{1}garbage: [".to_owned(),
        String::new(),
        good.replace("drain: 2s", "node_classes: 7"),
        good.replace("node: { id: sluice-test", "node: { id: another"),
        with(
            "{ name: tls, address: \"127.0.0.1:0\", tls: { certificates: [{ certificate_file: a, private_key_file: b }] } }",
        ),
        good.replace("drain: 2s", "traces: { endpoint: nowhere }"),
        good.replace("[ { type: insecure } ]", "[ { type: tls, config: { ca_certificate_file: none } } ]"),
        good.replace(
            "admin: { address: ",
            "admin: { auth: { tokens: [{ name: a, token_file: none, roles: [act] }] }, address: ",
        ),
    ];
    assert_eq!(reload(&relay).await.0, 200);
    let (before, open) = (dump(&relay).await, descriptors(&relay));
    for (number, bad) in bad.iter().cycle().take(reloads(20) / 2).enumerate() {
        write(&relay, bad);
        let (status, report) = reload(&relay).await;
        assert!(status >= 400 && report["faults"][0].is_string(), "{number}: {status} {report}");
        assert_eq!(dump(&relay).await, before, "{number}: {report}");
        assert!(!socket.exists());
        write(&relay, &good);
        assert_eq!(reload(&relay).await.0, 200);
    }
    eventually("no more descriptors", async || descriptors(&relay) <= open).await;
    client.quiet().await;
    // A directory and a missing file in place of the file.
    fs::remove_file(relay.path("sluice.yaml")).unwrap();
    assert_eq!(reload(&relay).await.0, 422);
    fs::create_dir(relay.path("sluice.yaml")).unwrap();
    assert_eq!(reload(&relay).await.0, 422);
    fs::remove_dir(relay.path("sluice.yaml")).unwrap();
    write(&relay, &good);
    assert_eq!(reload(&relay).await.1["result"], "unchanged");
}

/// Keeps a file from being opened, as a file system that hangs would, until its end.
struct Lease(std::process::Child);

impl Lease {
    fn of(path: &Path) -> Lease {
        let script = "$SIG{IO} = 'IGNORE'; open(my $file, '+<', $ARGV[0]) or die; fcntl($file, 1024, 1) or die $!; \
                      $| = 1; print \"held\\n\"; <STDIN>;";
        let mut command = Command::new("perl");
        command.args(["-e", script]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut word = [0; 5];
        child.stdout.as_mut().unwrap().read_exact(&mut word).unwrap();
        assert_eq!(&word, b"held\n");
        Lease(child)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Configurations that fail, each with the step and the words of its fault.
fn impossible(good: &str, busy: SocketAddr) -> Vec<(&'static str, String, &'static str)> {
    let line = |line: &str| good.replace("drain: 2s", line);
    let listener = |entry: &str| good.replace("listeners: [ ", &format!("listeners: [ {entry}, "));
    let pair_of = |certificate: &str| {
        listener(&format!(
            "{{ name: tls, address: \"127.0.0.1:0\", tls: {{ certificates: [{{ certificate_file: {certificate}, \
             private_key_file: empty }}] }} }}"
        ))
    };
    vec![
        ("parse", "xds_servers: [".to_owned(), "1:14: unclosed bracket"),
        ("parse", String::new(), "xds_servers"),
        ("validate", line("drain: 2 parsecs"), "drain: "),
        ("validate", line("limits: { conections: 5 }"), "limits.conections"),
        ("validate", line("drain: ${NO_SUCH_VARIABLE}"), "NO_SUCH_VARIABLE"),
        ("compare", line("checkpoint: { directory: kept }"), "checkpoint.directory: from unset to kept"),
        ("load", pair_of("none"), "listeners[0].tls.certificates[0].certificate_file"),
        ("load", pair_of("pipe"), "listeners[0].tls.certificates[0].certificate_file"),
        ("load", pair_of("empty"), "listeners[0].tls.certificates[0].certificate_file"),
        (
            "load",
            good.replace(
                "[ { type: insecure } ]",
                "[ { type: tls, config: { ca_certificate_file: pipe } } ]",
            ),
            "xds_servers[0].channel_creds[tls].config.ca_certificate_file",
        ),
        (
            "load",
            listener(
                "{ name: tls, address: \"127.0.0.1:0\", tls: { certificates: [{ certificate_file: certs/relay/tls.crt, \
                 private_key_file: certs/relay/tls.key }], trust_domain: dev.example, ca_certificate_file: \
                 certs/client/tls.crt } }",
            ),
            "certs/client/tls.crt, PEM block 1 of 1: not an authority",
        ),
        ("load", line("authorization: { file: policy.yaml }"), "policy.yaml"),
        ("load", line("authorization: { file: pipe }"), "pipe: not a regular file"),
        (
            "load",
            good.replace(
                "admin: { ",
                "admin: { auth: { tokens: [{ name: a, token_file: pipe, roles: [act] }] }, ",
            ),
            "admin.auth.tokens[0].token_file",
        ),
        (
            "bind",
            listener(&format!("{{ name: busy, address: \"{busy}\" }}")),
            "listener busy cannot listen on",
        ),
        (
            "bind",
            listener("{ name: unix, address: \"unix:none/xds.sock\" }"),
            "listener unix cannot listen on",
        ),
        (
            "open",
            good.replace("xds_servers:", "xds_servers:\n  - server_uri: \"file:none\""),
            "file:none: cannot read",
        ),
        (
            "plan",
            line("limits: { node_classes: 1 }\nnode_classes: [{ split_by: { id: true } }]"),
            "limits.node_classes",
        ),
        ("guard", line("node_classes: [{ split_by: { id: true } }]"), "reload.max_moved"),
    ]
}

/// REL-2: a fault of each step: nothing changes, the operator reads the key, and the command fails.
#[tokio::test]
async fn rel_2_a_fault_of_each_step_is_told_with_its_key_and_changes_nothing() {
    let (_origin, relay, mut client) = pair("drain: 2s").await;
    let good = text(&relay);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = taken.local_addr().unwrap();
    let pipe = relay.path("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .unwrap();
    fs::write(relay.path("policy.yaml"), "authorization: nonsense\n").unwrap();
    fs::write(relay.path("empty"), "").unwrap();
    assert_eq!(sluice(&relay, &["dev-certs", "certs"]).await.0, 0);
    let steps = impossible(&good, busy);
    let mut second = Client::open(&relay.address, Variant::Sotw, "second").await;
    second.want(CDS, &["*"]);
    second.take(CDS).await;
    let (before, open) = (dump(&relay).await, descriptors(&relay));
    let check = async |step: &str, key: &str| {
        let (code, _, errors) = sluice(&relay, &["reload"]).await;
        assert!(code > 0 && errors.contains(key), "{step} {key}: {code} {errors}");
        assert_eq!(dump(&relay).await, before, "{step} {key}");
        assert_eq!(relay.metric("sluice_config_last_reload_successful", &[]).await, 0.0, "{step} {key}");
    };
    for (step, text, key) in &steps {
        write(&relay, text);
        check(step, key).await;
    }
    write(&relay, &good);
    let lease = Lease::of(&relay.path("sluice.yaml"));
    check("timeout", "not ready within 10 s").await;
    drop(lease);
    fs::remove_file(relay.path("sluice.yaml")).unwrap();
    check("read", "cannot read").await;
    fs::rename(&pipe, relay.path("sluice.yaml")).unwrap();
    check("read", "not a regular file").await;
    write(&relay, &good);
    assert_eq!(sluice(&relay, &["reload"]).await.0, 0);
    eventually("no more descriptors", async || descriptors(&relay) <= open).await;
    client.quiet().await;
    second.quiet().await;
}

/// REL-3: one key that needs a new process refuses all the others.
#[tokio::test]
async fn rel_3_a_key_for_a_new_process_refuses_the_whole_by_name() {
    let (_origin, relay, _client) = pair("drain: 2s").await;
    let good = text(&relay);
    let before = dump(&relay).await;
    for (from, to, key) in [
        ("node: { id: sluice-test", "node: { id: another", "node.id: from sluice-test to another"),
        ("admin: { address: ", "admin: { hosts: [a.b], address: \"127.0.0.1:1\" } # ", "admin.address: from"),
        ("cluster: kit", "cluster: other", "node.cluster: from kit to other"),
        ("drain: 2s", "checkpoint: { directory: d }\ndrain: 2s", "checkpoint.directory: from unset to d"),
    ] {
        let live = "coalescing: 20ms\nlinger: 5s\nlimits: { connections: 7, node_classes: 9, names_per_stream: 5, \
                    names_per_request: 5 }\nlog: { level: debug, format: json }\ncache: { unwatched_bytes: 1MiB }\n";
        write(&relay, &format!("{}{live}", good.replace(from, to)));
        let (status, report) = reload(&relay).await;
        assert_eq!((status, &report["result"]), (409, &json!("needs_process")), "{report}");
        assert!(report["faults"][0].as_str().unwrap().starts_with(key), "{key}: {report}");
        assert_eq!(report["say"], "sluice upgrade");
        assert_eq!(dump(&relay).await, before);
    }
    assert!(!relay.log().contains("\"level\":"), "the format of the log is as it was");
    let (code, _, errors) = sluice(&relay, &["reload"]).await;
    assert_eq!(code, 64, "{errors}");
    assert!(errors.contains("checkpoint.directory") && errors.contains("sluice upgrade"), "{errors}");
}

/// REL-5: a change of the log is no byte on any stream.
#[tokio::test]
async fn rel_5_what_does_not_concern_a_stream_sends_it_no_byte() {
    let (origin, relay, client) = pair("log: { level: info }").await;
    let mut clients = vec![client];
    for number in 0..5 {
        let mut client = Client::open(&relay.address, Variant::Sotw, &format!("sotw-{number}")).await;
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        clients.push(client);
    }
    let synced = async || relay.json("/overview").await["clients"]["synced"] == 6 && origin.log().len() == 2;
    eventually("every ACK has come", synced).await;
    let counted = async || {
        let mut counts = vec![origin.log().len() as f64, origin.opened() as f64];
        for name in [
            "sluice_downstream_request_bytes_total",
            "sluice_downstream_response_bytes_total",
            "sluice_upstream_received_bytes_total",
            "sluice_upstream_sent_bytes_total",
            "sluice_downstream_connections_accepted_total",
            "sluice_downstream_connections",
        ] {
            counts.push(relay.metric(name, &[]).await);
        }
        counts
    };
    let before = counted().await;
    let changes = [
        ("log: { level: info }", "log: { level: debug, format: json }"),
        ("log: { level: debug, format: json }", "limits: { connections: 100, memory_bytes: 8GiB }"),
        (
            "resource_timeout: 1s",
            "resource_timeout: 2s\n    connect_timeout: 4s\n    backoff: { initial: 2s, max: 9s }",
        ),
        ("v2: true", "v2: false, rest_hold: 1s, when_unavailable: fail"),
        ("node: {", "linger: 9s\nnode: {"),
    ];
    for (number, (from, to)) in changes.into_iter().enumerate() {
        edit(&relay, from, to);
        let (status, report) = reload(&relay).await;
        assert_eq!((status, &report["result"]), (200, &json!("changed")), "{to}: {report}");
        assert_eq!(report["generation"], number + 2);
    }
    assert_eq!(counted().await, before);
    for client in &mut clients {
        client.quiet().await;
    }
    let line =
        relay.log().lines().rfind(|line| line.contains("reloaded the configuration")).unwrap().to_owned();
    assert!(!line.starts_with('{'), "the default format again: {line}");
    assert!(relay.log().lines().any(|line| line.starts_with('{')), "the other format was in force");
    origin.set(CDS, "a", "2");
    for client in &mut clients {
        client.take(CDS).await;
    }
}

/// Listeners come, go, move and change their names; the connections of the others stay.
#[tokio::test]
async fn rel_2_listeners_are_added_removed_and_moved() {
    let (origin, relay, mut client) = pair("drain: 300ms").await;
    let (second, third) = (free_port(), free_port());
    let main = format!("{{ name: main, address: \"{}\", v2: true }}", relay.address);
    let socket = relay.path("also.sock");
    let start = format!("listeners: [ {main}");
    let line = text(&relay).lines().find(|line| line.starts_with("listeners:")).unwrap().to_owned();
    let listeners = async |entries: &str| {
        let text = text(&relay);
        let old = text.lines().find(|line| line.starts_with("listeners:")).unwrap().to_owned();
        write(&relay, &text.replace(&old, entries));
        let (status, report) = reload(&relay).await;
        assert_eq!(status, 200, "{report}");
        report["listeners"].clone()
    };
    let added = listeners(&format!(
        "{start}, {{ name: b, address: \"127.0.0.1:{second}\" }}, {{ name: c, address: \"unix:{}\", mode: \"0600\" }} ]",
        socket.display()
    ))
    .await;
    assert_eq!(added, json!({"added": ["b", "c"], "removed": [], "moved": []}));
    let open = async |target: String| {
        let mut client = Client::open(&target, Variant::Delta, "more").await;
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        client
    };
    let mut on_b = open(format!("127.0.0.1:{second}")).await;
    let mut on_c = open(format!("unix:{}", socket.display())).await;

    // Another address, and another permission of a socket that stays.
    let moved = listeners(&format!(
        "{start}, {{ name: b, address: \"127.0.0.1:{third}\" }}, {{ name: c, address: \"unix:{}\", mode: \"0640\" }} ]",
        socket.display()
    ))
    .await;
    assert_eq!(moved, json!({"added": [], "removed": [], "moved": ["b"]}));
    on_b.ended().await;
    assert!(tokio::net::TcpStream::connect(("127.0.0.1", second)).await.is_err());
    let mut on_b = open(format!("127.0.0.1:{third}")).await;
    on_c.quiet().await;
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&socket).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o640);

    // Two listeners swap their names: the sockets stay, and the connections leave.
    let swapped = listeners(&format!(
        "{start}, {{ name: c, address: \"127.0.0.1:{third}\" }}, {{ name: b, address: \"unix:{}\" }} ]",
        socket.display()
    ))
    .await;
    assert_eq!(swapped["moved"], json!(["c", "b"]));
    on_b.ended().await;
    on_c.ended().await;
    let mut on_c = open(format!("127.0.0.1:{third}")).await;
    assert!(relay.json("/clients?listener=c").await["count"] == 1);

    let removed = listeners(&line).await;
    assert_eq!(removed, json!({"added": [], "removed": ["c", "b"], "moved": []}));
    on_c.ended().await;
    assert!(!socket.exists());
    origin.set(CDS, "a", "2");
    client.take(CDS).await;
}

/// REL-9: the way back is the old configuration, without credentials in any answer.
#[tokio::test]
async fn rel_9_a_rollback_is_the_old_configuration() {
    const SECRET: &str = "canary-4711";
    let origin = ControlPlane::obedient().await;
    let line = format!("initial_metadata: [{{ key: x-token, value: {SECRET} }}]");
    let relay = Relay::start(Setup::of(origin.address).server_line(&line).line("drain: 2s")).await;
    let first = config(&relay).await;
    for (from, to) in [("drain: 2s", "drain: 3s"), ("drain: 3s", "drain: 4s")] {
        edit(&relay, from, to);
        assert_eq!(reload(&relay).await.0, 200);
    }
    let (code, out, errors) = sluice(&relay, &["rollback", "--to", "1"]).await;
    assert_eq!(code, 0, "{errors}");
    assert!(out.contains("drain  4s -> 2s  (live)"), "{out}");
    let now = config(&relay).await;
    assert_eq!(
        (&now["generation"], &now["config"], &now["hash"]),
        (&json!(4), &first["config"], &first["hash"])
    );
    assert!(relay.json("/drain").await["seconds_left"].as_f64().unwrap() < 2.1);
    let (_, shown) = relay.get("/config?generation=2").await;
    assert!(
        shown.contains("\"3s\"") && shown.contains("[redacted 11 B]") && !shown.contains(SECRET),
        "{shown}"
    );
    assert_eq!(relay.get("/config?generation=9").await.0, 404);
    // A plan tells the difference, and changes nothing.
    fs::write(relay.path("new.yaml"), text(&relay).replace("drain: 4s", "drain: 9s")).unwrap();
    let (code, out, errors) = sluice(&relay, &["reload", "--dry-run", "-f", "new.yaml"]).await;
    assert_eq!(code, 0, "{errors}");
    assert!(out.contains("can be taken, generation 4") && out.contains("drain  2s -> 9s"), "{out}");
    assert_eq!(config(&relay).await["generation"], 4);
    assert!(!relay.log().contains(SECRET));
    let (code, _, errors) = sluice(&relay, &["rollback", "--to", "77"]).await;
    assert_eq!(code, 64, "{errors}");
}

/// REL-10: whoever may ask for a plan of a text need not be one who may read the relay's files or environment.
#[tokio::test]
async fn rel_10_the_text_of_a_caller_discloses_no_file_and_no_variable() {
    const SECRET: &str = "canary-4711";
    let origin = ControlPlane::obedient().await;
    let relay = Relay::start(Setup::of(origin.address)).await;
    let plain = text(&relay);
    let (file, directory) = (relay.path("secret"), relay.path("resources"));
    fs::create_dir(&directory).unwrap();
    for path in [&file, &directory.join("clusters.yaml")] {
        fs::write(path, format!("mode: {SECRET}\n{SECRET}: 1\n")).unwrap();
    }
    let (file, directory) = (file.display().to_string(), directory.display().to_string());
    // Set in each process: the value is nowhere in a text.
    let path = std::env::var("PATH").unwrap();
    let tls = format!("certificates: [{{certificate_file: {file}, private_key_file: {file}}}]");
    let server = format!("channel_creds: [{{type: tls, config: {{ca_certificate_file: {file}}}}}]");
    let another = |text: &str| plain.replace("xds_servers:", &format!("types: {text}\nxds_servers:"));
    let list = |server: &str| format!("{{envoy.config.cluster.v3.Cluster: {{xds_servers: [{server}]}}}}");
    let mut answers = Vec::new();
    for text in [
        format!("{plain}authorization: {{file: {file}}}\n"),
        format!("{plain}authorization: {{file: '/none/${{PATH}}'}}\n"),
        plain.replace("id: sluice-test", "id: '${PATH}'"),
        format!("{plain}drain: \"${{PATH}}\"\n"),
        plain.replace(
            "listeners: [",
            &format!("listeners: [{{name: tls, address: '127.0.0.1:1', tls: {{{tls}}}}},"),
        ),
        another(&list(&format!("{{server_uri: 'file:{directory}'}}"))),
        another(&list(&format!("{{server_uri: 'cp.example:1', {server}}}"))),
        format!("{plain}checkpoint: {{directory: {file}}}\n"),
    ] {
        let (status, answer) = relay.post_body("/reload?dry_run=1", &text).await;
        assert!(!answer.contains(SECRET) && !answer.contains(&path), "{status}: {answer}");
        answers.push(answer);
    }
    assert!(answers[0].contains("the text of a caller opens no file"), "{}", answers[0]);
    let variable = "the environment variable PATH is not read for the text of a caller";
    assert!(answers[1..4].iter().all(|answer| answer.contains(variable)), "{answers:?}");
    // Servers and certificates are planned as far as the text goes.
    assert!(answers[5].contains("\"result\":\"changed\""), "{}", answers[5]);
    let (_, sources) = relay.get("/sources").await;
    assert!(!sources.contains("file:"), "no directory was opened: {sources}");
}

/// REL-9, REL-10: a fault quotes the value, and the variable of the collector is for the process alone.
#[tokio::test]
async fn rel_9_no_fault_of_a_reload_shows_credentials() {
    const SECRET: &str = "hunterfourb";
    let origin = ControlPlane::obedient().await;
    let traces = "traces: { endpoint: 'http://127.0.0.1:1' }";
    let mut setup = Setup::of(origin.address).line(traces);
    setup.environment.push(("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), format!("collector {SECRET} nowhere")));
    let relay = Relay::start(setup).await;
    let plain = text(&relay);
    let (status, planned) = relay.post_body("/reload?dry_run=1", &plain.replace(traces, "")).await;
    assert_eq!(status, 200, "{planned}");
    let server = format!("xds_servers:\n  - server_uri: 'https://user:{SECRET}@cp'\n");
    let broken = plain.replace("xds_servers:\n", &server);
    let mut answers = vec![relay.post_body("/reload?dry_run=1", &broken).await.1];
    write(&relay, &broken);
    answers.push(reload(&relay).await.1.to_string());
    answers.push(config(&relay).await["last_reload"].to_string());
    answers.push(relay.log());
    assert!(answers.iter().all(|answer| answer.contains("[redacted ")), "{answers:?}");
    for path in ["/events", "/overview"] {
        answers.push(relay.get(path).await.1);
    }
    answers.push(planned);
    assert!(answers.iter().all(|answer| !answer.contains(SECRET)), "{answers:?}");
}

/// REL-7: a plan tells the moves, and a reload beyond the bound waits for a yes.
#[tokio::test]
async fn rel_7_a_reload_that_moves_many_waits_for_a_yes() {
    let (origin, relay, mut client) = pair("node_classes: []").await;
    edit(
        &relay,
        "node_classes: []",
        "node_classes: [{ match: { names: old }, split_by: { id: true, cluster: true } }]",
    );
    let (status, report) = reload(&relay).await;
    assert_eq!(
        (status, &report["result"], &report["say"]),
        (409, &json!("held"), &json!("sluice reload --yes"))
    );
    assert_eq!((&report["moves"]["streams"], &report["moves"]["streams_moved"]), (&json!(1), &json!(1)));
    assert!(report["faults"][0].as_str().unwrap().starts_with("1 of 1 streams would move"), "{report}");
    assert_eq!(config(&relay).await["generation"], 1);
    let overview = relay.json("/overview").await;
    assert_eq!(overview["attention"][0]["say"], "sluice reload --yes", "{overview}");
    let (code, out, errors) = sluice(&relay, &["reload"]).await;
    assert_eq!(code, 1, "{errors}");
    assert!(out.contains("held, generation 1") && out.contains("streams moved: 1 of 1"), "{out}");
    assert!(errors.contains("type `sluice reload --yes`"), "{errors}");
    let (code, out, errors) = sluice(&relay, &["reload", "--yes"]).await;
    assert_eq!(code, 0, "{errors}");
    assert!(out.contains("changed, generation 2"), "{out}");
    // The new class has the same content, so nothing is sent; then it follows.
    client.quiet().await;
    origin.set(CDS, "a", "2");
    assert_eq!(client.take(CDS).await.names(), ["a"]);
    let clients = relay.json("/clients").await;
    let explained =
        relay.json(&format!("/clients/{}/explain?type=Cluster&name=a", clients["clients"][0]["id"])).await;
    assert_eq!(explained["class"]["generation"], 2, "{explained}");
}

/// Another server of a list takes its clients over without a removal.
#[tokio::test]
async fn rel_6_another_server_takes_over_by_a_reload() {
    let (origin, relay, mut client) = pair("linger: 100ms").await;
    let other = ControlPlane::obedient().await;
    other.set(CDS, "a", "1");
    edit(
        &relay,
        &format!("server_uri: \"{}\"", origin.address),
        &format!("server_uri: \"{}\"", other.address),
    );
    let (code, _, errors) = sluice(&relay, &["reload", "--yes"]).await;
    assert_eq!(code, 0, "{errors}");
    client.quiet().await;
    other.set(CDS, "b", "1");
    assert_eq!(client.take(CDS).await.names(), ["b"]);
    origin.wait_for("the old stream ends", |origin| origin.live_streams() == 0).await;
}

/// Writes the files of a volume as the kubelet does: a new directory, and a swap of the link `..data`.
fn publish(volume: &Path, number: usize, text: &str) {
    let directory = volume.join(format!("..2026_{number}"));
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("sluice.yaml"), text).unwrap();
    let old = fs::read_link(volume.join("..data")).ok();
    let _ = fs::remove_file(volume.join("..data_tmp"));
    symlink(directory.file_name().unwrap(), volume.join("..data_tmp")).unwrap();
    fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
    if !volume.join("sluice.yaml").exists() {
        symlink("..data/sluice.yaml", volume.join("sluice.yaml")).unwrap();
    }
    if let Some(old) = old {
        fs::remove_dir_all(volume.join(old)).unwrap();
    }
}

/// REL-8: each swap of a Kubernetes volume is taken, by its content.
#[tokio::test]
async fn rel_8_a_volume_of_kubernetes_is_followed() {
    let origin = ControlPlane::obedient().await;
    let directory = tempfile::tempdir().unwrap();
    let volume = directory.path().join("volume");
    fs::create_dir(&volume).unwrap();
    let (port, admin) = (free_port(), free_port());
    let text = |drain: usize| {
        format!(
            "xds_servers: [{{ server_uri: \"{}\", channel_creds: [{{ type: insecure }}] }}]\nreload: {{ watch: true }}\n\
             listeners: [{{ name: main, address: \"127.0.0.1:{port}\" }}]\nadmin: {{ address: \"127.0.0.1:{admin}\" }}\n\
             drain: {drain}s\n",
            origin.address
        )
    };
    publish(&volume, 0, &text(1));
    let mut command = Command::new(BINARY);
    command.args(["serve", "--config"]).arg(volume.join("sluice.yaml"));
    let mut relay =
        Relay::spawn(command, directory, format!("127.0.0.1:{port}"), format!("127.0.0.1:{admin}"));
    relay.ready().await;
    // Each takes the quiet time.
    let swaps = reloads(3);
    for number in 1..=swaps {
        publish(&volume, number, &text(number + 1));
        let wanted = format!("{}s", number + 1);
        eventually("the swap", async || config(&relay).await["config"]["drain"] == wanted.as_str()).await;
    }
    assert_eq!(config(&relay).await["generation"], swaps + 1);
    // The same content in other files is nothing new, and a bad one is told once.
    publish(&volume, swaps + 1, &text(swaps + 1));
    publish(&volume, swaps + 2, "drain: nonsense\n");
    eventually("the fault", async || {
        relay.metric("sluice_config_reloads_total", &["result=\"invalid\""]).await == 1.0
    })
    .await;
    assert_eq!(config(&relay).await["last_reload"]["trigger"], "watch");
}
