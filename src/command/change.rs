//! `sluice get change`: a change, its way to the clients, and the words of clients that reject the change.

use clap::Args;
use http::Method;
use serde_json::json;
use sluice_admin_api::changes as api;
use sluice_admin_api::endpoints::Endpoint;

use super::address::Target;
use super::arguments::{OutputFormat, RelayArguments, Show};
use super::console::Console;
use super::list::view::CHANGES;
use super::list::{List, fetch};
use super::outcome::{Failure, Outcome};
use super::relays::Relays;
use super::request::{Caller, Missing};
use super::table::{Table, bounded_names, joined, shown, span};
use super::text::{safe, short_type};
use super::typed::{Typed, jsons};
use super::yaml::yaml;
use sluice_text::{encoded, size};

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
    reach: RelayArguments,
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
    relay: &Target,
    id: &str,
) -> Result<Option<Typed<api::Change<'static>>>, Missing> {
    if id != LATEST {
        return caller.typed(relay, &Method::GET, &Endpoint::Change.path_of(&[&encoded(id)])).await.map(Some);
    }
    let list = List { limit: Some(1), ..List::of_all(&CHANGES) };
    Ok(fetch(caller, relay, &list, None).await?.items.into_iter().next())
}

pub(super) async fn run(change: Change, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let Change { id, show, reach } = change;
    if show.watch {
        return Err(Failure::Usage("--watch: `sluice wait --change ID` waits for a change".to_owned()));
    }
    let relays = Relays::new(&reach).await?;
    let answers = relays.all(async |caller: &Caller, relay: &_| find(caller, relay, &id).await).await;
    let outcome = answers.report(console.err)?;
    let changes: Vec<_> = answers.values().flatten().collect();
    if changes.is_empty() {
        writeln!(console.err, "sluice: no change yet")?;
    }
    let all = || json!({ CHANGES.key: jsons(&changes), "count": changes.len() });
    match show.format {
        OutputFormat::Json => console.json(&all())?,
        OutputFormat::Yaml => console.out.write_all(yaml(&all()).as_bytes())?,
        OutputFormat::Name => {
            for change in &changes {
                writeln!(console.out, "{}", safe(&change.value.id))?;
            }
        }
        OutputFormat::Table | OutputFormat::Wide => {
            for change in &changes {
                let relay = relays.are_several().then_some(&*change.relay);
                describe(&change.value, relay, !show.no_headers, console)?;
            }
        }
    }
    console.out.flush()?;
    Ok(outcome)
}

/// `relay`: named if there are several.
fn describe(
    change: &api::Change<'_>,
    relay: Option<&str>,
    has_heads: bool,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let short = short_type(&change.r#type);
    let mut head = format!("change {}  {short}  source {}/{}", change.id, change.server, change.class);
    if let Some(versions) = &change.versions {
        head += &format!("  version {}", sluice_text::version(&versions.version));
        if let Some(theirs) = versions.upstream_version.as_deref().filter(|theirs| !theirs.is_empty()) {
            head += &format!(" (upstream {theirs:?})");
        }
    }
    head += &format!("  received {}", change.received_at);
    if let Some(relay) = relay {
        head += &format!("  at {relay}");
    }
    writeln!(console.out, "{}", safe(&head))?;
    writeln!(console.out, "{}; {}", safe(&names(&change.names)), size(change.bytes))?;
    let counts = &change.counts;
    let counts = format!(
        "wanted {}  acked {}  rejected {}  waiting {}  superseded {}",
        counts.wanted, counts.acked, counts.rejected, counts.waiting, counts.superseded
    );
    let times = [("p50", change.p50_seconds), ("p99", change.p99_seconds), ("last", change.last_seconds)];
    let times = times.map(|(key, seconds)| Some(format!("{key} {}", span(seconds?)?)));
    let times: Vec<_> = times.into_iter().flatten().collect();
    writeln!(console.out, "{}", format!("{counts}     {}", times.join("  ")).trim_end())?;
    if !change.rejections.is_empty() {
        let mut table = Table::plain(&["REJECTED BY", "TEXT", "CLIENTS"]);
        for rejection in &change.rejections {
            let clients = joined(rejection.clients.iter().map(|client| &client.node));
            table.push([shown(rejection.count), shown(&rejection.text), Some(clients)]);
        }
        table.write(console.out, has_heads, false)?;
    }
    Ok(())
}

/// The names that changed, in a line.
pub(super) fn names(names: &api::ChangedNames<'_>) -> String {
    format!(
        "changed {}; added {}; removed {}",
        bounded_names(&names.changed, names.changed_count),
        bounded_names(&names.added, names.added_count),
        bounded_names(&names.removed, names.removed_count)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_shows_its_names_its_clients_and_their_words() {
        let change = json!({
            "id": "c-3-118", "server": "cp-1.example:15010", "class": "c0ffee12",
            "type": "envoy.config.cluster.v3.Cluster", "version": "b41f0c2e000000000000000000000000",
            "upstream_version": "118", "received_at": "2026-11-21T08:15:02.113Z",
            "added": ["cart"], "changed": ["web"], "removed": [], "added_count": 1, "changed_count": 3, "removed_count": 0,
            "bytes": 1234, "wanted": 10000, "acked": 9985, "rejected": 3, "waiting": 12, "superseded": 0,
            "p50_seconds": 0.041, "p99_seconds": 0.18, "last_seconds": 0.412,
            "rejections": [{"text": "no\u{1b}[2J", "count": 3, "clients": [{"id": 71, "node": "envoy-web-3"}, {"id": 9, "node": "b"}]}],
        });
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console { out: &mut out, err: &mut err, is_terminal: false, has_colour: false };
        let change = serde_json::from_value(change).unwrap();
        describe(&change, Some("r1:19000"), true, &mut console).unwrap();
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
