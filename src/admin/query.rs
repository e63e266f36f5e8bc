//! The query parameters of each endpoint. An error for an unknown parameter lists the allowed ones.

use std::time::Duration;

use axum::extract::Query;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use super::events::Wanted;
use crate::driver::api::control::DeletionFilter;
use crate::driver::api::status::{ClientStatus, ConfigStatus, ResourceFilter, SourceState};
use crate::setting::{Range, parse_duration};
use crate::telemetry::events::{Kind, Severity};

/// The limit of a list without `limit`.
const UNLIMITED: usize = usize::MAX;

/// `/clients`: streams of this node that have this type, or any type, in this state.
#[derive(Debug, PartialEq)]
pub(super) struct ClientsQuery {
    pub node: Option<String>,
    pub type_name: Option<String>,
    pub state: Option<ConfigStatus>,
    pub limit: usize,
}

/// `/sources`.
#[derive(Debug, PartialEq)]
pub(super) struct SourcesQuery {
    pub server: Option<String>,
    pub type_name: Option<String>,
    /// One of [`SourceState::NAMES`].
    pub state: Option<&'static str>,
    pub limit: usize,
}

/// `/resources`.
#[derive(Debug, PartialEq)]
pub(super) struct ResourcesQuery {
    pub filter: ResourceFilter,
    pub limit: usize,
}

impl ClientsQuery {
    pub fn parse(uri: &Uri) -> Result<ClientsQuery, String> {
        let [node, type_name, state, limit] = values(uri, ["node", "type", "state", "limit"])?;
        let states = ConfigStatus::ALL.map(|state| (state.name(), state));
        Ok(ClientsQuery { node, type_name, state: one_of(state, &states)?, limit: number(limit)? })
    }
}

impl SourcesQuery {
    pub fn parse(uri: &Uri) -> Result<SourcesQuery, String> {
        let [server, type_name, state, limit] = values(uri, ["server", "type", "state", "limit"])?;
        let states = SourceState::NAMES.map(|name| (name, name));
        Ok(SourcesQuery { server, type_name, state: one_of(state, &states)?, limit: number(limit)? })
    }
}

impl ResourcesQuery {
    pub fn parse(uri: &Uri) -> Result<ResourcesQuery, String> {
        let [type_name, name, state, limit] = values(uri, ["type", "name", "state", "limit"])?;
        let states = ClientStatus::ALL.map(|state| (state.name(), state));
        let filter = ResourceFilter { type_name, name, state: one_of(state, &states)? };
        Ok(ResourcesQuery { filter, limit: number(limit)? })
    }
}

/// `/events`.
#[derive(Debug, PartialEq)]
pub(super) struct EventsQuery {
    pub wanted: Wanted,
    pub after: Option<u64>,
    pub limit: Option<usize>,
}

/// The most events of a list, and the number without `limit`.
pub(super) const EVENTS_LIMIT: usize = 1000;

impl EventsQuery {
    pub fn parse(uri: &Uri) -> Result<EventsQuery, String> {
        let [kind, severity, after, limit] = values(uri, ["kind", "severity", "after", "limit"])?;
        let kind = named("kind", kind, &Kind::ALL.map(|kind| (kind.name(), kind)))?;
        let severities = Severity::ALL.map(|severity| (severity.name(), severity));
        let severity = named("severity", severity, &severities)?.unwrap_or(Severity::Info);
        let limit = limit.map(|text| match text.parse() {
            Ok(limit) if limit <= EVENTS_LIMIT => Ok(limit),
            _ => Err(format!("limit is {text:?}; allowed: a whole number up to {EVENTS_LIMIT}")),
        });
        let number = |text: String| {
            text.parse().map_err(|_| format!("after is {text:?}; allowed: a number of an event"))
        };
        Ok(EventsQuery {
            wanted: Wanted { kind, severity },
            after: after.map(number).transpose()?,
            limit: limit.transpose()?,
        })
    }
}

/// `/confirm_deletions`.
pub(super) fn deletions(uri: &Uri) -> Result<DeletionFilter, String> {
    let [server, type_name] = values(uri, ["server", "type"])?;
    Ok(DeletionFilter { server, type_name })
}

/// `/refused`.
pub(super) fn limit(uri: &Uri) -> Result<usize, String> {
    let [limit] = values(uri, ["limit"])?;
    number(limit)
}

/// The values of the allowed keys, each at most once.
pub(super) fn values<const N: usize>(uri: &Uri, allowed: [&str; N]) -> Result<[Option<String>; N], String> {
    let Query(pairs) =
        Query::<Vec<(String, String)>>::try_from_uri(uri).map_err(|error| error.to_string())?;
    let mut values = [const { None }; N];
    for (key, value) in pairs {
        let slot = allowed.iter().position(|name| *name == key);
        let slot = slot
            .and_then(|index| values.get_mut(index))
            .ok_or_else(|| format!("unknown query key {key:?}; allowed: {}", allowed.join(", ")))?;
        if slot.replace(value).is_some() {
            return Err(format!("duplicate query key {key:?}"));
        }
    }
    Ok(values)
}

fn one_of<T: Copy>(text: Option<String>, allowed: &[(&str, T)]) -> Result<Option<T>, String> {
    let Some(text) = text else { return Ok(None) };
    if let Some((_, value)) = allowed.iter().find(|(name, _)| *name == text) {
        return Ok(Some(*value));
    }
    let names: Vec<_> = allowed.iter().map(|(name, _)| *name).collect();
    Err(format!("unknown state {text:?}; allowed: {}", names.join(", ")))
}

/// The value of a parameter with a closed list of values. The error names the nearest one.
fn named<T: Copy>(key: &str, text: Option<String>, allowed: &[(&str, T)]) -> Result<Option<T>, String> {
    let Some(text) = text else { return Ok(None) };
    if let Some((_, value)) = allowed.iter().find(|(name, _)| *name == text) {
        return Ok(Some(*value));
    }
    let near = |(name, _): &(&str, T)| strsim::jaro_winkler(name, &text);
    let nearest = allowed.iter().max_by(|a, b| near(a).total_cmp(&near(b))).map_or("", |(name, _)| name);
    let names: Vec<_> = allowed.iter().map(|(name, _)| *name).collect();
    Err(format!("unknown {key} {text:?}; nearest: {nearest}; allowed: {}", names.join(", ")))
}

fn number(text: Option<String>) -> Result<usize, String> {
    let Some(text) = text else { return Ok(UNLIMITED) };
    text.parse().map_err(|_| format!("limit is {text:?}; allowed: a whole number"))
}

/// A time within the range, written as in the configuration.
pub(super) fn time(key: &str, text: Option<String>, range: Range) -> Result<Option<Duration>, String> {
    let Some(text) = text else { return Ok(None) };
    let time = parse_duration(&text);
    let time = time.filter(|time| (range.least..=range.most).contains(&(time.as_millis() as u64)));
    time.map(Some).ok_or_else(|| {
        let [least, most] = [range.least, range.most].map(Duration::from_millis);
        format!("{key} is {text:?}; allowed: a time like 500ms, 10s, 5m or 1h, from {least:?} to {most:?}")
    })
}

/// A flag that is off without the key.
pub(super) fn yes(key: &str, text: Option<String>) -> Result<bool, String> {
    match text.as_deref() {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(text) => Err(format!("{key} is {text:?}; allowed: 0, 1")),
    }
}

/// The answer to an invalid query.
pub(super) fn bad_request(reason: String) -> Response {
    (StatusCode::BAD_REQUEST, format!("{reason}\n")).into_response()
}
