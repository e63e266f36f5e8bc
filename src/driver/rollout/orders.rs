//! The commands of operators, at the plan's task (HIS-5).

use tokio::sync::oneshot;

use crate::driver::api::status::names_type;
use crate::engine::Time;
use crate::engine::downstream::PushSet;
use crate::engine::evidence::Rejecters;
use crate::engine::rollout::{Command, CommandError, Rollout};
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

/// Carries out a command. `set`: the content of the push under way, for the contents to condemn.
///
/// # Errors
/// The reason why nothing was done.
pub fn carry_out_order(
    (rollout, rejecters): (&mut Rollout, &mut Rejecters),
    set: Option<&PushSet>,
    (command, condemn): (Command, &[(Box<str>, ResourceName)]),
    now: Time,
) -> Result<(), CommandError> {
    let has = |meant: &(Box<str>, ResourceName)| {
        let (type_name, name) = meant;
        set.is_some_and(|set| {
            let types = set.units().iter().flat_map(|unit| &unit.types);
            let mut of_type = types.filter(|of| names_type(type_name, &of.type_url));
            of_type.any(|of| of.names().any(|of| of.name == *name && of.version().is_some()))
        })
    };
    // Nothing is done by halves: a name that the push does not bring is an error before the halt.
    let is_complete = condemn.iter().all(has);
    let under_way = rollout.under_way().map(|push| push.number);
    if !is_complete && matches!(command, Command::Abort { push } if under_way == Some(push)) {
        return Err(CommandError::NoSuchContent);
    }
    rollout.command(command, now)?;
    if let Some(set) = set {
        for (type_name, name) in condemn {
            rejecters.condemn(set, &|type_url, of| names_type(type_name, type_url) && of == name, now);
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::driver::ground::plans::PlanHandle;
    use crate::engine::change::NameList;
    use crate::engine::rollout::push::{Differs, Growth, TypePush};
    use crate::engine::rollout::{Mode, Plan, ReleaseDigest, RolloutState, UnitId, UnitPush};
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
            stable,
            candidate,
        };
        rollout.ready(vec![push], due);
        assert_eq!(rollout.report().state, RolloutState::Waving);
        rollout
    }

    #[test]
    fn qua_2_an_abort_that_condemns_what_the_push_does_not_bring_does_nothing() {
        let (mut rollout, mut rejecters, set) = (waving(), Rejecters::default(), PushSet::new(Vec::new()));
        let mut abort = |push, condemn: &[(Box<str>, ResourceName)]| {
            let order = (Command::Abort { push }, condemn);
            let said = carry_out_order((&mut rollout, &mut rejecters), Some(&set), order, Time::ZERO);
            (said, rollout.report().state)
        };
        let content = [("Cluster".into(), ResourceName::from("payments"))];
        assert_eq!(abort(1, &content), (Err(CommandError::NoSuchContent), RolloutState::Waving));
        assert_eq!(abort(2, &content), (Err(CommandError::AnotherPush(Some(1))), RolloutState::Waving));
        assert_eq!(abort(1, &[]), (Ok(()), RolloutState::Halted));
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
