//! The operator's commands: clients of the admin API of one relay, or of several.
//!
//! 1. [`outcome`]: exit codes. [`console`]: the outputs. [`arguments`]: the arguments that all commands share. `text`,
//!    `table`, `yaml`: values for people.
//! 2. `address`, `connection`, `request`: one question to one relay. `relays`: the same question to all of them.
//! 3. `list`: `get`. `get`: its arguments. `drain`, `log`: the acts.
//!
//! A command prints data to `out` and everything else to `err`, and ends with an exit code (CMD-2). Names are never
//! cut, and texts of clients never control the terminal (CMD-3).

pub mod outcome;
mod text;
mod table;
mod yaml;
pub mod console;
pub mod arguments;
mod address;
mod connection;
mod request;
mod relays;
mod list;
mod get;
mod drain;
mod log;

use clap::Subcommand;

use arguments::{Reach, Show};
use console::Console;
use outcome::{Failure, Outcome};

/// The commands towards a running relay.
#[derive(Debug, Subcommand)]
pub enum Operate {
    /// Show clients, sources, resources, or refused clients.
    Get {
        #[command(subcommand)]
        list: get::Get,
    },
    /// Take one relay out of service, and let its clients go over a time.
    Drain(drain::Drain),
    /// Set the level of the log for a time.
    Log(log::Log),
}

impl Operate {
    /// Runs the command to its end.
    pub fn run(self, console: &mut Console<'_>) -> Result<Outcome, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::Internal(format!("runtime: {error}")))?;
        runtime.block_on(async {
            match self {
                Operate::Get { list } => get::run(list, console).await,
                Operate::Drain(drain) => drain::run(drain, console).await,
                Operate::Log(log) => log::run(log, console).await,
            }
        })
    }
}
