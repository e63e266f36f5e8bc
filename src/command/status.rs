//! `sluice status`: each relay in a few lines, and the commands for the next question.

use clap::Args;
use http::Method;
use serde_json::Value;

use super::answer::{self, Forms, Found};
use super::arguments::{Reach, Show};
use super::console::Console;
use super::list::with_relay;
use super::outcome::{Failure, Outcome};
use super::relays::Relays;
use super::request::{Caller, Missing};
use super::table::{Table, list, number, span, text};
use crate::text::{count, version};

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct Status {
    /// Exit with 1 unless every relay is ready and every client in sync, counted anew: takes up to a second.
    #[arg(long)]
    check: bool,
    /// Print nothing; exit with 0 if every relay is ready for traffic, else with 69. For probes: clients do not count.
    #[arg(long, conflicts_with_all = ["check", "watch"])]
    ready: bool,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

const HELP: &str = "\
Output, for each relay:
Columns:
  relay      its node id, version, age, configuration, and whether it is ready
  clients    streams: in sync, and the others by cause; unacked: sent, no answer; held: news is not sent yet; rejected: by
             the client; silent: unacked for a minute; stale: their server is unreachable
  upstream   each control plane: state, sources, and since when it is stale
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
        let path = if check { "/overview?counted=now" } else { "/overview" };
        let answers = relays.json(&Method::GET, path).await;
        let outcome = answers.tell(console.err)?;
        let found = answers.found.into_iter();
        let items: Vec<Value> = found.map(|(label, overview)| with_relay(overview, &label)).collect();
        let is_differing = check && !items.iter().all(is_in_sync);
        let outcome = if is_differing && outcome == Outcome::Good { Outcome::Differs } else { outcome };
        Ok(Found { items, outcome })
    };
    let table = |items: &[Value], _: bool, console: &mut Console<'_>| {
        items.iter().try_for_each(|of| table(of, relays.are_several()).write(console.out, false, false))
    };
    let names = |of: &Value| text(of, "node").into_iter().collect();
    answer::show(show, console, &Forms { key: Some("relays"), table: &table, names }, ask).await
}

async fn is_ready(relays: &Relays, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let ask = async |caller: &Caller, relay: &_| match caller.whole(relay, &Method::GET, "/ready").await? {
        (status, _) if status.is_success() => Ok(()),
        (status, _) => Err(Missing::Silent(format!("not ready: {status}"))),
    };
    let answers = relays.all(ask).await;
    match answers.tell(console.err)? {
        Outcome::Good => Ok(Outcome::Good),
        _ => Err(Failure::NoRelay("not every relay is ready".to_owned())),
    }
}

fn is_in_sync(overview: &Value) -> bool {
    let clients = overview.get("clients").unwrap_or(&Value::Null);
    overview.get("ready").and_then(Value::as_bool) == Some(true)
        && number(clients, "synced") == number(clients, "streams")
}

/// A table without heads: the first column says the subject of the line.
fn table(overview: &Value, are_several: bool) -> Table {
    let mut table = Table::plain(&["", ""]);
    let mut line = |subject: &str, words: String| table.push([Some(subject.to_owned()), Some(words)]);
    line("relay", relay(overview, are_several));
    line("clients", clients(overview.get("clients").unwrap_or(&Value::Null)));
    for upstream in list(overview, "upstreams") {
        line("upstream", self::upstream(upstream));
    }
    let delivery = overview.get("delivery").unwrap_or(&Value::Null);
    if let Some(id) = text(delivery, "last_change") {
        line("last change", format!("{id}  sluice get change {id}"));
    }
    if let Some(reload) = overview.get("config").and_then(|config| config.get("last_reload"))
        && reload.get("ok").and_then(Value::as_bool) == Some(false)
    {
        let faults: Vec<_> = list(reload, "faults").iter().filter_map(Value::as_str).collect();
        line("reload", format!("FAILED: {}", faults.join("; ")));
    }
    for attention in list(overview, "attention") {
        let [what, say] = ["what", "say"].map(|key| text(attention, key).unwrap_or_default());
        line("attention", format!("{what}  {say}"));
    }
    table
}

