//! The commands of operators, at the plan's task (HIS-5).

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::oneshot;

use crate::driver::api::status::names_type;
use crate::driver::ground::plans::{Decider, PendingCommand};
use crate::driver::rollout::fleet::Fleet;
use crate::driver::rollout::state::PlanState;
use sluice_engine::Time;
use sluice_fleet::evidence::{KnownContents, PushSet};
use sluice_fleet::rollout::{Command, CommandError, Mode, UnitId};
use sluice_xds::ResourceName;

/// The answer to a command, until readers see the state after it.
pub(super) struct Reply {
    result: Result<(), CommandError>,
    done: oneshot::Sender<Result<(), CommandError>>,
}

impl Reply {
    pub(super) fn send(self) {
        // An operator who has left needs no answer.
        let _ = self.done.send(self.result);
    }
}

/// Carries out the commands of operators at the machine.
pub(super) fn obey(state: &mut PlanState, contents: &KnownContents, fleet: &Fleet) -> Vec<Reply> {
    let is_succeeded = fleet.shared.process.is_succeeded.load(Relaxed);
    if fleet.shared.plans.turn() == Decider::Successor && !is_succeeded {
        // The state of the plan is on its way to the successor, and the hand-over may still fail.
        return Vec::new();
    }
    let orders = fleet.handle.take_orders();
    if is_succeeded {
        let refused =
            |order: PendingCommand| Reply { result: Err(CommandError::Succeeded), done: order.done };
        return orders.into_iter().map(refused).collect();
    }
    let now = fleet.now();
    let condemns = orders.iter().any(|order| !order.condemn.is_empty());
    let sources = if condemns { fleet.all_sources() } else { HashMap::new() };
    let stable = |unit| Some(sources.get(&unit)?.published().stable().clone());
    let plan = state.plan().clone();
    let changes = |units: &[UnitId]| contents.changes(&plan, units, &stable);
    let obeyed = |PendingCommand { command, condemn, is_here, done }| {
        let result = carry_out_order(state, &changes, command, &condemn, is_here, now);
        Reply { result, done }
    };
    orders.into_iter().map(obeyed).collect()
}

/// Carries out a command. `changes`: the changes of the push under way in these units, for the contents to
/// condemn, and whether all are known.
///
/// # Errors
/// The reason why nothing was done.
fn carry_out_order(
    state: &mut PlanState,
    changes: &dyn Fn(&[UnitId]) -> (PushSet, bool),
    command: Command,
    condemn: &[(Box<str>, ResourceName)],
    is_here: bool,
    now: Time,
) -> Result<(), CommandError> {
    let is_meant = matches!(command, Command::Abort { .. }) && !condemn.is_empty();
    let under_way = state.rollout.under_way();
    let under_way = under_way.filter(|push| is_meant && command.push() == Some(push.number));
    let pushed = under_way.filter(|push| push.mode == Mode::Enforce).map(|push| changes(&push.units));
    if let Some((set, are_all_known)) = &pushed {
        // Nothing is done by halves: a name that the push does not bring is an error before the halt.
        if !condemn.iter().all(|(type_name, name)| brings(set, type_name, name)) {
            return Err(match are_all_known {
                true => CommandError::NoSuchContent,
                false => CommandError::ContentNotKnown,
            });
        }
    }
    match is_here {
        true => state.rollout.command_here(command, now)?,
        false => state.rollout.command(command, now)?,
    }
    if let Some((set, _)) = &pushed {
        for (type_name, name) in condemn {
            let is_condemned = |type_url: &_, changed: &_| names_type(type_name, type_url) && changed == name;
            state.rejecters.condemn(set, &is_condemned, now);
        }
    }
    Ok(())
}

fn brings(set: &PushSet, type_name: &str, name: &ResourceName) -> bool {
    let types = set.units().iter().flat_map(|unit| &unit.types);
    let mut parts = types.filter(|part| names_type(type_name, &part.type_url));
    parts.any(|part| part.names().any(|change| change.name == *name && change.version().is_some()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::driver::ground::plans::PlanHandle;
    use sluice_engine::change::NameList;
    use sluice_fleet::rollout::push::{Differs, Growth, TypePush};
    use sluice_fleet::rollout::{Plan, ReleaseDigest, RolloutState, UnitPush};
    use sluice_xds::TypeUrl;

    /// A machine with push 1 under way.
    fn waving() -> PlanState {
        let mut state = PlanState::new(Arc::new(Plan { mode: Mode::Enforce, ..Plan::new("edge") }));
        let rollout = &mut state.rollout;
        rollout.compared(UnitId(1), Differs { from_stable: true, from_candidate: true }, Time::ZERO);
        let due = rollout.poll_timeout().unwrap();
        rollout.handle_timeout(due);
        let mut changed = NameList::default();
        changed.add(&ResourceName::from("main"));
        let part = TypePush {
            type_url: TypeUrl::new("T"),
            added: NameList::default(),
            changed,
            removed: NameList::default(),
            resources: Growth::default(),
            bytes: Growth::default(),
            largest: None,
        };
        let (stable, candidate) = (ReleaseDigest(0), ReleaseDigest(1));
        let (unit, types) = (UnitId(1), vec![part]);
        let push = UnitPush {
            unit,
            types,
            condemned: None,
            findings: Vec::new(),
            is_current: true,
            is_former: false,
            returns_to: None,
            stable,
            candidate,
            shared: None,
        };
        rollout.ready(vec![push], due);
        assert_eq!(rollout.report().state, RolloutState::Waving);
        state
    }

    #[test]
    fn qua_2_an_abort_that_condemns_contents_outside_of_the_push_does_nothing() {
        let mut state = waving();
        let mut abort = |push, condemn: &[(Box<str>, ResourceName)], are_all_known| {
            let changes = |units: &[UnitId]| {
                assert_eq!(units, [UnitId(1)], "the units of the push");
                (PushSet::new(Vec::new()), are_all_known)
            };
            let result =
                carry_out_order(&mut state, &changes, Command::Abort { push }, condemn, false, Time::ZERO);
            (result, state.rollout.report().state)
        };
        let content = [("Cluster".into(), ResourceName::from("payments"))];
        assert_eq!(abort(1, &content, true), (Err(CommandError::NoSuchContent), RolloutState::Waving));
        let another = Err(CommandError::AnotherPush(Some(1)));
        assert_eq!(abort(2, &content, true), (another, RolloutState::Waving));
        assert_eq!(abort(1, &[], true), (Ok(()), RolloutState::Halted));
        // After a restart the plan does not say more than it knows.
        let unknown = Err(CommandError::ContentNotKnown);
        assert_eq!(abort(1, &content, false), (unknown, RolloutState::Halted));
    }

    #[tokio::test]
    async fn his_5_an_answer_comes_after_the_task_has_shown_the_state() {
        let handle = PlanHandle::new(Arc::new(Plan::new("edge")));
        let mut answer = handle.command(Command::Unpin, Vec::new(), false);
        handle.noted().await;
        let order = handle.take_orders().pop().unwrap();
        assert!(answer.try_recv().is_err() && handle.take_orders().is_empty());
        Reply { result: Err(CommandError::Observes), done: order.done }.send();
        assert_eq!(answer.await.unwrap(), Err(CommandError::Observes));
    }
}
