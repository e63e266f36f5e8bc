//! `sluice ui`, and the page's answers to `explain` (PAG-3, ADM-9).

use std::fs;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use super::commands::{client_of, fleet, path_in, relay_in, sluice};
use crate::support::net::free_port;
use crate::support::relay::{BINARY, run};
use crate::support::{ControlPlane, Relay, Setup};

/// A running `sluice ui`.
struct Ui {
    address: String,
    _process: Child,
}

impl Ui {
    async fn open(relay: &str, arguments: &[&str]) -> Ui {
        let mut command = Command::new(BINARY);
        command.arg("ui").args(arguments).env_clear().env("SLUICE_ADMIN", relay);
        let mut process = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().expect("an address");
        let address = line.strip_prefix("http://").and_then(|line| line.strip_suffix("/ui/")).expect(&line);
        Ui { address: address.to_owned(), _process: process }
    }

    async fn begin(&self, request: &str, headers: &str) -> TcpStream {
        let mut io = TcpStream::connect(&self.address).await.unwrap();
        let host =
            if headers.contains("Host:") { String::new() } else { format!("Host: {}\r\n", self.address) };
        let request = format!("{request} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\r\n");
        io.write_all(request.as_bytes()).await.unwrap();
        io
    }

    /// Status and everything of an answer.
    async fn ask(&self, request: &str, headers: &str) -> (u16, String) {
        let mut answer = Vec::new();
        self.begin(request, headers).await.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        (answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect(&answer), answer)
    }
}

/// A relay whose page needs a token or a certificate.
async fn secured() -> Relay {
    let directory = tempfile::tempdir().unwrap();
    let certs = run(&["dev-certs", "."], directory.path());
    assert_eq!(certs.0, 0, "{certs:?}");
    fs::write(directory.path().join("token"), "viewer-0123456789abcdef0123456789abcdef\n").unwrap();
    let port = free_port();
    let admin = format!(
        "{{ address: '127.0.0.1:{port}', tls: {{ certificates: [{{ certificate_file: relay/tls.crt, private_key_file: relay/tls.key }}], \
         ca_certificate_file: ca.crt, trust_domain: dev.example, client_certificate: optional }}, \
         auth: {{ tokens: [{{ name: viewer, token_file: token, roles: [view] }}], \
         identities: [{{ match: 'spiffe://dev.example/ns/default/sa/client', roles: [view] }}] }} }}"
    );
    relay_in(directory, &admin, format!("127.0.0.1:{port}")).await
}

#[tokio::test]
async fn pag_3_a_token_or_a_certificate_opens_the_page_to_a_browser_without_either() {
    let relay = secured().await;
    let file = |name: &str| path_in(relay.directory.path(), name);
    let (ca, token, cert, key) =
        (file("ca.crt"), file("token"), file("client/tls.crt"), file("client/tls.key"));
    let by_token = Ui::open(&relay.admin, &["--ca", &ca, "--token-file", &token]).await;
    let by_certificate = Ui::open(&relay.admin, &["--ca", &ca, "--cert", &cert, "--key", &key]).await;
    for ui in [by_token, by_certificate] {
        let (status, page) = ui.ask("GET /ui/", "Authorization: Bearer other\r\nCookie: a=b\r\n").await;
        assert_eq!((status, page.contains("No client is connected.")), (200, true), "{page}");
        assert!(page.contains("content-security-policy: default-src 'none'"), "{page}");
        let sheet = page.split("href=\"/ui/assets/").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        assert_eq!(ui.ask(&format!("GET /ui/assets/{sheet}"), "").await.0, 200);
        let (status, head) = ui.ask("HEAD /ui/config", "").await;
        assert_eq!((status, head.ends_with("\r\n\r\n")), (200, true), "{head}");
        assert_eq!(ui.ask("GET /ui/nothing", "").await.0, 404, "the relay's own refusals pass");
        for (request, headers, status) in [
            ("GET /ui/", "Host: evil.example\r\n", 421),
            ("GET http://127.0.0.1/ui/", "", 421),
            ("GET /metrics", "", 404),
            ("GET /clients", "", 404),
            ("GET /ui/../metrics", "", 404),
            ("POST /ui/", "", 405),
            ("POST /drain", "", 405),
            ("GET /ui/", "Content-Length: 1\r\n", 413),
            ("GET /ui/", "Sec-Fetch-Site: cross-site\r\n", 403),
            ("GET /events", "Sec-Fetch-Site: same-site\r\n", 403),
        ] {
            assert_eq!(ui.ask(request, headers).await.0, status, "{request} {headers}");
        }
    }
    let nobody = sluice(&relay.admin, &["ui", "--ca", &ca]).await;
    assert_eq!((nobody.code, nobody.out.as_str()), (64, ""), "{nobody:?}");
    assert!(nobody.err.contains("needs the role view"), "{nobody:?}");
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let taken = sluice(&relay.admin, &["ui", "--ca", &ca, "--token-file", &token, "--port", &port]).await;
    assert_eq!((taken.code, taken.err.contains(&port)), (64, true), "{taken:?}");
    let several = sluice(&format!("{0},unix:/none", relay.admin), &["ui"]).await;
    assert_eq!((several.code, several.err.contains("one relay")), (64, true), "{several:?}");
}

