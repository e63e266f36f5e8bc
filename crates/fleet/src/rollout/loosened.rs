//! Whether another configuration of a plan protects less than the plan in force (REL-7).

use super::hook::Hook;
use super::plan::{GuardAction, Guards, HaltOn, Mode, OnHalt, Plan, Step, Times, UnitMatch};
use super::report::{RolloutReport, RolloutState};

impl Plan {
    /// The keys by which `next` may admit a client sooner, hold less, or halt later than this plan. Empty if
    /// `next` is certainly as strict. Keys without an order, as `salt`, count if they differ.
    pub fn loosened_by(&self, next: &Plan) -> Vec<&'static str> {
        // A forgotten key does not compile.
        let Plan {
            name: _,
            mode,
            units,
            relays,
            gated,
            bucket_by,
            salt,
            gather,
            steps,
            times: Times { final_bake, condemn_after },
            halt_on,
            on_halt,
            guards,
            hook,
            releases: _,
        } = self;
        let is_loose = [
            ("mode", *mode == Mode::Enforce && next.mode == Mode::Observe),
            ("match", !is_covered(units, &next.units)),
            ("relays", *relays && !next.relays),
            ("gated", !next.gated.includes(gated)),
            ("bucket_by", *bucket_by != next.bucket_by),
            ("salt", *salt != next.salt),
            ("gather", next.gather.quiet < gather.quiet || next.gather.max < gather.max),
            ("steps", !are_as_strict(steps, &next.steps)),
            ("final_bake", next.times.final_bake < *final_bake),
            ("condemn_after", next.times.condemn_after > *condemn_after),
            ("halt_on", is_later(halt_on, &next.halt_on)),
            ("on_halt", *on_halt == OnHalt::Rollback && next.on_halt == OnHalt::Stay),
            ("guards", is_weaker(guards, &next.guards)),
            ("hook", hook.is_some() && !Hook::is_same(hook.as_ref(), next.hook.as_ref())),
        ];
        is_loose.into_iter().filter(|(_, is_loose)| *is_loose).map(|(key, _)| key).collect()
    }
}

fn is_covered(units: &UnitMatch, by: &UnitMatch) -> bool {
    units == by || by.covers(units)
}

/// Whether each client waits at least as long for each step: the steps are all there, in order, and none has
/// grown or bakes for less time. Further steps may stand between, if clients are chosen by seats alone.
fn are_as_strict(steps: &[Step], next: &[Step]) -> bool {
    let mut left = steps.iter().peekable();
    for candidate in next {
        // Behind the last step of the plan, all clients would be admitted.
        let Some(step) = left.peek() else { return true };
        let grows = candidate.threshold > step.threshold || candidate.at_least > step.at_least;
        if grows {
            return false;
        }
        if candidate.clients == step.clients && candidate.bake >= step.bake {
            left.next();
        } else if candidate.clients.is_some() {
            return false;
        }
    }
    left.peek().is_none()
}

fn is_later(halt_on: &HaltOn, next: &HaltOn) -> bool {
    // `patience` promotes nobody: a step without evidence pauses sooner or later.
    let HaltOn { rejected, rejected_percent, lost_percent, accepted_percent, patience: _, error_points } =
        *halt_on;
    next.rejected > rejected
        || next.rejected_percent > rejected_percent
        || next.lost_percent > lost_percent
        || next.accepted_percent < accepted_percent
        || error_points > 0 && (next.error_points == 0 || next.error_points > error_points)
}

fn is_weaker(guards: &Guards, next: &Guards) -> bool {
    let strength = |action| match action {
        GuardAction::Halt => 2,
        GuardAction::Warn => 1,
        GuardAction::Off => 0,
    };
    // A forgotten guard does not compile.
    let Guards { growth, unreadable, dangling, gone_while_used } = *guards;
    let pairs = [
        (growth, next.growth),
        (unreadable, next.unreadable),
        (dangling, next.dangling),
        (gone_while_used, next.gone_while_used),
    ];
    pairs.into_iter().any(|(before, after)| strength(after) < strength(before))
}

impl RolloutReport {
    /// No push is under way, nothing is held from anybody, and no order of an operator is in force.
    pub fn is_at_rest(&self) -> bool {
        self.state == RolloutState::Open && self.behind_from.is_none() && self.barred.is_empty()
    }

    /// Clients have a push by a step whose evidence is not complete.
    pub fn is_in_step(&self) -> bool {
        matches!(self.state, RolloutState::Waving | RolloutState::Paused)
    }

    /// Any other plan would begin the push anew, against the evidence or the order that stopped it.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, RolloutState::Halted | RolloutState::Paused) || !self.barred.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::rollout::plan::{BucketBy, Gated, default_steps};
    use sluice_engine::class::{NodeMatch, TextMatch};
    use sluice_setting::seconds;
    use sluice_xds::TypeUrl;

    fn plan() -> Plan {
        Plan { mode: Mode::Enforce, ..Plan::new("edge") }
    }

