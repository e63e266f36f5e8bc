//! Figures of runs: as JSON for machines, as a table for people.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::measure;
use crate::xds::Variant;

/// Resident memory of the server, in bytes; `None` without a pid.
#[derive(Clone, Copy, Default, Serialize)]
pub struct Memory {
    /// One client is served.
    pub one_client: Option<u64>,
    /// All are.
    pub all_clients: Option<u64>,
    pub after_changes: Option<u64>,
}

impl Memory {
    /// What a further client costs, from the difference to one client: that one has paid for what all share.
    pub fn per_client(&self, total: Option<u64>, clients: usize) -> Option<f64> {
        let (total, one) = (total? as f64, self.one_client? as f64);
        (clients > 1).then(|| (total - one) / (clients - 1) as f64)
    }
}

/// In milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl Percentiles {
    /// By nearest rank over all values, none sampled away or rounded; `None` if there are none.
    pub fn of_us(values: &[u64]) -> Option<Percentiles> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let at = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100);
            sorted.get(rank.saturating_sub(1)).map(|us| *us as f64 / 1000.0)
        };
        Some(Percentiles { p50: at(50)?, p99: at(99)?, max: at(100)? })
    }
}

/// What one run found. The names are the keys of the JSON.
#[derive(Serialize)]
pub struct Figures {
    pub name: String,
    pub clients: usize,
    pub connected: usize,
    pub resources: usize,
    pub resource_bytes: usize,
    pub mode: Variant,
    pub node_bytes: usize,
    pub node_every_request: bool,
    pub endpoint_names: usize,
    pub changes: usize,
    /// Until all but the first client were served.
    pub connect_ms: f64,
    /// From a client's connect to its complete answer.
    pub first_answer_ms: Option<Percentiles>,
    /// Of the connect phase and the settling after it.
    pub server_cpu_us_per_connect: Option<f64>,
    pub rss_bytes_per_client: Option<f64>,
    pub rss_bytes_per_client_after_changes: Option<f64>,
    pub rss: Memory,
    /// User and system time of the server, from the first change to the end of the last pause, by client and update.
    pub server_cpu_us_per_update: Option<f64>,
    /// The same of the thread that is all clients, but without the pauses.
    pub client_cpu_us_per_update: Option<f64>,
    /// The same of the whole tool, its control plane and the pauses included.
    pub tool_cpu_us_per_update: Option<f64>,
    /// Received by a client.
    pub bytes_per_update: Option<f64>,
    /// From a change to a client's having it, over all clients and changes.
    pub update_ms: Option<Percentiles>,
    /// From a change to the last client's having it, over the changes.
    pub last_client_ms: Option<Percentiles>,
    pub last_client_ms_p50: Option<f64>,
    pub last_client_ms_max: Option<f64>,
    /// The share of the change phases in which the thread that is all clients computed or waited for a CPU to do so.
    pub client_thread_busy: f64,
    pub tool_was_bottleneck: bool,
    pub errors: usize,
    pub error_messages: Vec<String>,
}

impl Figures {
    pub fn add_error(&mut self, message: String) {
        self.error_messages.push(message);
        self.errors = self.error_messages.len();
    }
}

/// Where and how the figures were taken; a figure without it means nothing.
#[derive(Serialize)]
struct Circumstances {
    tool: String,
    machine: String,
    command: String,
}

impl Circumstances {
    fn here() -> Circumstances {
        Circumstances {
            tool: concat!("sluice-load ", env!("CARGO_PKG_VERSION")).to_owned(),
            machine: measure::machine(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
        }
    }
}

#[derive(Serialize)]
struct One<'a> {
    #[serde(flatten)]
    figures: &'a Figures,
    circumstances: Circumstances,
}

#[derive(Serialize)]
struct Many<'a> {
    circumstances: Circumstances,
    runs: &'a [Figures],
}

/// Writes one run as an object with the figures at its top.
pub fn write_one(path: &Path, figures: &Figures) -> Result<()> {
    write(path, &One { figures, circumstances: Circumstances::here() })
}

/// Writes several runs as the list `runs`.
pub fn write_many(path: &Path, runs: &[Figures]) -> Result<()> {
    write(path, &Many { circumstances: Circumstances::here(), runs })
}

