//! Questions about clients: differences, reasons, and the clients of one resource.

use super::*;
use crate::admin::ContentMode;
use crate::admin::turn::ANSWER_TIMEOUT;
use crate::driver::api::clients::{ClientState, ClientTypes, TypeState};
use crate::driver::api::rollouts::RolloutStatus;
use sluice_engine::Time;
use sluice_fleet::evidence::CondemnedContents;

#[tokio::test]
async fn a_difference_leads_to_what_the_client_should_have() {
    let admin = Fixture::start(vec![], false);
    let found = admin.get("/clients/100/diff?type=Cluster").await.json();
    assert_eq!(found["reads"], "apply to what it has; gives what it should have");
    let of = &found["types"][0];
    assert_eq!((&of["state"], &of["why"]), (&Value::from("ERROR"), &Value::from("rejected")));
    assert_eq!(of["added"], serde_json::json!(["c"]));
    let changed = [Version(1), Version(2)].map(|version| version.to_string());
    assert_eq!(of["changed"], serde_json::json!([{ "name": "b", "has": changed[0], "should": changed[1] }]));
    assert_eq!((&of["removed"], &of["withheld"]), (&serde_json::json!(["e"]), &serde_json::json!(["d"])));
    assert_eq!(found["differs"], true);

    let one = admin.get("/clients/100/diff?type=Cluster&name=c").await.json();
    assert_eq!((&one["types"][0]["added_count"], &one["types"][0]["changed_count"]), (&1.into(), &0.into()));
    let same = admin.get("/clients/100/diff?to=client:101").await.json();
    assert_eq!((&same["differs"], &same["types"][1]["added_count"]), (&false.into(), &0.into()));
    let secret = admin.get("/clients/100/diff?type=Secret").await.json();
    assert_eq!(secret["types"][0]["changed"], serde_json::json!([{ "name": "b" }]));

    for (target, status, text) in [
        ("/clients/100/diff?to=client:9999", 409, "c0ffee and c1a55"),
        ("/clients/100/diff?to=client:9999&any_class=1", 200, ""),
        ("/clients/100/diff?to=client:99999", 404, "no client"),
        ("/clients/100/diff?to=everybody", 400, "allowed: desired, or client:ID"),
        ("/clients/100/diff?format=pach", 400, "nearest: patch"),
        ("/clients/99999/diff", 404, "no client"),
    ] {
        let answer = admin.get(target).await;
        assert_eq!(answer.status, status, "{target}: {}", answer.body);
        assert!(answer.body.contains(text), "{target}: {}", answer.body);
    }
}

/// ADM-9: each step of the way has its reason, for tools and for people.
#[tokio::test]
async fn adm_9_a_client_is_explained_step_by_step() {
    let admin = Fixture::start(vec![source("cp-1", SourceState::Connected, false)], false);
    let found = admin.get("/clients/100/explain?type=Cluster&name=c").await.json();
    let text = |step: &str| found[step]["text"].as_str().unwrap().to_owned();
    assert_eq!(text("client"), "100 node-100 on listener main, delta ADS");
    let class = "c0ffee by node_classes[1] (default) (match names=old; split by cluster=\"edge\"); \
                 node_classes[0] fails: id is \"\\u{1b}[31m\", not envoy-*";
    assert_eq!(text("class"), class, "no text of a client controls a terminal");
    assert_eq!(found["class"]["generation"], 2);
    assert_eq!(text("list"), "xds_servers -> cp-1 (preferred)");
    assert!(text("source").contains("cp-1, connected for"), "{found}");
    assert!(text("name").starts_with("PRESENT since 2026-"), "{found}");
    assert!(text("state").ends_with("ago, nonce 7, has not answered -> STALE/unacked"), "{found}");

    assert_eq!(found["class"]["nearest"]["place"], "/etc/sluice/sluice.yaml:12:3");
    assert!(
        found["class"]["rule_text"]
            .as_str()
            .unwrap()
            .ends_with("generation 2: built in, for nodes that no rule of the file matches")
    );
    let whole = admin.get("/clients/100/explain?type=Cluster").await.json();
    assert_eq!((&whole["name"], &whole["state"]["why"]), (&Value::Null, &"rejected".into()));
    let other = admin.get("/clients/100/explain?type=Cluster&name=x").await.json();
    assert_eq!(other["name"]["subscribed"], false);
    let secret = admin.get("/clients/100/explain?type=Secret&name=b").await.body;
    for hidden in ["\"version", &Version(2).to_string(), "sniffed", "PRESENT", "received"] {
        assert!(!secret.contains(hidden), "{hidden} in {secret}");
    }
    for (target, status) in [
        ("/clients/100/explain", 400),
        ("/clients/100/explain?type=Clust", 400),
        ("/clients/99999/explain?type=Cluster", 404),
    ] {
        assert_eq!(admin.get(target).await.status, status, "{target}");
    }
}

