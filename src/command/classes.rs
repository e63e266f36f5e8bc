//! `sluice classes`: the node classes with what is proved of each, and an order to prove one (PRF-24).

use std::time::Duration;

use clap::{Args, Subcommand};
use http::Method;
use sluice_admin_api::endpoints::Endpoint;
use sluice_admin_api::parameters::{Parameters, ProveParameters};
use sluice_admin_api::proofs::{ClassSplit, ComparedReplicas, Divergence, ProveProgress};
use tokio::time::sleep;

use super::address::Target;
use super::arguments::{AnswerForm, OutputFormat, RelayArguments, Show};
use super::console::Console;
use super::learn::{self, Learn};
use super::list::view::{DIVERGENCES, PROOFS, SAMPLES, SPLITS};
use super::list::{self, List, path};
use super::outcome::{Failure, Outcome};
use super::relays::{Answers, Relays};
use super::request::{Caller, Missing};
use super::splits::{self, JoinArguments, SplitArguments};
use super::table::{joined, type_name};
use super::text::safe;
use super::typed::{Typed, jsons};
use sluice_text::count;

/// The time between two questions for the progress of an order.
const INTERVAL: Duration = Duration::from_millis(500);

/// So many questions in a row without an answer are the end of an order.
const SILENCES_MAX: u32 = 5;

/// The status of a relay that cannot prove a class by its configuration.
const CONFLICT: u16 = 409;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = HELP)]
pub struct ClassesArguments {
    #[command(subcommand)]
    pub command: Option<ClassCommand>,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: RelayArguments,
}

#[derive(Debug, Subcommand)]
pub enum ClassCommand {
    /// Ask the control plane about the clients of a class now, and wait for the answers.
    #[command(after_help = PROVE_HELP)]
    Prove(Prove),
    /// Show the clients that a class was compared with, the latest first.
    #[command(after_help = SAMPLES_HELP)]
    Samples(Samples),
    /// Give clients with other values of some fields a class of their own, beside the rules.
    #[command(after_help = splits::SPLIT_HELP)]
    Split(SplitArguments),
    /// Undo a split.
    #[command(after_help = splits::JOIN_HELP)]
    Join(JoinArguments),
    /// Find the rules of `node_classes` for a control plane, by a running relay or before there is one.
    Learn(Box<Learn>),
}

#[derive(Args, Debug)]
pub struct Prove {
    /// The digest of the class, or its beginning: `sluice classes` has it.
    class: String,
    /// Ask about every client, and not about one of each kind.
    #[arg(long)]
    all: bool,
    /// Compare two replicas of the control plane, by the node of the class on another connection, and ask
    /// about no client.
    #[arg(long, conflicts_with = "all")]
    replicas: bool,
    /// The clients to ask about at once.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    streams: u32,
    /// Form of the output; json: the answers of the API, with `relay`.
    #[arg(short = 'o', long = "output", value_enum, value_name = "FORM", default_value_t = AnswerForm::Table)]
    form: AnswerForm,
    #[command(flatten)]
    reach: RelayArguments,
}

#[derive(Args, Debug)]
pub struct Samples {
    /// The digest of the class, or its beginning: `sluice classes` has it.
    class: String,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: RelayArguments,
}

const HELP: &str = "\
Needs `proof` in the configuration of the relay; without it, only CLASS, RULE and CLIENTS have values.

Columns:
  CLASS           the digest of the class
  RULE            the rules of node_classes that chose it
  CLIENTS         the number of its streams
  STATE           proved, unproved, differs, split_waits (differs, and a split has to wait), restless (the control plane contradicts
                  itself) or impossible (it cannot be asked)
  FINGERPRINTS    the kinds of clients: nodes that are equal but for ids, addresses and the like
  SAMPLES         the clients that the control plane told the same as the class
  PUSHES SEEN     the changes over which samples stayed equal
  DIFFERS         the clients that the control plane tells otherwise
  AT MOST (95 %)  no greater share of the clients differs, with 95 % certainty
  UNCOVERED       values that no open stream holds: a rule by one of them is noticed later
  WITNESSES       the clients whose streams stay open
  With -o wide: PROVED (in words), GIVES WAY (why nobody is asked now)

Below the table: each divergence, with the fields that explain it; and the classes that were split beside the rules.

Examples:
  sluice classes
  sluice classes -o json";

const SAMPLES_HELP: &str = "\
Needs `proof` in the configuration of the relay. Each relay remembers the latest 256 samples of a class at each control plane.

