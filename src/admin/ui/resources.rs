//! The page of the cached resources: the endpoint `/resources`.

use askama::Template;

use super::filter::Filter;
use super::frame::{Ask, Frame, PageFault};
use super::parts::{Classes, Mark};
use super::text::{age, version};
use crate::admin::list::ITEMS_PER_TURN;
use crate::admin::page::{resource_cursor, resource_place};
use crate::admin::{query, types};
use crate::driver::api::status::{ClientStatus, ResourceStatus};
use sluice_text::{encoded, size, span};

#[derive(Template)]
#[template(path = "resources.html")]
struct ResourcesPage {
    frame: Frame,
    filter: Filter,
    rows: Vec<ResourceRow>,
    next: Option<String>,
}

struct ResourceRow {
    key: String,
    name: String,
    link: String,
    type_name: String,
    /// `None` for Secrets: of those only the name is shown.
    content: Option<ShownContent>,
}

struct ShownContent {
    state: Mark,
    version: String,
    size: String,
    changed: String,
    server: String,
    class: Classes,
    error: Option<String>,
    expires: Option<String>,
}

pub(super) async fn html(ask: &Ask<'_>) -> Result<String, PageFault> {
    let filter = Filter::new(ask, "/ui/resources")?;
    let (filtered, page) = query::resources(&filter.uri(), ask.headers)?;
    types::check(ask.admin, filtered.type_name.as_deref()).await?;
    let after = resource_place(&page)?;
    let (mut rows, mut last, mut next) = (Vec::new(), None, None);
    for (number, resource) in ask.admin.relay.resources_after(&filtered, after).enumerate() {
        // A filter by state would tell the state of a Secret.
        if filtered.matches(&resource) && !(resource.type_url.is_secret() && filtered.state.is_some()) {
            if rows.len() == page.limit {
                next = last.as_ref().map(|last| filter.next(&resource_cursor(last), rows.len()));
                break;
            }
            rows.push(row(&resource, ask));
            last = Some(resource);
        }
        if number % ITEMS_PER_TURN == ITEMS_PER_TURN - 1 {
            tokio::task::yield_now().await;
        }
    }
    let states = ClientStatus::ALL.map(|state| state.name().to_owned()).to_vec();
    let filter = filter
        .field("name", "Name", Vec::new())
        .field("type", "Type", ask.type_names())
        .field("state", "State", states);
    Ok(ResourcesPage { frame: Frame::new(ask, "resources", "Resources"), filter, rows, next }.render()?)
}

fn row(resource: &ResourceStatus, ask: &Ask<'_>) -> ResourceRow {
    let content = (!resource.type_url.is_secret()).then(|| ShownContent {
        state: Mark::of_resource(resource.state),
        version: resource.version.map(version).unwrap_or_default(),
        size: if resource.version.is_some() { size(resource.bytes) } else { String::new() },
        changed: resource.received_at.map(|at| age(at, ask.now)).unwrap_or_default(),
        server: resource.server.to_string(),
        class: Classes::of(&resource.class),
        error: resource.error.as_ref().map(ToString::to_string),
        expires: resource.expires_in.map(span),
    });
    ResourceRow {
        key: resource_cursor(resource),
        name: resource.name.as_str().to_owned(),
        link: format!(
            "/ui/resource?type={}&name={}",
            encoded(resource.type_url.short()),
            encoded(resource.name.as_str())
        ),
        type_name: resource.type_url.short().to_owned(),
        content,
    }
}
