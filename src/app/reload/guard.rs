//! A reload that would move many clients, take names from them, or let go of a push that a plan holds back,
//! waits for a yes (REL-7): a wrong pattern in `node_classes` deletes from everybody, and a plan that goes
//! gives the bad push to everybody.

use crate::admin::reloading::{Moves, Wanted};
use crate::driver::api::reload::{LoosenedPlan, Loosening, MovedInPlan, ReloadPlan};
use sluice_fleet::rollout::RolloutState;

/// The reasons to wait for a yes, in words. `max_moved` is in percent.
pub(super) fn reasons(plan: &ReloadPlan, max_moved: u32) -> Vec<String> {
    let mut reasons = Vec::new();
    if plan.sessions_moved * 100 > plan.sessions * max_moved as usize {
        let (moved, all) = (plan.sessions_moved, plan.sessions);
        reasons.push(format!("{moved} of {all} streams would move (reload.max_moved: {max_moved})"));
    }
    for gone in &plan.names_gone {
        let some: Vec<_> = gone.names.iter().take(3).map(ToString::to_string).collect();
        let more = if gone.count > some.len() { ", …" } else { "" };
        let (count, type_name) = (gone.count, gone.type_url.short());
        reasons
            .push(format!("{count} names of {type_name} would go from clients: {}{more}", some.join(", ")));
    }
    reasons.extend(plan.plans_loosened.iter().map(loosened_text));
    reasons
}

/// Warnings of content that clients move to: whether plans give it by steps.
pub(super) fn warnings(plan: &ReloadPlan) -> Vec<String> {
    let text = |moved: &MovedInPlan| {
        let MovedInPlan { plan, by_steps, at_once } = moved;
        let by_steps = (*by_steps > 0).then(|| {
            format!(
                "rollouts: plan {plan}: {by_steps} streams would move to another server; what differs there is a push, and goes by steps"
            )
        });
        let at_once = (*at_once > 0).then(|| {
            format!(
                "rollouts: plan {plan}: {at_once} streams would move to another node class, or out of the plan; they would be given what is \
                 there at once, without steps"
            )
        });
        by_steps.into_iter().chain(at_once)
    };
    plan.moved_in_plans.iter().flat_map(text).collect()
}

/// The plan, the push, the effect, and the way without a yes.
fn loosened_text(plan: &LoosenedPlan) -> String {
    let LoosenedPlan { plan, state, push, by } = plan;
    let effect = match by {
        Loosening::Removed => "would be removed: all clients would get what it holds back".to_owned(),
        Loosening::UnitsLeave(count) => {
            format!("would lose {count} of its units: their clients would get what it holds back")
        }
        Loosening::Keys(keys) if keys.contains(&"mode") => {
            "would only observe (mode): all clients would get what it holds back".to_owned()
        }
        Loosening::Keys(keys) => format!("would be looser: {}", keys.join(", ")),
        Loosening::LoadUnheard(key) => {
            format!("would be judged by fewer load reports than now ({key})")
        }
        Loosening::BeginsAnew => "would change, and give the push to its first step again".to_owned(),
    };
    let push = push.map(|push| push.to_string());
    let state_of_push = match &push {
        Some(push) => format!("{} (push {push})", state.name()),
        None => state.name().to_owned(),
    };
    let way = match (state, push) {
        (RolloutState::Halted, Some(push)) => {
            format!(
                "mend the push at the control plane, or `sluice rollout promote {plan} --push {push} --all`"
            )
        }
        (RolloutState::Paused, Some(push)) => format!("`sluice rollout resume {plan} --push {push}`"),
        (RolloutState::Pinned, _) => format!("`sluice rollout unpin {plan}`"),
        (RolloutState::Frozen, _) => "`sluice rollout unfreeze`".to_owned(),
        (_, Some(push)) => {
            format!("wait for its end, or `sluice rollout promote {plan} --push {push} --all`")
        }
        (_, None) => "wait for its end".to_owned(),
    };
    format!("rollouts: plan {plan} is {state_of_push} and {effect}; to reload afterwards: {way}")
}

/// The command that says yes.
pub(super) fn yes(request: &Wanted) -> String {
    match request {
        Wanted::Generation { to: Some(to), .. } | Wanted::PlanGeneration { to: Some(to) } => {
            format!("sluice rollback --to {to} --yes")
        }
        Wanted::Generation { .. } | Wanted::PlanGeneration { .. } => "sluice rollback --yes".to_owned(),
        Wanted::File { .. } | Wanted::PlanFile | Wanted::PlanText(_) => "sluice reload --yes".to_owned(),
    }
}

