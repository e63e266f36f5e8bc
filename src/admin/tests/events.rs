//! `/events`, and live answers as such.

use super::*;
use crate::admin::live::{LIVE_MAX, SILENCE_MAX};
use crate::telemetry::events::{EVENTS_MAX, Kind, Occurrence, WINDOW};

/// A second after this, the event is settled and looked for.
const SETTLED: Duration = Duration::from_secs(3);

fn file(n: usize) -> Occurrence {
    Occurrence::warn(Kind::Reload, "cannot use a file").place(format_args!("file-{n}"))
}

fn live_request(target: &str, header: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{header}\r\n")
}

pub(super) async fn live(admin: &Fixture, target: &str, header: &str) -> DuplexStream {
    let mut io = admin.connect();
    io.write_all(live_request(target, header).as_bytes()).await.unwrap();
    io
}

/// Everything that has come until now, without the framing of HTTP.
pub(super) async fn read_now(io: &mut DuplexStream) -> String {
    let (mut text, mut buffer) = (String::new(), vec![0; 64 << 10]);
    while let Ok(read) = tokio::time::timeout(Duration::from_millis(100), io.read(&mut buffer)).await {
        let read = read.unwrap();
        if read == 0 {
            break;
        }
        text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
    }
    let is_content = |line: &&str| {
        ["id: ", "event: ", "data: ", ":"].iter().any(|field| line.starts_with(field))
            || line.starts_with("HTTP/")
    };
    text.lines().filter(is_content).map(|line| format!("{line}\n")).collect()
}

#[tokio::test(start_paused = true)]
async fn adm_1_the_shape_of_an_event_stays() {
    let admin = Fixture::start(vec![], false);
    let events = &admin.metrics.events;
    let (server, list) = ("cp-1".into(), "xds_servers".into());
    let lost = Occurrence::warn(Kind::UpstreamLost, "the upstream is unreachable");
    events.add(lost.at_server(&server, &list).of_class(&"c0ffee".into()).detail("refused"));
    let nack =
        Occurrence::warn(Kind::Nack, "clients rejected an update").of_type(&TypeUrl::of_message(CLUSTER));
    let nack =
        nack.version(Version(0xabc)).of_client(71, "<b>\u{1b}[2J", Some(([10, 0, 0, 7], 51344).into()));
    events.add(nack.at_listener(&"main".into()).change("c-3-118").detail("bad"));
    events.add(Occurrence::info(Kind::Limit, "clients or servers hit a limit").limit("name_bytes").count(12));
    events.add(file(1));
    let mut answer = admin.get("/events").await.json();
    for event in answer["events"].as_array_mut().unwrap() {
        event["at"] = "TIME".into();
        assert!(event["age_seconds"].take().as_f64().unwrap() >= 0.0);
    }
    let golden: Value = serde_json::from_str(include_str!("golden/events.json")).unwrap();
    assert_eq!(answer, golden, "{answer:#}");
}

#[tokio::test(start_paused = true)]
async fn adm_11_lists_are_filtered_and_paged() {
    let admin = Fixture::start(vec![], false);
    for n in 0..50 {
        admin.metrics.events.add(file(n));
        admin.metrics.events.add(Occurrence::info(Kind::Checkpoint, "checkpoint read").detail(n));
        sleep(WINDOW).await;
    }
    let (mut next, mut numbers) = (Some(0), Vec::new());
    while let Some(after) = next {
        let page = admin.get(&format!("/events?kind=reload&after={after}&limit=7")).await.json();
        numbers
            .extend(page["events"].as_array().unwrap().iter().map(|event| event["number"].as_u64().unwrap()));
        next = page["next"].as_u64();
    }
    assert_eq!(numbers, (0..50).map(|n| 2 * n + 1).collect::<Vec<_>>());
    assert_eq!(admin.get("/events?severity=warn").await.json()["count"], 50);
    assert_eq!(admin.get("/events?severity=error").await.json()["count"], 0);

    let cases = [
        ("kind=relaod", "nearest: reload"),
        ("severity=warning", "nearest: warn"),
        ("limit=1001", "limit is"),
        ("after=x", "after is"),
        ("node=x", "unknown query key \"node\""),
    ];
    for (query, text) in cases {
        let answer = admin.get(&format!("/events?{query}")).await;
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.body.contains(text), "{}", answer.body);
    }
}

