//! Names, shared by rows.

use foldhash::fast::RandomState;
use indexmap::{Equivalent, IndexMap, IndexSet};

use crate::report::Place;
use sluice_xds::Locality;

/// A map in the order of insertions, whatever the hashes are.
pub type Map<K, V> = IndexMap<K, V, RandomState>;

/// The identity of a cluster in reports (LRS-6).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClusterKey {
    pub name: Box<str>,
    pub service: Box<str>,
}

#[derive(Clone, Copy, Hash)]
pub struct ClusterRef<'a> {
    pub name: &'a str,
    pub service: &'a str,
}

impl ClusterRef<'_> {
    pub fn to_key(self) -> ClusterKey {
        ClusterKey { name: self.name.into(), service: self.service.into() }
    }
}

impl Equivalent<ClusterKey> for ClusterRef<'_> {
    fn equivalent(&self, key: &ClusterKey) -> bool {
        *self.name == *key.name && *self.service == *key.service
    }
}

impl Equivalent<Locality> for Place<'_> {
    fn equivalent(&self, key: &Locality) -> bool {
        self.region == key.region && self.zone == key.zone && self.sub_zone == key.sub_zone
    }
}

/// The row of a locality, or of an endpoint in a locality, by the numbers of their names (LRS-6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    pub cluster: u32,
    pub place: u32,
    pub priority: u32,
    /// `None`: the row of the locality, before the rows of the endpoints.
    pub address: Option<u32>,
}

/// Localities and addresses, by number.
#[derive(Clone, Debug, Default)]
pub struct Names {
    places: IndexSet<Locality, RandomState>,
    addresses: IndexSet<Box<[u8]>, RandomState>,
}

impl Names {
    pub fn place_number(&self, place: &Place<'_>) -> Option<u32> {
        self.places.get_index_of(place).map(|number| number as u32)
    }

    pub fn add_place(&mut self, place: &Place<'_>) -> u32 {
        self.places.insert_full(Locality::from(place)).0 as u32
    }

    pub fn place(&self, number: u32) -> Place<'_> {
        self.places.get_index(number as usize).map_or(Place::default(), Place::from)
    }

    pub fn locality(&self, number: u32) -> Locality {
        self.places.get_index(number as usize).cloned().unwrap_or_default()
    }

    pub fn address_number(&self, address: &[u8]) -> Option<u32> {
        self.addresses.get_index_of(address).map(|number| number as u32)
    }

    pub fn add_address(&mut self, address: &[u8]) -> u32 {
        self.addresses.insert_full(address.into()).0 as u32
    }

    pub fn address(&self, number: u32) -> &[u8] {
        self.addresses.get_index(number as usize).map_or(&[], |address| address)
    }
}
