//! Removals that a client is not told yet, because its routing types may still use the names (RLY-51).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::Time;
use crate::collection::CollectionKind;
use crate::downstream::order::ORDER_WAIT_MAX;
use crate::downstream::order::turn::Turn;
use crate::downstream::sources::SourceId;
use crate::view::{View, ViewId, difference};
use sluice_xds::{ResourceName, Version};

/// The wait of a removal for a change of the routing types. Control planes that send the two halves of a
/// change apart send them a few milliseconds apart at the most.
const REST: Duration = Duration::from_millis(25);

/// The maximum rest, with changes of the routing types. Nobody notices a cluster that stays for 250 ms.
const REST_MAX: Duration = Duration::from_millis(250);

/// Losses within [`REST`] of each other wait together. If there are [`APART_MAX`] losses already, losses
/// within this time wait together, so that a part has at most [`APART_MAX`] losses plus [`ORDER_WAIT_MAX`] ÷
/// this time.
const TOGETHER: Duration = Duration::from_secs(1);

/// The maximum number of resting losses that are [`REST`] apart. If a part has more losses, the client is
/// slow to ACK.
const APART_MAX: usize = 10;

/// Removals of one part that the client is not told yet.
#[derive(Clone, Debug)]
pub struct Withheld {
    source: SourceId,
    /// The view of the last search for losses.
    seen: Arc<View>,
    /// Oldest first. If empty, all removals may go, but the client was not told yet.
    losses: Vec<Loss>,
}

/// Names that the stream found gone at about the same time.
#[derive(Clone, Debug)]
struct Loss {
    /// A view that still has the names.
    base: Arc<View>,
    since: Time,
    /// The time when the last of the names was found gone.
    latest: Time,
    /// The count of carried responses at the last change of the routing types before the end of the rest.
    /// Answers of the routing types that were begun later no longer use the names.
    carried: u64,
    /// The time of that change; `None` before the first look.
    changed: Option<Time>,
}

impl Withheld {
    /// Whether these are removals of this source.
    pub(in crate::downstream) fn is_of(&self, source: SourceId) -> bool {
        self.source == source
    }

    /// One of the withheld names that the client holds, with the start of its wait; for reports.
    pub(in crate::downstream) fn first_name(&self, held: &View, view: &View) -> Option<(ResourceName, Time)> {
        let loss = self.losses.first()?;
        let (name, _) = loss.base.beside(view).find(|(name, _)| held.has(name))?;
        Some((name, loss.since))
    }

    /// The views with withheld names.
    pub(in crate::downstream) fn keeps(&self) -> Vec<Arc<View>> {
        self.losses.iter().map(|loss| loss.base.clone()).collect()
    }

    /// Identifies the client's target while the source has `view`.
    pub(in crate::downstream) fn due(&self, view: &View) -> ViewId {
        self.losses.iter().fold(view.id(), |id, loss| id.derived(("withheld", loss.base.id())))
    }

    /// Looks for losses since the last view. Losses are names that left the view, and names that the client
    /// `held` before and the server reports as gone only now, or as gone once more.
    fn lose(&mut self, part: &Holder<'_>, view: &Arc<View>, turn: &Turn<'_>) {
        let mut seen = std::mem::replace(&mut self.seen, view.clone());
        let mut late = late(part.held, &seen, view, part.kind);
        late.extend(self.lost_again(&seen, view, part.last));
        if !late.is_empty() {
            seen = Arc::new(seen.keeping(late.into_iter(), part.held.annotations()));
        } else if !seen.may_lose(view) {
            return;
        }
        let is_crowded = self.losses.len() >= APART_MAX;
        let within = if is_crowded { TOGETHER } else { REST };
        match self.losses.last_mut().filter(|last| turn.now.since(last.since) < within) {
            Some(last) => {
                let gone: Vec<_> = last.base.beside(&seen).collect();
                last.base = if gone.is_empty() {
                    seen
                } else {
                    Arc::new(seen.keeping(gone.into_iter(), last.base.annotations()))
                };
                (last.latest, last.carried, last.changed) = (turn.now, turn.carried, None);
            }
            None => self.losses.push(Loss::new(seen, turn)),
        }
    }

    /// Withheld names that returned with other content and left again between two looks, because the client
    /// did not read. `seen` is the view of the former look.
    fn lost_again(
        &self,
        seen: &View,
        view: &View,
        last: &dyn Fn(&ResourceName) -> Option<Version>,
    ) -> Vec<(ResourceName, Version)> {
        if seen.id() == view.id() {
            return Vec::new();
        }
        let gone = self.losses.iter().flat_map(|loss| loss.base.beside(view)).map(|(name, _)| name);
        let is_known = |name: &ResourceName, version| {
            let mut bases = self.losses.iter().map(|loss| &loss.base);
            bases.any(|base| base.version_of(name) == Some(version))
        };
        let again =
            gone.filter(|name| !seen.has(name)).filter_map(|name| last(&name).map(|last| (name, last)));
        again.filter(|(name, last)| !is_known(name, *last)).collect()
    }
}

