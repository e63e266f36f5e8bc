//! The standard small run, by one command: shows the effect of a change on the relay's cost.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::client::Profile;
use crate::relay::{Relay, free_address};
use crate::run::{self, Figures, Source, Spec};
use crate::xds::Variant;

const CLIENTS: usize = 1000;
const CLUSTERS: usize = 100;
const CLUSTER_BYTES: usize = 500;
const CHANGES: usize = 5;

#[derive(Args)]
pub struct Arguments {
    /// The relay's binary; the tool does not build it
    #[arg(long, value_name = "PATH")]
    sluice: PathBuf,
    /// Take the same figures of the tool's own control plane, without a relay: a plain h2 server for
    /// comparison
    #[arg(long)]
    floor: bool,
    /// Write the figures to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Each run has a new relay, so that no run inherits memory of another.
pub fn run(arguments: &Arguments) -> Result<Vec<Figures>> {
    let mut runs = Vec::new();
    for variant in [Variant::Sotw, Variant::Delta] {
        runs.push(through_relay(arguments, variant)?);
    }
    if arguments.floor {
        for variant in [Variant::Sotw, Variant::Delta] {
            runs.push(floor(variant)?);
        }
    }
    Ok(runs)
}

fn through_relay(arguments: &Arguments, variant: Variant) -> Result<Figures> {
    let control_plane = ControlPlaneProcess::start()?;
    let relay = Relay::start(&arguments.sluice, control_plane.listen)?;
    let pid = relay.pid();
    let measured = run::run(&standard("relay", variant, relay.address, pid, control_plane.commands), None);
    let mut figures = match measured {
        Ok(figures) => figures,
        Err(error) => bail!("{error:#}; the relay's log ends with:\n{}", relay.log_tail()),
    };
    if figures.errors > 0 {
        figures.add_error(format!("the relay's log ends with:\n{}", relay.log_tail()));
    }
    if let Err(error) = relay.stop() {
        figures.add_error(format!("{error:#}"));
    }
    Ok(figures)
}

fn floor(variant: Variant) -> Result<Figures> {
    let control_plane = ControlPlaneProcess::start()?;
    let pid = control_plane.child.id().cast_signed();
    run::run(&standard("no relay", variant, control_plane.listen, pid, control_plane.commands), None)
}

fn standard(name: &str, variant: Variant, target: SocketAddr, pid: i32, commands: SocketAddr) -> Spec {
    let profile = Profile::plain(variant, CLUSTERS);
    let spec = Spec::rounds(name, target, profile, CLIENTS, Source::Remote(commands));
    Spec { pid: Some(pid), resource_bytes: CLUSTER_BYTES, changes: CHANGES, ..spec }
}

/// The control plane as a separate process: the relay needs a control plane before it is ready, the CPU time
/// is apart from the clients', and a floor is measured by its pid.
struct ControlPlaneProcess {
    child: Child,
    listen: SocketAddr,
    commands: SocketAddr,
}

impl ControlPlaneProcess {
    fn start() -> Result<ControlPlaneProcess> {
        let (listen, commands) = (free_address()?, free_address()?);
        let child = Command::new(std::env::current_exe()?)
            .args(["control-plane", "--listen", &listen.to_string(), "--commands", &commands.to_string()])
            .args(["--resources", &CLUSTERS.to_string(), "--size", &CLUSTER_BYTES.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a control plane")?;
        let mut process = ControlPlaneProcess { child, listen, commands };
        // The first line reports that the process listens.
        let mut line = String::new();
        let stdout = process.child.stdout.take().context("the control plane has no output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(!line.is_empty(), "the control plane ended before it listened");
        Ok(process)
    }
}

impl Drop for ControlPlaneProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
