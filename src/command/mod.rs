//! The operator's commands: clients of the admin API of one relay, or of several.
//!
//! 1. [`outcome`]: exit codes. [`console`]: the outputs. [`arguments`]: the arguments that all commands share. `text`,
//!    `table`, `yaml`: values for people.
//! 2. `address`, `connection`, `request`: one question to one relay. `relays`: the same question to all of them.
//! 3. `status`: each relay in a few lines. `list`: `get`. `get`: its arguments. `events`: a list that goes on.
//! 4. `change`, `wait`: one change. `client`: one client. `drain`, `log`: the acts.
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
mod status;
mod get;
mod change;
mod wait;
mod client;
mod events;
mod drain;
mod log;

use clap::Subcommand;

use arguments::{Reach, Show};
use console::Console;
use outcome::{Failure, Outcome};

/// The commands towards a running relay.
#[derive(Debug, Subcommand)]
pub enum Operate {
    /// Show each relay in a few lines: its clients, control planes, and the things to look at.
    Status(status::Status),
    /// Show clients, changes, sources, classes, resources, or refused clients.
    Get {
        #[command(subcommand)]
        list: get::Get,
    },
    /// Show the difference between a client's content and the content that it should have, or another client's.
    Diff {
        #[command(subcommand)]
        diff: client::Diff,
    },
    /// Say why a client has its content, link by link.
    Explain {
        #[command(subcommand)]
        explain: client::Explain,
    },
    /// Count the clients that have a resource, lack it, rejected it, or do not ask for it.
    Who(client::Who),
    /// Show what happened, once or as it comes.
    Events(events::Events),
    /// Wait until clients have a change.
    Wait(wait::Wait),
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
                Operate::Status(status) => status::run(status, console).await,
                Operate::Get { list } => get::run(list, console).await,
                Operate::Diff { diff } => client::diff(diff, console).await,
                Operate::Explain { explain } => client::explain(explain, console).await,
                Operate::Who(who) => client::who(who, console).await,
                Operate::Events(events) => events::run(events, console).await,
                Operate::Wait(wait) => wait::run(wait, console).await,
                Operate::Drain(drain) => drain::run(drain, console).await,
                Operate::Log(log) => log::run(log, console).await,
            }
        })
    }
}
