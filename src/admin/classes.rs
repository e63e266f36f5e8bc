//! The node classes in use, and the class of a node without a client (ADM-9).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};

use super::client::class_text;
use super::item::rfc_3339;
use super::list::{self, ITEMS_PER_TURN};
use super::page::{Page, cursor};
use super::params::{Params, bad_request};
use super::reloading::ConfigHistory;
use super::state::Admin;
use crate::driver::api::clients::NodeExplanation;
use crate::driver::api::evidence::EvidenceStatus;
use crate::driver::api::status::SourceStatus;
use crate::wire::json::parse_node;
use crate::xds::{Node, ResourceName};

/// The most bytes of a node. Envoy's nodes have a few KiB.
const NODE_BYTES_MAX: usize = 64 << 10;

/// A tool on the same host or network sends 64 KiB at once.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// A class in use.
#[derive(Debug, Default, Serialize)]
pub(super) struct Class {
    pub class: String,
    /// The deciding rules of `node_classes`.
    pub rules: BTreeSet<String>,
    /// The splitting parts of the node, without secrets.
    pub fields: Vec<(String, String)>,
    upstream_id: String,
    /// The number of streams with a type of the class.
    pub clients: usize,
    types: BTreeSet<String>,
    sources: Vec<u64>,
    servers: BTreeSet<String>,
    /// Other answers for other members, the latest of each source.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Value>,
}

impl Class {
    pub fn matches(&self, part: &str) -> bool {
        let texts = [&self.class, &self.upstream_id].into_iter().chain(&self.rules).chain(&self.servers);
        let fields = self.fields.iter().flat_map(|(field, value)| [field, value]);
        texts.chain(fields).any(|text| text.to_lowercase().contains(part))
    }
}

/// `GET /classes?q=&after=&limit=`.
pub(super) async fn classes(
    Shared(admin): Shared<Admin>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Response> {
    let read = || {
        let mut params = Params::parse(&uri, &["q", "after", "limit"])?;
        let part = params.take("q").map(|part| part.to_lowercase());
        let page = Page::read(&mut params, &headers)?;
        let after: Option<String> = page.after()?;
        Ok((part, page, after))
    };
    let (part, page, after) = read().map_err(bad_request)?;
    Ok(list::respond("classes", &page, move |writer| async move {
        admin.relay.refresh().await;
        let found = gather(&admin).await.into_values();
        let found = found.filter(|of| after.as_ref().is_none_or(|after| of.class > *after));
        let render = |of: &Class, out: &mut _| {
            list::append(out, part.as_deref().is_none_or(|part| of.matches(part)).then_some(of))
        };
        writer.write_all(found, |of| cursor(&of.class), render).await
    }))
}

/// All classes by digest. There are at most as many as sources.
pub(super) async fn gather(admin: &Admin) -> BTreeMap<String, Class> {
    let mut classes: BTreeMap<String, Class> = BTreeMap::new();
    for source in admin.relay.sources() {
        let SourceStatus { id, ref class, ref server, ref shown, ref evidence, .. } = *source;
        let of = classes.entry(class.digest.to_string()).or_default();
        of.class = class.digest.to_string();
        of.fields = class.fields.to_vec();
        of.upstream_id = shown.to_string();
        of.sources.push(id);
        of.evidence.extend(evidence.as_deref().map(evidence_item));
        of.servers.insert(server.to_string());
        of.types.extend(source.types.iter().map(|of| of.type_url.message().to_owned()));
    }
    for (number, session) in admin.relay.sessions().enumerate() {
        let mut seen = BTreeSet::new();
        for (of, digest) in session.types.iter().flat_map(|of| {
            let digests = of.class.as_deref().unwrap_or_default().split(", ");
            digests.map(move |digest| (of, digest))
        }) {
            let Some(class) = classes.get_mut(digest) else { continue };
            class.clients += usize::from(seen.insert(digest));
            class.rules.extend(of.rules.iter().map(ToString::to_string));
        }
        if number % ITEMS_PER_TURN == ITEMS_PER_TURN - 1 {
            tokio::task::yield_now().await;
        }
    }
    classes
}

fn evidence_item(of: &EvidenceStatus) -> Value {
    let first: Vec<&str> = of.first.iter().map(ResourceName::as_str).collect();
    json!({
        "at": rfc_3339(of.at),
        "type": of.type_url.message(),
        "count": of.names,
        "names": first,
        "members": [of.former, of.next],
        "differ": of.fields,
    })
}

/// `POST /classes/explain`: the class of the node in the body. Nothing changes; a node is too long for a query.
pub(super) async fn explain(Shared(admin): Shared<Admin>, request: Request) -> Result<Response, Response> {
    Params::parse(request.uri(), &[]).map_err(bad_request)?;
    let node = read_node(request.into_body()).await?;
    admin.relay.refresh().await;
    let classes = gather(&admin).await;
    let found: Vec<_> = admin.relay.classify_node(&node);
    let rules = admin.reloading.status();
    let types: Vec<_> = found.iter().map(|of| item(of, &classes, &rules)).collect();
    Ok(Json(json!({ "node": node.id, "types": types })).into_response())
}

async fn read_node(body: Body) -> Result<Node, Response> {
    let bytes = tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, NODE_BYTES_MAX)).await;
    let bytes =
        bytes.map_err(|_| (StatusCode::REQUEST_TIMEOUT, "the body took too long\n").into_response())?;
    let text = format!("the body is longer than {NODE_BYTES_MAX} bytes\n");
    let bytes = bytes.map_err(|_| (StatusCode::PAYLOAD_TOO_LARGE, text).into_response())?;
    parse_node(&bytes).map_err(|error| bad_request(format!("the body is not an xDS node in JSON: {error}")))
}

fn item(of: &NodeExplanation, classes: &BTreeMap<String, Class>, rules: &ConfigHistory) -> Value {
    let known = of.class.digest.as_deref().and_then(|digest| classes.get(digest));
    let mut item = class_text(&of.class, known.map(|known| known.fields.as_slice()), rules);
    if let Value::Object(item) = &mut item {
        item.insert("type".to_owned(), of.type_url.message().into());
        item.insert("names".to_owned(), of.names.into());
        item.insert("clients".to_owned(), known.map_or(0, |known| known.clients).into());
        item.insert("sources".to_owned(), json!(known.map_or(&[][..], |known| &known.sources)));
        if let Some(refused) = &of.refused {
            item.insert("refused".to_owned(), refused.to_string().into());
        }
    }
    item
}
