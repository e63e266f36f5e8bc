//! Puts facts in force, and tells what is wrong with them.

use std::sync::Arc;

use tokio::sync::Mutex;
use tracing::debug;

use super::tell_missing;
use crate::driver::Relay;
use crate::telemetry::events::tell;
use crate::telemetry::{Metrics, wall_now};
use sluice_engine::class::facts::FactTable;

pub(super) struct FactKeeper {
    relay: Relay,
    metrics: Arc<Metrics>,
    in_force: Arc<FactTable>,
    /// Held while facts come into force.
    turn: Arc<Mutex<()>>,
    /// The fields of rules that no entry has, as last told.
    missing: Vec<String>,
}

impl FactKeeper {
    pub fn new(
        relay: &Relay,
        metrics: &Arc<Metrics>,
        in_force: Arc<FactTable>,
        turn: Arc<Mutex<()>>,
    ) -> FactKeeper {
        FactKeeper { relay: relay.clone(), metrics: metrics.clone(), in_force, turn, missing: Vec::new() }
    }

    /// Takes facts that may be those in force.
    pub async fn take(&mut self, source: &str, table: Arc<FactTable>) {
        if *table != *self.in_force {
            self.learn(source, table).await;
        }
    }

    /// Takes other facts.
    pub async fn learn(&mut self, source: &str, table: Arc<FactTable>) {
        self.in_force = table;
        self.metrics.facts.in_force(self.in_force.len());
        debug!(source, entries = self.in_force.len(), "other facts of clients");
        let turn = self.turn.lock().await;
        self.relay.learn(self.in_force.clone());
        drop(turn);
        self.tell_missing();
    }

    /// The source has the facts in force.
    pub fn confirm(&self) {
        self.metrics.facts.confirmed(wall_now());
    }

    pub fn tell_missing(&mut self) {
        self.missing = tell_missing(&self.relay, &self.missing);
    }

    /// Tells that the facts may be old.
    pub fn tell(&self, source: &str, reason: &str) {
        tell!(self.metrics.events, warn(Class, "cannot use the facts of clients").place(source).detail(reason);
            { source, reason } + "; the last good ones stay in force");
        self.metrics.facts.failing();
    }

    /// Tells that Pods have too many labels, or all of them too much text.
    pub fn tell_refused(&self, pods: usize) {
        let reason = "a Pod has too many labels, or the Pods of the cluster too many different ones";
        tell!(self.metrics.events, warn(Class, "Pods have no facts for want of room").place("kubernetes").detail(reason);
            { pods, reason } + "; each of their clients has a class of its own");
    }

    /// Tells that there are no facts yet.
    pub fn tell_absent(&self, reason: &str) {
        tell!(self.metrics.events, warn(Class, "cannot use the facts of clients").place("kubernetes").detail(reason);
            { source = "kubernetes", reason } + "; each client has a class of its own until they are known");
        self.metrics.facts.failing();
    }
}
