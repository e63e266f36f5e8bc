//! `GET /overview`: the whole relay on a page of at most 4 KiB, whatever the fleet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::{Request, State as Shared};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use sluice_admin_api::overview::{
    Attention, ClientCensus, ConfigInForce, LatestDelivery, Overview, ReloadOutcome, TierAge, TypeOverview,
    UpstreamOverview,
};
use sluice_admin_api::parameters::OverviewParameters;

use super::access::Area;
use super::bound::held;
use super::census::Census;
use super::item::{rfc_3339, seconds_since};
use super::live::{self, Feed, FeedState};
use super::params::{read, word};
use super::readiness;
use super::reloading::{ConfigHistory, LastReload};
use super::state::{Admin, State};
use crate::driver::api::changes::ChangeStatus;
use crate::driver::api::rollouts::RolloutStatus;
use crate::driver::api::status::{SourceState, SourceStatus, Why};
use crate::telemetry::rollouts;

/// The version of the shape.
const API: u32 = 1;

/// The longest answer.
pub(super) const BYTES_MAX: usize = 4096;

/// The age of a way through relays that is for somebody's attention, in seconds. Eight relays that all live
/// stay below it.
const OLD: f64 = 60.0;

/// The longest text of another party, in bytes.
const TEXT_BYTES_MAX: usize = 160;

pub(super) async fn overview(Shared(admin): Shared<Admin>, request: Request) -> Result<Response, Response> {
    let OverviewParameters { counted } = read(request.uri())?;
    let is_from_now = word("counted", counted, &[("now", true)])?.unwrap_or(false);
    if live::is_wanted(request.headers()) {
        return Ok(live::respond(&admin, request.extensions(), LiveOverview(admin.clone())));
    }
    // The wait for a count holds no place among the requests.
    let census = if is_from_now { Some(admin.census.count_now(&*admin.relay).await) } else { None };
    let place = admin.permit(Area::View, request.extensions())?;
    let text = text(&admin, census).await;
    Ok(held(([(header::CONTENT_TYPE, "application/json")], text).into_response(), place))
}

/// The newest overview, at each look.
struct LiveOverview(Admin);

impl Feed for LiveOverview {
    async fn write(&mut self, out: &mut String, _is_last: bool) -> FeedState {
        live::message(out, None, None, &text(&self.0, None).await);
        FeedState::Wait
    }
}

fn delivery(change: &ChangeStatus) -> LatestDelivery {
    let seconds = |duration: Option<Duration>| duration.map(|duration| duration.as_secs_f64());
    LatestDelivery {
        last_change: change.place.name.to_string(),
        r#type: cut(change.type_url.short()),
        age_seconds: change.age.as_secs_f64(),
        window_seconds: window(change).as_secs_f64(),
        acked: change.counts.acked,
        rejected: change.counts.rejected,
        p50: seconds(change.p50),
        p99: seconds(change.p99),
    }
}

/// The time since the receipt in which answers counted.
pub(super) fn window(change: &ChangeStatus) -> Duration {
    let is_over = change.counts.waiting == 0;
    change.last.filter(|_| is_over).unwrap_or(change.age)
}

fn look_at(what: String, see: &str, say: &str) -> Attention {
    Attention { what, see: see.to_owned(), say: say.to_owned() }
}

/// `census`: in place of the latest count.
async fn text(admin: &Admin, census: Option<Arc<Census>>) -> String {
    admin.relay.refresh().await;
    let mut overview = match census {
        Some(census) => collect(admin, &census, admin.relay.now()),
        None => gather(admin, admin.relay.now()).await,
    };
    loop {
        let text = serde_json::to_string(&overview).unwrap_or_default();
        if text.len() <= BYTES_MAX || !leave_out(&mut overview) {
            return text;
        }
    }
}

/// The whole overview, however long.
pub(super) async fn gather(admin: &Admin, now: SystemTime) -> Overview {
    let census = admin.census.census(&*admin.relay).await;
    collect(admin, &census, now)
}

