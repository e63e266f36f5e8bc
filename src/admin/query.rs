//! The query parameters of each list.

use std::time::{Duration, SystemTime};

use axum::http::{HeaderMap, Uri};
use sluice_admin_api::parameters::{
    ChangesParameters, ClientsParameters, EventsParameters, ResourcesParameters, SourcesParameters,
};

use super::page::Page;
use super::params::{Declined, bad_request, flag, number, read, word};
use crate::driver::api::change_name::ChangeName;
use crate::driver::api::changes::{ChangeFilter, ChangePlace};
use crate::driver::api::status::{
    ClientStatus, ConfigStatus, ResourceFilter, SessionStatus, SessionTypeStatus, SourceState, Why,
    names_type,
};
use crate::telemetry::events::{Event, Kind, Severity};

/// `/clients`: matching streams, with the matching types of each.
#[derive(Debug, Default)]
pub(super) struct ClientsQuery {
    pub node: Option<String>,
    /// A part of the node's id, the cluster, or the peer. In lower case.
    pub part: Option<String>,
    pub listener: Option<String>,
    pub type_name: Option<String>,
    pub state: Option<ConfigStatus>,
    pub why: Option<Why>,
    pub server: Option<String>,
    pub class: Option<String>,
    /// The least age of a state other than SYNCED.
    pub behind_for: Option<Duration>,
    pub sort: Sort,
}

/// The order of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// Mostly the order of beginning.
    #[default]
    Id,
    /// The longest behind first.
    Behind,
    /// The latest first.
    Opened,
}

impl ClientsQuery {
    pub fn parse(uri: &Uri, headers: &HeaderMap) -> Result<(ClientsQuery, Page), Declined> {
        let params: ClientsParameters = read(uri)?;
        let sorts = [("id", Sort::Id), ("behind", Sort::Behind), ("opened", Sort::Opened)];
        let query = ClientsQuery {
            node: params.node,
            part: params.q.map(|part| part.to_lowercase()),
            listener: params.listener,
            type_name: params.r#type,
            state: word("state", params.state, &ConfigStatus::ALL.map(|state| (state.name(), state)))?,
            why: word("why", params.why, &Why::ALL.map(|why| (why.name(), why)))?,
            server: params.server,
            class: params.class,
            behind_for: params.behind_for.map(|text| duration("behind_for", &text)).transpose()?,
            sort: word("sort", params.sort, &sorts)?.unwrap_or_default(),
        };
        let page = Page::read(params.after, params.limit, headers)?;
        if page.is_unlimited() && query.sort != Sort::Id {
            return Err(bad_request("limit=all goes by id: leave `sort` out, or read pages".to_owned()));
        }
        Ok((query, page))
    }

    /// The matching types of a stream; `None` if the stream does not match, or none of its types.
    pub fn matching<'a>(
        &self,
        session: &'a SessionStatus,
        now: SystemTime,
    ) -> Option<Vec<&'a SessionTypeStatus>> {
        let is = |asked: &Option<String>, text: &str| asked.as_deref().is_none_or(|asked| asked == text);
        let has_part = |part: &str| {
            let peer = session.peer.map(|peer| peer.to_string()).unwrap_or_default();
            [&*session.node_id, &*session.node_cluster, &peer].iter().any(|text| contains(text, part))
        };
        if !is(&self.node, &session.node_id)
            || !is(&self.listener, &session.listener)
            || !self.part.as_deref().is_none_or(has_part)
        {
            return None;
        }
        let types: Vec<_> = session.types.iter().filter(|status| self.takes(status, now)).collect();
        (!types.is_empty() || self.takes_any_type()).then_some(types)
    }

    fn takes_any_type(&self) -> bool {
        self.type_name.is_none()
            && self.state.is_none()
            && self.why.is_none()
            && self.server.is_none()
            && self.class.is_none()
            && self.behind_for.is_none()
    }

    fn takes(&self, status: &SessionTypeStatus, now: SystemTime) -> bool {
        // A type may come from several servers or classes, separated by commas.
        let lists = |asked: &Option<String>, listed: Option<&str>| {
            let is_listed = |asked: &str| listed.is_some_and(|all| all.split(", ").any(|one| one == asked));
            asked.as_deref().is_none_or(is_listed)
        };
        let is_behind = |least: Duration| {
            status.why.is_some() && now.duration_since(status.since).is_ok_and(|behind| behind >= least)
        };
        self.type_name.as_deref().is_none_or(|text| names_type(text, &status.type_url))
            && self.state.is_none_or(|state| state == status.state)
            && self.why.is_none_or(|why| Some(why) == status.why)
            && lists(&self.server, status.server.as_deref())
            && lists(&self.class, status.class.as_deref())
            && self.behind_for.is_none_or(is_behind)
    }
}

