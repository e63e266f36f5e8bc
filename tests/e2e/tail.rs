//! Tails of single clients, by the admin listener and by the command.

use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::relay::BINARY;
use crate::support::{CDS, Client, ControlPlane, DEADLINE, Relay, SDS, Setup, Variant};

/// The messages of a tail.
struct Tail(Lines<BufReader<TcpStream>>);

impl Tail {
    async fn open(relay: &Relay, query: &str) -> Tail {
        let mut stream = TcpStream::connect(&relay.admin).await.unwrap();
        let head = format!("GET /tail?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut tail = Tail(BufReader::new(stream).lines());
        let status = tail.line().await;
        assert!(status.starts_with("HTTP/1.1 200"), "{status}");
        tail.until("\"streams\"").await;
        tail
    }

    async fn line(&mut self) -> String {
        timeout(DEADLINE, self.0.next_line()).await.unwrap().unwrap().expect("the tail goes on")
    }

    /// The lines up to one with this text.
    async fn until(&mut self, text: &str) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line: &String| !line.contains(text)) {
            lines.push(self.line().await);
        }
        lines
    }

    /// The next line of this kind.
    async fn next(&mut self, kind: &str) -> Value {
        let lines = self.until(&format!("\"kind\":\"{kind}\"")).await;
        serde_json::from_str(lines.last().unwrap().strip_prefix("data: ").unwrap()).unwrap()
    }
}

/// ADM-15: a tail of a node shows each request and response, states, the end of a stream, and the next stream.
#[tokio::test]
async fn a_tail_shows_one_client_and_waits_for_its_return() {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "web", "1");
    let mut relay = Relay::start(Setup::of(origin.address)).await;
    let node = "evil\u{1b}[2J<img src=x>";
    let mut tail = Tail::open(&relay, "node=evil%1B%5B2J%3Cimg%20src%3Dx%3E&type=Cluster").await;
    let _other = {
        let mut other = Client::open(&relay.address, Variant::Delta, "other").await;
        other.want(CDS, &["*"]);
        other.take(CDS).await;
        other
    };
    let mut client = Client::open(&relay.address, Variant::Delta, node).await;
    client.want(CDS, &["*"]);
    let opened = tail.next("opened").await;
    assert_eq!((&opened["service"], opened["stream"].is_u64()), (&Value::from("ADS"), true), "{opened}");
    assert_eq!(tail.next("request").await["subscribe_count"], 1);
    let answer = client.next(CDS).await;
    let sent = tail.next("response").await;
    assert_eq!(
        (&sent["names"], &sent["names_count"]),
        (&Value::from(vec!["web"]), &Value::from(1)),
        "{sent}"
    );
    client.ack(&answer);
    assert_eq!(tail.next("ack").await["nonce"], sent["nonce"]);

    origin.set(CDS, "cart", "1");
    let answer = client.next(CDS).await;
    let sent = tail.next("response").await;
    assert!(sent["changes"][0].as_str().unwrap().starts_with("c-"), "{sent}");
    client.nack(&answer, "no such cluster");
    let nack = tail.next("nack").await;
    assert_eq!((&nack["nonce"], &nack["stream"]), (&sent["nonce"], &opened["stream"]));
    assert!(nack["detail"].as_str().unwrap().contains("no such cluster"), "{nack}");
    let state = tail.next("state").await;
    assert_eq!((&state["state"], &state["why"]), (&Value::from("ERROR"), &Value::from("rejected")));

    drop(client);
    assert_eq!(tail.next("ended").await["stream"], opened["stream"]);
    let mut client = Client::open(&relay.address, Variant::Sotw, node).await;
    client.want(CDS, &[]);
    let again = tail.next("opened").await;
    assert_ne!(again["stream"], opened["stream"]);
    client.take(CDS).await;
    let ack = tail.next("ack").await;
    assert_eq!((ack["names_count"].as_u64(), ack["stream"].clone()), (Some(0), again["stream"].clone()));
    assert!(ack["version"].is_string(), "{ack}");

    let mut one = Tail::open(&relay, &format!("client={}", again["stream"])).await;
    client.half_close();
    one.until("event: end").await;
    relay.sigterm();
    tail.until("event: bye").await;
    assert_eq!(relay.exit().await.code(), Some(0));
}

