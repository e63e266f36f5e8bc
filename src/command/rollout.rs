//! `sluice rollout`: the plans for pushes, and what they say about each push.

use clap::Subcommand;
use http::Method;
use serde_json::Value;

use super::address::Relay;
use super::answer::{self, Forms, Found};
use super::arguments::{Reach, Show};
use super::console::Console;
use super::list::view::ROLLOUTS;
use super::list::{self, List, path, with_relay};
use super::order::{self, Order};
use super::outcome::{Failure, Outcome};
use super::relays::Relays;
use super::request::{Caller, Missing};
use super::table::{
    Table, changed_names, list as items_of, listed_names, number, span, text, type_name, version,
};
use super::text::safe;
use crate::text::{encoded, size};

/// Plans and pushes.
#[derive(Debug, Subcommand)]
pub enum Rollout {
    /// The plans, each with its latest push; or one plan, with its latest push in full.
    #[command(after_help = STATUS_HELP)]
    Status {
        /// Only the plan, with the steps of its latest push and the words of clients.
        plan: Option<String>,
        #[command(flatten)]
        show: Show,
        #[command(flatten)]
        reach: Reach,
    },
    /// The pushes that plans remember, the latest first; or one push in full.
    #[command(after_help = HISTORY_HELP)]
    History {
        /// Only pushes of the plan.
        plan: Option<String>,
        /// Only the push, with its steps and the words of clients.
        #[arg(requires = "plan")]
        push: Option<u64>,
        #[command(flatten)]
        show: Show,
        #[command(flatten)]
        reach: Reach,
    },
    #[command(flatten)]
    Order(Order),
}

const STATUS_HELP: &str = "\
Columns:
  PLAN      the plan, as in the configuration
  PUSH      the number of its latest push
  STATE     open (no push), gathering, waving (a step is under way), paused, settling (all clients are admitted), halted, pinned or frozen
  STEP      the step that the push has reached, and the percentage of clients that it admits
  UNITS     the sources that the plan covers
  CLIENTS   the admitted clients that the push affects; the next five columns tell their states
  ACCEPTED  clients that accepted the push. To accept is not to use: a listener may wait for secrets
  PENDING   clients that have not been sent the push, or were sent it less than a minute ago and have not answered
  REJECTED  clients that rejected the push, but for clients that rejected the push before, too
  SILENT    clients that have not answered for a minute
  LOST      streams that ended within a minute of the push
  OTHERS    clients that would not be admitted yet, and have the push: a plan in `mode: observe` holds nothing back
  WHY       when the push would have stopped, and for which reason; or the wait for a server that cannot be heard
  With -o wide: WAITING (units whose changes wait for the next push), BLAMED (classes with evidence against the push)

Examples:
  sluice rollout status
  sluice rollout status -o json";

const HISTORY_HELP: &str = "\
Columns:
  PLAN, PUSH  the plan, and the number of the push
  OUTCOME     finished, unjudged, halted, paused, abandoned; the state of a push that is not over
  BEGAN       the end of its gathering, in UTC
  TOOK        the time from there to its end
  STEP        the step that it reached
  RESOURCES   resources that changed, were added or removed
  CLIENTS to OTHERS, WHY: as in `sluice rollout status`

Examples:
  sluice rollout history
  sluice rollout history -o json";

/// The letters of a client's words in a table.
const WORDS_MAX: usize = 200;

/// Condemned contents with a line each below a plan; the JSON has a hundred.
const CONDEMNED_SHOWN: usize = 20;

/// Clients with a line each below a push; the JSON has a hundred.
const REJECTIONS_SHOWN: usize = 20;

