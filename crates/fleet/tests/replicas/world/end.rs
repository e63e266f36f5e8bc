//! What has to be true at the end of a schedule.

use sluice_fleet::rollout::report::Reason;
use sluice_fleet::rollout::shared::ChangeHash;
use sluice_fleet::rollout::shared::record::{CondemnedRecord, PastPush, PlanRecord, SharedState, read};
use sluice_fleet::rollout::{PushReport, RolloutState, UnitId};

use super::{CONDEMNED, Dice, RECORD, World};
use crate::contents::{Content, content, hash, hashes, is_bad};
use crate::operator::Operator;
use crate::replica::{Client, Replica};

impl World {
    /// Whether the client's unit began without older content, and has content now that was halted.
    fn waits_for_an_operator(&self, replica: &Replica, client: &Client) -> bool {
        let unit = &replica.units[&client.unit];
        // One unit with content that was halted keeps the others back.
        let report = replica.rollout.report();
        let waits = report.shared.as_ref().and_then(|shared| shared.waits);
        if self.operator.is_some() && waits == Some("an earlier push with them was halted") {
            return true;
        }
        let halted = replica.rollout.under_way().filter(|push| push.state == RolloutState::Halted);
        let is_operators = |reason: &Reason| match reason {
            Reason::Operator | Reason::Restarted => true,
            Reason::Replica { why, .. } => &**why == "an operator stopped it",
            _ => false,
        };
        let is_left = |push: &PushReport| {
            let verdict = push.verdict.as_ref().map(|verdict| &verdict.reason);
            // A blamed unit has not changed, or has its stable content again; or this unit is as it was halted.
            let has_not_changed = |unit: &UnitId| !report.waiting.contains(unit);
            push.blamed.iter().any(has_not_changed)
                || unit.latest.as_ref() == Some(&unit.live)
                || replica.alone.pushes.contains(&push.number)
                || verdict.is_some_and(is_operators)
        };
        if self.operator.is_some() && halted.is_some_and(is_left) {
            return true;
        }
        let record = self.ledger.value(RECORD).map(|value| read::<PlanRecord>(value).unwrap());
        let record = record.filter(|_| self.operator.is_some());
        let is_halted = record.as_ref().is_some_and(|record| record.state == SharedState::Halted);
        if unit.newcomer.is_some() && is_halted {
            return true;
        }
        let halt = record.and_then(|record| record.halt);
        // A restart may have come before the halted contents were written.
        if halt.is_some_and(|halt| &*halt.why == "an operator stopped it") {
            return true;
        }
        let is_past = |prefix: &str, change: ChangeHash| {
            let mut past = self.ledger.below(prefix).map(|value| read::<PastPush>(value).unwrap());
            past.any(|past| past.changed.has(change))
        };
        let mut contents = hashes(UnitId(client.unit), &unit.live);
        (unit.newcomer.is_some() || self.operator.is_some())
            && contents.any(|change| {
                // A replica that does not know the bad name cannot tell that its part is innocent.
                is_past("halted/", change) && (self.operator.is_some() || !is_past("done/", change))
            })
    }

    /// After the calm, all replicas agree, and clients have what they may have.
    pub(super) fn judge_end(&mut self) -> Result<(), String> {
        let is_good = self.live.values().flat_map(Content::values).all(|version| !is_bad(*version));
        let shared =
            self.ledger.value(CONDEMNED).map(|value| read::<CondemnedRecord>(value).unwrap().contents);
        for (number, replica) in self.replicas.iter().enumerate() {
            let is_shared = |(name, version): &&(u64, u64)| {
                let (type_url, name, version) = content(*name, *version);
                shared.as_ref().is_some_and(|shared| shared.end(&type_url, &name, version).is_some())
            };
            if let Some(missing) = replica.condemned.iter().find(|content| !is_shared(content)) {
                return Err(format!("r{number} has condemned {missing:?}, and the ledger does not know"));
            }
            for client in &replica.clients {
                let live = &replica.units[&client.unit].live;
                if *live != replica.known(client.unit, &self.live[&client.unit]) {
                    return Err(format!("r{number} has not heard its control plane"));
                }
                let state = replica.rollout.state();
                let is_excused = |(name, version): (&u64, &u64)| {
                    let change = hash(UnitId(client.unit), *name, *version);
                    let is_forced = |(_, operator): &(Dice, Operator)| operator.is_forced(change);
                    client.excused.contains(&change)
                        || self.operator.as_ref().is_some_and(is_forced)
                        || self.replicas.iter().any(|replica| replica.alone.changes.contains(&change))
                };
                let mut bad = client.content.iter().filter(|(_, version)| is_bad(**version));
                if bad.any(|entry| !is_excused(entry)) {
                    return Err(format!("r{number} ({state:?}): a client is left with {:?}", client.content));
                }
                if is_good
                    && replica.known(client.unit, &client.content) != *live
                    && !self.waits_for_an_operator(replica, client)
                {
                    let record = self.ledger.value(RECORD).map(String::from_utf8_lossy);
                    for (number, replica) in self.replicas.iter().enumerate() {
                        self.tell(|| format!("r{number} {:?}", replica.rollout.report()));
                    }
                    return Err(format!(
                        "r{number} ({state:?}): a client has {:?} and not {live:?}; {record:?}",
                        client.content
                    ));
                }
            }
        }
        Ok(())
    }
}