/// ADM-12: nothing of a Secret but its name and size.
#[tokio::test]
async fn a_tail_shows_no_content_and_nothing_of_a_secret() {
    let origin = ControlPlane::obedient().await;
    origin.set(SDS, "key", "CANARY-1");
    let relay = Relay::start(Setup::of(origin.address)).await;
    let mut tail = Tail::open(&relay, "node=envoy").await;
    let mut client = Client::open(&relay.address, Variant::Delta, "envoy").await;
    client.want(SDS, &["key"]);
    let answer = client.next(SDS).await;
    client.nack(&answer, "bad key CANARY-2");
    let lines = tail.until("\"kind\":\"nack\"").await.join("\n");
    assert!(lines.contains("\"names\":[\"key\"]") && lines.contains("[withheld "), "{lines}");
    assert!(!lines.contains("CANARY") && !lines.contains("\"version\""), "{lines}");
}

/// ADM-14: the ninth tail is refused, and so is one from a page of another site.
#[tokio::test]
async fn nine_tails_are_too_many() {
    let origin = ControlPlane::obedient().await;
    let relay = Relay::start(Setup::of(origin.address)).await;
    let mut open = Vec::new();
    for _ in 0..8 {
        open.push(Tail::open(&relay, "node=nobody").await);
    }
    let (status, text) = relay.get("/tail?node=nobody").await;
    assert_eq!((status, text.as_str()), (503, "8 tails are open\n"));
    assert_eq!(relay.get("/metrics").await.0, 200);
    assert_eq!(relay.get("/tail?client=12345").await.0, 503);
    drop(open.pop());
    crate::support::control_plane::eventually("the place of a tail that ended", async || {
        relay.get("/tail?client=12345").await.0 == 404
    })
    .await;
}

/// CMD-3: the command escapes the words of peers, and ends with the stream.
#[tokio::test]
async fn the_command_prints_lines_until_the_stream_ends() {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "web", "1");
    let relay = Relay::start(Setup::of(origin.address)).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "evil\u{1b}[2J").await;
    client.want(CDS, &["*"]);
    client.take(CDS).await;
    let id = relay.json("/clients").await["clients"][0]["id"].to_string();
    let mut command = tokio::process::Command::new(BINARY);
    command.args(["tail", &id]).env("SLUICE_ADMIN", &relay.admin).stdout(Stdio::piped()).kill_on_drop(true);
    let mut command = command.spawn().unwrap();
    let mut lines = BufReader::new(command.stdout.take().unwrap()).lines();
    let mut next = async || timeout(DEADLINE, lines.next_line()).await.unwrap().unwrap();
    let first = next().await.unwrap();
    assert!(first.contains(" == Cluster  now SYNCED"), "{first}");
    origin.set(CDS, "cart", "1");
    let answer = client.next(CDS).await;
    client.nack(&answer, "no\u{1b}[2J\u{202e}");
    let mut all = Vec::new();
    while let Some(line) = next().await {
        if line.contains("NACK") {
            client.half_close();
        }
        all.push(line);
    }
    let all = all.join("\n");
    assert!(all.contains(" -> Cluster  1 name (cart)  ") && all.contains("  change c-"), "{all}");
    assert!(all.contains("no\\u{1b}[2J\\u{202e}") && !all.contains('\u{1b}'), "{all}");
    assert!(all.lines().last().unwrap().contains(&format!("** stream {id} ended: OK")), "{all}");
    assert_eq!(command.wait().await.unwrap().code(), Some(0));
}
