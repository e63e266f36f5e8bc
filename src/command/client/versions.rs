//! `sluice versions`: the versions of a resource at the clients, and the rejections.

use clap::Args;
use http::Method;
use serde::de::DeserializeOwned;
use sluice_admin_api::endpoints::Endpoint;
use sluice_admin_api::names::{HeldVersions, TypeVerdicts, VersionTally};
use sluice_admin_api::parameters::{NameParameters, Parameters};

use crate::command::answer::{self, Forms, RelayAnswers};
use crate::command::arguments::{RelayArguments, Show};
use crate::command::console::Console;
use crate::command::list::path;
use crate::command::outcome::{Failure, Outcome};
use crate::command::relays::Relays;
use crate::command::table::{Table, joined, shown, version};
use crate::command::text::safe;
use crate::command::typed::Typed;

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
    reach: RelayArguments,
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
    let parameters = NameParameters { r#type: Some(type_name.to_owned()), name: name.map(str::to_owned) };
    let path = path(Endpoint::Versions.path(), parameters.into_pairs());
    let no_headers = versions.show.no_headers;
    if name.is_none() {
        let table = |items: &[Typed<TypeVerdicts>], _: bool, console: &mut Console<'_>| {
            units(items, relays.are_several()).write(console.out, !no_headers, false)
        };
        let sources =
            |answer: &TypeVerdicts| answer.units.iter().map(|unit| unit.source.to_string()).collect();
        let forms = Forms { key: Some(KEY), table: &table, names: sources };
        return answer::show(versions.show, console, &forms, async |console| {
            ask(&relays, &path, console).await
        })
        .await;
    }
    let table = |items: &[Typed<HeldVersions>], is_wide: bool, console: &mut Console<'_>| {
        table(items, is_wide, relays.are_several()).write(console.out, !no_headers, false)?;
        rejections(items).iter().try_for_each(|line| writeln!(console.out, "{line}"))
    };
    let forms = Forms { key: Some(KEY), table: &table, names };
    answer::show(versions.show, console, &forms, async |console| ask(&relays, &path, console).await).await
}

/// The key of the answers in JSON.
const KEY: &str = "relays";

async fn ask<T: DeserializeOwned>(
    relays: &Relays,
    path: &str,
    console: &mut Console<'_>,
) -> Result<RelayAnswers<T>, Failure> {
    let answers = relays.typed(&Method::GET, path).await;
    let outcome = answers.report(console.err)?;
    Ok(RelayAnswers { items: answers.values().collect(), outcome })
}

fn names(answer: &HeldVersions) -> Vec<String> {
    answer.versions.iter().map(|tally| tally.version.clone()).collect()
}

/// The clients of a type, by source.
fn units(answers: &[Typed<TypeVerdicts>], are_several: bool) -> Table {
    let mut heads = vec!["SERVER", "LIST", "CLASS", "CLIENTS", "ACCEPTED", "PENDING", "REJECTED", "SILENT"];
    heads.extend(["UNAFFECTED", "LOST"]);
    heads.extend(are_several.then_some("RELAY"));
    let mut table = Table::plain(&heads);
    for answer in answers {
        for unit in &answer.value.units {
            let mut cells = vec![shown(&unit.server), shown(&unit.list), shown(&unit.class)];
            let counts = [unit.clients, unit.accepted, unit.pending, unit.rejected, unit.silent];
            cells.extend(counts.into_iter().chain([unit.unaffected, unit.lost]).map(shown));
            cells.extend(are_several.then(|| shown(&answer.relay)));
            table.push(cells);
        }
    }
    table
}

fn table(answers: &[Typed<HeldVersions>], is_wide: bool, are_several: bool) -> Table {
    let mut heads = vec!["VERSION", "IS", "SINCE", "HELD BY", "PENDING", "UNSENT", "REJECTED", "AGENTS"];
    heads.extend(is_wide.then_some("SERVERS"));
    heads.extend(are_several.then_some("RELAY"));
    let mut table = Table::plain(&heads);
    for answer in answers {
        for tally in &answer.value.versions {
            let mut cells = vec![version(Some(&tally.version)), Some(joined(&tally.is)), tally.since.clone()];
            cells.extend([tally.held_by, tally.pending, tally.unsent, tally.rejected].map(shown));
            cells.push(Some(agents(tally)));
            cells.extend(is_wide.then(|| Some(joined(&tally.servers))));
            cells.extend(are_several.then(|| shown(&answer.relay)));
            table.push(cells);
        }
    }
    table
}

