//! `sluice rollout`: the plans for pushes, and what they say about each push.

use std::io;

use clap::Subcommand;
use http::Method;
use serde::de::DeserializeOwned;
use sluice_admin_api::endpoints::Endpoint;
use sluice_admin_api::lists::Listed;
use sluice_admin_api::parameters::{PageParameters, Parameters};
use sluice_admin_api::rollouts::{
    CondemnedList, Counts, Growth, PlanState, Push, PushRejection, WholePlan, WholePush,
};

use super::address::Target;
use super::answer::{self, Forms, RelayAnswers};
use super::arguments::{RelayArguments, Show};
use super::change;
use super::console::Console;
use super::list::view::{ROLLOUTS, step};
use super::list::{self, List, path, take_items};
use super::order::{self, RolloutOrder};
use super::outcome::{Failure, Outcome};
use super::relays::Relays;
use super::request::{Caller, Missing};
use super::table::{Table, bounded_names, joined, shown, span, type_name, version};
use super::text::{safe, short_type};
use super::typed::Typed;
use sluice_text::{encoded, size};

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
        reach: RelayArguments,
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
        reach: RelayArguments,
    },
    #[command(flatten)]
    RolloutOrder(RolloutOrder),
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
            let list = List::of_all(&ROLLOUTS);
            list::show(&relays, &list, show, console).await
        }
        Rollout::Status { plan: Some(plan), show, reach } => {
            let target = Endpoint::Rollout.path_of(&[&encoded(&plan)]);
            whole(&target, plan_names, describe_plan, show, &reach, console).await
        }
        Rollout::History { plan: Some(plan), push: Some(push), show, reach } => {
            let target = Endpoint::Push.path_of(&[&encoded(&plan), &push.to_string()]);
            whole(&target, push_names, describe_push, show, &reach, console).await
        }
        Rollout::RolloutOrder(order) => order::run(order, console).await,
        Rollout::History { plan, show, reach, .. } => history(plan.as_deref(), show, &reach, console).await,
    }
}

/// Writes an answer for people, with or without heads of tables.
type Describe<T> = fn(&T, bool, &mut Console<'_>) -> io::Result<()>;

/// An answer with a push in full.
async fn whole<T: DeserializeOwned>(
    target: &str,
    names: fn(&T) -> Vec<String>,
    describe: Describe<T>,
    show: Show,
    reach: &RelayArguments,
    console: &mut Console<'_>,
) -> Result<Outcome, Failure> {
    let relays = Relays::new(reach).await?;
    let ask = async |console: &mut Console<'_>| {
        let answers = relays.typed(&Method::GET, target).await;
        let outcome = answers.report(console.err)?;
        Ok(RelayAnswers { items: answers.values().collect(), outcome })
    };
    let table = |items: &[Typed<T>], _: bool, console: &mut Console<'_>| {
        for item in items {
            if relays.are_several() {
                writeln!(console.out, "at {}:", safe(&item.relay))?;
            }
            describe(&item.value, !show.no_headers, console)?;
        }
        Ok(())
    };
    answer::show(show, console, &Forms { key: Some("relays"), table: &table, names }, ask).await
}

fn describe_plan(plan: &WholePlan<'static>, has_heads: bool, console: &mut Console<'_>) -> io::Result<()> {
    match &plan.latest {
        Some(push) => describe_push(push, has_heads, console)?,
        None => writeln!(console.out, "{}", between(plan))?,
    }
    if let Some(ledger) = &plan.state.ledger {
        writeln!(console.out, "{}", safe(&format!("replicas: {}", ledger.text())))?;
    }
    condemned(&plan.condemned, has_heads, console)
}

/// A plan without a push under way.
fn between(plan: &WholePlan<'_>) -> String {
    let PlanState { name, state, .. } = &plan.state;
    let text = match plan.pushes.first() {
        Some(last) => {
            format!(
                "{name}: {state}; push {last} is over: `sluice rollout history {name} {last}` has it in full"
            )
        }
        None => format!("{name}: {state}; no push yet"),
    };
    safe(&text).into_owned()
}

fn plan_names(plan: &WholePlan<'static>) -> Vec<String> {
    plan.state.push.iter().map(|push| format!("{}/{push}", safe(&plan.state.name))).collect()
}

fn push_names(push: &WholePush<'static>) -> Vec<String> {
    names(&push.push)
}

fn names(push: &Push<'static>) -> Vec<String> {
    vec![format!("{}/{}", push.plan, push.push)]
}

