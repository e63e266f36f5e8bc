//! The words of a plan to readers and operators, which wait for the disk (WAV-8, HIS-5).

use crate::driver::ground::checkpoint_writer::StateWrite;
use crate::driver::rollout::display::{Display, ShownState};
use crate::driver::rollout::orders::Reply;

/// Holds a word back until the disk has the state behind it. Words that come while a write is under way
/// gather for the next write.
#[derive(Default)]
pub(super) struct Announcer {
    write: StateWrite,
    /// The word that the write under way is for.
    writing: Option<Word>,
    next: Option<Word>,
}

/// A state of the plan, and the answers that are true in it.
struct Word {
    shown: ShownState,
    replies: Vec<Reply>,
    /// The disk has to have the state first.
    is_kept: bool,
}

impl Word {
    fn say(self, display: &Display) {
        display.show(self.shown);
        self.replies.into_iter().for_each(Reply::send);
    }
}

impl Announcer {
    pub(super) fn add(&mut self, shown: ShownState, replies: Vec<Reply>, is_kept: bool) {
        let next = match self.next.take() {
            Some(mut word) => {
                word.replies.extend(replies);
                Word { shown, is_kept: is_kept || word.is_kept, ..word }
            }
            None => Word { shown, replies, is_kept },
        };
        self.next = Some(next);
    }

    /// Says the latest word, or lets `begin` write the state before.
    pub(super) fn send(&mut self, display: &Display, begin: impl FnOnce(&mut StateWrite)) {
        if self.write.is_under_way() {
            return;
        }
        let Some(word) = self.next.take() else { return };
        if word.is_kept {
            begin(&mut self.write);
        }
        match self.write.is_under_way() {
            true => self.writing = Some(word),
            false => word.say(display),
        }
    }

    /// Says the word of the write under way when the write has ended. Waits for ever without a write.
    /// Returns whether the write is over: if not, the state has to be written again.
    pub(super) async fn written(&mut self, display: &Display) -> bool {
        let is_over = self.write.ended().await;
        self.writing.take().into_iter().for_each(|word| word.say(display));
        is_over
    }

    /// Says all words: the plan ends, and so does its state.
    pub(super) fn finish(self, display: &Display) {
        self.writing.into_iter().chain(self.next).for_each(|word| word.say(display));
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

    /// Whether readers see that the plan is frozen, and whether a successor would hear of it.
    fn is_frozen(relay: &Relay) -> (bool, bool) {
        let status = &relay.rollouts.all(&relay.shared, &relay.tables)[0];
        let record = relay.shared.durable.plans.of("edge");
        (status.report.frozen_until.is_some(), record.is_some_and(|record| record.frozen_ms.is_some()))
    }

    /// FP3, HIS-5: the plan goes on while the disk does not. Nobody hears of what the disk does not have.
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
        assert_eq!((is_frozen(&relay), freeze.try_recv().is_err()), ((false, true), true));
        let mut unfreeze = plan.command(Command::Unfreeze, Vec::new(), false);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!((is_frozen(&relay), unfreeze.try_recv().is_err()), ((false, false), true));

        drop(disk);
        assert_eq!(freeze.await.unwrap(), Ok(()));
        assert_eq!(unfreeze.await.unwrap(), Ok(()));
        assert_eq!(is_frozen(&relay), (false, false));
        let written = || std::fs::read_to_string(parent.path().join("checkpoint/rollouts.json")).unwrap();
        assert!(written().contains("\"frozen_ms\":null"), "{}", written());

        let again = plan.command(Command::Freeze { length: HOUR }, Vec::new(), false);
        assert_eq!((again.await.unwrap(), is_frozen(&relay)), (Ok(()), (true, true)));
        // An answered word is not lost with the process.
        assert!(!written().contains("\"frozen_ms\":null"), "{}", written());
    }
}
