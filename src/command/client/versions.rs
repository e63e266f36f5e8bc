//! `sluice versions`: the versions of a resource at the clients, and the rejections.

use clap::Args;
use http::Method;
use serde_json::Value;

use crate::command::answer::{self, Forms, Found};
use crate::command::arguments::{Reach, Show};
use crate::command::console::Console;
use crate::command::list::{path, with_relay};
use crate::command::outcome::{Failure, Outcome};
use crate::command::relays::Relays;
use crate::command::table::{Table, list, text, version};
use crate::command::text::safe;

#[derive(Args, Debug)]
#[command(after_help = VERSIONS_HELP)]
pub struct Versions {
    /// The resource as TYPE/NAME, or its type before its name: Cluster web. A type alone counts its clients.
    resource: String,
    /// The name of the resource, after its type.
    name: Option<String>,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

const VERSIONS_HELP: &str = "\
Columns:
  VERSION   the version of the resource; the live ones first
  IS        live: a control plane has this version now
  SINCE     the time at which the relay got the version, in UTC; nothing after a later version has replaced it
  HELD BY   clients that accepted this version and no later one. To accept is not to use: a listener may wait for secrets
  PENDING   clients that have not answered
  UNSENT    clients that should have the version, and have not been sent it
  REJECTED  clients that rejected a response with this version
  AGENTS    the programs of the clients that hold it
  Below, for each version with rejections: the clients and their words. `suspect` marks a version that may be the reason: a
  rejection names this resource or none, and no client of the same program accepted the version
  With -o wide also the servers; with -o name only the versions
  Of a type without a name: a line for each server, list and class, with the CLIENTS that ask for the type. They ACCEPTED the
  newest content, are PENDING, REJECTED it, are SILENT (no answer for 60 s) or UNAFFECTED (there is nothing for them). LOST
  streams ended within 60 s of a response in the last ten minutes. With -o name the number of each source

Examples:
  sluice versions Cluster web
  sluice versions Cluster";

/// Rejections of a version in the table; the JSON has a hundred.
const REJECTIONS_SHOWN: usize = 5;

pub(in crate::command) async fn run(
    versions: Versions,
    console: &mut Console<'_>,
) -> Result<Outcome, Failure> {
    let (type_name, name) = match (&versions.name, versions.resource.split_once('/')) {
        (Some(name), None) => (versions.resource.as_str(), Some(name.as_str())),
        (None, Some((type_name, name))) => (type_name, Some(name)),
        (None, None) => (versions.resource.as_str(), None),
        (Some(_), Some(_)) => {
            let text = format!("{:?} is not TYPE/NAME, like Cluster/web", safe(&versions.resource));
            return Err(Failure::Usage(text));
        }
    };
    let relays = Relays::new(&versions.reach).await?;
    let query = [("type", Some(type_name)), ("name", name)];
    let query = query.into_iter().filter_map(|(key, value)| Some((key, value?.to_owned())));
    let path = path("/versions", query);
    let ask = async |console: &mut Console<'_>| {
        let answers = relays.json(&Method::GET, &path).await;
        let outcome = answers.tell(console.err)?;
        let found = answers.found.into_iter();
        Ok(Found { items: found.map(|(label, of)| with_relay(of, &label)).collect(), outcome })
    };
    let table = |items: &[Value], is_wide: bool, console: &mut Console<'_>| {
        let table = match name {
            Some(_) => table(items, is_wide, relays.are_several()),
            None => units(items, relays.are_several()),
        };
        table.write(console.out, !versions.show.no_headers, false)?;
        rejections(items).iter().try_for_each(|line| writeln!(console.out, "{line}"))
    };
    answer::show(versions.show, console, &Forms { key: Some("relays"), table: &table, names }, ask).await
}

fn names(answer: &Value) -> Vec<String> {
    let versions = list(answer, "versions").iter().filter_map(|of| text(of, "version"));
    versions.chain(list(answer, "units").iter().filter_map(|of| text(of, "source"))).collect()
}

/// The clients of a type, by source.
fn units(found: &[Value], are_several: bool) -> Table {
    let keys = ["clients", "accepted", "pending", "rejected", "silent", "unaffected", "lost"];
    let mut heads = vec!["SERVER", "LIST", "CLASS", "CLIENTS", "ACCEPTED", "PENDING", "REJECTED", "SILENT"];
    heads.extend(["UNAFFECTED", "LOST"]);
    heads.extend(are_several.then_some("RELAY"));
    let mut table = Table::plain(&heads);
    for answer in found {
        for of in list(answer, "units") {
            let mut cells: Vec<_> = ["server", "list", "class"].map(|key| text(of, key)).into();
            cells.extend(keys.map(|key| text(of, key)));
            cells.extend(are_several.then(|| text(answer, "relay")));
            table.push(cells);
        }
    }
    table
}

