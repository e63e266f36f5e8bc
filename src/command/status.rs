//! `sluice status`: each relay in a few lines, and the commands for the next question.

use clap::Args;
use http::Method;
use sluice_admin_api::endpoints::Endpoint;
use sluice_admin_api::overview::{
    Attention, ClientCensus, ConfigInForce, LatestDelivery, Overview, TierAge, UpstreamOverview,
};
use sluice_admin_api::parameters::{OverviewParameters, Parameters};

use super::answer::{self, Forms, RelayAnswers};
use super::arguments::{RelayArguments, Show};
use super::console::Console;
use super::list::path;
use super::outcome::{Failure, Outcome};
use super::relays::Relays;
use super::request::{Caller, Missing};
use super::table::{Table, span};
use super::typed::Typed;
use sluice_text::{count, version};

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct Status {
    /// Exit with 1 unless every relay is ready and every client in sync, counted anew: takes up to a second.
    #[arg(long)]
    check: bool,
    /// Print nothing; exit with 0 if every relay is ready for traffic, else with 69. For probes: clients do
    /// not count.
    #[arg(long, conflicts_with_all = ["check", "watch"])]
    ready: bool,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: RelayArguments,
}

const HELP: &str = "\
Output, for each relay:
Columns:
  relay      its node id, version, age, configuration, and whether it is ready
  clients    streams: in sync, and the others by cause; unacked: sent, no answer; held: news is not sent yet; rejected: by
             the client; silent: unacked for a minute; stale: their server is unreachable
  upstream   each control plane: state, sources, and since when it is stale
  tier       each way through other relays, and when the control plane at its end last confirmed what this relay serves
  attention  each thing to look at, with the command for it; nothing when all is well

Examples:
  sluice status
  sluice status --ready";

pub(super) async fn run(status: Status, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let Status { check, ready, show, reach } = status;
    let relays = Relays::new(&reach).await?;
    if ready {
        return is_ready(&relays, console).await;
    }
    let ask = async |console: &mut Console<'_>| {
        // The verdict must not come from counts of before the question.
        let parameters = OverviewParameters { counted: check.then(|| "now".to_owned()) };
        let path = path(Endpoint::Overview.path(), parameters.into_pairs());
        let answers = relays.typed(&Method::GET, &path).await;
        let outcome = answers.report(console.err)?;
        let items: Vec<Typed<Overview>> = answers.values().collect();
        let is_differing = check && !items.iter().all(|item| is_in_sync(&item.value));
        let outcome = if is_differing && outcome == Outcome::Good { Outcome::Differs } else { outcome };
        Ok(RelayAnswers { items, outcome })
    };
    let table = |items: &[Typed<Overview>], _: bool, console: &mut Console<'_>| {
        items.iter().try_for_each(|item| {
            let relay = relays.are_several().then_some(&*item.relay);
            table(&item.value, relay).write(console.out, false, false)
        })
    };
    let names = |overview: &Overview| vec![overview.node.clone()];
    answer::show(show, console, &Forms { key: Some("relays"), table: &table, names }, ask).await
}

async fn is_ready(relays: &Relays, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let ask = async |caller: &Caller, relay: &_| match caller
        .whole(relay, &Method::GET, Endpoint::Ready.path())
        .await?
    {
        (status, _) if status.is_success() => Ok(()),
        (status, _) => Err(Missing::Silent(format!("not ready: {status}"))),
    };
    let answers = relays.all(ask).await;
    match answers.report(console.err)? {
        Outcome::Good => Ok(Outcome::Good),
        _ => Err(Failure::Unavailable("not every relay is ready".to_owned())),
    }
}

fn is_in_sync(overview: &Overview) -> bool {
    overview.ready && overview.clients.synced == overview.clients.streams
}

/// A table without heads: the first column says the subject of the line. `label`: the relay, if there are
/// several.
fn table(overview: &Overview, label: Option<&str>) -> Table {
    let mut table = Table::plain(&["", ""]);
    let mut line = |subject: &str, words: String| table.push([Some(subject.to_owned()), Some(words)]);
    line("relay", relay(overview, label));
    line("clients", clients(&overview.clients));
    for upstream in &overview.upstreams {
        line("upstream", self::upstream(upstream));
    }
    for tier in &overview.tiers {
        line("tier", self::tier(tier));
    }
    if let Some(LatestDelivery { last_change: id, .. }) = &overview.delivery {
        line("last change", format!("{id}  sluice get change {id}"));
    }
    for Attention { what, say, .. } in &overview.attention {
        line("attention", format!("{what}  {say}"));
    }
    table
}

