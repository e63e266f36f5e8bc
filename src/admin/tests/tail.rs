//! `/tail`.

use super::events::{live, read_now};
use super::golden::compare;
use super::*;
use crate::driver::api::tail::{
    Answered, Asked, Fact, Followed, LINES_MAX, Sent, SomeNames, TAILS_MAX, Tail, TailLine, TailView,
};

/// After this, each line has been looked for.
const TOLD: Duration = Duration::from_secs(2);

impl TailView for FakeView {
    fn tail(&self, followed: Followed, type_name: Option<String>) -> Option<Tail> {
        self.tails.open(followed, type_name)
    }
}

fn asked(answered: Answered) -> Asked {
    Asked {
        type_name: CLUSTER.into(),
        answered,
        nonce: "9a-31".into(),
        version: None,
        subscribe: SomeNames::default(),
        unsubscribe: SomeNames::default(),
        presented: 0,
        is_delta: true,
    }
}

fn some_names(names: &[&str], count: usize) -> SomeNames {
    let names: Vec<_> = names.iter().map(|name| ResourceName::new(name)).collect();
    SomeNames::of(&names, count)
}

impl Fixture {
    /// A fact of the stream 71, of the node `node-71`.
    fn tell(&self, fact: impl Fn() -> Fact) {
        let line = || TailLine { at: now(), stream: 71, fact: fact() };
        self.view.tails.tell(71, "node-71", |_| true, line);
    }

    fn tell_end(&self) {
        let line = || TailLine { at: now(), stream: 71, fact: Fact::Ended(None) };
        self.view.tails.tell_end(71, "node-71", line);
    }
}

fn data(text: &str) -> Vec<Value> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn adm_15_lines_have_the_shape_of_their_golden_file() {
    let admin = Fixture::start(vec![], false);
    let mut io = live(&admin, "/tail?client=71", "").await;
    sleep(TOLD).await;
    let peer = Some(([10, 0, 0, 7], 51344).into());
    admin.tell(|| Fact::Opened { service: "ADS".to_owned(), listener: "main".into(), peer });
    let first = || Asked {
        subscribe: some_names(&["*", "<b>\u{1b}[2J"], 2),
        unsubscribe: some_names(&["old"], 1),
        presented: 3,
        nonce: "".into(),
        ..asked(Answered::Nothing)
    };
    admin.tell(|| Fact::Request(first()));
    let sotw = || Asked {
        is_delta: false,
        version: Some("1".into()),
        subscribe: some_names(&["a"], 1),
        ..asked(Answered::Ack)
    };
    admin.tell(|| Fact::Request(sotw()));
    let sent = |is_secret: bool| Sent {
        type_name: if is_secret { SECRET } else { CLUSTER }.into(),
        version: (!is_secret).then_some(Version(0xabc)),
        nonce: (!is_secret).then(|| "9a-32".into()),
        names: some_names(&["cart", "web"], 1_000),
        removed: some_names(&["gone"], 1),
        bytes: 1234,
        message: (1, if is_secret { 1 } else { 2 }),
        changes: if is_secret { Box::default() } else { [(3, 118)].into() },
    };
    admin.tell(|| Fact::Response(sent(false)));
    admin.tell(|| Fact::Response(sent(true)));
    for answered in [
        || Answered::Nack("INTERNAL: no \u{9b}".into()),
        || Answered::Stale,
        || Answered::Report("".into()),
        || Answered::Report("UNKNOWN: it is so".into()),
        || Answered::Refused("INVALID_ARGUMENT: no type".into()),
    ] {
        admin.tell(|| Fact::Request(asked(answered())));
    }
    admin.tell_end();
    sleep(TOLD).await;
    let text = read_now(&mut io).await;
    assert!(text.ends_with("event: end\ndata: {}\n"), "{text}");
    assert!(!text.contains(['\u{1b}', '<']) || text.contains("\\u001b"), "{text}");
    compare("tail", &Value::Array(data(&text)));
    assert!(!admin.view.tails.are_open(), "nobody watches any more");
}

