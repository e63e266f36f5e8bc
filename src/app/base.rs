//! The parts from before the runtime until after its end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tracing::warn;

use super::ending::Ending;
use super::handover::Ways;
use crate::config::Config;
use crate::handover::HandoverSettings;
use crate::telemetry::logging::{self, LogGuard, LogLevel};
use crate::telemetry::{Metrics, logging::LogFormat};
use sluice_setting::InForce;

pub(super) struct Base {
    pub metrics: Arc<Metrics>,
    format: InForce<LogFormat>,
    pub log: Arc<LogLevel>,
    pub ending: Ending,
    pub handover: InForce<HandoverSettings>,
    pub drain_delay: InForce<Duration>,
    /// The sockets of all listeners.
    pub ways: Arc<Ways>,
}

impl Base {
    /// Begins to log. The log ends with the guard.
    pub(super) fn begin(config: &Config) -> Result<(Base, LogGuard)> {
        let metrics = Arc::new(Metrics::new());
        let format = InForce::new(config.log.format);
        let (guard, filter) =
            logging::init(format.clone(), &config.log.level, &metrics.log).context("log")?;
        let log = LogLevel::new(filter, config.log.level.clone());
        let ending = Ending::new(InForce::new(config.drain));
        let handover = InForce::new(config.handover.clone());
        let (drain_delay, ways) = (InForce::new(config.drain_delay), Arc::default());
        Ok((Base { metrics, format, log, ending, handover, drain_delay, ways }, guard))
    }

    /// Puts another log, and other times for the end of the process, in force.
    pub(super) fn configure(&self, config: &Config) {
        self.format.publish(config.log.format);
        if let Err(error) = self.log.configure(&config.log.level) {
            warn!(%error, "cannot change the log directives");
        }
        self.ending.configure(config.drain);
        self.drain_delay.publish(config.drain_delay);
        self.handover.publish(config.handover.clone());
    }

    pub(super) fn start_traces(&self, config: &Config) -> Result<()> {
        let start = |to| self.metrics.traces.start(to, &config.node.id);
        self.metrics.traces.configure(config.traces.as_ref().map(start).transpose()?);
        Ok(())
    }
}
