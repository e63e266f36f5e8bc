//! The items of the lists. They never contain a payload, and of a Secret only the name.

use std::net::SocketAddr;
use std::time::SystemTime;

use serde::Serialize;

use super::query::SourcesQuery;
use super::rejections::Rejections;
use crate::driver::api::downstream::Variant;
use crate::driver::api::status::{
    RefusalStatus, RefusedStatus, ResourceFilter, ResourceStatus, SourceState, SourceStatus,
    SourceTypeStatus, names_type,
};
use crate::xds::ResourceName;

/// 0 if the clock was set back meanwhile (I18).
pub(super) fn seconds_since(since: SystemTime, now: SystemTime) -> f64 {
    now.duration_since(since).unwrap_or_default().as_secs_f64()
}

/// A time as `2026-11-21T07:05:09.012Z`.
pub(super) fn rfc_3339(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (seconds, millis) = (since.as_secs(), since.subsec_millis());
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    // Years begin in March here, so that the leap day is the last day. 719,468 days lie between the year 0 and 1970.
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

pub(super) fn variant_name(variant: Variant) -> &'static str {
    match variant {
        Variant::Sotw => "sotw",
        Variant::Delta => "delta",
    }
}

/// An upstream attachment.
#[derive(Debug, Serialize)]
pub(super) struct Source<'a> {
    id: u64,
    server: &'a str,
    list: &'a str,
    stream: Option<u64>,
    class: &'a str,
    class_fields: &'a [(String, String)],
    upstream_id: &'a str,
    state: &'static str,
    state_seconds: f64,
    failures: u32,
    backoff_seconds: Option<f64>,
    last_error: Option<String>,
    answered: bool,
    stale_seconds: Option<f64>,
    restored: bool,
    variant: Option<&'static str>,
    /// The server is another sluice, which marks what is whole.
    marks: bool,
    types: Vec<SourceType<'a>>,
}

#[derive(Debug, Serialize)]
struct SourceType<'a> {
    r#type: &'a str,
    names: usize,
    wildcard: bool,
    present: usize,
    absent: usize,
    unknown: usize,
    /// The part of `present` that the server has deleted (FU18).
    #[serde(skip_serializing_if = "is_zero")]
    held_back: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<RefusedType>,
    /// Names that the server answers no request with (ADR 54).
    #[serde(skip_serializing_if = "Option::is_none")]
    silent_names: Option<SomeNames<'a>>,
    /// Resources that `limits.source_bytes` keeps out (ADR 68).
    #[serde(skip_serializing_if = "Option::is_none")]
    no_room: Option<SomeNames<'a>>,
    /// Where each type has a stream or a poll of its own, and that of this one is lost (ADR 18).
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<LostType>,
    /// Absent for Secrets.
    #[serde(flatten)]
    content: Option<SourceContent>,
}

/// A type that the server does not serve (RLY-25), or ends streams for (ADR 15).
#[derive(Debug, Serialize)]
pub(super) struct RefusedType {
    how: &'static str,
    seconds: f64,
    /// The time until the next request; null while a request is under way.
    next_try_seconds: Option<f64>,
    error: String,
}

#[derive(Debug, Serialize)]
struct SomeNames<'a> {
    seconds: f64,
    count: usize,
    first: Vec<&'a str>,
}

impl<'a> SomeNames<'a> {
    fn of((since, now): (SystemTime, SystemTime), count: usize, first: &'a [ResourceName]) -> SomeNames<'a> {
        let first = first.iter().map(|name| name.as_str()).collect();
        SomeNames { seconds: seconds_since(since, now), count, first }
    }
}

#[derive(Debug, Serialize)]
struct LostType {
    seconds: f64,
    error: String,
}

pub(super) fn refused_type(refused: &RefusedStatus, now: SystemTime) -> RefusedType {
    RefusedType {
        how: refused.how.name(),
        seconds: seconds_since(refused.since, now),
        next_try_seconds: refused.next_try.map(|next| seconds_since(now, next)),
        error: refused.error.to_string(),
    }
}

#[derive(Debug, Serialize)]
struct SourceContent {
    bytes: usize,
    version: Option<String>,
}

/// The source with its matching types; `None` if the source does not match.
pub(super) fn source<'a>(
    source: &'a SourceStatus,
    query: &SourcesQuery,
    now: SystemTime,
) -> Option<Source<'a>> {
    let server_passes = query.server.as_deref().is_none_or(|server| server == &*source.server);
    let state_passes = query.state.is_none_or(|state| state == source.state.name());
    let type_passes =
        |of: &&SourceTypeStatus| query.type_name.as_deref().is_none_or(|text| names_type(text, &of.type_url));
    let types: Vec<_> = source.types.iter().filter(type_passes).map(|of| source_type(of, now)).collect();
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
        server: &source.server,
        list: &source.list,
        stream: source.stream,
        class: &source.class.digest,
        class_fields: &source.class.fields,
        upstream_id: &source.shown,
        state: source.state.name(),
        state_seconds: seconds_since(source.since, now),
        failures,
        backoff_seconds: delay,
        last_error: source.error_text(),
        answered: source.answered,
        stale_seconds: source.stale_since.map(|since| seconds_since(since, now)),
        restored: source.restored,
        variant: source.variant.map(variant_name),
        marks: source.has_marks,
        types,
    })
}

