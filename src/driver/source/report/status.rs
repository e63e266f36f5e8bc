//! The status of a source for the admin room, and the gauges of its cache.

use super::Report;
use super::doubts::NAMES_MAX;
use crate::driver::api::status::{
    LostStatus, NoRoomStatus, Refused, RefusedStatus, SilentStatus, SourceStatus, SourceTypeStatus,
};
use crate::driver::ground::clock::Clock;
use crate::telemetry::Limit;
use sluice_engine::cache::EntryState;
use sluice_engine::reachability::Reachability;
use sluice_engine::source::{Attachment, Source};
use sluice_xds::TypeUrl;

impl Report {
    /// Also updates the gauges of the cache.
    pub fn status(&mut self, source: Option<&Source>, clock: &Clock) -> SourceStatus {
        let types = source.map(|source| self.type_statuses(source)).unwrap_or_default();
        self.unwatched.set(source.map_or(0, Source::lingering_bytes));
        self.suspects.set(match source.map(Source::attachment) {
            Some(Attachment::Streams(streams)) => streams.suspect_streams(),
            Some(Attachment::Files(_)) | None => 0,
        });
        let evicted = source.map_or(0, Source::evicted);
        self.shared.metrics.limits().add(Limit::UnwatchedBytes, evicted.saturating_sub(self.evicted));
        self.evicted = evicted;
        SourceStatus {
            id: self.id,
            server: self.server_uri.clone(),
            list: self.list.clone(),
            stream: self.stream,
            class: self.class.clone(),
            shown: self.shown.clone(),
            evidence: self.evidence.clone(),
            state: self.contact.state,
            since: clock.wall(self.contact.since),
            last_error: self.contact.last_error.clone(),
            answered: self.contact.answered,
            stale_since: self.contact.restored.or(self.contact.stale_since.map(|since| clock.wall(since))),
            restored: self.contact.restored.is_some(),
            variant: self.variant,
            has_marks: matches!(source.map(Source::attachment), Some(Attachment::Streams(streams)) if streams.has_marks()),
            types,
        }
    }

    fn refused(&self, source: &Source, type_url: &TypeUrl) -> Option<RefusedStatus> {
        let Attachment::Streams(streams) = source.attachment() else { return None };
        let (how, since, error) = match (streams.suspect_of(type_url), streams.not_served(type_url)) {
            (Some(suspect), _) => (Refused::EndsStream, suspect.since, suspect.status.clone()),
            (None, Some((since, status))) => (Refused::NotServed, since, status.clone()),
            (None, None) => return None,
        };
        let next_try = streams.next_try(type_url).map(|due| self.shared.clock.wall(due));
        Some(RefusedStatus { how, since: self.shared.clock.wall(since), next_try, error })
    }

    fn silent(&self, source: &Source, type_url: &TypeUrl) -> Option<SilentStatus> {
        let Attachment::Streams(streams) = source.attachment() else { return None };
        let (since, names) = streams.silent_names(type_url)?;
        let first = names.iter().take(NAMES_MAX).map(|name| (*name).clone()).collect();
        Some(SilentStatus { since: self.shared.clock.wall(since), names: names.len(), first })
    }

    fn type_statuses(&mut self, source: &Source) -> Vec<SourceTypeStatus> {
        let mut statuses = Vec::new();
        for (type_url, counts, wildcard) in source.types() {
            let members = wildcard.map_or(0, |view| view.len());
            let unknown = wildcard.map_or(0, |view| usize::from(!view.is_complete()));
            let refused = self.refused(source, type_url);
            let silent = self.silent(source, type_url);
            let status = SourceTypeStatus {
                type_url: type_url.clone(),
                names: counts.present + counts.absent + counts.unknown,
                wildcard: wildcard.is_some(),
                present: counts.present + members,
                absent: counts.absent,
                unknown: counts.unknown + unknown,
                held_back: source.held_back(type_url),
                held_back_since: source.held_back_since(type_url).map(|since| self.shared.clock.wall(since)),
                refused,
                silent,
                no_room: source.no_room(type_url).map(|entry| NoRoomStatus {
                    since: self.shared.clock.wall(entry.since),
                    names: entry.names.len(),
                    first: entry.names.iter().take(NAMES_MAX).cloned().collect(),
                }),
                lost: match source.reach_of(type_url) {
                    Some(Reachability::Lost { since, status }) => {
                        Some(LostStatus { since: self.shared.clock.wall(since), error: status })
                    }
                    _ => None,
                },
                bytes: counts.bytes + wildcard.map_or(0, |view| view.bytes()),
                version: wildcard.map(|view| view.digest()),
            };
            let report = self.of_type(type_url);
            report.held_back.set(status.held_back);
            report.silent_names.set(status.silent.as_ref().map_or(0, |silent| silent.names));
            let how = status.refused.as_ref().map(|refused| refused.how);
            if report.refused.as_ref().map(|(how, _)| *how) != how {
                report.refused = how.map(|how| (how, report.upstream.refused(how.name())));
            }
            let cache = &mut report.cache;
            cache.set(status.present, status.absent, status.unknown, status.bytes);
            cache.set_states(EntryState::ALL.map(|state| counts.states.get(state)));
            statuses.push(status);
        }
        let held: Vec<&TypeUrl> = statuses.iter().map(|status| &status.type_url).collect();
        self.types.retain(|type_url, report| {
            let keep = held.contains(&type_url);
            if !keep {
                report.cache = report.types.cache();
            }
            keep
        });
        statuses
    }
}