fn table(found: &[Value], is_wide: bool, are_several: bool) -> Table {
    let mut heads = vec!["VERSION", "IS", "SINCE", "HELD BY", "PENDING", "UNSENT", "REJECTED", "AGENTS"];
    heads.extend(is_wide.then_some("SERVERS"));
    heads.extend(are_several.then_some("RELAY"));
    let mut table = Table::plain(&heads);
    for answer in found {
        for of in list(answer, "versions") {
            let mut cells = vec![version(of, "version"), Some(joined(of, "is")), text(of, "since")];
            cells.extend(["held_by", "pending", "unsent", "rejected"].map(|key| text(of, key)));
            cells.push(Some(agents(of)));
            cells.extend(is_wide.then(|| Some(joined(of, "servers"))));
            cells.extend(are_several.then(|| text(answer, "relay")));
            table.push(cells);
        }
    }
    table
}

fn joined(of: &Value, key: &str) -> String {
    list(of, key).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}

/// Programs with their numbers of clients, the most frequent first.
fn agents(of: &Value) -> String {
    let agents = of.get("user_agents").and_then(Value::as_object).into_iter().flatten();
    let mut agents: Vec<_> = agents.map(|(agent, count)| (count.as_u64().unwrap_or(0), agent)).collect();
    agents.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let name = |agent: &str| if agent.is_empty() { "unnamed".to_owned() } else { agent.to_owned() };
    agents.iter().map(|(count, agent)| format!("{} ({count})", name(agent))).collect::<Vec<_>>().join(", ")
}

fn rejections(found: &[Value]) -> Vec<String> {
    let mut lines = Vec::new();
    for of in found.iter().flat_map(|answer| list(answer, "versions")) {
        let rejected = list(of, "rejected_by");
        if rejected.is_empty() {
            continue;
        }
        let suspect = if of.get("suspect") == Some(&Value::Bool(true)) { ", suspect" } else { "" };
        let of_version = version(of, "version").unwrap_or_default();
        let count = text(of, "rejected").unwrap_or_default();
        lines.push(format!("{of_version}: rejected by {count}{suspect}"));
        for rejection in rejected.iter().take(REJECTIONS_SHOWN) {
            let get = |key: &str| text(rejection, key).unwrap_or_default();
            let line = format!("  {} ({}): {:?}", get("node"), get("user_agent"), get("message"));
            lines.push(safe(&line).into_owned());
        }
        let more = rejected.len().saturating_sub(REJECTIONS_SHOWN);
        if more > 0 {
            lines.push(format!("  and {more} more; -o json has their words"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tru_4_versions_are_a_table_with_the_words_of_clients_below() {
        let answer = json!({"relay": "r", "versions": [
            {"version": "5f3a000000", "is": ["live"], "servers": ["cp-1"], "since": "2026-11-22T14:02:11.204Z", "held_by": 998,
             "pending": 1, "unsent": 2, "rejected": 1, "suspect": true, "user_agents": {"": 1, "envoy 1.40.0": 997},
             "rejected_by": [{"node": "envoy-7f3", "user_agent": "envoy 1.36.1", "message": "a \"b\"\n"}]},
            {"version": "81c0000000", "is": [], "since": null, "held_by": 6, "pending": 0, "unsent": 0, "rejected": 0,
             "suspect": false, "user_agents": {"envoy 1.36.1": 6}, "rejected_by": []}]});
        let found = [answer];
        let mut out = Vec::new();
        table(&found, false, false).write(&mut out, true, false).unwrap();
        let text = "\
VERSION   IS    SINCE                     HELD BY  PENDING  UNSENT  REJECTED  AGENTS
5f3a0000  live  2026-11-22T14:02:11.204Z  998      1        2       1         envoy 1.40.0 (997), unnamed (1)
81c00000  -     -                         6        0        0       0         envoy 1.36.1 (6)
";
        assert_eq!(String::from_utf8(out).unwrap(), text);
        let lines = ["5f3a0000: rejected by 1, suspect", "  envoy-7f3 (envoy 1.36.1): \"a \\\"b\\\"\\n\""];
        assert_eq!(rejections(&found), lines);
        assert_eq!(names(&found[0]), ["5f3a000000", "81c0000000"]);
    }

    #[test]
    fn tru_1_the_clients_of_a_type_are_a_line_for_each_source() {
        let unit = json!({"source": 3, "server": "cp-1", "list": "xds_servers", "class": "c0ffee12", "clients": 15, "accepted": 5,
            "pending": 4, "rejected": 3, "silent": 2, "unaffected": 1, "lost": 7});
        let found = [json!({"relay": "r", "units": [unit]})];
        let mut out = Vec::new();
        units(&found, true).write(&mut out, true, false).unwrap();
        let text = "\
SERVER  LIST         CLASS     CLIENTS  ACCEPTED  PENDING  REJECTED  SILENT  UNAFFECTED  LOST  RELAY
cp-1    xds_servers  c0ffee12  15       5         4        3         2       1           7     r
";
        assert_eq!(String::from_utf8(out).unwrap(), text);
        assert_eq!(names(&found[0]), ["3"]);
    }
}
