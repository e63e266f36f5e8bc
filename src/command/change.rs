//! `sluice get change`: a change, its way to the clients, and the words of clients that reject the change.

use clap::Args;
use http::Method;
use serde_json::{Value, json};

use super::arguments::{Format, Reach, Show};
use super::console::Console;
use super::list::{path, with_relay};
use super::outcome::{Failure, Outcome};
use super::relays::Relays;
use super::request::{Caller, Missing};
use super::table::{Table, changed_names, list, number, span, text, type_name, version};
use super::text::safe;
use super::yaml::yaml;
use crate::text::{encoded, size};

/// The latest change of a relay.
pub(super) const LATEST: &str = "latest";

#[derive(Args, Clone, Debug)]
pub struct Change {
    /// The id of the change, or `latest`.
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

pub(super) const HELP: &str = "\
Columns:
  REJECTED BY  the number of clients with this text; digits and quoted names in texts are left out of the comparison
  TEXT         the words of the clients
  CLIENTS      some of them, by node id
The lines before have the names that changed; the clients that wanted the change, have it, rejected it or have not
answered; and superseded: those that got a later change instead. p50, p99 and last: the time until they had it.

Examples:
  sluice get change latest
  sluice get change latest -o json";

/// The change with an id; `None` for the latest one of a relay without changes.
pub(super) async fn find(
    caller: &Caller,
    relay: &super::address::Relay,
    id: &str,
) -> Result<Option<Value>, Missing> {
    if id != LATEST {
        return caller.json(relay, &Method::GET, &format!("/changes/{}", encoded(id))).await.map(Some);
    }
    let path = path("/changes", [("limit", "1".to_owned())]);
    let mut found = caller.json(relay, &Method::GET, &path).await?;
    let changes = found.get_mut("changes").and_then(Value::as_array_mut);
    Ok(changes.and_then(|changes| changes.drain(..).next()))
}

pub(super) async fn run(change: Change, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let Change { id, show, reach } = change;
    if show.watch {
        return Err(Failure::Usage("--watch: `sluice wait --change ID` waits for a change".to_owned()));
    }
    let relays = Relays::new(&reach).await?;
    let answers = relays.all(async |caller: &Caller, relay: &_| find(caller, relay, &id).await).await;
    let outcome = answers.tell(console.err)?;
    let found = answers.found.into_iter();
    let found: Vec<Value> = found.filter_map(|(label, of)| Some(with_relay(of?, &label))).collect();
    if found.is_empty() {
        writeln!(console.err, "sluice: no change yet")?;
    }
    match show.format {
        Format::Json => console.json(&json!({ "changes": found, "count": found.len() }))?,
        Format::Yaml => {
            let all = json!({ "changes": found, "count": found.len() });
            console.out.write_all(yaml(&all).as_bytes())?;
        }
        Format::Name => {
            for id in found.iter().filter_map(|of| text(of, "id")) {
                writeln!(console.out, "{}", safe(&id))?;
            }
        }
        Format::Table | Format::Wide => {
            for of in &found {
                describe(of, relays.are_several(), !show.no_headers, console)?;
            }
        }
    }
    console.out.flush()?;
    Ok(outcome)
}

fn describe(
    of: &Value,
    are_several: bool,
    has_heads: bool,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let get = |key: &str| text(of, key).unwrap_or_else(|| "-".to_owned());
    let mut head = format!(
        "change {}  {}  source {}/{}",
        get("id"),
        type_name(of).unwrap_or_default(),
        get("server"),
        get("class")
    );
    if let Some(version) = version(of, "version") {
        head += &format!("  version {version}");
    }
    if let Some(theirs) = text(of, "upstream_version").filter(|theirs| !theirs.is_empty()) {
        head += &format!(" (upstream {theirs:?})");
    }
    head += &format!("  received {}", get("received_at"));
    if are_several {
        head += &format!("  at {}", get("relay"));
    }
    writeln!(console.out, "{}", safe(&head))?;
    let names = ["changed", "added", "removed"].map(|key| format!("{key} {}", changed_names(of, key)));
    let bytes = number(of, "bytes").map(size).unwrap_or_default();
    writeln!(console.out, "{}; {bytes}", safe(&names.join("; ")))?;
    let counts = ["wanted", "acked", "rejected", "waiting", "superseded"];
    let counts = counts.map(|key| format!("{key} {}", number(of, key).unwrap_or(0)));
    let times = ["p50", "p99", "last"];
    let times = times.map(|key| Some(format!("{key} {}", span(of, &format!("{key}_seconds"))?)));
    let times: Vec<_> = times.into_iter().flatten().collect();
    let line = format!("{}     {}", counts.join("  "), times.join("  "));
    writeln!(console.out, "{}", line.trim_end())?;
    let rejections = list(of, "rejections");
    if !rejections.is_empty() {
        let mut table = Table::plain(&["REJECTED BY", "TEXT", "CLIENTS"]);
        for rejection in rejections {
            let clients = list(rejection, "clients").iter().filter_map(|client| text(client, "node"));
            let clients = clients.collect::<Vec<_>>().join(", ");
            table.push([text(rejection, "count"), text(rejection, "text"), Some(clients)]);
        }
        table.write(console.out, has_heads, false)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_tells_its_names_its_clients_and_their_words() {
        let change = json!({
            "id": "c-3-118", "server": "cp-1.example:15010", "class": "c0ffee12", "relay": "r1:19000",
            "type": "envoy.config.cluster.v3.Cluster", "version": "b41f0c2e000000000000000000000000",
            "upstream_version": "118", "received_at": "2026-11-21T08:15:02.113Z",
            "added": ["cart"], "changed": ["web"], "removed": [], "added_count": 1, "changed_count": 3, "removed_count": 0,
            "bytes": 1234, "wanted": 10000, "acked": 9985, "rejected": 3, "waiting": 12, "superseded": 0,
            "p50_seconds": 0.041, "p99_seconds": 0.18, "last_seconds": 0.412,
            "rejections": [{"text": "no\u{1b}[2J", "count": 3, "clients": [{"id": 71, "node": "envoy-web-3"}, {"id": 9, "node": "b"}]}],
        });
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console { out: &mut out, err: &mut err, is_terminal: false, has_colour: false };
        describe(&change, true, true, &mut console).unwrap();
        let expected = "\
change c-3-118  Cluster  source cp-1.example:15010/c0ffee12  version b41f0c2e (upstream \"118\")  received \
2026-11-21T08:15:02.113Z  at r1:19000
changed web and 2 more; added cart; removed none; 1.2KiB
wanted 10000  acked 9985  rejected 3  waiting 12  superseded 0     p50 41ms  p99 180ms  last 412ms
REJECTED BY  TEXT         CLIENTS
3            no\\u{1b}[2J  envoy-web-3, b
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
