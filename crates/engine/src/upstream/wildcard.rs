//! The wildcard of one type: the members, and the completeness of the membership.

use std::collections::BTreeSet;

use imbl::OrdMap;

use super::names::HeldResource;
use crate::commons::{Commons, ContentKey, MapUse, Shared};
use crate::filling::Refilled;
use sluice_xds::ResourceName;

#[derive(Debug, Default)]
pub(super) struct Wildcard {
    /// Sources with equal members share them.
    pub(super) members: OrdMap<ResourceName, HeldResource>,
    shared: Shared,
    refilled: Refilled,
    /// The membership is known; reconnects do not change this.
    pub(super) complete: bool,
    /// Nothing that is not here exists; reconnects do not change this. Until then a complete set is
    /// provisional ([`super::confirmation`]).
    pub(super) is_confirmed: bool,
    /// Delta: members from before this stream without a version to restate. The server cannot know to remove
    /// such members. The server sends the existing members again.
    unconfirmed: BTreeSet<ResourceName>,
    /// For a glob: the number of the type's request that asked for the glob on this stream.
    pub(super) asked: Option<u64>,
}

impl Wildcard {
    /// Records the write of the delta request that restates the members.
    pub(super) fn restate(&mut self) {
        let unstated = self.members.iter().filter(|(_, held)| !held.restate);
        self.unconfirmed = unstated.map(|(name, _)| name.clone()).collect();
    }

    /// Members that the request does not claim, because it would be too long.
    pub(super) fn doubt(&mut self, members: impl IntoIterator<Item = ResourceName>) {
        self.unconfirmed.extend(members);
    }

    pub(super) fn hold(&mut self, name: &ResourceName, held: HeldResource) {
        self.unconfirmed.remove(name);
        self.members.insert(name.clone(), held);
    }

    /// A response mentions a member without a resource.
    pub(super) fn confirm(&mut self, name: &ResourceName) {
        self.unconfirmed.remove(name);
    }

    /// Returns true if the name was a member.
    pub(super) fn remove(&mut self, name: &ResourceName) -> bool {
        self.unconfirmed.remove(name);
        self.members.remove(name).is_some()
    }

    /// Takes the departed members: a full set holds only the mentioned names.
    pub(super) fn take_omitted(&mut self, mentioned: &BTreeSet<ResourceName>) -> Vec<ResourceName> {
        let omitted: Vec<_> =
            self.members.keys().filter(|name| !mentioned.contains(*name)).cloned().collect();
        for name in &omitted {
            self.members.remove(name);
        }
        omitted
    }

    /// The first answers of the stream add no knowledge any more.
    pub(super) fn is_certain(&self) -> bool {
        self.complete && self.unconfirmed.is_empty()
    }

    /// Returns true if the name is a member that the present stream confirms.
    pub(super) fn is_known(&self, name: &ResourceName) -> bool {
        self.members.contains_key(name) && !self.unconfirmed.contains(name)
    }

    /// The set is complete: takes the unconfirmed members.
    pub(super) fn settle(&mut self) -> Vec<ResourceName> {
        self.complete = true;
        let gone: Vec<_> = std::mem::take(&mut self.unconfirmed).into_iter().collect();
        for name in &gone {
            self.members.remove(name);
        }
        gone
    }

    /// Returns true if the set counts as whole, and more of it may come.
    pub(super) fn is_provisional(&self) -> bool {
        self.complete && !self.is_confirmed
    }

    /// The server has nothing to add to members that the relay restated.
    pub(super) fn confirm_by_silence(&mut self) {
        self.is_confirmed |= self.is_certain();
    }

    pub(super) fn each_held(&mut self, mut visit: impl FnMut(&ResourceName, &mut HeldResource)) {
        let names: Vec<_> = self.members.keys().cloned().collect();
        for name in &names {
            if let Some(held) = self.members.get_mut(name) {
                visit(name, held);
            }
        }
    }

    /// Takes the equal members of another source over. `content`: the content of the members.
    pub(super) fn share(&mut self, content: ContentKey, commons: &dyn Commons) {
        let fill = |members: &_| self.refilled.refill(members);
        let key = content.key(MapUse::HeldMembers);
        if let Some(members) = self.shared.share(&self.members, key, commons, fill) {
            self.members = members;
        }
    }

    pub(super) fn end_stream(&mut self) {
        self.unconfirmed.clear();
        self.asked = None;
        // The server does not send restated members again, and nothing shows the end of resources that are
        // not sent.
        if !self.complete {
            self.each_held(|_, held| held.forget_version());
        }
    }
}
