//! The complete set of a type, for clients without a stream (RST-12).

use std::sync::Arc;

use crate::Time;
use crate::downstream::answer::client_features::ClientFeatures;
use crate::downstream::answer::spelling::Refusals;
use crate::downstream::answer::{Answer, AnswerPart};
use crate::downstream::sources::SourceId;
use crate::downstream::subscription::Subscription;
use crate::downstream::subscription::part::Part;
use crate::snapshot::Snapshot;
use crate::view::View;
use sluice_xds::Variant;

impl Subscription {
    pub(in crate::downstream) fn complete_set(
        &self,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
    ) -> Option<Answer> {
        let part = |part: &Part| {
            let snapshot = latest(part.source())?;
            let types = snapshot.of(&self.type_url)?;
            let view = types.view(&part.collection).cloned()?;
            let (collection, held) = (part.collection.clone(), Arc::<View>::default());
            // The client's content is unknown, so no removed names are kept for the client.
            let (due, keeps, last_bytes) = (view.id(), Vec::new(), types.last_bytes());
            view.is_complete().then(|| AnswerPart {
                source: part.source(),
                collection,
                held,
                view,
                keeps,
                due,
                last_bytes,
                snapshot,
            })
        };
        let parts: Vec<_> = self.parts.iter().map(part).collect::<Option<_>>()?;
        let (type_url, variant) = (self.type_url.clone(), Variant::Sotw);
        let answer = Answer {
            type_url,
            variant,
            full: true,
            greeting: true,
            // A single answer never refreshes a TTL.
            features: ClientFeatures { ttl: false, ..self.features },
            told_at: Time::ZERO,
            repeats: None,
            parts,
            departed: Vec::new(),
            refused: self.refusals().map(Refusals::errors).unwrap_or_default(),
            spellings: self.spellings(),
            told_variants: self.told_variants.clone(),
            chunk: 0,
            rest: None,
            begun: 0,
        };
        // If every name is refused (NAM-5), the set is known to be empty.
        (!answer.parts.is_empty() || self.refusals().is_some()).then_some(answer)
    }
}
