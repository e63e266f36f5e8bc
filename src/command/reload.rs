//! `sluice reload`, `sluice rollback`: another configuration for a running relay (REL-1, REL-9).

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use serde_json::json;
use sluice_admin_api::config::{KeyChange, Moves, ReloadReport};
use sluice_admin_api::endpoints::Endpoint;
use sluice_admin_api::parameters::{Parameters, ReloadParameters, RollbackParameters};

use super::address::Target;
use super::arguments::{AnswerForm, RelayArguments};
use super::console::Console;
use super::list::path;
use super::outcome::{Failure, Outcome};
use super::relays::Relays;
use super::request::Caller;
use super::table::joined;
use super::text::safe;
use super::typed::jsons;

/// The relay answers when the reload is over: ten seconds at most, and some for a busy host.
const TIMEOUT_MIN: Duration = Duration::from_secs(15);

/// Arguments of every change of the configuration.
#[derive(Args, Debug)]
pub struct Wish {
    /// Only say what the change would do, or why it cannot be done.
    #[arg(long)]
    dry_run: bool,
    /// Also if many clients move, names go, or a plan lets go of a push.
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
    /// Form of the output; json: the answer of the API, with `relay`.
    #[arg(short = 'o', long = "output", value_enum, value_name = "FORM", default_value_t = AnswerForm::Table)]
    form: AnswerForm,
    #[command(flatten)]
    reach: RelayArguments,
}

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct ReloadArguments {
    /// A plan for this file, in place of the file of the relay's process. The relay opens no file that it
    /// names, and reads no variable.
    #[arg(short = 'f', long = "file", value_name = "FILE", requires = "dry_run")]
    file: Option<PathBuf>,
    #[command(flatten)]
    wish: Wish,
}

const HELP: &str = "\
The relay reads its configuration file again. All of it is taken, or nothing. Keys that need a new process refuse the \
reload.

Output:
  a line for each relay with the result and the generation in force, and one for each key that changed: its values before
  and after, and how they come into force; then listeners, and the clients that move. Faults go to the other output.

Examples:
  sluice reload --dry-run -f new.yaml
  sluice reload

Exit codes: 0 in force, or can be taken; 1 held, because many clients would move, names would go, or a plan would let go of a \
push: --yes takes it; 64 the
configuration has faults, or needs a new process; 69 the host refused, for example because an address is in use.";

#[derive(Args, Debug)]
#[command(after_help = ROLLBACK_HELP)]
pub struct Rollback {
    /// The number of a generation [default: the one before that in force].
    #[arg(long, value_name = "GENERATION")]
    to: Option<u64>,
    #[command(flatten)]
    wish: Wish,
}

const ROLLBACK_HELP: &str = "\
The relay takes an earlier configuration of its process again; it keeps the last 8 in memory. The file stays as it is: \
mend it before the next reload.

Output and exit codes: as of `sluice reload`.

Examples:
  sluice rollback --dry-run
  sluice rollback --to 3";

pub(super) async fn reload(reload: ReloadArguments, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let ReloadArguments { file, wish } = reload;
    let read = |file: PathBuf| {
        let text = fs::read(&file);
        text.map_err(|error| Failure::Usage(format!("--file {}: {error}", file.display())))
    };
    let body = file.map(read).transpose()?.map(Bytes::from);
    let parameters = ReloadParameters { dry_run: flag(wish.dry_run), yes: flag(wish.yes) };
    let path = path(Endpoint::Reload.path(), parameters.into_pairs());
    act(&wish, &path, body, console).await
}

pub(super) async fn rollback(rollback: Rollback, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let Rollback { to, wish } = rollback;
    let to = to.map(|to| to.to_string());
    let parameters = RollbackParameters { to, dry_run: flag(wish.dry_run), yes: flag(wish.yes) };
    let path = path(Endpoint::Rollback.path(), parameters.into_pairs());
    act(&wish, &path, None, console).await
}

fn flag(is_set: bool) -> Option<String> {
    is_set.then(|| "1".to_owned())
}

async fn act(
    wish: &Wish,
    path: &str,
    body: Option<Bytes>,
    console: &mut Console<'_>,
) -> Result<Outcome, Failure> {
    let form = wish.form;
    let relays = Relays::new(&wish.reach).await?;
    let ask = async |caller: &Caller, relay: &Target| {
        let caller = Caller { timeout: caller.timeout.max(TIMEOUT_MIN), ..caller.clone() };
        caller.post::<ReloadReport>(relay, path, body.clone().unwrap_or_default()).await
    };
    let answers = relays.all(ask).await;
    let outcome = answers.report(console.err)?;
    let answers: Vec<_> = answers.values().collect();
    let worst = answers.iter().filter_map(|answer| trouble(&answer.value.result)).max();
    match form {
        AnswerForm::Json => console.json(&json!({ "relays": jsons(&answers) }))?,
        AnswerForm::Table => {
            for answer in &answers {
                describe(&answer.relay, &answer.value, console)?;
            }
        }
    }
    console.out.flush()?;
    match worst {
        None => Ok(outcome),
        Some(Trouble::Held) => Ok(Outcome::Differs),
        Some(Trouble::Refused) => Err(Failure::Usage("nothing has changed".to_owned())),
        Some(Trouble::Failed) => Err(Failure::Unavailable("nothing has changed".to_owned())),
    }
}