/// Programs with their numbers of clients, the most frequent first.
fn agents(tally: &VersionTally) -> String {
    let mut agents: Vec<_> = tally.user_agents.iter().collect();
    agents.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let name = |agent: &str| if agent.is_empty() { "unnamed".to_owned() } else { agent.to_owned() };
    joined(agents.iter().map(|(agent, count)| format!("{} ({count})", name(agent))))
}

fn rejections(answers: &[Typed<HeldVersions>]) -> Vec<String> {
    let mut lines = Vec::new();
    for tally in answers.iter().flat_map(|answer| &answer.value.versions) {
        if tally.rejected_by.is_empty() {
            continue;
        }
        let suspect = if tally.suspect { ", suspect" } else { "" };
        let brief = sluice_text::version(&tally.version);
        lines.push(format!("{brief}: rejected by {}{suspect}", tally.rejected));
        for rejection in tally.rejected_by.iter().take(REJECTIONS_SHOWN) {
            let line = format!("  {} ({}): {:?}", rejection.node, rejection.user_agent, rejection.message);
            lines.push(safe(&line).into_owned());
        }
        let more = tally.rejected_by.len().saturating_sub(REJECTIONS_SHOWN);
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
        let answer = json!({"versions": [
            {"version": "5f3a000000", "is": ["live"], "servers": ["cp-1"], "since": "2026-11-22T14:02:11.204Z", "held_by": 998,
             "pending": 1, "unsent": 2, "rejected": 1, "suspect": true, "user_agents": {"": 1, "envoy 1.40.0": 997},
             "rejected_by": [{"node": "envoy-7f3", "user_agent": "envoy 1.36.1", "message": "a \"b\"\n"}]},
            {"version": "81c0000000", "is": [], "since": null, "held_by": 6, "pending": 0, "unsent": 0, "rejected": 0,
             "suspect": false, "user_agents": {"envoy 1.36.1": 6}, "rejected_by": []}]});
        let answers = [Typed::new(answer, "r").unwrap()];
        let mut out = Vec::new();
        table(&answers, false, false).write(&mut out, true, false).unwrap();
        let text = "\
VERSION   IS    SINCE                     HELD BY  PENDING  UNSENT  REJECTED  AGENTS
5f3a0000  live  2026-11-22T14:02:11.204Z  998      1        2       1         envoy 1.40.0 (997), unnamed (1)
81c00000  -     -                         6        0        0       0         envoy 1.36.1 (6)
";
        assert_eq!(String::from_utf8(out).unwrap(), text);
        let lines = ["5f3a0000: rejected by 1, suspect", "  envoy-7f3 (envoy 1.36.1): \"a \\\"b\\\"\\n\""];
        assert_eq!(rejections(&answers), lines);
        assert_eq!(names(&answers[0].value), ["5f3a000000", "81c0000000"]);
    }

    #[test]
    fn tru_1_the_clients_of_a_type_are_a_line_for_each_source() {
        let unit = json!({"source": 3, "server": "cp-1", "list": "xds_servers", "class": "c0ffee12", "clients": 15, "accepted": 5,
            "pending": 4, "rejected": 3, "silent": 2, "unaffected": 1, "lost": 7});
        let answers = [Typed::new(json!({ "units": [unit] }), "r").unwrap()];
        let mut out = Vec::new();
        units(&answers, true).write(&mut out, true, false).unwrap();
        let text = "\
SERVER  LIST         CLASS     CLIENTS  ACCEPTED  PENDING  REJECTED  SILENT  UNAFFECTED  LOST  RELAY
cp-1    xds_servers  c0ffee12  15       5         4        3         2       1           7     r
";
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }
}