/// The program of a client, and its last NACK: of every fourth, it names `b`.
pub(super) fn version_verdict(id: u64) -> (String, Option<NackStatus>) {
    let (detail, names) = match id % 4 {
        0 => ("b: bad", vec![ResourceName::new("b")]),
        _ => ("it is bad", Vec::new()),
    };
    let nack = NackStatus { version: None, detail: detail.into(), at: now(), names };
    let user_agent = if id < 100 { "envoy 1.38.2" } else { "grpc 1.85.0" };
    (user_agent.to_owned(), id.is_multiple_of(2).then_some(nack))
}

/// Contents in the memory of a plan. No push of the plan names them.
pub(super) fn condemned(count: u64) -> CondemnedContents {
    let mut condemned = CondemnedContents::default();
    for number in 1..=count {
        let (cluster, name) =
            (TypeUrl::of_message("envoy.config.cluster.v3.Cluster"), ResourceName::new("b"));
        // Version 2 of `b` is the oldest of them.
        let version = Version(u128::from(number) + 1);
        condemned.put((cluster, name, version), Time::from_micros(number * 1_000_000), ());
    }
    condemned
}

/// TRU-4: a walk looks at each client. Two at once would take the time of the clients' updates. The wait for
/// the other walk is no part of the deadline of the answer (ADM-14).
#[tokio::test(start_paused = true)]
async fn tru_4_one_walk_runs_at_a_time() {
    let view = FakeView { clients: 300, rollouts: rollouts::some(), ..FakeView::default() };
    let admin = Fixture::of(view, AdminSettings::default(), None);
    for target in ["/versions?type=Cluster&name=b", "/versions?type=Cluster", "/who?type=Cluster&name=b"] {
        let other = crate::admin::list::WALKS.acquire().await.unwrap();
        let mut asked = std::pin::pin!(admin.get(target));
        let early = tokio::time::timeout(ANSWER_TIMEOUT * 2, &mut asked).await;
        assert!(early.is_err(), "{target}: another walk goes on");
        drop(other);
        assert_eq!(asked.await.status, 200, "{target}");
    }
}

