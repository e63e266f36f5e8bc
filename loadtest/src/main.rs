//! Load generator for xDS servers: many simulated clients in one thread, a scripted control plane, figures taken from
//! the kernel.
//!
//! In reading order: [`scenario`] is what happens, [`client`] and [`control_plane`] are the two ends of it,
//! [`measure`] reads clocks and memory, [`report`] tells. [`relay`] runs a relay for [`first_figures`].

mod xds;

mod measure;
mod proto;
mod stamp;

mod client;
mod control_plane;

mod scenario;

mod report;

mod first_figures;
mod relay;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use crate::client::Profile;
use crate::control_plane::{ControlPlane, Plan};
use crate::report::Figures;
use crate::scenario::{Scenario, Source};
use crate::xds::Variant;

/// Load generator for xDS servers
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Connect many clients to a server, change a cluster at the control plane above it, and measure.
    Run(Run),
    /// Serve the control plane alone; a line `change` on the command address changes one cluster.
    ControlPlane(Serve),
    /// Start a relay below a control plane of ours and take the standard small run: 1,000 clients, 100 clusters of
    /// 500 bytes, SotW and delta, five changes of one cluster.
    FirstFigures(first_figures::Arguments),
}

#[derive(Args)]
struct Run {
    /// The xDS server under test
    #[arg(long, value_name = "HOST:PORT")]
    target: String,
    /// Process of the server, to read its memory and CPU time; without it those figures are left out. Memory per client
    /// means something only of a server that has not served others before: allocators keep what they had
    #[arg(long)]
    pid: Option<i32>,
    /// Connections, each with one ADS stream
    #[arg(long, default_value_t = 1000)]
    clients: usize,
    /// Clusters that the control plane serves
    #[arg(long, default_value_t = 100)]
    resources: usize,
    /// About how long a cluster is, in bytes; at least about 200
    #[arg(long, default_value_t = 500, value_name = "BYTES")]
    size: usize,
    /// Variant that the clients speak
    #[arg(long, value_enum, default_value_t = Variant::Sotw)]
    mode: Variant,
    /// How often cluster 0 changes
    #[arg(long, default_value_t = 5)]
    changes: usize,
    /// Where the control plane listens, for the server under test to use as its upstream
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:18001")]
    control_plane: SocketAddr,
    /// Use a `sluice-load control-plane` on this machine instead, by its command address
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["control_plane", "no_control_plane"])]
    remote_control_plane: Option<SocketAddr>,
    /// Serve nothing and change nothing: connect to a server that has its resources from elsewhere
    #[arg(long, conflicts_with = "control_plane")]
    no_control_plane: bool,
    /// About how long a client's node is; an Envoy 1.40 sends 61000
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    node_bytes: usize,
    /// Repeat the node in every request, ACKs included, as Envoy does by default
    #[arg(long)]
    node_every_request: bool,
    /// Subscribe each client to the endpoints of so many clusters by name as well
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    eds_names: usize,
    /// How many clients may wait for their first answer at once
    #[arg(long, default_value_t = 128, value_name = "COUNT")]
    in_flight: usize,
    /// How long to wait before memory is read, in milliseconds
    #[arg(long, default_value_t = 3000)]
    settle_ms: u64,
    /// How long to wait after a change has reached everybody, in milliseconds
    #[arg(long, default_value_t = 500)]
    pause_ms: u64,
    /// After how long without an answer or an update a client has failed, in seconds
    #[arg(long, default_value_t = 30)]
    timeout_s: u64,
    /// Write the figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Args)]
struct Serve {
    /// Where to serve ADS
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:18001")]
    listen: SocketAddr,
    /// Where to take commands
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:18002")]
    commands: SocketAddr,
    /// Clusters to serve
    #[arg(long, default_value_t = 100)]
    resources: usize,
    /// About how long a cluster is, in bytes
    #[arg(long, default_value_t = 500, value_name = "BYTES")]
    size: usize,
}

impl Run {
    fn scenario(&self) -> Result<Scenario> {
        let source = match self.remote_control_plane {
            Some(address) => Source::Remote(address),
            None if self.no_control_plane => Source::None,
            None => Source::Own(Plan {
                listen: self.control_plane,
                commands: None,
                clusters: self.resources,
                cluster_bytes: self.size,
            }),
        };
        let scenario = Scenario {
            name: self.target.clone(),
            target: scenario::resolve(&self.target)?,
            pid: self.pid,
            clients: self.clients,
            profile: Profile {
                variant: self.mode,
                node_bytes: self.node_bytes,
                node_every_request: self.node_every_request,
                endpoint_names: self.eds_names,
            },
            clusters: self.resources,
            cluster_bytes: self.size,
            changes: self.changes,
            source,
            in_flight: self.in_flight,
            settle: Duration::from_millis(self.settle_ms),
            pause: Duration::from_millis(self.pause_ms),
            patience: Duration::from_secs(self.timeout_s),
        };
        scenario.check()?;
        Ok(scenario)
    }
}

fn main() -> ExitCode {
    match command(Arguments::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "sluice-load: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything that was measured worked.
fn command(command: Command) -> Result<bool> {
    match command {
        Command::Run(arguments) => {
            let figures = scenario::run(&arguments.scenario()?)?;
            if let Some(path) = &arguments.json {
                report::write_one(path, &figures)?;
            }
            tell(&[figures])
        }
        Command::FirstFigures(arguments) => {
            let runs = first_figures::run(&arguments)?;
            if let Some(path) = &arguments.json {
                report::write_many(path, &runs)?;
            }
            tell(&runs)
        }
        Command::ControlPlane(arguments) => serve(&arguments).map(|()| true),
    }
}

fn tell(runs: &[Figures]) -> Result<bool> {
    report::print(runs)?;
    Ok(runs.iter().all(|run| run.errors == 0))
}

/// Serves until the process is ended.
fn serve(arguments: &Serve) -> Result<()> {
    measure::raise_open_files(0)?;
    let plan = Plan {
        listen: arguments.listen,
        commands: Some(arguments.commands),
        clusters: arguments.resources,
        cluster_bytes: arguments.size,
    };
    let control_plane = ControlPlane::start(&plan)?;
    writeln!(std::io::stdout(), "serving on {}, commands on {}", plan.listen, arguments.commands)?;
    control_plane.wait()
}
