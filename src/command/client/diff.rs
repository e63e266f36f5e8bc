//! `sluice diff client`: the way from the content of a client to the desired content, or to another client's.

use clap::{Args, Subcommand};
use sluice_admin_api::endpoints::Endpoint;
use sluice_admin_api::names::{ChangedName, ClientDifference, ContentDifference, TypeDifference};
use sluice_admin_api::parameters::{DiffParameters, Parameters};

use super::{ask, resolve};
use crate::command::answer::{self, Forms, RelayAnswers};
use crate::command::arguments::{OutputFormat, RelayArguments, Show};
use crate::command::console::Console;
use crate::command::list::path;
use crate::command::outcome::{Failure, Outcome};
use crate::command::relays::Relays;
use crate::command::text::{safe, short_type};
use crate::command::typed::Typed;

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
    reach: RelayArguments,
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
        let format = (show.format != OutputFormat::Name).then(|| "text".to_owned());
        let parameters =
            DiffParameters { to, r#type: type_name.clone(), any_class, format, ..DiffParameters::default() };
        let path = path(&Endpoint::ClientDiff.path_of(&[&id.to_string()]), parameters.into_pairs());
        let answer = ask::<ClientDifference>(&relays, relay, &path).await?;
        let outcome = if answer.value.differs { Outcome::Differs } else { Outcome::Good };
        Ok(RelayAnswers { items: vec![answer], outcome })
    };
    let table = |items: &[Typed<ClientDifference>], is_wide: bool, console: &mut Console<'_>| {
        items.iter().try_for_each(|item| console.out.write_all(difference(&item.value, is_wide).as_bytes()))
    };
    answer::show(show, console, &Forms { key: None, table: &table, names }, ask).await
}

/// The names that differ.
fn names(answer: &ClientDifference) -> Vec<String> {
    let of_type = |of_type: &TypeDifference| {
        let short = short_type(&of_type.r#type);
        let changed = of_type.changed.iter().map(|changed| &changed.name);
        let names = of_type.added.iter().chain(changed).chain(&of_type.removed);
        names.map(|name| format!("{short}/{name}")).collect::<Vec<_>>()
    };
    answer.types.iter().flat_map(of_type).collect()
}

/// Names with their sign, and the number of those that the relay left out.
fn signed<'a>(sign: &str, names: impl Iterator<Item = &'a String>, count: usize) -> Vec<String> {
    let mut words: Vec<_> = names.map(|name| format!("{sign}{}", safe(name))).collect();
    let more = count.saturating_sub(words.len());
    words.extend((more > 0).then(|| format!("{sign}{more} more")));
    words
}

/// The difference for people.
fn difference(answer: &ClientDifference, is_wide: bool) -> String {
    let mut lines = String::new();
    for of_type in &answer.types {
        let changed = of_type.changed.iter().map(|changed| &changed.name);
        let words = [
            signed("+", of_type.added.iter(), of_type.added_count),
            signed("~", changed, of_type.changed_count),
            signed("-", of_type.removed.iter(), of_type.removed_count),
            signed("withheld ", of_type.withheld.iter(), of_type.withheld_count),
        ];
        let words = words.concat();
        if words.is_empty() {
            continue;
        }
        let short = short_type(&of_type.r#type);
        lines += &format!("{}  {}\n", safe(short), words.join("  "));
        for changed in &of_type.changed {
            lines += &content(changed, short, is_wide);
        }
    }
    match lines.is_empty() {
        true => format!("no difference in {} types\n", answer.types.len()),
        false => lines,
    }
}

/// The versions of a changed resource, and the lines that differ.
fn content(changed: &ChangedName, short: &str, is_wide: bool) -> String {
    let (Some(has), Some(should)) = (&changed.has, &changed.should) else { return String::new() };
    let brief = |version: &String| if is_wide { version.clone() } else { sluice_text::version(version) };
    let (has, should) = (brief(has), brief(should));
    let name = safe(&format!("{short}/{}", changed.name)).into_owned();
    let reason = match &changed.content {
        Some(ContentDifference::Text(text)) => {
            let mut lines = format!("--- has     {name} {has}\n+++ should  {name} {should}\n");
            lines.extend(text.lines().flat_map(|line| [safe(line), "\n".into()]));
            return lines;
        }
        Some(ContentDifference::NoContent(reason)) => format!("  ({})", safe(reason)),
        Some(ContentDifference::Patch(_)) | None => String::new(),
    };
    format!("  {name}  {has} -> {should}{reason}\n")
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
        let answer: ClientDifference = serde_json::from_value(answer).unwrap();
        let expected =
            "Cluster  +cart\\u{1b}  +2 more  ~web  -old  withheld x\n  Cluster/web  1c0e77aa -> b41f0c2e\n";
        assert_eq!(difference(&answer, false), expected);
        assert!(difference(&answer, true).contains("1c0e77aa00 -> b41f0c2e00\n"));
        assert_eq!(names(&answer), ["Cluster/cart\u{1b}", "Cluster/web", "Cluster/old"]);
        let changed = json!({"name": "web", "has": "1c0e77aa00", "should": "b41f0c2e00", "text": "@@ -1 +1 @@\n-a: 1s\n+a: \u{1b}2s\n"});
        let changed = serde_json::from_value(changed).unwrap();
        let expected = "--- has     Cluster/web 1c0e77aa\n+++ should  Cluster/web b41f0c2e\n@@ -1 +1 @@\n-a: 1s\n+a: \\u{1b}2s\n";
        assert_eq!(content(&changed, "Cluster", false), expected);
        let gone =
            json!({"name": "web", "has": "1c0e77aa00", "should": "b41f0c2e00", "no_content": "it is gone"});
        let gone = serde_json::from_value(gone).unwrap();
        assert_eq!(content(&gone, "Cluster", false), "  Cluster/web  1c0e77aa -> b41f0c2e  (it is gone)\n");
        let none = serde_json::from_value(json!({"types": [{"type": "a.Cluster", "added": []}]})).unwrap();
        assert_eq!(difference(&none, false), "no difference in 1 types\n");
    }
}
