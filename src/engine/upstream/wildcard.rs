//! The wildcard of one type: its members, and from when on they are all there.

use std::collections::{BTreeMap, BTreeSet};

use super::names::Held;
use crate::engine::planted::{Bug, planted};
use crate::xds::ResourceName;

#[derive(Debug, Default)]
pub(super) struct Wildcard {
    pub(super) members: BTreeMap<ResourceName, Held>,
    /// The membership is known; reconnects don't change that.
    pub(super) complete: bool,
    /// Delta: members held from before this stream without a version to restate, so that the server can't know to
    /// remove them. It sends them again if they still exist.
    unconfirmed: BTreeSet<ResourceName>,
    /// Of a glob: the number of the request of its type that asked for it on this stream.
    pub(super) asked: Option<u64>,
}

impl Wildcard {
    /// The delta request that restates the members is written now.
    pub(super) fn restated(&mut self) {
        let unstated = self.members.iter().filter(|(_, held)| !held.restate);
        self.unconfirmed = unstated.map(|(name, _)| name.clone()).collect();
    }

    pub(super) fn hold(&mut self, name: &ResourceName, held: Held) {
        self.unconfirmed.remove(name);
        self.members.insert(name.clone(), held);
    }

    /// A member that a response mentions without bringing it.
    pub(super) fn confirm(&mut self, name: &ResourceName) {
        self.unconfirmed.remove(name);
    }

    /// Whether it was a member.
    pub(super) fn remove(&mut self, name: &ResourceName) -> bool {
        self.unconfirmed.remove(name);
        self.members.remove(name).is_some()
    }

    /// A full set holds only the mentioned names: takes the members that left.
    pub(super) fn take_omitted(&mut self, mentioned: &BTreeSet<ResourceName>) -> Vec<ResourceName> {
        let omitted: Vec<_> =
            self.members.keys().filter(|name| !mentioned.contains(*name)).cloned().collect();
        for name in &omitted {
            self.members.remove(name);
        }
        omitted
    }

    /// The first answers of the stream tell nothing any more.
    pub(super) fn is_certain(&self) -> bool {
        self.complete && self.unconfirmed.is_empty()
    }

    /// Whether it is a member of which the present stream has told.
    pub(super) fn is_known(&self, name: &ResourceName) -> bool {
        self.members.contains_key(name) && !self.unconfirmed.contains(name)
    }

    /// The set is there: takes the members that were not confirmed.
    pub(super) fn settle(&mut self) -> Vec<ResourceName> {
        self.complete = true;
        let mut gone: Vec<_> = std::mem::take(&mut self.unconfirmed).into_iter().collect();
        if planted(Bug::UnconfirmedMembersStay) {
            gone.clear();
        }
        for name in &gone {
            self.members.remove(name);
        }
        gone
    }

    pub(super) fn stream_ended(&mut self) {
        self.unconfirmed.clear();
        self.asked = None;
        // What is restated isn't sent again, and of what isn't sent nothing says when it is all there.
        if !self.complete {
            self.members.values_mut().for_each(Held::forget_version);
        }
    }
}
