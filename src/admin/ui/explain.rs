//! The page of the reasons for one type or name of a client: the endpoint `/clients/{id}/explain`.

use askama::Template;

use super::filter::Filter;
use super::frame::{Ask, Frame, PageFault};
use crate::admin::client;
use sluice_text::encoded;

#[derive(Template)]
#[template(path = "explain.html")]
struct ExplainPage {
    frame: Frame,
    id: u64,
    node: String,
    about: String,
    /// The links of the chain: the question and its answer.
    chain: Vec<(&'static str, String)>,
    /// The resource, if one name is explained.
    resource: Option<String>,
}

pub(super) async fn html(ask: &Ask<'_>, id: &str) -> Result<String, PageFault> {
    let filter = Filter::new(ask, format!("/ui/clients/{id}/explain"))?;
    let session = ask.session(id)?;
    let explanation = client::explanation(ask.admin, id, &filter.plain_uri()).await?;
    let type_name = filter.value("type").unwrap_or_default();
    let short = type_name.rsplit(['.', '/']).next().unwrap_or_default();
    let name = filter.value("name");
    let about = name.map_or_else(|| short.to_owned(), |name| format!("{short}/{name}"));
    let chain = [
        ("Client", Some(explanation.client.text)),
        ("Class", Some(explanation.class.text)),
        ("Rule", explanation.class.decision.map(|decision| decision.rule_text)),
        ("List", Some(explanation.list.text)),
        ("Source", explanation.source.map(|source| source.text)),
        ("Name", explanation.name.map(|name| name.text)),
        ("State", Some(explanation.state.text)),
    ];
    let page = ExplainPage {
        frame: Frame::new(ask, "clients", format!("Why {about}")),
        id: session.id,
        node: session.node_id.to_string(),
        chain: chain.into_iter().filter_map(|(label, text)| Some((label, text?))).collect(),
        resource: name.map(|name| format!("/ui/resource?type={}&name={}", encoded(type_name), encoded(name))),
        about,
    };
    Ok(page.render()?)
}
