//! `sluice who`: the clients of a resource.

use clap::Args;
use http::Method;
use serde_json::Value;

use crate::command::answer::{self, Forms, Found};
use crate::command::arguments::{Format, Reach, Show};
use crate::command::console::Console;
use crate::command::list::{path, with_relay};
use crate::command::outcome::{Failure, Outcome};
use crate::command::relays::Relays;
use crate::command::table::{Table, list, number, text, version};
use crate::command::text::safe;

#[derive(Args, Debug)]
#[command(after_help = WHO_HELP)]
pub struct Who {
    /// The resource as TYPE/NAME: Cluster/web.
    resource: String,
    /// Another version than the one that clients should have: its first 8 digits or more.
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// List the clients, the first thousand of each group; also with -o wide.
    #[arg(short, long)]
    list: bool,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

const WHO_HELP: &str = "\
Columns:
  has             clients that have this version
  lacks it        clients that should have it, and do not
  rejected        clients that rejected it
  not subscribed  clients that do not ask for the name
  With -l, a line for each client: GROUP, ID, NODE; with -o name: the ids of the clients that have it

Examples:
  sluice who Cluster/web
  sluice who Cluster/web -l";

const GROUPS: [(&str, &str); 4] =
    [("has", "has"), ("lacks", "lacks it"), ("rejected", "rejected"), ("not_subscribed", "not subscribed")];

pub(in crate::command) async fn run(who: Who, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let Some((type_name, name)) = who.resource.split_once('/') else {
        return Err(Failure::Usage(format!("{:?} is not TYPE/NAME, like Cluster/web", safe(&who.resource))));
    };
    let relays = Relays::new(&who.reach).await?;
    let is_counted =
        !who.list && who.show.format == Format::Table && (!who.show.watch || console.is_terminal);
    let ask = async |console: &mut Console<'_>| {
        let query = [
            ("type", Some(type_name.to_owned())),
            ("name", Some(name.to_owned())),
            ("version", who.version.clone()),
            ("limit", Some(if is_counted { "1" } else { "1000" }.to_owned())),
        ];
        let query = query.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let answers = relays.json(&Method::GET, &path("/who", query)).await;
        let outcome = answers.tell(console.err)?;
        let found = answers.found.into_iter();
        Ok(Found { items: found.map(|(label, of)| with_relay(of, &label)).collect(), outcome })
    };
    let table = |items: &[Value], is_wide: bool, console: &mut Console<'_>| {
        if who.list || is_wide {
            let table = group_table(items, relays.are_several());
            return table.write(console.out, !who.show.no_headers, false);
        }
        writeln!(console.out, "{}", group_line(items))
    };
    answer::show(who.show, console, &Forms { key: Some("who"), table: &table, names }, ask).await
}

/// The ids of the clients that have the resource.
fn names(answer: &Value) -> Vec<String> {
    let clients = answer.get("has").map(|group| list(group, "clients")).unwrap_or_default();
    clients.iter().filter_map(|client| text(client, "id")).collect()
}

/// The counts of all relays.
fn group_line(found: &[Value]) -> String {
    let parts = GROUPS.map(|(key, words)| {
        let counts = found.iter().filter_map(|of| number(of.get(key)?, "count"));
        format!("{words} {}", counts.sum::<u64>())
    });
    let version = found.iter().find_map(|of| version(of, "version")).map(|of| format!("version {of}: "));
    version.unwrap_or_default() + &parts.join("   ")
}

fn group_table(found: &[Value], are_several: bool) -> Table {
    let heads: &[&'static str] =
        if are_several { &["GROUP", "ID", "NODE", "RELAY"] } else { &["GROUP", "ID", "NODE"] };
    let mut table = Table::plain(heads);
    for of in found {
        for (key, words) in GROUPS {
            for client in of.get(key).map(|group| list(group, "clients")).unwrap_or_default() {
                let relay = are_several.then(|| text(of, "relay"));
                let cells = [Some(words.to_owned()), text(client, "id"), text(client, "node")];
                table.push(cells.into_iter().chain(relay));
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_counts_of_all_relays_are_added() {
        let of = |has: u64| {
            json!({"version": "b41f0c2e00", "relay": "r", "has": {"count": has,
            "clients": [{"id": 71, "node": "n\n"}]}, "lacks": {"count": 1}, "rejected": {"count": 0}, "not_subscribed": {"count": 2}})
        };
        let line = "version b41f0c2e: has 7   lacks it 2   rejected 0   not subscribed 4";
        assert_eq!(group_line(&[of(3), of(4)]), line);
        assert_eq!(names(&of(3)), ["71"]);
        let mut out = Vec::new();
        group_table(&[of(3)], true).write(&mut out, true, false).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "GROUP  ID  NODE    RELAY\nhas    71  n\\u{a}  r\n");
    }
}
