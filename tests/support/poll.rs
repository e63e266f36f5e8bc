//! A REST client: a task that polls, applies nothing itself, and polls on with the version from the verdict.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tonic::Status;

use super::client::Event;
use super::kind::service;
use super::proto::Node;
use super::words::{self, Answer, Ask, Item};
use super::{CDS, EDS, LDS};

/// `POST path` with a JSON body: the status and the body of the answer.
pub async fn post(address: &str, path: &str, body: &Value) -> std::io::Result<(u16, Value)> {
    let mut stream = TcpStream::connect(address).await?;
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n\
        content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Ok((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}

/// A request as Envoy sends it, in its spelling (RST-2).
pub fn request(node: Option<&Node>, version: &str, names: &[String]) -> Value {
    let node = node.map(|node| {
        json!({
            "id": node.id, "cluster": node.cluster, "user_agent_name": node.user_agent_name,
            "client_features": node.client_features,
            "extensions": [{"name": "envoy.filters.http.router", "category": "envoy.filters.http"}],
        })
    });
    json!({ "version_info": version, "node": node, "resource_names": names })
}

/// Polls for one type until the receiver is dropped. After an answer the task waits for the verdict, as a
/// client does.
pub async fn run(
    address: String,
    type_url: String,
    mut asks: mpsc::UnboundedReceiver<Ask>,
    events: mpsc::UnboundedSender<Event>,
) {
    let (_, _, collection) = service(&type_url).expect("a type with a service");
    let path = format!("/v3/discovery:{collection}");
    let mut node = None;
    let Some(mut current) = asks.recv().await else { return };
    loop {
        node = current.node.clone().or(node);
        let mut body = request(node.as_ref(), &current.version, &current.names);
        body["type_url"] = json!(type_url);
        let polled = tokio::select! {
            polled = post(&address, &path, &body) => polled,
            () = events.closed() => return,
            ask = asks.recv() => match ask {
                Some(ask) => {
                    current = ask;
                    continue;
                }
                None => return,
            },
        };
        match polled {
            Ok((200, response)) => {
                let _ = events.send(Event::Answer(answer(&type_url, &response)));
                match asks.recv().await {
                    Some(ask) => current = ask,
                    None => return,
                }
            }
            Ok((304, _)) => {}
            Ok((503, _)) | Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            Ok((code, body)) => {
                let _ = events.send(Event::End(Status::internal(format!("HTTP {code}: {body}"))));
                return;
            }
        }
    }
}

/// A response to a poll, with a nonce from the kit.
pub fn answer(type_url: &str, response: &Value) -> Answer {
    static NONCES: AtomicU64 = AtomicU64::new(0);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let item = |resource: &Value| {
        assert_eq!(resource["@type"], type_url, "SST-9");
        let name = text(&resource[if type_url == EDS { "cluster_name" } else { "name" }]);
        let body = words::body(type_url, &name, &text_of(type_url, resource));
        Item { name, version: String::new(), body: Some(body), ..Item::default() }
    };
    Answer {
        type_url: text(&response["type_url"]),
        version: text(&response["version_info"]),
        nonce: format!("poll-{}", NONCES.fetch_add(1, Ordering::Relaxed)),
        items: response["resources"].as_array().expect("resources").iter().map(item).collect(),
        control_plane: text(&response["control_plane"]["identifier"]),
        ..Answer::default()
    }
}

/// The text of a test resource, if its type has a field for a text.
fn text_of(type_url: &str, resource: &Value) -> String {
    let text = match type_url {
        CDS => resource["alt_stat_name"].as_str(),
        LDS => resource["stat_prefix"].as_str(),
        EDS => resource["named_endpoints"]
            .as_object()
            .and_then(|endpoints| endpoints.keys().next())
            .map(String::as_str),
        _ => resource["request_headers_to_remove"][0].as_str(),
    };
    text.unwrap_or_default().to_owned()
}
