//! Faulty responses: FU12 to FU16, FU20 to FU22, FU24. The control plane is scripted; markers prove that the
//! stream is alive.

use std::time::Duration;

use tokio::time::Instant;

use crate::site::quick;
use crate::support::client::Event;
use crate::support::control_plane::Recorded;
use crate::support::proto::Any;
use crate::support::{Answer, CDS, Client, ControlPlane, EDS, Item, LDS, Relay, Variant, words};

struct Scripted {
    origin: ControlPlane,
    relay: Relay,
    client: Client,
    /// The relay's last request for endpoints.
    asked: Recorded,
}

impl Scripted {
    /// A delta client subscribes to endpoints `a` and `b`, and the relay has requested both.
    async fn new(upstream: Variant) -> Scripted {
        let origin = ControlPlane::scripted().await;
        let relay = Relay::start(quick(origin.address).upstream(upstream)).await;
        let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
        client.want(EDS, &["a", "b"]);
        let asked = origin.expect(EDS).await;
        Scripted { origin, relay, client, asked }
    }

    fn item(name: &str, text: &str) -> Item {
        Item::new(EDS, name, &format!("v-{text}"), text)
    }

    fn answer(&self, version: &str, items: Vec<Item>) {
        self.origin.answer(&self.asked, version, items, &[]);
    }

    async fn acked(&self) -> Recorded {
        self.origin.expect_that(EDS, |ask| !ask.nonce.is_empty() && ask.error.is_none()).await
    }

    /// The text of the relay's NACK; the log has the text, too.
    async fn nacked(&self) -> String {
        let nack = self.origin.expect_that(EDS, |ask| ask.error.is_some()).await;
        let label = format!("server=\"{}\"", self.origin.address);
        self.relay.metric_reaches("sluice_upstream_nacks_total", &[&label], 1.0).await;
        self.relay.warned(1).await;
        assert!(self.relay.log_lines("WARN")[0].contains("rejected (NACK)"));
        nack.ask.error.unwrap().message
    }

    async fn text_of(&mut self, name: &str) -> String {
        self.client.take(EDS).await.get(name).text()
    }

    /// Asserts that the stream continues, and the source is not stale.
    async fn lives_on(mut self) {
        self.client.quiet().await;
        self.relay.is_fresh(&self.origin.address.to_string()).await;
        assert_eq!(self.origin.opened(), 1, "the stream was kept");
    }
}

/// Bytes that are no protobuf.
fn garbage(type_url: &str) -> Any {
    Any { type_url: type_url.to_owned(), value: vec![0xff; 8] }
}

/// FU12, RLY-37: a resource without a readable name is rejected; its neighbours are used, and cached
/// resources are kept.
#[tokio::test]
async fn fu_12_a_name_that_cannot_be_found() {
    for upstream in Variant::BOTH {
        let mut site = Scripted::new(upstream).await;
        site.answer("1", vec![Scripted::item("a", "1"), Scripted::item("b", "1")]);
        site.client.settle(EDS, &[("a", "1"), ("b", "1")]).await;
        site.acked().await;
        let bad = Item { body: Some(garbage(EDS)), ..Item::default() };
        site.answer("2", vec![Scripted::item("a", "2"), bad]);
        assert_eq!(site.text_of("a").await, "2");
        site.nacked().await;
        assert_eq!(site.client.holds(EDS)["b"], "1");
        site.lives_on().await;
    }
}

/// FU12: an omission proves nothing in a full-state response with an element without an identity.
#[tokio::test]
async fn fu_12_no_deletion_beside_a_fault() {
    let origin = ControlPlane::scripted().await;
    let relay = Relay::start(quick(origin.address).upstream(Variant::Sotw)).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["*"]);
    let asked = origin.expect(CDS).await;
    let items = ["a", "b"].map(|name| Item::new(CDS, name, "", "1"));
    origin.answer(&asked, "1", items.to_vec(), &[]);
    client.settle(CDS, &[("a", "1"), ("b", "1")]).await;
    let bad = Item { body: Some(garbage(CDS)), ..Item::default() };
    origin.answer(&asked, "2", vec![Item::new(CDS, "a", "", "2"), bad], &[]);
    client.settle(CDS, &[("a", "2"), ("b", "1")]).await;
    origin.expect_that(CDS, |ask| ask.error.is_some()).await;
    client.quiet().await;
    drop(relay);
}

/// FU13: a resource of another type than its response's type.
#[tokio::test]
async fn fu_13_another_type() {
    for upstream in Variant::BOTH {
        let mut site = Scripted::new(upstream).await;
        let wrong = Item { body: Some(words::body(CDS, "b", "1")), ..Scripted::item("b", "1") };
        site.answer("1", vec![Scripted::item("a", "1"), wrong]);
        assert_eq!(site.text_of("a").await, "1");
        let words = site.nacked().await;
        assert!(words.contains("Cluster"), "{words}");
        site.lives_on().await;
    }
}

