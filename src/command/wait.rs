//! `sluice wait`: until clients have a change (CMD-5).

use std::time::Duration;

use clap::Args;
use sluice_admin_api::changes::Change;
use tokio::time::{Instant, sleep};

use super::address::Target;
use super::arguments::RelayArguments;
use super::change::{self, LATEST};
use super::console::Console;
use super::outcome::{Failure, Outcome};
use super::relays::Relays;
use super::request::Caller;
use super::text::safe;
use super::typed::Typed;

/// The pause between two looks.
const INTERVAL: Duration = Duration::from_millis(200);

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct Wait {
    /// The change: its id, or `latest`, which is looked up once.
    #[arg(long, value_name = "ID", default_value = LATEST)]
    change: String,
    /// The condition: synced=PERCENT of the clients that want the change and got no later one have it.
    #[arg(long = "for", value_name = "CONDITION", default_value = "synced=100%", value_parser = parse_condition)]
    condition: f64,
    #[command(flatten)]
    reach: RelayArguments,
}

const HELP: &str = "\
Here --timeout is the time of the whole wait. A client that rejected the change does not have it.

Output:
  a line for each relay: how many clients have the change; after a timeout also the words of clients that rejected it

Examples:
  sluice wait --change latest --for synced=99%
  sluice wait --timeout 30s

Exit codes: 0 the condition holds; 75 the time is over.";

/// Percent, as a share.
fn parse_condition(text: &str) -> Result<f64, String> {
    let percent = text.strip_prefix("synced=").and_then(|share| share.strip_suffix('%'));
    let percent = percent.and_then(|percent| percent.parse::<f64>().ok());
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    percent
        .map(|percent| percent / 100.0)
        .ok_or_else(|| "expected synced=N%, with N from 0 to 100".to_owned())
}

/// The clients of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Count {
    have: u64,
    /// Without those that got a later change instead.
    want: u64,
}

impl Count {
    fn new(change: &Change<'_>) -> Count {
        let counts = &change.counts;
        Count { have: counts.acked.into(), want: counts.wanted.saturating_sub(counts.superseded).into() }
    }

    fn holds(self, share: f64) -> bool {
        // Also for a change that nobody wants any more.
        self.have as f64 >= self.want as f64 * share
    }
}

pub(super) async fn run(wait: Wait, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let until = Instant::now() + wait.reach.timeout;
    let relays = Relays::new(&wait.reach).await?;
    let id = &wait.change;
    let first = relays.all(async |caller: &Caller, relay: &_| change::find(caller, relay, id).await).await;
    // Without all relays, nobody can tell whether all clients have the change.
    if first.report(console.err)? == Outcome::Partly {
        return Ok(Outcome::Partly);
    }
    let mut changes: Vec<_> = first.values().flatten().collect();
    if changes.is_empty() {
        writeln!(console.out, "no change yet")?;
        console.out.flush()?;
        return Ok(Outcome::Good);
    }
    loop {
        let counts = changes.iter().map(|change| Count::new(&change.value));
        let all = counts.fold(Count::default(), |all, count| Count {
            have: all.have + count.have,
            want: all.want + count.want,
        });
        let is_over = Instant::now() >= until;
        if all.holds(wait.condition) || is_over {
            report(&changes, relays.are_several(), !all.holds(wait.condition), console)?;
            return Ok(if all.holds(wait.condition) { Outcome::Good } else { Outcome::TimedOut });
        }
        sleep(INTERVAL).await;
        let ask = async |caller: &Caller, relay: &Target| {
            let Some(change) = changes.iter().find(|change| change.relay == relay.label) else {
                return Ok(None);
            };
            change::find(caller, relay, &change.value.id).await
        };
        // A relay that is silent now and then keeps its last numbers.
        for change in relays.all(ask).await.values().flatten() {
            if let Some(slot) = changes.iter_mut().find(|slot| slot.relay == change.relay) {
                *slot = change;
            }
        }
    }
}

fn report(
    changes: &[Typed<Change<'_>>],
    are_several: bool,
    has_failed: bool,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    for Typed { relay, value: change, .. } in changes {
        let Count { have, want } = Count::new(change);
        let at = if are_several { format!(" at {relay}") } else { String::new() };
        writeln!(console.out, "{have} of {want} clients have {}{}", safe(&change.id), safe(&at))?;
        for rejection in change.rejections.iter().filter(|_| has_failed) {
            writeln!(console.out, "{} rejected it: {}", rejection.count, safe(&rejection.text))?;
        }
    }
    console.out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cmd_5_a_client_that_rejects_a_change_never_counts_as_having_it() {
        let change = json!({"id": "c-1-2", "wanted": 110, "acked": 99, "rejected": 1, "waiting": 0, "superseded": 10,
            "rejections": [{"text": "no such cluster", "count": 1, "clients": []}]});
        let change = Typed::<Change>::new(change, "r").unwrap();
        let count = Count::new(&change.value);
        assert_eq!(count, Count { have: 99, want: 100 });
        assert!(count.holds(0.99) && !count.holds(1.0));
        assert!(Count::default().holds(1.0));
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console { out: &mut out, err: &mut err, is_terminal: false, has_colour: false };
        report(&[change], false, true, &mut console).unwrap();
        let text = "99 of 100 clients have c-1-2\n1 rejected it: no such cluster\n";
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }

    #[test]
    fn a_condition_is_a_share() {
        assert_eq!(parse_condition("synced=99.5%"), Ok(0.995));
        for text in ["synced=101%", "synced=99", "99%", "synced=x%", "synced=-1%", "synced=NaN%"] {
            assert!(parse_condition(text).is_err(), "{text}");
        }
    }
}