/// Whether a text has a part, in any case of letters. `part` is in lower case.
fn contains(text: &str, part: &str) -> bool {
    text.contains(part) || text.to_lowercase().contains(part)
}

/// A number of seconds, or a number with a unit.
fn duration(key: &str, text: &str) -> Result<Duration, Declined> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)];
    let with_unit = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)));
    let (number, unit) = with_unit.unwrap_or((text, 1.0));
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds = number.parse::<f64>().ok().filter(|_| is_number).map(|number| number * unit);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let allowed = "seconds, or a number with ms, s, m, h or d";
    duration.ok_or_else(|| bad_request(format!("{key} is {text:?}; allowed: {allowed}")))
}

/// `/sources`.
#[derive(Debug, PartialEq)]
pub(super) struct SourcesQuery {
    pub server: Option<String>,
    pub type_name: Option<String>,
    /// One of [`SourceState::NAMES`].
    pub state: Option<&'static str>,
    /// With the sources of the proof.
    pub has_shadows: bool,
}

impl SourcesQuery {
    pub fn parse(uri: &Uri, headers: &HeaderMap) -> Result<(SourcesQuery, Page), Declined> {
        let params: SourcesParameters = read(uri)?;
        let query = SourcesQuery {
            server: params.server,
            type_name: params.r#type,
            state: word("state", params.state, &SourceState::NAMES.map(|name| (name, name)))?,
            has_shadows: flag("shadows", params.shadows)?,
        };
        Ok((query, Page::read(params.after, params.limit, headers)?))
    }
}

/// `/resources`.
pub(super) fn resources(uri: &Uri, headers: &HeaderMap) -> Result<(ResourceFilter, Page), Declined> {
    let params: ResourcesParameters = read(uri)?;
    let states = ClientStatus::ALL.map(|state| (state.name(), state));
    let filter = ResourceFilter {
        type_name: params.r#type,
        name: params.name,
        state: word("state", params.state, &states)?,
    };
    Ok((filter, Page::read(params.after, params.limit, headers)?))
}

/// The events to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventFilter {
    pub kind: Option<Kind>,
    /// And all above.
    pub severity: Severity,
}

impl EventFilter {
    pub fn has(self, event: &Event) -> bool {
        self.kind.is_none_or(|kind| kind == event.first.kind) && self.severity <= event.first.severity
    }
}

/// `/events`.
#[derive(Debug, PartialEq)]
pub(super) struct EventsQuery {
    pub filter: EventFilter,
    pub after: Option<u64>,
    pub limit: Option<usize>,
}

/// The most events of a list, and the number without `limit`.
pub(super) const EVENTS_LIMIT: usize = 1000;

impl EventsQuery {
    pub fn parse(uri: &Uri) -> Result<EventsQuery, Declined> {
        let params: EventsParameters = read(uri)?;
        let kind = word("kind", params.kind, &Kind::ALL.map(|kind| (kind.name(), kind)))?;
        let severities = Severity::ALL.map(|severity| (severity.name(), severity));
        let severity = word("severity", params.severity, &severities)?.unwrap_or(Severity::Info);
        let limit = params.limit.map(|text| match text.parse() {
            Ok(limit) if limit <= EVENTS_LIMIT => Ok(limit),
            _ => {
                let allowed = format!("a whole number up to {EVENTS_LIMIT}");
                Err(bad_request(format!("limit is {text:?}; allowed: {allowed}")))
            }
        });
        Ok(EventsQuery {
            filter: EventFilter { kind, severity },
            after: number("after", params.after, "a number of an event")?,
            limit: limit.transpose()?,
        })
    }
}

/// `/changes`.
pub(super) fn changes(uri: &Uri) -> Result<ChangeFilter, Declined> {
    let params: ChangesParameters = read(uri)?;
    let source = number("source", params.source, "the number of a source, as in c-NUMBER-118")?;
    let page = Page::read(params.after, params.limit, &HeaderMap::new())?;
    let after = page.after::<(_, u64, u64)>()?;
    let after = after.map(|(at, source, number)| ChangePlace { at, name: ChangeName { source, number } });
    Ok(ChangeFilter { type_name: params.r#type, source, after, limit: page.limit })
}
