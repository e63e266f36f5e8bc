//! Who may ask for what: every kind of caller at every endpoint (AUT-14, ADM-3, ADM-4).

use super::super::access::{Access, Area, Areas, Auth, IdentityGrant, ListenerReach, TokenGrant};
use super::*;
use crate::telemetry::metrics::TlsMetrics;
use crate::trust::contents::Contents;
use crate::trust::rotation::WatchedPlace;
use crate::trust::tokens::{TokenFile, place_files};
use sluice_engine::authorization::IdentityPattern;
use sluice_identity::SpiffeId;

const OWNER: u32 = 1337;
const DEPLOYER: &str = "spiffe://prod.example/ns/ops/sa/deployer";

fn token(name: &str) -> String {
    format!("{name}-0123456789abcdef0123456789abcdef")
}

fn areas(areas: &[Area]) -> Areas {
    areas.iter().copied().collect()
}

/// Health and readiness are public, each role has a token, and an identity may act.
fn auth(directory: &std::path::Path) -> Auth {
    let grant = |name: &str, area: Area| {
        let path = directory.join(name);
        std::fs::write(&path, token(name)).unwrap();
        TokenGrant { file: TokenFile { name: name.into(), path }, roles: areas(&[area]) }
    };
    Auth {
        public: areas(&[Area::Health, Area::Ready]),
        tokens: vec![
            grant("scraper", Area::Metrics),
            grant("viewer", Area::View),
            grant("deployer", Area::Act),
        ],
        identities: vec![
            IdentityGrant {
                pattern: IdentityPattern::spiffe("spiffe://prod.example/ns/ops/sa/{sa}").unwrap(),
                roles: areas(&[Area::Act]),
            },
            IdentityGrant { pattern: IdentityPattern::Unix([7].into()), roles: areas(&[Area::View]) },
        ],
    }
}

fn watch(auth: &Auth) -> Watched<Tokens> {
    let files: Vec<_> = auth.tokens.iter().map(|grant| grant.file.clone()).collect();
    let place = WatchedPlace {
        name: "admin.auth".into(),
        files: place_files(&files),
        refresh: Duration::from_secs(600),
        build: Arc::new(move |contents: &Contents, _: Option<&Tokens>, _| Tokens::read(&files, contents)),
    };
    place.watch(TlsMetrics::default()).unwrap()
}

struct Bench {
    admin: Fixture,
    _directory: tempfile::TempDir,
}

impl Bench {
    fn new(reach: ListenerReach, change: impl FnOnce(Auth) -> Option<Auth>) -> Bench {
        let directory = tempfile::tempdir().unwrap();
        let auth = change(auth(directory.path()));
        let tokens = auth.as_ref().filter(|auth| !auth.tokens.is_empty()).map(watch);
        let settings = AdminSettings { access: Access { reach, auth }, ..AdminSettings::default() };
        let held = SourceStatus::clone(&source("cp-1", SourceState::Connected, false));
        Bench { admin: Fixture::with(vec![Arc::new(held)], settings, tokens), _directory: directory }
    }

    async fn ask(&self, peer: &AdminPeer, method: &str, path: &str, headers: &str) -> Answer {
        let request = get_request(path).replacen("GET", method, 1);
        let request = request.replacen("\r\n\r\n", &format!("{headers}\r\n\r\n"), 1);
        self.admin.send_as(peer.clone(), &request).await
    }

    /// The answers to a caller: for each area with an endpoint, the one status of all its endpoints.
    async fn row(&self, peer: &AdminPeer, headers: &str) -> String {
        let mut row = String::new();
        for area in Area::ALL {
            let mut found = Vec::new();
            let lines = Endpoint::ALL.iter().map(|endpoint| endpoint.line());
            for endpoint in lines.filter(|line| line.area == area) {
                let answer = self.ask(peer, endpoint.method, endpoint.path, headers).await;
                // The endpoint itself has answered.
                let passed = [200, 303, 400, 404, 409, 503].contains(&answer.status);
                assert_eq!(
                    answer.head.contains("www-authenticate: Bearer"),
                    answer.status == 401 || { answer.status == 403 && answer.body.contains("yours: ") }
                );
                found.push(if passed { "ok".to_owned() } else { answer.status.to_string() });
            }
            found.dedup();
            assert_eq!(found.len(), 1, "{area:?}: {found:?}");
            row += &format!("{} {}, ", area.name(), found[0]);
        }
        row.trim_end_matches(", ").to_owned()
    }

