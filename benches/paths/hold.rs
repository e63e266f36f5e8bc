//! The first change of known content under a plan that enforces: the source freezes all of its content (WAV-4). In wall time
//! only.

use std::sync::Arc;

use sluice_engine::Time;
use sluice_engine::lanes::{Lanes, Published};
use sluice_engine::snapshot::Snapshot;
use sluice_fleet::rollout::plan::Gated;
use sluice_xds::{TypeUrl, Variant};

use super::CLUSTER;
use super::relay::Relay;

/// A source before the first change.
pub struct Hold {
    lanes: Lanes,
    before: Arc<Snapshot>,
    after: Arc<Snapshot>,
}

impl Hold {
    /// So many clusters, of which one is about to change.
    fn new(clusters: usize) -> Hold {
        let mut relay = Relay::new();
        let type_url = TypeUrl::of_message(CLUSTER);
        relay.join(Variant::Delta);
        let request = relay.request(0, &type_url, &[]);
        relay.take(0, &request);
        relay.settle();
        let all = relay.response(&type_url, 0..clusters, 0);
        relay.receive(all);
        let lanes = Lanes::new(0, Gated::Default, 10);
        let mut hold = Hold { lanes, before: Arc::default(), after: Arc::default() };
        // The second response shows that the first was complete.
        for revision in 1..3 {
            hold.before = relay.live();
            let change = relay.response(&type_url, std::iter::once(7), revision);
            relay.receive(change);
        }
        hold.after = relay.live();
        hold
    }

    /// A source before the step of this number, from 0.
    pub fn before(step: usize, clusters: usize) -> Hold {
        let mut hold = Hold::new(clusters);
        let steps = [Hold::begin as fn(&mut Hold) -> _, Hold::cut];
        steps.iter().take(step).for_each(|step| drop(step(&mut hold)));
        hold
    }

    pub fn begin(&mut self) -> Published {
        let published = self.lanes.follow(&self.before, &self.after, Time::ZERO);
        assert!(self.lanes.is_holding(), "a change of known content");
        published
    }

    pub fn cut(&mut self) -> Published {
        self.lanes.cut(1);
        self.lanes.published(Time::ZERO)
    }

    pub fn settle(&mut self) -> Published {
        self.lanes.settle(1);
        self.lanes.published(Time::ZERO)
    }
}
