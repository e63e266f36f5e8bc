//! Operators speak to the replicas of a world.

use sluice_fleet::rollout::command::Promotion;
use sluice_fleet::rollout::{Command, RolloutState};

use super::World;
use crate::operator::{self, changes_of};

impl World {
    pub(super) fn order_by_chance(&mut self) {
        let Some((dice, _)) = &mut self.operator else { return };
        if dice.roll(600) < 12 {
            let number = dice.roll(self.replicas.len() as u64) as usize;
            let (command, is_here) = operator::order(dice, &self.replicas[number].rollout);
            self.order(number, command, is_here);
        }
    }

    /// Operators end what they began, at each replica.
    pub(super) fn end_orders(&mut self) {
        for number in 0..self.replicas.len() {
            let push = self.replicas[number].rollout.under_way().map_or(0, |push| push.number);
            for command in [Command::Unfreeze, Command::Unpin, Command::Resume { push }] {
                if self.operator.is_some() {
                    self.order(number, command, false);
                }
            }
        }
    }

    fn order(&mut self, number: usize, command: Command, is_here: bool) {
        let now = self.time();
        let replica = &mut self.replicas[number];
        replica.alone.is_now = is_here;
        let under_way = replica.rollout.under_way();
        let is_halted = under_way.is_some_and(|push| push.state == RolloutState::Halted);
        // A push that went alone may have had the number of a later one of the record.
        let is_recorded = |push: u64| replica.heard.as_ref().is_some_and(|record| record.push == push);
        let is_of_ledger = under_way
            .is_some_and(|push| !replica.alone.pushes.contains(&push.number) || is_recorded(push.number));
        let promoted = match &command {
            Command::Promote { to: Promotion::Step(step), .. } if *step < 3 => Some(*step),
            Command::Promote { to: Promotion::Anew, .. } => Some(1),
            // The end of a push that all clients have, too.
            Command::Promote { .. } => Some(4),
            _ => None,
        };
        let before = replica.rollout.last_push();
        let result = match is_here {
            true => replica.rollout.command_here(command.clone(), now),
            false => replica.rollout.command(command.clone(), now),
        };
        if let (Ok(()), Some((_, operator)), Some(step)) = (&result, &mut self.operator, promoted) {
            let threshold = [1_000, 5_000, 10_000, 10_000][usize::from(step) - 1];
            match (is_halted, is_here) {
                (true, true) => {
                    (replica.alone.is_next, replica.alone.next_of_all) = (true, None);
                }
                (true, false) => {
                    (replica.alone.is_next, replica.alone.next_of_all) = (false, Some(step));
                    operator.anew.insert(number);
                }
                (false, true) => {
                    replica.alone.thresholds.entry(before).or_default();
                    let highest = replica.alone.thresholds.get_mut(&before).unwrap();
                    // The ledger may have admitted more before.
                    *highest = threshold.max(*highest).max(replica.admission.threshold);
                    replica.alone.changes.extend(replica.changes());
                }
                (false, false) if is_of_ledger => {
                    operator.force(replica.changes().into_iter(), step, before);
                    if let Some(record) = replica.heard.as_ref().filter(|record| record.push == before) {
                        operator.force(changes_of(&record.changed, &self.judge.published), step, before);
                    }
                }
                (false, false) => {}
            }
        }
        if let (Ok(()), Some((_, operator))) = (&result, &mut self.operator) {
            operator.said(number, replica, &command, is_here, self.now);
        }
        let words = if is_here { " --here" } else { "" };
        self.tell(|| format!("an operator says {command:?}{words} to r{number}: {result:?}"));
        self.outputs(number);
        self.replicas[number].alone.is_now = false;
    }
}