fn collect(admin: &Admin, census: &Census, now: SystemTime) -> Overview {
    let (settings, sources, config) =
        (admin.settings.get(), admin.relay.sources(), admin.process.reloading.status());
    let (ready, _) = readiness::report(
        &admin.process.readiness,
        settings.ready_requires_upstream,
        &sources,
        &[],
        &[],
        now,
    );
    let (upstreams, tiers) = (upstreams(&sources, now), tiers(admin));
    Overview {
        api: API,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node: cut(&settings.about.node),
        started: rfc_3339(admin.started),
        uptime_seconds: seconds_since(admin.started, now),
        ready,
        draining: admin.process.readiness.state() == State::Draining,
        config: in_force(&config),
        clients: clients(census),
        types: types(census),
        attention: attention(admin, census, &upstreams, &tiers, &sources, &config),
        upstreams,
        tiers,
        delivery: admin.relay.latest_change().map(|change| delivery(&change)),
        left_out: 0,
        predecessor: admin.process.upgrading.predecessor(),
    }
}

fn attention(
    admin: &Admin,
    census: &Census,
    upstreams: &[UpstreamOverview],
    tiers: &[TierAge],
    sources: &[Arc<SourceStatus>],
    config: &ConfigHistory,
) -> Vec<Attention> {
    let mut attention = Vec::new();
    attention.extend(config.last_reload.as_ref().and_then(failed_reload));
    let (rejected, silent) = (census.count(Why::Rejected), census.silent);
    if rejected > 0 {
        let what = format!("{rejected} {} the last update", clients_do(rejected, "rejects", "reject"));
        attention.push(look_at(what, "/clients?state=ERROR", "sluice get clients --state ERROR"));
    }
    for upstream in upstreams.iter().filter(|upstream| upstream.stale_seconds.is_some()) {
        let seconds = upstream.stale_seconds.unwrap_or_default();
        let what = format!("{} has been unreachable for {seconds:.0} s", upstream.server);
        attention.push(look_at(what, "/sources", "sluice get sources"));
    }
    for TierAge { path, age_seconds } in tiers {
        let Some(seconds) = age_seconds.filter(|seconds| *seconds > OLD) else { continue };
        let what = format!("{path} has confirmed nothing for {seconds:.0} s");
        attention.push(look_at(what, "/sources", "sluice get sources"));
    }
    if silent > 0 {
        let what = format!("{silent} {} for a minute", clients_do(silent, "is silent", "are silent"));
        let say = "sluice get clients --why unacked --behind-for 60s";
        attention.push(look_at(what, "/clients?why=unacked&behind_for=60s", say));
    }
    let held_back: usize =
        sources.iter().flat_map(|source| &source.types).map(|status| status.held_back).sum();
    if held_back > 0 {
        let what = format!("a deletion of {held_back} resources is held back");
        attention.push(look_at(what, "/sources", "sluice get sources"));
    }
    if census.refused > 0 {
        let refused = clients_do(census.refused, "has", "have");
        let what = format!("{} {refused} no place for the node class", census.refused);
        attention.push(look_at(what, "/refused", "sluice events --kind class"));
    }
    attention.extend(admin.relay.rollouts().iter().flat_map(|plan| stopped_pushes(plan)));
    if admin.process.readiness.has_expired_certificate() {
        let what = "a certificate of the relay has expired".to_owned();
        attention.push(look_at(what, "/events?kind=tls", "sluice events --kind tls"));
    }
    attention
}

/// Leaves the last entry of the longest list out. Returns whether there was one.
fn leave_out(overview: &mut Overview) -> bool {
    overview.left_out += 1;
    let types = overview.types.len();
    let (upstreams, attention) = (overview.upstreams.len() * 2, overview.attention.len() * 2);
    if overview.tiers.len() * 2 > types.max(upstreams).max(attention) {
        overview.tiers.pop().is_some()
    } else if types >= upstreams && types >= attention {
        overview.types.pop().is_some()
    } else if upstreams >= attention {
        overview.upstreams.pop().is_some()
    } else {
        overview.attention.pop().is_some()
    }
}

fn in_force(config: &ConfigHistory) -> ConfigInForce {
    let current = config.current();
    ConfigInForce {
        generation: current.map_or(0, |current| current.number),
        hash: current.map(|current| current.hash.clone()).unwrap_or_default(),
        loaded: current.map(|current| rfc_3339(current.since)).unwrap_or_default(),
        last_reload: config.last_reload.as_ref().map(|last| ReloadOutcome {
            at: rfc_3339(last.at),
            trigger: last.trigger.to_owned(),
            result: last.result.name().to_owned(),
        }),
    }
}

