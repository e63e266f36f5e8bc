//! What outlives the relay's process: what was wanted of a server, and by which versions it knew what was held (RLY-7).

use crate::engine::Time;
use crate::engine::planted::{Bug, planted};
use crate::engine::upstream::api::Interest;
use crate::engine::upstream::machine::Upstream;
use crate::engine::upstream::names::Held;
use crate::engine::upstream::subscription::Want;
use crate::xds::{ResourceName, TypeUrl, Variant};

/// A resource that was held before the relay was restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Former {
    /// The name by which it was asked for.
    pub name: ResourceName,
    /// Its own name; the two differ for an alias (ALI-1).
    pub own: ResourceName,
    /// The server's version of it in delta; empty if there is none that could be claimed.
    pub version: Box<str>,
}

/// All that was wanted of one type, and held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resumed {
    Names(Vec<Former>),
    /// The members of a wildcard that was known as a whole.
    Wildcard(Vec<Former>),
    /// Globs that were known as a whole, each with its members.
    Globs(Vec<(ResourceName, Vec<Former>)>),
}

impl Resumed {
    pub(in crate::engine) fn interest(&self) -> Interest {
        match self {
            Resumed::Names(names) => {
                Interest::Names(names.iter().map(|former| former.name.clone()).collect())
            }
            Resumed::Wildcard(_) => Interest::Wildcard,
            Resumed::Globs(globs) => Interest::Globs(globs.iter().map(|(glob, _)| glob.clone()).collect()),
        }
    }

    /// The server will be told of everything that is held, so that it has to say what is gone (DEL-30).
    pub(in crate::engine) fn is_restated(&self) -> bool {
        let all = |list: &[Former]| list.iter().all(|former| !former.version.is_empty());
        match self {
            Resumed::Names(list) | Resumed::Wildcard(list) => all(list),
            Resumed::Globs(globs) => globs.iter().all(|(_, members)| all(members)),
        }
    }
}

impl Upstream {
    /// Wants this again and holds it, as if a stream had just been lost: the next one restates it (DEL-35, RLY-64), no
    /// resource timer runs for it (TMR-3), and what is gone is found out as after any reconnect (RLY-27).
    pub fn resume(&mut self, type_url: &TypeUrl, resumed: Resumed, now: Time) {
        self.subscribe(type_url, resumed.interest(), now);
        // Versions belong to the variant that made them (RLY-64).
        let restate = self.variant == Variant::Delta;
        let held = |former: &Former| Held::of_former(&former.version, restate);
        // It has to say what changed, which may be nothing.
        self.has_spoken = true;
        let Some(subscription) = self.subscriptions.get_mut(type_url) else { return };
        match (&mut subscription.want, &resumed) {
            (Want::Names(names), Resumed::Names(list)) if !planted(Bug::FormerNamesUnheld) => {
                for former in list {
                    names.hold(&former.name, &former.own, held(former), false);
                }
            }
            (Want::Wildcard(wildcard), Resumed::Wildcard(list)) => {
                wildcard.members.extend(list.iter().map(|former| (former.name.clone(), held(former))));
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

    /// The server's own versions of what is held of a type, by the names by which it was asked for; only those that may
    /// be claimed later (RLY-64). Sorted.
    pub fn versions(&self, type_url: &TypeUrl) -> Vec<(ResourceName, Box<str>)> {
        // What is kept is kept for the primary server of a failover.
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
