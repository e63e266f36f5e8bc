//! The answers to operators, which wait for the disk: an answered word is not lost with the process (HIS-5).

use crate::driver::ground::checkpoint_writer::StateWrite;
use crate::driver::rollout::orders::Reply;

/// Holds answers back until the disk has the state behind them. Answers that come while a write is under way
/// gather for the next write.
#[derive(Default)]
pub(super) struct Announcer {
    write: StateWrite,
    /// The answers that the write under way is for.
    writing: Vec<Reply>,
    next: Vec<Reply>,
    /// The state has changed since the write under way began.
    is_due: bool,
}

impl Announcer {
    /// Whether the disk lacks a state that was kept.
    pub(super) fn is_unsaved(&self) -> bool {
        self.is_due || self.write.is_under_way()
    }

    /// Adds answers. `is_kept`: the state behind them has been kept for the next write.
    pub(super) fn add(&mut self, replies: Vec<Reply>, is_kept: bool) {
        self.next.extend(replies);
        self.is_due |= is_kept;
    }

    /// Lets `begin` write the state, if that is due and no write is under way. Sends the answers that wait
    /// for no write.
    pub(super) fn go_on(&mut self, begin: impl FnOnce(&mut StateWrite)) {
        if self.write.is_under_way() {
            return;
        }
        if std::mem::take(&mut self.is_due) {
            begin(&mut self.write);
        }
        let answers = std::mem::take(&mut self.next);
        match self.write.is_under_way() {
            true => self.writing = answers,
            false => answers.into_iter().for_each(Reply::send),
        }
    }

    /// Waits for the end of the write under way, for ever if there is none, and sends the answers. Returns
    /// whether the write is over: if not, the state has to be written again.
    pub(super) async fn written(&mut self) -> bool {
        let is_over = self.write.ended().await;
        self.writing.drain(..).for_each(Reply::send);
        is_over
    }

    /// Sends all answers: the plan ends, and so does its state.
    pub(super) fn finish(self) {
        self.writing.into_iter().chain(self.next).for_each(Reply::send);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::driver::ground::checkpoint_writer::{CheckpointSettings, INTERVAL, MAX_AGE};
    use crate::driver::ground::context::DriverSettings;
    use crate::driver::relay::handle::Relay;
    use crate::driver::stream::state::tests::relay_with;
    use sluice_fleet::rollout::{Command, Mode, Plan};

    const HOUR: Duration = Duration::from_secs(3_600);

    /// Whether readers see that the plan is frozen, and that the disk lacks that; and whether a successor
    /// would hear of a freeze.
    fn frozen(relay: &Relay) -> (bool, bool, bool) {
        let status = &relay.rollouts.all(&relay.shared, &relay.tables)[0];
        let record = relay.shared.durable.plans.of("edge");
        let is_passed_on = record.is_some_and(|record| record.frozen_ms.is_some());
        (status.report.frozen_until.is_some(), status.is_unsaved, is_passed_on)
    }

    /// FP3, HIS-5: the plan goes on while the disk does not, and only the answers to operators wait.
    #[tokio::test(start_paused = true)]
    async fn fp_3_a_disk_that_hangs_holds_up_answers_and_no_decision() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("checkpoint");
        let checkpoint =
            Some(CheckpointSettings { directory, interval: INTERVAL.default, max_age: MAX_AGE.default });
        let rollouts = vec![Arc::new(Plan { mode: Mode::Enforce, ..Plan::new("edge") })];
        let relay = relay_with(|settings| DriverSettings { rollouts, checkpoint, ..settings });
        let plan = relay.shared.plans.all()[0].clone();

        let disk = relay.pause_checkpoint().await.unwrap();
        let mut freeze = plan.command(Command::Freeze { length: HOUR }, Vec::new(), false);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!((frozen(&relay), freeze.try_recv().is_err()), ((true, true, true), true));
        let mut unfreeze = plan.command(Command::Unfreeze, Vec::new(), false);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!((frozen(&relay), unfreeze.try_recv().is_err()), ((false, true, false), true));

        drop(disk);
        assert_eq!(freeze.await.unwrap(), Ok(()));
        assert_eq!(unfreeze.await.unwrap(), Ok(()));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(frozen(&relay), (false, false, false));
        let written = || std::fs::read_to_string(parent.path().join("checkpoint/rollouts.json")).unwrap();
        assert!(written().contains("\"frozen_ms\":null"), "{}", written());

        let again = plan.command(Command::Freeze { length: HOUR }, Vec::new(), false);
        assert_eq!(again.await.unwrap(), Ok(()));
        assert!(frozen(&relay).0);
        // An answered word is not lost with the process.
        assert!(!written().contains("\"frozen_ms\":null"), "{}", written());
    }
}
