//! The changes of all sources, for the operator (ADM-10).

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::driver::api::change_name::ChangeName;
use crate::driver::api::changes::{ChangeFilter, ChangePlace, ChangeStatus, ChangesView};
use crate::driver::relay::handle::Relay;
use crate::driver::source::changes::TrackedChange;
use crate::driver::source::handle::SourceHandle;
use crate::driver::stream::own_sources::OwnSources;
use crate::driver::stream::private_part::shared_source;
use sluice_engine::downstream::Subscription;

/// The number of streams between two turns of other tasks (ADM-6).
const STREAMS_PER_TURN: usize = 64;

/// A remembered change, with its source.
struct SourceChange {
    place: ChangePlace,
    source: Arc<SourceHandle>,
    change: Arc<TrackedChange>,
}

impl SourceChange {
    fn new(source: &Arc<SourceHandle>, change: &Arc<TrackedChange>) -> SourceChange {
        let name = ChangeName { source: source.id().0, number: change.change.number };
        let place = ChangePlace { at: change.change.at.as_micros(), name };
        SourceChange { place, source: source.clone(), change: change.clone() }
    }
}

/// The streams that owe an answer, by change.
type OwedAnswers = HashMap<ChangeName, u32>;

/// The latest change of the content that a client watches in a type.
pub(super) fn latest_of(subscription: &Subscription, sources: &OwnSources) -> Option<ChangeName> {
    let changes = subscription.parts.iter().filter_map(|part| {
        let source = sources.get(part.source())?;
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
            let mut matches = matches_of(self, &filter);
            matches.sort_unstable_by_key(|change| Reverse(change.place));
            matches.truncate(filter.limit);
            let owed = owed_answers(self, &matches).await;
            matches.iter().map(|change| change_status(self, change, &owed)).collect()
        }
        .boxed()
    }

    fn change(&self, name: ChangeName) -> BoxFuture<'_, Option<ChangeStatus>> {
        async move {
            let sources = self.tables.sources.all();
            let source = sources.iter().find(|source| source.id().0 == name.source)?;
            let all = source.changes.all();
            let change = all.iter().find(|change| change.change.number == name.number)?;
            let change = SourceChange::new(source, change);
            let owed = owed_answers(self, std::slice::from_ref(&change)).await;
            Some(change_status(self, &change, &owed))
        }
        .boxed()
    }

    fn latest_change(&self) -> Option<ChangeStatus> {
        let sources = self.tables.sources.all();
        let latest =
            sources.iter().filter_map(|source| Some(SourceChange::new(source, source.changes.all().last()?)));
        let latest = latest.max_by_key(|change| change.place)?;
        let owed = HashMap::from([(latest.place.name, u32::MAX)]);
        Some(change_status(self, &latest, &owed))
    }
}

fn matches_of(relay: &Relay, filter: &ChangeFilter) -> Vec<SourceChange> {
    let mut matches = Vec::new();
    for source in relay.tables.sources.all() {
        if filter.source.is_some_and(|number| number != source.id().0) {
            continue;
        }
        let all = source.changes.all();
        let of_type = all.iter().filter(|change| filter.wants_type(&change.change.type_url));
        let placed = of_type.map(|change| SourceChange::new(&source, change));
        matches.extend(placed.filter(|change| filter.after.is_none_or(|after| change.place < after)));
    }
    matches
}

/// Counts the streams that owe an answer, one stream at a time, unless all clients have answered these
/// changes.
async fn owed_answers(relay: &Relay, changes: &[SourceChange]) -> OwedAnswers {
    let mut owed = OwedAnswers::new();
    if !changes.iter().any(|change| change.change.is_open()) {
        return owed;
    }
    let (mut last, mut seen) = (None, 0);
    while let Some(stream) = relay.tables.streams.next(last) {
        last = Some(stream.number());
        for unsettled in stream.unsettled_changes().iter().filter(|change| !change.is_overtaken) {
            let source = shared_source(unsettled.id.source).0;
            *owed.entry(ChangeName { source, number: unsettled.id.number }).or_default() += 1;
        }
        seen += 1;
        if seen % STREAMS_PER_TURN == 0 {
            tokio::task::yield_now().await;
        }
    }
    owed
}

fn change_status(relay: &Relay, change: &SourceChange, owed: &OwedAnswers) -> ChangeStatus {
    let SourceChange { place, source, change: tracked } = change;
    let (change, clock) = (&tracked.change, relay.shared.clock);
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
        counts: tracked.counts(owed.get(&place.name).copied().unwrap_or_default()),
        p50: tracked.tally().percentile(50),
        p99: tracked.tally().percentile(99),
        last: tracked.tally().slowest(),
        rejections: tracked.rejections(),
    }
}