fn write(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Prints runs side by side, and their warnings and errors to the standard error.
pub fn print(runs: &[Figures]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let here = Circumstances::here();
    writeln!(out, "{}; {}; server and tool share the machine, over loopback", here.tool, here.machine)?;
    writeln!(out, "{}\n", here.command)?;
    for (label, cell) in ROWS {
        write!(out, "{label:<42}")?;
        for run in runs {
            write!(out, " {:>17}", cell(run))?;
        }
        writeln!(out)?;
    }
    out.flush()?;
    let mut out = io::stderr().lock();
    for run in runs {
        if run.tool_was_bottleneck {
            let busy = run.client_thread_busy * 100.0;
            writeln!(
                out,
                "\n{}: the tool was the bottleneck itself: its clients' thread was {busy:.0} % busy during the changes",
                run.name
            )?;
        }
        for message in &run.error_messages {
            writeln!(out, "\n{}: error: {message}", run.name)?;
        }
    }
    out.flush()
}

type Cell = fn(&Figures) -> String;

const ROWS: &[(&str, Cell)] = &[
    ("", |run| run.name.clone()),
    ("mode", |run| run.mode.name().to_owned()),
    ("clients connected", |run| format!("{} of {}", run.connected, run.clients)),
    ("clusters x bytes", |run| format!("{} x {}", run.resources, run.resource_bytes)),
    ("node bytes", |run| {
        format!("{}{}", run.node_bytes, if run.node_every_request { ", each time" } else { "" })
    }),
    ("endpoint names per client", |run| run.endpoint_names.to_string()),
    ("until all are served, ms", |run| format!("{:.0}", run.connect_ms)),
    ("first answer, ms: p50", |run| number(run.first_answer_ms.map(|ms| ms.p50))),
    ("                  p99", |run| number(run.first_answer_ms.map(|ms| ms.p99))),
    ("server CPU per connect, us", |run| number(run.server_cpu_us_per_connect)),
    ("server RSS, MB: one client", |run| megabytes(run.rss.one_client)),
    ("                all clients", |run| megabytes(run.rss.all_clients)),
    ("                after the changes", |run| megabytes(run.rss.after_changes)),
    ("server RSS per further client, KB", |run| number(run.rss_bytes_per_client.map(|bytes| bytes / 1000.0))),
    ("                after the changes", |run| {
        number(run.rss_bytes_per_client_after_changes.map(|bytes| bytes / 1000.0))
    }),
    ("changes of one cluster", |run| run.changes.to_string()),
    ("bytes per client and update", |run| {
        run.bytes_per_update.map_or_else(|| "-".to_owned(), |bytes| format!("{bytes:.0}"))
    }),
    ("update, ms: p50", |run| number(run.update_ms.map(|ms| ms.p50))),
    ("            p99", |run| number(run.update_ms.map(|ms| ms.p99))),
    ("last client, ms: median of changes", |run| number(run.last_client_ms.map(|ms| ms.p50))),
    ("                 p99", |run| number(run.last_client_ms.map(|ms| ms.p99))),
    ("                 max", |run| number(run.last_client_ms.map(|ms| ms.max))),
    ("server CPU per client and update, us", |run| number(run.server_cpu_us_per_update)),
    ("clients' CPU per client and update, us", |run| number(run.client_cpu_us_per_update)),
    ("whole tool's CPU likewise, us", |run| number(run.tool_cpu_us_per_update)),
    ("clients' thread busy in changes, %", |run| format!("{:.0}", run.client_thread_busy * 100.0)),
    ("errors", |run| run.errors.to_string()),
];

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

fn megabytes(bytes: Option<u64>) -> String {
    number(bytes.map(|bytes| bytes as f64 / 1e6))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn percentiles_are_of_all_values() {
        let values: Vec<u64> = (1..=1000).map(|value| value * 1000).collect();
        assert_eq!(Percentiles::of_us(&values), Some(Percentiles { p50: 500.0, p99: 990.0, max: 1000.0 }));
        let one = Percentiles::of_us(&[1_234]).unwrap();
        assert_eq!((one.p50, one.max), (1.234, 1.234));
        assert_eq!(Percentiles::of_us(&[]), None);
    }

    #[test]
    fn a_further_client_costs_what_the_first_has_not_paid() {
        let memory = Memory { one_client: Some(1_000), all_clients: Some(10_000), after_changes: None };
        assert_eq!(memory.per_client(memory.all_clients, 10), Some(1_000.0));
        assert_eq!(memory.per_client(memory.all_clients, 1), None);
        assert_eq!(memory.per_client(memory.after_changes, 10), None);
    }
}
