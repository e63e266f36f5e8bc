//! The next configuration, prepared: addresses bound, files read, settings made. Nothing is in force yet, and
//! dropping it frees everything (REL-2).

use std::sync::Arc;

use anyhow::{Result, anyhow};
use tokio::runtime::Handle;

use super::listeners::{self, NextListeners};
use crate::app::admin::NextAdmin;
use crate::app::check::check_certificates;
use crate::app::facts::{self, Opened};
use crate::app::handover::Ways;
use crate::app::servers::{self, Channels};
use crate::app::settings::{default_response_bytes, relay_settings};
use crate::app::sockets::LiveListener;
use crate::config::Config;
use crate::driver::DriverSettings;
use crate::telemetry::logging::parse_directives;
use crate::telemetry::traces::TraceThread;
use crate::telemetry::{Metrics, resident_bytes};
use sluice_engine::class::facts::FactTable;

/// A configuration that can come into force.
pub(super) struct Next {
    pub driver: DriverSettings,
    pub channels: Channels,
    pub listeners: NextListeners,
    pub admin: NextAdmin,
    /// `None`: the traces stay as they are.
    pub traces: Option<Option<TraceThread>>,
    /// `None`: the source of the facts stays.
    pub facts: Option<Opened>,
}

/// The reason why a configuration cannot come into force.
pub(super) enum Obstacle {
    /// Faults of the configuration and its files.
    Invalid(Vec<String>),
    /// The host refuses.
    Failed(Vec<String>),
}

impl Obstacle {
    fn failed(error: &anyhow::Error) -> Obstacle {
        Obstacle::Failed(vec![format!("{error:#}")])
    }
}

/// The parts of the host that a preparation touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PreparationDepth {
    /// None: the text of a caller could name any file, and its faults would quote what is there (REL-10).
    Text,
    /// Files are read; no socket is opened.
    Files,
    /// Addresses are bound, too.
    Sockets,
}

/// Everything that the preparation looks at. It runs on a thread that may wait for disks.
pub(super) struct Preparation {
    pub before: Config,
    /// The number of the next configuration.
    pub generation: u64,
    pub channels: Channels,
    pub listeners: Vec<LiveListener>,
    pub admin: crate::app::admin::LiveAdmin,
    pub facts: Arc<FactTable>,
    pub metrics: Arc<Metrics>,
    pub ways: Arc<Ways>,
}

impl Preparation {
    pub(super) fn prepare(&self, config: &Config, depth: PreparationDepth) -> Result<Next, Obstacle> {
        let (has_files, binds) = (depth != PreparationDepth::Text, depth == PreparationDepth::Sockets);
        if has_files {
            check_certificates(config).map_err(Obstacle::Invalid)?;
        }
        let failed = |error: anyhow::Error| Obstacle::failed(&error);
        self.check_host(config).map_err(failed)?;
        let lists = match depth {
            PreparationDepth::Text => servers::planned(&config.servers, &self.channels),
            PreparationDepth::Files | PreparationDepth::Sockets => {
                let response_bytes = default_response_bytes(config);
                servers::lists(&config.servers, response_bytes, &self.metrics, &self.channels)
            }
        };
        let (lists, channels) = lists.map_err(failed)?;
        let facts = self.facts(config, depth)?;
        let table = facts.as_ref().map_or(&self.facts, |opened| &opened.table);
        let driver = relay_settings(config, lists, table.clone(), self.generation);
        let ways = binds.then_some(&*self.ways);
        let before = &self.before;
        let listeners =
            listeners::prepare(&self.listeners, before, config, ways, has_files).map_err(failed)?;
        let admin = NextAdmin::prepare(&self.admin, before, config, has_files).map_err(failed)?;
        let traces = self.traces(config, binds).map_err(failed)?;
        Ok(Next { driver, channels, listeners, admin, traces, facts })
    }

    /// The facts of another source. `None`: those in force stay, whatever their source has now.
    fn facts(&self, config: &Config, depth: PreparationDepth) -> Result<Option<Opened>, Obstacle> {
        if config.facts == self.before.facts {
            return Ok(None);
        }
        let invalid = |fault: String| Obstacle::Invalid(vec![fault]);
        match depth {
            PreparationDepth::Text if config.facts.is_some() => {
                let text = "facts: the text of a caller opens no file and asks no cluster, and this source is not in force";
                Err(invalid(text.to_owned()))
            }
            PreparationDepth::Text | PreparationDepth::Files => {
                Ok(Some(facts::planned(config).map_err(invalid)?))
            }
            PreparationDepth::Sockets => {
                let opened =
                    Handle::current().block_on(facts::open(config, facts::AT_RELOAD)).map_err(invalid)?;
                match opened.refusal() {
                    Some(fault) => Err(Obstacle::Failed(vec![fault])),
                    None => Ok(Some(opened)),
                }
            }
        }
    }

    fn check_host(&self, config: &Config) -> Result<()> {
        if config.limits.relay.memory_bytes.is_some() && resident_bytes().is_none() {
            let text =
                "cannot enforce limits.memory_bytes: /proc/self/status does not report the resident memory";
            return Err(anyhow!(text));
        }
        parse_directives(&config.log.level).map_err(|error| anyhow!("log.level: {error}"))?;
        Ok(())
    }

    fn traces(&self, config: &Config, starts: bool) -> Result<Option<Option<TraceThread>>> {
        if self.before.traces == config.traces || !starts {
            return Ok(None);
        }
        let start = |to| self.metrics.traces.start(to, &config.node.id);
        Ok(Some(config.traces.as_ref().map(start).transpose()?))
    }
}