pub(super) async fn run(rollout: Rollout, console: &mut Console<'_>) -> Result<Outcome, Failure> {
    match rollout {
        Rollout::Status { plan: None, show, reach } => {
            let relays = Relays::new(&reach).await?;
            let list = List { view: &ROLLOUTS, query: Vec::new(), limit: None };
            list::show(&relays, &list, show, console).await
        }
        Rollout::Status { plan: Some(plan), show, reach } => {
            let target = format!("/rollouts/{}", encoded(&plan));
            whole(&target, Some("latest"), show, &reach, console).await
        }
        Rollout::History { plan: Some(plan), push: Some(push), show, reach } => {
            let target = format!("/rollouts/{}/pushes/{push}", encoded(&plan));
            whole(&target, None, show, &reach, console).await
        }
        Rollout::Order(order) => order::run(order, console).await,
        Rollout::History { plan, show, reach, .. } => history(plan.as_deref(), show, &reach, console).await,
    }
}

/// An answer with a push in full, under `key` or as a whole.
async fn whole(
    target: &str,
    key: Option<&'static str>,
    show: Show,
    reach: &Reach,
    console: &mut Console<'_>,
) -> Result<Outcome, Failure> {
    let relays = Relays::new(reach).await?;
    let ask = async |console: &mut Console<'_>| {
        let answers = relays.json(&Method::GET, target).await;
        let outcome = answers.tell(console.err)?;
        let found = answers.found.into_iter();
        Ok(Found { items: found.map(|(label, of)| with_relay(of, &label)).collect(), outcome })
    };
    let table = |items: &[Value], _: bool, console: &mut Console<'_>| {
        for item in items {
            if relays.are_several() {
                writeln!(console.out, "at {}:", safe(&text(item, "relay").unwrap_or_default()))?;
            }
            match key.map_or(Some(item), |key| item.get(key).filter(|push| !push.is_null())) {
                Some(push) => describe(push, !show.no_headers, console)?,
                None => writeln!(console.out, "{}", between(item))?,
            }
            // The notes of a push tell its own condemned contents.
            if key.is_some() {
                condemned(item, !show.no_headers, console)?;
            }
        }
        Ok(())
    };
    answer::show(show, console, &Forms { key: Some("relays"), table: &table, names }, ask).await
}

/// A plan without a push under way.
fn between(item: &Value) -> String {
    let plan = plan_of(item);
    let state = safe(&text(item, "state").unwrap_or_default()).into_owned();
    match item.get("pushes").and_then(|of| of.get(0)).and_then(Value::as_u64) {
        Some(last) => {
            format!(
                "{plan}: {state}; push {last} is over: `sluice rollout history {plan} {last}` has it in full"
            )
        }
        None => format!("{plan}: {state}; no push yet"),
    }
}

fn plan_of(item: &Value) -> String {
    let name = text(item, "name").or_else(|| text(item, "plan"));
    safe(&name.unwrap_or_default()).into_owned()
}

fn names(item: &Value) -> Vec<String> {
    match text(item, "push") {
        Some(push) => vec![format!("{}/{push}", text(item, "plan").unwrap_or_else(|| plan_of(item)))],
        None => Vec::new(),
    }
}

async fn history(
    plan: Option<&str>,
    show: Show,
    reach: &Reach,
    console: &mut Console<'_>,
) -> Result<Outcome, Failure> {
    let relays = Relays::new(reach).await?;
    let ask = async |console: &mut Console<'_>| {
        let answers =
            relays.all(async |caller: &Caller, relay: &Relay| pushes(caller, relay, plan).await).await;
        let outcome = answers.tell(console.err)?;
        let labelled = |(label, of): (String, Vec<Value>)| {
            of.into_iter().map(|item| with_relay(item, &label)).collect::<Vec<_>>()
        };
        Ok(Found { items: answers.found.into_iter().flat_map(labelled).collect(), outcome })
    };
    let table = |items: &[Value], _: bool, console: &mut Console<'_>| {
        history_table(items, relays.are_several()).write(console.out, !show.no_headers, false)
    };
    answer::show(show, console, &Forms { key: Some("pushes"), table: &table, names }, ask).await
}

