//! The query parameters of each list.

use std::time::{Duration, SystemTime};

use axum::http::{HeaderMap, Uri};

use super::events::EventFilter;
use super::page::Page;
use super::params::Params;
use crate::driver::api::change_name::ChangeName;
use crate::driver::api::changes::{ChangeFilter, ChangePlace};
use crate::driver::api::control::DeletionFilter;
use crate::driver::api::status::{
    ClientStatus, ConfigStatus, ResourceFilter, SessionStatus, SessionTypeStatus, SourceState, Why,
    names_type,
};
use crate::telemetry::events::{Kind, Severity};

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
    pub fn parse(uri: &Uri, headers: &HeaderMap) -> Result<(ClientsQuery, Page), String> {
        const KEYS: [&str; 12] = [
            "node",
            "q",
            "type",
            "state",
            "why",
            "server",
            "class",
            "listener",
            "behind_for",
            "sort",
            "after",
            "limit",
        ];
        let mut params = Params::parse(uri, &KEYS)?;
        let query = ClientsQuery {
            node: params.take("node"),
            part: params.take("q").map(|part| part.to_lowercase()),
            listener: params.take("listener"),
            type_name: params.take("type"),
            state: params.word("state", &ConfigStatus::ALL.map(|state| (state.name(), state)))?,
            why: params.word("why", &Why::ALL.map(|why| (why.name(), why)))?,
            server: params.take("server"),
            class: params.take("class"),
            behind_for: params.take("behind_for").map(|text| duration("behind_for", &text)).transpose()?,
            sort: params
                .word("sort", &[("id", Sort::Id), ("behind", Sort::Behind), ("opened", Sort::Opened)])?
                .unwrap_or_default(),
        };
        let page = Page::read(&mut params, headers)?;
        if page.is_unlimited() && query.sort != Sort::Id {
            return Err("limit=all goes by id: leave `sort` out, or read pages".to_owned());
        }
        Ok((query, page))
    }

    /// The matching types of a stream; `None` if the stream does not match, or none of its types.
    pub fn matching<'a>(
        &self,
        session: &'a SessionStatus,
        now: SystemTime,
    ) -> Option<Vec<&'a SessionTypeStatus>> {
        let is = |wanted: &Option<String>, text: &str| wanted.as_deref().is_none_or(|wanted| wanted == text);
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
        let types: Vec<_> = session.types.iter().filter(|of| self.takes(of, now)).collect();
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

    fn takes(&self, of: &SessionTypeStatus, now: SystemTime) -> bool {
        // A type may come from several servers or classes, separated by commas.
        let lists = |wanted: &Option<String>, listed: Option<&str>| {
            let is_listed = |wanted: &str| listed.is_some_and(|all| all.split(", ").any(|one| one == wanted));
            wanted.as_deref().is_none_or(is_listed)
        };
        let is_behind = |least: Duration| {
            of.why.is_some() && now.duration_since(of.since).is_ok_and(|behind| behind >= least)
        };
        self.type_name.as_deref().is_none_or(|text| names_type(text, &of.type_url))
            && self.state.is_none_or(|state| state == of.state)
            && self.why.is_none_or(|why| Some(why) == of.why)
            && lists(&self.server, of.server.as_deref())
            && lists(&self.class, of.class.as_deref())
            && self.behind_for.is_none_or(is_behind)
    }
}

/// Whether a text has a part, in any case of letters. `part` is in lower case.
fn contains(text: &str, part: &str) -> bool {
    text.contains(part) || text.to_lowercase().contains(part)
}

/// A number of seconds, or a number with a unit.
pub(super) fn duration(key: &str, text: &str) -> Result<Duration, String> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)];
    let with_unit = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)));
    let (number, unit) = with_unit.unwrap_or((text, 1.0));
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds = number.parse::<f64>().ok().filter(|_| is_number).map(|number| number * unit);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| format!("{key} is {text:?}; allowed: seconds, or a number with ms, s, m, h or d"))
}

/// `/sources`.
#[derive(Debug, PartialEq)]
pub(super) struct SourcesQuery {
    pub server: Option<String>,
    pub type_name: Option<String>,
    /// One of [`SourceState::NAMES`].
    pub state: Option<&'static str>,
}

impl SourcesQuery {
    pub fn parse(uri: &Uri, headers: &HeaderMap) -> Result<(SourcesQuery, Page), String> {
        let mut params = Params::parse(uri, &["server", "type", "state", "after", "limit"])?;
        let query = SourcesQuery {
            server: params.take("server"),
            type_name: params.take("type"),
            state: params.word("state", &SourceState::NAMES.map(|name| (name, name)))?,
        };
        Ok((query, Page::read(&mut params, headers)?))
    }
}

/// `/resources`.
pub(super) fn resources(uri: &Uri, headers: &HeaderMap) -> Result<(ResourceFilter, Page), String> {
    let mut params = Params::parse(uri, &["type", "name", "state", "after", "limit"])?;
    let states = ClientStatus::ALL.map(|state| (state.name(), state));
    let filter = ResourceFilter {
        type_name: params.take("type"),
        name: params.take("name"),
        state: params.word("state", &states)?,
    };
    Ok((filter, Page::read(&mut params, headers)?))
}

/// `/refused`.
pub(super) fn refused(uri: &Uri, headers: &HeaderMap) -> Result<Page, String> {
    Page::read(&mut Params::parse(uri, &["after", "limit"])?, headers)
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
    pub fn parse(uri: &Uri) -> Result<EventsQuery, String> {
        let mut params = Params::parse(uri, &["kind", "severity", "after", "limit"])?;
        let kind = params.word("kind", &Kind::ALL.map(|kind| (kind.name(), kind)))?;
        let severities = Severity::ALL.map(|severity| (severity.name(), severity));
        let severity = params.word("severity", &severities)?.unwrap_or(Severity::Info);
        let (after, limit) = (params.take("after"), params.take("limit"));
        let limit = limit.map(|text| match text.parse() {
            Ok(limit) if limit <= EVENTS_LIMIT => Ok(limit),
            _ => Err(format!("limit is {text:?}; allowed: a whole number up to {EVENTS_LIMIT}")),
        });
        let number = |text: String| {
            text.parse().map_err(|_| format!("after is {text:?}; allowed: a number of an event"))
        };
        Ok(EventsQuery {
            filter: EventFilter { kind, severity },
            after: after.map(number).transpose()?,
            limit: limit.transpose()?,
        })
    }
}

/// `/changes`.
pub(super) fn changes(uri: &Uri) -> Result<ChangeFilter, String> {
    let mut params = Params::parse(uri, &["type", "source", "after", "limit"])?;
    let number = |text: String| {
        text.parse()
            .map_err(|_| format!("source is {text:?}; allowed: the number of a source, as in c-NUMBER-118"))
    };
    let (type_name, source) = (params.take("type"), params.take("source").map(number).transpose()?);
    let page = Page::read(&mut params, &HeaderMap::new())?;
    let place = |(at, source, number)| ChangePlace { at, name: ChangeName { source, number } };
    Ok(ChangeFilter { type_name, source, after: page.after()?.map(place), limit: page.limit })
}

/// `/confirm_deletions`.
pub(super) fn deletions(uri: &Uri) -> Result<DeletionFilter, String> {
    let mut params = Params::parse(uri, &["server", "type"])?;
    Ok(DeletionFilter { server: params.take("server"), type_name: params.take("type") })
}