fn relay(overview: &Value, are_several: bool) -> String {
    let mut words = vec![text(overview, "node").unwrap_or_else(|| "-".to_owned())];
    words.extend(text(overview, "version"));
    let mut line = words.join(" ");
    if let Some(up) = span(overview, "uptime_seconds") {
        line += &format!(", up {up}");
    }
    let config = overview.get("config").unwrap_or(&Value::Null);
    if let Some(generation) = text(config, "generation") {
        line += &format!(", generation {generation}");
        if let Some(hash) = text(config, "hash").filter(|hash| !hash.is_empty()) {
            line += &format!(" ({})", version(&hash));
        }
    }
    let flag = |key: &str| overview.get(key).and_then(Value::as_bool) == Some(true);
    line += match (flag("ready"), flag("draining")) {
        (true, _) => ", ready",
        (false, true) => ", draining",
        (false, false) => ", not ready",
    };
    if are_several {
        line += &format!(", at {}", text(overview, "relay").unwrap_or_default());
    }
    line
}

fn clients(of: &Value) -> String {
    let get = |key: &str| number(of, key).unwrap_or(0);
    let mut line = format!("{}: {} in sync", count(get("streams"), "stream"), get("synced"));
    for (key, words) in [
        ("unacked", "unacked"),
        ("held", "held"),
        ("rejected", "rejected"),
        ("unknown", "unknown"),
        ("refused", "refused"),
        ("silent", "silent"),
        ("on_fallback", "on a fallback"),
        ("stale", "stale"),
    ] {
        if get(key) > 0 {
            line += &format!(", {} {words}", get(key));
        }
    }
    line
}

fn upstream(of: &Value) -> String {
    let get = |key: &str| text(of, key).unwrap_or_else(|| "-".to_owned());
    let mut line = format!(
        "{}  {}, {}",
        get("server"),
        get("state"),
        count(number(of, "sources").unwrap_or(0), "source")
    );
    if let Some(stale) = span(of, "stale_seconds") {
        line += &format!(", stale for {stale}");
    }
    if let Some(error) = text(of, "last_error") {
        line += &format!(": {error}");
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_relay_is_told_in_a_few_lines() {
        let mut overview = json!({
            "relay": "r1:19000", "api": 1, "version": "0.2.0", "node": "sluice-eu-1\u{1b}", "uptime_seconds": 273600.0,
            "ready": true, "draining": false,
            "config": {"generation": 4, "hash": "9f31c0aa77", "last_reload": {"ok": false, "faults": ["a: b"]}},
            "clients": {"streams": 10, "synced": 7, "unacked": 2, "held": 0, "rejected": 1, "silent": 1, "stale": 0},
            "upstreams": [{"server": "cp-1:15010", "state": "backoff", "sources": 3, "stale_seconds": 61.0,
                "last_error": "UNAVAILABLE: gone"}],
            "delivery": {"last_change": "c-3-118"},
            "attention": [{"what": "1 client rejects c-3-118", "say": "sluice get change c-3-118"}],
        });
        let mut out = Vec::new();
        table(&overview, true).write(&mut out, false, false).unwrap();
        let expected = "\
relay        sluice-eu-1\\u{1b} 0.2.0, up 3d4h, generation 4 (9f31c0aa), ready, at r1:19000
clients      10 streams: 7 in sync, 2 unacked, 1 rejected, 1 silent
upstream     cp-1:15010  backoff, 3 sources, stale for 1m1s: UNAVAILABLE: gone
last change  c-3-118  sluice get change c-3-118
reload       FAILED: a: b
attention    1 client rejects c-3-118  sluice get change c-3-118
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        assert!(!is_in_sync(&overview));
        overview["clients"]["synced"] = json!(10);
        assert!(is_in_sync(&overview));
        overview["ready"] = json!(false);
        assert!(!is_in_sync(&overview));
    }
}
