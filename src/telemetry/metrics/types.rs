//! Metrics by resource type.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::catalogue::{Catalogue, Counters, Gauges, Labels, VARIANTS, variant_name};
use crate::telemetry::instruments::{DurationHistogram, GaugePart};
use crate::telemetry::traces::change::ChangeOutcome;
use sluice_engine::cache::EntryState;
use sluice_xds::{Code, Kind, TypeUrl, Variant};

/// The maximum number of types with a label of their own; later types share the label `other`. Types with
/// rules of their own (TYP-2) always have a label.
pub const TYPES_MAX: usize = 64;
pub(super) const KNOWN_TYPES: usize = 13;

/// Longer type names share the label `other`.
pub(super) const TYPE_NAME_BYTES_MAX: usize = 64;
pub(super) const OTHER: &str = "other";

/// Metrics per resource type. Wide because each field is a metric.
#[derive(Debug)]
pub struct TypeMetrics {
    pub(super) label: Arc<str>,
    requests: Counter,
    reports: Counter,
    responses: [Counter; 2],
    response_bytes: Counter,
    acks: Counter,
    nacks: Counter,
    heartbeats: Counter,
    left_out: Counter,
    changes: [Counter; ChangeOutcome::ALL.len()],
    resource_errors: Counters<2>,
    delivery: DurationHistogram,
    states: [Gauge; EntryState::ALL.len()],
    present: Gauge,
    absent: Gauge,
    unknown: Gauge,
    bytes: Gauge,
}

impl TypeMetrics {
    /// The value of the `type` label.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// A client's request was read.
    pub fn request(&self) {
        self.requests.inc();
    }

    /// The request was a report, which is not forwarded.
    pub fn report(&self) {
        self.reports.inc();
    }

    /// A response was passed to a client's connection. `bytes`: as framed.
    pub fn response(&self, variant: Variant, bytes: usize) {
        self.responses[variant as usize].inc();
        self.response_bytes.inc_by(bytes as u64);
    }

    /// A client ACKed a response.
    pub fn ack(&self) {
        self.acks.inc();
    }

    /// A client NACKed a response (RLY-38).
    pub fn nack(&self) {
        self.nacks.inc();
    }

    /// The content of a response beside resources: heartbeats (TTL-4), and errors by their codes (ERR-1).
    pub fn beside(&self, heartbeats: usize, errors: &[Code]) {
        if heartbeats > 0 {
            self.heartbeats.inc_by(heartbeats as u64);
        }
        for code in errors {
            let labels = [("type", self.label.clone()), ("code", code.name().into())];
            self.resource_errors.get_or_create(&labels).inc();
        }
    }

    /// Resources were left out of an answer because the client does not support them (RLY-23).
    pub fn left_out(&self, count: usize) {
        self.left_out.inc_by(count as u64);
    }

    /// A published change is over.
    pub fn change(&self, outcome: ChangeOutcome) {
        self.changes[outcome as usize].inc();
    }

    /// The time between the receipt of an update from upstream and a client's ACK. Not for resources that
    /// were cached before the client subscribed.
    pub fn delivered(&self, since_receipt: Duration) {
        self.delivery.observe(since_receipt);
    }

    /// A source's part of the cache metrics of the type; starts empty.
    pub fn cache(&self) -> CacheMetrics {
        CacheMetrics {
            present: GaugePart::new(&self.present, 0),
            absent: GaugePart::new(&self.absent, 0),
            unknown: GaugePart::new(&self.unknown, 0),
            bytes: GaugePart::new(&self.bytes, 0),
            states: self.states.each_ref().map(|state| GaugePart::new(state, 0)),
        }
    }
}

/// The cache of one source for one type; subtracted when dropped.
#[derive(Debug)]
pub struct CacheMetrics {
    present: GaugePart,
    absent: GaugePart,
    unknown: GaugePart,
    bytes: GaugePart,
    states: [GaugePart; EntryState::ALL.len()],
}

impl CacheMetrics {
    /// Names by knowledge (RLY-2), and the bytes of present resources.
    pub fn set(&mut self, present: usize, absent: usize, unknown: usize, bytes: usize) {
        self.present.set(present);
        self.absent.set(absent);
        self.unknown.set(unknown);
        self.bytes.set(bytes);
    }

    /// Resources in each state, in the order of [`EntryState::ALL`] (DAT-8).
    pub fn set_states(&mut self, counts: [usize; EntryState::ALL.len()]) {
        for (state, count) in self.states.iter_mut().zip(counts) {
            state.set(count);
        }
    }
}

#[derive(Debug, Default)]
struct TypeSlots {
    by_label: BTreeMap<Arc<str>, Arc<TypeMetrics>>,
    /// The number of labels for types without rules of their own.
    unknown: usize,
}

/// The slots of the types. Bounded, so that a client that invents types can't grow the catalogue. Wide
/// because each field is a family of metrics, next to the slots.
#[derive(Debug)]
pub(super) struct TypeTable {
    slots: Mutex<TypeSlots>,
    requests: Counters<1>,
    reports: Counters<1>,
    responses: Counters<2>,
    response_bytes: Counters<1>,
    acks: Counters<1>,
    nacks: Counters<1>,
    heartbeats: Counters<1>,
    left_out: Counters<1>,
    changes: Counters<2>,
    resource_errors: Counters<2>,
    delivery: Family<Labels<1>, DurationHistogram>,
    resources: Gauges<2>,
    bytes: Gauges<1>,
    states: Gauges<2>,
}