#[tokio::test(start_paused = true)]
async fn adm_15_a_node_is_followed_over_its_streams_and_told_when_the_relay_stops() {
    let admin = Fixture::start(vec![], false);
    let mut io = live(&admin, "/tail?node=node-71&type=Cluster", "").await;
    sleep(TOLD).await;
    let text = read_now(&mut io).await;
    let begin = "event: begin\ndata: {\"node\":\"node-71\",\"streams\":[71]}\n";
    assert!(text.contains(begin), "{text}");
    let states: Vec<_> = data(&text).into_iter().filter(|line| line["kind"] == "state").collect();
    assert_eq!((states.len(), &states[0]["state"]), (1, &Value::from("SYNCED")), "of the type: {text}");
    admin.tell_end();
    sleep(TOLD).await;
    let text = read_now(&mut io).await;
    assert!(text.contains("\"kind\":\"ended\"") && !text.contains("event: "), "{text}");
    admin.tell(|| Fact::Request(asked(Answered::Ack)));
    admin.shutdown.cancel();
    let text = read_now(&mut io).await;
    assert!(text.contains("\"kind\":\"ack\""), "the last lines are told: {text}");
    assert!(text.ends_with("event: bye\ndata: {}\n"), "{text}");

    let admin = Fixture::start(vec![], false);
    let mut io = live(&admin, "/tail?node=nobody", "").await;
    sleep(TOLD).await;
    let text = read_now(&mut io).await;
    assert!(text.ends_with("data: {\"node\":\"nobody\",\"streams\":[]}\n"), "it waits for the node: {text}");
}

#[tokio::test(start_paused = true)]
async fn adm_15_a_reader_that_stalls_is_told_how_much_it_missed() {
    let admin = Fixture::start(vec![], false);
    let mut io = live(&admin, "/tail?client=71", "").await;
    sleep(TOLD).await;
    let told = 60 * LINES_MAX;
    for number in 0..told {
        admin.tell(|| Fact::Request(asked(Answered::Ack)));
        if number % LINES_MAX == 0 {
            sleep(Duration::from_secs(1)).await;
        }
    }
    let mut text = String::new();
    while !text.contains("event: gap") {
        sleep(TOLD).await;
        text.push_str(&read_now(&mut io).await);
    }
    sleep(TOLD).await;
    text.push_str(&read_now(&mut io).await);
    let all = data(&text);
    let missed: u64 = all.iter().filter_map(|line| line["left_out"].as_u64()).sum();
    let lines = all.iter().filter(|line| line["kind"] == "ack").count();
    assert_eq!(missed + lines as u64, told as u64);
    assert!(lines <= 4 * LINES_MAX, "{lines}");
}

#[tokio::test(start_paused = true)]
async fn adm_15_eight_tails_at_once_beside_everything_else() {
    let admin = Fixture::start(vec![], false);
    let mut open = Vec::new();
    for _ in 0..TAILS_MAX {
        open.push(live(&admin, "/tail?client=71", "").await);
    }
    sleep(TOLD).await;
    let ninth = admin.get("/tail?client=71").await;
    assert_eq!(ninth.status, 503);
    assert!(ninth.head.contains("retry-after: 5"), "{}", ninth.head);
    assert_eq!(admin.limit_hits(Limit::AdminStreams), "1");
    for path in ["/metrics", "/clients?limit=1", "/events"] {
        assert_eq!(admin.get(path).await.status, 200, "{path}");
    }
    open.pop();
    sleep(Duration::from_secs(30)).await;
    let text = read_now(&mut live(&admin, "/tail?client=71", "").await).await;
    assert!(text.starts_with("HTTP/1.1 200"), "the place of a reader that left: {text}");
}

#[tokio::test]
async fn adm_15_a_wrong_tail_is_refused_with_a_reason() {
    let admin = Fixture::start(vec![], false);
    for (query, status, text) in [
        ("", 400, "client=NUMBER"),
        ("?client=1&node=a", 400, "either"),
        ("?client=x", 400, "number of a stream"),
        ("?client=-1", 400, "number of a stream"),
        ("?node=", 400, "empty"),
        ("?client=1&type=Clustr", 400, "Cluster"),
        ("?client=1&typ=Cluster", 400, "nearest: type"),
        ("?client=99999", 404, "no client \"99999\""),
    ] {
        let answer = admin.get(&format!("/tail{query}")).await;
        assert_eq!(answer.status, status, "{query}");
        assert!(answer.body.contains(text), "{query}: {}", answer.body);
    }
    let long = "x".repeat(4097);
    assert!([400, 414, 431].contains(&admin.get(&format!("/tail?node={long}")).await.status));
    assert!(!admin.view.tails.are_open());
}
