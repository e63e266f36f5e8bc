//! Events as the operator reads them: the list, and the live stream.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::control_plane::eventually;
use crate::support::{CDS, Client, ControlPlane, DEADLINE, Proxy, Relay, SDS, Setup, Variant};

/// A live stream of the admin listener.
struct Live(Lines<BufReader<TcpStream>>);

impl Live {
    async fn open(relay: &Relay, target: &str) -> Live {
        let mut stream = TcpStream::connect(&relay.admin).await.unwrap();
        let head = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut live = Live(BufReader::new(stream).lines());
        let status = live.0.next_line().await.unwrap().unwrap();
        assert!(status.starts_with("HTTP/1.1 200"), "{status}");
        live
    }

    /// The lines up to one with this text.
    async fn until(&mut self, text: &str) -> Vec<String> {
        let mut lines = Vec::new();
        let read = async {
            while let Some(line) = self.0.next_line().await.unwrap() {
                let is_last = line.contains(text);
                lines.push(line);
                if is_last {
                    return;
                }
            }
            panic!("the stream ended without {text:?}");
        };
        timeout(DEADLINE, read).await.unwrap_or_else(|_| panic!("no {text:?}"));
        lines
    }
}

async fn events(relay: &Relay, query: &str) -> Vec<Value> {
    let list = relay.json(&format!("/events{query}")).await;
    list["events"].as_array().unwrap_or_else(|| panic!("a list of events: {list}")).clone()
}

/// ADM-11: a lost control plane, a rejecting client and the end of the relay are events.
#[tokio::test]
async fn what_happened_is_listed_and_told_live() {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    let proxy = Proxy::start(origin.address).await;
    let mut relay = Relay::start(Setup::of(proxy.address)).await;
    let mut live = Live::open(&relay, "/events?after=0").await;

    let mut client = Client::open(&relay.address, Variant::Delta, "<img src=x>").await;
    client.want(CDS, &["*"]);
    client.take(CDS).await;
    origin.set(CDS, "b", "1");
    let answer = client.next(CDS).await;
    client.nack(&answer, "no route to \"a\"");
    eventually("the rejection", async || !events(&relay, "?kind=nack").await.is_empty()).await;
    let nack = &events(&relay, "?kind=nack&severity=warn").await[0];
    assert_eq!(nack["node"], "<img src=x>");
    assert_eq!(nack["type"], "envoy.config.cluster.v3.Cluster");
    assert!(nack["text"].as_str().unwrap().contains("no route to \"a\""), "{nack}");
    let changes = events(&relay, "?kind=change").await;
    let change = changes.last().unwrap();
    assert_eq!((&change["change"], &change["type"]), (&nack["change"], &nack["type"]), "{change} {nack}");
    assert!(change["text"].as_str().unwrap().ends_with("added b"), "{change}");
    let name = change["change"].as_str().unwrap();
    assert_eq!(relay.get(&format!("/changes/{name}")).await.0, 200);

    let server = proxy.address.to_string();
    proxy.partition();
    proxy.reset();
    eventually("the loss", async || !events(&relay, "?kind=upstream.lost").await.is_empty()).await;
    assert_eq!(events(&relay, "?kind=upstream.lost").await[0]["server"], server);
    proxy.heal();
    eventually("the return", async || !events(&relay, "?kind=upstream.back").await.is_empty()).await;

    let told = live.until("upstream.back").await.join("\n");
    for kind in ["nack", "client", "upstream.lost"] {
        assert!(told.contains(&format!("\"kind\":\"{kind}\"")), "{kind} in {told}");
    }
    drop(client);
    relay.sigterm();
    live.until("\"kind\":\"drain\"").await;
    live.until("event: bye").await;
    assert_eq!(relay.exit().await.code(), Some(0));
}

/// ADM-12: a client's words about a Secret are in no event and no log line.
#[tokio::test]
async fn words_about_a_secret_are_withheld() {
    let origin = ControlPlane::obedient().await;
    origin.set(SDS, "key", "1");
    let relay = Relay::start(Setup::of(origin.address)).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "envoy").await;
    client.want(SDS, &["key"]);
    let answer = client.next(SDS).await;
    client.nack(&answer, "bad key CANARY-7");
    eventually("the rejection", async || !events(&relay, "?kind=nack").await.is_empty()).await;
    let nack = &events(&relay, "?kind=nack").await[0];
    assert!(nack["text"].as_str().unwrap().contains("[withheld "), "{nack}");
    assert!(nack["version"].is_null(), "{nack}");
    relay.logged("rejected an update (NACK)").await;
    assert!(!relay.log().contains("CANARY-7"), "{}", relay.log());
    assert!(!relay.get("/events").await.1.contains("CANARY-7"));
}

/// ADM-6, ADM-7: the overview counts clients by state, in numbers that metrics share.
#[tokio::test]
async fn the_overview_says_who_is_behind_and_what_to_do() {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    let proxy = Proxy::start(origin.address).await;
    let relay = Relay::start(Setup::of(proxy.address)).await;
    let mut good = Client::open(&relay.address, Variant::Delta, "good").await;
    good.want(CDS, &["*"]);
    good.take(CDS).await;
    let mut bad = Client::open(&relay.address, Variant::Delta, "bad").await;
    bad.want(CDS, &["*"]);
    let answer = bad.next(CDS).await;
    bad.nack(&answer, "no");
    eventually("one in sync, one rejecting", async || {
        let clients = relay.json("/overview").await["clients"].clone();
        [&clients["streams"], &clients["synced"], &clients["rejected"]] == [2, 1, 1]
    })
    .await;
    relay.metric_reaches("sluice_clients", &["state=\"ERROR\"", "why=\"rejected\""], 1.0).await;
    let overview = relay.json("/overview").await;
    assert_eq!(overview["config"]["generation"], 1);
    assert_eq!(overview["config"]["hash"].as_str().map(str::len), Some(8), "{overview}");
    assert_eq!(overview["attention"][0]["see"], "/clients?state=ERROR");
    assert_eq!(overview["ready"], true);
    assert!(overview["delivery"]["last_change"].is_string(), "{overview}");

    proxy.partition();
    proxy.reset();
    eventually("the lost server", async || {
        let overview = relay.json("/overview").await;
        overview["upstreams"][0]["stale_seconds"].is_f64() && overview["clients"]["stale"] == 2
    })
    .await;
}