/// The pushes of one plan of a relay, or of all.
async fn pushes(caller: &Caller, relay: &Relay, plan: Option<&str>) -> Result<Vec<Value>, Missing> {
    let all = || [("limit", "all".to_owned())];
    let plans = match plan {
        Some(plan) => vec![plan.to_owned()],
        None => {
            let found = caller.json(relay, &Method::GET, &path("/rollouts", all())).await?;
            items_of(&found, "rollouts").iter().filter_map(|of| text(of, "name")).collect()
        }
    };
    let mut pushes = Vec::new();
    for plan in plans {
        let target = path(&format!("/rollouts/{}/pushes", encoded(&plan)), all());
        let found = caller.json(relay, &Method::GET, &target).await?;
        pushes.extend(items_of(&found, "pushes").iter().cloned());
    }
    Ok(pushes)
}

/// The columns of the clients of a push.
const CLIENTS: [(&str, &str); 6] = [
    ("CLIENTS", "clients"),
    ("ACCEPTED", "accepted"),
    ("PENDING", "pending"),
    ("REJECTED", "rejected"),
    ("SILENT", "silent"),
    ("LOST", "lost"),
];

fn history_table(pushes: &[Value], are_several: bool) -> Table {
    let mut heads = vec!["PLAN", "PUSH", "OUTCOME", "BEGAN", "TOOK", "STEP", "RESOURCES"];
    heads.extend(CLIENTS.map(|(head, _)| head));
    heads.extend(["OTHERS", "WHY"]);
    heads.extend(are_several.then_some("RELAY"));
    let mut table = Table::plain(&heads);
    for of in pushes {
        let mut cells = vec![
            text(of, "plan"),
            text(of, "push"),
            text(of, "outcome").or_else(|| text(of, "state")),
            text(of, "began"),
            span(of, "seconds"),
            step(of),
            text(of, "resources"),
        ];
        cells.extend(CLIENTS.map(|(_, key)| text(of, key)));
        cells.extend([others(of), text(of, "why")]);
        cells.extend(are_several.then(|| text(of, "relay")));
        table.push(cells);
    }
    table
}

/// The step that a push has reached: `2/4 10%`.
pub(super) fn step(of: &Value) -> Option<String> {
    of.get("push").filter(|push| !push.is_null())?;
    let reached = format!("{}/{}", number(of, "step")?, number(of, "steps")?);
    let percent = of.get("percent").and_then(Value::as_f64);
    Some(percent.map_or(reached.clone(), |percent| format!("{reached} {percent}%")))
}

/// The clients beside those that are admitted that have been sent the push, and have not lost their stream.
pub(super) fn others(of: &Value) -> Option<String> {
    let others = of.get("others")?;
    let had =
        ["accepted", "rejected", "rejected_again", "silent"].map(|key| number(others, key).unwrap_or(0));
    Some(had.iter().sum::<u64>().to_string())
}

