//! The evidence of the clients at one moment, counted by the driver (TRU-1).

use std::ops::{Add, AddAssign};
use std::sync::Arc;

use super::push::{Condemned, UnitId};
use super::seat::Seat;
use sluice_engine::change::NameList;
pub use sluice_engine::downstream::ClientState;
use sluice_xds::{ResourceName, TypeUrl, Version};

/// The named rejections of a tally. The counts have all rejections.
pub const REJECTIONS_MAX: usize = 100;

/// Declares [`Counts`], with the order of the counts in JSON.
macro_rules! counts {
    ($($(#[$doc:meta])* $field:ident,)+) => {
        /// The streams of a group by standing. The sums are of streams, not of nodes.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $field: u64,)+
        }

        impl Counts {
            /// All counts with their names in JSON.
            pub fn named(&self) -> [(&'static str, u64); [$(stringify!($field)),+].len()] {
                [$((stringify!($field), self.$field)),+]
            }
        }

        impl AddAssign for Counts {
            fn add_assign(&mut self, other: Counts) {
                $(self.$field += other.$field;)+
            }
        }
    };
}

counts! {
    accepted,
    pending,
    /// Rejections by nodes that did not reject the push before.
    rejected,
    /// Rejections by nodes that rejected the push before, too: no evidence (QUA-4).
    rejected_again,
    silent,
    unaffected,
    overtaken,
    /// Ends of streams within 60 s of the push, not by age, drain, limits or the operator, of the last ten
    /// minutes. A client that comes back and is lost again counts each time.
    lost,
    /// Nodes with an acceptance and without a stream now, but not lost: an acceptance outlives the stream.
    departed,
    /// Relays, whose ACK means structure (TIR-1).
    unjudged,
}

impl Counts {
    /// The connected streams that the push has something for, without relays.
    pub fn affected(&self) -> u64 {
        self.evidence() + self.rejected_again + self.overtaken
    }

    /// The streams whose state speaks for or against the push.
    pub fn evidence(&self) -> u64 {
        self.accepted + self.pending + self.rejected + self.silent
    }

    /// The streams that were certainly sent the push.
    pub fn answered(&self) -> u64 {
        self.accepted + self.rejected + self.rejected_again + self.silent
    }

    /// Takes over the rejections of a later count. The clients behind them were counted as pending, silent or
    /// accepted before. All other counts stay: the clients have gone back since.
    pub fn take_late_rejections(&mut self, later: &Counts) {
        let mut late = 0;
        for (count, later) in
            [(&mut self.rejected, later.rejected), (&mut self.rejected_again, later.rejected_again)]
        {
            late += later.saturating_sub(*count);
            *count = later.max(*count);
        }
        for before in [&mut self.pending, &mut self.silent, &mut self.accepted] {
            let moved = late.min(*before);
            *before -= moved;
            late -= moved;
        }
    }

    pub fn count(&mut self, state: ClientState, is_known_rejecter: bool) {
        *match state {
            ClientState::Unaffected => &mut self.unaffected,
            ClientState::Accepted => &mut self.accepted,
            ClientState::Pending => &mut self.pending,
            ClientState::Silent => &mut self.silent,
            ClientState::Rejected if is_known_rejecter => &mut self.rejected_again,
            ClientState::Rejected => &mut self.rejected,
            ClientState::Overtaken => &mut self.overtaken,
        } += 1;
    }
}

impl Add for Counts {
    type Output = Counts;

    fn add(mut self, other: Counts) -> Counts {
        self += other;
        self
    }
}

/// All streams of the units of a push at one moment, sorted by the admission that the machine stated last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    pub admitted: Counts,
    pub others: Counts,
    /// The streams of the plan without the push, and their ends since the push began: the control group of
    /// lost streams. In `mode: observe`, the unaffected streams.
    pub control: Control,
    /// The admitted, connected and affected streams whose nodes did not reject the push before (QUA-4).
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
    pub condemned: Vec<Condemned>,
    /// The changed and added resources of the push that no admitted client was sent so far, by type (WAV-14).
    pub without_evidence: Vec<(TypeUrl, NameList)>,
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
