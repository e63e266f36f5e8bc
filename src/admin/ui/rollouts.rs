//! The pages of plans and pushes: the endpoints `/rollouts` and below.

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;

use super::frame::{Ask, Fault, Frame};
use super::parts::{Classes, Look, Mark};
use super::plot::Bar;
use super::text::{count, counted};
use crate::admin::item::rfc_3339;
use crate::admin::rollouts::{find, find_push, of_plan, plan_state, step_percent};
use crate::driver::api::rollouts::RolloutStatus;
use crate::engine::Time;
use crate::engine::change::NameList;
use crate::engine::rollout::push::{Growth, TypePush};
use crate::engine::rollout::report::{Outcome, StepReport};
use crate::engine::rollout::tally::Rejection;
use crate::engine::rollout::{Counts, PushReport, RolloutState};
use crate::telemetry::rollouts::{content, note_text, why};
use crate::text::{encoded, size, span};

#[derive(Template)]
#[template(path = "rollouts.html")]
struct Page {
    frame: Frame,
    plans: Vec<PlanRow>,
}

struct PlanRow {
    name: String,
    state: Mark,
    push: Option<u64>,
    step: String,
    units: String,
    admitted: Bar,
    others: Bar,
    waiting: String,
    why: String,
}

#[derive(Template)]
#[template(path = "rollout.html")]
struct PushPage {
    frame: Frame,
    plan: String,
    state: Mark,
    /// `None`: no push is under way.
    push: Option<Push>,
    /// Units whose changes wait for the next push.
    waiting: Option<String>,
    past: Vec<PastRow>,
}

struct Push {
    number: u64,
    why: String,
    admitted: Bar,
    others: Bar,
    steps: Vec<StepRow>,
    types: Vec<TypeRow>,
    rejections: Vec<Words>,
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
    bar: Bar,
}

struct TypeRow {
    name: String,
    lists: Vec<Names>,
    bytes: String,
}

/// A kind of change, names with their addresses, and the number of names left out.
type Names = (&'static str, Vec<(String, String)>, usize);

/// The clients with one text.
struct Words {
    text: String,
    count: usize,
    clients: Vec<(u64, String)>,
    more: usize,
}

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
    bar: Bar,
    why: String,
}

pub(super) fn html(ask: &Ask<'_>) -> Result<String, Fault> {
    let plans = ask.admin.relay.rollouts();
    let plans = plans.iter().map(|of| plan_row(of)).collect();
    Ok(Page { frame: Frame::new(ask, "rollouts", "Rollouts"), plans }.render()?)
}

fn plan_row(of: &RolloutStatus) -> PlanRow {
    let push = of.report.push.as_deref();
    let counts = push.map(|push| (push.admitted, push.others)).unwrap_or_default();
    PlanRow {
        name: of.plan.name.to_string(),
        state: mark(plan_state(of)),
        push: push.map(|push| push.number),
        step: push.map(step).unwrap_or_default(),
        units: count(of.units.len()),
        admitted: bar(counts.0),
        others: bar(counts.1),
        waiting: count(of.report.waiting.len()),
        why: push.and_then(why).unwrap_or_default(),
    }
}

/// The step that a push has reached: `2 of 4, 10 %`.
fn step(push: &PushReport) -> String {
    let reached = push.steps.last();
    reached.map_or_else(
        || "none".to_owned(),
        |step| format!("{} of {}, {} %", step.number, push.step_count, step_percent(step)),
    )
}

fn mark(state: RolloutState) -> Mark {
    let look = match state {
        RolloutState::Open | RolloutState::Settling => Look::Good,
        RolloutState::Gathering | RolloutState::Waving => Look::None,
        RolloutState::Paused | RolloutState::Pinned | RolloutState::Frozen => Look::Late,
        RolloutState::Halted => Look::Bad,
    };
    Mark { look, word: state.name(), why: None }
}

fn outcome(push: &PushReport) -> Mark {
    let Some(end) = push.end else { return mark(push.state) };
    let look = match end.outcome {
        Outcome::Finished | Outcome::Restored => Look::Good,
        Outcome::Unjudged | Outcome::Abandoned | Outcome::Withdrawn => Look::None,
        Outcome::Paused => Look::Late,
        Outcome::Halted => Look::Bad,
    };
    Mark { look, word: end.outcome.name(), why: None }
}

/// Clients by their standing. Unaffected ones are no part of the bar.
fn bar(of: Counts) -> Bar {
    let rejected = of.rejected + of.rejected_again;
    Bar::of([
        ("good", of.accepted as usize, "accepted"),
        ("late", of.pending as usize, "pending"),
        ("late", of.silent as usize, "silent"),
        ("bad", rejected as usize, "rejected"),
        ("bad", of.lost as usize, "lost"),
        ("none", of.overtaken as usize, "overtaken"),
    ])
}

