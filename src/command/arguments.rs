//! The arguments that all commands share.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::text::parse_duration;

/// The way to the relays.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Relays")]
pub struct RelayArguments {
    /// Admin address of a relay: host:port, unix:PATH, or dns:///host:port for a relay at every address of
    /// the name. Repeatable [default: 127.0.0.1:19000].
    #[arg(long = "relay", value_name = "ADDR", env = "SLUICE_ADMIN", value_delimiter = ',')]
    pub(super) relays: Vec<String>,
    /// The time for an answer.
    #[arg(long, value_name = "TIME", env = "SLUICE_TIMEOUT", default_value = "10s", value_parser = parse_duration)]
    pub(super) timeout: Duration,
    /// File with a token of `admin.auth`.
    #[arg(long, value_name = "FILE", env = "SLUICE_TOKEN_FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// Authorities of the relay's certificate, in PEM [default with TLS: those of this host].
    #[arg(long, value_name = "FILE", env = "SLUICE_CA")]
    pub(super) ca: Option<PathBuf>,
    /// Your certificate chain, in PEM.
    #[arg(long, value_name = "FILE", env = "SLUICE_CERT", requires = "key")]
    pub(super) cert: Option<PathBuf>,
    /// The key of your certificate, in PEM.
    #[arg(long, value_name = "FILE", env = "SLUICE_KEY", requires = "cert")]
    pub(super) key: Option<PathBuf>,
    /// The name in the relay's certificate [default: the host of ADDR]. With this name, --ca or --cert, the
    /// relay is asked over TLS.
    #[arg(long, value_name = "NAME", env = "SLUICE_SERVER_NAME")]
    pub(super) server_name: Option<String>,
}

/// The form of the output.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Output")]
pub struct Show {
    /// Form of the output; json and yaml are the answers of the API, with `relay` in each item.
    #[arg(short = 'o', long = "output", value_enum, value_name = "FORM", default_value_t = OutputFormat::Table)]
    pub(super) format: OutputFormat,
    /// Keep watching: redraw on a terminal, write one JSON object for each change into a pipe.
    #[arg(short, long)]
    pub(super) watch: bool,
    /// Leave out the line with the names of the columns.
    #[arg(long)]
    pub(super) no_headers: bool,
}

/// The form of an answer that is no list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum AnswerForm {
    Table,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    Table,
    /// A table with more columns.
    Wide,
    Json,
    Yaml,
    /// Only names, one a line.
    Name,
}
