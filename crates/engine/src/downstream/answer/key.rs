//! The identity of an answer's content.

use crate::collection::CollectionKind;
use crate::downstream::answer::client_features::ClientFeatures;
use crate::view::ViewId;
use sluice_xds::Variant;

/// Identifies the content of an answer inside this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AnswerKey {
    pub(super) variant: Variant,
    pub(super) full: bool,
    pub(super) greeting: bool,
    pub(super) features: ClientFeatures,
    /// The body states that some resources are from before a restart.
    pub(super) restored: bool,
    pub(super) step: Step,
}

impl AnswerKey {
    /// A number for a table that is looked up for each client. Keys of one moment hardly share it.
    pub fn spread(&self) -> usize {
        let after = match self.step {
            Step::Plain { due, .. } => due,
            Step::Derived(view) => view,
        };
        after.count()
    }
}

/// The views before and after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Step {
    /// An answer of one part and nothing else, as nearly all updates are. Nothing is hashed, because the key
    /// is made for each client.
    Plain {
        due: ViewId,
        held: ViewId,
        kind: CollectionKind,
        last_bytes: u64,
    },
    Derived(ViewId),
}
