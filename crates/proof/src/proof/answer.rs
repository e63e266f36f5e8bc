//! The answers of members that differ from their class: which members differ in the same way (PRF-27).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::comparison::{Stance, is_same};
use super::history::NameKey;
use super::input::Wanted;
use super::meaning::Meanings;

/// Names to compare between two answers.
const NAMES_MAX: usize = 32;

/// The states of one type that a member was shown, and the class was not. A name without a state is
/// undecided.
#[derive(Clone, Debug, PartialEq)]
pub struct DifferingAnswer {
    states: BTreeMap<NameKey, Option<Stance>>,
    wants: Arc<[Wanted]>,
}

impl DifferingAnswer {
    pub fn new(mut states: BTreeMap<NameKey, Option<Stance>>, wants: Arc<[Wanted]>) -> DifferingAnswer {
        while states.len() > NAMES_MAX {
            states.pop_last();
        }
        DifferingAnswer { states, wants }
    }

    /// Whether all states are decided, and there are some.
    pub fn is_decided(&self) -> bool {
        !self.states.is_empty() && self.states.values().all(Option::is_some)
    }

    /// The decided states.
    pub fn states(&self) -> impl Iterator<Item = (&NameKey, Stance)> {
        self.states.iter().filter_map(|(key, stance)| Some((key, (*stance)?)))
    }

    /// Whether both members may not be in one class: one was shown a state that the other was not, under a
    /// name that both ask for. What is undecided, or encoded at random and not compared, is no reason.
    pub fn is_unlike(&self, other: &DifferingAnswer, meanings: &Meanings) -> bool {
        self.has_unlike(other, meanings) || other.has_unlike(self, meanings)
    }

    /// Whether the member was shown another state than the class, under a name that these wants ask for: an
    /// equal member is no evidence about a name that nobody asked for as this member.
    pub fn is_seen_by(&self, wants: &[Wanted]) -> bool {
        self.states().any(|(key, _)| is_asked_for(key, wants))
    }

    /// Whether nobody knows if both members were shown the same under some name, because equal content is
    /// encoded at random.
    pub fn is_uncompared(&self, other: &DifferingAnswer, meanings: &Meanings) -> bool {
        self.states().any(|(key, one)| {
            let other = other.states.get(key).copied().flatten();
            meanings.is_encoded_at_random(&key.type_url)
                && other.is_some_and(|other| is_same(key, one, other, meanings).is_none())
        })
    }

    fn has_unlike(&self, other: &DifferingAnswer, meanings: &Meanings) -> bool {
        self.states.iter().any(|(key, stance)| match (stance, other.states.get(key)) {
            (Some(one), Some(Some(other))) => is_same(key, *one, *other, meanings)
                .map_or(!meanings.is_encoded_at_random(&key.type_url), |is_same| !is_same),
            (Some(_), None) => other.is_like_class(key),
            (None, _) | (_, Some(None)) => false,
        })
    }

    /// Whether the member asks for the name, and has the state of the class.
    fn is_like_class(&self, key: &NameKey) -> bool {
        let is_kept =
            self.states.len() < NAMES_MAX || self.states.last_key_value().is_some_and(|last| key < last.0);
        is_kept && is_asked_for(key, &self.wants)
    }
}

fn is_asked_for(key: &NameKey, wants: &[Wanted]) -> bool {
    let is_part =
        |part: &Wanted| part.0 == key.type_url && part.1.kind() == key.kind && part.1.covers(&key.name);
    wants.iter().any(is_part)
}
