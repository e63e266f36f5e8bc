//! The comparisons of replicas of a server, by the node of one class (PRF-18).

use std::collections::BTreeMap;

use super::classes::ClassFollower;
use super::shadows::OpenShadows;
use crate::driver::api::proof::{ReplicaComparison, ReplicaDifference};
use sluice_engine::Time;
use sluice_proof::proof::{ClassKey, Happening};

/// The latest comparison of each class.
#[derive(Default)]
pub(super) struct ReplicaLog(BTreeMap<ClassKey, ReplicaComparison>);

impl ReplicaLog {
    /// Notes the end of a comparison. Both sides are still open, so that they can be named.
    pub fn note(
        &mut self,
        happening: &Happening,
        classes: &ClassFollower,
        shadows: &OpenShadows,
        now: Time,
    ) -> Option<&ReplicaComparison> {
        let (class, shadow, disagree) = match happening {
            Happening::ReplicasAgree { class, shadow, ends_disagreement: _ } => (class, shadow, None),
            Happening::ReplicasDisagree { class, shadow, type_url, names } => {
                let difference = ReplicaDifference { type_url: type_url.clone(), names: names.clone() };
                (class, shadow, Some(difference))
            }
            _ => return None,
        };
        self.0.retain(|class, _| classes.source(class).is_some());
        let comparison = ReplicaComparison {
            at: now,
            class: classes.source(class)?.replica(),
            other: shadows.replica(*shadow)?,
            disagree,
        };
        self.0.insert(class.clone(), comparison);
        self.0.get(class)
    }

    /// The comparisons so far.
    pub fn all(&self) -> BTreeMap<ClassKey, ReplicaComparison> {
        self.0.clone()
    }
}
