//! `sluice classes split` and `join`: classes beside the rules (PRF-32).

use clap::Args;
use http::Method;
use serde::de::DeserializeOwned;
use sluice_admin_api::endpoints::Endpoint;
use sluice_admin_api::parameters::{JoinParameters, Parameters, SplitParameters};
use sluice_admin_api::proofs::{ClassSplit, JoinedClass};

use super::arguments::{AnswerForm, RelayArguments};
use super::console::Console;
use super::list::path;
use super::outcome::{Failure, Outcome};
use super::relays::Relays;
use super::table::{joined, type_name};
use super::text::safe;
use super::typed::{Typed, jsons};
use sluice_text::count;

#[derive(Args, Debug)]
pub struct SplitArguments {
    /// The digest of the class, or its beginning: `sluice classes` has it.
    class: String,
    /// Fields of nodes, as `sluice classes` names them: each value, or tuple of values, gets a class of its
    /// own.
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', required = true)]
    by: Vec<String>,
    /// Form of the output; json: the answers of the API, with `relay`.
    #[arg(short = 'o', long = "output", value_enum, value_name = "FORM", default_value_t = AnswerForm::Table)]
    form: AnswerForm,
    #[command(flatten)]
    reach: RelayArguments,
}

#[derive(Args, Debug)]
pub struct JoinArguments {
    /// The digest of a class that was split, or of a part of it; or the beginning of a digest. With commas
    /// between several: all are joined, or none.
    #[arg(value_name = "CLASS,...")]
    class: String,
    /// Form of the output; json: the answers of the API, with `relay`.
    #[arg(short = 'o', long = "output", value_enum, value_name = "FORM", default_value_t = AnswerForm::Table)]
    form: AnswerForm,
    #[command(flatten)]
    reach: RelayArguments,
}

pub(super) const SPLIT_HELP: &str = "\
The clients move to their new classes as after a reload: nothing is removed from them, and content that is equal is not sent \
again. The split stays over reloads, restarts with a checkpoint, and upgrades, until `sluice classes join`, or until the rules \
of node_classes give these clients another class. Write it into node_classes for good.

Output:
  for each relay, the split

Examples:
  sluice classes split 9a11bd07 --by metadata.LABELS.team
  sluice classes split 9a11bd07 --by locality.zone,user_agent_version

Exit codes: 0 done; 64 wrong arguments, no such class, or the class cannot be split; 69 no relay answered.";

pub(super) const JOIN_HELP: &str = "\
Undoes the split that made the class, or all splits of the class. Of several classes, each relay joins all or none. The proof does not split this class again for an hour.

Output:
  for each relay, the class that has the clients now

Examples:
  sluice classes join 77d2e001
  sluice classes join 9a11bd07,77d2e001

Exit codes: 0 done; 64 wrong arguments, no such class, or the class was not split; 69 no relay answered.";

pub(super) async fn split(order: SplitArguments, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let parameters = SplitParameters { class: Some(order.class), by: Some(order.by.join(",")) };
    let target = path(Endpoint::SplitClass.path(), parameters.into_pairs());
    command(&order.reach, &target, order.form, console, |split: &ClassSplit| split_text(split)).await
}

pub(super) async fn join(order: JoinArguments, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let parameters = JoinParameters { class: Some(order.class) };
    let target = path(Endpoint::JoinClass.path(), parameters.into_pairs());
    let text = |joined: &JoinedClass| match joined.class.contains(',') {
        true => format!("{}: the clients are in these classes again", joined.class),
        false => format!("{}: the clients are in this class again", joined.class),
    };
    command(&order.reach, &target, order.form, console, text).await
}

async fn command<T: DeserializeOwned + Send + Sync + 'static>(
    reach: &RelayArguments,
    target: &str,
    form: AnswerForm,
    console: &mut Console<'_>,
    text: impl Fn(&T) -> String,
) -> Result<Outcome, Failure> {
    let relays = Relays::new(reach).await?;
    let answers = relays.typed::<T>(&Method::POST, target).await;
    let outcome = answers.report(console.err)?;
    let done: Vec<Typed<T>> = answers.values().collect();
    match form {
        AnswerForm::Json => console.json(&serde_json::json!({ "relays": jsons(&done) }))?,
        AnswerForm::Table => {
            for Typed { relay, value, .. } in &done {
                writeln!(console.out, "{}  {}", safe(relay), safe(&text(value)))?;
            }
        }
    }
    console.out.flush()?;
    Ok(outcome)
}

/// `9a11bd07: split by metadata.LABELS.team (1 value) since …`.
pub(super) fn split_text(split: &ClassSplit) -> String {
    let values = match split.tuples {
        Some(tuples) => count(tuples as u64, "value"),
        None => "each value".to_owned(),
    };
    let why = match split.cause.as_str() {
        "proof" => {
            let kind = type_name(&split.r#type).unwrap_or_default();
            format!("the proof found other {kind} content for client {:?}", split.client)
        }
        _ => "by an operator".to_owned(),
    };
    let until = match &split.holds_until {
        Some(until) => format!("until {until} at least"),
        None => "until `sluice classes join`".to_owned(),
    };
    format!(
        "{}: split by {} ({values}) since {}; {why}; {until}",
        split.class,
        joined(&split.by),
        split.since
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prf_32_a_split_says_why_and_how_long() {
        let split = ClassSplit {
            class: "9a11bd07".into(),
            by: vec!["metadata.LABELS.team".into()],
            tuples: Some(1),
            cause: "proof".into(),
            client: "envoy-web-7".into(),
            r#type: "envoy.config.cluster.v3.Cluster".into(),
            since: "2026-11-29T09:00:00.000Z".into(),
            holds_until: Some("2026-11-29T10:00:00.000Z".into()),
        };
        assert_eq!(
            split_text(&split),
            "9a11bd07: split by metadata.LABELS.team (1 value) since 2026-11-29T09:00:00.000Z; the proof found other Cluster \
             content for client \"envoy-web-7\"; until 2026-11-29T10:00:00.000Z at least"
        );
        let by_hand = ClassSplit { tuples: None, cause: "operator".into(), holds_until: None, ..split };
        assert!(split_text(&by_hand).ends_with("by an operator; until `sluice classes join`"));
    }
}
