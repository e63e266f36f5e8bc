//! The operator's commands, by the built binary against running relays (CMD-1 to CMD-4).

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::control_plane::eventually;
use crate::support::net::free_port;
use crate::support::relay::{BINARY, run};
use crate::support::{CDS, Client, ControlPlane, Relay, Setup, Variant};

/// The end of a command.
#[derive(Debug)]
pub(super) struct Done {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Done {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn list(&self, key: &str) -> Vec<Value> {
        self.json()[key].as_array().unwrap().clone()
    }
}

/// Runs a command line, with the addresses of relays in the environment.
pub(super) async fn sluice(relays: &str, arguments: &[&str]) -> Done {
    let mut command = Command::new(BINARY);
    command.args(arguments).env_clear().env("SLUICE_ADMIN", relays).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Done { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

pub(super) async fn client_of(relay: &Relay, node: &str) -> Client {
    let mut client = Client::open(&relay.address, Variant::Delta, node).await;
    client.want(CDS, &["*"]);
    client.take(CDS).await;
    client
}

pub(super) async fn fleet() -> (ControlPlane, Relay, Client) {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "web", "1");
    let relay = Relay::start(Setup::of(origin.address)).await;
    let client = client_of(&relay, "envoy-web-3").await;
    (origin, relay, client)
}

/// CMD-1: each replica knows only its own clients, so a silent relay is told, and not left out.
#[tokio::test]
async fn of_three_relays_the_stopped_one_is_named_with_exit_code_3() {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "web", "1");
    let (mut relays, mut clients) = (Vec::new(), Vec::new());
    for number in 0..2 {
        let relay = Relay::start(Setup::of(origin.address)).await;
        clients.push(client_of(&relay, &format!("envoy-{number}")).await);
        relays.push(relay);
    }
    let stopped = format!("127.0.0.1:{}", free_port());
    let all = format!("{},{},{stopped}", relays[0].admin, relays[1].admin);
    let done = sluice(&all, &["get", "clients", "-o", "json"]).await;
    assert_eq!(done.code, 3, "{done:?}");
    assert_eq!(done.err.lines().count(), 1, "{done:?}");
    assert!(done.err.starts_with(&format!("sluice: relay {stopped}: ")), "{done:?}");
    let nodes: Vec<_> =
        done.list("clients").iter().map(|of| (of["node"].clone(), of["relay"].clone())).collect();
    let expected = [("envoy-0", &relays[0].admin), ("envoy-1", &relays[1].admin)];
    assert_eq!(nodes, expected.map(|(node, relay)| (Value::from(node), Value::from(relay.as_str()))));
    let table = sluice(&all, &["get", "clients"]).await;
    assert_eq!((table.code, table.out.lines().count()), (3, 3), "{table:?}");
    assert!(table.out.lines().next().unwrap().ends_with("  RELAY"), "{table:?}");
    let done = sluice(&stopped, &["get", "clients"]).await;
    assert_eq!((done.code, done.out.as_str()), (69, ""), "{done:?}");
}

/// CMD-2: stdout has data only.
#[tokio::test]
async fn wrong_arguments_are_64_and_write_no_data() {
    let (_origin, relay, _client) = fleet().await;
    let wrong: [&[&str]; 6] = [
        &["get", "clients", "--state", "BROKEN"],
        &["get", "clients", "--type", "Clutser"],
        &["get", "clients", "--relay", "http://x"],
        &["get", "clients", "--token-file", "missing"],
        &["get", "clients", "--ca", "missing"],
        &["get", "everything"],
    ];
    for arguments in wrong {
        let done = sluice(&relay.admin, arguments).await;
        assert_eq!((done.code, done.out.as_str()), (64, ""), "{arguments:?}: {done:?}");
        assert!(done.err.len() > 10, "{done:?}");
    }
    let near = sluice(&relay.admin, &["get", "clients", "--type", "Clutser"]).await;
    assert!(near.err.contains("Cluster"), "{near:?}");
    assert_eq!(sluice(&relay.admin, &["get", "clients", "-o", "name"]).await.code, 0);
}

/// CMD-3: the output does not depend on a terminal's width or colours.
#[tokio::test]
async fn what_a_client_named_itself_is_escaped_and_not_cut() {
    let (_origin, relay, _client) = fleet().await;
    let node = format!("evil\u{1b}[2J\u{9b}31m<img src=x>{}", "x".repeat(200));
    let _evil = client_of(&relay, &node).await;
    let done = sluice(&relay.admin, &["get", "clients"]).await;
    let shown = format!("evil\\u{{1b}}[2J\\u{{9b}}31m<img src=x>{}", "x".repeat(200));
    assert!(done.out.contains(&shown), "{done:?}");
    for form in ["json", "yaml"] {
        let done = sluice(&relay.admin, &["get", "clients", "-o", form]).await;
        assert!(!done.out.contains(['\u{1b}', '\u{9b}']), "{done:?}");
    }
    let json = sluice(&relay.admin, &["get", "clients", "-o", "json"]).await.list("clients");
    assert!(json.iter().any(|of| of["node"] == node), "{json:?}");
}

/// CMD-4: every help defines its columns, and its two examples work.
#[tokio::test]
async fn the_examples_of_every_help_run() {
    let (_origin, relay, _client) = fleet().await;
    for command in COMMANDS {
        for example in examples(&relay, command).await {
            let words: Vec<_> = example.split_whitespace().collect();
            let done = sluice(&relay.admin, &words).await;
            assert_eq!(done.code, 0, "{example}: {done:?}");
        }
    }
}

/// The two examples of a help.
pub(super) async fn examples(relay: &Relay, command: &str) -> Vec<String> {
    let arguments: Vec<_> = command.split(' ').chain(["--help"]).collect();
    let help = sluice(&relay.admin, &arguments).await;
    assert_eq!(help.code, 0, "{help:?}");
    let (about, examples) = help.out.split_once("\nExamples:\n").expect(command);
    assert!(about.contains("\nColumns:\n") || about.contains("\nOutput:\n"), "{command}: {about}");
    let examples = examples.split_once("\n\n").map_or(examples, |(examples, _)| examples);
    let of_line = |line: &str| line.trim().strip_prefix("sluice ").expect(line).to_owned();
    let examples: Vec<_> = examples.lines().map(of_line).collect();
    assert_eq!(examples.len(), 2, "{command}: {examples:?}");
    examples
}

/// The drain is the last.
const COMMANDS: [&str; 22] = [
    "status",
    "get clients",
    "get changes",
    "get change",
    "get sources",
    "get classes",
    "classes learn",
    "get resources",
    "get refused",
    "diff client",
    "explain client",
    "who",
    "versions",
    "rollout status",
    "rollout history",
    "tail",
    "events",
    "wait",
    "log",
    "ui",
    "upgrade",
    "drain",
];

/// CMD-5: a client that rejects a change does not have it. CMD-6: a client is named by its node id or its stream.
#[tokio::test]
async fn a_wait_ends_with_the_clients_and_a_difference_has_its_exit_code() {
    let (origin, relay, mut client) = fleet().await;
    let done = sluice(&relay.admin, &["wait", "--for", "synced=100%"]).await;
    assert_eq!((done.code, done.out.starts_with("1 of 1 clients have c-")), (0, true), "{done:?}");
    let same = sluice(&relay.admin, &["diff", "client", "envoy-web-3"]).await;
    assert_eq!((same.code, same.out.as_str()), (0, "no difference in 1 types\n"), "{same:?}");

    origin.set(CDS, "cart", "1");
    let answer = client.next(CDS).await;
    let waits = sluice(&relay.admin, &["wait", "--timeout", "300ms"]).await;
    assert_eq!((waits.code, waits.out.starts_with("0 of 1 clients have c-")), (75, true), "{waits:?}");
    client.nack(&answer, "no such cluster");
    eventually("the words of the client", async || {
        let done = sluice(&relay.admin, &["wait", "--timeout", "100ms"]).await;
        done.code == 75 && done.out.contains("1 rejected it: ") && done.out.contains("no such cluster")
    })
    .await;
    let differs = sluice(&relay.admin, &["diff", "client", "envoy-web-3"]).await;
    assert_eq!((differs.code, differs.out.contains("+cart")), (1, true), "{differs:?}");

    let _twin = client_of(&relay, "envoy-web-3").await;
    let several = sluice(&relay.admin, &["diff", "client", "envoy-web-3"]).await;
    assert_eq!((several.code, several.err.lines().count()), (64, 3), "{several:?}");
    let ids = sluice(&relay.admin, &["get", "clients", "-o", "name"]).await;
    let id = ids.out.lines().next().unwrap();
    assert_eq!(sluice(&relay.admin, &["diff", "client", id]).await.code, 1);
    assert_eq!(sluice(&relay.admin, &["diff", "client", "nobody"]).await.code, 64);
}

/// HND-9: the clients leave, the process stays, and is ready again.
#[tokio::test]
async fn a_relay_is_drained_and_filled_again() {
    let (_origin, relay, mut client) = fleet().await;
    let would = sluice(&relay.admin, &["drain", "--over", "300ms", "--dry-run"]).await;
    let text = "would drain: ready would be 503, 1 stream would leave within 300ms\n";
    assert_eq!((would.code, would.out.as_str()), (0, text));
    assert_eq!(relay.get("/ready").await.0, 200);
    let both = sluice(&format!("{},127.0.0.1:1", relay.admin), &["drain"]).await;
    assert_eq!(both.code, 64, "{both:?}");

    let done = sluice(&relay.admin, &["drain", "--over", "300ms"]).await;
    // The time is the rest at the first look.
    let (begin, end) =
        ("draining: ready is 503, 1 stream to leave within ", "ms\n1 left, 0 cut, 0 are here\n");
    let left = done.out.strip_prefix(begin).and_then(|out| out.strip_suffix(end)).map(str::parse::<u64>);
    assert!(matches!(left, Some(Ok(..=300))), "{done:?}");
    assert_eq!((done.code, done.err.as_str()), (0, ""));
    assert_eq!(relay.get("/ready").await.0, 503);
    let status = client.ended().await;
    assert_eq!((status.code(), status.message()), (tonic::Code::Unavailable, "the server is draining"));
    assert_eq!(sluice(&relay.admin, &["drain"]).await.code, 64, "a second drain");

    let done = sluice(&relay.admin, &["drain", "--cancel"]).await;
    assert_eq!((done.code, done.out.as_str()), (0, "serving: ready, 0 streams\n"));
    assert_eq!(relay.get("/ready").await.0, 200);
    let _back = client_of(&relay, "envoy-web-3").await;
}

#[tokio::test]
async fn a_stream_is_ended_and_its_client_told_why() {
    let (_origin, relay, mut client) = fleet().await;
    let mut other = client_of(&relay, "envoy-web-4").await;
    let clients = relay.json("/clients").await;
    let ours = clients["clients"].as_array().unwrap().iter().find(|of| of["node"] == "envoy-web-3").unwrap();
    assert_eq!(relay.post(&format!("/clients/{}/end", ours["id"])).await.0, 200);
    let status = client.ended().await;
    let text = "an operator ended the stream";
    assert_eq!((status.code(), status.message()), (tonic::Code::Unavailable, text));
    assert_eq!(relay.post(&format!("/clients/{}/end", ours["id"])).await.0, 404);
    other.want(CDS, &["web"]);
    other.take(CDS).await;
}

#[tokio::test]
async fn the_log_gets_another_level_for_a_time() {
    let (_origin, relay, _client) = fleet().await;
    assert!(relay.log_lines("DEBUG").is_empty());
    let done = sluice(&relay.admin, &["log", "debug", "--for", "1s"]).await;
    // The time is the rest when the relay answers.
    let is_told =
        ["1.0s", "9"].iter().any(|rest| done.out.starts_with(&format!("{}  debug for {rest}", relay.admin)));
    assert!(done.code == 0 && is_told && done.out.ends_with(", then info\n"), "{done:?}");
    let _more = client_of(&relay, "another").await;
    eventually("a line at DEBUG", async || !relay.log_lines("DEBUG").is_empty()).await;
    relay.logged("the log directives of the configuration again").await;
    let wrong = sluice(&relay.admin, &["log", "debgu"]).await;
    assert_eq!((wrong.code, wrong.err.contains("levels: off, error")), (64, true), "{wrong:?}");
}

#[tokio::test]
async fn a_watch_in_a_pipe_writes_an_object_for_each_change() {
    use tokio::io::AsyncBufReadExt;
    let (origin, relay, mut client) = fleet().await;
    let mut watch = tokio::process::Command::new(BINARY);
    watch.args(["get", "resources", "-w"]).env("SLUICE_ADMIN", &relay.admin).stdout(Stdio::piped());
    let mut watch = watch.kill_on_drop(true).spawn().unwrap();
    let mut lines = tokio::io::BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next =
        async || -> Value { serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap() };
    let first = next().await;
    assert_eq!((&first["name"], &first["relay"]), (&Value::from("web"), &Value::from(relay.admin.as_str())));
    origin.set(CDS, "cart", "1");
    client.take(CDS).await;
    assert_eq!(next().await["name"], "cart");
    origin.remove(CDS, "cart");
    client.take(CDS).await;
    let gone = next().await;
    assert_eq!((&gone["name"], &gone["gone"]), (&Value::from("cart"), &Value::from(true)));
}

/// The answer of a server to one request, and the request.
async fn answered_by(answer: &str, arguments: &[&str]) -> (Done, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answer = answer.to_owned();
    let server = tokio::spawn(async move {
        let (mut io, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let length = io.read(&mut request).await.unwrap();
        io.write_all(answer.as_bytes()).await.unwrap();
        (String::from_utf8_lossy(&request[..length]).into_owned(), io)
    });
    let done = sluice(&address, arguments).await;
    (done, server.await.unwrap().0)
}

/// CMD-1: redirects are not followed, a silent server does not hold the command, and the Host is the address.
#[tokio::test]
async fn odd_servers_are_no_relays() {
    let moved = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
    let (done, request) = answered_by(moved, &["get", "clients"]).await;
    assert_eq!((done.code, done.err.contains("302")), (69, true), "{done:?}");
    assert!(request.contains("\r\nhost: 127.0.0.1:"), "{request}");
    let page = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>";
    assert_eq!(answered_by(page, &["get", "clients"]).await.0.code, 69);
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 600\r\n\r\n{\"clients\":[";
    let (done, _) = answered_by(half, &["get", "clients", "--timeout", "300ms"]).await;
    assert_eq!((done.code, done.out.as_str()), (69, ""), "{done:?}");
    let (done, _) = answered_by("", &["get", "clients", "--timeout", "300ms"]).await;
    assert_eq!((done.code, done.err.contains("300ms")), (69, true), "{done:?}");
    let busy = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy";
    assert_eq!(answered_by(busy, &["get", "clients"]).await.0.code, 69);
}

/// A list in pages is shown as a whole.
#[tokio::test]
async fn pages_are_joined() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let pages = tokio::spawn(async move {
        let mut asked = Vec::new();
        for body in [
            r#"{"refused":[{"node":"a"},{"node":"b"}],"count":2,"truncated":true,"next":"b&"}"#,
            r#"{"refused":[{"node":"c"}],"count":1,"truncated":false}"#,
        ] {
            let (mut io, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let length = io.read(&mut request).await.unwrap();
            asked.push(String::from_utf8_lossy(&request[..length]).lines().next().unwrap().to_owned());
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            io.write_all((head + body).as_bytes()).await.unwrap();
        }
        asked
    });
    let done = sluice(&address, &["get", "refused", "-o", "name"]).await;
    assert_eq!((done.code, done.out.as_str()), (0, "a\nb\nc\n"), "{done:?}");
    assert_eq!(pages.await.unwrap(), ["GET /refused HTTP/1.1", "GET /refused?after=b%26 HTTP/1.1"]);
}

/// A relay that gives these answers, each on a connection of its own, and goes away.
async fn gone_after(bodies: &'static [&'static str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        for body in bodies {
            let (mut io, _) = listener.accept().await.unwrap();
            assert!(io.read(&mut [0; 4096]).await.unwrap() > 0);
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            io.write_all((head + body).as_bytes()).await.unwrap();
        }
    });
    address
}

const UNDER_WAY: &str =
    r#"{"order":1,"class":"c0ffee","asked":2,"done":false,"gives_way":"memory is short"}"#;
const DONE: &str = r#"{"order":1,"class":"c0ffee","asked":2,"equal":2,"done":true}"#;

/// CMD-1: a relay that does not answer for a class does not prove it.
#[tokio::test]
async fn prf_24_a_class_is_proved_by_all_relays_or_with_another_exit_code() {
    let order = ["classes", "prove", "c0ffee"];
    let well = sluice(&gone_after(&[UNDER_WAY, UNDER_WAY, DONE]).await, &order).await;
    assert_eq!((well.code, well.out.contains("2 of 2 sampled clients")), (0, true), "{well:?}");
    let stopped = format!("127.0.0.1:{}", free_port());
    let partly = sluice(&format!("{},{stopped}", gone_after(&[DONE]).await), &order).await;
    assert_eq!((partly.code, partly.err.lines().count()), (3, 1), "{partly:?}");
    // The second one dies in mid-order.
    let (one, other) = (gone_after(&[UNDER_WAY, DONE]).await, gone_after(&[UNDER_WAY, UNDER_WAY]).await);
    let dead = sluice(&format!("{one},{other}"), &order).await;
    assert_eq!(
        (dead.code, dead.out.contains(&one), dead.out.contains(&other)),
        (69, true, false),
        "{dead:?}"
    );
    let told: Vec<&str> = dead.err.lines().collect();
    let [waits, silent, end] = told.as_slice() else { panic!("{told:#?}") };
    assert_eq!(*waits, format!("sluice: relay {other} waits: memory is short"));
    assert!(silent.starts_with(&format!("sluice: relay {other}: ")), "{silent}");
    assert_eq!(*end, format!("sluice: no end of the order is known at {other}"));
}

/// A relay with these keys of `admin` in a directory with the files.
pub(super) async fn relay_in(directory: tempfile::TempDir, admin: &str, reached: String) -> Relay {
    let path = |name: &str| directory.path().join(name);
    fs::create_dir(path("resources")).unwrap();
    fs::write(path("resources/none.yaml"), "type_url: type.googleapis.com/a.B\nresources: []\n").unwrap();
    let config = format!(
        "xds_servers: [{{ server_uri: 'file:resources' }}]\n\
         listeners: [{{ name: main, address: 'unix:xds.sock' }}]\nadmin: {admin}\n"
    );
    fs::write(path("sluice.yaml"), config).unwrap();
    let mut command = Command::new(BINARY);
    command.args(["serve", "--config"]).arg(path("sluice.yaml"));
    let relay = Relay::spawn(command, directory, String::new(), reached);
    eventually("the relay listens", async || relay.log().contains("listening for admin requests")).await;
    relay
}

pub(super) fn path_in(directory: &Path, name: &str) -> String {
    directory.join(name).display().to_string()
}

#[tokio::test]
async fn a_relay_is_reached_by_its_unix_socket() {
    let directory = tempfile::tempdir().unwrap();
    let relay = relay_in(directory, "{ address: 'unix:admin.sock' }", String::new()).await;
    let address = format!("unix:{}", path_in(relay.directory.path(), "admin.sock"));
    let done = sluice(&address, &["get", "sources", "-o", "json"]).await;
    assert_eq!(done.list("sources")[0]["relay"], address, "{done:?}");
}

/// CMD-1: by a token through TLS, or by a certificate; and a token never leaves the host in plaintext.
#[tokio::test]
async fn a_secured_relay_is_reached_by_token_or_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let certs = run(&["dev-certs", "."], directory.path());
    assert_eq!(certs.0, 0, "{certs:?}");
    fs::write(directory.path().join("token"), "\noperator-0123456789abcdef0123456789abcdef\n").unwrap();
    let port = free_port();
    let admin = format!(
        "{{ address: '127.0.0.1:{port}', tls: {{ certificates: [{{ certificate_file: relay/tls.crt, private_key_file: relay/tls.key }}], \
         ca_certificate_file: ca.crt, trust_domain: dev.example, client_certificate: optional }}, \
         auth: {{ tokens: [{{ name: operator, token_file: token, roles: [view] }}], \
         identities: [{{ match: 'spiffe://dev.example/ns/default/sa/client', roles: [view] }}] }} }}"
    );
    let relay = relay_in(directory, &admin, format!("127.0.0.1:{port}")).await;
    let file = |name: &str| path_in(relay.directory.path(), name);
    let (ca, token, cert, key) =
        (file("ca.crt"), file("token"), file("client/tls.crt"), file("client/tls.key"));
    let get =
        async |more: &[&str]| sluice(&relay.admin, &[&["get", "sources", "-o", "name"], more].concat()).await;
    let by_token = get(&["--ca", &ca, "--token-file", &token]).await;
    assert_eq!((by_token.code, by_token.out.lines().count()), (0, 1), "{by_token:?}");
    let by_certificate = get(&["--ca", &ca, "--cert", &cert, "--key", &key]).await;
    assert_eq!(by_certificate.code, 0, "{by_certificate:?}");
    let nobody = get(&["--ca", &ca]).await;
    assert_eq!((nobody.code, nobody.err.contains("needs the role view")), (64, true), "{nobody:?}");
    let other = get(&["--ca", &ca, "--token-file", &token, "--server-name", "other.example"]).await;
    assert_eq!((other.code, other.err.contains("TLS: ")), (69, true), "{other:?}");
    let plain = get(&[]).await;
    assert_eq!((plain.code, plain.err.contains("TLS")), (64, true), "{plain:?}");
    let far = sluice("192.0.2.1:19000", &["get", "sources", "--token-file", &token]).await;
    assert_eq!((far.code, far.err.contains("is not on this host")), (64, true), "{far:?}");
}