#[tokio::test(start_paused = true)]
async fn adm_11_a_live_stream_tells_each_event_once_and_resumes() {
    let admin = Fixture::start(vec![], false);
    admin.metrics.events.add(file(0));
    let mut io = live(&admin, "/events", "").await;
    sleep(SETTLED).await;
    let text = read_now(&mut io).await;
    assert!(!text.contains("data:"), "it begins with the next event: {text}");
    for n in [1, 1, 2] {
        admin.metrics.events.add(file(n));
    }
    sleep(SETTLED).await;
    let text = read_now(&mut io).await;
    let ids: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(ids, ["2", "3"], "{text}");
    assert!(text.contains("\"count\":2"), "repetitions are told with the event: {text}");
    drop(io);

    let mut io = live(&admin, "/events?kind=reload", "Last-Event-ID: 2\r\n").await;
    sleep(SETTLED).await;
    let text = read_now(&mut io).await;
    assert!(!text.contains("id: 2\n") && text.contains("id: 3\n"), "{text}");

    let mut io = live(&admin, "/events?severity=warn", "Last-Event-ID: 900\r\n").await;
    sleep(SETTLED).await;
    let text = read_now(&mut io).await;
    assert!(
        text.contains("event: gap\ndata: {\"from\":901,\"to\":null}\nid: 1\n"),
        "after a restart: {text}"
    );

    for (target, header) in [("/events?limit=3", ""), ("/events", "Last-Event-ID: x\r\n")] {
        let mut io = live(&admin, target, header).await;
        let text = read_now(&mut io).await;
        assert!(text.starts_with("HTTP/1.1 400"), "{target} {header}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn adm_11_a_reader_that_stalls_sees_one_gap() {
    let admin = Fixture::start(vec![], false);
    let mut io = live(&admin, "/events?after=0", "").await;
    for n in 0..EVENTS_MAX + 500 {
        // More than 30 s, more than the buffers hold, and few enough of a kind for an event each.
        let event =
            if n.is_multiple_of(2) { file(n) } else { Occurrence::info(Kind::Drain, "draining").detail(n) };
        admin.metrics.events.add(event.place(n));
        sleep(Duration::from_millis(20)).await;
    }
    let mut text = String::new();
    while !text.contains(&format!("id: {}\n", admin.metrics.events.latest())) {
        sleep(SETTLED).await;
        let read = read_now(&mut io).await;
        assert!(!read.is_empty(), "the stream goes on");
        text.push_str(&read);
    }
    assert_eq!(text.matches("event: gap").count(), 1);
    let numbers: Vec<u64> = text.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect();
    assert!(numbers.is_sorted());
    let gap = text.lines().skip_while(|line| *line != "event: gap").nth(1).unwrap();
    let gap: Value = serde_json::from_str(gap.strip_prefix("data: ").unwrap()).unwrap();
    let (from, to) = (gap["from"].as_u64().unwrap(), gap["to"].as_u64().unwrap());
    let at = numbers.iter().position(|number| *number == to).unwrap();
    assert_eq!((numbers[at - 1] + 1, numbers[at + 1]), (from, to + 1), "nothing else is missing");
}

#[tokio::test(start_paused = true)]
async fn adm_14_live_streams_have_a_budget_of_their_own() {
    let admin = Fixture::start(vec![], false);
    let mut open = Vec::new();
    for _ in 0..LIVE_MAX {
        open.push(live(&admin, "/events", "").await);
    }
    sleep(SETTLED).await;
    let refused = read_now(&mut live(&admin, "/events", "").await).await;
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert_eq!(admin.limit_hits(Limit::AdminStreams), "1");
    for path in ["/metrics", "/clients?limit=1", "/events", "/healthz"] {
        assert_eq!(admin.get(path).await.status, 200, "{path}");
    }
    let is_open = |text: &str| text.lines().any(|line| line == "sluice_admin_streams 32");
    assert!(is_open(&admin.metrics.encode().unwrap()));

    // Other connections do not close live ones.
    let idle: Vec<_> = (0..CONNECTIONS_MAX).map(|_| admin.connect()).collect();
    sleep(SILENCE_MAX).await;
    drop(idle);
    let text = read_now(&mut open[0]).await;
    assert!(text.ends_with(":\n"), "a comment in the silence: {text:?}");

    open.pop();
    sleep(SILENCE_MAX * 2).await;
    let text = read_now(&mut live(&admin, "/events", "").await).await;
    assert!(text.starts_with("HTTP/1.1 200"), "the place of a reader that left: {text}");

    admin.metrics.events.add(file(7));
    admin.shutdown.cancel();
    let text = read_now(&mut open[1]).await;
    assert!(text.contains("file-7"), "the last events are told: {text}");
    assert!(text.ends_with("event: bye\ndata: {}\n"), "{text}");
    admin.server.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn crt_8_a_live_answer_ends_with_the_proof_of_its_peer() {
    let admin = Fixture::start(vec![], false);
    let (mut io, server) = duplex(64 << 10);
    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    let end = async { drop(end.await) }.boxed();
    assert!(
        admin
            .connections
            .send(Guest { io: server, peer: AdminPeer::default(), selected_http2: None, end })
            .is_ok()
    );
    io.write_all(live_request("/events", "").as_bytes()).await.unwrap();
    sleep(SETTLED).await;
    drop(ended);
    let text = read_now(&mut io).await;
    assert!(text.ends_with("event: bye\ndata: {}\n"), "{text}");
    assert_eq!(io.read(&mut [0]).await.unwrap(), 0, "the connection is closed");
}

#[tokio::test]
async fn adm_13_every_answer_keeps_to_its_own_site() {
    let admin = Fixture::start(vec![], false);
    let mut requests: Vec<_> = Endpoint::ALL.iter().map(|endpoint| get_request(endpoint.path())).collect();
    requests.extend([get_request("/none"), get_request("/events?no=1")]);
    requests.push("GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n".to_owned());
    for request in requests {
        let answer = admin.send(&request).await;
        let headers = [
            "x-content-type-options: nosniff",
            "cache-control: no-store",
            "cross-origin-resource-policy: same-origin",
        ];
        for header in headers {
            assert!(answer.head.contains(header), "{request}: {}", answer.head);
        }
        assert!(!answer.head.contains("access-control-"), "{request}: {}", answer.head);
    }
}
