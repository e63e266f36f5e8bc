//! The page of one resource: the endpoints `/resources/{type}/{name}` and `/who`.

use std::time::Duration;

use askama::Template;
use axum::http::Uri;
use sluice_admin_api::clients::ClientRef;
use sluice_admin_api::names::ClientGroup;
use sluice_admin_api::resources::{ResourceCopies, ResourceCopy};

use super::filter::{Filter, address};
use super::frame::{Ask, Frame, PageFault};
use super::parts::{Shape, ShellCommand};
use super::text::{argument, count};
use crate::admin::content::{self, ContentQuery};
use crate::admin::who;
use sluice_text::{encoded, size, span};

/// Clients in a group on the page.
const CLIENTS_MAX: usize = 20;

#[derive(Template)]
#[template(path = "resource.html")]
struct ResourcePage {
    frame: Frame,
    type_name: String,
    name: String,
    /// Whether contents are shown.
    content: String,
    copies: Vec<CopyView>,
    watchers: [Watchers; 4],
    /// For a name that can be typed.
    commands: Vec<ShellCommand>,
}

/// The copy of a source.
struct CopyView {
    copy: ResourceCopy,
}

impl CopyView {
    /// Label, text, and the address of the page about it.
    fn facts(&self) -> Vec<(&'static str, String, Option<String>)> {
        let ResourceCopy { server, list, class, collection, facts, .. } = &self.copy;
        let facts = facts.as_ref();
        let changed = facts.and_then(|facts| Duration::try_from_secs_f64(facts.received_seconds?).ok());
        let facts = [
            ("State", facts.map(|facts| facts.state.clone()), None),
            ("Version", facts.and_then(|facts| facts.version.clone()), None),
            ("Size", facts.map(|facts| size(facts.bytes)), None),
            ("Changed", changed.map(|changed| format!("{} ago", span(changed))), None),
            ("Server", Some(format!("{server} ({list})")), Some(("sources?server", server))),
            ("Class", Some(class.clone()), Some(("classes?q", class))),
            ("Subscribed", Some(collection.clone()), None),
            ("Error", facts.and_then(|facts| facts.error.clone()), None),
        ];
        let link = |about: (&str, &String)| format!("/ui/{}={}", about.0, encoded(about.1));
        facts.into_iter().filter_map(|(label, text, about)| Some((label, text?, about.map(link)))).collect()
    }

    fn source(&self) -> u64 {
        self.copy.source
    }

    fn text(&self) -> Option<String> {
        serde_json::to_string_pretty(self.copy.resource.as_ref()?).ok()
    }
}

struct Watchers {
    look: Shape,
    label: &'static str,
    count: String,
    clients: Vec<ClientRef<'static>>,
    more: usize,
}

impl Watchers {
    fn new(look: Shape, label: &'static str, group: ClientGroup) -> Watchers {
        let look = if group.count == 0 { Shape::None } else { look };
        let more = group.count.saturating_sub(group.clients.len());
        Watchers { look, label, count: count(group.count), clients: group.clients, more }
    }
}

pub(super) async fn html(ask: &Ask<'_>) -> Result<String, PageFault> {
    let filter = Filter::new(ask, "/ui/resource")?;
    let value = |key: &str| filter.value(key).map(str::to_owned).ok_or_else(|| format!("{key} is missing"));
    let (type_name, name) = (value("type")?, value("name")?);
    let source = filter.value("source").map(|source| ("source".to_owned(), source.to_owned()));
    let uri: Uri = address("/", source.as_slice()).parse().unwrap_or_default();
    let query = ContentQuery::parse(&uri)?;
    let about = content::copies(ask.admin, &type_name, name.clone(), &query).await?;
    let pairs = [("type", type_name), ("name", name.clone()), ("limit", CLIENTS_MAX.to_string())];
    let pairs = pairs.map(|(key, value)| (key.to_owned(), value));
    let uri = address("/", &pairs).parse().unwrap_or_default();
    let who = who::clients(ask.admin, &uri, ask.headers).await?;
    let page = ResourcePage {
        commands: commands(&about),
        frame: Frame::new(ask, "resources", name),
        type_name: about.r#type,
        name: about.name,
        content: about.content,
        copies: about.copies.into_iter().map(|copy| CopyView { copy }).collect(),
        watchers: [
            Watchers::new(Shape::Good, "have it", who.has),
            Watchers::new(Shape::Late, "lack it", who.lacks),
            Watchers::new(Shape::Bad, "reject it", who.rejected),
            Watchers::new(Shape::None, "do not ask for it", who.not_subscribed),
        ],
    };
    Ok(page.render()?)
}

fn commands(about: &ResourceCopies) -> Vec<ShellCommand> {
    let short = about.r#type.rsplit('.').next().unwrap_or_default();
    let (one, name) = (argument(&format!("{short}/{}", about.name)), argument(&about.name));
    let texts = [
        one.map(|one| format!("sluice who {one} -l")),
        name.map(|name| format!("sluice versions {short} {name}")),
    ];
    texts.into_iter().flatten().map(ShellCommand).collect()
}
