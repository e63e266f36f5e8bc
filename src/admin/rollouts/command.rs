//! `POST /rollouts/PLAN/COMMAND`, `POST /freeze` and `POST /unfreeze`: the commands of operators (HIS-3 to
//! HIS-5).
//!
//! The guard of the role `act` logs the token. The line here has the order, its push, who gave it and why,
//! and the result; so has the event.

use std::fmt::Write;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, Path, State as Shared};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use sluice_admin_api::parameters::{
    AbortParameters, BarParameters, FreezeParameters, PinParameters, PlanParameters, PromoteParameters,
    PushParameters, UnpinParameters,
};
use sluice_admin_api::rollouts::FrozenPlans;
use tracing::{info, warn};

use super::super::entrance::AdminPeer;
use super::super::params::{
    Declined, bad_request, conflict, flag, not_found, number, read, time, unavailable, word,
};
use super::super::state::Admin;
use super::{find, item, of_plan};
use crate::driver::api::rollouts::{ObeyedOrder, OrderRefusal, PlanOrder, RolloutStatus};
use crate::telemetry::events::{Events, Kind, Occurrence};
use sluice_fleet::rollout::command::{FREEZE_MAX, PinFor, Promotion};
use sluice_fleet::rollout::shared::BARRED_MAX;
use sluice_fleet::rollout::{Command, CommandError, Mode, RolloutState, UnitId};
use sluice_setting::{Range, hours, seconds};
use sluice_xds::ResourceName;

const PIN_TIMES: Range = sluice_setting::time(seconds(1)..=hours(24 * 365));
const FREEZE_TIMES: Range = sluice_setting::time(seconds(1)..=FREEZE_MAX);

/// A freeze without a stated end (HIS-4).
const FREEZE: std::time::Duration = hours(4);

const COMMANDS: &str = "pause, resume, promote, abort, bar, pin, unpin or rollback";

/// The words of an operator and the address, for the log and the list of events (HIS-5).
struct Audit {
    by: Option<String>,
    reason: Option<String>,
    peer: Arc<AdminPeer>,
}

/// A command, for the log: its plan, its push and its word.
struct CommandLine<'a> {
    plan: &'a str,
    push: Option<u64>,
    word: &'a str,
    /// The arguments of the request.
    query: &'a str,
}

impl Audit {
    fn new(by: Option<String>, reason: Option<String>, peer: Option<Extension<Arc<AdminPeer>>>) -> Audit {
        Audit { by, reason, peer: peer.map(|Extension(peer)| peer).unwrap_or_default() }
    }

    /// `result`: the state of the plan after the command, or the reason why nothing was done.
    fn note(&self, events: &Events, line: &CommandLine<'_>, result: Result<RolloutState, &str>) {
        let CommandLine { plan, push, word, query } = line;
        let (by, reason) = (self.by.as_deref(), self.reason.as_deref());
        let (address, identity) = (self.peer.address.map(tracing::field::display), &self.peer.identity);
        match result {
            Ok(state) => {
                let state = state.name();
                info!(plan, command = word, push, query, by, reason, peer = address, %identity, state, "an operator commanded a plan");
            }
            Err(refusal) => {
                warn!(plan, command = word, push, query, by, reason, peer = address, %identity, refusal, "a command to a plan had no effect");
            }
        }
        let who = by.map(str::to_owned).or_else(|| Some(self.peer.address?.to_string()));
        let who = who.unwrap_or_else(|| self.peer.identity.to_string());
        let mut detail = format!("{word} by {who}");
        if let Some(reason) = reason {
            let _ = write!(detail, ", {reason:?}");
        }
        let occurrence = match result {
            Ok(state) => {
                let _ = write!(detail, "; the plan is {}", state.name());
                Occurrence::info(Kind::Push, done_text(word))
            }
            Err(refusal) => {
                let _ = write!(detail, "; {refusal}");
                Occurrence::warn(Kind::Push, REFUSED)
            }
        };
        events.add(
            occurrence.of_push(plan, push.unwrap_or_default()).from_peer(self.peer.address).detail(detail),
        );
    }
}

const REFUSED: &str = "a command to a plan had no effect";

/// The texts of the orders that were carried out.
const DONE: [(&str, &str); 10] = [
    ("pause", "an operator paused a push"),
    ("resume", "an operator resumed a push"),
    ("promote", "an operator promoted a push"),
    ("abort", "an operator aborted a push"),
    ("bar", "an operator barred a class from a push"),
    ("pin", "an operator pinned a release"),
    ("unpin", "an operator ended a pin"),
    ("rollback", "an operator took a push back"),
    ("freeze", "an operator ordered a freeze"),
    ("unfreeze", "an operator ended a freeze"),
];

