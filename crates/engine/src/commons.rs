//! One copy of equal maps of several sources (BOD-1).
//!
//! Node classes that are given the same content have equal maps of names: of versions, of the slots that
//! watch a name, and of the server's versions. A source offers its maps with [`Source::share`], and takes the
//! equal map of another source over. A map is equal or is not: so no decision of the machine depends on the
//! commons, and without commons the same inputs give the same outputs.
//!
//! [`Source::share`]: crate::source::Source::share

use std::any::Any;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use sluice_xds::Version;

/// Smaller maps are not worth an entry in the commons.
pub(crate) const SHARED_MIN: usize = 32;

/// A cache with more watched sets has clients with names of their own. Equal sets of other classes are
/// unlikely then, and an entry for each set would cost each client memory.
pub(crate) const SHARED_SETS_MAX: usize = 4;

/// The use of a map. Maps of different use are never equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MapUse {
    /// The versions of a view.
    Versions,
    /// The names of a watched set.
    Set,
    /// The slots that watch each name.
    Watchers,
    /// The server's versions of the members of a wildcard.
    HeldMembers,
    /// The server's answers for names.
    WantedNames,
}

/// The place of a map in the commons. Equal maps have equal keys; maps with equal keys may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MapKey {
    pub map_use: MapUse,
    /// The digest of the content that the map belongs to, or the id of a set.
    pub digest: u128,
    pub len: usize,
}

/// The identity of a content: the sum of its versions, and the number of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContentKey {
    pub digest: Version,
    pub len: usize,
}

impl ContentKey {
    pub fn key(self, map_use: MapUse) -> MapKey {
        MapKey { map_use, digest: self.digest.0, len: self.len }
    }
}

/// A map in the commons.
pub type CommonMap = Arc<dyn Any + Send + Sync>;

/// The maps that sources share. An entry may go at any time after the last [`CommonMap`] of a source has
/// gone.
pub trait Commons {
    fn find(&self, key: &MapKey) -> Option<CommonMap>;

    /// Adds a map, or replaces the map of this key.
    fn add(&self, key: MapKey, map: &CommonMap);
}

/// Keeps the entry of a map in the commons, as long as the owner has the map.
#[derive(Default)]
pub(crate) struct Shared(Option<CommonMap>);

impl Debug for Shared {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shared").field(&self.0.is_some()).finish()
    }
}

impl Shared {
    /// The equal map of another owner, to be used in place of this map. Without one, others may take this map
    /// from now on; `fill` may return the map in well-filled nodes first.
    pub fn share<M>(
        &mut self,
        map: &M,
        key: MapKey,
        commons: &dyn Commons,
        fill: impl FnOnce(&M) -> Option<M>,
    ) -> Option<M>
    where
        M: Clone + PartialEq + Send + Sync + 'static,
    {
        if let Some(common) = commons.find(&key)
            && let Some(equal) = common.downcast_ref::<M>().filter(|other| *other == map)
        {
            let equal = equal.clone();
            self.0 = Some(common);
            return Some(equal);
        }
        let filled = fill(map);
        let common: CommonMap = Arc::new(filled.as_ref().unwrap_or(map).clone());
        commons.add(key, &common);
        self.0 = Some(common);
        filled
    }

    /// The map has changed.
    pub fn leave(&mut self) {
        self.0 = None;
    }
}