/// A push in full.
fn describe(push: &Value, has_heads: bool, console: &mut Console<'_>) -> std::io::Result<()> {
    let get = |key: &str| text(push, key).unwrap_or_else(|| "-".to_owned());
    let state = text(push, "outcome").unwrap_or_else(|| get("state"));
    let head = format!("push {} of plan {}  {state}  began {}", get("push"), get("plan"), get("began"));
    writeln!(console.out, "{}", safe(&head))?;
    if let Some(why) = text(push, "why") {
        writeln!(console.out, "{}", safe(&why))?;
    }
    for of in items_of(push, "types") {
        let parts = ["changed", "added", "removed"].map(|key| format!("{key} {}", changed_names(of, key)));
        let bytes = |key: &str| of.get("bytes").and_then(|of| number(of, key)).map(size).unwrap_or_default();
        let short = type_name(of).unwrap_or_default();
        let line = format!("{short}: {}; {} to {}", parts.join("; "), bytes("before"), bytes("after"));
        writeln!(console.out, "{}", safe(&line))?;
    }
    for of in items_of(push, "without_evidence") {
        let (short, names) = (type_name(of).unwrap_or_default(), listed_names(of, "names", "count"));
        writeln!(
            console.out,
            "{}",
            safe(&format!("no evidence: no admitted client was sent {short} {names}"))
        )?;
    }
    for note in items_of(push, "notes").iter().filter_map(Value::as_str) {
        writeln!(console.out, "{}", safe(note))?;
    }
    if let Some(hook) = push.get("hook").filter(|hook| !hook.is_null()) {
        let word = |key: &str| text(hook, key).unwrap_or_else(|| "-".to_owned());
        let place = match number(hook, "step") {
            None | Some(0) => "before the first step".to_owned(),
            Some(step) => format!("after step {step}"),
        };
        let line = format!("hook {place}, asked {}: {}  {}", word("asked"), word("verdict"), word("reason"));
        writeln!(console.out, "{}", safe(line.trim_end_matches([' ', '-'])))?;
    }
    let mut heads = vec!["STEP", "ADMITS", "BEGAN"];
    heads.extend(CLIENTS.map(|(head, _)| head));
    let mut steps = Table::plain(&heads);
    for of in items_of(push, "way") {
        let percent = of.get("percent").and_then(Value::as_f64).map(|percent| format!("{percent}%"));
        let mut cells = vec![text(of, "step"), percent, text(of, "began")];
        cells.extend(CLIENTS.map(|(_, key)| text(of, key)));
        steps.push(cells);
    }
    steps.write(console.out, has_heads, false)?;
    let had = others(push).unwrap_or_default();
    writeln!(console.out, "others that have it: {had}")?;
    rejections(push, has_heads, console)
}

fn rejections(push: &Value, has_heads: bool, console: &mut Console<'_>) -> std::io::Result<()> {
    let all = items_of(push, "rejections");
    if all.is_empty() {
        return Ok(());
    }
    let mut table = Table::plain(&["REJECTED BY", "STREAM", "TYPE", "TEXT", "SUSPECTS"]);
    for of in all.iter().take(REJECTIONS_SHOWN) {
        let suspects: Vec<_> = items_of(of, "suspects").iter().filter_map(Value::as_str).collect();
        let words = text(of, "message").map(shortened);
        let cells = [text(of, "node"), text(of, "id"), type_name(of), words];
        table.push(cells.into_iter().chain([Some(suspects.join(", "))]));
    }
    table.write(console.out, has_heads, false)?;
    match all.len().saturating_sub(REJECTIONS_SHOWN) {
        0 => Ok(()),
        more => writeln!(console.out, "and {more} more; -o json has their words"),
    }
}

/// The contents that no push of a plan may bring.
fn condemned(plan: &Value, has_heads: bool, console: &mut Console<'_>) -> std::io::Result<()> {
    let Some(of) = plan.get("condemned") else { return Ok(()) };
    let all = items_of(of, "contents");
    if all.is_empty() {
        return Ok(());
    }
    let mut table = Table::plain(&["CONDEMNED", "NAME", "VERSION", "UNTIL", "SERVED"]);
    for of in all.iter().take(CONDEMNED_SHOWN) {
        let is_served = of.get("served").and_then(Value::as_bool).unwrap_or(false);
        let served = if is_served { "to all clients of a unit" } else { "no" };
        let cells = [type_name(of), text(of, "name"), version(of, "version"), text(of, "until")];
        table.push(cells.into_iter().chain([Some(served.to_owned())]));
    }
    table.write(console.out, has_heads, false)?;
    let count = number(of, "count").and_then(|count| usize::try_from(count).ok()).unwrap_or(all.len());
    match count.saturating_sub(CONDEMNED_SHOWN) {
        0 => Ok(()),
        more => writeln!(console.out, "and {more} more; -o json has the latest hundred"),
    }
}

