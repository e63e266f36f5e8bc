//! `sluice diff`, `explain`: the names of a client. `sluice who`: the clients of a name.
//!
//! A client is named by the number of its stream, or by its node id (CMD-6).

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::address::Relay;
use super::arguments::Reach;
use super::console::Console;
use super::list::{path, with_relay};
use super::outcome::{Failure, Outcome};
use super::relays::Relays;
use super::request::{Caller, Missing};
use super::table::{Table, list, number, text, type_name, version};
use super::text::safe;

/// The candidates that are told.
const CANDIDATES_MAX: usize = 20;

/// The command for a client.
#[derive(Debug, Subcommand)]
pub enum Diff {
    /// A client with its desired content, or with another client.
    #[command(after_help = DIFF_HELP)]
    Client(DiffArgs),
}

#[derive(Args, Debug)]
pub struct DiffArgs {
    /// The client: the number of its stream, or its node id.
    client: String,
    /// Another client of the same relay [default: the content that the client should have].
    other: Option<String>,
    /// Only the type: Cluster, or the full name of the message.
    #[arg(long = "type", value_name = "TYPE")]
    type_name: Option<String>,
    /// Compare clients of different node classes, too.
    #[arg(long, requires = "other")]
    any_class: bool,
    /// The answer of the API, with `relay`.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: Reach,
}

const DIFF_HELP: &str = "\
Columns:
  the type; + names that are to be added, ~ changed, - removed; and for each changed name its two versions. Applied to what
  the client has, the difference gives what it should have, or what the other client has.

Examples:
  sluice diff client envoy-web-3
  sluice diff client envoy-web-3 --type Cluster --json

Exit codes: 0 no difference; 1 a difference.";

#[derive(Debug, Subcommand)]
pub enum Explain {
    /// Why a client has its content: class, list, server, name, state.
    #[command(after_help = EXPLAIN_HELP)]
    Client(ExplainArgs),
}

#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// The client: the number of its stream, or its node id.
    client: String,
    /// A type, or a resource as TYPE/NAME: Cluster/web.
    resource: String,
    /// The answer of the API, with `relay`.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: Reach,
}

const EXPLAIN_HELP: &str = "\
Columns:
  client  the stream
  class   its node class, and the rule that matched
  list    the server list of the type, and the server in use
  source  the attachment to this server
  name    the resource there
  state   what the client was sent and answered

Examples:
  sluice explain client envoy-web-3 Cluster/web
  sluice explain client envoy-web-3 Cluster --json";

#[derive(Args, Debug)]
#[command(after_help = WHO_HELP)]
pub struct Who {
    /// The resource as TYPE/NAME: Cluster/web.
    resource: String,
    /// Another version than the one that clients should have: its first 8 digits or more.
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// List the clients, the first thousand of each group.
    #[arg(short, long)]
    list: bool,
    /// The answers of the API, with `relay`.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: Reach,
}

const WHO_HELP: &str = "\
Columns:
  has             clients that have this version
  lacks it        clients that should have it, and do not
  rejected        clients that rejected it
  not subscribed  clients that do not ask for the name
  With -l, a line for each client: GROUP, ID, NODE

Examples:
  sluice who Cluster/web
  sluice who Cluster/web -l";

/// The client with a name.
async fn resolve<'a>(
    relays: &'a Relays,
    name: &str,
    console: &mut Console<'_>,
) -> Result<(&'a Relay, u64), Failure> {
    let ask = async |caller: &Caller, relay: &Relay| {
        let query = [("node", name.to_owned()), ("limit", CANDIDATES_MAX.to_string())];
        let found = caller.json(relay, &Method::GET, &path("/clients", query)).await?;
        let found = list(&found, "clients").to_vec();
        if !found.is_empty() || name.parse::<u64>().is_err() {
            return Ok(found);
        }
        match caller.json(relay, &Method::GET, &format!("/clients/{name}")).await {
            Ok(client) => Ok(vec![client]),
            Err(Missing::Refused { status: 404, .. }) => Ok(Vec::new()),
            Err(missing) => Err(missing),
        }
    };
    let answers = relays.all(ask).await;
    answers.tell(console.err)?;
    let found: Vec<(&Relay, &Value)> = answers
        .found
        .iter()
        .filter_map(|(label, found)| Some((relays.relays.iter().find(|relay| relay.label == *label)?, found)))
        .flat_map(|(relay, found)| found.iter().map(move |client| (relay, client)))
        .collect();
    match found.as_slice() {
        [] => Err(Failure::Usage(format!("no client is {:?}; `sluice get clients` lists them", safe(name)))),
        [(relay, client)] => {
            let id =
                number(client, "id").ok_or_else(|| Failure::NoRelay("a client without id".to_owned()))?;
            Ok((relay, id))
        }
        several => Err(Failure::Usage(candidates(name, several))),
    }
}