pub(super) fn plan(ask: &Ask<'_>, name: &str) -> Result<String, Fault> {
    let status = find(&ask.admin.relay.rollouts(), name).map_err(Fault::not_found)?;
    let push = status.report.push.clone();
    page(ask, &status, push.as_deref(), format!("Plan {name}"))
}

pub(super) fn push(ask: &Ask<'_>, name: &str, number: &str) -> Result<String, Fault> {
    let status = find(&ask.admin.relay.rollouts(), name).map_err(Fault::not_found)?;
    let push = find_push(&status, number).map_err(Fault::not_found)?;
    page(ask, &status, Some(&push), format!("Push {number} of plan {name}"))
}

fn page(
    ask: &Ask<'_>,
    status: &RolloutStatus,
    push: Option<&PushReport>,
    title: String,
) -> Result<String, Fault> {
    let shown = push.map(|push| push.number);
    let others = of_plan(status).filter(|push| Some(push.number) != shown);
    let page = PushPage {
        frame: Frame::new(ask, "rollouts", title),
        plan: status.plan.name.to_string(),
        state: push.map_or_else(|| mark(plan_state(status)), outcome),
        push: push.map(|push| whole(status, push)),
        waiting: Some(status.report.waiting.len()).filter(|of| *of > 0).map(|of| counted(of, "unit")),
        past: others.map(|push| past_row(status, push)).collect(),
    };
    Ok(page.render()?)
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

fn whole(status: &RolloutStatus, push: &PushReport) -> Push {
    let wall = |time: Time| rfc_3339(status.wall(time));
    let step_row = |of: &StepReport| StepRow {
        number: of.number,
        percent: format!("{} %", step_percent(of)),
        began: wall(of.began),
        took: of.ended.map(|ended| span(ended.since(of.began))).unwrap_or_default(),
        bar: bar(of.admitted),
    };
    let unit_row = |id| {
        let of = status.units.get(id)?;
        Some(UnitRow {
            server: of.server.to_string(),
            list: of.list.to_string(),
            class: Classes::of(&of.class.digest),
            is_blamed: push.blamed.contains(id),
        })
    };
    Push {
        number: push.number,
        why: why(push).unwrap_or_default(),
        admitted: bar(push.admitted),
        others: bar(push.others),
        steps: push.steps.iter().map(step_row).collect(),
        types: push.types.iter().map(type_row).collect(),
        rejections: words(&push.rejections),
        suspects: suspects(&push.rejections),
        notes: push.notes.iter().map(note_text).chain(push.condemned.iter().map(condemned)).collect(),
        units: push.units.iter().filter_map(unit_row).collect(),
        facts: facts(status, push),
    }
}

fn condemned(of: &crate::engine::rollout::push::Condemned) -> String {
    format!("{} is condemned: a later push with it halts before its first client", content(of))
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
    if affected.unjudged > 0 {
        facts.push(("Relays, not judged", count(affected.unjudged)));
    }
    facts
}

fn type_row(of: &TypePush) -> TypeRow {
    let short = of.type_url.short();
    let named = |list: &NameList| {
        let link = |name: &str| format!("/ui/resource?type={}&name={}", encoded(short), encoded(name));
        list.names.iter().map(|name| (name.as_str().to_owned(), link(name.as_str()))).collect::<Vec<_>>()
    };
    let lists = [("Added", &of.added), ("Changed", &of.changed), ("Removed", &of.removed)];
    let lists = lists.into_iter().filter(|(_, list)| list.count > 0);
    let Growth { before, after } = of.bytes;
    TypeRow {
        name: short.to_owned(),
        lists: lists
            .map(|(label, list)| (label, named(list), list.count.saturating_sub(list.names.len())))
            .collect(),
        bytes: format!("{} → {}", size(before), size(after)),
    }
}

/// The rejections by their words, the most frequent first.
fn words(rejections: &[Rejection]) -> Vec<Words> {
    let mut found: BTreeMap<&str, Vec<&Rejection>> = BTreeMap::new();
    for of in rejections {
        found.entry(&of.words).or_default().push(of);
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by_key(|(_, all)| std::cmp::Reverse(all.len()));
    let shown = |(text, all): (&str, Vec<&Rejection>)| Words {
        text: text.to_owned(),
        count: all.len(),
        clients: all.iter().take(CLIENTS_MAX).map(|of| (of.stream, of.node.to_string())).collect(),
        more: all.len().saturating_sub(CLIENTS_MAX),
    };
    found.into_iter().map(shown).collect()
}

/// The suspects of all rejections, with the addresses of their pages.
fn suspects(rejections: &[Rejection]) -> Vec<(String, String)> {
    let mut found = BTreeMap::new();
    for of in rejections {
        let short = of.type_url.short();
        for (name, _) in &of.suspects {
            let link = format!("/ui/resource?type={}&name={}", encoded(short), encoded(name.as_str()));
            found.insert(format!("{short} {}", name.as_str()), link);
        }
    }
    found.into_iter().collect()
}
