//! `sluice diff client`: the way from the content of a client to the desired content, or to another client's.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::{ask, resolve};
use crate::command::answer::{self, Forms, Found};
use crate::command::arguments::{Format, Reach, Show};
use crate::command::console::Console;
use crate::command::list::path;
use crate::command::outcome::{Failure, Outcome};
use crate::command::relays::Relays;
use crate::command::table::{list, number, text, type_name, version};
use crate::command::text::safe;

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
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

const DIFF_HELP: &str = "\
Columns:
  the type; + names that are to be added, ~ changed, - removed; and for each changed name its two versions, with the lines
  that differ where the relay has both contents, and else the reason. Applied to what the client has, the difference gives what it should have, or what the other client has.
  With -o wide: whole versions; with -o name: TYPE/NAME of each difference

Examples:
  sluice diff client envoy-web-3
  sluice diff client envoy-web-3 --type Cluster -o json

Exit codes: 0 no difference; 1 a difference.";

pub(in crate::command) async fn run(diff: Diff, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let Diff::Client(DiffArgs { client, other, type_name, any_class, show, reach }) = diff;
    let relays = Relays::new(&reach).await?;
    let ask = async |console: &mut Console<'_>| {
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
        let any_class = any_class.then(|| "1".to_owned());
        // Names need no content, which the relay would have to decode.
        let format = (show.format != Format::Name).then(|| "text".to_owned());
        let query = [("to", to), ("type", type_name.clone()), ("any_class", any_class), ("format", format)];
        let query = query.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let answer = ask(&relays, relay, &path(&format!("/clients/{id}/diff"), query)).await?;
        let differs = answer.get("differs").and_then(Value::as_bool).unwrap_or(true);
        let outcome = if differs { Outcome::Differs } else { Outcome::Good };
        Ok(Found { items: vec![answer], outcome })
    };
    let table = |items: &[Value], is_wide: bool, console: &mut Console<'_>| {
        items.iter().try_for_each(|of| console.out.write_all(difference(of, is_wide).as_bytes()))
    };
    answer::show(show, console, &Forms { key: None, table: &table, names }, ask).await
}

/// The names that differ.
fn names(answer: &Value) -> Vec<String> {
    let of_type = |of: &Value| {
        let short = type_name(of).unwrap_or_default();
        let of_list = |key: &str| {
            let names = list(of, key).iter();
            names.filter_map(|name| Some(format!("{short}/{}", name_of(name)?))).collect::<Vec<_>>()
        };
        ["added", "changed", "removed"].map(of_list).concat()
    };
    list(answer, "types").iter().flat_map(of_type).collect()
}

/// The name in an entry of a list of names.
fn name_of(entry: &Value) -> Option<String> {
    entry.as_str().map(str::to_owned).or_else(|| text(entry, "name"))
}

/// The difference for people.
fn difference(answer: &Value, is_wide: bool) -> String {
    let types = list(answer, "types");
    let mut lines = String::new();
    for of in types {
        let mut signs = Vec::new();
        for (sign, key) in [("+", "added"), ("~", "changed"), ("-", "removed"), ("withheld ", "withheld")] {
            let names = list(of, key).iter();
            let names: Vec<_> =
                names.filter_map(name_of).map(|name| format!("{sign}{}", safe(&name))).collect();
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
            lines += &content(changed, &short, is_wide);
        }
    }
    match lines.is_empty() {
        true => format!("no difference in {} types\n", types.len()),
        false => lines,
    }
}

/// The versions of a changed resource, and the lines that differ.
fn content(changed: &Value, short: &str, is_wide: bool) -> String {
    let held = |key| if is_wide { text(changed, key) } else { version(changed, key) };
    let (Some(has), Some(should), Some(name)) = (held("has"), held("should"), text(changed, "name")) else {
        return String::new();
    };
    let name = safe(&format!("{short}/{name}")).into_owned();
    if let Some(text) = text(changed, "text") {
        let mut lines = format!("--- has     {name} {has}\n+++ should  {name} {should}\n");
        lines.extend(text.lines().flat_map(|line| [safe(line), "\n".into()]));
        return lines;
    }
    let reason = text(changed, "no_content").map(|reason| format!("  ({})", safe(&reason)));
    format!("  {name}  {has} -> {should}{}\n", reason.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        assert_eq!(difference(&answer, false), expected);
        assert!(difference(&answer, true).contains("1c0e77aa00 -> b41f0c2e00\n"));
        assert_eq!(names(&answer), ["Cluster/cart\u{1b}", "Cluster/web", "Cluster/old"]);
        let changed = json!({"name": "web", "has": "1c0e77aa00", "should": "b41f0c2e00", "text": "@@ -1 +1 @@\n-a: 1s\n+a: \u{1b}2s\n"});
        let expected = "--- has     Cluster/web 1c0e77aa\n+++ should  Cluster/web b41f0c2e\n@@ -1 +1 @@\n-a: 1s\n+a: \\u{1b}2s\n";
        assert_eq!(content(&changed, "Cluster", false), expected);
        let gone =
            json!({"name": "web", "has": "1c0e77aa00", "should": "b41f0c2e00", "no_content": "it is gone"});
        assert_eq!(content(&gone, "Cluster", false), "  Cluster/web  1c0e77aa -> b41f0c2e  (it is gone)\n");
        let none = json!({"types": [{"type": "a.Cluster", "added": []}]});
        assert_eq!(difference(&none, false), "no difference in 1 types\n");
    }
}
