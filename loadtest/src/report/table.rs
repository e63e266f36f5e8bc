//! The table at the end of a run.

use std::io::{self, Write};

use super::Circumstances;
use crate::assertion::Verdict;
use crate::run::{Figures, Percentiles};

type Cell = fn(&Figures) -> Option<String>;

/// Rows that are empty in all runs are left out.
const ROWS: &[(&str, Cell)] = &[
    ("", |run| Some(run.name.clone())),
    ("scenario", |run| Some(run.scenario.name())),
    ("mode", |run| Some(run.mode.name().to_owned())),
    ("clients connected", |run| Some(format!("{} of {}", run.connected, run.clients))),
    ("clients on a connection", |run| {
        (run.clients_per_connection > 1).then(|| run.clients_per_connection.to_string())
    }),
    ("resources x bytes", |run| {
        (run.resources > 0).then(|| format!("{} x {}", run.resources, run.resource_bytes))
    }),
    ("node bytes", |run| {
        let each = if run.node_every_request { ", each time" } else { "" };
        (run.node_bytes > 0).then(|| format!("{}{each}", run.node_bytes))
    }),
    ("until all are served, ms", |run| Some(format!("{:.0}", run.connect_ms))),
    ("first answer, ms: p50", |run| at(run.first_answer_ms, |ms| ms.p50)),
    ("                  p99", |run| at(run.first_answer_ms, |ms| ms.p99)),
    ("                  max", |run| at(run.first_answer_ms, |ms| ms.max)),
    ("reconnect, ms: p50", |run| at(run.reconnect_ms, |ms| ms.p50)),
    ("               p99", |run| at(run.reconnect_ms, |ms| ms.p99)),
    ("               max", |run| at(run.reconnect_ms, |ms| ms.max)),
    ("answers after more than 1 s", |run| count(run.slow_connects as usize)),
    ("asked by the server to reconnect", |run| count(run.drained)),
    ("recovery, ms", |run| run.recovery_ms.map(number)),
    ("server CPU per connect, us", |run| run.server_cpu_us_per_connect.map(number)),
    ("server RSS, MB: one client", |run| megabytes(run.rss.one_client)),
    ("                all clients", |run| megabytes(run.rss.all_clients)),
    ("                after the changes", |run| megabytes(run.rss.after_changes)),
    ("                after all have left", |run| megabytes(run.rss.after_leaving)),
    ("server RSS per further client, KB", |run| kilobytes(run.rss_bytes_per_client)),
    ("                after the changes", |run| kilobytes(run.rss_bytes_per_client_after_changes)),
    ("                that has left", |run| kilobytes(run.rss_bytes_per_departed_client)),
    ("changes", |run| count(run.changes)),
    ("updates that clients got", |run| count(run.updates as usize)),
    ("updates a second", |run| run.updates_per_s.filter(|rate| *rate > 0.0).map(number)),
    ("bytes per client and update", |run| run.bytes_per_update.map(|bytes| format!("{bytes:.0}"))),
    ("update, ms: p50", |run| at(run.update_ms, |ms| ms.p50)),
    ("            p90", |run| at(run.update_ms, |ms| ms.p90)),
    ("            p99", |run| at(run.update_ms, |ms| ms.p99)),
    ("            p99.9", |run| at(run.update_ms, |ms| ms.p999)),
    ("            max", |run| at(run.update_ms, |ms| ms.max)),
    ("last client, ms: median of changes", |run| at(run.last_client_ms, |ms| ms.p50)),
    ("                 p99", |run| at(run.last_client_ms, |ms| ms.p99)),
    ("                 max", |run| at(run.last_client_ms, |ms| ms.max)),
    ("new names, ms: p50", |run| at(run.subscribe_ms, |ms| ms.p50)),
    ("               p99", |run| at(run.subscribe_ms, |ms| ms.p99)),
    ("               max", |run| at(run.subscribe_ms, |ms| ms.max)),
    ("content of the rule, ms: p50", |run| at(run.rule_ms, |ms| ms.p50)),
    ("                         max", |run| at(run.rule_ms, |ms| ms.max)),
    ("resources made for other clients", |run| run.rule_ms.map(|_| run.misplaced.to_string())),
    ("resources taken away", |run| run.rule_ms.map(|_| run.removals.to_string())),
    ("streams ended by the server", |run| run.rule_ms.map(|_| run.streams_ended.to_string())),
    ("load reports of clients", |run| run.load.map(|load| load.reports.to_string())),
    ("             at the control plane", |run| run.load.map(|load| load.received.messages.to_string())),
    ("             requests in them", |run| run.load.map(|load| load.sums.issued.to_string())),
    ("             summed up after, ms", |run| run.load?.agreed_after_ms.map(number)),
    ("misbehaving clients, ms: p50", |run| at(run.odd_update_ms, |ms| ms.p50)),
    ("                         max", |run| at(run.odd_update_ms, |ms| ms.max)),
    ("                         disconnected", |run| count(run.odd_disconnected)),
    ("server CPU per client and update, us", |run| run.server_cpu_us_per_update.map(number)),
    ("clients' CPU per client and update, us", |run| run.client_cpu_us_per_update.map(number)),
    ("whole tool's CPU likewise, us", |run| run.tool_cpu_us_per_update.map(number)),
    ("clients' thread busy in changes, %", |run| Some(format!("{:.0}", run.client_thread_busy * 100.0))),
    ("errors", |run| Some(run.errors.to_string())),
];

