//! Lanes of the first source, with clients that are admitted by hand.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::downstream::SourceId;
use crate::downstream::tests::bench::{Bench, CDS, ClientId, EDS, LDS, RDS};
use crate::gated::Gated;
use crate::lanes::{Lanes, Published};
use crate::snapshot::Snapshot;

/// The releases that are kept.
const HISTORY: usize = 3;

pub struct LaneBench {
    pub of: Lanes,
    pub published: Published,
    pub push: u64,
    pub admitted: BTreeSet<ClientId>,
}

/// Two clients of wildcards, one in each variant, that have a cluster and its routes.
pub fn fleet() -> (Bench, ClientId, ClientId) {
    let mut bench = Bench::files(&FIRST);
    let (sotw, delta) = (bench.sotw(), bench.delta());
    for message in [CDS, LDS] {
        bench.ask(sotw, message, "");
        bench.change(delta, message, "+*");
    }
    for (message, list) in [(EDS, "a b"), (RDS, "r")] {
        bench.ask(sotw, message, list);
        let list: Vec<_> = list.split(' ').map(|name| format!("+{name}")).collect();
        bench.change(delta, message, &list.join(" "));
    }
    bench.drain(sotw);
    bench.drain(delta);
    bench.hold();
    (bench, sotw, delta)
}

pub const FIRST: [(&str, &str); 4] = [(CDS, "a=e1"), (EDS, "a=1 b=1"), (LDS, "l=1"), (RDS, "r=a.1")];

impl Bench {
    /// From now on pushes of the first source go by steps.
    pub fn hold(&mut self) {
        let live = self.snapshots[0].clone();
        let mut of = Lanes::new(0, Gated::Default, HISTORY);
        let published = of.follow(&live, &live, self.now);
        self.lanes = Some(LaneBench { of, published, push: 0, admitted: BTreeSet::new() });
    }

    fn operate(&mut self, operation: impl FnOnce(&mut Lanes)) {
        let lanes = self.lanes.as_mut().unwrap();
        operation(&mut lanes.of);
        lanes.published = lanes.of.published(self.now);
    }

    /// The source's content becomes the next push, for these clients.
    pub fn cut(&mut self, admitted: &[ClientId]) {
        let lanes = self.lanes.as_mut().unwrap();
        lanes.push += 1;
        lanes.admitted = admitted.iter().copied().collect();
        let push = lanes.push;
        self.operate(|lanes| {
            lanes.cut(push);
            lanes.give(push);
        });
    }

    /// The push goes on to these clients, too.
    pub fn admit(&mut self, clients: &[ClientId]) {
        self.lanes.as_mut().unwrap().admitted.extend(clients);
    }

    /// The push under way is halted, and stands: no client was sent anything of it.
    pub fn halt(&mut self) {
        self.lanes.as_mut().unwrap().admitted.clear();
    }

    /// The push under way has reached everybody.
    pub fn finish(&mut self) {
        let push = self.lanes.as_ref().unwrap().push;
        self.operate(|lanes| lanes.settle(push));
    }

    /// The push under way goes back.
    pub fn abort(&mut self) {
        let push = self.lanes.as_ref().unwrap().push;
        self.operate(|lanes| lanes.go_back(push));
    }

    pub fn end_lanes(&mut self) {
        self.operate(Lanes::release);
    }

    /// The release of this push serves everybody.
    pub fn pin(&mut self, push: u64) {
        let lanes = self.lanes.as_ref().unwrap();
        let release = lanes.of.released().find(|release| release.push == push).unwrap().clone();
        self.operate(|lanes| lanes.serve(&release));
    }

    /// The content of the push under way.
    pub fn candidate(&self) -> Arc<Snapshot> {
        let lanes = self.lanes.as_ref().unwrap();
        lanes.published.candidate_of(lanes.push).unwrap().clone()
    }

    pub fn is_holding(&self) -> bool {
        self.lanes.as_ref().unwrap().of.is_holding()
    }

    /// The latest push that went back, for a client that rejected it.
    pub fn restate(&mut self, client: ClientId) {
        let restated = self.lanes.as_ref().unwrap().published.restated.clone();
        self.clients[client].session.restate(SourceId(0), restated.unwrap());
    }

    /// The snapshots for a client.
    pub fn picked(&self, client: ClientId) -> Vec<Arc<Snapshot>> {
        let mut snapshots = self.snapshots.clone();
        if let Some(lanes) = &self.lanes {
            let is_admitted = lanes.admitted.contains(&client);
            snapshots[0] = lanes.published.pick(|push| push == lanes.push && is_admitted).clone();
        }
        snapshots
    }
}