Columns:
  AT      when the result was known
  NODE    the client in whose place the control plane was asked
  RESULT  equal, differs, lag (the stream was late), restless (the control plane contradicts itself) or no_word
  SERVER  the control plane

Examples:
  sluice classes samples c0ffee12
  sluice classes samples c0ffee12 -o json";

const PROVE_HELP: &str = "\
Not bound by `proof.per_minute`. Clients notice nothing. With --replicas, the node of the class is shown on a connection of \
its own, to another address of the control plane if its name has several.

Output:
  for each relay, how many clients were asked about, and how many the control plane told the same as the class. While the \
relay asks nobody, as when clients wait for first answers, the reason is on stderr.

Examples:
  sluice classes prove c0ffee12
  sluice classes prove c0ffee12 --all --streams 4

Exit codes: 0 all are told the same, or the class has one client; 3 so far as relays answered, and some did not; 65 some are told \
otherwise: `sluice classes` says more; 64 wrong arguments, or no such class; 69 no relay answered, a relay went away before the \
end, or the control plane cannot be asked about all.";

pub(super) async fn run(classes: ClassesArguments, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let ClassesArguments { command, show, reach } = classes;
    match command {
        Some(ClassCommand::Prove(order)) => return prove(order, console).await,
        Some(ClassCommand::Samples(Samples { class, show, reach })) => {
            let relays = Relays::new(&reach).await?;
            let list = List { value: Some(class), ..List::of_all(&SAMPLES) };
            return list::show(&relays, &list, show, console).await;
        }
        Some(ClassCommand::Split(order)) => return splits::split(order, console).await,
        Some(ClassCommand::Join(order)) => return splits::join(order, console).await,
        // With `--nodes`, the binary gives it to `app`.
        Some(ClassCommand::Learn(order)) => return learn::run(*order, console).await,
        None => {}
    }
    let relays = Relays::new(&reach).await?;
    let list = List::of_all(&PROOFS);
    let outcome = list::show(&relays, &list, show, console).await?;
    if matches!(show.format, OutputFormat::Table | OutputFormat::Wide) {
        write_divergences(&relays, console).await?;
        write_splits(&relays, console).await?;
    }
    Ok(outcome)
}

/// Writes the divergences of all relays. A relay of before has none.
async fn write_divergences(relays: &Relays, console: &mut Console<'_>) -> Result<(), Failure> {
    let list = List::of_all(&DIVERGENCES);
    let fetch = async |caller: &Caller, relay: &Target| list::fetch(caller, relay, &list, None).await;
    let answers: Answers<list::Items<Divergence>> = relays.all(fetch).await;
    for items in answers.values() {
        for Typed { relay, value, .. } in items.items {
            let at = if relays.are_several() { format!(" at {relay}") } else { String::new() };
            writeln!(console.out, "{}{}", safe(&divergence_text(&value)), safe(&at))?;
        }
    }
    console.out.flush()?;
    Ok(())
}

/// Writes the splits of all relays. A relay of before has none.
async fn write_splits(relays: &Relays, console: &mut Console<'_>) -> Result<(), Failure> {
    let list = List::of_all(&SPLITS);
    let fetch = async |caller: &Caller, relay: &Target| list::fetch(caller, relay, &list, None).await;
    let answers: Answers<list::Items<ClassSplit>> = relays.all(fetch).await;
    for items in answers.values() {
        for Typed { relay, value, .. } in items.items {
            let at = if relays.are_several() { format!(" at {relay}") } else { String::new() };
            writeln!(console.out, "{}{}", safe(&splits::split_text(&value)), safe(&at))?;
        }
    }
    console.out.flush()?;
    Ok(())
}

