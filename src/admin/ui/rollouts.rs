//! The pages of plans and pushes: the endpoints `/rollouts` and below.

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use sluice_admin_api::rollouts::Pinned;

use super::events::{EventRow, latest};
use super::frame::{Ask, Frame, PageFault};
use super::parts::{Classes, Mark, Shape, ShellCommand};
use super::plot::StateBar;
use super::text::{count, counted};
use crate::admin::item::rfc_3339;
use crate::admin::rollouts::{find, find_push, frozen_until, is_order, of_plan, pinned, shared_plan};
use crate::driver::api::rollouts::RolloutStatus;
use crate::telemetry::events::Event;
use crate::telemetry::rollouts::{content, hook_note, load_notes, note_text, percent, stands, why};
use sluice_engine::Time;
use sluice_engine::change::NameList;
use sluice_fleet::evidence::Content;
use sluice_fleet::rollout::push::{Growth, TypePush};
use sluice_fleet::rollout::report::{Outcome, StepReport};
use sluice_fleet::rollout::tally::Rejection;
use sluice_fleet::rollout::{Counts, Mode, PushReport, RolloutState, UnitId};
use sluice_text::{encoded, size, span};
use sluice_xds::{ResourceName, TypeUrl};

#[derive(Template)]
#[template(path = "rollouts.html")]
struct RolloutsPage {
    frame: Frame,
    plans: Vec<PlanRow>,
}

struct PlanRow {
    name: String,
    mode: &'static str,
    state: Mark,
    push: Option<u64>,
    step: String,
    units: String,
    admitted: StateBar,
    others: StateBar,
    waiting: String,
    /// The verdict, and the orders in force.
    says: Vec<String>,
}

