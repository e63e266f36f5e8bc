//! A reload that would move many clients, or take names from them, waits for a yes (REL-7): a wrong pattern in
//! `node_classes` deletes from everybody.

use crate::admin::reloading::{Moves, Wanted};
use crate::driver::api::reload::ReloadPlan;

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
    reasons
}

/// The command that says yes.
pub(super) fn yes(wanted: &Wanted) -> String {
    match wanted {
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
    use crate::xds::{ResourceName, TypeUrl};

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
}
