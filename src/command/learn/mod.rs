//! `sluice classes learn`: rules of node classes, from the answers of a control plane (LRN-2, LRN-21).
//!
//! With `--nodes`, `app` asks the control plane itself. Otherwise a running relay asks it, as its clients.
//! [`report`]: the findings for people.

mod report;

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use http::Method;
use sluice_admin_api::endpoints::Endpoint;
use sluice_admin_api::learning::{LearnProgress, StudyReport};
use sluice_admin_api::parameters::{LearnParameters, Parameters};
use tokio::time::sleep;

use super::address::Target;
use super::arguments::RelayArguments;
use super::console::Console;
use super::list::path;
use super::outcome::{Failure, Outcome};
use super::relays::{Answers, Relays};
use super::request::{Caller, Missing};
use super::text::{parse_duration, safe, safe_json};
use super::typed::Typed;
use sluice_text::{grouped, span};

/// The time between two questions for the progress of an order.
const INTERVAL: Duration = Duration::from_millis(500);

/// The status of a relay that cannot ask this control plane.
const CONFLICT: u16 = 409;

/// The first line of a written file. A file with another first line is not replaced.
pub const HEAD: &str = "Written by `sluice classes learn`.";

/// A study of a control plane (LRN-2).
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct Learn {
    /// The control plane. With --nodes: HOST:PORT, asked in plaintext, or a `server_uri` of --config
    /// [default: the first server of --config]. Without: a `server_uri` of the relay [default: its first
    /// server].
    #[arg(long, value_name = "SERVER")]
    pub server: Option<String>,
    /// Ask the control plane directly, as these nodes, and not a relay: a JSON list, one node on each line,
    /// config dumps or bootstraps of Envoy, client status. `-` for stdin.
    #[arg(long, value_name = "FILE")]
    pub nodes: Option<PathBuf>,
    /// With --nodes: a configuration of the relay, for TLS and credentials towards the control plane.
    #[arg(long, value_name = "FILE", requires = "nodes")]
    pub config: Option<PathBuf>,
    /// The types to ask for: `cds`, `lds`, `eds`, `rds`, or full message names, asked for as a whole.
    /// Endpoints are those of the clusters, and routes those of the listeners.
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "cds,lds,eds,rds")]
    pub types: Vec<String>,
    /// The longest time. The study ends before, once every node was asked.
    #[arg(long = "for", value_name = "TIME", default_value = "30m", value_parser = parse_duration)]
    pub longest: Duration,
    /// Nodes asked at once; of a relay 64 at most.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub streams: u32,
    /// Streams begun in a minute; of a relay 6,000 at most.
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub per_minute: u32,
    /// Write the rules to a new file, if no node was left without a question.
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Write the rules also if the study ended before each node was asked.
    #[arg(long, requires = "write")]
    pub partial: bool,
    /// Compare the rules of this configuration with the evidence: exit code 65 if they are too coarse, and
    /// else 69 if the study ended before each node was asked. Without FILE: the rules that the relay has in
    /// force.
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub check: Option<Option<PathBuf>>,
    /// Form of the output.
    #[arg(short = 'o', long = "output", value_enum, value_name = "FORM", default_value_t = LearnForm::Text)]
    pub form: LearnForm,
    #[command(flatten)]
    pub reach: RelayArguments,
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
The control plane is shown the whole node of one client after the other, each on a stream of its own, and the answers are \
compared. A running relay takes the nodes of its connected clients; with --nodes, they come from a file, and no relay is \
needed. Do not use it where a connection of a client has a meaning, as with Kuma or auto-registered machines; nodes \
with AUTO_REGISTER_GROUP or dataplane.resource are left out.

Output:
  how many different answers the nodes have, the fields that decide, and rules of `node_classes` with the evidence

Examples:
  sluice classes learn --check
  sluice classes learn -o yaml

Without a relay:
  sluice classes learn --server istiod.istio-system.svc:15010 --nodes nodes.json --write node_classes.yaml
  sluice classes learn --config sluice.yaml --nodes nodes.json --check sluice.yaml

Exit codes: 0 the rules are shown or written, and those of --check are fine enough; 64 invalid arguments, or no node in the file; \
65 the rules of --check are too coarse; 69 the control plane cannot be asked, or not as each node within --for although --check or \
--write needs it, or no relay answered.";

impl Learn {
    /// The file of `--check`.
    pub fn check_file(&self) -> Option<&Path> {
        self.check.as_ref()?.as_deref()
    }
}

/// Asks a running relay, which asks its control plane as its clients.
pub(super) async fn run(order: Learn, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    order.write.as_deref().map_or(Ok(()), may_write)?;
    let read = |file: &Path| {
        fs::read(file).map_err(|error| Failure::Usage(format!("--check {}: {error}", file.display())))
    };
    let body = order.check_file().map(read).transpose()?.map(Bytes::from).unwrap_or_default();
    let relays = Relays::new(&order.reach).await?;
    let [relay] = relays.relays.as_slice() else {
        let text = "each relay has clients of its own; pass one with --relay".to_owned();
        return Err(Failure::Usage(text));
    };
    let target = path(Endpoint::LearnClasses.path(), parameters(&order).into_pairs());
    let begin = async |caller: &Caller, relay: &Target| caller.post(relay, &target, body.clone()).await;
    let mut progress = one(relays.all(begin).await, console)?;
    writeln!(
        console.err,
        "sluice: {} asks {} as its clients, {} at once; at most {}",
        safe(&relay.label),
        safe(&progress.value.server),
        order.streams,
        span(order.longest)
    )?;
    // The relay gives up an order that nobody asks about.
    loop {
        let target = Endpoint::LearnProgress.path_of(&[&progress.value.order.to_string()]);
        let ask = async |caller: &Caller, relay: &Target| caller.typed(relay, &Method::GET, &target).await;
        progress = one(relays.all(ask).await, console)?;
        if progress.value.done {
            break;
        }
        sleep(INTERVAL).await;
    }
    let LearnProgress { server, refused, report, .. } = progress.value;
    match (report, refused) {
        (Some(report), _) => conclude(&order, &report, console.out, console.err).map(|()| Outcome::Good),
        (None, refused) => Err(Failure::Unavailable(format!("{server}: {}", refused.unwrap_or_default()))),
    }
}

