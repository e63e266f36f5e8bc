//! The page to leave open on a wall: the endpoint `/overview`, with the latest changes and warnings.

use std::time::Duration;

use askama::Template;
use sluice_admin_api::acts::PredecessorStatus;
use sluice_admin_api::overview::{ClientCensus, Overview, TierAge, TypeOverview, UpstreamOverview};

use super::changes;
use super::events;
use super::frame::{Ask, Frame, PageFault};
use super::parts::{Mark, Shape, ShellCommand};
use super::plot::{DeliveryPlot, StateBar};
use super::text::{count, counted};
use crate::admin::overview;
use crate::driver::api::changes::ChangeFilter;
use crate::telemetry::events::Severity;
use sluice_text::span;

/// Rows of the short lists.
const SHORT: usize = 5;

/// Changes in the plot.
const PLOTTED: usize = 200;

/// Wide because the fields are the sections of the page.
#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    facts: String,
    /// The configuration in force: generation and hash.
    config: (u64, String),
    predecessor: Option<String>,
    attention: Vec<(String, String, ShellCommand)>,
    calm: String,
    numbers: [CensusNumber; 4],
    upstreams: Vec<UpstreamRow>,
    /// The ways through other relays, and when each was last confirmed.
    tiers: Vec<(String, String)>,
    types: Vec<TypeRow>,
    plot: DeliveryPlot,
    changes: Vec<changes::ChangeRow>,
    rows: Vec<events::EventRow>,
}

struct CensusNumber {
    look: Shape,
    value: String,
    label: &'static str,
    about: String,
    link: &'static str,
}

struct UpstreamRow {
    server: String,
    link: String,
    list: String,
    state: Mark,
    sources: usize,
    stale: String,
    error: String,
}

struct TypeRow {
    name: String,
    link: String,
    streams: String,
    bar: StateBar,
    version: String,
}

pub(super) async fn html(ask: &Ask<'_>) -> Result<String, PageFault> {
    let now = overview::gather(ask.admin, ask.now).await;
    let filter = ChangeFilter { limit: PLOTTED, ..ChangeFilter::default() };
    let latest = ask.admin.relay.changes(filter).await;
    let mut rows = events::latest(ask, |event| event.first.severity >= Severity::Warn);
    rows.truncate(SHORT);
    let page = OverviewPage {
        frame: Frame::new(ask, "", "Overview"),
        facts: facts(&now),
        config: (now.config.generation, now.config.hash.clone()),
        predecessor: now.predecessor.as_ref().map(predecessor),
        calm: calm(&now.clients),
        attention: now
            .attention
            .iter()
            .map(|entry| (entry.what.clone(), path(&entry.see), ShellCommand(entry.say.clone())))
            .collect(),
        numbers: numbers(&now.clients),
        upstreams: now.upstreams.iter().map(upstream).collect(),
        tiers: now.tiers.iter().map(|tier| (tier.path.clone(), confirmed(tier))).collect(),
        types: now.types.iter().map(type_row).collect(),
        plot: DeliveryPlot::of(&latest),
        changes: latest.iter().take(SHORT).map(changes::row).collect(),
        rows,
    };
    Ok(page.render()?)
}

/// The page with the data of an endpoint.
fn path(endpoint: &str) -> String {
    match endpoint.strip_prefix("/refused") {
        Some(_) => "/ui/classes#refused".to_owned(),
        None => format!("/ui{endpoint}"),
    }
}

fn facts(now: &Overview) -> String {
    let ready = match (now.draining, now.ready) {
        (true, _) => "draining",
        (false, true) => "ready",
        (false, false) => "not ready",
    };
    let up = Duration::from_secs(now.uptime_seconds as u64);
    format!("{ready}, up {}", span(up))
}

/// The process before an upgrade. Its streams end here one by one, and their clients come to this process.
fn predecessor(status: &PredecessorStatus) -> String {
    let (streams, connections) = (status.streams as usize, status.connections as usize);
    let left = Duration::try_from_secs_f64(status.seconds_left.ceil()).unwrap_or_default();
    format!(
        "An upgrade is in progress: process {} with version {} still has {} on {}, and ends within {}.",
        status.pid,
        status.version,
        counted(streams, "stream"),
        counted(connections, "connection"),
        span(left)
    )
}

fn calm(clients: &ClientCensus) -> String {
    match clients.streams {
        0 => "No client is connected.".to_owned(),
        streams if clients.synced == streams => format!("All {} are in sync.", counted(streams, "client")),
        streams => format!(
            "{} of {} are in sync; a change is on its way.",
            count(clients.synced),
            counted(streams, "client")
        ),
    }
}

fn numbers(clients: &ClientCensus) -> [CensusNumber; 4] {
    let shown = |look: Shape, number: usize, label, about: String, link| {
        let look = if number == 0 { Shape::None } else { look };
        CensusNumber { look, value: count(number), label, about, link }
    };
    let total = format!("of {} connected", count(clients.streams));
    let behind = format!("{} not answered, {} held back", count(clients.unacked), count(clients.held));
    let silent = "no answer for a minute".to_owned();
    [
        shown(Shape::Good, clients.synced, "in sync", total, "/ui/clients"),
        shown(
            Shape::Late,
            clients.unacked + clients.held,
            "behind",
            behind,
            "/ui/clients?state=STALE&sort=behind",
        ),
        shown(
            Shape::Bad,
            clients.rejected,
            "rejecting",
            "the last update".to_owned(),
            "/ui/clients?state=ERROR",
        ),
        shown(Shape::Bad, clients.silent, "silent", silent, "/ui/clients?why=unacked&behind_for=60s"),
    ]
}

fn upstream(upstream: &UpstreamOverview) -> UpstreamRow {
    UpstreamRow {
        server: upstream.server.clone(),
        link: format!("/ui/sources?server={}", sluice_text::encoded(&upstream.server)),
        list: upstream.list.clone(),
        state: Mark::of_source_name(&upstream.state),
        sources: upstream.sources,
        stale: upstream
            .stale_seconds
            .map(|seconds| span(Duration::from_secs_f64(seconds)))
            .unwrap_or_default(),
        error: upstream.last_error.clone().unwrap_or_default(),
    }
}

fn confirmed(tier: &TierAge) -> String {
    let ago = |seconds| format!("{} ago", span(Duration::from_secs_f64(seconds)));
    tier.age_seconds.map_or_else(|| "not yet".to_owned(), ago)
}

fn type_row(row: &TypeOverview) -> TypeRow {
    let name = sluice_text::encoded(&row.r#type);
    TypeRow {
        name: row.r#type.clone(),
        link: format!("/ui/clients?type={name}"),
        streams: count(row.streams),
        bar: StateBar::new([
            ("good", row.synced, "in sync"),
            ("late", row.streams.saturating_sub(row.synced), "not in sync"),
        ]),
        version: row.version.as_deref().map_or_else(|| "several".to_owned(), sluice_text::version),
    }
}