/// `9a11bd07: Cluster "payments" is another for some clients: max_retries; explained by …`.
fn divergence_text(divergence: &Divergence) -> String {
    let kind = type_name(&divergence.r#type).unwrap_or_default();
    let what = match divergence.name.as_str() {
        "" => format!("{kind}, {} of {} differ", divergence.count, divergence.compared),
        name => {
            let how = match (divergence.class_has, divergence.member_has) {
                (true, false) => "is absent for some clients".to_owned(),
                (false, true) => "is only there for some clients".to_owned(),
                _ if divergence.paths.is_empty() => "has other bytes for some clients".to_owned(),
                _ => format!("is another for some clients: {}", joined(&divergence.paths)),
            };
            format!("{kind} {name:?} {how}")
        }
    };
    let clients = count(divergence.clients as u64, "client");
    let why = match divergence.explained_by.is_empty() {
        true => "no field explains it yet".to_owned(),
        false => {
            let values = joined(&divergence.suspect_values);
            format!("explained by {} ({values}: {clients})", divergence.explained_by.join(", or by "))
        }
    };
    format!(
        "{}: {what}; {why}; since {}; they have the content of their class",
        divergence.class, divergence.since
    )
}

async fn prove(order: Prove, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let relays = Relays::new(&order.reach).await?;
    let parameters = ProveParameters {
        class: Some(order.class),
        all: order.all.then(|| "1".to_owned()),
        streams: Some(order.streams.to_string()),
        replicas: order.replicas.then(|| "1".to_owned()),
    };
    let target = path(Endpoint::ProveClass.path(), parameters.into_pairs());
    let begun = relays.typed::<ProveProgress>(&Method::POST, &target).await;
    let reached = report(&begun, console)?;
    let mut orders: Vec<Order> = begun.values().map(Order::new).collect();
    while orders.iter().any(Order::is_under_way) {
        sleep(INTERVAL).await;
        follow(&relays, &mut orders, console).await?;
    }
    let (ended, lost): (Vec<Order>, Vec<Order>) =
        orders.into_iter().partition(|order| order.progress.value.done);
    let progress: Vec<Typed<ProveProgress>> = ended.into_iter().map(|order| order.progress).collect();
    write_progress(&progress, order.form, console)?;
    outcome(&progress)?;
    let lost: Vec<&str> = lost.iter().map(|order| &*order.progress.relay).collect();
    match lost.is_empty() {
        true => Ok(reached),
        false => Err(Failure::Unavailable(format!("no end of the order is known at {}", lost.join(", ")))),
    }
}

/// An order at one relay.
struct Order {
    progress: Typed<ProveProgress>,
    /// Questions in a row without an answer.
    silences: u32,
    /// The told reason why nobody is asked.
    waits: Option<String>,
}

impl Order {
    fn new(progress: Typed<ProveProgress>) -> Order {
        Order { progress, silences: 0, waits: None }
    }

    fn is_under_way(&self) -> bool {
        !self.progress.value.done && self.silences < SILENCES_MAX
    }
}

/// Asks each relay for the progress of its order once, and tells what an order waits for.
async fn follow(relays: &Relays, orders: &mut [Order], console: &mut Console<'_>) -> Result<(), Failure> {
    let ask = async |caller: &Caller, relay: &Target| {
        let order = orders.iter().find(|order| order.progress.relay == relay.label);
        let Some(order) = order.filter(|order| order.is_under_way()) else { return Ok(None) };
        let target = Endpoint::ProveProgress.path_of(&[&order.progress.value.order.to_string()]);
        caller.typed::<ProveProgress>(relay, &Method::GET, &target).await.map(Some)
    };
    let Answers { answered, missing } = relays.all(ask).await;
    for (relay, reason) in missing {
        let Some(order) = orders.iter_mut().find(|order| order.progress.relay == relay) else { continue };
        order.silences += 1;
        // A relay that answers, and does not know the order, has forgotten it for good.
        if reason.is_usage() {
            order.silences = SILENCES_MAX;
        }
        if !order.is_under_way() {
            writeln!(console.err, "sluice: relay {relay}: {}", safe(&reason.text()))?;
        }
    }
    for (relay, answer) in answered {
        let order = orders.iter_mut().find(|order| order.progress.relay == relay);
        let Some((order, progress)) = order.zip(answer) else { continue };
        let waits = progress.value.gives_way.clone();
        if let Some(reason) = waits.as_ref().filter(|_| order.waits != waits) {
            writeln!(console.err, "sluice: relay {relay} waits: {}", safe(reason))?;
        }
        *order = Order { progress, silences: 0, waits };
    }
    Ok(())
}

/// Reports the relays without an answer. One that cannot prove the class by its configuration cannot be
/// asked.
fn report<T>(answers: &Answers<T>, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let is_conflict = |missing: &Missing| matches!(missing, Missing::Refused { status: CONFLICT, .. });
    match answers.report(console.err) {
        Err(Failure::Usage(text)) if answers.missing.iter().all(|(_, missing)| is_conflict(missing)) => {
            Err(Failure::Unavailable(text))
        }
        other => other,
    }
}

fn write_progress(
    progress: &[Typed<ProveProgress>],
    form: AnswerForm,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    match form {
        AnswerForm::Json => console.json(&serde_json::json!({ "relays": jsons(progress) }))?,
        AnswerForm::Table => {
            for Typed { relay, value, .. } in progress {
                if let Some(replicas) = &value.replicas {
                    let line = format!("{relay}  {}: {}", value.class, replicas_text(replicas));
                    writeln!(console.out, "{}", safe(&line))?;
                    continue;
                }
                writeln!(console.out, "{}", safe(&format!("{relay}  {}", progress_text(value))))?;
            }
        }
    }
    console.out.flush()?;
    Ok(())
}

fn progress_text(progress: &ProveProgress) -> String {
    let ProveProgress { class, asked, equal, differs, no_word, refused, .. } = progress;
    match (asked, refused) {
        (0, Some(_)) => format!("{class}: nobody could be asked about"),
        (0, None) => {
            format!("{class}: one client, which the control plane sees, and nobody to differ from it")
        }
        _ => format!(
            "{class}: {equal} of {asked} sampled clients are told the same as the class, {differs} otherwise; {no_word} gave \
             no word"
        ),
    }
}

/// `10.0.4.7:15010 (cp-a) and 10.0.4.8:15010 (cp-b) tell one node the same`.
fn replicas_text(replicas: &ComparedReplicas) -> String {
    let sides = replicas.addresses.iter().zip(&replicas.control_planes).map(|(address, control_plane)| {
        let address = address.as_deref().unwrap_or("a unix socket");
        match control_plane {
            Some(control_plane) => format!("{address} ({control_plane})"),
            None => address.to_owned(),
        }
    });
    let sides = sides.collect::<Vec<_>>().join(" and ");
    match (&replicas.r#type, replicas.agree) {
        (_, true) => format!("{sides} tell one node the same"),
        (kind, false) => {
            let kind = kind.as_deref().and_then(type_name).unwrap_or_default();
            format!("{sides} tell one node two things: {kind} {}", joined(&replicas.names))
        }
    }
}

/// The exit code of all answers together.
fn outcome(progress: &[Typed<ProveProgress>]) -> Result<Outcome, Failure> {
    let is_different = |progress: &&Typed<ProveProgress>| progress.value.differs > 0;
    if let Some(differs) = progress.iter().find(is_different) {
        let text = match differs.value.replicas {
            Some(_) => "replicas of the control plane tell one node two things",
            None => {
                "the control plane tells some clients otherwise than their class; `sluice classes` says more"
            }
        };
        return Err(Failure::Conflict(text.to_owned()));
    }
    if let Some(reason) = progress.iter().find_map(|progress| progress.value.refused.as_ref()) {
        return Err(Failure::Unavailable(format!("the class cannot be asked about: {reason}")));
    }
    if progress
        .iter()
        .any(|progress| progress.value.no_word > 0 || progress.value.equal < progress.value.asked)
    {
        return Err(Failure::Unavailable(
            "the control plane did not answer for all clients; nothing differs so far".to_owned(),
        ));
    }
    Ok(Outcome::Good)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ended(equal: usize, differs: usize, no_word: usize) -> Result<Outcome, u8> {
        let asked = equal + differs + no_word;
        let json = json!({"class": "c", "asked": asked, "equal": equal, "differs": differs, "no_word": no_word, "done": true});
        outcome(&[Typed::new(json, "r").unwrap()]).map_err(|failure| failure.code())
    }

    #[test]
    fn prf_24_a_class_is_proved_only_if_all_gave_their_word() {
        assert_eq!(
            [ended(3, 0, 0), ended(2, 1, 0), ended(2, 1, 1), ended(2, 0, 1)],
            [Ok(Outcome::Good), Err(65), Err(65), Err(69)]
        );
    }

    #[test]
    fn prf_17_a_divergence_is_a_line_without_a_value_of_the_resource() {
        let divergence = Divergence {
            r#type: "envoy.config.cluster.v3.Cluster".into(),
            name: "payments".into(),
            class: "9a11bd07".into(),
            paths: vec!["circuit_breakers.thresholds[0].max_retries.value".into()],
            explained_by: vec!["metadata.LABELS.team".into()],
            suspect_values: vec!["metadata.LABELS.team=blue".into()],
            clients: 2,
            class_has: true,
            member_has: true,
            since: "2026-11-29T09:00:00.000Z".into(),
            ..Divergence::default()
        };
        let text = "9a11bd07: Cluster \"payments\" is another for some clients: circuit_breakers.thresholds[0].max_retries.value; \
            explained by metadata.LABELS.team (metadata.LABELS.team=blue: 2 clients); since 2026-11-29T09:00:00.000Z; they have the \
            content of their class";
        assert_eq!(divergence_text(&divergence), text);
    }
}
