//! State that outlives the relay's process: the subscriptions to a server, and the server's versions of the
//! held resources (RLY-7).

use crate::engine::Time;
use crate::engine::upstream::api::Wanted;
use crate::engine::upstream::machine::Upstream;
use crate::engine::upstream::names::Held;
use crate::engine::upstream::type_request::Want;
use crate::xds::{ResourceName, TypeUrl, Variant};

/// A resource that was held before the relay was restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Former {
    /// The subscribed name.
    pub name: ResourceName,
    /// The resource's own name, which differs for an alias (ALI-1).
    pub own: ResourceName,
    /// The server's version in delta; empty if no version may be claimed.
    pub version: Box<str>,
}

/// The wanted and held resources of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resumed {
    Names(Vec<Former>),
    /// The members of a completely known wildcard.
    Wildcard(Vec<Former>),
    /// Completely known globs, each with its members.
    Globs(Vec<(ResourceName, Vec<Former>)>),
}

impl Resumed {
    pub(in crate::engine) fn wanted(&self) -> Wanted {
        match self {
            Resumed::Names(names) => Wanted::Names(names.iter().map(|former| former.name.clone()).collect()),
            Resumed::Wildcard(_) => Wanted::Wildcard,
            Resumed::Globs(globs) => Wanted::Globs(globs.iter().map(|(glob, _)| glob.clone()).collect()),
        }
    }

    /// Returns true if the next request claims everything held, so that the server has to report removals
    /// (DEL-30).
    pub(in crate::engine) fn is_restated(&self) -> bool {
        let all = |list: &[Former]| list.iter().all(|former| !former.version.is_empty());
        match self {
            Resumed::Names(list) | Resumed::Wildcard(list) => all(list),
            Resumed::Globs(globs) => globs.iter().all(|(_, members)| all(members)),
        }
    }
}

impl Upstream {
    /// Subscribes again and restores the held resources, as if a stream had just been lost. The next stream
    /// restates the resources (DEL-35, RLY-64), no resource timer runs for them (TMR-3), and removals are
    /// detected as after any reconnect (RLY-27).
    pub fn resume(&mut self, type_url: &TypeUrl, resumed: Resumed, now: Time) {
        self.subscribe(type_url, resumed.wanted(), now);
        // Versions belong to the variant that made them (RLY-64).
        let restate = self.variant == Variant::Delta;
        let held = |former: &Former| Held::of_former(&former.version, restate);
        // The server has to report changes only, and there may be none.
        self.has_spoken = true;
        let Some(subscription) = self.subscriptions.get_mut(type_url) else { return };
        match (&mut subscription.want, &resumed) {
            (Want::Names(names), Resumed::Names(list)) => {
                for former in list {
                    names.hold(&former.name, &former.own, held(former), false);
                }
            }
            (Want::Wildcard(wildcard), Resumed::Wildcard(list)) => {
                wildcard.members.extend(list.iter().map(|former| (former.name.clone(), held(former))));
                // Provisional until the server has answered: a checkpoint is no source of absence.
                wildcard.complete = true;
            }
            (Want::Globs(globs), Resumed::Globs(list)) => {
                for (glob, members) in list {
                    globs.resume(glob, members.iter().map(|former| (former.name.clone(), held(former))));
                }
            }
            _ => {}
        }
        self.check_invariants();
    }

    /// The server's own versions of the held resources of a type, by subscribed name. Only versions that may
    /// be claimed later occur (RLY-64). Sorted.
    pub fn versions(&self, type_url: &TypeUrl) -> Vec<(ResourceName, Box<str>)> {
        // The checkpoint keeps versions of the primary server only.
        if self.server() != 0 {
            return Vec::new();
        }
        let entry = |(name, held): (&ResourceName, &Held)| (name.clone(), held.version.clone());
        let is_restated = |(_, held): &(&ResourceName, &Held)| held.restate;
        match self.subscriptions.get(type_url).map(|subscription| &subscription.want) {
            Some(Want::Names(names)) => {
                let held = names.iter().filter_map(|name| Some((name, names.held(name)?)));
                held.filter(is_restated).map(entry).collect()
            }
            Some(Want::Wildcard(wildcard)) => {
                wildcard.members.iter().filter(is_restated).map(entry).collect()
            }
            Some(Want::Globs(globs)) => {
                let mut all: Vec<_> = globs.members().filter(is_restated).map(entry).collect();
                all.sort_unstable();
                all
            }
            Some(Want::Nothing) | None => Vec::new(),
        }
    }
}
