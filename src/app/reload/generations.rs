//! The latest configurations, for a way back (REL-9).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use crate::admin::reloading::{ConfigHistory, GenerationStatus, LastReload};
use crate::config::{Config, Loaded, Shown, process_keys};

/// The generations in memory, that in force included. A text takes some kilobytes.
const KEPT_MAX: usize = 8;

/// A configuration that is or was in force.
#[derive(Clone, Debug)]
pub(super) struct ConfigGeneration {
    pub number: u64,
    /// Complete, for the way back. It is never shown.
    pub config: Config,
    /// The text without credentials.
    pub shown: Arc<Shown>,
    pub since: SystemTime,
}

/// There is always one.
#[derive(Debug)]
pub(super) struct Generations(VecDeque<ConfigGeneration>);

impl Generations {
    pub(super) fn new(loaded: Loaded, since: SystemTime) -> Generations {
        let Loaded { config, shown, .. } = loaded;
        Generations(VecDeque::from([ConfigGeneration { number: 1, config, shown: Arc::new(shown), since }]))
    }

    /// The generation in force.
    pub(super) fn current(&self) -> Option<&ConfigGeneration> {
        self.0.back()
    }

    pub(super) fn number(&self) -> u64 {
        self.current().map_or(0, |current| current.number)
    }

    /// The generation with a number, or the one before that in force.
    ///
    /// # Errors
    /// The numbers of those that are kept.
    pub(super) fn find(&self, number: Option<u64>) -> Result<&ConfigGeneration, String> {
        let generation = match number {
            Some(number) => self.0.iter().find(|generation| generation.number == number),
            None => self.0.iter().rev().nth(1),
        };
        generation.ok_or_else(|| match number {
            Some(number) => {
                let kept: Vec<_> = self.0.iter().map(|generation| generation.number.to_string()).collect();
                format!("generation {number} is not kept; kept: {}", kept.join(", "))
            }
            None => "there is no generation before the one in force".to_owned(),
        })
    }

    pub(super) fn add(&mut self, config: Config, shown: Shown, since: SystemTime) -> u64 {
        let number = self.number() + 1;
        self.0.push_back(ConfigGeneration { number, config, shown: Arc::new(shown), since });
        while self.0.len() > KEPT_MAX {
            self.0.pop_front();
        }
        number
    }

    /// Another spelling of the configuration in force.
    pub(super) fn respell(&mut self, config: Config, shown: Shown) {
        if let Some(current) = self.0.back_mut() {
            (current.config, current.shown) = (config, Arc::new(shown));
        }
    }

    pub(super) fn status(&self, file: &std::path::Path, last_reload: Option<LastReload>) -> ConfigHistory {
        let status = |generation: &ConfigGeneration| GenerationStatus {
            number: generation.number,
            hash: generation.config.hash.clone(),
            since: generation.since,
            document: Arc::clone(&generation.shown.document),
            class_places: generation.shown.class_places().iter().map(ToString::to_string).collect(),
        };
        ConfigHistory {
            file: Some(file.to_owned()),
            generations: self.0.iter().map(status).collect(),
            last_reload,
            needs_process: process_keys(),
        }
    }

    /// The texts, by number.
    pub(super) fn shown(&self) -> Vec<(u64, Arc<Shown>)> {
        self.0.iter().map(|generation| (generation.number, generation.shown.clone())).collect()
    }
}
