//! `sluice drain`: empties one relay, and the way back (HND-9).

use std::time::Duration;

use clap::Args;
use http::Method;
use sluice_admin_api::acts::DrainStatus;
use sluice_admin_api::endpoints::Endpoint;
use sluice_admin_api::parameters::{DrainParameters, Parameters};
use tokio::time::{Instant, sleep};

use super::arguments::RelayArguments;
use super::console::Console;
use super::list::path;
use super::outcome::{Failure, Outcome};
use super::relays::Relays;
use super::table::span;
use super::text::parse_duration;
use sluice_text::count;

/// A drain ends when its last stream has ended. The status of the relay is cheap.
const INTERVAL: Duration = Duration::from_millis(250);

/// The time for the last streams beyond the drain's own: that of a busy host.
const MARGIN: Duration = Duration::from_secs(2);

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct Drain {
    /// The time in which the streams end, each at a random moment [default: `drain` of the configuration].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    over: Option<Duration>,
    /// The time before, in which the relay is not ready and serves as before, so that load balancers notice.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    after: Option<Duration>,
    /// Only say what the drain would do.
    #[arg(long)]
    dry_run: bool,
    /// End the drain: the relay is ready again. Streams that were told to leave leave nevertheless.
    #[arg(long, conflicts_with_all = ["over", "after", "dry_run", "no_wait"])]
    cancel: bool,
    /// Do not wait until the relay is empty.
    #[arg(long, conflicts_with = "dry_run")]
    no_wait: bool,
    #[command(flatten)]
    reach: RelayArguments,
}

const HELP: &str = "\
Takes one relay out of service without an end of its process: /ready is 503, streams end with UNAVAILABLE at random \
moments, and new connections are closed at once. Clients keep their state, and turn to another relay. It lasts until \
`sluice drain --cancel`, or until the process ends.

Output:
  a line with the begin of the drain, and one when the relay is empty: the streams that have left, and the connections
  that had to be cut because their clients stayed

Examples:
  sluice drain --over 60s --after 5s --dry-run
  sluice drain --over 1s

Exit codes: 0 empty, or as asked; 1 some streams are still here after the drain.";

pub(super) async fn run(drain: Drain, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let relays = Relays::new(&drain.reach).await?;
    if relays.are_several() {
        let text = "drain one relay at a time: its clients need another; name one by --relay";
        return Err(Failure::Usage(text.to_owned()));
    }
    if drain.cancel {
        let status = ask(&relays, &Method::DELETE, Endpoint::EndDrain.path(), console).await?;
        let streams = count(status.streams, "stream");
        writeln!(console.out, "serving: ready, {streams}")?;
        console.out.flush()?;
        return Ok(Outcome::Good);
    }
    let time = |time: Option<Duration>| time.map(|time| format!("{}ms", time.as_millis()));
    let dry_run = drain.dry_run.then(|| "1".to_owned());
    let parameters = DrainParameters { over: time(drain.over), after: time(drain.after), dry_run };
    let path = path(Endpoint::BeginDrain.path(), parameters.into_pairs());
    let status = ask(&relays, &Method::POST, &path, console).await?;
    let streams = count(status.streams, "stream");
    let within = span(status.seconds_left).unwrap_or_default();
    if let Some(warning) = &status.warning {
        writeln!(console.err, "warning: {warning}")?;
    }
    if drain.dry_run {
        writeln!(console.out, "would drain: ready would be 503, {streams} would leave within {within}")?;
        console.out.flush()?;
        return Ok(Outcome::Good);
    }
    writeln!(console.out, "draining: ready is 503, {streams} to leave within {within}")?;
    console.out.flush()?;
    if drain.no_wait {
        return Ok(Outcome::Good);
    }
    wait(&relays, Duration::from_secs_f64(status.seconds_left) + MARGIN, console).await
}

/// Waits until the relay is empty.
async fn wait(relays: &Relays, at_most: Duration, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let begin = Instant::now();
    loop {
        let status = ask(relays, &Method::GET, Endpoint::Drain.path(), console).await?;
        let DrainStatus { streams, left, cut, .. } = status;
        let is_over = matches!(status.state.as_str(), "empty" | "serving" | "");
        if is_over || begin.elapsed() >= at_most {
            writeln!(console.out, "{left} left, {cut} cut, {streams} are here")?;
            console.out.flush()?;
            return Ok(if streams == 0 { Outcome::Good } else { Outcome::Differs });
        }
        if console.is_terminal {
            write!(console.err, "\r{left} left, {streams} to go ")?;
            console.err.flush()?;
        }
        sleep(INTERVAL).await;
        if console.is_terminal {
            write!(console.err, "\r\u{1b}[K")?;
        }
    }
}

async fn ask(
    relays: &Relays,
    method: &Method,
    path: &str,
    console: &mut Console<'_>,
) -> Result<DrainStatus, Failure> {
    let answers = relays.typed(method, path).await;
    answers.report(console.err)?;
    Ok(answers.values().next().map(|status| status.value).unwrap_or_default())
}
