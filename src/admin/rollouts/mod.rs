//! `/rollouts` and below: the plans, and the way of their pushes (TRU-1, WAV-19).
//!
//! The data are those of the last tally: an answer looks at no stream. "Accepted" never means "in use"
//! (TRU-5).

mod item;
mod command;

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use sluice_admin_api::lists::Listed;
use sluice_admin_api::parameters::NoParameters;
use sluice_admin_api::rollouts::{LedgerState, PlanState, Push};
use tracing::warn;

use super::list;
use super::page::{Page, cursor};
use super::params::{Declined, conflict, not_found, read};
use super::state::Admin;
use crate::driver::api::rollouts::{InitRefusal, LedgerStatus, RolloutStatus};
pub(super) use command::{command, freeze, is_order, unfreeze};
pub(super) use item::{behind_seconds, frozen_until, pinned, shared_plan};
use sluice_fleet::rollout::PushReport;
use sluice_text::nearest::nearest;

/// `GET /rollouts`.
pub(super) async fn plans(
    Shared(admin): Shared<Admin>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Declined> {
    let page = Page::parse(&uri, &headers)?;
    let after: Option<String> = page.after()?;
    let plans = admin.relay.rollouts();
    let from = after.map_or(0, |after| position(&plans, &after).map_or(plans.len(), |at| at + 1));
    Ok(list::respond(PlanState::KEY, &page, move |writer| async move {
        let render =
            |plan: &Arc<RolloutStatus>, out: &mut _| list::append(out, Some(item::plan_state_of(plan)));
        let plans = plans.into_iter().skip(from);
        writer.about(item::ABOUT).write_all(plans, |plan| cursor(&plan.plan.name), render).await
    }))
}

/// `GET /ledger`.
pub(super) async fn ledger(Shared(admin): Shared<Admin>, uri: Uri) -> Result<Response, Declined> {
    read::<NoParameters>(&uri)?;
    state_of_ledger(&admin)
}

/// `POST /ledger/init` (LDG-6).
pub(super) async fn init_ledger(Shared(admin): Shared<Admin>, uri: Uri) -> Result<Response, Declined> {
    read::<NoParameters>(&uri)?;
    match admin.relay.init_ledger().await {
        Ok(()) => warn!("an operator believes the ledger as it is now"),
        Err(InitRefusal::NoLedger) => {}
        Err(InitRefusal::Away(why)) => {
            return Err(conflict(format!(
                "the ledger is away, so there is none to believe: {why}; nothing was done"
            )));
        }
    }
    state_of_ledger(&admin)
}

fn state_of_ledger(admin: &Admin) -> Result<Response, Declined> {
    let none = || not_found("the relay shares no ledger: its configuration has `ledger: local`".to_owned());
    let status = admin.relay.ledger().ok_or_else(none)?;
    let LedgerStatus { place, replica, fault, unwritten, entries, bytes } = status;
    let (fault, unwritten) = (fault.map(String::from), unwritten.map(String::from));
    Ok(Json(LedgerState { place, replica: replica.into(), fault, unwritten, entries, bytes }).into_response())
}

fn position(plans: &[Arc<RolloutStatus>], name: &str) -> Option<usize> {
    plans.iter().position(|plan| &*plan.plan.name == name)
}

/// `GET /rollouts/PLAN`.
pub(super) async fn plan(
    Shared(admin): Shared<Admin>,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Response, Declined> {
    read::<NoParameters>(&uri)?;
    let status = find(&admin.relay.rollouts(), &name).map_err(not_found)?;
    Ok(Json(item::whole_plan(&status)).into_response())
}

/// `GET /rollouts/PLAN/pushes`: the latest first.
pub(super) async fn pushes(
    Shared(admin): Shared<Admin>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Declined> {
    let page = Page::parse(&uri, &headers)?;
    let after: Option<u64> = page.after()?;
    let status = find(&admin.relay.rollouts(), &name).map_err(not_found)?;
    Ok(list::respond(Push::KEY, &page, move |writer| async move {
        let pushes: Vec<_> = of_plan(&status).cloned().collect();
        let pushes = pushes.into_iter().filter(|push| after.is_none_or(|after| push.number < after));
        let render = |push: &Arc<PushReport>, out: &mut _| list::append(out, Some(item::push(&status, push)));
        writer.about(item::ABOUT).write_all(pushes, |push| cursor(&push.number), render).await
    }))
}

/// `GET /rollouts/PLAN/pushes/N`.
pub(super) async fn push(
    Shared(admin): Shared<Admin>,
    Path((name, number)): Path<(String, String)>,
    uri: Uri,
) -> Result<Response, Declined> {
    read::<NoParameters>(&uri)?;
    let status = find(&admin.relay.rollouts(), &name).map_err(not_found)?;
    let push = find_push(&status, &number).map_err(not_found)?;
    Ok(Json(item::whole_push(&status, &push)).into_response())
}

/// A plan by its name.
///
/// # Errors
/// The text for an operator.
pub(super) fn find(plans: &[Arc<RolloutStatus>], name: &str) -> Result<Arc<RolloutStatus>, String> {
    if let Some(status) = position(plans, name).and_then(|at| plans.get(at)) {
        return Ok(status.clone());
    }
    let names = || plans.iter().map(|status| &*status.plan.name);
    let near = nearest(name, names()).map(|near| format!("; nearest: {near}")).unwrap_or_default();
    Err(match plans {
        [] => format!("no plan {name:?}: the configuration has no `rollouts`"),
        _ => format!("no plan {name:?}{near}; plans: {}", names().collect::<Vec<_>>().join(", ")),
    })
}

/// A push of a plan by its number in a path.
///
/// # Errors
/// The text for an operator.
pub(super) fn find_push(status: &RolloutStatus, number: &str) -> Result<Arc<PushReport>, String> {
    let plan = &status.plan.name;
    let Ok(number) = number.parse::<u64>() else {
        return Err(format!("{number:?} is not the number of a push (like 41)"));
    };
    let mut pushes = of_plan(status);
    if let Some(push) = pushes.find(|push| push.number == number) {
        return Ok(push.clone());
    }
    let (latest, oldest) = (of_plan(status).next(), of_plan(status).last());
    Err(match (latest, oldest) {
        (Some(latest), Some(oldest)) => format!(
            "the plan {plan} does not know push {number}: it remembers pushes {} to {}",
            oldest.number, latest.number
        ),
        _ => format!("the plan {plan} has had no push yet"),
    })
}

/// All pushes that a plan remembers, the latest first.
pub(super) fn of_plan(status: &RolloutStatus) -> impl Iterator<Item = &Arc<PushReport>> {
    status.report.push.iter().chain(&status.report.past)
}
