//! The registry of all metrics, and the shapes of their labels.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry, Unit};

use crate::telemetry::events::Events;
use sluice_xds::Variant;

pub(super) type Labels<const N: usize> = [(&'static str, Arc<str>); N];
pub(super) type Counters<const N: usize> = Family<Labels<N>, Counter>;
pub(super) type Gauges<const N: usize> = Family<Labels<N>, Gauge>;
pub(super) type SecondsGauge = Gauge<f64, AtomicU64>;

pub(super) fn variant_name(variant: Variant) -> &'static str {
    match variant {
        Variant::Sotw => "sotw",
        Variant::Delta => "delta",
    }
}

pub(super) const VARIANTS: [Variant; 2] = [Variant::Sotw, Variant::Delta];

/// The registry, and the names in it.
#[derive(Debug, Default)]
pub(super) struct Catalogue {
    pub(super) registry: Registry,
    pub(super) families: Vec<String>,
    /// The ring of events, for the handles of rooms that report some.
    pub(super) events: Events,
}

impl Catalogue {
    pub(super) fn register(
        &mut self,
        name: &'static str,
        help: &'static str,
        unit: Option<Unit>,
        metric: impl Metric,
    ) {
        match unit {
            None => {
                self.families.push(name.to_owned());
                self.registry.register(name, help, metric);
            }
            Some(unit) => {
                self.families.push(format!("{name}_{}", unit.as_str()));
                self.registry.register_with_unit(name, help, unit, metric);
            }
        }
    }

    pub(super) fn add<M: Metric + Clone + Default>(&mut self, name: &'static str, help: &'static str) -> M {
        let metric = M::default();
        self.register(name, help, None, metric.clone());
        metric
    }

    /// Registers a metric in bytes; the unit becomes part of the name.
    pub(super) fn sized<M: Metric + Clone + Default>(&mut self, name: &'static str, help: &'static str) -> M {
        let metric = M::default();
        self.register(name, help, Some(Unit::Bytes), metric.clone());
        metric
    }

    /// Registers a metric in seconds; the unit becomes part of the name.
    pub(super) fn timed<M: Metric + Clone + Default>(&mut self, name: &'static str, help: &'static str) -> M {
        let metric = M::default();
        self.register(name, help, Some(Unit::Seconds), metric.clone());
        metric
    }
}
