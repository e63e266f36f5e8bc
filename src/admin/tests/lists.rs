//! Lists and their filters.

use super::*;

pub(super) fn resource(type_url: &TypeUrl, n: usize) -> ResourceStatus {
    ResourceStatus {
        source: 0,
        type_url: type_url.clone(),
        name: ResourceName::from(format!("r{n}")),
        collection: "wildcard",
        version: Some(Version(0xabc)),
        bytes: 4711,
        received_at: Some(SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_000_000_123)),
        error: None,
        expires_in: None,
        state: if n == 0 { ClientStatus::Nacked } else { ClientStatus::Acked },
        server: "cp-1".into(),
        class: "c0ffee".into(),
    }
}

#[tokio::test]
async fn clients_are_filtered() {
    let admin = Fixture::start(vec![], false);
    let cases = [
        ("?limit=all", SESSIONS, false),
        ("", 1_000, true),
        ("?limit=3", 3, true),
        ("?node=node-42", 1, false),
        ("?node=node-42&state=ERROR", 0, false),
        ("?state=ERROR", SESSIONS / 100, false),
        ("?type=Cluster&state=SYNCED&limit=all", SESSIONS - SESSIONS / 100, false),
        ("?type=Listener", 0, false),
    ];
    for (query, count, truncated) in cases {
        let list = admin.get(&format!("/clients{query}")).await.json();
        assert_eq!(list["clients"].as_array().unwrap().len(), count, "{query}");
        assert_eq!(list["count"], count, "{query}");
        assert_eq!(list["truncated"], truncated, "{query}");
    }
    let list = admin.get("/clients?node=node-100&type=Cluster").await.json();
    let client = &list["clients"][0];
    assert_eq!(client["variant"], "delta");
    assert_eq!(client["service"], "ADS");
    assert_eq!(client["peer"], "127.0.0.1:4000");
    assert_eq!(client["identity"], "unix user 7");
    let types = client["types"].as_array().unwrap();
    assert_eq!(types.len(), 1);
    assert_eq!(types[0]["state"], "ERROR");
    assert_eq!(types[0]["version_sent"], Version(0xabc).to_string());
    assert_eq!(types[0]["unacked_seconds"], 3.0);
    assert_eq!(types[0]["waits"], serde_json::json!({"name": "owed", "server": "cp-2", "seconds": 2.0}));
    assert_eq!(types[0]["held"], serde_json::json!({"why": "order", "what": "type-before", "seconds": 4.0}));
    assert_eq!(types[0]["nack"]["detail"], "sniffed-detail");
    assert_eq!(types[0]["nack"]["version"], Version(0xbad).to_string());
}

#[tokio::test]
async fn resources_and_sources_are_filtered() {
    let down = SourceState::Backoff { failures: 3, delay: Duration::from_secs(4) };
    let admin = Fixture::start(
        vec![source("cp-1", down, true), source("cp-2", SourceState::Connected, false)],
        false,
    );
    let cases = [
        ("/resources", "resources", 10),
        ("/resources?type=Cluster", "resources", 5),
        ("/resources?name=r3", "resources", 2),
        ("/resources?state=NACKED", "resources", 1),
        ("/resources?type=Cluster&state=ACKED&limit=2", "resources", 2),
        ("/sources", "sources", 2),
        ("/sources?state=backoff", "sources", 1),
        ("/sources?server=cp-2&type=Secret", "sources", 1),
        ("/sources?type=Listener", "sources", 0),
    ];
    for (target, name, count) in cases {
        let list = admin.get(target).await.json();
        assert_eq!(list[name].as_array().unwrap().len(), count, "{target}");
    }
    let list = admin.get("/resources?type=Cluster&name=r0").await.json();
    let resource = &list["resources"][0];
    assert_eq!((&resource["state"], &resource["bytes"]), (&Value::from("NACKED"), &Value::from(4711)));
    assert_eq!(resource["received_at"], "2026-11-18T11:06:40.123Z");
    let list = admin.get("/resources?type=Cluster&name=r1").await.json();
    let resource = &list["resources"][0];
    assert_eq!(resource["state"], "ACKED", "by the relay");
    assert_eq!(resource["rejecting_clients"], SESSIONS / 100);
    assert_eq!(resource["rejected"], "sniffed-detail");
    let list = admin.get("/sources?server=cp-1").await.json();
    let source = &list["sources"][0];
    assert_eq!(source["last_error"], "UNAVAILABLE: gone");
    assert_eq!((&source["failures"], &source["backoff_seconds"]), (&Value::from(3), &Value::from(4.0)));
    assert_eq!(source["class_fields"][0][1], "edge");
}

