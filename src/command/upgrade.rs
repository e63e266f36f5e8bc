//! `sluice upgrade`: a new process in place of a relay (HND-2, HND-5).

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::Method;
use sluice_admin_api::acts::Upgraded;
use sluice_admin_api::endpoints::Endpoint;
use sluice_admin_api::parameters::{Parameters, UpgradeParameters};

use super::arguments::RelayArguments;
use super::console::Console;
use super::list::path;
use super::outcome::{Failure, Outcome};
use super::relays::Relays;
use super::request::Missing;
use super::table::span;
use super::typed::Typed;

/// The new process may take `handover.timeout`, which is 10 min at most.
const TIMEOUT: Duration = Duration::from_secs(660);

/// The answer to an upgrade that has failed: the relay is well, and serves on.
const FAILED: u16 = 502;

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct Upgrade {
    /// End the process of an earlier upgrade that still drains: its streams end at once.
    #[arg(long)]
    now: bool,
    /// Start the new process, and end it before it serves.
    #[arg(long)]
    dry_run: bool,
    /// The executable of the new process [default: `handover.binary`, or the path by which the relay was
    /// started]. Only over a unix socket, and only for root and the user of the relay.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    #[command(flatten)]
    reach: RelayArguments,
}

const HELP: &str = "\
Starts a new process of the relay, which reads its configuration anew, and takes over the listening sockets, the admin \
socket, the lock of the checkpoint and the cached resources. No connection is refused or reset. Then the old process \
drains: each stream ends once, at a random moment of `handover.drain`, and its client finds the new process. Until the \
new process accepts, the old one serves, and nothing has happened if the new one fails.

Output:
  a line with both processes; with --dry-run, what an upgrade would do

Examples:
  sluice upgrade --dry-run
  sluice upgrade --now --dry-run

Exit codes: 0 upgraded; 1 the new process could not take over, and the relay serves as before; 64 the relay refuses.";

pub(super) async fn run(upgrade: Upgrade, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let mut relays = Relays::new(&upgrade.reach).await?;
    if relays.are_several() {
        let text =
            "upgrade one relay at a time: the others take its clients if it fails; name one by --relay";
        return Err(Failure::Usage(text.to_owned()));
    }
    relays.caller.timeout = relays.caller.timeout.max(TIMEOUT);
    let flag = |is_set: bool| is_set.then(|| "1".to_owned());
    let binary =
        upgrade.binary.as_deref().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    let binary = binary.map(|path| path.display().to_string());
    let parameters = UpgradeParameters { now: flag(upgrade.now), dry_run: flag(upgrade.dry_run), binary };
    let path = path(Endpoint::Upgrade.path(), parameters.into_pairs());
    let answers = relays.typed::<Upgraded>(&Method::POST, &path).await;
    if let Some((relay, Missing::Refused { status: FAILED, reason })) = answers.missing.first() {
        writeln!(console.err, "sluice: {relay}: {reason}")?;
        return Ok(Outcome::Differs);
    }
    answers.report(console.err)?;
    let Some(Typed { value: upgraded, .. }) = answers.values().next() else { return Ok(Outcome::Differs) };
    let Upgraded { pid, version, binary, sources, predecessor, .. } = upgraded;
    let streams = predecessor.streams;
    let window = span(predecessor.seconds_left).unwrap_or_default();
    if upgrade.dry_run {
        writeln!(
            console.out,
            "would upgrade: {binary} is version {version}, accepts the configuration and took {sources} sources over; \
             {streams} streams would move within {window}"
        )?;
    } else {
        writeln!(
            console.out,
            "upgraded: process {pid} serves with version {version}; process {} has {streams} streams, which move within {window}",
            predecessor.pid
        )?;
    }
    console.out.flush()?;
    Ok(Outcome::Good)
}