/// The answer of the only relay.
fn one(
    answers: Answers<Typed<LearnProgress>>,
    console: &mut Console<'_>,
) -> Result<Typed<LearnProgress>, Failure> {
    let is_conflict = |missing: &Missing| matches!(missing, Missing::Refused { status: CONFLICT, .. });
    match answers.report(console.err) {
        Err(Failure::Usage(text)) if answers.missing.iter().all(|(_, missing)| is_conflict(missing)) => {
            Err(Failure::Unavailable(text))
        }
        Err(Failure::Unavailable(text)) => {
            Err(Failure::Unavailable(format!("{text}; with --nodes FILE, no relay is needed")))
        }
        Err(failure) => Err(failure),
        Ok(_) => {
            answers.values().next().ok_or_else(|| Failure::Unavailable("the relay did not answer".to_owned()))
        }
    }
}

fn parameters(order: &Learn) -> LearnParameters {
    LearnParameters {
        server: order.server.clone(),
        types: Some(order.types.join(",")),
        r#for: Some(format!("{}ms", order.longest.as_millis())),
        streams: Some(order.streams.to_string()),
        per_minute: Some(order.per_minute.to_string()),
        check: order.check.is_some().then(|| "1".to_owned()),
    }
}

/// Shows the findings of a study, writes the file of `--write`, and ends with the exit code.
///
/// # Errors
/// With the exit code: 65 for rules of `--check` that are too coarse, 69 for a server that could not be asked
/// about all: then nothing is checked, and nothing written without `--partial`.
pub fn conclude(
    order: &Learn,
    report: &StudyReport,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<(), Failure> {
    let text = match order.form {
        LearnForm::Text if order.write.is_some() => report::text(order, report),
        LearnForm::Text => format!("{}\n{}", report::text(order, report), report.yaml),
        LearnForm::Json => {
            let json =
                serde_json::to_string_pretty(report).map_err(|error| Failure::Internal(error.to_string()))?;
            format!("{}\n", safe_json(&json))
        }
        LearnForm::Yaml => report.yaml.clone(),
    };
    out.write_all(text.as_bytes())?;
    let unasked = unasked(report);
    let is_written = unasked.is_none() || order.partial;
    if let Some(file) = order.write.as_ref().filter(|_| is_written) {
        fs::write(file, &report.yaml).map_err(|error| unavailable(file, &error))?;
        writeln!(
            err,
            "sluice: {} is written; put its key into the configuration of the relay",
            file.display()
        )?;
    }
    if report.check.as_ref().is_some_and(|coarse| !coarse.is_empty()) {
        let rules = order.check_file().map_or("--check".to_owned(), |file| file.display().to_string());
        return Err(Failure::Conflict(format!("{rules}: the rules are coarser than the evidence")));
    }
    if let Some(unasked) = unasked.filter(|_| order.check.is_some() || order.write.is_some() && !is_written) {
        let undone = match &order.write {
            Some(file) if !is_written => {
                format!("; {} is not written: pass a longer --for, or --partial", file.display())
            }
            _ => "; so the rules are not checked: pass a longer --for".to_owned(),
        };
        return Err(Failure::Unavailable(format!("{}: {unasked}{undone}", report.server)));
    }
    match report.end.as_str() {
        "complete" | "time_is_up" => Ok(()),
        _ => Err(Failure::Unavailable(format!("{}: {}", report.server, report.reason))),
    }
}

/// The nodes that a study which ended early has not asked as, in words.
fn unasked(report: &StudyReport) -> Option<String> {
    let unasked = report.nodes.saturating_sub(report.asked);
    (report.end != "complete" && unasked > 0).then(|| {
        let nodes = count(report.nodes, "node", "nodes");
        format!("{} of {nodes} without evidence: {}", grouped(unasked), report.reason)
    })
}

/// Tells what was left out of a list of nodes, before its nodes are asked.
///
/// # Errors
/// The output cannot be written.
pub fn write_account(account: &[String], err: &mut dyn Write) -> io::Result<()> {
    account.iter().try_for_each(|line| writeln!(err, "sluice: {}", safe(line)))
}

/// Looks before half an hour of work is done: another file of the operator's is never replaced.
///
/// # Errors
/// The file exists, and is none that this command has written.
pub fn may_write(file: &Path) -> Result<(), Failure> {
    let opened = OpenOptions::new().read(true).open(file);
    let mut begin = String::new();
    match opened.map(|file| file.take(HEAD.len() as u64 + 2).read_to_string(&mut begin)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(unavailable(file, &error)),
        Ok(_) if begin.is_empty() || begin == format!("# {HEAD}") => Ok(()),
        Ok(_) => {
            Err(Failure::Usage(format!("{} exists, and is none of mine; pass another FILE", file.display())))
        }
    }
}

fn unavailable(file: &Path, error: &io::Error) -> Failure {
    Failure::Unavailable(format!("{}: {error}", file.display()))
}

/// A number with its noun, and thousands in groups.
fn count(number: usize, one: &str, several: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { several })
}