    fn by(change: impl FnOnce(&mut Plan)) -> Vec<&'static str> {
        let mut next = plan();
        change(&mut next);
        plan().loosened_by(&next)
    }

    fn seats(percent: u16, bake: u64) -> Step {
        Step { clients: None, threshold: percent * 100, at_least: 1, bake: Duration::from_secs(bake) }
    }

    fn labels(cluster: &str) -> Option<NodeMatch> {
        let cluster = Some(TextMatch::Exact(cluster.into()));
        Some(NodeMatch { cluster, ..NodeMatch::default() })
    }

    #[test]
    fn rel_7_a_looser_plan_is_known_by_its_keys() {
        let edge = UnitMatch { nodes: labels("edge").unwrap_or_default(), ..UnitMatch::default() };
        let type_url = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
        assert_eq!(by(|next| next.mode = Mode::Observe), ["mode"]);
        assert_eq!(by(|next| next.units = edge), ["match"]);
        let leads_relays = Plan { relays: true, ..plan() };
        assert_eq!(
            (leads_relays.loosened_by(&plan()), plan().loosened_by(&leads_relays)),
            (vec!["relays"], vec![])
        );
        assert_eq!(by(|next| next.gated = Gated::Types(vec![type_url])), ["gated"]);
        assert_eq!(by(|next| next.bucket_by = BucketBy::Zone), ["bucket_by"]);
        assert_eq!(by(|next| next.salt = "b".into()), ["salt"]);
        assert_eq!(by(|next| next.gather.quiet = seconds(0)), ["gather"]);
        assert_eq!(by(|next| next.times.final_bake = seconds(29)), ["final_bake"]);
        assert_eq!(by(|next| next.times.condemn_after = 3), ["condemn_after"]);
        assert_eq!(by(|next| next.halt_on.rejected = 1), ["halt_on"]);
        assert_eq!(by(|next| next.halt_on.rejected_percent = 2), ["halt_on"]);
        assert_eq!(by(|next| next.halt_on.lost_percent = 11), ["halt_on"]);
        assert_eq!(by(|next| next.halt_on.accepted_percent = 94), ["halt_on"]);
        assert_eq!(by(|next| next.on_halt = OnHalt::Stay), ["on_halt"]);
        assert_eq!(by(|next| next.guards.growth = GuardAction::Warn), ["guards"]);
        assert_eq!(by(|next| next.guards.dangling = GuardAction::Off), ["guards"]);
    }

    #[test]
    fn rel_7_a_stricter_plan_is_no_looser_one() {
        let none = Vec::<&str>::new();
        assert_eq!(by(|_| {}), none);
        let stricter = |next: &mut Plan| {
            (next.times.final_bake, next.gather.quiet) = (seconds(31), seconds(2));
            (next.halt_on.accepted_percent, next.halt_on.lost_percent) = (100, 0);
            (next.times.condemn_after, next.halt_on.patience) = (1, seconds(1));
        };
        assert_eq!(by(stricter), none);
        let narrow = Plan { units: UnitMatch { lists: vec!["a".into()], ..UnitMatch::default() }, ..plan() };
        assert_eq!(narrow.loosened_by(&plan()), none, "a plan for more units");
        let clusters = Gated::Types(vec![TypeUrl::of_message("envoy.config.cluster.v3.Cluster")]);
        assert_eq!(Plan { gated: clusters, ..plan() }.loosened_by(&plan()), none, "more types");
        assert_eq!(Plan { mode: Mode::Observe, ..plan() }.loosened_by(&plan()), none);
    }

    #[test]
    fn rel_7_steps_are_as_strict_if_none_has_gone_grown_or_become_shorter() {
        let before = [seats(1, 30), seats(10, 60)];
        let canary = Step { clients: labels("canary"), threshold: 0, at_least: 0, bake: seconds(60) };
        let stricter = [
            vec![seats(1, 30), seats(10, 60)],
            vec![seats(1, 31), seats(9, 60)],
            vec![seats(1, 30), seats(5, 1), seats(10, 60)],
            vec![seats(1, 30), seats(10, 60), canary.clone(), seats(90, 1)],
        ];
        for next in stricter {
            assert!(are_as_strict(&before, &next), "{next:?}");
        }
        let looser = [
            vec![],
            vec![seats(1, 30)],
            vec![seats(10, 60)],
            vec![seats(2, 30), seats(10, 60)],
            vec![seats(1, 29), seats(10, 60)],
            vec![seats(1, 30), seats(20, 1), seats(50, 60)],
            vec![Step { at_least: 2, ..seats(1, 30) }, seats(10, 60)],
            vec![canary.clone(), seats(1, 30), seats(10, 60)],
        ];
        for next in looser {
            assert!(!are_as_strict(&before, &next), "{next:?}");
        }
        let labelled = [canary.clone(), seats(10, 60)];
        assert!(!are_as_strict(&labelled, &[seats(0, 1), canary.clone(), seats(10, 60)]), "a client before");
        assert!(!are_as_strict(&labelled, &[Step { clients: labels("all"), ..canary }, seats(10, 60)]));
        assert!(are_as_strict(&default_steps(), &default_steps()));
    }
}
