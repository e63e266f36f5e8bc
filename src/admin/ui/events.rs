//! The page of what happened: the endpoint `/events`, the latest first.

use askama::Template;

use super::filter::{Filter, ROWS_MAX};
use super::frame::{Ask, Frame, PageFault};
use super::parts::{Mark, Shape};
use super::text::age;
use crate::admin::item::rfc_3339;
use crate::admin::query::EventsQuery;
use crate::telemetry::events::{Event, Kind, Severity};
use sluice_text::encoded;

#[derive(Template)]
#[template(path = "events.html")]
struct EventsPage {
    frame: Frame,
    filter: Filter,
    rows: Vec<EventRow>,
    next: Option<String>,
}

pub(super) struct EventRow {
    pub number: u64,
    pub at: String,
    pub age: String,
    pub kind: &'static str,
    pub severity: Mark,
    pub text: String,
    /// How often, if more than once.
    pub times: Option<String>,
    /// The things that the event names: label, text and address.
    pub links: Vec<(&'static str, String, String)>,
}

pub(super) fn html(ask: &Ask<'_>) -> Result<String, PageFault> {
    let filter = Filter::new(ask, "/ui/events")?.paged_by("before");
    let before = filter.cursor().map(|text| text.parse::<u64>());
    let before = before.transpose().map_err(|_| "before is not a number of an event".to_owned())?;
    let query = EventsQuery::parse(&filter.uri())?;
    let mut rows =
        latest(ask, |event| query.filter.has(event) && before.is_none_or(|before| event.number < before));
    let limit = query.limit.unwrap_or(ROWS_MAX);
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| has_more).map(|last| filter.next(&last.number.to_string(), rows.len()));
    let filter = filter.field("kind", "Kind", Kind::ALL.map(|kind| kind.name().to_owned()).to_vec()).field(
        "severity",
        "Severity, and above",
        Severity::ALL.map(|severity| severity.name().to_owned()).to_vec(),
    );
    Ok(EventsPage { frame: Frame::new(ask, "events", "Events"), filter, rows, next }.render()?)
}

/// The wanted events, the latest first.
pub(super) fn latest(ask: &Ask<'_>, wants: impl Fn(&Event) -> bool) -> Vec<EventRow> {
    let page = ask.admin.metrics.events.after(0, usize::MAX, wants);
    page.events.iter().rev().map(|event| row(event, ask)).collect()
}

fn row(event: &Event, ask: &Ask<'_>) -> EventRow {
    let first = &event.first;
    let look = match first.severity {
        Severity::Info => Shape::None,
        Severity::Warn => Shape::Late,
        Severity::Error => Shape::Bad,
    };
    let mut links = Vec::new();
    let mut link = |label, text: Option<String>, path: &dyn Fn(&str) -> String| {
        links.extend(text.map(|text| (label, text.clone(), path(&text))));
    };
    let clients = |key: &'static str| move |text: &str| format!("/ui/clients?{key}={}", encoded(text));
    link("client", first.stream.map(|stream| stream.to_string()), &|text| format!("/ui/clients/{text}"));
    link("node", first.node.as_deref().map(str::to_owned), &clients("node"));
    link("change", first.change.as_deref().map(str::to_owned), &|text| format!("/ui/changes/{text}"));
    let push = first.plan.as_deref().zip(first.push).map(|(plan, push)| format!("{plan}/{push}"));
    link("push", push, &|text| format!("/ui/rollouts/{text}"));
    link("server", first.server.as_deref().map(str::to_owned), &|text| {
        format!("/ui/sources?server={}", encoded(text))
    });
    link("class", first.class.as_deref().map(str::to_owned), &clients("class"));
    link("type", first.type_url.as_ref().map(|type_url| type_url.short().to_owned()), &clients("type"));
    link("listener", first.listener.as_deref().map(str::to_owned), &clients("listener"));
    let mut text = match &first.detail {
        Some(detail) => format!("{}: {detail}", first.text),
        None => first.text.to_owned(),
    };
    if let Some(place) = &first.place {
        text = format!("{text} ({place})");
    }
    let count = event.count.saturating_add(event.left_out);
    EventRow {
        number: event.number,
        at: rfc_3339(event.at),
        age: age(event.at, ask.now),
        kind: first.kind.name(),
        severity: Mark { look, word: first.severity.name(), why: None },
        text,
        times: (count > 1).then(|| super::text::count(count)),
        links,
    }
}