/// FU13: a response of a type without subscribers is ignored.
#[tokio::test]
async fn fu_13_a_type_never_asked_for() {
    for upstream in Variant::BOTH {
        let mut site = Scripted::new(upstream).await;
        let items = vec![Item::new(LDS, "l", "1", "1")];
        let answer = Answer { type_url: LDS.to_owned(), version: "1".to_owned(), items, ..Answer::default() };
        site.origin.answer_raw(site.asked.stream, answer);
        site.answer("1", vec![Scripted::item("a", "1")]);
        assert_eq!(site.text_of("a").await, "1");
        assert!(!site.relay.get("/resources").await.1.contains("Listener"));
        site.lives_on().await;
    }
}

/// FU14: a duplicate name makes the whole response void.
#[tokio::test]
async fn fu_14_a_name_twice() {
    for upstream in Variant::BOTH {
        let mut site = Scripted::new(upstream).await;
        site.answer("1", vec![Scripted::item("a", "1"), Scripted::item("b", "1"), Scripted::item("b", "2")]);
        let words = site.nacked().await;
        assert!(words.contains('b'), "{words}");
        site.client.quiet().await;
        site.answer("2", vec![Scripted::item("a", "3"), Scripted::item("b", "3")]);
        site.client.settle(EDS, &[("a", "3"), ("b", "3")]).await;
        site.lives_on().await;
    }
}

/// FU15: resources without subscribers are ACKed, and neither kept nor passed on.
#[tokio::test]
async fn fu_15_unrequested_resources() {
    for upstream in Variant::BOTH {
        let mut site = Scripted::new(upstream).await;
        site.answer("1", vec![Scripted::item("a", "1"), Scripted::item("nobodys", "1")]);
        assert_eq!(site.client.take(EDS).await.names(), ["a"]);
        site.acked().await;
        assert!(!site.relay.get("/resources").await.1.contains("nobodys"));
        assert_eq!(site.relay.log_lines("WARN"), [""; 0]);
        site.lives_on().await;
    }
}

/// FU16: unknown fields and extensions pass byte for byte.
#[tokio::test]
async fn fu_16_unknown_fields() {
    for upstream in Variant::BOTH {
        let mut site = Scripted::new(upstream).await;
        let mut body = words::body(EDS, "a", "1");
        // Field 4000, a message with an `Any` of an unknown extension; field 4001, a number.
        let extension = b"\x0a\x1atype.googleapis.com/no.Such\x12\x02hi";
        body.value.extend_from_slice(&[0x82, 0xfa, 0x01, extension.len() as u8]);
        body.value.extend_from_slice(extension);
        body.value.extend_from_slice(&[0x88, 0xfa, 0x01, 0x2a]);
        site.answer("1", vec![Item { body: Some(body.clone()), ..Scripted::item("a", "1") }]);
        let answer = site.client.take(EDS).await;
        assert_eq!(answer.get("a").body, Some(body));
        site.acked().await;
        site.lives_on().await;
    }
}

/// FU20, WIR-2: other bytes under the same version are a change; FU21: the last response is the newest,
/// whatever its version. Both are counted.
#[tokio::test]
async fn fu_20_fu_21_versions_prove_nothing() {
    for upstream in Variant::BOTH {
        let mut site = Scripted::new(upstream).await;
        let item = |version: &str, text: &str| vec![Item::new(EDS, "a", version, text)];
        for (version, text) in [("5", "first"), ("5", "second"), ("4", "third"), ("5", "fourth")] {
            site.answer(version, item(version, text));
            assert_eq!(site.text_of("a").await, text);
        }
        // The reverse: equal bytes under another version are no change (RLY-36).
        site.answer("6", item("6", "fourth"));
        // Versions without an order: none is lower.
        for (version, text) in [("b7", "fifth"), ("a7", "sixth"), ("", "seventh"), ("", "eighth")] {
            site.answer(version, item(version, text));
            assert_eq!(site.text_of("a").await, text);
        }
        let label = format!("server=\"{}\"", site.origin.address);
        for kind in ["same_version_other_bytes", "went_backwards"] {
            let labels = [&label, "type=\"ClusterLoadAssignment\"", &format!("kind=\"{kind}\"")];
            site.relay.metric_reaches("sluice_upstream_version_anomalies_total", &labels, 1.0).await;
            assert!(
                site.relay.metric("sluice_upstream_version_anomalies_total", &labels).await < 2.0,
                "{kind}"
            );
        }
        assert_eq!(site.relay.log_lines("WARN"), [""; 0]);
        site.lives_on().await;
    }
}

