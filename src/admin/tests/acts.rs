use super::super::access::{Access, ListenerReach};
use super::*;
use crate::driver::api::emptying::{AlreadyEmptying, Emptying, EmptyingPhase, EmptyingStatus};

/// A server without connections.
#[derive(Default)]
pub(super) struct FakeServer {
    /// `after` and `over` of the drain under way.
    drain: Mutex<Option<(Duration, Option<Duration>)>>,
}

impl Emptying for FakeServer {
    fn empty(&self, after: Duration, over: Option<Duration>) -> Result<(), AlreadyEmptying> {
        match self.drain.lock().replace((after, over)) {
            Some(_) => Err(AlreadyEmptying),
            None => Ok(()),
        }
    }

    fn admit(&self) -> bool {
        self.drain.lock().take().is_some()
    }

    fn announce(&self) {}

    fn status(&self) -> EmptyingStatus {
        let phase = if self.is_emptying() { EmptyingPhase::Leaving } else { EmptyingPhase::Serving };
        let (streams_before, left) = (10, Duration::from_secs(10));
        EmptyingStatus { phase, connections: 3, streams: 4, streams_before, cut: 1, left }
    }

    fn is_emptying(&self) -> bool {
        self.drain.lock().is_some()
    }
}

/// A process that can be upgraded unless its predecessor is here.
#[derive(Default)]
pub(super) struct FakeProcess {
    pub(super) predecessor: Mutex<Option<PredecessorStatus>>,
    wishes: Mutex<Vec<UpgradeWish>>,
}

pub(super) fn draining(streams: u64) -> PredecessorStatus {
    PredecessorStatus { pid: 7, version: "0.0.9".into(), streams, connections: 2, seconds_left: 41.5 }
}

impl Upgrading for FakeProcess {
    fn upgrade(&self, wish: UpgradeWish) -> BoxFuture<'static, Result<Upgraded, NotUpgraded>> {
        let predecessor = self.predecessor();
        let now = wish.now;
        let dry_run = wish.dry_run;
        self.wishes.lock().push(wish);
        async move {
            match predecessor {
                Some(_) if !now => Err(NotUpgraded::Conflict {
                    reason: "still drains".into(),
                    left: Some(Duration::from_secs(41)),
                }),
                _ => Ok(Upgraded {
                    pid: 9,
                    version: "0.2.0".into(),
                    binary: "/usr/bin/sluice".into(),
                    seconds: 0.5,
                    sources: 3,
                    predecessor: draining(4),
                    dry_run,
                }),
            }
        }
        .boxed()
    }

    fn predecessor(&self) -> Option<PredecessorStatus> {
        self.predecessor.lock().clone()
    }
}

/// HND-5: one upgrade at a time; the overview tells of the predecessor.
#[tokio::test]
async fn hnd_5_an_upgrade_waits_for_the_predecessor_unless_it_is_now() {
    let admin = Fixture::start(vec![], false);
    let tried = admin.act("POST", "/upgrade?dry_run=1").await;
    assert_eq!((tried.status, &tried.json()["dry_run"]), (200, &Value::from(true)));
    assert_eq!(admin.get("/overview").await.json()["predecessor"], Value::Null);
    *admin.process.predecessor.lock() = Some(draining(12));
    let refused = admin.act("POST", "/upgrade").await;
    assert_eq!((refused.status, &*refused.body), (409, "still drains; 41.0 s left\n"));
    let overview = admin.get("/overview").await.json();
    assert_eq!(overview["predecessor"]["streams"], 12);
    assert_eq!(overview["predecessor"]["seconds_left"], 41.5);
    let done = admin.act("POST", "/upgrade?now=1").await.json();
    assert_eq!((&done["pid"], &done["predecessor"]["streams"]), (&Value::from(9), &Value::from(4)));
    assert_eq!(admin.get("/upgrade").await.status, 405, "only POST acts");
}