/// REL-4: the configuration in force is not the one that somebody wanted.
fn failed_reload(last: &LastReload) -> Option<Attention> {
    if last.result.is_success() {
        return None;
    }
    let first = last.faults.first().map(String::as_str).unwrap_or_default();
    let more = match last.faults.len() {
        0 | 1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let what = cut(&format!("the last reload failed ({}): {first}{more}", last.result.name()));
    let say = last.say.clone().unwrap_or_else(|| "sluice reload --dry-run".to_owned());
    Some(look_at(what, "/config", &say))
}

/// The ways through relays, the oldest first.
fn tiers(admin: &Admin) -> Vec<TierAge> {
    let mut tiers = readiness::tiers(&*admin.relay);
    let age = |tier: &TierAge| tier.age_seconds.unwrap_or(-1.0);
    tiers.sort_by(|a, b| age(b).total_cmp(&age(a)));
    tiers.into_iter().map(|tier| TierAge { path: cut(&tier.path), ..tier }).collect()
}

/// A plan has stopped its latest push, or would have, or an order keeps pushes from going on.
fn stopped_pushes(plan: &RolloutStatus) -> Vec<Attention> {
    let name = &plan.plan.name;
    let of_push = plan.report.push.as_deref().and_then(rollouts::why);
    let joins =
        plan.newcomers.joins().map(|joins| format!("goes on elsewhere: {}", rollouts::joins_text(&joins)));
    let texts = of_push.into_iter().chain(rollouts::stands(&plan.report)).chain(joins);
    let attention = |text: String| {
        let what = cut(&format!("plan {name} {text}"));
        look_at(what, &format!("/rollouts/{name}"), &format!("sluice rollout status {name}"))
    };
    texts.map(attention).collect()
}

fn clients_do(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("client {one}") } else { format!("clients {many}") }
}

fn clients(census: &Census) -> ClientCensus {
    ClientCensus {
        streams: census.streams,
        synced: census.synced,
        unacked: census.count(Why::Unacked),
        held: census.held(),
        rejected: census.count(Why::Rejected),
        unknown: census.count(Why::Unknown),
        silent: census.silent,
        on_fallback: census.on_fallback,
        stale: census.stale,
        refused: census.refused,
    }
}

/// The types with the most streams behind come first.
fn types(census: &Census) -> Vec<TypeOverview> {
    let mut types: Vec<_> = census.types.iter().collect();
    types.sort_by_key(|(_, census)| std::cmp::Reverse((census.streams - census.synced, census.streams)));
    let shown = types.into_iter().map(|(type_url, census)| TypeOverview {
        r#type: cut(type_url.short()),
        streams: census.streams,
        synced: census.synced,
        version: census.version.map(|version| version.to_string()),
    });
    shown.collect()
}

/// The servers with the longest outage come first.
fn upstreams(sources: &[Arc<SourceStatus>], now: SystemTime) -> Vec<UpstreamOverview> {
    let mut by_server: BTreeMap<(&str, &str), UpstreamOverview> = BTreeMap::new();
    for source in sources {
        let upstream = by_server.entry((&source.list, &source.server)).or_default();
        upstream.sources += 1;
        let stale = source.stale_since.map(|since| seconds_since(since, now));
        // The worst state of a source counts.
        if upstream.sources == 1 || stale > upstream.stale_seconds {
            upstream.state = source.state.name().to_owned();
            upstream.stale_seconds = stale;
            upstream.last_error = source.error_text().map(|text| cut(&text));
        } else if upstream.stale_seconds.is_none() && source.state != SourceState::Connected {
            upstream.state = source.state.name().to_owned();
        }
    }
    let named = by_server.into_iter().map(|((list, server), upstream)| UpstreamOverview {
        server: cut(server),
        list: cut(list),
        ..upstream
    });
    let mut upstreams: Vec<_> = named.collect();
    let stale = |upstream: &UpstreamOverview| upstream.stale_seconds.unwrap_or(-1.0);
    upstreams.sort_by(|a, b| stale(b).total_cmp(&stale(a)));
    upstreams
}

fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(TEXT_BYTES_MAX);
    text.get(..end).unwrap_or_default().to_owned()
}
