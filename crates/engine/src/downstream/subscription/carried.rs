//! The changes of sources that responses carry to the client (ADM-10).
//!
//! A session settles each change that its sources publish while it watches the changed content: the client
//! ACKs or rejects the change, or a later change overtakes it, or nothing has to be sent. Content that a
//! source had at the time of the subscription is no change for the session.

use crate::downstream::answer::Answer;
use crate::downstream::order::turn::Turn;
use crate::downstream::sources::ChangeId;
use crate::downstream::subscription::part::Part;
use crate::downstream::subscription::parts::PartList;
use sluice_xds::TypeUrl;

/// The changes in a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Carried {
    #[default]
    Nothing,
    /// Nearly always.
    One(ChangeId),
    /// Several parts have news, or more messages of the answer follow.
    More(Box<More>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct More {
    ids: Vec<ChangeId>,
    /// Only the last message of an answer brings a change as a whole.
    is_last: bool,
}

impl Carried {
    fn of(ids: Vec<ChangeId>, is_last: bool) -> Carried {
        match ids.as_slice() {
            [] => Carried::Nothing,
            [id] if is_last => Carried::One(*id),
            _ => Carried::More(Box::new(More { ids, is_last })),
        }
    }

    fn ids(&self) -> &[ChangeId] {
        match self {
            Carried::Nothing => &[],
            Carried::One(id) => std::slice::from_ref(id),
            Carried::More(more) => &more.ids,
        }
    }

    /// The changes that the client has as a whole with this response.
    pub fn whole(&self) -> &[ChangeId] {
        match self {
            Carried::More(more) if !more.is_last => &[],
            _ => self.ids(),
        }
    }

    /// The changes that the client rejects with this response, also with a part of them.
    pub fn rejected(&self) -> &[ChangeId] {
        self.ids()
    }

    /// Removes changes that the client has rejected already.
    pub(super) fn drop_all(&mut self, rejected: &[ChangeId]) {
        if self.ids().iter().any(|id| rejected.contains(id)) {
            let is_last = !matches!(self, Carried::More(more) if !more.is_last);
            let left = self.ids().iter().filter(|id| !rejected.contains(id)).copied().collect();
            *self = Carried::of(left, is_last);
        }
    }
}

/// Changes that a session settled without a verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// The client was sent a later change instead, or answered a later response only.
    pub overtaken: Vec<ChangeId>,
    /// Nothing had to be sent: the client had the content.
    pub unneeded: Vec<ChangeId>,
}

impl Passed {
    pub fn add_overtaken(passed: &mut Option<Box<Passed>>, overtaken: &[ChangeId]) {
        if !overtaken.is_empty() {
            passed.get_or_insert_default().overtaken.extend(overtaken);
        }
    }
}

/// A change that a session has not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsettled {
    pub id: ChangeId,
    /// A later change will overtake this one.
    pub is_overtaken: bool,
}

impl PartList {
    /// Notes a message of an answer, the `is_last` of its answer. Returns the changes in the message.
    /// `has_message`: the answer has messages at all. Every update of every client comes here.
    pub(super) fn carry(
        &mut self,
        answer: &Answer,
        is_last: bool,
        has_message: bool,
        passed: &mut Option<Box<Passed>>,
    ) -> Carried {
        if let ([part], [answered], true) = (&mut **self, &*answer.parts, is_last && has_message) {
            let changes = answered.view.changes();
            let Some(number) = changes.latest_after(part.seen) else { return Carried::Nothing };
            if !changes.has_overtaken_after(part.seen) {
                part.seen = number;
                return Carried::One(ChangeId { source: part.source(), number });
            }
        }
        self.carry_several(answer, is_last, has_message, passed)
    }

    #[inline(never)]
    fn carry_several(
        &mut self,
        answer: &Answer,
        is_last: bool,
        has_message: bool,
        passed: &mut Option<Box<Passed>>,
    ) -> Carried {
        let mut carried = Carried::Nothing;
        let mut overtaken = Vec::new();
        for (part, answered) in self.iter_mut().zip(&answer.parts) {
            let changes = answered.view.changes();
            let Some(number) = changes.latest_after(part.seen) else { continue };
            let source = part.source();
            let id = ChangeId { source, number };
            if is_last {
                overtaken
                    .extend(changes.overtaken_after(part.seen).map(|number| ChangeId { source, number }));
                part.seen = number;
            }
            // Names of two styles are two parts of one source.
            carried = match carried {
                Carried::Nothing if is_last => Carried::One(id),
                carried if carried.ids().contains(&id) => carried,
                carried => Carried::of(carried.ids().iter().copied().chain([id]).collect(), is_last),
            };
        }
        if !overtaken.is_empty() {
            overtaken.sort_unstable();
            overtaken.dedup();
            overtaken.retain(|id| !carried.ids().contains(id));
        }
        if has_message {
            Passed::add_overtaken(passed, &overtaken);
            return carried;
        }
        let unneeded: Vec<_> = overtaken.iter().chain(carried.ids()).copied().collect();
        if !unneeded.is_empty() {
            passed.get_or_insert_default().unneeded.extend(unneeded);
        }
        Carried::Nothing
    }

    /// The changes that an answer brings, for a report about its body.
    pub(super) fn changes_in(&self, answer: &Answer) -> impl Iterator<Item = ChangeId> {
        let parts = self.iter().zip(&answer.parts);
        parts.filter_map(|(part, answered)| {
            let number = answered.view.changes().latest_after(part.seen)?;
            Some(ChangeId { source: part.source(), number })
        })
    }

    /// The client rejected a part of these changes: the rest of the answer brings none of them.
    pub(super) fn give_up_changes(&mut self, rejected: &[ChangeId]) {
        for id in rejected {
            for part in self.iter_mut().filter(|part| part.source() == id.source) {
                part.seen = part.seen.max(id.number);
            }
        }
    }

    /// The changes that the client has not answered or not been sent. `unanswered`: those in unanswered
    /// responses; `pending`: an unfinished answer.
    pub(super) fn unsettled<'a>(
        &self,
        type_url: &TypeUrl,
        unanswered: impl Iterator<Item = &'a Carried>,
        pending: Option<&Answer>,
        turn: &Turn<'_>,
    ) -> Vec<Unsettled> {
        let sent = unanswered.flat_map(|carried| carried.whole());
        let mut all: Vec<_> = sent.map(|id| Unsettled { id: *id, is_overtaken: false }).collect();
        let mut add = |part: &Part, number, is_overtaken| {
            let id = ChangeId { source: part.source(), number };
            if !all.iter().any(|unsettled| unsettled.id == id) {
                all.push(Unsettled { id, is_overtaken });
            }
        };
        let changes_of = |part: &Part| part.view_in(turn, type_url).map(|view| view.changes());
        for (index, part) in self.iter().enumerate() {
            // The rest of an answer goes out before a newer answer begins.
            let pending = pending.and_then(|answer| answer.parts.get(index));
            let pending = pending.and_then(|answered| answered.view.changes().latest_after(part.seen));
            let latest = changes_of(part).and_then(|changes| changes.latest_after(part.seen));
            pending.into_iter().chain(latest).for_each(|number| add(part, number, false));
        }
        for part in self {
            let overtaken =
                changes_of(part).into_iter().flat_map(|changes| changes.overtaken_after(part.seen));
            overtaken.for_each(|number| add(part, number, true));
        }
        all
    }
}
