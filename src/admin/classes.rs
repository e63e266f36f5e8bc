//! The node classes in use, and the class of a node without a client (ADM-9).

use std::collections::{BTreeMap, BTreeSet};

use axum::body::Body;
use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use sluice_admin_api::lists::Listed;
use sluice_admin_api::names::{ExplainedNode, ExplainedNodeType};
use sluice_admin_api::parameters::{ClassesParameters, NoParameters};
use sluice_admin_api::proofs::ClassProof;
use sluice_admin_api::sources::{ClassEvidence, NodeClass};

use super::client::class_text;
use super::item::rfc_3339;
use super::list::{self, ITEMS_PER_TURN, in_alphabetical_order};
use super::page::{Page, cursor};
use super::params::{Declined, bad_request, read, read_body};
use super::proofs;
use super::reloading::ConfigHistory;
use super::state::Admin;
use crate::driver::api::clients::NodeExplanation;
use crate::driver::api::evidence::EvidenceStatus;
use sluice_json::parse_node;
use sluice_xds::Node;

/// The most bytes of a node. Envoy's nodes have a few KiB.
const NODE_BYTES_MAX: usize = 64 << 10;

/// Whether a text of the class has the part, which is in lower case.
pub(super) fn matches(class: &NodeClass, part: &str) -> bool {
    let texts = [&class.class, &class.upstream_id].into_iter().chain(&class.rules).chain(&class.servers);
    let fields = class.fields.iter().flat_map(|(field, value)| [field, value]);
    texts.chain(fields).any(|text| text.to_lowercase().contains(part))
}

/// `GET /classes?q=&after=&limit=`.
pub(super) async fn classes(
    Shared(admin): Shared<Admin>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Declined> {
    let params: ClassesParameters = read(&uri)?;
    let part = params.q.map(|part| part.to_lowercase());
    let page = Page::read(params.after, params.limit, &headers)?;
    let after: Option<String> = page.after()?;
    Ok(list::respond(NodeClass::KEY, &page, move |writer| async move {
        admin.relay.refresh().await;
        let classes = gather(&admin).await.into_values();
        let classes = classes.filter(|class| after.as_ref().is_none_or(|after| class.class > *after));
        let render = |class: &NodeClass, out: &mut _| {
            list::append(out, part.as_deref().is_none_or(|part| matches(class, part)).then_some(class))
        };
        writer.write_all(classes, |class| cursor(&class.class), render).await
    }))
}

/// All classes by digest. There are at most as many as sources.
pub(super) async fn gather(admin: &Admin) -> BTreeMap<String, NodeClass> {
    let mut classes: BTreeMap<String, NodeClass> = BTreeMap::new();
    for source in admin.relay.sources() {
        let digest = source.class.digest.to_string();
        let class = classes.entry(digest.clone()).or_default();
        class.class = digest;
        class.fields = source.class.fields.to_vec();
        class.upstream_id = source.shown.to_string();
        class.sources.push(source.id);
        class.evidence.extend(source.evidence.as_deref().map(evidence));
        class.servers.insert(source.server.to_string());
        class.types.extend(source.types.iter().map(|status| status.type_url.message().to_owned()));
    }
    for (number, session) in admin.relay.sessions().enumerate() {
        let mut seen = BTreeSet::new();
        for status in &session.types {
            for digest in status.class.as_deref().unwrap_or_default().split(", ") {
                let Some(class) = classes.get_mut(digest) else { continue };
                class.clients += usize::from(seen.insert(digest));
                class.rules.extend(status.rules.iter().map(ToString::to_string));
            }
        }
        if number % ITEMS_PER_TURN == ITEMS_PER_TURN - 1 {
            tokio::task::yield_now().await;
        }
    }
    for proof in admin.relay.proofs().await {
        for report in &proof.report.classes {
            let Some(class) = classes.get_mut(&*report.class) else { continue };
            let shown = proofs::class_proof(report, &proof);
            // A class that several servers serve shows the worst.
            let is_worse =
                |before: &ClassProof| proofs::badness(&shown.state) > proofs::badness(&before.state);
            if class.proof.as_ref().is_none_or(is_worse) {
                class.proof = Some(shown);
            }
        }
    }
    classes
}

fn evidence(status: &EvidenceStatus) -> ClassEvidence {
    ClassEvidence {
        at: rfc_3339(status.at),
        count: status.names,
        differ: status.fields.clone(),
        members: vec![status.previous.clone(), status.next.clone()],
        names: status.first.iter().map(|name| name.as_str().to_owned()).collect(),
        r#type: status.type_url.message().to_owned(),
    }
}

/// `POST /classes/explain`: the class of the node in the body. Nothing changes; a node is too long for a
/// query.
pub(super) async fn explain(Shared(admin): Shared<Admin>, request: Request) -> Result<Response, Declined> {
    read::<NoParameters>(request.uri())?;
    let node = read_node(request.into_body()).await?;
    admin.relay.refresh().await;
    let classes = gather(&admin).await;
    let rules = admin.process.reloading.status();
    let types = admin.relay.classify_node(&node);
    let types = types.iter().map(|status| node_type(status, &classes, &rules)).collect();
    Ok(in_alphabetical_order(&ExplainedNode { node: node.id, types }))
}

async fn read_node(body: Body) -> Result<Node, Declined> {
    let bytes = read_body(body, NODE_BYTES_MAX).await?;
    parse_node(&bytes).map_err(|error| bad_request(format!("the body is not an xDS node in JSON: {error}")))
}

fn node_type(
    status: &NodeExplanation,
    classes: &BTreeMap<String, NodeClass>,
    rules: &ConfigHistory,
) -> ExplainedNodeType {
    let class = status.class.digest.as_deref().and_then(|digest| classes.get(digest));
    ExplainedNodeType {
        class: class_text(&status.class, class.map(|class| class.fields.as_slice()), rules),
        r#type: status.type_url.message().to_owned(),
        names: status.names.to_owned(),
        clients: class.map_or(0, |class| class.clients),
        sources: class.map(|class| class.sources.clone()).unwrap_or_default(),
        refused: status.refused.as_ref().map(ToString::to_string),
    }
}