/// Prints runs side by side, and their phases; prints warnings, errors and failed assertions to the standard
/// error.
pub fn print(runs: &[Figures], verdicts: &[Verdict]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write_tables(&mut out, runs)?;
    out.flush()?;
    let mut out = io::stderr().lock();
    for run in runs {
        if run.tool_was_bottleneck {
            writeln!(out, "\n{}: {}", run.name, bottleneck(run))?;
        }
        for message in &run.error_messages {
            writeln!(out, "\n{}: error: {message}", run.name)?;
        }
    }
    for verdict in verdicts {
        let word = if verdict.holds { "holds" } else { "FAILS" };
        writeln!(out, "\nassertion {word}: {} ({})", verdict.assertion, verdict.found)?;
    }
    out.flush()
}

/// The warning that the figures measure the tool.
pub fn bottleneck(run: &Figures) -> String {
    let shares = [run.client_thread_busy, run.client_thread_waiting, run.control_plane_busy];
    let [clients, waiting, plane] = shares.map(|share| share * 100.0);
    format!(
        "the tool was the bottleneck itself: while updates were under way its clients' thread was {clients:.0} % busy \
         ({waiting:.0} % without a CPU to be busy on), its control plane's {plane:.0} %"
    )
}

fn write_tables(out: &mut impl Write, runs: &[Figures]) -> io::Result<()> {
    let here = Circumstances::here();
    writeln!(out, "{}; {}; server and tool may share the machine", here.tool, here.machine)?;
    writeln!(out, "{}\n", here.command)?;
    for (label, cell) in ROWS {
        let cells: Vec<Option<String>> = runs.iter().map(cell).collect();
        if cells.iter().all(Option::is_none) {
            continue;
        }
        write!(out, "{label:<42}")?;
        for cell in cells {
            write!(out, " {:>17}", cell.as_deref().unwrap_or("-"))?;
        }
        writeln!(out)?;
    }
    for run in runs {
        let phases: Vec<_> = run.phases.iter().filter_map(|phase| Some((phase, phase.update_ms?))).collect();
        if phases.len() < 2 {
            continue;
        }
        writeln!(
            out,
            "\n{:<16} {:>10} {:>10} {:>10} {:>10}",
            "phase", "updates", "p50 ms", "p99 ms", "max ms"
        )?;
        for (phase, ms) in phases {
            let Percentiles { count, p50, p99, max, .. } = ms;
            writeln!(out, "{:<16} {count:>10} {p50:>10.1} {p99:>10.1} {max:>10.1}", phase.name)?;
        }
    }
    Ok(())
}

fn at(percentiles: Option<Percentiles>, of: fn(&Percentiles) -> f64) -> Option<String> {
    percentiles.as_ref().map(of).map(number)
}

fn count(count: usize) -> Option<String> {
    (count > 0).then(|| count.to_string())
}

fn number(value: f64) -> String {
    format!("{value:.1}")
}

fn kilobytes(bytes: Option<f64>) -> Option<String> {
    bytes.map(|bytes| number(bytes / 1000.0))
}

fn megabytes(bytes: Option<u64>) -> Option<String> {
    bytes.map(|bytes| number(bytes as f64 / 1e6))
}
