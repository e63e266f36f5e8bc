//! The operator's commands: clients of the admin API of one relay, or of several.
//!
//! 1. [`outcome`]: exit codes. [`console`]: the outputs. [`arguments`]: the arguments that all commands
//!    share. `text`, `table`, `yaml`: values for people.
//! 2. `address`, `connection`, `request`, `sse`: one question to one relay. `typed`: the answer. `relays`:
//!    the same question to all of them.
//! 3. `list`: `get`. `answer`: answers besides lists. `status`: each relay in a few lines. `get`: its
//!    arguments. `events`: an endless list.
//! 4. `change`, `wait`: one change. `classes`, `learn`: the node classes. `loads`: what clients report.
//!    `rollout`: pushes. `order`: orders to plans. `client`, `tail`: one client. `drain`, `upgrade`, `log`,
//!    `reload`: the acts. `ui`: the page.
//!
//! A command prints data to `out` and everything else to `err`, and ends with an exit code (CMD-2). Names are
//! never cut, and texts of clients never control the terminal (CMD-3).

pub mod outcome;
mod text;
mod table;
mod yaml;
pub mod console;
pub mod arguments;
mod address;
mod connection;
mod typed;
mod request;
mod sse;
mod relays;
mod list;
mod answer;
mod status;
mod get;
mod change;
mod wait;
mod client;
mod tail;
mod events;
pub mod learn;
pub mod splits;
pub mod ledger;
mod loads;
pub mod classes;
mod drain;
mod upgrade;
mod log;
mod reload;
mod rollout;
mod order;
mod ui;

use clap::Subcommand;

use arguments::{RelayArguments, Show};
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
    /// Show the difference between a client's content and the content that it should have, or another
    /// client's.
    Diff {
        #[command(subcommand)]
        diff: client::diff::Diff,
    },
    /// Say why a client has its content, link by link.
    Explain {
        #[command(subcommand)]
        explain: client::explain::Explain,
    },
    /// Count the clients that have a resource, lack it, rejected it, or do not ask for it.
    Who(client::who::Who),
    /// Show the versions of a resource at the clients, and the clients that rejected them.
    Versions(client::versions::Versions),
    /// Show what the plans of `rollouts` say about pushes, and give orders to them.
    Rollout {
        #[command(subcommand)]
        rollout: rollout::Rollout,
    },
    /// Show the node classes with what is proved of each, and prove one now.
    Classes(classes::ClassesArguments),
    /// Show the load that clients report: the clusters with the greatest shares of errors, or the classes.
    Load(loads::LoadArguments),
    /// Show the ledger that several relays share, or believe a ledger after a loss of data.
    Ledger {
        #[command(subcommand)]
        ledger: ledger::LedgerCommand,
    },
    /// Show the requests and responses of one client, live.
    Tail(tail::TailArguments),
    /// Show what happened, once or as it comes.
    Events(events::EventsArguments),
    /// Wait until clients have a change.
    Wait(wait::Wait),
    /// Take one relay out of service, and let its clients go over a time.
    Drain(drain::Drain),
    /// Start a new process in place of a relay, without a refused connection.
    Upgrade(upgrade::Upgrade),
    /// Set the level of the log for a time.
    Log(log::LogArguments),
    /// Take the configuration file again, or only say what that would do.
    Reload(reload::ReloadArguments),
    /// Take an earlier configuration of the running process again.
    Rollback(reload::Rollback),
    /// Open the page of a relay to a browser of this host, as you.
    Ui(ui::Ui),
}

impl Operate {
    /// Runs the command to the end.
    pub fn run(self, console: &mut Console<'_>) -> Result<Outcome, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::Internal(format!("runtime: {error}")))?;
        runtime.block_on(async {
            match self {
                Operate::Status(status) => status::run(status, console).await,
                Operate::Get { list } => get::run(list, console).await,
                Operate::Diff { diff } => client::diff::run(diff, console).await,
                Operate::Explain { explain } => client::explain::run(explain, console).await,
                Operate::Who(who) => client::who::run(who, console).await,
                Operate::Versions(versions) => client::versions::run(versions, console).await,
                Operate::Rollout { rollout } => rollout::run(rollout, console).await,
                Operate::Classes(classes) => classes::run(classes, console).await,
                Operate::Load(load) => loads::run(load, console).await,
                Operate::Ledger { ledger } => ledger::run(ledger, console).await,
                Operate::Tail(tail) => tail::run(tail, console).await,
                Operate::Events(events) => events::run(events, console).await,
                Operate::Wait(wait) => wait::run(wait, console).await,
                Operate::Drain(drain) => drain::run(drain, console).await,
                Operate::Upgrade(upgrade) => upgrade::run(upgrade, console).await,
                Operate::Log(log) => log::run(log, console).await,
                Operate::Reload(reload) => reload::reload(reload, console).await,
                Operate::Rollback(rollback) => reload::rollback(rollback, console).await,
                Operate::Ui(ui) => ui::run(ui, console).await,
            }
        })
    }
}
