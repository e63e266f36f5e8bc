//! `admin.tls` and `admin.auth` through the built binary (AUT-14, ADM-3, ADM-4).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use sluice::trust::issue::{Authority, Issued, Leaf};
use sluice::trust::provider::provider;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::support::control_plane::eventually;
use crate::support::relay::{BINARY, run};
use crate::support::{Relay, net};

const DAY: Duration = Duration::from_secs(86_400);
const OPERATOR: &str = "spiffe://prod.example/ns/ops/sa/deployer";
const WORKLOAD: &str = "spiffe://prod.example/ns/shop/sa/web";
const LISTS: [&str; 5] = ["/", "/clients", "/sources", "/resources", "/refused"];

fn now() -> std::time::SystemTime {
    std::time::SystemTime::now()
}

fn token(name: &str) -> String {
    format!("{name}-canary-0123456789abcdef0123456789abcdef")
}

/// The files of a relay, and the authority that issued them.
struct Site {
    directory: TempDir,
    authority: Authority,
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Site {
    fn new() -> Site {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new("prod", DAY, now()).unwrap();
        let site = Site { directory, authority };
        fs::create_dir(site.at("resources")).unwrap();
        fs::write(site.at("resources/none.yaml"), "type_url: type.googleapis.com/a.B\nresources: []\n")
            .unwrap();
        site.issue_relay();
        fs::write(site.at("ca.crt"), site.authority.pem()).unwrap();
        for name in ["scraper", "viewer", "deployer"] {
            fs::write(site.at(&format!("{name}.token")), token(name) + "\n").unwrap();
        }
        site
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a new certificate of the relay, in place: first the certificate, then its key.
    fn issue_relay(&self) {
        let leaf = Leaf { hosts: &["127.0.0.1"], is_server: true, ..Leaf::default() };
        let own = self.authority.issue(&leaf, DAY, now()).unwrap();
        fs::write(self.at("tls.crt"), own.certificate).unwrap();
        fs::write(self.at("tls.key"), own.private_key).unwrap();
    }

    fn client(&self, id: &str) -> Issued {
        let leaf = Leaf { uris: &[id], is_client: true, ..Leaf::default() };
        self.authority.issue(&leaf, DAY, now()).unwrap()
    }

    /// Starts a relay with these keys of `admin`, on this IP address.
    fn start(self, ip: &str, admin: &str) -> Running {
        let port = net::free_port();
        let config = format!(
            "xds_servers: [{{ server_uri: 'file:resources' }}]\n\
             listeners: [{{ name: main, address: 'unix:xds.sock' }}]\n\
             log: {{ level: 'debug' }}\n\
             admin:\n  address: '{ip}:{port}'\n{admin}\n"
        );
        fs::write(self.at("sluice.yaml"), config).unwrap();
        let mut command = Command::new(BINARY);
        command.args(["serve", "--config"]).arg(self.at("sluice.yaml"));
        let Site { directory, authority } = self;
        let (address, reached) = (format!("unix:{}", directory.path().join("xds.sock").display()), port);
        let relay = Relay::spawn(command, directory, address, format!("127.0.0.1:{reached}"));
        Running { relay, authority }
    }
}

struct Running {
    relay: Relay,
    authority: Authority,
}

impl Running {
    /// Waits until the relay listens.
    async fn listens(self) -> Running {
        eventually("the relay listens", async || self.relay.log().contains("listening for admin requests"))
            .await;
        self
    }

    fn config(&self, client: Option<&Issued>, alpn: &[&[u8]]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.pem().as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.unwrap().with_root_certificates(roots);
        let mut config = match client {
            None => builder.with_no_client_auth(),
            Some(client) => {
                let chain = vec![CertificateDer::from_pem_slice(client.certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(client.private_key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }

    async fn ask(
        &self,
        config: &Arc<ClientConfig>,
        method: &str,
        path: &str,
        headers: &str,
    ) -> std::io::Result<Answer> {
        let socket = TcpStream::connect(&self.relay.admin).await?;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        exchange(TlsConnector::from(config.clone()).connect(name, socket).await?, method, path, headers).await
    }

    /// The statuses of a request to each of some endpoints of each role.
    async fn row(&self, config: &Arc<ClientConfig>, headers: &str) -> [u16; 5] {
        let mut row = [0; 5];
        let endpoints = [
            ("GET", "/healthz"),
            ("GET", "/ready"),
            ("GET", "/metrics"),
            ("GET", "/clients"),
            ("POST", "/confirm_deletions"),
        ];
        for (status, (method, path)) in row.iter_mut().zip(endpoints) {
            *status = self.ask(config, method, path, headers).await.unwrap().status;
        }
        row
    }
}

async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    method: &str,
    path: &str,
    headers: &str,
) -> std::io::Result<Answer> {
    let request = format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Ok(Answer { status, head: head.to_owned(), body: body.to_owned() })
}

fn bearer(name: &str) -> String {
    format!("Authorization: Bearer {}\r\n", token(name))
}

const PAIR: &str = "certificates: [{ certificate_file: tls.crt, private_key_file: tls.key }]";
const MUTUAL: &str = "client_certificate: optional, ca_certificate_file: ca.crt, trust_domain: prod.example";
const TOKENS: &str = "tokens: [{ name: scraper, token_file: scraper.token, roles: [metrics] }, \
    { name: viewer, token_file: viewer.token, roles: [view] }, \
    { name: deployer, token_file: deployer.token, roles: [act] }]";

#[tokio::test]
async fn aut_14_the_network_gets_public_paths_only_in_plaintext() {
    let get = async |running: &Running, path: &str| net::http_get(&running.relay.admin, path).await.unwrap();
    let running = Site::new().start("0.0.0.0", "").listens().await;
    let warning =
        "admin.address: open to the network without `admin.tls`: only the public paths are answered";
    assert!(running.relay.log().contains(warning), "{}", running.relay.log());
    assert_eq!((get(&running, "/healthz").await.0, get(&running, "/ready").await.0), (200, 200));
    for path in LISTS.into_iter().chain(["/metrics", "/nothing"]) {
        let (status, body) = get(&running, path).await;
        assert_eq!(status, 403, "{path}");
        assert!(body.contains("public paths only: health, ready"), "{body}");
    }
    assert_eq!(running.relay.post("/confirm_deletions").await.0, 403);

    let running = Site::new().start("0.0.0.0", "  auth: { public: [metrics] }").listens().await;
    assert_eq!((get(&running, "/healthz").await.0, get(&running, "/metrics").await.0), (403, 200));
    let metrics = get(&running, "/metrics").await.1;
    assert!(metrics.contains("sluice_authorization_denials_total{what=\"admin\"} 1"), "{metrics}");
}

#[tokio::test]
async fn aut_14_tokens_over_tls_open_their_endpoints() {
    let admin = format!("  tls: {{ {PAIR} }}\n  auth: {{ {TOKENS} }}");
    let running = Site::new().start("0.0.0.0", &admin).listens().await;
    let anonymous = running.config(None, &[b"http/1.1"]);
    for (headers, row) in [
        (String::new(), [200, 200, 401, 401, 401]),
        (bearer("scraper"), [200, 200, 200, 403, 403]),
        (bearer("viewer"), [200, 200, 403, 200, 403]),
        // Nothing is held back: the request has reached its handler.
        (bearer("deployer"), [200, 200, 403, 403, 404]),
        (bearer("nobody"), [200, 200, 401, 401, 401]),
        // ADM-3: a page has no token.
        ("Origin: https://evil.example\r\n".to_owned(), [200, 200, 401, 401, 401]),
        ("Sec-Fetch-Site: cross-site\r\n".to_owned() + &bearer("viewer"), [200, 403, 403, 403, 403]),
    ] {
        assert_eq!(running.row(&anonymous, &headers).await, row, "{headers}");
    }
    let by_query = format!("/metrics?access_token={}", token("scraper"));
    let answer = running.ask(&anonymous, "GET", &by_query, "").await.unwrap();
    assert_eq!(answer.status, 401);
    assert!(answer.head.contains("www-authenticate: Bearer realm=\"sluice admin\""), "{}", answer.head);
    let metrics = running.ask(&anonymous, "GET", "/metrics", &bearer("scraper")).await.unwrap().body;
    let denials =
        metrics.lines().find(|line| line.starts_with("sluice_authorization_denials_total{what=\"admin\"}"));
    assert_eq!(denials.and_then(|line| line.rsplit(' ').next()), Some("20"));

    let log = running.relay.log();
    assert!(log.contains("refused an admin request") && log.contains("an operator acts"), "{log}");
    // TLS-14: no token is in the log, not even one that was refused, or stood in a query.
    assert!(!log.contains("canary"), "{log}");
}

#[tokio::test]
async fn aut_14_certificates_give_roles_and_prove_nothing_beyond() {
    let identities = "identities: [{ match: 'spiffe://prod.example/ns/ops/sa/{sa}', roles: [view, act] }]";
    let admin = format!("  tls: {{ {PAIR}, {MUTUAL} }}\n  auth: {{ public: [health], {identities} }}");
    let site = Site::new();
    let (operator, workload) = (site.client(OPERATOR), site.client(WORKLOAD));
    let running = site.start("0.0.0.0", &admin).listens().await;
    let alpn: &[&[u8]] = &[b"http/1.1"];
    let row = async |client: Option<&Issued>| running.row(&running.config(client, alpn), "").await;
    assert_eq!(row(Some(&operator)).await, [200, 200, 403, 200, 404]);
    assert_eq!(row(Some(&workload)).await, [200, 401, 401, 401, 401]);
    assert_eq!(row(None).await, [200, 401, 401, 401, 401]);
    // A browser shows a certificate for any page.
    let page = running.config(Some(&operator), alpn);
    let answer = running.ask(&page, "POST", "/confirm_deletions", "Origin: https://evil.example\r\n").await;
    assert_eq!(answer.unwrap().status, 403);
    // A certificate of another authority ends the handshake.
    let foreign = Authority::new("prod", DAY, now()).unwrap();
    let foreign = foreign.issue(&Leaf { uris: &[OPERATOR], is_client: true, ..Leaf::default() }, DAY, now());
    let refused = running.ask(&running.config(Some(&foreign.unwrap()), alpn), "GET", "/healthz", "").await;
    assert!(refused.is_err(), "{refused:?}");
    eventually("the refusal is told", async || {
        let lines = running.relay.log_lines("refused a TLS handshake");
        lines.iter().any(|line| line.contains("listener=\"admin\""))
    })
    .await;
}

#[tokio::test]
async fn a_required_certificate_is_required_for_health_too() {
    let admin = format!("  tls: {{ {PAIR}, {} }}", MUTUAL.replace("optional", "required"));
    let site = Site::new();
    let operator = site.client(OPERATOR);
    let running = site.start("127.0.0.1", &admin).listens().await;
    // On loopback, without `auth`, everybody with a certificate may do everything.
    let row = running.row(&running.config(Some(&operator), &[]), "").await;
    assert_eq!(row, [200, 200, 200, 200, 404]);
    let refused = running.ask(&running.config(None, &[]), "GET", "/healthz", "").await;
    assert!(refused.is_err(), "{refused:?}");
}

#[tokio::test]
async fn crt_1_tokens_and_certificates_change_while_the_relay_runs() {
    let admin = format!("  tls: {{ {PAIR} }}\n  auth: {{ {TOKENS} }}");
    let running = Site::new().start("127.0.0.1", &admin).listens().await;
    let anonymous = running.config(None, &[]);
    let status =
        async |name: &str| running.ask(&anonymous, "GET", "/clients", &bearer(name)).await.unwrap().status;
    let path = running.relay.path("viewer.token");
    fs::write(&path, format!("{}\n{}\n", token("viewer"), token("next"))).unwrap();
    eventually("both tokens hold", async || status("next").await == 200).await;
    assert_eq!(status("viewer").await, 200);
    // By rename, as agents do.
    fs::write(running.relay.path("new"), token("next")).unwrap();
    fs::rename(running.relay.path("new"), &path).unwrap();
    eventually("the old token is gone", async || status("viewer").await == 401).await;
    assert_eq!(status("next").await, 200);
    fs::write(&path, "canary-short\n").unwrap();
    eventually("the bad file is told", async || {
        running.relay.log().contains("cannot use the new token files")
    })
    .await;
    assert_eq!(status("next").await, 200, "the last good one");
    let metrics = running.ask(&anonymous, "GET", "/metrics", &bearer("scraper")).await.unwrap().body;
    assert!(metrics.contains("sluice_tls_reload_failing{place=\"admin.auth\"} 1"), "{metrics}");
    assert!(
        metrics
            .contains("sluice_tls_certificate_expiry_timestamp_seconds{place=\"admin.tls.certificates[0]\"}")
    );
    let warned = running.relay.log_lines("cannot use the new token files");
    assert!(warned[0].contains("tokens[1].token_file") && warned[0].contains("viewer.token"), "{warned:?}");
    assert!(warned[0].contains("the token has 12 bytes; expected at least 32"), "{warned:?}");

    // Another authority issues the certificate of the relay.
    let Running { relay, .. } = running;
    let authority = Authority::new("prod", DAY, now()).unwrap();
    let leaf = Leaf { hosts: &["127.0.0.1"], is_server: true, ..Leaf::default() };
    let own = authority.issue(&leaf, DAY * 2, now()).unwrap();
    fs::write(relay.path("tls.crt"), own.certificate).unwrap();
    fs::write(relay.path("tls.key"), own.private_key).unwrap();
    let running = Running { relay, authority };
    let fresh = running.config(None, &[]);
    eventually("the new certificate", async || running.ask(&fresh, "GET", "/healthz", "").await.is_ok())
        .await;
    assert!(!running.relay.log().contains("canary"), "{}", running.relay.log());
}

/// SEC-1, SEC-7, TLS-3: what peers do before they have proved anything.
#[tokio::test]
async fn sec_1_silent_peers_keep_nobody_out() {
    let admin = format!("  tls: {{ {PAIR} }}");
    let running = Site::new().start("127.0.0.1", &admin).listens().await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(TcpStream::connect(&running.relay.admin).await.unwrap());
    }
    let http1 = running.config(None, &[b"http/1.1"]);
    for _ in 0..3 {
        let answer = running.ask(&http1, "GET", "/healthz", "");
        let answer =
            tokio::time::timeout(Duration::from_secs(4), answer).await.expect("before a handshake times out");
        assert_eq!(answer.unwrap().status, 200);
    }
    let offers: [(&[&[u8]], u16); 3] = [(&[b"h2", b"http/1.1"], 0), (&[b"h2"], 0), (&[], 200)];
    for (offered, expected) in offers {
        let answer = running.ask(&running.config(None, offered), "GET", "/healthz", "").await;
        let status = answer.map(|answer| answer.status).unwrap_or_default();
        assert_eq!(status, expected, "HTTP/1.1 after {offered:?}");
    }
    let error = running.ask(&running.config(None, &[b"h3"]), "GET", "/healthz", "").await.unwrap_err();
    assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
    let (status, body) = net::http_get(&running.relay.admin, "/healthz").await.unwrap();
    assert_eq!((status, body.as_str()), (400, "This port speaks TLS only; use https://\n"));
}

#[tokio::test]
async fn adm_4_the_user_of_the_relay_acts_on_a_unix_socket() {
    let site = Site::new();
    let admin = "  auth: { public: [] }";
    let running = site.start("127.0.0.1", admin);
    // Another relay, on a unix socket.
    let site = Site::new();
    let path = site.at("admin.sock");
    let config = "xds_servers: [{ server_uri: 'file:resources' }]\nlisteners: [{ name: main, address: 'unix:xds.sock' }]\n\
                  admin: { address: 'unix:admin.sock', auth: { public: [] } }\n";
    fs::write(site.at("sluice.yaml"), config).unwrap();
    let mut command = Command::new(BINARY);
    command.args(["serve", "--config"]).arg(site.at("sluice.yaml"));
    let relay = Relay::spawn(command, site.directory, String::new(), String::new());
    eventually("the relay listens", async || relay.log().contains("listening for admin requests")).await;
    for (method, target, status) in
        [("GET", "/clients", 200), ("GET", "/metrics", 200), ("POST", "/confirm_deletions", 404)]
    {
        let socket = UnixStream::connect(&path).await.unwrap();
        assert_eq!(exchange(socket, method, target, "").await.unwrap().status, status, "{target}");
    }
    // Over TCP on the same host, the same rules ask for a role.
    let running = running.listens().await;
    assert_eq!(net::http_get(&running.relay.admin, "/healthz").await.unwrap().0, 401);
}

#[tokio::test]
async fn files_that_cannot_be_used_are_refused_at_the_start_with_their_keys() {
    let check = |change: &dyn Fn(&Site), admin: &str| {
        let site = Site::new();
        change(&site);
        let config = format!("xds_servers: [{{ server_uri: 'file:resources' }}]\nadmin:\n{admin}\n");
        fs::write(site.at("sluice.yaml"), config).unwrap();
        let checked = run(&["check", "--config", "sluice.yaml"], site.directory.path());
        let served = run(&["serve", "--config", "sluice.yaml"], site.directory.path());
        assert_eq!((checked.0, served.0), (64, 64), "{checked:?} {served:?}");
        assert!(!format!("{checked:?} {served:?}").contains("canary"), "{checked:?} {served:?}");
        checked.2
    };
    let auth = format!("  auth: {{ {TOKENS} }}");
    let tls = format!("  tls: {{ {PAIR} }}");
    for (change, admin, key, reason) in [
        (
            &(|site: &Site| fs::write(site.at("viewer.token"), "canary").unwrap()) as &dyn Fn(&Site),
            &auth,
            "admin.auth.tokens[1].token_file: ",
            "viewer.token: line 1: the token has 6 bytes; expected at least 32",
        ),
        (
            &|site: &Site| fs::remove_file(site.at("scraper.token")).unwrap(),
            &auth,
            "admin.auth.tokens[0].token_file: ",
            "scraper.token: cannot read the file: No such file or directory",
        ),
        (
            &|site: &Site| fs::write(site.at("tls.key"), site.client(OPERATOR).private_key).unwrap(),
            &tls,
            "admin.tls.certificates[0].private_key_file: ",
            "tls.key: not the key of the certificate in",
        ),
        (
            &|site: &Site| fs::remove_file(site.at("tls.key")).unwrap(),
            &tls,
            "admin.tls.certificates[0].private_key_file: ",
            "tls.key: cannot read the file: No such file or directory",
        ),
    ] {
        let text = check(change, admin);
        assert!(text.contains(key) && text.contains(reason), "{key} {reason}: {text}");
    }
}

/// A scraper with the wrong scheme tries for ever: one line tells it.
#[tokio::test]
async fn sec_7_tls_on_the_plaintext_admin_listener_is_told_once() {
    let running = Site::new().start("127.0.0.1", "").listens().await;
    for _ in 0..3 {
        let mut socket = TcpStream::connect(&running.relay.admin).await.unwrap();
        socket.write_all(b"\x16\x03\x01\x00\x05").await.unwrap();
        // Closed without an answer.
        assert_eq!(socket.read(&mut [0; 1]).await.unwrap_or_default(), 0);
    }
    running.relay.logged("the peer speaks TLS").await;
    let told = running.relay.log_lines("the peer speaks TLS");
    assert!(told.len() == 1 && told[0].contains("WARN") && told[0].contains("no `admin.tls`"), "{told:?}");
}

#[tokio::test]
async fn a_private_key_that_every_user_can_read_is_told_once() {
    let admin = format!("  tls: {{ {PAIR} }}");
    for (mode, count) in [(0o644, 1), (0o640, 0)] {
        let site = Site::new();
        fs::set_permissions(site.at("tls.key"), fs::Permissions::from_mode(mode)).unwrap();
        let running = site.start("127.0.0.1", &admin).listens().await;
        if count > 0 {
            running.relay.logged("every user of this host can read the private key").await;
        }
        let told = running.relay.log_lines("every user of this host can read the private key");
        assert_eq!(told.iter().filter(|line| line.contains("WARN")).count(), count, "{mode:o}: {told:?}");
    }
}
