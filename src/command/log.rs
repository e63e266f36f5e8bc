//! `sluice log`: other log directives for a time.

use std::time::Duration;

use clap::Args;
use http::Method;
use sluice_admin_api::acts::LogDirectives;
use sluice_admin_api::endpoints::Endpoint;
use sluice_admin_api::parameters::{LogParameters, Parameters};

use super::arguments::RelayArguments;
use super::console::Console;
use super::list::path;
use super::outcome::{Failure, Outcome};
use super::relays::Relays;
use super::table::span;
use super::text::{parse_duration, safe};
use super::typed::Typed;

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct LogArguments {
    /// Level, or directives like `info,sluice::client=trace`.
    #[arg(value_name = "LEVEL", required_unless_present = "reset")]
    level: Option<String>,
    /// The time after which the level of the configuration is in force again.
    #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    duration: Duration,
    /// Put the level of the configuration in force now.
    #[arg(long, conflicts_with_all = ["level", "duration"])]
    reset: bool,
    #[command(flatten)]
    reach: RelayArguments,
}

const HELP: &str = "\
Levels: off, error, warn, info, debug, trace. The log goes where it went before; a log at debug has a line for each \
request of a client.

Output:
  a line for each relay: the level in force, and for how long

Examples:
  sluice log debug --for 5m
  sluice log --reset";

pub(super) async fn run(log: LogArguments, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let relays = Relays::new(&log.reach).await?;
    let duration = log.level.is_some().then(|| format!("{}ms", log.duration.as_millis()));
    let parameters = LogParameters { level: log.level, r#for: duration };
    let path = path(Endpoint::Log.path(), parameters.into_pairs());
    let answers = relays.typed::<LogDirectives>(&Method::POST, &path).await;
    let outcome = answers.report(console.err)?;
    for Typed { relay, value: LogDirectives { level, configured, seconds_left }, .. } in answers.values() {
        let line = match seconds_left.and_then(span) {
            Some(left) => format!("{relay}  {level} for {left}, then {configured}"),
            None => format!("{relay}  {level}, as configured"),
        };
        writeln!(console.out, "{}", safe(&line))?;
    }
    console.out.flush()?;
    Ok(outcome)
}
