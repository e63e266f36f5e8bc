//! The arguments of `sluice classes learn`. `app` carries it out: it opens streams to a control plane.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::text::parse_duration;

/// A study of a control plane, before a relay is in the path (LRN-2).
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct Learn {
    /// The control plane: HOST:PORT, asked in plaintext; or a `server_uri` of --config [default: the first
    /// server of --config].
    #[arg(long, value_name = "SERVER", required_unless_present = "config")]
    pub server: Option<String>,
    /// The nodes to ask as: a JSON list, one node on each line, config dumps or bootstraps of Envoy, client
    /// status. `-` for stdin.
    #[arg(long, value_name = "FILE")]
    pub nodes: PathBuf,
    /// A configuration of the relay, for TLS and credentials towards the control plane.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The types to ask for: `cds`, `lds`, `eds`, `rds`, or full message names, asked for as a whole.
    /// Endpoints are those of the clusters, and routes those of the listeners.
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "cds,lds,eds,rds")]
    pub types: Vec<String>,
    /// The longest time. The study ends before, once every node was asked.
    #[arg(long = "for", value_name = "TIME", default_value = "30m", value_parser = parse_duration)]
    pub longest: Duration,
    /// Nodes asked at once.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub streams: u32,
    /// Streams begun in a minute.
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub per_minute: u32,
    /// Write the rules to a new file.
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Compare the rules of this configuration with the evidence: exit code 65 if they are too coarse.
    #[arg(long, value_name = "FILE")]
    pub check: Option<PathBuf>,
    /// Form of the output.
    #[arg(short = 'o', long = "output", value_enum, value_name = "FORM", default_value_t = LearnForm::Text)]
    pub form: LearnForm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LearnForm {
    /// The findings, and then the rules.
    Text,
    Json,
    /// The rules alone.
    Yaml,
}

const HELP: &str = "\
The command shows the control plane the whole node of one client after the other, each on a stream of its own, and compares \
the answers. Do not use it where a connection of a client has a meaning, as with Kuma or auto-registered machines; nodes \
with AUTO_REGISTER_GROUP or dataplane.resource are left out.

Output:
  how many different answers the nodes have, the fields that decide, and rules of `node_classes` with the evidence

Examples:
  sluice classes learn --server istiod.istio-system.svc:15010 --nodes nodes.json --write node_classes.yaml
  sluice classes learn --config sluice.yaml --nodes nodes.json --check sluice.yaml

Exit codes: 0 the rules are complete, or those of --check are fine enough; 64 invalid arguments, or no node in the file; 65 \
the rules of --check are too coarse; 69 the control plane cannot be asked.";