    fn denials(&self) -> u64 {
        self.admin.metrics.downstream.denials("admin")
    }
}

fn bearer(name: &str) -> String {
    format!("\r\nAuthorization: Bearer {}", token(name))
}

fn spiffe(id: &str) -> AdminPeer {
    AdminPeer { identity: Identity::Spiffe(SpiffeId::parse(id).unwrap()), ..AdminPeer::default() }
}

fn user(uid: u32) -> AdminPeer {
    AdminPeer { uid: Some(uid), identity: Identity::Unix { uid }, address: None }
}

const ALL: &str = "health ok, ready ok, metrics ok, view ok, act ok";

/// The table, once more: a change of a role is a decision.
#[test]
fn aut_14_every_endpoint_has_its_role() {
    let role = |endpoint: &Endpoint| format!("{endpoint} {}", endpoint.line().area.name());
    let found: Vec<_> = Endpoint::ALL.iter().map(role).collect();
    let expected = [
        "GET / view",
        "GET /healthz health",
        "GET /ready ready",
        "GET /metrics metrics",
        "GET /overview view",
        "GET /clients view",
        "GET /clients/{id} view",
        "GET /clients/{id}/diff view",
        "GET /clients/{id}/explain view",
        "GET /who view",
        "GET /versions view",
        "GET /classes view",
        "POST /classes/explain view",
        "GET /classes/divergences view",
        "GET /classes/{class}/samples view",
        "POST /classes/prove act",
        "GET /classes/prove/{order} view",
        "POST /classes/learn act",
        "GET /classes/learn/{order} view",
        "GET /classes/splits view",
        "POST /classes/split act",
        "POST /classes/join act",
        "GET /load view",
        "GET /load/classes view",
        "GET /sources view",
        "GET /resources view",
        "GET /resources/{type}/{*name} view",
        "GET /events view",
        "GET /tail view",
        "GET /changes view",
        "GET /changes/{id} view",
        "GET /rollouts view",
        "GET /rollouts/{plan} view",
        "GET /rollouts/{plan}/pushes view",
        "GET /rollouts/{plan}/pushes/{push} view",
        "GET /rollouts/{plan}/pushes/{push}/candidate view",
        "GET /ledger view",
        "POST /ledger/init act",
        "GET /refused view",
        "GET /drain view",
        "POST /drain act",
        "DELETE /drain act",
        "POST /upgrade act",
        "GET /config view",
        "POST /reload act",
        "POST /rollback act",
        "POST /clients/{id}/end act",
        "POST /log act",
        "POST /confirm_deletions act",
        "POST /rollouts/{plan}/{command} act",
        "POST /freeze act",
        "POST /unfreeze act",
        "POST /v3/discovery:client_status view",
        "POST /envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus view",
        "POST /envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus view",
        "GET /ui view",
        "GET /ui/ view",
        "GET /ui/{*page} view",
        "GET /ui/assets/{build}/{name} view",
    ];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn aut_14_each_role_opens_its_endpoints_and_no_other() {
    let bench = Bench::new(ListenerReach::Network { has_tls: true }, Some);
    for (headers, row) in [
        (String::new(), "health ok, ready ok, metrics 401, view 401, act 401"),
        (bearer("scraper"), "health ok, ready ok, metrics ok, view 403, act 403"),
        (bearer("viewer"), "health ok, ready ok, metrics 403, view ok, act 403"),
        (bearer("deployer"), "health ok, ready ok, metrics 403, view 403, act ok"),
        (bearer("nobody"), "health ok, ready ok, metrics 401, view 401, act 401"),
    ] {
        assert_eq!(bench.row(&AdminPeer::default(), &headers).await, row, "{headers}");
    }
    let act = "health ok, ready ok, metrics 403, view 403, act ok";
    assert_eq!(bench.row(&spiffe(DEPLOYER), "").await, act);
    let foreign = spiffe("spiffe://other.example/ns/ops/sa/deployer");
    assert_eq!(bench.row(&foreign, "").await, "health ok, ready ok, metrics 401, view 401, act 401");
    // Proofs add up.
    let both = bench.row(&spiffe(DEPLOYER), &bearer("viewer")).await;
    assert_eq!(both, "health ok, ready ok, metrics 403, view ok, act ok");
    let paths = ["/nothing", "/clients/", "/metrics/"];
    for path in paths {
        assert_eq!(bench.ask(&AdminPeer::default(), "GET", path, "").await.status, 401, "{path}");
        assert_eq!(
            bench.ask(&AdminPeer::default(), "GET", path, &bearer("viewer")).await.status,
            404,
            "{path}"
        );
    }
    assert_eq!(bench.ask(&AdminPeer::default(), "GET", "/confirm_deletions", "").await.status, 401);
    assert_eq!(
        bench.ask(&AdminPeer::default(), "GET", "/confirm_deletions", &bearer("deployer")).await.status,
        405
    );
}

#[tokio::test]
async fn adm_4_the_way_to_the_listener_decides_without_roles() {
    let public = "health ok, ready ok, metrics 403, view 403, act 403";
    for (reach, peer, row) in [
        (ListenerReach::Loopback, AdminPeer::default(), ALL),
        (ListenerReach::Network { has_tls: false }, AdminPeer::default(), public),
        (ListenerReach::Network { has_tls: true }, AdminPeer::default(), public),
        (ListenerReach::Network { has_tls: true }, spiffe(DEPLOYER), public),
        (ListenerReach::Unix { owner: OWNER }, user(0), ALL),
        (ListenerReach::Unix { owner: OWNER }, user(OWNER), ALL),
        (ListenerReach::Unix { owner: OWNER }, user(7), "health ok, ready ok, metrics ok, view ok, act 403"),
    ] {
        let bench = Bench::new(reach, |_| None);
        assert_eq!(bench.row(&peer, "").await, row, "{reach:?} {peer:?}");
    }
}

#[tokio::test]
async fn adm_4_roles_hold_on_every_way() {
    let none = "health ok, ready ok, metrics 401, view 401, act 401";
    let loopback = Bench::new(ListenerReach::Loopback, Some);
    assert_eq!(loopback.row(&AdminPeer::default(), "").await, none);
    assert_eq!(
        loopback.row(&AdminPeer::default(), &bearer("viewer")).await,
        "health ok, ready ok, metrics 403, view ok, act 403"
    );

    let unix = Bench::new(ListenerReach::Unix { owner: OWNER }, Some);
    assert_eq!(unix.row(&user(OWNER), "").await, ALL);
    assert_eq!(unix.row(&user(8), "").await, none);
    assert_eq!(unix.row(&user(7), "").await, "health ok, ready ok, metrics 403, view ok, act 403");
    // With a client certificate, the user counts, too.
    let both = AdminPeer { uid: Some(7), ..spiffe(DEPLOYER) };
    assert_eq!(unix.row(&both, "").await, "health ok, ready ok, metrics 403, view ok, act ok");

    // Over the network in plaintext, a token opens nothing: others could have read it.
    let plaintext = Bench::new(ListenerReach::Network { has_tls: false }, Some);
    let row = plaintext.row(&AdminPeer::default(), &bearer("scraper")).await;
    assert_eq!(row, "health ok, ready ok, metrics 403, view 403, act 403");
    let answer = plaintext.ask(&AdminPeer::default(), "GET", "/metrics", "").await;
    assert!(answer.body.contains("admin.tls") && answer.body.contains("health, ready"), "{}", answer.body);
}

#[tokio::test]
async fn aut_14_public_areas_need_no_proof() {
    let with = |public: &[Area]| {
        let public = areas(public);
        move |auth| Some(Auth { public, ..auth })
    };
    let open = Bench::new(ListenerReach::Network { has_tls: false }, with(&[Area::Health, Area::Metrics]));
    let row = open.row(&AdminPeer::default(), "").await;
    assert_eq!(row, "health ok, ready 403, metrics ok, view 403, act 403");
    let closed = Bench::new(ListenerReach::Network { has_tls: true }, with(&[]));
    let row = closed.row(&AdminPeer::default(), "").await;
    assert_eq!(row, "health 401, ready 401, metrics 401, view 401, act 401");
    // Any role opens health and readiness.
    let row = closed.row(&AdminPeer::default(), &bearer("deployer")).await;
    assert_eq!(row, "health ok, ready ok, metrics 403, view 403, act ok");
}

#[tokio::test]
async fn aut_14_a_token_is_read_from_its_header_alone_and_whole() {
    let bench = Bench::new(ListenerReach::Network { has_tls: true }, Some);
    let (good, anonymous) = (token("scraper"), AdminPeer::default());
    let status = async |path: &str, headers: &str| bench.ask(&anonymous, "GET", path, headers).await.status;
    for scheme in ["Bearer ", "bearer ", "BEARER   "] {
        assert_eq!(status("/metrics", &format!("\r\nAuthorization: {scheme}{good}")).await, 200, "{scheme}");
    }
    for query in ["access_token", "token", "Authorization"] {
        assert_eq!(status(&format!("/metrics?{query}={good}"), "").await, 401, "{query}");
    }
    let double = format!("{0}{0}", bearer("scraper"));
    let shorter = format!("\r\nAuthorization: Bearer {}", &good[..good.len() - 1]);
    let basic = format!("\r\nAuthorization: Digest {good}");
    let bare = format!("\r\nAuthorization: {good}");
    let cookie = format!("\r\nCookie: token={good}");
    for headers in [double, shorter, basic, bare, cookie, "\r\nAuthorization: Bearer".to_owned()] {
        assert_eq!(status("/metrics", &headers).await, 401, "{headers}");
    }
}

#[tokio::test]
async fn aut_14_a_refusal_says_what_is_missing_and_is_counted() {
    let bench = Bench::new(ListenerReach::Network { has_tls: true }, Some);
    let anonymous = AdminPeer::default();
    let answer = bench.ask(&anonymous, "GET", "/clients", "").await;
    assert_eq!(
        answer.body,
        "GET /clients needs the role view: send the header `Authorization: Bearer TOKEN` (a token in the query is not \
         read), or a client certificate with this role\n"
    );
    let answer = bench.ask(&anonymous, "GET", "/clients", &bearer("nobody")).await;
    assert!(answer.body.contains("the token is unknown"), "{}", answer.body);
    assert!(answer.head.contains("error=\"invalid_token\""), "{}", answer.head);
    let answer = bench.ask(&anonymous, "POST", "/confirm_deletions", &bearer("viewer")).await;
    assert_eq!(answer.body, "POST /confirm_deletions needs the role act; yours: view\n");
    assert_eq!(bench.denials(), 3);
    // What is refused takes no place among the requests under way.
    assert_eq!(bench.admin.limit_hits(Limit::AdminRequests), "0");
    bench.ask(&anonymous, "GET", "/metrics", &bearer("scraper")).await;
    assert_eq!(bench.denials(), 3);
}

#[tokio::test]
async fn adm_3_web_pages_neither_act_nor_look() {
    let bench = Bench::new(ListenerReach::Network { has_tls: true }, Some);
    let (anonymous, deployer) = (AdminPeer::default(), spiffe(DEPLOYER));
    let origin = "\r\nOrigin: https://evil.example";
    // A browser shows the client certificate for any page, but no page has a token.
    let answer = bench.ask(&deployer, "POST", "/confirm_deletions", origin).await;
    assert_eq!((answer.status, answer.body.contains("Origin")), (403, true), "{}", answer.body);
    let with_token = format!("{origin}{}", bearer("deployer"));
    assert_eq!(bench.ask(&anonymous, "POST", "/confirm_deletions", &with_token).await.status, 404);
    assert_eq!(bench.denials(), 1);

    let local = Bench::new(ListenerReach::Loopback, |_| None);
    for (site, allowed) in
        [("none", true), ("same-origin", true), ("same-site", false), ("cross-site", false)]
    {
        let header = format!("\r\nSec-Fetch-Site: {site}");
        let row = local.row(&anonymous, &header).await;
        let refused = "health ok, ready 403, metrics 403, view 403, act 403";
        assert_eq!(row, if allowed { ALL } else { refused }, "{site}");
    }
}

#[tokio::test(start_paused = true)]
async fn aut_14_changed_tokens_hold_for_the_next_request() {
    let bench = Bench::new(ListenerReach::Network { has_tls: true }, Some);
    let path = bench._directory.path().join("viewer");
    let anonymous = AdminPeer::default();
    let status = async |name: &str| bench.ask(&anonymous, "GET", "/clients", &bearer(name)).await.status;
    assert_eq!((status("viewer").await, status("next").await), (200, 401));
    let until = async |old: u16, new: u16| {
        for _ in 0..200 {
            if (status("viewer").await, status("next").await) == (old, new) {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("never {old} and {new}");
    };
    std::fs::write(&path, format!("{}\n{}\n", token("viewer"), token("next"))).unwrap();
    until(200, 200).await;
    std::fs::write(&path, token("next")).unwrap();
    until(401, 200).await;
    // A file that cannot be used changes nothing.
    std::fs::write(&path, "short").unwrap();
    sleep(Duration::from_secs(10)).await;
    assert_eq!((status("viewer").await, status("next").await), (401, 200));
}
