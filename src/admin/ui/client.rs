//! The page of one client: per type the version that the client has and should have, and why; name by name
//! for one type.

use askama::Template;
use sluice_admin_api::parameters::ClientPageParameters;

use super::filter::{Filter, ROWS_MAX};
use super::frame::{Ask, Frame, PageFault};
use super::parts::{Classes, Mark, ShellCommand, client_argument, worst};
use super::text::{age, counted, version};
use crate::admin::item::variant_name;
use crate::admin::page::{Page as Part, cursor};
use crate::admin::params::read;
use crate::driver::api::clients::NameStatus;
use crate::driver::api::status::{SessionStatus, SessionTypeStatus, Why, names_type};
use sluice_text::{encoded, span};
use sluice_xds::{ResourceName, Version};

/// The longest node id that its heading shows whole, also in a narrow window.
const HEADING_BYTES_MAX: usize = 100;

#[derive(Template)]
#[template(path = "client.html")]
struct ClientPage {
    frame: Frame,
    id: u64,
    node: String,
    facts: Vec<(&'static str, String)>,
    state: Option<(Mark, String)>,
    types: Vec<TypeOfClient>,
    /// The type whose names are shown.
    chosen: Option<Chosen>,
    commands: Vec<ShellCommand>,
}

struct TypeOfClient {
    name: String,
    message: String,
    state: Mark,
    age: String,
    has: String,
    should: String,
    names: String,
    server: String,
    class: Classes,
    notes: Vec<String>,
    /// The client's words, and their age.
    nack: Option<(String, String)>,
}

struct Chosen {
    name: String,
    message: String,
    filter: Filter,
    rows: Vec<Name>,
    next: Option<String>,
}

struct Name {
    name: String,
    link: String,
    has: String,
    should: String,
    state: Mark,
    refused: Option<String>,
}

pub(super) fn html(ask: &Ask<'_>, id: &str) -> Result<String, PageFault> {
    let filter = Filter::new(ask, "")?;
    let ClientPageParameters { r#type: type_name, after, limit } = read(&filter.uri())?;
    let part = Part::read(after, limit, ask.headers)?;
    let session = ask.session(id)?;
    let chosen = match &type_name {
        Some(text) => Some(chosen(ask, &session, text, &part)?),
        None => None,
    };
    let all: Vec<&SessionTypeStatus> = session.types.iter().collect();
    let title = if session.node_id.is_empty() {
        format!("Client {}", session.id)
    } else {
        session.node_id.to_string()
    };
    let page = ClientPage {
        frame: Frame::new(ask, "clients", title),
        id: session.id,
        node: session.node_id.to_string(),
        facts: facts(&session, ask),
        state: worst(&all).map(|status| (Mark::of_type(status), age(status.since, ask.now))),
        types: session.types.iter().map(|status| type_of(status, ask)).collect(),
        chosen,
        commands: commands(&session),
    };
    Ok(page.render()?)
}

fn commands(session: &SessionStatus) -> Vec<ShellCommand> {
    let who = client_argument(session);
    let mut texts = vec![format!("sluice diff client {who}"), format!("sluice tail {who}")];
    // The worst type first is the one in question.
    let all: Vec<&SessionTypeStatus> = session.types.iter().collect();
    texts
        .extend(worst(&all).map(|status| format!("sluice explain client {who} {}", status.type_url.short())));
    if *who == *session.node_id {
        texts.push(format!("sluice get clients --node {who} -o json"));
    }
    texts.into_iter().map(ShellCommand).collect()
}

fn facts(session: &SessionStatus, ask: &Ask<'_>) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("Cluster", session.node_cluster.to_string()),
        ("Stream", format!("{}, {} {}", session.id, session.kind, variant_name(session.kind.variant))),
        ("Open for", age(session.opened_at, ask.now)),
        ("Listener", session.listener.to_string()),
        ("Address", session.peer.map_or_else(|| "unix socket".to_owned(), |peer| peer.to_string())),
        ("Identity", session.identity.to_string()),
    ];
    if session.node_id.len() > HEADING_BYTES_MAX {
        facts.insert(0, ("Node", session.node_id.to_string()));
    }
    facts
}

fn type_of(status: &SessionTypeStatus, ask: &Ask<'_>) -> TypeOfClient {
    let is_secret = status.type_url.is_secret();
    let shown = |held: Option<Version>| version(held.unwrap_or(Version(0)));
    let names = match (status.wildcard, status.names) {
        (true, 0) => "all".to_owned(),
        (true, names) => format!("all, and {names}"),
        (false, names) => counted(names, "name"),
    };
    TypeOfClient {
        name: status.type_url.short().to_owned(),
        message: status.type_url.message().to_owned(),
        state: Mark::of_type(status),
        age: age(status.since, ask.now),
        has: if is_secret { String::new() } else { shown(status.has) },
        should: if is_secret { String::new() } else { shown(status.should) },
        names,
        server: status.server.as_deref().unwrap_or_default().to_owned(),
        class: Classes::of(status.class.as_deref().unwrap_or_default()),
        notes: notes(status, ask),
        nack: status.nack.as_ref().map(|nack| {
            // A NACK may quote a Secret.
            let words = if is_secret { "(withheld)".to_owned() } else { nack.detail.to_string() };
            (words, age(nack.at, ask.now))
        }),
    }
}

/// The reasons for a state, as sentences.
fn notes(status: &SessionTypeStatus, ask: &Ask<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(unacked) = status.unacked {
        notes.push(format!("The last response was sent {} ago and has no answer.", span(unacked)));
    }
    if let Some(held) = &status.held {
        let what = held.what.as_deref().unwrap_or("it");
        notes.push(match held.why {
            Why::Order => {
                format!("News wait until {what} is accepted, so that no route precedes its cluster.")
            }
            Why::Withheld => format!("The removal of {what} waits until no route can refer to it."),
            Why::Name => format!("News wait for {what}, whose existence is not known yet."),
            Why::Deletion => "A mass deletion waits for an operator.".to_owned(),
            Why::Unread => "News are ready, and the client does not read.".to_owned(),
            Why::Rate => {
                format!("Requests of the client wait in the relay for {what}.")
            }
            Why::Join => {
                format!("The client waits for {what}: there is no content from before it here.")
            }
            Why::Rejected | Why::Unacked | Why::Unknown => String::new(),
        });
    }
    if let Some(waits) = &status.waits {
        let server = waits.server.as_deref().unwrap_or("the server");
        notes.push(format!(
            "{server} has not answered for {} in {}.",
            waits.name.as_str(),
            span(waits.duration)
        ));
    }
    if status.refused {
        notes.push("Refused: there is no room for the node class.".to_owned());
    }
    if let Some(refused) = &status.server_refuses {
        notes.push(format!("The server refuses the type: {}.", refused.error));
    }
    if status.fallback {
        notes.push("Served by another server than the preferred one.".to_owned());
    }
    if let Some(since) = status.stale_since {
        notes.push(format!("Unconfirmed: the server was lost {} ago.", age(since, ask.now)));
    }
    if status.restored {
        notes.push("Restored from a checkpoint, and not confirmed since.".to_owned());
    }
    notes.retain(|note| !note.is_empty());
    notes
}

fn chosen(ask: &Ask<'_>, session: &SessionStatus, text: &str, part: &Part) -> Result<Chosen, PageFault> {
    let status = session.types.iter().find(|status| names_type(text, &status.type_url));
    let status = status
        .ok_or_else(|| PageFault::not_found(format!("Client {} does not ask for {text:?}.", session.id)))?;
    let after: Option<String> = part.after()?;
    let names =
        ask.admin.relay.names(session.id, &status.type_url, after.map(|name| ResourceName::new(&name)));
    let mut names = names.into_iter().flatten();
    let limit = part.limit.min(ROWS_MAX);
    let shown: Vec<NameStatus> = names.by_ref().take(limit).collect();
    let filter = Filter::new(ask, client_path(session.id))?;
    let has_more = names.next().is_some();
    let next =
        shown.last().filter(|_| has_more).map(|last| filter.next(&cursor(&last.name.as_str()), shown.len()));
    let is_secret = status.type_url.is_secret();
    let rows = shown.iter().map(|name| row(name, status.type_url.short(), is_secret)).collect();
    let (name, message) = (status.type_url.short().to_owned(), status.type_url.message().to_owned());
    Ok(Chosen { name, message, filter, rows, next })
}

/// The path of a client's page.
fn client_path(id: u64) -> String {
    format!("/ui/clients/{id}")
}

fn row(name: &NameStatus, type_name: &str, is_secret: bool) -> Name {
    let has = name.has.map(|held| held.known().map_or_else(|| "unknown".to_owned(), version));
    let should = name.should.map(version);
    let link = format!("/ui/resource?type={}&name={}", encoded(type_name), encoded(name.name.as_str()));
    Name {
        name: name.name.as_str().to_owned(),
        link,
        has: has.filter(|_| !is_secret).unwrap_or_default(),
        should: should.filter(|_| !is_secret).unwrap_or_default(),
        state: Mark::of_name(name),
        refused: name.refused.as_ref().map(ToString::to_string),
    }
}