#[tokio::test]
async fn a_secret_shows_only_its_name() {
    let admin = Fixture::start(vec![source("cp-1", SourceState::Connected, false)], false);
    let list = admin.get("/resources?type=Secret&name=r0").await.json();
    assert_eq!(list["resources"], serde_json::json!([{ "type": SECRET, "name": "r0" }]));
    for target in ["/resources?type=Secret", "/clients?node=node-100&type=Secret", "/sources?type=Secret"] {
        let body = admin.get(target).await.body;
        assert!(body.contains(SECRET), "{body}");
        for hidden in ["abc", "bad", "4711", "sniffed", "version", "bytes"] {
            assert!(!body.contains(hidden), "{hidden} in {body}");
        }
    }
}

#[tokio::test]
async fn an_invalid_query_is_refused_with_the_allowed_values() {
    let admin = Fixture::start(vec![], false);
    let cases = [
        ("/clients?nod=x", "unknown query key \"nod\"; nearest: node; allowed: node, q, type, state, why, "),
        ("/clients?state=SYNCD", "unknown state \"SYNCD\"; nearest: SYNCED; allowed: SYNCED, NOT_SENT, "),
        (
            "/clients?why=held%3Aorder1",
            "unknown why \"held:order1\"; nearest: held:order; allowed: rejected, ",
        ),
        ("/clients?limit=-1", "limit is \"-1\"; allowed: a whole number from 1 up to 1000, or all"),
        ("/clients?limit=1001", "limit is \"1001\"; allowed: a whole number from 1 up to 1000, or all"),
        ("/clients?after=x", "after is \"x\"; allowed: `next` of a page of the same list"),
        ("/clients?sort=behind&limit=all", "limit=all goes by id"),
        (
            "/clients?behind_for=1w",
            "behind_for is \"1w\"; allowed: seconds, or a number with ms, s, m, h or d",
        ),
        ("/clients?node=a&node=b", "duplicate query key \"node\""),
        ("/clients/1?limit=3", "limit goes with names=1"),
        ("/sources?state=up", "unknown state \"up\"; allowed: connecting, connected, backoff, unanswered, "),
        ("/resources?node=x", "unknown query key \"node\"; allowed: type, name, state, after, "),
        ("/resources?state=", "unknown state \"\"; allowed: REQUESTED, DOES_NOT_EXIST, ACKED, NACKED, "),
    ];
    for (target, reason) in cases {
        let answer = admin.get(target).await;
        assert_eq!(answer.status, 400, "{target}");
        assert!(answer.body.starts_with(reason), "{target}: {}", answer.body);
    }
}

#[tokio::test]
async fn a_type_that_does_not_exist_is_no_empty_list() {
    let admin = Fixture::start(vec![], false);
    for list in ["/clients", "/sources", "/resources"] {
        let answer = admin.get(&format!("{list}?type=Clusterr&limit=1")).await;
        assert_eq!(answer.status, 400, "{list}");
        assert!(answer.body.contains("\"Clusterr\"") && answer.body.contains("Cluster"), "{}", answer.body);
        assert_eq!(admin.get(&format!("{list}?type=Cluster&limit=1")).await.status, 200, "{list}");
    }
}
