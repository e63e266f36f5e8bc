//! The complete set of a session's first type, for clients without a stream (RST-12).

use std::sync::Arc;

use super::answer::{Answer, AnswerPart};
use super::dialect::Dialect;
use super::session::Session;
use super::spelling::Refusals;
use super::subscription::{SourceId, Subscription};
use crate::engine::Time;
use crate::engine::snapshot::Snapshot;
use crate::engine::view::View;
use crate::xds::{ResourceName, Variant, Version};

impl Session {
    /// The complete set of the session's first type; `None` while a name is UNKNOWN, and before any
    /// request.
    pub fn whole(&self, latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>) -> Option<Answer> {
        let snapshots = self.served(latest);
        let served =
            |id| snapshots.iter().find(|(own, _)| *own == id).and_then(|(_, snapshot)| snapshot.clone());
        self.subscriptions().first()?.whole(&served)
    }
}

impl Subscription {
    fn whole(&self, latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>) -> Option<Answer> {
        let part = |part: &super::subscription::Part| {
            let snapshot = latest(part.source())?;
            let types = snapshot.of(&self.type_url)?;
            let view = types.view(&part.interest).cloned()?;
            let (interest, held) = (part.interest.clone(), Arc::<View>::default());
            // The client's content is unknown, so no removed names are kept for the client.
            let (due, keeps, last_bytes) = (view.id(), Vec::new(), types.last_bytes());
            view.is_complete().then(|| AnswerPart { interest, held, view, keeps, due, last_bytes, snapshot })
        };
        let parts: Vec<_> = self.parts.iter().map(part).collect::<Option<_>>()?;
        let (type_url, variant) = (self.type_url.clone(), Variant::Sotw);
        let answer = Answer {
            type_url,
            variant,
            full: true,
            greeting: true,
            // A single answer never refreshes a TTL.
            dialect: Dialect { ttl: false, ..self.dialect },
            told_at: Time::ZERO,
            repeats: None,
            parts,
            departed: Vec::new(),
            refused: self.refusals().map(Refusals::errors).unwrap_or_default(),
            spellings: self.spellings(),
            located: self.located.clone(),
            chunk: 0,
            rest: None,
            begun: 0,
        };
        // If every name is refused (NAM-5), the set is known to be empty.
        (!answer.parts.is_empty() || self.refusals().is_some()).then_some(answer)
    }
}

impl Answer {
    /// The version of a complete set (RLY-31), without a composition: composing takes as long as encoding,
    /// and each poll asks for the version first. Versions of sets are sums, so the result is the sum over
    /// the parts, less the names that several parts have.
    pub fn version_of_whole(&self) -> Version {
        let sum = |sum: Version, part: &AnswerPart| sum.plus(part.view.digest());
        let all = self.parts.iter().fold(Version::default(), sum);
        let overlaid =
            self.parts.iter().enumerate().flat_map(|(at, part)| overlaid(part, &self.parts[at + 1..]));
        overlaid.fold(all, Version::minus)
    }
}

/// The versions of names in this part that a later part overrides (SUB-12).
fn overlaid<'a>(part: &'a AnswerPart, later: &'a [AnswerPart]) -> impl Iterator<Item = Version> + 'a {
    // The first later part with a name stands for all later parts with the name.
    later.iter().enumerate().flat_map(move |(at, other)| {
        common(&part.view, &other.view)
            .filter(move |name| !later[..at].iter().any(|between| between.view.has(name)))
            .filter_map(|name| part.view.version_of(name))
    })
}

/// The common names of two views, looked up from the smaller view.
fn common<'a>(one: &'a View, other: &'a View) -> impl Iterator<Item = &'a ResourceName> {
    let (small, large) = if one.len() < other.len() { (one, other) } else { (other, one) };
    small.names().filter(|name| large.has(name))
}