/// TRU-4: a push of long ago, a command, or the time before a restart: the plan's memory counts, and is
/// listed, bounded.
#[tokio::test]
async fn tru_4_a_content_in_a_plans_memory_is_condemned_without_a_push() {
    let edge = RolloutStatus { condemned: condemned(120), ..RolloutStatus::clone(&rollouts::some()[0]) };
    let view = FakeView { clients: 300, rollouts: vec![Arc::new(edge)], ..FakeView::default() };
    let admin = Fixture::of(view, AdminSettings::default(), None);
    let found = admin.get("/versions?type=Cluster&name=b").await.json();
    let versions = found["versions"].as_array().unwrap().iter();
    let is: Vec<_> = versions.map(|of| (of["version"].clone(), of["is"].to_string())).collect();
    let of = |number: u64, is: &str| (Value::from(Version(number.into()).to_string()), is.to_owned());
    assert!(is.contains(&of(1, r#"["live"]"#)) && is.contains(&of(2, r#"["live","condemned"]"#)), "{is:?}");

    let found = admin.get("/rollouts/edge").await.json();
    let contents = found["condemned"]["contents"].as_array().unwrap();
    assert_eq!((&found["condemned"]["count"], contents.len()), (&120.into(), 100));
    let latest = serde_json::json!({"type": "envoy.config.cluster.v3.Cluster", "name": "b",
        "version": Version(121).to_string(), "until": "2026-11-19T14:55:20.000Z", "served": false});
    assert_eq!(contents[0], latest, "the latest first");
}

/// TRU-4, TRU-5, TRU-6: of 200 clients a part rejects the newest version of `b`, and others like them have it
/// not.
#[tokio::test]
async fn tru_4_versions_are_told_with_their_clients_and_rejections() {
    let admin = Fixture::of_clients(300);
    let found = admin.get("/versions?type=Cluster&name=b").await.json();
    assert_eq!(
        (&found["asked_by"], &found["without"], &found["unknown"]),
        (&200.into(), &0.into(), &0.into())
    );
    let of = |number: u64| {
        let version = Version(number.into()).to_string();
        found["versions"].as_array().unwrap().iter().find(|of| of["version"] == version).unwrap().clone()
    };
    let (old, new) = (of(1), of(2));
    assert_eq!((&old["held_by"], &old["rejected"], &old["suspect"]), (&200.into(), &0.into(), &false.into()));
    assert_eq!(old["user_agents"], serde_json::json!({"envoy 1.38.2": 66, "grpc 1.85.0": 134}));
    assert_eq!((&new["held_by"], &new["rejected"], &new["suspect"]), (&0.into(), &200.into(), &true.into()));
    let by = new["rejected_by"].as_array().unwrap();
    assert_eq!(by.len(), 100, "the list is bounded");
    let named = |id: u64| {
        by.iter().find(|of| of["id"] == id).map(|of| (of["names_it"].clone(), of["message"].clone()))
    };
    assert_eq!(named(4), Some((true.into(), "b: bad".into())));
    assert_eq!(named(2), Some((false.into(), "it is bad".into())));

    // Everybody has the newest version of `a`, and nobody the newest of `c`.
    let found = admin.get("/versions?type=Cluster&name=a").await.json();
    assert_eq!(found["versions"][0]["held_by"], 200, "{found}");
    let found = admin.get("/versions?type=Cluster&name=c").await.json();
    assert_eq!((&found["without"], &found["versions"][0]["pending"]), (&200.into(), &200.into()), "{found}");
    let found = admin.get("/versions?type=Cluster&name=e").await.json();
    assert_eq!((&found["unknown"], &found["versions"]), (&200.into(), &Value::Array(Vec::new())), "{found}");
    for (target, status, text) in [
        ("/versions?type=Cluster&name=r44", 404, "nearest: r4"),
        ("/versions?type=Cluster&name=4r", 404, "nearest: r4"),
        ("/versions?name=a", 400, "type is missing"),
        ("/versions?type=Clustr&name=a", 400, "Cluster"),
        ("/versions?type=Secret&name=a", 400, "Secret"),
    ] {
        let answer = admin.get(target).await;
        assert_eq!(answer.status, status, "{target}");
        assert!(answer.body.contains(text), "{target}: {}", answer.body);
    }
}

/// Of seven clients, three accepted clusters at the first source and one each is in another state. All wait
/// for Secrets.
pub(super) fn type_states(id: u64) -> ClientTypes {
    let states = [
        ClientState::Accepted,
        ClientState::Pending,
        ClientState::Rejected,
        ClientState::Silent,
        ClientState::Unaffected,
    ];
    let state = states.get(id as usize).copied().unwrap_or(ClientState::Accepted);
    let of = |source, message, state| TypeState { source, type_url: TypeUrl::of_message(message), state };
    let [first, second] = ["cp-1", "cp-2"].map(|server| source(server, SourceState::Connected, false).id);
    let mut types = vec![of(first, CLUSTER, state), of(first, SECRET, ClientState::Pending)];
    types.extend((id == 0).then(|| of(second, CLUSTER, ClientState::Accepted)));
    ClientTypes { types }
}

/// TRU-1: a private source has one client, and is no unit.
#[tokio::test]
async fn tru_1_the_clients_of_a_type_are_counted_by_their_answer() {
    let source = |server| source(server, SourceState::Connected, false);
    let private = SourceStatus { stream: Some(1), id: 7, ..SourceStatus::clone(&source("cp-3")) };
    let sources = vec![source("cp-2"), source("cp-1"), Arc::new(private)];
    let view = FakeView { clients: 7, sources, ..FakeView::default() };
    let admin = Fixture::of(view, AdminSettings::default(), None);
    let found = admin.get("/versions?type=Cluster").await.json();
    let counts = |of: &Value| {
        let keys = ["clients", "accepted", "pending", "rejected", "silent", "unaffected", "lost"];
        keys.map(|key| of[key].as_u64().unwrap())
    };
    let units = found["units"].as_array().unwrap();
    assert_eq!(units.len(), 2, "{found}");
    assert_eq!((&units[0]["server"], counts(&units[0])), (&"cp-1".into(), [7, 3, 1, 1, 1, 1, 9]));
    assert_eq!((&units[1]["server"], counts(&units[1])), (&"cp-2".into(), [1, 1, 0, 0, 0, 0, 9]));
    let found = admin.get("/versions?type=Secret").await.json();
    assert_eq!(counts(&found["units"][0]), [7, 0, 7, 0, 0, 0, 9], "Secrets have no versions to hide here");
}

#[tokio::test]
async fn the_clients_of_a_resource_are_counted_and_listed_in_pages() {
    let admin = Fixture::of_clients(300);
    for (name, group) in [("a", "has"), ("b", "rejected"), ("c", "lacks"), ("d", "has"), ("e", "has")] {
        let found = admin.get(&format!("/who?type=Cluster&name={name}")).await.json();
        assert_eq!(found["not_subscribed"]["count"], 100, "{found}");
        assert_eq!(found[group]["count"], 200, "{name}: {found}");
    }
    let (mut ids, mut next) = (Vec::new(), String::new());
    loop {
        let page = admin.get(&format!("/who?type=Cluster&name=c&limit=70{next}")).await.json();
        assert_eq!(page["lacks"]["count"], 200, "each page has the counts of all");
        ids.extend(page["lacks"]["clients"].as_array().unwrap().iter().map(|of| of["id"].as_u64().unwrap()));
        let Some(cursor) = page["lacks"]["next"].as_str() else { break };
        next = format!("&after={cursor}");
    }
    assert_eq!(ids, (0..300).filter(|id| !u64::is_multiple_of(*id, 3)).collect::<Vec<_>>());
    let old = admin.get("/who?type=Cluster&name=b&version=00000000").await.json();
    assert_eq!(old["has"]["count"], 200, "{old}");

    let secret = admin.get("/who?type=Secret&name=a").await.json();
    assert_eq!((&secret["version"], &secret["has"]["count"]), (&Value::Null, &200.into()));
    for (target, status, text) in [
        ("/who?type=Cluster&name=r44", 404, "nearest: r4"),
        ("/who?type=Cluster&name=4r", 404, "nearest: r4"),
        ("/who?type=Cluster", 400, "name is missing"),
        ("/who?type=Cluster&name=a&version=xyz", 400, "hexadecimal"),
        ("/who?type=Secret&name=a&version=00000000", 400, "Secrets"),
    ] {
        let answer = admin.get(target).await;
        assert_eq!(answer.status, status, "{target}: {}", answer.body);
        assert!(answer.body.contains(text), "{target}: {}", answer.body);
    }
}

#[tokio::test]
async fn classes_are_listed_and_found() {
    let admin = Fixture::start(vec![source("cp-1", SourceState::Connected, false)], false);
    let class = admin.get("/classes").await.json()["classes"][0].clone();
    assert_eq!((&class["class"], &class["clients"]), (&"c0ffee".into(), &(SESSIONS - 1).into()));
    assert_eq!(class["rules"], serde_json::json!(["node_classes[1] (default)"]));
    for (query, count) in [("q=EDGE", 1), ("q=c0f", 1), ("q=node_classes%5B1", 1), ("q=cp-9", 0)] {
        assert_eq!(admin.get(&format!("/classes?{query}")).await.json()["count"], count, "{query}");
    }
}

/// The only body: bounded in length and time, and read after the check of the role.
#[tokio::test(start_paused = true)]
async fn a_node_that_need_not_exist_is_classified() {
    let admin = Fixture::start(vec![], false);
    let post = |body: &str| {
        let head =
            format!("POST /classes/explain HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}", body.len());
        format!("{head}\r\nConnection: close\r\n\r\n{body}")
    };
    let answer = admin.send(&post(r#"{"id": "a", "cluster": "web", "userAgentName": "envoy"}"#)).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let of = &answer.json()["types"][0];
    assert_eq!(
        (&of["split_by"], &of["rule"]),
        (&"cluster=\"web\"".into(), &"node_classes[1] (default)".into())
    );
    for (body, status) in [("{\"id\": 7}", 400), ("[]", 400), ("", 400)] {
        assert_eq!(admin.send(&post(body)).await.status, status, "{} bytes", body.len());
    }
    let (mut reader, mut writer) = tokio::io::split(admin.connect());
    let long = post(&format!("{{\"id\":\"{}\"}}", "x".repeat(65 << 10)));
    let mut text = String::new();
    // The listener answers before it has read everything, and closes.
    let (_, read) = tokio::join!(writer.write_all(long.as_bytes()), reader.read_to_string(&mut text));
    assert!(read.is_ok() && text.starts_with("HTTP/1.1 413 "), "{text}");
    let stalled = post("{}").replace("Content-Length: 2", "Content-Length: 9");
    assert_eq!(admin.send(&stalled).await.status, 408);
    let elsewhere = post("{}").replace("/classes/explain", "/confirm_deletions");
    assert_eq!(admin.send(&elsewhere).await.status, 413);
}

/// ADM-12: the contents of a change, where both are at hand, and without secrets; otherwise the reason.
#[tokio::test]
async fn adm_12_a_difference_has_contents_or_a_reason() {
    let admin = Fixture::start(vec![], false);
    let changed = async |admin: &Fixture, query: &str| {
        let answer = admin.get(&format!("/clients/100/diff?{query}")).await;
        assert!(!answer.body.contains("CANARY"), "{}", answer.body);
        answer.json()["types"][0]["changed"][0].clone()
    };
    let text = changed(&admin, "type=Cluster&format=text").await["text"].as_str().unwrap().to_owned();
    assert!(text.contains("\n-connect_timeout: 1s\n+connect_timeout: 2s\n"), "{text}");
    let patch = changed(&admin, "type=Cluster&format=patch").await["patch"].clone();
    assert_eq!(patch, serde_json::json!([{"op": "replace", "path": "/connect_timeout", "value": "2s"}]));
    let names = changed(&admin, "type=Cluster").await;
    assert_eq!(names.as_object().unwrap().len(), 3, "{names}");
    let secret = changed(&admin, "type=Secret&format=text").await;
    assert_eq!(secret, serde_json::json!({"name": "b", "no_content": "a Secret is never shown"}));
    assert_eq!(admin.get("/clients/100/diff?format=txt").await.status, 400);
    let page = admin.get("/ui/clients/100/diff?type=Cluster").await.body;
    assert!(page.contains("<span class=\"add\">+connect_timeout: 2s</span>"), "{page}");

    admin.settings.publish(AdminSettings { content: ContentMode::Off, ..AdminSettings::default() });
    let off = changed(&admin, "type=Cluster&format=text").await;
    assert_eq!((&off["no_content"], &off["text"]), (&"admin.content is off".into(), &Value::Null));
    let view = FakeView { clients: SESSIONS, is_old_gone: true, ..FakeView::default() };
    let admin = Fixture::of(view, AdminSettings::default(), None);
    let gone = changed(&admin, "type=Cluster&format=patch").await;
    let reason = "the content of 00000000 is gone: the relay keeps none that only a client still has";
    assert_eq!(gone["no_content"], reason);
}
