//! The next configuration, prepared: addresses bound, files read, settings made. Nothing is in force yet, and dropping it
//! frees everything (REL-2).

use std::sync::Arc;

use anyhow::{Result, anyhow};

use super::listeners::{self, NextListeners};
use super::live::Live;
use crate::app::admin::NextAdmin;
use crate::app::check::check_certificates;
use crate::app::handover::Ways;
use crate::app::servers::{self, Channels};
use crate::app::settings::relay_settings;
use crate::app::sockets::LiveListener;
use crate::config::Config;
use crate::driver::DriverSettings;
use crate::telemetry::logging::parse_directives;
use crate::telemetry::traces::TraceThread;
use crate::telemetry::{Metrics, resident_bytes};

/// A configuration that can come into force.
pub(super) struct Next {
    pub driver: DriverSettings,
    pub channels: Channels,
    pub listeners: NextListeners,
    pub admin: NextAdmin,
    /// `None`: the traces stay as they are.
    pub traces: Option<Option<TraceThread>>,
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

/// Everything that the preparation looks at. It runs on a thread that may wait for disks.
pub(super) struct Preparation {
    before: Config,
    /// The number of the next configuration.
    generation: u64,
    channels: Channels,
    listeners: Vec<LiveListener>,
    admin: crate::app::admin::LiveAdmin,
    metrics: Arc<Metrics>,
    ways: Arc<Ways>,
}

impl Preparation {
    pub(super) fn of(live: &Live, before: &Config, generation: u64) -> Preparation {
        Preparation {
            before: before.clone(),
            generation,
            channels: live.channels.clone(),
            listeners: live.listeners.clone(),
            admin: live.admin.clone(),
            metrics: live.base.metrics.clone(),
            ways: live.base.ways.clone(),
        }
    }

    /// `binds`: false for a plan, which opens no socket.
    pub(super) fn prepare(&self, config: &Config, binds: bool) -> Result<Next, Obstacle> {
        check_certificates(config).map_err(Obstacle::Invalid)?;
        let failed = |error: anyhow::Error| Obstacle::failed(&error);
        self.check_host(config).map_err(failed)?;
        let (lists, channels) =
            servers::lists(&config.servers, &self.metrics, &self.channels).map_err(failed)?;
        let driver = relay_settings(config, lists, self.generation);
        let ways = binds.then_some(&*self.ways);
        let listeners = listeners::prepare(&self.listeners, (&self.before, config), ways).map_err(failed)?;
        let admin = NextAdmin::prepare(&self.admin, (&self.before, config)).map_err(failed)?;
        let traces = self.traces(config, binds).map_err(failed)?;
        Ok(Next { driver, channels, listeners, admin, traces })
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
