//! The page of the node classes, and of the clients for whose class there was no room.

use std::collections::BTreeMap;

use askama::Template;
use sluice_admin_api::parameters::ClassesPageParameters;
use sluice_admin_api::proofs::{ClassSplit, Divergence};
use sluice_admin_api::sources::NodeClass;

use super::filter::{Filter, ROWS_MAX};
use super::frame::{Ask, Frame, PageFault};
use super::parts::Mark;
use super::text::{age, count};
use crate::admin::classes;
use crate::admin::params::read;
use crate::admin::proofs;
use crate::admin::splits;
use crate::driver::api::status::RefusalStatus;
use sluice_text::encoded;

#[derive(Template)]
#[template(path = "classes.html")]
struct ClassesPage {
    frame: Frame,
    filter: Filter,
    classes: Vec<Class>,
    /// Classes beyond the shown ones.
    more: usize,
    divergences: Vec<DivergenceRow>,
    splits: Vec<ClassSplit>,
    refused: Vec<RefusedRow>,
}

#[derive(Default)]
struct Class {
    digest: String,
    /// The deciding rules of `node_classes`.
    rules: Vec<String>,
    fields: Vec<(String, String)>,
    clients: String,
    /// Per source: its server, the address of its page, and its state.
    sources: Vec<(String, String, Mark)>,
    present: usize,
    /// The word, and what is proved; `None` without `proof`.
    proof: Option<(Mark, String)>,
}

/// A resource of which the server tells some clients otherwise than their class.
struct DivergenceRow {
    name: String,
    type_name: String,
    class: String,
    paths: Vec<String>,
    explained_by: Vec<String>,
    clients: String,
    since: String,
}

struct RefusedRow {
    stream: u64,
    node: String,
    cluster: String,
    peer: String,
    type_name: String,
    limit: &'static str,
    times: String,
    age: String,
}

pub(super) async fn html(ask: &Ask<'_>) -> Result<String, PageFault> {
    let filter = Filter::new(ask, "/ui/classes")?;
    let ClassesPageParameters { q, limit: _ } = read(&filter.uri())?;
    let part = q.map(|part| part.to_lowercase());
    let all = classes::gather(ask.admin).await.into_iter();
    let matching = all.filter(|(_, class)| part.as_deref().is_none_or(|part| classes::matches(class, part)));
    let mut classes: BTreeMap<String, Class> =
        matching.map(|(digest, of_digest)| (digest.clone(), class(digest, of_digest))).collect();
    for source in ask.admin.relay.sources() {
        let Some(class) = classes.get_mut(&*source.class.digest) else { continue };
        // A private source is of one stream; the page of the client has it.
        if source.stream.is_none() {
            let server = source.server.to_string();
            let link = format!("/ui/sources?server={}", encoded(&server));
            class.sources.push((server, link, Mark::of_source(source.state)));
            class.present += source.types.iter().map(|status| status.present).sum::<usize>();
        }
    }
    classes.retain(|_, class| !class.sources.is_empty());
    let more = classes.len().saturating_sub(ROWS_MAX);
    let page = ClassesPage {
        frame: Frame::new(ask, "classes", "Node classes"),
        filter: filter.field("q", "Class, field or value", Vec::new()),
        classes: classes.into_values().take(ROWS_MAX).collect(),
        more,
        divergences: proofs::gather(ask.admin).await.into_iter().take(ROWS_MAX).map(divergence).collect(),
        splits: splits::gather(ask.admin).into_iter().take(ROWS_MAX).collect(),
        refused: ask
            .admin
            .relay
            .refusals()
            .iter()
            .take(ROWS_MAX)
            .map(|refusal| refused(refusal, ask))
            .collect(),
    };
    Ok(page.render()?)
}

fn class(digest: String, class: NodeClass) -> Class {
    let clients = count(class.clients);
    Class {
        digest,
        rules: class.rules.into_iter().collect(),
        fields: class.fields,
        proof: class.proof.map(|proof| (Mark::of_proof(&proof.state), proof.words)),
        clients,
        ..Class::default()
    }
}

fn divergence(divergence: Divergence) -> DivergenceRow {
    let type_name = divergence.r#type.rsplit('.').next().unwrap_or_default().to_owned();
    DivergenceRow {
        name: divergence.name,
        type_name,
        class: divergence.class,
        paths: divergence.paths,
        explained_by: divergence.explained_by,
        clients: count(divergence.clients),
        since: divergence.since,
    }
}

fn refused(refusal: &RefusalStatus, ask: &Ask<'_>) -> RefusedRow {
    RefusedRow {
        stream: refusal.stream,
        node: refusal.node_id.clone(),
        cluster: refusal.node_cluster.clone(),
        peer: refusal.peer.map(|peer| peer.to_string()).unwrap_or_default(),
        type_name: refusal.type_url.short().to_owned(),
        limit: refusal.limit,
        times: count(refusal.count),
        age: age(refusal.last, ask.now),
    }
}