/// An executable of the caller's choice would run as the user of the relay.
#[tokio::test]
async fn hnd_2_only_the_user_of_the_relay_chooses_another_executable() {
    let over_tcp = Fixture::start(vec![], false);
    assert_eq!(over_tcp.act("POST", "/upgrade?binary=/tmp/x").await.status, 403);
    let access = Access { reach: ListenerReach::Unix { owner: 7 }, auth: None };
    let admin = Fixture::with(vec![], AdminSettings { access, ..AdminSettings::default() }, None);
    for (uid, status) in [(Some(7), 200), (Some(0), 200), (Some(8), 403), (None, 403)] {
        let peer = AdminPeer { uid, ..AdminPeer::default() };
        let request = get_request("/upgrade?binary=/tmp/x").replace("GET ", "POST ");
        assert_eq!(admin.send_as(peer, &request).await.status, status, "{uid:?}");
    }
    let wishes = admin.process.wishes.lock();
    assert!(wishes.iter().all(|wish| wish.binary.as_deref() == Some("/tmp/x".as_ref())));
    assert_eq!((wishes.len(), over_tcp.process.wishes.lock().len()), (2, 0));
}

impl Fixture {
    pub(super) fn limit_hits(&self, limit: Limit) -> String {
        let text = self.metrics.encode().unwrap();
        let series = format!("sluice_limit_hits_total{{limit=\"{}\"}} ", limit.name());
        text.lines().find_map(|line| line.strip_prefix(&series)).unwrap().to_owned()
    }

    pub(super) async fn act(&self, method: &str, target: &str) -> Answer {
        self.send(&get_request(target).replace("GET ", &format!("{method} "))).await
    }
}

/// HND-9: an operator's drain takes the relay out of service, and back.
#[tokio::test]
async fn hnd_9_a_drain_begins_once_and_ends() {
    let admin = Fixture::start(vec![], false);
    assert_eq!(admin.act("POST", "/drain").await.status, 409, "the relay is starting");
    admin.readiness.advance(State::Ready);
    let dry = admin.act("POST", "/drain?over=60s&after=5s&dry_run=1").await;
    assert_eq!((dry.status, &dry.json()["dry_run"]), (200, &Value::from(true)));
    assert_eq!(
        (&dry.json()["state"], &dry.json()["seconds_left"]),
        (&Value::from("serving"), &Value::from(65.0))
    );
    assert_eq!((admin.emptying.is_emptying(), admin.get("/ready").await.status), (false, 200));

    let drain = admin.act("POST", "/drain?over=60s&after=5s").await.json();
    let expected = "{\"draining\":true,\"state\":\"leaving\",\"connections\":3,\"streams\":4,\"left\":6,\"cut\":1,\
                    \"seconds_left\":10.0}";
    assert_eq!(drain, serde_json::from_str::<Value>(expected).unwrap());
    let seconds = Duration::from_secs;
    assert_eq!(*admin.emptying.drain.lock(), Some((seconds(5), Some(seconds(60)))));
    assert_eq!(admin.get("/drain").await.json(), drain);
    let ready = admin.get("/ready").await;
    assert_eq!((ready.status, &ready.json()["state"]), (503, &Value::from("draining")));
    for again in ["/drain", "/drain?dry_run=1"] {
        let again = admin.act("POST", again).await;
        assert_eq!(again.status, 409);
        assert!(again.body.contains("draining; 10.0 s left"), "{}", again.body);
    }

    assert_eq!(admin.act("DELETE", "/drain").await.json()["state"], "serving");
    assert_eq!(admin.get("/ready").await.status, 200);
    assert_eq!(admin.act("DELETE", "/drain").await.status, 409);
    let events = admin.get("/events?kind=drain").await.json();
    let texts: Vec<_> = events["events"].as_array().unwrap().iter().map(|of| of["text"].clone()).collect();
    assert_eq!(texts, ["an operator drains the relay", "the relay is in service again"]);
}

