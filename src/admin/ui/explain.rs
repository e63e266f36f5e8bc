//! The page of the reasons for one type or name of a client: the endpoint `/clients/{id}/explain`.

use askama::Template;
use axum::extract::{Path, State};
use serde::Deserialize;

use super::filter::Filter;
use super::frame::{Ask, Fault, Frame};
use super::told::told;
use crate::admin::client;
use crate::text::encoded;

#[derive(Template)]
#[template(path = "explain.html")]
struct Page {
    frame: Frame,
    id: u64,
    node: String,
    about: String,
    /// The links of the chain: the question and its answer.
    chain: Vec<(&'static str, String)>,
    /// The resource, if one name is explained.
    resource: Option<String>,
}

/// The endpoint's answer, in the order of the chain.
#[derive(Deserialize)]
struct Explanation {
    client: Link,
    class: Class,
    list: Link,
    source: Option<Link>,
    name: Option<Link>,
    state: Link,
}

#[derive(Deserialize)]
struct Link {
    text: String,
}

#[derive(Deserialize)]
struct Class {
    text: String,
    /// The rule, as the file has it.
    rule_text: Option<String>,
}

pub(super) async fn html(ask: &Ask<'_>, id: &str) -> Result<String, Fault> {
    let filter = Filter::new(ask, format!("/ui/clients/{id}/explain"))?;
    let session = ask.session(id)?;
    let answer = client::explain(State(ask.admin.clone()), Path(id.to_owned()), filter.plain_uri()).await;
    let found: Explanation = told(answer).await?;
    let type_name = filter.value("type").unwrap_or_default();
    let short = type_name.rsplit(['.', '/']).next().unwrap_or_default();
    let name = filter.value("name");
    let about = name.map_or_else(|| short.to_owned(), |name| format!("{short}/{name}"));
    let chain = [
        ("Client", Some(found.client)),
        ("Class", Some(Link { text: found.class.text })),
        ("Rule", found.class.rule_text.map(|text| Link { text })),
        ("List", Some(found.list)),
        ("Source", found.source),
        ("Name", found.name),
        ("State", Some(found.state)),
    ];
    let page = Page {
        frame: Frame::new(ask, "clients", format!("Why {about}")),
        id: session.id,
        node: session.node_id.to_string(),
        chain: chain.into_iter().filter_map(|(label, link)| Some((label, link?.text))).collect(),
        resource: name.map(|name| format!("/ui/resource?type={}&name={}", encoded(type_name), encoded(name))),
        about,
    };
    Ok(page.render()?)
}