impl TypeTable {
    pub(super) fn new(catalogue: &mut Catalogue) -> TypeTable {
        let left_out: Counters<1> = catalogue.add(
            "sluice_downstream_resources_left_out",
            "Resources left out of answers, because the client lacks a required feature",
        );
        let nacks: Counters<1> = catalogue.add("sluice_downstream_nacks", "Responses that clients NACKed");
        // A counter that begins at 1 shows no increase (OBS-10).
        for type_url in TypeUrl::known() {
            for counters in [&left_out, &nacks] {
                counters.get_or_create_owned(&[("type", type_url.short().into())]);
            }
        }
        let changes = catalogue.add("sluice_changes", "Published changes of content, by their end");
        for type_url in TypeUrl::known() {
            changes_of(&changes, &type_url.short().into());
        }
        TypeTable {
            slots: Mutex::default(),
            requests: catalogue.add("sluice_downstream_requests", "Requests read from clients"),
            reports: catalogue.add("sluice_downstream_reports", "Requests that are only reports of clients"),
            responses: catalogue.add("sluice_downstream_responses", "Responses sent to clients"),
            response_bytes: catalogue.sized(
                "sluice_downstream_response",
                "Bytes of responses sent to clients, as framed for gRPC",
            ),
            acks: catalogue.add("sluice_downstream_acks", "Responses that clients ACKed"),
            nacks,
            heartbeats: catalogue.add(
                "sluice_downstream_heartbeats",
                "Heartbeats of resources with a TTL sent to clients in the delta variant",
            ),
            left_out,
            changes,
            resource_errors: catalogue.add(
                "sluice_downstream_resource_errors",
                "Errors sent to clients in the place of resources, by gRPC status code",
            ),
            delivery: catalogue.timed(
                "sluice_downstream_delivery",
                "Time from the receipt of an update from upstream to a client's ACK",
            ),
            resources: catalogue.add("sluice_cache_resources", "Names in the caches, by state of knowledge"),
            bytes: catalogue.sized("sluice_cache_resource", "Bytes of the resources that are cached"),
            states: catalogue.add(
                "sluice_cache_resource_states",
                "Resources in the caches by their state in the terms of gRFC A88",
            ),
        }
    }

    pub(super) fn slot(&self, type_url: &TypeUrl) -> Arc<TypeMetrics> {
        let is_known = type_url.kind() != Kind::Other;
        let slots = &mut *self.slots.lock();
        let mut name = type_url.short();
        if !slots.by_label.contains_key(name) && !is_known {
            // Slots are reserved for the known types and for `other`.
            if is_fit_for_a_label(name) && slots.unknown < TYPES_MAX - KNOWN_TYPES - 1 {
                slots.unknown += 1;
            } else {
                name = OTHER;
            }
        }
        if let Some(slot) = slots.by_label.get(name) {
            return slot.clone();
        }
        let label: Arc<str> = Arc::from(name);
        let slot = Arc::new(self.new_slot(label.clone()));
        slots.by_label.insert(label, slot.clone());
        slot
    }

    fn new_slot(&self, label: Arc<str>) -> TypeMetrics {
        let by_type = [("type", label.clone())];
        let with = |key, value: &str| [("type", label.clone()), (key, Arc::from(value))];
        let cached = |state| self.resources.get_or_create_owned(&with("state", state));
        TypeMetrics {
            requests: self.requests.get_or_create_owned(&by_type),
            reports: self.reports.get_or_create_owned(&by_type),
            responses: VARIANTS
                .map(|variant| self.responses.get_or_create_owned(&with("variant", variant_name(variant)))),
            response_bytes: self.response_bytes.get_or_create_owned(&by_type),
            acks: self.acks.get_or_create_owned(&by_type),
            nacks: self.nacks.get_or_create_owned(&by_type),
            heartbeats: self.heartbeats.get_or_create_owned(&by_type),
            left_out: self.left_out.get_or_create_owned(&by_type),
            changes: changes_of(&self.changes, &label),
            resource_errors: self.resource_errors.clone(),
            delivery: self.delivery.get_or_create_owned(&by_type),
            present: cached("present"),
            absent: cached("absent"),
            unknown: cached("unknown"),
            bytes: self.bytes.get_or_create_owned(&by_type),
            states: EntryState::ALL
                .map(|state| self.states.get_or_create_owned(&with("state", state.label()))),
            label: label.clone(),
        }
    }
}

fn changes_of(changes: &Counters<2>, label: &Arc<str>) -> [Counter; ChangeOutcome::ALL.len()] {
    ChangeOutcome::ALL.map(|outcome| {
        changes.get_or_create_owned(&[("type", label.clone()), ("outcome", outcome.name().into())])
    })
}

/// Clients choose type names, so only valid protobuf names become labels.
fn is_fit_for_a_label(name: &str) -> bool {
    (1..=TYPE_NAME_BYTES_MAX).contains(&name.len())
        && name != OTHER
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