/// Names of the client's content that `view` is the first to report as gone, although `seen` did not have
/// them.
fn late(held: &View, seen: &View, view: &View, kind: CollectionKind) -> Vec<(ResourceName, Version)> {
    if seen.unknown_len() == 0 || seen.id() == view.id() {
        return Vec::new();
    }
    let was_gone: BTreeSet<_> = difference(held, seen, kind).gone.into_iter().collect();
    let gone = difference(held, view, kind).gone.into_iter();
    let gone = gone.filter(|name| !seen.has(name) && !was_gone.contains(name));
    gone.filter_map(|name| held.version_of(&name).map(|version| (name, version))).collect()
}

impl Loss {
    fn new(base: Arc<View>, turn: &Turn<'_>) -> Loss {
        let (since, carried) = (turn.now, turn.carried);
        Loss { base, since, latest: since, carried, changed: None }
    }

    /// Notes the last change of the routing types. If the change came before the end of the rest, the removal
    /// waits for the change, too.
    fn note_change(&mut self, changed: Option<Time>, turn: &Turn<'_>) {
        let until = self.rests_until(self.changed);
        if self.changed < changed && until.is_none_or(|until| changed < Some(until)) {
            (self.changed, self.carried) = (changed, turn.carried);
        }
    }

    /// The end of the rest, with the last change of the routing types at `changed`; `None` if there are no
    /// routing types.
    fn rests_until(&self, changed: Option<Time>) -> Option<Time> {
        Some((self.latest.max(changed?) + REST).min(self.latest + REST_MAX))
    }
}

/// The conditions that delay a removal.
pub(in crate::downstream) struct Waits<'a> {
    /// The client may have a name that is gone from the view. Errs on the side of true.
    pub(in crate::downstream) may_lose: bool,
    /// The client may be moving to other names of another server, and then drops the former names itself.
    pub(in crate::downstream) is_leaving: bool,
    /// The latest response of this type is unanswered.
    pub(in crate::downstream) is_waiting: bool,
    /// A response of this type may be sent now.
    pub(in crate::downstream) may_tell: bool,
    /// The last change of the routing types; `None` if the client asks for none.
    pub(in crate::downstream) changed: Option<Time>,
    /// Whether the routing types have followed: the client has ACKed their content as of this count of
    /// carried responses.
    pub(in crate::downstream) may_go: &'a dyn Fn(u64) -> bool,
}

/// The part of a subscription whose removals may wait.
pub(in crate::downstream) struct Holder<'a> {
    pub(in crate::downstream) source: SourceId,
    /// The client's content.
    pub(in crate::downstream) held: &'a Arc<View>,
    pub(in crate::downstream) kind: CollectionKind,
    /// Whether an answer may be due for the view.
    pub(in crate::downstream) is_behind: bool,
    /// The version of the last bytes under a name that is gone.
    pub(in crate::downstream) last: &'a dyn Fn(&ResourceName) -> Option<Version>,
}

/// Notes names that are gone from `view`, and drops losses whose wait is over. Returns the time of the
/// next look if no event comes first.
pub(in crate::downstream) fn withhold(
    entry: &mut Option<Box<Withheld>>,
    part: &Holder<'_>,
    view: &Arc<View>,
    waits: &Waits<'_>,
    turn: &Turn<'_>,
) -> Option<Time> {
    if entry.as_ref().is_none_or(|withheld| !withheld.is_of(part.source)) {
        *entry = None;
        let rests = waits.is_waiting || waits.is_leaving || waits.changed.is_some();
        if !waits.may_lose || (!rests && (waits.may_go)(turn.carried)) {
            return None;
        }
        let gone = difference(part.held, view, part.kind).gone;
        if !gone.iter().any(|name| part.held.has(name)) {
            return None;
        }
        let losses = vec![Loss::new(part.held.clone(), turn)];
        *entry = Some(Box::new(Withheld { source: part.source, seen: view.clone(), losses }));
    }
    let withheld = entry.as_mut()?;
    withheld.lose(part, view, turn);
    withheld.losses.iter_mut().for_each(|loss| loss.note_change(waits.changed, turn));
    let is_left = |loss: &Loss| !loss.base.beside(view).any(|(name, _)| part.held.has(&name));
    let rests = |loss: &Loss| loss.rests_until(waits.changed).filter(|until| *until > turn.now);
    let may_go = |loss: &Loss| {
        let has_followed = (waits.may_go)(loss.carried);
        // Before the client can be told, it may ask for routing types that still use the names.
        waits.may_tell && rests(loss).is_none() && has_followed && (!waits.is_leaving || is_left(loss))
    };
    let first =
        withheld.losses.iter().position(|loss| loss.since + ORDER_WAIT_MAX > turn.now && !may_go(loss));
    withheld.losses.drain(..first.unwrap_or(withheld.losses.len()));
    let Some(first) = withheld.losses.first() else {
        if !part.is_behind {
            *entry = None;
        }
        return None;
    };
    Some(rests(first).unwrap_or(first.since + ORDER_WAIT_MAX))
}