#[derive(Template)]
#[template(path = "rollout.html")]
struct PushPage {
    frame: Frame,
    plan: String,
    state: Mark,
    /// The colour of the banner.
    look: &'static str,
    /// The plan holds pushes back.
    enforces: bool,
    /// `None`: no push is under way.
    push: Option<Push>,
    /// The orders in force, and the commands that fit the state. None for a push of the past.
    stands: Vec<String>,
    commands: Vec<ShellCommand>,
    /// Units whose changes wait for the next push, each with its reason.
    waits: Vec<(&'static str, UnitRow)>,
    /// The orders of operators to the plan, the latest first.
    orders: Vec<EventRow>,
    past: Vec<PastRow>,
}

/// The latest orders on the page.
const ORDERS_MAX: usize = 20;

struct Push {
    number: u64,
    why: String,
    admitted: StateBar,
    others: StateBar,
    /// Affected clients that are not admitted.
    outside: String,
    steps: Vec<StepRow>,
    types: Vec<RolloutTypeRow>,
    rejections: Vec<RolloutWords>,
    suspects: Vec<(String, String)>,
    notes: Vec<String>,
    units: Vec<UnitRow>,
    facts: Vec<(&'static str, String)>,
}

struct StepRow {
    number: u8,
    percent: String,
    began: String,
    took: String,
    /// `None`: the step has not begun.
    bar: Option<StateBar>,
}

struct RolloutTypeRow {
    name: String,
    lists: Vec<Names>,
    bytes: String,
}

/// A kind of change, names with their addresses, and the number of names left out.
type Names = (&'static str, Vec<(String, String)>, usize);

/// The clients with one text.
struct RolloutWords {
    text: String,
    count: usize,
    clients: Vec<(u64, String)>,
    more: usize,
}

/// Condemned contents with a line each.
const CONDEMNED_SHOWN: usize = 10;

/// Clients with a link below each text.
const CLIENTS_MAX: usize = 10;

struct UnitRow {
    server: String,
    list: String,
    class: Classes,
    is_blamed: bool,
}

struct PastRow {
    link: String,
    number: u64,
    outcome: Mark,
    began: String,
    bar: StateBar,
    why: String,
}

pub(super) fn html(ask: &Ask<'_>) -> Result<String, PageFault> {
    let plans = ask.admin.relay.rollouts();
    let plans = plans.iter().map(|plan| plan_row(plan)).collect();
    Ok(RolloutsPage { frame: Frame::new(ask, "rollouts", "Rollouts"), plans }.render()?)
}

fn plan_row(plan: &RolloutStatus) -> PlanRow {
    let push = plan.report.push.as_deref();
    let counts = push.map(|push| (push.admitted, push.others)).unwrap_or_default();
    PlanRow {
        name: plan.plan.name.to_string(),
        mode: plan.plan.mode.name(),
        state: mark(plan.report.state),
        push: push.map(|push| push.number),
        step: push.map(step).unwrap_or_default(),
        units: count(plan.units.len()),
        admitted: bar(counts.0),
        others: bar(counts.1),
        waiting: count(plan.report.waiting.len()),
        says: push.and_then(why).into_iter().chain(stands(&plan.report)).collect(),
    }
}

/// The step that a push has reached: `2 of 4, 10 %`.
fn step(push: &PushReport) -> String {
    let reached = push.steps.last();
    reached.map_or_else(
        || "none".to_owned(),
        |step| format!("{} of {}, {} %", step.number, push.step_count, percent(step.threshold)),
    )
}

fn mark(state: RolloutState) -> Mark {
    let look = match state {
        RolloutState::Open | RolloutState::Settling => Shape::Good,
        RolloutState::Gathering | RolloutState::Waving => Shape::None,
        RolloutState::Paused | RolloutState::Pinned | RolloutState::Frozen => Shape::Late,
        RolloutState::Halted => Shape::Bad,
    };
    Mark { look, word: state.name(), why: None }
}

fn outcome(push: &PushReport) -> Mark {
    let Some(end) = push.end else { return mark(push.state) };
    let look = match end.outcome {
        Outcome::Finished | Outcome::Restored => Shape::Good,
        Outcome::Unjudged | Outcome::Abandoned | Outcome::Withdrawn => Shape::None,
        Outcome::Paused => Shape::Late,
        Outcome::Halted => Shape::Bad,
    };
    Mark { look, word: end.outcome.name(), why: None }
}

/// Clients by their standing. Unaffected ones are no part of the bar.
fn bar(counts: Counts) -> StateBar {
    let rejected = counts.rejected + counts.rejected_again;
    StateBar::new([
        ("good", counts.accepted as usize, "accepted"),
        ("late", counts.pending as usize, "pending"),
        ("late", counts.silent as usize, "silent"),
        ("bad", rejected as usize, "rejected"),
        ("bad", counts.lost as usize, "lost"),
        ("none", counts.overtaken as usize, "overtaken"),
    ])
}

pub(super) fn plan(ask: &Ask<'_>, name: &str) -> Result<String, PageFault> {
    let status = find(&ask.admin.relay.rollouts(), name).map_err(PageFault::not_found)?;
    let push = status.report.push.clone();
    page(ask, &status, push.as_deref(), format!("Plan {name}"))
}

pub(super) fn push(ask: &Ask<'_>, name: &str, number: &str) -> Result<String, PageFault> {
    let status = find(&ask.admin.relay.rollouts(), name).map_err(PageFault::not_found)?;
    let push = find_push(&status, number).map_err(PageFault::not_found)?;
    page(ask, &status, Some(&push), format!("Push {number} of plan {name}"))
}

fn page(
    ask: &Ask<'_>,
    status: &RolloutStatus,
    push: Option<&PushReport>,
    title: String,
) -> Result<String, PageFault> {
    let shown = push.map(|push| push.number);
    let others = of_plan(status).filter(|push| Some(push.number) != shown);
    let is_past = push.is_some_and(|push| push.end.is_some());
    let name = &*status.plan.name;
    let of_plan_alone = |event: &Event| event.first.plan.as_deref() == Some(name) && is_order(&event.first);
    let mut orders = latest(ask, of_plan_alone);
    orders.truncate(ORDERS_MAX);
    let state = push.map_or_else(|| mark(status.report.state), outcome);
    let page = PushPage {
        frame: Frame::new(ask, "rollouts", title),
        plan: name.to_owned(),
        look: look(&state, push),
        state,
        enforces: push.map_or(status.plan.mode, |push| push.mode) == Mode::Enforce,
        push: push.map(|push| whole(status, push)),
        stands: if is_past { Vec::new() } else { standing(ask, status) },
        commands: if is_past { Vec::new() } else { commands(status) },
        waits: if is_past { Vec::new() } else { waits(status) },
        orders,
        past: others.map(|push| past_row(status, push)).collect(),
    };
    Ok(page.render()?)
}

/// A verdict colours the banner, and else the state.
fn look(state: &Mark, push: Option<&PushReport>) -> &'static str {
    match push.and_then(why) {
        Some(_) => Shape::Bad.class(),
        None => state.look.class(),
    }
}

/// The orders in force, with their ends.
fn standing(ask: &Ask<'_>, status: &RolloutStatus) -> Vec<String> {
    if status.plan.mode == Mode::Observe {
        let is_frozen = ask.admin.relay.rollouts().iter().any(|plan| plan.report.frozen_until.is_some());
        let text = "Other plans are frozen. This plan observes: its pushes go on to all clients.";
        return is_frozen.then(|| text.to_owned()).into_iter().collect();
    }
    let pinned = pinned(status).map(|pin| pin_text(&pin));
    let frozen =
        frozen_until(status).map(|until| format!("Frozen until {until}: no push begins, and none goes on."));
    let full = status.report.is_full.then(|| {
        "No push begins: the contents that clients are served in the place of newer ones take more than \
         limits.held_bytes."
            .to_owned()
    });
    let lost = status.report.waits_for_server.then(|| "No push begins: a server cannot be heard.".to_owned());
    let unproved = (status.unproved > 0).then(|| {
        format!(
            "Unproved: {} with content that all clients were given without a judgement.",
            counted(status.unproved, "unit")
        )
    });
    let diverged = (!status.diverged.is_empty()).then(|| {
        format!(
            "Diverged: {} that came after the pin, with the newest content.",
            counted(status.diverged.len(), "unit")
        )
    });
    let replicas = shared_plan(status).map(|shared| format!("Replicas: {}.", shared.text()));
    let orders = [pinned, diverged, frozen, full, lost, unproved, replicas].into_iter().flatten();
    orders.chain(all_condemned(status)).collect()
}

/// The pin in a sentence.
fn pin_text(pin: &Pinned) -> String {
    let until = match pin.until.as_str() {
        "next_push" => "until the control plane changes something",
        "unpin" => "until `unpin`",
        time => return format!("Pinned: all clients are served release {} until {time}.", pin.release),
    };
    format!("Pinned: all clients are served release {} {until}.", pin.release)
}

/// The contents that no push may bring, the latest first, bounded.
fn all_condemned(status: &RolloutStatus) -> Vec<String> {
    let sentence = |end: Time, content: &Content| {
        let (type_url, name, version) = content;
        let served = match status.condemned_served.contains(content) {
            true => "; all clients of a unit are served it",
            false => "",
        };
        let (short, until) = (type_url.short(), rfc_3339(status.wall(end)));
        let version: String = version.to_string().chars().take(8).collect();
        format!("Condemned: {short} {name}, version {version}, until {until}: no push may bring it{served}.")
    };
    let latest = status.condemned.latest_first().take(CONDEMNED_SHOWN);
    let shown = latest.map(|(end, content)| sentence(*end, content));
    let more = status.condemned.len().saturating_sub(CONDEMNED_SHOWN);
    shown.chain((more > 0).then(|| format!("Condemned: {more} more."))).collect()
}

/// The commands that the state of a plan allows.
fn commands(status: &RolloutStatus) -> Vec<ShellCommand> {
    if status.plan.mode == Mode::Observe {
        return Vec::new();
    }
    let plan = &status.plan.name;
    let words: &[&str] = match (status.report.state, &status.report.push) {
        (RolloutState::Waving | RolloutState::Settling, Some(_)) => &["pause", "promote", "abort"],
        (RolloutState::Paused, Some(_)) => &["resume", "promote", "abort"],
        (RolloutState::Halted, Some(_)) => &["promote"],
        _ => &[],
    };
    let number = status.report.push.as_ref().map(|push| push.number).unwrap_or_default();
    let step = |word: &str| if word == "promote" { next_step(status) } else { String::new() };
    let of_push =
        words.iter().map(|word| format!("sluice rollout {word} {plan} --push {number}{}", step(word)));
    let unpin = status.report.pin.map(|_| format!("sluice rollout unpin {plan}"));
    let unfreeze = status.report.frozen_until.map(|_| "sluice rollout unfreeze".to_owned());
    of_push.chain(unpin).chain(unfreeze).map(ShellCommand).collect()
}

/// The argument of a promotion that goes on by one step. A halted push begins anew without.
fn next_step(status: &RolloutStatus) -> String {
    let push = status.report.push.as_ref().filter(|push| push.state != RolloutState::Halted);
    push.map_or_else(String::new, |push| match push.next_step() < push.step_count {
        true => format!(" --step {}", push.next_step()),
        false => " --all".to_owned(),
    })
}

/// The units that wait behind the push, or without the others.
fn waits(status: &RolloutStatus) -> Vec<(&'static str, UnitRow)> {
    let barred = &status.report.barred;
    let waiting = status.report.waiting.iter().filter(|unit| !barred.contains(unit));
    let reason = |unit| if status.report.left_out.contains(unit) { "server lost" } else { "changed since" };
    let rows = waiting.map(|unit| (reason(unit), unit)).chain(barred.iter().map(|unit| ("barred", unit)));
    rows.filter_map(|(reason, unit)| Some((reason, unit_row(status, *unit, false)?))).collect()
}

fn unit_row(status: &RolloutStatus, unit: UnitId, is_blamed: bool) -> Option<UnitRow> {
    let unit_status = status.units.get(&unit)?;
    let class = Classes::of(&unit_status.class.digest);
    Some(UnitRow {
        server: unit_status.server.to_string(),
        list: unit_status.list.to_string(),
        class,
        is_blamed,
    })
}

fn past_row(status: &RolloutStatus, push: &Arc<PushReport>) -> PastRow {
    PastRow {
        link: format!("/ui/rollouts/{}/{}", encoded(&status.plan.name), push.number),
        number: push.number,
        outcome: outcome(push),
        began: rfc_3339(status.wall(push.began)),
        bar: bar(push.admitted + push.others),
        why: why(push).unwrap_or_default(),
    }
}

/// The steps of a push in order: those that have begun, and those to come.
fn steps(status: &RolloutStatus, push: &PushReport) -> Vec<StepRow> {
    let begun = |step: &StepReport| StepRow {
        number: step.number,
        percent: format!("{} %", percent(step.threshold)),
        began: rfc_3339(status.wall(step.began)),
        took: step.ended.map_or_else(|| "under way".to_owned(), |ended| span(ended.since(step.began))),
        bar: Some(bar(step.admitted)),
    };
    let reached = push.reached();
    let left = if push.end.is_some() { "not reached" } else { "to come" };
    let to_come = |number: u8| StepRow {
        number,
        percent: planned_percent(status, number),
        began: String::new(),
        took: left.to_owned(),
        bar: None,
    };
    push.steps.iter().map(begun).chain((reached + 1..=push.step_count).map(to_come)).collect()
}

/// The clients of a step that has not begun, by the plan in force.
fn planned_percent(status: &RolloutStatus, number: u8) -> String {
    let Some(step) = status.plan.steps.get(usize::from(number).saturating_sub(1)) else {
        return "100 %".to_owned();
    };
    match (&step.clients, step.threshold) {
        (Some(_), 0) => "by labels".to_owned(),
        (_, threshold) => format!("{} %", percent(threshold)),
    }
}

fn notes(push: &PushReport) -> Vec<String> {
    let condemned = push.condemned.iter().map(condemned);
    let unsent = push.without_evidence.iter().map(|(type_url, list)| without_evidence(type_url, list));
    let notes = push.notes.iter().map(note_text).chain(load_notes(push));
    notes.chain(unsent).chain(hook_note(push)).chain(condemned).collect()
}

/// The resources of a type that no admitted client was sent (WAV-14).
fn without_evidence(type_url: &TypeUrl, list: &NameList) -> String {
    let names: Vec<_> = list.names.iter().map(ResourceName::as_str).collect();
    let more = match list.count.saturating_sub(names.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("no evidence: no admitted client was sent {} {}{more}", type_url.short(), names.join(", "))
}

fn whole(status: &RolloutStatus, push: &PushReport) -> Push {
    let units = push.units.iter().filter_map(|unit| unit_row(status, *unit, push.blamed.contains(unit)));
    Push {
        number: push.number,
        why: why(push).unwrap_or_default(),
        admitted: bar(push.admitted),
        others: bar(push.others),
        outside: count(push.others.affected()),
        steps: steps(status, push),
        types: push.types.iter().map(type_row).collect(),
        rejections: words(&push.rejections),
        suspects: suspects(&push.rejections),
        notes: notes(push),
        units: units.collect(),
        facts: facts(status, push),
    }
}

fn condemned(suspect: &Content) -> String {
    format!("{} is condemned: a later push with it halts before its first client", content(suspect))
}

fn facts(status: &RolloutStatus, push: &PushReport) -> Vec<(&'static str, String)> {
    let wall = |time: Time| rfc_3339(status.wall(time));
    let affected = push.admitted + push.others;
    let mut facts = vec![
        ("First change", wall(push.gathered_from)),
        ("Began", wall(push.began)),
        ("Step", step(push)),
        ("Resources", count(push.resources())),
        ("Affected clients", count(affected.affected())),
        ("Not affected", count(affected.unaffected)),
    ];
    facts.extend(push.end.map(|end| ("Over", wall(end.at))));
    if affected.departed > 0 {
        facts.push(("Accepted, and gone since", count(affected.departed)));
    }
    if affected.unjudged > 0 {
        facts.push(("Relays, not judged", count(affected.unjudged)));
    }
    facts
}

fn type_row(pushed: &TypePush) -> RolloutTypeRow {
    let short = pushed.type_url.short();
    let named = |list: &NameList| {
        let link = |name: &str| format!("/ui/resource?type={}&name={}", encoded(short), encoded(name));
        list.names.iter().map(|name| (name.as_str().to_owned(), link(name.as_str()))).collect::<Vec<_>>()
    };
    let lists = [("Added", &pushed.added), ("Changed", &pushed.changed), ("Removed", &pushed.removed)];
    let lists = lists.into_iter().filter(|(_, list)| list.count > 0);
    let Growth { before, after } = pushed.bytes;
    RolloutTypeRow {
        name: short.to_owned(),
        lists: lists
            .map(|(label, list)| (label, named(list), list.count.saturating_sub(list.names.len())))
            .collect(),
        bytes: format!("{} → {}", size(before), size(after)),
    }
}

/// The rejections by their words, the most frequent first.
fn words(rejections: &[Rejection]) -> Vec<RolloutWords> {
    let mut by_text: BTreeMap<&str, Vec<&Rejection>> = BTreeMap::new();
    for rejection in rejections {
        by_text.entry(&rejection.words).or_default().push(rejection);
    }
    let mut by_text: Vec<_> = by_text.into_iter().collect();
    by_text.sort_by_key(|(_, all)| std::cmp::Reverse(all.len()));
    let shown = |text: &str, all: Vec<&Rejection>| RolloutWords {
        text: text.to_owned(),
        count: all.len(),
        clients: all
            .iter()
            .take(CLIENTS_MAX)
            .map(|rejection| (rejection.stream, rejection.node.to_string()))
            .collect(),
        more: all.len().saturating_sub(CLIENTS_MAX),
    };
    by_text.into_iter().map(|(text, all)| shown(text, all)).collect()
}

/// The suspects of all rejections, with the addresses of their pages.
fn suspects(rejections: &[Rejection]) -> Vec<(String, String)> {
    let mut suspects = BTreeMap::new();
    for rejection in rejections {
        let short = rejection.type_url.short();
        for (name, _) in &rejection.suspects {
            let link = format!("/ui/resource?type={}&name={}", encoded(short), encoded(name.as_str()));
            suspects.insert(format!("{short} {}", name.as_str()), link);
        }
    }
    suspects.into_iter().collect()
}