async fn history(
    plan: Option<&str>,
    show: Show,
    reach: &RelayArguments,
    console: &mut Console<'_>,
) -> Result<Outcome, Failure> {
    let relays = Relays::new(reach).await?;
    let ask = async |console: &mut Console<'_>| {
        let answers =
            relays.all(async |caller: &Caller, relay: &Target| pushes(caller, relay, plan).await).await;
        let outcome = answers.report(console.err)?;
        Ok(RelayAnswers { items: answers.values().flatten().collect(), outcome })
    };
    let table = |items: &[Typed<Push<'static>>], _: bool, console: &mut Console<'_>| {
        history_table(items, relays.are_several()).write(console.out, !show.no_headers, false)
    };
    answer::show(show, console, &Forms { key: Some(Push::<'_>::KEY), table: &table, names }, ask).await
}

/// The pushes of one plan of a relay, or of all.
async fn pushes(
    caller: &Caller,
    relay: &Target,
    plan: Option<&str>,
) -> Result<Vec<Typed<Push<'static>>>, Missing> {
    let all = || PageParameters { limit: Some("all".to_owned()), after: None }.into_pairs();
    let plans = match plan {
        Some(plan) => vec![plan.to_owned()],
        None => {
            let mut answer = caller.json(relay, &Method::GET, &path(ROLLOUTS.endpoint.path(), all())).await?;
            let plans: Vec<Typed<PlanState<'_>>> = take_items(&mut answer, ROLLOUTS.key, relay)?;
            plans.into_iter().map(|plan| plan.value.name.into_owned()).collect()
        }
    };
    let mut pushes = Vec::new();
    for plan in plans {
        let target = path(&Endpoint::Pushes.path_of(&[&encoded(&plan)]), all());
        let mut answer = caller.json(relay, &Method::GET, &target).await?;
        pushes.extend(take_items(&mut answer, Push::<'_>::KEY, relay)?);
    }
    Ok(pushes)
}

/// The heads of the columns with the clients of a push.
const CLIENTS: [&str; 6] = ["CLIENTS", "ACCEPTED", "PENDING", "REJECTED", "SILENT", "LOST"];

/// The cells of these columns.
fn client_cells(clients: u64, admitted: &Counts) -> [Option<String>; 6] {
    let Counts { accepted, pending, rejected, silent, lost, .. } = *admitted;
    [clients, accepted, pending, rejected, silent, lost].map(shown)
}

fn history_table(pushes: &[Typed<Push<'_>>], are_several: bool) -> Table {
    let mut heads = vec!["PLAN", "PUSH", "OUTCOME", "BEGAN", "TOOK", "STEP", "RESOURCES"];
    heads.extend(CLIENTS);
    heads.extend(["OTHERS", "WHY"]);
    heads.extend(are_several.then_some("RELAY"));
    let mut table = Table::plain(&heads);
    for Typed { relay, value: push, .. } in pushes {
        let mut cells = vec![
            shown(&push.plan),
            shown(push.push),
            shown(outcome(push)),
            shown(&push.began),
            push.seconds.and_then(span),
            Some(step(push.step, push.steps, None)),
            shown(push.resources),
        ];
        cells.extend(client_cells(push.clients, &push.admitted));
        cells.extend([shown(push.others.answered()), push.why.clone()]);
        cells.extend(are_several.then(|| shown(relay)));
        table.push(cells);
    }
    table
}

/// The outcome of a push, or the state of one that is not over.
fn outcome<'a>(push: &'a Push<'_>) -> &'a str {
    push.outcome.as_ref().unwrap_or(&push.state)
}

/// A push in full.
fn describe_push(push: &WholePush<'static>, has_heads: bool, console: &mut Console<'_>) -> io::Result<()> {
    let head = &push.push;
    let line = format!("push {} of plan {}  {}  began {}", head.push, head.plan, outcome(head), head.began);
    writeln!(console.out, "{}", safe(&line))?;
    if let Some(why) = &head.why {
        writeln!(console.out, "{}", safe(why))?;
    }
    for pushed in &push.types {
        let (short, Growth { before, after }) = (short_type(&pushed.r#type), pushed.bytes);
        let line = format!("{short}: {}; {} to {}", change::names(&pushed.names), size(before), size(after));
        writeln!(console.out, "{}", safe(&line))?;
    }
    for unsent in &push.without_evidence {
        let (short, names) = (short_type(&unsent.r#type), bounded_names(&unsent.names, unsent.count));
        let line = format!("no evidence: no admitted client was sent {short} {names}");
        writeln!(console.out, "{}", safe(&line))?;
    }
    for note in &push.notes {
        writeln!(console.out, "{}", safe(note))?;
    }
    for (step, load) in push.way.iter().filter_map(|step| Some((step.step, step.load.as_ref()?))) {
        writeln!(console.out, "step {step}: {}", safe(&load.why))?;
    }
    if let Some(hook) = &push.hook {
        let place = match hook.step {
            0 => "before the first step".to_owned(),
            step => format!("after step {step}"),
        };
        let [verdict, reason] = [&hook.verdict, &hook.reason].map(|word| word.as_deref().unwrap_or("-"));
        let line = format!("hook {place}, asked {}: {verdict}  {reason}", hook.asked);
        writeln!(console.out, "{}", safe(line.trim_end_matches([' ', '-'])))?;
    }
    let mut heads = vec!["STEP", "ADMITS", "BEGAN"];
    heads.extend(CLIENTS);
    let mut steps = Table::plain(&heads);
    for step in &push.way {
        let mut cells = vec![shown(step.step), Some(format!("{}%", step.percent)), shown(&step.began)];
        cells.extend(client_cells(step.clients, &step.admitted));
        steps.push(cells);
    }
    steps.write(console.out, has_heads, false)?;
    writeln!(console.out, "others that have it: {}", head.others.answered())?;
    rejections(&push.rejections, has_heads, console)
}

fn rejections(all: &[PushRejection<'_>], has_heads: bool, console: &mut Console<'_>) -> io::Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    let mut table = Table::plain(&["REJECTED BY", "STREAM", "TYPE", "TEXT", "SUSPECTS"]);
    for rejection in all.iter().take(REJECTIONS_SHOWN) {
        table.push([
            shown(&rejection.node),
            shown(rejection.id),
            type_name(&rejection.r#type),
            Some(shortened(rejection.message.to_string())),
            Some(joined(&rejection.suspects)),
        ]);
    }
    table.write(console.out, has_heads, false)?;
    match all.len().saturating_sub(REJECTIONS_SHOWN) {
        0 => Ok(()),
        more => writeln!(console.out, "and {more} more; -o json has their words"),
    }
}

/// The contents that no push of a plan may bring.
fn condemned(list: &CondemnedList<'_>, has_heads: bool, console: &mut Console<'_>) -> io::Result<()> {
    if list.contents.is_empty() {
        return Ok(());
    }
    let mut table = Table::plain(&["CONDEMNED", "NAME", "VERSION", "UNTIL", "SERVED"]);
    for content in list.contents.iter().take(CONDEMNED_SHOWN) {
        let served = if content.served { "to all clients of a unit" } else { "no" };
        table.push([
            type_name(&content.r#type),
            shown(&content.name),
            version(Some(&content.version)),
            shown(&content.until),
            shown(served),
        ]);
    }
    table.write(console.out, has_heads, false)?;
    match list.count.max(list.contents.len()).saturating_sub(CONDEMNED_SHOWN) {
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
    use serde_json::{Value, json};

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
        describe_push(&serde_json::from_value(push()).unwrap(), true, &mut console).unwrap();
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
        let contents = [content("e\u{1b}[2J", true), content("main", false)];
        let all = serde_json::from_value(json!({"count": 23, "contents": contents})).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console { out: &mut out, err: &mut err, is_terminal: false, has_colour: false };
        condemned(&all, true, &mut console).unwrap();
        condemned(&CondemnedList::default(), true, &mut console).unwrap();
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
        let read = |json: Value| serde_json::from_value::<WholePlan>(json).unwrap();
        assert_eq!(
            between(&read(json!({"name": "edge", "state": "open", "pushes": [4, 3], "latest": null}))),
            "edge: open; push 4 is over: `sluice rollout history edge 4` has it in full"
        );
        assert_eq!(
            between(&read(json!({"name": "edge", "state": "gathering", "pushes": []}))),
            "edge: gathering; no push yet"
        );
    }

    #[test]
    fn wav_19_the_history_is_a_line_for_each_push() {
        let mut out = Vec::new();
        let push = Typed::new(push(), "r").unwrap();
        history_table(std::slice::from_ref(&push), false).write(&mut out, true, false).unwrap();
        let expected = "\
PLAN  PUSH  OUTCOME  BEGAN                     TOOK  STEP  RESOURCES  CLIENTS  ACCEPTED  PENDING  REJECTED  SILENT  \
LOST  OTHERS  WHY
edge  41    halted   2026-11-19T16:53:21.000Z  -     1/4   22         12       10        0        2         0       \
0     4989    would have halted push 41 after 400ms and 12 clients; 4989 more had it: no
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        assert_eq!(names(&push.value), ["edge/41"]);
    }
}
