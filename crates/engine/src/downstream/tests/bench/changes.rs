//! The changes that clients settle: each at most once (ADM-10).

use std::collections::BTreeMap;

use crate::downstream::tests::bench::{Bench, ClientId};
use crate::downstream::{ChangeId, Passed, RequestOutcome, SourceId, Verdict};

#[derive(Default)]
pub struct Settled(BTreeMap<(ClientId, ChangeId), &'static str>);

impl Settled {
    fn add(&mut self, client: ClientId, ids: &[ChangeId], how: &'static str) {
        for id in ids {
            let before = self.0.insert((client, *id), how);
            assert_eq!(before, None, "ADM-10: client {client} has settled {id:?} before, now {how}");
        }
    }

    pub fn judged(&mut self, client: ClientId, outcome: &RequestOutcome) {
        self.add(client, &outcome.judged.overtaken, "superseded");
        match outcome.verdict {
            Verdict::Ack { .. } => self.add(client, outcome.judged.carried.whole(), "acked"),
            Verdict::Nack { .. } => self.add(client, outcome.judged.carried.rejected(), "rejected"),
            Verdict::Stale | Verdict::None => {}
        }
    }

    pub fn passed(&mut self, client: ClientId, passed: Option<Passed>) {
        let passed = passed.unwrap_or_default();
        self.add(client, &passed.overtaken, "superseded");
        self.add(client, &passed.unneeded, "unneeded");
    }
}

impl Bench {
    pub(super) fn number_changes(&mut self) {
        for client in &mut self.clients {
            for (known, snapshot) in client.routes.last_changes.iter_mut().zip(&self.snapshots) {
                *known = snapshot.last_change();
            }
        }
    }

    /// The state of the changes of a source at a client, as `1 acked, 2 waiting`.
    pub fn changes_of(&self, client: ClientId, source: u64) -> String {
        let latest = |id: SourceId| self.snapshots.get(id.0 as usize).cloned();
        let unsettled = self.clients[client].session.unsettled_changes(&latest);
        let unsettled = unsettled.iter().map(|change| {
            let how = if change.is_overtaken { "overtaken" } else { "waiting" };
            ((client, change.id), how)
        });
        let mut all = self.settled.0.clone();
        for (key, how) in unsettled {
            let before = all.insert(key, how);
            assert_eq!(before, None, "ADM-10: {key:?} is settled");
        }
        let own = all.iter().filter(|((of, id), _)| *of == client && id.source.0 == source);
        own.map(|((_, id), how)| format!("{} {how}", id.number)).collect::<Vec<_>>().join(", ")
    }
}
