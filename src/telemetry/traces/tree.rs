//! The spans of a change or an act, with explicit times (OBS-2).
//!
//! `xds.change` from the last byte of the response to the last answer, and below it `xds.decode`, `xds.apply`
//! (until published), an `xds.encode` for each of the first bodies, and `xds.fanout` (to all clients), and
//! below that `xds.deliver` for a few single clients. The number of spans does not depend on the number of
//! clients: at most 41.

use std::time::{Duration, SystemTime};

use opentelemetry::trace::{
    Event, Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::Finished;
use super::act::{self, FinishedAct};
use super::change::{Delivery, ENCODINGS_MAX, FinishedChange, LINKS_MAX, REJECTED_MAX, SLOWEST_MAX, Skipped};
use super::ids::Ids;

/// The trace of a change or an act. The root comes first.
pub(super) fn spans(finished: &Finished, ids: &Ids) -> Vec<SpanData> {
    match finished {
        Finished::Change(change) => of_change(change, ids),
        Finished::Act(act) => of_act(act, ids),
    }
}

fn of_change(change: &FinishedChange, ids: &Ids) -> Vec<SpanData> {
    let at = |after: Duration| change.received_at + after;
    let (published, end) = (at(change.published), at(change.end()));
    let arrived = change.decoding.map_or(change.received_at, |decoding| change.received_at - decoding.before);
    let mut builder = Builder::new(ids, &change.name);
    let root = builder.add("xds.change", None, arrived..end, attributes(change));
    if change.is_bad() {
        builder.fail(format!("the change ended as {}", change.outcome.name()));
    }
    if let Some(decoding) = change.decoding {
        builder.add("xds.decode", Some(root), arrived..arrived + decoding.took, Vec::new());
    }
    builder.add("xds.apply", Some(root), change.received_at..published, Vec::new());
    for encoding in change.encodings.iter().take(ENCODINGS_MAX) {
        let sizes = vec![
            number("sluice.bytes", encoding.bytes as u64),
            number("sluice.messages", encoding.messages as u64),
        ];
        builder.add("xds.encode", Some(root), at(encoding.begin)..at(encoding.end), sizes);
    }
    let counts = vec![
        number("sluice.clients.wanted", u64::from(change.streams)),
        number("sluice.clients.acked", u64::from(change.acked)),
    ];
    let fanout = builder.add("xds.fanout", Some(root), published..end, counts);
    builder.link(&change.coalesced);
    for (name, after) in [("p50", change.p50), ("p99", change.p99), ("last_ack", change.last)] {
        if let Some(after) = after {
            builder.event(name, at(after));
        }
    }
    let deliveries =
        change.slowest.iter().take(SLOWEST_MAX).chain(change.rejections.iter().take(REJECTED_MAX));
    for Delivery { stream, after, rejection, skipped } in deliveries {
        let of_stream = vec![number("sluice.stream", *stream)];
        builder.add("xds.deliver", Some(fanout), published..at(*after), of_stream);
        builder.link(skipped);
        if let Some(text) = rejection {
            builder.fail(text.to_string());
        }
    }
    builder.spans
}

fn of_act(act: &FinishedAct, ids: &Ids) -> Vec<SpanData> {
    let attribute = |(key, value): &(&'static str, act::AttributeValue)| match value {
        act::AttributeValue::Text(text) => KeyValue::new(*key, text.clone()),
        act::AttributeValue::Number(count) => number(key, *count),
    };
    let at = |after: Duration| act.begun_at + after;
    let mut builder = Builder::new(ids, &act.name);
    let attributes = act.attributes.iter().map(attribute).collect();
    let root = builder.add(act.act.span(), None, act.begun_at..at(act.took), attributes);
    if let Some(failure) = &act.failure {
        builder.fail(failure.clone());
    }
    for step in &act.steps {
        builder.add(step.name, Some(root), at(step.from)..at(step.until), Vec::new());
    }
    builder.spans
}

fn attributes(change: &FinishedChange) -> Vec<KeyValue> {
    let text = |key: &'static str, value: &str| KeyValue::new(key, value.to_owned());
    let mut all = vec![
        text("sluice.change", &change.name),
        text("sluice.server", &change.server),
        text("sluice.list", &change.list),
        text("sluice.class", &change.class),
        text("sluice.outcome", change.outcome.name()),
        text("xds.type", change.type_url.message()),
        text("xds.version", &change.version),
        number("sluice.resources.added", change.added as u64),
        number("sluice.resources.changed", change.changed as u64),
        number("sluice.resources.removed", change.removed as u64),
        number("sluice.bytes", change.bytes as u64),
        number("sluice.clients.wanted", u64::from(change.streams)),
        number("sluice.clients.acked", u64::from(change.acked)),
        number("sluice.clients.rejected", u64::from(change.rejected)),
        number("sluice.clients.waiting", u64::from(change.waiting)),
        number("sluice.clients.superseded", u64::from(change.superseded)),
    ];
    all.extend(change.upstream_version.as_deref().map(|version| text("xds.upstream_version", version)));
    all
}

fn number(key: &'static str, value: u64) -> KeyValue {
    KeyValue::new(key, Value::I64(i64::try_from(value).unwrap_or(i64::MAX)))
}

struct Builder<'a> {
    ids: &'a Ids,
    trace: TraceId,
    /// The id of the first span.
    first: Option<SpanId>,
    scope: InstrumentationScope,
    spans: Vec<SpanData>,
}

impl<'a> Builder<'a> {
    /// `name`: of the change or the act.
    fn new(ids: &'a Ids, name: &str) -> Builder<'a> {
        let scope = InstrumentationScope::builder("sluice").with_version(env!("CARGO_PKG_VERSION")).build();
        let (trace, first) = ids.of(name);
        Builder { ids, trace, first: Some(first), scope, spans: Vec::new() }
    }

    fn add(
        &mut self,
        name: &'static str,
        parent: Option<SpanId>,
        time: std::ops::Range<SystemTime>,
        attributes: Vec<KeyValue>,
    ) -> SpanId {
        let id = self.first.take().unwrap_or_else(|| SpanId::from(fastrand::u64(1..)));
        self.spans.push(SpanData {
            span_context: SpanContext::new(self.trace, id, TraceFlags::SAMPLED, false, TraceState::NONE),
            parent_span_id: parent.unwrap_or(SpanId::INVALID),
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: name.into(),
            start_time: time.start,
            end_time: time.end.max(time.start),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        });
        id
    }

    /// To the last span.
    fn event(&mut self, name: &'static str, at: SystemTime) {
        if let Some(span) = self.spans.last_mut() {
            span.events.events.push(Event::new(name, at, Vec::new(), 0));
        }
    }

    /// Links the last span to the changes in whose place it stands, once each (OBS-3).
    fn link(&mut self, skipped: &[Skipped]) {
        let Some(span) = self.spans.last_mut() else { return };
        let mut linked: Vec<&str> = Vec::new();
        for Skipped { name, is_traced } in skipped {
            if linked.contains(&name.as_str()) {
                continue;
            }
            if linked.len() == LINKS_MAX {
                span.links.dropped_count += 1;
                continue;
            }
            linked.push(name);
            let (trace, first) = self.ids.of(name);
            let flags = if *is_traced { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED };
            let context = SpanContext::new(trace, first, flags, false, TraceState::NONE);
            let of_change = vec![KeyValue::new("sluice.change", name.clone())];
            span.links.links.push(Link::new(context, of_change, 0));
        }
    }

    /// The last span failed, in these words.
    fn fail(&mut self, text: String) {
        if let Some(span) = self.spans.last_mut() {
            span.status = Status::error(text);
        }
    }
}