pub(super) fn moves(plan: &ReloadPlan) -> Moves {
    let names = plan
        .names_gone
        .iter()
        .flat_map(|gone| gone.names.iter().map(|name| format!("{} {name}", gone.type_url.short())));
    Moves {
        sessions: plan.sessions,
        sessions_moved: plan.sessions_moved,
        sessions_undecided: plan.sessions_undecided,
        sources: plan.sources,
        sources_opened: plan.sources_opened,
        sources_closed: plan.sources_closed,
        upstream_streams_opened: plan.upstream_streams_opened,
        upstream_streams_closed: plan.upstream_streams_closed,
        names_gone: plan.names_gone.iter().map(|gone| gone.count).sum(),
        names: names.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::api::reload::NamesGone;
    use sluice_xds::{ResourceName, TypeUrl};

    #[test]
    fn rel_7_many_moves_and_any_name_that_goes_wait_for_a_yes() {
        let plan =
            |sessions, sessions_moved| ReloadPlan { sessions, sessions_moved, ..ReloadPlan::default() };
        assert_eq!(reasons(&plan(10, 5), 50), Vec::<String>::new());
        assert_eq!(reasons(&plan(10, 6), 50), ["6 of 10 streams would move (reload.max_moved: 50)"]);
        assert_eq!(reasons(&plan(0, 0), 0), Vec::<String>::new());
        assert_eq!(reasons(&plan(10, 10), 100), Vec::<String>::new());
        assert_eq!(reasons(&plan(1000, 1), 0).len(), 1);
        let names: Vec<_> = ["a", "b", "c", "d"].map(ResourceName::from).into();
        let type_url = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
        let gone = ReloadPlan { names_gone: vec![NamesGone { type_url, count: 7, names }], ..plan(10, 0) };
        assert_eq!(reasons(&gone, 50), ["7 names of Cluster would go from clients: a, b, c, …"]);
        let moves = moves(&gone);
        assert_eq!((moves.names_gone, &*moves.names[3]), (7, "Cluster d"));
        assert_eq!(yes(&Wanted::Generation { to: Some(3), yes: false }), "sluice rollback --to 3 --yes");
        assert_eq!(yes(&Wanted::PlanFile), "sluice reload --yes");
    }

    #[test]
    fn rel_7_a_judge_that_would_hear_less_waits_for_a_yes() {
        let by = Loosening::LoadUnheard("lrs");
        let of = LoosenedPlan { plan: "edge".into(), state: RolloutState::Waving, push: Some(3), by };
        let reasons = reasons(&ReloadPlan { plans_loosened: vec![of], ..ReloadPlan::default() }, 50);
        let words = "rollouts: plan edge is waving (push 3) and would be judged by fewer load reports than now (lrs); to reload \
            afterwards: wait for its end, or `sluice rollout promote edge --push 3 --all`";
        assert_eq!(reasons, [words]);
    }

    #[test]
    fn rel_7_the_answer_tells_whether_other_content_goes_by_steps() {
        let told = |by_steps, at_once| {
            let moved = MovedInPlan { plan: "edge".into(), by_steps, at_once };
            warnings(&ReloadPlan { moved_in_plans: vec![moved], ..ReloadPlan::default() })
        };
        let both = told(4, 5);
        assert!(both[0].contains("plan edge: 4 streams") && both[0].ends_with("goes by steps"), "{both:?}");
        assert!(both[1].contains("plan edge: 5 streams") && both[1].ends_with("without steps"), "{both:?}");
        assert_eq!((told(1, 0).len(), told(0, 1).len()), (1, 1));
    }

    #[test]
    fn rel_7_a_plan_that_lets_go_is_told_with_its_push_and_the_way_out() {
        let told = |state, push, by| {
            let of = LoosenedPlan { plan: "edge".into(), state, push, by };
            reasons(&ReloadPlan { plans_loosened: vec![of], ..ReloadPlan::default() }, 50).concat()
        };
        assert_eq!(
            told(RolloutState::Halted, Some(41), Loosening::Removed),
            "rollouts: plan edge is halted (push 41) and would be removed: all clients would get what it holds back; to reload \
             afterwards: mend the push at the control plane, or `sluice rollout promote edge --push 41 --all`"
        );
        let keys = Loosening::Keys(vec!["steps", "salt"]);
        assert_eq!(
            told(RolloutState::Gathering, None, keys),
            "rollouts: plan edge is gathering and would be looser: steps, salt; to reload afterwards: wait for its end"
        );
        let observes = told(RolloutState::Frozen, None, Loosening::Keys(vec!["mode"]));
        assert!(
            observes.contains("would only observe (mode)") && observes.ends_with("`sluice rollout unfreeze`")
        );
        assert!(
            told(RolloutState::Pinned, Some(4), Loosening::UnitsLeave(2))
                .contains("would lose 2 of its units")
        );
        let anew = told(RolloutState::Paused, Some(4), Loosening::BeginsAnew);
        assert!(anew.contains("its first step again") && anew.ends_with("resume edge --push 4`"), "{anew}");
    }
}
