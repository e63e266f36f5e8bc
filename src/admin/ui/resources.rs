//! The page of the cached resources: the endpoint `/resources`.

use askama::Template;

use super::filter::Filter;
use super::frame::{Ask, Fault, Frame};
use super::parts::{Classes, Mark};
use super::text::{age, version};
use crate::admin::list::ITEMS_PER_TURN;
use crate::admin::{places, query, types};
use crate::driver::api::status::{ClientStatus, ResourceStatus};
use crate::text::{encoded, size, span};

#[derive(Template)]
#[template(path = "resources.html")]
struct Page {
    frame: Frame,
    filter: Filter,
    rows: Vec<Row>,
    next: Option<String>,
}

struct Row {
    key: String,
    name: String,
    link: String,
    type_name: String,
    /// `None` for Secrets: of those only the name is shown.
    content: Option<Content>,
}

struct Content {
    state: Mark,
    version: String,
    size: String,
    changed: String,
    server: String,
    class: Classes,
    error: Option<String>,
    expires: Option<String>,
}

pub(super) async fn html(ask: &Ask<'_>) -> Result<String, Fault> {
    let filter = Filter::new(ask, "/ui/resources")?;
    let (wanted, page) = query::resources(&filter.uri(), ask.headers)?;
    types::check(ask.admin, wanted.type_name.as_deref()).await?;
    let after = places::read(&page)?;
    let (mut rows, mut last, mut next) = (Vec::new(), None, None);
    for (number, found) in ask.admin.relay.resources_after(&wanted, after).enumerate() {
        // A filter by state would tell the state of a Secret.
        if wanted.matches(&found) && !(found.type_url.is_secret() && wanted.state.is_some()) {
            if rows.len() == page.limit {
                next = last.as_ref().map(|last| filter.next(&places::write(last), rows.len()));
                break;
            }
            rows.push(row(&found, ask));
            last = Some(found);
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
    Ok(Page { frame: Frame::new(ask, "resources", "Resources"), filter, rows, next }.render()?)
}

fn row(found: &ResourceStatus, ask: &Ask<'_>) -> Row {
    let content = (!found.type_url.is_secret()).then(|| Content {
        state: Mark::of_resource(found.state),
        version: found.version.map(version).unwrap_or_default(),
        size: if found.version.is_some() { size(found.bytes) } else { String::new() },
        changed: found.received_at.map(|at| age(at, ask.now)).unwrap_or_default(),
        server: found.server.to_string(),
        class: Classes::of(&found.class),
        error: found.error.as_ref().map(ToString::to_string),
        expires: found.expires_in.map(span),
    });
    Row {
        key: places::write(found),
        name: found.name.as_str().to_owned(),
        link: format!(
            "/ui/resource?type={}&name={}",
            encoded(found.type_url.short()),
            encoded(found.name.as_str())
        ),
        type_name: found.type_url.short().to_owned(),
        content,
    }
}
