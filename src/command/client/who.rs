//! `sluice who`: the clients of a resource.

use clap::Args;
use http::Method;
use sluice_admin_api::endpoints::Endpoint;
use sluice_admin_api::names::{self as api, ClientGroup};
use sluice_admin_api::parameters::{Parameters, WhoParameters};

use crate::command::answer::{self, Forms, RelayAnswers};
use crate::command::arguments::{OutputFormat, RelayArguments, Show};
use crate::command::console::Console;
use crate::command::list::path;
use crate::command::outcome::{Failure, Outcome};
use crate::command::relays::Relays;
use crate::command::table::{Table, shown, version};
use crate::command::text::safe;
use crate::command::typed::Typed;

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
    reach: RelayArguments,
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

/// The groups of clients, in words.
fn groups(who: &api::Who) -> [(&'static str, &ClientGroup); 4] {
    [
        ("has", &who.has),
        ("lacks it", &who.lacks),
        ("rejected", &who.rejected),
        ("not subscribed", &who.not_subscribed),
    ]
}

pub(in crate::command) async fn run(who: Who, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let Some((type_name, name)) = who.resource.split_once('/') else {
        return Err(Failure::Usage(format!("{:?} is not TYPE/NAME, like Cluster/web", safe(&who.resource))));
    };
    let relays = Relays::new(&who.reach).await?;
    let is_counted =
        !who.list && who.show.format == OutputFormat::Table && (!who.show.watch || console.is_terminal);
    let ask = async |console: &mut Console<'_>| {
        let parameters = WhoParameters {
            r#type: Some(type_name.to_owned()),
            name: Some(name.to_owned()),
            version: who.version.clone(),
            limit: Some(if is_counted { "1" } else { "1000" }.to_owned()),
            ..WhoParameters::default()
        };
        let path = path(Endpoint::Who.path(), parameters.into_pairs());
        let answers = relays.typed(&Method::GET, &path).await;
        let outcome = answers.report(console.err)?;
        Ok(RelayAnswers { items: answers.values().collect(), outcome })
    };
    let table = |items: &[Typed<api::Who>], is_wide: bool, console: &mut Console<'_>| {
        if who.list || is_wide {
            let table = group_table(items, relays.are_several());
            return table.write(console.out, !who.show.no_headers, false);
        }
        writeln!(console.out, "{}", group_line(items))
    };
    answer::show(who.show, console, &Forms { key: Some("who"), table: &table, names }, ask).await
}

/// The ids of the clients that have the resource.
fn names(who: &api::Who) -> Vec<String> {
    who.has.clients.iter().map(|client| client.id.to_string()).collect()
}

/// The counts of all relays.
fn group_line(answers: &[Typed<api::Who>]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for (words, group) in answers.iter().flat_map(|answer| groups(&answer.value)) {
        match counts.iter_mut().find(|(counted, _)| *counted == words) {
            Some((_, count)) => *count += group.count,
            None => counts.push((words, group.count)),
        }
    }
    let parts: Vec<_> = counts.iter().map(|(words, count)| format!("{words} {count}")).collect();
    let version = answers.iter().find_map(|answer| version(answer.value.version.as_ref()));
    let version = version.map(|version| format!("version {version}: "));
    version.unwrap_or_default() + &parts.join("   ")
}

fn group_table(answers: &[Typed<api::Who>], are_several: bool) -> Table {
    let heads: &[&'static str] =
        if are_several { &["GROUP", "ID", "NODE", "RELAY"] } else { &["GROUP", "ID", "NODE"] };
    let mut table = Table::plain(heads);
    for answer in answers {
        for (words, group) in groups(&answer.value) {
            for client in &group.clients {
                let relay = are_several.then(|| shown(&answer.relay));
                table.push([shown(words), shown(client.id), shown(&client.node)].into_iter().chain(relay));
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
        let answer = |has: u64| {
            let json = json!({"version": "b41f0c2e00", "has": {"count": has, "clients": [{"id": 71, "node": "n\n"}]},
                "lacks": {"count": 1}, "rejected": {"count": 0}, "not_subscribed": {"count": 2}});
            Typed::new(json, "r").unwrap()
        };
        let line = "version b41f0c2e: has 7   lacks it 2   rejected 0   not subscribed 4";
        assert_eq!(group_line(&[answer(3), answer(4)]), line);
        assert_eq!(names(&answer(3).value), ["71"]);
        let mut out = Vec::new();
        group_table(&[answer(3)], true).write(&mut out, true, false).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "GROUP  ID  NODE    RELAY\nhas    71  n\\u{a}  r\n");
    }
}