/// I14: after a client got a change, `/sources` shows the change.
#[tokio::test]
async fn i_14_sources_show_a_change_that_was_served() {
    let mut site = Scripted::new(Variant::Delta).await;
    let server = site.origin.address.to_string();
    let mut last = 0;
    for round in 1..6 {
        let text = "x".repeat(100 * round);
        site.answer(&round.to_string(), vec![Item::new(EDS, "a", &round.to_string(), &text)]);
        assert_eq!(site.text_of("a").await, text);
        let source = site.relay.sources(&server).await.remove(0);
        let types = source["types"].as_array().unwrap();
        let bytes = types.iter().find(|of| of["type"].as_str().unwrap().ends_with("ClusterLoadAssignment"));
        let bytes = bytes.unwrap()["bytes"].as_u64().unwrap();
        assert!(bytes >= last + 100, "round {round}: {bytes} after {last}");
        last = bytes;
    }
}

/// FU22: a reused or empty nonce: the ACK repeats the nonce as received.
#[tokio::test]
async fn fu_22_nonces_reused_and_empty() {
    for upstream in Variant::BOTH {
        let mut site = Scripted::new(upstream).await;
        for (text, nonce) in [("1", "n"), ("2", "n"), ("3", "n")] {
            let answer = Answer {
                type_url: EDS.to_owned(),
                version: text.to_owned(),
                nonce: nonce.to_owned(),
                items: vec![Scripted::item("a", text)],
                ..Answer::default()
            };
            site.origin.answer_raw(site.asked.stream, answer);
            assert_eq!(site.text_of("a").await, text);
            let acked = site.origin.expect_that(EDS, |ask| ask.nonce == nonce).await;
            assert!(acked.ask.error.is_none(), "{acked:?}");
        }
        let answer = Answer {
            type_url: EDS.to_owned(),
            version: "4".to_owned(),
            items: vec![Scripted::item("a", "4")],
            ..Answer::default()
        };
        site.origin.answer_without_nonce(site.asked.stream, answer);
        assert_eq!(site.text_of("a").await, "4");
        site.client.want(EDS, &["a", "b", "c"]);
        let asks = |recorded: &crate::support::Ask| {
            recorded.names.iter().chain(&recorded.subscribe).any(|name| name == "c")
        };
        site.origin.expect_that(EDS, asks).await;
        site.lives_on().await;
    }
}

/// FU24: a removal of an unknown name has no effect; a name both removed and present is a contradiction.
#[tokio::test]
async fn fu_24_removals_that_make_no_sense() {
    let mut site = Scripted::new(Variant::Delta).await;
    site.answer("1", vec![Scripted::item("a", "1"), Scripted::item("b", "1")]);
    site.client.settle(EDS, &[("a", "1"), ("b", "1")]).await;
    site.acked().await;
    site.origin.answer(&site.asked, "2", vec![], &["nobodys"]);
    site.acked().await;
    site.client.quiet().await;
    site.origin.answer(&site.asked, "3", vec![Scripted::item("a", "2")], &["a"]);
    site.nacked().await;
    site.client.quiet().await;
    assert_eq!(site.client.holds(EDS).len(), 2);
    site.lives_on().await;
}

/// FU12: a hostile mixture leaves the process intact.
#[tokio::test]
async fn fu_12_empty_and_huge_names() {
    let mut site = Scripted::new(Variant::Delta).await;
    let huge = "x".repeat(1 << 20);
    site.answer("1", vec![Scripted::item("a", "1"), Scripted::item("", "1"), Scripted::item(&huge, "1")]);
    match site.client.event().await {
        Event::Answer(answer) => assert_eq!(answer.names(), ["a"]),
        end => panic!("{end:?}"),
    }
    site.nacked().await;
}

/// ACK-8, ADR 67: a control plane that answers each ACK, or each NACK, with the same content is answered ever more
/// slowly, and told of once. News is answered at once all the same.
#[tokio::test]
async fn ack_8_a_server_that_answers_each_answer() {
    const METRIC: &str = "sluice_upstream_answers_delayed_total";
    let twice = || vec![Scripted::item("a", "1"), Scripted::item("a", "1")];
    let usual = || vec![Scripted::item("a", "1"), Scripted::item("b", "1")];
    for (upstream, items) in [(Variant::Delta, usual as fn() -> Vec<Item>), (Variant::Sotw, twice)] {
        let mut site = Scripted::new(upstream).await;
        let (end, mut answers) = (Instant::now() + Duration::from_secs(4), 0);
        loop {
            answers += 1;
            site.answer(&answers.to_string(), items());
            let next = site.origin.expect_that(EDS, |ask| !ask.nonce.is_empty());
            if tokio::time::timeout_at(end, next).await.is_err() {
                break;
            }
        }
        assert!((20..50).contains(&answers), "{answers} answers in 4 s");
        site.relay.metric_reaches(METRIC, &[r#"type="ClusterLoadAssignment""#], 5.0).await;
        let told = site.relay.warnings("again and again");
        assert_eq!(told.len(), 1, "{told:#?}");
        let sent = Instant::now();
        site.answer("news", vec![Scripted::item("a", "2"), Scripted::item("b", "2")]);
        site.client.settle(EDS, &[("a", "2"), ("b", "2")]).await;
        site.acked().await;
        assert!(sent.elapsed() < Duration::from_millis(400), "{:?}", sent.elapsed());
        site.lives_on().await;
    }
}