/// The worst comes last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Trouble {
    Held,
    Refused,
    Failed,
}

fn trouble(result: &str) -> Option<Trouble> {
    match result {
        "changed" | "unchanged" => None,
        "held" => Some(Trouble::Held),
        "invalid" | "needs_process" => Some(Trouble::Refused),
        _ => Some(Trouble::Failed),
    }
}

fn describe(relay: &str, report: &ReloadReport, console: &mut Console<'_>) -> Result<(), Failure> {
    let result = match report.result.as_str() {
        "changed" if report.dry_run => "can be taken",
        "needs_process" => "needs a new process",
        other => other,
    };
    let head = format!("{relay}  {result}, generation {} is in force", report.generation);
    writeln!(console.out, "{}", safe(&head))?;
    for KeyChange { key, from, to, effect } in &report.changes {
        let or_unset = |value: &Option<String>| value.clone().unwrap_or_else(|| "unset".to_owned());
        let line = format!("  {key}  {} -> {}  ({effect})", or_unset(from), or_unset(to));
        writeln!(console.out, "{}", safe(&line))?;
    }
    if report.changes_left_out > 0 {
        writeln!(console.out, "  and {} more", report.changes_left_out)?;
    }
    let listeners = &report.listeners;
    for (word, names) in
        [("added", &listeners.added), ("removed", &listeners.removed), ("moved", &listeners.moved)]
    {
        if !names.is_empty() {
            writeln!(console.out, "{}", safe(&format!("  listeners {word}: {}", joined(names))))?;
        }
    }
    if let Some(moves) = &report.moves {
        describe_moves(moves, console)?;
    }
    for (lines, word) in [(&report.warnings, "warning: "), (&report.faults, "")] {
        for line in lines {
            writeln!(console.err, "sluice: {}", safe(&format!("relay {relay}: {word}{line}")))?;
        }
    }
    if let Some(say) = &report.say {
        writeln!(console.err, "sluice: {}", safe(&format!("relay {relay}: type `{say}`")))?;
    }
    Ok(())
}

fn describe_moves(moves: &Moves, console: &mut Console<'_>) -> Result<(), Failure> {
    let changes = [moves.streams_moved, moves.sources_opened, moves.sources_closed, moves.names_gone];
    if changes.iter().all(|change| *change == 0) {
        return Ok(());
    }
    writeln!(
        console.out,
        "  streams moved: {} of {}; sources closed: {} of {}, opened: {}; names gone: {}",
        moves.streams_moved,
        moves.streams,
        moves.sources_closed,
        moves.sources,
        moves.sources_opened,
        moves.names_gone
    )?;
    for name in &moves.names {
        writeln!(console.out, "    - {}", safe(name))?;
    }
    if moves.streams_undecided > 0 {
        writeln!(
            console.out,
            "  streams undecided: {}; their new sources have not answered yet, so more names may go",
            moves.streams_undecided
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cmd_2_the_worst_result_decides_about_the_exit_code() {
        let all = ["changed", "unchanged", "held", "invalid", "needs_process", "failed", "ending"];
        let troubles: Vec<_> = all.iter().map(|result| trouble(result).map(|worst| worst as u8)).collect();
        assert_eq!(troubles, [None, None, Some(0), Some(1), Some(1), Some(2), Some(2)]);
        assert!(trouble("held") < trouble("invalid") && trouble("invalid") < trouble("failed"));
    }

    #[test]
    fn an_answer_is_a_few_lines() {
        let answer = json!({
            "result": "changed", "dry_run": true, "generation": 1,
            "changes": [{"key": "log.level", "from": null, "to": "debug\u{1b}", "effect": "live"}],
            "listeners": {"added": ["b"], "removed": [], "moved": []},
            "moves": {"streams": 4, "streams_moved": 1, "streams_undecided": 1, "sources": 3, "sources_opened": 2,
                      "sources_closed": 1, "names_gone": 1, "names": ["Cluster a"]},
            "warnings": ["odd"], "faults": [], "say": null,
        });
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console { out: &mut out, err: &mut err, is_terminal: false, has_colour: false };
        let report = serde_json::from_value(answer).unwrap();
        describe("r1", &report, &mut console).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "r1  can be taken, generation 1 is in force\n  log.level  unset -> debug\\u{1b}  (live)\n  \
             listeners added: b\n  streams moved: 1 of 4; sources closed: 1 of 3, opened: 2; names gone: 1\n    - Cluster a\n  streams \
             undecided: 1; their new sources have not answered yet, so more names may go\n"
        );
        assert_eq!(String::from_utf8(err).unwrap(), "sluice: relay r1: warning: odd\n");
    }
}
