//! State of a session on its way from one content to another, and reports that the driver has not taken. A
//! session at rest has none.

use std::ops::Deref;

use crate::Time;
use crate::authorization::Denials;
use crate::downstream::order::turn::Snapshots;
use crate::downstream::session::endpoints::EndpointOrder;
use crate::downstream::session::refused::Kept;
use crate::downstream::subscription::carried::Passed;

/// All that a session at rest has none of, behind one pointer: every update of every client has to ask
/// whether there is any.
#[derive(Debug, Default)]
pub(super) struct Transitions(Option<Box<Transition>>);

#[derive(Debug)]
pub(super) struct Transition {
    /// The session moves to the sources of another configuration. They serve from this time on, whatever they
    /// know.
    pub(super) moves_at: Option<Time>,
    /// The snapshots of a round. The routing types have waited for the maximum time. Until they have had
    /// their turn, answers are built from the sources' own content at the start of the round (see
    /// [`Serving::served_in`](super::stand_ins::Serving::served_in)).
    pub(super) round: Option<Box<Snapshots>>,
    /// The client has other versions of refused contents.
    pub(super) kept: Option<Box<Kept>>,
    /// The endpoints of clusters that were sent.
    pub(super) endpoints: EndpointOrder,
    /// Changes that went by without a verdict, until the driver takes them.
    passed: Option<Box<Passed>>,
    /// The denials of the latest request, until the driver takes them.
    pub(super) denials: Option<Box<Denials>>,
}

static NONE: Transition = Transition::new();

impl Transition {
    const fn new() -> Transition {
        let endpoints = EndpointOrder::new();
        Transition { moves_at: None, round: None, kept: None, endpoints, passed: None, denials: None }
    }

    fn is_empty(&self) -> bool {
        self.allows_rest() && self.endpoints.is_empty() && self.passed.is_none() && self.denials.is_none()
    }

    fn allows_rest(&self) -> bool {
        self.round.is_none()
            && self.moves_at.is_none()
            && self.kept.is_none()
            && !self.endpoints.are_awaited()
    }
}

impl Deref for Transitions {
    type Target = Transition;

    fn deref(&self) -> &Transition {
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl Transitions {
    pub(super) fn get_mut(&mut self) -> Option<&mut Transition> {
        self.0.as_deref_mut()
    }

    pub(super) fn make_mut(&mut self) -> &mut Transition {
        self.0.get_or_insert_with(|| Box::new(Transition::new()))
    }

    /// Frees the memory if nothing is under way any more.
    pub(super) fn trim(&mut self) {
        self.0.take_if(|transition| transition.is_empty());
    }

    /// Whether nothing but new content can be due by these. Nearly always one look at a pointer.
    pub(super) fn allow_rest(&self) -> bool {
        self.0.as_ref().is_none_or(|transition| transition.allows_rest())
    }

    /// Ends a round: its snapshots are no longer those to serve from.
    #[inline]
    pub(super) fn end_round(&mut self) {
        if let Some(transition) = self.get_mut() {
            transition.round = None;
        }
    }

    pub(super) fn take_round(&mut self) -> Option<Box<Snapshots>> {
        self.get_mut()?.round.take()
    }

    pub(super) fn set_moves_at(&mut self, moves_at: Option<Time>) {
        if moves_at.is_some() || self.moves_at.is_some() {
            self.make_mut().moves_at = moves_at;
        }
    }

    pub(super) fn set_kept(&mut self, kept: Kept) {
        if !kept.is_empty() || self.kept.is_some() {
            self.make_mut().kept = (!kept.is_empty()).then(|| Box::new(kept));
        }
    }

    /// Notes changes that went by without a verdict.
    pub(super) fn pass(&mut self, passed: Box<Passed>) {
        match &mut self.make_mut().passed {
            Some(earlier) => {
                earlier.overtaken.extend(passed.overtaken);
                earlier.unneeded.extend(passed.unneeded);
            }
            none => *none = Some(passed),
        }
    }

    pub(super) fn take_passed(&mut self) -> Option<Box<Passed>> {
        let passed = self.get_mut()?.passed.take();
        self.trim();
        passed
    }

    pub(super) fn take_denials(&mut self) -> Option<Box<Denials>> {
        let denials = self.get_mut()?.denials.take();
        self.trim();
        denials
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_transitions_ends_with_the_last() {
        let mut transitions = Transitions::default();
        transitions.set_moves_at(None);
        transitions.set_kept(Kept::new());
        assert!(transitions.0.is_none() && transitions.take_passed().is_none());
        transitions.set_moves_at(Some(Time::ZERO));
        transitions.pass(Box::default());
        assert!(!transitions.allow_rest());
        transitions.set_moves_at(None);
        assert!(transitions.allow_rest());
        assert!(transitions.take_passed().is_some() && transitions.0.is_none());
    }
}
