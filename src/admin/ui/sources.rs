//! The page of the attachments to control planes: the endpoint `/sources`.

use std::sync::Arc;

use askama::Template;

use super::filter::Filter;
use super::frame::{Ask, Frame, PageFault};
use super::parts::{Mark, Shape};
use super::text::{age, count, version};
use crate::admin::item;
use crate::admin::page::cursor;
use crate::admin::query::SourcesQuery;
use crate::admin::types;
use crate::driver::api::status::{SourceState, SourceStatus, SourceTypeStatus, names_type};
use sluice_text::size;

#[derive(Template)]
#[template(path = "sources.html")]
struct SourcesPage {
    frame: Frame,
    filter: Filter,
    sources: Vec<SourceRow>,
    next: Option<String>,
}

struct SourceRow {
    id: u64,
    server: String,
    list: String,
    state: Mark,
    since: String,
    class: String,
    /// The fields of the class.
    fields: Vec<(String, String)>,
    shown_as: String,
    notes: Vec<String>,
    types: Vec<TypeOfSource>,
}

struct TypeOfSource {
    name: String,
    subscribed: String,
    present: String,
    absent: usize,
    unknown: usize,
    size: String,
    version: String,
    notes: Vec<String>,
}

pub(super) async fn html(ask: &Ask<'_>) -> Result<String, PageFault> {
    let filter = Filter::new(ask, "/ui/sources")?;
    let (query, page) = SourcesQuery::parse(&filter.uri(), ask.headers)?;
    types::check(ask.admin, query.type_name.as_deref()).await?;
    let after: Option<u64> = page.after()?;
    let mut all = ask.admin.relay.sources();
    all.sort_by_key(|source| source.id);
    let matching = |source: &&Arc<SourceStatus>| {
        after.is_none_or(|after| source.id > after) && item::source(source, &query, ask.now).is_some()
    };
    let mut listed = all.iter().filter(matching);
    let shown: Vec<_> = listed.by_ref().take(page.limit).collect();
    let has_more = listed.next().is_some();
    let next = shown.last().filter(|_| has_more);
    let next = next.map(|last| filter.next(&cursor(&last.id), shown.len()));
    let sources = shown.iter().map(|source| self::source(source, &query, ask)).collect();
    let mut servers: Vec<String> = all.iter().map(|source| source.server.to_string()).collect();
    servers.sort_unstable();
    servers.dedup();
    let filter = filter.field("server", "Server", servers).field("type", "Type", ask.type_names()).field(
        "state",
        "State",
        SourceState::NAMES.map(str::to_owned).to_vec(),
    );
    Ok(SourcesPage { frame: Frame::new(ask, "sources", "Sources"), filter, sources, next }.render()?)
}

fn source(source: &SourceStatus, query: &SourcesQuery, ask: &Ask<'_>) -> SourceRow {
    let mut notes = Vec::new();
    notes.extend(source.error_text().map(|error| format!("Last error: {error}")));
    notes.extend(source.stale_since.map(|since| format!("Unconfirmed for {}.", age(since, ask.now))));
    if !source.answered {
        notes.push("No answer yet.".to_owned());
    }
    if source.restored {
        notes.push("Restored from a checkpoint, and not confirmed since.".to_owned());
    }
    notes.extend(source.stream.map(|stream| format!("For client {stream} alone.")));
    let is_shown = |status: &&SourceTypeStatus| {
        query.type_name.as_deref().is_none_or(|text| names_type(text, &status.type_url))
    };
    SourceRow {
        id: source.id,
        server: source.server.to_string(),
        list: source.list.to_string(),
        state: Mark::of_source(source.state),
        since: age(source.since, ask.now),
        class: source.class.digest.to_string(),
        fields: source.class.fields.to_vec(),
        shown_as: source.shown.to_string(),
        notes,
        types: source.types.iter().filter(is_shown).map(|status| type_of(status, ask)).collect(),
    }
}

fn type_of(status: &SourceTypeStatus, ask: &Ask<'_>) -> TypeOfSource {
    let is_secret = status.type_url.is_secret();
    let mut notes = Vec::new();
    if status.held_back > 0 {
        notes.push(format!(
            "The server has deleted {}; they are served on until an operator confirms.",
            status.held_back
        ));
    }
    if let Some(refused) = &status.refused {
        notes.push(format!("Refused for {}: {}.", age(refused.since, ask.now), refused.error));
    }
    if let Some(silent) = &status.silent {
        let first: Vec<_> = silent.first.iter().map(ToString::to_string).collect();
        let more = if silent.names > first.len() { ", ..." } else { "" };
        let (since, first) = (age(silent.since, ask.now), first.join(", "));
        notes.push(format!("Silent about {} names for {since}: {first}{more}.", silent.names));
    }
    if let Some(lost) = &status.lost {
        notes.push(format!("Lost for {}: {}.", age(lost.since, ask.now), lost.error));
    }
    TypeOfSource {
        name: status.type_url.short().to_owned(),
        subscribed: match (status.wildcard, status.names) {
            (true, 0) => "all".to_owned(),
            (true, names) => format!("all, and {}", count(names)),
            (false, names) => count(names),
        },
        present: count(status.present),
        absent: status.absent,
        unknown: status.unknown,
        size: if is_secret { String::new() } else { size(status.bytes) },
        version: status.version.filter(|_| !is_secret).map(version).unwrap_or_default(),
        notes,
    }
}

impl SourceRow {
    fn is_bad(&self) -> bool {
        self.state.look >= Shape::Late
    }
}
