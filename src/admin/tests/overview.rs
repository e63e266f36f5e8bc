//! `/overview`, and the census behind it.

use super::*;
use crate::admin::overview::{BYTES_MAX, window};

#[tokio::test]
async fn adm_1_the_shape_of_the_overview_stays() {
    let sources =
        vec![source("cp-1", SourceState::Connected, false), source("cp-2", SourceState::Connecting, true)];
    let admin = Fixture::start(sources, false);
    admin.readiness.advance(State::Ready);
    let mut answer = admin.get("/overview").await.json();
    for (object, key) in [("", "started"), ("/config", "loaded")] {
        let time = answer.pointer_mut(object).unwrap()[key].take();
        assert!(time.as_str().unwrap().ends_with('Z'), "{time}");
    }
    assert!(answer["uptime_seconds"].take().as_f64().unwrap() >= 0.0);
    assert!(answer["upstreams"][0]["stale_seconds"].take().as_f64().unwrap() >= 60.0);
    assert_eq!(answer["version"].take(), env!("CARGO_PKG_VERSION"));
    golden::compare("overview", &answer);
    assert_eq!(admin.get("/overview?node=x").await.status, 400);
}

#[tokio::test(start_paused = true)]
async fn adm_6_all_viewers_share_one_census_and_without_viewers_there_is_none() {
    let admin = Fixture::start(vec![], false);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(admin.view.pulled.load(SeqCst), 0, "nobody looks");
    for _ in 0..5 {
        assert_eq!(admin.get("/overview").await.json()["clients"]["streams"], SESSIONS);
        assert_eq!(admin.get("/metrics").await.status, 200);
    }
    assert_eq!(admin.view.pulled.load(SeqCst), SESSIONS, "one census for all of them");
    sleep(Duration::from_millis(1001)).await;
    let text = admin.get("/metrics").await.body;
    assert_eq!(admin.view.pulled.load(SeqCst), 2 * SESSIONS);
    for line in [
        "sluice_clients{state=\"ERROR\",why=\"rejected\"} 100",
        "sluice_clients{state=\"SYNCED\",why=\"none\"} 9900",
        "sluice_clients{state=\"STALE\",why=\"held:order\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}");
    }
}

/// `sluice status --check` must not answer from counts of before the question; however many ask, one count
/// serves all.
#[tokio::test(start_paused = true)]
async fn adm_6_a_count_from_now_waits_for_its_turn_and_serves_all_that_wait() {
    const SESSIONS: usize = 100;
    let admin = Fixture::of_clients(SESSIONS);
    admin.get("/overview").await;
    assert_eq!(admin.view.pulled.load(SeqCst), SESSIONS);
    admin.get("/overview").await;
    assert_eq!(admin.view.pulled.load(SeqCst), SESSIONS, "the count of before");
    let begun = tokio::time::Instant::now();
    let answers = futures_util::future::join_all((0..6).map(|_| admin.get("/overview?counted=now"))).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!(admin.view.pulled.load(SeqCst), 2 * SESSIONS, "one count more");
    assert!(begun.elapsed() <= std::time::Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(admin.get("/overview?counted=then").await.status, 400);
}

#[tokio::test]
async fn the_overview_is_small_whatever_the_fleet() {
    let many =
        |n: usize| source(&format!("{n}-{}", "x".repeat(5000)), SourceState::Connecting, n.is_multiple_of(2));
    let admin = Fixture::start((0..300).map(many).collect(), false);
    let answer = admin.get("/overview").await;
    assert!(answer.body.len() <= BYTES_MAX, "{}", answer.body.len());
    let answer = answer.json();
    assert_eq!(answer["clients"]["streams"], SESSIONS);
    assert!(answer["left_out"].as_u64().unwrap() > 250, "{answer}");
    assert!(!answer["attention"].as_array().unwrap().is_empty(), "{answer}");
    assert!(!answer["upstreams"].as_array().unwrap().is_empty(), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn adm_14_a_live_overview_comes_each_second() {
    let admin = Fixture::start(vec![], false);
    let mut io = admin.connect();
    io.write_all(b"GET /overview HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
        .await
        .unwrap();
    let mut text = String::new();
    let mut buffer = vec![0; 4096];
    let read = async {
        while text.matches("data: {\"api\":1").count() < 3 {
            let read = io.read(&mut buffer).await.unwrap();
            text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        }
    };
    tokio::time::timeout(Duration::from_millis(3500), read).await.unwrap();
    assert!(admin.view.pulled.load(SeqCst) >= 2 * SESSIONS);
}

#[test]
fn adm_10_the_window_of_a_change_ends_with_the_slowest_answer() {
    let mut change = changes::some().remove(0);
    change.last = Some(Duration::from_millis(412));
    assert_eq!(window(&change), Duration::from_secs(4), "clients owe answers");
    change.counts.waiting = 0;
    assert_eq!(window(&change), Duration::from_millis(412));
    change.last = None;
    assert_eq!(window(&change), Duration::from_secs(4), "nobody has accepted it");
}

/// A way through relays is in each answer with its age. A server that is asked directly is a metric alone.
#[tokio::test]
async fn tir_2_the_ages_of_ways_through_relays_are_shown() {
    let tier = |path: &str, age: Option<u64>| TierStatus {
        path: path.into(),
        is_through_relays: path.contains(" via "),
        age: age.map(Duration::from_secs),
    };
    let tiers = vec![
        tier("cp:15010", Some(0)),
        tier("root-1 via cp:15010", Some(4)),
        tier("root-2 via cp:15010", Some(75)),
        tier("root-3 via cp:15010", None),
    ];
    let admin = Fixture::of(FakeView { tiers, ..FakeView::default() }, AdminSettings::default(), None);
    let metrics = admin.get("/metrics").await.body;
    let ages: Vec<_> = metrics.lines().filter(|line| line.starts_with("sluice_tier_age_seconds{")).collect();
    let age = |path: &str, age: &str| format!("sluice_tier_age_seconds{{path=\"{path}\"}} {age}");
    for (path, seconds) in
        [("cp:15010", "0.0"), ("root-1 via cp:15010", "4.0"), ("root-2 via cp:15010", "75.0")]
    {
        assert!(ages.contains(&&*age(path, seconds)), "{ages:?}");
    }
    assert_eq!(ages.len(), 3, "{ages:?}");
    let paths = |answer: &Value| {
        let tiers = answer["tiers"].as_array().unwrap().iter();
        tiers
            .map(|tier| (tier["path"].as_str().unwrap().to_owned(), tier["age_seconds"].as_f64()))
            .collect::<Vec<_>>()
    };
    let [first, second, third] = [("root-1", Some(4.0)), ("root-2", Some(75.0)), ("root-3", None)]
        .map(|(root, age)| (format!("{root} via cp:15010"), age));
    assert_eq!(paths(&admin.get("/ready").await.json()), [first.clone(), second.clone(), third.clone()]);
    let overview = admin.get("/overview").await.json();
    assert_eq!(paths(&overview), [second, first, third], "the oldest first");
    let attention = &overview["attention"];
    assert_eq!(attention[0]["what"], "root-2 via cp:15010 has confirmed nothing for 75 s", "{attention}");
    assert_eq!(attention.as_array().unwrap().len(), 1, "{attention}");
    let page = admin.get("/ui/").await.body;
    assert!(page.contains("Ways through other relays") && page.contains("root-3 via cp:15010"), "{page}");
}
