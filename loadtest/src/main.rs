//! Load generator for xDS servers: many simulated clients in one thread, a scripted control plane, figures
//! taken from the kernel.
//!
//! In reading order: [`run`] executes scenarios between [`client`] and [`control_plane`]; [`measure`] reads
//! clocks and memory; [`live`], [`report`] and [`assertion`] present the results. [`cli`] is the command
//! line; [`relay`] runs a relay for [`first_figures`].

mod xds;

mod measure;
mod proto;
mod stamp;
mod tls;

mod function;
mod load;

mod client;
mod control_plane;

mod run;

mod assertion;
mod live;
mod report;

mod cli;
mod first_figures;
mod relay;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use crate::control_plane::{ControlPlane, Plan};
use crate::live::Live;
use crate::run::Figures;
use crate::xds::Kind;

/// Load generator for xDS servers
///
/// Simulates many xDS clients in one thread and, if wanted, the control plane upstream of the server under
/// test. Latencies run from a change at the control plane to the last byte at the client.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Connect many clients to a server, run a scenario, and measure
    Run(Box<cli::Run>),
    /// Serve only the control plane; lines on the command address make changes and outages
    ControlPlane(Serve),
    /// Write certificates for `run --tls`: an authority, a pair for the server, and pairs for clients
    Certs(Certificates),
    /// Start a relay with a control plane and take the standard small run: 1,000 clients, 100 clusters of 500
    /// bytes, SotW and delta, five changes of one cluster
    FirstFigures(first_figures::Arguments),
}

#[derive(Args)]
struct Serve {
    /// Address to serve xDS on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:18001")]
    listen: SocketAddr,
    /// Address for commands, one per line: `change` changes the first cluster; `down` and `up` begin and end
    /// an outage; `rule NANOSECONDS cds` puts --rule in force; `load` is answered by the sums of the load reports
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:18002")]
    commands: SocketAddr,
    /// Number of resources of each type
    #[arg(long, default_value_t = 100)]
    resources: usize,
    /// Types to serve; the first is the changing type
    #[arg(long, value_enum, value_delimiter = ',', value_name = "TYPES", default_value = "cds,eds")]
    types: Vec<Kind>,
    /// Approximate size of a resource of the first type in bytes; resources of the others are small
    #[arg(long, default_value_t = 500, value_name = "BYTES")]
    size: usize,
    /// Interval at which the control plane asks for load reports, in seconds
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    load_interval: f64,
    #[command(flatten)]
    function: cli::FunctionOptions,
}

#[derive(Args)]
struct Certificates {
    /// Directory for the authority, the server's pair below relay, and clients; the trust domain is load.example
    directory: PathBuf,
    /// Number of clients with a certificate of their own
    #[arg(long, default_value_t = 100)]
    identities: usize,
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

/// Runs a command. True if all measurements succeeded and all assertions hold.
fn command(command: Command) -> Result<bool> {
    match command {
        Command::Run(arguments) => run_one(&arguments),
        Command::FirstFigures(arguments) => {
            let runs = first_figures::run(&arguments)?;
            if let Some(path) = &arguments.json {
                report::write_many(path, &runs)?;
            }
            report::print(&runs, &[])?;
            Ok(worked(&runs))
        }
        Command::ControlPlane(arguments) => serve(&arguments).map(|()| true),
        Command::Certs(arguments) => {
            tls::write_certificates(&arguments.directory, arguments.identities).map(|()| true)
        }
    }
}

fn run_one(arguments: &cli::Run) -> Result<bool> {
    let spec = arguments.spec()?;
    let live = Live::start(&spec.scenario.name(), spec.clients, arguments.expected(&spec));
    let figures = run::run(&spec, live.as_ref());
    drop(live);
    let figures = figures?;
    let judged: Vec<_> = arguments.assertions().iter().map(|assertion| assertion.judge(&figures)).collect();
    if let Some(path) = arguments.json() {
        report::write_one(path, &figures, &judged)?;
    }
    if let Some(path) = arguments.report() {
        report::write_page(path, &figures, &judged)?;
    }
    let runs = [figures];
    report::print(&runs, &judged)?;
    Ok(worked(&runs) && judged.iter().all(|verdict| verdict.holds))
}

fn worked(runs: &[Figures]) -> bool {
    runs.iter().all(|run| run.errors == 0)
}

/// Serves until the process is ended.
fn serve(arguments: &Serve) -> Result<()> {
    measure::raise_open_files(0)?;
    let first = arguments.types.first().copied().unwrap_or(Kind::Cluster);
    let plan = Plan {
        listen: arguments.listen,
        commands: Some(arguments.commands),
        resources: arguments.resources,
        kinds: cli::plan_kinds(&arguments.types, first, arguments.size),
        function: arguments.function.read()?,
        load_interval: cli::load_interval(arguments.load_interval)?,
    };
    let control_plane = ControlPlane::start(&plan)?;
    writeln!(std::io::stdout(), "serving on {}, commands on {}", plan.listen, arguments.commands)?;
    control_plane.wait()
}
