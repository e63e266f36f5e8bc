//! The items of the lists about sources and resources. They never contain a payload, and of a Secret only the
//! name.

use std::borrow::Cow;
use std::time::SystemTime;

use jiff::Timestamp;
use sluice_admin_api::Text;
use sluice_admin_api::resources::{Resource, ResourceContent};
use sluice_admin_api::sources::{
    LostType, RefusedClient, RefusedType, SomeNames, Source, SourceContent, SourceType,
};

use super::query::SourcesQuery;
use super::rejections::Rejections;
use crate::driver::api::downstream::Variant;
use crate::driver::api::status::{
    RefusalStatus, RefusedStatus, ResourceFilter, ResourceStatus, SourceState, SourceStatus,
    SourceTypeStatus, names_type,
};
use sluice_xds::ResourceName;

/// 0 if the clock was set back meanwhile (I18).
pub(super) fn seconds_since(since: SystemTime, now: SystemTime) -> f64 {
    now.duration_since(since).unwrap_or_default().as_secs_f64()
}

/// A time as `2026-11-21T07:05:09.012Z`.
pub(super) fn rfc_3339(time: SystemTime) -> String {
    let epoch = time.max(SystemTime::UNIX_EPOCH);
    format!("{:.3}", Timestamp::try_from(epoch).unwrap_or(Timestamp::MAX))
}

pub(super) fn variant_name(variant: Variant) -> &'static str {
    match variant {
        Variant::Sotw => "sotw",
        Variant::Delta => "delta",
    }
}

pub(super) fn refused_type(refused: &RefusedStatus, now: SystemTime) -> RefusedType {
    RefusedType {
        how: refused.how.name().to_owned(),
        seconds: seconds_since(refused.since, now),
        next_try_seconds: refused.next_try.map(|next| seconds_since(now, next)),
        error: refused.error.to_string(),
    }
}

fn some_names(seconds: f64, count: usize, first: &[ResourceName]) -> SomeNames<'_> {
    SomeNames { seconds, count, first: names(first) }
}

/// The names of resources, as texts.
pub(super) fn names(names: &[ResourceName]) -> Vec<Text<'_>> {
    names.iter().map(|name| Text::Borrowed(name.as_str())).collect()
}

/// The source with its matching types; `None` if the source does not match.
pub(super) fn source<'a>(
    source: &'a SourceStatus,
    query: &SourcesQuery,
    now: SystemTime,
) -> Option<Source<'a>> {
    let server_passes = query.server.as_deref().is_none_or(|server| server == &*source.server);
    let state_passes = query.state.is_none_or(|state| state == source.state.name());
    let type_passes = |status: &&SourceTypeStatus| {
        query.type_name.as_deref().is_none_or(|text| names_type(text, &status.type_url))
    };
    let types: Vec<_> =
        source.types.iter().filter(type_passes).map(|status| source_type(status, now)).collect();
    let types_pass = query.type_name.is_none() || !types.is_empty();
    if !(server_passes && state_passes && types_pass) {
        return None;
    }
    let (failures, delay) = match source.state {
        SourceState::Backoff { failures, delay } | SourceState::EndsStreams { failures, delay, .. } => {
            (failures, Some(delay.as_secs_f64()))
        }
        SourceState::Connecting | SourceState::Connected | SourceState::Unanswered => (0, None),
    };
    Some(Source {
        id: source.id,
        server: Text::Borrowed(&source.server),
        list: Text::Borrowed(&source.list),
        stream: source.stream,
        class: Text::Borrowed(&source.class.digest),
        class_fields: Cow::Borrowed(&source.class.fields),
        upstream_id: Text::Borrowed(&source.shown),
        state: Text::Borrowed(source.state.name()),
        state_seconds: seconds_since(source.since, now),
        failures,
        backoff_seconds: delay,
        last_error: source.error_text(),
        answered: source.answered,
        stale_seconds: source.stale_since.map(|since| seconds_since(since, now)),
        restored: source.restored,
        variant: source.variant.map(|variant| Text::Borrowed(variant_name(variant))),
        marks: source.has_marks,
        shadow: source.is_shadow,
        types,
    })
}

fn source_type(status: &SourceTypeStatus, now: SystemTime) -> SourceType<'_> {
    let silent = status.silent.as_ref();
    let no_room = status.no_room.as_ref();
    SourceType {
        r#type: Text::Borrowed(status.type_url.message()),
        names: status.names,
        wildcard: status.wildcard,
        present: status.present,
        absent: status.absent,
        unknown: status.unknown,
        held_back: status.held_back,
        refused: status.refused.as_ref().map(|refused| refused_type(refused, now)),
        silent_names: silent.map(|it| some_names(seconds_since(it.since, now), it.names, &it.first)),
        no_room: no_room.map(|it| some_names(seconds_since(it.since, now), it.names, &it.first)),
        lost: status
            .lost
            .as_ref()
            .map(|lost| LostType { seconds: seconds_since(lost.since, now), error: lost.error.to_string() }),
        content: (!status.type_url.is_secret()).then(|| SourceContent {
            bytes: status.bytes,
            version: status.version.map(|version| version.to_string()),
        }),
    }
}

pub(super) fn refused_client(refusal: &RefusalStatus, now: SystemTime) -> RefusedClient<'_> {
    RefusedClient {
        limit: Text::Borrowed(refusal.limit),
        node: Text::Borrowed(&refusal.node_id),
        cluster: Text::Borrowed(&refusal.node_cluster),
        r#type: Text::Borrowed(refusal.type_url.message()),
        stream: refusal.stream,
        peer: refusal.peer,
        count: refusal.count,
        seconds: seconds_since(refusal.last, now),
    }
}

/// `None` if the resource does not match. A filter by state leaves out Secrets, because the result would tell
/// their state.
pub(super) fn resource<'a>(
    status: &'a ResourceStatus,
    filter: &ResourceFilter,
    rejections: &'a Rejections,
) -> Option<Resource<'a>> {
    let is_secret = status.type_url.is_secret();
    if !filter.matches(status) || (is_secret && filter.state.is_some()) {
        return None;
    }
    let rejection = rejections.find(status);
    let content = (!is_secret).then(|| ResourceContent {
        collection: Text::Borrowed(status.collection),
        state: Text::Borrowed(status.state.name()),
        version: status.version.map(|version| version.to_string()),
        bytes: status.bytes,
        received_at: status.received_at.map(rfc_3339),
        error: status.error.as_ref().map(ToString::to_string),
        expires_seconds: status.expires_in.map(|left| left.as_secs_f64()),
        server: Text::Borrowed(&status.server),
        class: Text::Borrowed(&status.class),
        rejecting_clients: rejection.map_or(0, |rejection| rejection.clients),
        rejected: rejection.map(|rejection| Text::Borrowed(&rejection.text)),
    });
    let r#type = Text::Borrowed(status.type_url.message());
    Some(Resource { r#type, name: Text::Borrowed(status.name.as_str()), content })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_written_as_in_rfc_3339() {
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_735_689_599_000, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ];
        for (millis, text) in cases {
            // Parts of a millisecond are left out.
            let time = SystemTime::UNIX_EPOCH + Duration::from_millis(millis) + Duration::from_micros(999);
            assert_eq!(rfc_3339(time), text);
        }
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(rfc_3339(before), "1970-01-01T00:00:00.000Z");
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(rfc_3339(far), "9999-12-30T22:00:00.999Z", "the last time that can be written");
    }
}