/// The begin of a long text: the columns of all lines would be as wide.
fn shortened(words: String) -> String {
    match words.char_indices().nth(WORDS_MAX) {
        Some((end, _)) => format!("{}… (-o json has all)", &words[..end]),
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn push() -> Value {
        json!({
            "plan": "edge", "push": 41, "state": "halted", "outcome": null, "began": "2026-11-19T16:53:21.000Z",
            "seconds": null, "step": 1, "steps": 4, "resources": 22, "clients": 12, "accepted": 10, "pending": 0,
            "rejected": 2, "silent": 0, "lost": 0, "others": {"accepted": 4988, "rejected": 1, "pending": 3},
            "why": "would have halted push 41 after 400ms and 12 clients; 4989 more had it: no",
            "types": [{"type": "a.B", "changed": ["main"], "added": [], "removed": [], "changed_count": 21,
                "bytes": {"before": 2048, "after": 4096}}],
            "notes": ["a note"],
            "way": [{"step": 1, "percent": 1.0, "began": "t", "clients": 12, "accepted": 10, "pending": 0, "rejected": 2,
                "silent": 0, "lost": 0}],
            "rejections": [{"node": "e\u{1b}[2J", "id": 71, "type": "a.B", "message": "no", "suspects": ["main"]}],
        })
    }

    #[test]
    fn wav_19_a_push_tells_its_verdict_its_steps_and_the_words_of_clients() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console { out: &mut out, err: &mut err, is_terminal: false, has_colour: false };
        describe(&push(), true, &mut console).unwrap();
        let expected = "\
push 41 of plan edge  halted  began 2026-11-19T16:53:21.000Z
would have halted push 41 after 400ms and 12 clients; 4989 more had it: no
B: changed main and 20 more; added none; removed none; 2.0KiB to 4.0KiB
a note
STEP  ADMITS  BEGAN  CLIENTS  ACCEPTED  PENDING  REJECTED  SILENT  LOST
1     1%      t      12       10        0        2         0       0
others that have it: 4989
REJECTED BY  STREAM  TYPE  TEXT  SUSPECTS
e\\u{1b}[2J   71      B     no    main
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn qua_5_a_plan_tells_the_contents_that_no_push_may_bring() {
        let content = |name: &str, served: bool| json!({"type": "a.B", "name": name, "version": "0123456789abcdef0123456789abcdef", "until": "t", "served": served});
        let plan = json!({"condemned": {"count": 23, "contents": [content("e\u{1b}[2J", true), content("main", false)]}});
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console { out: &mut out, err: &mut err, is_terminal: false, has_colour: false };
        condemned(&plan, true, &mut console).unwrap();
        condemned(&json!({"condemned": {"count": 0, "contents": []}}), true, &mut console).unwrap();
        let expected = "\
CONDEMNED  NAME        VERSION   UNTIL  SERVED
B          e\\u{1b}[2J  01234567  t      to all clients of a unit
B          main        01234567  t      no
and 3 more; -o json has the latest hundred
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn wav_19_long_words_of_a_client_widen_no_table() {
        assert_eq!(shortened("ü".repeat(200)), "ü".repeat(200));
        assert_eq!(shortened("ü".repeat(5_000)), format!("{}… (-o json has all)", "ü".repeat(200)));
    }

    #[test]
    fn wav_19_a_plan_between_two_pushes_names_the_last_one() {
        assert_eq!(
            between(&json!({"name": "edge", "state": "open", "pushes": [4, 3], "latest": null})),
            "edge: open; push 4 is over: `sluice rollout history edge 4` has it in full"
        );
        assert_eq!(
            between(&json!({"name": "edge", "state": "gathering", "pushes": []})),
            "edge: gathering; no push yet"
        );
    }

    #[test]
    fn wav_19_the_history_is_a_line_for_each_push() {
        let mut out = Vec::new();
        history_table(&[push()], false).write(&mut out, true, false).unwrap();
        let expected = "\
PLAN  PUSH  OUTCOME  BEGAN                     TOOK  STEP  RESOURCES  CLIENTS  ACCEPTED  PENDING  REJECTED  SILENT  \
LOST  OTHERS  WHY
edge  41    halted   2026-11-19T16:53:21.000Z  -     1/4   22         12       10        0        2         0       \
0     4989    would have halted push 41 after 400ms and 12 clients; 4989 more had it: no
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        assert_eq!(names(&push()), ["edge/41"]);
    }
}
