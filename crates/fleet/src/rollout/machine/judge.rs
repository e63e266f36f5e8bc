//! The evidence of the admitted clients (WAV-12).

use crate::rollout::plan::{HaltOn, Plan, Step};
use crate::rollout::report::{Note, Reason};
use crate::rollout::tally::{Control, Counts, Tally};

/// A single lost stream is no evidence.
const LOST_LEAST: u64 = 2;

/// Admitted clients are lost more often than the control group by this factor.
const LOST_FACTOR: u64 = 3;

/// The reason to halt at once.
pub(super) fn against(halt_on: &HaltOn, tally: &Tally) -> Option<Reason> {
    let admitted = &tally.admitted;
    let (rejected, clients) = (admitted.rejected, admitted.affected());
    if rejected > u64::from(halt_on.rejected) && is_over(rejected, halt_on.rejected_percent, clients) {
        return Some(Reason::Rejected { rejected, clients });
    }
    let (lost, control) = (admitted.lost, tally.control);
    let is_lost =
        lost >= LOST_LEAST && is_over(lost, halt_on.lost_percent, clients) && exceeds(lost, clients, control);
    is_lost.then_some(Reason::Lost { lost, clients, control })
}

fn is_over(part: u64, percent: u32, whole: u64) -> bool {
    part.saturating_mul(100) > whole.saturating_mul(u64::from(percent))
}

/// Whether the clients of a push are lost more often than others at the same time. Without others to compare
/// with, as in the last step, more clients must be lost than stay: a rolling restart is no verdict. Lost
/// clients count as present clients, as their places may be empty or taken.
fn exceeds(lost: u64, clients: u64, control: Control) -> bool {
    if control.clients == 0 && control.lost == 0 {
        return lost > clients;
    }
    let [admitted, others] = [clients.saturating_add(lost), control.clients.saturating_add(control.lost)];
    let expected = LOST_FACTOR.saturating_mul(control.lost).saturating_mul(admitted);
    control.lost == 0 || lost.saturating_mul(others) > expected
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    Enough,
    /// No client has a voice, and none was lost.
    Nobody,
    /// Only relays have the push: time is the evidence, and people (TIR-1).
    Time,
    Lacking {
        accepted: u64,
        clients: u64,
    },
}

/// Whether the admitted clients speak for the next step. Where no client with a voice is connected, the
/// departed and the lost clients decide. Known rejecters have no voice (QUA-4), and where nobody else has a
/// voice, a push does not go on: the content may be the rejected content.
///
/// `is_away`: the labels of the step have named a client, and name none now.
pub(super) fn evidence(plan: &Plan, admitted: &Counts, is_away: bool) -> Evidence {
    let halt_on = &plan.halt_on;
    let (accepted, clients) = match admitted.evidence() {
        0 => (admitted.departed, admitted.departed + admitted.lost),
        clients => (admitted.accepted, clients),
    };
    if clients == 0 && admitted.rejected_again <= admitted.overtaken {
        return match plan.relays {
            true if is_away => Evidence::Lacking { accepted, clients },
            true if admitted.unjudged > 0 => Evidence::Time,
            _ => Evidence::Nobody,
        };
    }
    let enough = clients.saturating_mul(u64::from(halt_on.accepted_percent));
    if clients > 0 && accepted.saturating_mul(100) >= enough {
        Evidence::Enough
    } else {
        Evidence::Lacking { accepted, clients }
    }
}

/// The note of a step that nobody spoke for or against.
pub(super) fn voiceless(step: u8, admitted: &Counts) -> Note {
    let Counts { overtaken, rejected_again, .. } = *admitted;
    match admitted.affected() {
        0 => Note::NobodyInStep(step),
        _ => Note::NoVoiceInStep { step, overtaken, rejected_again },
    }
}

/// The clients with a voice that a step asks for. A single broken client does not stop a plan: where only
/// known rejecters answer, the step asks for another client (QUA-4).
pub(super) fn clients_asked(step: &Step, tally: &Tally) -> usize {
    let is_broken = tally.admitted.rejected_again > 0 && tally.admitted.evidence() == 0;
    (step.at_least as usize).max(usize::from(is_broken))
}

/// Takes over the rejections of a later count. The clients behind them were counted as pending, silent or
/// accepted before. All other counts stay: the clients have gone back since.
pub(super) fn take_late_rejections(counts: &mut Counts, later: &Counts) {
    let mut late = 0;
    let pairs = [(&mut counts.rejected, later.rejected), (&mut counts.rejected_again, later.rejected_again)];
    for (count, later) in pairs {
        late += later.saturating_sub(*count);
        *count = later.max(*count);
    }
    for before in [&mut counts.pending, &mut counts.silent, &mut counts.accepted] {
        let moved = late.min(*before);
        *before -= moved;
        late -= moved;
    }
}
