//! `sluice explain client`: the reasons for the content of a client, link by link.

use clap::{Args, Subcommand};
use serde_json::Value;
use sluice_admin_api::endpoints::Endpoint;
use sluice_admin_api::names::Explanation;
use sluice_admin_api::parameters::{NameParameters, Parameters};

use super::{ask, resolve};
use crate::command::answer::{self, Forms, RelayAnswers};
use crate::command::arguments::{RelayArguments, Show};
use crate::command::console::Console;
use crate::command::list::path;
use crate::command::outcome::{Failure, Outcome};
use crate::command::relays::Relays;
use crate::command::table::{Table, shown};
use crate::command::typed::Typed;

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
    reach: RelayArguments,
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
        let parameters = NameParameters { r#type: Some(type_name.to_owned()), name: name.clone() };
        let path = path(&Endpoint::ClientExplain.path_of(&[&id.to_string()]), parameters.into_pairs());
        let answer = ask(&relays, relay, &path).await?;
        Ok(RelayAnswers { items: vec![answer], outcome: Outcome::Good })
    };
    let table = |items: &[Typed<Explanation>], is_wide: bool, console: &mut Console<'_>| {
        items.iter().try_for_each(|item| chain(&item.value, is_wide).write(console.out, false, false))
    };
    answer::show(show, console, &Forms { key: None, table: &table, names }, ask).await
}

/// The node class.
fn names(answer: &Explanation) -> Vec<String> {
    answer.class.class.iter().cloned().collect()
}

/// A link of the chain.
struct ChainLink<'a> {
    head: &'static str,
    text: &'a str,
    /// A line below, also without the wide form.
    rule: Option<&'a String>,
    /// Further facts for the wide form: each with its key.
    facts: Vec<(&'static str, Option<String>)>,
}

fn links(answer: &Explanation) -> Vec<ChainLink<'_>> {
    let Explanation { client, class, list, source, name, state } = answer;
    let link = |head, text, facts| ChainLink { head, text, rule: None, facts };
    let mut links = vec![
        link(
            "client",
            &*client.text,
            vec![("cluster", shown(&client.cluster)), ("identity", shown(&client.identity))],
        ),
        ChainLink {
            rule: class.decision.as_ref().map(|decision| &decision.rule_text),
            ..link(
                "class",
                &*class.text,
                vec![("rule", class.rule.clone()), ("generation", shown(class.generation))],
            )
        },
        link("list", &*list.text, vec![("key", shown(&list.key)), ("server", list.server.clone())]),
    ];
    links.extend(source.as_ref().map(|source| {
        // As in JSON: a whole number of seconds has its zero.
        let stale = source.stale_seconds.map(|seconds| Value::from(seconds).to_string());
        link(
            "source",
            &source.text,
            vec![
                ("state", shown(&source.state)),
                ("stale_seconds", stale),
                ("last_error", source.last_error.clone()),
            ],
        )
    }));
    links.extend(name.as_ref().map(|name| {
        let facts = name.facts.as_ref();
        link(
            "name",
            &name.text,
            vec![
                ("state", facts.and_then(|facts| facts.state.clone())),
                ("collection", name.collection.clone()),
                ("entry", facts.and_then(|facts| facts.entry.clone())),
                ("cause", facts.and_then(|facts| facts.cause.clone())),
            ],
        )
    }));
    let facts = state.facts.as_ref();
    links.push(link(
        "state",
        &state.text,
        vec![
            ("has", facts.and_then(|facts| facts.has.clone())),
            ("should", facts.and_then(|facts| facts.should.clone())),
        ],
    ));
    links
}

fn chain(answer: &Explanation, is_wide: bool) -> Table {
    let mut table = Table::plain(&["", ""]);
    for link in links(answer).into_iter().filter(|link| !link.text.is_empty()) {
        table.push([shown(link.head), shown(link.text)]);
        if let Some(rule) = link.rule {
            table.push([shown("rule"), shown(rule)]);
        }
        for (key, fact) in link.facts.into_iter().filter(|_| is_wide) {
            if fact.is_some() {
                table.push([Some(format!("  {key}")), fact]);
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
        let answer: Explanation = serde_json::from_value(answer).unwrap();
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