/// CMD-2: the relay's counts are up to a second old, and the verdict is about now.
#[tokio::test]
async fn cmd_2_the_verdict_of_status_is_about_now() {
    let (origin, relay, mut client) = fleet().await;
    let code = async || sluice(&relay.admin, &["status", "--check"]).await.code;
    eventually("all are in sync", async || code().await == 0).await;
    origin.set(CDS, "web", "2");
    let unanswered = client.next(CDS).await;
    assert_eq!(code().await, 1, "the client has not answered");
    client.ack(&unanswered);
    eventually("all are in sync again", async || code().await == 0).await;
}

#[tokio::test]
async fn a_list_without_items_says_so_on_stderr() {
    let origin = ControlPlane::obedient().await;
    let relay = Relay::start(Setup::of(origin.address)).await;
    let of = async |arguments: &[&str]| {
        let done = sluice(&relay.admin, &[&["get"], arguments].concat()).await;
        assert_eq!(done.code, 0, "{done:?}");
        done.err
    };
    assert_eq!(of(&["clients"]).await, "sluice: no clients\n");
    assert_eq!(of(&["resources", "-o", "name"]).await, "sluice: no resources\n");
    assert_eq!(of(&["clients", "--node", "a"]).await, "sluice: no clients match\n");
    assert_eq!(of(&["clients", "-o", "json"]).await, "");
}

