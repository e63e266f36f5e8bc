//! `GET /events`: the ring of events as a list, or live (ADM-11).

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::response::{IntoResponse, Response};
use sluice_admin_api::Text;
use sluice_admin_api::events::{self as api, EventGap, EventList};

use super::access::Area;
use super::bound::held;
use super::item::rfc_3339;
use super::live::{self, Feed, FeedState};
use super::params::bad_request;
use super::query::{EventFilter, EventsQuery};
use super::state::Admin;
use crate::telemetry::events::{Event, Events};

/// The header in which a browser repeats the last `id:` of a lost event stream.
const LAST_EVENT_ID: &str = "last-event-id";

/// Events in one part of a live answer.
const PART_MAX: usize = 64;

pub(super) async fn events(Shared(admin): Shared<Admin>, request: Request) -> Result<Response, Response> {
    let query = EventsQuery::parse(request.uri())?;
    let events = admin.metrics.events.clone();
    if live::is_wanted(request.headers()) {
        if query.limit.is_some() {
            return Err(bad_request("limit is for the list, and this is a live answer".to_owned()).into());
        }
        let last = request.headers().get(LAST_EVENT_ID).map(|value| value.to_str().ok()?.parse().ok());
        let Ok(last) = last.map_or(Ok(None), |last| last.ok_or(()).map(Some)) else {
            return Err(bad_request("the header Last-Event-ID has no number of an event".to_owned()).into());
        };
        let feed = LiveEvents::new(events, query.filter, last.or(query.after));
        return Ok(live::respond(&admin, request.extensions(), feed));
    }
    let place = admin.permit(Area::View, request.extensions())?;
    let limit = query.limit.unwrap_or(super::query::EVENTS_LIMIT);
    let page = events.after(query.after.unwrap_or_default(), limit, |event| query.filter.has(event));
    let gap = page.gap.filter(|_| query.after.is_some());
    let list = EventList {
        count: page.events.len(),
        events: page.events.iter().map(|event| item(event)).collect(),
        gap: gap.map(|(from, to)| EventGap { from, to: Some(to) }),
        next: page.has_more.then_some(page.looked_to),
    };
    Ok(held(axum::Json(list).into_response(), place))
}

fn item(event: &Event) -> api::Event<'_> {
    let first = &event.first;
    api::Event {
        number: event.number,
        at: rfc_3339(event.at),
        age_seconds: event.age().as_secs_f64(),
        kind: Text::Borrowed(first.kind.name()),
        severity: Text::Borrowed(first.severity.name()),
        count: event.count,
        left_out: event.left_out,
        text: match &first.detail {
            Some(detail) => format!("{}: {detail}", first.text),
            None => first.text.to_owned(),
        },
        server: first.server.as_deref().map(Text::Borrowed),
        list: first.list.as_deref().map(Text::Borrowed),
        class: first.class.as_deref().map(Text::Borrowed),
        r#type: first.type_url.as_ref().map(|type_url| Text::Borrowed(type_url.message())),
        version: first.version.map(|version| version.to_string()),
        node: first.node.as_deref().map(Text::Borrowed),
        stream: first.stream,
        peer: first.peer,
        listener: first.listener.as_deref().map(Text::Borrowed),
        limit: first.limit.map(Text::Borrowed),
        change: first.change.as_deref().map(Text::Borrowed),
        plan: first.plan.as_deref().map(Text::Borrowed),
        push: first.push,
        generation: first.generation,
        trace_id: first.trace_id.as_deref().map(Text::Borrowed),
        place: first.place.as_deref().map(Text::Borrowed),
    }
}

/// The events after a number, and all to come. An event is written once it has settled, a second after its
/// first occurrence.
struct LiveEvents {
    events: Events,
    filter: EventFilter,
    after: u64,
    /// A gap that is known before the first look.
    gap: Option<EventGap>,
    /// The end of the last gap. Events of other kinds may be left in a range with dropped ones.
    written_to: u64,
}

impl LiveEvents {
    /// Without `after`, begins with the next event.
    fn new(events: Events, filter: EventFilter, after: Option<u64>) -> LiveEvents {
        let latest = events.latest();
        let after = after.unwrap_or(latest);
        let has_restarted = after > latest;
        let gap = has_restarted.then(|| EventGap { from: after.saturating_add(1), to: None });
        LiveEvents { events, filter, after: if has_restarted { 0 } else { after }, gap, written_to: 0 }
    }
}

impl Feed for LiveEvents {
    async fn write(&mut self, out: &mut String, is_last: bool) -> FeedState {
        let page = self.events.after(self.after, PART_MAX, |event| self.filter.has(event));
        let gap = page.gap.filter(|(_, to)| *to > self.written_to);
        self.written_to = gap.map_or(self.written_to, |(_, to)| to);
        for gap in self.gap.take().into_iter().chain(gap.map(|(from, to)| EventGap { from, to: Some(to) })) {
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
                return FeedState::Wait;
            }
            if let Ok(data) = serde_json::to_string(&item(event)) {
                live::message(out, Some(event.number), None, &data);
            }
        }
        if page.has_more { FeedState::More } else { FeedState::Wait }
    }
}
