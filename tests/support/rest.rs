//! More interfaces of the control plane: REST-JSON, and a directory of files.

use std::path::Path;

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::obedient::World;
use super::proto::{Any, Node};
use super::words::{self, Ask, SERVICES};

/// The type of a REST path.
pub fn type_of(path: &str) -> Option<&'static str> {
    let collection = path.strip_prefix("/v3/discovery:")?;
    SERVICES.iter().find(|service| service.3 == collection).map(|service| service.0)
}

/// A poll as received: RST-1, RST-2. Panics on a request that sluice must not send.
pub async fn read<B: http_body::Body>(request: Request<B>, type_url: &str) -> Ask
where
    B::Error: std::fmt::Debug,
{
    assert_eq!(request.method(), "POST", "RST-1");
    assert_eq!(request.headers()["content-type"], "application/json", "RST-1");
    let body = request.into_body().collect().await.expect("the whole request").to_bytes();
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    assert_eq!(text(&body["type_url"]), type_url, "RST-1");
    let node = &body["node"];
    let list = |value: &Value| value.as_array().into_iter().flatten().map(&text).collect();
    Ask {
        node: node.is_object().then(|| Node {
            id: text(&node["id"]),
            cluster: text(&node["cluster"]),
            user_agent_name: text(&node["user_agent_name"]),
            client_features: list(&node["client_features"]),
            ..Node::default()
        }),
        version: text(&body["version_info"]),
        names: list(&body["resource_names"]),
        nonce: text(&body["response_nonce"]),
        ..Ask::of(type_url)
    }
}

/// 200 with all resources, or 304 (RST-4, RST-12).
pub fn answer(world: &World, ask: &Ask) -> Response<tonic::body::Body> {
    let (version, resources) = world.poll(&ask.type_url, &ask.names);
    if version == ask.version {
        return respond(StatusCode::NOT_MODIFIED, String::new());
    }
    let resources: Vec<&Any> = resources.iter().collect();
    respond(StatusCode::OK, response(&ask.type_url, &version, &resources).to_string())
}

pub fn respond(status: StatusCode, body: String) -> Response<tonic::body::Body> {
    let mut response = Response::new(tonic::body::Body::new(http_body_util::Full::from(body)));
    *response.status_mut() = status;
    response
}

/// A `DiscoveryResponse`.
pub fn response(type_url: &str, version: &str, resources: &[&Any]) -> Value {
    let resources: Vec<Value> = resources.iter().map(|any| words::json(any)).collect();
    json!({ "version_info": version, "type_url": type_url, "resources": resources })
}

/// Writes one file per type; each is renamed into its place (FIL-1).
pub fn write(directory: &Path, world: &World) {
    for (type_url, resources) in world.all() {
        let short = type_url.rsplit('.').next().expect("a type");
        let (next, file) = (directory.join(".next"), directory.join(format!("{short}.json")));
        std::fs::write(&next, response(type_url, "", &resources).to_string()).expect("write");
        std::fs::rename(&next, &file).expect("rename");
    }
}
