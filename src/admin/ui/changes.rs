//! The pages of the published changes: the endpoints `/changes` and `/changes/{id}`.

use askama::Template;

use super::filter::Filter;
use super::frame::{Ask, Frame, PageFault};
use super::parts::{Classes, ShellCommand};
use super::plot::{DeliveryPlot, StateBar};
use super::text::{age, count, version};
use crate::admin::changes::cursor_behind;
use crate::admin::query;
use crate::admin::types;
use crate::driver::api::change_name::ChangeName;
use crate::driver::api::changes::{ChangeCounts, ChangeStatus, ChangedNames};
use sluice_text::{encoded, size, span};

/// Names of a change in a row of the list.
const NAMES_MAX: usize = 3;

#[derive(Template)]
#[template(path = "changes.html")]
struct ChangesPage {
    frame: Frame,
    filter: Filter,
    plot: DeliveryPlot,
    changes: Vec<ChangeRow>,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "change.html")]
struct OnePage {
    frame: Frame,
    row: ChangeRow,
    /// Label, text, and the address of the page about it.
    facts: Vec<Fact>,
    /// The names by kind of change, and the number of those left out.
    names: Vec<Names>,
    rejections: Vec<RejectionRow>,
    /// The next questions: their addresses.
    next: Vec<(String, String)>,
    command: ShellCommand,
}