fn candidates(name: &str, several: &[(&Relay, &Value)]) -> String {
    let mut text_of = format!("several clients are {:?}; name one by its number:", safe(name));
    for (relay, client) in several.iter().take(CANDIDATES_MAX) {
        let get = |key: &str| text(client, key).unwrap_or_else(|| "-".to_owned());
        let line = format!(
            "{} on listener {}, from {}, at {}",
            get("id"),
            get("listener"),
            get("peer"),
            relay.label
        );
        text_of += &format!("\n  {}", safe(&line));
    }
    text_of
}

/// The answer of a relay.
async fn ask(relays: &Relays, relay: &Relay, path: &str) -> Result<Value, Failure> {
    let answer = relays.caller.json(relay, &Method::GET, path).await;
    let answer = answer.map_err(|missing| match missing.is_usage() {
        true => Failure::Usage(missing.text()),
        false => Failure::NoRelay(format!("relay {}: {}", relay.label, missing.text())),
    });
    Ok(with_relay(answer?, &relay.label))
}

pub(super) async fn diff(diff: Diff, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let Diff::Client(DiffArgs { client, other, type_name, any_class, json, reach }) = diff;
    let relays = Relays::new(&reach).await?;
    let (relay, id) = resolve(&relays, &client, console).await?;
    let to = match &other {
        None => None,
        Some(other) => {
            let (place, other) = resolve(&relays, other, console).await?;
            if place != relay {
                let text =
                    format!("the clients are at different relays: {} and {}", relay.label, place.label);
                return Err(Failure::Usage(text));
            }
            Some(format!("client:{other}"))
        }
    };
    let query = [("to", to), ("type", type_name), ("any_class", any_class.then(|| "1".to_owned()))];
    let query = query.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let answer = ask(&relays, relay, &path(&format!("/clients/{id}/diff"), query)).await?;
    if json {
        console.json(&answer)?;
    } else {
        console.out.write_all(difference(&answer).as_bytes())?;
    }
    console.out.flush()?;
    let differs = answer.get("differs").and_then(Value::as_bool).unwrap_or(true);
    Ok(if differs { Outcome::Differs } else { Outcome::Good })
}

/// The difference for people.
fn difference(answer: &Value) -> String {
    let types = list(answer, "types");
    let mut lines = String::new();
    for of in types {
        let mut signs = Vec::new();
        for (sign, key) in [("+", "added"), ("~", "changed"), ("-", "removed"), ("withheld ", "withheld")] {
            let names = list(of, key).iter();
            let names: Vec<_> = names
                .filter_map(|name| name.as_str().map(str::to_owned).or_else(|| text(name, "name")))
                .map(|name| format!("{sign}{}", safe(&name)))
                .collect();
            let more = number(of, &format!("{key}_count")).unwrap_or(0).saturating_sub(names.len() as u64);
            signs.extend(names);
            if more > 0 {
                signs.push(format!("{sign}{more} more"));
            }
        }
        if signs.is_empty() {
            continue;
        }
        let short = type_name(of).unwrap_or_default();
        lines += &format!("{}  {}\n", safe(&short), signs.join("  "));
        for changed in list(of, "changed") {
            let [has, should] = ["has", "should"].map(|key| version(changed, key));
            if let (Some(has), Some(should), Some(name)) = (has, should, text(changed, "name")) {
                lines += &format!("  {}/{}  {has} -> {should}\n", safe(&short), safe(&name));
            }
        }
    }
    match lines.is_empty() {
        true => format!("no difference in {} types\n", types.len()),
        false => lines,
    }
}