/// Four streams at two first answers a second take two seconds.
#[tokio::test]
async fn hnd_9_a_drain_is_not_shorter_than_the_first_answers_take_elsewhere() {
    let admin = Fixture::start(vec![], false);
    admin.readiness.advance(State::Ready);
    let enough = admin.act("POST", "/drain?over=2s&dry_run=1").await.json();
    assert_eq!((&enough["seconds_left"], &enough["warning"]), (&Value::from(2.0), &Value::Null));
    let expected = "over is 1.5s; relays with limits.first_answers_per_second: 2 need 2s for 4 streams, and keep the \
                    rest waiting";
    for dry_run in [1, 0] {
        let short = admin.act("POST", &format!("/drain?over=1500ms&dry_run={dry_run}")).await.json();
        assert_eq!(short["warning"], expected);
    }
    let wished = admin.emptying.drain.lock().take();
    assert_eq!(wished, Some((Duration::ZERO, Some(Duration::from_millis(1500)))), "an operator's wish holds");
    admin.act("POST", "/drain").await;
    let chosen = admin.emptying.drain.lock().take();
    assert_eq!(chosen, Some((Duration::ZERO, Some(Duration::from_secs(10)))));
}

#[tokio::test]
async fn impossible_acts_name_their_parameter() {
    let admin = Fixture::start(vec![], false);
    admin.readiness.advance(State::Ready);
    let wrong = [
        ("POST", "/drain?over=2h", 400, "over is \"2h\""),
        ("POST", "/drain?over=60", 400, "over is \"60\""),
        ("POST", "/drain?after=-1s", 400, "after is"),
        ("POST", "/drain?dry_run=yes", 400, "unknown dry_run"),
        ("POST", "/drain?for=1s", 400, "unknown query key \"for\""),
        ("DELETE", "/drain?over=1s", 400, "unknown query key"),
        ("PUT", "/drain", 405, ""),
        ("POST", "/log?level=debgu", 400, "\"debgu\" is not LEVEL or TARGET=LEVEL"),
        ("POST", "/log?level=debug&for=2ms", 400, "for is \"2ms\""),
        ("POST", "/log?for=2m", 400, "for: needs level"),
        ("GET", "/log", 405, ""),
        ("POST", "/clients/x/end", 400, "id is \"x\""),
        ("POST", "/clients/10000/end", 404, "no stream has the number 10000"),
        ("GET", "/clients/1/end", 405, ""),
    ];
    for (method, target, status, text) in wrong {
        let answer = admin.act(method, target).await;
        assert_eq!(answer.status, status, "{method} {target}: {}", answer.body);
        assert!(answer.body.contains(text), "{method} {target}: {}", answer.body);
    }
    assert!(!admin.emptying.is_emptying() && admin.log.status().left.is_none());
}

#[tokio::test]
async fn a_stream_is_ended_by_its_number() {
    let admin = Fixture::start(vec![], false);
    let ended = admin.act("POST", "/clients/71/end").await;
    assert_eq!((ended.status, ended.body.as_str()), (200, "{\"ended\":71}"));
    assert_eq!(*admin.view.ended.lock(), [71]);
}

#[tokio::test]
async fn log_directives_are_set_for_a_time() {
    let admin = Fixture::start(vec![], false);
    let set = admin.act("POST", "/log?level=debug&for=1h").await.json();
    assert_eq!((&set["level"], &set["configured"]), (&Value::from("debug"), &Value::from("info")));
    assert!((3_590.0..=3_600.0).contains(&set["seconds_left"].as_f64().unwrap()), "{set}");
    let set = admin.act("POST", "/log?level=sluice=trace").await.json();
    assert!((590.0..=600.0).contains(&set["seconds_left"].as_f64().unwrap()), "ten minutes: {set}");
    let back = admin.act("POST", "/log").await.json();
    assert_eq!((&back["level"], &back["seconds_left"]), (&Value::from("info"), &Value::Null));
}
