//! The endpoints, readiness, and the hosts that may ask.

use super::super::endpoints::INDEX;
use super::*;

#[tokio::test]
async fn endpoints_are_listed_and_everything_else_is_refused() {
    let admin = Fixture::start(vec![], false);
    let index = admin.get("/").await;
    assert_eq!((index.status, &index.body), (200, &*INDEX));
    for path in [
        "/healthz",
        "/ready",
        "/metrics",
        "/overview",
        "/clients",
        "/sources",
        "/resources",
        "/events",
        "/changes",
        "/rollouts",
        "/refused",
    ] {
        assert!(index.body.contains(&format!("GET {path} ")), "{path}");
        let posted = admin.send(&get_request(path).replace("GET", "POST")).await;
        assert_eq!(posted.status, 405, "{path}");
        assert!(posted.head.contains("allow: GET,HEAD"), "{}", posted.head);
    }
    for path in ["/nothing", "/clients/", "/debug/pprof"] {
        let answer = admin.get(path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.body.ends_with(&*INDEX));
    }
    assert!(index.body.contains("POST /confirm_deletions "));
    let answer = admin.get("/confirm_deletions").await;
    assert_eq!(answer.status, 405);
    assert!(answer.head.contains("allow: POST"), "{}", answer.head);
    let with_body = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n";
    assert_eq!(admin.send(with_body).await.status, 413);
}

#[tokio::test]
async fn fu_18_deletions_are_confirmed_by_tools_and_not_by_pages() {
    let holding = |server: &str, held_back| {
        let mut source = SourceStatus::clone(&source(server, SourceState::Connected, false));
        source.types[0].held_back = held_back;
        Arc::new(source)
    };
    let admin = Fixture::start(vec![holding("cp-1", 7), holding("cp-2", 7), holding("cp-3", 0)], false);
    let post = |target: &str| get_request(target).replacen("GET", "POST", 1);
    let from_page =
        post("/confirm_deletions").replace("\r\n\r\n", "\r\nOrigin: https://evil.example\r\n\r\n");
    let answer = admin.send(&from_page).await;
    assert_eq!(answer.status, 403, "{}", answer.body);

    let confirmed = admin.send(&post("/confirm_deletions")).await;
    assert_eq!(confirmed.status, 200, "{}", confirmed.body);
    let went = |answer: &Answer| {
        let all = answer.json()["confirmed"].as_array().unwrap().clone();
        all.iter()
            .map(|of| (of["server"].as_str().unwrap().to_owned(), of["removed"].as_u64()))
            .collect::<Vec<_>>()
    };
    assert_eq!(went(&confirmed), [("cp-1".to_owned(), Some(7)), ("cp-2".to_owned(), Some(7))]);
    let one = admin.send(&post("/confirm_deletions?server=cp-2&type=Cluster")).await;
    assert_eq!(went(&one), [("cp-2".to_owned(), Some(7))]);

    for target in ["?type=Listener", "?server=cp-3", "?server=cp-9"] {
        let answer = admin.send(&post(&format!("/confirm_deletions{target}"))).await;
        assert_eq!(answer.status, 404, "{target}");
        assert!(answer.body.contains("no matching deletion"), "{}", answer.body);
    }
    let answer = admin.send(&post("/confirm_deletions?tpye=Cluster")).await;
    assert_eq!(
        (answer.status, answer.body.contains("allowed: server, type")),
        (400, true),
        "{}",
        answer.body
    );
}

#[tokio::test]
async fn a_server_that_never_answered_has_a_state_of_its_own() {
    let mut silent = SourceStatus::clone(&source("cp-1", SourceState::Unanswered, false));
    silent.answered = false;
    let admin = Fixture::start(vec![Arc::new(silent)], true);
    admin.readiness.advance(State::Ready);
    let ready = admin.get("/ready").await;
    assert_eq!(ready.status, 200, "it can be reached");
    let upstream = &ready.json()["upstreams"]["cp-1"];
    assert_eq!((&upstream["unanswered"], &upstream["connected"]), (&Value::from(1), &Value::from(0)));
    let found = &admin.get("/sources?state=unanswered").await.json()["sources"][0];
    assert_eq!((&found["state"], &found["answered"]), (&Value::from("unanswered"), &Value::from(false)));
    assert_eq!(
        (&found["class"], &found["upstream_id"]),
        (&Value::from("c0ffee"), &Value::from("relay/c0ffee"))
    );
}