fn done_text(word: &str) -> &'static str {
    DONE.iter().find(|(done, _)| *done == word).map_or("an operator commanded a plan", |(_, text)| text)
}

/// Whether an event is an order, carried out or not.
pub(in crate::admin) fn is_order(event: &Occurrence) -> bool {
    event.text == REFUSED || DONE.iter().any(|(_, text)| *text == event.text)
}

/// `POST /rollouts/PLAN/COMMAND`.
pub(in crate::admin) async fn command(
    Shared(admin): Shared<Admin>,
    Path((plan, word)): Path<(String, String)>,
    peer: Option<Extension<Arc<AdminPeer>>>,
    uri: Uri,
) -> Result<Response, Declined> {
    let plans = admin.relay.rollouts();
    let status = find(&plans, &plan).map_err(not_found)?;
    let params = read_command(&word, &uri)?;
    let audit = Audit::new(params.r#as.clone(), params.reason.clone(), peer);
    let order = order(&status, &word, params)?;
    let push = order.command.push().or_else(|| latest(&status));
    let line = CommandLine { plan: &plan, push, word: &word, query: uri.query().unwrap_or_default() };
    let events = &admin.metrics.events;
    match admin.relay.command_plan(order).await {
        Ok(ObeyedOrder { after, unwritten }) => {
            audit.note(events, &line, Ok(after.report.state));
            match unwritten {
                Some(why) => Err(unavailable(here_alone(&plan, &why))),
                None => Ok(Json(item::plan_state_of(&after)).into_response()),
            }
        }
        Err(refusal) => {
            let (text, answer) = refused(&plan, refusal);
            audit.note(events, &line, Err(&text));
            Err(answer(text))
        }
    }
}

/// The number of the latest push that a plan remembers.
fn latest(status: &RolloutStatus) -> Option<u64> {
    of_plan(status).next().map(|push| push.number)
}

/// The parameters of a command. Each command takes some of them.
fn read_command(word: &str, uri: &Uri) -> Result<PlanParameters, Declined> {
    let none = PlanParameters::default();
    Ok(match word {
        "pause" | "resume" | "rollback" => {
            let PushParameters { push, here, r#as, reason } = read(uri)?;
            PlanParameters { push, here, r#as, reason, ..none }
        }
        "promote" => {
            let PromoteParameters { push, step, all, here, r#as, reason } = read(uri)?;
            PlanParameters { push, step, all, here, r#as, reason, ..none }
        }
        "abort" => {
            let AbortParameters { push, condemn, here, r#as, reason } = read(uri)?;
            PlanParameters { push, condemn, here, r#as, reason, ..none }
        }
        "bar" => {
            let BarParameters { push, class, here, r#as, reason } = read(uri)?;
            PlanParameters { push, class, here, r#as, reason, ..none }
        }
        "pin" => {
            let PinParameters { to, until, r#for, here, r#as, reason } = read(uri)?;
            PlanParameters { to, until, r#for, here, r#as, reason, ..none }
        }
        "unpin" => {
            let UnpinParameters { here, r#as, reason } = read(uri)?;
            PlanParameters { here, r#as, reason, ..none }
        }
        other => return Err(bad_request(format!("command is {other:?}; allowed: {COMMANDS}"))),
    })
}

/// The command for the machine.
fn order(status: &Arc<RolloutStatus>, word: &str, params: PlanParameters) -> Result<PlanOrder, Declined> {
    let push = |text: Option<String>| push_number("push", text);
    let is_here = flag("here", params.here)?;
    let command = match word {
        "pause" => Command::Pause { push: push(params.push)? },
        "resume" => Command::Resume { push: push(params.push)? },
        "rollback" => Command::Rollback { push: push(params.push)? },
        "promote" => Command::Promote { push: push(params.push)?, to: promotion(params.step, params.all)? },
        "abort" => Command::Abort { push: push(params.push)? },
        "pin" => Command::Pin {
            release: push_number("to", params.to)?,
            until: pin_end(params.until, params.r#for)?,
        },
        "bar" => {
            let push = push(params.push)?;
            let class = params.class.unwrap_or_default();
            Command::Bar { push, units: units_of(status, &class).map_err(bad_request)? }
        }
        _ => Command::Unpin,
    };
    let condemn = params.condemn.map(|text| contents(&text)).transpose().map_err(bad_request)?;
    let plan = status.plan.name.to_string();
    Ok(PlanOrder { plan, command, condemn: condemn.unwrap_or_default(), is_here })
}

/// The number of a push or of a release, which has to be named.
fn push_number(key: &str, text: Option<String>) -> Result<u64, Declined> {
    let number = number(key, text, "the number of a push")?;
    number.ok_or_else(|| bad_request(format!("{key} is missing; GET /rollouts has the number")))
}

fn promotion(step: Option<String>, all: Option<String>) -> Result<Promotion, Declined> {
    let is_all = flag("all", all)?;
    if step.is_some() && is_all {
        return Err(bad_request("step: not together with all".to_owned()));
    }
    Ok(match number("step", step, "the number of a step")? {
        Some(step) => Promotion::Step(step),
        None if is_all => Promotion::All,
        None => Promotion::Anew,
    })
}

fn pin_end(until: Option<String>, length: Option<String>) -> Result<PinFor, Declined> {
    let length = time("for", length, PIN_TIMES)?;
    let until = word("until", until, &[("next-push", PinFor::NextPush), ("unpin", PinFor::Unpin)])?;
    match (until, length) {
        (Some(_), Some(_)) => Err(bad_request("until: not together with for".to_owned())),
        (None, Some(length)) => Ok(PinFor::Length(length)),
        (Some(until), None) => Ok(until),
        (None, None) => {
            Err(bad_request("until is missing; allowed: next-push, unpin, or a time by for".to_owned()))
        }
    }
}

/// The units of a plan with a class, by the beginning of its digest.
fn units_of(status: &RolloutStatus, class: &str) -> Result<Vec<UnitId>, String> {
    let push = status.report.push.as_ref();
    let is_of_push = |unit: &UnitId| push.is_none_or(|push| push.units.contains(unit));
    let has_class = |unit: &&UnitId| {
        let digest = status.units.get(unit).map(|status| &*status.class.digest);
        !class.is_empty() && digest.is_some_and(|digest| digest.starts_with(class)) && is_of_push(unit)
    };
    let units: Vec<UnitId> = status.units.keys().filter(has_class).copied().collect();
    match units.is_empty() {
        true => {
            Err(format!("class is {class:?}; allowed: the digest of a class of the push, or its beginning"))
        }
        false => Ok(units),
    }
}

/// `Cluster/payments,Listener/main`.
fn contents(text: &str) -> Result<Vec<(Box<str>, ResourceName)>, String> {
    let content = |part: &str| match part.split_once('/') {
        Some((type_name, name)) if !type_name.is_empty() && !name.is_empty() => {
            Ok((type_name.into(), ResourceName::from(name)))
        }
        _ => Err(format!("condemn is {part:?}; allowed: TYPE/NAME, as Cluster/payments")),
    };
    text.split(',').map(content).collect()
}

/// `POST /freeze`: all plans that enforce. The others hold nothing back, and the answer, the log and the
/// events name them (WAV-19).
pub(in crate::admin) async fn freeze(
    Shared(admin): Shared<Admin>,
    peer: Option<Extension<Arc<AdminPeer>>>,
    uri: Uri,
) -> Result<Response, Declined> {
    let FreezeParameters { r#for, here, r#as, reason } = read(&uri)?;
    let length = time("for", r#for, FREEZE_TIMES)?.unwrap_or(FREEZE);
    let audit = Audit::new(r#as, reason, peer);
    let is_here = flag("here", here)?;
    command_all(&admin, "freeze", &uri, Command::Freeze { length }, is_here, audit).await
}

/// `POST /unfreeze`.
pub(in crate::admin) async fn unfreeze(
    Shared(admin): Shared<Admin>,
    peer: Option<Extension<Arc<AdminPeer>>>,
    uri: Uri,
) -> Result<Response, Declined> {
    let UnpinParameters { here, r#as, reason } = read(&uri)?;
    let is_here = flag("here", here)?;
    command_all(&admin, "unfreeze", &uri, Command::Unfreeze, is_here, Audit::new(r#as, reason, peer)).await
}

async fn command_all(
    admin: &Admin,
    word: &str,
    uri: &Uri,
    command: Command,
    is_here: bool,
    audit: Audit,
) -> Result<Response, Declined> {
    let (mut done, mut observing, mut refusals) = (Vec::new(), Vec::new(), Vec::new());
    for status in admin.relay.rollouts() {
        let plan = status.plan.name.to_string();
        let (push, query) = (latest(&status), uri.query().unwrap_or_default());
        let tell = |result: Result<RolloutState, &str>| {
            audit.note(&admin.metrics.events, &CommandLine { plan: &plan, push, word, query }, result);
        };
        if status.plan.mode == Mode::Observe {
            if let Command::Freeze { .. } = command {
                tell(Err(NOT_FROZEN));
                observing.push(plan);
            }
            continue;
        }
        let order = PlanOrder { plan: plan.clone(), command: command.clone(), condemn: Vec::new(), is_here };
        match admin.relay.command_plan(order).await {
            Ok(ObeyedOrder { after, unwritten }) => {
                tell(Ok(after.report.state));
                match unwritten {
                    Some(why) => refusals.push(unavailable(here_alone(&plan, &why))),
                    None => done.push(plan),
                }
            }
            // A plan that has ended meanwhile needs no freeze.
            Err(OrderRefusal::NoSuchPlan) => {}
            Err(refusal) => {
                let (text, answer) = refused(&plan, refusal);
                tell(Err(&text));
                refusals.push(answer(text));
            }
        }
    }
    // A refusal by the ledger counts before one by the state of a plan.
    if let Some(status) = refusals.iter().map(|refusal| refusal.status).max() {
        let others = if done.is_empty() { String::new() } else { format!("; done: {}", done.join(", ")) };
        let reasons: Vec<_> = refusals.into_iter().map(|refusal| refusal.reason).collect();
        return Err(Declined { status, reason: format!("{}{others}", reasons.join("; ")) });
    }
    match (done.is_empty(), observing.is_empty()) {
        (true, true) => {
            Err(not_found("no plan has `mode: enforce`; GET /rollouts lists the plans".to_owned()))
        }
        (true, false) => {
            let plans = observing.join(", ");
            Err(conflict(format!(
                "nothing is frozen, and pushes go on: no plan has `mode: enforce`; {plans} only observe"
            )))
        }
        (false, _) => Ok(Json(FrozenPlans { plans: done, observing }).into_response()),
    }
}

/// The result of a freeze for a plan that observes.
const NOT_FROZEN: &str = "the plan observes: a freeze holds none of its pushes back";

/// An order that only this replica has so far.
fn here_alone(plan: &str, why: &str) -> String {
    format!(
        "plan {plan:?}: done at this replica alone: the ledger has not taken it yet: {why}. The others follow once it has"
    )
}

fn refused(plan: &str, refusal: OrderRefusal) -> (String, fn(String) -> Declined) {
    let error = match refusal {
        OrderRefusal::NoSuchPlan => return (format!("no plan is named {plan:?}"), not_found),
        OrderRefusal::Unwritten(why) => {
            let text = format!(
                "plan {plan:?}: the ledger takes no writes, and other replicas would not hear of it: {why}; nothing \
                 was done. here=true acts on this replica alone"
            );
            return (text, unavailable);
        }
        OrderRefusal::Refused(error) => error,
    };
    let text = match error {
        CommandError::Observes => "the plan observes, and holds nothing".to_owned(),
        CommandError::AnotherPush(Some(number)) => format!("push {number} is under way; nothing was done"),
        CommandError::AnotherPush(None) => "no push is under way; nothing was done".to_owned(),
        CommandError::Halted => "the push is halted; use promote, abort, bar, pin or rollback".to_owned(),
        CommandError::NotHalted => "the push is not halted; use abort before".to_owned(),
        CommandError::Frozen => "the plan is frozen; use unfreeze before".to_owned(),
        CommandError::Succeeded => "a new process has taken over; nothing was done: say it again".to_owned(),
        CommandError::NoLedger => {
            "the ledger is away, and other replicas would not hear of it; nothing was done. here=true acts on this \
            replica alone"
                .to_owned()
        }
        CommandError::ServerLost(_) => "the server of a unit of the push is lost".to_owned(),
        CommandError::NoSuchStep { steps } => format!("step: the push has the steps 1 to {steps}"),
        CommandError::NoStep { reached, steps } => format!(
            "step: missing; the push has reached step {reached} of {steps}: name {}, or all",
            steps.min(reached + 1)
        ),
        CommandError::NoSuchRelease => "the plan does not remember this release".to_owned(),
        CommandError::LostRelease => {
            "the relay has begun anew since this release, and does not have its content; nothing was done"
                .to_owned()
        }
        CommandError::NoSuchUnit => "class: has no unit in the push".to_owned(),
        CommandError::TooManyBarred => format!(
            "class: the ledger takes at most {BARRED_MAX} barred units of a push; nothing was done"
        ),
        CommandError::NoSuchContent => "condemn: the push brings no such content".to_owned(),
        CommandError::ContentNotKnown => {
            "condemn: the push was halted before a restart, and its content is not known \
            until the server sends it again; nothing was done"
                .to_owned()
        }
        CommandError::TooLong => "for: at most 7d".to_owned(),
    };
    let answer: fn(String) -> Declined = match error {
        CommandError::NoSuchRelease
        | CommandError::LostRelease
        | CommandError::NoSuchUnit
        | CommandError::NoSuchContent => not_found,
        CommandError::NoLedger => unavailable,
        CommandError::NoSuchStep { .. } | CommandError::NoStep { .. } | CommandError::TooLong => bad_request,
        _ => conflict,
    };
    (format!("plan {plan:?}: {text}"), answer)
}
