//! `sluice events`: what happened, from the relays' rings of events.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use sluice_admin_api::events::Event;
use sluice_admin_api::parameters::{EventsParameters, Parameters};
use tokio::time::sleep;

use super::arguments::{OutputFormat, RelayArguments, Show};
use super::console::Console;
use super::list::view::EVENTS;
use super::list::{Items, List, fetch, table, write};
use super::outcome::{Failure, Outcome};
use super::relays::Relays;
use super::request::Caller;
use super::text::parse_duration;
use super::typed::Typed;

/// An event comes once its second is over.
const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct EventsArguments {
    /// Only events of the time until now.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    since: Option<Duration>,
    /// Only events of the severity, and of those above: info, warn or error.
    #[arg(long, value_name = "SEVERITY")]
    severity: Option<String>,
    /// Only events of the kind.
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    reach: RelayArguments,
}

const HELP: &str = "\
A relay keeps its latest 4,096 events, and besides the latest 512 changes and clients that come and go. With -w, further events are added as they come.

Columns:
  AT        the time, in UTC
  NUMBER    the number of the event in its relay
  KIND      for example upstream.lost, nack, fallback, limit, drain, client
  SEVERITY  info, warn or error
  COUNT     how often the cause occurred within the second
  TEXT      what happened
  With -o wide: SERVER, TYPE, NODE, STREAM, PEER and CHANGE, where the event has them

Examples:
  sluice events --since 1h --severity warn
  sluice events --kind nack -o json";

pub(super) async fn run(events: EventsArguments, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    let EventsArguments { since, severity, kind, show, reach } = events;
    let relays = Relays::new(&reach).await?;
    let parameters = EventsParameters { kind, severity, ..EventsParameters::default() };
    let list = List { query: parameters.into_pairs(), ..List::of_all(&EVENTS) };
    let mut numbers = BTreeMap::new();
    let (mut items, outcome) = gather(&relays, &list, &mut numbers, console).await?;
    if let Some(since) = since {
        items.retain(|event| event.value.age_seconds <= since.as_secs_f64());
    }
    if !show.watch {
        let items = Items { items, is_truncated: false };
        write(&items, &list, relays.are_several(), show, console)?;
        return Ok(outcome);
    }
    let mut no_headers = show.no_headers;
    loop {
        match console.is_terminal && show.format != OutputFormat::Json && show.format != OutputFormat::Yaml {
            true if !items.is_empty() => {
                let is_wide = show.format == OutputFormat::Wide;
                let table = table(&items, &EVENTS, is_wide, relays.are_several());
                table.write(console.out, !no_headers, console.has_colour)?;
                console.out.flush()?;
                no_headers = true;
            }
            true => {}
            false => items.iter().try_for_each(|event| console.json_line(&event.json))?,
        }
        sleep(INTERVAL).await;
        items = match gather(&relays, &list, &mut numbers, console).await {
            Ok((items, _)) => items,
            Err(failure) => {
                writeln!(console.err, "sluice: {}", failure.text().unwrap_or_default())?;
                Vec::new()
            }
        };
    }
}

/// The events after the last seen number of each relay, in the order of time.
async fn gather(
    relays: &Relays,
    list: &List<Event<'static>>,
    numbers: &mut BTreeMap<String, u64>,
    console: &mut Console<'_>,
) -> Result<(Vec<Typed<Event<'static>>>, Outcome), Failure> {
    let seen = &*numbers;
    let ask = async |caller: &Caller, relay: &super::address::Target| {
        let after = seen.get(&relay.label).map(u64::to_string);
        fetch(caller, relay, list, after).await
    };
    let answers = relays.all(ask).await;
    let outcome = answers.report(console.err)?;
    let mut all = Vec::new();
    for (label, events) in answers.answered {
        if let Some(last) = events.items.iter().map(|event| event.value.number).max() {
            numbers.insert(label, last);
        }
        all.extend(events.items);
    }
    all.sort_by(|a, b| a.value.at.cmp(&b.value.at));
    Ok((all, outcome))
}
