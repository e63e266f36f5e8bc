//! `sluice explain client`: the reasons for the content of a client, link by link.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::{ask, resolve};
use crate::command::answer::{self, Forms, Found};
use crate::command::arguments::{Reach, Show};
use crate::command::console::Console;
use crate::command::list::path;
use crate::command::outcome::{Failure, Outcome};
use crate::command::relays::Relays;
use crate::command::table::{Table, text};

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
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: Reach,
}

const EXPLAIN_HELP: &str = "\
Columns:
  client  the stream
  class   its node class, the rule that matched, and the nearest one that did not
  rule    the rule as the file has it, with its generation and place
  list    the server list of the type, and the server in use
  source  the attachment to this server
  name    the resource there
  state   what the client was sent and answered
  With -o wide: the rule of the class, and the state of the server, too; with -o name: the node class

Examples:
  sluice explain client envoy-web-3 Cluster/web
  sluice explain client envoy-web-3 Cluster -o json";

pub(in crate::command) async fn run(explain: Explain, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let Explain::Client(ExplainArgs { client, resource, show, reach }) = explain;
    let relays = Relays::new(&reach).await?;
    let (type_name, name) = match resource.split_once('/') {
        Some((type_name, name)) => (type_name, Some(name.to_owned())),
        None => (resource.as_str(), None),
    };
    let ask = async |console: &mut Console<'_>| {
        let (relay, id) = resolve(&relays, &client, console).await?;
        let query = [("type", Some(type_name.to_owned())), ("name", name.clone())];
        let query = query.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let answer = ask(&relays, relay, &path(&format!("/clients/{id}/explain"), query)).await?;
        Ok(Found { items: vec![answer], outcome: Outcome::Good })
    };
    let table = |items: &[Value], is_wide: bool, console: &mut Console<'_>| {
        items.iter().try_for_each(|of| chain(of, is_wide).write(console.out, false, false))
    };
    answer::show(show, console, &Forms { key: None, table: &table, names }, ask).await
}

/// The node class.
fn names(answer: &Value) -> Vec<String> {
    answer.get("class").and_then(|class| text(class, "class")).into_iter().collect()
}

/// The keys of the links, and further keys of a link for the wide form.
const LINKS: [(&str, &[&str]); 6] = [
    ("client", &["cluster", "peer", "identity"]),
    ("class", &["rule", "generation", "nearest"]),
    ("list", &["key", "server"]),
    ("source", &["state", "stale_seconds", "last_error"]),
    ("name", &["state", "collection", "entry", "cause"]),
    ("state", &["has", "should"]),
];

fn chain(answer: &Value, is_wide: bool) -> Table {
    let mut table = Table::plain(&["", ""]);
    for (key, further) in LINKS {
        let Some(link) = answer.get(key) else { continue };
        let Some(words) = text(link, "text") else { continue };
        table.push([Some(key.to_owned()), Some(words)]);
        if let Some(words) = text(link, "rule_text") {
            table.push([Some("rule".to_owned()), Some(words)]);
        }
        for key in further.iter().filter(|_| is_wide) {
            if let Some(value) = text(link, key) {
                table.push([Some(format!("  {key}")), Some(value)]);
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
    fn a_chain_has_its_links_in_order() {
        let answer = json!({
            "state": {"text": "in sync", "has": "1c0e"},
            "class": {"text": "c0ffee by node_classes[0]", "class": "c0ffee", "generation": 4, "nearest": null},
            "client": {"text": "71 web\u{1b}"}, "source": null,
        });
        let shown = |is_wide| {
            let mut out = Vec::new();
            chain(&answer, is_wide).write(&mut out, false, false).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            shown(false),
            "client  71 web\\u{1b}\nclass   c0ffee by node_classes[0]\nstate   in sync\n"
        );
        assert!(shown(true).contains("\n  generation  4\n"), "{}", shown(true));
        assert_eq!(names(&answer), ["c0ffee"]);
    }
}
