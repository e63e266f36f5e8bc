//! The page of the node classes, and of the clients for whose class there was no room.

use std::collections::BTreeMap;

use askama::Template;

use super::filter::{Filter, ROWS_MAX};
use super::frame::{Ask, Fault, Frame};
use super::parts::Mark;
use super::text::{age, count};
use crate::admin::params::Params;
use crate::driver::api::status::{RefusalStatus, SourceStatus};

#[derive(Template)]
#[template(path = "classes.html")]
struct Page {
    frame: Frame,
    filter: Filter,
    classes: Vec<Class>,
    /// Classes beyond the shown ones.
    more: usize,
    refused: Vec<Refused>,
}

#[derive(Default)]
struct Class {
    digest: String,
    fields: Vec<(String, String)>,
    /// Per source: its server and its state.
    sources: Vec<(String, Mark)>,
    present: usize,
}

struct Refused {
    stream: u64,
    node: String,
    cluster: String,
    peer: String,
    type_name: String,
    limit: &'static str,
    times: String,
    age: String,
}

pub(super) fn html(ask: &Ask<'_>) -> Result<String, Fault> {
    let filter = Filter::new(ask, "/ui/classes")?;
    let mut params = Params::parse(&filter.uri(), &["q", "limit"])?;
    let part = params.take("q").map(|part| part.to_lowercase());
    let mut classes: BTreeMap<String, Class> = BTreeMap::new();
    for source in ask.admin.relay.sources() {
        if source.stream.is_none() && part.as_deref().is_none_or(|part| has_part(&source, part)) {
            let class = classes.entry(source.class.digest.to_string()).or_default();
            class.digest = source.class.digest.to_string();
            class.fields = source.class.fields.to_vec();
            class.sources.push((source.server.to_string(), Mark::of_source(source.state)));
            class.present += source.types.iter().map(|of| of.present).sum::<usize>();
        }
    }
    let more = classes.len().saturating_sub(ROWS_MAX);
    let page = Page {
        frame: Frame::new(ask, "classes", "Node classes"),
        filter: filter.field("q", "Class, field or value", Vec::new()),
        classes: classes.into_values().take(ROWS_MAX).collect(),
        more,
        refused: ask.admin.relay.refusals().iter().take(ROWS_MAX).map(|of| refused(of, ask)).collect(),
    };
    Ok(page.render()?)
}

fn has_part(source: &SourceStatus, part: &str) -> bool {
    let fields = source.class.fields.iter().flat_map(|(key, value)| [key.as_str(), value.as_str()]);
    fields.chain([&*source.class.digest]).any(|text| text.to_lowercase().contains(part))
}

fn refused(of: &RefusalStatus, ask: &Ask<'_>) -> Refused {
    Refused {
        stream: of.stream,
        node: of.node_id.clone(),
        cluster: of.node_cluster.clone(),
        peer: of.peer.map(|peer| peer.to_string()).unwrap_or_default(),
        type_name: of.type_url.short().to_owned(),
        limit: of.limit,
        times: count(of.count),
        age: age(of.last, ask.now),
    }
}
