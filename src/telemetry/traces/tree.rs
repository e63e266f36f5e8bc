//! The spans of a change, with explicit times (OBS-2).
//!
//! `xds.change` from the receipt to the last answer, and below it `xds.apply` (until published) and `xds.fanout` (to all clients),
//! and below that `xds.deliver` for a few single clients. The number of spans does not depend on the number of clients.

use std::time::{Duration, SystemTime};

use opentelemetry::trace::{Event, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::change::{Delivery, FinishedChange, REJECTED_MAX, SLOWEST_MAX};

/// The trace of a change. The root comes first.
pub(super) fn spans(change: &FinishedChange) -> Vec<SpanData> {
    let mut builder = Builder::new(change.received_at);
    let end = change.end();
    let root = builder.add("xds.change", None, Duration::ZERO, end, attributes(change));
    if change.is_bad() {
        builder.fail(format!("the change ended as {}", change.outcome.name()));
    }
    builder.add("xds.apply", Some(root), Duration::ZERO, change.published, Vec::new());
    let counts = vec![
        number("sluice.clients.wanted", u64::from(change.wanted)),
        number("sluice.clients.acked", u64::from(change.acked)),
    ];
    let fanout = builder.add("xds.fanout", Some(root), change.published, end, counts);
    for (name, after) in [("p50", change.p50), ("p99", change.p99), ("last_ack", change.last)] {
        if let Some(after) = after {
            builder.event(name, after);
        }
    }
    let deliveries =
        change.slowest.iter().take(SLOWEST_MAX).chain(change.rejections.iter().take(REJECTED_MAX));
    for Delivery { stream, after, rejection } in deliveries {
        builder.add(
            "xds.deliver",
            Some(fanout),
            change.published,
            *after,
            vec![number("sluice.stream", *stream)],
        );
        if let Some(text) = rejection {
            builder.fail(text.to_string());
        }
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
        number("sluice.clients.wanted", u64::from(change.wanted)),
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

struct Builder {
    trace: TraceId,
    begin: SystemTime,
    scope: InstrumentationScope,
    spans: Vec<SpanData>,
}

impl Builder {
    fn new(begin: SystemTime) -> Builder {
        let scope = InstrumentationScope::builder("sluice").with_version(env!("CARGO_PKG_VERSION")).build();
        // 0 would be no trace.
        let trace = TraceId::from(fastrand::u128(1..));
        Builder { trace, begin, scope, spans: Vec::new() }
    }

    fn add(
        &mut self,
        name: &'static str,
        parent: Option<SpanId>,
        from: Duration,
        until: Duration,
        attributes: Vec<KeyValue>,
    ) -> SpanId {
        let id = SpanId::from(fastrand::u64(1..));
        self.spans.push(SpanData {
            span_context: SpanContext::new(self.trace, id, TraceFlags::SAMPLED, false, TraceState::NONE),
            parent_span_id: parent.unwrap_or(SpanId::INVALID),
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: name.into(),
            start_time: self.begin + from,
            end_time: self.begin + until.max(from),
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
    fn event(&mut self, name: &'static str, after: Duration) {
        if let Some(span) = self.spans.last_mut() {
            span.events.events.push(Event::new(name, self.begin + after, Vec::new(), 0));
        }
    }

    /// The last span failed, in these words.
    fn fail(&mut self, text: String) {
        if let Some(span) = self.spans.last_mut() {
            span.status = Status::error(text);
        }
    }
}
