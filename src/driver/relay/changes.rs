//! The changes of all sources, for the operator (ADM-10).

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::driver::api::change_name::ChangeName;
use crate::driver::api::changes::{ChangeFilter, ChangePlace, ChangeStatus, ChangesView};
use crate::driver::relay::Relay;
use crate::driver::source::changes::TrackedChange;
use crate::driver::source::handle::SourceHandle;
use crate::driver::stream::private_part::shared_source;
use crate::engine::downstream::{SourceId, Subscription};

/// The number of streams between two turns of other tasks (ADM-6).
const STREAMS_PER_TURN: usize = 64;

/// A remembered change, with its source.
struct Found {
    place: ChangePlace,
    source: Arc<SourceHandle>,
    change: Arc<TrackedChange>,
}

impl Found {
    fn new(source: &Arc<SourceHandle>, change: &Arc<TrackedChange>) -> Found {
        let name = ChangeName { source: source.id().0, number: change.change.number };
        let place = ChangePlace { at: change.change.at.as_micros(), name };
        Found { place, source: source.clone(), change: change.clone() }
    }
}

/// The streams that owe an answer, by change.
type Waiting = HashMap<ChangeName, u32>;

/// The latest change of the content that a client watches in a type.
pub(super) fn latest_of(
    subscription: &Subscription,
    sources: &[(SourceId, Arc<SourceHandle>)],
) -> Option<ChangeName> {
    let changes = subscription.parts.iter().filter_map(|part| {
        let (_, source) = sources.iter().find(|(known, _)| *known == part.source())?;
        let snapshot = source.snapshot();
        let view = snapshot.of(&subscription.type_url)?.view(&part.collection)?;
        let number = view.changes().latest_after(0)?;
        Some((view.changed_at(), ChangeName { source: source.id().0, number }))
    });
    changes.max().map(|(_, name)| name)
}

impl ChangesView for Relay {
    fn changes(&self, filter: ChangeFilter) -> BoxFuture<'_, Vec<ChangeStatus>> {
        async move {
            let mut found = self.found(&filter);
            found.sort_unstable_by_key(|found| Reverse(found.place));
            found.truncate(filter.limit);
            let waiting = self.waiting(&found).await;
            found.iter().map(|found| self.change_status(found, &waiting)).collect()
        }
        .boxed()
    }

    fn change(&self, name: ChangeName) -> BoxFuture<'_, Option<ChangeStatus>> {
        async move {
            let sources = self.tables.sources.all();
            let source = sources.iter().find(|source| source.id().0 == name.source)?;
            let all = source.changes.all();
            let change = all.iter().find(|change| change.change.number == name.number)?;
            let found = [Found::new(source, change)];
            let waiting = self.waiting(&found).await;
            found.first().map(|found| self.change_status(found, &waiting))
        }
        .boxed()
    }

    fn latest_change(&self) -> Option<ChangeStatus> {
        let sources = self.tables.sources.all();
        let latest =
            sources.iter().filter_map(|source| Some(Found::new(source, source.changes.all().last()?)));
        let latest = latest.max_by_key(|found| found.place)?;
        let waiting = HashMap::from([(latest.place.name, u32::MAX)]);
        Some(self.change_status(&latest, &waiting))
    }
}

impl Relay {
    fn found(&self, filter: &ChangeFilter) -> Vec<Found> {
        let mut found = Vec::new();
        for source in self.tables.sources.all() {
            if filter.source.is_some_and(|wanted| wanted != source.id().0) {
                continue;
            }
            let all = source.changes.all();
            let of_type = all.iter().filter(|change| filter.wants_type(&change.change.type_url));
            let placed = of_type.map(|change| Found::new(&source, change));
            found.extend(placed.filter(|found| filter.after.is_none_or(|after| found.place < after)));
        }
        found
    }

    /// Looks at all streams, one at a time, unless all clients have answered these changes.
    async fn waiting(&self, found: &[Found]) -> Waiting {
        let mut waiting = Waiting::new();
        if !found.iter().any(|found| found.change.is_open()) {
            return waiting;
        }
        let (mut last, mut seen) = (None, 0);
        while let Some(stream) = self.tables.streams.next(last) {
            last = Some(stream.number());
            for unsettled in stream.unsettled_changes().iter().filter(|change| !change.is_overtaken) {
                let source = shared_source(unsettled.id.source).0;
                *waiting.entry(ChangeName { source, number: unsettled.id.number }).or_default() += 1;
            }
            seen += 1;
            if seen % STREAMS_PER_TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
        waiting
    }

    fn change_status(&self, found: &Found, waiting: &Waiting) -> ChangeStatus {
        let Found { place, source, change: tracked } = found;
        let (change, clock) = (&tracked.change, self.shared.clock);
        let status = source.status();
        ChangeStatus {
            place: *place,
            server: tracked.server.clone(),
            list: status.list.clone(),
            class: status.class.digest.clone(),
            type_url: change.type_url.clone(),
            version: change.version,
            upstream_version: tracked.upstream_version.clone(),
            received_at: clock.wall(change.at),
            age: clock.now().since(change.at),
            added: (&change.altered.added).into(),
            changed: (&change.altered.changed).into(),
            removed: (&change.altered.removed).into(),
            bytes: change.altered.bytes,
            counts: tracked.counts(waiting.get(&place.name).copied().unwrap_or_default()),
            p50: tracked.tally().percentile(50),
            p99: tracked.tally().percentile(99),
            last: tracked.tally().slowest(),
            rejections: tracked.rejections(),
        }
    }
}
