//! `sluice ledger show` and `init`: the ledger that replicas share (LDG-6).

use std::path::PathBuf;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::json;
use sluice_admin_api::endpoints::Endpoint;
use sluice_admin_api::rollouts::LedgerState;

use super::arguments::{AnswerForm, RelayArguments};
use super::console::Console;
use super::outcome::{Failure, Outcome};
use super::relays::Relays;
use super::text::safe;
use super::typed::{Typed, jsons};

#[derive(Debug, Subcommand)]
pub enum LedgerCommand {
    /// Show the ledger that a relay shares with other replicas, and its state.
    #[command(after_help = SHOW_HELP)]
    Show(LedgerArguments),
    /// Believe the present ledger, although data were lost.
    #[command(after_help = INIT_HELP)]
    Init(InitArguments),
}

#[derive(Args, Debug)]
pub struct InitArguments {
    /// For the next start of a stopped relay: believe the ledger of that time. No relay is asked.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    common: LedgerArguments,
}

#[derive(Args, Debug)]
pub struct LedgerArguments {
    /// Form of the output; json: the answers of the API, with `relay`.
    #[arg(short = 'o', long = "output", value_enum, value_name = "FORM", default_value_t = AnswerForm::Table)]
    form: AnswerForm,
    #[command(flatten)]
    reach: RelayArguments,
}

const SHOW_HELP: &str = "\
`sluice rollout status` has the replicas of each plan.

Output:
  for each relay, its name among the replicas, the ledger, and why it is away or takes no writes

Examples:
  sluice ledger show
  sluice ledger show -o json

Exit codes: 0 shown; 64 wrong arguments, or the relay shares no ledger; 69 no relay answered.";

const INIT_HELP: &str = "\
A ledger that was known and is empty, older or another one may have forgotten that a push was halted. Replicas do not act on it \
until you say so to each of them. Pushes that this replica has halted stay halted.

Output:
  for each relay, its name among the replicas, the ledger, and why it is away

Examples:
  sluice ledger init
  sluice ledger init --relay http://10.0.0.7:19000
  sluice ledger init --config /etc/sluice/sluice.yaml

Exit codes: 0 done, or already so; 64 wrong arguments, or the relay shares no ledger; 65 the ledger is away, so there is none to \
believe, or a relay runs with --config: nothing was done; 69 no relay answered.";

pub(super) async fn run(command: LedgerCommand, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let (method, endpoint, arguments) = match command {
        LedgerCommand::Show(arguments) => (Method::GET, Endpoint::Ledger, arguments),
        LedgerCommand::Init(InitArguments { common, .. }) => (Method::POST, Endpoint::InitLedger, common),
    };
    let relays = Relays::new(&arguments.reach).await?;
    let answers = relays.typed::<LedgerState>(&method, endpoint.path()).await;
    let outcome = answers.report_state(console.err)?;
    let states: Vec<Typed<LedgerState>> = answers.values().collect();
    match arguments.form {
        AnswerForm::Json => console.json(&json!({ "relays": jsons(&states) }))?,
        AnswerForm::Table => {
            for Typed { relay, value, .. } in &states {
                writeln!(console.out, "{}  {}", safe(relay), safe(&line(value)))?;
            }
        }
    }
    console.out.flush()?;
    Ok(outcome)
}

/// `relay-1: etcd at a:2379, here; entries: 7`.
fn line(state: &LedgerState) -> String {
    let LedgerState { place, replica, fault, unwritten, entries, .. } = state;
    match (fault, unwritten) {
        (Some(fault), _) => format!("{replica}: {place}, AWAY: {fault}"),
        (None, Some(why)) => format!("{replica}: {place}, TAKES NO WRITES: {why}; entries: {entries}"),
        (None, None) => format!("{replica}: {place}, here; entries: {entries}"),
    }
}
