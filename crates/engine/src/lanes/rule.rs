//! The changes that a lane does not follow (WAV-3).

use std::collections::BTreeSet;

use crate::gated::flows;
use crate::snapshot::TypeSnapshot;
use crate::time::Time;
use crate::view::{View, ViewId};
use sluice_xds::{Resource, ResourceName};

/// The policy of a type.
#[derive(Debug)]
pub(super) enum HoldRule {
    /// Known content changes by releases.
    Gated,
    /// All changes flow, but endpoints that the source lost as a whole stay while the lane may name them.
    Endpoints(Named),
}

/// The endpoints that the clusters of a lane name.
#[derive(Debug)]
pub(super) enum Named {
    /// Collections of endpoints are named in payloads: any or none.
    Any(bool),
    These(BTreeSet<ResourceName>),
}

impl HoldRule {
    /// Whether a lane with `held` as the known content of a name stays there although the source has `live`
    /// now. `None`: the name is absent.
    pub fn holds(&self, name: &ResourceName, held: Option<&Resource>, live: Option<&Resource>) -> bool {
        if held.is_some_and(flows) || live.is_some_and(flows) {
            return false;
        }
        match self {
            HoldRule::Gated => true,
            HoldRule::Endpoints(named) => held.is_some() && live.is_none() && named.has(name),
        }
    }
}

impl Named {
    fn has(&self, name: &ResourceName) -> bool {
        match self {
            Named::Any(any) => *any,
            Named::These(names) => names.contains(name),
        }
    }

    /// The endpoints that these clusters name.
    pub fn by<'a>(clusters: impl Iterator<Item = &'a TypeSnapshot>) -> Named {
        let resources = clusters.flat_map(TypeSnapshot::resources);
        Named::These(resources.filter_map(|resource| resource.endpoints.clone()).collect())
    }
}

/// Counts the views, marks and releases of the lanes of a source.
#[derive(Debug)]
pub(super) struct Stamps {
    source: u64,
    count: u64,
    pub now: Time,
}

/// The source itself counts its views from 1, and never gets as far.
const LANES: u64 = 1 << 63;

impl Stamps {
    pub fn new(source: u64) -> Stamps {
        Stamps { source, count: 0, now: Time::ZERO }
    }

    pub fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    pub fn fresh(&mut self) -> ViewId {
        let number = self.number();
        ViewId::fresh(self.source, LANES | number)
    }

    /// Stamps a view that is neither the source's own nor another lane's. `live`: the source's view.
    pub fn stamp(&mut self, view: &mut View, live: &View) {
        let (id, lost) = (self.fresh(), self.fresh());
        view.stamp(id, live.changed_at(), lost);
    }
}