/// A live stream passes, part by part; of a relay that dies, the page says so in words.
#[tokio::test]
async fn pag_3_streams_pass_and_the_end_of_the_relay_is_told() {
    let (_origin, mut relay, _client) = fleet().await;
    let ui = Ui::open(&relay.admin, &[]).await;
    let mut stream = ui.begin("GET /events", "Accept: text/event-stream\r\n").await;
    let mut read = String::new();
    let mut buffer = [0; 4096];
    let _another = client_of(&relay, "envoy-web-9").await;
    while !read.contains("clients opened streams") {
        let length = stream.read(&mut buffer).await.unwrap();
        assert!(length > 0, "{read}");
        read += &String::from_utf8_lossy(&buffer[..length]);
    }
    assert!(read.contains("content-type: text/event-stream"), "{read}");
    relay.signal("KILL");
    relay.exit().await;
    while let Ok(1..) = stream.read(&mut buffer).await {}
    let (status, text) = ui.ask("GET /ui/", "").await;
    let told = format!("the relay {} does not answer: ", relay.admin);
    assert_eq!((status, text.contains(&told)), (502, true), "{text}");
    let gone = sluice(&relay.admin, &["ui"]).await;
    assert_eq!(gone.code, 69, "{gone:?}");
}

#[tokio::test]
async fn pag_3_a_role_that_is_taken_away_is_told_in_words() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let relay = listener.local_addr().unwrap().to_string();
    let asked = tokio::spawn(async move {
        let mut asked = String::new();
        for answer in [
            "200 OK",
            "401 Unauthorized\r\nWWW-Authenticate: Bearer",
            "302 Found\r\nLocation: //evil.example/",
        ] {
            let (mut io, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let length = io.read(&mut request).await.unwrap();
            asked = String::from_utf8_lossy(&request[..length]).into_owned();
            let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 9\r\n\r\nno <role>");
            io.write_all(answer.as_bytes()).await.unwrap();
        }
        asked
    });
    let ui = Ui::open(&relay, &[]).await;
    let (status, text) = ui.ask("GET /ui/", "").await;
    assert_eq!(status, 403, "{text}");
    assert!(text.contains("no <role>") && text.contains("--token-file"), "{text}");
    assert!(text.contains("text/plain") && !text.to_lowercase().contains("www-authenticate"), "{text}");
    let (_, moved) = ui.ask("GET /ui/", "Cookie: canary=1\r\nLast-Event-ID: 7\r\n").await;
    assert!(!moved.contains("evil.example"), "{moved}");
    let asked = asked.await.unwrap();
    assert!(asked.contains("last-event-id: 7") && !asked.contains("canary"), "{asked}");
}

/// The rule of a class, with its text and its place in the file, in the command and on the page.
#[tokio::test]
async fn adm_9_explain_shows_the_rule_as_the_file_has_it() {
    let origin = ControlPlane::obedient().await;
    origin.set(crate::support::CDS, "web", "1");
    let rules = "node_classes:\n- match: { id: { prefix: batch- } }\n- split_by: { cluster: true }";
    let relay = Relay::start(Setup::of(origin.address).line(rules)).await;
    let _client = client_of(&relay, "envoy-web-3").await;
    let done = sluice(&relay.admin, &["explain", "client", "envoy-web-3", "Cluster/web"]).await;
    let file = relay.json("/config").await["file"].as_str().unwrap().to_owned();
    let text = fs::read_to_string(relay.directory.path().join(&file)).unwrap();
    let line = 1 + text.lines().position(|line| line.starts_with("- split_by")).unwrap();
    let rule =
        format!("node_classes[1] of generation 1, at {file}:{line}:3: {{\"split_by\":{{\"cluster\":true}}}}");
    assert_eq!((done.code, done.out.contains(&rule)), (0, true), "{rule}: {done:?}");
    assert!(done.out.contains("node_classes[0] fails: id is \"envoy-web-3\""), "{done:?}");
    let id = relay.json("/clients").await["clients"][0]["id"].clone();
    let (status, page) = relay.get(&format!("/ui/clients/{id}/explain?type=Cluster&name=web")).await;
    let shown = rule.replace('"', "&#34;");
    assert_eq!((status, page.contains(&shown)), (200, true), "{shown}: {page}");
    let answer = relay.json(&format!("/clients/{id}/explain?type=Cluster")).await;
    let near = &answer["class"]["nearest"];
    assert_eq!((&near["rule"], &near["field"]), (&"node_classes[0]".into(), &"id".into()), "{near}");
    assert_eq!(near["place"], format!("{file}:{}:3", line - 1));
}
