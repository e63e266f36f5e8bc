//! The evidence of the clients at one moment, counted by the driver (TRU-1).

use std::sync::Arc;

use super::load::LoadEvidence;
use super::push::{Content, UnitId};
use super::seat::Seat;
pub use sluice_admin_api::rollouts::Counts;
use sluice_engine::change::NameList;
pub use sluice_engine::downstream::ClientState;
use sluice_xds::{ResourceName, TypeUrl, Version};

/// The named rejections of a tally. The counts have all rejections.
pub const REJECTIONS_MAX: usize = 100;

/// Counts a stream with a state.
pub(crate) fn count_state(counts: &mut Counts, state: ClientState, is_known_rejecter: bool) {
    *match state {
        ClientState::Unaffected => &mut counts.unaffected,
        ClientState::Accepted => &mut counts.accepted,
        ClientState::Pending => &mut counts.pending,
        ClientState::Silent => &mut counts.silent,
        ClientState::Rejected if is_known_rejecter => &mut counts.rejected_again,
        ClientState::Rejected => &mut counts.rejected,
        ClientState::Overtaken => &mut counts.overtaken,
    } += 1;
}

/// All streams of the units of a push at one moment, sorted by the admission that the machine stated last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    pub admitted: Counts,
    pub others: Counts,
    /// The streams of the plan without the push, and their ends since the push began: the control group of
    /// lost streams. In `mode: observe`, the unaffected streams.
    pub control: Control,
    /// The admitted, connected and affected streams whose nodes did not reject the push before (QUA-4). With
    /// `relays: true` relays are among them, although their ACK is no evidence.
    pub voices: u64,
    /// The smallest buckets of voices without an admission, ascending: [`Plan::at_least_max`] buckets, if
    /// there are as many, and at least a single bucket.
    ///
    /// [`Plan::at_least_max`]: super::plan::Plan::at_least_max
    pub smallest: Vec<u16>,
    /// Connected and affected streams by the step whose labels name them, from step 1.
    pub labelled: Vec<u64>,
    /// Rejections of the push, at most [`REJECTIONS_MAX`]; those of admitted streams first.
    pub rejections: Vec<Rejection>,
    /// The units whose clients rejected the push or were lost.
    pub blamed: Vec<UnitId>,
    /// The contents that were condemned since the last tally.
    pub condemned: Vec<Content>,
    /// The changed and added resources of the push that no admitted client was sent so far, by type (WAV-14).
    pub without_evidence: Vec<(TypeUrl, NameList)>,
    /// The load that clients have reported since the step began; `None`: the plan does not judge by load
    /// (LRS-24).
    pub load: Option<LoadEvidence>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    pub clients: u64,
    pub lost: u64,
}

/// A client's rejection of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub stream: u64,
    pub node: Arc<str>,
    pub unit: UnitId,
    pub seat: Seat,
    pub type_url: TypeUrl,
    /// The text of the NACK; of Secrets only its length.
    pub words: Arc<str>,
    /// The suspects of the NACK, bounded (TRU-6).
    pub suspects: Vec<(ResourceName, Version)>,
    /// The node rejected the push before, too (QUA-4).
    pub is_known_rejecter: bool,
}
