//! The page of one resource: the endpoints `/resources/{type}/{name}` and `/who`.

use askama::Template;
use axum::extract::{Path, State};
use axum::http::Uri;
use serde::Deserialize;
use serde_json::Value;

use super::filter::{Filter, address};
use super::frame::{Ask, Fault, Frame};
use super::parts::{Command, Look};
use super::text::{argument, count};
use super::told::told;
use crate::admin::{content, who};
use crate::text::{encoded, size, span};

/// Clients in a group on the page.
const CLIENTS_MAX: usize = 20;

#[derive(Template)]
#[template(path = "resource.html")]
struct Page {
    frame: Frame,
    about: Content,
    watchers: [Watchers; 4],
    /// For a name that can be typed.
    commands: Vec<Command>,
}

/// The answer of `/resources/{type}/{name}`.
#[derive(Deserialize)]
struct Content {
    r#type: String,
    name: String,
    /// Whether contents are shown.
    content: String,
    copies: Vec<Copy>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Copy {
    source: u64,
    list: String,
    server: String,
    class: String,
    collection: String,
    state: Option<String>,
    version: Option<String>,
    bytes: Option<usize>,
    received_seconds: Option<f64>,
    error: Option<String>,
    resource: Option<Value>,
}

impl Copy {
    /// Label, text, and the address of the page about it.
    fn facts(&self) -> Vec<(&'static str, String, Option<String>)> {
        let changed =
            self.received_seconds.and_then(|seconds| std::time::Duration::try_from_secs_f64(seconds).ok());
        let facts = [
            ("State", self.state.clone(), None),
            ("Version", self.version.clone(), None),
            ("Size", self.bytes.map(size), None),
            ("Changed", changed.map(|changed| format!("{} ago", span(changed))), None),
            (
                "Server",
                Some(format!("{} ({})", self.server, self.list)),
                Some(("sources?server", &self.server)),
            ),
            ("Class", Some(self.class.clone()), Some(("classes?q", &self.class))),
            ("Subscribed", Some(self.collection.clone()), None),
            ("Error", self.error.clone(), None),
        ];
        let link = |(page, value): (&str, &String)| format!("/ui/{page}={}", encoded(value));
        facts.into_iter().filter_map(|(label, text, about)| Some((label, text?, about.map(link)))).collect()
    }

    fn text(&self) -> Option<String> {
        serde_json::to_string_pretty(self.resource.as_ref()?).ok()
    }
}

/// The answer of `/who`.
#[derive(Deserialize)]
struct Who {
    has: Group,
    lacks: Group,
    rejected: Group,
    not_subscribed: Group,
}

#[derive(Deserialize)]
struct Group {
    count: usize,
    clients: Vec<Client>,
}

#[derive(Deserialize)]
struct Client {
    id: u64,
    node: String,
}

struct Watchers {
    look: Look,
    label: &'static str,
    count: String,
    clients: Vec<Client>,
    more: usize,
}

impl Watchers {
    fn new(look: Look, label: &'static str, group: Group) -> Watchers {
        let look = if group.count == 0 { Look::None } else { look };
        let more = group.count.saturating_sub(group.clients.len());
        Watchers { look, label, count: count(group.count), clients: group.clients, more }
    }
}

pub(super) async fn html(ask: &Ask<'_>) -> Result<String, Fault> {
    let filter = Filter::new(ask, "/ui/resource")?;
    let of = |key: &str| filter.value(key).map(str::to_owned).ok_or_else(|| format!("{key} is missing"));
    let (type_name, name) = (of("type")?, of("name")?);
    let source = filter.value("source").map(|source| ("source".to_owned(), source.to_owned()));
    let uri: Uri = address("/", source.as_slice()).parse().unwrap_or_default();
    let path = Path((type_name.clone(), name.clone()));
    let about: Content = told(content::resource(State(ask.admin.clone()), path, uri).await).await?;
    let pairs = [("type", type_name.clone()), ("name", name.clone()), ("limit", CLIENTS_MAX.to_string())];
    let pairs = pairs.map(|(key, value)| (key.to_owned(), value));
    let uri = address("/", &pairs).parse().unwrap_or_default();
    let who: Who = told(who::who(State(ask.admin.clone()), uri, ask.headers.clone()).await).await?;
    let page = Page {
        commands: commands(&about),
        frame: Frame::new(ask, "resources", name),
        about,
        watchers: [
            Watchers::new(Look::Good, "have it", who.has),
            Watchers::new(Look::Late, "lack it", who.lacks),
            Watchers::new(Look::Bad, "reject it", who.rejected),
            Watchers::new(Look::None, "do not ask for it", who.not_subscribed),
        ],
    };
    Ok(page.render()?)
}

fn commands(about: &Content) -> Vec<Command> {
    let short = about.r#type.rsplit('.').next().unwrap_or_default();
    let (one, name) = (argument(&format!("{short}/{}", about.name)), argument(&about.name));
    let texts = [
        one.map(|one| format!("sluice who {one} -l")),
        name.map(|name| format!("sluice versions {short} {name}")),
    ];
    texts.into_iter().flatten().map(Command).collect()
}
