//! The commands of operators, at the plan's task (HIS-5).

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::oneshot;

use crate::driver::api::status::names_type;
use crate::driver::ground::plans::{Order, Turn};
use crate::driver::rollout::task::PlanTask;
use crate::engine::Time;
use crate::engine::downstream::PushSet;
use crate::engine::evidence::Rejecters;
use crate::engine::rollout::{Command, CommandError, Mode, Rollout, UnitId};
use crate::xds::ResourceName;

/// The answer to a command, until readers see the state after it.
pub struct Answer {
    pub said: Result<(), CommandError>,
    pub done: oneshot::Sender<Result<(), CommandError>>,
}

impl Answer {
    pub fn send(self) {
        // An operator who has left needs no answer.
        let _ = self.done.send(self.said);
    }
}

impl PlanTask {
    /// Carries out the commands of operators.
    pub(super) fn obey(&mut self) -> Vec<Answer> {
        let is_succeeded = self.shared.process.is_succeeded.load(Relaxed);
        if self.shared.plans.turn() == Turn::Successor && !is_succeeded {
            // The state of the plan is on its way to the successor, and the hand-over may still fail.
            return Vec::new();
        }
        let orders = self.handle.take_orders();
        if is_succeeded {
            let refused = |Order { done, .. }| Answer { said: Err(CommandError::Succeeded), done };
            return orders.into_iter().map(refused).collect();
        }
        let now = self.shared.clock.now();
        let condemns = orders.iter().any(|order| !order.condemn.is_empty());
        let sources = if condemns { self.sources() } else { HashMap::new() };
        let stable = |unit| Some(sources.get(&unit)?.published().stable().clone());
        let (plan, known) = (&self.plan, &self.known);
        let contents = |units: &[UnitId]| known.changes(plan, units, &stable);
        let obeyed = |Order { command, condemn, done }| {
            let machine = (&mut self.rollout, &mut self.rejecters);
            Answer { said: carry_out_order(machine, &contents, (command, &condemn), now), done }
        };
        orders.into_iter().map(obeyed).collect()
    }
}

/// Carries out a command. `contents`: the changes of the push under way in these units, for the contents to condemn, and whether all are
/// known.
///
/// # Errors
/// The reason why nothing was done.
pub fn carry_out_order(
    (rollout, rejecters): (&mut Rollout, &mut Rejecters),
    contents: &dyn Fn(&[UnitId]) -> (PushSet, bool),
    (command, condemn): (Command, &[(Box<str>, ResourceName)]),
    now: Time,
) -> Result<(), CommandError> {
    let is_meant = matches!(command, Command::Abort { .. }) && !condemn.is_empty();
    let under_way = rollout.under_way().filter(|push| is_meant && command.push() == Some(push.number));
    let pushed = under_way.filter(|push| push.mode == Mode::Enforce).map(|push| contents(&push.units));
    if let Some((set, are_all_known)) = &pushed {
        // Nothing is done by halves: a name that the push does not bring is an error before the halt.
        if !condemn.iter().all(|meant| brings(set, meant)) {
            return Err(match are_all_known {
                true => CommandError::NoSuchContent,
                false => CommandError::ContentNotKnown,
            });
        }
    }
    rollout.command(command, now)?;
    if let Some((set, _)) = &pushed {
        for (type_name, name) in condemn {
            rejecters.condemn(set, &|type_url, of| names_type(type_name, type_url) && of == name, now);
        }
    }
    Ok(())
}

fn brings(set: &PushSet, (type_name, name): &(Box<str>, ResourceName)) -> bool {
    let types = set.units().iter().flat_map(|unit| &unit.types);
    let mut of_type = types.filter(|of| names_type(type_name, &of.type_url));
    of_type.any(|of| of.names().any(|of| of.name == *name && of.version().is_some()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::driver::ground::plans::PlanHandle;
    use crate::engine::change::NameList;
    use crate::engine::rollout::push::{Differs, Growth, TypePush};
    use crate::engine::rollout::{Plan, ReleaseDigest, RolloutState, UnitPush};
    use crate::xds::TypeUrl;

    /// A machine with push 1 under way.
    fn waving() -> Rollout {
        let mut rollout = Rollout::new(Arc::new(Plan { mode: Mode::Enforce, ..Plan::new("edge") }));
        rollout.compared(UnitId(1), Differs { from_stable: true, from_candidate: true }, Time::ZERO);
        let due = rollout.poll_timeout().unwrap();
        rollout.handle_timeout(due);
        let mut changed = NameList::default();
        changed.add(&ResourceName::from("main"));
        let of = TypePush {
            type_url: TypeUrl::new("T"),
            added: NameList::default(),
            changed,
            removed: NameList::default(),
            resources: Growth::default(),
            bytes: Growth::default(),
            largest: None,
        };
        let (stable, candidate) = (ReleaseDigest(0), ReleaseDigest(1));
        let (unit, types) = (UnitId(1), vec![of]);
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
        };
        rollout.ready(vec![push], due);
        assert_eq!(rollout.report().state, RolloutState::Waving);
        rollout
    }

    #[test]
    fn qua_2_an_abort_that_condemns_what_the_push_does_not_bring_does_nothing() {
        let (mut rollout, mut rejecters) = (waving(), Rejecters::default());
        let mut abort = |push, condemn: &[(Box<str>, ResourceName)], are_all_known| {
            let order = (Command::Abort { push }, condemn);
            let contents = |units: &[UnitId]| {
                assert_eq!(units, [UnitId(1)], "the units of the push");
                (PushSet::new(Vec::new()), are_all_known)
            };
            let said = carry_out_order((&mut rollout, &mut rejecters), &contents, order, Time::ZERO);
            (said, rollout.report().state)
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
        let mut answer = handle.command(Command::Unpin, Vec::new());
        handle.noted().await;
        let order = handle.take_orders().pop().unwrap();
        assert!(answer.try_recv().is_err() && handle.take_orders().is_empty());
        Answer { said: Err(CommandError::Observes), done: order.done }.send();
        assert_eq!(answer.await.unwrap(), Err(CommandError::Observes));
    }
}
