//! `GET /events`: the ring of events as a list, or live (ADM-11).

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::access::Area;
use super::item::rfc_3339;
use super::live::{self, Feed, Next};
use super::params::bad_request;
use super::query::EventsQuery;
use super::state::Admin;
use crate::telemetry::events::{Event, Events, Kind, Severity};

/// The header in which a browser repeats the last `id:` of a lost event stream.
const LAST_EVENT_ID: &str = "last-event-id";

/// Events in one part of a live answer.
const PART_MAX: usize = 64;

/// The wanted events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub kind: Option<Kind>,
    /// And all above.
    pub severity: Severity,
}

impl Wanted {
    pub fn has(self, event: &Event) -> bool {
        self.kind.is_none_or(|kind| kind == event.first.kind) && self.severity <= event.first.severity
    }
}

pub(super) async fn events(Shared(admin): Shared<Admin>, request: Request) -> Result<Response, Response> {
    let query = EventsQuery::parse(request.uri()).map_err(bad_request)?;
    let events = admin.metrics.events.clone();
    if live::is_wanted(request.headers()) {
        if query.limit.is_some() {
            return Err(bad_request("limit is for the list, and this is a live answer".to_owned()));
        }
        let last = request.headers().get(LAST_EVENT_ID).map(|value| value.to_str().ok()?.parse().ok());
        let Ok(last) = last.map_or(Ok(None), |last| last.ok_or(()).map(Some)) else {
            return Err(bad_request("the header Last-Event-ID has no number of an event".to_owned()));
        };
        let feed = LiveEvents::new(events, query.wanted, last.or(query.after));
        return Ok(live::respond(&admin, request.extensions(), feed));
    }
    let place = admin.permit(Area::View, request.extensions())?;
    let limit = query.limit.unwrap_or(super::query::EVENTS_LIMIT);
    let page = events.after(query.after.unwrap_or_default(), limit, |event| query.wanted.has(event));
    let items: Vec<_> = page.events.iter().map(|event| Item::of(event)).collect();
    let list = List {
        count: items.len(),
        events: items,
        gap: page.gap.filter(|_| query.after.is_some()).map(|(from, to)| Gap { from, to: Some(to) }),
        next: page.has_more.then_some(page.looked_to),
    };
    Ok(super::bound::held(axum::Json(list).into_response(), place))
}

#[derive(Serialize)]
struct List<'a> {
    events: Vec<Item<'a>>,
    count: usize,
    /// Events after `after` that the ring has dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    gap: Option<Gap>,
    /// The value of `after` for the next page.
    next: Option<u64>,
}

/// Numbers without events. No end: the relay has restarted, and its numbers begin anew.
#[derive(Serialize)]
struct Gap {
    from: u64,
    to: Option<u64>,
}

#[derive(Serialize)]
struct Item<'a> {
    number: u64,
    at: String,
    age_seconds: f64,
    kind: &'static str,
    severity: &'static str,
    count: u64,
    /// Further occurrences of the kind, with other causes.
    #[serde(skip_serializing_if = "is_zero")]
    left_out: u64,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    listener: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    push: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<&'a str>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Item<'_> {
    fn of(event: &Event) -> Item<'_> {
        let first = &event.first;
        Item {
            number: event.number,
            at: rfc_3339(event.at),
            age_seconds: event.age().as_secs_f64(),
            kind: first.kind.name(),
            severity: first.severity.name(),
            count: event.count,
            left_out: event.left_out,
            text: match &first.detail {
                Some(detail) => format!("{}: {detail}", first.text),
                None => first.text.to_owned(),
            },
            server: first.server.as_deref(),
            list: first.list.as_deref(),
            class: first.class.as_deref(),
            r#type: first.type_url.as_ref().map(|type_url| type_url.message()),
            version: first.version.map(|version| version.to_string()),
            node: first.node.as_deref(),
            stream: first.stream,
            peer: first.peer,
            listener: first.listener.as_deref(),
            limit: first.limit,
            change: first.change.as_deref(),
            plan: first.plan.as_deref(),
            push: first.push,
            generation: first.generation,
            trace_id: first.trace_id.as_deref(),
            place: first.place.as_deref(),
        }
    }
}

/// The events after a number, and all to come. An event is written once it has settled, a second after its first
/// occurrence.
struct LiveEvents {
    events: Events,
    wanted: Wanted,
    after: u64,
    /// A gap that is known before the first look.
    gap: Option<Gap>,
    /// The end of the last gap. Events of other kinds may be left in a range with dropped ones.
    told_to: u64,
}

impl LiveEvents {
    /// Without `after`, begins with the next event.
    fn new(events: Events, wanted: Wanted, after: Option<u64>) -> LiveEvents {
        let latest = events.latest();
        let after = after.unwrap_or(latest);
        let has_restarted = after > latest;
        let gap = has_restarted.then(|| Gap { from: after.saturating_add(1), to: None });
        LiveEvents { events, wanted, after: if has_restarted { 0 } else { after }, gap, told_to: 0 }
    }
}

impl Feed for LiveEvents {
    async fn write(&mut self, out: &mut String, is_last: bool) -> Next {
        let page = self.events.after(self.after, PART_MAX, |event| self.wanted.has(event));
        let gap = page.gap.filter(|(_, to)| *to > self.told_to);
        self.told_to = gap.map_or(self.told_to, |(_, to)| to);
        for gap in self.gap.take().into_iter().chain(gap.map(|(from, to)| Gap { from, to: Some(to) })) {
            // A reader that resumes behind the gap would miss the events within.
            let is_empty = |to: &u64| page.events.first().is_none_or(|event| event.number > *to);
            if let Ok(data) = serde_json::to_string(&gap) {
                live::message(out, gap.to.filter(is_empty), Some("gap"), &data);
            }
        }
        self.after = page.looked_to;
        for event in &page.events {
            let event: &Arc<Event> = event;
            if !event.is_settled() && !is_last {
                self.after = event.number - 1;
                return Next::Wait;
            }
            if let Ok(data) = serde_json::to_string(&Item::of(event)) {
                live::message(out, Some(event.number), None, &data);
            }
        }
        if page.has_more { Next::More } else { Next::Wait }
    }
}