pub(super) async fn explain(explain: Explain, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let Explain::Client(ExplainArgs { client, resource, json, reach }) = explain;
    let relays = Relays::new(&reach).await?;
    let (relay, id) = resolve(&relays, &client, console).await?;
    let (type_name, name) = match resource.split_once('/') {
        Some((type_name, name)) => (type_name, Some(name.to_owned())),
        None => (resource.as_str(), None),
    };
    let query = [("type", Some(type_name.to_owned())), ("name", name)];
    let query = query.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let answer = ask(&relays, relay, &path(&format!("/clients/{id}/explain"), query)).await?;
    if json {
        console.json(&answer)?;
    } else {
        let mut table = Table::plain(&["", ""]);
        for key in ["client", "class", "list", "source", "name", "state"] {
            let words = answer.get(key).and_then(|of| text(of, "text"));
            if let Some(words) = words {
                table.push([Some(key.to_owned()), Some(words)]);
            }
        }
        table.write(console.out, false, false)?;
    }
    console.out.flush()?;
    Ok(Outcome::Good)
}

const GROUPS: [(&str, &str); 4] =
    [("has", "has"), ("lacks", "lacks it"), ("rejected", "rejected"), ("not_subscribed", "not subscribed")];

pub(super) async fn who(who: Who, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let Some((type_name, name)) = who.resource.split_once('/') else {
        return Err(Failure::Usage(format!("{:?} is not TYPE/NAME, like Cluster/web", safe(&who.resource))));
    };
    let relays = Relays::new(&who.reach).await?;
    let limit = if who.list || who.json { "1000" } else { "1" };
    let query = [
        ("type", Some(type_name.to_owned())),
        ("name", Some(name.to_owned())),
        ("version", who.version.clone()),
        ("limit", Some(limit.to_owned())),
    ];
    let query = query.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let answers = relays.json(&Method::GET, &path("/who", query)).await;
    let outcome = answers.tell(console.err)?;
    let found = answers.found.into_iter();
    let found: Vec<Value> = found.map(|(label, of)| with_relay(of, &label)).collect();
    if who.json {
        console.json(&json!({ "who": found }))?;
    } else if who.list {
        group_table(&found, relays.are_several()).write(console.out, true, false)?;
    } else {
        writeln!(console.out, "{}", group_line(&found))?;
    }
    console.out.flush()?;
    Ok(outcome)
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
    use super::*;

    #[test]
    fn a_difference_has_signs_and_versions() {
        let answer = json!({"types": [
            {"type": "a.Cluster", "added": ["cart\u{1b}"], "added_count": 3,
             "changed": [{"name": "web", "has": "1c0e77aa00", "should": "b41f0c2e00"}], "changed_count": 1,
             "removed": ["old"], "removed_count": 1, "withheld": ["x"], "withheld_count": 1},
            {"type": "a.Listener", "added": [], "changed": [], "removed": [], "withheld": []},
        ]});
        let expected =
            "Cluster  +cart\\u{1b}  +2 more  ~web  -old  withheld x\n  Cluster/web  1c0e77aa -> b41f0c2e\n";
        assert_eq!(difference(&answer), expected);
        let none = json!({"types": [{"type": "a.Cluster", "added": []}]});
        assert_eq!(difference(&none), "no difference in 1 types\n");
    }

    #[test]
    fn the_counts_of_all_relays_are_added() {
        let of = |has: u64| {
            json!({"version": "b41f0c2e00", "relay": "r", "has": {"count": has,
            "clients": [{"id": 71, "node": "n\n"}]}, "lacks": {"count": 1}, "rejected": {"count": 0}, "not_subscribed": {"count": 2}})
        };
        let line = "version b41f0c2e: has 7   lacks it 2   rejected 0   not subscribed 4";
        assert_eq!(group_line(&[of(3), of(4)]), line);
        let mut out = Vec::new();
        group_table(&[of(3)], true).write(&mut out, true, false).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "GROUP  ID  NODE    RELAY\nhas    71  n\\u{a}  r\n");
    }

    #[test]
    fn cmd_6_candidates_are_told_with_their_numbers() {
        let relay = Relay {
            label: "r1:19000".into(),
            name: String::new(),
            place: super::super::address::Place::Tcp(Vec::new()),
        };
        let clients = [71, 72].map(|id| json!({"id": id, "listener": "main", "peer": "10.0.4.7:1"}));
        let several: Vec<_> = clients.iter().map(|client| (&relay, client)).collect();
        let text = "several clients are \"web\"; name one by its number:\n  71 on listener main, from 10.0.4.7:1, at \
                    r1:19000\n  72 on listener main, from 10.0.4.7:1, at r1:19000";
        assert_eq!(candidates("web", &several), text);
    }
}