/// A kind of change, names with their addresses, and the number of names left out.
type Names = (&'static str, Vec<(String, String)>, usize);

pub(super) struct ChangeRow {
    pub id: String,
    pub type_name: String,
    pub version: String,
    pub age: String,
    pub what: String,
    pub bar: StateBar,
    pub streams: String,
    pub p50: String,
    pub p99: String,
    pub server: String,
    pub class: Classes,
}

struct RejectionRow {
    text: String,
    count: String,
    clients: Vec<(u64, String)>,
    more: usize,
}

pub(super) async fn html(ask: &Ask<'_>) -> Result<String, PageFault> {
    let filter = Filter::new(ask, "/ui/changes")?;
    let mut filtered = query::changes(&filter.uri())?;
    types::check(ask.admin, filtered.type_name.as_deref()).await?;
    let limit = filtered.limit;
    // One more, to know whether another page follows.
    filtered.limit = limit.saturating_add(1);
    let mut changes = ask.admin.relay.changes(filtered).await;
    let has_more = changes.len() > limit;
    changes.truncate(limit);
    let next =
        changes.last().filter(|_| has_more).map(|last| filter.next(&cursor_behind(last), changes.len()));
    let page = ChangesPage {
        frame: Frame::new(ask, "changes", "Changes"),
        filter: filter.field("type", "Type", ask.type_names()),
        plot: DeliveryPlot::of(&changes),
        changes: changes.iter().map(row).collect(),
        next,
    };
    Ok(page.render()?)
}

pub(super) fn row(change: &ChangeStatus) -> ChangeRow {
    let spanned = |duration: Option<_>| duration.map(span).unwrap_or_default();
    ChangeRow {
        id: change.place.name.to_string(),
        type_name: change.type_url.short().to_owned(),
        version: if change.type_url.is_secret() { String::new() } else { version(change.version) },
        age: span(change.age),
        what: what(change),
        bar: bar(change.counts),
        streams: count(change.counts.total),
        p50: spanned(change.p50),
        p99: spanned(change.p99),
        server: change.server.to_string(),
        class: Classes::of(&change.class),
    }
}

/// How far the change came.
fn bar(counts: ChangeCounts) -> StateBar {
    StateBar::new([
        ("good", counts.acked as usize, "have it"),
        ("late", counts.waiting as usize, "waiting"),
        ("bad", counts.rejected as usize, "rejected"),
        ("none", counts.superseded as usize, "superseded"),
    ])
}

/// The change in a few words: `+cart, ~web and 3 more, −old`.
fn what(change: &ChangeStatus) -> String {
    let part = |sign: &str, changed: &ChangedNames| {
        let names: Vec<String> =
            changed.names.iter().take(NAMES_MAX).map(|name| format!("{sign}{}", name.as_str())).collect();
        let more = changed.count.saturating_sub(names.len());
        let more = (more > 0).then(|| format!("{sign}{} more", count(more)));
        names.into_iter().chain(more).collect::<Vec<_>>().join(", ")
    };
    let parts = [part("+", &change.added), part("~", &change.changed), part("−", &change.removed)];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

pub(super) async fn one(ask: &Ask<'_>, id: &str) -> Result<String, PageFault> {
    let Ok(name) = id.parse::<ChangeName>() else {
        return Err(PageFault::not_found(format!("{id:?} is not the name of a change.")));
    };
    let change = ask.admin.relay.change(name).await;
    let change = change.ok_or_else(|| {
        PageFault::not_found(format!(
            "The change {id} is not known, or forgotten: the relay keeps the latest of each source."
        ))
    })?;
    let short = change.type_url.short();
    let named = |changed: &ChangedNames| {
        let link = |name: &str| format!("/ui/resource?type={}&name={}", encoded(short), encoded(name));
        changed.names.iter().map(|name| (name.as_str().to_owned(), link(name.as_str()))).collect::<Vec<_>>()
    };
    let names = [("Added", &change.added), ("Changed", &change.changed), ("Removed", &change.removed)];
    let names = names.into_iter().filter(|(_, changed)| changed.count > 0);
    let page = OnePage {
        frame: Frame::new(ask, "changes", format!("Change {id}")),
        row: row(&change),
        facts: facts(&change, ask),
        names: names
            .map(|(label, changed)| {
                (label, named(changed), changed.count.saturating_sub(changed.names.len()))
            })
            .collect(),
        rejections: change
            .rejections
            .iter()
            .map(|rejection| RejectionRow {
                text: rejection.text.to_string(),
                count: count(rejection.count),
                more: (rejection.count as usize).saturating_sub(rejection.clients.len()),
                clients: rejection.clients.iter().map(|(id, node)| (*id, node.to_string())).collect(),
            })
            .collect(),
        next: next(&change),
        command: ShellCommand(format!("sluice get change {}", change.place.name)),
    };
    Ok(page.render()?)
}

/// Lists of clients that a reader wants next, worst first.
fn next(change: &ChangeStatus) -> Vec<(String, String)> {
    let short = change.type_url.short();
    let all = format!("/ui/clients?type={}&class={}", encoded(short), encoded(&change.class));
    let lists = [
        (change.counts.rejected > 0, format!("Clients of the class that reject {short} now"), "&state=ERROR"),
        (
            change.counts.waiting > 0,
            format!("Clients of the class that are behind on {short} now"),
            "&state=STALE",
        ),
        (true, format!("All clients of the class with {short}"), ""),
    ];
    let lists = lists.into_iter().filter(|(is_asked, ..)| *is_asked);
    lists.map(|(_, text, query)| (text, format!("{all}{query}"))).collect()
}

type Fact = (&'static str, String, Option<String>);

fn facts(change: &ChangeStatus, ask: &Ask<'_>) -> Vec<Fact> {
    let (server, class) = (encoded(&change.server), encoded(&change.class));
    let (short, plain) = (encoded(change.type_url.short()), |label, text| (label, text, None));
    let mut facts = vec![
        ("Type", change.type_url.message().to_owned(), Some(format!("/ui/changes?type={short}"))),
        plain(
            "Received",
            format!(
                "{} ago, {}",
                age(change.received_at, ask.now),
                crate::admin::item::rfc_3339(change.received_at)
            ),
        ),
        (
            "From",
            format!("{} ({})", change.server, change.list),
            Some(format!("/ui/sources?server={server}")),
        ),
        ("Class", change.class.to_string(), Some(format!("/ui/classes?q={class}"))),
        plain("Size", size(change.bytes)),
    ];
    if !change.type_url.is_secret() {
        facts.push(plain("Version", change.version.to_string()));
        facts.extend(
            change
                .upstream_version
                .as_deref()
                .map(|version| plain("The server's version", version.to_owned())),
        );
    }
    for (label, duration) in [
        ("Half have it after", change.p50),
        ("99 % have it after", change.p99),
        ("The slowest took", change.last),
    ] {
        facts.extend(duration.map(|duration| plain(label, span(duration))));
    }
    facts
}