pub(super) fn is_false(flag: &bool) -> bool {
    !flag
}

/// A client for whose node class there was no room.
#[derive(Debug, Serialize)]
pub(super) struct Refusal<'a> {
    limit: &'a str,
    node: &'a str,
    cluster: &'a str,
    r#type: &'a str,
    stream: u64,
    peer: Option<SocketAddr>,
    count: u64,
    seconds: f64,
}

pub(super) fn refusal(of: &RefusalStatus, now: SystemTime) -> Refusal<'_> {
    Refusal {
        limit: of.limit,
        node: &of.node_id,
        cluster: &of.node_cluster,
        r#type: of.type_url.message(),
        stream: of.stream,
        peer: of.peer,
        count: of.count,
        seconds: seconds_since(of.last, now),
    }
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

fn source_type(of: &SourceTypeStatus, now: SystemTime) -> SourceType<'_> {
    SourceType {
        r#type: of.type_url.message(),
        names: of.names,
        wildcard: of.wildcard,
        present: of.present,
        absent: of.absent,
        unknown: of.unknown,
        held_back: of.held_back,
        refused: of.refused.as_ref().map(|refused| refused_type(refused, now)),
        silent_names: of.silent.as_ref().map(|it| SomeNames::of((it.since, now), it.names, &it.first)),
        no_room: of.no_room.as_ref().map(|it| SomeNames::of((it.since, now), it.names, &it.first)),
        lost: of
            .lost
            .as_ref()
            .map(|lost| LostType { seconds: seconds_since(lost.since, now), error: lost.error.to_string() }),
        content: (!of.type_url.is_secret()).then(|| SourceContent {
            bytes: of.bytes,
            version: of.version.map(|version| version.to_string()),
        }),
    }
}

/// A resource, or a name without a resource, of a source.
#[derive(Debug, Serialize)]
pub(super) struct Resource<'a> {
    r#type: &'a str,
    name: &'a str,
    /// Absent for Secrets.
    #[serde(flatten)]
    content: Option<ResourceContent<'a>>,
}

#[derive(Debug, Serialize)]
struct ResourceContent<'a> {
    collection: &'static str,
    state: &'static str,
    version: Option<String>,
    bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    received_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_seconds: Option<f64>,
    server: &'a str,
    class: &'a str,
    /// Clients that rejected their last response of the type. The resource itself may be correct.
    #[serde(skip_serializing_if = "is_zero")]
    rejecting_clients: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected: Option<&'a str>,
}

/// `None` if the resource does not match. A filter by state leaves out Secrets, because the result would tell
/// their state.
pub(super) fn resource<'a>(
    found: &'a ResourceStatus,
    filter: &ResourceFilter,
    rejections: &'a Rejections,
) -> Option<Resource<'a>> {
    let secret = found.type_url.is_secret();
    if !filter.matches(found) || (secret && filter.state.is_some()) {
        return None;
    }
    let rejection = rejections.of(found);
    let content = (!secret).then(|| ResourceContent {
        collection: found.collection,
        state: found.state.name(),
        version: found.version.map(|version| version.to_string()),
        bytes: found.bytes,
        received_at: found.received_at.map(rfc_3339),
        error: found.error.as_ref().map(ToString::to_string),
        expires_seconds: found.expires_in.map(|left| left.as_secs_f64()),
        server: &found.server,
        class: &found.class,
        rejecting_clients: rejection.map_or(0, |rejection| rejection.clients),
        rejected: rejection.map(|rejection| rejection.text.as_str()),
    });
    Some(Resource { r#type: found.type_url.message(), name: found.name.as_str(), content })
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
            assert_eq!(rfc_3339(SystemTime::UNIX_EPOCH + Duration::from_millis(millis)), text);
        }
    }
}
