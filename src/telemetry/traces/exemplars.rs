//! Exemplars: beside a sample of a metric, the id of a trace that shows why (OBS-8).
//!
//! The metrics library's exemplars have a lock on the way of each observation, and only the library can make
//! them. These are set after a collector has taken the trace, and written into the finished text.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::TraceId;
use parking_lot::Mutex;

use super::Finished;
use super::change::SLOWEST_MAX;
use super::ids::Ids;
use crate::telemetry::instruments::bucket_text;

const DELIVERY: &str = "sluice_downstream_delivery_seconds_bucket";
const NACKS: &str = "sluice_downstream_nacks_total";

/// A sample with a trace.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Exemplar {
    sample: String,
    trace: TraceId,
    value: f64,
    at: SystemTime,
}

impl Exemplar {
    /// The exemplars of a change: one for each bucket of its slowest deliveries, and one for its rejections.
    pub(super) fn all(finished: &Finished, ids: &Ids) -> Vec<Exemplar> {
        let Finished::Change(change) = finished else { return Vec::new() };
        let (trace, label) = (ids.of(&change.name).0, &change.type_label);
        let exemplar = |sample, value, after: Duration| Exemplar {
            sample,
            trace,
            value,
            at: change.received_at + after,
        };
        let mut all: Vec<Exemplar> = Vec::new();
        for delivery in change.slowest.iter().take(SLOWEST_MAX) {
            let sample = format!("{DELIVERY}{{le=\"{}\",type=\"{label}\"}}", bucket_text(delivery.after));
            if !all.iter().any(|exemplar| exemplar.sample == sample) {
                all.push(exemplar(sample, delivery.after.as_secs_f64(), delivery.after));
            }
        }
        let rejected = change.rejections.first();
        all.extend(rejected.map(|first| exemplar(format!("{NACKS}{{type=\"{label}\"}}"), 1.0, first.after)));
        all
    }
}

/// The latest exemplar of each sample. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exemplars(Arc<Mutex<HashMap<String, String>>>);

impl Exemplars {
    pub(super) fn add(&self, exemplars: Vec<Exemplar>) {
        let mut by_sample = self.0.lock();
        for Exemplar { sample, trace, value, at } in exemplars {
            let at = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
            let (seconds, millis) = (at / 1000, at % 1000);
            by_sample.insert(sample, format!(" # {{trace_id=\"{trace}\"}} {value} {seconds}.{millis:03}"));
        }
    }

    /// Writes the exemplars behind their samples in a text of all metrics.
    pub(crate) fn write_into(&self, text: String) -> String {
        let by_sample = self.0.lock();
        if by_sample.is_empty() {
            return text;
        }
        let mut with = String::with_capacity(text.len() + 100 * by_sample.len());
        for line in text.split_inclusive('\n') {
            with.push_str(line.trim_end_matches('\n'));
            if line.starts_with(DELIVERY) || line.starts_with(NACKS) {
                let exemplar = line.rsplit_once(' ').and_then(|(sample, _)| by_sample.get(sample));
                with.extend(exemplar.map(String::as_str));
            }
            with.push('\n');
        }
        with
    }
}