/// The sizes of the resources add up to those of their source and of the metric.
#[tokio::test]
async fn bytes_of_resources_mean_the_same_everywhere() {
    let (origin, relay, mut client) = fleet().await;
    origin.set(CDS, "a-longer-name", "1");
    client.settle(CDS, &[("web", "1"), ("a-longer-name", "1")]).await;
    let of = |all: &Value| all["bytes"].as_f64().unwrap();
    let found = relay.json("/resources?type=Cluster").await;
    let sum: f64 = found["resources"].as_array().unwrap().iter().map(of).sum();
    let sources = relay.json("/sources?type=Cluster").await;
    assert_eq!(of(&sources["sources"][0]["types"][0]), sum, "{found} {sources}");
    assert_eq!(relay.metric("sluice_cache_resource_bytes", &["type=\"Cluster\""]).await, sum);
}

#[tokio::test]
async fn a_mistyped_name_is_answered_with_the_nearest() {
    let (_origin, relay, _client) = fleet().await;
    for path in ["/who?type=Cluster&name=wbe", "/versions?type=Cluster&name=wbe"] {
        let (status, body) = relay.get(path).await;
        assert_eq!(status, 404, "{path}: {body}");
        assert!(body.contains("nearest: web"), "{path}: {body}");
    }
    let (status, body) = relay.get("/resources/Cluster/wbe").await;
    assert!(status == 404 && body.contains("the nearest of 1 names: \"web\""), "{body}");
}