#[tokio::test]
async fn readiness_follows_the_process_and_not_its_upstreams() {
    let down = SourceState::Backoff { failures: 3, delay: Duration::from_secs(4) };
    let sources = vec![
        source("cp-1", down, true),
        source("cp-1", SourceState::Connected, false),
        source("cp-2", SourceState::Connecting, false),
    ];
    let admin = Fixture::start(sources, false);
    let ready = admin.get("/ready").await;
    assert_eq!((ready.status, &ready.json()["state"]), (503, &Value::from("starting")));
    assert_eq!(admin.get("/healthz").await.status, 200);

    admin.readiness.advance(State::Ready);
    let ready = admin.get("/ready").await;
    assert_eq!(ready.status, 200);
    let report = ready.json();
    assert_eq!((&report["state"], &report["ready"]), (&Value::from("ready"), &Value::from(true)));
    let first = &report["upstreams"]["cp-1"];
    let counts = ["connected", "connecting", "backoff", "stale"].map(|key| first[key].as_u64());
    assert_eq!(counts, [1, 0, 1, 1].map(Some));
    assert!((60.0..70.0).contains(&first["stale_seconds"].as_f64().unwrap()), "{first}");
    assert_eq!(first["last_error"], "UNAVAILABLE: gone");
    assert_eq!(report["upstreams"]["cp-2"]["stale_seconds"], Value::Null);
    assert_eq!(report["upstreams"]["cp-2"]["last_error"], Value::Null);

    admin.readiness.advance(State::Draining);
    admin.readiness.advance(State::Ready);
    let ready = admin.get("/ready").await;
    assert_eq!((ready.status, &ready.json()["state"]), (503, &Value::from("draining")));
    assert_eq!(admin.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn readiness_requires_an_upstream_only_where_asked_to() {
    let down = SourceState::Backoff { failures: 1, delay: Duration::from_secs(1) };
    let cases = [
        (vec![source("cp-1", down, true)], false, 200),
        (vec![source("cp-1", down, true)], true, 503),
        (vec![source("cp-1", down, true), source("cp-2", SourceState::Connected, false)], true, 200),
        (vec![], true, 200),
    ];
    for (sources, requires_upstream, status) in cases {
        let admin = Fixture::start(sources, requires_upstream);
        admin.readiness.advance(State::Ready);
        assert_eq!(admin.get("/ready").await.status, status);
    }
}

#[tokio::test]
async fn metrics_are_openmetrics() {
    let admin = Fixture::start(vec![], false);
    let stream = admin.metrics.downstream.stream(Variant::Sotw);
    let answer = admin.get("/metrics").await;
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains(&format!("content-type: {CONTENT_TYPE}")), "{}", answer.head);
    assert!(answer.body.lines().any(|line| line == r#"sluice_downstream_streams{variant="sotw"} 1"#));
    assert!(answer.body.ends_with("# EOF\n"));
    drop(stream);
}

/// ADM-2: a web page that points its own name at this listener gets no answer, whatever the path.
#[tokio::test]
async fn adm_2_a_foreign_host_is_answered_nothing() {
    let admin = Fixture::start(vec![], false);
    for path in ["/", "/healthz", "/ready", "/metrics", "/clients", "/sources", "/resources", "/nothing"] {
        let ours = get_request(path);
        for host in ["evil.example", "evil.example:19000", "localhost.evil.example"] {
            let answer = admin.send(&ours.replace("localhost", host)).await;
            assert_eq!(answer.status, 421, "{path} {host}");
        }
    }
    assert_eq!(admin.send("GET /clients HTTP/1.0\r\n\r\n").await.status, 421);
    assert_eq!(admin.send(&get_request("/clients").replace("localhost", "[::1]:19000")).await.status, 200);
}

#[tokio::test]
async fn rel_5_each_request_reads_the_settings_in_force() {
    let admin = Fixture::start(vec![source("cp-1", SourceState::Connecting, false)], false);
    admin.readiness.advance(State::Ready);
    let named = get_request("/ready").replace("localhost", "relay.example");
    assert_eq!(admin.send(&named).await.status, 421);
    let settings = AdminSettings { hosts: vec!["relay.example".to_owned()], ..AdminSettings::default() };
    admin.settings.publish(settings.clone());
    assert_eq!(admin.send(&named).await.status, 200);
    admin.settings.publish(AdminSettings { ready_requires_upstream: true, ..settings });
    assert_eq!(admin.send(&named).await.status, 503);
}