fn relay(overview: &Overview, label: Option<&str>) -> String {
    let mut line = format!("{} {}", overview.node, overview.version);
    if let Some(up) = span(overview.uptime_seconds) {
        line += &format!(", up {up}");
    }
    let ConfigInForce { generation, hash, .. } = &overview.config;
    line += &format!(", generation {generation}");
    if !hash.is_empty() {
        line += &format!(" ({})", version(hash));
    }
    line += match (overview.ready, overview.draining) {
        (true, _) => ", ready",
        (false, true) => ", draining",
        (false, false) => ", not ready",
    };
    if let Some(label) = label {
        line += &format!(", at {label}");
    }
    line
}

fn clients(census: &ClientCensus) -> String {
    let mut line = format!("{}: {} in sync", count(census.streams as u64, "stream"), census.synced);
    for (number, words) in [
        (census.unacked, "unacked"),
        (census.held, "held"),
        (census.rejected, "rejected"),
        (census.unknown, "unknown"),
        (census.refused, "refused"),
        (census.silent, "silent"),
        (census.on_fallback, "on a fallback"),
        (census.stale, "stale"),
    ] {
        if number > 0 {
            line += &format!(", {number} {words}");
        }
    }
    line
}

fn upstream(upstream: &UpstreamOverview) -> String {
    let UpstreamOverview { server, state, sources, .. } = upstream;
    let mut line = format!("{server}  {state}, {}", count(*sources as u64, "source"));
    if let Some(stale) = upstream.stale_seconds.and_then(span) {
        line += &format!(", stale for {stale}");
    }
    if let Some(error) = &upstream.last_error {
        line += &format!(": {error}");
    }
    line
}

fn tier(TierAge { path, age_seconds }: &TierAge) -> String {
    match age_seconds.map(|age| span(age).unwrap_or_else(|| "0s".to_owned())) {
        Some(age) => format!("{path}  confirmed {age} ago"),
        None => format!("{path}  not confirmed yet"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_relay_is_shown_in_a_few_lines() {
        let overview = json!({
            "api": 1, "version": "0.2.0", "node": "sluice-eu-1\u{1b}", "uptime_seconds": 273600.0,
            "ready": true, "draining": false,
            "config": {"generation": 4, "hash": "9f31c0aa77", "last_reload": {"result": "invalid"}},
            "clients": {"streams": 10, "synced": 7, "unacked": 2, "held": 0, "rejected": 1, "silent": 1, "stale": 0},
            "upstreams": [{"server": "cp-1:15010", "state": "backoff", "sources": 3, "stale_seconds": 61.0,
                "last_error": "UNAVAILABLE: gone"}],
            "tiers": [{"path": "root-1 via cp:15010", "age_seconds": 61.0}, {"path": "root-2 via cp:15010"}],
            "delivery": {"last_change": "c-3-118"},
            "attention": [{"what": "1 client rejects c-3-118", "say": "sluice get change c-3-118"}],
        });
        let mut overview: Overview = serde_json::from_value(overview).unwrap();
        let mut out = Vec::new();
        table(&overview, Some("r1:19000")).write(&mut out, false, false).unwrap();
        let expected = "\
relay        sluice-eu-1\\u{1b} 0.2.0, up 3d4h, generation 4 (9f31c0aa), ready, at r1:19000
clients      10 streams: 7 in sync, 2 unacked, 1 rejected, 1 silent
upstream     cp-1:15010  backoff, 3 sources, stale for 1m1s: UNAVAILABLE: gone
tier         root-1 via cp:15010  confirmed 1m1s ago
tier         root-2 via cp:15010  not confirmed yet
last change  c-3-118  sluice get change c-3-118
attention    1 client rejects c-3-118  sluice get change c-3-118
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        assert!(!is_in_sync(&overview));
        overview.clients.synced = 10;
        assert!(is_in_sync(&overview));
        overview.ready = false;
        assert!(!is_in_sync(&overview));
    }
}
